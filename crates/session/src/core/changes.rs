//! Changes since they were last kept, as octets that outlive the process.

use compiled::Tables;

use crate::base::slab::is_not_before;
use crate::exchange::answer_record::AnswerRecord;
use crate::exchange::n4::{Given, N4};
use crate::node::Node;
use crate::node::record::{GENERATIONS_AHEAD, NodeRecord, REQUESTS_AHEAD, pfds_record};
use crate::shard::Shard;

/// Something that has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'o> {
    /// The session in this place is this one: read by [`NodeRecord::session`].
    Session(u32, &'o [u8]),
    /// No session is in this place.
    Gone(u32),
    /// The node, but for its PFDs: read by [`NodeRecord::read`].
    Node(&'o [u8]),
    /// All PFDs: read by [`NodeRecord::read_pfds`].
    Pfds(&'o [u8]),
    /// An answer that was given: for [`Core::resume_answers`](crate::Core::resume_answers), in the order in which they come.
    Answer(&'o [u8]),
}

/// The node as it was last kept.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// It was at all.
    is_there: bool,
    sequence: u32,
    generation: u32,
    /// Kept for its capacity.
    given: Vec<Given>,
    /// Kept for its capacity.
    octets: Vec<u8>,
}

impl Kept {
    /// See [`Core::changes`](crate::Core::changes).
    pub(crate) fn changes<T: Tables>(
        &mut self,
        (node, shard): (&mut Node, &mut Shard<T>),
        wants_node: bool,
        mut each: impl FnMut(Change<'_>),
    ) {
        let (sequence, generation) = (node.n4().sequence(), shard.generation());
        let requests = sequence.wrapping_sub(self.sequence);
        let is_used_up = requests % (1 << 24) > REQUESTS_AHEAD / 2
            || is_not_before(
                generation,
                self.generation.wrapping_add(GENERATIONS_AHEAD / 2),
            );
        let news = node.take_news();
        if news.pfds || !self.is_there {
            each(Change::Pfds(&pfds_record(node)));
        }
        if news.associations || wants_node || is_used_up || !self.is_there {
            self.is_there = true;
            (self.sequence, self.generation) = (sequence, generation);
            let record = NodeRecord::of(node, generation, Some(shard.names()));
            each(Change::Node(&record.ahead().write()));
        }
        shard.note_recounted();
        let Self { given, octets, .. } = self;
        node.n4_mut().take_given(given);
        // Answers about one session come in front of its record, which names the last request and so says which of them hold. Nothing
        // says so of the others: they come behind all that they say was done.
        let (of_sessions, others) = (given.iter(), given.iter());
        let of_sessions = of_sessions.filter(|given| given.seid != 0);
        let others = others.filter(|given| given.seid == 0);
        put_answers(node.n4(), of_sessions, octets, &mut each);
        octets.clear();
        while let Some((place, is_there)) = shard.next_change(octets) {
            match is_there {
                true => each(Change::Session(place.index(), octets)),
                false => each(Change::Gone(place.index())),
            }
            octets.clear();
        }
        put_answers(node.n4(), others, octets, &mut each);
        given.clear();
        shard.tables_mut().counts_are_kept();
        shard.tables_mut().served_is_kept();
    }
}

/// Answers that the cache still has.
fn put_answers<'g>(
    n4: &N4,
    given: impl Iterator<Item = &'g Given>,
    record: &mut Vec<u8>,
    each: &mut impl FnMut(Change<'_>),
) {
    for given in given {
        let Some(octets) = n4.octets_of(given) else {
            continue;
        };
        let answer = AnswerRecord {
            association: given.within.0,
            request: given.request,
            at: given.at,
            seid: given.seid,
            ends: given.ends,
            octets: &octets,
        };
        record.clear();
        answer.put(record);
        each(Change::Answer(record));
    }
}
