//! Values that a node and its shards exchange, and nothing else passes between them: so a shard may live in another thread.
//!
//! A node has associations, N4 itself and all timers of both; a shard has sessions and what falls due for them. Messages about
//! sessions and news of associations go to a shard ([`to_shard::ToShard`]), answers, reports and counts come back
//! ([`to_node::ToNode`]).

pub(crate) mod smf;
pub(crate) mod to_node;
pub(crate) mod to_shard;
