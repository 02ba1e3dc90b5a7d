//! Promises under any sequence of requests, most of which are partly wrong.

use std::collections::{BTreeMap, BTreeSet};

use compiled::{Direction, NiId};
use ipnet::{IpNet, Ipv4Net};
use pfcp::ie::OuterHeaderRemoval;
use proptest::prelude::*;
use proptest::sample::select;

use super::adopt::reordered;
use super::endpoints::EndpointIe;
use super::records::SMF;
use super::*;
use crate::base::prefix_set::overlap;
use crate::compile::compiler::Compiler;
use crate::rules::places::ConfigPlace;
use crate::rules::site::Site;
use crate::rules::{PacketRules, Pdr, Rules};

/// One request of an SMF that knows neither what exists nor what is allowed.
#[derive(Clone, Debug)]
enum Step {
    Establish(Vec<RuleIe>),
    Modify(usize, Vec<RuleIe>),
    Delete(usize),
    /// The session goes elsewhere, and returns.
    Move(usize),
    /// Room in the tables from here on.
    Room(Option<usize>),
    Wait,
}

#[derive(Clone, Debug)]
enum RuleIe {
    Pdr(bool, PdrIe),
    Far(bool, u32, FarKind),
    Qer(bool, u32, Option<u64>),
    Urr(bool, u32),
    Endpoint(bool, EndpointIe),
    Remove(IeType, IeType, u32),
}

#[derive(Clone, Copy, Debug)]
enum FarKind {
    Core,
    Access(u32),
    Buffer,
    Wrong,
}

impl RuleIe {
    fn write(&self, w: &mut Writer<'_>) {
        match self {
            Self::Pdr(true, pdr) => pdr.create(w),
            Self::Pdr(false, pdr) => pdr.update(
                w,
                pdr.f_teid.is_some() || pdr.ue.is_some() || !pdr.extra_pdi.is_empty(),
            ),
            Self::Far(true, id, FarKind::Core) => far_to_core(w, *id),
            Self::Far(true, id, FarKind::Access(teid)) => far_to_access(w, *id, *teid),
            Self::Far(true, id, FarKind::Buffer) => far_of(w, *id, ApplyAction::BUFF),
            Self::Far(true, id, FarKind::Wrong) => far_of(w, *id, ApplyAction::DUPL),
            Self::Far(false, id, kind) => w.grouped(IeType::UPDATE_FAR, |w| {
                w.put(IeType::FAR_ID, *id);
                match kind {
                    FarKind::Access(teid) => w.grouped(IeType::UPDATE_FORWARDING_PARAMETERS, |w| {
                        w.put(IeType::OUTER_HEADER_CREATION, tunnel(*teid));
                    }),
                    FarKind::Core => w.put(IeType::APPLY_ACTION, ApplyAction::FORW),
                    FarKind::Buffer => w.put(IeType::APPLY_ACTION, ApplyAction::BUFF),
                    FarKind::Wrong => w.put(IeType::APPLY_ACTION, ApplyAction::DUPL),
                }
            }),
            Self::Qer(true, id, mbr) => qer(w, *id, *mbr),
            Self::Qer(false, id, mbr) => w.grouped(IeType::UPDATE_QER, |w| {
                w.put(IeType::QER_ID, *id);
                w.put(
                    IeType::MBR,
                    Mbr {
                        uplink_kbps: mbr.unwrap_or(0),
                        downlink_kbps: 5,
                    },
                );
            }),
            Self::Urr(create, id) => {
                let kind = if *create {
                    IeType::CREATE_URR
                } else {
                    IeType::UPDATE_URR
                };
                w.grouped(kind, |w| {
                    w.put(IeType::URR_ID, *id);
                    w.put(IeType::MEASUREMENT_METHOD, 2u8);
                    w.ie(IeType::REPORTING_TRIGGERS, &[1, 0]);
                    w.put(IeType::MEASUREMENT_PERIOD, 60u32);
                });
            }
            Self::Endpoint(create, endpoint) => {
                let kind = if *create {
                    IeType::CREATE_TRAFFIC_ENDPOINT
                } else {
                    IeType::UPDATE_TRAFFIC_ENDPOINT
                };
                endpoint.write(w, kind);
            }
            Self::Remove(kind, id_ie, id) => remove(w, *kind, *id_ie, *id),
        }
    }
}

