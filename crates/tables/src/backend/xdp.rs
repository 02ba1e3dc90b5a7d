//! The pipeline as XDP programs: loaded once for each interface, over the same maps.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::Instant;

use libbpf_rs::{MapCore, MapFlags, MapHandle};

use super::{Backend, Builds, ProgramInfo, Records, Runner, Supply, ifindex_of};
use crate::abi::{Features, PORTS_MAX};
use crate::engine::Engine;
use crate::error::SetupError;
use crate::grace::Barrier;
use crate::handover::{Handover, Inbox};
use crate::layout::{Layout, Memory};
use crate::port::PortConfig;
use crate::ring::Ring;

mod builds;
mod lanes;
mod link;
mod maps;
pub(crate) mod n4;
mod object;
pub(crate) mod pins;
mod program;
mod refusals;
mod shaper;

use lanes::Lanes;
use link::{ifindex_under, is_live};
use maps::{LANE_WORK, LATER, Maps, empty_maps, map_named, memory};
use n4::N4;
use object::setup;
use pins::Pins;
use program::{Program, Set, side_by_side, thread_gone};
use refusals::Refusals;
use shaper::Shaper;

/// All programs and the maps that they share. Dropping it detaches them, unless they are pinned: an attachment is a link that
/// lives as long as its descriptor, so that not even a crash leaves it behind.
#[derive(Debug)]
pub(crate) struct Xdp {
    /// `None`: nothing outlives this process.
    pins: Option<Pins>,
    /// Of each port, once they are attached; `None`: its interface is gone.
    links: Vec<Option<OwnedFd>>,
    shaper: Option<Shaper>,
    /// Frames above their rate that were finished beside programs, for the shaper, if there is to be one.
    given: Option<Arc<Inbox>>,
    /// The one that packets meet first, then those that may be wanted again: no more than there are builds.
    sets: Vec<Set>,
    maps: Maps,
    ports: Vec<PortConfig>,
    /// Lanes of each port.
    lanes: Vec<Option<Lanes>>,
    layout: Layout,
    memory: Memory,
    loading: Option<Loading>,
    refusals: Refusals,
}

/// A thread that loads one set after the other.
#[derive(Debug)]
struct Loading {
    /// Sets that have not come yet, in their order.
    expected: VecDeque<Features>,
    loaded: Receiver<Result<Set, SetupError>>,
}

