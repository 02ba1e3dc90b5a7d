//! turnpiked.

fn main() {}
