//! Sizes of the tables, and their memory.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use serde::{Deserialize, Serialize};

use crate::abi::host::tp_tables;
use crate::abi::{CAPACITIES_MAX, Config, Cpu, Line, RULES_ROOM, Side, UE_DIR_BITS, UE_PAGE_BITS};
use crate::capacity::CapacityConfig;
use crate::entry_owners::EntryOwners;
use crate::memory::{Shared, View};
use crate::shaping::Shaping;
use crate::successors::Successors;
use crate::trace::TRACE_KEYS_MAX;
use crate::vlans::Vlans;

/// Sizes of the tables.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// TEIDs that are their own table index, 1 to this; as many entries.
    pub teids: u32,
    /// Further entries: downlink, several PDRs behind one key, replacements in their grace period.
    pub entries: u32,
    /// Entries with IPv6 addresses or shared meters.
    pub exts: u32,
    /// Shared meters.
    pub meters: u32,
    /// Places of two SDF filters each; a PDR without a filter that shares its key takes half of one too, and what few
    /// filters ask for a whole one.
    pub rules: u32,
    /// Places of two framed routes each, of IPv6 pools likewise, and of one duplicate each.
    pub framed: u32,
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
    /// Forwarding policies: each has routes for each network instance, [`Self::routed`] in all.
    pub policies: u32,
    /// Threads that packets run in, where that is a matter of choice. 0: none, but one worker that runs when it is told
    /// to ([`crate::Tables::run_once`]): for benchmarks.
    pub workers: u32,
    /// Octets of packets for idle UEs that may be on their way to user space: a power of two, of whole pages.
    pub held_ring: u32,
    /// Packets above their rates wait, in workers or in a thread for the programs of the kernel; `None`: they are dropped.
    pub shaping: Option<Shaping>,
    /// Capacities, at most 127; [`compiled::CapacityId`]s are places in this list, from 1 on.
    pub capacities: Vec<CapacityConfig>,
    /// NUMA node whose memory tables in this process have while it has some; `None`: that of the thread which touches them first.
    pub node: Option<u32>,
}

impl Layout {
    /// Room for `sessions` ordinary sessions with an SDF filter each, and a share of others.
    pub fn for_sessions(sessions: u32, nis: u32, ue_pages: u32) -> Self {
        Self::with_filters(sessions, sessions, nis, ue_pages)
    }

    /// The same, with so many SDF filters in all of them together, whoever has how many. One for both directions takes a
    /// place in each, a line that leads there from the UE's addresses, and one for the PDR that cannot lie in its
    /// TEID's slot.
    pub fn with_filters(sessions: u32, filters: u32, nis: u32, ue_pages: u32) -> Self {
        let some = (sessions / 4).max(4096);
        Self {
            teids: sessions.saturating_add(sessions / 16 + 1024).min(1 << 24),
            entries: (sessions.saturating_add(some)).saturating_add(filters.saturating_mul(2)),
            // One for the uplink entry of each session with IPv6, or with two MBRs.
            exts: sessions.max(4096),
            meters: (sessions / 2).max(4096),
            // PDRs that share a key without a filter, and TEIDs whose slot is in its grace period, need places too.
            rules: (filters.saturating_mul(2)).saturating_add(some),
            framed: (sessions / 2).max(65_536),
            peers: 16384,
            nexthops: 8192,
            routes: nis.max(1) * 256,
            buckets: Self::buckets_for(sessions, 8192),
            // An SMF may choose addresses outside the pools; where pages run out, the buckets
            // take them.
            ue_pages: ue_pages.saturating_add(16 + sessions / 8192),
            nis: nis.max(1),
            policies: 0,
            workers: 1,
            held_ring: 16 << 20,
            shaping: None,
            capacities: Vec::new(),
            node: None,
        }
    }

    /// Buckets for so many sessions whose SMF chooses TEIDs and addresses as it likes, and for neighbours. A session has three
    /// keys at most there: its TEID, its IPv4 address where pages of addresses ran out, and its /64. Four slots for each
    /// leave a quarter free, so that a key finds room by a move or two; each move waits for a grace period. With two
    /// keys half of them are free, and moves are rare.
    pub fn buckets_for(sessions: u32, neighbours: u32) -> u32 {
        let lines = sessions.saturating_add(neighbours.div_ceil(3));
        lines.clamp(4096, 1 << 31).next_power_of_two()
    }

