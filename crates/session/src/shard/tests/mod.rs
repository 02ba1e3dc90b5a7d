//! Sessions under requests as they come over the wire.

mod adopt;
mod applications;
mod cases;
mod changes;
mod duplicates;
mod endpoints;
mod families;
mod filters;
mod framed;
mod meaning;
mod networks;
mod policies;
mod predefined;
mod properties;
mod qers;
pub(crate) mod records;
mod refusals;
mod relay;
mod size;
mod udp;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use compiled::{
    Action, BufferLimits, Compiled, Counters, Direction, EndedTunnel, Entry, Holding, Key, Limit,
    NoRoom, PdrId, PredefinedId, Resource, Tables,
};
use pfcp::ie::{
    ApplyAction, FSeid, FTeid, Gate, GateStatus, Mbr, NodeId, OuterHeader, OuterHeaderCreation,
    SdfFilter, UeIpAddress,
};
use pfcp::message::{SessionEstablishmentRequest, SessionModificationRequest};
use pfcp::{IeType, MessageType, Writer};

use crate::base::ids::PeerId;
use crate::base::refusal::Refusal;
use crate::base::slab::Place;
use crate::base::time::Time;
use crate::rules::config::{Config, Limits, NetworkInstance};
use crate::shard::record::{self, Record};
use crate::shard::resources::Created;
use crate::shard::sessions::Sessions;

pub(crate) const N3: Ipv4Addr = Ipv4Addr::new(10, 3, 0, 1);
pub(crate) const GNB: Ipv4Addr = Ipv4Addr::new(10, 3, 1, 1);
pub(crate) const UE: Ipv4Addr = Ipv4Addr::new(10, 60, 0, 9);
pub(crate) const UE6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x60, 7, 0, 0, 0, 1);

/// Tables that remember what they hold, and have room for so many entries.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    pub(crate) live: BTreeMap<u64, Compiled>,
    pub(crate) published: u64,
    pub(crate) room: Option<usize>,
    /// Packets of each PDR.
    pub(crate) traffic: u64,
    /// TEIDs that are direct, if not 64.
    pub(crate) teids: Option<u32>,
    /// Counters are those of packets, and no others.
    pub(crate) exact: bool,
    /// Alarms that have gone off.
    pub(crate) crossings: u64,
    /// Packets that passed, by handle and PDR.
    pub(crate) counted: BTreeMap<(u64, PdrId), Counters>,
    /// Last counts of PDRs that the last change took out.
    pub(crate) parted: BTreeMap<PdrId, Counters>,
    /// Packets that pass while a PDR goes.
    pub(crate) late: Counters,
    /// Alarms that are set, by handle.
    pub(crate) armed: BTreeMap<(u64, PdrId), u64>,
    /// The same of what QoS enforcement drops.
    pub(crate) qos_armed: BTreeMap<(u64, PdrId), u64>,
    /// QoS enforcement drops whatever comes.
    pub(crate) beyond_mbr: bool,
    pub(crate) ended: Vec<EndedTunnel>,
    /// Packets of each PDR that wait.
    pub(crate) held: u64,
    pub(crate) limited: Vec<(u64, PdrId, BufferLimits)>,
    pub(crate) discarded: Vec<u64>,
    /// Sessions whose packets are told of anew.
    pub(crate) told_of: Vec<u64>,
    /// Largest uplink guarantee of one meter, in bit/s; `None`: any.
    pub(crate) guaranteed_at_most: Option<u64>,
    /// Without a route.
    pub(crate) unreachable: Vec<IpAddr>,
}

#[derive(Debug, Default)]
pub(crate) struct Handle(Option<u64>);

