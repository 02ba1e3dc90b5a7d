//! What the configuration says of QoS: what QFIs stand for, as N4 does not tell 5QIs, and what there is for all flows.

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

/// What QoS flows are, and what there is for all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QosConfig {
    /// What becomes of packets above an MBR, where no flow says otherwise.
    pub above: Above,
    /// What is known of flows; the first that fits counts.
    pub flows: Vec<FlowClass>,
    /// What packets go through; of each, at most four count.
    pub capacities: Vec<CapacityUse>,
}

/// What a QFI stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowClass {
    /// As SMFs say it.
    pub qfi: Qfi,
    /// Where; `None`: everywhere.
    pub ni: Option<NiId>,
    /// Its part of what there is, against others': 1 to [`WEIGHT_MAX`].
    pub weight: u16,
    /// DSCP of the outer IP header, where its FAR has no Transport Level Marking: 0 to 63.
    pub dscp: Option<u8>,
    /// What becomes of packets above an MBR.
    pub above: Option<Above>,
}

/// Whose packets a capacity is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapacityUse {
    /// As the tables know it.
    pub id: CapacityId,
    /// Whose.
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
        /// Which.
        ni: NiId,
        /// Which way they go.
        direction: Direction,
    },
    /// They are of these UEs.
    Users {
        /// Where the addresses are valid; `None`: anywhere.
        ni: Option<NiId>,
        /// Which addresses.
        ues: Vec<IpNet>,
        /// Which way they go.
        direction: Direction,
    },
}

/// Of a flow with this 5QI: the greater, the lower its Priority Level (TS 23.501, table 5.7.4-1). `None`: there is no such 5QI.
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
    /// What is said of a flow.
    pub(crate) fn class(&self, ni: Option<NiId>, qfi: Option<Qfi>) -> Option<&FlowClass> {
        let fits =
            |class: &&FlowClass| Some(class.qfi) == qfi && (class.ni.is_none() || class.ni == ni);
        self.flows.iter().find(fits)
    }

    /// What becomes of packets of a flow above an MBR.
    pub(crate) fn above(&self, ni: Option<NiId>, qfi: Option<Qfi>) -> Above {
        let said = self.class(ni, qfi).and_then(|class| class.above);
        said.unwrap_or(self.above)
    }

    /// Its part of what there is.
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

    /// What its packets go through, in the order of the configuration. `None`: nothing.
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
