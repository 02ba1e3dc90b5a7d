//! From IEs to rules: what a rule says, and a refusal of what we cannot honour.

use std::net::IpAddr;
use std::num::NonZeroU32;

use compiled::{NiId, PacketRate, PdrId, QerId, Qfi, QfiSet};
use ipnet::{IpNet, Ipv6Net};
use pfcp::ie::{
    CreateFar, CreatePdr, CreateQer, FTeid, ForwardingParameters, ForwardingPolicy, Gate as GateIe,
    GateStatus, Gbr, NetworkInstance, OuterHeaderCreation, OuterHeaderRemoval, PfcpSmReqFlags,
    SourceInterface, TgppInterfaceType, UeIpAddress, UpdateFar, UpdateForwardingParameters,
    UpdatePdr, UpdateQer,
};
use pfcp::{Cause, IeType, Ies, Repeated};
use smallvec::SmallVec;

use crate::alloc::teid::LocalTeid;
use crate::base::flow::FlowDescription;
use crate::base::refusal::Refusal;
use crate::rules::duplicating::{self, is_plain_udp, udp_end};
use crate::rules::endpoints::Endpoint;
use crate::rules::framed;
use crate::rules::predefined;
use crate::rules::site::Site;
use crate::rules::unsupported::{
    IN_ENDPOINT, IN_FAR, IN_FORWARDING, IN_PDI, IN_PDR, IN_QER, RARE_IN_PDR, refuse,
};
use crate::rules::values::{apply, destination, is_host4, marking, tunnel};
use crate::rules::{
    Apply, BarId, Conditions, Duplicates, Far, FarId, Forwarding, Gate, Interface, Later,
    LeftTunnel, LocalEnds, LocalFTeid, Mbr, Pdi, Pdr, Qer, RarePdi, RareQer, RemoteFTeid, Removal,
    SdfFilter, Targets, TunnelNetworkId, UeIp, UrrId,
};

/// URRs that one PDR names.
const URRS_PER_PDR: usize = 16;

/// Choices that a PDI leaves to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wants {
    /// CHOOSE in the F-TEID.
    pub(crate) f_teid: Option<WantedFTeid>,
    /// CHV4.
    pub(crate) ue4: bool,
    /// CHV6: a prefix of this length.
    pub(crate) ue6: Option<u8>,
}

/// An F-TEID that we choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WantedFTeid {
    /// Our addresses that it has.
    pub(crate) ends: LocalEnds,
    /// The same TEID for all that name it.
    pub(crate) choose_id: Option<ChooseId>,
}

/// Name under which PDRs share a TEID that we choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChooseId {
    /// CHOOSE ID.
    Id(u8),
    /// A Traffic Endpoint.
    Endpoint(u8),
}

impl ChooseId {
    /// CHOOSE ID.
    pub(crate) fn of_smf(self) -> Option<u8> {
        match self {
            Self::Id(id) => Some(id),
            Self::Endpoint(_) => None,
        }
    }
}

/// Create PDR.
pub(crate) fn pdr(
    ie: &CreatePdr<'_>,
    endpoints: &[Endpoint],
    site: &Site,
) -> Result<(Pdr, Wants), Refusal> {
    let activates = names_predefined(ie.ies)?;
    let (pdi, wants) = pdi(&ie.pdi, endpoints, site)?;
    if ie.far_id.is_none() && !activates {
        return Err(Refusal::ie(Cause::CONDITIONAL_IE_MISSING, IeType::FAR_ID));
    }
    let (outer_header_removal, container_removal) = removal(ie.outer_header_removal)?;
    let mut pdr = Pdr {
        id: PdrId(ie.pdr_id),
        precedence: ie.precedence,
        pdi,
        outer_header_removal,
        container_removal,
        far: ie.far_id.map(FarId),
        qers: qer_ids(&ie.qer_ids, site)?,
        urrs: urr_ids(&ie.urr_ids)?,
    };
    removal_fits(&pdr, Some(&wants))?;
    if activates {
        predefined::change(&mut pdr, ie.ies, &site.predefined)?;
    }
    Ok((pdr, wants))
}

