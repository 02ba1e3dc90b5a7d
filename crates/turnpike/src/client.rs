//! Questions to turnpiked over HTTP.

use std::io::{BufRead, BufReader};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use ureq::http::{Response, StatusCode};
use ureq::{Agent, Body};

/// turnpiked answers within milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);
/// `limit` of turnpiked's pages, at most.
const PAGE_MAX: usize = 1000;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("no turnpiked answers at {api}: {reason}. Is it running? (--api, api.listen)")]
    Unreachable { api: String, reason: String },
    #[error("{0}")]
    Refused(String),
    #[error("a token is required: --token-file FILE, as in api.token_file of turnpiked")]
    NoToken,
    #[error("the token in {} is not turnpiked's", .0.display())]
    WrongToken(PathBuf),
    #[error("{}: {reason}", file.display())]
    TokenFile { file: PathBuf, reason: String },
    #[error("{}: {reason}", file.display())]
    Write { file: PathBuf, reason: String },
    #[error("{api} does not speak as turnpiked does: {reason}")]
    Strange { api: String, reason: String },
}

impl Error {
    pub(crate) const fn exit_code(&self) -> u8 {
        match self {
            Self::Refused(_) | Self::NoToken | Self::WrongToken(_) | Self::Strange { .. } => 1,
            Self::TokenFile { .. } | Self::Write { .. } => 2,
            Self::Unreachable { .. } => 3,
        }
    }
}

/// One turnpiked.
pub(crate) struct Client {
    agent: Agent,
    api: String,
    token: Option<(PathBuf, String)>,
}

impl Client {
    pub(crate) fn new(api: &str, token_file: Option<&Path>) -> Result<Self, Error> {
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
        let api = if api.contains("://") {
            api.to_owned()
        } else {
            format!("http://{api}")
        };
        let config = Agent::config_builder()
            .timeout_connect(Some(PATIENCE))
            .timeout_recv_response(Some(PATIENCE))
            .http_status_as_error(false)
            .proxy(None)
            .build();
        let api = api.trim_end_matches('/').to_owned();
        Ok(Self {
            agent: Agent::new_with_config(config),
            api,
            token,
        })
    }

    /// What stands under `/api/v1/`.
    pub(crate) fn get(&self, path: &str) -> Result<Value, Error> {
        self.value_of(self.call(path, Some(PATIENCE))?)
    }

    /// Lines that come under `/api/v1/`, until turnpiked ends them or `each` says so.
    pub(crate) fn lines(
        &self,
        path: &str,
        mut each: impl FnMut(&Value) -> Result<ControlFlow<()>, Error>,
    ) -> Result<(), Error> {
        let response = self.call(path, None)?;
        if !response.status().is_success() {
            return self.value_of(response).map(drop);
        }
        for line in BufReader::new(response.into_body().into_reader()).lines() {
            let strange = |reason: String| Error::Strange {
                api: self.api.clone(),
                reason,
            };
            let line = line.map_err(|error| strange(error.to_string()))?;
            let value = serde_json::from_str(&line).map_err(|_| strange("no JSON".into()))?;
            if each(&value)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// `patience`: for the whole answer.
    fn call(&self, path: &str, patience: Option<Duration>) -> Result<Response<Body>, Error> {
        let request = self.agent.get(format!("{}/api/v1/{path}", self.api));
        let mut request = request.config().timeout_global(patience).build();
        if let Some((_, token)) = &self.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let response = request.call().map_err(|error| Error::Unreachable {
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
        let strange = |reason: String| Error::Strange {
            api: self.api.clone(),
            reason,
        };
        let body = response
            .body_mut()
            .read_to_string()
            .map_err(|e| strange(e.to_string()))?;
        let value: Value =
            serde_json::from_str(&body).map_err(|_| strange(format!("{status}, and no JSON")))?;
        if status.is_success() {
            return Ok(value);
        }
        match value.get("error").and_then(Value::as_str) {
            Some(error) => Err(Error::Refused(error.to_owned())),
            None => Err(strange(status.to_string())),
        }
    }

    /// Up to `limit` sessions, page by page, as one page.
    pub(crate) fn sessions(&self, limit: usize, after: Option<&str>) -> Result<Value, Error> {
        let mut all = Vec::new();
        let mut after = after.map(str::to_owned);
        loop {
            let count = (limit - all.len()).clamp(1, PAGE_MAX);
            let from = after
                .as_ref()
                .map_or(String::new(), |seid| format!("&after={seid}"));
            let mut page = self.get(&format!("sessions?limit={count}{from}"))?;
            if let Some(sessions) = page.get_mut("sessions").and_then(Value::as_array_mut) {
                all.append(sessions);
            }
            after = page.get("next").and_then(Value::as_str).map(str::to_owned);
            if after.is_none() || all.len() >= limit {
                page["sessions"] = Value::Array(all);
                return Ok(page);
            }
        }
    }
}
