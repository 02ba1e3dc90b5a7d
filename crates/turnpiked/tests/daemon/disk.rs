//! Sessions outlive the host, by a copy on a disk.

use std::fs;
use std::net::Ipv4Addr;
use std::process::Command;

use lab::smf::{Session, Smf, Urr};
use nix::sys::signal::Signal;
use rs_pfcp::ie::IeType;
use rs_pfcp::ie::reporting_triggers::ReportingTriggers;
use rs_pfcp::ie::usage_report::UsageReport;
use serde_json::Value;

use crate::common::{Daemon, LIMIT, Net};
use crate::interfaces::passes;
use crate::kept::{Unmount, has_programs, modify, mount, pinning};
use crate::{plan, wait_for_log};

/// A configuration that pins in a bpffs, and copies to a disk.
fn copying(net: &Net) -> (Unmount, String) {
    let (unmount, config) = pinning(net, 0);
    let disk = net.folder.join("disk");
    (unmount, format!("{config}disk = {disk:?}\n"))
}

fn copy(daemon: &Daemon<'_>) -> Value {
    daemon.get("status")["state"]["disk"].clone()
}

fn wait_for_copy(daemon: &Daemon<'_>, state: &str) {
    let is_so = || Ok(copy(daemon)["state"] == state);
    let waited = lab::wait::eventually(state, is_so);
    waited.unwrap_or_else(|error| panic!("{error:#}: {}\n{}", copy(daemon), daemon.log()));
}

/// All that was memory is gone.
fn lose(net: &Net, unmount: Unmount) {
    drop(unmount);
    fs::remove_dir_all(net.folder.join("state")).unwrap();
    // The kernel lets go of programs when nobody has the folder any more.
    lab::wait::eventually("no programs", || Ok(has_programs(net) == [false; 2])).unwrap();
}

fn kill(daemon: &mut Daemon<'_>) {
    daemon.process.signal(Signal::SIGKILL).unwrap();
    daemon.process.wait(LIMIT).unwrap();
}

/// On a host that was started for the so many-th time.
fn start<'n>(net: &'n Net, boot: u32, config: &str) -> Daemon<'n> {
    start_late(net, boot, 0, config)
}

/// ... and whose clock says so many seconds more than this one's.
fn start_late<'n>(net: &'n Net, boot: u32, ahead_s: u32, config: &str) -> Daemon<'n> {
    let id = net.write("boot", &format!("00000000-0000-4000-8000-{boot:012}\n"));
    let bind = "mount --bind \"$0\" /proc/sys/kernel/random/boot_id && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.arg("--mount");
    if ahead_s > 0 {
        command.args(["--time", "--monotonic", &ahead_s.to_string()]);
    }
    command.args(["sh", "-c", bind]).arg(id);
    command.arg(env!("CARGO_BIN_EXE_turnpiked"));
    net.start_as(&mut command, net.config(config))
}

/// All that was answered is on the disk.
fn wait_for_commit(daemon: &Daemon<'_>) {
    let is_so = || Ok(copy(daemon)["behind_s"] == 0.0);
    lab::wait::eventually("a commit", is_so).unwrap();
}

/// Files of the copy.
fn files(net: &Net) -> Vec<String> {
    let all = fs::read_dir(net.folder.join("disk")).unwrap();
    let names = all.map(|file| file.unwrap().file_name().into_string().unwrap());
    names.filter(|name| !name.ends_with(".lock")).collect()
}

fn establish(smf: &Smf, count: usize) -> Vec<Session> {
    (0..count)
        .map(|_| smf.establish(&plan()).unwrap())
        .collect()
}

