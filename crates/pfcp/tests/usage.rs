//! IEs of usage reporting: octets written down by hand from the clauses, round trips, and another
//! implementation in both directions.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use pfcp::ie as ours;
use pfcp::ie::{
    AdditionalUsageReports, CreateUrr, DroppedDlTraffic, MeasurementInformation, MeasurementMethod,
    Multiplier, ReportingTriggers, TimePeriods, TimeQuotaMechanism, UpdateUrr, UsageInformation,
    UsageReport, UsageReportTrigger, Volume, VolumeMeasurement,
};
use pfcp::message::{SessionEstablishmentRequest, SessionReportRequest};
use pfcp::{FromIe, Ie, IeType, MessageType, ToIe};
use proptest::option;
use proptest::prelude::*;
use rs_pfcp::ie as theirs;
use testkit::samples;

fn ie(value: &[u8]) -> Ie<'_> {
    Ie {
        ie_type: IeType::VOLUME_QUOTA,
        enterprise: None,
        value,
        offset: 0,
    }
}

fn octets(value: impl ToIe) -> Vec<u8> {
    let mut out = Vec::new();
    value.to_ie(&mut out);
    out
}

/// Decodes, also with octets behind that a later release might add, and not when it is cut.
fn same_again<T>(value: T) -> Result<(), TestCaseError>
where
    T: ToIe + for<'a> FromIe<'a> + PartialEq + Copy + std::fmt::Debug,
{
    let sent = octets(value);
    let mut longer = sent.clone();
    longer.extend([0xa5; 3]);
    prop_assert_eq!(T::from_ie(&ie(&sent)).ok(), Some(value));
    prop_assert_eq!(T::from_ie(&ie(&longer)).ok(), Some(value));
    for cut in 0..sent.len() {
        prop_assert!(T::from_ie(&ie(&sent[..cut])).is_err(), "cut at {}", cut);
    }
    Ok(())
}

fn volume() -> impl Strategy<Value = Volume> {
    let value = || option::of(any::<u64>());
    (value(), value(), value()).prop_map(|(total, uplink, downlink)| Volume {
        total,
        uplink,
        downlink,
    })
}

#[test]
fn volumes_follow_their_flags() {
    let up_and_down = [6, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 1, 0];
    let volume = Volume {
        total: None,
        uplink: Some(7),
        downlink: Some(256),
    };
    assert_eq!(Volume::from_ie(&ie(&up_and_down)), Ok(volume));
    assert_eq!(octets(volume), up_and_down);
    assert_eq!(Volume::from_ie(&ie(&[0])), Ok(Volume::default()));
    let dropped = DroppedDlTraffic {
        packets: None,
        octets: Some(1),
    };
    assert_eq!(octets(dropped), [2, 0, 0, 0, 0, 0, 0, 0, 1]);
    let packets = VolumeMeasurement {
        octets: Volume {
            total: Some(3),
            ..Volume::default()
        },
        packets: Volume {
            downlink: Some(2),
            ..Volume::default()
        },
    };
    let sent = [0x21, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 2];
    assert_eq!(octets(packets), sent);
}

#[test]
fn triggers_lie_where_the_clauses_put_them() {
    use ReportingTriggers as Asked;
    use UsageReportTrigger as Told;
    for (told, sent) in [
        (Told::PERIO, [1, 0, 0]),
        (Told::IMMER, [0x80, 0, 0]),
        (Told::VOLQU, [0, 1, 0]),
        (Told::LIUSA, [0, 4, 0]),
        (Told::TERMR, [0, 8, 0]),
        (Told::MONIT, [0, 0x10, 0]),
        (Told::EVETH, [0, 0x80, 0]),
        (Told::EVEQU, [0, 0, 1]),
        (Told::QUVTI, [0, 0, 8]),
        (Told::UPINT, [0, 0, 0x20]),
    ] {
        assert_eq!(octets(told), sent, "{told:?}");
        assert_eq!(Told::from_ie(&ie(&sent)), Ok(told));
    }
    assert_eq!(octets(Asked::LIUSA | Asked::QUVTI), [0x80, 0x80]);
    assert_eq!(octets(Asked::UPINT), [0, 0, 2]);
    // One octet, of a sender of an early release.
    assert_eq!(Told::from_ie(&ie(&[2])), Ok(Told::VOLTH));
    assert_eq!(octets(MeasurementInformation::MNOP), [0x10]);
    assert_eq!(octets(UsageInformation::AFT), [2]);
    let many = AdditionalUsageReports {
        follow: true,
        count: 300,
    };
    assert_eq!(octets(many), [0x81, 0x2c]);
    assert!(TimeQuotaMechanism::from_ie(&ie(&[2, 0, 0, 0, 1])).is_err());
}

