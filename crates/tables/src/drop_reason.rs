//! Drop reasons: `tp_drop.def` as Rust, written by the build script.

use crate::abi::DROP_MAX;

include!(concat!(env!("OUT_DIR"), "/drop_reasons.rs"));

const _: () = assert!(ALL.len() < DROP_MAX);

impl DropReason {
    /// Each, in the order of their numbers.
    pub const ALL: &[Self] = ALL;

    /// As packets count it, from 1 on.
    pub const fn number(self) -> usize {
        self as usize
    }

    /// Its place in [`Self::ALL`].
    pub const fn place(self) -> usize {
        self as usize - 1
    }

    /// The one of this number.
    pub fn of(number: u32) -> Option<Self> {
        let place = usize::try_from(number).ok()?.checked_sub(1)?;
        ALL.get(place).copied()
    }

    /// As metrics and commands name it.
    pub const fn name(self) -> &'static str {
        TEXTS[self.place()][0]
    }

    /// The event.
    pub const fn meaning(self) -> &'static str {
        TEXTS[self.place()][1]
    }

    /// Advice to the operator.
    pub const fn remedy(self) -> &'static str {
        TEXTS[self.place()][2]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_a_number_and_a_name_of_its_own() {
        for (place, reason) in DropReason::ALL.iter().enumerate() {
            assert_eq!(reason.place(), place);
            assert_eq!(DropReason::of(reason.number() as u32), Some(*reason));
            let same = |other: &&DropReason| other.name() == reason.name();
            assert_eq!(DropReason::ALL.iter().filter(same).count(), 1);
            assert!(!reason.meaning().is_empty() && !reason.remedy().is_empty());
        }
        let beyond = DropReason::ALL.len() as u32 + 1;
        assert_eq!([0, beyond, u32::MAX].map(DropReason::of), [None; 3]);
        assert_eq!(DropReason::UnknownTeid.name(), "unknown_teid");
    }
}
