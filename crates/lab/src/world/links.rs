//! The namespaces of a world and the cables between them.

use anyhow::Result;

use super::{
    BY_PROGRAM, BY_SHARED_PROGRAM, GNBS, GNBS_V6, LINK_MTU, ROUTER, ROUTER_V6, UPF_N3, UPF_N3_V6,
    UPF_N4, UPF_N4_V6, UPF_N6, UPF_N6_V6, UPF_N9, Wanted, smf_address, smf_address_v6,
};
use crate::dn;
use crate::netns::{End, Netns, Prefix, cable};
use crate::ue::Addresses;
use crate::upf;
use crate::wait::NEVER;

/// VLAN IDs, where N3 and N6 are VLANs.
const N3_VLAN: u16 = 30;
const N6_VLAN: u16 = 60;

/// Gives the end of a cable its addresses, or those to a VLAN device on it.
fn give_addresses(end: End<'_>, vlan: Option<u16>, addresses: &[String]) -> Result<()> {
    let mut device = end.name.to_owned();
    if let Some(id) = vlan {
        device = format!("{}.{id}", end.name);
        tags_in_frames(end)?;
        end.netns.ip(&format!(
            "link add link {} name {device} type vlan id {id}\nlink set {device} up",
            end.name
        ))?;
    }
    for address in addresses {
        end.netns.ip(&format!("addr add {address} dev {device}"))?;
    }
    Ok(())
}

/// Frames arrive in the order in which they were sent, whichever CPUs sent them: in one ring, rather than in a queue of
/// each sender's CPU. A link whose end promises any kind of TCP segmentation has such queues for what packet sockets
/// send, and Linux 6.18 has a kind that goes on without checksum offload.
fn in_one_ring(end: End<'_>) -> Result<()> {
    let offloads = ["-K", end.name, "gro", "on", "tso", "off"];
    (end.netns.run("ethtool", &offloads, NEVER)).map(drop)
}

/// An XDP program sees the tags that are in the frame, not those that the kernel keeps beside it.
fn tags_in_frames(end: End<'_>) -> Result<()> {
    let offloads = ["-K", end.name, "txvlan", "off"];
    (end.netns.run("ethtool", &offloads, NEVER)).map(drop)
}

fn with_lengths(addresses: Addresses) -> Vec<String> {
    let v4 = addresses.v4.map(|v4| format!("{v4}/24"));
    let v6 = addresses.v6.map(|v6| format!("{v6}/64 nodad"));
    v4.into_iter().chain(v6).collect()
}

/// N3 of a gNB, or of the UPF.
fn n3(netns: &Netns) -> End<'_> {
    End { netns, name: "n3" }
}

/// A cable to a port of the radio network's bridge.
fn plug_into_radio(near: End<'_>, ran: &Netns, port: &str) -> Result<()> {
    let far = End {
        netns: ran,
        name: port,
    };
    cable(near, far, LINK_MTU)?;
    tags_in_frames(far)?;
    in_one_ring(near)?;
    in_one_ring(far)?;
    ran.ip(&format!("link set {port} master br0"))
}

/// N3 of the UPF, without an address.
pub(super) fn plug_upf_into_radio(upf_ns: &Netns, ran: &Netns) -> Result<()> {
    plug_into_radio(n3(upf_ns), ran, "upf")?;
    upf::give_face(n3(upf_ns))
}

pub(super) fn radio_side(
    prefix: &Prefix,
    upf_ns: &Netns,
    wanted: &Wanted,
) -> Result<(Netns, Vec<Netns>)> {
    let ran = Netns::create(prefix, "ran")?;
    ran.ip("link add br0 type bridge mcast_snooping 0\nlink set br0 up")?;
    let vlan = wanted.vlan.then_some(N3_VLAN);
    let own = with_lengths(wanted.over.addresses(UPF_N3, UPF_N3_V6));
    plug_upf_into_radio(upf_ns, &ran)?;
    give_addresses(n3(upf_ns), vlan, &own)?;
    let mut gnbs = Vec::new();
    for (index, v4) in GNBS.into_iter().enumerate() {
        let name = format!("gnb{}", index + 1);
        let netns = Netns::create(prefix, &name)?;
        let own = with_lengths(wanted.over.addresses(v4, GNBS_V6[index]));
        plug_into_radio(n3(&netns), &ran, &name)?;
        give_addresses(n3(&netns), vlan, &own)?;
        gnbs.push(netns);
    }
    Ok((ran, gnbs))
}

