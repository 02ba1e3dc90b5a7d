//! An engine that runs beside this thread: whom it serves, and when a session is lent to it again.

use std::collections::{BTreeSet, HashMap};

use compiled::TakenFor;

use super::{Beside, Lending, OWNER, named, passed, state};
use crate::abi::Line;
use crate::abi::host::{TP_N4_LENT, TP_N4_PASSED_MASK, TP_N4_READY};
use crate::engine::Engine;

/// Number of messages: nobody knows.
pub(super) const UNKNOWN: u16 = u16::MAX;

/// An engine that runs beside this thread.
#[derive(Debug)]
pub(super) struct BesideUs {
    pub(super) engine: Engine,
    /// By place.
    pub(super) ready: HashMap<u32, Ready>,
    /// Messages about sessions that have come here since they were lent last, by place: see `TP_N4_PASSED_SHIFT`. [`UNKNOWN`]: some
    /// may have passed uncounted.
    pub(super) heard: Vec<u16>,
    /// Places of sessions that were taken back, the last one last; `None`: it is not given back.
    pub(super) taken_back: Vec<Option<u32>>,
    /// Aliases that may not be needed any more.
    pub(super) unused: BTreeSet<u16>,
    /// The program serves nobody: messages may be under way that have passed when it was not attached yet.
    pub(super) is_fresh: bool,
}

/// Session that is lent when no message about it is under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ready {
    /// Its owner word then, and the messages that had come here.
    was: (u64, u16),
    /// It has been looked at since.
    is_old: bool,
}

impl Lending {
    /// See [`compiled::Tables::take_back`].
    pub(crate) fn take_back(&mut self, place: u32, taken_for: TakenFor) {
        let taken = self.beside.is_some() && self.take(place);
        let Some(beside) = &mut self.beside else {
            return;
        };
        // A request that was served before can be read when this is over, and all that were in front of it.
        beside.engine.wait();
        beside.taken_back.push(taken.then_some(place));
        if let Some(heard) = beside.heard.get_mut(place as usize) {
            *heard = match taken_for {
                TakenFor::Event => *heard,
                TakenFor::Request if beside.is_fresh => UNKNOWN,
                TakenFor::Request if *heard == UNKNOWN => UNKNOWN,
                TakenFor::Request => (*heard + 1) % (UNKNOWN - UNKNOWN % 16),
                TakenFor::Unmarked => UNKNOWN,
            };
        }
    }

    /// See [`compiled::Tables::give_back`].
    pub(crate) fn give_back(&mut self) {
        if let Some(beside) = &mut self.beside
            && let Some(place) = beside.taken_back.pop().flatten()
            && let Some(line) = self.lines.get(place as usize)
        {
            beside.offer(place, line);
        }
    }

    /// See [`crate::Tables::attach_n4`]: messages that come here may not have met the program, and so nothing says how many have passed.
    pub(crate) fn begin_anew(&mut self) {
        let Some(beside) = &mut self.beside else {
            return;
        };
        beside.engine.pause();
        beside.is_fresh = true;
        for heard in beside.heard.iter_mut().filter(|heard| **heard > 0) {
            *heard = UNKNOWN;
        }
    }

    /// See [`crate::Tables::n4_may_serve`].
    pub(crate) fn may_serve(&mut self) {
        if let Some(beside) = &mut self.beside {
            beside.is_fresh = false;
            beside.engine.go_on();
        }
    }

    /// See [`crate::Tables::lend_again`].
    pub(crate) fn lend_again(&mut self) {
        let Some(beside) = &mut self.beside else {
            return;
        };
        let BesideUs { ready, heard, .. } = &mut **beside;
        ready.retain(|&place, ready| {
            let Some(line) = self.lines.get(place as usize) else {
                return false;
            };
            let now = (line.load(OWNER), heard[place as usize]);
            let (owner, _) = now;
            if state(owner) != TP_N4_READY || named(owner) != named(ready.was.0) {
                return false;
            }
            // All that had come by the last look has been heard of, and nothing has come since.
            let is_quiet = ready.is_old && now == ready.was;
            let lent = named(owner) | u64::from(TP_N4_LENT);
            if is_quiet && line.exchange(OWNER, owner, lent) {
                heard[place as usize] = 0;
                return false;
            }
            *ready = Ready {
                was: now,
                is_old: true,
            };
            true
        });
    }

    /// See [`compiled::Tables::pause`].
    pub(crate) fn pause(&mut self) {
        if let Some(engine) = self.engine_mut() {
            engine.pause();
        }
    }

    /// See [`compiled::Tables::go_on`].
    pub(crate) fn go_on(&mut self, beside: &mut Beside<'_>) {
        let Some(own) = &mut self.beside else {
            return;
        };
        // All that was served has been heard of.
        for alias in std::mem::take(&mut own.unused) {
            let at = usize::from(alias);
            if self.known[at].is_some_and(|known| known.users == 0) {
                self.forget(at, beside);
            }
        }
        let is_fresh = self.beside.as_ref().is_some_and(|own| own.is_fresh);
        if let Some(engine) = self.engine_mut().filter(|_| !is_fresh) {
            engine.go_on();
        }
    }
}

impl BesideUs {
    /// The session in this place is not given back, nor is it ready.
    pub(super) fn keep(&mut self, place: u32) {
        self.ready.remove(&place);
        for taken in &mut self.taken_back {
            taken.take_if(|taken| *taken == place);
        }
    }

    /// The session in this place, which the control plane has, is lent: at once if all messages about it that have passed have come
    /// here, else when none can be under way.
    pub(super) fn offer(&mut self, place: u32, line: &Line) {
        self.keep(place);
        let heard = &mut self.heard[place as usize];
        loop {
            let owner = line.load(OWNER);
            let all_heard = *heard != UNKNOWN
                && passed(owner) == u64::from(*heard) & u64::from(TP_N4_PASSED_MASK);
            if all_heard {
                let lent = named(owner) | u64::from(TP_N4_LENT);
                if line.exchange(OWNER, owner, lent) {
                    *heard = 0;
                    return;
                }
            } else {
                let ready = owner | u64::from(TP_N4_READY);
                if line.exchange(OWNER, owner, ready) {
                    let was = (ready, *heard);
                    let is_old = false;
                    self.ready.insert(place, Ready { was, is_old });
                    return;
                }
            }
        }
    }
}
