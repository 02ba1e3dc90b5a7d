//! Paths, each with the type that answers there.

use std::marker::PhantomData;

use serde_json::Value;

use crate::buffers::BuffersBody;
use crate::capacities::CapacityReport;
use crate::cores::CoresReport;
use crate::datapath::{DatapathBody, DropReport, WorkerReport};
use crate::gtpu_peers::GtpuPeerReport;
use crate::history::HistoryReport;
use crate::n4::N4Body;
use crate::policies::PolicyReport;
use crate::reload::{LogBody, ReloadReport};
use crate::sessions::{SessionDetail, SessionPage};
use crate::smfs::{ApplicationReport, PeerReport, SmfReport};
use crate::status::Status;
use crate::top::TopReport;
use crate::trace::Line;
use crate::usage::UsagePage;

/// A resource that answers with a `T` as JSON: when it is asked by GET, unless it says otherwise.
#[derive(Debug)]
pub struct Resource<T> {
    path: &'static str,
    answer: PhantomData<fn() -> T>,
}

impl<T> Resource<T> {
    const fn at(path: &'static str) -> Self {
        Self {
            path,
            answer: PhantomData,
        }
    }

    /// As routers and the description have it: with [`SEID`] in place of a SEID.
    pub const fn path(&self) -> &'static str {
        self.path
    }
}

/// Stands for a SEID in the path of [`SESSION`].
pub const SEID: &str = "{seid}";

/// The UPF as a whole.
pub const STATUS: Resource<Status> = Resource::at("/api/v1/status");
/// Sessions, by [`SessionsQuery`](crate::SessionsQuery).
pub const SESSIONS: Resource<SessionPage> = Resource::at("/api/v1/sessions");
/// One session with its rules.
pub const SESSION: Resource<SessionDetail> = Resource::at("/api/v1/sessions/{seid}");
/// Sessions that measure, by [`PageQuery`](crate::PageQuery).
pub const USAGE: Resource<UsagePage> = Resource::at("/api/v1/usage");
/// SMFs.
pub const PEERS: Resource<Vec<PeerReport>> = Resource::at("/api/v1/peers");
/// Holdings of SMFs.
pub const SMFS: Resource<Vec<SmfReport>> = Resource::at("/api/v1/smfs");
/// POST: the file of the configuration is read again.
pub const RELOAD: Resource<ReloadReport> = Resource::at("/api/v1/reload");
/// POST: what a reload with the text of the request would do.
pub const CONFIG_DIFF: Resource<ReloadReport> = Resource::at("/api/v1/config/diff");
/// PUT: another level of the log.
pub const LOG: Resource<LogBody> = Resource::at("/api/v1/log");
/// GTP-U peers.
pub const GTPU_PEERS: Resource<Vec<GtpuPeerReport>> = Resource::at("/api/v1/gtpu_peers");
/// Applications with their PFDs.
pub const PFDS: Resource<Vec<ApplicationReport>> = Resource::at("/api/v1/pfds");
/// Packets that wait for idle UEs.
pub const BUFFERS: Resource<BuffersBody> = Resource::at("/api/v1/buffers");
/// Capacities that flows share.
pub const CAPACITIES: Resource<Vec<CapacityReport>> = Resource::at("/api/v1/capacities");
/// Messages of N4, and who serves them.
pub const N4: Resource<N4Body> = Resource::at("/api/v1/n4");
/// Forwarding policies.
pub const POLICIES: Resource<Vec<PolicyReport>> = Resource::at("/api/v1/policies");
/// Lost packets.
pub const DROPS: Resource<Vec<DropReport>> = Resource::at("/api/v1/drops");
/// The last minutes, by [`HistoryQuery`](crate::HistoryQuery).
pub const HISTORY: Resource<HistoryReport> = Resource::at("/api/v1/history");
/// Packets of one user, by [`TraceQuery`](crate::TraceQuery): lines of JSON, each a [`Line`], that come one by one.
pub const TRACE: Resource<Line> = Resource::at("/api/v1/trace");
/// Programs, interfaces and tables.
pub const DATAPATH: Resource<DatapathBody> = Resource::at("/api/v1/datapath");
/// The busiest users, by [`TopQuery`](crate::TopQuery).
pub const TOP: Resource<TopReport> = Resource::at("/api/v1/top");
/// Threads that packets run in; on `xdp` CPUs.
pub const WORKERS: Resource<Vec<WorkerReport>> = Resource::at("/api/v1/workers");
/// CPUs and the threads that run there.
pub const CORES: Resource<CoresReport> = Resource::at("/api/v1/cores");
/// The configuration in effect, keys as in the file.
pub const CONFIG: Resource<Value> = Resource::at("/api/v1/config");
/// The description of all this.
pub const OPENAPI: Resource<Value> = Resource::at("/api/v1/openapi.json");
