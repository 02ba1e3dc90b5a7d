//! Counters of ports that outlive the process, as the programs do that count: what was counted before it.

use report::{DirectionReport, DropReport, PortReport};
use serde::{Deserialize, Serialize};
use tables::{DropReason, PortTotals};

use crate::port_reports::{drops, port};

/// Counters of ports, each once.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Counts {
    ports: Vec<PortReport>,
    drops: Vec<DropReport>,
}

impl Counts {
    /// A port, or more of one.
    pub(super) fn add(&mut self, name: &str, totals: &PortTotals) {
        let more = port(name, totals);
        match self.ports.iter_mut().find(|known| known.interface == name) {
            Some(known) => add_port(known, &more),
            None => self.ports.push(more),
        }
        for mut more in drops(name, totals) {
            // Of whoever shows them.
            (more.meaning, more.advice) = Default::default();
            add_drops(&mut self.drops, &more);
        }
    }

    /// Ports that are there have counted all of this, too.
    pub(super) fn add_to(&self, ports: &mut [PortReport], drops: &mut Vec<DropReport>) {
        for known in ports.iter_mut() {
            let mut before = self.ports.iter();
            if let Some(before) = before.find(|before| before.interface == known.interface) {
                add_port(known, before);
            }
        }
        let number = |name: &str| ports.iter().position(|port| port.interface == name);
        let before = self.drops.iter();
        for before in before.filter(|before| number(&before.interface).is_some()) {
            let mut reasons = DropReason::ALL.iter();
            let reason = reasons.find(|reason| reason.name() == before.reason);
            let text = |text: fn(DropReason) -> &'static str| {
                reason.map_or(String::new(), |reason| text(*reason).to_owned())
            };
            let before = DropReport {
                meaning: text(DropReason::meaning),
                advice: text(DropReason::remedy),
                ..before.clone()
            };
            add_drops(drops, &before);
        }
        // As without these: by ports, directions and reasons.
        drops.sort_by_key(|drop| {
            let mut all = DropReason::ALL.iter();
            let reason = all.position(|reason| reason.name() == drop.reason);
            (number(&drop.interface), drop.direction != "uplink", reason)
        });
    }
}

fn add_port(to: &mut PortReport, more: &PortReport) {
    let add = |to: &mut DirectionReport, more: &DirectionReport| {
        to.in_packets += more.in_packets;
        to.in_bytes += more.in_bytes;
        to.out_packets += more.out_packets;
        to.out_bytes += more.out_bytes;
    };
    add(&mut to.uplink, &more.uplink);
    add(&mut to.downlink, &more.downlink);
    to.passed += more.passed;
    to.answered += more.answered;
    to.slow += more.slow;
    to.later += more.later;
}

fn add_drops(to: &mut Vec<DropReport>, more: &DropReport) {
    let is_same = |known: &&mut DropReport| {
        (&known.interface, &known.direction, &known.reason)
            == (&more.interface, &more.direction, &more.reason)
    };
    match to.iter_mut().find(is_same) {
        Some(known) => known.packets += more.packets,
        None => to.push(more.clone()),
    }
}

#[cfg(test)]
mod tests {
    use tables::Traffic;

    use super::*;

    fn totals(packets: u64, lost: &[(usize, DropReason, u64)]) -> PortTotals {
        let mut totals = PortTotals::default();
        let bytes = 100 * packets;
        totals.received[0] = Traffic { packets, bytes };
        totals.slow = 1;
        for (direction, reason, packets) in lost {
            totals.drops[*direction][reason.place()] = *packets;
        }
        totals
    }

    #[test]
    fn counts_of_several_processes_are_added_by_name() {
        use DropReason::{UnknownTeid, Unmanaged};
        let mut counts = Counts::default();
        counts.add("n3", &totals(10, &[(0, Unmanaged, 3), (1, UnknownTeid, 7)]));
        counts.add("gone", &totals(99, &[(0, Unmanaged, 99)]));
        counts.add("n3", &totals(5, &[(0, Unmanaged, 1)]));
        let octets = serde_json::to_vec(&counts).unwrap();
        let counts: Counts = serde_json::from_slice(&octets).unwrap();
        // In another order now.
        let names = ["n6", "n3"];
        let now = [
            totals(1, &[(0, UnknownTeid, 1)]),
            totals(2, &[(0, UnknownTeid, 2)]),
        ];
        let mut ports: Vec<_> = names
            .iter()
            .zip(&now)
            .map(|(name, of)| port(name, of))
            .collect();
        let mut lost: Vec<_> = (names.iter().zip(&now))
            .flat_map(|(name, of)| drops(name, of))
            .collect();
        counts.add_to(&mut ports, &mut lost);
        let received =
            |port: &PortReport| (port.uplink.in_packets, port.uplink.in_bytes, port.slow);
        let received: Vec<_> = ports.iter().map(received).collect();
        assert_eq!(received, [(1, 100, 1), (17, 1700, 3)]);
        let row = |drop: &DropReport| {
            let name = format!("{} {} {}", drop.interface, drop.direction, drop.reason);
            (name, drop.packets)
        };
        let rows: Vec<_> = lost.iter().map(row).collect();
        let expected = [
            ("n6 uplink unknown_teid", 1),
            ("n3 uplink unknown_teid", 2),
            ("n3 uplink unmanaged", 4),
            ("n3 downlink unknown_teid", 7),
        ];
        let expected = expected.map(|(name, of)| (name.to_owned(), of));
        assert_eq!(rows, expected);
        assert!(lost.iter().all(|drop| !drop.meaning.is_empty()));
    }
}
