//! Bearer tokens, signed or introspected, and what OAuth clients are told. Out of scope: rules by
//! scope (see `rules`).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use serde_json::{Value, json};

use crate::kit::issuer::{Issuer, Key, at};
use crate::support::{Answer, Card, Reply, ScriptedAgent, TestGateway, in_time};

/// The URL under which the gateway of these journeys is known.
const PUBLIC: &str = "https://gw.example.com";
pub(crate) const ALL: &str = "https://gw.example.com/mcp";

pub(crate) struct Place {
    pub(crate) gateway: TestGateway,
    _agents: [ScriptedAgent; 1],
}

/// A gateway that takes tokens of an issuer; `own` lines go under it, `more` at the top.
pub(crate) async fn place(issuer: &str, own: &str, more: &str) -> Place {
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    let own: String = own.lines().map(|line| format!("      {line}\n")).collect();
    let gateway = TestGateway::start(|ports| {
        let (listeners, card) = (ports.listeners(), agent.card_url());
        format!(
            "public_url: {PUBLIC}\n{listeners}auth:\n  tokens:\n    - issuer: {issuer}\n{own}{more}agents:\n  bard:\n    card: {card}\n"
        )
    })
    .await;
    Place { gateway, _agents: [agent] }
}

impl Place {
    async fn asked(&self, token: &str) -> Answer {
        self.gateway.client().bearer(token).modern("tools/list", json!({})).await
    }

    pub(crate) async fn status(&self, token: &str) -> u16 {
        self.asked(token).await.status
    }
}

#[tokio::test]
async fn only_tokens_for_gateway_are_good() {
    let (key, other) = (Key::es256("k1"), Key::es256("k1"));
    let edwards = Key::ed25519("k2");
    let issuer = Issuer::new(&[&key, &edwards]).await;
    let place = place(&issuer.name(), "", "").await;
    for audience in [ALL, PUBLIC] {
        assert_eq!(place.status(&key.sign(&issuer.claims(audience, |_| {}))).await, 200, "{audience}");
    }
    assert_eq!(place.status(&edwards.sign(&issuer.claims(ALL, |_| {}))).await, 200);
    let several = issuer.claims(ALL, |claims| claims["aud"] = json!(["https://other", ALL]));
    assert_eq!(place.status(&key.sign(&several)).await, 200);
    let early = issuer.claims(ALL, |claims| claims["exp"] = json!(at(-10)));
    assert_eq!(place.status(&key.sign(&early)).await, 200, "clocks may differ a little");

    let changed = |member: &str, value: Value| issuer.claims(ALL, |claims| claims[member] = value);
    for (why, claims) in [
        ("another audience", changed("aud", json!("https://elsewhere.example/mcp"))),
        ("a longer audience", changed("aud", json!(format!("{ALL}x")))),
        ("the audience of one agent", changed("aud", json!(format!("{ALL}/bard")))),
        ("no audience", changed("aud", Value::Null)),
        ("expired", changed("exp", json!(at(-100)))),
        ("no end", changed("exp", Value::Null)),
        ("not yet", changed("nbf", json!(at(100)))),
        ("another issuer", changed("iss", json!("https://elsewhere.example"))),
        ("no subject", changed("sub", Value::Null)),
    ] {
        assert_eq!(place.status(&key.sign(&claims)).await, 401, "{why}");
    }
    assert_eq!(place.status(&other.sign(&issuer.claims(ALL, |_| {}))).await, 401, "another's key");
    let good = key.sign(&issuer.claims(ALL, |_| {}));
    let cut = good.rsplit_once('.').unwrap().0;
    for broken in ["x", "a.b.c", &format!("{cut}."), &format!("{good}x"), &"x".repeat(20_000)] {
        assert_eq!(place.status(broken).await, 401);
    }
}

/// RFC 8725 §2.1: the algorithm that a token names is not to be believed.
#[tokio::test]
async fn none_and_shared_secrets_are_refused() {
    let key = Key::es256("k1");
    let issuer = Issuer::new(&[&key]).await;
    let place = place(&issuer.name(), "", "").await;
    let claims = issuer.claims(ALL, |_| {});
    assert_eq!(place.status(&key.sign(&claims)).await, 200);
    let text = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    for name in ["none", "None", "NONE", ""] {
        let unsigned = format!("{}.{}.", text(&json!({ "alg": name, "kid": "k1" })), text(&claims));
        assert_eq!(place.status(&unsigned).await, 401, "{name}");
    }
    // The public key as a shared secret, in each form in which it is known.
    let public = key.public();
    for secret in [public.to_string(), public["x"].as_str().unwrap().to_owned()] {
        let message = format!("{}.{}", text(&json!({ "alg": "HS256", "kid": "k1" })), text(&claims));
        let secret = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        let forged = URL_SAFE_NO_PAD.encode(hmac::sign(&secret, message.as_bytes()));
        assert_eq!(place.status(&format!("{message}.{forged}")).await, 401);
    }
}

