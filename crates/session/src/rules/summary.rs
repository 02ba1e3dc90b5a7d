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
    /// Whose it is.
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
        let mut ue: Vec<IpNet> = Vec::new();
        let mut teids = Vec::new();
        for pdi in pdrs.iter().map(|pdr| &pdr.pdi) {
            ue.extend(pdi.ue.into_iter().flat_map(UeIp::nets));
            teids.extend(pdi.f_teid.map(|f_teid| f_teid.teid.teid.get()));
        }
        ue.sort_unstable();
        ue.dedup();
        teids.sort_unstable();
        teids.dedup();
        Self {
            seid,
            cp_seid,
            peer,
            ue,
            teids,
            rules,
        }
    }
}
