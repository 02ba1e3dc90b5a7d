//! Ports of DPDK that lose frames: under which name, and that they forward again afterwards. In network namespaces of the
//! tests' own. And several threads over them, in both core models: which of them meets a packet, and in which order. Needs root.
#![cfg(feature = "dpdk")]
#![allow(clippy::unwrap_used, reason = "test helpers")]

#[path = "dpdk/devices.rs"]
mod devices;

use std::fs::{self, read_to_string};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use compiled::{
    Above, Action, Compiled, Direction, Entry, Key, NiId, PdrId, Rate, Select, Tables as _,
};
use nexthop::NextHopTables as _;
use nix::net::if_::if_nametoindex;
use nix::sched::{CloneFlags, unshare};
use tables::dpdk::{Pipeline, RingPort, Settings};
use tables::task::Event;
use tables::testing::{furnish, hop, resolve_peers};
use tables::{
    DropReason, FrameSocket, GoingOn, Handle, Layout, Left, Options, PortConfig, PortTotals,
    RingReader, Roles, Shaping, StartWorkers, TableFiles, Tables, run_workers,
};
use testkit::machine::need_root;
use testkit::packets::{GNB, N3, ethernet, gpdu, ipv4, read_gpdu};
use testkit::sessions;

/// The tests share DPDK's environment, and its buffers.
static ONE_BY_ONE: Mutex<()> = Mutex::new(());

const TEID: u32 = 5;

/// In the environment: buffers lie in huge pages, of so many megabytes in all.
const HUGE: &str = "TURNPIKE_TEST_HUGE";

fn settings() -> Settings {
    let huge = std::env::var(HUGE);
    let eal = [
        "-m",
        huge.as_deref().unwrap_or("96"),
        "--no-pci",
        "--no-telemetry",
        "--log-level=pmd.net.af_xdp:8",
    ];
    let no_huge = huge.is_err().then_some("--no-huge");
    Settings {
        eal: eal.into_iter().chain(no_huge).map(str::to_owned).collect(),
        // Some 2000 go with a port over net_af_xdp, and up to 1536 lie beside threads that were.
        buffers: 6144,
        ..Settings::default()
    }
}

fn without_taps() -> Settings {
    Settings {
        taps: false,
        ..settings()
    }
}

fn ip(arguments: &str) {
    let output = Command::new("ip")
        .args(arguments.split(' '))
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {arguments}: {error}");
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}: not within 60 s");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn port(name: &str, n3: bool, device: &str) -> PortConfig {
    PortConfig {
        name: name.into(),
        roles: Roles { n3, n6: !n3 },
        ni: NiId(0),
        device: device.into(),
        ..PortConfig::default()
    }
}

fn entry(pdr: u16, direction: Direction, action: Action) -> Entry {
    sessions::entry(PdrId(pdr), direction, action)
}

/// A session whose packets come in by port 0 and leave by port 1.
fn forward(tables: &mut Tables) -> Handle {
    forward_at(tables, None)
}

fn forward_at(tables: &mut Tables, meter: Option<Rate>) -> Handle {
    furnish(tables);
    let teid = Key::direct(TEID);
    let route = Action::Route { ni: NiId(0) };
    let uplink = Compiled {
        seid: 1,
        entries: vec![Entry {
            meter,
            ..entry(1, Direction::Uplink, route)
        }],
        keys: vec![(teid, Select::One(0))],
        ..Compiled::default()
    };
    let mut handle = Handle::default();
    tables.publish(&mut handle, &uplink).unwrap();
    handle
}

fn uplink_frame() -> Vec<u8> {
    numbered_frame(0)
}

fn numbered_frame(number: u8) -> Vec<u8> {
    let (ue, server) = (Ipv4Addr::new(10, 60, 0, 1), Ipv4Addr::new(198, 51, 100, 1));
    let mut packet = ipv4(ue, server, 17, 64, 24);
    packet.extend([number; 24]);
    gpdu(TEID, None, &packet)
}

/// A frame that is the kernel's affair.
fn arp() -> Vec<u8> {
    let mut frame = ethernet(&[0; 46]);
    frame[12..14].copy_from_slice(&[0x08, 0x06]);
    frame
}

fn dropped(tables: &Tables, port: usize, reason: DropReason) -> u64 {
    let totals = &tables.totals()[port];
    totals.dropped(0, reason) + totals.dropped(1, reason)
}

/// Frames that the kernel has taken from a port.
fn taken(name: &str) -> u64 {
    let file = format!("/sys/class/net/{name}/statistics/rx_packets");
    read_to_string(file).unwrap().trim().parse().unwrap()
}

/// A namespace with a view of its own on /sys.
fn in_a_namespace() {
    need_root();
    unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS).unwrap();
    let private = Command::new("mount")
        .args(["--make-rprivate", "/"])
        .status();
    assert!(private.unwrap().success());
    let sysfs = Command::new("mount")
        .args(["-t", "sysfs", "sysfs", "/sys"])
        .status();
    assert!(sysfs.unwrap().success());
}

