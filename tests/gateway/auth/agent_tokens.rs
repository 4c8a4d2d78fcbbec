//! Tokens that the gateway fetches for an agent: used by all, renewed in time, replaced when
//! refused, and never hammered for.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use base64::Engine as _;
use serde_json::json;

use crate::kit::scene::{Scene, complaint, words};
use crate::support::payload::v1;
use crate::support::{Card, Reply, Request, ScriptedAgent, Signal, TestGateway, in_time};

pub(crate) const SECRET: &str = "canary-client-secret";

/// The members of a form, decoded as far as these tests need.
pub(crate) fn form(request: &Request) -> Vec<(String, String)> {
    let body = String::from_utf8(request.body.clone()).unwrap();
    let decoded = |text: &str| {
        let mut bytes = text.bytes();
        let mut out = Vec::new();
        while let Some(byte) = bytes.next() {
            let mut digit = || char::from(bytes.next().unwrap()).to_digit(16).unwrap() as u8;
            out.push(if byte == b'%' { digit() * 16 + digit() } else { byte });
        }
        String::from_utf8(out).unwrap()
    };
    body.split('&')
        .map(|pair| pair.split_once('=').unwrap())
        .map(|(name, value)| (decoded(name), decoded(value)))
        .collect()
}

pub(crate) fn member(request: &Request, name: &str) -> Option<String> {
    form(request).into_iter().find(|(known, _)| known == name).map(|(_, value)| value)
}

/// A token endpoint that gives `token-1`, `token-2` and so on, each for so many seconds.
pub(crate) async fn endpoint(lives: u64) -> ScriptedAgent {
    let endpoint = ScriptedAgent::start(Card::v1()).await;
    let count = AtomicUsize::new(0);
    endpoint.on_path("/token", move |_| granted(count.fetch_add(1, Ordering::SeqCst) + 1, lives));
    endpoint
}

pub(crate) fn granted(number: usize, lives: u64) -> Reply {
    let token = format!("token-{number}");
    Reply::json(&json!({ "access_token": token, "token_type": "Bearer", "expires_in": lives }))
}

/// An agent that says who it was called as, and refuses who has none of `good` tokens.
pub(crate) async fn guarded(good: fn(&str) -> bool) -> ScriptedAgent {
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    agent.on_send(move |request| match request.header("authorization") {
        Some(shown) if good(shown) => Reply::events([v1::message(shown)]),
        _ => Reply::status(401, "no")
            .header("WWW-Authenticate", "Bearer realm=\"agent\", scope=\"canary-scope\""),
    });
    agent
}

pub(crate) fn oauth2(endpoint: &ScriptedAgent, more: &str) -> String {
    let url = endpoint.url();
    format!(
        "auth: {{ oauth2: {{ token_url: '{url}token', client_id: gateway, client_secret: {SECRET}, {more} }} }}"
    )
}

pub(crate) async fn before(agent: &ScriptedAgent, own: &str) -> TestGateway {
    TestGateway::start(|ports| {
        format!("{}agents:\n  bard:\n    card: {}\n    {own}\n", ports.listeners(), agent.card_url())
    })
    .await
}

pub(crate) async fn sing(gateway: &TestGateway) -> serde_json::Value {
    let params = json!({ "name": "bard_sing", "arguments": { "text": "x" } });
    gateway.client().modern("tools/call", params).await.result().await
}

fn asked(endpoint: &ScriptedAgent) -> usize {
    endpoint.log().hits("/token").len()
}

#[tokio::test]
async fn token_is_fetched_once_for_all_calls() {
    let (endpoint, agent) = (endpoint(3600).await, guarded(|shown| shown == "Bearer token-1").await);
    let more = "scopes: [a, b], audience: bard, resource: ['https://bard.example/', 'https://b.example/']";
    let gateway = before(&agent, &oauth2(&endpoint, more)).await;
    for _ in 0..3 {
        assert_eq!(words(&sing(&gateway).await), "Bearer token-1");
    }
    let requests = endpoint.requests();
    assert_eq!(requests.len(), 1);
    let basic = base64::engine::general_purpose::STANDARD.encode(format!("gateway:{SECRET}"));
    assert_eq!(requests[0].header("authorization"), Some(format!("Basic {basic}").as_str()));
    assert_eq!(requests[0].header("content-type"), Some("application/x-www-form-urlencoded"));
    let pairs = form(&requests[0]);
    let pairs: Vec<(&str, &str)> =
        pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(
        pairs,
        [
            ("grant_type", "client_credentials"),
            ("scope", "a b"),
            ("audience", "bard"),
            ("resource", "https://bard.example/"),
            ("resource", "https://b.example/")
        ]
    );
    let card = agent.log().requests.iter().find(|sent| sent.method == "GET").unwrap().clone();
    assert_eq!(card.header("authorization"), Some("Bearer token-1"), "the card may be guarded too");
    let line = r#"mcp_a2a_gateway_tokens_total{agent="bard",outcome="fetched"} 1"#;
    assert!(gateway.metrics().await.contains(line));
}

