//! What sessions look like on N4: the habits of two widely used SMFs, and the rules they send.

use std::net::{IpAddr, Ipv6Addr};

use std::net::Ipv4Addr;

use anyhow::{Context, Result};
use rs_pfcp::ie::application_id::ApplicationId;
use rs_pfcp::ie::apply_action::ApplyAction;
use rs_pfcp::ie::bar_id::BarId;
use rs_pfcp::ie::create_bar::CreateBar;
use rs_pfcp::ie::create_far::CreateFar;
use rs_pfcp::ie::create_pdr::CreatePdr;
use rs_pfcp::ie::create_urr::CreateUrr;
use rs_pfcp::ie::created_pdr::CreatedPdr;
use rs_pfcp::ie::created_traffic_endpoint::CreatedTrafficEndpoint;
use rs_pfcp::ie::destination_interface::{DestinationInterface, Interface};
use rs_pfcp::ie::f_teid::Fteid;
use rs_pfcp::ie::far_id::FarId;
use rs_pfcp::ie::forwarding_parameters::ForwardingParameters;
use rs_pfcp::ie::mbr::Mbr;
use rs_pfcp::ie::measurement_method::MeasurementMethod;
use rs_pfcp::ie::network_instance::NetworkInstance;
use rs_pfcp::ie::outer_header_removal::OuterHeaderRemoval;
use rs_pfcp::ie::pdi::Pdi;
use rs_pfcp::ie::pdr_id::PdrId;
use rs_pfcp::ie::precedence::Precedence;
use rs_pfcp::ie::qer_id::QerId;
use rs_pfcp::ie::qfi::Qfi;
use rs_pfcp::ie::reporting_triggers::ReportingTriggers;
use rs_pfcp::ie::sdf_filter::SdfFilter;
use rs_pfcp::ie::source_interface::{SourceInterface, SourceInterfaceValue};
use rs_pfcp::ie::ue_ip_address::UeIpAddress;
use rs_pfcp::ie::update_far::UpdateFar;
use rs_pfcp::ie::update_forwarding_parameters::UpdateForwardingParameters;
use rs_pfcp::ie::urr_id::UrrId;
use rs_pfcp::ie::{Ie, IeType};

use super::{Session, TunnelEnd, Urr};
use crate::ue::Addresses;

const UPLINK: u16 = 1;
const DOWNLINK: u16 = 2;
const SESSION_QER: u32 = 1;
const FLOW_QER: u32 = 2;
const DEFAULT_PRECEDENCE: u32 = 255;
const CHOOSE_ID: u8 = 5;

/// Whose habits a session follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// F-TEID by CHOOSE with CHOOSE ID, a BAR, one QER, removal description 6 for dual stack.
    Open5gs,
    /// Own TEIDs, two QERs on each PDR, downlink that is forwarded without a tunnel at first.
    Free5gc,
}

/// Where the UE's addresses come from.
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
    /// Whose habits.
    pub style: Style,
    /// The UE's addresses.
    pub addresses: Requested,
    /// Network instance of all rules.
    pub network_instance: String,
    /// The UPF on N3: what F-TEIDs that the SMF chooses say, and which families it asks for.
    pub upf_n3: Addresses,
    /// QFI of the default flow.
    pub qfi: u8,
    /// Whether the uplink PDI asks for that QFI.
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
}

impl SessionPlan {
    /// The rules of the establishment. `teid` is the SMF's choice, where the style asks for one.
    pub(super) fn rules(&self, teid: u32) -> Result<Vec<Ie>> {
        let f_teid = self.uplink_f_teid(teid);
        let mut ies = Vec::new();
        for (index, flow) in self.flows.iter().enumerate() {
            ies.extend(self.flow_rules(index as u16, flow, &f_teid));
        }
        let qers: &[u32] = match self.style {
            Style::Open5gs => &[SESSION_QER],
            Style::Free5gc => &[SESSION_QER, FLOW_QER],
        };
        ies.push(self.uplink_pdr(UPLINK, DEFAULT_PRECEDENCE, &f_teid, None, qers));
        ies.push(self.downlink_pdr(DOWNLINK, DEFAULT_PRECEDENCE, None, qers));
        if self.endpoints {
            ies.extend(self.traffic_endpoints(&f_teid));
        }
        ies.push(self.uplink_far());
        ies.push(self.downlink_far());
        ies.extend(self.qers());
        match self.urrs.as_slice() {
            [] => ies.push(urr()?),
            urrs => ies.extend(urrs.iter().map(Urr::create)),
        }
        if self.style == Style::Open5gs {
            ies.push(CreateBar::new(BarId::new(1), None).to_ie());
        }
        Ok(ies)
    }

    /// What a PDI says of where packets come by, in endpoints for access (1) and core (2).
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

