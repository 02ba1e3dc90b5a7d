//! Sessions of before that could not be taken in, until their SMFs have heard of it (TS 29.244, 5.18, 7.5.8).
//!
//! Only those that know of sessions which the UP function deletes (EPFAR) are told. Others hear of it with their next request about such
//! a session, which is refused (65).

use std::collections::VecDeque;
use std::net::IpAddr;

use crate::base::node_id::NodeId;

/// Reports that an SMF is sent before it has answered one: there may be as many as there were sessions.
const UNDER_WAY_MAX: usize = 32;

/// A session that its record names, and that is not here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostSession {
    pub(crate) smf: NodeId,
    pub(crate) cp_seid: u64,
    /// Address of the SMF, if not that of its association.
    pub(crate) controller: Option<IpAddr>,
}

/// Sessions of an association that its SMF is to be told of.
#[derive(Debug, Default)]
pub(crate) struct Untold {
    /// By the SMF's SEIDs, with the addresses that reports go to, if not that of the association.
    waiting: VecDeque<(u64, Option<IpAddr>)>,
    under_way: usize,
}

impl Untold {
    pub(crate) fn add(&mut self, lost: &LostSession) {
        self.waiting.push_back((lost.cp_seid, lost.controller));
    }

    /// The next one, unless as many are under way as may be. It is under way from now on.
    pub(crate) fn next(&mut self) -> Option<(u64, Option<IpAddr>)> {
        if self.under_way >= UNDER_WAY_MAX {
            return None;
        }
        let next = self.waiting.pop_front()?;
        self.under_way += 1;
        Some(next)
    }

    /// One that was under way is answered, or never will be.
    pub(crate) fn is_over(&mut self) {
        self.under_way = self.under_way.saturating_sub(1);
    }
}
