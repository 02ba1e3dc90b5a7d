//! Next hops of a real kernel, in network namespaces without a name: they end with the threads and
//! descriptors that hold them, whatever happens. Needs root.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code)] // shared with tests that need more of it
mod nexthop_support;

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use libbpf_rs::{MapHandle, MapType, ObjectBuilder, ProgramInput, libbpf_sys};
use nexthop_support::Recorder;
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::socket::{setsockopt, sockopt};
use session::compiled::NiId;
use tables::netlink::Netlink;
use tables::nexthop::{
    Config, KernelChange, L2, Mac, NetworkInstance, NextHop, NextHops, Peer, Port, Request,
    TABLE_MAIN,
};
use tables::slowpath::{SlowPath, SlowPathThread};
use tables::{DROP_REASONS, Layout, Mode, Options, PortConfig, Roles, Tables};

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);

/// Over tables of nobody.
fn open_slow_path() -> SlowPath {
    SlowPath::open(tables_of_nobody().finisher(), |_| ()).unwrap()
}

fn tables_of_nobody() -> Tables {
    let port = PortConfig {
        name: "n3".into(),
        roles: Roles { n3: true, n6: true },
        ni: NiId(0),
        mode: Mode::Driver,
        spread: Vec::new(),
    };
    Tables::host(&Layout::default(), &[port], &Options::default()).unwrap()
}

/// One record, at once.
fn handle(slow_path: &mut SlowPath, record: &[u8]) {
    slow_path.put(record);
    slow_path.serve(1);
}

