//! The A2A endpoint without authentication: messages pass unchanged in both directions, and nothing
//! else passes.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::kit::a2a_scene::{Stage, call, saying};
use crate::support::payload::{v0_3, v1};
use crate::support::{Card, Reply, Signal, in_time};

#[tokio::test]
async fn request_passes_byte_for_byte() {
    let stage = Stage::new().await;
    let answer =
        r#"{ "id" : 1.0, "jsonrpc":"2.0", "result": {"task": {"id":"t-1", "x":1e2 }} , "more": null}"#;
    stage.agent.on("SendMessage", move |_| {
        Reply::bytes_of("application/json", answer.as_bytes())
            .header("A2A-Extensions", "urn:x")
            .header("Set-Cookie", "a=b")
    });
    let body = r#"{ "method":"SendMessage", "id":1.0,  "jsonrpc" : "2.0","params":{"message":{"messageId":"m","parts":[{"data":9007199254740993}]}}}"#;
    let headers = [("Content-Type", "application/json"), ("A2A-Version", "1.0")];
    let came = stage.client().send("POST", &headers, body.as_bytes().to_vec()).await;
    assert_eq!((came.status, came.header("a2a-extensions")), (200, Some("urn:x")));
    assert_eq!(came.header("set-cookie"), None, "what is not on the list stays behind");
    assert_eq!(came.text().await, answer);
    let asked = stage.agent.wait_for_call("SendMessage").await;
    assert_eq!(String::from_utf8(asked.body.clone()).unwrap(), body);
    assert_eq!(asked.header("a2a-version"), Some("1.0"));
}

#[tokio::test]
async fn agent_extensions_reach_every_version() {
    let stage = Stage::new().await;
    stage.agent.on("SendMessage", |_| {
        let said = Reply::result(v1::completed("t-1", "c-1", "la")).header("X-A2A-Extensions", "urn:old");
        said.header("A2A-Extensions", "urn:x").header("A2A-Extensions", "urn:y")
    });
    let passed = call(&stage.client(), "SendMessage", saying("x")).await;
    assert_eq!(passed.header_values("a2a-extensions"), ["urn:x", "urn:y"]);
    assert_eq!(passed.header_values("x-a2a-extensions"), ["urn:old"]);
    let parts = json!([{ "kind": "text", "text": "x" }]);
    let message = json!({ "kind": "message", "messageId": "m", "role": "user", "parts": parts });
    let request =
        json!({ "jsonrpc": "2.0", "id": 7, "method": "message/send", "params": { "message": message } });
    let translated = stage.client().post(&request, &[]).await;
    assert_eq!(translated.header_values("x-a2a-extensions"), ["urn:x", "urn:y"]);
    assert_eq!(translated.header("a2a-extensions"), None);
}

#[tokio::test]
async fn stream_passes_byte_for_byte() {
    let stage = Stage::new().await;
    let (first, second) = (Signal::new(), Signal::new());
    let (one, two) = (first.clone(), second.clone());
    let pieces: [&[u8]; 5] = [
        b"data: {\"id\":\"call-1\",\"result\": {\"task\":{\"id\":\"t-1\"}}}\r\n\r\n",
        b": ping - now\r\n\r\nevent: x\r\nda",
        b"ta: {\"half\":\r\ndata: 1}\r\n",
        b"\r\n",
        b"data: last, and no end",
    ];
    stage.agent.on_stream(move |_| {
        let begun = Reply::stream().bytes(pieces[0]).wait(&one).bytes(pieces[1]);
        begun.bytes(pieces[2]).bytes(pieces[3]).wait(&two).bytes(pieces[4])
    });
    let mut answer = call(&stage.client(), "SendStreamingMessage", saying("x")).await;
    assert!(answer.is_stream() && answer.header("x-accel-buffering") == Some("no"));
    // Each is waited for before the agent is let go on: nothing is held back.
    assert_eq!(answer.next_message().await["result"]["task"]["id"], "t-1");
    first.fire();
    assert_eq!(answer.next_piece().await.unwrap().comment.as_deref(), Some("ping - now"));
    assert_eq!(answer.next_event().await.unwrap().name, "x");
    second.fire();
    first.open();
    second.open();
    let whole = call(&stage.client(), "SendStreamingMessage", saying("x")).await;
    assert_eq!(whole.bytes().await, pieces.concat());
}

#[tokio::test]
async fn event_passes_at_once_at_any_line_end() {
    let stage = Stage::new().await;
    for end in ["\n\r\n", "\r\n\n"] {
        let event = format!("data: {{\"x\":1}}{end}");
        stage.agent.on_stream(move |_| Reply::stream().bytes(event.as_bytes()).stall());
        let mut answer = call(&stage.client(), "SendStreamingMessage", saying("x")).await;
        let came = answer.next_piece().await.unwrap();
        assert_eq!(
            (came.comment.as_deref(), came.json()),
            (None, json!({ "x": 1 })),
            "not a sign of life: {end:?}"
        );
    }
}

