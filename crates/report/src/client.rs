//! Questions to turnpiked over HTTP.

use std::io::{BufRead, BufReader};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use ureq::http::{Response, StatusCode};
use ureq::typestate::WithBody;
use ureq::{Agent, Body, RequestBuilder};

use crate::error::ErrorBody;
use crate::query::{PAGE_MAX, PageQuery, SessionsQuery, TraceQuery};
use crate::reload::{Access, LogBody, ReloadReport};
use crate::resource::{CONFIG_DIFF, LOG, RELOAD, Resource, SEID, SESSION, SESSIONS, TRACE, USAGE};
use crate::sessions::{SessionDetail, SessionPage};
use crate::usage::{SessionUsage, UsagePage};

/// turnpiked answers within milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody listens, or nobody answers in time.
    #[error("no turnpiked answers at {api}: {reason}. Is it running? (--api, api.listen)")]
    Unreachable {
        /// Asked there.
        api: String,
        /// Of the connection.
        reason: String,
    },
    /// turnpiked says why.
    #[error("{0}")]
    Refused(String),
    /// A token is required, and none is configured here.
    #[error("a token is required: --token-file FILE, as in api.token_file of turnpiked")]
    NoToken,
    /// The token in this file is refused.
    #[error("the token in {} is not turnpiked's", .0.display())]
    WrongToken(PathBuf),
    /// The file with the token cannot be read.
    #[error("{}: {reason}", file.display())]
    TokenFile {
        /// Path.
        file: PathBuf,
        /// Of the system.
        reason: String,
    },
    /// The answer is none of turnpiked's.
    #[error("{api} does not speak as turnpiked does: {reason}")]
    Strange {
        /// Asked there.
        api: String,
        /// Of the reader.
        reason: String,
    },
}

/// An answer as it came, with fields that this release does not know, and as it is read.
#[derive(Clone, Debug)]
pub struct Answer<T> {
    /// As it came.
    pub json: Value,
    /// As it is read.
    pub report: T,
}

impl<T: Serialize> From<T> for Answer<T> {
    fn from(report: T) -> Self {
        Self {
            // A report is numbers, words and lists of them: nothing in it can fail to be JSON.
            json: serde_json::to_value(&report).unwrap_or_default(),
            report,
        }
    }
}

/// A page of sessions as it came.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Page {
    #[serde(flatten)]
    others: Map<String, Value>,
    sessions: Vec<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// One turnpiked.
#[derive(Debug)]
pub struct Client {
    agent: Agent,
    api: String,
    token: Option<(PathBuf, String)>,
    /// For a whole answer, but for those of traces.
    patience: Duration,
}

impl Client {
    /// Of the host's own turnpiked, as its file [`Access`] says, where `api` or `token_file` is not given: `api` of
    /// `http://127.0.0.1:8806` where there is no such file. A token of it goes to no other address.
    pub fn local(api: Option<&str>, token_file: Option<&Path>) -> Result<Self, Error> {
        let file = Access::file();
        let access = std::fs::read(&file)
            .ok()
            .and_then(|octets| serde_json::from_slice::<Access>(&octets).ok());
        let is_own = |of: &&Access| api.is_none_or(|api| with_scheme(api) == with_scheme(&of.api));
        let own = access.as_ref().filter(is_own);
        let api = api.or(own.map(|of| of.api.as_str()));
        let mut client = Self::new(api.unwrap_or("127.0.0.1:8806"), token_file)?;
        if let (None, Some(own)) = (&client.token, own) {
            client.token = Some((file, own.token.clone()));
        }
        Ok(client)
    }

