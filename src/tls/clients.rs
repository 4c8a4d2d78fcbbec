//! Whom a listener trusts: authorities and revocation lists, made into what verifies certificates.
//!
//! Not here: when a certificate is verified again (see `auth`).

use std::sync::Arc;
use std::time::SystemTime;

use rustls::RootCertStore;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;

use crate::config::certificate::{
    Authority, CertificateProblem, RevocationList, all_covered, authorities, revocation_lists,
};
use crate::config::{ClientAuth, Pem};

use super::endpoint::TlsProblem;

/// Authorities and lists of one listener, read and checked.
pub(super) struct Clients {
    pub(super) authorities: Vec<Authority>,
    pub(super) lists: Vec<RevocationList>,
    required: bool,
    accept_expired: bool,
}

impl Clients {
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
            named("crl", pem, all_covered(&clients.authorities, &clients.lists))?;
        }
        Ok(clients)
    }

    /// What verifies certificates at `now`: an authority that has expired meanwhile is no longer one.
    pub(super) fn verifier(&self, now: SystemTime) -> Result<Arc<dyn ClientCertVerifier>, TlsProblem> {
        let mut roots = RootCertStore::empty();
        for authority in self.authorities.iter().filter(|authority| authority.expires > now) {
            roots.add(authority.certificate.clone()).map_err(TlsProblem::unusable)?;
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
        builder.build().map_err(TlsProblem::unusable)
    }

    /// When something ends, so that what was verified before must be verified again.
    pub(super) fn ends(&self) -> Vec<SystemTime> {
        let lists = self.lists.iter().filter_map(|list| list.next_update);
        self.authorities.iter().map(|authority| authority.expires).chain(lists).collect()
    }
}

/// Says which of the files has the problem.
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
