//! How the gateway proves itself to a token endpoint: in the form, by a signature, by a
//! certificate.
//!
//! Out of scope: HTTP Basic, which is the default (see `tokens`).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::PublicKeyData as _;
use serde_json::{Value, json};

use crate::auth::agent_tokens::{SECRET, before, endpoint, granted, guarded, member, oauth2, sing};
use crate::kit::issuer::at;
use crate::kit::scene::words;
use crate::support::certs::server_config;
use crate::support::{Authority, Card, ScriptedAgent, TestGateway, in_time};

#[tokio::test]
async fn secret_can_go_into_form() {
    let (endpoint, agent) = (endpoint(3600).await, guarded(|_| true).await);
    let gateway = before(&agent, &oauth2(&endpoint, "auth_method: client_secret_post")).await;
    assert_eq!(words(&sing(&gateway).await), "Bearer token-1");
    let request = &endpoint.requests()[0];
    assert_eq!(request.header("authorization"), None);
    assert_eq!(member(request, "client_id").as_deref(), Some("gateway"));
    assert_eq!(member(request, "client_secret").as_deref(), Some(SECRET));
}

#[tokio::test]
async fn assertion_is_signed_with_private_key() {
    use ring::signature::{
        ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
        UnparsedPublicKey, VerificationAlgorithm,
    };
    let new = |curve| rcgen::KeyPair::generate_for(curve).unwrap();
    let rsa = rcgen::KeyPair::from_pem(include_str!("../../support/rsa.key.pem")).unwrap();
    let kinds: [(_, &'static dyn VerificationAlgorithm, _); 4] = [
        (new(&rcgen::PKCS_ECDSA_P256_SHA256), &ECDSA_P256_SHA256_FIXED, "ES256"),
        (new(&rcgen::PKCS_ECDSA_P384_SHA384), &ECDSA_P384_SHA384_FIXED, "ES384"),
        (new(&rcgen::PKCS_ED25519), &ED25519, "EdDSA"),
        (rsa, &RSA_PKCS1_2048_8192_SHA256, "RS256"),
    ];
    for (key, verification, algorithm) in kinds {
        let (endpoint, agent) = (endpoint(1).await, guarded(|_| true).await);
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
        let public = UnparsedPublicKey::new(verification, key.der_bytes());
        let mut ids = Vec::new();
        for request in &endpoint.requests()[..2] {
            let assertion = member(request, "client_assertion").unwrap();
            let (message, signature) = assertion.rsplit_once('.').unwrap();
            let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
            assert!(public.verify(message.as_bytes(), &signature).is_ok(), "{algorithm}");
            let (header, claims) = message.split_once('.').unwrap();
            let [header, claims] = [header, claims].map(|part| -> Value {
                serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
            });
            assert_eq!(header, json!({ "typ": "JWT", "alg": algorithm, "kid": "k1" }));
            assert_eq!((&claims["iss"], &claims["sub"]), (&json!("gateway"), &json!("gateway")));
            assert_eq!(claims["aud"], json!(url));
            assert!((at(0)..at(61)).contains(&claims["exp"].as_i64().unwrap()), "{claims}");
            let kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
            assert_eq!(member(request, "client_assertion_type").as_deref(), Some(kind));
            ids.push(claims["jti"].as_str().unwrap().to_owned());
        }
        assert_ne!(ids[0], ids[1], "each assertion is good for one use");
    }
}

#[tokio::test]
async fn token_endpoint_sees_agent_certificate() {
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
