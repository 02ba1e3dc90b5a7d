//! Standard error that takes no line, and strangers who would fill it.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};

use lab::wait::eventually;
use nix::fcntl::OFlag;
use nix::unistd::pipe2;

use crate::common::{Daemon, LIMIT, Net, again};
use crate::{cli, plan};

const LOST: &str = "turnpike_log_lines_total{outcome=\"lost\"}";
const SUPPRESSED: &str = "turnpike_log_lines_total{outcome=\"suppressed\"}";

/// It is asked for, and does, what a UPF does.
fn serves(net: &Net, daemon: &Daemon<'_>) {
    let smf = net.smf();
    smf.associate().unwrap();
    let session = smf.establish(&plan()).unwrap();
    assert_eq!(daemon.metric("turnpike_sessions"), 1);
    assert!(net.has_xdp("n3") && net.has_xdp("n6"));
    smf.delete(&session).unwrap();
    smf.release().unwrap();
}

/// Of the two lines at least that [`serves`] causes.
fn await_losses(daemon: &Daemon<'_>) {
    eventually("lines are lost", || Ok(daemon.metric(LOST) >= 2)).unwrap();
}

#[test]
fn killed_by_a_log_on_a_full_disk() {
    let net = Net::new();
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let daemon = net.start_logging_to(net.config(""), full.into());
    serves(&net, &daemon);
    await_losses(&daemon);
    assert!(daemon.get("status")["log"]["lost"].as_u64() >= Some(2));
    assert_eq!(daemon.stop(), 0);
}

#[test]
fn killed_by_a_log_that_nobody_reads_any_more() {
    let net = Net::new();
    let (reader, writer) = pipe2(OFlag::O_CLOEXEC).unwrap();
    let daemon = net.start_logging_to(net.config(""), writer.into());
    drop(reader);
    serves(&net, &daemon);
    await_losses(&daemon);
    assert_eq!(daemon.stop(), 0);
}

/// A pipe that takes nothing, as its reader does not read.
fn full_pipe() -> (OwnedFd, OwnedFd) {
    let (reader, writer) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK).unwrap();
    let mut file = File::from(writer.try_clone().unwrap());
    while file.write(&[b'\n'; 4096]).is_ok() {}
    while file.write(b"\n").is_ok() {}
    // Whoever writes from now on waits.
    nix::fcntl::fcntl(&writer, nix::fcntl::FcntlArg::F_SETFL(OFlag::empty())).unwrap();
    (reader, writer)
}

#[test]
fn stuck_behind_a_log_that_is_not_read() {
    let net = Net::new();
    let (_reader, writer) = full_pipe();
    let daemon = net.start_logging_to(net.config(""), writer.into());
    serves(&net, &daemon);
    assert_eq!(daemon.stop(), 0, "the end waits for nobody");
}

#[test]
fn lines_that_were_lost_are_told_of_when_there_is_room_again() {
    let net = Net::new();
    let folder = net.folder.join("small");
    std::fs::create_dir(&folder).unwrap();
    // Gone with the last of its files, whatever happens.
    let run = |program: &str, args: &[&str]| {
        let mut command = Command::new(program);
        assert!(command.args(args).arg(&folder).status().unwrap().success());
    };
    run("mount", &["-t", "tmpfs", "-o", "size=8k", "tmpfs"]);
    let mut options = OpenOptions::new();
    let options = options.create_new(true).read(true).append(true);
    let log = options.open(folder.join("log"));
    let mut filler = options.open(folder.join("filler")).unwrap();
    run("umount", &["-l"]);
    let log = log.unwrap();
    while filler.write(&[0; 4096]).is_ok_and(|written| written > 0) {}

    let daemon = net.start_logging_to(net.config(""), log.try_clone().unwrap().into());
    serves(&net, &daemon);
    await_losses(&daemon);
    assert_eq!(log.metadata().unwrap().len(), 0);
    filler.set_len(0).unwrap();
    let smf = net.smf();
    smf.associate().unwrap();
    let text = || {
        let mut text = vec![0; 4096];
        let len = log.read_at(&mut text, 0).unwrap();
        String::from_utf8_lossy(&text[..len]).into_owned()
    };
    let words = "lines of this log were lost: it could not be written";
    let told = || Ok(text().contains(words));
    eventually("the log tells what it has lost", told).unwrap();
    let lost = daemon.metric(LOST);
    assert!(text().contains(&format!("lost={lost}")), "{}", text());
    assert!(text().contains("SMF associated"), "{}", text());
    assert_eq!(daemon.stop(), 0);
}

