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
