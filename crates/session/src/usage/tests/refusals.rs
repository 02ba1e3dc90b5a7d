//! URRs that are refused.

use pfcp::ie::{MeasurementInformation, ReportingTriggers as Asked};
use testkit::requests::ordinary;

use super::*;
use crate::base::refusal::Refusal;
use crate::rules::{RuleId, UrrId};
use crate::shard::tests::World as Sessions;

fn refused(urr: &UrrIe) -> Refusal {
    let mut world = Sessions::new();
    let refusal = world.establish(|w| {
        ordinary(w);
        urr.create(w);
    });
    let refusal = refusal.unwrap_err();
    assert_eq!(refusal.failed_rule, Some(RuleId::Urr(UrrId(urr.id))));
    assert!(world.tables.live.is_empty());
    refusal
}

fn plain() -> UrrIe {
    UrrIe::volume(7, Asked::empty())
}

#[test]
fn what_cannot_be_honoured_is_refused_with_its_ie() {
    let volume = octets(total(1));
    let aggregated = [
        0, 120, 0, 4, 0, 0, 0, 9, 0, 119, 0, 12, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0,
    ];
    let of = |urr: UrrIe| refused(&urr);
    for (refusal, ie) in [
        (
            of(plain().raw(IeType::AGGREGATED_URRS, &aggregated)),
            IeType::AGGREGATED_URRS,
        ),
        (
            of(plain().raw(IeType::APPLICATION_ID, b"video")),
            IeType::APPLICATION_ID,
        ),
        (
            of(plain().raw(IeType::SDF_FILTER, &[16, 0, 0, 0, 0, 4])),
            IeType::SDF_FILTER,
        ),
        (
            of(plain().with(IeType::ETHERNET_INACTIVITY_TIMER, 5)),
            IeType::ETHERNET_INACTIVITY_TIMER,
        ),
        (of(plain().with(IeType::FAR_ID, 99)), IeType::FAR_ID),
        (
            of(UrrIe::volume(7, Asked::MACAR)),
            IeType::REPORTING_TRIGGERS,
        ),
        (
            of(UrrIe::volume(7, Asked::REEMR)),
            IeType::REPORTING_TRIGGERS,
        ),
        (
            of(UrrIe::volume(7, Asked::IPMJL)),
            IeType::REPORTING_TRIGGERS,
        ),
        (
            of(UrrIe::volume(7, Asked::from_bits_retain(1 << 20))),
            IeType::REPORTING_TRIGGERS,
        ),
        (
            of(plain().raw(
                IeType::MEASUREMENT_INFORMATION,
                &[MeasurementInformation::ASPOC.bits()],
            )),
            IeType::MEASUREMENT_INFORMATION,
        ),
        (
            of(UrrIe::time(7, Asked::empty()).raw(IeType::VOLUME_QUOTA, &volume)),
            IeType::VOLUME_QUOTA,
        ),
        (
            of(plain().with(IeType::TIME_THRESHOLD, 5)),
            IeType::TIME_THRESHOLD,
        ),
        (
            of(plain().with(IeType::EVENT_QUOTA, 5)),
            IeType::EVENT_QUOTA,
        ),
        (
            of(plain().raw(
                IeType::DROPPED_DL_TRAFFIC_THRESHOLD,
                &[2, 0, 0, 0, 0, 0, 0, 0, 1],
            )),
            IeType::DROPPED_DL_TRAFFIC_THRESHOLD,
        ),
        (
            of(UrrIe::time(7, Asked::empty()).raw(IeType::TIME_QUOTA_MECHANISM, &[0; 5])),
            IeType::TIME_QUOTA_MECHANISM,
        ),
    ] {
        assert_eq!(
            refusal.cause,
            Cause::RULE_CREATION_MODIFICATION_FAILURE,
            "{ie}"
        );
        assert_eq!(refusal.offending_ie, Some(ie));
    }
    let nothing = UrrIe {
        method: MeasurementMethod::empty(),
        ..plain()
    };
    assert_eq!(of(nothing).offending_ie, Some(IeType::MEASUREMENT_METHOD));
}

#[test]
fn a_trigger_without_what_it_is_about_is_refused() {
    for (trigger, ie) in [
        (Asked::PERIO, IeType::MEASUREMENT_PERIOD),
        (Asked::VOLTH, IeType::VOLUME_THRESHOLD),
        (Asked::TIMTH, IeType::TIME_THRESHOLD),
        (Asked::QUHTI, IeType::QUOTA_HOLDING_TIME),
        (Asked::QUVTI, IeType::QUOTA_VALIDITY_TIME),
        (Asked::LIUSA, IeType::LINKED_URR_ID),
        (Asked::DROTH, IeType::DROPPED_DL_TRAFFIC_THRESHOLD),
        (Asked::ENVCL, IeType::TIME_QUOTA_MECHANISM),
        (Asked::UPINT, IeType::USER_PLANE_INACTIVITY_TIMER),
        (Asked::EVETH, IeType::EVENT_THRESHOLD),
    ] {
        let refusal = refused(&UrrIe::volume(7, trigger));
        assert_eq!(refusal.cause, Cause::CONDITIONAL_IE_MISSING, "{ie}");
        assert_eq!(refusal.offending_ie, Some(ie));
    }
}

#[test]
fn more_than_there_is_room_for_is_refused() {
    let time = [0, 33, 0, 4, 0, 0, 0, 1];
    let times = (0..8).fold(plain().with(IeType::MONITORING_TIME, 1), |urr, _| {
        urr.raw(IeType::ADDITIONAL_MONITORING_TIME, &time)
    });
    assert_eq!(refused(&times).cause, Cause::NO_RESOURCES_AVAILABLE);
    let links = (0..9).fold(plain(), |urr, _| urr.with(IeType::LINKED_URR_ID, 1));
    assert_eq!(refused(&links).offending_ie, Some(IeType::LINKED_URR_ID));
}

#[test]
fn a_query_of_what_is_not_there_is_refused_and_changes_nothing() {
    let mut world = Sessions::new();
    let (seid, _) = world
        .establish(|w| {
            ordinary(w);
            plain().create(w);
        })
        .unwrap();
    let before = world.snapshot();
    let query = world.modify(seid, |w| {
        w.grouped(IeType::QUERY_URR, |w| w.put(IeType::URR_ID, 9u32));
    });
    let refusal = query.unwrap_err();
    assert_eq!(refusal.offending_ie, Some(IeType::URR_ID));
    assert_eq!(refusal.failed_rule, Some(RuleId::Urr(UrrId(9))));
    assert_eq!(world.snapshot(), before);
}