/// Run in the network namespace of the calling thread.
fn sh(command: &str) -> String {
    let output = Command::new("sh").args(["-ec", command]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

/// Move this thread into a network namespace of its own.
fn enter_fresh_namespace() {
    unshare(CloneFlags::CLONE_NEWNET).expect("these tests need root");
    sh("ip link set lo up");
}

/// The machine at the other end of the cable.
struct Host(File);

impl Host {
    fn new() -> Self {
        let make = || {
            enter_fresh_namespace();
            File::open("/proc/thread-self/ns/net").unwrap()
        };
        Self(std::thread::spawn(make).join().unwrap())
    }

    fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let work = || {
            setns(&self.0, CloneFlags::CLONE_NEWNET).unwrap();
            work()
        };
        std::thread::scope(|scope| scope.spawn(work).join().unwrap())
    }

    fn sh(&self, command: &str) {
        self.run(|| sh(command));
    }
}

const PEER_MAC: Mac = Mac([2, 0, 0, 0, 0, 0x20]);

/// `n6` here, `net` there, with addresses at both ends.
fn cable() -> Host {
    enter_fresh_namespace();
    let host = Host::new();
    sh(&format!(
        "ip link add n6 address 02:00:00:00:00:06 type veth peer name net address 02:00:00:00:00:20 netns {}",
        host.path()
    ));
    for (command, suffix) in [("net", 2), ("n6", 1)] {
        let set_up = format!(
            "sysctl -qw net.ipv6.conf.{command}.accept_dad=0
             ip addr add 10.6.0.{suffix}/24 dev {command}
             ip addr add 2001:db8:6::{suffix}/64 dev {command} nodad
             ip link set {command} up"
        );
        if command == "n6" {
            sh(&set_up);
        } else {
            host.sh(&set_up);
        }
    }
    host
}

/// Within a second a fresh link has its multicast route, without which nobody is solicited.
fn wait_for_ipv6(host: &Host) {
    let routes = |name| {
        sh(&format!(
            "ip -6 route show table all type multicast dev {name}"
        ))
    };
    wait_for("IPv6 here", || !routes("n6").is_empty());
    wait_for("IPv6 there", || host.run(|| !routes("net").is_empty()));
}

fn ifindex(name: &str) -> u32 {
    sh(&format!(
        "cat /sys/class/net/{name}/ifindex 2>/dev/null || true"
    ));
    nix::net::if_::if_nametoindex(name).unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// The control loop, reduced to next hops.
struct Mirror {
    netlink: Netlink,
    changes: Receiver<KernelChange>,
    model: NextHops,
    tables: Recorder,
}

impl Mirror {
    fn start() -> Self {
        Self::of(&["n6"], TABLE_MAIN)
    }

    fn of(interfaces: &[&str], table: u32) -> Self {
        let port = |(slot, name): (usize, &&str)| Port {
            slot: slot as u32,
            ifindex: ifindex(name),
        };
        let ports: Vec<Port> = interfaces.iter().enumerate().map(port).collect();
        let ni = NetworkInstance {
            id: NiId(0),
            ifindex: ports[0].ifindex,
            table,
        };
        let model = NextHops::new(Config {
            ports,
            network_instances: vec![ni],
            n3_table: table,
        });
        let (sender, changes) = mpsc::channel();
        let netlink = Netlink::start(move |change| {
            let _ = sender.send(change);
        })
        .unwrap();
        Self {
            netlink,
            changes,
            model,
            tables: Recorder::default(),
        }
    }

    fn turn(&mut self) {
        let mut requests = Vec::new();
        self.model.reconcile(&mut self.tables, &mut requests);
        self.tables.assert_no_leak();
        requests
            .into_iter()
            .for_each(|request| self.netlink.request(request));
    }

    /// Turn the loop until packets to `to` go where they should; how long it took.
    fn until(&mut self, what: &str, to: &str, wanted: impl Fn(&NextHop) -> bool) -> Duration {
        let since = Instant::now();
        self.turn();
        loop {
            let hop = self.tables.resolve(0, ip(to));
            if wanted(&hop) {
                eprintln!("{what}: {:?}", since.elapsed());
                return since.elapsed();
            }
            let left = PATIENCE.saturating_sub(since.elapsed());
            match self.changes.recv_timeout(left) {
                Ok(change) => self.model.apply(change),
                Err(_) => panic!("{what}: {to} still goes to {hop:?}"),
            }
            while let Ok(change) = self.changes.try_recv() {
                self.model.apply(change);
            }
            self.turn();
        }
    }
}

fn leads_to(mac: Mac) -> impl Fn(&NextHop) -> bool {
    let from = Mac([2, 0, 0, 0, 0, 6]);
    move |hop| matches!(hop, NextHop::Resolved { l2, port: 0, .. } if *l2 == L2::new(mac, from, None))
}

fn by(gateway: &str) -> impl Fn(&NextHop) -> bool {
    let gateway = ip(gateway);
    move |hop| matches!(hop, NextHop::Resolved { addr, .. } if *addr == gateway)
}

#[test]
fn routes_neighbours_and_links_are_followed() {
    let host = cable();
    wait_for_ipv6(&host);
    let mut mirror = Mirror::start();
    mirror.until("connected", "10.6.0.9", |hop| {
        matches!(hop, NextHop::OnLink { port: 0, .. })
    });
    mirror.until("local", "10.6.0.1", |hop| *hop == NextHop::Local);
    mirror.until("local IPv6", "2001:db8:6::1", |hop| *hop == NextHop::Local);
    mirror.until("broadcast", "10.6.0.255", |hop| *hop == NextHop::Prohibit);

    sh("ip route add 198.51.100.0/24 via 10.6.0.2");
    mirror.until(
        "route added, gateway resolved",
        "198.51.100.1",
        leads_to(PEER_MAC),
    );
    sh("ip -6 route add 2001:db8:99::/48 via 2001:db8:6::2");
    mirror.until("IPv6 route added", "2001:db8:99::1", leads_to(PEER_MAC));

    sh("ip neigh replace 10.6.0.77 lladdr 02:00:00:00:00:77 nud permanent dev n6");
    let other = Mac([2, 0, 0, 0, 0, 0x77]);
    mirror.until("neighbour added", "10.6.0.77", leads_to(other));
    sh("ip route replace 198.51.100.0/24 via 10.6.0.77");
    mirror.until("route replaced", "198.51.100.1", leads_to(other));
    sh("ip neigh replace 10.6.0.77 lladdr 02:00:00:00:00:78 nud permanent dev n6");
    mirror.until(
        "address changed",
        "198.51.100.1",
        leads_to(Mac([2, 0, 0, 0, 0, 0x78])),
    );
    sh("ip neigh del 10.6.0.77 dev n6");
    mirror.until("neighbour deleted", "198.51.100.1", |hop| {
        matches!(hop, NextHop::Unresolved { .. })
    });
    sh("ip route replace blackhole 198.51.100.0/24");
    mirror.until("blackhole", "198.51.100.1", |hop| *hop == NextHop::Prohibit);
    sh("ip route del 198.51.100.0/24");
    mirror.until("route deleted", "198.51.100.1", |hop| *hop == NextHop::None);

    host.sh("ip link set net down");
    mirror.until("carrier lost", "10.6.0.9", |hop| *hop == NextHop::None);
    host.sh("ip link set net up");
    mirror.until("carrier back", "10.6.0.9", |hop| {
        matches!(hop, NextHop::OnLink { .. })
    });

    sh("ip route add 203.0.113.0/24 via 10.6.0.2");
    mirror.until("gateway", "203.0.113.1", leads_to(PEER_MAC));
    sh("ip link set n6 down");
    mirror.until("link down", "203.0.113.1", |hop| *hop == NextHop::None);
    sh("ip link set n6 up");
    mirror.until("link up", "10.6.0.9", |hop| {
        matches!(hop, NextHop::OnLink { .. })
    });
    // The kernel has dropped it with the link, without a word.
    mirror.until("route lost", "203.0.113.1", |hop| *hop == NextHop::None);
    let kernel = mirror.model.kernel();
    assert!(
        !kernel
            .all_routes()
            .any(|route| route.prefix.to_string() == "203.0.113.0/24")
    );
}

#[test]
fn the_chosen_next_hop_is_the_kernels() {
    let host = cable();
    sh(&format!(
        "ip link add n6b type veth peer name netb netns {}",
        host.path()
    ));
    host.sh("ip link set netb up");
    // A table of its own, so that both links may be used; for `ip route get` it replaces main.
    sh("ip addr add 10.60.0.1/24 dev n6b
        ip link set n6b up
        ip rule add pref 100 lookup 100
        ip route add 10.6.0.0/24 dev n6 table 100
        ip route add 10.60.0.0/24 dev n6b table 100
        ip route add default via 10.6.0.2 table 100
        ip route add 192.0.2.0/24 via 10.60.0.2 table 100
        ip route add 192.0.2.64/26 via 10.6.0.3 metric 5 table 100
        ip route add 192.0.2.64/26 via 10.60.0.3 metric 10 table 100
        ip route add 192.0.2.128/25 table 100 nexthop via 10.60.0.4 dev n6b
        ip route add 192.88.99.0/24 table 100 nexthop via 10.60.0.4 dev n6b nexthop via 10.6.0.4
        ip nexthop add id 1 via 10.6.0.5 dev n6
        ip route add 203.0.113.0/24 nhid 1 table 100
        ip route add unreachable 203.0.113.128/25 table 100
        ip route add throw 198.18.0.0/15 table 100
        for i in 2 3 4 5 6; do
            ip neigh add 10.6.0.$i lladdr 02:00:00:00:06:0$i nud permanent dev n6
            ip neigh add 10.60.0.$i lladdr 02:00:00:00:60:0$i nud permanent dev n6b
        done");
    let mut mirror = Mirror::of(&["n6", "n6b"], 100);
    mirror.until("start", "198.51.100.1", |hop| {
        matches!(hop, NextHop::Resolved { .. })
    });
    let compare = |mirror: &Mirror| {
        let destinations = [
            "198.51.100.1",
            "192.0.2.1",
            "192.0.2.65",
            "192.0.2.129",
            "203.0.113.1",
            "10.6.0.3",
            "10.60.0.6",
        ];
        for to in destinations {
            let said = sh(&format!("ip -o route get {to}"));
            let word = |key| {
                let mut words = said.split_whitespace();
                words.find(|word| *word == key).and_then(|_| words.next())
            };
            let gateway = ip(word("via").unwrap_or(to));
            let device = ifindex(word("dev").unwrap());
            let hop = mirror.tables.resolve(0, ip(to));
            let NextHop::Resolved { ifindex, addr, .. } = hop else {
                panic!("{to}: {hop:?}, the kernel says {said}")
            };
            assert_eq!(
                (ifindex, addr),
                (device, gateway),
                "{to}, the kernel says {said}"
            );
        }
    };
    compare(&mirror);
    sh("ip nexthop replace id 1 via 10.6.0.6 dev n6");
    let sixth = Mac([2, 0, 0, 0, 6, 6]);
    mirror.until("next hop object replaced", "203.0.113.1", leads_to(sixth));
    mirror.until("unreachable", "203.0.113.129", |hop| {
        *hop == NextHop::Prohibit
    });
    mirror.until("throw", "198.18.0.1", |hop| *hop == NextHop::None);
    sh("ip route del 192.0.2.64/26 metric 5 table 100");
    mirror.until(
        "the lower metric gone",
        "192.0.2.65",
        |hop| matches!(hop, NextHop::Resolved { addr, .. } if *addr == ip("10.60.0.3")),
    );
    compare(&mirror);
    mirror.until("the first of two ways", "192.88.99.1", by("10.60.0.4"));
    host.sh("ip link set netb down");
    mirror.until("the second", "192.88.99.1", by("10.6.0.4"));
    sh("ip nexthop del id 1");
    mirror.until(
        "next hop object deleted",
        "203.0.113.1",
        |hop| matches!(hop, NextHop::Resolved { addr, .. } if *addr == ip("10.6.0.2")),
    );
}

#[test]
fn a_gateway_stays_resolved_without_traffic() {
    let host = cable();
    sh("ip route add default via 10.6.0.2");
    let mut mirror = Mirror::start();
    mirror.until("resolved", "198.51.100.1", leads_to(PEER_MAC));
    assert!(sh("ip neigh show 10.6.0.2 dev n6").contains("managed"));

    host.sh("ip link set net address 02:00:00:00:00:99");
    // Stands for the ARP that a machine sends when its address moves.
    host.sh("ping -c 1 -W 5 10.6.0.1");
    mirror.until(
        "gateway moved",
        "198.51.100.1",
        leads_to(Mac([2, 0, 0, 0, 0, 0x99])),
    );

    drop(mirror);
    assert!(
        !sh("ip neigh show 10.6.0.2 dev n6").contains("managed"),
        "nothing is left behind"
    );
}

#[test]
fn a_gateway_that_is_not_needed_is_released() {
    let host = cable();
    host.sh("ip addr add 10.7.0.2/32 dev net");
    sh("ip route add default via 10.7.0.2 dev n6 onlink");
    let mut mirror = Mirror::start();
    mirror.until("resolved", "198.51.100.1", leads_to(PEER_MAC));
    let managed = || sh("ip neigh show 10.7.0.2 dev n6").contains("managed");
    assert!(managed());
    sh("ip route del default");
    mirror.until("route deleted", "198.51.100.1", |hop| *hop == NextHop::None);
    wait_for("the mark to go", || !managed());
}

#[test]
fn a_peer_is_resolved_before_its_first_packet() {
    let _host = cable();
    let mut mirror = Mirror::start();
    let peer = Peer {
        remote: "10.6.0.2".parse().unwrap(),
        local: "10.6.0.1".parse().unwrap(),
        udp: false,
    };
    mirror.tables.add_peer(peer);
    // On N6 only because the test has one cable.
    mirror.until("neighbour", "10.6.0.2", leads_to(PEER_MAC));
    assert!(
        mirror
            .tables
            .peer(peer)
            .is_some_and(|hop| leads_to(PEER_MAC)(&hop))
    );
    drop(mirror);
    assert!(
        !sh("ip neigh show 10.6.0.2 dev n6").contains("managed"),
        "nothing is left behind"
    );
}

#[test]
fn lost_notifications_are_made_good() {
    let _host = cable();
    let (sender, changes) = mpsc::sync_channel(0);
    let first = std::thread::spawn(move || changes.recv().map(|_| changes).unwrap());
    let netlink = Netlink::start(move |change| {
        let _ = sender.send(change);
    })
    .unwrap();
    let changes = first.join().unwrap();
    // While nobody listens the kernel must say more than it can hold for us.
    sh("for i in $(seq 0 250); do for j in $(seq 0 250); do
            echo route replace 11.$i.$j.0/24 via 10.6.0.2
        done; done | ip -batch -
        ip route add 203.0.113.0/24 via 10.6.0.3");
    let since = Instant::now();
    let all = loop {
        match changes
            .recv_timeout(PATIENCE.saturating_sub(since.elapsed()))
            .unwrap()
        {
            KernelChange::All(all) => break all,
            _ => continue,
        }
    };
    assert!(
        all.routes
            .iter()
            .any(|route| route.prefix.to_string() == "203.0.113.0/24")
    );
    assert!(all.routes.len() > 63_000);
    drop(changes);
    drop(netlink);
}

fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let since = Instant::now();
    while !condition() {
        assert!(since.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A `tp_event` with a UDP packet of a UE, padded as ring records are.
fn event(ifindex: u32, from: IpAddr, to: IpAddr, payload: &[u8]) -> Vec<u8> {
    let udp_len = (8 + payload.len()) as u16;
    let mut packet = Vec::new();
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            packet.extend([0x45, 0]);
            packet.extend((20 + udp_len).to_be_bytes());
            packet.extend([0, 1, 0x40, 0, 63, 17, 0, 0]);
            packet.extend(from.octets());
            packet.extend(to.octets());
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            packet.extend([0x60, 0, 0, 0]);
            packet.extend(udp_len.to_be_bytes());
            packet.extend([17, 63]);
            packet.extend(from.octets());
            packet.extend(to.octets());
        }
        _ => panic!("one family, please"),
    }
    let mut udp = Vec::new();
    udp.extend([0x13, 0x88, 0x13, 0x89]);
    udp.extend(udp_len.to_be_bytes());
    udp.extend([0, 0]);
    udp.extend(payload);
    if to.is_ipv6() {
        let checksum = udp6_checksum(&packet[8..40], &udp);
        udp[6..8].copy_from_slice(&checksum.to_be_bytes());
    }
    packet.extend(udp);
    let mut record = Vec::new();
    record.extend(1u32.to_ne_bytes());
    record.extend(ifindex.to_ne_bytes());
    record.extend((packet.len() as u32).to_ne_bytes());
    record.extend(0u32.to_ne_bytes());
    record.extend(packet);
    record.extend([0xaa; 5]);
    record
}

fn udp6_checksum(addresses: &[u8], udp: &[u8]) -> u16 {
    let words = addresses.chunks(2).chain(udp.chunks(2));
    let sum: u32 = words
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0)))
        .sum::<u32>()
        + 17
        + udp.len() as u32;
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

/// Packets arrive whole, in order, from the UE's address.
fn receive(host: &Host, bind: &str, from: IpAddr, count: u32, send: impl FnOnce()) {
    let socket = host.run(|| UdpSocket::bind((ip(bind), 5001)).unwrap());
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    setsockopt(&socket, sockopt::RcvBufForce, &(8 << 20)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..count {
                let mut buffer = [0; 64];
                let (len, source) = socket
                    .recv_from(&mut buffer)
                    .unwrap_or_else(|e| panic!("packet {n}: {e}"));
                assert_eq!((source.ip(), &buffer[..len]), (from, &n.to_be_bytes()[..]));
            }
        });
        send();
    });
}

