//! Tokens that are bound to a key of their client, and JWTs and keys with headers that ask for more
//! than the gateway does.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::auth::tokens::{ALL, place};
use crate::kit::issuer::{Issuer, Key};
use crate::kit::tls_scene::listen;
use crate::support::certs::client_config;
use crate::support::{Authority, Identity, McpClient, Reply, TestGateway};

/// RFC 8705 §3.1: the thumbprint of a certificate.
fn thumbprint(identity: &Identity) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(identity.der()))
}

/// A gateway that asks for client certificates on its TLS listener, and takes the tokens of an
/// issuer, with these lines more under it.
async fn listening(authority: &Authority, issuer: &str, own: &str) -> TestGateway {
    TestGateway::start(|ports| {
        let files = [("ca.pem", authority.pem())];
        let base = listen(authority, &files, "client_auth: { mode: optional, ca: ca.pem }", ports);
        let tokens = format!("auth: {{ tokens: [{{ issuer: '{issuer}', audience: me{own} }}] }}\n");
        format!("{base}{tokens}limits: {{ auth_failures: 0 }}\n")
    })
    .await
}

/// The status that a client with this certificate gets for this token.
async fn status(gateway: &TestGateway, shown: Option<(&Authority, Option<&Identity>)>, token: &str) -> u16 {
    let client = match shown {
        Some((authority, identity)) => McpClient::new(&format!(
            "https://localhost:{}/mcp",
            gateway.ports().other
        ))
        .tls(client_config(authority, identity, &["http/1.1"])),
        None => gateway.client(),
    };
    client.bearer(token).modern("tools/list", json!({})).await.status
}

#[tokio::test]
async fn bound_token_needs_its_certificate() {
    let (ours, key) = (Authority::new("ours"), Key::es256("k1"));
    let (mine, other) = (ours.client("mine"), ours.client("other"));
    let issuer = Issuer::new(&[&key]).await;
    let gateway = listening(&ours, &issuer.name(), "").await;
    let bound = |cnf: Value| key.sign(&issuer.claims("me", |claims| claims["cnf"] = cnf));
    let token = bound(json!({ "x5t#S256": thumbprint(&mine) }));
    // Known after the first time; that changes nothing.
    for _ in 0..2 {
        assert_eq!(status(&gateway, Some((&ours, Some(&other))), &token).await, 401, "another certificate");
        assert_eq!(status(&gateway, Some((&ours, Some(&mine))), &token).await, 200);
        assert_eq!(status(&gateway, Some((&ours, None)), &token).await, 401, "no certificate");
        assert_eq!(status(&gateway, None, &token).await, 401, "no TLS");
    }
    let free = key.sign(&issuer.claims("me", |_| {}));
    assert_eq!(status(&gateway, Some((&ours, Some(&other))), &free).await, 200, "bound to nothing");
    let good = thumbprint(&mine);
    for cnf in [
        json!({ "jkt": "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I" }),
        json!({ "x5t#S256": good, "jkt": "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I" }),
        json!({ "x5t#S256": good, "kid": "k" }),
        json!({ "jwk": key.public() }),
        json!({ "x5t": good }),
        json!({ "X5T#S256": good }),
        json!({ "x5t#S256": [good] }),
        json!({ "x5t#S256": format!("{good}=") }),
        json!({ "x5t#S256": URL_SAFE_NO_PAD.encode([7; 31]) }),
        json!({ "x5t#S256": "" }),
        json!({}),
        json!(good),
        json!(null),
    ] {
        let token = bound(cnf.clone());
        assert_eq!(status(&gateway, Some((&ours, Some(&mine))), &token).await, 401, "{cnf}");
    }
}

#[tokio::test]
async fn introspected_token_may_be_bound() {
    let ours = Authority::new("ours");
    let (mine, other) = (ours.client("mine"), ours.client("other"));
    let issuer = Issuer::new(&[]).await;
    let name = issuer.name();
    let introspection =
        format!(", introspection: {{ url: '{name}/introspect', client_id: g, client_secret: s }}");
    let gateway = listening(&ours, &name, &introspection).await;
    let bound = json!({ "x5t#S256": thumbprint(&mine) });
    issuer.server.on_path("/introspect", move |request| {
        let asked = String::from_utf8(request.body.clone()).unwrap();
        let cnf = if asked.starts_with("token=key&") { json!({ "jkt": "x" }) } else { bound.clone() };
        Reply::json(&json!({ "active": true, "sub": "alice", "aud": "me", "cnf": cnf }))
    });
    for _ in 0..2 {
        assert_eq!(status(&gateway, Some((&ours, Some(&mine))), "certificate").await, 200);
        assert_eq!(status(&gateway, Some((&ours, Some(&other))), "certificate").await, 401);
        assert_eq!(status(&gateway, Some((&ours, None)), "certificate").await, 401);
        assert_eq!(status(&gateway, Some((&ours, Some(&mine))), "key").await, 401);
    }
}

