//! Registration with an NRF (Nnrf_NFManagement, TS 29.510, 5.2): who asks, what for, and what an answer means.

mod profile;
mod refusal;
mod registration;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{self, HeaderMap};
use hyper::{Method, StatusCode};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use uuid::{Builder, Uuid};

use crate::http::{self, Answer, Ask, clipped};
use crate::{Server, Tls};

pub use http::Failure;
pub use profile::{
    AddressRange, DnnInfo, InterfaceInfo, PlmnId, PrefixRange, Profile, Service, Slice, SliceInfo,
    State, UpfInfo, Vitals,
};
pub use refusal::Refusal;
pub use registration::{Event, Next, Registration, Verb};

/// Time for one exchange, redirections included.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest time for which an NRF can have us wait (`Retry-After`).
const WAIT_MAX: Duration = Duration::from_secs(600);
/// Lifetimes of tokens that are believed, in seconds.
const TOKEN_MAX_S: u64 = 24 * 3600;

const JSON: &str = "application/json";
const PATCH: &str = "application/json-patch+json";
const FORM: &str = "application/x-www-form-urlencoded";

/// Name of this NF instance (TS 29.571, NfInstanceId), which is the same for the same `node_id` on each start. It has the form of a
/// random one (RFC 9562, 5.4), as some NRFs take no other.
pub fn instance_id(node_id: &str) -> Uuid {
    let hash = Uuid::new_v5(&Uuid::NAMESPACE_OID, format!("UPF {node_id}").as_bytes());
    Builder::from_random_bytes(hash.into_bytes()).into_uuid()
}

/// NRFs of one operator, and our place among them.
#[derive(Debug)]
pub struct Client {
    servers: Vec<Server>,
    tls: Option<Tls>,
    instance: Uuid,
    wants_token: bool,
    /// Of each server.
    tokens: BTreeMap<usize, Token>,
}

#[derive(Debug)]
struct Token {
    text: String,
    until: Instant,
}

/// Body of an answer to a registration, as far as it says something to us.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Answered {
    heart_beat_timer: Option<u64>,
}

#[derive(Deserialize)]
struct TokenAnswer {
    access_token: String,
    #[serde(default)]
    expires_in: Option<u64>,
}

#[derive(Deserialize)]
struct Problem {
    title: Option<String>,
    detail: Option<String>,
    cause: Option<String>,
}

#[derive(Serialize)]
struct PatchItem<'v> {
    op: &'static str,
    path: &'static str,
    value: &'v serde_json::Value,
}

impl Client {
    /// Without TLS.
    pub fn new(servers: Vec<Server>, instance: Uuid, wants_token: bool) -> Self {
        Self {
            servers,
            tls: None,
            instance,
            wants_token,
            tokens: BTreeMap::new(),
        }
    }

    /// For connections from now on: certificates are renewed. Servers whose scheme is https want it.
    pub fn set_tls(&mut self, tls: Tls) {
        self.tls = Some(tls);
    }

    /// In the order in which they are tried.
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// Tell an NRF of this instance (5.2.2.2), all of it. Returns the time between heartbeats, where it says one.
    pub async fn register(
        &mut self,
        server: usize,
        profile: &Profile,
        vitals: Vitals,
    ) -> Result<Option<Duration>, Refusal> {
        let told = profile.now(self.instance, vitals);
        let body = serde_json::to_vec(&told).map_err(|error| rubbish(&error))?;
        let answer = self.granted(server, Method::PUT, JSON, body).await?;
        heartbeat_of(&answer)
    }

    /// Tell it that this instance lives (5.2.2.3.2).
    pub async fn heartbeat(
        &mut self,
        server: usize,
        vitals: Vitals,
    ) -> Result<Option<Duration>, Refusal> {
        let [state, load] = [
            serde_json::to_value(vitals.state),
            serde_json::to_value(vitals.told_load()),
        ]
        .map(Result::unwrap_or_default);
        let items = [("/nfStatus", &state), ("/load", &load)].map(|(path, value)| PatchItem {
            op: "replace",
            path,
            value,
        });
        let body = serde_json::to_vec(&items).map_err(|error| rubbish(&error))?;
        let answer = self.granted(server, Method::PATCH, PATCH, body).await?;
        heartbeat_of(&answer)
    }

    /// Tell it that this instance ends (5.2.2.4).
    pub async fn deregister(&mut self, server: usize) -> Result<(), Refusal> {
        let answer = self.granted(server, Method::DELETE, JSON, Vec::new());
        match answer.await {
            // It knows nothing of us.
            Err(refusal) if refusal.status() == Some(StatusCode::NOT_FOUND) => Ok(()),
            answer => answer.map(drop),
        }
    }

