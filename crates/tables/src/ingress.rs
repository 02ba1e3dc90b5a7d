//! Interfaces that datagrams to our addresses may come in by.

use std::sync::atomic::Ordering;

use crate::abi::raw;
use crate::drop_reason::DropReason;
use crate::layout::Memory;
use crate::port::{PortConfig, Roles};

/// VLAN devices on top of each other that are followed down to their port; two are common.
const DEPTH: usize = 4;

/// Judges what sockets receive by the interface that it came in by (`IP_PKTINFO`): the kernel takes packets to each of its
/// addresses by all of its interfaces (weak host model, RFC 1122, 3.3.4.2), so that a host of the data network could speak as
/// a gNB. Interfaces are known by their present numbers, as ports may be deleted and made again.
#[derive(Clone, Debug)]
pub struct Ingress {
    memory: Memory,
    ports: Vec<Roles>,
}

impl Ingress {
    pub(crate) fn new(memory: &Memory, ports: &[PortConfig]) -> Self {
        Self {
            memory: memory.clone(),
            ports: ports.iter().map(|port| port.roles).collect(),
        }
    }

    /// Whether datagrams that came in by this interface are taken: unless it is a port whose role is N6 alone, or a VLAN
    /// device on one. So many of them are counted as its drops if they are not.
    pub fn admits(&self, ifindex: u32, datagrams: u64) -> bool {
        let Some(port) = self.wrong(ifindex) else {
            return true;
        };
        let drops = &self.memory.slow[0].drops[port][raw::TP_DOWNLINK as usize];
        drops[DropReason::WrongInterface.number()].fetch_add(datagrams, Ordering::Relaxed);
        false
    }

    /// Whether this is a port whose role is N6 alone, or a VLAN device on one. Counts nothing.
    pub fn is_data_network(&self, ifindex: u32) -> bool {
        self.wrong(ifindex).is_some()
    }

    /// The present number of a port's interface, where no back end attaches to it: for tests.
    #[doc(hidden)]
    pub fn set_port(&self, port: usize, ifindex: u32) {
        if let Some(slot) = self.memory.config[0].port_ifindex.get(port) {
            slot.store(ifindex, Ordering::Relaxed);
        }
    }

    /// The port with role N6 alone that this interface is or lies on.
    fn wrong(&self, mut ifindex: u32) -> Option<usize> {
        for _ in 0..=DEPTH {
            if let Some(port) = self.port(ifindex) {
                let Roles { n3, n6 } = self.ports[port];
                return (n6 && !n3).then_some(port);
            }
            ifindex = self.memory.vlans.below(ifindex)?;
        }
        None
    }

    fn port(&self, ifindex: u32) -> Option<usize> {
        let slots = self.memory.config[0].port_ifindex.iter();
        let mut slots = slots.take(self.ports.len());
        let port = slots.position(|slot| slot.load(Ordering::Relaxed) == ifindex);
        port.filter(|_| ifindex != 0) // 0: a port without an interface
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Layout;
    use crate::stats::Counting;

    const N3: Roles = Roles {
        n3: true,
        n6: false,
    };
    const N6: Roles = Roles {
        n3: false,
        n6: true,
    };
    const BOTH: Roles = Roles { n3: true, n6: true };

    fn ingress(ports: &[(u32, Roles)]) -> Ingress {
        let memory = Memory::anonymous(&Layout::for_sessions(16, 1, 1), 1).unwrap();
        for (slot, (ifindex, _)) in memory.config[0].port_ifindex.iter().zip(ports) {
            slot.store(*ifindex, Ordering::Relaxed);
        }
        let roles = ports.iter().map(|(_, roles)| PortConfig {
            roles: *roles,
            ..PortConfig::default()
        });
        Ingress::new(&memory, &roles.collect::<Vec<_>>())
    }

    #[test]
    fn what_comes_in_by_n6_alone_is_counted_there_and_not_taken() {
        let ingress = ingress(&[(10, N3), (11, N6), (12, BOTH), (0, N6)]);
        // Ports with tunnels, loopback, an interface that is no port, an unknown one.
        for ifindex in [10, 12, 1, 77, 0] {
            assert!(ingress.admits(ifindex, 1), "{ifindex}");
        }
        assert!(!ingress.is_data_network(10) && ingress.is_data_network(11));
        assert!(!ingress.admits(11, 3) && !ingress.admits(11, 4));
        let Memory { cpus, slow, .. } = &ingress.memory;
        let counting = Counting::new(cpus.clone(), slow.clone());
        let dropped = |port: usize| -> u64 {
            let drops = counting.port(port).drops;
            drops
                .iter()
                .map(|of| of[DropReason::WrongInterface.place()])
                .sum()
        };
        assert_eq!([0, 1, 2, 3].map(dropped), [0, 7, 0, 0]);
    }

    #[test]
    fn a_port_that_is_made_again_is_known_by_its_new_number() {
        let ingress = ingress(&[(10, N3), (11, N6)]);
        let slots = &ingress.memory.config[0].port_ifindex;
        slots[1].store(25, Ordering::Relaxed);
        assert!(ingress.admits(11, 1) && !ingress.admits(25, 1));
        slots[1].store(0, Ordering::Relaxed);
        assert!(ingress.admits(25, 1) && ingress.admits(0, 1));
    }

    #[test]
    fn a_vlan_is_its_port_unless_it_is_one_itself() {
        let ingress = ingress(&[(10, N3), (11, N6), (30, N3)]);
        let vlans = &ingress.memory.vlans;
        // On N3, on N6, twice tagged on N6, a port that is a VLAN of N6, two that name each other.
        vlans.set([(20, 10), (21, 11), (22, 21), (30, 11), (40, 41), (41, 40)]);
        for ifindex in [20, 30, 40] {
            assert!(ingress.admits(ifindex, 1), "{ifindex}");
        }
        assert!(!ingress.admits(21, 1) && !ingress.admits(22, 1));
        vlans.set([]);
        assert!(ingress.admits(21, 1));
    }
}
