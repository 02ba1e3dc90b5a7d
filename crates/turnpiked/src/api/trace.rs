//! Packets of one user, live: lines of JSON until the client leaves or has what it asked for.

use std::borrow::Cow;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Extension, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper::body::{Body as HttpBody, Frame};
use report::trace::Line;
use report::{ErrorBody, SECONDS_MAX, TraceQuery};
use tokio::time::{Sleep, sleep};

use super::serve::Lease;
use super::{Api, Failure, seid_of, teid_of};
use crate::follow::{Refused, Subscription, Whom};

const CONTENT_TYPE: &str = "application/x-ndjson";

fn whom(query: &TraceQuery) -> Result<Whom, Failure> {
    let bad = |error: String| Failure::new(StatusCode::BAD_REQUEST, error);
    match (query.ue, &query.seid, &query.teid) {
        (Some(ue), None, None) => Ok(Whom::Ue(ue)),
        (None, Some(seid), None) => Ok(Whom::Session(seid_of(seid)?)),
        (None, None, Some(text)) => Ok(Whom::Teid(teid_of(text)?)),
        _ => Err(bad(
            "exactly one of ue, seid and teid says whom to follow".into()
        )),
    }
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        let status = match refused {
            Refused::TooMany => StatusCode::SERVICE_UNAVAILABLE,
            Refused::NoSession(_) => StatusCode::NOT_FOUND,
            Refused::Datapath(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, refused.to_string())
    }
}

/// Packets of one user as they come, whatever becomes of them: one JSON object a line, sixteen traces at
/// a time.
#[utoipa::path(get, path = report::TRACE.path(), params(TraceQuery), responses(
    (status = 200, body = Line, content_type = CONTENT_TYPE),
    (status = 400, body = ErrorBody), (status = 404, body = ErrorBody),
    (status = 503, body = ErrorBody)))]
pub(super) async fn trace(
    State(api): State<Api>,
    lease: Option<Extension<Lease>>,
    query: Result<Query<TraceQuery>, QueryRejection>,
) -> Result<Response, Failure> {
    let Query(query) = query?;
    let whom = whom(&query)?;
    let seconds = query.seconds.unwrap_or(SECONDS_MAX);
    if !(1..=SECONDS_MAX).contains(&seconds) || query.count == Some(0) {
        let error = format!("seconds must lie between 1 and {SECONDS_MAX}, count above 0");
        return Err(Failure::new(StatusCode::BAD_REQUEST, error));
    }
    let subscription = api.control.trace(whom).await??;
    let time = Duration::from_secs(seconds.into());
    if let Some(Extension(lease)) = lease {
        lease.extend(time);
    }
    let lines = Lines {
        subscription,
        time: Box::pin(sleep(time)),
        left: query.count.unwrap_or(u64::MAX),
        ended: false,
    };
    Ok(([(header::CONTENT_TYPE, CONTENT_TYPE)], Body::new(lines)).into_response())
}

/// The body of the answer.
struct Lines {
    subscription: Subscription,
    time: Pin<Box<Sleep>>,
    /// Packets still wanted.
    left: u64,
    ended: bool,
}

impl Lines {
    fn next(&mut self, context: &mut Context<'_>) -> Poll<Line> {
        if self.left == 0 {
            return Poll::Ready(Line::Ended {
                why: Cow::Borrowed("count"),
            });
        }
        if self.time.as_mut().poll(context).is_ready() {
            return Poll::Ready(Line::Ended {
                why: Cow::Borrowed("seconds"),
            });
        }
        let line = self.subscription.lines.poll_recv(context);
        line.map(|line| {
            line.unwrap_or(Line::Ended {
                why: Cow::Borrowed("shutdown"),
            })
        })
    }
}

impl HttpBody for Lines {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        self.next(context).map(|line| {
            self.left -= u64::from(matches!(line, Line::Packet(_)));
            self.ended = matches!(line, Line::Ended { .. });
            // A line is numbers and text: nothing in it can fail to be JSON.
            let mut text = serde_json::to_vec(&line).unwrap_or_default();
            text.push(b'\n');
            Some(Ok(Frame::data(text.into())))
        })
    }
}
