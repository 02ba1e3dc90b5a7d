//! Sessions outlive the process: what goes wrong with the file that they are in.

use std::fs;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use lab::netns::End;
use lab::smf::{Answer, Event, Session, SessionPlan, Smf, encode};
use lab::wait::LOOK;
use nix::sys::signal::Signal;
use rs_pfcp::ie::cause::CauseValue;
use rs_pfcp::ie::{Ie, IeType};
use rs_pfcp::message::MsgType;

use crate::common::{Daemon, LIMIT, Net, UPF_N4};
use crate::interfaces::passes;
use crate::unit::unprivileged;
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

pub(crate) fn modify(smf: &Smf, session: &Session) -> bool {
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
    let state = &daemon.get("status")["state"];
    assert_eq!(
        (&state["taken_over"], &state["lost"]),
        (&2.into(), &1.into())
    );
    wait_for_log(&daemon, "its record is damaged");
    let there = sessions.iter().map(|session| modify(&smf, session));
    assert_eq!(there.collect::<Vec<_>>(), [true, false, true]);
}

/// The next configuration does not have their network instance.
#[test]
fn an_smf_hears_of_sessions_that_are_not_taken_in() {
    const EPFAR: u8 = 1 << 2;
    let net = Net::new();
    let ims =
        "[[network_instance]]\nname = \"ims\"\ninterface = \"n6\"\npools = [\"10.61.0.0/16\"]\n";
    let mut daemon = net.start(&format!("{ims}{}", state(&net)));
    let smf = net.smf();
    smf.associate_with(EPFAR, &[]).unwrap();
    let session = smf.establish(&plan()).unwrap();
    let lost = SessionPlan {
        network_instance: "ims".into(),
        ..plan()
    };
    smf.establish(&lost).unwrap();
    daemon.process.signal(Signal::SIGKILL).unwrap();
    daemon.process.wait(LIMIT).unwrap();
    let daemon = net.start(&state(&net));
    wait_for_log(&daemon, "network instance \"ims\" is not configured");
    smf.wait_for(&Event::Request(MsgType::SessionReportRequest))
        .unwrap();
    assert!(modify(&smf, &session));
    assert_eq!(daemon.stop(), 0);
}

#[test]
fn a_folder_without_room_refuses_sessions_and_keeps_those_that_are_there() {
    let net = Net::new();
    let folder = net.folder.join("state");
    fs::create_dir_all(&folder).unwrap();
    mount(&folder, "size=4m");
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
    let said = "no session is established";
    wait_for_log(&daemon, said);
    assert_eq!(daemon.log().matches(said).count(), 1);
    let refused = || {
        let tables = &daemon.get("status")["tables"];
        let mut tables = tables.as_array().unwrap().iter();
        let state = tables.find(|table| table["table"] == "state").unwrap();
        state["refused"].as_u64().unwrap()
    };
    // Nor is there room for what the SMF has provisioned, in the end.
    let before = refused();
    let mut applications = 0;
    while refused() == before {
        assert!(applications < 100, "there is always room");
        let ies = [application(&format!("application{applications}"))];
        let answer = smf.request(MsgType::PfdManagementRequest, None, &ies);
        answer.unwrap().accepted().unwrap();
        applications += 1;
    }
    mount(&folder, "remount,size=64m");
    let more = lab::wait::eventually("there is room again", || Ok(smf.establish(&plan()).is_ok()));
    more.unwrap();
    let daemon = again(&net, daemon);
    assert!(sessions.iter().all(|session| modify(&smf, session)));
    let pfds = daemon.get("pfds");
    assert_eq!(pfds.as_array().unwrap().len(), applications);
    assert_eq!(daemon.stop(), 0);
}

