//! The next-hop model against a slow, obvious reading of the same kernel state.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code)] // shared with tests that need more of it
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use compiled::{NiId, PolicyId};
use ipnet::IpNet;
use nexthop::testing::recorder::Recorder;
use nexthop::{
    Address, Config, Fallback, Family, HowAdded, KernelChange, L2, Link, Mac, Neighbour,
    NetworkInstance, NextHop, NextHops, Peer, Policy, PolicyState, Port, Request, Route, RouteHop,
    RouteKind, Snapshot, TABLE_MAIN, Vlan, Way,
};
use proptest::prelude::*;

const N3: u32 = 3;
const N6: u32 = 6;
/// VLAN 60 on N6.
const N6_VLAN: u32 = 60;
/// No data port.
const ETH0: u32 = 1;
const LINKS: [u32; 4] = [N3, N6, N6_VLAN, ETH0];

/// Uses the main table through N6.
const INTERNET: u16 = 0;
/// Has a table of its own.
const CORPORATE: u16 = 1;
const TABLE_CORPORATE: u32 = 100;

fn config() -> Config {
    let ni = |id, table| NetworkInstance {
        id: NiId(id),
        slot: 1,
        table,
    };
    Config {
        ports: vec![
            Port {
                slot: 0,
                name: format!("if{N3}"),
                ifindex: N3,
            },
            Port {
                slot: 1,
                name: format!("if{N6}"),
                ifindex: N6,
            },
        ],
        network_instances: vec![ni(INTERNET, TABLE_MAIN), ni(CORPORATE, TABLE_CORPORATE)],
        policies: vec![],
        n3_table: TABLE_MAIN,
    }
}

/// With one policy, for each network instance.
fn steering(way: Way, fallback: Fallback) -> Config {
    Config {
        policies: vec![Policy { way, fallback }],
        ..config()
    }
}

fn link(ifindex: u32) -> Link {
    let vlan = (ifindex == N6_VLAN).then_some(Vlan {
        parent: N6,
        id: 60,
        tpid: 0x8100,
    });
    Link {
        ifindex,
        name: format!("if{ifindex}"),
        mac: Some(Mac([2, 0, 0, 0, 0, ifindex as u8])),
        mtu: 1500 + ifindex,
        up: true,
        carrier: true,
        vlan,
    }
}

