//! Requests that change something, and what they would change.
//!
//! They want a token, also where reading wants none: `api.token_file`'s, or that of `api.json` in the runtime directory. A browser sends
//! no such header by itself; pages of other origins are refused before.

use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{post, put};
use axum::{Json, Router};
use report::{ErrorBody, LogBody, ReloadReport};
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error as ValueError, StrDeserializer};

use super::{Api, Failure, authorized};
use crate::config::LogLevel;
use crate::logging;

/// Octets of a configuration.
const TEXT_MAX: usize = 1 << 20;

pub(super) fn routes(api: &Api) -> Router<Api> {
    Router::new()
        .route(report::RELOAD.path(), post(reload))
        .route(report::CONFIG_DIFF.path(), post(config_diff))
        .route(report::LOG.path(), put(set_log_level))
        .layer(DefaultBodyLimit::max(TEXT_MAX))
        .layer(middleware::from_fn_with_state(api.clone(), may_change))
}

async fn may_change(State(api): State<Api>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    let Some(token) = api.running.now().token_to_change else {
        let error = "nobody may change anything: set api.token_file";
        return Failure::new(StatusCode::FORBIDDEN, error).into_response();
    };
    if !authorized(Some(&token), headers) {
        let failure = Failure::new(
            StatusCode::UNAUTHORIZED,
            "to change something takes a token: of api.token_file, or of api.json in turnpiked's runtime directory",
        );
        return ([(header::WWW_AUTHENTICATE, "Bearer")], failure).into_response();
    }
    next.run(request).await
}

/// Read the file of the configuration again, and bring into force what it says: all of it or nothing. `taking over`: the program
/// starts anew in the same process after this answer, and `status` says what came of it under this number.
#[utoipa::path(post, path = report::RELOAD.path(), responses(
    (status = 200, body = ReloadReport), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody),
    (status = 409, body = ErrorBody, description = "Refused: nothing has changed")))]
pub(super) async fn reload(State(api): State<Api>) -> Result<Json<ReloadReport>, Failure> {
    let reloader = api.reloader;
    // The client may go away, or the time for an answer be over: a reload that has begun goes to its end.
    let reload = tokio::spawn(async move { reloader.reload().await });
    let report = reload
        .await
        .map_err(|error| Failure::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    match report.outcome.as_str() {
        ReloadReport::REFUSED => {
            let reasons = report.reasons.join("\n");
            Err(Failure::new(StatusCode::CONFLICT, reasons))
        }
        _ => Ok(Json(report)),
    }
}

/// Judge the configuration in the request's body as a reload does, and do nothing.
#[utoipa::path(post, path = report::CONFIG_DIFF.path(), request_body(content = String, content_type = "application/toml"),
    responses((status = 200, body = ReloadReport), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody)))]
pub(super) async fn config_diff(State(api): State<Api>, text: String) -> Json<ReloadReport> {
    Json(api.reloader.consider(text).await)
}

/// Another level of the log, until the next start or reload.
#[utoipa::path(put, path = report::LOG.path(), request_body = LogBody, responses(
    (status = 200, body = LogBody), (status = 400, body = ErrorBody), (status = 401, body = ErrorBody),
    (status = 403, body = ErrorBody)))]
pub(super) async fn set_log_level(
    State(api): State<Api>,
    Json(body): Json<LogBody>,
) -> Result<Json<LogBody>, Failure> {
    let name: StrDeserializer<'_, ValueError> = body.level.as_str().into_deserializer();
    let level = LogLevel::deserialize(name).map_err(|_| {
        let error = format!(
            "level = {:?}: must be error, warn, info, debug or trace",
            body.level
        );
        Failure::new(StatusCode::BAD_REQUEST, error)
    })?;
    tracing::warn!(level = body.level, "the log has another level");
    logging::set_level(level);
    api.running.set_log_level(level);
    Ok(Json(body))
}
