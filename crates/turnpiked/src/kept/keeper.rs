//! The file that changes are kept in while the process lives.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use arena::Arena;
use arena::ring::Ring;
use report::{DropReport, PortReport, StateReport, TableFill};
use session::{Change, Core};
use tables::{Tables, Words};

use super::counts::Counts;
use super::disk::{Disk, End, Plan};
use super::files::Files;
use crate::clock::Clock;

/// Times of heartbeats and the like are kept so often.
const NODE_AGE: Duration = Duration::from_secs(1);
/// Changes that found no room are tried again so often.
const RETRY: Duration = Duration::from_secs(1);

/// The file that changes are kept in.
pub(crate) struct Kept {
    pub(super) files: Files,
    pub(super) arena: Arena<Words>,
    pub(super) answers: Ring<Words>,
    /// Follows the file.
    pub(super) disk: Option<Disk>,
    /// Sessions of before, if there are any, have been put into it.
    pub(super) is_filled: bool,
    /// Place of the node's record, behind those of sessions.
    pub(super) node: u32,
    pub(super) pfds: u32,
    /// Place of counters of ports.
    pub(super) counts_at: u32,
    /// Counters of ports before this process.
    pub(super) counts: Counts,
    pub(super) node_at: Instant,
    /// There was no room at this time, and it was said.
    pub(super) full_at: Option<Instant>,
    /// Places whose records found no room.
    pub(super) unkept: BTreeSet<u32>,
    /// Changes that did.
    pub(super) refused: u64,
    pub(super) report: StateReport,
}

impl Kept {
    /// All that has changed is in the file before an SMF hears of it.
    pub(crate) fn keep(&mut self, core: &mut Core<Tables>) {
        if self.full_at.is_some_and(|at| at.elapsed() >= RETRY) {
            self.try_again(core);
        }
        let is_old = self.node_at.elapsed() >= NODE_AGE;
        self.put_changes(core, is_old);
    }

    /// Sessions change of which the core has heard that it will hear.
    pub(crate) fn expect(&self, core: &Core<Tables>) {
        core.expected().for_each(|place| self.arena.expect(place));
    }

    pub(super) fn try_again(&mut self, core: &mut Core<Tables>) {
        self.full_at = self.full_at.map(|_| Instant::now());
        let _ = self.arena.back_reserve();
        let unkept = std::mem::take(&mut self.unkept);
        // Of sessions alone: of other places it would say that no session is there.
        for place in unkept.range(..self.node) {
            core.note_change(*place);
        }
        if unkept.contains(&self.pfds) {
            core.note_pfds();
        }
        if unkept.contains(&self.counts_at) {
            self.put_counts();
        }
        self.put_changes(core, unkept.contains(&self.node));
        if self.unkept.is_empty() && !self.arena.is_nearly_full() {
            tracing::info!("{:?}: there is room again", self.files.path);
            self.full_at = None;
            core.set_full(false);
        }
    }

    pub(super) fn put_changes(&mut self, core: &mut Core<Tables>, node: bool) {
        let (mut why, now) = (None, Instant::now());
        let mut of_before = Vec::new();
        core.changes(node, |change| {
            let (place, octets) = match change {
                Change::Session(place, octets) => (place, octets),
                Change::Node(octets) => {
                    self.node_at = now;
                    (self.node, octets)
                }
                Change::Pfds(octets) => (self.pfds, octets),
                Change::Gone(place) => {
                    self.unkept.remove(&place);
                    return remove(&mut self.arena, &self.disk, place);
                }
                Change::Answer(octets) if !self.is_filled => {
                    return of_before.push(octets.to_vec());
                }
                Change::Answer(octets) => return self.put_answer(octets),
            };
            match self.arena.put(place, octets) {
                Ok(()) => {
                    self.unkept.remove(&place);
                    if let Some(disk) = &self.disk {
                        disk.put(place, octets);
                    }
                }
                Err(error) => {
                    // A session is as its SMF has heard, or is not there; who was there before has gone. A node of before has
                    // most associations, and PFDs of before are most of them.
                    if place < self.node {
                        remove(&mut self.arena, &self.disk, place);
                    }
                    self.unkept.insert(place);
                    self.refused += 1;
                    why = Some(error.to_string());
                }
            }
        });
        // Of the process before: its sessions are there, and have taken what room they need.
        of_before.iter().for_each(|octets| self.put_answer(octets));
        if why.is_none() && self.arena.is_nearly_full() {
            why = Some("little room is left".to_owned());
        }
        if let Some(why) = why {
            self.fill_up(core, &why);
        }
    }

