//! PFCP requests for load: built once by rs-pfcp, then patched per user.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::SystemTime;

use anyhow::{Context, Result, ensure};
use rs_pfcp::ie::apply_action::ApplyAction;
use rs_pfcp::ie::create_far::CreateFar;
use rs_pfcp::ie::create_pdr::CreatePdrBuilder;
use rs_pfcp::ie::create_qer::CreateQerBuilder;
use rs_pfcp::ie::destination_interface::{DestinationInterface, Interface};
use rs_pfcp::ie::f_teid::Fteid;
use rs_pfcp::ie::far_id::FarId;
use rs_pfcp::ie::forwarding_parameters::ForwardingParameters;
use rs_pfcp::ie::framed_route::FramedRoute;
use rs_pfcp::ie::gate_status::{GateStatus, GateStatusValue};
use rs_pfcp::ie::network_instance::NetworkInstance;
use rs_pfcp::ie::outer_header_creation::OuterHeaderCreation;
use rs_pfcp::ie::outer_header_removal::OuterHeaderRemoval;
use rs_pfcp::ie::pdi::PdiBuilder;
use rs_pfcp::ie::pdr_id::PdrId;
use rs_pfcp::ie::precedence::Precedence;
use rs_pfcp::ie::qer_id::QerId;
use rs_pfcp::ie::qfi::Qfi;
use rs_pfcp::ie::reporting_triggers::ReportingTriggers;
use rs_pfcp::ie::sdf_filter::SdfFilter;
use rs_pfcp::ie::source_interface::{SourceInterface, SourceInterfaceValue};
use rs_pfcp::ie::ue_ip_address::UeIpAddress;
use rs_pfcp::ie::update_far::UpdateFarBuilder;
use rs_pfcp::ie::update_forwarding_parameters::UpdateForwardingParameters;
use rs_pfcp::ie::urr_id::UrrId;
use rs_pfcp::message::association_setup_request::AssociationSetupRequestBuilder;
use rs_pfcp::message::session_deletion_request::SessionDeletionRequestBuilder;
use rs_pfcp::message::session_establishment_request::SessionEstablishmentRequestBuilder;
use rs_pfcp::message::session_modification_request::SessionModificationRequestBuilder;

use crate::smf::Urr;

/// Addresses of the emulated network.
#[derive(Clone, Copy, Debug)]
pub(super) struct Addresses {
    /// The SMF, and Node ID.
    pub(super) smf: Ipv4Addr,
    /// The UPF's N3 address.
    pub(super) n3: Ipv4Addr,
    /// The gNB.
    pub(super) gnb: Ipv4Addr,
    /// First UE address; user `i` has `first + i`.
    pub(super) first_ue: Ipv4Addr,
}

impl Addresses {
    /// Address of user `index`.
    pub(super) fn ue(&self, index: u32) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.first_ue) + index)
    }
}

/// A message with places to write into.
#[derive(Clone)]
pub(super) struct Template {
    bytes: Vec<u8>,
    places: Vec<(Field, usize)>,
}

/// Fields that differ from one message to the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Field {
    /// Sequence number, in the header.
    Sequence,
    /// SEID in the header.
    Seid,
    /// The SMF's own SEID.
    CpSeid,
    /// TEID of the uplink F-TEID.
    UplinkTeid,
    /// TEID at the gNB.
    GnbTeid,
    /// UE address.
    UeAddress,
}

const SENTINEL_SEID: u64 = 0xa1b2_c3d4_e5f6_0718;
const SENTINEL_CP_SEID: u64 = 0x91a2_b3c4_d5e6_f708;
const SENTINEL_UPLINK: u32 = 0xf1e2_d3c4;
const SENTINEL_GNB: u32 = 0xe9d8_c7b6;
const SENTINEL_UE: u32 = 0xdead_bee1;
const SENTINEL_SEQUENCE: u32 = 0x00b7_a695;

impl Template {
    fn new(bytes: Vec<u8>, wanted: &[(Field, usize)]) -> Result<Self> {
        let mut places = Vec::new();
        for &(field, times) in wanted {
            let pattern: Vec<u8> = match field {
                Field::Sequence => SENTINEL_SEQUENCE.to_be_bytes()[1..].to_vec(),
                Field::Seid => SENTINEL_SEID.to_be_bytes().to_vec(),
                Field::CpSeid => SENTINEL_CP_SEID.to_be_bytes().to_vec(),
                Field::UplinkTeid => SENTINEL_UPLINK.to_be_bytes().to_vec(),
                Field::GnbTeid => SENTINEL_GNB.to_be_bytes().to_vec(),
                Field::UeAddress => SENTINEL_UE.to_be_bytes().to_vec(),
            };
            let found: Vec<usize> = (0..bytes.len())
                .filter(|&at| bytes[at..].starts_with(&pattern))
                .collect();
            ensure!(
                found.len() == times,
                "{field:?} stands {} times",
                found.len()
            );
            places.extend(found.into_iter().map(|at| (field, at)));
        }
        Ok(Self { bytes, places })
    }

