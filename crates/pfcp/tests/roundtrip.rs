//! What is encoded decodes to the same value; octets from anywhere earn an error, nothing worse.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fmt::Debug;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use pfcp::ie::*;
use pfcp::{Cause, FromIe, IeType, MessageType, ToIe, Writer};
use proptest::option;
use proptest::prelude::*;
use testkit::{samples, walk};

/// Decodes with `IeType`, and once more with octets behind that a later release might add.
fn same_again<T>(value: T) -> Result<(), TestCaseError>
where
    T: ToIe + for<'a> FromIe<'a> + PartialEq + Debug,
{
    for more in [&[][..], &[0xa5; 3]] {
        let mut octets = Vec::new();
        value.to_ie(&mut octets);
        octets.extend_from_slice(more);
        let datagram = samples::message(MessageType::HEARTBEAT_REQUEST, None, |w| {
            w.ie(IeType::CAUSE, &octets);
        });
        let ie = pfcp::decode(&datagram)
            .unwrap()
            .ies
            .find(IeType::CAUSE)
            .unwrap()
            .unwrap();
        let decoded = T::from_ie(&ie);
        prop_assert_eq!(decoded.as_ref(), Ok(&value), "{:02x?}", octets);
        let shorter = octets.len() - more.len();
        for cut in 0..shorter {
            let cut_ie = pfcp::Ie {
                value: &octets[..cut],
                ..ie
            };
            let decoded = T::from_ie(&cut_ie);
            prop_assert_ne!(decoded.as_ref(), Ok(&value), "cut at {}", cut);
        }
    }
    Ok(())
}

fn ipv4() -> impl Strategy<Value = Ipv4Addr> {
    any::<u32>().prop_map(Ipv4Addr::from_bits)
}

fn ipv6() -> impl Strategy<Value = Ipv6Addr> {
    any::<u128>().prop_map(Ipv6Addr::from_bits)
}

prop_compose! {
    fn one_address_or_both()(
        v4 in ipv4(), v6 in ipv6(), which in 0..3,
    ) -> (Option<Ipv4Addr>, Option<Ipv6Addr>) {
        ((which != 1).then_some(v4), (which != 0).then_some(v6))
    }
}

fn f_teid() -> impl Strategy<Value = FTeid> {
    let given = (any::<u32>(), one_address_or_both())
        .prop_map(|(teid, (ipv4, ipv6))| FTeid::Given { teid, ipv4, ipv6 });
    let choose = (0..3, option::of(any::<u8>())).prop_map(|(which, choose_id)| FTeid::Choose {
        ipv4: which != 1,
        ipv6: which != 0,
        choose_id,
    });
    prop_oneof![given, choose]
}

prop_compose! {
    fn ue_ip_address()(
        ipv4 in option::of(ipv4()),
        ipv6 in option::of(ipv6()),
        destination: bool,
        choose: (bool, bool),
        extra in 0..3,
        bits in 0u8..=64,
        length in 0u8..=128,
    ) -> UeIpAddress {
        let choose_ipv6 = choose.1 && ipv6.is_none();
        let with_ipv6 = choose_ipv6 || ipv6.is_some();
        UeIpAddress {
            ipv4,
            ipv6,
            destination,
            delegation_bits: (with_ipv6 && extra == 1).then_some(bits),
            choose_ipv4: choose.0 && ipv4.is_none(),
            choose_ipv6,
            prefix_length: (with_ipv6 && extra == 2).then_some(length),
        }
    }
}

prop_compose! {
    fn outer_header_creation()(
        bits in 1u16..1 << 10,
        teid: u32,
        ipv4 in ipv4(),
        ipv6 in ipv6(),
        port: u16,
        tags in (0u32..1 << 24, 0u32..1 << 24),
    ) -> OuterHeaderCreation {
        let description = OuterHeader::from_bits_retain(bits);
        OuterHeaderCreation {
            description,
            teid: (bits & 0b0000_0011 != 0).then_some(teid),
            ipv4: (bits & 0b0001_0101 != 0).then_some(ipv4),
            ipv6: (bits & 0b0010_1010 != 0).then_some(ipv6),
            port: (bits & 0b0000_1100 != 0).then_some(port),
            c_tag: (bits & 0b0100_0000 != 0).then_some(tags.0),
            s_tag: (bits & 0b1000_0000 != 0).then_some(tags.1),
        }
    }
}

fn failed_rule_id() -> impl Strategy<Value = FailedRuleId> {
    (0..7, any::<u32>()).prop_map(|(kind, id)| match kind {
        0 => FailedRuleId::Pdr(id as u16),
        1 => FailedRuleId::Far(id),
        2 => FailedRuleId::Qer(id),
        3 => FailedRuleId::Urr(id),
        4 => FailedRuleId::Bar(id as u8),
        5 => FailedRuleId::Mar(id as u16),
        _ => FailedRuleId::Srr(id as u8),
    })
}

