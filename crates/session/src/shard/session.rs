//! One session in its place.

use compiled::{Counters, PdrId, PredefinedId};

use crate::base::ids::PeerId;
use crate::base::slab::Place;
use crate::exchange::answers::Fingerprint;
use crate::rules::summary::SessionSummary;
use crate::shard::context::Context;
use crate::shard::view::UrrView;
use crate::usage::measured::Usage;
use crate::usage::urr_rules::UrrRules;

/// One session in its place.
#[derive(Debug)]
pub(crate) struct Session<H> {
    /// All that it is by itself; what follows is where it is in this process.
    pub(super) context: Context,
    pub(super) handle: H,
    /// The request that was carried out last.
    pub(super) answered: Fingerprint,
    pub(super) peer: PeerId,
    /// [`List::epoch`] of the list that it is in.
    pub(super) epoch: u32,
    /// Neighbours in the list of its peer.
    pub(super) previous: Option<Place>,
    pub(super) next: Option<Place>,
}

impl<H> Session<H> {
    /// URRs and the PDRs that name them, handle, and measurements, if it has some.
    pub(crate) fn measuring(&mut self) -> Option<(&UrrRules, &mut H, &mut Usage)> {
        let (rules, usage) = self.context.measuring()?;
        Some((rules, &mut self.handle, usage))
    }

    /// A session in a line.
    pub(crate) fn summary(&self, seid: u64) -> SessionSummary {
        let Session { context, peer, .. } = self;
        let pdrs = context.kept.pdrs();
        SessionSummary::new(seid, context.cp_seid, *peer, &pdrs, context.rule_counts())
    }

    /// URRs, as operators see them.
    pub(crate) fn usage_view(
        &self,
        counters: &dyn Fn(PdrId, Option<PredefinedId>) -> Counters,
    ) -> Vec<UrrView> {
        let context = &self.context;
        let Some((rules, usage)) = context.urr_rules().zip(context.usage()) else {
            return Vec::new();
        };
        let unsampled = usage.unsampled(rules, |pdr| counters(pdr, None));
        let urrs = usage.urrs.iter().zip(&rules.urrs).zip(unsampled);
        urrs.map(|((urr, rule), more)| UrrView::new(urr, &rule.asks, more))
            .collect()
    }
}

/// Sessions linked through themselves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    /// The newest.
    pub(super) first: Option<Place>,
    /// The oldest.
    pub(super) last: Option<Place>,
    pub(super) len: usize,
    /// Of this list alone, so that sessions in a former list of its peer are not taken for its own.
    pub(super) epoch: u32,
}

impl List {
    pub(crate) fn empty(epoch: u32) -> Self {
        Self {
            first: None,
            last: None,
            len: 0,
            epoch,
        }
    }
}
