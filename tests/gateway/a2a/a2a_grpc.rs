//! The A2A endpoint over gRPC, before agents of every version and binding.

use std::time::{Duration, Instant};

use mcp_a2a_gateway::a2a::Dialect::{V0_3, V1};
use mcp_a2a_gateway::a2a::translate::Operation;
use serde_json::{Value, json};

use crate::auth::rules::{auth, key_of};
use crate::kit::a2a_scene::{Stage, saying};
use crate::kit::grpc_call::{call, encoded, frame, send};
use crate::support::certs::client_config;
use crate::support::payload::{v0_3, v1};
use crate::support::{Authority, Card, McpClient, Reply, ScriptedAgent, Signal, TestGateway};

const SEND: &str = "/lf.a2a.v1.A2AService/SendMessage";
const STREAM: &str = "/lf.a2a.v1.A2AService/SendStreamingMessage";
const GET: &str = "/lf.a2a.v1.A2AService/GetTask";

/// The message of a client of 1.0 for an agent.
fn saying_to(agent: &str, text: &str) -> Value {
    let mut request = saying(text);
    request["tenant"] = agent.into();
    request
}

/// The message of a client of 0.3.
fn saying_of_0_3(text: &str) -> Value {
    json!({ "message": { "messageId": "m-1", "role": "ROLE_USER", "content": [{ "text": text }] }, "configuration": { "blocking": true } })
}

