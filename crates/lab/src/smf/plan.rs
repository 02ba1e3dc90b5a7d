//! Plans of sessions on N4: the rules that SMFs send, as their habits have them.

use std::net::{IpAddr, Ipv6Addr};

use std::net::Ipv4Addr;

use anyhow::{Context, Result};
use rs_pfcp::ie::application_id::ApplicationId;
use rs_pfcp::ie::apply_action::ApplyAction;
use rs_pfcp::ie::bar_id::BarId;
use rs_pfcp::ie::create_bar::CreateBar;
use rs_pfcp::ie::create_far::CreateFar;
use rs_pfcp::ie::created_pdr::CreatedPdr;
use rs_pfcp::ie::created_traffic_endpoint::CreatedTrafficEndpoint;
use rs_pfcp::ie::destination_interface::{DestinationInterface, Interface};
use rs_pfcp::ie::f_teid::Fteid;
use rs_pfcp::ie::far_id::FarId;
use rs_pfcp::ie::forwarding_parameters::ForwardingParameters;
use rs_pfcp::ie::mbr::Mbr;
use rs_pfcp::ie::network_instance::NetworkInstance;
use rs_pfcp::ie::outer_header_removal::OuterHeaderRemoval;
use rs_pfcp::ie::pdi::Pdi;
use rs_pfcp::ie::pdr_id::PdrId;
use rs_pfcp::ie::precedence::Precedence;
use rs_pfcp::ie::qer_id::QerId;
use rs_pfcp::ie::qfi::Qfi;
use rs_pfcp::ie::sdf_filter::SdfFilter;
use rs_pfcp::ie::source_interface::{SourceInterface, SourceInterfaceValue};
use rs_pfcp::ie::three_gpp_interface_type::{ThreeGppInterfaceType, ThreeGppInterfaceTypeIe};
use rs_pfcp::ie::ue_ip_address::UeIpAddress;
use rs_pfcp::ie::update_far::UpdateFar;
use rs_pfcp::ie::update_forwarding_parameters::UpdateForwardingParameters;
use rs_pfcp::ie::urr_id::UrrId;
use rs_pfcp::ie::{Ie, IeType};

use super::style::{Early, FTeidBy, Families, Habits, Name, PdnType, Urrs};
use super::{Session, Style, TunnelEnd, Urr, usual_urrs};
use crate::ue::Addresses;

pub(super) const UPLINK: u16 = 1;
pub(super) const DOWNLINK: u16 = 2;
/// Of Router Solicitations, up to the SMF and down from it.
const SOLICITATIONS: [u16; 2] = [3, 4];
const SOLICITATIONS_PRECEDENCE: u32 = 255;

/// Source of the UE's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requested {
    /// The SMF's own pool.
    Given(Addresses),
    /// The UPF's pool (CHV4, CHV6).
    Choose {
        /// IPv4 is wanted.
        v4: bool,
        /// IPv6 is wanted.
        v6: bool,
    },
}

/// The gates of a QER.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gates {
    /// Uplink passes.
    pub up: bool,
    /// Downlink passes.
    pub down: bool,
}

impl Gates {
    /// Both open.
    pub const OPEN: Self = Self {
        up: true,
        down: true,
    };

    /// Both closed.
    pub const CLOSED: Self = Self {
        up: false,
        down: false,
    };

    /// Gate Status by hand (TS 29.244, 8.2.7: UL in bits 3 and 4, DL in bits 1 and 2), because
    /// rs-pfcp 0.5 has the uplink gate in bit 2.
    fn status(self) -> Ie {
        let octet = u8::from(!self.up) << 2 | u8::from(!self.down);
        Ie::new(IeType::GateStatus, vec![octet])
    }
}

/// A service data flow: a pair of PDRs before the default pair, with a QER of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    /// An IPFilterRule.
    pub filter: String,
    /// Lower is tried first.
    pub precedence: u32,
    /// Of its QER.
    pub gates: Gates,
}

