//! How the gateway proves itself to a token endpoint: in the form, by a signature, by a certificate.
//!
//! Not here: HTTP Basic, which is the default (see `tokens`).

use serde_json::json;

use crate::agent_tokens::{SECRET, before, endpoint, granted, guarded, member, oauth2, sing};
use crate::scene::words;
use crate::support::certs::server_config;
use crate::support::{Authority, Card, ScriptedAgent, TestGateway, in_time};

#[tokio::test]
async fn the_secret_can_go_into_the_form() {
    let (endpoint, agent) = (endpoint(3600).await, guarded(|_| true).await);
    let gateway = before(&agent, &oauth2(&endpoint, "auth_method: client_secret_post")).await;
    assert_eq!(words(&sing(&gateway).await), "Bearer token-1");
    let request = &endpoint.requests()[0];
    assert_eq!(request.header("authorization"), None);
    assert_eq!(member(request, "client_id").as_deref(), Some("gateway"));
    assert_eq!(member(request, "client_secret").as_deref(), Some(SECRET));
}

#[tokio::test]
async fn an_assertion_is_signed_with_the_private_key() {
    use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode};
    for (curve, algorithm) in
        [(&rcgen::PKCS_ECDSA_P256_SHA256, Algorithm::ES256), (&rcgen::PKCS_ED25519, Algorithm::EdDSA)]
    {
        let (endpoint, agent) = (endpoint(1).await, guarded(|_| true).await);
        let key = rcgen::KeyPair::generate_for(curve).unwrap();
        let url = format!("{}token", endpoint.url());
        let gateway = TestGateway::start(|ports| {
            std::fs::write(ports.directory.join("client.key"), key.serialize_pem()).unwrap();
            let oauth2 =
                format!("token_url: '{url}', client_id: gateway, private_key: client.key, key_id: k1");
            let card = agent.card_url();
            format!(
                "{}agents:\n  bard:\n    card: {card}\n    auth: {{ oauth2: {{ {oauth2} }} }}\n",
                ports.listeners()
            )
        })
        .await;
        in_time("two tokens", async { while words(&sing(&gateway).await) != "Bearer token-2" {} }).await;
        let public = key.public_key_pem();
        let public = match algorithm {
            Algorithm::EdDSA => DecodingKey::from_ed_pem(public.as_bytes()),
            _ => DecodingKey::from_ec_pem(public.as_bytes()),
        };
        let mut validation = Validation::new(algorithm);
        validation.set_audience(&[&url]);
        validation.set_issuer(&["gateway"]);
        validation.set_required_spec_claims(&["exp", "aud", "iss", "sub"]);
        let mut ids = Vec::new();
        for request in &endpoint.requests()[..2] {
            let assertion = member(request, "client_assertion").unwrap();
            let read =
                decode::<serde_json::Value>(&assertion, public.as_ref().unwrap(), &validation).unwrap();
            assert_eq!((read.header.kid.as_deref(), &read.claims["sub"]), (Some("k1"), &json!("gateway")));
            let kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
            assert_eq!(member(request, "client_assertion_type").as_deref(), Some(kind));
            ids.push(read.claims["jti"].as_str().unwrap().to_owned());
        }
        assert_ne!(ids[0], ids[1], "each assertion is good for one use");
    }
}

#[tokio::test]
async fn the_token_endpoint_is_shown_the_agents_certificate() {
    let authority = Authority::new("ours");
    let tls = server_config(&authority.server(), Some(&authority));
    let endpoint = ScriptedAgent::start_tls(Card::v1(), tls).await;
    endpoint.on_path("/token", |_| granted(1, 3600));
    let agent = guarded(|_| true).await;
    let client = authority.client("gateway");
    let gateway = TestGateway::start(|ports| {
        client.write(&ports.directory, "gw");
        std::fs::write(ports.directory.join("ca.pem"), authority.pem()).unwrap();
        let (url, card) = (endpoint.url(), agent.card_url());
        let oauth2 = format!("token_url: '{url}token', client_id: gateway, auth_method: tls_client_auth, ca: ca.pem");
        format!(
            "{}agents:\n  bard:\n    card: {card}\n    tls: {{ certificate: gw.crt, key: gw.key }}\n    auth: {{ oauth2: {{ {oauth2} }} }}\n",
            ports.listeners()
        )
    })
    .await;
    assert_eq!(words(&sing(&gateway).await), "Bearer token-1");
    assert_eq!(member(&endpoint.requests()[0], "client_id").as_deref(), Some("gateway"));
}