#[test]
fn sessions_outlive_the_host() {
    let net = Net::new();
    let (mut unmount, config) = copying(&net);
    let mut daemon = start(&net, 0, &config);
    let smf = net.smf();
    // It has another number among associations than the next process gives it.
    smf.associate().unwrap();
    let recovery = smf.associate().unwrap();
    let mut sessions = establish(&smf, 20);
    let (teid, ue) = (sessions[0].uplink.1, sessions[0].addresses.v4.unwrap());
    passes(&net, teid, ue);
    for round in 0..4 {
        wait_for_copy(&daemon, "current");
        // Changes since the copy was there, which are in its log.
        let gone = sessions.remove(5);
        smf.delete(&gone).unwrap();
        sessions.extend(establish(&smf, 1));
        smf.connect(&sessions[1], Ipv4Addr::new(10, 3, 0, 100 + round), 77)
            .unwrap();
        wait_for_commit(&daemon);
        if round % 2 == 1 {
            // The process dies first, and the next one has a copy of its own.
            kill(&mut daemon);
            daemon = start(&net, round.into(), &config);
            wait_for_copy(&daemon, "current");
            sessions.extend(establish(&smf, 1));
            wait_for_commit(&daemon);
        }
        kill(&mut daemon);
        lose(&net, unmount);
        unmount = copying(&net).0;
        daemon = start(&net, u32::from(round) + 1, &config);
        wait_for_log(&daemon, "sessions of before this host was started go on");
        let state = &daemon.get("status")["state"];
        let all = (sessions.len().into(), 0.into());
        assert_eq!((&state["taken_over"], &state["lost"]), (&all.0, &all.1));
        assert_eq!(smf.heartbeat().unwrap(), recovery);
        assert!(sessions.iter().all(|session| modify(&smf, session)));
        assert!(!modify(&smf, &gone));
        passes(&net, teid, ue);
    }
    assert_eq!(daemon.stop(), 0);
    // They have been released.
    assert!(files(&net).is_empty());
    lose(&net, unmount);
    let (_unmount, config) = copying(&net);
    let daemon = start(&net, 5, &config);
    assert_eq!(daemon.get("status")["state"]["taken_over"], 0);
    assert!(smf.heartbeat().unwrap() != recovery);
    assert_eq!(daemon.stop(), 0);
}

/// Clocks of hosts begin anew, and what is due in a second still is: whether the host of before had lived for longer or not.
#[test]
fn times_go_on_by_the_clock_of_another_host() {
    const DAYS_S: u32 = 1_000_000;
    let net = Net::new();
    let (mut unmount, config) = copying(&net);
    let mut daemon = start_late(&net, 0, DAYS_S, &config);
    let smf = net.smf();
    let recovery = smf.associate().unwrap();
    let mut measured = plan();
    let periodic = ReportingTriggers::new().with_periodic(true);
    let urr = Urr::of_volume(1, periodic).seconds(IeType::MeasurementPeriod, 1);
    measured.urrs.push(urr);
    let session = smf.establish(&measured).unwrap();
    let reports = || Ok::<_, anyhow::Error>(smf.usage(&session)?.of(1)?.len());
    for (boot, ahead_s) in (1..).zip([0, 2 * DAYS_S, DAYS_S]) {
        let before = reports().unwrap();
        lab::wait::eventually("two periods", || Ok(reports()? >= before + 2)).unwrap();
        wait_for_copy(&daemon, "current");
        wait_for_commit(&daemon);
        kill(&mut daemon);
        lose(&net, unmount);
        unmount = copying(&net).0;
        daemon = start_late(&net, boot, ahead_s, &config);
        assert_eq!(smf.heartbeat().unwrap(), recovery);
    }
    let before = reports().unwrap();
    lab::wait::eventually("two periods", || Ok(reports()? >= before + 2)).unwrap();
    let all = smf.delete_measured(&session).unwrap();
    let of_report = |report: &UsageReport| {
        let times = report.start_time.as_ref().zip(report.end_time.as_ref());
        let (start, end) = times.unwrap();
        [start.timestamp, end.timestamp]
    };
    // None is of the time between two clocks.
    let times: Vec<_> = all.of(1).unwrap().into_iter().map(of_report).collect();
    let is_short = |[start, end]: &[u32; 2]| start <= end && end - start < DAYS_S / 2;
    assert!(times.len() > 8 && times.iter().all(is_short), "{times:?}");
    assert_eq!(daemon.stop(), 0);
}

/// A stop that leaves sessions leaves all of them, whatever the disk had not yet.
#[test]
fn a_stop_leaves_the_last_change_to_the_next_host() {
    let net = Net::new();
    let (unmount, config) = copying(&net);
    let config = format!("{config}on_stop = \"keep\"\n");
    let daemon = start(&net, 0, &config);
    let smf = net.smf();
    let recovery = smf.associate().unwrap();
    let sessions = establish(&smf, 300);
    assert_eq!(daemon.stop(), 0);
    lose(&net, unmount);
    let (_unmount, _) = copying(&net);
    let daemon = start(&net, 1, &config);
    assert_eq!(smf.heartbeat().unwrap(), recovery);
    assert!(sessions.iter().all(|session| modify(&smf, session)));
    assert_eq!(daemon.stop(), 0);
    // Nothing is left behind where somebody wants that.
    assert!(!files(&net).is_empty());
    let (code, output) = net.run(&["detach", net.config(&config).to_str().unwrap()]);
    assert_eq!(code, 0, "{output}");
    assert!(output.contains("their copy in "), "{output}");
    assert!(files(&net).is_empty());
}