impl Recorder {
    /// A packet of a PDR of the session with this SEID. Whether an alarm goes off.
    pub(crate) fn packet(&mut self, seid: u64, pdr: u16, bytes: u64) -> bool {
        let pdr = PdrId(pdr);
        let only = self.live.len() == 1;
        let is_it = |session: &Compiled| only || session.seid == seid;
        let mut live = self.live.iter().filter(|(_, session)| is_it(session));
        let Some((&number, session)) = live.next() else {
            return false;
        };
        let Some(entry) = session.entries.iter().find(|entry| entry.pdr == pdr) else {
            return false;
        };
        let counters = self.counted.entry((number, pdr)).or_default();
        let forwards = matches!(entry.action, Action::Route { .. } | Action::Tunnel { .. });
        if entry.action == Action::GateClosed || (forwards && self.beyond_mbr) {
            counters.drops += 1;
            counters.qos_packets += 1;
            counters.qos_bytes += bytes;
            let alarm = self.qos_armed.get(&(number, pdr)).copied();
            let goes_off = alarm.is_some_and(|alarm| counters.qos_bytes >= alarm);
            if goes_off {
                self.qos_armed
                    .insert((number, pdr), counters.qos_bytes + (64 << 10));
                self.crossings += 1;
            }
            return goes_off;
        }
        if !forwards {
            counters.drops += 1;
            return false;
        }
        counters.packets += 1;
        counters.bytes += bytes;
        let alarm = self.armed.get(&(number, pdr)).copied();
        let goes_off = alarm.is_some_and(|alarm| counters.bytes >= alarm);
        if goes_off {
            // As the data path does it, which does not rely on being told anew.
            self.armed
                .insert((number, pdr), counters.bytes + (64 << 10));
            self.crossings += 1;
        }
        goes_off
    }

    pub(crate) fn keys(&self) -> Vec<Key> {
        self.live
            .values()
            .flat_map(|c| c.keys.iter().map(|(key, _)| *key))
            .collect()
    }
}

impl Tables for Recorder {
    type Handle = Handle;

    fn direct_teids(&self) -> u32 {
        self.teids.unwrap_or(64)
    }

    fn reaches(&self, peer: IpAddr) -> bool {
        !self.unreachable.contains(&peer)
    }

    fn publish(&mut self, handle: &mut Handle, new: &Compiled) -> Result<(), NoRoom> {
        let others = self
            .live
            .iter()
            .filter(|(number, _)| handle.0 != Some(**number));
        let entries = others.map(|(_, c)| c.entries.len()).sum::<usize>() + new.entries.len();
        if self.room.is_some_and(|room| entries > room) {
            return Err(NoRoom::of("entries"));
        }
        let guarantees = new
            .meters
            .iter()
            .filter(|m| m.direction == Direction::Uplink);
        for of in guarantees {
            if let Limit::Share(share) = of.limit
                && let (Some(rate), Some(most)) = (share.guaranteed, self.guaranteed_at_most)
                && rate.bps > most
            {
                let qer = Some(of.qer);
                return Err(NoRoom {
                    qer,
                    ..NoRoom::of("capacities")
                });
            }
        }
        let number = *handle.0.get_or_insert_with(|| {
            self.published += 1;
            self.published
        });
        let has = |pdr: PdrId| new.entries.iter().any(|entry| entry.pdr == pdr);
        self.parted.clear();
        for (&(_, pdr), counters) in self.counted.range((number, PdrId(0))..) {
            let late = self.late;
            self.parted.insert(pdr, counters.plus(late));
        }
        self.counted
            .retain(|(of, pdr), _| *of != number || has(*pdr));
        for armed in [&mut self.armed, &mut self.qos_armed] {
            armed.retain(|(of, pdr), _| *of != number || has(*pdr));
        }
        let more = Vec::new();
        self.live.insert(
            number,
            Compiled {
                more,
                ..new.clone()
            },
        );
        Ok(())
    }

    fn room(&self, resource: Resource) -> Option<u64> {
        let room = self.room.filter(|_| resource == Resource::Entries);
        room.map(|room| room as u64)
    }

