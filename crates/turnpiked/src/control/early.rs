//! N4 while sessions of a process before this one are being taken over, which may take seconds: SMFs hear at once that their UPF is
//! there, and what else they ask waits, as it would in the socket, whose room heartbeats would share.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use session::Core;
use tables::Tables;

use super::Gate;
use crate::n4::{Receiver, Sender, Socket};

/// N4 is looked at so often.
const PAUSE: Duration = Duration::from_millis(2);
/// Memory of a datagram beside its octets.
const BESIDE: usize = 64;

/// N4, of which heartbeats alone are served.
pub(super) struct Early<'c> {
    sockets: &'c [Socket],
    gate: &'c Gate,
    receiver: Receiver,
    sender: Sender,
    looked: Instant,
    /// Octets that may wait.
    room: usize,
    waiting: Vec<(SocketAddr, Vec<u8>)>,
    /// Senders of what came in by interfaces of the data network.
    kept_out: Vec<SocketAddr>,
}

/// What has come meanwhile, in its order.
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
            waiting: Vec::new(),
            kept_out: Vec::new(),
        }
    }

    /// Look at N4, if it is time for that.
    pub(super) fn attend(&mut self, core: &Core<Tables>) {
        if self.looked.elapsed() < PAUSE {
            return;
        }
        for (number, socket) in self.sockets.iter().enumerate() {
            // What is wrong with a socket is said when it is served.
            while self.receiver.receive(socket).is_ok_and(|count| count > 0) {
                self.take(number, socket, core);
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
            waiting,
            kept_out,
            ..
        } = self;
        receiver.keep(
            |ifindex| gate.admits(number, ifindex),
            |from| {
                if take_room(room, 0) {
                    kept_out.push(from);
                }
            },
        );
        for (from, octets) in receiver.batches().flatten() {
            let mut answer = Vec::new();
            if core.answer_heartbeat(from, octets, &mut answer) {
                sender.send(socket, [(from, answer.as_slice())].into_iter());
            }
            // A heartbeat says more than that it wants an answer. That it gets a second one, SMFs ignore.
            if take_room(room, octets.len()) {
                waiting.push((from, octets.to_vec()));
            }
        }
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
