//! PFCP transactions as they are seen at the socket: datagrams that come and go say all that telemetry tells, and the core knows
//! nothing of it.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::time::Duration;

use pfcp::ie::{FSeid, FailedRuleId, NodeId};
use pfcp::{Cause, FromIe, Header, IeType, Ies, Message, MessageType};
use session::{Core, Time};
use tables::Tables;

use crate::config::Config;
use crate::telemetry::{Outcome, Records, Side, Transaction};

/// Requests of SMFs between two sendings, of which each answer may have to look at all. One batch of datagrams, and some bundles.
const ASKED_MAX: usize = 256;
/// Requests of ours under way.
const ASKING_MAX: usize = 4096;
/// Letters of a Node ID, which an SMF may send in any length: those of the longest name (RFC 1035, 2.3.4).
const NODE_ID_MAX: usize = 253;
/// Between two looks for requests of ours that nobody answers.
const LOOK: Duration = Duration::from_millis(250);

/// Transactions under way that are sampled.
#[derive(Debug)]
pub(super) struct Transactions {
    records: Records,
    sampler: Sampler,
    t1: Duration,
    n1: u32,
    asked: VecDeque<Transaction>,
    /// By their sequence numbers.
    asking: BTreeMap<u32, Asking>,
    looked: Time,
}

/// A request of ours.
#[derive(Debug)]
struct Asking {
    transaction: Transaction,
    sent: Time,
}

/// A share of all transactions. Sendings of one request are sampled together, as the choice is made of what they have in common.
#[derive(Debug)]
struct Sampler {
    choice: RandomState,
    /// `None`: all.
    below: Option<u64>,
}

impl Sampler {
    fn takes(&self, by: u8, peer: SocketAddr, header: &Header) -> bool {
        let Some(below) = self.below else { return true };
        let what = (by, peer, header.sequence, header.message_type.0);
        self.choice.hash_one(what) < below
    }
}

impl Transactions {
    /// By another configuration. `None`: nobody is told of any.
    pub(super) fn follow(before: Option<Self>, config: &Config, records: &Records) -> Option<Self> {
        let telemetry = config.telemetry.as_ref();
        let ratio = telemetry.map(|of| of.ratio).filter(|ratio| *ratio > 0.0)?;
        let mut now = before.unwrap_or_else(|| Self {
            records: records.clone(),
            sampler: Sampler {
                choice: RandomState::new(),
                below: None,
            },
            t1: Duration::ZERO,
            n1: 0,
            asked: VecDeque::new(),
            asking: BTreeMap::new(),
            looked: Time(0),
        });
        // Saturates.
        let below = (ratio * u64::MAX as f64) as u64;
        now.sampler.below = (ratio < 1.0).then_some(below);
        now.t1 = Duration::from_millis(config.n4.t1_ms.into());
        now.n1 = config.n4.n1;
        Some(now)
    }

    /// A datagram is about to be handed to the core.
    pub(super) fn received(
        &mut self,
        now: Time,
        core: &Core<Tables>,
        from: SocketAddr,
        datagram: &[u8],
    ) {
        let mut left = datagram;
        for _ in 0..session::messages_in(datagram) {
            let Ok(message) = pfcp::decode(left) else {
                // It is answered all the same, if its header can be read.
                if let Ok((header, _)) = Header::decode(left)
                    && header.version == pfcp::VERSION
                    && header.message_type.is_response() == Some(false)
                {
                    self.is_asked(now, core, from, (&header, None));
                }
                return;
            };
            match message.header.message_type.is_response() {
                Some(false) => {
                    self.is_asked(now, core, from, (&message.header, Some(&message.ies)));
                }
                Some(true) => self.is_answered(now, core, from, &message),
                None => {}
            }
            left = message.rest;
        }
    }

