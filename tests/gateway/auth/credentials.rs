//! Credentials that an agent gets: keys where its card wants them, headers that go along, and
//! nothing else of a client.

use serde_json::{Value, json};

use crate::kit::scene::{Scene, TOOL, complaint, words};
use crate::support::certs::server_config;
use crate::support::payload::{v0_3, v1};
use crate::support::{Authority, Card, Reply, Request, ScriptedAgent, TestGateway, in_time};

/// A card with this scheme, in the form of its version, as the one that it asks for.
fn asking(card: Card, scheme: Value) -> Card {
    let is_old = card.json.get("protocolVersion").is_some();
    let card = card.skill("sing").set("securitySchemes", json!({ "main": scheme }));
    match is_old {
        true => card.set("security", json!([{ "main": [] }])),
        false => card.set("securityRequirements", json!([{ "schemes": { "main": {} } }])),
    }
}

async fn answered(scene: &Scene) -> Request {
    scene.agent.on_send(|request| match request.rpc_method().starts_with("message/") {
        true => Reply::events([v0_3::message("la")]),
        false => Reply::events([v1::message("la")]),
    });
    assert_eq!(words(&scene.said("x").await), "la");
    let mut calls = scene.agent.requests();
    calls.retain(|request| request.method == "POST");
    calls.remove(0)
}

#[tokio::test]
async fn api_key_goes_where_card_says() {
    for place in ["header", "query", "cookie"] {
        let old = json!({ "type": "apiKey", "in": place, "name": "X-K" });
        let new = json!({ "apiKeySecurityScheme": { "location": place, "name": "X-K" } });
        for card in [asking(Card::v0_3(), old), asking(Card::v1(), new)] {
            let scene = Scene::of(card, "auth: { api_key: { value: \"a&b\" } }", "").await;
            let sent = answered(&scene).await;
            let shown = (sent.path.as_str(), sent.header("x-k"), sent.header("cookie"));
            let expected = match place {
                "header" => ("/", Some("a&b"), None),
                "query" => ("/?X-K=a%26b", None, None),
                _ => ("/", None, Some("X-K=a&b")),
            };
            assert_eq!(shown, expected, "{place}");
            let output = scene.gateway.output();
            assert!(!output.contains("requires credentials") && !output.contains("a%26b"), "{output}");
        }
    }
}

#[tokio::test]
async fn several_keys_go_each_to_its_scheme() {
    let schemes = json!({
        "one": { "apiKeySecurityScheme": { "location": "cookie", "name": "first" } },
        "two": { "apiKeySecurityScheme": { "location": "header", "name": "X-Second" } },
    });
    let card = Card::v1().skill("sing").set("securitySchemes", schemes);
    let keys =
        "[{ value: k1, scheme: one }, { value: k2, scheme: two }, { value: k3, in: query, name: third }]";
    let scene = Scene::of(card, &format!("auth: {{ api_key: {keys}, bearer: t }}"), "").await;
    let sent = answered(&scene).await;
    assert_eq!((sent.header("cookie"), sent.header("x-second")), (Some("first=k1"), Some("k2")));
    assert_eq!((sent.path.as_str(), sent.header("authorization")), ("/?third=k3", Some("Bearer t")));
}

#[tokio::test]
async fn basic_and_bearer_go_everywhere() {
    for (own, expected) in [
        ("auth: { basic: { user: gateway, password: \"pä:ss\" } }", "Basic Z2F0ZXdheTpww6Q6c3M="),
        ("auth: { bearer: \"${env:TOKEN}\" }", "Bearer token"),
    ] {
        let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
        agent.on_send(|_| Reply::events([v1::message("la")]));
        let gateway = TestGateway::start_with(&[("TOKEN", "token")], |ports| {
            format!("{}agents:\n  bard:\n    card: {}\n    {own}\n", ports.listeners(), agent.card_url())
        })
        .await;
        let scene = Scene { agent, gateway };
        assert_eq!(words(&scene.said("x").await), "la");
        let requests = scene.agent.requests();
        assert!(requests.len() >= 2);
        assert!(
            requests.iter().all(|request| request.header("authorization") == Some(expected)),
            "{requests:?}"
        );
    }
}

