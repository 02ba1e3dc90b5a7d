//! Requests of consumers (TS 29.564, 6.1.3): subscribe, change, unsubscribe.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{self, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use sbi::ee::{Asked, Problem, Watch, Whom, changed};
use serde_json::{Value, json};
use tokio::time::timeout;
use uuid::Uuid;

use super::{Exposure, Seen, State, Subscription, is_of_slice, new_id, now};
use crate::api::clients::network;
use crate::config::Nupf;

/// Resource below the root of the API.
const SUBSCRIPTIONS: &str = "/nupf-ee/v1/ee-subscriptions";
/// Octets of a request's body.
const BODY_MAX: usize = 16 << 10;
/// Octets of one that are heard before it is refused.
const HEARD_MAX: usize = 1 << 20;
/// Time for it to come.
const BODY_TIME: Duration = Duration::from_secs(5);
/// Time for the control thread to say whose session it is.
const CONTROL_TIME: Duration = Duration::from_secs(5);

const JSON: &str = "application/json";
const JSON_PATCH: &str = "application/json-patch+json";
const PROBLEM: &str = "application/problem+json";

type Answer = Response<Full<Bytes>>;

/// The answer to a request of a consumer at this address; `budget`: there is room for it, or will be after that time.
pub(super) async fn answer(
    exposure: &Arc<Exposure>,
    (from, budget): (IpAddr, Result<(), Duration>),
    request: Request<Incoming>,
) -> Answer {
    // Some clients do not look at an answer that comes before they have sent all.
    let (head, body) = request.into_parts();
    let body = timeout(BODY_TIME, whole(body)).await;
    let body = body.unwrap_or_else(|_| {
        let (status, detail) = (StatusCode::REQUEST_TIMEOUT, "the body does not come");
        Err(Problem::new(status, None, detail))
    });
    if let Err(wait) = budget {
        return too_many(wait);
    }
    match routed(exposure, from, (&head, body)).await {
        Ok(answer) => answer,
        Err(problem) => {
            tracing::debug!(address = %from, status = %problem.status(), reason = problem.detail(), "nupf: a request is refused");
            refusal(&problem)
        }
    }
}

/// RFC 6585, 4.
fn too_many(wait: Duration) -> Answer {
    let detail = "more requests per second than one consumer may send";
    let mut answer = refusal(&Problem::new(StatusCode::TOO_MANY_REQUESTS, None, detail));
    let seconds = wait.as_millis().div_ceil(1000).max(1) as u64;
    answer
        .headers_mut()
        .insert(header::RETRY_AFTER, seconds.into());
    answer
}

fn refusal(problem: &Problem) -> Answer {
    let mut answer = response(problem.status(), problem.body().into());
    let kind = HeaderValue::from_static(PROBLEM);
    answer.headers_mut().insert(header::CONTENT_TYPE, kind);
    answer
}

fn not_allowed(allowed: &'static str) -> Answer {
    let detail = format!("{allowed} is what there is for it");
    let mut answer = refusal(&Problem::new(StatusCode::METHOD_NOT_ALLOWED, None, detail));
    let allowed = HeaderValue::from_static(allowed);
    answer.headers_mut().insert(header::ALLOW, allowed);
    answer
}

fn response(status: StatusCode, body: Bytes) -> Answer {
    let mut answer = Response::new(Full::new(body));
    *answer.status_mut() = status;
    answer
}

async fn routed(
    exposure: &Arc<Exposure>,
    from: IpAddr,
    (head, body): (&Parts, Result<Bytes, Problem>),
) -> Result<Answer, Problem> {
    let path = head.uri.path();
    let below = path
        .strip_prefix(SUBSCRIPTIONS)
        .map(|below| below.strip_prefix('/').unwrap_or(below));
    match (below, &head.method) {
        (Some(""), &Method::POST) => {
            check_kind(head, JSON)?;
            subscribe(exposure, from, &body?).await
        }
        (Some(""), _) => Ok(not_allowed("POST")),
        (Some(id), method) => {
            let id = Uuid::try_parse(id).map_err(|_| unknown())?;
            match *method {
                Method::PATCH => {
                    check_kind(head, JSON_PATCH)?;
                    change(exposure, id, &body?).await
                }
                Method::DELETE => unsubscribe(exposure, id),
                _ => Ok(not_allowed("PATCH, DELETE")),
            }
        }
        (None, _) => {
            let cause = Some("RESOURCE_URI_STRUCTURE_NOT_FOUND");
            let detail = format!("{SUBSCRIPTIONS} is what is here");
            Err(Problem::new(StatusCode::NOT_FOUND, cause, detail))
        }
    }
}

