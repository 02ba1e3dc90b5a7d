//! A process that is no more, as its file has it.

use std::collections::HashMap;
use std::io;
use std::sync::mpsc::sync_channel;
use std::thread;

use anyhow::Result;
use session::{Core, Outbox, Record, RecordError, Time};
use tables::{GoingOn, Left, LeftRequest, Pins, SetupError, Tables};

use super::counts::Counts;
use super::files::{Former, Header, LOST_SAID};

/// Records that are read together, and how many times that many may wait.
const BATCH: usize = 256;
const BATCHES: usize = 16;
/// N4 is attended to behind so many records.
const ATTENDED: usize = 64;

impl Former {
    /// Its tables; `None`: they ended with it.
    /// `are_met`: workers of it still run packets.
    pub(super) fn left(&self, are_met: bool) -> Result<Option<Left>, SetupError> {
        let Header {
            bpffs,
            node_id,
            tables,
            in_files,
            ..
        } = &self.header;
        if *in_files {
            return Left::in_files(&self.front, *tables, are_met).map(Some);
        }
        let left = bpffs
            .as_ref()
            .map(|bpffs| Pins::left(bpffs, node_id, *tables));
        left.transpose()
    }

    /// It and its tables, when no packet meets them any more.
    pub(super) fn with_tables(self) -> (Self, Result<Option<Left>, SetupError>) {
        let left = self.left(false);
        (self, left)
    }

    /// Its sessions come to be in a core that has resumed its node. Returns the number of those that could not be taken in. `attend`: is
    /// called behind some of them, again and again.
    pub(super) fn enter(
        &self,
        now: Time,
        served: &mut ServedLast,
        (core, out): (&mut Core<Tables>, &mut Outbox),
        mut attend: impl FnMut(&mut Core<Tables>),
    ) -> Result<usize> {
        let (mut lost, mut told, mut number) = (0, 0, 0usize);
        self.sessions(
            |_| true,
            |place, record| {
                if number.is_multiple_of(ATTENDED) {
                    attend(core);
                }
                number += 1;
                let entered = record.map_err(anyhow::Error::from);
                let entered = entered.and_then(|record| {
                    let until = (record.seid(), record.served());
                    core.adopt(now, record, out)?;
                    served.is_in(until);
                    Ok(())
                });
                if let Err(error) = entered {
                    lost += 1;
                    if lost <= LOST_SAID {
                        tracing::error!(place, "a session is lost: {error:#}");
                    }
                    let octets = self.arena.get(place);
                    let of_smf = octets.and_then(|octets| self.node.lost_session(&octets));
                    let is_told = of_smf.is_some_and(|of| core.tell_lost(now, &of, out));
                    told += usize::from(is_told);
                }
            },
        )?;
        if lost > 0 {
            tracing::error!(
                sessions = lost,
                told,
                "sessions of the process before this one cannot be taken in; SMFs with EPFAR are told, others by their next requests"
            );
        }
        Ok(lost)
    }

    /// Sessions that are taken in from now on go on with the meters of its tables, unless they ended with it. Whether there are some.
    pub(super) fn offer_meters(&self, core: &mut Core<Tables>) -> bool {
        // Tables that are gone are missed when it comes to what they have counted, and said to be.
        let are_met = core.tables().going_on() == GoingOn::Already;
        let left = self.left(are_met).ok().flatten();
        let is_there = left.is_some();
        if let Some(left) = left {
            core.tables_mut().go_on_with(left.meters());
        }
        is_there
    }

    /// Packets have met tables of this start, too: sessions that were taken in go on with their meters there.
    pub(super) fn follow_meters(
        &self,
        core: &mut Core<Tables>,
        attend: &mut impl FnMut(&Core<Tables>),
    ) -> io::Result<()> {
        if !self.offer_meters(core) {
            return Ok(());
        }
        let mut number = 0usize;
        self.sessions(
            |_| true,
            |_, record| {
                if number.is_multiple_of(ATTENDED) {
                    attend(core);
                }
                number += 1;
                if let Ok(record) = record {
                    core.follow_meters(&record);
                }
            },
        )
    }

