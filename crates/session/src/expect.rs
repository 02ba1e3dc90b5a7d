//! Memory of sessions, read ahead for many requests at once.
//!
//! From a SEID to the session, its rules and its entries, each step waits for memory when there are
//! many sessions. Requests do not wait for each other: where a step is taken for all of them before
//! the next one is, the waits overlap.

use std::hint::black_box;
use std::net::SocketAddr;

use pfcp::Header;

use crate::answers::Fingerprint;
use crate::compiled::Tables;
use crate::core::Core;

impl<T: Tables> Core<T> {
    /// Read what [`Core::receive`] of these datagrams, in the same order, will read of cached answers
    /// and of sessions. This changes nothing but how long it takes then.
    pub fn expect<'d>(&mut self, datagrams: impl Iterator<Item = (SocketAddr, &'d [u8])>) {
        self.expected.clear();
        let mut read = 0;
        for (from, datagram) in datagrams {
            let Ok((header, _)) = Header::decode(datagram) else {
                continue;
            };
            let key = Fingerprint::new(from, datagram).within(self.scope(from));
            read ^= self.answers.touch(key);
            if let Some((place, touched)) = header.seid.and_then(|seid| self.sessions.touch(seid)) {
                self.expected.push(place);
                read ^= touched;
            }
        }
        for &place in &self.expected {
            read ^= self.sessions.touch_rules(place, &self.tables);
        }
        black_box(read);
    }
}
