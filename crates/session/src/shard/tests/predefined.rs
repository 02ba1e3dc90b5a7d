//! Predefined rules that SMFs activate by name (TS 29.244, 5.19).

use compiled::{Action, Direction, Flow, Limit, NiId, QerId, Qfi, Select};
use pfcp::Cause;
use pfcp::ie::GateStatus;

use super::cases::{failure, pdr, refusal, refuses};
use super::*;
use crate::base::flow::FlowDescription;
use crate::rules::config::{PredefinedFar, PredefinedRule};
use crate::rules::{self, RuleId};

const ACTIVATE: IeType = IeType::ACTIVATE_PREDEFINED_RULES;
const DEACTIVATE: IeType = IeType::DEACTIVATE_PREDEFINED_RULES;

fn rule(name: &str, precedence: u32, flows: &[&str]) -> PredefinedRule {
    let parse = |text: &&str| FlowDescription::parse(text.as_bytes()).unwrap();
    PredefinedRule {
        name: name.into(),
        precedence,
        direction: None,
        flows: flows.iter().map(parse).collect(),
        far: PredefinedFar::OfPdr,
        qer: None,
    }
}

/// Rules as an operator may have configured them.
pub(super) fn rules() -> Vec<PredefinedRule> {
    let qer = rules::Qer {
        id: QerId(0),
        gate: rules::Gate {
            uplink_open: true,
            downlink_open: true,
        },
        mbr: Some(rules::Mbr::new(500, 2000)),
        qfi: Qfi::new(7),
        rare: None,
    };
    vec![
        PredefinedRule {
            qer: Some(qer),
            ..rule("video", 20, &["permit out 6 from 192.0.2.0/24 443 to any"])
        },
        PredefinedRule {
            far: PredefinedFar::Drop,
            ..rule("no-mail", 10, &["permit out 6 from any 25 to assigned"])
        },
        PredefinedRule {
            far: PredefinedFar::Route(NiId(1)),
            direction: Some(Direction::Uplink),
            ..rule("local", 10, &["permit out ip from 10.0.0.0/8 to any"])
        },
        PredefinedRule {
            direction: Some(Direction::Downlink),
            ..rule("local", 10, &["permit out ip from 10.0.0.0/8 to any"])
        },
        PredefinedRule {
            direction: Some(Direction::Downlink),
            ..rule("down", 30, &[])
        },
    ]
}

fn world() -> World {
    World::with(&Config {
        predefined_rules: rules(),
        ..config()
    })
}

fn named(kind: IeType, name: &str) -> (IeType, Vec<u8>) {
    (kind, name.as_bytes().to_vec())
}

/// A PDR in front of another, which activates these.
fn activating(base: PdrIe, id: u16, names: &[&str]) -> PdrIe {
    PdrIe {
        id,
        precedence: Some(50),
        extra: names.iter().map(|name| named(ACTIVATE, name)).collect(),
        ..base
    }
}

/// Establishes a session whose PDRs 3 and 4 activate these, up and down.
fn session(world: &mut World, names: &[&str]) -> u64 {
    let same_tunnel = FTeid::Choose {
        ipv4: true,
        ipv6: false,
        choose_id: Some(1),
    };
    let uplink = PdrIe {
        f_teid: Some(same_tunnel),
        ..PdrIe::uplink()
    };
    let establishing = world.establish(|w| {
        ordinary_with(w, uplink.clone(), PdrIe::downlink());
        activating(uplink.clone(), 3, names).create(w);
        activating(PdrIe::downlink(), 4, names).create(w);
    });
    establishing.unwrap().0
}

fn filters(compiled: &Compiled, select: Select) -> Vec<(usize, Option<Flow>)> {
    let Select::List { first, len } = select else {
        panic!("one entry")
    };
    let list = &compiled.filters[first..first + len];
    list.iter().map(|f| (f.entry, f.flow)).collect()
}

