//! Packets that the fast path cannot finish (`TP_EVENT_PACKET`): what is missing is done here, then the same
//! pipeline runs over the same tables and says where they go.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::grace::Bystander;
use crate::host::{Host, Run};
use crate::inet;
use crate::reassembly::{Bounds, Fragment, Key, Loss, Losses, Reassembler, Whole};
use crate::stats::DROP_REASONS;
use crate::verdict::Verdict;

/// `TP_EVENT_SEND`
const EVENT_SEND: u32 = 1;
/// `TP_EVENT_PACKET`
const EVENT_PACKET: u32 = 2;
/// `TP_EVENT_GTPU`
const EVENT_GTPU: u32 = 3;
/// `sizeof(struct tp_event)`
const EVENT_HEADER_LEN: usize = 16;
/// `sizeof(struct tp_task)`
const TASK_LEN: usize = 8;

/// `TP_TASK_OUTER_FRAGMENT`
const TASK_OUTER_FRAGMENT: u8 = 1;

/// A packet that finishing makes asks for more at most so often: one put together out of fragments may
/// have to be cut again, or tell its sender that it is too long.
const ROUNDS: usize = 4;

const UPLINK: usize = 0;

/// An IP packet to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// Out of this interface; 0: as the kernel's routes say.
    pub ifindex: u32,
    /// From its IP header on.
    pub packet: Vec<u8>,
}

/// A record of the event ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event<'a> {
    kind: u32,
    ifindex: u32,
    port: u32,
    data: &'a [u8],
}

impl<'a> Event<'a> {
    pub(crate) fn parse(record: &'a [u8]) -> Option<Self> {
        let word = |at: usize| -> Option<u32> {
            Some(u32::from_ne_bytes(record.get(at..at + 4)?.try_into().ok()?))
        };
        Some(Self {
            kind: word(0)?,
            ifindex: word(4)?,
            port: word(12)?,
            data: record.get(EVENT_HEADER_LEN..)?.get(..word(8)? as usize)?,
        })
    }
}

/// A record that this process should not have been given: a fault of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// Finishes packets. Belongs to one thread; bounded in memory, never waits.
#[derive(Debug)]
pub struct Finisher {
    host: Host,
    bystander: Bystander,
    outer: Reassembler,
    losses: Losses,
    messages: Vec<Vec<u8>>,
}

impl Finisher {
    pub(crate) fn new(host: Host, bystander: Bystander) -> Self {
        Self {
            host,
            bystander,
            outer: Reassembler::new(Bounds::default()),
            losses: Losses::new(),
            messages: Vec::new(),
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
        let done = self.take(record, now_ns, ROUNDS, out);
        self.count_losses();
        done
    }

    /// GTP-U messages for the control plane that came since they were last taken, each from its IP
    /// header on.
    pub fn messages(&mut self) -> impl Iterator<Item = Vec<u8>> + '_ {
        self.messages.drain(..)
    }

    /// Give up what has waited too long. Call it now and then while [`Self::waits`].
    pub fn expire(&mut self, now_ns: u64) {
        self.outer.expire(now_ns, &mut self.losses);
        self.count_losses();
    }

    /// Whether packets wait for others.
    pub fn waits(&self) -> bool {
        !self.outer.is_empty()
    }