proptest! {
    #[test]
    fn values_survive(
        volume in volume(), packets in volume(), digits: i64, exponent: i32, follow: bool,
        count in 0u16..1 << 15, interval_s: u32, bits: u32,
    ) {
        same_again(volume)?;
        same_again(VolumeMeasurement { octets: volume, packets })?;
        same_again(DroppedDlTraffic { packets: volume.total, octets: volume.uplink })?;
        same_again(Multiplier { digits, exponent })?;
        same_again(AdditionalUsageReports { follow, count })?;
        for periods in [TimePeriods::Continuous, TimePeriods::Discrete] {
            same_again(TimeQuotaMechanism { periods, interval_s })?;
        }
        same_again(MeasurementInformation::from_bits_retain(bits as u8))?;
        same_again(UsageInformation::from_bits_retain(bits as u8))?;
        let trigger = UsageReportTrigger::from_bits_retain(bits);
        prop_assert_eq!(UsageReportTrigger::from_ie(&ie(&octets(trigger))), Ok(trigger));
    }

    #[test]
    fn random_octets_mean_the_same(octets in proptest::collection::vec(any::<u8>(), 0..60), flags in 0u8..64) {
        let octets: Vec<u8> = std::iter::once(flags).chain(octets).collect();
        let ie = ie(&octets);
        if let (Ok(mine), Ok(other)) = (
            VolumeMeasurement::from_ie(&ie),
            theirs::volume_measurement::VolumeMeasurement::unmarshal(&octets),
        ) {
            prop_assert_eq!(mine.octets.total, other.total_volume);
            prop_assert_eq!(mine.octets.uplink, other.uplink_volume);
            prop_assert_eq!(mine.octets.downlink, other.downlink_volume);
            prop_assert_eq!(mine.packets.total, other.total_packets);
            prop_assert_eq!(mine.packets.uplink, other.uplink_packets);
            prop_assert_eq!(mine.packets.downlink, other.downlink_packets);
        }
        if let (Ok(mine), Ok(other)) = (
            Volume::from_ie(&ie),
            theirs::volume_threshold::VolumeThreshold::unmarshal(&octets),
        ) {
            prop_assert_eq!(mine.total, other.total_volume);
            prop_assert_eq!(mine.uplink, other.uplink_volume);
            prop_assert_eq!(mine.downlink, other.downlink_volume);
        }
    }

    /// They build, we decode.
    #[test]
    fn their_urr_decodes(
        id: u32, threshold: u64, quota: u64, period: u32, time in any::<(u32, u32)>(), idle: u32, validity: u32,
    ) {
        let urr = theirs::create_urr::CreateUrrBuilder::new(theirs::urr_id::UrrId::new(id))
            .measurement_method(theirs::measurement_method::MeasurementMethod::new(true, true, false))
            .reporting_triggers(
                theirs::reporting_triggers::ReportingTriggers::new()
                    .with_volume_threshold(true).with_time_quota(true).with_user_plane_inactivity_timer(true),
            )
            .volume_threshold_uplink_downlink(threshold, !threshold)
            .volume_quota_bytes(quota)
            .time_threshold_seconds(time.0)
            .time_quota_seconds(time.1)
            .measurement_period_seconds(period)
            .inactivity_detection_time_seconds(idle)
            .quota_validity_time_seconds(validity)
            .build()
            .unwrap();
        let sent = urr.marshal();
        let read = CreateUrr::from_ie(&ie(&sent)).unwrap();
        prop_assert_eq!(read.urr_id, id);
        let method = MeasurementMethod::DURAT | MeasurementMethod::VOLUM;
        prop_assert_eq!(read.measurement_method, method);
        let triggers = ReportingTriggers::VOLTH | ReportingTriggers::TIMQU | ReportingTriggers::UPINT;
        prop_assert_eq!(read.reporting_triggers, triggers);
        let volume = Volume { total: None, uplink: Some(threshold), downlink: Some(!threshold) };
        prop_assert_eq!(read.volume_threshold, Some(volume));
        prop_assert_eq!(read.volume_quota.and_then(|quota| quota.total), Some(quota));
        prop_assert_eq!((read.time_threshold, read.time_quota), (Some(time.0), Some(time.1)));
        prop_assert_eq!((read.measurement_period, read.inactivity_detection_time), (Some(period), Some(idle)));
        prop_assert_eq!(read.quota_validity_time, Some(validity));
        prop_assert_eq!(read.others().count(), 0);
        let update = UpdateUrr::from_ie(&ie(&sent)).unwrap();
        prop_assert_eq!((update.volume_quota, update.time_quota), (read.volume_quota, read.time_quota));
    }

    /// We build, they decode.
    #[test]
    fn our_usage_report_decodes(
        id: u32, seqn: u32, volume in volume(), packets in volume(), seconds: u32, times in any::<[u32; 4]>(),
        bits in 1u32..1 << 22,
    ) {
        let trigger = UsageReportTrigger::from_bits_retain(bits);
        let measured = VolumeMeasurement { octets: volume, packets };
        let sent = samples::message(MessageType::SESSION_REPORT_REQUEST, Some(7), |w| {
            w.report_type(ours::ReportType::USAR);
            w.grouped(IeType::USAGE_REPORT_IN_SESSION_REPORT_REQUEST, |w| {
                w.put(IeType::URR_ID, id);
                w.put(IeType::UR_SEQN, seqn);
                w.put(IeType::USAGE_REPORT_TRIGGER, trigger);
                w.put(IeType::START_TIME, times[0]);
                w.put(IeType::END_TIME, times[1]);
                w.put(IeType::VOLUME_MEASUREMENT, measured);
                w.put(IeType::DURATION_MEASUREMENT, seconds);
                w.put(IeType::TIME_OF_FIRST_PACKET, times[2]);
                w.put(IeType::TIME_OF_LAST_PACKET, times[3]);
                w.put(IeType::USAGE_INFORMATION, UsageInformation::BEF);
                w.put(IeType::QUERY_URR_REFERENCE, 5u32);
            });
        });
        let message = pfcp::decode(&sent).unwrap();
        let request = SessionReportRequest::decode(&message).unwrap();
        let mine = request.usage_reports.iter().next().unwrap().unwrap();
        prop_assert_eq!((mine.urr_id, mine.ur_seqn, mine.usage_report_trigger), (id, seqn, trigger));
        prop_assert_eq!((mine.start_time, mine.end_time), (Some(times[0]), Some(times[1])));
        prop_assert_eq!(mine.volume_measurement, Some(measured));
        prop_assert_eq!(mine.usage_information, Some(UsageInformation::BEF));

        let group = message.ies.find(IeType::USAGE_REPORT_IN_SESSION_REPORT_REQUEST).unwrap().unwrap();
        let other = theirs::usage_report::UsageReport::unmarshal(group.value).unwrap();
        prop_assert_eq!((other.urr_id.id, other.ur_seqn.sequence_number()), (id, seqn));
        prop_assert_eq!(other.usage_report_trigger.marshal(), octets(trigger));
        let volumes = other.volume_measurement.unwrap();
        prop_assert_eq!(volumes.total_volume, volume.total);
        prop_assert_eq!(volumes.downlink_packets, packets.downlink);
        prop_assert_eq!(other.duration_measurement.unwrap().duration_seconds, seconds);
        prop_assert!(other.start_time.is_some() && other.time_of_last_packet.is_some());
        prop_assert!(other.query_urr_reference.is_some() && other.usage_information.is_some());
    }
}

