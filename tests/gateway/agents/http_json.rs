//! Agents that are called by the routes of HTTP+JSON: no other tools, tasks, questions or errors
//! than by JSON-RPC.

use serde_json::{Value, json};

use crate::auth::agent_tokens::{before, endpoint, oauth2};
use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, Scene, TOOL, complaint, words};
use crate::support::payload::v1;
use crate::support::{Card, Log, Reply, Request, ScriptedAgent, in_order};
use crate::tasks::push;

const RAW: (&str, &str) = (RAW_TASK, RAW_CONTEXT);
const SEND: &str = "/message:send";
const STREAM: &str = "/message:stream";
const TASK: &str = "/tasks/raw-task-7";
const CANCEL: &str = "/tasks/raw-task-7:cancel";
const SUBSCRIBE: &str = "/tasks/raw-task-7:subscribe";

fn card() -> Card {
    Card::http_json("", "").skill("sing")
}

async fn scene() -> Scene {
    Scene::of(card(), "", "").await
}

async fn plain() -> Scene {
    Scene::of(card().streaming(false), "", "").await
}

/// A refusal in the words of HTTP+JSON.
fn refusal(status: u16, reason: &str, message: &str) -> Reply {
    let info = json!({
        "@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason, "domain": "a2a-protocol.org",
    });
    let error = json!({ "code": status, "status": "X", "message": message, "details": [info] });
    Reply::json(&json!({ "error": error })).with_status(status)
}

/// The requests that came here, with their methods.
fn asked(log: &Log, verb: &str, path: &str) -> Vec<Request> {
    log.hits(path).into_iter().filter(|request| request.method == verb).cloned().collect()
}

#[tokio::test]
async fn call_streams_with_params_as_body() {
    let scene = scene().await;
    let (id, context) = RAW;
    scene.agent.on_path(STREAM, move |_| {
        Reply::stream()
            .bare_event(&v1::task(id, context, "working"))
            .bare_event(&v1::artifact_update(id, context, "la ", false, false))
            .bare_event(&v1::artifact_update(id, context, "la", true, true))
            .bare_event(&v1::status_update(id, context, "completed", None))
    });
    assert_eq!(words(&scene.said("a song").await), "la la");
    let [sent] = &asked(&scene.agent.log(), "POST", STREAM)[..] else { panic!("not one call") };
    assert_eq!(sent.header("content-type"), Some("application/a2a+json"));
    assert_eq!(sent.header("a2a-version"), Some("1.0"));
    assert!(sent.header("accept").is_some_and(|accept| accept.contains("text/event-stream")));
    let body = sent.json();
    assert_eq!(
        (&body["message"]["role"], &body["message"]["parts"]),
        (&json!("ROLE_USER"), &json!([{ "text": "a song" }]))
    );
    assert_eq!(body["configuration"], json!({ "acceptedOutputModes": ["text/plain"] }));
    assert_eq!(body.get("jsonrpc").or(body.get("params")), None);
}

#[tokio::test]
async fn task_is_requested_by_its_path() {
    let scene = plain().await;
    scene.agent.on_path(SEND, |_| Reply::json(&v1::task("raw task 7", RAW_CONTEXT, "working")));
    scene.agent.on_path(
        "/tasks/raw%20task%207",
        in_order([
            Reply::json(&v1::bare_task("raw task 7", RAW_CONTEXT, "working")),
            Reply::json(&v1::bare_completed("raw task 7", RAW_CONTEXT, "the song"))
                .content_type("application/a2a+json"),
        ]),
    );
    assert_eq!(words(&scene.said("x").await), "the song");
    let log = scene.agent.log();
    let gets = asked(&log, "GET", "/tasks/raw%20task%207");
    assert_eq!(gets.len(), 2);
    assert_eq!((gets[0].header("content-type"), gets[0].body.len()), (None, 0));
}

