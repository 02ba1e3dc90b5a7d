//! A whole node: the core with a clock that the test moves, over tables that remember.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use compiled::Buffered;
use pfcp::ie::{FSeid, NodeId, RecoveryTimeStamp};
use pfcp::{Cause, IeType, MessageType, Writer};
use testkit::requests::{PdrIe, choose4, ordinary_with};
use testkit::tables::FakeTables;
use testkit::upf::{Sent, Upf};

use crate::base::event::Event;
use crate::base::time::Time;
use crate::core::Core;
use crate::exchange::outbox::Outbox;
use crate::rules::config::{Config, NetworkInstance, NodeIdConfig};
use crate::shard::record::Record;

/// Our Recovery Time Stamp, unless a test says another one.
pub const OUR_RECOVERY: u32 = 3_900_000_000;

/// A UPF with one network instance, whose pools do not run short.
pub fn config() -> Config {
    Config {
        node_id: NodeIdConfig::Fqdn("upf1.example.org".into()),
        n4: vec![[10, 100, 0, 1].into()],
        n3: vec![[10, 3, 0, 1].into()],
        network_instances: vec![NetworkInstance {
            name: "internet".into(),
            pools4: vec!["10.60.0.0/16".parse().unwrap()],
            pools6: vec!["2001:db8:60::/48".parse().unwrap()],
            ..NetworkInstance::default()
        }],
        seed: 7,
        ..Config::default()
    }
}

/// Address of an SMF.
pub fn smf(last: u8) -> SocketAddr {
    SocketAddr::from(([10, 100, 0, last], 8805))
}

/// The same as its Node ID.
pub fn id_of(smf: SocketAddr) -> Ipv4Addr {
    match smf.ip() {
        IpAddr::V4(v4) => v4,
        IpAddr::V6(_) => unreachable!("SMFs of these tests have IPv4"),
    }
}

/// Recovery Time Stamp of the SMFs of [`World::associate`].
const SMF_RECOVERY: u32 = 7;

/// The core, its clock, and what it has said.
#[derive(Debug)]
pub struct World {
    /// Under test.
    pub core: Core<FakeTables>,
    /// Moved by [`Self::pass`], or by the test.
    pub now: Time,
    /// Not yet taken by [`Self::sent`].
    pub out: Outbox,
    /// All so far.
    pub events: Vec<Event>,
    sequence: u32,
}

impl World {
    /// Without an SMF.
    pub fn new(config: Config) -> Self {
        Self::over(config, OUR_RECOVERY, FakeTables::with_teids(1 << 20))
    }

    /// Over these tables, started at this NTP second.
    pub fn over(config: Config, recovery: u32, tables: FakeTables) -> Self {
        Self {
            core: Core::new(config, recovery, tables),
            now: Time(1_000_000_000),
            out: Outbox::new(),
            events: Vec::new(),
            sequence: 0,
        }
    }

    /// With associations of these SMFs, which are asked for no heartbeats. NTP began with our clock, a second before it.
    pub fn with_smfs(config: Config, smfs: &[SocketAddr]) -> Self {
        let config = Config {
            heartbeat_interval: Duration::ZERO,
            ..config
        };
        let tables = FakeTables::with_teids(64.max(config.limits.sessions * 2));
        let mut world = Self::over(config, 1, tables);
        for &smf in smfs {
            world.associate(smf);
        }
        world
    }

    /// Set up an association.
    pub fn associate(&mut self, smf: SocketAddr) {
        self.ask(smf, MessageType::ASSOCIATION_SETUP_REQUEST, None, |w| {
            w.node_id(NodeId::Ipv4(id_of(smf)));
            w.recovery_time_stamp(RecoveryTimeStamp(SMF_RECOVERY));
        });
    }

    /// Give a datagram to the core; what it sends.
    pub fn receive(&mut self, from: SocketAddr, datagram: &[u8]) -> Sent {
        self.out.clear();
        self.core.expect(std::iter::once((from, datagram)));
        self.core.receive(self.now, from, datagram, &mut self.out);
        self.sent()
    }

    /// A GTP-U message; what is sent thereupon.
    pub fn hear(&mut self, packet: &[u8]) -> Sent {
        self.out.clear();
        self.core.receive_gtpu(self.now, packet, &mut self.out);
        self.sent()
    }

    /// Take what the core has sent.
    pub fn sent(&mut self) -> Sent {
        self.events.extend_from_slice(self.out.events());
        let sent = self.out.iter().map(|(to, bytes)| (to, bytes.to_vec()));
        let sent = sent.collect();
        self.out.clear();
        sent
    }

    /// Move the clock, and let fall due what is due on the way; what the core sends.
    pub fn pass(&mut self, time: Duration) -> Sent {
        let end = self.now.after(time);
        let mut sent = Vec::new();
        for _ in 0..100_000 {
            let Some(due) = self.core.next_deadline().filter(|due| *due <= end) else {
                self.now = end;
                self.check_indexes();
                return sent;
            };
            self.now = self.now.max(due);
            self.core.advance(self.now, &mut self.out);
            sent.extend(self.sent());
        }
        panic!("deadlines do not end");
    }

