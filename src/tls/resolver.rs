//! Selects the certificate for a client: by the name that it asks for, and the kinds of keys that
//! it can verify.
//!
//! See `config` for reading certificates.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use rustls::SignatureAlgorithm;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::config::certificate::CertificateChain;

/// The certificates of a listener. None of them ever changes.
pub(super) struct CertificateResolver {
    /// Certificates by name in lower case, `*.` at the front included.
    by_name: HashMap<String, Vec<Arc<CertifiedKey>>>,
    /// For all other names: the first certificate, and those of another kind with the same names.
    default: Vec<Arc<CertifiedKey>>,
}

impl CertificateResolver {
    pub(super) fn new(chains: &[CertificateChain]) -> Self {
        let mut by_name: HashMap<String, Vec<_>> = HashMap::new();
        for chain in chains {
            for name in &chain.names {
                by_name.entry(name.clone()).or_default().push(Arc::clone(&chain.certified));
            }
        }
        let names = chains.first().map(|chain| chain.names.as_slice()).unwrap_or_default();
        let like_first = |chain: &&CertificateChain| chain.names.as_slice() == names;
        let default = chains.iter().filter(like_first).map(|chain| Arc::clone(&chain.certified));
        Self { by_name, default: default.collect() }
    }

    /// Returns the certificates for a name, which may stand for any one label at its front.
    fn named(&self, name: &str) -> Option<&Vec<Arc<CertifiedKey>>> {
        let name = name.to_ascii_lowercase();
        if let Some(exact) = self.by_name.get(&name) {
            return Some(exact);
        }
        let (_, rest) = name.split_once('.')?;
        self.by_name.get(&format!("*.{rest}"))
    }

    /// Returns true if a client that asked for `one` name gets the same certificates for `other`.
    pub(super) fn is_same(&self, one: &str, other: &str) -> bool {
        let certificates = |name| self.named(name).unwrap_or(&self.default);
        let (one, other) = (certificates(one), certificates(other));
        one.len() == other.len() && one.iter().zip(other).all(|(one, other)| Arc::ptr_eq(one, other))
    }
}

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let named = hello.server_name().and_then(|name| self.named(name));
        let candidates = named.unwrap_or(&self.default);
        let fits = |key: &&Arc<CertifiedKey>| key.key.choose_scheme(hello.signature_schemes()).is_some();
        // Without a certificate that fits, the handshake fails with the right alert.
        let mut fitting: Vec<_> = candidates.iter().filter(fits).collect();
        // ECDSA costs a tenth of RSA.
        fitting.sort_by_key(|key| key.key.algorithm() == SignatureAlgorithm::RSA);
        fitting.first().or(candidates.first().as_ref()).map(|key| Arc::clone(key))
    }
}

impl fmt::Debug for CertificateResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver").field("names", &self.by_name.keys()).finish_non_exhaustive()
    }
}
