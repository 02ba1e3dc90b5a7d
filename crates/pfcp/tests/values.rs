//! Octets and values written down by hand from the clauses, and what the views do with order,
//! repetition and what they do not know.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use pfcp::ie::*;
use pfcp::message::{
    AssociationSetupRequest, SessionEstablishmentRequest, SessionModificationRequest,
    SessionReportResponse,
};
use pfcp::{Cause, Error, ErrorKind, FromIe, Ie, IeType, MessageType, ToIe};
use testkit::samples;

fn ie(ie_type: IeType, value: &[u8]) -> Ie<'_> {
    Ie {
        ie_type,
        enterprise: None,
        value,
        offset: 100,
    }
}

fn octets(value: impl ToIe) -> Vec<u8> {
    let mut out = Vec::new();
    value.to_ie(&mut out);
    out
}

#[test]
fn gates_lie_in_two_bits_each() {
    let decode = |octet| GateStatus::from_ie(&ie(IeType::GATE_STATUS, &[octet])).unwrap();
    let (open, closed) = (Gate::Open, Gate::Closed);
    assert_eq!(
        decode(0b0000),
        GateStatus {
            uplink: open,
            downlink: open
        }
    );
    assert_eq!(
        decode(0b0100),
        GateStatus {
            uplink: closed,
            downlink: open
        }
    );
    assert_eq!(
        decode(0b0001),
        GateStatus {
            uplink: open,
            downlink: closed
        }
    );
    assert_eq!(
        decode(0b1010),
        GateStatus {
            uplink: closed,
            downlink: closed
        }
    );
    assert_eq!(
        octets(GateStatus {
            uplink: closed,
            downlink: open
        }),
        [0b0100]
    );
}

#[test]
fn apply_action_has_one_octet_or_two() {
    let decode = |value: &'static [u8]| ApplyAction::from_ie(&ie(IeType::APPLY_ACTION, value));
    assert_eq!(decode(&[0x0c]), Ok(ApplyAction::BUFF | ApplyAction::NOCP));
    assert_eq!(
        decode(&[0x04, 0x02]),
        Ok(ApplyAction::BUFF | ApplyAction::BDPN)
    );
    assert!(decode(&[]).is_err());
    assert_eq!(octets(ApplyAction::DROP), [1]);
    assert_eq!(octets(ApplyAction::DDPN), [0, 4]);
}

