//! Entries at which packets wait, on the host.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use compiled::{
    Action, BufferLimits, Compiled, Entry, Filter, Key, NiId, PdrId, Qfi, QfiSet, Select,
    Tables as _,
};
use testkit::sessions::{downlink, tunnel};

use crate::abi::{Features, entry};
use crate::buffer_control::BufferControl;
use crate::error::SetupError;
use crate::grace::{Bystander, Looking};
use crate::task::{EVENT_HELD, Event};
use crate::testing::data_network;
use crate::verdict::Verdict;
use crate::{Handle, Layout, Options, PortConfig, Tables};

#[derive(Debug)]
enum Command {
    Release(u64),
    Discard(u64),
    Other,
}

/// Remembers what it is told.
#[derive(Debug, Default)]
struct Commands(Mutex<Vec<Command>>);

impl Commands {
    fn send(&self, command: Command) {
        self.0.lock().unwrap().push(command);
    }
}

impl BufferControl for Commands {
    fn release(&self, seid: u64) {
        self.send(Command::Release(seid));
    }

    fn discard(&self, seid: u64) {
        self.send(Command::Discard(seid));
    }

    fn tell_anew(&self, _: u64) {
        self.send(Command::Other);
    }

    fn limit(&self, _: u64, _: PdrId, _: BufferLimits) {
        self.send(Command::Other);
    }
}

const SEID: u64 = 77;
const UE: Ipv4Addr = Ipv4Addr::new(10, 60, 0, 1);
const PDR: PdrId = PdrId(2);

struct World {
    tables: Tables,
    commands: Arc<Commands>,
    handle: Handle,
}

impl World {
    /// Packets run in the thread of the test: no grace period takes time.
    fn new() -> Self {
        Self::of(Tables::host)
    }

    /// Grace periods last as long as the look of a bystander.
    fn with_bystanders() -> Self {
        Self::of(Tables::by_hand)
    }

    fn of(
        tables: impl FnOnce(&Layout, &[PortConfig], &Options) -> Result<Tables, SetupError>,
    ) -> Self {
        let options = Options {
            features: Some(Features::ALL),
            ..Options::default()
        };
        let layout = Layout::for_sessions(64, 1, 1);
        let mut tables = tables(&layout, &[data_network()], &options).unwrap();
        let config = &tables.store.mem.config[0];
        config.held_max.store(3, Ordering::Relaxed);
        let commands = Arc::<Commands>::default();
        tables.set_buffer_control(commands.clone());
        Self {
            tables,
            commands,
            handle: Handle::default(),
        }
    }

    /// Grace periods of the last changes that have not ended.
    fn unsettled(&self) -> usize {
        self.tables.store.grace.len()
    }

