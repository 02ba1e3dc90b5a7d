//! The namespaces of a world and the cables between them.

use anyhow::Result;

use super::{
    GNBS, LINK_MTU, ROUTER, ROUTER_V6, UPF_N3, UPF_N4, UPF_N4_V6, UPF_N6, UPF_N6_V6, smf_address,
    smf_address_v6,
};
use crate::dn;
use crate::netns::{End, Netns, Prefix, cable};

pub(super) fn radio_side(prefix: &Prefix, upf_ns: &Netns) -> Result<(Netns, Vec<Netns>)> {
    let ran = Netns::create(prefix, "ran")?;
    ran.ip("link add br0 type bridge mcast_snooping 0\nlink set br0 up")?;
    let n3 = End {
        netns: upf_ns,
        name: "n3",
    };
    cable(
        n3,
        End {
            netns: &ran,
            name: "upf",
        },
        LINK_MTU,
    )?;
    ran.ip("link set upf master br0")?;
    upf_ns.ip(&format!("addr add {UPF_N3}/24 dev n3"))?;
    let mut gnbs = Vec::new();
    for (index, address) in GNBS.iter().enumerate() {
        let name = format!("gnb{}", index + 1);
        let netns = Netns::create(prefix, &name)?;
        cable(
            End {
                netns: &netns,
                name: "n3",
            },
            End {
                netns: &ran,
                name: &name,
            },
            LINK_MTU,
        )?;
        ran.ip(&format!("link set {name} master br0"))?;
        netns.ip(&format!("addr add {address}/24 dev n3"))?;
        gnbs.push(netns);
    }
    Ok((ran, gnbs))
}

pub(super) fn control_side(prefix: &Prefix, upf_ns: &Netns, smfs: usize) -> Result<Netns> {
    let netns = Netns::create(prefix, "smf")?;
    let n4 = End {
        netns: upf_ns,
        name: "n4",
    };
    cable(
        n4,
        End {
            netns: &netns,
            name: "n4",
        },
        LINK_MTU,
    )?;
    upf_ns.ip(&format!(
        "addr add {UPF_N4}/24 dev n4\naddr add {UPF_N4_V6}/64 dev n4 nodad"
    ))?;
    for index in 0..smfs {
        let (v4, v6) = (smf_address(index), smf_address_v6(index));
        netns.ip(&format!(
            "addr add {v4}/24 dev n4\naddr add {v6}/64 dev n4 nodad"
        ))?;
    }
    Ok(netns)
}

pub(super) fn data_network(prefix: &Prefix, upf_ns: &Netns) -> Result<Netns> {
    let netns = Netns::create(prefix, "dn")?;
    let n6 = End {
        netns: upf_ns,
        name: "n6",
    };
    cable(
        n6,
        End {
            netns: &netns,
            name: "n6",
        },
        LINK_MTU,
    )?;
    upf_ns.ip(&format!(
        "addr add {UPF_N6}/24 dev n6\naddr add {UPF_N6_V6}/64 dev n6 nodad\n\
         route add default via {ROUTER}\nroute add ::/0 via {ROUTER_V6}"
    ))?;
    // Servers answer from their own address, whichever socket they answer with.
    let (server4, server6) = (dn::SERVER_V4, dn::SERVER_V6);
    netns.ip(&format!(
        "addr add {ROUTER}/24 dev n6\naddr add {ROUTER_V6}/64 dev n6 nodad\n\
         addr add {server4}/32 dev lo\naddr add {server6}/128 dev lo nodad\n\
         route add 10.60.0.0/15 via {UPF_N6} src {server4}\n\
         route add 2001:db8:60::/47 via {UPF_N6_V6} src {server6}",
    ))?;
    Ok(netns)
}

/// As the first, with the same addresses, behind an interface and a routing table of its own.
pub(super) fn second_data_network(prefix: &Prefix, upf_ns: &Netns) -> Result<Netns> {
    let netns = Netns::create(prefix, "dn2")?;
    let n6 = End {
        netns: upf_ns,
        name: "n6b",
    };
    cable(
        n6,
        End {
            netns: &netns,
            name: "n6",
        },
        LINK_MTU,
    )?;
    upf_ns.ip(
        "addr add 10.7.0.1/24 dev n6b\naddr add 2001:db8:7::1/64 dev n6b nodad\n\
         route add default via 10.7.0.254 dev n6b table 100\n\
         route add ::/0 via 2001:db8:7::fe dev n6b table 100",
    )?;
    let (server4, server6) = (dn::SERVER_V4, dn::SERVER_V6);
    netns.ip(&format!(
        "addr add 10.7.0.254/24 dev n6\naddr add 2001:db8:7::fe/64 dev n6 nodad\n\
         addr add {server4}/32 dev lo\naddr add {server6}/128 dev lo nodad\n\
         route add 10.60.0.0/15 via 10.7.0.1 src {server4}\n\
         route add 2001:db8:60::/47 via 2001:db8:7::1 src {server6}",
    ))?;
    Ok(netns)
}