    /// `api`: `http://address:port`, or without `http://`. Nothing is asked yet.
    pub fn new(api: &str, token_file: Option<&Path>) -> Result<Self, Error> {
        let token = match token_file {
            Some(file) => {
                let text = std::fs::read_to_string(file).map_err(|error| Error::TokenFile {
                    file: file.to_owned(),
                    reason: error.to_string(),
                })?;
                Some((file.to_owned(), text.trim().to_owned()))
            }
            None => None,
        };
        let config = Agent::config_builder()
            .timeout_connect(Some(PATIENCE))
            .timeout_recv_response(Some(PATIENCE))
            .http_status_as_error(false)
            .proxy(None)
            .build();
        Ok(Self {
            agent: Agent::new_with_config(config),
            api: with_scheme(api),
            token,
            patience: PATIENCE,
        })
    }

    /// The same, with so much time for each answer.
    #[must_use]
    pub fn patient(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// The resource at a path, of `limit` octets at most: status of HTTP, and body.
    pub fn text(&self, path: &str, limit: usize) -> Result<(u16, String), Error> {
        let mut response = self.call(path, Some(self.patience))?;
        let status = response.status().as_u16();
        let body = response.body_mut().with_config().limit(limit as u64);
        let body = body.read_to_string();
        Ok((
            status,
            body.map_err(|error| self.strange(error.to_string()))?,
        ))
    }

    /// A resource without a query.
    pub fn get<T: DeserializeOwned>(&self, resource: &Resource<T>) -> Result<Answer<T>, Error> {
        self.read(self.json(resource.path())?)
    }

    /// A resource with a query.
    pub fn ask<T: DeserializeOwned>(
        &self,
        resource: &Resource<T>,
        query: &impl Serialize,
    ) -> Result<Answer<T>, Error> {
        self.read(self.json(&self.asked(resource.path(), query)?)?)
    }

    /// One session.
    pub fn session(&self, seid: &str) -> Result<Answer<SessionDetail>, Error> {
        self.read(self.json(&session_path(seid))?)
    }

    /// Up to `limit` sessions, page by page, as one page.
    pub fn sessions(
        &self,
        limit: usize,
        after: Option<&str>,
    ) -> Result<Answer<SessionPage>, Error> {
        let mut all = Vec::new();
        let mut after = after.map(str::to_owned);
        loop {
            let count = (limit - all.len()).clamp(1, PAGE_MAX);
            let query = SessionsQuery {
                after,
                limit: Some(count),
                ..SessionsQuery::default()
            };
            let mut page: Page = self.read_page(&SESSIONS, &query)?;
            all.append(&mut page.sessions);
            after = page.next.clone();
            if after.is_none() || all.len() >= limit {
                page.sessions = all;
                return self.read(self.written(&page)?);
            }
        }
    }

    /// URRs of one session.
    pub fn usage_of(&self, seid: &str) -> Result<Answer<UsagePage>, Error> {
        let session = self.json(&session_path(seid))?;
        let page = Page {
            sessions: vec![members_of::<SessionUsage>(session)],
            ..Page::default()
        };
        self.read(self.written(&page)?)
    }

    /// Up to `limit` sessions that measure, from behind `after` on, with `next` if there are more.
    pub fn usage(&self, limit: usize, after: Option<&str>) -> Result<Answer<UsagePage>, Error> {
        let page = pages(|query| self.read_page(&USAGE, query), limit, after)?;
        self.read(self.written(&page)?)
    }

    /// Lines of a trace, each as it came, until turnpiked ends them or `each` says so.
    pub fn trace<E: From<Error>>(
        &self,
        query: &TraceQuery,
        mut each: impl FnMut(Value) -> Result<ControlFlow<()>, E>,
    ) -> Result<(), E> {
        let path = self.asked(TRACE.path(), query)?;
        let response = self.call(&path, None)?;
        if !response.status().is_success() {
            self.value_of(response)?;
            return Ok(());
        }
        for line in BufReader::new(response.into_body().into_reader()).lines() {
            let line = line.map_err(|error| self.strange(error.to_string()))?;
            let value = serde_json::from_str(&line).map_err(|_| self.strange("no JSON".into()))?;
            if each(value)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Ask for the configuration's file to be read again. The answer may be that the program starts anew, which is seen by
    /// [`STATUS`](crate::STATUS).
    pub fn reload(&self) -> Result<Answer<ReloadReport>, Error> {
        self.send(self.agent.post(self.url(RELOAD.path())), "")
    }

    /// Judge a text as a reload does, and do nothing.
    pub fn config_diff(&self, text: &str) -> Result<Answer<ReloadReport>, Error> {
        let request = self.agent.post(self.url(CONFIG_DIFF.path()));
        self.send(request.header("Content-Type", "application/toml"), text)
    }

    /// Another level of the log, until the next start or reload.
    pub fn set_log_level(&self, level: &str) -> Result<Answer<LogBody>, Error> {
        let body = LogBody {
            level: level.to_owned(),
        };
        let body = serde_json::to_string(&body).map_err(|error| self.strange(error.to_string()))?;
        let request = self.agent.put(self.url(LOG.path()));
        self.send(request.header("Content-Type", "application/json"), &body)
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.api)
    }

    fn send<T: DeserializeOwned>(
        &self,
        request: RequestBuilder<WithBody>,
        body: &str,
    ) -> Result<Answer<T>, Error> {
        let mut request = request.config().timeout_global(Some(self.patience)).build();
        if let Some((_, token)) = &self.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let response = self.judged(request.send(body))?;
        self.read(self.value_of(response)?)
    }

    fn asked(&self, path: &str, query: &impl Serialize) -> Result<String, Error> {
        let query = serde_urlencoded::to_string(query);
        let query = query.map_err(|error| self.strange(error.to_string()))?;
        Ok(format!("{path}?{query}"))
    }

    fn read_page<T>(&self, resource: &Resource<T>, query: &impl Serialize) -> Result<Page, Error> {
        let page = self.json(&self.asked(resource.path(), query)?)?;
        serde_json::from_value(page).map_err(|error| self.strange(error.to_string()))
    }

    fn written(&self, page: &Page) -> Result<Value, Error> {
        serde_json::to_value(page).map_err(|error| self.strange(error.to_string()))
    }

    fn read<T: DeserializeOwned>(&self, json: Value) -> Result<Answer<T>, Error> {
        let report = T::deserialize(&json).map_err(|error| self.strange(error.to_string()))?;
        Ok(Answer { json, report })
    }

    fn json(&self, path: &str) -> Result<Value, Error> {
        self.value_of(self.call(path, Some(self.patience))?)
    }

    /// `patience`: for the whole answer.
    fn call(&self, path: &str, patience: Option<Duration>) -> Result<Response<Body>, Error> {
        let request = self.agent.get(self.url(path));
        let mut request = request.config().timeout_global(patience).build();
        if let Some((_, token)) = &self.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        self.judged(request.call())
    }

    fn judged(
        &self,
        response: Result<Response<Body>, ureq::Error>,
    ) -> Result<Response<Body>, Error> {
        let response = response.map_err(|error| Error::Unreachable {
            api: self.api.clone(),
            reason: error.to_string(),
        })?;
        if response.status() == StatusCode::UNAUTHORIZED {
            return Err(match &self.token {
                Some((file, _)) => Error::WrongToken(file.clone()),
                None => Error::NoToken,
            });
        }
        Ok(response)
    }

    fn value_of(&self, mut response: Response<Body>) -> Result<Value, Error> {
        let status = response.status();
        let body = response.body_mut().read_to_string();
        let body = body.map_err(|error| self.strange(error.to_string()))?;
        let value: Value = serde_json::from_str(&body)
            .map_err(|_| self.strange(format!("{status}, and no JSON")))?;
        if status.is_success() {
            return Ok(value);
        }
        match ErrorBody::deserialize(&value) {
            Ok(ErrorBody { error }) if !error.is_empty() => Err(Error::Refused(error)),
            _ => Err(self.strange(status.to_string())),
        }
    }

    fn strange(&self, reason: String) -> Error {
        Error::Strange {
            api: self.api.clone(),
            reason,
        }
    }
}

/// `http://` is left out, as a rule, and a slash may be at the end.
fn with_scheme(api: &str) -> String {
    let api = api.trim_end_matches('/');
    match api.contains("://") {
        true => api.to_owned(),
        false => format!("http://{api}"),
    }
}

fn session_path(seid: &str) -> String {
    SESSION.path().replace(SEID, seid)
}

/// Of an object, the members that a `T` has.
fn members_of<T: Default + Serialize>(object: Value) -> Value {
    let known = Answer::from(T::default()).json;
    match object {
        Value::Object(members) => {
            let members = members.into_iter();
            let kept = members.filter(|(name, _)| known.get(name).is_some());
            Value::Object(kept.collect())
        }
        other => other,
    }
}

/// Pages of sessions that measure as one, with `next` if there are more such sessions.
fn pages(
    mut get: impl FnMut(&PageQuery) -> Result<Page, Error>,
    limit: usize,
    after: Option<&str>,
) -> Result<Page, Error> {
    let mut all = Vec::new();
    let mut after = after.map(str::to_owned);
    loop {
        let mut page = get(&PageQuery {
            after,
            limit: Some(PAGE_MAX),
        })?;
        all.append(&mut page.sessions);
        after = page.next.take();
        let more = all.len() > limit;
        if more || after.is_none() {
            all.truncate(limit);
            let last = all.last().filter(|_| more);
            let last = last.and_then(|last| SessionUsage::deserialize(last).ok());
            page.next = last.map(|last| last.seid);
            page.sessions = all;
            return Ok(page);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Of ten sessions in pages of four, those with even numbers measure.
    fn page(query: &PageQuery) -> Result<Page, Error> {
        let after = query.after.as_ref().map_or(0, |seid| seid.parse().unwrap());
        let last = (after + 4).min(10);
        let measuring = (after + 1..=last).filter(|seid| seid % 2 == 0);
        let sessions = measuring.map(|seid| json!({"seid": seid.to_string(), "urrs": [{"id": 1}]}));
        Ok(Page {
            sessions: sessions.collect(),
            next: (last < 10).then(|| last.to_string()),
            ..Page::default()
        })
    }

    #[test]
    fn a_list_that_is_cut_says_where_to_go_on() {
        let asked = |limit: usize, after: Option<&str>| {
            let page = pages(page, limit, after).unwrap();
            let page = serde_json::to_value(page).unwrap();
            let page = UsagePage::deserialize(&page).unwrap();
            let seids: Vec<_> = page.sessions.into_iter().map(|one| one.seid).collect();
            (seids.join(" "), page.next)
        };
        let next = |seid: &str| Some(seid.to_owned());
        assert_eq!(asked(3, None), ("2 4 6".to_owned(), next("6")));
        assert_eq!(asked(3, Some("6")), ("8 10".to_owned(), None));
        assert_eq!(asked(1, Some("6")), ("8".to_owned(), next("8")));
        assert_eq!(asked(5, None), ("2 4 6 8 10".to_owned(), None));
    }

    #[test]
    fn a_query_takes_whatever_is_typed() {
        let client = Client::new("localhost", None).unwrap();
        let query = TraceQuery {
            ue: "2001:db8::1".parse().ok(),
            teid: Some("1&x=2".into()),
            count: Some(3),
            ..TraceQuery::default()
        };
        assert_eq!(
            client.asked(TRACE.path(), &query).unwrap(),
            "/api/v1/trace?ue=2001%3Adb8%3A%3A1&teid=1%26x%3D2&count=3"
        );
    }

    #[test]
    fn members_that_a_type_lacks_are_left_out() {
        let session =
            json!({"seid": "1", "peer": "smf", "ue": [], "urrs": [{"id": 7, "later": 1}]});
        assert_eq!(
            members_of::<SessionUsage>(session),
            json!({"seid": "1", "ue": [], "urrs": [{"id": 7, "later": 1}]})
        );
    }
}