#[test]
fn what_queues_and_buffers_cannot_hold_is_lost_under_a_name() {
    let _alone = ONE_BY_ONE.lock().unwrap_or_else(PoisonError::into_inner);
    in_a_namespace();
    let settings = settings();
    let mut access = RingPort::new(&settings, "full3", 4096).unwrap();
    let mut network = RingPort::new(&settings, "full6", 64).unwrap();
    let mut hoard = RingPort::new(&settings, "hoard", 8192).unwrap();
    let ports = ports("full3", &RingPort::device("full6"));
    let layout = Layout::for_sessions(64, 2, 2);
    let mut tables = Tables::dpdk(&layout, &ports, &Options::default(), &settings).unwrap();
    tables.attach().unwrap();
    let _session = forward(&mut tables);
    // What the kernel says of itself when an interface appears is no part of this.
    let drain = |port: &mut RingPort| std::iter::from_fn(|| port.take()).count();
    eventually("the kernel is silent", || {
        std::thread::sleep(Duration::from_millis(50));
        drain(&mut access) + drain(&mut network) == 0
    });

    // More than the transmit ring holds.
    for _ in 0..100 {
        assert!(access.put(&uplink_frame()));
    }
    eventually("100 forwarded", || {
        tables.totals()[0].forwarded[0].packets == 100
    });
    tables.barrier().wait().unwrap();
    // The kernel says something again while there is room once more.
    let is_ipv4 = |frame: &Vec<u8>| frame[12..14] == [8, 0];
    let sent = std::iter::from_fn(|| network.take())
        .filter(is_ipv4)
        .count() as u64;
    let lost = dropped(&tables, 0, DropReason::PortFull);
    assert!(
        sent + lost >= 100 && (60..=64).contains(&sent),
        "{sent} sent, {lost} lost"
    );
    assert!(access.put(&uplink_frame()));
    eventually("it forwards again", || network.take().is_some());

    // The kernel's face of a port, down and up.
    ip("link set n3 down");
    assert!(access.put(&arp()));
    eventually("the kernel refuses", || {
        dropped(&tables, 0, DropReason::TapRefused) == 1
    });
    ip("link set n3 up");
    let before = taken("n3");
    assert!(access.put(&arp()));
    eventually("the kernel takes", || taken("n3") > before);

    // No buffers, but those that the worker has at hand.
    let socket = FrameSocket::open(if_nametoindex("n3").unwrap(), Duration::from_secs(1)).unwrap();
    while hoard.put(&arp()) {}
    let frame = arp();
    eventually("no buffer is left", || {
        socket.send([frame.as_slice()].into_iter());
        dropped(&tables, 0, DropReason::NoBuffer) > 0
    });
    assert!(drain(&mut access) > 0);
    drop(hoard);
    eventually("it sends again", || {
        socket.send([frame.as_slice()].into_iter());
        access.take().is_some()
    });
    assert!(access.put(&uplink_frame()));
    eventually("it forwards again", || network.take().is_some());
}

/// Access by rings, and a network by `device`.
fn ports(rings: &str, device: &str) -> [PortConfig; 2] {
    [
        port("n3", true, &RingPort::device(rings)),
        port("n6", false, device),
    ]
}

#[test]
fn a_port_without_link_loses_frames_until_it_has_one() {
    let _alone = ONE_BY_ONE.lock().unwrap_or_else(PoisonError::into_inner);
    in_a_namespace();
    let settings = settings();
    let mut access = RingPort::new(&settings, "link3", 64).unwrap();
    let mut network = RingPort::new(&settings, "link6", 64).unwrap();
    let ports = ports("link3", &RingPort::device("link6"));
    let layout = Layout::for_sessions(64, 2, 2);
    let mut tables = Tables::dpdk(&layout, &ports, &Options::default(), &settings).unwrap();
    tables.attach().unwrap();
    let _session = forward(&mut tables);
    let carrier = || read_to_string("/sys/class/net/n6/carrier").unwrap().trim() == "1";
    for times in 1..=2 {
        assert!(access.put(&uplink_frame()));
        eventually("it leaves", || {
            network.take().is_some_and(|frame| frame.len() == 58)
        });
        network.set_link(false);
        eventually("the kernel knows", || !carrier());
        assert!(access.put(&uplink_frame()));
        eventually("it is lost", || {
            dropped(&tables, 0, DropReason::Redirect) == times
        });
        network.set_link(true);
        eventually("the kernel knows", carrier);
    }
    drop(tables);
}

