//! The pipeline as XDP programs: loaded once for each interface, over the same maps.

use std::collections::VecDeque;
use std::ffi::{CString, OsStr};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use libbpf_rs::btf::types::{DataSec, Var};
use libbpf_rs::{
    Btf, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, OpenMapMut, OpenObject,
    ProgramAttachType, ProgramMut,
};

use crate::abi::{Features, PORTS_MAX, UE_DIR_BITS, UE_PAGE_BITS};
use crate::lanes::{LANE_WORK, LANES, Lanes};
use crate::memory::View;
use crate::store::{Layout, Memory};
use crate::trace::TRACE_KEYS_MAX;
use crate::{LANES_MAX, Mode, PortConfig, Roles, SetupError};

/// Aligned as the ELF structures in it want to be.
#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);

macro_rules! object {
    ($build:literal) => {
        &Aligned(*include_bytes!(concat!(
            env!("OUT_DIR"),
            "/turnpike-",
            $build,
            ".bpf.o"
        )))
    };
}

/// Those of [`Features::BUILDS`].
static OBJECTS: [&Aligned<[u8]>; Features::BUILDS.len()] = [
    object!("PLAIN"),
    object!("COMMON"),
    object!("OUTER6"),
    object!("RELAY"),
    object!("SPREAD"),
    object!("GENERAL"),
];

/// The narrowest build that has these features.
pub(crate) fn object_for(features: Features) -> Result<&'static [u8], SetupError> {
    let mut objects = Features::BUILDS.iter().zip(OBJECTS);
    let fit = objects.find(|((_, built), _)| built.contains(features));
    fit.map(|(_, object)| &object.0)
        .ok_or_else(|| SetupError::Bpf {
            what: PROGRAM.into(),
            error: "no object has these features".into(),
        })
}

const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;
const PROGRAM: &str = "turnpike";

/// A loaded program, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramInfo {
    /// Its interface.
    pub interface: String,
    /// Of the interface.
    pub ifindex: u32,
    /// How it is attached; `None`: loaded only.
    pub mode: Option<Mode>,
    /// What it has.
    pub features: Features,
    /// Instructions of the program.
    pub instructions: u32,
    /// Instructions that the verifier looked at, all paths taken together.
    pub verified_instructions: u32,
    /// Time to verify and compile it.
    pub load_time: Duration,
}

/// A program in the kernel, which keeps it while this lives or it is attached.
#[derive(Debug)]
struct Program {
    fd: OwnedFd,
    /// What the lanes do, of a port whose users are spread over CPUs.
    lane: Option<OwnedFd>,
    info: ProgramInfo,
}

/// A program for each port, in their order, all specialised to the same.
#[derive(Debug)]
struct Set {
    features: Features,
    programs: Vec<Program>,
}

/// What all programs share.
pub(crate) type Maps = Vec<MapHandle>;

/// All programs and the maps that they share. Dropping it detaches them: an attachment is a link that
/// lives as long as its descriptor, so that not even a crash leaves it behind.
#[derive(Debug)]
pub(crate) struct Xdp {
    links: Vec<OwnedFd>,
    /// The one that packets meet first, then those that may be wanted again: no more than there are builds.
    sets: Vec<Set>,
    maps: Maps,
    ports: Vec<PortConfig>,
    /// Of each port.
    lanes: Vec<Option<Lanes>>,
    layout: Layout,
    loading: Option<Loading>,
    refusals: Refusals,
}

/// Programs that the kernel would not take, each with what it said and when.
///
/// Asking again takes the verifier's time, and nearly always brings the same answer: whoever cannot wait is told at
/// once what was said before. Now and then they are loaded again in the background, since memory may have been short.
#[derive(Debug, Default)]
struct Refusals(Vec<(Features, String, Instant)>);

impl Refusals {
    /// Until they are loaded again.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn add(&mut self, features: Features, error: &SetupError, now: Instant) {
        self.forget(features);
        self.0.push((features, error.to_string(), now));
    }

    fn forget(&mut self, features: Features) {
        self.0.retain(|(refused, ..)| *refused != features);
    }

    fn of(&self, features: Features) -> Option<SetupError> {
        let (_, error, _) = self.0.iter().find(|(refused, ..)| *refused == features)?;
        Some(SetupError::Refused(error.clone()))
    }

    fn old(&self, now: Instant) -> Vec<Features> {
        let is_old = |at: &Instant| now.saturating_duration_since(*at) >= Self::PATIENCE;
        let old = self.0.iter().filter(|(.., at)| is_old(at));
        old.map(|(features, ..)| *features).collect()
    }
}

