//! Buffering and paging (TS 29.244, 5.2.1, 5.2.4 and 7.5.8.2; TS 23.502, 4.2.3.3): the SMF of a session whose FAR
//! says BUFF and NOCP hears of the first packet that waits, and says in a BAR how packets are to wait.
//!
//! Packets themselves are the tables' affair. They tell of the first one that waits for a PDR, and of another one
//! only when none waits any more; so an idle period is reported once. Where there is no room for it they tell of it as well.

use std::time::Duration;

use compiled::{BufferLimits, Buffered, PdrId, Qfi, Tables};
use pfcp::ie::{DownlinkDataServiceInformation, PfcpSrRspFlags, ReportType, Timer, UpdateBar};
use pfcp::message::SessionReportResponse;
use smallvec::SmallVec;

use crate::base::time::Time;
use crate::between::to_node::Outputs;
use crate::compile::compiler::mark;
use crate::rules::{Apply, Bar, BarId, Far, Pdr, Rules};
use crate::shard::Shard;
use crate::shard::index::paging::{Met, PagingState};
use crate::shard::sessions::Sessions;

/// One unit of a Downlink Data Notification Delay (8.2.28).
const DELAY_UNIT: Duration = Duration::from_millis(50);

/// A report that found no room is tried again after this.
const RETRY: Duration = Duration::from_secs(1);

/// Sessions paged before other work may go first.
const SESSIONS_PER_STEP: usize = 512;

/// A buffering duration without end: the tables want a number.
const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);

/// Content of a Downlink Data Report: one PDR, and the marks of the packet that it has met.
pub(crate) type Told = (u16, DownlinkDataServiceInformation);

impl<T: Tables> Sessions<T> {
    fn paging_state(&self, seid: u64) -> Option<&PagingState> {
        let session = self.slab.get(self.slab.find(seid)?)?;
        session.context.rare()?.waiting.as_ref()
    }

    fn change_paging(&mut self, seid: u64, change: impl FnOnce(&mut PagingState)) {
        let paging = &mut self.paging;
        if let Some(session) = self.slab.find_mut(seid) {
            session
                .context
                .change_rare(|rare| paging.change(seid, &mut rare.waiting, change));
        }
    }

    /// A packet is buffered, and the SMF is to hear of it after `delay`.
    fn meet(&mut self, now: Time, what: Buffered, delay: Duration) {
        self.change_paging(what.seid, |session| {
            let is_known = session.met.iter().any(|met| met.pdr == what.pdr);
            if is_known || session.quiet_until.is_some_and(|until| until > now) {
                return;
            }
            session.met.push(Met {
                pdr: what.pdr,
                tos: what.tos,
                is_lost: !what.waits,
                due: Some(now.after(delay)),
            });
        });
    }

    /// The SMF did not hear of buffered packets; it is to from `at` on.
    pub(crate) fn page_again(&mut self, at: Time, seid: u64) {
        if self.paging_state(seid).is_some() {
            self.change_paging(seid, |session| {
                for met in session.met.iter_mut().filter(|met| met.due.is_none()) {
                    met.due = Some(at);
                }
            });
        }
    }

    fn keep_met(&mut self, seid: u64, keep: impl Fn(&Met) -> bool) {
        if self.paging_state(seid).is_some() {
            self.change_paging(seid, |session| session.met.retain(|met| keep(met)));
        }
    }

    /// A session with something due. What is due there is under way from now on.
    fn next_to_page(&mut self, now: Time) -> Option<(u64, SmallVec<[Met; 1]>)> {
        let &(at, seid) = self.paging.due.first()?;
        if at > now {
            return None;
        }
        let mut due = SmallVec::new();
        self.change_paging(seid, |session| {
            session.quiet_until = session.quiet_until.filter(|until| *until > now);
            for met in &mut session.met {
                if met.due.is_some_and(|at| at <= now) {
                    met.due = None;
                    due.push(*met);
                }
            }
        });
        Some((seid, due))
    }
}

impl Bar {
    /// Update BAR, of a modification or of the answer to a report; what is not sent stays.
    pub(crate) fn update(&mut self, ie: &UpdateBar<'_>) {
        self.delay = ie.notification_delay.unwrap_or(self.delay);
        self.packets = ie.packets.map(|count| count.0).or(self.packets);
    }
}

