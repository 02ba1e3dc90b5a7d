//! Sessions outlive the process: what has changed of them is in a file before an SMF hears of it, and the next process goes on
//! with what it finds there.
//!
//! The file lies in `state.dir`, which is memory (tmpfs) as a rule: it outlives the process, not the host. A start fills a
//! file of its own, which takes the place of the former one when all is in it, so that a start that ends too early changes
//! nothing.
//!
//! With `state.disk` a copy of it follows on a disk, and a start on a host that has died meanwhile makes the file anew from that.
//!
//! With `state.bpffs`, packets go on meanwhile. They are counted by tables of the former process until interfaces change over to
//! those of this one, and by both while they do. A file that is *unsettled* belongs to tables that packets may have met already, while
//! what all tables of before have counted is not in it; it becomes settled by its name. Whoever finds unsettled files behind the settled
//! one adds what their tables have counted.

mod counts;
mod disk;
mod elsewhere;
mod files;
mod folder;
mod former;
mod huge_pages;
mod keeper;
mod own;
mod packets;
mod restored;
mod succession;

pub(crate) use keeper::Kept;
pub(crate) use succession::{Beginning, Packets, detach};
