//! Connections: so many at a time, each for so long.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// From the first byte of a request, or the last answer, to the end of the next request's header.
const HEADER_TIME: Duration = Duration::from_secs(10);
/// A connection ends after this, whatever it does; clients connect again.
const CONNECTION_TIME: Duration = Duration::from_secs(120);
/// Pause when the process has no file descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serve until cancelled. Further clients wait in the listener's queue.
pub(crate) async fn serve(listener: TcpListener, router: Router, max_connections: usize) {
    let places = Arc::new(Semaphore::new(max_connections));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::debug!(%error, "REST: a connection was not accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let router = router.clone();
        tokio::spawn(async move {
            let served = tokio::time::timeout(CONNECTION_TIME, connection(stream, router)).await;
            if !matches!(served, Ok(Ok(()))) {
                tracing::debug!("REST: a connection ended early");
            }
            drop(place);
        });
    }
}

async fn connection(stream: TcpStream, router: Router) -> hyper::Result<()> {
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME)
        .max_buf_size(16 << 10)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
        .await
}
