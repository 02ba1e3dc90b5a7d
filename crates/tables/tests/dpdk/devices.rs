//! Kinds of devices, each as port of N6: what a UE sends arrives at the far end, and what the far end sends for this host
//! arrives at its kernel.

use fs::{read, read_to_string, write};
use std::path::PathBuf;

use super::*;
use testkit::machine::{HugePages, quiet_kernel};

/// What the sanitizer of memory does not tell: net_af_xdp of DPDK 22.11 keeps 80 octets of a port that is closed.
#[unsafe(no_mangle)]
extern "C" fn __lsan_default_suppressions() -> *const std::ffi::c_char {
    c"leak:xsk_umem__create".as_ptr()
}

struct Over {
    tables: Tables,
    access: RingPort,
    _session: Handle,
}

/// N6 over a device.
fn over(name: &str, device: &str) -> Over {
    quiet_kernel();
    let settings = settings();
    let access = RingPort::new(&settings, name, 64).unwrap();
    let layout = Layout::for_sessions(64, 2, 2);
    let ports = ports(name, device);
    let mut tables = Tables::dpdk(&layout, &ports, &Options::default(), &settings).unwrap();
    tables.attach().unwrap();
    let _session = forward(&mut tables);
    Over {
        tables,
        access,
        _session,
    }
}

/// far: interface at the other end of N6, which is up.
fn carries_both_ways(over: &mut Over, far: &str) {
    let forwarded = || over.tables.totals()[0].forwarded[0].packets;
    // As soon as the link is known to be up.
    eventually("a UE's packet is forwarded", || {
        over.access.put(&uplink_frame());
        forwarded() > 0
    });
    let before = taken(far);
    eventually("a UE's packet arrives", || {
        over.access.put(&uplink_frame());
        taken(far) > before
    });
    let socket = FrameSocket::open(if_nametoindex(far).unwrap(), Duration::from_secs(1)).unwrap();
    let (before, frame) = (taken("n6"), arp());
    eventually("a frame for this host arrives", || {
        socket.send([frame.as_slice()].into_iter());
        taken("n6") > before
    });
}

#[test]
fn af_xdp() {
    let _alone = ONE_BY_ONE.lock().unwrap_or_else(PoisonError::into_inner);
    in_a_namespace();
    ip("link add w6 type veth peer name far");
    ip("link set w6 up");
    ip("link set far up");
    let mut over = over("xdp3", "net_af_xdp_n6,iface=w6");
    carries_both_ways(&mut over, "far");
}

/// How often the worker has slept.
fn slept() -> u64 {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let paths = tasks.map(|task| task.unwrap().path());
    let is_worker = |path: &PathBuf| {
        read_to_string(path.join("comm")).is_ok_and(|name| name.trim() == "worker-0")
    };
    let worker = paths.into_iter().find(is_worker).unwrap();
    let status = read_to_string(worker.join("status")).unwrap();
    let mut lines = status.lines();
    let field = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    field.unwrap().trim().parse().unwrap()
}

#[test]
fn tap() {
    let _alone = ONE_BY_ONE.lock().unwrap_or_else(PoisonError::into_inner);
    in_a_namespace();
    let mut over = over("tap3", "net_tap_n6,iface=far");
    ip("link set far up");
    carries_both_ways(&mut over, "far");
}

/// Workers without traffic sleep until a device wakes them: between two of these there is time for thousands of short sleeps.
#[test]
fn a_device_that_can_wakes_a_worker() {
    let _alone = ONE_BY_ONE.lock().unwrap_or_else(PoisonError::into_inner);
    in_a_namespace();
    quiet_kernel();
    let settings = settings();
    let ends = [("n3", "far3"), ("n6", "far6")];
    let ports = ends.map(|(name, far)| {
        port(
            name,
            name == "n3",
            &format!("net_tap_wakes_{name},iface={far}"),
        )
    });
    let layout = Layout::for_sessions(64, 2, 2);
    let mut tables = Tables::dpdk(&layout, &ports, &Options::default(), &settings).unwrap();
    tables.attach().unwrap();
    let _session = forward(&mut tables);
    let sockets = ["far3", "far6", "n6"].map(|name| {
        if name != "n6" {
            ip(&format!("link set {name} up"));
        }
        FrameSocket::open(if_nametoindex(name).unwrap(), Duration::from_secs(1)).unwrap()
    });
    let [access, network, host] = &sockets;
    let carry = |socket: &FrameSocket, frame: &[u8], to: &str| {
        let before = taken(to);
        eventually(to, || {
            socket.send([frame].into_iter());
            taken(to) > before
        });
    };
    for _ in 0..2 {
        carry(access, &uplink_frame(), "far6");
        carry(network, &arp(), "n6");
        carry(host, &arp(), "far6");
        std::thread::sleep(Duration::from_millis(200));
        let before = slept();
        std::thread::sleep(Duration::from_secs(1));
        let times = slept() - before;
        assert!(times < 200, "the worker has slept {times} times");
    }
}

