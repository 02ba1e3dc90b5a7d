//! A program for each port: loaded, attached, replaced.

use std::ffi::OsStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::thread;
use std::time::Instant;

use libbpf_rs::ProgramAttachType;

use super::lanes::Lanes;
use super::link::attach;
use super::maps::{LANE_WORK, LANES, Maps, N4_NEXT, capacities, map_named, maps_of, size};
use super::object::{Constants, PROGRAM, Part, object_for, open, program_named, setup, specialise};
use crate::abi::Features;
use crate::backend::ProgramInfo;
use crate::error::SetupError;
use crate::layout::Layout;
use crate::port::{Mode, PortConfig};

/// A program in the kernel, which keeps it while this lives or it is attached.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) fd: OwnedFd,
    /// The program of the lanes, of a port whose users are spread over CPUs.
    pub(super) lane: Option<OwnedFd>,
    pub(super) info: ProgramInfo,
}

/// A program for each port, in their order, all specialised to the same.
#[derive(Debug)]
pub(super) struct Set {
    pub(super) features: Features,
    pub(super) programs: Vec<Program>,
}

impl Program {
    /// Verify and load over these maps, and lanes of its own unless there are some. The maps that it has come back.
    pub(super) fn load(
        port: u32,
        config: &PortConfig,
        features: Features,
        layout: &Layout,
        shared: &Maps,
        lanes: Option<&Lanes>,
    ) -> Result<(Self, Maps), SetupError> {
        if config.spread.is_empty() {
            let part = Part::Whole;
            return Self::load_part(port, config, features, layout, shared, None, part);
        }
        let features = features.with(Features::SPREAD);
        let part = Part::Front;
        let (mut front, maps) =
            Self::load_part(port, config, features, layout, shared, lanes, part)?;
        // Lanes of its own, which are never used: what works in lanes cannot refer to them.
        let part = Part::Lane;
        let (lane, _) = Self::load_part(port, config, features, layout, shared, None, part)?;
        front.lane = Some(lane.fd);
        Ok((front, maps))
    }

    /// The maps that come back are those that it has.
    fn load_part(
        port: u32,
        config: &PortConfig,
        features: Features,
        layout: &Layout,
        shared: &Maps,
        lanes: Option<&Lanes>,
        part: Part,
    ) -> Result<(Self, Maps), SetupError> {
        let object = object_for(features)?;
        let mut open = open(object)?;
        let constants = Constants::find(object)?;
        specialise(&mut open, &constants, port, config, features, part)?;
        for mut program in open.progs_mut() {
            if program.name() != OsStr::new(PROGRAM) {
                program.set_autoload(false);
            } else if part == Part::Lane {
                program.set_attach_type(ProgramAttachType::XdpCpumap);
            }
        }
        let capacities = capacities(layout)?;
        for mut map in open.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            let own = name == LANES || name == LANE_WORK;
            // The kernel has no programs of two types of attachment in one map.
            if part == Part::Lane && name == N4_NEXT {
                continue;
            }
            if let Some(lanes) = lanes.filter(|_| own) {
                map.reuse_fd(lanes.map(&name).as_fd())
                    .map_err(setup(name))?;
            } else if own {
                size(&mut map, &name, &capacities)?;
            } else if !name.contains(".rodata") {
                map.reuse_fd(map_named(shared, &name)?.as_fd())
                    .map_err(setup(name))?;
            }
        }
        let start = Instant::now();
        let object = open
            .load()
            .map_err(setup(format!("load for {}", config.name)))?;
        let load_time = start.elapsed();
        let program = program_named(&object, PROGRAM)?;
        let (instructions, verified_instructions) = counts(program.as_fd())?;
        let info = ProgramInfo {
            interface: config.name.clone(),
            ifindex: 0,
            mode: None,
            features,
            instructions,
            verified_instructions,
            load_time,
        };
        let fd = program.as_fd().try_clone_to_owned()?;
        let maps = maps_of(&object)?;
        let lane = None;
        Ok((Self { fd, lane, info }, maps))
    }

    /// Attach in this mode or not at all. Fails if another program is attached.
    pub(super) fn attach(&mut self, ifindex: u32, mode: Mode) -> Result<OwnedFd, SetupError> {
        let link = attach(self.fd.as_fd(), (&self.info.interface, ifindex), mode)?;
        self.info.ifindex = ifindex;
        self.info.mode = Some(mode);
        Ok(link)
    }

    /// Take the place of the program that is attached: each packet meets one or the other. Where the interface is gone, there
    /// is no packet and nothing to replace.
    pub(super) fn replace(&self, link: Option<&OwnedFd>, lanes: Option<&Lanes>) -> io::Result<()> {
        if let (Some(lanes), Some(lane)) = (lanes, &self.lane) {
            lanes.run(lane)?;
        }
        let Some(link) = link else {
            return Ok(());
        };
        // One that is gone has not been heard of yet.
        self.take_over(link).map(drop)
    }

    /// Take the place of the program under a link. Whether its interface is there.
    pub(super) fn take_over(&self, link: &OwnedFd) -> io::Result<bool> {
        // SAFETY: both descriptors are open; no options are given.
        let answer = unsafe {
            libbpf_sys::bpf_link_update(link.as_raw_fd(), self.fd.as_raw_fd(), std::ptr::null())
        };
        match -answer {
            libc::ENOLINK => Ok(false),
            error if error > 0 => Err(io::Error::from_raw_os_error(error)),
            _ => Ok(true),
        }
    }
}

impl Set {
    pub(super) fn load(
        features: Features,
        ports: &[PortConfig],
        layout: &Layout,
        maps: &Maps,
        lanes: &[Option<Lanes>],
    ) -> Result<Self, SetupError> {
        let programs = side_by_side(ports, |port, config| {
            let lanes = lanes[port as usize].as_ref();
            Ok(Program::load(port, config, features, layout, maps, lanes)?.0)
        })?;
        Ok(Self { features, programs })
    }
}

/// `load` for each port, at the same time: the verifier takes one CPU for each.
pub(super) fn side_by_side<T: Send>(
    ports: &[PortConfig],
    load: impl Fn(u32, &PortConfig) -> Result<T, SetupError> + Sync,
) -> Result<Vec<T>, SetupError> {
    thread::scope(|scope| {
        let load = &load;
        let threads: Vec<_> = (0..)
            .zip(ports)
            .map(|(port, config)| scope.spawn(move || load(port, config)))
            .collect();
        let loaded = threads.into_iter().map(|thread| thread.join());
        loaded
            .map(|loaded| loaded.unwrap_or_else(|_| Err(thread_gone())))
            .collect()
    })
}

/// Instructions of a program after loading, and those that the verifier looked at.
fn counts(program: BorrowedFd<'_>) -> Result<(u32, u32), SetupError> {
    // SAFETY: an all-zero info struct is valid.
    let mut info: libbpf_sys::bpf_prog_info = unsafe { MaybeUninit::zeroed().assume_init() };
    let mut len = size_of_val(&info) as u32;
    // SAFETY: info is writable for len octets, and its pointers are null: nothing else is written.
    let answer =
        unsafe { libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &mut info, &mut len) };
    if answer < 0 {
        let error = io::Error::from_raw_os_error(-answer).to_string();
        return Err(SetupError::Bpf {
            what: "program information".into(),
            error,
        });
    }
    Ok((info.xlated_prog_len / 8, info.verified_insns))
}

pub(super) fn thread_gone() -> SetupError {
    SetupError::Bpf {
        what: "load".into(),
        error: "the thread is gone".into(),
    }
}