/// A session to establish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionPlan {
    /// IEs of the establishment beside the rules.
    pub more: Vec<Ie>,
    /// Tunnel and addresses stand in Traffic Endpoints, which the PDRs name.
    pub endpoints: bool,
    /// Length of the UE's IPv6 prefix, where it is no /64.
    pub v6_len: Option<u8>,
    /// IEs of every PDI beside the usual ones.
    pub pdi: Vec<Ie>,
    /// SMF whose habits it follows.
    pub style: Style,
    /// The UE's addresses.
    pub addresses: Requested,
    /// Network instance of all rules.
    pub network_instance: String,
    /// The UPF on N3: what F-TEIDs that the SMF chooses say, and which families it asks for.
    pub upf_n3: Addresses,
    /// QFI of the default flow.
    pub qfi: u8,
    /// Uplink PDIs have the UE's address also where the style's have none.
    pub uplink_ue: bool,
    /// Whether the uplink PDI asks for that QFI, where the style's do.
    pub match_qfi: bool,
    /// MBR of the session, up and down.
    pub mbr_kbps: Option<(u64, u64)>,
    /// Gates of the session.
    pub gates: Gates,
    /// Flows beside the default one.
    pub flows: Vec<Flow>,
    /// URRs that all PDRs name; none: the one that SMFs put on every session.
    pub urrs: Vec<Urr>,
    /// The gNB's tunnel, when it is known at once; else downlink starts as the style says.
    pub downlink: Option<TunnelEnd>,
    /// Tunnel in which the SMF takes Router Solicitations, if it does (Open5GS).
    pub solicitations_to: Option<TunnelEnd>,
    /// Forwarding policy that an application function asks for, where the style's SMF sends one.
    pub policy: Option<&'static str>,
}

