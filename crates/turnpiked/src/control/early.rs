//! N4 while sessions of a process before this one are being taken over, which may take seconds: SMFs hear at once that their UPF is
//! there, and what else they ask waits, as it would in the socket, whose room heartbeats would share.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use session::Core;
use tables::Tables;

use super::Gate;
use crate::n4::{Receiver, Sender, Socket};

/// N4 is looked at so often, and for no longer, but for the batch that is begun: else a flood could keep sessions out.
const PAUSE: Duration = Duration::from_millis(2);
/// Octets of senders who have no association that may wait.
const STRANGERS_ROOM: usize = 1 << 20;
/// Memory of a datagram beside its octets.
const BESIDE: usize = 64;

/// N4, of which heartbeats alone are served.
pub(super) struct Early<'c> {
    sockets: &'c [Socket],
    gate: &'c Gate,
    receiver: Receiver,
    sender: Sender,
    looked: Instant,
    /// Octets that may wait, of SMFs and of others.
    room: usize,
    strangers_room: usize,
    waiting: Vec<(SocketAddr, Vec<u8>)>,
    /// Senders of what came in by interfaces of the data network.
    kept_out: Vec<SocketAddr>,
}

/// Datagrams that have come meanwhile, in their order.
pub(super) struct Waited {
    pub(super) datagrams: Vec<(SocketAddr, Vec<u8>)>,
    pub(super) kept_out: Vec<SocketAddr>,
}

impl<'c> Early<'c> {
    /// room: octets that may wait; SMFs repeat what finds none.
    pub(super) fn new(sockets: &'c [Socket], gate: &'c Gate, room: usize) -> Self {
        Self {
            sockets,
            gate,
            receiver: Receiver::new(),
            sender: Sender::new(),
            looked: Instant::now(),
            room,
            strangers_room: STRANGERS_ROOM,
            waiting: Vec::new(),
            kept_out: Vec::new(),
        }
    }

    /// Look at N4, if it is time for that.
    pub(super) fn attend(&mut self, core: &Core<Tables>) {
        if self.looked.elapsed() < PAUSE {
            return;
        }
        let begun = Instant::now();
        for (number, socket) in self.sockets.iter().enumerate() {
            // An error of a socket is said when it is served.
            while self.receiver.receive(socket).unwrap_or(0) > 0 {
                self.take(number, socket, core);
                if begun.elapsed() >= PAUSE {
                    break;
                }
            }
        }
        self.looked = Instant::now();
    }

    fn take(&mut self, number: usize, socket: &Socket, core: &Core<Tables>) {
        let Self {
            gate,
            receiver,
            sender,
            room,
            strangers_room,
            waiting,
            kept_out,
            ..
        } = self;
        receiver.keep(
            |ifindex| gate.admits(number, ifindex),
            |from| {
                if take_room(strangers_room, 0) {
                    kept_out.push(from);
                }
            },
        );
        let mut answers = Vec::new();
        for (from, octets) in receiver.batches().flatten() {
            let mut answer = Vec::new();
            if core.answer_heartbeat(from, octets, &mut answer) {
                answers.push((from, answer));
            }
            // A heartbeat says more than that it wants an answer. That it gets a second one, SMFs ignore.
            let room = match core.is_stranger(from) {
                true => &mut *strangers_room,
                false => &mut *room,
            };
            if take_room(room, octets.len()) {
                waiting.push((from, octets.to_vec()));
            }
        }
        let answers = answers
            .iter()
            .map(|(from, answer)| (*from, answer.as_slice()));
        sender.send(socket, answers);
    }

    /// N4 is served from now on.
    pub(super) fn end(self) -> Waited {
        Waited {
            datagrams: self.waiting,
            kept_out: self.kept_out,
        }
    }
}

fn take_room(room: &mut usize, octets: usize) -> bool {
    match room.checked_sub(octets + BESIDE) {
        Some(left) => {
            *room = left;
            true
        }
        None => false,
    }
}
