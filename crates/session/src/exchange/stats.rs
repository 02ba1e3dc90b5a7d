//! Counters of the node: what came, what was said, and what went wrong.

use compiled::Slow;
use pfcp::{Cause, MessageType};

use crate::base::event::Ignored;

/// Which way a message went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Way {
    /// To us.
    Received,
    /// From us, retransmissions included.
    Sent,
}

/// Causes from here on share the last counter: TS 29.244, 8.2.1 defines none beyond 79.
const CAUSES: usize = 96;
/// Types of 29.244, 7.3: 1 to 17 and 50 to 57. Everything else is counted as ignored.
const TYPES: usize = 58;

/// Counted since the start; they only grow.
#[derive(Debug)]
pub struct Stats {
    messages: [[u64; TYPES]; 2],
    causes: Vec<[u64; CAUSES]>,
    ignored: [u64; Ignored::ALL.len()],
    /// Of [`Slow::ALL`].
    slow: [u64; Slow::ALL.len()],
    /// Requests that the data path has served.
    pub served: u64,
    /// Datagrams of another PFCP version (TS 29.244, 7.6.2).
    pub other_versions: u64,
    /// Requests whose IEs could not be decoded; they were answered with a cause.
    pub decode_errors: u64,
    /// Requests answered from the cache.
    pub duplicates: u64,
    /// Requests of ours sent once more.
    pub retransmissions: u64,
    /// Requests of ours given up after N1 times.
    pub timeouts: u64,
    /// Associations set up.
    pub associations: u64,
    /// Peers that went silent.
    pub silences: u64,
    /// Peers that restarted.
    pub restarts: u64,
    /// Error Indications of GTP-U peers.
    pub error_indications: u64,
    /// Of those, not from the end of the tunnel that they are about: nobody hears of them.
    pub error_indications_foreign: u64,
    /// Error Indications that were reported to an SMF.
    pub error_reports: u64,
    /// Session Reports of packets that wait for their UE.
    pub downlink_data_reports: u64,
    /// Echo Requests sent to GTP-U peers.
    pub echo_requests: u64,
    /// Echo Responses of GTP-U peers.
    pub echo_responses: u64,
    /// GTP-U peers that answer no more.
    pub path_failures: u64,
    /// GTP-U peers that answer again.
    pub path_recoveries: u64,
    /// GTP-U peers that have restarted.
    pub gtpu_restarts: u64,
    /// GTP-U messages that could not be read.
    pub gtpu_malformed: u64,
    /// GTP-U messages of other types: Supported Extension Headers Notification.
    pub gtpu_other: u64,
    /// Establishments refused because of overload.
    pub shed: u64,
    /// Usage reports sent, each once, also those in answers.
    pub usage_reports: u64,
    /// Sessions that keep former flows of an application, for want of room for its new PFDs; once for each change.
    pub pfds_without_room: u64,
    /// Sessions of SMFs that do not answer, deleted because others needed the room.
    pub displaced: u64,
    /// Sessions established.
    pub established: u64,
    /// Sessions modified.
    pub modified: u64,
    /// Sessions deleted on request.
    pub deleted: u64,
    /// Sessions deleted because their peer was gone.
    pub swept: u64,
}

impl Stats {
    pub(crate) fn new() -> Self {
        Self {
            messages: [[0; TYPES]; 2],
            causes: vec![[0; CAUSES]; 2 * TYPES],
            ignored: [0; Ignored::ALL.len()],
            slow: [0; Slow::ALL.len()],
            served: 0,
            other_versions: 0,
            decode_errors: 0,
            duplicates: 0,
            retransmissions: 0,
            timeouts: 0,
            associations: 0,
            silences: 0,
            restarts: 0,
            error_indications: 0,
            error_indications_foreign: 0,
            error_reports: 0,
            downlink_data_reports: 0,
            echo_requests: 0,
            echo_responses: 0,
            path_failures: 0,
            path_recoveries: 0,
            gtpu_restarts: 0,
            gtpu_malformed: 0,
            gtpu_other: 0,
            shed: 0,
            usage_reports: 0,
            pfds_without_room: 0,
            displaced: 0,
            established: 0,
            modified: 0,
            deleted: 0,
            swept: 0,
        }
    }

