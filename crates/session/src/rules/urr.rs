//! URRs (TS 29.244, 5.2.2.2), checked: one that we cannot honour is refused.

use std::time::Duration;

use bitflags::bitflags;
use pfcp::ie::{
    CreateUrr, MeasurementInformation, MeasurementMethod, ReportingTriggers, TimePeriods,
    UpdateUrr, Volume,
};
use pfcp::{Cause, IeType, Repeated};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::base::bits;
use crate::base::refusal::Refusal;
use crate::base::tagged::{Later, tagged};
use crate::rules::{FarId, UrrId};

/// Monitoring Times of one URR, with the additional ones.
pub(crate) const MONITORING_TIMES: usize = 8;
/// URRs that one is linked to.
const LINKED_URRS: usize = 8;
/// The number that stands for no limit: of octets, more than ever pass.
const NONE: u64 = u64::MAX;

/// Octets, each direction and both together; what is not limited is the largest number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Both directions together.
    pub total: u64,
    /// Uplink and downlink.
    pub of: [u64; 2],
}

impl Limits {
    /// No limit at all.
    pub const NONE: Self = Self {
        total: NONE,
        of: [NONE; 2],
    };

    fn new(ie: Option<Volume>) -> Self {
        let ie = ie.unwrap_or_default();
        let limit = |value: Option<u64>| value.unwrap_or(NONE);
        Self {
            total: limit(ie.total),
            of: [limit(ie.uplink), limit(ie.downlink)],
        }
    }

    /// As a threshold, which zero is not: it would be reached by nothing, again and again.
    fn threshold(ie: Option<Volume>) -> Self {
        let positive = |value: &u64| *value > 0;
        Self::new(ie.map(|ie| Volume {
            total: ie.total.filter(positive),
            uplink: ie.uplink.filter(positive),
            downlink: ie.downlink.filter(positive),
        }))
    }

    /// Whether there is none.
    pub fn is_none(&self) -> bool {
        *self == Self::NONE
    }

    /// Whether so much, uplink and downlink, is as much as this.
    pub fn is_reached(&self, used: [u64; 2]) -> bool {
        let [uplink, downlink] = used;
        uplink.saturating_add(downlink) >= self.total
            || uplink >= self.of[0]
            || downlink >= self.of[1]
    }

    /// Limits that are left after so much.
    #[must_use]
    pub fn less(&self, used: [u64; 2]) -> Self {
        let less = |limit: u64, used: u64| match limit {
            NONE => NONE,
            limit => limit.saturating_sub(used),
        };
        let [uplink, downlink] = used;
        Self {
            total: less(self.total, uplink.saturating_add(downlink)),
            of: [less(self.of[0], uplink), less(self.of[1], downlink)],
        }
    }

    /// As operators see it: total, uplink, downlink.
    pub fn shown(&self) -> [Option<u64>; 3] {
        [self.total, self.of[0], self.of[1]].map(|limit| (limit != NONE).then_some(limit))
    }
}

/// Content of a URR, without its ID.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asks {
    /// Measurement Method (8.2.40).
    #[serde(with = "bits")]
    pub method: MeasurementMethod,
    /// Measurement Information (8.2.68).
    #[serde(with = "bits")]
    pub information: MeasurementInformation,
    /// Reporting Triggers (8.2.19).
    #[serde(with = "bits")]
    pub triggers: ReportingTriggers,
    /// Measurement Period (8.2.42), in seconds; zero: none.
    pub period_s: u32,
    /// Volume Threshold (8.2.13).
    pub volume_threshold: Limits,
    /// Volume Quota (8.2.50).
    pub volume_quota: Limits,
    /// The rest.
    pub rare: Option<Box<RareAsks>>,
}

