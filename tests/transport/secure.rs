//! TLS, client certificates and HTTP/2, against rustls and hyper's server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Request, Response, Version};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use mcp_a2a_gateway::transport::{
    AddressPolicy, DeliveryState, TargetSettings, TlsConfigError, TransportError, Upstream, client_config,
};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::Barrier;
use tokio_rustls::TlsAcceptor;

use crate::support::*;

/// A certificate authority of the test's own.
pub(crate) struct Authority {
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

/// A chain and its key.
pub(crate) type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

pub(crate) fn authority() -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap().der().clone();
    Authority { certificate, issuer: Issuer::new(params, key) }
}

impl Authority {
    pub(crate) fn certificate(&self) -> CertificateDer<'static> {
        self.certificate.clone()
    }

    pub(crate) fn issue(&self, name: &str) -> Identity {
        self.issue_until(name, 2100)
    }

    fn issue_until(&self, name: &str, year: i32) -> Identity {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_after = date_time_ymd(year, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (vec![certificate.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
    }

    fn roots(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate()).unwrap();
        Arc::new(roots)
    }
}

/// The requests that a secure server has seen, and its behaviour.
struct Secure {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    full: Arc<AtomicUsize>,
}

fn server_config(identity: Identity, clients: Option<&Authority>, protocols: &[&str]) -> Arc<ServerConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = match clients {
        Some(clients) => {
            let verifier =
                WebPkiClientVerifier::builder_with_provider(clients.roots(), provider).build().unwrap();
            builder.with_client_cert_verifier(verifier)
        }
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_single_cert(identity.0, identity.1).unwrap();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    Arc::new(config)
}

/// Answers with the client's certificate (its length is not needed, its bytes are); `/together`
/// waits for two.
async fn secure(config: Arc<ServerConfig>) -> Secure {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (connections, full) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let (counter, handshakes, together) =
        (Arc::clone(&connections), Arc::clone(&full), Arc::new(Barrier::new(2)));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (config, counter, together) =
                (Arc::clone(&config), Arc::clone(&counter), Arc::clone(&together));
            let handshakes = Arc::clone(&handshakes);
            tokio::spawn(async move {
                let Ok(stream) = TlsAcceptor::from(config).accept(stream).await else { return };
                counter.fetch_add(1, Ordering::SeqCst);
                let session = stream.get_ref().1;
                if session.handshake_kind() == Some(rustls::HandshakeKind::Full) {
                    handshakes.fetch_add(1, Ordering::SeqCst);
                }
                let peer =
                    session.peer_certificates().map_or_else(Bytes::new, |chain| chain[0].to_vec().into());
                let http2 = session.alpn_protocol() == Some(b"h2");
                let service = service_fn(move |request| answer(request, peer.clone(), Arc::clone(&together)));
                let stream = TokioIo::new(stream);
                if http2 {
                    let serving = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    drop(serving.serve_connection(stream, service).await);
                } else {
                    drop(hyper::server::conn::http1::Builder::new().serve_connection(stream, service).await);
                }
            });
        }
    });
    Secure { address, connections, full }
}

async fn answer(
    request: Request<Incoming>,
    peer: Bytes,
    together: Arc<Barrier>,
) -> Result<Response<Full<Bytes>>, std::convert::Infallible> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    match path.as_str() {
        "/together" => {
            together.wait().await;
        }
        "/never" => std::future::pending().await,
        "/echo" => return Ok(Response::new(Full::new(body))),
        _ => {}
    }
    let mut response = Response::new(Full::new(peer));
    if path == "/huge" {
        response.headers_mut().insert("x-huge", "y".repeat(100_000).parse().unwrap());
    }
    Ok(response)
}

impl Secure {
    fn target(&self, trusted: &Authority, identity: Option<Identity>) -> Upstream {
        self.target_named("localhost", trusted, identity)
    }

