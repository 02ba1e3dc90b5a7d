//! PFCP load: a client that keeps a window of requests outstanding and times each answer.

use std::io::{IoSlice, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use hdrhistogram::Histogram;
use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, MultiHeaders, SockaddrStorage, recvmsg,
    sendmmsg, sendmsg, setsockopt, sockopt,
};

use super::requests::{Field, Template};

/// Results of one run of requests.
pub(super) struct Outcome {
    /// Requests answered with cause 1.
    pub(super) accepted: u32,
    /// From first request to last answer.
    pub(super) took: Duration,
    /// Request to answer, nanoseconds. Meaningful at window 1.
    pub(super) latency: Histogram<u64>,
    /// Requests that were never answered.
    pub(super) lost: u32,
}

/// An SMF as far as load needs one.
pub(super) struct Client {
    socket: UdpSocket,
    sequence: u32,
    /// Answers that came together, as a network card would hand them over.
    replies: Vec<u8>,
    /// The part of `replies` that has not been looked at, and how long each answer is.
    unread: Range<usize>,
    segment: usize,
    /// Requests of one size leave together, and so may come in.
    together: bool,
    headers: MultiHeaders<SockaddrStorage>,
}

const SESSION_REPORT_REQUEST: u8 = 56;
/// Socket buffer: room for the answers of the largest window.
const SOCKET_BUFFER: usize = 64 << 20;
/// Messages in one system call.
const BATCH: usize = 64;
/// The largest message that goes in one packet; longer ones are fragmented, and not put together.
const SEGMENT_MAX: usize = 1472;
/// Octets that may be put together.
const TOGETHER_MAX: usize = 65_507;
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

impl Client {
    /// `socket` is bound in the SMF's namespace.
    pub(super) fn new(socket: UdpSocket, upf: SocketAddr) -> Result<Self> {
        setsockopt(&socket, sockopt::RcvBufForce, &SOCKET_BUFFER)?;
        setsockopt(&socket, sockopt::SndBufForce, &SOCKET_BUFFER)?;
        setsockopt(&socket, sockopt::UdpGroSegment, &true)?;
        socket.connect(upf)?;
        Ok(Self {
            socket,
            sequence: 1,
            replies: vec![0; 65536],
            unread: 0..0,
            segment: 0,
            together: true,
            headers: MultiHeaders::preallocate(BATCH, None),
        })
    }

    /// From now on each request is a datagram of its own, all the way.
    pub(super) fn send_one_by_one(&mut self) {
        self.together = false;
    }

    /// Set up the association.
    pub(super) fn associate(&mut self, request: impl Fn(u32) -> Vec<u8>) -> Result<()> {
        self.socket.send(&request(self.sequence))?;
        self.sequence += 1;
        let got = self.receive()?.context("no answer to Association Setup")?;
        ensure!(
            got.message_type == 6,
            "Association Setup was answered by type {}",
            got.message_type
        );
        ensure!(
            got.cause == Some(1),
            "Association Setup was refused: cause {:?}",
            got.cause
        );
        Ok(())
    }

    /// Answer Session Report Requests until `wanted` has come or none comes any more. `up_seid`: the UPF's SEID of
    /// the session that we call so; `told`: session, and octets in its Usage Reports.
    pub(super) fn answer_reports(
        &mut self,
        up_seid: impl Fn(u64) -> u64,
        mut told: impl FnMut(u64, u64),
        mut wanted: impl FnMut() -> bool,
    ) -> Result<()> {
        let mut answers = Vec::new();
        while !wanted() {
            let Some(report) = self.receive()? else {
                return Ok(());
            };
            ensure!(
                report.message_type == SESSION_REPORT_REQUEST,
                "message of type {} instead of a report",
                report.message_type
            );
            told(report.seid, report.octets);
            answers.push(accept_report(up_seid(report.seid), report.sequence));
            if self.unread.is_empty() || answers.len() == BATCH {
                self.send(&answers)?;
                answers.clear();
            }
        }
        self.send(&answers)
    }

