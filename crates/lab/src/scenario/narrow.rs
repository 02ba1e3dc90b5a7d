//! From tunnel to tunnel where the next one is narrower: senders hear of it, or their packets arrive in fragments.

use std::net::IpAddr;

use anyhow::{Result, ensure};

use super::Scenario;
use super::icmp::{TUNNEL, answered, payload, ping_says, told, too_big};
use super::relay::{SECOND_N6, Second, by_way_of};
use super::sessions::ping_all;
use crate::dn;
use crate::traffic::start_download;
use crate::world::World;

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "n9-path-mtu",
            "an I-UPF with a narrow N3, then a narrow N9: too big, and fragments, through both UPFs",
            n9_path_mtu,
        )
        .fragments()
        .n9()
        .long(),
    ]
}

const NARROW: u32 = 1400;
const ROOM: u32 = NARROW - TUNNEL;

fn n9_path_mtu(world: &mut World) -> Result<String> {
    let second = Second::start(world)?;
    let (attached, _) = by_way_of(world, &second, Vec::new())?;
    ping_all(&attached)?;
    let netns = &attached.ue.netns;
    let addresses = attached.session.addresses.all();
    // A link takes in no more than it sends, so whoever is beside a narrow one sends less, too.
    netns.ip("link set tun0 mtu 1300")?;
    second.set_mtu("n3", NARROW)?;
    for &address in &addresses {
        let size = payload(address, ROOM + 1);
        let large = ["-M", "do", "-s", &size];
        // The anchor lets nobody but the UE speak out of its tunnel.
        told(
            &world.dn_ns,
            address,
            &large,
            address,
            &too_big(address, ROOM),
        )?;
        let got = start_download(netns, address, 1 << 20, 100 << 20)?.finish()?;
        ensure!(got == 1 << 20, "{got} octets over {address}");
        if address.is_ipv4() {
            answered(&world.dn_ns, address, 2000)?;
        }
    }
    netns.ip("link set tun0 mtu 1400")?;
    second.set_mtu("n3", 1500)?;
    second.set_mtu("n9", NARROW)?;
    world.set_mtu("n9", NARROW)?;
    for &address in &addresses {
        let (server, size) = (dn::server_for(address), payload(address, 1400));
        let large = ["-M", "do", "-s", &size];
        let words = too_big(address, ROOM);
        match address {
            IpAddr::V4(_) => {
                // Before it knows better, what may be cut is.
                answered(netns, server, 1300 + 60)?;
                told(netns, server, &large, SECOND_N6.into(), &words)?;
            }
            IpAddr::V6(_) => {
                let said = ping_says(netns, server, &large)?;
                ensure!(said.contains(&words), "{said}");
            }
        }
    }
    Ok(format!(
        "with {NARROW} on N3, then on N9 of the I-UPF: {ROOM} octets get through, and each sender knows"
    ))
}
