//! Who owns which line of a table.

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

/// Runs of 1, 2, 4, .. 64 neighbouring lines. A larger free run is split when its size is asked
/// for and no smaller one is left; runs are not joined again.
#[derive(Debug)]
pub(crate) struct Runs {
    name: &'static str,
    first: u32,
    next: u32,
    end: u32,
    used: u32,
    free: [Vec<u32>; Self::CLASSES],
}

impl Runs {
    const CLASSES: usize = 7;

    pub(crate) fn new(name: &'static str, first: u32, end: u32) -> Self {
        Self {
            name,
            first,
            next: first,
            end,
            used: 0,
            free: Default::default(),
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    fn class(len: usize) -> usize {
        len.max(1).next_power_of_two().trailing_zeros() as usize
    }

    pub(crate) fn take(&mut self, len: usize) -> Option<u32> {
        let class = Self::class(len);
        if class >= Self::CLASSES {
            return None;
        }
        let run = self.free[class]
            .pop()
            .or_else(|| self.fresh(class))
            .or_else(|| self.split(class))?;
        self.used += 1 << class;
        Some(run)
    }

    fn fresh(&mut self, class: usize) -> Option<u32> {
        let size = 1u32 << class;
        (self.end - self.next >= size).then(|| {
            self.next += size;
            self.next - size
        })
    }

    fn split(&mut self, class: usize) -> Option<u32> {
        let larger = (class + 1..Self::CLASSES).find(|&larger| !self.free[larger].is_empty())?;
        let run = self.free[larger].pop()?;
        for half in class..larger {
            self.free[half].push(run + (1 << half));
        }
        Some(run)
    }

    pub(crate) fn give(&mut self, first: u32, len: usize) {
        let class = Self::class(len);
        self.used -= 1 << class;
        self.free[class].push(first);
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
        let mut seen = std::collections::BTreeSet::new();
        for len in [3, 1, 8, 1, 2, 30] {
            let first = runs.take(len).unwrap();
            for line in first..first + len.next_power_of_two() as u32 {
                assert!((1..65).contains(&line) && seen.insert(line));
            }
        }
        assert_eq!(runs.used(), 4 + 1 + 8 + 1 + 2 + 32);
        assert_eq!(runs.take(65), None);
    }
}
