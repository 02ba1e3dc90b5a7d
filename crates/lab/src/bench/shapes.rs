//! What SDF filters cost: packets that fall through all of them to the default PDR.

use anyhow::Result;

use super::Bench;
use super::cost::Direction;

/// With so many sessions; those that were there before stay, without filters.
pub(super) const SESSIONS: u32 = 1_000;
/// SDF filters before the default PDR, in each direction.
const FILTERS: [u16; 4] = [0, 1, 8, 32];

impl Bench {
    /// Figures `xdp-up-N-filters` and `xdp-down-N-filters`, and with `-above-plain` what they cost more
    /// than the same sessions without any.
    pub(super) fn filters(&mut self) -> Result<()> {
        let mut plain = [0.0; 2];
        for filters in FILTERS {
            let first = self.seids.len() as u32;
            let seids = self.establish(first, SESSIONS - first, filters)?.1;
            for (at, direction) in [Direction::Uplink, Direction::Downlink]
                .into_iter()
                .enumerate()
            {
                let cost = self.cost(direction, SESSIONS)?;
                let name = format!("xdp-{}-{filters}-filters", ["up", "down"][at]);
                self.figures
                    .add(&name, cost.above_floor, "ns/packet", Some(cost.floor));
                if filters == 0 {
                    plain[at] = cost.above_floor;
                } else {
                    let more = cost.above_floor - plain[at];
                    self.figures
                        .add(&format!("{name}-above-plain"), more, "ns/packet", None);
                }
            }
            self.delete(&seids)?;
        }
        Ok(())
    }
}
