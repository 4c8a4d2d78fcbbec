//! The authorities and revocation lists that a listener trusts, and the verifier made from them.

use std::sync::Arc;
use std::time::SystemTime;

use rustls::RootCertStore;
use rustls::server::WebPkiClientVerifier;

use crate::auth::ChainVerifier;
use crate::config::certificate::{
    CertificateAuthority, CertificateProblem, RevocationList, authorities, check_revocation_coverage,
    revocation_lists,
};
use crate::config::{ClientAuth, Pem};

use super::listener::TlsProblem;

/// Authorities and lists of one listener, read and checked.
pub(super) struct ClientTrust {
    pub(super) authorities: Vec<CertificateAuthority>,
    pub(super) lists: Vec<RevocationList>,
    required: bool,
    accept_expired: bool,
}

impl ClientTrust {
    pub(super) fn read(settings: &ClientAuth, now: SystemTime) -> Result<Self, TlsProblem> {
        let mut clients = Self {
            authorities: Vec::new(),
            lists: Vec::new(),
            required: settings.required,
            accept_expired: settings.accept_expired_crl,
        };
        for pem in &settings.ca {
            clients.authorities.extend(named("ca", pem, authorities(pem, now))?);
        }
        for pem in &settings.crl {
            let lists = revocation_lists(pem, &clients.authorities, clients.accept_expired, now);
            clients.lists.extend(named("crl", pem, lists)?);
        }
        if let Some(pem) = settings.crl.first() {
            named("crl", pem, check_revocation_coverage(&clients.authorities, &clients.lists))?;
        }
        Ok(clients)
    }

    /// Returns the verifier of client certificates at `now`, which trusts no authority that has
    /// expired.
    pub(super) fn verifier(&self, now: SystemTime) -> Result<Arc<ChainVerifier>, TlsProblem> {
        let mut roots = RootCertStore::empty();
        let valid = self.authorities.iter().filter(|authority| authority.expires > now);
        let valid: Vec<_> = valid.map(|authority| authority.certificate.clone()).collect();
        for certificate in &valid {
            roots.add(certificate.clone()).map_err(TlsProblem::unusable)?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .with_crls(self.lists.iter().map(|list| list.list.clone()));
        if !self.accept_expired {
            builder = builder.enforce_revocation_expiration();
        }
        if !self.required {
            builder = builder.allow_unauthenticated();
        }
        let inner = builder.build().map_err(TlsProblem::unusable)?;
        ChainVerifier::new(inner, &valid).map(Arc::new).map_err(TlsProblem::unusable)
    }

    /// Returns the times at which a part expires, so that earlier verifications must be repeated.
    pub(super) fn ends(&self) -> Vec<SystemTime> {
        let lists = self.lists.iter().filter_map(|list| list.next_update);
        self.authorities.iter().map(|authority| authority.expires).chain(lists).collect()
    }
}

/// Adds the file to the problem.
pub(super) fn named<T>(
    key: &'static str,
    pem: &Pem,
    read: Result<T, CertificateProblem>,
) -> Result<T, TlsProblem> {
    read.map_err(|problem| TlsProblem::Bad {
        what: pem.path().map_or_else(|| key.to_owned(), |path| path.display().to_string()),
        problem,
    })
}