/// As its answer may have been lost with the process: the session, and its last report, are in no other one.
#[test]
fn a_deletion_that_comes_again_gets_its_answer_from_the_next_process() {
    let net = Net::new();
    let daemon = net.start(&state(&net));
    let smf = net.smf();
    smf.associate().unwrap();
    let session = smf.establish(&plan()).unwrap();
    let deletion = |sequence| {
        let kind = MsgType::SessionDeletionRequest;
        let request = encode(kind, Some(session.up_seid), sequence, &[]);
        let answer = smf.exchange_once(sequence, &request, LIMIT).unwrap();
        let accepted = Answer::read(&answer).unwrap().accepted().is_ok();
        (answer, accepted)
    };
    let sequence = smf.sequence();
    let first = deletion(sequence);
    assert!(first.1);
    let daemon = again(&net, daemon);
    assert_eq!(deletion(sequence), first);
    let (_, accepted) = deletion(smf.sequence());
    assert!(!accepted, "there is no such session any more");
    assert_eq!(daemon.stop(), 0);
}

/// Application ID's PFDs with 40 KiB of flows, by hand (TS 29.244, 8.2.39).
fn application(name: &str) -> Ie {
    let flow = b"permit out ip from 192.0.2.1 to assigned";
    let contents = [&[1, 0, 0, flow.len() as u8][..], flow].concat();
    let mut value = Vec::new();
    Ie::new(IeType::ApplicationId, name.as_bytes().to_vec()).marshal_into(&mut value);
    for _ in 0..1000 {
        let mut context = Vec::new();
        Ie::new(IeType::PfdContents, contents.clone()).marshal_into(&mut context);
        Ie::new(IeType::PfdContext, context).marshal_into(&mut value);
    }
    Ie::new(IeType::ApplicationIdsPfds, value)
}

/// SMFs that hear nothing for long would give up a UPF that is taking over many sessions.
#[test]
fn heartbeats_are_answered_while_sessions_are_taken_over() {
    let net = Net::new();
    let (mut daemon, smf, session) = with_many_sessions(&net, &state(&net));
    let recovery = smf.heartbeat().unwrap();
    daemon.process.signal(Signal::SIGKILL).unwrap();
    daemon.process.wait(LIMIT).unwrap();
    let (daemon, ready, heard) = std::thread::scope(|scope| {
        let starting = scope.spawn(|| (net.start(&state(&net)), Instant::now()));
        let mut heard = None;
        while !starting.is_finished() {
            if let Some(stamp) = heartbeat(&net, LOOK) {
                assert_eq!(stamp, recovery);
                heard.get_or_insert_with(Instant::now);
            }
        }
        let (daemon, ready) = starting.join().unwrap();
        (daemon, ready, heard)
    });
    assert!(heard.is_some_and(|heard| heard < ready), "{heard:?}");
    assert!(modify(&smf, &session));
    assert_eq!(daemon.stop(), 0);
}

/// As many as take a while to be taken over, of which the last one comes back; and somebody who is no SMF can ask by N4.
fn with_many_sessions<'n>(net: &'n Net, config: &str) -> (Daemon<'n>, Smf, Session) {
    let address = format!("addr add {ANOTHER}/24 dev n4");
    net.peer.ip(&address).unwrap();
    let daemon = net.start(config);
    let smf = net.smf();
    smf.associate().unwrap();
    let sessions = (0..3000).map(|_| smf.establish(&plan()).unwrap());
    let last = sessions.last().unwrap();
    (daemon, smf, last)
}

/// No SMF's.
const ANOTHER: Ipv4Addr = Ipv4Addr::new(10, 100, 0, 3);
/// The same, on N3.
const ANOTHER_N3: Ipv4Addr = Ipv4Addr::new(10, 3, 0, 2);

/// A Heartbeat Request.
const HEARTBEAT: [u8; 16] = [0x20, 1, 0, 12, 0, 0, 7, 0, 0, 96, 0, 4, 0xe8, 0, 0, 0];

/// From there one was sent, and its answer comes.
fn asked(net: &Net, from: Ipv4Addr) -> UdpSocket {
    let peer = net.peer.udp(SocketAddr::from((from, 0))).unwrap();
    peer.connect((UPF_N4, 8805)).unwrap();
    peer.set_read_timeout(Some(LIMIT)).unwrap();
    peer.send(&HEARTBEAT).unwrap();
    peer
}

