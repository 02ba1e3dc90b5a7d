//! Packets that wait follow their FAR, whatever becomes of the rules meanwhile.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Duration;

use compiled::{Action, Compiled, Filter, Flow, Key, NiId, PdrId, QfiSet, Select, Tables as _};
use proptest::prelude::*;
use tables::task::{EVENT_HELD, Event};
use tables::testing::data_network;
use tables::{Handle, Layout, Options, Tables};
use testkit::sessions::{downlink, tunnel};

use super::by_hand::{BufferByHand, Released};
use super::queues::BufferBounds;
use crate::Setup;
use crate::finish::framed;

const SEID: u64 = 77;
const UE: Ipv4Addr = Ipv4Addr::new(10, 60, 0, 1);

/// UDP, which PDR 5 takes if it is there; ICMP is left to PDR 2.
const UDP: u8 = 17;
const ICMP: u8 = 1;

/// Actions of the FARs of PDR 5 and PDR 2; `None`: the PDR is not there.
type Rules = [Option<Action>; 2];

const PDRS: [PdrId; 2] = [PdrId(5), PdrId(2)];

struct World {
    tables: Tables,
    handle: Handle,
    buffer: BufferByHand,
    /// PDRs of which was told that packets wait.
    told: BTreeSet<PdrId>,
    sent: u8,
}

impl World {
    fn entries_in_use(&self) -> u64 {
        let fill = self.tables.fill();
        let entries = fill.iter().find(|fill| fill.table == "entries");
        entries.unwrap().used
    }

    fn new() -> Self {
        let tables = Tables::host(
            &Layout::for_sessions(64, 1, 1),
            &[data_network()],
            &Options::default(),
        );
        let mut tables = tables.unwrap();
        let setup = Setup::new(&mut tables).unwrap();
        let bounds = BufferBounds {
            bytes: 1 << 20,
            packets: 1000,
            packets_per_session: 1000,
            age: Duration::from_secs(3600),
        };
        let buffer = setup.buffer_by_hand(&tables, bounds).unwrap();
        Self {
            tables,
            handle: Handle::default(),
            buffer,
            told: BTreeSet::new(),
            sent: 0,
        }
    }

    fn publish(&mut self, rules: &Rules) {
        let mut compiled = Compiled {
            seid: SEID,
            ..Compiled::default()
        };
        for (pdr, action) in PDRS.into_iter().zip(rules) {
            let Some(action) = action else { continue };
            let entry = compiled.entries.len();
            compiled.entries.push(downlink(pdr, *action));
            let udp = Flow {
                proto: Some(UDP),
                ..Flow::default()
            };
            compiled.filters.push(Filter {
                entry,
                flow: (pdr == PDRS[0]).then_some(udp),
                qfis: QfiSet::default(),
            });
        }
        let list = Select::List {
            first: 0,
            len: compiled.filters.len(),
        };
        let key = Key::Ue4 {
            ni: NiId(0),
            addr: UE,
        };
        if !compiled.filters.is_empty() {
            compiled.keys.push((key, list));
        }
        self.tables.publish(&mut self.handle, &compiled).unwrap();
    }

    /// A packet for the UE; each has a number of its own.
    fn packet(&mut self, proto: u8) {
        self.sent += 1;
        let mut ip = vec![
            0x45, 0, 0, 28, 0, self.sent, 0, 0, 64, proto, 0, 0, 192, 0, 2, 1,
        ];
        ip.extend(UE.octets());
        ip.extend([0; 8]);
        crate::inet::set_header_checksum(&mut ip);
        let run = self.tables.run(0, &framed(&ip), 1).unwrap();
        if Event::parse(&run.event).is_some_and(|event| event.kind == EVENT_HELD) {
            self.buffer.take(&run.event);
        }
    }

    /// All that may leave does, and grace periods pass. TEID and number of each packet that has left.
    fn settle(&mut self) -> Vec<(u32, u8)> {
        let mut left = Vec::new();
        for _ in 0..4 {
            for released in self.buffer.release() {
                let Released::Packet(outgoing) = released else {
                    panic!("the gNB's next hop is not known");
                };
                let outer = &outgoing.packet;
                let teid = u32::from_be_bytes(outer[32..36].try_into().unwrap());
                left.push((teid, outer[outer.len() - 28 + 5]));
            }
            self.tables.maintain();
        }
        self.told
            .extend(self.buffer.news().into_iter().map(|news| news.pdr));
        left
    }

    fn waiting(&self, pdr: PdrId) -> u64 {
        self.tables.buffered(&self.handle, pdr)
    }
}

