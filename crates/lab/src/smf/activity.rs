//! Requests of SMFs when a UE gets a tunnel, moves to another one, becomes idle and comes back.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{MutexGuard, PoisonError};

use anyhow::{Context, Result};
use rs_pfcp::ie::bar_id::BarId;
use rs_pfcp::ie::created_pdr::CreatedPdr;
use rs_pfcp::ie::destination_interface::{DestinationInterface, Interface};
use rs_pfcp::ie::far_id::FarId;
use rs_pfcp::ie::network_instance::NetworkInstance;
use rs_pfcp::ie::{Ie, IeType};

use super::plan::{ApplyActionOctet, BUFF_NOCP, DOWNLINK, FORW, UPLINK, interface_type};
use super::style::{Early, EndMarker, Idle, Urrs};
use super::{Answer, Session, TunnelEnd, update_urr};

/// SNDEM (TS 29.244, 8.2.31).
const SEND_END_MARKER: u8 = 1 << 1;

/// Ways of a session's packets now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ways {
    pub(super) uplink: TunnelEnd,
    pub(super) downlink: Reached,
}

/// Destination of a session's downlink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reached {
    /// No gNB has told its tunnel yet.
    Not,
    At(TunnelEnd),
    /// Left idle by this one.
    Idle(TunnelEnd),
}

impl From<Option<TunnelEnd>> for Reached {
    fn from(gnb: Option<TunnelEnd>) -> Self {
        gnb.map_or(Self::Not, Self::At)
    }
}

impl Session {
    fn ways(&self) -> MutexGuard<'_, Ways> {
        self.ways.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Destination of its uplink: another one than at first, if rules were removed and made anew.
    pub(super) fn uplink_now(&self) -> Result<(IpAddr, u32)> {
        self.ways().uplink.preferred()
    }

    /// Takes the uplink's end out of the answer to a modification, if there is one.
    pub(super) fn note_uplink(&self, answer: &Answer) -> Result<()> {
        for ie in answer.ies(IeType::CreatedPdr) {
            let created: CreatedPdr = ie.parse().context("Created PDR")?;
            if let Some(f_teid) = created.f_teid.filter(|_| created.pdr_id.value == UPLINK) {
                self.ways().uplink = TunnelEnd::of(&f_teid);
            }
        }
        Ok(())
    }

    /// Whether the SMF asks for an End Marker when it points the downlink at another gNB now.
    pub(crate) fn ends_tunnel_on_switch(&self) -> bool {
        let is_connected = matches!(self.ways().downlink, Reached::At(_));
        is_connected && self.plan.habits().end_marker != EndMarker::Never
    }

    /// The IEs of each modification that points the downlink at a gNB.
    pub(super) fn reach(&self, gnb: TunnelEnd) -> Vec<Vec<Ie>> {
        let (plan, habits) = (&self.plan, self.plan.habits());
        let before = std::mem::replace(&mut self.ways().downlink, Reached::At(gnb));
        let switch = matches!(before, Reached::At(_));
        let mut messages = Vec::new();
        if habits.early == Early::NoRules && !switch && plan.downlink.is_none() {
            if let Reached::Idle(_) = before {
                // Service request: uplink comes back first.
                messages.push(plan.uplink_rules(&plan.uplink_f_teid(self.uplink_end.teid)));
            }
            messages.push(plan.downlink_rules(Some(&gnb)));
            return messages;
        }
        let mut ies = Vec::new();
        if habits.update_pdr[usize::from(switch)] {
            ies.push(Ie::new_grouped(IeType::UpdatePdr, plan.default_downlink()));
        }
        let flags = match habits.end_marker {
            EndMarker::OnSwitch if switch => Some(SEND_END_MARKER),
            EndMarker::FlagsAlways => Some(if switch { SEND_END_MARKER } else { 0 }),
            _ => None,
        };
        let parameters = self.parameters(Some(gnb), flags);
        ies.push(update_far(FORW, parameters));
        ies.extend(self.update_urr());
        messages.push(ies);
        messages
    }

    /// The IEs of the modification when the UE becomes idle.
    pub(super) fn rest(&self) -> Vec<Ie> {
        let habits = self.plan.habits();
        let mut ways = self.ways();
        let gnb = match ways.downlink {
            Reached::Not => TunnelEnd::at(Ipv4Addr::UNSPECIFIED, 0),
            Reached::At(gnb) | Reached::Idle(gnb) => gnb,
        };
        ways.downlink = Reached::Idle(gnb);
        drop(ways);
        let far = match habits.idle {
            Idle::Buffer => update_far(BUFF_NOCP, BarId::new(1).to_ie()),
            Idle::KeepTunnel => {
                let parameters = self.parameters(Some(gnb), Some(0));
                update_far(BUFF_NOCP, parameters)
            }
            Idle::NoTunnel => update_far(BUFF_NOCP, self.parameters(None, None)),
            Idle::TeidZero => {
                let zero = TunnelEnd { teid: 0, ..gnb };
                update_far(BUFF_NOCP, self.parameters(Some(zero), None))
            }
            Idle::RemoveRules => return self.remove_rules(),
        };
        let mut ies = vec![far];
        ies.extend(self.update_urr());
        ies
    }

    fn parameters(&self, gnb: Option<TunnelEnd>, flags: Option<u8>) -> Ie {
        let types = self.plan.habits().destination_types;
        let mut members = vec![DestinationInterface::new(Interface::Access).to_ie()];
        members.extend(self.plan.instance().iter().map(NetworkInstance::to_ie));
        members.extend(gnb.map(|gnb| gnb.header().to_ie()));
        members.extend(flags.map(|flags| Ie::new(IeType::PfcpsmReqFlags, vec![flags])));
        members.extend(types.map(|of| interface_type(of, true).to_ie()));
        Ie::new_grouped(IeType::UpdateForwardingParameters, members)
    }

    /// pfcpsim says the period of the second URR again with each Update FAR.
    fn update_urr(&self) -> Option<Ie> {
        let own = self.plan.urrs.is_empty() && matches!(self.plan.habits().urrs, Urrs::Unnamed);
        let period = Ie::new(IeType::MeasurementPeriod, 1_u32.to_be_bytes().to_vec());
        own.then(|| update_urr(2, vec![period]))
    }

    /// IEs that remove all that an establishment and [`Self::reach`] have made.
    fn remove_rules(&self) -> Vec<Ie> {
        let teid = self.uplink_end.teid;
        let mut made = self.plan.uplink_rules(&self.plan.uplink_f_teid(teid));
        made.extend(self.plan.downlink_rules(None));
        let remove = |ie: &mut Ie| {
            let kind = match ie.ie_type {
                IeType::CreatePdr => IeType::RemovePdr,
                IeType::CreateFar => IeType::RemoveFar,
                IeType::CreateQer => IeType::RemoveQer,
                _ => return None,
            };
            // The ID comes first in each.
            let id = ie.as_ies().ok()?.first()?;
            Some(Ie::new_grouped(kind, vec![id.clone()]))
        };
        made.iter_mut().filter_map(remove).collect()
    }
}

fn update_far(action: ApplyActionOctet, more: Ie) -> Ie {
    let id = FarId::new(u32::from(DOWNLINK)).to_ie();
    let action = Ie::new(IeType::ApplyAction, vec![action.0]);
    Ie::new_grouped(IeType::UpdateFar, vec![id, action, more])
}
