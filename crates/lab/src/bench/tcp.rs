//! Throughput of TCP under an MBR that polices, by how much may pass back to back, and under one that shapes.

use anyhow::{Context, Result};

use super::Figures;
use crate::dn;
use crate::smf::Style;
use crate::traffic::{Iperf, Way, iperf};
use crate::world::{Family, Wanted, World};

/// Congestion control of most servers, and of some large ones, as far as this kernel has it.
const ALGORITHMS: [&str; 2] = ["cubic", "bbr"];
const MBPS: [u64; 2] = [10, 100];
/// Seconds of each run, and of its begin those that do not count: a bucket is full then.
const SECONDS: u32 = 6;
const OMITTED: u32 = 2;

/// Figures `tcp-*`.
pub(super) fn measure(figures: &mut Figures) -> Result<()> {
    for (name, line) in [
        ("police-10ms", "burst_ms = 10"),
        ("police-100ms", "burst_ms = 100"),
        ("police-300ms", "burst_ms = 300"),
        ("police-1000ms", "burst_ms = 1000"),
        ("shape", "mode = \"shape\""),
    ] {
        let world = World::build(&Wanted {
            iperf: 1,
            lines: vec![("[qos]", line)],
            ..Wanted::default()
        })?;
        one_setting(figures, name, world).context(name)?;
    }
    Ok(())
}

fn one_setting(figures: &mut Figures, setting: &str, mut world: World) -> Result<()> {
    let mut plan = world.plan(Family::V4, Style::Open5gs);
    let kbps = MBPS[0] * 1000;
    plan.mbr_kbps = Some((kbps, kbps));
    let attached = world.attach("ue1", &plan, 0, 0)?;
    let available = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")?;
    for algorithm in ALGORITHMS {
        if !available.split_whitespace().any(|name| name == algorithm) {
            continue;
        }
        for mbps in MBPS {
            let kbps = mbps * 1000;
            world.smf(0)?.limit(&attached.session, kbps, kbps)?;
            for (name, way) in [("up", Way::Up), ("down", Way::Down)] {
                let run = Iperf {
                    from: attached.address()?,
                    port: dn::IPERF_PORT,
                    way,
                    udp_bps: None,
                    seconds: SECONDS,
                    omitted: OMITTED,
                    algorithm: Some(algorithm),
                };
                let measured = iperf(&attached.ue.netns, run)?;
                let share = measured.bps / (kbps * 1000) as f64 * 100.0;
                let name = format!("tcp-{algorithm}-{mbps}m-{setting}-{name}");
                figures.add(&name, share, "%", None);
            }
        }
    }
    Ok(())
}
