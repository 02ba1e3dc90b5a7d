//! Tunnels that nobody sends into any more.

use std::fmt;

use compiled::EndedTunnel;

/// Tells the ends of tunnels that a path switch leaves. It must not wait.
pub trait TunnelEnds: fmt::Debug + Send {
    /// Packets may be under way in the tunnel. `ifindex`: where they leave; `None`: as the kernel's routes say.
    fn left(&self, tunnel: &EndedTunnel, ifindex: Option<u32>);
}