    fn target_named(&self, name: &str, trusted: &Authority, identity: Option<Identity>) -> Upstream {
        let tls = client_config(Some(&[trusted.certificate()]), identity).unwrap();
        let uri = format!("https://{name}:{}", self.address.port()).parse().unwrap();
        let settings = TargetSettings {
            tls: Some(Arc::new(tls)),
            timeouts: PATIENT,
            ..TargetSettings::new(uri, AddressPolicy::Trusted)
        };
        Upstream::new(settings).unwrap()
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

fn get(path: &str) -> Request<Bytes> {
    Request::get(path).body(Bytes::new()).unwrap()
}

#[tokio::test]
async fn trusted_agent_reuses_connection() {
    let authority = authority();
    let server = secure(server_config(authority.issue("localhost"), None, &["h2", "http/1.1"])).await;
    let (client, target) = (client(), server.target(&authority, None));
    for _ in 0..3 {
        let mut reply = client.send(&target, get("/")).await.unwrap();
        // Not attached: HTTP/2 was not offered.
        assert_eq!(reply.version(), Version::HTTP_11);
        reply.collect(10_000).await.unwrap();
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn untrusted_agent_is_refused() {
    let (ours, theirs) = (authority(), authority());
    for (identity, why) in [
        (theirs.issue("localhost"), "another authority"),
        (ours.issue("elsewhere.example"), "another name"),
        (ours.issue_until("localhost", 2001), "expired"),
    ] {
        let server = secure(server_config(identity, None, &[])).await;
        for attached in [false, true] {
            let client = client();
            if attached {
                client.attach(Handle::current());
            }
            let error = client.send(&server.target(&ours, None), get("/")).await.err().unwrap();
            assert!(
                matches!(error, TransportError::Tls(_)) && error.sent() == DeliveryState::No,
                "{why}: {error}"
            );
        }
    }
    let server = secure(server_config(ours.issue("localhost"), None, &[])).await;
    let error = client().send(&server.target_named("127.0.0.1", &ours, None), get("/")).await.err().unwrap();
    assert!(matches!(error, TransportError::Tls(_)), "an address is not the name: {error}");
}

#[test]
fn useless_trust_is_reported() {
    assert!(matches!(client_config(Some(&[]), None), Err(TlsConfigError::NoAuthority)));
    let junk = CertificateDer::from(vec![1, 2, 3]);
    assert!(matches!(client_config(Some(&[junk]), None), Err(TlsConfigError::BadAuthority(_))));
    let authority = authority();
    let (chain, _) = authority.issue("one");
    let (_, key) = authority.issue("two");
    let mixed = client_config(Some(&[authority.certificate()]), Some((chain, key)));
    assert!(matches!(mixed, Err(TlsConfigError::BadIdentity(_))));
}

#[tokio::test]
async fn certificates_share_no_connection() {
    let authority = authority();
    let config = server_config(authority.issue("localhost"), Some(&authority), &["h2", "http/1.1"]);
    let server = secure(config).await;
    for attached in [false, true] {
        let client = client();
        if attached {
            client.attach(Handle::current());
        }
        let identities = ["one", "two"].map(|name| authority.issue(name));
        let certificates = identities.each_ref().map(|identity| identity.0[0].to_vec());
        let targets = identities.map(|identity| server.target(&authority, Some(identity)));
        for _ in 0..20 {
            for (target, certificate) in targets.iter().zip(&certificates) {
                let seen = client.send(target, get("/")).await.unwrap().collect(10_000).await.unwrap();
                assert_eq!(&seen, certificate);
            }
        }
        let anonymous = client.send(&server.target(&authority, None), get("/")).await;
        assert!(anonymous.is_err() || anonymous.unwrap().collect(10).await.is_err());
    }
    assert!(server.connections() >= 4);
}

#[tokio::test]
async fn new_connection_resumes_session() {
    let authority = authority();
    let server = secure(server_config(authority.issue("localhost"), None, &[])).await;
    let (client, target) = (client(), server.target(&authority, None));
    for _ in 0..3 {
        client.send(&target, get("/")).await.unwrap().collect(10_000).await.unwrap();
        client.sweep(std::time::Instant::now() + std::time::Duration::from_secs(60));
    }
    assert_eq!((server.connections(), server.full.load(Ordering::SeqCst)), (3, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http2_is_negotiated_and_shared() {
    let authority = authority();
    let server = secure(server_config(authority.issue("localhost"), None, &["h2", "http/1.1"])).await;
    let (client, target) = (client(), server.target(&authority, None));
    client.attach(Handle::current());
    // Both are answered only once both have arrived; and a burst opens one connection.
    let (first, second) =
        tokio::join!(client.send(&target, get("/together")), client.send(&target, get("/together")));
    for mut reply in [first.unwrap(), second.unwrap()] {
        assert_eq!(reply.version(), Version::HTTP_2);
        reply.collect(10_000).await.unwrap();
    }
    let mut echo = post("{\"a\":1}");
    *echo.uri_mut() = "/echo".parse().unwrap();
    assert_eq!(client.send(&target, echo).await.unwrap().collect(100).await.unwrap(), "{\"a\":1}");
    assert_eq!((server.connections(), client.idle_connections()), (1, 1));
    client.sweep(std::time::Instant::now());
    client.sweep(std::time::Instant::now() + std::time::Duration::from_secs(31));
    assert_eq!(client.idle_connections(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http2_waits_end_and_spoil_nothing() {
    let authority = authority();
    let server = secure(server_config(authority.issue("localhost"), None, &["h2"])).await;
    let (client, target) = (client(), server.target(&authority, None));
    client.attach(Handle::current());
    let hasty =
        target.with_timeouts(mcp_a2a_gateway::transport::ExchangeTimeouts { first_byte: ms(100), ..PATIENT });
    let error = client.send(&hasty, get("/never")).await.err().unwrap();
    assert!(matches!(error, TransportError::FirstByteTimeout), "{error}");
    let error = client.send(&target, get("/huge")).await.err().unwrap();
    assert_eq!(error.sent(), DeliveryState::Maybe, "{error}");
    client.send(&target, get("/")).await.unwrap().collect(10_000).await.unwrap();
    assert_eq!(client.idle_connections(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_http2_connection_is_replaced() {
    let authority = authority();
    let config = server_config(authority.issue("localhost"), None, &["h2"]);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Arc::<AtomicUsize>::default();
    let counter = Arc::clone(&connections);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            counter.fetch_add(1, Ordering::SeqCst);
            let stream = TlsAcceptor::from(Arc::clone(&config)).accept(stream).await.unwrap();
            let service = service_fn(|request| answer(request, Bytes::new(), Arc::new(Barrier::new(2))));
            let serving = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            let served = serving.serve_connection(TokioIo::new(stream), service);
            // Each connection dies after a while, without a goodbye.
            drop(tokio::time::timeout(ms(100), served).await);
        }
    });
    let server = Secure { address, connections, full: Arc::default() };
    let (client, target) = (client(), server.target(&authority, None));
    client.attach(Handle::current());
    for _ in 0..3 {
        client.send(&target, get("/")).await.unwrap().collect(10).await.unwrap();
        tokio::time::sleep(ms(150)).await;
    }
    assert_eq!(server.connections(), 3);
    client.sweep(std::time::Instant::now());
    assert_eq!(client.idle_connections(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http2_alone_is_required_by_alpn() {
    let authority = authority();
    let tls = Arc::new(client_config(Some(&[authority.certificate()]), None).unwrap());
    for (protocols, is_spoken) in
        [(&["h2", "http/1.1"][..], true), (&["h2"], true), (&["http/1.1"], false), (&[], false)]
    {
        let server = secure(server_config(authority.issue("localhost"), None, protocols)).await;
        let uri = format!("https://localhost:{}", server.address.port()).parse().unwrap();
        let settings = TargetSettings {
            tls: Some(tls.clone()),
            timeouts: PATIENT,
            http2_only: true,
            ..TargetSettings::new(uri, AddressPolicy::Trusted)
        };
        let sent = client().send(&Upstream::new(settings).unwrap(), get("/")).await;
        match is_spoken {
            true => assert_eq!(sent.unwrap().version(), Version::HTTP_2),
            false => {
                let error = sent.err().unwrap();
                assert_eq!(error.sent(), DeliveryState::No, "{error}");
                assert!(error.to_string().contains("does not speak HTTP/2"), "{error}");
            }
        }
    }
}