#[test]
fn a_predefined_rule_adds_its_filters_far_and_qer() {
    let mut world = world();
    session(&mut world, &["video", "no-mail"]);
    let compiled = world.only();
    assert_eq!(compiled.entries.len(), 6);
    for (key, select) in &compiled.keys {
        let (direct, behind) = match key {
            Key::Teid { .. } => (Direction::Uplink, 0),
            _ => (Direction::Downlink, 1),
        };
        let list = filters(compiled, *select);
        let found: Vec<_> = list
            .iter()
            .map(|(entry, _)| &compiled.entries[*entry])
            .collect();
        let [no_mail, video, other] = found[..] else {
            panic!("{list:?}")
        };
        assert!(found.iter().all(|entry| entry.direction == direct));
        assert_eq!(no_mail.pdr, PdrId(3 + behind));
        assert_eq!(no_mail.action, Action::Drop);
        assert_eq!(video.pdr, PdrId(3 + behind));
        assert_eq!(video.action, other.action);
        assert_eq!(
            video.meter.unwrap().bps,
            [500_000, 2_000_000][behind as usize]
        );
        assert_eq!(other.pdr, PdrId(1 + behind));
        assert_eq!((other.predefined, other.meter.is_some()), (None, true));
        assert_eq!(list[2].1, None);
        let remote = |flow: Option<Flow>| match direct {
            Direction::Uplink => (flow.unwrap().dst, flow.unwrap().dst_ports),
            Direction::Downlink => (flow.unwrap().src, flow.unwrap().src_ports),
        };
        assert_eq!(remote(list[0].1), (None, Some((25, 25))));
        let net = "192.0.2.0/24".parse().ok();
        assert_eq!(remote(list[1].1), (net, Some((443, 443))));
        if direct == Direction::Downlink {
            assert_eq!(video.qfi, Qfi::new(7));
        }
    }
}

/// The operator has changed it since the session activated the rules.
#[test]
fn a_session_from_before_has_its_rules_in_the_order_of_now() {
    let mut before = world();
    let seid = session(&mut before, &["video", "no-mail"]);
    let record = before.release(seid);
    let mut rules = rules();
    rules[0].precedence = 5;
    let mut world = World::with(&Config {
        predefined_rules: rules,
        ..config()
    });
    let now = world.now;
    let adopted = (world.sessions).adopt(now, PeerId(1), record, &mut world.tables);
    assert_eq!(adopted, Ok(seid));
    let compiled = world.only();
    for (_, select) in &compiled.keys {
        let list = filters(compiled, *select);
        let actions = list
            .iter()
            .map(|(at, _)| compiled.entries[*at].action == Action::Drop);
        assert_eq!(
            actions.collect::<Vec<_>>(),
            [false, true, false],
            "{list:?}"
        );
    }
}

#[test]
fn rules_of_one_name_are_activated_together_each_for_its_direction() {
    let mut world = world();
    session(&mut world, &["local"]);
    let of = |pdr| {
        world
            .only()
            .entries
            .iter()
            .filter(move |e| e.pdr == PdrId(pdr))
    };
    let up: Vec<_> = of(3).map(|entry| entry.action).collect();
    assert_eq!(up, [Action::Route { ni: NiId(1) }]);
    assert!(of(4).all(|entry| matches!(entry.action, Action::Tunnel { .. })));
    assert_eq!(of(4).count(), 1);
}

#[test]
fn a_pdr_with_filters_matches_what_both_ask_for() {
    let mut world = world();
    let narrow = PdrIe {
        filters: vec![flow(
            "permit out 6 from 192.0.2.128/25 to assigned 1000-2000",
        )],
        ..activating(PdrIe::downlink(), 4, &["video"])
    };
    let elsewhere = PdrIe {
        filters: vec![flow("permit out 17 from any to assigned")],
        ..activating(PdrIe::downlink(), 5, &["video"])
    };
    let both = |w: &mut Writer<'_>| {
        ordinary(w);
        narrow.create(w);
        elsewhere.create(w);
    };
    world.establish(both).unwrap();
    let compiled = world.only();
    let (_, select) = compiled
        .keys
        .iter()
        .find(|(key, _)| matches!(key, Key::Ue4 { .. }))
        .unwrap();
    let list = filters(compiled, *select);
    let [(_, Some(flow)), (_, None)] = list[..] else {
        panic!("{list:?}")
    };
    assert_eq!(flow.src, "192.0.2.128/25".parse().ok());
    assert_eq!((flow.proto, flow.src_ports), (Some(6), Some((443, 443))));
    assert_eq!(flow.dst_ports, Some((1000, 2000)));
}

