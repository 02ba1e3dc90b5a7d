//! The tables as the control thread owns them.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::iter;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use compiled::{
    BufferLimits, Compiled, CountedAt, Counters, EndedTunnel, Holding, Lent, NiId, NoRoom, PdrId,
    PredefinedId, Resource, SeidKey, Served, ServedBeside, Slow, Source, TakenFor, Template,
};
use ipnet::IpNet;

use crate::abi::{Features, N3_ADDRS_MAX, PORTS_MAX, rate};
use crate::adapt::Replacement;
use crate::alarm_queue::AlarmQueue;
use crate::backend::host::Host;
#[cfg(feature = "dpdk")]
use crate::backend::workers::apart::{Apart, Setup, StartWorkers};
#[cfg(feature = "dpdk")]
use crate::backend::workers::dpdk::Dpdk;
use crate::backend::workers::kernel::Kernel;
use crate::backend::workers::{ByHand, Workers};
use crate::backend::xdp::Xdp;
use crate::backend::xdp::n4::N4;
use crate::backend::xdp::pins::Pins;
use crate::backend::{Backend, GoingOn, ProgramInfo, Runner, ifindex_of};
use crate::buffer_control::BufferControl;
use crate::capacity::{CapacityReport, Governor};
use crate::entry_counts::EntryCounts;
use crate::error::SetupError;
use crate::grace::{Barrier, Bystander, Grace};
use crate::handle::Handle;
use crate::ingress::Ingress;
use crate::interface_addresses::InterfaceAddresses;
use crate::layout::Layout;
use crate::left_ring::{LeftRecords, LeftRing};
use crate::options::{N4Port, Options};
use crate::pipeline::{Pipeline, Run, RunTogether};
use crate::port::PortConfig;
use crate::programs::Programs;
use crate::ring::{Records, Ring};
use crate::stats::{Counting, PortTotals};
use crate::store::Store;
use crate::store::alarms::Alarms;
use crate::store::left_meters::{LeftMeters, has_meters};
use crate::table_files::TableFiles;
use crate::trace::TraceKey;
use crate::tunnel_ends::TunnelEnds;
use nexthop::{Family, NextHop, NextHopTables, Peer, PeerChange, RouteView};

/// Fill of one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fill {
    /// As [`NoRoom`] names it.
    pub table: &'static str,
    /// In use, or in a grace period.
    pub used: u64,
    /// At most.
    pub capacity: u64,
    /// Changes of sessions that it had no room for, or only what is kept for others.
    pub refused: u64,
}

/// The tables and the pipeline that reads them.
#[derive(Debug)]
pub struct Tables {
    // Before the store, so that programs are detached before the maps go.
    programs: Programs,
    pub(crate) store: Store,
    ports: Vec<PortConfig>,
    /// `None`: nobody hears of tunnels that were left.
    tunnel_ends: Option<Box<dyn TunnelEnds>>,
    interface_addresses: InterfaceAddresses,
    /// Time within which packets above their rate have left; zero: none waits.
    leave_within: Duration,
    /// How often others took the place of those who run packets elsewhere.
    workers_replaced: u64,
    /// PFCP that a program serves.
    n4: Option<N4Port>,
    /// ... which is loaded when sessions are borrowed, or could not be.
    n4_program: Option<Result<N4, SetupError>>,
}

