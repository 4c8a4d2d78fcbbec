//! Certificates made for one test, and TLS settings that use them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertificateRevocationListParams, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SanType,
    SerialNumber, date_time_ymd,
};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion};

static SERIALS: AtomicU64 = AtomicU64::new(1);

/// A certificate authority.
pub struct Authority {
    certificate: Certificate,
    issuer: Issuer<'static, KeyPair>,
    serial: u64,
    /// The certificates between this authority and its root, this one's first.
    above: Vec<Certificate>,
}

/// A certificate with its key.
pub struct Identity {
    certificate: Certificate,
    key: KeyPair,
    serial: u64,
    above: Vec<Certificate>,
}

impl Authority {
    pub fn new(name: &str) -> Self {
        Self::of(params(name))
    }

    /// One that ends in so many seconds.
    pub fn ending_in(name: &str, seconds: u64) -> Self {
        let mut params = params(name);
        params.not_after = date_time_ymd(1970, 1, 1) + until(seconds);
        Self::of(params)
    }

    /// One with parameters of the test's own.
    pub fn with(name: &str, adapt: impl FnOnce(&mut CertificateParams)) -> Self {
        let mut params = params(name);
        adapt(&mut params);
        Self::of(params)
    }

    fn of(mut params: CertificateParams) -> Self {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        Self { certificate, issuer: Issuer::new(params, key), serial: 0, above: Vec::new() }
    }

    /// An authority below this one.
    pub fn intermediate(&self, name: &str) -> Self {
        self.intermediate_with(name, |_| ())
    }

    /// An authority below this one, with parameters of the test's own.
    pub fn intermediate_with(&self, name: &str, adapt: impl FnOnce(&mut CertificateParams)) -> Self {
        let mut params = params(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        adapt(&mut params);
        let serial = SERIALS.fetch_add(1, Ordering::Relaxed);
        params.serial_number = Some(SerialNumber::from(serial));
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let above = [vec![certificate.clone()], self.above.clone()].concat();
        Self { certificate, issuer: Issuer::new(params, key), serial, above }
    }

    pub fn pem(&self) -> String {
        self.certificate.pem()
    }

    pub fn serial(&self) -> u64 {
        self.serial
    }

    /// A server on the loopback: `localhost`, `127.0.0.1` and `::1`.
    pub fn server(&self) -> Identity {
        self.server_named(&["localhost", "127.0.0.1", "::1"])
    }

    /// A server with these names or addresses.
    pub fn server_named(&self, names: &[&str]) -> Identity {
        self.issue(with_names("server", names, ExtendedKeyUsagePurpose::ServerAuth))
    }

    pub fn expired_server(&self) -> Identity {
        let names = ["localhost", "127.0.0.1"];
        self.issue(expired(with_names("server", &names, ExtendedKeyUsagePurpose::ServerAuth)))
    }

    /// A client with this common name, and the same as its DNS name.
    pub fn client(&self, name: &str) -> Identity {
        self.issue(with_names(name, &[name], ExtendedKeyUsagePurpose::ClientAuth))
    }

    /// A client with this common name and a URI name, as SPIFFE ids are.
    pub fn client_uri(&self, name: &str, uri: &str) -> Identity {
        let mut params = with_names(name, &[], ExtendedKeyUsagePurpose::ClientAuth);
        params.subject_alt_names = vec![SanType::URI(uri.try_into().unwrap())];
        self.issue(params)
    }

    /// A client with parameters of the test's own.
    pub fn client_with(&self, name: &str, adapt: impl FnOnce(&mut CertificateParams)) -> Identity {
        let mut params = with_names(name, &[], ExtendedKeyUsagePurpose::ClientAuth);
        adapt(&mut params);
        self.issue(params)
    }

    pub fn expired_client(&self, name: &str) -> Identity {
        self.issue(expired(with_names(name, &[name], ExtendedKeyUsagePurpose::ClientAuth)))
    }

    /// A client with a certificate that is not valid yet.
    pub fn future_client(&self, name: &str) -> Identity {
        let mut params = with_names(name, &[name], ExtendedKeyUsagePurpose::ClientAuth);
        params.not_before = date_time_ymd(3000, 1, 1);
        self.issue(params)
    }

    /// A client that could sign certificates of others.
    pub fn client_that_signs(&self, name: &str) -> Identity {
        let mut params = with_names(name, &[name], ExtendedKeyUsagePurpose::ClientAuth);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        self.issue(params)
    }

    /// A client with a certificate that ends so soon.
    pub fn client_for(&self, name: &str, seconds: u64) -> Identity {
        let mut params = with_names(name, &[name], ExtendedKeyUsagePurpose::ClientAuth);
        params.not_after = date_time_ymd(1970, 1, 1) + until(seconds);
        self.issue(params)
    }

    /// A server with these names and a certificate that ends so soon.
    pub fn server_for(&self, names: &[&str], seconds: u64) -> Identity {
        let mut params = with_names("server", names, ExtendedKeyUsagePurpose::ServerAuth);
        params.not_after = date_time_ymd(1970, 1, 1) + until(seconds);
        self.issue(params)
    }

    /// A server with an RSA key.
    pub fn rsa_server(&self, names: &[&str]) -> Identity {
        let key = KeyPair::from_pem(include_str!("rsa.key.pem")).unwrap();
        self.issue_with(key, with_names("server", names, ExtendedKeyUsagePurpose::ServerAuth))
    }

    /// A PEM revocation list with these certificates.
    pub fn crl(&self, revoked: &[&Identity]) -> String {
        let serials: Vec<_> = revoked.iter().map(|identity| identity.serial).collect();
        self.crl_for(&serials, 50 * 365 * 86_400)
    }

    /// A PEM revocation list with these serial numbers, to be followed by another within so many
    /// seconds.
    pub fn crl_for(&self, revoked: &[u64], seconds: u64) -> String {
        let revoked_certs = revoked.iter().map(|serial| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: date_time_ymd(2020, 1, 1),
            reason_code: None,
            invalidity_date: None,
        });
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2020, 1, 1),
            next_update: date_time_ymd(1970, 1, 1) + until(seconds),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: revoked_certs.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer).unwrap().pem().unwrap()
    }

    fn issue(&self, params: CertificateParams) -> Identity {
        self.issue_with(KeyPair::generate().unwrap(), params)
    }

    fn issue_with(&self, key: KeyPair, mut params: CertificateParams) -> Identity {
        let serial = SERIALS.fetch_add(1, Ordering::Relaxed);
        params.serial_number = Some(SerialNumber::from(serial));
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Identity { certificate, key, serial, above: self.above.clone() }
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.der().clone()).unwrap();
        roots
    }
}

