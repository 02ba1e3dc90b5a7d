//! Traffic Endpoints (TS 29.244, 5.2.1A: PDI optimisation): what the PDIs that name one have in common.
//!
//! Packets know nothing of them: a PDR has all that its endpoint says, and what changes in the endpoint changes
//! in its PDRs.

use pfcp::ie::CreateTrafficEndpoint;
use pfcp::{FromIe, Ie, IeType, Ies};
use serde::{Deserialize, Serialize};

use crate::base::refusal::Refusal;
use crate::rules::kept_ies::{merge, said};
use crate::rules::places::{ConfigPlace, Relocation};
use crate::rules::{LocalFTeid, UeIp};

/// Endpoints of one session, at most.
pub(crate) const ENDPOINTS_MAX: usize = 16;

/// Traffic Endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Endpoint {
    /// Traffic Endpoint ID (8.2.92), unique within the session.
    pub(crate) id: u8,
    /// As sent; IEs of updates stand in place of former ones.
    pub(crate) ies: Box<[u8]>,
    /// Our end of its tunnel, once it is taken.
    pub(crate) f_teid: Option<LocalFTeid>,
    /// The UE's addresses, if we chose them.
    pub(crate) ue: Option<UeIp>,
}

impl Endpoint {
    pub(crate) fn new(ie: &CreateTrafficEndpoint<'_>) -> Result<Self, Refusal> {
        Ok(Self {
            id: ie.traffic_endpoint_id,
            ies: said(ie.ies, IeType::CREATE_TRAFFIC_ENDPOINT)?,
            f_teid: None,
            ue: None,
        })
    }

    /// Update Traffic Endpoint; what is not sent stays.
    pub(crate) fn update(&mut self, ies: Ies<'_>) -> Result<(), Refusal> {
        self.ies = merge(&self.ies, ies, IeType::UPDATE_TRAFFIC_ENDPOINT)?;
        if ies.find(IeType::F_TEID)?.is_some() {
            self.f_teid = None;
        }
        if ies.find(IeType::UE_IP_ADDRESS)?.is_some() {
            self.ue = None;
        }
        Ok(())
    }

    /// Its network instances and N3 addresses are in other places.
    pub(crate) fn relocate(&mut self, to: &mut Relocation<'_>) -> Result<(), ConfigPlace> {
        to.f_teid(&mut self.f_teid)?;
        to.ue(&mut self.ue)
    }

    /// Its IEs, decoded.
    pub(crate) fn view(&self) -> Result<CreateTrafficEndpoint<'_>, Refusal> {
        let ie = Ie {
            ie_type: IeType::CREATE_TRAFFIC_ENDPOINT,
            enterprise: None,
            value: &self.ies,
            offset: 0,
        };
        Ok(CreateTrafficEndpoint::from_ie(&ie)?)
    }
}
