//! Collectors that answer as none should: each exchange over HTTP/1.1 ends, soon and with an error.
#![allow(clippy::unwrap_used)] // tests

use std::time::Duration;

use hyper::header::HeaderMap;
use sbi::Server;
use sbi::http::{Answer, Failure};
use sbi::post::{Post, post};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A request to a server that has its way with the connection.
async fn asked<F>(
    serve: impl FnOnce(TcpStream) -> F + Send + 'static,
    time: Duration,
) -> Result<Answer, Failure>
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let served = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        serve(stream).await;
    });
    let server = Server::try_from(format!("http://{at}/prefix")).unwrap();
    let mut headers = HeaderMap::new();
    headers.insert("authorization", "Bearer abc".parse().unwrap());
    let request = Post {
        path: "/v1/traces",
        content_type: "application/x-protobuf",
        headers: &headers,
        body: vec![7; 100_000].into(),
    };
    let answer = post(&server, None, request, time).await;
    served.abort();
    answer
}

const LONG: Duration = Duration::from_secs(60);

/// Head and body of a request.
async fn read(stream: &mut TcpStream) -> (String, Vec<u8>) {
    let mut octets = Vec::new();
    loop {
        let end = octets.windows(4).position(|four| four == b"\r\n\r\n");
        if let Some(end) = end
            && octets.len() >= end + 4 + 100_000
        {
            let body = octets.split_off(end + 4);
            return (String::from_utf8(octets).unwrap().to_lowercase(), body);
        }
        assert_ne!(stream.read_buf(&mut octets).await.unwrap(), 0);
    }
}

#[tokio::test]
async fn a_request_is_whole() {
    let answer = asked(
        async |mut stream: TcpStream| {
            let (head, body) = read(&mut stream).await;
            assert!(
                head.starts_with("post /prefix/v1/traces http/1.1\r\n"),
                "{head}"
            );
            for line in [
                "host: 127.0.0.1:",
                "content-type: application/x-protobuf\r\n",
                "content-length: 100000\r\n",
                "authorization: bearer abc\r\n",
            ] {
                assert!(head.contains(&format!("\r\n{line}")), "{line}: {head}");
            }
            assert_eq!(body, vec![7; 100_000]);
            let answer = b"HTTP/1.1 202 Accepted\r\ncontent-length: 2\r\n\r\nok";
            stream.write_all(answer).await.unwrap();
        },
        LONG,
    )
    .await
    .unwrap();
    assert_eq!((answer.status.as_u16(), &*answer.body), (202, &b"ok"[..]));
}

#[tokio::test]
async fn silence_and_rubbish_are_failures() {
    let hung = asked(
        async |stream| {
            std::future::pending::<()>().await;
            drop(stream);
        },
        Duration::from_millis(50),
    );
    assert!(matches!(hung.await, Err(Failure::Late)));
    for said in [
        "",
        "SSH-2.0-rubbish\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nx",
    ] {
        let answer = asked(
            async move |mut stream: TcpStream| {
                read(&mut stream).await;
                stream.write_all(said.as_bytes()).await.unwrap();
            },
            LONG,
        );
        let answer = answer.await;
        assert!(
            matches!(answer, Err(Failure::Http(_))),
            "{said:?}: {answer:?}"
        );
    }
}

#[tokio::test]
async fn an_answer_without_end_is_cut() {
    for head in [
        "HTTP/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nx: ",
        "HTTP/1.1 100 Continue\r\n\r\n",
    ] {
        let answer = asked(
            async move |mut stream: TcpStream| {
                read(&mut stream).await;
                stream.write_all(head.as_bytes()).await.unwrap();
                while stream.write_all(head.as_bytes()).await.is_ok() {}
            },
            LONG,
        );
        let answer = answer.await;
        assert!(
            matches!(answer, Err(Failure::TooLong | Failure::Http(_))),
            "{head:?}: {answer:?}"
        );
    }
}

#[tokio::test]
async fn nobody_listens() {
    let at = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap()
    };
    let server = Server::try_from(format!("http://{at}")).unwrap();
    let request = Post {
        path: "/v1/traces",
        content_type: "application/x-protobuf",
        headers: &HeaderMap::new(),
        body: Vec::new().into(),
    };
    let answer = post(&server, None, request, LONG).await;
    assert!(matches!(answer, Err(Failure::Unreachable(_))));
}
