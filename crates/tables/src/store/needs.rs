//! Features of programs that a session needs.

use compiled::{Action, Compiled, Direction, Key};

use crate::abi::{Features, entry};
use crate::encode::meaningful;
use crate::index::Standing;
use crate::store::plan::Plan;

/// Features that a session needs of the programs; of its place in the buckets only that of new keys.
pub(crate) fn of_session(plan: &Plan, new: &Compiled) -> Features {
    let mut needs = Features::NONE;
    for (want, rule) in plan.wants.iter().zip(&new.entries) {
        let head = want.words.head;
        if meaningful(head)[1] {
            needs = needs.with(Features::METER);
        }
        if head & entry::EXT_BIT != 0 {
            needs = needs.with(Features::EXT);
        }
        if !rule.duplicates.is_empty() {
            needs = needs.with(Features::COPY);
        }
        if rule.framed && !new.framed.is_empty() {
            needs = needs.with(Features::PREFIX);
        }
        if matches!(rule.action, Action::Udp { .. }) {
            needs = needs.with(Features::UDP);
        }
        if rule.relay.is_some() {
            needs = needs.with(Features::RELAY);
        }
        // Without an address in its PDI an uplink PDR takes packets of both families.
        if rule.direction == Direction::Uplink && rule.ue.is_none_or(|ue| ue.v6.is_some()) {
            needs = needs.with(Features::IPV6);
        }
    }
    for (key, (named, _)) in plan.keys.iter().zip(&new.keys) {
        if matches!(key.standing, Some(Standing::Slot(_))) {
            needs = needs.with(Features::BUCKETS);
        }
        if key.listed {
            needs = needs.with(Features::LIST);
        }
        match named {
            Key::Ue6 { .. } => needs = needs.with(Features::IPV6),
            // Other features of a prefix are added by its entries.
            Key::Prefix { .. } => needs = needs.with(Features::PREFIX),
            Key::Teid { .. } | Key::Ue4 { .. } => {}
        }
    }
    needs
}