#[test]
fn a_rule_is_decoded_to_its_last_member() {
    let datagram = samples::usage_establishment();
    let message = pfcp::decode(&datagram).unwrap();
    let request = SessionEstablishmentRequest::decode(&message).unwrap();
    let urr = request.create_urrs.iter().next().unwrap().unwrap();
    assert_eq!(urr.others().count(), 0);
    assert_eq!(urr.quota_far_id, Some(3));
    assert_eq!(
        urr.linked_urr_ids.iter().collect::<Vec<_>>(),
        [Ok(2), Ok(3)]
    );
    let aggregated = urr.aggregated_urrs.iter().next().unwrap().unwrap();
    let half = Multiplier {
        digits: 5,
        exponent: -1,
    };
    assert_eq!((aggregated.urr_id, aggregated.multiplier), (9, half));
    let more = urr
        .additional_monitoring_times
        .iter()
        .next()
        .unwrap()
        .unwrap();
    assert_eq!(
        (more.monitoring_time, more.subsequent_time_quota),
        (0xea000000, Some(60))
    );
    let filter = urr.exempted_sdf_filters.iter().next().unwrap().unwrap();
    assert_eq!(filter.filter_id, Some(4));
    assert_eq!(urr.number_of_reports, Some(3));
    assert_eq!(urr.subsequent_event_quota, Some(12));
}

#[test]
fn a_report_without_its_number_is_an_error() {
    let datagram = samples::message(MessageType::SESSION_REPORT_REQUEST, Some(7), |w| {
        w.report_type(ours::ReportType::USAR);
        w.grouped(IeType::USAGE_REPORT_IN_SESSION_REPORT_REQUEST, |w| {
            w.put(IeType::URR_ID, 1u32);
        });
    });
    let message = pfcp::decode(&datagram).unwrap();
    let request = SessionReportRequest::decode(&message).unwrap();
    let error = request.usage_reports.iter().next().unwrap().unwrap_err();
    assert_eq!(error.offending_ie(), Some(IeType::UR_SEQN));
    assert!(UsageReport::KNOWN.contains(&IeType::UR_SEQN));
}