/// IEs that few URRs have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RareAsks {
    /// Time Threshold (8.2.14), in seconds.
    pub time_threshold: Option<u32>,
    /// Time Quota (8.2.51), in seconds.
    pub time_quota: Option<u32>,
    /// Event Threshold (8.2.113).
    pub event_threshold: Option<u32>,
    /// Event Quota (8.2.112).
    pub event_quota: Option<u32>,
    /// Quota Holding Time (8.2.48).
    pub holding: Option<Duration>,
    /// Quota Validity Time (8.2.132).
    pub validity: Option<Duration>,
    /// Inactivity Detection Time (8.2.18).
    pub idle: Option<Duration>,
    /// User Plane Inactivity Timer (8.2.83).
    pub inactivity: Option<Duration>,
    /// Dropped DL Traffic Threshold (8.2.49), in packets.
    pub dropped: Option<u64>,
    /// Time Quota Mechanism (8.2.81).
    pub mechanism: Option<Mechanism>,
    /// FAR ID for Quota Action.
    pub quota_far: Option<FarId>,
    /// Number of Reports (8.2.133).
    pub reports: Option<u16>,
    /// Linked URR ID (8.2.55).
    pub linked: SmallVec<[UrrId; 2]>,
    /// Monitoring Times, in the order in which they come.
    pub monitoring: Box<[Monitoring]>,
    /// IEs that this version does not know.
    pub later: Later,
}

tagged!(RareAsks {
    1: time_threshold,
    2: time_quota,
    3: event_threshold,
    4: event_quota,
    5: holding,
    6: validity,
    7: idle,
    8: inactivity,
    9: dropped,
    10: mechanism,
    11: quota_far,
    12: reports,
    13: linked,
    14: monitoring,
});

/// Time Quota Mechanism (8.2.81).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mechanism {
    /// Discrete Time Periods: else continuous ones.
    pub is_discrete: bool,
    /// Base Time Interval, in seconds; not 0.
    pub interval_s: u32,
}

/// A Monitoring Time (8.2.15), and what holds after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Monitoring {
    /// NTP seconds, modulo 2^32.
    pub at: u32,
    /// Subsequent Volume Threshold (8.2.16).
    pub volume_threshold: Option<Limits>,
    /// Subsequent Time Threshold (8.2.17), in seconds.
    pub time_threshold: Option<u32>,
    /// Subsequent Volume Quota (8.2.86).
    pub volume_quota: Option<Limits>,
    /// Subsequent Time Quota (8.2.87), in seconds.
    pub time_quota: Option<u32>,
    /// Subsequent Event Threshold (8.2.107).
    pub event_threshold: Option<u32>,
    /// Subsequent Event Quota (8.2.106).
    pub event_quota: Option<u32>,
}

bitflags! {
    /// IEs that an Update URR has given anew.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Renewed: u16 {
        /// A quota of volume.
        const VOLUME_QUOTA = 1;
        /// A quota of time.
        const TIME_QUOTA = 1 << 1;
        /// A quota of events.
        const EVENT_QUOTA = 1 << 2;
        /// How long quotas hold.
        const VALIDITY = 1 << 3;
        /// The measurement period.
        const PERIOD = 1 << 4;
        /// Monitoring times.
        const MONITORING = 1 << 5;
        /// The number of reports.
        const REPORTS = 1 << 6;
        /// A threshold.
        const THRESHOLD = 1 << 7;
        /// On which side of QoS enforcement it measures.
        const QOS_SIDE = 1 << 8;
        /// Any quota.
        const QUOTA = 1 | 1 << 1 | 1 << 2;
    }
}

/// Limits from a Monitoring Time on. A threshold of zero is none.
macro_rules! after {
    ($at:expr, $ie:expr) => {
        Monitoring {
            at: $at,
            volume_threshold: $ie
                .subsequent_volume_threshold
                .map(|v| Limits::threshold(Some(v))),
            time_threshold: $ie.subsequent_time_threshold.filter(|s| *s > 0),
            volume_quota: $ie.subsequent_volume_quota.map(|v| Limits::new(Some(v))),
            time_quota: $ie.subsequent_time_quota,
            event_threshold: $ie.subsequent_event_threshold.filter(|n| *n > 0),
            event_quota: $ie.subsequent_event_quota,
        }
    };
}

