//! From a checked configuration to the last exit: what is opened in which order, and who runs it.

use std::io;
use std::net::{TcpListener, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail};
use listenfd::ListenFd;
use nexthop::NextHops;
use nexthop::netlink::Netlink;
use nix::sys::signal::SigSet;
use report::ConfigState;
use session::Core;
use slowpath::{Setup, SlowPath, SlowPathThread, send_end_markers};
use tables::{GoingOn, Layout, Pins, TableFiles, Tables};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use topology::Topology;

use crate::api::{self, Api};
use crate::command::{self, Asked, Asker, Command};
use crate::config::{
    Config, DatapathKind, Memory, System, doubt_of_memory, doubts, home, read_token,
};
use crate::control::{About, Control, EchoSockets, Gate, HostNetwork, Policies, Usage};
use crate::kept::Beginning;
use crate::nrf::{self, Farewell};
use crate::nupf;
use crate::reload::{Handed, Reloader, Successor, Text};
use crate::running::{Running, Shared};
use crate::telemetry::{self, Last};
use crate::usage_log::UsageLog;
#[cfg(feature = "dpdk")]
use crate::workers;
use crate::{access, n4, plan, recovery, system};

/// Time in which a signal that has come is seen.
const LAST_LOOK: Duration = Duration::from_millis(1);

/// How this process came to run, and what the next start in it gets.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) started: Instant,
    /// When the process began, whatever starts there were in it.
    pub(crate) since: SystemTime,
    /// The configuration's file, and the text that was read.
    pub(crate) file: PathBuf,
    pub(crate) text: Text,
    /// `Some`: a start before this one in the same process has given it this.
    pub(crate) handed: Option<Handed>,
    /// Handles of N4's sockets, which outlive a start.
    pub(crate) sockets: Vec<UdpSocket>,
    /// N4 was served, or a signal has asked for the end: there is no way back to another configuration.
    pub(crate) is_settled: Arc<AtomicBool>,
}