#[test]
fn first_packets_wait_for_the_neighbour() {
    let host = cable();
    sh(
        "sysctl -qw net.ipv4.ip_forward=0 net.ipv6.conf.all.forwarding=0
        sysctl -qw net.ipv4.conf.all.rp_filter=1 net.ipv4.conf.n6.rp_filter=1
        ip route add 198.51.100.0/24 via 10.6.0.2
        ip neigh flush dev n6",
    );
    host.sh(
        "sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.net.rp_filter=0
             ip addr add 198.51.100.1/32 dev net
             ip route add 10.60.0.0/16 via 10.6.0.1
             ip -6 route add 2001:db8:60::/48 via 2001:db8:6::1",
    );
    let mut slow_path = open_slow_path();
    let n6 = ifindex("n6");
    let (ue4, ue6) = (ip("10.60.0.1"), ip("2001:db8:60::1"));
    let cases = [
        ("on link", ue4, "10.6.0.2"),
        ("by a gateway", ue4, "198.51.100.1"),
        ("on link, IPv6", ue6, "2001:db8:6::2"),
    ];
    for (what, ue, to) in cases {
        sh("ip neigh flush dev n6");
        let since = Instant::now();
        receive(&host, to, ue, 64, || {
            for n in 0..64u32 {
                handle(&mut slow_path, &event(n6, ue, ip(to), &n.to_be_bytes()));
            }
        });
        eprintln!("{what}: 64 packets in {:?}", since.elapsed());
    }
    let counters = slow_path.counters();
    assert_eq!((counters.sent(), counters.malformed()), (192, 0));
    assert_eq!(counters.failed().count(), 0);

    // What they taught the kernel reaches the tables.
    let mut mirror = Mirror::start();
    mirror.until("resolved by traffic", "10.6.0.2", leads_to(PEER_MAC));
    mirror.until("the same, IPv6", "2001:db8:6::2", leads_to(PEER_MAC));
}