fn named_endpoint(id: u8) -> EndpointIe {
    EndpointIe {
        id,
        f_teid: (id == 1).then_some(CHOOSE),
        ue: Some(choose4()),
        ..EndpointIe::default()
    }
}

/// The first is for access.
fn endpoint() -> impl Strategy<Value = EndpointIe> {
    let f_teid = prop_oneof![2 => Just(CHOOSE), 1 => (1u32..6).prop_map(given)];
    let ue = prop_oneof![
        2 => (0u8..6).prop_map(|host| ue4(Ipv4Addr::new(10, 60, 0, host))),
        1 => Just(choose4()),
    ];
    let framed = select(vec![
        "10.60.0.4/32",
        "10.62.0.0/16",
        "10.62.0.0/30",
        "10.62.0.2/32",
    ]);
    // An endpoint that no PDR names says by that bit alone at which end of packets the UE is.
    let ue = (ue, prop::bool::weighted(0.2))
        .prop_map(|(ue, destination)| UeIpAddress { destination, ..ue });
    (
        1u8..4,
        prop::option::of(f_teid),
        prop::option::of(ue),
        prop::option::weighted(0.1, 0u8..9),
        prop::option::weighted(0.2, framed),
    )
        .prop_map(|(id, f_teid, ue, qfi, framed)| EndpointIe {
            id,
            f_teid: f_teid.filter(|_| id == 1),
            ni: None,
            ue,
            qfi: qfi.filter(|_| id == 1),
            framed,
        })
}

fn pdr() -> impl Strategy<Value = PdrIe> {
    (pdr_by_itself(), prop::option::weighted(0.2, 1u8..4)).prop_map(
        |(pdr, endpoint)| match endpoint {
            None => pdr,
            Some(id) => PdrIe {
                f_teid: None,
                ue: None,
                extra_pdi: vec![(IeType::TRAFFIC_ENDPOINT_ID, vec![id])],
                ..pdr
            },
        },
    )
}