/// Run until a signal ends it, or another start is to go on in its place.
pub(crate) fn run(config: Config, process: &mut Process) -> Result<Option<Successor>> {
    let missing = system::missing_capabilities(config.datapath.kind);
    if !missing.is_empty() {
        bail!(
            "rights are missing: {}. Run as root, or see deploy/turnpiked.service",
            missing.join(", ")
        );
    }
    let topology = Topology::read();
    let of_memory = doubt_of_memory(&config, &Memory::read(), plan::layout(&config).octets());
    for doubt in doubts(&config, &topology).into_iter().chain(of_memory) {
        tracing::warn!("{doubt}");
    }
    // Threads that are started from here on run there, too, but for those that choose CPUs of their own.
    system::run_on(&config.datapath.control_cpus).context("datapath.control_cpus")?;
    let token: Option<Arc<str>> = match &config.api.token_file {
        Some(path) => Some(
            read_token(path)
                .map_err(|reason| anyhow::anyhow!("api.token_file = {path:?}: {reason}"))?
                .into(),
        ),
        None => None,
    };
    let listener = TcpListener::bind(config.api.listen)
        .with_context(|| format!("api.listen = {}", config.api.listen))?;
    listener.set_nonblocking(true)?;
    let (asker, asked) = command::channel()?;
    let config = Arc::new(config);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .on_thread_start(|| {
            // Else it would be one that takes signals.
            let _ = hold_signals();
        })
        .build()?;
    // A signal that asks for nothing must not end what is still starting.
    let harmless = {
        let _inside = runtime.enter();
        Harmless::listen()?
    };
    let node = home(&config, &topology);
    let control = prepare(&config, node, &asker, (asked, &mut process.sockets))?;
    let packets_go_on = control.packets_go_on();
    let (records, queue) = telemetry::queue();
    let control = control.telling(records);

    let limits = api::Limits::new(&config.api);
    let running = Shared::new(Running {
        config: Arc::clone(&config),
        token_to_change: match &token {
            Some(token) => Some(Arc::clone(token)),
            None => access::new_token().ok().map(Arc::from),
        },
        token,
        state: ConfigState {
            file: process.file.display().to_string(),
            ..process
                .handed
                .as_ref()
                .map(Handed::state)
                .unwrap_or_default()
        },
        packets_go_on,
        nrf: None,
        nupf: None,
        spans: None,
    });
    let topology = Arc::new(topology);
    let of_file = (process.file.clone(), process.text.clone());
    let topology_of_start = Arc::clone(&topology);
    let reloader = Reloader::new(of_file, topology_of_start, running.clone(), asker.clone());
    let reloader = Arc::new(reloader);
    let offered = reloader.offer_access(process.text.read_at);
    let of_process = (topology, process.since);
    let (leave, left) = oneshot::channel();
    let registered = nrf::keep_registered(running.clone(), asker.clone(), left);
    let exposed = nupf::expose(running.clone(), asker.clone());
    let of_end = running.clone();
    let of_spans = running.clone();
    let api = Api::new(asker.clone(), running, Arc::clone(&reloader), of_process);
    let (history, router) = (api.clone().keep_history(), api.router());
    let (handed, started) = (process.handed.clone(), process.started);
    let is_settled = Arc::clone(&process.is_settled);
    let ended = runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let ends = Ends::listen()?;
        let (ready, ended) = spawn(control)?;
        listened_to().thread_unblock()?;
        tokio::spawn(api::serve(listener, router, limits));
        tokio::spawn(history);
        let of_last = of_spans.clone();
        let last = Last::begin(queue, of_spans);
        let settled = Arc::clone(&is_settled);
        let served = tokio::spawn(async move {
            // Else it has ended, which is said elsewhere.
            if ready.await.is_ok() {
                settled.store(true, Ordering::Relaxed);
                if let Some(handed) = handed {
                    handed.settle();
                }
                tracing::info!(
                    n4 = %config.n4.listen,
                    api = %config.api.listen,
                    after_ms = started.elapsed().as_millis() as u64,
                    "ready"
                );
                system::notify("READY=1");
                tokio::spawn(exposed);
                registered.await;
            }
        });
        let farewell = (Farewell::new(leave, served), of_end);
        let ending = (&asker, &reloader, &*is_settled);
        let ended = until_the_end(ending, (ends, harmless), ended, farewell).await;
        // A start that follows is not kept waiting.
        if let Ok(false) = ended {
            last.finish(of_last.config().keeps_sessions()).await;
        }
        ended
    });
    // A name that is being looked up would keep it waiting, however it ended.
    runtime.shutdown_background();
    let hands_over = ended?;
    let successor = reloader.take_successor().filter(|_| hands_over);
    if successor.is_some()
        && let Some(offered) = offered
    {
        offered.leave();
    }
    Ok(successor)
}

/// All of them come from one place: of systemd, or of a start before this one, if there are any there, as what waits in those is
/// not lost with a process.
fn bind_n4(config: &Config) -> Result<Vec<n4::Socket>> {
    let buffer = config.n4.receive_buffer_mib as usize * (1 << 20);
    let mut inherited = inherited().context("LISTEN_FDS")?;
    let wants = !inherited.is_empty();
    let mut bind = |key: &str, address| {
        let is_it = |socket: &UdpSocket| socket.local_addr().is_ok_and(|local| local == address);
        let known = inherited.iter().position(is_it);
        let known = known.map(|place| inherited.swap_remove(place));
        let socket = match known {
            Some(socket) => n4::Socket::inherit(socket, buffer),
            None if wants => Err(io::Error::other("no socket of LISTEN_FDS is bound to it")),
            None => n4::Socket::bind(address, buffer),
        };
        socket.with_context(|| format!("{key} = {address}"))
    };
    let mut sockets = vec![bind("n4.listen", config.n4.listen)?];
    if let Some(also) = config.n4.listen_also {
        sockets.push(bind("n4.listen_also", also)?);
    }
    if let Some(other) = inherited.first() {
        bail!("LISTEN_FDS: {} is no address of [n4]", other.local_addr()?);
    }
    Ok(sockets)
}

/// UDP sockets that were handed over at the start (`sd_listen_fds`); none, as a rule.
fn inherited() -> io::Result<Vec<UdpSocket>> {
    let mut handed = ListenFd::from_env();
    let mut sockets = Vec::new();
    for place in 0..handed.len() {
        sockets.extend(handed.take_udp_socket(place)?);
    }
    Ok(sockets)
}

