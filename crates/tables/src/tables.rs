//! What the control thread owns.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use ipnet::IpNet;
use libbpf_rs::MapHandle;
use session::compiled::{
    Buffered, Compiled, Counters, EndedTunnel, HoldLimits, NiId, NoRoom, PdrId, PredefinedId,
};

use crate::abi::{Features, N3_ADDRS_MAX, PORTS_MAX};
use crate::adapt::{Adaptation, Replacement, Supply};
use crate::advertise::Advertised;
use crate::alarms::Alarms;
use crate::backend::xdp::{ProgramInfo, Runner, Xdp};
use crate::buffers::{BufferThread, HeldByHand, HoldBounds, Holder, Order, Orders};
use crate::error::SetupError;
use crate::finish::{Finisher, Outgoing};
use crate::grace::{Grace, Passing};
use crate::handle::Handle;
use crate::host::{self, Host, Run};
use crate::layout::{Layout, Memory};
use crate::marker::{EndMarkers, end_marker};
use crate::options::Options;
use crate::owners::Owners;
use crate::port::{Mode, PortConfig, Roles};
use crate::router::Routers;
use crate::stats::{Counting, PortTotals};
use crate::store::{Retired, Store};
use crate::trace::TraceKey;
use nexthop::{Family, NextHop, NextHopTables, Peer, PeerChange, View};

/// How full a table is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fill {
    /// As [`NoRoom`] names it.
    pub table: &'static str,
    /// In use, or in a grace period.
    pub used: u64,
    /// At most.
    pub capacity: u64,
}

#[derive(Debug)]
enum Backend {
    Host(Box<Host>),
    Xdp(Box<Xdp>),
}

impl Backend {
    /// Programs that are loaded take over.
    fn switch(&mut self, adaptation: &mut Adaptation, features: Features) -> io::Result<()> {
        let start = Instant::now();
        match self {
            Self::Host(host) => host.switch(features),
            Self::Xdp(xdp) => xdp.switch(features)?,
        }
        adaptation.replaced(features, start.elapsed());
        Ok(())
    }

    /// Programs with these features are live, and no packet is under way in others, when this returns.
    /// That takes microseconds, or a grace period (some 10 ms) when wider programs take over; up to a second more in the
    /// first second, while the verifier is still busy with them. What the kernel has refused costs no time again.
    fn serve(
        &mut self,
        adaptation: &mut Adaptation,
        grace: &Passing,
        needs: Features,
    ) -> Result<(), NoRoom> {
        if adaptation.serves(needs) {
            return Ok(());
        }
        let refused = |error: io::Error| {
            tracing::error!(%error, "programs are not replaced");
            NoRoom { table: "programs" }
        };
        let wider = loop {
            let wider = adaptation.wider(needs, |build| self.supply(build));
            let wider = wider.ok_or(NoRoom { table: "programs" })?;
            let loaded = match self {
                Self::Xdp(xdp) => xdp.load_now(wider),
                Self::Host(_) => Ok(()),
            };
            // What cannot be loaded is passed over from now on.
            if loaded.is_ok() {
                break wider;
            }
        };
        self.switch(adaptation, wider).map_err(refused)?;
        grace.pass().map_err(refused)
    }

    fn supply(&self, features: Features) -> Supply {
        match self {
            Self::Xdp(xdp) if xdp.refused(features).is_some() => Supply::Refused,
            Self::Xdp(xdp) if !xdp.has(features) => Supply::Loadable,
            Self::Xdp(_) | Self::Host(_) => Supply::AtHand,
        }
    }
}

/// The tables and the pipeline that reads them.
#[derive(Debug)]
pub struct Tables {
    // Before the store, so that programs are detached before the maps go.
    backend: Backend,
    pub(crate) store: Store,
    ports: Vec<PortConfig>,
    adaptation: Adaptation,
    /// `None`: nobody hears of tunnels that were left.
    end_markers: Option<EndMarkers>,
    routers: Routers,
}

