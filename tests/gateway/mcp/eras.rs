//! Which era a request belongs to: the rows of the classifier, one by one, and the same request as
//! different clients send it.

use serde_json::{Value, json};

use crate::kit::scene::Scene;
use crate::support::client::MODERN;
use crate::support::{Answer, McpClient};

const VERSION: &str = "MCP-Protocol-Version";
const CLAIM: &str = "io.modelcontextprotocol/protocolVersion";

/// Status and error code; 0 for a result.
async fn outcome(answer: Answer) -> (u16, i64) {
    let status = answer.status;
    let response = answer.json().await;
    (status, response["error"]["code"].as_i64().unwrap_or_default())
}

fn list(params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": 5, "method": "tools/list", "params": params })
}

/// A modern `tools/list` with this `_meta`.
async fn with_meta(client: &McpClient, meta: Value, headers: &[(&str, &str)]) -> (u16, i64) {
    outcome(client.post(&list(json!({ "_meta": meta })), headers).await).await
}

fn meta() -> Value {
    json!({ CLAIM: MODERN, "io.modelcontextprotocol/clientCapabilities": {} })
}

const AGREED: [(&str, &str); 2] = [(VERSION, MODERN), ("Mcp-Method", "tools/list")];

#[tokio::test]
async fn modern_claim_must_agree_everywhere() {
    let scene = Scene::new().await;
    let client = scene.gateway.client();
    assert_eq!(with_meta(&client, meta(), &AGREED).await, (200, 0));
    for (version, method, expected) in [
        (Some("2025-11-25"), Some("tools/list"), (400, -32020)),
        (None, Some("tools/list"), (400, -32020)),
        (Some(MODERN), None, (400, -32020)),
        (Some(MODERN), Some("prompts/list"), (400, -32020)),
        (Some(MODERN), Some("TOOLS/LIST"), (400, -32020)),
    ] {
        let headers: Vec<_> =
            version.map(|v| (VERSION, v)).into_iter().chain(method.map(|m| ("Mcp-Method", m))).collect();
        assert_eq!(with_meta(&client, meta(), &headers).await, expected, "{headers:?}");
    }
    let twice = [(VERSION, MODERN), ("Mcp-Method", "tools/list"), ("mcp-method", "tools/list")];
    assert_eq!(with_meta(&client, meta(), &twice).await, (400, -32020), "a header twice");
    let loose = [(VERSION, MODERN), ("MCP-METHOD", "  tools/list  ")];
    assert_eq!(with_meta(&client, meta(), &loose).await, (200, 0), "case of names and spaces around");
}

#[tokio::test]
async fn broken_envelope_is_named() {
    let scene = Scene::new().await;
    let client = scene.gateway.client();
    for meta in [
        json!({ CLAIM: MODERN }),
        json!({ CLAIM: 7, "io.modelcontextprotocol/clientCapabilities": {} }),
        json!({ CLAIM: MODERN, "io.modelcontextprotocol/clientCapabilities": "all" }),
        json!({ "io.modelcontextprotocol/clientCapabilities": {} }),
        json!({}),
    ] {
        assert_eq!(with_meta(&client, meta.clone(), &AGREED).await, (400, -32602), "{meta}");
    }
    let answer = client.post(&list(json!({})), &AGREED).await;
    let error = answer.json().await;
    assert_eq!(error["id"], 5, "the id is echoed");
    assert!(error["error"]["message"].as_str().unwrap().contains(CLAIM), "{error}");
}

#[tokio::test]
async fn unsupported_revision_lists_known() {
    let scene = Scene::new().await;
    let client = scene.gateway.client();
    let future = json!({ CLAIM: "v999.0.0", "io.modelcontextprotocol/clientCapabilities": {} });
    let headers = [(VERSION, "v999.0.0"), ("Mcp-Method", "tools/list")];
    let answer = client.post(&list(json!({ "_meta": future.clone() })), &headers).await;
    assert_eq!(answer.status, 400);
    let answer = answer.json().await;
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(5), &json!(-32022)));
    assert_eq!(answer["error"]["data"], json!({ "supported": [MODERN], "requested": "v999.0.0" }));
    // A disagreement is reported first.
    assert_eq!(with_meta(&client, future, &AGREED).await, (400, -32020));
    let legacy = json!({ CLAIM: "2025-11-25", "io.modelcontextprotocol/clientCapabilities": {} });
    let headers = [(VERSION, "2025-11-25"), ("Mcp-Method", "tools/list")];
    assert_eq!(with_meta(&client, legacy, &headers).await, (400, -32022));
}

