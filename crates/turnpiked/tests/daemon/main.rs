//! The real daemon: from its configuration to its exit code, over real sockets and XDP in driver
//! mode on veths.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod command_line;
mod common;
mod disk;
mod idle;
mod interfaces;
mod kept;
mod log;
mod signals;
mod support_bundle;
mod telemetry;
mod unit;

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use common::{LIMIT, Net, UPF_N3, again};
use lab::netns::Process;
use lab::smf::{Gates, Requested, SessionPlan, Style};
use nix::sys::signal::Signal;

fn plan() -> SessionPlan {
    SessionPlan {
        more: Vec::new(),
        endpoints: false,
        v6_len: None,
        pdi: Vec::new(),
        style: Style::Open5gs,
        addresses: Requested::Choose {
            v4: true,
            v6: false,
        },
        network_instance: "internet".into(),
        upf_n3: lab::ue::Addresses {
            v4: Some(UPF_N3),
            v6: None,
        },
        qfi: 9,
        uplink_ue: false,
        match_qfi: true,
        mbr_kbps: Some((100_000, 200_000)),
        gates: Gates::OPEN,
        flows: Vec::new(),
        urrs: Vec::new(),
        downlink: Some((Ipv4Addr::new(10, 3, 0, 2), 0x1000_0001).into()),
        solicitations_to: None,
        policy: None,
    }
}

/// A Heartbeat Request with the Recovery Time Stamp 1.
fn heartbeat(sequence: u32) -> [u8; 16] {
    let [_, a, b, c] = sequence.to_be_bytes();
    [0x20, 1, 0, 12, a, b, c, 0, 0, 96, 0, 4, 0, 0, 0, 1]
}

/// The environment of a daemon that reads its configuration, started with this one variable beside ours.
fn environment(folder: &Path, with: Option<(&str, &str)>) -> String {
    let file = folder.join("config");
    let made = Command::new("mkfifo").arg(&file).status().unwrap();
    assert!(made.success());
    let mut command = Command::new(env!("CARGO_BIN_EXE_turnpiked"));
    command.env_remove("GLIBC_TUNABLES");
    command.arg("--config").arg(&file).envs(with);
    let mut daemon = Process::spawn(&mut command).unwrap();
    // Opens when the daemon does, which has begun in earnest by then.
    let fifo = std::fs::File::options().write(true).open(&file).unwrap();
    let pid = daemon.id().unwrap();
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
    drop(fifo);
    assert_eq!(daemon.wait(LIMIT).unwrap().code(), Some(2), "an empty file");
    std::fs::remove_file(file).unwrap();
    String::from_utf8_lossy(&environment).into_owned()
}

