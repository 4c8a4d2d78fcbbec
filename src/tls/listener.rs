//! One TLS listener: the certificates and the trusted authorities of its handshakes, which can be
//! replaced while it runs.
//!
//! A replacement is complete: sessions of an earlier configuration are not resumed. The certificate
//! for a client is selected by the name that it asks for, and the kinds of keys that it can verify.
//! Changed files are read again, and the operator is warned of expiries in time. See `acceptor` for the
//! handshake, `config` for reading certificates.

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use async_trait::async_trait;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use rustls::crypto::CryptoProvider;
use rustls::server::{
    ClientHello, ResolvesServerCert, ServerConfig, ServerConnectionData, UnbufferedServerConnection,
    WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::unbuffered::UnbufferedStatus;
use rustls::version::{TLS12, TLS13};
use rustls::{CipherSuite, CommonState, RootCertStore, SignatureAlgorithm};
use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{info, warn};

use crate::auth::{
    ChainVerifier, ClientCertificate, ClientTlsInfo, FailureLimiter, TrustAnchors, TrustHandle,
};
use crate::config::certificate::{
    CertificateAuthority, CertificateChain, CertificateProblem, RevocationList, authorities, chain,
    check_revocation_coverage, revocation_lists,
};
use crate::config::{ClientAuth, ListenerCertificate, ListenerTls, Pem, TlsProfile};
use crate::file_watcher::FileWatcher;
use crate::sync::lock;
use crate::telemetry::label::Reload;
use crate::telemetry::metrics::{Expiry, ListenerMetrics, TlsMetrics};
use crate::tls_stream::TlsSession;

/// The reason for which a listener cannot use its files or settings.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsProblem {
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
pub(crate) struct TlsListener {
    address: SocketAddr,
    written: ListenerTls,
    current: ArcSwap<TlsState>,
    pub(super) metrics: Arc<ListenerMetrics>,
    /// The failed handshakes of each address.
    pub(super) failures: FailureLimiter,
}

/// The configuration of a handshake. Never changes.
pub(super) struct TlsState {
    config: Arc<ServerConfig>,
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
    pub(crate) fn new(
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
    pub(crate) fn reload(&self, now: SystemTime) -> Result<(), TlsProblem> {
        let made = read_again(&self.written).and_then(|written| {
            let before = self.current();
            TlsState::make(&written, before.witness.trust.as_ref(), now)
        });
        let setup = made.inspect_err(|_| self.metrics.reload(Reload::Refused))?;
        self.metrics.set_expiries(setup.ends());
        self.current.store(Arc::new(setup));
        // Last: when the reload is counted, the next handshake uses it.
        self.metrics.reload(Reload::Used);
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

/// Returns the cryptography of listeners: that of ring, with the cipher suites of AES with 128 bits first.
///
/// Their hash is SHA-256, for which processors have instructions. The secrets of one handshake are derived
/// with a hundred hashes: with the SHA-384 of AES with 256 bits these take a fifth of a handshake's time. Clients without
/// instructions for AES, which name ChaCha20 first, get AES too: rustls knows no suites of equal rank.
fn listener_provider() -> CryptoProvider {
    let mut provider = rustls::crypto::ring::default_provider();
    provider.cipher_suites.sort_by_key(|suite| {
        !matches!(
            suite.suite(),
            CipherSuite::TLS13_AES_128_GCM_SHA256
                | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
                | CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
        )
    });
    provider
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
        let builder = ServerConfig::builder_with_provider(Arc::new(listener_provider()))
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
        // OpenSSL and rustls name AES with 256 bits first.
        config.ignore_client_order = true;
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
        Ok(Self { config: Arc::new(config), witness, chains, clients })
    }

    /// Creates the session of a new connection.
    ///
    /// # Errors
    ///
    /// That of rustls, for a configuration that it does not support.
    pub(super) fn session(&self) -> Result<ListenerSession, rustls::Error> {
        let connection = UnbufferedServerConnection::new(Arc::clone(&self.config))?;
        Ok(ListenerSession { connection, asked_for: None })
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

thread_local! {
    /// The server name in the hello that this thread processes.
    static ASKED_FOR: Cell<Option<String>> = const { Cell::new(None) };
}

/// The session of one connection, with the name that its client asked for: the unbuffered interface of rustls gives that
/// to the resolver of certificates only, and calls it on the thread that processes the hello.
pub(super) struct ListenerSession {
    connection: UnbufferedServerConnection,
    asked_for: Option<String>,
}

impl TlsSession for ListenerSession {
    type Data = ServerConnectionData;

    fn process<'c, 'i>(&'c mut self, received: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        let Self { connection, asked_for } = self;
        if !connection.is_handshaking() {
            return connection.process_tls_records(received);
        }
        ASKED_FOR.set(None);
        let status = connection.process_tls_records(received);
        if let Some(name) = ASKED_FOR.take() {
            *asked_for = Some(name);
        }
        status
    }

    fn common(&self) -> &CommonState {
        &self.connection
    }
}

impl HandshakeRecorder {
    /// Returns the facts of a handshake that is complete; `None` if the certificate cannot be read: such a connection must
    /// not continue.
    pub(super) fn record(&self, session: &ListenerSession) -> Option<ClientTlsInfo> {
        let certificate = match (session.common().peer_certificates(), &self.trust, &self.verified) {
            (Some(chain), Some(trust), Some(verified)) => {
                let read = ClientCertificate::read(chain, trust, verified, SystemTime::now());
                Some(Arc::new(read.ok()?))
            }
            _ => None,
        };
        let (resolver, asked_for) = (Arc::clone(&self.resolver), session.asked_for.clone());
        // A client that asked for no name may mean any.
        let is_for = move |host: &str| asked_for.as_ref().is_none_or(|name| resolver.is_same(name, host));
        Some(ClientTlsInfo { certificate, is_for: Box::new(is_for) })
    }
}

/// The certificates of a listener. None of them ever changes.
struct CertificateResolver {
    /// Certificates by name in lower case, `*.` at the front included.
    by_name: HashMap<String, Vec<Arc<CertifiedKey>>>,
    /// For all other names: the first certificate, and those of another kind with the same names.
    default: Vec<Arc<CertifiedKey>>,
}

impl CertificateResolver {
    fn new(chains: &[CertificateChain]) -> Self {
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
    fn is_same(&self, one: &str, other: &str) -> bool {
        let certificates = |name| self.named(name).unwrap_or(&self.default);
        let (one, other) = (certificates(one), certificates(other));
        one.len() == other.len() && one.iter().zip(other).all(|(one, other)| Arc::ptr_eq(one, other))
    }
}

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        ASKED_FOR.set(hello.server_name().map(str::to_owned));
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

/// Authorities and lists of one listener, read and checked.
struct ClientTrust {
    authorities: Vec<CertificateAuthority>,
    lists: Vec<RevocationList>,
    required: bool,
    accept_expired: bool,
}

impl ClientTrust {
    fn read(settings: &ClientAuth, now: SystemTime) -> Result<Self, TlsProblem> {
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
    fn verifier(&self, now: SystemTime) -> Result<Arc<ChainVerifier>, TlsProblem> {
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
    fn ends(&self) -> Vec<SystemTime> {
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

/// The interval of the checks of files. A changed file is read when it has stayed the same for one
/// interval: a key and its certificate are two files.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// The interval of repeated warnings.
const REMIND: Duration = Duration::from_secs(24 * 3600);
/// The time before an expiry at which warnings begin, in seconds.
pub(crate) const EXPIRY_WARNING_SECONDS: i64 = 30 * 86_400;

/// The service that watches the files of all listeners. Needed even without TLS: without it SIGHUP
/// ends the process.
pub(crate) struct CertificateReloader {
    endpoints: Vec<Arc<TlsListener>>,
    /// Taken when the service starts.
    hangups: Mutex<Option<Signal>>,
}

impl CertificateReloader {
    /// Watches these listeners, and obeys `hangups`: those too that came before the service
    /// started.
    pub(crate) fn new(endpoints: Vec<Arc<TlsListener>>, hangups: Option<Signal>) -> Self {
        Self { endpoints, hangups: Mutex::new(hangups) }
    }
}

/// Returns a receiver of SIGHUP, which ends the process until there is one. `None`: it cannot be
/// received.
pub(crate) fn hangups() -> Option<Signal> {
    let runtime = Builder::new_current_thread().enable_io().build();
    let hangups = runtime.and_then(|runtime| {
        // The receiver outlives this runtime: any other of the process delivers to it.
        let _entered = runtime.enter();
        signal(SignalKind::hangup())
    });
    if let Err(error) = &hangups {
        warn!(%error, "failed to receive SIGHUP, certificate reload by signal is off");
    }
    hangups.ok()
}

#[async_trait]
impl BackgroundService for CertificateReloader {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        let hangups = lock(&self.hangups).take();
        let Some(mut hangups) = hangups else { return };
        let mut watched: Vec<_> =
            self.endpoints.iter().map(|endpoint| WatchedListener::new(endpoint)).collect();
        let mut reminded = Instant::now();
        watched.iter().for_each(WatchedListener::warn_expiring);
        loop {
            let told = tokio::select! {
                // Until then SIGHUP is obeyed, while connections are drained too.
                _ = shutdown.wait_for(|ends| *ends) => return,
                _ = hangups.recv() => true,
                () = tokio::time::sleep(CHECK_INTERVAL) => false,
            };
            if told {
                info!(listeners = watched.len(), "received SIGHUP, reloading certificates");
            }
            watched.iter_mut().for_each(|one| one.look(told, SystemTime::now()));
            self.endpoints.iter().for_each(|endpoint| endpoint.failures.sweep(Instant::now()));
            if reminded.elapsed() >= REMIND {
                reminded = Instant::now();
                watched.iter().for_each(WatchedListener::warn_expiring);
            }
        }
    }
}

/// A listener and the last state of its files.
struct WatchedListener<'a> {
    endpoint: &'a TlsListener,
    watcher: FileWatcher,
    looked: SystemTime,
}

impl<'a> WatchedListener<'a> {
    fn new(endpoint: &'a TlsListener) -> Self {
        Self { endpoint, watcher: FileWatcher::of(files(endpoint)), looked: SystemTime::now() }
    }

    fn look(&mut self, told: bool, now: SystemTime) {
        self.endpoint.keep_sessions_of(self.looked, now);
        self.looked = now;
        let has_settled = self.watcher.has_settled(files(self.endpoint));
        if told {
            self.watcher.accept();
        }
        if told || has_settled {
            self.reload(now);
        }
    }

    fn reload(&self, now: SystemTime) {
        let listener = self.endpoint.address();
        match self.endpoint.reload(now) {
            Ok(()) => {
                info!(%listener, "certificates reloaded");
                self.warn_expiring();
            }
            Err(problem) => {
                warn!(%listener, error = %problem, "failed to reload certificates");
            }
        }
    }

    /// Warns of expiries soon to come.
    fn warn_expiring(&self) {
        let listener = self.endpoint.address();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        for (kind, name, end) in self.endpoint.current().ends() {
            let days = (end - now).div_euclid(86_400);
            // Revocation lists are short-lived by nature: a warning is due only if none has
            // replaced an expired one.
            match end - now {
                ..=0 => warn!(%listener, kind, name, "has expired"),
                left if left < EXPIRY_WARNING_SECONDS && kind != "crl" => {
                    let within = if days < 7 { "expires within 7 days" } else { "expires within 30 days" };
                    warn!(%listener, kind, name, days, "{within}");
                }
                _ => {}
            }
        }
    }
}

/// Returns the files of a listener.
fn files(endpoint: &TlsListener) -> impl Iterator<Item = &Path> {
    let written = endpoint.written();
    let pairs = written.certificates.iter().flat_map(|pair| [&pair.certificate, &pair.key]);
    let clients = written.client_auth.iter().flat_map(|clients| clients.ca.iter().chain(&clients.crl));
    pairs.chain(clients).filter_map(Pem::path)
}
