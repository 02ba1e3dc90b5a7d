//! Sessions as packets meet them: the seam between the rules of an SMF and the tables.
//!
//! The core compiles the PDRs, FARs and QERs of one session into a [`Compiled`] and hands it to
//! [`Tables::publish`]; it never learns where an entry lies. The tables never learn what a FAR is.
#![forbid(unsafe_code)]

mod direction;
mod entry;
mod filter;
mod ids;
mod lent;
mod meter;
mod room;
mod session;
mod tables;

pub use direction::Direction;
pub use entry::{
    Action, DUPLICATES_MAX, Duplicate, DuplicateHeader, Entry, Marking, Marks, Relay, UeAddresses,
    UeEnd,
};
pub use filter::{Filter, Flow};
pub use ids::{CapacityId, NiId, PdrId, PolicyId, PredefinedId, QerId, Qfi, QfiSet};
pub use lent::{
    LENT_FARS, LENT_PDRS, Lent, LentAction, LentChange, LentFar, LentProfile, LentTarget, SeidKey,
    Served, ServedBeside, Slow, Source, TEMPLATE_OCTETS, TEMPLATES, TEMPLATES_OF_LENGTH, TakenFor,
    Template, TemplateUpdate,
};
pub use meter::{
    Above, CAPACITIES_ON_WAY, Limit, PacketRate, Rate, Share, SharedMeter, WEIGHT_MAX,
};
pub use room::{Holding, NoRoom, Resource};
pub use session::{Compiled, FRAMED_MAX, Key, Select};
pub use tables::{BufferLimits, Buffered, CountedAt, Counters, EndedTunnel, Tables};
