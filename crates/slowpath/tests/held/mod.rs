//! Buffered packets, among changes of rules: what a fuzz target and the replay of its corpus share.

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use compiled::{Action, Compiled, Direction, Key, NiId, PdrId, Select, Tables as _};
use slowpath::{BufferBounds, BufferByHand, Setup};
use tables::{Handle, Layout, Options, PortConfig, Roles, Tables};
use testkit::sessions::{entry, tunnel};

const N3: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 3, 0, 1));
const UE: Ipv4Addr = Ipv4Addr::new(10, 60, 0, 1);
const BOUNDS: BufferBounds = BufferBounds {
    bytes: 1 << 16,
    packets: 12,
    packets_per_session: 8,
    age: Duration::from_secs(3600),
};
const EVENT_HELD: u32 = 6;

struct World {
    tables: Tables,
    handle: Handle,
    buffer: BufferByHand,
}

impl World {
    fn new() -> Self {
        let port = |name: &str, n3| PortConfig {
            name: name.to_owned(),
            roles: Roles { n3, n6: !n3 },
            ni: NiId(0),
            ..PortConfig::default()
        };
        let ports = [port("n3", true), port("n6", false)];
        let layout = Layout::for_sessions(64, 1, 1);
        let mut tables = Tables::host(&layout, &ports, &Options::default()).expect("tables");
        tables.set_local(&[N3]).expect("an address of our own");
        let setup = Setup::new(&mut tables).expect("commands");
        let buffer = setup.buffer_by_hand(&tables, BOUNDS).expect("memory");
        let handle = Handle::default();
        Self {
            tables,
            handle,
            buffer,
        }
    }

    /// One PDR each way.
    fn publish(&mut self, uplink: Action, downlink: Action) {
        let teid = Key::direct(1);
        let ue = Key::Ue4 {
            ni: NiId(0),
            addr: UE,
        };
        let session = Compiled {
            seid: 7,
            entries: vec![
                entry(PdrId(1), Direction::Uplink, uplink),
                entry(PdrId(2), Direction::Downlink, downlink),
            ],
            keys: vec![(teid, Select::One(0)), (ue, Select::One(1))],
            ..Compiled::default()
        };
        (self.tables.publish(&mut self.handle, &session)).expect("room for a session");
    }

    /// A frame through the pipeline; what it hands over is buffered.
    fn run(&mut self, port: usize, frame: &[u8]) {
        let run = self.tables.run(port, frame, 1_000_000).expect("the host");
        if run.event.starts_with(&EVENT_HELD.to_ne_bytes()) {
            self.buffer.take(&run.event);
        }
    }

    fn settle(&mut self) {
        let left = self.buffer.release();
        assert!(left.len() <= 64 * 1024, "{} packets of a few", left.len());
        let counts = self.buffer.counts();
        let gone = counts.released + counts.lost;
        assert_eq!(counts.taken, gone + counts.packets, "{counts:?}");
        assert!(counts.packets <= BOUNDS.packets as u64, "{counts:?}");
        assert!(counts.bytes <= BOUNDS.bytes as u64, "{counts:?}");
        self.tables.maintain();
    }
}

/// A record of the data path with any data in it.
fn record(port: u8, data: &[u8]) -> Vec<u8> {
    let words = [EVENT_HELD, 0, data.len() as u32, port.into()];
    let mut record: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    record.extend(data);
    record
}

thread_local! {
    static WORLD: RefCell<World> = RefCell::new(World::new());
}

/// Steps: a change of rules, or a length and a frame or record of that length.
pub(crate) fn run(input: &[u8]) {
    WORLD.with_borrow_mut(|world| {
        steps(world, input);
        world.tables.withdraw(&mut world.handle);
        world.settle();
        // A record of an entry that took none of its packets belongs to nobody who could be gone.
        if world.buffer.counts().packets > 0 {
            *world = World::new();
        }
    });
}

fn steps(world: &mut World, input: &[u8]) {
    let tunnel = tunnel(7);
    let route = Action::Route { ni: NiId(0) };
    world.publish(route, Action::Buffer);
    let mut rest = input;
    while let [step, tail @ ..] = rest {
        rest = tail;
        match step {
            0 => world.publish(route, Action::Buffer),
            1 => world.publish(route, tunnel),
            2 => world.publish(Action::Buffer, tunnel),
            3 => world.publish(route, Action::Drop),
            4 => world.tables.withdraw(&mut world.handle),
            5 => world.buffer.take(tail),
            _ => {
                let [a, b, tail @ ..] = tail else { break };
                let len = usize::from(u16::from_le_bytes([*a, *b])).min(tail.len());
                let (octets, tail) = tail.split_at(len);
                rest = tail;
                match step & 3 {
                    0 => world.run(1, octets),
                    1 => world.run(0, octets),
                    _ => world.buffer.take(&record(step >> 7, octets)),
                }
            }
        }
        world.settle();
    }
}
