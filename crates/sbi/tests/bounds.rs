//! NRFs that answer as none should: each exchange ends, soon and with an error, and takes no more memory than its bounds say.
#![allow(clippy::unwrap_used)] // tests

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use sbi::Server;
use sbi::nrf::{Client, Failure, Profile, Refusal, State, Vitals, instance_id};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const VITALS: Vitals = Vitals {
    load: 12,
    state: State::Registered,
};

fn client(at: &[SocketAddr]) -> Client {
    let servers = at.iter().map(|at| format!("http://{at}").try_into());
    let servers = servers.collect::<Result<Vec<Server>, _>>().unwrap();
    Client::new(servers, instance_id("10.0.0.1"), false)
}

async fn register(at: SocketAddr) -> Result<Option<Duration>, Refusal> {
    let mut client = client(&[at]);
    client.register(0, &Profile::default(), VITALS).await
}

/// A server over whose connections this has its way.
async fn raw<F>(serve: impl Fn(TcpStream) -> F + Send + 'static) -> SocketAddr
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(serve(stream));
        }
    });
    at
}

/// A server that answers by this.
async fn serving(
    answer: impl Fn(Request<Bytes>) -> Response<Full<Bytes>> + Clone + Send + Sync + 'static,
) -> SocketAddr {
    raw(move |stream| {
        let answer = answer.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let answer = answer.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                Ok::<_, Infallible>(answer(Request::from_parts(parts, body)))
            }
        });
        async move {
            let stream = TokioIo::new(stream);
            let builder = http2::Builder::new(TokioExecutor::new());
            let _ = builder.serve_connection(stream, service).await;
        }
    })
    .await
}

fn answer(status: u16, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let answer = Response::builder().status(status);
    answer.body(Full::new(body.into())).unwrap()
}