/// Frames above their rate leave in their order, none before its time; those that wait when the workers end give their buffers
/// back.
#[test]
fn what_is_above_its_rate_leaves_at_the_rate() {
    const PACKETS: u8 = 20;
    const EACH: Duration = Duration::from_millis(10);
    let _alone = ONE_BY_ONE.lock().unwrap_or_else(PoisonError::into_inner);
    in_a_namespace();
    let settings = settings();
    let layout = Layout {
        shaping: Some(Shaping {
            granularity: Duration::from_micros(50),
            slots: 1 << 18,
            frames: 2000,
        }),
        ..Layout::for_sessions(64, 2, 2)
    };
    let bits = 8 * 44;
    let rate = Rate {
        bps: bits * 1000 / u64::try_from(EACH.as_millis()).unwrap(),
        burst_bytes: 1,
        above: Above::Shape,
    };
    // Of more buffers than there are, each waits until the workers end.
    for round in 0..6 {
        let (n3, n6) = (format!("rate3{round}"), format!("rate6{round}"));
        let mut access = RingPort::new(&settings, &n3, 2048).unwrap();
        let mut network = RingPort::new(&settings, &n6, 2048).unwrap();
        let ports = ports(&n3, &RingPort::device(&n6));
        let mut tables = Tables::dpdk(&layout, &ports, &Options::default(), &settings).unwrap();
        tables.attach().unwrap();
        let _session = forward_at(&mut tables, Some(rate));
        let since = Instant::now();
        for number in 0..PACKETS {
            assert!(access.put(&numbered_frame(number)));
        }
        for number in 0..PACKETS {
            let mut frame = None;
            eventually("it leaves", || {
                frame = network.take().filter(|frame| frame.len() == 58);
                frame.is_some()
            });
            assert_eq!(frame.unwrap().last(), Some(&number), "round {round}");
            let least = EACH * u32::from(number);
            assert!(since.elapsed() >= least, "{number}: {:?}", since.elapsed());
        }
        let forwarded = || tables.totals()[0].forwarded[0].packets;
        for n in 1..=1200 {
            assert!(access.put(&uplink_frame()));
            eventually("it is to wait", || forwarded() == u64::from(PACKETS) + n);
        }
        assert_eq!(dropped(&tables, 0, DropReason::ShaperHorizon), 0);
        assert_eq!(dropped(&tables, 0, DropReason::ShaperFull), 0);
    }
}

#[test]
fn an_interface_that_is_down_loses_frames_until_it_is_up() {
    let _alone = ONE_BY_ONE.lock().unwrap_or_else(PoisonError::into_inner);
    in_a_namespace();
    ip("link add w6 type veth peer name far");
    ip("link set w6 up");
    ip("link set far up");
    let settings = settings();
    let mut access = RingPort::new(&settings, "down3", 64).unwrap();
    let ports = ports("down3", "net_af_packet_n6,iface=w6");
    let layout = Layout::for_sessions(64, 2, 2);
    let mut tables = Tables::dpdk(&layout, &ports, &Options::default(), &settings).unwrap();
    tables.attach().unwrap();
    let _session = forward(&mut tables);
    for _ in 0..2 {
        let before = taken("far");
        assert!(access.put(&uplink_frame()));
        eventually("it leaves", || taken("far") > before);
        ip("link set w6 down");
        // Of what the kernel sends there of its own, some is lost too.
        let before = dropped(&tables, 1, DropReason::Redirect);
        assert!(access.put(&uplink_frame()));
        eventually("it is lost", || {
            dropped(&tables, 1, DropReason::Redirect) > before
        });
        ip("link set w6 up");
    }
    drop(tables);
}

#[test]
fn a_device_with_fewer_queues_than_workers_is_refused() {
    let _alone = ONE_BY_ONE.lock().unwrap_or_else(PoisonError::into_inner);
    in_a_namespace();
    let settings = settings();
    let _access = RingPort::new(&settings, "few3", 64).unwrap();
    let ports = ports("few3", "net_null_few");
    let two_workers = Layout {
        workers: 2,
        ..Layout::for_sessions(64, 2, 2)
    };
    let tables = Tables::dpdk(&two_workers, &ports, &Options::default(), &settings);
    let text = tables.unwrap().attach().unwrap_err().to_string();
    let expected =
        "net_ring_few3 has 1 receive and 1 transmit queues, and 2 workers receive by one each";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn a_device_that_takes_frames_by_queues_that_nobody_polls_is_refused() {
    let _alone = ONE_BY_ONE.lock().unwrap_or_else(PoisonError::into_inner);
    in_a_namespace();
    ip("link add w6 type veth peer name far");
    let settings = settings();
    let _access = RingPort::new(&settings, "idle3", 64).unwrap();
    let ports = ports("idle3", "net_af_packet_idle6,iface=w6,qpairs=2");
    let layout = Layout::for_sessions(64, 2, 2);
    let tables = Tables::dpdk(&layout, &ports, &Options::default(), &settings);
    let text = tables.unwrap().attach().unwrap_err().to_string();
    let expected = "takes frames in by 2 queues, and 1 workers poll as many: give it qpairs=1";
    assert!(text.contains(expected), "{text}");
}

fn ue(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 60, 0, number)
}

const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);

