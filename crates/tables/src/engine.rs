//! PFCP served beside this thread, by the program of `datapath/platform/xdp/n4.bpf.c`: the memory that it shares with the control thread.

use std::hint::spin_loop;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::{fmt, mem, thread};

use compiled::{Slow, TEMPLATES};

use crate::abi::host::{
    TP_N4_VERDICTS, tp_n4_alias, tp_n4_config, tp_n4_cpu, tp_n4_here, tp_n4_record, tp_n4_template,
};
use crate::abi::{Line, Plain, words_of};
use crate::memory::{Shared, View};
use crate::served_log::ServedLog;

/// Looks at a CPU that is under way with a request, which takes less than a microsecond, before others may have this one.
const LOOKS: u32 = 10_000;

const HERE_WORDS: usize = size_of::<tp_n4_here>() / 8;
const CPU_WORDS: usize = size_of::<tp_n4_cpu>() / 8;
const INSIDE: usize = mem::offset_of!(tp_n4_cpu, inside) / 8;
const VERDICTS: usize = mem::offset_of!(tp_n4_cpu, verdicts) / 8;
const TOLD: usize = mem::offset_of!(tp_n4_cpu, told) / 8;
const PAUSED: usize = mem::offset_of!(tp_n4_here, paused) / 8;

/// Tables that it compares requests with, and lines of sessions, which it changes at any time, but while it is [paused](Self::pause).
pub(crate) struct Engine {
    here: View<AtomicU64>,
    cpus: View<AtomicU64>,
    taught: Taught,
    /// By place.
    pub(crate) lines: View<Line>,
    served: ServedLog,
    is_paused: bool,
    /// Records that were read.
    read: u64,
    /// ... and how many are to be, of all that there ever were.
    until: u64,
}

/// Templates and aliases, as the engine has them.
struct Taught {
    config: View<AtomicU64>,
    templates: View<AtomicU64>,
    aliases: View<AtomicU64>,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}

/// Tables of the engine by their names, wherever they are.
pub(crate) trait EngineTables {
    type Error: From<io::Error>;

    fn table<T: Shared>(&self, name: &'static str, len: usize) -> Result<View<T>, Self::Error>;

    /// Requests that were served.
    fn served(&self) -> Result<ServedLog, Self::Error>;
}

/// Write a struct among others of its kind, in shared memory.
fn write<T: Plain, const N: usize>(to: &View<AtomicU64>, at: usize, value: &T) {
    let words: [u64; N] = words_of(value);
    let to = to.get(at * N..(at + 1) * N).unwrap_or_default();
    for (to, word) in to.iter().zip(words) {
        to.store(word, Ordering::Relaxed);
    }
}

impl Engine {
    /// Over these tables, for so many places, aliases and CPUs.
    pub(crate) fn new<P: EngineTables>(
        tables: &P,
        (places, aliases): (u32, u32),
        cpus: usize,
    ) -> Result<Self, P::Error> {
        let aliases = aliases as usize * size_of::<tp_n4_alias>() / 8;
        let templates = TEMPLATES * size_of::<tp_n4_template>() / 8;
        Ok(Self {
            here: tables.table("n4_here", HERE_WORDS)?,
            cpus: tables.table("n4_cpus", cpus * CPU_WORDS)?,
            taught: Taught {
                config: tables.table("n4_config", size_of::<tp_n4_config>() / 8)?,
                templates: tables.table("n4_templates", templates)?,
                aliases: tables.table("n4_aliases", aliases)?,
            },
            lines: tables.table("n4_lines", places as usize)?,
            served: tables.served()?,
            is_paused: false,
            read: 0,
            until: 0,
        })
    }

    /// Datagrams to these addresses are ours.
    pub(crate) fn set_addresses(&self, addresses: &[IpAddr]) {
        let mut here = tp_n4_here::default();
        for address in addresses {
            let (family, octets) = match address {
                IpAddr::V4(v4) => (0, &v4.octets()[..]),
                IpAddr::V6(v6) => (1, &v6.octets()[..]),
            };
            here.local[family][..octets.len()].copy_from_slice(octets);
            here.has_local[family] = 1;
        }
        write::<_, HERE_WORDS>(&self.here, 0, &here);
    }