/// Create URR and Update URR have the same members of these names.
macro_rules! optional {
    ($ie:ident, $asks:ident, $rare:ident, $renewed:ident) => {
        if let Some(seconds) = $ie.measurement_period {
            $asks.period_s = seconds;
            $renewed |= Renewed::PERIOD;
        }
        if $ie.volume_threshold.is_some() {
            $asks.volume_threshold = Limits::threshold($ie.volume_threshold);
            $renewed |= Renewed::THRESHOLD;
        }
        if $ie.volume_quota.is_some() {
            $asks.volume_quota = Limits::new($ie.volume_quota);
            $renewed |= Renewed::VOLUME_QUOTA;
        }
        let seconds = |value: Option<u32>| value.map(|s| Duration::from_secs(s.into()));
        for (value, place) in [
            ($ie.time_threshold, &mut $rare.time_threshold),
            ($ie.event_threshold, &mut $rare.event_threshold),
        ] {
            if value.is_some() {
                *place = value.filter(|value| *value > 0);
                $renewed |= Renewed::THRESHOLD;
            }
        }
        for (value, place, renews) in [
            ($ie.time_quota, &mut $rare.time_quota, Renewed::TIME_QUOTA),
            (
                $ie.event_quota,
                &mut $rare.event_quota,
                Renewed::EVENT_QUOTA,
            ),
        ] {
            if value.is_some() {
                *place = value;
                $renewed |= renews;
            }
        }
        for (value, place) in [
            ($ie.quota_holding_time, &mut $rare.holding),
            ($ie.inactivity_detection_time, &mut $rare.idle),
            ($ie.user_plane_inactivity_timer, &mut $rare.inactivity),
        ] {
            // Zero: none any more.
            if let Some(value) = value {
                *place = seconds(Some(value)).filter(|time| !time.is_zero());
            }
        }
        if let Some(value) = $ie.quota_validity_time {
            $rare.validity = seconds(Some(value)).filter(|time| !time.is_zero());
            $renewed |= Renewed::VALIDITY;
        }
        if let Some(dropped) = $ie.dropped_dl_traffic_threshold {
            // Packets are counted where they drop, octets are not.
            if dropped.octets.is_some() {
                return Err(Refusal::rule(IeType::DROPPED_DL_TRAFFIC_THRESHOLD));
            }
            $rare.dropped = dropped.packets.filter(|packets| *packets > 0);
        }
        if let Some(mechanism) = $ie.time_quota_mechanism {
            if mechanism.interval_s == 0 {
                return Err(Refusal::rule(IeType::TIME_QUOTA_MECHANISM));
            }
            $rare.mechanism = Some(Mechanism {
                is_discrete: mechanism.periods == TimePeriods::Discrete,
                interval_s: mechanism.interval_s,
            });
        }
        $rare.quota_far = $ie.quota_far_id.map(FarId).or($rare.quota_far);
        if let Some(reports) = $ie.number_of_reports {
            $rare.reports = Some(reports).filter(|reports| *reports > 0);
            $renewed |= Renewed::REPORTS;
        }
        if !$ie.linked_urr_ids.is_empty() {
            $rare.linked = linked(&$ie.linked_urr_ids)?;
        }
        if let Some(at) = $ie.monitoring_time {
            let first = after!(at, $ie);
            $rare.monitoring = monitoring(first, &$ie.additional_monitoring_times)?;
            $renewed |= Renewed::MONITORING;
        } else if after!(0, $ie) != Monitoring::default()
            || !$ie.additional_monitoring_times.is_empty()
        {
            // After which time?
            let ie = IeType::MONITORING_TIME;
            return Err(Refusal::ie(Cause::CONDITIONAL_IE_MISSING, ie));
        }
        for (is_there, ie) in [
            // It is about Ethernet sessions.
            (
                $ie.ethernet_inactivity_timer.is_some(),
                IeType::ETHERNET_INACTIVITY_TIMER,
            ),
            // A quota that several URRs draw on.
            (!$ie.aggregated_urrs.is_empty(), IeType::AGGREGATED_URRS),
            (
                !$ie.exempted_application_ids.is_empty(),
                IeType::APPLICATION_ID,
            ),
            (!$ie.exempted_sdf_filters.is_empty(), IeType::SDF_FILTER),
        ] {
            if is_there {
                return Err(Refusal::rule(ie));
            }
        }
    };
}

