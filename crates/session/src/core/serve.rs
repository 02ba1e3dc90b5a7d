//! Requests that the data path serves, before anything else looks at them.

use std::net::SocketAddr;

use compiled::{Slow, Tables, Template};
use pfcp::{Header, MessageType};

use crate::base::node_id::NodeId;
use crate::base::time::Time;
use crate::between::to_node::Outputs;
use crate::exchange::incoming::Incoming;
use crate::exchange::stats::Way;
use crate::node::Node;
use crate::shard::Shard;

/// Requests that the data path serves by one template.
#[derive(Clone, Copy, Debug)]
pub struct TemplateView<'a> {
    /// SMF that asks so.
    pub smf: &'a NodeId,
    /// Their common octets, and the changes that each Update FAR asks for.
    pub template: &'a Template,
    /// How many were served.
    pub served: u64,
}

/// Let the data path serve a message. Whether it has, and what the shard has said is the answer; else nothing has happened but that
/// it is counted why.
pub(super) fn serve<T: Tables>(
    now: Time,
    (node, shard): (&mut Node, &mut Shard<T>),
    (from, octets): (SocketAddr, &[u8]),
    outputs: &mut Outputs,
) -> bool {
    let Some(peer) = node.peers().by_source(from) else {
        return false;
    };
    let Ok((header, _)) = Header::decode(octets) else {
        return false;
    };
    if header.message_type != MessageType::SESSION_MODIFICATION_REQUEST {
        return false;
    }
    let incoming = Incoming::new(from, &header, octets);
    // Numbers of an SMF that counts more than once may run ahead and back: answers that are kept decide, as for the core.
    let served = match node.n4().is_answered(now, peer, incoming.fingerprint) {
        true => Err(Slow::Sequence),
        false => shard.serve(now, outputs, (peer, &incoming), octets),
    };
    let stats = node.n4_mut().stats_mut();
    match served {
        Ok(()) => {
            stats.served += 1;
            stats.message(Way::Received, header.message_type);
        }
        Err(why) => stats.slow(why),
    }
    served.is_ok()
}
