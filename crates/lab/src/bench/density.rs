//! Few users who send, of many who have sessions: side by side in the tables, as a region for active users would have them, or
//! anywhere, as they come (PEPC's two-level tables, figure 14 there).

use anyhow::Result;

use super::cost::{Direction, Order};
use super::frames::Family;
use super::requests::Shape;
use super::sut::Sut;
use super::{Bench, Figures, Options, median};

/// Users who send.
const ACTIVE: [u32; 3] = [1_000, 10_000, 100_000];

/// Of `options.sessions` sessions, `options.runs` times, both by turns.
pub(super) fn measure(figures: Figures, options: &Options) -> Result<Figures> {
    let sut = Sut::start(options.sessions)?;
    let mut bench = Bench::new(sut, options.sessions, options.runs)?;
    bench.figures = figures;
    bench.establish(0, options.sessions, Shape::Plain)?;
    bench.sut.settle()?;
    for active in ACTIVE.into_iter().filter(|&n| n < options.sessions) {
        let side_by_side = Order::Random.of(active);
        // A sample of all, each as likely as another.
        let mut anywhere = Order::Random.of(options.sessions);
        anywhere.truncate(active as usize);
        for (name, direction) in [("up", Direction::Uplink), ("down", Direction::Downlink)] {
            let mut costs = [const { Vec::new() }; 2];
            let mut floors = Vec::new();
            for _ in 0..options.runs {
                for (users, costs) in [&side_by_side, &anywhere].into_iter().zip(&mut costs) {
                    let cost = bench.cost_of(users, direction, Family::V4, 1)?;
                    costs.push(cost.above_floor);
                    floors.push(cost.floor);
                }
            }
            let floor = median(&mut floors);
            for (place, costs) in ["dense", "scattered"].into_iter().zip(&mut costs) {
                let figure = format!("xdp-{name}-{place}-{active}-of-{}", options.sessions);
                let value = median(costs);
                bench.figures.add(&figure, value, "ns/packet", Some(floor));
            }
        }
    }
    Ok(bench.figures)
}
