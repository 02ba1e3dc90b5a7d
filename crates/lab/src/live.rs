//! Rates that are shown while traffic runs, and counts for the end.

use std::fs;
use std::io::{IsTerminal, Write, stdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::ue::Modem;

/// Shows the rates of all UEs together, until dropped: one line that is refreshed on a terminal,
/// one line each second elsewhere.
pub struct Rates {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Packets and bytes of all UEs, up and down.
#[derive(Clone, Copy, Default)]
struct Sum {
    packets: [u64; 2],
    bytes: [u64; 2],
}

fn sum(modems: &[Arc<Modem>]) -> Sum {
    let mut sum = Sum::default();
    for modem in modems {
        for (way, traffic) in [&modem.up, &modem.down].into_iter().enumerate() {
            sum.packets[way] += traffic.packets.load(Relaxed);
            sum.bytes[way] += traffic.bytes.load(Relaxed);
        }
    }
    sum
}

impl Rates {
    /// Starts showing.
    pub fn show(modems: Vec<Arc<Modem>>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || show(&modems, &stopped));
        Self {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Rates {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn show(modems: &[Arc<Modem>], stop: &AtomicBool) {
    let terminal = stdout().is_terminal();
    let (mut before, mut at) = (sum(modems), Instant::now());
    while !stop.load(Relaxed) {
        std::thread::sleep(Duration::from_millis(100));
        if at.elapsed() < Duration::from_secs(1) {
            continue;
        }
        let now = sum(modems);
        let text = rates(&before, &now, at.elapsed().as_secs_f64());
        if terminal {
            print!("\r  {text}\x1b[K");
        } else {
            println!("  {text}");
        }
        let _ = stdout().flush();
        (before, at) = (now, Instant::now());
    }
    if terminal {
        print!("\r\x1b[K");
        let _ = stdout().flush();
    }
}

fn rates(before: &Sum, now: &Sum, seconds: f64) -> String {
    let way = |name, way: usize| {
        let bits = (now.bytes[way] - before.bytes[way]) as f64 * 8.0 / seconds / 1e6;
        let packets = (now.packets[way] - before.packets[way]) as f64 / seconds / 1e3;
        format!("{name} {bits:7.1} Mbit/s {packets:6.1} kpps")
    };
    format!("{}   {}", way("up", 0), way("down", 1))
}

/// Busy and total time of each core, in clock ticks.
pub struct Cores(Vec<(u64, u64)>);

impl Cores {
    /// As of now.
    pub fn now() -> Self {
        Self::parse(&fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    fn parse(stat: &str) -> Self {
        let is_core = |line: &&str| {
            line.strip_prefix("cpu")
                .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        };
        let times = |line: &str| {
            // user nice system idle iowait irq softirq steal; guest time is part of user time.
            let fields: Vec<u64> = line
                .split_whitespace()
                .skip(1)
                .take(8)
                .filter_map(|f| f.parse().ok())
                .collect();
            let idle = fields.iter().skip(3).take(2).sum::<u64>();
            let total = fields.iter().sum::<u64>();
            (total - idle, total)
        };
        Self(stat.lines().filter(is_core).map(times).collect())
    }

    /// Share of time that each core was busy since `before`.
    pub fn busy_since(&self, before: &Self) -> Vec<f64> {
        let share = |((busy, total), (busy0, total0)): (&(u64, u64), &(u64, u64))| {
            let passed = total.saturating_sub(*total0).max(1);
            busy.saturating_sub(*busy0) as f64 / passed as f64
        };
        self.0.iter().zip(&before.0).map(share).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_read_and_compared() {
        let before =
            Cores::parse("cpu  9 9 9 9\ncpu0 10 0 10 80 0 0 0 0 0 0\ncpu1 0 0 0 100 0 0 0 0\n");
        let after =
            Cores::parse("cpu  9 9 9 9\ncpu0 60 0 10 130 0 0 0 0\ncpu1 0 0 0 150 50 0 0 0\nintr 5");
        assert_eq!(after.busy_since(&before), [0.5, 0.0]);
    }

    #[test]
    fn rates_are_per_second_and_direction() {
        let before = Sum::default();
        let now = Sum {
            packets: [2000, 4000],
            bytes: [250_000, 2_500_000],
        };
        let text = rates(&before, &now, 2.0);
        assert_eq!(
            text,
            "up     1.0 Mbit/s    1.0 kpps   down    10.0 Mbit/s    2.0 kpps"
        );
    }
}
