//! Memory that a session costs.

use std::mem::size_of;

use ipnet::IpNet;

use super::*;
use crate::base::slab::Slab;
use crate::rules::{Asks, Urr};
use crate::shard::context::Extra;
use crate::shard::session::Session;
use crate::usage::measured::{Measured, Seen};
use crate::usage::urr_rules::NamedBy;

/// Half of what its rules alone would take as values.
const AT_MOST: usize = 256;

/// Cost of an allocation beyond its size, at worst: rounding up to 16 octets and a header of 8.
const PER_ALLOCATION: usize = 24;

/// A plain URR over both PDRs: what it asks for, which PDRs name it, what it has measured and what the
/// counters of the PDRs said.
fn measuring() -> usize {
    let rule = size_of::<Urr>() + size_of::<Asks>() + 2 * size_of::<usize>() + 2 * PER_ALLOCATION;
    let named_by = 2 * size_of::<NamedBy>() + size_of::<IpNet>() + 2 * PER_ALLOCATION;
    let usage = size_of::<Extra>() + size_of::<Measured>() + 2 * size_of::<Seen>();
    rule + named_by + usage + 3 * PER_ALLOCATION
}

#[test]
fn an_ordinary_session_takes_at_most_256_octets() {
    let mut world = World::new();
    let (seid, _) = world
        .establish(|w| {
            ordinary(w);
        })
        .unwrap();
    let context = world.sessions.context(seid).unwrap();
    assert!(context.extra.is_none());
    let rules = context.kept.octets() + PER_ALLOCATION;
    // The tables' handle is theirs to count.
    let fixed = Slab::<Session<()>>::SLOT_OCTETS;
    assert_eq!(
        fixed,
        size_of::<Session<()>>() + 8,
        "a slot has two generations, and no tag"
    );
    let total = fixed + rules;
    println!("session {fixed}, rules {rules}, in all {total}");
    assert!(total <= AT_MOST, "{total} octets");
    println!("a URR {}", measuring());
    assert!(measuring() <= 736, "{} octets", measuring());
}
