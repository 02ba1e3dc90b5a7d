//! turnpike.

fn main() {}
