//! Ports of DPDK that lose frames: under which name, and that they forward again afterwards. In network namespaces of the
//! tests' own. Needs root.
#![cfg(feature = "dpdk")]
#![allow(clippy::unwrap_used, reason = "test helpers")]

mod common;

use std::fs::read_to_string;
use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use common::{ethernet, furnish, gpdu, ipv4, need_root};
use nix::net::if_::if_nametoindex;
use nix::sched::{CloneFlags, unshare};
use session::compiled::{
    Action, Compiled, Direction, Entry, Key, NiId, PdrId, Rate, Select, Tables as _,
};
use tables::dpdk::{RingPort, Settings};
use tables::{FrameSocket, Handle, Layout, Options, PortConfig, Roles, Shaping, Tables};

/// The tests share DPDK's environment, and its buffers.
static ONE_BY_ONE: Mutex<()> = Mutex::new(());

const TEID: u32 = 5;

fn settings() -> Settings {
    let eal = ["--no-huge", "-m", "96", "--no-pci", "--no-telemetry"];
    Settings {
        eal: eal.map(str::to_owned).into(),
        buffers: 4096,
        ..Settings::default()
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

/// A session whose packets come in by port 0 and leave by port 1.
fn forward(tables: &mut Tables) -> Handle {
    forward_at(tables, None)
}

fn forward_at(tables: &mut Tables, meter: Option<Rate>) -> Handle {
    furnish(tables);
    let uplink = Compiled {
        seid: 1,
        entries: vec![Entry {
            pdr: PdrId(1),
            predefined: None,
            direction: Direction::Uplink,
            action: Action::Route { ni: NiId(0) },
            ue: None,
            framed: false,
            qfi: None,
            relay: None,
            marking: None,
            marks: Default::default(),
            meter,
            shared_meters: Default::default(),
            packet_meter: None,
            duplicates: Vec::new(),
        }],
        keys: vec![(
            Key::Teid {
                teid: TEID,
                direct: true,
            },
            Select::One(0),
        )],
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

fn dropped(tables: &Tables, port: usize, reason: &str) -> u64 {
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
    let sent = drain(&mut network) as u64;
    let lost = dropped(&tables, 0, "port_full");
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
        dropped(&tables, 0, "tap_refused") == 1
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
        dropped(&tables, 0, "no_buffer") > 0
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
        eventually("it is lost", || dropped(&tables, 0, "redirect") == times);
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
    };
    // Of more buffers than there are, each waits until the workers end.
    for round in 0..4 {
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
        assert_eq!(dropped(&tables, 0, "shaper_horizon"), 0);
        assert_eq!(dropped(&tables, 0, "shaper_full"), 0);
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
        let before = dropped(&tables, 1, "redirect");
        assert!(access.put(&uplink_frame()));
        eventually("it is lost", || dropped(&tables, 1, "redirect") > before);
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
    let expected = "net_ring_few3 has 1 receive and 1 transmit queues, and each of 2 workers";
    assert!(text.contains(expected), "{text}");
}
