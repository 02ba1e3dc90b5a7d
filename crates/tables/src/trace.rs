//! Following users: whose packets programs report, and the reports (`tp_trace`).

use std::io;
use std::mem::offset_of;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use compiled::PredefinedId;
use ipnet::IpNet;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::abi::raw::{self, tp_trace};
use crate::abi::{DROP_MAX, Line};
use crate::drop_reason::DropReason;
use crate::filters::left_aligned;
use crate::memory::View;
use crate::ring::{Ring, RingReader};

/// Keys that packets are compared with, at most.
pub const TRACE_KEYS_MAX: usize = raw::TP_TRACE_KEYS_MAX as usize;
/// Octets of a frame that are reported, at most.
pub const TRACE_SNAP: usize = raw::TP_TRACE_SNAP as usize;

/// Length of `tp_trace`, in front of the frame.
pub(crate) const HEADER_LEN: usize = offset_of!(tp_trace, data);
/// `sizeof(struct tp_trace)`
pub(crate) const RECORD_LEN: usize = HEADER_LEN + TRACE_SNAP;
/// `TP_EVENT_TRACE`
const EVENT_TRACE: u32 = raw::TP_EVENT_TRACE;
/// `TP_NO_QFI`
const NO_QFI: u8 = 0xff;
/// Records taken from the ring before the stop flag is looked at.
const BATCH: usize = 256;

/// Key of packets that are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TraceKey {
    /// The tunnel it arrives through.
    Teid(u32),
    /// The UE's address lies in this prefix: source in uplink, destination in downlink.
    Ue(IpNet),
}

impl TraceKey {
    /// `tp_trace_key` for these traces.
    fn words(self, traces: u32) -> [u64; 8] {
        let (kind, [hi, lo], [mask_hi, mask_lo]) = match self {
            Self::Teid(teid) => (1, [u64::from(teid), 0], [u64::from(u32::MAX), 0]),
            Self::Ue(net) => {
                let kind = if net.addr().is_ipv4() { 2 } else { 3 };
                (
                    kind,
                    left_aligned(net.network()),
                    left_aligned(net.netmask()),
                )
            }
        };
        let last = kind | u64::from(traces) << 32;
        [hi, lo, mask_hi, mask_lo, last, 0, 0, 0]
    }
}

pub(crate) fn write_keys(lines: &View<Line>, keys: &[(TraceKey, u32)]) {
    let words = keys.iter().map(|&(key, traces)| key.words(traces));
    let none = std::iter::repeat([0; 8]);
    for (line, words) in lines.iter().zip(words.chain(none)) {
        line.fill(words);
    }
}

/// Fate of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceOutcome {
    /// Lost.
    Dropped(DropReason),
    /// Left to the kernel.
    Passed,
    /// Turned into an answer: of a G-PDU, an Error Indication.
    Answered,
    /// Sent on.
    Forwarded,
    /// The slow path sends it.
    Slow,
    /// Buffered until its UE is there.
    Buffered,
    /// Something that this version of the control plane does not know.
    Unknown(u8),
}

impl TraceOutcome {
    fn of(number: u8) -> Self {
        match (
            DropReason::of(number.into()),
            usize::from(number).checked_sub(DROP_MAX),
        ) {
            (Some(reason), _) => Self::Dropped(reason),
            (None, Some(0)) => Self::Passed,
            (None, Some(1)) => Self::Answered,
            // Frames that leave later are on their way, too.
            (None, Some(2 | 8)) => Self::Forwarded,
            (None, Some(3)) => Self::Slow,
            (None, Some(6)) => Self::Buffered,
            (None, _) => Self::Unknown(number),
        }
    }
}

/// A packet that somebody follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceRecord {
    /// A bit for each trace that asked for it.
    pub traces: u32,
    /// When its journey was over, by the monotonic clock.
    pub time_ns: u64,
    /// TEID of its tunnel, when it came in through one.
    pub teid: Option<u32>,
    /// QFI of its PDU Session Container.
    pub qfi: Option<u8>,
    /// The PDR that took it.
    pub pdr: Option<u16>,
    /// Which of the predefined rules that the PDR activates.
    pub predefined: Option<PredefinedId>,
    /// Port where it came in.
    pub port: u8,
    /// Came from the access side.
    pub uplink: bool,
    /// Its fate.
    pub outcome: TraceOutcome,
    /// Octets of the frame.
    pub frame_len: u32,
    /// Offset of the GTP-U header.
    pub gtpu: Option<u16>,
    /// Offset of the user's IP packet.
    pub user: Option<u16>,
    /// The frame as it came in, at most [`TRACE_SNAP`] octets.
    pub frame: Vec<u8>,
}