#[test]
fn a_slow_neighbour_costs_time_and_no_packet() {
    // By itself the kernel holds some 280, and a veth takes 1000 at once.
    const COUNT: u32 = 900;
    let host = cable();
    host.sh("ip route add 10.60.0.0/16 via 10.6.0.1; sysctl -qw net.ipv4.conf.net.arp_ignore=8");
    let mut slow_path = open_slow_path();
    sh("sysctl -qw net.ipv4.neigh.n6.unres_qlen_bytes=4194304");
    let (n6, ue) = (ifindex("n6"), ip("10.60.0.1"));
    receive(&host, "10.6.0.2", ue, COUNT, || {
        for n in 0..COUNT {
            handle(
                &mut slow_path,
                &event(n6, ue, ip("10.6.0.2"), &n.to_be_bytes()),
            );
        }
        assert_eq!(slow_path.counters().sent(), u64::from(COUNT));
        assert!(sh("ip neigh show 10.6.0.2 dev n6").contains("INCOMPLETE"));
        // The kernel asks again after a second.
        host.sh("sysctl -qw net.ipv4.conf.net.arp_ignore=0");
    });
}

fn drops_of(tables: &Tables, reason: &str) -> u64 {
    let at = DROP_REASONS.iter().position(|known| known.name == reason);
    let at = at.unwrap();
    let totals = tables.totals();
    totals
        .iter()
        .flat_map(|port| &port.drops)
        .map(|drops| drops[at])
        .sum()
}

