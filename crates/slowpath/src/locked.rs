//! State of one thread, behind a lock because a ring's reader may move between threads.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Never waits; a panic elsewhere has ended the thread.
pub(crate) fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
