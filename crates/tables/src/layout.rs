//! Sizes of the tables, and their memory.

use std::io;
use std::sync::atomic::AtomicU32;

use crate::abi::host::tp_tables;
use crate::abi::{Config, Cpu, Line, RulePlace, Side, UE_DIR_BITS, UE_PAGE_BITS};
use crate::memory::View;
use crate::shaping::Shaping;
use crate::trace::TRACE_KEYS_MAX;

/// Sizes of the tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// TEIDs that are their own table index, 1 to this; as many entries.
    pub teids: u32,
    /// Further entries: downlink, several PDRs behind one key, replacements in their grace period.
    pub entries: u32,
    /// Entries with IPv6 addresses or shared meters.
    pub exts: u32,
    /// Shared meters.
    pub meters: u32,
    /// Places of four SDF filters each; a PDR without a filter that shares its key takes one too.
    pub rules: u32,
    /// Remote GTP-U addresses.
    pub peers: u32,
    /// Next hops.
    pub nexthops: u32,
    /// Routes of all network instances.
    pub routes: u32,
    /// Buckets of four keys each, rounded up to a power of two.
    pub buckets: u32,
    /// Pages of 16384 UE addresses.
    pub ue_pages: u32,
    /// Network instances.
    pub nis: u32,
    /// Threads that packets run in, where that is a matter of choice. 0: none, but one worker that runs when it is told
    /// to ([`crate::Tables::run_once`]): for benchmarks.
    pub workers: u32,
    /// Octets of packets for idle UEs that may be on their way to user space: a power of two, of whole pages.
    pub held_ring: u32,
    /// Packets above their rates wait, in workers; `None`: they are dropped.
    pub shaping: Option<Shaping>,
}

impl Layout {
    /// Room for `sessions` ordinary sessions, and a share of others.
    pub fn for_sessions(sessions: u32, nis: u32, ue_pages: u32) -> Self {
        let some = (sessions / 4).max(4096);
        Self {
            teids: sessions.saturating_add(sessions / 16 + 1024).min(1 << 24),
            entries: sessions.saturating_add(some),
            // One for the uplink entry of each session with IPv6, or with two MBRs.
            exts: sessions.max(4096),
            meters: (sessions / 2).max(4096),
            rules: (sessions / 4).max(32768),
            peers: 16384,
            nexthops: 8192,
            routes: nis.max(1) * 256,
            // Two slots for each session: a fuller table has to move keys, and each move waits for
            // a grace period.
            buckets: (sessions / 2).max(4096).next_power_of_two(),
            // An SMF may choose addresses outside the pools; where pages run out, the buckets
            // take them.
            ue_pages: ue_pages.saturating_add(16 + sessions / 8192),
            nis: nis.max(1),
            workers: 1,
            held_ring: 16 << 20,
            shaping: None,
        }
    }

    pub(crate) fn all_entries(&self) -> u32 {
        self.teids.saturating_add(1).saturating_add(self.entries)
    }
}

impl Default for Layout {
    fn default() -> Self {
        Self::for_sessions(16384, 1, 4)
    }
}

/// The memory of all tables.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    pub(crate) config: View<Config>,
    pub(crate) cpus: View<Cpu>,
    /// Counts of the slow path, as one CPU more.
    pub(crate) slow: View<Cpu>,
    pub(crate) entries: View<Line>,
    pub(crate) sides: View<Side>,
    /// TEID of the other direction, for each entry that a TEID leads to, of a session that relays packets; 0: none.
    pub(crate) backs: View<AtomicU32>,
    pub(crate) exts: View<Line>,
    pub(crate) meters: View<Line>,
    pub(crate) rules: View<RulePlace>,
    pub(crate) buckets: View<Line>,
    pub(crate) nexthops: View<Line>,
    pub(crate) peers: View<Line>,
    pub(crate) routes: View<Line>,
    pub(crate) nis: View<Line>,
    pub(crate) ue_dir: View<AtomicU32>,
    pub(crate) ue_pages: View<AtomicU32>,
    pub(crate) trace_keys: View<Line>,
}

