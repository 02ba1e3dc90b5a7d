//! Session Reports of usage from one thread: 100 000 sessions reach their volume threshold at once, and the SMF
//! answers each report. Without socket and tables; memory of that many sessions is in no cache.

#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout)]

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Instant;

use compiled::{Compiled, Counters, NoRoom, PdrId, Tables};
use pfcp::ie::{FSeid, MeasurementMethod, NodeId, RecoveryTimeStamp, ReportingTriggers, Volume};
use pfcp::{Cause, Header, IeType, MessageType, Writer};
use session::config::{Config, Limits, NetworkInstance};
use session::{Core, Outbox, Time};

const SESSIONS: u32 = 100_000;
const THRESHOLD: u64 = 1_000_000;
const SMF: Ipv4Addr = Ipv4Addr::new(10, 100, 0, 2);

/// Tables that count for each session what all of its PDRs have passed.
#[derive(Default)]
struct Counting {
    bytes: u64,
}

impl Tables for Counting {
    type Handle = ();

    fn direct_teids(&self) -> u32 {
        1 << 20
    }

    fn publish(&mut self, (): &mut (), _: &Compiled) -> Result<(), NoRoom> {
        Ok(())
    }

    fn withdraw(&mut self, (): &mut ()) {}

    fn counters(&self, (): &(), _: PdrId) -> Counters {
        Counters {
            packets: self.bytes / 1000,
            bytes: self.bytes,
            ..Counters::default()
        }
    }
}

struct World {
    core: Core<Counting>,
    out: Outbox,
    now: Time,
    sequence: u32,
    smf: SocketAddr,
}

fn config() -> Config {
    Config {
        n3: vec![Ipv4Addr::new(10, 3, 0, 1).into()],
        network_instances: vec![NetworkInstance {
            name: "internet".into(),
            pools4: vec!["10.0.0.0/9".parse().unwrap()],
            pools6: Vec::new(),
            ..NetworkInstance::default()
        }],
        limits: Limits {
            sessions: SESSIONS + 1,
            ..Limits::default()
        },
        ..Config::default()
    }
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            core: Core::new(config(), 1, Counting::default()),
            out: Outbox::new(),
            now: Time(1_000_000_000),
            sequence: 0,
            smf: SocketAddr::from((SMF, 8805)),
        };
        world.ask(MessageType::ASSOCIATION_SETUP_REQUEST, None, |w| {
            w.node_id(NodeId::Ipv4(SMF));
            w.recovery_time_stamp(RecoveryTimeStamp(7));
        });
        world
    }

    fn ask(
        &mut self,
        kind: MessageType,
        seid: Option<u64>,
        write: impl Fn(&mut Writer<'_>),
    ) -> Vec<u8> {
        self.sequence += 1;
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes, kind, seid, self.sequence);
        write(&mut writer);
        writer.finish();
        self.out.clear();
        self.core.receive(self.now, self.smf, &bytes, &mut self.out);
        self.out.iter().next().unwrap().1.to_vec()
    }

    /// A session with a URR over both of its PDRs; our SEID.
    fn establish(&mut self, cp_seid: u64) -> u64 {
        let kind = MessageType::SESSION_ESTABLISHMENT_REQUEST;
        let answer = self.ask(kind, Some(0), |w| {
            w.node_id(NodeId::Ipv4(SMF));
            w.f_seid(FSeid {
                seid: cp_seid,
                ipv4: Some(SMF),
                ipv6: None,
            });
            rules(w);
        });
        let message = pfcp::decode(&answer).unwrap();
        let f_seid = message.ies.find(IeType::F_SEID).unwrap().unwrap();
        u64::from_be_bytes(f_seid.value[1..9].try_into().unwrap())
    }

    /// Answer what was sent, and what is sent thereupon, until nothing is.
    fn answer_all(&mut self, answered: &mut u64) {
        let mut answers: Vec<Vec<u8>> = Vec::new();
        loop {
            answers.clear();
            for (_, datagram) in self.out.iter() {
                let (header, _) = Header::decode(datagram).unwrap();
                let mut bytes = Vec::with_capacity(32);
                let kind = MessageType::SESSION_REPORT_RESPONSE;
                let mut writer = Writer::new(&mut bytes, kind, header.seid, header.sequence);
                writer.cause(Cause::REQUEST_ACCEPTED);
                writer.finish();
                answers.push(bytes);
            }
            self.out.clear();
            if answers.is_empty() {
                return;
            }
            *answered += answers.len() as u64;
            for answer in &answers {
                self.core.receive(self.now, self.smf, answer, &mut self.out);
            }
        }
    }
}

