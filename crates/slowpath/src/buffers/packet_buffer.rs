//! Buffering and release of packets, by a thread of their own or by hand.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use compiled::Buffered;
use tables::pipeline::{BufferedFate, HEADROOM, Pipeline, Placed, Scratch, TAILROOM};
use tables::task::{DOWNLINK, EVENT_HELD, Event, UPLINK};
use tables::{Bystander, DropReason, LeftRing, Verdict, monotonic_ns};

use super::packet::{FRONT, Packet};
use super::queues::{Arrival, BufferBounds, Queues, What, Why};
use super::store::{FormerPackets, Store};
use super::{BufferCounters, BufferParts, Progress, Taken, count};
use crate::buffer_commands::{BufferCommand, BufferCommands};
use crate::buffered_record::{Record, own_of};
use crate::finish::{Finisher, framed};
use crate::outgoing::Outgoing;

/// Packets released before they are sent.
const RELEASE_BATCH: usize = 256;
/// Packets of one PDR released before another one has its turn.
const TURN: usize = 64;
/// Interval at which packets that have been buffered too long are looked for.
pub(super) const EXPIRE_MS: u64 = 250;
/// Memory that is spare is given back when no packet has come for so long.
const SPARE_MS: u64 = 10_000;
/// Sessions that are shown.
const LISTED_MAX: usize = 10_000;

/// Way out for released packets.
pub(super) trait Exit: Send {
    /// Out of an interface, by the worker that took them in, in their order. How many were lost.
    fn frames<'a>(&mut self, by: (u32, u16), frames: impl Iterator<Item = &'a [u8]>) -> u64;

    /// One that was made of a packet that a worker took in.
    fn packet(&mut self, outgoing: Outgoing, worker: u16);
}

/// Buffered packets of all sessions, and the parts that release them.
pub(super) struct PacketBuffer<E> {
    pipeline: Pipeline,
    bystander: Bystander,
    finisher: Finisher,
    pub(super) exit: E,
    queues: Queues,
    counters: Arc<BufferCounters>,
    listener: Box<dyn FnMut(Buffered) + Send>,
    expired_ms: u64,
    spared_ms: u64,
    batch: Batch,
    moved: Vec<Moved>,
    /// Packets of a process before this one, and whoever wants to know when they are in memory.
    pub(super) former: (Option<FormerPackets>, Option<Taken>),
    pub(super) progress: Arc<Progress>,
    scratch: Scratch,
    out: Vec<Outgoing>,
}

impl<E> fmt::Debug for PacketBuffer<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacketBuffer")
            .field("queues", &self.queues)
            .finish_non_exhaustive()
    }
}

/// Packets that are about to leave.
#[derive(Debug, Default)]
struct Batch {
    octets: Vec<u8>,
    /// Port and worker, and where the frame lies in `octets`.
    frames: Vec<((u32, u16), usize, usize)>,
    /// Entries whose packets these are, or were handed on otherwise.
    entries: Vec<u32>,
    /// Packets whose memory is given back when they have left: after a kill in between they are sent once more.
    gone: Vec<Packet>,
}

/// A packet that another PDR buffers again.
struct Moved {
    packet: Packet,
    record: Vec<u8>,
}

/// A packet that is to be buffered.
#[derive(Clone, Copy, Debug)]
enum Arrived {
    /// is_bare: as a user's packet that is made to look as if its data network had sent it.
    Now { is_bare: bool },
    /// It was buffered before, and is in memory, but in no queue.
    Before(Packet),
}

/// A packet that is judged.
#[derive(Clone, Copy, Debug)]
struct Judged {
    port: usize,
    worker: u16,
    /// The entry whose FAR releases it. `None`: as if it came now.
    by: Option<u32>,
    is_bare: bool,
    /// Octets of its frame.
    len: usize,
}

/// Fate of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// The FAR still says BUFF.
    Stays,
    Leaves,
    /// A PDR buffers it: the record for that is in `scratch`.
    IsBuffered,
    /// Nobody's any more.
    IsNobodys,
    /// It is counted.
    IsLost,
}

impl Why {
    fn reason(self) -> DropReason {
        match self {
            Self::Full => DropReason::BufferFull,
            Self::Expired => DropReason::BufferExpired,
            Self::Discarded => DropReason::BufferDiscarded,
        }
    }
}

/// A buffered packet is lost.
fn lose(pipeline: &Pipeline, counters: &BufferCounters, packet: Packet, why: Why) {
    lose_at(pipeline, counters, packet.port, packet.entry, why);
}

