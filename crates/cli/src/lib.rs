//! Common parts of the three command lines: the text of `--version`, the manual and completions, all from the definitions that
//! the programs parse by.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod documents;
mod man;
mod parse;
mod program;
mod version;

pub use clap_complete::Shell;
pub use documents::{completions, documents};
pub use parse::parse;
pub use program::{FilePage, List, Program};
pub use version::{COMMIT, RELEASE, version};
