//! Bad input: a clear error, the id where it can be read, and nothing lost for the next request.

use serde_json::{Value, json};

use crate::kit::scene::{Scene, TOOL, words};
use crate::support::payload::v1;
use crate::support::{Answer, Reply};

const JSON: (&str, &str) = ("Content-Type", "application/json");
const BOTH: (&str, &str) = ("Accept", "application/json, text/event-stream");

async fn post(scene: &Scene, body: impl Into<Vec<u8>>) -> Answer {
    scene.gateway.client().send("POST", &[JSON, BOTH], body.into()).await
}

/// Status, id and code of a refusal; fails on a result.
async fn refusal(answer: Answer) -> (u16, Value, i64, String) {
    let status = answer.status;
    let response = answer.json().await;
    assert_eq!(response["jsonrpc"], "2.0", "{response}");
    let code = response["error"]["code"].as_i64().unwrap_or_else(|| panic!("no refusal: {response}"));
    (status, response["id"].clone(), code, response["error"]["message"].as_str().unwrap().to_owned())
}

/// A ping with this JSON as params.
fn ping_with(json: &str) -> Vec<u8> {
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"x":{json}}}}}"#).into_bytes()
}

#[tokio::test]
async fn non_json_is_parse_error() {
    let scene = Scene::new().await;
    let deep = |open: &str, close: &str| ping_with(&format!("{}{}", open.repeat(1000), close.repeat(1000)));
    for body in [
        b"".to_vec(),
        b"{".to_vec(),
        b"not json".to_vec(),
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"} trailing".to_vec(),
        b"{'jsonrpc':'2.0'}".to_vec(),
        b"\xEF\xBB\xBF{".to_vec(),
        ping_with("\"\u{1}\""),
        ping_with("01"),
        ping_with("NaN"),
        ping_with("\"half\\ud800\""),
        ping_with("\"\\udc00half\""),
        ping_with("\"\\ud800\\u0041\""),
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":{\"x\":\"\xFF\xFE\"}}".to_vec(),
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xC0\xAF\"}".to_vec(),
        deep("[", "]"),
        deep("{\"a\":", "}").iter().map(|byte| if *byte == b'}' { b'}' } else { *byte }).collect(),
    ] {
        let shown = String::from_utf8_lossy(&body[..body.len().min(80)]).into_owned();
        let (status, id, code, _) = refusal(post(&scene, body).await).await;
        assert_eq!((status, code), (400, -32700), "{shown}");
        assert_eq!(id, Value::Null, "{shown}");
    }
    // A pair of surrogates is a character, and so is what JSON escapes otherwise.
    assert_eq!(post(&scene, ping_with("\"\\ud83c\\udf0a \\\\ud800\"")).await.result().await, json!({}));
}

