//! The maps that all programs share.

use std::ffi::OsStr;
use std::os::fd::AsFd;

use libbpf_rs::{MapCore, MapHandle, Object, OpenMapMut};

use super::object::{object_for, open, setup};
use crate::abi::{Features, UE_DIR_BITS, UE_PAGE_BITS};
use crate::error::SetupError;
use crate::layout::{Layout, Memory};
use crate::memory::{Shared, View};
use crate::trace::TRACE_KEYS_MAX;

/// Map of each port: a frame that is sent there waits for the lane of this CPU.
pub(super) const LANES: &str = "lanes";
/// Map of each port: the program that its lanes run.
pub(super) const LANE_WORK: &str = "lane_work";

/// Maps that all programs share.
pub(super) type Maps = Vec<MapHandle>;

/// Number of elements of each map; those not named keep what the object says.
pub(super) fn capacities(layout: &Layout) -> Result<Vec<(&'static str, u32)>, SetupError> {
    let cpus = libbpf_rs::num_possible_cpus().map_err(setup("number of CPUs"))? as u32;
    Ok(vec![
        ("config", 1),
        ("cpus", cpus),
        (LANES, cpus),
        ("entries", layout.all_entries()),
        ("sides", layout.all_entries()),
        ("exts", layout.exts),
        ("meters", layout.meters),
        ("rules", layout.rules),
        ("buckets", layout.buckets.next_power_of_two()),
        ("nexthops", layout.nexthops),
        ("peers", layout.peers),
        ("routes", layout.routes),
        ("nis", layout.nis),
        ("ue_dir", layout.nis),
        ("ue_pages", layout.ue_pages),
        ("held", layout.held_ring),
        ("trace_keys", TRACE_KEYS_MAX as u32),
    ])
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
    maps_of(&open.load().map_err(setup("maps"))?)
}

pub(super) fn maps_of(object: &Object) -> Result<Maps, SetupError> {
    object
        .maps()
        .filter(|map| !map.name().to_string_lossy().contains(".rodata"))
        .map(|map| MapHandle::try_from(&map).map_err(setup("maps")))
        .collect()
}

pub(super) fn memory(maps: &Maps, layout: &Layout) -> Result<Memory, SetupError> {
    fn view<T: Shared>(maps: &Maps, name: &str, len: usize) -> Result<View<T>, SetupError> {
        View::of_map(map_named(maps, name)?.as_fd(), len).map_err(|error| SetupError::Bpf {
            what: format!("mmap of {name}"),
            error: error.to_string(),
        })
    }
    let cpus = libbpf_rs::num_possible_cpus().map_err(setup("number of CPUs"))?;
    Ok(Memory {
        config: view(maps, "config", 1)?,
        cpus: view(maps, "cpus", cpus)?,
        slow: View::anonymous(1)?,
        entries: view(maps, "entries", layout.all_entries() as usize)?,
        sides: view(maps, "sides", layout.all_entries() as usize)?,
        backs: View::anonymous(layout.all_entries() as usize)?,
        exts: view(maps, "exts", layout.exts as usize)?,
        meters: view(maps, "meters", layout.meters as usize)?,
        rules: view(maps, "rules", layout.rules as usize)?,
        buckets: view(maps, "buckets", layout.buckets.next_power_of_two() as usize)?,
        nexthops: view(maps, "nexthops", layout.nexthops as usize)?,
        peers: view(maps, "peers", layout.peers as usize)?,
        routes: view(maps, "routes", layout.routes as usize)?,
        nis: view(maps, "nis", layout.nis as usize)?,
        ue_dir: view(maps, "ue_dir", (layout.nis as usize) << UE_DIR_BITS)?,
        ue_pages: view(maps, "ue_pages", (layout.ue_pages as usize) << UE_PAGE_BITS)?,
        trace_keys: view(maps, "trace_keys", TRACE_KEYS_MAX)?,
    })
}
