//! Verified content of a listener's PEM texts: chains with their keys, authorities of clients,
//! revocation lists; and SPIFFE ids (SPIFFE-ID §2).
//!
//! The same checks at `check`, at start and at each change of a file. See also `tls` for TLS
//! itself.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use x509_parser::oid_registry::{OID_SIG_ED25519, OID_X509_EXT_ISSUER_DISTRIBUTION_POINT};
use x509_parser::prelude::{ASN1Time, FromDer, GeneralName, X509Certificate};
use x509_parser::public_key::PublicKey;
use x509_parser::revocation_list::CertificateRevocationList;

use super::{ListenerCertificate, Pem};

/// Most certificates in a chain; more is a mistake, such as a whole bundle of authorities.
const LONGEST_CHAIN: usize = 10;

/// Reason for which a listener cannot use a PEM text.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(crate) enum CertificateProblem {
    /// The PEM contains no certificate.
    #[error("holds no certificate in PEM (it begins with -----BEGIN CERTIFICATE-----)")]
    NoCertificate,
    /// The PEM contains more certificates than a chain has.
    #[error("holds {0} certificates: expected the listener's own first, then its intermediates")]
    ChainTooLong(usize),
    /// A certificate cannot be read.
    #[error("holds a certificate that cannot be read (number {0})")]
    Unreadable(usize),
    /// A certificate has expired.
    #[error("certificate {number} expired {} ago", HumanAge(*.since))]
    Expired {
        /// Its position in the PEM, from 1.
        number: usize,
        /// The time since then.
        since: Duration,
    },
    /// A certificate is not valid yet. The clock may be wrong.
    #[error("certificate {number} is valid only in {}; is the clock right?", HumanAge(*.after))]
    NotYetValid {
        /// Its position in the PEM, from 1.
        number: usize,
        /// The time until it is valid.
        after: Duration,
    },
    /// The PEM contains no private key, or an encrypted one.
    #[error("its key is no private key in PEM (encrypted keys are not supported)")]
    NoKey,
    /// The key is of an unsupported kind.
    #[error("its key cannot be used: {0}")]
    BadKey(String),
    /// The key belongs to another certificate.
    #[error("does not belong to the key beside it")]
    Mismatch,
    /// A certificate that is not the first has no name.
    #[error("has no DNS name (subject alternative name), so that no client could ask for it")]
    Nameless,
    /// A certificate may not sign others.
    #[error("certificate {0} is not an authority's: it may not sign others")]
    NoAuthority(usize),
    /// The PEM contains no revocation list.
    #[error("holds no revocation list in PEM (it begins with -----BEGIN X509 CRL-----)")]
    NoList,
    /// A revocation list cannot be read.
    #[error("holds a revocation list that cannot be read (number {0})")]
    UnreadableList(usize),
    /// A revocation list is past the time of its next update.
    #[error(
        "the revocation list of {issuer} expired {} ago (get a new one, or set expired_crl: accept)",
        HumanAge(*.since)
    )]
    ExpiredList {
        /// Its issuer.
        issuer: String,
        /// The time since then.
        since: Duration,
    },
    /// A revocation list was not signed by the authority that it names.
    #[error("the revocation list of {0} was not signed by the authority of that name in `ca`")]
    ForgedList(String),
    /// An authority has more than one revocation list, of which only one would count.
    #[error("the revocation list of {0} is not the only one: give one list of each authority")]
    ListTwice(String),
    /// An authority has no revocation list.
    #[error(
        "has no revocation list of {0}, so that every certificate below it would be refused (an empty list will do)"
    )]
    ListMissing(String),
}

/// A span of time in a form for people.
struct HumanAge(Duration);

impl fmt::Display for HumanAge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_secs() {
            seconds if seconds < 2 * 3600 => write!(f, "{seconds} seconds"),
            seconds if seconds < 2 * 86_400 => write!(f, "{} hours", seconds / 3600),
            seconds => write!(f, "{} days", seconds / 86_400),
        }
    }
}