/// A record of a FAR with DUPL: to here, in GTP-U, with a user's packet behind it.
fn duplicate(to: [u8; 4], user: &[u8]) -> Vec<u8> {
    let mut line = [0; 64];
    line[..4].copy_from_slice(&to);
    line[16..20].copy_from_slice(&[10, 6, 0, 1]);
    line[32..36].copy_from_slice(&0x77u32.to_be_bytes());
    let data = [&line[..], user].concat();
    let mut record = Vec::new();
    for word in [4, 0, data.len() as u32, 0] {
        record.extend(u32::to_ne_bytes(word));
    }
    record.extend(data);
    record
}

#[test]
fn one_user_with_250_dead_neighbours_costs_others_nothing() {
    const FLOOD: u32 = 20_000;
    const OTHERS: u32 = 160;
    let host = cable();
    host.sh("ip route add 10.60.0.0/16 via 10.6.0.1");
    sh("ip neigh add 10.6.0.2 lladdr 02:00:00:00:00:20 nud permanent dev n6");
    let tables = tables_of_nobody();
    let mut slow_path = SlowPath::open(tables.finisher(), |_| ()).unwrap();
    let (n6, greedy, modest) = (ifindex("n6"), ip("10.60.0.1"), ip("10.60.0.2"));
    let duplicates = host.run(|| UdpSocket::bind("10.6.0.2:2152").unwrap());
    duplicates.set_read_timeout(Some(PATIENCE)).unwrap();
    setsockopt(&duplicates, sockopt::RcvBufForce, &(8 << 20)).unwrap();
    let mut took = 0;
    receive(&host, "10.6.0.2", modest, OTHERS, || {
        for n in 0..FLOOD {
            let dead = Ipv4Addr::new(10, 6, 0, 3 + (n % 250) as u8).into();
            slow_path.put(&event(n6, greedy, dead, &[0; 1000]));
        }
        for n in 0..OTHERS {
            let packet = event(n6, modest, ip("10.6.0.2"), &n.to_be_bytes());
            slow_path.put(&packet);
            let whole = &packet[16..16 + 20 + 8 + 4];
            slow_path.put(&duplicate([10, 6, 0, 2], whole));
        }
        while slow_path.serve(64) > 0 {
            took += 1;
        }
    });
    for n in 0..OTHERS {
        let mut buffer = [0; 128];
        let len = duplicates.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[len - 4..len], &n.to_be_bytes());
    }
    assert!(took > 3, "{took}");
    // What had no room has a reason, and only the greedy lost any.
    let failed: u64 = slow_path.counters().failed().map(|(_, n)| n).sum();
    let sent = slow_path.counters().sent();
    let drops = drops_of(&tables, "slow_path_full");
    assert_eq!((sent + drops, failed), (u64::from(FLOOD + 2 * OTHERS), 0));
    assert!(drops > u64::from(FLOOD / 2), "{drops}");
}

