//! How a session comes to be in a shard, and how it leaves.
//!
//! There is one way in. An establishment makes the session that its request asks for, a record says what one was like
//! elsewhere; [`Sessions::enter`] takes what either holds, makes packets meet it and lets all indexes lead to it.

use compiled::{Resource, Tables};
use pfcp::Cause;

use crate::base::ids::PeerId;
use crate::base::node_id::NodeId;
use crate::base::refusal::Refusal;
use crate::base::shortage::Shortage;
use crate::base::slab::{NoPlace, Place};
use crate::base::time::Time;
use crate::between::to_node::Outputs;
use crate::between::to_shard::Concerns;
use crate::exchange::answers::Fingerprint;
use crate::rules::places::Relocation;
use crate::rules::predefined;
use crate::shard::Shard;
use crate::shard::context::{Context, Rare};
use crate::shard::holders::Holders;
use crate::shard::index::tunnels;
use crate::shard::record::Record;
use crate::shard::session::Session;
use crate::shard::sessions::Sessions;
use crate::usage::measured::Uncounted;

/// Why a session cannot be taken in. Nothing of it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unadopted {
    /// Its SMF is not associated.
    #[error("its SMF {0} is not associated")]
    NoAssociation(NodeId),
    /// Its SEID is none that it can have here.
    #[error(transparent)]
    NoPlace(#[from] NoPlace),
    /// It names what this configuration does not have.
    #[error("{0} is not configured")]
    NotConfigured(String),
    /// Something that it holds is another session's or not to be had here, or there is no room for it.
    #[error("what it holds is not to be had: {0}")]
    Refused(Refusal),
}

impl<T: Tables> Shard<T> {
    /// Generation of SEIDs that no session has had, as far as is known here.
    pub(crate) fn generation(&self) -> u32 {
        self.sessions.slab.latest()
    }

    /// Sessions that begin here have this generation of SEIDs or later ones, and other TEIDs than those of the processes before
    /// this one, of which there were so many.
    pub(crate) fn go_on(&mut self, generation: u32, succession: u32) {
        self.sessions.slab.go_on(generation);
        self.sessions.resources.go_on(succession);
    }

    /// See [`Core::adopt`](crate::Core::adopt); of this peer.
    pub(crate) fn adopt(
        &mut self,
        now: Time,
        out: &mut Outputs,
        peer: PeerId,
        record: Record,
    ) -> Result<u64, Unadopted> {
        let (sessions, tables) = (&mut self.sessions, &mut self.tables);
        let seid = sessions.adopt(now, peer, record, tables)?;
        self.lending.know(sessions, seid, tables);
        self.tell_usage(now, out);
        self.tell_counts(out);
        Ok(seid)
    }

    /// See [`Core::look`](crate::Core::look).
    pub(crate) fn look(&mut self, now: Time, seid: u64) {
        let place = self.sessions.slab.find(seid);
        let packets = self.sessions.packets_if_watched(seid, &self.tables);
        if let Some((place, packets)) = place.zip(packets) {
            self.sessions.carry(now, place, packets, packets);
        }
    }

    /// See [`Core::follow_meters`](crate::Core::follow_meters).
    pub(crate) fn follow_meters(&mut self, record: &Record) {
        if let Some(session) = self.sessions.slab.find_mut(record.seid()) {
            let at = record.counted_at();
            self.tables.follow_meters(&session.handle, at);
        }
    }

    /// See [`Core::count`](crate::Core::count).
    pub(crate) fn count(&mut self, seid: u64, uncounted: &Uncounted) {
        let Some(session) = self.sessions.slab.find_mut(seid) else {
            return;
        };
        session.context.met_before(uncounted.packets);
        if let Some((rules, _, usage)) = session.measuring() {
            usage.count_uncounted(rules, uncounted);
        }
    }

