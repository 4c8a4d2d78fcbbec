//! Agents that are called by gRPC: no other tools, tasks, questions or errors than by JSON-RPC, and a
//! clear fault for each response that is no gRPC.
//!
//! Messages are made of JSON by the codec of the gateway, which golden pairs of the official library
//! test.

use mcp_a2a_gateway::a2a::Dialect::V1;
use mcp_a2a_gateway::a2a::{Operation, grpc as codec};
use serde_json::{Value, json};

use crate::kit::a2a_scene::{Stage, call, saying};
use crate::kit::grpc_call;
use crate::kit::quiz::{again, asked_by_form, called, first, keyed, reply};
use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, Scene, TOOL, complaint, words};
use crate::support::certs::server_config;
use crate::support::grpc::{GrpcReply, GrpcRequest, GrpcServer};
use crate::support::payload::{rest_0_3, v1};
use crate::support::{Authority, Card, Reply};

const SEND: &str = "/lf.a2a.v1.A2AService/SendMessage";
const STREAM: &str = "/lf.a2a.v1.A2AService/SendStreamingMessage";
const GET: &str = "/lf.a2a.v1.A2AService/GetTask";
const CANCEL: &str = "/lf.a2a.v1.A2AService/CancelTask";
const SEND_0_3: &str = "/a2a.v1.A2AService/SendMessage";
const GET_0_3: &str = "/a2a.v1.A2AService/GetTask";

/// The agent `bard`: its card, and its server of gRPC.
struct GrpcScene {
    scene: Scene,
    server: GrpcServer,
}

impl std::ops::Deref for GrpcScene {
    type Target = Scene;

    fn deref(&self) -> &Scene {
        &self.scene
    }
}

async fn scene_of(card: impl Fn(&str) -> Card, own: &str, settings: &str) -> GrpcScene {
    let server = GrpcServer::start().await;
    let target = server.address().to_string();
    let own = format!("allow_hosts: ['{target}']\n{own}");
    let scene = Scene::of(card(&target).skill("sing"), &own, settings).await;
    GrpcScene { scene, server }
}

async fn scene() -> GrpcScene {
    scene_of(Card::grpc, "", "").await
}

async fn plain() -> GrpcScene {
    scene_of(|target| Card::grpc(target).streaming(false), "", "").await
}

/// The message of a response.
fn message(path: &str, json: &Value) -> Vec<u8> {
    let (dialect, operation) = Operation::of_grpc_path(path).unwrap();
    codec::response_to_protobuf(operation, dialect, json.to_string().as_bytes()).unwrap()
}

fn answer(path: &'static str, json: Value) -> impl Fn(&GrpcRequest) -> GrpcReply {
    move |_| GrpcReply::messages([message(path, &json)])
}

fn asked(request: &GrpcRequest) -> Value {
    let (dialect, operation) = Operation::of_grpc_path(&request.path).unwrap();
    serde_json::from_slice(&codec::request_to_json(operation, dialect, &request.message).unwrap()).unwrap()
}

#[tokio::test]
async fn call_streams_over_grpc() {
    let scene = scene().await;
    scene.server.on(STREAM, |_| {
        let events = [
            v1::task(RAW_TASK, RAW_CONTEXT, "submitted"),
            v1::status_update(RAW_TASK, RAW_CONTEXT, "working", Some("half")),
            v1::artifact_update(RAW_TASK, RAW_CONTEXT, "la ", false, false),
            v1::artifact_update(RAW_TASK, RAW_CONTEXT, "la", true, true),
            v1::status_update(RAW_TASK, RAW_CONTEXT, "completed", None),
        ];
        GrpcReply::messages(events.map(|event| message(STREAM, &event)))
    });
    let done = scene.followed("a song").await;
    assert_eq!(words(&done.response["result"]), "la la");
    let notes = &done.notifications;
    assert!(notes.iter().any(|note| note.to_string().contains("half")), "{notes:?}");
    let [sent] = &scene.server.requests(STREAM)[..] else { panic!("not one call") };
    for (name, value) in [
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        ("a2a-version", "1.0"),
        ("grpc-accept-encoding", "identity"),
        ("grpc-timeout", "3600000m"),
    ] {
        assert_eq!(sent.header(name), Some(value), "{name}");
    }
    let sent = asked(sent);
    assert_eq!(sent["message"]["role"], "ROLE_USER");
    assert_eq!(sent["message"]["parts"], json!([{ "text": "a song" }]));
    assert_eq!(sent["configuration"]["acceptedOutputModes"], json!(["text/plain"]));
}