/// A disk that is full costs the copy, no session, and what is older than sessions is removed.
#[test]
fn a_disk_that_fills_costs_the_copy_alone() {
    let net = Net::new();
    let (unmount, config) = copying(&net);
    let disk = net.folder.join("disk");
    fs::create_dir_all(&disk).unwrap();
    mount(&disk, "size=300k");
    let _unmount = Unmount(disk.clone());
    let mut daemon = start(&net, 0, &config);
    let smf = net.smf();
    let recovery = smf.associate().unwrap();
    wait_for_copy(&daemon, "current");
    let mut sessions = establish(&smf, 1);
    while copy(&daemon)["state"] == "current" {
        assert!(sessions.len() < 10_000);
        sessions.extend(establish(&smf, 100));
    }
    let said = "sessions end with this host, until there is a copy again";
    wait_for_log(&daemon, said);
    assert!(daemon.log().contains("No space left"), "{}", daemon.log());
    lab::wait::eventually("no file", || Ok(files(&net).is_empty())).unwrap();
    mount(&disk, "remount,size=64m");
    wait_for_copy(&daemon, "current");
    assert!(copy(&daemon)["failures"].as_u64().unwrap() >= 1);
    sessions.extend(establish(&smf, 100));
    wait_for_commit(&daemon);
    kill(&mut daemon);
    lose(&net, unmount);
    let (_unpin, _) = copying(&net);
    let daemon = start(&net, 1, &config);
    assert_eq!(smf.heartbeat().unwrap(), recovery);
    assert!(sessions.iter().all(|session| modify(&smf, session)));
    assert_eq!(daemon.stop(), 0);
}

/// Sessions that a copy has are over for whoever wants no copy any more, and where the host lives, but its file in memory is gone.
#[test]
fn a_copy_of_sessions_that_are_over_is_not_gone_on_with() {
    let net = Net::new();
    let (unmount, config) = copying(&net);
    let mut daemon = start(&net, 0, &config);
    let smf = net.smf();
    smf.associate().unwrap();
    establish(&smf, 3);
    wait_for_copy(&daemon, "current");
    kill(&mut daemon);
    let without = config.lines().filter(|line| !line.starts_with("disk"));
    let without = without.fold(String::new(), |all, line| all + line + "\n");
    let mut daemon = start(&net, 0, &without);
    let state = &daemon.get("status")["state"];
    assert_eq!(state["taken_over"], 3);
    assert!(state.get("disk").is_none() && files(&net).is_empty());
    kill(&mut daemon);
    lose(&net, unmount);
    let (unmount, config) = copying(&net);
    let mut daemon = start(&net, 1, &config);
    assert_eq!(daemon.get("status")["state"]["taken_over"], 0);
    smf.associate().unwrap();
    establish(&smf, 3);
    wait_for_copy(&daemon, "current");
    kill(&mut daemon);
    lose(&net, unmount);
    let (_unpin, config) = copying(&net);
    let daemon = start(&net, 1, &config);
    wait_for_log(&daemon, "this host has not died");
    assert_eq!(daemon.get("status")["state"]["taken_over"], 0);
    assert_eq!(daemon.stop(), 0);
}

#[test]
fn a_folder_that_is_no_use_is_named_beforehand() {
    let net = Net::new();
    for (state, why) in [
        ("disk = \"/var/lib/turnpike\"", "needs state.dir"),
        (
            "dir = \"/run/turnpike\"\ndisk = \"turnpike\"",
            "by its path from the root",
        ),
        (
            "dir = \"/run/turnpike\"\ndisk = \"/run/turnpike\"",
            "another folder than state.dir",
        ),
    ] {
        let config = net.config(&format!("[state]\n{state}\n"));
        let (code, output) = net.run(&["check-config", config.to_str().unwrap()]);
        assert_eq!(code, 2);
        assert!(
            output.contains("state.disk") && output.contains(why),
            "{output}"
        );
    }
}