/// Update PDR. The PDI and the lists of QERs and URRs are replaced as wholes, where they are sent.
pub(crate) fn update_pdr(
    pdr: &mut Pdr,
    ie: &UpdatePdr<'_>,
    endpoints: &[Endpoint],
    site: &Site,
) -> Result<Option<Wants>, Refusal> {
    let activates = names_predefined(ie.ies)?;
    let mut wants = None;
    if let Some(new) = &ie.pdi {
        let (pdi, new_wants) = pdi(new, endpoints, site)?;
        let before = std::mem::replace(&mut pdr.pdi, pdi);
        wants = Some(new_wants);
        if let Some(more) = before.more.filter(|more| !more.predefined.is_empty()) {
            pdr.set_predefined(&more.predefined);
        }
    }
    if activates {
        predefined::change(pdr, ie.ies, &site.predefined)?;
    }
    predefined::fits(pdr, &site.predefined)?;
    if ie.outer_header_removal.is_some() {
        (pdr.outer_header_removal, pdr.container_removal) = removal(ie.outer_header_removal)?;
    }
    pdr.precedence = ie.precedence.unwrap_or(pdr.precedence);
    pdr.far = ie.far_id.map(FarId).or(pdr.far);
    if !ie.qer_ids.is_empty() {
        pdr.qers = qer_ids(&ie.qer_ids, site)?;
    }
    if !ie.urr_ids.is_empty() {
        pdr.urrs = urr_ids(&ie.urr_ids)?;
    }
    removal_fits(pdr, wants.as_ref())?;
    Ok(wants)
}

/// Whether Create PDR or Update PDR activates or deactivates predefined rules. Most do not, and are looked
/// through once.
fn names_predefined(ies: Ies<'_>) -> Result<bool, Refusal> {
    match RARE_IN_PDR.find(ies) {
        None => Ok(false),
        Some(_) => refuse(&IN_PDR, ies).map(|()| true),
    }
}

/// Which outer headers are taken off, and whether the PDU Session Container is (8.2.64).
fn removal(ie: Option<OuterHeaderRemoval>) -> Result<(Option<Removal>, bool), Refusal> {
    const CONTAINER: u8 = 1;
    let Some(ie) = ie else {
        return Ok((None, false));
    };
    let removal = match ie.description {
        OuterHeaderRemoval::GTPU_UDP_IPV4 => Removal::Ipv4,
        OuterHeaderRemoval::GTPU_UDP_IPV6 => Removal::Ipv6,
        OuterHeaderRemoval::GTPU_UDP_IP => Removal::Either,
        _ => return Err(Refusal::rule(IeType::OUTER_HEADER_REMOVAL)),
    };
    let deletion = ie.extension_header_deletion.unwrap_or(0);
    Ok((Some(removal), deletion & CONTAINER != 0))
}

/// Packets of N6 have no tunnel header to take off; those of a tunnel have one of its families.
fn removal_fits(pdr: &Pdr, wants: Option<&Wants>) -> Result<(), Refusal> {
    let given = pdr.pdi.f_teid.map(|f_teid| f_teid.ends);
    let chosen = wants
        .and_then(|wants| wants.f_teid)
        .map(|f_teid| f_teid.ends);
    let fits = match (pdr.outer_header_removal, chosen.or(given)) {
        (None, _) => true,
        (Some(_), None) => !pdr.is_found_by_ue(),
        (Some(Removal::Ipv4), Some(ends)) => ends.v4.is_some(),
        (Some(Removal::Ipv6), Some(ends)) => ends.v6.is_some(),
        (Some(Removal::Either), Some(_)) => true,
    };
    if fits {
        Ok(())
    } else {
        Err(Refusal::rule(IeType::OUTER_HEADER_REMOVAL))
    }
}

fn qer_ids(ids: &Repeated<'_, u32>, site: &Site) -> Result<SmallVec<[QerId; 4]>, Refusal> {
    if ids.len() > site.qers_per_pdr {
        return Err(Refusal::no_room(IeType::QER_ID));
    }
    let ids: SmallVec<[QerId; 4]> = ids
        .iter()
        .map(|id| Ok(QerId(id?)))
        .collect::<Result<_, Refusal>>()?;
    if has_twins(&ids) {
        return Err(Refusal::rule(IeType::QER_ID));
    }
    Ok(ids)
}

fn urr_ids(ids: &Repeated<'_, u32>) -> Result<SmallVec<[UrrId; 4]>, Refusal> {
    if ids.len() > URRS_PER_PDR {
        return Err(Refusal::no_room(IeType::URR_ID));
    }
    ids.iter().map(|id| Ok(UrrId(id?))).collect()
}

fn has_twins<I: PartialEq>(ids: &[I]) -> bool {
    ids.iter().enumerate().any(|(i, id)| ids[..i].contains(id))
}

