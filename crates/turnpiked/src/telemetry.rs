//! PFCP transactions as spans of OpenTelemetry: taken from a queue that the control thread fills, and exported in batches (OTLP over
//! HTTP). It runs in the thread of REST; whatever a collector does, N4 and packets do not hear of it.

mod otlp;
mod span;
mod transaction;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hyper::StatusCode;
use prost::Message;
use sbi::http::Failure;
use sbi::post::{Post, post};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::config::{Config, Telemetry};
use crate::running::{Running, Shared, Spans};

pub(crate) use transaction::{Outcome, Queue, Records, Side, Transaction, queue};

/// Between two looks into the queue: at 8000 transactions a second it is full after one.
const LOOK: Duration = Duration::from_millis(200);
/// Spans of one request.
const BATCH: usize = 512;
/// Time for one request and its answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time for the last of them, while the process ends.
const GOODBYE: Duration = Duration::from_secs(1);
/// The same where another one is to go on with its sessions.
const SHORT_GOODBYE: Duration = Duration::from_millis(100);
const PATH: &str = "/v1/traces";
const PROTOBUF: &str = "application/x-protobuf";

/// A batch that the collector has not taken.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("{0}")]
    Headers(String),
    #[error(transparent)]
    Exchange(#[from] Failure),
    #[error("answers {0}")]
    Status(StatusCode),
    #[error("answers by something else than a collector's words")]
    Rubbish,
}

/// Ends the export.
#[derive(Debug)]
pub(crate) struct Last {
    end: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Last {
    /// Export, from now on.
    pub(crate) fn begin(queue: Queue, running: Shared) -> Self {
        let (end, ended) = oneshot::channel();
        let task = tokio::spawn(export(queue, running, ended));
        Self { end, task }
    }

    /// Export what waits, within a second, or less where sessions wait for the next start.
    pub(crate) async fn finish(self, sessions_wait: bool) {
        let _ = self.end.send(());
        let time = if sessions_wait {
            SHORT_GOODBYE
        } else {
            GOODBYE
        };
        let _ = timeout(time, self.task).await;
    }
}

/// Export by the configuration in effect, until the end.
async fn export(mut queue: Queue, running: Shared, mut end: oneshot::Receiver<()>) {
    let mut follower = running.follow();
    let mut exporter: Option<Exporter> = None;
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let config = follower.config();
        exporter = Exporter::follow(exporter, &config);
        let Some(exporter) = &mut exporter else {
            queue.discard();
            if running.spans().is_some() {
                running.change(|running| running.spans = None);
            }
            tokio::select! {
                is_another = follower.leaves(&config) => match is_another {
                    true => continue,
                    false => return,
                },
                _ = &mut end => return,
            }
        };
        let is_over = tokio::select! {
            is_another = follower.leaves(&config) => !is_another,
            _ = look.tick() => {
                exporter.serve(&mut queue, (&running, &config)).await;
                false
            }
            _ = &mut end => {
                exporter.serve(&mut queue, (&running, &config)).await;
                true
            }
        };
        if is_over {
            return;
        }
    }
}

/// Makes spans and has a collector take them.
#[derive(Debug)]
struct Exporter {
    settings: Telemetry,
    /// Node ID of this UPF.
    instance: String,
    spans: span::Spans,
    counts: Spans,
    /// Its last words were a refusal, which was told of.
    refused: bool,
}

impl Exporter {
    fn follow(exporter: Option<Self>, config: &Config) -> Option<Self> {
        let settings = config.telemetry.as_ref()?;
        let Some(mut exporter) = exporter else {
            return Some(Self {
                settings: settings.clone(),
                instance: config.node.id.to_string(),
                spans: span::Spans::default(),
                counts: Spans::default(),
                refused: false,
            });
        };
        if exporter.settings != *settings {
            exporter.settings = settings.clone();
            exporter.refused = false;
        }
        Some(exporter)
    }

    /// Export all that waits now, until a batch is not taken, or `config` is not in effect any more.
    async fn serve(&mut self, queue: &mut Queue, (running, config): (&Shared, &Arc<Config>)) {
        loop {
            let batch = queue.take(BATCH);
            let taken = batch.is_empty() || self.send(&batch).await;
            self.counts.dropped = queue.dropped();
            let counts = Some(self.counts);
            if running.spans() != counts {
                running.change(|Running { spans, .. }| *spans = counts);
            }
            // Another configuration, or the end, is not to wait behind a collector that says nothing.
            let is_former = !Arc::ptr_eq(&running.config(), config);
            if batch.len() < BATCH || !taken || is_former {
                return;
            }
        }
    }

    /// Whether the collector has taken it.
    async fn send(&mut self, batch: &[Transaction]) -> bool {
        let count = batch.len() as u64;
        let body = self.request(batch).encode_to_vec();
        let result = self.carry(body).await;
        let taken = result.is_ok();
        match result {
            Ok(rejected) => {
                let rejected = rejected.min(count);
                self.counts.failed += rejected;
                self.counts.exported += count - rejected;
                if std::mem::take(&mut self.refused) {
                    tracing::info!(endpoint = %self.settings.endpoint, "telemetry: spans are taken again");
                }
            }
            Err(error) => {
                self.counts.failed += count;
                if !std::mem::replace(&mut self.refused, true) {
                    tracing::warn!(endpoint = %self.settings.endpoint, %error, "telemetry: spans are not taken, and lost until they are");
                }
            }
        }
        taken
    }

    /// How many of them the collector has rejected.
    async fn carry(&self, body: Vec<u8>) -> Result<u64, Refusal> {
        // As they are now: tokens and authorities are renewed.
        let headers = self.settings.headers().map_err(Refusal::Headers)?;
        let tls = self.settings.tls();
        let tls = tls.map_err(|error| Refusal::Headers(error.to_string()))?;
        let request = Post {
            path: PATH,
            content_type: PROTOBUF,
            headers: &headers,
            body: body.into(),
        };
        let answer = post(&self.settings.endpoint, tls.as_ref(), request, PATIENCE).await?;
        if !answer.status.is_success() {
            return Err(Refusal::Status(answer.status));
        }
        let said = otlp::Response::decode(answer.body).map_err(|_| Refusal::Rubbish)?;
        let rejected = said.partial_success.map_or(0, |part| part.rejected_spans);
        Ok(u64::try_from(rejected).unwrap_or(0))
    }

    fn request(&mut self, batch: &[Transaction]) -> otlp::Request {
        // The control thread's clock does not follow changes of the wall clock.
        let wall = SystemTime::now().duration_since(UNIX_EPOCH);
        let wall_ns = wall.map_or(0, |wall| wall.as_nanos() as u64);
        let epoch_ns = wall_ns.wrapping_sub(tables::monotonic_ns());
        let spans = batch.iter().map(|of| self.spans.of(of, epoch_ns)).collect();
        let resource = [
            ("service.name", "turnpike".to_owned()),
            ("service.instance.id", self.instance.clone()),
            ("service.version", cli::RELEASE.to_owned()),
        ];
        let attributes = resource.map(|(key, value)| otlp::KeyValue::new(key, value));
        otlp::Request {
            resource_spans: vec![otlp::ResourceSpans {
                resource: Some(otlp::Resource {
                    attributes: attributes.into(),
                }),
                scope_spans: vec![otlp::ScopeSpans {
                    scope: Some(otlp::Scope {
                        name: "turnpike.pfcp".to_owned(),
                        version: cli::RELEASE.to_owned(),
                    }),
                    spans,
                }],
            }],
        }
    }
}
