//! URRs, and which PDRs name them: all that usage goes by, so that a report reads no PDR.

use compiled::{Direction, PdrId};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::rules::summary::ue_nets;
use crate::rules::{Pdr, Urr, UrrId};

/// URRs of a session, and its PDRs as far as URRs go by them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UrrRules {
    /// In order of creation.
    pub(crate) urrs: Box<[Urr]>,
    /// All PDRs, in order of creation.
    pub(crate) pdrs: Box<[NamedBy]>,
    /// The UE's addresses, as the log of usage has them. Not written, as PDRs say them.
    #[serde(skip)]
    pub(crate) ue: Box<[IpNet]>,
}

/// A PDR, and the URRs that it names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NamedBy {
    pub(crate) pdr: PdrId,
    pub(crate) direction: Direction,
    pub(crate) urrs: SmallVec<[UrrId; 4]>,
}

impl NamedBy {
    pub(crate) fn new(pdr: &Pdr) -> Self {
        Self {
            pdr: pdr.id,
            direction: pdr.direction(),
            urrs: pdr.urrs.clone(),
        }
    }
}

impl UrrRules {
    pub(crate) fn new(urrs: &[Urr], pdrs: &[Pdr]) -> Self {
        Self {
            urrs: urrs.into(),
            pdrs: pdrs.iter().map(NamedBy::new).collect(),
            ue: ue_nets(pdrs).into(),
        }
    }

    /// Whether there was a PDR of this id.
    pub(crate) fn has(&self, pdr: PdrId) -> bool {
        self.pdrs.iter().any(|known| known.pdr == pdr)
    }
}
