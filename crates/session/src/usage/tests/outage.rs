//! SMFs that do not answer, and many reports at once.

use std::collections::BTreeMap;

use pfcp::ie::{NodeId, ReportingTriggers as Asked, UsageReportTrigger as Told};

use super::*;
use crate::testing::world::id_of;

fn threshold(octets: u64) -> UrrIe {
    UrrIe::volume(1, Asked::VOLTH).limit(IeType::VOLUME_THRESHOLD, total(octets))
}

#[test]
fn an_unanswered_report_is_sent_again_as_it_was_and_the_next_one_waits() {
    let mut it = Measuring::new(&[threshold(1000)]);
    packets(&mut it.world, it.seid, 1, 1, 1000);
    let first = it.world.sent();
    assert_eq!(first.len(), 1);
    packets(&mut it.world, it.seid, 1, 5, 1000);
    assert!(
        it.world.sent().is_empty(),
        "one of a session is on its way at a time"
    );
    // N1 times unanswered, then again in a request of its own.
    let sent = it.world.pass(seconds(30));
    let said: Vec<Said> = sent
        .iter()
        .flat_map(|(_, datagram)| said_in(datagram))
        .collect();
    assert!(said.len() > 5);
    assert!(
        said.iter()
            .all(|said| said.brief() == (1, 0, Told::VOLTH, 1000, 0))
    );
    packets(&mut it.world, it.seid, 1, 5, 1000);
    let said = it.accept(&sent[sent.len() - 1..].to_vec());
    assert_eq!(
        said[1].brief(),
        (1, 1, Told::VOLTH, 10_000, 0),
        "all since then, once"
    );
    assert_eq!(said.len(), 2);
    assert_eq!(it.delete()[0].brief(), (1, 2, Told::TERMR, 0, 0));
}

#[test]
fn a_session_that_ends_meanwhile_says_all_that_was_not_answered() {
    let mut it = Measuring::new(&[threshold(1000)]);
    packets(&mut it.world, it.seid, 1, 1, 1000);
    packets(&mut it.world, it.seid, 1, 3, 1000);
    it.world.sent();
    let said = it.delete();
    let brief: Vec<_> = said.iter().map(Said::brief).collect();
    assert_eq!(
        brief[0],
        (1, 0, Told::VOLTH, 1000, 0),
        "it can be told by its number"
    );
    assert_eq!(brief[1].3, 3000);
}

#[test]
fn the_log_has_what_became_of_each_report() {
    let mut it = Measuring::new(&[threshold(1000)]);
    let mut records = Vec::new();
    let ue = it.world.core.session(it.seid).unwrap().summary.ue;
    assert_eq!(ue.len(), 1);
    packets(&mut it.world, it.seid, 1, 1, 1000);
    let (to, datagram) = it.world.sent().remove(0);
    let header = pfcp::decode(&datagram).unwrap().header;
    let mut bytes = Vec::new();
    let kind = MessageType::SESSION_REPORT_RESPONSE;
    let mut writer = Writer::new(&mut bytes, kind, header.seid, header.sequence);
    writer.cause(Cause::REQUEST_ACCEPTED);
    writer.finish();
    let now = it.world.now;
    it.world.core.receive(now, to, &bytes, &mut it.world.out);
    records.extend(it.world.out.usage().to_vec());
    packets(&mut it.world, it.seid, 2, 1, 400);
    // The SMF releases the association: the last numbers are for the log alone.
    let release = MessageType::ASSOCIATION_RELEASE_REQUEST;
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, release, None, 99);
    writer.node_id(NodeId::Ipv4(id_of(to)));
    writer.finish();
    it.world.out.clear();
    it.world.core.receive(now, to, &bytes, &mut it.world.out);
    records.extend(it.world.out.usage().to_vec());
    let smf = crate::base::node_id::NodeId::V4(id_of(to));
    for record in &records {
        assert_eq!((record.smf.as_ref(), &record.ue), (Some(&smf), &ue));
    }
    let brief: Vec<_> = records
        .iter()
        .map(|r| (r.cp_seid, r.seqn, r.trigger, r.used.bytes, r.acknowledged))
        .collect();
    assert_eq!(
        brief,
        [
            (77, 0, Told::VOLTH, [1000, 0], true),
            (77, 1, Told::TERMR, [0, 400], false)
        ]
    );
}