/// Two of them, one at either end: the far one is a port of other tables, which know nobody, so that what comes there is their
/// kernel's.
#[test]
fn memif() {
    let _alone = ONE_BY_ONE.lock().unwrap_or_else(PoisonError::into_inner);
    in_a_namespace();
    let device = |role| {
        let process = std::process::id();
        format!("net_memif_{role},role={role},socket-abstract=yes,socket=turnpike{process}")
    };
    let mut near = over("memif3", &device("server"));
    let settings = settings();
    let mut end = port("far", false, &device("client"));
    end.roles.n3 = true;
    let layout = Layout::for_sessions(64, 2, 2);
    let mut others = Tables::dpdk(&layout, &[end], &Options::default(), &settings).unwrap();
    others.attach().unwrap();
    carries_both_ways(&mut near, "far");
}

/// Octets of frames in a capture file, which grows.
fn captured(path: &PathBuf) -> Vec<usize> {
    let octets = read(path).unwrap_or_default();
    let mut rest = octets.get(24..).unwrap_or_default();
    let mut lengths = Vec::new();
    while let Some(field) = rest.get(8..12) {
        let len = u32::from_le_bytes(field.try_into().unwrap()) as usize;
        lengths.push(len);
        rest = rest.get(16 + len..).unwrap_or_default();
    }
    lengths
}

/// A capture file with one frame.
fn capture(frame: &[u8]) -> Vec<u8> {
    let len = frame.len() as u32;
    let words = [0xa1b2_c3d4, 2 | 4 << 16, 0, 0, 65535, 1, 0, 0, len, len];
    let mut octets: Vec<u8> = words
        .iter()
        .flat_map(|word: &u32| word.to_le_bytes())
        .collect();
    octets.extend(frame);
    octets
}

#[test]
fn pcap() {
    let _alone = ONE_BY_ONE.lock().unwrap_or_else(PoisonError::into_inner);
    in_a_namespace();
    let folder = std::env::temp_dir().join(format!("turnpike-pcap-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let [into, out] = ["in", "out"].map(|name| folder.join(name));
    write(&into, capture(&arp())).unwrap();
    let (from, to) = (into.display(), out.display());
    // Again and again, so that one comes when the kernel takes it.
    let device = format!("net_pcap_n6,rx_pcap={from},tx_pcap={to},infinite_rx=1");
    let mut over = over("pcap3", &device);
    eventually("a frame for this host arrives", || taken("n6") > 0);
    assert!(over.access.put(&uplink_frame()));
    eventually("it leaves", || {
        over.tables.totals()[0].forwarded[0].packets == 1
    });
    drop(over);
    // An Ethernet header and the UE's packet of 44 octets, in a file that is whole when the port is closed.
    assert!(captured(&out).contains(&58), "{:?}", captured(&out));
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn an_mtu_that_a_device_does_not_take_is_an_invalid_argument() {
    let _alone = ONE_BY_ONE.lock().unwrap_or_else(PoisonError::into_inner);
    in_a_namespace();
    ip("link add w6 type veth peer name far");
    ip("tuntap add n6 mode tap");
    let settings = settings();
    let layout = Layout::for_sessions(64, 2, 2);
    let attach = |name: &str, mtu: u32| {
        ip(&format!("link set n6 mtu {mtu}"));
        let _access = RingPort::new(&settings, name, 64).unwrap();
        let ports = ports(name, "net_af_packet_long6,iface=w6");
        let tables = Tables::dpdk(&layout, &ports, &Options::default(), &settings);
        tables.unwrap().attach().map_err(|error| error.to_string())
    };
    let text = attach("long3", 9000).unwrap_err();
    let (before, rest) = text.split_once(" octets at most, and the MTU").unwrap();
    let most: u32 = before.rsplit(' ').next().unwrap().parse().unwrap();
    let expected =
        format!(" of its TAP interface is 9000: lower that (ip link set NAME mtu {most})");
    assert_eq!(rest, expected, "{text}");
    // Its advice helps.
    attach("less3", most).unwrap();
}

#[test]
fn without_huge_pages_the_start_says_no_more_than_that_it_failed() {
    need_root();
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "devices::tap", "--nocapture"]);
    child.env(HUGE, "262144");
    let output = child.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{text}");
    let expected = [
        " are free, and some ",
        "sysctl -w vm.nr_hugepages=",
        "\"--no-huge\"",
    ];
    // Debug output has quotes behind backslashes.
    let text = text.replace('\\', "");
    assert!(expected.iter().all(|words| text.contains(words)), "{text}");
}

#[test]
fn buffers_may_lie_in_huge_pages() {
    need_root();
    let _pages = HugePages::reserve(48);
    // A process starts DPDK once: this one has done so otherwise, or will.
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "devices::tap", "--nocapture"]);
    child.env(HUGE, "96");
    let output = child.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let passed = output.status.success() && text.contains("1 passed");
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(passed, "{text}\n{why}");
}
