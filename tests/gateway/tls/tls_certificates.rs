//! The TLS listener as a client sees it: certificates by name and kind of key, versions, sessions
//! that are resumed.

use std::sync::Arc;

use rustls::version::{TLS12, TLS13};
use rustls::{CipherSuite, ClientConfig, NamedGroup};

use crate::kit::tls_scene::{Connection, counted, health, listen_with, refused, start};
use crate::support::certs::{client_config, client_config_of, client_config_with};
use crate::support::{Authority, Identity, TestGateway};

/// Four certificates, by the names of their files.
struct Shown {
    authority: Authority,
    of: Vec<(&'static str, Identity)>,
}

impl Shown {
    fn new() -> Self {
        let authority = Authority::new("ours");
        let of = vec![
            ("main", authority.server_named(&["localhost", "gateway.example"])),
            ("main-rsa", authority.rsa_server(&["localhost", "gateway.example"])),
            ("wild", authority.server_named(&["*.example"])),
            ("rsa", authority.rsa_server(&["rsa.example"])),
        ];
        Self { authority, of }
    }

    async fn listen(&self) -> TestGateway {
        let pair = |name: &str| format!("certificate: {name}.crt, key: {name}.key");
        let more = ["main-rsa", "wild", "rsa"].map(|name| format!("{{ {} }}", pair(name))).join(", ");
        TestGateway::start(|ports| {
            for (name, identity) in &self.of {
                identity.write(&ports.directory, name);
            }
            listen_with(&format!("{}, certificates: [{more}]", pair("main")), &[], ports)
        })
        .await
    }

    fn name(&self, der: &[u8]) -> &'static str {
        self.of.iter().find(|(_, identity)| identity.der() == der).expect("one of them").0
    }
}

/// Checks no name, so that a certificate is taken for any host.
fn careless(authority: &Authority, rsa_only: bool) -> Arc<ClientConfig> {
    let mut config = client_config(authority, None, &["http/1.1"]);
    config.dangerous().set_certificate_verifier(Arc::new(crate::kit::tls_scene::Careless { rsa_only }));
    Arc::new(config)
}

#[tokio::test]
async fn certificate_fits_requested_name() {
    let shown = Shown::new();
    let gateway = shown.listen().await;
    for (name, expected) in [
        ("localhost", "main"),
        ("gateway.example", "main"),
        ("Any.Example", "wild"),
        ("rsa.example", "rsa"),
        ("deep.any.example", "main"),
        ("example", "main"),
        ("stranger.test", "main"),
        ("127.0.0.1", "main"),
    ] {
        let connection = Connection::to(&gateway, &careless(&shown.authority, false), name).await;
        assert_eq!(shown.name(&connection.shown()), expected, "{name}");
    }
}

#[tokio::test]
async fn rsa_only_client_sees_rsa() {
    let shown = Shown::new();
    let gateway = shown.listen().await;
    for (name, expected) in [("localhost", "main-rsa"), ("stranger.test", "main-rsa"), ("rsa.example", "rsa")]
    {
        let mut connection = Connection::to(&gateway, &careless(&shown.authority, true), name).await;
        assert_eq!(shown.name(&connection.shown()), expected, "{name}");
        assert!(connection.ask(name).await.unwrap().starts_with("HTTP/1.1 200"), "{name}");
    }
}

#[tokio::test]
async fn connection_serves_certificate_hosts() {
    let shown = Shown::new();
    let gateway = shown.listen().await;
    let config = careless(&shown.authority, false);
    for (name, host, status) in [
        ("gateway.example", "gateway.example:8443", "200"),
        ("gateway.example", "localhost", "200"),
        ("gateway.example", "stranger.test", "200"),
        ("a.example", "b.example", "200"),
        ("gateway.example", "rsa.example", "421"),
        ("a.example", "gateway.example", "421"),
        ("stranger.test", "rsa.example", "421"),
        ("127.0.0.1", "rsa.example", "200"),
    ] {
        let mut connection = Connection::to(&gateway, &config, name).await;
        let head = connection.ask(host).await.unwrap();
        assert!(head.starts_with(&format!("HTTP/1.1 {status}")), "{name} {host}: {head}");
    }
}