    fn holds(&self, handle: &Handle) -> Holding {
        let mut held = Holding::default();
        if let Some(compiled) = handle.0.and_then(|number| self.live.get(&number)) {
            held.add(Resource::Entries, compiled.entries.len() as u64);
            held.add(Resource::Rules, compiled.filters.len() as u64);
            held.add(Resource::Meters, compiled.meters.len() as u64);
        }
        held
    }

    fn withdraw(&mut self, handle: &mut Handle) {
        if let Some(number) = handle.0.take() {
            self.live.remove(&number);
            self.parted.clear();
            for (&(_, pdr), counters) in self.counted.range((number, PdrId(0))..) {
                self.parted.insert(pdr, counters.plus(self.late));
            }
            self.counted.retain(|(of, _), _| *of != number);
            for armed in [&mut self.armed, &mut self.qos_armed] {
                armed.retain(|(of, _), _| *of != number);
            }
        }
    }

    fn arm(&mut self, handle: &Handle, pdr: PdrId, alarm: Option<u64>) {
        let number = handle.0.unwrap_or(0);
        match alarm {
            Some(alarm) => self.armed.insert((number, pdr), alarm),
            None => self.armed.remove(&(number, pdr)),
        };
    }

    fn arm_qos(&mut self, handle: &Handle, pdr: PdrId, alarm: Option<u64>) {
        let number = handle.0.unwrap_or(0);
        match alarm {
            Some(alarm) => self.qos_armed.insert((number, pdr), alarm),
            None => self.qos_armed.remove(&(number, pdr)),
        };
    }

    fn parted(&self, pdr: PdrId) -> Option<Counters> {
        self.parted.get(&pdr).copied()
    }

    fn end_tunnel(&mut self, tunnel: &EndedTunnel) {
        self.ended.push(*tunnel);
    }

    fn buffered(&self, _: &Handle, _: PdrId) -> u64 {
        self.held
    }

    fn limit_buffered(&mut self, seid: u64, pdr: PdrId, limits: BufferLimits) {
        self.limited.push((seid, pdr, limits));
    }

    fn discard_buffered(&mut self, seid: u64) {
        self.discarded.push(seid);
    }

    fn tell_of_buffered(&mut self, seid: u64) {
        self.told_of.push(seid);
    }

    fn counters(&self, handle: &Handle, pdr: PdrId) -> Counters {
        let known = handle.0.and_then(|number| self.live.get(&number));
        let has = known.is_some_and(|c| c.entries.iter().any(|e| e.pdr == pdr));
        let key = (handle.0.unwrap_or(0), pdr);
        let counted = self.counted.get(&key).copied().unwrap_or_default();
        Counters {
            packets: u64::from(has && !self.exact) + self.traffic + counted.packets,
            ..counted
        }
    }

    fn counters_of(&self, handle: &Handle, pdr: PdrId, rule: PredefinedId) -> Counters {
        let known = handle.0.and_then(|number| self.live.get(&number));
        let is_it = |e: &Entry| (e.pdr, e.predefined) == (pdr, Some(rule));
        Counters {
            packets: u64::from(known.is_some_and(|c| c.entries.iter().any(is_it))),
            ..Counters::default()
        }
    }
}

pub(crate) fn config() -> Config {
    Config {
        n3: vec![N3.into()],
        network_instances: vec![
            NetworkInstance {
                name: "internet".into(),
                pools4: vec!["10.60.0.0/28".parse().unwrap()],
                pools6: vec!["2001:db8:60::/60".parse().unwrap()],
                ..NetworkInstance::default()
            },
            NetworkInstance {
                name: "ims".into(),
                ..NetworkInstance::default()
            },
        ],
        limits: Limits {
            sessions: 20,
            ..Limits::default()
        },
        ..Config::default()
    }
}

pub(crate) struct World {
    pub(crate) sessions: Sessions<Recorder>,
    pub(crate) tables: Recorder,
    pub(crate) now: Time,
    /// Each session that is established goes elsewhere at once, and returns: what a record lacks, some test misses.
    pub(crate) moves: bool,
}

pub(crate) type Answer = Result<(u64, Vec<Created>), Refusal>;

