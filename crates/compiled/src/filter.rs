//! Filters of PDRs that share a key.

use ipnet::IpNet;

use crate::ids::QfiSet;

/// One filter of one PDR, source and destination as in the packet of the PDR's own direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Index into [`Compiled::entries`](crate::Compiled::entries).
    pub entry: usize,
    /// `None`: the PDR has no SDF filter, every packet matches.
    pub flow: Option<Flow>,
    /// Uplink: the packet must carry one of these. Empty: not looked at.
    pub qfis: QfiSet,
}

/// A five-tuple (IPFilterRule of RFC 6733, 4.3.1, as TS 29.212, 5.4.2 uses it), and what else an SDF
/// Filter may ask for (TS 29.244, 8.2.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// `None`: any protocol.
    pub proto: Option<u8>,
    /// `None`: any address of either family. When both ends are given they are of one family.
    pub src: Option<IpNet>,
    /// As `src`.
    pub dst: Option<IpNet>,
    /// Inclusive; `None`: any, also packets without ports.
    pub src_ports: Option<(u16, u16)>,
    /// As `src_ports`.
    pub dst_ports: Option<(u16, u16)>,
    /// ToS or Traffic Class, and which of its bits are compared.
    pub tos: Option<(u8, u8)>,
    /// Security Parameter Index of ESP or AH.
    pub spi: Option<u32>,
    /// IPv6 flow label, 20 bits.
    pub label: Option<u32>,
}

impl Flow {
    /// No packet's: ICMP has no ports.
    pub const NONE: Self = Self {
        proto: Some(1),
        src: None,
        dst: None,
        src_ports: Some((0, u16::MAX)),
        dst_ports: None,
        tos: None,
        spi: None,
        label: None,
    };
}
