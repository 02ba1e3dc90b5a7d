//! How busy the node is, and what SMFs are told of it: load control and overload control
//! (TS 29.244, 6.2.3 and 6.2.4).

use pfcp::ie::{CpFunctionFeatures, Timer};
use pfcp::{IeType, Writer};
use serde::{Deserialize, Serialize};

/// The load must move so far before SMFs are told anew.
const STEP: u8 = 5;
/// How long a reduction holds unless it is repeated; it is in every answer meanwhile.
const VALIDITY_S: u64 = 30;
/// Message Priority of requests that have none: the lowest.
const LOWEST: u8 = 15;
/// OCI Flags (8.2.81): the information concerns the whole node.
const AOCI: u8 = 1;

/// Load and overload of the node.
#[derive(Debug)]
pub(crate) struct Load {
    /// Busy to so many percent and more is overload; `None`: there is no overload.
    overload_at: Option<u8>,
    load: Announced,
    /// Percent of establishments that SMFs are asked to do without.
    reduction: Announced,
    /// Percent of establishments that were to be refused and are not yet.
    owed: u32,
    /// There is no room to keep one more session where it would outlive the process.
    pub(crate) is_full: bool,
}

/// A percentage, and a number that grows with each change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Announced {
    percent: u8,
    sequence: u32,
}

impl Announced {
    pub(crate) fn skip(&mut self, changes: u32) {
        self.sequence = self.sequence.wrapping_add(changes);
    }

    fn set(&mut self, percent: u8) {
        if self.percent != percent {
            self.percent = percent;
            self.sequence = self.sequence.wrapping_add(1);
        }
    }
}

/// The last sequence numbers that a peer was told; `None`: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Told {
    load: Option<u32>,
    reduction: Option<u32>,
}

/// Load and overload information for an answer, each a sequence number and percent; `None`: not in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Notice {
    load: Option<(u32, u8)>,
    reduction: Option<(u32, u8)>,
}

impl Load {
    /// `first`: where sequence numbers begin. Our Recovery Time Stamp makes them grow across
    /// restarts.
    pub(crate) fn new(overload_at: u8, first: u32) -> Self {
        let nothing = Announced {
            percent: 0,
            sequence: first,
        };
        let mut load = Self {
            overload_at: None,
            load: nothing,
            reduction: nothing,
            owed: 0,
            is_full: false,
        };
        load.set_overload_at(overload_at);
        load
    }

    /// As in [`Self::new`].
    pub(crate) fn set_overload_at(&mut self, percent: u8) {
        self.overload_at = (1..=100).contains(&percent).then_some(percent);
    }

    /// The node is busy to `busy` percent, and its fullest table to `full`.
    pub(crate) fn measured(&mut self, busy: u8, full: u8) {
        let load = busy.max(full).min(100);
        let end = load == 0 || load == 100;
        if load.abs_diff(self.load.percent) >= STEP || end {
            self.load.set(load);
        }
        // A full table refuses by itself; only work can be too much.
        let reduction = match self.overload_at {
            Some(at) if busy >= at => {
                let over = 80 * u16::from(busy.min(100) - at) / u16::from(101 - at);
                10 + over as u8
            }
            _ => 0,
        };
        self.reduction.set(reduction);
    }

    /// Load and reduction, as SMFs have heard of them.
    pub(crate) fn announced(&self) -> [Announced; 2] {
        [self.load, self.reduction]
    }

    /// SMFs have heard this.
    pub(crate) fn go_on(&mut self, [load, reduction]: [Announced; 2]) {
        (self.load, self.reduction) = (load, reduction);
    }

    pub(crate) fn percent(&self) -> u8 {
        self.load.percent
    }

    pub(crate) fn reduction(&self) -> u8 {
        self.reduction.percent
    }

    /// Whether this establishment is one of those that are refused to get out of overload. Of those that come at about the
    /// same time one with a lower priority is: with each step of it one more of them may follow before this one must go.
    pub(crate) fn sheds(&mut self, priority: Option<u8>) -> bool {
        if self.reduction.percent == 0 {
            self.owed = 0;
            return false;
        }
        self.owed += u32::from(self.reduction.percent);
        let patience = LOWEST - priority.unwrap_or(LOWEST).min(LOWEST);
        let refuse = self.owed >= 100 * (1 + u32::from(patience));
        if refuse {
            self.owed -= 100;
        }
        refuse
    }

    /// Whether a peer with these features that was told this hears of something by its next answer.
    pub(crate) fn has_news(&self, features: CpFunctionFeatures, told: &Told) -> bool {
        self.notice(features, &mut told.clone()) != Notice::default()
    }