/// Open everything but the REST port, attach, and hand it to the control thread's owner.
/// `node`: NUMA node of the NICs. `handles`: of N4's sockets, for the next start.
fn prepare(
    config: &Arc<Config>,
    node: Option<u32>,
    asker: &Asker,
    (asked, handles): (Asked, &mut Vec<UdpSocket>),
) -> Result<Control> {
    let loading = Instant::now();
    let mut beginning = Beginning::open(config, || new_identity(config))?;
    let pins = beginning.as_mut().and_then(Beginning::take_pins);
    let files = beginning.as_mut().and_then(Beginning::take_table_files);
    let mut tables = open_tables(config, node, (pins, files))?;
    if let Some(beginning) = &mut beginning
        && tables.going_on() == GoingOn::Already
    {
        beginning.attach_late();
    }
    let attaches_late = beginning.as_ref().is_some_and(Beginning::attaches_late);
    let setup = set_up(config, &mut tables)?;
    let listener = {
        let asker = asker.clone();
        // A control thread that cannot keep up misses some: gNBs repeat them.
        move |packet| {
            let _ = asker.tell(Command::Gtpu(packet));
        }
    };
    let slow_path = SlowPath::open(setup.finisher(&tables), listener)
        .context("raw sockets of the slow path")?;
    let rings = tables.events()?.zip(tables.copies()?);
    let rings = rings.context("the data path has no event rings")?;
    let slow_path = SlowPathThread::start(slow_path, rings.into()).context("slow path")?;
    let bounds = plan::buffering(config);
    let waiting = beginning.as_ref().map(|of| of.packets(config, bounds));
    let buffers = setup
        .start_buffering(&tables, (bounds, waiting.unwrap_or_default()), {
            let asker = asker.clone();
            move |what| asker.buffered(what)
        })
        .context("packets for idle UEs")?;
    let marked = send_end_markers(&mut tables).context("raw sockets of End Markers")?;
    // Nobody is kept waiting for what takes its time; and while another process has the port, its interfaces stay as they are.
    let sockets = bind_n4(config)?;
    for socket in &sockets {
        handles.push(socket.try_clone().context("socket of N4")?);
    }
    // Else when sessions of before are in the tables.
    if !attaches_late {
        tables.attach()?;
    }
    govern(&tables)?;
    // Interfaces that the data path makes are there now: it has been attached, or that of the process before is still there.
    let next_hops = plan::next_hops(config)?;
    let system = System::read()?;
    // N4 hears what has waited in its sockets before rtnetlink has said it.
    tables.set_vlans(system.numbered_vlans());
    if attaches_late {
        tables.set_interfaces(next_hops.ports.iter().map(|port| port.ifindex));
    }
    let next_hops = NextHops::new(next_hops);
    let netlink = Netlink::start({
        let asker = asker.clone();
        move |change| {
            // Nobody is left to hear it once the control thread has ended.
            asker.insist(Command::Kernel(Box::new(change)));
        }
    })
    .context("rtnetlink")?;
    let (recovery_time_stamp, seed) = match &beginning {
        Some(beginning) => beginning.identity(),
        None => new_identity(config)?,
    };
    let about = About {
        config: Arc::clone(config),
        recovery_time_stamp,
        start_time: loading.elapsed(),
    };
    let core = Core::new(
        plan::session(config, seed),
        about.recovery_time_stamp,
        tables,
    );
    let usage = Usage::new(usage_log(config)?);
    let network = HostNetwork::new(
        (next_hops, Policies::new(config)),
        netlink,
        slow_path,
        marked,
        buffers,
    );
    let n3 = core.config().n3.iter().copied();
    let ingress = core.tables().ingress();
    let listen = [Some(config.n4.listen), config.n4.listen_also];
    let listen = listen.into_iter().flatten().map(|listen| listen.ip());
    let gate = Gate::new(ingress.clone(), listen, system.numbered().into_iter());
    let echo = EchoSockets::bind(n3, ingress).context("sockets for Echo Requests")?;
    let parts = (network, usage);
    Ok(Control::new(
        core,
        (sockets, gate, echo),
        asked,
        parts,
        (about, beginning, system.addresses()),
    ))
}