#[test]
fn starts_itself_anew_once_at_most() {
    let folder = std::env::temp_dir().join(format!("turnpiked-anew-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    lab::cleanup::add_folder(&folder);
    let set = |environment: &str| {
        let names = [
            "GLIBC_TUNABLES=glibc.malloc.hugetlb=1",
            "TURNPIKED_RESTARTED=1",
        ];
        names.map(|name| environment.split('\0').any(|set| set == name))
    };
    assert_eq!(set(&environment(&folder, None)), [true, true]);
    // As where the settings are taken away on the way.
    let again = Some(("TURNPIKED_RESTARTED", "1"));
    assert_eq!(set(&environment(&folder, again)), [false, true]);
    // Settings of others are theirs.
    let theirs = Some(("GLIBC_TUNABLES", "glibc.malloc.check=0"));
    assert_eq!(set(&environment(&folder, theirs)), [false, false]);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn starts_serves_and_ends() {
    let net = Net::new();
    assert!(!net.has_xdp("n3"));
    let mut daemon = net.start("");
    assert!(net.has_xdp("n3") && net.has_xdp("n6"));

    let smf = net.smf();
    smf.associate().unwrap();
    let session = smf.establish(&plan()).unwrap();
    let seid = format!("{:016x}", session.up_seid);

    let status = daemon.get("status");
    assert_eq!(
        (&status["sessions"]["used"], &status["peers"]["used"]),
        (&1.into(), &1.into())
    );
    assert_eq!(status["version"], cli::RELEASE);
    assert_eq!(status["datapaths"][0], "xdp");
    assert_eq!(status["commit"].as_str(), cli::COMMIT);
    // As the kernel and glibc of this machine have it.
    let pages = &status["huge_pages"];
    assert!(pages["asked_for"].is_boolean(), "{pages}");
    assert!(
        pages["bytes"].is_null() || pages["bytes"].is_u64(),
        "{pages}"
    );
    let page = daemon.get("sessions");
    assert_eq!(page["sessions"][0]["seid"], seid);
    assert_eq!(page["sessions"][0]["pdrs"], 2);
    let ue = session.addresses.v4.unwrap().to_string();
    assert_eq!(page["sessions"][0]["ue"][0], ue);
    let detail = daemon.get(&format!("sessions/{seid}"));
    assert_eq!(detail["pdrs_detail"].as_array().unwrap().len(), 2);
    assert_eq!(detail["qers"][0]["mbr_uplink_bps"], 100_000_000);
    assert_eq!(detail["qers"][0]["mbr_downlink_bps"], 200_000_000);
    assert_eq!(detail["fars"][1]["tunnel"], "10000001@10.3.0.2");
    assert_eq!(detail["urrs"][0]["uplink"]["bytes"], 0);
    assert_eq!(daemon.get("peers")[0]["node_id"], "10.100.0.2");
    assert_eq!(daemon.get("datapath")["mode"], "driver");
    assert_eq!(daemon.get("drops"), serde_json::json!([]));
    assert_eq!(daemon.metric("turnpike_sessions"), 1);
    let accepted = "turnpike_pfcp_messages_total{message=\"session_establishment_response\",\
        direction=\"sent\",cause=\"request_accepted\"}";
    assert_eq!(daemon.metric(accepted), 1);
    shown_by_the_command_line(&net, &seid, &ue);

    smf.delete(&session).unwrap();
    assert_eq!(daemon.metric("turnpike_sessions"), 0);
    let own = daemon.own_memory_kib();
    assert_eq!(daemon.stop(), 0);
    assert!(!net.has_xdp("n3") && !net.has_xdp("n6"), "XDP stays behind");
    assert!(own < 10_000, "{own} KiB idle");
}

/// Each metric and each event has its line for operators.
#[test]
fn metrics_are_documented() {
    let net = Net::new();
    let daemon = net.start("");
    let smf = net.smf();
    smf.associate().unwrap();
    let document = include_str!("../../../../docs/metrics.md");
    let mut names = 0;
    for line in daemon
        .metrics()
        .lines()
        .filter(|line| !line.starts_with('#'))
    {
        let name = line.split(['{', ' ']).next().unwrap();
        assert!(
            document.contains(&format!("`{name}`")),
            "{name} is not in docs/metrics.md"
        );
        if let Some((_, event)) = line.split_once("event=\"") {
            let event = event.split('"').next().unwrap();
            assert!(
                document.contains(&format!("`{event}`")),
                "event {event} is not documented"
            );
        }
        names += 1;
    }
    assert!(names > 40, "{names}");
    assert_eq!(daemon.stop(), 0);
}

/// Path of the command line program, which lies beside the daemon; built there if need be.
fn cli() -> std::path::PathBuf {
    let daemon = Path::new(env!("CARGO_BIN_EXE_turnpiked"));
    let cli = daemon.with_file_name("turnpike");
    static BUILT: std::sync::Once = std::sync::Once::new();
    BUILT.call_once(|| {
        if cli.is_file() {
            return;
        }
        let folder = daemon.parent().unwrap();
        let profile = match folder.file_name().unwrap().to_str().unwrap() {
            "debug" => "dev",
            profile => profile,
        };
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "-q", "-p", "turnpike", "--profile", profile]);
        build.arg("--target-dir").arg(folder.parent().unwrap());
        assert!(build.status().unwrap().success());
    });
    cli
}

fn shown_by_the_command_line(net: &Net, seid: &str, ue: &str) {
    let cli = cli();
    let cli = cli.to_str().unwrap();
    let run = |args: &[&str]| net.upf.run(cli, args, LIMIT).unwrap();
    assert!(run(&["status"]).contains("sessions 1 of 80 000, SMFs 1"));
    assert!(run(&["sessions"]).contains(ue));
    assert!(run(&["session", seid]).contains("10000001@10.3.0.2"));
    assert!(run(&["peers"]).contains("10.100.0.2:8805"));
    assert_eq!(run(&["drops"]), "no packet was lost\n");
    assert!(run(&["datapath"]).contains("driver mode"));
    assert!(run(&["config"]).contains("n4.listen = \"10.100.0.1:8805\""));
    let json: serde_json::Value = serde_json::from_str(&run(&["--json", "status"])).unwrap();
    assert_eq!(json["sessions"]["used"], 1);
    let code = |args: &[&str]| {
        let output = net.upf.output(Command::new(cli).args(args), LIMIT).unwrap();
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let (missing, words) = code(&["session", "1"]);
    assert_eq!(
        (missing, words.trim()),
        (Some(1), "turnpike: no session 0000000000000001")
    );
    let (unknown, words) = code(&["help", "symptom"]);
    assert_eq!(unknown, Some(2));
    assert!(words.contains("similar: symptoms"), "{words}");
    let (unreachable, words) = code(&["--api", "http://127.0.0.1:1", "status"]);
    assert_eq!(unreachable, Some(3));
    assert!(
        words.contains("no turnpiked answers at http://127.0.0.1:1"),
        "{words}"
    );
}

#[test]
fn four_thousand_requests_at_once_are_all_answered() {
    const REQUESTS: u32 = 4096;
    let net = Net::new();
    let daemon = net.start("");
    net.smf().associate().unwrap();
    let socket = net.n4_socket(0);
    nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::RcvBufForce, &(16 << 20))
        .unwrap();
    for sequence in 0..REQUESTS {
        socket.send(&heartbeat(sequence)).unwrap();
    }
    let mut answered = vec![false; REQUESTS as usize];
    let mut buffer = [0; 256];
    let mut missing = REQUESTS;
    let (mut resent, mut silent) = (false, 0);
    socket
        .set_read_timeout(Some(Duration::from_secs(1)))
        .unwrap();
    while missing > 0 {
        let Ok(len) = again(|| socket.recv(&mut buffer)) else {
            // The queue of a link was full, which the sockets' were not.
            silent += 1;
            assert!(silent < 60, "{missing} answers never come");
            resent = true;
            for sequence in (0..REQUESTS).filter(|&number| !answered[number as usize]) {
                socket.send(&heartbeat(sequence)).unwrap();
            }
            continue;
        };
        assert!(len >= 16 && buffer[1] == 2, "{:02x?}", &buffer[..len]);
        let sequence = u32::from_be_bytes([0, buffer[4], buffer[5], buffer[6]]);
        let twice = std::mem::replace(&mut answered[sequence as usize], true);
        assert!(!twice || resent, "answered twice");
        missing -= u32::from(!twice);
    }
    // Whatever a link has lost, the daemon has lost nothing.
    assert_eq!(net.upf.socket_drops().unwrap(), 0);
    let counted = |message: &str, direction: &str, cause: &str| {
        let labels = format!("message=\"{message}\",direction=\"{direction}\",cause=\"{cause}\"");
        daemon.metric(&format!("turnpike_pfcp_messages_total{{{labels}}}"))
    };
    let received = counted("heartbeat_request", "received", "");
    assert!(received >= REQUESTS.into(), "{received}");
    assert_eq!(counted("heartbeat_response", "sent", ""), received);
    assert_eq!(daemon.stop(), 0);
}

/// What a stranger has sent lies before an SMF's request, and would be 38 100 answers. Here clocks judge nothing: what
/// the daemon keeps for later is bounded, and so is what it answers of that before it has read everything.
#[test]
fn a_strangers_flood_of_bundles_is_no_smfs_trouble() {
    const BUNDLES: u64 = 300;
    const MESSAGES: u64 = 127;
    let net = Net::new();
    let addresses = "addr add 10.100.0.3/24 dev n4\naddr add 10.100.0.4/24 dev n4";
    net.peer.ip(addresses).unwrap();
    let mut daemon = net.start("");
    let smf = net.smf();
    smf.associate().unwrap();
    let socket = net.n4_socket(0);
    let stranger = net.peer.udp(([10, 100, 0, 3], 0)).unwrap();
    let mut bundle = Vec::new();
    for number in 1..=MESSAGES as u32 {
        let mut message = heartbeat(number);
        message[0] |= if number < MESSAGES as u32 { 0x04 } else { 0 };
        bundle.extend(message);
    }
    let flood = || {
        for _ in 0..BUNDLES {
            stranger.send_to(&bundle, (common::UPF_N4, 8805)).unwrap();
        }
    };
    daemon.process.signal(Signal::SIGSTOP).unwrap();
    flood();
    socket.send(&heartbeat(0x1234)).unwrap();
    daemon.process.signal(Signal::SIGCONT).unwrap();
    assert!(await_heartbeat(&socket, 0x1234), "{}", daemon.log());
    // A link may have lost some of it. All that has arrived was there before the SMF's request.
    let dropped = daemon.metric("turnpike_pfcp_events_total{event=\"stranger_dropped\"}");
    assert!(dropped >= BUNDLES / 3 * MESSAGES, "{dropped}");
    assert_eq!(dropped % MESSAGES, 0, "messages, not datagrams");
    let sent = "message=\"heartbeat_response\",direction=\"sent\",cause=\"\"";
    let answered = daemon.metric(&format!("turnpike_pfcp_messages_total{{{sent}}}"));
    assert!(answered < BUNDLES / 3 * MESSAGES, "{answered}");
    // Meanwhile an SMF that nobody has heard of gets its association, and sessions.
    let (address, upf) = ([10, 100, 0, 4].into(), (common::UPF_N4, 8805).into());
    let id = rs_pfcp::ie::node_id::NodeId::new_ipv4(address);
    let now = std::time::SystemTime::now();
    let other = lab::smf::Smf::start(&net.peer, address.into(), id, now, upf).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(flood);
        other.associate().unwrap();
        for smf in [&smf, &other] {
            let session = smf.establish(&plan()).unwrap();
            smf.delete(&session).unwrap();
        }
    });
    // Others are as before, and the stranger is answered within its share.
    stranger.set_read_timeout(Some(LIMIT)).unwrap();
    assert!(await_heartbeat(&stranger, 1), "{}", daemon.log());
    assert!(daemon.log().contains("why=\"stranger_dropped\""));
    assert_eq!(daemon.stop(), 0);
}

