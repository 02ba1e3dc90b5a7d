//! The kernel's side of next hops: a thread that listens to rtnetlink and passes on what it hears,
//! and that asks the kernel to keep neighbours resolved.
//!
//! It holds no model: [`crate::NextHops`] does. Two sockets: one for notifications, joined before
//! the first dump so that nothing falls between, one for dumps and requests. Which neighbours are kept, and how
//! operators' static ones are spared, is in `keeper`.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, getsockname,
    recvfrom, send, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;

use crate::{KernelChange, Neighbour, Request, Snapshot};

mod keeper;
mod wire;

use keeper::Keeper;
use wire::Messages;

/// A neighbour, as the kernel keys it: device and address.
type NeighbourKey = (u32, IpAddr);

/// Largest datagram of rtnetlink: dumps come in 32 KiB at most.
const BUFFER_LEN: usize = 64 << 10;

/// Notifications waiting for us; beyond it the kernel says `ENOBUFS` and everything is dumped again.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;

/// The kernel answers at once, or something is wrong.
const ANSWER_S: i64 = 5;

/// A dump that was interrupted by changes is repeated this often before it is believed; what it
/// missed comes as a notification anyway.
const DUMP_TRIES: usize = 5;

/// The running thread. Dropping it stops the thread; neighbours that the kernel was asked to keep
/// are released.
#[derive(Debug)]
pub struct Netlink {
    requests: Option<Sender<Request>>,
    wake: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

impl Netlink {
    /// Listen in the network namespace of the calling thread. `deliver` is called in the netlink
    /// thread, first with [`KernelChange::All`]; it may block: the kernel keeps up to 4 MiB of
    /// notifications meanwhile, and beyond that everything is sent again.
    ///
    /// On return the first [`KernelChange::All`] has been delivered.
    pub fn start(mut deliver: impl FnMut(KernelChange) + Send + 'static) -> io::Result<Self> {
        let wake = Arc::new(EventFd::from_flags(
            EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK,
        )?);
        let (requests, incoming) = mpsc::channel();
        let listener = listener()?;
        let mut kernel = Kernel::open()?;
        deliver(KernelChange::All(Box::new(kernel.snapshot()?)));
        let worker = Worker {
            listener,
            kernel,
            keeper: Keeper::default(),
            buffer: vec![0; BUFFER_LEN],
            incoming,
            wake: wake.clone(),
            refresh_at: None,
        };
        let thread = std::thread::Builder::new()
            .name("netlink".into())
            .spawn(move || worker.run(&mut deliver))?;
        Ok(Self {
            requests: Some(requests),
            wake,
            thread: Some(thread),
        })
    }

    /// Have a request of [`crate::NextHops::reconcile`] carried out.
    pub fn request(&self, request: Request) {
        if let Some(requests) = &self.requests {
            // Fails only if the thread has ended, which it has logged.
            let _ = requests.send(request);
            let _ = self.wake.write(1);
        }
    }
}

impl Drop for Netlink {
    fn drop(&mut self) {
        self.requests = None;
        let _ = self.wake.write(1);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn netlink_socket(flags: SockFlag) -> nix::Result<OwnedFd> {
    let flags = flags | SockFlag::SOCK_CLOEXEC;
    socket(
        AddressFamily::Netlink,
        SockType::Raw,
        flags,
        SockProtocol::NetlinkRoute,
    )
}

/// All packets that come in on an interface, and are not for this host, go out of another one.
#[derive(Clone, Copy, Debug)]
pub struct Lead<'a> {
    /// Interface that they come in by.
    pub from: &'a str,
    /// Interface that they go out by.
    pub to_ifindex: u32,
    /// The kernel's routing table that says so, and has no other use.
    pub table: u32,
    /// Of the rule that names the table, among others: lower ones come first.
    pub priority: u32,
}

impl Lead<'_> {
    /// Have it so, of one family. The route goes with the interface that packets go out of; the rule stays.
    pub fn put(&self, is_v4: bool) -> io::Result<()> {
        let mut kernel = Kernel::open()?;
        kernel.ask(|sequence| wire::default_route(self.to_ifindex, self.table, is_v4, sequence))?;
        let put = kernel.ask(|sequence| wire::rule(libc::RTM_NEWRULE, self, is_v4, sequence));
        match put {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other.map(drop),
        }
    }