fn lose_at(pipeline: &Pipeline, counters: &BufferCounters, port: u16, entry: u32, why: Why) {
    pipeline.count_drops(
        port.into(),
        pipeline.direction(port.into()),
        why.reason(),
        1,
    );
    pipeline.lower_buffered(entry, 1, 1);
    count(&counters.lost, 1);
}

impl<E: Exit> PacketBuffer<E> {
    pub(super) fn new(
        parts: BufferParts,
        (bounds, store): (BufferBounds, Store),
        exit: E,
        counters: Arc<BufferCounters>,
        listener: impl FnMut(Buffered) + Send + 'static,
    ) -> Self {
        Self {
            pipeline: parts.pipeline,
            bystander: parts.bystander,
            finisher: parts.finisher,
            exit,
            queues: Queues::new(bounds, store),
            counters,
            listener: Box::new(listener),
            expired_ms: 0,
            spared_ms: 0,
            batch: Batch::default(),
            moved: Vec::new(),
            former: (None, None),
            progress: Arc::default(),
            scratch: Scratch::new(),
            out: Vec::new(),
        }
    }

    /// Buffer no packet from now on.
    pub(super) fn refuse(&self) {
        self.pipeline.buffer_up_to(0);
    }

    /// Packets are buffered, fragments of some wait, or memory is to be given back.
    pub(super) fn waits(&self) -> bool {
        !self.queues.is_empty() || self.finisher.waits() || self.queues.is_spare()
    }

    /// Packets of a process before this one are in memory from now on.
    fn take_over(&mut self) -> Vec<Packet> {
        let (former, taken) = std::mem::take(&mut self.former);
        let (packets, lost) = match former {
            Some(former) => self.queues.take_over(former),
            None => (Vec::new(), 0),
        };
        if let Some(taken) = taken {
            taken();
        }
        (0..lost).for_each(|_| self.discard_former(0));
        if packets.len() + lost > 0 {
            let packets = packets.len();
            tracing::info!(
                packets,
                lost,
                "packets waited for idle UEs when the process before this one ended"
            );
        }
        packets
    }

    /// Packets of a process before this one go where the rules of now have them go.
    pub(super) fn judge_former(&mut self) {
        let (now_ns, now_ms) = (monotonic_ns(), Self::now_ms());
        for packet in self.take_over() {
            if self.queues.is_old(packet, now_ms) {
                self.queues.give(packet);
                count(&self.counters.taken, 1);
                lose(&self.pipeline, &self.counters, packet, Why::Expired);
                continue;
            }
            let judged = judged(packet);
            let fate = self.judge(judged, now_ns, |queues, room| queues.copy(packet, room));
            match fate {
                Fate::IsBuffered => {
                    let record = self.scratch.event().to_vec();
                    self.take_as(&record, Arrived::Before(packet));
                }
                Fate::Leaves => {
                    count(&self.counters.taken, 1);
                    self.leaves(packet);
                }
                Fate::Stays | Fate::IsNobodys | Fate::IsLost => {
                    self.queues.give(packet);
                    self.lose_former(packet.port, fate);
                }
            }
            self.flush_some();
        }
        self.flush();
        self.progress.has_judged.store(true, Ordering::Release);
    }

    /// Packets in rings of before go likewise, and from then on those of this process' ring are taken.
    pub(super) fn begin(&mut self, left: &[LeftRing]) {
        left.iter().for_each(|left| self.judge_left(left));
        self.progress.has_begun.store(true, Ordering::Release);
    }

    /// Packets that programs of before handed over, and nobody took, go likewise.
    fn judge_left(&mut self, left: &LeftRing) {
        match left.read_all(|record| self.judge_left_one(record)) {
            Ok(read) => {
                (0..read.lost).for_each(|_| self.discard_former(0));
            }
            Err(error) => {
                tracing::error!(%error, "packets that came for idle UEs before this start are lost");
            }
        }
        self.flush();
    }

    fn judge_left_one(&mut self, record: &[u8]) {
        let event = Event::parse(record).filter(|event| event.kind == EVENT_HELD);
        let parsed = event.and_then(|event| Some((event, Record::parse(event.data)?)));
        let Some((Event { port, worker, .. }, taken)) = parsed else {
            return;
        };
        let made;
        let frame = match taken.is_bare() {
            true => {
                made = framed(taken.frame);
                &made[..]
            }
            false => taken.frame,
        };
        let is_bare = taken.is_bare();
        let judged = Judged {
            port: port as usize,
            worker,
            by: None,
            is_bare,
            len: frame.len(),
        };
        let fill = |_: &Queues, room: &mut [u8]| room[FRONT..].copy_from_slice(frame);
        match self.judge(judged, monotonic_ns(), fill) {
            Fate::Leaves => {
                count(&self.counters.taken, 1);
                self.batch.entries.push(u32::MAX);
            }
            Fate::IsBuffered => {
                let record = self.scratch.event().to_vec();
                self.take_as(&record, Arrived::Now { is_bare });
            }
            fate => self.lose_former(port as u16, fate),
        }
        self.flush_some();
    }

