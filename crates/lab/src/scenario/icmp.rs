//! Packets that go no further: their senders hear of it, or they arrive in fragments.

use std::net::{IpAddr, Ipv6Addr};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{Scenario, both_ways, eventually};
use crate::dn;
use crate::netns::Netns;
use crate::packet;
use crate::smf::Style;
use crate::traffic::start_download;
use crate::upf::Datapath;
use crate::wait::NEVER;
use crate::world::{Attached, Family, UPF_N6, UPF_N6_V6, World};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "icmp-errors",
            "senders hear of packets that are too long or whose time is up",
            icmp_errors,
        ),
        Scenario::new(
            "path-mtu",
            "TCP finds the path MTU when N3 carries less than usual",
            path_mtu,
        ),
        Scenario::new(
            "inner-fragments",
            "what does not fit and may be cut arrives in fragments",
            inner_fragments,
        )
        .fragments(),
        Scenario::new(
            "router-advertisement",
            "a UE finds prefix, router and MTU by asking the UPF",
            router_advertisement,
        )
        .line("[network_instance.router]", "mtu = 1380"),
        Scenario::new(
            "icmp-address",
            "the router calls itself as the operator says",
            icmp_address,
        )
        .line(
            "[network_instance.router]",
            "addresses = [\"198.51.100.1\"]",
        ),
    ]
}

/// The UE's kernel makes its address and its route of what the UPF advertises, and nothing else.
fn router_advertisement(world: &mut World) -> Result<String> {
    // Open5GS answers itself; the UPF does so where it knows the UE's prefix.
    let mut plan = world.plan(Family::Dual, Style::Open5gs);
    plan.uplink_ue = true;
    let ue = world.attach("ue", &plan, 0, 0)?;
    let Some(IpAddr::V6(given)) = ue.session.addresses.all().into_iter().find(IpAddr::is_ipv6)
    else {
        anyhow::bail!("no IPv6 address");
    };
    let netns = &ue.ue.netns;
    netns.ip("addr flush dev tun0\nlink set tun0 down")?;
    for (key, value) in [
        ("accept_ra", "2"),
        ("autoconf", "1"),
        ("router_solicitations", "3"),
    ] {
        netns.sysctl(&format!("net/ipv6/conf/tun0/{key}"), value)?;
    }
    netns.sysctl("net/ipv6/conf/tun0/addr_gen_mode", "0")?;
    netns.ip("link set tun0 up")?;
    let show = |what: &[&str]| netns.run("ip", what, NEVER);
    let is_own = |addr: Ipv6Addr| addr.segments()[..4] == given.segments()[..4];
    eventually("an address by SLAAC", || {
        let addresses = show(&["-6", "-o", "addr", "show", "dev", "tun0", "scope", "global"])?;
        let mut words = addresses.split_whitespace();
        let address = words
            .find(|word| *word == "inet6")
            .and_then(|_| words.next());
        let address = address.and_then(|net| net.strip_suffix("/64")?.parse().ok());
        // A tentative one is nobody's source yet, and the link-local one would be foreign to the UPF.
        Ok(address.is_some_and(is_own) && !addresses.contains("tentative"))
    })?;
    let routes = show(&["-6", "route", "show", "default"])?;
    ensure!(
        routes.contains("via fe80::1 dev tun0 proto ra") && routes.contains("mtu 1380"),
        "the UE's default route: {routes}"
    );
    let said = ping_says(netns, dn::SERVER_V6.into(), &[])?;
    ensure!(said.contains(" 0% packet loss"), "{said}");
    Ok("SLAAC in the session's /64, default route and MTU, ping over them".into())
}

/// Octets of tunnel headers towards a gNB with IPv4.
pub(super) const TUNNEL: u32 = 44;

fn router_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => UPF_N6.into(),
        IpAddr::V6(_) => UPF_N6_V6.into(),
    }
}

/// Output of a single ping to `to`, answered or not.
pub(super) fn ping_says(netns: &Netns, to: IpAddr, args: &[&str]) -> Result<String> {
    let mut command = Command::new("ping");
    command.args(["-n", "-c", "1", "-W", "30"]).args(args);
    command.arg(to.to_string());
    let output = netns.output(&mut command, NEVER)?;
    let said = [output.stdout, output.stderr].concat();
    Ok(String::from_utf8_lossy(&said).into_owned())
}

