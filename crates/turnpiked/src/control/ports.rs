//! Data interfaces that go away and are made anew, as VFs, container networks, bonds and resets of drivers do.

use std::time::{Duration, Instant};

use nexthop::Port;
use tables::Tables;

/// Pause between attempts to attach to an interface that is there.
const AGAIN: Duration = Duration::from_secs(1);

/// State of one data interface.
#[derive(Debug)]
enum State {
    /// Its packets meet the data path.
    Attached(u32),
    Gone {
        since: Instant,
    },
    /// It is there under this number, and the data path cannot be attached.
    Refused {
        ifindex: u32,
        error: String,
        again: Instant,
    },
}

/// Attachment of the data path to its interfaces, which follows what the kernel says of them.
#[derive(Debug, Default)]
pub(super) struct Ports {
    states: Vec<State>,
}

impl Ports {
    /// All are attached.
    pub(super) fn new(ports: &[Port]) -> Self {
        Self {
            states: (ports.iter().map(|port| State::Attached(port.ifindex))).collect(),
        }
    }

    /// Attach to those that are back, leave those that are gone. `relinked`: the kernel has said something of links; without,
    /// it costs next to nothing.
    pub(super) fn reconcile(&mut self, relinked: bool, ports: &[Port], tables: &mut Tables) {
        let now = Instant::now();
        let is_due = |state: &State| matches!(state, State::Refused { again, .. } if *again <= now);
        if !relinked && !self.states.iter().any(is_due) {
            return;
        }
        for (state, port) in self.states.iter_mut().zip(ports) {
            state.follow(port, tables, now);
        }
    }

    /// Trouble with each interface, in their order; `None`: it is attached.
    pub(super) fn troubles(&self) -> impl Iterator<Item = Option<String>> {
        self.states.iter().map(|state| match state {
            State::Attached(_) => None,
            State::Gone { since } => Some(format!(
                "gone for {} s: its packets are lost until it is back",
                since.elapsed().as_secs()
            )),
            State::Refused { error, .. } => Some(format!("not served: {error}")),
        })
    }
}

impl State {
    fn follow(&mut self, port: &Port, tables: &mut Tables, now: Instant) {
        let (slot, interface) = (port.slot as usize, port.name.as_str());
        if port.ifindex == 0 {
            if !matches!(self, Self::Gone { .. }) {
                tracing::error!(
                    interface,
                    "the interface is gone: its packets are lost until it is back"
                );
                tables.detach_port(slot);
                *self = Self::Gone { since: now };
            }
            return;
        }
        match self {
            Self::Attached(ifindex) if *ifindex == port.ifindex && tables.is_attached(slot) => {
                return;
            }
            Self::Refused { ifindex, again, .. } if *ifindex == port.ifindex && now < *again => {
                return;
            }
            Self::Attached(_) => {
                tracing::error!(interface, "the interface has been made anew");
            }
            _ => {}
        }
        match tables.attach_port(slot, port.ifindex) {
            Ok(()) => {
                tracing::info!(
                    interface,
                    ifindex = port.ifindex,
                    "the interface is served again"
                );
                *self = Self::Attached(port.ifindex);
            }
            Err(error) => self.refused(port, error.to_string(), now),
        }
    }

    /// Said once for each error.
    fn refused(&mut self, port: &Port, error: String, now: Instant) {
        if !matches!(self, Self::Refused { error: before, .. } if *before == error) {
            tracing::error!(
                interface = port.name,
                error,
                "the interface is there again and cannot be served; tried again each second"
            );
        }
        *self = Self::Refused {
            ifindex: port.ifindex,
            error,
            again: now + AGAIN,
        };
    }
}
