//! Packets that the fast path cannot finish (`TP_EVENT_PACKET`): what is missing is done here, then the same
//! pipeline runs over the same tables and says where they go.

use std::hash::{BuildHasher, RandomState};
use std::net::Ipv6Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use compiled::NiId;
use tables::pipeline::{Pipeline, Run};
use tables::task::{
    DOWNLINK, EVENT_COPY, EVENT_GTPU, EVENT_HELD, EVENT_LATER, EVENT_PACKET, EVENT_SEND, Event,
    Task, UPLINK, what,
};
use tables::{Bystander, DropReason, Egress, Verdict};

use crate::advertise;
use crate::buffer_commands::BufferCommands;
use crate::buffered_record;
use crate::copies;
use crate::cut;
use crate::followers::{self, Followers};
use crate::gtpu;
use crate::icmp::{self, Cause};
use crate::outer::{self, frame_of, l3_of, read_fragment};
use crate::outgoing::Outgoing;
use crate::reassembly::{Bounds, Loss, Losses, Reassembler};
use crate::routers::Routers;

/// A GTP-U header is repeated in front of each fragment. A longer one, whose extension headers its sender chose,
/// would make many packets out of one.
const REPEATED_MAX: u16 = 64;

/// A packet that finishing makes asks for more at most so often: one put together out of fragments may
/// have to be cut again, or tell its sender that it is too long.
const ROUNDS: usize = 4;

/// A record that this process should not have been given: a fault of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// Counters of tasks, beside packets that go on as they would have gone.
#[derive(Debug, Default)]
pub struct Finished {
    expired: AtomicU64,
    too_long: AtomicU64,
    untold: AtomicU64,
    fragments: AtomicU64,
    advertisements: AtomicU64,
    extensions: AtomicU64,
}

impl Finished {
    /// ICMP errors: TTL or hop limit ran out.
    pub fn expired(&self) -> u64 {
        self.expired.load(Ordering::Relaxed)
    }

    /// ICMP errors: the packet was too long.
    pub fn too_long(&self) -> u64 {
        self.too_long.load(Ordering::Relaxed)
    }

    /// ICMP errors that may not be sent, or lead nowhere.
    pub fn untold(&self) -> u64 {
        self.untold.load(Ordering::Relaxed)
    }

    /// Router Advertisements to UEs.
    pub fn advertisements(&self) -> u64 {
        self.advertisements.load(Ordering::Relaxed)
    }

    /// Supported Extension Headers Notifications.
    pub fn extensions(&self) -> u64 {
        self.extensions.load(Ordering::Relaxed)
    }

    /// Fragments of users' packets that were cut.
    pub fn fragments(&self) -> u64 {
        self.fragments.load(Ordering::Relaxed)
    }
}

fn count(counter: &AtomicU64, by: usize) {
    counter.fetch_add(by as u64, Ordering::Relaxed);
}

/// Finishes packets. Belongs to one thread; bounded in memory, never waits.
#[derive(Debug)]
pub struct Finisher {
    pipeline: Pipeline,
    bystander: Bystander,
    routers: Routers,
    outer: Reassembler,
    inner: Followers,
    losses: Losses,
    messages: Vec<Vec<u8>>,
    /// Of the last packet that was cut.
    identification: u16,
    /// The worker that took in the packet under way.
    worker: u16,
    finished: Arc<Finished>,
    buffers: Arc<BufferCommands>,
}

impl Finisher {
    pub(crate) fn new(
        pipeline: Pipeline,
        bystander: Bystander,
        routers: Routers,
        buffers: Arc<BufferCommands>,
    ) -> Self {
        Self {
            pipeline,
            bystander,
            routers,
            buffers,
            outer: Reassembler::new(Bounds::default()),
            inner: Followers::new(followers::Bounds::default()),
            losses: Losses::new(),
            messages: Vec::new(),
            identification: RandomState::new().hash_one(0) as u16,
            worker: 0,
            finished: Arc::default(),
        }
    }

    /// One record of the event ring; what is to be sent goes to `out`.
    ///
    /// `now_ns`: as packets have it, `CLOCK_MONOTONIC`.
    pub fn finish(
        &mut self,
        record: &[u8],
        now_ns: u64,
        out: &mut Vec<Outgoing>,
    ) -> Result<(), Malformed> {
        self.worker = Event::parse(record).map_or(0, |event| event.worker);
        let done = self.take(record, now_ns, ROUNDS, out);
        self.count_losses();
        done
    }

    /// Counters, shared with those who show them.
    pub fn finished(&self) -> Arc<Finished> {
        Arc::clone(&self.finished)
    }

