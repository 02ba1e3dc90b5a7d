//! PDRs and Traffic Endpoints, which hold TEIDs and addresses.

use crate::rules::endpoints::Endpoint;
use crate::rules::{LocalTeid, Pdr};

/// PDRs and Traffic Endpoints that hold TEIDs and addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holders<'a> {
    pub(crate) pdrs: &'a [Pdr],
    pub(crate) endpoints: &'a [Endpoint],
}

impl<'a> Holders<'a> {
    pub(crate) const NONE: Self = Self {
        pdrs: &[],
        endpoints: &[],
    };

    pub(crate) fn teids(self) -> impl Iterator<Item = LocalTeid> + 'a {
        let of_pdrs = self.pdrs.iter().filter_map(|pdr| pdr.pdi.f_teid);
        let of_endpoints = self.endpoints.iter().filter_map(|known| known.f_teid);
        of_pdrs.chain(of_endpoints).map(|f_teid| f_teid.teid)
    }

    /// The TEID that the session has for a CHOOSE ID. SMFs name it again in later requests, to put another PDR behind the
    /// tunnel that the gNB knows.
    pub(crate) fn chosen_for(self, choose_id: u8) -> Option<LocalTeid> {
        let mut f_teids = self.pdrs.iter().filter_map(|pdr| pdr.pdi.f_teid);
        let found = f_teids.find(|f_teid| f_teid.choose_id == Some(choose_id));
        found.map(|f_teid| f_teid.teid)
    }
}
