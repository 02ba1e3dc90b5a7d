//! Roots of APIs: `http://10.0.0.5:7777`, `https://nrf.example/prefix` (TS 29.501, 4.4.1).

use std::fmt;
use std::net::IpAddr;

use hyper::http::uri::{Authority, PathAndQuery, Scheme, Uri};
use serde::{Deserialize, Serialize};

/// The root of the APIs of one server: scheme, host, port, and perhaps a prefix of paths.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Server {
    pub(crate) is_tls: bool,
    pub(crate) authority: Authority,
    /// Without a slash at its end.
    prefix: String,
}

/// A text that is no root of an API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadServer {
    /// Neither `http` nor `https`, or no host.
    #[error("not like http://10.0.0.5:7777 or https://nrf.example.org")]
    NoRoot,
    /// `user:password@`.
    #[error("has a user's name, which is not asked for")]
    UserInfo,
    /// `?…`.
    #[error("has a query; a prefix of paths is all that may follow the host")]
    Query,
}

impl TryFrom<String> for Server {
    type Error = BadServer;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let uri: Uri = text.parse().map_err(|_| BadServer::NoRoot)?;
        Self::of(&uri)
    }
}

impl Server {
    fn of(uri: &Uri) -> Result<Self, BadServer> {
        let is_tls = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTP => false,
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            _ => return Err(BadServer::NoRoot),
        };
        let authority = uri.authority().ok_or(BadServer::NoRoot)?;
        if authority.as_str().contains('@') {
            return Err(BadServer::UserInfo);
        }
        let host = authority.host();
        let port = authority.as_str().strip_prefix(host).unwrap_or_default();
        let is_port = port.is_empty() || authority.port_u16().is_some_and(|port| port != 0);
        if host.is_empty() || !is_port {
            return Err(BadServer::NoRoot);
        }
        if uri.query().is_some() {
            return Err(BadServer::Query);
        }
        Ok(Self {
            is_tls,
            authority: authority.clone(),
            prefix: uri.path().trim_end_matches('/').to_owned(),
        })
    }

    /// The URI of a path below the root; `None`: it cannot be one.
    pub(crate) fn uri(&self, path: &str) -> Option<Uri> {
        let path: PathAndQuery = format!("{}{path}", self.prefix).parse().ok()?;
        Uri::builder()
            .scheme(if self.is_tls { "https" } else { "http" })
            .authority(self.authority.clone())
            .path_and_query(path)
            .build()
            .ok()
    }

    /// TLS is spoken with it.
    pub fn is_tls(&self) -> bool {
        self.is_tls
    }

    pub(crate) fn host(&self) -> &str {
        host(&self.authority)
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(crate) fn port(&self) -> u16 {
        let default = if self.is_tls { 443 } else { 80 };
        self.authority.port_u16().unwrap_or(default)
    }

    /// Server of a redirection, and its URI there. It may lead from `http` to `https`, not back.
    pub(crate) fn redirected(&self, from: &Uri, location: &str) -> Option<(Self, Uri)> {
        let to: Uri = location.parse().ok()?;
        let to = match (to.scheme(), to.authority()) {
            (Some(_), Some(_)) => to,
            // A path of the same server.
            (None, None) if location.starts_with('/') && !location.starts_with("//") => {
                let mut parts = from.clone().into_parts();
                parts.path_and_query = to.into_parts().path_and_query;
                Uri::from_parts(parts).ok()?
            }
            _ => return None,
        };
        let path = to.path().to_owned();
        let mut root = to.clone().into_parts();
        root.path_and_query = Some(PathAndQuery::from_static("/"));
        let server = Self::of(&Uri::from_parts(root).ok()?).ok()?;
        let is_safe = server.is_tls || !self.is_tls;
        (is_safe && !path.is_empty()).then_some((server, to))
    }
}

/// A consumer's URI for notifications, with scheme and host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Callback {
    pub(crate) server: Server,
    pub(crate) uri: Uri,
}

impl TryFrom<String> for Callback {
    type Error = BadServer;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let uri: Uri = text.parse().map_err(|_| BadServer::NoRoot)?;
        let mut root = uri.clone().into_parts();
        root.path_and_query = Some(PathAndQuery::from_static("/"));
        let root = Uri::from_parts(root).map_err(|_| BadServer::NoRoot)?;
        let server = Server::of(&root)?;
        Ok(Self { server, uri })
    }
}

