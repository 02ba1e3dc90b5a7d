//! The maps that all programs share.

use std::ffi::OsStr;
use std::os::fd::AsFd;

use libbpf_rs::{MapCore, MapHandle, Object, OpenMapMut};

use super::object::{object_for, open, setup};
use crate::abi::Features;
use crate::error::SetupError;
use crate::layout::{Layout, Memory, Places};
use crate::memory::{Shared, View};

/// Map of each port: a frame that is sent there waits for the lane of this CPU.
pub(super) const LANES: &str = "lanes";
/// Map of each port: the program that its lanes run.
pub(super) const LANE_WORK: &str = "lane_work";

/// The ring of frames above their rate.
pub(super) const LATER: &str = "later";

/// The ring of requests that the program for N4 has served.
pub(super) const SERVED: &str = "n4_served";

/// Maps that all programs share.
pub(super) type Maps = Vec<MapHandle>;

/// Number of elements of each map; those not named keep what the object says.
pub(super) fn capacities(layout: &Layout) -> Result<Vec<(&'static str, u32)>, SetupError> {
    let cpus = libbpf_rs::num_possible_cpus().map_err(setup("number of CPUs"))? as u32;
    let mut all = layout.elements();
    all.extend([
        ("config", 1),
        ("cpus", cpus),
        ("slow", 1),
        (LANES, cpus),
        ("held", layout.held_ring),
        (LATER, layout.later_ring()),
    ]);
    Ok(all)
}

pub(super) fn map_named<'a>(maps: &'a Maps, name: &str) -> Result<&'a MapHandle, SetupError> {
    maps.iter()
        .find(|map| map.name() == OsStr::new(name))
        .ok_or_else(|| SetupError::Bpf {
            what: name.into(),
            error: "no such map".into(),
        })
}

pub(super) fn size(
    map: &mut OpenMapMut<'_>,
    name: &str,
    capacities: &[(&str, u32)],
) -> Result<(), SetupError> {
    match capacities.iter().find(|(known, _)| *known == name) {
        Some((_, count)) => map.set_max_entries(*count).map_err(setup(name)),
        None => Ok(()),
    }
}

/// The maps that all programs share, before there is a program.
pub(super) fn empty_maps(layout: &Layout) -> Result<Maps, SetupError> {
    let mut open = open(object_for(Features::NONE)?)?;
    for mut program in open.progs_mut() {
        program.set_autoload(false);
    }
    let capacities = capacities(layout)?;
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        size(&mut map, &name, &capacities)?;
    }
    maps_of(&open.load().map_err(no_maps)?)
}

/// There is no program yet that a verifier could object to.
fn no_maps(error: libbpf_rs::Error) -> SetupError {
    setup(match error.kind() {
        libbpf_rs::ErrorKind::PermissionDenied => {
            "maps: bpf(2) is refused, which takes CAP_BPF and, in a container, a seccomp profile that allows it \
             (docs/howto/containers.md)"
        }
        _ => "maps",
    })(error)
}

pub(super) fn maps_of(object: &Object) -> Result<Maps, SetupError> {
    object
        .maps()
        .filter(|map| !map.name().to_string_lossy().contains(".rodata"))
        .map(|map| MapHandle::try_from(&map).map_err(setup("maps")))
        .collect()
}

/// Tables that are maps, seen in this process.
struct Mapped<'a>(&'a Maps);

impl Places for Mapped<'_> {
    type Error = SetupError;

    fn table<T: Shared>(&self, name: &'static str, len: usize) -> Result<View<T>, SetupError> {
        let map = map_named(self.0, name)?;
        View::of_map(map.as_fd(), len).map_err(|error| SetupError::Bpf {
            what: format!("mmap of {name}"),
            error: error.to_string(),
        })
    }
}

pub(super) fn memory(maps: &Maps, layout: &Layout) -> Result<Memory, SetupError> {
    let cpus = libbpf_rs::num_possible_cpus().map_err(setup("number of CPUs"))?;
    Memory::new(layout, cpus, &Mapped(maps))
}