/// A listener's certificate with the chain to its root, and its key.
#[derive(Debug, Clone)]
pub(crate) struct CertificateChain {
    pub(crate) certified: Arc<CertifiedKey>,
    /// Its DNS names in lower case, which may begin with `*.`.
    pub(crate) names: Vec<String>,
    /// Expiry of the first certificate of the chain to expire.
    pub(crate) expires: SystemTime,
}

/// An authority that signs certificates of clients.
#[derive(Debug, Clone)]
pub(crate) struct CertificateAuthority {
    pub(crate) certificate: CertificateDer<'static>,
    pub(crate) name: String,
    pub(crate) expires: SystemTime,
}

/// The revoked certificates of an authority.
#[derive(Debug, Clone)]
pub(crate) struct RevocationList {
    pub(crate) list: CertificateRevocationListDer<'static>,
    pub(crate) issuer: String,
    /// True if it is only one part of its authority's list (RFC 5280 §5.2.5).
    is_part: bool,
    /// The time at which another one should have followed.
    pub(crate) next_update: Option<SystemTime>,
}

/// Names, dates and key of a certificate, for the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CertificateSummary {
    pub(crate) subject: String,
    pub(crate) issuer: String,
    pub(crate) not_before: SystemTime,
    pub(crate) not_after: SystemTime,
    /// Kind and size of the key, such as `RSA 2048`.
    pub(crate) key: String,
}

/// Returns names, dates and key of the first certificate in a PEM text.
///
/// # Errors
///
/// [`CertificateProblem`] for a text without a certificate, and for one that cannot be read.
pub(crate) fn summary(chain: &Pem) -> Result<CertificateSummary, CertificateProblem> {
    let chain = certificates(chain)?;
    let first = chain.first().ok_or(CertificateProblem::NoCertificate)?;
    let first = parsed(first, 1)?;
    let validity = first.validity();
    let key = match first.public_key().parsed() {
        Ok(PublicKey::RSA(key)) => format!("RSA {}", key.key_size()),
        Ok(PublicKey::EC(key)) => format!("EC {}", key.key_size()),
        Ok(_) if first.public_key().algorithm.algorithm == OID_SIG_ED25519 => "Ed25519".to_owned(),
        _ => "of another kind".to_owned(),
    };
    Ok(CertificateSummary {
        subject: first.subject().to_string(),
        issuer: first.issuer().to_string(),
        not_before: time(validity.not_before),
        not_after: time(validity.not_after),
        key,
    })
}

/// Reads and verifies a chain and its key.
///
/// # Errors
///
/// [`CertificateProblem`] names the defect at `now`.
pub(crate) fn chain(
    written: &ListenerCertificate,
    now: SystemTime,
) -> Result<CertificateChain, CertificateProblem> {
    let chain = certificates(&written.certificate)?;
    if chain.len() > LONGEST_CHAIN {
        return Err(CertificateProblem::ChainTooLong(chain.len()));
    }
    let mut names = Vec::new();
    let mut expires = Vec::new();
    for (at, certificate) in chain.iter().enumerate() {
        let parsed = parsed(certificate, at + 1)?;
        expires.push(valid(&parsed, at + 1, now)?);
        if at == 0 {
            names = dns_names(&parsed);
        }
    }
    let key = PrivateKeyDer::from_pem_slice(written.key.expose().as_bytes())
        .map_err(|_| CertificateProblem::NoKey)?;
    let provider = rustls::crypto::ring::default_provider();
    let certified = CertifiedKey::from_der(chain, key, &provider).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => CertificateProblem::Mismatch,
        rustls::Error::InvalidCertificate(_) => CertificateProblem::Unreadable(1),
        other => CertificateProblem::BadKey(other.to_string()),
    })?;
    let expires = expires.into_iter().min().unwrap_or(UNIX_EPOCH);
    Ok(CertificateChain { certified: Arc::new(certified), names, expires })
}

/// Returns the expiry of the first certificate of a chain to expire.
///
/// # Errors
///
/// [`CertificateProblem`] names the defect at `now`.
pub(crate) fn end(chain: &Pem, now: SystemTime) -> Result<SystemTime, CertificateProblem> {
    let mut ends = Vec::new();
    for (at, certificate) in certificates(chain)?.iter().enumerate() {
        ends.push(valid(&parsed(certificate, at + 1)?, at + 1, now)?);
    }
    Ok(ends.into_iter().min().unwrap_or(UNIX_EPOCH))
}

