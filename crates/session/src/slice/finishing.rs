//! Before an association is released the SMF hears of all usage (TS 29.244, 5.18): each URR that has measured something
//! reports it (TEBUR), and when all reports are answered the SMF is told that there are no more (URSS).

use std::collections::BTreeMap;

use crate::base::ids::PeerId;
use crate::base::slab::Place;
use crate::base::time::Time;
use crate::compiled::Tables;
use crate::core::Core;
use crate::exchange::outbox::Outbox;

/// Places looked at before other work may go first.
const PLACES_PER_STEP: usize = 1024;

/// What follows when all is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// The SMF hears of it, and releases.
    Tell,
    /// The SMF hears of it, and is asked to release.
    AskForRelease,
}

/// How far it is.
#[derive(Debug)]
struct Progress {
    /// Sessions in places before this one have been asked; `None`: all have.
    next: Option<Place>,
    then: Then,
}

/// The associations whose usage is being reported to the end.
#[derive(Debug, Default)]
pub(crate) struct Finishing(BTreeMap<PeerId, Progress>);

impl Finishing {
    /// The association is over.
    pub(crate) fn forget(&mut self, peer: PeerId) {
        self.0.remove(&peer);
    }

    /// Whether there are sessions to ask.
    pub(crate) fn is_behind(&self) -> bool {
        self.0.values().any(|progress| progress.next.is_some())
    }

    /// Whether all sessions have been asked; what follows then.
    fn asked_all(&self, peer: PeerId) -> Option<Then> {
        let progress = self.0.get(&peer)?;
        progress.next.is_none().then_some(progress.then)
    }
}

impl<T: Tables> Core<T> {
    pub(crate) fn is_finishing(&self, peer: PeerId) -> bool {
        self.finishing.0.contains_key(&peer)
    }

    /// Begin; an SMF that asks again while it goes on changes nothing.
    pub(crate) fn finish_usage(&mut self, now: Time, peer: PeerId, then: Then, out: &mut Outbox) {
        let next = Some(Place::FIRST);
        let progress = Progress { next, then };
        self.finishing.0.entry(peer).or_insert(progress);
        self.keep_finishing(now, out);
    }

    /// A step.
    pub(crate) fn keep_finishing(&mut self, now: Time, out: &mut Outbox) {
        let behind = self.finishing.0.iter_mut();
        let behind = behind.filter(|(_, progress)| progress.next.is_some());
        let peers: Vec<PeerId> = behind.map(|(peer, _)| *peer).collect();
        for peer in peers {
            self.finish_some(now, peer);
            self.tell_usage(now, out);
            self.may_be_finished(now, peer, out);
        }
    }

    fn finish_some(&mut self, now: Time, peer: PeerId) {
        let Some(progress) = self.finishing.0.get_mut(&peer) else {
            return;
        };
        for _ in 0..PLACES_PER_STEP {
            let Some(place) = progress.next else { break };
            if self.sessions.is_of(place, peer) {
                let anew = self.closing;
                (self.sessions).usage_finishes(now, place, anew, &mut self.tables);
            }
            progress.next = self.sessions.slab.after(place);
        }
    }

    /// Whether it was the last report that was answered.
    pub(crate) fn may_be_finished(&mut self, now: Time, peer: PeerId, out: &mut Outbox) {
        let Some(then) = self.finishing.asked_all(peer) else {
            return;
        };
        if !self.reports.is_idle(peer) {
            return;
        }
        self.finishing.forget(peer);
        match then {
            Then::Tell => self.say_reports_are_sent(now, peer, out),
            Then::AskForRelease => self.ask_for_release(now, peer, out),
        }
    }
}
