//! A gNB in user space: one GTP-U socket, and the tunnels of the UEs that it serves.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::socket::{setsockopt, sockopt};

use crate::gtpu::{self, Container, message};
use crate::netns::Netns;

/// Where a gNB delivers what comes down a tunnel.
pub trait Downlink: Send + Sync {
    /// Takes one tunnelled packet, which arrived at `gnb` under `teid`.
    fn deliver(&self, gnb: Ipv4Addr, teid: u32, container: Option<Container>, packet: &[u8]);
}

/// What a gNB saw beside G-PDUs of its own tunnels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The answer to our Echo Request.
    EchoResponse {
        /// Of the request.
        sequence: u16,
    },
    /// The peer does not know a tunnel.
    ErrorIndication {
        /// The tunnel at the peer.
        teid: u32,
        /// The peer's address.
        address: IpAddr,
    },
    /// No more packets come down this tunnel.
    EndMarker {
        /// The tunnel at this gNB.
        teid: u32,
    },
}

/// Counters of a gNB.
#[derive(Debug, Default)]
pub struct Counters {
    /// G-PDUs for tunnels that this gNB does not have.
    pub unknown_teid: AtomicU64,
    /// Datagrams that are not GTP-U.
    pub malformed: AtomicU64,
    /// G-PDUs delivered.
    pub downlink: AtomicU64,
    /// G-PDUs sent.
    pub uplink: AtomicU64,
}

/// A running gNB; it stops when dropped.
pub struct Gnb {
    address: Ipv4Addr,
    shared: Arc<Shared>,
    events: Mutex<Receiver<Event>>,
    next_teid: AtomicU32,
    next_sequence: AtomicU16,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    address: Ipv4Addr,
    socket: UdpSocket,
    tunnels: RwLock<HashMap<u32, Arc<dyn Downlink>>>,
    counters: Counters,
    stop: AtomicBool,
}

impl Gnb {
    /// Starts a gNB at `address`, whose namespace has it on an interface. TEIDs count up from `first_teid`:
    /// gNBs with ranges of their own let a test see a packet that went to the wrong one.
    pub fn start(netns: &Netns, address: Ipv4Addr, first_teid: u32) -> Result<Self> {
        let socket = netns.enter(|| Ok(UdpSocket::bind((address, gtpu::PORT))?))?;
        // A burst for many UEs must wait here while the one receiving thread writes to TUN devices.
        setsockopt(&socket, sockopt::RcvBufForce, &(32 << 20)).context("receive buffer")?;
        setsockopt(&socket, sockopt::SndBufForce, &(8 << 20)).context("send buffer")?;
        socket.set_read_timeout(Some(Duration::from_millis(100)))?;
        let shared = Arc::new(Shared {
            address,
            socket,
            tunnels: RwLock::default(),
            counters: Counters::default(),
            stop: AtomicBool::new(false),
        });
        let (sender, events) = channel();
        let inside = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name(format!("gnb {address}"))
            .spawn(move || inside.receive(&sender))?;
        Ok(Self {
            address,
            shared,
            events: Mutex::new(events),
            next_teid: AtomicU32::new(first_teid),
            next_sequence: AtomicU16::new(1),
            thread: Some(thread),
        })
    }

    /// Its N3 address.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// What it counted.
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// Opens a tunnel towards this gNB and returns its TEID.
    pub fn open(&self, downlink: Arc<dyn Downlink>) -> u32 {
        let teid = self.next_teid.fetch_add(1, Relaxed);
        let mut tunnels = self
            .shared
            .tunnels
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        tunnels.insert(teid, downlink);
        teid
    }

    /// Closes a tunnel: what still comes down is counted as unknown.
    pub fn close(&self, teid: u32) {
        self.shared
            .tunnels
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&teid);
    }

    /// The way up through tunnel `teid` of the UPF at `upf`.
    pub fn uplink(&self, upf: Ipv4Addr, teid: u32, qfi: Option<u8>) -> Uplink {
        Uplink {
            gnb: Arc::clone(&self.shared),
            upf,
            teid,
            qfi,
        }
    }

    /// Sends any datagram, such as a broken one, to the GTP-U port of `to`.
    pub fn send_raw(&self, to: Ipv4Addr, datagram: &[u8]) -> Result<()> {
        self.shared.socket.send_to(datagram, (to, gtpu::PORT))?;
        Ok(())
    }

    /// Sends a datagram from its GTP-U port to any address and port.
    pub fn send_to(&self, to: SocketAddr, datagram: &[u8]) -> Result<()> {
        self.shared.socket.send_to(datagram, to)?;
        Ok(())
    }

    /// Sends an Echo Request and returns its sequence number.
    pub fn echo(&self, to: Ipv4Addr) -> Result<u16> {
        let sequence = self.next_sequence.fetch_add(1, Relaxed);
        self.send_raw(to, &gtpu::echo_request(sequence))?;
        Ok(sequence)
    }

    /// The next event, waiting at most `limit`.
    pub fn event(&self, limit: Duration) -> Option<Event> {
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.recv_timeout(limit).ok()
    }
}

