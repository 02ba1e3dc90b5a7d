//! Collector that hears of PFCP transactions.

use std::fs;
use std::path::{Path, PathBuf};

use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use sbi::{BadTls, Server, Tls};
use serde::{Deserialize, Serialize};

use super::{Config, Problem};

/// Headers of one file.
const HEADERS_MAX: usize = 32;
/// Octets of it.
const FILE_MAX: u64 = 16 << 10;

/// Export of spans (OTLP over HTTP).
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Telemetry {
    pub(crate) endpoint: Server,
    #[serde(default = "Telemetry::ratio")]
    pub(crate) ratio: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) headers_file: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ca_file: Option<PathBuf>,
}

impl Telemetry {
    const fn ratio() -> f64 {
        1.0
    }

    /// `None`: no authorities are named.
    pub(crate) fn tls(&self) -> Result<Option<Tls>, BadTls> {
        let authorities = self.ca_file.as_deref();
        let read = authorities.map(|authorities| Tls::read(authorities, None));
        read.transpose()
    }

    /// Headers of each request beside those of HTTP itself.
    pub(crate) fn headers(&self) -> Result<HeaderMap, String> {
        match &self.headers_file {
            Some(path) => read_headers(path),
            None => Ok(HeaderMap::new()),
        }
    }
}

fn read_headers(path: &Path) -> Result<HeaderMap, String> {
    let length = fs::metadata(path).map_err(|error| error.to_string())?.len();
    if length > FILE_MAX {
        return Err(format!("holds more than {FILE_MAX} octets"));
    }
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    let mut headers = HeaderMap::new();
    let lines = (1..).zip(text.lines().map(str::trim));
    for (number, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        // The line may be a secret, and is not repeated.
        let wrong = || format!("line {number} is no header, such as: Authorization: Bearer TOKEN");
        let (name, value) = line.split_once(':').ok_or_else(wrong)?;
        let name: HeaderName = name.trim().parse().map_err(|_| wrong())?;
        let mut value: HeaderValue = value.trim().parse().map_err(|_| wrong())?;
        let of_http = [
            header::CONNECTION,
            header::CONTENT_LENGTH,
            header::CONTENT_TYPE,
            header::HOST,
            header::TRANSFER_ENCODING,
        ];
        if of_http.contains(&name) {
            return Err(format!("line {number}: {name} is HTTP's own"));
        }
        if headers.len() == HEADERS_MAX {
            return Err(format!("holds more than {HEADERS_MAX} headers"));
        }
        value.set_sensitive(true);
        headers.append(name, value);
    }
    Ok(headers)
}

pub(super) fn check(config: &Config, problems: &mut Vec<Problem>) {
    let Some(telemetry) = &config.telemetry else {
        return;
    };
    if telemetry.endpoint.is_tls() && telemetry.ca_file.is_none() {
        let reason = "https wants telemetry.ca_file, with the authorities of its certificate";
        let problem = Problem::new("telemetry.endpoint", &telemetry.endpoint, reason);
        problems.push(problem);
    }
    if !(0.0..=1.0).contains(&telemetry.ratio) {
        let reason = "must be 0.0 to 1.0";
        let problem = Problem::new("telemetry.ratio", telemetry.ratio.to_string(), reason);
        problems.push(problem);
    }
    if let Err(reason) = telemetry.headers() {
        let problem = Problem::new("telemetry.headers_file", &telemetry.headers_file, reason);
        problems.push(problem);
    }
    if let Err(error) = telemetry.tls() {
        let reason = error.to_string();
        problems.push(Problem::new(
            "telemetry.ca_file",
            &telemetry.ca_file,
            reason,
        ));
    }
}

/// As `check-config` says it.
pub(super) fn understood(config: &Config) -> Option<String> {
    let telemetry = config.telemetry.as_ref()?;
    let share = telemetry.ratio * 100.0;
    Some(format!(
        "telemetry: {share} % of PFCP transactions are told to {}",
        telemetry.endpoint
    ))
}
