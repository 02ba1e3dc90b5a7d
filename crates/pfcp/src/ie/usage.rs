//! IEs of usage reporting: what is measured, up to where, and what was (TS 29.244, 5.2.2).

use super::groups::grouped;
use super::{
    MeasurementInformation, MeasurementMethod, ReportingTriggers, SdfFilter, UeIpAddress,
    UsageInformation, UsageReportTrigger, view,
};
use crate::{Error, FromIe, Ie, ToIe};

/// Values after an octet of flags, one flag for each, in order.
fn flagged<const COUNT: usize>(ie: &Ie<'_>) -> Result<[Option<u64>; COUNT], Error> {
    let mut reader = ie.reader();
    let flags = reader.u8()?;
    let mut values = [None; COUNT];
    for (bit, value) in values.iter_mut().enumerate() {
        if flags >> bit & 1 == 1 {
            *value = Some(reader.u64()?);
        }
    }
    Ok(values)
}

fn put_flagged(values: &[Option<u64>], out: &mut Vec<u8>) {
    let flag = |(bit, value): (usize, &Option<u64>)| u8::from(value.is_some()) << bit;
    out.push(values.iter().enumerate().map(flag).fold(0, |a, b| a | b));
    for value in values.iter().flatten() {
        value.to_ie(out);
    }
}

/// Volume Threshold (8.2.13), Volume Quota (8.2.50), and the Subsequent ones (8.2.16, 8.2.86): octets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Volume {
    /// Of both directions together.
    pub total: Option<u64>,
    /// Uplink.
    pub uplink: Option<u64>,
    /// Downlink.
    pub downlink: Option<u64>,
}

impl FromIe<'_> for Volume {
    #[inline]
    fn from_ie(ie: &Ie<'_>) -> Result<Self, Error> {
        let [total, uplink, downlink] = flagged(ie)?;
        Ok(Self {
            total,
            uplink,
            downlink,
        })
    }
}

impl ToIe for Volume {
    fn to_ie(&self, out: &mut Vec<u8>) {
        put_flagged(&[self.total, self.uplink, self.downlink], out);
    }
}

/// Volume Measurement (8.2.44).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct VolumeMeasurement {
    /// Octets.
    pub octets: Volume,
    /// Packets.
    pub packets: Volume,
}

impl FromIe<'_> for VolumeMeasurement {
    #[inline]
    fn from_ie(ie: &Ie<'_>) -> Result<Self, Error> {
        let [
            total,
            uplink,
            downlink,
            total_packets,
            uplink_packets,
            downlink_packets,
        ] = flagged(ie)?;
        Ok(Self {
            octets: Volume {
                total,
                uplink,
                downlink,
            },
            packets: Volume {
                total: total_packets,
                uplink: uplink_packets,
                downlink: downlink_packets,
            },
        })
    }
}

impl ToIe for VolumeMeasurement {
    fn to_ie(&self, out: &mut Vec<u8>) {
        let Self { octets, packets } = self;
        put_flagged(
            &[
                octets.total,
                octets.uplink,
                octets.downlink,
                packets.total,
                packets.uplink,
                packets.downlink,
            ],
            out,
        );
    }
}

/// Dropped DL Traffic Threshold (8.2.49).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DroppedDlTraffic {
    /// Packets.
    pub packets: Option<u64>,
    /// Octets.
    pub octets: Option<u64>,
}

impl FromIe<'_> for DroppedDlTraffic {
    #[inline]
    fn from_ie(ie: &Ie<'_>) -> Result<Self, Error> {
        let [packets, octets] = flagged(ie)?;
        Ok(Self { packets, octets })
    }
}

impl ToIe for DroppedDlTraffic {
    fn to_ie(&self, out: &mut Vec<u8>) {
        put_flagged(&[self.packets, self.octets], out);
    }
}

/// Base Time Interval Type (table 8.2.81-1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimePeriods {
    /// CTP: an envelope ends with the first interval in which nothing comes.
    Continuous,
    /// DTP: an envelope is one interval.
    Discrete,
}