impl Drop for Gnb {
    fn drop(&mut self) {
        self.shared.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn receive(&self, events: &Sender<Event>) {
        let mut buffer = vec![0; 65536];
        while !self.stop.load(Relaxed) {
            if let Ok((length, from)) = self.socket.recv_from(&mut buffer) {
                self.take(&buffer[..length], from, events);
            }
        }
    }

    fn take(&self, datagram: &[u8], from: SocketAddr, events: &Sender<Event>) {
        let Some(read) = gtpu::parse(datagram) else {
            self.counters.malformed.fetch_add(1, Relaxed);
            return;
        };
        let event = match read.message_type {
            message::G_PDU => return self.deliver(&read),
            message::ECHO_REQUEST => {
                let answer = gtpu::echo_response(read.sequence.unwrap_or(0));
                let _ = self.socket.send_to(&answer, from);
                return;
            }
            message::ECHO_RESPONSE => read
                .sequence
                .map(|sequence| Event::EchoResponse { sequence }),
            message::END_MARKER => Some(Event::EndMarker { teid: read.teid }),
            message::ERROR_INDICATION => gtpu::parse_error_indication(read.body)
                .map(|(teid, address)| Event::ErrorIndication { teid, address }),
            _ => None,
        };
        match event {
            Some(event) => drop(events.send(event)),
            None => drop(self.counters.malformed.fetch_add(1, Relaxed)),
        }
    }

    fn deliver(&self, read: &gtpu::Message<'_>) {
        let tunnels = self.tunnels.read().unwrap_or_else(PoisonError::into_inner);
        match tunnels.get(&read.teid) {
            Some(downlink) => {
                self.counters.downlink.fetch_add(1, Relaxed);
                downlink.deliver(self.address, read.teid, read.container, read.body);
            }
            None => drop(self.counters.unknown_teid.fetch_add(1, Relaxed)),
        }
    }
}

/// The way up for one UE: through which gNB, into which tunnel.
#[derive(Clone)]
pub struct Uplink {
    gnb: Arc<Shared>,
    upf: Ipv4Addr,
    teid: u32,
    qfi: Option<u8>,
}

impl Uplink {
    /// Sends one packet of the UE; `scratch` is overwritten.
    pub fn send(&self, packet: &[u8], scratch: &mut Vec<u8>) -> std::io::Result<()> {
        scratch.clear();
        gtpu::g_pdu(scratch, self.teid, self.qfi.map(Container::uplink), packet);
        self.gnb.socket.send_to(scratch, (self.upf, gtpu::PORT))?;
        self.gnb.counters.uplink.fetch_add(1, Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netns::Prefix;

    type Seen = (Ipv4Addr, u32, Option<Container>, Vec<u8>);

    #[derive(Default)]
    struct Keep(Mutex<Vec<Seen>>);

    impl Downlink for Keep {
        fn deliver(&self, gnb: Ipv4Addr, teid: u32, container: Option<Container>, packet: &[u8]) {
            self.0
                .lock()
                .unwrap()
                .push((gnb, teid, container, packet.to_vec()));
        }
    }

    /// Two gNBs in one namespace: what one sends up is the other's downlink.
    #[test]
    fn packets_echo_and_error_indications_pass_between_two_gnbs() -> Result<()> {
        let netns = Netns::create(&Prefix::unique(), "gnb")?;
        netns.ip("addr add 10.3.0.1/32 dev lo\naddr add 10.3.0.2/32 dev lo")?;
        let (a, b) = (Ipv4Addr::new(10, 3, 0, 1), Ipv4Addr::new(10, 3, 0, 2));
        let (near, far) = (Gnb::start(&netns, a, 0x100)?, Gnb::start(&netns, b, 0x200)?);

        let keep = Arc::new(Keep::default());
        let teid = far.open(Arc::clone(&keep) as Arc<dyn Downlink>);
        assert_eq!(teid, 0x200);
        near.uplink(b, teid, Some(9))
            .send(b"packet", &mut Vec::new())?;
        near.uplink(b, 0x999, None)
            .send(b"stray", &mut Vec::new())?;
        near.send_raw(b, b"nonsense")?;

        // The echo comes last, and one thread answers in order: the rest has been seen by then.
        let sequence = near.echo(b)?;
        let wait = Duration::from_secs(2);
        assert_eq!(near.event(wait), Some(Event::EchoResponse { sequence }));
        let expected = (b, teid, Some(Container::uplink(9)), b"packet".to_vec());
        assert_eq!(*keep.0.lock().unwrap(), [expected]);
        assert_eq!(far.counters().unknown_teid.load(Relaxed), 1);
        assert_eq!(far.counters().malformed.load(Relaxed), 1);

        far.send_raw(a, &gtpu::error_indication(5, b))?;
        let event = Event::ErrorIndication {
            teid: 5,
            address: b.into(),
        };
        assert_eq!(near.event(wait), Some(event));
        Ok(())
    }
}
