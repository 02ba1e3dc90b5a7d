//! Our own requests: sent, sent again every T1, given up after N1 times (TS 29.244, 6.4).

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use pfcp::MessageType;
use pfcp::ie::ReportType;

use crate::base::ids::PeerId;
use crate::base::time::Time;
use crate::exchange::outbox::Outbox;
use crate::rules::config::Config;

/// Subject of a report. It comes back with the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct About {
    /// Peer that owns the session.
    pub(crate) peer: PeerId,
    /// Our SEID.
    pub(crate) seid: u64,
    /// Types of the report.
    pub(crate) report: ReportType,
    /// Its number among the reports about the usage of this session.
    pub(crate) usage: u32,
}

/// Purpose of a request, by which its answer, or the lack of one, finds its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Is this peer alive?
    Heartbeat(PeerId),
    /// Associate with a configured SMF, by its place in the list.
    Setup(usize),
    /// Ask this peer to release the association.
    Release(PeerId),
    /// Tell the SMF of a session about it.
    Report(About),
    /// Tell this peer that its session of this SEID is gone.
    Lost(PeerId, u64),
    /// Tell this peer that we are about to ask for the release.
    Prepare(PeerId),
    /// Tell this peer about paths to GTP-U peers.
    NodeReport(PeerId),
    /// Tell this peer that it has all usage reports and may release.
    ReportsSent(PeerId),
}

impl Purpose {
    /// Type of our request.
    pub(crate) fn request(self) -> MessageType {
        match self {
            Self::Heartbeat(_) => MessageType::HEARTBEAT_REQUEST,
            Self::Setup(_) => MessageType::ASSOCIATION_SETUP_REQUEST,
            Self::Report(_) | Self::Lost(..) => MessageType::SESSION_REPORT_REQUEST,
            Self::NodeReport(_) => MessageType::NODE_REPORT_REQUEST,
            Self::Release(_) | Self::Prepare(_) | Self::ReportsSent(_) => {
                MessageType::ASSOCIATION_UPDATE_REQUEST
            }
        }
    }

    /// Type of the answer.
    fn response(self) -> MessageType {
        match self {
            Self::Heartbeat(_) => MessageType::HEARTBEAT_RESPONSE,
            Self::Setup(_) => MessageType::ASSOCIATION_SETUP_RESPONSE,
            Self::Report(_) | Self::Lost(..) => MessageType::SESSION_REPORT_RESPONSE,
            Self::NodeReport(_) => MessageType::NODE_REPORT_RESPONSE,
            Self::Release(_) | Self::Prepare(_) | Self::ReportsSent(_) => {
                MessageType::ASSOCIATION_UPDATE_RESPONSE
            }
        }
    }
}

impl Purpose {
    /// Whether it is about a session.
    fn is_report(self) -> bool {
        matches!(self, Self::Report(_) | Self::Lost(..))
    }

    pub(crate) fn peer(self) -> Option<PeerId> {
        match self {
            Self::Heartbeat(id)
            | Self::Release(id)
            | Self::Prepare(id)
            | Self::ReportsSent(id)
            | Self::Lost(id, _)
            | Self::NodeReport(id) => Some(id),
            Self::Report(about) => Some(about.peer),
            Self::Setup(_) => None,
        }
    }
}

#[derive(Debug)]
struct Outstanding {
    to: SocketAddr,
    purpose: Purpose,
    datagram: Box<[u8]>,
    sent: u32,
    due: Time,
}

/// Outcome for a request that was due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Sent once more.
    Again(Purpose),
    /// N1 times without an answer.
    GivenUp(Purpose),
    /// A report, whose session may be gone: to be sent again by this number, or dropped.
    Late(About, u32),
}

/// Requests that wait for their answers.
#[derive(Debug)]
pub(crate) struct Requests {
    t1: Duration,
    n1: u32,
    /// Of requests that are no reports, less the reports under way. The number of those is for shards to limit, and of what is said of
    /// lost sessions for the node.
    outstanding_max: usize,
    reports: usize,
    waiting: BTreeMap<u32, Outstanding>,
    timers: BTreeSet<(Time, u32)>,
    sequence: u32,
}

/// Sequence numbers have 24 bits (TS 29.244, 7.2.2.4).
const SEQUENCE_MASK: u32 = 0x00ff_ffff;

/// Requests of ours that may be under way; more only while reports come on top of as many others.
fn outstanding_max(config: &Config) -> usize {
    let most = SEQUENCE_MASK as usize / 2;
    config.limits.outstanding.clamp(4, most)
}

/// Reports that may be: a quarter is left to other requests.
pub(crate) fn reports_max(config: &Config) -> usize {
    outstanding_max(config) / 4 * 3
}

impl Requests {
    /// `first`: where sequence numbers begin. Our Recovery Time Stamp is a good choice: after a
    /// restart we do not repeat the numbers of the former life.
    pub(crate) fn new(config: &Config, first: u32) -> Self {
        let mut requests = Self {
            t1: Duration::ZERO,
            n1: 0,
            outstanding_max: outstanding_max(config),
            reports: 0,
            waiting: BTreeMap::new(),
            timers: BTreeSet::new(),
            sequence: first & SEQUENCE_MASK,
        };
        requests.reconfigure(config);
        requests
    }