/// Sessions of UEs 1 to `ues`, both ways: uplink by TEIDs of the UEs' numbers. `is_idle`: what comes for them waits.
fn sessions(tables: &mut Tables, ues: u8, is_idle: bool) -> Vec<Handle> {
    furnish(tables);
    let n3 = tables.alloc_nexthop(&hop(0)).unwrap();
    let session = |number: u8| {
        let teid = Key::direct(number.into());
        let address = Key::Ue4 {
            ni: NiId(0),
            addr: ue(number),
        };
        let tunnel = Action::Tunnel {
            teid: number.into(),
            peer: GNB.into(),
            local: N3.into(),
        };
        let both = Compiled {
            seid: number.into(),
            entries: vec![
                entry(1, Direction::Uplink, Action::Route { ni: NiId(0) }),
                entry(
                    2,
                    Direction::Downlink,
                    if is_idle { Action::Buffer } else { tunnel },
                ),
            ],
            keys: vec![(teid, Select::One(0)), (address, Select::One(1))],
            ..Compiled::default()
        };
        let mut handle = Handle::default();
        tables.publish(&mut handle, &both).unwrap();
        handle
    };
    let handles = (1..=ues).map(session).collect();
    resolve_peers(tables, n3);
    handles
}

/// The packet of this number, of a UE to its server or back.
fn numbered(from: Ipv4Addr, to: Ipv4Addr, number: u16) -> Vec<u8> {
    let mut packet = ipv4(from, to, 17, 64, 24);
    packet.extend([0; 22]);
    packet.extend(number.to_be_bytes());
    packet
}

fn uplink_of(number: u8, packet: u16) -> Vec<u8> {
    gpdu(number.into(), None, &numbered(ue(number), SERVER, packet))
}

fn downlink_of(number: u8, packet: u16) -> Vec<u8> {
    ethernet(&numbered(SERVER, ue(number), packet))
}

/// UE and number of a packet that has left towards the network, or in a tunnel.
fn read_uplink(frame: &[u8]) -> (u8, u16) {
    let number = u16::from_be_bytes(frame[56..58].try_into().unwrap());
    (frame[29], number)
}

fn read_downlink(frame: &[u8]) -> (u8, u16) {
    let (_, teid, _, packet) = read_gpdu(frame);
    assert_eq!(packet[19], teid as u8, "the tunnel of its UE");
    (
        packet[19],
        u16::from_be_bytes(packet[42..44].try_into().unwrap()),
    )
}

/// Ring ports without faces, and tables over them: nothing here is the kernel's affair.
struct Site {
    tables: Tables,
    access: RingPort,
    network: RingPort,
    _sessions: Vec<Handle>,
}

const UES: u8 = 16;

fn site(name: &str, workers: u32, queues: u32, pipeline: Option<Pipeline>) -> Site {
    let settings = Settings {
        taps: false,
        pipeline,
        ..settings()
    };
    site_over(&settings, name, (workers, queues), false)
}

/// `is_idle`: what comes for UEs waits.
fn site_over(
    settings: &Settings,
    name: &str,
    (workers, queues): (u32, u32),
    is_idle: bool,
) -> Site {
    let names = [format!("{name}3"), format!("{name}6")];
    let port_of = |name| RingPort::with_queues(settings, name, 2048, queues).unwrap();
    let (access, network) = (port_of(&names[0]), port_of(&names[1]));
    let ports = ports(&names[0], &RingPort::device(&names[1]));
    let layout = Layout {
        workers,
        ..Layout::for_sessions(64, 2, 2)
    };
    let mut tables = Tables::dpdk(&layout, &ports, &Options::default(), settings).unwrap();
    tables.attach().unwrap();
    let _sessions = sessions(&mut tables, UES, is_idle);
    Site {
        tables,
        access,
        network,
        _sessions,
    }
}

impl Site {
    /// `each` packets of every UE both ways, of UEs in turn, by the queue that `queue` says; each UE's leave in order.
    fn keeps_order(&mut self, each: u16, queue: impl Fn(u8) -> u32) {
        for number in 0..each {
            for of in 1..=UES {
                let (up, down) = (uplink_of(of, number), downlink_of(of, number));
                assert!(self.access.put_all(queue(of), &[&up]));
                assert!(self.network.put_all(queue(of), &[&down]));
            }
        }
        let mut next = [[0; UES as usize + 1]; 2];
        let all = u32::from(UES) * u32::from(each) * 2;
        let mut left = 0;
        eventually("all leave", || {
            let up = std::iter::from_fn(|| self.network.take());
            let ups: Vec<_> = up.map(|frame| read_uplink(&frame)).collect();
            let down = std::iter::from_fn(|| self.access.take());
            let downs: Vec<_> = down.map(|frame| read_downlink(&frame)).collect();
            for (next, packets) in next.iter_mut().zip([ups, downs]) {
                for (of, number) in packets {
                    assert_eq!(number, next[usize::from(of)], "of UE {of}");
                    next[usize::from(of)] += 1;
                    left += 1;
                }
            }
            left == all
        });
    }

    /// Threads that have met packets, of both ports together, since `before`.
    fn met(&self, before: &[Vec<u64>; 2]) -> Vec<usize> {
        let now = self.by_cpu();
        let more = |cpu: &usize| (0..2).any(|port| now[port][*cpu] > before[port][*cpu]);
        (0..now[0].len()).filter(more).collect()
    }

    fn by_cpu(&self) -> [Vec<u64>; 2] {
        [0, 1].map(|port| self.tables.counting().by_cpu(port))
    }
}

