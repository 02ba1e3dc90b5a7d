//! The demonstration: eight UEs, ordinary programs, a handover, and what became of each packet.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::dn;
use crate::live::{Cores, Rates};
use crate::ping::start_ping;
use crate::smf::Style;
use crate::traffic::{self, Iperf, Way};
use crate::upf;
use crate::upf::Datapath;
use crate::wait::eventually;
use crate::world::{Attached, Family, Wanted, World};

/// Facts of a UE for the closing table, beside its counters.
#[derive(Clone, Copy, Default)]
struct Seen {
    pings: u32,
    answers: u32,
    round_trip_ms: Option<f64>,
    udp_loss: Option<f64>,
}

struct Demo {
    world: World,
    ues: Vec<Attached>,
    seen: Vec<Seen>,
    began: Instant,
    cores: Cores,
}

/// The UEs: which addresses each has.
const UES: [Family; 8] = [
    Family::V4,
    Family::V4,
    Family::V4,
    Family::V6,
    Family::V6,
    Family::Dual,
    Family::Dual,
    Family::Dual,
];
/// The UE that is handed over while it downloads.
const TRAVELLER: usize = 6;

/// Runs the demonstration, with SMFs of one style or of all. With `keep` the network stays until a signal comes.
pub fn run(keep: bool, style: Option<Style>) -> Result<()> {
    let (began, cores) = (Instant::now(), Cores::now());
    let wanted = Wanted {
        // A server is not at once ready for its next client: one for TCP and one for UDP each.
        iperf: 2 * UES.len() as u16,
        style,
        ..Wanted::default()
    };
    let world = step("network: UPF, SMF, 2 gNBs, data network", || {
        World::build(&wanted)
    })?;
    describe(&world)?;
    let mut demo = Demo {
        world,
        ues: Vec::new(),
        seen: vec![Seen::default(); 8],
        began,
        cores,
    };
    step("sessions: 3 IPv4, 2 IPv6, 3 dual-stack UEs", || {
        demo.attach()
    })?;
    step("ping and ping -6 from each UE", || demo.ping())?;
    step("iperf3 TCP, up and down, IPv4 and IPv6", || {
        demo.iperf(None)
    })?;
    step("iperf3 UDP at 20 Mbit/s each, up and down", || {
        demo.iperf(Some(20_000_000))
    })?;
    step("curl download during handovers gnb1 > gnb2 > gnb1", || {
        demo.travel()
    })?;
    step("every packet accounted for", || demo.account())?;
    demo.table();
    if keep {
        demo.keep();
    }
    Ok(())
}

/// Says what carries the packets, which must not be less than it was configured to be.
fn describe(world: &World) -> Result<()> {
    let upf = world.upf.as_ref().context("the UPF is down")?;
    let datapath = upf.get(&world.upf_ns, "/api/v1/datapath")?;
    let (kind, mode) = (&datapath["kind"], &datapath["mode"]);
    let wanted = Datapath::chosen();
    ensure!(
        kind == wanted.name() && (wanted != Datapath::Xdp || mode == "driver"),
        "the data path is {kind} in mode {mode}"
    );
    let by = match wanted {
        Datapath::Xdp => "XDP in driver mode on n3 and n6",
        Datapath::Dpdk => "DPDK, with TAP interfaces n3 and n6 for the kernel",
        Datapath::DpdkPipeline => {
            "DPDK, by a receive core and two workers, with TAP interfaces n3 and n6 for the kernel"
        }
        Datapath::DpdkMemif => {
            "DPDK, over shared memory with dpdk-testpmd, with TAP interfaces n3 and n6 for the kernel"
        }
        Datapath::Kernel => "UDP sockets on n3 and a TUN interface for n6",
    };
    println!("  turnpiked forwards by {by}");
    Ok(())
}

fn step<T>(name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    println!("{name}");
    let began = Instant::now();
    let result = work().with_context(|| format!("step failed: {name}"))?;
    println!("  done in {:.1} s", began.elapsed().as_secs_f64());
    Ok(result)
}

impl Demo {
    fn attach(&mut self) -> Result<()> {
        let styles = self.world.styles();
        for (index, family) in UES.into_iter().enumerate() {
            let style = styles[index % styles.len()];
            let plan = self.world.plan(family, style);
            let name = format!("ue{}", index + 1);
            let attached = self
                .world
                .attach(&name, &plan, 0, index % 2)
                .with_context(|| name.clone())?;
            self.ues.push(attached);
        }
        Ok(())
    }

