//! Sessions whose packets go from tunnel to tunnel: rules one by one, as SMFs with several UPFs send them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::Ordering::Relaxed;

use anyhow::{Context, Result};
use rs_pfcp::ie::apply_action::ApplyAction;
use rs_pfcp::ie::create_far::CreateFar;
use rs_pfcp::ie::create_pdr::CreatePdr;
use rs_pfcp::ie::created_pdr::CreatedPdr;
use rs_pfcp::ie::destination_interface::{DestinationInterface, Interface};
use rs_pfcp::ie::f_teid::Fteid;
use rs_pfcp::ie::far_id::FarId;
use rs_pfcp::ie::forwarding_parameters::ForwardingParameters;
use rs_pfcp::ie::fseid::Fseid;
use rs_pfcp::ie::network_instance::NetworkInstance;
use rs_pfcp::ie::outer_header_removal::OuterHeaderRemoval;
use rs_pfcp::ie::pdi::Pdi;
use rs_pfcp::ie::pdr_id::PdrId;
use rs_pfcp::ie::precedence::Precedence;
use rs_pfcp::ie::qer_id::QerId;
use rs_pfcp::ie::sdf_filter::SdfFilter;
use rs_pfcp::ie::source_interface::{SourceInterface, SourceInterfaceValue};
use rs_pfcp::ie::three_gpp_interface_type::{ThreeGppInterfaceType, ThreeGppInterfaceTypeIe};
use rs_pfcp::ie::ue_ip_address::UeIpAddress;
use rs_pfcp::ie::{Ie, IeType};
use rs_pfcp::message::MsgType;

use super::{Session, Smf, TunnelEnd};

/// SNDEM (TS 29.244, 8.2.30).
const SEND_END_MARKER: u8 = 0b10;

/// A session made of single rules.
pub struct RuleSession {
    /// The UPF's SEID.
    pub up_seid: u64,
    /// The tunnels that the UPF chose, by PDR.
    pub f_teids: HashMap<u16, (IpAddr, u32)>,
}

impl RuleSession {
    /// The tunnel of a PDR.
    pub fn tunnel(&self, pdr: u16) -> Result<(IpAddr, u32)> {
        self.f_teids
            .get(&pdr)
            .copied()
            .with_context(|| format!("no F-TEID was chosen for PDR {pdr}"))
    }
}

/// A PDR by a tunnel of the UPF's choice. PDRs with one `choose` share the tunnel.
#[derive(Clone, Debug)]
pub struct TunnelPdr<'a> {
    /// PDR ID.
    pub id: u16,
    /// Lower is tried first.
    pub precedence: u32,
    /// The side that packets come from.
    pub source: SourceInterfaceValue,
    /// 3GPP Interface Type, where the side does not say it.
    pub kind: Option<ThreeGppInterfaceType>,
    /// CHOOSE ID.
    pub choose: u8,
    /// The UE's address, as source or destination.
    pub ue: Option<UeIpAddress>,
    /// An IPFilterRule.
    pub filter: Option<&'a str>,
    /// FAR ID.
    pub far: u32,
    /// QER ID.
    pub qer: Option<u32>,
}

impl TunnelPdr<'_> {
    /// As a Create PDR.
    pub fn create(&self) -> Ie {
        let mut pdi = Pdi::new(SourceInterface::new(self.source));
        let mut f_teid = Fteid::new_with_choose(true, false, true, true, 0, None, None, 0);
        f_teid.choose_id = self.choose;
        pdi.f_teid = Some(f_teid);
        pdi.three_gpp_interface_type = self.kind.map(ThreeGppInterfaceTypeIe::new);
        pdi.ue_ip_addresses = self.ue.clone().into_iter().collect();
        pdi.sdf_filters = self.filter.map(SdfFilter::new).into_iter().collect();
        let mut pdr = CreatePdr::new(PdrId::new(self.id), Precedence::new(self.precedence), pdi);
        pdr.far_id = Some(FarId::new(self.far));
        pdr.qer_ids = self.qer.map(QerId::new).into_iter().collect();
        pdr.outer_header_removal = Some(OuterHeaderRemoval::new(0));
        pdr.to_ie()
    }
}

