//! Random rules and packets for property tests, here and in the crates that turn rules into tables, and the judge of
//! what packets then meet ([`reference`]). A whole node under test ([`world`]).

pub mod reference;
pub mod world;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU32;
use std::time::Duration;

use compiled::{
    Compiled, Direction, Marks, NiId, PacketRate, PdrId, PolicyId, PredefinedId, QerId, Qfi, QfiSet,
};
use ipnet::IpNet;
use proptest::prelude::*;
use proptest::sample::select;
use smallvec::SmallVec;
use testkit::packets::{Arrival, N3, N3_6, Packet};

use crate::base::flow::{Address, End, FlowDescription};
use crate::base::refusal::Refusal;
use crate::compile::compiler::Compiler;
use crate::rules::config::{Config, NetworkInstance, PredefinedFar, PredefinedRule};
use crate::rules::flows::Flows;
use crate::rules::predefined::numbered;
use crate::rules::site::Site;
use crate::rules::{
    Apply, Conditions, Duplicates, Duplicating, Far, FarId, Forwarding, Gate, Interface, LocalEnds,
    LocalFTeid, LocalTeid, Mbr, PacketRules, Pdi, Pdr, Qer, RarePdi, RareQer, RemoteFTeid, Removal,
    Rules, SdfFilter, Targets, TunnelNetworkId, UeIp,
};

/// Configuration that the random rules go by: our addresses, and network instances.
pub fn config() -> Config {
    let ni = |name: &str| NetworkInstance {
        name: name.into(),
        ..NetworkInstance::default()
    };
    Config {
        n3: vec![N3.into(), N3_6.into()],
        network_instances: vec![ni("a"), ni("b")],
        ..Config::default()
    }
}

/// TEIDs of the random rules: two in their own slots, one in another, and one without any.
pub const TEIDS: [u32; 4] = [1, 0x0100_0002, 0x7f00_0003, 0x7e00_0004];

/// Network instances of the random rules.
pub const NIS: u16 = 2;

/// UE IPv4 addresses of the random rules.
pub const UE4: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 60, 0, 1), Ipv4Addr::new(10, 60, 0, 2)];

/// UE IPv6 prefixes of the random rules.
const UE6: [&str; 5] = [
    "2001:db8:60::/64",
    "2001:db8:60:1::/64",
    "2001:db8:60::/57",
    "2001:db8:60:1::/100",
    "2001:db8:60:1::5/128",
];

/// The first addresses of UEs.
const FIRST6: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0x2001, 0xdb8, 0x60, 0, 0, 0, 0, 0),
    Ipv6Addr::new(0x2001, 0xdb8, 0x60, 1, 0, 0, 0, 0),
];

/// Networks behind the UEs of the random rules, some around their addresses, some within their prefixes.
const FRAMED: [&str; 9] = [
    "10.60.0.0/31",
    "10.60.0.0/24",
    "10.60.0.2/32",
    "198.51.100.0/24",
    "198.51.100.0/25",
    "2001:db8:60::/56",
    "2001:db8:60:1::/64",
    "2001:db8:60:1::8000/113",
    "2001:db8:70::/44",
];

/// Hosts behind UEs, or nowhere.
const BEHIND: [&str; 6] = [
    "10.60.0.77",
    "198.51.100.7",
    "198.51.100.200",
    "2001:db8:60:2::7",
    "2001:db8:71::7",
    "2001:db8:80::7",
];

/// Remote hosts that the random filters tell apart.
const REMOTE: [&str; 4] = [
    "192.0.2.1",
    "192.0.2.200",
    "2001:db8:f::1",
    "2001:db8:f:1::1",
];

const NETS: [&str; 8] = [
    "192.0.2.0/24",
    "192.0.2.1/32",
    "192.0.2.128/25",
    "0.0.0.0/0",
    "2001:db8:f::/64",
    "2001:db8:f::1/128",
    "2001:db8::/32",
    "::/0",
];

/// Type of Service.
const TOS: [u8; 3] = [0, 0xb8, 0xba];

/// Security Parameter Indices.
const SPIS: [u32; 2] = [7, 0xdead_beef];

/// IPv6 flow labels.
const LABELS: [u32; 2] = [0, 0xabcde];

