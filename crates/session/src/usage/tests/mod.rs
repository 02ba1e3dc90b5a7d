//! URRs: what is measured, when it is reported, and that none of it is lost.

mod before_qos;
mod outage;
mod properties;
mod refusals;
mod release;
mod times;
mod volumes;

use std::net::SocketAddr;
use std::time::Duration;

use pfcp::ie::{MeasurementMethod, UsageInformation, UsageReport, UsageReportTrigger, Volume};
use pfcp::message::SessionReportRequest;
use pfcp::{Cause, IeType, MessageType, Writer};
use testkit::requests::{MBQE, PdrIe, UrrIe, choose4, flow, octets, ordinary_with};
use testkit::upf::Sent;

use crate::rules::config::{Config, Limits};
use crate::shard::tests::config;
use crate::testing::world::{World, smf};

pub(super) fn total(octets: u64) -> [Option<u64>; 3] {
    [Some(octets), None, None]
}

/// Content of a Usage Report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) urr: u32,
    pub(super) seqn: u32,
    pub(super) trigger: UsageReportTrigger,
    pub(super) up: u64,
    pub(super) down: u64,
    pub(super) packets: Volume,
    pub(super) seconds: Option<u32>,
    pub(super) times: Option<(u32, u32)>,
    pub(super) first: Option<u32>,
    pub(super) last: Option<u32>,
    pub(super) information: UsageInformation,
    pub(super) query: Option<u32>,
    pub(super) events: Vec<u32>,
}

impl Said {
    fn new(ie: &UsageReport<'_>) -> Self {
        let volume = ie.volume_measurement.unwrap_or_default();
        let [up, down] = [volume.octets.uplink, volume.octets.downlink].map(|v| v.unwrap_or(0));
        if ie.volume_measurement.is_some() {
            assert_eq!(volume.octets.total, Some(up + down));
        }
        Self {
            urr: ie.urr_id,
            seqn: ie.ur_seqn,
            trigger: ie.usage_report_trigger,
            up,
            down,
            packets: volume.packets,
            seconds: ie.duration_measurement,
            times: ie.start_time.zip(ie.end_time),
            first: ie.time_of_first_packet,
            last: ie.time_of_last_packet,
            information: ie.usage_information.unwrap_or(UsageInformation::empty()),
            query: ie.query_urr_reference,
            events: ie.event_time_stamps.iter().map(Result::unwrap).collect(),
        }
    }

    /// URR, number, trigger, octets up and down.
    pub(super) fn brief(&self) -> (u32, u32, UsageReportTrigger, u64, u64) {
        (self.urr, self.seqn, self.trigger, self.up, self.down)
    }
}

/// The Usage Reports of a Session Report Request.
pub(super) fn said_in(datagram: &[u8]) -> Vec<Said> {
    let message = pfcp::decode(datagram).unwrap();
    let request = SessionReportRequest::decode(&message).unwrap();
    let reports = request.usage_reports.iter();
    reports.map(|ie| Said::new(&ie.unwrap())).collect()
}

