//! Interfaces that are deleted and made again.

use std::net::Ipv4Addr;

use lab::netns::{End, Netns, Prefix, cable, take_redirected};
use lab::wait::eventually;
use nix::sys::signal::Signal;

use crate::common::{Daemon, LIMIT, Net, UPF_N3};
use crate::plan;

const ATTACHED: &str = "turnpike_interface_attached{interface=\"n6\"}";
const N3_ATTACHED: &str = "turnpike_interface_attached{interface=\"n3\"}";
const GNB: Ipv4Addr = Ipv4Addr::new(10, 3, 0, 2);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 6, 0, 2);

fn probe(daemon: &Daemon<'_>, path: &str) -> (bool, String) {
    let (status, body) = daemon.get_with(path, "");
    (status.ends_with("200 OK"), body)
}

fn is_ready(daemon: &Daemon<'_>) -> bool {
    probe(daemon, "/readyz").0
}

/// Ends of a cable as the tests of the daemon have them: the interface of the UPF, and its peer's.
fn lay(net: &Net, name: &str, subnet: u8) {
    let (upf, peer) = (&net.upf, &net.peer);
    cable(End { netns: upf, name }, End { netns: peer, name }, 1500).unwrap();
    upf.ip(&format!("addr add 10.{subnet}.0.1/24 dev {name}"))
        .unwrap();
    peer.ip(&format!("addr add 10.{subnet}.0.2/24 dev {name}"))
        .unwrap();
}

/// A G-PDU with a UDP packet from the UE to the server's port 9.
fn gpdu(teid: u32, ue: Ipv4Addr) -> Vec<u8> {
    let payload = b"over and over";
    let mut udp = [9u16, 9, 8 + payload.len() as u16, 0]
        .map(u16::to_be_bytes)
        .concat();
    udp.extend(payload);
    let len = 20 + udp.len() as u16;
    let mut ip = vec![0x45, 0];
    ip.extend(len.to_be_bytes());
    ip.extend([0, 0, 0, 0, 64, 17, 0, 0]);
    ip.extend(ue.octets());
    ip.extend(SERVER.octets());
    let sum: u32 = ip
        .chunks(2)
        .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])))
        .sum();
    let folded = !((sum & 0xffff) + (sum >> 16)) as u16;
    ip[10..12].copy_from_slice(&folded.to_be_bytes());
    // With a PDU Session Container, QFI 9.
    let mut gtpu = vec![0x34, 255];
    gtpu.extend((8 + len).to_be_bytes());
    gtpu.extend(teid.to_be_bytes());
    gtpu.extend([0, 0, 0, 0x85, 1, 0x10, 9, 0]);
    gtpu.extend(ip);
    gtpu.extend(udp);
    gtpu
}

/// Packets of the UE reach the server, and the server's reach the UE's gNB, sooner or later.
pub(crate) fn passes(net: &Net, teid: u32, ue: Ipv4Addr) {
    for name in ["n3", "n6"] {
        let netns = &net.peer;
        take_redirected(End { netns, name }).unwrap();
    }
    net.peer
        .ip("route replace 10.60.0.0/16 via 10.6.0.1")
        .unwrap();
    let sockets = [(SERVER, 9), (GNB, 2152)].map(|address| net.peer.udp(address).unwrap());
    let [server, gnb] = &sockets;
    sockets
        .iter()
        .for_each(|socket| socket.set_nonblocking(true).unwrap());
    let datagram = gpdu(teid, ue);
    let mut buffer = [0; 256];
    eventually("a packet of the UE arrives", || {
        gnb.send_to(&datagram, (UPF_N3, 2152))?;
        Ok(server.recv(&mut buffer).is_ok())
    })
    .unwrap();
    eventually("a packet to the UE arrives", || {
        server.send_to(b"back again", (ue, 9))?;
        let len = gnb.recv(&mut buffer).unwrap_or(0);
        Ok(buffer[..len].ends_with(b"back again"))
    })
    .unwrap();
}

