//! The program that serves PFCP on the interface that N4 comes by (`datapath/platform/xdp/n4.bpf.c`).

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use compiled::{Source, TEMPLATES};
use libbpf_rs::{MapCore, MapFlags, MapHandle};

use super::link::{self, attach, is_live};
use super::maps::{Maps, N4_NEXT, SERVED, map_named, maps_of};
use super::object::{Aligned, Constants, open, program_named, setup};
use super::pins::Pins;
use crate::abi::host::{TP_N4_MARKS_ONLY, tp_n4_address};
use crate::backend::runner::Runner;
use crate::engine::{Engine, EngineTables};
use crate::error::SetupError;
use crate::memory::{Shared, View};
use crate::port::Mode;
use crate::served_log::ServedLog;

const PROGRAM: &str = "tp_n4";

/// Key of the one element of [`N4_NEXT`].
const FIRST: [u8; 4] = [0; 4];

static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/n4.bpf.o")));

/// Maps of the pipeline that it writes to, or reads.
const SHARED: [&str; 3] = ["config", "entries", "sides"];

/// The program, and where it is attached.
pub(crate) struct N4 {
    program: OwnedFd,
    /// `None`: packets do not meet it.
    attached: Option<Attached>,
    /// See [`N4_NEXT`].
    next: MapHandle,
    sources: MapHandle,
    known: Vec<Source>,
}

/// How packets meet it.
enum Attached {
    /// First.
    Link(OwnedFd),
    /// Behind the program of users' packets, on an interface that carries them as well.
    Behind,
}

impl fmt::Debug for N4 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("N4").finish_non_exhaustive()
    }
}

/// Its maps, seen in this process.
struct Mapped<'a>(&'a Maps);

impl EngineTables for Mapped<'_> {
    type Error = SetupError;

    fn table<T: Shared>(&self, name: &'static str, len: usize) -> Result<View<T>, SetupError> {
        Ok(View::of_map(map_named(self.0, name)?.as_fd(), len)?)
    }

    fn served(&self) -> Result<ServedLog, SetupError> {
        let map = map_named(self.0, SERVED)?;
        Ok(ServedLog::of_map(map.as_fd(), map.max_entries() as usize)?)
    }
}

impl N4 {
    /// Verify and load it, for so many places and aliases, over the maps of the pipeline. `pins`: where what it has served outlives this
    /// process.
    pub(super) fn load(
        shared: &Maps,
        (places, aliases): (u32, u32),
        pins: Option<&Pins>,
    ) -> Result<(Self, Engine), SetupError> {
        let cpus = libbpf_rs::num_possible_cpus().map_err(setup("number of CPUs"))?;
        let mut open = open(&OBJECT.0)?;
        let constants = Constants::find(&OBJECT.0)?;
        constants.specialise(&mut open, &[("tp_aliases", aliases)])?;
        for mut map in open.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            let count = match name.as_str() {
                "n4_lines" => places,
                "n4_aliases" => aliases,
                "n4_templates" => TEMPLATES as u32,
                "n4_cpus" => cpus as u32,
                shares if SHARED.contains(&shares) => {
                    let own = map_named(shared, shares)?;
                    map.reuse_fd(own.as_fd()).map_err(setup(shares))?;
                    continue;
                }
                _ => continue,
            };
            map.set_max_entries(count).map_err(setup(name))?;
        }
        let object = open.load().map_err(setup("load for N4"))?;
        let program = program_named(&object, PROGRAM)?;
        let program = program.as_fd().try_clone_to_owned()?;
        let maps = maps_of(&object)?;
        if let Some(pins) = pins {
            pins.pin_map(SERVED, map_named(&maps, SERVED)?)?;
        }
        let sources = map_named(&maps, "n4_sources")?;
        let sources = MapHandle::try_from(sources).map_err(setup("n4_sources"))?;
        let next = map_named(shared, N4_NEXT)?;
        let n4 = Self {
            program,
            attached: None,
            next: MapHandle::try_from(next).map_err(setup(N4_NEXT))?,
            sources,
            known: Vec::new(),
        };
        let engine = Engine::new(&Mapped(&maps), (places, aliases), cpus)?;
        Ok((n4, engine))
    }

    /// Have packets of an interface meet it, by its driver: elsewhere datagrams may have been put together before.
    pub(crate) fn attach(&mut self, (interface, ifindex): (&str, u32)) -> Result<(), SetupError> {
        let link = attach(self.program.as_fd(), (interface, ifindex), Mode::Driver)?;
        self.attached = Some(Attached::Link(link));
        Ok(())
    }

    /// Have packets meet it that the program of a port with N4 leaves to the kernel.
    pub(crate) fn attach_behind(&mut self) -> Result<(), SetupError> {
        let fd = self.program.as_raw_fd().to_ne_bytes();
        let updated = self.next.update(&FIRST, &fd, MapFlags::ANY);
        updated.map_err(setup(N4_NEXT))?;
        self.attached = Some(Attached::Behind);
        Ok(())
    }

    /// No packet meets it any more, but for those under way.
    pub(crate) fn detach(&mut self) {
        match self.attached.take() {
            Some(Attached::Link(link)) => link::detach(link.as_fd()),
            Some(Attached::Behind) => {
                // It is there: it has been put there.
                let _ = self.next.delete(&FIRST);
            }
            None => {}
        }
    }

    /// Whether packets meet it; behind another program, if they meet that one.
    pub(crate) fn is_attached(&self) -> bool {
        match &self.attached {
            Some(Attached::Link(link)) => is_live(link.as_fd()),
            Some(Attached::Behind) => true,
            None => false,
        }
    }

    /// Runs it over frames.
    pub(crate) fn runner(&self) -> io::Result<Runner> {
        self.program.try_clone().map(Runner::new)
    }

    /// Associations by the addresses that their requests come from; of all others the program knows nothing.
    pub(crate) fn set_sources(&mut self, sources: &[Source]) -> io::Result<()> {
        for gone in self.known.extract_if(.., |known| !sources.contains(known)) {
            if sources.iter().all(|source| source.address != gone.address) {
                // It is there: it has been put there.
                let _ = self.sources.delete(&key_of(gone.address));
            }
        }
        let mut outcome = Ok(());
        for source in sources {
            if self.known.contains(source) {
                continue;
            }
            let key = key_of(source.address);
            let marks_only = if source.is_served {
                0
            } else {
                TP_N4_MARKS_ONLY
            };
            let value = (source.association | marks_only).to_ne_bytes();
            match self.sources.update(&key, &value, MapFlags::ANY) {
                Ok(()) => self.known.push(*source),
                Err(error) => {
                    // Not as what it was before.
                    let _ = self.sources.delete(&key);
                    outcome = Err(io::Error::other(error));
                }
            }
        }
        outcome
    }
}

/// As `struct tp_n4_address`.
fn key_of(address: IpAddr) -> [u8; size_of::<tp_n4_address>()] {
    let mut key = [0; size_of::<tp_n4_address>()];
    let length = match address {
        IpAddr::V4(v4) => {
            key[..4].copy_from_slice(&v4.octets());
            4u32
        }
        IpAddr::V6(v6) => {
            key[..16].copy_from_slice(&v6.octets());
            16
        }
    };
    key[16..].copy_from_slice(&length.to_ne_bytes());
    key
}
