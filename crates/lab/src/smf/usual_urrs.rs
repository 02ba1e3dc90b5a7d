//! URRs that SMFs put on every session.

use rs_pfcp::ie::measurement_method::MeasurementMethod;
use rs_pfcp::ie::{Ie, IeType};

use super::Urr;

/// Measurement Information (TS 29.244, 8.2.68): MBQE and MNOP.
const BEFORE_QOS: u8 = 1;
const COUNT_PACKETS: u8 = 1 << 4;

/// Reporting Triggers of octets 5 and 6, the sixth in the upper half (8.2.19).
const PERIO: u16 = 1;
const VOLTH: u16 = 1 << 1;
const VOLQU: u16 = 1 << 8;

/// Of Volume Threshold and Volume Quota (8.2.13, 8.2.50).
const TOTAL: u8 = 1;
const UP_AND_DOWN: u8 = 6;

/// One of volume, with these further members in their order.
fn urr(id: u32, members: impl IntoIterator<Item = Ie>) -> Urr {
    let by_volume = MeasurementMethod::new(false, true, false).to_ie();
    let members = std::iter::once(by_volume).chain(members).collect();
    Urr { id, members }
}

fn triggers(which: u16) -> Ie {
    Ie::new(IeType::ReportingTriggers, which.to_le_bytes().to_vec())
}

fn period(seconds: u32) -> Ie {
    Ie::new(IeType::MeasurementPeriod, seconds.to_be_bytes().to_vec())
}

/// As many numbers of octets as flags.
fn volumes(kind: IeType, flags: u8, octets: &[u64]) -> Ie {
    let octets = octets.iter().flat_map(|octets| octets.to_be_bytes());
    Ie::new(kind, std::iter::once(flags).chain(octets).collect())
}

/// Open5GS has one: reported after 100 MiB.
pub(super) fn at_100_mib(id: u32) -> Urr {
    let threshold = volumes(IeType::VolumeThreshold, TOTAL, &[100 << 20]);
    urr(id, [triggers(VOLTH), threshold])
}

/// free5GC has two: octets and packets before QoS enforcement and after it, every 10 s and after 1000 octets of a
/// direction.
pub(super) fn before_and_after_qos([before, after]: [u32; 2]) -> Vec<Urr> {
    let both = [(before, COUNT_PACKETS | BEFORE_QOS), (after, COUNT_PACKETS)];
    let each = |(id, information)| {
        let members = [
            triggers(PERIO | VOLTH),
            period(10),
            volumes(IeType::VolumeThreshold, UP_AND_DOWN, &[1000, 1000]),
            Ie::new(IeType::MeasurementInformation, vec![information]),
        ];
        urr(id, members)
    };
    both.map(each).into()
}

/// pfcpsim has two, which no PDR names: one of every second, one with threshold and quota.
pub(super) fn periodic_and_quota([periodic, quota]: [u32; 2]) -> Vec<Urr> {
    let volumes = |kind| volumes(kind, TOTAL | UP_AND_DOWN, &[10_000, 20_000, 30_000]);
    let limits = [IeType::VolumeThreshold, IeType::VolumeQuota].map(volumes);
    let with_quota = [period(1), triggers(VOLTH | VOLQU)]
        .into_iter()
        .chain(limits);
    vec![
        urr(periodic, [period(1), triggers(PERIO)]),
        urr(quota, with_quota),
    ]
}