impl Memory {
    /// Ordinary memory, for so many threads that packets run in.
    pub(crate) fn anonymous(layout: &Layout, threads: usize) -> io::Result<Self> {
        let lines = |n: u32| View::anonymous_huge(n as usize);
        Ok(Self {
            config: View::anonymous(1)?,
            cpus: View::anonymous(threads)?,
            slow: View::anonymous(1)?,
            entries: lines(layout.all_entries())?,
            sides: View::anonymous(layout.all_entries() as usize)?,
            backs: View::anonymous(layout.all_entries() as usize)?,
            exts: lines(layout.exts)?,
            meters: lines(layout.meters)?,
            rules: View::anonymous_huge(layout.rules as usize)?,
            buckets: lines(layout.buckets.next_power_of_two())?,
            nexthops: lines(layout.nexthops)?,
            peers: lines(layout.peers)?,
            routes: View::anonymous(layout.routes as usize)?,
            nis: lines(layout.nis)?,
            ue_dir: View::anonymous((layout.nis as usize) << UE_DIR_BITS)?,
            ue_pages: View::anonymous_huge((layout.ue_pages as usize) << UE_PAGE_BITS)?,
            trace_keys: View::anonymous(TRACE_KEYS_MAX)?,
        })
    }

    /// As the pipeline in this process sees them, while this lives. `cpu`: whose counters packets write; `ports_up`: bit n
    /// is set where port n takes frames.
    pub(crate) fn as_tables(&self, cpu: *mut Cpu, ports_up: u32) -> tp_tables {
        tp_tables {
            config: self.config.as_ptr(),
            cpu,
            entries: self.entries.as_ptr().cast(),
            sides: self.sides.as_ptr(),
            exts: self.exts.as_ptr().cast(),
            meters: self.meters.as_ptr().cast(),
            rules: self.rules.as_ptr().cast(),
            buckets: self.buckets.as_ptr().cast(),
            nexthops: self.nexthops.as_ptr().cast(),
            peers: self.peers.as_ptr().cast(),
            routes: self.routes.as_ptr().cast(),
            nis: self.nis.as_ptr().cast(),
            ue_dir: self.ue_dir.as_ptr().cast(),
            ue_pages: self.ue_pages.as_ptr().cast(),
            trace_keys: self.trace_keys.as_ptr().cast(),
            n_entries: self.entries.len() as u32,
            n_sides: self.sides.len() as u32,
            n_exts: self.exts.len() as u32,
            n_meters: self.meters.len() as u32,
            n_rules: self.rules.len() as u32,
            n_buckets: self.buckets.len() as u32,
            n_nexthops: self.nexthops.len() as u32,
            n_peers: self.peers.len() as u32,
            n_routes: self.routes.len() as u32,
            n_nis: self.nis.len() as u32,
            n_ue_dir: (self.ue_dir.len() >> UE_DIR_BITS) as u32,
            n_ue_pages: (self.ue_pages.len() >> UE_PAGE_BITS) as u32,
            n_trace_keys: self.trace_keys.len() as u32,
            ports_up,
            ..tp_tables::default()
        }
    }

    /// Zeroes everywhere.
    pub(crate) fn clear(&self) {
        // By name, so that no table is forgotten.
        let Self {
            config,
            cpus,
            slow,
            entries,
            sides,
            backs,
            exts,
            meters,
            rules,
            buckets,
            nexthops,
            peers,
            routes,
            nis,
            ue_dir,
            ue_pages,
            trace_keys,
        } = self;
        config.clear();
        cpus.clear();
        slow.clear();
        entries.clear();
        sides.clear();
        backs.clear();
        exts.clear();
        meters.clear();
        rules.clear();
        buckets.clear();
        nexthops.clear();
        peers.clear();
        routes.clear();
        nis.clear();
        ue_dir.clear();
        ue_pages.clear();
        trace_keys.clear();
    }
}
