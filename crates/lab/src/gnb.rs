//! A gNB in user space: a GTP-U socket at each of its addresses, and the tunnels of the UEs that it serves.

use std::collections::{HashMap, HashSet};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::socket::{setsockopt, sockopt};

use crate::gtpu::{self, Container, message};
use crate::netns::Netns;
use crate::wait::NEVER;

/// Receiver of packets that come down a tunnel to a gNB.
pub trait Downlink: Send + Sync {
    /// Takes one tunnelled packet, which arrived at `gnb` under `teid`.
    fn deliver(&self, gnb: IpAddr, teid: u32, container: Option<Container>, packet: &[u8]);
}

/// Messages that a gNB saw beside G-PDUs of its own tunnels.
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
    shared: Arc<Shared>,
    events: Mutex<Receiver<Event>>,
    next_teid: AtomicU32,
    next_sequence: AtomicU16,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    ends: Vec<(IpAddr, UdpSocket)>,
    tunnels: RwLock<HashMap<u32, Arc<dyn Downlink>>>,
    /// Tunnels whose End Marker has come.
    ended: Mutex<HashSet<u32>>,
    counters: Counters,
    stop: AtomicBool,
}

impl Gnb {
    /// Starts a gNB at `addresses`, one of each family at most, which its namespace has on an interface. TEIDs
    /// count up from `first_teid`: gNBs with ranges of their own let a test see a packet that went to the wrong one.
    pub fn start(netns: &Netns, addresses: &[IpAddr], first_teid: u32) -> Result<Self> {
        ensure!(!addresses.is_empty(), "a gNB without an address");
        let ends = addresses
            .iter()
            .map(|&address| Ok((address, open(netns, address)?)))
            .collect::<Result<_>>()?;
        let shared = Arc::new(Shared {
            ends,
            tunnels: RwLock::default(),
            ended: Mutex::default(),
            counters: Counters::default(),
            stop: AtomicBool::new(false),
        });
        let (sender, events) = channel();
        let mut threads = Vec::new();
        for (end, address) in addresses.iter().enumerate() {
            let (inside, sender) = (Arc::clone(&shared), sender.clone());
            let thread = std::thread::Builder::new()
                .name(format!("gnb {address}"))
                .spawn(move || inside.receive(end, &sender))?;
            threads.push(thread);
        }
        Ok(Self {
            shared,
            events: Mutex::new(events),
            next_teid: AtomicU32::new(first_teid),
            next_sequence: AtomicU16::new(1),
            threads,
        })
    }

    /// Its N3 address, the first if it has two.
    pub fn address(&self) -> IpAddr {
        self.shared.ends[0].0
    }