/// Differs from start to start, so that nobody can aim at one bucket.
fn salt() -> u64 {
    RandomState::new().build_hasher().finish()
}

impl Tables {
    /// Ordinary memory and the pipeline in this process.
    pub fn host(
        layout: &Layout,
        ports: &[PortConfig],
        options: &Options,
    ) -> Result<Self, SetupError> {
        check_ports(ports)?;
        let memory = host::memory(layout)?;
        let adaptation = adaptation(options, Features::NONE, false);
        let features = adaptation.live();
        let mut host = Host::new(memory.clone());
        ports.iter().for_each(|port| host.add_port(port, features));
        let store = new_store(memory, layout, Grace::same_thread(), None, options)?;
        host.report_to(Arc::clone(&store.alarms.told));
        let backend = Backend::Host(Box::new(host));
        Ok(Self::over(backend, store, ports.to_vec(), adaptation))
    }

    /// Load a program for each port. Nothing sees packets before [`Self::attach`].
    pub fn xdp(
        layout: &Layout,
        ports: &[PortConfig],
        options: &Options,
    ) -> Result<Self, SetupError> {
        check_ports(ports)?;
        let adaptation = adaptation(options, always_for(ports), spreads(ports));
        let (xdp, memory) = Xdp::load(layout, ports, adaptation.live())?;
        Self::over_kernel(
            Box::new(xdp),
            memory,
            layout,
            ports.to_vec(),
            (options, adaptation),
        )
    }

    fn over_kernel(
        xdp: Box<Xdp>,
        memory: Memory,
        layout: &Layout,
        ports: Vec<PortConfig>,
        (options, adaptation): (&Options, Adaptation),
    ) -> Result<Self, SetupError> {
        let alarms = Some(xdp.ring("alarms")?);
        let store = new_store(memory, layout, Grace::kernel()?, alarms, options)?;
        Ok(Self::over(Backend::Xdp(xdp), store, ports, adaptation))
    }

    fn over(
        backend: Backend,
        store: Store,
        ports: Vec<PortConfig>,
        adaptation: Adaptation,
    ) -> Self {
        Self {
            backend,
            store,
            ports,
            adaptation,
            end_markers: None,
            routers: Routers::default(),
        }
    }

    /// The same ports over empty tables, with the programs that [`Self::xdp`] would have loaded for these options; those
    /// that were loaded before are not loaded again. For tests, whose time would be the verifier's otherwise.
    pub fn emptied(self, layout: &Layout, options: &Options) -> Result<Self, SetupError> {
        let Self {
            backend,
            store,
            ports,
            ..
        } = self;
        let Backend::Xdp(mut xdp) = backend else {
            return Self::host(layout, &ports, options);
        };
        let memory = store.mem.clone();
        drop(store);
        memory.clear();
        let adaptation = adaptation(options, always_for(&ports), spreads(&ports));
        xdp.load_now(adaptation.live())?;
        xdp.switch(adaptation.live())?;
        Self::over_kernel(xdp, memory, layout, ports, (options, adaptation))
    }

    /// Attach every program to its interface. On an error those already attached are detached when
    /// `self` is dropped. Programs never outlive this process. Wider programs are loaded from now on, in a
    /// thread of their own, before something needs them.
    pub fn attach(&mut self) -> Result<(), SetupError> {
        match &mut self.backend {
            Backend::Host(_) => Ok(()),
            Backend::Xdp(xdp) => {
                xdp.attach(&self.store.mem)?;
                xdp.prepare(&self.adaptation.ahead())
            }
        }
    }

    /// Frames redirected to a port leave by this interface. [`Self::attach`] does this for all ports;
    /// alone it is for [`Self::test_run`], which needs a way out but uses none.
    pub fn set_redirect(&mut self, port: u32, ifindex: u32) -> Result<(), SetupError> {
        match &mut self.backend {
            Backend::Host(_) => Ok(()),
            Backend::Xdp(xdp) => xdp.set_redirect(&self.store.mem, port, ifindex),
        }
    }

