//! Sessions and next hops, by the features of programs that they need.

use crate::abi::Features;

/// Number of users of each feature.
#[derive(Debug, Default)]
pub(crate) struct FeatureUsers([u32; Features::COUNT]);

impl FeatureUsers {
    pub(crate) fn join(&mut self, needs: Features) {
        needs.indices().for_each(|bit| self.0[bit] += 1);
    }

    pub(crate) fn leave(&mut self, needs: Features) {
        needs.indices().for_each(|bit| {
            debug_assert!(self.0[bit] > 0);
            self.0[bit] = self.0[bit].saturating_sub(1);
        });
    }

    pub(crate) fn needs(&self) -> Features {
        let used = (0..Features::COUNT).filter(|&bit| self.0[bit] > 0);
        used.fold(Features::NONE, |set, bit| set.with(Features::bit(bit)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_come_and_go() {
        let mut users = FeatureUsers::default();
        let both = Features::METER.with(Features::LIST);
        users.join(both);
        users.join(Features::LIST);
        assert_eq!(users.needs(), both);
        users.leave(both);
        assert_eq!(users.needs(), Features::LIST);
        users.leave(Features::LIST);
        assert_eq!(users.needs(), Features::NONE);
    }
}