#[tokio::test]
async fn requests_are_those_of_nnrf_nfmanagement() {
    let at = serving(|request| {
        let path = format!("/nnrf-nfm/v1/nf-instances/{}", instance_id("10.0.0.1"));
        assert_eq!(request.uri().path(), path);
        assert_eq!(request.headers()["user-agent"], "UPF");
        let told: serde_json::Value = match request.body().is_empty() {
            true => serde_json::Value::Null,
            false => serde_json::from_slice(request.body()).unwrap(),
        };
        match request.method().as_str() {
            "PUT" => {
                assert_eq!(told["nfType"], "UPF");
                assert_eq!(told["load"], 12);
                answer(201, r#"{"heartBeatTimer": 7, "else": []}"#)
            }
            "PATCH" => {
                let patch = serde_json::json!([
                    {"op": "replace", "path": "/nfStatus", "value": "REGISTERED"},
                    {"op": "replace", "path": "/load", "value": 12},
                ]);
                assert_eq!(told, patch);
                answer(204, "")
            }
            "DELETE" => answer(204, ""),
            method => panic!("{method}"),
        }
    })
    .await;
    let mut client = client(&[at]);
    let period = client.register(0, &Profile::default(), VITALS).await;
    assert_eq!(period.unwrap(), Some(Duration::from_secs(7)));
    assert_eq!(client.heartbeat(0, VITALS).await.unwrap(), None);
    client.deregister(0).await.unwrap();
    assert!(client.heartbeat(1, VITALS).await.is_err(), "there is one");
}

#[tokio::test]
async fn refusals_say_why() {
    let at = serving(|_| {
        let body = r#"{"title": "No", "cause": "BECAUSE", "status": 403, "detail": 5}"#;
        answer(403, body)
    })
    .await;
    let refusal = register(at).await.unwrap_err();
    assert_eq!(refusal.to_string(), "403 Forbidden", "a detail is a text");
    let long = format!("\n\u{1b}{}", "x".repeat(60_000));
    let body = serde_json::json!({"cause": "BECAUSE", "detail": long}).to_string();
    let at = serving(move |_| answer(403, body.clone())).await;
    let said = register(at).await.unwrap_err().to_string();
    assert!(
        said.starts_with(r#"403 Forbidden: "BECAUSE: \n\u{1b}xx"#),
        "{said}"
    );
    assert!(said.len() < 300, "{}", said.len());
}

#[tokio::test]
async fn an_answer_may_not_be_endless() {
    let at = serving(|_| answer(200, vec![b' '; 600 << 10])).await;
    let refusal = register(at).await.unwrap_err();
    assert!(
        matches!(refusal, Refusal::Failure(Failure::TooLong)),
        "{refusal}"
    );
    let at = serving(|_| answer(200, "not JSON")).await;
    let refusal = register(at).await.unwrap_err();
    assert!(matches!(refusal, Refusal::Rubbish(_)), "{refusal}");
    let deep = "[".repeat(60_000);
    let at = serving(move |_| answer(200, deep.clone())).await;
    let refusal = register(at).await.unwrap_err();
    assert!(matches!(refusal, Refusal::Rubbish(_)), "{refusal}");
}

#[tokio::test]
async fn redirections_end() {
    let at = serving(|request| {
        let mut answer = answer(307, "");
        let here = request.uri().path().parse().unwrap();
        answer.headers_mut().insert("location", here);
        answer
    })
    .await;
    let refusal = register(at).await.unwrap_err();
    assert!(
        matches!(refusal, Refusal::Failure(Failure::Redirected(_))),
        "{refusal}"
    );
    let good = serving(|_| answer(200, "{}")).await;
    let to = format!("http://{good}/nnrf-nfm/v1/nf-instances/x");
    let at = serving(move |_| {
        let mut answer = answer(308, "");
        answer.headers_mut().insert("location", to.parse().unwrap());
        answer
    })
    .await;
    assert_eq!(register(at).await.unwrap(), None);
}

#[tokio::test]
async fn tokens_are_asked_for_once_and_again_when_they_are_refused() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    let given = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&given);
    let at = serving(move |request| {
        if request.uri().path() == "/oauth2/token" {
            let form = String::from_utf8(request.body().to_vec()).unwrap();
            assert!(
                form.starts_with("grant_type=client_credentials&nfInstanceId="),
                "{form}"
            );
            assert!(
                form.ends_with("&nfType=UPF&targetNfType=NRF&scope=nnrf-nfm"),
                "{form}"
            );
            let number = counted.fetch_add(1, Ordering::Relaxed);
            let token = format!(r#"{{"access_token": "token{number}", "expires_in": 3600}}"#);
            return answer(200, token);
        }
        let newest = counted.load(Ordering::Relaxed) - 1;
        let token = format!("Bearer token{newest}");
        // The second request is refused, though its token is the newest.
        let is_good = request.headers()["authorization"] == token.as_str();
        match request.method().as_str() {
            "PATCH" if newest == 0 => answer(401, ""),
            _ if is_good => answer(204, ""),
            _ => answer(401, ""),
        }
    })
    .await;
    let servers = vec![Server::try_from(format!("http://{at}")).unwrap()];
    let mut client = Client::new(servers, instance_id("10.0.0.1"), true);
    client
        .register(0, &Profile::default(), VITALS)
        .await
        .unwrap();
    client.heartbeat(0, VITALS).await.unwrap();
    client.deregister(0).await.unwrap();
    assert_eq!(given.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn whoever_speaks_no_http2_is_named() {
    for octets in [
        &b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"[..],
        b"\0\0\0\0\0",
        b"\xff\xff\xff\x04\0\0\0\0\0",
        b"",
    ] {
        let at = raw(move |mut stream| async move {
            let _ = stream.write_all(octets).await;
        })
        .await;
        let refusal = register(at).await.unwrap_err();
        assert!(
            matches!(refusal, Refusal::Failure(Failure::Http(_))),
            "{refusal}"
        );
    }
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = nobody.local_addr().unwrap();
    drop(nobody);
    let refusal = register(at).await.unwrap_err();
    assert!(
        matches!(refusal, Refusal::Failure(Failure::Unreachable(_))),
        "{refusal}"
    );
}

/// The clock moves on whenever nothing else does.
#[tokio::test(start_paused = true)]
async fn silence_ends_in_time() {
    let at = raw(|mut stream| async move {
        let mut octets = [0; 1 << 10];
        while stream.read(&mut octets).await.is_ok_and(|read| read > 0) {}
    })
    .await;
    let refusal = register(at).await.unwrap_err();
    assert!(
        matches!(refusal, Refusal::Failure(Failure::Late)),
        "{refusal}"
    );
}

#[tokio::test]
async fn frames_without_end_end() {
    // SETTINGS, then PINGs, or headers that continue, for ever.
    let ping: &[u8] = b"\0\0\x08\x06\0\0\0\0\0abcdefgh";
    let headers: &[u8] = b"\0\0\x04\x01\0\0\0\0\x01\x40\x01a\0";
    let continued: &[u8] = b"\0\0\x04\x09\0\0\0\0\x01\x40\x01a\0";
    for (first, others) in [(&b""[..], ping), (headers, continued)] {
        let at = raw(move |stream| async move {
            let (mut read, mut write) = stream.into_split();
            let sink = async move {
                let mut octets = [0; 8 << 10];
                while read.read(&mut octets).await.is_ok_and(|read| read > 0) {}
            };
            let flood = async move {
                let _ = write.write_all(b"\0\0\0\x04\0\0\0\0\0").await;
                let _ = write.write_all(first).await;
                let others = others.repeat(1000);
                while write.write_all(&others).await.is_ok() {}
            };
            tokio::join!(sink, flood);
        })
        .await;
        let refusal = register(at).await.unwrap_err();
        let is_named = matches!(refusal, Refusal::Failure(Failure::Http(_) | Failure::Late));
        assert!(is_named, "{refusal}");
    }
}

#[tokio::test]
async fn who_gives_tokens_to_registered_ones_alone_is_asked_without_first() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    let registered = Arc::new(AtomicBool::new(false));
    let at = serving(move |request| {
        let is_registered = registered.load(Ordering::Relaxed);
        match (request.uri().path(), request.method().as_str()) {
            ("/oauth2/token", _) if is_registered => {
                answer(200, r#"{"access_token": "token", "expires_in": 60}"#)
            }
            ("/oauth2/token", _) => answer(400, r#"{"error": "unauthorized_client"}"#),
            (_, "PUT") => {
                registered.store(true, Ordering::Relaxed);
                answer(201, "{}")
            }
            _ if request.headers().contains_key("authorization") => answer(204, ""),
            _ => answer(401, ""),
        }
    })
    .await;
    let servers = vec![Server::try_from(format!("http://{at}")).unwrap()];
    let mut client = Client::new(servers, instance_id("10.0.0.1"), true);
    let refusal = client.heartbeat(0, VITALS).await.unwrap_err();
    assert!(matches!(refusal, Refusal::Token(_)), "{refusal}");
    let registered = client.register(0, &Profile::default(), VITALS).await;
    assert_eq!(registered.unwrap(), None);
    assert_eq!(client.heartbeat(0, VITALS).await.unwrap(), None);
}

/// It takes only a part of the profile, and says that all is well.
#[tokio::test]
async fn a_connection_ends_with_its_exchange_whatever_the_peer_has_not_taken() {
    use std::sync::Arc;
    use tokio::sync::Notify;
    let left = Arc::new(Notify::new());
    let noted = Arc::clone(&left);
    let at = raw(move |mut stream| {
        let noted = Arc::clone(&noted);
        async move {
            // SETTINGS, and the answer (:status 204) to the first request, once a window of it has come.
            let mut octets = vec![0; 64 << 10];
            stream.read_exact(&mut octets).await.unwrap();
            let answer = b"\0\0\0\x04\0\0\0\0\0\0\0\x01\x01\x05\0\0\0\x01\x89";
            stream.write_all(answer).await.unwrap();
            while stream.read(&mut octets).await.is_ok_and(|read| read > 0) {}
            noted.notify_one();
        }
    })
    .await;
    let mut client = client(&[at]);
    let large = Profile {
        name: "x".repeat(200 << 10),
        ..Profile::default()
    };
    assert_eq!(client.register(0, &large, VITALS).await.unwrap(), None);
    let never = Duration::from_secs(60);
    tokio::time::timeout(never, left.notified()).await.unwrap();
}