    /// Our GTP-U addresses, at most eight of each family.
    pub fn set_local(&mut self, n3: &[IpAddr]) -> Result<(), NoRoom> {
        let v4 = n3.iter().filter(|addr| addr.is_ipv4()).count();
        if v4.max(n3.len() - v4) > N3_ADDRS_MAX {
            return Err(NoRoom {
                table: "n3_addresses",
            });
        }
        self.store.set_local(n3);
        Ok(())
    }

    /// `ni` shares its port with `home`, the lowest network instance there. Before its pools and
    /// sessions.
    pub fn set_home(&mut self, ni: NiId, home: NiId) {
        self.store.set_home(ni, home);
    }

    /// Whether UEs of a network instance reach each other within this UPF; they do unless told otherwise.
    pub fn set_ue_to_ue(&mut self, ni: NiId, allowed: bool) {
        self.store.set_ue_to_ue(ni, allowed);
    }

    /// What the router of a network instance calls itself in ICMP errors, rather than by the address of its N6
    /// interface.
    pub fn set_router_address(&mut self, ni: NiId, addr: IpAddr) {
        self.routers.configure(ni, addr);
    }

    /// From now on UEs of a network instance that ask for their router are answered here, unless a PDR leads them
    /// elsewhere.
    pub fn advertise_router(&mut self, ni: NiId, what: Advertised) {
        self.routers.advertise(ni, what);
    }

    /// UE addresses of a network instance that lie together: packets to those that no session has are
    /// dropped under a reason of their own rather than left to the kernel, as far as programs serve their
    /// family. Of IPv4, they are found without a search; of IPv6, there may be 64 pools.
    pub fn register_pool(&mut self, ni: NiId, pool: IpNet) -> Result<(), NoRoom> {
        self.store.register_pool(ni, pool)
    }

    /// From now on the ends of tunnels that a path switch leaves are told so.
    pub fn send_end_markers(&mut self, markers: EndMarkers) {
        self.end_markers = Some(markers);
    }

    /// Reuse what has had its grace period. Call it now and then, at best ten times a second; it
    /// never waits.
    pub fn maintain(&mut self) {
        self.store.maintain();
        self.store.look_again();
        if let Err(error) = self.adapt(Instant::now()) {
            tracing::warn!(%error, "programs cannot be replaced");
            self.adaptation.give_up();
        }
    }

    /// Whether [`Self::maintain`] has something to wait for.
    pub fn needs_maintenance(&self) -> bool {
        !self.store.grace.is_empty()
            || !self.store.alarms.again.is_empty()
            || self.is_settling()
            || matches!(&self.backend, Backend::Xdp(xdp) if xdp.is_loading())
    }

    /// What the live programs are specialised to.
    pub fn features(&self) -> Features {
        self.adaptation.live()
    }

    /// Whether other programs are to take over, once the need for them has been the same for long enough.
    pub fn is_settling(&self) -> bool {
        self.adaptation.is_settling(self.store.needs())
    }

    /// How often programs have taken over from others, and the last time.
    pub fn replacements(&self) -> (u64, Option<Replacement>) {
        (self.adaptation.count, self.adaptation.last)
    }

    /// Change to the narrowest build with what is in use, when that has settled. Never waits: it is
    /// loaded in a thread of its own.
    fn adapt(&mut self, now: Instant) -> Result<(), SetupError> {
        let needs = self.store.needs();
        if let Backend::Xdp(xdp) = &mut self.backend {
            if xdp.take_loaded() {
                self.adaptation.hope();
            }
            xdp.retry(now)?;
        }
        match self.adaptation.due(needs, now) {
            Some(wanted) => self.change_to(wanted).map(drop),
            None => Ok(()),
        }
    }

    /// These programs take over, now or, if they must be loaded first, when this is asked again after that. Whether they
    /// have. Never waits.
    fn change_to(&mut self, wanted: Features) -> Result<bool, SetupError> {
        if let Backend::Xdp(xdp) = &mut self.backend
            && !xdp.has(wanted)
        {
            xdp.refused(wanted).map_or(Ok(()), Err)?;
            xdp.prepare(&[wanted])?;
            return Ok(false);
        }
        self.backend.switch(&mut self.adaptation, wanted)?;
        Ok(true)
    }

