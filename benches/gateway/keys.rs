//! The certificates of the measurements: an authority, its revocation list, and one for server and client each.

use std::path::Path;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, ExtendedKeyUsagePurpose,
    IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, date_time_ymd,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

/// The certificates that a client presents and trusts.
pub(crate) struct Keys {
    ca: CertificateDer<'static>,
    certificate: CertificateDer<'static>,
    key: String,
}

impl Keys {
    /// Creates an authority, its empty revocation list, and certificates for server and client, all
    /// of P-256.
    pub(crate) fn write(folder: &Path) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        // OpenSSL takes a certificate for its own issuer if both have one name.
        params.distinguished_name.push(DnType::CommonName, "authority");
        let ca_key = KeyPair::generate().unwrap();
        let ca = params.self_signed(&ca_key).unwrap();
        let issuer = Issuer::new(params, ca_key);
        let issue = |usage| {
            let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
            params.extended_key_usages = vec![usage];
            params.use_authority_key_identifier_extension = true;
            let key = KeyPair::generate().unwrap();
            (params.signed_by(&key, &issuer).unwrap(), key.serialize_pem())
        };
        let (server, server_key) = issue(ExtendedKeyUsagePurpose::ServerAuth);
        let (client, key) = issue(ExtendedKeyUsagePurpose::ClientAuth);
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2020, 1, 1),
            next_update: date_time_ymd(4000, 1, 1),
            crl_number: 1.into(),
            issuing_distribution_point: None,
            revoked_certs: Vec::new(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = list.signed_by(&issuer).unwrap().pem().unwrap();
        for (name, text) in [
            ("ca.pem", ca.pem()),
            ("crl.pem", list),
            ("server.crt", server.pem()),
            ("server.key", server_key),
        ] {
            std::fs::write(folder.join(name), text).unwrap();
        }
        Self { ca: ca.der().clone(), certificate: client.der().clone(), key }
    }

    /// Returns the configuration of a client, with its certificate if it shows one.
    pub(crate) fn client(&self, shows: bool) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.ca.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots);
        if !shows {
            return builder.with_no_client_auth();
        }
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).unwrap();
        builder.with_client_auth_cert(vec![self.certificate.clone()], key).unwrap()
    }
}

/// Returns the configuration of a server with the certificate in this folder.
pub(crate) fn server_config(folder: &Path, is_http2: bool) -> Arc<ServerConfig> {
    let certificate = CertificateDer::from_pem_file(folder.join("server.crt")).unwrap();
    let key = PrivateKeyDer::from_pem_file(folder.join("server.key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = builder.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap();
    config.alpn_protocols = vec![if is_http2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
    Arc::new(config)
}

/// Returns what checks clients at a server, by the authority and the list in this folder.
pub(crate) fn client_verifier(folder: &Path) -> Arc<dyn ClientCertVerifier> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(folder.join("ca.pem")).unwrap()).unwrap();
    let list = CertificateRevocationListDer::from_pem_file(folder.join("crl.pem")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).with_crls([list]).build().unwrap()
}
