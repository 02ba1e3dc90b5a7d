//! Verdicts of the pipeline.

use crate::drop_reason::DropReason;

/// Fate of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Lost, for this reason.
    Drop(DropReason),
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

impl Verdict {
    /// Lost, for the reason of this number. One that there is not is our own defect, as `table` says.
    pub(crate) fn lost(number: u32) -> Self {
        Self::Drop(DropReason::of(number).unwrap_or(DropReason::Table))
    }
}