#[test]
fn in_the_pipeline_a_ues_packets_stay_with_one_worker_in_order() {
    let _alone = ONE_BY_ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let pipeline = Pipeline {
        receivers: 2,
        ..Pipeline::default()
    };
    let mut site = site("pipe", 2, 2, Some(pipeline));
    // Both directions by queues of different receive cores.
    let mut used = [0; 2];
    for number in 1..=UES {
        let before = site.by_cpu();
        for queue in 0..2 {
            assert!(site.access.put_all(queue, &[&uplink_of(number, 0)]));
            assert!(site.network.put_all(queue, &[&downlink_of(number, 0)]));
        }
        let mut left = 0;
        eventually("four leave", || {
            left += usize::from(site.network.take().is_some());
            left += usize::from(site.access.take().is_some());
            left == 4
        });
        let met = site.met(&before);
        assert_eq!(met.len(), 1, "UE {number} met by {met:?}");
        used[met[0]] += 1;
    }
    assert!(used.iter().all(|&ues| ues >= 4), "UEs of workers: {used:?}");
    // What has no UE has one worker, whatever queue it comes in by.
    let before = site.by_cpu();
    for queue in 0..2 {
        assert!(site.access.put_all(queue, &[&arp()]));
        assert!(site.network.put_all(queue, &[&arp()]));
    }
    eventually("four passed", || {
        let totals = site.tables.totals();
        totals.iter().map(|port| port.passed).sum::<u64>() == 4
    });
    assert_eq!(site.met(&before), [0]);
    site.keeps_order(40, |of| u32::from(of % 2));
}

/// Of four threads that poll, the first two have one port and the others have the other one.
fn ports_of_their_own(name: &str, pipeline: Option<Pipeline>) {
    let settings = Settings {
        taps: false,
        pipeline,
        ..settings()
    };
    let names = [format!("{name}3"), format!("{name}6")];
    let port_of = |name| RingPort::with_queues(&settings, name, 256, 4).unwrap();
    let [mut access, mut network] = [port_of(&names[0]), port_of(&names[1])];
    let mut ports = ports(&names[0], &RingPort::device(&names[1]));
    ports[0].polled_by = vec![0, 1];
    ports[1].polled_by = vec![2, 3];
    // Receive cores come behind workers.
    let (workers, first) = match settings.pipeline {
        Some(_) => (1, 1),
        None => (4, 0),
    };
    let layout = Layout {
        workers,
        ..Layout::for_sessions(64, 2, 2)
    };
    let mut tables = Tables::dpdk(&layout, &ports, &Options::default(), &settings).unwrap();
    tables.attach().unwrap();
    let _sessions = sessions(&mut tables, UES, false);
    let had_packets = |tables: &Tables| {
        let busy = |thread: usize| tables.counting().worker_now(first + thread).unwrap().busy;
        [0, 1, 2, 3].map(|thread: usize| busy(thread) > Duration::ZERO)
    };
    // A queue for each of two threads.
    let all = 2 * usize::from(UES);
    for queue in 0..2 {
        for number in 1..=UES {
            assert!(access.put_all(queue, &[&uplink_of(number, 0)]));
        }
    }
    let mut left = 0;
    eventually("all leave", || {
        left += std::iter::from_fn(|| network.take()).count();
        left == all
    });
    assert_eq!(had_packets(&tables), [true, true, false, false]);
    for queue in 0..2 {
        for number in 1..=UES {
            assert!(network.put_all(queue, &[&downlink_of(number, 0)]));
        }
    }
    let mut left = 0;
    eventually("all leave", || {
        left += std::iter::from_fn(|| access.take()).count();
        left == all
    });
    assert_eq!(had_packets(&tables), [true; 4]);
    if first == 0 {
        tables.barrier().wait().unwrap();
        let by_worker = [0, 1].map(|port| tables.counting().by_cpu(port)[..4].to_vec());
        let each = u64::from(UES);
        assert_eq!(by_worker, [[each, each, 0, 0], [0, 0, each, each]]);
    }
}

#[test]
fn a_ports_frames_are_served_by_cores_of_another_port() {
    let _alone = ONE_BY_ONE.lock().unwrap_or_else(PoisonError::into_inner);
    ports_of_their_own("own", None);
}

#[test]
fn in_the_pipeline_ports_have_receive_cores_of_their_own() {
    let _alone = ONE_BY_ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let pipeline = Pipeline {
        receivers: 4,
        ..Pipeline::default()
    };
    ports_of_their_own("ownpipe", Some(pipeline));
}

#[test]
fn run_to_completion_keeps_a_queue_with_its_worker_in_order() {
    let _alone = ONE_BY_ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut site = site("done", 2, 2, None);
    for queue in 0..2 {
        let before = site.by_cpu();
        assert!(site.access.put_all(queue, &[&uplink_of(1, 0)]));
        eventually("it leaves", || site.network.take().is_some());
        assert_eq!(site.met(&before), [queue as usize]);
    }
    site.keeps_order(40, |of| u32::from(of % 2));
}

