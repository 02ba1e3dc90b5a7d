//! Neighbours that the kernel is asked to keep resolved (`NTF_EXT_MANAGED`).
//!
//! A request for a neighbour, or to release it, turns an operator's static entry (`NUD_PERMANENT`) into an ordinary one,
//! which is then probed, and fails where nobody answers. So the entry is looked at first, and a static one is let be. What
//! an operator sets between look and request is heard of by the kernel's notification, and put back.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::wire::{self, Entry, Message};
use super::{Kernel, NeighbourKey};

/// An entry that comes and goes between look and request is looked at so often; its notification brings the next request.
const LOOKS: usize = 4;

/// A kernel without managed neighbours (before 5.16), or without room for one, is asked this often.
const REFRESH: Duration = Duration::from_secs(5);

/// So is any kernel, for neighbours that do not answer: no packet is handed to it that would make it ask. By itself it asks
/// for a managed one every 5 s.
const RETRY: Duration = Duration::from_secs(1);

/// Neighbours to keep, and what became of them.
#[derive(Debug, Default)]
pub(super) struct Keeper {
    /// With the static entry that others have given a neighbour since it was asked for.
    kept: BTreeMap<NeighbourKey, Option<Entry>>,
    /// Of `kept`, those that the kernel had no room for.
    refused: BTreeSet<NeighbourKey>,
    /// Of `kept`, those that others have made ordinary ones, which the kernel no longer keeps.
    unmanaged: BTreeSet<NeighbourKey>,
    /// Of `kept`, those that the kernel has asked for in vain.
    failed: BTreeSet<NeighbourKey>,
    /// Whether this kernel has managed neighbours; `None` before the first was asked for.
    managed: Option<bool>,
}

impl Keeper {
    /// Take in what became of a neighbour, by somebody else's request or by itself. An entry that is static does not change
    /// by itself: what the kernel says of one afterwards follows from our request.
    pub(super) fn hear(&mut self, told: &Message<'_>) {
        let Some((key, entry)) = told.neighbour() else {
            return;
        };
        let Some(set) = self.kept.get_mut(&key) else {
            return;
        };
        let is_static = entry.is_some_and(|entry| entry.is_static());
        if is_static || entry.is_none() || told.port != 0 {
            *set = entry.filter(|_| is_static);
        }
        if entry.is_some_and(|entry| entry.is_failed()) {
            self.failed.insert(key);
        } else {
            self.failed.remove(&key);
        }
        let is_ordinary = entry.is_some_and(|entry| !is_static && !entry.is_managed);
        if self.managed == Some(true) && is_ordinary {
            self.unmanaged.insert(key);
        } else {
            self.unmanaged.remove(&key);
        }
    }

    /// Neighbour to ask for again, because somebody else has changed it.
    pub(super) fn next_unmanaged(&mut self) -> Option<NeighbourKey> {
        self.unmanaged.pop_first()
    }

    /// All neighbours that are kept.
    pub(super) fn all(&self) -> Vec<NeighbourKey> {
        self.kept.keys().copied().collect()
    }

    /// Neighbours that must be asked for again and again.
    pub(super) fn unsettled(&self) -> Vec<NeighbourKey> {
        match self.managed {
            Some(false) => self.all(),
            _ => self.refused.union(&self.failed).copied().collect(),
        }
    }

    /// Time after which they are; `None` if there are none.
    pub(super) fn refresh(&self) -> Option<Duration> {
        if !self.failed.is_empty() {
            return Some(RETRY);
        }
        let has_unsettled = self.managed == Some(false) && !self.kept.is_empty();
        (has_unsettled || !self.refused.is_empty()).then_some(REFRESH)
    }

    /// Have a neighbour resolved and kept so, unless it is static. Whether its entry was changed.
    pub(super) fn keep(&mut self, kernel: &mut Kernel, key: NeighbourKey) -> bool {
        self.kept.insert(key, None);
        let asked = (0..LOOKS).find_map(|_| self.ask(kernel, key));
        if asked != Some(true) || self.managed.is_some() {
            return asked == Some(true);
        }
        if let Ok(Some(entry)) = kernel.neighbour(key) {
            // Static: set since the request; another neighbour will tell.
            self.managed = (!entry.is_static()).then_some(entry.is_managed);
        }
        if self.managed == Some(false) {
            tracing::info!("this kernel has no managed neighbours; refreshing them instead");
        }
        true
    }

    /// Look at a neighbour and ask for it. Whether that changed its entry; `None` if it came or went meanwhile.
    fn ask(&mut self, kernel: &mut Kernel, key: NeighbourKey) -> Option<bool> {
        let entry = match kernel.neighbour(key) {
            Ok(entry) => entry,
            Err(error) => return self.fail(key, &error),
        };
        if let Some(entry) = entry
            && (entry.is_static() || entry.is_managed && entry.is_valid())
        {
            self.refused.remove(&key);
            return Some(false);
        }
        match kernel.ask(|sequence| wire::keep_neighbour(key, entry.is_some(), sequence)) {
            Ok(_) => {
                self.refused.remove(&key);
                Some(true)
            }
            Err(error) => self.fail(key, &error),
        }
    }

    fn fail(&mut self, key: NeighbourKey, error: &std::io::Error) -> Option<bool> {
        match error.raw_os_error() {
            Some(libc::EEXIST | libc::ENOENT) => return None,
            Some(libc::ENOBUFS) => {
                if self.refused.is_empty() {
                    tracing::warn!(
                        "the neighbour table is full; raise net.ipv4.neigh.default.gc_thresh3 (or ipv6)"
                    );
                }
                self.refused.insert(key);
            }
            // The link may have gone meanwhile; its return brings the request again.
            _ => {
                tracing::debug!(ifindex = key.0, addr = %key.1, %error, "neighbour cannot be resolved");
            }
        }
        Some(false)
    }

    /// Have a neighbour kept no longer, if it is. Whether its entry was changed.
    pub(super) fn release(&mut self, kernel: &mut Kernel, key: NeighbourKey) -> bool {
        let Some(set) = self.kept.get_mut(&key) else {
            return false;
        };
        *set = None;
        let is_kept = |entry: Entry| entry.is_managed && !entry.is_static();
        // Fails if the neighbour or its link is gone, which is as good.
        kernel.neighbour(key).ok().flatten().is_some_and(is_kept)
            && kernel
                .ask(|sequence| wire::release_neighbour(key, sequence))
                .is_ok()
    }

    /// Of a neighbour that was released.
    pub(super) fn forget(&mut self, key: NeighbourKey) {
        self.kept.remove(&key);
        self.refused.remove(&key);
        self.unmanaged.remove(&key);
        self.failed.remove(&key);
    }

    /// Put back a static entry that others set before the last request for the neighbour, and which that request undid.
    pub(super) fn make_good(&self, kernel: &mut Kernel, key: NeighbourKey) {
        let Some(Some(set)) = self.kept.get(&key) else {
            return;
        };
        let undone = |entry: Entry| !entry.is_static() || entry.is_managed && !set.is_managed;
        if !kernel.neighbour(key).ok().flatten().is_some_and(undone) {
            return;
        }
        let put = kernel.ask(|sequence| wire::put_back_neighbour(key, set, sequence));
        match put {
            Ok(_) => tracing::info!(ifindex = key.0, addr = %key.1, "static neighbour put back"),
            Err(error) => {
                tracing::warn!(ifindex = key.0, addr = %key.1, %error, "static neighbour lost");
            }
        }
    }
}
