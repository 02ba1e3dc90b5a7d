//! Following a user: what a client asks for and the lines that it gets. The control thread
//! (`control/trace.rs`) decides whose packets those are, REST (`api/trace.rs`) sends the lines.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use compiled::PredefinedId;
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};
use report::trace::{Line, Packet};
use tables::trace::{TraceOutcome, TraceRecord};
use tables::{DropReason, monotonic_ns};
use tokio::sync::mpsc;

/// Traces at a time.
pub(crate) const TRACES_MAX: usize = 16;
/// Lines that may wait for a client; more are lost, and counted.
pub(crate) const LINES_MAX: usize = 4096;
/// `255`: a G-PDU (TS 29.281, table 6.1-1).
const GPDU: u8 = 255;

/// User whose packets a client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whom {
    Ue(IpAddr),
    Session(u64),
    Teid(u32),
}

/// A client's end of a trace.
#[derive(Debug)]
pub(crate) struct Subscription {
    pub(crate) lines: mpsc::Receiver<Line>,
}

/// Why nobody is followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    #[error("{TRACES_MAX} traces are running; end one of them")]
    TooMany,
    #[error("no session {0:016x}")]
    NoSession(u64),
    #[error("the data path cannot trace: {0}")]
    Datapath(String),
}

/// Rules that a PDR refers to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refers {
    pub(crate) far: Option<u32>,
    pub(crate) action: String,
    pub(crate) qers: Vec<u32>,
    /// Name of the predefined rule that the PDR activates, if this is about one of those.
    pub(crate) predefined: Option<String>,
}

/// The session that a trace is about, as far as packets' lines name it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rules {
    pub(crate) seid: String,
    pub(crate) pdrs: BTreeMap<(u16, Option<PredefinedId>), Refers>,
}

/// A running trace, as the thread that reads the ring sees it.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) lines: mpsc::Sender<Line>,
    /// Earlier records are of a trace that had this place before.
    pub(crate) since_ns: u64,
    pub(crate) rules: Option<Arc<Rules>>,
    /// Lines that found no room.
    pub(crate) lost: u64,
}

/// All running traces, each at its bit of [`TraceRecord::traces`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Listeners(Arc<Mutex<[Option<Listener>; TRACES_MAX]>>);

impl Listeners {
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut [Option<Listener>; TRACES_MAX]) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Tell those who asked. `interfaces`: names of the ports.
    pub(crate) fn report(&self, record: &TraceRecord, interfaces: &[String]) {
        self.with(|listeners| {
            for (bit, listener) in listeners.iter_mut().enumerate() {
                let Some(listener) = listener else { continue };
                if record.traces >> bit & 1 == 0 || record.time_ns < listener.since_ns {
                    continue;
                }
                let packet = packet(record, interfaces, listener.rules.as_deref());
                let line = Line::Packet(Box::new(packet));
                if listener.lines.try_send(line).is_err() {
                    listener.lost += 1;
                }
            }
        });
    }
}

fn packet(record: &TraceRecord, interfaces: &[String], rules: Option<&Rules>) -> Packet {
    let refers = record
        .pdr
        .and_then(|pdr| rules?.pdrs.get(&(pdr, record.predefined)));
    let (outcome, reason) = outcome(record);
    Packet {
        time: wall_clock(record.time_ns),
        interface: interfaces
            .get(usize::from(record.port))
            .cloned()
            .unwrap_or_default(),
        direction: Cow::Borrowed(if record.uplink { "uplink" } else { "downlink" }),
        outcome: Cow::Borrowed(outcome),
        reason: reason.map(|reason| Cow::Borrowed(reason.name())),
        meaning: reason.map(|reason| Cow::Borrowed(reason.meaning())),
        session: rules.map(|rules| rules.seid.clone()),
        pdr: record.pdr,
        predefined: refers.and_then(|refers| refers.predefined.clone()),
        far: refers.and_then(|refers| refers.far),
        action: refers.map(|refers| refers.action.clone()),
        qers: refers.map_or(Vec::new(), |refers| refers.qers.clone()),
        teid: record.teid.map(|teid| format!("{teid:08x}")),
        qfi: record.qfi,
        length: record.frame_len,
        user_offset: record.user,
        frame: record
            .frame
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect(),
    }
}