#[tokio::test]
async fn only_listed_algorithms_are_accepted() {
    let (curve, edwards) = (Key::es256("k1"), Key::ed25519("k2"));
    let issuer = Issuer::new(&[&curve, &edwards]).await;
    let place = place(&issuer.name(), "algorithms: [EdDSA]", "").await;
    assert_eq!(place.status(&edwards.sign(&issuer.claims(ALL, |_| {}))).await, 200);
    assert_eq!(place.status(&curve.sign(&issuer.claims(ALL, |_| {}))).await, 401);
}

#[tokio::test]
async fn keys_change_without_restart() {
    let (old, new) = (Key::es256("k1"), Key::es256("k2"));
    let issuer = Issuer::new(&[&old]).await;
    let place = place(&issuer.name(), "refresh: 1s", "").await;
    let (by_old, by_new) = (old.sign(&issuer.claims(ALL, |_| {})), new.sign(&issuer.claims(ALL, |_| {})));
    assert_eq!(place.status(&by_old).await, 200);
    assert_eq!(place.status(&by_new).await, 401);
    issuer.publish(&[&new]);
    let exchanged = async {
        while place.status(&by_old).await != 401 {
            tokio::task::yield_now().await;
        }
    };
    crate::support::in_time("the old key to end", exchanged).await;
    assert_eq!(place.status(&by_new).await, 200);
}

#[tokio::test]
async fn unknown_key_is_fetched_sparingly() {
    let (old, new, guess) = (Key::es256("k1"), Key::es256("k2"), Key::es256("k3"));
    let issuer = Issuer::new(&[&old]).await;
    let place = place(&issuer.name(), "", "").await;
    assert_eq!(place.status(&old.sign(&issuer.claims(ALL, |_| {}))).await, 200);
    issuer.server.wait_for("the first look", |log| !log.hits("/jwks").is_empty()).await;
    issuer.publish(&[&old, &new]);
    for _ in 0..20 {
        assert_eq!(place.status(&guess.sign(&issuer.claims(ALL, |_| {}))).await, 401);
    }
    let looks = issuer.server.log().hits("/jwks").len();
    assert!(looks <= 2, "{looks}");
}

#[tokio::test]
async fn good_keys_survive_issuer_outage() {
    let key = Key::es256("k1");
    let issuer = Issuer::new(&[&key]).await;
    let place = place(&issuer.name(), "refresh: 1s", "").await;
    assert_eq!(place.status(&key.sign(&issuer.claims(ALL, |_| {}))).await, 200);
    let looks = issuer.server.log().hits("/.well-known/openid-configuration").len();
    issuer.server.on_path("/.well-known/openid-configuration", |_| {
        Reply::json(
            &json!({ "issuer": "https://elsewhere.example", "jwks_uri": "https://elsewhere.example/k" }),
        )
    });
    issuer
        .server
        .wait_for("two more looks", |log| log.hits("/.well-known/openid-configuration").len() > looks + 1)
        .await;
    let fresh = issuer.claims(ALL, |claims| claims["jti"] = json!("fresh"));
    assert_eq!(place.status(&key.sign(&fresh)).await, 200);
}

/// A request with `Bearer` shows a credential, readable or not: it is not anonymous, and it is
/// counted among the guesses.
#[tokio::test]
async fn bearer_without_token_is_bad_token() {
    let key = Key::es256("k1");
    let issuer = Issuer::new(&[&key]).await;
    let place = place(&issuer.name(), "", "limits: { auth_failures: 1 }\n").await;
    for word in ["Bearer", "bearer ", "Bearer \u{fc}"] {
        let answer =
            place.gateway.client().header("Authorization", word).modern("tools/list", json!({})).await;
        let challenge = answer.header("www-authenticate").unwrap_or_default();
        assert!(answer.status == 401 && challenge.contains("error=\"invalid_token\""), "{word}: {challenge}");
    }
    let bare = place.gateway.client().header("Authorization", "Bearer");
    in_time("too many", async { while bare.modern("tools/list", json!({})).await.status != 429 {} }).await;
    assert_eq!(place.gateway.client().modern("tools/list", json!({})).await.status, 401, "shows nothing");
}

