//! The site that tests forward through: ports, next hops, routes and pools.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test helpers")]

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use compiled::{NiId, PolicyId};
use ipnet::IpNet;
use nexthop::{Family, L2, Mac, NextHop, NextHopTables, PeerChange};
use testkit::packets::{N3, N3_6};

use crate::port::{PortConfig, Roles};
use crate::tables::Tables;
use crate::trace::TraceKey;

/// Port 0 is N3; ports 1 and 2 are N6 of network instances 0 and 1.
pub fn ports() -> Vec<PortConfig> {
    let port = |name: &str, n3, ni| PortConfig {
        name: name.into(),
        roles: Roles { n3, n6: !n3 },
        ni: NiId(ni),
        ..PortConfig::default()
    };
    vec![
        port("n3", true, 0),
        port("n6a", false, 0),
        port("n6b", false, 1),
    ]
}

/// The only port: N6 of network instance 0.
pub fn data_network() -> PortConfig {
    PortConfig {
        name: "n6".into(),
        roles: Roles {
            n3: false,
            n6: true,
        },
        ni: NiId(0),
        ..PortConfig::default()
    }
}

/// MAC address of what stands behind a port.
pub fn mac(port: u32) -> Mac {
    Mac([2, 0, 0, 0, 1, port as u8])
}

/// A resolved next hop out of a port.
pub fn hop(port: u32) -> NextHop {
    NextHop::Resolved {
        port,
        ifindex: 10 + port,
        mtu: 1500,
        l2: L2::new(mac(port), Mac([2, 0, 0, 0, 0, port as u8]), None),
        addr: IpAddr::V4(Ipv4Addr::new(192, 0, 2, port as u8)),
    }
}

/// Default routes for both network instances, pools, our address.
pub fn furnish(tables: &mut Tables) {
    tables.set_local(&[N3.into(), N3_6.into()]).unwrap();
    for ni in 0..2u16 {
        let out = tables.alloc_nexthop(&hop(u32::from(ni) + 1)).unwrap();
        let v4: IpNet = "0.0.0.0/0".parse().unwrap();
        let v6: IpNet = "::/0".parse().unwrap();
        tables
            .set_ni_routes(NiId(ni), Family::V4, &[(v4, out)])
            .unwrap();
        tables
            .set_ni_routes(NiId(ni), Family::V6, &[(v6, out)])
            .unwrap();
    }
    // Addresses of network instance 1 are found in the buckets.
    for pool in ["10.60.0.0/17", "2001:db8:60::/48"] {
        let pool: IpNet = pool.parse().unwrap();
        tables.register_pool(NiId(0), pool).unwrap();
    }
}

/// The first forwarding policy leads packets of either network instance where the other one's routes lead.
pub fn furnish_policy(tables: &mut Tables) {
    for ni in 0..2u16 {
        let out = tables.alloc_nexthop(&hop(2 - u32::from(ni))).unwrap();
        let routes = PolicyId(0).routes_for(NiId(ni), 2);
        for (family, net) in [(Family::V4, "0.0.0.0/0"), (Family::V6, "::/0")] {
            let net: IpNet = net.parse().unwrap();
            tables.set_ni_routes(routes, family, &[(net, out)]).unwrap();
        }
    }
}

/// Give new peers their next hop out of port 0, as the mirror of the kernel does. `n3`: its index.
pub fn resolve_peers(tables: &mut Tables, n3: u32) -> Vec<PeerChange> {
    let mut changes = Vec::new();
    tables.take_peer_changes(&mut changes);
    for change in &changes {
        if let PeerChange::Added(peer) = *change {
            tables.swap_peer_nexthop(peer, n3);
        }
    }
    changes
}

/// Follow packets with these keys from now on.
pub fn follow(tables: &mut Tables, keys: &[(TraceKey, u32)]) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !tables.follow(keys).unwrap() {
        assert!(Instant::now() < deadline, "programs never came");
        std::thread::sleep(Duration::from_millis(1));
    }
}
