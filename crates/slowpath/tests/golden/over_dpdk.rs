//! Golden cases through DPDK, in both core models: threads poll ring ports, that frames are put into and taken out of. Needs no
//! rights.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tables::dpdk::{Pipeline, RingPort, Settings};
use tables::{Options, PortConfig, PortTotals, Tables};

use super::{Outcome, Platform, Programs, check_all, layout, new_drop, records, rings};

struct Dpdk {
    tables: Tables,
    /// Go after the tables.
    ports: Vec<RingPort>,
}

/// `pipeline`: that core model; else run to completion.
fn settings(pipeline: Option<Pipeline>) -> Settings {
    let eal = ["--no-huge", "-m", "128", "--no-pci", "--no-telemetry"];
    Settings {
        eal: eal.map(str::to_owned).into(),
        buffers: 4096,
        taps: false,
        pipeline,
        ..Settings::default()
    }
}

fn run_to_completion(ports: Vec<PortConfig>, options: &Options) -> Box<dyn Platform> {
    over_rings(ports, options, &settings(None))
}

fn in_the_pipeline(ports: Vec<PortConfig>, options: &Options) -> Box<dyn Platform> {
    over_rings(ports, options, &settings(Some(Pipeline::default())))
}

fn over_rings(
    mut ports: Vec<PortConfig>,
    options: &Options,
    settings: &Settings,
) -> Box<dyn Platform> {
    static PORTS: AtomicU32 = AtomicU32::new(0);
    let rings = ports.iter_mut().map(|port| {
        let name = format!("golden{}", PORTS.fetch_add(1, Ordering::Relaxed));
        port.device = RingPort::device(&name);
        RingPort::new(settings, &name, 64).unwrap()
    });
    let rings = rings.collect();
    let mut tables = Tables::dpdk(&layout(), &ports, options, settings).unwrap();
    tables.attach().unwrap();
    Box::new(Dpdk {
        tables,
        ports: rings,
    })
}

/// Frames whose fate is known.
fn known(totals: &[PortTotals]) -> u64 {
    let of_port = |port: &PortTotals| {
        let forwarded: u64 = port.forwarded.iter().map(|traffic| traffic.packets).sum();
        let drops: u64 = port.drops.iter().flatten().sum();
        port.passed + port.answered + port.slow + forwarded + drops
    };
    totals.iter().map(of_port).sum()
}

fn eventually<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(Instant::now() < deadline, "not within 60 s");
        std::thread::yield_now();
    }
}

impl Platform for Dpdk {
    fn tables(&mut self) -> &mut Tables {
        &mut self.tables
    }

    fn run(&mut self, port: usize, frame: &[u8]) -> Outcome {
        let before = self.tables.totals();
        assert!(self.ports[port].put(frame));
        let after = eventually(|| {
            let now = self.tables.totals();
            (known(&now) > known(&before)).then_some(now)
        });
        // A grace period is over when no worker is within the burst that has counted it.
        self.tables.barrier().wait().unwrap();
        let [mut events, held, copies] = rings(&self.tables).map(|ring| records(&ring));
        let more = |what: fn(&PortTotals) -> u64| {
            let sum = |totals: &[PortTotals]| totals.iter().map(what).sum::<u64>();
            sum(&after) > sum(&before)
        };
        let forwarded =
            |port: &PortTotals| port.forwarded.iter().map(|traffic| traffic.packets).sum();
        let verdict = if !held.is_empty() {
            "held"
        } else if more(|port| port.passed) {
            "pass"
        } else if more(|port| port.answered) {
            "answer"
        } else if more(forwarded) {
            "forward"
        } else {
            new_drop(&before, &after).unwrap_or("slow")
        };
        let mut left: Vec<Vec<u8>> = self.ports.iter_mut().filter_map(RingPort::take).collect();
        assert_eq!(
            left.len(),
            usize::from(["forward", "answer"].contains(&verdict))
        );
        Outcome {
            // What is passed is the kernel's, which has no face here.
            frame: left.pop().unwrap_or_else(|| frame.to_vec()),
            verdict: verdict.into(),
            event: events.pop(),
            held: held.into_iter().next(),
            copies,
        }
    }
}

#[test]
fn through_dpdk() {
    check_all(Programs::General, &run_to_completion);
}

#[test]
fn through_dpdk_with_the_narrowest_build() {
    check_all(Programs::Narrowest, &run_to_completion);
}

#[test]
fn through_the_pipeline_of_dpdk() {
    check_all(Programs::General, &in_the_pipeline);
}