/// Recovery Time Stamp and seed of a start that knows of none before it.
fn new_identity(config: &Config) -> Result<(u32, u64)> {
    let stamp = recovery::time_stamp(&config.node.id.to_string());
    Ok((stamp, system::random().context("/dev/urandom")?))
}

fn usage_log(config: &Config) -> Result<Option<UsageLog>> {
    let Some(path) = &config.usage_log.path else {
        return Ok(None);
    };
    let log = UsageLog::open(&config.usage_log, path);
    log.map(Some)
        .with_context(|| format!("usage_log.path = {path:?}"))
}

/// The tables with what the configuration says of addresses; not attached.
/// `pins`: programs outlive this process by these; `files`: tables do in these.
fn open_tables(
    config: &Config,
    node: Option<u32>,
    (pins, files): (Option<Pins>, Option<TableFiles>),
) -> Result<Tables> {
    let ports = plan::ports(config);
    let (layout, options) = (plan::layout(config), plan::options(config));
    let layout = Layout { node, ..layout };
    let mut tables = match (config.datapath.kind, pins) {
        (DatapathKind::Xdp, Some(pins)) => Tables::pinned(&layout, &ports, &options, pins)?,
        (DatapathKind::Xdp, None) => Tables::xdp(&layout, &ports, &options)?,
        (DatapathKind::Kernel, _) => Tables::kernel_in(&layout, &ports, &options, files)?,
        #[cfg(feature = "dpdk")]
        (DatapathKind::Dpdk, _) => {
            let settings = plan::dpdk(config, node);
            match files {
                Some(files) if files.are_all() => {
                    let apart = (files, workers::start(&config.log));
                    Tables::dpdk_apart(&layout, &ports, &options, &settings, apart)?
                }
                files => Tables::dpdk_in(&layout, &ports, &options, &settings, files)?,
            }
        }
        #[cfg(not(feature = "dpdk"))]
        (DatapathKind::Dpdk, _) => bail!("datapath.kind: this turnpiked was built without DPDK"),
    };
    tables.set_local(&plan::n3_addresses(config))?;
    for (ni, home) in plan::homes(config) {
        tables.set_home(ni, home);
    }
    for (ni, allowed) in plan::ue_to_ue(config) {
        tables.set_ue_to_ue(ni, allowed);
    }
    for (ni, pool) in plan::pools(config) {
        tables
            .register_pool(ni, pool)
            .with_context(|| format!("pool {pool}"))?;
    }
    Ok(tables)
}

/// Setup of the slow path, which has the routers of the configuration.
fn set_up(config: &Config, tables: &mut Tables) -> Result<Setup> {
    let setup = Setup::new(tables).context("the slow path")?;
    for (ni, what) in plan::advertised(config) {
        for ni in plan::routed(config, ni) {
            setup.routers().advertise(ni, what.clone());
        }
    }
    for (ni, addr) in plan::router_addresses(config) {
        for ni in plan::routed(config, ni) {
            setup.routers().set_address(ni, addr);
        }
    }
    Ok(setup)
}

/// Start the thread that gives flows their shares of capacities, if there are some. It ends with the process.
fn govern(tables: &Tables) -> Result<()> {
    let Some(mut governor) = tables.governor() else {
        return Ok(());
    };
    std::thread::Builder::new()
        .name("capacities".into())
        .spawn(move || {
            loop {
                governor.look(tables::monotonic_ns());
                std::thread::sleep(governor.pause());
            }
        })
        .context("thread of capacities")?;
    Ok(())
}

/// Told once the control thread serves N4.
type Ready = oneshot::Receiver<()>;
/// Told what it ended with: whether it has handed over.
type Ended = oneshot::Receiver<Result<bool>>;

/// Start the control thread.
fn spawn(control: Control) -> Result<(Ready, Ended)> {
    let (end, ended) = oneshot::channel();
    let (ready, is_ready) = oneshot::channel();
    std::thread::Builder::new()
        .name("control".into())
        .spawn(move || {
            let result = control.run(move || {
                // Nobody asks when a second signal has come.
                let _ = ready.send(());
            });
            // The main thread waits for this, unless a second signal ends the process.
            let _ = end.send(result);
        })
        .context("control thread")?;
    Ok((is_ready, ended))
}

