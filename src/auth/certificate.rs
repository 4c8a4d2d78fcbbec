//! The names in a verified client certificate, and its current validity.
//!
//! A handshake verifies a certificate once; connections stay open after that, and resumed sessions
//! skip it. So every request calls [`ClientCertificate::is_valid`], which verifies again, in full,
//! once authorities or revocation lists have changed or something has expired, and costs next to
//! nothing otherwise. See `tls` for reading authorities and lists.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier as _;
use sha2::{Digest, Sha256};
use tokio::sync::watch;
use x509_parser::oid_registry::OID_X509_COMMON_NAME;
use x509_parser::prelude::{GeneralName, X509Certificate, X509Name};

use super::chain::{ChainVerifier, UnreadableCertificate, parse};
use super::subject;
use crate::sync::lock;

const HOUR: Duration = Duration::from_secs(3600);

/// The authorities and revocation lists that a listener trusts at one time; none of them ever
/// changes.
pub struct TrustAnchors {
    number: u64,
    /// `None`: no authority is trusted.
    verifier: Option<Arc<ChainVerifier>>,
    /// The ends of authorities and lists, as far as they matter.
    ends: Vec<SystemTime>,
}

/// The current trust of a listener. Shared with its connections.
pub struct TrustHandle {
    current: ArcSwap<TrustAnchors>,
    changes: watch::Sender<u64>,
}

impl TrustHandle {
    /// Creates the trust in certificates that `verifier` accepts; it is verified again after each
    /// of `ends`.
    pub fn new(verifier: Arc<ChainVerifier>, ends: Vec<SystemTime>) -> Arc<Self> {
        let current = ArcSwap::from_pointee(TrustAnchors { number: 0, verifier: Some(verifier), ends });
        Arc::new(Self { current, changes: watch::Sender::new(0) })
    }

    /// Replaces the trust, for open connections also; without a verifier no certificate is trusted.
    pub fn replace(&self, verifier: Option<Arc<ChainVerifier>>, ends: Vec<SystemTime>) {
        let number = self.current.load().number + 1;
        self.current.store(Arc::new(TrustAnchors { number, verifier, ends }));
        self.changes.send_replace(number);
    }

    /// Returns the current trust.
    pub fn current(&self) -> Arc<TrustAnchors> {
        self.current.load_full()
    }
}

