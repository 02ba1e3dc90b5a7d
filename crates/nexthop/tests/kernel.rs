//! Next hops of a real kernel, in network namespaces of their own. Needs root.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code)] // shared with tests that need more of it
use std::sync::mpsc;
use std::time::Instant;

use nexthop::netlink::Netlink;
use nexthop::testing::cable::{
    PATIENCE, PEER_MAC, cable, ifindex, ip, sh, wait_for, wait_for_ipv6,
};
use nexthop::testing::mirror::{Mirror, leads_to};
use nexthop::{KernelChange, Mac, NextHop, Peer, Request};

fn by(gateway: &str) -> impl Fn(&NextHop) -> bool {
    let gateway = ip(gateway);
    move |hop| matches!(hop, NextHop::Resolved { addr, .. } if *addr == gateway)
}

#[test]
fn routes_neighbours_and_links_are_followed() {
    let host = cable();
    wait_for_ipv6(&host);
    let mut mirror = Mirror::start();
    mirror.until("connected", "10.6.0.9", |hop| {
        matches!(hop, NextHop::OnLink { port: 0, .. })
    });
    mirror.until("local", "10.6.0.1", |hop| *hop == NextHop::Local);
    mirror.until("local IPv6", "2001:db8:6::1", |hop| *hop == NextHop::Local);
    mirror.until("broadcast", "10.6.0.255", |hop| *hop == NextHop::Prohibit);

    sh("ip route add 198.51.100.0/24 via 10.6.0.2");
    mirror.until(
        "route added, gateway resolved",
        "198.51.100.1",
        leads_to(PEER_MAC),
    );
    sh("ip -6 route add 2001:db8:99::/48 via 2001:db8:6::2");
    mirror.until("IPv6 route added", "2001:db8:99::1", leads_to(PEER_MAC));

    sh("ip neigh replace 10.6.0.77 lladdr 02:00:00:00:00:77 nud permanent dev n6");
    let other = Mac([2, 0, 0, 0, 0, 0x77]);
    mirror.until("neighbour added", "10.6.0.77", leads_to(other));
    sh("ip route replace 198.51.100.0/24 via 10.6.0.77");
    mirror.until("route replaced", "198.51.100.1", leads_to(other));
    sh("ip neigh replace 10.6.0.77 lladdr 02:00:00:00:00:78 nud permanent dev n6");
    mirror.until(
        "address changed",
        "198.51.100.1",
        leads_to(Mac([2, 0, 0, 0, 0, 0x78])),
    );
    sh("ip neigh del 10.6.0.77 dev n6");
    mirror.until("neighbour deleted", "198.51.100.1", |hop| {
        matches!(hop, NextHop::Unresolved { .. })
    });
    sh("ip route replace blackhole 198.51.100.0/24");
    mirror.until("blackhole", "198.51.100.1", |hop| *hop == NextHop::Prohibit);
    sh("ip route del 198.51.100.0/24");
    mirror.until("route deleted", "198.51.100.1", |hop| *hop == NextHop::None);

    host.sh("ip link set net down");
    mirror.until("carrier lost", "10.6.0.9", |hop| *hop == NextHop::None);
    host.sh("ip link set net up");
    mirror.until("carrier back", "10.6.0.9", |hop| {
        matches!(hop, NextHop::OnLink { .. })
    });

    sh("ip route add 203.0.113.0/24 via 10.6.0.2");
    mirror.until("gateway", "203.0.113.1", leads_to(PEER_MAC));
    sh("ip link set n6 down");
    mirror.until("link down", "203.0.113.1", |hop| *hop == NextHop::None);
    sh("ip link set n6 up");
    mirror.until("link up", "10.6.0.9", |hop| {
        matches!(hop, NextHop::OnLink { .. })
    });
    // The kernel has dropped it with the link, without a word.
    mirror.until("route lost", "203.0.113.1", |hop| *hop == NextHop::None);
    let kernel = mirror.model.kernel();
    assert!(
        !kernel
            .all_routes()
            .any(|route| route.prefix.to_string() == "203.0.113.0/24")
    );
}