/// What is sent for a packet that has waited leaves before what its worker runs afterwards, whichever port it leaves by.
fn what_waited_goes_first(name: &str, pipeline: Option<Pipeline>) {
    in_a_namespace();
    let settings = Settings {
        pipeline,
        ..settings()
    };
    let mut site = site_over(&settings, name, (2, 2), true);
    let pipeline = site.tables.pipeline();
    pipeline.buffer_up_to(1);
    let held = site.tables.buffered_packets().unwrap().unwrap();
    let (n6, patience) = (if_nametoindex("n6").unwrap(), Duration::from_secs(1));
    let socket = pipeline.egress().open(n6, patience).unwrap();
    let mut workers = [0; 2];
    for of in 1..=UES {
        let queue = u32::from(of % 2);
        let before = site.by_cpu();
        assert!(site.network.put_all(queue, &[&downlink_of(of, 0)]));
        let worker = OnceLock::new();
        let reader = RingReader::open(&held, |record| {
            worker.set(Event::parse(record).unwrap().worker).unwrap();
        });
        let reader = reader.unwrap();
        eventually("it waits", || reader.read(1).unwrap() == 1);
        let worker = *worker.get().unwrap();
        // It is handed over first, and counted when all of its burst has run.
        eventually("it is counted", || !site.met(&before).is_empty());
        assert_eq!(site.met(&before), [usize::from(worker)], "UE {of}");
        workers[usize::from(worker)] += 1;

        const WAITED: u16 = 300;
        let waited = |number| ethernet(&numbered(ue(of), SERVER, number));
        let waited: Vec<Vec<u8>> = (0..WAITED).map(waited).collect();
        assert_eq!(socket.send_by(worker, waited.iter().map(Vec::as_slice)), 0);
        assert!(site.access.put_all(queue, &[&uplink_of(of, WAITED)]));
        let mut next = 0;
        eventually("all leave", || {
            // What the kernel says of itself when an interface appears is no part of this.
            let left = std::iter::from_fn(|| site.network.take());
            for frame in left.filter(|frame| frame[12..14] == [8, 0]) {
                assert_eq!(read_uplink(&frame), (of, next), "UE and number");
                next += 1;
            }
            next == WAITED + 1
        });
    }
    assert!(
        workers.iter().all(|&ues| ues >= 4),
        "UEs of workers: {workers:?}"
    );
}

#[test]
fn in_the_pipeline_packets_that_have_waited_go_first() {
    let _alone = ONE_BY_ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let pipeline = Pipeline {
        receivers: 2,
        ..Pipeline::default()
    };
    what_waited_goes_first("first", Some(pipeline));
}

#[test]
fn run_to_completion_packets_that_have_waited_go_first() {
    let _alone = ONE_BY_ONE.lock().unwrap_or_else(PoisonError::into_inner);
    what_waited_goes_first("leads", None);
}

#[test]
fn a_ring_to_a_worker_that_is_full_loses_frames_under_a_name_until_there_is_room() {
    let _alone = ONE_BY_ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let room = 8;
    let pipeline = Pipeline {
        ring: room,
        ..Pipeline::default()
    };
    let mut site = site("narrow", 1, 1, Some(pipeline));
    // Those that come in at once are received at once, half of them: more than the ring has room for.
    let burst = 32;
    let frames: Vec<Vec<u8>> = (0..2 * burst)
        .map(|number| downlink_of(1, number))
        .collect();
    let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
    assert!(site.network.put_all(0, &frames));
    let mut left = 0;
    eventually("each has left or is lost", || {
        left += std::iter::from_fn(|| site.access.take()).count() as u64;
        left + dropped(&site.tables, 1, DropReason::WorkerFull) == 2 * u64::from(burst)
    });
    let (room, burst) = (u64::from(room), u64::from(burst));
    assert!((room..=2 * room).contains(&left), "{left} left");
    let downlink = site.tables.totals()[1].dropped(1, DropReason::WorkerFull);
    assert_eq!(
        downlink,
        2 * burst - left,
        "on the port and in the direction that they came in"
    );
    let came = site.tables.totals()[1].received[1].packets;
    assert_eq!(came, 2 * burst, "what is lost has come in");
    for number in 0..100 {
        assert!(site.network.put(&downlink_of(1, number)));
        eventually("it forwards again", || site.access.take().is_some());
    }
    assert_eq!(dropped(&site.tables, 1, DropReason::WorkerFull), downlink);
}