#[tokio::test]
async fn messages_in_pieces_are_whole() {
    let scene = scene().await;
    scene.server.on(STREAM, |_| {
        let events =
            [v1::task(RAW_TASK, RAW_CONTEXT, "working"), v1::completed(RAW_TASK, RAW_CONTEXT, "the song")];
        let frames: Vec<u8> = events
            .iter()
            .map(|event| message(STREAM, event))
            .flat_map(|message| [&[0, 0, 0, 0, message.len() as u8], &message[..]].concat())
            .collect();
        frames.chunks(3).fold(GrpcReply::head(), |reply, piece| reply.bytes(piece)).ok()
    });
    assert_eq!(words(&scene.said("x").await), "the song");
}

#[tokio::test]
async fn task_is_polled_over_grpc() {
    for (card, send, get) in
        [(Card::grpc as fn(&str) -> Card, SEND, GET), (Card::grpc_0_3, SEND_0_3, GET_0_3)]
    {
        let scene = scene_of(move |target| card(target).streaming(false), "", "").await;
        let is_old = send == SEND_0_3;
        let (task, done) = match is_old {
            true => (
                rest_0_3::task(RAW_TASK, RAW_CONTEXT, "working"),
                rest_0_3::bare_completed(RAW_TASK, RAW_CONTEXT, "the song"),
            ),
            false => (
                v1::task(RAW_TASK, RAW_CONTEXT, "working"),
                v1::bare_completed(RAW_TASK, RAW_CONTEXT, "the song"),
            ),
        };
        scene.server.on(send, answer(send, task)).on(get, answer(get, done));
        assert_eq!(words(&scene.said("x").await), "the song");
        let got = asked(&scene.server.requests(get)[0]);
        let member = if is_old { ("name", "tasks/raw-task-7") } else { ("id", RAW_TASK) };
        assert_eq!(got[member.0], member.1, "{got}");
        let sent = asked(&scene.server.requests(send)[0]);
        assert_eq!(sent["message"][if is_old { "content" } else { "parts" }][0]["text"], "x", "{sent}");
    }
}

#[tokio::test]
async fn question_is_answered_over_grpc() {
    let scene = plain().await;
    let asking = v1::asking(RAW_TASK, RAW_CONTEXT, "Which colour?");
    let (task, ended) = (asking["task"].clone(), v1::completed(RAW_TASK, RAW_CONTEXT, "thank you"));
    scene.server.on(GET, answer(GET, task)).on(SEND, move |request| {
        let is_answer = asked(request)["message"].get("taskId").is_some();
        GrpcReply::messages([message(SEND, if is_answer { &ended } else { &asking })])
    });
    let client = asked_by_form(&scene.gateway);
    let call = first("paint");
    let question = called(&client, &call).await;
    let done = called(&client, &again(&call, &question, keyed(&question, reply("blue")))).await;
    assert_eq!(words(&done), "thank you");
    let sent = asked(&scene.server.requests(SEND)[1]);
    assert_eq!(
        (&sent["message"]["taskId"], &sent["message"]["contextId"]),
        (&json!(RAW_TASK), &json!(RAW_CONTEXT))
    );
}

#[tokio::test]
async fn stream_is_reset_when_task_is_cancelled() {
    let scene = scene_of(Card::grpc, "", "calls: { cancel_grace: 0s }").await;
    let canceled = v1::bare_task(RAW_TASK, RAW_CONTEXT, "canceled");
    scene.server.on(CANCEL, answer(CANCEL, canceled)).on(STREAM, |_| {
        GrpcReply::head().message(&message(STREAM, &v1::task(RAW_TASK, RAW_CONTEXT, "working"))).stall()
    });
    let session = scene.session().await;
    let params = json!({ "name": TOOL, "arguments": { "text": "x" }, "_meta": { "progressToken": 1 } });
    let mut answer =
        session.post(&json!({ "jsonrpc": "2.0", "id": "c", "method": "tools/call", "params": params })).await;
    answer.next_message().await;
    session.notify("notifications/cancelled", json!({ "requestId": "c" })).await;
    scene.server.wait_for_left(STREAM, 1).await;
    let canceled = scene.server.requests(CANCEL);
    assert_eq!(asked(&canceled[0])["id"], RAW_TASK);
}

