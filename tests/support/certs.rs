//! Certificates made for one test, and TLS settings that use them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertificateRevocationListParams, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SanType,
    SerialNumber, date_time_ymd,
};
use rustls::crypto::ring;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

static SERIALS: AtomicU64 = AtomicU64::new(1);

/// A certificate authority.
pub struct Authority {
    certificate: Certificate,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate with its key.
pub struct Identity {
    certificate: Certificate,
    key: KeyPair,
    serial: u64,
}

impl Authority {
    pub fn new(name: &str) -> Self {
        let mut params = params(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        Self { certificate, issuer: Issuer::new(params, key) }
    }

    pub fn pem(&self) -> String {
        self.certificate.pem()
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

    pub fn expired_client(&self, name: &str) -> Identity {
        self.issue(expired(with_names(name, &[name], ExtendedKeyUsagePurpose::ClientAuth)))
    }

    /// A client whose certificate is not valid yet.
    pub fn future_client(&self, name: &str) -> Identity {
        let mut params = with_names(name, &[name], ExtendedKeyUsagePurpose::ClientAuth);
        params.not_before = date_time_ymd(3000, 1, 1);
        self.issue(params)
    }

    /// A PEM revocation list with these certificates.
    pub fn crl(&self, revoked: &[&Identity]) -> String {
        let revoked_certs = revoked.iter().map(|identity| RevokedCertParams {
            serial_number: SerialNumber::from(identity.serial),
            revocation_time: date_time_ymd(2020, 1, 1),
            reason_code: None,
            invalidity_date: None,
        });
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2020, 1, 1),
            next_update: date_time_ymd(4000, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: revoked_certs.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer).unwrap().pem().unwrap()
    }

    fn issue(&self, mut params: CertificateParams) -> Identity {
        let serial = SERIALS.fetch_add(1, Ordering::Relaxed);
        params.serial_number = Some(SerialNumber::from(serial));
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Identity { certificate, key, serial }
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.der().clone()).unwrap();
        roots
    }
}

impl Identity {
    pub fn pem(&self) -> String {
        self.certificate.pem()
    }

    pub fn der(&self) -> Vec<u8> {
        self.certificate.der().to_vec()
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

/// For a client that trusts `authority`, shows `identity`, and offers these protocols (`h2`, `http/1.1`).
pub fn client_config(authority: &Authority, identity: Option<&Identity>, alpn: &[&str]) -> ClientConfig {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(authority.roots());
    let mut config = match identity {
        Some(identity) => builder
            .with_client_auth_cert(vec![identity.certificate.der().clone()], identity.key_der())
            .unwrap(),
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    config
}

/// For a scripted agent that shows `identity`, and demands a client certificate of `clients` if given.
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
    let chain = vec![identity.certificate.der().clone()];
    let mut config = builder.with_single_cert(chain, identity.key_der()).unwrap();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Arc::new(config)
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