impl SessionPlan {
    pub(super) fn habits(&self) -> &'static Habits {
        self.style.habits()
    }

    /// IEs of an establishment beside Node ID and F-SEID. `teid` is the SMF's choice, where the style asks for one.
    pub(super) fn rules(&self, teid: u32) -> Vec<Ie> {
        let (habits, f_teid) = (self.habits(), self.uplink_f_teid(teid));
        let mut ies = self.uplink_rules(&f_teid);
        if self.downlink.is_some() || habits.early != Early::NoRules {
            ies.extend(self.downlink_rules(self.downlink.as_ref()));
        }
        if let Some(smf) = &self.solicitations_to {
            ies.extend(self.solicitation_rules(smf, &f_teid));
        }
        if self.endpoints {
            ies.extend(self.traffic_endpoints(&f_teid));
        }
        ies.extend(self.urrs().iter().map(Urr::create));
        if habits.early == Early::Buffer {
            ies.push(CreateBar::new(BarId::new(1), None).to_ie());
        }
        ies.extend(self.of_session());
        // By kind, as their encoders have it.
        let kinds = [1, 3, 6, 7, 85, 127, 113].map(IeType::from);
        ies.sort_by_key(|ie| {
            kinds
                .iter()
                .position(|kind| *kind == ie.ie_type)
                .unwrap_or(kinds.len())
        });
        ies
    }

    /// PDRs and QERs of uplink, and their FAR.
    pub(super) fn uplink_rules(&self, f_teid: &Fteid) -> Vec<Ie> {
        let mut ies = Vec::new();
        for (index, flow) in self.flows.iter().enumerate() {
            let [pdr, _, qer] = self.flow_rules(index as u16, flow, f_teid);
            ies.extend([pdr, qer]);
        }
        let habits = self.habits();
        let qers = habits.qer_ids[0];
        ies.push(self.uplink_pdr(UPLINK, habits.precedence, f_teid, None, qers));
        ies.push(self.uplink_far());
        ies.extend(self.qers(|id| qers.contains(&id)));
        ies
    }

    /// The same of downlink, without QERs that uplink has, too.
    pub(super) fn downlink_rules(&self, gnb: Option<&TunnelEnd>) -> Vec<Ie> {
        let mut ies = Vec::new();
        for (index, flow) in self.flows.iter().enumerate() {
            // The F-TEID matters to uplink alone.
            let [_, pdr, _] = self.flow_rules(index as u16, flow, &given_f_teid(0, self.upf_n3));
            ies.push(pdr);
        }
        ies.push(Ie::new_grouped(IeType::CreatePdr, self.default_downlink()));
        ies.push(self.downlink_far(gnb));
        let [up, down] = self.habits().qer_ids;
        ies.extend(self.qers(|id| down.contains(&id) && !up.contains(&id)));
        ies
    }

    /// Router Solicitations go through a tunnel to the SMF, and what it answers to the UE (TS 29.244, 5.14).
    fn solicitation_rules(&self, smf: &TunnelEnd, f_teid: &Fteid) -> [Ie; 3] {
        let [up, down] = SOLICITATIONS;
        let mut pdi = self.pdi(
            SourceInterfaceValue::Access,
            Some("permit out 58 from ff02::2/128 to assigned"),
        );
        pdi.f_teid = Some(f_teid.clone());
        let to_smf = self.pdr(up, SOLICITATIONS_PRECEDENCE, pdi, u32::from(up), &[]);
        let mut pdi = Pdi::new(SourceInterface::new(SourceInterfaceValue::CpFunction));
        pdi.f_teid = Some(Fteid::new_with_choose(
            true, true, true, false, 0, None, None, 0,
        ));
        let to_ue = self.pdr(
            down,
            SOLICITATIONS_PRECEDENCE,
            pdi,
            u32::from(DOWNLINK),
            &[],
        );
        let parameters =
            ForwardingParameters::new(DestinationInterface::new(Interface::CpFunction))
                .with_outer_header_creation(smf.header());
        let far =
            CreateFar::new(FarId::new(u32::from(up)), FORW).with_forwarding_parameters(parameters);
        let [to_smf, to_ue] = [to_smf, to_ue].map(|pdr| Ie::new_grouped(IeType::CreatePdr, pdr));
        [to_smf, to_ue, far.to_ie()]
    }

    /// IEs of an establishment about the session as a whole.
    fn of_session(&self) -> Vec<Ie> {
        let (v4, v6) = self.wanted();
        let pdn_type = match self.habits().pdn_type {
            PdnType::Absent => None,
            PdnType::Ipv4 => Some(1),
            PdnType::OfSession => Some(u8::from(v4) | u8::from(v6) << 1),
        };
        let mut ies: Vec<_> = pdn_type
            .map(|it| Ie::new(IeType::PdnType, vec![it]))
            .into_iter()
            .collect();
        if self.habits().subscriber {
            // IMSI 999700000000001, in BCD with the first digit in the lower half; SST 1 without SD.
            let imsi = vec![1, 8, 0x99, 0x79, 0, 0, 0, 0, 0, 0xf1];
            ies.push(Ie::new(IeType::UserId, imsi));
            ies.push(Ie::new(
                IeType::ApnDnn,
                labels(&self.network_instance).into_bytes(),
            ));
            ies.push(Ie::new(IeType::Snssai, vec![1, 0xff, 0xff, 0xff]));
        }
        ies
    }

    /// Fields of PDIs about where packets come by, in endpoints for access (1) and core (2).
    fn traffic_endpoints(&self, f_teid: &Fteid) -> [Ie; 2] {
        [SourceInterfaceValue::Access, SourceInterfaceValue::Core].map(|source| {
            let whole = Self {
                endpoints: false,
                ..self.clone()
            };
            let pdi = whole.pdi(source, None);
            let mut members = vec![endpoint_id(source)];
            if source == SourceInterfaceValue::Access {
                members.push(f_teid.to_ie());
            }
            members.extend(pdi.network_instance.iter().map(NetworkInstance::to_ie));
            members.extend(pdi.ue_ip_addresses.iter().map(UeIpAddress::to_ie));
            Ie::new_grouped(IeType::CreateTrafficEndpoint, members)
        })
    }

    pub(super) fn uplink_f_teid(&self, teid: u32) -> Fteid {
        let FTeidBy::Upf {
            families,
            choose_id,
        } = self.habits().f_teid
        else {
            return given_f_teid(teid, self.upf_n3);
        };
        let (v4, v6) = match families {
            Families::Known => (self.upf_n3.v4.is_some(), self.upf_n3.v6.is_some()),
            Families::Both => (true, true),
            Families::Unsaid => (false, false),
        };
        let id = choose_id.unwrap_or_default();
        Fteid::new_with_choose(v4, v6, true, choose_id.is_some(), 0, None, None, id)
    }

    /// The pair of PDRs and the QER of one flow.
    fn flow_rules(&self, index: u16, flow: &Flow, f_teid: &Fteid) -> [Ie; 3] {
        let [uplink, downlink, qer] = flow_ids(index);
        let mut qers: Vec<_> = session_qer(self.style).into_iter().collect();
        qers.push(u32::from(qer));
        let filter = Some(flow.filter.as_str());
        let members = vec![QerId::new(u32::from(qer)).to_ie(), flow.gates.status()];
        let down = self.downlink_pdr(downlink, flow.precedence, filter, &qers);
        [
            self.uplink_pdr(uplink, flow.precedence, f_teid, filter, &qers),
            Ie::new_grouped(IeType::CreatePdr, down),
            Ie::new_grouped(IeType::CreateQer, members),
        ]
    }

    fn uplink_pdr(
        &self,
        id: u16,
        precedence: u32,
        f_teid: &Fteid,
        filter: Option<&str>,
        qers: &[u32],
    ) -> Ie {
        let mut pdi = self.pdi(SourceInterfaceValue::Access, filter);
        pdi.f_teid = (!self.endpoints).then(|| f_teid.clone());
        if filter.is_none() && self.match_qfi && self.habits().uplink_qfi {
            pdi.qfis = Qfi::new(self.qfi).into_iter().collect();
        }
        Ie::new_grouped(
            IeType::CreatePdr,
            self.pdr(id, precedence, pdi, u32::from(UPLINK), qers),
        )
    }

    /// Members of the default downlink PDR.
    pub(super) fn default_downlink(&self) -> Vec<Ie> {
        let habits = self.habits();
        self.downlink_pdr(DOWNLINK, habits.precedence, None, habits.qer_ids[1])
    }

    fn downlink_pdr(
        &self,
        id: u16,
        precedence: u32,
        filter: Option<&str>,
        qers: &[u32],
    ) -> Vec<Ie> {
        let pdi = self.pdi(SourceInterfaceValue::Core, filter);
        self.pdr(id, precedence, pdi, u32::from(DOWNLINK), qers)
    }

    /// Members of a PDR; those whose packets come through a tunnel take it off.
    fn pdr(&self, id: u16, precedence: u32, pdi: Pdi, far: u32, qers: &[u32]) -> Vec<Ie> {
        let habits = self.habits();
        let downlink = pdi.source_interface.value == SourceInterfaceValue::Core;
        let urrs: Vec<u32> = match (self.urrs.as_slice(), habits.urrs) {
            (own @ [_, ..], _) => own.iter().map(|urr| urr.id).collect(),
            ([], Urrs::Threshold) if downlink => vec![1],
            ([], Urrs::Periodic) => vec![1, 2],
            ([], _) => Vec::new(),
        };
        let removal = match self.upf_n3 {
            _ if habits.removes_any => 6,
            Addresses { v6: None, .. } => 0,
            Addresses { v4: None, .. } => 1,
            _ => 6,
        };
        let mut ies = vec![PdrId::new(id).to_ie(), Precedence::new(precedence).to_ie()];
        if !downlink {
            let removal = OuterHeaderRemoval::new(removal).marshal().to_vec();
            ies.push(Ie::new(IeType::OuterHeaderRemoval, removal));
        }
        ies.push(FarId::new(far).to_ie());
        let at = if habits.pdi_last { ies.len() } else { 2 };
        ies.insert(at, pdi.to_ie());
        ies.extend(urrs.into_iter().map(|id| UrrId::new(id).to_ie()));
        ies.extend(qers.iter().map(|id| QerId::new(*id).to_ie()));
        ies
    }

    fn pdi(&self, source: SourceInterfaceValue, filter: Option<&str>) -> Pdi {
        let habits = self.habits();
        let mut pdi = Pdi::new(SourceInterface::new(source));
        pdi.network_instance = self.instance();
        let downlink = source == SourceInterfaceValue::Core;
        pdi.ue_ip_addresses = match self.addresses {
            _ if !(downlink || habits.uplink_ue || self.uplink_ue) => Vec::new(),
            Requested::Given(Addresses { v4, v6 }) => vec![UeIpAddress::new(v4, v6)],
            Requested::Choose { v4, v6 } => vec![UeIpAddress::choose(v4, v6)],
        };
        for address in &mut pdi.ue_ip_addresses {
            address.source_destination = downlink && habits.destination_flag;
            let len = self.v6_len.filter(|_| address.v6 || address.choose_ipv6);
            address.ipv6_prefix_length_present = len.is_some();
            address.ipv6_prefix_length = len;
        }
        let filter = filter.or(habits.filter);
        pdi.sdf_filters = filter.map(SdfFilter::new).into_iter().collect();
        pdi.three_gpp_interface_type = habits.source_types.map(|of| interface_type(of, downlink));
        pdi.ies.clone_from(&self.pdi);
        if self.endpoints {
            pdi.network_instance = None;
            pdi.ue_ip_addresses.clear();
            pdi.ies.push(endpoint_id(source));
        }
        pdi
    }

    /// The Network Instance as the style writes it.
    pub(super) fn instance(&self) -> Option<NetworkInstance> {
        match self.habits().name {
            Name::Absent => None,
            Name::Plain => Some(NetworkInstance::new(&self.network_instance)),
            Name::Labels => Some(NetworkInstance::new(&labels(&self.network_instance))),
        }
    }

    /// Forwarding parameters to the core (uplink) or to access.
    fn forwarding(&self, to: Interface, gnb: Option<&TunnelEnd>) -> ForwardingParameters {
        let mut parameters = ForwardingParameters::new(DestinationInterface::new(to));
        parameters.outer_header_creation = gnb.map(TunnelEnd::header);
        let downlink = to == Interface::Access;
        // As long as no gNB is known, its network is not named either.
        parameters.network_instance = self.instance().filter(|_| !downlink || gnb.is_some());
        let types = self.habits().destination_types;
        parameters.three_gpp_interface_type = types.map(|of| interface_type(of, downlink));
        parameters
    }

    fn uplink_far(&self) -> Ie {
        let far = CreateFar::new(FarId::new(u32::from(UPLINK)), FORW);
        let parameters = self.forwarding(self.habits().core, None);
        match self.policy.filter(|_| self.habits().policy[0]) {
            Some(policy) => steered(UPLINK, &parameters, policy),
            None => far.with_forwarding_parameters(parameters).to_ie(),
        }
    }

    fn downlink_far(&self, gnb: Option<&TunnelEnd>) -> Ie {
        let id = FarId::new(u32::from(DOWNLINK));
        let access = |gnb| self.forwarding(Interface::Access, gnb);
        let policy = self.policy.filter(|_| self.habits().policy[1]);
        if let (Some(policy), Some(_)) = (policy, gnb) {
            return steered(DOWNLINK, &access(gnb), policy);
        }
        let far = match (gnb, self.habits().early) {
            (Some(_), _) => CreateFar::new(id, FORW).with_forwarding_parameters(access(gnb)),
            (None, Early::Buffer) => CreateFar::new(id, BUFF_NOCP).with_bar_id(BarId::new(1)),
            (None, Early::ForwardNowhere) => {
                CreateFar::new(id, FORW).with_forwarding_parameters(access(None))
            }
            (None, Early::Drop | Early::NoRules) => CreateFar::new(id, DROP),
            (None, Early::DropAtZero) => {
                let zero = TunnelEnd::at(Ipv4Addr::UNSPECIFIED, 0);
                CreateFar::new(id, DROP).with_forwarding_parameters(access(Some(&zero)))
            }
        };
        far.to_ie()
    }

    /// Create QERs of those that are wanted; the first one's gates are the session's.
    fn qers(&self, wanted: impl Fn(u32) -> bool) -> Vec<Ie> {
        let habits = self.habits();
        let qers = habits.qers.iter().filter(|qer| wanted(qer.id));
        let create = |qer: &super::style::Qer| {
            let gates = if session_qer(self.style) == Some(qer.id) {
                self.gates
            } else {
                Gates::OPEN
            };
            let qfi = if qer.qfi { self.qfi } else { 0 };
            let mut members = vec![QerId::new(qer.id).to_ie(), gates.status()];
            members.push(Ie::new(IeType::Qfi, vec![qfi]));
            if let Some((up, down)) = self.mbr_kbps.filter(|_| qer.mbr) {
                members.push(Ie::new(IeType::Mbr, Mbr::new(up, down).marshal().to_vec()));
            }
            members.sort_by_key(|ie| habits.qer_order.iter().position(|kind| *kind == ie.ie_type));
            Ie::new_grouped(IeType::CreateQer, members)
        };
        qers.map(create).collect()
    }

    /// The URRs that were asked for, or the style's own.
    fn urrs(&self) -> Vec<Urr> {
        if !self.urrs.is_empty() {
            return self.urrs.clone();
        }
        match self.habits().urrs {
            Urrs::None => Vec::new(),
            Urrs::Threshold => vec![usual_urrs::at_100_mib(1)],
            Urrs::Periodic => usual_urrs::before_and_after_qos([1, 2]),
            Urrs::Unnamed => usual_urrs::periodic_and_quota([1, 2]),
        }
    }

    /// Whether IPv4 and IPv6 are asked for.
    fn wanted(&self) -> (bool, bool) {
        match self.addresses {
            Requested::Given(Addresses { v4, v6 }) => (v4.is_some(), v6.is_some()),
            Requested::Choose { v4, v6 } => (v4, v6),
        }
    }

    /// The UPF's end of the tunnel and the UE's addresses, from the Created PDRs and what was given.
    pub(super) fn outcome(
        &self,
        teid: u32,
        created: &[CreatedPdr],
    ) -> Result<(TunnelEnd, Addresses)> {
        let uplink = match self.habits().f_teid {
            // Nothing needs to be created, or told, when the SMF chose.
            FTeidBy::Smf => TunnelEnd {
                addresses: self.upf_n3,
                teid,
            },
            FTeidBy::Upf { .. } => {
                let pdr = created.iter().find(|pdr| pdr.pdr_id.value == UPLINK);
                let f_teid = pdr.and_then(|pdr| pdr.f_teid.as_ref());
                let f_teid = f_teid.context("no F-TEID was chosen for the uplink PDR")?;
                let end = TunnelEnd::of(f_teid);
                let families = |of: Addresses| (of.v4.is_some(), of.v6.is_some());
                let (asked, told) = (families(self.upf_n3), families(end.addresses));
                anyhow::ensure!(asked == told, "F-TEID at {:?}", end.addresses);
                end
            }
        };
        let addresses = match self.addresses {
            Requested::Given(addresses) => addresses,
            Requested::Choose { v4, v6 } => {
                let chosen: Vec<_> = created
                    .iter()
                    .flat_map(|pdr| &pdr.ue_ip_addresses)
                    .collect();
                let ipv4 = chosen.iter().find_map(|a| a.ipv4_address);
                let ipv6 = chosen.iter().find_map(|a| a.ipv6_address).map(first_host);
                anyhow::ensure!(
                    ipv4.is_some() == v4 && ipv6.is_some() == v6,
                    "UE address missing"
                );
                Addresses { v4: ipv4, v6: ipv6 }
            }
        };
        Ok((uplink, addresses))
    }
}

