//! Cost of the plain session's packets in each build of the program.

use anyhow::{Context, Result, ensure};

use super::cost::Direction;
use super::frames::Family;
use super::requests::Shape;
use super::shapes::{GRACE, SESSIONS, way};
use super::sut::Sut;
use super::{Bench, Figures, median};

/// The builds, and of which shape there is a session that needs it.
const BUILDS: [(&str, Option<Shape>); 4] = [
    ("plain", None),
    ("common", Some(Shape::Filters(1))),
    ("relay", Some(Shape::Relay)),
    ("general", Some(Shape::Framed)),
];

/// Figures `xdp-up-below-rate` and `xdp-down-below-rate`: plain sessions below an MBR that shapes, and as their floor the same
/// below one that polices, by turns; each without the harness.
pub(super) fn shaped(figures: &mut Figures, runs: usize) -> Result<()> {
    let of = |mode: &'static str, build: &str| {
        let sut = Sut::start_with(SESSIONS, 1, vec![("[qos]", mode)])?;
        let mut bench = Bench::new(sut, SESSIONS, 1)?;
        bench.establish(0, SESSIONS, Shape::Plain)?;
        bench.sut.settle()?;
        let live = bench.live()?;
        ensure!(live == build, "{live} is live, not {build}");
        Ok(bench)
    };
    let mut police = of("mode = \"police\"", "plain")?;
    let mut shape = of("mode = \"shape\"", "shape")?;
    for direction in [Direction::Uplink, Direction::Downlink] {
        let mut costs = [Vec::new(), Vec::new()];
        for _ in 0..runs {
            for (bench, costs) in [&mut police, &mut shape].into_iter().zip(&mut costs) {
                let cost = bench.cost_as_is(direction, SESSIONS, Family::V4)?;
                costs.push(cost.above_floor);
            }
        }
        let [police, shape] = costs.map(|mut costs| median(&mut costs));
        let name = format!("xdp-{}-below-rate", way(direction));
        figures.add(&name, shape, "ns/packet", Some(police));
    }
    Ok(())
}

impl Bench {
    /// Figures `xdp-up-build-NAME` and `xdp-down-build-NAME`, and how many instructions its programs have.
    pub(super) fn builds(&mut self) -> Result<()> {
        for (build, beside) in BUILDS {
            let mut seids = self.establish(0, SESSIONS, Shape::Plain)?.1;
            if let Some(shape) = beside {
                seids.extend(self.establish(SESSIONS, 1, shape)?.1);
            }
            self.sut.settle()?;
            let live = self.live()?;
            ensure!(live == build, "{live} is live, not {build}");
            for direction in [Direction::Uplink, Direction::Downlink] {
                let cost = self.cost_as_is(direction, SESSIONS, Family::V4)?;
                let name = format!("xdp-{}-build-{build}", way(direction));
                self.figures
                    .add(&name, cost.above_floor, "ns/packet", Some(cost.floor));
            }
            let instructions = self.instructions()?;
            let name = format!("xdp-build-{build}-size");
            self.figures.add(&name, instructions, "instructions", None);
            ensure!(self.live()? == build, "programs changed meanwhile");
            self.delete(&seids)?;
            std::thread::sleep(GRACE);
        }
        Ok(())
    }

    /// The live build.
    fn live(&self) -> Result<String> {
        let datapath = self.sut.datapath()?;
        Ok(datapath["build"].as_str().context("build")?.to_owned())
    }
}
