//! A record holds all of a session; one that contradicts itself is refused.

use std::num::NonZeroU32;
use std::path::PathBuf;

use compiled::Direction;
use ipnet::Ipv6Net;
use proptest::prelude::*;

use super::*;
use crate::base::node_id::NodeId as SmfId;
use crate::base::octets::{put_with_length, take_octets};
use crate::base::record_error::RecordError;
use crate::base::slab::Slab;
use crate::base::tagged::Fields;
use crate::exchange::answers::Fingerprint;
use crate::rules::site::Site;
use crate::rules::{
    BarId, Conditions, FarId, Later, LocalEnds, RarePdi, RareQer, RuleId, Rules, SdfFilter, UrrId,
};
use crate::shard::context::Context;
use crate::shard::record::{self, OCTETS_MAX, Record, VERSION, Within};
use crate::shard::session::Session;
use crate::testing;

pub(super) const SMF: SmfId = SmfId::V4(Ipv4Addr::new(10, 100, 0, 2));

fn write(seid: u64, context: &Context) -> Vec<u8> {
    record::write(seid, &SMF, context, &Site::new(&config()))
}

/// Each session is the same after it was a record, but for its turn to report.
pub(crate) fn check<H>(sessions: &Slab<Session<H>>, site: &Site) {
    for (seid, session) in sessions.iter_after(None) {
        let octets = record::write(seid, &SMF, &session.context, site);
        let mut record = Record::read(&octets).unwrap();
        let usage = record.context_mut().usage_mut();
        if let Some((usage, live)) = usage.zip(session.context.usage()) {
            assert!(!usage.queued && !usage.under_way);
            (usage.queued, usage.under_way) = (live.queued, live.under_way);
        }
        assert_eq!(*record.context_mut(), session.context);
        assert_eq!((record.seid(), record.smf()), (seid, &SMF));
    }
}

proptest! {
    #[test]
    fn all_rules_are_read_as_they_were((rules, predefined, _) in testing::naming()) {
        let mut context = Context::of(77, None);
        context.keep(&rules);
        prop_assert_eq!(&context.rules(), &rules);
        prop_assert_eq!(context.rule_counts(), rules.counts());
        prop_assert_eq!(context.kept.pdrs(), rules.pdrs.to_vec());
        let octets = record::write(1, &SMF, &context, &Site::new(&adopt::named(predefined)));
        let record = Record::read(&octets).unwrap();
        prop_assert_eq!(record.rules(), rules);
        prop_assert_eq!(record.cp_seid(), 77);
    }

    /// Nor do they make another session of themselves than they say.
    #[test]
    fn any_octets_are_a_record_or_none(
        octets in prop::collection::vec(any::<u8>(), 0..200),
        versioned: bool,
    ) {
        let mut octets = octets;
        if versioned {
            octets.splice(0..0, VERSION.to_be_bytes());
        }
        if let Ok(record) = Record::read(&octets) {
            prop_assert_eq!(record.write(), octets);
        }
    }
}

fn ordinary_context() -> (World, u64) {
    let mut world = World::new();
    let (seid, _) = world.establish(ordinary).unwrap();
    (world, seid)
}

#[test]
fn sets_of_a_session_and_who_controls_it_are_in_its_record() {
    let mut world = World::new();
    let (seid, _) = world
        .establish(|w| {
            ordinary(w);
            w.ie(IeType::FQ_CSID, &[0x02, 10, 0, 0, 1, 0, 7, 0, 8]);
            w.ie(IeType::GROUP_ID, b"a group");
        })
        .unwrap();
    world.sessions.control_from(seid, [10, 100, 0, 9].into());
    let membership = world.sessions.context(seid).unwrap().membership().unwrap();
    assert_eq!(membership.sets.len(), 3);
    assert!(membership.controller.is_some());
    world.sessions.check_indexes();
}