fn unknown() -> Problem {
    let cause = Some("SUBSCRIPTION_NOT_FOUND");
    Problem::new(StatusCode::NOT_FOUND, cause, "no such subscription")
}

fn check_kind(head: &Parts, wanted: &str) -> Result<(), Problem> {
    let kind = head.headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or("");
    let kind = kind.split(';').next().unwrap_or("").trim();
    if kind.eq_ignore_ascii_case(wanted) {
        return Ok(());
    }
    let (status, detail) = (
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        format!("{wanted} is wanted"),
    );
    Err(Problem::new(status, None, detail))
}

/// All of it; one that is too long is heard as well, up to a point.
async fn whole(mut body: Incoming) -> Result<Bytes, Problem> {
    let (mut octets, mut length) = (BytesMut::new(), 0);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Problem::malformed(&error.to_string()))?;
        let data = frame.into_data().unwrap_or_default();
        length += data.len();
        if length <= BODY_MAX {
            octets.extend_from_slice(&data);
        } else if length > HEARD_MAX {
            break;
        }
    }
    if length > BODY_MAX {
        let detail = format!("more than {BODY_MAX} octets");
        return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, None, detail));
    }
    Ok(octets.freeze())
}

/// The subscription as this UPF can honour it, by its settings.
fn accept(state: &State, subscription: &Value) -> Result<Asked, Problem> {
    let settings = &state.settings;
    let asked = Asked::read(subscription, settings.bounds(), now().wall)?;
    let notify = &asked.notify;
    let at = "/eventNotifyUri";
    if let Some(address) = notify
        .address()
        .filter(|address| !settings.allows(*address))
    {
        let reason = format!("{address} is no address of those that may be told (nupf.allow)");
        return Err(Problem::mandatory(at, reason));
    }
    if notify.is_tls() && settings.ca_file.is_none() {
        let reason = "https wants authorities, and there are none (nupf.ca_file)";
        return Err(Problem::mandatory(at, reason));
    }
    let is_of_any = |dnn: Option<&str>| is_of_slice(&state.slices, &asked, dnn);
    let dnns = state.slices.iter().flat_map(|slice| &slice.dnns);
    if !is_of_any(None) && !dnns.into_iter().any(|dnn| is_of_any(Some(dnn))) {
        return Err(Problem::optional(
            "/snssai",
            "no slice of this UPF (nrf.slice)",
        ));
    }
    Ok(asked)
}

/// Sessions of a UE that is named; none of others.
async fn sessions_of(exposure: &Exposure, whom: Whom) -> Result<Vec<Seen>, Problem> {
    let Whom::Ue(ue) = whom else {
        return Ok(Vec::new());
    };
    let found = timeout(CONTROL_TIME, exposure.control.counts_of_ue(ue)).await;
    match found {
        Ok(Ok(found)) => Ok(found.into_iter().map(Seen::new).collect()),
        Ok(Err(_)) | Err(_) => {
            let cause = Some("NF_CONGESTION");
            let detail = "the control thread is busy";
            Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, cause, detail))
        }
    }
}

/// Have a watch begin with these.
pub(super) fn begin(watch: &mut Watch, state: &State, sessions: &[Seen]) -> Result<(), Problem> {
    if watch.asked().whom == Whom::Any {
        return Ok(());
    }
    let at = now();
    let look = watch.begin_look();
    for counts in sessions.iter().map(Seen::counts) {
        if is_of_slice(&state.slices, watch.asked(), counts.dnn) {
            watch.see(look, at, &counts, true);
        }
    }
    watch.end_look(look, at);
    if watch.ue_count() == 0 {
        let cause = Some("CONTEXT_NOT_FOUND");
        let detail = "no session has this address here";
        return Err(Problem::new(StatusCode::NOT_FOUND, cause, detail));
    }
    Ok(())
}

fn no_room(detail: &str) -> Problem {
    let cause = Some("INSUFFICIENT_RESOURCES");
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, cause, detail)
}

