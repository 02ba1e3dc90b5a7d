//! Any octets as the record of a session: what is read is written as it was, and is taken in or refused. Shared by the fuzz
//! target and the test that replays its corpus.

use std::net::IpAddr;

use pfcp::ie::{NodeId as NodeIdIe, RecoveryTimeStamp};
use pfcp::{MessageType, Writer};
use session::config::{Config, NetworkInstance};
use session::node_id::NodeId;
use session::{Change, Core, NodeRecord, Outbox, Record, Time};
use testkit::tables::FakeTables;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    NoRecord,
    /// A record of a session that cannot be here.
    Refused,
    Adopted,
}

pub(crate) fn run(octets: &[u8]) -> Outcome {
    let Ok(record) = Record::read(octets) else {
        return Outcome::NoRecord;
    };
    let written = record.write();
    assert_eq!(written, octets);
    let again = Record::read(&written).ok();
    assert_eq!(again.as_ref(), Some(&record));
    assert!(record.seid() != 0);
    live(record)
}

/// Any octets as the record of a node: what is read is written as it was, and a node that goes on like that is a node.
pub(crate) fn run_node(octets: &[u8]) -> bool {
    let Ok(record) = NodeRecord::read(octets) else {
        return false;
    };
    assert_eq!(record.write(), octets);
    let (mut core, mut out) = (
        Core::new(config(), record.recovery(), FakeTables::forgetful(1 << 16)),
        Outbox::new(),
    );
    if core.resume(Time(1), &record, &mut out).is_err() {
        return true;
    }
    for _ in 0..50 {
        let now = core.next_deadline().unwrap_or_default().max(Time(1));
        core.advance(now, &mut out);
        let written = core.node_record().write();
        assert_eq!(
            NodeRecord::read(&written).map(|again| again.write()),
            Ok(written)
        );
    }
    true
}

/// Any octets as an answer that a former node has kept: what is read is kept again as it was, if what it is about allows it.
pub(crate) fn run_answer(octets: &[u8]) -> bool {
    let node = with_an_smf();
    let (mut core, mut out) = (
        Core::new(config(), 1, FakeTables::forgetful(1 << 16)),
        Outbox::new(),
    );
    core.note_changes();
    if core.resume(Time(2), &node, &mut out).is_err() {
        return false;
    }
    let is_read = core.resume_answers(Time(2), &node, [octets]) == 0;
    core.changes(false, |change| {
        if let Change::Answer(again) = change {
            assert!(is_read);
            assert_eq!(again, octets);
        }
    });
    is_read
}

/// Any octets as the PFDs of a node that has one SMF: what is read of that SMF is written as it was, and nothing of others.
pub(crate) fn run_pfds(octets: &[u8]) -> bool {
    let mut node = with_an_smf();
    let before = node.write();
    if node.read_pfds(octets).is_err() {
        assert_eq!(node.write(), before);
        return false;
    }
    let (mut core, mut out) = (
        Core::new(config(), 1, FakeTables::forgetful(1 << 16)),
        Outbox::new(),
    );
    core.note_changes();
    if core.resume(Time(2), &node, &mut out).is_err() {
        return false;
    }
    let has_all = core.pfd_fill().0 > 0;
    core.changes(false, |change| {
        if let Change::Pfds(again) = change {
            assert!(!has_all || again == octets || again.len() < octets.len());
        }
    });
    true
}

/// A node that an SMF is associated with, as it was kept.
fn with_an_smf() -> NodeRecord {
    let (mut core, mut out) = (
        Core::new(config(), 1, FakeTables::forgetful(1 << 16)),
        Outbox::new(),
    );
    core.note_changes();
    let setup = association_setup(&NodeId::V4([10, 100, 0, 2].into()));
    core.receive(Time(1), ([10, 100, 0, 2], 8805).into(), &setup, &mut out);
    let mut kept = Vec::new();
    core.changes(true, |change| {
        if let Change::Node(octets) = change {
            kept = octets.to_vec();
        }
    });
    let node = NodeRecord::read(&kept);
    assert!(node.is_ok());
    node.unwrap_or_default()
}

/// It lives for a while, goes elsewhere, comes back, and is deleted, if it is taken in at all.
fn live(record: Record) -> Outcome {
    let (mut core, mut out) = (
        Core::new(config(), 1, FakeTables::forgetful(1 << 16)),
        Outbox::new(),
    );
    let from = ([10, 100, 0, 2], 8805).into();
    let setup = association_setup(record.smf());
    core.receive(Time(1), from, &setup, &mut out);
    let Ok(seid) = core.adopt(Time(2), record, &mut out) else {
        assert_eq!(core.session_count(), 0);
        assert_eq!(core.fill().teids, 0);
        return Outcome::Refused;
    };
    assert!(core.session(seid).is_some());
    let mut now = Time(2);
    for _ in 0..20 {
        now = core.next_deadline().map_or(now, |due| due.max(now));
        core.advance(now, &mut out);
        core.crossed(now, seid, &mut out);
    }
    let Some(record) = core.release(now, seid) else {
        // Its SMF has not answered in time.
        return Outcome::Adopted;
    };
    let again = Record::read(&record.write());
    assert_eq!(again.as_ref(), Ok(&record));
    assert_eq!(core.adopt(now, record, &mut out), Ok(seid));
    let mut deletion = Vec::new();
    let kind = MessageType::SESSION_DELETION_REQUEST;
    Writer::new(&mut deletion, kind, Some(seid), 2).finish();
    core.receive(now, from, &deletion, &mut out);
    assert_eq!((core.session_count(), core.fill().teids), (0, 0));
    let mut pools = core.fill().pools.into_iter().flatten();
    assert!(pools.all(|pool| pool.held() == 0));
    Outcome::Adopted
}

/// Everything that the records of the corpus name; SEIDs are those of this seed.
fn config() -> Config {
    let named = |name: &str, pools4: &str, pools6: &str| NetworkInstance {
        name: name.into(),
        pools4: pools4.parse().into_iter().collect(),
        pools6: pools6.parse().into_iter().collect(),
        ..NetworkInstance::default()
    };
    let mut config = Config {
        n3: vec![IpAddr::from([10, 3, 0, 1])],
        network_instances: vec![
            named("internet", "10.60.0.0/28", "2001:db8:60::/60"),
            named("ims", "", ""),
        ],
        seed: 42,
        ..Config::default()
    };
    config.limits.sessions = 20;
    config
}

fn association_setup(smf: &NodeId) -> Vec<u8> {
    let mut octets = Vec::new();
    let kind = MessageType::ASSOCIATION_SETUP_REQUEST;
    let mut writer = Writer::new(&mut octets, kind, None, 1);
    match smf {
        NodeId::V4(address) => writer.node_id(NodeIdIe::Ipv4(*address)),
        NodeId::V6(address) => writer.node_id(NodeIdIe::Ipv6(*address)),
        NodeId::Fqdn(name) => {
            let labels = name.split('.').flat_map(|label| {
                let length = u8::try_from(label.len()).unwrap_or(0);
                [length].into_iter().chain(label.bytes())
            });
            let value: Vec<u8> = [2].into_iter().chain(labels).collect();
            writer.ie(pfcp::IeType::NODE_ID, &value);
        }
    }
    writer.recovery_time_stamp(RecoveryTimeStamp(7));
    writer.finish();
    octets
}