/// Recovery Time Stamp in the answer to one Heartbeat Request, if it comes in time.
fn heartbeat(net: &Net, within: Duration) -> Option<u32> {
    let socket = net.peer.udp(SocketAddr::from((ANOTHER, 0))).unwrap();
    socket.set_read_timeout(Some(within)).unwrap();
    socket.send_to(&HEARTBEAT, (UPF_N4, 8805)).unwrap();
    let mut answer = [0; 64];
    let len = socket.recv(&mut answer).ok()?;
    assert_eq!(
        answer[..12],
        [0x20, 2, 0, 12, 0, 0, 7, 0, 0, 96, 0, 4],
        "{len}"
    );
    Some(u32::from_be_bytes(answer[12..16].try_into().unwrap()))
}

/// An end that is asked for while it is not yet known which sessions there are leaves them, too.
#[test]
fn a_stop_while_sessions_are_taken_over_leaves_them() {
    let net = Net::new();
    let (_unmount, config) = pinning(&net, 0);
    let config = format!("{config}on_stop = \"keep\"\n");
    let (daemon, smf, session) = with_many_sessions(&net, &config);
    assert_eq!(daemon.stop(), 0);
    let mut command = Command::new(env!("CARGO_BIN_EXE_turnpiked"));
    command.arg("--config").arg(net.config(&config));
    command.env("RUNTIME_DIRECTORY", &net.folder);
    let log = net.folder.join("stopped");
    let mut stopped = net
        .upf
        .spawn(command.stderr(fs::File::create(&log).unwrap()))
        .unwrap();
    while heartbeat(&net, LOOK).is_none() {}
    stopped.signal(Signal::SIGTERM).unwrap();
    assert!(stopped.wait(LIMIT).unwrap().success());
    let said = fs::read_to_string(log).unwrap();
    assert!(
        said.contains("sessions are left to the next start"),
        "{said}"
    );
    let daemon = net.start(&config);
    assert!(modify(&smf, &session));
    assert_eq!(daemon.stop(), 0);
}

/// Starts turnpiked with a socket of somebody else's, as systemd hands it over.
fn activated(socket: &UdpSocket) -> Command {
    let mut command = Command::new("sh");
    let script = "exec 3<&0 0</dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$@\"";
    command.args(["-c", script, "activated", env!("CARGO_BIN_EXE_turnpiked")]);
    command.stdin(OwnedFd::from(socket.try_clone().unwrap()));
    command
}

#[test]
fn requests_wait_in_a_socket_that_outlives_the_process() {
    let net = Net::new();
    let config = net.config(&state(&net));
    let socket = net.upf.udp(SocketAddr::from((UPF_N4, 8805))).unwrap();
    let mut daemon = net.start_as(&mut activated(&socket), config.clone());
    let smf = net.smf();
    smf.associate().unwrap();
    let session = smf.establish(&plan()).unwrap();
    daemon.process.signal(Signal::SIGKILL).unwrap();
    daemon.process.wait(LIMIT).unwrap();
    let peer = asked(&net, ANOTHER_N3);
    let daemon = net.start_as(&mut activated(&socket), config.clone());
    // Sent once, while nobody was there: it was not refused, nor lost.
    assert!(peer.recv(&mut [0; 64]).is_ok());
    assert!(modify(&smf, &session));
    assert_eq!(daemon.stop(), 0);

    let elsewhere = net.upf.udp(SocketAddr::from((UPF_N4, 8806))).unwrap();
    let mut command = activated(&elsewhere);
    let log = net.folder.join("refused");
    command
        .arg("--config")
        .arg(config)
        .stderr(fs::File::create(&log).unwrap());
    let mut refused = net.upf.spawn(&mut command).unwrap();
    assert_eq!(refused.wait(LIMIT).unwrap().code(), Some(1));
    let said = fs::read_to_string(log).unwrap();
    assert!(
        said.contains("no socket of LISTEN_FDS is bound to it"),
        "{said}"
    );
}

