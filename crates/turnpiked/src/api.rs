//! REST under `/api/v1` and the metrics.
// The macros of the description qualify names that they need not.
#![allow(unused_qualifications)]

mod changing;
pub(crate) mod clients;
mod history;
mod hosts;
mod metrics;
mod page;
mod refusals;
mod serve;
mod top;
mod trace;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use report::{
    ApplicationReport, AsWritten, BufferReport, BuffersBody, CapacityReport, CoresReport,
    DatapathBody, DropReport, ErrorBody, GtpuPeerReport, N4Body, PAGE_MAX, PageQuery, PeerReport,
    PolicyReport, SessionDetail, SessionPage, SessionsQuery, SmfReport, Status, UsagePage,
    WorkerReport,
};
use slowpath::BufferedSession;
use subtle::ConstantTimeEq;
use tokio::sync::Mutex;
use topology::Topology;
use utoipa::OpenApi;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};

use crate::command::{Asker, NoAnswer, Sought};
use crate::config::{Config, DatapathKind};
use crate::logging;
use crate::plan;
use crate::reload::Reloader;
use crate::running::{Running, Shared};
use crate::snapshot::Snapshot;
use crate::system;
use crate::text::{parse_seid, seid_text};

pub(crate) use serve::{Limits, serve};

/// The control thread answers within microseconds; it is stuck when it takes this long.
const PATIENCE: Duration = Duration::from_secs(5);

/// A search through sessions answers with what it has after so long.
const SEARCH: Duration = Duration::from_secs(2);

/// State that all handlers share.
#[derive(Clone)]
pub(crate) struct Api {
    control: Asker,
    running: Shared,
    reloader: Arc<Reloader>,
    topology: Arc<Topology>,
    started: SystemTime,
    /// When the program began, which a reload may have it do again in the same process: its history does, too.
    began: SystemTime,
    /// Held while one of them looks through all sessions.
    search: Arc<Mutex<()>>,
    top: Arc<Mutex<top::Top>>,
    history: history::Shared,
}

impl Api {
    /// `topology`: as it was before threads had their CPUs. `started`: when the process was.
    pub(crate) fn new(
        control: Asker,
        running: Shared,
        reloader: Arc<Reloader>,
        (topology, started): (Arc<Topology>, SystemTime),
    ) -> Self {
        Self {
            control,
            running,
            reloader,
            topology,
            started,
            began: SystemTime::now(),
            search: Arc::default(),
            top: Arc::default(),
            history: history::Shared::default(),
        }
    }

    pub(crate) fn router(self) -> Router {
        Router::new()
            .route(report::STATUS.path(), get(status))
            .route(report::SESSIONS.path(), get(sessions))
            .route(report::SESSION.path(), get(session))
            .route(report::USAGE.path(), get(usage))
            .route(report::PEERS.path(), get(peers))
            .route(report::SMFS.path(), get(smfs))
            .route(report::GTPU_PEERS.path(), get(gtpu_peers))
            .route(report::PFDS.path(), get(pfds))
            .route(report::BUFFERS.path(), get(buffers))
            .route(report::CAPACITIES.path(), get(capacities))
            .route(report::N4.path(), get(n4))
            .route(report::POLICIES.path(), get(policies))
            .route(report::DROPS.path(), get(drops))
            .route(report::HISTORY.path(), get(history::history))
            .route(report::TRACE.path(), get(trace::trace))
            .route(report::DATAPATH.path(), get(datapath))
            .route(report::TOP.path(), get(top::top))
            .route(report::WORKERS.path(), get(workers))
            .route(report::CORES.path(), get(cores))
            .route(report::CONFIG.path(), get(config))
            .route(report::OPENAPI.path(), get(openapi))
            .route("/metrics", get(metrics))
            .fallback(async || Failure::new(StatusCode::NOT_FOUND, "no such resource"))
            .merge(changing::routes(&self))
            .layer(middleware::from_fn_with_state(self.clone(), guard))
            // Probes of orchestrators have no token, nor have browsers that open the page.
            .merge(probes())
            .merge(page::files())
            .layer(middleware::from_fn_with_state(self.clone(), by_our_name))
            .with_state(self)
    }
}

/// `/healthz`: the process answers. `/readyz`: N4 is served, and packets of each data interface meet the data path.
fn probes() -> Router<Api> {
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .layer(middleware::from_fn(in_time))
}