/// Signals that ask turnpiked to end.
struct Ends {
    terminate: Signal,
    interrupt: Signal,
    quit: Signal,
}

impl Ends {
    fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
        })
    }

    async fn recv(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            _ = self.quit.recv() => {}
        }
    }
}

/// Signals that would end a process that does not listen to them.
struct Harmless {
    hangup: Signal,
    user_defined1: Signal,
    /// Nothing is done about these. The last is for a file that has reached the limit of its size (`ulimit -f`): writing to it
    /// fails instead.
    _ignored: [Signal; 2],
}

impl Harmless {
    fn listen() -> io::Result<Self> {
        let file_size = SignalKind::from_raw(nix::sys::signal::Signal::SIGXFSZ as i32);
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            user_defined1: signal(SignalKind::user_defined1())?,
            _ignored: [signal(SignalKind::user_defined2())?, signal(file_size)?],
        })
    }
}

/// A first signal shuts down in good order, a second one at once. Whether it was handed over.
async fn until_the_end(
    (asker, reloader, is_settled): (&Asker, &Arc<Reloader>, &AtomicBool),
    (mut ends, mut harmless): (Ends, Harmless),
    mut ended: Ended,
    (mut farewell, running): (Farewell, Shared),
) -> Result<bool> {
    let mut told = false;
    loop {
        tokio::select! {
            result = &mut ended => return match result {
                Ok(Ok(true)) => {
                    farewell.hand_over(&running.now(), reloader.successor_config()).await;
                    leave_signals(told, &mut ends).await;
                    Ok(true)
                }
                Ok(Ok(false)) if told => {
                    farewell.finish().await;
                    tracing::info!("ended");
                    Ok(false)
                }
                Ok(Ok(false)) => bail!("the control thread ended by itself"),
                Ok(Err(error)) => Err(error).context("the control thread failed"),
                Err(_) => bail!("the control thread panicked"),
            },
            () = ends.recv() => {}
            _ = harmless.hangup.recv() => {
                open_logs_anew(asker, "SIGHUP");
                let reloader = Arc::clone(reloader);
                tokio::spawn(async move { reloader.reload().await });
                continue;
            }
            _ = harmless.user_defined1.recv() => {
                open_logs_anew(asker, "SIGUSR1");
                continue;
            }
        }
        if told {
            bail!("a second signal: ended without waiting for the SMFs");
        }
        told = true;
        is_settled.store(true, Ordering::Relaxed);
        system::notify("STOPPING=1");
        farewell.say(&running.config());
        // Questions may fill the queue.
        asker.insist(Command::ShutDown);
    }
}

/// Have signals wait until [`run`] listens to them: in this thread, and for ever in those that it starts, so that none is taken by a
/// thread that nobody asks.
pub(crate) fn hold_signals() -> nix::Result<()> {
    listened_to().thread_block()
}

/// Signals that this process listens to.
fn listened_to() -> SigSet {
    use nix::sys::signal::Signal as S;
    [
        S::SIGTERM,
        S::SIGINT,
        S::SIGQUIT,
        S::SIGHUP,
        S::SIGUSR1,
        S::SIGUSR2,
    ]
    .into_iter()
    .collect()
}

/// Signals wait for the next start in this process, which would else be ended by them before it listens, or never hear of them. `told`:
/// to end, by one that has come.
async fn leave_signals(told: bool, ends: &mut Ends) {
    let blocked = hold_signals();
    // One may have come before that.
    let came = tokio::time::timeout(LAST_LOOK, ends.recv()).await.is_ok();
    if blocked.is_ok() && (told || came) {
        let _ = nix::sys::signal::raise(nix::sys::signal::Signal::SIGTERM);
    }
}

fn open_logs_anew(asker: &Asker, signal: &str) {
    tracing::info!("{signal}: files of logs are opened anew");
    if let Err(error) = asker.tell(Command::OpenLogsAnew) {
        tracing::error!(%error, "files of logs are not opened anew");
    }
}