/// A thread that loads one set after the other.
#[derive(Debug)]
struct Loading {
    /// Those that have not come yet, in their order.
    expected: VecDeque<Features>,
    loaded: Receiver<Result<Set, SetupError>>,
}

pub(crate) fn setup(what: impl Into<String>) -> impl FnOnce(libbpf_rs::Error) -> SetupError {
    let what = what.into();
    move |error| SetupError::Bpf {
        what,
        error: format!("{error:#}"),
    }
}

/// The number of an interface in this network namespace.
pub(crate) fn ifindex_of(name: &str) -> Result<u32, SetupError> {
    let missing = || SetupError::NoInterface {
        name: name.to_owned(),
    };
    let c_name = CString::new(name).map_err(|_| missing())?;
    // SAFETY: the name is a terminated string.
    let index = unsafe { libc::if_nametoindex(c_name.as_ptr()) };
    if index == 0 {
        Err(missing())
    } else {
        Ok(index)
    }
}

pub(crate) fn open(object: &[u8]) -> Result<OpenObject, SetupError> {
    let mut builder = ObjectBuilder::default();
    builder
        .name(PROGRAM)
        .map_err(setup("open"))?
        .open_memory(object)
        .map_err(setup("open"))
}

/// Offsets of the constants that a program is specialised by.
struct Constants(Vec<(String, usize)>);

impl Constants {
    fn find(object: &[u8]) -> Result<Self, SetupError> {
        let missing = || SetupError::Bpf {
            what: "object".into(),
            error: "no .rodata".into(),
        };
        let btf = Btf::from_raw(PROGRAM, object)
            .map_err(setup("BTF"))?
            .ok_or_else(missing)?;
        let mut found = Vec::new();
        for section in btf.type_by_kind::<DataSec<'_>>() {
            if section.name() != Some(OsStr::new(".rodata")) {
                continue;
            }
            for variable in section.iter() {
                let var: Option<Var<'_>> = btf.type_by_id(variable.ty);
                if let Some(name) = var.and_then(|var| var.name().map(OsStr::to_owned)) {
                    found.push((
                        name.to_string_lossy().into_owned(),
                        variable.offset as usize,
                    ));
                }
            }
        }
        if found.is_empty() {
            Err(missing())
        } else {
            Ok(Self(found))
        }
    }

    fn set(&self, bytes: &mut [u8], name: &str, value: u32) -> Result<(), SetupError> {
        self.set_element(bytes, name, 0, value)
    }

    fn set_element(
        &self,
        bytes: &mut [u8],
        name: &str,
        index: usize,
        value: u32,
    ) -> Result<(), SetupError> {
        let offset = self
            .0
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, offset)| *offset + index * 4);
        let slot = offset.and_then(|offset| bytes.get_mut(offset..offset + 4));
        let missing = || SetupError::Bpf {
            what: name.into(),
            error: "not in .rodata".into(),
        };
        slot.ok_or_else(missing)?
            .copy_from_slice(&value.to_ne_bytes());
        Ok(())
    }
}

fn specialise(
    object: &mut OpenObject,
    constants: &Constants,
    port: u32,
    config: &PortConfig,
    features: Features,
    part: Part,
) -> Result<(), SetupError> {
    let Roles { n3, n6 } = config.roles;
    let mut rodata = object
        .maps_mut()
        .find(|map| map.name().to_string_lossy().ends_with(".rodata"))
        .ok_or_else(|| SetupError::Bpf {
            what: "object".into(),
            error: "no .rodata".into(),
        })?;
    let bytes = rodata.initial_value_mut().unwrap_or_default();
    constants.set(bytes, "tp_features", features.bits())?;
    constants.set(bytes, "tp_port", port)?;
    constants.set(bytes, "tp_roles", u32::from(n3) | u32::from(n6) << 1)?;
    constants.set(bytes, "tp_ni", config.ni.0.into())?;
    constants.set(bytes, "tp_spread", part as u32)?;
    let lanes = config.spread.get(..LANES_MAX).unwrap_or(&config.spread);
    constants.set(bytes, "tp_lanes", lanes.len() as u32)?;
    for (lane, &cpu) in lanes.iter().enumerate() {
        constants.set_element(bytes, "tp_lane_cpu", lane, cpu)?;
    }
    Ok(())
}

/// What a program does for a port whose users are spread over CPUs: `TP_SPREAD_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// All of it: nothing is spread.
    Whole = 0,
    /// On the CPU where packets come in.
    Front = 1,
    /// On the CPU of a lane.
    Lane = 2,
}

