//! Traffic, and how notifications say it (TS 29.564, 6.1.6; formats of TS 29.571, 5.5).

use std::net::Ipv4Addr;
use std::time::Duration;

use ipnet::Ipv6Net;
use serde::Serialize;

/// Octets and packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Of IP packets, without headers of tunnels.
    pub octets: u64,
    /// Packets.
    pub packets: u64,
}

impl Amount {
    pub(super) fn plus(self, more: Self) -> Self {
        Self {
            octets: self.octets.saturating_add(more.octets),
            packets: self.packets.saturating_add(more.packets),
        }
    }

    /// The amount since `before`; a counter that is lower than it was has begun anew.
    pub(super) fn since(self, before: Self) -> Self {
        let began_anew = self.octets < before.octets || self.packets < before.packets;
        let before = if began_anew { Self::default() } else { before };
        Self {
            octets: self.octets - before.octets,
            packets: self.packets - before.packets,
        }
    }

    pub(super) fn rate(self, time: Duration) -> Rate {
        let seconds = time.as_secs_f64();
        let per_s = |count: u64| {
            if seconds > 0.0 {
                count as f64 / seconds
            } else {
                0.0
            }
        };
        Rate {
            bps: per_s(self.octets) * 8.0,
            pps: per_s(self.packets),
        }
    }
}

/// Throughput.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rate {
    bps: f64,
    pps: f64,
}

impl Rate {
    pub(super) fn max(self, other: Self) -> Self {
        Self {
            bps: self.bps.max(other.bps),
            pps: self.pps.max(other.pps),
        }
    }

    /// BitRate. Whole bits: they leave nothing out that anybody would miss.
    fn bits(self) -> String {
        format!("{:.0} bps", self.bps)
    }

    /// PacketRate.
    fn packets(self) -> String {
        format!("{:.3} pps", self.pps)
    }
}

/// TrafficVolume.
fn volume(octets: u64) -> String {
    format!("{octets} B")
}

/// A report on one event of one UE (NotificationItem).
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Item<'i> {
    pub(super) event_type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ue_ipv4_addr: Option<Ipv4Addr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ue_ipv6_prefix: Option<Ipv6Net>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) dnn: Option<&'i str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) snssai: Option<&'i super::asked::Slice>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) gpsi: Option<&'i str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) supi: Option<&'i str>,
    pub(super) time_stamp: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) start_time: Option<String>,
    pub(super) user_data_usage_measurements: [Usage; 1],
}

/// UserDataUsageMeasurements.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Usage {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) volume_measurement: Option<Volume>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) throughput_measurement: Option<Throughput>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) throughput_statistics_measurement: Option<Statistics>,
}

/// VolumeMeasurement.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Volume {
    total_volume: String,
    ul_volume: String,
    dl_volume: String,
    total_nb_of_packets: u64,
    ul_nb_of_packets: u64,
    dl_nb_of_packets: u64,
}

impl Volume {
    pub(super) fn of([uplink, downlink]: [Amount; 2]) -> Self {
        let total = uplink.plus(downlink);
        Self {
            total_volume: volume(total.octets),
            ul_volume: volume(uplink.octets),
            dl_volume: volume(downlink.octets),
            total_nb_of_packets: total.packets,
            ul_nb_of_packets: uplink.packets,
            dl_nb_of_packets: downlink.packets,
        }
    }
}

/// ThroughputMeasurement.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Throughput {
    ul_throughput: String,
    dl_throughput: String,
    ul_packet_throughput: String,
    dl_packet_throughput: String,
}

impl Throughput {
    pub(super) fn of([uplink, downlink]: [Rate; 2]) -> Self {
        Self {
            ul_throughput: uplink.bits(),
            dl_throughput: downlink.bits(),
            ul_packet_throughput: uplink.packets(),
            dl_packet_throughput: downlink.packets(),
        }
    }
}

/// ThroughputStatisticsMeasurement.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Statistics {
    ul_average_throughput: String,
    dl_average_throughput: String,
    ul_peak_throughput: String,
    /// Spelled so in the specification.
    #[serde(rename = "dlPeakThroughPut")]
    dl_peak_throughput: String,
    ul_average_packet_throughput: String,
    dl_average_packet_throughput: String,
    ul_peak_packet_throughput: String,
    dl_peak_packet_throughput: String,
}

impl Statistics {
    pub(super) fn of(mean: [Rate; 2], peak: [Rate; 2]) -> Self {
        Self {
            ul_average_throughput: mean[0].bits(),
            dl_average_throughput: mean[1].bits(),
            ul_peak_throughput: peak[0].bits(),
            dl_peak_throughput: peak[1].bits(),
            ul_average_packet_throughput: mean[0].packets(),
            dl_average_packet_throughput: mean[1].packets(),
            ul_peak_packet_throughput: peak[0].packets(),
            dl_peak_packet_throughput: peak[1].packets(),
        }
    }
}
