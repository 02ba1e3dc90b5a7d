//! The control thread: it owns the N4 socket, the core and the tables, and waits for datagrams,
//! questions, kernel changes and the core's next deadline.

mod beside;
mod busy;
mod early;
mod echo;
mod gate;
mod host_network;
mod log;
mod policies;
mod ports;
mod questions;
mod show;
mod trace;
mod transactions;
mod usage;
mod workers;

use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use session::{Core, Outbox, Time};
use tables::{GoingOn, SetupError, Tables};

use crate::clock::Clock;
use crate::command::{Asked, Command, Question, Reconfigured};
use crate::config::{Config, DatapathKind, OnStop, growth, newcomers};
use crate::kept::{Beginning, Kept};
use crate::n4::{Receiver, Sender, Socket, Strangers};
use crate::telemetry::Records;
use crate::{plan, system};

use beside::Beside;
use busy::Busy;
use early::{Early, Waited};
pub(crate) use echo::EchoSockets;
pub(crate) use gate::Gate;
pub(crate) use host_network::HostNetwork;
use log::Log;
pub(crate) use policies::Policies;
use questions::{Quantum, Questions};
pub(crate) use show::About;
use trace::Traces;
use transactions::Transactions;
pub(crate) use usage::Usage;
use workers::Replacements;

/// How long SMFs have to answer the release of their association when we shut down.
const RELEASE_TIME: Duration = Duration::from_secs(2);
/// How long the kernel has to say what it knows of ways and neighbours before packets go by that.
const NETWORK_TIME: Duration = Duration::from_secs(1);
/// How often it is looked whether it has.
const NETWORK_LOOK: Duration = Duration::from_millis(1);
/// Datagrams that came meanwhile and are answered at a time.
const EARLY_BATCH: usize = 64;
/// How often the tables take back what has had its grace period.
const MAINTENANCE: Duration = Duration::from_millis(20);
/// Workers in another process are looked at so often.
const WORKERS_LOOK: Duration = Duration::from_millis(100);
/// Next hops that found no room are tried again at least so often.
const IDLE: Duration = Duration::from_secs(1);
/// Pause after an error of the socket that would otherwise repeat at once.
const ERROR_PAUSE: Duration = Duration::from_millis(10);

/// `EpollEvent`'s data.
/// Of the first socket; the second follows.
const N4: u64 = 1;
const WAKE: u64 = 0;
/// Packets tell that they have reached a threshold or a quota.
const ALARMS: u64 = 8;
/// Of the first socket for Echo Requests; the others follow.
const ECHO: u64 = 16;
/// Taken from epoll at a time.
const EVENTS: usize = 16;
/// Orders carried out before N4 has its turn again.
const COMMANDS_PER_TURN: usize = 64;
/// Idle UEs whose first packets are looked at before N4 has its turn again.
const BUFFERED_PER_TURN: usize = 1024;
/// Single datagrams served before everything else has its turn again.
const BATCHES_PER_TURN: usize = 64;

/// Everything that the thread owns.
pub(crate) struct Control {
    core: Core<Tables>,
    /// One, or one for each address family.
    sockets: Vec<Socket>,
    gate: Gate,
    strangers: Strangers,
    echo: EchoSockets,
    asked: Asked,
    questions: Questions,
    network: HostNetwork,
    about: About,
    outbox: Outbox,
    /// Not yet the case: what a process before this one has left is to be taken over.
    clock: Clock,
    beginning: Option<Beginning>,
    /// Of this host, until the kernel's own word comes, which is some milliseconds later.
    addresses: Vec<IpAddr>,
    /// `None`: sessions end with the process.
    kept: Option<Kept>,
    maintained: Instant,
    /// Of workers.
    replacements: Replacements,
    /// When Error Indications begin; `None`: they have.
    grace: Option<Instant>,
    /// `Some`: associations are being released, until then.
    shutting_down: Option<Instant>,
    /// Sessions are left to a start in this process.
    hands_over: bool,
    /// `Some`: sessions are being taken over, and whether it was asked to end meanwhile. It is not known before whose they are.
    ends_early: Option<bool>,
    busy: Busy,
    beside: Beside,
    unsent: u64,
    traces: Traces,
    usage: Usage,
    log: Log,
    /// Way to telemetry; of no use until the configuration asks for spans.
    records: Option<Records>,
    /// `None`: nobody is told of any.
    transactions: Option<Transactions>,
    /// N4 could not be received from, and it was said.
    deaf: bool,
    busy_poll: Duration,
}

