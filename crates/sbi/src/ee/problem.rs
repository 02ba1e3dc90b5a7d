//! Refusals in the words of TS 29.500, 5.2.7: a status, a cause, and the attributes that are wrong.

use hyper::StatusCode;
use serde::Serialize;

use crate::http::clipped;

/// Why a request is refused (TS 29.571, ProblemDetails).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    #[serde(serialize_with = "number")]
    status: StatusCode,
    /// One of table 5.2.7.2-1, where one fits.
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<&'static str>,
    detail: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    invalid_params: Vec<InvalidParam>,
}

/// An attribute, by its JSON pointer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct InvalidParam {
    param: String,
    reason: String,
}

fn number<S: serde::Serializer>(status: &StatusCode, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u16(status.as_u16())
}

impl Problem {
    /// Without an attribute.
    pub fn new(status: StatusCode, cause: Option<&'static str>, detail: impl Into<String>) -> Self {
        Self {
            status,
            cause,
            detail: detail.into(),
            invalid_params: Vec::new(),
        }
    }

    /// The body is none that can be read.
    pub fn malformed(detail: &str) -> Self {
        let cause = Some("INVALID_MSG_FORMAT");
        Self::new(StatusCode::BAD_REQUEST, cause, clipped(detail))
    }

    /// A mandatory attribute that is not there.
    pub fn missing(param: &str) -> Self {
        Self::of(Some("MANDATORY_IE_MISSING"), param, "is missing")
    }

    /// A mandatory attribute that cannot be honoured, by its JSON pointer.
    pub fn mandatory(param: &str, reason: impl Into<String>) -> Self {
        Self::of(Some("MANDATORY_IE_INCORRECT"), param, reason)
    }

    /// An optional one.
    pub fn optional(param: &str, reason: impl Into<String>) -> Self {
        Self::of(Some("OPTIONAL_IE_INCORRECT"), param, reason)
    }

    fn of(cause: Option<&'static str>, param: &str, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self {
            invalid_params: vec![InvalidParam {
                param: clipped(param),
                reason: clipped(&reason),
            }],
            ..Self::new(
                StatusCode::BAD_REQUEST,
                cause,
                clipped(&format!("{param}: {reason}")),
            )
        }
    }

    /// The same of what lies below an attribute of the body.
    #[must_use]
    pub fn below(mut self, prefix: &str) -> Self {
        for param in &mut self.invalid_params {
            param.param.insert_str(0, prefix);
            self.detail = format!("{}: {}", param.param, param.reason);
        }
        self
    }

    /// Status of the answer.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// For the log.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// Body of the answer, `application/problem+json`.
    pub fn body(&self) -> Vec<u8> {
        // Texts and numbers always can be written.
        serde_json::to_vec(self).unwrap_or_default()
    }
}
