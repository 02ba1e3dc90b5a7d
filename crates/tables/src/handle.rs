//! Places of the parts of one session, in as little memory as an ordinary session needs.

use compiled::{Direction, Entry, Limit, PdrId, PredefinedId, QerId};

use crate::abi::Features;
use crate::index::SlotKey;

/// A key of the session and the entry it leads to. Below the number of TEID slots, the entry is
/// the key's own slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HeldKey {
    key: u64,
    ni_kind: u32,
    pub(crate) entry: u32,
}

impl HeldKey {
    pub(crate) fn new(key: SlotKey, entry: u32) -> Self {
        Self {
            key: key.key,
            ni_kind: key.ni_kind,
            entry,
        }
    }

    pub(crate) fn key(self) -> SlotKey {
        SlotKey {
            key: self.key,
            ni_kind: self.ni_kind,
        }
    }
}

/// Entry with the counters of a PDR, or of one of its predefined rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeldEntry {
    pub(crate) index: u32,
    pub(crate) pdr: PdrId,
    pub(crate) predefined: Option<PredefinedId>,
}

impl HeldEntry {
    pub(crate) fn new(index: u32, entry: &Entry) -> Self {
        Self {
            index,
            pdr: entry.pdr,
            predefined: entry.predefined,
        }
    }

    /// Whether it is of the same PDR, and of the same predefined rule.
    pub(crate) fn is_of(&self, (pdr, predefined): (PdrId, Option<PredefinedId>)) -> bool {
        self.pdr == pdr && self.predefined == predefined
    }
}

/// Place of a shared meter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeldMeter {
    pub(crate) index: u32,
    pub(crate) qer: QerId,
    pub(crate) direction: Direction,
    pub(crate) kind: MeterKind,
}

/// Unit that a shared meter counts in. The numbers are in tables that outlive their process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MeterKind {
    Bits = 1,
    Packets = 2,
    Share = 3,
}

impl MeterKind {
    pub(crate) fn of(limit: &Limit) -> Self {
        match limit {
            Limit::Bits(_) => Self::Bits,
            Limit::Packets(_) => Self::Packets,
            Limit::Share(_) => Self::Share,
        }
    }
}

/// A shared meter's name within its session, as its line has it (`tp_meter.name`). Never 0.
pub(crate) fn meter_name(qer: QerId, direction: Direction, kind: MeterKind) -> u64 {
    let direction = match direction {
        Direction::Uplink => 0,
        Direction::Downlink => 1,
    };
    u64::from(qer.0) | direction << 32 | (kind as u64) << 33
}

/// Kind of a meter that has this name; `None`: it has none.
pub(crate) fn kind_of_name(name: u64) -> Option<MeterKind> {
    let mut all = [MeterKind::Bits, MeterKind::Packets, MeterKind::Share].into_iter();
    all.find(|kind| *kind as u64 == name >> 33)
}

/// All parts of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parts {
    pub(crate) keys: Vec<HeldKey>,
    pub(crate) entries: Vec<HeldEntry>,
    pub(crate) meters: Vec<HeldMeter>,
    /// Features that it needs of the programs.
    pub(crate) needs: Features,
    /// [`Compiled::measured`](compiled::Compiled::measured)
    pub(crate) measured: bool,
}

impl Parts {
    pub(crate) fn clear(&mut self) {
        self.keys.clear();
        self.entries.clear();
        self.meters.clear();
        self.needs = Features::NONE;
        self.measured = false;
    }
}

/// A session's place in the tables; `Default` is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Handle(Compact);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Compact {
    #[default]
    Absent,
    /// One PDR for each direction, reached by one key each.
    Pair([HeldKey; 2], [HeldEntry; 2], Features, bool),
    /// Any other.
    Many(Box<Parts>),
}

const _: () = assert!(size_of::<Handle>() <= 64, "a million of these are kept");

impl Handle {
    /// Copy everything to `held`.
    pub(crate) fn read(&self, held: &mut Parts) {
        held.clear();
        match &self.0 {
            Compact::Absent => {}
            Compact::Pair(keys, entries, needs, measured) => {
                held.keys.extend_from_slice(keys);
                held.entries.extend_from_slice(entries);
                held.needs = *needs;
                held.measured = *measured;
            }
            Compact::Many(many) => {
                held.keys.extend_from_slice(&many.keys);
                held.entries.extend_from_slice(&many.entries);
                held.meters.extend_from_slice(&many.meters);
                held.needs = many.needs;
                held.measured = many.measured;
            }
        }
    }

    /// Become `held`.
    pub(crate) fn write(&mut self, held: &Parts) {
        self.0 = match (
            held.keys.as_slice(),
            held.entries.as_slice(),
            held.meters.as_slice(),
        ) {
            ([], [], []) => Compact::Absent,
            (&[a, b], &[x, y], []) => Compact::Pair([a, b], [x, y], held.needs, held.measured),
            _ => Compact::Many(Box::new(held.clone())),
        };
    }

    /// The entries of all PDRs.
    pub(crate) fn entries(&self) -> &[HeldEntry] {
        match &self.0 {
            Compact::Absent => &[],
            Compact::Pair(_, entries, ..) => entries,
            Compact::Many(many) => &many.entries,
        }
    }

    pub(crate) fn keys(&self) -> &[HeldKey] {
        match &self.0 {
            Compact::Absent => &[],
            Compact::Pair(keys, ..) => keys,
            Compact::Many(many) => &many.keys,
        }
    }

    pub(crate) fn meters(&self) -> &[HeldMeter] {
        match &self.0 {
            Compact::Absent | Compact::Pair(..) => &[],
            Compact::Many(many) => &many.meters,
        }
    }

    /// The entries of a PDR: one, unless it activates predefined rules.
    pub(crate) fn entries_of(&self, pdr: PdrId) -> impl Iterator<Item = &HeldEntry> {
        self.entries().iter().filter(move |entry| entry.pdr == pdr)
    }
}