#[test]
fn the_log_names_the_user_of_what_an_answer_reports() {
    let remove_urr = |w: &mut Writer<'_>| {
        w.grouped(IeType::REMOVE_URR, |w| w.put(IeType::URR_ID, 1u32));
    };
    // Also of one that has no URR by the time of the answer.
    for kind in [
        MessageType::SESSION_DELETION_REQUEST,
        MessageType::SESSION_MODIFICATION_REQUEST,
    ] {
        let mut it = Measuring::new(&[threshold(1 << 40)]);
        let ue = it.world.core.session(it.seid).unwrap().summary.ue;
        packets(&mut it.world, it.seid, 1, 1, 1000);
        it.world.out.clear();
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes, kind, Some(it.seid), 98);
        if kind == MessageType::SESSION_MODIFICATION_REQUEST {
            remove_urr(&mut writer);
        }
        writer.finish();
        let (now, out) = (it.world.now, &mut it.world.out);
        it.world.core.receive(now, smf(2), &bytes, out);
        let [record] = it.world.out.usage() else {
            panic!("one report");
        };
        assert_eq!((record.used.bytes, &record.ue), ([1000, 0], &ue));
        assert!(record.smf.is_some() && record.acknowledged);
    }
}

#[test]
fn a_storm_is_reported_without_loss_and_by_no_more_at_a_time_than_the_smf_answers() {
    const SESSIONS: u64 = 2000;
    let mut world = world(SESSIONS as u32);
    let seids: Vec<u64> = (1..=SESSIONS)
        .map(|cp_seid| establish(&mut world, cp_seid, &[threshold(1000)]))
        .collect();
    for seid in &seids {
        packets(&mut world, *seid, 1, 1, 1000);
    }
    let mut sent = world.sent();
    assert_eq!(sent.len(), 256, "a window of them");
    assert_eq!(world.core.usage_waiting(), SESSIONS as usize - 256);
    assert_eq!(world.core.outstanding(), 256);
    // While they wait, more passes: it is in the reports when their turn comes.
    for seid in &seids {
        packets(&mut world, *seid, 2, 1, 10);
    }
    assert!(world.sent().is_empty());
    let mut up: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
    while let Some((to, datagram)) = sent.pop() {
        let seid = pfcp::decode(&datagram).unwrap().header.seid.unwrap();
        let said = said_in(&datagram);
        up.entry(seid)
            .or_default()
            .extend(said.iter().map(|said| (said.up, said.down)));
        sent.extend(world.answer(to, &datagram, Cause::REQUEST_ACCEPTED, None));
    }
    assert_eq!(up.len(), SESSIONS as usize);
    assert!(up.values().all(|said| said.len() == 1 && said[0].0 == 1000));
    let later = up.values().filter(|said| said[0].1 == 10).count();
    assert_eq!(later, SESSIONS as usize - 256);
    assert_eq!(
        (world.core.usage_waiting(), world.core.outstanding()),
        (0, 0)
    );
}

/// As many as there are sessions wait, each once, however often there is something to report.
#[test]
fn an_outage_takes_a_place_for_each_session_and_nothing_is_lost() {
    let mut world = world(300);
    let urr = || UrrIe::volume(1, Asked::PERIO).with(IeType::MEASUREMENT_PERIOD, 10);
    let seids: Vec<u64> = (1..=300)
        .map(|cp_seid| establish(&mut world, cp_seid, &[urr()]))
        .collect();
    for _ in 0..20 {
        for seid in &seids {
            packets(&mut world, *seid, 1, 1, 100);
        }
        world.pass(seconds(10));
        assert!(world.core.usage_waiting() <= 300);
        assert!(world.core.outstanding() <= 256);
    }
    // The SMF is back, and answers all that it is asked.
    let mut sums: BTreeMap<u64, BTreeMap<u32, u64>> = BTreeMap::new();
    let mut sent = world.pass(seconds(1));
    while let Some((to, datagram)) = sent.pop() {
        let seid = pfcp::decode(&datagram).unwrap().header.seid.unwrap();
        for said in said_in(&datagram) {
            let before = sums.entry(seid).or_default().insert(said.seqn, said.up);
            assert!(
                before.is_none_or(|before| before == said.up),
                "a number means one report"
            );
        }
        sent.extend(world.answer(to, &datagram, Cause::REQUEST_ACCEPTED, None));
        if sent.is_empty() {
            sent = world.pass(seconds(1));
            sent.retain(|(_, datagram)| !said_in(datagram).is_empty());
            let done = sums.values().all(|said| said.values().sum::<u64>() == 2000);
            if sums.len() == 300 && done {
                break;
            }
        }
    }
    assert_eq!(sums.len(), 300);
    assert!(sums.values().all(|said| said.values().sum::<u64>() == 2000));
}