impl Xdp {
    /// Whether programs with these features are loaded.
    fn has(&self, features: Features) -> bool {
        self.sets.iter().any(|set| set.features == features)
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

    /// Whether frames that are redirected to a port have an interface to leave by.
    fn is_redirected_to(&self, port: usize) -> bool {
        let map = map_named(&self.maps, "ports");
        let key = (port as u32).to_ne_bytes();
        map.is_ok_and(|map| matches!(map.lookup(&key, MapFlags::ANY), Ok(Some(_))))
    }

    fn start_shaper(&mut self) -> Result<(), SetupError> {
        if let (Some(shaping), Some(given)) = (self.layout.shaping, &self.given) {
            let from = (self.ring_named(LATER)?, Arc::clone(given));
            let (memory, ports) = (self.memory.clone(), &self.ports);
            self.shaper = Some(Shaper::start(shaping, from, memory, ports)?);
        }
        Ok(())
    }

    fn ring_named(&self, name: &str) -> Result<Ring, SetupError> {
        let map = map_named(&self.maps, name)?;
        let map = MapHandle::try_from(map).map_err(setup(name))?;
        Ok(map.into())
    }

    /// Packets of a port's interface meet its program from now on. Those of a link that a process of before has left do so
    /// without a gap.
    fn link(&mut self, port: usize, ifindex: u32) -> Result<OwnedFd, SetupError> {
        let missing = || SetupError::NotAnew(port);
        let config = self.ports.get(port).ok_or_else(missing)?;
        let program = self.sets[0].programs.get_mut(port).ok_or_else(missing)?;
        let Some(pins) = &self.pins else {
            return program.attach(ifindex, config.mode);
        };
        if let Some(link) = pins.link(config)? {
            if ifindex_under(link.as_fd()) == Some(ifindex) && program.take_over(&link)? {
                program.info.ifindex = ifindex;
                program.info.mode = Some(config.mode);
                return Ok(link);
            }
            link::detach(link.as_fd());
            pins.unpin_link(config);
        }
        let link = program.attach(ifindex, config.mode)?;
        // No reason to leave users without a UPF.
        if let Err(error) = pins.pin_link(config, link.as_fd()) {
            tracing::error!(%error, interface = config.name, "its packets stop with this process");
        }
        Ok(link)
    }

    /// Frames that are redirected to ports leave by their interfaces, which come with it.
    fn redirect(&self) -> Result<Vec<u32>, SetupError> {
        let ifindexes = self.ports.iter().map(|config| ifindex_of(&config.name));
        let ifindexes: Vec<u32> = ifindexes.collect::<Result<_, _>>()?;
        for (port, ifindex) in (0u32..).zip(&ifindexes) {
            self.set_redirect(port, *ifindex)?;
        }
        Ok(ifindexes)
    }

    fn load_over(
        layout: &Layout,
        ports: &[PortConfig],
        features: Features,
        pins: Option<&Pins>,
    ) -> Result<Self, SetupError> {
        let ports = ports.get(..PORTS_MAX).unwrap_or(ports);
        let maps = empty_maps(layout)?;
        if let Some(pins) = pins {
            pins.pin_maps(&maps)?;
        }
        let loaded = side_by_side(ports, |port, config| {
            Program::load(port, config, features, layout, &maps, None)
        })?;
        let (mut programs, mut lanes) = (Vec::new(), Vec::new());
        for ((program, own), config) in loaded.into_iter().zip(ports) {
            let own = match &program.lane {
                Some(work) => Some(Lanes::start(&own, work, config, features)?),
                None => None,
            };
            if let (Some(pins), Some(own)) = (pins, &own) {
                pins.pin_lane_work(programs.len(), own.map(LANE_WORK))?;
            }
            lanes.push(own);
            programs.push(program);
        }
        let memory = memory(&maps, layout)?;
        Ok(Self {
            pins: None,
            links: Vec::new(),
            shaper: None,
            // Bounded by the count of all frames that wait: `tp_leave_later()`.
            given: match layout.shaping {
                Some(_) => Some(Arc::new(Inbox::new(usize::MAX)?)),
                None => None,
            },
            sets: vec![Set { features, programs }],
            maps,
            ports: ports.to_vec(),
            lanes,
            layout: layout.clone(),
            memory,
            loading: None,
            refusals: Refusals::default(),
        })
    }

    fn replace_on(&self, port: usize, set: usize) -> io::Result<()> {
        let link = self.links.get(port).and_then(Option::as_ref);
        self.sets[set].programs[port].replace(link, self.lanes[port].as_ref())
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
}

impl Backend for Xdp {
    /// Folder of what outlives this process.
    type Setup = Option<Pins>;

    fn builds(layout: &Layout, ports: &[PortConfig]) -> Builds {
        builds::for_ports(ports, layout.shaping.is_some())
    }

    fn load(
        layout: &Layout,
        ports: &[PortConfig],
        features: Features,
        pins: Self::Setup,
    ) -> Result<Self, SetupError> {
        let mut loaded = Self::load_over(layout, ports, features, pins.as_ref())?;
        loaded.pins = pins;
        Ok(loaded)
    }

    fn memory(&self) -> &Memory {
        &self.memory
    }

    fn handover(&self) -> Handover {
        let given = self.given.as_ref().map(Arc::clone);
        given.map_or(Handover::Nobody, Handover::Thread)
    }

    fn lead(&mut self) -> Result<bool, SetupError> {
        self.redirect().map(|_| true)
    }

    // Every port's interface is in the redirect map before the first program is attached.
    fn attach(&mut self) -> Result<(), SetupError> {
        let ifindexes = self.redirect()?;
        self.start_shaper()?;
        if let Some(pins) = &self.pins {
            pins.give_way(&self.ports, &ifindexes);
        }
        for (port, ifindex) in ifindexes.into_iter().enumerate() {
            let link = self.link(port, ifindex)?;
            self.links.push(Some(link));
            if let Some(pins) = &self.pins {
                pins.are_met();
            }
        }
        if let Some(pins) = &self.pins {
            pins.retain_links(&self.ports);
        }
        Ok(())
    }

    fn pins(&self) -> Option<&Pins> {
        self.pins.as_ref()
    }

    fn replace(&mut self, features: Features) -> io::Result<()> {
        let wanted = self.sets.iter().position(|set| set.features == features);
        let wanted = wanted.ok_or(io::ErrorKind::NotFound)?;
        if wanted == 0 {
            return Ok(());
        }
        // Before they are attached, too: lanes are there already.
        for at in 0..self.ports.len() {
            if let Err(error) = self.replace_on(at, wanted) {
                (0..=at).try_for_each(|before| self.replace_on(before, 0))?;
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

    // The kernel has taken an interface that went away out of the redirect map.
    fn attach_port(&mut self, port: usize, ifindex: u32) -> Result<(), SetupError> {
        self.detach_port(port);
        let missing = || SetupError::NotAnew(port);
        let number = u32::try_from(port).map_err(|_| missing())?;
        // Before packets meet the program, as at the start.
        self.set_redirect(number, ifindex)?;
        let link = self.link(port, ifindex)?;
        *self.links.get_mut(port).ok_or_else(missing)? = Some(link);
        Ok(())
    }

    fn detach_port(&mut self, port: usize) {
        if let Some(link) = self.links.get_mut(port).and_then(Option::take) {
            // Pins let it go later than another program may come.
            link::detach(link.as_fd());
        }
        if let Some((pins, port)) = self.pins.as_ref().zip(self.ports.get(port)) {
            pins.unpin_link(port);
        }
        if let Some(program) = self.sets[0].programs.get_mut(port) {
            (program.info.ifindex, program.info.mode) = (0, None);
        }
        if let Some(slot) = self.memory.config[0].port_ifindex.get(port) {
            slot.store(0, Ordering::Release);
        }
    }

    // A move to another network namespace and back keeps the link, and takes the interface out of the redirect map.
    fn is_attached(&self, port: usize) -> bool {
        let link = self.links.get(port).and_then(Option::as_ref);
        link.is_some_and(|link| is_live(link.as_fd())) && self.is_redirected_to(port)
    }

    fn barrier(&self) -> io::Result<Barrier> {
        Barrier::kernel()
    }

    fn supply(&self, features: Features) -> Supply {
        if self.refused(features).is_some() {
            Supply::Refused
        } else if self.has(features) {
            Supply::AtHand
        } else {
            Supply::Loadable
        }
    }

    fn refused(&self, features: Features) -> Option<SetupError> {
        self.refusals.of(features)
    }

    #[cfg(test)]
    fn refused_at(&self) -> Vec<Instant> {
        self.refusals.times()
    }

    // Waits for them if they are being loaded.
    fn load_now(&mut self, features: Features) -> Result<(), SetupError> {
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

    // Nothing while others are being loaded.
    fn prepare(&mut self, sets: &[Features]) -> Result<(), SetupError> {
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

    fn retry(&mut self, now: Instant) -> Result<(), SetupError> {
        self.prepare(&self.refusals.old(now))
    }

    fn is_loading(&self) -> bool {
        self.loading.is_some()
    }

    fn take_loaded(&mut self) -> bool {
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

    fn set_redirect(&self, port: u32, ifindex: u32) -> Result<(), SetupError> {
        let map = map_named(&self.maps, "ports")?;
        map.update(&port.to_ne_bytes(), &ifindex.to_ne_bytes(), MapFlags::ANY)
            .map_err(setup("ports"))?;
        let slot = &self.memory.config[0].port_ifindex[port as usize];
        slot.store(ifindex, Ordering::Release);
        Ok(())
    }

    fn ring(&self, of: Records) -> Result<Option<Ring>, SetupError> {
        let name = match of {
            Records::Alarms => "alarms",
            Records::Copies => "copies",
            Records::Events => "events",
            Records::Held => "held",
            Records::Traced => "traced",
        };
        self.ring_named(name).map(Some)
    }

    fn infos(&self) -> Vec<ProgramInfo> {
        let programs = self.sets[0].programs.iter();
        programs.map(|program| program.info.clone()).collect()
    }

    fn n4(&self, places: u32, aliases: u32) -> Option<Result<(N4, Engine), SetupError>> {
        Some(N4::load(&self.maps, (places, aliases), self.pins.as_ref()))
    }

    fn runner(&self, port: usize) -> Option<Result<Runner, SetupError>> {
        let program = self.sets[0].programs[port].fd.try_clone();
        Some(program.map(Runner::new).map_err(SetupError::from))
    }
}
