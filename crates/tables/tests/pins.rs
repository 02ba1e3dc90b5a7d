//! Programs that outlive their process. Needs root; in namespaces and a bpffs of each test's own, which go with it.

#![allow(clippy::unwrap_used, reason = "test helpers")]

use std::fs::{self, Permissions};
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use compiled::{
    Above, Action, Compiled, CountedAt, Counters, Direction, Key, Limit, NiId, PdrId, QerId, Rate,
    Select, SharedMeter, Tables as _,
};
use nexthop::{Family, NextHopTables};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use tables::testing::{hop, ports};
use tables::{DropReason, Handle, Layout, Mode, Options, Pins, PortConfig, SetupError, Tables};
use testkit::machine::need_root;
use testkit::{packets, sessions};

const TEID: u32 = 7;
const OCTETS: u64 = 52;

fn ip(arguments: &str) -> String {
    let mut command = Command::new("ip");
    let output = command.args(arguments.split(' ')).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {arguments}: {error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A bpffs, and interfaces of these ports; the first one has a name with a dot.
struct Host {
    bpffs: PathBuf,
    ports: Vec<PortConfig>,
}

impl Host {
    fn new() -> Self {
        need_root();
        // The test's thread alone moves.
        unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS).unwrap();
        let none = None::<&str>;
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        mount(none, "/", none, private, none).unwrap();
        let id = format!("{}-{:?}", std::process::id(), std::thread::current().id());
        let bpffs = std::env::temp_dir().join(format!("turnpike-pins-{id}"));
        fs::create_dir(&bpffs).unwrap();
        mount(Some("bpf"), &bpffs, Some("bpf"), MsFlags::empty(), none).unwrap();
        let mut ports = ports();
        "tp0.7".clone_into(&mut ports[0].name);
        let host = Self { bpffs, ports };
        host.ports.iter().for_each(|port| host.plug(&port.name));
        host
    }

    fn plug(&self, name: &str) {
        ip(&format!("link add {name} type veth peer name peer{name}"));
    }

    fn pins(&self) -> Result<Pins, SetupError> {
        Pins::open(&self.bpffs, "upf.example", 0)
    }

    /// A child that another test's thread is about to start has our descriptors, and so the lock, for a moment.
    fn free_pins(&self) -> Pins {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            match self.pins() {
                Ok(pins) => return pins,
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn tables(&self) -> (Tables, Handle) {
        self.tables_of(&self.ports)
    }

    /// Tables of these ports that a session is in.
    fn tables_of(&self, ports: &[PortConfig]) -> (Tables, Handle) {
        let layout = Layout::for_sessions(64, 2, 2);
        let options = Options {
            settle: Duration::MAX,
            ..Options::default()
        };
        let pins = self.free_pins();
        let mut tables = Tables::pinned(&layout, ports, &options, pins).unwrap();
        tables.keep_counts(true);
        tables.set_local(&[packets::N3.into()]).unwrap();
        let out = tables.alloc_nexthop(&hop(1)).unwrap();
        let routes = [("0.0.0.0/0".parse().unwrap(), out)];
        tables.set_ni_routes(NiId(0), Family::V4, &routes).unwrap();
        let mut handle = Handle::default();
        tables.publish(&mut handle, &session(1)).unwrap();
        (tables, handle)
    }

    fn has_program(&self, name: &str) -> bool {
        ip(&format!("link show dev {name}")).contains("prog/xdp id")
    }

    fn folder(&self) -> PathBuf {
        self.bpffs.join("upf=2eexample")
    }

    fn pinned(&self) -> Vec<String> {
        names(&self.folder())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = nix::mount::umount(&self.bpffs);
        let _ = fs::remove_dir(&self.bpffs);
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// One PDR, whose packets go out in this network instance.
fn session(pdr: u16) -> Compiled {
    let action = Action::Route { ni: NiId(0) };
    Compiled {
        entries: vec![sessions::entry(PdrId(pdr), Direction::Uplink, action)],
        keys: vec![(Key::direct(TEID), Select::One(0))],
        measured: true,
        seid: 5,
        ..Compiled::default()
    }
}

fn frame() -> Vec<u8> {
    let ue = Ipv4Addr::new(10, 60, 0, 1);
    let ip = packets::ipv4(ue, Ipv4Addr::new(192, 0, 2, 1), 17, 64, 32);
    assert_eq!(ip.len() as u64 + 32, OCTETS);
    packets::gpdu(TEID, None, &[&ip[..], &[0; 32]].concat())
}

fn forward(tables: &mut Tables, times: u64) {
    let frame = frame();
    for _ in 0..times {
        let redirected = tables.test_run(0, &frame).unwrap().unwrap();
        assert_eq!(redirected.0, 4);
    }
}

fn counted_at(tables: &Tables, handle: &Handle) -> Vec<CountedAt> {
    let mut all = Vec::new();
    tables.counted_at(handle, &mut all);
    all
}

/// Counts of tables that nobody has any more.
fn sum(bpffs: &Path, generation: u64, at: &[CountedAt]) -> Counters {
    let left = Pins::left(bpffs, "upf.example", generation).unwrap();
    let entries = at.iter().flat_map(|at| &at.entries);
    let entries = entries.map(|entry| left.counted(*entry).unwrap());
    let before = at.iter().filter_map(|at| at.before.as_deref().copied());
    let all: Counters = entries
        .chain(before)
        .fold(Counters::default(), Counters::plus);
    assert!(left.counted(u32::MAX).is_none());
    all
}

#[test]
fn programs_stay_until_those_of_the_next_process_take_over() {
    let host = Host::new();
    let name = host.ports[0].name.clone();
    let (mut first, handle) = host.tables();
    assert!(!host.has_program(&name), "not before it is attached");
    first.attach().unwrap();
    forward(&mut first, 3);
    let at = counted_at(&first, &handle);
    drop(first);
    assert!(host.has_program(&name), "its process is gone");
    let mut links = host.pinned();
    links.retain(|name| name.starts_with("link-"));
    assert!(
        links.contains(&"link-driver-tp0=2e7".to_owned()),
        "{links:?}"
    );

    let (mut second, _) = host.tables();
    let pins = second.pins().unwrap();
    assert_eq!(pins.generation(), 2);
    assert_eq!(sum(&host.bpffs, 1, &at).bytes, 3 * OCTETS);
    let left = Pins::left(&host.bpffs, "upf.example", 1).unwrap();
    assert_eq!(left.port(0).received[0].packets, 3);
    let program = || ip(&format!("-d link show dev {name}"));
    let before = program();
    second.attach().unwrap();
    assert!(host.has_program(&name) && program() != before);
    let pins = second.pins().unwrap();
    pins.retain_maps(&[1]);
    let maps = names(&host.folder().join("maps-1-0000000000000001"));
    // Maps with counts and meters, and rings.
    let mut expected = [
        "config", "cpus", "entries", "exts", "meters", "sides", "slow",
    ]
    .to_vec();
    expected.extend(["copies", "events", "held", "later"]);
    expected.sort_unstable();
    assert_eq!(maps, expected);
    pins.retain_maps(&[]);
    assert!(Pins::left(&host.bpffs, "upf.example", 1).is_err());
    let mut maps = host.pinned();
    maps.retain(|name| name.starts_with("maps-"));
    assert_eq!(maps, ["maps-1-0000000000000002"]);
    pins.remove();
    assert!(host.has_program(&name), "as long as the process lives");
    drop(second);
    assert!(!host.has_program(&name), "nobody is to go on");
}

#[test]
fn counts_are_where_they_are_said_to_be_while_entries_change() {
    let host = Host::new();
    let (mut tables, mut handle) = host.tables();
    (0..3).for_each(|port| tables.set_redirect(port, 1).unwrap());
    forward(&mut tables, 2);
    // Another condition: packets meet another entry from now on.
    let mut other = session(1);
    other.entries[0].ue = Some(compiled::UeAddresses {
        v4: Some(Ipv4Addr::new(10, 60, 0, 1)),
        v6: None,
    });
    let first = counted_at(&tables, &handle)[0].entries[0];
    let list = Compiled {
        filters: vec![compiled::Filter {
            entry: 0,
            flow: None,
            qfis: compiled::QfiSet::default(),
        }],
        keys: vec![(Key::direct(TEID), Select::List { first: 0, len: 1 })],
        ..other.clone()
    };
    tables.publish(&mut handle, &list).unwrap();
    forward(&mut tables, 3);
    let generation = tables.pins().unwrap().generation();
    let is_whole = |tables: &Tables, handle: &Handle, packets| {
        let at = counted_at(tables, handle);
        let counters = tables.counters(handle, PdrId(1));
        assert_eq!(sum(&host.bpffs, generation, &at), counters);
        assert_eq!(counters.packets, packets);
        at
    };
    let at = is_whole(&tables, &handle, 5);
    assert!(
        at[0].entries.len() == 2 && at[0].entries.contains(&first),
        "{at:?}"
    );
    let seid = (0..10_000).find_map(|_| {
        tables.maintain();
        std::thread::sleep(Duration::from_millis(1));
        tables.next_recounted()
    });
    assert_eq!(seid, Some(5), "the grace period of the first entry is over");
    let at = is_whole(&tables, &handle, 5);
    assert!(at[0].entries.len() == 1 && at[0].before.is_some(), "{at:?}");
    tables.counts_are_kept();
    assert_eq!(tables.next_recounted(), None);
    forward(&mut tables, 1);
    is_whole(&tables, &handle, 6);
}

#[test]
fn what_a_rate_has_let_pass_has_passed_for_the_next_process() {
    /// A packet in two seconds, so that few are added while this takes.
    const BPS: u64 = 8 * OCTETS / 2;
    let rate = Rate {
        bps: BPS,
        burst_bytes: 10 * OCTETS,
        above: Above::Police,
    };
    let mut own = session(1);
    own.entries[0].meter = Some(rate);
    let mut shared = session(1);
    shared.meters = vec![SharedMeter {
        qer: QerId(1),
        direction: Direction::Uplink,
        limit: Limit::Bits(rate),
    }];
    shared.entries[0].shared_meters = [0].into_iter().collect();
    for metered in [own, shared] {
        let host = Host::new();
        let began = Instant::now();
        let passed = |tables: &Tables| {
            let passes = |_: &u32| tables.test_run(0, &frame()).unwrap().unwrap().0 == 4;
            (0..100).filter(passes).count()
        };
        let (mut first, mut handle) = host.tables();
        let redirect =
            |tables: &mut Tables| (0..3).for_each(|port| tables.set_redirect(port, 1).unwrap());
        redirect(&mut first);
        first.publish(&mut handle, &metered).unwrap();
        assert!(first.is_metered(&handle));
        let at = counted_at(&first, &handle);
        let mut all = passed(&first);
        assert!(all > 10, "{all}");
        first.pins().unwrap().are_met();
        drop(first);

        let (mut second, mut handle) = host.tables();
        second.go_on_with(Pins::left(&host.bpffs, "upf.example", 1).unwrap().meters());
        redirect(&mut second);
        second.publish(&mut handle, &metered).unwrap();
        second.follow_meters(&handle, &at);
        second.raise_meters();
        second.leave_meters();
        all += passed(&second);
        let since = began.elapsed().as_secs_f64() * BPS as f64 / (8 * OCTETS) as f64;
        assert!(
            all as f64 <= 11.0 + since,
            "{all} packets, of which 11 and {since:.1} may pass"
        );
    }
}

#[test]
fn an_interface_that_was_made_anew_meanwhile_is_attached_anew() {
    let host = Host::new();
    let name = &host.ports[0].name;
    let (mut first, _) = host.tables();
    first.attach().unwrap();
    drop(first);
    ip(&format!("link del {name}"));
    host.plug(name);
    let (mut second, _) = host.tables();
    second.attach().unwrap();
    assert!(host.has_program(name));
    drop(second);
    assert!(host.has_program(name), "its pin is the new one's");

    // One that is not configured any more is left alone.
    let (mut third, _) = host.tables_of(&host.ports[1..]);
    third.attach().unwrap();
    assert!(!host.has_program(name));
    drop(third);
    // In another mode, which is another place in the kernel.
    let mut generic = host.ports.clone();
    generic[1].mode = Mode::Generic;
    let (mut fourth, _) = host.tables_of(&generic);
    fourth.attach().unwrap();
    let other = &generic[1].name;
    assert!(ip(&format!("link show dev {other}")).contains("xdpgeneric"));
    // Its folder is gone: it serves on.
    fs::remove_dir_all(host.folder()).unwrap();
    let index = ip(&format!("-o link show dev {other}"));
    let index = index.split(':').next().unwrap().parse().unwrap();
    fourth.attach_port(1, index).unwrap();
    assert!(fourth.is_attached(1));
}

#[test]
fn users_packets_drop_where_nobody_is_in_charge_for_too_long() {
    let host = Host::new();
    let (mut tables, _) = host.tables();
    (0..3).for_each(|port| tables.set_redirect(port, 1).unwrap());
    forward(&mut tables, 1);
    let second = 1_000_000_000;
    tables.set_managed_until(Some(tables::monotonic_ns() + 600 * second));
    forward(&mut tables, 1);
    tables.set_managed_until(Some(1));
    // It is looked at once in a tick.
    std::thread::sleep(Duration::from_millis(20));
    let verdict = |tables: &mut Tables, port, frame: &[u8]| {
        let run = tables.test_run(port, frame).unwrap().unwrap();
        run.0
    };
    assert_eq!(verdict(&mut tables, 0, &frame()), 1, "XDP_DROP");
    let drops = tables.totals()[0].drops[0][DropReason::Unmanaged.place()];
    assert_eq!(drops, 1);
    let generation = tables.pins().unwrap().generation();
    let left = Pins::left(&host.bpffs, "upf.example", generation).unwrap();
    assert_eq!(left.unmanaged(), 1, "the next process says so");
    // Packets for the host are left to it.
    let arp = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 9, 8, 6], &[0; 46]].concat();
    assert_eq!(verdict(&mut tables, 0, &arp), 2, "XDP_PASS");
    let [there, here] = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(198, 51, 100, 1)];
    let ssh = packets::ethernet(&[&packets::ipv4(there, here, 6, 64, 20)[..], &[0; 20]].concat());
    assert_eq!(verdict(&mut tables, 1, &ssh), 2, "XDP_PASS");
    tables.set_managed_until(None);
    forward(&mut tables, 1);
    assert!(Pins::remove_of(&host.bpffs, "upf.example").unwrap());
    assert!(!Pins::remove_of(&host.bpffs, "upf.example").unwrap());
}

#[test]
fn tables_that_no_packet_has_met_leave_nothing() {
    let host = Host::new();
    let (tables, _) = host.tables();
    assert_eq!(host.pinned(), ["maps-1-0000000000000001"]);
    drop(tables);
    assert!(host.pinned().is_empty());
}

#[test]
fn a_folder_that_will_not_do_is_named() {
    let host = Host::new();
    let why = |opened: Result<Pins, SetupError>| opened.unwrap_err().to_string();
    let elsewhere = Pins::open(&std::env::temp_dir(), "upf", 0);
    assert!(why(elsewhere).contains("it is on no bpffs"));
    let other = host.bpffs.with_extension("other");
    fs::create_dir_all(other.join("upf")).unwrap();
    assert!(!Pins::remove_of(&other, "upf").unwrap());
    assert!(other.join("upf").exists(), "pins are in no such place");
    fs::remove_dir_all(other).unwrap();
    assert!(!std::env::temp_dir().join("upf").exists());
    let pins = host.pins().unwrap();
    fs::set_permissions(host.folder(), Permissions::from_mode(0o711)).unwrap();
    assert!(why(host.pins()).ends_with("it is not this user's alone"));
    fs::set_permissions(host.folder(), Permissions::from_mode(0o700)).unwrap();
    assert!(why(host.pins()).ends_with("it is another turnpiked's, which runs"));
    let generation = pins.generation();
    drop(pins);
    assert_eq!(host.free_pins().generation(), generation);
    let latest = Pins::open(&host.bpffs, "another", 8).unwrap();
    assert_eq!(latest.generation(), 9);
}
