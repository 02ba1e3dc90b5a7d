//! One exchange over HTTP/2 (TS 29.500, 5.2): a connection, a request or some, answers, and the end.
//!
//! A connection serves one exchange, or the notifications of one report. Heartbeats are seconds apart, and a connection that stays would be one more thing
//! that a peer can fill, stall or cut.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::rt::Executor;
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use ipnet::IpNet;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::{Callback, Server, Tls};

/// Octets of one answer's body.
///
/// NRFs answer with the profile that they were told, which has all pools once for each slice.
pub const BODY_MAX: usize = 512 << 10;
/// Octets of the headers of an answer.
const HEADERS_MAX: u32 = 16 << 10;
/// Octets of a connection, whatever they are: frames may come without end and belong to no answer.
const CONNECTION_MAX: usize = 1 << 20;
/// Servers that an answer may lead on to.
const REDIRECTIONS: usize = 3;

/// An exchange without an answer.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// No connection.
    #[error("{0}")]
    Unreachable(io::Error),
    /// No protected connection.
    #[error("TLS: {0}")]
    Tls(io::Error),
    /// It does not offer HTTP/2 in TLS.
    #[error("speaks no HTTP/2 (ALPN)")]
    NoHttp2,
    /// HTTP was broken, or its end came too early.
    #[error("HTTP: {0}")]
    Http(String),
    /// More octets than an answer may have.
    #[error("an answer of more than {BODY_MAX} octets")]
    TooLong,
    /// It took longer than it may.
    #[error("no answer in time")]
    Late,
    /// An answer leads elsewhere, too often or not to where we go.
    #[error("leads on to {0:?}")]
    Redirected(String),
    /// An address that nobody is to be told at.
    #[error("{0} is no address of those that may be asked")]
    Elsewhere(IpAddr),
    /// A request that cannot be written.
    #[error("{0}")]
    NoRequest(String),
}

/// A request below the root of a server.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) content_type: &'static str,
    pub(crate) body: Bytes,
    pub(crate) bearer: Option<String>,
    /// Name of a notification.
    pub(crate) callback: Option<&'static str>,
}

/// An answer to a request.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its status, whatever that is.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body, of at most [`BODY_MAX`] octets.
    pub body: Bytes,
}

/// Ask a server, and whoever it leads on to, within this time.
pub(crate) async fn ask(
    server: &Server,
    tls: Option<&Tls>,
    ask: &Ask,
    time: Duration,
) -> Result<Answer, Failure> {
    let answered = tokio::time::timeout(time, follow(server, tls, ask));
    answered.await.unwrap_or(Err(Failure::Late))
}

async fn follow(server: &Server, tls: Option<&Tls>, ask: &Ask) -> Result<Answer, Failure> {
    let first = server.uri(&ask.path);
    let mut uri = first.ok_or_else(|| Failure::NoRequest(format!("{}{}", server, ask.path)))?;
    let mut server = server.clone();
    for _ in 0..=REDIRECTIONS {
        let answer = exchange(&server, tls, &uri, ask).await?;
        if !leads_on(answer.status) {
            return Ok(answer);
        }
        let location = answer.headers.get(header::LOCATION);
        let location = location.and_then(|value| value.to_str().ok()).unwrap_or("");
        let led = server.redirected(&uri, location);
        (server, uri) = led.ok_or_else(|| Failure::Redirected(clipped(location)))?;
    }
    Err(Failure::Redirected(clipped(&uri.to_string())))
}