    fn serve(&mut self, needs: Features) -> Result<(), NoRoom> {
        let pass = self.store.grace.passing();
        self.backend.serve(&mut self.adaptation, &pass, needs)
    }

    /// The programs, in the order of ports; none on the host.
    pub fn programs(&self) -> Vec<ProgramInfo> {
        match &self.backend {
            Backend::Host(_) => Vec::new(),
            Backend::Xdp(xdp) => xdp.infos().cloned().collect(),
        }
    }

    /// The ports, in order.
    pub fn ports(&self) -> &[PortConfig] {
        &self.ports
    }

    /// Reads counters; may be sent to other threads.
    pub fn counting(&self) -> Counting {
        Counting::new(self.store.mem.cpus.clone(), self.store.mem.slow.clone())
    }

    /// What each port did with frames.
    pub fn totals(&self) -> Vec<PortTotals> {
        let counting = self.counting();
        (0..self.ports.len())
            .map(|port| counting.port(port))
            .collect()
    }

    /// How full the tables are.
    pub fn fill(&self) -> Vec<Fill> {
        let store = &self.store;
        let lines = [
            &store.entries,
            &store.exts,
            &store.meters,
            &store.nexthops,
            store.peers.lines(),
        ];
        let mut fill: Vec<Fill> = lines
            .map(|lines| (lines.name(), lines.used(), lines.capacity()))
            .into_iter()
            .chain(
                [&store.rules, &store.routes]
                    .map(|runs| (runs.name(), runs.used(), runs.capacity())),
            )
            .chain([
                (
                    "buckets",
                    store.index.buckets.used(),
                    store.index.buckets.capacity(),
                ),
                (
                    "ue_pages",
                    store.index.pages.used(),
                    store.index.pages.capacity(),
                ),
            ])
            .map(|(table, used, capacity)| Fill {
                table,
                used: used.into(),
                capacity: capacity.into(),
            })
            .collect();
        let grace = store.grace.len() as u64;
        fill.push(Fill {
            table: "grace",
            used: grace,
            capacity: u64::MAX,
        });
        fill
    }

    /// Readable when [`Self::crossings`] has something to tell.
    pub fn alarms(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.store.alarms.fds()
    }

    /// Sessions whose PDRs have forwarded what they were armed for, none twice; of so many alarms at most. Whether there are
    /// more. Never waits.
    pub fn crossings(&mut self, at_most: usize, seids: &mut Vec<u64>) -> io::Result<bool> {
        self.store.crossings(at_most, seids)
    }

    /// Bytes that packets under way added to PDRs whose session, or who themselves, had just gone.
    pub fn late_bytes(&self) -> u64 {
        self.store.late_bytes
    }

    /// The ring that feeds the slow path; `None` on the host.
    pub fn events(&self) -> Result<Option<MapHandle>, SetupError> {
        match &self.backend {
            Backend::Host(_) => Ok(None),
            Backend::Xdp(xdp) => xdp.ring("events").map(Some),
        }
    }

    /// The ring of duplicates that user space is to send; `None` on the host.
    pub fn copies(&self) -> Result<Option<MapHandle>, SetupError> {
        match &self.backend {
            Backend::Host(_) => Ok(None),
            Backend::Xdp(xdp) => xdp.ring("copies").map(Some),
        }
    }

    /// The ring of packets that are followed; `None` on the host.
    pub fn traced(&self) -> Result<Option<MapHandle>, SetupError> {
        match &self.backend {
            Backend::Host(_) => Ok(None),
            Backend::Xdp(xdp) => xdp.ring("traced").map(Some),
        }
    }

    /// Answer unknown TEIDs so often from now on, per second and CPU; 0: not at all.
    pub fn set_error_indications(&self, per_s: u32) {
        let config = &self.store.mem.config[0];
        config
            .error_indication_ns
            .store(spacing(per_s), Ordering::Relaxed);
    }