    /// Append one message to `out`.
    pub(super) fn write(&self, out: &mut Vec<u8>, value: impl Fn(Field) -> u64) {
        let start = out.len();
        out.extend_from_slice(&self.bytes);
        for &(field, at) in &self.places {
            let width = match field {
                Field::Sequence => 3,
                Field::Seid | Field::CpSeid => 8,
                _ => 4,
            };
            let bytes = value(field).to_be_bytes();
            out[start + at..start + at + width].copy_from_slice(&bytes[8 - width..]);
        }
    }
}

/// Association Setup Request.
pub(super) fn association(addresses: &Addresses, sequence: u32) -> Vec<u8> {
    AssociationSetupRequestBuilder::new(sequence)
        .node_id(addresses.smf)
        .recovery_time_stamp(SystemTime::now())
        .marshal()
}

fn tunnel(addresses: &Addresses) -> OuterHeaderCreation {
    OuterHeaderCreation::gtpu_ipv4(SENTINEL_GNB, addresses.gnb)
}

/// Purpose that sessions are established for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shape {
    /// IPv4 between N3 and N6.
    Plain,
    /// The same, with two PDRs more, tried first, each with so many SDF filters that no packet of the
    /// measurement matches: of its protocol and to its address, but of other ports.
    Filters(u16),
    /// IPv6 between N3 and N6, a /64 for each user.
    Ipv6,
    /// Uplink goes on in a tunnel: N9.
    Relay,
    /// The plain one, with a framed route.
    Framed,
    /// Both PDRs name so many URRs, each with a Volume Threshold of so many octets.
    Measured(u32, u64),
}

/// The /64 of the user who would have this IPv4 address.
pub(super) fn prefix(ue: Ipv4Addr) -> Ipv6Addr {
    Ipv6Addr::from(0x2001_0db8 << 96 | u128::from(u32::from(ue)) << 64)
}