/// Headers of a client that must stay here.
const IDENTITY: [(&str, &str); 14] = [
    ("Authorization", "Bearer CANARY-client"),
    ("Cookie", "session=CANARY"),
    ("X-Api-Key", "CANARY-key"),
    ("Proxy-Authorization", "Basic CANARY"),
    ("X-Forwarded-User", "CANARY-user"),
    ("X-Forwarded-For", "CANARY"),
    ("X-Forwarded-Client-Cert", "CANARY"),
    ("Forwarded", "for=CANARY"),
    ("X-Real-IP", "CANARY"),
    ("Via", "1.1 CANARY"),
    ("Connection", "X-CANARY"),
    ("X-CANARY", "1"),
    ("Mcp-CANARY", "1"),
    ("A2A-Extensions", "https://CANARY.example/"),
];

#[tokio::test]
async fn client_cannot_pass_identity_through() {
    let scene = Scene::of(Card::v1().skill("sing"), "headers: { X-Api-Key: ours }", "").await;
    scene.agent.on_send(|_| Reply::events([v1::task("t", "c", "working"), v1::completed("t", "c", "la")]));
    let client =
        IDENTITY.iter().fold(scene.gateway.client(), |client, (name, value)| client.header(name, value));
    let params = json!({ "name": TOOL, "arguments": { "text": "x" } });
    assert_eq!(words(&client.modern("tools/call", params).await.result().await), "la");
    let session = client.legacy().await;
    assert_eq!(words(&session.call_tool(TOOL, json!({ "text": "x" })).await.result().await), "la");
    let requests = scene.agent.requests();
    assert!(requests.len() >= 3);
    for request in requests {
        assert!(!format!("{:?}", request.headers).contains("CANARY"), "{request:?}");
        assert_eq!(request.header("x-api-key"), Some("ours"));
    }
}

#[tokio::test]
async fn only_named_headers_go_along() {
    let own = "forward_headers: [X-Tenant, Cookie, traceparent, A, X-Api-Key]\nauth: { api_key: { value: ours, in: header, name: X-Api-Key } }";
    let scene = Scene::of(Card::v1().skill("sing"), own, "").await;
    scene.agent.on_stream(|_| Reply::stream().event(v1::task("t", "c", "working")));
    scene.agent.on_get(|_| Reply::result(v1::bare_completed("t", "c", "la")));
    let client = scene
        .gateway
        .client()
        .header("x-tenant", "acme")
        .header("X-Tenant", "second")
        .header("cookie", "a=b");
    let client =
        client.header("X-Api-Key", "theirs").header("X-Other", "stays").header("Content-Language", "de");
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let client = client.header("traceparent", parent);
    let params = json!({ "name": TOOL, "arguments": { "text": "x" }, "_meta": { "progressToken": 1 } });
    assert_eq!(words(&client.modern("tools/call", params).await.result().await), "la");
    for method in ["SendStreamingMessage", "GetTask"] {
        let sent = &scene.agent.calls(method)[0];
        assert_eq!(sent.header_values("x-tenant").collect::<Vec<_>>(), ["acme", "second"], "{method}");
        assert_eq!(
            (sent.header("cookie"), sent.header("x-api-key")),
            (Some("a=b"), Some("ours")),
            "{method}"
        );
        assert_eq!((sent.header("x-other"), sent.header("content-language")), (None, None), "{method}");
        assert_eq!(sent.header_values("traceparent").collect::<Vec<_>>(), [parent], "{method}");
    }
    let another = scene.gateway.client().header("X-Tenant", "other");
    let params = json!({ "name": TOOL, "arguments": { "text": "y" } });
    assert_eq!(words(&another.modern("tools/call", params).await.result().await), "la");
    let sent = &scene.agent.calls("SendStreamingMessage")[1];
    assert_eq!(
        (sent.header("x-tenant"), sent.header("cookie")),
        (Some("other"), None),
        "nothing of the first client"
    );
}