#[tokio::test]
async fn silent_stream_is_kept_alive() {
    let stage = Stage::with(Card::v1().skill("sing"), "calls: { keep_alive: 1s }\n", "").await;
    let goes_on = Signal::new();
    let wait = goes_on.clone();
    stage.agent.on_stream(move |_| {
        Reply::stream()
            .event(v1::task("t", "c", "working"))
            .bytes(b"data: {\"ha")
            .wait(&wait)
            .bytes(b"lf\":1}\n\n")
    });
    let mut answer = call(&stage.client(), "SendStreamingMessage", saying("x")).await;
    assert_eq!(answer.next_message().await["result"]["task"]["id"], "t");
    assert_eq!(answer.next_piece().await.unwrap().comment.as_deref(), Some(""));
    let told = Instant::now();
    assert_eq!(answer.next_piece().await.unwrap().comment.as_deref(), Some(""));
    assert!(told.elapsed() > Duration::from_millis(700), "one a second, and not one a beat");
    goes_on.fire();
    assert_eq!(answer.next_message().await["half"], 1, "no sign of life stands within an event");
}

#[tokio::test]
async fn agent_of_0_3_gets_its_own_format() {
    let stage = Stage::with(Card::v0_3().skill("sing"), "", "    extensions: [\"urn:own\"]\n").await;
    stage.agent.on("message/send", |_| Reply::result(v0_3::completed("t-1", "c-1", "la")));
    let message = json!({ "kind": "message", "messageId": "m", "role": "user", "parts": [] });
    let request =
        json!({ "jsonrpc": "2.0", "id": 7, "method": "message/send", "params": { "message": message } });
    let answer = stage.client().post(&request, &[("X-A2A-Extensions", "urn:a, urn:b")]).await;
    assert_eq!(answer.json().await["result"], v0_3::completed("t-1", "c-1", "la"));
    let asked = stage.agent.wait_for_call("message/send").await;
    assert_eq!((asked.id(), asked.message()), (json!(7), message));
    assert_eq!(asked.header("a2a-version"), None);
    assert_eq!(asked.header("x-a2a-extensions"), Some("urn:own, urn:a, urn:b"));
}

#[tokio::test]
async fn smuggled_headers_never_reach_agent() {
    let mut card = Card::v1().skill("sing");
    card.json["supportedInterfaces"][0]["tenant"] = "acme".into();
    let stage = Stage::with(card, "", "    headers: { X-Agent-Key: own-secret }\n").await;
    stage.agent.on_get(|_| Reply::result(v1::bare_task("t", "c", "working")));
    let request = json!({
        "jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": { "id": "t", "tenant": "somebody-else" },
    });
    let headers = [
        ("A2A-Version", "1.0"),
        ("Authorization", "Bearer client-secret"),
        ("Cookie", "session=client-secret"),
        ("X-Agent-Key", "client-secret"),
        ("X-Forwarded-For", "client-secret"),
    ];
    assert!(stage.client().post(&request, &headers).await.result().await["id"] == "t");
    let asked = stage.agent.wait_for_call("GetTask").await;
    assert_eq!(asked.params(), json!({ "id": "t", "tenant": "acme" }));
    assert_eq!(asked.header("x-agent-key"), Some("own-secret"));
    assert!(!format!("{:?}", asked.headers).contains("client-secret"), "{:?}", asked.headers);
}

#[tokio::test]
async fn extension_methods_pass_untouched() {
    let stage = Stage::new().await;
    stage.agent.on("acme/tune", |_| Reply::error(-32099, "own code"));
    let refused = call(&stage.client(), "acme/tune", json!({ "id": [1, 2] })).await.json().await;
    assert_eq!(refused["error"], json!({ "code": -32099, "message": "own code" }));
    assert_eq!(stage.agent.wait_for_call("acme/tune").await.params(), json!({ "id": [1, 2] }));
}