#[test]
fn what_the_kernel_refuses_has_a_drop_reason() {
    let _host = cable();
    let tables = tables_of_nobody();
    let mut slow_path = SlowPath::open(tables.finisher(), |_| ()).unwrap();
    let too_long = event(ifindex("n6"), ip("10.60.0.1"), ip("10.6.0.2"), &[0; 2000]);
    handle(&mut slow_path, &too_long);
    assert_eq!(drops_of(&tables, "kernel_refused"), 1);
}

/// Stands for the pipeline: what it is given it puts into the event ring.
const EMITTER: &str = r#"
#define SEC(name) __attribute__((section(name), used))
struct xdp_md { unsigned data, data_end; };
struct {
	int (*type)[27]; /* BPF_MAP_TYPE_RINGBUF */
	int (*max_entries)[1 << 16];
} events SEC(".maps");
static long (*ringbuf_output)(void *, void *, unsigned long long, unsigned long long) = (void *)130;
SEC("xdp") int emit(struct xdp_md *ctx)
{
	char *data = (char *)(long)ctx->data, record[RECORD_LEN];

	if (data + RECORD_LEN > (char *)(long)ctx->data_end)
		return 0;
	__builtin_memcpy(record, data, RECORD_LEN);
	return ringbuf_output(&events, record, RECORD_LEN, 0) ? 0 : 1;
}
char _license[] SEC("license") = "GPL";
"#;

