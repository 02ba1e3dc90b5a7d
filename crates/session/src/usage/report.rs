//! Usage reports: on the wire (TS 29.244, 7.5.8.3), and in the log of usage.

use ipnet::IpNet;
use pfcp::ie::{ReportType, UsageInformation, UsageReportTrigger, Volume, VolumeMeasurement};
use pfcp::{IeType, Writer};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::base::bits;
use crate::base::ids::PeerId;
use crate::base::node_id::NodeId;
use crate::rules::UrrId;
use crate::usage::amount::Amount;

/// Usage Report of one URR.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) urr: UrrId,
    pub(crate) seqn: u32,
    #[serde(with = "bits")]
    pub(crate) trigger: UsageReportTrigger,
    /// NTP seconds.
    pub(crate) start: u32,
    pub(crate) end: u32,
    pub(crate) used: Amount,
    /// The volume is reported.
    pub(crate) volume: bool,
    /// And the packets.
    pub(crate) packets: bool,
    /// Seconds.
    pub(crate) duration: Option<u32>,
    pub(crate) first: Option<u32>,
    pub(crate) last: Option<u32>,
    #[serde(with = "bits")]
    pub(crate) information: UsageInformation,
    /// Query URR Reference.
    pub(crate) query: Option<u32>,
    /// When its events were.
    pub(crate) events: SmallVec<[u32; 0]>,
}

/// Usage for a log, whether an SMF has heard of it or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageRecord {
    /// Ours.
    pub seid: u64,
    /// The SMF's.
    pub cp_seid: u64,
    /// Peer that owns the session.
    pub peer: Option<PeerId>,
    /// The Node ID of that SMF.
    pub smf: Option<NodeId>,
    /// Addresses of the UE, as prefixes.
    pub ue: Vec<IpNet>,
    /// URR ID.
    pub urr: UrrId,
    /// UR-SEQN: with SEID and URR ID this names the report.
    pub seqn: u32,
    /// Why it was made (8.2.41).
    pub trigger: UsageReportTrigger,
    /// NTP seconds, modulo 2^32.
    pub start: u32,
    /// As `start`.
    pub end: u32,
    /// Octets and packets of each direction.
    pub used: Amount,
    /// Seconds, where time is measured.
    pub duration_s: Option<u32>,
    /// The SMF has it: it has answered, or asked for it.
    pub acknowledged: bool,
}

/// A session as the log of usage names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subject {
    pub(crate) seid: u64,
    pub(crate) cp_seid: u64,
    pub(crate) peer: PeerId,
    /// The UE's addresses, as prefixes.
    pub(crate) ue: Vec<IpNet>,
}

impl Report {
    /// As a Usage Report of this type.
    pub(crate) fn write(&self, writer: &mut Writer<'_>, group: IeType) {
        writer.grouped(group, |w| {
            w.put(IeType::URR_ID, self.urr.0);
            w.put(IeType::UR_SEQN, self.seqn);
            w.put(IeType::USAGE_REPORT_TRIGGER, self.trigger);
            // Of a start or a stop of traffic the time is that of the packet.
            let event = UsageReportTrigger::START | UsageReportTrigger::STOPT;
            if !event.contains(self.trigger) {
                w.put(IeType::START_TIME, self.start);
                w.put(IeType::END_TIME, self.end);
            }
            if self.volume {
                w.put(IeType::VOLUME_MEASUREMENT, self.measured());
            }
            for (ie_type, value) in [
                (IeType::DURATION_MEASUREMENT, self.duration),
                (IeType::TIME_OF_FIRST_PACKET, self.first),
                (IeType::TIME_OF_LAST_PACKET, self.last),
            ] {
                if let Some(value) = value {
                    w.put(ie_type, value);
                }
            }
            if !self.information.is_empty() {
                w.put(IeType::USAGE_INFORMATION, self.information);
            }
            if let Some(query) = self.query {
                w.put(IeType::QUERY_URR_REFERENCE, query);
            }
            for time in &self.events {
                w.put(IeType::EVENT_TIME_STAMP, *time);
            }
        });
    }

    fn measured(&self) -> VolumeMeasurement {
        let volume = |[uplink, downlink]: [u64; 2]| Volume {
            total: Some(uplink.saturating_add(downlink)),
            uplink: Some(uplink),
            downlink: Some(downlink),
        };
        VolumeMeasurement {
            octets: volume(self.used.bytes),
            packets: if self.packets {
                volume(self.used.packets)
            } else {
                Volume::default()
            },
        }
    }

    pub(crate) fn record(&self, of: &Subject, acknowledged: bool) -> UsageRecord {
        UsageRecord {
            seid: of.seid,
            cp_seid: of.cp_seid,
            peer: Some(of.peer),
            smf: None,
            ue: of.ue.clone(),
            urr: self.urr,
            seqn: self.seqn,
            trigger: self.trigger,
            start: self.start,
            end: self.end,
            used: self.used,
            duration_s: self.duration,
            acknowledged,
        }
    }

    /// At most so many octets on the wire.
    pub(crate) fn octets(&self) -> usize {
        160 + 8 * self.events.len()
    }

    /// Whether it says that something was used.
    pub(crate) fn says_something(&self) -> bool {
        !self.used.is_zero() || self.duration.is_some_and(|seconds| seconds > 0)
    }
}

/// Octets of reports in one message, of 65 535, beside all else that it says. A last report may go beyond.
pub(crate) const ROOM: usize = 48_000;

/// All of them as the members of a Session Report Request.
pub(crate) fn write_all(reports: &[Report], writer: &mut Writer<'_>, group: IeType) {
    for report in reports {
        report.write(writer, group);
    }
}

/// The type of a Session Report Request with usage.
pub(crate) const USAGE: ReportType = ReportType::USAR;