    /// A request of an SMF; its accepted answer.
    pub fn ask(
        &mut self,
        from: SocketAddr,
        kind: MessageType,
        seid: Option<u64>,
        write: impl Fn(&mut Writer<'_>),
    ) -> Vec<u8> {
        self.sequence += 1;
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes, kind, seid, self.sequence);
        write(&mut writer);
        writer.finish();
        let mut sent = self.receive(from, &bytes);
        assert_eq!(sent.len(), 1);
        let (_, answer) = sent.remove(0);
        let message = pfcp::decode(&answer).unwrap();
        let cause = message.ies.find(IeType::CAUSE).unwrap().unwrap();
        assert_eq!(cause.value, [1], "{kind:?}: {:?}", message.ies);
        self.check_indexes();
        answer
    }

    /// An ordinary session; our SEID.
    pub fn establish(&mut self, from: SocketAddr, cp_seid: u64) -> u64 {
        self.establish_with(from, cp_seid, |_| {})
    }

    /// The same, with what `more` writes beside.
    pub fn establish_with(
        &mut self,
        from: SocketAddr,
        cp_seid: u64,
        more: impl Fn(&mut Writer<'_>),
    ) -> u64 {
        self.establish_of(from, cp_seid, |w| {
            let (mut uplink, mut downlink) = (PdrIe::uplink(), PdrIe::downlink());
            (uplink.ue, downlink.ue) = (None, Some(choose4()));
            ordinary_with(w, uplink, downlink);
            more(w);
        })
    }

    /// A session of these rules; our SEID.
    pub fn establish_of(
        &mut self,
        from: SocketAddr,
        cp_seid: u64,
        rules: impl Fn(&mut Writer<'_>),
    ) -> u64 {
        let kind = MessageType::SESSION_ESTABLISHMENT_REQUEST;
        let answer = self.ask(from, kind, Some(0), |w| {
            w.node_id(NodeId::Ipv4(id_of(from)));
            w.f_seid(FSeid {
                seid: cp_seid,
                ipv4: Some(id_of(from)),
                ipv6: None,
            });
            rules(w);
        });
        let message = pfcp::decode(&answer).unwrap();
        let f_seid = message.ies.find(IeType::F_SEID).unwrap().unwrap();
        u64::from_be_bytes(f_seid.value[1..9].try_into().unwrap())
    }

    /// Change a session.
    pub fn modify(&mut self, from: SocketAddr, seid: u64, write: impl Fn(&mut Writer<'_>)) {
        let kind = MessageType::SESSION_MODIFICATION_REQUEST;
        self.ask(from, kind, Some(seid), write);
    }

    /// End a session.
    pub fn delete(&mut self, from: SocketAddr, seid: u64) {
        let kind = MessageType::SESSION_DELETION_REQUEST;
        self.ask(from, kind, Some(seid), |_| {});
    }

    /// A session goes elsewhere, and returns.
    pub fn move_session(&mut self, seid: u64) -> Sent {
        let record = self.core.release(self.now, seid).unwrap();
        assert!(self.core.session(seid).is_none());
        let record = Record::read(&record.write()).unwrap();
        let adopted = self.core.adopt(self.now, record, &mut self.out);
        assert_eq!(adopted, Ok(seid));
        self.check_indexes();
        self.sent()
    }

    /// A packet has come to wait; what is sent thereupon.
    pub fn buffered(&mut self, what: Buffered) -> Sent {
        self.core.buffered(self.now, what);
        self.core.advance(self.now, &mut self.out);
        self.sent()
    }

    /// Answer a report, `new` being the SMF's SEID from now on; what is sent thereupon.
    pub fn answer(
        &mut self,
        from: SocketAddr,
        report: &[u8],
        cause: Cause,
        new: Option<u64>,
    ) -> Sent {
        self.answer_with(from, report, cause, |writer| {
            if let Some(seid) = new {
                writer.f_seid(FSeid {
                    seid,
                    ipv4: Some(id_of(from)),
                    ipv6: None,
                });
            }
        })
    }

    /// The same, with what `more` writes beside.
    pub fn answer_with(
        &mut self,
        from: SocketAddr,
        report: &[u8],
        cause: Cause,
        more: impl Fn(&mut Writer<'_>),
    ) -> Sent {
        let header = pfcp::decode(report).unwrap().header;
        let mut bytes = Vec::new();
        let kind = MessageType::SESSION_REPORT_RESPONSE;
        let mut writer = Writer::new(&mut bytes, kind, header.seid, header.sequence);
        writer.cause(cause);
        more(&mut writer);
        writer.finish();
        self.receive(from, &bytes)
    }

    /// Sessions that packets can meet.
    pub fn live(&self) -> usize {
        self.core.tables().live.len()
    }

    /// Messages that were ignored for this reason.
    pub fn ignored(&self, name: &str) -> u64 {
        (self.core.stats().ignored_messages())
            .find(|(why, _)| why.name() == name)
            .unwrap()
            .1
    }

    /// In tests that see the inside of the core. Of many sessions it would take too long after each step.
    fn check_indexes(&self) {
        #[cfg(test)]
        if self.core.session_count() <= 64 {
            self.core.check_indexes();
        }
    }
}

impl Upf for World {
    fn receive(&mut self, from: SocketAddr, datagram: &[u8]) -> Sent {
        self.receive(from, datagram)
    }
}
