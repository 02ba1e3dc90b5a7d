//! One PDR with its FAR and QERs.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::Ipv6Net;
use serde::{Deserialize, Serialize};

use crate::direction::Direction;
use crate::ids::{NiId, PdrId, PolicyId, PredefinedId, Qfi};
use crate::meter::Rate;

/// One PDR with its FAR and QERs, decided; or one predefined rule that it activates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// For counters and traces.
    pub pdr: PdrId,
    /// Of a PDR that activates predefined rules: which of them it is. With `pdr` it identifies the entry
    /// across changes.
    pub predefined: Option<PredefinedId>,
    /// Side the packets come from.
    pub direction: Direction,
    /// Fate of a packet that matches.
    pub action: Action,
    /// Uplink: the source address must be one of these. `None`: not checked.
    pub ue: Option<UeAddresses>,
    /// An address in one of [`Compiled::framed`](crate::Compiled::framed) is as good as one of `ue`, here and in `relay`.
    pub framed: bool,
    /// Uplink: the PDU Session Container must carry this QFI. Downlink, and with `relay`: mark with
    /// it; `None`: no PDU Session Container, or the one that the packet came with.
    pub qfi: Option<Qfi>,
    /// Packets come in a tunnel and go on in another one, or come in a tunnel and travel towards
    /// access. `ue` and the asking half of `qfi` are here then.
    pub relay: Option<Relay>,
    /// Transport level marking of packets that leave: of the outer IP header in a tunnel, else of
    /// their own.
    pub marking: Option<Marking>,
    /// Downlink: what the PDU Session Container says beside the QFI; without QFI nothing.
    pub marks: Marks,
    /// MBR of this entry alone.
    pub meter: Option<Rate>,
    /// Indices into [`Compiled::meters`](crate::Compiled::meters) of bit rates; at most four. All must conform, besides
    /// `meter`.
    pub shared_meters: smallvec::SmallVec<[usize; 4]>,
    /// Index into [`Compiled::meters`](crate::Compiled::meters) of a packet rate.
    pub packet_meter: Option<usize>,
    /// Index into [`Compiled::meters`](crate::Compiled::meters) of a share of capacities.
    pub share: Option<usize>,
    /// Other destinations of each packet that the FAR applies to; at most [`DUPLICATES_MAX`].
    pub duplicates: Vec<Duplicate>,
}

/// Duplicating Parameters of one FAR (`TP_COPIES_MAX` of the tables).
pub const DUPLICATES_MAX: usize = 4;

/// Destination of a duplicate of each packet (TS 29.244, 5.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Duplicate {
    /// Header that it is put into.
    pub header: DuplicateHeader,
    /// Remote address.
    pub peer: IpAddr,
    /// Our address, the source of the outer packet; of the same family.
    pub local: IpAddr,
    /// Transport level marking of the outer header.
    pub marking: Option<Marking>,
}

/// Headers between the outer IP header of a duplicate and the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DuplicateHeader {
    /// UDP and GTP-U.
    GtpU {
        /// Remote TEID, host order.
        teid: u32,
    },
    /// UDP alone.
    Udp {
        /// Both ports.
        port: u16,
    },
}

/// Of the PDU Session Container of downlink packets (TS 38.415, 5.5.2.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marks {
    /// Reflective QoS Indicator.
    pub rqi: bool,
    /// Paging Policy Indicator, 0..=7.
    pub ppi: Option<u8>,
}

/// Transport Level Marking (TS 29.244, 8.2.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marking {
    /// ToS or traffic class.
    pub tos: u8,
    /// Which of its bits are set; the others stay.
    pub mask: u8,
}

/// Conditions and changes of packets from tunnel to tunnel alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Relay {
    /// The UE's addresses, and at which end of the packet one of them must be. Neighbour discovery
    /// with link-local addresses is the UE's too.
    pub ue: Option<(UeAddresses, UeEnd)>,
    /// The PDU Session Container must carry this QFI.
    pub qfi: Option<Qfi>,
    /// The PDU Session Container is taken off.
    pub remove_container: bool,
}

/// An end of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UeEnd {
    /// The UE has sent it.
    Source,
    /// It is for the UE.
    Destination,
}

/// Addresses of the UE in a PDI. At least one is present, or there are framed routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UeAddresses {
    /// IPv4, if it has one.
    pub v4: Option<Ipv4Addr>,
    /// IPv6 prefix, if it has one; 1 to 128 bits.
    pub v6: Option<Ipv6Net>,
}

/// A FAR together with the gates of the QERs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Decapsulated, by the routes of the network instance.
    Route {
        /// Which routes.
        ni: NiId,
    },
    /// Decapsulated, the way of a forwarding policy.
    Steer {
        /// The network instance, whose routes are the policy's fallback.
        ni: NiId,
        /// Which policy.
        policy: PolicyId,
    },
    /// Into a GTP-U tunnel.
    Tunnel {
        /// Remote TEID, host order.
        teid: u32,
        /// Remote address.
        peer: IpAddr,
        /// Our address, the source of the outer packet; of the same family.
        local: IpAddr,
    },
    /// Into UDP without GTP-U.
    Udp {
        /// Both ports.
        port: u16,
        /// Remote address.
        peer: IpAddr,
        /// Our address, the source of the outer packet; of the same family.
        local: IpAddr,
    },
    /// FAR DROP.
    Drop,
    /// FAR FORW towards access, into a tunnel that the SMF has not named yet.
    NoTunnel,
    /// FAR BUFF: they wait for what follows.
    Buffer,
    /// Gate closed by a QER.
    GateClosed,
    /// The tunnel's far end has said that it does not know it.
    TunnelGone,
    /// The quota of a URR is used up.
    QuotaExhausted,
}