    async fn granted(
        &mut self,
        server: usize,
        method: Method,
        content_type: &'static str,
        body: Vec<u8>,
    ) -> Result<Answer, Refusal> {
        let mut ask = Ask {
            method,
            path: format!("/nnrf-nfm/v1/nf-instances/{}", self.instance),
            content_type,
            body: Bytes::from(body),
            bearer: None,
            callback: None,
        };
        if !self.wants_token {
            return self.ask(server, &ask).await;
        }
        let is_old = self.tokens.contains_key(&server);
        match self.token(server).await {
            Ok(token) => ask.bearer = Some(token),
            // Some give tokens to those alone that are registered.
            Err(Refusal::Token(why)) if ask.method == Method::PUT && why.status().is_some() => {}
            Err(refusal) => return Err(refusal),
        }
        match self.ask(server, &ask).await {
            // A token may be withdrawn before its time.
            Err(refusal) if refusal.status() == Some(StatusCode::UNAUTHORIZED) => {
                self.tokens.remove(&server);
                if !is_old {
                    return Err(refusal);
                }
                ask.bearer = Some(self.token(server).await?);
                self.ask(server, &ask).await
            }
            answered => answered,
        }
    }

    async fn ask(&self, server: usize, ask: &Ask) -> Result<Answer, Refusal> {
        let absent = || Failure::NoRequest(format!("there is no NRF {server}"));
        let server = self.servers.get(server).ok_or_else(absent)?;
        let answer = http::ask(server, self.tls.as_ref(), ask, PATIENCE).await?;
        if answer.status.is_success() {
            return Ok(answer);
        }
        Err(Refusal::Status {
            status: answer.status,
            problem: problem(&answer.body),
            retry_after: retry_after(&answer.headers),
        })
    }

    /// Of the server's own authorization (TS 29.510, 5.4.2.2.1: client credentials).
    async fn token(&mut self, server: usize) -> Result<String, Refusal> {
        let known = self.tokens.get(&server);
        if let Some(token) = known.filter(|token| token.until > Instant::now()) {
            return Ok(token.text.clone());
        }
        let instance = self.instance.to_string();
        let form = [
            ("grant_type", "client_credentials"),
            ("nfInstanceId", &instance),
            ("nfType", "UPF"),
            ("targetNfType", "NRF"),
            ("scope", "nnrf-nfm"),
        ];
        let body = serde_urlencoded::to_string(form).map_err(|error| rubbish(&error))?;
        let ask = Ask {
            method: Method::POST,
            path: "/oauth2/token".to_owned(),
            content_type: FORM,
            body: Bytes::from(body),
            bearer: None,
            callback: None,
        };
        let answer = self.ask(server, &ask).await;
        let answer = answer.map_err(|refusal| Refusal::Token(Box::new(refusal)))?;
        let token = serde_json::from_slice::<TokenAnswer>(&answer.body);
        let token = token.map_err(|error| Refusal::Token(Box::new(rubbish(&error))))?;
        let is_sendable = token
            .access_token
            .bytes()
            .all(|octet| octet.is_ascii_graphic());
        if token.access_token.is_empty() || !is_sendable {
            let rubbish = rubbish(&"a token that no header can carry");
            return Err(Refusal::Token(Box::new(rubbish)));
        }
        let lives_s = token.expires_in.unwrap_or(0).min(TOKEN_MAX_S);
        // A tenth earlier: clocks differ, and a request takes time.
        let until = Instant::now() + Duration::from_millis(lives_s * 900);
        let text = token.access_token;
        let kept = text.clone();
        self.tokens.insert(server, Token { text: kept, until });
        Ok(text)
    }
}

fn rubbish(error: &impl ToString) -> Refusal {
    Refusal::Rubbish(clipped(&error.to_string()))
}

/// The time that the answer to a registration or a heartbeat sets, if any; 204 has no body.
fn heartbeat_of(answer: &Answer) -> Result<Option<Duration>, Refusal> {
    if answer.body.is_empty() {
        return Ok(None);
    }
    let answered = serde_json::from_slice::<Answered>(&answer.body);
    let seconds = answered.map_err(|error| rubbish(&error))?.heart_beat_timer;
    Ok(seconds.map(Duration::from_secs))
}

fn problem(body: &[u8]) -> Option<String> {
    let problem: Problem = serde_json::from_slice(body).ok()?;
    let parts = [problem.cause, problem.title, problem.detail];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| clipped(&parts.join(": ")))
}

/// In seconds. A date (RFC 9110, 10.2.3) is passed over: clocks differ.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(header::RETRY_AFTER)?.to_str().ok()?;
    let seconds = value.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(WAIT_MAX))
}