    /// The next answer; `None` after [`ANSWER_TIMEOUT`].
    ///
    /// It does not sleep meanwhile: the UPF would pay for waking it, the more often the slower it is.
    fn receive(&mut self) -> Result<Option<Answer>> {
        let since = Instant::now();
        loop {
            if self.unread.is_empty() && !self.fill()? {
                if since.elapsed() > ANSWER_TIMEOUT {
                    return Ok(None);
                }
                continue;
            }
            let end = (self.unread.start + self.segment).min(self.unread.end);
            let datagram = &self.replies[self.unread.start..end];
            self.unread.start = end;
            let Some(answer) = Answer::parse(datagram) else {
                bail!("an answer that is not PFCP: {datagram:02x?}");
            };
            // The UPF's own heartbeats are not answers.
            if answer.message_type != 1 {
                return Ok(Some(answer));
            }
        }
    }

    /// Take what waits. `false`: nothing.
    fn fill(&mut self) -> Result<bool> {
        let flags = MsgFlags::MSG_DONTWAIT;
        let mut control = nix::cmsg_space!(i32);
        let mut slices = [IoSliceMut::new(&mut self.replies)];
        let fd = self.socket.as_raw_fd();
        let message = match recvmsg::<()>(fd, &mut slices, Some(&mut control), flags) {
            Ok(message) => message,
            Err(Errno::EAGAIN) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let segment = message.cmsgs()?.find_map(|cmsg| match cmsg {
            ControlMessageOwned::UdpGroSegments(size) => usize::try_from(size).ok(),
            _ => None,
        });
        self.segment = segment.unwrap_or(message.bytes).max(1);
        self.unread = 0..message.bytes;
        Ok(true)
    }

    /// Send messages in as few system calls as there may be, so that the UPF sees a burst and not
    /// the pace of this program. Messages of one size reach it as a network card hands them over
    /// that puts datagrams of one sender together.
    fn send(&mut self, messages: &[Vec<u8>]) -> Result<()> {
        for batch in messages.chunks(BATCH) {
            let size = batch[0].len();
            let fits = self.together && size <= SEGMENT_MAX && size * batch.len() <= TOGETHER_MAX;
            if fits && batch.len() > 1 && batch.iter().all(|message| message.len() == size) {
                self.send_together(batch, size)?;
            } else {
                self.send_each(batch)?;
            }
        }
        Ok(())
    }

    fn send_together(&self, batch: &[Vec<u8>], size: usize) -> Result<()> {
        let bytes = batch.concat();
        let cut = [ControlMessage::UdpGsoSegments(&u16::try_from(size)?)];
        let (fd, slices) = (self.socket.as_raw_fd(), [IoSlice::new(&bytes)]);
        let sent = sendmsg::<()>(fd, &slices, &cut, MsgFlags::empty(), None)?;
        ensure!(
            sent == bytes.len(),
            "{sent} of {} bytes were sent",
            bytes.len()
        );
        Ok(())
    }

    fn send_each(&mut self, batch: &[Vec<u8>]) -> Result<()> {
        let slices: Vec<[IoSlice<'_>; 1]> = batch.iter().map(|m| [IoSlice::new(m)]).collect();
        let addresses = vec![None; batch.len()];
        let (fd, flags) = (self.socket.as_raw_fd(), MsgFlags::empty());
        let sent = sendmmsg(fd, &mut self.headers, &slices, addresses, [], flags)?.count();
        ensure!(
            sent == batch.len(),
            "{sent} of {} messages were sent",
            batch.len()
        );
        Ok(())
    }

    /// Send `count` requests from `template`, `window` of them outstanding at once. `value` gives
    /// the fields of request `i`; `answered` is told of each answer to request `i`.
    pub(super) fn run(
        &mut self,
        template: &Template,
        count: u32,
        window: u32,
        value: impl Fn(u32, Field) -> u64,
        mut answered: impl FnMut(u32, &Answer),
    ) -> Result<Outcome> {
        let first = self.sequence;
        ensure!(
            first as u64 + u64::from(count) < 0xff_ffff,
            "sequence numbers ran out"
        );
        let mut sent_at = vec![Instant::now(); window as usize];
        let mut latency = Histogram::new_with_bounds(1, 60_000_000_000, 3)?;
        let (mut sent, mut received, mut accepted) = (0, 0, 0);
        let mut messages: Vec<Vec<u8>> = Vec::new();
        let start = Instant::now();
        let mut last = start;
        while received < count {
            // Half a window at a time.
            if sent < count && sent - received <= window / 2 {
                let burst = (window - (sent - received)).min(count - sent);
                messages.resize_with(burst as usize, Vec::new);
                for message in &mut messages {
                    message.clear();
                    template.write(message, |field| match field {
                        Field::Sequence => u64::from(first + sent),
                        other => value(sent, other),
                    });
                    sent_at[(sent % window) as usize] = Instant::now();
                    sent += 1;
                }
                self.send(&messages)?;
            }
            let Some(answer) = self.receive()? else {
                break;
            };
            last = Instant::now();
            let index = answer.sequence.wrapping_sub(first);
            if index < count {
                latency.saturating_record(
                    (last - sent_at[(index % window) as usize]).as_nanos() as u64
                );
                accepted += u32::from(answer.cause == Some(1));
                answered(index, &answer);
                received += 1;
            }
        }
        self.sequence += count;
        Ok(Outcome {
            accepted,
            took: last - start,
            latency,
            lost: count - received,
        })
    }
}

/// Session Report Response: accepted.
fn accept_report(seid: u64, sequence: u32) -> Vec<u8> {
    let mut message = vec![0x21, SESSION_REPORT_REQUEST + 1, 0, 17];
    message.extend_from_slice(&seid.to_be_bytes());
    message.extend_from_slice(&(sequence << 8).to_be_bytes());
    message.extend_from_slice(&[0, 19, 0, 1, 1]);
    message
}

/// Total octets of the Volume Measurement in a Usage Report.
fn octets(usage_report: &[u8]) -> Option<u64> {
    let mut rest = usage_report;
    while let [t1, t2, l1, l2, tail @ ..] = rest {
        let len = usize::from(u16::from_be_bytes([*l1, *l2]));
        let value = tail.get(..len)?;
        if u16::from_be_bytes([*t1, *t2]) == 66 && value.first()? & 1 == 1 {
            return Some(u64::from_be_bytes(value.get(1..9)?.try_into().ok()?));
        }
        rest = &tail[len..];
    }
    None
}

/// The parts of an answer, or of a report, that load looks at, read by hand.
pub(super) struct Answer {
    /// TS 29.244, 7.1.
    pub(super) message_type: u8,
    /// Of the request.
    pub(super) sequence: u32,
    /// Cause IE, if any.
    pub(super) cause: Option<u8>,
    /// The UPF's F-SEID, if any.
    pub(super) up_seid: Option<u64>,
    /// Of the header; zero: none.
    seid: u64,
    /// Of all its Usage Reports.
    octets: u64,
}

impl Answer {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let has_seid = bytes.first()? & 1 == 1;
        let at = if has_seid { 12 } else { 4 };
        let sequence = bytes.get(at..at + 3)?;
        let sequence = u32::from_be_bytes([0, sequence[0], sequence[1], sequence[2]]);
        let seid = bytes.get(4..12).filter(|_| has_seid);
        let mut answer = Self {
            seid: seid.map_or(Some(0), |seid| {
                Some(u64::from_be_bytes(seid.try_into().ok()?))
            })?,
            octets: 0,
            message_type: *bytes.get(1)?,
            sequence,
            cause: None,
            up_seid: None,
        };
        let mut rest = bytes.get(at + 4..)?;
        while let [t1, t2, l1, l2, tail @ ..] = rest {
            let len = usize::from(u16::from_be_bytes([*l1, *l2]));
            let value = tail.get(..len)?;
            match u16::from_be_bytes([*t1, *t2]) {
                19 => answer.cause = value.first().copied(),
                57 => answer.up_seid = Some(u64::from_be_bytes(value.get(1..9)?.try_into().ok()?)),
                80 => answer.octets += octets(value)?,
                _ => {}
            }
            rest = &tail[len..];
        }
        Some(answer)
    }
}