    /// Report packets with these keys, and no others, to [`Self::traced`]. At most
    /// 64 keys are; those beyond are left out. While there are none, programs
    /// know nothing of traces. Whether that is so from now on: for the first keys, and after the last ones, general programs
    /// are loaded in the background, about a second, until when this is to be asked again. Never waits.
    pub fn follow(&mut self, keys: &[(TraceKey, u32)]) -> Result<bool, SetupError> {
        crate::trace::write_keys(&self.store.mem.trace_keys, keys);
        self.adaptation.follow(!keys.is_empty());
        let general = self.adaptation.general();
        if general == self.adaptation.live()
            || (keys.is_empty() && !self.features().contains(Features::TRACE))
        {
            return Ok(true);
        }
        if let Backend::Xdp(xdp) = &mut self.backend {
            xdp.take_loaded();
        }
        self.change_to(general)
    }

    /// The pipeline for packets that the fast path cannot finish, for one other thread.
    pub fn finisher(&self) -> Finisher {
        let mut host = Host::aside(
            self.store.mem.clone(),
            &self.ports,
            self.adaptation.general(),
        );
        host.report_to(Arc::clone(&self.store.alarms.told));
        let (grace, holding) = (&self.store.grace, &self.store.holding);
        Finisher::new(
            host,
            grace.bystander(),
            self.routers.clone(),
            Arc::clone(holding),
        )
    }

    /// Let packets of FARs with BUFF wait, within these bounds; before, they are dropped. `listener` hears of the first
    /// that waits for a PDR; it must not wait. `None` on the host.
    pub fn hold(
        &self,
        bounds: HoldBounds,
        listener: impl FnMut(Buffered) + Send + 'static,
    ) -> Result<Option<BufferThread>, SetupError> {
        let Backend::Xdp(xdp) = &self.backend else {
            return Ok(None);
        };
        let thread = BufferThread::start(self.holder(), bounds, xdp.ring("held")?, listener)?;
        self.hold_up_to(bounds);
        Ok(Some(thread))
    }

    /// As [`Self::hold`], but whoever calls moves packets: those of the ring [`Self::held_packets`], or on the host those
    /// that a run hands over.
    pub fn hold_by_hand(&self, bounds: HoldBounds) -> HeldByHand {
        self.hold_up_to(bounds);
        HeldByHand::new(self.holder(), bounds)
    }

    /// The ring of packets that wait; `None` on the host.
    pub fn held_packets(&self) -> Result<Option<MapHandle>, SetupError> {
        match &self.backend {
            Backend::Host(_) => Ok(None),
            Backend::Xdp(xdp) => xdp.ring("held").map(Some),
        }
    }

    fn holder(&self) -> Holder {
        let general = self.adaptation.general();
        let mut host = Host::aside(self.store.mem.clone(), &self.ports, general);
        host.report_to(Arc::clone(&self.store.alarms.told));
        Holder {
            host,
            bystander: self.store.grace.bystander(),
            owners: self.store.owners.clone(),
            finisher: self.finisher(),
            orders: Arc::clone(&self.store.holding),
        }
    }

    fn hold_up_to(&self, bounds: HoldBounds) {
        let max = &self.store.mem.config[0].held_max;
        max.store(bounds.packets_per_session, Ordering::Release);
    }

    /// Run one frame through a port of the host pipeline. `None` on XDP.
    pub fn run(&self, port: usize, frame: &[u8], now_ns: u64) -> Option<Run> {
        match &self.backend {
            Backend::Host(host) => Some(host.run(port, frame, now_ns)),
            Backend::Xdp(_) => None,
        }
    }

    /// Have the kernel run a port's program over a frame: XDP's verdict and the frame afterwards.
    /// `None` on the host.
    pub fn test_run(&self, port: usize, frame: &[u8]) -> Option<io::Result<(u32, Vec<u8>)>> {
        let runner = self.runner(port)?;
        Some(
            runner
                .map_err(io::Error::other)
                .and_then(|runner| runner.test_run(frame)),
        )
    }