/// Have a consumer take some bodies of JSON, one after the other over one connection: each within this time, at addresses of
/// `within` alone, and under the name of such notifications. How many it has taken, and the status that the next one got, or that of the last.
pub async fn tell(
    (callback, name): (&Callback, &'static str),
    tls: Option<&Tls>,
    within: &[IpNet],
    bodies: impl Iterator<Item = Bytes>,
    time: Duration,
) -> (usize, Result<StatusCode, Failure>) {
    let mut telling = Telling {
        callback: callback.clone(),
        name,
        connection: None,
        redirections: 0,
    };
    let (mut taken, mut status) = (0, StatusCode::NO_CONTENT);
    for body in bodies {
        let told = tokio::time::timeout(time, telling.tell(tls, within, body));
        match told.await.unwrap_or(Err(Failure::Late)) {
            Ok(answered) if answered.is_success() => (taken, status) = (taken + 1, answered),
            refused => return (taken, refused),
        }
    }
    (taken, Ok(status))
}

/// A consumer's callback, and the connection to it.
struct Telling {
    callback: Callback,
    name: &'static str,
    connection: Option<Connection>,
    redirections: usize,
}

impl Telling {
    async fn tell(
        &mut self,
        tls: Option<&Tls>,
        within: &[IpNet],
        body: Bytes,
    ) -> Result<StatusCode, Failure> {
        let ask = Ask {
            method: Method::POST,
            path: String::new(),
            content_type: "application/json",
            body,
            bearer: None,
            callback: Some(self.name),
        };
        loop {
            let answer = self.exchange(tls, within, &ask).await?;
            if !leads_on(answer.status) {
                return Ok(answer.status);
            }
            let location = answer.headers.get(header::LOCATION);
            let location = location.and_then(|value| value.to_str().ok()).unwrap_or("");
            let led = self.callback.redirected(location);
            self.redirections += 1;
            let led = led.filter(|_| self.redirections <= REDIRECTIONS);
            self.callback = led.ok_or_else(|| Failure::Redirected(clipped(location)))?;
            self.connection = None;
        }
    }

    async fn exchange(
        &mut self,
        tls: Option<&Tls>,
        within: &[IpNet],
        ask: &Ask,
    ) -> Result<Answer, Failure> {
        let Callback { server, uri } = &self.callback;
        let request = request(uri, ask).map_err(|error| Failure::NoRequest(error.to_string()))?;
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(connect(server, tls, Some(within)).await?),
        };
        let answer = connection.sender.send_request(request).await;
        read(answer.map_err(http_failure)?).await
    }
}

fn leads_on(status: StatusCode) -> bool {
    [
        StatusCode::TEMPORARY_REDIRECT,
        StatusCode::PERMANENT_REDIRECT,
    ]
    .contains(&status)
}

/// A text of a peer, as long as a line may be.
pub(crate) fn clipped(text: &str) -> String {
    text.chars().take(200).collect()
}

async fn exchange(
    server: &Server,
    tls: Option<&Tls>,
    uri: &Uri,
    ask: &Ask,
) -> Result<Answer, Failure> {
    let request = request(uri, ask).map_err(|error| Failure::NoRequest(error.to_string()))?;
    let mut connection = connect(server, tls, None).await?;
    let answer = connection.sender.send_request(request).await;
    read(answer.map_err(http_failure)?).await
}

/// An answer with its body, within bounds.
pub(crate) async fn read(answer: Response<Incoming>) -> Result<Answer, Failure> {
    let (parts, body) = answer.into_parts();
    let body = Limited::new(body, BODY_MAX).collect().await;
    let body =
        body.map_err(
            |error| match error.downcast_ref::<http_body_util::LengthLimitError>() {
                Some(_) => Failure::TooLong,
                None => Failure::Http(clipped(&error.to_string())),
            },
        )?;
    Ok(Answer {
        status: parts.status,
        headers: parts.headers,
        body: body.to_bytes(),
    })
}

pub(crate) fn http_failure(error: hyper::Error) -> Failure {
    use std::error::Error;
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = inner.to_string();
        cause = inner.source();
    }
    Failure::Http(clipped(&text))
}

fn request(uri: &Uri, ask: &Ask) -> hyper::http::Result<Request<Full<Bytes>>> {
    // TS 29.500, table 5.2.2.2-1: servers tell types of NFs by it.
    let mut request = Request::builder()
        .method(&ask.method)
        .uri(uri)
        .header(header::USER_AGENT, "UPF")
        .header(header::ACCEPT, "application/json, application/problem+json");
    if !ask.body.is_empty() {
        request = request
            .header(header::CONTENT_TYPE, ask.content_type)
            .header(header::CONTENT_LENGTH, ask.body.len());
    }
    if let Some(name) = ask.callback {
        request = request.header("3gpp-sbi-callback", name);
    }
    if let Some(token) = &ask.bearer {
        let mut value = HeaderValue::try_from(format!("Bearer {token}"))?;
        value.set_sensitive(true);
        request = request.header(header::AUTHORIZATION, value);
    }
    request.body(Full::new(ask.body.clone()))
}

