//! The maps that all programs share.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::panic::resume_unwind;
use std::thread;

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

/// The program that serves N4, where it comes after that of users' packets.
pub(super) const N4_NEXT: &str = "n4_next";

/// Tables of fewer octets are made by one thread, others by so many at most.
const ALONE: u64 = 8 << 20;
const THREADS: usize = 4;

/// Maps that all programs share.
pub(super) type Maps = Vec<MapHandle>;

/// Number of elements of each map; those not named keep what the object says.
pub(super) fn capacities(layout: &Layout) -> Result<Vec<(&'static str, u32)>, SetupError> {
    let cpus = libbpf_rs::num_possible_cpus().map_err(setup("number of CPUs"))? as u32;
    let tables = layout.elements().into_iter();
    let mut all: Vec<_> = tables.map(|(name, count, _)| (name, count)).collect();
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

/// The maps that all programs share, before there is a program. The kernel clears all their pages meanwhile, some second's work with a
/// million sessions: on several CPUs, where there are some.
pub(super) fn empty_maps(layout: &Layout) -> Result<Maps, SetupError> {
    let capacities = capacities(layout)?;
    let threads = match layout.octets() {
        ..ALONE => 1,
        _ => thread::available_parallelism().map_or(1, |cpus| cpus.get().min(THREADS)),
    };
    let makers = makers(layout, threads);
    let made_by = |maker| {
        let is_its = |name: &str| makers.get(name).copied().unwrap_or(0) == maker;
        make(&capacities, is_its)
    };
    thread::scope(|scope| {
        let made_by = &made_by;
        let others = (1..threads).map(|maker| {
            let builder = thread::Builder::new().name("maps".into());
            let other = builder.spawn_scoped(scope, move || made_by(maker));
            other.map_err(|_| maker)
        });
        let others: Vec<_> = others.collect();
        let mut all = made_by(0)?;
        for other in others {
            all.extend(match other {
                Ok(other) => other.join().unwrap_or_else(|why| resume_unwind(why))?,
                // There is no thread to be had.
                Err(maker) => made_by(maker)?,
            });
        }
        Ok(all)
    })
}

/// Thread that makes each table: all have about as much to clear.
fn makers(layout: &Layout, threads: usize) -> HashMap<&'static str, usize> {
    let octets = |(_, count, octets): &(_, u32, usize)| u64::from(*count) * *octets as u64;
    let (mut tables, mut work) = (layout.elements(), vec![0; threads]);
    tables.sort_by_key(|table| Reverse(octets(table)));
    let maker = |table: (_, _, _)| {
        let (maker, least) = work.iter_mut().enumerate().min_by_key(|(_, work)| **work)?;
        *least += octets(&table);
        Some((table.0, maker))
    };
    tables.into_iter().filter_map(maker).collect()
}

/// Make the maps that are meant.
fn make(capacities: &[(&str, u32)], is_meant: impl Fn(&str) -> bool) -> Result<Maps, SetupError> {
    let mut open = open(object_for(Features::NONE)?)?;
    for mut program in open.progs_mut() {
        program.set_autoload(false);
    }
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        match is_meant(&name) {
            true => size(&mut map, &name, capacities)?,
            false => map.set_autocreate(false).map_err(setup(name))?,
        }
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
        // One that was not made has a descriptor as well, of nothing.
        .filter(|map| map.autocreate() && !map.name().to_string_lossy().contains(".rodata"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_table_has_a_maker_and_all_makers_have_about_the_same_work() {
        let layout = Layout::for_sessions(1_000_000, 1, 64);
        for threads in 1..=THREADS {
            let makers = makers(&layout, threads);
            let mut work = vec![0; threads];
            for (name, count, octets) in layout.elements() {
                work[makers[name]] += u64::from(count) * octets as u64;
            }
            assert_eq!(work.iter().sum::<u64>(), layout.octets());
            let most = work.iter().max().copied().unwrap_or_default();
            let even = layout.octets() / threads as u64;
            assert!(most < even * 5 / 4, "{work:?} with {threads} threads");
        }
    }
}
