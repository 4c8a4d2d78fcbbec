//! One TLS listener: the configuration of its handshakes, which can be replaced while it runs.
//!
//! A replacement is complete: sessions of an earlier configuration are not resumed. See `acceptor`
//! for the handshake.

use std::any::Any;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use async_trait::async_trait;
use pingora::listeners::TlsAccept;
use pingora::listeners::tls::Acceptor;
use pingora::protocols::tls::TlsRef;
use rustls::server::ServerConfig;
use rustls::version::{TLS12, TLS13};

use super::client_verifier::{ClientTrust, named};
use super::resolver::CertificateResolver;
use crate::auth::{ClientCertificate, ClientTlsInfo, FailureLimiter, TrustAnchors, TrustHandle};
use crate::config::certificate::{CertificateChain, CertificateProblem, chain};
use crate::config::{ClientAuth, ListenerCertificate, ListenerTls, TlsProfile};
use crate::telemetry::label::Reload;
use crate::telemetry::tls::{Expiry, ListenerMetrics, TlsMetrics};

/// The reason for which a listener cannot use its files or settings.
#[derive(Debug, thiserror::Error)]
pub enum TlsProblem {
    /// A file cannot be read.
    #[error("{0}")]
    Unreadable(String),
    /// The content of a file is wrong.
    #[error("{what}: {problem}")]
    Bad {
        /// The file, or the key of the configuration.
        what: String,
        /// The problem with it.
        problem: CertificateProblem,
    },
    /// Correct, but still unusable.
    #[error("unusable: {0}")]
    Unusable(String),
}

impl TlsProblem {
    pub(super) fn unusable(error: impl std::fmt::Display) -> Self {
        Self::Unusable(error.to_string())
    }
}

/// A TLS listener. Handshakes use the current configuration; connections keep the one they began
/// with.
pub struct TlsListener {
    address: SocketAddr,
    written: ListenerTls,
    current: ArcSwap<TlsState>,
    pub(super) metrics: Arc<ListenerMetrics>,
    /// The failed handshakes of each address.
    pub(super) failures: FailureLimiter,
}

/// The configuration of a handshake. Never changes.
pub(super) struct TlsState {
    pub(super) acceptor: Acceptor,
    pub(super) witness: HandshakeRecorder,
    chains: Vec<CertificateChain>,
    clients: Option<ClientTrust>,
}