    /// T1 and N1, of requests that wait already from their next repetition on.
    pub(crate) fn reconfigure(&mut self, config: &Config) {
        self.t1 = config.t1.max(Duration::from_millis(1));
        self.n1 = config.n1.max(1);
    }

    /// Send a request, written by `write` with the sequence number it is given. `false`: too many are outstanding, this one is no
    /// report, and nothing was sent.
    pub(crate) fn send(
        &mut self,
        now: Time,
        to: SocketAddr,
        purpose: Purpose,
        out: &mut Outbox,
        write: impl FnOnce(&mut Vec<u8>, u32),
    ) -> bool {
        let is_report = purpose.is_report();
        if !is_report && self.waiting.len() >= self.outstanding_max {
            return false;
        }
        self.reports += usize::from(is_report);
        let sequence = self.free_sequence();
        let datagram: Box<[u8]> = out.send(to, |bytes| write(bytes, sequence)).into();
        let due = now.after(self.t1);
        self.timers.insert((due, sequence));
        self.waiting.insert(
            sequence,
            Outstanding {
                to,
                purpose,
                datagram,
                sent: 1,
                due,
            },
        );
        true
    }

    /// Number of the last request.
    pub(crate) fn sequence(&self) -> u32 {
        self.sequence
    }

    /// Numbers go on behind this one.
    pub(crate) fn go_on(&mut self, sequence: u32) {
        self.sequence = sequence & SEQUENCE_MASK;
    }

    /// Terminates: fewer than half of all numbers are in use.
    fn free_sequence(&mut self) -> u32 {
        loop {
            self.sequence = (self.sequence + 1) & SEQUENCE_MASK;
            if !self.waiting.contains_key(&self.sequence) {
                return self.sequence;
            }
        }
    }

    /// The request that this response answers: same number, from where it was sent to, of the
    /// right type. It is then no longer outstanding.
    pub(crate) fn answered(
        &mut self,
        from: SocketAddr,
        sequence: u32,
        response: MessageType,
    ) -> Option<Purpose> {
        let request = self.waiting.get(&sequence)?;
        if request.to != from || request.purpose.response() != response {
            return None;
        }
        self.remove(sequence)
    }

    /// Its answer, if it comes, is of no request.
    pub(crate) fn remove(&mut self, sequence: u32) -> Option<Purpose> {
        let request = self.waiting.remove(&sequence)?;
        self.timers.remove(&(request.due, sequence));
        self.reports -= usize::from(request.purpose.is_report());
        Some(request.purpose)
    }

    /// Forget every request for which `unwanted` holds.
    pub(crate) fn cancel(&mut self, unwanted: impl Fn(Purpose) -> bool) {
        let Self {
            timers, reports, ..
        } = self;
        self.waiting.retain(|sequence, request| {
            let keep = !unwanted(request.purpose);
            if !keep {
                timers.remove(&(request.due, *sequence));
                *reports -= usize::from(request.purpose.is_report());
            }
            keep
        });
    }

    /// Whether a request for this purpose is outstanding.
    pub(crate) fn is_waiting(&self, purpose: Purpose) -> bool {
        self.waiting
            .values()
            .any(|request| request.purpose == purpose)
    }

    /// Handle one request whose T1 has run out; `None`: no more are due.
    pub(crate) fn fire(&mut self, now: Time, out: &mut Outbox) -> Option<Due> {
        let &(due, sequence) = self.timers.first()?;
        if due > now {
            return None;
        }
        let request = self.waiting.get_mut(&sequence)?;
        let purpose = request.purpose;
        if request.sent >= self.n1 {
            self.remove(sequence);
            return Some(Due::GivenUp(purpose));
        }
        request.sent += 1;
        self.timers.pop_first();
        request.due = now.after(self.t1);
        self.timers.insert((request.due, sequence));
        if let Purpose::Report(about) = purpose {
            return Some(Due::Late(about, sequence));
        }
        self.send_again(sequence, out).map(Due::Again)
    }

    /// Its octets once more.
    pub(crate) fn send_again(&self, sequence: u32, out: &mut Outbox) -> Option<Purpose> {
        let request = self.waiting.get(&sequence)?;
        out.send(request.to, |bytes| {
            bytes.extend_from_slice(&request.datagram)
        });
        Some(request.purpose)
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.timers.first().map(|(due, _)| *due)
    }

    /// Number of requests without an answer yet.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_are_no_reports_have_a_quarter_of_the_room() {
        let mut config = Config::default();
        config.limits.outstanding = 8;
        let (mut requests, mut out) = (Requests::new(&config, 1), Outbox::new());
        let mut send = |purpose| {
            let to = SocketAddr::from(([192, 0, 2, 1], 8805));
            requests.send(Time(0), to, purpose, &mut out, |octets, _| octets.push(0))
        };
        let about = About {
            peer: PeerId(1),
            seid: 1,
            report: ReportType::UPIR,
            usage: 0,
        };
        for _ in 0..reports_max(&config) {
            assert!(send(Purpose::Report(about)));
        }
        let others = (2..9).filter(|id| send(Purpose::Heartbeat(PeerId(*id))));
        assert_eq!(others.count(), 2);
        // Forgotten ones make room again.
        requests.cancel(|purpose| purpose == Purpose::Heartbeat(PeerId(2)));
        requests.cancel(|purpose| matches!(purpose, Purpose::Report(_)));
        assert_eq!((requests.len(), requests.reports), (1, 0));
    }
}