/// It is not the token that is bad: its client must not throw it away.
#[tokio::test]
async fn token_without_known_key_is_503() {
    let key = Key::es256("k1");
    let issuer = Issuer::new(&[&key]).await;
    issuer.server.on_path("/.well-known/openid-configuration", |_| Reply::hang_up());
    let place = place(&issuer.name(), "", "").await;
    for _ in 0..3 {
        let answer = place.asked(&key.sign(&issuer.claims(ALL, |_| {}))).await;
        assert_eq!((answer.status, answer.header("retry-after").is_some()), (503, true));
    }
    assert_eq!(place.status("x.y.z").await, 401);
}

#[tokio::test]
async fn keys_can_stand_in_file() {
    let key = Key::es256("k1");
    let issuer = Issuer::new(&[&key]).await;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), json!({ "keys": [key.public()] }).to_string()).unwrap();
    let own = format!("jwks: {}", file.path().display());
    let place = place("https://idp.example", &own, "").await;
    let claims = issuer.claims(ALL, |claims| claims["iss"] = json!("https://idp.example"));
    assert_eq!(place.status(&key.sign(&claims)).await, 200);
}

#[tokio::test]
async fn token_for_one_agent_works_only_there() {
    let key = Key::es256("k1");
    let issuer = Issuer::new(&[&key]).await;
    let place = place(&issuer.name(), "", "").await;
    let token = key.sign(&issuer.claims(&format!("{ALL}/bard"), |_| {}));
    let at = |path: &str| place.gateway.client().at(path).bearer(&token);
    assert_eq!(at("/mcp/bard").modern("tools/list", json!({})).await.status, 200);
    assert_eq!(at("/mcp").modern("tools/list", json!({})).await.status, 401);
    assert_eq!(at("/mcp/other").modern("tools/list", json!({})).await.status, 401);
}

#[tokio::test]
async fn client_is_told_where_to_get_token() {
    let key = Key::es256("k1");
    let issuer = Issuer::new(&[&key]).await;
    let place = place(&issuer.name(), "", "  scopes: [a2a.invoke]\n").await;
    let client = place.gateway.client();
    let metadata = format!("{PUBLIC}/.well-known/oauth-protected-resource/mcp");
    let answer = client.modern("tools/list", json!({})).await;
    let challenge = format!("Bearer resource_metadata=\"{metadata}\", scope=\"a2a.invoke\"");
    assert_eq!((answer.status, answer.header("www-authenticate")), (401, Some(challenge.as_str())));
    let answer = place.asked("bad").await;
    assert!(answer.header("www-authenticate").unwrap().starts_with("Bearer error=\"invalid_token\", "));
    let answer = client.at("/mcp/bard").modern("tools/list", json!({})).await;
    assert!(answer.header("www-authenticate").unwrap().contains(&format!("{metadata}/bard\"")));
    for (path, resource) in [("", ALL), ("/mcp", ALL), ("/mcp/bard", "https://gw.example.com/mcp/bard")] {
        let path = format!("/.well-known/oauth-protected-resource{path}");
        let document = client.at(&path).get(&[]).await.json().await;
        let expected = json!({
            "resource": resource,
            "authorization_servers": [issuer.name()],
            "scopes_supported": ["a2a.invoke"],
            "bearer_methods_supported": ["header"],
            "resource_name": "mcp-a2a-gateway",
        });
        assert_eq!(document, expected);
    }
    let poor = key.sign(&issuer.claims(ALL, |_| {}));
    let answer = place.asked(&poor).await;
    let challenge = format!(
        "Bearer error=\"insufficient_scope\", resource_metadata=\"{metadata}\", scope=\"a2a.invoke\""
    );
    assert_eq!((answer.status, answer.header("www-authenticate")), (403, Some(challenge.as_str())));
    let rich = key.sign(&issuer.claims(ALL, |claims| claims["scope"] = json!("x a2a.invoke")));
    assert_eq!(place.status(&rich).await, 200);
}

