//! What a session costs.

use std::mem::{size_of, size_of_val};

use super::*;
use crate::rules::{Asks, RulesView, Urr};
use crate::slice::kept::Block;
use crate::slice::sessions::{Extra, Session};
use crate::usage::measured::{Measured, Seen};

/// 560 octets and two IPv6 addresses: a FAR keeps what the SMF says of both families.
const AT_MOST: usize = 560 + 2 * 16;

/// What an allocation costs beyond its size, at worst: rounding up to 16 octets and a header of 8.
const PER_ALLOCATION: usize = 24;

fn heap<R>(rules: &[R]) -> usize {
    if rules.is_empty() {
        0
    } else {
        size_of_val(rules) + PER_ALLOCATION
    }
}

fn bytes(rules: RulesView<'_>) -> usize {
    assert!(
        rules
            .pdrs
            .iter()
            .all(|pdr| pdr.pdi.filters().is_empty() && !pdr.qers.spilled() && !pdr.urrs.spilled())
    );
    assert_eq!(
        [rules.pdrs.len(), rules.fars.len(), rules.qers.len()],
        [2, 2, 1]
    );
    size_of::<Block<1>>() + PER_ALLOCATION + heap(rules.bars)
}

/// A plain URR over both PDRs, and what is kept of each: what it asks for, what it has measured and what the
/// counters of the PDRs said.
fn measuring() -> usize {
    let rule = size_of::<Urr>() + size_of::<Asks>() + 2 * size_of::<usize>() + 2 * PER_ALLOCATION;
    let usage = size_of::<Extra>() + size_of::<Measured>() + 2 * size_of::<Seen>();
    rule + usage + 3 * PER_ALLOCATION
}

#[test]
fn an_ordinary_session_takes_at_most_592_octets() {
    let mut world = World::new();
    let (seid, _) = world
        .establish(|w| {
            ordinary(w);
        })
        .unwrap();
    let rules = world.sessions.rules(seid).unwrap();
    // The tables' handle is theirs to count; the generation and tag of the slot are 8.
    let fixed = size_of::<Session<()>>() + 8;
    let total = fixed + bytes(rules);
    println!("session {fixed}, rules {}, in all {total}", bytes(rules));
    assert!(total <= AT_MOST, "{total} octets");
    println!("a URR {}", measuring());
    assert!(measuring() <= 640, "{} octets", measuring());
}