    /// A port's program, to be run over frames by the kernel; `None` on the host.
    pub fn runner(&self, port: usize) -> Option<Result<Runner, SetupError>> {
        match &self.backend {
            Backend::Host(_) => None,
            Backend::Xdp(xdp) => Some(xdp.runner(port)),
        }
    }
}

fn check_ports(ports: &[PortConfig]) -> Result<(), SetupError> {
    match ports.len() {
        0 => Err(SetupError::NoPorts),
        n if n > PORTS_MAX => Err(SetupError::TooManyPorts(n)),
        _ => Ok(()),
    }
}

/// Between so many events a second, in nanoseconds; 0: there are none.
fn spacing(per_s: u32) -> u32 {
    1_000_000_000u32.checked_div(per_s).unwrap_or(0)
}

fn new_store(
    memory: Memory,
    layout: &Layout,
    grace: Grace<Retired>,
    alarms: Option<MapHandle>,
    options: &Options,
) -> io::Result<Store> {
    let config = &memory.config[0];
    config
        .error_indication_ns
        .store(spacing(options.error_indications_per_s), Ordering::Relaxed);
    config
        .echo_ns
        .store(spacing(options.echo_per_s), Ordering::Relaxed);
    config
        .icmp_ns
        .store(spacing(options.icmp_errors_per_s), Ordering::Relaxed);
    let owners = Owners::new(memory.entries.len())?;
    let parts = (owners, Alarms::new(alarms)?, Orders::new()?);
    let mut store = Store::new(memory, layout, grace, parts, salt());
    store.peers.set_udp6_checksum(options.udp6_checksum);
    store.fill_first_nexthop();
    Ok(store)
}

/// Programs that adapt to what is in use, beside `also`, unless the options fix them.
fn adaptation(options: &Options, also: Features, spread: bool) -> Adaptation {
    if let Some(fixed) = options.features {
        return Adaptation::fixed(fixed);
    }
    // Only one build knows of users that are spread over CPUs, and the general one.
    let builds: &[Features] = match spread {
        true => &[Features::BUILD_COMMON, Features::ALL],
        false => &[
            Features::BUILD_PLAIN,
            Features::BUILD_COMMON,
            Features::BUILD_OUTER6,
            Features::BUILD_RELAY,
            Features::ALL,
        ],
    };
    let left_out = Features::ATOMIC.without(also);
    let builds = builds.iter().map(|build| build.without(left_out));
    let base = match options.outer6 {
        true => also.with(Features::OUTER6),
        false => also,
    };
    Adaptation::new(builds.collect(), base, options.settle)
}

fn spreads(ports: &[PortConfig]) -> bool {
    ports.iter().any(|port| !port.spread.is_empty())
}

/// Atomic counters where packets of one direction can arrive on several CPUs at once. Meters are atomic anyway.
fn always_for(ports: &[PortConfig]) -> Features {
    let several = |role: fn(&Roles) -> bool| {
        let ports = ports.iter().filter(|port| role(&port.roles));
        ports.map(receive_queues).sum::<usize>() > 1
    };
    if several(|roles| roles.n3) || several(|roles| roles.n6) {
        Features::ATOMIC
    } else {
        Features::NONE
    }
}

/// Receive queues of an interface: each may be served by its own CPU. In generic mode receive packet
/// steering may spread a single queue.
fn receive_queues(port: &PortConfig) -> usize {
    if port.mode == Mode::Generic || !port.spread.is_empty() {
        return 2;
    }
    let folder = Path::new("/sys/class/net").join(&port.name).join("queues");
    let Ok(queues) = std::fs::read_dir(folder) else {
        return 2;
    };
    queues
        .flatten()
        .filter(|queue| queue.file_name().to_string_lossy().starts_with("rx-"))
        .count()
}

impl session::compiled::Tables for Tables {
    type Handle = Handle;

    fn direct_teids(&self) -> u32 {
        self.store.direct_end
    }

    fn reaches(&self, peer: IpAddr) -> bool {
        self.store.reaches(peer)
    }

