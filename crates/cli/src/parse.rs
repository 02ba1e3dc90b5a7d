//! The command line of a program, with the hidden subcommand that writes its documents.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Arg, Command, Parser, value_parser};

use crate::documents;
use crate::program::Program;

/// Name of the hidden subcommand.
const DOCUMENTS: &str = "documents";
const FOLDER: &str = "DIR";

/// Reads the command line. After `documents DIR` there is nothing left to do but to end with the code given.
///
/// The subcommand is not part of `A`, so that neither manual nor completions have it.
pub fn parse<A: Parser>(program: &Program) -> Result<A, ExitCode> {
    let mut command = A::command().subcommand(definition());
    let mut matches = command.get_matches_mut();
    if let Some((DOCUMENTS, given)) = matches.subcommand() {
        let folder = given.get_one::<PathBuf>(FOLDER);
        return Err(folder.map_or(ExitCode::from(2), |folder| {
            match documents::write(program, A::command(), folder) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    let name = command.get_name();
                    let _ = writeln!(std::io::stderr(), "{name}: {error}");
                    ExitCode::FAILURE
                }
            }
        }));
    }
    A::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command).exit())
}

fn definition() -> Command {
    let folder = Arg::new(FOLDER)
        .required(true)
        .value_parser(value_parser!(PathBuf))
        .help("Folder for man, bash, zsh and fish");
    Command::new(DOCUMENTS)
        .about("Write manual pages and completions, for packages")
        .hide(true)
        .arg(folder)
}