impl World {
    pub(crate) fn new() -> Self {
        Self::with(&config())
    }

    pub(crate) fn with(config: &Config) -> Self {
        let tables = Recorder::default();
        let sessions = Sessions::new(config, 42, tables.direct_teids());
        Self {
            sessions,
            tables,
            now: Time(1),
            moves: true,
        }
    }

    pub(crate) fn establish(&mut self, write: impl Fn(&mut Writer<'_>)) -> Answer {
        self.establish_from(PeerId(1), write)
    }

    pub(crate) fn establish_from(
        &mut self,
        peer: PeerId,
        write: impl Fn(&mut Writer<'_>),
    ) -> Answer {
        let datagram = message(MessageType::SESSION_ESTABLISHMENT_REQUEST, |w| {
            w.node_id(NodeId::Ipv4(Ipv4Addr::new(10, 100, 0, 2)));
            w.f_seid(FSeid {
                seid: 77,
                ipv4: Some(Ipv4Addr::new(10, 100, 0, 2)),
                ipv6: None,
            });
            write(w);
        });
        let message = pfcp::decode(&datagram).unwrap();
        let request = SessionEstablishmentRequest::decode(&message)?;
        let done = self
            .sessions
            .establish(self.now, peer, &request, &mut self.tables)?;
        let created = self.sessions.created().to_vec();
        if self.moves {
            self.go_and_return(done, peer);
        }
        Ok((done, created))
    }

    /// A session is released, written, read and adopted.
    pub(crate) fn go_and_return(&mut self, seid: u64, peer: PeerId) {
        let record = self.release(seid);
        let adopted = self
            .sessions
            .adopt(self.now, peer, record, &mut self.tables);
        assert_eq!(adopted, Ok(seid));
    }

    pub(crate) fn release(&mut self, seid: u64) -> Record {
        let sessions = &mut self.sessions;
        let context = sessions.release(self.now, seid, &mut self.tables).unwrap();
        assert_eq!(sessions.context(seid), None);
        let octets = record::write(seid, &records::SMF, &context, &sessions.site);
        Record::read(&octets).unwrap()
    }

    pub(crate) fn modify(&mut self, seid: u64, write: impl Fn(&mut Writer<'_>)) -> Answer {
        let datagram = message(MessageType::SESSION_MODIFICATION_REQUEST, write);
        let message = pfcp::decode(&datagram).unwrap();
        let request = SessionModificationRequest::decode(&message)?;
        let place = self.place_of(seid)?;
        let done = self
            .sessions
            .modify(self.now, place, seid, &request, &mut self.tables)?;
        Ok((done, self.sessions.created().to_vec()))
    }

    pub(crate) fn delete(&mut self, seid: u64) -> Result<u64, Refusal> {
        let place = self.place_of(seid)?;
        let done = self
            .sessions
            .delete(self.now, place, seid, &mut self.tables)?;
        Ok(done.cp_seid)
    }

    fn place_of(&self, seid: u64) -> Result<Place, Refusal> {
        let place = self.sessions.owned(PeerId(1), seid);
        place.ok_or(pfcp::Cause::SESSION_CONTEXT_NOT_FOUND.into())
    }

    /// The tables of the only session.
    pub(crate) fn only(&self) -> &Compiled {
        assert_eq!(self.tables.live.len(), 1);
        self.tables.live.values().next().unwrap()
    }

    /// Everything that an observer can see.
    pub(crate) fn snapshot(&self) -> String {
        let seids: Vec<u64> = self.sessions.summaries(None).map(|s| s.seid).collect();
        let views: Vec<_> = seids
            .iter()
            .map(|&s| self.sessions.view(s, &self.tables))
            .collect();
        format!(
            "{:?} {views:?} {:?}",
            self.tables.live,
            self.sessions.fill()
        )
    }
}

pub(crate) fn message(kind: MessageType, write: impl Fn(&mut Writer<'_>)) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out, kind, Some(0), 1);
    write(&mut writer);
    assert!(writer.finish() > 0);
    out
}

/// A PDR under construction; what is not set is left out.
#[derive(Clone, Debug, Default)]
pub(crate) struct PdrIe {
    pub(crate) id: u16,
    pub(crate) precedence: Option<u32>,
    pub(crate) source: u8,
    pub(crate) f_teid: Option<FTeid>,
    pub(crate) ni: Option<&'static str>,
    pub(crate) ue: Option<UeIpAddress>,
    pub(crate) qfi: Option<u8>,
    pub(crate) filters: Vec<SdfFilter<'static>>,
    pub(crate) removal: Option<u8>,
    pub(crate) far: Option<u32>,
    pub(crate) qers: Vec<u32>,
    pub(crate) urrs: Vec<u32>,
    pub(crate) extra: Vec<(IeType, Vec<u8>)>,
    pub(crate) extra_pdi: Vec<(IeType, Vec<u8>)>,
}

pub(crate) const CHOOSE: FTeid = FTeid::Choose {
    ipv4: true,
    ipv6: false,
    choose_id: None,
};

pub(crate) fn given(teid: u32) -> FTeid {
    FTeid::Given {
        teid,
        ipv4: Some(N3),
        ipv6: None,
    }
}

pub(crate) fn ue4(addr: Ipv4Addr) -> UeIpAddress {
    UeIpAddress {
        ipv4: Some(addr),
        ..UeIpAddress::default()
    }
}

pub(crate) fn ue6(addr: Ipv6Addr) -> UeIpAddress {
    UeIpAddress {
        ipv6: Some(addr),
        ..UeIpAddress::default()
    }
}

pub(crate) fn choose4() -> UeIpAddress {
    UeIpAddress {
        choose_ipv4: true,
        ..UeIpAddress::default()
    }
}

pub(crate) fn flow(text: &'static str) -> SdfFilter<'static> {
    SdfFilter {
        flow_description: Some(text),
        ..SdfFilter::default()
    }
}

impl PdrIe {
    /// PDR 1: uplink by a TEID of our choice, FAR 1.
    pub(crate) fn uplink() -> Self {
        Self {
            id: 1,
            precedence: Some(100),
            f_teid: Some(CHOOSE),
            ue: Some(ue4(UE)),
            removal: Some(0),
            far: Some(1),
            ..Self::default()
        }
    }

    /// PDR 2: downlink by the UE's address, FAR 2.
    pub(crate) fn downlink() -> Self {
        Self {
            id: 2,
            precedence: Some(100),
            source: 1,
            ni: Some("internet"),
            ue: Some(UeIpAddress {
                destination: true,
                ..ue4(UE)
            }),
            far: Some(2),
            ..Self::default()
        }
    }

    pub(crate) fn create(&self, w: &mut Writer<'_>) {
        w.grouped(IeType::CREATE_PDR, |w| self.write(w, true));
    }

    pub(crate) fn update(&self, w: &mut Writer<'_>, with_pdi: bool) {
        w.grouped(IeType::UPDATE_PDR, |w| self.write(w, with_pdi));
    }

    fn write(&self, w: &mut Writer<'_>, with_pdi: bool) {
        w.pdr_id(self.id);
        if let Some(precedence) = self.precedence {
            w.put(IeType::PRECEDENCE, precedence);
        }
        if with_pdi {
            w.grouped(IeType::PDI, |w| self.write_pdi(w));
        }
        if let Some(removal) = self.removal {
            w.put(IeType::OUTER_HEADER_REMOVAL, removal);
        }
        if let Some(far) = self.far {
            w.put(IeType::FAR_ID, far);
        }
        self.urrs.iter().for_each(|urr| w.put(IeType::URR_ID, *urr));
        self.qers.iter().for_each(|qer| w.put(IeType::QER_ID, *qer));
        self.extra.iter().for_each(|(ie, value)| w.ie(*ie, value));
    }

    fn write_pdi(&self, w: &mut Writer<'_>) {
        w.put(IeType::SOURCE_INTERFACE, self.source);
        if let Some(f_teid) = self.f_teid {
            w.f_teid(f_teid);
        }
        if let Some(ni) = self.ni {
            w.network_instance(ni);
        }
        if let Some(ue) = self.ue {
            w.ue_ip_address(ue);
        }
        if let Some(qfi) = self.qfi {
            w.put(IeType::QFI, qfi);
        }
        self.filters
            .iter()
            .for_each(|filter| w.put(IeType::SDF_FILTER, *filter));
        self.extra_pdi
            .iter()
            .for_each(|(ie, value)| w.ie(*ie, value));
    }
}

/// FAR towards N6.
pub(crate) fn far_to_core(w: &mut Writer<'_>, id: u32) {
    w.grouped(IeType::CREATE_FAR, |w| {
        w.put(IeType::FAR_ID, id);
        w.put(IeType::APPLY_ACTION, ApplyAction::FORW);
        w.grouped(IeType::FORWARDING_PARAMETERS, |w| {
            w.put(IeType::DESTINATION_INTERFACE, 1u8);
            w.network_instance("internet");
        });
    });
}

pub(crate) fn tunnel(teid: u32) -> OuterHeaderCreation {
    OuterHeaderCreation {
        description: OuterHeader::GTPU_UDP_IPV4,
        teid: Some(teid),
        ipv4: Some(GNB),
        ipv6: None,
        port: None,
        c_tag: None,
        s_tag: None,
    }
}

/// FAR towards N3.
pub(crate) fn far_to_access(w: &mut Writer<'_>, id: u32, teid: u32) {
    w.grouped(IeType::CREATE_FAR, |w| {
        w.put(IeType::FAR_ID, id);
        w.put(IeType::APPLY_ACTION, ApplyAction::FORW);
        w.grouped(IeType::FORWARDING_PARAMETERS, |w| {
            w.put(IeType::DESTINATION_INTERFACE, 0u8);
            w.put(IeType::OUTER_HEADER_CREATION, tunnel(teid));
        });
    });
}

/// FAR with another action and nothing else.
pub(crate) fn far_of(w: &mut Writer<'_>, id: u32, action: ApplyAction) {
    w.grouped(IeType::CREATE_FAR, |w| {
        w.put(IeType::FAR_ID, id);
        w.put(IeType::APPLY_ACTION, action);
    });
}

pub(crate) fn qer(w: &mut Writer<'_>, id: u32, mbr_kbps: Option<u64>) {
    w.grouped(IeType::CREATE_QER, |w| {
        w.put(IeType::QER_ID, id);
        w.put(
            IeType::GATE_STATUS,
            GateStatus {
                uplink: Gate::Open,
                downlink: Gate::Open,
            },
        );
        if let Some(kbps) = mbr_kbps {
            w.put(
                IeType::MBR,
                Mbr {
                    uplink_kbps: kbps,
                    downlink_kbps: kbps,
                },
            );
        }
    });
}

pub(crate) fn remove(w: &mut Writer<'_>, kind: IeType, id_ie: IeType, id: u32) {
    w.grouped(kind, |w| match id_ie {
        IeType::PDR_ID => w.pdr_id(id as u16),
        IeType::BAR_ID | IeType::TRAFFIC_ENDPOINT_ID => w.put(id_ie, id as u8),
        _ => w.put(id_ie, id),
    });
}

/// The ordinary session: 2 PDR, 2 FAR, 1 QER.
pub(crate) fn ordinary(w: &mut Writer<'_>) {
    ordinary_with(w, PdrIe::uplink(), PdrIe::downlink());
}

pub(crate) fn ordinary_with(w: &mut Writer<'_>, mut uplink: PdrIe, mut downlink: PdrIe) {
    uplink.qers = vec![1];
    downlink.qers = vec![1];
    uplink.create(w);
    downlink.create(w);
    far_to_core(w, 1);
    far_to_access(w, 2, 0x5000);
    qer(w, 1, Some(1000));
}