    /// A packet in memory is in the batch, or sent.
    fn leaves(&mut self, packet: Packet) {
        self.batch.entries.push(packet.entry);
        self.batch.gone.push(packet);
    }

    /// No entry of these tables counts it.
    fn lose_former(&self, port: u16, fate: Fate) {
        if fate == Fate::IsLost {
            count(&self.counters.taken, 1);
            count(&self.counters.lost, 1);
        } else {
            self.discard_former(port);
        }
    }

    fn discard_former(&self, port: u16) {
        let (pipeline, counters) = (&self.pipeline, &self.counters);
        count(&counters.taken, 1);
        lose_at(pipeline, counters, port, u32::MAX, Why::Discarded);
    }

    /// Some may leave.
    pub(super) fn has_ready(&self) -> bool {
        self.queues.has_ready()
    }

    fn now_ms() -> u64 {
        monotonic_ns() / 1_000_000
    }

    /// A record of the ring.
    pub(super) fn take(&mut self, record: &[u8]) {
        self.take_as(record, Arrived::Now { is_bare: false });
    }

    fn take_as(&mut self, record: &[u8], arrived: Arrived) {
        let (waited, was_bare) = match arrived {
            Arrived::Now { is_bare } => (None, is_bare),
            Arrived::Before(packet) => (Some(packet), packet.is_bare),
        };
        let event = Event::parse(record).filter(|event| event.kind == EVENT_HELD);
        let parsed = event.and_then(|event| Some((event, Record::parse(event.data)?)));
        let Some((Event { port, worker, .. }, taken)) = parsed else {
            tracing::error!("a record of the ring of packets that wait is malformed");
            return;
        };
        count(&self.counters.taken, 1);
        let Some(seid) = self.pipeline.owner_of(taken.entry) else {
            let why = Why::Discarded;
            waited
                .into_iter()
                .for_each(|packet| self.queues.give(packet));
            return lose_at(
                &self.pipeline,
                &self.counters,
                port as u16,
                taken.entry,
                why,
            );
        };
        self.queues
            .follow(seid, |entry| self.pipeline.present(entry));
        let by = self.pipeline.present(taken.entry);
        let action = self.pipeline.action(by);
        let made;
        let (port, frame) = if taken.is_bare() {
            made = framed(taken.frame);
            let port = self.pipeline.port_of_entry(taken.entry);
            (port.unwrap_or(port_none()), &made[..])
        } else {
            (port as usize, taken.frame)
        };
        let arrival = Arrival {
            seid,
            pdr: self.pipeline.pdr_of(taken.entry),
            entry: taken.entry,
            by,
            port: port as u16,
            worker,
            is_bare: taken.is_bare() || was_bare,
            tos: taken.tos(),
            // Or its PDR went meanwhile, and it is judged anew.
            follows: matches!(action, BufferedFate::ReleasedFirst | BufferedFate::Orphaned),
            what: match waited {
                Some(packet) if packet.is_bare || !taken.is_bare() => What::Waited(packet),
                // Of a frame the user's packet alone is left.
                waited => What::Frame(frame, waited.map(|packet| packet.came)),
            },
        };
        let (pipeline, counters) = (&self.pipeline, &self.counters);
        let now_ms = Self::now_ms();
        let put = self.queues.put(now_ms, &arrival, |packet, why| {
            lose(pipeline, counters, packet, why);
        });
        if let Err(why) = put {
            lose_at(pipeline, counters, arrival.port, taken.entry, why);
        }
        if let Some(packet) = waited
            && (put.is_err() || matches!(arrival.what, What::Frame(..)))
        {
            self.queues.give(packet);
        }
        let is_news = put.unwrap_or_else(|_| {
            !arrival.follows && self.queues.tell_lost(now_ms, seid, arrival.pdr)
        });
        if is_news {
            (self.listener)(Buffered {
                seid,
                pdr: arrival.pdr,
                tos: arrival.tos,
                waits: put.is_ok(),
            });
        }
        if put.is_ok() && action != BufferedFate::Stays {
            self.queues.look(seid);
        }
    }

