//! Guaranteed shares of what there is for all SMFs.
//!
//! Half of the whole is divided into equal shares, one for each SMF that is there, those of one set being one. What an SMF has
//! beyond its share is of the other half, and of what other shares nobody holds. A share is never taken from those who use
//! it already: an SMF that comes when all is used has its share as soon as others give something back. Emergency sessions
//! have a reserve, which is a share of another size.

use crate::base::ids::PartyId;

/// Holders of shares, in order of their claims.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shares {
    /// Into how many shares half of everything is divided; 0: there are none.
    of: u32,
    holders: Vec<PartyId>,
    /// Emergency sessions' part of everything, of so many parts.
    reserve: (u32, u32),
}

impl Shares {
    /// The first claimants have one each, for as many as there are.
    pub(crate) fn new(of: u32, claims: impl IntoIterator<Item = PartyId>) -> Self {
        let mut holders: Vec<PartyId> = Vec::new();
        for party in claims {
            if holders.len() < of as usize && !holders.contains(&party) {
                holders.push(party);
            }
        }
        Self {
            of,
            holders,
            reserve: (0, 1),
        }
    }

    /// Emergency sessions ([`PartyId::EMERGENCY`]) have such a part of everything, as if of this many sessions so many were theirs.
    pub(crate) fn with_reserve(mut self, part: u32, of: u32) -> Self {
        self.reserve = (part, of.max(1));
        self
    }

    fn reserve_of(&self, whole: u64) -> u64 {
        let (part, of) = self.reserve;
        (u128::from(whole) * u128::from(part) / u128::from(of)) as u64
    }

    /// No more than this is kept for those who have less than their share.
    pub(crate) fn kept_at_most(&self, whole: u64) -> u64 {
        self.share_of(whole) * self.holders.len() as u64 + self.reserve_of(whole)
    }

    /// Each share of so much.
    pub(crate) fn share_of(&self, whole: u64) -> u64 {
        (whole / 2).checked_div(self.of.into()).unwrap_or(0)
    }

    /// Guaranteed share of a party.
    pub(crate) fn share_for(&self, party: PartyId, whole: u64) -> u64 {
        match party {
            PartyId::EMERGENCY => self.reserve_of(whole),
            party if self.holders.contains(&party) => self.share_of(whole),
            _ => 0,
        }
    }

    /// How much more a party may take of `whole`, of which `used` says what each has: all together they have `used_by_all`.
    pub(crate) fn left_for(
        &self,
        party: PartyId,
        whole: u64,
        used_by_all: u64,
        used: impl Fn(PartyId) -> u64,
    ) -> u64 {
        let free = whole.saturating_sub(used_by_all);
        let all = self.holders.iter().chain([&PartyId::EMERGENCY]);
        let others = all.filter(|other| **other != party);
        let kept = others.map(|other| match self.share_for(*other, whole) {
            0 => 0,
            share => share.saturating_sub(used(*other)),
        });
        let for_all = free.saturating_sub(kept.sum());
        let own = self
            .share_for(party, whole)
            .saturating_sub(used(party))
            .min(free);
        for_all.max(own)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    type Used = BTreeMap<PartyId, u64>;

    fn left(shares: &Shares, party: u32, whole: u64, used: &Used) -> u64 {
        let of = |party| used.get(&party).copied().unwrap_or(0);
        shares.left_for(PartyId(party), whole, used.values().sum(), of)
    }

    fn used(of: &[(u32, u64)]) -> Used {
        of.iter().map(|(id, n)| (PartyId(*id), *n)).collect()
    }

    #[test]
    fn one_alone_may_have_everything() {
        let shares = Shares::new(8, [PartyId(1)]);
        assert_eq!(left(&shares, 1, 100, &used(&[])), 100);
        assert_eq!(left(&shares, 1, 100, &used(&[(1, 99)])), 1);
        // One without a share leaves it to it.
        assert_eq!(left(&shares, 2, 160, &used(&[])), 150);
    }

    #[test]
    fn each_keeps_its_share_and_the_rest_is_for_all() {
        let shares = Shares::new(8, [1, 2, 1, 3].map(PartyId));
        assert_eq!(left(&shares, 1, 160, &used(&[])), 140);
        assert_eq!(left(&shares, 2, 160, &used(&[(1, 140)])), 10);
        assert_eq!(left(&shares, 2, 160, &used(&[(1, 140), (2, 10)])), 0);
        assert_eq!(left(&shares, 3, 160, &used(&[(1, 140), (2, 10)])), 10);
        assert_eq!(left(&shares, 4, 160, &used(&[(1, 140), (2, 10)])), 0);
    }

    #[test]
    fn who_comes_when_all_is_used_has_what_is_given_back() {
        let shares = Shares::new(8, [1, 2].map(PartyId));
        assert_eq!(left(&shares, 2, 160, &used(&[(1, 160)])), 0);
        let given_back = used(&[(1, 153)]);
        assert_eq!(left(&shares, 1, 160, &given_back), 0);
        assert_eq!(left(&shares, 2, 160, &given_back), 7);
    }

    #[test]
    fn emergency_sessions_have_a_reserve_and_what_is_for_all() {
        let shares = Shares::new(8, [PartyId(1)]).with_reserve(2, 100);
        assert_eq!(left(&shares, 1, 1000, &used(&[])), 980);
        assert_eq!(left(&shares, 1, 1000, &used(&[(0, 15)])), 980);
        assert_eq!(left(&shares, 1, 1000, &used(&[(0, 100)])), 900);
        assert_eq!(left(&shares, 0, 1000, &used(&[(1, 980)])), 20);
        assert_eq!(left(&shares, 0, 1000, &used(&[])), 938);
    }

    #[test]
    fn beyond_the_last_share_there_is_none() {
        let shares = Shares::new(2, [1, 2, 3].map(PartyId));
        assert_eq!(shares.share_for(PartyId(2), 160), 40);
        assert_eq!(shares.share_for(PartyId(3), 160), 0);
        let none = Shares::new(0, [PartyId(1)]);
        assert_eq!(none.share_for(PartyId(1), 160), 0);
        assert_eq!(left(&none, 1, 160, &used(&[(2, 150)])), 10);
    }

    proptest! {
        /// Whatever others take as far as they may, who was there from the beginning gets its share.
        #[test]
        fn a_share_is_there_whatever_others_take(
            whole in 0u64..2000,
            of in 0u32..10,
            parties in 1u32..12,
            reserve in 0u32..50,
            steps in prop::collection::vec((0u32..12, 0u64..500, any::<bool>()), 0..100),
        ) {
            let shares = Shares::new(of, (1..=parties).map(PartyId)).with_reserve(reserve, 100);
            let mut used = Used::new();
            for (party, amount, gives) in steps {
                let party = party % (parties + 2);
                let most = left(&shares, party, whole, &used);
                let has = used.entry(PartyId(party)).or_default();
                match gives {
                    true => *has -= amount.min(*has),
                    false => *has += amount.min(most),
                }
                prop_assert!(used.values().sum::<u64>() <= whole);
                for party in 0..=parties {
                    let has = used.get(&PartyId(party)).copied().unwrap_or(0);
                    let sure = shares.share_for(PartyId(party), whole);
                    let may_have = has + left(&shares, party, whole, &used);
                    prop_assert!(may_have >= sure.min(whole), "{party} may have {may_have} of {sure}");
                }
            }
        }
    }
}
