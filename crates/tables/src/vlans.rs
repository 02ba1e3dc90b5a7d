//! VLAN devices, which packets come in by as they do by the port below.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

/// VLAN devices of this host, each with the device below. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Vlans(Arc<RwLock<HashMap<u32, u32>>>);

impl Vlans {
    pub(crate) fn set(&self, below: impl IntoIterator<Item = (u32, u32)>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = below.into_iter().collect();
    }

    /// The device below; `None`: this one is no VLAN device.
    pub(crate) fn below(&self, ifindex: u32) -> Option<u32> {
        let below = self.0.read().unwrap_or_else(PoisonError::into_inner);
        below.get(&ifindex).copied()
    }
}