/// Tunnel and UE as a PDI, or the Traffic Endpoint that it names, gives them.
struct Said<'r, 'a> {
    f_teid: Option<FTeid>,
    network_instance: Option<NetworkInstance<'a>>,
    tgpp_interface_type: Option<TgppInterfaceType>,
    ue_ip_addresses: &'r Repeated<'a, UeIpAddress>,
    framed_routing: Option<u32>,
    framed_routes: &'r Repeated<'a, &'a [u8]>,
    framed_ipv6_routes: &'r Repeated<'a, &'a [u8]>,
}

macro_rules! said {
    ($ie:expr) => {
        Said {
            f_teid: $ie.f_teid,
            network_instance: $ie.network_instance,
            tgpp_interface_type: $ie.tgpp_interface_type,
            ue_ip_addresses: &$ie.ue_ip_addresses,
            framed_routing: $ie.framed_routing,
            framed_routes: &$ie.framed_routes,
            framed_ipv6_routes: &$ie.framed_ipv6_routes,
        }
    };
}

fn pdi(
    ie: &pfcp::ie::Pdi<'_>,
    endpoints: &[Endpoint],
    site: &Site,
) -> Result<(Pdi, Wants), Refusal> {
    refuse(&IN_PDI, ie.ies)?;
    let source = match ie.source_interface {
        SourceInterface::Access => Interface::Access,
        SourceInterface::Core => Interface::Core,
        SourceInterface::SgiLan => Interface::SgiLan,
        SourceInterface::CpFunction => Interface::CpFunction,
        _ => return Err(Refusal::rule(IeType::SOURCE_INTERFACE)),
    };
    let mut more = RarePdi {
        filters: filters(ie)?,
        application: application(ie)?,
        ..RarePdi::default()
    };
    let qfis = qfis(&ie.qfis)?;
    let Some(endpoint) = endpoint(ie, endpoints)? else {
        return place(&said!(ie), source, qfis, more, site);
    };
    more.endpoint = Some(endpoint.id);
    let of_endpoint = endpoint.view()?;
    if ie.network_instance.is_some() && of_endpoint.network_instance.is_some() {
        let ie = IeType::NETWORK_INSTANCE;
        return Err(Refusal::ie(Cause::MANDATORY_IE_INCORRECT, ie));
    }
    let in_tunnel = of_endpoint.f_teid.is_some();
    let ni = network_instance(ie.network_instance, source, in_tunnel, site)?;
    at_endpoint(endpoint, source, ni, qfis, more, site)
}

/// The Traffic Endpoint that a PDI names; then it does not say itself what is the endpoint's (table
/// 7.5.2.2-2).
fn endpoint<'e>(
    ie: &pfcp::ie::Pdi<'_>,
    endpoints: &'e [Endpoint],
) -> Result<Option<&'e Endpoint>, Refusal> {
    let unknown = Refusal::rule(IeType::TRAFFIC_ENDPOINT_ID);
    let mut ids = ie.traffic_endpoint_ids.iter();
    let Some(id) = ids.next().transpose()? else {
        return Ok(None);
    };
    // MTE is not offered.
    if ids.next().is_some() {
        return Err(unknown);
    }
    for (is_there, ie) in [
        (ie.f_teid.is_some(), IeType::F_TEID),
        (!ie.ue_ip_addresses.is_empty(), IeType::UE_IP_ADDRESS),
        (!ie.framed_routes.is_empty(), IeType::FRAMED_ROUTE),
        (!ie.framed_ipv6_routes.is_empty(), IeType::FRAMED_IPV6_ROUTE),
        (ie.framed_routing.is_some(), IeType::FRAMED_ROUTING),
    ] {
        if is_there {
            return Err(Refusal::ie(Cause::MANDATORY_IE_INCORRECT, ie));
        }
    }
    let known = endpoints.iter().find(|endpoint| endpoint.id == id);
    known.map(Some).ok_or(unknown)
}

