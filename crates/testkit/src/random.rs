//! Numbers that are random, and the same in every run.

/// One random number after another.
pub struct Random(pub u64);

impl Random {
    /// The next one.
    #[allow(clippy::should_implement_trait, reason = "numbers do not end")]
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// One below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// Flip, set, cut or grow; some octets, or lengths and types that matter.
    pub fn mutate(&mut self, frame: &mut Vec<u8>) {
        for _ in 0..self.below(4) {
            let at = self.below(frame.len().min(90));
            match self.below(6) {
                0 => frame[at] ^= 1 << self.below(8),
                1 => frame[at] = self.next() as u8,
                2 => frame[at] = [0, 1, 4, 6, 0x7f, 0x80, 0x85, 0xff][self.below(8)],
                3 => frame.truncate(14.max(at)),
                4 => frame.extend(vec![self.next() as u8; self.below(32)]),
                _ => frame[at] = frame[at].wrapping_add(1),
            }
        }
        // The kernel takes no test frame shorter than an Ethernet header.
        frame.resize(frame.len().max(14), 0);
    }
}