/// A ping must be told `what` by `from`.
pub(super) fn told(
    netns: &Netns,
    to: IpAddr,
    args: &[&str],
    from: IpAddr,
    what: &str,
) -> Result<()> {
    let said = ping_says(netns, to, args)?;
    let line = said
        .lines()
        .find(|line| line.to_lowercase().contains(&what.to_lowercase()));
    ensure!(
        line.is_some_and(|line| line.contains(&format!("From {from}"))),
        "ping {args:?} {to} was not told '{what}' by {from}: {said}"
    );
    Ok(())
}

fn time_exceeded(address: IpAddr) -> &'static str {
    match address {
        IpAddr::V4(_) => "time to live exceeded",
        IpAddr::V6(_) => "hop limit",
    }
}

/// The words for it, with that MTU.
pub(super) fn too_big(address: IpAddr, mtu: u32) -> String {
    match address {
        IpAddr::V4(_) => format!("mtu = {mtu}"),
        IpAddr::V6(_) => format!("mtu={mtu}"),
    }
}

/// Octets of ping's payload in a packet of this length.
pub(super) fn payload(address: IpAddr, packet: u32) -> String {
    let headers = if address.is_ipv4() { 28 } else { 48 };
    (packet - headers).to_string()
}

fn icmp_errors(world: &mut World) -> Result<String> {
    let ue = world.attach_plain("ue", Family::Dual)?;
    let addresses = ue.session.addresses.all();
    ensure!(addresses.len() == 2, "{addresses:?}");
    for &address in &addresses {
        let (server, router) = (dn::server_for(address), router_of(address));
        let exceeded = time_exceeded(address);
        told(&ue.ue.netns, server, &["-t", "1"], router, exceeded)?;
        told(&world.dn_ns, address, &["-t", "1"], router, exceeded)?;
        // 1500 on N3 leave 1456 for the user's packet.
        let size = payload(address, 1500 - TUNNEL + 1);
        let large = ["-M", "do", "-s", &size];
        let words = too_big(address, 1500 - TUNNEL);
        told(&world.dn_ns, address, &large, router, &words)?;
    }
    world.set_mtu("n6", 1300)?;
    for &address in &addresses {
        let (server, router) = (dn::server_for(address), router_of(address));
        let size = payload(address, 1301);
        let large = ["-M", "do", "-s", &size];
        eventually("uplink too big", || {
            let said = ping_says(&ue.ue.netns, server, &large)?;
            let words = too_big(address, 1300);
            // Once it has heard, the UE's own stack says the MTU, without sending.
            Ok(
                said.contains(&format!("From {router}")) && said.contains(&words)
                    || said.contains(&format!("mtu={}", 1300))
                    || said.contains(&format!("mtu: {}", 1300)),
            )
        })?;
    }
    let (ttl, mtu) = (world.drops("ttl")?, world.drops("mtu")?);
    // If the kernel brings packets to UEs, it spends their hop, and tells their senders.
    let own = match Datapath::chosen() {
        Datapath::Kernel => 2,
        _ => 4,
    };
    ensure!(
        ttl == own && mtu >= 4,
        "{ttl} packets dropped as ttl, {mtu} as mtu"
    );
    both_ways(world, &ue)?;
    Ok("both directions and families: time exceeded and too big, with the MTU that fits".into())
}

/// MTU that the data network believes the path to a UE to have.
fn believed_mtu(world: &World, address: IpAddr) -> Result<Option<u32>> {
    let to = address.to_string();
    let route = world.dn_ns.run("ip", &["route", "get", &to], NEVER)?;
    let mut words = route.split_whitespace();
    Ok(words
        .find(|word| *word == "mtu")
        .and_then(|_| words.next()?.parse().ok()))
}

