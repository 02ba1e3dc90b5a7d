//! One POST over HTTP/1.1, to servers beside the core (collectors of telemetry), within the bounds of [`http`](crate::http): a
//! connection, a request, an answer, and the end. It follows no redirection.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::Builder;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::http::{Answer, Failure, http_failure, protect, reach, read};
use crate::{Server, Tls};

/// Octets of the headers of an answer.
const HEADERS_MAX: usize = 16 << 10;

/// A request below the root of a server.
#[derive(Clone, Debug)]
pub struct Post<'p> {
    /// Below the root of the server, with a slash at its beginning.
    pub path: &'p str,
    /// Type of the body.
    pub content_type: &'static str,
    /// Other headers, such as a token.
    pub headers: &'p HeaderMap,
    /// The body.
    pub body: Bytes,
}

/// Have a server take it within this time.
pub async fn post(
    server: &Server,
    tls: Option<&Tls>,
    post: Post<'_>,
    time: Duration,
) -> Result<Answer, Failure> {
    let answered = tokio::time::timeout(time, carry(server, tls, post));
    answered.await.unwrap_or(Err(Failure::Late))
}

async fn carry(server: &Server, tls: Option<&Tls>, post: Post<'_>) -> Result<Answer, Failure> {
    let request = request(server, post)?;
    let stream = reach(server, None).await?;
    if !server.is_tls() {
        return exchange(stream, request).await;
    }
    let missing = || Failure::Tls(io::Error::other("no authorities are configured"));
    let mut config = ClientConfig::clone(&tls.ok_or_else(missing)?.0);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let stream = protect(server, Arc::new(config), stream).await?;
    exchange(stream, request).await
}

fn request(server: &Server, post: Post<'_>) -> Result<Request<Full<Bytes>>, Failure> {
    let no_request = || Failure::NoRequest(format!("{server}{}", post.path));
    let uri = server.uri(post.path).ok_or_else(no_request)?;
    let target = uri.path_and_query().ok_or_else(no_request)?.as_str();
    let request = Request::builder()
        .method(Method::POST)
        .uri(target)
        .header(header::HOST, server.authority.as_str())
        .header(header::CONNECTION, "close")
        .header(header::USER_AGENT, "turnpike")
        .header(header::CONTENT_TYPE, post.content_type)
        .header(header::CONTENT_LENGTH, post.body.len());
    let request = request.body(Full::new(post.body));
    let mut request = request.map_err(|error| Failure::NoRequest(error.to_string()))?;
    for (name, value) in post.headers {
        let value: HeaderValue = value.clone();
        request.headers_mut().append(name, value);
    }
    Ok(request)
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
) -> Result<Answer, Failure> {
    let shaken = Builder::new()
        .max_buf_size(HEADERS_MAX)
        .handshake(TokioIo::new(stream))
        .await;
    let (mut sender, connection) = shaken.map_err(http_failure)?;
    let answered = async {
        let answer = sender.send_request(request).await;
        read(answer.map_err(http_failure)?).await
    };
    tokio::pin!(answered);
    tokio::select! {
        answer = &mut answered => answer,
        // The one that waits for the answer hears why there is none, or has it.
        _ = connection => answered.await,
    }
}