    /// See [`Core::release`](crate::Core::release); its SMF is of this Node ID.
    pub(crate) fn release(
        &mut self,
        now: Time,
        out: &mut Outputs,
        (seid, smf): (u64, NodeId),
    ) -> Option<Record> {
        let held = (&mut self.sessions, &mut self.tables);
        self.lending.take_back(now, held, out, Concerns::Any);
        let context = self.sessions.release(now, seid, &mut self.tables);
        self.lending.give_back(&mut self.tables, Concerns::Any);
        let context = context?;
        self.tell_counts(out);
        Some(Record::new(seid, smf, context, &self.sessions.site))
    }
}

impl<T: Tables> Sessions<T> {
    /// A session comes from elsewhere, under the SEID that it had there: this one.
    pub(crate) fn adopt(
        &mut self,
        now: Time,
        peer: PeerId,
        record: Record,
        tables: &mut T,
    ) -> Result<u64, Unadopted> {
        let answered = record.answered();
        let (seid, context, names, counted) = record.into_parts();
        self.slab.check(seid)?;
        let site = &self.site;
        let mut here = |place| match &names {
            Some(names) => site.place_of(names.get(place)?),
            None => site.name_of(place).map(|_| place),
        };
        let draft = self.draft.adopt(&context, &mut Relocation(&mut here));
        draft.map_err(
            |place| match names.as_ref().and_then(|names| names.get(place)) {
                Some(name) => Unadopted::NotConfigured(name.to_string()),
                None => Unadopted::NotConfigured(format!("{place:?}")),
            },
        )?;
        for pdr in &mut self.draft.pdrs.rules {
            predefined::arrange(pdr, &self.site.predefined);
        }
        self.ledger.take_in(true);
        let entered = self.enter(now, peer, Some(seid), context, tables);
        self.ledger.take_in(false);
        entered.map_err(Unadopted::Refused)?;
        if let Some(session) = self.slab.find_mut(seid) {
            session.answered = answered;
            tables.follow_meters(&session.handle, &counted);
        }
        self.activity_goes_on(seid, tables);
        self.usage_goes_on(now, seid, tables);
        Ok(seid)
    }

    /// A request was carried out for a session. Whoever keeps the session keeps that.
    pub(super) fn answered(&mut self, seid: u64, request: Fingerprint) {
        if self.slab.notes_changes()
            && let Some(session) = self.slab.find_mut(seid)
        {
            session.answered = request;
        }
    }

    /// A session goes elsewhere: what it is, with all that its packets have counted here.
    pub(crate) fn release(&mut self, now: Time, seid: u64, tables: &mut T) -> Option<Context> {
        let place = self.place_if_live(seid)?;
        if let Some(packets) = self.packets_if_watched(seid, tables) {
            self.carry(now, place, packets, packets);
        }
        self.usage_goes(place, tables);
        self.leave(now, place, tables)
    }

    /// The session that the draft is, and of which `context` says what the draft does not, comes to be here, under this
    /// SEID or the next that is free. On a refusal, nothing has happened.
    pub(super) fn enter(
        &mut self,
        now: Time,
        peer: PeerId,
        seid: Option<u64>,
        mut context: Context,
        tables: &mut T,
    ) -> Result<u64, Refusal> {
        let is_emergency = context.rare().is_some_and(|rare| rare.is_emergency);
        let payer = match is_emergency {
            true => PeerId::EMERGENCY,
            false => peer,
        };
        if let Err(is_kept) = self.ledger.check_session(payer) {
            let shortage = Shortage::of(Resource::Sessions, is_kept);
            return Err(Refusal::short_of(shortage));
        }
        let seid = seid.or_else(|| self.slab.next_seid());
        let seid = seid.ok_or(Cause::SYSTEM_FAILURE)?;
        self.before.clear();
        self.stopped_now.clear();
        self.stopped_now.extend(context.paused());
        let handle = self
            .publish(now, (peer, payer), seid, T::Handle::default(), tables)
            .map_err(|(_, refusal)| refusal)?;
        self.resources
            .keep(now, Holders::NONE, self.draft.holders());
        self.applications.keep(peer, &[], &self.draft.pdrs.rules);
        self.draft.land(&mut context);
        let list = self.list_of(peer);
        let session = Session {
            context,
            handle,
            answered: Fingerprint::default(),
            peer,
            epoch: list.epoch,
            previous: None,
            next: list.first,
        };
        let place = self.slab.insert(seid, session);
        let place = place.map_err(|_| Cause::SYSTEM_FAILURE)?;
        self.head(peer, Some(place), list.first);
        self.index(place, seid);
        self.ledger.begin(payer, place, is_emergency);
        Ok(seid)
    }

