//! How other threads ask the control thread: a bounded queue, and an eventfd that wakes it.

use std::net::IpAddr;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use nix::sys::eventfd::{EfdFlags, EventFd};
use session::compiled::Buffered;
use slowpath::HeldSession;
use tables::EntryCounts;
use tokio::sync::oneshot;

use nexthop::KernelChange;

use crate::follow::{Refused, Subscription, Whom};
use crate::report::{
    ApplicationReport, PeerReport, Report, SessionDetail, SessionPage, SmfReport, UsagePage,
};

/// Questions that may wait at a time.
const QUEUE: usize = 256;

/// What the control thread can be asked. Each answer is a copy; a caller that went away is ignored.
#[derive(Debug)]
pub(crate) enum Command {
    Report(oneshot::Sender<Report>),
    Peers(oneshot::Sender<Vec<PeerReport>>),
    Smfs(oneshot::Sender<Vec<SmfReport>>),
    Pfds(oneshot::Sender<Vec<ApplicationReport>>),
    /// Answered by whoever keeps packets; `None` where none wait.
    Buffers(oneshot::Sender<Option<Receiver<Vec<HeldSession>>>>),
    Sessions {
        after: Option<u64>,
        limit: usize,
        reply: oneshot::Sender<SessionPage>,
    },
    /// Whether sessions, so many at a time, have an address.
    Find {
        ue: IpAddr,
        after: Option<u64>,
        reply: oneshot::Sender<Found>,
    },
    /// Have entries know their sessions, so many at a time.
    NameSessions {
        after: Option<u64>,
        reply: oneshot::Sender<Named>,
    },
    Session {
        seid: u64,
        reply: oneshot::Sender<Option<SessionDetail>>,
    },
    Usage {
        after: Option<u64>,
        limit: usize,
        reply: oneshot::Sender<UsagePage>,
    },
    Trace {
        whom: Whom,
        reply: oneshot::Sender<Result<Subscription, Refused>>,
    },
    /// A GTP-U message that is not a G-PDU, from its IP header on.
    Gtpu(Vec<u8>),
    /// Routes, neighbours or links changed.
    Kernel(Box<KernelChange>),
    /// Files of logs have been moved away.
    OpenLogsAnew,
    /// Release the associations and end.
    ShutDown,
}

/// Sessions of a UE, among some.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) page: SessionPage,
    /// Where to go on looking; `None`: these were the last.
    pub(crate) after: Option<u64>,
}

/// Entries of some sessions have their names.
#[derive(Debug)]
pub(crate) struct Named {
    pub(crate) counts: EntryCounts,
    /// Where to go on; `None`: these were the last.
    pub(crate) after: Option<u64>,
}

/// The asking end.
#[derive(Clone, Debug)]
pub(crate) struct Asker {
    queue: SyncSender<Command>,
    waiting: Waiting,
    wake: Arc<EventFd>,
}

/// First packets that wait for idle UEs. There are no more of them than may wait, and none is lost.
type Waiting = Arc<Mutex<Vec<Buffered>>>;

/// The control thread's end.
#[derive(Debug)]
pub(crate) struct Asked {
    queue: Receiver<Command>,
    waiting: Waiting,
    wake: Arc<EventFd>,
}

/// The control thread has ended, or more than [`QUEUE`] questions wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoAnswer {
    #[error("the control thread is busy; try again")]
    Busy,
    #[error("turnpiked is shutting down")]
    Gone,
}

pub(crate) fn channel() -> nix::Result<(Asker, Asked)> {
    let flags = EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC;
    let wake = Arc::new(EventFd::from_flags(flags)?);
    let (sender, receiver) = sync_channel(QUEUE);
    let waiting = Waiting::default();
    Ok((
        Asker {
            queue: sender,
            waiting: Arc::clone(&waiting),
            wake: Arc::clone(&wake),
        },
        Asked {
            queue: receiver,
            waiting,
            wake,
        },
    ))
}

impl Asker {
    /// Send a command without an answer.
    pub(crate) fn tell(&self, command: Command) -> Result<(), NoAnswer> {
        self.queue.try_send(command).map_err(|error| match error {
            TrySendError::Full(_) => NoAnswer::Busy,
            TrySendError::Disconnected(_) => NoAnswer::Gone,
        })?;
        // The counter of the eventfd cannot overflow before the queue is full.
        self.wake.write(1).map(drop).map_err(|_| NoAnswer::Gone)
    }

