//! Buffering and release of packets, by a thread of their own or by hand.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use compiled::Buffered;
use tables::pipeline::{BufferedFate, HEADROOM, Pipeline, Placed, Scratch, TAILROOM};
use tables::task::{DOWNLINK, EVENT_HELD, Event, UPLINK};
use tables::{Bystander, DropReason, Verdict, monotonic_ns};

use super::queues::{Arrival, BufferBounds, Came, Packet, Queues, Why};
use super::{BufferCounters, BufferParts, count};
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
/// Sessions that are shown.
const LISTED_MAX: usize = 10_000;

/// Way out for released packets.
pub(super) trait Exit {
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
    batch: Batch,
    moved: Vec<Moved>,
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
}

/// A packet that another PDR buffers again.
struct Moved {
    came: Came,
    is_bare: bool,
    record: Vec<u8>,
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
        bounds: BufferBounds,
        exit: E,
        counters: Arc<BufferCounters>,
        listener: impl FnMut(Buffered) + Send + 'static,
    ) -> Self {
        Self {
            pipeline: parts.pipeline,
            bystander: parts.bystander,
            finisher: parts.finisher,
            exit,
            queues: Queues::new(bounds),
            counters,
            listener: Box::new(listener),
            expired_ms: 0,
            batch: Batch::default(),
            moved: Vec::new(),
            scratch: Scratch::new(),
            out: Vec::new(),
        }
    }

    /// Buffer no packet from now on.
    pub(super) fn refuse(&self) {
        self.pipeline.buffer_up_to(0);
    }

    /// Packets are buffered, or fragments of some wait.
    pub(super) fn waits(&self) -> bool {
        !self.queues.is_empty() || self.finisher.waits()
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
        self.take_as(record, None, false);
    }

    /// came: it was buffered before; was_bare: then as a user's packet that is made to look as if its data network had sent it.
    fn take_as(&mut self, record: &[u8], came: Option<Came>, was_bare: bool) {
        let event = Event::parse(record).filter(|event| event.kind == EVENT_HELD);
        let parsed = event.and_then(|event| Some((event, Record::parse(event.data)?)));
        let Some((Event { port, worker, .. }, taken)) = parsed else {
            tracing::error!("a record of the ring of packets that wait is malformed");
            return;
        };
        count(&self.counters.taken, 1);
        let Some(seid) = self.pipeline.owner_of(taken.entry) else {
            let why = Why::Discarded;
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
            came,
            frame,
        };
        let (pipeline, counters) = (&self.pipeline, &self.counters);
        let now_ms = Self::now_ms();
        let put = self.queues.put(now_ms, &arrival, |packet, why| {
            lose(pipeline, counters, packet, why);
        });
        if let Err(why) = put {
            lose_at(pipeline, counters, arrival.port, taken.entry, why);
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
            for packet in std::mem::take(&mut self.moved) {
                self.take_as(&packet.record, Some(packet.came), packet.is_bare);
            }
            if self.batch.entries.len() >= RELEASE_BATCH {
                self.flush();
            }
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
            if !self.try_release(packet, by, now_ns) {
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
            self.queues.pop(seid, queue);
        }
        true
    }

    /// Release a packet by the FAR of this entry; if its PDR is gone, as if the packet came now. `false`: the FAR still says BUFF.
    fn try_release(&mut self, packet: Packet, by: u32, now_ns: u64) -> bool {
        // Looked at for each: what charged the meters of an entry that another one has replaced would leave ahead of what that
        // one buffers.
        let by = self.pipeline.present(by);
        let by = match self.pipeline.action(by) {
            BufferedFate::Stays => return false,
            BufferedFate::Orphaned => None,
            BufferedFate::Released | BufferedFate::ReleasedFirst => Some(by),
        };
        let start = self.batch.octets.len();
        let room = HEADROOM + packet.len() + TAILROOM;
        self.batch.octets.resize(start + room, 0);
        let buf = &mut self.batch.octets[start..];
        self.queues
            .copy(packet, &mut buf[HEADROOM..HEADROOM + packet.len()]);
        let own = if packet.is_bare {
            own_of(&buf[HEADROOM..HEADROOM + packet.len()])
        } else {
            None
        };
        let mut frame = Placed {
            buf,
            offset: HEADROOM as u32,
            len: packet.len() as u32,
        };
        let verdict = {
            let _looking = self.bystander.look();
            let came = (packet.port.into(), packet.worker);
            self.pipeline
                .release(came, by, own, &mut frame, now_ns, &mut self.scratch)
        };
        let (at, len) = (start + frame.offset as usize, frame.len as usize);
        match verdict {
            Verdict::Redirect(port) | Verdict::Later { port, .. } => {
                let by = (port, packet.worker);
                self.batch.frames.push((by, at, len));
            }
            // Nothing was handed over: it still waits.
            Verdict::Slow if self.scratch.event().is_empty() => {
                self.batch.octets.truncate(start);
                return false;
            }
            Verdict::Slow if self.is_buffered_again() => self.moved.push(Moved {
                came: packet.came,
                is_bare: packet.is_bare,
                record: self.scratch.event().to_vec(),
            }),
            Verdict::Slow => self.send_otherwise(now_ns),
            // Nobody's any more.
            Verdict::Pass | Verdict::Answer => {
                self.batch.octets.truncate(start);
                lose(&self.pipeline, &self.counters, packet, Why::Discarded);
                return true;
            }
            Verdict::Drop(_) => {
                self.batch.octets.truncate(start);
                // Its sender may have to hear of it.
                if !self.scratch.event().is_empty() {
                    self.send_otherwise(now_ns);
                }
                count(&self.counters.lost, 1);
                self.pipeline.lower_buffered(packet.entry, 1, 0);
                return true;
            }
        }
        self.batch.entries.push(packet.entry);
        true
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

    /// Send what was released, and only then say that it is no longer buffered.
    fn flush(&mut self) {
        self.send_frames();
        let Batch {
            octets, entries, ..
        } = &mut self.batch;
        octets.clear();
        count(&self.counters.released, entries.len() as u64);
        for run in entries.chunk_by(|a, b| a == b) {
            self.pipeline.lower_buffered(run[0], run.len() as u64, 0);
        }
        entries.clear();
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

/// A port that is none: its packets are nobody's.
fn port_none() -> usize {
    usize::from(u16::MAX)
}
