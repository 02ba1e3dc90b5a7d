//! Why an NRF did not grant a request.

use std::time::Duration;

use hyper::StatusCode;

use crate::http::Failure;

/// A request that an NRF did not grant, or did not get.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// There was no answer.
    #[error(transparent)]
    Failure(#[from] Failure),
    /// An answer that says no.
    #[error("{status}{}", of_problem(problem.as_deref()))]
    Status {
        /// 4xx, 5xx.
        status: StatusCode,
        /// Its ProblemDetails (TS 29.571, 5.2.4.1), as one line.
        problem: Option<String>,
        /// Time for which it wants to hear nothing.
        retry_after: Option<Duration>,
    },
    /// An answer that cannot be understood.
    #[error("an answer that is none: {0}")]
    Rubbish(String),
    /// No token was given.
    #[error("access token: {0}")]
    Token(Box<Refusal>),
}

fn of_problem(problem: Option<&str>) -> String {
    problem.map_or(String::new(), |problem| format!(": {problem:?}"))
}

impl Refusal {
    /// Its kind: a refusal of the same kind as the last is no news.
    pub fn kind(&self) -> (u8, u16) {
        match self {
            Self::Failure(failure) => match failure {
                Failure::Unreachable(_) => (0, 0),
                Failure::Tls(_) => (0, 1),
                Failure::NoHttp2 => (0, 2),
                Failure::Http(_) => (0, 3),
                Failure::TooLong => (0, 4),
                Failure::Late => (0, 5),
                Failure::Redirected(_) => (0, 6),
                Failure::NoRequest(_) => (0, 7),
                Failure::Elsewhere(_) => (0, 8),
            },
            Self::Status { status, .. } => (1, status.as_u16()),
            Self::Rubbish(_) => (2, 0),
            Self::Token(refusal) => (3 + refusal.kind().0, refusal.kind().1),
        }
    }

    pub(super) fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Status { status, .. } => Some(*status),
            _ => None,
        }
    }

    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            Self::Token(refusal) => refusal.retry_after(),
            _ => None,
        }
    }
}
