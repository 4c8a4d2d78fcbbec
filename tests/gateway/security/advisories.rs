//! Published advisories about similar software, and the tests here that name them. In this file:
//! the agents' side.
//!
//! | Advisory | Held by |
//! |---|---|
//! | Pingora CVE-2025-4366, RUSTSEC-2025-0037 | `advisories_wire::unread_body_is_never_next_request`, `advisories_versions` |
//! | Pingora CVE-2026-2833, RUSTSEC-2026-0033 | `advisories_wire::nothing_after_upgrade_is_forwarded`, `advisories_versions` |
//! | Pingora CVE-2026-2835, RUSTSEC-2026-0034 | `advisories_wire::body_has_one_end_or_is_refused`, `advisories_versions` |
//! | Pingora CVE-2026-2836, RUSTSEC-2026-0035 | cannot apply, no answer is kept: `advisories_callers::no_answer_is_cached_for_others` |
//! | CVE-2025-8671, RUSTSEC-2025-0070, RUSTSEC-2024-0332, RUSTSEC-2026-0258, the bounds of Pingora 0.8.1 | `advisories_http2`, `advisories_versions` |
//! | agentgateway CVE-2026-29791 | `no_argument_reaches_request_head`, `no_client_header_reaches_agent` |
//! | agentgateway GHSA-mvgg-jvj2-4frq | `advisories_callers::session_opens_no_other_endpoint` |
//! | Envoy AI Gateway GHSA-4gph-2hhr-5mwg, Go SDK CVE-2026-27896 | `bad_input::duplicate_keys_never_change_meaning`, `bad_input::non_message_is_told_missing_members` |
//! | Kuadrant GHSA-g53w-w6mj-hrpp | `no_client_header_reaches_agent`; keys that come with the program: there are none, a seal key that is missing is made at random |
//! | TypeScript SDK CVE-2026-25536 | `cross_delivery::every_client_gets_its_own_answer` |
//! | Ruby SDK CVE-2026-33946, Python SDK CVE-2026-52869, oatpp CVE-2025-6515 | `advisories_callers::foreign_session_is_useless` |
//! | Python SDK CVE-2026-52870; a2a-java GHSA-qw47-mcm5-934w, a2a-python #786 | `advisories_callers` (tasks, conversations, resources, questions), `callers::caller_lists_only_its_own_tasks` (lists, cursors), `agent_task_id_opens_nothing`; the address for pushes is an agent's and no caller's: `push::unproven_push_is_refused` |
//! | rmcp CVE-2026-42559 (RUSTSEC-2026-0189), TypeScript CVE-2025-66414, Python CVE-2025-66416, Go CVE-2026-34742, Java CVE-2026-35568, Python WebSocket CVE-2026-59950 | `origin`, in process `edge::only_own_hosts_are_served` and `edge::only_known_origins_may_call`; there is no WebSocket (`advisories_wire::nothing_after_upgrade_is_forwarded`) |
//! | Python SDK CVE-2025-53365, CVE-2025-53366 | `advisories_wire::broken_off_request_harms_no_other` |
//! | TypeScript SDK CVE-2026-0621 | `call::pattern_cannot_take_for_ever` |
//! | mcp-remote CVE-2025-6514; Inspector CVE-2025-49596, CVE-2025-58444 | `no_url_in_card_or_result_is_fetched`; no program is ever started: `advisories_versions::no_program_is_started` |
//! | a2a-java GHSA-9rhm-2h4x-jwmx, GHSA-4fpj-g9jf-9rgg | `no_call_follows_redirect`, `no_argument_reaches_request_head` |
//! | a2a-java GHSA-q78c-5jjq-57g8, a2a-python PR #895, langflow #13859, #13858, #13843 | `changed_card_takes_no_credentials`, `no_url_in_card_or_result_is_fetched`, `outbound` (names are judged when they are connected to) |
//! | ContextForge #3812, non-hex server id | `advisories_callers::session_opens_no_other_endpoint`, `client_wire::query_and_trailing_slash_keep_path`: an unknown path is 404 |
//! | ContextForge redirects, #4427, #4235, #5013, #6080, PR #6395 | `no_call_follows_redirect`, `error_page_is_not_passed_on`, `secrets::secrets_are_shown_to_agents_alone`, `credentials::only_named_headers_go_along`; there are no teams |
//! | mcp-gateway-registry #1391, caipe #1929 | `no_client_header_reaches_agent`, `credentials::client_cannot_pass_identity_through` |
//! | RUSTSEC-2026-0049, -0098, -0099, -0104, -0044, -0048 | `advisories_versions`, `tls_clients::only_good_certificate_gets_in`, `tls_reload` (revoked intermediates, broken and expired lists) |
//! | RUSTSEC-2024-0399, RUSTSEC-2024-0336 | `advisories_versions`, `tls_clients::endless_handshake_is_ended` |

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, Scene, TOOL, task_of};
use crate::support::payload::v1;
use crate::support::{Card, Reply, Request, ScriptedAgent, TestGateway, in_time};

