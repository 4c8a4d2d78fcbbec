//! `tools/call` to the end: the message to the agent, and the result for the client.

use serde_json::{Value, json};

use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, Scene, TOOL, complaint, words};
use crate::support::payload::{v0_3, v1};
use crate::support::{Card, Reply, Request};

fn kinds(result: &Value) -> Vec<&str> {
    result["content"].as_array().unwrap().iter().map(|block| block["type"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn reply_is_text_in_both_eras() {
    let scene = Scene::new().await;
    scene.agent.on_send(|request| Reply::events([v1::message(&format!("la {}", request.text()))]));
    let modern = scene.said("lo").await;
    assert_eq!((words(&modern), &modern["resultType"]), ("la lo", &json!("complete")));
    let session = scene.session().await;
    let legacy = session.call_tool(TOOL, json!({ "text": "li" })).await.result().await;
    assert_eq!((words(&legacy), legacy.get("resultType")), ("la li", None));
    assert_eq!(legacy["isError"], false);
}

#[tokio::test]
async fn streaming_1_0_agent_gets_this() {
    let card = Card::v1().skill("sing").set("defaultOutputModes", json!(["text/plain", "image/png"]));
    let mut card = card;
    card.json["supportedInterfaces"][0]["tenant"] = "acme".into();
    let own = "headers: { X-Choir: north }\nextensions: [\"https://x.example/a\", \"https://x.example/b\"]";
    let scene = Scene::of(card, own, "").await;
    scene.agent.on_send(|_| Reply::events([v1::message("ok")]));
    let meta = json!({ "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "tracestate": "a=b" });
    let arguments = json!({
        "text": "hi", "data": { "n": [1, null] },
        "files": [
            { "bytes": "QUJD", "mediaType": "image/png", "name": "a.png" },
            { "url": "https://x.example/f", "mediaType": "text/html" },
        ],
    });
    scene.call_with(arguments, meta.clone()).await.result().await;
    let request = scene.agent.calls("SendStreamingMessage").remove(0);
    assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/"));
    assert_eq!(request.header("a2a-version"), Some("1.0"));
    assert_eq!(request.header("content-type"), Some("application/json"));
    assert!(request.header("accept").unwrap().contains("text/event-stream"));
    let extensions: Vec<_> = request.header("a2a-extensions").unwrap().split(',').map(str::trim).collect();
    assert_eq!(extensions, ["https://x.example/a", "https://x.example/b"]);
    assert_eq!(request.header("x-choir"), Some("north"));
    let mut params = request.params();
    let id = params["message"]["messageId"].take();
    assert_eq!(id.as_str().map(str::len), Some(36), "a UUID: {id}");
    let expected = json!({
        "tenant": "acme",
        "configuration": { "acceptedOutputModes": ["text/plain", "image/png"] },
        "message": {
            "messageId": null, "role": "ROLE_USER",
            "parts": [
                { "text": "hi" },
                { "data": { "n": [1, null] } },
                { "raw": "QUJD", "mediaType": "image/png", "filename": "a.png" },
                { "url": "https://x.example/f", "mediaType": "text/html" },
            ],
            "metadata": { "skillId": "sing", "traceparent": meta["traceparent"], "tracestate": "a=b" },
        },
    });
    assert_eq!(params, expected);
}

#[tokio::test]
async fn plain_0_3_agent_gets_this() {
    let own = "extensions: [\"https://x.example/a\"]";
    let scene = Scene::of(Card::v0_3().streaming(false).skill("sing"), own, "").await;
    scene.agent.on_send(|_| Reply::result(v0_3::message("ok")));
    let arguments = json!({
        "text": "hi", "data": { "n": 1 },
        "files": [{ "bytes": "QUJD", "mediaType": "image/png", "name": "a.png" }, { "url": "https://x.example/f" }],
    });
    assert_eq!(words(&scene.call(arguments).await.result().await), "ok");
    let request = scene.agent.calls("message/send").remove(0);
    assert!(matches!(request.header("a2a-version"), None | Some("0.3")));
    assert_eq!(request.header("x-a2a-extensions"), Some("https://x.example/a"));
    let params = request.params();
    let message = &params["message"];
    assert_eq!((&message["kind"], &message["role"]), (&json!("message"), &json!("user")));
    assert_eq!(message["messageId"].as_str().map(str::len), Some(36));
    assert_eq!(message["metadata"], json!({ "skillId": "sing" }));
    let parts = json!([
        { "kind": "text", "text": "hi" },
        { "kind": "data", "data": { "n": 1 } },
        { "kind": "file", "file": { "bytes": "QUJD", "mimeType": "image/png", "name": "a.png" } },
        { "kind": "file", "file": { "uri": "https://x.example/f" } },
    ]);
    assert_eq!(message["parts"], parts);
    let configuration = json!({ "acceptedOutputModes": ["text/plain"], "blocking": true });
    assert_eq!(params["configuration"], configuration);
    assert_eq!(params.get("tenant"), None);
}

#[tokio::test]
async fn each_agent_is_called_by_its_method() {
    for (card, method) in [
        (Card::v1(), "SendStreamingMessage"),
        (Card::v1().streaming(false), "SendMessage"),
        (Card::v0_3(), "message/stream"),
        (Card::v0_3().streaming(false), "message/send"),
    ] {
        let scene = Scene::of(card.skill("sing"), "", "").await;
        scene.agent.on_send(answer_any);
        assert_eq!(words(&scene.said("hi").await), "done", "{method}");
        let seen = scene.agent.wait_for_call(method).await;
        assert_eq!(seen.text(), "hi");
    }
}

/// A finished task in the form that was asked for.
fn answer_any(request: &Request) -> Reply {
    let is_new = request.rpc_method().contains("Message");
    let result = if is_new { v1::completed("t", "c", "done") } else { v0_3::completed("t", "c", "done") };
    if request.wants_stream() { Reply::events([result]) } else { Reply::result(result) }
}

#[tokio::test]
async fn streaming_can_be_switched_off() {
    let scene = Scene::of(Card::v1().skill("sing"), "streaming: false", "").await;
    scene.agent.on_send(answer_any);
    assert_eq!(words(&scene.said("hi").await), "done");
    assert_eq!(scene.agent.calls("SendMessage").len(), 1);
}

#[tokio::test]
async fn operator_overrides_version() {
    let own = "protocol: \"0.3\"\noutput_modes: [image/svg+xml]";
    let scene = Scene::of(Card::v0_3().remove("protocolVersion").skill("sing"), own, "").await;
    scene.agent.on_send(answer_any);
    assert_eq!(words(&scene.said("hi").await), "done");
    let request = scene.agent.wait_for_call("message/stream").await;
    assert_eq!(request.params()["configuration"]["acceptedOutputModes"], json!(["image/svg+xml"]));
}

#[tokio::test]
async fn every_kind_of_part_becomes_its_block() {
    let scene = Scene::new().await;
    scene.agent.on_send(|_| {
        let parts = json!([
            { "text": "words" },
            { "data": { "n": 12_345_678_901_234_567_890_u64 } },
            { "raw": "QUJD", "mediaType": "image/png" },
            { "raw": "QUJD", "mediaType": "audio/wav" },
            { "raw": "QUJD", "mediaType": "application/pdf", "filename": "a b.pdf" },
            { "url": "https://x.example/y", "filename": "y", "mediaType": "text/html" },
        ]);
        Reply::events([json!({ "message": { "messageId": "m", "role": "ROLE_AGENT", "parts": parts } })])
    });
    let result = scene.said("all").await;
    assert_eq!(kinds(&result), ["text", "text", "image", "audio", "resource", "text"]);
    let blocks = &result["content"];
    assert_eq!(blocks[1]["text"], r#"{"n":12345678901234567890}"#);
    let structured = &result["structuredContent"];
    assert_eq!(structured["data"], json!([{ "n": 12_345_678_901_234_567_890_u64 }]));
    assert_eq!(structured["text"], "words\ny: https://x.example/y");
    let file = |name: &str, media_type: &str| json!({ "name": name, "mimeType": media_type });
    assert_eq!(structured["files"][2], file("a b.pdf", "application/pdf"));
    assert_eq!(structured["files"][3]["url"], "https://x.example/y");
    assert_eq!(structured["state"], "completed");
    assert_eq!(blocks[2], json!({ "type": "image", "data": "QUJD", "mimeType": "image/png" }));
    assert_eq!(blocks[4]["resource"]["blob"], "QUJD");
    assert_eq!(blocks[5]["text"], "y: https://x.example/y");
    // An older client gets no data beside the words.
    let old = scene.gateway.client().legacy_version("2025-03-26").await;
    let result = old.call_tool(TOOL, json!({ "text": "all" })).await.result().await;
    assert_eq!(kinds(&result), ["text", "text", "image", "audio", "resource", "text"]);
    assert_eq!(result.get("structuredContent"), None);
}

#[tokio::test]
async fn modern_clients_get_any_data() {
    let scene = Scene::new().await;
    scene.agent.on_send(|_| {
        let parts = json!([{ "data": [1, 2] }]);
        Reply::events([json!({ "message": { "messageId": "m", "role": "ROLE_AGENT", "parts": parts } })])
    });
    assert_eq!(scene.said("x").await["structuredContent"], json!([1, 2]));
    let legacy = scene.session().await.call_tool(TOOL, json!({ "text": "x" })).await.result().await;
    assert_eq!(legacy.get("structuredContent"), None);
    assert_eq!(words(&legacy), "[1,2]");
}

#[tokio::test]
async fn artifact_chunks_join_in_any_order() {
    let scene = Scene::new().await;
    let chunk = |artifact: &str, text: &str, append: bool| {
        let artifact = json!({ "artifactId": artifact, "parts": [{ "text": text }] });
        let update =
            json!({ "taskId": RAW_TASK, "contextId": RAW_CONTEXT, "artifact": artifact, "append": append });
        json!({ "artifactUpdate": update })
    };
    scene.agent.on_send(move |_| {
        Reply::events([
            v1::task(RAW_TASK, RAW_CONTEXT, "working"),
            chunk("a", "one ", false),
            chunk("b", "draft", false),
            chunk("a", "two ", true),
            chunk("b", "final", false),
            chunk("a", "three", true),
            chunk("c", "made by appending", true),
            v1::status_update(RAW_TASK, RAW_CONTEXT, "completed", Some("that is all")),
        ])
    });
    let result = scene.said("x").await;
    let texts: Vec<_> = result["content"].as_array().unwrap().iter().map(|block| &block["text"]).collect();
    assert_eq!(texts[..4], ["one two three", "final", "made by appending", "that is all"], "{result}");
    assert!(texts[4].as_str().unwrap().starts_with("To continue this conversation, pass contextId"));
    assert_eq!(result["content"][4]["annotations"]["audience"], json!(["assistant"]));
    assert!(!result.to_string().contains("raw-"), "{result}");
}

#[tokio::test]
async fn failures_keep_words_of_agent() {
    let scene = Scene::new().await;
    for (state, word) in [("failed", "failed"), ("rejected", "rejected"), ("canceled", "canceled")] {
        scene.agent.on_send(move |_| {
            let end = v1::status_update(RAW_TASK, RAW_CONTEXT, state, Some("no voice today"));
            Reply::events([v1::task(RAW_TASK, RAW_CONTEXT, "working"), end])
        });
        let result = scene.said("x").await;
        let told = complaint(&result);
        assert!(told.contains(word) && told.contains("no voice today"), "{told}");
    }
}

#[tokio::test]
async fn refusal_is_told_without_its_code() {
    let scene = Scene::new().await;
    for code in [-32001, -32004, -32602, -32603] {
        scene.agent.on_send(move |_| Reply::error(code, "I sing no opera"));
        let result = scene.said("x").await;
        assert!(complaint(&result).starts_with("Agent \"bard\" did not complete the call: "), "{result}");
        assert!(!result.to_string().contains(&code.to_string()), "{result}");
    }
    assert!(complaint(&scene.said("x").await).contains("I sing no opera"));
}

#[tokio::test]
async fn wrong_arguments_are_told_to_model() {
    let scene = Scene::new().await;
    for (arguments, named) in [
        (json!({}), "text"),
        (json!({ "text": 7 }), "text"),
        (json!({ "text": "x", "txet": "y" }), "txet"),
        (json!({ "text": "x", "files": [{ "name": "a" }] }), "/files/0"),
        (json!({ "text": "x", "files": [{ "url": "u:v", "bytes": "QQ==" }] }), "/files/0"),
        (json!({ "text": "x", "taskId": "made-up" }), "taskId"),
        (json!({ "text": "x", "contextId": "made-up" }), "contextId"),
        (json!({ "taskId": "made-up" }), "taskId"),
    ] {
        let result = scene.call(arguments.clone()).await.result().await;
        assert!(complaint(&result).contains(named), "{arguments}: {result}");
    }
    let wrong = scene.call(json!({ "text": 7 })).await.result().await;
    assert!(words(&wrong).starts_with("Invalid arguments: "), "{wrong}");
    assert_eq!(scene.agent.calls("SendStreamingMessage").len(), 0, "the agent was bothered");
}

#[tokio::test]
async fn own_schema_sends_arguments_as_data() {
    let schema = "{type: object, properties: {city: {type: string, minLength: 1, pattern: \"^[A-Z]\"}, days: {type: integer, \
                  maximum: 14}}, required: [city], additionalProperties: false}";
    let own = format!("skills:\n  sing:\n    tool_name: get_forecast\n    input_schema: {schema}");
    let scene = Scene::of(Card::v1().skill("sing"), &own, "").await;
    scene.agent.on_send(|_| Reply::events([v1::message("sunny")]));
    let client = scene.gateway.client();
    let call = async |arguments: Value| {
        let params = json!({ "name": "get_forecast", "arguments": arguments });
        client.modern("tools/call", params).await.result().await
    };
    let good = call(json!({ "city": "Oslo", "days": 3 })).await;
    assert_eq!(words(&good), "sunny");
    let message = scene.agent.calls("SendStreamingMessage")[0].message();
    assert_eq!(message["parts"], json!([{ "data": { "city": "Oslo", "days": 3 } }]));
    for (arguments, named) in [
        (json!({}), "city"),
        (json!({ "city": "" }), "/city"),
        (json!({ "city": "oslo" }), "/city"),
        (json!({ "city": "Oslo", "days": 15 }), "/days"),
        (json!({ "city": "Oslo", "day": 1 }), "day"),
    ] {
        let result = call(arguments.clone()).await;
        let told = complaint(&result);
        assert!(told.starts_with("Invalid arguments: ") && told.contains(named), "{arguments}: {told}");
    }
    assert_eq!(scene.agent.calls("SendStreamingMessage").len(), 1);
}

#[tokio::test]
async fn answer_decides_its_form_not_question() {
    let scene = Scene::new().await;
    scene.agent.on_send(|_| Reply::result(v1::completed("t", "c", "one json")));
    assert_eq!(words(&scene.said("x").await), "one json");
    let plain = Scene::of(Card::v1().streaming(false).skill("sing"), "", "").await;
    plain.agent.on_send(|_| Reply::events([v1::completed("t", "c", "one event")]));
    assert_eq!(words(&plain.said("x").await), "one event");
}

#[tokio::test]
async fn unfinished_answer_is_polled() {
    let scene = Scene::of(Card::v1().streaming(false).skill("sing"), "", "").await;
    scene.agent.on_send(|_| Reply::result(v1::task(RAW_TASK, RAW_CONTEXT, "submitted")));
    scene.agent.on_get(crate::support::in_order([
        Reply::result(v1::bare_task(RAW_TASK, RAW_CONTEXT, "working")),
        Reply::result(v1::bare_completed(RAW_TASK, RAW_CONTEXT, "at last")),
    ]));
    assert_eq!(words(&scene.said("x").await), "at last");
    assert_eq!(scene.agent.calls("SendMessage").len(), 1, "a message is never sent twice");
    assert_eq!(scene.agent.calls("GetTask")[0].params()["id"], RAW_TASK);
}

#[tokio::test]
async fn null_members_are_absent() {
    let scene = Scene::new().await;
    scene.agent.on_send(|_| Reply::events([v1::message("la")]));
    let arguments = json!({ "text": "x", "contextId": null, "taskId": null });
    assert_eq!(words(&scene.call(arguments).await.result().await), "la");
    assert_eq!(scene.agent.calls("SendStreamingMessage")[0].message()["parts"], json!([{ "text": "x" }]));
}

/// TypeScript SDK CVE-2026-0621: an expression that a peer could make the server think about for
/// ever.
#[tokio::test]
async fn pattern_cannot_take_for_ever() {
    let schema = "{type: object, properties: {a: {type: string, pattern: \"^(a+)+$\"}}}";
    let own = format!("skills:\n  sing:\n    input_schema: {schema}");
    let scene = Scene::of(Card::v1().skill("sing"), &own, "").await;
    let arguments = json!({ "a": format!("{}!", "a".repeat(100_000)) });
    let result = scene.call(arguments).await.result().await;
    assert!(complaint(&result).contains("/a"), "{result}");
}
