//! Buffered packets of which SMFs are to hear (TS 29.244, 5.2.4): by session, and when.

use std::collections::BTreeSet;

use compiled::PdrId;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::base::time::Time;

/// A PDR whose packets are buffered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Met {
    pub(crate) pdr: PdrId,
    pub(crate) tos: u8,
    /// There was no room for the packet: the SMF hears of it all the same.
    pub(crate) is_lost: bool,
    /// When the SMF is to hear of it; `None`: a report is under way.
    pub(crate) due: Option<Time>,
}

/// Buffered packets of a session of which its SMF is to hear, or hears just now.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PagingState {
    pub(crate) met: SmallVec<[Met; 1]>,
    /// The SMF knows, and wants to hear no more before this (DL Buffering Duration).
    pub(crate) quiet_until: Option<Time>,
    /// Its place in [`Paging::due`].
    pub(crate) due: Option<Time>,
}

/// When SMFs are to hear of buffered packets, by our SEID.
#[cfg_attr(test, derive(Clone))]
#[derive(Debug, Default)]
pub(crate) struct Paging {
    pub(crate) due: BTreeSet<(Time, u64)>,
}

impl Paging {
    /// The session is gone. Whether the index had what follows from it.
    pub(crate) fn unindex(&mut self, seid: u64, waiting: Option<&PagingState>) -> bool {
        let due = waiting.and_then(|waiting| waiting.due);
        due.is_none_or(|at| self.due.remove(&(at, seid)))
    }

    /// The session has come with buffered packets.
    pub(crate) fn index(&mut self, seid: u64, waiting: Option<&PagingState>) {
        let due = waiting.and_then(|waiting| waiting.due);
        self.due.extend(due.map(|at| (at, seid)));
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.due.first().map(|(due, _)| *due)
    }

    pub(crate) fn change(
        &mut self,
        seid: u64,
        waiting: &mut Option<PagingState>,
        change: impl FnOnce(&mut PagingState),
    ) {
        let session = waiting.get_or_insert_default();
        change(session);
        let due = session.met.iter().filter_map(|met| met.due).min();
        let due = due.into_iter().chain(session.quiet_until).min();
        let before = std::mem::replace(&mut session.due, due);
        if session.met.is_empty() && session.quiet_until.is_none() {
            *waiting = None;
        }
        if before != due {
            before.map(|at| self.due.remove(&(at, seid)));
            self.due.extend(due.map(|at| (at, seid)));
        }
    }
}
