//! Connections: so many at a time, each for so long. Those that ask for nothing give way to others.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

/// From the first byte of a request, or the last answer, to the end of the next request's header.
const HEADER_TIME: Duration = Duration::from_secs(10);
/// A connection ends after this, whatever it does; clients connect again.
const CONNECTION_TIME: Duration = Duration::from_secs(120);
/// Pause when the process has no file descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// From an answer on, which may still have to be sent, until the connection may give way.
const GRACE: Duration = Duration::from_secs(1);
/// Between two looks for a client that could give way.
const LOOK: Duration = Duration::from_millis(50);

/// Serve until cancelled. Where all places are taken by clients that are being served, further ones wait in the
/// listener's queue.
pub(crate) async fn serve(listener: TcpListener, router: Router, max_connections: usize) {
    let places = Arc::new(Semaphore::new(max_connections));
    let idlers = Idlers::default();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::debug!(%error, "REST: a connection was not accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Some(place) = place_for_another(&places, &idlers).await else {
            return;
        };
        let router = router.clone();
        let guest = Guest::new(idlers.clone());
        tokio::spawn(async move {
            if !served(stream, router, guest).await {
                tracing::debug!("REST: a connection ended early");
            }
            drop(place);
        });
    }
}

/// A place, if need be that of the client which has asked for nothing for the longest time. `None`: there are none any
/// more.
async fn place_for_another(
    places: &Arc<Semaphore>,
    idlers: &Idlers,
) -> Option<OwnedSemaphorePermit> {
    loop {
        if let Ok(place) = Arc::clone(places).try_acquire_owned() {
            return Some(place);
        }
        idlers.send_one_away();
        match timeout(LOOK, Arc::clone(places).acquire_owned()).await {
            Ok(place) => return place.ok(),
            Err(_) => continue,
        }
    }
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
async fn served(stream: TcpStream, router: Router, guest: Guest) -> bool {
    let leave = Arc::clone(&guest.leave);
    let lease = Lease::default();
    let mut connection = pin!(connection(stream, router, lease.clone(), guest));
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
    stream: TcpStream,
    router: Router,
    lease: Lease,
    guest: Guest,
) -> hyper::Result<()> {
    let service = TowerToHyperService::new(router);
    let guest = Arc::new(guest);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(lease.clone());
        let (lease, guest) = (lease.clone(), Arc::clone(&guest));
        guest.is_served();
        let answer = service.call(request);
        async move {
            let answer = answer.await;
            // What has a lease goes on to send.
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

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// What comes until the server hangs up.
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
        tokio::spawn(serve(listener, router, 2));
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

    #[tokio::test]
    async fn those_that_ask_for_nothing_give_way() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let router = Router::new().route("/", get(async || "here"));
        tokio::spawn(serve(listener, router, 2));
        let mut silent = Vec::new();
        for _ in 0..200 {
            silent.push(TcpStream::connect(at).await.unwrap());
        }
        let answer = heard(asking(at, "/").await).await;
        assert!(answer.ends_with("here"), "{answer}");
        assert_eq!(heard(silent.swap_remove(0)).await, "", "it was sent away");
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
