//! Orders to those who keep packets of FARs with BUFF.

use std::fmt;

use session::compiled::{HoldLimits, PdrId};

/// Keeps packets that wait, and hears what changes for them. It must not wait itself.
pub trait Keeper: fmt::Debug + Send + Sync {
    /// The rules of a session have changed: what waits for it may go, or be lost.
    fn look(&self, seid: u64);

    /// What waits for a session is lost.
    fn discard(&self, seid: u64);

    /// What waits for a session is told of anew.
    fn tell_anew(&self, seid: u64);

    /// What waits for a PDR is bounded.
    fn limit(&self, seid: u64, pdr: PdrId, limits: HoldLimits);
}