#[tokio::test]
async fn manifest_method_has_own_credentials() {
    let authority = Authority::new("ours");
    // A client that has a certificate is asked for it, and may come without.
    let tls = crate::support::certs::lenient_server_config(&authority.server(), &authority);
    let agent = ScriptedAgent::start_tls(Card::v1().skill("sing").streaming(false), tls).await;
    agent.on_send(|_| Reply::result(v1::task("t", "c", "working")));
    agent.on_get(|_| Reply::result(v1::bare_completed("t", "c", "la")));
    let client = authority.client("gateway");
    let manifest = json!({
        "type": "subagent", "id": "bard", "name": "Bard", "a2a": { "agentCardUri": agent.card_url() },
        "security": {
            "auth": { "type": "apiKey", "name": "X-Who", "value": "${env:WHO}" },
            "mtls": { "enabled": true, "clientCert": "gw.crt", "clientKey": "gw.key", "ca": "ca.pem" },
        },
        "capabilities": {
            "message": { "send": { "headers": { "X-Step": "send" } } },
            "tasks": { "get": { "headers": { "X-Step": "get", "x-who": "somebody" }, "mtls": false } },
        },
    });
    let gateway = TestGateway::start_with(&[("WHO", "gateway")], |ports| {
        client.write(&ports.directory, "gw");
        std::fs::write(ports.directory.join("ca.pem"), authority.pem()).unwrap();
        std::fs::write(ports.directory.join("bard.json"), manifest.to_string()).unwrap();
        format!("{}agents:\n  bard:\n    manifest: bard.json\n", ports.listeners())
    })
    .await;
    let scene = Scene { agent, gateway };
    assert_eq!(words(&scene.said("x").await), "la");
    let sent = &scene.agent.calls("SendMessage")[0];
    assert_eq!((sent.header("x-step"), sent.header("x-who")), (Some("send"), Some("gateway")));
    assert_eq!(sent.certificate, client.der());
    let asked = &scene.agent.calls("GetTask")[0];
    assert_eq!((asked.header("x-step"), asked.header("x-who")), (Some("get"), Some("somebody")));
    assert!(asked.certificate.is_empty());
    let card = scene.agent.requests().remove(0);
    assert_eq!((card.header("x-step"), card.header("x-who")), (None, Some("gateway")));
}

#[tokio::test]
async fn certificate_name_can_be_pinned() {
    let authority = Authority::new("ours");
    let identity = authority.server_named(&["bard.internal"]);
    let agent = ScriptedAgent::start_tls(Card::v1().skill("sing"), server_config(&identity, None)).await;
    agent.on_send(|_| Reply::events([v1::message("la")]));
    for (name, works) in
        [("server_name: bard.internal", true), ("server_name: other.internal", false), ("", false)]
    {
        let card = agent.card_url();
        let gateway = TestGateway::start(|ports| {
            std::fs::write(ports.directory.join("ca.pem"), authority.pem()).unwrap();
            format!(
                "{}agents:\n  bard:\n    card: {card}\n    tls: {{ ca: ca.pem, {name} }}\n",
                ports.listeners()
            )
        })
        .await;
        let params = json!({ "name": TOOL, "arguments": { "text": "x" } });
        let answer = gateway.client().modern("tools/call", params).await.json().await;
        assert_eq!(answer.get("result").is_some(), works, "{name}: {answer}");
    }
}

