//! How other threads ask the control thread: bounded queues, and an eventfd that wakes it. Questions, which REST asks, have a
//! queue of their own and wait for orders and for N4; each is answered as far as one turn goes, and asked again for the rest.

use std::net::IpAddr;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use compiled::Buffered;
use nix::sys::eventfd::{EfdFlags, EventFd};
use session::SessionCounts;
use session::paths::Ends;
use session::peer::PeerId;
use slowpath::BufferedSession;
use tables::EntryCounts;
use tokio::sync::oneshot;

use nexthop::KernelChange;
use report::{
    ApplicationReport, GtpuPeerReport, PeerReport, SessionDetail, SessionPage, SmfReport, UsagePage,
};

use crate::config::Config;
use crate::follow::{Refused, Subscription, Whom};
use crate::snapshot::Snapshot;
use crate::text::seid_text;

/// Questions that may wait at a time.
const QUEUE: usize = 256;

/// Orders to the control thread.
#[derive(Debug)]
pub(crate) enum Command {
    /// A GTP-U message that is not a G-PDU, from its IP header on.
    Gtpu(Vec<u8>),
    /// Routes, neighbours or links changed.
    Kernel(Box<KernelChange>),
    /// Files of logs have been moved away.
    OpenLogsAnew,
    /// Go on with another configuration, of which only what takes no start differs.
    Reconfigure {
        config: Arc<Config>,
        reply: oneshot::Sender<Reconfigured>,
    },
    /// Whether [`Self::HandOver`] would cost a session. An error says why.
    MayHandOver {
        to: Arc<Config>,
        reply: oneshot::Sender<Result<(), String>>,
    },
    /// End, and leave sessions and packets to the next start, which has this configuration. An error says why not.
    HandOver {
        to: Arc<Config>,
        reply: oneshot::Sender<Result<(), String>>,
    },
    /// Release the associations and end.
    ShutDown,
}

/// Consequences that may not be meant, or why it was not done.
pub(crate) type Reconfigured = Result<Vec<String>, String>;

/// Questions to the control thread, answered when N4 leaves it time. Each answer is a copy, and of a long list a piece, as
/// much as fits into its time: at least one item of it. A caller that went away is ignored.
#[derive(Debug)]
pub(crate) enum Question {
    Snapshot(oneshot::Sender<Snapshot>),
    Peers {
        after: Option<PeerId>,
        reply: oneshot::Sender<Piece<Vec<PeerReport>, PeerId>>,
    },
    Pfds {
        after: Option<String>,
        reply: oneshot::Sender<Piece<Vec<ApplicationReport>, String>>,
    },
    GtpuPeers {
        after: Option<Ends>,
        reply: oneshot::Sender<Piece<Vec<GtpuPeerReport>, Ends>>,
    },
    Smfs {
        after: Option<PeerId>,
        reply: oneshot::Sender<Piece<Vec<SmfReport>, PeerId>>,
    },
    /// Answered by whoever keeps packets; `None` where none wait.
    Buffers(oneshot::Sender<Option<Receiver<Vec<BufferedSession>>>>),
    Sessions {
        after: Option<u64>,
        limit: usize,
        reply: oneshot::Sender<Piece<SessionPage, u64>>,
    },
    /// Sessions that have it.
    Find {
        sought: Sought,
        after: Option<u64>,
        reply: oneshot::Sender<Piece<SessionPage, u64>>,
    },
    EntryCounts {
        reply: oneshot::Sender<EntryCounts>,
    },
    Session {
        seid: u64,
        reply: oneshot::Sender<Option<SessionDetail>>,
    },
    Usage {
        after: Option<u64>,
        limit: usize,
        reply: oneshot::Sender<Piece<UsagePage, u64>>,
    },
    /// Counts of all sessions.
    Counts {
        after: Option<u64>,
        reply: oneshot::Sender<Piece<Vec<SessionCounts>, u64>>,
    },
    CountsOf {
        seid: u64,
        reply: oneshot::Sender<Option<SessionCounts>>,
    },
    /// Of the sessions that packets to this address find.
    CountsOfUe {
        ue: IpAddr,
        reply: oneshot::Sender<Vec<SessionCounts>>,
    },
    Trace {
        whom: Whom,
        reply: oneshot::Sender<Result<Subscription, Refused>>,
    },
}

/// Mark that sessions are looked for by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sought {
    Ue(IpAddr),
    Teid(u32),
    NetworkInstance(String),
}