/// A PDI with what its Traffic Endpoint says. `ni`, `qfis`: the PDI's own, where the endpoint says none.
fn at_endpoint(
    endpoint: &Endpoint,
    source: Interface,
    ni: Option<NiId>,
    own_qfis: QfiSet,
    more: RarePdi,
    site: &Site,
) -> Result<(Pdi, Wants), Refusal> {
    let ie = endpoint.view()?;
    refuse(&IN_ENDPOINT, ie.ies)?;
    let qfis = qfis(&ie.qfis)?;
    if !qfis.is_empty() && !own_qfis.is_empty() {
        return Err(Refusal::ie(Cause::MANDATORY_IE_INCORRECT, IeType::QFI));
    }
    let qfis = if qfis.is_empty() { own_qfis } else { qfis };
    let (mut pdi, mut wants) = place(&said!(ie), source, qfis, more, site)?;
    if ie.network_instance.is_none() {
        pdi.ni = ni;
        if let (Some(ue), Some(ni)) = (&mut pdi.ue, ni) {
            ue.ni = ni;
        }
    }
    if let Some(wanted) = &mut wants.f_teid {
        wanted.choose_id = Some(ChooseId::Endpoint(endpoint.id));
        if endpoint.f_teid.is_some() {
            (pdi.f_teid, wants.f_teid) = (endpoint.f_teid, None);
        }
    }
    if endpoint.ue.is_some() {
        (pdi.ue, wants.ue4, wants.ue6) = (endpoint.ue, false, None);
    }
    Ok((pdi, wants))
}

/// Its Traffic Endpoint has changed, and so has the PDR. `before`: the endpoint before that.
pub(crate) fn follow_endpoint(
    pdr: &mut Pdr,
    endpoint: &Endpoint,
    before: &Endpoint,
    site: &Site,
) -> Result<Wants, Refusal> {
    let had_qfis = !before.view()?.qfis.is_empty();
    let own_qfis = if had_qfis {
        QfiSet::default()
    } else {
        pdr.pdi.qfis
    };
    let more = RarePdi {
        framed: Box::default(),
        ..pdr.pdi.more.as_deref().cloned().unwrap_or_default()
    };
    let (pdi, wants) = at_endpoint(endpoint, pdr.pdi.source, pdr.pdi.ni, own_qfis, more, site)?;
    pdr.pdi = pdi;
    removal_fits(pdr, Some(&wants))?;
    Ok(wants)
}

/// PDI of an endpoint that no PDR names, and the choices that it leaves to us.
pub(crate) fn lone_endpoint(endpoint: &Endpoint, site: &Site) -> Result<(Pdi, Wants), Refusal> {
    let (ni, qfis, more) = (None, QfiSet::default(), RarePdi::default());
    // It does not say of which side it is, but at which end of its packets the UE is.
    let ie = endpoint.view()?;
    let is_destination = |ie: Result<UeIpAddress, _>| ie.is_ok_and(|ie| ie.destination);
    let source = if ie.ue_ip_addresses.iter().any(is_destination) {
        Interface::Core
    } else {
        Interface::Access
    };
    at_endpoint(endpoint, source, ni, qfis, more, site)
}

fn place(
    said: &Said<'_, '_>,
    source: Interface,
    qfis: QfiSet,
    mut more: RarePdi,
    site: &Site,
) -> Result<(Pdi, Wants), Refusal> {
    let ni = network_instance(said.network_instance, source, said.f_teid.is_some(), site)?;
    let mut wants = Wants {
        f_teid: None,
        ue4: false,
        ue6: None,
    };
    let network = site.tunnel_network(source, said.tgpp_interface_type, said.network_instance);
    let f_teid = f_teid(said.f_teid, source, network, site, &mut wants)?;
    let in_tunnel = source == Interface::Access || f_teid.is_some() || wants.f_teid.is_some();
    // Packets of N6 carry no QFI.
    if !qfis.is_empty() && !in_tunnel {
        return Err(Refusal::rule(IeType::QFI));
    }
    more.framed = framed(said)?;
    let pdi = Pdi {
        source,
        ni,
        f_teid,
        ue: ue_ip(said.ue_ip_addresses, source, ni, site, &mut wants)?,
        qfis,
        more: more.boxed(),
    };
    Ok((pdi, wants))
}

/// There is one access network, whatever its name; of data networks we must know which. Tunnels to
/// other UPFs and to the SMF are looked up like those to gNBs.
fn network_instance(
    ie: Option<NetworkInstance<'_>>,
    side: Interface,
    in_tunnel: bool,
    site: &Site,
) -> Result<Option<NiId>, Refusal> {
    let Some(name) = ie else { return Ok(None) };
    match site.network_instance(name) {
        None if side != Interface::Access && !in_tunnel => {
            Err(Refusal::rule(IeType::NETWORK_INSTANCE))
        }
        found => Ok(found),
    }
}

