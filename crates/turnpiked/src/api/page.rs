//! The page for operators: static files that ask REST from the browser. They hold no secret, and a browser sends no token when it
//! opens an address: they are served without one, and ask for it.

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::{Api, Failure};

/// Path, type and text of each file.
const FILES: [(&str, &str, &str); 7] = [
    ("/", HTML, include_str!("page/index.html")),
    ("/page/style.css", CSS, include_str!("page/style.css")),
    ("/page/app.js", JS, include_str!("page/app.js")),
    ("/page/views.js", JS, include_str!("page/views.js")),
    ("/page/chart.js", JS, include_str!("page/chart.js")),
    ("/page/dom.js", JS, include_str!("page/dom.js")),
    ("/page/rest.js", JS, include_str!("page/rest.js")),
];

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";

/// Nothing but files and answers of this port, and no text that a peer has chosen is ever a script.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

const HEADERS: [(HeaderName, HeaderValue); 5] = [
    (
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(POLICY),
    ),
    (
        header::REFERRER_POLICY,
        HeaderValue::from_static("no-referrer"),
    ),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        HeaderValue::from_static("same-origin"),
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("same-origin"),
    ),
    // After an upgrade no file is of the release before.
    (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
];

pub(super) fn files() -> Router<Api> {
    let mut router = Router::new();
    for (path, kind, text) in FILES {
        router = router.route(path, get(async move || file(kind, text)));
    }
    router
}

fn file(kind: &'static str, text: &'static str) -> Response {
    let mut response = ([(header::CONTENT_TYPE, kind)], text).into_response();
    response.headers_mut().extend(HEADERS);
    response
}

/// For all answers: they are what their type says, and no copy of them is kept on a disk.
pub(super) fn seal(headers: &mut HeaderMap) {
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    let entry = headers.entry(header::CACHE_CONTROL);
    entry.or_insert(HeaderValue::from_static("no-store"));
}

/// Refuses what a page of another origin has a browser ask for: it could not read the answer, but traces begin by being asked for.
/// A link from elsewhere to the page is followed. Programs send none of these headers.
pub(super) fn check_origin(request: &Request) -> Result<(), Failure> {
    let headers = request.headers();
    let text = |name: &str| headers.get(name).map(HeaderValue::as_bytes);
    let navigates = text("sec-fetch-mode") == Some(b"navigate") && request.uri().path() == "/";
    let from_here = match (text("sec-fetch-site"), headers.get(header::ORIGIN)) {
        (Some(site), _) if site != b"same-origin" && site != b"none" => navigates,
        (_, Some(origin)) => is_host(origin, headers.get(header::HOST)),
        _ => true,
    };
    if from_here {
        return Ok(());
    }
    let error = "asked for by a page of another origin";
    Err(Failure::new(StatusCode::FORBIDDEN, error))
}

/// Whether an origin is at the host and port that are asked. TLS may have ended before us.
fn is_host(origin: &HeaderValue, host: Option<&HeaderValue>) -> bool {
    let origin = origin.as_bytes();
    let authority = (origin.strip_prefix(b"http://")).or_else(|| origin.strip_prefix(b"https://"));
    authority
        .zip(host)
        .is_some_and(|(authority, host)| authority.eq_ignore_ascii_case(host.as_bytes()))
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    #[test]
    fn all_files_together_are_small() {
        let octets: usize = FILES.iter().map(|(.., text)| text.len()).sum();
        assert!((10_000..=150_000).contains(&octets), "{octets}");
    }

    /// The policy of the browser would refuse them: they are not to be written either.
    #[test]
    fn no_file_reads_markup_or_leads_elsewhere() {
        for (path, kind, text) in FILES {
            for word in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "new Function",
                "setAttribute(\"style",
                "https://",
                "localStorage",
                "document.cookie",
            ] {
                assert!(!text.contains(word), "{path}: {word}");
            }
            let elsewhere = text.matches("http://").count();
            let namespaces = text.matches("http://www.w3.org/2000/svg").count();
            assert_eq!(elsewhere, namespaces, "{path}");
            if kind == HTML {
                for word in [" style=", " onclick=", "<style", "<script>"] {
                    assert!(!text.contains(word), "{path}: {word}");
                }
            }
        }
    }

    #[test]
    fn each_module_that_is_imported_is_a_file() {
        for (path, _, text) in FILES {
            let names = text.split("from \"./").skip(1);
            for name in names.filter_map(|rest| rest.split('"').next()) {
                let file = format!("/page/{name}");
                assert!(FILES.iter().any(|it| it.0 == file), "{path}: {name}");
            }
        }
    }

    #[test]
    fn a_page_of_another_origin_asks_in_vain() {
        let asked = |path: &str, headers: &[(&str, &str)]| {
            let mut request = axum::http::Request::get(path);
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            check_origin(&request.body(Body::empty()).unwrap()).is_ok()
        };
        let judged = |headers: &[(&str, &str)]| asked("/", headers);
        let host = ("host", "127.0.0.1:8806");
        for ours in [
            vec![host],
            vec![host, ("sec-fetch-site", "same-origin")],
            vec![
                host,
                ("sec-fetch-site", "none"),
                ("sec-fetch-mode", "navigate"),
            ],
            vec![
                host,
                ("sec-fetch-site", "cross-site"),
                ("sec-fetch-mode", "navigate"),
            ],
            vec![host, ("origin", "http://127.0.0.1:8806")],
            vec![("host", "upf.example"), ("origin", "https://UPF.example")],
        ] {
            assert!(judged(&ours), "{ours:?}");
        }
        for other in [
            vec![
                host,
                ("sec-fetch-site", "cross-site"),
                ("sec-fetch-mode", "no-cors"),
            ],
            vec![host, ("sec-fetch-site", "same-site")],
            vec![host, ("origin", "http://127.0.0.1:8807")],
            vec![host, ("origin", "http://evil.example")],
            vec![host, ("origin", "null")],
            vec![host, ("sec-fetch-site", "same-origin"), ("origin", "null")],
            vec![("origin", "http://127.0.0.1:8806")],
        ] {
            assert!(!judged(&other), "{other:?}");
        }
        // A link from elsewhere begins no trace.
        let link = [
            host,
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "navigate"),
        ];
        assert!(asked("/", &link) && !asked("/api/v1/trace?teid=1", &link));
    }
}
