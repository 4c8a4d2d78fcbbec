//! The verification of a client certificate, the names in it, and its current validity.
//!
//! Adds to the verifier of rustls the bounds of `transport`, and checks that webpki leaves out: the
//! key usage of the client's own certificate, and the name constraints of its authorities on its
//! common name.
//!
//! A handshake verifies a certificate once; connections stay open after that, and resumed sessions
//! skip it. So every request calls [`ClientCertificate::is_valid`], which verifies again, in full,
//! once authorities or revocation lists have changed or something has expired, and costs next to
//! nothing otherwise. The subject becomes text such that no two subjects have the same (RFC 4514).
//! See `tls` for reading authorities and lists.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use data_encoding::HEXLOWER;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DistinguishedName, Error};
use sha2::{Digest, Sha256};
use tokio::sync::watch;
use x509_parser::der_parser::asn1_rs::Any;
use x509_parser::oid_registry::{OID_X509_COMMON_NAME, OID_X509_EXT_NAME_CONSTRAINTS, Oid};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate, X509Name};

use crate::sync::lock;
use crate::transport::{forward_signature_methods, verify_bounded};

const HOUR: Duration = Duration::from_secs(3600);

/// The authorities and revocation lists that a listener trusts at one time; none of them ever
/// changes.
pub(crate) struct TrustAnchors {
    number: u64,
    /// `None`: no authority is trusted.
    verifier: Option<Arc<ChainVerifier>>,
    /// The ends of authorities and lists, as far as they matter.
    ends: Vec<SystemTime>,
}

/// The current trust of a listener. Shared with its connections.
pub(crate) struct TrustHandle {
    current: ArcSwap<TrustAnchors>,
    changes: watch::Sender<u64>,
}

impl TrustHandle {
    /// Creates the trust in certificates that `verifier` accepts; it is verified again after each
    /// of `ends`.
    pub(crate) fn new(verifier: Arc<ChainVerifier>, ends: Vec<SystemTime>) -> Arc<Self> {
        let current = ArcSwap::from_pointee(TrustAnchors { number: 0, verifier: Some(verifier), ends });
        Arc::new(Self { current, changes: watch::Sender::new(0) })
    }

    /// Replaces the trust, for open connections also; without a verifier no certificate is trusted.
    pub(crate) fn replace(&self, verifier: Option<Arc<ChainVerifier>>, ends: Vec<SystemTime>) {
        let number = self.current.load().number + 1;
        self.current.store(Arc::new(TrustAnchors { number, verifier, ends }));
        self.changes.send_replace(number);
    }

