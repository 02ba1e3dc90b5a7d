//! Connections: so many at a time, each for so long. Those that ask for nothing give way to others.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::http::{Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use nix::sys::socket::{setsockopt, sockopt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, timeout};

use super::Failure;
use super::clients::{Budget, Client, Clients};
use super::refusals::Refusal;
use crate::config;

/// From the first byte of a request, or the last answer, to the end of the next request's header.
const HEADER_TIME: Duration = Duration::from_secs(10);
/// A connection ends after this, whatever it does; clients connect again.
const CONNECTION_TIME: Duration = Duration::from_secs(120);
/// A client that takes nothing of its answer for so long has left, whatever its kernel says: ours closes the connection.
const UNREAD_TIME: Duration = Duration::from_secs(30);
/// Pause when the process has no file descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// From an answer on, which may still have to be sent, until the connection may give way.
const GRACE: Duration = Duration::from_secs(1);
/// Between two looks for a client that could give way.
const LOOK: Duration = Duration::from_millis(50);

/// Connections of programs of this host that are served beside all others, so that nobody keeps operators out.
const LOCAL: usize = 4;
/// Connections that may wait for a place; those beyond are closed.
const WAITING: usize = 64;

/// How many are served.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    connections: usize,
    local: usize,
    client: Budget,
    unread: Duration,
}

impl Limits {
    pub(crate) fn new(config: &config::Api) -> Self {
        Self {
            connections: config.max_connections as usize,
            local: LOCAL,
            unread: UNREAD_TIME,
            client: Budget {
                connections: config.client_connections,
                requests_per_s: config.client_requests_per_s,
            },
        }
    }
}

/// A connection that has no place yet.
struct Visitor {
    stream: TcpStream,
    client: Client,
}

