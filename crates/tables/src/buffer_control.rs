//! Control of the buffers for packets of FARs with BUFF.

use std::fmt;

use compiled::{BufferLimits, PdrId};

/// Buffers, told what changes for their packets. It must not wait.
pub trait BufferControl: fmt::Debug + Send + Sync {
    /// Release the packets of a session whose rules have changed, as far as these now say so.
    fn release(&self, seid: u64);

    /// Drop the packets of a session.
    fn discard(&self, seid: u64);

    /// Tell anew of the packets of a session.
    fn tell_anew(&self, seid: u64);

    /// Bound the packets of a PDR.
    fn limit(&self, seid: u64, pdr: PdrId, limits: BufferLimits);
}