const PORTS: [u16; 5] = [53, 80, 443, 1000, 65535];

/// Compiles the rules for a site with this configuration, with routes to all peers.
pub fn compile(rules: PacketRules<'_>, config: &Config) -> Result<Compiled, Refusal> {
    let mut compiled = Compiled::default();
    Compiler::default().compile(rules, &Site::new(config), &|_| true, &mut compiled)?;
    Ok(compiled)
}

/// Sessions of up to eight PDRs that share keys, FARs and QERs as they like. All are such that
/// [`compile`] takes them.
pub fn rules() -> impl Strategy<Value = Rules> {
    let pdrs = prop::collection::vec(pdr(), 1..8);
    let fars = (
        prop::array::uniform3(uplink_far()),
        prop::array::uniform3(downlink_far()),
    );
    let qers = prop::collection::vec(qer(), 4);
    (pdrs, fars, qers).prop_map(|(mut pdrs, (up, down), mut qers)| {
        for (i, pdr) in pdrs.iter_mut().enumerate() {
            pdr.id = PdrId(i as u16 + 1);
        }
        give_keys(&mut pdrs);
        let mut fars: Vec<Far> = up.into_iter().chain(down).collect();
        for (i, far) in fars.iter_mut().enumerate() {
            far.id = FarId(i as u32);
        }
        for (i, qer) in qers.iter_mut().enumerate() {
            qer.id = QerId(i as u32);
            // One PDR has one packet rate at most.
            if let Some(rare) = qer.rare.as_mut().filter(|_| i > 0) {
                (rare.uplink_packets, rare.downlink_packets) = (None, None);
            }
        }
        // Packets from tunnel to tunnel keep the marks that they have.
        for pdr in pdrs.iter().filter(|pdr| !pdr.is_found_by_ue()) {
            for qer in qers.iter_mut().filter(|qer| pdr.qers.contains(&qer.id)) {
                if let Some(rare) = &mut qer.rare {
                    rare.marks = Marks::default();
                }
            }
        }
        Rules {
            pdrs: pdrs.into(),
            fars: fars.into(),
            qers: qers.into(),
            ..Rules::default()
        }
    })
}

/// As [`rules`], and predefined rules that some of the PDRs activate; some of these have no FAR of their own.
/// [`compile`] takes most of them: others have too many filters.
pub fn activating() -> impl Strategy<Value = (Rules, Vec<PredefinedRule>)> {
    let chosen = prop::collection::vec(prop::sample::subsequence(vec![0, 1, 2, 3], 0..3), 8);
    let own_far = prop::collection::vec(any::<bool>(), 8);
    let predefined = prop::collection::vec(predefined_rule(), 4).prop_map(numbered);
    (rules(), predefined, chosen, own_far).prop_map(|(mut rules, predefined, chosen, own_far)| {
        for ((pdr, chosen), own_far) in rules.pdrs.iter_mut().zip(chosen).zip(own_far) {
            activate(pdr, &predefined, chosen);
            let mut active = pdr.predefined().iter().map(|id| &predefined[id.place()]);
            let mut is_said = |rule: &PredefinedRule| match rule.far {
                PredefinedFar::OfPdr => false,
                PredefinedFar::Drop => true,
                PredefinedFar::Route(_) => pdr.direction() == Direction::Uplink,
            };
            if !own_far && active.len() > 0 && active.all(&mut is_said) {
                pdr.far = None;
            }
        }
        (rules, predefined)
    })
}

/// As [`activating`], and some of the PDRs name an application in place of their filters.
pub fn naming() -> impl Strategy<Value = (Rules, Vec<PredefinedRule>, Flows)> {
    let names = prop::collection::vec(prop::option::of(0usize..3), 8);
    let flows = prop::collection::vec(prop::collection::vec(filter(), 0..4), 3);
    (activating(), names, flows).prop_map(|((mut rules, predefined), names, flows)| {
        let named = |name: usize| Box::from(format!("application {name}"));
        for (pdr, name) in rules.pdrs.iter_mut().zip(names) {
            let Some(name) = name else { continue };
            let more = pdr.pdi.more.take().unwrap_or_default();
            pdr.pdi.more = Some(Box::new(RarePdi {
                filters: Box::default(),
                application: Some(named(name)),
                ..*more
            }));
        }
        let flows = flows.into_iter().enumerate();
        let applications = flows.map(|(name, filters)| {
            let flows = filters.into_iter().filter_map(|filter| filter.asks.flow);
            (named(name), flows.collect())
        });
        (rules, predefined, applications.collect())
    })
}