fn f_teid(
    ie: Option<FTeid>,
    source: Interface,
    network: TunnelNetworkId,
    site: &Site,
    wants: &mut Wants,
) -> Result<Option<LocalFTeid>, Refusal> {
    let wrong = Refusal::rule(IeType::F_TEID);
    match (ie, source) {
        (None, Interface::CpFunction) => {
            Err(Refusal::ie(Cause::CONDITIONAL_IE_MISSING, IeType::F_TEID))
        }
        (None, _) => Ok(None),
        (Some(_), Interface::SgiLan) => Err(wrong),
        (
            Some(FTeid::Choose {
                ipv4,
                ipv6,
                choose_id,
            }),
            _,
        ) => {
            // Some SMFs ask for both families; the answer says what there is.
            let ends = site.choose_ends(network, ipv4, ipv6).ok_or(wrong)?;
            let choose_id = choose_id.map(ChooseId::Id);
            wants.f_teid = Some(WantedFTeid { ends, choose_id });
            Ok(None)
        }
        (Some(FTeid::Given { teid, ipv4, ipv6 }), _) => {
            let teid = LocalTeid {
                teid: NonZeroU32::new(teid).ok_or(wrong)?,
                slot: None,
            };
            let ends = site.named_ends(ipv4, ipv6).ok_or(wrong)?;
            let choose_id = None;
            Ok(Some(LocalFTeid {
                teid,
                ends,
                choose_id,
            }))
        }
    }
}

fn ue_ip(
    ies: &Repeated<'_, UeIpAddress>,
    source: Interface,
    ni: Option<NiId>,
    site: &Site,
    wants: &mut Wants,
) -> Result<Option<UeIp>, Refusal> {
    let wrong = Refusal::rule(IeType::UE_IP_ADDRESS);
    if ies.is_empty() {
        return Ok(None);
    }
    let ni = ni.unwrap_or(NiId::DEFAULT);
    let mut ue = UeIp {
        ni,
        v4: None,
        v6: None,
        chosen4: false,
        chosen6: false,
    };
    for address in ies {
        let address = address?;
        // Towards access the UE is the destination, whatever the S/D flag says: some SMFs leave it
        // zero. From access, the flag would ask for packets from one UE to another.
        let between_ues = address.destination && source == Interface::Access;
        let again = (address.ipv4.is_some() || address.choose_ipv4)
            && (ue.v4.is_some() || wants.ue4)
            || (address.ipv6.is_some() || address.choose_ipv6)
                && (ue.v6.is_some() || wants.ue6.is_some());
        let len = prefix_len(&address)
            .filter(|_| !between_ues && !again)
            .ok_or(wrong)?;
        let is_wrong = |addr| !is_host4(addr) || site.is_reached_by(IpAddr::V4(addr).into());
        if address.ipv4.is_some_and(is_wrong) {
            return Err(wrong);
        }
        ue.v4 = address.ipv4.or(ue.v4);
        if let Some(given) = address.ipv6 {
            let net = Ipv6Net::new(given, len)
                .ok()
                .filter(|net| framed::is_usable6(*net) && !site.is_reached_by((*net).into()));
            ue.v6 = Some(net.ok_or(wrong)?.trunc());
        }
        wants.ue4 |= address.choose_ipv4;
        wants.ue6 = wants.ue6.or(address.choose_ipv6.then_some(len));
    }
    if ue.v4.is_none() && ue.v6.is_none() && !wants.ue4 && wants.ue6.is_none() {
        return Err(wrong);
    }
    Ok(Some(ue))
}

/// How long the UE's IPv6 prefix is: a /64, unless there are bits for delegation in front of it, or it has a
/// length of its own (8.2.62).
fn prefix_len(ie: &UeIpAddress) -> Option<u8> {
    let len = match (ie.delegation_bits, ie.prefix_length) {
        (Some(bits), _) => 64u8.checked_sub(bits)?,
        (None, Some(len)) => len,
        (None, None) => 64,
    };
    (len > 0).then_some(len)
}

fn qfis(ies: &Repeated<'_, pfcp::ie::Qfi>) -> Result<QfiSet, Refusal> {
    let mut qfis = QfiSet::default();
    for qfi in ies {
        if let Some(qfi) = Qfi::new(qfi?.0) {
            qfis.insert(qfi);
        }
    }
    Ok(qfis)
}

