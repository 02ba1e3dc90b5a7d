//! Cost of a session that has more than the plain one: SDF filters that packets fall through, IPv6, a
//! tunnel on the other side too, URRs.

use std::time::Duration;

use anyhow::Result;

use super::cost::{Direction, Harness};
use super::frames::Family;
use super::load::Client;
use super::requests::{self, Shape};
use super::sut::Sut;
use super::{ADDRESSES, Bench, Figures};

/// With so many sessions, and no others.
pub(super) const SESSIONS: u32 = 1_000;
/// After it a TEID that was given back may be taken as if new.
pub(super) const GRACE: Duration = Duration::from_millis(500);
/// A threshold that no measurement reaches.
const NEVER: u64 = 1 << 50;
const BOTH: [Direction; 2] = [Direction::Uplink, Direction::Downlink];
const UPLINK: [Direction; 1] = [Direction::Uplink];

/// Sessions that are compared with the plain one, and in which directions.
const SHAPES: [(Shape, &str, &[Direction]); 7] = [
    (Shape::Filters(1), "1-filters", &BOTH),
    (Shape::Filters(8), "8-filters", &BOTH),
    (Shape::Filters(32), "32-filters", &BOTH),
    (Shape::Ipv6, "ipv6", &BOTH),
    (Shape::Relay, "relay", &UPLINK),
    (Shape::Measured(1, NEVER), "1-urr", &BOTH),
    (Shape::Measured(2, NEVER), "2-urrs", &BOTH),
];

/// Give a UPF these, and nothing but plain ones.
pub(super) fn plain(sut: Sut) -> Result<(Sut, Harness)> {
    let mut client = Client::new(sut.smf_socket(ADDRESSES.smf)?, sut.n4())?;
    client.associate(|sequence| requests::association(&ADDRESSES, sequence))?;
    let mut bench = Bench {
        harness: Harness::load(SESSIONS)?,
        sut,
        client,
        seids: Vec::new(),
        figures: Figures::default(),
        runs: 0,
        most: SESSIONS,
    };
    bench.establish(0, SESSIONS, Shape::Plain)?;
    bench.sut.settle()?;
    let Bench { sut, harness, .. } = bench;
    Ok((sut, harness))
}

impl Bench {
    /// Figures `xdp-up-WHAT` and `xdp-down-WHAT`, and with `-above-plain` what that costs more than the plain
    /// session, measured just before it.
    pub(super) fn shapes(&mut self) -> Result<()> {
        for (shape, what, directions) in SHAPES {
            let plain = self.shape(Shape::Plain, "plain", directions)?;
            let costs = self.shape(shape, what, directions)?;
            for (at, direction) in directions.iter().enumerate() {
                let name = format!("xdp-{}-{what}-above-plain", way(*direction));
                self.figures
                    .add(&name, costs[at] - plain[at], "ns/packet", None);
            }
        }
        Ok(())
    }

    fn shape(&mut self, shape: Shape, what: &str, directions: &[Direction]) -> Result<Vec<f64>> {
        let family = if shape == Shape::Ipv6 {
            Family::V6
        } else {
            Family::V4
        };
        let seids = self.establish(0, SESSIONS, shape)?.1;
        let mut costs = Vec::new();
        for &direction in directions {
            let cost = self.cost(direction, SESSIONS, family)?;
            let name = format!("xdp-{}-{what}", way(direction));
            // The plain one is measured anew for each comparison, and shown apart.
            if shape != Shape::Plain {
                self.figures
                    .add(&name, cost.above_floor, "ns/packet", Some(cost.floor));
            }
            costs.push(cost.above_floor);
        }
        self.delete(&seids)?;
        // The next ones take over their TEIDs, and go by a list where that is too soon.
        std::thread::sleep(GRACE);
        Ok(costs)
    }
}

/// As it is called in figures.
pub(super) fn way(direction: Direction) -> &'static str {
    match direction {
        Direction::Uplink => "up",
        Direction::Downlink => "down",
    }
}