#[test]
fn frames_that_a_full_worker_loses_never_came_in_and_all_are_uplink() {
    let _alone = ONE_BY_ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let room = 8;
    let pipeline = Pipeline {
        ring: room,
        ..Pipeline::default()
    };
    let settings = Settings {
        taps: false,
        pipeline: Some(pipeline),
        ..settings()
    };
    let mut wire = RingPort::new(&settings, "bothways", 256).unwrap();
    let mut both = port("n3", true, &RingPort::device("bothways"));
    both.roles.n6 = true;
    let layout = Layout::for_sessions(64, 2, 2);
    let mut tables = Tables::dpdk(&layout, &[both], &Options::default(), &settings).unwrap();
    tables.attach().unwrap();
    furnish(&mut tables);
    // More than the ring has room for, of both directions; nobody has a session.
    let (up, down) = (uplink_of(1, 0), downlink_of(1, 0));
    let burst = 32;
    for frame in [&up, &down] {
        assert!(wire.put_all(0, &vec![frame.as_slice(); burst]));
    }
    let burst = burst as u64;
    eventually("all have come in", || {
        let came = tables.totals()[0].received;
        came[0].packets + came[1].packets == 2 * burst
    });
    tables.barrier().wait().unwrap();
    let totals = &tables.totals()[0];
    // Of what comes to an unknown tunnel, some is answered.
    for (direction, (frame, answered)) in [(up, totals.answered), (down, 0)].iter().enumerate() {
        let came = totals.received[direction];
        let lost: u64 = totals.drops[direction].iter().sum();
        assert_eq!(
            (came.packets, lost + answered),
            (burst, burst),
            "{direction}"
        );
        assert_eq!(came.bytes, burst * frame.len() as u64, "{direction}");
        let full = totals.dropped(direction, DropReason::WorkerFull);
        let room = u64::from(room);
        assert!((burst - 2 * room..=burst).contains(&full), "{full}");
    }
}

