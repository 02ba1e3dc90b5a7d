//! TLS towards servers (TS 33.501, 13.1): certificates of theirs by the operator's own authorities, and ours where they want one.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

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
        let mut roots = RootCertStore::empty();
        for certificate in certificates(authorities).map_err(BadTls::Authorities)? {
            let added = roots.add(certificate);
            added.map_err(|error| BadTls::Authorities(error.to_string()))?;
        }
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

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let all = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let all: Vec<_> = all.map_err(|error: rustls::pki_types::pem::Error| error.to_string())?;
    if all.is_empty() {
        return Err("holds no certificate in PEM".to_owned());
    }
    Ok(all)
}