/// A ring in which nothing comes.
fn no_duplicates() -> MapHandle {
    let opts = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as _,
        ..Default::default()
    };
    MapHandle::create(MapType::RingBuf, Some("copies"), 0, 0, 4096, &opts).unwrap()
}

fn emitter(record_len: usize) -> Vec<u8> {
    use std::io::Write;
    use std::process::Stdio;
    let mut clang = Command::new("clang")
        .args([
            "-O2", "-g", "-target", "bpf", "-x", "c", "-c", "-", "-o", "-",
        ])
        .arg(format!("-DRECORD_LEN={record_len}"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    clang
        .stdin
        .take()
        .unwrap()
        .write_all(EMITTER.as_bytes())
        .unwrap();
    let output = clang.wait_with_output().unwrap();
    assert!(output.status.success());
    output.stdout
}

#[test]
fn the_event_ring_is_emptied_and_the_thread_ends() {
    const COUNT: u32 = 2000;
    let host = cable();
    host.sh("ip route add 10.60.0.0/16 via 10.6.0.1");
    // More packets than the kernel would let wait for an answer.
    sh("ip neigh add 10.6.0.2 lladdr 02:00:00:00:00:20 nud permanent dev n6");
    let (n6, ue) = (ifindex("n6"), ip("10.60.0.1"));
    let record = |n: u32| event(n6, ue, ip("10.6.0.2"), &n.to_be_bytes());
    let object = emitter(record(0).len());
    let mut builder = ObjectBuilder::default();
    let object = builder.open_memory(&object).unwrap().load().unwrap();
    let ring = MapHandle::try_from(&object.maps().next().unwrap()).unwrap();
    let program = object.progs_mut().next().unwrap();
    let thread = SlowPathThread::start(open_slow_path(), [ring, no_duplicates()]).unwrap();
    receive(&host, "10.6.0.2", ue, COUNT, || {
        for n in 0..COUNT {
            let record = record(n);
            // The ring holds some 800 records; a full one is the pipeline's loss to count.
            wait_for("room in the ring", || {
                let input = ProgramInput {
                    data_in: Some(&record),
                    ..ProgramInput::default()
                };
                program.test_run(input).unwrap().return_value == 1
            });
        }
    });
    wait_for("the last to be counted", || {
        thread.counters().sent() == u64::from(COUNT)
    });
    assert_eq!(thread.counters().failed().count(), 0);
    drop(thread);
}

#[test]
fn the_slow_path_says_why_it_failed() {
    let _host = cable();
    let mut slow_path = open_slow_path();
    let (n6, ue) = (ifindex("n6"), ip("10.60.0.1"));
    let counters = slow_path.counters();
    let failed = |errno| {
        counters
            .failed()
            .find(|(e, _)| *e == errno)
            .map_or(0, |(_, n)| n)
    };

    handle(&mut slow_path, &event(n6, ue, ip("10.6.0.2"), &[0; 2000]));
    assert_eq!(failed(nix::errno::Errno::EMSGSIZE), 1);
    handle(&mut slow_path, &event(9999, ue, ip("10.6.0.2"), &[0; 20]));
    assert_eq!(
        failed(nix::errno::Errno::ENODEV) + failed(nix::errno::Errno::ENETUNREACH),
        1
    );

    let good = event(n6, ue, ip("10.6.0.2"), &[0; 20]);
    let mut wrong_version = good.clone();
    wrong_version[16] = 0x75;
    let mut long = good.clone();
    long[18..20].copy_from_slice(&999u16.to_be_bytes());
    let mut other_kind = good.clone();
    other_kind[0] = 9;
    let cut = &good[..40];
    for record in [&wrong_version[..], &long, &other_kind, cut, &[]] {
        handle(&mut slow_path, record);
    }
    assert_eq!(counters.malformed(), 5);
    assert_eq!(counters.sent(), 0);
}

#[test]
fn requests_for_what_is_gone_do_no_harm() {
    let _host = cable();
    let mut mirror = Mirror::start();
    for addr in ["10.6.0.2", "2001:db8:6::2"] {
        mirror.netlink.request(Request::Keep {
            ifindex: 9999,
            addr: ip(addr),
        });
        mirror.netlink.request(Request::Release {
            ifindex: 9999,
            addr: ip(addr),
        });
        mirror.netlink.request(Request::Release {
            ifindex: ifindex("n6"),
            addr: ip(addr),
        });
    }
    sh("ip route add 198.51.100.0/24 via 10.6.0.2");
    mirror.until("it goes on", "198.51.100.1", leads_to(PEER_MAC));
}