    fn rates(&self) -> Rates {
        Rates::show(self.ues.iter().map(|ue| Arc::clone(&ue.ue.modem)).collect())
    }

    fn ping(&mut self) -> Result<()> {
        let mut running = Vec::new();
        for (index, attached) in self.ues.iter().enumerate() {
            for address in attached.session.addresses.all() {
                let server = dn::server_for(address);
                let ping = start_ping(&attached.ue.netns, server, 10, 100)?;
                running.push((index, server, ping));
            }
        }
        for (index, server, ping) in running {
            let name = self.ues[index].ue.name().to_owned();
            let pinged = ping
                .finish()
                .with_context(|| format!("{name} to {server}"))?;
            let seen = &mut self.seen[index];
            seen.pings += pinged.sent;
            seen.answers += pinged.received;
            // Of a dual-stack UE the slower family is shown.
            let slower = |ms: f64| seen.round_trip_ms.map_or(ms, |before| before.max(ms));
            seen.round_trip_ms = pinged.mean_ms.map(slower);
            pinged
                .whole()
                .with_context(|| format!("{name} to {server}"))?;
        }
        Ok(())
    }

    /// Every UE at once, half of them up and half down.
    fn iperf(&mut self, udp_bps: Option<u64>) -> Result<()> {
        let rates = self.rates();
        let mut running = Vec::new();
        for (index, attached) in self.ues.iter().enumerate() {
            let addresses = attached.session.addresses.all();
            let from = addresses[index % addresses.len()];
            let way = if index / 2 % 2 == 0 {
                Way::Up
            } else {
                Way::Down
            };
            let server = index + if udp_bps.is_some() { UES.len() } else { 0 };
            let port = dn::IPERF_PORT + server as u16;
            let plan = Iperf {
                from,
                port,
                way,
                udp_bps,
                seconds: 5,
                omitted: 0,
                algorithm: None,
            };
            running.push((index, plan, traffic::start_iperf(&attached.ue.netns, plan)?));
        }
        let mut lines = Vec::new();
        for (index, plan, iperf) in running {
            let name = self.ues[index].ue.name();
            let what = format!("{name} {:?} {}", plan.way, plan.from);
            let measured = iperf.finish().with_context(|| what.clone())?;
            let mbps = measured.bps / 1e6;
            ensure!(mbps > 0.0, "{what}: nothing came");
            let mut line = format!("  {what:<32} {mbps:7.1} Mbit/s");
            if let Some(loss) = measured.loss {
                // Shown, not judged: iperf3 sends whatever arrives, and a busy machine loses some in the UEs' devices.
                self.seen[index].udp_loss = Some(loss);
                line += &format!("  {:.2} % lost", loss * 100.0);
            }
            lines.push(line);
        }
        drop(rates);
        lines.iter().for_each(|line| println!("{line}"));
        Ok(())
    }

    fn travel(&mut self) -> Result<()> {
        const SIZE: u64 = 50_000_000;
        const RATE: u64 = 10_000_000;
        let rates = self.rates();
        let traveller = &mut self.ues[TRAVELLER];
        let from = traveller.address()?;
        let mut download = traffic::start_download(&traveller.ue.netns, from, SIZE, RATE)?;
        let mut handovers = 0;
        let modem = Arc::clone(&traveller.ue.modem);
        let came = || modem.down.bytes.load(Relaxed);
        let before = came();
        for (to, part) in [(1, SIZE / 3), (0, SIZE * 2 / 3)] {
            eventually("a third of the download", || Ok(came() - before >= part))?;
            if download.running()? {
                self.world.handover(traveller, to)?;
                handovers += 1;
            }
        }
        let got = download.finish().context("download")?;
        drop(rates);
        ensure!(
            handovers == 2,
            "the download was over before the second handover"
        );
        let name = self.ues[TRAVELLER].ue.name();
        println!(
            "  {name} got all {} MB, octet by octet as sent",
            got / 1_000_000
        );
        Ok(())
    }