    /// The data path did not serve a request.
    pub(crate) fn slow(&mut self, why: Slow) {
        let place = Slow::ALL.iter().position(|other| *other == why);
        if let Some(count) = place.and_then(|place| self.slow.get_mut(place)) {
            *count += 1;
        }
    }

    /// How often it did not, for this reason.
    pub(crate) fn slow_for(&self, why: Slow) -> u64 {
        let place = Slow::ALL.iter().position(|other| *other == why);
        place.map_or(0, |place| self.slow[place])
    }

    pub(crate) fn message(&mut self, way: Way, message_type: MessageType) {
        if let Some(count) = self.messages[way as usize].get_mut(usize::from(message_type.0)) {
            *count += 1;
        }
    }

    pub(crate) fn cause(&mut self, way: Way, response: MessageType, cause: Cause) {
        let row = way as usize * TYPES + usize::from(response.0).min(TYPES - 1);
        self.causes[row][usize::from(cause.0).min(CAUSES - 1)] += 1;
    }

    pub(crate) fn ignored(&mut self, why: Ignored, messages: u32) {
        self.ignored[why as usize] += u64::from(messages);
    }

    /// Messages by type; those never seen are left out.
    pub fn messages(&self) -> impl Iterator<Item = (Way, MessageType, u64)> + '_ {
        MessageType::ALL.iter().flat_map(move |&message_type| {
            [Way::Received, Way::Sent]
                .into_iter()
                .filter_map(move |way| {
                    let count = *self.messages[way as usize].get(usize::from(message_type.0))?;
                    (count > 0).then_some((way, message_type, count))
                })
        })
    }

    /// Responses by type and cause; those never seen are left out. Cause 95 stands for itself and
    /// everything above.
    pub fn causes(&self) -> impl Iterator<Item = (Way, MessageType, Cause, u64)> + '_ {
        self.causes.iter().enumerate().flat_map(|(row, counts)| {
            let way = if row < TYPES {
                Way::Received
            } else {
                Way::Sent
            };
            let response = MessageType((row % TYPES) as u8);
            counts
                .iter()
                .enumerate()
                .filter_map(move |(cause, &count)| {
                    (count > 0).then_some((way, response, Cause(cause as u8), count))
                })
        })
    }

    /// Datagrams that were not answered, by reason.
    pub fn ignored_messages(&self) -> impl Iterator<Item = (Ignored, u64)> + '_ {
        Ignored::ALL
            .iter()
            .map(|&why| (why, self.ignored[why as usize]))
    }

    /// How often this type went this way.
    pub fn count(&self, way: Way, message_type: MessageType) -> u64 {
        self.messages[way as usize]
            .get(usize::from(message_type.0))
            .copied()
            .unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_what_it_is_told_and_nothing_else() {
        let mut stats = Stats::new();
        stats.message(Way::Received, MessageType::SESSION_REPORT_RESPONSE);
        stats.message(Way::Received, MessageType(255));
        stats.cause(
            Way::Sent,
            MessageType::ASSOCIATION_SETUP_RESPONSE,
            Cause(255),
        );
        stats.ignored(Ignored::StaleRecovery, 1);
        let messages: Vec<_> = stats.messages().collect();
        assert_eq!(
            messages,
            [(Way::Received, MessageType::SESSION_REPORT_RESPONSE, 1)]
        );
        let causes: Vec<_> = stats.causes().collect();
        assert_eq!(
            causes,
            [(
                Way::Sent,
                MessageType::ASSOCIATION_SETUP_RESPONSE,
                Cause(95),
                1
            )]
        );
        assert_eq!(
            stats
                .ignored_messages()
                .filter(|(_, count)| *count > 0)
                .count(),
            1
        );
    }
}
