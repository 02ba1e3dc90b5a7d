//! The one fake of [`compiled::Tables`].

use std::collections::BTreeMap;
use std::hint::black_box;
use std::net::IpAddr;

use compiled::{
    Action, BufferLimits, Compiled, CountedAt, Counters, Direction, EndedTunnel, Entry, Holding,
    Key, Limit, NoRoom, PdrId, PredefinedId, Resource, Tables,
};

/// Tables that remember what they hold, have as much room as a test says, and count the packets that a test sends.
#[derive(Debug, Default)]
pub struct FakeTables {
    /// Sessions that packets can meet, by number of their first publication.
    pub live: BTreeMap<u64, Compiled>,
    /// How often each was published.
    pub publications: BTreeMap<u64, usize>,
    published: u64,
    forgets: bool,
    /// Entries that there is room for; `None`: for any number.
    pub room: Option<usize>,
    /// Largest uplink guarantee of one meter, in bit/s; `None`: any.
    pub guaranteed_at_most: Option<u64>,
    /// TEIDs that are direct, if not 64.
    teids: Option<u32>,
    /// Addresses without a route.
    pub unreachable: Vec<IpAddr>,
    /// Packets of each PDR, in the tables or not, beside [`Self::counted`].
    pub traffic: Counters,
    /// Packets that passed, by handle and PDR.
    pub counted: BTreeMap<(u64, PdrId), Counters>,
    /// Each PDR in the tables has not one packet more than was sent.
    pub exact: bool,
    /// Last counts of PDRs that the last change took out.
    pub parted: BTreeMap<PdrId, Counters>,
    /// Packets that pass while a PDR goes.
    pub late: Counters,
    /// QoS enforcement drops whatever comes.
    pub beyond_mbr: bool,
    /// Alarms that are set, by handle.
    pub armed: BTreeMap<(u64, PdrId), u64>,
    /// The same of what QoS enforcement drops.
    pub qos_armed: BTreeMap<(u64, PdrId), u64>,
    /// Alarms that have gone off.
    pub crossings: u64,
    /// Tunnels that an End Marker went into.
    pub ended: Vec<EndedTunnel>,
    /// Packets of each PDR that wait.
    pub held: u64,
    /// Bounds of what waits, as they were set: SEID, PDR, bound.
    pub limited: Vec<(u64, PdrId, BufferLimits)>,
    /// Sessions whose waiting packets were dropped.
    pub discarded: Vec<u64>,
    /// Sessions whose packets are told of anew.
    pub told_of: Vec<u64>,
    /// Former places of meters, of each session that was to go on with them.
    pub followed: Vec<(u64, Vec<CountedAt>)>,
}

/// Number of the first publication.
#[derive(Debug, Default)]
pub struct Handle(Option<u64>);

/// Octets after which an alarm that has gone off does so again, as in the data path, which does not rely on being told anew.
const NEXT_ALARM: u64 = 64 << 10;

impl FakeTables {
    /// With so many TEIDs that are direct.
    pub fn with_teids(teids: u32) -> Self {
        Self {
            teids: Some(teids),
            ..Self::default()
        }
    }

    /// For fuzz targets and benchmarks: takes every session and remembers none, so that its cost is not that of the code
    /// under test.
    pub fn forgetful(teids: u32) -> Self {
        Self {
            forgets: true,
            ..Self::with_teids(teids)
        }
    }

    /// A packet of a PDR of the session with this SEID. Whether an alarm goes off.
    pub fn packet(&mut self, seid: u64, pdr: u16, bytes: u64) -> bool {
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
        let (armed, passed) = if entry.action == Action::GateClosed || (forwards && self.beyond_mbr)
        {
            counters.drops += 1;
            counters.qos_packets += 1;
            counters.qos_bytes += bytes;
            (&mut self.qos_armed, counters.qos_bytes)
        } else if forwards {
            counters.packets += 1;
            counters.bytes += bytes;
            (&mut self.armed, counters.bytes)
        } else {
            counters.drops += 1;
            return false;
        };
        let alarm = armed.get_mut(&(number, pdr));
        let Some(alarm) = alarm.filter(|alarm| passed >= **alarm) else {
            return false;
        };
        *alarm = passed + NEXT_ALARM;
        self.crossings += 1;
        true
    }

    /// Keys of all sessions.
    pub fn keys(&self) -> Vec<Key> {
        self.live
            .values()
            .flat_map(|c| c.keys.iter().map(|(key, _)| *key))
            .collect()
    }

    /// Counts of an entry, as [`CountedAt`] names it.
    pub fn counted(&self, entry: u32) -> Option<Counters> {
        let (number, pdr) = (u64::from(entry >> 8), PdrId((entry & 0xff) as u16));
        let is_there = self.live.contains_key(&number);
        is_there.then(|| self.counters(&Handle(Some(number)), pdr))
    }

    fn of(&self, handle: &Handle) -> Option<&Compiled> {
        handle.0.and_then(|number| self.live.get(&number))
    }