/// Each response that is no gRPC, or no answer, is one clear fault.
#[tokio::test]
async fn bad_answers_are_clear_faults() {
    let scene =
        scene_of(|target| Card::grpc(target).streaming(false), "", "limits: { response: 64KiB }").await;
    let done = message(SEND, &v1::completed(RAW_TASK, RAW_CONTEXT, "the song"));
    let cut = &done[..done.len() - 1];
    let length = [&[0, 0, 0, 0, 200], cut].concat();
    for (name, reply, said) in [
        ("another status", GrpcReply::http(502), "HTTP 502"),
        ("another type", GrpcReply::messages([done.clone()]).header("content-type", "text/html"), "not gRPC"),
        (
            "type of JSON",
            GrpcReply::messages([done.clone()]).header("content-type", "application/grpc+json"),
            "not gRPC",
        ),
        ("no trailers", GrpcReply::head().message(&done), "no gRPC status"),
        ("no status", GrpcReply::head().message(&done).trailers(&[("x-other", "1")]), "no gRPC status"),
        ("no head status", GrpcReply::head(), "no gRPC status"),
        ("no number", GrpcReply::head().message(&done).trailers(&[("grpc-status", "ok")]), "no number"),
        ("no message", GrpcReply::head().ok(), "has no message"),
        ("two messages", GrpcReply::messages([done.clone(), done.clone()]), "several"),
        ("within a frame", GrpcReply::head().bytes(&length).ok(), "ends within a message"),
        ("reset", GrpcReply::head().bytes(&length).reset(), "cut off"),
        ("compressed", GrpcReply::head().frame(1, &done).ok(), "compressed"),
        ("coded", GrpcReply::head().header("grpc-encoding", "zstd").frame(1, &done).ok(), "compressed"),
        ("too large", GrpcReply::head().bytes(&[0, 1, 0, 0, 0]).stall(), "more than 65536 bytes"),
        ("no protobuf", GrpcReply::messages([vec![0xff; 9]]), "cannot be read"),
        ("refused", GrpcReply::refused(13, "out%20of%20tune"), "it refused: out of tune"),
        (
            "refused late",
            GrpcReply::head().trailers(&[("grpc-status", "13"), ("grpc-message", "late")]),
            "it refused: late",
        ),
        ("credentials", GrpcReply::refused(16, "who"), "credentials"),
        ("permission", GrpcReply::refused(7, "no"), "credentials"),
        ("unavailable", GrpcReply::refused(14, "soon"), "503"),
        ("busy", GrpcReply::refused(8, "later"), "429"),
    ] {
        scene.server.on(SEND, move |_| reply.clone());
        let found = scene.said("x").await;
        assert!(complaint(&found).contains(said), "{name}: {found}");
        // Nothing of it reaches the next call.
        scene.server.on(SEND, answer(SEND, v1::completed(RAW_TASK, RAW_CONTEXT, "the song")));
        assert_eq!(words(&scene.said("x").await), "the song", "{name}");
    }
}