/// Number of elements of each map; those not named keep what the object says.
fn capacities(layout: &Layout) -> Result<Vec<(&'static str, u32)>, SetupError> {
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

pub(crate) fn map_named<'a>(maps: &'a Maps, name: &str) -> Result<&'a MapHandle, SetupError> {
    maps.iter()
        .find(|map| map.name() == OsStr::new(name))
        .ok_or_else(|| SetupError::Bpf {
            what: name.into(),
            error: "no such map".into(),
        })
}

fn size(
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
fn empty_maps(layout: &Layout) -> Result<Maps, SetupError> {
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

/// `load` for each port, at the same time: the verifier takes one CPU for each.
fn side_by_side<T: Send>(
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

fn maps_of(object: &Object) -> Result<Maps, SetupError> {
    object
        .maps()
        .filter(|map| !map.name().to_string_lossy().contains(".rodata"))
        .map(|map| MapHandle::try_from(&map).map_err(setup("maps")))
        .collect()
}

impl Program {
    /// Verify and load over these maps, and lanes of its own unless there are some. The maps that it has come back.
    fn load(
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
    fn attach(&mut self, ifindex: u32, mode: Mode) -> Result<OwnedFd, SetupError> {
        let flags = match mode {
            Mode::Driver => XDP_FLAGS_DRV_MODE,
            Mode::Generic => XDP_FLAGS_SKB_MODE,
        };
        // SAFETY: an all-zero options struct is valid; its size is set below.
        let mut options: libbpf_sys::bpf_link_create_opts =
            unsafe { MaybeUninit::zeroed().assume_init() };
        options.sz = size_of_val(&options) as libbpf_sys::size_t;
        options.flags = flags;
        // SAFETY: the descriptor is open and the options are valid for the call.
        let link = unsafe {
            libbpf_sys::bpf_link_create(
                self.fd.as_raw_fd(),
                ifindex as i32,
                libbpf_sys::BPF_XDP,
                &options,
            )
        };
        if link < 0 {
            let error = io::Error::from_raw_os_error(-link);
            return Err(SetupError::Attach {
                name: self.info.interface.clone(),
                mode,
                error,
            });
        }
        self.info.ifindex = ifindex;
        self.info.mode = Some(mode);
        // SAFETY: the kernel has just handed out this descriptor and nobody else has it.
        Ok(unsafe { OwnedFd::from_raw_fd(link) })
    }

    /// Take the place of the program that is attached: each packet meets one or the other.
    fn replace(&self, link: &OwnedFd, lanes: Option<&Lanes>) -> io::Result<()> {
        if let (Some(lanes), Some(lane)) = (lanes, &self.lane) {
            lanes.run(lane)?;
        }
        // SAFETY: both descriptors are open; no options are given.
        let answer = unsafe {
            libbpf_sys::bpf_link_update(link.as_raw_fd(), self.fd.as_raw_fd(), std::ptr::null())
        };
        if answer < 0 {
            return Err(io::Error::from_raw_os_error(-answer));
        }
        Ok(())
    }
}

impl Set {
    fn load(
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

pub(crate) fn program_named<'a>(
    object: &'a Object,
    name: &str,
) -> Result<ProgramMut<'a>, SetupError> {
    object
        .progs_mut()
        .find(|program| program.name() == OsStr::new(name))
        .ok_or_else(|| SetupError::Bpf {
            what: name.into(),
            error: "no such program".into(),
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

impl Xdp {
    /// Load a program for each port; attach none yet.
    pub(crate) fn load(
        layout: &Layout,
        ports: &[PortConfig],
        features: Features,
    ) -> Result<(Self, Memory), SetupError> {
        let ports = ports.get(..PORTS_MAX).unwrap_or(ports);
        let maps = empty_maps(layout)?;
        let loaded = side_by_side(ports, |port, config| {
            Program::load(port, config, features, layout, &maps, None)
        })?;
        let (mut programs, mut lanes) = (Vec::new(), Vec::new());
        for ((program, own), config) in loaded.into_iter().zip(ports) {
            lanes.push(match &program.lane {
                Some(work) => Some(Lanes::start(&own, work, config, features)?),
                None => None,
            });
            programs.push(program);
        }
        let memory = memory(&maps, layout)?;
        let xdp = Self {
            links: Vec::new(),
            sets: vec![Set { features, programs }],
            maps,
            ports: ports.to_vec(),
            lanes,
            layout: layout.clone(),
            loading: None,
            refusals: Refusals::default(),
        };
        Ok((xdp, memory))
    }

    /// Put every port's interface into the redirect map, then attach.
    pub(crate) fn attach(&mut self, memory: &Memory) -> Result<(), SetupError> {
        let mut ifindexes = Vec::new();
        for config in &self.ports {
            ifindexes.push(ifindex_of(&config.name)?);
        }
        for (port, ifindex) in (0u32..).zip(&ifindexes) {
            self.set_redirect(memory, port, *ifindex)?;
        }
        let programs = self.sets[0].programs.iter_mut();
        for ((program, config), ifindex) in programs.zip(&self.ports).zip(ifindexes) {
            self.links.push(program.attach(ifindex, config.mode)?);
        }
        Ok(())
    }

    /// Start to load sets of programs, one after the other, but for those that are there; nothing while others are being
    /// loaded.
    pub(crate) fn prepare(&mut self, sets: &[Features]) -> Result<(), SetupError> {
        let lacking = sets.iter().filter(|&&features| !self.has(features));
        let expected: VecDeque<Features> = lacking.copied().collect();
        if self.loading.is_some() || expected.is_empty() {
            return Ok(());
        }
        let wanted = expected.clone();
        let own = |map: &MapHandle| MapHandle::try_from(map).map_err(setup("maps"));
        let maps: Maps = self.maps.iter().map(own).collect::<Result<_, _>>()?;
        let own = |lanes: &Option<Lanes>| lanes.as_ref().map(Lanes::try_clone).transpose();
        let lanes: Vec<Option<Lanes>> = self.lanes.iter().map(own).collect::<Result<_, _>>()?;
        let (ports, layout) = (self.ports.clone(), self.layout.clone());
        let (done, loaded) = channel();
        thread::Builder::new().name("load".into()).spawn(move || {
            for features in wanted {
                let set = Set::load(features, &ports, &layout, &maps, &lanes);
                // Nobody listens any more when the data path is being taken down.
                if done.send(set).is_err() {
                    return;
                }
            }
        })?;
        self.loading = Some(Loading { expected, loaded });
        Ok(())
    }

    /// Load a set of programs, unless it is there or has been refused; waits for it if it is being loaded.
    pub(crate) fn load_now(&mut self, features: Features) -> Result<(), SetupError> {
        let is_expected = |loading: &&Loading| loading.expected.contains(&features);
        while self.refused(features).is_none()
            && let Some(loading) = self.loading.as_ref().filter(is_expected)
        {
            let loaded = loading.loaded.recv();
            self.take(loaded.unwrap_or_else(|_| Err(thread_gone())));
        }
        if !self.has(features) && self.refused(features).is_none() {
            let (ports, lanes) = (&self.ports, &self.lanes);
            let set = Set::load(features, ports, &self.layout, &self.maps, lanes);
            self.keep(features, set);
        }
        self.refused(features).map_or(Ok(()), Err)
    }

    /// What the kernel said to these programs when it was last asked, if it refused them.
    pub(crate) fn refused(&self, features: Features) -> Option<SetupError> {
        self.refusals.of(features)
    }

    /// When programs were refused last.
    #[cfg(test)]
    pub(crate) fn refused_at(&self) -> impl Iterator<Item = Instant> {
        self.refusals.0.iter().map(|(.., at)| *at)
    }

    /// Load again, in the background, what was refused a while ago.
    pub(crate) fn retry(&mut self, now: Instant) -> Result<(), SetupError> {
        self.prepare(&self.refusals.old(now))
    }

    /// Whether programs are being loaded.
    pub(crate) fn is_loading(&self) -> bool {
        self.loading.is_some()
    }

    /// Take in what has been loaded: whether there was something. Never waits.
    pub(crate) fn take_loaded(&mut self) -> bool {
        let before = self.sets.len();
        while let Some(loading) = &self.loading {
            match loading.loaded.try_recv() {
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => self.take(Err(thread_gone())),
                Ok(loaded) => self.take(loaded),
            }
        }
        self.sets.len() > before
    }

    /// The next one that was expected has come, or cannot be had.
    fn take(&mut self, loaded: Result<Set, SetupError>) {
        let expected = self.loading.as_mut();
        let features = expected.and_then(|loading| loading.expected.pop_front());
        self.loading.take_if(|loading| loading.expected.is_empty());
        if let Some(features) = features {
            self.keep(features, loaded);
        }
    }

    fn keep(&mut self, features: Features, loaded: Result<Set, SetupError>) {
        match loaded {
            Ok(set) => {
                self.refusals.forget(features);
                self.sets.push(set);
            }
            Err(error) => {
                let build = features.build();
                tracing::error!(%error, build, "the kernel refuses programs; they are loaded again in a minute");
                self.refusals.add(features, &error, Instant::now());
            }
        }
    }

    /// Whether [`Self::switch`] would find programs for this.
    pub(crate) fn has(&self, features: Features) -> bool {
        self.sets.iter().any(|set| set.features == features)
    }

    /// Packets meet programs with these features from now on: on every port, or on none if that fails.
    pub(crate) fn switch(&mut self, features: Features) -> io::Result<()> {
        let wanted = self.sets.iter().position(|set| set.features == features);
        let wanted = wanted.ok_or(io::ErrorKind::NotFound)?;
        if wanted == 0 {
            return Ok(());
        }
        for (at, link) in self.links.iter().enumerate() {
            let lanes = self.lanes[at].as_ref();
            if let Err(error) = self.sets[wanted].programs[at].replace(link, lanes) {
                for (before, link) in self.links.iter().enumerate().take(at + 1) {
                    let lanes = self.lanes[before].as_ref();
                    self.sets[0].programs[before].replace(link, lanes)?;
                }
                return Err(error);
            }
        }
        let mut set = self.sets.remove(wanted);
        for (program, before) in set.programs.iter_mut().zip(&self.sets[0].programs) {
            program.info.ifindex = before.info.ifindex;
            program.info.mode = before.info.mode;
        }
        self.sets.insert(0, set);
        Ok(())
    }

    /// Frames redirected to a port leave by this interface.
    pub(crate) fn set_redirect(
        &self,
        memory: &Memory,
        port: u32,
        ifindex: u32,
    ) -> Result<(), SetupError> {
        let map = map_named(&self.maps, "ports")?;
        map.update(&port.to_ne_bytes(), &ifindex.to_ne_bytes(), MapFlags::ANY)
            .map_err(setup("ports"))?;
        let slot = &memory.config[0].port_ifindex[port as usize];
        slot.store(ifindex, std::sync::atomic::Ordering::Release);
        Ok(())
    }

    pub(crate) fn infos(&self) -> impl Iterator<Item = &ProgramInfo> {
        self.sets[0].programs.iter().map(|program| &program.info)
    }

    /// A ring: of packets for the slow path, or of those that somebody follows.
    pub(crate) fn ring(&self, name: &str) -> Result<MapHandle, SetupError> {
        MapHandle::try_from(map_named(&self.maps, name)?).map_err(setup(name))
    }

    /// A port's program, to be run over frames by the kernel.
    pub(crate) fn runner(&self, port: usize) -> Result<Runner, SetupError> {
        let program = self.sets[0].programs[port].fd.try_clone()?;
        Ok(Runner { program })
    }
}

/// A program, to be run over frames by the kernel (`BPF_PROG_TEST_RUN`); from any thread.
#[derive(Debug)]
pub struct Runner {
    program: OwnedFd,
}

impl Runner {
    /// XDP's verdict, and the frame afterwards. At least 14 octets.
    pub fn test_run(&self, frame: &[u8]) -> io::Result<(u32, Vec<u8>)> {
        let mut out = vec![0u8; frame.len() + 512];
        // SAFETY: an all-zero options struct is valid; its size is set below.
        let mut options: libbpf_sys::bpf_test_run_opts =
            unsafe { MaybeUninit::zeroed().assume_init() };
        options.sz = size_of_val(&options) as libbpf_sys::size_t;
        options.data_in = frame.as_ptr().cast();
        options.data_size_in = frame.len() as u32;
        options.data_out = out.as_mut_ptr().cast();
        options.data_size_out = out.len() as u32;
        // SAFETY: both buffers live through the call and are as long as they are said to be.
        let answer =
            unsafe { libbpf_sys::bpf_prog_test_run_opts(self.program.as_raw_fd(), &mut options) };
        if answer < 0 {
            return Err(io::Error::from_raw_os_error(-answer));
        }
        out.truncate(options.data_size_out as usize);
        Ok((options.retval, out))
    }
}

fn thread_gone() -> SetupError {
    SetupError::Bpf {
        what: "load".into(),
        error: "the thread is gone".into(),
    }
}

fn memory(maps: &Maps, layout: &Layout) -> Result<Memory, SetupError> {
    fn view<T: crate::memory::Shared>(
        maps: &Maps,
        name: &str,
        len: usize,
    ) -> Result<View<T>, SetupError> {
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