impl Identity {
    pub fn serial(&self) -> u64 {
        self.serial
    }

    /// The certificate and those above it, but for the root.
    pub fn pem(&self) -> String {
        [&self.certificate].into_iter().chain(&self.above).map(Certificate::pem).collect()
    }

    /// The certificate alone.
    pub fn der(&self) -> &[u8] {
        self.certificate.der()
    }

    fn chain(&self) -> Vec<CertificateDer<'static>> {
        [&self.certificate].into_iter().chain(&self.above).map(|one| one.der().clone()).collect()
    }

    pub fn key_pem(&self) -> String {
        self.key.serialize_pem()
    }

    /// Writes `{name}.crt` and `{name}.key`.
    pub fn write(&self, directory: &Path, name: &str) -> (PathBuf, PathBuf) {
        let paths = (directory.join(format!("{name}.crt")), directory.join(format!("{name}.key")));
        std::fs::write(&paths.0, self.pem()).unwrap();
        std::fs::write(&paths.1, self.key_pem()).unwrap();
        paths
    }

    fn key_der(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.serialize_der()))
    }
}

/// For a client that trusts `authority`, shows `identity`, and offers these protocols (`h2`,
/// `http/1.1`).
pub fn client_config(authority: &Authority, identity: Option<&Identity>, alpn: &[&str]) -> ClientConfig {
    client_config_of(rustls::DEFAULT_VERSIONS, authority, identity, alpn)
}

/// The same in these versions of TLS.
pub fn client_config_of(
    versions: &[&'static SupportedProtocolVersion],
    authority: &Authority,
    identity: Option<&Identity>,
    alpn: &[&str],
) -> ClientConfig {
    client_config_with(ring::default_provider(), versions, authority, identity, alpn)
}

/// The same with a client's own choice of ciphers.
pub fn client_config_with(
    provider: CryptoProvider,
    versions: &[&'static SupportedProtocolVersion],
    authority: &Authority,
    identity: Option<&Identity>,
    alpn: &[&str],
) -> ClientConfig {
    let builder = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(authority.roots());
    let mut config = match identity {
        Some(identity) => builder.with_client_auth_cert(identity.chain(), identity.key_der()).unwrap(),
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    config
}

/// For a scripted agent that shows `identity`, and demands a client certificate of `clients` if
/// given.
pub fn server_config(identity: &Identity, clients: Option<&Authority>) -> Arc<ServerConfig> {
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = match clients {
        Some(authority) => {
            let roots = Arc::new(authority.roots());
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
            builder.with_client_cert_verifier(verifier.unwrap())
        }
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_single_cert(identity.chain(), identity.key_der()).unwrap();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Arc::new(config)
}

/// From 1970 to so many seconds from now.
fn until(seconds: u64) -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + Duration::from_secs(seconds)
}

/// For a scripted agent that asks for a client certificate of `clients` and goes on without.
pub fn lenient_server_config(identity: &Identity, clients: &Authority) -> Arc<ServerConfig> {
    let provider = Arc::new(ring::default_provider());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(clients.roots()), Arc::clone(&provider))
            .allow_unauthenticated()
            .build()
            .unwrap();
    let builder =
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let chain = vec![identity.certificate.der().clone()];
    let config =
        builder.with_client_cert_verifier(verifier).with_single_cert(chain, identity.key_der()).unwrap();
    Arc::new(config)
}

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = date_time_ymd(2020, 1, 1);
    params
}

fn with_names(name: &str, names: &[&str], usage: ExtendedKeyUsagePurpose) -> CertificateParams {
    let mut params = params(name);
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    // Sorts names from addresses.
    params.subject_alt_names = CertificateParams::new(names).unwrap().subject_alt_names;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![usage];
    params
}

fn expired(mut params: CertificateParams) -> CertificateParams {
    params.not_before = date_time_ymd(2000, 1, 1);
    params.not_after = date_time_ymd(2001, 1, 1);
    params
}
