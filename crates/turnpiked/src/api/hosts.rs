//! Names that REST is asked by. A page of the web can have its own name lead to our address (DNS rebinding), and then asks from
//! the operator's browser; but it asks under that name. Addresses, `localhost` and the names of `api.hosts` are ours.

use std::net::{Ipv4Addr, Ipv6Addr};

use axum::extract::Request;
use axum::http::uri::Authority;
use axum::http::{StatusCode, Version, header};

use super::Failure;

/// Refuses a request under a name that is not ours (421: RFC 9110, 15.5.20), or without one where there must be one (400:
/// RFC 9112, 3.2). Of HTTP/1.0 there need not be.
pub(super) fn check(request: &Request, names: &[String]) -> Result<(), Failure> {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let malformed = |error: &str| Err(Failure::new(StatusCode::BAD_REQUEST, error));
    let host = match (hosts.next(), hosts.next()) {
        (None, _) if request.version() <= Version::HTTP_10 => None,
        (None, _) => return malformed("a Host header is required"),
        (Some(_), Some(_)) => return malformed("there is more than one Host header"),
        (Some(host), None) => match host.to_str().ok().and_then(authority) {
            Some(host) => Some(host),
            None => return malformed("the Host header is no host and port"),
        },
    };
    // A request target in absolute form names the host, too (RFC 9112, 3.2.2).
    let target = request.uri().authority();
    for authority in host.iter().chain(target) {
        if !is_ours(authority.host(), names) {
            let error = format!(
                "{:?} is not a name of this UPF: ask by an address, or add the name to api.hosts",
                authority.host()
            );
            return Err(Failure::new(StatusCode::MISDIRECTED_REQUEST, error));
        }
    }
    Ok(())
}

fn authority(host: &str) -> Option<Authority> {
    let authority = host.parse().ok()?;
    (!host.contains('@')).then_some(authority)
}

fn is_ours(host: &str, names: &[String]) -> bool {
    let v6 = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    if let Some(v6) = v6 {
        return v6.parse::<Ipv6Addr>().is_ok();
    }
    let name = host.strip_suffix('.').unwrap_or(host);
    name.parse::<Ipv4Addr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || names.iter().any(|ours| ours.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn status(version: Version, target: &str, hosts: &[&str]) -> Option<StatusCode> {
        let mut request = axum::http::Request::get(target).version(version);
        for host in hosts {
            request = request.header(header::HOST, *host);
        }
        let names = ["upf.example".to_owned()];
        let judged = check(&request.body(Body::empty()).unwrap(), &names);
        judged.err().map(|failure| failure.status)
    }

    #[test]
    fn a_page_of_the_web_reads_rest_by_a_name_that_leads_to_us() {
        let by = |host: &str| status(Version::HTTP_11, "/", &[host]);
        for ours in [
            "127.0.0.1",
            "127.0.0.1:8806",
            "10.1.2.3:80",
            "[::1]",
            "[2001:db8::1]:8806",
            "localhost",
            "LocalHost:8806",
            "localhost.",
            "upf.example:8806",
            "UPF.example",
        ] {
            assert_eq!(by(ours), None, "{ours}");
        }
        for other in [
            "evil.example",
            "evil.example:8806",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "a.upf.example",
            "1.2.3",
            "0x7f000001",
            "[fe80::1%25n6]",
        ] {
            let refused = [StatusCode::MISDIRECTED_REQUEST, StatusCode::BAD_REQUEST];
            let status = by(other);
            assert!(
                status.is_some_and(|s| refused.contains(&s)),
                "{other}: {status:?}"
            );
        }
        assert_eq!(by("evil.example"), Some(StatusCode::MISDIRECTED_REQUEST));
    }

    #[test]
    fn a_request_names_one_host() {
        let bad = Some(StatusCode::BAD_REQUEST);
        assert_eq!(status(Version::HTTP_11, "/", &[]), bad);
        assert_eq!(status(Version::HTTP_10, "/", &[]), None);
        assert_eq!(
            status(Version::HTTP_11, "/", &["localhost", "localhost"]),
            bad
        );
        for host in ["", "me@localhost", "a b"] {
            assert_eq!(status(Version::HTTP_11, "/", &[host]), bad, "{host}");
        }
        let target = "http://evil.example/api/v1/status";
        let other = Some(StatusCode::MISDIRECTED_REQUEST);
        assert_eq!(status(Version::HTTP_11, target, &["localhost"]), other);
        assert_eq!(status(Version::HTTP_10, target, &[]), other);
    }
}