    fn is_asked(
        &mut self,
        now: Time,
        core: &Core<Tables>,
        from: SocketAddr,
        (header, ies): (&Header, Option<&Ies<'_>>),
    ) {
        if !self.sampler.takes(0, from, header) {
            return;
        }
        if self.asked.len() == ASKED_MAX {
            return self.records.drop(1);
        }
        let said = match header.message_type {
            // These have none.
            MessageType::HEARTBEAT_REQUEST
            | MessageType::SESSION_MODIFICATION_REQUEST
            | MessageType::SESSION_DELETION_REQUEST => None,
            _ => ies.and_then(node_id_in),
        };
        let begun = Transaction {
            node_id: said.or_else(|| known_at(core, from)),
            up_seid: header.seid.filter(|seid| *seid != 0),
            ..begun(Side::Smf, now, from, header)
        };
        self.asked.push_back(begun);
    }

    fn is_answered(
        &mut self,
        now: Time,
        core: &Core<Tables>,
        from: SocketAddr,
        message: &Message<'_>,
    ) {
        let header = &message.header;
        let is_it = |asking: &Asking| {
            let transaction = &asking.transaction;
            transaction.peer == from && transaction.message.response() == Some(header.message_type)
        };
        if !self.asking.get(&header.sequence).is_some_and(is_it) {
            return;
        }
        let Some(Asking { transaction, .. }) = self.asking.remove(&header.sequence) else {
            return;
        };
        let mut ended = Transaction {
            ended: now,
            node_id: node_id_in(&message.ies).or_else(|| known_at(core, from)),
            ..transaction
        };
        read(&mut ended, message);
        ended.up_seid = header.seid.filter(|seid| *seid != 0);
        self.records.put(ended);
    }

    /// A datagram was handed to the socket. `repeats`: an answer that was given before.
    pub(super) fn sent(
        &mut self,
        now: Time,
        core: &Core<Tables>,
        (to, datagram): (SocketAddr, &[u8]),
        repeats: bool,
    ) {
        let Ok(message) = pfcp::decode(datagram) else {
            return;
        };
        let header = &message.header;
        match header.message_type.is_response() {
            Some(true) => {
                let place = self.asked.iter().position(|asked| {
                    (asked.sequence, asked.peer) == (header.sequence, to)
                        && asked.message.response() == Some(header.message_type)
                });
                let Some(mut ended) = place.and_then(|place| self.asked.remove(place)) else {
                    return;
                };
                read(&mut ended, &message);
                ended.cp_seid = header.seid.filter(|seid| *seid != 0);
                ended.repeated = repeats;
                ended.ended = now;
                self.records.put(ended);
            }
            Some(false) => self.asks(now, core, to, header),
            None => {}
        }
    }

    fn asks(&mut self, now: Time, core: &Core<Tables>, to: SocketAddr, header: &Header) {
        if let Some(asking) = self.asking.get_mut(&header.sequence) {
            asking.transaction.sendings += 1;
            asking.sent = now;
            return;
        }
        if !self.sampler.takes(1, to, header) {
            return;
        }
        if self.asking.len() == ASKING_MAX {
            return self.records.drop(1);
        }
        let begun = Transaction {
            node_id: known_at(core, to),
            cp_seid: header.seid.filter(|seid| *seid != 0),
            sendings: 1,
            ..begun(Side::Us, now, to, header)
        };
        let asking = Asking {
            transaction: begun,
            sent: now,
        };
        self.asking.insert(header.sequence, asking);
    }

    /// All was sent that there is to send: requests of SMFs that had no answer will have none. Now and then it is looked for
    /// requests of ours that are sent no more.
    pub(super) fn settle(&mut self, now: Time) {
        self.asked.clear();
        if now.since(self.looked) < LOOK {
            return;
        }
        self.looked = now;
        // The core sends again after T1, or has given up then.
        let patience = 2 * self.t1;
        let (t1, n1, records) = (self.t1, self.n1, &self.records);
        self.asking.retain(|_, asking| {
            let waits = now.since(asking.sent) < patience;
            if !waits {
                let sendings = asking.transaction.sendings;
                records.put(Transaction {
                    ended: asking.sent.after(t1),
                    outcome: match sendings >= n1 {
                        true => Outcome::TimedOut,
                        false => Outcome::Cancelled,
                    },
                    ..asking.transaction.clone()
                });
            }
            waits
        });
    }
}

fn begun(by: Side, now: Time, peer: SocketAddr, header: &Header) -> Transaction {
    Transaction {
        by,
        message: header.message_type,
        sequence: header.sequence,
        peer,
        node_id: None,
        up_seid: None,
        cp_seid: None,
        begun: now,
        ended: now,
        outcome: Outcome::Answered(None),
        offending_ie: None,
        failed_rule: None,
        repeated: false,
        sendings: 0,
    }
}

/// Cause of an answer, and what goes with it. Of each IE the first counts.
fn read(transaction: &mut Transaction, answer: &Message<'_>) {
    let mut cause = None;
    for ie in answer.ies.iter().map_while(Result::ok) {
        match ie.ie_type {
            IeType::CAUSE if cause.is_none() => cause = Cause::from_ie(&ie).ok(),
            IeType::OFFENDING_IE if transaction.offending_ie.is_none() => {
                transaction.offending_ie = IeType::from_ie(&ie).ok();
            }
            IeType::FAILED_RULE_ID if transaction.failed_rule.is_none() => {
                transaction.failed_rule = FailedRuleId::from_ie(&ie).ok();
            }
            IeType::F_SEID if transaction.by == Side::Smf => {
                transaction.up_seid = FSeid::from_ie(&ie).ok().map(|f_seid| f_seid.seid);
            }
            _ => {}
        }
    }
    transaction.outcome = Outcome::Answered(cause);
}

fn node_id_in(ies: &Ies<'_>) -> Option<Box<str>> {
    let ie = ies.find(IeType::NODE_ID).ok()??;
    let id = NodeId::from_ie(&ie).ok()?;
    let clipped: String = id.to_string().chars().take(NODE_ID_MAX).collect();
    Some(clipped.into())
}

/// Node ID of the SMF at this address.
fn known_at(core: &Core<Tables>, address: SocketAddr) -> Option<Box<str>> {
    let peer = core.peer_at(address)?;
    Some(peer.node_id.to_string().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_sampled_and_sendings_of_a_request_together() {
        let from = SocketAddr::from(([10, 100, 0, 2], 8805));
        let header = |sequence| Header {
            version: pfcp::VERSION,
            message_type: MessageType::SESSION_ESTABLISHMENT_REQUEST,
            seid: Some(0),
            sequence,
            priority: None,
            follow_on: false,
            length: 12,
        };
        let sampled = |below| {
            let sampler = Sampler {
                choice: RandomState::new(),
                below,
            };
            let taken = (0..10_000).filter(|sequence| {
                let header = header(*sequence);
                let takes = sampler.takes(0, from, &header);
                assert_eq!(sampler.takes(0, from, &header), takes);
                takes
            });
            taken.count()
        };
        assert_eq!((sampled(None), sampled(Some(0))), (10_000, 0));
        // A standard deviation is 43.
        let quarter = sampled(Some(u64::MAX / 4));
        assert!((2000..3000).contains(&quarter), "{quarter}");
    }
}