#[test]
fn nonsense_is_survived_counted_and_answered_where_it_must_be() {
    let net = Net::new();
    let mut daemon = net.start("");
    let smf = net.smf();
    smf.associate().unwrap();
    let socket = net.n4_socket(0);
    let before = daemon.rss_kib();
    let mut random = 1u64;
    for round in 0..20_000u32 {
        let mut datagram = heartbeat(round).to_vec();
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        datagram.resize((random >> 33) as usize % 64, random as u8);
        if let Some(byte) = datagram.get_mut((random >> 40) as usize % 64) {
            *byte ^= (random >> 50) as u8;
        }
        socket.send(&datagram).unwrap();
        if round % 64 == 0 {
            // Wait for one answer, so that nothing is lost to a full buffer unnoticed.
            socket.send(&heartbeat(round | 0x80_0000)).unwrap();
            assert!(
                await_heartbeat(&socket, round | 0x80_0000),
                "{}",
                daemon.log()
            );
        }
    }
    // Larger than Ethernet, and the largest there is.
    for size in [1501, 9000, 65_507] {
        let mut datagram = heartbeat(7).to_vec();
        datagram.resize(size, 0);
        socket.send(&datagram).unwrap();
    }
    smf.heartbeat().unwrap();
    let session = smf.establish(&plan()).unwrap();
    smf.delete(&session).unwrap();
    assert!(daemon.metric("turnpike_pfcp_events_total{event=\"malformed\"}") > 0);
    let grown = daemon.rss_kib().saturating_sub(before);
    assert!(grown < 8192, "grew by {grown} KiB");
    assert_eq!(daemon.stop(), 0);
}

