//! Rates, and shares of capacities.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::direction::Direction;
use crate::ids::{CapacityId, QerId};

/// An MBR shared within the session, a packet rate, or a share of capacities: one direction of one QER.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedMeter {
    /// With `direction` and the kind of `limit`, identifies it across changes, so that its state is
    /// kept.
    pub qer: QerId,
    /// Which half of the QER.
    pub direction: Direction,
    /// The limit.
    pub limit: Limit,
}

/// Quantity that a shared meter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// MBR.
    Bits(Rate),
    /// Packet Rate.
    Packets(PacketRate),
    /// Part of the flow where there is not enough for all.
    Share(Share),
}

/// A flow's part of what interfaces, a network instance or a group of users have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Its part where all others want more than theirs, against theirs: 1 to [`WEIGHT_MAX`].
    pub weight: u16,
    /// Rate that it has in any case (GBR: TS 29.244, 8.2.9). The tables have so much for all who are guaranteed something, or refuse.
    pub guaranteed: Option<Rate>,
    /// Which capacities; the first are not [`CapacityId::NONE`].
    pub capacities: [CapacityId; CAPACITIES_ON_WAY],
}

/// The greatest weight of a flow.
pub const WEIGHT_MAX: u16 = 1000;

/// Capacities on a packet's way (`TP_SHARE_CAPACITIES` of the tables).
pub const CAPACITIES_ON_WAY: usize = 4;

/// A maximum number of packets in each time unit (TS 29.244, 8.2.63). A time unit begins with the
/// first packet after the one before has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketRate {
    /// Packets; zero lets nothing pass.
    pub packets: u32,
    /// The time unit.
    pub per: Duration,
}

/// A maximum bit rate of inner IP packets (TS 29.244, 8.2.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Bits per second; zero lets nothing pass. MBR is a 40-bit number of kbit/s.
    pub bps: u64,
    /// Octets that may pass back to back.
    pub burst_bytes: u64,
    /// Fate of packets above it.
    pub above: Above,
}

/// Fate of packets above a rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Above {
    /// They are dropped.
    #[default]
    Police,
    /// They wait, where the data path can have them wait.
    Shape,
}