/// Activates the rules in these places that are for the direction of the PDR.
fn activate(pdr: &mut Pdr, predefined: &[PredefinedRule], places: Vec<usize>) {
    let is_for = |place: &usize| {
        let direction = predefined[*place].direction;
        direction.is_none_or(|of| of == pdr.direction())
    };
    let mut places: Vec<usize> = places.into_iter().filter(is_for).collect();
    places.sort_by_key(|&place| predefined[place].precedence);
    let ids: Vec<PredefinedId> = places.into_iter().filter_map(PredefinedId::at).collect();
    pdr.set_predefined(&ids);
}

fn predefined_rule() -> impl Strategy<Value = PredefinedRule> {
    let direction = select(vec![
        None,
        Some(Direction::Uplink),
        Some(Direction::Downlink),
    ]);
    let far = prop_oneof![
        2 => Just(PredefinedFar::OfPdr),
        1 => Just(PredefinedFar::Drop),
        1 => ni().prop_map(PredefinedFar::Route),
    ];
    let flows = prop::collection::vec(filter(), 0..3)
        .prop_map(|filters| filters.into_iter().filter_map(|f| f.asks.flow).collect());
    let qer = prop::option::of(qer()).prop_map(|qer| qer.map(|qer| Qer { rare: None, ..qer }));
    (0u32..3, direction, flows, far, qer).prop_map(|(precedence, direction, flows, far, qer)| {
        PredefinedRule {
            name: String::new(),
            precedence,
            direction,
            flows,
            far,
            qer,
        }
    })
}

/// How packets of a random PDR come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    /// N3.
    Access,
    /// N9, or from the SMF.
    Tunnel,
    /// N6.
    Network,
}

fn tunnel(teid: u32) -> Option<LocalFTeid> {
    let teid = NonZeroU32::new(teid).map(|teid| LocalTeid {
        teid,
        slot: match TEIDS.iter().position(|own| *own == teid.get()) {
            Some(2) => Some(5),
            Some(3) => None,
            _ => Some(teid.get() & 0xff_ffff),
        },
    });
    let ends = LocalEnds {
        v4: Some(0),
        v6: None,
    };
    let choose_id = None;
    teid.map(|teid| LocalFTeid {
        teid,
        ends,
        choose_id,
    })
}

/// A PDR that names no tunnel or address needs another that does.
fn give_keys(pdrs: &mut [Pdr]) {
    let is_uplink = |pdr: &&mut Pdr| pdr.direction() == Direction::Uplink;
    let mut uplinks = pdrs.iter_mut().filter(is_uplink);
    if uplinks.all(|pdr| pdr.pdi.f_teid.is_none()) {
        for pdr in pdrs.iter_mut().filter(is_uplink) {
            pdr.pdi.f_teid = tunnel(TEIDS[0]);
        }
    }
    let located: Vec<NiId> = pdrs
        .iter()
        .flat_map(|pdr| pdr.pdi.ue_nets())
        .map(|(ni, _)| ni)
        .collect();
    for pdr in pdrs.iter_mut().filter(|pdr| pdr.is_found_by_ue()) {
        let ni = pdr.pdi.ni;
        if !pdr.pdi.names_ue() && !located.iter().any(|&of| ni.is_none_or(|ni| ni == of)) {
            pdr.pdi.ue = Some(UeIp {
                ni: ni.unwrap_or(NiId(0)),
                v4: Some(UE4[0]),
                v6: None,
                chosen4: false,
                chosen6: false,
            });
        }
    }
}