#[test]
fn a_record_of_another_version_or_length_is_refused() {
    let (world, seid) = ordinary_context();
    let octets = write(seid, world.sessions.context(seid).unwrap());
    for version in [0, VERSION - 2, VERSION + 1, u16::MAX] {
        let mut other = octets.clone();
        other[..2].copy_from_slice(&version.to_be_bytes());
        let ours = VERSION;
        assert_eq!(
            Record::read(&other),
            Err(RecordError::Version { version, ours })
        );
    }
    let malformed = Err(RecordError::Malformed);
    for length in 0..octets.len() {
        assert_eq!(Record::read(&octets[..length]), malformed, "{length}");
    }
    assert_eq!(Record::read(&[&octets[..], &[0]].concat()), malformed);
    let long = vec![0; OCTETS_MAX + 1];
    let too_long = RecordError::TooLong {
        octets: long.len(),
        most: OCTETS_MAX,
    };
    assert_eq!(Record::read(&long), Err(too_long));
}

/// One torn record must not stop the reading of a million: with any octet changed it is a session that could be, or none.
#[test]
fn a_record_with_another_octet_is_itself_or_none() {
    let (world, seid) = ordinary_context();
    let octets = write(seid, world.sessions.context(seid).unwrap());
    let mut read = 0;
    for at in 0..octets.len() {
        for value in 0..=u8::MAX {
            let mut other = octets.clone();
            other[at] = value;
            if let Ok(record) = Record::read(&other) {
                assert_eq!(record.write(), other);
                read += 1;
            }
        }
    }
    assert!(
        read > octets.len(),
        "TEIDs, addresses and rates may be others"
    );
}

#[test]
fn a_session_that_cannot_be_is_refused() {
    let (world, seid) = ordinary_context();
    let rules = world.sessions.context(seid).unwrap().rules();
    let refused = |change: &dyn Fn(&mut Rules)| {
        let mut rules = rules.clone();
        change(&mut rules);
        let mut context = Context::of(77, None);
        context.keep(&rules);
        match Record::read(&write(seid, &context)) {
            Err(RecordError::Impossible(what)) => what,
            other => panic!("{other:?}"),
        }
    };
    let no_bits: Ipv6Net = "::/0".parse().unwrap();
    for (change, what) in [
        (
            &(|rules: &mut Rules| rules.pdrs[1].id = rules.pdrs[0].id) as &dyn Fn(&mut Rules),
            "two rules of one id",
        ),
        (
            &|rules| rules.pdrs[0].far = Some(FarId(99)),
            "a PDR without its FAR",
        ),
        (
            &|rules| rules.qers = Box::default(),
            "a PDR without its QER",
        ),
        (
            &|rules| rules.pdrs[0].urrs.push(UrrId(1)),
            "a PDR without its URR",
        ),
        (
            &|rules| rules.fars[0].bar = Some(BarId(1)),
            "a FAR without its BAR",
        ),
        (
            &|rules| {
                let ends = LocalEnds { v4: None, v6: None };
                rules.pdrs[0].pdi.f_teid.as_mut().unwrap().ends = ends;
            },
            "an F-TEID without address",
        ),
        (
            &|rules| rules.pdrs[1].pdi.ue.as_mut().unwrap().v6 = Some(no_bits),
            "a UE's prefix of no bits, or with more than it has",
        ),
    ] {
        assert_eq!(refused(change), what);
    }
    let zero = write(0, world.sessions.context(seid).unwrap());
    assert_eq!(Record::read(&zero), Err(RecordError::Impossible("SEID 0")));
}

/// `ordinary-6` of the corpus is of that version: a change of the layout is to raise the number.
#[test]
fn a_record_of_this_version_is_read_as_it_was_written() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let corpus = path.join("../../fuzz/corpus/session_record");
    let octets = std::fs::read(corpus.join(format!("ordinary-{VERSION}"))).unwrap();
    assert_eq!(octets[..2], VERSION.to_be_bytes());
    let record = Record::read(&octets).unwrap();
    assert_eq!((record.cp_seid(), record.smf()), (77, &SMF));
    let rules = record.rules();
    assert_eq!(rules.counts(), [2, 2, 1, 0, 0]);
    let ids: Vec<u16> = rules.pdrs.iter().map(|pdr| pdr.id.0).collect();
    assert_eq!(ids, [1, 2]);
    let tunnel = rules.fars[1].forwarding().unwrap().tunnel.unwrap();
    assert_eq!((tunnel.teid(), tunnel.v4()), (0x5000, Some(GNB)));
    assert_eq!(rules.qers[0].mbr_kbps(Direction::Uplink), Some(1000));
}

