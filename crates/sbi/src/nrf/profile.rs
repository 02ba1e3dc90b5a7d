//! Profile of a UPF, as an NRF is told it (NFProfile, TS 29.510, 6.1.6.2.2; UpfInfo, 6.1.6.2.13).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::Server;

/// Of an NF instance (NFStatus, 6.1.6.3.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum State {
    /// Found by SMFs.
    Registered,
    /// There, and not for new sessions.
    Undiscoverable,
}

/// Load and state, of which each heartbeat tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vitals {
    /// Percent.
    pub load: u8,
    /// Whether SMFs should find it.
    pub state: State,
}

impl Vitals {
    /// Some NRFs keep no zero, and then have nothing that a heartbeat could replace.
    pub(super) fn told_load(self) -> u8 {
        self.load.clamp(1, 100)
    }
}

/// A mobile network, by the digits of its code (TS 29.571, PlmnId).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct PlmnId {
    mcc: String,
    mnc: String,
}

impl TryFrom<String> for PlmnId {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let is_code = matches!(text.len(), 5 | 6) && text.bytes().all(|b| b.is_ascii_digit());
        if !is_code {
            return Err("not 5 or 6 digits, MCC and MNC, such as \"00101\"");
        }
        let (mcc, mnc) = text.split_at(3);
        Ok(Self {
            mcc: mcc.to_owned(),
            mnc: mnc.to_owned(),
        })
    }
}

impl From<PlmnId> for String {
    fn from(PlmnId { mcc, mnc }: PlmnId) -> Self {
        mcc + &mnc
    }
}

/// A slice (S-NSSAI, TS 23.003, 28.4.2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Slice {
    /// Slice/Service Type.
    pub sst: u8,
    /// Slice Differentiator: six hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sd: Option<String>,
}

/// A UPF, apart from its load and state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// For people.
    pub name: String,
    /// Seconds between heartbeats that are asked for; the NRF decides.
    pub heartbeat_s: u32,
    /// Networks that it belongs to.
    pub plmns: Vec<PlmnId>,
    /// Name by which SMFs find N4.
    pub fqdn: Option<String>,
    /// Addresses by which SMFs find N4.
    pub addresses: Vec<IpAddr>,
    /// Against other UPFs, lower before higher.
    pub priority: Option<u16>,
    /// Against other UPFs of the same priority.
    pub capacity: Option<u16>,
    /// Place.
    pub locality: Option<String>,
    /// Slices, and what else it serves.
    pub upf: UpfInfo,
    /// APIs of its own.
    pub services: Vec<Service>,
}

/// An API that it serves (6.1.6.2.3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Service {
    service_instance_id: &'static str,
    service_name: &'static str,
    versions: [Version; 1],
    scheme: &'static str,
    nf_service_status: State,
    #[serde(skip_serializing_if = "Option::is_none")]
    fqdn: Option<String>,
    ip_end_points: [EndPoint; 1],
    #[serde(skip_serializing_if = "Option::is_none")]
    api_prefix: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    api_version_in_uri: &'static str,
    api_full_version: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct EndPoint {
    #[serde(skip_serializing_if = "Option::is_none")]
    ipv4_address: Option<Ipv4Addr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ipv6_address: Option<Ipv6Addr>,
    transport: &'static str,
    port: u16,
}

impl Service {
    /// Nupf_EventExposure (TS 29.564) below this root.
    pub fn event_exposure(root: &Server) -> Self {
        let address: Option<IpAddr> = root.host().parse().ok();
        let (v4, v6) = match address {
            Some(IpAddr::V4(v4)) => (Some(v4), None),
            Some(IpAddr::V6(v6)) => (None, Some(v6)),
            None => (None, None),
        };
        let name = address.is_none().then(|| root.host().to_owned());
        Self {
            service_instance_id: "nupf-ee",
            service_name: "nupf-ee",
            versions: [Version {
                api_version_in_uri: "v1",
                api_full_version: "1.1.0",
            }],
            scheme: if root.is_tls() { "https" } else { "http" },
            nf_service_status: State::Registered,
            fqdn: name,
            ip_end_points: [EndPoint {
                ipv4_address: v4,
                ipv6_address: v6,
                transport: "TCP",
                port: root.port(),
            }],
            api_prefix: Some(root.prefix().to_owned()).filter(|prefix| !prefix.is_empty()),
        }
    }
}