    /// Requests that it has answered get their answers when they come again, as far as sessions are as these say.
    pub(super) fn enter_answers(&self, now: Time, core: &mut Core<Tables>) {
        let answers = self.answers.iter().flat_map(|answers| answers.records());
        let answers: Vec<_> = answers.collect();
        let octets = answers.iter().map(Vec::as_slice);
        let unread = core.resume_answers(now, &self.node, octets);
        if unread > 0 {
            tracing::error!(
                unread,
                "answers cannot be read: their requests are judged anew"
            );
        }
    }

    /// Requests that a program has answered for it last.
    pub(super) fn served(&self) -> ServedLast {
        let Header {
            bpffs,
            node_id,
            tables,
            in_files,
            ..
        } = &self.header;
        let mut served = ServedLast::default();
        let bpffs = bpffs.as_ref().filter(|_| *tables > 0 && !in_files);
        let left = bpffs.map(|bpffs| Pins::left_requests(bpffs, node_id, *tables));
        match left.transpose().map(Option::flatten) {
            Ok(None) => {}
            Ok(Some(mut left)) => {
                served.requests.extend(&mut left);
                if left.strange() > 0 {
                    let requests = left.strange();
                    tracing::error!(requests, "what a program has answered last cannot be read");
                }
            }
            Err(error) => {
                tracing::error!(%error, "what a program may have answered last, with n4.fast_path = \"data\", is lost");
            }
        }
        let seids = served.requests.iter().map(|request| (request.seid, None));
        served.until.extend(seids);
        served
    }

    /// Adds what its tables have counted and its sessions' usage does not have.
    pub(super) fn count(
        &self,
        left: &Left,
        now: Time,
        core: &mut Core<Tables>,
        out: &mut Outbox,
        attend: &mut impl FnMut(&Core<Tables>),
    ) -> io::Result<()> {
        let mut number = 0usize;
        self.sessions(Record::is_counted, |_, record| {
            if number.is_multiple_of(ATTENDED) {
                attend(core);
            }
            number += 1;
            // One that cannot be read has been said to be lost.
            let Ok(record) = record else { return };
            let uncounted = record.uncounted(self.is_unsettled, |entry| left.counted(entry));
            if !uncounted.is_nothing() {
                core.count(now, record.seid(), &uncounted, out);
            }
        })
    }

    /// All sessions whose octets are meant, each with its place. They are read by another thread while the caller does what it
    /// does with them.
    fn sessions(
        &self,
        is_meant: impl Fn(&[u8]) -> bool + Send,
        mut each: impl FnMut(u32, Result<Record, RecordError>),
    ) -> io::Result<()> {
        thread::scope(|scope| {
            let (sender, batches) = sync_channel(BATCHES);
            let reader = thread::Builder::new().name("records".into());
            reader.spawn_scoped(scope, move || {
                let all = self.arena.records();
                let meant =
                    all.filter(|(place, octets)| *place < self.header.node && is_meant(octets));
                let mut read = meant.map(|(place, octets)| (place, self.node.session(&octets)));
                loop {
                    let batch: Vec<_> = read.by_ref().take(BATCH).collect();
                    if batch.is_empty() || sender.send(batch).is_err() {
                        return;
                    }
                }
            })?;
            for (place, record) in batches.into_iter().flatten() {
                each(place, record);
            }
            Ok(())
        })
    }
}

/// Requests that a program has answered at the end of a process, and how far sessions know them.
#[derive(Default)]
pub(super) struct ServedLast {
    requests: Vec<LeftRequest>,
    /// Of each session that there are some of: where the first begins that is not in its record. `None`: it is not there.
    until: HashMap<u64, Option<u64>>,
}