fn pdr_by_itself() -> impl Strategy<Value = PdrIe> {
    let f_teid = prop_oneof![
        3 => Just(CHOOSE),
        2 => (0u8..2).prop_map(|id| FTeid::Choose { ipv4: true, ipv6: false, choose_id: Some(id) }),
        3 => (1u32..6).prop_map(given),
        1 => (1u32..4).prop_map(|low| given(0x0700_0000 | low)),
        1 => Just(given(0)),
    ];
    // Of the pool, and of networks that may be behind UEs.
    let addr = (0u8..6, prop_oneof![8 => Just(60), 1 => Just(62)])
        .prop_map(|(host, net)| Ipv4Addr::new(10, net, 0, host));
    let ue = prop_oneof![
        3 => addr.clone().prop_map(ue4),
        2 => Just(choose4()),
        1 => Just(UeIpAddress { choose_ipv4: true, choose_ipv6: true, ..UeIpAddress::default() }),
        1 => (0u16..3, prop::option::of(select(vec![0, 56, 63, 64, 65, 128])))
            .prop_map(|(n, prefix_length)| UeIpAddress { prefix_length, ..ue6(Ipv6Addr::new(0x2001, 0xdb8, 0x60, n, 0, 0, 0, 1)) }),
        1 => select(vec![59, 60, 63, 65, 128])
            .prop_map(|len| UeIpAddress { choose_ipv6: true, prefix_length: Some(len), ..UeIpAddress::default() }),
    ];
    let framed = prop::sample::subsequence(
        vec![
            "10.60.0.4/32",
            "10.61.0.0/16",
            "10.62.0.0/16",
            "10.62.0.0/30",
            "10.62.0.2/32",
            "10.62.0.4/31",
            "10.63.0.0/16",
        ],
        0..2,
    );
    let qers = prop::sample::subsequence(vec![1u32, 2, 3], 0..3);
    let urrs = prop::sample::subsequence(vec![1u32, 2], 0..2);
    let ni = prop_oneof![8 => Just(Some("internet")), 2 => Just(None), 1 => Just(Some("ims"))];
    let filters = prop_oneof![
        4 => Just(vec![]),
        1 => Just(vec![flow("permit out 17 from any 53,80 to assigned")]),
        1 => Just(vec![flow("permit out 17 from any to assigned frag")]),
        1 => Just(vec![SdfFilter { filter_id: Some(1), ..SdfFilter::default() }]),
        1 => Just(vec![SdfFilter { filter_id: Some(1), ..flow("permit out 6 from any to assigned") }]),
    ];
    let whole = prop::bool::weighted(0.95);
    let names = select(vec!["video", "no-mail", "local", "down", "nothing"]);
    let kind = select(vec![
        IeType::ACTIVATE_PREDEFINED_RULES,
        IeType::ACTIVATE_PREDEFINED_RULES,
        IeType::DEACTIVATE_PREDEFINED_RULES,
    ]);
    let predefined = prop::collection::vec((kind, names), 0..3);
    let predefined = prop_oneof![3 => Just(vec![]), 1 => predefined];
    (
        (
            1u16..5,
            0u32..3,
            any::<bool>(),
            prop::option::weighted(0.9, f_teid),
            ue,
            prop::option::of(ni),
        ),
        (
            qers,
            urrs,
            filters,
            whole,
            predefined,
            prop::bool::weighted(0.95),
            prop_oneof![3 => Just(vec![]), 1 => framed],
        ),
    )
        .prop_map(
            |(
                (id, precedence, uplink, f_teid, ue, ni),
                (qers, urrs, filters, whole, predefined, with_far, framed),
            )| PdrIe {
                id,
                precedence: Some(precedence),
                source: u8::from(!uplink),
                f_teid: f_teid.filter(|_| uplink),
                ni: ni.flatten(),
                ue: whole.then_some(ue),
                filters,
                removal: uplink.then_some(OuterHeaderRemoval::GTPU_UDP_IPV4),
                // FARs 1 and 2 lead to the core, 3 and 4 to access.
                far: with_far.then_some(u32::from(id) % 2 + if uplink { 1 } else { 3 }),
                qers,
                urrs,
                extra: (predefined.into_iter())
                    .map(|(kind, name)| (kind, name.as_bytes().to_vec()))
                    .collect(),
                extra_pdi: framed
                    .iter()
                    .map(|text| (IeType::FRAMED_ROUTE, text.as_bytes().to_vec()))
                    .collect(),
                ..PdrIe::default()
            },
        )
}

fn far() -> impl Strategy<Value = (u32, FarKind)> {
    (1u32..5, 1u32..9, 0u8..12).prop_map(|(id, teid, odd)| match (odd, id) {
        (0, _) => (id, FarKind::Wrong),
        (1 | 2, _) => (id, FarKind::Buffer),
        (_, 1 | 2) => (id, FarKind::Core),
        _ => (id, FarKind::Access(teid)),
    })
}

fn establishment() -> impl Strategy<Value = Vec<RuleIe>> {
    let pdrs = prop::collection::vec(pdr(), 1..4);
    let missing = prop::option::weighted(0.1, 0usize..9);
    let endpoints = prop::collection::vec(endpoint(), 0..3);
    (pdrs, prop::collection::vec(far(), 4), missing, endpoints).prop_map(
        |(mut pdrs, fars, missing, mut endpoints)| {
            // An endpoint for each id that a PDR names, and no id twice.
            for (ie, id) in pdrs.iter().flat_map(|pdr| &pdr.extra_pdi) {
                if let (IeType::TRAFFIC_ENDPOINT_ID, &[id]) = (*ie, &id[..]) {
                    endpoints.push(named_endpoint(id));
                }
            }
            endpoints.sort_by_key(|endpoint| endpoint.id);
            endpoints.dedup_by_key(|endpoint| endpoint.id);
            pdrs.dedup_by_key(|pdr| pdr.id);
            let mut rules: Vec<RuleIe> = (1..=4)
                .map(|id| {
                    let far = fars.iter().find(|far| far.0 == id).copied();
                    let usual = if id < 3 {
                        FarKind::Core
                    } else {
                        FarKind::Access(id)
                    };
                    RuleIe::Far(true, id, far.map_or(usual, |far| far.1))
                })
                .collect();
            rules.extend([1, 2, 3].map(|id| RuleIe::Qer(true, id, Some(u64::from(id) * 100))));
            rules.extend([1, 2].map(|id| RuleIe::Urr(true, id)));
            if let Some(missing) = missing.filter(|&m| m < rules.len()) {
                rules.remove(missing);
            }
            rules.extend(pdrs.into_iter().map(|pdr| RuleIe::Pdr(true, pdr)));
            rules.extend(
                endpoints
                    .into_iter()
                    .map(|endpoint| RuleIe::Endpoint(true, endpoint)),
            );
            rules
        },
    )
}