/// Time Quota Mechanism (8.2.81).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimeQuotaMechanism {
    /// Base Time Interval Type.
    pub periods: TimePeriods,
    /// Base Time Interval, in seconds (TS 32.299, 7.2.29).
    pub interval_s: u32,
}

impl FromIe<'_> for TimeQuotaMechanism {
    #[inline]
    fn from_ie(ie: &Ie<'_>) -> Result<Self, Error> {
        let mut reader = ie.reader();
        let periods = match reader.u8()? & 3 {
            0 => TimePeriods::Continuous,
            1 => TimePeriods::Discrete,
            other => return Err(ie.wrong("Base Time Interval Type 0 or 1", other)),
        };
        Ok(Self {
            periods,
            interval_s: reader.u32()?,
        })
    }
}

impl ToIe for TimeQuotaMechanism {
    fn to_ie(&self, out: &mut Vec<u8>) {
        out.push(match self.periods {
            TimePeriods::Continuous => 0,
            TimePeriods::Discrete => 1,
        });
        self.interval_s.to_ie(out);
    }
}

/// Multiplier (8.2.84): digits times ten to the power of the exponent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Multiplier {
    /// Value Digits.
    pub digits: i64,
    /// Exponent.
    pub exponent: i32,
}

impl FromIe<'_> for Multiplier {
    #[inline]
    fn from_ie(ie: &Ie<'_>) -> Result<Self, Error> {
        let mut reader = ie.reader();
        Ok(Self {
            digits: i64::from_be_bytes(reader.chunk()?),
            exponent: i32::from_be_bytes(reader.chunk()?),
        })
    }
}

impl ToIe for Multiplier {
    fn to_ie(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.digits.to_be_bytes());
        out.extend_from_slice(&self.exponent.to_be_bytes());
    }
}

/// Additional Usage Reports Information (8.2.91).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AdditionalUsageReports {
    /// AURI: more follow in Session Report Requests.
    pub follow: bool,
    /// How many there are in all, 15 bits.
    pub count: u16,
}

impl FromIe<'_> for AdditionalUsageReports {
    #[inline]
    fn from_ie(ie: &Ie<'_>) -> Result<Self, Error> {
        let value = ie.reader().u16()?;
        Ok(Self {
            follow: value >> 15 == 1,
            count: value & 0x7fff,
        })
    }
}

impl ToIe for AdditionalUsageReports {
    fn to_ie(&self, out: &mut Vec<u8>) {
        (u16::from(self.follow) << 15 | self.count & 0x7fff).to_ie(out);
    }
}

grouped! {
    #[inline(never)]
    AdditionalMonitoringTime, AggregatedUrr, CreateUrr, QueryUrr, RemoveUrr, UpdateUrr, UsageReport,
}