/// One line for each reason why not.
async fn ready(State(api): State<Api>) -> Result<&'static str, (StatusCode, String)> {
    let not_ready = |why: String| (StatusCode::SERVICE_UNAVAILABLE, why);
    let snapshot = api.control.snapshot().await;
    let snapshot = snapshot.map_err(|error| not_ready(format!("{error}\n")))?;
    let stopping = snapshot
        .stopping
        .then(|| "associations are being released\n".to_owned());
    let ports = snapshot.ports.iter().filter_map(|port| {
        let trouble = port.trouble.as_ref()?;
        Some(format!("interface {}: {trouble}\n", port.interface))
    });
    let why: String = stopping.into_iter().chain(ports).collect();
    if why.is_empty() {
        Ok("ready\n")
    } else {
        Err(not_ready(why))
    }
}

/// A request without an answer of its own.
#[derive(Debug)]
struct Failure {
    status: StatusCode,
    error: String,
}

impl Failure {
    fn new(status: StatusCode, error: impl Into<String>) -> Self {
        Self {
            status,
            error: error.into(),
        }
    }
}

impl From<NoAnswer> for Failure {
    fn from(error: NoAnswer) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
    }
}

impl From<QueryRejection> for Failure {
    fn from(error: QueryRejection) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error.body_text())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        (self.status, Json(ErrorBody { error: self.error })).into_response()
    }
}

/// Before everything else: under whose name it is asked, and by a page of which origin.
async fn by_our_name(State(api): State<Api>, request: Request, next: Next) -> Response {
    let mut response = match admit(&api, &request) {
        Ok(()) => next.run(request).await,
        Err((refusal, failure)) => {
            refusal.count();
            failure.into_response()
        }
    };
    page::seal(response.headers_mut());
    response
}

fn admit(api: &Api, request: &Request) -> Result<(), (refusals::Refusal, Failure)> {
    hosts::check(request, &api.running.config().api.hosts)
        .map_err(|failure| (refusals::Refusal::Host, failure))?;
    page::check_origin(request).map_err(|failure| (refusals::Refusal::Origin, failure))
}

/// Token and time limit, before and around every handler.
async fn guard(State(api): State<Api>, request: Request, next: Next) -> Response {
    if !authorized(api.running.now().token.as_deref(), request.headers()) {
        let failure = Failure::new(
            StatusCode::UNAUTHORIZED,
            "a token is required: Authorization: Bearer TOKEN, from api.token_file",
        );
        return ([(header::WWW_AUTHENTICATE, "Bearer")], failure).into_response();
    }
    in_time(request, next).await
}

/// Time limit around every handler.
async fn in_time(request: Request, next: Next) -> Response {
    match tokio::time::timeout(PATIENCE, next.run(request)).await {
        Ok(response) => response,
        Err(_) => Failure::new(
            StatusCode::GATEWAY_TIMEOUT,
            "the control thread does not answer",
        )
        .into_response(),
    }
}

/// Takes as long for a wrong token as for the right one.
fn authorized(token: Option<&str>, headers: &HeaderMap) -> bool {
    let Some(token) = token else { return true };
    let given = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.as_bytes().split_at_checked(7))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"bearer "))
        .map_or(b"".as_slice(), |(_, given)| given);
    token.as_bytes().ct_eq(given).into()
}

/// The whole in one answer.
#[utoipa::path(get, path = report::STATUS.path(), responses((status = 200, body = Status)))]
async fn status(State(api): State<Api>) -> Result<Json<Status>, Failure> {
    let snapshot = api.control.snapshot().await?;
    let Running {
        config,
        state,
        nrf,
        nupf,
        ..
    } = api.running.now();
    let datapaths = DatapathKind::built().into_iter();
    Ok(Json(Status {
        version: cli::RELEASE.to_owned(),
        commit: cli::COMMIT.map(str::to_owned),
        datapaths: datapaths.map(str::to_owned).collect(),
        node_id: config.node.id.to_string(),
        uptime_s: api.started.elapsed().unwrap_or_default().as_secs(),
        recovery_time_stamp: snapshot.recovery_time_stamp,
        gtpu_paths: snapshot.gtpu_paths,
        gtpu_paths_failed: snapshot.gtpu_paths_failed,
        load_percent: snapshot.load_percent,
        overload_reduction_percent: snapshot.overload_reduction_percent,
        sessions: snapshot.sessions,
        peers: snapshot.peers,
        tables: snapshot.tables,
        ports: snapshot.ports,
        usage: snapshot.usage,
        log: logging::totals(),
        drops: snapshot.drops.iter().map(|drop| drop.packets).sum(),
        memory_bytes: metrics::resident_bytes(),
        huge_pages: system::huge_pages(),
        config: Some(state),
        state: snapshot.state,
        nrf,
        nupf,
    }))
}