#[test]
fn the_chosen_next_hop_is_the_kernels() {
    let host = cable();
    sh(&format!(
        "ip link add n6b type veth peer name netb netns {}",
        host.path()
    ));
    host.sh("ip link set netb up");
    // A table of its own, so that both links may be used; for `ip route get` it replaces main.
    sh("ip addr add 10.60.0.1/24 dev n6b
        ip link set n6b up
        ip rule add pref 100 lookup 100
        ip route add 10.6.0.0/24 dev n6 table 100
        ip route add 10.60.0.0/24 dev n6b table 100
        ip route add default via 10.6.0.2 table 100
        ip route add 192.0.2.0/24 via 10.60.0.2 table 100
        ip route add 192.0.2.64/26 via 10.6.0.3 metric 5 table 100
        ip route add 192.0.2.64/26 via 10.60.0.3 metric 10 table 100
        ip route add 192.0.2.128/25 table 100 nexthop via 10.60.0.4 dev n6b
        ip route add 192.88.99.0/24 table 100 nexthop via 10.60.0.4 dev n6b nexthop via 10.6.0.4
        ip nexthop add id 1 via 10.6.0.5 dev n6
        ip route add 203.0.113.0/24 nhid 1 table 100
        ip route add unreachable 203.0.113.128/25 table 100
        ip route add throw 198.18.0.0/15 table 100
        for i in 2 3 4 5 6; do
            ip neigh add 10.6.0.$i lladdr 02:00:00:00:06:0$i nud permanent dev n6
            ip neigh add 10.60.0.$i lladdr 02:00:00:00:60:0$i nud permanent dev n6b
        done");
    let mut mirror = Mirror::of(&["n6", "n6b"], 100);
    mirror.until("start", "198.51.100.1", |hop| {
        matches!(hop, NextHop::Resolved { .. })
    });
    let compare = |mirror: &Mirror| {
        let destinations = [
            "198.51.100.1",
            "192.0.2.1",
            "192.0.2.65",
            "192.0.2.129",
            "203.0.113.1",
            "10.6.0.3",
            "10.60.0.6",
        ];
        for to in destinations {
            let said = sh(&format!("ip -o route get {to}"));
            let word = |key| {
                let mut words = said.split_whitespace();
                words.find(|word| *word == key).and_then(|_| words.next())
            };
            let gateway = ip(word("via").unwrap_or(to));
            let device = ifindex(word("dev").unwrap());
            let hop = mirror.tables.resolve(0, ip(to));
            let NextHop::Resolved { ifindex, addr, .. } = hop else {
                panic!("{to}: {hop:?}, the kernel says {said}")
            };
            assert_eq!(
                (ifindex, addr),
                (device, gateway),
                "{to}, the kernel says {said}"
            );
        }
    };
    compare(&mirror);
    sh("ip nexthop replace id 1 via 10.6.0.6 dev n6");
    let sixth = Mac([2, 0, 0, 0, 6, 6]);
    mirror.until("next hop object replaced", "203.0.113.1", leads_to(sixth));
    mirror.until("unreachable", "203.0.113.129", |hop| {
        *hop == NextHop::Prohibit
    });
    mirror.until("throw", "198.18.0.1", |hop| *hop == NextHop::None);
    sh("ip route del 192.0.2.64/26 metric 5 table 100");
    mirror.until(
        "the lower metric gone",
        "192.0.2.65",
        |hop| matches!(hop, NextHop::Resolved { addr, .. } if *addr == ip("10.60.0.3")),
    );
    compare(&mirror);
    mirror.until("the first of two ways", "192.88.99.1", by("10.60.0.4"));
    host.sh("ip link set netb down");
    mirror.until("the second", "192.88.99.1", by("10.6.0.4"));
    sh("ip nexthop del id 1");
    mirror.until(
        "next hop object deleted",
        "203.0.113.1",
        |hop| matches!(hop, NextHop::Resolved { addr, .. } if *addr == ip("10.6.0.2")),
    );
}

#[test]
fn a_gateway_stays_resolved_without_traffic() {
    let host = cable();
    sh("ip route add default via 10.6.0.2");
    let mut mirror = Mirror::start();
    mirror.until("resolved", "198.51.100.1", leads_to(PEER_MAC));
    assert!(sh("ip neigh show 10.6.0.2 dev n6").contains("managed"));

    host.sh("ip link set net address 02:00:00:00:00:99");
    // Stands for the ARP that a machine sends when its address moves.
    host.sh("ping -c 1 -W 5 10.6.0.1");
    mirror.until(
        "gateway moved",
        "198.51.100.1",
        leads_to(Mac([2, 0, 0, 0, 0, 0x99])),
    );

    drop(mirror);
    assert!(
        !sh("ip neigh show 10.6.0.2 dev n6").contains("managed"),
        "nothing is left behind"
    );
}

#[test]
fn a_gateway_that_is_not_needed_is_released() {
    let host = cable();
    host.sh("ip addr add 10.7.0.2/32 dev net");
    sh("ip route add default via 10.7.0.2 dev n6 onlink");
    let mut mirror = Mirror::start();
    mirror.until("resolved", "198.51.100.1", leads_to(PEER_MAC));
    let managed = || sh("ip neigh show 10.7.0.2 dev n6").contains("managed");
    assert!(managed());
    sh("ip route del default");
    mirror.until("route deleted", "198.51.100.1", |hop| *hop == NextHop::None);
    wait_for("the mark to go", || !managed());
}

#[test]
fn a_peer_is_resolved_before_its_first_packet() {
    let _host = cable();
    let mut mirror = Mirror::start();
    let peer = Peer {
        remote: "10.6.0.2".parse().unwrap(),
        local: "10.6.0.1".parse().unwrap(),
        udp: false,
    };
    mirror.tables.add_peer(peer);
    // On N6 only because the test has one cable.
    mirror.until("neighbour", "10.6.0.2", leads_to(PEER_MAC));
    assert!(
        mirror
            .tables
            .peer(peer)
            .is_some_and(|hop| leads_to(PEER_MAC)(&hop))
    );
    drop(mirror);
    assert!(
        !sh("ip neigh show 10.6.0.2 dev n6").contains("managed"),
        "nothing is left behind"
    );
}

#[test]
fn a_gateway_that_does_not_answer_is_failed_until_it_does() {
    let host = cable();
    wait_for_ipv6(&host);
    host.sh("ip addr del 10.6.0.2/24 dev net
             ip addr del 2001:db8:6::2/64 dev net");
    sh("ip route add default via 10.6.0.2
        ip -6 route add default via 2001:db8:6::2");
    let mut mirror = Mirror::start();
    for (gateway, behind) in GATEWAYS {
        mirror.until("no answer", behind, |hop| *hop == NextHop::Failed);
        // Each second, and no packet takes the slow path for that.
        for state in ["INCOMPLETE", "FAILED"] {
            wait_for(state, || entry(gateway).contains(state));
            mirror.settle();
            assert_eq!(mirror.tables.resolve(0, ip(behind)), NextHop::Failed);
        }
    }
    host.sh("ip addr add 10.6.0.2/24 dev net
             ip addr add 2001:db8:6::2/64 dev net nodad");
    for (_, behind) in GATEWAYS {
        mirror.until("an answer", behind, leads_to(PEER_MAC));
    }
}

/// Neighbour entry of the kernel, as `ip` shows it.
fn entry(addr: &str) -> String {
    sh(&format!("ip -d neigh show {addr} dev n6 nud all"))
}

/// Gateways of both families, and a destination behind each.
const GATEWAYS: [(&str, &str); 2] = [
    ("10.6.0.2", "198.51.100.1"),
    ("2001:db8:6::2", "2001:db8:99::1"),
];

/// The address that operators give it is nobody's: a kernel that asks would find out.
#[test]
fn a_static_neighbour_is_not_erased() {
    let host = cable();
    wait_for_ipv6(&host);
    sh("ip route add default via 10.6.0.2
        ip -6 route add default via 2001:db8:6::2");
    let mut mirror = Mirror::start();
    let other = Mac([2, 0, 0, 0, 0, 0x77]);
    for (gateway, behind) in GATEWAYS {
        for state in ["permanent", "noarp"] {
            let has = |word: &str| entry(gateway).contains(word);
            let is_fixed = || has(&state.to_uppercase()) && !has("managed");
            mirror.until("resolved", behind, leads_to(PEER_MAC));
            mirror.settle();
            assert!(has("managed"), "{}", entry(gateway));

            let set = format!("neigh replace {gateway} dev n6 lladdr");
            sh(&format!("ip {set} 02:00:00:00:00:77 nud {state}"));
            mirror.until("set by the operator", behind, leads_to(other));
            mirror.settle();
            assert!(is_fixed(), "{}", entry(gateway));

            sh(&format!("ip {set} 02:00:00:00:00:20 nud stale"));
            mirror.until("made an ordinary one", behind, leads_to(PEER_MAC));
            wait_for("it to be kept again", || has("managed"));

            sh(&format!("ip {set} 02:00:00:00:00:77 nud {state}"));
            mirror.until("set once more", behind, leads_to(other));
            mirror.settle();
            assert!(is_fixed(), "{}", entry(gateway));
            sh(&format!("ip neigh del {gateway} dev n6"));
            mirror.until("deleted", behind, leads_to(PEER_MAC));
            mirror.settle();
            assert!(has("managed"), "{}", entry(gateway));
        }
        sh(&format!(
            "ip neigh replace {gateway} dev n6 lladdr 02:00:00:00:00:77 nud permanent"
        ));
    }
    drop(mirror);
    for (gateway, _) in GATEWAYS {
        let left = entry(gateway);
        assert!(left.contains("00:77 PERMANENT"), "after the end: {left}");
    }
}

#[test]
fn a_static_neighbour_that_was_there_before_is_let_be() {
    let host = cable();
    wait_for_ipv6(&host);
    for (gateway, _) in GATEWAYS {
        sh(&format!(
            "ip neigh add {gateway} dev n6 lladdr 02:00:00:00:00:77 nud permanent"
        ));
    }
    let (sender, changes) = mpsc::channel();
    let netlink = Netlink::start(move |change| {
        let _ = sender.send(change);
    })
    .unwrap();
    // As a model would that has not heard of them.
    for (addr, _) in GATEWAYS {
        let (ifindex, addr) = (ifindex("n6"), ip(addr));
        netlink.request(Request::Keep { ifindex, addr });
        netlink.request(Request::Release { ifindex, addr });
        netlink.request(Request::Keep { ifindex, addr });
    }
    netlink.request(Request::DumpRoutes);
    while !matches!(changes.recv_timeout(PATIENCE), Ok(KernelChange::Routes(_))) {}
    let all_left = || {
        let entries = GATEWAYS.map(|(gateway, _)| entry(gateway));
        entries
            .iter()
            .all(|entry| entry.contains("00:77 PERMANENT"))
    };
    assert!(all_left());
    drop(netlink);
    assert!(all_left(), "after the end");
}

/// An operator and we change a neighbour at the same time, again and again.
#[test]
fn a_static_neighbour_that_comes_between_look_and_request_is_put_back() {
    const ROUNDS: usize = 20;
    let host = cable();
    wait_for_ipv6(&host);
    let (sender, changes) = mpsc::channel();
    let netlink = Netlink::start(move |change| {
        let _ = sender.send(change);
    })
    .unwrap();
    let n6 = ifindex("n6");
    for (gateway, _) in GATEWAYS {
        for _ in 0..ROUNDS {
            let operator = std::thread::spawn(move || {
                let set = format!("neigh replace {gateway} dev n6 lladdr 02:00:00:00:00");
                let line = format!("{set}:20 nud stale\n{set}:77 nud permanent\n");
                sh(&format!("ip -batch - <<'END'\n{}END", line.repeat(50)));
            });
            while !operator.is_finished() {
                let (ifindex, addr) = (n6, ip(gateway));
                netlink.request(Request::Keep { ifindex, addr });
                netlink.request(Request::Release { ifindex, addr });
                netlink.request(Request::DumpRoutes);
                while !matches!(changes.recv_timeout(PATIENCE), Ok(KernelChange::Routes(_))) {}
            }
            operator.join().unwrap();
            let left = entry(gateway);
            assert!(left.contains("00:77 PERMANENT"), "{left}");
        }
    }
}

#[test]
fn lost_notifications_are_made_good() {
    let _host = cable();
    let (sender, changes) = mpsc::sync_channel(0);
    let first = std::thread::spawn(move || changes.recv().map(|_| changes).unwrap());
    let netlink = Netlink::start(move |change| {
        let _ = sender.send(change);
    })
    .unwrap();
    let changes = first.join().unwrap();
    // While nobody listens the kernel must say more than it can hold for us.
    sh("for i in $(seq 0 250); do for j in $(seq 0 250); do
            echo route replace 11.$i.$j.0/24 via 10.6.0.2
        done; done | ip -batch -
        ip route add 203.0.113.0/24 via 10.6.0.3");
    let since = Instant::now();
    let all = loop {
        match changes
            .recv_timeout(PATIENCE.saturating_sub(since.elapsed()))
            .unwrap()
        {
            KernelChange::All(all) => break all,
            _ => continue,
        }
    };
    assert!(
        all.routes
            .iter()
            .any(|route| route.prefix.to_string() == "203.0.113.0/24")
    );
    assert!(all.routes.len() > 63_000);
    drop(changes);
    drop(netlink);
}

#[test]
fn requests_for_what_is_gone_do_no_harm() {
    let _host = cable();
    let mut mirror = Mirror::start();
    for addr in ["10.6.0.2", "2001:db8:6::2"] {
        mirror.netlink.request(Request::Keep {
            ifindex: 9999,
            addr: ip(addr),
        });
        mirror.netlink.request(Request::Release {
            ifindex: 9999,
            addr: ip(addr),
        });
        mirror.netlink.request(Request::Release {
            ifindex: ifindex("n6"),
            addr: ip(addr),
        });
    }
    sh("ip route add 198.51.100.0/24 via 10.6.0.2");
    mirror.until("it goes on", "198.51.100.1", leads_to(PEER_MAC));
}
