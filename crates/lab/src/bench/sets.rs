//! What the plain session's packets cost in programs with different sets of features.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::Bench;
use super::cost::{Direction, Family};
use super::requests::Shape;
use super::shapes::{GRACE, SESSIONS, way};

/// Programs are taken to stay when they have not been replaced for so long.
const STILL: Duration = Duration::from_secs(3);
const PATIENCE: Duration = Duration::from_secs(60);

/// Whose packets are measured, and what sessions there are beside them, one of each.
const SETS: [(Shape, &[Shape]); 7] = [
    (Shape::Unmetered, &[]),
    (Shape::Plain, &[]),
    (Shape::Plain, &[Shape::Filters(1)]),
    (Shape::Plain, &[Shape::Ipv6]),
    (Shape::Plain, &[Shape::Filters(1), Shape::Ipv6]),
    (Shape::Plain, &[Shape::Relay]),
    (Shape::Plain, &[Shape::Framed]),
];

impl Bench {
    /// Figures `xdp-up-set-FEATURES` and `xdp-down-set-FEATURES`, and how many instructions the programs of the set have.
    pub(super) fn sets(&mut self) -> Result<()> {
        for (measured, beside) in SETS {
            let mut seids = self.establish(0, SESSIONS, measured)?.1;
            for (base, &shape) in (SESSIONS..).zip(beside) {
                seids.extend(self.establish(base, 1, shape)?.1);
            }
            let set = self.still()?;
            for direction in [Direction::Uplink, Direction::Downlink] {
                let cost = self.cost_as_is(direction, SESSIONS, Family::V4)?;
                let name = format!("xdp-{}-set-{set}", way(direction));
                self.figures
                    .add(&name, cost.above_floor, "ns/packet", Some(cost.floor));
            }
            let instructions = self.instructions()?;
            let name = format!("xdp-set-{set}-size");
            self.figures.add(&name, instructions, "instructions", None);
            ensure!(self.set()?.0 == set, "programs changed meanwhile");
            self.delete(&seids)?;
            std::thread::sleep(GRACE);
        }
        Ok(())
    }

    /// What the live programs have, and how often programs were replaced so far.
    fn set(&self) -> Result<(String, u64)> {
        let datapath = self.sut.datapath()?;
        let features = datapath["features"].as_array().context("features")?;
        let names: Vec<&str> = features.iter().filter_map(|name| name.as_str()).collect();
        let count = datapath["replacements"].as_u64().context("replacements")?;
        Ok((names.join("+"), count))
    }

    /// Waits until programs are no longer replaced.
    fn still(&self) -> Result<String> {
        let began = Instant::now();
        let mut last = self.set()?;
        while began.elapsed() < PATIENCE {
            std::thread::sleep(STILL);
            let now = self.set()?;
            if now == last {
                return Ok(now.0);
            }
            last = now;
        }
        anyhow::bail!("programs are replaced all the time")
    }
}