#[test]
fn features_lie_where_the_clause_puts_them() {
    use UpFunctionFeatures as Up;
    assert_eq!(octets(Up::FTUP | Up::EMPU), [0x10, 0x01]);
    assert_eq!(octets(Up::UEIP), [0, 0, 0x04]);
    assert_eq!(octets(Up::IP6PL), [0, 0, 0, 0x20]);
    assert_eq!(octets(Up::empty()), [0, 0]);
    let long = [0x10, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
    assert_eq!(
        Up::from_ie(&ie(IeType::UP_FUNCTION_FEATURES, &long)),
        Ok(Up::FTUP)
    );
}

#[test]
fn both_address_families_in_one_outer_header() {
    let mut value = vec![0x03, 0x00, 0, 0, 0, 9, 10, 0, 0, 1];
    value.extend_from_slice(&[0xfd; 16]);
    let outer = OuterHeaderCreation::from_ie(&ie(IeType::OUTER_HEADER_CREATION, &value)).unwrap();
    assert_eq!(
        outer.description,
        OuterHeader::GTPU_UDP_IPV4 | OuterHeader::GTPU_UDP_IPV6
    );
    assert_eq!(
        (outer.teid, outer.ipv4),
        (Some(9), Some([10, 0, 0, 1].into()))
    );
    assert_eq!((outer.ipv6, outer.port), (Some([0xfd; 16].into()), None));
    for length in 0..value.len() {
        let cut =
            OuterHeaderCreation::from_ie(&ie(IeType::OUTER_HEADER_CREATION, &value[..length]));
        let Err(Error {
            kind: ErrorKind::Length { expected, found },
            offset: 100,
            ..
        }) = cut
        else {
            panic!("{length}: {cut:?}");
        };
        assert!(found == length && expected > length);
    }
}

#[test]
fn names_come_in_labels_or_as_text() {
    let internet = NetworkInstance::new(b"\x08internet");
    assert!(internet.matches("internet") && internet.matches("Internet"));
    assert!(NetworkInstance::new(b"internet").matches("internet"));
    assert!(!NetworkInstance::new(b"internet2").matches("internet"));
    let long = NetworkInstance::new(b"\x08internet\x06mnc001\x06mcc001\x04gprs");
    assert!(long.matches("internet.mnc001.mcc001.gprs") && !long.matches("internet"));
    assert!(NetworkInstance::new(b"internet.mnc001").matches("internet.mnc001"));
    assert!(NetworkInstance::new(b"\x03ims\0").matches("ims"));
    assert_eq!(long.to_string(), "internet.mnc001.mcc001.gprs");
    assert_eq!(NetworkInstance::new(b"a\xff\n").to_string(), "a\\xff\\n");
    assert_eq!(NetworkInstance::new(b"").to_string(), "");
    // A length that leads nowhere: no labels, so it is text.
    assert!(!NetworkInstance::new(b"\x09internet").matches("internet"));
}

#[test]
fn node_ids() {
    let decode = |value: &'static [u8]| NodeId::from_ie(&ie(IeType::NODE_ID, value));
    assert_eq!(
        decode(&[0, 10, 0, 0, 1]),
        Ok(NodeId::Ipv4([10, 0, 0, 1].into()))
    );
    assert_eq!(
        decode(b"\x02\x03smf\x03org").unwrap().to_string(),
        "smf.org"
    );
    assert_eq!(decode(b"\x02smf.org").unwrap().to_string(), "smf.org");
    let wrong = decode(&[3, 1, 2, 3, 4]).unwrap_err();
    assert_eq!(wrong.cause(), Cause::MANDATORY_IE_INCORRECT);
    for short in [&[][..], &[0, 10, 0, 0], &[1, 0xfd], &[2]] {
        let error = NodeId::from_ie(&ie(IeType::NODE_ID, short)).unwrap_err();
        assert_eq!(error.cause(), Cause::INVALID_LENGTH, "{short:?}");
    }
}

/// SD-Core's SMF sends this in each establishment.
#[test]
fn an_f_teid_to_choose_of_no_family_is_not_understood() {
    let any = FTeid::from_ie(&ie(IeType::F_TEID, &[4])).unwrap();
    let expected = FTeid::Choose {
        ipv4: true,
        ipv6: true,
        choose_id: None,
    };
    assert_eq!(any, expected);
    assert!(FTeid::from_ie(&ie(IeType::F_TEID, &[0, 0, 0, 0, 1])).is_err());
}

#[test]
fn errors_read_well() {
    let error = FTeid::from_ie(&ie(IeType::F_TEID, &[1, 0, 0])).unwrap_err();
    assert_eq!(
        error.to_string(),
        "F-TEID (IE 21) at octet 100: expected a value of at least 5 octets, found 3"
    );
    let error = SessionEstablishmentRequest::decode(
        &pfcp::decode(&samples::message(
            MessageType::SESSION_DELETION_REQUEST,
            Some(1),
            |_| {},
        ))
        .unwrap(),
    )
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        "header at octet 1: expected Session Establishment Request, found Session Deletion Request"
    );
}