    fn publish(&mut self, handle: &mut Handle, new: &Compiled) -> Result<(), NoRoom> {
        let (backend, adaptation) = (&mut self.backend, &mut self.adaptation);
        let grace = self.store.grace.passing();
        self.store.publish(handle, new, |needs| {
            backend.serve(adaptation, &grace, needs)
        })
    }

    fn withdraw(&mut self, handle: &mut Handle) {
        // Nothing is taken, so nothing can be short.
        let withdrawn = self.publish(handle, &Compiled::default());
        debug_assert!(withdrawn.is_ok());
    }

    fn end_tunnel(&mut self, tunnel: &EndedTunnel) {
        let Some(markers) = &self.end_markers else {
            return;
        };
        let packet = end_marker(tunnel.teid, tunnel.local, tunnel.peer);
        let ifindex = self.store.way_to(tunnel.local, tunnel.peer).unwrap_or(0);
        if let Some(packet) = packet {
            markers.send(Outgoing { ifindex, packet });
        }
    }

    fn held(&self, handle: &Handle, pdr: PdrId) -> u64 {
        let entries = handle.entries_of(pdr);
        entries.map(|entry| self.store.held(entry.index)).sum()
    }

    fn limit_held(&mut self, seid: u64, pdr: PdrId, limits: HoldLimits) {
        self.store.holding.give(Order::Limit(seid, pdr, limits));
    }

    fn discard_held(&mut self, seid: u64) {
        self.store.holding.give(Order::Discard(seid));
    }

    fn tell_of_held(&mut self, seid: u64) {
        self.store.holding.give(Order::Tell(seid));
    }

    fn touch(&self, handle: &Handle) -> u64 {
        self.store.touch(handle)
    }

    fn gtpu_paths(&self, each: &mut dyn FnMut(IpAddr, IpAddr)) {
        // Only who speaks GTP-U can be asked by it whether it is there.
        for peer in self.store.peers.in_use().filter(|peer| !peer.udp) {
            each(peer.remote, peer.local);
        }
    }

    fn counters(&self, handle: &Handle, pdr: PdrId) -> Counters {
        let of_entries = handle.entries_of(pdr);
        let counters = of_entries.map(|entry| self.store.counters(entry.index));
        counters.fold(Counters::default(), Counters::plus)
    }

    fn arm(&mut self, handle: &Handle, pdr: PdrId, alarm: Option<u64>) {
        let atomic = self.features().contains(Features::ATOMIC);
        self.store.arm(handle, pdr, alarm, atomic);
    }

    fn arm_qos(&mut self, handle: &Handle, pdr: PdrId, alarm: Option<u64>) {
        self.store.arm_qos(handle, pdr, alarm);
    }

    fn parted(&self, pdr: PdrId) -> Option<Counters> {
        self.store.parted(pdr)
    }

    fn counters_of(&self, handle: &Handle, pdr: PdrId, rule: PredefinedId) -> Counters {
        let mut entries = handle.entries_of(pdr);
        let own = entries.find(|entry| entry.is_of((pdr, Some(rule))));
        own.map_or(Counters::default(), |entry| {
            self.store.own_counters(entry.index)
        })
    }
}

impl NextHopTables for Tables {
    fn alloc_nexthop(&mut self, hop: &NextHop) -> Result<u32, NoRoom> {
        if *hop == NextHop::Fib {
            self.serve(Features::FIB)?;
        }
        self.store.alloc_nexthop(hop)
    }

    fn free_nexthop(&mut self, index: u32) {
        self.store.free_nexthop(index);
    }

    fn swap_peer_nexthop(&mut self, peer: Peer, index: u32) {
        self.store.swap_peer_nexthop(peer, index);
    }

    fn set_ni_routes(
        &mut self,
        ni: NiId,
        family: Family,
        routes: &[(IpNet, u32)],
    ) -> Result<(), NoRoom> {
        self.store.set_ni_routes(ni, family, routes)
    }

