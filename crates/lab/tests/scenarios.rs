//! The demonstration and every scenario against the real `turnpiked`, six at a time, each within its own limit.
//!
//! Needs root and a built `turnpiked`: `$TURNPIKED`, or beside the `lab` binary.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use lab::netns::Process;
use lab::wait::{NEVER, eventually};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// Some of these measure rates: they run one at a time.
static TURN: Mutex<()> = Mutex::new(());
/// How long all scenarios never take, with other work beside them.
const ALL: Duration = Duration::from_secs(3600);
/// The same of anything else.
const ONE: Duration = Duration::from_secs(600);

/// A `lab` that runs; what it says is passed on as it comes.
struct Lab {
    id: u32,
    process: Process,
    said: std::thread::JoinHandle<String>,
}

impl Lab {
    fn start(arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lab"));
        command.args(arguments).envs(environment.iter().copied());
        // A group of its own, as a gate has that may be killed as a whole.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut process = Process::spawn(&mut command).unwrap();
        let child = process.child().unwrap();
        let (id, out, mut err) = (
            child.id(),
            child.stdout.take().unwrap(),
            child.stderr.take().unwrap(),
        );
        let said = std::thread::spawn(move || {
            let mut text = String::new();
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                // Past what holds back the output of tests that pass: it says what takes how long.
                let _ = writeln!(std::io::stdout(), "{line}");
                text += &format!("{line}\n");
            }
            let _ = err.read_to_string(&mut text);
            text
        });
        Self { id, process, said }
    }

    /// What it said, and how it ended.
    fn finish(mut self, limit: Duration) -> (ExitStatus, String) {
        let ended = self.process.wait(limit);
        if ended.is_err() {
            let _ = self.process.child().unwrap().kill();
        }
        let text = self.said.join().unwrap();
        let Ok(status) = ended else {
            panic!("not over after {limit:?}; the last that it said:\n{text}")
        };
        (status, text)
    }
}

fn lab(arguments: &[&str], environment: &[(&str, &str)], limit: Duration) -> (u32, bool, String) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let lab = Lab::start(arguments, environment);
    let id = lab.id;
    let (status, text) = lab.finish(limit);
    (id, status.success(), text)
}

/// Files and processes with the name of that process.
fn left_of(id: u32) -> Vec<String> {
    let (world, owner) = (format!("tp{id}w"), format!("{id}.owner"));
    let mut left = Vec::new();
    let temporary = std::env::temp_dir();
    for folder in [
        "/run/netns".as_ref(),
        "/run/turnpike-lab".as_ref(),
        temporary.as_path(),
    ] {
        for entry in folder.read_dir().into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(&world) || name == owner {
                left.push(folder.join(name).display().to_string());
            }
        }
    }
    let mark = format!("{}={id}", lab::cleanup::OWNER);
    for entry in Path::new("/proc")
        .read_dir()
        .into_iter()
        .flatten()
        .flatten()
    {
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        if environment
            .split(|&octet| octet == 0)
            .any(|set| set == mark.as_bytes())
        {
            left.push(entry.path().display().to_string());
        }
    }
    left
}

fn left_nothing(id: u32) {
    let left = left_of(id);
    assert!(left.is_empty(), "left: {left:?}");
}

/// Labs that run at the same time.
fn all_succeed<const N: usize>(labs: [Lab; N]) {
    for lab in labs {
        let id = lab.id;
        let (status, text) = lab.finish(ONE);
        assert!(status.success(), "{text}");
        left_nothing(id);
    }
}

#[test]
fn all_scenarios_pass() {
    let (id, passed, text) = lab(&["scenario", "--all", "--jobs", "6"], &[], ALL);
    assert!(passed, "{text}");
    left_nothing(id);
}

/// What differs most between data paths: where packets come from and go to, what packets of the UPF's own do, and what
/// happens while rules change. All others: `make scenarios DATAPATH=kernel`.
const TELLING: [&str; 30] = [
    "association-from-upf",
    "handover",
    "paging",
    "path-failure",
    "reload",
    "flow-comes-and-goes",
    "counters",
    "echo",
    "unknown-teid",
    "n9-relay",
    "end-marker",
    "plain-udp",
    "outer-both",
    "duplicates",
    "unresolved-neighbour",
    "dead-neighbour",
    "forwarding-policy",
    "framed-routes",
    "overlapping-ues",
    "outer-fragments",
    "icmp-errors",
    "inner-fragments",
    "qer-shaped",
    "rates-shaped",
    "qer-shaped-order",
    "buffer-order-shaped",
    "trace",
    // The kernel takes packets to each of its addresses by all of its interfaces.
    "injected-from-n6",
    "dead-path-from-n6",
    "tunnels-on-n6",
];

