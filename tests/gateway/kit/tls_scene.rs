//! The scene of the journeys over TLS: a gateway with a TLS listener on its other port, and clients
//! of it.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CipherSuite, ClientConfig, DigitallySignedStruct, NamedGroup, SignatureScheme};

use crate::support::{Authority, McpClient, PATIENCE, Ports, TestGateway, in_time};

/// The configuration of a gateway that speaks TLS on its other port, with these lines more, and
/// these files beside it. Its certificate is `server.crt`, of this authority.
pub(crate) fn listen(authority: &Authority, files: &[(&str, String)], tls: &str, ports: &Ports) -> String {
    authority.server().write(&ports.directory, "server");
    listen_with(&format!("certificate: server.crt, key: server.key, {tls}"), files, ports)
}

/// The same with certificates of the test's own.
pub(crate) fn listen_with(tls: &str, files: &[(&str, String)], ports: &Ports) -> String {
    for (name, content) in files {
        std::fs::write(ports.directory.join(name), content).unwrap();
    }
    let Ports { main, other, admin, .. } = ports;
    format!(
        "listeners:\n  - address: 127.0.0.1:{main}\n  - address: 127.0.0.1:{other}\n    tls: {{ {tls} }}\nadmin: {{ address: \
         127.0.0.1:{admin} }}\nagents:\n  nobody: {{ card: http://127.0.0.1:1/ }}\nmcp: {{ allowed_hosts: [\"*\"] }}\n"
    )
}

/// A gateway with that configuration.
pub(crate) async fn start(authority: &Authority, files: &[(&str, String)], tls: &str) -> TestGateway {
    TestGateway::start(|ports| listen(authority, files, tls, ports)).await
}

fn client(gateway: &TestGateway, config: ClientConfig) -> McpClient {
    McpClient::new(&format!("https://localhost:{}/healthz", gateway.ports().other)).tls(config)
}

/// The status of the answer to a client that speaks TLS like this.
pub(crate) async fn served(gateway: &TestGateway, config: ClientConfig) -> u16 {
    health(gateway, config).await
}

/// The status of `/healthz`.
pub(crate) async fn health(gateway: &TestGateway, config: ClientConfig) -> u16 {
    client(gateway, config).get(&[]).await.status
}

/// The status of the answer to a client that speaks TLS like this, if it gets one.
pub(crate) async fn attempt(gateway: &TestGateway, config: ClientConfig) -> Option<u16> {
    let client = client(gateway, config);
    let answer = in_time("an answer or a refusal", client.try_send("GET", &[], Vec::new())).await;
    answer.ok().map(|answer| answer.status)
}

/// Fails if a client that speaks TLS like this is answered.
pub(crate) async fn refused(gateway: &TestGateway, config: ClientConfig) {
    let client = client(gateway, config);
    let answer = in_time("a refusal", client.try_send("GET", &[], Vec::new())).await;
    assert!(answer.is_err(), "answered with {}", answer.map_or(0, |answer| answer.status));
}

/// How many handshakes of the TLS listener came out like this.
pub(crate) async fn tls_outcome(gateway: &TestGateway, outcome: &str) -> u64 {
    let listener = format!("127.0.0.1:{}", gateway.ports().other);
    let line =
        format!("mcp_a2a_gateway_tls_handshakes_total{{listener=\"{listener}\",outcome=\"{outcome}\"}} ");
    let metrics = gateway.metrics().await;
    metrics.lines().find_map(|text| text.strip_prefix(&line)).expect(&line).parse().unwrap()
}