/// Time within which a lane has run all packets that waited for it.
const LANES_EMPTY: Duration = Duration::from_millis(100);

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
        Self::over::<Host>(layout, ports, options, ())
    }

    /// Load a program for each port. Nothing sees packets before [`Self::attach`].
    pub fn xdp(
        layout: &Layout,
        ports: &[PortConfig],
        options: &Options,
    ) -> Result<Self, SetupError> {
        Self::over::<Xdp>(layout, ports, options, None)
    }

    /// The same, with programs that outlive this process by these pins. Where programs of a process before it are attached,
    /// packets meet those until [`Self::attach`].
    pub fn pinned(
        layout: &Layout,
        ports: &[PortConfig],
        options: &Options,
        pins: Pins,
    ) -> Result<Self, SetupError> {
        Self::over::<Xdp>(layout, ports, options, Some(pins))
    }

    /// Workers of this process that packets come to by sockets of the kernel. They see none before [`Self::attach`].
    pub fn kernel(
        layout: &Layout,
        ports: &[PortConfig],
        options: &Options,
    ) -> Result<Self, SetupError> {
        Self::over::<Workers<Kernel>>(layout, ports, options, ((), None))
    }

    /// The same, over tables that outlive this process in these files, if they find room.
    pub fn kernel_in(
        layout: &Layout,
        ports: &[PortConfig],
        options: &Options,
        files: Option<TableFiles>,
    ) -> Result<Self, SetupError> {
        Self::over::<Workers<Kernel>>(layout, ports, options, ((), files))
    }

    /// Workers of this process that packets come to by devices of DPDK, which is started. They see none before
    /// [`Self::attach`].
    #[cfg(feature = "dpdk")]
    pub fn dpdk(
        layout: &Layout,
        ports: &[PortConfig],
        options: &Options,
        settings: &crate::dpdk::Settings,
    ) -> Result<Self, SetupError> {
        Self::dpdk_in(layout, ports, options, settings, None)
    }

    /// The same, over tables that outlive this process in these files, if they find room.
    #[cfg(feature = "dpdk")]
    pub fn dpdk_in(
        layout: &Layout,
        ports: &[PortConfig],
        options: &Options,
        settings: &crate::dpdk::Settings,
        files: Option<TableFiles>,
    ) -> Result<Self, SetupError> {
        crate::dpdk::check_threads(settings, layout.workers)?;
        crate::dpdk::start(settings)?;
        let setup = crate::dpdk::Setup::new(settings, Vec::new());
        Self::over::<Workers<Dpdk>>(layout, ports, options, (setup, files))
    }

    /// The same, with workers in a process of their own over files of all tables ([`TableFiles::for_all`]), so that packets go on without this
    /// one: in that which is there, or one that is started.
    #[cfg(feature = "dpdk")]
    pub fn dpdk_apart(
        layout: &Layout,
        ports: &[PortConfig],
        options: &Options,
        settings: &crate::dpdk::Settings,
        (files, start): (TableFiles, StartWorkers),
    ) -> Result<Self, SetupError> {
        crate::dpdk::check_threads(settings, layout.workers)?;
        let front = files.front().to_owned();
        let setup = Setup::find(layout, ports, settings, (&front, start))?;
        let setup = (setup, Some(files));
        Self::over::<Workers<Apart>>(layout, ports, options, setup).or_else(|error| {
            tracing::error!(%error, "tables cannot lie in state.dir: packets end with this process, and what they count since sessions report is lost if it is killed");
            crate::end_workers(&front)?;
            Self::dpdk(layout, ports, options, settings)
        })
    }

    /// Ordinary memory and the pipeline as workers of this process run it, over frames that are handed to
    /// [`Self::run`]: for tests.
    pub fn by_hand(
        layout: &Layout,
        ports: &[PortConfig],
        options: &Options,
    ) -> Result<Self, SetupError> {
        Self::over::<Workers<ByHand>>(layout, ports, options, ((), None))
    }

    fn over<B: Backend + 'static>(
        layout: &Layout,
        ports: &[PortConfig],
        options: &Options,
        setup: B::Setup,
    ) -> Result<Self, SetupError> {
        check_ports(ports)?;
        let programs = Programs::load::<B>(layout, ports, options, setup)?;
        Self::of(programs, layout, ports.to_vec(), options)
    }

    fn of(
        mut programs: Programs,
        layout: &Layout,
        ports: Vec<PortConfig>,
        options: &Options,
    ) -> Result<Self, SetupError> {
        let store = new_store(programs.backend(), layout, options)?;
        programs.tell_alarms_to(&store.shard.alarms.told);
        Ok(Self {
            programs,
            store,
            ports,
            tunnel_ends: None,
            interface_addresses: InterfaceAddresses::default(),
            leave_within: layout
                .shaping
                .map_or(Duration::ZERO, |shaping| shaping.leave_within()),
            n4: options.n4.clone(),
            workers_replaced: 0,
            n4_program: None,
        })
    }

    /// The same ports over empty tables, with the programs that would have been loaded for these options; those that
    /// were loaded before are not loaded again. For tests, whose time would be the verifier's otherwise.
    pub fn emptied(self, layout: &Layout, options: &Options) -> Result<Self, SetupError> {
        let Self {
            mut programs,
            store,
            ports,
            ..
        } = self;
        drop(store);
        programs.start_anew(options)?;
        Self::of(programs, layout, ports, options)
    }

    /// Before [`Self::attach`]: frames that are finished in this process leave by interfaces of ports from now on. `false`: they cannot yet.
    pub fn lead(&mut self) -> Result<bool, SetupError> {
        self.programs.backend_mut().lead()
    }

    /// Attach every program to its interface. On an error those already attached are detached when
    /// `self` is dropped. Programs never outlive this process, unless they are pinned. Wider programs are loaded from now on, in a
    /// thread of their own, before something needs them.
    pub fn attach(&mut self) -> Result<(), SetupError> {
        self.programs.attach()
    }

    /// Attach the program that serves PFCP to its interface, unless it is: one that is made anew has none. Whether that was done: then it
    /// serves nobody until [`Self::n4_may_serve`]. That program is loaded when sessions are borrowed, and an error of then comes from here.
    pub fn attach_n4(&mut self) -> Result<bool, SetupError> {
        let Some(program) = self.n4_program.take() else {
            return Ok(false);
        };
        let mut program = program?;
        let attached = match program.is_attached() && self.n4_port_is_there() {
            true => Ok(false),
            false => self.meet_n4(&mut program),
        };
        self.n4_program = Some(Ok(program));
        attached
    }

    /// Whether it is attached now: there is an interface for it.
    fn meet_n4(&mut self, program: &mut N4) -> Result<bool, SetupError> {
        let Some(interface) = self.n4.as_ref().and_then(|n4| n4.interface.as_ref()) else {
            return Ok(false);
        };
        if !self.n4_port_is_there() {
            return Err(SetupError::NotMet(interface.clone()));
        }
        let ifindex = ifindex_of(interface)?;
        self.store.begin_n4_anew();
        match self.n4_port() {
            Some(_) => program.attach_behind()?,
            None => program.attach((interface, ifindex))?,
        }
        Ok(true)
    }

    /// The port whose interface N4 shares with users' packets.
    fn n4_port(&self) -> Option<usize> {
        self.ports.iter().position(|port| port.has_n4)
    }

    /// Whether packets meet the program that N4's comes behind, if it comes behind one.
    fn n4_port_is_there(&self) -> bool {
        self.n4_port().is_none_or(|port| self.is_attached(port))
    }

    /// Requests that come when the interface of this port is another one are not to meet a program that knows nothing of those that have
    /// come in between.
    fn part_from_n4(&mut self, port: usize) {
        if self.n4_port() == Some(port) {
            self.detach_n4();
        }
    }

    /// Whether requests meet the program that serves PFCP.
    pub fn n4_is_attached(&self) -> bool {
        matches!(&self.n4_program, Some(Ok(program)) if program.is_attached())
            && self.n4_port_is_there()
    }

    /// All messages about sessions that had passed when the program was attached, and had not met it so, have come to the core.
    pub fn n4_may_serve(&mut self) {
        self.store.n4_may_serve();
    }

    /// Detach it, and nothing is served any more when this returns.
    pub fn detach_n4(&mut self) {
        if let Some(Ok(program)) = &mut self.n4_program {
            program.detach();
        }
        self.store.pause();
    }

    /// Sessions about which no message can be under way are lent to the program that serves PFCP: to be called some milliseconds after it
    /// was called last, when the sockets of N4 are empty.
    pub fn lend_again(&mut self) {
        self.store.lend_again();
    }

    /// Has the kernel run the program that serves PFCP over frames; for other threads. `None`: there is none.
    pub fn n4_runner(&self) -> Option<io::Result<Runner>> {
        let program = self.n4_program.as_ref()?.as_ref().ok()?;
        Some(program.runner())
    }

    /// Attach the program of a port to its interface, which was made anew under this number.
    pub fn attach_port(&mut self, port: usize, ifindex: u32) -> Result<(), SetupError> {
        self.part_from_n4(port);
        self.programs.backend_mut().attach_port(port, ifindex)
    }

    /// Folder of what outlives this process; `None`: nothing does.
    pub fn pins(&self) -> Option<&Pins> {
        self.programs.backend().pins()
    }

    /// Files in which tables outlive this process, though packets do not go on.
    pub fn files(&self) -> Option<&TableFiles> {
        self.programs.backend().files()
    }

    /// An error: packets are run elsewhere than in this process, and some are not any more.
    pub fn check(&self) -> io::Result<()> {
        self.programs.backend().check()
    }

    /// Workers elsewhere of which [`Self::check`] says that they do not run packets any more are ended, and others go on with what the tables
    /// have come to. An error: there are none.
    pub fn replace_workers(&mut self) -> Result<(), SetupError> {
        self.programs.backend_mut().replace_workers()?;
        self.workers_replaced += 1;
        Ok(())
    }

    /// How often they have.
    pub fn workers_replaced(&self) -> u64 {
        self.workers_replaced
    }

    /// Packets meet the tables of this process from now on, or have been counted there.
    pub fn are_met(&self) {
        if let Some(pins) = self.pins() {
            pins.are_met();
        }
        if let Some(files) = self.files() {
            files.are_met();
        }
    }

    /// How packets go on without this process.
    pub fn going_on(&self) -> GoingOn {
        self.programs.backend().going_on()
    }

    /// From now on they do, or they end with it from now on, where that can be chosen.
    pub fn set_going_on(&self, without: bool) {
        self.programs.backend().set_going_on(without);
    }

    /// Of tables that outlive this process, pinned or in files. `None`: they end with it.
    pub fn generation(&self) -> Option<u64> {
        let pinned = self.pins().map(Pins::generation);
        pinned.or_else(|| self.files().map(TableFiles::generation))
    }

    /// The interface of a port is gone. Frames that would leave by it are lost until [`Self::attach_port`] succeeds.
    pub fn detach_port(&mut self, port: usize) {
        self.part_from_n4(port);
        self.programs.backend_mut().detach_port(port);
    }

    /// Whether packets of a port's interface still meet its program, as far as the kernel says; an interface that was made
    /// anew, even under its old number, has none.
    pub fn is_attached(&self, port: usize) -> bool {
        self.programs.backend().is_attached(port)
    }

    /// Take in what has come by all ports and run it, in this thread: where [`Layout::workers`] is 0. How many frames there
    /// were.
    pub fn run_once(&mut self) -> io::Result<usize> {
        self.programs.backend_mut().run_once()
    }

    /// Frames redirected to a port leave by this interface. [`Self::attach`] does this for all ports;
    /// alone it is for [`Self::test_run`], which needs a way out but uses none.
    pub fn set_redirect(&mut self, port: u32, ifindex: u32) -> Result<(), SetupError> {
        self.programs.backend().set_redirect(port, ifindex)
    }

    /// Our GTP-U addresses, at most eight of each family.
    pub fn set_local(&mut self, n3: &[IpAddr]) -> Result<(), NoRoom> {
        let v4 = n3.iter().filter(|addr| addr.is_ipv4()).count();
        if v4.max(n3.len() - v4) > N3_ADDRS_MAX {
            return Err(NoRoom::of("n3_addresses"));
        }
        self.store.node.set_local(n3);
        Ok(())
    }

    /// `ni` shares its port with `home`, the lowest network instance there. Before its pools and
    /// sessions.
    pub fn set_home(&mut self, ni: NiId, home: NiId) {
        self.store.node.instances.set_home(ni, home);
    }

    /// Whether UEs of a network instance reach each other within this UPF; they do unless told otherwise.
    pub fn set_ue_to_ue(&mut self, ni: NiId, allowed: bool) {
        self.store.node.instances.set_ue_to_ue(ni, allowed);
    }

    /// UE addresses of a network instance that lie together: packets to those that no session has are
    /// dropped under a reason of their own rather than left to the kernel, as far as programs serve their
    /// family. Of IPv4, they are found without a search; of IPv6, there may be 64 pools.
    pub fn register_pool(&mut self, ni: NiId, pool: IpNet) -> Result<(), NoRoom> {
        self.store.register_pool(ni, pool)
    }

    /// Tell this of tunnels that are left, from now on.
    pub fn tell_of_tunnel_ends(&mut self, to: impl TunnelEnds + 'static) {
        self.tunnel_ends = Some(Box::new(to));
    }

    /// Tell this what changes for buffered packets, from now on.
    pub fn set_buffer_control(&mut self, control: Arc<dyn BufferControl>) {
        self.store.shard.entries.buffer_control = Some(control);
    }

    /// Reuse what has had its grace period. Call it now and then, at best ten times a second; it
    /// never waits.
    pub fn maintain(&mut self) {
        self.store.maintain();
        self.store.look_again();
        self.programs.adapt(self.store.needs(), Instant::now());
    }

    /// Whether [`Self::maintain`] has something to wait for.
    pub fn needs_maintenance(&self) -> bool {
        !self.store.grace.is_empty()
            || !self.store.shard.alarms.again.is_empty()
            || self.is_settling()
            || self.programs.backend().is_loading()
    }

    /// Gives flows their shares of capacities, in a thread that looks again and again; `None`: there are no capacities.
    pub fn governor(&self) -> Option<Governor> {
        self.store.node.capacities.governor()
    }

    /// Whether guaranteed rates are taken in whatever may be guaranteed: of sessions that had them before, under other capacities.
    pub fn honour_guarantees(&mut self, honours: bool) {
        self.store.node.capacities.honour(honours);
    }

    /// Sessions that are taken in from now on go on with these meters ([`compiled::Tables::follow_meters`]).
    pub fn go_on_with(&mut self, left: LeftMeters) {
        self.store.left_meters.push(left);
    }

    /// Meters are at least where those are that they go on with. To be called right before packets meet these tables, and, with
    /// [`Self::leave_meters`], when no packet meets the former ones: what these have let pass in between, some may pass once more.
    pub fn raise_meters(&self) {
        self.store.raise_meters(crate::monotonic_ns());
    }

    /// No meter goes on with former ones any more.
    pub fn leave_meters(&mut self) {
        self.store.left_meters = Vec::new();
    }

    /// Loads of capacities, in the order of [`Layout::capacities`].
    pub fn capacities(&self) -> Vec<CapacityReport> {
        self.store.node.capacities.reports()
    }

    /// Features of the live programs.
    pub fn features(&self) -> Features {
        self.programs.live()
    }

    /// Whether other programs are to take over, once the need for them has been the same for long enough.
    pub fn is_settling(&self) -> bool {
        self.programs.is_settling(self.store.needs())
    }

    /// Number of times that programs have taken over from others, and the last time.
    pub fn replacements(&self) -> (u64, Option<Replacement>) {
        self.programs.replacements()
    }

    fn serve(&mut self, needs: Features) -> Result<(), NoRoom> {
        let barrier = self.store.grace.barrier();
        self.programs.serve(needs, &barrier)
    }

    /// Somebody is in charge until then, of the monotonic clock: later, users' packets drop, be this process there or not. `None`:
    /// for as long as programs are attached. Rounded down to ticks of the kernel.
    pub fn set_managed_until(&self, ns: Option<u64>) {
        let until = &self.store.mem.config[0].managed_until_ns;
        until.store(ns.unwrap_or(0), Ordering::Relaxed);
    }

    /// Wait until no packet is under way any more that met tables of before [`Self::attach`], with those that wait for a lane.
    pub fn pass(&self) -> io::Result<()> {
        if self.ports.iter().any(|port| !port.spread.is_empty()) {
            std::thread::sleep(LANES_EMPTY);
        }
        self.store.grace.barrier().wait()
    }

    /// Barrier for packets under way, but for those that threads of this process finish.
    pub fn barrier(&self) -> Barrier {
        self.store.grace.barrier()
    }

    /// The programs, in the order of ports; none on the host.
    pub fn programs(&self) -> Vec<ProgramInfo> {
        self.programs.backend().infos()
    }

    /// The ports, in order.
    pub fn ports(&self) -> &[PortConfig] {
        &self.ports
    }

    /// Reads counters; may be sent to other threads.
    pub fn counting(&self) -> Counting {
        self.programs.backend().counting()
    }

    /// Counts of entries; may be sent to other threads.
    pub fn entry_counts(&self) -> EntryCounts {
        EntryCounts::new(&self.store.mem)
    }

    /// SEIDs of the sessions that downlink packets to this address find as their UE's, IPv6 by its /64: one for each network
    /// instance that has it. Takes as long for many sessions as for few. What lies behind a UE, and prefixes of other lengths, lead to none.
    pub fn owners_of_ue(&self, addr: IpAddr) -> Vec<u64> {
        self.store.owners_of_ue(addr)
    }

    /// Before [`Self::attach`]: the interface of each port, by which [`Self::ingress`] judges from now on, and frames of this process leave.
    pub fn set_interfaces(&self, ifindexes: impl IntoIterator<Item = u32>) {
        self.store.mem.set_interfaces(ifindexes);
    }

    /// Judges what sockets at our GTP-U addresses receive.
    pub fn ingress(&self) -> Ingress {
        Ingress::new(&self.store.mem, &self.ports)
    }

    /// VLAN devices of this host, each with the device below.
    pub fn set_vlans(&mut self, below: impl IntoIterator<Item = (u32, u32)>) {
        self.store.mem.vlans.set(below);
    }

    /// Counters of each port.
    pub fn totals(&self) -> Vec<PortTotals> {
        let counting = self.counting();
        (0..self.ports.len())
            .map(|port| counting.port(port))
            .collect()
    }

    /// Fill of each table.
    pub fn fill(&self) -> Vec<Fill> {
        let store = &self.store;
        let (node, shard) = (&store.node, &store.shard);
        let entries = &shard.entries.free;
        let lines = [
            &shard.exts,
            &shard.meters,
            &node.routing.nexthops,
            &shard.rules,
            node.peers.lines(),
        ];
        let mut fill: Vec<Fill> = iter::once((entries.name(), entries.used(), entries.capacity()))
            .chain(lines.map(|lines| (lines.name(), lines.used(), lines.capacity())))
            .chain(
                [&shard.framed, &node.routing.routes]
                    .map(|runs| (runs.name(), runs.used(), runs.capacity())),
            )
            .chain([
                (
                    "buckets",
                    shard.index.buckets.used(),
                    shard.index.buckets.capacity(),
                ),
                (
                    "ue_pages",
                    shard.index.pages.used(),
                    shard.index.pages.capacity(),
                ),
            ])
            .map(|(table, used, capacity)| Fill {
                table,
                used: used.into(),
                capacity: capacity.into(),
                refused: store.refused.get(table).copied().unwrap_or(0),
            })
            .collect();
        let grace = store.grace.len() as u64;
        fill.push(Fill {
            table: "grace",
            used: grace,
            capacity: u64::MAX,
            refused: 0,
        });
        fill
    }

    /// Readable when [`Self::crossings`] has something to tell.
    pub fn alarms(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.store.shard.alarms.fds()
    }

    /// Sessions whose PDRs have forwarded what they were armed for, none twice; of so many alarms at most. Whether there are
    /// more. Never waits.
    pub fn crossings(&mut self, at_most: usize, seids: &mut Vec<u64>) -> io::Result<bool> {
        self.store.crossings(at_most, seids)
    }

    /// Bytes that packets under way added to PDRs whose session, or who themselves, had just gone.
    pub fn late_bytes(&self) -> u64 {
        self.store.shard.departed.late_bytes
    }

    /// The ring that feeds the slow path; `None` on the host.
    pub fn events(&self) -> Result<Option<Ring>, SetupError> {
        self.programs.backend().ring(Records::Events)
    }

    /// The ring of duplicates that user space is to send; `None` on the host.
    pub fn copies(&self) -> Result<Option<Ring>, SetupError> {
        self.programs.backend().ring(Records::Copies)
    }

    /// The ring of packets that are followed; `None` on the host.
    pub fn traced(&self) -> Result<Option<Ring>, SetupError> {
        self.programs.backend().ring(Records::Traced)
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
        self.programs.follow(!keys.is_empty())
    }

    /// The pipeline beside the programs, over the same tables, for one other thread; that looks at them while a
    /// [`Self::bystander`] of its own looks.
    pub fn pipeline(&self) -> Pipeline {
        let general = self.programs.general();
        let backend = self.programs.backend();
        let (later, egress) = (backend.handover(), backend.egress());
        let memory = self.store.mem.clone();
        let mut pipeline = Pipeline::aside(memory, &self.ports, general, later, egress);
        pipeline.tell_alarms_to(Arc::clone(&self.store.shard.alarms.told));
        pipeline
    }

    /// Have frames above their rate leave that programs of before had wait, when their time has come.
    pub fn leave_later(&self, left: &LeftRing) -> io::Result<LeftRecords> {
        let (pipeline, mut refused) = (self.pipeline(), 0);
        let mut records = left.read_all(|record| {
            refused += usize::from(!pipeline.leave_later_still(record));
        })?;
        records.taken -= refused;
        records.lost += refused;
        Ok(records)
    }

    /// One more thread of this process, for which grace periods wait.
    pub fn bystander(&self) -> Bystander {
        self.store.grace.bystander()
    }

    /// Addresses of the routers of network instances, kept up to date.
    pub fn interface_addresses(&self) -> InterfaceAddresses {
        self.interface_addresses.clone()
    }

    /// The ring of packets to be buffered; `None` on the host.
    pub fn buffered_packets(&self) -> Result<Option<Ring>, SetupError> {
        self.programs.backend().ring(Records::Held)
    }

    /// Run one frame through a port's pipeline, in this thread. `None` on XDP.
    pub fn run(&self, port: usize, frame: &[u8], now_ns: u64) -> Option<Run> {
        self.programs.backend().run(port, frame, now_ns)
    }

    /// Run frames that come together, at most 64, through a port's pipeline, in this thread: of [`Self::by_hand`] alone.
    pub fn run_together(
        &self,
        port: usize,
        frames: &[Vec<u8>],
        now_ns: u64,
    ) -> Option<RunTogether> {
        self.programs.backend().run_together(port, frames, now_ns)
    }

    /// The longest until a packet above its rate has left, by a thread that is not late.
    pub fn longest_wait(&self) -> Duration {
        self.leave_within
    }

    /// Frames that [`Self::run_together`] has had wait and that are due, and the ports that they leave by. Before frames of the
    /// same time are run.
    pub fn release(&self, now_ns: u64) -> Vec<(u32, Vec<u8>)> {
        self.programs.backend().release(now_ns)
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
        self.programs.backend().runner(port)
    }
}