const RAW: (&str, &str) = (RAW_TASK, RAW_CONTEXT);
const SECRET: &str = "headers: { Authorization: Bearer CANARY }";

/// A redirect to another agent that keeps method and body.
fn away(other: &ScriptedAgent) -> impl Fn(&Request) -> Reply + Send + Sync + Clone + 'static {
    let elsewhere = other.url();
    let next = std::sync::Arc::new(AtomicUsize::new(0));
    move |_| {
        let codes = [301, 302, 303, 307, 308];
        let code = codes[next.fetch_add(1, Ordering::SeqCst) % codes.len()];
        Reply::status(code, "").header("Location", &elsewhere)
    }
}

/// a2a-java GHSA-9rhm-2h4x-jwmx and GHSA-4fpj-g9jf-9rgg, ContextForge's redirects: credentials
/// followed a redirect, and the first repair missed one path. Here: every method that an agent is
/// called with, and its card.
#[tokio::test]
async fn no_call_follows_redirect() {
    let other = ScriptedAgent::start(Card::v1().skill("sing")).await;
    let calls = "calls: { budget: 1s, max_rounds: 0, stream_after: 100ms, task_after: 100ms }";
    let streams = "streams: { idle_timeout: 200ms, retry_base: 50ms, retry_max: 50ms }";
    // Sends: as a stream, then whole.
    for streaming in [true, false] {
        let scene = Scene::of(Card::v1().skill("sing").streaming(streaming), SECRET, calls).await;
        scene.agent.on_send(away(&other));
        assert_eq!(scene.said("x").await["isError"], true);
    }
    // Looks, subscriptions, cancellations and webhooks of a task that is under way.
    let mut card = Card::v1().skill("sing");
    card.json["capabilities"]["pushNotifications"] = true.into();
    let agent = ScriptedAgent::start(card).await;
    let url = agent.card_url();
    let gateway = TestGateway::start(|ports| {
        let listener = format!("  - address: 127.0.0.1:{}\n    serve: [push]\nadmin:", ports.other);
        let listeners = ports.listeners().replacen("admin:", &listener, 1);
        let push = format!("public_url: http://127.0.0.1:{}\npush: {{ enabled: true }}", ports.other);
        format!("{listeners}{push}\n{calls}\n{streams}\nagents:\n  bard:\n    card: {url}\n    {SECRET}\n")
    })
    .await;
    for method in ["SubscribeToTask", "CancelTask", "CreateTaskPushNotificationConfig"] {
        agent.on(method, away(&other));
    }
    let client = gateway.client().with_tasks();
    let call = json!({ "name": TOOL, "arguments": { "text": "x" } });
    let _go = agent.works_for(RAW, "the song");
    let begun = client.modern("tools/call", call.clone()).await.result().await;
    let task = begun["taskId"].as_str().unwrap_or_else(|| panic!("no task: {begun}"));
    agent.wait_for_call("CreateTaskPushNotificationConfig").await;
    agent.on_get(away(&other));
    client.task("tasks/cancel", task).await.json().await;
    agent.wait_for_call("CancelTask").await;
    // Another one with a stream that breaks: first it is found to work still, then it is asked
    // about elsewhere.
    agent.on_send(|_| Reply::stream().event(v1::task("raw-other", RAW_CONTEXT, "working")).cut());
    let (looks, away_from_look) = (AtomicUsize::new(0), away(&other));
    agent.on_get(move |request| {
        let is_first = request.params()["id"] == "raw-other" && looks.fetch_add(1, Ordering::SeqCst) == 0;
        match is_first {
            true => Reply::result(v1::bare_task("raw-other", RAW_CONTEXT, "working")),
            false => away_from_look(request),
        }
    });
    client.modern("tools/call", call).await.result().await;
    agent
        .wait_for("looks and subscriptions", |log| {
            !log.calls("SubscribeToTask").is_empty() && log.calls("GetTask").len() >= 2
        })
        .await;
    // The card itself.
    let astray = ScriptedAgent::start(Card::v1().skill("sing")).await;
    astray.on_path("/.well-known/agent-card.json", away(&other));
    let gateway = TestGateway::before(&[("bard", &astray)]).await;
    let list = gateway.client().modern("tools/list", json!({})).await.result().await;
    assert!(!list.to_string().contains(TOOL), "{list}");
    astray.wait_for("its card", |log| !log.requests.is_empty()).await;
    assert_eq!(other.log().connections, 0, "{:?}", other.requests());
}