/// The far end of a veth takes more frames into its queue than it looks at, unless something tells it to look: without that the
/// kernel's own packets find no room there either, once a few hundred answers wait.
#[test]
fn answers_reach_a_far_end_without_a_program() {
    let net = Net::new();
    let daemon = net.start("[gtpu]\nrestart_grace_s = 0\nerror_indications_per_s = 1000000\n");
    let (netns, name) = (&net.peer, "n3");
    take_redirected(End { netns, name }).unwrap();
    let gnb = net.peer.udp((GNB, 2152)).unwrap();
    gnb.set_read_timeout(Some(LIMIT)).unwrap();
    let (nobody, mut buffer) = (gpdu(7, Ipv4Addr::new(10, 60, 0, 1)), [0; 256]);
    for _ in 0..1000 {
        gnb.send_to(&nobody, (UPF_N3, 2152)).unwrap();
        let length = gnb.recv(&mut buffer).unwrap();
        // Error Indication (TS 29.281, 7.3.1).
        assert!(length > 8 && buffer[1] == 26, "{:02x?}", &buffer[..length]);
    }
    let output = net.peer.run("ping", &["-c1", "-W5", "10.3.0.1"], LIMIT);
    assert!(output.unwrap().contains("1 received"));
    assert_eq!(daemon.stop(), 0);
}

fn is_never_served_again(kind: &str) {
    let net = Net::new();
    net.upf.ip("link set lo up").unwrap();
    for key in ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"] {
        net.upf.sysctl(key, "1").unwrap();
    }
    let mut daemon = net.start(&format!("[datapath]\nkind = \"{kind}\"\n"));
    let smf = net.smf();
    smf.associate().unwrap();
    let session = smf.establish(&plan()).unwrap();
    let (teid, ue) = (session.uplink.1, session.addresses.v4.unwrap());
    passes(&net, teid, ue);
    assert!(is_ready(&daemon) && probe(&daemon, "/healthz").0);

    for (name, subnet, metric) in [("n6", 6, ATTACHED), ("n3", 3, N3_ATTACHED)] {
        net.upf.ip(&format!("link del {name}")).unwrap();
        eventually("it says that the interface is gone", || {
            Ok(daemon.metric(metric) == 0 && !is_ready(&daemon))
        })
        .unwrap();
        let (_, why) = probe(&daemon, "/readyz");
        assert!(why.contains(&format!("interface {name}: gone")), "{why}");
        assert!(probe(&daemon, "/healthz").0);
        let words = format!(
            "the interface is gone: its packets are lost until it is back interface=\"{name}\""
        );
        assert!(daemon.log().contains(&words), "{}", daemon.log());
        let status = daemon.get("status");
        let port = status["ports"]
            .as_array()
            .unwrap()
            .iter()
            .find(|port| port["interface"] == name);
        assert!(port.unwrap()["trouble"].is_string());
        // Sessions come and go meanwhile.
        let other = smf.establish(&plan()).unwrap();
        smf.delete(&other).unwrap();

        lay(&net, name, subnet);
        eventually("the interface is served again", || Ok(is_ready(&daemon))).unwrap();
        assert_eq!(daemon.metric(metric), 1);
        passes(&net, teid, ue);
    }

    // Away and back again under its old number, before anybody has looked.
    let number = index(&net, "n6");
    let elsewhere = Netns::create(&Prefix::unique(), "elsewhere").unwrap();
    daemon.process.signal(Signal::SIGSTOP).unwrap();
    let away = format!("link set n6 netns {}", elsewhere.name());
    net.upf.ip(&away).unwrap();
    let back = format!("link set n6 netns {}", net.upf.name());
    elsewhere.ip(&back).unwrap();
    daemon.process.signal(Signal::SIGCONT).unwrap();
    assert_eq!(
        index(&net, "n6"),
        number,
        "the kernel keeps it where it can"
    );
    net.upf
        .ip("link set n6 up\naddr add 10.6.0.1/24 dev n6")
        .unwrap();
    passes(&net, teid, ue);

    if kind == "kernel" {
        net.upf.ip("link del n6-ue").unwrap();
        passes(&net, teid, ue);
    }
    assert_eq!(daemon.metric("turnpike_sessions"), 1);
    smf.release().unwrap();
    assert_eq!(daemon.stop(), 0);
}

fn index(net: &Net, name: &str) -> u32 {
    let index = || Ok(nix::net::if_::if_nametoindex(name)?);
    net.upf.enter(index).unwrap()
}

#[test]
fn an_interface_that_is_made_anew_is_never_served_again() {
    is_never_served_again("xdp");
}

#[test]
fn an_interface_that_is_made_anew_is_never_served_again_by_sockets() {
    is_never_served_again("kernel");
}