#[tokio::test]
async fn bad_streams_are_clear_faults() {
    let settings = "limits: { event: 4KiB }";
    let scene = scene_of(Card::grpc, "", settings).await;
    for (name, reply, said) in [
        ("another status", GrpcReply::http(502), "HTTP 502"),
        ("another type", GrpcReply::head().header("content-type", "text/html").ok(), "not gRPC"),
        ("no number", GrpcReply::head().trailers(&[("grpc-status", "ok")]), "no number"),
        ("compressed", GrpcReply::head().frame(1, b"x").ok(), "compressed"),
        ("coded", GrpcReply::head().header("grpc-encoding", "gzip").frame(1, b"x").ok(), "compressed"),
        ("too large", GrpcReply::head().bytes(&[0, 0, 1, 0, 0]).stall(), "bytes in one event"),
        ("no protobuf", GrpcReply::messages([vec![0xff; 9]]), "cannot be read"),
        ("within a frame", GrpcReply::head().bytes(&[0, 0, 0, 0, 9, 1]).ok(), "ends within a message"),
        ("no status", GrpcReply::head().trailers(&[("x-other", "1")]), "no gRPC status"),
        ("no trailers", GrpcReply::head(), "no gRPC status"),
        ("refused", GrpcReply::refused(3, "bad"), "it refused: bad"),
        (
            "refused late",
            GrpcReply::head().trailers(&[("grpc-status", "3"), ("grpc-message", "late")]),
            "it refused: late",
        ),
        ("nothing", GrpcReply::head().ok(), "ended too early"),
        ("credentials", GrpcReply::head().trailers(&[("grpc-status", "16")]), "credentials"),
    ] {
        scene.server.on(STREAM, move |_| reply.clone());
        let found = scene.said("x").await;
        assert!(complaint(&found).contains(said), "{name}: {found}");
    }
}

#[tokio::test]
async fn reason_of_a_status_is_read() {
    let scene = plain().await;
    scene.server.on(SEND, answer(SEND, v1::task(RAW_TASK, RAW_CONTEXT, "working")));
    let info = codec::ErrorInfo { reason: "TASK_NOT_FOUND".into(), domain: "a2a-protocol.org".into() };
    let status = codec::GrpcStatus { code: 9, message: "gone".into(), info: Some(info) };
    let details = status.details().unwrap();
    scene.server.on(GET, move |_| {
        GrpcReply::head().trailers(&[("grpc-status", "9"), ("grpc-status-details-bin", &details)])
    });
    assert!(complaint(&scene.said("x").await).contains("does not know this task any more"));
}

#[tokio::test]
async fn agent_without_http2_is_left_for_next_interface() {
    let agent_card = |target: &str| {
        let interface = |url: &str, binding: &str| json!({ "url": url, "protocolBinding": binding, "protocolVersion": "1.0" });
        Card::v1()
            .set("supportedInterfaces", json!([interface(target, "GRPC"), interface("{url}", "JSONRPC")]))
    };
    // The port of the card speaks HTTP/1.1 only.
    let scene = Scene::of(agent_card("{url}").skill("sing").streaming(false), "", "").await;
    scene.agent.on_send(|_| Reply::result(v1::completed(RAW_TASK, RAW_CONTEXT, "the song")));
    assert_eq!(words(&scene.said("x").await), "the song");
    // A target that may not be called.
    let scene = Scene::of(agent_card("127.0.0.1:1").skill("sing").streaming(false), "", "").await;
    scene.agent.on_send(|_| Reply::result(v1::completed(RAW_TASK, RAW_CONTEXT, "the song")));
    assert_eq!(words(&scene.said("x").await), "the song");
}

#[tokio::test]
async fn setting_pins_grpc() {
    let scene = scene_of(
        |target| {
            let grpc = json!({ "url": format!("dns:///{target}"), "protocolBinding": "GRPC", "protocolVersion": "1.0" });
            let rpc = json!({ "url": "{url}", "protocolBinding": "JSONRPC", "protocolVersion": "1.0" });
            Card::v1().set("supportedInterfaces", json!([rpc, grpc])).streaming(false)
        },
        "binding: grpc",
        "",
    )
    .await;
    scene.server.on(SEND, answer(SEND, v1::completed(RAW_TASK, RAW_CONTEXT, "the song")));
    assert_eq!(words(&scene.said("x").await), "the song");
    let shown = scene.gateway.admin().at("/agents").get(&[]).await.json().await;
    assert!(shown.to_string().contains("GRPC"), "{shown}");
}

