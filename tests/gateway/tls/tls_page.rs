//! The configuration on the page about TLS, as it stands there but for its places.

use std::sync::Arc;

use crate::kit::tls_scene::{Connection, health, refused};
use crate::operations::documents::configuration;
use crate::support::certs::client_config;
use crate::support::{Authority, TestGateway};

#[tokio::test]
async fn configuration_of_page_works() {
    let ours = Authority::new("ours");
    let partners = ours.server_named(&["partners.example.com"]);
    let gateway = TestGateway::start(|ports| {
        let directory = &ports.directory;
        ours.server_named(&["localhost", "gateway.example.com"]).write(directory, "tls");
        partners.write(directory, "partners");
        std::fs::write(directory.join("clients-ca.pem"), ours.pem()).unwrap();
        std::fs::write(directory.join("clients.crl"), ours.crl(&[])).unwrap();
        let written = configuration("docs/how-to/mtls.md", "TLS and mTLS")
            .replace("/etc/gateway", directory.to_str().unwrap())
            .replace("0.0.0.0:8443", &format!("127.0.0.1:{}", ports.other))
            .replace("127.0.0.1:8080", &format!("127.0.0.1:{}", ports.main));
        format!("{written}admin: {{ address: 127.0.0.1:{} }}\n", ports.admin)
    })
    .await;
    let client = ours.client("good");
    let show = |identity| client_config(&ours, identity, &["http/1.1"]);
    assert_eq!(health(&gateway, show(Some(&client))).await, 200);
    refused(&gateway, show(None)).await;
    let config = Arc::new(show(Some(&client)));
    let mut connection = Connection::to(&gateway, &config, "partners.example.com").await;
    assert_eq!(connection.shown(), partners.der());
    assert!(connection.ask("partners.example.com").await.unwrap().starts_with("HTTP/1.1 200"));
    assert!(connection.ask("gateway.example.com").await.unwrap().starts_with("HTTP/1.1 421"));
    assert_eq!(gateway.client().at("/healthz").get(&[]).await.status, 200, "without TLS");
}
