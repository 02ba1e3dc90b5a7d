//! The pipeline in this process, over the memory of any back end: alone on the host, or beside the programs that packets
//! meet first, for what those cannot finish.

use std::ffi::{c_int, c_void};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use compiled::{NiId, PdrId};
use ipnet::Ipv6Net;

use crate::abi::host::{
    TP_HOST_WRAP_MAX, TP_VERDICT_PASS, TP_VERDICT_REDIRECT, TP_VERDICT_SLOW, TP_VERDICT_TX, tp_fib,
    tp_host_entry_of, tp_host_prefix, tp_host_run, tp_host_wrap, tp_port_config, tp_result,
    tp_tables,
};
use crate::abi::{Features, entry, ni, raw, words_of};
use crate::alarm_queue::AlarmQueue;
use crate::drop_reason::DropReason;
use crate::frame_socket::Egress;
use crate::handover::Handover;
use crate::layout::Memory;
use crate::port::PortConfig;
use crate::task::{DOWNLINK, Event, Task, UPLINK};
use crate::trace::{RECORD_LEN, TraceRecord};
use crate::verdict::Verdict;

/// Octets in front of a frame, as XDP drivers leave them.
pub const HEADROOM: usize = 256;
/// Octets behind it.
pub const TAILROOM: usize = 256;
/// Outcome of one run: the frame, and everything that was told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Its fate.
    pub verdict: Verdict,
    /// The frame as the pipeline left it.
    pub frame: Vec<u8>,
    /// Record for the slow path: a `tp_event`, with its header.
    pub event: Vec<u8>,
    /// Duplicates that user space is to send: `tp_event`s, one behind the other.
    pub copies: Vec<u8>,
    /// Record for those who follow the packet's user.
    pub trace: Option<TraceRecord>,
}

/// Outcome of frames that came together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunTogether {
    /// Fate of each, and the frame as the pipeline left it.
    pub outcomes: Vec<(Verdict, Vec<u8>)>,
    /// Records for the slow path and of packets that wait: `tp_event`s, with their headers.
    pub events: Vec<Vec<u8>>,
}

/// A frame in memory with room in front and behind.
#[derive(Debug)]
pub struct Placed<'a> {
    /// All of it.
    pub buf: &'a mut [u8],
    /// Beginning of the frame.
    pub offset: u32,
    /// Its length.
    pub len: u32,
}

/// Room for what becomes of a frame, to be used again.
#[derive(Debug)]
pub struct Scratch(Box<tp_result>);

impl Scratch {
    /// Nothing has become of anything yet.
    #[expect(clippy::new_without_default, reason = "it is large")]
    pub fn new() -> Self {
        Self(Box::default())
    }

    /// Record for the slow path: a `tp_event`, with its header.
    pub fn event(&self) -> &[u8] {
        &self.0.event[..self.0.event_len as usize]
    }
}

fn verdict_of(result: &tp_result) -> Verdict {
    match result.verdict {
        TP_VERDICT_PASS => Verdict::Pass,
        TP_VERDICT_TX => Verdict::Answer,
        TP_VERDICT_REDIRECT => Verdict::Redirect(result.port),
        TP_VERDICT_SLOW => Verdict::Slow,
        _ => Verdict::lost(result.reason),
    }
}

/// One of our addresses for tunnels.
fn own_address(mem: &Memory) -> Option<IpAddr> {
    let config = &mem.config[0];
    let v4 = config.n3_be[0].load(Ordering::Relaxed);
    if v4 != 0 {
        return Some(Ipv4Addr::from(v4.to_ne_bytes()).into());
    }
    let mut octets = [0; 16];
    for (half, word) in octets.chunks_exact_mut(8).zip(&config.n3_6[0]) {
        half.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
    }
    let v6 = Ipv6Addr::from(octets);
    (!v6.is_unspecified()).then_some(v6.into())
}

/// `BPF_FIB_LKUP_RET_NO_NEIGH`: known to the kernel only, which then sends.
const FIB_NO_NEIGH: c_int = 7;

/// The kernel decides when it sends.
unsafe extern "C" fn leave_to_the_kernel(_: *mut c_void, _: *mut tp_fib) -> c_int {
    FIB_NO_NEIGH
}

/// Fate of packets that are buffered at an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BufferedFate {
    /// The FAR still says BUFF.
    Stays,
    /// They may leave; others wait behind them.
    ReleasedFirst,
    /// They may leave.
    Released,
    /// The PDR is gone: they are judged anew.
    Orphaned,
}