/// Sessions in a stable order, a page at a time.
#[utoipa::path(get, path = report::SESSIONS.path(), params(SessionsQuery), responses(
    (status = 200, body = SessionPage), (status = 400, body = ErrorBody)))]
async fn sessions(
    State(api): State<Api>,
    query: Result<Query<SessionsQuery>, QueryRejection>,
) -> Result<Json<SessionPage>, Failure> {
    let Query(query) = query?;
    let sought = sought(&query)?;
    let SessionsQuery { after, limit, .. } = query;
    let (after, limit) = page_of(&PageQuery { after, limit })?;
    let Some(sought) = sought else {
        return Ok(Json(api.control.sessions(after, limit).await?));
    };
    Ok(Json(find(&api, &sought, after, limit).await?))
}

/// `None`: all sessions.
fn sought(query: &SessionsQuery) -> Result<Option<Sought>, Failure> {
    let bad = |error: String| Failure::new(StatusCode::BAD_REQUEST, error);
    match (&query.ue, &query.teid, &query.network_instance) {
        (None, None, None) => Ok(None),
        (Some(ue), None, None) => match ue.parse() {
            Ok(ue) => Ok(Some(Sought::Ue(ue))),
            Err(_) => Err(bad(format!("ue = {ue:?} is not an address"))),
        },
        (None, Some(teid), None) => Ok(Some(Sought::Teid(teid_of(teid)?))),
        (None, None, Some(name)) => Ok(Some(Sought::NetworkInstance(name.clone()))),
        _ => Err(bad(
            "one of ue, teid and network_instance at most says which sessions".into(),
        )),
    }
}

fn teid_of(text: &str) -> Result<u32, Failure> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let teid = u32::from_str_radix(digits, 16).ok();
    let teid = teid.filter(|&teid| teid != 0 && !digits.starts_with('+'));
    teid.ok_or_else(|| {
        let error = format!("teid = {text:?}: up to 8 hexadecimal digits, not zero");
        Failure::new(StatusCode::BAD_REQUEST, error)
    })
}

/// Looks through all sessions, some at a time, for one request at a time. A page ends when it is full or takes too long.
async fn find(
    api: &Api,
    sought: &Sought,
    mut after: Option<u64>,
    limit: usize,
) -> Result<SessionPage, Failure> {
    let _turn = api.search.lock().await;
    let began = Instant::now();
    let mut page = SessionPage::default();
    // Names that no session can have need no search.
    if let Sought::NetworkInstance(name) = sought
        && !(api.running.config().network_instance.iter()).any(|known| known.name == *name)
    {
        page.total = api.control.snapshot().await?.sessions.used;
        return Ok(page);
    }
    loop {
        let found = api.control.find(sought.clone(), after).await?;
        page.total = found.of.total;
        page.sessions.extend(found.of.sessions);
        after = found.after;
        let more = page.sessions.len() > limit;
        if after.is_none() || more || page.sessions.len() == limit {
            page.sessions.truncate(limit);
            let last = page.sessions.last().map(|last| last.seid.clone());
            page.next = last.filter(|_| more || after.is_some());
            return Ok(page);
        }
        if began.elapsed() > SEARCH {
            page.next = after.map(seid_text);
            return Ok(page);
        }
    }
}

/// URRs of sessions, in the order of sessions, a page of sessions at a time: what each has measured since its last report,
/// and what is left of its quota.
#[utoipa::path(get, path = report::USAGE.path(), params(PageQuery), responses(
    (status = 200, body = UsagePage), (status = 400, body = ErrorBody)))]
async fn usage(
    State(api): State<Api>,
    query: Result<Query<PageQuery>, QueryRejection>,
) -> Result<Json<UsagePage>, Failure> {
    let Query(page) = query?;
    let (after, limit) = page_of(&page)?;
    Ok(Json(api.control.usage(after, limit).await?))
}