fn pdr() -> impl Strategy<Value = Pdr> {
    let qers = prop::sample::subsequence(vec![QerId(0), QerId(1), QerId(2), QerId(3)], 0..4);
    let filters = prop::collection::vec(filter(), 0..3);
    let from = select(vec![From::Access, From::Tunnel, From::Network]);
    let removal = prop::bool::weighted(0.2);
    let more = (filters, framed()).prop_map(|(filters, framed)| RarePdi {
        filters: filters.into(),
        framed,
        ..RarePdi::default()
    });
    (from, 0u32..4, 0u32..3, qers, more, pdi(), removal).prop_map(
        |(from, precedence, far, qers, more, mut pdi, container_removal)| {
            pdi.more = more.boxed();
            if from == From::Tunnel {
                pdi.f_teid = pdi.f_teid.or(tunnel(TEIDS[1]));
            }
            if from == From::Access {
                pdi.source = Interface::Access;
            } else if from == From::Network {
                pdi.f_teid = None;
                pdi.qfis = QfiSet::default();
            }
            Pdr {
                id: PdrId(0),
                precedence,
                pdi,
                outer_header_removal: (from != From::Network).then_some(Removal::Either),
                container_removal: container_removal && from != From::Network,
                far: Some(FarId(if from == From::Access { far } else { 3 + far })),
                qers: qers.into(),
                urrs: SmallVec::new(),
            }
        },
    )
}

fn pdi() -> impl Strategy<Value = Pdi> {
    let source = select(vec![Interface::Core, Interface::CpFunction]);
    let qfis = prop_oneof![
        3 => Just(Vec::new()),
        1 => qfi().prop_map(|qfi| vec![qfi]),
        1 => Just(Vec::from_iter([0, 2].into_iter().filter_map(Qfi::new))),
    ];
    (
        source,
        prop::option::of(ni()),
        prop::option::weighted(0.9, select(&TEIDS[..])),
        prop::option::of(ue()),
        qfis,
    )
        .prop_map(|(source, ni, teid, ue, qfis)| {
            let f_teid = teid.and_then(tunnel);
            let ue = ue.map(|ue| UeIp {
                ni: ni.unwrap_or(NiId(0)),
                ..ue
            });
            let mut set = QfiSet::default();
            qfis.into_iter().for_each(|qfi| set.insert(qfi));
            Pdi {
                source,
                ni,
                f_teid,
                ue,
                qfis: set,
                more: None,
            }
        })
}

fn ni() -> impl Strategy<Value = NiId> {
    (0..NIS).prop_map(NiId)
}

fn qfi() -> impl Strategy<Value = Qfi> {
    (0u8..3).prop_filter_map("six bits", Qfi::new)
}

fn ue() -> impl Strategy<Value = UeIp> {
    let v4 = prop::option::weighted(0.7, select(&UE4[..]));
    let net = select(&UE6[..]).prop_filter_map("a prefix", |text| text.parse().ok());
    let v6 = prop::option::weighted(0.7, net);
    (v4, v6).prop_filter_map("an address", |(v4, v6)| {
        let ue = UeIp {
            ni: NiId(0),
            v4,
            v6,
            chosen4: false,
            chosen6: false,
        };
        (v4.is_some() || v6.is_some()).then_some(ue)
    })
}

fn framed() -> impl Strategy<Value = Box<[IpNet]>> {
    let net = select(&FRAMED[..]).prop_filter_map("a prefix", |text| text.parse().ok());
    prop_oneof![
        3 => Just(Box::default()),
        1 => prop::collection::vec(net, 1..3).prop_map(Into::into),
    ]
}

fn filter() -> impl Strategy<Value = SdfFilter> {
    let proto = prop::option::of(select(vec![1u8, 6, 17]));
    let remote = prop_oneof![Just(None), select(&NETS[..]).prop_map(Some)];
    let ue = select(vec![
        Address::Any,
        Address::Assigned,
        net("10.60.0.0/31"),
        net("2001:db8:60::/48"),
    ]);
    let flow = (proto, remote, ports(), ue, ports()).prop_map(
        |(proto, remote, remote_ports, ue, ue_ports)| {
            let mut remote = remote.map_or(Address::Any, net);
            if let (Address::Net(a), Address::Net(b)) = (remote, ue)
                && a.addr().is_ipv4() != b.addr().is_ipv4()
            {
                remote = Address::Any;
            }
            FlowDescription {
                proto,
                remote: End {
                    address: remote,
                    ports: remote_ports,
                },
                ue: End {
                    address: ue,
                    ports: ue_ports,
                },
            }
        },
    );
    let tos = prop::option::weighted(0.2, (select(&TOS[..]), select(vec![0xffu8, 0xfc, 0x40, 0])));
    let spi = prop::option::weighted(0.1, select(&SPIS[..]));
    let label = prop::option::weighted(0.1, select(&LABELS[..]));
    (prop::option::weighted(0.8, flow), tos, spi, label).prop_map(|(flow, tos, spi, label)| {
        let ipv4 = flow.as_ref().is_some_and(|flow| flow.is_of(true));
        SdfFilter {
            id: None,
            asks: Conditions {
                flow,
                tos,
                spi,
                label: label.filter(|_| !ipv4),
                ..Conditions::default()
            },
        }
    })
}

