//! Sessions of a core over real tables: they meet what they are said to.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test helpers")]

mod adopt;
mod serving;
mod wire;