/// The data network is not heard while sessions are taken over, nor with what it has sent before.
#[test]
fn what_comes_to_n4_from_the_data_network_between_two_processes_is_not_served() {
    let net = Net::new();
    let (_unmount, config) = pinning(&net, 0);
    let config = net.config(&config);
    let socket = net.upf.udp(SocketAddr::from((UPF_N4, 8805))).unwrap();
    let mut daemon = net.start_as(&mut activated(&socket), config.clone());
    let smf = net.smf();
    smf.associate().unwrap();
    let session = smf.establish(&plan()).unwrap();
    daemon.process.signal(Signal::SIGKILL).unwrap();
    daemon.process.wait(LIMIT).unwrap();
    net.upf
        .sysctl("net/ipv4/conf/n6/rp_filter", "0")
        .and_then(|()| net.upf.sysctl("net/ipv4/conf/all/rp_filter", "0"))
        .unwrap();
    net.peer
        .ip("route add 10.100.0.1/32 via 10.6.0.1 dev n6 table 100\nrule add from 10.6.0.2 table 100")
        .unwrap();
    let [outside, inside] = [Ipv4Addr::new(10, 6, 0, 2), ANOTHER_N3].map(|from| asked(&net, from));
    let daemon = net.start_as(&mut activated(&socket), config);
    // Sent behind it.
    assert!(inside.recv(&mut [0; 64]).is_ok());
    outside.set_nonblocking(true).unwrap();
    assert!(outside.recv(&mut [0; 64]).is_err(), "it was answered");
    let dropped = "turnpike_pfcp_events_total{event=\"not_n4\"}";
    assert_eq!(daemon.metric(dropped), 1);
    assert!(modify(&smf, &session));
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

/// The file of a start that takes over has room for a part of the sessions, as long as the former one is there; then once for all, and
/// once for no more, until somebody makes room.
#[test]
fn a_folder_that_fills_while_sessions_are_taken_over_costs_none() {
    let net = Net::new();
    let folder = net.folder.join("state");
    fs::create_dir_all(&folder).unwrap();
    mount(&folder, "size=64m");
    let _unmount = Unmount(folder.clone());
    let (_unpin, config) = pinning(&net, 0);
    let config = format!("{config}[limits]\nsessions = 4000\n");
    let mut daemon = net.start(&config);
    let smf = net.smf();
    smf.associate().unwrap();
    let mut sessions: Vec<Session> = (0..2000).map(|_| smf.establish(&plan()).unwrap()).collect();
    let (teid, ue) = (sessions[0].uplink.1, sessions[0].addresses.v4.unwrap());
    let file = folder.join("sessions-10.100.0.1");
    let room = |of: &Path| of.metadata().unwrap().blocks() * 512;
    let said = ["no session is established", "there is room again"];
    for stays_full in [false, true] {
        passes(&net, teid, ue);
        let size = room(&file) * 5 / 4 + (128 << 10);
        mount(&folder, &format!("remount,size={size}"));
        let other = folder.join("other");
        if stays_full {
            fs::hard_link(&file, &other).unwrap();
        }
        daemon.process.signal(Signal::SIGKILL).unwrap();
        daemon.process.wait(LIMIT).unwrap();
        daemon = net.start(&config);
        if stays_full {
            wait_for_log(&daemon, "they end with this process");
            assert!(sessions.iter().all(|session| modify(&smf, session)));
            assert!(smf.establish(&plan()).is_err());
            fs::remove_file(&other).unwrap();
        }
        said.iter().for_each(|said| wait_for_log(&daemon, said));
        let log = daemon.log();
        assert_eq!(said.map(|said| log.matches(said).count()), [1, 1], "{log}");
        assert!(!log.contains("sessions end with"), "{log}");
        assert!(sessions.iter().all(|session| modify(&smf, session)));
        sessions.push(smf.establish(&plan()).unwrap());
    }
    daemon.process.signal(Signal::SIGKILL).unwrap();
    daemon.process.wait(LIMIT).unwrap();
    let daemon = net.start(&config);
    let state = &daemon.get("status")["state"];
    let all = (sessions.len().into(), 0.into());
    assert_eq!((&state["taken_over"], &state["lost"]), (&all.0, &all.1));
    passes(&net, teid, ue);
    assert_eq!(daemon.stop(), 0);
}

/// As long as there is room for them beside sessions, and until sessions end.
#[test]
fn tables_of_workers_lie_beside_sessions_where_there_is_room() {
    let net = Net::new();
    let folder = net.folder.join("state");
    fs::create_dir_all(&folder).unwrap();
    mount(&folder, "size=512m");
    let _unmount = Unmount(folder.clone());
    net.forward();
    let config = |sessions| {
        let kind = "[datapath]\nkind = \"kernel\"\n";
        let limits = format!("[limits]\nsessions = {sessions}\n");
        format!("{kind}{limits}{}on_stop = \"keep\"\n", state(&net))
    };
    let folders = || {
        let names = fs::read_dir(&folder).unwrap().map(|entry| {
            let name = entry.unwrap().file_name();
            name.to_string_lossy().into_owned()
        });
        let names = names.filter_map(|name| {
            let generation = name.strip_prefix("sessions-10.100.0.1.counting-1-")?;
            u64::from_str_radix(generation, 16).ok()
        });
        names.collect::<Vec<u64>>()
    };
    let said = "what packets count since sessions report is lost if this process is killed";
    let smf = net.smf();
    let mut session = None;
    // Each start makes tables of its own, and removes the former ones.
    for (generation, sessions) in [(1, 4000), (2, 4000)] {
        let daemon = net.start(&config(sessions));
        let own = || Ok(folders() == [generation]);
        lab::wait::eventually("former tables are removed", own).unwrap();
        session = session.or_else(|| {
            smf.associate().unwrap();
            Some(smf.establish(&plan()).unwrap())
        });
        assert!(!daemon.log().contains(said), "{}", daemon.log());
        assert_eq!(daemon.stop(), 0);
    }
    let session = session.unwrap();
    let daemon = net.start(&config(400_000));
    wait_for_log(&daemon, "state.dir");
    assert!(daemon.log().contains(said), "{}", daemon.log());
    assert!(modify(&smf, &session), "sessions are not what is left out");
    assert!(folders().is_empty());
    let daemon = {
        assert_eq!(daemon.stop(), 0);
        net.start(&config(4000))
    };
    assert!(modify(&smf, &session));
    assert_eq!(folders(), [1]);
    assert_eq!(daemon.stop(), 0);
    let config = net.config(&config(4000));
    let (code, output) = net.run(&["detach", config.to_str().unwrap()]);
    assert!(code == 0 && folders().is_empty(), "{output}");
}

pub(crate) fn mount(folder: &Path, options: &str) {
    mount_a("tmpfs", folder, options);
}

fn mount_a(kind: &str, folder: &Path, options: &str) {
    let mut mount = Command::new("mount");
    mount.args(["-t", kind, "-o", options, kind]).arg(folder);
    assert!(mount.status().unwrap().success());
}

/// A bpffs of this user's, and the configuration that pins in it.
pub(crate) fn pinning(net: &Net, uid: u32) -> (Unmount, String) {
    let folder = net.folder.join("bpffs");
    fs::create_dir_all(&folder).unwrap();
    mount_a("bpf", &folder, &format!("uid={uid},mode=0700"));
    let config = format!("{}bpffs = {folder:?}\n", state(net));
    (Unmount(folder), config)
}

pub(crate) fn has_programs(net: &Net) -> [bool; 2] {
    ["n3", "n6"].map(|name| net.has_xdp(name))
}

/// With the rights that the unit gives, and no others.
#[test]
fn programs_stay_until_they_are_released_or_removed() {
    let net = Net::new();
    let nobody = 65534;
    chown(&net.folder, Some(nobody), Some(nobody)).unwrap();
    let (_unmount, config) = pinning(&net, nobody);
    let config = net.config(&config);
    let start = || {
        let mut command = unprivileged(&net);
        net.start_as(&mut command, config.clone())
    };
    let end = |daemon: &mut Daemon<'_>, signal| {
        daemon.process.signal(signal).unwrap();
        daemon.process.wait(LIMIT).unwrap()
    };
    let smf = net.smf();
    let mut daemon = start();
    smf.associate().unwrap();
    let session = smf.establish(&plan()).unwrap();
    end(&mut daemon, Signal::SIGKILL);
    assert_eq!(has_programs(&net), [true; 2]);
    let mut daemon = start();
    assert!(modify(&smf, &session));
    // One at a time.
    let (code, output) = net.run(&["detach", config.to_str().unwrap()]);
    assert_eq!(code, 1);
    assert!(
        output.contains("another turnpiked's, which runs"),
        "{output}"
    );
    assert!(end(&mut daemon, Signal::SIGTERM).success());
    assert_eq!(has_programs(&net), [false; 2], "an ordinary end");

    let mut daemon = start();
    smf.associate().unwrap();
    let session = smf.establish(&plan()).unwrap();
    end(&mut daemon, Signal::SIGKILL);
    let (code, output) = net.run(&["detach", config.to_str().unwrap()]);
    assert_eq!((code, has_programs(&net)), (0, [false; 2]));
    assert!(
        output.starts_with("removed: programs in ") && output.contains(", sessions in "),
        "{output}"
    );
    let (code, output) = net.run(&["detach", config.to_str().unwrap()]);
    assert_eq!((code, output.as_str()), (0, "nothing was left\n"));
    let daemon = start();
    assert!(!modify(&smf, &session));
    assert_eq!(daemon.stop(), 0);
}