impl Asks {
    /// Create URR.
    pub(crate) fn new(ie: &CreateUrr<'_>) -> Result<Self, Refusal> {
        let mut asks = Self {
            method: ie.measurement_method,
            information: ie
                .measurement_information
                .unwrap_or(MeasurementInformation::empty()),
            triggers: ie.reporting_triggers,
            period_s: 0,
            volume_threshold: Limits::NONE,
            volume_quota: Limits::NONE,
            rare: None,
        };
        let mut rare = RareAsks::default();
        let mut renewed = Renewed::empty();
        optional!(ie, asks, rare, renewed);
        let _ = renewed;
        asks.settle(rare)?;
        Ok(asks)
    }

    /// Update URR: what is not sent stays. And what was said anew.
    pub(crate) fn update(&self, ie: &UpdateUrr<'_>) -> Result<(Self, Renewed), Refusal> {
        let mut asks = self.clone();
        let mut rare = asks
            .rare
            .take()
            .map_or_else(RareAsks::default, |rare| *rare);
        let mut renewed = Renewed::empty();
        asks.method = ie.measurement_method.unwrap_or(asks.method);
        asks.information = ie.measurement_information.unwrap_or(asks.information);
        if asks.measures_before_qos() != self.measures_before_qos() {
            renewed |= Renewed::QOS_SIDE;
        }
        asks.triggers = ie.reporting_triggers.unwrap_or(asks.triggers);
        optional!(ie, asks, rare, renewed);
        asks.settle(rare)?;
        Ok((asks, renewed))
    }

    fn settle(&mut self, rare: RareAsks) -> Result<(), Refusal> {
        self.rare = (rare != RareAsks::default()).then(|| Box::new(rare));
        self.is_possible()
    }

    /// Refuses IEs that do not go together, and what we cannot do.
    pub(crate) fn is_possible(&self) -> Result<(), Refusal> {
        let method = self.method;
        if method.is_empty() || !MeasurementMethod::all().contains(method) {
            return Err(Refusal::rule(IeType::MEASUREMENT_METHOD));
        }
        // Ethernet, multicast, end markers of others: there is nothing here that could trigger.
        const TRIGGERS: ReportingTriggers = ReportingTriggers::all()
            .difference(ReportingTriggers::MACAR)
            .difference(ReportingTriggers::IPMJL)
            .difference(ReportingTriggers::REEMR);
        if !TRIGGERS.contains(self.triggers) {
            return Err(Refusal::rule(IeType::REPORTING_TRIGGERS));
        }
        // Applications are not detected, and charging does not pause by itself.
        const INFORMATION: MeasurementInformation = MeasurementInformation::MBQE
            .union(MeasurementInformation::INAM)
            .union(MeasurementInformation::ISTM)
            .union(MeasurementInformation::MNOP);
        if !INFORMATION.contains(self.information) {
            return Err(Refusal::rule(IeType::MEASUREMENT_INFORMATION));
        }
        self.has_what_triggers_need()
    }