pub(super) fn given_f_teid(teid: u32, addresses: Addresses) -> Fteid {
    let Addresses { v4, v6 } = addresses;
    Fteid::new(v4.is_some(), v6.is_some(), teid, v4, v6, 0)
}

/// A Create FAR that forwards, and names a forwarding policy.
fn steered(id: u16, parameters: &ForwardingParameters, policy: &str) -> Ie {
    let parameters = [
        parameters.to_ie().payload,
        forwarding_policy(policy).marshal(),
    ]
    .concat();
    let members = vec![
        FarId::new(u32::from(id)).to_ie(),
        Ie::new(IeType::ApplyAction, vec![FORW.0, 0]),
        Ie::new(IeType::ForwardingParameters, parameters),
    ];
    Ie::new_grouped(IeType::CreateFar, members)
}

/// Forwarding Policy by hand (TS 29.244, 8.2.23), because rs-pfcp 0.5 leaves out the length of the identifier.
fn forwarding_policy(identifier: &str) -> Ie {
    let octets = [&[identifier.len() as u8], identifier.as_bytes()].concat();
    Ie::new(IeType::ForwardingPolicy, octets)
}

/// An Update FAR: the uplink FAR names another forwarding policy.
pub fn steer_uplink(identifier: &str) -> Ie {
    let parameters = vec![forwarding_policy(identifier)];
    let members = vec![
        FarId::new(u32::from(UPLINK)).to_ie(),
        Ie::new_grouped(IeType::UpdateForwardingParameters, parameters),
    ];
    Ie::new_grouped(IeType::UpdateFar, members)
}