fn net(text: &str) -> Address {
    text.parse::<IpNet>().map_or(Address::Any, Address::Net)
}

fn ports() -> impl Strategy<Value = SmallVec<[(u16, u16); 1]>> {
    let range = (select(&PORTS[..]), select(&PORTS[..])).prop_map(|(a, b)| (a.min(b), a.max(b)));
    prop_oneof![
        3 => Just(SmallVec::new()),
        1 => prop::collection::vec(range, 1..3).prop_map(SmallVec::from_vec),
    ]
}

fn uplink_far() -> impl Strategy<Value = Far> {
    let plain = (
        select(vec![Interface::Core, Interface::SgiLan]),
        Just(None),
        prop::option::of(ni()),
    );
    let relayed = (
        select(vec![
            Interface::Access,
            Interface::Core,
            Interface::CpFunction,
        ]),
        remote().prop_map(Some),
        prop::option::of(ni()),
    );
    let nowhere_yet = (Just(Interface::Access), Just(None), Just(None));
    let forwarding = prop_oneof![4 => plain, 4 => relayed, 1 => nowhere_yet].prop_map(
        |(destination, tunnel, ni)| Forwarding {
            destination,
            ni,
            tunnel,
            is_unusable: false,
            marking: None,
        },
    );
    far(forwarding)
}

/// One that goes there; of those into a tunnel, some in UDP alone instead.
fn far(forwarding: impl Strategy<Value = Forwarding>) -> impl Strategy<Value = Far> {
    let in_udp = prop::bool::weighted(0.1);
    let steered = prop::option::weighted(0.4, Just(PolicyId(0)));
    let shape = (apply(), in_udp, any::<bool>(), steered);
    (shape, forwarding, duplicates()).prop_map(|((apply, in_udp, says, policy), mut to, more)| {
        let udp = to.tunnel.filter(|_| in_udp);
        to.tunnel = to.tunnel.filter(|_| udp.is_none());
        let mut far = Far {
            id: FarId(0),
            apply,
            targets: Targets::new(Some(to), more),
            bar: None,
            through: TunnelNetworkId(0),
        };
        far.set_udp(udp);
        // FARs towards access may name one, to no effect.
        let to_access = to.destination == Interface::Access;
        if let Some(policy) = policy.filter(|_| to_access || to.tunnel.is_none() && udp.is_none()) {
            far.set_policy(policy);
        }
        if matches!(apply, Apply::Buffer { .. }) && !says {
            // Its destination is not known yet.
            far.targets = Targets::default();
        }
        far
    })
}

fn remote() -> impl Strategy<Value = RemoteFTeid> {
    let families = select(vec![(true, false), (false, true), (true, true)]);
    (1u32..4, 1u8..3, families).prop_map(|(teid, host, (v4, v6))| {
        let host6 = Ipv6Addr::new(0x2001, 0xdb8, 3, 1, 0, 0, 0, u16::from(host));
        let host4 = Ipv4Addr::new(10, 3, 1, host);
        let teid = NonZeroU32::new(teid).unwrap_or(NonZeroU32::MIN);
        RemoteFTeid::new(teid, v4.then_some(host4), v6.then_some(host6))
    })
}

fn downlink_far() -> impl Strategy<Value = Far> {
    far(
        prop::option::weighted(0.9, remote()).prop_map(|tunnel| Forwarding {
            destination: Interface::Access,
            ni: None,
            tunnel,
            is_unusable: false,
            marking: None,
        }),
    )
}