impl TrustAnchors {
    fn verifies(&self, chain: &[CertificateDer<'_>], now: SystemTime) -> bool {
        let Some((certificate, others)) = chain.split_first() else { return false };
        let now = UnixTime::since_unix_epoch(now.duration_since(UNIX_EPOCH).unwrap_or_default());
        let verifier = self.verifier.as_ref();
        verifier.is_some_and(|verifier| verifier.verify_client_cert(certificate, others, now).is_ok())
    }

    fn permits_common_name(&self, chain: &[X509Certificate<'_>], name: &str) -> bool {
        self.verifier.as_ref().is_some_and(|verifier| verifier.permits_common_name(chain, name))
    }
}

/// A verified client certificate.
pub struct ClientCertificate {
    uris: Vec<String>,
    dns_names: Vec<String>,
    common_name: Option<String>,
    subject: String,
    thumbprint: [u8; 32],
    chain: Vec<CertificateDer<'static>>,
    /// The ends of the certificates of the chain.
    ends: Vec<SystemTime>,
    trust: Arc<TrustHandle>,
    verdict: Mutex<Option<CachedValidity>>,
}

/// The last result of a verification, and its end.
#[derive(Clone, Copy)]
struct CachedValidity {
    number: u64,
    until: SystemTime,
    is_good: bool,
}

impl ClientCertificate {
    /// Reads the certificate of a handshake, which `verified` verified at that time or when the
    /// resumed session began.
    ///
    /// # Errors
    ///
    /// [`UnreadableCertificate`]; such a client must not be taken for one without a certificate.
    pub fn read(
        chain: &[CertificateDer<'static>],
        trust: &Arc<TrustHandle>,
        verified: &TrustAnchors,
        now: SystemTime,
    ) -> Result<Self, UnreadableCertificate> {
        let all = parse_all(chain)?;
        let certificate = all.first().ok_or(UnreadableCertificate)?;
        let mut read = Self {
            uris: Vec::new(),
            dns_names: Vec::new(),
            common_name: common_name(certificate.subject())
                .filter(|name| verified.permits_common_name(&all, name)),
            subject: subject::text(certificate.subject()),
            thumbprint: Sha256::digest(chain.first().ok_or(UnreadableCertificate)?).into(),
            chain: chain.to_vec(),
            ends: all.iter().map(end).collect(),
            trust: Arc::clone(trust),
            verdict: Mutex::new(None),
        };
        let names = certificate.subject_alternative_name().map_err(|_| UnreadableCertificate)?;
        for name in names.iter().flat_map(|names| &names.value.general_names) {
            match name {
                GeneralName::URI(uri) => read.uris.push((*uri).to_owned()),
                GeneralName::DNSName(name) => read.dns_names.push(name.to_ascii_lowercase()),
                _ => {}
            }
        }
        // A certificate that is expired by now may have been valid when the session began.
        let ends = || read.ends.iter().chain(&verified.ends);
        if ends().all(|end| *end > now) {
            let until = ends().min().copied().unwrap_or(now);
            *read.verdict() = Some(CachedValidity { number: verified.number, until, is_good: true });
        }
        Ok(read)
    }

    /// Returns its URI names, such as SPIFFE ids, as written.
    pub fn uris(&self) -> &[String] {
        &self.uris
    }

    /// Returns its DNS names in lower case.
    pub fn dns_names(&self) -> &[String] {
        &self.dns_names
    }

    /// Returns the common name of its subject, if there is exactly one and its authorities may
    /// certify it.
    pub fn common_name(&self) -> Option<&str> {
        self.common_name.as_deref()
    }

    /// Returns its subject in the form of RFC 4514, such as `CN=orders,O=Example`. No two subjects
    /// have the same text.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// Returns its SHA-256, to which tokens are bound (RFC 8705 §3.1).
    pub fn thumbprint(&self) -> [u8; 32] {
        self.thumbprint
    }

    /// Returns true if it is valid at `now`: not expired, not revoked, and issued by an authority
    /// that is still trusted.
    pub fn is_valid(&self, now: SystemTime) -> bool {
        let trusted = self.trust.current();
        if let Some(last) = *self.verdict()
            && last.number == trusted.number
            && now < last.until
        {
            return last.is_good;
        }
        // A name that only the former authorities could certify names another caller now.
        let is_permitted = |name: &String| {
            parse_all(&self.chain).is_ok_and(|chain| trusted.permits_common_name(&chain, name))
        };
        let is_good =
            trusted.verifies(&self.chain, now) && self.common_name.as_ref().is_none_or(is_permitted);
        let next = self.ends.iter().chain(&trusted.ends).filter(|end| **end > now).min();
        let until = next.copied().unwrap_or_else(|| now + Duration::from_secs(60));
        *self.verdict() = Some(CachedValidity { number: trusted.number, until, is_good });
        is_good
    }

    /// Waits until the result of [`is_valid`](Self::is_valid) may change: authorities or lists have
    /// changed, or something expires.
    pub async fn may_have_ended(&self) {
        let last = *self.verdict();
        let Some(last) = last else { return };
        let mut changes = self.trust.changes.subscribe();
        let left = last.until.duration_since(SystemTime::now()).unwrap_or_default();
        tokio::select! {
            // Fails only without the trust, which this certificate holds.
            changed = changes.wait_for(|number| *number != last.number) => drop(changed),
            // Never long, as the clock may be set.
            () = tokio::time::sleep(left.min(HOUR)) => {}
        }
    }

    fn verdict(&self) -> MutexGuard<'_, Option<CachedValidity>> {
        lock(&self.verdict)
    }
}

impl fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCertificate").field("subject", &self.subject).finish_non_exhaustive()
    }
}

/// The facts of a TLS handshake about the client. Attached to its connection, as the extension of
/// Pingora's digest.
pub struct ClientTlsInfo {
    /// Its certificate, if it presented one.
    pub certificate: Option<Arc<ClientCertificate>>,
    /// True if a client that asks for this host gets the same server certificates as this one did.
    pub is_for: Box<dyn Fn(&str) -> bool + Send + Sync>,
}