#[tokio::test]
async fn non_request_gets_json_rpc_error() {
    let stage = Stage::new().await;
    let sent = async |body: &str| {
        let headers = [("Content-Type", "application/json"), ("A2A-Version", "1.0")];
        let answer = stage.client().send("POST", &headers, body.as_bytes().to_vec()).await;
        (answer.status, answer.json().await)
    };
    for (body, code, id) in [
        ("{", -32700, Value::Null),
        ("[]", -32600, Value::Null),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"GetTask"}]"#, -32600, Value::Null),
        (r#"{"jsonrpc":"2.0","id":true,"method":"GetTask"}"#, -32600, Value::Null),
        (r#"{"jsonrpc":"2.0","id":{"x":1},"method":"GetTask"}"#, -32600, Value::Null),
        (r#"{"jsonrpc":"2.0","ID":1,"method":"GetTask"}"#, -32600, Value::Null),
        (r#"{"jsonrpc":"2.0","method":"GetTask","params":[]}"#, -32602, Value::Null),
        (r#"{"jsonrpc":"2.0","id":null,"method":"message/send","params":{}}"#, -32601, Value::Null),
        (r#"{"jsonrpc":"2.0","id":"a","method":"GetTask","params":[]}"#, -32602, json!("a")),
        (r#"{"jsonrpc":"2.0","id":3,"method":"message/send","params":{}}"#, -32601, json!(3)),
        (r#"{"jsonrpc":"2.0","id":3,"method":"GetTask","params":{"tenant":1,"tenant":2}}"#, -32602, json!(3)),
    ] {
        let (status, answer) = sent(body).await;
        assert_eq!(
            (status, &answer["error"]["code"], &answer["id"]),
            (200, &json!(code), &id),
            "{body}: {answer}"
        );
    }
    let request = json!({ "jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {} });
    let unversioned = stage.client().post(&request, &[]).await.json().await;
    assert_eq!(unversioned["error"]["code"], -32009, "{unversioned}");
    assert!(stage.agent.requests().iter().all(|request| request.method == "GET"), "the agent heard nothing");
}

#[tokio::test]
async fn request_without_id_goes_to_agent() {
    let mut card = Card::v1().skill("sing");
    let stage = Stage::with(card.clone(), "", "").await;
    card.json["supportedInterfaces"][0]["tenant"] = "acme".into();
    let rewriting = Stage::with(card, "", "").await;
    let headers = [("Content-Type", "application/json"), ("A2A-Version", "1.0")];
    for id in ["", "\"id\":null,"] {
        let body = |method: &str, params: &str| {
            format!("{{\"jsonrpc\":\"2.0\",{id}\"method\":\"{method}\",\"params\":{params}}}")
        };
        let wanted = body("GetTask", r#"{"id":"t"}"#);
        for (stage, heard) in
            [(&stage, wanted.clone()), (&rewriting, body("GetTask", r#"{"id":"t","tenant":"acme"}"#))]
        {
            stage.agent.on_get(|_| Reply::result(v1::bare_task("t", "c", "working")));
            let answer =
                stage.client().send("POST", &headers, wanted.clone().into_bytes()).await.json().await;
            assert_eq!((&answer["result"]["id"], &answer["id"]), (&json!("t"), &Value::Null), "{answer}");
            let asked = stage.agent.calls("GetTask").pop().unwrap();
            assert_eq!(String::from_utf8(asked.body).unwrap(), heard);
        }
        stage.agent.on("acme/tune", |_| Reply::error(-32601, "Method not found"));
        let asked = body("acme/tune", "{}").into_bytes();
        let refused = stage.client().send("POST", &headers, asked).await.json().await;
        assert_eq!((&refused["error"]["code"], refused.get("id")), (&json!(-32601), Some(&Value::Null)));
        stage.agent.on_get(|_| Reply::hang_up());
        let refused = stage.client().send("POST", &headers, wanted.into_bytes()).await.json().await;
        assert_eq!((&refused["error"]["code"], refused.get("id")), (&json!(-32603), Some(&Value::Null)));
    }
}

#[tokio::test]
async fn agent_failure_is_error_not_challenge() {
    let stage = Stage::new().await;
    for (reply, told) in [
        (Reply::status(401, "no").header("WWW-Authenticate", "Bearer"), "credentials (HTTP 401)"),
        (Reply::status(503, "busy"), "HTTP 503"),
        (Reply::json(&json!({ "detail": "internal words" })).with_status(422), "HTTP 422"),
        (Reply::status(200, "<html>"), "neither JSON nor an event stream"),
        (Reply::hang_up(), "broke"),
    ] {
        stage.agent.on_get(move |_| reply.clone());
        let answer = call(&stage.client(), "GetTask", json!({ "id": "t" })).await;
        assert_eq!((answer.status, answer.header("www-authenticate")), (200, None), "{told}");
        let answer = answer.json().await;
        assert_eq!((&answer["error"]["code"], &answer["id"]), (&json!(-32603), &json!("call-1")));
        let text = answer["error"]["message"].as_str().unwrap();
        assert!(text.contains(told) && !text.contains("internal words"), "{text}");
    }
    stage.agent.on_get(|_| Reply::error(-32001, "Task not found").with_status(404));
    let answer = call(&stage.client(), "GetTask", json!({ "id": "t" })).await;
    assert_eq!((answer.status, answer.error_code().await), (200, -32001), "an error of JSON-RPC is one");
}

#[tokio::test]
async fn agent_dying_mid_stream_is_reported() {
    let stage = Stage::new().await;
    stage
        .agent
        .on_stream(|_| Reply::stream().event(v1::task("t", "c", "working")).bytes(b"data: {\"half").cut());
    let mut answer = call(&stage.client(), "SendStreamingMessage", saying("x")).await;
    assert_eq!(answer.next_message().await["result"]["task"]["id"], "t");
    let last = answer.next_message().await;
    assert_eq!((&last["error"]["code"], &last["id"]), (&json!(-32603), &json!("call-1")));
    assert!(last["error"]["message"].as_str().unwrap().contains("broke"), "{last}");
    assert!(answer.next_event().await.is_none(), "and the stream ends cleanly");
}

#[tokio::test]
async fn oversized_agent_answer_is_cut() {
    let limits = "limits: { response: 2KiB, event: 1KiB }\n";
    let stage = Stage::with(Card::v1().skill("sing"), limits, "").await;
    let large = "x".repeat(4000);
    let value = Value::String(large.clone());
    stage.agent.on_get(move |_| Reply::result(value.clone()));
    let refused = call(&stage.client(), "GetTask", json!({ "id": "t" })).await.json().await;
    assert!(refused["error"]["message"].as_str().unwrap().contains("more than 2048 bytes"), "{refused}");
    let endless = format!("data: {large}");
    stage.agent.on_stream(move |_| Reply::stream().event(json!({})).bytes(endless.as_bytes()).stall());
    let mut answer = call(&stage.client(), "SendStreamingMessage", saying("x")).await;
    assert_eq!(answer.next_message().await["result"], json!({}));
    let last = answer.next_message().await;
    assert!(last["error"]["message"].as_str().unwrap().contains("more than 1024 bytes"), "{last}");
    stage.agent.wait_for("the gateway to leave", |log| !log.left.is_empty()).await;
}

#[tokio::test]
async fn leaving_client_ends_exchange() {
    let stage = Stage::new().await;
    stage.agent.on_stream(|_| Reply::stream().event(v1::task("t", "c", "working")).stall());
    let mut answer = call(&stage.client(), "SendStreamingMessage", saying("x")).await;
    assert_eq!(answer.next_message().await["result"]["task"]["id"], "t");
    drop(answer);
    stage.agent.wait_for("the gateway to leave", |log| log.left.len() == 1).await;
    stage.agent.on_get(|_| Reply::silence());
    let client = stage.client();
    let asking = tokio::spawn(async move { call(&client, "GetTask", json!({ "id": "t" })).await });
    stage.agent.wait_for_call("GetTask").await;
    asking.abort();
    stage.agent.wait_for("the gateway to leave once more", |log| log.left.len() == 2).await;
}

#[tokio::test]
async fn agents_push_to_public_addresses_only() {
    let stage = Stage::new().await;
    stage.agent.on("CreateTaskPushNotificationConfig", |request| Reply::result(request.params()));
    for (url, fits) in [
        ("https://93.184.216.34/hook", true),
        ("http://127.0.0.1:9/hook", false),
        ("http://169.254.169.254/hook", false),
        ("http://0x7f.1/hook", false),
        ("file:///etc/passwd", false),
    ] {
        let params = json!({ "taskId": "t", "url": url });
        let answer = call(&stage.client(), "CreateTaskPushNotificationConfig", params).await.json().await;
        assert_eq!(answer["result"]["url"] == url, fits, "{answer}");
        let mut send = saying("x");
        send["configuration"] = json!({ "taskPushNotificationConfig": { "url": url } });
        stage.agent.on("SendMessage", |_| Reply::result(v1::message("la")));
        let answer = call(&stage.client(), "SendMessage", send).await.json().await;
        assert_eq!(answer.get("result").is_some(), fits, "{answer}");
    }
}

#[tokio::test]
async fn a2a_endpoint_is_optional_and_counted() {
    let stage = Stage::new().await;
    stage.agent.on_get(|_| Reply::result(v1::bare_task("t", "c", "working")));
    call(&stage.client(), "GetTask", json!({ "id": "t" })).await.result().await;
    let line = r#"mcp_a2a_gateway_requests_total{agent="bard",method="GetTask",outcome="ok"} 1"#;
    let counted = async {
        while !stage.gateway.metrics().await.contains(line) {
            tokio::task::yield_now().await;
        }
    };
    in_time("the request to be counted", counted).await;
    assert_eq!(call(&stage.client().at("/a2a/nobody"), "GetTask", json!({})).await.status, 404);
    assert_eq!(stage.client().get(&[]).await.status, 405);
    let plain = crate::support::TestGateway::before(&[("bard", &stage.agent)]).await;
    assert_eq!(call(&plain.client().at("/a2a/bard"), "GetTask", json!({})).await.status, 404);
}