    /// Network instances, and forwarding policies for each of them: lists of routes.
    pub fn routed(&self) -> u32 {
        self.nis.saturating_mul(self.policies.saturating_add(1))
    }

    /// Octets of frames above their rates that may be on their way to user space: of half a megabyte at least, and of one page
    /// where none is.
    pub(crate) fn later_ring(&self) -> u32 {
        let frames = self.shaping.map_or(0, |shaping| shaping.frames);
        match frames {
            0 => 4096,
            _ => (frames.saturating_mul(2048).min(16 << 20))
                .next_power_of_two()
                .max(1 << 19),
        }
    }

    /// With these capacities, and room for a share of them for each entry.
    #[must_use]
    pub fn sharing(self, capacities: Vec<CapacityConfig>) -> Self {
        if capacities.is_empty() {
            return self;
        }
        let all = self.all_entries();
        Self {
            exts: self.exts.max(all),
            meters: self.meters.saturating_add(all),
            capacities,
            ..self
        }
    }

    /// Places of filters; those of framed routes and duplicates are behind them.
    pub(crate) fn rule_places(&self) -> u32 {
        self.rules.min(RULES_ROOM)
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

/// Source of the tables' memory.
pub(crate) trait Places {
    type Error: From<io::Error>;

    /// Zeroed memory of the table of this name, for so many items.
    fn table<T: Shared>(&self, name: &'static str, len: usize) -> Result<View<T>, Self::Error>;
}

/// Ordinary memory, in huge pages where there are some, near to a NUMA node.
pub(crate) struct Ordinary {
    pub(crate) node: Option<u32>,
}

impl Places for Ordinary {
    type Error = io::Error;

    fn table<T: Shared>(&self, _: &'static str, len: usize) -> io::Result<View<T>> {
        let view = View::anonymous_huge(len)?;
        if let Some(node) = self.node {
            view.prefer(node);
        }
        Ok(view)
    }
}

/// The memory of all tables, made from the list of those that packets look into: name and number as in `tp_abi.h`, what
/// they hold, how many elements each has, and of how many items an element is made.
macro_rules! memory {
    ($layout:ident; $($name:ident, $number:ident: $item:ty = $elements:expr, $items:expr;)*) => {
        /// The memory of all tables.
        #[derive(Clone, Debug)]
        pub(crate) struct Memory {
            pub(crate) config: View<Config>,
            pub(crate) cpus: View<Cpu>,
            /// Counts of the slow path, as one CPU more.
            pub(crate) slow: View<Cpu>,
            /// TEID of the other direction, for each entry that a TEID leads to, of a session that relays packets; 0: none.
            pub(crate) backs: View<AtomicU32>,
            pub(crate) owners: EntryOwners,
            pub(crate) successors: Successors,
            /// VLAN devices of this host.
            pub(crate) vlans: Vlans,
            $(pub(crate) $name: View<$item>,)*
        }

        impl Layout {
            /// Octets of the tables that packets look into.
            pub fn octets(&self) -> u64 {
                let $layout = self;
                [$($elements as u64 * ($items * size_of::<$item>()) as u64),*].into_iter().sum()
            }

            /// Names of the tables that packets look into, how many elements each has, and of how many octets.
            pub(crate) fn elements(&self) -> Vec<(&'static str, u32, usize)> {
                let $layout = self;
                vec![$((stringify!($name), $elements, $items * size_of::<$item>())),*]
            }
        }

        impl Memory {
            /// For so many CPUs, or threads that packets run in.
            pub(crate) fn new<P: Places>($layout: &Layout, cpus: usize, places: &P) -> Result<Self, P::Error> {
                Ok(Self {
                    config: places.table("config", 1)?,
                    cpus: places.table("cpus", cpus)?,
                    slow: places.table("slow", 1)?,
                    backs: View::anonymous($layout.all_entries() as usize)?,
                    owners: EntryOwners::new($layout.all_entries() as usize)?,
                    successors: Successors::new($layout.all_entries() as usize)?,
                    vlans: Vlans::default(),
                    $($name: places.table(stringify!($name), $elements as usize * $items)?,)*
                })
            }

            fn tables(&self) -> tp_tables {
                tp_tables {
                    config: self.config.as_ptr(),
                    $(
                        $name: self.$name.as_ptr().cast(),
                        $number: (self.$name.len() / $items) as u32,
                    )*
                    ..tp_tables::default()
                }
            }

            /// Zeroes everywhere.
            pub(crate) fn clear(&self) {
                self.config.clear();
                self.cpus.clear();
                self.slow.clear();
                self.backs.clear();
                self.owners.clear();
                self.successors.clear();
                self.vlans.set([]);
                $(self.$name.clear();)*
            }
        }
    };
}

memory! {
    layout;
    entries, n_entries: Line = layout.all_entries(), 1;
    sides, n_sides: Side = layout.all_entries(), 1;
    exts, n_exts: Line = layout.exts, 1;
    meters, n_meters: Line = layout.meters, 1;
    capacities, n_capacities: Line = CAPACITIES_MAX as u32, 1;
    rules, n_rules: Line = layout.rule_places() + layout.framed, 1;
    buckets, n_buckets: Line = layout.buckets.next_power_of_two(), 1;
    nexthops, n_nexthops: Line = layout.nexthops, 1;
    peers, n_peers: Line = layout.peers, 1;
    routes, n_routes: Line = layout.routes, 1;
    nis, n_nis: Line = layout.routed(), 1;
    ue_dir, n_ue_dir: AtomicU32 = layout.nis, 1 << UE_DIR_BITS;
    ue_pages, n_ue_pages: AtomicU32 = layout.ue_pages, 1 << UE_PAGE_BITS;
    trace_keys, n_trace_keys: Line = TRACE_KEYS_MAX as u32, 1;
}

impl Memory {
    /// These are the interfaces of ports; 0: none.
    pub(crate) fn set_interfaces(&self, ifindexes: impl IntoIterator<Item = u32>) {
        let slots = &self.config[0].port_ifindex;
        for (slot, ifindex) in slots.iter().zip(ifindexes) {
            slot.store(ifindex, Ordering::Release);
        }
    }

    /// Ordinary memory, for so many threads that packets run in.
    pub(crate) fn anonymous(layout: &Layout, threads: usize) -> io::Result<Self> {
        Self::new(layout, threads, &Ordinary { node: layout.node })
    }

    /// As the pipeline in this process sees them, while this lives. `cpu`: whose counters packets write; `ports_up`: bit n
    /// is set where port n takes frames.
    pub(crate) fn as_tables(&self, cpu: *mut Cpu, ports_up: u32) -> tp_tables {
        tp_tables {
            cpu,
            ports_up,
            ..self.tables()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory policy of the mapping that an address is in, as the kernel has it; `None`: it knows nothing of nodes.
    fn policy_at(address: usize) -> Option<String> {
        let maps = std::fs::read_to_string("/proc/self/numa_maps").ok()?;
        let mapping = |line: &str| {
            let (start, rest) = line.split_once(' ')?;
            let policy = rest.split(' ').next()?;
            Some((usize::from_str_radix(start, 16).ok()?, policy.to_owned()))
        };
        let below = maps.lines().filter_map(mapping);
        let nearest = below.filter(|(start, _)| *start <= address).max();
        nearest.map(|(_, policy)| policy)
    }

    #[test]
    fn tables_lie_on_any_numa_node() {
        for (node, expected) in [
            (None, "default"),
            (Some(0), "prefer:0"),
            (Some(999), "default"),
        ] {
            let layout = Layout {
                node,
                ..Layout::for_sessions(1024, 1, 1)
            };
            let memory = Memory::anonymous(&layout, 1).unwrap();
            let all = [
                memory.entries.as_ptr() as usize,
                memory.cpus.as_ptr() as usize,
            ];
            for policy in all.into_iter().filter_map(policy_at) {
                assert!(policy.starts_with(expected), "{policy}, {expected}");
            }
        }
    }
}