#[test]
fn a_pdr_whose_filters_exclude_those_of_its_rule_is_nobodys() {
    let mut world = world();
    let nobodys = PdrIe {
        filters: vec![flow("permit out 17 from any to assigned")],
        ..activating(PdrIe::downlink(), 2, &["video"])
    };
    world
        .establish(|w| ordinary_with(w, PdrIe::uplink(), nobodys.clone()))
        .unwrap();
    let compiled = world.only();
    let of_ue = |key: &Key| matches!(key, Key::Ue4 { .. });
    let (_, select) = compiled.keys.iter().find(|(key, _)| of_ue(key)).unwrap();
    assert_eq!(filters(compiled, *select)[0].1, Some(Flow::NONE));
}

/// The QER of a predefined rule is one per session and direction, whoever activates it.
#[test]
fn pdrs_with_one_predefined_rule_share_its_bucket() {
    let mut world = world();
    world
        .establish(|w| {
            ordinary(w);
            activating(PdrIe::downlink(), 4, &["video"]).create(w);
            activating(PdrIe::downlink(), 5, &["video"]).create(w);
        })
        .unwrap();
    let compiled = world.only();
    let of = |pdr| compiled.entries.iter().find(move |e| e.pdr == PdrId(pdr));
    let (four, five) = (of(4).unwrap(), of(5).unwrap());
    assert_eq!(four.shared_meters, five.shared_meters);
    let meter = &compiled.meters[four.shared_meters[0]];
    let Limit::Bits(rate) = meter.limit else {
        panic!("{meter:?}")
    };
    assert_eq!(
        (rate.bps, meter.direction),
        (2_000_000, Direction::Downlink)
    );
}

#[test]
fn far_id_may_be_left_out_where_the_rule_says_what_happens() {
    let mut world = world();
    let without = |names| PdrIe {
        far: None,
        ..activating(PdrIe::uplink(), 3, names)
    };
    let (seid, _) = world
        .establish(|w| {
            ordinary(w);
            without(&["no-mail", "local"]).create(w);
        })
        .unwrap();
    let missing = refusal(Cause::CONDITIONAL_IE_MISSING, IeType::FAR_ID, pdr(3));
    for names in [&["video"][..], &["no-mail", "video"], &[]] {
        refuses(&mut self::world(), missing, |w| {
            ordinary(w);
            without(names).create(w);
        });
    }
    // The downlink goes where the PDR's FAR leads.
    let down = PdrIe {
        far: None,
        ..activating(PdrIe::downlink(), 3, &["local"])
    };
    refuses(&mut self::world(), missing, |w| {
        ordinary(w);
        down.create(w);
    });
    // Deactivations must not leave a PDR without a FAR either.
    let alone = PdrIe {
        id: 3,
        extra: vec![named(DEACTIVATE, "no-mail"), named(DEACTIVATE, "local")],
        ..PdrIe::default()
    };
    let before = world.snapshot();
    let answer = world.modify(seid, |w| alone.update(w, false));
    assert_eq!(answer, Err(missing));
    assert_eq!(world.snapshot(), before);
    let with_far = PdrIe {
        far: Some(1),
        ..alone
    };
    world.modify(seid, |w| with_far.update(w, false)).unwrap();
}

