//! Tunnels of the other direction, of sessions that relay packets: the way back to those who sent them.

use std::sync::atomic::{AtomicU32, Ordering};

use compiled::{Compiled, Direction, Key, Select};

use crate::abi::Features;
use crate::memory::View;
use crate::store::plan::Plan;

/// Note for each tunnel of a session that relays packets which one leads the other way.
pub(crate) fn note(backs: &View<AtomicU32>, plan: &Plan, new: &Compiled) {
    if !plan.next.needs.contains(Features::RELAY) {
        return;
    }
    for (place, key) in plan.keys.iter().enumerate() {
        let Some((_, travels)) = tunnel(new, place) else {
            continue;
        };
        let mut others = (0..new.keys.len()).filter_map(|place| tunnel(new, place));
        let back = others.find(|(_, other)| *other != travels);
        if let Some(noted) = backs.get(key.at as usize) {
            noted.store(back.map_or(0, |(teid, _)| teid), Ordering::Relaxed);
        }
    }
}

/// The TEID that a key is, and which way its packets travel.
fn tunnel(new: &Compiled, place: usize) -> Option<(u32, Direction)> {
    let (Key::Teid { teid, .. }, select) = *new.keys.get(place)? else {
        return None;
    };
    let entry = match select {
        Select::One(entry) => entry,
        Select::List { first, .. } => new.filters.get(first)?.entry,
    };
    Some((teid, new.entries.get(entry)?.direction))
}
