//! The configuration in effect, as all threads see it.

use std::sync::Arc;

use report::{ConfigState, NrfReport, NupfReport};
use tokio::sync::watch;

use crate::config::{Config, LogLevel};

/// State that may change while the process runs.
#[derive(Clone, Debug)]
pub(crate) struct Running {
    pub(crate) config: Arc<Config>,
    /// Of `api.token_file`. `None`: reading takes none.
    pub(crate) token: Option<Arc<str>>,
    /// Token of requests that change something. `None`: nobody may.
    pub(crate) token_to_change: Option<Arc<str>>,
    pub(crate) state: ConfigState,
    /// They do without this process.
    pub(crate) packets_go_on: bool,
    /// `None`: there is no `[nrf]`.
    pub(crate) nrf: Option<NrfReport>,
    /// `None`: there is no `[nupf]`.
    pub(crate) nupf: Option<NupfReport>,
    /// `None`: there is no `[telemetry]`.
    pub(crate) spans: Option<Spans>,
}

/// Fate of spans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spans {
    /// The collector has taken them.
    pub(crate) exported: u64,
    /// They found no room in the queue.
    pub(crate) dropped: u64,
    /// The collector has not taken them.
    pub(crate) failed: u64,
}

/// Handle of it.
#[derive(Clone, Debug)]
pub(crate) struct Shared(Arc<watch::Sender<Running>>);

impl Shared {
    pub(crate) fn new(running: Running) -> Self {
        Self(Arc::new(watch::Sender::new(running)))
    }

    /// As it is now.
    pub(crate) fn now(&self) -> Running {
        self.0.borrow().clone()
    }

    pub(crate) fn config(&self) -> Arc<Config> {
        Arc::clone(&self.0.borrow().config)
    }

    pub(crate) fn packets_go_on(&self) -> bool {
        self.0.borrow().packets_go_on
    }

    pub(crate) fn spans(&self) -> Option<Spans> {
        self.0.borrow().spans
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Running)) {
        self.0.send_modify(change);
    }

    /// Change it, unless it says that nothing is new.
    pub(crate) fn change_if(&self, change: impl FnOnce(&mut Running) -> bool) {
        self.0.send_if_modified(change);
    }

    /// For tasks that go by the configuration in effect.
    pub(crate) fn follow(&self) -> Follower {
        Follower(self.0.subscribe())
    }

    /// The log has another level, until the file is read again.
    pub(crate) fn set_log_level(&self, level: LogLevel) {
        self.change(|running| Arc::make_mut(&mut running.config).log.level = level);
    }
}

/// Waits for another configuration, and for nothing else that changes: such tasks change the state themselves.
#[derive(Debug)]
pub(crate) struct Follower(watch::Receiver<Running>);

impl Follower {
    pub(crate) fn config(&self) -> Arc<Config> {
        Arc::clone(&self.0.borrow().config)
    }

    /// Wait until another configuration than this one is in effect; false: the process ends.
    pub(crate) async fn leaves(&mut self, config: &Arc<Config>) -> bool {
        let is_another = |running: &Running| !Arc::ptr_eq(&running.config, config);
        self.0.wait_for(is_another).await.is_ok()
    }
}