    pub(super) fn execute(&mut self, command: BufferCommand, commands: &BufferCommands) {
        let (pipeline, counters) = (&self.pipeline, &self.counters);
        let lose = |packet, why| lose(pipeline, counters, packet, why);
        match command {
            BufferCommand::Release(seid) => {
                self.queues.forget_told(seid);
                self.queues.look(seid);
            }
            BufferCommand::Discard(seid) => self.queues.discard(seid, lose),
            BufferCommand::Tell(seid) => {
                self.queues.tell_anew(seid);
                self.queues.look(seid);
            }
            BufferCommand::Limit(seid, pdr, limits) => {
                self.queues.limit(Self::now_ms(), seid, pdr, limits, lose);
            }
            BufferCommand::Packet(record) => {
                commands.packet_has_come();
                self.take(&record);
            }
            BufferCommand::Judge => self.judge_former(),
            BufferCommand::Begin(left) => self.begin(&left),
            BufferCommand::List(reply) => {
                let _ = reply.send(self.queues.list(Self::now_ms(), LISTED_MAX));
            }
        }
    }

    /// Release what may leave, a turn for each PDR of each session that is to be looked at.
    pub(super) fn release(&mut self) {
        let mut sessions = self.queues.fill()[0].max(1);
        while sessions > 0
            && let Some(seid) = self.queues.next_ready()
        {
            sessions -= 1;
            self.queues
                .follow(seid, |entry| self.pipeline.present(entry));
            let mut more = false;
            for queue in 0..self.queues.queues_of(seid) {
                more |= self.release_queue(seid, queue);
            }
            self.queues.tidy(seid);
            if more {
                self.queues.look(seid);
            }
            for Moved { packet, record } in std::mem::take(&mut self.moved) {
                self.take_as(&record, Arrived::Before(packet));
            }
            self.flush_some();
        }
        self.flush();
    }

    /// Whether more may leave.
    fn release_queue(&mut self, seid: u64, queue: usize) -> bool {
        let now_ns = monotonic_ns();
        for _ in 0..TURN {
            let Some((packet, by)) = self.queues.front(seid, queue) else {
                return false;
            };
            let fate = self.try_release(packet, by, now_ns);
            match fate {
                Fate::Stays => {
                    if let Some(pdr) = self.queues.tell(seid, queue) {
                        let (tos, waits) = (packet.tos, true);
                        (self.listener)(Buffered {
                            seid,
                            pdr,
                            tos,
                            waits,
                        });
                    }
                    return false;
                }
                Fate::Leaves => self.leaves(packet),
                Fate::IsBuffered => {
                    self.batch.entries.push(packet.entry);
                    let record = self.scratch.event().to_vec();
                    self.moved.push(Moved { packet, record });
                }
                Fate::IsNobodys => {
                    self.queues.give(packet);
                    lose(&self.pipeline, &self.counters, packet, Why::Discarded);
                }
                Fate::IsLost => {
                    self.queues.give(packet);
                    count(&self.counters.lost, 1);
                    self.pipeline.lower_buffered(packet.entry, 1, 0);
                }
            }
            self.queues.pop(seid, queue);
        }
        true
    }

    /// Release a packet by the FAR of this entry; if its PDR is gone, as if the packet came now.
    fn try_release(&mut self, packet: Packet, by: u32, now_ns: u64) -> Fate {
        // Looked at for each: what charged the meters of an entry that another one has replaced would leave ahead of what that
        // one buffers.
        let by = self.pipeline.present(by);
        let by = match self.pipeline.action(by) {
            BufferedFate::Stays => return Fate::Stays,
            BufferedFate::Orphaned => None,
            BufferedFate::Released | BufferedFate::ReleasedFirst => Some(by),
        };
        let judged = Judged {
            by,
            ..judged(packet)
        };
        self.judge(judged, now_ns, |queues, room| queues.copy(packet, room))
    }