/// Create URR and Update URR have the same IEs, but for those that a new rule must have.
macro_rules! urr {
    (
        $(#[$attribute:meta])* $name:ident
        required { $($(#[$rdoc:meta])* $r:ident: $rtype:ty = $rie:ident,)* }
        optional { $($(#[$odoc:meta])* $o:ident: $otype:ty = $oie:ident,)* }
    ) => {
        view! {
            $(#[$attribute])*
            pub struct $name<'a> {
                required { $($(#[$rdoc])* $r: $rtype = $rie,)* }
                optional {
                    $($(#[$odoc])* $o: $otype = $oie,)*
                    /// Measurement Period (8.2.42), in seconds.
                    measurement_period: u32 = MEASUREMENT_PERIOD,
                    /// Volume Threshold (8.2.13).
                    volume_threshold: Volume = VOLUME_THRESHOLD,
                    /// Volume Quota (8.2.50).
                    volume_quota: Volume = VOLUME_QUOTA,
                    /// Event Threshold (8.2.113).
                    event_threshold: u32 = EVENT_THRESHOLD,
                    /// Event Quota (8.2.112).
                    event_quota: u32 = EVENT_QUOTA,
                    /// Time Threshold (8.2.14), in seconds.
                    time_threshold: u32 = TIME_THRESHOLD,
                    /// Time Quota (8.2.51), in seconds.
                    time_quota: u32 = TIME_QUOTA,
                    /// Quota Holding Time (8.2.48), in seconds.
                    quota_holding_time: u32 = QUOTA_HOLDING_TIME,
                    /// Dropped DL Traffic Threshold (8.2.49).
                    dropped_dl_traffic_threshold: DroppedDlTraffic = DROPPED_DL_TRAFFIC_THRESHOLD,
                    /// Quota Validity Time (8.2.132), in seconds.
                    quota_validity_time: u32 = QUOTA_VALIDITY_TIME,
                    /// Monitoring Time (8.2.15): NTP seconds.
                    monitoring_time: u32 = MONITORING_TIME,
                    /// Subsequent Volume Threshold (8.2.16).
                    subsequent_volume_threshold: Volume = SUBSEQUENT_VOLUME_THRESHOLD,
                    /// Subsequent Time Threshold (8.2.17).
                    subsequent_time_threshold: u32 = SUBSEQUENT_TIME_THRESHOLD,
                    /// Subsequent Volume Quota (8.2.86).
                    subsequent_volume_quota: Volume = SUBSEQUENT_VOLUME_QUOTA,
                    /// Subsequent Time Quota (8.2.87).
                    subsequent_time_quota: u32 = SUBSEQUENT_TIME_QUOTA,
                    /// Subsequent Event Threshold (8.2.107).
                    subsequent_event_threshold: u32 = SUBSEQUENT_EVENT_THRESHOLD,
                    /// Subsequent Event Quota (8.2.106).
                    subsequent_event_quota: u32 = SUBSEQUENT_EVENT_QUOTA,
                    /// Inactivity Detection Time (8.2.18), in seconds.
                    inactivity_detection_time: u32 = INACTIVITY_DETECTION_TIME,
                    /// Measurement Information (8.2.68).
                    measurement_information: MeasurementInformation = MEASUREMENT_INFORMATION,
                    /// Time Quota Mechanism (8.2.81).
                    time_quota_mechanism: TimeQuotaMechanism = TIME_QUOTA_MECHANISM,
                    /// FAR ID for Quota Action (8.2.74).
                    quota_far_id: u32 = FAR_ID,
                    /// Ethernet Inactivity Timer (8.2.105), in seconds.
                    ethernet_inactivity_timer: u32 = ETHERNET_INACTIVITY_TIMER,
                    /// Number of Reports (8.2.133).
                    number_of_reports: u16 = NUMBER_OF_REPORTS,
                    /// User Plane Inactivity Timer (8.2.83), in seconds.
                    user_plane_inactivity_timer: u32 = USER_PLANE_INACTIVITY_TIMER,
                }
                repeated {
                    /// Linked URR ID (8.2.55).
                    linked_urr_ids: u32 = LINKED_URR_ID,
                    /// Aggregated URRs (7.5.2.4-2).
                    aggregated_urrs: AggregatedUrr<'a> = AGGREGATED_URRS,
                    /// Additional Monitoring Time (7.5.2.4-3).
                    additional_monitoring_times: AdditionalMonitoringTime<'a> =
                        ADDITIONAL_MONITORING_TIME,
                    /// Exempted Application ID for Quota Action (8.2.6).
                    exempted_application_ids: &'a [u8] = APPLICATION_ID,
                    /// Exempted SDF Filter for Quota Action (8.2.5).
                    exempted_sdf_filters: SdfFilter<'a> = SDF_FILTER,
                }
            }
        }
    };
}

urr! {
    /// Create URR (7.5.2.4).
    CreateUrr
    required {
        /// URR ID (8.2.54).
        urr_id: u32 = URR_ID,
        /// Measurement Method (8.2.40).
        measurement_method: MeasurementMethod = MEASUREMENT_METHOD,
        /// Reporting Triggers (8.2.19).
        reporting_triggers: ReportingTriggers = REPORTING_TRIGGERS,
    }
    optional {}
}

urr! {
    /// Update URR (7.5.4.4): what is absent stays as it was.
    UpdateUrr
    required {
        /// URR ID (8.2.54).
        urr_id: u32 = URR_ID,
    }
    optional {
        /// Measurement Method (8.2.40).
        measurement_method: MeasurementMethod = MEASUREMENT_METHOD,
        /// Reporting Triggers (8.2.19).
        reporting_triggers: ReportingTriggers = REPORTING_TRIGGERS,
    }
}

view! {
    /// Aggregated URRs (7.5.2.4-2).
    pub struct AggregatedUrr<'a> {
        required {
            /// Aggregated URR ID (8.2.85).
            urr_id: u32 = AGGREGATED_URR_ID,
            /// Multiplier (8.2.84).
            multiplier: Multiplier = MULTIPLIER,
        }
        optional {}
        repeated {}
    }
}

view! {
    /// Additional Monitoring Time (7.5.2.4-3).
    pub struct AdditionalMonitoringTime<'a> {
        required {
            /// Monitoring Time (8.2.15): NTP seconds.
            monitoring_time: u32 = MONITORING_TIME,
        }
        optional {
            /// Subsequent Volume Threshold (8.2.16).
            subsequent_volume_threshold: Volume = SUBSEQUENT_VOLUME_THRESHOLD,
            /// Subsequent Time Threshold (8.2.17).
            subsequent_time_threshold: u32 = SUBSEQUENT_TIME_THRESHOLD,
            /// Subsequent Volume Quota (8.2.86).
            subsequent_volume_quota: Volume = SUBSEQUENT_VOLUME_QUOTA,
            /// Subsequent Time Quota (8.2.87).
            subsequent_time_quota: u32 = SUBSEQUENT_TIME_QUOTA,
            /// Subsequent Event Threshold (8.2.107).
            subsequent_event_threshold: u32 = SUBSEQUENT_EVENT_THRESHOLD,
            /// Subsequent Event Quota (8.2.106).
            subsequent_event_quota: u32 = SUBSEQUENT_EVENT_QUOTA,
        }
        repeated {}
    }
}

view! {
    /// Remove URR (7.5.4.8).
    pub struct RemoveUrr<'a> {
        required {
            /// URR ID (8.2.54).
            urr_id: u32 = URR_ID,
        }
        optional {}
        repeated {}
    }
}

view! {
    /// Query URR (7.5.4.10).
    pub struct QueryUrr<'a> {
        required {
            /// URR ID (8.2.54).
            urr_id: u32 = URR_ID,
        }
        optional {}
        repeated {}
    }
}

view! {
    /// Usage Report of a modification (7.5.5.2), a deletion (7.5.7.2), or a Session Report (7.5.8.3).
    pub struct UsageReport<'a> {
        required {
            /// URR ID (8.2.54).
            urr_id: u32 = URR_ID,
            /// UR-SEQN (8.2.71).
            ur_seqn: u32 = UR_SEQN,
            /// Usage Report Trigger (8.2.41).
            usage_report_trigger: UsageReportTrigger = USAGE_REPORT_TRIGGER,
        }
        optional {
            /// Start Time (8.2.52): NTP seconds.
            start_time: u32 = START_TIME,
            /// End Time (8.2.53): NTP seconds.
            end_time: u32 = END_TIME,
            /// Volume Measurement (8.2.44).
            volume_measurement: VolumeMeasurement = VOLUME_MEASUREMENT,
            /// Duration Measurement (8.2.45), in seconds.
            duration_measurement: u32 = DURATION_MEASUREMENT,
            /// UE IP Address (8.2.62).
            ue_ip_address: UeIpAddress = UE_IP_ADDRESS,
            /// Time of First Packet (8.2.46): NTP seconds.
            time_of_first_packet: u32 = TIME_OF_FIRST_PACKET,
            /// Time of Last Packet (8.2.47): NTP seconds.
            time_of_last_packet: u32 = TIME_OF_LAST_PACKET,
            /// Usage Information (8.2.59).
            usage_information: UsageInformation = USAGE_INFORMATION,
            /// Query URR Reference (8.2.90).
            query_urr_reference: u32 = QUERY_URR_REFERENCE,
        }
        repeated {
            /// Event Time Stamp (8.2.114): NTP seconds, one for each event.
            event_time_stamps: u32 = EVENT_TIME_STAMP,
        }
    }
}
