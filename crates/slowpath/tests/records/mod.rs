//! Any record of the event ring, as the data path hands them up: what a fuzz target and the replay of its corpus share.

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr};

use compiled::{Compiled, Direction, Entry, Key, NiId, PdrId, Relay, Select, Tables as _};
use slowpath::{Finisher, Setup};
use tables::{Handle, Layout, Options, PortConfig, Roles, Tables};
use testkit::sessions;

const N3: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 3, 0, 1));

fn entry(pdr: u16, direction: Direction) -> Entry {
    Entry {
        relay: Some(Relay::default()),
        ..sessions::entry(PdrId(pdr), direction, sessions::tunnel(7))
    }
}

/// Two ports, and a session between two UPFs: TEID 1 leads one way, TEID 2 the other.
fn finisher() -> (Tables, Finisher) {
    let port = |name: &str, n3| PortConfig {
        name: name.to_owned(),
        roles: Roles { n3, n6: !n3 },
        ni: NiId(0),
        ..PortConfig::default()
    };
    let ports = [port("n3", true), port("n6", false)];
    let layout = Layout::for_sessions(64, 1, 1);
    let mut tables = Tables::host(&layout, &ports, &Options::default()).expect("tables");
    let setup = Setup::new(&mut tables).expect("commands");
    tables.set_local(&[N3]).expect("an address of our own");
    let key = |teid, entry| (Key::direct(teid), Select::One(entry));
    let session = Compiled {
        entries: vec![entry(1, Direction::Uplink), entry(2, Direction::Downlink)],
        keys: vec![key(1, 0), key(2, 1)],
        ..Compiled::default()
    };
    let mut handle = Handle::default();
    tables.publish(&mut handle, &session).expect("a session");
    let finisher = setup.finisher(&tables);
    (tables, finisher)
}

thread_local! {
    static FINISHER: RefCell<(Tables, Finisher)> = RefCell::new(finisher());
}

/// The record: 16 octets of header, of which the length is put right, and data.
pub(crate) fn run(input: &[u8]) {
    let mut record = input.to_vec();
    if let (Some(length), Some(data)) = (record.get_mut(8..12), input.len().checked_sub(16)) {
        length.copy_from_slice(&(data as u32).to_ne_bytes());
    }
    for record in [input, &record] {
        FINISHER.with_borrow_mut(|(_, finisher)| {
            let mut out = Vec::new();
            let _ = finisher.finish(record, 1_000_000, &mut out);
            // A packet of 64 KiB in fragments of eight octets, each behind its headers.
            assert!(out.len() <= 8192, "{} packets of one", out.len());
            assert!(finisher.messages().count() <= 1);
        });
    }
}
