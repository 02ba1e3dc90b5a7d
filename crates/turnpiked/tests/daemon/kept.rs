//! Sessions outlive the process: what goes wrong with the file that they are in.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use lab::smf::{Session, Smf};
use nix::sys::signal::Signal;
use rs_pfcp::ie::cause::CauseValue;

use crate::common::{Daemon, LIMIT, Net};
use crate::{plan, wait_for_log};

fn state(net: &Net) -> String {
    format!("[state]\ndir = {:?}\n", net.folder.join("state"))
}

/// Killed, and started anew.
fn again<'n>(net: &'n Net, mut daemon: Daemon<'n>) -> Daemon<'n> {
    daemon.process.signal(Signal::SIGKILL).unwrap();
    daemon.process.wait(LIMIT).unwrap();
    net.start(&state(net))
}

fn modify(smf: &Smf, session: &Session) -> bool {
    smf.modify(session, &[]).is_ok()
}

#[test]
fn a_damaged_record_costs_its_session_alone() {
    let net = Net::new();
    let daemon = net.start(&state(&net));
    let smf = net.smf();
    smf.associate().unwrap();
    let sessions: Vec<Session> = (0..3).map(|_| smf.establish(&plan()).unwrap()).collect();
    let path = net.folder.join("state/sessions-10.100.0.1");
    let octets = fs::read(&path).unwrap();
    // The SMF's SEID of the second one, as its record has it (postcard: seven bits in an octet).
    let cp_seid = sessions[1].cp_seid;
    let mut value = Vec::new();
    let mut left = cp_seid;
    while left > 0x7f {
        value.push(left as u8 | 0x80);
        left >>= 7;
    }
    value.push(left as u8);
    let field = [&[3, value.len() as u8], value.as_slice()].concat();
    let at = octets
        .windows(field.len())
        .position(|octets| octets == field);
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.write_all_at(&[0xee], at.unwrap() as u64 + 2).unwrap();
    let daemon = again(&net, daemon);
    wait_for_log(&daemon, "its record is damaged");
    let there = sessions.iter().map(|session| modify(&smf, session));
    assert_eq!(there.collect::<Vec<_>>(), [true, false, true]);
}

#[test]
fn a_folder_without_room_refuses_sessions_and_keeps_those_that_are_there() {
    let net = Net::new();
    let folder = net.folder.join("state");
    fs::create_dir_all(&folder).unwrap();
    mount(&folder, "size=2m");
    let _unmount = Unmount(folder.clone());
    let daemon = net.start(&format!("{}[limits]\nsessions = 20000\n", state(&net)));
    let smf = net.smf();
    smf.associate().unwrap();
    let mut sessions = Vec::new();
    let refused = loop {
        assert!(sessions.len() < 20_000, "there is always room");
        match smf.establish(&plan()) {
            Ok(session) => sessions.push(session),
            Err(error) => break format!("{error:#}"),
        }
    };
    let cause = format!("{:?}", CauseValue::NoResourcesAvailable);
    assert!(refused.contains(&cause), "{refused}");
    assert!(sessions.len() > 100, "{}", sessions.len());
    assert!(
        sessions
            .iter()
            .take(100)
            .all(|session| modify(&smf, session))
    );
    assert_eq!(daemon.log().matches("no session is established").count(), 1);
    mount(&folder, "remount,size=64m");
    let more = lab::wait::eventually("there is room again", || Ok(smf.establish(&plan()).is_ok()));
    more.unwrap();
    let daemon = again(&net, daemon);
    assert!(sessions.iter().all(|session| modify(&smf, session)));
    assert_eq!(daemon.stop(), 0);
}

/// Sessions are more than what would keep them: the UPF is there for its users, and those of before are taken over.
#[test]
fn a_folder_that_is_full_at_the_start_costs_no_session() {
    let net = Net::new();
    let folder = net.folder.join("state");
    fs::create_dir_all(&folder).unwrap();
    mount(&folder, "size=64m");
    let _unmount = Unmount(folder.clone());
    let daemon = net.start(&state(&net));
    let smf = net.smf();
    smf.associate().unwrap();
    let session = smf.establish(&plan()).unwrap();
    let full = fs::write(folder.join("else"), vec![1; 64 << 20]);
    assert_eq!(full.unwrap_err().kind(), ErrorKind::StorageFull);
    let daemon = again(&net, daemon);
    wait_for_log(&daemon, "sessions end with this process");
    assert!(modify(&smf, &session));
    // Nobody takes over what has changed since.
    let daemon = again(&net, daemon);
    assert!(!modify(&smf, &session));
    assert_eq!(daemon.stop(), 0);
}

fn mount(folder: &Path, options: &str) {
    let mut mount = Command::new("mount");
    mount
        .args(["-t", "tmpfs", "-o", options, "tmpfs"])
        .arg(folder);
    assert!(mount.status().unwrap().success());
}

struct Unmount(PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_folder_that_is_none_is_named_beforehand() {
    let net = Net::new();
    let folder = net.folder.join("state");
    fs::write(&folder, "a file").unwrap();
    let config = net.config(&state(&net));
    let (code, output) = net.run(&["check-config", config.to_str().unwrap()]);
    assert_eq!(code, 2);
    assert!(output.contains("state.dir"), "{output}");
}