    pub(crate) fn set_config(&self, config: &tp_n4_config) {
        write::<_, { size_of::<tp_n4_config>() / 8 }>(&self.taught.config, 0, config);
    }

    pub(crate) fn set_template(&self, number: usize, template: &tp_n4_template) {
        write::<_, { size_of::<tp_n4_template>() / 8 }>(&self.taught.templates, number, template);
    }

    /// Its length comes last: until then nobody looks at the rest.
    pub(crate) fn set_alias(&self, at: usize, alias: &tp_n4_alias) {
        const WORDS: usize = size_of::<tp_n4_alias>() / 8;
        const LENGTH: usize = mem::offset_of!(tp_n4_alias, length) / 8;
        let words: [u64; WORDS] = words_of(alias);
        let to = self.taught.aliases.get(at * WORDS..).unwrap_or_default();
        for (place, (to, word)) in to.iter().zip(words).enumerate() {
            if place != LENGTH {
                to.store(word, Ordering::Relaxed);
            }
        }
        if let Some(to) = to.get(LENGTH) {
            to.store(words[LENGTH], Ordering::Release);
        }
    }

    /// No session is changed from now on. Whether any could be before.
    pub(crate) fn pause(&mut self) -> bool {
        if mem::replace(&mut self.is_paused, true) {
            return false;
        }
        self.here[PAUSED].store(1, Ordering::SeqCst);
        self.wait();
        true
    }

    fn cpus(&self) -> impl Iterator<Item = &[AtomicU64]> {
        self.cpus.chunks_exact(CPU_WORDS)
    }

    /// [`Self::next_served`] goes as far as there are records now: a CPU may serve requests faster than they are read.
    pub(crate) fn look(&mut self) {
        let told = self.cpus().map(|cpu| cpu[TOLD].load(Ordering::Acquire));
        self.until = told.sum();
    }

    /// Until no CPU is under way any more with a request that was when this was called: what it has served can be read, as far as this
    /// [looks](Self::look).
    pub(crate) fn wait(&mut self) {
        // First what was stored before, then the look: a CPU says that it is under way, and then looks at that.
        fence(Ordering::SeqCst);
        for cpu in self.cpus() {
            let (under_way, mut looks) = (cpu[INSIDE].load(Ordering::SeqCst), 0);
            while under_way % 2 == 1 && cpu[INSIDE].load(Ordering::SeqCst) == under_way {
                looks += 1;
                match looks % LOOKS {
                    0 => thread::yield_now(),
                    _ => spin_loop(),
                }
            }
        }
        self.look();
    }

    /// They may be again.
    pub(crate) fn go_on(&mut self) {
        self.is_paused = false;
        self.here[PAUSED].store(0, Ordering::Release);
    }

    /// The next request that was served, of those that there were at the last look.
    pub(crate) fn next_served(&mut self) -> Option<tp_n4_record> {
        if self.read == self.until {
            return None;
        }
        let next = self.served.next();
        self.read += u64::from(next.is_some());
        next.map(|(_, record)| record)
    }

    /// See [`compiled::Tables::served_ahead`].
    pub(crate) fn served_ahead(&self, others: usize) -> Option<u64> {
        let is_seen = (others as u64) < self.until.wrapping_sub(self.read);
        is_seen.then(|| self.served.seid_ahead(others))?
    }

    /// Begin of the record after the last one that was read, of all octets that there ever were.
    pub(crate) fn read_until(&self) -> u64 {
        self.served.position()
    }

    /// All that were read are known elsewhere, and there is room for others.
    pub(crate) fn let_go_of_served(&self) {
        self.served.let_go();
    }

    /// Requests that were not served, by why.
    pub(crate) fn slow(&self, why: Slow) -> u64 {
        let place = Slow::ALL.iter().position(|of| *of == why);
        let at = VERDICTS + 1 + place.unwrap_or(TP_N4_VERDICTS as usize);
        let count = |cpu: &[AtomicU64]| cpu.get(at).map_or(0, |n| n.load(Ordering::Relaxed));
        self.cpus.chunks_exact(CPU_WORDS).map(count).sum()
    }
}