    /// A live session is here no more.
    pub(super) fn leave(&mut self, now: Time, place: Place, tables: &mut T) -> Option<Context> {
        let out = self.take_out(place)?;
        self.count(out.peer);
        if let Some(mut list) = self.peers.remove(&out.peer) {
            self.bridge(out.previous, out.next, &mut list);
            if list.len > 0 {
                self.peers.insert(out.peer, list);
            }
        }
        Some(self.dissolve(now, place, out, tables))
    }

    /// A session out of its place, to which nothing leads any more but its list.
    pub(super) fn take_out(&mut self, place: Place) -> Option<Session<T::Handle>> {
        let seid = self.slab.seid(place)?;
        let session = self.slab.remove(place)?;
        self.unindex(place, seid, &session);
        Some(session)
    }

    /// It holds nothing any more, and no packet meets it.
    pub(super) fn dissolve(
        &mut self,
        now: Time,
        place: Place,
        mut out: Session<T::Handle>,
        tables: &mut T,
    ) -> Context {
        tables.return_place(place.index());
        let payer = self.ledger.payer(out.peer, place);
        self.ledger.withdraw(payer, &mut out.handle, tables);
        self.ledger.end(out.peer, place);
        out.context.kept.read_pdrs(&mut self.before);
        let before = Holders {
            pdrs: &self.before,
            endpoints: out.context.endpoints(),
        };
        self.resources.keep(now, before, Holders::NONE);
        self.applications.keep(out.peer, before.pdrs, &[]);
        out.context
    }

    /// Indexes lead to a session in its place. All that they know of it is in itself.
    fn index(&mut self, place: Place, seid: u64) {
        let Some(session) = self.slab.get(place) else {
            return;
        };
        if let Some(Rare {
            endpoints: _,
            watch,
            deferral,
            waiting,
            indicated,
            is_emergency: _,
        }) = session.context.rare()
        {
            self.inactivity.index(seid, watch.as_ref());
            self.deferred.index(seid, deferral.as_ref());
            self.paging.index(seid, waiting.as_ref());
            self.stopped.index(seid, indicated);
        }
        self.usage.index(seid, session.context.usage());
        if let Some(membership) = session.context.membership() {
            self.sets.insert(place, membership);
        }
        if self.tunnels.covers(place) {
            let keys = tunnels::keys(&session.context.rules().fars);
            self.tunnels.change(place, &[], &keys);
        }
    }

    /// No index leads to a session that has left its place.
    fn unindex(&mut self, place: Place, seid: u64, session: &Session<T::Handle>) {
        if let Some(Rare {
            endpoints: _,
            watch,
            deferral,
            waiting,
            indicated,
            is_emergency: _,
        }) = session.context.rare()
        {
            self.inactivity.unindex(seid, watch.as_ref());
            self.deferred.unindex(seid, deferral.as_ref());
            self.paging.unindex(seid, waiting.as_ref());
            self.stopped.unindex(seid, indicated);
        }
        self.usage.forget(seid, session.context.usage());
        if let Some(membership) = session.context.membership() {
            self.sets.remove(place, membership);
        }
        if self.tunnels.covers(place) {
            let keys = tunnels::keys(&session.context.rules().fars);
            self.tunnels.change(place, &keys, &[]);
        }
    }
}