fn check_ports(ports: &[PortConfig]) -> Result<(), SetupError> {
    match ports.len() {
        0 => Err(SetupError::NoPorts),
        n if n > PORTS_MAX => Err(SetupError::TooManyPorts(n)),
        _ => Ok(()),
    }
}

/// Nanoseconds between so many events a second; 0: there are none.
fn spacing(per_s: u32) -> u32 {
    1_000_000_000u32.checked_div(per_s).unwrap_or(0)
}

fn new_store(
    backend: &dyn Backend,
    layout: &Layout,
    options: &Options,
) -> Result<Store, SetupError> {
    let memory = backend.memory().clone();
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
    let l4s = options.l4s.unwrap_or_default();
    config.l4s_ticks.store(
        (l4s.as_nanos() as u64) << rate::TICKS_SHIFT,
        Ordering::Relaxed,
    );
    let alarms = Alarms::new(backend.ring(Records::Alarms)?, Arc::new(AlarmQueue::new()?));
    let grace = Grace::new(backend.barrier()?)?;
    let mut store = Store::new(memory, layout, grace, alarms, salt());
    store.node.peers.set_udp6_checksum(options.udp6_checksum);
    Ok(store)
}

impl compiled::Tables for Tables {
    type Handle = Handle;

    fn direct_teids(&self) -> u32 {
        self.store.shard.entries.direct_end
    }