impl TraceRecord {
    /// `None`: not a record, a fault of ours.
    pub(crate) fn parse(record: &[u8]) -> Option<Self> {
        let (header, frame) = record.split_first_chunk::<HEADER_LEN>()?;
        let u16_at = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        let u32_at = |at: usize| u32::from(u16_at(at)) | u32::from(u16_at(at + 2)) << 16;
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        let u8_at = |at: usize| header[at];
        let matched = u8_at(offset_of!(tp_trace, matched)) != 0;
        let nonzero = |offset: u16| (offset != 0).then_some(offset);
        if u32_at(offset_of!(tp_trace, kind)) != EVENT_TRACE {
            return None;
        }
        let frame_len = u32_at(offset_of!(tp_trace, frame_len));
        let kept = (frame_len as usize).min(TRACE_SNAP);
        Some(Self {
            traces: u32_at(offset_of!(tp_trace, traces)),
            time_ns: u64_at(offset_of!(tp_trace, time_ns)),
            teid: Some(u32_at(offset_of!(tp_trace, teid))).filter(|teid| *teid != 0),
            frame_len,
            pdr: matched.then(|| u16_at(offset_of!(tp_trace, pdr))),
            predefined: PredefinedId::new(u16_at(offset_of!(tp_trace, predefined)))
                .filter(|_| matched),
            port: u8_at(offset_of!(tp_trace, port)),
            uplink: u8_at(offset_of!(tp_trace, dir)) == raw::TP_UPLINK as u8,
            outcome: TraceOutcome::of(u8_at(offset_of!(tp_trace, outcome))),
            qfi: Some(u8_at(offset_of!(tp_trace, qfi))).filter(|qfi| *qfi != NO_QFI),
            gtpu: nonzero(u16_at(offset_of!(tp_trace, gtpu))),
            user: nonzero(u16_at(offset_of!(tp_trace, user))),
            frame: frame.get(..kept)?.to_vec(),
        })
    }
}

/// A thread that empties the ring of followed packets. Dropping it stops the thread.
#[derive(Debug)]
pub struct TraceThread {
    stop: Arc<AtomicBool>,
    wake: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

impl TraceThread {
    /// `ring` is [`crate::Tables::traced`]; `report` gets every record and must not wait.
    pub fn start(ring: Ring, report: impl FnMut(TraceRecord) + Send + 'static) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let wake = Arc::new(EventFd::from_flags(flags)?);
        let thread = std::thread::Builder::new().name("trace".into()).spawn({
            let (stop, wake) = (stop.clone(), wake.clone());
            move || {
                if let Err(error) = drain(&ring, report, &stop, &wake) {
                    tracing::error!(%error, "the ring of followed packets cannot be read");
                }
            }
        })?;
        Ok(Self {
            stop,
            wake,
            thread: Some(thread),
        })
    }
}

impl Drop for TraceThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.wake.write(1);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn drain(
    ring: &Ring,
    mut report: impl FnMut(TraceRecord) + Send,
    stop: &AtomicBool,
    wake: &EventFd,
) -> io::Result<()> {
    let ring = RingReader::open(ring, move |record| {
        if let Some(record) = TraceRecord::parse(record) {
            report(record);
        }
    })?;
    while !stop.load(Ordering::Relaxed) {
        if ring.read(BATCH)? == 0 {
            wait(&ring, wake)?;
        }
    }
    Ok(())
}

fn wait(ring: &RingReader<'_>, wake: &EventFd) -> io::Result<()> {
    let mut fds = [
        PollFd::new(ring.as_fd(), PollFlags::POLLIN),
        PollFd::new(wake.as_fd(), PollFlags::POLLIN),
    ];
    match poll(&mut fds, PollTimeout::NONE) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
