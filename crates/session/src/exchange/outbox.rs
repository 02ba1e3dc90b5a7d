//! Output of the core: datagrams and Echo Requests to send, events worth a line in the log, usage for its own log.

use std::net::SocketAddr;
use std::ops::Range;

use crate::base::event::Event;
use crate::base::gtpu::Ends;
use crate::usage::report::UsageRecord;

/// Filled by the core, emptied by its caller. One buffer holds all datagrams, so that a message
/// costs no allocation once it has grown.
#[derive(Debug, Default)]
pub struct Outbox {
    bytes: Vec<u8>,
    datagrams: Vec<(SocketAddr, Range<usize>)>,
    /// Places of answers that were given before, in their order.
    repeats: Vec<usize>,
    events: Vec<Event>,
    echoes: Vec<(Ends, [u8; 12])>,
    usage: Vec<UsageRecord>,
}

impl Outbox {
    /// Empty.
    pub fn new() -> Self {
        Self::default()
    }

    /// The datagrams, in the order in which they are to be sent.
    pub fn iter(&self) -> impl Iterator<Item = (SocketAddr, &[u8])> {
        self.datagrams
            .iter()
            .map(|(to, range)| (*to, &self.bytes[range.clone()]))
    }

    /// Number of datagrams.
    pub fn len(&self) -> usize {
        self.datagrams.len()
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.datagrams.is_empty()
    }

    /// Whether the datagram in this place is an answer that was given before, to a request that has come again.
    pub fn is_repeat(&self, place: usize) -> bool {
        self.repeats.binary_search(&place).is_ok()
    }

    /// Events, in the order in which they happened.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Usage for its log: each report once, when it is known whether the SMF has it.
    pub fn usage(&self) -> &[UsageRecord] {
        &self.usage
    }

    pub(crate) fn take_usage(&mut self, records: &mut Vec<UsageRecord>) {
        self.usage.append(records);
    }

    /// GTP-U Echo Requests, each with its ends, theirs first: from our address to theirs, port 2152.
    pub fn echoes(&self) -> impl Iterator<Item = (Ends, &[u8])> {
        self.echoes
            .iter()
            .map(|(ends, octets)| (*ends, octets.as_slice()))
    }

    pub(crate) fn echo(&mut self, ends: Ends, octets: [u8; 12]) {
        self.echoes.push((ends, octets));
    }

    /// Forget everything, capacity kept.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.datagrams.clear();
        self.repeats.clear();
        self.events.clear();
        self.echoes.clear();
        self.usage.clear();
    }

    pub(crate) fn event(&mut self, event: Event) {
        self.events.push(event);
    }

    /// Append one datagram to `to` as `write` leaves it, and give it back. What is empty is not
    /// sent: a message that was too long for PFCP is taken back by its writer.
    pub(crate) fn send(&mut self, to: SocketAddr, write: impl FnOnce(&mut Vec<u8>)) -> &[u8] {
        let start = self.bytes.len();
        write(&mut self.bytes);
        let range = start..self.bytes.len();
        if !range.is_empty() {
            self.datagrams.push((to, range.clone()));
        }
        &self.bytes[range]
    }

    /// The datagrams from this place on are not sent: their receivers have them.
    pub(crate) fn take_back(&mut self, place: usize) {
        if let Some((_, range)) = self.datagrams.get(place) {
            self.bytes.truncate(range.start);
        }
        self.datagrams.truncate(place);
        let before = self.repeats.partition_point(|repeat| *repeat < place);
        self.repeats.truncate(before);
    }

    /// Append an answer that was given before.
    pub(crate) fn repeat(&mut self, to: SocketAddr, (front, back): (&[u8], &[u8])) {
        let place = self.datagrams.len();
        let sent = self.send(to, |bytes| {
            bytes.extend_from_slice(front);
            bytes.extend_from_slice(back);
        });
        if !sent.is_empty() {
            self.repeats.push(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_are_known_by_their_places() {
        let to = SocketAddr::from(([192, 0, 2, 1], 8805));
        let mut out = Outbox::new();
        for _ in 0..2 {
            out.send(to, |octets| octets.push(1));
            out.repeat(to, (&[], &[]));
            out.repeat(to, (&[2], &[3]));
            out.send(to, |octets| octets.push(4));
            let sent: Vec<_> = out.iter().map(|(_, octets)| octets.to_vec()).collect();
            assert_eq!(sent, [vec![1], vec![2, 3], vec![4]]);
            assert_eq!([0, 1, 2].map(|at| out.is_repeat(at)), [false, true, false]);
            out.clear();
            assert!(!out.is_repeat(1));
        }
    }
}