/// Serve until cancelled. Where all places are taken by clients that are being served, further ones wait.
pub(crate) async fn serve(listener: TcpListener, router: Router, limits: Limits) {
    let places = Arc::new(Semaphore::new(limits.connections));
    let of_this_host = Arc::new(Semaphore::new(limits.local));
    let clients = Clients::new(limits.client);
    let idlers = Idlers::default();
    let mut waiting: VecDeque<Visitor> = VecDeque::new();
    loop {
        let first_local = waiting.iter().position(|visitor| visitor.client.is_local());
        let (next, place) = tokio::select! {
            accepted = listener.accept() => {
                match accepted {
                    Ok((stream, from)) => {
                        await_reading(&stream, limits.unread);
                        waiting.extend(visitor(stream, from.ip(), &clients, waiting.len()));
                    }
                    Err(error) => {
                        tracing::debug!(%error, "REST: a connection was not accepted");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                }
                if !waiting.is_empty() && places.available_permits() == 0 {
                    idlers.send_one_away();
                }
                continue;
            }
            Ok(place) = Arc::clone(&places).acquire_owned(), if !waiting.is_empty() => {
                (first_local.unwrap_or(0), place)
            }
            Ok(place) = Arc::clone(&of_this_host).acquire_owned(), if first_local.is_some() => {
                (first_local.unwrap_or(0), place)
            }
            () = tokio::time::sleep(LOOK), if !waiting.is_empty() => {
                idlers.send_one_away();
                continue;
            }
        };
        let Some(visitor) = waiting.remove(next) else {
            continue;
        };
        let router = router.clone();
        let guest = Guest::new(idlers.clone());
        tokio::spawn(async move {
            if !served(visitor, router, guest).await {
                tracing::debug!("REST: a connection ended early");
            }
            drop(place);
        });
    }
}

/// Without it, the trace of a client that never reads would last for a day.
fn await_reading(stream: &TcpStream, time: Duration) {
    let millis = u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
    if let Err(error) = setsockopt(stream, sockopt::TcpUserTimeout, &millis) {
        tracing::debug!(%error, "REST: TCP_USER_TIMEOUT");
    }
}

/// One that may wait for its place; others are told and sent away.
fn visitor(stream: TcpStream, from: IpAddr, clients: &Clients, waiting: usize) -> Option<Visitor> {
    let refusal = match clients.admit(from, Instant::now()) {
        Some(client) if waiting < WAITING || client.is_local() && waiting < 2 * WAITING => {
            return Some(Visitor { stream, client });
        }
        Some(_) => {
            Refusal::Full.count();
            "503 Service Unavailable"
        }
        None => {
            Refusal::Connections.count();
            "429 Too Many Requests"
        }
    };
    tracing::debug!(address = %from, refusal, "REST: a connection too many");
    let answer = format!(
        "HTTP/1.1 {refusal}\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    );
    // Into the empty buffer of a new connection; who does not get it has lost no answer.
    let _ = stream.try_write(answer.as_bytes());
    None
}

/// Connections without a request, by when each may be sent away.
#[derive(Clone, Debug, Default)]
struct Idlers(Arc<Mutex<BTreeMap<Idle, Arc<Notify>>>>);

/// From when on a connection may be sent away, and a number that no other one has.
type Idle = (Instant, u64);

impl Idlers {
    fn locked(&self) -> MutexGuard<'_, BTreeMap<Idle, Arc<Notify>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The one that could have been sent away for the longest time is.
    fn send_one_away(&self) {
        let mut idlers = self.locked();
        if let Some(first) = idlers.first_entry()
            && first.key().0 <= Instant::now()
        {
            first.remove().notify_one();
        }
    }
}

/// One connection, as the others see it.
#[derive(Debug)]
struct Guest {
    idlers: Idlers,
    leave: Arc<Notify>,
    idle: Mutex<Idle>,
}

impl Guest {
    fn new(idlers: Idlers) -> Self {
        static GUESTS: AtomicU64 = AtomicU64::new(0);
        let number = GUESTS.fetch_add(1, Ordering::Relaxed);
        let guest = Self {
            idlers,
            leave: Arc::new(Notify::new()),
            idle: Mutex::new((Instant::now(), number)),
        };
        guest.is_idle(Duration::ZERO);
        guest
    }

    fn is_served(&self) {
        let idle = *self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        self.idlers.locked().remove(&idle);
    }

    /// It asks for nothing; it may stay for so long.
    fn is_idle(&self, grace: Duration) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.0 = Instant::now() + grace;
        self.idlers.locked().insert(*idle, Arc::clone(&self.leave));
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.is_served();
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
async fn served(visitor: Visitor, router: Router, guest: Guest) -> bool {
    let leave = Arc::clone(&guest.leave);
    let lease = Lease::default();
    let mut connection = pin!(connection(visitor, router, lease.clone(), guest));
    let to_its_end = async {
        match timeout(CONNECTION_TIME, connection.as_mut()).await {
            Err(_) if !lease.time().is_zero() => timeout(lease.time(), connection).await,
            result => result,
        }
    };
    tokio::select! {
        result = to_its_end => matches!(result, Ok(Ok(()))),
        () = leave.notified() => false,
    }
}

async fn connection(
    Visitor { stream, client }: Visitor,
    router: Router,
    lease: Lease,
    guest: Guest,
) -> hyper::Result<()> {
    let service = TowerToHyperService::new(router);
    let (guest, client) = (Arc::new(guest), Arc::new(client));
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(lease.clone());
        let (lease, guest) = (lease.clone(), Arc::clone(&guest));
        guest.is_served();
        let answer = match client.asks(Instant::now()) {
            Ok(()) => Ok(service.call(request)),
            Err(wait) => Err(too_many(wait)),
        };
        async move {
            let answer = match answer {
                Ok(answer) => answer.await,
                Err(refusal) => Ok(refusal),
            };
            // With a lease, the answer is still being sent: the connection is not idle.
            if lease.time().is_zero() {
                guest.is_idle(GRACE);
            }
            answer
        }
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME)
        .max_buf_size(16 << 10)
        .serve_connection(TokioIo::new(stream), service)
        .await
}

/// RFC 6585, 4; `Retry-After` is in whole seconds.
fn too_many(wait: Duration) -> Response {
    Refusal::Requests.count();
    let seconds = wait.as_millis().div_ceil(1000).max(1).to_string();
    let error = "more requests per second than one client may send: api.client_requests_per_s";
    let failure = Failure::new(StatusCode::TOO_MANY_REQUESTS, error);
    ([(header::RETRY_AFTER, seconds)], failure).into_response()
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use std::pin::Pin;
    use std::task::{Context, Poll};

    use super::*;
    use axum::Extension;
    use axum::body::{Body, Bytes};
    use axum::routing::get;
    use hyper::body::Frame;
    use lab::netns::{Netns, Prefix};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    fn limits(connections: usize, local: usize) -> Limits {
        let client = Budget {
            connections: 2,
            requests_per_s: 1,
        };
        Limits {
            connections,
            local,
            client,
            unread: UNREAD_TIME,
        }
    }

    /// All octets until the server hangs up.
    async fn heard(mut stream: TcpStream) -> String {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    async fn asking(at: SocketAddr, path: &str) -> TcpStream {
        let mut stream = TcpStream::connect(at).await.unwrap();
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    #[tokio::test]
    async fn no_more_are_served_than_there_are_places() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let (begun, go_on) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let (begins, waits) = (Arc::clone(&begun), Arc::clone(&go_on));
        let slow = async move || {
            begins.add_permits(1);
            waits.acquire().await.unwrap().forget();
            "slow"
        };
        let router = Router::new()
            .route("/slow", get(slow))
            .route("/", get(async || "here"));
        tokio::spawn(serve(listener, router, limits(2, 0)));
        let slow = [asking(at, "/slow").await, asking(at, "/slow").await];
        begun.acquire_many(2).await.unwrap().forget();
        let mut third = tokio::spawn(heard(asking(at, "/").await));
        assert!(timeout(4 * LOOK, &mut third).await.is_err(), "too early");
        go_on.add_permits(2);
        for answer in slow.map(heard) {
            assert!(answer.await.ends_with("slow"), "nobody was sent away");
        }
        assert!(third.await.unwrap().ends_with("here"));
    }

    /// A server on all addresses of a host that has another one than loopback, and connections from there.
    async fn from_elsewhere(netns: &Netns, at: SocketAddr) -> TcpStream {
        let stream = netns.enter(|| Ok(std::net::TcpStream::connect(at)?));
        let stream = stream.unwrap();
        stream.set_nonblocking(true).unwrap();
        TcpStream::from_std(stream).unwrap()
    }

    #[tokio::test]
    async fn one_client_is_told_to_wait_and_others_are_served() {
        let netns = Netns::create(&Prefix::unique(), "rest").unwrap();
        netns
            .ip("link set lo up\naddr add 192.0.2.1/32 dev lo\naddr add 192.0.2.2/32 dev lo")
            .unwrap();
        let listener = netns.enter(|| Ok(std::net::TcpListener::bind("0.0.0.0:0")?));
        let listener = listener.unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let listener = TcpListener::from_std(listener).unwrap();
        let router = Router::new().route("/", get(async || "here"));
        tokio::spawn(serve(listener, router, limits(2, 1)));
        let [one, other, local] = ["192.0.2.1", "192.0.2.2", "127.0.0.1"]
            .map(|host| SocketAddr::new(host.parse().unwrap(), port));
        // A request to an address of this host comes from that same address.
        let ask = async |at: SocketAddr| {
            let mut stream = from_elsewhere(&netns, at).await;
            let request = b"GET / HTTP/1.1\r\nHost: upf\r\nConnection: close\r\n\r\n";
            stream.write_all(request).await.unwrap();
            heard(stream).await
        };
        // Two at once, of a rate of one per second; the third is told.
        for _ in 0..2 {
            assert!(ask(one).await.ends_with("here"));
        }
        let refused = ask(one).await;
        assert!(refused.starts_with("HTTP/1.1 429 "), "{refused}");
        assert!(refused.contains("\r\nretry-after: 1\r\n"), "{refused}");
        assert!(ask(other).await.ends_with("here"));
        for _ in 0..10 {
            assert!(ask(local).await.ends_with("here"));
        }
        // All connections that it may have, which are all that there are; a further one is told at once.
        let _held = [
            from_elsewhere(&netns, one).await,
            from_elsewhere(&netns, one).await,
        ];
        let refused = heard(from_elsewhere(&netns, one).await).await;
        assert!(refused.starts_with("HTTP/1.1 429 "), "{refused}");
        for _ in 0..10 {
            assert!(ask(local).await.ends_with("here"));
        }
    }

    #[tokio::test]
    async fn those_that_ask_for_nothing_give_way() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let router = Router::new().route("/", get(async || "here"));
        tokio::spawn(serve(listener, router, limits(2, 0)));
        let mut silent = Vec::new();
        for _ in 0..200 {
            silent.push(TcpStream::connect(at).await.unwrap());
        }
        let answer = heard(asking(at, "/").await).await;
        assert!(answer.ends_with("here"), "{answer}");
        assert_eq!(heard(silent.swap_remove(0)).await, "", "it was sent away");
    }

    /// A body without end, which says when it is given up.
    struct Endless(Arc<Notify>);

    impl hyper::body::Body for Endless {
        type Data = Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
            Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[b'x'; 4096])))))
        }
    }

    impl Drop for Endless {
        fn drop(&mut self) {
            self.0.notify_one();
        }
    }

    #[tokio::test]
    async fn a_client_that_never_reads_is_sent_away_and_others_are_served_meanwhile() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let given_up = Arc::new(Notify::new());
        let body = Arc::clone(&given_up);
        let endless = async move |Extension(lease): Extension<Lease>| {
            lease.extend(Duration::from_secs(86_400));
            Body::new(Endless(body))
        };
        let router = Router::new()
            .route("/endless", get(endless))
            .route("/", get(async || "here"));
        let limits = Limits {
            unread: Duration::from_secs(1),
            ..limits(2, 0)
        };
        tokio::spawn(serve(listener, router, limits));
        let _unread = asking(at, "/endless").await;
        assert!(heard(asking(at, "/").await).await.ends_with("here"));
        let never = Duration::from_secs(60);
        timeout(never, given_up.notified()).await.unwrap();
        assert!(heard(asking(at, "/").await).await.ends_with("here"));
    }

    #[tokio::test]
    async fn an_endless_header_is_not_read_for_ever() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        tokio::spawn(serve(listener, Router::new(), limits(2, 0)));
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