#[tokio::test]
async fn fifty_calls_wait_for_one_fetch() {
    let (endpoint, agent) = (endpoint(3600).await, guarded(|shown| shown == "Bearer token-2").await);
    // The first token, which the card came with, is worth nothing: the first calls find that out,
    // and those that come later wait with them.
    let hold = Signal::new();
    let held = hold.clone();
    let gateway = before(&agent, &oauth2(&endpoint, "")).await;
    endpoint.on_path("/token", move |_| granted(2, 3600).after(&held));
    let calls = futures(50, &gateway);
    agent.wait_for("a refusal", |log| !log.calls("SendStreamingMessage").is_empty()).await;
    endpoint.wait_for("the fetch", |log| log.hits("/token").len() == 2).await;
    hold.open();
    for call in calls {
        assert_eq!(words(&in_time("an answer", call).await.unwrap()), "Bearer token-2");
    }
    assert_eq!(asked(&endpoint), 2, "one for the card, one for all calls");
}

fn futures(count: usize, gateway: &TestGateway) -> Vec<tokio::task::JoinHandle<serde_json::Value>> {
    let params = json!({ "name": "bard_sing", "arguments": { "text": "x" } });
    let calls = (0..count).map(|_| {
        let (client, params) = (gateway.client(), params.clone());
        tokio::spawn(async move { client.modern("tools/call", params).await.result().await })
    });
    calls.collect()
}