/// Reads and verifies the authorities in a PEM text.
///
/// # Errors
///
/// [`CertificateProblem`] names the defect at `now`.
pub(crate) fn authorities(
    pem: &Pem,
    now: SystemTime,
) -> Result<Vec<CertificateAuthority>, CertificateProblem> {
    let mut authorities = Vec::new();
    for (at, certificate) in certificates(pem)?.into_iter().enumerate() {
        let parsed = parsed(&certificate, at + 1)?;
        let expires = valid(&parsed, at + 1, now)?;
        // Roots of version 1 have no extensions that mark them as authorities.
        let is_authority = parsed.extensions().is_empty() || parsed.is_ca();
        let usage = parsed.key_usage().map_err(|_| CertificateProblem::Unreadable(at + 1))?;
        if !is_authority || usage.is_some_and(|usage| !usage.value.key_cert_sign()) {
            return Err(CertificateProblem::NoAuthority(at + 1));
        }
        let name = parsed.subject().to_string();
        authorities.push(CertificateAuthority { certificate, name, expires });
    }
    Ok(authorities)
}

/// Reads the revocation lists in a PEM text, and verifies them against their authorities where
/// those are known.
///
/// # Errors
///
/// [`CertificateProblem`] names the defect at `now`.
pub(crate) fn revocation_lists(
    pem: &Pem,
    authorities: &[CertificateAuthority],
    accept_expired: bool,
    now: SystemTime,
) -> Result<Vec<RevocationList>, CertificateProblem> {
    let mut lists = Vec::new();
    for list in CertificateRevocationListDer::pem_slice_iter(pem.expose().as_bytes()) {
        let number = lists.len() + 1;
        let list = list.map_err(|_| CertificateProblem::UnreadableList(number))?;
        let unreadable = CertificateProblem::UnreadableList(number);
        let (_, parsed) = CertificateRevocationList::from_der(&list).map_err(|_| unreadable)?;
        let issuer = parsed.issuer().to_string();
        let next_update = parsed.next_update().map(time);
        if let Some(since) = next_update.and_then(|end| now.duration_since(end).ok())
            && !accept_expired
        {
            return Err(CertificateProblem::ExpiredList { issuer, since });
        }
        if !is_genuine(&parsed, authorities) {
            return Err(CertificateProblem::ForgedList(issuer));
        }
        let is_part = parsed.extensions().iter().any(|one| one.oid == OID_X509_EXT_ISSUER_DISTRIBUTION_POINT);
        lists.push(RevocationList { list, issuer, is_part, next_update });
    }
    if lists.is_empty() { Err(CertificateProblem::NoList) } else { Ok(lists) }
}

/// Checks that each authority has a list, and none has two: only the first of them would count.
///
/// # Errors
///
/// [`CertificateProblem::ListMissing`], [`CertificateProblem::ListTwice`].
pub(crate) fn check_revocation_coverage(
    authorities: &[CertificateAuthority],
    lists: &[RevocationList],
) -> Result<(), CertificateProblem> {
    for (at, list) in lists.iter().enumerate() {
        let mut others = lists.iter().skip(at + 1).filter(|other| other.issuer == list.issuer);
        if others.any(|other| !(list.is_part && other.is_part)) {
            return Err(CertificateProblem::ListTwice(list.issuer.clone()));
        }
    }
    let lacks = |authority: &&CertificateAuthority| !lists.iter().any(|list| list.issuer == authority.name);
    match authorities.iter().find(lacks) {
        Some(authority) => Err(CertificateProblem::ListMissing(authority.name.clone())),
        None => Ok(()),
    }
}

/// Returns true if one of the authorities with the issuer's name signed the list. The lists of
/// intermediates, which only clients present, are verified when they are used.
fn is_genuine(list: &CertificateRevocationList<'_>, authorities: &[CertificateAuthority]) -> bool {
    let mut known = authorities
        .iter()
        .filter_map(|authority| X509Certificate::from_der(&authority.certificate).ok())
        .filter(|(_, authority)| authority.subject().as_raw() == list.issuer().as_raw())
        .peekable();
    known.peek().is_none() || known.any(|(_, issuer)| list.verify_signature(issuer.public_key()).is_ok())
}

