//! TLS (TS 33.501, 13.1), towards servers: certificates of theirs by the operator's own authorities, and ours where they want one. And towards clients.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

/// Authorities that are believed, and the certificate that is shown.
#[derive(Clone)]
pub struct Tls(pub(crate) Arc<ClientConfig>);

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

/// A file of which no TLS can be made.
#[derive(Debug, thiserror::Error)]
pub enum BadTls {
    /// The authorities.
    #[error("{0}")]
    Authorities(String),
    /// The certificate that is shown.
    #[error("{0}")]
    Certificate(String),
    /// Its key.
    #[error("{0}")]
    Key(String),
}

impl Tls {
    /// `authorities`: certificates in PEM. `own`: certificate, with those between it and the authority, and its key, in PEM.
    pub fn read(authorities: &Path, own: Option<(&Path, &Path)>) -> Result<Self, BadTls> {
        let roots = roots(authorities)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| BadTls::Authorities(error.to_string()))?
            .with_root_certificates(roots);
        let mut config = match own {
            None => config.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = certificates(certificate).map_err(BadTls::Certificate)?;
                let key = PrivateKeyDer::from_pem_file(key);
                let key = key.map_err(|error| BadTls::Key(error.to_string()))?;
                let config = config.with_client_auth_cert(chain, key);
                config.map_err(|error| BadTls::Key(error.to_string()))?
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Self(Arc::new(config)))
    }
}

/// TLS towards clients: the certificate that they are shown.
#[derive(Clone)]
pub struct ServerTls(Arc<ServerConfig>);

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerTls")
    }
}

impl ServerTls {
    /// `own`: certificate, with those between it and the authority, and its key, in PEM. `authorities`: of clients; then one without
    /// a certificate of theirs is none.
    pub fn read(own: (&Path, &Path), authorities: Option<&Path>) -> Result<Self, BadTls> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| BadTls::Certificate(error.to_string()))?;
        let config = match authorities {
            None => config.with_no_client_auth(),
            Some(authorities) => {
                let roots = Arc::new(roots(authorities)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
                let verifier = verifier.map_err(|error| BadTls::Authorities(error.to_string()))?;
                config.with_client_cert_verifier(verifier)
            }
        };
        let chain = certificates(own.0).map_err(BadTls::Certificate)?;
        let key = PrivateKeyDer::from_pem_file(own.1);
        let key = key.map_err(|error| BadTls::Key(error.to_string()))?;
        let mut config = config
            .with_single_cert(chain, key)
            .map_err(|error| BadTls::Key(error.to_string()))?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Self(Arc::new(config)))
    }

    /// For connections from clients.
    pub fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.0))
    }
}

fn roots(authorities: &Path) -> Result<RootCertStore, BadTls> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(authorities).map_err(BadTls::Authorities)? {
        let added = roots.add(certificate);
        added.map_err(|error| BadTls::Authorities(error.to_string()))?;
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let all = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let all: Vec<_> = all.map_err(|error: rustls::pki_types::pem::Error| error.to_string())?;
    if all.is_empty() {
        return Err("holds no certificate in PEM".to_owned());
    }
    Ok(all)
}