/// The Traffic Endpoint ID of a side.
fn endpoint_id(source: SourceInterfaceValue) -> Ie {
    let id = if source == SourceInterfaceValue::Access {
        1
    } else {
        2
    };
    Ie::new(IeType::TrafficEndpointId, vec![id])
}

/// IDs and addresses that were created for an endpoint, as if for the PDR of its side.
pub(super) fn as_pdr(endpoint: &CreatedTrafficEndpoint) -> CreatedPdr {
    let id = if endpoint.traffic_endpoint_id.id == 1 {
        UPLINK
    } else {
        DOWNLINK
    };
    let mut pdr = CreatedPdr::new(PdrId::new(id));
    pdr.f_teid.clone_from(&endpoint.local_f_teid);
    pdr.ue_ip_addresses.extend(endpoint.ue_ip_address.clone());
    pdr
}

/// The UE has another IPv4 address.
pub fn update_endpoints(v4: Ipv4Addr) -> Vec<Ie> {
    let update = |source, destination| {
        let mut address = UeIpAddress::new(Some(v4), None);
        address.source_destination = destination;
        let members = vec![endpoint_id(source), address.to_ie()];
        Ie::new_grouped(IeType::UpdateTrafficEndpoint, members)
    };
    vec![
        update(SourceInterfaceValue::Access, false),
        update(SourceInterfaceValue::Core, true),
    ]
}