fn mac(last: u8) -> Mac {
    Mac([2, 0, 0, 0, 1, last])
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn route(table: u32, prefix: &str, ifindex: u32, gateway: Option<&str>) -> Route {
    Route {
        table,
        prefix: net(prefix),
        kind: RouteKind::Unicast,
        metric: 0,
        mtu: None,
        hops: vec![RouteHop {
            ifindex,
            gateway: gateway.map(ip),
        }],
    }
}

fn neighbour(ifindex: u32, addr: &str, last: u8) -> Neighbour {
    Neighbour {
        ifindex,
        addr: ip(addr),
        mac: Some(mac(last)),
        is_static: false,
        is_failed: false,
    }
}

fn resolved(ifindex: u32, addr: &str, last: u8) -> NextHop {
    let (port, vlan) = match ifindex {
        N3 => (0, None),
        N6 => (1, None),
        N6_VLAN => (1, link(N6_VLAN).vlan),
        _ => panic!("no port"),
    };
    let l2 = L2::new(mac(last), link(ifindex).mac.unwrap(), vlan);
    NextHop::Resolved {
        port,
        ifindex,
        mtu: 1500 + ifindex as u16,
        l2,
        addr: ip(addr),
    }
}

/// A host with an ordinary set-up: connected N3 and N6, default route through N6.
fn ordinary() -> Snapshot {
    Snapshot {
        links: LINKS.map(link).into(),
        addresses: vec![
            Address {
                ifindex: N3,
                net: net("10.3.0.1/24"),
            },
            Address {
                ifindex: N6,
                net: net("10.6.0.1/24"),
            },
        ],
        routes: vec![
            route(TABLE_MAIN, "10.3.0.0/24", N3, None),
            route(TABLE_MAIN, "10.6.0.0/24", N6, None),
            route(TABLE_MAIN, "192.168.1.0/24", ETH0, None),
            route(TABLE_MAIN, "0.0.0.0/0", N6, Some("10.6.0.254")),
        ],
        neighbours: vec![neighbour(N6, "10.6.0.254", 254)],
    }
}

struct Bench {
    model: NextHops,
    tables: Recorder,
    requests: Vec<Request>,
}

impl Bench {
    fn new(all: Snapshot) -> Self {
        Self::of(config(), all)
    }

    fn of(config: Config, all: Snapshot) -> Self {
        let mut bench = Self {
            model: NextHops::new(config),
            tables: Recorder::default(),
            requests: vec![],
        };
        bench.hear([KernelChange::All(Box::new(all))]);
        bench
    }

    fn hear(&mut self, changes: impl IntoIterator<Item = KernelChange>) {
        changes
            .into_iter()
            .for_each(|change| self.model.apply(change));
        self.reconcile();
    }

    fn reconcile(&mut self) {
        self.requests.clear();
        self.model.reconcile(&mut self.tables, &mut self.requests);
        self.tables.assert_no_leak();
    }

    fn to(&self, destination: &str) -> NextHop {
        self.tables.resolve(INTERNET, ip(destination))
    }
}

/// The routes of the policy for packets of the first network instance.
fn by_policy(bench: &Bench, destination: &str) -> NextHop {
    let routes = PolicyId(0).routes_for(NiId(INTERNET), 2);
    bench.tables.resolve(routes.0, ip(destination))
}

fn states(bench: &Bench) -> [PolicyState; 2] {
    bench
        .model
        .policy_state(PolicyId(0), NiId(INTERNET))
        .unwrap()
}

fn hops(hops: &[&str], slot: Option<u32>) -> Way {
    Way::NextHops {
        hops: hops.iter().map(|hop| ip(hop)).collect(),
        slot,
    }
}

/// The edge is another neighbour on N6.
const EDGE: &str = "10.6.0.9";

fn with_edge() -> Snapshot {
    let mut all = ordinary();
    all.neighbours.push(neighbour(N6, EDGE, 9));
    all
}

fn edge(is_there: bool) -> KernelChange {
    KernelChange::Neighbour(Neighbour {
        mac: is_there.then_some(mac(9)),
        is_failed: !is_there,
        ..neighbour(N6, EDGE, 9)
    })
}

#[test]
fn a_policy_leads_all_but_local_packets_to_its_next_hop() {
    for slot in [None, Some(1)] {
        let bench = Bench::of(steering(hops(&[EDGE], slot), Fallback::Routes), with_edge());
        let to_edge = resolved(N6, EDGE, 9);
        for to in ["198.51.100.7", "10.6.0.7", "192.168.1.1"] {
            assert_eq!(by_policy(&bench, to), to_edge, "{to}");
        }
        assert_eq!(bench.to("198.51.100.7"), resolved(N6, "10.6.0.254", 254));
        for own in ["10.6.0.1", "10.3.0.1", "127.0.0.1"] {
            assert_eq!(by_policy(&bench, own), NextHop::Local, "{own}");
        }
        assert_eq!(by_policy(&bench, "239.1.2.3"), NextHop::Prohibit);
        assert_eq!(by_policy(&bench, "2001:db8::1"), NextHop::None);
        assert_eq!(states(&bench), [PolicyState::InUse, PolicyState::NoRoute]);
    }
}

#[test]
fn packets_go_the_fallback_while_the_next_hop_does_not_answer_and_it_is_asked_for() {
    let otherwise = [
        (Fallback::Routes, resolved(N6, "10.6.0.254", 254)),
        (Fallback::Drop, NextHop::Closed),
    ];
    for (fallback, otherwise) in otherwise {
        let mut bench = Bench::of(steering(hops(&[EDGE], None), fallback), ordinary());
        let keep = Request::Keep {
            ifindex: N6,
            addr: ip(EDGE),
        };
        assert!(bench.requests.contains(&keep), "{:?}", bench.requests);
        let to = "198.51.100.7";
        assert_eq!(by_policy(&bench, to), otherwise, "not resolved yet");
        assert_eq!(states(&bench)[0], PolicyState::Unreachable);
        for _ in 0..2 {
            bench.hear([edge(true)]);
            assert_eq!(by_policy(&bench, to), resolved(N6, EDGE, 9));
            assert_eq!(states(&bench)[0], PolicyState::InUse);
            bench.hear([edge(false)]);
            assert_eq!(by_policy(&bench, to), otherwise);
            assert_eq!(by_policy(&bench, "10.6.0.1"), NextHop::Local);
        }
        bench.hear([edge(true)]);
        let mut unplugged = link(N6);
        unplugged.carrier = false;
        bench.hear([KernelChange::Link(unplugged)]);
        assert_ne!(by_policy(&bench, to), resolved(N6, EDGE, 9));
        assert_eq!(states(&bench)[0], PolicyState::Unreachable);
        assert_eq!(bench.to(to), NextHop::None, "no policy");
    }
}

#[test]
fn a_next_hop_that_is_on_no_link_of_ours_leads_nowhere() {
    for hop in ["203.0.113.9", "10.6.0.1"] {
        let bench = Bench::of(steering(hops(&[hop], None), Fallback::Drop), with_edge());
        assert_eq!(by_policy(&bench, "198.51.100.7"), NextHop::Closed, "{hop}");
        assert_eq!(states(&bench)[0], PolicyState::NoRoute);
    }
}

#[test]
fn a_policy_may_have_a_table() {
    const TABLE: u32 = 200;
    let mut all = with_edge();
    let throw = Route {
        kind: RouteKind::Throw,
        hops: vec![],
        ..route(TABLE, "203.0.113.0/25", 0, None)
    };
    let blackhole = Route {
        kind: RouteKind::Prohibit,
        hops: vec![],
        ..route(TABLE, "203.0.113.128/28", 0, None)
    };
    all.routes.extend([
        route(TABLE, "203.0.113.0/24", N6, Some(EDGE)),
        throw,
        blackhole,
    ]);
    for fallback in [Fallback::Routes, Fallback::Drop] {
        let mut bench = Bench::of(steering(Way::Table(TABLE), fallback), all.clone());
        let otherwise = match fallback {
            Fallback::Routes => resolved(N6, "10.6.0.254", 254),
            Fallback::Drop => NextHop::Closed,
        };
        assert_eq!(by_policy(&bench, "203.0.113.200"), resolved(N6, EDGE, 9));
        assert_eq!(by_policy(&bench, "203.0.113.129"), NextHop::Prohibit);
        assert_eq!(by_policy(&bench, "203.0.113.1"), otherwise, "throw");
        assert_eq!(by_policy(&bench, "198.51.100.7"), otherwise, "no route");
        // On the link, and told there.
        if fallback == Fallback::Routes {
            assert_eq!(by_policy(&bench, EDGE), resolved(N6, EDGE, 9));
        }
        assert_eq!(states(&bench)[0], PolicyState::InUse);
        bench.hear([KernelChange::Route(
            route(TABLE, "198.51.100.0/24", ETH0, Some("192.168.1.1")),
            HowAdded::Beside,
        )]);
        assert_eq!(by_policy(&bench, "198.51.100.7"), otherwise, "no port");
        assert_eq!(states(&bench)[0], PolicyState::InPart);
        bench.hear([edge(false)]);
        assert_eq!(by_policy(&bench, "203.0.113.200"), otherwise);
        assert_eq!(states(&bench)[0], PolicyState::Unreachable);
    }
}

/// By those routes of the main table that lead out of the other interface, whatever their metric.
#[test]
fn a_policy_may_have_an_interface() {
    let mut all = ordinary();
    let worse = Route {
        metric: 500,
        ..route(TABLE_MAIN, "0.0.0.0/0", N3, Some("10.3.0.254"))
    };
    all.routes.push(worse);
    all.neighbours.push(neighbour(N3, "10.3.0.254", 3));
    let way = Way::Interface { slot: 0 };
    let mut bench = Bench::of(steering(way, Fallback::Routes), all);
    assert_eq!(
        by_policy(&bench, "198.51.100.7"),
        resolved(N3, "10.3.0.254", 3)
    );
    assert_eq!(bench.to("198.51.100.7"), resolved(N6, "10.6.0.254", 254));
    let mut down = link(N3);
    down.up = false;
    bench.hear([KernelChange::Link(down)]);
    assert_eq!(
        by_policy(&bench, "198.51.100.7"),
        resolved(N6, "10.6.0.254", 254)
    );
}

/// They lead to what is beside the UEs, such as a gateway; what else is in the pool, no UE has.
#[test]
fn routes_within_a_pool_stay_as_they_are() {
    let mut all = with_edge();
    let gateway = route(TABLE_MAIN, "10.60.0.1/32", N6, Some("10.6.0.254"));
    all.routes.push(gateway);
    let mut bench = Bench::of(steering(hops(&[EDGE], None), Fallback::Routes), ordinary());
    bench.tables.pools = vec![net("10.60.0.0/16")];
    bench.hear([KernelChange::All(Box::new(all))]);
    assert_eq!(
        by_policy(&bench, "10.60.0.1"),
        resolved(N6, "10.6.0.254", 254)
    );
    assert_eq!(by_policy(&bench, "10.60.0.2"), resolved(N6, EDGE, 9));
}

#[test]
fn as_many_policies_as_there_may_be_have_ways() {
    let one = steering(Way::Table(200), Fallback::Drop);
    let config = Config {
        policies: vec![one.policies[0].clone(); 255],
        ..one
    };
    let bench = Bench::of(config, with_edge());
    let state = |policy| bench.model.policy_state(PolicyId(policy), NiId(INTERNET));
    assert_eq!([state(0), state(254)], [Some([PolicyState::NoRoute; 2]); 2]);
    assert_eq!(state(255), None);
}

/// The FIB knows nothing of policies.
#[test]
fn a_policy_with_more_routes_than_fit_goes_its_fallback() {
    const TABLE: u32 = 200;
    let mut all = with_edge();
    let many = (0..40).map(|n| route(TABLE, &format!("203.0.{n}.0/24"), N6, Some(EDGE)));
    // Not alike, so that each is listed.
    let others = (0..40).map(|n| route(TABLE, &format!("203.0.{n}.0/25"), N6, None));
    all.routes.extend(many.chain(others));
    for (fallback, otherwise) in [
        (Fallback::Routes, resolved(N6, "10.6.0.254", 254)),
        (Fallback::Drop, NextHop::Closed),
    ] {
        let bench = Bench::of(steering(Way::Table(TABLE), fallback), all.clone());
        assert_eq!(by_policy(&bench, "203.0.7.200"), otherwise);
        assert_eq!(states(&bench)[0], PolicyState::TooMany);
    }
}

const ONLINK_N6: NextHop = NextHop::OnLink {
    port: 1,
    ifindex: N6,
    mtu: 1506,
};

#[test]
fn users_go_where_the_routes_lead_and_not_to_the_host() {
    let bench = Bench::new(ordinary());
    assert_eq!(bench.to("198.51.100.7"), resolved(N6, "10.6.0.254", 254));
    assert_eq!(bench.to("10.6.0.7"), ONLINK_N6);
    assert_eq!(bench.to("10.6.0.1"), NextHop::Local);
    assert_eq!(bench.to("10.3.0.1"), NextHop::Local);
    assert_eq!(bench.to("127.0.0.1"), NextHop::Local);
    assert_eq!(bench.to("239.1.2.3"), NextHop::Prohibit);
    assert_eq!(bench.to("255.255.255.255"), NextHop::Prohibit);
    assert_eq!(
        bench.to("10.3.0.7"),
        NextHop::Prohibit,
        "the radio network is not for users"
    );
    assert_eq!(
        bench.to("192.168.1.1"),
        NextHop::Prohibit,
        "nor is the management network"
    );
    assert_eq!(bench.to("fe80::1"), NextHop::Prohibit);
    assert_eq!(bench.to("ff02::1"), NextHop::Prohibit);
    assert_eq!(bench.to("2001:db8::1"), NextHop::None, "no IPv6 route");
}

#[test]
fn neighbours_come_change_and_go() {
    let mut bench = Bench::new(ordinary());
    bench.hear([KernelChange::Neighbour(neighbour(N6, "10.6.0.7", 7))]);
    assert_eq!(bench.to("10.6.0.7"), resolved(N6, "10.6.0.7", 7));
    bench.hear([KernelChange::Neighbour(neighbour(N6, "10.6.0.7", 8))]);
    assert_eq!(bench.to("10.6.0.7"), resolved(N6, "10.6.0.7", 8));
    let failed = Neighbour {
        mac: None,
        ..neighbour(N6, "10.6.0.7", 0)
    };
    bench.hear([KernelChange::Neighbour(failed)]);
    assert_eq!(bench.to("10.6.0.7"), ONLINK_N6);
    bench.hear([KernelChange::Neighbour(neighbour(N3, "10.6.0.7", 7))]);
    assert_eq!(
        bench.to("10.6.0.7"),
        ONLINK_N6,
        "a neighbour on another link"
    );
}

#[test]
fn a_gateway_is_kept_resolved_until_nothing_leads_to_it() {
    let mut bench = Bench::new(Snapshot {
        neighbours: vec![],
        ..ordinary()
    });
    let gateway = (N6, ip("10.6.0.254"));
    let keep = Request::Keep {
        ifindex: gateway.0,
        addr: gateway.1,
    };
    assert_eq!(bench.requests, [keep]);
    assert_eq!(
        bench.to("198.51.100.7"),
        NextHop::Unresolved {
            ifindex: N6,
            mtu: 1506
        }
    );

    bench.hear([KernelChange::Neighbour(neighbour(N6, "10.6.0.254", 1))]);
    assert_eq!(bench.to("198.51.100.7"), resolved(N6, "10.6.0.254", 1));
    assert_eq!(bench.requests, []);

    bench.hear([KernelChange::NeighbourGone {
        ifindex: gateway.0,
        addr: gateway.1,
    }]);
    assert_eq!(
        bench.requests,
        [keep],
        "the kernel forgot it, which it must not"
    );

    bench.hear([KernelChange::RouteGone(route(
        TABLE_MAIN,
        "0.0.0.0/0",
        N6,
        Some("10.6.0.254"),
    ))]);
    assert_eq!(
        bench.requests,
        [Request::Release {
            ifindex: gateway.0,
            addr: gateway.1
        }]
    );
    assert_eq!(bench.to("198.51.100.7"), NextHop::None);
}

/// Packets are lost under a name of their own, until it answers or has to be found anew.
#[test]
fn a_neighbour_that_does_not_answer_loses_packets_until_it_does() {
    let mut bench = Bench::new(Snapshot {
        neighbours: vec![],
        ..ordinary()
    });
    let unresolved = NextHop::Unresolved {
        ifindex: N6,
        mtu: 1506,
    };
    let answers = neighbour(N6, "10.6.0.254", 254);
    let failed = Neighbour {
        mac: None,
        is_failed: true,
        ..answers
    };
    let (ifindex, addr) = (failed.ifindex, failed.addr);
    let gone = KernelChange::NeighbourGone { ifindex, addr };
    assert_eq!(bench.to("198.51.100.7"), unresolved);
    assert!(!bench.model.is_resolved());
    for after in [KernelChange::Neighbour(answers), gone] {
        bench.hear([KernelChange::Neighbour(failed)]);
        assert_eq!(bench.to("198.51.100.7"), NextHop::Failed);
        assert!(bench.model.is_resolved(), "there is nothing to wait for");
        assert_eq!(bench.requests, [], "it is asked for as it is");
        bench.hear([after]);
        assert!(bench.to("198.51.100.7") != NextHop::Failed);
    }
    assert_eq!(bench.to("198.51.100.7"), unresolved);
    // On the link itself somebody's packet makes the kernel ask: nobody else would.
    bench.hear([KernelChange::Neighbour(Neighbour {
        addr: ip("10.6.0.7"),
        ..failed
    })]);
    assert_eq!(bench.to("10.6.0.7"), ONLINK_N6);
}

#[test]
fn a_neighbour_that_failed_before_it_was_needed_is_asked_for_first() {
    let failed = Neighbour {
        mac: None,
        is_failed: true,
        ..neighbour(N6, "10.6.0.254", 254)
    };
    let bench = Bench::new(Snapshot {
        neighbours: vec![failed],
        ..ordinary()
    });
    assert!(matches!(
        bench.to("198.51.100.7"),
        NextHop::Unresolved { .. }
    ));
    let (ifindex, addr) = (failed.ifindex, failed.addr);
    assert_eq!(bench.requests, [Request::Keep { ifindex, addr }]);
}

#[test]
fn a_static_neighbour_is_left_alone() {
    let gateway = Neighbour {
        is_static: true,
        ..neighbour(N6, "10.6.0.254", 254)
    };
    let mut bench = Bench::new(Snapshot {
        neighbours: vec![gateway],
        ..ordinary()
    });
    assert_eq!(bench.requests, []);
    let (ifindex, addr) = (gateway.ifindex, gateway.addr);
    bench.hear([KernelChange::NeighbourGone { ifindex, addr }]);
    assert_eq!(bench.requests, [Request::Keep { ifindex, addr }], "deleted");
    bench.hear([KernelChange::Neighbour(gateway)]);
    assert_eq!(bench.requests, [Request::Release { ifindex, addr }], "set");
    bench.hear([KernelChange::Neighbour(neighbour(N6, "10.6.0.254", 1))]);
    assert_eq!(
        bench.requests,
        [Request::Keep { ifindex, addr }],
        "made an ordinary one"
    );
}

#[test]
fn a_vlan_is_reached_through_its_parent_with_a_tag() {
    let mut all = ordinary();
    all.routes.push(route(
        TABLE_MAIN,
        "203.0.113.0/24",
        N6_VLAN,
        Some("10.60.0.254"),
    ));
    all.neighbours.push(neighbour(N6_VLAN, "10.60.0.254", 9));
    let bench = Bench::new(all);
    let hop = bench.to("203.0.113.1");
    assert_eq!(hop, resolved(N6_VLAN, "10.60.0.254", 9));
    let NextHop::Resolved { port, l2, .. } = hop else {
        panic!()
    };
    assert_eq!(port, 1);
    assert_eq!(
        l2.as_bytes(),
        [
            2, 0, 0, 0, 1, 9, 2, 0, 0, 0, 0, 60, 0x81, 0x00, 0, 60, 0x08, 0x00
        ]
    );
}

/// Its MTU matters to the first packet, which may come before all is brought up to date.
#[test]
fn a_new_peer_has_its_next_hop_at_once_and_one_that_has_gone_has_none() {
    let mut bench = Bench::new(ordinary());
    let peer = |host| Peer {
        udp: false,
        remote: ip(host),
        local: ip("10.3.0.1"),
    };
    let (comes, goes) = (peer("10.3.0.50"), peer("10.3.0.51"));
    bench.tables.add_peer(comes);
    bench.tables.add_peer(goes);
    bench.tables.remove_peer(goes);
    bench.model.take_peers(&mut bench.tables);
    let unresolved = NextHop::Unresolved {
        ifindex: N3,
        mtu: 1503,
    };
    assert_eq!(bench.tables.peer(comes), Some(unresolved));
    assert_eq!(bench.tables.peer(goes), None);
    bench.reconcile();
    bench.tables.assert_no_leak();
}

#[test]
fn peers_follow_routes_and_neighbours() {
    let mut bench = Bench::new(ordinary());
    let local = ip("10.3.0.1");
    let near = Peer {
        udp: false,
        remote: ip("10.3.0.50"),
        local,
    };
    let far = Peer {
        udp: false,
        remote: ip("10.99.0.50"),
        local,
    };
    bench.tables.add_peer(near);
    bench.tables.add_peer(far);
    bench.hear([KernelChange::Route(
        route(TABLE_MAIN, "10.99.0.0/16", N3, Some("10.3.0.254")),
        HowAdded::Beside,
    )]);
    let unresolved = Some(NextHop::Unresolved {
        ifindex: N3,
        mtu: 1503,
    });
    assert_eq!(bench.tables.peer(near), unresolved);
    assert_eq!(bench.tables.peer(far), unresolved);
    let keep = |addr| Request::Keep {
        ifindex: N3,
        addr: ip(addr),
    };
    assert_eq!(bench.requests, [keep("10.3.0.50"), keep("10.3.0.254")]);

    bench.hear([
        KernelChange::Neighbour(neighbour(N3, "10.3.0.50", 50)),
        KernelChange::Neighbour(neighbour(N3, "10.3.0.254", 54)),
    ]);
    assert_eq!(bench.tables.peer(near), Some(resolved(N3, "10.3.0.50", 50)));
    assert_eq!(bench.tables.peer(far), Some(resolved(N3, "10.3.0.254", 54)));

    bench.tables.remove_peer(near);
    bench.reconcile();
    assert_eq!(
        bench.requests,
        [Request::Release {
            ifindex: N3,
            addr: ip("10.3.0.50")
        }]
    );
    assert_eq!(bench.model.peers().count(), 1);
}

#[test]
fn a_link_without_carrier_has_no_route_and_one_that_is_down_no_say() {
    let mut all = ordinary();
    all.routes.push(Route {
        metric: 9,
        ..route(TABLE_MAIN, "10.6.0.0/24", N6_VLAN, None)
    });
    let mut bench = Bench::new(all);
    bench.hear([KernelChange::Link(Link {
        carrier: false,
        ..link(N6)
    })]);
    assert_eq!(bench.to("10.6.0.7"), NextHop::None);
    assert_eq!(
        bench.requests,
        [],
        "the kernel has dropped the neighbour by itself"
    );
    bench.hear([KernelChange::Link(Link {
        up: false,
        ..link(N6)
    })]);
    assert_eq!(
        bench.to("10.6.0.7"),
        NextHop::OnLink {
            port: 1,
            ifindex: N6_VLAN,
            mtu: 1560
        }
    );
    assert_eq!(
        bench.requests,
        [Request::DumpRoutes],
        "the kernel drops IPv4 routes silently"
    );
    bench.hear([KernelChange::Link(link(N6))]);
    assert_eq!(bench.to("10.6.0.7"), ONLINK_N6);
    assert_eq!(
        bench.requests,
        [Request::Keep {
            ifindex: N6,
            addr: ip("10.6.0.254")
        }]
    );
}

#[test]
fn more_routes_than_fit_leave_the_rest_to_the_fib() {
    let mut all = ordinary();
    for third in 0..100 {
        let prefix = format!("203.0.{third}.0/24");
        let gateway = format!("10.6.0.{}", third + 2);
        all.routes
            .push(route(TABLE_MAIN, &prefix, N6, Some(&gateway)));
    }
    let bench = Bench::new(all);
    assert_eq!(bench.tables.routes(INTERNET, Family::V4), 32);
    assert_eq!(bench.to("198.51.100.7"), NextHop::Fib);
    assert_eq!(
        bench.to("10.6.0.1"),
        NextHop::Local,
        "users stay away from the host"
    );
    assert_eq!(bench.to("10.3.0.1"), NextHop::Local);
}

#[test]
fn many_routes_to_one_gateway_are_one() {
    let mut all = ordinary();
    for third in 0..100 {
        let prefix = format!("203.0.{third}.0/24");
        all.routes
            .push(route(TABLE_MAIN, &prefix, N6, Some("10.6.0.254")));
    }
    let bench = Bench::new(all);
    assert_eq!(bench.to("203.0.50.1"), resolved(N6, "10.6.0.254", 254));
    assert!(bench.tables.routes(INTERNET, Family::V4) < 12);
}

#[test]
fn in_a_pool_a_route_is_listed_whatever_those_around_it_say() {
    let mut bench = Bench::new(ordinary());
    let before = bench.tables.routes(INTERNET, Family::V4);
    bench.tables.pools = vec![net("10.60.0.0/16")];
    for prefix in ["10.60.0.0/16", "10.60.0.1/32", "10.61.0.1/32"] {
        let same = route(TABLE_MAIN, prefix, N6, Some("10.6.0.254"));
        bench.hear([KernelChange::Route(same, HowAdded::Beside)]);
    }
    assert_eq!(bench.tables.routes(INTERNET, Family::V4), before + 1);
    assert_eq!(bench.to("10.60.0.1"), resolved(N6, "10.6.0.254", 254));
}

#[test]
fn of_equal_routes_the_first_counts() {
    let mut all = ordinary();
    all.routes
        .push(route(TABLE_MAIN, "0.0.0.0/0", N6, Some("10.6.0.253")));
    let mut bench = Bench::new(all);
    assert_eq!(bench.to("198.51.100.7"), resolved(N6, "10.6.0.254", 254));
    let third = route(TABLE_MAIN, "0.0.0.0/0", N6, Some("10.6.0.252"));
    bench.hear([KernelChange::Route(third, HowAdded::Beside)]);
    assert_eq!(
        bench.requests[0],
        Request::DumpRoutes,
        "before or behind the others?"
    );
}

#[test]
fn lack_of_room_is_made_good_once_there_is_room() {
    let mut bench = Bench::new(ordinary());
    bench.tables.full = true;
    bench.hear([
        KernelChange::Neighbour(neighbour(N6, "10.6.0.254", 1)),
        KernelChange::Neighbour(neighbour(N6, "10.6.0.7", 7)),
    ]);
    assert_eq!(
        bench.to("198.51.100.7"),
        resolved(N6, "10.6.0.254", 254),
        "the old state stays"
    );
    bench.tables.full = false;
    bench.reconcile();
    assert_eq!(bench.to("198.51.100.7"), resolved(N6, "10.6.0.254", 1));
    assert_eq!(bench.to("10.6.0.7"), resolved(N6, "10.6.0.7", 7));
}

#[test]
fn what_is_heard_again_changes_nothing() {
    let mut bench = Bench::new(ordinary());
    let stores = bench.tables.stores;
    bench.hear([
        KernelChange::All(Box::new(ordinary())),
        KernelChange::Route(ordinary().routes[0].clone(), HowAdded::Beside),
        KernelChange::Route(ordinary().routes[3].clone(), HowAdded::Replacing),
        KernelChange::Neighbour(ordinary().neighbours[0]),
        KernelChange::RouteGone(route(TABLE_MAIN, "198.18.0.0/15", N6, None)),
    ]);
    assert_eq!(bench.tables.stores, stores);
}

/// The kernel's own state, kept as plain lists.
#[derive(Default)]
struct Truth {
    links: BTreeMap<u32, Link>,
    addresses: Vec<Address>,
    routes: Vec<Route>,
    neighbours: BTreeMap<(u32, IpAddr), Neighbour>,
    peers: Vec<Peer>,
}

const PREFIXES: [&str; 20] = [
    "0.0.0.0/0",
    "10.0.0.0/8",
    "10.6.0.0/16",
    "10.6.0.0/24",
    "10.6.0.128/25",
    "10.6.0.7/32",
    "10.3.0.0/24",
    "224.0.1.0/24",
    "127.0.0.0/16",
    "128.0.0.0/1",
    "192.0.2.0/24",
    "192.0.2.64/26",
    "::/0",
    "2001:db8::/32",
    "2001:db8:6::/48",
    "2001:db8:6::/64",
    "2001:db8:6::7/128",
    "fe80::/64",
    "ff00::/8",
    "2000::/3",
];

const HOSTS: [&str; 18] = [
    "10.6.0.7",
    "10.6.0.130",
    "10.6.0.1",
    "10.6.1.1",
    "10.3.0.7",
    "10.3.0.1",
    "10.9.9.9",
    "192.0.2.1",
    "192.0.2.65",
    "198.51.100.1",
    "127.0.0.1",
    "224.0.1.1",
    "2001:db8:6::7",
    "2001:db8:6::1",
    "2001:db8:6:1::1",
    "2001:db8:7::1",
    "fe80::7",
    "3000::1",
];

impl Truth {
    /// One step of the world, and what the kernel says about it.
    fn step(
        &mut self,
        (op, a, b, c): (u8, u8, u8, u8),
        tables: &mut Recorder,
    ) -> Vec<KernelChange> {
        let host = ip(HOSTS[usize::from(a) % HOSTS.len()]);
        let ifindex = LINKS[usize::from(b) % LINKS.len()];
        match op % 12 {
            0 => self.set_link(Link {
                carrier: c % 3 != 0,
                up: c % 4 != 0,
                ..link(ifindex)
            }),
            1 => self.add_address(ifindex, host, c),
            2 if !self.addresses.is_empty() => {
                let gone = self
                    .addresses
                    .swap_remove(usize::from(a) % self.addresses.len());
                vec![KernelChange::AddressGone(gone)]
            }
            3..=5 => self.add_route(a, b, c),
            6 if !self.routes.is_empty() => {
                let gone = self.routes.swap_remove(usize::from(a) % self.routes.len());
                vec![KernelChange::RouteGone(gone)]
            }
            7 | 8 => {
                let mac = (c % 4 != 0).then_some(mac(c));
                let neighbour = Neighbour {
                    ifindex,
                    addr: host,
                    mac,
                    is_static: false,
                    is_failed: false,
                };
                self.neighbours.insert((ifindex, host), neighbour);
                vec![KernelChange::Neighbour(neighbour)]
            }
            9 => {
                self.neighbours.remove(&(ifindex, host));
                vec![KernelChange::NeighbourGone {
                    ifindex,
                    addr: host,
                }]
            }
            10 => {
                self.toggle_peer(host, tables);
                vec![]
            }
            _ => vec![],
        }
    }

    fn set_link(&mut self, link: Link) -> Vec<KernelChange> {
        if !link.up {
            // Silently, as the kernel does it for IPv4.
            self.routes.retain(|route| {
                route.hops.is_empty() || route.hops.iter().any(|hop| hop.ifindex != link.ifindex)
            });
        }
        self.links.insert(link.ifindex, link.clone());
        vec![KernelChange::Link(link)]
    }

    fn add_address(&mut self, ifindex: u32, host: IpAddr, c: u8) -> Vec<KernelChange> {
        let address = Address {
            ifindex,
            net: IpNet::new(host, c % 33).unwrap(),
        };
        if !self.addresses.contains(&address) {
            self.addresses.push(address);
        }
        vec![KernelChange::Address(address)]
    }

    fn add_route(&mut self, a: u8, b: u8, c: u8) -> Vec<KernelChange> {
        let prefix = net(PREFIXES[usize::from(a) % PREFIXES.len()]);
        let kinds = [
            RouteKind::Local,
            RouteKind::Broadcast,
            RouteKind::Prohibit,
            RouteKind::Throw,
            RouteKind::Unicast,
        ];
        let kind = kinds[usize::from(b / 4).min(4)];
        let hop = |n: u8| {
            let gateways = HOSTS
                .iter()
                .map(|host| ip(host))
                .filter(|g| g.is_ipv4() == prefix.addr().is_ipv4());
            let gateways: Vec<IpAddr> = gateways.collect();
            let gateway = (!n.is_multiple_of(3)).then(|| gateways[usize::from(n) % gateways.len()]);
            RouteHop {
                ifindex: LINKS[usize::from(n) % LINKS.len()],
                gateway,
            }
        };
        let hops = match kind {
            RouteKind::Unicast if c.is_multiple_of(5) => vec![hop(c), hop(c + 1)],
            RouteKind::Unicast => vec![hop(c)],
            _ => vec![],
        };
        let route = Route {
            table: if b.is_multiple_of(3) {
                TABLE_CORPORATE
            } else {
                TABLE_MAIN
            },
            prefix,
            kind,
            metric: u32::from(c % 3),
            mtu: c.is_multiple_of(7).then_some(1400),
            hops,
        };
        let same = |other: &Route| {
            (other.table, other.prefix, other.metric) == (route.table, route.prefix, route.metric)
        };
        // Without links the kernel takes no route; nor over links that are down.
        let down = |hop: &RouteHop| !self.links.get(&hop.ifindex).is_some_and(|link| link.up);
        if route.hops.iter().any(down) {
            return vec![];
        }
        match self.routes.iter_mut().find(|other| same(other)) {
            Some(old) => {
                *old = route.clone();
                vec![KernelChange::Route(route, HowAdded::Replacing)]
            }
            None => {
                self.routes.push(route.clone());
                vec![KernelChange::Route(route, HowAdded::Beside)]
            }
        }
    }

    fn toggle_peer(&mut self, host: IpAddr, tables: &mut Recorder) {
        let local = if host.is_ipv4() {
            "10.3.0.1"
        } else {
            "2001:db8:3::1"
        };
        let peer = Peer {
            remote: host,
            local: ip(local),
            udp: false,
        };
        match self.peers.iter().position(|other| *other == peer) {
            Some(at) => {
                self.peers.swap_remove(at);
                tables.remove_peer(peer);
            }
            None => {
                self.peers.push(peer);
                tables.add_peer(peer);
            }
        }
    }

    /// Where a packet goes, by the book.
    fn resolve(&self, ni: Option<u16>, to: IpAddr) -> NextHop {
        let blocks = [
            ("0.0.0.0/8", NextHop::Prohibit),
            ("127.0.0.0/8", NextHop::Local),
            ("224.0.0.0/3", NextHop::Prohibit),
            ("::/127", NextHop::Local),
            ("fe80::/10", NextHop::Prohibit),
            ("ff00::/8", NextHop::Prohibit),
        ];
        if let Some((_, hop)) = blocks.iter().find(|(block, _)| net(block).contains(&to)) {
            return *hop;
        }
        if self
            .addresses
            .iter()
            .any(|address| address.net.addr() == to)
        {
            return NextHop::Local;
        }
        let matching = || {
            self.routes
                .iter()
                .filter(|route| route.prefix.contains(&to))
        };
        // Shortest first, and of equals the local one last: the last counts.
        let mut here: Vec<&Route> = matching()
            .filter(|route| matches!(route.kind, RouteKind::Local | RouteKind::Broadcast))
            .filter(|route| {
                !blocks
                    .iter()
                    .any(|(block, _)| net(block).contains(&route.prefix))
            })
            .collect();
        here.sort_by_key(|route| (route.prefix.prefix_len(), route.kind == RouteKind::Local));
        if let Some(route) = here.last() {
            let local = route.kind == RouteKind::Local;
            return if local {
                NextHop::Local
            } else {
                NextHop::Prohibit
            };
        }
        let table = if ni == Some(CORPORATE) {
            TABLE_CORPORATE
        } else {
            TABLE_MAIN
        };
        let up = |hop: &RouteHop| self.links.get(&hop.ifindex).is_some_and(|link| link.up);
        let usable = |hop: &&RouteHop| self.links[&hop.ifindex].usable();
        let mut candidates: Vec<&Route> = matching()
            .filter(|route| route.table == table)
            .filter(|route| !matches!(route.kind, RouteKind::Local | RouteKind::Broadcast))
            .filter(|route| route.kind != RouteKind::Unicast || route.hops.iter().any(up))
            .collect();
        candidates.sort_by_key(|route| (128 - route.prefix.prefix_len(), route.metric));
        let Some(route) = candidates.first() else {
            return NextHop::None;
        };
        match route.kind {
            RouteKind::Prohibit => return NextHop::Prohibit,
            RouteKind::Throw => return NextHop::None,
            _ => {}
        }
        let ways = || route.hops.iter().filter(|hop| up(hop));
        let hop = ways().find(usable).or_else(|| ways().next()).unwrap();
        self.by_hop(ni, route, hop, to)
    }

    fn by_hop(&self, ni: Option<u16>, route: &Route, hop: &RouteHop, to: IpAddr) -> NextHop {
        let ifindex = hop.ifindex;
        if ni == Some(INTERNET) && ifindex != N6 && ifindex != N6_VLAN {
            return NextHop::Prohibit;
        }
        let link = &self.links[&ifindex];
        if !link.usable() {
            return NextHop::None;
        }
        let mtu = route.mtu.unwrap_or(9999).min(link.mtu) as u16;
        if ifindex == ETH0 {
            return NextHop::Unresolved { ifindex, mtu };
        }
        let port = u32::from(ifindex != N3);
        let addr = hop.gateway.unwrap_or(to);
        match self.neighbours.get(&(ifindex, addr)).and_then(|n| n.mac) {
            Some(mac) => {
                let l2 = L2::new(mac, link.mac.unwrap(), link.vlan);
                NextHop::Resolved {
                    port,
                    ifindex,
                    mtu,
                    l2,
                    addr,
                }
            }
            None if hop.gateway.is_none() && ni.is_some() => NextHop::OnLink { port, ifindex, mtu },
            None => NextHop::Unresolved { ifindex, mtu },
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Whatever the kernel goes through, packets go where the longest match over its state says.
    #[test]
    fn packets_follow_the_kernel(
        steps in prop::collection::vec((any::<u8>(), any::<u8>(), 0u8..32, 0u8..250), 1..120),
        batch in 1usize..6,
        last in any::<u128>(),
    ) {
        let mut truth = Truth::default();
        let mut bench = Bench::new(Snapshot::default());
        for ifindex in LINKS {
            bench.hear(truth.set_link(link(ifindex)));
        }
        for steps in steps.chunks(batch) {
            for step in steps {
                for change in truth.step(*step, &mut bench.tables) {
                    bench.model.apply(change);
                }
            }
            bench.reconcile();
            if bench.requests.contains(&Request::DumpRoutes) {
                bench.hear([KernelChange::Routes(truth.routes.clone())]);
            }
            let random = [
                IpAddr::from(Ipv4Addr::from(last as u32)),
                IpAddr::from(Ipv6Addr::from(last)),
            ];
            for to in HOSTS.iter().map(|host| ip(host)).chain(random) {
                for ni in [INTERNET, CORPORATE] {
                    prop_assert_eq!(
                        bench.tables.resolve(ni, to),
                        truth.resolve(Some(ni), to),
                        "{} in {}", to, ni
                    );
                }
            }
            for peer in &truth.peers {
                let to = peer.remote;
                prop_assert_eq!(bench.tables.peer(*peer), Some(truth.resolve(None, to)), "{}", to);
            }
        }
    }
}