/// A folder for tables and the socket of workers, which goes with this.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        Self(folder)
    }

    fn front(&self) -> PathBuf {
        self.0.join("sessions")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = tables::end_workers(&self.front());
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Workers in a thread that stands for their process, over tables of their own in this folder.
fn apart(folder: &Folder, settings: &Settings, layout: &Layout, ports: &[PortConfig]) -> Tables {
    let start = StartWorkers::new(|socket| {
        std::thread::spawn(move || run_workers(&socket).unwrap());
        Ok(())
    });
    let files = TableFiles::new(&folder.front(), 0).unwrap().for_all();
    let options = Options::default();
    Tables::dpdk_apart(layout, ports, &options, settings, (files, start)).unwrap()
}

fn packets(counted: &PortTotals) -> u64 {
    counted.forwarded[0].packets
}

#[test]
fn workers_apart_go_on_over_other_tables_and_each_counts_its_own() {
    let _alone = ONE_BY_ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let settings = without_taps();
    let mut access = RingPort::new(&settings, "apart3", 256).unwrap();
    let mut network = RingPort::new(&settings, "apart6", 256).unwrap();
    let _wire = RingPort::new(&settings, "other3", 256).unwrap();
    // It ends workers before their wires go.
    let folder = Folder::new("apart");
    let ports = ports("apart3", &RingPort::device("apart6"));
    let layout = Layout::for_sessions(64, 2, 2);
    let mut forward_all = |of: u16| {
        for number in 0..of {
            assert!(access.put(&uplink_of(1, number)));
        }
        let mut left = 0;
        eventually("all leave", || {
            left += std::iter::from_fn(|| network.take()).count();
            left == usize::from(of)
        });
    };
    let mut first = apart(&folder, &settings, &layout, &ports);
    assert_eq!(first.going_on(), GoingOn::Later);
    first.attach().unwrap();
    let _sessions = sessions(&mut first, 1, false);
    first.set_going_on(true);
    forward_all(10);
    // As if its process had been killed.
    drop(first);
    forward_all(20);
    let mut next = apart(&folder, &settings, &layout, &ports);
    assert_eq!(
        (next.going_on(), next.generation()),
        (GoingOn::Already, Some(2))
    );
    let _sessions = sessions(&mut next, 1, false);
    assert!(next.lead().unwrap());
    forward_all(30);
    next.attach().unwrap();
    forward_all(40);
    let left = Left::in_files(&folder.front(), 1, false).unwrap();
    assert_eq!(
        (packets(&left.port(0)), packets(&next.totals()[0])),
        (60, 40)
    );
    next.barrier().wait().unwrap();
    next.check().unwrap();
    drop((next, left));

    // Others end those when they begin.
    let ports = [port("n3", true, &RingPort::device("other3"))];
    let mut other = apart(&folder, &settings, &layout, &ports);
    assert_eq!(
        (other.going_on(), other.lead().unwrap()),
        (GoingOn::Already, false)
    );
    forward_all(5);
    other.attach().unwrap();
    assert!(tables::end_workers(&folder.front()).unwrap());
    eventually("it hears of their end", || other.check().is_err());
    let error = other.replace_workers().unwrap_err().to_string();
    assert!(error.contains("no such device"), "wires open once: {error}");
    eventually("those have ended, too", || {
        !tables::end_workers(&folder.front()).unwrap()
    });
}

#[test]
fn interfaces_stay_when_other_workers_take_the_place_of_former_ones() {
    let _alone = ONE_BY_ONE.lock().unwrap_or_else(PoisonError::into_inner);
    in_a_namespace();
    let settings = settings();
    let wires = [
        "before-a", "before-b", "after-b", "last-b", "last-c", "anew-b",
    ];
    let _wires = wires.map(|name| RingPort::new(&settings, name, 64).unwrap());
    let [before_a, before_b, after_b, last_b, last_c, anew_b] = wires.map(RingPort::device);
    // It ends workers before their wires go.
    let folder = Folder::new("stays");
    let layout = Layout::for_sessions(64, 2, 2);
    let index = |name: &str| read_to_string(format!("/sys/class/net/{name}/ifindex")).ok();

    let ports = [
        port("tapa", true, &before_a),
        port("tapb", false, &before_b),
    ];
    let mut first = apart(&folder, &settings, &layout, &ports);
    first.attach().unwrap();
    first.set_going_on(true);
    let before = index("tapb");
    assert!(before.is_some() && index("tapa").is_some());
    ip("address add 192.0.2.1/24 dev tapb");
    drop(first);

    let ports = [port("tapb", true, &after_b)];
    let mut next = apart(&folder, &settings, &layout, &ports);
    assert_eq!(next.going_on(), GoingOn::Already);
    next.attach().unwrap();
    next.set_going_on(true);
    assert_eq!((index("tapb"), &index("tapa")), (before.clone(), &None));
    drop(next);

    // Whoever begins without an interface cannot wait for it.
    let ports = [port("tapb", true, &last_b), port("tapc", false, &last_c)];
    let mut last = apart(&folder, &settings, &layout, &ports);
    assert_eq!(last.going_on(), GoingOn::Later);
    last.attach().unwrap();
    last.set_going_on(true);
    assert_eq!(index("tapb"), before);
    assert!(index("tapc").is_some());
    ip("address del 192.0.2.1/24 dev tapb");
    drop(last);

    ip("link delete tapb");
    let ports = [port("tapb", false, &anew_b)];
    let mut anew = apart(&folder, &settings, &layout, &ports);
    assert_eq!(anew.going_on(), GoingOn::Later);
    anew.attach().unwrap();
    anew.set_going_on(true);
    let before = index("tapb").filter(|of| Some(of) != before.as_ref());
    assert!(before.is_some());

    // They make it anew, and whoever goes on with them judges by its number.
    ip("link delete tapb");
    eventually("it is there again", || {
        index("tapb").is_some_and(|of| Some(of) != before)
    });
    drop(anew);
    let mut same = apart(&folder, &settings, &layout, &ports);
    assert!(same.lead().unwrap());
    let number = index("tapb").unwrap().trim().parse().unwrap();
    assert!(same.ingress().is_data_network(number));
}

#[test]
fn workers_apart_end_with_whoever_wants_no_others_to_go_on() {
    let _alone = ONE_BY_ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let settings = without_taps();
    let layout = Layout::for_sessions(64, 2, 2);
    for (goes_on, name) in [(false, "mortal3"), (true, "goeson3"), (false, "ends3")] {
        let _wire = RingPort::new(&settings, name, 64).unwrap();
        // It ends workers before their wire goes.
        let folder = Folder::new(name);
        let ports = [port("n3", true, &RingPort::device(name))];
        let mut tables = apart(&folder, &settings, &layout, &ports);
        tables.attach().unwrap();
        tables.set_going_on(true);
        tables.set_going_on(goes_on);
        drop(tables);
        let is_there = || {
            let tables = apart(&folder, &settings, &layout, &ports);
            tables.going_on() == GoingOn::Already
        };
        match goes_on {
            true => assert!(is_there()),
            false => eventually("they end", || !is_there()),
        }
    }
}

#[test]
fn frames_that_wait_leave_when_workers_apart_have_gone_on() {
    const PACKETS: u8 = 8;
    let _alone = ONE_BY_ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let settings = without_taps();
    let mut access = RingPort::new(&settings, "waits3", 256).unwrap();
    let mut network = RingPort::new(&settings, "waits6", 256).unwrap();
    // It ends workers before their wires go.
    let folder = Folder::new("waits");
    let ports = ports("waits3", &RingPort::device("waits6"));
    let layout = Layout {
        shaping: Some(Shaping {
            granularity: Duration::from_millis(1),
            slots: 16_384,
            frames: 1024,
        }),
        ..Layout::for_sessions(64, 2, 2)
    };
    let shaped = |tables: &mut Tables| {
        // 52 octets in half a second.
        let rate = Rate {
            bps: 832,
            burst_bytes: 1,
            above: Above::Shape,
        };
        forward_at(tables, Some(rate))
    };
    let mut first = apart(&folder, &settings, &layout, &ports);
    first.attach().unwrap();
    let _session = shaped(&mut first);
    first.set_going_on(true);
    for number in 0..PACKETS {
        assert!(access.put(&numbered_frame(number)));
    }
    let waiting = |tables: &Tables| tables.counting().worker_now(0).unwrap().waiting;
    eventually("they wait", || waiting(&first) > 4);
    drop(first);
    let mut next = apart(&folder, &settings, &layout, &ports);
    let _session = shaped(&mut next);
    next.attach().unwrap();
    assert!(waiting(&next) > 1, "they still do");
    let mut left = Vec::new();
    eventually("all leave", || {
        left.extend(std::iter::from_fn(|| network.take()).map(|frame| frame.last().copied()));
        left.len() == usize::from(PACKETS)
    });
    assert_eq!(left, (0..PACKETS).map(Some).collect::<Vec<_>>(), "in order");
    eventually("none is counted as waiting", || waiting(&next) == 0);
}