#[test]
fn unknown_names_and_those_of_the_other_direction_are_refused() {
    let mut world = world();
    for (base, name) in [
        (PdrIe::uplink(), "nothing"),
        (PdrIe::uplink(), ""),
        (PdrIe::uplink(), "Video"),
        (PdrIe::uplink(), "video\0"),
        (PdrIe::uplink(), "down"),
    ] {
        refuses(&mut world, failure(ACTIVATE, pdr(3)), |w| {
            ordinary(w);
            activating(base.clone(), 3, &["video", name]).create(w);
        });
    }
    let leaving = PdrIe {
        extra: vec![named(DEACTIVATE, "video")],
        ..PdrIe::uplink()
    };
    refuses(&mut world, failure(DEACTIVATE, pdr(1)), |w| {
        ordinary_with(w, leaving.clone(), PdrIe::downlink());
    });
    let too_many = Config {
        predefined_rules: (0..17).map(|_| rule("many", 1, &[])).collect(),
        ..config()
    };
    let no_room = |of| refusal(Cause::NO_RESOURCES_AVAILABLE, ACTIVATE, pdr(of));
    refuses(&mut World::with(&too_many), no_room(3), |w| {
        ordinary(w);
        activating(PdrIe::uplink(), 3, &["many"]).create(w);
    });
    let sixteen = Config {
        predefined_rules: (0..16).map(|_| rule("many", 1, &[])).collect(),
        ..config()
    };
    refuses(&mut World::with(&sixteen), no_room(7), |w| {
        ordinary(w);
        (3..8).for_each(|id| activating(PdrIe::uplink(), id, &["many"]).create(w));
    });
}

/// QER IDs with the highest bit are those of predefined rules (8.2.75).
#[test]
fn an_smf_may_not_name_its_qer_as_predefined_ones_are_named() {
    let mut world = world();
    const TAKEN: u32 = 0x8000_0001;
    world
        .establish(|w| {
            ordinary(w);
            qer(w, TAKEN, None);
        })
        .unwrap();
    let rule = RuleId::Qer(QerId(TAKEN));
    refuses(&mut self::world(), failure(IeType::QER_ID, rule), |w| {
        ordinary(w);
        qer(w, TAKEN, None);
        activating(PdrIe::downlink(), 3, &["video"]).create(w);
    });
}

#[test]
fn update_pdr_activates_and_deactivates() {
    let mut world = world();
    let seid = session(&mut world, &["video"]);
    let active = |world: &World| {
        let of = |pdr: &&crate::PdrView| pdr.id == PdrId(4);
        let view = world.sessions.view(seid, &world.tables).unwrap();
        let names = view.pdrs.iter().find(of).unwrap().predefined.iter();
        names.map(|rule| rule.name.clone()).collect::<Vec<_>>()
    };
    let update = |world: &mut World, extra: Vec<(IeType, Vec<u8>)>| {
        let pdr = PdrIe {
            id: 4,
            extra,
            ..PdrIe::default()
        };
        world.modify(seid, |w| pdr.update(w, false)).map(|_| ())
    };
    assert_eq!(active(&world), ["video"]);
    update(
        &mut world,
        vec![named(ACTIVATE, "no-mail"), named(ACTIVATE, "video")],
    )
    .unwrap();
    assert_eq!(active(&world), ["no-mail", "video"]);
    // Deactivation comes first, wherever it stands.
    let exchange = vec![named(ACTIVATE, "down"), named(DEACTIVATE, "video")];
    update(&mut world, exchange).unwrap();
    assert_eq!(active(&world), ["no-mail", "down"]);
    let refused = update(&mut world, vec![named(DEACTIVATE, "video")]);
    assert_eq!(refused, Err(failure(DEACTIVATE, pdr(4))));
    let refused = update(&mut world, vec![named(ACTIVATE, "nothing")]);
    assert_eq!(refused, Err(failure(ACTIVATE, pdr(4))));
    // A new PDI leaves them active; one of the other direction must suit them.
    let narrower = PdrIe {
        filters: vec![flow("permit out 6 from any to assigned")],
        ..PdrIe::downlink()
    };
    let narrower = PdrIe { id: 4, ..narrower };
    world.modify(seid, |w| narrower.update(w, true)).unwrap();
    assert_eq!(active(&world), ["no-mail", "down"]);
    update(&mut world, vec![named(DEACTIVATE, "no-mail")]).unwrap();
    let upwards = PdrIe {
        id: 4,
        far: Some(1),
        ..PdrIe::uplink()
    };
    let before = world.snapshot();
    let refused = world.modify(seid, |w| upwards.update(w, true));
    assert_eq!(refused, Err(failure(IeType::SOURCE_INTERFACE, pdr(4))));
    assert_eq!(world.snapshot(), before);
    // Without any, it is a PDR like others.
    update(&mut world, vec![named(DEACTIVATE, "down")]).unwrap();
    assert_eq!(active(&world), [""; 0]);
    let compiled = world.only();
    let four: Vec<_> = compiled
        .entries
        .iter()
        .filter(|e| e.pdr == PdrId(4))
        .collect();
    assert_eq!((four.len(), four[0].predefined), (1, None));
}

