//! A session between requests: a value of its own, which leads to nothing else in this process.
//!
//! Times in it are those of the caller's clock, network instances, N3 addresses and predefined rules those of the
//! configuration, by their places there.

use compiled::PdrId;

use crate::base::gtpu::Tunnel;
use crate::rules::endpoints::Endpoint;
use crate::rules::{FarId, Rules, Urr};
use crate::shard::index::deferred::Deferral;
use crate::shard::index::inactivity::Watch;
use crate::shard::index::paging::PagingState;
use crate::shard::index::sets::Membership;
use crate::shard::index::stopped::{Indicated, paused};
use crate::shard::kept::{Ends, Kept, ToKeep};
use crate::usage::measured::Usage;
use crate::usage::urr_rules::UrrRules;

/// PFCP session context.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Context {
    /// PDRs, FARs, QERs and BARs.
    pub(crate) kept: Kept,
    /// The SMF's SEID.
    pub(crate) cp_seid: u64,
    /// Optional state, allocated when used.
    pub(crate) extra: Option<Box<Extra>>,
}

/// Optional state, allocated when used.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Extra {
    /// Sets that it is in; most are in none.
    pub(crate) membership: Option<Box<Membership>>,
    pub(crate) urr_rules: UrrRules,
    /// Measurements of its URRs.
    pub(crate) usage: Option<Usage>,
    pub(crate) rare: Option<Box<Rare>>,
}

/// State that few sessions have.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Rare {
    /// Traffic Endpoints.
    pub(crate) endpoints: Box<[Endpoint]>,
    /// User Plane Inactivity Timer.
    pub(crate) watch: Option<Watch>,
    /// PDRs that hold for some time only.
    pub(crate) deferral: Option<Deferral>,
    /// Packets that wait.
    pub(crate) waiting: Option<PagingState>,
    /// Tunnels whose far end has said that it does not know them.
    pub(crate) indicated: Indicated,
    /// The network instances that it was established with are those of emergency calls.
    pub(crate) is_emergency: bool,
}

impl Rare {
    pub(crate) fn is_empty(&self) -> bool {
        let Self {
            endpoints,
            watch,
            deferral,
            waiting,
            indicated,
            is_emergency,
        } = self;
        endpoints.is_empty()
            && watch.is_none()
            && deferral.is_none()
            && waiting.is_none()
            && indicated.is_empty()
            && !is_emergency
    }
}

impl Extra {
    pub(crate) fn is_empty(&self) -> bool {
        let Self {
            membership,
            urr_rules,
            usage,
            rare,
        } = self;
        membership.is_none() && urr_rules.urrs.is_empty() && usage.is_none() && rare.is_none()
    }
}

impl Context {
    /// Of a session without rules so far.
    pub(crate) fn of(cp_seid: u64, membership: Option<Box<Membership>>) -> Self {
        let extra = membership.map(|membership| {
            Box::new(Extra {
                membership: Some(membership),
                ..Extra::default()
            })
        });
        Self {
            kept: Kept::default(),
            cp_seid,
            extra,
        }
    }

    /// All rules.
    pub(crate) fn rules(&self) -> Rules {
        Rules {
            urrs: self.urrs().into(),
            ..self.kept.rules()
        }
    }

    /// It has these rules now, but for URRs, which stay.
    pub(crate) fn keep(&mut self, rules: &Rules) {
        let (ends, scratch) = (&mut Ends::default(), &mut Vec::new());
        self.kept.write(ToKeep::of(rules), ends, scratch);
    }

    /// How many PDRs, FARs, QERs, URRs and BARs there are.
    pub(crate) fn rule_counts(&self) -> [usize; 5] {
        let [pdrs, fars, qers, bars] = self.kept.counts();
        [pdrs, fars, qers, self.urrs().len(), bars]
    }

    /// URRs, and the PDRs as far as URRs go by them; nothing of a session without URRs.
    pub(crate) fn urr_rules(&self) -> Option<&UrrRules> {
        self.extra.as_ref().map(|extra| &extra.urr_rules)
    }

    pub(crate) fn urrs(&self) -> &[Urr] {
        self.urr_rules().map_or(&[], |rules| &rules.urrs)
    }

    pub(crate) fn membership(&self) -> Option<&Membership> {
        self.extra.as_ref()?.membership.as_deref()
    }

    pub(crate) fn usage(&self) -> Option<&Usage> {
        self.extra.as_ref()?.usage.as_ref()
    }

    pub(crate) fn usage_mut(&mut self) -> Option<&mut Usage> {
        self.extra.as_mut()?.usage.as_mut()
    }

    /// URRs and the PDRs that name them, and their measurements, if it has some.
    pub(crate) fn measuring(&mut self) -> Option<(&UrrRules, &mut Usage)> {
        let extra = self.extra.as_deref_mut()?;
        Some((&extra.urr_rules, extra.usage.as_mut()?))
    }

    pub(crate) fn rare(&self) -> Option<&Rare> {
        self.extra.as_ref()?.rare.as_deref()
    }

    /// Changes the state that few sessions have; it is freed when it is empty.
    pub(crate) fn change_rare<R>(&mut self, change: impl FnOnce(&mut Rare) -> R) -> R {
        let extra = self.extra.get_or_insert_default();
        let rare = extra.rare.get_or_insert_default();
        let result = change(rare);
        if rare.is_empty() {
            extra.rare = None;
            if extra.is_empty() {
                self.extra = None;
            }
        }
        result
    }

    /// It has other URRs now, or they are named by other PDRs; nothing is kept of none.
    pub(crate) fn set_urr_rules(&mut self, rules: UrrRules) {
        if let Some(extra) = &mut self.extra {
            extra.urr_rules = rules;
        } else if !rules.urrs.is_empty() {
            self.extra.get_or_insert_default().urr_rules = rules;
        }
    }

    /// Its URRs are gone, and so is what they have measured.
    pub(crate) fn end_usage(&mut self) {
        if let Some(extra) = &mut self.extra {
            extra.usage = None;
            extra.urr_rules = UrrRules::default();
            if extra.is_empty() {
                self.extra = None;
            }
        }
    }

    /// Traffic Endpoints; most sessions have none.
    pub(crate) fn endpoints(&self) -> &[Endpoint] {
        self.rare().map_or(&[], |rare| &rare.endpoints)
    }

    /// PDRs that hold for some time only.
    pub(crate) fn deferral(&self) -> Option<&Deferral> {
        self.rare()?.deferral.as_ref()
    }

    /// Tunnels into which nothing is sent for a while.
    pub(crate) fn paused(&self) -> impl Iterator<Item = Tunnel> + '_ {
        let indicated = self.rare().map(|rare| &rare.indicated);
        indicated.into_iter().flat_map(paused)
    }

    /// PDRs that do not hold now.
    pub(crate) fn dormant(&self) -> &[PdrId] {
        self.deferral().map_or(&[], Deferral::dormant)
    }

    /// PDRs that a URR without quota closes.
    pub(crate) fn closed(&self, into: &mut Vec<(PdrId, Option<FarId>)>) {
        match self.extra.as_deref() {
            Some(Extra {
                urr_rules,
                usage: Some(usage),
                ..
            }) => {
                let pdrs = urr_rules.pdrs.iter().map(|pdr| (pdr.pdr, &*pdr.urrs));
                usage.closed(pdrs, &urr_rules.urrs, into);
            }
            _ => into.clear(),
        }
    }
}