    fn has_what_triggers_need(&self) -> Result<(), Refusal> {
        use ReportingTriggers as Trigger;
        let (measures, rare) = (|method| self.method.contains(method), self.rare());
        let (volume, time) = (
            measures(MeasurementMethod::VOLUM),
            measures(MeasurementMethod::DURAT),
        );
        let (threshold, quota) = (
            !self.volume_threshold.is_none(),
            !self.volume_quota.is_none(),
        );
        for (trigger, is_there, ie) in [
            (
                Trigger::PERIO,
                self.period_s > 0,
                IeType::MEASUREMENT_PERIOD,
            ),
            (Trigger::VOLTH, threshold, IeType::VOLUME_THRESHOLD),
            (
                Trigger::TIMTH,
                rare.time_threshold.is_some(),
                IeType::TIME_THRESHOLD,
            ),
            (
                Trigger::EVETH,
                rare.event_threshold.is_some(),
                IeType::EVENT_THRESHOLD,
            ),
            (
                Trigger::QUHTI,
                rare.holding.is_some(),
                IeType::QUOTA_HOLDING_TIME,
            ),
            (
                Trigger::QUVTI,
                rare.validity.is_some(),
                IeType::QUOTA_VALIDITY_TIME,
            ),
            (
                Trigger::DROTH,
                rare.dropped.is_some(),
                IeType::DROPPED_DL_TRAFFIC_THRESHOLD,
            ),
            (
                Trigger::UPINT,
                rare.inactivity.is_some(),
                IeType::USER_PLANE_INACTIVITY_TIMER,
            ),
            (
                Trigger::LIUSA,
                !rare.linked.is_empty(),
                IeType::LINKED_URR_ID,
            ),
            (
                Trigger::ENVCL,
                rare.mechanism.is_some(),
                IeType::TIME_QUOTA_MECHANISM,
            ),
        ] {
            if self.triggers.contains(trigger) && !is_there {
                return Err(Refusal::ie(Cause::CONDITIONAL_IE_MISSING, ie));
            }
        }
        // A limit of what is not measured would never be met.
        for (is_there, measured, ie) in [
            (threshold, volume, IeType::VOLUME_THRESHOLD),
            (quota, volume, IeType::VOLUME_QUOTA),
            (rare.time_threshold.is_some(), time, IeType::TIME_THRESHOLD),
            (rare.time_quota.is_some(), time, IeType::TIME_QUOTA),
            (rare.mechanism.is_some(), time, IeType::TIME_QUOTA_MECHANISM),
            (
                rare.event_threshold.is_some(),
                measures(MeasurementMethod::EVENT),
                IeType::EVENT_THRESHOLD,
            ),
            (
                rare.event_quota.is_some(),
                measures(MeasurementMethod::EVENT),
                IeType::EVENT_QUOTA,
            ),
        ] {
            if is_there && !measured {
                return Err(Refusal::rule(ie));
            }
        }
        Ok(())
    }

    /// The rest, or nothing.
    pub(crate) fn rare(&self) -> &RareAsks {
        static NOTHING: std::sync::LazyLock<RareAsks> = std::sync::LazyLock::new(RareAsks::default);
        self.rare.as_deref().unwrap_or(&NOTHING)
    }

    /// Nothing is measured for now.
    pub(crate) fn is_inactive(&self) -> bool {
        self.information.contains(MeasurementInformation::INAM)
    }

    /// Whether packets are measured as offered, before QoS enforcement drops some (MBQE).
    pub(crate) fn measures_before_qos(&self) -> bool {
        self.information.contains(MeasurementInformation::MBQE)
    }

    /// Whether time is measured.
    pub(crate) fn measures_time(&self) -> bool {
        self.method.contains(MeasurementMethod::DURAT)
    }

    /// Whether starts of traffic are of interest, each time.
    pub(crate) fn watches_starts(&self) -> bool {
        self.triggers.contains(ReportingTriggers::START)
            || self.method.contains(MeasurementMethod::EVENT)
    }
}

fn linked(ids: &Repeated<'_, u32>) -> Result<SmallVec<[UrrId; 2]>, Refusal> {
    if ids.len() > LINKED_URRS {
        return Err(Refusal::no_room(IeType::LINKED_URR_ID));
    }
    ids.iter().map(|id| Ok(UrrId(id?))).collect()
}

fn monitoring(
    first: Monitoring,
    more: &Repeated<'_, pfcp::ie::AdditionalMonitoringTime<'_>>,
) -> Result<Box<[Monitoring]>, Refusal> {
    if more.len() >= MONITORING_TIMES {
        return Err(Refusal::no_room(IeType::ADDITIONAL_MONITORING_TIME));
    }
    let mut times = vec![first];
    for ie in more {
        let ie = ie?;
        times.push(after!(ie.monitoring_time, ie));
    }
    // Within 68 years of the first one.
    times.sort_by_key(|time| time.at.wrapping_sub(first.at) as i32);
    Ok(times.into())
}