impl TlsListener {
    /// Creates the TLS of a listener from its settings, with `failures` failed handshakes of an
    /// address in a second.
    ///
    /// # Errors
    ///
    /// [`TlsProblem`] names the first error in them.
    pub fn new(
        address: SocketAddr,
        written: ListenerTls,
        metrics: &TlsMetrics,
        failures: usize,
    ) -> Result<Arc<Self>, TlsProblem> {
        super::install_provider();
        let setup = TlsState::make(&written, None, SystemTime::now())?;
        let metrics = metrics.listener(&address.to_string());
        metrics.set_expiries(setup.ends());
        let (current, failures) = (ArcSwap::from_pointee(setup), FailureLimiter::new(failures));
        Ok(Arc::new(Self { address, written, current, metrics, failures }))
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn written(&self) -> &ListenerTls {
        &self.written
    }

    pub(super) fn current(&self) -> Arc<TlsState> {
        self.current.load_full()
    }

    /// Reads its files again and uses them from the next handshake on. The new authorities and
    /// lists apply to open connections too.
    ///
    /// # Errors
    ///
    /// [`TlsProblem`], which is counted; then the previous configuration remains.
    pub fn reload(&self, now: SystemTime) -> Result<(), TlsProblem> {
        let made = read_again(&self.written).and_then(|written| {
            let before = self.current();
            TlsState::make(&written, before.witness.trust.as_ref(), now)
        });
        self.metrics.reload(if made.is_ok() { Reload::Used } else { Reload::Refused });
        let setup = made?;
        self.metrics.set_expiries(setup.ends());
        self.current.store(Arc::new(setup));
        Ok(())
    }

    /// Stops trusting the authorities that have expired since the last check, if there are any.
    pub(super) fn keep_sessions_of(&self, since: SystemTime, now: SystemTime) {
        let current = self.current();
        let Some(clients) = &current.clients else { return };
        let over = clients.authorities.iter().any(|one| one.expires > since && one.expires <= now);
        if over && let Some(trust) = &current.witness.trust {
            // Without a verifier (the last authority has expired) no certificate is trusted.
            trust.replace(clients.verifier(now).ok(), clients.ends());
        }
    }
}

impl TlsState {
    fn make(
        written: &ListenerTls,
        trust: Option<&Arc<TrustHandle>>,
        now: SystemTime,
    ) -> Result<Self, TlsProblem> {
        let read = |pair: &ListenerCertificate| named("certificate", &pair.certificate, chain(pair, now));
        let chains = written.certificates.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        let clients =
            written.client_auth.as_ref().map(|settings| ClientTrust::read(settings, now)).transpose()?;
        let versions: &[_] = match written.profile {
            TlsProfile::Modern => &[&TLS13],
            TlsProfile::Intermediate => &[&TLS13, &TLS12],
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .map_err(TlsProblem::unusable)?;
        let verifier = clients.as_ref().map(|clients| clients.verifier(now)).transpose()?;
        let builder = match &verifier {
            Some(verifier) => builder.with_client_cert_verifier(Arc::clone(verifier) as _),
            None => builder.with_no_client_auth(),
        };
        let resolver = Arc::new(CertificateResolver::new(&chains));
        let mut config = builder.with_cert_resolver(Arc::clone(&resolver) as _);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        // Sessions are kept by clients, under a key of this state alone: so none outlives it, and
        // none costs memory here.
        config.ticketer = rustls::crypto::ring::Ticketer::new().map_err(TlsProblem::unusable)?;
        config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        // The last step that changes anything, after all that can fail.
        let trust = match (verifier, trust, &clients) {
            (Some(verifier), Some(trust), Some(clients)) => {
                trust.replace(Some(verifier), clients.ends());
                Some(Arc::clone(trust))
            }
            (Some(verifier), None, Some(clients)) => Some(TrustHandle::new(verifier, clients.ends())),
            _ => None,
        };
        let verified = trust.as_ref().map(|trust| trust.current());
        let witness = HandshakeRecorder { trust, verified, resolver };
        Ok(Self { acceptor: Acceptor::from_server_config(Arc::new(config)), witness, chains, clients })
    }

    /// Returns all expiries, for metrics and warnings.
    pub(super) fn ends(&self) -> Vec<Expiry> {
        let certificates = self.chains.iter().enumerate().map(|(at, chain)| {
            let name = chain.names.first().cloned().unwrap_or_else(|| format!("certificate {}", at + 1));
            ("certificate", name, seconds(chain.expires))
        });
        let clients = self.clients.iter();
        let authorities = clients.clone().flat_map(|clients| &clients.authorities);
        let authorities = authorities.map(|one| ("ca", one.name.clone(), seconds(one.expires)));
        let lists = clients.flat_map(|clients| &clients.lists);
        let lists = lists.filter_map(|list| Some(("crl", list.issuer.clone(), seconds(list.next_update?))));
        certificates.chain(authorities).chain(lists).collect()
    }
}

fn seconds(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

fn read_again(written: &ListenerTls) -> Result<ListenerTls, TlsProblem> {
    let again = |pem: &crate::config::Pem| pem.read_again().map_err(TlsProblem::Unreadable);
    let certificates = written.certificates.iter().map(|pair| {
        Ok(ListenerCertificate { certificate: again(&pair.certificate)?, key: again(&pair.key)? })
    });
    let clients = written.client_auth.as_ref().map(|clients| {
        let ca = clients.ca.iter().map(again).collect::<Result<_, _>>()?;
        let crl = clients.crl.iter().map(again).collect::<Result<_, _>>()?;
        Ok(ClientAuth { ca, crl, ..*clients })
    });
    let certificates = certificates.collect::<Result<_, _>>()?;
    Ok(ListenerTls { certificates, profile: written.profile, client_auth: clients.transpose()? })
}

/// The recorder of the facts of a handshake.
pub(super) struct HandshakeRecorder {
    trust: Option<Arc<TrustHandle>>,
    verified: Option<Arc<TrustAnchors>>,
    resolver: Arc<CertificateResolver>,
}

#[async_trait]
impl TlsAccept for HandshakeRecorder {
    /// Returns `None` if the certificate cannot be read: such a connection must not continue.
    async fn handshake_complete_callback(&self, tls: &TlsRef) -> Option<Arc<dyn Any + Send + Sync>> {
        let certificate = match (tls.peer_cert_chain_der(), &self.trust, &self.verified) {
            (Some(chain), Some(trust), Some(verified)) => {
                let read = ClientCertificate::read(chain, trust, verified, SystemTime::now());
                Some(Arc::new(read.ok()?))
            }
            _ => None,
        };
        let (resolver, asked_for) = (Arc::clone(&self.resolver), tls.server_name().map(str::to_owned));
        // A client that asked for no name may mean any.
        let is_for = move |host: &str| asked_for.as_ref().is_none_or(|name| resolver.is_same(name, host));
        Some(Arc::new(ClientTlsInfo { certificate, is_for: Box::new(is_for) }))
    }
}
