//! Signals: which end it, and how, and which do not.

use std::fs;
use std::path::Path;

use lab::wait::eventually;
use nix::sys::signal::Signal;

use crate::common::{Daemon, LIMIT, Net};
use crate::{patient, plan};

/// A daemon with a log of usage at `path`.
fn start<'n>(net: &'n Net, path: &Path) -> Daemon<'n> {
    net.start(&format!("[usage_log]\npath = \"{}\"\n", path.display()))
}

#[test]
fn ended_by_a_signal_that_asks_for_nothing() {
    let net = Net::new();
    let mut daemon = net.start("");
    let smf = net.smf();
    smf.associate().unwrap();
    smf.establish(&plan()).unwrap();
    for signal in [
        Signal::SIGUSR1,
        Signal::SIGUSR2,
        Signal::SIGHUP,
        Signal::SIGPIPE,
        Signal::SIGXFSZ,
    ] {
        daemon.process.signal(signal).unwrap();
        smf.heartbeat().unwrap();
        assert_eq!(daemon.metric("turnpike_sessions"), 1, "{signal}");
        assert_eq!(daemon.process.ended().unwrap(), None, "{signal}");
    }
    smf.release().unwrap();
    assert_eq!(daemon.stop(), 0);
}

/// A UPF cannot release an association: it asks the SMF to (TS 29.244, 6.2.8.3), and waits for it.
#[test]
fn ended_by_sigquit_or_sigint_without_release() {
    for signal in [Signal::SIGQUIT, Signal::SIGINT, Signal::SIGTERM] {
        let net = Net::new();
        let mut daemon = net.start_with(patient(&net));
        let smf = net.smf();
        smf.associate().unwrap();
        smf.establish(&plan()).unwrap();
        daemon.process.signal(signal).unwrap();
        let asked = lab::smf::Event::Request(rs_pfcp::message::MsgType::AssociationUpdateRequest);
        smf.wait_for(&asked).unwrap();
        smf.release().unwrap();
        let status = daemon.process.wait(LIMIT).unwrap();
        assert_eq!(status.code(), Some(0), "{signal}: {}", daemon.log());
        assert!(daemon.log().contains("ended"), "{}", daemon.log());
    }
}

#[test]
fn the_log_of_usage_goes_on_in_the_file_that_logrotate_moved_away() {
    let net = Net::new();
    let path = net.folder.join("usage.jsonl");
    let mut daemon = start(&net, &path);
    let moved = net.folder.join("usage.jsonl.rotated");
    fs::rename(&path, &moved).unwrap();
    daemon.process.signal(Signal::SIGHUP).unwrap();
    eventually("the file is there again", || Ok(path.exists())).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::mode(&path.metadata().unwrap().permissions());
    assert_eq!(mode & 0o007, 0, "others may read of users: {mode:o}");
    assert_eq!(daemon.stop(), 0);
}

/// Its Recovery Time Stamp is all that tells (TS 29.244, 6.2.2). Where the last one cannot be kept, too.
#[test]
fn an_smf_does_not_notice_a_restart_within_a_second() {
    let net = Net::new();
    let mut stamps = Vec::new();
    for start in 0..6 {
        if start == 3 {
            let file = net.folder.join("started-10.100.0.1");
            fs::remove_file(&file).unwrap();
            fs::create_dir(&file).unwrap();
        }
        let mut daemon = net.start("");
        let stamp = daemon.get("status")["recovery_time_stamp"].as_u64();
        stamps.push(stamp.unwrap());
        assert_eq!(
            daemon.log().contains("waiting for the next second"),
            start >= 3
        );
        daemon.process.signal(Signal::SIGKILL).unwrap();
        daemon.process.wait(LIMIT).unwrap();
    }
    let later = |of: &[u64]| of.is_sorted_by(|a, b| a < b);
    assert!(later(&stamps[..3]) && later(&stamps[3..]), "{stamps:?}");
}