#[tokio::test]
async fn task_is_cancelled_by_its_path() {
    let scene = Scene::of(card(), "", "calls: { cancel_grace: 0s }").await;
    scene
        .agent
        .on_path(STREAM, |_| Reply::stream().bare_event(&v1::task(RAW_TASK, RAW_CONTEXT, "working")).stall());
    scene.agent.on_path(CANCEL, |_| Reply::json(&v1::bare_task(RAW_TASK, RAW_CONTEXT, "canceled")));
    let session = scene.session().await;
    let params = json!({ "name": TOOL, "arguments": { "text": "x" }, "_meta": { "progressToken": 1 } });
    let mut answer =
        session.post(&json!({ "jsonrpc": "2.0", "id": "c", "method": "tools/call", "params": params })).await;
    answer.next_message().await;
    session.notify("notifications/cancelled", json!({ "requestId": "c" })).await;
    let log = scene.agent.wait_for("the cancellation", |log| !log.hits(CANCEL).is_empty()).await;
    assert_eq!(asked(&log, "POST", CANCEL)[0].json(), json!({}));
}

#[tokio::test]
async fn broken_stream_resumes_with_known_verb() {
    for verb in ["POST", "GET"] {
        let scene = scene().await;
        scene.agent.on_path(STREAM, |_| {
            Reply::stream().bare_event(&v1::task(RAW_TASK, RAW_CONTEXT, "working")).cut()
        });
        scene.agent.on_path(TASK, |_| Reply::json(&v1::bare_task(RAW_TASK, RAW_CONTEXT, "working")));
        scene.agent.on_path(SUBSCRIBE, move |request| match request.method == verb {
            true => Reply::stream().bare_event(&v1::completed(RAW_TASK, RAW_CONTEXT, "the song")),
            false => Reply::json(&json!({ "detail": "Method Not Allowed" })).with_status(405),
        });
        assert_eq!(words(&scene.said("x").await), "the song");
        assert_eq!(asked(&scene.agent.log(), verb, SUBSCRIBE).len(), 1, "{verb}");
    }
}

#[tokio::test]
async fn base_tenant_and_query_keys_are_kept() {
    let card = Card::http_json("rest/v1?flavour=a", "acme co").skill("sing").streaming(false);
    let own = "auth: { api_key: { value: canary-key, in: query, name: key } }";
    let scene = Scene::of(card, own, "").await;
    let path = "/rest/v1/acme%20co/message:send?flavour=a&key=canary-key";
    scene.agent.on_path(path, |_| Reply::json(&v1::message("heard")));
    assert_eq!(words(&scene.said("x").await), "heard");
    let sent = scene.agent.log().hits(path)[0].json();
    assert_eq!(sent.get("tenant"), None, "the path says it");
}

#[tokio::test]
async fn refused_token_is_replaced_once() {
    let tokens = endpoint(3600).await;
    let agent = ScriptedAgent::start(card().streaming(false)).await;
    agent.on_path(SEND, |request| match request.header("authorization") {
        Some("Bearer token-2") => Reply::json(&v1::message("let in")),
        _ => Reply::status(401, "no"),
    });
    let gateway = before(&agent, &oauth2(&tokens, "")).await;
    let params = json!({ "name": TOOL, "arguments": { "text": "x" } });
    assert_eq!(words(&gateway.client().modern("tools/call", params).await.result().await), "let in");
}

#[tokio::test]
async fn refusal_is_known_by_its_reason() {
    for (reply, told) in [
        (refusal(400, "CONTENT_TYPE_NOT_SUPPORTED", "only songs"), "it refused: only songs"),
        (refusal(500, "INVALID_AGENT_RESPONSE", "broken"), "it refused: broken"),
        (refusal(400, "VERSION_NOT_SUPPORTED", "not 1.0"), "does not speak the A2A version"),
        (refusal(400, "", "bad words"), "it refused: bad words"),
        (refusal(503, "", "later"), "HTTP 503"),
        (Reply::json(&json!({ "detail": "Not Found" })).with_status(404), "HTTP 404"),
        (Reply::status(404, "<html>"), "HTTP 404"),
        (Reply::status(403, "no"), "credentials"),
    ] {
        let scene = plain().await;
        scene.agent.on_path(SEND, move |_| reply.clone());
        let result = scene.said("x").await;
        assert!(complaint(&result).contains(told), "{told}: {result}");
        assert_eq!(scene.agent.log().hits(SEND).len(), 1, "said once");
    }
}

