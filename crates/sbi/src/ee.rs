//! Nupf_EventExposure (TS 29.564): what consumers may ask for, and what they are told of the traffic of UEs.
//!
//! [`Asked`] is a subscription that can be honoured; [`changed`] one that a PATCH makes of it. A [`Watch`] has been accepted: it is
//! shown counts of sessions, says when it wants to see them again, and makes [`Report`]s of them. Neither has a socket or a clock.

mod asked;
mod measure;
mod patch;
mod problem;
#[cfg(test)]
mod tests;
mod watch;

pub use asked::{Asked, Bounds, Event, Mode, Names, Slice, Whom};
pub use measure::Amount;
pub use patch::{OPERATIONS_MAX, PatchError, changed};
pub use problem::Problem;
pub use watch::{Counts, Look, Now, Over, Report, Told, Watch};
