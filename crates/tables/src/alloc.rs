//! Allocators of lines, and of runs of lines.

use std::collections::{BTreeMap, BTreeSet};

/// Lines of one table: fresh ones in order, so that untouched pages stay untouched, then those
/// given back.
#[derive(Debug)]
pub(crate) struct Lines {
    name: &'static str,
    first: u32,
    next: u32,
    end: u32,
    free: Vec<u32>,
}

impl Lines {
    pub(crate) fn new(name: &'static str, first: u32, end: u32) -> Self {
        Self {
            name,
            first,
            next: first,
            end,
            free: Vec::new(),
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn take(&mut self) -> Option<u32> {
        if let Some(line) = self.free.pop() {
            return Some(line);
        }
        (self.next < self.end).then(|| {
            self.next += 1;
            self.next - 1
        })
    }

    pub(crate) fn give(&mut self, line: u32) {
        debug_assert!(
            (self.first..self.next).contains(&line),
            "{} {line}",
            self.name
        );
        self.free.push(line);
    }

    pub(crate) fn used(&self) -> u32 {
        self.next - self.first - self.free.len() as u32
    }

    pub(crate) fn capacity(&self) -> u32 {
        self.end - self.first
    }
}

/// Lines of which the first ones, a power of two of them, are expected by places (`tp_expected_entry`): modulo their number, so
/// that several places may expect the same one. Other requests are served from behind these while there are some.
#[derive(Debug)]
pub(crate) struct ExpectedLines {
    first: u32,
    /// A bit for each of the expected lines.
    taken: Vec<u64>,
    n_expected: u32,
    n_taken: u32,
    /// Word in which [`Self::last_free`] found one: it goes on downwards from there, away from the first places.
    found_in: usize,
    others: Lines,
}

impl ExpectedLines {
    pub(crate) fn new(name: &'static str, first: u32, end: u32) -> Self {
        let log = end.saturating_sub(first).checked_ilog2();
        let n_expected = log.map_or(0, |log| 1 << log);
        let words = (n_expected as usize).div_ceil(64);
        Self {
            first,
            taken: vec![0; words],
            n_expected,
            n_taken: 0,
            found_in: words.saturating_sub(1),
            others: Lines::new(name, first + n_expected, end.max(first)),
        }
    }

    /// First of the expected lines, and the bits of a place that say which of them is expected.
    pub(crate) fn expected(&self) -> (u32, u32) {
        (self.first, self.n_expected.saturating_sub(1))
    }

    pub(crate) fn name(&self) -> &'static str {
        self.others.name()
    }

    /// The line that a place expects, or another one if that is taken.
    pub(crate) fn take_for(&mut self, place: Option<u32>) -> Option<u32> {
        let place = place.filter(|_| self.n_expected > 0);
        let line = place.map(|place| place & (self.n_expected - 1));
        match line.filter(|&line| !self.is_taken(line)) {
            Some(line) => Some(self.mark(line)),
            None => self.take(),
        }
    }

    fn take(&mut self) -> Option<u32> {
        let other = self.others.take();
        other.or_else(|| self.last_free().map(|line| self.mark(line)))
    }

    pub(crate) fn give(&mut self, line: u32) {
        let Some(line) = line
            .checked_sub(self.first)
            .filter(|&line| line < self.n_expected)
        else {
            return self.others.give(line);
        };
        debug_assert!(self.is_taken(line), "{} {line}", self.name());
        self.taken[line as usize / 64] &= !(1 << (line % 64));
        self.n_taken -= 1;
    }

    pub(crate) fn used(&self) -> u32 {
        self.n_taken + self.others.used()
    }

    pub(crate) fn capacity(&self) -> u32 {
        self.n_expected + self.others.capacity()
    }

    fn is_taken(&self, line: u32) -> bool {
        self.taken[line as usize / 64] >> (line % 64) & 1 == 1
    }

    fn mark(&mut self, line: u32) -> u32 {
        self.taken[line as usize / 64] |= 1 << (line % 64);
        self.n_taken += 1;
        self.first + line
    }

    /// A free one of the expected lines.
    fn last_free(&mut self) -> Option<u32> {
        if self.n_taken == self.n_expected {
            return None;
        }
        // The first word alone may have fewer lines than bits.
        let bits = self.n_expected.min(64);
        let words = self.taken.len();
        let down = (0..words).map(|step| (self.found_in + words - step) % words);
        let (word, free) = down
            .map(|word| (word, !self.taken[word] << (64 - bits) >> (64 - bits)))
            .find(|&(_, free)| free != 0)?;
        self.found_in = word;
        Some(word as u32 * 64 + free.ilog2())
    }
}

/// Runs of lines that lie back to back. What is given back joins its free neighbours.
#[derive(Debug)]
pub(crate) struct Runs {
    name: &'static str,
    first: u32,
    /// Lines from here on were never taken, or are free again.
    next: u32,
    end: u32,
    used: u32,
    /// Free runs below `next`: length by first line.
    free: BTreeMap<u32, u32>,
    /// Free runs by length and first line.
    by_len: BTreeSet<(u32, u32)>,
}

impl Runs {
    pub(crate) fn new(name: &'static str, first: u32, end: u32) -> Self {
        Self {
            name,
            first,
            next: first,
            end,
            used: 0,
            free: BTreeMap::new(),
            by_len: BTreeSet::new(),
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// The shortest free run that is long enough, so that long ones stay for long lists.
    pub(crate) fn take(&mut self, len: usize) -> Option<u32> {
        let len = u32::try_from(len.max(1)).ok()?;
        let run = match self.by_len.range((len, 0)..).next().copied() {
            Some((had, run)) => {
                self.unlist(run, had);
                if had > len {
                    self.list(run + len, had - len);
                }
                run
            }
            None if self.end - self.next >= len => {
                self.next += len;
                self.next - len
            }
            None => return None,
        };
        self.used += len;
        Some(run)
    }

    pub(crate) fn give(&mut self, first: u32, len: usize) {
        let mut len = len.max(1) as u32;
        let mut first = first;
        self.used -= len;
        if let Some(&after) = self.free.get(&(first + len)) {
            self.unlist(first + len, after);
            len += after;
        }
        let before = self.free.range(..first).next_back();
        if let Some((&start, &before)) = before.filter(|(start, len)| *start + *len == first) {
            self.unlist(start, before);
            (first, len) = (start, len + before);
        }
        if first + len == self.next {
            self.next = first;
        } else {
            self.list(first, len);
        }
    }

    fn list(&mut self, first: u32, len: u32) {
        self.free.insert(first, len);
        self.by_len.insert((len, first));
    }

    fn unlist(&mut self, first: u32, len: u32) {
        self.free.remove(&first);
        self.by_len.remove(&(len, first));
    }

    pub(crate) fn used(&self) -> u32 {
        self.used
    }

    pub(crate) fn capacity(&self) -> u32 {
        self.end - self.first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_back() {
        let mut lines = Lines::new("lines", 10, 12);
        assert_eq!(
            (lines.take(), lines.take(), lines.take()),
            (Some(10), Some(11), None)
        );
        lines.give(10);
        assert_eq!(lines.used(), 1);
        assert_eq!(lines.take(), Some(10));
    }

    #[test]
    fn expected_lines_go_to_those_that_expect_them() {
        let mut lines = ExpectedLines::new("lines", 10, 10 + 128 + 2);
        assert_eq!(lines.expected(), (10, 127));
        assert_eq!(lines.take_for(Some(5)), Some(15));
        assert_eq!(lines.take_for(Some(5 + 128)), Some(138), "taken: any");
        assert_eq!(lines.take(), Some(139));
        assert_eq!(
            lines.take_for(None),
            Some(137),
            "the last of those that are expected"
        );
        assert_eq!(lines.used(), 4);
        for line in [15, 138, 139, 137] {
            lines.give(line);
        }
        assert_eq!(lines.used(), 0);
        assert_eq!(lines.take_for(Some(5)), Some(15), "it came back");
    }

    #[test]
    fn expected_lines_are_all_taken_once() {
        for n in [0, 1, 2, 3, 63, 64, 65, 100, 200] {
            let mut lines = ExpectedLines::new("lines", 7, 7 + n);
            assert_eq!(lines.capacity(), n);
            let mut seen = BTreeSet::new();
            let places = (0..n).map(|i| (i % 3 == 0).then_some(i * 37));
            for line in places.map(|place| lines.take_for(place)) {
                let line = line.unwrap_or_else(|| panic!("{n}: none left of {}", seen.len()));
                assert!(
                    (7..7 + n).contains(&line) && seen.insert(line),
                    "{n}: {line}"
                );
            }
            assert_eq!((lines.take(), lines.take_for(Some(1))), (None, None));
            assert_eq!(lines.used(), n);
            seen.iter().for_each(|&line| lines.give(line));
            assert_eq!(lines.used(), 0);
        }
    }

    #[test]
    fn runs_split_without_overlap() {
        let mut runs = Runs::new("runs", 1, 65);
        let whole = runs.take(64).unwrap();
        assert_eq!(runs.take(1), None);
        runs.give(whole, 64);
        let mut seen = BTreeSet::new();
        for len in [3, 1, 8, 1, 2, 30] {
            let first = runs.take(len).unwrap();
            for line in first..first + len as u32 {
                assert!((1..65).contains(&line) && seen.insert(line));
            }
        }
        assert_eq!(runs.used(), 3 + 1 + 8 + 1 + 2 + 30);
        assert_eq!(runs.take(65), None);
    }

    #[test]
    fn small_runs_that_came_back_make_room_for_large_ones() {
        let mut runs = Runs::new("runs", 0, 64);
        for _ in 0..2 {
            let small: Vec<u32> = (0..16).map(|_| runs.take(4).unwrap()).collect();
            assert_eq!(runs.take(1), None);
            for &run in small
                .iter()
                .step_by(2)
                .chain(small.iter().skip(1).step_by(2))
            {
                runs.give(run, 4);
            }
            let large = [runs.take(33).unwrap(), runs.take(31).unwrap()];
            assert_eq!(runs.used(), 64);
            runs.give(large[0], 33);
            runs.give(large[1], 31);
            assert_eq!(runs.used(), 0);
        }
    }
}