#[tokio::test]
async fn name_header_is_plain_or_base64() {
    let scene = Scene::new().await;
    scene.agent.on_send(|_| crate::support::Reply::events([crate::support::payload::v1::message("la")]));
    let client = scene.gateway.client();
    let params = client.with_meta(json!({ "name": "bard_sing", "arguments": { "text": "x" } }));
    let body = client.request("tools/call", &params);
    for (name, expected) in [
        (Some("bard_sing"), (200, 0)),
        (Some("  bard_sing "), (200, 0)),
        (Some("=?base64?YmFyZF9zaW5n?="), (200, 0)),
        (None, (400, -32020)),
        (Some("bard_dance"), (400, -32020)),
        (Some("BARD_SING"), (400, -32020)),
        (Some("=?base64?***?="), (400, -32020)),
    ] {
        let mut headers = vec![(VERSION, MODERN), ("Mcp-Method", "tools/call")];
        headers.extend(name.map(|name| ("Mcp-Name", name)));
        assert_eq!(outcome(client.post(&body, &headers).await).await, expected, "{name:?}");
    }
}

#[tokio::test]
async fn unknown_method_fails_as_in_its_era() {
    let scene = Scene::new().await;
    let (client, session) = (scene.gateway.client(), scene.session().await);
    for method in [
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "unknown/method",
    ] {
        assert_eq!(outcome(client.modern(method, json!({})).await).await, (404, -32601), "{method}");
    }
    for method in ["server/discover", "subscriptions/listen", "unknown/method", "Tools/List", ""] {
        assert_eq!(outcome(session.call(method, json!({})).await).await, (200, -32601), "{method:?}");
    }
    assert_eq!(
        outcome(client.post(&client.request("server/discover", &json!({})), &[]).await).await,
        (200, -32601)
    );
}

#[tokio::test]
async fn first_call_by_curl_needs_no_session() {
    let scene = Scene::new().await;
    scene.agent.on_send(|_| crate::support::Reply::events([crate::support::payload::v1::message("la")]));
    let client = scene.gateway.client();
    let body = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "bard_sing", "arguments": { "text": "x" } },
    });
    for version in [None, Some("2025-11-25"), Some("2025-06-18"), Some("2024-10-07"), Some("0.1")] {
        let headers: Vec<_> = version.map(|version| (VERSION, version)).into_iter().collect();
        let answer = client.post(&body, &headers).await;
        assert_eq!(answer.status, 200, "{version:?}");
        let result = answer.result().await;
        assert_eq!(result["content"][0]["text"], "la");
        assert_eq!(result.get("structuredContent").or(result.get("resultType")), None, "2025-03-26 shapes");
    }
    let answer = client.post(&body, &[(VERSION, "2031-01-01")]).await;
    assert_eq!(answer.status, 400, "a revision from the future");
}

#[tokio::test]
async fn session_decides_revision_over_header() {
    let scene = Scene::new().await;
    let mut session = scene.gateway.client().legacy_version("2025-06-18").await;
    for version in ["2025-11-25", "2025-03-26", "2024-01-01"] {
        session.version = version.to_owned();
        let list = session.call("tools/list", json!({})).await.result().await;
        assert!(list["tools"][0]["title"].is_string(), "{version}: {list}");
    }
}

#[tokio::test]
async fn notifications_are_accepted_silently() {
    let scene = Scene::new().await;
    let (client, session) = (scene.gateway.client(), scene.session().await);
    session.notify("notifications/initialized", json!({})).await;
    session.notify("notifications/made/up", json!({})).await;
    let bare = session.post(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
    assert_eq!((bare.status, bare.text().await.as_str()), (202, ""));
    let cancelled =
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 } });
    // Real clients send it so: the version header and nothing else of the modern era.
    let modern = client.post(&cancelled, &[(VERSION, MODERN)]).await;
    assert_eq!((modern.status, modern.text().await.as_str()), (202, ""));
    let claiming =
        json!({ "jsonrpc": "2.0", "method": "notifications/made/up", "params": client.with_meta(json!({})) });
    assert_eq!(client.post(&claiming, &[(VERSION, MODERN)]).await.status, 202);
}

#[tokio::test]
async fn unrequested_answers_need_session() {
    let scene = Scene::new().await;
    let answer = json!({ "jsonrpc": "2.0", "id": 3, "result": {} });
    assert_eq!(scene.gateway.client().post(&answer, &[]).await.status, 400);
    assert_eq!(scene.gateway.client().post(&answer, &[(VERSION, MODERN)]).await.status, 400);
    scene.session().await.respond(&json!(3), json!({})).await;
}

#[tokio::test]
async fn initialize_is_never_modern() {
    let scene = Scene::new().await;
    let client = scene.gateway.client();
    let params = json!({ "protocolVersion": MODERN, "capabilities": {}, "clientInfo": { "name": "c", "version": "1" } });
    let body = client.request("initialize", &params);
    assert_eq!(client.post(&body, &[(VERSION, MODERN)]).await.status, 400);
    let claiming = client.request("initialize", &client.with_meta(params));
    let headers = [(VERSION, MODERN), ("Mcp-Method", "initialize")];
    assert_eq!(outcome(client.post(&claiming, &headers).await).await, (404, -32601));
}