/// A name as DNNs are written in messages.
fn labels(name: &str) -> String {
    let label = |label: &str| format!("{}{label}", char::from(label.len() as u8));
    name.split('.').map(label).collect()
}

/// The first for uplink, the second for downlink.
pub(super) fn interface_type(
    of: [ThreeGppInterfaceType; 2],
    downlink: bool,
) -> ThreeGppInterfaceTypeIe {
    ThreeGppInterfaceTypeIe::new(of[usize::from(downlink)])
}

/// The QER that has the session's gates and MBR.
pub(super) fn session_qer(style: Style) -> Option<u32> {
    style.habits().qers.first().map(|qer| qer.id)
}

/// The first address of a prefix, when the prefix itself was given.
fn first_host(prefix: Ipv6Addr) -> Ipv6Addr {
    let bits = u128::from(prefix);
    if bits as u64 == 0 {
        Ipv6Addr::from(bits | 1)
    } else {
        prefix
    }
}

const DROP: ApplyActionOctet = ApplyActionOctet(0b0001);
pub(super) const FORW: ApplyActionOctet = ApplyActionOctet(0b0010);
pub(super) const BUFF_NOCP: ApplyActionOctet = ApplyActionOctet(0b1100);

/// The first octet of an Apply Action (TS 29.244, 8.2.26).
#[derive(Clone, Copy)]
pub(super) struct ApplyActionOctet(pub(super) u8);