#[tokio::test]
async fn token_is_renewed_before_it_ends() {
    let endpoint = endpoint(4).await;
    let born = Arc::new(std::sync::Mutex::new(Vec::<Instant>::new()));
    let births = born.clone();
    endpoint.on_path("/token", move |_| {
        let mut births = births.lock().unwrap();
        births.push(Instant::now());
        granted(births.len(), 4)
    });
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    let births = born.clone();
    agent.on_send(move |request| {
        let births = births.lock().unwrap();
        let shown = request.header("authorization").unwrap_or_default();
        let number: usize = shown.strip_prefix("Bearer token-").unwrap().parse().unwrap();
        match births[number - 1].elapsed() < Duration::from_secs(4) {
            true => Reply::events([v1::message(&number.to_string())]),
            false => Reply::status(401, "expired"),
        }
    });
    let gateway = before(&agent, &oauth2(&endpoint, "")).await;
    in_time("another token", async { while words(&sing(&gateway).await).parse::<usize>().unwrap() < 2 {} })
        .await;
    let metrics = gateway.metrics().await;
    assert!(
        !metrics.contains(r#"outcome="refused""#),
        "none was refused: all were renewed in time\n{metrics}"
    );
    let ages: Vec<Duration> = born.lock().unwrap().windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(ages.iter().all(|age| *age < Duration::from_millis(4000)), "{ages:?}");
}

#[tokio::test]
async fn refused_token_is_replaced_once() {
    let (endpoint, agent) = (endpoint(3600).await, guarded(|shown| shown == "Bearer token-2").await);
    let gateway = before(&agent, &oauth2(&endpoint, "")).await;
    assert_eq!(words(&sing(&gateway).await), "Bearer token-2");
    let calls = agent.calls("SendStreamingMessage");
    let shown: Vec<_> = calls.iter().map(|call| call.header("authorization").unwrap()).collect();
    assert_eq!(shown, ["Bearer token-1", "Bearer token-2"]);
    assert_eq!(calls[0].body, calls[1].body, "the same message, its id included");
}

#[tokio::test]
async fn second_refusal_is_error() {
    let (endpoint, agent) = (endpoint(3600).await, guarded(|_| false).await);
    let gateway = before(&agent, &oauth2(&endpoint, "")).await;
    let params = json!({ "name": "bard_sing", "arguments": { "text": "x" } });
    for _ in 0..5 {
        let answer = gateway.client().modern("tools/call", params.clone()).await;
        assert_eq!((answer.status, answer.header("www-authenticate")), (200, None));
        let result = answer.result().await;
        assert!(complaint(&result).contains("does not accept the gateway's credentials"), "{result}");
        assert!(!result.to_string().contains("canary"), "{result}");
    }
    assert_eq!(asked(&endpoint), 2, "an agent that refuses every token costs no token per call");
    assert_eq!(agent.calls("SendStreamingMessage").len(), 6);
}

#[tokio::test]
async fn only_401_is_tried_again() {
    for status in [400, 403, 500] {
        let (endpoint, agent) = (endpoint(3600).await, ScriptedAgent::start(Card::v1().skill("sing")).await);
        agent.on_send(move |_| Reply::status(status, "no"));
        let gateway = before(&agent, &oauth2(&endpoint, "")).await;
        complaint(&sing(&gateway).await);
        assert_eq!((agent.calls("SendStreamingMessage").len(), asked(&endpoint)), (1, 1), "{status}");
    }
}

#[tokio::test]
async fn ended_token_ends_no_stream() {
    let (endpoint, agent) = (endpoint(3600).await, ScriptedAgent::start(Card::v1().skill("sing")).await);
    let go_on = Signal::new();
    let (waits, refused) = (go_on.clone(), Arc::new(AtomicUsize::new(0)));
    agent.on_stream(move |_| {
        Reply::stream()
            .event(v1::task("t", "c", "working"))
            .wait(&waits)
            .event(v1::completed("t", "c", "done"))
    });
    let revoked = refused.clone();
    agent.on_get(move |request| match request.header("authorization") {
        Some("Bearer token-2") => Reply::result(v1::bare_task("t", "c", "working")),
        _ => {
            revoked.fetch_add(1, Ordering::SeqCst);
            Reply::status(401, "revoked")
        }
    });
    let own = format!("{}\n    timeouts: {{ idle: 60s }}", oauth2(&endpoint, ""));
    let card = agent.card_url();
    let gateway = TestGateway::start(|ports| {
        format!(
            "{}streams: {{ idle_timeout: 1s }}\nagents:\n  bard:\n    card: {card}\n    {own}\n",
            ports.listeners()
        )
    })
    .await;
    let params =
        json!({ "name": "bard_sing", "arguments": { "text": "x" }, "_meta": { "progressToken": 1 } });
    let call = tokio::spawn({
        let client = gateway.client();
        async move { client.modern("tools/call", params).await.result().await }
    });
    // The silent stream makes the gateway ask, with a token that is not good any more.
    agent.wait_for("a question with the new token", |log| log.calls("GetTask").len() >= 2).await;
    go_on.fire();
    assert_eq!(words(&in_time("the result", call).await.unwrap()), "done");
    assert_eq!(refused.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn dead_token_endpoint_is_clear_fault() {
    let (endpoint, agent) = (ScriptedAgent::start(Card::v1()).await, guarded(|_| true).await);
    for (reply, expected) in [
        (Reply::status(500, "canary-page"), "its token endpoint does not work"),
        (Reply::json(&json!({ "canary": 1 })), "what its token endpoint answered is no bearer token"),
        (
            Reply::json(&json!({ "error": "invalid_client", "error_description": "canary-description" }))
                .with_status(401),
            "its token endpoint answered invalid_client",
        ),
        (Reply::json(&json!({ "error": "canary-error" })).with_status(400), "its token endpoint refused"),
        (Reply::status(302, "").header("Location", "/elsewhere"), "its token endpoint does not work"),
    ] {
        let before_it = asked(&endpoint);
        endpoint.on_path("/token", move |_| reply.clone());
        let gateway = before(&agent, &oauth2(&endpoint, "")).await;
        for _ in 0..20 {
            let result = sing(&gateway).await;
            assert!(
                complaint(&result).contains(&format!("could not get a token for it ({expected})")),
                "{result}"
            );
            assert!(!result.to_string().contains("canary"), "{result}");
        }
        // Twenty calls take far less than the pauses of one, two and four seconds.
        let tried = asked(&endpoint) - before_it;
        assert!((1..=4).contains(&tried), "{tried} tries");
        // A request is counted after its client has the answer.
        let faults = r#"method="tools/call",outcome="gateway_fault"} 20"#;
        in_time(faults, async { while !gateway.metrics().await.contains(faults) {} }).await;
        gateway.wait_for_output("failed to fetch token for agent").await;
        let (metrics, log) = (gateway.metrics().await, gateway.output());
        assert!(
            metrics.contains(r#"mcp_a2a_gateway_tokens_total{agent="bard",outcome="failed"}"#),
            "{metrics}"
        );
        assert!(!log.contains("canary"), "{log}");
    }
    assert!(agent.calls("SendStreamingMessage").is_empty(), "nothing was sent without a token");
    assert!(endpoint.log().hits("/elsewhere").is_empty(), "no redirect is followed");
}

#[tokio::test]
async fn operator_is_warned_of_missing_token() {
    let (endpoint, agent) = (ScriptedAgent::start(Card::v1()).await, guarded(|_| true).await);
    endpoint.on_path("/token", |_| Reply::json(&json!({ "error": "invalid_scope" })).with_status(400));
    let (card, own) = (agent.card_url(), oauth2(&endpoint, ""));
    let config =
        format!("listeners: [{{address: 127.0.0.1:8080}}]\nagents:\n  bard:\n    card: {card}\n    {own}\n");
    let shown = TestGateway::run_with_config("agents", &config).await;
    let text = String::from_utf8(shown.stdout).unwrap();
    assert_eq!(shown.status.code(), Some(1));
    assert!(text.contains("auth.oauth2: no token: its token endpoint answered invalid_scope"), "{text}");
}

#[tokio::test]
async fn returned_token_endpoint_is_used() {
    let (endpoint, agent) = (ScriptedAgent::start(Card::v1()).await, guarded(|_| true).await);
    let works = Arc::new(AtomicUsize::new(0));
    let state = works.clone();
    endpoint.on_path("/token", move |_| match state.load(Ordering::SeqCst) {
        0 => Reply::status(503, ""),
        _ => granted(7, 3600),
    });
    let gateway = before(&agent, &oauth2(&endpoint, "")).await;
    complaint(&sing(&gateway).await);
    works.store(1, Ordering::SeqCst);
    in_time("a token", async { while words(&sing(&gateway).await) != "Bearer token-7" {} }).await;
}

#[tokio::test]
async fn exchange_needs_caller_token() {
    let (endpoint, agent) = (endpoint(3600).await, guarded(|_| true).await);
    let own = oauth2(&endpoint, "grant: token_exchange");
    let scene = Scene { gateway: before(&agent, &own).await, agent };
    let said = scene.said("x").await;
    assert!(complaint(&said).contains("comes with no token that could be exchanged"), "{said}");
    assert!(endpoint.requests().is_empty() && scene.agent.calls("SendStreamingMessage").is_empty());
}

#[tokio::test]
async fn example_of_manual_runs() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |name: &str| std::fs::read_to_string(root.join(name)).unwrap();
    let example = read("examples/credentials.yaml");
    let (_, agents) = example.split_once("\nagents:\n").unwrap();
    let (endpoint, tickets) = (endpoint(3600).await, guarded(|shown| shown == "Bearer token-1").await);
    let scheme = json!({ "main": { "apiKeySecurityScheme": { "location": "query", "name": "key" } } });
    let maps = ScriptedAgent::start(Card::v1().skill("sing").set("securitySchemes", scheme)).await;
    maps.on_send(|request| Reply::events([v1::message(&request.path)]));
    let gateway = TestGateway::start_with(&[("TICKETS_SECRET", SECRET), ("MAPS_KEY", "k")], |ports| {
        let agents = agents.replace("http://127.0.0.1:9999/.well-known/agent-card.json", &tickets.card_url());
        let agents = agents.replace("http://127.0.0.1:9997/.well-known/agent-card.json", &maps.card_url());
        let agents = agents.replace("http://127.0.0.1:9998/", &endpoint.url());
        format!("{}agents:\n{agents}", ports.listeners())
    })
    .await;
    for (tool, expected) in [("tickets_sing", "Bearer token-1"), ("maps_sing", "/?key=k")] {
        let params = json!({ "name": tool, "arguments": { "text": "x" } });
        let result = gateway.client().modern("tools/call", params).await.result().await;
        assert_eq!(words(&result), expected);
    }
    assert_eq!(maps.calls("SendStreamingMessage")[0].header("x-tenant"), Some("acme"));
}
