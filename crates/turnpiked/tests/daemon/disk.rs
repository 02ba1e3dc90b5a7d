//! Sessions outlive the host, by a copy on a disk.

use std::fs;
use std::time::Duration;

use lab::smf::{Session, Smf};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::common::{Daemon, LIMIT, Net};
use crate::interfaces::passes;
use crate::kept::{Unmount, modify, mount, pinning};
use crate::{plan, wait_for_log};

/// What pins in a bpffs, and copies to a disk.
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

/// Killed; then all that was memory is gone.
fn die(net: &Net, mut daemon: Daemon<'_>, unmount: Unmount) {
    daemon.process.signal(Signal::SIGKILL).unwrap();
    daemon.process.wait(LIMIT).unwrap();
    drop(unmount);
    fs::remove_dir_all(net.folder.join("state")).unwrap();
}

/// What was answered is on the disk some milliseconds later.
fn commit() {
    std::thread::sleep(Duration::from_millis(500));
}

fn seids(smf: &Smf, count: usize) -> Vec<Session> {
    (0..count)
        .map(|_| smf.establish(&plan()).unwrap())
        .collect()
}

#[test]
fn sessions_outlive_the_host() {
    let net = Net::new();
    let (mut unmount, mut config) = copying(&net);
    let mut daemon = net.start(&config);
    let smf = net.smf();
    let recovery = smf.associate().unwrap();
    let mut sessions = seids(&smf, 20);
    let (teid, ue) = (sessions[0].uplink.1, sessions[0].addresses.v4.unwrap());
    passes(&net, teid, ue);
    for round in 0..4 {
        wait_for_copy(&daemon, "current");
        // What has changed since the copy was there, and is in its log.
        let gone = sessions.remove(5);
        smf.delete(&gone).unwrap();
        sessions.extend(seids(&smf, 1));
        smf.connect(
            &sessions[1],
            std::net::Ipv4Addr::new(10, 3, 0, 100 + round),
            77,
        )
        .unwrap();
        commit();
        if round % 2 == 1 {
            // The process dies first, and the next one goes on with the copy.
            daemon.process.signal(Signal::SIGKILL).unwrap();
            daemon.process.wait(LIMIT).unwrap();
            daemon = net.start(&config);
            sessions.extend(seids(&smf, 1));
            commit();
        }
        die(&net, daemon, unmount);
        (unmount, config) = copying(&net);
        daemon = net.start(&config);
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
    drop(unmount);
    fs::remove_dir_all(net.folder.join("state")).unwrap();
    let (_unmount, config) = copying(&net);
    let daemon = net.start(&config);
    assert_eq!(daemon.get("status")["state"]["taken_over"], 0);
    assert!(smf.heartbeat().unwrap() != recovery);
    assert_eq!(daemon.stop(), 0);
}

/// A stop that leaves sessions leaves all of them, whatever the disk had not yet.
#[test]
fn a_stop_leaves_the_last_change_to_the_next_host() {
    let net = Net::new();
    let (unmount, config) = copying(&net);
    let config = format!("{config}on_stop = \"keep\"\n");
    let daemon = net.start(&config);
    let smf = net.smf();
    let recovery = smf.associate().unwrap();
    let sessions = seids(&smf, 300);
    assert_eq!(daemon.stop(), 0);
    drop(unmount);
    fs::remove_dir_all(net.folder.join("state")).unwrap();
    let (_unmount, _) = copying(&net);
    let daemon = net.start(&config);
    assert_eq!(smf.heartbeat().unwrap(), recovery);
    assert!(sessions.iter().all(|session| modify(&smf, session)));
    assert_eq!(daemon.stop(), 0);
    // Nothing is left behind where somebody wants that.
    let (code, output) = net.run(&["detach", net.config(&config).to_str().unwrap()]);
    assert_eq!(code, 0, "{output}");
    assert!(output.contains("their copy in "), "{output}");
    let left = fs::read_dir(net.folder.join("disk")).unwrap();
    let left: Vec<_> = left.map(|file| file.unwrap().file_name()).collect();
    assert_eq!(left, ["sessions-10.100.0.1.lock"]);
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
    let daemon = net.start(&config);
    let smf = net.smf();
    let recovery = smf.associate().unwrap();
    wait_for_copy(&daemon, "current");
    let mut sessions = seids(&smf, 1);
    while copy(&daemon)["state"] == "current" {
        assert!(sessions.len() < 10_000);
        sessions.extend(seids(&smf, 100));
    }
    let said = "sessions end with this host, until there is a copy again";
    wait_for_log(&daemon, said);
    sessions.extend(seids(&smf, 100));
    assert!(
        copy(&daemon)["error"]
            .as_str()
            .unwrap()
            .contains("No space")
    );
    let left = fs::read_dir(&disk).unwrap();
    let left: Vec<_> = left.map(|file| file.unwrap().file_name()).collect();
    assert_eq!(left, ["sessions-10.100.0.1.lock"]);
    mount(&disk, "remount,size=64m");
    wait_for_copy(&daemon, "current");
    assert_eq!(daemon.log().matches(said).count(), 1, "{}", daemon.log());
    assert!(copy(&daemon)["failures"].as_u64().unwrap() >= 1);
    die(&net, daemon, unmount);
    let (_unpin, _) = copying(&net);
    let daemon = net.start(&config);
    assert_eq!(smf.heartbeat().unwrap(), recovery);
    assert!(sessions.iter().all(|session| modify(&smf, session)));
    assert_eq!(daemon.stop(), 0);
}

/// Sessions that a copy has are over: of limits of before, for whoever wants no copy any more.
#[test]
fn a_copy_that_nobody_follows_is_removed() {
    let net = Net::new();
    let (unmount, config) = copying(&net);
    let mut daemon = net.start(&config);
    let smf = net.smf();
    smf.associate().unwrap();
    seids(&smf, 3);
    wait_for_copy(&daemon, "current");
    daemon.process.signal(Signal::SIGKILL).unwrap();
    daemon.process.wait(LIMIT).unwrap();
    let without = config.lines().filter(|line| !line.starts_with("disk"));
    let without = without.fold(String::new(), |all, line| all + line + "\n");
    let daemon = net.start(&without);
    assert_eq!(daemon.get("status")["state"]["taken_over"], 3);
    assert!(daemon.get("status")["state"].get("disk").is_none());
    die(&net, daemon, unmount);
    let (_unpin, config) = copying(&net);
    let daemon = net.start(&config);
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