/// An agent of gRPC behind the A2A endpoint, in one of its two versions.
async fn staged(card: impl Fn(&str) -> Card, settings: &str) -> (Stage, GrpcServer) {
    let server = GrpcServer::start().await;
    let target = server.address().to_string();
    let card = card(&target).skill("sing");
    let stage = Stage::with(card, settings, &format!("    allow_hosts: ['{target}']\n")).await;
    let paths = |service: &str| {
        ["SendMessage", "SendStreamingMessage", "GetTask", "CancelTask"]
            .map(|method| format!("/{service}/{method}"))
    };
    let completed =
        (v1::completed(RAW_TASK, RAW_CONTEXT, "la"), v1::bare_completed(RAW_TASK, RAW_CONTEXT, "la"));
    let older = (
        rest_0_3::completed(RAW_TASK, RAW_CONTEXT, "la"),
        rest_0_3::bare_completed(RAW_TASK, RAW_CONTEXT, "la"),
    );
    for (service, (sent, got)) in [("lf.a2a.v1.A2AService", completed), ("a2a.v1.A2AService", older)] {
        let [send, stream, get, cancel] = paths(service);
        let message = |path: &str, json: &Value| message(path, json);
        let (first, task) = (message(&send, &sent), message(&get, &got));
        let events = vec![message(&stream, &sent)];
        server
            .on(&send, move |_| GrpcReply::messages([first.clone()]))
            .on(&stream, move |_| GrpcReply::messages(events.clone()))
            .on(&get, move |_| GrpcReply::messages([task.clone()]))
            .on(&cancel, |_| GrpcReply::refused(12, "TaskNotCancelableError:%20over"));
    }
    (stage, server)
}

#[tokio::test]
async fn a2a_clients_reach_agent_of_grpc() {
    for (card, is_old) in [(Card::grpc as fn(&str) -> Card, false), (Card::grpc_0_3, true)] {
        for settings in [String::new(), crate::auth::rules::auth(&["ann"])] {
            let (stage, server) = staged(card, &settings).await;
            let client = if settings.is_empty() { stage.client() } else { stage.by("ann") };
            let sent = call(&client, "SendMessage", saying("x")).await.json().await;
            let task = &sent["result"]["task"];
            assert_eq!(task["artifacts"][0]["parts"][0]["text"], "la", "{sent}");
            assert_eq!(task["id"] == RAW_TASK, settings.is_empty(), "{sent}");
            let got = call(&client, "GetTask", json!({ "id": task["id"] })).await.json().await;
            assert_eq!(got["result"]["id"], task["id"], "{got}");
            let refused = call(&client, "CancelTask", json!({ "id": task["id"] })).await.json().await;
            let code = if is_old { -32002 } else { -32601 };
            assert_eq!(refused["error"]["code"], code, "{refused}");
            let mut stream = call(&client, "SendStreamingMessage", saying("x")).await;
            assert_eq!(stream.next_message().await["result"]["task"]["id"], task["id"]);
            // HTTP+JSON of 1.0.
            let headers = [("Content-Type", "application/json"), ("A2A-Version", "1.0")];
            let body = saying("x").to_string().into_bytes();
            let rest = client.at("/a2a/bard/message:send").send("POST", &headers, body).await;
            assert_eq!((rest.status, rest.json().await["task"]["id"].clone()), (200, task["id"].clone()));
            // JSON-RPC of 0.3.
            let message = json!({ "messageId": "m", "role": "user", "kind": "message", "parts": [{ "kind": "text", "text": "x" }] });
            let old = json!({ "jsonrpc": "2.0", "id": 1, "method": "message/send", "params": { "message": message } });
            let sent = client.post(&old, &[]).await.json().await;
            assert_eq!(sent["result"]["artifacts"][0]["parts"][0]["text"], "la", "{sent}");
            let path = if is_old { SEND_0_3 } else { SEND };
            assert_eq!(server.requests(path).len(), 3);
        }
    }
}