/// After which session, and how many.
fn page_of(page: &PageQuery) -> Result<(Option<u64>, usize), Failure> {
    let after = page.after.as_deref().map(seid_of).transpose()?;
    let limit = page.limit.unwrap_or(100);
    if !(1..=PAGE_MAX).contains(&limit) {
        let error = format!("limit = {limit}: must lie between 1 and {PAGE_MAX}");
        return Err(Failure::new(StatusCode::BAD_REQUEST, error));
    }
    Ok((after, limit))
}

fn seid_of(text: &str) -> Result<u64, Failure> {
    parse_seid(text).ok_or_else(|| {
        let error = format!("{text:?} is not a SEID: up to 16 hexadecimal digits");
        Failure::new(StatusCode::BAD_REQUEST, error)
    })
}

/// One session with rules and counters.
#[utoipa::path(get, path = report::SESSION.path(),
    params(("seid" = String, Path, description = "Our SEID, hexadecimal")),
    responses((status = 200, body = SessionDetail), (status = 400, body = ErrorBody),
        (status = 404, body = ErrorBody)))]
async fn session(
    State(api): State<Api>,
    Path(seid): Path<String>,
) -> Result<Json<SessionDetail>, Failure> {
    let seid = seid_of(&seid)?;
    let missing = || Failure::new(StatusCode::NOT_FOUND, format!("no session {seid:016x}"));
    Ok(Json(api.control.session(seid).await?.ok_or_else(missing)?))
}

/// The SMFs that we know.
#[utoipa::path(get, path = report::PEERS.path(), responses((status = 200, body = [PeerReport])))]
async fn peers(State(api): State<Api>) -> Result<Json<Vec<PeerReport>>, Failure> {
    Ok(Json(api.control.peers().await?))
}

/// Holdings and guaranteed shares of each SMF; without `node_id`, of emergency sessions.
#[utoipa::path(get, path = report::SMFS.path(), responses((status = 200, body = [SmfReport])))]
async fn smfs(State(api): State<Api>) -> Result<Json<Vec<SmfReport>>, Failure> {
    Ok(Json(api.control.smfs().await?))
}

/// GTP-U peers that sessions send to, with their states.
#[utoipa::path(get, path = report::GTPU_PEERS.path(), responses((status = 200, body = [GtpuPeerReport])))]
async fn gtpu_peers(State(api): State<Api>) -> Result<Json<Vec<GtpuPeerReport>>, Failure> {
    Ok(Json(api.control.gtpu_peers().await?))
}

/// Applications with the Packet Flow Descriptions that SMFs provisioned (TS 29.244, 6.2.5).
#[utoipa::path(get, path = report::PFDS.path(), responses((status = 200, body = [ApplicationReport])))]
async fn pfds(State(api): State<Api>) -> Result<Json<Vec<ApplicationReport>>, Failure> {
    Ok(Json(api.control.pfds().await?))
}

/// Packets that wait for idle UEs (FARs with BUFF).
#[utoipa::path(get, path = report::BUFFERS.path(), responses((status = 200, body = BuffersBody)))]
async fn buffers(State(api): State<Api>) -> Result<Json<BuffersBody>, Failure> {
    let totals = api.control.snapshot().await?.buffers;
    let waiting = match api.control.buffers().await? {
        Some(answer) => tokio::task::spawn_blocking(move || answer.recv().unwrap_or_default())
            .await
            .unwrap_or_default(),
        None => Vec::new(),
    };
    let waiting = waiting.into_iter().map(buffer_report).collect();
    Ok(Json(BuffersBody { totals, waiting }))
}

fn buffer_report(session: BufferedSession) -> BufferReport {
    BufferReport {
        seid: seid_text(session.seid),
        pdrs: session.pdrs,
        packets: session.packets,
        bytes: session.bytes,
        age_ms: u64::try_from(session.age.as_millis()).unwrap_or(u64::MAX),
    }
}

/// Lost packets by interface, direction and reason; reasons that never happened are left out.
#[utoipa::path(get, path = report::DROPS.path(), responses((status = 200, body = [DropReport])))]
async fn drops(State(api): State<Api>) -> Result<Json<Vec<DropReport>>, Failure> {
    Ok(Json(api.control.snapshot().await?.drops))
}

/// Capacities of interfaces, network instances and groups of users, and what of them is in use.
#[utoipa::path(get, path = report::CAPACITIES.path(), responses((status = 200, body = [CapacityReport])))]
async fn capacities(State(api): State<Api>) -> Result<Json<Vec<CapacityReport>>, Failure> {
    Ok(Json(api.control.snapshot().await?.capacities))
}