impl ServedLast {
    /// A session is there, whose record has all in front of this.
    fn is_in(&mut self, (seid, until): (u64, u64)) {
        if let Some(known) = self.until.get_mut(&seid) {
            *known = Some(until);
        }
    }

    /// Requests that sessions do not know, in their order.
    fn unknown(&self) -> impl Iterator<Item = &LeftRequest> {
        let is_unknown = |request: &&LeftRequest| {
            let until = self.until.get(&request.seid).copied().flatten();
            until.is_some_and(|until| request.position >= until)
        };
        self.requests.iter().filter(is_unknown)
    }

    /// Requests that are not in records are carried out by a core that has taken these in.
    pub(super) fn enter(
        self,
        now: Time,
        core: &mut Core<Tables>,
        out: &mut Outbox,
        attend: &mut impl FnMut(&Core<Tables>),
    ) {
        let (mut done, mut refused) = (0, 0);
        for request in self.unknown() {
            match core.carry_out_again(now, request.from, &request.octets, out) {
                true => done += 1,
                false => refused += 1,
            }
            if (done + refused) % ATTENDED == 0 {
                attend(core);
            }
        }
        if done > 0 {
            tracing::info!(
                requests = done,
                "what a program has answered at the end of the process before this one is carried out"
            );
        }
        if refused > 0 {
            tracing::error!(
                requests = refused,
                "what a program has answered at the end of the process before this one cannot be carried out: SMFs have other rules"
            );
        }
    }
}

/// Counts of tables of before are added to the usage of sessions. No packet meets those any more. Returns counters of ports.
pub(super) fn count_before(
    before: &[(Former, Result<Option<Left>, SetupError>)],
    now: Time,
    core: &mut Core<Tables>,
    out: &mut Outbox,
    mut attend: impl FnMut(&Core<Tables>),
) -> io::Result<Counts> {
    let (mut counts, mut is_whole) = (Counts::default(), true);
    if let Some((first, _)) = before.first() {
        let octets = first.arena.get(first.header.counts());
        let read = octets.and_then(|octets| serde_json::from_slice(&octets).ok());
        // A process whose tables end with it leaves them when it stops.
        is_whole = read.is_some() || first.header.tables == 0;
        counts = read.unwrap_or_default();
    }
    for (former, left) in before {
        match left {
            Ok(Some(left)) => {
                let packets = left.unmanaged();
                if packets > 0 {
                    tracing::warn!(packets, "packets dropped as unmanaged before this start");
                }
                for (number, name) in former.header.ports.iter().enumerate() {
                    counts.add(name, &left.port(number));
                }
                former.count(left, now, core, out, &mut attend)?;
            }
            // It has left its counts, if it had the time.
            Ok(None) => {}
            Err(error) => {
                is_whole = false;
                tracing::error!(
                    %error,
                    "tables of a process before this one are gone: what they have counted since it ended is lost"
                );
            }
        }
    }
    // A reader knows counters that begin anew, and would take one that has lost a part for such a one.
    Ok(if is_whole { counts } else { Counts::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_knows_what_lies_in_front_of_what_its_record_says() {
        let request = |(position, seid)| LeftRequest {
            position,
            seid,
            from: ([192, 0, 2, 1], 8805).into(),
            octets: vec![position as u8],
        };
        let all = [(0, 1), (400, 2), (800, 1), (1200, 3), (1600, 1), (2000, 2)];
        let mut served = ServedLast {
            requests: all.map(request).into(),
            until: all.map(|(_, seid)| (seid, None)).into(),
        };
        // One that has changed, one that has not since the ring began, one of which the program has told nothing.
        for session in [(1, 1600), (2, 0), (9, 0)] {
            served.is_in(session);
        }
        let unknown: Vec<_> = served.unknown().map(|of| (of.position, of.seid)).collect();
        assert_eq!(
            unknown,
            [(400, 2), (1600, 1), (2000, 2)],
            "session 3 is gone"
        );
    }
}
