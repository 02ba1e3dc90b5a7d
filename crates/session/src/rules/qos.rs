//! QoS as configured: classes of flows by QFI, as N4 does not tell 5QIs, and capacities that flows share.

use std::net::IpAddr;

use compiled::{
    Above, Action, CAPACITIES_ON_WAY, CapacityId, Direction, Marking, NiId, Qfi, WEIGHT_MAX,
};
use ipnet::IpNet;

use crate::rules::UeIp;

/// 5QI of flows of which nothing else is said: non-GBR, as internet access usually is.
pub const DEFAULT_5QI: u8 = 9;

/// ToS bits of a DSCP.
const DSCP_MASK: u8 = 0xfc;

/// Classes of QoS flows, and capacities that they share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QosConfig {
    /// Treatment of packets above an MBR, where no flow says otherwise.
    pub above: Above,
    /// Classes of flows; the first that fits counts.
    pub flows: Vec<FlowClass>,
    /// Capacities that packets go through; of those of one packet, the first four count.
    pub capacities: Vec<CapacityUse>,
}

impl QosConfig {
    /// Whether packets that are forwarded meet more than those that wait: capacities, or a DSCP of their flow.
    pub fn treats_what_leaves(&self) -> bool {
        !self.capacities.is_empty() || self.flows.iter().any(|flow| flow.dscp.is_some())
    }
}

/// Class of the flows with a QFI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowClass {
    /// As SMFs say it.
    pub qfi: Qfi,
    /// Network instance of the flows; `None`: any.
    pub ni: Option<NiId>,
    /// Weight against other flows in a capacity: 1 to [`WEIGHT_MAX`].
    pub weight: u16,
    /// DSCP of the outer IP header, where its FAR has no Transport Level Marking: 0 to 63.
    pub dscp: Option<u8>,
    /// Treatment of packets above an MBR.
    pub above: Option<Above>,
}

/// A capacity, and the packets that it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapacityUse {
    /// As the tables know it.
    pub id: CapacityId,
    /// Packets that it is for.
    pub of: Of,
}

/// Packets that have something in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Of {
    /// They go out by the routes of one of these network instances.
    Routes(Vec<NiId>),
    /// They go into a tunnel that begins at one of these addresses of ours.
    Tunnels(Vec<IpAddr>),
    /// They are of UEs of a network instance.
    Instance {
        /// The network instance.
        ni: NiId,
        /// Which way they go.
        direction: Direction,
    },
    /// They are of these UEs.
    Users {
        /// Network instance in which the addresses are valid; `None`: any.
        ni: Option<NiId>,
        /// Prefixes that the UEs' addresses are in.
        ues: Vec<IpNet>,
        /// Which way they go.
        direction: Direction,
    },
}

/// Weight of a flow with this 5QI: the lower its Priority Level (TS 23.501, table 5.7.4-1), the greater. `None`: no such 5QI.
pub fn weight_of(five_qi: u8) -> Option<u16> {
    let priority = match five_qi {
        1 => 20,
        2 => 40,
        3 => 30,
        4 => 50,
        5 => 10,
        6 => 60,
        7 => 70,
        8 => 80,
        9 => 90,
        10 => 90,
        65 => 7,
        66 => 20,
        67 => 15,
        69 => 5,
        70 => 55,
        71..=74 | 76 => 56,
        75 => 25,
        79 => 65,
        80 => 68,
        82 => 19,
        83 => 22,
        84 => 24,
        85 => 21,
        86 => 18,
        87..=90 => 25,
        _ => return None,
    };
    Some(WEIGHT_MAX / priority)
}

impl QosConfig {
    /// Class of a flow.
    pub(crate) fn class(&self, ni: Option<NiId>, qfi: Option<Qfi>) -> Option<&FlowClass> {
        let fits =
            |class: &&FlowClass| Some(class.qfi) == qfi && (class.ni.is_none() || class.ni == ni);
        self.flows.iter().find(fits)
    }

    /// Treatment of packets of a flow above an MBR.
    pub(crate) fn above(&self, ni: Option<NiId>, qfi: Option<Qfi>) -> Above {
        let said = self.class(ni, qfi).and_then(|class| class.above);
        said.unwrap_or(self.above)
    }

    /// Its weight in capacities.
    pub(crate) fn weight(&self, ni: Option<NiId>, qfi: Option<Qfi>) -> u16 {
        let said = self.class(ni, qfi).map(|class| class.weight);
        said.or_else(|| weight_of(DEFAULT_5QI)).unwrap_or(1)
    }

    /// Its marking in tunnels, where the SMF says nothing of it.
    pub(crate) fn marking(&self, ni: Option<NiId>, qfi: Option<Qfi>) -> Option<Marking> {
        let dscp = self.class(ni, qfi)?.dscp?;
        Some(Marking {
            tos: dscp << 2,
            mask: DSCP_MASK,
        })
    }

    /// Capacities that its packets go through, in the order of the configuration, at most four. `None`: none.
    pub(crate) fn capacities(
        &self,
        direction: Direction,
        action: Action,
        ue: Option<UeIp>,
    ) -> Option<[CapacityId; CAPACITIES_ON_WAY]> {
        let forwards = matches!(
            action,
            Action::Route { .. }
                | Action::Steer { .. }
                | Action::Tunnel { .. }
                | Action::Udp { .. }
        );
        let uses = self.capacities.iter();
        let mut uses = uses.filter(|of| forwards && of.of.has(direction, action, ue));
        let ids = std::array::from_fn(|_| uses.next().map_or(CapacityId::NONE, |of| of.id));
        (ids[0] != CapacityId::NONE).then_some(ids)
    }
}

impl Of {
    fn has(&self, going: Direction, action: Action, ue: Option<UeIp>) -> bool {
        match self {
            Self::Routes(nis) => matches!(
                action,
                Action::Route { ni } | Action::Steer { ni, .. } if nis.contains(&ni)
            ),
            Self::Tunnels(ours) => match action {
                Action::Tunnel { local, .. } | Action::Udp { local, .. } => ours.contains(&local),
                _ => false,
            },
            Self::Instance { ni, direction } => {
                let routed = matches!(
                    action,
                    Action::Route { ni: to } | Action::Steer { ni: to, .. } if to == *ni
                );
                going == *direction && (routed || ue.is_some_and(|ue| ue.ni == *ni))
            }
            Self::Users { ni, ues, direction } => {
                let is = |ue: UeIp| {
                    let of_group = |own: IpNet| ues.iter().any(|net| net.contains(&own));
                    ni.is_none_or(|ni| ni == ue.ni) && ue.nets().any(of_group)
                };
                going == *direction && ue.is_some_and(is)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_follow_priority_levels() {
        assert_eq!(weight_of(9), Some(11));
        assert_eq!(weight_of(1), Some(50));
        assert_eq!(weight_of(69), Some(200));
        assert_eq!(weight_of(0), None);
        let all = (0..=u8::MAX).filter_map(weight_of);
        assert!(all.clone().all(|weight| (1..=WEIGHT_MAX).contains(&weight)));
        assert_eq!(all.count(), 32);
    }
}