    /// Have the pipeline say what becomes of a packet. What leaves is in the batch, or sent.
    ///
    /// fill: writes its frame, behind [`FRONT`] octets that are of no use
    fn judge(
        &mut self,
        judged: Judged,
        now_ns: u64,
        fill: impl FnOnce(&Queues, &mut [u8]),
    ) -> Fate {
        let start = self.batch.octets.len();
        let room = HEADROOM + judged.len + TAILROOM;
        self.batch.octets.resize(start + room, 0);
        let buf = &mut self.batch.octets[start..];
        fill(
            &self.queues,
            &mut buf[HEADROOM - FRONT..HEADROOM + judged.len],
        );
        let own = if judged.is_bare {
            own_of(&buf[HEADROOM..HEADROOM + judged.len])
        } else {
            None
        };
        let mut frame = Placed {
            buf,
            offset: HEADROOM as u32,
            len: judged.len as u32,
        };
        let verdict = {
            let _looking = self.bystander.look();
            let came = (judged.port, judged.worker);
            let (by, scratch) = (judged.by, &mut self.scratch);
            self.pipeline
                .release(came, by, own, &mut frame, now_ns, scratch)
        };
        let (at, len) = (start + frame.offset as usize, frame.len as usize);
        match verdict {
            Verdict::Redirect(port) | Verdict::Later { port, .. } => {
                let by = (port, judged.worker);
                self.batch.frames.push((by, at, len));
                return Fate::Leaves;
            }
            Verdict::Slow if !self.scratch.event().is_empty() && !self.is_buffered_again() => {
                self.send_otherwise(now_ns);
                return Fate::Leaves;
            }
            _ => self.batch.octets.truncate(start),
        }
        match verdict {
            // Nothing was handed over: it still waits.
            Verdict::Slow if self.scratch.event().is_empty() => Fate::Stays,
            Verdict::Slow => Fate::IsBuffered,
            Verdict::Drop(_) => {
                // Its sender may have to hear of it.
                if !self.scratch.event().is_empty() {
                    self.send_otherwise(now_ns);
                }
                Fate::IsLost
            }
            _ => Fate::IsNobodys,
        }
    }

    /// Another PDR has taken the packet, and buffers it.
    fn is_buffered_again(&self) -> bool {
        Event::parse(self.scratch.event()).is_some_and(|event| event.kind == EVENT_HELD)
    }

    /// Send what the pipeline alone cannot finish, as it would have gone; behind what has been released before.
    fn send_otherwise(&mut self, now_ns: u64) {
        self.send_frames();
        let event = self.scratch.event();
        if self.finisher.finish(event, now_ns, &mut self.out).is_err() {
            tracing::error!("a packet that has waited cannot be finished");
        }
        let worker = Event::parse(event).map_or(0, |event| event.worker);
        for outgoing in self.out.drain(..) {
            self.exit.packet(outgoing, worker);
        }
    }

    fn send_frames(&mut self) {
        let Batch { octets, frames, .. } = &mut self.batch;
        for run in frames.chunk_by(|a, b| a.0 == b.0) {
            let (port, worker) = run[0].0;
            let parts = run.iter().map(|&(_, at, len)| &octets[at..at + len]);
            let by = (self.pipeline.ifindex(port), worker);
            let lost = self.exit.frames(by, parts);
            if lost > 0 {
                let reason = DropReason::Redirect;
                let direction = if self.pipeline.is_access(port) {
                    DOWNLINK
                } else {
                    UPLINK
                };
                self.pipeline.count_drops(port, direction, reason, lost);
            }
        }
        frames.clear();
    }

    fn flush_some(&mut self) {
        if self.batch.entries.len() >= RELEASE_BATCH {
            self.flush();
        }
    }

    /// Send what was released, and only then say that it is no longer buffered.
    fn flush(&mut self) {
        self.send_frames();
        let Batch {
            octets,
            entries,
            gone,
            ..
        } = &mut self.batch;
        octets.clear();
        count(&self.counters.released, entries.len() as u64);
        for run in entries.chunk_by(|a, b| a == b) {
            self.pipeline.lower_buffered(run[0], run.len() as u64, 0);
        }
        entries.clear();
        gone.drain(..).for_each(|packet| self.queues.give(packet));
    }

    pub(super) fn expire(&mut self) {
        let now_ms = Self::now_ms();
        if now_ms.saturating_sub(self.expired_ms) < EXPIRE_MS {
            return;
        }
        self.expired_ms = now_ms;
        let (pipeline, counters) = (&self.pipeline, &self.counters);
        self.queues
            .expire(now_ms, |packet, why| lose(pipeline, counters, packet, why));
        self.finisher.expire(monotonic_ns());
        if now_ms.saturating_sub(self.spared_ms) >= SPARE_MS {
            self.spared_ms = now_ms;
            self.queues.give_back();
        }
    }

    pub(super) fn show(&self) {
        let [sessions, packets, bytes] = self.queues.fill();
        for (shown, now) in [
            (&self.counters.sessions, sessions),
            (&self.counters.packets, packets),
            (&self.counters.bytes, bytes),
        ] {
            shown.store(now as u64, Ordering::Relaxed);
        }
    }
}

/// A packet in memory.
fn judged(packet: Packet) -> Judged {
    Judged {
        port: packet.port.into(),
        worker: packet.worker,
        by: None,
        is_bare: packet.is_bare,
        len: packet.len(),
    }
}

/// A port that is none: its packets are nobody's.
fn port_none() -> usize {
    usize::from(u16::MAX)
}
