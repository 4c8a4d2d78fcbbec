//! The listener's side of TLS: its certificate, checked before it is used and replaceable while it is.
//!
//! Works on PEM bytes. Not here: reading files (`config`), client certificates (`auth`), the gateway as a TLS client
//! (`transport`).

mod validity;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use pingora::listeners::tls::TlsSettings;
use pingora::listeners::{ALPN, TlsAccept, TlsAcceptCallbacks};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use validity::{Validity, validity};

/// Most certificates in a chain; more is a mistake, such as a whole bundle of authorities.
const LONGEST_CHAIN: usize = 10;

/// Why a listener cannot use what it was given.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum TlsProblem {
    /// The PEM has no certificate in it.
    #[error("no certificate in the PEM (expected -----BEGIN CERTIFICATE-----)")]
    NoCertificate,
    /// The PEM has more certificates than a chain has.
    #[error("{0} certificates: expected the listener's own first, then its intermediates")]
    ChainTooLong(usize),
    /// A certificate cannot be read.
    #[error("unreadable certificate (number {number} of the chain)")]
    BadCertificate {
        /// Its place in the chain, from 1.
        number: usize,
    },
    /// A certificate is over.
    #[error("certificate expired {since:?} ago (number {number} of the chain)")]
    Expired {
        /// Its place in the chain, from 1.
        number: usize,
        /// For how long.
        since: Duration,
    },
    /// A certificate is not valid yet. The clock may be wrong.
    #[error("certificate is valid only in {after:?} (number {number} of the chain); is the clock right?")]
    NotYetValid {
        /// Its place in the chain, from 1.
        number: usize,
        /// The wait.
        after: Duration,
    },
    /// The PEM has no private key in it, or one that is encrypted.
    #[error("no private key in the PEM (encrypted keys are not supported)")]
    NoKey,
    /// The key is of a kind that cannot be used.
    #[error("unusable private key: {0}")]
    BadKey(String),
    /// The key belongs to another certificate.
    #[error("the private key does not belong to the certificate")]
    Mismatch,
    /// Pingora refused the settings.
    #[error("listener refused the settings: {0}")]
    Listener(String),
}

/// A listener's certificate; [`replace`](Self::replace) changes it for the handshakes to come.
pub struct ServerCertificate {
    current: ArcSwap<Current>,
}

struct Current {
    key: Arc<CertifiedKey>,
    expires: SystemTime,
}

impl ServerCertificate {
    /// Reads and checks a chain and its key, both PEM.
    ///
    /// # Errors
    ///
    /// [`TlsProblem`] names what is wrong at `now`.
    pub fn new(certificate: &[u8], key: &[u8], now: SystemTime) -> Result<Arc<Self>, TlsProblem> {
        let current = ArcSwap::from_pointee(read(certificate, key, now)?);
        Ok(Arc::new(Self { current }))
    }

    /// Uses another chain and key from the next handshake on. After an error the old ones stay.
    ///
    /// # Errors
    ///
    /// As [`ServerCertificate::new`].
    pub fn replace(&self, certificate: &[u8], key: &[u8], now: SystemTime) -> Result<(), TlsProblem> {
        self.current.store(Arc::new(read(certificate, key, now)?));
        Ok(())
    }

    /// When the first certificate of the chain to expire does.
    #[must_use]
    pub fn expires(&self) -> SystemTime {
        self.current.load().expires
    }
}

impl ResolvesServerCert for ServerCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.current.load().key))
    }
}

impl fmt::Debug for ServerCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerCertificate").field("expires", &self.expires()).finish_non_exhaustive()
    }
}

/// Makes ring the cryptography of the process, unless there is one. To be called before anything of Pingora.
pub fn install_provider() {
    if CryptoProvider::get_default().is_none() {
        // Fails only if another thread was quicker, which is as good.
        drop(rustls::crypto::ring::default_provider().install_default());
    }
}

/// Settings of a listener with TLS 1.2 and 1.3, HTTP/2 and HTTP/1.1, and this chain and key (PEM).
///
/// # Errors
///
/// [`TlsProblem`] names what is wrong with them now.
pub fn listener(certificate: &[u8], key: &[u8]) -> Result<TlsSettings, TlsProblem> {
    listener_with(ServerCertificate::new(certificate, key, SystemTime::now())?, Box::new(NoCallback))
}

/// The same, with a certificate that the caller can replace and callbacks that learn of each handshake.
///
/// # Errors
///
/// [`TlsProblem::Listener`] if Pingora refuses.
pub fn listener_with(
    certificate: Arc<ServerCertificate>,
    callbacks: TlsAcceptCallbacks,
) -> Result<TlsSettings, TlsProblem> {
    install_provider();
    let mut settings =
        TlsSettings::with_callbacks(callbacks).map_err(|error| TlsProblem::Listener(error.to_string()))?;
    settings.set_cert_resolver(certificate);
    settings.set_alpn(ALPN::H2H1);
    Ok(settings)
}

struct NoCallback;

impl TlsAccept for NoCallback {}