/// Of these, what differs between sockets and devices of DPDK.
const TELLING_OF_DPDK: [&str; 25] = [
    // Bursts are under way for longer than a program of the kernel is.
    "buffer-order",
    "buffer-order-shaped",
    "handover",
    "path-failure",
    "echo",
    "unknown-teid",
    "n9-relay",
    "duplicates",
    "overlapping-ues",
    "icmp-errors",
    "adapt-under-load",
    "end-marker",
    // Routes, links and neighbours are those of TAP interfaces.
    "route-change",
    "trace",
    "unresolved-neighbour",
    "qer-shaped",
    "rates-shaped",
    // Frames to the kernel go by TAP interfaces.
    "injected-from-n6",
    // Workers are a process of their own.
    "upf-killed-unnoticed",
    "paging-killed",
    "reload-takes-over",
    "workers-killed",
    "upf-upgraded",
    "tap-removed",
    "paging-workers-killed",
];

/// What a receive core in front of two workers is for, and what it could spoil: order, both directions, tunnels that carry
/// downlink.
const TELLING_OF_THE_PIPELINE: [&str; 6] = [
    "spread-off",
    "handover",
    "n9-relay",
    "overlapping-ues",
    "adapt-under-load",
    "upf-killed-metered",
];

/// Shared memory with another program could spoil them: lengths of frames, order, both address families, links that go down with
/// the process at the other end, and a socket that outlives ours.
const TELLING_OF_MEMIF: [&str; 7] = [
    "handover",
    "echo",
    "end-marker",
    "outer-ipv6",
    "idle-and-back",
    "upf-restart",
    "memif-peer-restart",
];

#[test]
fn telling_scenarios_pass_on_the_other_data_paths() {
    // Workers of DPDK poll, and net_af_packet tells nobody what its ring had no room for: two at a time.
    for (datapath, jobs, names) in [
        ("kernel", "6", &TELLING[..]),
        ("dpdk", "2", &TELLING_OF_DPDK),
        ("dpdk-pipeline", "2", &TELLING_OF_THE_PIPELINE),
        // The other end polls, too.
        ("dpdk-memif", "1", &TELLING_OF_MEMIF),
    ] {
        let options = ["scenario", "--jobs", jobs, "--datapath", datapath];
        let (id, passed, text) = lab(&[&options[..], names].concat(), &[], ALL);
        assert!(passed, "{text}");
        left_nothing(id);
    }
}

#[test]
fn the_demonstration_succeeds_and_leaves_nothing() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let demo = |datapath| Lab::start(&["demo", "--datapath", datapath], &[]);
    all_succeed(["xdp", "kernel"].map(demo));
    // Its workers poll: they would take the CPUs from others.
    all_succeed(["dpdk"].map(demo));
}

#[test]
fn a_step_that_fails_is_named_and_leaves_nothing() {
    let (id, passed, text) = lab(&["demo"], &[("TURNPIKED", "/bin/false")], ONE);
    assert!(!passed && text.contains("step failed: network"), "{text}");
    left_nothing(id);
}

#[test]
fn a_scenario_that_does_not_exist_is_an_error() {
    let (_, passed, text) = lab(&["scenario", "no-such-scenario"], &[], ONE);
    assert!(!passed && text.contains("no-such-scenario"), "{text}");
}

#[test]
fn two_labs_at_once_do_not_meet() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let both = [(); 2].map(|()| Lab::start(&["scenario", "idle-and-back"], &[]));
    all_succeed(both);
}

#[test]
fn a_lab_that_is_killed_leaves_nothing() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut lab = Lab::start(&["demo"], &[]);
    let id = lab.id;
    let daemon = format!("tp{id}w0-files/turnpiked.log");
    eventually("a daemon runs in the network", || {
        assert!(lab.process.ended()?.is_none(), "the lab is over");
        Ok(Path::new(lab::cleanup::RUN_DIR).join(&daemon).exists())
    })
    .unwrap();
    assert!(left_of(id).len() > 5, "{:?}", left_of(id));
    killpg(Pid::from_raw(id.cast_signed()), Signal::SIGKILL).unwrap();
    let killed = Instant::now();
    lab.process.wait(NEVER).unwrap();
    eventually("nothing is left", || Ok(left_of(id).is_empty()))
        .map_err(|error| format!("{error}: {:?}", left_of(id)))
        .unwrap();
    println!(
        "nothing was left {:.1} s after",
        killed.elapsed().as_secs_f64()
    );
    let _ = lab.said.join();
}