#[tokio::test]
async fn modern_profile_speaks_only_tls_1_3() {
    let ours = Authority::new("ours");
    let gateway = start(&ours, &[], "profile: modern").await;
    assert_eq!(health(&gateway, client_config_of(&[&TLS13], &ours, None, &["h2"])).await, 200);
    refused(&gateway, client_config_of(&[&TLS12], &ours, None, &["h2"])).await;
    counted(&gateway, "no_shared_parameters", 1).await;
}

#[tokio::test]
async fn session_is_resumed_in_every_version() {
    let ours = Authority::new("ours");
    let files = [("ca.pem", ours.pem()), ("crl.pem", ours.crl(&[]))];
    let tls = "client_auth: { mode: required, ca: ca.pem, crl: crl.pem }";
    let gateway = start(&ours, &files, tls).await;
    let identity = ours.client("good");
    for version in [&TLS12, &TLS13] {
        let config = Arc::new(client_config_of(&[version], &ours, Some(&identity), &["http/1.1"]));
        for is_resumed in [false, true, true] {
            let mut connection = Connection::open(&gateway, &config).await;
            assert!(connection.ask("localhost").await.unwrap().starts_with("HTTP/1.1 200"), "{version:?}");
            assert_eq!(connection.is_resumed(), is_resumed, "{version:?}");
        }
    }
}

#[tokio::test]
async fn session_is_worthless_at_other_listener() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let files = [("ours.pem", ours.pem()), ("theirs.pem", theirs.pem())];
    let gateway = TestGateway::start(|ports| {
        ours.server().write(&ports.directory, "server");
        let text = listen_with(
            "certificate: server.crt, key: server.key, client_auth: { mode: required, ca: ours.pem }",
            &files,
            ports,
        );
        let plain = format!("- address: 127.0.0.1:{}\n", ports.main);
        let strict = "tls: { certificate: server.crt, key: server.key, client_auth: { mode: required, ca: theirs.pem } }";
        text.replacen(&plain, &format!("{plain}    {strict}\n"), 1)
    })
    .await;
    let identity = ours.client("good");
    let config = Arc::new(client_config(&ours, Some(&identity), &["http/1.1"]));
    for _ in 0..2 {
        let mut connection = Connection::open(&gateway, &config).await;
        assert!(connection.ask("localhost").await.is_some());
    }
    assert!(Connection::open(&gateway, &config).await.is_resumed(), "so there is a session");
    let socket = tokio::net::TcpStream::connect(gateway.address()).await.unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::clone(&config));
    let other = connector.connect("localhost".try_into().unwrap(), socket).await;
    let refused = match other {
        Err(_) => true,
        Ok(stream) => Connection::of(stream).ask("localhost").await.is_none(),
    };
    assert!(refused, "a client of another authority was let in");
}

#[tokio::test]
async fn aes_128_is_preferred() {
    let ours = Authority::new("ours");
    let gateway = start(&ours, &[], "").await;
    for (version, first, other) in [
        (
            &TLS12,
            CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
            CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        ),
        (&TLS13, CipherSuite::TLS13_AES_128_GCM_SHA256, CipherSuite::TLS13_AES_256_GCM_SHA384),
    ] {
        // The client names AES with 256 bits first.
        let config = client_config_of(&[version], &ours, None, &[]);
        let suites = &config.crypto_provider().cipher_suites;
        let place = |wanted| suites.iter().position(|suite| suite.suite() == wanted).unwrap();
        assert!(place(other) < place(first));
        let connection = Connection::open(&gateway, &Arc::new(config)).await;
        assert_eq!(connection.agreed(), (first, NamedGroup::X25519));
        let mut provider = rustls::crypto::ring::default_provider();
        provider.cipher_suites.retain(|suite| suite.suite() == other);
        let only = client_config_with(provider, &[version], &ours, None, &[]);
        let connection = Connection::open(&gateway, &Arc::new(only)).await;
        assert_eq!(connection.agreed(), (other, NamedGroup::X25519));
    }
}
