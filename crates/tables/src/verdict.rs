//! Verdicts of the pipeline.

/// Fate of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Lost, for the reason of this number: [`crate::DROP_REASONS`], counted from 1.
    Drop(u32),
    /// Left to the kernel, untouched.
    Pass,
    /// Turned into an answer, out of the port it came from.
    Answer,
    /// Out of this port.
    Redirect(u32),
    /// Out of this port, when its time has come: it is above its rate.
    Later {
        /// The port.
        port: u32,
        /// Monotonic nanoseconds.
        at_ns: u64,
    },
    /// The slow path has it.
    Slow,
}