/// Two lines for each association and release: 1 MB a second.
#[test]
fn a_strangers_associations_fill_the_disk() {
    let net = Net::new();
    let daemon = net.start("");
    let smf = net.smf();
    for _ in 0..500 {
        smf.associate().unwrap();
        smf.release().unwrap();
    }
    let suppressed = daemon.metric(SUPPRESSED);
    assert!(suppressed > 900, "{suppressed}");
    let lines = |daemon: &Daemon<'_>| {
        let log = daemon.log();
        log.matches("SMF associated").count() + log.matches("released its").count()
    };
    assert!(lines(&daemon) < 40, "{}", daemon.log());
    let path = daemon.log_path();
    assert_eq!(daemon.stop(), 0);
    let log = std::fs::read_to_string(path).unwrap();
    let counted = "strangers on N4 caused too many lines";
    assert!(log.contains(counted), "{log}");
}

/// `turnpike status | head -1`, and `turnpike status > /full/disk`.
#[test]
fn the_command_line_panics_over_its_output() {
    let net = Net::new();
    let daemon = net.start("");
    let ask = |question: &str, out: Stdio| {
        let mut command = Command::new(cli());
        command.arg(question).stdout(out).stderr(Stdio::piped());
        let process = net.upf.spawn(&mut command).unwrap();
        let output = process.output(LIMIT).unwrap();
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!words.contains("panicked"), "{question}: {words}");
        (output.status.code(), words)
    };
    for question in ["status", "sessions", "drops", "help"] {
        let (reader, writer) = pipe2(OFlag::O_CLOEXEC).unwrap();
        drop(reader);
        let (code, words) = ask(question, writer.into());
        assert_eq!(code, Some(0), "{question}: {words}");
    }
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let (code, words) = ask("status", full.into());
    assert_eq!(code, Some(1));
    assert!(words.contains("No space left"), "{words}");
    assert_eq!(daemon.stop(), 0);
}

/// The command line of the daemon itself.
#[test]
fn check_config_panics_over_its_output() {
    let net = Net::new();
    let (reader, writer) = pipe2(OFlag::O_CLOEXEC).unwrap();
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_turnpiked"));
    command.arg("check-config").arg(net.config(""));
    command.stdout(writer).stderr(Stdio::piped());
    let mut process = net.upf.spawn(&mut command).unwrap();
    let mut words = String::new();
    let stderr = process.child().unwrap().stderr.take();
    stderr.unwrap().read_to_string(&mut words).unwrap();
    assert_eq!(process.wait(LIMIT).unwrap().code(), Some(0), "{words}");
    assert!(!words.contains("panicked"), "{words}");
}

/// What stands there leads to the message in the SMF's own log, or in a capture.
#[test]
fn the_log_says_that_something_was_refused_and_not_what() {
    let net = Net::new();
    let daemon = net.start("");
    let socket = net.n4_socket(8805);
    let mut answer = [0; 256];
    // A Session Deletion Request to SEID 0xabc, with sequence number 1234.
    let deletion = [
        0x21, 54, 0, 12, 0, 0, 0, 0, 0, 0, 0x0a, 0xbc, 0, 0x04, 0xd2, 0,
    ];
    socket.send(&deletion).unwrap();
    socket.recv(&mut answer).unwrap();
    // A response to nothing: a Heartbeat Response, with sequence number 77.
    let response = [0x20, 2, 0, 12, 0, 0, 77, 0, 0, 96, 0, 4, 0xe0, 0, 0, 0];
    socket.send(&response).unwrap();
    let refused = [
        "request refused address=10.100.0.2:8805 request=Session Deletion Request sequence=1234 seid=0000000000000abc cause=",
        "message ignored address=10.100.0.2:8805 message_type=Heartbeat Response sequence=77 why=\"unmatched_response\"",
    ];
    for line in refused {
        let written = eventually(line, || Ok(daemon.log().contains(line)));
        assert!(written.is_ok(), "{written:?}\n{}", daemon.log());
    }
    assert_eq!(daemon.stop(), 0);
}

#[test]
fn routes_that_are_not_for_users_are_told_of_for_interfaces_that_carry_none() {
    let net = Net::new();
    let daemon = net.start("");
    let told = "not for users of other interfaces interface=\"n3\"";
    let written = eventually(told, || Ok(daemon.log().contains(told)));
    assert!(written.is_ok(), "{written:?}\n{}", daemon.log());
    // So that its routes change.
    net.upf
        .ip("addr add 10.7.0.1/24 dev n3\naddr add 10.8.0.1/24 dev n4")
        .unwrap();
    serves(&net, &daemon);
    assert_eq!(
        daemon.log().matches("not for users").count(),
        1,
        "{}",
        daemon.log()
    );
    assert_eq!(daemon.stop(), 0);
}

/// A Session Deletion Request to a SEID that there is not.
fn deletion(sequence: u32) -> [u8; 16] {
    let [_, a, b, c] = sequence.to_be_bytes();
    [0x21, 54, 0, 12, 0, 0, 0, 0, 0, 0, 0x0a, 0xbc, a, b, c, 0]
}