    /// All of its N3 addresses.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.shared.ends.iter().map(|(address, _)| *address)
    }

    /// Its counters.
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

    /// Whether an End Marker has come down a tunnel: nothing follows it.
    pub fn has_ended(&self, teid: u32) -> bool {
        self.shared.ended().contains(&teid)
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
    pub fn uplink(&self, upf: impl Into<IpAddr>, teid: u32, qfi: Option<u8>) -> Uplink {
        Uplink {
            gnb: Arc::clone(&self.shared),
            upf: upf.into(),
            teid,
            qfi,
        }
    }

    /// Sends any datagram, such as a broken one, to the GTP-U port of `to`.
    pub fn send_raw(&self, to: impl Into<IpAddr>, datagram: &[u8]) -> Result<()> {
        self.send_to((to.into(), gtpu::PORT).into(), datagram)
    }

    /// Sends a datagram from its GTP-U port to any address and port.
    pub fn send_to(&self, to: SocketAddr, datagram: &[u8]) -> Result<()> {
        self.shared.send(to, datagram)?;
        Ok(())
    }

    /// Sends an Echo Request and returns its sequence number.
    pub fn echo(&self, to: impl Into<IpAddr>) -> Result<u16> {
        let sequence = self.next_sequence.fetch_add(1, Relaxed);
        self.send_raw(to, &gtpu::echo_request(sequence))?;
        Ok(sequence)
    }

    /// The next event, whenever it comes.
    pub fn next_event(&self) -> Option<Event> {
        self.event(NEVER)
    }

    /// All that was sent to its address `to` from `from`, an address of the UPF's namespace, has been received: what
    /// comes by one link is read in order by one thread, and so is this Echo Request, whose answer is awaited.
    pub fn drain(&self, upf: &Netns, from: IpAddr, to: IpAddr) -> Result<()> {
        let socket = upf.enter(|| {
            let socket = UdpSocket::bind((from, 0))?;
            socket.connect((to, gtpu::PORT))?;
            Ok(socket)
        })?;
        // If it is lost to a queue that is full, another one follows.
        socket.set_read_timeout(Some(Duration::from_millis(500)))?;
        let deadline = Instant::now() + NEVER;
        while Instant::now() < deadline {
            socket.send(&gtpu::echo_request(0xffff))?;
            if socket.recv(&mut [0; 64]).is_ok() {
                return Ok(());
            }
        }
        bail!("{to} does not answer {from}")
    }

    /// The next event, waiting at most `limit`: for one that is not to come.
    pub fn event(&self, limit: Duration) -> Option<Event> {
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.recv_timeout(limit).ok()
    }
}

fn open(netns: &Netns, address: IpAddr) -> Result<UdpSocket> {
    let socket = netns.udp((address, gtpu::PORT))?;
    // A burst for many UEs must wait here while the one receiving thread writes to TUN devices.
    setsockopt(&socket, sockopt::RcvBufForce, &(32 << 20)).context("receive buffer")?;
    setsockopt(&socket, sockopt::SndBufForce, &(8 << 20)).context("send buffer")?;
    socket.set_read_timeout(Some(Duration::from_millis(20)))?;
    Ok(socket)
}

impl Drop for Gnb {
    fn drop(&mut self) {
        self.shared.stop.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// From its end of the family of `to`.
    fn send(&self, to: SocketAddr, datagram: &[u8]) -> std::io::Result<usize> {
        let own = |(address, _): &&(IpAddr, UdpSocket)| address.is_ipv4() == to.is_ipv4();
        let (_, socket) = (self.ends.iter().find(own)).ok_or(ErrorKind::AddrNotAvailable)?;
        socket.send_to(datagram, to)
    }

    fn receive(&self, end: usize, events: &Sender<Event>) {
        let (at, socket) = &self.ends[end];
        let mut buffer = vec![0; 65536];
        while !self.stop.load(Relaxed) {
            if let Ok((length, from)) = socket.recv_from(&mut buffer) {
                self.take(*at, &buffer[..length], from, events);
            }
        }
    }

    fn take(&self, at: IpAddr, datagram: &[u8], from: SocketAddr, events: &Sender<Event>) {
        let Some(read) = gtpu::parse(datagram) else {
            self.counters.malformed.fetch_add(1, Relaxed);
            return;
        };
        let event = match read.message_type {
            message::G_PDU => return self.deliver(at, &read),
            message::ECHO_REQUEST => {
                let answer = gtpu::echo_response(read.sequence.unwrap_or(0));
                let _ = self.send(from, &answer);
                return;
            }
            message::ECHO_RESPONSE => read
                .sequence
                .map(|sequence| Event::EchoResponse { sequence }),
            message::END_MARKER => {
                self.ended().insert(read.teid);
                Some(Event::EndMarker { teid: read.teid })
            }
            message::ERROR_INDICATION => gtpu::parse_error_indication(read.body)
                .map(|(teid, address)| Event::ErrorIndication { teid, address }),
            _ => None,
        };
        match event {
            Some(event) => drop(events.send(event)),
            None => drop(self.counters.malformed.fetch_add(1, Relaxed)),
        }
    }

    fn ended(&self) -> MutexGuard<'_, HashSet<u32>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn deliver(&self, at: IpAddr, read: &gtpu::Message<'_>) {
        let tunnels = self.tunnels.read().unwrap_or_else(PoisonError::into_inner);
        match tunnels.get(&read.teid) {
            Some(downlink) => {
                self.counters.downlink.fetch_add(1, Relaxed);
                downlink.deliver(at, read.teid, read.container, read.body);
            }
            None => drop(self.counters.unknown_teid.fetch_add(1, Relaxed)),
        }
    }
}

