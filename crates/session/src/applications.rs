//! Applications that PDIs name (Application ID, TS 29.244, 8.2.6), told by the flows of their PFDs (6.2.5).
//!
//! An application whose PFDs are flows is nothing but filters: its PDRs are compiled with them, and compiled anew when
//! its PFDs change. What only a look into packets could tell (domain names, URLs) no PDR may name.

use std::collections::BTreeMap;

use pfcp::{Cause, IeType};

use crate::compiled::Tables;
use crate::core::Core;
use crate::event::Event;
use crate::flow::FlowDescription;
use crate::outbox::Outbox;
use crate::pfds::{PfdKind, Property};
use crate::refusal::Refusal;
use crate::rules::Pdr;
use crate::sessions::Sessions;
use crate::slab::Place;

/// Flows by Application ID.
pub type Flows = BTreeMap<Box<str>, Box<[FlowDescription]>>;

/// Sessions that are looked at before other work may go first.
const SESSIONS_PER_STEP: usize = 512;

/// For rules that name none.
pub(crate) static NO_FLOWS: Flows = Flows::new();

/// Applications and who names them.
#[derive(Debug, Default)]
pub(crate) struct Applications {
    /// Of those with PFDs by which packets can be told.
    flows: Flows,
    /// PDRs that name an application; those that none names are not here.
    users: BTreeMap<Box<str>, usize>,
    /// Sessions from this place on are still to be compiled with what has changed.
    refit: Option<Place>,
}

/// The flows of an application's PFDs, if these are all that they are.
pub(crate) fn flows_of(properties: &[Property]) -> Option<Box<[FlowDescription]>> {
    let flow = |property: &Property| match property.kind {
        PfdKind::Flow => FlowDescription::parse(property.text.as_bytes()).ok(),
        PfdKind::Url | PfdKind::Domain | PfdKind::Custom => None,
    };
    properties.iter().map(flow).collect()
}

impl Applications {
    pub(crate) fn flows(&self) -> &Flows {
        &self.flows
    }

    /// Whether the PFDs of an application may become these: those that PDRs name must stay such that their packets
    /// can be told. Without any they are nobody's.
    pub(crate) fn allow(&self, name: &str, properties: &[Property]) -> Result<(), Refusal> {
        if self.users.contains_key(name) && flows_of(properties).is_none() {
            let ie = IeType::APPLICATION_IDS_PFDS;
            return Err(Refusal::ie(Cause::SERVICE_NOT_SUPPORTED, ie));
        }
        Ok(())
    }

    /// The PFDs are these from now on.
    pub(crate) fn provision<'p>(&mut self, all: impl Iterator<Item = (&'p str, &'p [Property])>) {
        let mut flows: Flows = all
            .filter_map(|(name, properties)| Some((name.into(), flows_of(properties)?)))
            .collect();
        for name in self.users.keys() {
            // Its PFDs were taken away: no packet is of it.
            flows.entry(name.clone()).or_default();
        }
        if flows != self.flows {
            self.refit = (!self.users.is_empty()).then_some(Place::FIRST);
            self.flows = flows;
        }
    }

    /// PDRs come in the place of others.
    pub(crate) fn keep(&mut self, before: &[Pdr], after: &[Pdr]) {
        for name in after.iter().filter_map(|pdr| pdr.pdi.application()) {
            *self.users.entry(name.into()).or_default() += 1;
        }
        for name in before.iter().filter_map(|pdr| pdr.pdi.application()) {
            let Some(users) = self.users.get_mut(name) else {
                continue;
            };
            *users -= 1;
            if *users == 0 {
                self.users.remove(name);
                if self.flows.get(name).is_some_and(|flows| flows.is_empty()) {
                    self.flows.remove(name);
                }
            }
        }
    }

    /// Whether sessions are still to be compiled anew.
    pub(crate) fn is_behind(&self) -> bool {
        self.refit.is_some()
    }
}

impl<T: Tables> Core<T> {
    /// A step towards sessions that go by the PFDs as they are now.
    pub(crate) fn refit(&mut self, out: &mut Outbox) {
        let sessions = self.sessions.refit(SESSIONS_PER_STEP, &mut self.tables);
        if sessions > 0 {
            out.event(Event::PfdsWithoutRoom { sessions });
        }
    }
}

impl<T: Tables> Sessions<T> {
    /// Up to `at_most` more sessions are looked at, whether what they name has changed. How many of them keep what
    /// they had, because there is no room for what they should have.
    pub(crate) fn refit(&mut self, at_most: usize, tables: &mut T) -> usize {
        let mut failed = 0;
        for _ in 0..at_most {
            let Some(place) = self.applications.refit else {
                break;
            };
            self.applications.refit = self.slab.after(place);
            let names = |pdr: &Pdr| pdr.pdi.application().is_some();
            let session = self.slab.get(place);
            if !session.is_some_and(|s| s.rules.view().pdrs.iter().any(names)) {
                continue;
            }
            let Some(seid) = self.slab.seid(place) else {
                continue;
            };
            let dormant = self.deferred.dormant(seid).to_vec();
            failed += usize::from(!self.publish_anew(place, seid, &dormant, tables));
        }
        failed
    }
}