#[test]
fn the_first_of_a_repeated_single_ie_counts() {
    let datagram = samples::message(MessageType::ASSOCIATION_SETUP_REQUEST, None, |w| {
        w.recovery_time_stamp(RecoveryTimeStamp(1));
        w.node_id(NodeId::Ipv4([10, 0, 0, 1].into()));
        w.recovery_time_stamp(RecoveryTimeStamp(2));
        w.ie(IeType::NODE_ID, b"nonsense that nobody reads");
    });
    let message = pfcp::decode(&datagram).unwrap();
    let request = AssociationSetupRequest::decode(&message).unwrap();
    assert_eq!(request.recovery_time_stamp, RecoveryTimeStamp(1));
    assert_eq!(request.node_id, NodeId::Ipv4([10, 0, 0, 1].into()));
}

#[test]
fn order_does_not_matter_and_strangers_are_listed() {
    let rich = samples::valid()
        .into_iter()
        .find(|(name, _)| *name == "establishment-rich");
    let (_, datagram) = rich.unwrap();
    let message = pfcp::decode(&datagram).unwrap();
    let request = SessionEstablishmentRequest::decode(&message).unwrap();
    let others: Vec<Ie<'_>> = request.others().collect();
    assert_eq!(others.len(), 2);
    assert_eq!(
        (others[0].enterprise, others[0].value),
        (Some(7), &[1, 2, 3][..])
    );
    assert!(others[0].ie_type.is_vendor());
    assert_eq!(
        (others[1].ie_type, others[1].value),
        (IeType(9999), &b"?"[..])
    );
    let pdr = request.create_pdrs.iter().next().unwrap().unwrap();
    assert_eq!(
        pdr.qer_ids.iter().collect::<Result<Vec<_>, _>>(),
        Ok(vec![1, 2])
    );
    assert_eq!((pdr.pdr_id, pdr.precedence, pdr.far_id), (1, 32, Some(1)));
    assert_eq!((pdr.pdi.sdf_filters.len(), pdr.pdi.qfis.len()), (2, 0));
    let urr = request.create_urrs.iter().next().unwrap().unwrap();
    assert_eq!(
        (urr.measurement_period, urr.others().count()),
        (Some(10), 0)
    );
    let bar = request.create_bars.iter().next().unwrap().unwrap();
    assert_eq!(
        (bar.bar_id, bar.notification_delay, bar.packets),
        (1, Some(2), Some(PacketCount(50)))
    );
}

/// A packet count has one octet or two, a buffering duration is a timer.
#[test]
fn the_answer_to_a_report_updates_a_bar() {
    for (count, octets) in [(7, &[7][..]), (255, &[255]), (1000, &[3, 232])] {
        let mut written = Vec::new();
        PacketCount(count).to_ie(&mut written);
        assert_eq!(written, octets);
        let datagram = samples::message(MessageType::SESSION_REPORT_RESPONSE, Some(1), |w| {
            w.cause(Cause::REQUEST_ACCEPTED);
            w.grouped(IeType::UPDATE_BAR_IN_SESSION_REPORT_RESPONSE, |w| {
                w.put(IeType::BAR_ID, 3u8);
                w.put(IeType::DL_BUFFERING_DURATION, 0x22u8);
                w.ie(IeType::DL_BUFFERING_SUGGESTED_PACKET_COUNT, octets);
            });
        });
        let message = pfcp::decode(&datagram).unwrap();
        let response = SessionReportResponse::decode(&message).unwrap();
        let bar = response.update_bars.iter().next().unwrap().unwrap();
        assert_eq!(bar.packets_meanwhile, Some(PacketCount(count)));
        assert_eq!(bar.duration.and_then(Timer::seconds), Some(120));
        assert_eq!((bar.bar_id, bar.packets), (3, None));
    }
}