fn path_mtu(world: &mut World) -> Result<String> {
    const N3_MTU: u32 = 1400;
    let ue = world.attach_plain("ue", Family::Dual)?;
    world.set_mtu("n3", N3_MTU)?;
    for address in ue.session.addresses.all() {
        let download = start_download(&ue.ue.netns, address, 4 << 20, 100 << 20)?;
        let got = download.finish().context("TCP download")?;
        ensure!(got == 4 << 20, "{got} octets");
        let mtu = believed_mtu(world, address)?;
        ensure!(
            mtu == Some(N3_MTU - TUNNEL),
            "the server believes in {mtu:?} to {address}"
        );
    }
    let lost = world.drops("mtu")?;
    ensure!(
        (1..200).contains(&lost),
        "{lost} packets were lost before the servers knew"
    );
    Ok(format!(
        "4 MiB over each family with N3 at {N3_MTU}; {lost} packets lost until the MTU was known"
    ))
}

/// Whether a ping of this size is answered, when it may be cut on its way.
pub(super) fn answered(netns: &Netns, to: IpAddr, size: u32) -> Result<()> {
    let size = size.to_string();
    let said = ping_says(netns, to, &["-M", "dont", "-s", &size])?;
    ensure!(
        said.contains(" 0% packet loss"),
        "ping of {size} from {}: {said}",
        netns.name()
    );
    Ok(())
}

fn fragments_through(world: &World, ue: &Attached) -> Result<()> {
    let IpAddr::V4(address) = ue.address()? else {
        anyhow::bail!("an IPv4 address was asked for");
    };
    let server = dn::server_for(address.into());
    for size in [1430, 1472, 2000, 5000] {
        answered(&world.dn_ns, address.into(), size)?;
        answered(&ue.ue.netns, server, size)?;
    }
    Ok(())
}

/// A datagram of 1300 octets whose packets have no identification arrives whole. The UE sends so many octets in one packet.
pub(super) fn unidentified(world: &World, ue: &Attached, port: u16, octets: usize) -> Result<()> {
    let IpAddr::V4(address) = ue.address()? else {
        anyhow::bail!("an IPv4 address was asked for");
    };
    let server = world.dn_ns.udp((dn::SERVER_V4, port))?;
    server.set_read_timeout(Some(NEVER))?;
    let sent: Vec<u8> = (0..1300u32).map(|at| (at % 251) as u8).collect();
    let whole = packet::udp4((address, 5000), (dn::SERVER_V4, port), &sent);
    for part in packet::unidentified(&whole, octets) {
        ue.ue.modem.send(&part, &mut Vec::new());
    }
    let mut received = vec![0; 2000];
    let length = server.recv(&mut received);
    let length = length.context("a datagram of packets without identification")?;
    ensure!(received[..length] == sent[..], "{length} octets arrived");
    Ok(())
}

fn inner_fragments(world: &mut World) -> Result<String> {
    let ue = world.attach_plain("ue", Family::V4)?;
    fragments_through(world, &ue)?;
    // A link takes in no more than it sends, so whoever is beside a narrow one sends less, too.
    ue.ue.netns.ip("link set tun0 mtu 900")?;
    world.set_mtu("n3", 1000)?;
    fragments_through(world, &ue)?;
    world.set_mtu("n3", 1500)?;
    world.set_mtu("n6", 1000)?;
    world.dn_ns.ip("link set n6 mtu 1000")?;
    ue.ue.netns.ip("link set tun0 mtu 1400")?;
    fragments_through(world, &ue)?;
    unidentified(world, &ue, 7009, 1400)?;
    both_ways(world, &ue)?;
    let mtu = world.drops("mtu")?;
    ensure!(mtu == 0, "{mtu} packets dropped as mtu");
    Ok("pings of up to 5000 octets, cut on N3 and N6, are answered".into())
}

fn icmp_address(world: &mut World) -> Result<String> {
    let ue = world.attach_plain("ue", Family::Dual)?;
    for address in ue.session.addresses.all() {
        let router = match address {
            IpAddr::V4(_) => "198.51.100.1".parse()?,
            IpAddr::V6(_) => router_of(address),
        };
        let server = dn::server_for(address);
        let exceeded = time_exceeded(address);
        told(&ue.ue.netns, server, &["-t", "1"], router, exceeded)?;
    }
    Ok("IPv4 from the configured address, IPv6 from that of the interface".into())
}