#[tokio::test]
async fn message_reaches_agent_of_tenant() {
    let stage = Stage::with(Card::v1().skill("sing"), "", "").await;
    let client = stage.gateway.client();
    stage.agent.on("SendMessage", |_| Reply::result(v1::task("t", "c", "working")));
    let sent = call(&client, V1, Operation::Send, saying_to("bard", "x")).await.only().await;
    assert_eq!(
        (&sent["task"]["id"], &sent["task"]["status"]["state"]),
        (&json!("t"), &json!("TASK_STATE_WORKING"))
    );
    let asked = stage.agent.wait_for_call("SendMessage").await.params();
    assert_eq!((&asked["message"], asked.get("tenant")), (&saying("x")["message"], None));
    // The only agent needs no name.
    stage.agent.on_get(|_| Reply::result(v1::bare_task("t", "c", "completed")));
    let got = call(&client, V1, Operation::Get, json!({ "id": "t", "historyLength": 2 })).await.only().await;
    assert_eq!(got["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(stage.agent.wait_for_call("GetTask").await.params(), json!({ "id": "t", "historyLength": 2 }));
    stage.agent.on("DeleteTaskPushNotificationConfig", |_| Reply::result(Value::Null));
    let deleted = call(&client, V1, Operation::DeletePush, json!({ "taskId": "t", "id": "p" })).await;
    assert_eq!(deleted.only().await, json!({}));
}

#[tokio::test]
async fn events_are_messages_while_they_come() {
    let stage = Stage::new().await;
    let signal = Signal::new();
    let waits = signal.clone();
    stage.agent.on_stream(move |_| {
        Reply::stream()
            .event(v1::task("t", "c", "working"))
            .comment("ping")
            .wait(&waits)
            .event(v1::artifact_update("t", "c", "la", false, true))
            .event(v1::status_update("t", "c", "completed", None))
    });
    let mut answer = call(&stage.gateway.client(), V1, Operation::Stream, saying_to("bard", "x")).await;
    assert_eq!(answer.message().await.unwrap()["task"]["id"], "t");
    signal.fire();
    let (status, rest) = answer.end().await;
    assert_eq!(status.code, 0, "{status:?}");
    assert_eq!(rest[0]["artifactUpdate"]["artifact"]["parts"], json!([{ "text": "la" }]));
    assert_eq!(rest[1]["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED");
}

#[tokio::test]
async fn clients_of_0_3_are_served() {
    for (card, method) in
        [(Card::v0_3().skill("sing"), "message/send"), (Card::v1().skill("sing"), "SendMessage")]
    {
        let stage = Stage::with(card, "", "").await;
        let client = stage.gateway.client();
        stage.agent.on(method, move |_| match method {
            "SendMessage" => Reply::result(v1::completed("t", "c", "la")),
            _ => Reply::result(v0_3::completed("t", "c", "la")),
        });
        let sent = call(&client, V0_3, Operation::Send, saying_of_0_3("x")).await.only().await;
        assert_eq!(sent["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{method}");
        assert_eq!(sent["task"]["artifacts"][0]["parts"], json!([{ "text": "la" }]), "{method}");
        let said = stage.agent.wait_for_call(method).await.message();
        assert_eq!(said["parts"][0]["text"], "x", "{method}");
        let cancelled = match method {
            "SendMessage" => v1::bare_task("t", "c", "canceled"),
            _ => v0_3::task("t", "c", "canceled"),
        };
        stage.agent.on_cancel(move |_| Reply::result(cancelled.clone()));
        let task = call(&client, V0_3, Operation::Cancel, json!({ "name": "tasks/t" })).await.only().await;
        assert_eq!(task["status"]["state"], "TASK_STATE_CANCELLED", "{method}");
    }
}

#[tokio::test]
async fn stream_of_0_3_ends_as_there() {
    let stage = Stage::with(Card::v0_3().skill("sing"), "", "").await;
    stage.agent.on_stream(|_| {
        Reply::events([
            v0_3::task("t", "c", "working"),
            v0_3::artifact_update("t", "c", "la", false, true),
            v0_3::status_update("t", "c", "completed", Some("done"), true),
        ])
    });
    let answer = call(&stage.gateway.client(), V0_3, Operation::Stream, saying_of_0_3("x")).await;
    let (status, events) = answer.end().await;
    assert_eq!((status.code, events.len()), (0, 3), "{status:?} {events:?}");
    assert_eq!(events[1]["artifactUpdate"]["lastChunk"], true);
    let last = &events[2]["statusUpdate"];
    assert_eq!(
        (&last["final"], &last["status"]["message"]["content"]),
        (&json!(true), &json!([{ "text": "done" }]))
    );
}

#[tokio::test]
async fn http_json_agent_is_reached() {
    let stage = Stage::with(Card::http_json("", "").skill("sing"), "", "").await;
    stage.agent.on_path("/message:send", |_| Reply::json(&v1::task("t", "c", "working")));
    let client = stage.gateway.client();
    let sent = call(&client, V1, Operation::Send, saying_to("bard", "x")).await.only().await;
    assert_eq!(sent["task"]["id"], "t");
    let sent = call(&client, V0_3, Operation::Send, saying_of_0_3("x")).await.only().await;
    assert_eq!(sent["task"]["id"], "t");
}

/// Two agents, of which one has a host.
async fn two_agents() -> (ScriptedAgent, ScriptedAgent, TestGateway) {
    let (one, two) = (
        ScriptedAgent::start(Card::v1().skill("sing")).await,
        ScriptedAgent::start(Card::v1().skill("play")).await,
    );
    for (agent, text) in [(&one, "one"), (&two, "two")] {
        agent.on("SendMessage", move |_| Reply::result(v1::message(text)));
    }
    let gateway = TestGateway::start(|ports| {
        let listeners = ports.listeners().replacen("admin:", "    serve: [mcp, a2a]\nadmin:", 1);
        format!(
            "{listeners}agents:\n  one:\n    card: {}\n  two:\n    card: {}\n    a2a: {{ host: two.example.com }}\n",
            one.card_url(),
            two.card_url()
        )
    })
    .await;
    (one, two, gateway)
}

#[tokio::test]
async fn agent_is_found_by_tenant_or_host() {
    let (_one, _two, gateway) = two_agents().await;
    let plain = gateway.client();
    let text = |sent: &Value| sent["message"]["parts"][0]["text"].clone();
    for agent in ["one", "two"] {
        let sent = call(&plain, V1, Operation::Send, saying_to(agent, "x")).await.only().await;
        assert_eq!(text(&sent), agent);
    }
    for authority in ["two.example.com", "TWO.example.com:8080"] {
        let of_two = plain.for_authority(authority);
        let sent = call(&of_two, V1, Operation::Send, saying("x")).await.only().await;
        assert_eq!(text(&sent), "two");
        let sent = call(&of_two, V0_3, Operation::Send, saying_of_0_3("x")).await.only().await;
        assert_eq!(sent["message"]["content"][0]["text"], "two");
        let other = call(&of_two, V1, Operation::Send, saying_to("one", "x")).await.error().await;
        assert_eq!(other.0, "NOT_FOUND");
    }
    for (client, dialect, message, code) in [
        (&plain, V1, saying("x"), "INVALID_ARGUMENT"),
        (&plain, V0_3, saying_of_0_3("x"), "INVALID_ARGUMENT"),
        (&plain, V1, saying_to("three", "x"), "NOT_FOUND"),
        (&plain.for_authority("three.example.com"), V1, saying_to("one", "x"), "PERMISSION_DENIED"),
    ] {
        let refused = call(client, dialect, Operation::Send, message).await.error().await;
        assert_eq!(refused.0, code, "{dialect:?}");
    }
}

#[tokio::test]
async fn cards_name_grpc_where_it_leads() {
    let (_one, _two, gateway) = two_agents().await;
    let card = async |agent: &str| {
        let path = format!("/a2a/{agent}/.well-known/agent-card.json");
        gateway.client().at(&path).get(&[]).await.json().await
    };
    let port = gateway.ports().main;
    let (one, two) = (card("one").await, card("two").await);
    let of = |card: &Value| -> Vec<Value> {
        let all = card["supportedInterfaces"].as_array().unwrap().iter();
        all.filter(|interface| interface["protocolBinding"] == "GRPC").cloned().collect()
    };
    let own = |agent: &str| json!({ "url": format!("127.0.0.1:{port}"), "protocolBinding": "GRPC", "protocolVersion": "1.0", "tenant": agent });
    assert_eq!(of(&one), [own("one")]);
    let host = format!("two.example.com:{port}");
    assert_eq!(
        of(&two),
        [own("two"), json!({ "url": host, "protocolBinding": "GRPC", "protocolVersion": "0.3" })]
    );
    assert!(one.get("additionalInterfaces").is_none(), "{one}");
    assert_eq!(two["additionalInterfaces"][1], json!({ "url": host, "transport": "GRPC" }));
    let alone = Stage::new().await;
    let card = alone.client().at("/a2a/bard/.well-known/agent-card.json").get(&[]).await.json().await;
    let url = format!("127.0.0.1:{}", alone.gateway.ports().main);
    assert_eq!(card["additionalInterfaces"][1], json!({ "url": url, "transport": "GRPC" }));
}

/// The list names the interfaces of the card.
#[tokio::test]
async fn list_names_interfaces_of_card() {
    let (_one, _two, gateway) = two_agents().await;
    let list = gateway.client().at("/a2a").get(&[]).await.json().await;
    for (at, agent) in ["one", "two"].into_iter().enumerate() {
        let path = format!("/a2a/{agent}/.well-known/agent-card.json");
        let card = gateway.client().at(&path).get(&[]).await.json().await;
        let listed = &list["agents"][at];
        assert_eq!(listed["supportedInterfaces"], card["supportedInterfaces"], "{agent}");
        assert_eq!(listed["bindings"], json!(["JSONRPC", "HTTP+JSON", "GRPC"]), "{agent}");
    }
}

/// Before a listener is a proxy that passes on HTTP/1.1 only.
#[tokio::test]
async fn listener_without_grpc_names_none() {
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    agent.on("SendMessage", |_| Reply::result(v1::message("la")));
    let gateway = TestGateway::start(|ports| {
        format!(
            "listeners:\n  - {{ address: '127.0.0.1:{}', serve: [a2a] }}\n  - {{ address: '127.0.0.1:{}', serve: [a2a], grpc: false }}\n\
             admin: {{ address: '127.0.0.1:{}' }}\nagents:\n  bard: {{ card: '{}' }}\n",
            ports.main,
            ports.other,
            ports.admin,
            agent.card_url()
        )
    })
    .await;
    let without = McpClient::new(&format!("http://127.0.0.1:{}/", gateway.ports().other));
    for (client, is_named) in [(gateway.client(), true), (without.clone(), false)] {
        for path in ["/a2a/bard/.well-known/agent-card.json", "/a2a"] {
            let shown = client.at(path).get(&[]).await.text().await;
            assert_eq!(shown.contains("GRPC"), is_named, "{path}: {shown}");
        }
        let sent = call(&client, V1, Operation::Send, saying_to("bard", "x")).await.end().await;
        assert_eq!(sent.0.code == 0, is_named, "{sent:?}");
    }
    let refused = call(&without, V1, Operation::Send, saying_to("bard", "x")).await.error().await;
    assert_eq!(refused.0, "NOT_FOUND");
    let request = json!({ "jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": saying("x") });
    let sent = without.at("/a2a/bard").post(&request, &[("A2A-Version", "1.0")]).await.json().await;
    assert!(sent["result"]["message"].is_object(), "{sent}");
}

#[tokio::test]
async fn errors_have_status_and_reason() {
    let stage = Stage::new().await;
    let client = stage.gateway.client();
    let data = json!([{ "@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "TASK_NOT_FOUND", "domain": "a2a-protocol.org" }]);
    let error =
        json!({ "jsonrpc": "2.0", "id": 1, "error": { "code": -32001, "message": "no", "data": data } });
    stage.agent.on_get(move |_| Reply::json(&error));
    let get = || json!({ "id": "t", "tenant": "bard" });
    let refused = call(&client, V1, Operation::Get, get()).await.error().await;
    assert_eq!(refused, ("NOT_FOUND", "TASK_NOT_FOUND".to_owned()));
    stage.agent.on_cancel(|_| Reply::error(-32002, "no"));
    let refused = call(&client, V1, Operation::Cancel, get()).await.error().await;
    assert_eq!(refused.0, "FAILED_PRECONDITION");
    let refused = call(&client, V0_3, Operation::Cancel, json!({ "name": "tasks/t" })).await.error().await;
    assert_eq!(refused.0, "FAILED_PRECONDITION");
    stage.agent.on_cancel(|_| Reply::error(-32004, "no"));
    let refused = call(&client, V0_3, Operation::Cancel, json!({ "name": "tasks/t" })).await.error().await;
    assert_eq!(refused.0, "UNIMPLEMENTED", "as servers of 0.3");
    stage.agent.on_get(|_| Reply::status(401, "no"));
    assert_eq!(call(&client, V1, Operation::Get, get()).await.error().await.0, "INTERNAL");
    stage.agent.on_subscribe(|_| Reply::events([v1::task("t", "c", "working")]).error_event(-32603, "broke"));
    let (status, events) = call(&client, V1, Operation::Subscribe, get()).await.end().await;
    assert_eq!((status.name(), events.len()), ("INTERNAL", 1));
    stage.agent.on_stream(|_| Reply::events([json!({ "statusUpdate": { "status": 7 } })]));
    let (status, _) = call(&client, V1, Operation::Stream, saying_to("bard", "x")).await.end().await;
    assert_eq!(status.name(), "INTERNAL", "no message of A2A");
}

#[tokio::test]
async fn bad_input_has_clear_status() {
    let stage = Stage::with(Card::v1().skill("sing"), "limits: { body: 64KiB }\n", "").await;
    let client = stage.gateway.client();
    let good = frame(&encoded(Operation::Get, &json!({ "id": "t" })));
    let compressed = [&[1], &good[1..]].concat();
    let long = [&[0, 0, 2, 0, 0][..], &[0; 1000]].concat();
    let two = [&good[..], &good].concat();
    for (path, headers, body, code) in [
        ("/lf.a2a.v1.A2AService/Sing", &[][..], good.clone(), "UNIMPLEMENTED"),
        ("/grpc.health.v1.Health/Check", &[], good.clone(), "UNIMPLEMENTED"),
        (GET, &[("grpc-encoding", "gzip")], compressed.clone(), "UNIMPLEMENTED"),
        (GET, &[("grpc-encoding", "zstd")], good.clone(), "UNIMPLEMENTED"),
        (STREAM, &[("grpc-encoding", "gzip")], compressed.clone(), "UNIMPLEMENTED"),
        (GET, &[], compressed.clone(), "INTERNAL"),
        (STREAM, &[], compressed, "INTERNAL"),
        (GET, &[("grpc-timeout", "soon")], good.clone(), "INTERNAL"),
        (GET, &[], long.clone(), "RESOURCE_EXHAUSTED"),
        (STREAM, &[], long, "RESOURCE_EXHAUSTED"),
        (GET, &[], two, "UNIMPLEMENTED"),
        (GET, &[], good[..good.len() - 1].to_vec(), "INTERNAL"),
        (GET, &[], good[..3].to_vec(), "INTERNAL"),
        (STREAM, &[], good[..good.len() - 1].to_vec(), "INTERNAL"),
        (GET, &[], Vec::new(), "INTERNAL"),
        (GET, &[], frame(b"\x0b\xff"), "INTERNAL"),
        (STREAM, &[], frame(b"\x0b\xff"), "INTERNAL"),
        ("/a2a.v1.A2AService/GetTask", &[], frame(b"\x0b\xff"), "INTERNAL"),
        ("/a2a.v1.A2AService/GetTask", &[], frame(b"\x0a\x01t"), "INVALID_ARGUMENT"),
        (GET, &[("a2a-version", "7.0")], good.clone(), "FAILED_PRECONDITION"),
        (GET, &[("origin", "http://evil.example")], good.clone(), "PERMISSION_DENIED"),
        (SEND, &[], frame(b"\x0a\x01x"), "NOT_FOUND"),
    ] {
        let answer = send(&client, path, headers, body).await;
        assert_eq!(answer.answer.header("grpc-accept-encoding"), Some("identity"));
        let (status, messages) = answer.end().await;
        assert_eq!((status.name(), messages.len()), (code, 0), "{path} {headers:?} {status:?}");
    }
    assert!(stage.agent.calls("GetTask").is_empty(), "nothing reaches the agent");
    // Without HTTP/2 or the media type a path of gRPC is none.
    for (client, media_type) in [
        (client.clone(), "application/json"),
        (client.clone(), "application/grpc"),
        (client.http2(), "application/json"),
        (client.http2(), "application/grpc+json"),
        (client.http2(), "application/grpc-web"),
        (client.http2(), "text/html"),
    ] {
        let answer = client.at(GET).send("POST", &[("content-type", media_type)], b"{}".to_vec()).await;
        assert_eq!(answer.status, 404, "{media_type}");
    }
    assert_eq!(client.at(GET).http2().get(&[("content-type", "application/grpc")]).await.status, 404);
    // Nothing of all that reaches the next call.
    stage.agent.on_get(|_| Reply::result(v1::bare_task("t", "c", "working")));
    let got = call(&client, V1, Operation::Get, json!({ "id": "t" })).await.only().await;
    assert_eq!(got["id"], "t");
}

#[tokio::test]
async fn callers_are_apart_over_grpc() {
    let stage = Stage::with(Card::v1().skill("sing"), &auth(&["ann", "ben"]), "").await;
    stage.agent.on("SendMessage", |_| Reply::result(v1::task("raw", "c", "working")));
    stage.agent.on_get(|_| Reply::result(v1::bare_task("raw", "c", "working")));
    let client = stage.gateway.client();
    let refused = call(&client, V1, Operation::Send, saying_to("bard", "x")).await.error().await;
    assert_eq!(refused.0, "UNAUTHENTICATED");
    let by = |name: &str| client.header("x-api-key", &key_of(name));
    let sent = call(&by("ann"), V1, Operation::Send, saying_to("bard", "x")).await.only().await;
    let task = sent["task"]["id"].clone();
    assert_ne!(task, "raw");
    let get = || json!({ "id": task, "tenant": "bard" });
    assert_eq!(call(&by("ann"), V1, Operation::Get, get()).await.only().await["id"], task);
    let other = call(&by("ben"), V1, Operation::Get, get()).await.error().await;
    assert_eq!(other, ("NOT_FOUND", "TASK_NOT_FOUND".to_owned()));
    let named = json!({ "name": format!("tasks/{}", task.as_str().unwrap()) });
    let old = call(&by("ann"), V0_3, Operation::Get, named).await.only().await;
    assert_eq!(old["id"], task, "the same handle in both versions");
}

#[tokio::test]
async fn deadline_ends_the_call() {
    let stage = Stage::new().await;
    stage.agent.on("SendMessage", |_| Reply::silence());
    stage.agent.on_stream(|_| Reply::events([v1::task("t", "c", "working")]).stall());
    let client = stage.gateway.client();
    let body = || frame(&encoded(Operation::Send, &saying_to("bard", "x")));
    let since = Instant::now();
    let (status, _) = send(&client, SEND, &[("grpc-timeout", "300m")], body()).await.end().await;
    assert_eq!(status.name(), "DEADLINE_EXCEEDED");
    let (status, events) = send(&client, STREAM, &[("grpc-timeout", "1S")], body()).await.end().await;
    assert_eq!((status.name(), events.len()), ("DEADLINE_EXCEEDED", 1));
    assert!(since.elapsed() < Duration::from_secs(20), "{:?}", since.elapsed());
}

#[tokio::test]
async fn rules_and_rates_hold_over_grpc() {
    let settings = format!(
        "{}rules:\n  - {{ callers: \"key:ann\", tools: sing }}\n  - {{ callers: \"key:ben\", agents: bard }}\nlimits: {{ caller_rate: 1 }}\n",
        auth(&["ann", "ben", "eve"])
    );
    let stage = Stage::with(Card::v1().skill("sing").skill("whisper"), &settings, "").await;
    stage.agent.on("SendMessage", |_| Reply::result(v1::message("la")));
    let by = |name: &str| stage.gateway.client().header("x-api-key", &key_of(name));
    let sent = async |name: &str| call(&by(name), V1, Operation::Send, saying_to("bard", "x")).await;
    assert_eq!(sent("ann").await.error().await.0, "PERMISSION_DENIED");
    assert_eq!(sent("eve").await.error().await.0, "NOT_FOUND", "it does not see the agent");
    assert_eq!(sent("ben").await.end().await.0.name(), "OK");
    let begun = Instant::now();
    loop {
        let answer = sent("ben").await;
        let retry_after = answer.answer.header("retry-after").map(str::to_owned);
        let (status, _) = answer.end().await;
        if status.name() == "RESOURCE_EXHAUSTED" {
            assert!(retry_after.is_some());
            break;
        }
        assert!(begun.elapsed() < crate::support::PATIENCE, "{status:?}");
    }
}

#[tokio::test]
async fn other_versions_can_be_refused_over_grpc() {
    let stage = Stage::with(Card::v1().skill("sing"), "", "    a2a: { translate: false }\n").await;
    stage.agent.on("SendMessage", |_| Reply::result(v1::message("la")));
    let client = stage.gateway.client();
    call(&client, V1, Operation::Send, saying_to("bard", "x")).await.only().await;
    let refused = call(&client, V0_3, Operation::Send, saying_of_0_3("x")).await.error().await;
    assert_eq!(refused, ("UNIMPLEMENTED", "VERSION_NOT_SUPPORTED".to_owned()));
}

#[tokio::test]
async fn unknown_events_are_left_out() {
    let stage = Stage::with(Card::v0_3().skill("sing"), "", "").await;
    stage.agent.on_stream(|_| {
        Reply::events([json!({ "kind": "news", "text": "x" }), v0_3::task("t", "c", "completed")])
    });
    let client = stage.gateway.client();
    let (status, events) = call(&client, V0_3, Operation::Stream, saying_of_0_3("x")).await.end().await;
    assert_eq!((status.code, events.len()), (0, 1), "{status:?} {events:?}");
}

#[tokio::test]
async fn grpc_is_served_over_tls() {
    let authority = Authority::new("ours");
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    agent.on("SendMessage", |_| Reply::result(v1::message("la")));
    let gateway = TestGateway::start(|ports| {
        authority.server().write(&ports.directory, "server");
        format!(
            "listeners:\n  - address: 127.0.0.1:{}\n  - address: 127.0.0.1:{}\n    tls: {{ certificate: server.crt, key: server.key }}\n    \
             serve: [a2a]\nadmin: {{ address: 127.0.0.1:{} }}\nagents:\n  bard:\n    card: {}\n",
            ports.main,
            ports.other,
            ports.admin,
            agent.card_url()
        )
    })
    .await;
    let url = format!("https://localhost:{}/", gateway.ports().other);
    let client = McpClient::new(&url).tls(client_config(&authority, None, &["h2"]));
    let sent = call(&client, V1, Operation::Send, saying_to("bard", "x")).await.only().await;
    assert_eq!(sent["message"]["parts"], json!([{ "text": "la" }]));
}