    /// A packet waits for an idle UE, and none did before it. Never waits, never fails.
    pub(crate) fn buffered(&self, what: Buffered) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push(what);
        if waiting.len() == 1 {
            let _ = self.wake.write(1);
        }
    }

    pub(crate) async fn buffers(&self) -> Result<Option<Receiver<Vec<HeldSession>>>, NoAnswer> {
        self.ask(Command::Buffers).await
    }

    /// Send a command that must not be lost: waits for a place in the queue. False when the control
    /// thread has ended.
    pub(crate) fn insist(&self, command: Command) -> bool {
        self.queue.send(command).is_ok() && self.wake.write(1).is_ok()
    }

    async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<T>) -> Command,
    ) -> Result<T, NoAnswer> {
        let (reply, answer) = oneshot::channel();
        self.tell(command(reply))?;
        answer.await.map_err(|_| NoAnswer::Gone)
    }

    pub(crate) async fn report(&self) -> Result<Report, NoAnswer> {
        self.ask(Command::Report).await
    }

    pub(crate) async fn smfs(&self) -> Result<Vec<SmfReport>, NoAnswer> {
        self.ask(Command::Smfs).await
    }

    pub(crate) async fn peers(&self) -> Result<Vec<PeerReport>, NoAnswer> {
        self.ask(Command::Peers).await
    }

    pub(crate) async fn pfds(&self) -> Result<Vec<ApplicationReport>, NoAnswer> {
        self.ask(Command::Pfds).await
    }

    pub(crate) async fn sessions(
        &self,
        after: Option<u64>,
        limit: usize,
    ) -> Result<SessionPage, NoAnswer> {
        self.ask(|reply| Command::Sessions {
            after,
            limit,
            reply,
        })
        .await
    }

    pub(crate) async fn find(&self, ue: IpAddr, after: Option<u64>) -> Result<Found, NoAnswer> {
        self.ask(|reply| Command::Find { ue, after, reply }).await
    }

    pub(crate) async fn name_sessions(&self, after: Option<u64>) -> Result<Named, NoAnswer> {
        self.ask(|reply| Command::NameSessions { after, reply })
            .await
    }

    pub(crate) async fn usage(
        &self,
        after: Option<u64>,
        limit: usize,
    ) -> Result<UsagePage, NoAnswer> {
        self.ask(|reply| Command::Usage {
            after,
            limit,
            reply,
        })
        .await
    }

    pub(crate) async fn session(&self, seid: u64) -> Result<Option<SessionDetail>, NoAnswer> {
        self.ask(|reply| Command::Session { seid, reply }).await
    }
}

impl Asker {
    pub(crate) async fn trace(
        &self,
        whom: Whom,
    ) -> Result<Result<Subscription, Refused>, NoAnswer> {
        self.ask(|reply| Command::Trace { whom, reply }).await
    }
}

impl Asked {
    /// Readable when something was asked.
    pub(crate) fn wake(&self) -> &EventFd {
        &self.wake
    }

    /// The next command; `None` when none waits. A queue that every asker has left says
    /// [`Command::ShutDown`].
    pub(crate) fn next(&self) -> Option<Command> {
        match self.queue.try_recv() {
            Ok(command) => Some(command),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Command::ShutDown),
        }
    }

    /// Up to so many first packets that have come to wait; for more it wakes us again.
    pub(crate) fn waiting(&self, at_most: usize) -> Vec<Buffered> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let some = waiting.len().min(at_most);
        let taken = waiting.drain(..some).collect();
        if !waiting.is_empty() {
            self.again();
        }
        taken
    }

    /// Wake up once more.
    pub(crate) fn again(&self) {
        // Should it fail, the next maintenance or question wakes us.
        let _ = self.wake.write(1);
    }

    /// Take back the wake-ups so far; to be followed by [`Self::next`] until it has nothing.
    pub(crate) fn settle(&self) {
        // An error means that nothing was to be taken back.
        let _ = self.wake.read();
    }
}