/// An SMF that repeats what is refused: some lines, a count of the others, and one of each kind beside them.
#[test]
fn an_smfs_refusals_fill_the_disk_and_are_not_json() {
    const FLOOD: u32 = 2000;
    let net = Net::new();
    let daemon = net.start("[log]\nformat = \"json\"\n");
    let smf = net.smf();
    smf.associate().unwrap();
    let session = smf.establish(&plan()).unwrap();
    let socket = net.n4_socket(0);
    let mut answer = [0; 256];
    for sequence in 1..=FLOOD {
        socket.send(&deletion(sequence)).unwrap();
        socket.recv(&mut answer).unwrap();
    }
    smf.delete(&session).unwrap();
    smf.release().unwrap();
    let path = daemon.log_path();
    assert_eq!(daemon.stop(), 0);
    let log = std::fs::read_to_string(path).unwrap();
    let events = log.lines().map(|line| {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(
            event["message"].is_string() && event["level"].is_string(),
            "{line}"
        );
        event
    });
    let events: Vec<_> = events.collect();
    let of = |message: &str| {
        let of = events.iter().filter(|event| event["message"] == message);
        of.collect::<Vec<_>>()
    };
    let refused = of("request refused");
    assert!((1..40).contains(&refused.len()), "{log}");
    for event in &refused {
        assert_eq!(event["smf"], "10.100.0.2", "{event}");
        assert_eq!(event["seid"], "0000000000000abc", "{event}");
        assert!(
            event["cause"].is_string() && event["address"].is_string(),
            "{event}"
        );
    }
    assert_eq!(of("SMF associated")[0]["smf"], "10.100.0.2");
    assert!(events.len() < 100, "{log}");
    // An SMF that has just associated is a stranger still.
    let told = events.iter().filter_map(|event| event["left_out"].as_u64());
    assert!(
        told.sum::<u64>() + refused.len() as u64 >= u64::from(FLOOD),
        "{log}"
    );
}

/// With a `/run/systemd` of its own, in which the folder is journald's, and standard error for the journal.
fn below_journald(folder: &Path) -> Command {
    let script = "mkdir -p /run/systemd && mount -t tmpfs tmpfs /run/systemd && mkdir /run/systemd/journal && mount --bind \"$1\" /run/systemd/journal && shift && \
        JOURNAL_STREAM=$(stat -L -c %d:%i /proc/self/fd/2) exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script, "sh"]).arg(folder);
    command.arg(env!("CARGO_BIN_EXE_turnpiked"));
    command.stdin(Stdio::null());
    command
}

#[test]
fn the_journal_cannot_be_asked_for_an_smf() {
    let net = Net::new();
    let folder = net.folder.join("journal");
    std::fs::create_dir(&folder).unwrap();
    let path = folder.join("socket");
    let journal = UnixDatagram::bind(&path).unwrap();
    journal.set_read_timeout(Some(LIMIT)).unwrap();
    let daemon = net.start_as(&mut below_journald(&folder), net.config(""));
    let socket = net.n4_socket(8805);
    socket.send(&deletion(7)).unwrap();
    socket.recv(&mut [0; 256]).unwrap();
    let record = loop {
        let mut octets = [0; 65536];
        let len = again(|| journal.recv(&mut octets)).unwrap();
        let record = String::from_utf8_lossy(&octets[..len]).into_owned();
        if record.contains("MESSAGE=request refused ") {
            break record;
        }
    };
    for field in [
        "PRIORITY=4",
        "SYSLOG_IDENTIFIER=turnpiked",
        "TURNPIKE_SESSION=0000000000000abc",
        "TURNPIKE_ADDRESS=10.100.0.2:8805",
    ] {
        assert!(
            record.lines().any(|line| line == field),
            "{field}: {record}"
        );
    }
    assert!(record.contains("\nTURNPIKE_CAUSE="), "{record}");
    assert_eq!(daemon.log(), "", "each event is told of once");
    // Journald has gone.
    drop(journal);
    std::fs::remove_file(&path).unwrap();
    socket.send(&deletion(8)).unwrap();
    socket.recv(&mut [0; 256]).unwrap();
    let line =
        "<4>request refused address=10.100.0.2:8805 request=Session Deletion Request sequence=8";
    let written = eventually(line, || Ok(daemon.log().contains(line)));
    assert!(written.is_ok(), "{written:?}\n{}", daemon.log());
    assert_eq!(daemon.stop(), 0);
}

/// Its queue is full, and nobody reads it.
#[test]
fn stuck_behind_a_journal_that_takes_nothing() {
    let net = Net::new();
    let folder = net.folder.join("journal");
    std::fs::create_dir(&folder).unwrap();
    let journal = UnixDatagram::bind(folder.join("socket")).unwrap();
    let daemon = net.start_as(
        &mut below_journald(&folder),
        net.config("[log]\nlevel = \"trace\"\n"),
    );
    let filler = UnixDatagram::unbound().unwrap();
    filler.set_nonblocking(true).unwrap();
    filler.connect(folder.join("socket")).unwrap();
    while filler.send(b"full").is_ok() {}
    serves(&net, &daemon);
    assert_eq!(daemon.stop(), 0, "the end waits for nobody");
    drop(journal);
}
