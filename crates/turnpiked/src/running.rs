//! The configuration in effect, as all threads see it.

use std::sync::{Arc, PoisonError, RwLock};

use report::ConfigState;

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
}

/// Handle of it.
#[derive(Clone, Debug)]
pub(crate) struct Shared(Arc<RwLock<Running>>);

impl Shared {
    pub(crate) fn new(running: Running) -> Self {
        Self(Arc::new(RwLock::new(running)))
    }

    /// As it is now.
    pub(crate) fn now(&self) -> Running {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(crate) fn config(&self) -> Arc<Config> {
        let running = self.0.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&running.config)
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Running)) {
        change(&mut self.0.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// The log has another level, until the file is read again.
    pub(crate) fn set_log_level(&self, level: LogLevel) {
        self.change(|running| Arc::make_mut(&mut running.config).log.level = level);
    }
}