/// The pipeline, and the ports that it has.
#[derive(Debug)]
pub struct Pipeline {
    mem: Memory,
    ports: Vec<tp_port_config>,
    ports_up: u32,
    /// Other packets meet the same tables at the same time.
    aside: bool,
    /// Queue of alarms of usage.
    told: Option<Arc<AlarmQueue>>,
    /// Way of frames above their rate.
    later: Handover,
    /// Way of frames that are finished.
    egress: Egress,
}

impl Pipeline {
    pub(crate) fn new(mem: Memory) -> Self {
        Self {
            mem,
            ports: Vec::new(),
            ports_up: 0,
            aside: false,
            told: None,
            later: Handover::Nobody,
            egress: Egress::default(),
        }
    }

    pub(crate) fn tell_alarms_to(&mut self, told: Arc<AlarmQueue>) {
        self.told = Some(told);
    }

    /// Beside another pipeline over the same tables: it counts apart, and shares meters with care. `later`: the way to
    /// whoever keeps that one's frames above their rate. `egress`: the way of other frames.
    pub(crate) fn aside(
        mem: Memory,
        ports: &[PortConfig],
        features: Features,
        later: Handover,
        egress: Egress,
    ) -> Self {
        let mut pipeline = Self::new(mem);
        pipeline.aside = true;
        let shapes = match later {
            Handover::Nobody => Features::NONE,
            _ => Features::SHAPE,
        };
        let features = Features(features.0 | Features::ATOMIC.0 | shapes.0);
        pipeline.later = later;
        pipeline.egress = egress;
        ports
            .iter()
            .for_each(|port| pipeline.add_port(port, features));
        pipeline
    }

    pub(crate) fn add_port(&mut self, config: &PortConfig, features: Features) {
        let port = self.ports.len() as u32;
        self.ports.push(config.as_port(port, features));
        self.ports_up |= 1 << port;
    }

    /// Packets meet these features from now on.
    pub(crate) fn specialise(&mut self, features: Features) {
        for port in &mut self.ports {
            port.features = features.bits();
        }
    }

    fn tables(&self) -> tp_tables {
        let mem = &self.mem;
        let cpu = if self.aside { &mem.slow } else { &mem.cpus };
        tp_tables {
            aside: self.aside.into(),
            by_worker: self.later.is_to_workers().into(),
            fib: self.aside.then_some(leave_to_the_kernel),
            ..mem.as_tables(cpu.as_ptr(), self.ports_up)
        }
    }

    /// The interface of a port.
    pub fn ifindex(&self, port: u32) -> u32 {
        let slots = &self.mem.config[0].port_ifindex;
        let slot = slots.get(port as usize);
        slot.map_or(0, |slot| slot.load(Ordering::Relaxed))
    }

    /// The way of frames that a run has finished, out of the interfaces of ports.
    pub fn egress(&self) -> &Egress {
        &self.egress
    }

    /// Packets that the slow path lost, beside those that a run has counted.
    pub fn count_drops(&self, port: u32, direction: usize, reason: DropReason, packets: u64) {
        let drops = self.mem.slow[0].drops.get(port as usize);
        let counter = drops.and_then(|drops| drops[direction].get(reason.number()));
        if let Some(counter) = counter {
            counter.fetch_add(packets, Ordering::Relaxed);
        }
    }

    /// Have a frame above its rate leave when its time has come, in the order of its flow: a record of
    /// [`EVENT_LATER`](crate::task::EVENT_LATER) that a run has handed over. `worker`: that took the packet in. Whether there
    /// was room.
    pub fn leave_later(&self, record: &[u8], worker: u16) -> bool {
        self.later.give(record, worker)
    }

    /// The same of a frame that a process before this one had wait. `false`: there is no room, or nobody who has frames wait, and it is
    /// counted.
    pub(crate) fn leave_later_still(&self, record: &[u8]) -> bool {
        let Some(event) = Event::parse(record) else {
            return false;
        };
        let shaped = &self.mem.config[0].shaped;
        shaped.fetch_add(1, Ordering::AcqRel);
        let is_kept = self.leave_later(record, event.worker);
        if !is_kept {
            shaped.fetch_sub(1, Ordering::AcqRel);
            let (port, reason) = (event.port, DropReason::ShaperFull);
            self.count_drops(port, self.direction(port), reason, 1);
        }
        is_kept
    }

    /// Whether there is this port.
    pub fn has_port(&self, port: u32) -> bool {
        (port as usize) < self.ports.len()
    }

    /// Whether tunnels lead to this port.
    pub fn is_access(&self, port: u32) -> bool {
        let port = self.ports.get(port as usize);
        port.is_some_and(|port| port.roles & raw::TP_ROLE_N3 != 0)
    }

