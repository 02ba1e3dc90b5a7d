//! Requests that the data path has served beside the core of a process before this one.

use std::collections::HashMap;
use std::net::SocketAddr;

use pfcp::Header;

use crate::exchange::answers::Fingerprint;
use crate::exchange::incoming::Incoming;

/// Requests of that kind that were not in what was kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServedBefore {
    /// They are carried out now.
    pub carried_out: usize,
    /// Their sessions are there and refuse them, though their SMFs have another answer.
    pub refused: usize,
}

/// Those of these requests, octets and where each came from, that sessions may not know: one is as the last that was carried out for it
/// says, and so are all before that.
///
/// last: that request, by our SEID; `None`: there is no such session
pub(super) fn unknown(
    requests: &[(SocketAddr, Vec<u8>)],
    last: impl Fn(u64) -> Option<Fingerprint>,
) -> impl Iterator<Item = (u64, Incoming, &[u8])> {
    let read = requests.iter().filter_map(|(from, octets)| {
        let (header, _) = Header::decode(octets).ok()?;
        let incoming = Incoming::new(*from, &header, octets);
        Some((incoming.seid?, incoming, octets.as_slice()))
    });
    // Numbers of the first that each may not know.
    let mut first: HashMap<u64, usize> = HashMap::new();
    for (number, (seid, incoming, _)) in read.clone().enumerate() {
        match last(seid) {
            Some(request) if request == incoming.fingerprint => first.insert(seid, number + 1),
            Some(_) => None,
            None => first.insert(seid, usize::MAX),
        };
    }
    let numbered = read.enumerate();
    let unknown = numbered.filter(move |(number, (seid, ..))| {
        let first = first.get(seid).copied().unwrap_or(0);
        *number >= first
    });
    unknown.map(|(_, request)| request)
}