/// Waits until so many handshakes of the TLS listener ended like this: the client may learn of it first.
pub(crate) async fn counted(gateway: &TestGateway, outcome: &str, expected: u64) {
    let begun = std::time::Instant::now();
    while tls_outcome(gateway, outcome).await != expected {
        assert!(begun.elapsed() < PATIENCE, "{outcome} is not {expected}:\n{}", gateway.metrics().await);
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

/// One TLS connection, over which requests of HTTP/1.1 go.
pub(crate) struct Connection {
    stream: tokio_rustls::client::TlsStream<tokio::net::TcpStream>,
}

impl Connection {
    pub(crate) async fn open(gateway: &TestGateway, config: &Arc<ClientConfig>) -> Self {
        Self::to(gateway, config, "localhost").await
    }

    /// For a host of this name.
    pub(crate) async fn to(gateway: &TestGateway, config: &Arc<ClientConfig>, name: &str) -> Self {
        let socket = tokio::net::TcpStream::connect(("127.0.0.1", gateway.ports().other)).await.unwrap();
        let name = name.to_owned().try_into().unwrap();
        let connector = tokio_rustls::TlsConnector::from(Arc::clone(config));
        Self { stream: in_time("a handshake", connector.connect(name, socket)).await.unwrap() }
    }

    /// Asks for `/healthz` of this host; the head of the answer, or nothing if the connection is at
    /// its end.
    pub(crate) async fn ask(&mut self, host: &str) -> Option<String> {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let request = format!("GET /healthz HTTP/1.1\r\nhost: {host}\r\n\r\n");
        self.stream.write_all(request.as_bytes()).await.ok()?;
        let mut read = Vec::new();
        loop {
            let text = String::from_utf8_lossy(&read).into_owned();
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let length = head
                    .lines()
                    .find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
                if body.len() >= length.unwrap_or(0) {
                    return Some(head.to_owned());
                }
            }
            match in_time("an answer", self.stream.read_buf(&mut read)).await {
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }

    /// Whether its handshake was a short one.
    pub(crate) fn is_resumed(&self) -> bool {
        self.stream.get_ref().1.handshake_kind() == Some(rustls::HandshakeKind::Resumed)
    }

    /// The stream below, for bytes of the test's own.
    pub(crate) fn into_stream(self) -> tokio_rustls::client::TlsStream<tokio::net::TcpStream> {
        self.stream
    }

    /// One that the test made itself.
    pub(crate) fn of(stream: tokio_rustls::client::TlsStream<tokio::net::TcpStream>) -> Self {
        Self { stream }
    }

    /// The cipher and the group that both sides agreed on.
    pub(crate) fn agreed(&self) -> (CipherSuite, NamedGroup) {
        let tls = self.stream.get_ref().1;
        let group = tls.negotiated_key_exchange_group().unwrap().name();
        (tls.negotiated_cipher_suite().unwrap().suite(), group)
    }

    /// The certificate that it was shown.
    pub(crate) fn shown(&self) -> Vec<u8> {
        self.stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
    }

    /// Waits until the server has hung up.
    pub(crate) async fn is_closed(&mut self) -> bool {
        use tokio::io::AsyncReadExt as _;
        !matches!(in_time("the end", self.stream.read(&mut [0; 1])).await, Ok(1))
    }
}

/// Takes any certificate for any host; with `rsa_only` it can check signatures of no other kind.
#[derive(Debug)]
pub(crate) struct Careless {
    pub(crate) rsa_only: bool,
}

impl ServerCertVerifier for Careless {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let mut schemes = vec![SignatureScheme::RSA_PSS_SHA256, SignatureScheme::RSA_PKCS1_SHA256];
        if !self.rsa_only {
            schemes.push(SignatureScheme::ECDSA_NISTP256_SHA256);
        }
        schemes
    }
}

/// The sending side of a connection of HTTP/2; it lives as long as what comes with it.
pub(crate) type Requests = hyper::client::conn::http2::SendRequest<http_body_util::Empty<bytes::Bytes>>;

pub(crate) async fn http2(
    gateway: &TestGateway,
    config: ClientConfig,
) -> (Requests, tokio::task::JoinHandle<()>) {
    let stream = Connection::open(gateway, &Arc::new(config)).await.stream;
    let executor = hyper_util::rt::TokioExecutor::new();
    let io = hyper_util::rt::TokioIo::new(stream);
    let (requests, connection) = hyper::client::conn::http2::handshake(executor, io).await.unwrap();
    // It ends when the test does.
    (requests, tokio::spawn(async move { drop(connection.await) }))
}

/// The status of `/healthz` over that connection.
pub(crate) async fn ask(requests: &mut Requests) -> u16 {
    let request =
        hyper::Request::get("https://localhost/healthz").body(http_body_util::Empty::new()).unwrap();
    in_time("an answer", requests.send_request(request)).await.unwrap().status().as_u16()
}