    fn take(
        &mut self,
        record: &[u8],
        now_ns: u64,
        rounds: usize,
        out: &mut Vec<Outgoing>,
    ) -> Result<(), Malformed> {
        let event = Event::parse(record).ok_or(Malformed)?;
        match event.kind {
            EVENT_SEND => {
                out.push(Outgoing {
                    ifindex: event.ifindex,
                    packet: event.data.to_vec(),
                });
                Ok(())
            }
            EVENT_GTPU => {
                self.messages.push(event.data.to_vec());
                Ok(())
            }
            EVENT_PACKET => {
                let (task, data) = event.data.split_at_checked(TASK_LEN).ok_or(Malformed)?;
                match task[0] {
                    TASK_OUTER_FRAGMENT => {
                        self.outer_fragment(event.port, data, now_ns, rounds, out)
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

    /// Through the pipeline, as if it had come in like this.
    fn run(
        &mut self,
        port: u32,
        frame: &[u8],
        now_ns: u64,
        rounds: usize,
        out: &mut Vec<Outgoing>,
    ) -> Result<(), Malformed> {
        let Run {
            verdict,
            frame,
            event,
            ..
        } = {
            let _looking = self.bystander.look();
            self.host.run(port as usize, frame, now_ns)
        };
        let ifindex = match verdict {
            // Not ours after all: up the kernel's own stack.
            Verdict::Pass => Some(0),
            Verdict::Answer => Some(self.host.ifindex(port)),
            Verdict::Redirect(port) => Some(self.host.ifindex(port)),
            Verdict::Slow | Verdict::Drop(_) => None,
        };
        if let Some(ifindex) = ifindex {
            let packet = frame.get(l3_of(&frame)..).ok_or(Malformed)?.to_vec();
            out.push(Outgoing { ifindex, packet });
        }
        if event.is_empty() || rounds == 0 {
            return Ok(());
        }
        self.take(&event, now_ns, rounds - 1, out)
    }

    fn count_losses(&mut self) {
        for (port, loss, packets) in self.losses.drain(..) {
            let name = match loss {
                Loss::Timeout => "fragment_timeout",
                Loss::Malformed => "fragment_malformed",
                Loss::Limit => "fragment_limit",
            };
            let reason = DROP_REASONS.iter().position(|known| known.name == name);
            if let Some(reason) = reason {
                self.host.count_drops(port, UPLINK, reason + 1, packets);
            }
        }
    }
}

/// Offset of the IP header, behind Ethernet and its tags.
fn l3_of(frame: &[u8]) -> usize {
    let mut at = 14;
    for _ in 0..2 {
        match frame.get(at - 2..at) {
            Some([0x81, 0x00] | [0x88, 0xa8]) => at += 4,
            _ => break,
        }
    }
    at
}

/// A fragment in its frame.
fn read_fragment(port: u32, frame: &[u8]) -> Option<(Key, Fragment<'_>)> {
    let l3 = l3_of(frame);
    match frame.get(l3)? >> 4 {
        4 => read_fragment4(port, frame, l3),
        6 => read_fragment6(port, frame, l3),
        _ => None,
    }
}

fn read_fragment4(port: u32, frame: &[u8], l3: usize) -> Option<(Key, Fragment<'_>)> {
    let ip = frame.get(l3..)?;
    let header_len = usize::from(ip.first()? & 15) * 4;
    let header = ip.get(..header_len.max(20))?;
    let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let bits = u16::from_be_bytes([header[6], header[7]]);
    let address =
        |at: usize| Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]);
    let key = Key {
        port,
        source: address(12).into(),
        destination: address(16).into(),
        id: u16::from_be_bytes([header[4], header[5]]).into(),
        proto: header[9],
    };
    let fragment = Fragment {
        header: &frame[..l3 + header.len()],
        payload: ip.get(header.len()..total)?,
        offset: usize::from(bits & 0x1fff) * 8,
        more: bits & 0x2000 != 0,
    };
    Some((key, fragment))
}

const IP6_LEN: usize = 40;
const IP6_FRAGMENT: u8 = 44;
/// Hop-by-hop options, routing and destination options: what may stand in front of a fragment header.
const IP6_IN_FRONT: [u8; 3] = [0, 43, 60];
/// `TP_IP6_HEADERS_MAX`
const IP6_HEADERS_MAX: usize = 8;

/// Where the fragment header of an IPv6 packet stands, and where the octet that names it does.
fn find_fragment6(ip: &[u8]) -> Option<(usize, usize)> {
    let (mut at, mut named) = (IP6_LEN, 6);
    for _ in 0..IP6_HEADERS_MAX {
        match *ip.get(named)? {
            IP6_FRAGMENT => return Some((at, named)),
            next if IP6_IN_FRONT.contains(&next) => {
                named = at;
                at += (usize::from(*ip.get(at + 1)?) + 1) * 8;
            }
            _ => return None,
        }
    }
    None
}

fn read_fragment6(port: u32, frame: &[u8], l3: usize) -> Option<(Key, Fragment<'_>)> {
    let ip = frame.get(l3..)?;
    let header = ip.get(..IP6_LEN)?;
    let total = IP6_LEN + usize::from(u16::from_be_bytes([header[4], header[5]]));
    let (at, _) = find_fragment6(ip)?;
    let own = ip.get(at..at + 8)?;
    let address = |at: usize| -> Option<Ipv6Addr> {
        let octets: [u8; 16] = header.get(at..at + 16)?.try_into().ok()?;
        Some(octets.into())
    };
    let bits = u16::from_be_bytes([own[2], own[3]]);
    let key = Key {
        port,
        source: address(8)?.into(),
        destination: address(24)?.into(),
        id: u32::from_be_bytes([own[4], own[5], own[6], own[7]]),
        // Fragments of one packet may differ in it (RFC 8200, 4.5); the first one's counts.
        proto: IP6_FRAGMENT,
    };
    let fragment = Fragment {
        header: &frame[..l3 + at + 8],
        payload: ip.get(at + 8..total)?,
        offset: usize::from(bits & 0xfff8),
        more: bits & 1 != 0,
    };
    Some((key, fragment))
}

/// The frame that would have come without fragmentation.
fn frame_of(whole: Whole) -> Option<Vec<u8>> {
    let l3 = l3_of(&whole.header);
    match whole.header.get(l3)? >> 4 {
        4 => frame_of4(whole, l3),
        _ => frame_of6(whole, l3),
    }
}

fn frame_of6(whole: Whole, l3: usize) -> Option<Vec<u8>> {
    let mut frame = whole.header;
    let (at, named) = find_fragment6(frame.get(l3..)?)?;
    let next = *frame.get(l3 + at)?;
    *frame.get_mut(l3 + named)? = next;
    frame.truncate(l3 + at);
    let payload_len = u16::try_from(at - IP6_LEN + whole.payload.len()).ok()?;
    frame
        .get_mut(l3 + 4..l3 + 6)?
        .copy_from_slice(&payload_len.to_be_bytes());
    frame.extend(whole.payload);
    Some(frame)
}

fn frame_of4(whole: Whole, l3: usize) -> Option<Vec<u8>> {
    let mut frame = whole.header;
    let total = u16::try_from(frame.len() - l3 + whole.payload.len()).ok()?;
    let ip = frame.get_mut(l3..)?;
    ip[2..4].copy_from_slice(&total.to_be_bytes());
    ip[6..8].fill(0);
    inet::set_header_checksum(ip);
    frame.extend(whole.payload);
    Some(frame)
}