/// Official clients refuse metadata of another resource than the URL that they use.
#[tokio::test]
async fn lacking_scope_shows_metadata() {
    let key = Key::es256("k1");
    let issuer = Issuer::new(&[&key]).await;
    let rules = "rules:\n  - { agents: bard, scopes: [song] }\n  - { agents: \"other*\" }\n";
    let place = place(&issuer.name(), "", rules).await;
    let token = key.sign(&issuer.claims(ALL, |_| {}));
    let call = json!({ "name": "bard_sing", "arguments": { "text": "x" } });
    let read = json!({ "uri": "a2a-agent://bard" });
    for (path, method, params) in [
        ("/mcp", "tools/call", call),
        ("/mcp", "resources/read", read.clone()),
        ("/mcp/bard", "resources/read", read),
    ] {
        let answer = place.gateway.client().at(path).bearer(&token).modern(method, params).await;
        let metadata = format!("resource_metadata=\"{PUBLIC}/.well-known/oauth-protected-resource{path}\"");
        let challenge = answer.header("www-authenticate").unwrap_or_default();
        assert!(challenge.contains(&metadata) && challenge.contains("scope=\"song\""), "{path} {challenge}");
        assert_eq!(answer.status, 403);
    }
}

#[tokio::test]
async fn scope_includes_those_below_it() {
    let key = Key::es256("k1");
    let issuer = Issuer::new(&[&key]).await;
    let more = "  scopes: [read]\n  scope_hierarchy: { admin: [write], write: [read] }\n";
    let place = place(&issuer.name(), "", more).await;
    for (scope, status) in [("admin", 200), ("write", 200), ("read", 200), ("other", 403)] {
        let token = key.sign(&issuer.claims(ALL, |claims| claims["scope"] = json!(scope)));
        assert_eq!(place.status(&token).await, status, "{scope}");
    }
}

#[tokio::test]
async fn opaque_token_is_introspected() {
    let issuer = Issuer::new(&[]).await;
    let name = issuer.name();
    let iss = name.clone();
    issuer.server.on_path("/introspect", move |request| {
        let form = String::from_utf8(request.body.to_vec()).unwrap();
        let token = form.split('&').find_map(|pair| pair.strip_prefix("token=")).unwrap_or_default();
        let aud = if token == "foreign" { "https://other" } else { ALL };
        let active = !matches!(token, "inactive");
        let iss = if token == "others" { "https://other" } else { iss.as_str() };
        Reply::json(&json!({ "active": active, "sub": "alice", "aud": aud, "iss": iss, "exp": at(60) }))
    });
    let own = format!(
        "introspection:\n  url: {name}/introspect\n  client_id: gate way\n  client_secret: CANARY_se:cret\n  cache: 60s"
    );
    let place = place(&name, &own, "log: { level: trace }\n").await;
    assert_eq!(place.status("good%26x=").await, 200);
    for bad in ["inactive", "foreign", "others"] {
        assert_eq!(place.status(bad).await, 401, "{bad}");
    }
    let asked = issuer.server.log().hits("/introspect").len();
    assert_eq!(place.status("good%26x=").await, 200);
    let log = issuer.server.log();
    let hits = log.hits("/introspect");
    assert_eq!(hits.len(), asked, "the answer is good for a while");
    // RFC 6749 §2.3.1: both halves are encoded first.
    let basic = base64::engine::general_purpose::STANDARD.encode("gate%20way:CANARY_se%3Acret");
    assert_eq!(hits[0].header("authorization"), Some(format!("Basic {basic}").as_str()));
    assert!(String::from_utf8_lossy(&hits[0].body).starts_with("token=good%2526x%3D&"));
    assert!(!place.gateway.output().contains("CANARY_") && !place.gateway.output().contains(&basic));
    issuer.server.on_path("/introspect", |_| Reply::status(500, "down"));
    let answer = place.asked("another").await;
    assert_eq!((answer.status, answer.header("retry-after").is_some()), (503, true));
}

#[tokio::test]
async fn token_never_reaches_agent() {
    let key = Key::es256("k1");
    let issuer = Issuer::new(&[&key]).await;
    let place = place(&issuer.name(), "", "").await;
    let agent = &place._agents[0];
    agent.on_send(|_| Reply::events([crate::support::payload::v1::message("la")]));
    let token = key.sign(&issuer.claims(ALL, |_| {}));
    let call = json!({ "name": "bard_sing", "arguments": { "text": "x" } });
    let client = place.gateway.client().bearer(&token);
    assert_eq!(client.modern("tools/call", call).await.status, 200);
    for request in agent.requests() {
        assert!(request.header("authorization").is_none(), "{request:?}");
    }
}