/// The way up for one UE: through which gNB, into which tunnel.
#[derive(Clone)]
pub struct Uplink {
    gnb: Arc<Shared>,
    upf: IpAddr,
    teid: u32,
    qfi: Option<u8>,
}

impl Uplink {
    /// Sends one packet of the UE; `scratch` is overwritten.
    pub fn send(&self, packet: &[u8], scratch: &mut Vec<u8>) -> std::io::Result<()> {
        scratch.clear();
        gtpu::g_pdu(scratch, self.teid, self.qfi.map(Container::uplink), packet);
        self.gnb.send((self.upf, gtpu::PORT).into(), scratch)?;
        self.gnb.counters.uplink.fetch_add(1, Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netns::Prefix;

    type Seen = (IpAddr, u32, Option<Container>, Vec<u8>);

    #[derive(Default)]
    struct Keep(Mutex<Vec<Seen>>);

    impl Downlink for Keep {
        fn deliver(&self, gnb: IpAddr, teid: u32, container: Option<Container>, packet: &[u8]) {
            self.0
                .lock()
                .unwrap()
                .push((gnb, teid, container, packet.to_vec()));
        }
    }

    /// Two gNBs in one namespace: what one sends up is the other's downlink, over both families.
    #[test]
    fn packets_echo_and_error_indications_pass_between_two_gnbs() -> Result<()> {
        let netns = Netns::create(&Prefix::unique(), "gnb")?;
        netns.ip("addr add 10.3.0.1/32 dev lo\naddr add 10.3.0.2/32 dev lo\n\
             addr add 2001:db8:3::1/128 dev lo nodad\naddr add 2001:db8:3::2/128 dev lo nodad")?;
        let at = |v4: &str, v6: &str| -> Result<[IpAddr; 2]> { Ok([v4.parse()?, v6.parse()?]) };
        let (a, b) = (
            at("10.3.0.1", "2001:db8:3::1")?,
            at("10.3.0.2", "2001:db8:3::2")?,
        );
        let (near, far) = (
            Gnb::start(&netns, &a, 0x100)?,
            Gnb::start(&netns, &b, 0x200)?,
        );
        assert_eq!(far.addresses().collect::<Vec<_>>(), b);

        let keep = Arc::new(Keep::default());
        let teid = far.open(Arc::clone(&keep) as Arc<dyn Downlink>);
        assert_eq!(teid, 0x200);
        for to in b {
            near.uplink(to, teid, Some(9))
                .send(b"packet", &mut Vec::new())?;
            near.uplink(to, 0x999, None)
                .send(b"stray", &mut Vec::new())?;
            near.send_raw(to, b"nonsense")?;
            // The echo comes last, and one thread answers in order: the rest has been seen by then.
            let sequence = near.echo(to)?;
            assert_eq!(near.next_event(), Some(Event::EchoResponse { sequence }));
        }
        let expected = b.map(|to| (to, teid, Some(Container::uplink(9)), b"packet".to_vec()));
        assert_eq!(*keep.0.lock().unwrap(), expected);
        assert_eq!(far.counters().unknown_teid.load(Relaxed), 2);
        assert_eq!(far.counters().malformed.load(Relaxed), 2);

        for (from, to) in b.into_iter().zip(a) {
            far.send_raw(to, &gtpu::error_indication(5, from))?;
            let event = Event::ErrorIndication {
                teid: 5,
                address: from,
            };
            assert_eq!(near.next_event(), Some(event));
        }
        Ok(())
    }
}