    /// GTP-U messages for the control plane that came since they were last taken, each from its IP
    /// header on.
    pub fn messages(&mut self) -> impl Iterator<Item = Vec<u8>> + '_ {
        self.messages.drain(..)
    }

    /// Give up what has waited too long. Call it now and then while [`Self::waits`].
    pub fn expire(&mut self, now_ns: u64) {
        self.outer.expire(now_ns, &mut self.losses);
        self.inner.expire(now_ns, &mut self.losses);
        self.count_losses();
    }

    /// Whether an interface is one where tunnels end.
    pub(crate) fn is_access(&self, port: u32) -> bool {
        self.pipeline.is_access(port)
    }

    /// The way of frames that are finished.
    pub(crate) fn egress(&self) -> &Egress {
        self.pipeline.egress()
    }

    /// A record that nothing becomes of.
    pub(crate) fn give_up(&self, event: &Event<'_>, reason: DropReason) {
        if event.kind == EVENT_COPY {
            return self.pipeline.count_lost_copy();
        }
        self.lose(event.port, self.direction_of(event), reason);
    }

    /// Direction of a record's packet.
    pub(crate) fn direction_of(&self, event: &Event<'_>) -> usize {
        let task = Task::parse(event.data).filter(|_| event.kind == EVENT_PACKET);
        match task {
            Some((task, _)) if task.is_down() => DOWNLINK,
            _ => self.pipeline.direction(event.port),
        }
    }

    /// Whether packets wait for others.
    pub fn waits(&self) -> bool {
        !self.outer.is_empty() || !self.inner.is_empty()
    }

    fn take(
        &mut self,
        record: &[u8],
        now_ns: u64,
        rounds: usize,
        out: &mut Vec<Outgoing>,
    ) -> Result<(), Malformed> {
        let event = Event::parse(record).ok_or(Malformed)?;
        if !self.pipeline.has_port(event.port) {
            return Err(Malformed);
        }
        match event.kind {
            EVENT_SEND => {
                out.push(Outgoing::by_kernel(event.ifindex, event.data.to_vec()));
                Ok(())
            }
            EVENT_COPY => {
                match copies::duplicate(event.data) {
                    Some(duplicate) => out.push(duplicate),
                    None => self.pipeline.count_lost_copy(),
                }
                Ok(())
            }
            EVENT_HELD => {
                self.buffer(record, event.port);
                Ok(())
            }
            EVENT_LATER => {
                if !self.pipeline.leave_later(record, self.worker) {
                    self.lose(
                        event.port,
                        self.direction_of(&event),
                        DropReason::ShaperFull,
                    );
                }
                Ok(())
            }
            EVENT_GTPU => {
                self.messages.push(event.data.to_vec());
                Ok(())
            }
            EVENT_PACKET => {
                let (task, data) = Task::parse(event.data).ok_or(Malformed)?;
                match task.what {
                    what::OUTER_FRAGMENT => {
                        self.outer_fragment(event.port, data, now_ns, rounds, out)
                    }
                    what::EXPIRED => {
                        let error = self.error(&task, data, Cause::Expired);
                        self.tell(&event, &task, error, now_ns, rounds, out)
                    }
                    what::TOO_LONG => {
                        let cause = Cause::TooLong {
                            mtu: task.room(),
                            hop_spent: !task.is_relayed(),
                        };
                        let error = self.error(&task, data, cause);
                        self.tell(&event, &task, error, now_ns, rounds, out)
                    }
                    what::SOLICITATION => {
                        self.advertise(&event, task.out as u32, data, now_ns, rounds, out)
                    }
                    what::INNER_FRAGMENT => {
                        self.inner_fragment(&event, &task, data, now_ns, rounds, out)
                    }
                    what::CUT => {
                        self.cut(&event, &task, data, out);
                        Ok(())
                    }
                    what::EXTENSION => {
                        let packet = outer::notification(data).ok_or(Malformed)?;
                        count(&self.finished.extensions, 1);
                        let ifindex = self.pipeline.ifindex(event.port);
                        out.push(Outgoing::by_kernel(ifindex, packet));
                        Ok(())
                    }
                    _ => Err(Malformed),
                }
            }
            _ => Err(Malformed),
        }
    }

    fn outer_fragment(
        &mut self,
        port: u32,
        frame: &[u8],
        now_ns: u64,
        rounds: usize,
        out: &mut Vec<Outgoing>,
    ) -> Result<(), Malformed> {
        let (key, fragment) = read_fragment(port, frame).ok_or(Malformed)?;
        let whole = self.outer.add(key, fragment, now_ns, &mut self.losses);
        match whole.and_then(frame_of) {
            Some(frame) => self.run(port, &frame, now_ns, rounds, out),
            None => Ok(()),
        }
    }

    /// A part of a user's packet: it goes on when the first one has come.
    fn inner_fragment(
        &mut self,
        event: &Event<'_>,
        task: &Task,
        frame: &[u8],
        now_ns: u64,
        rounds: usize,
        out: &mut Vec<Outgoing>,
    ) -> Result<(), Malformed> {
        let port = event.port;
        let user = frame.get(usize::from(task.mtu)..).ok_or(Malformed)?;
        let (key, first) = followers::read(port, task.out as u32, user).ok_or(Malformed)?;
        let ready = self.inner.add(key, first, frame, now_ns, &mut self.losses);
        for part in ready {
            let run = {
                let _looking = self.bystander.look();
                self.pipeline
                    .run_part(port as usize, &part.frame, part.transport, now_ns)
            };
            self.done(port, run, now_ns, rounds, out)?;
        }
        Ok(())
    }

    fn error(&self, task: &Task, about: &[u8], cause: Cause) -> Option<Vec<u8>> {
        let is_ipv4 = about.first()? >> 4 == 4;
        if task.is_down() {
            // The next UPF takes nothing from the UE's tunnel that does not come from the UE.
            return icmp::error(about, cause, icmp::destination(about)?);
        }
        let source = self
            .routers
            .source(NiId(task.ni), is_ipv4, task.is_from_ue())?;
        icmp::error(about, cause, source)
    }

    /// Tell the sender of what was lost: into its own tunnel, as a packet of its data network would go, or back
    /// where it came from.
    fn tell(
        &mut self,
        event: &Event<'_>,
        task: &Task,
        error: Option<Vec<u8>>,
        now_ns: u64,
        rounds: usize,
        out: &mut Vec<Outgoing>,
    ) -> Result<(), Malformed> {
        let way_back = match task.is_relayed() {
            true => self.way_back(task, error.as_deref()),
            false => None,
        };
        let Some(packet) = error.filter(|_| way_back.is_some() || !task.is_relayed()) else {
            count(&self.finished.untold, 1);
            return Ok(());
        };
        let counter = match task.what {
            what::EXPIRED => &self.finished.expired,
            _ => &self.finished.too_long,
        };
        count(counter, 1);
        if let Some(frame) = way_back {
            return self.run(event.port, &frame, now_ns, rounds, out);
        }
        if !task.is_from_ue() {
            let ifindex = self.pipeline.ifindex(event.port);
            out.push(Outgoing::by_kernel(ifindex, packet));
            return Ok(());
        }
        self.send_to_ue(NiId(task.ni), &packet, now_ns, rounds, out)
    }

    /// Message to the sender of a packet from tunnel to tunnel, in a frame as if it had come in the other tunnel.
    fn way_back(&self, task: &Task, packet: Option<&[u8]>) -> Option<Vec<u8>> {
        let (teid, qfi) = task.came_with();
        let (teid, own) = {
            let _looking = self.bystander.look();
            self.pipeline.way_back(teid)?
        };
        // The answer to an uplink packet goes down, and the other way round.
        let message = gtpu::g_pdu(own, teid, (qfi, !task.is_down()), packet?)?;
        Some(framed(&message))
    }

    /// Send to a UE, by the rules for what its data network sends.
    fn send_to_ue(
        &mut self,
        ni: NiId,
        packet: &[u8],
        now_ns: u64,
        rounds: usize,
        out: &mut Vec<Outgoing>,
    ) -> Result<(), Malformed> {
        let Some(port) = self.pipeline.port_of(ni) else {
            count(&self.finished.untold, 1);
            return Ok(());
        };
        self.run(port as u32, &framed(packet), now_ns, rounds, out)
    }

    /// A UE asks for its router.
    fn advertise(
        &mut self,
        event: &Event<'_>,
        teid: u32,
        solicitation: &[u8],
        now_ns: u64,
        rounds: usize,
        out: &mut Vec<Outgoing>,
    ) -> Result<(), Malformed> {
        let Some((port, ue, packet)) = self.advertisement(teid, solicitation) else {
            self.lose(event.port, UPLINK, DropReason::RouterSolicitation);
            return Ok(());
        };
        count(&self.finished.advertisements, 1);
        let run = {
            let _looking = self.bystander.look();
            self.pipeline.run_own(port, &framed(&packet), ue, now_ns)
        };
        self.done(port as u32, run, now_ns, rounds, out)
    }

    /// Port where packets to the UE come in, an address of it, and the advertisement. `None`: it gets no answer.
    fn advertisement(&self, teid: u32, solicitation: &[u8]) -> Option<(usize, Ipv6Addr, Vec<u8>)> {
        let asked = advertise::solicitor(solicitation)?;
        let (prefix, ni) = {
            let _looking = self.bystander.look();
            self.pipeline.prefix_of(teid)?
        };
        // A UE takes its addresses from a /64, also from one that begins a shorter prefix.
        if prefix.prefix_len() > 64 {
            return None;
        }
        let what = self.routers.advertised(ni)?;
        let packet = advertise::advertisement(&what, prefix.network(), asked)?;
        Some((self.pipeline.port_of(ni)?, prefix.network(), packet))
    }

    /// Cut a packet into fragments, each with the headers of the tunnel that it leaves through.
    fn cut(&mut self, event: &Event<'_>, task: &Task, packet: &[u8], out: &mut Vec<Outgoing>) {
        let split = packet.split_at_checked(task.header_len().into());
        let split = split.filter(|(header, _)| header.len() <= REPEATED_MAX.into());
        let (header, packet) = split.unwrap_or_default();
        let max = task.room().into();
        let fragments = cut::cut(packet, max, self.identification(task)).unwrap_or_default();
        let wrapped = fragments.iter().map(|part| match task.is_relayed() {
            true => self.pipeline.wrap(task, &gtpu::with_header(header, part)?),
            false => self.pipeline.wrap(task, part),
        });
        let Some(sent) = wrapped.collect::<Option<Vec<_>>>() else {
            return self.lose(event.port, task.direction(), DropReason::Mtu);
        };
        if sent.is_empty() {
            return self.lose(event.port, task.direction(), DropReason::Mtu);
        }
        count(&self.finished.fragments, sent.len());
        let sent = sent.into_iter();
        out.extend(sent.map(|packet| Outgoing::by_kernel(event.ifindex, packet)));
    }

    /// For a packet to be cut that has none; 0: it needs none. By its own sockets the kernel would give each fragment another one.
    fn identification(&mut self, task: &Task) -> u16 {
        if task.tunnel_len > 0 {
            return 0;
        }
        self.identification = self.identification.checked_add(1).unwrap_or(1);
        self.identification
    }

    /// A packet made here, or put together, for an idle UE.
    fn buffer(&self, record: &[u8], port: u32) {
        if let Some(entry) = buffered_record::entry_of(record)
            && !self.buffers.send_packet(record)
        {
            self.pipeline.lower_buffered(entry, 1, 1);
            self.lose(port, DOWNLINK, DropReason::BufferFull);
        }
    }

    /// One packet that was handed over in vain.
    pub(crate) fn lose(&self, port: u32, direction: usize, reason: DropReason) {
        self.pipeline.count_drops(port, direction, reason, 1);
    }

    /// Through the pipeline, as if it had come in like this.
    fn run(
        &mut self,
        port: u32,
        frame: &[u8],
        now_ns: u64,
        rounds: usize,
        out: &mut Vec<Outgoing>,
    ) -> Result<(), Malformed> {
        let run = {
            let _looking = self.bystander.look();
            self.pipeline.run(port as usize, frame, now_ns)
        };
        self.done(port, run, now_ns, rounds, out)
    }

    fn done(
        &mut self,
        port: u32,
        run: Run,
        now_ns: u64,
        rounds: usize,
        out: &mut Vec<Outgoing>,
    ) -> Result<(), Malformed> {
        let Run {
            verdict,
            frame,
            event,
            copies,
            ..
        } = run;
        let mut copies = &copies[..];
        while let Some((record, rest)) = Event::split(copies) {
            self.take(record, now_ns, 0, out)?;
            copies = rest;
        }
        let way = match verdict {
            // Not ours after all: up the kernel's own stack.
            Verdict::Pass => Some((0, false)),
            Verdict::Answer => Some((self.pipeline.ifindex(port), false)),
            Verdict::Redirect(port) | Verdict::Later { port, .. } => {
                Some((self.pipeline.ifindex(port), true))
            }
            Verdict::Slow | Verdict::Drop(_) => None,
        };
        if let Some((ifindex, is_resolved)) = way {
            let (link, packet) = frame.split_at_checked(l3_of(&frame)).ok_or(Malformed)?;
            let link = if is_resolved { link } else { &[] };
            out.push(Outgoing {
                ifindex,
                link: link.to_vec(),
                packet: packet.to_vec(),
            });
        }
        let kind = Event::parse(&event).map(|event| event.kind);
        let is_done = matches!(kind, Some(EVENT_HELD | EVENT_LATER));
        if event.is_empty() || rounds == 0 && !is_done {
            return Ok(());
        }
        self.take(&event, now_ns, rounds.saturating_sub(1), out)
    }

    fn count_losses(&mut self) {
        for (port, loss, packets) in self.losses.drain(..) {
            let reason = match loss {
                Loss::Timeout => DropReason::FragmentTimeout,
                Loss::Malformed => DropReason::FragmentMalformed,
                Loss::Limit => DropReason::FragmentLimit,
            };
            let direction = self.pipeline.direction(port);
            self.pipeline.count_drops(port, direction, reason, packets);
        }
    }
}

/// An IP packet behind an Ethernet header.
pub(crate) fn framed(packet: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend(match packet.first().map(|octet| octet >> 4) {
        Some(4) => [0x08, 0x00],
        _ => [0x86, 0xdd],
    });
    frame.extend(packet);
    frame
}
