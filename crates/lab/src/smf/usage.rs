//! URRs as an SMF asks for them, and the Usage Reports that it gets.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use rs_pfcp::ie::measurement_method::MeasurementMethod;
use rs_pfcp::ie::reporting_triggers::ReportingTriggers;
use rs_pfcp::ie::urr_id::UrrId;
use rs_pfcp::ie::usage_report::UsageReport;
use rs_pfcp::ie::usage_report_trigger::UsageReportTriggerFlag;
use rs_pfcp::ie::volume_quota::VolumeQuota;
use rs_pfcp::ie::volume_threshold::VolumeThreshold;
use rs_pfcp::ie::{Ie, IeType};
use rs_pfcp::message::MsgType;

use super::{Answer, Session, Smf};

/// Number of packets is wanted, too (MNOP: TS 29.244, 8.2.68).
const COUNT_PACKETS: u8 = 1 << 4;

/// Usage before QoS enforcement (MBQE).
const BEFORE_QOS: u8 = 1;

/// Immediate Start Time Metering (ISTM).
const FROM_THE_BEGINNING: u8 = 1 << 3;

/// A URR.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Urr {
    /// URR ID.
    pub id: u32,
    pub(super) members: Vec<Ie>,
}

impl Urr {
    /// Measures volume and packets.
    pub fn of_volume(id: u32, triggers: ReportingTriggers) -> Self {
        Self::new(id, MeasurementMethod::new(false, true, false), triggers)
    }

    /// With any method.
    pub fn new(id: u32, method: MeasurementMethod, triggers: ReportingTriggers) -> Self {
        let count = Ie::new(IeType::MeasurementInformation, vec![COUNT_PACKETS]);
        Self {
            id,
            members: vec![method.to_ie(), triggers.to_ie(), count],
        }
    }

    /// Time, from the beginning, whether packets come or not (ISTM).
    pub fn of_time(id: u32) -> Self {
        let method = MeasurementMethod::new(true, false, false);
        let information = Ie::new(IeType::MeasurementInformation, vec![FROM_THE_BEGINNING]);
        let triggers = ReportingTriggers::default();
        Self {
            id,
            members: vec![method.to_ie(), triggers.to_ie(), information],
        }
    }

    /// One of volume that measures before QoS enforcement (MBQE).
    pub fn before_qos(id: u32, triggers: ReportingTriggers) -> Self {
        let mut urr = Self::of_volume(id, triggers);
        let both = vec![COUNT_PACKETS | BEFORE_QOS];
        if let Some(information) = urr.members.last_mut() {
            *information = Ie::new(IeType::MeasurementInformation, both);
        }
        urr
    }

    /// And this.
    pub fn with(mut self, ie: Ie) -> Self {
        self.members.push(ie);
        self
    }

    /// A threshold of so many octets, uplink and downlink together.
    pub fn threshold(self, octets: u64) -> Result<Self> {
        let threshold = VolumeThreshold::new(true, false, false, Some(octets), None, None);
        Ok(self.with(Ie::new(IeType::VolumeThreshold, threshold.marshal())))
    }

    /// A quota of so many octets, uplink and downlink together.
    pub fn quota(self, octets: u64) -> Result<Self> {
        Ok(self.with(quota(octets)?))
    }

    /// Seconds of a threshold, a period, an inactivity and so on.
    pub fn seconds(self, ie_type: IeType, seconds: u32) -> Self {
        self.with(Ie::new(ie_type, seconds.to_be_bytes().to_vec()))
    }

    /// As a Create URR.
    pub fn create(&self) -> Ie {
        let mut members = vec![UrrId::new(self.id).to_ie()];
        members.extend_from_slice(&self.members);
        Ie::new_grouped(IeType::CreateUrr, members)
    }
}

/// A Volume Quota of so many octets, uplink and downlink together.
pub fn quota(octets: u64) -> Result<Ie> {
    Ok(VolumeQuota::new(1, Some(octets), None, None).to_ie()?)
}

/// An Update URR.
pub fn update_urr(id: u32, what: Vec<Ie>) -> Ie {
    let mut members = vec![UrrId::new(id).to_ie()];
    members.extend(what);
    Ie::new_grouped(IeType::UpdateUrr, members)
}

/// A Query URR.
pub fn query_urr(id: u32) -> Ie {
    Ie::new_grouped(IeType::QueryUrr, vec![UrrId::new(id).to_ie()])
}

