//! A copy of an arena's records on a disk: memory ends with the host, and the copy goes on with the next one.
//!
//! Changes are appended to a log, many at a time, and *committed*: what was committed outlives the host. A log is replaced by a
//! *snapshot*, all records as they are, when it has become longer than that.
//!
//! # Files
//!
//! | File | Has |
//! |---|---|
//! | log N | changes in their order, of a span of time; behind its last one follow those of log N + 1, if that is of the same process |
//! | unsealed N | a snapshot that is being written |
//! | snapshot N | all records, each as it was at some time after log N began and before the snapshot was sealed |
//!
//! The upper half of a number is that of the process, or of its attempt. The copy is the last snapshot, and all logs of that process from its number on: a process that goes on
//! begins with files of its own, which are the copy once all of its records are in them, so that no copy has a part of one process' records and a part of another's. A snapshot is read from an arena that changes
//! meanwhile; a change that it has seen, or not, is in a log behind it, and a record is replaced whole, so both ways come to the same.
//! It is sealed when all changes that it may have seen are committed, and what is older is removed then.
//!
//! # Entries
//!
//! Numbers are little-endian.
//!
//! | Octets | Are |
//! |---|---|
//! | 4 | CRC32C of the file's kind and number, the entry's position in it (8 octets each), and all that follows |
//! | 1 | kind of the entry |
//! | 4 | place, or 0 |
//! | 4 | octets that follow |
//!
//! | Kind | Entry | Octets |
//! |---|---|---|
//! | 1 | begin, the first one of each file | version of the layout (4 octets), the caller's header |
//! | 2 | put | record |
//! | 3 | remove | - |
//! | 4 | commit | the caller's clock and the wall clock, nanoseconds (8 octets each) |
//! | 5 | close, the last one of a log before its successor | - |
//! | 6 | seal, the last one of a snapshot | records in it (4 octets) |
//!
//! # Trust
//!
//! A host that dies leaves any part of what was not committed. The last log ends with its last entry that is whole; one of
//! before has to have its end, and a snapshot, too, or the copy is damaged: what is known to be older than what SMFs have heard is not
//! gone on with. Nothing that lies there makes the reader panic, loop, or take more memory than a record.

mod changes;
mod copier;
mod entry;
mod restore;
mod storage;

pub use changes::Changes;
pub use copier::{Copier, Limits, remove_all};
pub use restore::{Copied, Unrestored};
pub use storage::{Name, Stamp, Storage};