fn change() -> impl Strategy<Value = RuleIe> {
    let kinds = vec![
        (IeType::REMOVE_PDR, IeType::PDR_ID),
        (IeType::REMOVE_QER, IeType::QER_ID),
        (IeType::REMOVE_URR, IeType::URR_ID),
        (IeType::REMOVE_FAR, IeType::FAR_ID),
        (IeType::REMOVE_TRAFFIC_ENDPOINT, IeType::TRAFFIC_ENDPOINT_ID),
    ];
    prop_oneof![
        3 => (any::<bool>(), pdr()).prop_map(|(create, pdr)| RuleIe::Pdr(create, pdr)),
        3 => (prop::bool::weighted(0.2), far()).prop_map(|(create, (id, kind))| RuleIe::Far(create, id, kind)),
        2 => (prop::bool::weighted(0.2), 1u32..4, prop::option::of(0u64..9)).prop_map(|(c, id, mbr)| RuleIe::Qer(c, id, mbr)),
        1 => (any::<bool>(), 1u32..4).prop_map(|(create, id)| RuleIe::Urr(create, id)),
        2 => (prop::bool::weighted(0.3), endpoint()).prop_map(|(create, endpoint)| RuleIe::Endpoint(create, endpoint)),
        3 => (select(kinds), 1u32..5).prop_map(|((kind, ie), id)| RuleIe::Remove(kind, ie, id)),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => establishment().prop_map(Step::Establish),
        8 => (0usize..8, prop::collection::vec(change(), 1..4)).prop_map(|(at, rules)| Step::Modify(at, rules)),
        3 => (0usize..8).prop_map(Step::Delete),
        3 => (0usize..8).prop_map(Step::Move),
        1 => prop::option::of(0usize..20).prop_map(Step::Room),
        1 => Just(Step::Wait),
    ]
}

impl Step {
    /// Nothing in it is for us to choose.
    fn is_without_choice(&self) -> bool {
        let rules = match self {
            Self::Establish(rules) | Self::Modify(_, rules) => rules,
            _ => return true,
        };
        let chooses = |f_teid: Option<FTeid>, ue: Option<UeIpAddress>| {
            matches!(f_teid, Some(FTeid::Choose { .. }))
                || ue.is_some_and(|ue| ue.choose_ipv4 || ue.choose_ipv6)
        };
        !rules.iter().any(|rule| match rule {
            RuleIe::Pdr(_, pdr) => chooses(pdr.f_teid, pdr.ue),
            RuleIe::Endpoint(_, endpoint) => chooses(endpoint.f_teid, endpoint.ue),
            _ => false,
        })
    }
}

/// A world and the sessions that its SMF knows.
struct Smf {
    config: Config,
    world: World,
    seids: Vec<u64>,
}

impl Smf {
    fn config() -> Config {
        let limits = Limits {
            sessions: 6,
            filters_per_session: 6,
            ..Limits::default()
        };
        Config {
            limits,
            predefined_rules: predefined::rules(),
            ..config()
        }
    }

    fn new() -> Self {
        Self::with(Self::config())
    }

    fn with(config: Config) -> Self {
        let mut world = World::with(&config);
        world.moves = false;
        Self {
            config,
            world,
            seids: Vec::new(),
        }
    }