impl From<ApplyActionOctet> for ApplyAction {
    fn from(octet: ApplyActionOctet) -> Self {
        Self::new(octet.0)
    }
}

/// Identifiers of flow number `index`: uplink PDR, downlink PDR, QER.
fn flow_ids(index: u16) -> [u16; 3] {
    [10 + 2 * index, 11 + 2 * index, 10 + index]
}

/// IEs that add a flow to a session that is there, on its own tunnel and addresses.
pub(super) fn add_flow(session: &Session, index: u16, flow: &Flow) -> Vec<Ie> {
    let plan = SessionPlan {
        more: Vec::new(),
        addresses: Requested::Given(session.addresses),
        ..session.plan.clone()
    };
    let TunnelEnd { addresses, teid } = session.uplink_end;
    let f_teid = given_f_teid(teid, addresses);
    plan.flow_rules(index, flow, &f_teid).into()
}

/// IEs that add a flow as SMFs do that name neither tunnel nor address in its PDIs: the uplink PDR has the
/// filter and gives it an ID, the downlink PDR has the ID alone.
pub(super) fn add_bare_flow(index: u16, flow: &Flow) -> Vec<Ie> {
    let whole = sdf_filter(Some(&flow.filter), u32::from(index) + 1);
    let id_alone = sdf_filter(None, u32::from(index) + 1);
    told_by(index, flow.precedence, flow.gates, [whole, id_alone])
}

/// A flow that is told by an Application ID.
pub(super) fn add_application(index: u16, name: &str, precedence: u32, gates: Gates) -> Vec<Ie> {
    let application = ApplicationId::new(name).marshal().to_vec();
    let application = Ie::new(IeType::ApplicationId, application);
    told_by(index, precedence, gates, [application.clone(), application])
}