    /// Take the rule away.
    pub fn withdraw(&self, is_v4: bool) -> io::Result<()> {
        let withdraw = |sequence| wire::rule(libc::RTM_DELRULE, self, is_v4, sequence);
        Kernel::open()?.ask(withdraw).map(drop)
    }
}

fn listener() -> nix::Result<OwnedFd> {
    /// `RTNLGRP_NEXTHOP`, which libc does not name.
    const GROUP_NEXTHOP: u32 = 32;
    let groups = [
        libc::RTNLGRP_LINK,
        libc::RTNLGRP_NEIGH,
        libc::RTNLGRP_IPV4_IFADDR,
        libc::RTNLGRP_IPV6_IFADDR,
        libc::RTNLGRP_IPV4_ROUTE,
        libc::RTNLGRP_IPV6_ROUTE,
        GROUP_NEXTHOP,
    ];
    let mask = groups.iter().fold(0, |mask, group| mask | 1 << (group - 1));
    let fd = netlink_socket(SockFlag::SOCK_NONBLOCK)?;
    // Without CAP_NET_ADMIN the default has to do.
    let _ = setsockopt(&fd, sockopt::RcvBufForce, &RECEIVE_BUFFER_BYTES);
    bind(fd.as_raw_fd(), &NetlinkAddr::new(0, mask))?;
    Ok(fd)
}

/// A datagram of the kernel, not of another process.
fn receive<'a>(fd: &OwnedFd, buffer: &'a mut [u8]) -> nix::Result<&'a [u8]> {
    loop {
        let (len, from) = recvfrom::<NetlinkAddr>(fd.as_raw_fd(), buffer)?;
        if from.is_some_and(|from| from.pid() == 0) {
            return Ok(&buffer[..len]);
        }
    }
}

/// Questions and answers.
struct Kernel {
    fd: OwnedFd,
    /// By which notifications name this socket.
    port: u32,
    buffer: Vec<u8>,
    sequence: u32,
}

impl Kernel {
    fn open() -> io::Result<Self> {
        let fd = netlink_socket(SockFlag::empty())?;
        bind(fd.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
        setsockopt(&fd, sockopt::ReceiveTimeout, &TimeVal::new(ANSWER_S, 0))?;
        let port = getsockname::<NetlinkAddr>(fd.as_raw_fd())?.pid();
        let buffer = vec![0; BUFFER_LEN];
        Ok(Self {
            fd,
            port,
            buffer,
            sequence: 0,
        })
    }

    fn next_sequence(&mut self) -> u32 {
        self.sequence = self.sequence.wrapping_add(1);
        self.sequence
    }

    /// Dump everything of a kind, and say whether it changed meanwhile.
    fn dump_once(&mut self, kind: u16, found: &mut dyn FnMut(KernelChange)) -> io::Result<bool> {
        let sequence = self.next_sequence();
        send(
            self.fd.as_raw_fd(),
            &wire::dump(kind, sequence),
            MsgFlags::empty(),
        )?;
        let mut interrupted = false;
        loop {
            for message in Messages(receive(&self.fd, &mut self.buffer)?) {
                if message.sequence != sequence {
                    continue;
                }
                interrupted |= i32::from(message.flags) & libc::NLM_F_DUMP_INTR != 0;
                match i32::from(message.kind) {
                    libc::NLMSG_DONE | libc::NLMSG_ERROR => {
                        return match message.errno() {
                            0 => Ok(interrupted),
                            errno => Err(io::Error::from_raw_os_error(errno)),
                        };
                    }
                    _ => {
                        if let Some(change) = message.change() {
                            found(change);
                        }
                    }
                }
            }
        }
    }

    fn dump<T>(
        &mut self,
        kind: u16,
        pick: impl Fn(KernelChange) -> Option<T>,
    ) -> io::Result<Vec<T>> {
        let mut all = Vec::new();
        for _ in 0..DUMP_TRIES {
            all.clear();
            if !self.dump_once(kind, &mut |change| all.extend(pick(change)))? {
                break;
            }
        }
        Ok(all)
    }

    fn routes(&mut self) -> io::Result<Vec<crate::Route>> {
        self.dump(libc::RTM_GETROUTE, |change| match change {
            KernelChange::Route(route, _) => Some(route),
            _ => None,
        })
    }

    fn snapshot(&mut self) -> io::Result<Snapshot> {
        Ok(Snapshot {
            links: self.dump(libc::RTM_GETLINK, |change| match change {
                KernelChange::Link(link) => Some(link),
                _ => None,
            })?,
            addresses: self.dump(libc::RTM_GETADDR, |change| match change {
                KernelChange::Address(address) => Some(address),
                _ => None,
            })?,
            routes: self.routes()?,
            neighbours: self.dump(libc::RTM_GETNEIGH, |change| match change {
                KernelChange::Neighbour(neighbour) => Some(neighbour),
                _ => None,
            })?,
        })
    }

    /// Send a request made by `build` and wait for what answers it: the entry, if a neighbour was asked for.
    fn ask(&mut self, build: impl Fn(u32) -> Vec<u8>) -> io::Result<Option<wire::Entry>> {
        let sequence = self.next_sequence();
        send(self.fd.as_raw_fd(), &build(sequence), MsgFlags::empty())?;
        loop {
            for message in Messages(receive(&self.fd, &mut self.buffer)?) {
                if message.sequence != sequence {
                    continue;
                }
                return match (i32::from(message.kind), message.errno()) {
                    (libc::NLMSG_ERROR, 0) => Ok(None),
                    (libc::NLMSG_ERROR, errno) => Err(io::Error::from_raw_os_error(errno)),
                    _ => Ok(message.neighbour().and_then(|(_, entry)| entry)),
                };
            }
        }
    }

    /// A neighbour's entry; `None` if there is none.
    fn neighbour(&mut self, key: NeighbourKey) -> io::Result<Option<wire::Entry>> {
        match self.ask(|sequence| wire::get_neighbour(key, sequence)) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            answer => answer,
        }
    }
}

