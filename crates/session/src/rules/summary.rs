//! A session in a line, by its rules.

use ipnet::IpNet;

use crate::base::ids::PeerId;
use crate::rules::{Pdr, UeIp};

/// One line of a list of sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionSummary {
    /// Ours.
    pub seid: u64,
    /// The SMF's.
    pub cp_seid: u64,
    /// Peer that owns it.
    pub peer: PeerId,
    /// The UE's addresses, as prefixes; without what is behind it.
    pub ue: Vec<IpNet>,
    /// TEIDs of the uplink.
    pub teids: Vec<u32>,
    /// Numbers of PDRs, FARs, QERs, URRs and BARs.
    pub rules: [usize; 5],
}

impl SessionSummary {
    /// `rules`: how many of each kind there are.
    pub(crate) fn new(
        seid: u64,
        cp_seid: u64,
        peer: PeerId,
        pdrs: &[Pdr],
        rules: [usize; 5],
    ) -> Self {
        let f_teids = pdrs.iter().filter_map(|pdr| pdr.pdi.f_teid);
        let mut teids: Vec<u32> = f_teids.map(|f_teid| f_teid.teid.teid.get()).collect();
        teids.sort_unstable();
        teids.dedup();
        Self {
            seid,
            cp_seid,
            peer,
            ue: ue_nets(pdrs),
            teids,
            rules,
        }
    }
}

/// The UE's addresses, as prefixes; without what is behind it.
pub(crate) fn ue_nets(pdrs: &[Pdr]) -> Vec<IpNet> {
    let ues = pdrs.iter().filter_map(|pdr| pdr.pdi.ue);
    let mut nets: Vec<IpNet> = ues.flat_map(UeIp::nets).collect();
    nets.sort_unstable();
    nets.dedup();
    nets
}