fn outcome(record: &TraceRecord) -> (&'static str, Option<DropReason>) {
    match record.outcome {
        TraceOutcome::Dropped(reason) => ("dropped", Some(reason)),
        TraceOutcome::Passed => ("to_kernel", None),
        TraceOutcome::Forwarded => ("forwarded", None),
        TraceOutcome::Slow => ("slow_path", None),
        TraceOutcome::Buffered => ("buffered", None),
        TraceOutcome::Unknown(_) => ("unknown", None),
        TraceOutcome::Answered => {
            let kind = record.gtpu.map(|gtpu| usize::from(gtpu) + 1);
            let gpdu = kind.and_then(|at| record.frame.get(at)) == Some(&GPDU);
            // A G-PDU is answered by an Error Indication, and for one reason.
            ("answered", gpdu.then_some(DropReason::UnknownTeid))
        }
    }
}

fn realtime_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_REALTIME).unwrap_or(TimeSpec::new(0, 0));
    now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64
}

/// Seconds since 1970 of a moment of the monotonic clock.
fn wall_clock(monotonic: u64) -> String {
    let age = monotonic_ns().saturating_sub(monotonic);
    let at = realtime_ns().saturating_sub(age);
    format!("{}.{:09}", at / 1_000_000_000, at % 1_000_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> TraceRecord {
        let mut frame = vec![0; 60];
        frame[43] = GPDU;
        TraceRecord {
            traces: 1,
            time_ns: monotonic_ns(),
            teid: Some(0x101),
            qfi: Some(9),
            pdr: Some(7),
            predefined: None,
            port: 0,
            uplink: true,
            outcome: TraceOutcome::Forwarded,
            frame_len: 60,
            gtpu: Some(42),
            user: Some(50),
            frame,
        }
    }

    fn rules() -> Rules {
        let refers = Refers {
            far: Some(3),
            action: "FORW".into(),
            qers: vec![4, 5],
            predefined: None,
        };
        let predefined = Refers {
            far: None,
            action: "DROP".into(),
            predefined: Some("no-mail".into()),
            ..refers.clone()
        };
        Rules {
            seid: "a1".into(),
            pdrs: [((7, None), refers), ((7, PredefinedId::new(2)), predefined)].into(),
        }
    }

    #[test]
    fn a_packet_is_joined_with_its_rules() {
        let seen = packet(&record(), &["n3".into()], Some(&rules()));
        assert_eq!(
            (seen.pdr, seen.far, seen.qers),
            (Some(7), Some(3), vec![4, 5])
        );
        assert_eq!(
            (seen.interface.as_str(), &*seen.outcome, seen.reason),
            ("n3", "forwarded", None)
        );
        assert_eq!(seen.teid.as_deref(), Some("00000101"));
        let active = TraceRecord {
            predefined: PredefinedId::new(2),
            ..record()
        };
        let seen = packet(&active, &["n3".into()], Some(&rules()));
        assert_eq!(
            (seen.pdr, seen.far, seen.predefined.as_deref()),
            (Some(7), None, Some("no-mail"))
        );
        assert_eq!(seen.action.as_deref(), Some("DROP"));
        let unknown = TraceRecord {
            pdr: None,
            outcome: TraceOutcome::Answered,
            ..record()
        };
        let seen = packet(&unknown, &[], None);
        assert_eq!(
            (&*seen.outcome, seen.reason.as_deref()),
            ("answered", Some("unknown_teid"))
        );
        assert_eq!((seen.far, seen.session), (None, None));
    }

    #[test]
    fn only_those_who_asked_are_told_and_a_slow_one_loses_lines() {
        let listeners = Listeners::default();
        let (sender, mut lines) = mpsc::channel(2);
        let listener = Listener {
            lines: sender,
            since_ns: 1000,
            rules: None,
            lost: 0,
        };
        listeners.with(|all| all[3] = Some(listener));
        let of = |traces, time_ns| TraceRecord {
            traces,
            time_ns,
            ..record()
        };
        // Another trace, and one that had the place before.
        listeners.report(&of(1 << 2, 2000), &[]);
        listeners.report(&of(1 << 3, 999), &[]);
        assert!(lines.try_recv().is_err());
        for _ in 0..5 {
            listeners.report(&of(1 << 3 | 1, 2000), &[]);
        }
        assert!(lines.try_recv().is_ok() && lines.try_recv().is_ok() && lines.try_recv().is_err());
        assert_eq!(
            listeners.with(|all| all[3].as_ref().map(|one| one.lost)),
            Some(3)
        );
    }
}