struct Worker {
    listener: OwnedFd,
    kernel: Kernel,
    keeper: Keeper,
    buffer: Vec<u8>,
    incoming: Receiver<Request>,
    wake: Arc<EventFd>,
    refresh_at: Option<Instant>,
}

impl Worker {
    fn run(mut self, deliver: &mut dyn FnMut(KernelChange)) {
        loop {
            let step = self.wait().and_then(|()| self.hear(deliver));
            if let Err(error) = step {
                tracing::error!(%error, "rtnetlink failed; reading everything again");
                std::thread::sleep(Duration::from_secs(1));
                self.resynchronise(deliver);
            }
            if !self.serve(deliver) {
                break;
            }
        }
        for key in self.keeper.all() {
            self.release(key, &mut |_| {});
        }
    }

    fn wait(&self) -> io::Result<()> {
        let mut fds = [
            PollFd::new(self.listener.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.wake.as_fd(), PollFlags::POLLIN),
        ];
        let timeout = match self.refresh_at {
            Some(at) => {
                let left = at.saturating_duration_since(Instant::now());
                PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX)
            }
            None => PollTimeout::NONE,
        };
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// All notifications that are waiting.
    fn hear(&mut self, deliver: &mut dyn FnMut(KernelChange)) -> io::Result<()> {
        loop {
            match receive(&self.listener, &mut self.buffer) {
                Ok(datagram) => {
                    for message in Messages(datagram) {
                        let is_ours = message.port == self.kernel.port;
                        if !is_ours {
                            self.keeper.hear(&message);
                        }
                        match message.change() {
                            // Once we have asked, it is not known yet whether it answers.
                            Some(KernelChange::Neighbour(neighbour)) if is_ours => {
                                let is_failed = false;
                                deliver(KernelChange::Neighbour(Neighbour {
                                    is_failed,
                                    ..neighbour
                                }));
                            }
                            Some(change) => deliver(change),
                            None => {}
                        }
                    }
                }
                Err(Errno::EAGAIN) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(Errno::ENOBUFS) => {
                    tracing::warn!("rtnetlink overran; reading everything again");
                    self.resynchronise(deliver);
                }
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    fn resynchronise(&mut self, deliver: &mut dyn FnMut(KernelChange)) {
        match self.kernel.snapshot() {
            Ok(snapshot) => deliver(KernelChange::All(Box::new(snapshot))),
            Err(error) => tracing::error!(%error, "kernel state cannot be read"),
        }
    }

    /// Requests of the control thread; false once it is gone.
    fn serve(&mut self, deliver: &mut dyn FnMut(KernelChange)) -> bool {
        let _ = self.wake.read();
        loop {
            match self.incoming.try_recv() {
                Ok(Request::Keep { ifindex, addr }) => self.keep((ifindex, addr), deliver),
                Ok(Request::Release { ifindex, addr }) => self.release((ifindex, addr), deliver),
                Ok(Request::DumpRoutes) => match self.kernel.routes() {
                    Ok(routes) => deliver(KernelChange::Routes(routes)),
                    Err(error) => tracing::error!(%error, "routes cannot be read"),
                },
                Err(mpsc::TryRecvError::Empty) => break,
                Err(mpsc::TryRecvError::Disconnected) => return false,
            }
        }
        while let Some(key) = self.keeper.next_unmanaged() {
            self.keep(key, deliver);
        }
        self.refresh_if_due(deliver);
        true
    }

    fn keep(&mut self, key: NeighbourKey, deliver: &mut dyn FnMut(KernelChange)) {
        if self.keeper.keep(&mut self.kernel, key) {
            self.make_good(key, deliver);
        }
    }

    fn release(&mut self, key: NeighbourKey, deliver: &mut dyn FnMut(KernelChange)) {
        if self.keeper.release(&mut self.kernel, key) {
            self.make_good(key, deliver);
        }
        self.keeper.forget(key);
    }

    /// After a neighbour's entry was changed: an operator's static one may have come since it was looked at. The kernel
    /// tells of every change before it takes the next one, so that it has been heard of.
    fn make_good(&mut self, key: NeighbourKey, deliver: &mut dyn FnMut(KernelChange)) {
        match self.hear(deliver) {
            Ok(()) => self.keeper.make_good(&mut self.kernel, key),
            Err(error) => tracing::error!(%error, "rtnetlink failed"),
        }
    }

    fn refresh_if_due(&mut self, deliver: &mut dyn FnMut(KernelChange)) {
        let Some(after) = self.keeper.refresh() else {
            self.refresh_at = None;
            return;
        };
        let latest = Instant::now() + after;
        match self.refresh_at {
            Some(at) if at > Instant::now() => {
                self.refresh_at = Some(at.min(latest));
                return;
            }
            Some(_) => {
                for key in self.keeper.unsettled() {
                    self.keep(key, deliver);
                }
            }
            None => {}
        }
        self.refresh_at = Some(latest);
    }
}