    fn set_neighbour(&mut self, ni: NiId, addr: IpAddr, index: Option<u32>) -> Result<(), NoRoom> {
        self.serve(Features::BUCKETS)?;
        self.store.set_neighbour(ni, addr, index)
    }

    fn says_more_than_pool(&self, ni: NiId, route: IpNet) -> bool {
        self.store.says_more_than_pool(ni, route)
    }

    fn set_ni_addresses(&mut self, ni: NiId, v4: Option<Ipv4Addr>, v6: Option<Ipv6Addr>) {
        self.routers.set_interface(ni, v4, v6);
    }

    fn set_n3_routes(&mut self, routes: &Arc<View>) {
        self.store.n3_routes = Some(Arc::clone(routes));
    }

    fn take_peer_changes(&mut self, into: &mut Vec<PeerChange>) {
        self.store.peers.take_changes(into);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Stands for programs that the kernel refuses: there are none.
    fn unheard_of(with: Features) -> Features {
        with.with(Features::bit(30))
    }

    /// Ports that nothing is attached to; these may be what is wider than the live programs. Needs root.
    fn tables(wider: Vec<Features>) -> Tables {
        let port = |name: &str, n3| PortConfig {
            name: name.into(),
            roles: Roles { n3, n6: !n3 },
            ni: NiId(0),
            mode: Mode::Driver,
            spread: Vec::new(),
        };
        let (layout, options) = (Layout::for_sessions(16, 1, 1), Options::default());
        let ports = [port("n3", true), port("n6", false)];
        let mut tables = Tables::xdp(&layout, &ports, &options).unwrap();
        let builds = [&[tables.features()], &wider[..]].concat();
        tables.adaptation = Adaptation::new(builds, Features::NONE, Duration::ZERO);
        tables
    }

    fn refused_at(tables: &Tables) -> Vec<Instant> {
        let Backend::Xdp(xdp) = &tables.backend else {
            return Vec::new();
        };
        xdp.refused_at().collect()
    }

    #[test]
    fn a_build_that_the_kernel_refuses_is_passed_over() {
        let mut tables = tables(vec![unheard_of(Features::ALL), Features::ALL]);
        tables.serve(Features::COPY).unwrap();
        assert_eq!(tables.features(), Features::ALL);
    }

    #[test]
    fn what_the_kernel_has_refused_is_not_asked_for_again_while_somebody_waits() {
        let mut tables = tables(vec![unheard_of(Features::ALL)]);
        assert!(tables.serve(Features::COPY).is_err());
        let first = refused_at(&tables);
        assert_eq!(first.len(), 1);
        assert!(tables.serve(Features::COPY).is_err());
        assert!(tables.serve(Features::RELAY).is_err());
        assert_eq!(refused_at(&tables), first);

        // In the background it is, a while later.
        let early = first[0] + Duration::from_secs(59);
        let _ = tables.adapt(early);
        assert!(!matches!(&tables.backend, Backend::Xdp(xdp) if xdp.is_loading()));
        let deadline = Instant::now() + Duration::from_secs(60);
        while refused_at(&tables) == first {
            assert!(Instant::now() < deadline, "it is not loaded again");
            let _ = tables.adapt(early + Duration::from_secs(1));
        }
        assert_eq!(refused_at(&tables).len(), 1);
    }

    #[test]
    fn a_trace_waits_for_no_programs_and_says_when_they_are_refused() {
        let mut tables = tables(vec![Features::ALL]);
        let keys = [(TraceKey::Teid(7), 1)];
        assert!(!tables.follow(&keys).unwrap(), "it is being loaded");
        let deadline = Instant::now() + Duration::from_secs(60);
        while !tables.follow(&keys).unwrap() {
            assert!(Instant::now() < deadline, "it is never loaded");
        }
        assert!(tables.features().contains(Features::TRACE));

        let mut tables = self::tables(vec![unheard_of(Features::ALL)]);
        while tables.follow(&keys).is_ok() {
            assert!(Instant::now() < deadline, "it is never refused");
        }
        tables.serve(Features::METER).unwrap();
    }
}