    fn reaches(&self, peer: IpAddr) -> bool {
        self.store.node.reaches(peer)
    }

    fn publish(&mut self, handle: &mut Handle, new: &Compiled) -> Result<(), NoRoom> {
        let programs = &mut self.programs;
        let barrier = self.store.grace.barrier();
        self.store
            .publish(handle, new, |needs| programs.serve(needs, &barrier))
            .inspect_err(|full| *self.store.refused.entry(full.table).or_default() += 1)
    }

    fn room(&self, resource: Resource) -> Option<u64> {
        self.store.room(resource)
    }

    fn holds(&self, handle: &Handle) -> Holding {
        self.store.holding(handle)
    }

    fn withdraw(&mut self, handle: &mut Handle) {
        // Nothing is taken, so nothing can be short.
        let withdrawn = self.publish(handle, &Compiled::default());
        debug_assert!(withdrawn.is_ok());
    }

    fn end_tunnel(&mut self, tunnel: &EndedTunnel) {
        if let Some(ends) = &self.tunnel_ends {
            ends.left(tunnel, self.store.node.way_to(tunnel.local, tunnel.peer));
        }
    }

    fn buffered(&self, handle: &Handle, pdr: PdrId) -> u64 {
        let entries = handle.entries_of(pdr);
        entries
            .map(|entry| self.store.shard.entries.buffered(entry.index))
            .sum()
    }