/// Of a later version of this program, which has a field more.
#[test]
fn a_field_that_is_not_known_is_refused_by_its_tag() {
    let (world, seid) = ordinary_context();
    let octets = write(seid, world.sessions.context(seid).unwrap());
    let (version, mut rest) = octets.split_at(2);
    let fields = take_octets(&mut rest).unwrap();
    let mut more = version.to_vec();
    put_with_length(&mut more, |more| {
        more.extend([fields, &[99, 1, 0]].concat());
    });
    assert_eq!(Record::read(&more), Err(RecordError::UnknownField(99)));
    assert_eq!(Record::owner(&more), None, "of no association");
}

/// Also where it cannot be read as a whole.
#[test]
fn a_record_says_of_which_smf_its_session_is() {
    let (world, seid) = ordinary_context();
    let context = world.sessions.context(seid).unwrap();
    let mut octets = Vec::new();
    let within = Within {
        association: 7,
        counted: &[],
        answered: Fingerprint::default(),
        served: 0,
    };
    record::put_within(seid, within, context, &mut octets);
    let (version, mut rest) = octets.split_at(2);
    let fields = take_octets(&mut rest).unwrap();
    let mut more = version.to_vec();
    put_with_length(&mut more, |more| {
        more.extend([fields, &[99, 1, 0]].concat());
    });
    let owner = Some((7, context.cp_seid, None));
    assert_eq!(
        (Record::owner(&octets), Record::owner(&more)),
        (owner, owner)
    );
    assert_eq!(Record::owner(&octets[..octets.len() - 1]), None);
    let later = [&(VERSION + 1).to_be_bytes()[..], &octets[2..]].concat();
    assert_eq!(
        Record::owner(&later),
        None,
        "its tags may mean something else"
    );
}

/// Of a later version of this program, which knows more of rules.
#[test]
fn an_attribute_of_a_rule_that_is_not_known_is_refused_by_rule_and_tag() {
    let later = |octets: &[u8]| Fields::of(octets).later().unwrap();
    let rare_qer = |later| {
        let rare = RareQer {
            averaging_ms: NonZeroU32::new(50),
            later,
            ..RareQer::default()
        };
        Some(Box::new(rare))
    };
    let (world, seid) = ordinary_context();
    let rules = world.sessions.context(seid).unwrap().rules();
    let read = |change: &dyn Fn(&mut Rules)| {
        let (mut rules, mut context) = (rules.clone(), Context::of(77, None));
        change(&mut rules);
        context.keep(&rules);
        Record::read(&write(seid, &context)).map(|record| record.rules())
    };
    let unknown = |rule, tag| Err(RecordError::UnknownAttribute { rule, tag });

    let known = read(&|rules| rules.qers[0].rare = rare_qer(Later::default())).unwrap();
    assert_eq!(known.qers[0].averaging_ms(), NonZeroU32::new(50));
    let of_qer = read(&|rules| rules.qers[0].rare = rare_qer(later(&[9, 2, 0, 0, 10, 0])));
    assert_eq!(of_qer, unknown(RuleId::Qer(rules.qers[0].id), 9));
    let of_pdi = read(&|rules| {
        let more = RarePdi {
            later: later(&[77, 0]),
            ..RarePdi::default()
        };
        rules.pdrs[1].pdi.more = more.boxed();
    });
    assert_eq!(of_pdi, unknown(RuleId::Pdr(rules.pdrs[1].id), 77));
    let of_filter = read(&|rules| {
        let asks = Conditions {
            label: Some(1),
            later: later(&[5, 1, 1]),
            ..Conditions::default()
        };
        let more = RarePdi {
            filters: [SdfFilter { id: None, asks }].into(),
            ..RarePdi::default()
        };
        rules.pdrs[1].pdi.more = more.boxed();
    });
    assert_eq!(of_filter, unknown(RuleId::Pdr(rules.pdrs[1].id), 5));
}