/// Framed-Route and Framed-IPv6-Route; of the routing protocols that Framed-Routing may ask for we speak none.
fn framed(ie: &Said<'_, '_>) -> Result<Box<[IpNet]>, Refusal> {
    if ie.framed_routing.is_some_and(|protocol| protocol != 0) {
        return Err(Refusal::rule(IeType::FRAMED_ROUTING));
    }
    let v4 = ie
        .framed_routes
        .iter()
        .map(|text| framed::route4(text?).ok_or(Refusal::rule(IeType::FRAMED_ROUTE)));
    let v6 = ie
        .framed_ipv6_routes
        .iter()
        .map(|text| framed::route6(text?).ok_or(Refusal::rule(IeType::FRAMED_IPV6_ROUTE)));
    v4.chain(v6).collect()
}

fn filters(ie: &pfcp::ie::Pdi<'_>) -> Result<Box<[SdfFilter]>, Refusal> {
    ie.sdf_filters.iter().map(|ie| sdf_filter(&ie?)).collect()
}

/// Application ID (8.2.6): in the place of filters (table 7.5.2.2-2). Whether it is known is seen when all PDRs are.
fn application(ie: &pfcp::ie::Pdi<'_>) -> Result<Option<Box<str>>, Refusal> {
    let Some(name) = ie.application_id else {
        return Ok(None);
    };
    match std::str::from_utf8(name) {
        Ok(name) if ie.sdf_filters.is_empty() => Ok(Some(name.into())),
        _ => Err(Refusal::ie(
            Cause::MANDATORY_IE_INCORRECT,
            IeType::APPLICATION_ID,
        )),
    }
}

/// SDF Filter (8.2.5).
fn sdf_filter(ie: &pfcp::ie::SdfFilter<'_>) -> Result<SdfFilter, Refusal> {
    let wrong = Refusal::rule(IeType::SDF_FILTER);
    // Some SMFs send an empty description where they have none.
    let text = ie.flow_description.map(|text| text.trim_end_matches('\0'));
    let flow = text
        .filter(|text| !text.is_empty())
        .map(|text| FlowDescription::parse(text.as_bytes()))
        .transpose()
        .map_err(|_| wrong)?;
    // No IPv4 packet has a flow label.
    if ie.flow_label.is_some() && flow.as_ref().is_some_and(|flow| flow.is_of(true)) {
        return Err(wrong);
    }
    Ok(SdfFilter {
        id: ie.filter_id,
        asks: Conditions {
            flow,
            tos: ie.tos_traffic_class.map(|value| {
                let [tos, mask] = value.to_be_bytes();
                (tos, mask)
            }),
            spi: ie.security_parameter_index,
            label: ie.flow_label.map(|label| label & 0xf_ffff),
            later: Later::default(),
        },
    })
}

/// Create FAR.
pub(crate) fn far(ie: &CreateFar<'_>, site: &Site) -> Result<Far, Refusal> {
    refuse(&IN_FAR, ie.ies)?;
    let parameters = ie.forwarding_parameters;
    let forwarding = parameters.map(|p| forwarding(&p, site)).transpose()?;
    let (forwarding, through) = forwarding.unzip();
    let (apply, duplicate) = apply(ie.apply_action)?;
    let mut far = Far {
        id: FarId(ie.far_id),
        apply,
        targets: Targets::new(forwarding, Duplicates::default()),
        bar: ie.bar_id.map(BarId),
        through: through.unwrap_or(TunnelNetworkId(u8::MAX)),
    };
    if let Some(header) = parameters.and_then(|p| p.outer_header_creation) {
        far.set_udp(plain_udp(&header, far.through, site)?);
    }
    duplicating::create(&mut far, duplicate, ie, site)?;
    forwards_somewhere(&far)?;
    steer(&mut far, parameters.and_then(|p| p.forwarding_policy), site)?;
    Ok(far)
}

/// Update FAR; what is not sent stays. The tunnel that it leaves, if its end shall hear of that (SNDEM).
pub(crate) fn update_far(
    far: &mut Far,
    ie: &UpdateFar<'_>,
    site: &Site,
) -> Result<Option<LeftTunnel>, Refusal> {
    refuse(&IN_FAR, ie.ies)?;
    let mut left = None;
    duplicating::update(far, ie, site)?;
    if let Some(update) = &ie.update_forwarding_parameters {
        let before = far.left_tunnel();
        let forwarding = update_forwarding(far, update, site)?;
        let flags = update.pfcpsmreq_flags;
        if flags.is_some_and(|flags| flags.contains(PfcpSmReqFlags::SNDEM)) {
            left = before.filter(|before| Some(before.tunnel) != forwarding.tunnel);
        }
    }
    far.bar = ie.bar_id.map(BarId).or(far.bar);
    forwards_somewhere(far)?;
    let update = ie.update_forwarding_parameters;
    steer(far, update.and_then(|to| to.forwarding_policy), site)?;
    Ok(left)
}