    /// Whether there is room for this in place of what the handle holds.
    fn check_room(&self, handle: &Handle, new: &Compiled) -> Result<(), NoRoom> {
        let entries = new.entries.len();
        let held = self.of(handle).map_or(0, |c| c.entries.len());
        let all: usize = self.live.values().map(|c| c.entries.len()).sum();
        if self.room.is_some_and(|room| all - held + entries > room) {
            return Err(NoRoom::of("entries"));
        }
        if let Some((_, more)) = new.more.iter().find(|(of, _)| *of == Resource::Entries)
            && entries.saturating_sub(held) as u64 > *more
        {
            return Err(NoRoom::kept("entries"));
        }
        let uplink = new.meters.iter();
        for of in uplink.filter(|meter| meter.direction == Direction::Uplink) {
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
        Ok(())
    }

    /// Of the session with this number only PDRs remain that it still has.
    fn part(&mut self, number: u64, has: impl Fn(PdrId) -> bool) {
        self.parted.clear();
        let of_session = (number, PdrId(0))..=(number, PdrId(u16::MAX));
        for (&(_, pdr), counters) in self.counted.range(of_session) {
            self.parted.insert(pdr, counters.plus(self.late));
        }
        self.counted
            .retain(|(of, pdr), _| *of != number || has(*pdr));
        for armed in [&mut self.armed, &mut self.qos_armed] {
            armed.retain(|(of, pdr), _| *of != number || has(*pdr));
        }
    }
}

impl Tables for FakeTables {
    type Handle = Handle;

    fn direct_teids(&self) -> u32 {
        self.teids.unwrap_or(64)
    }

    fn reaches(&self, peer: IpAddr) -> bool {
        !self.unreachable.contains(&peer)
    }

    fn publish(&mut self, handle: &mut Handle, new: &Compiled) -> Result<(), NoRoom> {
        if self.forgets {
            black_box(new);
            return Ok(());
        }
        self.check_room(handle, new)?;
        let number = *handle.0.get_or_insert_with(|| {
            self.published += 1;
            self.published
        });
        self.part(number, |pdr| {
            new.entries.iter().any(|entry| entry.pdr == pdr)
        });
        *self.publications.entry(number).or_default() += 1;
        let live = Compiled {
            more: Vec::new(),
            ..new.clone()
        };
        self.live.insert(number, live);
        Ok(())
    }

    fn room(&self, resource: Resource) -> Option<u64> {
        let room = self.room.filter(|_| resource == Resource::Entries);
        room.map(|room| room as u64)
    }

    fn holds(&self, handle: &Handle) -> Holding {
        let mut held = Holding::default();
        if let Some(compiled) = self.of(handle) {
            held.add(Resource::Entries, compiled.entries.len() as u64);
            held.add(Resource::Rules, compiled.filters.len() as u64);
            held.add(Resource::Meters, compiled.meters.len() as u64);
        }
        held
    }

    fn withdraw(&mut self, handle: &mut Handle) {
        if let Some(number) = handle.0.take() {
            self.live.remove(&number);
            self.part(number, |_| false);
        }
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

    fn gtpu_paths(&self, each: &mut dyn FnMut(IpAddr, IpAddr)) {
        let entries = self.live.values().flat_map(|session| &session.entries);
        for entry in entries {
            if let Action::Tunnel { peer, local, .. } = entry.action {
                each(peer, local);
            }
        }
    }

    fn counters(&self, handle: &Handle, pdr: PdrId) -> Counters {
        let has = |session: &Compiled| session.entries.iter().any(|entry| entry.pdr == pdr);
        let key = (handle.0.unwrap_or(0), pdr);
        let counted = self.counted.get(&key).copied().unwrap_or_default();
        let counted = counted.plus(self.traffic);
        let first = !self.exact && self.of(handle).is_some_and(has);
        Counters {
            packets: counted.packets + u64::from(first),
            ..counted
        }
    }

    fn counted_at(&self, handle: &Handle, into: &mut Vec<CountedAt>) {
        let number = handle.0.unwrap_or(0) as u32;
        let entries = self.of(handle).into_iter().flat_map(|of| &of.entries);
        into.extend(entries.map(|entry| CountedAt {
            pdr: entry.pdr,
            entries: [number << 8 | u32::from(entry.pdr.0)].into_iter().collect(),
            before: None,
        }));
    }

    fn is_metered(&self, handle: &Handle) -> bool {
        let own = |entry: &Entry| entry.meter.is_some();
        self.of(handle)
            .is_some_and(|of| !of.meters.is_empty() || of.entries.iter().any(own))
    }

    fn follow_meters(&mut self, handle: &Handle, at: &[CountedAt]) {
        let seid = self.of(handle).map_or(0, |of| of.seid);
        self.followed.push((seid, at.to_vec()));
    }

    fn arm(&mut self, handle: &Handle, pdr: PdrId, alarm: Option<u64>) {
        arm(&mut self.armed, handle, pdr, alarm);
    }

    fn arm_qos(&mut self, handle: &Handle, pdr: PdrId, alarm: Option<u64>) {
        arm(&mut self.qos_armed, handle, pdr, alarm);
    }

    fn parted(&self, pdr: PdrId) -> Option<Counters> {
        self.parted.get(&pdr).copied()
    }

    fn counters_of(&self, handle: &Handle, pdr: PdrId, rule: PredefinedId) -> Counters {
        let is_it = |entry: &Entry| (entry.pdr, entry.predefined) == (pdr, Some(rule));
        let has = |session: &Compiled| session.entries.iter().any(is_it);
        Counters {
            packets: u64::from(self.of(handle).is_some_and(has)),
            ..Counters::default()
        }
    }
}

fn arm(armed: &mut BTreeMap<(u64, PdrId), u64>, handle: &Handle, pdr: PdrId, alarm: Option<u64>) {
    let key = (handle.0.unwrap_or(0), pdr);
    match alarm {
        Some(alarm) => armed.insert(key, alarm),
        None => armed.remove(&key),
    };
}