    /// Entries and keys of packets, by names: numbers of network instances and predefined rules are another process' own.
    fn live(&self) -> BTreeSet<String> {
        let site = Site::new(&self.config);
        let anonymous = |live: &Compiled| {
            let mut live = live.clone();
            for (key, _) in &mut live.keys {
                if let Key::Teid { slot, .. } = key {
                    *slot = None;
                }
            }
            let mut text = format!("{live:?}");
            for at in 0..self.config.network_instances.len() as u16 {
                let name = site.name_of(ConfigPlace::NetworkInstance(NiId(at)));
                text = text.replace(&format!("NiId({at})"), &format!("{name:?}"));
            }
            for at in 0..self.config.predefined_rules.len() {
                let id = PredefinedId::at(at).unwrap();
                let name = format!("{:?}", site.name_of(ConfigPlace::PredefinedRule(id)));
                let qer = format!("QerId({})", (1u32 << 31) + u32::from(id.get()));
                text = text.replace(&format!("{id:?}"), &name).replace(&qer, &name);
            }
            text
        };
        self.world.tables.live.values().map(anonymous).collect()
    }

    /// `None`: the step asks for nothing.
    fn take(&mut self, step: &Step) -> Option<Answer> {
        let write =
            |rules: &[RuleIe], w: &mut Writer<'_>| rules.iter().for_each(|rule| rule.write(w));
        match step {
            Step::Establish(rules) => {
                let answer = self.world.establish(|w| write(rules, w));
                self.seids.extend(answer.iter().map(|(seid, _)| *seid));
                Some(answer)
            }
            Step::Modify(at, rules) => {
                let seid = *self.seids.get(*at)?;
                Some(self.world.modify(seid, |w| write(rules, w)))
            }
            Step::Delete(at) => {
                let seid = (*at < self.seids.len()).then(|| self.seids.remove(*at))?;
                Some(self.world.delete(seid).map(|cp_seid| (cp_seid, Vec::new())))
            }
            Step::Move(at) => {
                let seid = *self.seids.get(*at)?;
                let room = self.world.tables.room.take();
                self.world.go_and_return(seid, PeerId(1));
                self.world.tables.room = room;
                None
            }
            Step::Room(room) => {
                self.world.tables.room = *room;
                None
            }
            Step::Wait => {
                self.world.now = Time(self.world.now.0 + 5_000_000_000);
                None
            }
        }
    }

    fn rules(&self) -> impl Iterator<Item = Rules> {
        self.seids
            .iter()
            .map(|&seid| self.world.sessions.rules(seid).unwrap())
    }

    fn check(&self) {
        self.world.sessions.check_indexes();
        self.check_tables();
        self.check_allocators();
        self.check_framed();
    }

    /// No network behind a UE has an address of a pool, or one that leads to another session.
    fn check_framed(&self) {
        let config = &self.config;
        let all: Vec<Rules> = self.rules().collect();
        let by_ue = |pdr: &&Pdr| pdr.is_found_by_ue();
        for (at, rules) in all.iter().enumerate() {
            let framed = (rules.pdrs.iter())
                .flat_map(|pdr| (pdr.pdi.framed().iter()).map(|net| (pdr.pdi.ni_of_ue(), *net)));
            for (ni, net) in framed {
                let pools = &config.network_instances[usize::from(ni.0)].pools4;
                assert!(!pools.iter().any(|pool| overlap((*pool).into(), net)));
                let others = all.iter().enumerate().filter(|(other, _)| *other != at);
                let others = others.flat_map(|(_, rules)| rules.pdrs.iter().filter(by_ue));
                let mut taken = others.flat_map(|pdr| pdr.pdi.ue_nets());
                assert!(!taken.any(|other| other.0 == ni && overlap(other.1, net)));
            }
        }
    }