/// Forwarding Policy, one that is sent or one that the FAR has: it says which way packets go to the data network.
fn steer(far: &mut Far, ie: Option<ForwardingPolicy<'_>>, site: &Site) -> Result<(), Refusal> {
    if let Some(ForwardingPolicy(identifier)) = ie {
        let unknown = Refusal::ie(Cause::INVALID_FORWARDING_POLICY, IeType::FORWARDING_POLICY);
        let policy = site.policy_named(identifier);
        far.set_policy(policy.ok_or_else(|| unknown.of_unknown(identifier))?);
    }
    let (Some(policy), Some(to)) = (far.policy(), far.forwarding()) else {
        return Ok(());
    };
    let by_routes = to.tunnel.is_none() && !to.is_unusable && far.udp().is_none();
    let can = match to.destination {
        Interface::Core | Interface::SgiLan => by_routes,
        Interface::Access => site
            .policy(policy)
            .is_some_and(|policy| policy.towards_access),
        Interface::CpFunction => false,
    };
    match can {
        true => Ok(()),
        false => Err(Refusal::rule(IeType::FORWARDING_POLICY)),
    }
}

fn forwards_somewhere(far: &Far) -> Result<(), Refusal> {
    if far.apply == Apply::Forward && far.forwarding().is_none() {
        return Err(Refusal::ie(
            Cause::CONDITIONAL_IE_MISSING,
            IeType::FORWARDING_PARAMETERS,
        ));
    }
    Ok(())
}

/// Forwarding Parameters, and which of our addresses tunnels there come from.
fn forwarding(
    ie: &ForwardingParameters<'_>,
    site: &Site,
) -> Result<(Forwarding, TunnelNetworkId), Refusal> {
    refuse(&IN_FORWARDING, ie.ies)?;
    let destination = destination(ie.destination_interface)?;
    let in_tunnel = ie.outer_header_creation.is_some();
    let through = site.tunnel_network(destination, ie.tgpp_interface_type, ie.network_instance);
    let (tunnel, is_unusable) = match ie.outer_header_creation {
        Some(ie) if !is_plain_udp(&ie) => kept(tunnel(ie, through, site)?),
        _ => (None, false),
    };
    let forwarding = Forwarding {
        destination,
        ni: network_instance(ie.network_instance, destination, in_tunnel, site)?,
        tunnel,
        is_unusable,
        marking: ie.transport_level_marking.and_then(marking),
    };
    Ok((forwarding, through))
}

fn update_forwarding(
    far: &mut Far,
    ie: &UpdateForwardingParameters<'_>,
    site: &Site,
) -> Result<Forwarding, Refusal> {
    refuse(&IN_FORWARDING, ie.ies)?;
    let before = far.forwarding();
    let destination = match (ie.destination_interface, before) {
        (Some(to), _) => destination(to)?,
        (None, Some(before)) => before.destination,
        (None, None) => {
            return Err(Refusal::ie(
                Cause::CONDITIONAL_IE_MISSING,
                IeType::DESTINATION_INTERFACE,
            ));
        }
    };
    // The network that was given before holds for the same side.
    let said_anew = ie.network_instance.is_some() || ie.tgpp_interface_type.is_some();
    let stays = before.filter(|to| to.destination == destination && !said_anew);
    let through = match stays {
        Some(_) => far.through,
        None => site.tunnel_network(destination, ie.tgpp_interface_type, ie.network_instance),
    };
    let ((tunnel, is_unusable), udp) = match ie.outer_header_creation {
        None => {
            let was = before.map(|before| (before.tunnel, before.is_unusable));
            (was.unwrap_or_default(), far.udp())
        }
        Some(given) => match plain_udp(&given, through, site)? {
            None => (kept(tunnel(given, through, site)?), None),
            udp => ((None, false), udp),
        },
    };
    let in_tunnel = tunnel.is_some() || is_unusable || udp.is_some();
    let ni = match ie.network_instance {
        None => before.and_then(|before| before.ni),
        given => network_instance(given, destination, in_tunnel, site)?,
    };
    let marking = match ie.transport_level_marking {
        None => before.and_then(|before| before.marking),
        Some(given) => marking(given),
    };
    let forwarding = Forwarding {
        destination,
        ni,
        tunnel,
        is_unusable,
        marking,
    };
    far.set_forwarding(forwarding);
    far.set_udp(udp);
    far.through = through;
    Ok(forwarding)
}