    /// Returns the current trust.
    pub(crate) fn current(&self) -> Arc<TrustAnchors> {
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
    pub(crate) fn read(
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
            subject: subject_text(certificate.subject()),
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
    #[cfg(test)]
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

/// The facts of a TLS handshake about the client. Attached to its connection (see `http_edge`).
pub(crate) struct ClientTlsInfo {
    /// Its certificate, if it presented one.
    pub(crate) certificate: Option<Arc<ClientCertificate>>,
    /// True if a client that asks for this host gets the same server certificates as this one did.
    pub(crate) is_for: Box<dyn Fn(&str) -> bool + Send + Sync>,
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

/// Encodes by RFC 4514: the most specific part first, parts between commas, and everything escaped
/// that could be read as more.
fn subject_text(subject: &X509Name<'_>) -> String {
    let parts: Vec<_> = subject.iter_rdn().collect();
    let parts = parts.iter().rev().map(|part| {
        let pairs = part.iter().map(|pair| {
            let mut text = attribute_name(pair.attr_type());
            text.push('=');
            match pair.as_str() {
                Ok(value) => escape_attribute(value, &mut text),
                // A value that is no text: its bytes.
                Err(_) => {
                    text.push('#');
                    HEXLOWER.encode_append(pair.as_slice(), &mut text);
                }
            }
            text
        });
        pairs.collect::<Vec<_>>().join("+")
    });
    parts.collect::<Vec<_>>().join(",")
}

/// Returns the name of RFC 4514 §3; the number for other attributes.
fn attribute_name(kind: &Oid<'_>) -> String {
    let number = kind.to_id_string();
    let name = match number.as_str() {
        "2.5.4.3" => "CN",
        "2.5.4.6" => "C",
        "2.5.4.7" => "L",
        "2.5.4.8" => "ST",
        "2.5.4.9" => "STREET",
        "2.5.4.10" => "O",
        "2.5.4.11" => "OU",
        "0.9.2342.19200300.100.1.1" => "UID",
        "0.9.2342.19200300.100.1.25" => "DC",
        _ => return number,
    };
    name.to_owned()
}

fn escape_attribute(value: &str, text: &mut String) {
    let last = value.chars().count().saturating_sub(1);
    for (at, letter) in value.chars().enumerate() {
        let at_edge = (letter == ' ' && (at == 0 || at == last)) || (letter == '#' && at == 0);
        match letter {
            '"' | '+' | ',' | ';' | '<' | '>' | '\\' | '=' => {
                text.push('\\');
                text.push(letter);
            }
            _ if at_edge => {
                text.push('\\');
                text.push(letter);
            }
            _ if letter.is_control() => {
                for byte in letter.encode_utf8(&mut [0; 4]).bytes() {
                    text.push('\\');
                    HEXLOWER.encode_append(&[byte], text);
                }
            }
            _ => text.push(letter),
        }
    }
}

/// The error of a client certificate that cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the client certificate cannot be read")]
pub(crate) struct UnreadableCertificate;

/// Verifies client certificates. Wraps the verifier of rustls with the checks of this module.
#[derive(Debug)]
pub(crate) struct ChainVerifier {
    inner: Arc<dyn ClientCertVerifier>,
    /// The constraints of the trusted authorities that have some, by subject.
    root_constraints: HashMap<Vec<u8>, Vec<DnsConstraints>>,
}

impl ChainVerifier {
    /// Wraps `inner`, which trusts these roots.
    ///
    /// # Errors
    ///
    /// [`UnreadableCertificate`], if a root cannot be read.
    pub(crate) fn new(
        inner: Arc<dyn ClientCertVerifier>,
        roots: &[CertificateDer<'_>],
    ) -> Result<Self, UnreadableCertificate> {
        let mut root_constraints: HashMap<_, Vec<_>> = HashMap::new();
        for root in roots {
            let root = parse(root)?;
            if let Some(constraints) = DnsConstraints::of(&root)? {
                let subject = root.subject().as_raw().to_vec();
                root_constraints.entry(subject).or_default().push(constraints);
            }
        }
        Ok(Self { inner, root_constraints })
    }

    /// Returns true if the authorities of a verified chain may name a client by this common name.
    ///
    /// Verification applies name constraints to subject alternative names only. An authority that
    /// is confined to some DNS names names nothing else by a common name. Constraints of every
    /// authority that could be on the path apply.
    fn permits_common_name(&self, chain: &[X509Certificate<'_>], name: &str) -> bool {
        let name = name.to_ascii_lowercase();
        chain.iter().enumerate().all(|(at, certificate)| {
            let of_roots = self.root_constraints.get(certificate.issuer().as_raw());
            if !of_roots.into_iter().flatten().all(|constraints| constraints.permit(&name)) {
                return false;
            }
            let own = if at == 0 { Ok(None) } else { DnsConstraints::of(certificate) };
            own.is_ok_and(|own| own.is_none_or(|constraints| constraints.permit(&name)))
        })
    }
}

impl ClientCertVerifier for ChainVerifier {
    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        verify_bounded(end_entity, intermediates, |authorities| {
            if !may_sign_handshakes(end_entity)? {
                return Err(CertificateError::InvalidPurpose.into());
            }
            self.inner.verify_client_cert(end_entity, authorities, now)
        })
    }

    fn offer_client_auth(&self) -> bool {
        self.inner.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.inner.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    forward_signature_methods!(inner);
}

/// Returns true if a client may prove by signatures that the key of its certificate is its own (RFC
/// 5280 §4.2.1.3).
fn may_sign_handshakes(certificate: &CertificateDer<'_>) -> Result<bool, Error> {
    let certificate = parse(certificate).map_err(unreadable)?;
    let usage = certificate.key_usage().map_err(unreadable)?;
    Ok(usage.is_none_or(|usage| usage.value.digital_signature()))
}

fn unreadable<T>(_: T) -> Error {
    CertificateError::BadEncoding.into()
}

pub(super) fn parse<'a>(
    certificate: &'a CertificateDer<'_>,
) -> Result<X509Certificate<'a>, UnreadableCertificate> {
    X509Certificate::from_der(certificate).map(|(_, parsed)| parsed).map_err(|_| UnreadableCertificate)
}

/// The DNS names to which an authority is confined (RFC 5280 §4.2.1.10), in lower case.
#[derive(Debug, Default)]
struct DnsConstraints {
    permitted: Vec<String>,
    excluded: Vec<String>,
}

impl DnsConstraints {
    /// Reads those of an authority. Not with x509-parser's own type, which ignores subtrees that it
    /// cannot read.
    fn of(authority: &X509Certificate<'_>) -> Result<Option<Self>, UnreadableCertificate> {
        let extension = authority.get_extension_unique(&OID_X509_EXT_NAME_CONSTRAINTS);
        let Some(extension) = extension.map_err(|_| UnreadableCertificate)? else { return Ok(None) };
        let mut constraints = Self::default();
        let [both] = elements(extension.value)?[..] else { return Err(UnreadableCertificate) };
        for (number, subtrees) in elements(both.1)? {
            let names = match number {
                0 => &mut constraints.permitted,
                1 => &mut constraints.excluded,
                _ => return Err(UnreadableCertificate),
            };
            for (_, subtree) in elements(subtrees)? {
                if let Some((2, name)) = elements(subtree)?.first() {
                    let name = std::str::from_utf8(name).map_err(|_| UnreadableCertificate)?;
                    names.push(name.to_ascii_lowercase());
                }
            }
        }
        Ok(Some(constraints))
    }

    /// Returns true if a name in lower case is permitted.
    fn permit(&self, name: &str) -> bool {
        let is_within = |base: &String| is_within(name.trim_end_matches('.'), base);
        let is_permitted = || is_host(name) && self.permitted.iter().any(is_within);
        !self.excluded.iter().any(is_within) && (self.permitted.is_empty() || is_permitted())
    }
}

/// Splits DER into its elements: the number of the tag and the content of each.
fn elements(mut der: &[u8]) -> Result<Vec<(u32, &[u8])>, UnreadableCertificate> {
    let mut elements = Vec::new();
    while !der.is_empty() {
        let (rest, element) = Any::from_der(der).map_err(|_| UnreadableCertificate)?;
        elements.push((element.tag().0, element.data));
        der = rest;
    }
    Ok(elements)
}

/// Returns true if a name is a constraint's own or below it; a leading dot permits only names
/// below.
fn is_within(name: &str, base: &str) -> bool {
    match name.strip_suffix(base) {
        Some(rest) => rest.is_empty() || rest.ends_with('.') || base.is_empty() || base.starts_with('.'),
        None => false,
    }
}

/// Returns true if a name can be that of a host.
fn is_host(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    name.len() <= 253 && name.split('.').all(|label| !label.is_empty() && label.bytes().all(fits))
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType, date_time_ymd};
    use rustls::RootCertStore;
    use rustls::server::WebPkiClientVerifier;

    use super::*;

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
    fn expired_certificate_of_resumed_session_is_refused() {
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

    #[test]
    fn constraints_permit_names_within() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        for (permitted, excluded, name, expected) in [
            (&[][..], &[][..], "any name", true),
            (&["a.example"], &[], "a.example", true),
            (&["a.example"], &[], "b.a.example", true),
            (&["a.example"], &[], "ba.example", false),
            (&["a.example"], &[], "example", false),
            (&["a.example", "b.example"], &[], "x.b.example", true),
            (&[".a.example"], &[], "b.a.example", true),
            (&[".a.example"], &[], "a.example", false),
            (&[""], &[], "b.example", true),
            (&[""], &[], "no host", false),
            (&["a.example"], &[], "x/a.example", false),
            (&["a.example"], &[], "*.a.example", false),
            (&["a.example"], &[], "b..a.example", false),
            (&["a.example"], &["b.a.example"], "c.b.a.example", false),
            (&["a.example"], &["b.a.example"], "c.a.example", true),
            (&[], &["a.example"], "x/b.a.example", false),
            (&[], &["a.example"], "a.example.", false),
            (&[], &[""], "b.example", false),
        ] {
            let constraints = DnsConstraints { permitted: names(permitted), excluded: names(excluded) };
            assert_eq!(constraints.permit(name), expected, "{permitted:?} {excluded:?} {name}");
        }
    }

    #[test]
    fn cut_der_is_unreadable() {
        assert_eq!(elements(&[0x30, 2, 0x82, 0]).unwrap().len(), 1);
        for junk in [&[0x30][..], &[0x30, 5, 0], &[0x30, 0, 0x30]] {
            assert!(elements(junk).is_err(), "{junk:?}");
        }
    }
}
