//! Requests that a program serves beside the control thread (`n4.fast_path = "data"`).

use std::time::{Duration, Instant};

use session::{Core, Outbox, Time};
use tables::Tables;

/// How often it is looked what was served. The program has room for some 40 000 requests until then.
const LOOK: Duration = Duration::from_millis(10);
/// Pause between attempts to attach it to an interface that went away.
const AGAIN: Duration = Duration::from_secs(1);

/// Times at which the program is looked after.
#[derive(Debug)]
pub(super) struct Beside {
    /// Sessions were lent again.
    lent: Instant,
    /// Sockets of N4 that were found empty since, by number: one bit each.
    empty: u8,
    /// The program was looked for on its interface.
    looked: Instant,
    /// It is not there, and it was said.
    is_detached: bool,
}

impl Beside {
    pub(super) fn new() -> Self {
        Self {
            lent: Instant::now(),
            empty: 0,
            looked: Instant::now(),
            is_detached: false,
        }
    }

    /// At most so long until the next [`Self::tend`].
    pub(super) fn wait(core: &Core<Tables>) -> Option<Duration> {
        core.serves_beside().then_some(LOOK)
    }

    /// Nothing waited at the socket of N4 of this number then, or later.
    pub(super) fn found_empty(&mut self, socket: usize, at: Instant) {
        // A message that has passed the program before is in the socket by then.
        if at.saturating_duration_since(self.lent) >= LOOK / 2 {
            self.empty |= 1 << socket.min(7);
        }
    }

    /// So many sockets of N4 have been looked at: the core hears of what was served.
    pub(super) fn tend(
        &mut self,
        now: Time,
        sockets: usize,
        (core, out): (&mut Core<Tables>, &mut Outbox),
    ) {
        if !core.serves_beside() {
            return;
        }
        core.catch_up(now, out);
        let all = (1u8 << sockets.min(7)) - 1;
        if self.empty & all == all && self.lent.elapsed() >= LOOK {
            core.tables_mut().lend_again();
            self.empty = 0;
            self.lent = Instant::now();
        }
        if self.looked.elapsed() >= AGAIN {
            self.look(core.tables_mut());
            self.looked = Instant::now();
        }
    }

    fn look(&mut self, tables: &mut Tables) {
        let attached = tables.attach_n4();
        let was_detached = std::mem::replace(&mut self.is_detached, attached.is_err());
        match attached {
            Err(error) if !was_detached => {
                tracing::error!(%error, "N4: no program serves requests; all are the control plane's");
            }
            Ok(()) if was_detached => tracing::info!("N4: a program serves requests again"),
            _ => {}
        }
    }
}