/// RFC 7515 §4.1.9 to 4.1.11, RFC 8725 §3.11, RFC 9068 §4.
#[tokio::test]
async fn demanding_token_header_is_refused() {
    let key = Key::es256("k1");
    let issuer = Issuer::new(&[&key]).await;
    let place = place(&issuer.name(), "", "limits: { auth_failures: 0 }\n").await;
    let claims = issuer.claims(ALL, |_| {});
    for good in [
        json!({}),
        json!({ "typ": "JWT" }),
        json!({ "typ": "jwt" }),
        json!({ "typ": "at+jwt" }),
        json!({ "typ": "AT+JWT" }),
        json!({ "typ": "application/at+jwt" }),
        json!({ "typ": "Application/JWT" }),
        json!({ "jku": "http://127.0.0.1:1/", "x5t": "x", "acme": 7 }),
    ] {
        assert_eq!(place.status(&key.sign_as(good.clone(), &claims)).await, 200, "{good}");
    }
    for bad in [
        json!({ "typ": "JOSE" }),
        json!({ "typ": "dpop+jwt" }),
        json!({ "typ": "logout+jwt" }),
        json!({ "typ": "secevent+jwt" }),
        json!({ "typ": "text/jwt" }),
        json!({ "typ": "application/application/jwt" }),
        json!({ "typ": "" }),
        json!({ "typ": null }),
        json!({ "typ": 7 }),
        json!({ "typ": ["JWT"] }),
        json!({ "cty": "JWT" }),
        json!({ "cty": null }),
        json!({ "zip": "DEF" }),
        json!({ "zip": null }),
        json!({ "crit": ["exp"], "exp": 1 }),
        json!({ "crit": ["b64"], "b64": true }),
        json!({ "crit": ["acme"] }),
        json!({ "crit": ["alg"] }),
        json!({ "crit": [] }),
        json!({ "crit": [7] }),
        json!({ "crit": "acme", "acme": 7 }),
        json!({ "crit": {} }),
        json!({ "crit": null }),
    ] {
        assert_eq!(place.status(&key.sign_as(bad.clone(), &claims)).await, 401, "{bad}");
    }
}

/// RFC 7517 §4.2, §4.3.
#[tokio::test]
async fn keys_for_other_uses_sign_no_tokens() {
    let key = |id: &str, more: Value| Key::es256(id).with(more);
    let good = [
        key("g1", json!({})),
        key("g2", json!({ "use": "sig" })),
        key("g3", json!({ "key_ops": ["verify"] })),
        key("g4", json!({ "key_ops": ["sign", "verify"], "use": "sig" })),
    ];
    let bad = [
        key("b1", json!({ "use": "enc" })),
        key("b2", json!({ "use": "acme" })),
        key("b3", json!({ "use": 7 })),
        key("b4", json!({ "key_ops": [] })),
        key("b5", json!({ "key_ops": ["sign"] })),
        key("b6", json!({ "key_ops": ["deriveKey", "acme"], "use": "sig" })),
        key("b7", json!({ "key_ops": ["verify"], "use": "enc" })),
        key("b8", json!({ "key_ops": "verify" })),
        key("b9", json!({ "alg": "ES384" })),
    ];
    let all: Vec<&Key> = good.iter().chain(&bad).collect();
    let issuer = Issuer::new(&all).await;
    let place = place(&issuer.name(), "", "limits: { auth_failures: 0 }\n").await;
    for (keys, expected) in [(&good[..], 200), (&bad[..], 401)] {
        for key in keys {
            assert_eq!(
                place.status(&key.sign(&issuer.claims(ALL, |_| {}))).await,
                expected,
                "{:?}",
                key.public()
            );
        }
    }
}