#[test]
fn a_closed_gate_of_the_session_closes_predefined_rules_too() {
    let mut world = world();
    let closed = GateStatus {
        uplink: Gate::Closed,
        downlink: Gate::Open,
    };
    world
        .establish(|w| {
            ordinary(w);
            let both = PdrIe {
                qers: vec![2],
                ..activating(PdrIe::uplink(), 3, &["video"])
            };
            both.create(w);
            w.grouped(IeType::CREATE_QER, |w| {
                w.put(IeType::QER_ID, 2u32);
                w.put(IeType::GATE_STATUS, closed);
            });
        })
        .unwrap();
    let three = world.only().entries.iter().find(|e| e.pdr == PdrId(3));
    assert_eq!(three.unwrap().action, Action::GateClosed);
}

/// Activation and Deactivation Time hold for the PDR, and so for what it activates.
#[test]
fn predefined_rules_hold_in_the_time_of_their_pdr() {
    let mut world = world();
    let second = |s: u64| Time(s * 1_000_000_000);
    let clock = std::time::Duration::from_secs(1000);
    world.sessions.deferred.set_clock(Time(0), clock);
    let timed = PdrIe {
        extra: vec![
            named(ACTIVATE, "no-mail"),
            (IeType::ACTIVATION_TIME, 1010u32.to_be_bytes().into()),
            (IeType::DEACTIVATION_TIME, 1020u32.to_be_bytes().into()),
        ],
        ..activating(PdrIe::downlink(), 4, &[])
    };
    world
        .establish(|w| {
            ordinary(w);
            timed.create(w);
        })
        .unwrap();
    for (now, holds) in [(9, false), (10, true), (19, true), (20, false)] {
        let World {
            sessions, tables, ..
        } = &mut world;
        sessions.keep_times(second(now), 10, tables);
        let compiled = world.only();
        let of_rule = |f: &compiled::Filter| compiled.entries[f.entry].predefined.is_some();
        assert_eq!(compiled.filters.iter().any(of_rule), holds, "after {now} s");
    }
}

#[test]
fn operators_see_what_is_active_and_what_it_did() {
    let mut world = world();
    let seid = session(&mut world, &["local", "no-mail", "video"]);
    let view = world.sessions.view(seid, &world.tables).unwrap();
    let shown = |pdr: usize| {
        let rules = view.pdrs[pdr].predefined.iter();
        rules
            .map(|r| {
                let counted = r.counters.packets;
                (&r.name[..], r.action, r.network_instance.clone(), counted)
            })
            .collect::<Vec<_>>()
    };
    let ims = Some("ims".to_owned());
    assert_eq!(
        shown(2),
        [
            ("no-mail", Some("DROP"), None, 1),
            ("local", Some("FORW"), ims, 1),
            ("video", None, None, 1)
        ]
    );
    assert_eq!(shown(3)[1], ("local", None, None, 1));
    let video = &view.pdrs[2].predefined[2];
    assert_eq!(video.flows, ["permit out 6 from 192.0.2.0/24 443 to any"]);
    assert_eq!(video.qer.as_ref().unwrap().mbr_kbps, Some((500, 2000)));
}