fn check_room(state: &State, from: IpAddr) -> Result<(), Problem> {
    let Nupf {
        max_subscriptions,
        consumer_subscriptions,
        ..
    } = state.settings;
    let all = &state.subscriptions;
    if all.len() >= max_subscriptions as usize {
        return Err(no_room(
            "as many subscriptions as there may be (nupf.max_subscriptions)",
        ));
    }
    let of = |from: IpAddr| network(from.to_canonical());
    let own = all.values().filter(|one| of(one.from) == of(from)).count();
    if own >= consumer_subscriptions as usize {
        return Err(no_room(
            "as many subscriptions as one consumer may have (nupf.consumer_subscriptions)",
        ));
    }
    Ok(())
}

async fn subscribe(exposure: &Arc<Exposure>, from: IpAddr, body: &[u8]) -> Result<Answer, Problem> {
    let request: Value =
        serde_json::from_slice(body).map_err(|error| Problem::malformed(&error.to_string()))?;
    let below = "/subscription";
    let Some(subscription) = request.get("subscription") else {
        return Err(Problem::missing(below));
    };
    let asked = {
        let state = exposure.state();
        check_room(&state, from)?;
        accept(&state, subscription).map_err(|problem| problem.below(below))?
    };
    let sessions = sessions_of(exposure, asked.whom).await?;
    let id = new_id().map_err(|error| no_room(&error.to_string()))?;
    let (location, reports) = {
        let mut state = exposure.state();
        check_room(&state, from)?;
        let consumer = asked.consumer;
        let mut watch = Watch::new(asked, now());
        begin(&mut watch, &state, &sessions)?;
        let reports: Vec<Value> = sessions
            .iter()
            .map(Seen::counts)
            .filter(|counts| is_of_slice(&state.slices, watch.asked(), counts.dnn))
            .flat_map(|counts| watch.so_far(now(), &counts))
            .collect();
        let subscription = Subscription {
            watch,
            document: subscription.to_string().into(),
            from,
            telling: None,
        };
        state.subscriptions.insert(id, subscription);
        state.revision += 1;
        if state.lines.may(tokio::time::Instant::now()) {
            tracing::info!(%consumer, address = %from, subscription = %id, "nupf: subscribed");
        }
        let root = state.settings.root();
        (format!("{root}{SUBSCRIPTIONS}/{id}"), reports)
    };
    exposure.changed.notify_one();
    let mut created = json!({ "subscription": subscription, "subscriptionId": location });
    if !reports.is_empty() {
        created["reportList"] = reports.into();
    }
    if request.get("supportedFeatures").is_some() {
        // None of the optional ones (6.1.8).
        created["supportedFeatures"] = "0".into();
    }
    let mut answer = response(StatusCode::CREATED, created.to_string().into());
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON));
    let location = HeaderValue::try_from(location).map_err(|error| no_room(&error.to_string()))?;
    headers.insert(header::LOCATION, location);
    Ok(answer)
}

async fn change(exposure: &Arc<Exposure>, id: Uuid, body: &[u8]) -> Result<Answer, Problem> {
    let (document, asked) = {
        let state = exposure.state();
        let subscription = state.subscriptions.get(&id).ok_or_else(unknown)?;
        // It was written by us.
        let document = serde_json::from_str(&subscription.document).unwrap_or_default();
        let document = changed(&document, body)?;
        let asked = accept(&state, &document).map_err(|problem| problem.below("/subscription"))?;
        (document, asked)
    };
    let sessions = sessions_of(exposure, asked.whom).await?;
    let mut state = exposure.state();
    let mut next = Watch::new(asked, now());
    begin(&mut next, &state, &sessions)?;
    let subscription = state.subscriptions.get_mut(&id).ok_or_else(unknown)?;
    if subscription.watch.asked().notify != next.asked().notify {
        subscription.stop_telling();
    }
    subscription.watch.change(next, now());
    subscription.document = document.to_string().into();
    state.revision += 1;
    drop(state);
    exposure.changed.notify_one();
    Ok(response(StatusCode::NO_CONTENT, Bytes::new()))
}

fn unsubscribe(exposure: &Exposure, id: Uuid) -> Result<Answer, Problem> {
    let mut state = exposure.state();
    let ended = state.subscriptions.remove(&id).ok_or_else(unknown)?;
    state.revision += 1;
    if state.lines.may(tokio::time::Instant::now()) {
        let consumer = ended.watch.asked().consumer;
        tracing::info!(%consumer, address = %ended.from, subscription = %id, "nupf: unsubscribed");
    }
    drop(state);
    exposure.changed.notify_one();
    Ok(response(StatusCode::NO_CONTENT, Bytes::new()))
}