/// The Usage Reports of a Session Modification Response or Session Deletion Response.
pub(super) fn said_in_answer(datagram: &[u8]) -> Vec<Said> {
    let message = pfcp::decode(datagram).unwrap();
    let groups = [
        IeType::USAGE_REPORT_IN_SESSION_MODIFICATION_RESPONSE,
        IeType::USAGE_REPORT_IN_SESSION_DELETION_RESPONSE,
    ];
    let ies = message.ies.iter().map(Result::unwrap);
    let reports = ies.filter(|ie| groups.contains(&ie.ie_type));
    reports
        .map(|ie| Said::new(&<UsageReport<'_> as pfcp::FromIe>::from_ie(&ie).unwrap()))
        .collect()
}

pub(super) struct Measuring {
    pub(super) world: World,
    pub(super) seid: u64,
}

pub(super) fn seconds(s: u64) -> Duration {
    Duration::from_secs(s)
}

/// A world for so many sessions.
pub(super) fn world(sessions: u32) -> World {
    let mut config = Config {
        limits: Limits {
            sessions,
            ..Limits::default()
        },
        ..config()
    };
    config.network_instances[0].pools4 = vec!["10.60.0.0/16".parse().unwrap()];
    let mut world = World::with_smfs(config, &[smf(2)]);
    world.core.tables_mut().exact = true;
    world
}

impl Measuring {
    /// An ordinary session, both of whose PDRs name these URRs.
    pub(super) fn new(urrs: &[UrrIe]) -> Self {
        let mut world = world(20);
        let seid = establish(&mut world, 77, urrs);
        Self { world, seid }
    }

    /// Two PDRs more, an uplink and a downlink one, that name the first URR as well.
    pub(super) fn with_four_pdrs(urrs: &[UrrIe]) -> Self {
        let mut world = world(20);
        let seid = establish_with(&mut world, 77, urrs, |w| {
            for (id, of) in [(3, PdrIe::uplink()), (4, PdrIe::downlink())] {
                let mut pdr = PdrIe { id, ..of };
                pdr.precedence = Some(10);
                pdr.ue = (id == 4).then(choose4);
                pdr.filters = vec![flow("permit out 17 from 192.0.2.9 to assigned")];
                pdr.urrs = vec![urrs[0].id];
                pdr.create(w);
            }
        });
        Self { world, seid }
    }

    /// Alarms that have gone off.
    pub(super) fn alarms(&self) -> u64 {
        self.world.core.tables().crossings
    }

    /// So many packets of a PDR; what is sent thereupon.
    pub(super) fn packets(&mut self, pdr: u16, count: u64, bytes: u64) -> Vec<Said> {
        packets(&mut self.world, self.seid, pdr, count, bytes);
        let sent = self.world.sent();
        self.accept(&sent)
    }

    /// Answer each, and what is sent thereupon.
    pub(super) fn accept(&mut self, sent: &Sent) -> Vec<Said> {
        let mut said = Vec::new();
        let mut sent = sent.clone();
        while !sent.is_empty() {
            let (to, datagram) = sent.remove(0);
            said.extend(said_in(&datagram));
            let more = (self.world).answer(to, &datagram, Cause::REQUEST_ACCEPTED, None);
            sent.extend(more);
        }
        said
    }

    /// As [`Self::packets`], all dropped by an MBR.
    pub(super) fn dropped(&mut self, pdr: u16, count: u64, bytes: u64) -> Vec<Said> {
        self.world.core.tables_mut().beyond_mbr = true;
        let said = self.packets(pdr, count, bytes);
        self.world.core.tables_mut().beyond_mbr = false;
        said
    }

    /// Time goes by; what is reported meanwhile, each answered at once.
    pub(super) fn pass(&mut self, time: Duration) -> Vec<Said> {
        let end = self.world.now.after(time);
        let mut said = Vec::new();
        while let Some(due) = self.world.core.next_deadline().filter(|due| *due <= end) {
            self.world.now = self.world.now.max(due);
            let now = self.world.now;
            self.world.core.advance(now, &mut self.world.out);
            let sent = self.world.sent();
            said.extend(self.accept(&sent));
        }
        self.world.now = end;
        said
    }

    pub(super) fn modify(&mut self, write: impl Fn(&mut Writer<'_>)) -> Vec<Said> {
        let kind = MessageType::SESSION_MODIFICATION_REQUEST;
        let answer = self.world.ask(smf(2), kind, Some(self.seid), write);
        said_in_answer(&answer)
    }

    pub(super) fn update(&mut self, id: u32, more: &[(IeType, Vec<u8>)]) -> Vec<Said> {
        self.modify(|w| {
            w.grouped(IeType::UPDATE_URR, |w| {
                w.put(IeType::URR_ID, id);
                more.iter().for_each(|(ie, value)| w.ie(*ie, value));
            });
        })
    }

    pub(super) fn query(&mut self, id: u32) -> Vec<Said> {
        self.modify(|w| w.grouped(IeType::QUERY_URR, |w| w.put(IeType::URR_ID, id)))
    }

    pub(super) fn delete(&mut self) -> Vec<Said> {
        let kind = MessageType::SESSION_DELETION_REQUEST;
        let answer = self.world.ask(smf(2), kind, Some(self.seid), |_| {});
        said_in_answer(&answer)
    }

    /// NTP seconds of the world now: it began as a `recovery` of 1 at its time 0.
    pub(super) fn ntp(&self) -> u32 {
        1 + (self.world.now.0 / 1_000_000_000) as u32
    }
}

pub(super) fn establish(world: &mut World, cp_seid: u64, urrs: &[UrrIe]) -> u64 {
    establish_with(world, cp_seid, urrs, |_| {})
}

/// With what `more` writes beside the ordinary rules.
fn establish_with(
    world: &mut World,
    cp_seid: u64,
    urrs: &[UrrIe],
    more: impl Fn(&mut Writer<'_>),
) -> u64 {
    establish_by(world, smf(2), (cp_seid, urrs), more)
}

/// The same, by this SMF.
pub(super) fn establish_by(
    world: &mut World,
    by: SocketAddr,
    (cp_seid, urrs): (u64, &[UrrIe]),
    more: impl Fn(&mut Writer<'_>),
) -> u64 {
    world.establish_of(by, cp_seid, |w| {
        let (mut uplink, mut downlink) = (PdrIe::uplink(), PdrIe::downlink());
        (uplink.ue, downlink.ue) = (None, Some(choose4()));
        // A PDR names that many at most.
        uplink.urrs = urrs.iter().rev().take(16).map(|urr| urr.id).collect();
        downlink.urrs = uplink.urrs.clone();
        urrs.iter().for_each(|urr| urr.create(w));
        ordinary_with(w, uplink, downlink);
        more(w);
    })
}

/// Packets of a PDR; alarms reach the core.
pub(super) fn packets(world: &mut World, seid: u64, pdr: u16, count: u64, bytes: u64) {
    for _ in 0..count {
        if world.core.tables_mut().packet(seid, pdr, bytes) {
            world.core.crossed(world.now, seid, &mut world.out);
        }
    }
}