/// Outer Header Creation of UDP without GTP-U; `None`: it is with GTP-U, or cannot be honoured.
fn plain_udp(
    ie: &OuterHeaderCreation,
    through: TunnelNetworkId,
    site: &Site,
) -> Result<Option<RemoteFTeid>, Refusal> {
    is_plain_udp(ie)
        .then(|| udp_end(ie, through, site))
        .transpose()
}

/// Outer Header Creation as a FAR keeps it: a tunnel, or that what it names can be none.
fn kept(tunnel: Option<RemoteFTeid>) -> (Option<RemoteFTeid>, bool) {
    (tunnel, tunnel.is_none())
}

/// Create QER.
pub(crate) fn qer(ie: &CreateQer<'_>) -> Result<Qer, Refusal> {
    refuse(&IN_QER, ie.ies)?;
    let mut qer = Qer {
        id: QerId(ie.qer_id),
        gate: gate(ie.gate_status),
        mbr: ie.mbr.map(mbr),
        qfi: ie.qfi.and_then(|qfi| Qfi::new(qfi.0)),
        rare: None,
    };
    let rarities = Rarities {
        gbr: ie.gbr,
        averaging_ms: ie.averaging_window,
        packet_rate: ie.packet_rate,
        rqi: ie.rqi,
        ppi: ie.ppi,
    };
    rarities.add_to(&mut qer)?;
    Ok(qer)
}

/// Update QER; what is not sent stays.
pub(crate) fn update_qer(qer: &mut Qer, ie: &UpdateQer<'_>) -> Result<(), Refusal> {
    refuse(&IN_QER, ie.ies)?;
    qer.gate = ie.gate_status.map_or(qer.gate, gate);
    qer.mbr = ie.mbr.map(mbr).or(qer.mbr);
    qer.qfi = ie.qfi.and_then(|qfi| Qfi::new(qfi.0)).or(qer.qfi);
    let rarities = Rarities {
        gbr: ie.gbr,
        averaging_ms: ie.averaging_window,
        packet_rate: ie.packet_rate,
        rqi: ie.rqi,
        ppi: ie.ppi,
    };
    rarities.add_to(qer)
}

/// IEs that Create QER and Update QER seldom have.
struct Rarities {
    gbr: Option<Gbr>,
    averaging_ms: Option<u32>,
    packet_rate: Option<pfcp::ie::PacketRate>,
    rqi: Option<u8>,
    ppi: Option<u8>,
}

impl Rarities {
    fn add_to(self, qer: &mut Qer) -> Result<(), Refusal> {
        let mut rare = qer.rare.as_deref().cloned().unwrap_or_default();
        if let Some(gbr) = self.gbr {
            rare.gbr = Some(Mbr::new(gbr.uplink_kbps, gbr.downlink_kbps));
        }
        if let Some(ms) = self.averaging_ms {
            rare.averaging_ms = NonZeroU32::new(ms);
        }
        if let Some(rate) = self.packet_rate {
            // The additional rate is for exception data, and nothing says which packets are.
            if rate.additional {
                return Err(Refusal::rule(IeType::PACKET_RATE));
            }
            rare.uplink_packets = rate.uplink.map(packet_rate);
            rare.downlink_packets = rate.downlink.map(packet_rate);
        }
        if let Some(rqi) = self.rqi {
            rare.marks.rqi = rqi & 1 == 1;
        }
        rare.marks.ppi = self.ppi.map(|ppi| ppi & 7).or(rare.marks.ppi);
        qer.rare = (rare != RareQer::default()).then(|| rare.into());
        Ok(())
    }
}

fn packet_rate(ie: pfcp::ie::PacketsPerUnit) -> PacketRate {
    PacketRate {
        packets: ie.packets.into(),
        per: ie.unit.duration(),
    }
}

fn gate(ie: GateStatus) -> Gate {
    Gate {
        uplink_open: ie.uplink == GateIe::Open,
        downlink_open: ie.downlink == GateIe::Open,
    }
}

fn mbr(ie: pfcp::ie::Mbr) -> Mbr {
    Mbr::new(ie.uplink_kbps, ie.downlink_kbps)
}
