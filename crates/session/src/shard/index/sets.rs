//! Sessions by what they have in common: FQ-CSIDs, groups, the CP function that controls them
//! (TS 29.244, 5.22; TS 23.007, 23).

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

use pfcp::message::SessionEstablishmentRequest;
use pfcp::{Cause, IeType};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::base::refusal::Refusal;
use crate::base::set_key::SetKey;
use crate::base::slab::Place;
use foldhash::quality::FixedState;

/// Sets of one session: each of up to five nodes gives it an FQ-CSID, and it is in one group.
const SETS_PER_SESSION: usize = 8;
/// Group Ids are UUIDs of 36 octets, or shorter.
const GROUP_ID_MAX: usize = 64;

/// Sets that a session is in, and the address that controls it; few sessions have either.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Membership {
    /// Sorted, each once.
    pub(crate) sets: SmallVec<[SetKey; 2]>,
    /// Address for requests about this session, if not that of its association.
    pub(crate) controller: Option<IpAddr>,
}

impl Membership {
    /// `None`: of an ordinary session, which is in no set.
    pub(crate) fn of(
        request: &SessionEstablishmentRequest<'_>,
    ) -> Result<Option<Box<Self>>, Refusal> {
        if request.fq_csids.is_empty() && request.group_id.is_none() {
            return Ok(None);
        }
        let mut sets = SmallVec::new();
        for set in &request.fq_csids {
            sets.extend(SetKey::fq_csid(set?));
            if sets.len() > SETS_PER_SESSION {
                return Err(Refusal::no_room(IeType::FQ_CSID));
            }
        }
        if let Some(group_id) = request.group_id {
            if group_id.is_empty() || group_id.len() > GROUP_ID_MAX {
                return Err(Refusal::ie(Cause::MANDATORY_IE_INCORRECT, IeType::GROUP_ID));
            }
            sets.push(SetKey::group(group_id));
        }
        sets.sort_unstable();
        sets.dedup();
        let controller = None;
        Ok(Some(Box::new(Self { sets, controller })))
    }
}

/// Which sessions are in which set. Costs nothing for sessions that are in none.
#[derive(Debug)]
pub(crate) struct SetIndex {
    members: HashMap<SetKey, BTreeSet<Place>, FixedState>,
}

impl SetIndex {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            members: HashMap::with_hasher(FixedState::with_seed(seed)),
        }
    }

    pub(crate) fn insert(&mut self, place: Place, membership: &Membership) {
        for set in membership.keys() {
            self.members.entry(set).or_default().insert(place);
        }
    }

    pub(crate) fn remove(&mut self, place: Place, membership: &Membership) {
        for set in membership.keys() {
            if let Some(members) = self.members.get_mut(&set) {
                members.remove(&place);
                if members.is_empty() {
                    self.members.remove(&set);
                }
            }
        }
    }

    /// Every session that is in one of the sets, once.
    pub(crate) fn find(&self, sets: &[SetKey]) -> BTreeSet<Place> {
        let found = sets.iter().filter_map(|set| self.members.get(set));
        found.flatten().copied().collect()
    }
}

impl Membership {
    fn keys(&self) -> impl Iterator<Item = SetKey> + '_ {
        let controller = self.controller.map(SetKey::cp_address);
        self.sets.iter().cloned().chain(controller)
    }
}