    fn limit_buffered(&mut self, seid: u64, pdr: PdrId, limits: BufferLimits) {
        if let Some(control) = &self.store.shard.entries.buffer_control {
            control.limit(seid, pdr, limits);
        }
    }

    fn discard_buffered(&mut self, seid: u64) {
        if let Some(control) = &self.store.shard.entries.buffer_control {
            control.discard(seid);
        }
    }

    fn tell_of_buffered(&mut self, seid: u64) {
        if let Some(control) = &self.store.shard.entries.buffer_control {
            control.tell_anew(seid);
        }
    }

    fn touch(&self, handle: &Handle) -> u64 {
        self.store.shard.touch(handle)
    }

    fn gtpu_paths(&self, each: &mut dyn FnMut(IpAddr, IpAddr)) {
        // Only who speaks GTP-U can be asked by it whether it is there.
        for peer in self.store.node.peers.in_use().filter(|peer| !peer.udp) {
            each(peer.remote, peer.local);
        }
    }

    fn counters(&self, handle: &Handle, pdr: PdrId) -> Counters {
        let of_entries = handle.entries_of(pdr);
        let counters = of_entries.map(|entry| self.store.shard.counters(entry.index));
        counters.fold(Counters::default(), Counters::plus)
    }

    fn arm(&mut self, handle: &Handle, pdr: PdrId, alarm: Option<u64>) {
        let atomic = self.features().contains(Features::ATOMIC);
        self.store.shard.arm(handle, pdr, alarm, atomic);
    }