/// Session Establishment Request: 2 PDRs, 2 FARs, 1 QER with MBR and QFI.
pub(super) fn establishment(addresses: &Addresses, shape: Shape) -> Result<Template> {
    let instance = || NetworkInstance::new("internet");
    let ue4 = Ipv4Addr::from(SENTINEL_UE);
    let ue = || match shape {
        Shape::Ipv6 => UeIpAddress::new(None, Some(prefix(ue4))),
        _ => UeIpAddress::new(Some(ue4), None),
    };
    let filters = match shape {
        Shape::Filters(filters) => filters,
        _ => 0,
    };
    let filtered = |mut pdi: PdiBuilder, filters: u16| {
        for n in 0..filters {
            let text = format!("permit out 17 from any {} to assigned", 10_000 + n);
            pdi = pdi.sdf_filter(SdfFilter::new(&text));
        }
        if shape == Shape::Framed {
            pdi = pdi.ie(FramedRoute::new("198.51.100.0/24 0.0.0.0 1").to_ie());
        }
        pdi
    };
    let (urrs, threshold) = match shape {
        Shape::Measured(urrs, threshold) => (urrs, threshold),
        _ => (0, 0),
    };
    let measured = |pdr: CreatePdrBuilder| {
        let ids = (1..=urrs).map(UrrId::new);
        ids.fold(pdr, CreatePdrBuilder::urr_id)
    };
    let uplink = |id, precedence, filters| {
        let pdi = PdiBuilder::new(SourceInterface::new(SourceInterfaceValue::Access))
            .f_teid(Fteid::ipv4(SENTINEL_UPLINK, addresses.n3))
            .network_instance(instance())
            .ue_ip_address(ue());
        measured(CreatePdrBuilder::new(PdrId::new(id)))
            .precedence(Precedence::new(precedence))
            .pdi(filtered(pdi, filters).build()?)
            .outer_header_removal(OuterHeaderRemoval::new(0))
            .far_id(FarId::new(1))
            .qer_id(QerId::new(1))
            .build()
    };
    let downlink = |id, precedence, filters| {
        let pdi = PdiBuilder::new(SourceInterface::new(SourceInterfaceValue::Core))
            .network_instance(instance())
            .ue_ip_address(ue());
        measured(CreatePdrBuilder::new(PdrId::new(id)))
            .precedence(Precedence::new(precedence))
            .pdi(filtered(pdi, filters).build()?)
            .far_id(FarId::new(2))
            .qer_id(QerId::new(1))
            .build()
    };
    let forward = || ApplyAction::new(2);
    let mut onward = ForwardingParameters::new(DestinationInterface::new(Interface::Core))
        .with_network_instance(instance());
    if shape == Shape::Relay {
        onward = onward.with_outer_header_creation(tunnel(addresses));
    }
    let to_core = CreateFar::new(FarId::new(1), forward()).with_forwarding_parameters(onward);
    let to_access = CreateFar::new(FarId::new(2), forward()).with_forwarding_parameters(
        ForwardingParameters::new(DestinationInterface::new(Interface::Access))
            .with_outer_header_creation(tunnel(addresses)),
    );
    let qer = CreateQerBuilder::new(QerId::new(1))
        .gate_status(GateStatus::new(
            GateStatusValue::Open,
            GateStatusValue::Open,
        ))
        .qfi(Qfi::new(9)?)
        .rate_limit(100_000_000, 100_000_000);
    let qer = qer.build()?;
    let mut request = SessionEstablishmentRequestBuilder::new(0u64, SENTINEL_SEQUENCE)
        .node_id(addresses.smf)
        .fseid(SENTINEL_CP_SEID, addresses.smf)
        .add_pdr(uplink(1, 255, 0)?)
        .add_pdr(downlink(2, 255, 0)?);
    if filters > 0 {
        request = request
            .add_pdr(uplink(3, 100, filters)?)
            .add_pdr(downlink(4, 100, filters)?);
    }
    let triggers = ReportingTriggers::new().with_volume_threshold(true);
    let urr = |id| {
        Ok(Urr::of_volume(id, triggers.clone())
            .threshold(threshold)?
            .create())
    };
    let bytes = request
        .add_far(to_core)
        .add_far(to_access)
        .create_urrs((1..=urrs).map(urr).collect::<Result<_>>()?)
        .add_qer(qer)
        .marshal()?;
    let pairs = if filters > 0 { 2 } else { 1 };
    Template::new(
        bytes,
        &[
            (Field::Sequence, 1),
            (Field::CpSeid, 1),
            (Field::UplinkTeid, pairs),
            (Field::GnbTeid, if shape == Shape::Relay { 2 } else { 1 }),
            (Field::UeAddress, 2 * pairs),
        ],
    )
    .context("Session Establishment Request")
}

/// Session Modification Request: Update FAR 2 with a new tunnel.
pub(super) fn path_switch(addresses: &Addresses) -> Result<Template> {
    let parameters =
        UpdateForwardingParameters::new().with_outer_header_creation(tunnel(addresses));
    let far = UpdateFarBuilder::new(FarId::new(2))
        .apply_action(ApplyAction::new(2))
        .update_forwarding_parameters(parameters)
        .build()?;
    let bytes = SessionModificationRequestBuilder::new(SENTINEL_SEID, SENTINEL_SEQUENCE)
        .add_update_far(far)
        .marshal();
    let wanted = [(Field::Sequence, 1), (Field::Seid, 1), (Field::GnbTeid, 1)];
    Template::new(bytes, &wanted).context("Session Modification Request")
}

/// Session Modification Request: the user of FAR 2 is idle, its packets wait, and the SMF is to hear of them.
pub(super) fn idle() -> Result<Template> {
    let far = UpdateFarBuilder::new(FarId::new(2))
        .apply_action(ApplyAction::new(0x0c))
        .build()?;
    let bytes = SessionModificationRequestBuilder::new(SENTINEL_SEID, SENTINEL_SEQUENCE)
        .add_update_far(far)
        .marshal();
    Template::new(bytes, &[(Field::Sequence, 1), (Field::Seid, 1)])
        .context("Session Modification Request")
}

/// Session Deletion Request.
pub(super) fn deletion() -> Result<Template> {
    let bytes = SessionDeletionRequestBuilder::new(SENTINEL_SEID, SENTINEL_SEQUENCE).marshal();
    Template::new(bytes, &[(Field::Sequence, 1), (Field::Seid, 1)])
        .context("Session Deletion Request")
}