/// The lines of a request that are not its body: no argument may get into them.
fn head(request: &Request) -> (String, String, BTreeSet<(String, String)>) {
    let headers = request.headers.iter().filter(|(name, _)| !name.eq_ignore_ascii_case("content-length"));
    (request.method.clone(), request.path.clone(), headers.cloned().collect())
}

/// agentgateway CVE-2026-29791: arguments of a call went into path, query and headers of the
/// request that it became.
#[tokio::test]
async fn no_argument_reaches_request_head() {
    let scene = Scene::of(Card::v1().skill("sing"), SECRET, "").await;
    scene.agent.on_send(|_| Reply::events([v1::message("la")]));
    scene.said("plain").await;
    let hostile = "x\r\nX-Evil: 1\r\n\r\nGET /evil HTTP/1.1\r\n\0../..?a=b#c%0d%0a\u{e9}";
    for arguments in [
        json!({ "text": hostile }),
        json!({ "text": "x", "data": { hostile: hostile } }),
        json!({ "text": "x", "files": [{ "url": "http://a/%0d%0a", "mediaType": hostile, "name": hostile }] }),
        json!({ "text": "x", "files": [{ "bytes": "aGk=", "mediaType": hostile, "name": hostile }] }),
    ] {
        let meta = json!({ "progressToken": hostile, "traceparent": hostile, "tracestate": hostile });
        scene.call_with(arguments, meta).await.json().await;
    }
    let sent = scene.agent.requests();
    let posts: Vec<_> = sent.iter().filter(|request| request.method == "POST").map(head).collect();
    assert!(posts.len() >= 3, "some of it was sent: {posts:?}");
    assert!(posts.iter().all(|post| *post == posts[0]), "{posts:?}");
    assert!(sent.iter().all(|request| !request.path.contains("evil")), "{sent:?}");
}

/// agentgateway CVE-2026-29791 and mcp-gateway-registry #1391, caipe #1929: headers of a client
/// went on to an agent. Also what Kuadrant GHSA-g53w-w6mj-hrpp steered a gateway by.
#[tokio::test]
async fn no_client_header_reaches_agent() {
    let scene = Scene::of(Card::v1().skill("sing"), SECRET, "").await;
    scene.agent.on_send(|_| Reply::events([v1::message("la")]));
    let mut client = scene.gateway.client();
    for name in [
        "Authorization",
        "Cookie",
        "Proxy-Authorization",
        "X-Api-Key",
        "X-Forwarded-For",
        "X-Forwarded-Host",
        "Forwarded",
        "X-Forwarded-Client-Cert",
        "mcp-init-host",
        "X-Original-URL",
        "X-Custom",
        "A2A-Version",
        "Baggage",
    ] {
        client = client.header(name, "MARK");
    }
    let params = json!({ "name": TOOL, "arguments": { "text": "x" } });
    client.modern("tools/call", params).await.result().await;
    for request in scene.agent.requests() {
        assert!(!format!("{:?}", request.headers).contains("MARK"), "{request:?}");
        assert_eq!(request.header("authorization"), Some("Bearer CANARY"), "{request:?}");
    }
}

