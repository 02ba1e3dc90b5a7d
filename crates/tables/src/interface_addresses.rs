//! Addresses of the N6 interfaces of network instances, as next hops tell them.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use compiled::NiId;

type Addresses = (Option<Ipv4Addr>, Option<Ipv6Addr>);

/// Addresses by network instance. Clones are the same; readable from any thread.
#[derive(Clone, Debug, Default)]
pub struct InterfaceAddresses(Arc<Mutex<Vec<Addresses>>>);

impl InterfaceAddresses {
    fn all(&self) -> MutexGuard<'_, Vec<Addresses>> {
        // Values are whole whenever somebody looks.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One of each family, where there is one.
    pub fn of(&self, ni: NiId) -> (Option<Ipv4Addr>, Option<Ipv6Addr>) {
        let all = self.all();
        all.get(usize::from(ni.0)).copied().unwrap_or_default()
    }

    /// Replace them.
    pub fn set(&self, ni: NiId, v4: Option<Ipv4Addr>, v6: Option<Ipv6Addr>) {
        let mut all = self.all();
        let index = usize::from(ni.0);
        if all.len() <= index {
            all.resize(index + 1, (None, None));
        }
        all[index] = (v4, v6);
    }
}
