//! Packets of the slow path through a real kernel, in network namespaces of their own. Needs root.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::process::Command;
use std::time::Instant;

use compiled::NiId;
use libbpf_rs::{MapHandle, MapType, ObjectBuilder, ProgramInput, libbpf_sys};
use nexthop::testing::cable::{
    Host, PATIENCE, PEER_MAC, cable, ifindex, ip, sh, wait_for, wait_for_ipv6,
};
use nexthop::testing::mirror::{Mirror, leads_to};
use nix::sys::socket::{setsockopt, sockopt};
use slowpath::{Setup, SlowPath, SlowPathThread};
use tables::{DropReason, Layout, Options, PortConfig, Roles, Tables};

/// Over tables of nobody.
fn open_slow_path() -> SlowPath {
    open_over(&mut tables_of_nobody())
}

fn open_over(tables: &mut Tables) -> SlowPath {
    let setup = Setup::new(tables).unwrap();
    SlowPath::open(setup.finisher(tables), |_| ()).unwrap()
}

fn tables_of_nobody() -> Tables {
    let port = PortConfig {
        name: "n3".into(),
        roles: Roles { n3: true, n6: true },
        ni: NiId(0),
        ..PortConfig::default()
    };
    Tables::host(&Layout::default(), &[port], &Options::default()).unwrap()
}

/// One record, at once.
fn handle(slow_path: &mut SlowPath, record: &[u8]) {
    slow_path.put(record);
    slow_path.serve(1);
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

fn drops_of(tables: &Tables, reason: DropReason) -> u64 {
    let totals = tables.totals();
    let ports = totals.iter();
    ports
        .map(|port| port.dropped(0, reason) + port.dropped(1, reason))
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
    let mut tables = tables_of_nobody();
    let mut slow_path = open_over(&mut tables);
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
    let drops = drops_of(&tables, DropReason::SlowPathFull);
    assert_eq!((sent + drops, failed), (u64::from(FLOOD + 2 * OTHERS), 0));
    assert!(drops > u64::from(FLOOD / 2), "{drops}");
}

/// The kernel gives packets up when nobody answers, and the oldest when too many wait. Both are counted, and no packet is
/// that leaves.
#[test]
fn what_the_kernel_gives_up_has_a_drop_reason() {
    const COUNT: u32 = 400;
    let host = cable();
    wait_for_ipv6(&host);
    host.sh("ip route add 10.60.0.0/16 via 10.6.0.1
             ip -6 route add 2001:db8:60::/48 via 2001:db8:6::1");
    let mut tables = tables_of_nobody();
    let mut slow_path = open_over(&mut tables);
    let n6 = ifindex("n6");
    for (user, alive, dead) in [
        ("10.60.0.1", "10.6.0.2", "10.6.0.77"),
        ("2001:db8:60::1", "2001:db8:6::2", "2001:db8:6::77"),
    ] {
        let before = drops_of(&tables, DropReason::NeighbourUnresolved);
        receive(&host, alive, ip(user), COUNT / 4, || {
            for n in 0..COUNT {
                let payload = n.to_be_bytes();
                handle(&mut slow_path, &event(n6, ip(user), ip(dead), &[0; 1000]));
                if n < COUNT / 4 {
                    handle(&mut slow_path, &event(n6, ip(user), ip(alive), &payload));
                }
            }
        });
        let since = Instant::now();
        while slow_path.waits() {
            assert!(since.elapsed() < PATIENCE, "packets wait for {dead}");
            slow_path.expire(tables::monotonic_ns());
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let lost = drops_of(&tables, DropReason::NeighbourUnresolved) - before;
        assert_eq!(lost, u64::from(COUNT), "to {dead}");
    }
    assert_eq!(slow_path.counters().failed().count(), 0);
}

#[test]
fn what_the_kernel_refuses_has_a_drop_reason() {
    let _host = cable();
    let mut tables = tables_of_nobody();
    let mut slow_path = open_over(&mut tables);
    let too_long = event(ifindex("n6"), ip("10.60.0.1"), ip("10.6.0.2"), &[0; 2000]);
    handle(&mut slow_path, &too_long);
    assert_eq!(drops_of(&tables, DropReason::KernelRefused), 1);
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
    let thread =
        SlowPathThread::start(open_slow_path(), [ring.into(), no_duplicates().into()]).unwrap();
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
