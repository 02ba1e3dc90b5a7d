//! User plane inactivity of sessions ([`crate::shard::index::inactivity`]).

use compiled::Tables;
use pfcp::ie::ReportType;

use crate::base::slab::Place;
use crate::base::time::Time;
use crate::between::to_node::Outputs;
use crate::rules::Pdr;
use crate::shard::Shard;
use crate::shard::context::Context;
use crate::shard::index::inactivity::Watch;
use crate::shard::session::Session;
use crate::shard::sessions::Sessions;

/// Sessions looked at before other work may go first.
const LOOKS_PER_STEP: usize = 512;

impl Context {
    fn watch_mut(&mut self) -> Option<&mut Watch> {
        self.extra.as_mut()?.rare.as_mut()?.watch.as_mut()
    }

    /// So many packets met the session elsewhere since it was last looked at.
    pub(super) fn met_before(&mut self, packets: u64) {
        if let Some(watch) = self.watch_mut() {
            watch.packets = watch.packets.wrapping_sub(packets);
        }
    }
}

impl<T: Tables> Sessions<T> {
    /// A timer that is sent starts anew.
    pub(crate) fn watch(&mut self, now: Time, seid: u64, limit_s: Option<u32>, tables: &T) {
        let Some(limit_s) = limit_s else { return };
        let packets = self.packets(seid, tables).unwrap_or(0);
        let inactivity = &mut self.inactivity;
        if let Some(session) = self.slab.find_mut(seid) {
            session.context.change_rare(|rare| {
                let before = rare.watch.as_ref();
                rare.watch = inactivity.watch(now, seid, before, (limit_s, packets));
            });
        }
    }

    pub(crate) fn packets_if_watched(&self, seid: u64, tables: &T) -> Option<u64> {
        let session = self.slab.get(self.slab.find(seid)?)?;
        session.context.rare()?.watch.as_ref()?;
        self.packets(seid, tables)
    }

    /// The counters of a session change, because its PDRs do and not for a packet.
    pub(crate) fn carry(&mut self, now: Time, place: Place, before: u64, after: u64) {
        if let Some(watch) = self
            .slab
            .get_mut(place)
            .and_then(|session| session.context.watch_mut())
        {
            watch.carry(now, before, after);
        }
    }

    /// The counters of a session that has come go on from what they say here.
    pub(crate) fn activity_goes_on(&mut self, seid: u64, tables: &T) {
        let packets = self.packets_if_watched(seid, tables);
        let session = self.slab.find_mut(seid);
        let watch = session.and_then(|session| session.context.watch_mut());
        if let Some((watch, packets)) = watch.zip(packets) {
            watch.packets = packets;
        }
    }

    /// The SMF of a session did not hear that it is quiet.
    fn quiet_is_unreported(&mut self, seid: u64) {
        if let Some(watch) = self
            .slab
            .find_mut(seid)
            .and_then(|session| session.context.watch_mut())
        {
            watch.reported = false;
        }
    }

    /// See what a watched session has done; `packets`: none if its peer has left it, then it is watched no more. Whether its
    /// SMF is to hear that it is quiet.
    fn look_at(&mut self, now: Time, seid: u64, packets: Option<u64>) -> bool {
        let (inactivity, session) = (&mut self.inactivity, self.slab.find_mut(seid));
        let is_watched =
            |s: &&mut Session<T::Handle>| s.context.rare().is_some_and(|rare| rare.watch.is_some());
        let Some(session) = session.filter(is_watched) else {
            inactivity.due.pop_first();
            return false;
        };
        session
            .context
            .change_rare(|rare| match (&mut rare.watch, packets) {
                (Some(watch), Some(packets)) => inactivity.look(now, seid, watch, packets),
                (watch, _) => {
                    inactivity.unindex(seid, watch.take().as_ref());
                    false
                }
            })
    }

    /// All packets that a session met, in either direction, whatever became of them.
    pub(crate) fn packets(&self, seid: u64, tables: &T) -> Option<u64> {
        let session = self.slab.get(self.slab.find(seid)?)?;
        let of_pdr = |pdr: &Pdr| {
            let counters = tables.counters(&session.handle, pdr.id);
            counters.packets.wrapping_add(counters.drops)
        };
        let pdrs = session.context.kept.pdrs();
        let pdrs = pdrs.iter().map(of_pdr);
        let packets = pdrs.fold(0u64, u64::wrapping_add);
        self.is_live(session).then_some(packets)
    }
}

impl<T: Tables> Shard<T> {
    /// Look at the sessions whose time it is.
    pub(super) fn look_for_inactivity(&mut self, now: Time, out: &mut Outputs) {
        for _ in 0..LOOKS_PER_STEP {
            let Some(seid) = self.sessions.inactivity.next_due(now) else {
                return;
            };
            let packets = self.sessions.packets(seid, &self.tables);
            if self.sessions.look_at(now, seid, packets)
                && !self.report(out, seid, ReportType::UPIR, |_| {})
            {
                self.sessions.quiet_is_unreported(seid);
            }
        }
    }

    /// A report stayed without an answer: it is sent anew while it is still true.
    pub(crate) fn report_is_lost(&mut self, now: Time, seid: u64, report: ReportType) {
        if report.contains(ReportType::UPIR) {
            self.sessions.quiet_is_unreported(seid);
        }
        if report.contains(ReportType::DLDR) {
            self.sessions.page_again(now, seid);
        }
    }
}
