//! Sessions of before that could not be taken in, until their SMFs have heard of it (TS 29.244, 5.18, 7.5.8).
//!
//! Only those that know of sessions which the UP function deletes (EPFAR) are told. Others hear of it with their next request about such
//! a session, which is refused (65).

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::base::node_id::NodeId;

/// Reports that an SMF is sent before it has answered one: there may be as many as there were sessions.
pub(crate) const UNDER_WAY_MAX: usize = 32;
/// Reports to all SMFs from which on each has one: other requests want places, too.
pub(crate) const TELLING_MAX: usize = 512;

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
    waiting: BTreeSet<(u64, Option<IpAddr>)>,
    /// By the SMF's SEIDs.
    under_way: Vec<u64>,
}

impl Untold {
    pub(crate) fn add(&mut self, lost: &LostSession) {
        self.waiting.insert((lost.cp_seid, lost.controller));
    }

    pub(crate) fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// The next one, unless as many are under way as may be: one, where there is much to tell others. It is under way from now on.
    pub(crate) fn next(&mut self, is_busy: bool) -> Option<(u64, Option<IpAddr>)> {
        let most = if is_busy { 1 } else { UNDER_WAY_MAX };
        if self.under_way.len() >= most {
            return None;
        }
        let next = self.waiting.pop_first()?;
        self.under_way.push(next.0);
        Some(next)
    }

    /// One that was under way is answered, or never will be.
    pub(crate) fn is_over(&mut self, cp_seid: u64) {
        let at = self.under_way.iter().position(|seid| *seid == cp_seid);
        if let Some(at) = at {
            self.under_way.swap_remove(at);
        }
    }

    /// The SMF has a session under this SEID again, which is not to be told of. Whether that is under way.
    pub(crate) fn has_again(&mut self, cp_seid: u64) -> bool {
        let of = (cp_seid, None)..;
        let of = self.waiting.range(of).take_while(|of| of.0 == cp_seid);
        let of: Vec<_> = of.copied().collect();
        for of in of {
            self.waiting.remove(&of);
        }
        let before = self.under_way.len();
        self.under_way.retain(|seid| *seid != cp_seid);
        self.under_way.len() < before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_under_way_where_others_have_much_to_hear() {
        let mut untold = Untold::default();
        for cp_seid in 1..=100 {
            let smf = NodeId::Fqdn("smf".into());
            let controller = None;
            untold.add(&LostSession {
                smf,
                cp_seid,
                controller,
            });
        }
        assert_eq!(untold.next(true), Some((1, None)));
        assert_eq!(untold.next(true), None);
        while untold.next(false).is_some() {}
        assert_eq!(untold.under_way(), UNDER_WAY_MAX);
        // One that is under way, one that waits, one of which nobody knows.
        assert!(untold.has_again(2) && !untold.has_again(100) && !untold.has_again(101));
        untold.is_over(1);
        assert_eq!(untold.under_way(), UNDER_WAY_MAX - 2);
        let mut told = 0;
        while let Some((cp_seid, _)) = untold.next(false) {
            assert_ne!(cp_seid, 100);
            untold.is_over(cp_seid);
            told += 1;
        }
        assert_eq!(told, 100 - UNDER_WAY_MAX - 1);
    }
}