    /// Sessions come first: a request that comes again without its answer is judged anew.
    fn put_answer(&mut self, octets: &[u8]) {
        if !self.arena.is_nearly_full() {
            let _ = self.answers.push(octets);
        }
    }

    /// No session begins while there is no room for changes of those that are there.
    fn fill_up(&mut self, core: &mut Core<Tables>, why: &str) {
        if self.full_at.is_none() {
            tracing::error!(
                "{:?}: {why}: no session is established, and changes may be lost with this process",
                self.files.path
            );
            self.full_at = Some(Instant::now());
            core.set_full(true);
        }
    }

    /// Sessions that have been taken over and are in no file any more, if there are some, are not lost unsaid.
    pub(super) fn say_unkept(&self) {
        let sessions = self.unkept.range(..self.node).count();
        if sessions > 0 {
            tracing::error!(
                sessions,
                "{:?}: there is no room for sessions that were taken over: they end with this process, unless there is room by then",
                self.files.path
            );
        }
    }

    /// The file is whole, and a copy of it follows its changes on a disk from now on, if there is to be one. `goes_on`: what is there is
    /// that of the process before.
    pub(super) fn follow(&mut self, goes_on: bool, clock: Clock) {
        let files = &self.files;
        self.disk = files.disk.as_ref().map(|dir| {
            Disk::follow(Plan {
                dir: dir.clone(),
                name: files.name.clone(),
                file: files.path.clone(),
                header: self.arena.header(),
                goes_on,
                clock,
            })
        });
    }

    /// Sessions that this process has found, and what goes on when it ends.
    pub(crate) fn report(&self) -> StateReport {
        StateReport {
            disk: self.disk.as_ref().map(Disk::report),
            ..self.report.clone()
        }
    }

    /// Ports and drops as this process has counted them have counted what there was before it, too.
    pub(crate) fn add_counts(&self, ports: &mut [PortReport], drops: &mut Vec<DropReport>) {
        self.counts.add_to(ports, drops);
    }

    /// Whoever comes next finds the counters, to which tables add that outlive this process.
    pub(super) fn put_counts(&mut self) {
        let octets = serde_json::to_vec(&self.counts).unwrap_or_default();
        if self.arena.put(self.counts_at, &octets).is_err() {
            remove(&mut self.arena, &self.disk, self.counts_at);
            self.unkept.insert(self.counts_at);
        } else if let Some(disk) = &self.disk {
            disk.put(self.counts_at, &octets);
        }
    }

    /// Octets of the file.
    pub(crate) fn fill(&self) -> TableFill {
        let fill = self.arena.fill();
        TableFill {
            table: "state".to_owned(),
            used: fill.used_octets,
            capacity: fill.octets,
            refused: self.refused,
        }
    }

    /// The process ends, and the next one is to go on; at once, if `hands_over`.
    pub(crate) fn leave(mut self, core: &mut Core<Tables>, hands_over: bool) {
        self.put_changes(core, true);
        let tables = core.tables();
        if tables.generation().is_none() {
            for (port, totals) in tables.ports().iter().zip(tables.totals()) {
                self.counts.add(&port.name, &totals);
            }
            self.put_counts();
        }
        if let Some(disk) = self.disk {
            disk.end(if hands_over {
                End::HandOver
            } else {
                End::Leave
            });
        }
    }

    /// Whether the file has all sessions.
    pub(crate) fn is_complete(&self) -> bool {
        self.unkept.is_empty()
    }

    /// The process ends, and so have its sessions.
    pub(crate) fn end(self) {
        if let Some(disk) = self.disk {
            disk.end(End::Remove);
        }
        self.files.remove();
        if let Err(error) = self.files.end_workers() {
            tracing::error!("{error:#}");
        }
    }
}

/// The place has no record, nor has it in the copy.
fn remove(arena: &mut Arena<Words>, disk: &Option<Disk>, place: u32) {
    arena.remove(place);
    if let Some(disk) = disk {
        disk.remove(place);
    }
}
