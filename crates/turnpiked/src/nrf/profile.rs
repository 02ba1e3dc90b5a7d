//! Profile that NRFs are told, of a configuration.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;
use sbi::Server;
use sbi::nrf::{
    AddressRange, DnnInfo, InterfaceInfo, PrefixRange, Profile, Service, Slice, SliceInfo, UpfInfo,
};

use crate::config::{Config, Interface, NetworkInstance, NodeId, Nrf, is_fqdn, is_full};

/// A UE's part of an IPv6 pool.
const UE_PREFIX_LEN: u8 = 64;

pub(super) fn of(config: &Config, nrf: &Nrf) -> Profile {
    let node = &config.node.id;
    let name_of_node = match node {
        NodeId::Fqdn(name) if is_full(name) => Some(name.clone()),
        NodeId::Fqdn(_) | NodeId::Ip(_) => None,
    };
    let listen = [Some(config.n4.listen), config.n4.listen_also];
    let of_n4 = || listen.iter().flatten().map(|listen| listen.ip()).collect();
    Profile {
        name: node.to_string(),
        heartbeat_s: nrf.heartbeat_s,
        plmns: nrf.plmns.clone(),
        fqdn: nrf.fqdn.clone().or(name_of_node),
        addresses: match nrf.addresses.as_slice() {
            [] => of_n4(),
            addresses => addresses.to_vec(),
        },
        priority: nrf.priority,
        capacity: nrf.capacity,
        locality: nrf.locality.clone(),
        upf: upf(config, nrf),
        services: (config.nupf.iter())
            .filter_map(|nupf| Server::try_from(nupf.root()).ok())
            .map(|root| Service::event_exposure(&root))
            .collect(),
    }
}

fn upf(config: &Config, nrf: &Nrf) -> UpfInfo {
    let slice = |of: &crate::config::Slice| SliceInfo {
        s_nssai: Slice {
            sst: of.sst,
            sd: of.sd.clone(),
        },
        dnn_upf_info_list: dnns(config, &of.dnns),
    };
    let instances = &config.network_instance;
    UpfInfo {
        s_nssai_upf_info_list: nrf.slice.iter().map(slice).collect(),
        interface_upf_info_list: config.interface.iter().flat_map(interfaces).collect(),
        iwk_eps_ind: true,
        pdu_session_types: vec!["IPV4", "IPV6", "IPV4V6"],
        ue_ip_addr_ind: instances.iter().any(|ni| !ni.pools.is_empty()),
    }
}

/// Of network instances, where none are named.
fn dnns(config: &Config, named: &[String]) -> Vec<DnnInfo> {
    let instances = config.network_instance.iter();
    let all = || {
        instances
            .clone()
            .map(|ni| ni.name.clone())
            .filter(|name| is_fqdn(name))
    };
    let names: Vec<String> = match named {
        [] => all().collect(),
        named => named.to_vec(),
    };
    let info = |name: String| {
        let instance = instances.clone().find(|ni| ni.name == name);
        let info = instance.map_or_else(DnnInfo::default, of_instance);
        DnnInfo { dnn: name, ..info }
    };
    names.into_iter().map(info).collect()
}

fn of_instance(instance: &NetworkInstance) -> DnnInfo {
    let mut info = DnnInfo::default();
    for pool in &instance.pools {
        match pool.0 {
            IpNet::V4(net) => info.ipv4_address_ranges.push(AddressRange {
                start: net.network(),
                end: net.broadcast(),
            }),
            IpNet::V6(net) => {
                let last = u128::from(net.broadcast()) >> UE_PREFIX_LEN << UE_PREFIX_LEN;
                let prefix = |address: Ipv6Addr| format!("{address}/{UE_PREFIX_LEN}");
                info.ipv6_prefix_ranges.push(PrefixRange {
                    start: prefix(net.network()),
                    end: prefix(last.into()),
                });
            }
        }
    }
    let families = (
        info.ipv4_address_ranges.is_empty(),
        info.ipv6_prefix_ranges.is_empty(),
    );
    info.pdu_session_types = match families {
        (false, true) => vec!["IPV4"],
        (true, false) => vec!["IPV6"],
        (false, false) => vec!["IPV4", "IPV6", "IPV4V6"],
        // SMFs give addresses.
        (true, true) => Vec::new(),
    };
    info
}

