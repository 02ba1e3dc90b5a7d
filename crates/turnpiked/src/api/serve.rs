//! Connections: so many at a time, each for so long.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

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
            if !served(stream, router).await {
                tracing::debug!("REST: a connection ended early");
            }
            drop(place);
        });
    }
}

/// More time for a connection than others have, from the end of that on.
#[derive(Clone, Debug, Default)]
pub(super) struct Lease(Arc<AtomicU64>);

impl Lease {
    pub(super) fn extend(&self, time: Duration) {
        self.0.fetch_max(time.as_secs(), Ordering::Relaxed);
    }

    fn time(&self) -> Duration {
        Duration::from_secs(self.0.load(Ordering::Relaxed))
    }
}

/// False when the connection ended early.
async fn served(stream: TcpStream, router: Router) -> bool {
    let lease = Lease::default();
    let mut connection = pin!(connection(stream, router, lease.clone()));
    let result = match timeout(CONNECTION_TIME, connection.as_mut()).await {
        Err(_) if !lease.time().is_zero() => timeout(lease.time(), connection).await,
        result => result,
    };
    matches!(result, Ok(Ok(())))
}

async fn connection(stream: TcpStream, router: Router, lease: Lease) -> hyper::Result<()> {
    let service = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(lease.clone());
        service.call(request)
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME)
        .max_buf_size(16 << 10)
        .serve_connection(TokioIo::new(stream), service)
        .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: upf\r\nConnection: close\r\n\r\n";

    #[tokio::test]
    async fn no_more_connections_than_places() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let router = Router::new().route("/", get(async || "here"));
        tokio::spawn(serve(listener, router, 2));
        let idle = [
            TcpStream::connect(at).await.unwrap(),
            TcpStream::connect(at).await.unwrap(),
        ];
        let mut third = TcpStream::connect(at).await.unwrap();
        third.write_all(REQUEST).await.unwrap();
        let mut answer = String::new();
        let early = third.read_to_string(&mut answer);
        assert!(
            tokio::time::timeout(Duration::from_millis(300), early)
                .await
                .is_err()
        );
        drop(idle);
        third.read_to_string(&mut answer).await.unwrap();
        assert!(answer.ends_with("here"), "{answer}");
    }

    #[tokio::test]
    async fn an_endless_header_is_not_read_for_ever() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        tokio::spawn(serve(listener, Router::new(), 2));
        let mut stream = TcpStream::connect(at).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
        // The server hangs up long before this has been sent.
        let mut sent = 0;
        while sent < 64 << 20
            && stream
                .write_all(b"X: aaaaaaaaaaaaaaaaaaaaaaaa\r\n")
                .await
                .is_ok()
        {
            sent += 27;
        }
        assert!(sent < 64 << 20);
    }
}