fn duplicates() -> impl Strategy<Value = Duplicates> {
    let duplicate = (remote(), any::<bool>()).prop_map(|(to, udp)| Duplicating {
        to,
        udp,
        through: TunnelNetworkId(0),
        marking: None,
    });
    let some = (any::<bool>(), prop::collection::vec(duplicate, 1..4));
    let some = some.prop_map(|(on, to)| Duplicates { on, to });
    prop_oneof![4 => Just(Duplicates::default()), 1 => some]
}

fn apply() -> impl Strategy<Value = Apply> {
    prop_oneof![
        4 => Just(Apply::Forward),
        1 => Just(Apply::Drop),
        1 => any::<bool>().prop_map(|notify| Apply::Buffer { notify }),
    ]
}

fn qer() -> impl Strategy<Value = Qer> {
    let gate = (prop::bool::weighted(0.9), prop::bool::weighted(0.9));
    let mbr = prop::option::of((0u64..1_000_000, 0u64..1_000_000));
    let rare = prop::option::weighted(0.3, rare_qer());
    (gate, mbr, prop::option::of(qfi()), rare).prop_map(
        |((uplink_open, downlink_open), mbr, qfi, rare)| Qer {
            id: QerId(0),
            gate: Gate {
                uplink_open,
                downlink_open,
            },
            mbr: mbr.map(|(uplink, downlink)| Mbr::new(uplink, downlink)),
            qfi,
            rare: rare.map(|rare| {
                // Marks need a PDU Session Container.
                let marks = qfi.map_or_else(Marks::default, |_| rare.marks);
                Box::new(RareQer { marks, ..rare })
            }),
        },
    )
}

fn rare_qer() -> impl Strategy<Value = RareQer> {
    let rate = || {
        let rate = (0u32..4, 1u64..90).prop_map(|(packets, seconds)| PacketRate {
            packets,
            per: Duration::from_secs(seconds),
        });
        prop::option::of(rate)
    };
    let marks = (any::<bool>(), prop::option::of(0u8..8));
    (rate(), rate(), marks).prop_map(|(uplink_packets, downlink_packets, (rqi, ppi))| RareQer {
        uplink_packets,
        downlink_packets,
        marks: Marks { rqi, ppi },
        ..RareQer::default()
    })
}

/// Packets that the random rules tell apart: protocols 1, 6 and 17, the latter two with ports, and 50.
pub fn packet() -> impl Strategy<Value = Packet> {
    let remote =
        select(&REMOTE[..]).prop_filter_map("an address", |text| text.parse::<IpAddr>().ok());
    let arrival = prop_oneof![
        (select(&TEIDS[..]), prop::option::of(qfi()))
            .prop_map(|(teid, qfi)| Arrival::Tunnel { teid, qfi }),
        ni().prop_map(|ni| Arrival::Network { ni }),
    ];
    let ports = (select(&PORTS[..]), select(&PORTS[..]));
    (
        arrival,
        remote,
        0usize..2,
        any::<u16>(),
        select(vec![1u8, 6, 6, 17, 17, 50]),
        ports,
        (
            any::<bool>(),
            select(&TOS[..]),
            select(&SPIS[..]),
            select(&LABELS[..]),
        ),
    )
        .prop_map(
            |(arrival, remote, ue, host, proto, ports, (from_ue, tos, spi, label))| {
                let behind = BEHIND.iter().filter_map(|text| text.parse::<IpAddr>().ok());
                let mut behind = behind.filter(|addr| addr.is_ipv4() == remote.is_ipv4());
                let ue = match (behind.nth(usize::from(host % 16)), remote) {
                    (Some(behind), _) => behind,
                    (None, IpAddr::V4(_)) => IpAddr::V4(UE4[ue]),
                    (None, IpAddr::V6(_)) => IpAddr::V6(Ipv6Addr::from(
                        u128::from(FIRST6[ue]) + u128::from(host >> 4),
                    )),
                };
                let (src, dst) = match arrival {
                    Arrival::Tunnel { .. } if from_ue => (ue, remote),
                    Arrival::Tunnel { .. } | Arrival::Network { .. } => (remote, ue),
                };
                Packet {
                    arrival,
                    src,
                    dst,
                    proto,
                    ports: [6, 17].contains(&proto).then_some(ports),
                    tos,
                    spi: (proto == 50).then_some(spi),
                    label: if remote.is_ipv6() { label } else { 0 },
                }
            },
        )
}
