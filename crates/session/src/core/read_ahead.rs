//! Memory of sessions, read ahead for many requests at once.
//!
//! From a SEID to the session, its rules and its entries, each step waits for memory when there are
//! many sessions. Requests do not wait for each other: where a step is taken for all of them before
//! the next one is, the waits overlap.

use std::hint::black_box;
use std::net::SocketAddr;

use compiled::Tables;
use pfcp::Header;

use crate::core::Core;
use crate::core::expected::Expected;
use crate::exchange::answers::Fingerprint;
use crate::exchange::incoming::Incoming;

impl<T: Tables> Core<T> {
    /// Read what [`Core::receive`] of these datagrams will read of cached answers and of sessions.
    /// This changes nothing but how long it takes then.
    pub fn expect<'d>(&mut self, datagrams: impl Iterator<Item = (SocketAddr, &'d [u8])>) {
        let mut expected = std::mem::take(&mut self.expected);
        expected.keys.clear();
        expected.places.clear();
        for (from, datagram) in datagrams {
            let Ok((header, _)) = Header::decode(datagram) else {
                continue;
            };
            let key = Fingerprint::new(from, datagram);
            expected.keys.push((self.node.peers().by_source(from), key));
            let place = header.seid.and_then(|seid| self.shard.place_of(seid));
            expected.places.extend(place);
        }
        self.read_ahead(&expected);
        self.expected = expected;
    }

    /// Places of the sessions that datagrams are about of which [`Self::expect`] has heard last.
    pub fn expected(&self) -> impl Iterator<Item = u32> + '_ {
        self.expected.places.iter().map(|place| place.index())
    }

    /// Read the session that a request is about, just before the request is looked for among those that were answered: neither
    /// waits for the other.
    pub(super) fn read_ahead_of(&self, request: &Incoming) {
        let place = request.seid.and_then(|seid| self.shard.place_of(seid));
        black_box(place.map(|place| self.shard.touch_session(place)));
    }

    fn read_ahead(&self, expected: &Expected) {
        let Expected { keys, places } = expected;
        let mut read = 0;
        for &(of, key) in keys {
            read ^= self.node.n4().touch(of, key);
        }
        black_box(read ^ self.shard.touch(places));
    }
}
