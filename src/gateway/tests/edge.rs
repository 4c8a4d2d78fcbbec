//! The dispatcher: hosts and origins, methods, bodies, batches, limits, sessions and documents; and the reload of the
//! settings in process: state that outlives a generation, and state that does not.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, Method};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{
    Exchange, TOOL, TestGateway, TestRequest, TestSession, assert_at, completed, message, pass, seconds,
    settle, working,
};
use crate::config::{
    Agent, AgentTls, ApiKeyOwner, ApiKeys, CardSource, FoundAgent, Listener, RequireRule, Settings, Source,
    SourcePlace,
};
use crate::gateway::{Gateway, ReloadCause, Reloader};
use crate::http_edge::BodyStep;

fn ping() -> TestRequest {
    TestRequest::legacy("ping", json!({}))
}

fn bytes(text: &str) -> BodyStep {
    BodyStep::Bytes(Bytes::copy_from_slice(text.as_bytes()))
}

/// Returns the JSON text of a ping.
fn ping_text() -> String {
    json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" }).to_string()
}

/// Configures API keys for two callers.
fn with_keys(settings: &mut Settings) {
    let owner = |name: &str| ApiKeyOwner {
        name: name.to_owned(),
        hashes: vec![Sha256::digest(format!("key of {name}")).into()],
    };
    let header = HeaderName::from_static("x-api-key");
    settings.auth.api_keys = Some(ApiKeys { header, holders: vec![owner("ann"), owner("ben")] });
}

fn as_ann(request: TestRequest) -> TestRequest {
    request.header("x-api-key", "key of ann")
}

fn as_ben(request: TestRequest) -> TestRequest {
    request.header("x-api-key", "key of ben")
}