impl Control {
    pub(crate) fn new(
        core: Core<Tables>,
        (sockets, gate, echo): (Vec<Socket>, Gate, EchoSockets),
        asked: Asked,
        (network, usage): (HostNetwork, Usage),
        (about, beginning, addresses): (About, Option<Beginning>, Vec<IpAddr>),
    ) -> Self {
        let busy_poll = Duration::from_micros(about.config.n4.busy_poll_us.into());
        let grace = Duration::from_secs(about.config.gtpu.restart_grace_s.into());
        let log = Log::new(&about.config.n4.smf);
        Self {
            busy_poll,
            core,
            sockets,
            gate,
            strangers: Strangers::default(),
            echo,
            asked,
            questions: Questions::default(),
            network,
            about,
            outbox: Outbox::new(),
            clock: beginning
                .as_ref()
                .map_or_else(Clock::default, Beginning::clock),
            beginning,
            addresses,
            kept: None,
            maintained: Instant::now(),
            replacements: Replacements::default(),
            grace: Some(Instant::now() + grace),
            shutting_down: None,
            hands_over: false,
            ends_early: None,
            busy: Busy::new(),
            beside: Beside::new(),
            unsent: 0,
            traces: Traces::default(),
            usage,
            log,
            records: None,
            transactions: None,
            deaf: false,
        }
    }

    /// Tell telemetry of transactions, where the configuration wants that.
    pub(crate) fn telling(mut self, records: Records) -> Self {
        self.transactions = Transactions::follow(None, &self.about.config, &records);
        self.records = Some(records);
        self
    }