/// A bridge that UPFs are plugged into.
pub(super) fn between_upfs(prefix: &Prefix, upf_ns: &Netns) -> Result<Netns> {
    let netns = Netns::create(prefix, "n9")?;
    netns.ip("link add br0 type bridge mcast_snooping 0\nlink set br0 up")?;
    let (near, far) = (
        End {
            netns: upf_ns,
            name: "n9",
        },
        End {
            netns: &netns,
            name: "upf",
        },
    );
    cable(near, far, LINK_MTU)?;
    upf::give_face(near)?;
    netns.ip("link set upf master br0")?;
    upf_ns.ip(&format!("addr add {UPF_N9}/24 dev n9"))?;
    Ok(netns)
}

pub(super) fn control_side(
    prefix: &Prefix,
    (upf_ns, ran_ns): (&Netns, &Netns),
    wanted: &Wanted,
) -> Result<Netns> {
    let netns = Netns::create(prefix, "smf")?;
    let has = |own: &str| wanted.lines.iter().any(|(_, line)| *line == own);
    if has(BY_SHARED_PROGRAM) {
        join_radio(upf_ns, ran_ns, &netns, wanted.smfs)?;
    } else {
        plug_n4(upf_ns, &netns, (wanted.smfs, has(BY_PROGRAM)))?;
    }
    Ok(netns)
}

/// So many SMFs are in the radio network, and the UPF has N4's address on N3.
fn join_radio(upf_ns: &Netns, ran: &Netns, smf_ns: &Netns, smfs: usize) -> Result<()> {
    let near = End {
        netns: smf_ns,
        name: "n4",
    };
    plug_into_radio(near, ran, "smf")?;
    (0..smfs).try_for_each(|index| {
        let v4 = smf_address(index);
        smf_ns.ip(&format!("addr add {v4}/24 dev n4"))
    })?;
    upf_ns.ip(&format!("addr add {UPF_N4}/24 dev n3"))
}

/// The link between so many SMFs and the UPF, which may answer by a program.
pub(super) fn plug_n4(
    upf_ns: &Netns,
    smf_ns: &Netns,
    (smfs, by_program): (usize, bool),
) -> Result<()> {
    let end = |netns| End { netns, name: "n4" };
    cable(end(upf_ns), end(smf_ns), LINK_MTU)?;
    upf_ns.ip(&format!(
        "addr add {UPF_N4}/24 dev n4\naddr add {UPF_N4_V6}/64 dev n4 nodad"
    ))?;
    if by_program {
        in_one_ring(end(smf_ns))?;
    }
    for index in 0..smfs {
        let (v4, v6) = (smf_address(index), smf_address_v6(index));
        smf_ns.ip(&format!(
            "addr add {v4}/24 dev n4\naddr add {v6}/64 dev n4 nodad"
        ))?;
    }
    Ok(())
}

pub(super) fn data_network(prefix: &Prefix, upf_ns: &Netns, wanted: &Wanted) -> Result<Netns> {
    let netns = Netns::create(prefix, "dn")?;
    let end = |netns| End { netns, name: "n6" };
    cable(end(upf_ns), end(&netns), LINK_MTU)?;
    upf::give_face(end(upf_ns))?;
    let vlan = wanted.vlan.then_some(N6_VLAN);
    let upf = [format!("{UPF_N6}/24"), format!("{UPF_N6_V6}/64 nodad")];
    give_addresses(end(upf_ns), vlan, &upf)?;
    let router = [format!("{ROUTER}/24"), format!("{ROUTER_V6}/64 nodad")];
    give_addresses(end(&netns), vlan, &router)?;
    upf_ns.ip(&format!(
        "route add default via {ROUTER}\nroute add ::/0 via {ROUTER_V6}"
    ))?;
    // Servers answer from their own address, whichever socket they answer with.
    let (server4, server6) = (dn::SERVER_V4, dn::SERVER_V6);
    netns.ip(&format!(
        "addr add {server4}/32 dev lo\naddr add {server6}/128 dev lo nodad\n\
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
    upf::give_face(n6)?;
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