#[test]
fn a_broken_rule_does_not_hide_the_others() {
    let datagram = samples::message(MessageType::SESSION_MODIFICATION_REQUEST, Some(1), |w| {
        w.grouped(IeType::REMOVE_FAR, |w| w.put(IeType::FAR_ID, 1u32));
        w.grouped(IeType::REMOVE_FAR, |w| w.put(IeType::FAR_ID, 1u16));
        w.grouped(IeType::REMOVE_PDR, |w| w.pdr_id(5));
        w.grouped(IeType::REMOVE_FAR, |w| w.put(IeType::FAR_ID, 3u32));
    });
    let message = pfcp::decode(&datagram).unwrap();
    let request = SessionModificationRequest::decode(&message).unwrap();
    let fars: Vec<_> = request
        .remove_fars
        .iter()
        .map(|far| far.map(|far| far.far_id))
        .collect();
    assert_eq!((fars.len(), &fars[0], &fars[2]), (3, &Ok(1), &Ok(3)));
    let error = fars[1].unwrap_err();
    assert_eq!(error.offending_ie(), Some(IeType::FAR_ID));
    assert_eq!(error.offset, 16 + 12 + 4);
    assert_eq!(request.remove_pdrs.len(), 1);
}

#[test]
fn headers_of_other_versions_can_be_read() {
    let mut datagram = samples::establishment();
    datagram[0] = 0x41;
    let error = pfcp::decode(&datagram).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Version { found: 2 });
    let (header, _) = pfcp::Header::decode(&datagram).unwrap();
    assert_eq!((header.version, header.sequence), (2, 0x010203));
}

#[test]
fn priority_and_follow_on() {
    let mut datagram = samples::establishment();
    datagram[0] |= 0b110;
    datagram[15] = 0x70;
    let header = pfcp::decode(&datagram).unwrap().header;
    assert_eq!((header.priority, header.follow_on), (Some(7), true));
}

#[test]
fn requests_and_their_responses() {
    for request in MessageType::ALL
        .iter()
        .filter(|t| t.is_response() == Some(false))
    {
        let response = request.response().unwrap();
        let name = request.name().unwrap().replace("Request", "Response");
        assert_eq!(response.name(), Some(&name[..]));
        assert_eq!(
            (response.is_response(), response.response()),
            (Some(true), None)
        );
    }
    assert_eq!(
        MessageType::ALL
            .iter()
            .filter(|t| t.is_response() == Some(false))
            .count(),
        12
    );
    assert_eq!(MessageType(18).is_response(), None);
}

#[test]
fn what_does_not_fit_a_length_field_is_taken_back() {
    let mut out = b"before".to_vec();
    let response = MessageType::SESSION_ESTABLISHMENT_RESPONSE;
    let mut w = pfcp::Writer::new(&mut out, response, Some(1), 1);
    w.grouped(IeType::CREATED_PDR, |w| w.ie(IeType::NODE_ID, &[0; 65_536]));
    assert_eq!(w.finish(), 0);
    assert_eq!(out, b"before");
}

#[test]
fn ie_types_have_names() {
    assert_eq!(IeType::F_TEID.to_string(), "F-TEID");
    assert_eq!(IeType(9999).to_string(), "IE 9999");
    assert_eq!(IeType(0x8001).to_string(), "vendor IE 32769");
    assert_eq!(IeType::ALL.len(), 319);
    assert!(IeType::ALL.is_sorted());
}

#[test]
fn a_forwarding_policy_says_how_long_its_identifier_is() {
    let decode = |value| ForwardingPolicy::from_ie(&ie(IeType::FORWARDING_POLICY, value));
    assert_eq!(decode(&[2, b'1', b'0']), Ok(ForwardingPolicy(b"10")));
    assert_eq!(decode(&[0]), Ok(ForwardingPolicy(b"")));
    // Octets behind it are of later releases.
    assert_eq!(decode(&[1, b'1', b'0']), Ok(ForwardingPolicy(b"1")));
    for short in [&[][..], &[3, b'1', b'0']] {
        assert_eq!(decode(short).unwrap_err().cause(), Cause::INVALID_LENGTH);
    }
    assert_eq!(octets(ForwardingPolicy(b"10")), [2, b'1', b'0']);
    assert_eq!(octets(ForwardingPolicy(&[b'x'; 300])).len(), 256);
}