fn await_heartbeat(socket: &std::net::UdpSocket, sequence: u32) -> bool {
    let mut buffer = [0; 2048];
    loop {
        match again(|| socket.recv(&mut buffer)) {
            Ok(len)
                if len >= 8 && buffer[1] == 2 && buffer[4..7] == sequence.to_be_bytes()[1..] =>
            {
                return true;
            }
            Ok(_) => {}
            Err(_) => return false,
        }
    }
}

/// A request that fills several Ethernet frames is read whole: the IE at its very end counts.
#[test]
fn a_request_of_many_frames_is_read_whole() {
    let net = Net::new();
    let daemon = net.start("");
    let socket = net.n4_socket(0);
    // Heartbeat Request whose Recovery Time Stamp stands behind vendor IEs of 60 000 octets.
    let padding: Vec<u8> = std::iter::repeat_n([0x80u8, 1, 0, 4, 0, 10, 0, 0], 7500)
        .flatten()
        .collect();
    let [front, time] = [&heartbeat(9)[..8], &heartbeat(9)[8..]];
    let mut datagram = [front, &padding, time].concat();
    let length = (datagram.len() - 4) as u16;
    datagram[2..4].copy_from_slice(&length.to_be_bytes());
    socket.send(&datagram).unwrap();
    assert!(await_heartbeat(&socket, 9), "{}", daemon.log());
    assert_eq!(daemon.stop(), 0);
}

