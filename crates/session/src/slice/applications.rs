//! Applications that PDIs name (Application ID, TS 29.244, 8.2.6), told by the flows of their PFDs (6.2.5).
//!
//! An application whose PFDs are flows is nothing but filters: its PDRs are compiled with them, and compiled anew when
//! its PFDs change. What only a look into packets could tell (domain names, URLs) no PDR may name.

use std::collections::{BTreeMap, BTreeSet};

use pfcp::{Cause, IeType};

use crate::base::event::Event;
use crate::base::flow::FlowDescription;
use crate::base::pfd::{PfdKind, Property};
use crate::base::refusal::Refusal;
use crate::base::slab::Place;
use crate::compiled::Tables;
use crate::exchange::n4::Turn;
use crate::rules::Pdr;
use crate::rules::flows::Flows;
use crate::slice::Slice;
use crate::slice::sessions::Sessions;

type Names = BTreeSet<Box<str>>;

/// Sessions that are looked at, and those of them that are compiled anew, before other work may go first.
const SESSIONS_PER_STEP: usize = 512;
const COMPILED_PER_STEP: usize = 64;

/// Applications and who names them.
#[derive(Debug, Default)]
pub(crate) struct Applications {
    /// Of those with PFDs by which packets can be told.
    flows: Flows,
    /// PDRs that name an application; those that none names are not here.
    users: BTreeMap<Box<str>, usize>,
    /// Of those that PDRs name: changed since the pass under way began.
    changed: Names,
    pass: Option<Pass>,
}

/// Over all sessions, for those that name an application whose flows have changed.
#[derive(Debug)]
struct Pass {
    names: Names,
    /// Looked at next.
    at: Place,
    /// Sessions that keep what they had.
    failed: usize,
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

    /// The PFDs of an application are these from now on, none if they were taken away.
    pub(crate) fn provision(&mut self, name: &str, properties: &[Property]) {
        let is_used = self.users.contains_key(name);
        let flows = Some(properties).filter(|all| !all.is_empty());
        let flows = flows.and_then(flows_of);
        // Without PFDs no packet is of it.
        let flows = flows.or_else(|| is_used.then(Box::default));
        if self.flows.get(name) == flows.as_ref() {
            return;
        }
        match flows {
            Some(flows) => self.flows.insert(name.into(), flows),
            None => self.flows.remove(name),
        };
        if is_used {
            self.changed.insert(name.into());
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
        self.pass.is_some() || !self.changed.is_empty()
    }

    /// The pass under way, or one for what has changed since the last one began: what changes meanwhile does not keep it
    /// from its end.
    fn pass(&mut self) -> Option<&mut Pass> {
        if self.pass.is_none() && !self.changed.is_empty() {
            self.pass = Some(Pass {
                names: std::mem::take(&mut self.changed),
                at: Place::FIRST,
                failed: 0,
            });
        }
        self.pass.as_mut()
    }
}

impl<T: Tables> Slice<T> {
    /// A step towards sessions that go by the PFDs as they are now.
    pub(crate) fn fit_to_pfds(&mut self, turn: &mut Turn<'_>) {
        let Some(sessions) = self.sessions.refit(&mut self.tables) else {
            return;
        };
        if sessions > 0 {
            turn.stats().pfds_without_room += sessions as u64;
            turn.out.event(Event::PfdsWithoutRoom { sessions });
        }
    }
}

impl<T: Tables> Sessions<T> {
    /// Some more sessions are looked at, whether what they name has changed. After the last one: how many of them keep
    /// what they had, because there is no room for what they should have.
    pub(crate) fn refit(&mut self, tables: &mut T) -> Option<usize> {
        let mut compiled = 0;
        for _ in 0..SESSIONS_PER_STEP {
            let pass = self.applications.pass()?;
            let place = pass.at;
            let changed = |pdr: &Pdr| {
                let name = pdr.pdi.application();
                name.is_some_and(|name| pass.names.contains(name))
            };
            let session = self.slab.get(place);
            let is_concerned = session.is_some_and(|s| s.context.kept.pdrs().iter().any(changed));
            let seid = self.slab.seid(place).filter(|_| is_concerned);
            let next = self.slab.after(place);
            let fits = seid.is_none_or(|seid| self.refit_one(place, seid, tables));
            let pass = self.applications.pass()?;
            pass.failed += usize::from(!fits);
            let Some(next) = next else {
                return self.applications.pass.take().map(|pass| pass.failed);
            };
            pass.at = next;
            compiled += usize::from(is_concerned);
            if compiled == COMPILED_PER_STEP {
                break;
            }
        }
        None
    }

    fn refit_one(&mut self, place: Place, seid: u64, tables: &mut T) -> bool {
        self.publish_anew(place, seid, tables)
    }
}
