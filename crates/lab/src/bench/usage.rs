//! Usage Reports: how fast they leave when all sessions reach their threshold at once, and how much passes beyond a
//! threshold before its report is made.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::cost::{Direction, PACKET};
use super::requests::Shape;
use super::{ADDRESSES, Bench, median};

/// Sessions that reach their threshold at once.
const STORM: u32 = 100_000;
/// Thresholds that one session reaches in a row.
const REACHED: u64 = 200;
/// Octets of each.
const THRESHOLD: u64 = 4_000_000;

impl Bench {
    /// `report_*`: each session sends one packet, which reaches its threshold; the SMF answers as fast as it can.
    pub(super) fn report_storm(&mut self) -> Result<()> {
        let count = STORM.min(self.most);
        let one = PACKET as u64;
        let seids = self.establish(0, count, Shape::Measured(1, one))?.1;
        self.sut.settle()?;
        let program = self.sut.program_id(Direction::Uplink)?;
        let before = self.sut.cpu()?;
        let begun = Instant::now();
        self.harness.send(program, &ADDRESSES, count, count)?;
        let sent = begun.elapsed();
        let mut told = vec![0; count as usize];
        let (mut reports, mut last) = (0, begun);
        let left = std::cell::Cell::new(count);
        self.client.answer_reports(
            |cp_seid| seids[cp_seid as usize - 1],
            |cp_seid, octets| {
                told[cp_seid as usize - 1] += octets;
                reports += 1;
                last = Instant::now();
                left.set(left.get() - 1);
            },
            || left.get() == 0,
        )?;
        let wrong = told.iter().filter(|octets| **octets != one).count();
        ensure!(
            wrong == 0,
            "{wrong} of {count} sessions reported another volume"
        );
        self.cpu_figure("report_cpu", before, count)?;
        let took = last - begun;
        self.figures
            .add("report_storm_sent", sent.as_secs_f64() * 1e3, "ms", None);
        let rate = f64::from(count) / took.as_secs_f64();
        self.figures.add("report_rate", rate, "1/s", None);
        self.delete(&seids)
    }

    /// `threshold_overshoot_*`: one session sends as fast as one CPU forwards and reaches its threshold again and
    /// again; what its reports say beyond the threshold, as the time in which it passed.
    pub(super) fn overshoot(&mut self) -> Result<()> {
        let seids = self.establish(0, 1, Shape::Measured(1, THRESHOLD))?.1;
        self.sut.settle()?;
        let program = self.sut.program_id(Direction::Uplink)?;
        let packets = (REACHED * THRESHOLD / PACKET as u64) as u32;
        let mut volumes = Vec::new();
        let done = AtomicBool::new(false);
        let (client, harness) = (&mut self.client, &mut self.harness);
        let each = std::thread::scope(|scope| -> Result<f64> {
            let sender = scope.spawn(|| {
                let each = harness.send(program, &ADDRESSES, 1, packets);
                std::thread::sleep(Duration::from_millis(100));
                done.store(true, Ordering::Relaxed);
                each
            });
            client.answer_reports(
                |_| seids[0],
                |_, octets| volumes.push(octets),
                || done.load(Ordering::Relaxed),
            )?;
            sender
                .join()
                .map_err(|_| anyhow::anyhow!("the sender failed"))?
        })?;
        ensure!(
            volumes.len() as u64 > REACHED / 2,
            "only {} reports",
            volumes.len()
        );
        let late =
            |octets: &u64| octets.saturating_sub(THRESHOLD) as f64 / PACKET as f64 * each / 1e3;
        let mut late: Vec<f64> = volumes.iter().map(late).collect();
        let p50 = median(&mut late);
        let p99 = late[late.len() * 99 / 100];
        self.figures.add("threshold_overshoot_p50", p50, "us", None);
        self.figures.add("threshold_overshoot_p99", p99, "us", None);
        let rate = 1e3 / each;
        self.figures
            .add("threshold_overshoot_rate", rate, "Mpacket/s", None);
        self.delete(&seids)
    }
}