#[test]
fn what_is_wrong_is_said_before_a_port_opens() {
    let net = Net::new();
    let (code, words) = net.run(&["check-config", net.config("").to_str().unwrap()]);
    assert_eq!(code, 0, "{words}");
    let understood: Vec<&str> = words.lines().collect();
    assert!(understood[0].ends_with("turnpiked.toml: ok"), "{words}");
    for line in [
        "n4: 10.100.0.1:8805 as Node ID 10.100.0.1; anybody may speak PFCP (n4.allow is empty); SMFs set up associations",
        "interface n3 (n3): tunnels of gNBs at 10.3.0.1",
        "interface n6 (n6): packets of internet",
        "network instance internet on n6: UE addresses from 10.60.0.0/16, 2001:db8:60::/48, and what SMFs give; \
         routes of table 254; framed routes: any that overlap nothing; UEs reach each other",
        "room: 80000 sessions, 160000 PDRs, 80000 SDF filters, 64 SMFs, 4096 gNBs, 256 MiB and 1000000 packets that wait for idle UEs; tables of 76 MiB",
        "REST: 127.0.0.1:8806, without token; usage is not logged",
    ] {
        assert!(understood.contains(&line), "{line}\n{words}");
    }
    let wrong = net.config("[api]\nlisten = \"10.100.0.1:8806\"");
    let wrong = wrong.to_str().unwrap();
    for args in [["check-config", wrong], ["--config", wrong]] {
        let (code, words) = net.run(&args);
        assert_eq!(code, 2);
        let expected = "api.token_file: is required, because api.listen = 10.100.0.1:8806";
        assert!(words.contains(expected), "{words}");
    }
    let (code, words) = net.run(&["check-config", "/nonexistent.toml"]);
    assert_eq!(code, 2);
    assert!(words.contains("/nonexistent.toml"), "{words}");
    assert_eq!(net.run(&["--nonsense"]).0, 2);
}

#[test]
fn a_port_in_use_is_named() {
    let net = Net::new();
    let config = net.config("");
    let taken = net
        .upf
        .enter(|| Ok(std::net::UdpSocket::bind("10.100.0.1:8805")?))
        .unwrap();
    let (code, words) = net.run(&["--config", config.to_str().unwrap()]);
    assert_eq!(code, 1);
    assert!(words.contains("n4.listen = 10.100.0.1:8805"), "{words}");
    assert!(words.contains("in use"), "{words}");
    drop(taken);
    assert!(!net.has_xdp("n3"));
}