/// Ability of a UPF (6.1.6.2.13).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UpfInfo {
    /// One at least.
    pub s_nssai_upf_info_list: Vec<SliceInfo>,
    /// Ends of its tunnels.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub interface_upf_info_list: Vec<InterfaceInfo>,
    /// Sessions may move between 4G and 5G.
    pub iwk_eps_ind: bool,
    /// Of all slices.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pdu_session_types: Vec<&'static str>,
    /// It gives UEs their addresses where SMFs ask it to.
    pub ue_ip_addr_ind: bool,
}

/// A slice, and data networks in it (6.1.6.2.14).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SliceInfo {
    /// Name.
    pub s_nssai: Slice,
    /// One at least.
    pub dnn_upf_info_list: Vec<DnnInfo>,
}

/// A data network (6.1.6.2.15).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DnnInfo {
    /// Name.
    pub dnn: String,
    /// None: as SMFs like.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pdu_session_types: Vec<&'static str>,
    /// Addresses of UEs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ipv4_address_ranges: Vec<AddressRange>,
    /// Prefixes of UEs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ipv6_prefix_ranges: Vec<PrefixRange>,
}

/// First and last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AddressRange {
    /// First.
    pub start: Ipv4Addr,
    /// Last.
    pub end: Ipv4Addr,
}

/// First and last, with their length.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PrefixRange {
    /// First.
    pub start: String,
    /// Last.
    pub end: String,
}

/// Ends of tunnels (6.1.6.2.24).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InterfaceInfo {
    /// `N3`, `N9`.
    pub interface_type: &'static str,
    /// Of tunnels.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ipv4_endpoint_addresses: Vec<Ipv4Addr>,
    /// Of tunnels.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ipv6_endpoint_addresses: Vec<Ipv6Addr>,
    /// By which SMFs mean it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_instance: Option<String>,
}

/// As it is sent.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Told<'p> {
    nf_instance_id: Uuid,
    nf_instance_name: &'p str,
    nf_type: &'static str,
    nf_status: State,
    heart_beat_timer: u32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    plmn_list: Vec<Plmn<'p>>,
    s_nssais: Vec<&'p Slice>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fqdn: Option<&'p str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ipv4_addresses: Vec<&'p IpAddr>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ipv6_addresses: Vec<&'p IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    capacity: Option<u16>,
    load: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    locality: Option<&'p str>,
    upf_info: &'p UpfInfo,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    nf_services: &'p [Service],
}

#[derive(Debug, Serialize)]
struct Plmn<'p> {
    mcc: &'p str,
    mnc: &'p str,
}

impl Profile {
    pub(super) fn now(&self, instance: Uuid, vitals: Vitals) -> Told<'_> {
        let of_family =
            |is_v4| (self.addresses.iter()).filter(move |address| address.is_ipv4() == is_v4);
        let mut slices: Vec<&Slice> = Vec::new();
        for SliceInfo { s_nssai, .. } in &self.upf.s_nssai_upf_info_list {
            if !slices.contains(&s_nssai) {
                slices.push(s_nssai);
            }
        }
        let plmns = self.plmns.iter();
        Told {
            nf_instance_id: instance,
            nf_instance_name: &self.name,
            nf_type: "UPF",
            nf_status: vitals.state,
            heart_beat_timer: self.heartbeat_s,
            plmn_list: plmns.map(|PlmnId { mcc, mnc }| Plmn { mcc, mnc }).collect(),
            s_nssais: slices,
            fqdn: self.fqdn.as_deref(),
            ipv4_addresses: of_family(true).collect(),
            ipv6_addresses: of_family(false).collect(),
            priority: self.priority,
            capacity: self.capacity,
            load: vitals.told_load(),
            locality: self.locality.as_deref(),
            upf_info: &self.upf,
            nf_services: &self.services,
        }
    }
}
