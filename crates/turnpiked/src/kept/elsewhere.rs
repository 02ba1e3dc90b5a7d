//! Folders where programs of a node were pinned, and are not any more.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tables::Pins;

/// Folders where programs of a node were pinned, and are not any more.
pub(super) struct Elsewhere {
    node_id: String,
    pub(super) places: Vec<PathBuf>,
}

impl Elsewhere {
    /// Of all places that files name, those that are not this one.
    pub(super) fn of(
        node_id: &str,
        places: impl Iterator<Item = PathBuf>,
        here: Option<&Path>,
    ) -> Self {
        let mut others: Vec<PathBuf> = Vec::new();
        for place in places {
            let known = others.iter().map(PathBuf::as_path).chain(here);
            if !known.into_iter().any(|known| is_same(known, &place)) {
                others.push(place);
            }
        }
        Self {
            node_id: node_id.to_owned(),
            places: others,
        }
    }

    /// Packets meet no program there.
    pub(super) fn detach(&self) {
        for place in &self.places {
            tracing::warn!("{place:?}: packets end there, as it is no longer state.bpffs");
            Pins::detach_of(place, &self.node_id);
        }
    }

    pub(super) fn remove(&self) {
        for place in &self.places {
            if let Err(error) = Pins::remove_of(place, &self.node_id) {
                tracing::error!(%error, "{place:?}: pins cannot be removed");
            }
        }
    }
}

/// Whether two paths lead to one folder.
fn is_same(a: &Path, b: &Path) -> bool {
    let inode = |path| fs::metadata(path).map(|about| (about.dev(), about.ino()));
    a == b || matches!((inode(a), inode(b)), (Ok(a), Ok(b)) if a == b)
}
