//! Counters of ports as operators read them.

use report::{DirectionReport, DropReport, PortReport};
use tables::{DropReason, PortTotals, Traffic};

pub(crate) fn port(name: &str, totals: &PortTotals) -> PortReport {
    let direction = |received: Traffic, forwarded: Traffic| DirectionReport {
        in_packets: received.packets,
        in_bytes: received.bytes,
        out_packets: forwarded.packets,
        out_bytes: forwarded.bytes,
    };
    let [up_in, down_in] = totals.received;
    let [up_out, down_out] = totals.forwarded;
    PortReport {
        interface: name.to_owned(),
        uplink: direction(up_in, up_out),
        downlink: direction(down_in, down_out),
        passed: totals.passed,
        answered: totals.answered,
        slow: totals.slow,
        later: totals.later,
        ..PortReport::default()
    }
}

/// Lost packets, for each reason that there are some for.
pub(crate) fn drops(interface: &str, totals: &PortTotals) -> Vec<DropReport> {
    let mut rows = Vec::new();
    for (direction, counts) in ["uplink", "downlink"].into_iter().zip(&totals.drops) {
        for (reason, &packets) in DropReason::ALL
            .iter()
            .zip(counts)
            .filter(|(_, count)| **count > 0)
        {
            rows.push(DropReport {
                interface: interface.to_owned(),
                direction: direction.to_owned(),
                reason: reason.name().to_owned(),
                packets,
                meaning: reason.meaning().to_owned(),
                advice: reason.remedy().to_owned(),
            });
        }
    }
    rows
}