    /// Tables hold what the rules say, and no key leads to two sessions.
    fn check_tables(&self) {
        let site = Site::new(&self.config);
        let mut expected = Vec::new();
        for (rules, &seid) in self.rules().zip(&self.seids) {
            let mut compiled = Compiled::default();
            let packet_rules = PacketRules {
                predefined: &site.predefined,
                ..rules.for_packets()
            };
            Compiler::default()
                .compile(packet_rules, &site, &|_| true, &mut compiled)
                .unwrap();
            compiled.seid = seid;
            compiled.measured = rules.pdrs.iter().any(|pdr| !pdr.urrs.is_empty());
            expected.push(format!("{compiled:?}"));
        }
        let mut live: Vec<_> = self
            .world
            .tables
            .live
            .values()
            .map(|c| format!("{c:?}"))
            .collect();
        expected.sort();
        live.sort();
        assert_eq!(live, expected);
        let mut keys = self.world.tables.keys();
        let all = keys.len();
        keys.sort_unstable();
        keys.dedup_by_key(|key| match key {
            Key::Teid { teid, .. } => Key::direct(*teid),
            other => *other,
        });
        assert_eq!(keys.len(), all, "a key of two sessions");
        let slots = keys.iter().filter_map(|key| match key {
            Key::Teid { slot, .. } => *slot,
            _ => None,
        });
        let (mut seen, mut twice) = (BTreeSet::new(), false);
        slots.for_each(|slot| twice |= !seen.insert(slot));
        assert!(!twice, "a slot of two TEIDs");
    }

