//! The `lab` command.

fn main() {}