    /// Until told to shut down and done with it, or to hand over: whether the latter. `ready`: is called when N4 is served.
    pub(crate) fn run(mut self, ready: impl FnOnce()) -> Result<bool> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        for (number, socket) in (N4..).zip(&self.sockets) {
            let event = EpollEvent::new(EpollFlags::EPOLLIN, number);
            epoll.add(socket.as_fd(), event)?;
        }
        epoll.add(
            self.asked.wake(),
            EpollEvent::new(EpollFlags::EPOLLIN, WAKE),
        )?;
        for fd in self.core.tables().alarms() {
            epoll.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, ALARMS))?;
        }
        for (number, fd) in (ECHO..).zip(self.echo.fds()) {
            epoll.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, number))?;
        }
        let mut receiver = Receiver::new();
        let mut sender = Sender::new();
        self.core.set_clock(self.now(), system::ntp());
        let waited = self.take_over()?;
        // No session loses an address that it has.
        let addresses = mem::take(&mut self.addresses);
        if !self.network.is_known() {
            self.core.set_own_addresses(addresses);
        }
        self.associate();
        self.network.reconcile(self.core.tables_mut());
        self.flush(&mut sender);
        if let Some(waited) = waited {
            self.catch_up(waited, &mut sender);
        }
        if self.ends_early.take() == Some(true) {
            self.shut_down();
        }
        // Without a grace period (gtpu.restart_grace_s = 0) unknown TEIDs are answered from now on.
        self.maintain()?;
        let tables = self.core.tables_mut();
        match self.beside.attach(tables, &self.sockets) {
            // Its interface has gone while sessions were taken over. It is looked for, as that of any port.
            Err(SetupError::NotMet(_)) => {}
            attached => attached?,
        }
        ready();
        let mut events = [EpollEvent::empty(); EVENTS];
        while !self.is_done() {
            self.busy.rests();
            let ready = epoll.wait(&mut events, self.timeout());
            if let Some(percent) = self.busy.works() {
                self.core.set_busy(percent);
            }
            let ready = match ready {
                Ok(ready) => ready,
                Err(Errno::EINTR) => 0,
                Err(error) => return Err(error.into()),
            };
            let ready = events.get(..ready).unwrap_or_default();
            let ready = || ready.iter().map(EpollEvent::data);
            for socket in ready().filter(|event| (N4..ALARMS).contains(event)) {
                self.serve_n4(socket, &mut receiver, &mut sender);
            }
            for event in ready() {
                match event {
                    WAKE => self.serve_commands(),
                    ALARMS => self.usage.more = true,
                    echo if echo >= ECHO => self.serve_echo(echo),
                    _ => {}
                }
            }
            let now = self.now();
            let to = (&mut self.core, &mut self.outbox);
            self.beside.tend(now, &self.sockets, to);
            self.serve_strangers();
            self.serve_usage();
            self.serve_time();
            self.network.reconcile(self.core.tables_mut());
            self.maintain()?;
            self.traces.tend(&mut self.core);
            self.flush(&mut sender);
            self.answer_some();
        }
        // From now on nothing changes but here.
        self.core.tables_mut().detach_n4();
        self.core.catch_up(self.now(), &mut self.outbox);
        if self.leaves_sessions() {
            self.leave(&mut sender);
        } else {
            self.abandon(&mut sender);
        }
        Ok(self.hands_over)
    }

    /// Sessions that a process before this one has left go on. What has come by N4 meanwhile.
    fn take_over(&mut self) -> Result<Option<Waited>> {
        let Some(beginning) = self.beginning.take() else {
            return Ok(None);
        };
        // Both are ours again when that is done.
        let (sockets, gate) = (mem::take(&mut self.sockets), self.gate.clone());
        let room = self.about.config.n4.receive_buffer_mib as usize * (1 << 20);
        let mut early = Early::new(sockets.as_slice(), &gate, room);
        let waits = beginning.goes_on();
        self.ends_early = Some(false);
        let now = self.now();
        let (core, outbox) = (&mut self.core, &mut self.outbox);
        let attend = |core: &Core<Tables>| early.attend(core);
        let taken = beginning.take_over(now, &self.about.config, core, outbox, attend)?;
        if waits {
            self.await_network(&mut early);
        }
        self.manage();
        let now = self.now();
        let (core, outbox) = (&mut self.core, &mut self.outbox);
        let attend = |core: &Core<Tables>| early.attend(core);
        self.kept = taken.settle(now, core, outbox, &self.network, attend)?;
        let waited = early.end();
        self.sockets = sockets;
        Ok(Some(waited))
    }

    /// Packets are to find their ways where they meet other tables than before.
    fn await_network(&mut self, early: &mut Early<'_>) {
        let until = Instant::now() + NETWORK_TIME;
        while !self.network.is_settled() && Instant::now() < until {
            std::thread::sleep(NETWORK_LOOK);
            early.attend(&self.core);
            self.serve_commands();
            self.network.learn(self.core.tables_mut());
        }
    }

    /// Serve what has come by N4 while that had to wait.
    fn catch_up(&mut self, waited: Waited, sender: &mut Sender) {
        for from in waited.kept_out {
            self.core.drop_from_data_network(from, &mut self.outbox);
        }
        for batch in waited.datagrams.chunks(EARLY_BATCH) {
            let now = self.now();
            for (from, datagram) in batch {
                let (core, outbox) = (&mut self.core, &mut self.outbox);
                if !core.is_stranger(*from) {
                    if let Some(transactions) = &mut self.transactions {
                        let now = self.clock.of_host(now);
                        transactions.received(now, core, *from, datagram);
                    }
                    core.receive(now, *from, datagram, outbox);
                } else if let Err(messages) = self.strangers.put(*from, datagram) {
                    core.drop_stranger(*from, messages, outbox);
                }
            }
            self.network.take_peers(self.core.tables_mut());
            self.flush(sender);
        }
    }

    /// Sessions are the next process's when this one ends.
    fn leaves_sessions(&self) -> bool {
        let keeps = self.hands_over || self.about.config.state.on_stop == OnStop::Keep;
        self.kept.is_some() && keeps
    }

    /// Sessions stay as they are, with all that they have counted: where the tables stay, that is found there.
    fn leave(&mut self, sender: &mut Sender) {
        let now = self.now();
        let after = |core: &Core<Tables>, last| core.sessions(last).next().map(|next| next.seid);
        // Files of tables go with the host, and its next one has records alone.
        let ends = self.core.tables().pins().is_none();
        let mut next = after(&self.core, None).filter(|_| ends);
        while let Some(seid) = next {
            self.core.look(now, seid, &mut self.outbox);
            next = after(&self.core, Some(seid));
        }
        self.flush(sender);
        if let Some(kept) = self.kept.take() {
            kept.leave(&mut self.core, self.hands_over);
        }
        self.log.end(now);
    }

    /// Give up waiting for SMFs: usage that they have not acknowledged goes to the log of usage.
    fn abandon(&mut self, sender: &mut Sender) {
        self.usage.waits = true;
        let now = self.now();
        self.core.abandon(now, &mut self.outbox);
        self.flush(sender);
        while !self.core.is_released() {
            self.core.advance(now, &mut self.outbox);
            self.flush(sender);
        }
        self.core.tables().set_going_on(false);
        if let Some(kept) = self.kept.take() {
            kept.end();
        }
        if let Some(pins) = self.core.tables().pins() {
            pins.remove();
        }
        self.log.end(now);
    }

    /// Of a clock that goes on from process to process.
    fn now(&self) -> Time {
        self.clock.now()
    }

    fn associate(&mut self) {
        let now = self.now();
        for &smf in &self.about.config.n4.smf {
            self.core.associate(now, smf, &mut self.outbox);
        }
    }

    /// Serve the datagrams that wait. A request that came alone is most likely followed by the next one as soon as its
    /// answer has arrived: looking for it a little longer is cheaper than sleeping and waking.
    fn serve_n4(&mut self, socket: u64, receiver: &mut Receiver, sender: &mut Sender) {
        for _ in 0..BATCHES_PER_TURN {
            let since = Instant::now();
            let mut served = self.serve_batch(socket, receiver, sender);
            while served == 0 && since.elapsed() < self.busy_poll {
                served = self.serve_batch(socket, receiver, sender);
            }
            if served != 1 {
                return;
            }
        }
    }

    /// Serve what one receive takes; more than that wakes us again at once. Peers' datagrams come first, and by turns;
    /// strangers' wait, so that the socket's buffer is empty again soon, whoever fills it. Returns the number of
    /// peers' datagrams.
    fn serve_batch(&mut self, socket: u64, receiver: &mut Receiver, sender: &mut Sender) -> usize {
        let number = (socket - N4) as usize;
        let Some(socket) = self.sockets.get(number) else {
            return 0;
        };
        let received = receiver.receive(socket);
        self.beside.received(number, received.unwrap_or(0));
        let deaf = mem::replace(&mut self.deaf, received.is_err());
        if let Err(error) = received {
            if !deaf {
                tracing::error!(%error, "N4: cannot receive");
            }
            std::thread::sleep(ERROR_PAUSE);
            return usize::MAX;
        }
        let now = self.now();
        self.keep_out(number, receiver);
        let served = self.part(receiver);
        if served > 0 {
            self.questions.n4_is_served();
        }
        for batch in receiver.batches() {
            if served > 1 {
                self.core.expect(batch.clone());
                if let Some(kept) = &self.kept {
                    kept.expect(&self.core);
                }
            }
            for (from, datagram) in batch {
                if let Some(transactions) = &mut self.transactions {
                    let now = self.clock.of_host(now);
                    transactions.received(now, &self.core, from, datagram);
                }
                self.core.receive(now, from, datagram, &mut self.outbox);
            }
            // Before SMFs hear of it: the next hop of a new gNB, whose MTU the first packet may need.
            self.network.take_peers(self.core.tables_mut());
            self.flush(sender);
        }
        served
    }

    /// Datagrams that came in by an interface of the data network are counted and no more, whatever their sender says.
    fn keep_out(&mut self, socket: usize, receiver: &mut Receiver) {
        let (core, outbox) = (&mut self.core, &mut self.outbox);
        receiver.keep(
            |ifindex| self.gate.admits(socket, ifindex),
            |from| core.drop_from_data_network(from, outbox),
        );
    }

    /// Strangers' datagrams go where they wait for their turn. The number of those that stay.
    fn part(&mut self, receiver: &mut Receiver) -> usize {
        let (core, strangers) = (&self.core, &mut self.strangers);
        let mut dropped = Vec::new();
        let served = receiver.part(
            |from| core.is_stranger(from),
            |from, octets| {
                if let Err(messages) = strangers.put(from, octets) {
                    dropped.push((from, messages));
                }
            },
        );
        for (from, messages) in dropped {
            self.core.drop_stranger(from, messages, &mut self.outbox);
        }
        receiver.take_turns();
        served
    }

    /// A turn of those who have no association.
    fn serve_strangers(&mut self) {
        let now = self.now();
        for next in self.strangers.turn(now) {
            if let Some(transactions) = &mut self.transactions {
                let now = self.clock.of_host(now);
                transactions.received(now, &self.core, next.from, &next.octets);
            }
            self.core
                .receive(now, next.from, &next.octets, &mut self.outbox);
        }
    }

    fn serve_usage(&mut self) {
        if self.usage.more {
            let now = self.now();
            self.usage.serve(now, &mut self.core, &mut self.outbox);
        }
    }

    fn serve_echo(&mut self, number: u64) {
        let now = self.now();
        let (core, outbox) = (&mut self.core, &mut self.outbox);
        self.echo.receive((number - ECHO) as usize, |from, octets| {
            core.receive_echo(now, from, octets, outbox);
        });
    }

    fn serve_commands(&mut self) {
        self.asked.settle();
        self.questions.may_wait();
        let now = self.now();
        for what in self.asked.take_buffered(BUFFERED_PER_TURN) {
            self.core.buffered(now, what);
        }
        for _ in 0..COMMANDS_PER_TURN {
            let Some(command) = self.asked.next() else {
                return;
            };
            self.obey(command);
        }
        // There may be more: come back after N4 had its turn.
        self.asked.again();
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Gtpu(packet) => {
                let now = self.now();
                self.core.receive_gtpu(now, &packet, &mut self.outbox);
            }
            Command::Kernel(change) => {
                self.network.apply(*change);
                if self.network.is_readdressed() {
                    let addresses = self.network.addresses();
                    self.gate.readdress(addresses.clone());
                    let own = addresses.map(|(_, address)| address).collect();
                    self.core.set_own_addresses(own);
                }
            }
            Command::OpenLogsAnew => self.usage.open_log_anew(),
            // Nobody may wait for the answer any more.
            Command::Reconfigure { config, reply } => {
                let _ = reply.send(self.reconfigure(config));
            }
            Command::MayHandOver { to, reply } => {
                let _ = reply.send(self.may_hand_over(&to));
            }
            Command::HandOver { to, reply } => {
                let may = self.may_hand_over(&to);
                self.hands_over = may.is_ok();
                let _ = reply.send(may);
                if self.hands_over {
                    self.shut_down();
                }
            }
            Command::ShutDown => match &mut self.ends_early {
                Some(asked) => *asked = true,
                None => self.shut_down(),
            },
        }
    }

    /// Whether another configuration may come.
    fn may_change(&self) -> Result<(), String> {
        if self.ends_early.is_some() {
            return Err("sessions are being taken over: try again".to_owned());
        }
        match self.shutting_down {
            Some(_) => Err("turnpiked is shutting down".to_owned()),
            None => Ok(()),
        }
    }

    /// Whether a start with this configuration finds each session, and has room for it.
    fn may_hand_over(&self, to: &Config) -> Result<(), String> {
        self.may_change()?;
        if !self.kept.as_ref().is_some_and(Kept::is_complete) {
            let why =
                "not all sessions are kept in state.dir: a start would lose some (see the log)";
            return Err(why.to_owned());
        }
        for (key, net) in newcomers(&self.about.config, to) {
            if self.core.has_framed_in(net) {
                return Err(format!(
                    "{key}: a session has a framed route with addresses of {net}"
                ));
            }
        }
        let grows = growth(&self.about.config, to);
        let fill = self.core.tables().fill();
        for (table, of_each) in [("rules", grows.filters), ("meters", grows.meters)] {
            let more = of_each.saturating_mul(self.core.session_count() as u64);
            let fill = fill.iter().find(|fill| fill.table == table);
            let free = fill.map_or(0, |fill| fill.capacity.saturating_sub(fill.used));
            if more > free {
                return Err(format!(
                    "predefined_rule: rules that grow could take {more} places of the table {table}, of which {free} are free"
                ));
            }
        }
        Ok(())
    }

    fn reconfigure(&mut self, config: Arc<Config>) -> Reconfigured {
        self.may_change()?;
        let now = self.now();
        let before = mem::replace(&mut self.about.config, config);
        let config = &self.about.config;
        self.core.reconfigure(now, &plan::session(config, 0));
        let (old, new) = (&before.n4.smf, &config.n4.smf);
        for &gone in old.iter().filter(|smf| !new.contains(smf)) {
            self.core.disregard(gone);
        }
        self.busy_poll = Duration::from_micros(config.n4.busy_poll_us.into());
        self.log.configure(new);
        if let Some(records) = &self.records {
            self.transactions = Transactions::follow(self.transactions.take(), config, records);
        }
        if self.grace.is_none() {
            let per_s = config.gtpu.error_indications_per_s;
            self.core.tables().set_error_indications(per_s);
        }
        let allow = &config.n4.allow;
        let is_shut_out =
            |ip: IpAddr| !allow.is_empty() && !allow.iter().any(|net| net.contains(&ip));
        let shut_out = self.core.peers();
        let shut_out = shut_out.filter(|peer| is_shut_out(peer.address.ip().to_canonical()));
        let warnings = shut_out.map(|peer| {
            format!(
                "{} at {} is associated and not among n4.allow: it is not heard, and its {} sessions end after \
                 n4.path_failure_retention_s",
                peer.node_id, peer.address, peer.sessions
            )
        });
        let warnings = warnings.collect();
        self.associate();
        self.manage();
        Ok(warnings)
    }

    /// One turn of what REST asks: after all that N4 had to be served, and before it is looked at again.
    fn answer_some(&mut self) {
        let Some(quantum) = self.questions.begin() else {
            return;
        };
        while !quantum.is_over() {
            let Some(question) = self.asked.question() else {
                self.questions.none_waits();
                break;
            };
            self.answer(question, quantum);
        }
        // No SMF is to do less because somebody reads.
        self.busy.excuse(self.questions.end());
    }

    /// As far as the time goes.
    fn answer(&mut self, question: Question, quantum: Quantum) {
        let core = &self.core;
        // A caller that no longer waits for its answer is no loss.
        match question {
            Question::Snapshot(reply) => {
                let parts = (&self.network, &self.usage, &self.questions);
                let own = (self.unsent, self.shutting_down.is_some());
                let mut snapshot = show::snapshot(core, &self.about, parts, own);
                if let Some(kept) = &self.kept {
                    snapshot.tables.push(kept.fill());
                    snapshot.state = Some(kept.report());
                    kept.add_counts(&mut snapshot.ports, &mut snapshot.drops);
                }
                let _ = reply.send(snapshot);
            }
            Question::Peers { after, reply } => {
                let _ = reply.send(show::peers(core, after, quantum));
            }
            Question::Smfs { after, reply } => {
                let _ = reply.send(show::smfs(core, self.now(), after, quantum));
            }
            Question::Sessions {
                after,
                limit,
                reply,
            } => {
                let _ = reply.send(show::sessions(core, after, limit, quantum));
            }
            Question::GtpuPeers { after, reply } => {
                let _ = reply.send(show::gtpu_peers(core, after, quantum));
            }
            Question::Find {
                sought,
                after,
                reply,
            } => {
                let _ = reply.send(show::find(core, &sought, after, quantum));
            }
            Question::EntryCounts { reply } => {
                let _ = reply.send(core.tables().entry_counts());
            }
            Question::Session { seid, reply } => {
                let _ = reply.send(show::session(core, self.now(), seid));
            }
            Question::Usage {
                after,
                limit,
                reply,
            } => {
                let _ = reply.send(show::usage(core, self.now(), (after, limit), quantum));
            }
            Question::Counts { after, reply } => {
                let _ = reply.send(show::counts(core, after, quantum));
            }
            Question::CountsOf { seid, reply } => {
                let _ = reply.send(core.counts(seid));
            }
            Question::CountsOfUe { ue, reply } => {
                let owners = core.tables().owners_of_ue(ue).into_iter();
                let _ = reply.send(owners.filter_map(|seid| core.counts(seid)).collect());
            }
            Question::Pfds { after, reply } => {
                let _ = reply.send(show::pfds(core, after.as_deref(), quantum));
            }
            Question::Buffers(reply) => {
                let _ = reply.send(self.network.list_buffers());
            }
            Question::Trace { whom, reply } => {
                let names = self.about.config.interface.iter();
                let names: Vec<String> = names.map(|i| i.name.clone()).collect();
                let _ = reply.send(self.traces.begin(&mut self.core, whom, &names));
            }
        }
    }

    fn shut_down(&mut self) {
        if self.shutting_down.is_none() && self.leaves_sessions() {
            if !self.hands_over {
                tracing::info!("shutting down: sessions are left to the next start");
            }
            self.shutting_down = Some(Instant::now());
        }
        if self.shutting_down.is_none() {
            tracing::info!("shutting down: releasing associations");
            let graceful = Duration::from_secs(self.about.config.n4.graceful_release_s.into());
            self.shutting_down = Some(Instant::now() + RELEASE_TIME + graceful);
            let now = self.now();
            self.core.shut_down(now, &mut self.outbox);
        }
    }

    fn is_done(&self) -> bool {
        self.shutting_down
            .is_some_and(|until| self.core.is_released() || Instant::now() >= until)
    }

    fn serve_time(&mut self) {
        let now = self.now();
        self.core.set_clock(now, system::ntp());
        if self.core.next_deadline().is_some_and(|due| due <= now) {
            self.core.advance(now, &mut self.outbox);
        }
        self.log.advance(now);
    }

    /// An error: no packet is run any more.
    fn maintain(&mut self) -> std::io::Result<()> {
        if self.grace.is_some_and(|until| until <= Instant::now()) {
            let per_s = self.about.config.gtpu.error_indications_per_s;
            self.core.tables().set_error_indications(per_s);
            self.grace = None;
        }
        if self.maintained.elapsed() >= MAINTENANCE {
            // A process that ends needs no others.
            if self.shutting_down.is_none()
                && let Err(why) = self.core.tables().check()
            {
                self.replacements.replace(&why, self.core.tables_mut())?;
            }
            self.core.tables_mut().maintain();
            self.manage();
            self.maintained = Instant::now();
        }
        Ok(())
    }

    /// Whether packets are run in another process, which may end.
    fn are_workers_apart(&self) -> bool {
        self.about.config.datapath.kind == DatapathKind::Dpdk && self.packets_go_on()
    }

    /// Whether packets do without this process.
    pub(crate) fn packets_go_on(&self) -> bool {
        self.core.tables().going_on() != GoingOn::Nowhere
    }

    /// Where packets go on without this process, they do so for a while.
    fn manage(&self) {
        let tables = self.core.tables();
        if self.packets_go_on() {
            let unmanaged = Duration::from_secs(self.about.config.state.unmanaged_s.into());
            // Sessions that are being released do not live on if this process is killed before that is done.
            let left = match self.shutting_down {
                Some(until) if !self.leaves_sessions() => {
                    until.saturating_duration_since(Instant::now()) + RELEASE_TIME
                }
                _ => unmanaged,
            };
            let until = Time(tables::monotonic_ns()).after(left.min(unmanaged));
            tables.set_managed_until(Some(until.0));
        }
    }

    /// Until the core has something to do, the tables want to be looked after, or the time to
    /// shut down is over; rounded up, so that it is due when we wake.
    fn timeout(&self) -> EpollTimeout {
        let now = self.now();
        let mut wait = if self.usage.more || self.questions.wait() {
            Duration::ZERO
        } else if self.core.tables().needs_maintenance() {
            MAINTENANCE
        } else {
            IDLE
        };
        if let Some(due) = self.core.next_deadline() {
            wait = wait.min(due.since(now));
        }
        if let Some(look) = Beside::wait(&self.core) {
            wait = wait.min(look);
        }
        if let Some(due) = self.strangers.next_turn() {
            wait = wait.min(due.since(now));
        }
        if let Some(due) = self.log.next_deadline() {
            wait = wait.min(due.since(now));
        }
        if self.are_workers_apart() {
            wait = wait.min(WORKERS_LOOK);
        }
        if let Some(until) = self.grace {
            wait = wait.min(until.saturating_duration_since(Instant::now()));
        }
        if let Some(tend) = self.traces.wait() {
            wait = wait.min(tend);
        }
        if let Some(until) = self.shutting_down {
            wait = wait.min(until.saturating_duration_since(Instant::now()));
        }
        let millis = wait.as_nanos().div_ceil(1_000_000);
        EpollTimeout::try_from(millis).unwrap_or(EpollTimeout::MAX)
    }

    fn flush(&mut self, sender: &mut Sender) {
        if let Some(kept) = &mut self.kept {
            kept.keep(&mut self.core);
        }
        if let [socket] = self.sockets.as_slice() {
            sender.send(socket, self.outbox.iter());
        } else {
            for socket in &self.sockets {
                let reached = |(to, _): &(SocketAddr, &[u8])| socket.reaches(*to);
                sender.send(socket, self.outbox.iter().filter(reached));
            }
        }
        if let Some(transactions) = &mut self.transactions {
            let now = Time(tables::monotonic_ns());
            for (place, datagram) in self.outbox.iter().enumerate() {
                let repeats = self.outbox.is_repeat(place);
                transactions.sent(now, &self.core, datagram, repeats);
            }
            transactions.settle(now);
        }
        self.unsent = sender.failed;
        for ((remote, local), octets) in self.outbox.echoes() {
            self.echo.send(remote, local, octets);
        }
        self.usage.note(self.outbox.usage());
        let now = self.now();
        for event in self.outbox.events() {
            self.log.event(now, event);
        }
        self.outbox.clear();
    }
}