/// Each response that is no gRPC is a clear fault for A2A clients of any binding too.
#[tokio::test]
async fn bad_answers_are_faults_of_the_face() {
    let (stage, server) = staged(Card::grpc, "limits: { response: 64KiB, event: 64KiB }\n").await;
    let done = message(SEND, &v1::completed(RAW_TASK, RAW_CONTEXT, "la"));
    let cut = [&[0, 0, 0, 0, 200], &done[..done.len() - 1]].concat();
    let asked = || {
        let mut asked = saying("x");
        asked["tenant"] = "bard".into();
        asked
    };
    let grpc = stage.gateway.client();
    for (name, reply, statuses) in [
        ("another status", GrpcReply::http(502), ["INTERNAL"; 2]),
        (
            "another type",
            GrpcReply::messages([done.clone()]).header("content-type", "text/html"),
            ["INTERNAL"; 2],
        ),
        ("no trailers", GrpcReply::head().message(&done), ["INTERNAL"; 2]),
        ("no status", GrpcReply::head().message(&done).trailers(&[("x-other", "1")]), ["INTERNAL"; 2]),
        ("within a frame", GrpcReply::head().bytes(&cut).ok(), ["INTERNAL"; 2]),
        ("reset", GrpcReply::head().bytes(&cut).reset(), ["INTERNAL"; 2]),
        ("compressed", GrpcReply::head().frame(1, &done).ok(), ["INTERNAL"; 2]),
        ("too large", GrpcReply::head().bytes(&[0, 1, 0, 0, 0]).stall(), ["INTERNAL"; 2]),
        ("no protobuf", GrpcReply::messages([vec![0xff; 9]]), ["INTERNAL"; 2]),
    ] {
        let (of_send, of_stream) = (reply.clone(), reply);
        server.on(SEND, move |_| of_send.clone()).on(STREAM, move |_| of_stream.clone());
        let sent = grpc_call::call(&grpc, V1, Operation::Send, asked()).await.error().await;
        let (streamed, _) = grpc_call::call(&grpc, V1, Operation::Stream, asked()).await.end().await;
        assert_eq!([sent.0, streamed.name()], statuses, "{name}: {streamed:?}");
        let sent = call(&stage.client(), "SendMessage", saying("x")).await.json().await;
        assert_eq!(sent["error"]["code"], -32603, "{name}: {sent}");
        let good = done.clone();
        server.on(SEND, move |_| GrpcReply::messages([good.clone()]));
        let sent = grpc_call::call(&grpc, V1, Operation::Send, asked()).await.only().await;
        assert_eq!(sent["task"]["artifacts"][0]["parts"][0]["text"], "la", "{name}");
    }
}

#[tokio::test]
async fn tenant_and_metadata_travel_with_each_call() {
    let card = |target: &str| {
        let grpc =
            json!({ "url": target, "protocolBinding": "GRPC", "protocolVersion": "1.0", "tenant": "acme" });
        Card::v1().set("supportedInterfaces", json!([grpc])).streaming(false)
    };
    let own = "headers: { X-Team: red, Authorization: Bearer secret-token }";
    let scene = scene_of(card, own, "").await;
    scene.server.on(SEND, answer(SEND, v1::task(RAW_TASK, RAW_CONTEXT, "working")));
    scene.server.on(GET, answer(GET, v1::bare_completed(RAW_TASK, RAW_CONTEXT, "la")));
    assert_eq!(words(&scene.said("x").await), "la");
    for path in [SEND, GET] {
        let [sent] = &scene.server.requests(path)[..] else { panic!("not one request") };
        assert_eq!(asked(sent)["tenant"], "acme", "{path}");
        assert_eq!(
            (sent.header("x-team"), sent.header("authorization")),
            (Some("red"), Some("Bearer secret-token"))
        );
    }
}

#[tokio::test]
async fn agent_of_grpc_is_called_over_tls() {
    let authority = Authority::new("agents");
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, authority.pem()).unwrap();
    let server = GrpcServer::start_tls(server_config(&authority.server_named(&["localhost"]), None)).await;
    let port = server.address().port();
    let own = format!("allow_hosts: ['localhost:{port}']\ntls: {{ ca: {} }}", ca.display());
    let card = Card::grpc(&format!("grpcs://localhost:{port}")).streaming(false).skill("sing");
    let scene = Scene::of(card, &own, "").await;
    server.on(SEND, answer(SEND, v1::completed(RAW_TASK, RAW_CONTEXT, "la")));
    assert_eq!(words(&scene.said("x").await), "la");
}
