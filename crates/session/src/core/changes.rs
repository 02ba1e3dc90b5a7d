//! Changes since they were last kept, as octets that outlive the process.

use compiled::Tables;

use crate::base::slab::is_not_before;
use crate::node::Node;
use crate::node::record::{GENERATIONS_AHEAD, NodeRecord, REQUESTS_AHEAD};
use crate::shard::Shard;

/// Something that has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'o> {
    /// The session in this place is this one: read by [`NodeRecord::session`].
    Session(u32, &'o [u8]),
    /// No session is in this place.
    Gone(u32),
    /// The node: read by [`NodeRecord::read`].
    Node(&'o [u8]),
}

/// The node as it was last kept.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// It was at all.
    is_there: bool,
    sequence: u32,
    generation: u32,
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
        if node.take_news() || wants_node || is_used_up || !self.is_there {
            self.is_there = true;
            (self.sequence, self.generation) = (sequence, generation);
            let record = NodeRecord::of(node, generation, Some(shard.names()));
            each(Change::Node(&record.ahead().write()));
        }
        shard.note_recounted();
        let octets = &mut self.octets;
        octets.clear();
        while let Some((place, is_there)) = shard.next_change(octets) {
            match is_there {
                true => each(Change::Session(place.index(), octets)),
                false => each(Change::Gone(place.index())),
            }
            octets.clear();
        }
        shard.tables_mut().counts_are_kept();
    }
}