    /// Information for a peer with these features; `told` then holds that it was sent.
    pub(crate) fn notice(&self, features: CpFunctionFeatures, told: &mut Told) -> Notice {
        let mut notice = Notice::default();
        if features.contains(CpFunctionFeatures::LOAD) && told.load != Some(self.load.sequence) {
            told.load = Some(self.load.sequence);
            notice.load = Some((self.load.sequence, self.load.percent));
        }
        // Repeated while it lasts, because its validity ends by itself.
        let news = match told.reduction {
            Some(sequence) => sequence != self.reduction.sequence,
            None => false,
        };
        if features.contains(CpFunctionFeatures::OVRL) && (news || self.reduction.percent > 0) {
            told.reduction = Some(self.reduction.sequence);
            notice.reduction = Some((self.reduction.sequence, self.reduction.percent));
        }
        notice
    }
}

impl Notice {
    /// Load Control Information and Overload Control Information (7.5.3.3, 7.5.3.4).
    pub(crate) fn write(&self, writer: &mut Writer<'_>) {
        let common = |w: &mut Writer<'_>, sequence: u32, metric: u8| {
            w.put(IeType::SEQUENCE_NUMBER, sequence);
            w.put(IeType::METRIC, metric);
        };
        if let Some((sequence, metric)) = self.load {
            writer.grouped(IeType::LOAD_CONTROL_INFORMATION, |w| {
                common(w, sequence, metric);
            });
        }
        if let Some((sequence, metric)) = self.reduction {
            writer.grouped(IeType::OVERLOAD_CONTROL_INFORMATION, |w| {
                common(w, sequence, metric);
                w.put(IeType::TIMER, Timer::at_least(VALIDITY_S));
                w.put(IeType::OCI_FLAGS, AOCI);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: CpFunctionFeatures = CpFunctionFeatures::LOAD.union(CpFunctionFeatures::OVRL);

    #[test]
    fn a_peer_is_told_once_and_again_after_a_change() {
        let mut load = Load::new(90, 1000);
        let mut told = Told::default();
        let first = load.notice(BOTH, &mut told);
        assert_eq!((first.load, first.reduction), (Some((1000, 0)), None));
        assert_eq!(load.notice(BOTH, &mut told), Notice::default());
        load.measured(4, 0);
        assert_eq!(
            load.notice(BOTH, &mut told),
            Notice::default(),
            "too little"
        );
        load.measured(4, 40);
        assert_eq!(load.notice(BOTH, &mut told).load, Some((1001, 40)));
        let nobody = &mut Told::default();
        assert_eq!(
            load.notice(CpFunctionFeatures::EPFAR, nobody),
            Notice::default()
        );
    }

    #[test]
    fn overload_is_repeated_while_it_lasts_and_its_end_is_told_once() {
        let mut load = Load::new(80, 7);
        let mut told = Told::default();
        load.measured(100, 0);
        let notice = load.notice(BOTH, &mut told);
        assert!(
            notice
                .reduction
                .is_some_and(|(sequence, percent)| sequence == 8 && percent > 50)
        );
        assert_eq!(load.notice(BOTH, &mut told).reduction, notice.reduction);
        load.measured(10, 100);
        assert_eq!(load.notice(BOTH, &mut told).reduction, Some((9, 0)));
        assert_eq!(load.notice(BOTH, &mut told).reduction, None);
    }

    #[test]
    fn sheds_the_share_that_it_announces() {
        for busy in 0..=100 {
            let mut load = Load::new(90, 0);
            load.measured(busy, 0);
            let shed = (0..1000).filter(|_| load.sheds(None)).count();
            assert_eq!(shed, usize::from(load.reduction()) * 10, "busy {busy}");
            assert_eq!(shed > 0, busy >= 90);
            assert!(shed <= 900, "never all");
        }
        let mut never = Load::new(0, 0);
        never.measured(100, 100);
        assert!(!never.sheds(None));
    }

    #[test]
    fn who_has_priority_is_refused_only_where_nobody_else_can_be() {
        let refused = |of: [Option<u8>; 4]| {
            let mut load = Load::new(90, 0);
            load.measured(95, 0);
            let mut refused = [0; 4];
            for round in 0..4000 {
                refused[round % 4] += usize::from(load.sheds(of[round % 4]));
            }
            let share = usize::from(load.reduction()) * 40;
            let all: usize = refused.iter().sum();
            assert!(all <= share && all + 15 >= share, "{all} of {share}");
            refused
        };
        // Half are to go.
        let [first, second, emergency, low] = refused([None, None, Some(0), Some(15)]);
        assert!(first > 400 && second > 400 && low > 400, "they share it");
        assert_eq!(emergency, 0);
        // There is nobody else.
        refused([Some(0); 4]);
    }
}