/// Ends of tunnels; packets of N6 end nowhere in particular.
fn interfaces(interface: &Interface) -> Vec<InterfaceInfo> {
    let role = interface.role;
    let interface_type = match (role.has_n3(), role.has_n9()) {
        (true, _) => "N3",
        (false, true) => "N9",
        (false, false) => return Vec::new(),
    };
    let addresses = interface.addresses.iter();
    let v4 = addresses.clone().filter_map(|address| match address {
        IpAddr::V4(v4) => Some(*v4),
        IpAddr::V6(_) => None,
    });
    let v6 = addresses.filter_map(|address| match address {
        IpAddr::V6(v6) => Some(*v6),
        IpAddr::V4(_) => None,
    });
    let (v4, v6): (Vec<_>, Vec<_>) = (v4.collect(), v6.collect());
    let info = |network_instance: Option<&String>| InterfaceInfo {
        interface_type,
        ipv4_endpoint_addresses: v4.clone(),
        ipv6_endpoint_addresses: v6.clone(),
        network_instance: network_instance.cloned(),
    };
    match interface.network_instances.as_slice() {
        [] => vec![info(None)],
        names => names.iter().map(|name| info(Some(name))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
[node]
id = "upf1.example.org"
[n4]
listen = "10.100.0.1:8805"
listen_also = "[2001:db8::1]:8805"
[[interface]]
name = "n3"
role = "n3+n6"
addresses = ["10.3.0.1", "2001:db8:3::1"]
[[interface]]
name = "n9"
role = "n9"
addresses = ["10.9.0.1"]
network_instances = ["ipx", "roam"]
[[interface]]
name = "n6"
role = "n6"
[[network_instance]]
name = "internet"
interface = "n6"
pools = ["10.60.0.0/16", "2001:db8:60::/48"]
[[network_instance]]
name = "ims"
interface = "n6"
[[network_instance]]
name = "not a DNN"
interface = "n6"
pools = ["10.70.0.0/24"]
[nrf]
servers = ["http://10.0.0.5:7777"]
[[nrf.slice]]
sst = 1
[[nrf.slice]]
sst = 2
sd = "0A0203"
dnns = ["elsewhere", "internet"]
"#;

    fn profile(text: &str) -> Profile {
        let config = crate::config::parse(text).unwrap();
        of(&config, config.nrf.as_ref().unwrap())
    }

    #[test]
    fn the_configuration_says_what_nrfs_are_told() {
        let profile = profile(TEXT);
        assert_eq!(profile.fqdn.as_deref(), Some("upf1.example.org"));
        let n4 = ["10.100.0.1", "2001:db8::1"].map(|address| address.parse::<IpAddr>().unwrap());
        assert_eq!(profile.addresses, n4);
        let told = serde_json::to_value(&profile.upf).unwrap();
        let internet = serde_json::json!({
            "dnn": "internet",
            "pduSessionTypes": ["IPV4", "IPV6", "IPV4V6"],
            "ipv4AddressRanges": [{"start": "10.60.0.0", "end": "10.60.255.255"}],
            "ipv6PrefixRanges": [{"start": "2001:db8:60::/64", "end": "2001:db8:60:ffff::/64"}],
        });
        let expected = serde_json::json!({
            "sNssaiUpfInfoList": [
                {"sNssai": {"sst": 1}, "dnnUpfInfoList": [internet, {"dnn": "ims"}]},
                {"sNssai": {"sst": 2, "sd": "0A0203"}, "dnnUpfInfoList": [{"dnn": "elsewhere"}, internet]},
            ],
            "interfaceUpfInfoList": [
                {"interfaceType": "N3", "ipv4EndpointAddresses": ["10.3.0.1"], "ipv6EndpointAddresses": ["2001:db8:3::1"]},
                {"interfaceType": "N9", "ipv4EndpointAddresses": ["10.9.0.1"], "networkInstance": "ipx"},
                {"interfaceType": "N9", "ipv4EndpointAddresses": ["10.9.0.1"], "networkInstance": "roam"},
            ],
            "iwkEpsInd": true,
            "pduSessionTypes": ["IPV4", "IPV6", "IPV4V6"],
            "ueIpAddrInd": true,
        });
        assert_eq!(told, expected);
    }

    #[test]
    fn an_operator_may_say_where_n4_is() {
        let text = TEXT.replace("upf1.example.org", "upf1");
        assert_eq!(profile(&text).fqdn, None, "no NRF takes a single label");
        let text = text.replace(
            "[nrf]",
            "[nrf]\nfqdn = \"n4.example.org\"\naddresses = [\"192.0.2.1\"]",
        );
        let profile = profile(&text);
        assert_eq!(profile.fqdn.as_deref(), Some("n4.example.org"));
        assert_eq!(profile.addresses, ["192.0.2.1".parse::<IpAddr>().unwrap()]);
    }
}