/// As much of an answer as there was time for.
#[derive(Debug)]
pub(crate) struct Piece<T, K> {
    pub(crate) of: T,
    /// Items looked at for it.
    pub(crate) looked: usize,
    /// Last item of the piece: the next one begins after it. `None`: there is no more.
    pub(crate) after: Option<K>,
}

/// The asking end.
#[derive(Clone, Debug)]
pub(crate) struct Asker {
    queue: SyncSender<Command>,
    questions: SyncSender<Question>,
    first_buffered: FirstBuffered,
    wake: Arc<EventFd>,
}

/// First buffered packets of idle UEs. There are no more of them than may be buffered, and none is lost.
type FirstBuffered = Arc<Mutex<Vec<Buffered>>>;

/// The control thread's end.
#[derive(Debug)]
pub(crate) struct Asked {
    queue: Receiver<Command>,
    questions: Receiver<Question>,
    first_buffered: FirstBuffered,
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

fn no_room<T>(error: TrySendError<T>) -> NoAnswer {
    match error {
        TrySendError::Full(_) => NoAnswer::Busy,
        TrySendError::Disconnected(_) => NoAnswer::Gone,
    }
}

pub(crate) fn channel() -> nix::Result<(Asker, Asked)> {
    let flags = EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC;
    let wake = Arc::new(EventFd::from_flags(flags)?);
    let (sender, receiver) = sync_channel(QUEUE);
    let (questions, asked) = sync_channel(QUEUE);
    let first_buffered = FirstBuffered::default();
    Ok((
        Asker {
            queue: sender,
            questions,
            first_buffered: Arc::clone(&first_buffered),
            wake: Arc::clone(&wake),
        },
        Asked {
            queue: receiver,
            questions: asked,
            first_buffered,
            wake,
        },
    ))
}

impl Asker {
    /// Send a command without an answer.
    pub(crate) fn tell(&self, command: Command) -> Result<(), NoAnswer> {
        self.queue.try_send(command).map_err(no_room)?;
        self.wake()
    }

    pub(crate) async fn reconfigure(&self, config: Arc<Config>) -> Result<Reconfigured, NoAnswer> {
        let (reply, answer) = oneshot::channel();
        self.tell(Command::Reconfigure { config, reply })?;
        answer.await.map_err(|_| NoAnswer::Gone)
    }

    pub(crate) async fn may_hand_over(
        &self,
        to: Arc<Config>,
    ) -> Result<Result<(), String>, NoAnswer> {
        let (reply, answer) = oneshot::channel();
        self.tell(Command::MayHandOver { to, reply })?;
        answer.await.map_err(|_| NoAnswer::Gone)
    }

    pub(crate) async fn hand_over(&self, to: Arc<Config>) -> Result<Result<(), String>, NoAnswer> {
        let (reply, answer) = oneshot::channel();
        self.tell(Command::HandOver { to, reply })?;
        answer.await.map_err(|_| NoAnswer::Gone)
    }

    fn wake(&self) -> Result<(), NoAnswer> {
        // The counter of the eventfd cannot overflow before the queues are full.
        self.wake.write(1).map(drop).map_err(|_| NoAnswer::Gone)
    }

    /// A packet for an idle UE is buffered, and none was before it. Never waits, never fails.
    pub(crate) fn buffered(&self, what: Buffered) {
        let mut buffered = self
            .first_buffered
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        buffered.push(what);
        if buffered.len() == 1 {
            let _ = self.wake.write(1);
        }
    }

    pub(crate) async fn buffers(&self) -> Result<Option<Receiver<Vec<BufferedSession>>>, NoAnswer> {
        self.ask(Question::Buffers).await
    }

    /// Send a command that must not be lost: waits for a place in the queue. False when the control
    /// thread has ended.
    pub(crate) fn insist(&self, command: Command) -> bool {
        self.queue.send(command).is_ok() && self.wake.write(1).is_ok()
    }

    async fn ask<T>(
        &self,
        question: impl FnOnce(oneshot::Sender<T>) -> Question,
    ) -> Result<T, NoAnswer> {
        let (reply, answer) = oneshot::channel();
        self.questions.try_send(question(reply)).map_err(no_room)?;
        self.wake()?;
        answer.await.map_err(|_| NoAnswer::Gone)
    }

    pub(crate) async fn snapshot(&self) -> Result<Snapshot, NoAnswer> {
        self.ask(Question::Snapshot).await
    }