/// The FAR of a PDR, if its packets are buffered.
fn buffering<'a>(rules: &'a Rules, pdr: &Pdr) -> Option<&'a Far> {
    let far = rules.fars.iter().find(|far| Some(far.id) == pdr.far)?;
    matches!(far.apply, Apply::Buffer { .. }).then_some(far)
}

/// Whether the SMF wants to hear that packets of a PDR are buffered (NOCP).
fn notifies(rules: &Rules, pdr: PdrId) -> bool {
    let pdr = rules.pdrs.iter().find(|known| known.id == pdr);
    let far = pdr.and_then(|pdr| buffering(rules, pdr));
    far.is_some_and(|far| far.apply == Apply::Buffer { notify: true })
}

fn bar_of<'a>(rules: &'a Rules, far: &Far) -> Option<&'a Bar> {
    rules.bars.iter().find(|bar| Some(bar.id) == far.bar)
}

/// QFI that downlink packets of the PDR are marked with.
fn qfi(rules: &Rules, pdr: &Pdr) -> Option<Qfi> {
    let of_pdr = |id| rules.qers.iter().find(|qer| qer.id == id);
    let qers: SmallVec<[_; 4]> = pdr.qers.iter().filter_map(|&id| of_pdr(id)).collect();
    mark(&qers)
}

impl<T: Tables> Sessions<T> {
    fn live_rules(&self, seid: u64) -> Option<(Rules, &T::Handle)> {
        let session = self.slab.get(self.slab.find(seid)?)?;
        self.is_live(session)
            .then(|| (session.context.rules(), &session.handle))
    }

    /// Limits buffered packets as their BAR says. The delay after which the SMF is to hear of them; `None`: it is not.
    fn limit_by_bar(&self, what: Buffered, tables: &mut T) -> Option<Duration> {
        let (rules, _) = self.live_rules(what.seid)?;
        let pdr = rules.pdrs.iter().find(|pdr| pdr.id == what.pdr)?;
        let far = buffering(&rules, pdr)?;
        let bar = bar_of(&rules, far);
        if let Some(packets) = bar.and_then(|bar| bar.packets) {
            let limits = BufferLimits {
                packets: Some(packets.into()),
                duration: None,
            };
            tables.limit_buffered(what.seid, what.pdr, limits);
        }
        let delay = DELAY_UNIT * bar.map_or(0, |bar| bar.delay).into();
        (far.apply == Apply::Buffer { notify: true }).then_some(delay)
    }

    /// Of PDRs that packets have met, those whose packets are still buffered and whose SMF wants to hear of it.
    fn still_buffered(&self, seid: u64, met: &[Met], tables: &T) -> SmallVec<[Told; 1]> {
        let Some((rules, handle)) = self.live_rules(seid) else {
            return SmallVec::new();
        };
        let waiting = met
            .iter()
            .filter(|met| notifies(&rules, met.pdr))
            .filter(|met| met.is_lost || tables.buffered(handle, met.pdr) > 0);
        let told = waiting.filter_map(|met| {
            let pdr = rules.pdrs.iter().find(|pdr| pdr.id == met.pdr)?;
            let service = DownlinkDataServiceInformation {
                ppi: Some(met.tos >> 2),
                qfi: qfi(&rules, pdr).map(Qfi::get),
            };
            Some((met.pdr.0, service))
        });
        told.collect()
    }

    /// The same; the others are met no more.
    fn settle_met(&mut self, seid: u64, met: &[Met], tables: &T) -> SmallVec<[Told; 1]> {
        let told = self.still_buffered(seid, met, tables);
        let is_told = |met: &Met| told.iter().any(|&(pdr, _)| pdr == met.pdr.0);
        let was_met = |pdr: PdrId| met.iter().any(|met| met.pdr == pdr);
        self.keep_met(seid, |met| is_told(met) || !was_met(met.pdr));
        told
    }

    /// Contents of a Downlink Data Report, now that it leaves.
    pub(crate) fn still_to_tell(&mut self, seid: u64, tables: &T) -> SmallVec<[Told; 1]> {
        let waiting = self.paging_state(seid).into_iter();
        let met: SmallVec<[Met; 1]> = waiting
            .flat_map(|waiting| &waiting.met)
            .filter(|met| met.due.is_none())
            .copied()
            .collect();
        self.settle_met(seid, &met, tables)
    }