#[tokio::test]
async fn challenge_never_reaches_client() {
    let scene = Scene::of(Card::v1().skill("sing"), "auth: { bearer: wrong }", "").await;
    for status in [401, 403, 407] {
        scene.agent.on_send(move |_| {
            let challenge = "Bearer resource_metadata=\"https://CANARY.example/\"";
            Reply::status(status, "CANARY")
                .header("WWW-Authenticate", challenge)
                .header("Set-Cookie", "CANARY=1")
        });
        let session = scene.session().await;
        for answer in
            [scene.call(json!({ "text": "x" })).await, session.call_tool(TOOL, json!({ "text": "x" })).await]
        {
            assert_eq!(
                (answer.status, answer.header("www-authenticate"), answer.header("set-cookie")),
                (200, None, None)
            );
            let result = answer.result().await;
            assert!(!complaint(&result).contains("CANARY"), "{result}");
        }
    }
}

#[tokio::test]
async fn agent_wanting_more_proof_is_reported() {
    let schemes = json!({
        "key": { "apiKeySecurityScheme": { "location": "header", "name": "X-K" } },
        "token": { "oauth2SecurityScheme": { "flows": {} } },
        "cert": { "mtlsSecurityScheme": {} },
        "user": { "httpAuthSecurityScheme": { "scheme": "Basic" } },
    });
    let need = |names: &[&str]| {
        let schemes: serde_json::Map<String, Value> =
            names.iter().map(|name| ((*name).to_owned(), json!({}))).collect();
        json!({ "schemes": schemes })
    };
    let card = Card::v1().set("securitySchemes", schemes);
    let card = card.set("securityRequirements", json!([need(&["key", "cert"]), need(&["token"])]));
    let card = card.skill("sing").skill_with(json!({
        "id": "shout", "name": "shout", "description": "d", "tags": [], "securityRequirements": [need(&["user"])],
    }));
    let agent = ScriptedAgent::start(card).await;
    let config = |own: &str| {
        let card = agent.card_url();
        format!("listeners: [{{address: 127.0.0.1:8080}}]\nagents:\n  bard:\n    card: {card}\n{own}")
    };
    let key = "    auth: { api_key: { value: k } }\n";
    let shown = TestGateway::run_with_config("agents", &config(key)).await;
    assert_eq!(shown.status.code(), Some(1));
    let text = String::from_utf8(shown.stdout).unwrap();
    for words in [
        "the card asks for cert (a client certificate: tls.certificate), or token (OAuth 2: auth.oauth2), which the configuration does not give",
        "skill \"shout\" of the card asks for user (HTTP Basic: auth.basic), which the configuration does not give",
    ] {
        assert!(text.contains(words), "{words}\n{text}");
    }
    let bearer = "    auth: { bearer: t }\n";
    let text =
        String::from_utf8(TestGateway::run_with_config("agents", &config(bearer)).await.stdout).unwrap();
    assert!(!text.contains("the card asks for cert") && text.contains("skill \"shout\""), "{text}");
    let gateway = TestGateway::start(|ports| {
        format!("{}agents:\n  bard:\n    card: {}\n{key}", ports.listeners(), agent.card_url())
    })
    .await;
    in_time("a warning", async {
        while !gateway.output().contains("agent requires credentials that are not configured") {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(gateway.admin().at("/readyz").get(&[]).await.status, 200, "it is ready all the same");
}

/// A public card needs no token: it is requested without one once the token endpoint has had its
/// time, and no client waits for that.
#[tokio::test]
async fn token_endpoint_delays_no_readiness() {
    let endpoint = ScriptedAgent::start(Card::v1()).await;
    endpoint.on_path("/token", |_| Reply::silence());
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    let own =
        format!("{}\n    timeouts: {{ connect: 1s }}", crate::auth::agent_tokens::oauth2(&endpoint, ""));
    let gateway = crate::auth::agent_tokens::before(&agent, &own).await;
    let output = gateway.output();
    assert!(!output.contains("failed to fetch token for agent"), "it waited for the end of that: {output}");
    gateway.wait_for_output("agent card read").await;
}
