//! This UPF as the router that users and their correspondents see: the addresses that it speaks from.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use compiled::NiId;

use tables::InterfaceAddresses;

use crate::advertise::{Advertised, LINK_LOCAL};

/// Speaks for a router that has no IPv4 address of its own (RFC 7600, 4.8).
const DUMMY4: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 8);

/// Configuration of one network instance's router.
#[derive(Clone, Debug, Default)]
struct Router {
    configured4: Option<Ipv4Addr>,
    configured6: Option<Ipv6Addr>,
    /// `None`: the SMF answers UEs that ask for their router, or nobody does.
    advertised: Option<Arc<Advertised>>,
}

/// Routers of all network instances: addresses that are configured count more than those of N6 interfaces. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Routers {
    configured: Arc<Mutex<Vec<Router>>>,
    interfaces: InterfaceAddresses,
}

impl Routers {
    /// Nothing is configured yet.
    pub fn new(interfaces: InterfaceAddresses) -> Self {
        Self {
            configured: Arc::default(),
            interfaces,
        }
    }

    fn all(&self) -> MutexGuard<'_, Vec<Router>> {
        // Values are whole whenever somebody looks.
        self.configured
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, ni: NiId, change: impl FnOnce(&mut Router)) {
        let mut all = self.all();
        let index = usize::from(ni.0);
        if all.len() <= index {
            all.resize_with(index + 1, Router::default);
        }
        change(&mut all[index]);
    }

    /// Set the address that the router of a network instance speaks from in ICMP errors, rather than that of its N6
    /// interface.
    pub fn set_address(&self, ni: NiId, addr: IpAddr) {
        self.change(ni, |router| match addr {
            IpAddr::V4(addr) => router.configured4 = Some(addr),
            IpAddr::V6(addr) => router.configured6 = Some(addr),
        });
    }

    /// Answer UEs of a network instance that ask for their router, from now on, unless a PDR leads them
    /// elsewhere.
    pub fn advertise(&self, ni: NiId, what: Advertised) {
        self.change(ni, |router| router.advertised = Some(Arc::new(what)));
    }

    pub(crate) fn advertised(&self, ni: NiId) -> Option<Arc<Advertised>> {
        self.all().get(usize::from(ni.0))?.advertised.clone()
    }

    /// Source of a packet of this family that the router of `ni` sends to a UE, or into the data network.
    /// `None`: there is no address that the data network could see.
    pub(crate) fn source(&self, ni: NiId, is_ipv4: bool, to_ue: bool) -> Option<IpAddr> {
        let router = self.all().get(usize::from(ni.0)).cloned();
        let router = router.unwrap_or_default();
        let (interface4, interface6) = self.interfaces.of(ni);
        if is_ipv4 {
            let own = router.configured4.or(interface4);
            Some(own.unwrap_or(DUMMY4).into())
        } else {
            let own = router.configured6.or(interface6);
            own.or(to_ue.then_some(LINK_LOCAL)).map(IpAddr::V6)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configured_addresses_come_first() {
        let routers = Routers::default();
        let source = |is_ipv4, to_ue| routers.source(NiId(1), is_ipv4, to_ue);
        assert_eq!(source(true, true), Some(DUMMY4.into()));
        assert_eq!(source(true, false), Some(DUMMY4.into()));
        assert_eq!(source(false, true), Some(LINK_LOCAL.into()));
        assert_eq!(source(false, false), None);
        let (of_interface, configured) = (Ipv4Addr::new(10, 6, 0, 1), Ipv4Addr::new(10, 6, 0, 9));
        routers
            .interfaces
            .set(NiId(1), Some(of_interface), Some(Ipv6Addr::LOCALHOST));
        assert_eq!(source(true, true), Some(of_interface.into()));
        assert_eq!(source(false, false), Some(Ipv6Addr::LOCALHOST.into()));
        routers.set_address(NiId(1), configured.into());
        assert_eq!(source(true, false), Some(configured.into()));
        routers.interfaces.set(NiId(1), None, None);
        assert_eq!(source(true, false), Some(configured.into()));
        assert_eq!(source(false, false), None);
        assert_eq!(routers.source(NiId(0), true, false), Some(DUMMY4.into()));
    }
}