/// a2a-java GHSA-q78c-5jjq-57g8, a2a-python PR #895, langflow #13859: the card said where to send
/// what, and got the key. A place that was right when the card was read first is judged again with
/// each new card.
#[tokio::test]
async fn changed_card_takes_no_credentials() {
    let scene = Scene::of(
        Card::v1().skill("sing"),
        SECRET,
        "cards: { min_refresh: 1s, max_refresh: 1s, retry: 100ms }",
    )
    .await;
    scene.agent.on_send(|_| Reply::events([v1::message("la")]));
    scene.said("x").await;
    let thief = ScriptedAgent::start(Card::v1().skill("sing")).await;
    thief.on_send(|_| Reply::events([v1::message("got it")]));
    let interface = json!([{ "url": thief.url(), "protocolBinding": "JSONRPC", "protocolVersion": "1.0" }]);
    scene.agent.set_card(Card::v1().skill("sing").set("supportedInterfaces", interface));
    let told = async {
        while !scene.gateway.admin().at("/agents").get(&[]).await.text().await.contains("allow_hosts") {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    in_time("the operator to be told", told).await;
    assert_eq!(scene.said("x").await["content"][0]["text"], "la", "the last good card goes on");
    assert_eq!(thief.log().connections, 0);
}

/// a2a-python #895 (`AgentCard.url`), mcp-remote CVE-2025-6514: URLs in what an agent says were
/// fetched. Here they are words.
#[tokio::test]
async fn no_url_in_card_or_result_is_fetched() {
    let bait = ScriptedAgent::start(Card::v1()).await;
    let url = |path: &str| format!("{}{path}", bait.url());
    let schemes = json!({
        "oauth": { "oauth2SecurityScheme": { "oauth2MetadataUrl": url("metadata"), "flows": {
            "clientCredentials": { "tokenUrl": url("token"), "scopes": {} } } } },
        "oidc": { "openIdConnectSecurityScheme": { "openIdConnectUrl": url("oidc") } },
    });
    let card = Card::v1()
        .skill("sing")
        .set("iconUrl", url("icon"))
        .set("documentationUrl", url("docs"))
        .set("provider", json!({ "organization": "o", "url": url("provider") }))
        .set("securitySchemes", schemes)
        .set(
            "signatures",
            json!([{ "protected": "eyJhbGciOiJFUzI1NiIsImprdSI6Imh0dHA6Ly94In0", "signature": "AA" }]),
        );
    let scene = Scene::of(card, "", "").await;
    let file = json!({ "url": url("file"), "mediaType": "text/plain", "filename": "f.txt" });
    let mut done = v1::completed(RAW.0, RAW.1, "the song");
    done["task"]["artifacts"][0]["parts"].as_array_mut().unwrap().push(file);
    scene.agent.on_send(move |_| Reply::events([done.clone()]));
    let result = scene.said("x").await;
    assert!(result.to_string().contains("/file"), "a link: {result}");
    let read = json!({ "uri": "a2a-agent://bard" });
    scene.gateway.client().modern("resources/read", read).await.result().await;
    assert_eq!(bait.log().connections, 0);
}

/// ContextForge #4427, agentgateway: words of the agent's machinery went to clients. Text that is
/// not A2A stays in the log.
#[tokio::test]
async fn error_page_is_not_passed_on() {
    let scene = Scene::of(Card::v1().skill("sing"), SECRET, "").await;
    let page = "Traceback: /srv/agent/secret.py line 1, upstream 10.0.0.7";
    for status in [400, 401, 403, 404, 500, 502] {
        scene.agent.on_send(move |_| Reply::status(status, page).header("X-Powered-By", "CANARY-2"));
        let answer = scene.call(json!({ "text": "x" })).await;
        let headers = format!("{:?}", answer.headers);
        let told: Value = answer.json().await;
        for hidden in ["secret.py", "10.0.0.7", "CANARY", &scene.agent.address().to_string()] {
            assert!(
                !told.to_string().contains(hidden) && !headers.contains(hidden),
                "{status}: {told} {headers}"
            );
        }
    }
}

/// a2a-java GHSA-qw47-mcm5-934w and a2a-python #786: tasks were looked up by their id alone. The
/// agent's own id is none here.
#[tokio::test]
async fn agent_task_id_opens_nothing() {
    let scene = Scene::tuned("calls: { budget: 1s, max_rounds: 0, stream_after: 100ms }").await;
    let _go = scene.agent.works_for(RAW, "the song");
    let task = task_of(&scene.said("x").await);
    let asked = scene.agent.calls("GetTask").len();
    for raw in [RAW_TASK, RAW_CONTEXT] {
        let read = json!({ "uri": format!("a2a://task/{raw}") });
        let refused = scene.gateway.client().modern("resources/read", read).await.json().await;
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
        let refused = scene.gateway.client().with_tasks().task("tasks/get", raw).await;
        assert_eq!(refused.error_code().await, -32602);
        let refused = scene.call(json!({ "taskId": raw })).await.result().await;
        assert_eq!(refused["isError"], true, "{refused}");
        let refused = scene.call(json!({ "text": "x", "contextId": raw })).await.result().await;
        assert_eq!(refused["isError"], true, "{refused}");
    }
    assert_eq!(scene.agent.calls("GetTask").len(), asked, "the agent is not asked");
    assert!(!task.contains("raw"));
}