impl Callback {
    /// TLS is spoken there.
    pub fn is_tls(&self) -> bool {
        self.server.is_tls
    }

    /// Its host, if that is an address and no name.
    pub fn address(&self) -> Option<IpAddr> {
        self.server.host().parse().ok()
    }

    /// The same elsewhere (RFC 9110, 15.4.8), not on less safe ground.
    pub(crate) fn redirected(&self, location: &str) -> Option<Self> {
        let (server, uri) = self.server.redirected(&self.uri, location)?;
        Some(Self { server, uri })
    }
}

impl fmt::Display for Callback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.uri.fmt(f)
    }
}

/// IPv6 addresses stand in brackets there.
fn host(authority: &Authority) -> &str {
    let host = authority.host();
    let bare = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    bare.unwrap_or(host)
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority, self.prefix)
    }
}

impl From<Server> for String {
    fn from(server: Server) -> Self {
        server.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(text: &str) -> Result<Server, BadServer> {
        Server::try_from(text.to_owned())
    }

    #[test]
    fn roots_are_taken_apart() {
        let of = |text| {
            let server = server(text).unwrap();
            let uri = server.uri("/nnrf-nfm/v1/x").unwrap().to_string();
            (server.host().to_owned(), server.port(), uri)
        };
        assert_eq!(
            of("http://10.0.0.5:7777"),
            (
                "10.0.0.5".into(),
                7777,
                "http://10.0.0.5:7777/nnrf-nfm/v1/x".into()
            )
        );
        assert_eq!(
            of("https://nrf.example/a/b/"),
            (
                "nrf.example".into(),
                443,
                "https://nrf.example/a/b/nnrf-nfm/v1/x".into()
            )
        );
        assert_eq!(
            of("http://[2001:db8::5]"),
            (
                "2001:db8::5".into(),
                80,
                "http://[2001:db8::5]/nnrf-nfm/v1/x".into()
            )
        );
    }

    #[test]
    fn others_are_refused() {
        for text in [
            "",
            "10.0.0.5:7777",
            "nrf.example",
            "ftp://nrf.example",
            "http://",
            "http://nrf.example:0",
            "http://nrf.example:",
            "http://nrf.example:99999",
            "/nnrf-nfm",
        ] {
            assert_eq!(server(text), Err(BadServer::NoRoot), "{text}");
        }
        assert_eq!(server("http://a:b@nrf.example"), Err(BadServer::UserInfo));
        assert_eq!(server("http://nrf.example/?a=b"), Err(BadServer::Query));
    }

    #[test]
    fn callbacks_have_paths_and_queries() {
        let of = |text: &str| Callback::try_from(text.to_owned());
        let one = of("http://[2001:db8::5]:9000/told?of=1").unwrap();
        assert_eq!(one.address(), "2001:db8::5".parse().ok());
        assert_eq!((one.server.port(), one.is_tls()), (9000, false));
        assert_eq!(one.to_string(), "http://[2001:db8::5]:9000/told?of=1");
        let named = of("https://nwdaf.example").unwrap();
        assert_eq!((named.address(), named.is_tls()), (None, true));
        for text in ["/told", "ftp://a/", "http://u@a/", "http:///x", "", "a b"] {
            assert!(of(text).is_err(), "{text}");
        }
    }

    #[test]
    fn redirections_lead_nowhere_less_safe() {
        let (plain, safe) = (
            server("http://a:1").unwrap(),
            server("https://a:1").unwrap(),
        );
        let from = plain.uri("/x").unwrap();
        let led = |of: &Server, location| Some(of.redirected(&from, location)?.1.to_string());
        assert_eq!(led(&plain, "http://b/x").as_deref(), Some("http://b/x"));
        assert_eq!(led(&plain, "https://b/x").as_deref(), Some("https://b/x"));
        assert_eq!(led(&safe, "https://b/x").as_deref(), Some("https://b/x"));
        assert_eq!(led(&plain, "/y?z").as_deref(), Some("http://a:1/y?z"));
        assert_eq!(led(&safe, "http://b/x"), None);
        for location in ["", "y", "ftp://b/x", "http://u@b/x", "//b/x", "http:///x"] {
            assert_eq!(led(&plain, location), None, "{location}");
        }
    }
}