/// Messages and events of N4, and the Session Modification Requests that the data path serves.
#[utoipa::path(get, path = report::N4.path(), responses((status = 200, body = N4Body)))]
async fn n4(State(api): State<Api>) -> Result<Json<N4Body>, Failure> {
    Ok(Json(api.control.snapshot().await?.n4))
}

/// Forwarding policies: where they lead, and whether anybody is there.
#[utoipa::path(get, path = report::POLICIES.path(), responses((status = 200, body = [PolicyReport])))]
async fn policies(State(api): State<Api>) -> Result<Json<Vec<PolicyReport>>, Failure> {
    Ok(Json(api.control.snapshot().await?.policies))
}

/// The data path and its interfaces.
#[utoipa::path(get, path = report::DATAPATH.path(), responses((status = 200, body = DatapathBody)))]
async fn datapath(State(api): State<Api>) -> Result<Json<DatapathBody>, Failure> {
    let Snapshot {
        datapath,
        ports,
        tables,
        ..
    } = api.control.snapshot().await?;
    Ok(Json(DatapathBody {
        datapath,
        ports,
        tables,
    }))
}

/// Threads that packets run in, with their load and the packets that wait in them; on `xdp`, CPUs of the machine, and
/// the thread that keeps packets above their rates.
#[utoipa::path(get, path = report::WORKERS.path(), responses((status = 200, body = [WorkerReport])))]
async fn workers(State(api): State<Api>) -> Result<Json<Vec<WorkerReport>>, Failure> {
    let snapshot = api.control.snapshot().await?;
    Ok(Json(load_of(snapshot)))
}

fn load_of(snapshot: Snapshot) -> Vec<WorkerReport> {
    if snapshot.datapath.kind != "xdp" {
        return snapshot.workers;
    }
    let in_packets = |cpu: usize| {
        let ports = snapshot.ports.iter();
        let counts = ports.filter_map(|port| port.in_packets_by_cpu.get(cpu));
        counts.sum()
    };
    let cpus = system::busy_cpus().into_iter();
    let cpus = cpus.map(|(cpu, busy_s)| WorkerReport {
        worker: format!("cpu-{cpu}"),
        in_packets: in_packets(cpu),
        busy_s,
        shaper: None,
    });
    cpus.chain(snapshot.workers).collect()
}

/// CPUs of the machine, and which threads run there.
#[utoipa::path(get, path = report::CORES.path(), responses((status = 200, body = CoresReport)))]
async fn cores(State(api): State<Api>) -> Json<CoresReport> {
    Json(plan::cores(&api.running.config(), &api.topology))
}

/// The configuration in effect, defaults included. The token is not part of it.
#[utoipa::path(get, path = report::CONFIG.path(),
    responses((status = 200, body = serde_json::Value)))]
async fn config(State(api): State<Api>) -> Json<Config> {
    Json(Config::clone(&api.running.config()))
}

/// This description.
#[utoipa::path(get, path = report::OPENAPI.path(),
    responses((status = 200, body = serde_json::Value)))]
async fn openapi() -> Json<utoipa::openapi::OpenApi> {
    Json(Document::openapi())
}

/// OpenMetrics text, for Prometheus.
#[utoipa::path(get, path = "/metrics",
    responses((status = 200, body = String, content_type = metrics::CONTENT_TYPE)))]
async fn metrics(State(api): State<Api>) -> Result<Response, Failure> {
    let snapshot = api.control.snapshot().await?;
    let running = api.running.now();
    let text = metrics::encode(&snapshot, &running, api.started)
        .map_err(|_| Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "metrics"))?;
    Ok(([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response())
}

#[derive(OpenApi)]
#[openapi(
    info(title = "Turnpike", description = "A 5G User Plane Function",
        license(name = "Apache-2.0")),
    paths(status, sessions, session, usage, peers, smfs, gtpu_peers, pfds, buffers, drops, capacities, n4, policies, datapath, workers, cores, config, openapi, metrics,
        top::top, trace::trace, history::history, changing::reload, changing::config_diff, changing::set_log_level),
    modifiers(&BearerToken, &AsWritten),
    security((), ("token" = []))
)]
struct Document;

/// `api.token_file`.
struct BearerToken;

impl utoipa::Modify for BearerToken {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        document
            .components
            .get_or_insert_default()
            .add_security_scheme("token", scheme);
    }
}

#[cfg(test)]
mod tests;
