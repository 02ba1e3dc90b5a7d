//! The place of a copy: files by their names, and times.

use std::fmt;
use std::io;

/// Of the layout.
pub(super) const VERSION: u32 = 1;

/// Bits of a file's number below that of its process.
pub(super) const PROCESS_AT: u32 = 32;

/// A file of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Name {
    /// Changes.
    Log(u64),
    /// A snapshot that is being written.
    Unsealed(u64),
    /// A whole one.
    Snapshot(u64),
}

impl Name {
    pub(super) fn number(self) -> u64 {
        match self {
            Self::Log(number) | Self::Unsealed(number) | Self::Snapshot(number) => number,
        }
    }

    /// Of the process that it is of.
    pub(super) fn process(self) -> u64 {
        self.number() >> PROCESS_AT
    }
}

/// `log-N`, `unsealed-N`, `snapshot-N`, in hexadecimal digits.
impl fmt::Display for Name {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Self::Log(_) => "log",
            Self::Unsealed(_) => "unsealed",
            Self::Snapshot(_) => "snapshot",
        };
        write!(to, "{kind}-{:016x}", self.number())
    }
}

/// As it is displayed. An error: it is no name of a copy's file.
impl std::str::FromStr for Name {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (kind, digits) = text.split_once('-').ok_or(())?;
        let number = u64::from_str_radix(digits, 16).map_err(|_| ())?;
        let name = match kind {
            "log" => Self::Log(number),
            "unsealed" => Self::Unsealed(number),
            "snapshot" => Self::Snapshot(number),
            _ => return Err(()),
        };
        // One name for one file.
        (name.to_string() == text).then_some(name).ok_or(())
    }
}

/// When something was committed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// By the caller's clock, nanoseconds.
    pub own_ns: u64,
    /// By the wall clock, nanoseconds since 1970.
    pub wall_ns: u64,
}

/// A folder with the files of a copy. Nobody else has it.
pub trait Storage {
    /// Files that are there.
    fn names(&mut self) -> io::Result<Vec<Name>>;
    /// Make an empty file, in place of one of this name.
    fn create(&mut self, name: Name) -> io::Result<()>;
    /// Write these octets behind those that the file has.
    fn append(&mut self, name: Name, octets: &[u8]) -> io::Result<()>;
    /// Have the file outlive the host, as far as it is written.
    fn sync(&mut self, name: Name) -> io::Result<()>;
    /// Likewise which files there are, by which names.
    fn sync_names(&mut self) -> io::Result<()>;
    /// Give the file another name, in place of one that has it.
    fn rename(&mut self, from: Name, to: Name) -> io::Result<()>;
    /// Remove a file.
    fn remove(&mut self, name: Name) -> io::Result<()>;
    /// Read a file from its beginning.
    fn read(&mut self, name: Name) -> io::Result<Box<dyn io::Read + '_>>;
}
