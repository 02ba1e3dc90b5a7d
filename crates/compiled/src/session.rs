//! A compiled session, and how packets find it.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use crate::entry::Entry;
use crate::filter::Filter;
use crate::ids::NiId;
use crate::meter::SharedMeter;
use crate::room::Resource;

/// Everything that packets of one session can meet. Refilled for each change, so that a change
/// costs no allocation once the vectors have grown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compiled {
    /// Our SEID: the owner of all entries. The same for as long as the session is in the tables.
    pub seid: u64,
    /// URRs count its packets: the final counts of PDRs that go are asked for ([`Tables::parted`](crate::Tables::parted)).
    pub measured: bool,
    /// One per PDR, or one for each predefined rule that it activates.
    pub entries: Vec<Entry>,
    /// Destination of each TEID and UE address. Keys are unique across all sessions: the core
    /// has checked.
    pub keys: Vec<(Key, Select)>,
    /// Meters shared by several entries, or one of several on an entry.
    pub meters: Vec<SharedMeter>,
    /// Filters of all [`Select::List`]s, each list back to back.
    pub filters: Vec<Filter>,
    /// Networks behind the UE, at most [`FRAMED_MAX`], no prefix twice.
    pub framed: Vec<IpNet>,
    /// Buffered packets of the session (FARs with BUFF) are dropped before anything of this takes effect (DROBU).
    pub drops_buffered: bool,
    /// Beyond what it holds, the session may come to hold so much; of what is not named, as much as there is.
    pub more: Vec<(Resource, u64)>,
}

/// Framed routes of one session (`TP_FRAMED_MAX` of the tables).
pub const FRAMED_MAX: usize = 64;

impl Compiled {
    /// Empty, capacity kept.
    pub fn clear(&mut self) {
        self.seid = 0;
        self.measured = false;
        self.entries.clear();
        self.keys.clear();
        self.meters.clear();
        self.filters.clear();
        self.framed.clear();
        self.drops_buffered = false;
        self.more.clear();
    }
}

/// How packets find a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// GTP-U to one of our addresses. A TEID whose lower 24 bits are its slot is found there; any other by the buckets.
    Teid {
        /// Host order, never zero.
        teid: u32,
        /// Table slot that the core has reserved for this TEID alone. `None`: it has none.
        slot: Option<u32>,
    },
    /// IPv4 destination on N6.
    Ue4 {
        /// Network instance in which the address is valid.
        ni: NiId,
        /// The UE's address.
        addr: Ipv4Addr,
    },
    /// IPv6 destination on N6, by its /64.
    Ue6 {
        /// Network instance in which the prefix is valid.
        ni: NiId,
        /// Lower 64 bits zero.
        prefix: Ipv6Addr,
    },
    /// Destination on N6 in a prefix that is neither an IPv4 address nor an IPv6 /64. Of several that
    /// cover it the longest decides, an address or /64 among them.
    Prefix {
        /// Network instance in which the prefix is valid.
        ni: NiId,
        /// Zeros beyond the prefix; at least one bit.
        net: IpNet,
    },
}

impl Key {
    /// A TEID in its own slot.
    pub const fn direct(teid: u32) -> Self {
        Self::Teid {
            teid,
            slot: Some(teid & 0xff_ffff),
        }
    }

    /// Of what is found by its destination on N6.
    pub fn of_prefix(ni: NiId, net: IpNet) -> Self {
        match net.trunc() {
            IpNet::V4(net) if net.prefix_len() == 32 => Self::Ue4 {
                ni,
                addr: net.addr(),
            },
            IpNet::V6(net) if net.prefix_len() == 64 => Self::Ue6 {
                ni,
                prefix: net.addr(),
            },
            net => Self::Prefix { ni, net },
        }
    }
}

/// Destination of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Select {
    /// The one PDR, without SDF filters: index into [`Compiled::entries`].
    One(usize),
    /// Try `filters[first..first + len]` in order; the first that matches decides.
    /// `len` is 1 to 64.
    List {
        /// Index into [`Compiled::filters`].
        first: usize,
        /// Number of filters.
        len: usize,
    },
}