fn parse_all<'a>(chain: &'a [CertificateDer<'_>]) -> Result<Vec<X509Certificate<'a>>, UnreadableCertificate> {
    chain.iter().map(|certificate| parse(certificate)).collect()
}

fn end(certificate: &X509Certificate<'_>) -> SystemTime {
    // A certificate is valid during its last second.
    let last = u64::try_from(certificate.validity().not_after.timestamp()).unwrap_or(0);
    UNIX_EPOCH + Duration::from_secs(last + 1)
}

fn common_name(subject: &X509Name<'_>) -> Option<String> {
    let mut names = subject.iter_by_oid(&OID_X509_COMMON_NAME);
    match (names.next(), names.next()) {
        (Some(name), None) => name.as_str().ok().map(str::to_owned),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType, date_time_ymd};
    use rustls::RootCertStore;
    use rustls::server::WebPkiClientVerifier;

    struct Authority {
        issuer: Issuer<'static, KeyPair>,
        trust: Arc<TrustHandle>,
    }

    fn verifier(der: &CertificateDer<'static>) -> Arc<ChainVerifier> {
        let mut roots = RootCertStore::empty();
        roots.add(der.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let inner = WebPkiClientVerifier::builder_with_provider(roots.into(), provider).build().unwrap();
        Arc::new(ChainVerifier::new(inner, std::slice::from_ref(der)).unwrap())
    }

    fn authority() -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let der = params.self_signed(&key).unwrap().der().clone();
        Authority { issuer: Issuer::new(params, key), trust: TrustHandle::new(verifier(&der), Vec::new()) }
    }

    impl Authority {
        fn certificate(&self, params: &CertificateParams) -> ClientCertificate {
            let key = KeyPair::generate().unwrap();
            let der = params.signed_by(&key, &self.issuer).unwrap().der().clone();
            let verified = self.trust.current();
            ClientCertificate::read(&[der], &self.trust, &verified, at(2025)).unwrap()
        }
    }

    fn at(year: i32) -> SystemTime {
        date_time_ymd(year, 1, 1).into()
    }

    fn named(values: &[(DnType, &str)]) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for (kind, value) in values {
            params.distinguished_name.push(kind.clone(), *value);
        }
        (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2030, 1, 1));
        params
    }

    #[test]
    fn names_are_read_as_they_are() {
        let mut params = named(&[(DnType::OrganizationName, "Example"), (DnType::CommonName, "Orders")]);
        params.subject_alt_names = vec![
            SanType::URI("spiffe://Example.org/Orders".try_into().unwrap()),
            SanType::DnsName("Orders.Example.org".try_into().unwrap()),
        ];
        let certificate = authority().certificate(&params);
        assert_eq!(certificate.uris(), ["spiffe://Example.org/Orders"]);
        assert_eq!(certificate.dns_names(), ["orders.example.org"]);
        assert_eq!(certificate.common_name(), Some("Orders"));
        assert_eq!(certificate.subject(), "CN=Orders,O=Example");
    }

    #[test]
    fn no_subject_passes_for_another() {
        let authority = authority();
        for (value, text) in [
            ("a,O=Example", r"CN=a\,O\=Example"),
            ("a+b", r"CN=a\+b"),
            (" a ", r"CN=\ a\ "),
            ("#1", r"CN=\#1"),
            ("a\nb\0", r"CN=a\0ab\00"),
            (r"a\2cb", r"CN=a\\2cb"),
            ("é", "CN=é"),
        ] {
            assert_eq!(authority.certificate(&named(&[(DnType::CommonName, value)])).subject(), text);
        }
        assert_eq!(authority.certificate(&named(&[])).subject(), "");
        assert_eq!(authority.certificate(&named(&[])).common_name(), None);
    }

    #[test]
    fn it_is_good_until_it_expires() {
        let certificate = authority().certificate(&named(&[]));
        assert!(certificate.is_valid(at(2025)));
        assert!(certificate.is_valid(at(2030)), "its last second");
        assert!(!certificate.is_valid(at(2030) + Duration::from_secs(1)));
        assert!(!certificate.is_valid(at(2031)));
    }

    #[test]
    fn what_was_over_when_a_session_was_resumed_is_not_believed() {
        let authority = authority();
        let mut params = named(&[]);
        params.not_after = date_time_ymd(2024, 1, 1);
        assert!(!authority.certificate(&params).is_valid(at(2025)));
    }

    #[test]
    fn it_is_judged_again_when_the_authorities_change() {
        let (authority, other) = (authority(), self::authority());
        let certificate = authority.certificate(&named(&[]));
        let own = authority.trust.current().verifier.clone();
        authority.trust.replace(other.trust.current().verifier.clone(), Vec::new());
        assert!(!certificate.is_valid(at(2025)));
        authority.trust.replace(own, Vec::new());
        assert!(certificate.is_valid(at(2025)));
        // The last authority is removed.
        authority.trust.replace(None, Vec::new());
        assert!(!certificate.is_valid(at(2025)));
    }

    #[test]
    fn junk_is_not_a_certificate() {
        let authority = authority();
        let junk = [CertificateDer::from(vec![0x30, 0])];
        let read = ClientCertificate::read(&junk, &authority.trust, &authority.trust.current(), at(2025));
        assert_eq!(read.err(), Some(UnreadableCertificate));
        let none = ClientCertificate::read(&[], &authority.trust, &authority.trust.current(), at(2025));
        assert!(none.is_err());
    }
}