    fn arm_qos(&mut self, handle: &Handle, pdr: PdrId, alarm: Option<u64>) {
        self.store.shard.arm_qos(handle, pdr, alarm);
    }

    // Where tables end with their process, nobody asks.
    fn keep_counts(&mut self, kept: bool) {
        let kept = kept && self.generation().is_some();
        self.store.shard.keep_counts(kept);
    }

    fn counted_at(&self, handle: &Handle, into: &mut Vec<CountedAt>) {
        if self.store.shard.recounted.is_none() {
            return;
        }
        let entries = handle.entries().iter();
        into.extend(entries.map(|held| self.store.shard.counted_at(held)));
    }

    fn is_metered(&self, handle: &Handle) -> bool {
        self.store.shard.recounted.is_some() && has_meters(&self.store.shard, handle)
    }

    fn follow_meters(&mut self, handle: &Handle, at: &[CountedAt]) {
        self.store.follow_meters(handle, at);
    }

    fn next_recounted(&mut self) -> Option<u64> {
        self.store.shard.recounted.as_mut()?.seids.pop()
    }

    fn counts_are_kept(&mut self) {
        self.store.shard.counts_are_kept();
    }

    fn borrow_sessions(&mut self, places: u32, key: SeidKey) -> bool {
        let Some(port) = &self.n4 else {
            return self.store.borrow_sessions(places, key, None);
        };
        let aliases = crate::store::ALIASES as u32;
        match self.programs.backend().n4(places, aliases) {
            Some(Ok((program, engine))) => {
                engine.set_addresses(&port.addresses);
                self.n4_program = Some(Ok(program));
                self.store.borrow_sessions(places, key, Some(engine))
            }
            Some(Err(error)) => {
                self.n4_program = Some(Err(error));
                false
            }
            None => false,
        }
    }