/// A FAR into a tunnel.
pub fn far_to_tunnel(id: u32, destination: Interface, end: impl Into<TunnelEnd>) -> Ie {
    let to = ForwardingParameters::new(DestinationInterface::new(destination))
        .with_outer_header_creation(end.into().header());
    CreateFar::new(FarId::new(id), ApplyAction::FORW)
        .with_forwarding_parameters(to)
        .to_ie()
}

/// A FAR into a data network.
pub fn far_to_network(id: u32, network_instance: &str) -> Ie {
    let to = ForwardingParameters::new(DestinationInterface::new(Interface::Core))
        .with_network_instance(NetworkInstance::new(network_instance));
    CreateFar::new(FarId::new(id), ApplyAction::FORW)
        .with_forwarding_parameters(to)
        .to_ie()
}

/// An Update FAR: another tunnel towards access, which is behind N9.
pub fn switch_to_n9(id: u32, end: impl Into<TunnelEnd>) -> Ie {
    let parameters = vec![
        DestinationInterface::new(Interface::Access).to_ie(),
        end.into().header().to_ie(),
        ThreeGppInterfaceTypeIe::new(ThreeGppInterfaceType::N9).to_ie(),
    ];
    let members = vec![
        FarId::new(id).to_ie(),
        ApplyAction::from(ApplyAction::FORW).to_ie(),
        Ie::new_grouped(IeType::UpdateForwardingParameters, parameters),
    ];
    Ie::new_grouped(IeType::UpdateFar, members)
}

/// An Update FAR: another tunnel towards access, with an End Marker into the old one.
pub fn switch_with_end_marker(id: u32, end: impl Into<TunnelEnd>) -> Ie {
    let parameters = vec![
        DestinationInterface::new(Interface::Access).to_ie(),
        end.into().header().to_ie(),
        Ie::new(IeType::PfcpsmReqFlags, vec![SEND_END_MARKER]),
    ];
    let members = vec![
        FarId::new(id).to_ie(),
        ApplyAction::from(ApplyAction::FORW).to_ie(),
        Ie::new_grouped(IeType::UpdateForwardingParameters, parameters),
    ];
    Ie::new_grouped(IeType::UpdateFar, members)
}

impl Smf {
    /// Establishes a session of these rules.
    pub fn establish_rules(&self, rules: Vec<Ie>) -> Result<RuleSession> {
        let cp_seid = self.next_seid.fetch_add(1, Relaxed);
        let mut ies = self.own_ies(cp_seid);
        ies.extend(rules);
        let answer = self.request(MsgType::SessionEstablishmentRequest, Some(0), &ies)?;
        answer.accepted()?;
        let up_seid = answer.ie(IeType::Fseid)?.parse::<Fseid>()?.seid.0;
        let mut f_teids = HashMap::new();
        for created in answer.ies(IeType::CreatedPdr) {
            f_teids.extend(chosen(created)?);
        }
        Ok(RuleSession { up_seid, f_teids })
    }

    /// Adds rules to an ordinary session; the tunnels that the UPF chose for them.
    pub fn add_rules(&self, session: &Session, ies: &[Ie]) -> Result<RuleSession> {
        let seid = Some(session.up_seid);
        let answer = self.request(MsgType::SessionModificationRequest, seid, ies)?;
        answer.accepted()?;
        let mut f_teids = HashMap::new();
        for created in answer.ies(IeType::CreatedPdr) {
            f_teids.extend(chosen(created)?);
        }
        Ok(RuleSession {
            up_seid: session.up_seid,
            f_teids,
        })
    }
}

/// PDR and tunnel of a Created PDR; `None`: it has no tunnel.
fn chosen(created: &Ie) -> Result<Option<(u16, (IpAddr, u32))>> {
    let created: CreatedPdr = created.parse().context("Created PDR")?;
    let Some(f_teid) = created.f_teid else {
        return Ok(None);
    };
    let end = TunnelEnd::of(&f_teid).preferred()?;
    Ok(Some((created.pdr_id.value, end)))
}
