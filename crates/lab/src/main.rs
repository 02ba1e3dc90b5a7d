//! lab.

fn main() {}