    /// Allocators count as used what sessions hold.
    fn check_allocators(&self) {
        let mut teids = BTreeSet::new();
        // Framed routes are held beside the addresses.
        let mut addresses: BTreeMap<u16, BTreeSet<(IpNet, u64, bool)>> = BTreeMap::new();
        let by_ue = |pdr: &Pdr| pdr.direction() == Direction::Downlink && pdr.pdi.f_teid.is_none();
        let left_open = |pdr: &Pdr| by_ue(pdr) && !pdr.pdi.names_ue();
        let pdrs = self.rules().flat_map(|rules| {
            let open = rules.pdrs.iter().any(left_open);
            rules.pdrs.into_iter().map(move |pdr| (pdr, open))
        });
        for (pdr, open) in pdrs {
            teids.extend(pdr.pdi.f_teid.map(|f| f.teid.teid));
            let is_key = open || by_ue(&pdr);
            let held = addresses.entry(pdr.pdi.ni_of_ue().0).or_default();
            held.extend(pdr.pdi.framed().iter().map(|net| (*net, 1, true)));
            for net in pdr.pdi.own_nets() {
                let own = pdr.pdi.ue;
                let chosen = own.is_some_and(|ue| match net {
                    IpNet::V4(_) => ue.chosen4,
                    IpNet::V6(_) => ue.chosen6,
                });
                // Chosen prefixes are as many /64s as they cover.
                let count = match net {
                    IpNet::V6(net) if chosen && net.prefix_len() < 64 => {
                        1 << (64 - net.prefix_len())
                    }
                    _ => 1,
                };
                if chosen || is_key {
                    held.insert((net, count, false));
                }
            }
        }
        let endpoints = self
            .seids
            .iter()
            .flat_map(|&seid| self.world.sessions.endpoints(seid));
        for endpoint in endpoints {
            teids.extend(endpoint.f_teid.map(|f| f.teid.teid));
            let Some(ue) = endpoint.ue else { continue };
            let chosen = ue.v4.filter(|_| ue.chosen4).map(Ipv4Net::from);
            let held = addresses.entry(ue.ni.0).or_default();
            held.extend(chosen.map(|net| (net.into(), 1, false)));
        }
        let fill = self.world.sessions.fill();
        assert_eq!(fill.teids, teids.len());
        for (ni, pool) in fill.pools.iter().enumerate() {
            let held = addresses.get(&(ni as u16)).cloned().unwrap_or_default();
            assert_eq!(
                pool[0].held(),
                held.iter().filter(|(net, ..)| net.addr().is_ipv4()).count(),
                "IPv4 of {ni}"
            );
            assert_eq!(
                pool[1].held(),
                held.iter()
                    .filter(|(net, ..)| net.addr().is_ipv6())
                    .map(|(_, count, _)| *count as usize)
                    .sum::<usize>(),
                "IPv6 of {ni}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// A refused request changes nothing that anybody can see, now or later: a twin that never got
    /// it gives the same answers ever after, to the last TEID and SEID.
    #[test]
    fn a_refused_request_leaves_no_trace(steps in prop::collection::vec(step(), 1..40)) {
        let (mut smf, mut twin) = (Smf::new(), Smf::new());
        for step in &steps {
            let before = smf.world.snapshot();
            let Some(answer) = smf.take(step) else {
                twin.take(step);
                continue;
            };
            if answer.is_err() {
                prop_assert_eq!(smf.world.snapshot(), before, "{:?}", answer);
            } else {
                prop_assert_eq!(twin.take(step), Some(answer));
            }
            smf.check();
        }
        prop_assert_eq!(smf.world.snapshot(), twin.world.snapshot());
    }

    /// Sessions that go and return between the requests are those that stay: the same answers come, and the same packets
    /// pass. TEIDs and addresses of our choice may be others, as those of a session that has gone rest.
    #[test]
    fn nobody_notices_that_a_session_moves(steps in prop::collection::vec(step(), 1..40)) {
        let (mut smf, mut twin) = (Smf::new(), Smf::new());
        for step in steps.iter().filter(|step| step.is_without_choice()) {
            let answer = smf.take(step);
            if matches!(step, Step::Move(_)) {
                smf.check();
            } else {
                prop_assert_eq!(twin.take(step), answer);
            }
        }
        prop_assert_eq!(smf.live(), twin.live());
    }

    /// A process in whose configuration the same things stand in another order takes in all sessions, and their packets
    /// meet the same.
    #[test]
    fn another_process_takes_in_all_sessions(steps in prop::collection::vec(step(), 1..40)) {
        let mut smf = Smf::new();
        for step in &steps {
            smf.take(step);
        }
        let mut other = Smf::with(reordered(&Smf::config()));
        other.world.now = smf.world.now;
        for &seid in &smf.seids {
            let sessions = &smf.world.sessions;
            let octets = record::write(seid, &SMF, sessions.context(seid).unwrap(), &sessions.site);
            let record = Record::read(&octets).unwrap();
            let World { sessions, tables, now, .. } = &mut other.world;
            prop_assert_eq!(sessions.adopt(*now, PeerId(1), record, tables), Ok(seid));
            other.seids.push(seid);
        }
        other.check();
        prop_assert_eq!(other.live(), smf.live());
        for seid in other.seids {
            prop_assert!(other.world.delete(seid).is_ok());
        }
        let fill = other.world.sessions.fill();
        prop_assert_eq!(fill.teids, 0);
        prop_assert!(fill.pools.iter().flatten().all(|pool| pool.held() == 0));
    }

    #[test]
    fn when_all_sessions_are_gone_nothing_is_held(
        steps in prop::collection::vec(step(), 1..30),
        at_once: bool,
    ) {
        let mut smf = Smf::new();
        for step in &steps {
            smf.take(step);
        }
        if at_once {
            smf.world.sessions.delete_peer(PeerId(1));
            let World { sessions, tables, now, .. } = &mut smf.world;
            prop_assert_eq!(sessions.reap(*now, usize::MAX, tables), 0);
        }
        for seid in smf.seids {
            prop_assert_eq!(smf.world.delete(seid).is_ok(), !at_once);
        }
        let fill = smf.world.sessions.fill();
        prop_assert_eq!(fill.teids, 0);
        prop_assert!(fill.pools.iter().flatten().all(|pool| pool.held() == 0));
        prop_assert!(smf.world.tables.live.is_empty());
        prop_assert_eq!(smf.world.sessions.len(), 0);
    }
}

/// The steps must be accepted often enough, and refused for many reasons, or the above says little.
#[test]
fn random_requests_are_accepted_and_refused() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut accepted, mut refused) = (0, BTreeSet::new());
    for _ in 0..300 {
        let mut smf = Smf::new();
        let steps = prop::collection::vec(step(), 1..40)
            .new_tree(&mut runner)
            .unwrap()
            .current();
        for answer in steps.iter().filter_map(|step| smf.take(step)) {
            match answer {
                Ok(_) => accepted += 1,
                Err(refusal) => {
                    refused.insert((refusal.cause.0, refusal.offending_ie));
                }
            }
        }
    }
    assert!(
        accepted > 500 && refused.len() > 8,
        "{accepted} accepted, {refused:?}"
    );
}