#[test]
fn stuck_behind_a_new_pdr_after_the_far_forwards() {
    let mut world = World::new();
    world.publish(&[None, Some(Action::Buffer)]);
    world.packet(UDP);
    // A dedicated flow is set up while the UE is idle: its PDR would take the packet now.
    world.publish(&[Some(Action::Buffer), Some(Action::Buffer)]);
    world.packet(UDP);
    assert_eq!(world.settle(), []);
    assert_eq!(world.told, BTreeSet::from(PDRS));
    world.publish(&[Some(Action::Buffer), Some(tunnel(7))]);
    assert_eq!(world.settle(), [(7, 1)], "what the FAR had buffered");
    assert_eq!(PDRS.map(|pdr| world.waiting(pdr)), [1, 0]);
    world.publish(&[Some(tunnel(8)), Some(tunnel(7))]);
    assert_eq!(world.settle(), [(8, 2)]);
    assert_eq!(world.buffer.counts().packets, 0);
}

#[test]
fn what_waited_for_a_pdr_that_is_removed_waits_for_the_next_one_in_order() {
    let mut world = World::new();
    world.publish(&[Some(Action::Buffer), Some(Action::Buffer)]);
    world.packet(UDP);
    world.packet(ICMP);
    world.packet(UDP);
    world.settle();
    world.told.clear();
    world.publish(&[None, Some(Action::Buffer)]);
    assert_eq!(world.settle(), []);
    assert_eq!(
        (world.waiting(PDRS[1]), world.buffer.counts().packets),
        (3, 3)
    );
    world.publish(&[None, Some(tunnel(7))]);
    assert_eq!(world.settle(), [(7, 1), (7, 2), (7, 3)]);
}

#[test]
fn the_smf_hears_of_a_pdr_that_takes_over_what_waits() {
    let mut world = World::new();
    world.publish(&[Some(Action::Buffer), Some(tunnel(7))]);
    world.packet(UDP);
    world.settle();
    assert_eq!(world.told, BTreeSet::from([PDRS[0]]));
    world.publish(&[None, Some(Action::Buffer)]);
    world.settle();
    assert_eq!(world.told, BTreeSet::from(PDRS));
    // Nobody takes it any more.
    world.publish(&[Some(tunnel(8)), None]);
    assert_eq!(world.settle(), [(8, 1)], "but this one");
    world.publish(&[Some(Action::Buffer), None]);
    world.packet(UDP);
    world.publish(&[None, None]);
    assert_eq!(world.settle(), []);
    let counts = world.buffer.counts();
    assert_eq!((counts.packets, counts.lost), (0, 1));
}

fn action() -> impl Strategy<Value = Option<Action>> {
    prop_oneof![
        1 => Just(None),
        1 => Just(Some(Action::Drop)),
        3 => Just(Some(Action::Buffer)),
        2 => (1u32..4).prop_map(|teid| Some(tunnel(teid))),
    ]
}

#[derive(Clone, Debug)]
enum Step {
    Rules(Rules),
    Packet(u8),
    Settle,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => [action(), action()].prop_map(Step::Rules),
        4 => prop_oneof![Just(UDP), Just(ICMP)].prop_map(Step::Packet),
        2 => Just(Step::Settle),
    ]
}

proptest! {
    /// A packet waits for a FAR that buffers, of a PDR that is there and of which was told: a change of this FAR lets it go.
    /// Nothing is lost uncounted, nothing is doubled.
    #[test]
    fn no_packet_is_left_that_no_rule_will_ever_touch(steps in prop::collection::vec(step(), 1..60)) {
        let mut world = World::new();
        let mut rules = [None, Some(Action::Buffer)];
        world.publish(&rules);
        let mut left: BTreeSet<u8> = BTreeSet::new();
        for step in steps {
            match step {
                Step::Rules(new) => {
                    world.publish(&new);
                    rules = new;
                }
                Step::Packet(proto) => {
                    world.packet(proto);
                    continue;
                }
                Step::Settle => {}
            }
            for (_, number) in world.settle() {
                prop_assert!(left.insert(number), "twice");
            }
            let mut waiting = 0;
            for (pdr, action) in PDRS.into_iter().zip(&rules) {
                let buffered = if action.is_some() { world.waiting(pdr) } else { 0 };
                waiting += buffered;
                if buffered > 0 {
                    prop_assert_eq!(action, &Some(Action::Buffer));
                    prop_assert!(world.told.contains(&pdr));
                } else {
                    world.told.remove(&pdr);
                }
            }
            let counts = world.buffer.counts();
            prop_assert_eq!(counts.packets, waiting);
            prop_assert_eq!(counts.taken, counts.released + counts.lost + counts.packets);
        }
        world.publish(&[None, None]);
        world.settle();
        prop_assert_eq!(world.buffer.counts().packets, 0);
        prop_assert_eq!(world.entries_in_use(), 0);
    }
}