#[test]
fn the_token_is_asked_for() {
    let net = Net::new();
    let token = net.write("token", "0123456789abcdef0123\n");
    let daemon = net.start(&format!("[api]\ntoken_file = {token:?}"));
    assert!(daemon.get_with("/metrics", "").0.contains("401"));
    let wrong = "Authorization: Bearer 0123456789abcdef0124\r\n";
    assert!(daemon.get_with("/metrics", wrong).0.contains("401"));
    let right = "Authorization: Bearer 0123456789abcdef0123\r\n";
    assert!(daemon.get_with("/metrics", right).0.contains("200"));
    let cli = cli();
    let code = |args: &[&str]| {
        let output = net
            .upf
            .output(Command::new(&cli).args(args), LIMIT)
            .unwrap();
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let (none, words) = code(&["status"]);
    assert_eq!(none, Some(1));
    assert!(words.contains("a token is required"), "{words}");
    assert_eq!(
        code(&["--token-file", token.to_str().unwrap(), "status"]).0,
        Some(0)
    );
    assert_eq!(code(&["--token-file", "/nonexistent", "status"]).0, Some(2));
    let config = daemon.get_with("/api/v1/config", right).1;
    assert!(config.contains("token_file") && !config.contains("0123456789abcdef"));
    assert_eq!(daemon.stop(), 0);
}

/// Nobody else knows by then what its session has used.
#[test]
fn what_an_smf_that_does_not_release_has_not_heard_is_in_the_log_of_usage() {
    let net = Net::new();
    let log = net.folder.join("usage.jsonl");
    let mut daemon = net.start(&format!("[usage_log]\npath = {log:?}\n"));
    let smf = net.smf();
    smf.associate().unwrap();
    let urrs = vec![lab::smf::Urr::of_time(7)];
    smf.establish(&SessionPlan { urrs, ..plan() }).unwrap();
    // It crashes.
    drop(smf);
    std::thread::sleep(Duration::from_millis(1100));
    daemon.process.signal(Signal::SIGTERM).unwrap();
    assert_eq!(daemon.process.wait(LIMIT).unwrap().code(), Some(0));
    let lines = std::fs::read_to_string(log).unwrap();
    assert_eq!(lines.lines().count(), 1, "{lines}");
    let line: serde_json::Value = serde_json::from_str(&lines).unwrap();
    assert_eq!(
        (&line["urr"], &line["acknowledged"]),
        (&7.into(), &false.into())
    );
    assert!(line["duration_s"].as_u64() >= Some(1), "{lines}");
}

/// A configuration with which a release may take half a minute and more.
fn patient(net: &Net) -> std::path::PathBuf {
    let text = std::fs::read_to_string(net.config("")).unwrap();
    let listen = "listen = \"10.100.0.1:8805\"";
    let more = "t1_ms = 3000\nn1 = 10\ngraceful_release_s = 60";
    let text = text.replace(listen, &format!("{listen}\n{more}"));
    net.write("turnpiked.toml", &text)
}

fn wait_for_log(daemon: &common::Daemon<'_>, words: &str) {
    let logged = || Ok(daemon.log().contains(words));
    if lab::wait::eventually(words, logged).is_err() {
        panic!("no {words:?} in {}", daemon.log());
    }
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let net = Net::new();
    let mut daemon = net.start_with(patient(&net));
    let smf = net.smf();
    smf.associate().unwrap();
    // It crashes: nobody answers the release.
    drop(smf);
    daemon.process.signal(Signal::SIGTERM).unwrap();
    wait_for_log(&daemon, "shutting down: releasing associations");
    daemon.process.signal(Signal::SIGTERM).unwrap();
    let status = daemon.process.wait(LIMIT).unwrap();
    assert_eq!(status.code(), Some(1));
}

#[test]
fn generic_mode_is_chosen_never_fallen_back_to() {
    let net = Net::new();
    // The loopback device's driver knows no XDP.
    let text = std::fs::read_to_string(net.config("")).unwrap();
    let text = text.replace("name = \"n6\"", "name = \"lo\"");
    let text = text.replace("interface = \"n6\"", "interface = \"lo\"");
    let driver = net.write("driver.toml", &text);
    let (code, words) = net.run(&["--config", driver.to_str().unwrap()]);
    assert_eq!(code, 1);
    assert!(
        words.contains("cannot attach to lo in Driver mode"),
        "{words}"
    );
    assert!(words.contains("mode = \"generic\""), "{words}");
    assert!(
        !net.has_xdp("n3"),
        "the first interface was left with a program"
    );
    let generic = format!("{text}[datapath]\nmode = \"generic\"");
    let daemon = net.start_with(net.write("generic.toml", &generic));
    assert_eq!(daemon.get("datapath")["mode"], "generic");
    assert_eq!(daemon.stop(), 0);
}

#[test]
fn it_calls_the_smfs_it_is_told_of() {
    let net = Net::new();
    let smf = net.smf();
    let config = net.config("");
    let text = std::fs::read_to_string(&config).unwrap();
    let listen = "listen = \"10.100.0.1:8805\"";
    let text = text.replace(listen, &format!("{listen}\nsmf = [\"10.100.0.2:8805\"]"));
    let daemon = net.start_with(net.write("turnpiked.toml", &text));
    smf.wait_for_association().unwrap();
    smf.establish(&plan()).unwrap();
    let peers = daemon.get("peers");
    assert_eq!(
        (&peers[0]["state"], &peers[0]["sessions"]),
        (&"up".into(), &1.into())
    );
    assert_eq!(daemon.stop(), 0);
}

#[test]
fn logs_are_json_when_asked() {
    let net = Net::new();
    let mut daemon = net.start("[log]\nformat = \"json\"");
    let smf = net.smf();
    smf.associate().unwrap();
    smf.release().unwrap();
    daemon.process.signal(Signal::SIGINT).unwrap();
    assert_eq!(daemon.process.wait(LIMIT).unwrap().code(), Some(0));
    let log = daemon.log();
    let lines: Vec<serde_json::Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).expect(line))
        .collect();
    for message in [
        "ready",
        "SMF associated",
        "SMF released its association",
        "ended",
    ] {
        let count = lines
            .iter()
            .filter(|line| line["message"] == message)
            .count();
        assert_eq!(count, 1, "{message}\n{log}");
    }
    let ready = lines
        .iter()
        .find(|line| line["message"] == "ready")
        .unwrap();
    assert!(ready["after_ms"].as_u64().is_some() && ready["n4"] == "10.100.0.1:8805");
}
