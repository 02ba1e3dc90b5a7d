//! Connections of consumers: HTTP/2, in clear by prior knowledge or over TLS. So many at a time, each for so long.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::Exposure;
use super::requests::answer;
use crate::api::clients::{Budget, Client, Clients};

/// Connections at a time; further ones are closed.
const CONNECTIONS: usize = 64;
/// Of one consumer.
const BUDGET: Budget = Budget {
    connections: 8,
    requests_per_s: 50,
};
/// From a connection to the end of its handshake of TLS.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// A connection takes requests for so long; consumers connect again.
const CONNECTION: Duration = Duration::from_secs(120);
/// Then, for those that are under way.
const GRACE: Duration = Duration::from_secs(5);
/// Requests of one connection at a time.
const STREAMS: u32 = 16;
/// Octets of the headers of a request.
const HEADERS_MAX: u32 = 16 << 10;
/// Octets of a request that come before they are asked for.
const WINDOW: u32 = 64 << 10;
/// Octets that wait to be sent on one connection, for each request.
const SEND_BUFFER: usize = 64 << 10;
/// Pause when the process has no file descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Until it is tried again to listen.
const LISTEN_PAUSE: Duration = Duration::from_secs(5);

/// Serve until cancelled, at the address of the settings as they are now.
pub(super) async fn serve(exposure: Arc<Exposure>) {
    let listener = listen(&exposure).await;
    let clients = Clients::new(BUDGET);
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
        };
        let (stream, from) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!(%error, "nupf: a connection was not accepted");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        if !exposure.state().settings.allows(from.ip()) {
            tracing::debug!(address = %from, "nupf: a connection from outside nupf.allow");
            continue;
        }
        let client = clients.admit(from.ip(), Instant::now());
        let (Some(client), Ok(place)) = (client, Arc::clone(&places).try_acquire_owned()) else {
            tracing::debug!(address = %from, "nupf: a connection too many");
            continue;
        };
        let exposure = Arc::clone(&exposure);
        connections.spawn(async move {
            if let Err(error) = welcome(stream, (from, client), exposure).await {
                tracing::debug!(address = %from, %error, "nupf: a connection ended early");
            }
            drop(place);
        });
    }
}

async fn listen(exposure: &Exposure) -> TcpListener {
    loop {
        let at = exposure.state().settings.listen;
        let (listener, trouble) = match TcpListener::bind(at).await {
            Ok(listener) => (Some(listener), None),
            Err(error) => (None, Some(format!("nupf.listen = {at}: {error}"))),
        };
        let was = std::mem::replace(&mut exposure.state().shown.trouble, trouble.clone());
        exposure.show();
        match (listener, trouble) {
            (Some(listener), _) => {
                tracing::info!(%at, "nupf: consumers are served");
                return listener;
            }
            (None, trouble) if trouble != was => {
                let error = trouble.unwrap_or_default();
                tracing::error!(%error, "nupf: not served; it is tried again");
            }
            _ => {}
        }
        sleep(LISTEN_PAUSE).await;
    }
}

async fn welcome(
    stream: TcpStream,
    of: (SocketAddr, Client),
    exposure: Arc<Exposure>,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (is_tls, tls) = {
        let mut state = exposure.state();
        let is_tls = state.settings.is_tls();
        (is_tls, state.certificates().server.clone())
    };
    match tls.filter(|_| is_tls) {
        None if is_tls => Err(io::Error::other("no certificate could be read")),
        None => serve_connection(stream, of, exposure).await,
        Some(tls) => {
            let shaken = timeout(HANDSHAKE, tls.acceptor().accept(stream)).await;
            serve_connection(shaken.map_err(io::Error::other)??, of, exposure).await
        }
    }
}

async fn serve_connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    (from, client): (SocketAddr, Client),
    exposure: Arc<Exposure>,
) -> io::Result<()> {
    let client = Arc::new(client);
    let service = service_fn(move |request: Request<Incoming>| {
        let (exposure, client) = (Arc::clone(&exposure), Arc::clone(&client));
        async move {
            let budget = client.asks(Instant::now());
            let answered: Response<_> = answer(&exposure, (from.ip(), budget), request).await;
            Ok::<_, Infallible>(answered)
        }
    });
    let connection = Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(HEADERS_MAX)
        .max_send_buf_size(SEND_BUFFER)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(4 * WINDOW)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    if let Ok(ended) = timeout(CONNECTION, connection.as_mut()).await {
        return ended.map_err(io::Error::other);
    }
    connection.as_mut().graceful_shutdown();
    let ended = timeout(GRACE, connection).await;
    ended.map_err(io::Error::other)?.map_err(io::Error::other)
}