    /// The session has changed: an idle period that is over is not reported.
    pub(crate) fn end_paging(&mut self, seid: u64) {
        if self.paging_state(seid).is_none() {
            return;
        }
        let Some(session) = self.slab.find(seid).and_then(|at| self.slab.get(at)) else {
            return;
        };
        let rules = session.context.rules();
        let notified: SmallVec<[PdrId; 4]> = (rules.pdrs.iter().map(|pdr| pdr.id))
            .filter(|pdr| notifies(&rules, *pdr))
            .collect();
        let buffers = rules
            .pdrs
            .iter()
            .any(|pdr| buffering(&rules, pdr).is_some());
        self.change_paging(seid, |session| {
            session.met.retain(|met| notified.contains(&met.pdr));
            session.quiet_until = session.quiet_until.filter(|_| buffers);
        });
    }

    /// A request was carried out: the SMF hears of buffered packets of PDRs of which it did not want to hear until now.
    pub(crate) fn notice(&self, seid: u64, tables: &mut T) {
        let pdrs = &self.draft.silent;
        if pdrs.is_empty() {
            return;
        }
        let Some((rules, handle)) = self.live_rules(seid) else {
            return;
        };
        let mut now = pdrs.iter().filter(|pdr| notifies(&rules, **pdr));
        if now.any(|pdr| tables.buffered(handle, *pdr) > 0) {
            tables.tell_of_buffered(seid);
        }
    }

    /// Update BAR of the answer to a report (7.5.9.2).
    fn update_bar(&mut self, now: Time, seid: u64, ie: &UpdateBar<'_>, tables: &mut T) {
        let Some(session) = self.slab.find(seid).and_then(|at| self.slab.get_mut(at)) else {
            return;
        };
        let id = BarId(ie.bar_id);
        let mut rules = session.context.rules();
        let Some(bar) = rules.bars.iter_mut().find(|bar| bar.id == id) else {
            return;
        };
        bar.update(ie);
        let packets = ie.packets_meanwhile.map(|count| count.0).or(bar.packets);
        let duration = ie.duration.map(duration);
        let limits = BufferLimits {
            packets: packets.map(u32::from),
            duration,
        };
        session.context.keep(&rules);
        let mut waits = false;
        for pdr in &rules.pdrs {
            if buffering(&rules, pdr).is_some_and(|far| far.bar == Some(id)) {
                tables.limit_buffered(seid, pdr.id, limits);
                waits = true;
            }
        }
        if let Some(duration) = duration.filter(|_| waits) {
            let until = now.after(duration);
            self.change_paging(seid, |session| session.quiet_until = Some(until));
        }
    }
}

fn duration(timer: Timer) -> Duration {
    let seconds = timer.seconds();
    seconds.map_or(FOREVER, |seconds| Duration::from_secs(seconds.into()))
}

impl<T: Tables> Shard<T> {
    /// A packet of a session is buffered, and none of its PDR was before it. Its SMF hears of it when time has been kept: a request
    /// that has come meanwhile, after which nothing waits, goes first.
    pub(crate) fn on_buffered(&mut self, now: Time, what: Buffered) {
        let delay = self.sessions.limit_by_bar(what, &mut self.tables);
        if let Some(delay) = delay {
            self.sessions.hold(what.seid, &mut self.tables);
            self.sessions.meet(now, what, delay);
        }
    }

    /// Tell SMFs of buffered packets, where it is time.
    pub(super) fn page(&mut self, now: Time, out: &mut Outputs) {
        for _ in 0..SESSIONS_PER_STEP {
            let Some((seid, met)) = self.sessions.next_to_page(now) else {
                return;
            };
            let told = self.sessions.settle_met(seid, &met, &self.tables);
            if told.is_empty() {
                continue;
            }
            let write = |writer: &mut pfcp::Writer<'_>| writer.downlink_data_report(&told);
            if !self.report(out, seid, ReportType::DLDR, write) {
                self.sessions.page_again(now.after(RETRY), seid);
            }
        }
    }

    /// The SMF has heard of it.
    pub(crate) fn on_paging_answer(
        &mut self,
        now: Time,
        seid: u64,
        response: &SessionReportResponse<'_>,
    ) {
        self.sessions.keep_met(seid, |met| met.due.is_some());
        if !response.cause.is_accepted() {
            return;
        }
        let flags = response.pfcpsrrsp_flags;
        if flags.is_some_and(|flags| flags.contains(PfcpSrRspFlags::DROBU)) {
            self.tables.discard_buffered(seid);
        }
        for bar in response.update_bars.iter().filter_map(Result::ok) {
            self.sessions.update_bar(now, seid, &bar, &mut self.tables);
        }
    }
}
