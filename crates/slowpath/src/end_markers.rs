//! End Markers (TS 29.281, 7.3.2): the last word in a tunnel that a path switch has left.
//!
//! A marker must not overtake packets that were under way when the tunnel was left, so a thread of its
//! own waits for a grace period and then sends. Some ten milliseconds; all that come meanwhile share
//! the next one.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use compiled::EndedTunnel;
use tables::{Barrier, TunnelEnds};

use crate::inet;
use crate::outgoing::Outgoing;
use crate::sockets::RawSockets;

/// Markers that wait. A node that moves more UEs within one grace period loses the others' markers;
/// gNBs then wait for their own timers.
const WAITING_MAX: usize = 16_384;

/// Counters of End Markers.
#[derive(Debug, Default)]
pub struct EndMarkerCounters {
    sent: AtomicU64,
    failed: AtomicU64,
}

impl EndMarkerCounters {
    /// Handed to the kernel.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Refused by the kernel, or too many at once.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }
}

/// The thread that sends them. It ends when this is dropped and what waits is sent.
#[derive(Debug)]
pub struct EndMarkers {
    waiting: SyncSender<Outgoing>,
    counters: Arc<EndMarkerCounters>,
}

impl EndMarkers {
    /// Sockets in the network namespace of the calling thread; needs `CAP_NET_RAW`.
    /// `barrier`: of the packets that markers must not overtake; `longest_wait`: of those that wait to keep to a rate.
    pub fn start(barrier: Barrier, longest_wait: Duration) -> io::Result<Self> {
        let sockets = RawSockets::open()?;
        let (waiting, markers) = sync_channel(WAITING_MAX);
        let counters = Arc::<EndMarkerCounters>::default();
        thread::Builder::new().name("end-markers".into()).spawn({
            let counters = Arc::clone(&counters);
            move || send_all(&sockets, (&barrier, longest_wait), &markers, &counters)
        })?;
        Ok(Self { waiting, counters })
    }

    /// Counters, shared with those who show them.
    pub fn counters(&self) -> Arc<EndMarkerCounters> {
        Arc::clone(&self.counters)
    }

    fn send(&self, marker: Outgoing) {
        if self.waiting.try_send(marker).is_err() {
            self.counters.failed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl TunnelEnds for EndMarkers {
    fn left(&self, tunnel: &EndedTunnel, ifindex: Option<u32>) {
        let packet = end_marker(tunnel.teid, tunnel.local, tunnel.peer);
        if let Some(packet) = packet {
            let ifindex = ifindex.unwrap_or(0);
            self.send(Outgoing::by_kernel(ifindex, packet));
        }
    }
}

fn send_all(
    sockets: &RawSockets,
    (barrier, longest_wait): (&Barrier, Duration),
    markers: &Receiver<Outgoing>,
    counters: &EndMarkerCounters,
) {
    let mut batch = Vec::new();
    while let Ok(first) = markers.recv() {
        batch.push(first);
        batch.extend(markers.try_iter());
        if let Err(error) = barrier.wait() {
            tracing::error!(%error, "membarrier failed; End Markers may overtake packets");
        }
        thread::sleep(longest_wait);
        for marker in batch.drain(..) {
            let counter = match sockets.send(&marker) {
                Ok(()) => &counters.sent,
                Err(error) => {
                    tracing::debug!(%error, "End Marker not sent");
                    &counters.failed
                }
            };
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The IP packet of an End Marker; `None`: there are no tunnels between such addresses.
fn end_marker(teid: u32, local: IpAddr, peer: IpAddr) -> Option<Vec<u8>> {
    let mut packet = match (local, peer) {
        (IpAddr::V4(local), IpAddr::V4(peer)) => header4(local, peer, 16),
        (IpAddr::V6(local), IpAddr::V6(peer)) => header6(local, peer, 16, teid),
        _ => return None,
    };
    let udp = packet.len();
    packet.extend([0x08, 0x68, 0x08, 0x68, 0, 16, 0, 0]);
    packet.extend([0x30, 254, 0, 0]);
    packet.extend(teid.to_be_bytes());
    if local.is_ipv6() {
        let sum = udp6_checksum(&packet[udp - 32..]);
        packet[udp + 6..udp + 8].copy_from_slice(&sum.to_be_bytes());
    }
    Some(packet)
}

/// RFC 8200, 8.1. From the addresses on; the packet carries UDP alone.
fn udp6_checksum(octets: &[u8]) -> u16 {
    const UDP: u8 = 17;
    let len = u8::try_from(octets.len() - 32).unwrap_or(u8::MAX);
    let pseudo = [octets, &[0, 0, 0, len, 0, 0, 0, UDP]].concat();
    match inet::checksum(&pseudo) {
        0 => 0xffff,
        sum => sum,
    }
}

/// As the pipeline writes it: TTL 64, DF, no identification. The kernel puts the checksum in.
fn header4(local: Ipv4Addr, peer: Ipv4Addr, payload: u8) -> Vec<u8> {
    let mut header = vec![0x45, 0, 0, 20 + payload, 0, 0, 0x40, 0, 64, 17, 0, 0];
    header.extend(local.octets());
    header.extend(peer.octets());
    header
}

/// With the flow label of the tunnel's packets, so that the marker takes their way (`tp_put_outer_ip6()`).
fn header6(local: Ipv6Addr, peer: Ipv6Addr, payload: u8, teid: u32) -> Vec<u8> {
    let label = teid.wrapping_mul(0x9e37_79b1) >> 12;
    let mut header = (6 << 28 | label).to_be_bytes().to_vec();
    header.extend([0, payload, 17, 64]);
    header.extend(local.octets());
    header.extend(peer.octets());
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_is_a_gtpu_header_and_nothing_else() {
        let [local, peer] = [[10, 3, 0, 1], [10, 3, 1, 1]].map(|octets| IpAddr::V4(octets.into()));
        let packet = end_marker(0x1122_3344, local, peer).unwrap();
        assert_eq!(packet.len(), 36);
        assert_eq!(packet[12..20], [10, 3, 0, 1, 10, 3, 1, 1]);
        assert_eq!(
            packet[20..],
            [
                8, 0x68, 8, 0x68, 0, 16, 0, 0, 0x30, 254, 0, 0, 0x11, 0x22, 0x33, 0x44
            ]
        );
        assert!(end_marker(1, local, "2001:db8::1".parse().unwrap()).is_none());
    }

    /// scapy: IPv6(src="2001:db8:3::1", dst="2001:db8:3:1::1", fl=0xfe7c9, hlim=64) / UDP(sport=2152,
    /// dport=2152) / GTPHeader(gtp_type=254, teid=0x11223344)
    #[test]
    fn over_ipv6_it_has_a_checksum_and_the_label_of_its_tunnel() {
        let [local, peer] = ["2001:db8:3::1", "2001:db8:3:1::1"].map(|addr| addr.parse().unwrap());
        let packet = end_marker(0x1122_3344, local, peer).unwrap();
        assert_eq!(
            packet[..8],
            [0x60, 0x0f, 0xe7, 0xc9, 0x00, 0x10, 0x11, 0x40]
        );
        assert_eq!(
            packet[40..56],
            [
                0x08, 0x68, 0x08, 0x68, 0x00, 0x10, 0x1e, 0x1f, 0x30, 0xfe, 0x00, 0x00, 0x11, 0x22,
                0x33, 0x44
            ]
        );
        assert_eq!(packet.len(), 56);
    }
}
