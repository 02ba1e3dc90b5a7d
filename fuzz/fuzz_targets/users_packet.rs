//! Any packet of a user: ICMP errors about it, its fragments, answers to Router Solicitations.
#![no_main]
#![allow(dead_code)]

#[path = "../../crates/slowpath/tests/users/mod.rs"]
mod users;

libfuzzer_sys::fuzz_target!(|input: &[u8]| users::packet(input));
