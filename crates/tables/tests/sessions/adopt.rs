//! A session that leaves one process and comes to another one, whose configuration has its network instances in another
//! order: its packets meet the same there.
use std::net::{Ipv4Addr, SocketAddr};

use nexthop::NextHopTables;
use session::config::{Config, NetworkInstance};
use session::{Core, Outbox, Record, Time};
use tables::testing::{furnish, hop, ports, resolve_peers};
use tables::{Layout, Options, Tables, Verdict};
use testkit::packets::{self, N3, ethernet, gpdu, ipv4};

use crate::wire::{find, group, ie, message};

const UE: Ipv4Addr = Ipv4Addr::new(10, 60, 0, 9);
const SERVER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 7);
const SMF: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(10, 100, 0, 2)), 8805);

/// PDR 1 up, PDR 2 down with QFI 9, both of the network instance `b`.
fn establishment() -> Vec<u8> {
    let (pdr, far, qer) = (56, 108, 109);
    let id = |kind, id: u32| ie(kind, &id.to_be_bytes());
    let ni = || ie(22, b"\x01b");
    let ue = |flags: u8| ie(93, &[&[flags][..], &UE.octets()].concat());
    let tunnel = [&[1, 0, 0, 0, 0x50, 1][..], &packets::GNB.octets()].concat();
    let ies = [
        ie(60, &[0, 10, 100, 0, 2]),
        ie(57, &[2, 0, 0, 0, 0, 0, 0, 0, 77, 10, 100, 0, 2]),
        group(
            1,
            &[
                ie(pdr, &[0, 1]),
                id(29, 100),
                // The F-TEID is for us to choose.
                group(2, &[ie(20, &[0]), ie(21, &[0x05]), ue(2)]),
                ie(95, &[0]),
                id(far, 1),
                id(qer, 1),
            ],
        ),
        group(
            1,
            &[
                ie(pdr, &[0, 2]),
                id(29, 100),
                group(2, &[ie(20, &[1]), ni(), ue(6)]),
                id(far, 2),
                id(qer, 1),
            ],
        ),
        group(
            3,
            &[id(far, 1), ie(44, &[2]), group(4, &[ie(42, &[1]), ni()])],
        ),
        group(
            3,
            &[
                id(far, 2),
                ie(44, &[2]),
                group(4, &[ie(42, &[0]), ie(84, &tunnel)]),
            ],
        ),
        group(7, &[id(qer, 1), ie(25, &[0]), ie(124, &[9])]),
    ];
    message(50, Some(0), &ies)
}

struct Upf {
    core: Core<Tables>,
    out: Outbox,
    /// Port of the network instance `b`.
    n6: usize,
}

impl Upf {
    fn new(network_instances: [&str; 2]) -> Self {
        let named = |name: &&str| NetworkInstance {
            name: (*name).into(),
            ..NetworkInstance::default()
        };
        let config = Config {
            n3: vec![N3.into()],
            network_instances: network_instances.iter().map(named).collect(),
            seed: 5,
            ..Config::default()
        };
        let layout = Layout::for_sessions(64, 2, 4);
        let mut tables = Tables::host(&layout, &ports(), &Options::default()).unwrap();
        furnish(&mut tables);
        let mut upf = Self {
            core: Core::new(config, 1, tables),
            out: Outbox::new(),
            n6: 1 + network_instances
                .iter()
                .position(|name| *name == "b")
                .unwrap(),
        };
        let setup = [ie(60, &[0, 10, 100, 0, 2]), ie(96, &[1, 2, 3, 4])];
        upf.ask(&message(5, None, &setup));
        upf
    }

    /// IEs of the accepted answer.
    fn ask(&mut self, request: &[u8]) -> Vec<u8> {
        self.out.clear();
        self.core.receive(Time(1), SMF, request, &mut self.out);
        let (_, answer) = self.out.iter().next().unwrap();
        let header = if answer[0] & 1 == 1 { 16 } else { 8 };
        let ies = answer[header..].to_vec();
        assert_eq!(find(19, &ies), [[1]]);
        ies
    }

    fn adopt(&mut self, record: Record) -> u64 {
        let seid = self.core.adopt(Time(1), record, &mut self.out).unwrap();
        self.resolve();
        seid
    }

    fn resolve(&mut self) {
        let tables = self.core.tables_mut();
        let n3 = tables.alloc_nexthop(&hop(0)).unwrap();
        resolve_peers(tables, n3);
    }

    /// Frames that a packet each way leaves as, behind their Ethernet headers; `None`: it is not forwarded, or elsewhere.
    fn packets(&mut self, teid: u32) -> [Option<Vec<u8>>; 2] {
        let payload = [0; 16];
        let packet = |src, dst| [&ipv4(src, dst, 17, 64, payload.len())[..], &payload].concat();
        let (up, down) = (packet(UE, SERVER), packet(SERVER, UE));
        let n6 = self.n6;
        let tables = self.core.tables_mut();
        let run = |port: usize, frame: &[u8], to: usize| {
            let run = tables.run(port, frame, 1_000_000_000).unwrap();
            let forwarded = run.verdict == Verdict::Redirect(to as u32);
            forwarded.then(|| run.frame[14..].to_vec())
        };
        [
            run(0, &gpdu(teid, Some(9), &up), n6),
            run(n6, &ethernet(&down), 0),
        ]
    }
}

#[test]
fn packets_of_a_session_that_moves_meet_the_same() {
    let mut here = Upf::new(["a", "b"]);
    let answer = here.ask(&establishment());
    here.resolve();
    let seid = u64::from_be_bytes(find(57, &answer)[0][1..9].try_into().unwrap());
    let created = find(8, &answer).concat();
    let teid = u32::from_be_bytes(find(21, &created)[0][1..5].try_into().unwrap());
    let before = here.packets(teid);
    assert!(before.iter().all(Option::is_some), "{before:?}");

    // Out and in again.
    let record = here.core.release(Time(1), seid).unwrap();
    assert_eq!(here.packets(teid), [None, None]);
    let record = Record::read(&record.write()).unwrap();
    assert_eq!(here.adopt(record), seid);
    assert_eq!(here.packets(teid), before);

    // To another process, where `b` is the first network instance, with another N6 port.
    let record = here.core.release(Time(1), seid).unwrap();
    let mut there = Upf::new(["b", "a"]);
    assert_eq!(there.packets(teid), [None, None]);
    assert_eq!(there.adopt(Record::read(&record.write()).unwrap()), seid);
    assert_eq!(there.n6, 1);
    assert_eq!(there.packets(teid), before);
    let counted = there.core.session(seid).unwrap().pdrs;
    let packets: Vec<u64> = counted.iter().map(|pdr| pdr.counters.packets).collect();
    assert_eq!(packets, [1, 1], "they begin anew");
}