    fn uplink_f_teid(&self, teid: u32) -> Fteid {
        match self.style {
            Style::Open5gs => {
                let Addresses { v4, v6 } = self.upf_n3;
                let (v4, v6) = (v4.is_some(), v6.is_some());
                Fteid::new_with_choose(v4, v6, true, true, 0, None, None, CHOOSE_ID)
            }
            Style::Free5gc => given_f_teid(teid, self.upf_n3),
        }
    }

    /// The pair of PDRs and the QER of one flow.
    fn flow_rules(&self, index: u16, flow: &Flow, f_teid: &Fteid) -> [Ie; 3] {
        let [uplink, downlink, qer] = flow_ids(index);
        let (filter, qers) = (Some(flow.filter.as_str()), [SESSION_QER, u32::from(qer)]);
        let members = vec![QerId::new(u32::from(qer)).to_ie(), flow.gates.status()];
        [
            self.uplink_pdr(uplink, flow.precedence, f_teid, filter, &qers),
            self.downlink_pdr(downlink, flow.precedence, filter, &qers),
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
        if filter.is_none() && self.match_qfi {
            pdi.qfis = Qfi::new(self.qfi).into_iter().collect();
        }
        let mut pdr = self.pdr(id, precedence, pdi, u32::from(UPLINK), qers);
        let dual = matches!(self.wanted(), (true, true));
        let description = match self.upf_n3 {
            _ if dual && self.style == Style::Open5gs => 6,
            Addresses { v6: None, .. } => 0,
            Addresses { v4: None, .. } => 1,
            _ => 6,
        };
        pdr.outer_header_removal = Some(OuterHeaderRemoval::new(description));
        pdr.to_ie()
    }

    fn downlink_pdr(&self, id: u16, precedence: u32, filter: Option<&str>, qers: &[u32]) -> Ie {
        let pdi = self.pdi(SourceInterfaceValue::Core, filter);
        self.pdr(id, precedence, pdi, u32::from(DOWNLINK), qers)
            .to_ie()
    }

    fn pdr(&self, id: u16, precedence: u32, pdi: Pdi, far: u32, qers: &[u32]) -> CreatePdr {
        let mut pdr = CreatePdr::new(PdrId::new(id), Precedence::new(precedence), pdi);
        pdr.far_id = Some(FarId::new(far));
        pdr.urr_ids = match self.urrs.as_slice() {
            [] => vec![UrrId::new(1)],
            urrs => urrs.iter().map(|urr| UrrId::new(urr.id)).collect(),
        };
        pdr.qer_ids = qers.iter().map(|id| QerId::new(*id)).collect();
        pdr
    }

    fn pdi(&self, source: SourceInterfaceValue, filter: Option<&str>) -> Pdi {
        let mut pdi = Pdi::new(SourceInterface::new(source));
        pdi.network_instance = Some(NetworkInstance::new(&self.network_instance));
        let downlink = source == SourceInterfaceValue::Core;
        pdi.ue_ip_addresses = match self.addresses {
            Requested::Given(Addresses { v4, v6 }) => {
                let mut address = UeIpAddress::new(v4, v6);
                address.source_destination = downlink;
                vec![address]
            }
            Requested::Choose { v4, v6 } if downlink => {
                let mut address = UeIpAddress::choose(v4, v6);
                address.source_destination = true;
                vec![address]
            }
            Requested::Choose { .. } => Vec::new(),
        };
        for address in &mut pdi.ue_ip_addresses {
            let len = self.v6_len.filter(|_| address.v6 || address.choose_ipv6);
            address.ipv6_prefix_length_present = len.is_some();
            address.ipv6_prefix_length = len;
        }
        pdi.sdf_filters = filter.map(SdfFilter::new).into_iter().collect();
        pdi.ies.clone_from(&self.pdi);
        if self.endpoints {
            pdi.network_instance = None;
            pdi.ue_ip_addresses.clear();
            pdi.ies.push(endpoint_id(source));
        }
        pdi
    }

    fn uplink_far(&self) -> Ie {
        let core = DestinationInterface::new(Interface::Core);
        let parameters = ForwardingParameters::new(core)
            .with_network_instance(NetworkInstance::new(&self.network_instance));
        CreateFar::new(FarId::new(u32::from(UPLINK)), FORW)
            .with_forwarding_parameters(parameters)
            .to_ie()
    }

    fn downlink_far(&self) -> Ie {
        let id = FarId::new(u32::from(DOWNLINK));
        let access = ForwardingParameters::new(DestinationInterface::new(Interface::Access));
        let far = match (self.downlink, self.style) {
            (Some(gnb), _) => {
                let access = access.with_outer_header_creation(gnb.header());
                CreateFar::new(id, FORW).with_forwarding_parameters(access)
            }
            (None, Style::Open5gs) => CreateFar::new(id, BUFF_NOCP).with_bar_id(BarId::new(1)),
            (None, Style::Free5gc) => CreateFar::new(id, FORW).with_forwarding_parameters(access),
        };
        far.to_ie()
    }

    fn qers(&self) -> Vec<Ie> {
        let mut session = vec![QerId::new(SESSION_QER).to_ie(), self.gates.status()];
        let mbr = self
            .mbr_kbps
            .map(|(up, down)| Mbr::new(up, down).marshal().to_vec());
        session.extend(mbr.map(|mbr| Ie::new(IeType::Mbr, mbr)));
        let qfi = Ie::new(IeType::Qfi, vec![self.qfi]);
        match self.style {
            Style::Open5gs => {
                session.push(qfi);
                vec![Ie::new_grouped(IeType::CreateQer, session)]
            }
            Style::Free5gc => {
                let flow = vec![QerId::new(FLOW_QER).to_ie(), Gates::OPEN.status(), qfi];
                [session, flow]
                    .map(|members| Ie::new_grouped(IeType::CreateQer, members))
                    .into()
            }
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
        let uplink = match self.style {
            // Nothing needs to be created, or told, when the SMF chose.
            Style::Free5gc => TunnelEnd {
                addresses: self.upf_n3,
                teid,
            },
            Style::Open5gs => {
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

/// The Traffic Endpoint ID of a side.
fn endpoint_id(source: SourceInterfaceValue) -> Ie {
    let id = if source == SourceInterfaceValue::Access {
        1
    } else {
        2
    };
    Ie::new(IeType::TrafficEndpointId, vec![id])
}

/// What was created for an endpoint, as if for the PDR of its side.
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

/// A usage report rule, as SMFs put on every session.
fn urr() -> Result<Ie> {
    let by_volume = MeasurementMethod::new(false, true, false);
    let urr = CreateUrr::builder(UrrId::new(1))
        .measurement_method(by_volume)
        .reporting_triggers(ReportingTriggers::new().with_volume_threshold(true))
        .volume_threshold_bytes(1 << 30)
        .build()
        .context("URR")?;
    Ok(urr.to_ie())
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

const FORW: ApplyActionOctet = ApplyActionOctet(0b0010);
const BUFF_NOCP: ApplyActionOctet = ApplyActionOctet(0b1100);

/// The first octet of an Apply Action (TS 29.244, 8.2.26).
#[derive(Clone, Copy)]
struct ApplyActionOctet(u8);

impl From<ApplyActionOctet> for ApplyAction {
    fn from(octet: ApplyActionOctet) -> Self {
        Self::new(octet.0)
    }
}

/// Identifiers of flow number `index`: uplink PDR, downlink PDR, QER.
fn flow_ids(index: u16) -> [u16; 3] {
    [10 + 2 * index, 11 + 2 * index, 10 + index]
}

/// What adds a flow to a session that is there, on its own tunnel and addresses.
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

/// What adds a flow as SMFs do that name neither tunnel nor address in its PDIs: the uplink PDR has the
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

/// What removes it.
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
pub(super) fn forward_into(gnb: &TunnelEnd) -> Ie {
    let parameters = UpdateForwardingParameters::new()
        .with_destination_interface(DestinationInterface::new(Interface::Access))
        .with_outer_header_creation(gnb.header());
    let id = FarId::new(u32::from(DOWNLINK));
    UpdateFar::new(id, Some(FORW.into()), Some(parameters), None, None).to_ie()
}

/// The downlink FAR buffers and notifies.
pub(super) fn update_far_buffer() -> Ie {
    let id = FarId::new(u32::from(DOWNLINK));
    UpdateFar::new(id, Some(BUFF_NOCP.into()), None, None, None).to_ie()
}

/// The session's QER opens or closes its gates.
pub(super) fn update_qer_gates(gates: Gates) -> Ie {
    let members = vec![QerId::new(SESSION_QER).to_ie(), gates.status()];
    Ie::new_grouped(IeType::UpdateQer, members)
}

/// The downlink PDR gets these.
pub(super) fn update_downlink_pdr(what: Vec<Ie>) -> Ie {
    let mut members = vec![PdrId::new(DOWNLINK).to_ie()];
    members.extend(what);
    Ie::new_grouped(IeType::UpdatePdr, members)
}

/// The session's QER gets these.
pub(super) fn update_qer(what: Vec<Ie>) -> Ie {
    let mut members = vec![QerId::new(SESSION_QER).to_ie()];
    members.extend(what);
    Ie::new_grouped(IeType::UpdateQer, members)
}

/// The session's QER gets another MBR.
pub(super) fn update_qer_mbr(up_kbps: u64, down_kbps: u64) -> Ie {
    let mbr = Mbr::new(up_kbps, down_kbps).marshal().to_vec();
    let members = vec![QerId::new(SESSION_QER).to_ie(), Ie::new(IeType::Mbr, mbr)];
    Ie::new_grouped(IeType::UpdateQer, members)
}