/// rmcp CVE-2026-42559 (RUSTSEC-2026-0189), TypeScript SDK CVE-2025-66414, Python SDK
/// CVE-2025-66416: no `Host` was checked unless the operator asked for it.
#[tokio::test(start_paused = true)]
async fn only_own_hosts_are_served() {
    let gateway = TestGateway::with(|settings| {
        settings.public_url = Some("https://gateway.example.com".to_owned());
        settings.mcp.allowed_hosts = vec!["inside.example:8443".to_owned()];
    })
    .await;
    for (host, status) in [
        ("localhost", 200),
        ("LOCALHOST:8080", 200),
        ("127.0.0.1:1", 200),
        ("[::1]:80", 200),
        ("192.168.1.7", 200),
        ("Gateway.Example.com:443", 200),
        ("inside.example:8443", 200),
        ("inside.example:1", 403),
        ("evil.example.com", 403),
        ("gateway.example.com.evil.example", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example", 403),
    ] {
        let response = gateway.respond(ping().header("host", host)).await;
        assert_eq!((response.status, response.closes), (status, status == 403), "{host}");
    }
    let mut nameless = ping();
    nameless.headers.remove("host");
    assert_eq!(gateway.respond(nameless).await.status, 403);
    let mut twice = ping();
    twice.headers.append("host", "localhost".parse().unwrap());
    assert_eq!(gateway.respond(twice).await.status, 403);
}

/// Go SDK CVE-2026-34742, Java SDK CVE-2026-35568, Python SDK CVE-2026-59950: the same for
/// `Origin`.
#[tokio::test(start_paused = true)]
async fn only_known_origins_may_call() {
    let gateway = TestGateway::with(|settings| {
        settings.public_url = Some("https://gateway.example.com".to_owned());
        settings.mcp.allowed_origins = vec!["https://app.example.com".to_owned()];
    })
    .await;
    for (origin, status) in [
        ("http://localhost:3000", 200),
        ("http://127.0.0.1", 200),
        ("https://gateway.example.com", 200),
        ("https://app.example.com", 200),
        ("http://app.example.com", 403),
        ("https://app.example.com:444", 403),
        ("https://app.example.com.evil.example", 403),
        ("http://evil.example.com", 403),
        ("null", 403),
        ("", 403),
    ] {
        let response = gateway.respond(ping().header("origin", origin)).await;
        assert_eq!(response.status, status, "{origin}");
        let allowed = response.header("access-control-allow-origin");
        assert_eq!(allowed, if status == 200 { origin } else { "" });
    }
}

#[tokio::test(start_paused = true)]
async fn refused_origin_gets_reason() {
    let gateway = TestGateway::new().await;
    let call = TestRequest::sing(&json!({})).header("origin", "http://evil.example.com");
    let refused = gateway.respond(call).await;
    assert_eq!(refused.status, 403);
    assert!(refused.text.contains("allowed_origins"), "{refused:?}");
    assert!(gateway.agent.performed().is_empty());
    for method in [Method::GET, Method::DELETE, Method::OPTIONS] {
        let request = TestRequest::new(method, "/mcp").header("origin", "http://evil.example.com");
        assert_eq!(gateway.respond(request).await.status, 403);
    }
}

#[tokio::test(start_paused = true)]
async fn preflight_is_answered() {
    let gateway = TestGateway::new().await;
    let preflight = |names: &str| {
        TestRequest::new(Method::OPTIONS, "/mcp")
            .header("origin", "http://localhost:3000")
            .header("access-control-request-method", "POST")
            .header("access-control-request-headers", names)
    };
    let answered = gateway.respond(preflight("traceparent,x-api-key,x-own")).await;
    assert_eq!((answered.status, answered.text.as_str()), (204, ""));
    assert_eq!(answered.header("access-control-allow-headers"), "traceparent,x-api-key,x-own");
    assert_eq!(answered.header("access-control-allow-origin"), "http://localhost:3000");
    assert_eq!(answered.header("access-control-allow-methods"), "POST, GET, DELETE, OPTIONS");
    let many = (0..65).map(|number| format!("x-{number}")).collect::<Vec<_>>().join(",");
    for odd in [many.as_str(), "a b", "", &format!("x-{}", "y".repeat(5000))] {
        let answered = gateway.respond(preflight(odd)).await;
        assert!(answered.header("access-control-allow-headers").contains("mcp-session-id"), "{odd}");
    }
}

#[tokio::test(start_paused = true)]
async fn other_methods_are_not_allowed() {
    let gateway = TestGateway::new().await;
    for (method, path, allow) in [
        (Method::PUT, "/mcp", "POST, GET, DELETE, OPTIONS"),
        (Method::PATCH, "/mcp/bard", "POST, GET, DELETE, OPTIONS"),
        (Method::TRACE, "/mcp", "POST, GET, DELETE, OPTIONS"),
        (Method::GET, "/mcp", "POST"),
        (Method::GET, "/mcp/bard", "POST"),
        (Method::DELETE, "/mcp", "POST"),
        (Method::POST, "/healthz", "GET, HEAD"),
        (Method::POST, "/a2a", "GET, HEAD, OPTIONS"),
        (Method::POST, "/.well-known/api-catalog", "GET, HEAD, OPTIONS"),
        (Method::POST, "/.well-known/oauth-protected-resource/mcp", "GET, OPTIONS"),
    ] {
        let refused = gateway.respond(TestRequest::new(method.clone(), path)).await;
        assert_eq!((refused.status, refused.header("allow")), (405, allow), "{method} {path}");
        assert!(refused.closes, "{method} {path}");
    }
}

#[tokio::test(start_paused = true)]
async fn unknown_resources_are_not_found() {
    let gateway = TestGateway::new().await;
    for path in ["/mcp/none", "/a2a/none", "/push/x", "/.well-known/oauth-protected-resource/mcp"] {
        let refused = gateway.respond(TestRequest::get(path)).await;
        assert_eq!(refused.refusal(), (404, -32600), "{path}");
        assert!(!refused.json()["error"]["message"].as_str().unwrap().is_empty(), "{path}");
    }
}

/// The rest of a body must not be read as the next request.
#[tokio::test(start_paused = true)]
async fn unread_body_closes_connection() {
    let gateway = TestGateway::new().await;
    let unread = ping().at("/mcp/none").body(vec![BodyStep::Pause(seconds(60)), bytes("x")]);
    let refused = gateway.send(unread);
    let client = refused.client.clone();
    assert!(refused.response().await.closes);
    assert_eq!(client.written().status.unwrap(), 404);
    assert!(!gateway.respond(ping()).await.closes, "a body that was read leaves the connection open");
}

#[tokio::test(start_paused = true)]
async fn rejected_body_is_drained_briefly() {
    let gateway = TestGateway::new().await;
    let body = vec![BodyStep::Pause(seconds(60)), bytes("x")];
    let waits = gateway.send(ping().header("content-type", "text/plain").body(body.clone()));
    let since = waits.since;
    assert_eq!(waits.response().await.status, 415);
    assert_at(since.elapsed(), seconds(2));
    let expects =
        gateway.send(ping().header("content-type", "text/plain").header("expect", "100-continue").body(body));
    let since = expects.since;
    assert_eq!(expects.response().await.status, 415);
    assert!(since.elapsed() < seconds(1), "the client sends nothing");
}

#[tokio::test(start_paused = true)]
async fn body_must_be_plain_json() {
    let gateway = TestGateway::new().await;
    for (name, value, status) in [
        ("content-type", "application/json; charset=utf-8", 200),
        ("content-type", "text/plain", 415),
        ("content-type", "application/json; charset=latin1", 415),
        ("content-encoding", "identity", 200),
        ("content-encoding", "gzip", 415),
    ] {
        assert_eq!(gateway.respond(ping().header(name, value)).await.status, status, "{name}: {value}");
    }
    let mut untyped = ping();
    untyped.headers.remove("content-type");
    assert_eq!(gateway.respond(untyped).await.status, 415);
    for (text, refusal) in [("{", (400, -32700)), ("7", (400, -32600)), ("{}", (400, -32600))] {
        let refused = gateway.respond(ping().body(vec![bytes(text)])).await;
        assert_eq!(refused.refusal(), refusal, "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn too_large_body_is_refused() {
    let gateway = TestGateway::with(|settings| settings.limits.body = 100).await;
    assert_eq!(gateway.respond(ping()).await.status, 200);
    let announced = gateway.respond(ping().header("content-length", "101")).await;
    assert_eq!((announced.status, announced.closes), (413, true));
    let half = "x".repeat(60);
    let chunked = gateway.respond(ping().body(vec![bytes(&half), bytes(&half)])).await;
    assert_eq!((chunked.status, chunked.closes), (413, true));
}

#[tokio::test(start_paused = true)]
async fn slow_body_times_out() {
    let gateway = TestGateway::new().await;
    let text = ping_text();
    let (head, tail) = text.split_at(9);
    let slow = |pause| vec![bytes(head), BodyStep::Pause(pause), bytes(tail)];
    let arrived = gateway.respond(ping().body(slow(seconds(29)))).await;
    assert_eq!(arrived.status, 200);
    assert_at(arrived.ended, seconds(29));
    let late = gateway.respond(ping().body(slow(seconds(31)))).await;
    assert_eq!((late.status, late.closes), (408, true));
    assert_at(late.ended, seconds(30));
}

#[tokio::test(start_paused = true)]
async fn broken_body_is_incomplete() {
    let gateway = TestGateway::new().await;
    let broken = gateway.respond(ping().body(vec![bytes("{"), BodyStep::Lost])).await;
    assert_eq!((broken.status, broken.closes), (400, true));
}

#[tokio::test(start_paused = true)]
async fn expected_continue_is_sent() {
    let gateway = TestGateway::new().await;
    let expecting = gateway.send(ping().header("expect", "100-continue"));
    let client = expecting.client.clone();
    assert_eq!(expecting.response().await.status, 200);
    assert!(client.written().was_continued);
    let refused = gateway.send(ping().header("expect", "100-continue").header("content-length", "99999999"));
    let client = refused.client.clone();
    assert_eq!(refused.response().await.status, 413);
    assert!(!client.written().was_continued, "a refused body is not sent");
}

#[tokio::test(start_paused = true)]
async fn batch_keeps_rules_of_revision() {
    let gateway = TestGateway::with(|settings| settings.limits.batch = 3).await;
    let old = gateway.session("2025-03-26", json!({})).await;
    let newer = gateway.session("2025-06-18", json!({})).await;
    let ping = |id: u32| json!({ "jsonrpc": "2.0", "id": id, "method": "ping" });
    let note = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let begin = json!({ "jsonrpc": "2.0", "id": 9, "method": "initialize", "params": {} });
    let wrong = json!({ "jsonrpc": "2.0", "id": 7, "method": "no/such" });
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": super::MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let modern = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": { "_meta": meta } });
    for (name, session, batch, status) in [
        ("as many as allowed", &old, json!([ping(1), ping(2), ping(3)]), 200),
        ("a notification beside", &old, json!([note, ping(2)]), 200),
        ("an unknown method", &old, json!([wrong, ping(2)]), 200),
        ("notifications alone", &old, json!([note]), 202),
        ("none", &old, json!([]), 400),
        ("too many", &old, json!([ping(1), ping(2), ping(3), ping(4)]), 400),
        ("initialize", &old, json!([begin]), 400),
        ("no message", &old, json!([7]), 400),
        ("a modern request", &old, json!([ping(1), modern]), 400),
        ("a response beside", &old, json!([note, { "jsonrpc": "2.0", "id": 8, "result": {} }]), 202),
        ("a later revision", &newer, json!([ping(1)]), 400),
    ] {
        let response = gateway.respond(session.post(&batch)).await;
        assert_eq!(response.status, status, "{name}: {response:?}");
    }
    let mixed = gateway.respond(old.post(&json!([wrong, ping(2)]))).await.json();
    assert_eq!(mixed[0]["error"]["code"], -32601, "{mixed}");
    assert_eq!(mixed[1]["result"], json!({}));
}

#[tokio::test(start_paused = true)]
async fn batch_has_one_budget_for_all_calls() {
    let gateway = TestGateway::new().await;
    let session = gateway.session("2025-03-26", json!({})).await;
    let params = json!({ "name": TOOL, "arguments": { "text": "x" } });
    let call = |id: u32| json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
    let agents = [gateway.agent.expect(), gateway.agent.expect(), gateway.agent.expect()];
    agents.iter().for_each(|agent| agent.send(&working()));
    let batch = gateway.respond(session.post(&json!([call(1), call(2), call(3)]))).await;
    assert_at(batch.ended, seconds(45));
    assert!(!batch.is_stream(), "{batch:?}");
    assert_eq!(batch.json().as_array().unwrap().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn request_rate_is_limited() {
    let gateway = TestGateway::with(|settings| {
        (settings.limits.caller_rate, settings.limits.caller_burst) = (1, 2);
    })
    .await;
    let statuses = [gateway.respond(ping()).await.status, gateway.respond(ping()).await.status];
    assert_eq!(statuses, [200, 200]);
    let refused = gateway.respond(ping()).await;
    assert_eq!((refused.status, refused.header("retry-after"), refused.closes), (429, "1", true));
    let other = TestRequest { network: Some([192, 0, 2, 2].into()), ..ping() };
    assert_eq!(gateway.respond(other).await.status, 200, "another address");
    assert_eq!(gateway.respond(TestRequest::get("/healthz")).await.status, 200, "health is not counted");
}

#[tokio::test(start_paused = true)]
async fn calls_of_caller_are_limited() {
    let gateway = TestGateway::with(|settings| settings.limits.caller_calls = 1).await;
    let (call, agent) = gateway.call(TestRequest::sing(&json!({})));
    agent.send(&working());
    settle().await;
    let refused = gateway.respond(TestRequest::sing(&json!({}))).await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, "1"));
    assert_eq!(gateway.agent.all("Say").len(), 1);
    assert_eq!(gateway.respond(ping()).await.status, 200, "no call");
    let (other, beside) =
        gateway.call(TestRequest { network: Some([192, 0, 2, 2].into()), ..TestRequest::sing(&json!({})) });
    beside.send(&message("lo"));
    assert_eq!(other.response().await.words(), "lo", "another address");
    agent.send(&message("la"));
    call.response().await;
    let (call, agent) = gateway.call(TestRequest::sing(&json!({})));
    agent.send(&message("la"));
    assert_eq!(call.response().await.words(), "la", "there is room again");
}

#[tokio::test(start_paused = true)]
async fn busy_agent_lets_calls_wait() {
    let gateway = TestGateway::with(|settings| {
        settings.agents[0].max_calls = 1;
        settings.agents[0].queue.size = 1;
        settings.agents[0].queue.wait = seconds(5);
    })
    .await;
    let (first, agent) = gateway.call(TestRequest::sing(&json!({})));
    agent.send(&working());
    settle().await;
    let waits = gateway.send(TestRequest::sing(&json!({})));
    settle().await;
    let refused = gateway.respond(TestRequest::sing(&json!({}))).await;
    assert_eq!(refused.status, 503, "the queue is full: {refused:?}");
    let waited = waits.response().await;
    assert_eq!(waited.status, 503, "{waited:?}");
    assert_at(waited.ended, seconds(5));
    let (next, other) = gateway.call(TestRequest::sing(&json!({})));
    pass(seconds(3)).await;
    agent.send(&message("la"));
    agent.end();
    first.response().await;
    other.send(&message("next"));
    assert_at(next.response().await.ended, seconds(3));
}

#[tokio::test(start_paused = true)]
async fn invalid_sessions_are_not_found() {
    let gateway = TestGateway::new().await;
    let session = gateway.session("2025-11-25", json!({})).await;
    assert_eq!(gateway.respond(session.request("ping", json!({}))).await.status, 200);
    let cut = session.id.get(1..).unwrap().to_owned();
    let flipped = |place: usize| {
        let mut bytes = session.id.clone().into_bytes();
        bytes[place] = if bytes[place] == b'A' { b'B' } else { b'A' };
        String::from_utf8(bytes).unwrap()
    };
    let longer = format!("{}A", session.id);
    let [first, middle] = [flipped(0), flipped(session.id.len() / 2)];
    for id in ["x", "made-up", &cut, &longer, &first, &middle, &"x".repeat(5000)] {
        let bad = TestSession { id: id.to_owned(), ..session.clone() };
        assert_eq!(gateway.respond(bad.request("ping", json!({}))).await.refusal(), (404, -32001), "{id}");
        let stream = bad.own(TestRequest::get("/mcp").header("accept", "text/event-stream"));
        assert_eq!(gateway.respond(stream).await.status, 404, "{id}");
        let end = bad.own(TestRequest::new(Method::DELETE, "/mcp"));
        assert_eq!(gateway.respond(end).await.status, 404, "{id}");
    }
}

#[tokio::test(start_paused = true)]
async fn ended_session_stays_ended() {
    let gateway = TestGateway::new().await;
    let session = gateway.session("2025-11-25", json!({})).await;
    let other = gateway.session("2025-11-25", json!({})).await;
    assert_ne!(session.id, other.id);
    let end = || session.own(TestRequest::new(Method::DELETE, "/mcp"));
    assert_eq!(gateway.respond(end()).await.status, 204);
    assert_eq!(gateway.respond(session.request("ping", json!({}))).await.refusal(), (404, -32001));
    assert!(matches!(gateway.respond(end()).await.status, 204 | 404), "a second time");
    let stream = session.own(TestRequest::get("/mcp").header("accept", "text/event-stream"));
    assert_eq!(gateway.respond(stream).await.status, 404);
    assert_eq!(gateway.respond(other.request("ping", json!({}))).await.status, 200);
}

/// Ruby SDK CVE-2026-33946, Python SDK CVE-2026-52869.
#[tokio::test(start_paused = true)]
async fn session_belongs_to_its_caller() {
    let gateway = TestGateway::with(with_keys).await;
    let session = gateway.session_as("2025-11-25", json!({}), as_ann).await;
    assert_eq!(gateway.respond(session.request("ping", json!({}))).await.status, 200);
    let anonymous = TestSession { dress: |request| request, ..session.clone() };
    assert_eq!(gateway.respond(anonymous.request("ping", json!({}))).await.status, 401);
    let stolen = TestSession { dress: as_ben, ..session };
    assert_eq!(gateway.respond(stolen.request("ping", json!({}))).await.refusal(), (404, -32001));
}

#[tokio::test(start_paused = true)]
async fn task_belongs_to_its_caller() {
    let gateway = TestGateway::with(with_keys).await;
    let (call, agent) = gateway.call(as_ann(TestRequest::sing(&json!({})).at("/mcp?budget=1s")));
    agent.send(&working());
    let get = TestRequest::tool("subagent_get", json!({ "taskId": call.response().await.handle() }));
    assert_eq!(gateway.respond(as_ann(get.clone())).await.result()["isError"], false);
    let refused = gateway.respond(as_ben(get)).await;
    assert_eq!(refused.result()["isError"], true, "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn callers_must_authenticate() {
    let gateway = TestGateway::with(with_keys).await;
    let missing = gateway.respond(ping()).await;
    assert_eq!((missing.status, missing.closes), (401, true));
    assert_eq!(missing.header("www-authenticate"), "ApiKey header=\"x-api-key\"");
    assert_eq!(gateway.respond(ping().header("x-api-key", "wrong")).await.status, 401);
    assert_eq!(gateway.respond(as_ann(ping())).await.status, 200);
    let mut twice = as_ann(ping());
    twice.headers.append("x-api-key", "key of ben".parse().unwrap());
    assert_eq!(gateway.respond(twice).await.status, 400);
    assert_eq!(gateway.respond(TestRequest::get("/healthz")).await.status, 200, "health is open");
    let preflight = TestRequest::new(Method::OPTIONS, "/mcp").header("origin", "http://localhost:1");
    assert_eq!(gateway.respond(preflight).await.status, 204, "browsers send no key");
    let metadata = TestRequest::get("/.well-known/oauth-protected-resource");
    assert_eq!(gateway.respond(metadata).await.status, 404, "there are no tokens");
}

#[tokio::test(start_paused = true)]
async fn failed_authentications_are_limited() {
    let gateway = TestGateway::with(|settings| {
        with_keys(settings);
        settings.limits.auth_failures = 1;
    })
    .await;
    let wrong = || ping().header("x-api-key", "wrong");
    for _ in 0..10 {
        assert_eq!(gateway.respond(wrong()).await.status, 401);
    }
    let mut last = 401;
    // The rate is of the system's clock: a slow machine allows some more.
    for _ in 0..50 {
        last = gateway.respond(wrong()).await.status;
        if last == 429 {
            break;
        }
    }
    assert_eq!(last, 429);
    assert_eq!(gateway.respond(as_ann(ping())).await.status, 200, "a good key passes");
}

#[tokio::test(start_paused = true)]
async fn health_counts_tasks_and_streams() {
    let gateway = TestGateway::new().await;
    let (call, agent) = gateway.call(TestRequest::sing(&json!({})).at("/mcp?budget=1s"));
    agent.send(&working());
    call.response().await;
    let params = json!({ "notifications": {} });
    let listening: Exchange = gateway.send(TestRequest::modern(&json!({}), "subscriptions/listen", params));
    settle().await;
    let health: Value = gateway.respond(TestRequest::get("/healthz")).await.json();
    assert_eq!((&health["ok"], &health["tasks"], &health["activeSse"]), (&json!(true), &json!(1), &json!(1)));
    listening.disconnect().await;
    let head = gateway.respond(TestRequest::new(Method::HEAD, "/healthz")).await;
    assert_eq!((head.status, head.text.as_str()), (200, ""));
    let any_host = TestRequest::get("/healthz").header("host", "balancer.example");
    let health = gateway.respond(any_host).await.json();
    assert_eq!(health["activeSse"], 0, "{health}");
}

#[tokio::test(start_paused = true)]
async fn agent_list_is_cached_by_its_tag() {
    let gateway = TestGateway::new().await;
    let list = gateway.respond(TestRequest::get("/a2a")).await;
    assert_eq!((list.status, list.header("content-type")), (200, "application/json"));
    assert!(list.text.contains("bard") && !list.header("etag").is_empty(), "{list:?}");
    let same = TestRequest::get("/a2a").header("if-none-match", list.header("etag"));
    let same = gateway.respond(same).await;
    assert_eq!((same.status, same.text.as_str()), (304, ""));
    let head = gateway.respond(TestRequest::new(Method::HEAD, "/a2a")).await;
    assert_eq!((head.status, head.header("etag"), head.text.as_str()), (200, list.header("etag"), ""));
    let bad = gateway.respond(TestRequest::get("/a2a?limit=x")).await;
    assert_eq!(bad.status, 400);
    let catalog = gateway.respond(TestRequest::get("/.well-known/api-catalog")).await;
    assert!(catalog.text.contains("http://localhost:8080/a2a/bard"), "{catalog:?}");
}

fn settings() -> Settings {
    Settings::new(vec![Agent::new("bard", "http://bard.example/card")])
}

/// Returns the settings with one more agent.
fn with_news(settings: &Settings) -> Settings {
    let mut agents = settings.agents.clone();
    agents.push(Agent::new("news", "http://news.example/card"));
    Settings { agents, ..settings.clone() }
}

/// Generations that no request uses any more are dropped whole.
#[tokio::test]
async fn reload_drops_old_generation() {
    let (gateway, _) = Gateway::new(settings()).unwrap();
    for round in 0..20 {
        let old = Arc::downgrade(&gateway.current());
        let engine = Arc::downgrade(&gateway.current().mcp_server.engine);
        let directory = Arc::downgrade(&gateway.current().discovery.directory);
        let other = if round % 2 == 0 { with_news(&settings()) } else { settings() };
        let report = gateway.reload(other).await.unwrap();
        assert_eq!((report.generation, report.changed), (round + 2, vec!["agents".to_owned()]));
        assert!(old.upgrade().is_none() && engine.upgrade().is_none() && directory.upgrade().is_none());
    }
    let metrics = String::from_utf8(gateway.render_metrics()).unwrap();
    for line in ["mcp_a2a_gateway_config_generations_held 1", "mcp_a2a_gateway_config_generation 21"] {
        assert!(metrics.contains(line), "{line}");
    }
    assert!(!metrics.contains("agent=\"news\""), "{metrics}");
}

#[tokio::test]
async fn same_settings_change_nothing() {
    let (gateway, _) = Gateway::new(settings()).unwrap();
    let before = gateway.current();
    let report = gateway.reload(settings()).await.unwrap();
    assert!(!report.is_applied() && Arc::ptr_eq(&before, &gateway.current()), "{report:?}");
}

/// An agent with the same settings stays; one with others is another agent with the same card.
#[tokio::test]
async fn agents_continue_across_reload() {
    let gateway = TestGateway::new().await;
    let bard = || gateway.gateway.current().discovery.directory.find("bard").unwrap().clone();
    let first = bard();
    let report = gateway.gateway.reload(with_news(&settings())).await.unwrap();
    assert_eq!((report.agents_added, report.agents_changed.len()), (vec!["news".to_owned()], 0));
    assert!(Arc::ptr_eq(&first, &bard()));
    let mut other = settings();
    other.agents[0].max_calls = 7;
    let report = gateway.gateway.reload(other).await.unwrap();
    assert_eq!(report.agents_changed, ["bard"]);
    assert_eq!(report.agents_removed, ["news"]);
    let second = bard();
    assert!(!Arc::ptr_eq(&first, &second) && second.is_initialized());
    assert_eq!(second.known().unwrap().card.name, first.known().unwrap().card.name);
    let listed = gateway.respond(TestRequest::modern(&json!({}), "tools/list", json!({}))).await;
    assert_eq!(listed.result()["tools"][0]["name"], "bard_sing", "{listed:?}");
}

#[tokio::test]
async fn bound_keys_keep_their_values() {
    let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
    let mut used = settings();
    used.listeners = vec![Listener::new(at(8001)), Listener::new(at(8002))];
    let (gateway, _) = Gateway::new(used.clone()).unwrap();
    let mut other = used.clone();
    other.threads = 3;
    other.tasks.max = 7;
    other.limits.caller_rate = 5;
    other.listeners = vec![Listener::new(at(8003)), Listener::new(at(8002))];
    other.listeners[1].require.rule = RequireRule::Any;
    let report = gateway.reload(other.clone()).await.unwrap();
    let named = ["threads", "tasks.max", "listeners (127.0.0.1:8001 is removed)", "listeners[0].address"];
    assert_eq!(report.restart, named);
    assert_eq!(report.changed, ["listeners", "limits"]);
    let current = gateway.current();
    let in_use = &current.configuration;
    assert_eq!((in_use.threads, in_use.tasks.max, in_use.limits.caller_rate), (0, used.tasks.max, 5));
    let rules: Vec<RequireRule> = current.listeners.iter().map(|listener| listener.require.rule).collect();
    assert_eq!(rules, [used.listeners[0].require.rule, RequireRule::Any]);
    let again = gateway.reload(other).await.unwrap();
    assert!(!again.is_applied() && again.restart == named, "{again:?}");
}

#[tokio::test]
async fn unusable_settings_change_nothing() {
    let (gateway, _) = Gateway::new(settings()).unwrap();
    let before = gateway.current();
    let mut other = with_news(&settings());
    other.agents.push(Agent::new("weather", "no url"));
    assert!(gateway.reload(other).await.is_err());
    assert!(Arc::ptr_eq(&before, &gateway.current()));
    let metrics = String::from_utf8(gateway.render_metrics()).unwrap();
    assert!(!metrics.contains("agent=\"news\""), "{metrics}");
}

/// A call that is under way ends with its result although its agent is removed.
#[tokio::test(start_paused = true)]
async fn call_ends_after_its_agent_is_removed() {
    let gateway = TestGateway::new().await;
    let (call, agent) = gateway.call(TestRequest::sing(&json!({})));
    settle().await;
    let news = Settings::new(vec![Agent::new("news", "http://news.example/card")]);
    assert_eq!(gateway.gateway.reload(news).await.unwrap().agents_removed, ["bard"]);
    agent.send(&completed("la"));
    let response = call.response().await;
    assert!(response.words().starts_with("la"), "{response:?}");
    let refused = gateway.respond(TestRequest::tool(TOOL, json!({ "text": "sing" }))).await;
    assert_eq!(refused.refusal().1, -32602, "{refused:?}");
}

/// Agents of another source are added and removed beside those of the configuration, and never
/// replace one of them.
#[tokio::test]
async fn source_of_agents_is_applied() {
    let with_source = || {
        let mut settings = settings();
        settings.sources.push(Source {
            name: "catalog".to_owned(),
            place: SourcePlace::Url("http://other.example/list".to_owned()),
            hosts: Vec::new(),
            headers: Vec::new(),
            tls: AgentTls::default(),
            interval: Duration::from_secs(60),
            timeout: Duration::from_secs(1),
            max_bytes: 1024,
            max_agents: 10,
        });
        settings
    };
    let (gateway, _) = Gateway::new(with_source()).unwrap();
    let reloader = Reloader::new(gateway.clone(), with_source(), Arc::new(move |_| Ok(with_source().into())));
    let names = || {
        let current = gateway.current();
        let agents = current.discovery.directory.agents();
        agents.iter().map(|agent| agent.settings.card.without_secrets()).collect::<Vec<_>>()
    };
    let offered = ["bard", "news"].map(|name| {
        let card = CardSource::Url(format!("http://other.example/{name}"));
        FoundAgent { name: name.to_owned(), card }
    });
    let report = reloader.set_agents("catalog", offered.to_vec()).await.unwrap();
    assert_eq!(report.agents_added, ["news"]);
    let both = ["http://bard.example/card", "http://other.example/news"];
    assert_eq!(names(), both);
    assert!(!reloader.reload(ReloadCause::Signal).await.unwrap().is_applied());
    assert_eq!(names(), both);
    // One that cannot be reached is no problem of the configuration.
    let elsewhere = CardSource::Url("http://else.example/x".to_owned());
    let offered = vec![FoundAgent { name: "news".to_owned(), card: elsewhere }];
    assert_eq!(reloader.set_agents("catalog", offered).await.unwrap().agents_changed, ["news"]);
    assert_eq!(reloader.set_agents("catalog", Vec::new()).await.unwrap().agents_removed, ["news"]);
}