/// PDRs with nothing in their PDIs but this, uplink and downlink, and their QER.
fn told_by(index: u16, precedence: u32, gates: Gates, [up, down]: [Ie; 2]) -> Vec<Ie> {
    let [uplink, downlink, qer] = flow_ids(index);
    let pdr = |id: u16, source: u8, far: u16, filter| {
        let pdi = vec![Ie::new(IeType::SourceInterface, vec![source]), filter];
        let mut members = vec![
            PdrId::new(id).to_ie(),
            Precedence::new(precedence).to_ie(),
            Ie::new_grouped(IeType::Pdi, pdi),
            FarId::new(u32::from(far)).to_ie(),
            QerId::new(u32::from(qer)).to_ie(),
        ];
        if source == 0 {
            members.push(Ie::new(IeType::OuterHeaderRemoval, vec![0]));
        }
        Ie::new_grouped(IeType::CreatePdr, members)
    };
    let members = vec![QerId::new(u32::from(qer)).to_ie(), gates.status()];
    vec![
        pdr(uplink, 0, UPLINK, up),
        pdr(downlink, 1, DOWNLINK, down),
        Ie::new_grouped(IeType::CreateQer, members),
    ]
}

/// SDF Filter by hand (TS 29.244, 8.2.5), because rs-pfcp 0.5 knows descriptions only.
fn sdf_filter(description: Option<&str>, id: u32) -> Ie {
    let mut octets = vec![u8::from(description.is_some()) | 1 << 4, 0];
    if let Some(text) = description {
        octets.extend((text.len() as u16).to_be_bytes());
        octets.extend(text.as_bytes());
    }
    octets.extend(id.to_be_bytes());
    Ie::new(IeType::SdfFilter, octets)
}

/// IEs that remove a flow.
pub(super) fn remove_flow(index: u16) -> Vec<Ie> {
    let [uplink, downlink, qer] = flow_ids(index);
    let pdr = |id| Ie::new_grouped(IeType::RemovePdr, vec![PdrId::new(id).to_ie()]);
    let qer = QerId::new(u32::from(qer)).to_ie();
    vec![
        pdr(uplink),
        pdr(downlink),
        Ie::new_grouped(IeType::RemoveQer, vec![qer]),
    ]
}

/// An Update FAR: the downlink FAR forwards into a gNB's tunnel.
pub fn forward_downlink(gnb: IpAddr, teid: u32) -> Ie {
    forward_into(&TunnelEnd::at(gnb, teid))
}

/// The same, where the gNB has an address of each family.
fn forward_into(gnb: &TunnelEnd) -> Ie {
    let parameters = UpdateForwardingParameters::new()
        .with_destination_interface(DestinationInterface::new(Interface::Access))
        .with_outer_header_creation(gnb.header());
    let id = FarId::new(u32::from(DOWNLINK));
    UpdateFar::new(id, Some(FORW.into()), Some(parameters), None, None).to_ie()
}

/// The session's QER opens or closes its gates.
pub(super) fn update_qer_gates(session: &Session, gates: Gates) -> Vec<Ie> {
    update_qer(session, vec![gates.status()])
}

/// The downlink PDR gets these.
pub(super) fn update_downlink_pdr(what: Vec<Ie>) -> Ie {
    let mut members = vec![PdrId::new(DOWNLINK).to_ie()];
    members.extend(what);
    Ie::new_grouped(IeType::UpdatePdr, members)
}

/// The session's QER gets these; nothing, where the style has none.
pub(super) fn update_qer(session: &Session, what: Vec<Ie>) -> Vec<Ie> {
    let update = |id| {
        let mut members = vec![QerId::new(id).to_ie()];
        members.extend(what.clone());
        Ie::new_grouped(IeType::UpdateQer, members)
    };
    session_qer(session.plan.style)
        .map(update)
        .into_iter()
        .collect()
}

/// The session's QER gets another MBR.
pub(super) fn update_qer_mbr(session: &Session, up_kbps: u64, down_kbps: u64) -> Vec<Ie> {
    let mbr = Mbr::new(up_kbps, down_kbps).marshal().to_vec();
    update_qer(session, vec![Ie::new(IeType::Mbr, mbr)])
}