    /// Nothing may have come to a gNB that did not serve the UE, and the UPF must still be there.
    fn account(&mut self) -> Result<()> {
        for gnb in &self.world.gnbs {
            let unknown = gnb.counters().unknown_teid.load(Relaxed);
            let malformed = gnb.counters().malformed.load(Relaxed);
            let address = gnb.address();
            ensure!(
                unknown == 0,
                "{unknown} packets came to {address} for no tunnel of it"
            );
            ensure!(
                malformed == 0,
                "{malformed} malformed messages came to {address}"
            );
        }
        self.compare_counters()?;
        let sessions = self.world.sessions()?;
        ensure!(sessions == 8, "{sessions} sessions instead of 8");
        self.world.upf()?.alive()
    }

    /// Packets that a UE sent and the UPF did not count were lost on the way up; those that the UPF counted
    /// and the UE did not get, on the way down.
    fn compare_counters(&self) -> Result<()> {
        let (mut total, mut lost) = (0, 0);
        for attached in &self.ues {
            let name = attached.ue.name();
            // In the order in which a packet that is still under way passes them.
            let got = attached.ue.modem.down.packets.load(Relaxed);
            let [up, down] = self.world.counted(attached)?;
            let sent = attached.ue.modem.up.packets.load(Relaxed);
            let [counted_up, counted_down] = [up.packets + up.drops, down.packets];
            ensure!(
                counted_up <= sent,
                "{name} sent {sent} packets, {counted_up} were counted"
            );
            ensure!(
                counted_down >= got,
                "{name} got {got} packets, {counted_down} were counted"
            );
            total += sent + counted_down;
            lost += sent - counted_up + counted_down - got;
        }
        println!("  {total} packets of users at the UPF, {lost} lost between it and the UEs");
        Ok(())
    }

    fn table(&self) {
        println!();
        println!(
            "{:<5} {:<38} {:>9} {:>8} {:>9} {:>8} {:>7} {:>9}",
            "UE", "addresses", "packets", "MB up", "packets", "MB down", "loss", "ping"
        );
        for (attached, seen) in self.ues.iter().zip(&self.seen) {
            let modem = &attached.ue.modem;
            let addresses = attached.session.addresses.all();
            let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
            let ping_loss = 1.0 - f64::from(seen.answers) / f64::from(seen.pings.max(1));
            let loss = ping_loss.max(seen.udp_loss.unwrap_or(0.0)) * 100.0;
            println!(
                "{:<5} {:<38} {:>9} {:>8.1} {:>9} {:>8.1} {loss:>6.2}% {:>6.2} ms",
                attached.ue.name(),
                addresses.join(" "),
                modem.up.packets.load(Relaxed),
                modem.up.bytes.load(Relaxed) as f64 / 1e6,
                modem.down.packets.load(Relaxed),
                modem.down.bytes.load(Relaxed) as f64 / 1e6,
                seen.round_trip_ms.unwrap_or(f64::NAN),
            );
        }
        let busy = Cores::now().busy_since(&self.cores);
        let busy: Vec<_> = busy
            .iter()
            .enumerate()
            .map(|(n, b)| format!("core {n} {:.0} %", b * 100.0))
            .collect();
        println!(
            "CPU {} over {:.0} s, programs and emulated network included",
            busy.join(", "),
            self.began.elapsed().as_secs_f64()
        );
    }

    /// Leaves everything up and says what to try.
    fn keep(&self) {
        let name = |role: &str| self.world.prefix().name(role);
        // The command line tool lies where the daemon does.
        let turnpike = upf::binary().map(|daemon| daemon.with_file_name("turnpike"));
        let turnpike = turnpike.map_or("turnpike".to_owned(), |path| path.display().to_string());
        println!("\nThe network stays up until Ctrl-C. In another terminal, as root, try:");
        for line in [
            format!("ip netns exec {} ping {}", name("ue1"), dn::SERVER_V4),
            format!("ip netns exec {} ping -6 {}", name("ue4"), dn::SERVER_V6),
            format!(
                "ip netns exec {} iperf3 -c {} -R",
                name("ue8"),
                dn::SERVER_V4
            ),
            format!(
                "ip netns exec {} tshark -i upf -d udp.port==2152,gtp",
                name("ran")
            ),
            format!("ip netns exec {} {turnpike} sessions", name("upf")),
            format!("ip netns exec {} {turnpike} drops", name("upf")),
            format!(
                "ip netns exec {} curl -s http://127.0.0.1:8806/metrics",
                name("upf")
            ),
            format!("less {}", self.world.folder.join("turnpiked.log").display()),
        ] {
            println!("  {line}");
        }
        // The signal handler takes everything down.
        loop {
            std::thread::park();
        }
    }
}