/// Octets and packets, uplink and downlink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Octets of IP.
    pub octets: [u64; 2],
    /// Packets.
    pub packets: [u64; 2],
}

impl Used {
    /// So much more was used.
    pub fn add(&mut self, more: Self) {
        for direction in [0, 1] {
            self.octets[direction] += more.octets[direction];
            self.packets[direction] += more.packets[direction];
        }
    }

    /// Octets of both directions.
    pub fn total(&self) -> u64 {
        self.octets.iter().sum()
    }
}

/// Usage Reports of one session, each once, by URR and UR-SEQN.
#[derive(Clone, Debug, Default)]
pub struct Reports(BTreeMap<(u32, u32), UsageReport>);

impl Reports {
    /// Adds those of one type in a message. A report that was sent again must say the same.
    pub fn read(&mut self, message: &Answer, group: IeType) -> Result<()> {
        for ie in message.ies(group) {
            let report = UsageReport::unmarshal(&ie.payload).context("Usage Report")?;
            let name = (report.urr_id.id, report.ur_seqn.sequence_number());
            let before = self.0.insert(name, report.clone());
            ensure!(
                before.is_none_or(|before| before == report),
                "URR and UR-SEQN {name:?} say two things"
            );
        }
        Ok(())
    }

    /// The reports of one URR in their order, which begins with 0 and leaves none out.
    pub fn of(&self, urr: u32) -> Result<Vec<&UsageReport>> {
        let own = self.0.range((urr, 0)..=(urr, u32::MAX));
        let (names, reports): (Vec<u32>, Vec<&UsageReport>) =
            own.map(|((_, seqn), report)| (*seqn, report)).unzip();
        let count = u32::try_from(names.len())?;
        ensure!(
            names.iter().copied().eq(0..count),
            "UR-SEQNs of URR {urr}: {names:?}"
        );
        Ok(reports)
    }

    /// All reports.
    pub fn all(&self) -> Vec<&UsageReport> {
        self.0.values().collect()
    }

    /// The sum of the reports of one URR.
    pub fn sum(&self, urr: u32) -> Result<Used> {
        let mut sum = Used::default();
        for report in self.of(urr)? {
            sum.add(used(report)?);
        }
        Ok(sum)
    }
}

/// Volume that a report says was used; nothing, if it has none.
pub fn used(report: &UsageReport) -> Result<Used> {
    let Some(volume) = &report.volume_measurement else {
        return Ok(Used::default());
    };
    let octets = [volume.uplink_volume, volume.downlink_volume];
    let octets = octets.map(|octets| octets.unwrap_or(0));
    ensure!(
        volume.total_volume == Some(octets.iter().sum()),
        "total volume {volume:?}"
    );
    let packets = [volume.uplink_packets, volume.downlink_packets];
    Ok(Used {
        octets,
        packets: packets.map(|packets| packets.unwrap_or(0)),
    })
}

/// Whether a report was made for this.
pub fn is_for(report: &UsageReport, trigger: UsageReportTriggerFlag) -> bool {
    report.usage_report_trigger.contains(trigger)
}

impl Smf {
    /// Usage Reports of a session that came by themselves so far.
    pub fn usage(&self, session: &Session) -> Result<Reports> {
        let mut reports = Reports::default();
        for request in self.requests(MsgType::SessionReportRequest)? {
            if request.seid()? == session.cp_seid {
                reports.read(&request, IeType::UsageReportWithinSessionReportRequest)?;
            }
        }
        Ok(reports)
    }

    /// Deletes a session; all of its Usage Reports, those in the answer included.
    pub fn delete_measured(&self, session: &Session) -> Result<Reports> {
        let seid = Some(session.up_seid);
        let answer = self.request(MsgType::SessionDeletionRequest, seid, &[])?;
        answer.accepted()?;
        let mut reports = self.usage(session)?;
        reports.read(&answer, IeType::UsageReportWithinSessionDeletionResponse)?;
        Ok(reports)
    }

    /// Changes a session; the Usage Reports in the answer.
    pub fn modify_measured(&self, session: &Session, ies: &[Ie]) -> Result<Reports> {
        let seid = Some(session.up_seid);
        let answer = self.request(MsgType::SessionModificationRequest, seid, ies)?;
        answer.accepted()?;
        let mut reports = Reports::default();
        reports.read(
            &answer,
            IeType::UsageReportWithinSessionModificationResponse,
        )?;
        Ok(reports)
    }
}
