//! Orders to those who keep packets of FARs with BUFF.

use std::fmt;

use compiled::{HoldLimits, PdrId};

/// Keeps packets that wait, and hears what changes for them. It must not wait itself.
pub trait Keeper: fmt::Debug + Send + Sync {
    /// Look at a session whose rules have changed: its packets may go, or be lost.
    fn look(&self, seid: u64);

    /// Drop the packets of a session.
    fn discard(&self, seid: u64);

    /// Tell anew that packets of a session wait.
    fn tell_anew(&self, seid: u64);

    /// Bound the packets of a PDR.
    fn limit(&self, seid: u64, pdr: PdrId, limits: HoldLimits);
}