/// Open for as long as this is there.
struct Connection {
    sender: SendRequest<Full<Bytes>>,
    tasks: Tasks,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.tasks.locked().abort_all();
    }
}

/// All that a connection does beside whoever asks: a body that the peer does not take would keep it open.
#[derive(Clone, Default)]
struct Tasks(Arc<Mutex<JoinSet<()>>>);

impl Tasks {
    fn locked(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Tasks {
    fn execute(&self, task: F) {
        self.locked().spawn(task);
    }
}

async fn connect(
    server: &Server,
    tls: Option<&Tls>,
    within: Option<&[IpNet]>,
) -> Result<Connection, Failure> {
    let stream = reach(server, within).await?;
    if !server.is_tls() {
        return handshake(stream).await;
    }
    let missing = || Failure::Tls(io::Error::other("no authorities are configured"));
    let config = tls.ok_or_else(missing)?.0.clone();
    let stream = protect(server, config, stream).await?;
    if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
        return Err(Failure::NoHttp2);
    }
    handshake(stream).await
}

/// A connection without protection yet. `within`: to an address of these alone.
pub(crate) async fn reach(server: &Server, within: Option<&[IpNet]>) -> Result<Bounded, Failure> {
    let to = (server.host(), server.port());
    let stream = match within {
        None => TcpStream::connect(to).await,
        Some(within) => {
            let found = lookup_host(to).await.map_err(Failure::Unreachable)?;
            let found: Vec<SocketAddr> = found.collect();
            let may = |at: &&SocketAddr| is_within(at.ip(), within);
            let allowed: Vec<SocketAddr> = found.iter().filter(may).copied().collect();
            if let (Some(first), true) = (found.first(), allowed.is_empty()) {
                return Err(Failure::Elsewhere(first.ip()));
            }
            TcpStream::connect(&allowed[..]).await
        }
    };
    let stream = stream.map_err(Failure::Unreachable)?;
    let _ = stream.set_nodelay(true);
    Ok(Bounded::new(stream))
}

/// Whether an address is one of these; those of IPv4 may be written as IPv6.
pub fn is_within(address: IpAddr, within: &[IpNet]) -> bool {
    let address = address.to_canonical();
    within.iter().any(|net| net.contains(&address))
}

/// TLS on it.
pub(crate) async fn protect(
    server: &Server,
    config: Arc<ClientConfig>,
    stream: Bounded,
) -> Result<TlsStream<Bounded>, Failure> {
    let name = ServerName::try_from(server.host().to_owned());
    let name = name.map_err(|error| Failure::Tls(io::Error::other(error)))?;
    let stream = TlsConnector::from(config).connect(name, stream).await;
    stream.map_err(Failure::Tls)
}

async fn handshake(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<Connection, Failure> {
    let tasks = Tasks::default();
    let shaken = Builder::new(tasks.clone())
        .max_header_list_size(HEADERS_MAX)
        .handshake(TokioIo::new(stream))
        .await;
    let (sender, connection) = shaken.map_err(http_failure)?;
    tasks.execute(async move {
        // The one that waits for the answer hears why there is none.
        let _ = connection.await;
    });
    Ok(Connection { sender, tasks })
}

/// A stream that ends after so many octets of the peer.
pub(crate) struct Bounded {
    stream: TcpStream,
    left: usize,
}

impl Bounded {
    fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            left: CONNECTION_MAX,
        }
    }
}

impl AsyncRead for Bounded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.left == 0 {
            return Poll::Ready(Err(io::Error::other(
                "more octets than an exchange may have",
            )));
        }
        let mut octets = [0; 8 << 10];
        let room = octets.len().min(self.left).min(buf.remaining());
        let mut part = ReadBuf::new(&mut octets[..room]);
        let polled = Pin::new(&mut self.stream).poll_read(cx, &mut part);
        buf.put_slice(part.filled());
        let read = part.filled().len();
        self.left -= read;
        polled
    }
}

impl AsyncWrite for Bounded {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        octets: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, octets)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