/// SIGTERM leaves programs, where it leaves sessions.
#[test]
fn programs_stay_with_sessions_that_a_stop_leaves() {
    let net = Net::new();
    let (_unmount, config) = pinning(&net, 0);
    let config = format!("{config}on_stop = \"keep\"\n");
    let daemon = net.start(&config);
    assert_eq!(daemon.stop(), 0);
    assert_eq!(has_programs(&net), [true; 2]);
    // An interface that goes meanwhile.
    net.upf.ip("link del n6").unwrap();
    let cable = [&net.upf, &net.peer].map(|netns| End { netns, name: "n6" });
    let [here, there] = cable;
    lab::netns::cable(here, there, 1500).unwrap();
    let daemon = net.start(&config);
    assert_eq!(has_programs(&net), [true; 2]);
    assert_eq!(daemon.stop(), 0);
    // Programs are not to outlive any more.
    let without = format!("{}on_stop = \"keep\"\n", state(&net));
    let daemon = net.start(&without);
    assert_eq!(has_programs(&net), [true; 2]);
    assert_eq!(daemon.stop(), 0);
    assert_eq!(has_programs(&net), [false; 2]);
    let daemon = net.start(&config);
    assert_eq!(daemon.stop(), 0);
    let (code, _) = net.run(&["detach", net.config(&config).to_str().unwrap()]);
    assert_eq!((code, has_programs(&net)), (0, [false; 2]));
}

#[test]
fn a_folder_that_pins_nothing_is_named() {
    let net = Net::new();
    let bpffs = net.folder.join("bpffs");
    let config = net.config(&format!("{}bpffs = {bpffs:?}\n", state(&net)));
    let (code, output) = net.run(&["--config", config.to_str().unwrap()]);
    assert_eq!(code, 1);
    assert!(
        output.contains("state.bpffs") && output.contains("it is on no bpffs"),
        "{output}"
    );
    let config = net.config(&format!("[state]\nbpffs = {bpffs:?}\n"));
    let (code, output) = net.run(&["check-config", config.to_str().unwrap()]);
    assert_eq!(code, 2);
    assert!(output.contains("needs state.dir"), "{output}");
}

pub(crate) struct Unmount(pub(crate) PathBuf);

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
