//! REST of turnpiked as types: resources with their paths, queries, answers, and with the feature `client` the asking end.
//! turnpiked writes these types, `turnpike` reads them, and the description at [`OPENAPI`] grows from them.
//!
//! The two ends may be of different releases, so a reader takes an answer with fields missing or added: a field that is missing
//! has its default, one that is unknown is passed over. For a field that comes after the first release the default has to be
//! distinguishable from a value, because 0 packets is not the same as none told of: it is an `Option`. Fields that are words
//! (`state`, `kind`) are strings, because a later release may have more of them.
//!
//! Addresses and identifiers are text as people write it: SEIDs and TEIDs hexadecimal, without `0x`.

mod buffers;
mod capacities;
#[cfg(feature = "client")]
pub mod client;
mod cores;
mod datapath;
mod error;
mod fill;
mod gtpu_peers;
mod history;
mod n4;
mod policies;
mod query;
mod reload;
mod resource;
mod schema;
mod sessions;
mod smfs;
mod status;
mod top;
pub mod trace;
mod usage;

pub use buffers::{BufferReport, BufferTotals, BuffersBody};
pub use capacities::CapacityReport;
pub use cores::{CoresReport, CpuReport};
pub use datapath::{
    DatapathBody, DatapathReport, DirectionReport, DropReport, PortReport, ProgramReport,
    ReplacementReport, ShaperReport, WorkerReport,
};
pub use error::ErrorBody;
pub use fill::{Fill, TableFill};
pub use gtpu_peers::GtpuPeerReport;
pub use history::{HistoryDrop, HistoryEvent, HistoryPort, HistoryReport, HistorySample};
pub use n4::{EventReport, FastPathReport, MessageReport, N4Body, OutcomeReport, TemplateReport};
pub use policies::{PolicyReport, PolicyUse};
pub use query::{
    By, HistoryQuery, INTERVAL_MS, PAGE_MAX, PageQuery, SECONDS_MAX, SessionsQuery, TopQuery,
    TraceQuery, USERS_MAX,
};
pub use reload::{Access, ConfigChange, ConfigState, LogBody, ReloadReport};
pub use resource::{
    BUFFERS, CAPACITIES, CONFIG, CONFIG_DIFF, CORES, DATAPATH, DROPS, GTPU_PEERS, HISTORY, LOG, N4,
    OPENAPI, PEERS, PFDS, POLICIES, RELOAD, Resource, SEID, SESSION, SESSIONS, SMFS, STATUS, TOP,
    TRACE, USAGE, WORKERS,
};
pub use schema::AsWritten;
pub use sessions::{
    FarReport, PdrReport, PredefinedReport, QerReport, SessionDetail, SessionPage, SessionSummary,
    TrafficReport,
};
pub use smfs::{ApplicationReport, PartReport, PeerReport, PfdReport, SmfReport};
pub use status::{
    DiskReport, DiskState, HugePages, LogTotals, NrfReport, NupfReport, StateReport, Status,
};
pub use top::{TopRate, TopReport, TopUser};
pub use usage::{
    SessionUsage, TriggerCount, UrrReport, UsagePage, UsageTotals, VolumeReport, VolumeUsed,
};