    fn serves_beside(&self) -> bool {
        self.store.engine().is_some()
    }

    fn know_place(&mut self, place: u32, generation: u32, association: u32, sequence: Option<u32>) {
        let name = (generation, association);
        self.store.know_place(place, name, sequence);
    }

    fn take_back(&mut self, place: u32, taken_for: TakenFor) {
        self.store.take_back(place, taken_for);
    }

    fn give_back(&mut self) {
        self.store.give_back();
    }

    fn pause(&mut self) {
        self.store.pause();
    }

    fn go_on(&mut self) {
        self.store.go_on();
    }

    fn look_at_served(&mut self) {
        self.store.look_at_served();
    }

    fn next_served(&mut self, served: &mut ServedBeside) -> bool {
        self.store.next_served(served)
    }

    fn served_ahead(&self, others: usize) -> Option<u64> {
        self.store.engine()?.served_ahead(others)
    }

    fn served_until(&self) -> u64 {
        self.store.engine().map_or(0, |engine| engine.read_until())
    }

    fn served_is_kept(&mut self) {
        self.store.served_is_kept();
    }

    fn know_sources(&mut self, sources: &[Source]) {
        if let Some(Ok(program)) = &mut self.n4_program
            && let Err(error) = program.set_sources(sources)
        {
            tracing::error!(%error, "requests of an SMF are not served by a program");
        }
    }