    /// Release again and again, as a worker does, until one more grace period has ended. One look is under way then.
    fn end_one_grace<'a>(&mut self, bystander: &'a Bystander, looking: Looking<'a>) -> Looking<'a> {
        let (before, mut looking) = (self.unsettled(), Some(looking));
        for _ in 0..10_000 {
            drop(looking.take());
            looking = Some(bystander.look());
            self.tables.maintain();
            if self.unsettled() < before {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(self.unsettled() < before, "none has ended");
        looking.unwrap()
    }

    /// Let all of them end.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            self.tables.maintain();
            if self.unsettled() == 0 {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("{} have not ended", self.unsettled());
    }

    /// A packet that met the entry before it was changed comes to wait there only now.
    fn comes_late(&self, entry: u32) {
        self.tables.store.mem.sides[entry as usize]
            .held
            .fetch_add(1, Ordering::Relaxed);
    }

    fn entry(&self) -> u32 {
        self.handle.entries()[0].index
    }

    fn publish(&mut self, action: Action, qfi: u8) {
        self.change(action, qfi, false);
    }

    fn change(&mut self, action: Action, qfi: u8, drops_buffered: bool) {
        let entry = Entry {
            qfi: Qfi::new(qfi),
            ..downlink(PDR, action)
        };
        let key = Key::Ue4 {
            ni: NiId(0),
            addr: UE,
        };
        let compiled = Compiled {
            seid: SEID,
            entries: vec![entry],
            keys: vec![(key, Select::One(0))],
            drops_buffered,
            ..Compiled::default()
        };
        self.tables.publish(&mut self.handle, &compiled).unwrap();
    }

    /// A flow more, whose packets are dropped.
    fn publish_with_flow(&mut self, action: Action) {
        let filter = |entry| Filter {
            entry,
            flow: None,
            qfis: QfiSet::default(),
        };
        let key = Key::Ue4 {
            ni: NiId(0),
            addr: UE,
        };
        let compiled = Compiled {
            seid: SEID,
            entries: vec![downlink(PDR, action), downlink(PdrId(3), Action::Drop)],
            keys: vec![(key, Select::List { first: 0, len: 2 })],
            filters: [1, 0].map(filter).to_vec(),
            ..Compiled::default()
        };
        self.tables.publish(&mut self.handle, &compiled).unwrap();
    }

    /// A packet for the UE: the entry that it waits at; else what becomes of it.
    fn packet(&self) -> Result<u32, &'static str> {
        let mut frame = vec![0; 12];
        frame.extend([0x08, 0x00]);
        frame.extend([
            0x45, 0xb8, 0, 20, 0, 0, 0, 0, 64, 17, 0xad, 0xf5, 192, 0, 2, 1,
        ]);
        frame.extend(UE.octets());
        let run = self.tables.run(0, &frame, 1).unwrap();
        match run.verdict {
            Verdict::Slow => {
                let event = Event::parse(&run.event).unwrap();
                if event.kind != EVENT_HELD {
                    return FORWARDED;
                }
                // A `struct tp_held`, which begins with the entry, and the frame.
                let (held, held_frame) = event.data.split_first_chunk::<8>().unwrap();
                assert_eq!(held_frame, frame);
                let [a, b, c, d, ..] = *held;
                Ok(u32::from_ne_bytes([a, b, c, d]))
            }
            Verdict::Drop(reason) => Err(reason.name()),
            other => panic!("{other:?}"),
        }
    }

    fn leaves(&self, entry: u32) {
        self.tables.store.mem.sides[entry as usize]
            .held
            .fetch_sub(1, Ordering::Relaxed);
    }

    fn buffered(&self) -> u64 {
        self.tables.buffered(&self.handle, PDR)
    }

    fn head(&self) -> u64 {
        self.tables
            .store
            .shard
            .entries
            .head(self.handle.entries()[0].index)
    }

    /// Action of the entry, in front of which nothing waits.
    fn action(&self) -> u64 {
        assert!(!self.is_draining());
        entry::action(self.head())
    }

    fn is_draining(&self) -> bool {
        entry::is_draining(self.head())
    }

    fn commands(&self) -> Vec<Command> {
        std::mem::take(&mut self.commands.0.lock().unwrap())
    }
}

/// To a neighbour that the kernel would have to find.
const FORWARDED: Result<u32, &str> = Err("forwarded");

#[test]
fn packets_wait_within_the_bound_of_their_entry() {
    let mut world = World::new();
    world.publish(Action::Buffer, 9);
    for _ in 0..3 {
        world.packet().unwrap();
    }
    assert_eq!((world.packet(), world.buffered()), (Err("buffer_full"), 3));
    let config = &world.tables.store.mem.config[0];
    config.held_max.store(0, Ordering::Relaxed);
    assert_eq!(world.packet(), Err("far_buffer"), "switched off");
}

#[test]
fn where_nobody_keeps_packets_nothing_stays_behind_any() {
    let mut world = World::new();
    let config = &world.tables.store.mem.config[0];
    config.held_max.store(0, Ordering::Relaxed);
    world.publish(tunnel(1), 9);
    world.publish(Action::Buffer, 9);
    assert_eq!(world.packet(), Err("far_buffer"));
    let before = world.handle.entries()[0].index;
    world.publish(tunnel(2), 9);
    assert_ne!(world.handle.entries()[0].index, before, "it moves");
    assert_eq!((world.action(), world.buffered()), (entry::ACT_TUNNEL, 0));
    world.publish(Action::Buffer, 9);
    world.publish(tunnel(3), 9);
    assert_eq!((world.action(), world.buffered()), (entry::ACT_TUNNEL, 0));
    world.tables.withdraw(&mut world.handle);
    world.tables.maintain();
    assert_eq!(world.tables.store.shard.entries.free.used(), 0);
}

#[test]
fn nothing_waits_for_those_who_kept_packets_and_are_gone() {
    let mut world = World::new();
    world.publish(Action::Buffer, 9);
    world.packet().unwrap();
    world.publish(tunnel(1), 9);
    assert!(world.is_draining());
    let config = &world.tables.store.mem.config[0];
    config.held_max.store(0, Ordering::Relaxed);
    assert_eq!(world.packet(), FORWARDED);
    world.tables.maintain();
    assert_eq!(world.action(), entry::ACT_TUNNEL);
    world.tables.withdraw(&mut world.handle);
    world.tables.maintain();
    assert_eq!(world.tables.store.shard.entries.free.used(), 0);
}

#[test]
fn an_entry_that_forwards_again_does_so_behind_what_waits() {
    let mut world = World::new();
    world.publish(Action::Buffer, 9);
    let first = world.packet().unwrap();
    world.publish(tunnel(1), 9);
    let commands = world.commands();
    assert!(
        matches!(commands[..], [Command::Release(SEID)]),
        "{commands:?}"
    );
    let second = world.packet().unwrap();
    assert_eq!((world.buffered(), second), (2, first));
    world.tables.maintain();
    assert!(world.is_draining(), "some still wait");
    world.leaves(first);
    world.packet().unwrap();
    world.leaves(second);
    world.leaves(second);
    assert_eq!((world.packet(), world.buffered()), (FORWARDED, 0));
    world.tables.maintain();
    assert_eq!(world.action(), entry::ACT_TUNNEL);
    assert_eq!(world.packet(), FORWARDED);
}

#[test]
fn a_ue_that_is_idle_again_keeps_what_waited() {
    let mut world = World::new();
    world.publish(Action::Buffer, 9);
    let entry_index = world.packet().unwrap();
    world.publish(tunnel(1), 9);
    world.publish(Action::Buffer, 9);
    assert_eq!(world.action(), entry::ACT_BUFFER);
    world.packet().unwrap();
    world.tables.maintain();
    assert_eq!((world.action(), world.buffered()), (entry::ACT_BUFFER, 2));
    world.publish(tunnel(2), 9);
    for _ in 0..2 {
        world.leaves(entry_index);
    }
    world.tables.maintain();
    assert_eq!(
        (world.action(), world.packet()),
        (entry::ACT_TUNNEL, FORWARDED)
    );
}

#[test]
fn a_switch_to_another_tunnel_stays_behind_what_waits() {
    let mut world = World::new();
    world.publish(Action::Buffer, 9);
    let held = world.packet().unwrap();
    world.publish(tunnel(1), 9);
    world.publish(tunnel(2), 9);
    assert!(world.is_draining());
    world.packet().unwrap();
    world.leaves(held);
    world.leaves(held);
    assert_eq!(world.packet(), FORWARDED);
}

#[test]
fn an_entry_that_takes_anothers_place_waits_for_what_waits_there() {
    let mut world = World::new();
    world.publish(tunnel(1), 9);
    // Its words lose their meaning, and for a grace period nothing may be written into them.
    world.publish(Action::Buffer, 9);
    let before = world.packet().unwrap();
    world.publish(tunnel(2), 9);
    let now = world.handle.entries()[0].index;
    assert_ne!(now, before, "a line of its own");
    let second = world.packet().unwrap();
    assert_eq!(second, now, "behind the other");
    world.leaves(second);
    world.tables.maintain();
    assert!(
        world.packet().is_ok(),
        "one still waits at the former entry"
    );
    world.leaves(now);
    world.leaves(before);
    for _ in 0..3 {
        world.tables.maintain();
    }
    assert_eq!((world.packet(), world.buffered()), (FORWARDED, 0));
    assert_eq!(world.action(), entry::ACT_TUNNEL);
    assert_eq!(world.tables.store.mem.owners.seid(now), Some(SEID));
}

#[test]
fn what_took_an_entrys_place_is_known_as_long_as_packets_may_come_to_wait_there() {
    let mut world = World::with_bystanders();
    let bystander = world.tables.bystander();
    let looking = bystander.look();
    world.publish(tunnel(1), 9);
    world.publish(Action::Buffer, 9);
    world.tables.maintain();
    let before = world.entry();
    world.publish(tunnel(2), 9);
    let now = world.entry();
    assert_ne!(now, before, "a line of its own");
    // The grace period of the change before the last one says nothing of packets that met the entry since.
    let looking = world.end_one_grace(&bystander, looking);
    world.comes_late(before);
    assert_eq!(world.tables.store.mem.successors.present(before), now);
    drop(looking);
    for _ in 0..100 {
        world.tables.maintain();
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(world.tables.store.mem.successors.present(before), now);
    assert!(world.is_draining());
    world.leaves(before);
    world.settle();
    assert_eq!(world.tables.store.mem.successors.present(before), before);
    assert_eq!(world.action(), entry::ACT_TUNNEL);
    assert_eq!(world.tables.store.shard.entries.free.used(), 1);
}

#[test]
fn an_entry_stays_behind_packets_that_met_it_when_the_ue_was_idle_for_the_second_time() {
    let mut world = World::with_bystanders();
    let bystander = world.tables.bystander();
    world.publish(tunnel(1), 9);
    world.publish(Action::Buffer, 9);
    world.settle();
    let looking = bystander.look();
    let entry = world.entry();
    world.publish(tunnel(1), 9);
    world.tables.maintain();
    world.publish(Action::Buffer, 9);
    world.publish(tunnel(1), 9);
    assert_eq!(world.entry(), entry, "in place");
    let looking = world.end_one_grace(&bystander, looking);
    assert!(world.is_draining());
    world.comes_late(entry);
    drop(looking);
    for _ in 0..100 {
        world.tables.maintain();
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(world.is_draining());
    world.leaves(entry);
    world.settle();
    assert_eq!(world.action(), entry::ACT_TUNNEL);
}

/// The line of the new entry is one that led to a list, or was nobody's.
#[test]
fn packets_that_wait_are_not_lost_while_a_flow_comes_and_goes() {
    let mut world = World::with_bystanders();
    let bystander = world.tables.bystander();
    let successors = world.tables.store.mem.successors.clone();
    let entries = world.tables.store.mem.entries.clone();
    world.publish(Action::Buffer, 9);
    let waits_at = AtomicU32::new(world.entry());
    let over = AtomicBool::new(false);
    let met = std::thread::scope(|scope| {
        let keeper = scope.spawn(|| {
            let mut met = BTreeSet::new();
            while !over.load(Ordering::Relaxed) {
                let _looking = bystander.look();
                let by = successors.present(waits_at.load(Ordering::Acquire));
                met.insert(entry::action(entries[by as usize].load(entry::HEAD)));
            }
            met
        });
        for _ in 0..5_000 {
            world.publish_with_flow(tunnel(1));
            waits_at.store(world.entry(), Ordering::Release);
            world.tables.maintain();
            world.publish(Action::Buffer, 9);
            waits_at.store(world.entry(), Ordering::Release);
            world.tables.maintain();
        }
        over.store(true, Ordering::Relaxed);
        keeper.join().unwrap()
    });
    assert_eq!(met, [entry::ACT_TUNNEL, entry::ACT_BUFFER].into());
}

#[test]
fn what_waits_is_discarded_with_its_session_or_by_drobu() {
    let mut world = World::new();
    world.publish(Action::Buffer, 9);
    let index = world.packet().unwrap();
    world.change(tunnel(1), 9, true);
    let commands = world.commands();
    assert!(
        matches!(
            commands[..],
            [Command::Discard(SEID), Command::Release(SEID)]
        ),
        "{commands:?}"
    );
    world.publish(Action::Buffer, 9);
    world.commands();
    world.tables.withdraw(&mut world.handle);
    assert!(matches!(world.commands()[..], [Command::Discard(SEID)]));
    let used = |world: &World| world.tables.store.shard.entries.free.used();
    world.tables.maintain();
    assert_eq!(used(&world), 1, "its line is not used again yet");
    world.leaves(index);
    for _ in 0..3 {
        world.tables.maintain();
    }
    assert_eq!(used(&world), 0);
}

#[test]
fn what_takes_an_entrys_place_follows_its_frames_in_user_space() {
    let mut world = World::new();
    let mem = world.tables.store.mem.clone();
    let shaped = |entry: u32| mem.sides[entry as usize].shaped.load(Ordering::Relaxed);
    mem.config[0].shaper_frames.store(8, Ordering::Relaxed);
    world.publish(tunnel(7), 1);
    let first = world.entry();
    (mem.sides[first as usize].shaped).store(2, Ordering::Relaxed);
    world.publish(tunnel(8), 2);
    let second = world.entry();
    assert_ne!(first, second);
    // Another one takes its place in turn.
    world.publish(tunnel(9), 3);
    let third = world.entry();
    assert!(third != first && third != second);
    for left in [2, 1] {
        (mem.sides[first as usize].shaped).store(left, Ordering::Relaxed);
        world.tables.maintain();
        assert_eq!([first, second, third].map(shaped), [left, 1, 1]);
    }
    (mem.sides[first as usize].shaped).store(0, Ordering::Relaxed);
    world.settle();
    assert_eq!([first, second, third].map(shaped), [0; 3]);

    // Without a keeper of frames nothing is waited for.
    mem.config[0].shaper_frames.store(0, Ordering::Relaxed);
    (mem.sides[third as usize].shaped).store(2, Ordering::Relaxed);
    world.publish(tunnel(10), 4);
    world.settle();
    assert_eq!(shaped(world.entry()), 0);
}