#[tokio::test]
async fn non_message_is_told_missing_members() {
    let scene = Scene::new().await;
    for (body, id, named) in [
        (r#"{"id":1,"method":"tools/call"}"#, json!(1), "jsonrpc"),
        (r#"{"jsonrpc":"1.0","id":"a","method":"ping"}"#, json!("a"), "jsonrpc"),
        (r#"{"jsonrpc":2.0,"id":1,"method":"ping"}"#, json!(1), ""),
        (r#"{"jsonrpc":"2.0","id":0}"#, json!(0), "method"),
        (r#"{"jsonrpc":"2.0","id":"","method":7}"#, json!(""), ""),
        (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, json!(null), "id"),
        (r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, json!(null), ""),
        (r#"{"jsonrpc":"2.0","id":true,"method":"ping"}"#, json!(null), ""),
        (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#, json!(null), "id"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/list"}"#, json!(1), "method"),
        (r#"{"jsonrpc":"2.0","id":1,"METHOD":"ping"}"#, json!(1), "method"),
        (r#"{"JSONRPC":"2.0","id":1,"method":"ping"}"#, json!(1), "jsonrpc"),
        ("7", json!(null), ""),
        ("\"ping\"", json!(null), ""),
        ("null", json!(null), ""),
        ("[]", json!(null), ""),
    ] {
        let (status, echoed, code, message) = refusal(post(&scene, body).await).await;
        assert_eq!((status, code), (400, -32600), "{body}");
        assert_eq!(echoed, id, "{body}");
        assert!(message.contains(named), "{body}: {message}");
    }
}

#[tokio::test]
async fn params_of_wrong_type_are_bad_params() {
    let scene = Scene::new().await;
    for (method, params) in [
        ("tools/list", json!([])),
        ("tools/list", json!("all")),
        ("tools/list", json!({ "cursor": 7 })),
        ("tools/call", json!({})),
        ("tools/call", json!({ "name": 7 })),
        ("tools/call", json!({ "name": null, "arguments": {} })),
        ("resources/read", json!({})),
        ("resources/read", json!({ "uri": ["a2a-agent://bard"] })),
        ("logging/setLevel", json!({})),
        ("tools/list", json!({ "_meta": [] })),
    ] {
        let body = json!({ "jsonrpc": "2.0", "id": 9, "method": method, "params": params });
        let (status, id, code, _) = refusal(post(&scene, body.to_string()).await).await;
        assert_eq!((status, &id, code), (200, &json!(9), -32602), "{body}");
    }
}

#[tokio::test]
async fn unknown_tool_is_named_in_error() {
    let scene = Scene::new().await;
    for name in ["nothing", "sing", "BARD_SING", "", "bard_sing ", "a\u{202e}b"] {
        let params = json!({ "name": name, "arguments": { "text": "x" } });
        let modern = scene.gateway.client().modern("tools/call", params.clone()).await;
        let (status, _, code, message) = refusal(modern).await;
        assert_eq!((status, code), (200, -32602), "{name:?}");
        assert!(message.contains(name), "{message}");
        let legacy = scene.session().await.call("tools/call", params).await;
        assert_eq!((legacy.status, legacy.error_code().await), (200, -32602), "{name:?}");
    }
}

/// Envoy AI Gateway GHSA-4gph-2hhr-5mwg, Go SDK CVE-2026-27896: keys that differ in case alone were
/// one key, and the last one won.
#[tokio::test]
async fn duplicate_keys_never_change_meaning() {
    let scene = Scene::new().await;
    scene.agent.on_send(|request| Reply::events([v1::message(&request.text())]));
    let call =
        |params: &str| format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#);
    let folded = format!(
        r#"{{"name":"{TOOL}","NAME":"other","arguments":{{"text":"mine"}},"Arguments":{{"text":"theirs"}}}}"#
    );
    assert_eq!(words(&post(&scene, call(&folded)).await.result().await), "mine");
    let twice = format!(r#"{{"name":"{TOOL}","name":"other","arguments":{{"text":"x"}}}}"#);
    let (_, _, code, _) = refusal(post(&scene, call(&twice)).await).await;
    assert!(code == -32602 || code == -32600, "{code}");
    let inside = format!(r#"{{"name":"{TOOL}","arguments":{{"text":"a","text":"b"}}}}"#);
    let result = post(&scene, call(&inside)).await.result().await;
    assert_eq!(result["isError"], true, "{result}");
    let folded = format!(r#"{{"name":"{TOOL}","arguments":{{"Text":"a"}}}}"#);
    assert_eq!(post(&scene, call(&folded)).await.result().await["isError"], true);
    assert_eq!(scene.agent.calls("SendStreamingMessage").len(), 1);
}

#[tokio::test]
async fn body_over_limit_is_413() {
    let scene = Scene::new().await;
    let limit = 4 << 20;
    let frame = ping_with("\"\"").len();
    let at_limit = ping_with(&format!("\"{}\"", "x".repeat(limit - frame)));
    assert_eq!(at_limit.len(), limit);
    assert_eq!(post(&scene, at_limit).await.result().await, json!({}));
    let over = ping_with(&format!("\"{}\"", "x".repeat(limit - frame + 1)));
    let (status, _, code, message) = refusal(post(&scene, over).await).await;
    assert_eq!((status, code), (413, -32600));
    assert!(message.contains("4194304"), "{message}");
    assert_eq!(post(&scene, ping_with("1")).await.status, 200, "nothing is lost for the next");
    let small = Scene::tuned("limits: { body: 2KiB }").await;
    assert_eq!(post(&small, ping_with(&format!("\"{}\"", "x".repeat(2048)))).await.status, 413);
}

#[tokio::test]
async fn nesting_is_accepted_up_to_limit() {
    let scene = Scene::tuned("limits: { depth: 20 }").await;
    // The message and its params are two levels.
    let nested = |levels: usize| ping_with(&format!("{}{}", "[".repeat(levels), "]".repeat(levels)));
    assert_eq!(post(&scene, nested(18)).await.status, 200);
    assert_eq!(post(&scene, nested(19)).await.status, 400);
}

#[tokio::test]
async fn accept_is_never_reason_to_refuse() {
    let scene = Scene::new().await;
    scene.agent.on_send(|_| Reply::events([v1::message("la")]));
    let client = scene.gateway.client();
    let body = client.request("tools/call", &json!({ "name": TOOL, "arguments": { "text": "x" } }));
    for accept in
        ["application/json", "*/*", "text/event-stream, application/json", "image/png", "application/*;q=0.1"]
    {
        let answer = client.post(&body, &[("Accept", accept)]).await;
        assert_eq!(answer.status, 200, "{accept}");
        assert_eq!(words(&answer.result().await), "la", "{accept}");
    }
    let missing = client.send("POST", &[JSON], body.to_string().into_bytes()).await;
    assert_eq!(words(&missing.result().await), "la");
    let stream = client.post(&body, &[("Accept", "text/event-stream")]).await;
    assert_eq!((stream.status, stream.is_stream()), (200, true), "only a stream is taken");
    assert_eq!(words(&stream.result().await), "la");
}

#[tokio::test]
async fn optional_arguments_may_be_missing() {
    let own = "skills:\n  sing:\n    input_schema: {type: object, properties: {}}";
    let scene = Scene::of(crate::support::Card::v1().skill("sing"), own, "").await;
    scene.agent.on_send(|_| Reply::events([v1::message("la")]));
    for params in [
        json!({ "name": TOOL }),
        json!({ "name": TOOL, "arguments": null }),
        json!({ "name": TOOL, "arguments": {} }),
    ] {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        assert_eq!(words(&post(&scene, body.to_string()).await.result().await), "la", "{params}");
    }
    for call in scene.agent.calls("SendStreamingMessage") {
        assert_eq!(call.message()["parts"], json!([{ "data": {} }]), "a message has a part at least");
    }
}

#[tokio::test]
async fn cut_or_endless_body_is_not_awaited() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let scene = Scene::tuned("limits: { body_read: 1s }").await;
    let mut socket = tokio::net::TcpStream::connect(scene.gateway.address()).await.unwrap();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{{",
        scene.gateway.address()
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    let mut seen = Vec::new();
    let read = crate::support::in_time("a refusal", socket.read_to_end(&mut seen)).await;
    assert!(read.is_ok() && seen.starts_with(b"HTTP/1.1 408"), "{}", String::from_utf8_lossy(&seen));
    assert_eq!(post(&scene, ping_with("1")).await.status, 200);
}

/// The client is still writing when the refusal comes; it must be able to read it.
#[tokio::test]
async fn large_body_refused_early_is_told_why() {
    let scene = Scene::tuned("limits: { body: 64KiB }").await;
    let body = ping_with(&format!("\"{}\"", "x".repeat(8 << 20)));
    for (path, headers, expected) in [
        ("/mcp", vec![JSON, BOTH], 413),
        ("/elsewhere", vec![JSON], 404),
        ("/mcp", vec![JSON, ("Origin", "http://evil.example")], 403),
    ] {
        for _ in 0..5 {
            let client = scene.gateway.client().at(path);
            let answer = client.try_send("POST", &headers, body.clone()).await;
            let status = answer.map(|answer| answer.status).map_err(|error| error.to_string());
            assert_eq!(status, Ok(expected), "{path} {headers:?}");
        }
    }
}