    /// Direction of packets that come in on this port, as far as the port alone says it.
    pub fn direction(&self, port: u32) -> usize {
        if self.is_access(port) {
            UPLINK
        } else {
            DOWNLINK
        }
    }

    /// The port where packets to UEs of a network instance come in, as its data network sends them.
    pub fn port_of(&self, ni: NiId) -> Option<usize> {
        let home = self.mem.nis.get(usize::from(ni.0))?.load(ni::HOME) as u32;
        let leads_there =
            |port: &tp_port_config| port.roles & raw::TP_ROLE_N6 != 0 && port.ni == home;
        self.ports.iter().position(leads_there)
    }

    /// A user's packet, or a fragment of it, behind the headers of the tunnel that a task names. `None`: there
    /// is no such tunnel any more.
    pub fn wrap(&self, task: &Task, user: &[u8]) -> Option<Vec<u8>> {
        let mut packet = vec![0u8; TP_HOST_WRAP_MAX as usize + user.len()];
        let mut tables = self.tables();
        // SAFETY: the tables are mapped as long as `self` with the lengths given and shared with
        // Rust as atomics only; task, user and packet are ours, with TP_HOST_WRAP_MAX octets more in the last one.
        let len = unsafe {
            tp_host_wrap(
                &mut tables,
                (&raw const *task).cast(),
                user.as_ptr(),
                u32::try_from(user.len()).ok()?,
                packet.as_mut_ptr(),
            )
        };
        packet.truncate(len as usize);
        (len > 0).then_some(packet)
    }

    /// The prefix that packets of a UE come from, and the network instance that they go to, by the TEID of its
    /// uplink.
    pub fn prefix_of(&self, teid: u32) -> Option<(Ipv6Net, NiId)> {
        let (mut prefix, mut ni) = ([0u8; 16], 0);
        let mut tables = self.tables();
        // SAFETY: the tables are mapped as long as `self` with the lengths given and shared with
        // Rust as atomics only; prefix and ni are ours.
        let len = unsafe { tp_host_prefix(&mut tables, teid, prefix.as_mut_ptr(), &raw mut ni) };
        let net = Ipv6Net::new(prefix.into(), u8::try_from(len).ok()?).ok()?;
        (len > 0).then_some((net, NiId(u16::try_from(ni).ok()?)))
    }

    /// The TEID of the session with this one that leads the other way, and our address for tunnels.
    pub fn way_back(&self, teid: u32) -> Option<(u32, IpAddr)> {
        let mut tables = self.tables();
        // SAFETY: the tables are mapped as long as `self` with the lengths given and shared with
        // Rust as atomics only.
        let entry = unsafe { tp_host_entry_of(&mut tables, teid) };
        let back = self.mem.backs.get(entry as usize)?.load(Ordering::Relaxed);
        (back != 0).then_some((back, own_address(&self.mem)?))
    }

    /// A duplicate that cannot be made.
    pub fn count_lost_copy(&self) {
        let lost = &self.mem.slow[0].copies_lost;
        lost.fetch_add(1, Ordering::Relaxed);
    }

    /// A frame that comes in on a port.
    pub fn run(&self, port: usize, frame: &[u8], now_ns: u64) -> Run {
        self.run_tables(&mut self.tables(), port, frame, now_ns)
    }

    /// A packet that is made here, for the UE that has this address, whatever its destination.
    pub fn run_own(&self, port: usize, frame: &[u8], ue: Ipv6Addr, now_ns: u64) -> Run {
        let mut tables = self.tables();
        let addr = u128::from(ue);
        tables.own = 1;
        tables.own_for = [(addr >> 64) as u64, addr as u64];
        self.run_tables(&mut tables, port, frame, now_ns)
    }

    /// The port's own view of an entry: where packets to its UE come in.
    pub fn port_of_entry(&self, index: u32) -> Option<usize> {
        let head = self.mem.entries.get(index as usize)?.load(entry::HEAD);
        self.port_of(NiId(entry::ni(head)))
    }

    /// SEID of the session that an entry belongs to, or was the last to.
    pub fn owner_of(&self, index: u32) -> Option<u64> {
        self.mem.owners.seid(index)
    }

    /// The entry that decides about packets which wait at this one.
    pub fn present(&self, index: u32) -> u32 {
        self.mem.successors.present(index)
    }

    /// The PDR of an entry.
    pub fn pdr_of(&self, index: u32) -> PdrId {
        let line = self.mem.entries.get(index as usize);
        let ext = line.map_or(0, |line| line.load(entry::EXT));
        PdrId((ext >> entry::PDR_SHIFT) as u16)
    }