fn certificates(pem: &Pem) -> Result<Vec<CertificateDer<'static>>, CertificateProblem> {
    let mut found = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(pem.expose().as_bytes()) {
        found.push(certificate.map_err(|_| CertificateProblem::Unreadable(found.len() + 1))?);
    }
    if found.is_empty() { Err(CertificateProblem::NoCertificate) } else { Ok(found) }
}

fn parsed<'a>(
    certificate: &'a CertificateDer<'_>,
    number: usize,
) -> Result<X509Certificate<'a>, CertificateProblem> {
    match X509Certificate::from_der(certificate) {
        Ok((_, parsed)) => Ok(parsed),
        Err(_) => Err(CertificateProblem::Unreadable(number)),
    }
}

/// Returns the expiry of a certificate, if it is valid now.
fn valid(
    certificate: &X509Certificate<'_>,
    number: usize,
    now: SystemTime,
) -> Result<SystemTime, CertificateProblem> {
    let validity = certificate.validity();
    let (from, to) = (time(validity.not_before), time(validity.not_after));
    match (now.duration_since(to), from.duration_since(now)) {
        (Ok(since), _) if !since.is_zero() => Err(CertificateProblem::Expired { number, since }),
        (_, Ok(after)) if !after.is_zero() => Err(CertificateProblem::NotYetValid { number, after }),
        _ => Ok(to),
    }
}

fn dns_names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let names = certificate.subject_alternative_name().ok().flatten();
    let names = names.iter().flat_map(|names| &names.value.general_names);
    let names = names.filter_map(|name| match name {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
        _ => None,
    });
    names.collect()
}

/// Converts a time; one before 1970 is as expired as 1970.
fn time(time: ASN1Time) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(u64::try_from(time.timestamp()).unwrap_or(0))
}

/// Most bytes of an id (§2.3).
const MAX_ID_BYTES: usize = 2048;
/// Most bytes of its trust domain: those of a host in a URI (RFC 3986 §3.2.2).
const MAX_TRUST_DOMAIN_BYTES: usize = 255;
const SCHEME: &str = "spiffe://";

/// Reason for which a URI is not the SPIFFE id of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SpiffeIdError {
    /// It does not begin with `spiffe://`.
    #[error("it does not begin with {SCHEME} in lower case")]
    Scheme,
    /// It is too long.
    #[error("it is longer than {MAX_ID_BYTES} bytes")]
    TooLong,
    /// The trust domain is empty, too long, or has other characters.
    #[error("its trust domain is not 1 to {MAX_TRUST_DOMAIN_BYTES} of a-z, 0-9, dot, dash and underscore")]
    TrustDomain,
    /// It names a trust domain and nothing in it.
    #[error("it has no path, and names a trust domain instead of a workload")]
    NoPath,
    /// A segment of the path is empty, `.` or `..`.
    #[error("its path has an empty segment, a slash at its end, or a segment . or ..")]
    Segment,
    /// The path has other characters.
    #[error("its path has other characters than letters of ASCII, digits, dot, dash and underscore")]
    PathCharacter,
}

/// Returns true if a URI has the scheme of SPIFFE ids, in any case.
pub(crate) fn is_spiffe_uri(uri: &str) -> bool {
    uri.split_once(':').is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case("spiffe"))
}

/// Checks that a URI is the SPIFFE id of a workload.
pub(crate) fn check_spiffe_id(uri: &str) -> Result<(), SpiffeIdError> {
    let rest = uri.strip_prefix(SCHEME).ok_or(SpiffeIdError::Scheme)?;
    if uri.len() > MAX_ID_BYTES {
        return Err(SpiffeIdError::TooLong);
    }
    let (trust_domain, path) = match rest.split_once('/') {
        Some((trust_domain, path)) => (trust_domain, Some(path)),
        None => (rest, None),
    };
    let in_both = |byte: u8| byte.is_ascii_digit() || b".-_".contains(&byte);
    let in_trust_domain = |byte: u8| byte.is_ascii_lowercase() || in_both(byte);
    let has_length = (1..=MAX_TRUST_DOMAIN_BYTES).contains(&trust_domain.len());
    if !has_length || !trust_domain.bytes().all(in_trust_domain) {
        return Err(SpiffeIdError::TrustDomain);
    }
    for segment in path.ok_or(SpiffeIdError::NoPath)?.split('/') {
        if matches!(segment, "" | "." | "..") {
            return Err(SpiffeIdError::Segment);
        }
        if !segment.bytes().all(|byte| byte.is_ascii_alphabetic() || in_both(byte)) {
            return Err(SpiffeIdError::PathCharacter);
        }
    }
    Ok(())
}