proptest! {
    #[test]
    fn f_teid_survives(value in f_teid()) {
        same_again(value)?;
    }

    #[test]
    fn f_seid_survives(seid: u64, (ipv4, ipv6) in one_address_or_both()) {
        same_again(FSeid { seid, ipv4, ipv6 })?;
    }

    #[test]
    fn ue_ip_address_survives(value in ue_ip_address()) {
        same_again(value)?;
    }

    #[test]
    fn outer_header_creation_survives(value in outer_header_creation()) {
        same_again(value)?;
    }

    #[test]
    fn failed_rule_id_survives(value in failed_rule_id()) {
        same_again(value)?;
    }

    #[test]
    fn rates_survive(uplink_kbps in 0u64..1 << 40, downlink_kbps in 0u64..1 << 40) {
        same_again(Mbr { uplink_kbps, downlink_kbps })?;
        same_again(Gbr { uplink_kbps, downlink_kbps })?;
    }

    #[test]
    fn numbers_survive(a: u8, b: u16, c: u32, d: u64) {
        same_again(a)?;
        same_again(b)?;
        same_again(c)?;
        same_again(d)?;
        same_again(Cause(a))?;
        same_again(IeType(b))?;
        same_again(RecoveryTimeStamp(c))?;
        same_again(Qfi(a & 0x3f))?;
        same_again(TgppInterfaceType(a & 0x3f))?;
        same_again(PfcpSmReqFlags::from_bits_retain(a))?;
        let (ppi, qfi) = ((c & 1 != 0).then_some(a & 0x3f), (c & 2 != 0).then_some(d as u8 & 0x3f));
        same_again(DownlinkDataServiceInformation { ppi, qfi })?;
    }

    #[test]
    fn enumerations_survive(
        gates in (any::<bool>(), any::<bool>()),
        unit in 0usize..6,
        value in 0u8..32,
        interface in 0usize..5,
    ) {
        let gate = |open: bool| if open { Gate::Open } else { Gate::Closed };
        same_again(GateStatus { uplink: gate(gates.0), downlink: gate(gates.1) })?;
        use TimerUnit::*;
        let unit = [TwoSeconds, Minute, TenMinutes, Hour, TenHours, Infinite][unit];
        same_again(Timer { unit, value })?;
        let source = [
            SourceInterface::Access,
            SourceInterface::Core,
            SourceInterface::SgiLan,
            SourceInterface::CpFunction,
            SourceInterface::VnInternal,
        ];
        same_again(source[interface])?;
        let pdn = [PdnType::Ipv4, PdnType::Ipv6, PdnType::Ipv4v6, PdnType::NonIp, PdnType::Ethernet];
        same_again(pdn[interface])?;
    }

    /// Flags take as many octets as they need; those behind would be flags of later releases.
    #[test]
    fn flags_survive(bits: u64) {
        fn same<T: ToIe + for<'a> FromIe<'a> + PartialEq + Debug>(v: T) -> Result<(), TestCaseError> {
            let datagram = samples::message(MessageType::HEARTBEAT_REQUEST, None, |w| {
                let mut octets = Vec::new();
                v.to_ie(&mut octets);
                w.ie(IeType::CAUSE, &octets);
            });
            let ie = pfcp::decode(&datagram).unwrap().ies.find(IeType::CAUSE).unwrap().unwrap();
            prop_assert_eq!(T::from_ie(&ie), Ok(v));
            Ok(())
        }
        for bits in [bits, bits & 0xff, bits & 0xffff, 0] {
            same(UpFunctionFeatures::from_bits_retain(bits))?;
            same(CpFunctionFeatures::from_bits_retain(bits as u32))?;
            same(ReportingTriggers::from_bits_retain(bits as u32))?;
            same(ApplyAction::from_bits_retain(bits as u16))?;
        }
    }

    #[test]
    fn sdf_filter_survives(
        text in option::of("[ -~]{0,80}"),
        tos_traffic_class: Option<u16>,
        security_parameter_index: Option<u32>,
        flow_label in option::of(0u32..1 << 24),
        filter_id: Option<u32>,
    ) {
        let filter = SdfFilter {
            flow_description: text.as_deref(),
            tos_traffic_class,
            security_parameter_index,
            flow_label,
            filter_id,
        };
        let datagram = samples::message(MessageType::HEARTBEAT_REQUEST, None, |w| {
            w.put(IeType::SDF_FILTER, filter);
        });
        let ie = pfcp::decode(&datagram).unwrap().ies.find(IeType::SDF_FILTER).unwrap().unwrap();
        prop_assert_eq!(SdfFilter::from_ie(&ie), Ok(filter));
    }

    #[test]
    fn resources_survive(
        teid_range in option::of((1u8..8, any::<u8>())),
        (ipv4, ipv6) in one_address_or_both(),
        name in option::of("[a-z]{1,20}"),
        access: Option<bool>,
    ) {
        let name = name.as_deref().map(|name| NetworkInstance::new(name.as_bytes()));
        let source = access.map(|yes| if yes { SourceInterface::Access } else { SourceInterface::Core });
        let destination =
            access.map(|yes| if yes { DestinationInterface::Access } else { DestinationInterface::Core });
        let resource = UserPlaneIpResourceInformation {
            teid_range,
            ipv4,
            ipv6,
            network_instance: name,
            source_interface: source,
        };
        let peer = RemoteGtpUPeer {
            ipv4,
            ipv6,
            destination_interface: destination,
            network_instance: name,
        };
        let datagram = samples::message(MessageType::HEARTBEAT_REQUEST, None, |w| {
            w.put(IeType::USER_PLANE_IP_RESOURCE_INFORMATION, resource);
            w.put(IeType::REMOTE_GTP_U_PEER, peer);
        });
        let ies = pfcp::decode(&datagram).unwrap().ies;
        let ie = ies.find(IeType::USER_PLANE_IP_RESOURCE_INFORMATION).unwrap().unwrap();
        prop_assert_eq!(UserPlaneIpResourceInformation::from_ie(&ie), Ok(resource));
        let ie = ies.find(IeType::REMOTE_GTP_U_PEER).unwrap().unwrap();
        prop_assert_eq!(RemoteGtpUPeer::from_ie(&ie), Ok(peer));
    }

    #[test]
    fn names_are_recognized(labels in proptest::collection::vec("[a-zA-Z0-9-]{1,20}", 1..5)) {
        let name = labels.join(".");
        let mut out = Vec::new();
        let mut w = Writer::new(&mut out, MessageType::ASSOCIATION_RELEASE_REQUEST, None, 1);
        w.node_id_fqdn(&name);
        w.network_instance(&name);
        w.ie(IeType::APN_DNN, name.as_bytes());
        w.finish();
        let ies = pfcp::decode(&out).unwrap().ies;
        let sent = NodeId::from_ie(&ies.find(IeType::NODE_ID).unwrap().unwrap()).unwrap();
        prop_assert_eq!(sent.to_string(), &name[..]);
        for ie_type in [IeType::NETWORK_INSTANCE, IeType::APN_DNN] {
            let ie = ies.find(ie_type).unwrap().unwrap();
            let instance = NetworkInstance::from_ie(&ie).unwrap();
            prop_assert!(instance.matches(&name) && instance.matches(&name.to_ascii_uppercase()));
            let longer = format!("{name}x");
            prop_assert!(!instance.matches(&longer) && !instance.matches("not_this"));
        }
    }

    #[test]
    fn headers_survive(
        seid: Option<u64>,
        sequence in 0u32..1 << 24,
        message_type: u8,
        priority in option::of(0u8..16),
    ) {
        let mut out = vec![0xee];
        let mut writer = Writer::new(&mut out, MessageType(message_type), seid, sequence);
        if let Some(priority) = priority {
            writer.priority(priority);
        }
        let octets = writer.finish();
        let message = pfcp::decode(&out[1..]).unwrap();
        prop_assert_eq!(octets, out.len() - 1);
        prop_assert_eq!(message.header.seid, seid);
        prop_assert_eq!(message.header.sequence, sequence);
        prop_assert_eq!(message.header.priority, priority.filter(|_| seid.is_some()));
        prop_assert_eq!(message.header.message_type, MessageType(message_type));
        prop_assert!(message.ies.iter().next().is_none());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn random_octets_do_no_harm(octets in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = walk::datagram(&octets);
    }

    /// A right header in front, so that the octets reach the views.
    #[test]
    fn random_ies_do_no_harm(
        message_type in 0usize..MessageType::ALL.len(),
        ies in proptest::collection::vec(
            (1u16..125, proptest::collection::vec(any::<u8>(), 0..40)), 0..8),
    ) {
        let datagram = samples::message(MessageType::ALL[message_type], Some(1), |w| {
            ies.iter().for_each(|(ie_type, value)| w.ie(IeType(*ie_type), value));
        });
        let _ = walk::datagram(&datagram);
    }

    #[test]
    fn mutated_messages_do_no_harm(
        sample in any::<prop::sample::Index>(),
        mutations in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        static VALID: LazyLock<Vec<(&str, Vec<u8>)>> = LazyLock::new(samples::valid);
        let mut datagram = VALID[sample.index(VALID.len())].1.clone();
        for (at, octet) in mutations {
            let at = at.index(datagram.len());
            datagram[at] = octet;
        }
        let _ = walk::datagram(&datagram);
    }
}