#[tokio::test]
async fn stream_error_is_judged_by_task() {
    let scene = scene().await;
    scene.agent.on_path(STREAM, |_| {
        let error =
            json!({ "error": { "code": 500, "status": "INTERNAL", "message": "broke", "details": [] } });
        Reply::stream()
            .bare_event(&v1::task(RAW_TASK, RAW_CONTEXT, "working"))
            .bytes(format!("event: error\ndata: {error}\n\n").as_bytes())
    });
    scene
        .agent
        .on_path(TASK, |_| Reply::json(&v1::bare_completed(RAW_TASK, RAW_CONTEXT, "the song after all")));
    assert_eq!(words(&scene.said("x").await), "the song after all");
}

#[tokio::test]
async fn lost_task_is_known_by_its_reason() {
    let scene = scene().await;
    scene
        .agent
        .on_path(STREAM, |_| Reply::stream().bare_event(&v1::task(RAW_TASK, RAW_CONTEXT, "working")).cut());
    scene.agent.on_path(TASK, |_| refusal(404, "TASK_NOT_FOUND", "Task not found"));
    assert!(complaint(&scene.said("x").await).contains("does not know this task"));
    assert_eq!(scene.agent.log().hits(TASK).len(), 1);
}

/// Of one version the first interface of the card counts, unless the operator requires a binding.
#[tokio::test]
async fn order_of_card_decides_unless_pinned() {
    let offer =
        |binding: &str| json!({ "url": "{url}", "protocolBinding": binding, "protocolVersion": "1.0" });
    let (rest, rpc) = (offer("HTTP+JSON"), offer("JSONRPC"));
    for (offers, own, words_of) in [
        (json!([rest, rpc]), "", "by path"),
        (json!([rpc, rest]), "", "by JSON-RPC"),
        (json!([rest, rpc]), "binding: jsonrpc", "by JSON-RPC"),
        (json!([rpc, rest]), "binding: http_json", "by path"),
        (json!([rpc, rest]), "binding: http_json\nprotocol: \"1.0\"", "by path"),
    ] {
        let scene = Scene::of(card().set("supportedInterfaces", offers), own, "").await;
        scene.agent.on_send(|_| Reply::events([v1::message("by JSON-RPC")]));
        scene.agent.on_path(STREAM, |_| Reply::stream().bare_event(&v1::message("by path")));
        assert_eq!(words(&scene.said("x").await), words_of, "{own}");
        let agents: Value = scene.gateway.admin().at("/agents").get(&[]).await.json().await;
        let binding = if words_of == "by path" { "HTTP+JSON" } else { "JSONRPC" };
        assert_eq!((&agents[0]["binding"], &agents[0]["protocol"]), (&json!(binding), &json!("1.0")));
        scene.gateway.wait_for_output(&format!("binding=\"{binding}\"")).await;
    }
}

#[tokio::test]
async fn pinned_binding_not_offered_is_problem() {
    let scene = Scene::of(Card::v1().skill("sing"), "binding: http_json", "").await;
    let agents: Value = scene.gateway.admin().at("/agents").get(&[]).await.json().await;
    let problem = agents[0]["problem"].as_str().unwrap_or_default();
    assert!(problem.contains("does not offer HTTP+JSON") && problem.contains("JSONRPC"), "{agents}");
}

#[tokio::test]
async fn push_config_goes_to_route_of_task() {
    let agent = ScriptedAgent::start(push::pushing(Card::http_json("", ""))).await;
    let route = format!("/tasks/{RAW_TASK}/pushNotificationConfigs");
    agent.on_path("/message:stream", |_| {
        Reply::stream().bare_event(&v1::task(RAW_TASK, RAW_CONTEXT, "working")).stall()
    });
    agent.on_path(&route, |request| Reply::json(&request.json()).with_status(201));
    let gateway = push::gateway(&agent, push::ON).await;
    push::begin(&gateway.client().legacy().await, "x").await;
    let log = agent.wait_for("the webhook", |log| !log.hits(&route).is_empty()).await;
    let config = log.hits(&route)[0].json();
    assert_eq!((&config["id"], &config["taskId"]), (&json!("mcp-a2a-gateway"), &json!(RAW_TASK)));
    assert!(config["url"].as_str().is_some_and(|url| url.contains("/push/")), "{config}");
}
