//! Sessions as tables are given them.

use compiled::{Action, Direction, Entry, Marks, PdrId};

use crate::packets::{GNB, N3};

/// An entry of tables that does this with every packet, and no more.
pub fn entry(pdr: PdrId, direction: Direction, action: Action) -> Entry {
    Entry {
        pdr,
        predefined: None,
        direction,
        action,
        ue: None,
        framed: false,
        qfi: None,
        relay: None,
        marking: None,
        marks: Marks::default(),
        meter: None,
        shared_meters: Default::default(),
        packet_meter: None,
        share: None,
        duplicates: Vec::new(),
    }
}

/// A downlink entry that does this.
pub fn downlink(pdr: PdrId, action: Action) -> Entry {
    entry(pdr, Direction::Downlink, action)
}

/// Into a tunnel of the gNB.
pub fn tunnel(teid: u32) -> Action {
    Action::Tunnel {
        teid,
        peer: GNB.into(),
        local: N3.into(),
    }
}
