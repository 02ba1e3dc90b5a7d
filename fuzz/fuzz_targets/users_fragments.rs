//! Fragments of users' packets in any order.
#![no_main]
#![allow(dead_code)]

#[path = "../../crates/slowpath/tests/users/mod.rs"]
mod users;

libfuzzer_sys::fuzz_target!(|input: &[u8]| users::fragments(input));
