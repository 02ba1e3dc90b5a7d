//! Interfaces that PFCP may come in by. The kernel takes packets to each of its addresses by all of its interfaces (weak host
//! model, RFC 1122, 3.3.4.2), so that a host of the data network could speak as an SMF.

use std::net::IpAddr;

use tables::Ingress;

/// Judges datagrams to N4 by the interface that they came in by.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    ingress: Ingress,
    /// Each N4 address, in the order of its sockets, and the interfaces that it is on.
    homes: Vec<(IpAddr, Vec<u32>)>,
}

impl Gate {
    /// `addresses`: all of this host, each with its interface.
    pub(crate) fn new(
        ingress: Ingress,
        listen: impl Iterator<Item = IpAddr>,
        addresses: impl Iterator<Item = (u32, IpAddr)> + Clone,
    ) -> Self {
        let homes = listen.map(|address| (address, Vec::new())).collect();
        let mut gate = Self { ingress, homes };
        gate.readdress(addresses);
        gate
    }

    /// Addresses of this host have changed.
    pub(super) fn readdress(&mut self, addresses: impl Iterator<Item = (u32, IpAddr)> + Clone) {
        for (home, interfaces) in &mut self.homes {
            let here = addresses.clone().filter(|(_, address)| address == home);
            *interfaces = here.map(|(ifindex, _)| ifindex).collect();
        }
    }

    /// Whether what came in by this interface is taken at this socket: unless the interface is a port whose role is N6 alone,
    /// or a VLAN device on one, and N4's own address is elsewhere.
    pub(super) fn admits(&self, socket: usize, ifindex: u32) -> bool {
        let is_home = |(_, interfaces): &(IpAddr, Vec<u32>)| interfaces.contains(&ifindex);
        !self.ingress.is_data_network(ifindex) || self.homes.get(socket).is_some_and(is_home)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tables::{Layout, Options, PortConfig, Roles, Tables};

    use super::*;

    /// A VLAN device on the port n6 becomes the home of N4's first address.
    #[test]
    fn deaf_on_the_interface_of_n6_that_has_n4s_own_address() {
        let layout = Layout::for_sessions(16, 1, 1);
        let roles = Roles {
            n3: false,
            n6: true,
        };
        let n6 = PortConfig {
            roles,
            ..PortConfig::default()
        };
        let mut tables = Tables::host(&layout, &[n6], &Options::default()).unwrap();
        let (n6, vlan, other, n4) = (12, 20, 21, 30);
        tables.set_vlans([(vlan, n6), (other, n6)]);
        tables.ingress().set_port(0, n6);
        let [ours, also] = [1, 2].map(|last| IpAddr::V4(Ipv4Addr::new(10, 100, 0, last)));
        let listen = [ours, also].into_iter();
        let elsewhere = [(n4, ours), (n4, also)].into_iter();
        let mut gate = Gate::new(tables.ingress(), listen, elsewhere);
        let admitted = |gate: &Gate, socket| {
            [n6, vlan, other, n4, 1, 0].map(|ifindex| gate.admits(socket, ifindex))
        };
        let strict = [false, false, false, true, true, true];
        assert_eq!([0, 1].map(|socket| admitted(&gate, socket)), [strict; 2]);
        gate.readdress([(vlan, ours), (n4, also)].into_iter());
        let on_vlan = [false, true, false, true, true, true];
        let both = [0, 1].map(|socket| admitted(&gate, socket));
        assert_eq!(both, [on_vlan, strict]);
        gate.readdress([(n6, ours), (n4, also)].into_iter());
        assert!(gate.admits(0, n6) && !gate.admits(0, vlan) && !gate.admits(1, n6));
    }
}
