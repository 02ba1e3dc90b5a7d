//! PFCP transactions on their way from the control thread to the collector.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pfcp::ie::FailedRuleId;
use pfcp::{Cause, IeType, MessageType};
use session::Time;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Transactions that may wait: a second of 8000 a second, and 4 MiB at most.
const WAITING_MAX: usize = 8192;

/// A request and what became of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Transaction {
    pub(crate) by: Side,
    /// Of the request.
    pub(crate) message: MessageType,
    pub(crate) sequence: u32,
    /// Address of the SMF.
    pub(crate) peer: SocketAddr,
    /// The SMF's, as far as it is known.
    pub(crate) node_id: Option<Box<str>>,
    pub(crate) up_seid: Option<u64>,
    pub(crate) cp_seid: Option<u64>,
    /// By the clock of the control thread.
    pub(crate) begun: Time,
    pub(crate) ended: Time,
    pub(crate) outcome: Outcome,
    pub(crate) offending_ie: Option<IeType>,
    pub(crate) failed_rule: Option<FailedRuleId>,
    /// The answer was given before.
    pub(crate) repeated: bool,
    /// How often the request was sent by us; 0: it was the SMF's.
    pub(crate) sendings: u32,
}

/// Origin of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// At an SMF.
    Smf,
    /// Here.
    Us,
}

/// End of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// `None`: the answer has no cause, as that to a heartbeat.
    Answered(Option<Cause>),
    /// N1 sendings had no answer.
    TimedOut,
    /// The answer was waited for no more: association or session had ended.
    Cancelled,
}

/// End of the queue that transactions are put into. Putting never waits.
#[derive(Clone, Debug)]
pub(crate) struct Records {
    queue: Sender<Transaction>,
    dropped: Arc<AtomicU64>,
}

/// The other end.
#[derive(Debug)]
pub(crate) struct Queue {
    queue: Receiver<Transaction>,
    dropped: Arc<AtomicU64>,
}

/// A queue, which takes no memory until something is in it.
pub(crate) fn queue() -> (Records, Queue) {
    let (put, taken) = channel(WAITING_MAX);
    let dropped = Arc::new(AtomicU64::new(0));
    let records = Records {
        queue: put,
        dropped: Arc::clone(&dropped),
    };
    let queue = Queue {
        queue: taken,
        dropped,
    };
    (records, queue)
}

impl Records {
    /// A transaction that finds no room is counted.
    pub(crate) fn put(&self, transaction: Transaction) {
        if self.queue.try_send(transaction).is_err() {
            self.drop(1);
        }
    }

    /// So many transactions will not come.
    pub(crate) fn drop(&self, count: usize) {
        self.dropped.fetch_add(count as u64, Ordering::Relaxed);
    }
}

impl Queue {
    /// Waiting transactions, so many at most. Nobody is woken when one comes: waking this end would be a system call of the
    /// control thread each time.
    pub(super) fn take(&mut self, most: usize) -> Vec<Transaction> {
        let waiting = std::iter::from_fn(|| self.queue.try_recv().ok());
        waiting.take(most).collect()
    }

    /// Transactions that found no room so far.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Nobody is told of those that wait.
    pub(super) fn discard(&mut self) {
        while self.queue.try_recv().is_ok() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A Session Establishment Request of an SMF that was accepted.
    pub(crate) fn establishment(sequence: u32) -> Transaction {
        Transaction {
            by: Side::Smf,
            message: MessageType::SESSION_ESTABLISHMENT_REQUEST,
            sequence,
            peer: SocketAddr::from(([10, 100, 0, 2], 8805)),
            node_id: Some("smf.example".into()),
            up_seid: Some(7),
            cp_seid: Some(8),
            begun: Time(1_000_000),
            ended: Time(1_250_000),
            outcome: Outcome::Answered(Some(Cause::REQUEST_ACCEPTED)),
            offending_ie: None,
            failed_rule: None,
            repeated: false,
            sendings: 0,
        }
    }

    #[test]
    fn a_full_queue_drops_and_counts() {
        let (records, mut queue) = queue();
        for sequence in 0..WAITING_MAX as u32 + 3 {
            records.put(establishment(sequence));
        }
        assert_eq!(queue.dropped(), 3);
        let taken = queue.take(2);
        let taken: Vec<_> = taken.iter().map(|of| of.sequence).collect();
        assert_eq!(taken, [0, 1], "the oldest come first");
        records.put(establishment(9));
        assert_eq!(queue.dropped(), 3, "there is room again");
        queue.discard();
        assert_eq!(queue.dropped(), 3 + WAITING_MAX as u64 - 1);
        assert!(queue.take(1).is_empty());
    }
}
