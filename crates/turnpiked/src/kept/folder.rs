//! Files of one UPF's copy, in a folder on a disk.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use arena::copy::{Name, Storage};

use super::own::{LOCK, create_file, open, open_ours};

/// End of the name of the file that says which host has gone on with the copy, by its boot ID.
const BOOT: &str = "boot";

/// Its file system is gone from there, or another one is mounted upon it.
pub(super) const ELSEWHERE: &str = "the folder is another one than before";

/// `FRONT.log-N` and so on, which nobody else has while this lives.
pub(super) struct Folder {
    dir: PathBuf,
    front: String,
    /// File system and number of the folder.
    is: (u64, u64),
    /// Files that are written.
    files: BTreeMap<Name, File>,
    _lock: File,
}

impl Folder {
    /// One that is there.
    pub(super) fn open(dir: &Path, name: &str) -> Result<Self> {
        let lock_path = dir.join(format!("{name}{LOCK}"));
        let lock = open(&lock_path, true).with_context(|| format!("{lock_path:?}"))?;
        if lock.try_lock().is_err() {
            bail!("{lock_path:?} is another turnpiked's, which runs");
        }
        Ok(Self {
            dir: dir.to_owned(),
            is: identity(dir)?,
            front: format!("{name}."),
            files: BTreeMap::new(),
            _lock: lock,
        })
    }

    /// Likewise; it is made if there is none.
    pub(super) fn create(dir: &Path, name: &str) -> Result<Self> {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700).create(dir)?;
        Self::open(dir, name)
    }

    /// File system and number.
    pub(super) fn identity(&self) -> (u64, u64) {
        self.is
    }

    /// An error: [`ELSEWHERE`].
    fn is_there(&self) -> io::Result<()> {
        match identity(&self.dir)? == self.is {
            true => Ok(()),
            false => Err(io::Error::other(ELSEWHERE)),
        }
    }

    /// The host that was started under this ID goes on with the copy.
    pub(super) fn serves(&self, boot: &str) -> io::Result<()> {
        let mut file = create_file(&self.dir.join(format!("{}{BOOT}", self.front)))?;
        file.write_all(boot.as_bytes())?;
        file.sync_data()
    }

    /// Whether it was said to.
    pub(super) fn has_served(&self, boot: &str) -> bool {
        let said = fs::read(self.dir.join(format!("{}{BOOT}", self.front)));
        said.is_ok_and(|said| said == boot.as_bytes())
    }

    /// Nobody goes on with a copy.
    pub(super) fn forget(&self) {
        let _ = fs::remove_file(self.dir.join(format!("{}{BOOT}", self.front)));
    }

    fn path(&self, name: Name) -> PathBuf {
        self.dir.join(format!("{}{name}", self.front))
    }

    /// One that was made here.
    fn file(&mut self, name: Name) -> io::Result<&mut File> {
        let file = self.files.get_mut(&name);
        file.ok_or(io::ErrorKind::NotFound.into())
    }
}

/// File system and number of a folder.
pub(super) fn identity(dir: &Path) -> io::Result<(u64, u64)> {
    let about = fs::metadata(dir)?;
    Ok((about.dev(), about.ino()))
}

impl Storage for Folder {
    fn names(&mut self) -> io::Result<Vec<Name>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let name = entry?.file_name();
            let name = name
                .to_str()
                .and_then(|name| name.strip_prefix(&self.front));
            names.extend(name.and_then(|name| name.parse::<Name>().ok()));
        }
        Ok(names)
    }

    fn create(&mut self, name: Name) -> io::Result<()> {
        self.is_there()?;
        let file = create_file(&self.path(name))?;
        self.files.insert(name, file);
        Ok(())
    }

    fn append(&mut self, name: Name, octets: &[u8]) -> io::Result<()> {
        self.file(name)?.write_all(octets)
    }

    fn sync(&mut self, name: Name) -> io::Result<()> {
        self.is_there()?;
        self.file(name)?.sync_data()
    }

    fn sync_names(&mut self) -> io::Result<()> {
        File::open(&self.dir)?.sync_all()
    }

    fn rename(&mut self, from: Name, to: Name) -> io::Result<()> {
        fs::rename(self.path(from), self.path(to))?;
        self.files.remove(&from);
        Ok(())
    }

    fn remove(&mut self, name: Name) -> io::Result<()> {
        self.files.remove(&name);
        fs::remove_file(self.path(name))
    }

    fn read(&mut self, name: Name) -> io::Result<Box<dyn Read + '_>> {
        let path = self.path(name);
        let file = open_ours(&path).map_err(io::Error::other)?;
        Ok(Box::new(file.ok_or(io::ErrorKind::NotFound)?))
    }
}