    /// An answer whose pieces are simply joined. `question`: for the items after this one.
    async fn gather<T, K: Clone>(
        &self,
        question: impl Fn(Option<K>, oneshot::Sender<Piece<Vec<T>, K>>) -> Question,
    ) -> Result<Vec<T>, NoAnswer> {
        let mut all = Vec::new();
        let mut after: Option<K> = None;
        loop {
            let piece = self.ask(|reply| question(after.clone(), reply)).await?;
            all.extend(piece.of);
            after = piece.after;
            if after.is_none() {
                return Ok(all);
            }
        }
    }

    pub(crate) async fn smfs(&self) -> Result<Vec<SmfReport>, NoAnswer> {
        self.gather(|after, reply| Question::Smfs { after, reply })
            .await
    }

    pub(crate) async fn peers(&self) -> Result<Vec<PeerReport>, NoAnswer> {
        self.gather(|after, reply| Question::Peers { after, reply })
            .await
    }

    pub(crate) async fn gtpu_peers(&self) -> Result<Vec<GtpuPeerReport>, NoAnswer> {
        self.gather(|after, reply| Question::GtpuPeers { after, reply })
            .await
    }

    pub(crate) async fn pfds(&self) -> Result<Vec<ApplicationReport>, NoAnswer> {
        self.gather(|after, reply| Question::Pfds { after, reply })
            .await
    }

    pub(crate) async fn sessions(
        &self,
        after: Option<u64>,
        limit: usize,
    ) -> Result<SessionPage, NoAnswer> {
        let mut page = SessionPage::default();
        let mut left = limit;
        let mut after = after;
        loop {
            let piece = self.ask(|reply| Question::Sessions {
                after,
                limit: left,
                reply,
            });
            let piece = piece.await?;
            page.total = piece.of.total;
            page.sessions.extend(piece.of.sessions);
            left = left.saturating_sub(piece.looked);
            after = piece.after;
            if after.is_none() || left == 0 {
                page.next = after.map(seid_text);
                return Ok(page);
            }
        }
    }

    /// Of some sessions after that one.
    pub(crate) async fn find(
        &self,
        sought: Sought,
        after: Option<u64>,
    ) -> Result<Piece<SessionPage, u64>, NoAnswer> {
        self.ask(|reply| Question::Find {
            sought,
            after,
            reply,
        })
        .await
    }

    pub(crate) async fn entry_counts(&self) -> Result<EntryCounts, NoAnswer> {
        self.ask(|reply| Question::EntryCounts { reply }).await
    }

    pub(crate) async fn usage(
        &self,
        after: Option<u64>,
        limit: usize,
    ) -> Result<UsagePage, NoAnswer> {
        let mut page = UsagePage::default();
        let mut left = limit;
        let mut after = after;
        loop {
            let piece = self.ask(|reply| Question::Usage {
                after,
                limit: left,
                reply,
            });
            let piece = piece.await?;
            page.total = piece.of.total;
            page.sessions.extend(piece.of.sessions);
            left = left.saturating_sub(piece.looked);
            after = piece.after;
            if after.is_none() || left == 0 {
                page.next = after.map(seid_text);
                return Ok(page);
            }
        }
    }

    pub(crate) async fn counts(
        &self,
        after: Option<u64>,
    ) -> Result<Piece<Vec<SessionCounts>, u64>, NoAnswer> {
        self.ask(|reply| Question::Counts { after, reply }).await
    }

    pub(crate) async fn counts_of(&self, seid: u64) -> Result<Option<SessionCounts>, NoAnswer> {
        self.ask(|reply| Question::CountsOf { seid, reply }).await
    }

    pub(crate) async fn counts_of_ue(&self, ue: IpAddr) -> Result<Vec<SessionCounts>, NoAnswer> {
        self.ask(|reply| Question::CountsOfUe { ue, reply }).await
    }

    pub(crate) async fn session(&self, seid: u64) -> Result<Option<SessionDetail>, NoAnswer> {
        self.ask(|reply| Question::Session { seid, reply }).await
    }
}

impl Asker {
    pub(crate) async fn trace(
        &self,
        whom: Whom,
    ) -> Result<Result<Subscription, Refused>, NoAnswer> {
        self.ask(|reply| Question::Trace { whom, reply }).await
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

    /// The next question; `None` when none waits.
    pub(crate) fn question(&self) -> Option<Question> {
        self.questions.try_recv().ok()
    }

    /// Up to so many first packets that were buffered; for more it wakes us again.
    pub(crate) fn take_buffered(&self, at_most: usize) -> Vec<Buffered> {
        let mut buffered = self
            .first_buffered
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let some = buffered.len().min(at_most);
        let taken = buffered.drain(..some).collect();
        if !buffered.is_empty() {
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
