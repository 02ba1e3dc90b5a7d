//! Requests that a program serves beside the control thread (`n4.fast_path = "data"`).

use std::time::{Duration, Instant};

use session::{Core, Outbox, Time};
use tables::{SetupError, Tables};

use crate::n4::Socket;

/// How often it is looked what was served. The program has room for some 40 000 requests until then.
const LOOK: Duration = Duration::from_millis(10);
/// Pause between attempts to attach it to an interface that went away.
const AGAIN: Duration = Duration::from_secs(1);
/// By then, a message that has come in is in its socket.
const ARRIVES: Duration = Duration::from_millis(5);

/// Times at which the program is looked after.
#[derive(Debug)]
pub(super) struct Beside {
    /// Sessions were lent again.
    lent: Instant,
    /// The program was looked for on its interface.
    looked: Instant,
    /// It is not there, and it was said.
    is_detached: bool,
    fresh: Option<Fresh>,
}

/// A program that was attached a moment ago, and serves nobody yet.
#[derive(Debug)]
struct Fresh {
    since: Instant,
    /// Of each socket: so many datagrams behind which none can be from before, however many more come.
    left: Vec<usize>,
}

impl Beside {
    pub(super) fn new() -> Self {
        Self {
            lent: Instant::now(),
            looked: Instant::now(),
            is_detached: false,
            fresh: None,
        }
    }

    /// At most so long until the next [`Self::tend`].
    pub(super) fn wait(core: &Core<Tables>) -> Option<Duration> {
        core.serves_beside().then_some(LOOK)
    }

    /// Attach the program, unless it is.
    pub(super) fn attach(
        &mut self,
        tables: &mut Tables,
        sockets: &[Socket],
    ) -> Result<(), SetupError> {
        if tables.attach_n4()? {
            self.fresh = Some(Fresh {
                since: Instant::now(),
                left: sockets.iter().map(Socket::room).collect(),
            });
        }
        Ok(())
    }

    /// So many datagrams were received from the socket of N4 of this number.
    pub(super) fn received(&mut self, socket: usize, datagrams: usize) {
        if let Some(fresh) = &mut self.fresh
            && fresh.since.elapsed() >= ARRIVES
            && let Some(left) = fresh.left.get_mut(socket)
        {
            *left = left.saturating_sub(datagrams);
        }
    }

    /// The core hears of what was served. It has all that these sockets of N4 had.
    pub(super) fn tend(
        &mut self,
        now: Time,
        sockets: &[Socket],
        (core, out): (&mut Core<Tables>, &mut Outbox),
    ) {
        if !core.serves_beside() {
            return;
        }
        core.catch_up(now, out);
        let tables = core.tables_mut();
        self.refresh(tables, sockets);
        if self.lent.elapsed() >= LOOK && sockets.iter().all(Socket::is_empty) {
            tables.lend_again();
            self.lent = Instant::now();
        }
        if self.looked.elapsed() >= AGAIN {
            self.look(tables, sockets);
            self.looked = Instant::now();
        }
    }

    /// The program goes on when no message can be under way that it has not met.
    fn refresh(&mut self, tables: &mut Tables, sockets: &[Socket]) {
        let is_over = |fresh: &mut Fresh| {
            let has_arrived = fresh.since.elapsed() >= ARRIVES;
            let mut all = sockets.iter().zip(&fresh.left);
            has_arrived && all.all(|(socket, left)| *left == 0 || socket.is_empty())
        };
        if self.fresh.take_if(is_over).is_some() {
            tables.n4_may_serve();
        }
    }

    fn look(&mut self, tables: &mut Tables, sockets: &[Socket]) {
        let attached = self.attach(tables, sockets);
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