    fn slow(&self, why: Slow) -> u64 {
        self.store.engine().map_or(0, |engine| engine.slow(why))
    }

    fn lend(&mut self, handle: &Handle, lent: &Lent) {
        self.store.lend(handle, lent);
    }

    fn hold(&mut self, place: u32) {
        self.store.hold(place);
    }

    fn touch_place(&self, place: u32) -> u64 {
        self.store.touch_place(place)
    }

    fn return_place(&mut self, place: u32) {
        self.store.return_place(place);
    }

    fn heard(&mut self, place: u32, sequence: u32) {
        self.store.heard(place, sequence);
    }

    fn teach(&mut self, number: usize, template: Option<&Template>) -> bool {
        self.store.teach(number, template)
    }

    fn serve(&mut self, octets: &[u8], association: u32, served: &mut Served) -> Result<(), Slow> {
        self.store.serve(octets, association, served)
    }

    fn parted(&self, pdr: PdrId) -> Option<Counters> {
        self.store.shard.departed.parted(pdr)
    }

    fn counters_of(&self, handle: &Handle, pdr: PdrId, rule: PredefinedId) -> Counters {
        let mut entries = handle.entries_of(pdr);
        let own = entries.find(|entry| entry.is_of((pdr, Some(rule))));
        own.map_or(Counters::default(), |entry| {
            self.store.shard.own_counters(entry.index)
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
        self.store.node.peers.set_nexthop(peer, index);
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
        self.interface_addresses.set(ni, v4, v6);
    }

    fn set_n3_routes(&mut self, routes: &Arc<RouteView>) {
        self.store.node.n3_routes = Some(Arc::clone(routes));
    }

    fn take_peer_changes(&mut self, into: &mut Vec<PeerChange>) {
        self.store.node.peers.take_changes(into);
    }
}