    /// Fate of packets that an entry decides about, as its FAR says now.
    pub fn action(&self, index: u32) -> BufferedFate {
        let line = self.mem.entries.get(index as usize);
        let head = line.map_or(0, |line| line.load(entry::HEAD));
        match entry::action(head) {
            _ if entry::is_draining(head) => BufferedFate::ReleasedFirst,
            entry::ACT_BUFFER => BufferedFate::Stays,
            entry::ACT_NONE => BufferedFate::Orphaned,
            _ => BufferedFate::Released,
        }
    }

    /// Up to so many packets are buffered at an entry from now on; 0: none any more.
    pub fn buffer_up_to(&self, packets: u32) {
        self.mem.config[0]
            .held_max
            .store(packets, Ordering::Release);
    }

    /// Count off packets of an entry that are no longer buffered; of these, some were dropped.
    pub fn lower_buffered(&self, index: u32, by: u64, dropped: u64) {
        if let Some(side) = self.mem.sides.get(index as usize) {
            if dropped > 0 {
                side.drops.fetch_add(dropped, Ordering::Relaxed);
            }
            // A record that nobody counted makes no number of it that never ends.
            let by = u32::try_from(by).unwrap_or(u32::MAX);
            let lower = |held: u32| Some(held.saturating_sub(by));
            let _ = (side.held).fetch_update(Ordering::Release, Ordering::Relaxed, lower);
        }
    }

    /// A buffered packet, in place, and came in on a port of a worker. `by`: the entry whose FAR releases it; `None`: it is
    /// judged anew. `own`: an address of the UE that it is for, if that is what it goes by.
    pub fn release(
        &self,
        (port, worker): (usize, u16),
        by: Option<u32>,
        own: Option<[u64; 2]>,
        frame: &mut Placed<'_>,
        now_ns: u64,
        result: &mut Scratch,
    ) -> Verdict {
        let mut tables = self.tables();
        tables.releases = 1;
        tables.held_by = by.map_or(0, |index| index + 1);
        tables.worker = worker.into();
        if let Some(own) = own {
            tables.own = 1;
            tables.own_for = own;
        }
        let Some(port) = self.ports.get(port) else {
            return Verdict::Pass;
        };
        let result = &mut result.0;
        // SAFETY: the tables are mapped as long as `self` with the lengths given and shared with
        // Rust as atomics only; frame and result are ours and live through the call.
        unsafe {
            tp_host_run(
                &mut tables,
                port,
                frame.buf.as_mut_ptr(),
                frame.buf.len() as u32,
                &mut frame.offset,
                &mut frame.len,
                now_ns,
                &mut **result,
            );
        }
        self.tell(result);
        verdict_of(result)
    }

    /// Queue the alarms of a run.
    fn tell(&self, result: &tp_result) {
        if let Some(told) = &self.told {
            let alarms = result.alarms.iter().take(result.n_alarms as usize);
            alarms.for_each(|alarm| told.tell(alarm.entry));
        }
    }

    /// A fragment of a packet whose upper layer is known (`tp_transport()`).
    pub fn run_part(&self, port: usize, frame: &[u8], transport: u64, now_ns: u64) -> Run {
        let mut tables = self.tables();
        tables.transport = transport;
        tables.transport_known = 1;
        self.run_tables(&mut tables, port, frame, now_ns)
    }

    fn run_tables(&self, tables: &mut tp_tables, port: usize, frame: &[u8], now_ns: u64) -> Run {
        let mut buf = vec![0u8; HEADROOM + frame.len() + TAILROOM];
        buf[HEADROOM..HEADROOM + frame.len()].copy_from_slice(frame);
        let (mut offset, mut len) = (HEADROOM as u32, frame.len() as u32);
        let Scratch(mut result) = Scratch::new();
        // SAFETY: the tables are mapped as long as `self` with the lengths given and shared with
        // Rust as atomics only; buf, offset, len and result are ours and live through the call.
        unsafe {
            tp_host_run(
                tables,
                &self.ports[port],
                buf.as_mut_ptr(),
                buf.len() as u32,
                &mut offset,
                &mut len,
                now_ns,
                &mut *result,
            );
        }
        self.tell(&result);
        let frame = buf[offset as usize..(offset + len) as usize].to_vec();
        let event = result.event[..result.event_len as usize].to_vec();
        let copies = result.copies[..result.copies_len as usize].to_vec();
        let words: [u64; RECORD_LEN / 8] = words_of(&result.trace);
        let trace: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let trace = TraceRecord::parse(&trace).filter(|_| result.traced != 0);
        let verdict = verdict_of(&result);
        Run {
            verdict,
            frame,
            event,
            copies,
            trace,
        }
    }
}