fn rules(w: &mut Writer<'_>) {
    w.grouped(IeType::CREATE_URR, |w| {
        w.put(IeType::URR_ID, 1u32);
        w.put(IeType::MEASUREMENT_METHOD, MeasurementMethod::VOLUM);
        w.put(IeType::REPORTING_TRIGGERS, ReportingTriggers::VOLTH);
        let threshold = Volume {
            total: Some(THRESHOLD),
            ..Volume::default()
        };
        w.put(IeType::VOLUME_THRESHOLD, threshold);
    });
    for (id, source) in [(1u16, 0u8), (2, 1)] {
        w.grouped(IeType::CREATE_PDR, |w| {
            w.pdr_id(id);
            w.put(IeType::PRECEDENCE, 100u32);
            w.grouped(IeType::PDI, |w| {
                w.put(IeType::SOURCE_INTERFACE, source);
                if source == 0 {
                    w.ie(IeType::F_TEID, &[0x05, 0]);
                } else {
                    w.network_instance("internet");
                    w.ie(IeType::UE_IP_ADDRESS, &[0x10]);
                }
            });
            if source == 0 {
                w.put(IeType::OUTER_HEADER_REMOVAL, 0u8);
            }
            w.put(IeType::FAR_ID, u32::from(id));
            w.put(IeType::URR_ID, 1u32);
        });
    }
    for (id, destination) in [(1u32, 1u8), (2, 0)] {
        w.grouped(IeType::CREATE_FAR, |w| {
            w.put(IeType::FAR_ID, id);
            w.put(IeType::APPLY_ACTION, 2u8);
            w.grouped(IeType::FORWARDING_PARAMETERS, |w| {
                w.put(IeType::DESTINATION_INTERFACE, destination);
                if destination == 1 {
                    w.network_instance("internet");
                } else {
                    w.ie(
                        IeType::OUTER_HEADER_CREATION,
                        &[1, 0, 0, 0, 0x50, 0, 10, 3, 1, 1],
                    );
                }
            });
        });
    }
}

fn main() {
    let mut world = World::new();
    let seids: Vec<u64> = (1..=u64::from(SESSIONS))
        .map(|cp_seid| world.establish(cp_seid))
        .collect();
    println!("{} sessions", world.core.session_count());
    for round in 1..=5 {
        world.core.tables_mut().bytes += THRESHOLD / 2;
        world.out.clear();
        let (begin, mut answered) = (Instant::now(), 0);
        // As alarms come: in batches, between which answers are read.
        for batch in seids.chunks(256) {
            for &seid in batch {
                world.core.crossed(world.now, seid, &mut world.out);
            }
            world.answer_all(&mut answered);
        }
        let took = begin.elapsed();
        assert_eq!(answered, u64::from(SESSIONS), "each has reported, once");
        let rate = answered as f64 / took.as_secs_f64();
        println!("round {round}: {answered} reports in {took:.2?}, {rate:.0} a second");
    }
    // All at once, with an SMF that begins to answer only then.
    world.core.tables_mut().bytes += THRESHOLD / 2;
    let begin = Instant::now();
    for &seid in &seids {
        world.core.crossed(world.now, seid, &mut world.out);
    }
    println!(
        "storm: {} wait after {:.2?}",
        world.core.usage_waiting(),
        begin.elapsed()
    );
    let mut answered = 0;
    world.answer_all(&mut answered);
    assert_eq!(answered, u64::from(SESSIONS));
    let rate = answered as f64 / begin.elapsed().as_secs_f64();
    println!(
        "storm: {answered} reports in {:.2?}, {rate:.0} a second",
        begin.elapsed()
    );
}
