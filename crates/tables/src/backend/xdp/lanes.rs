//! Lanes of a port whose users are spread over CPUs: the kernel's thread on each, and what it runs there.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use libbpf_rs::{MapCore, MapFlags, MapHandle};

use super::maps::{LANE_WORK, LANES, Maps, map_named};
use super::object::{object_for, open, program_named, setup};
use crate::abi::Features;
use crate::error::SetupError;
use crate::port::{LANES_MAX, PortConfig};

/// Packets that may wait for a lane; the kernel drops more.
const LANE_QUEUE: u32 = 4096;

/// The program in the lanes.
const LANE: &str = "tp_lane";

/// A port's lanes. They outlive the programs that work there, so that no frame in waiting is overtaken when others take
/// over.
#[derive(Debug)]
pub(super) struct Lanes {
    lanes: MapHandle,
    work: MapHandle,
}

impl Lanes {
    /// Start the lanes of a program that has just been loaded with fresh ones: they do this work on the port's CPUs.
    pub(super) fn start(
        fresh: &Maps,
        work: &OwnedFd,
        port: &PortConfig,
        features: Features,
    ) -> Result<Self, SetupError> {
        let own = |name| MapHandle::try_from(map_named(fresh, name)?).map_err(setup(name));
        let lanes = Self {
            lanes: own(LANES)?,
            work: own(LANE_WORK)?,
        };
        lanes.run(work)?;
        lanes.open(features, &port.spread)?;
        Ok(lanes)
    }

    pub(super) fn try_clone(&self) -> Result<Self, SetupError> {
        Ok(Self {
            lanes: MapHandle::try_from(&self.lanes).map_err(setup(LANES))?,
            work: MapHandle::try_from(&self.work).map_err(setup(LANE_WORK))?,
        })
    }

    /// The map of this name: [`LANES`] or [`LANE_WORK`].
    pub(super) fn map(&self, name: &str) -> &MapHandle {
        if name == LANES {
            &self.lanes
        } else {
            &self.work
        }
    }

    /// Packets that a lane takes up from now on meet this program.
    pub(super) fn run(&self, program: &OwnedFd) -> io::Result<()> {
        let fd = program.as_raw_fd().to_ne_bytes();
        let updated = self.work.update(&0u32.to_ne_bytes(), &fd, MapFlags::ANY);
        updated.map_err(io::Error::other)
    }

    /// Have the kernel start a thread for each of these CPUs, for what the program in front sends there.
    fn open(&self, features: Features, cpus: &[u32]) -> Result<(), SetupError> {
        let mut object = open(object_for(features.with(Features::SPREAD))?)?;
        for mut program in object.progs_mut() {
            let is_lane = program.name() == OsStr::new(LANE);
            program.set_autoload(is_lane);
        }
        for mut map in object.maps_mut() {
            if map.name() == OsStr::new(LANE_WORK) {
                map.reuse_fd(self.work.as_fd()).map_err(setup(LANE_WORK))?;
            }
        }
        let object = object.load().map_err(setup(LANE))?;
        let program = program_named(&object, LANE)?;
        for cpu in cpus.iter().take(LANES_MAX) {
            // struct bpf_cpumap_val
            let fd = program.as_fd().as_raw_fd();
            let value = [LANE_QUEUE.to_ne_bytes(), fd.to_ne_bytes()].concat();
            self.lanes
                .update(&cpu.to_ne_bytes(), &value, MapFlags::ANY)
                .map_err(setup(format!("spread over CPU {cpu}")))?;
        }
        Ok(())
    }
}