/// Checks that a pattern that begins like a SPIFFE id matches some. `*` stands for any text.
pub(super) fn check_spiffe_pattern(pattern: &str) -> Result<(), SpiffeIdError> {
    let begins_like_one = pattern.get(..SCHEME.len()).is_some_and(|head| head.eq_ignore_ascii_case(SCHEME));
    // Any text may be the end of a trust domain and the beginning of a path.
    if begins_like_one { check_spiffe_id(&pattern.replace('*', "x/x")) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, KeyUsagePurpose, date_time_ymd};

    fn pair(from: i32, to: i32) -> (String, String) {
        let mut params = CertificateParams::new(vec!["Gateway.example".to_owned()]).unwrap();
        (params.not_before, params.not_after) = (date_time_ymd(from, 1, 1), date_time_ymd(to, 1, 1));
        let key = KeyPair::generate().unwrap();
        (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
    }

    fn read(certificate: &str, key: &str) -> Result<CertificateChain, CertificateProblem> {
        let written = ListenerCertificate { certificate: Pem::inline(certificate), key: Pem::inline(key) };
        chain(&written, SystemTime::now())
    }

    fn problem(certificate: &str, key: &str) -> CertificateProblem {
        read(certificate, key).unwrap_err()
    }

    #[test]
    fn each_mistake_has_its_own_words() {
        let (certificate, key) = pair(2020, 2090);
        let (_, other) = pair(2020, 2090);
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert_eq!(read(&certificate, &key).unwrap().names, ["gateway.example"]);
        assert_eq!(problem("", &key), CertificateProblem::NoCertificate);
        assert_eq!(problem(&key, &key), CertificateProblem::NoCertificate);
        assert_eq!(problem(broken, &key), CertificateProblem::Unreadable(1));
        assert_eq!(problem(&format!("{certificate}{broken}"), &key), CertificateProblem::Unreadable(2));
        assert_eq!(problem(&certificate.repeat(11), &key), CertificateProblem::ChainTooLong(11));
        assert_eq!(problem(&certificate, ""), CertificateProblem::NoKey);
        assert_eq!(problem(&certificate, &certificate), CertificateProblem::NoKey);
        assert_eq!(problem(&certificate, &other), CertificateProblem::Mismatch);
        let junk = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        assert!(matches!(problem(&certificate, junk), CertificateProblem::BadKey(_)));
    }

    #[test]
    fn time_is_checked_for_the_whole_chain() {
        let (old, old_key) = pair(2001, 2002);
        let (future, future_key) = pair(2089, 2090);
        let (good, good_key) = pair(2020, 2090);
        assert!(matches!(problem(&old, &old_key), CertificateProblem::Expired { number: 1, .. }));
        assert!(matches!(problem(&future, &future_key), CertificateProblem::NotYetValid { number: 1, .. }));
        let both = format!("{good}{old}");
        assert!(matches!(problem(&both, &good_key), CertificateProblem::Expired { number: 2, .. }));
    }

    #[test]
    fn a_summary_has_names_dates_and_key() {
        let (certificate, _) = pair(2020, 2090);
        let summary = summary(&Pem::inline(certificate)).unwrap();
        assert_eq!((summary.key.as_str(), summary.subject == summary.issuer), ("EC 256", true));
        let seconds = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap().as_secs();
        assert_eq!([summary.not_before, summary.not_after].map(seconds), [1_577_836_800, 3_786_912_000]);
        assert_eq!(super::summary(&Pem::inline("")), Err(CertificateProblem::NoCertificate));
    }

    #[test]
    fn spans_are_said_in_words() {
        for (seconds, words) in
            [(5, "5 seconds"), (7200, "2 hours"), (172_799, "47 hours"), (172_800, "2 days")]
        {
            assert_eq!(HumanAge(Duration::from_secs(seconds)).to_string(), words);
        }
    }

    #[test]
    fn an_authority_may_sign() {
        let (leaf, _) = pair(2020, 2090);
        let refused = authorities(&Pem::inline(leaf), SystemTime::now()).unwrap_err();
        assert_eq!(refused, CertificateProblem::NoAuthority(1));
        for (usages, may) in [
            (vec![], true),
            (vec![KeyUsagePurpose::KeyCertSign], true),
            (vec![KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature], false),
        ] {
            let mut params = CertificateParams::default();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.key_usages = usages.clone();
            let root = params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem();
            let read = authorities(&Pem::inline(root), SystemTime::now());
            let expected = if may { None } else { Some(CertificateProblem::NoAuthority(1)) };
            assert_eq!(read.err(), expected, "{usages:?}");
        }
    }
}

#[cfg(test)]
mod spiffe_tests {
    use super::*;

    #[test]
    fn spiffe_id_is_checked_by_its_specification() {
        use SpiffeIdError::{NoPath, PathCharacter, Scheme, Segment, TooLong, TrustDomain};
        let long = |length: usize| format!("spiffe://corp/{}", "a".repeat(length - "spiffe://corp/".len()));
        let domain = |length: usize| format!("spiffe://{}/a", "a".repeat(length));
        for (uri, expected) in [
            ("spiffe://corp/a", Ok(())),
            ("spiffe://a.b-c_d.0/ns/A/sa/b.c-d_e", Ok(())),
            ("spiffe://10.0.0.1/a", Ok(())),
            ("spiffe://corp/...", Ok(())),
            (&long(2048), Ok(())),
            (&long(2049), Err(TooLong)),
            (&domain(255), Ok(())),
            (&domain(256), Err(TrustDomain)),
            ("SPIFFE://corp/a", Err(Scheme)),
            ("spiffe:/corp/a", Err(Scheme)),
            ("https://corp/a", Err(Scheme)),
            ("spiffe:///a", Err(TrustDomain)),
            ("spiffe://Corp/a", Err(TrustDomain)),
            ("spiffe://corp:1/a", Err(TrustDomain)),
            ("spiffe://me@corp/a", Err(TrustDomain)),
            ("spiffe://[::1]/a", Err(TrustDomain)),
            ("spiffe://corp%2e/a", Err(TrustDomain)),
            ("spiffe://corp?a", Err(TrustDomain)),
            ("spiffe://corp", Err(NoPath)),
            ("spiffe://corp/", Err(Segment)),
            ("spiffe://corp/a/", Err(Segment)),
            ("spiffe://corp//a", Err(Segment)),
            ("spiffe://corp/./a", Err(Segment)),
            ("spiffe://corp/a/../b", Err(Segment)),
            ("spiffe://corp/a%2fb", Err(PathCharacter)),
            ("spiffe://corp/a?b", Err(PathCharacter)),
            ("spiffe://corp/a#b", Err(PathCharacter)),
            ("spiffe://corp/a b", Err(PathCharacter)),
            ("spiffe://corp/é", Err(PathCharacter)),
        ] {
            assert_eq!(check_spiffe_id(uri), expected, "{uri}");
        }
        assert!(is_spiffe_uri("Spiffe:x") && !is_spiffe_uri("https://spiffe:1/") && !is_spiffe_uri("spiffe"));
    }

    #[test]
    fn spiffe_pattern_must_fit_some_id() {
        for pattern in
            ["spiffe://*", "spiffe://corp/*", "spiffe://*/a", "spiffe://corp/a*/b", "spiffe:*", "*"]
        {
            assert_eq!(check_spiffe_pattern(pattern), Ok(()), "{pattern}");
        }
        for pattern in ["spiffe://Corp/*", "spiffe://corp/*/", "spiffe://corp/../*", "SPIFFE://corp/*"] {
            assert!(check_spiffe_pattern(pattern).is_err(), "{pattern}");
        }
    }
}