fn read(certificate: &[u8], key: &[u8], now: SystemTime) -> Result<Current, TlsProblem> {
    let chain = read_chain(certificate)?;
    let mut expires = None;
    for (at, certificate) in chain.iter().enumerate() {
        let validity = validity(certificate).ok_or(TlsProblem::BadCertificate { number: at + 1 })?;
        check(validity, at + 1, now)?;
        expires = expires.into_iter().chain([validity.not_after]).min();
    }
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| TlsProblem::NoKey)?;
    let provider = rustls::crypto::ring::default_provider();
    let key = CertifiedKey::from_der(chain, key, &provider).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => TlsProblem::Mismatch,
        rustls::Error::InvalidCertificate(_) => TlsProblem::BadCertificate { number: 1 },
        other => TlsProblem::BadKey(other.to_string()),
    })?;
    Ok(Current { key: Arc::new(key), expires: from_epoch(expires.unwrap_or(0)) })
}

fn read_chain(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsProblem> {
    let mut chain = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        chain.push(certificate.map_err(|_| TlsProblem::BadCertificate { number: chain.len() + 1 })?);
    }
    match chain.len() {
        0 => Err(TlsProblem::NoCertificate),
        count if count > LONGEST_CHAIN => Err(TlsProblem::ChainTooLong(count)),
        _ => Ok(chain),
    }
}

fn check(validity: Validity, number: usize, now: SystemTime) -> Result<(), TlsProblem> {
    if let Ok(since) = now.duration_since(from_epoch(validity.not_after))
        && !since.is_zero()
    {
        return Err(TlsProblem::Expired { number, since: Duration::from_secs(since.as_secs()) });
    }
    match from_epoch(validity.not_before).duration_since(now) {
        Ok(after) if !after.is_zero() => {
            Err(TlsProblem::NotYetValid { number, after: Duration::from_secs(after.as_secs()) })
        }
        _ => Ok(()),
    }
}

/// A certificate before 1970 is as over as one from 1970.
fn from_epoch(seconds: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    fn pair(from: i32, to: i32) -> (String, String) {
        let mut params = CertificateParams::new(vec!["gateway.example".to_owned()]).unwrap();
        (params.not_before, params.not_after) = (date_time_ymd(from, 1, 1), date_time_ymd(to, 1, 1));
        let key = KeyPair::generate().unwrap();
        (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
    }

    fn problem(certificate: &str, key: &str) -> TlsProblem {
        ServerCertificate::new(certificate.as_bytes(), key.as_bytes(), SystemTime::now()).unwrap_err()
    }

    #[test]
    fn a_good_pair_makes_a_listener() {
        let (certificate, key) = pair(2020, 2090);
        listener(certificate.as_bytes(), key.as_bytes()).unwrap();
        install_provider();
        // What Pingora does when it starts; it would panic.
        listener(certificate.as_bytes(), key.as_bytes()).unwrap().build();
    }

    #[test]
    fn each_mistake_has_its_own_words() {
        let (certificate, key) = pair(2020, 2090);
        let (_, other) = pair(2020, 2090);
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert_eq!(problem("", &key), TlsProblem::NoCertificate);
        assert_eq!(problem(&key, &key), TlsProblem::NoCertificate);
        assert_eq!(problem(broken, &key), TlsProblem::BadCertificate { number: 1 });
        assert_eq!(
            problem(&format!("{certificate}{broken}"), &key),
            TlsProblem::BadCertificate { number: 2 }
        );
        assert_eq!(problem(&certificate.repeat(11), &key), TlsProblem::ChainTooLong(11));
        assert_eq!(problem(&certificate, ""), TlsProblem::NoKey);
        assert_eq!(problem(&certificate, &certificate), TlsProblem::NoKey);
        assert_eq!(problem(&certificate, &other), TlsProblem::Mismatch);
        let junk = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        assert!(matches!(problem(&certificate, junk), TlsProblem::BadKey(_)));
    }

    #[test]
    fn time_is_checked_for_the_whole_chain() {
        let (old, old_key) = pair(2001, 2002);
        let (future, future_key) = pair(2089, 2090);
        let (good, good_key) = pair(2020, 2090);
        assert!(matches!(problem(&old, &old_key), TlsProblem::Expired { number: 1, .. }));
        assert!(matches!(problem(&future, &future_key), TlsProblem::NotYetValid { number: 1, .. }));
        assert!(matches!(problem(&format!("{good}{old}"), &good_key), TlsProblem::Expired { number: 2, .. }));
    }

    #[test]
    fn a_bad_replacement_changes_nothing() {
        let now = SystemTime::now();
        let (certificate, key) = pair(2020, 2090);
        let (next, next_key) = pair(2020, 2080);
        let server = ServerCertificate::new(certificate.as_bytes(), key.as_bytes(), now).unwrap();
        let before = server.expires();
        assert_eq!(server.replace(next.as_bytes(), key.as_bytes(), now), Err(TlsProblem::Mismatch));
        assert_eq!(server.expires(), before);
        server.replace(next.as_bytes(), next_key.as_bytes(), now).unwrap();
        assert!(server.expires() < before);
        assert!(!format!("{server:?}").contains("PRIVATE"));
    }
}
