//! Agents of A2A 0.3 that are called by HTTP+JSON: a third form of JSON, and no other tools, tasks,
//! questions or errors than by JSON-RPC.

use serde_json::{Value, json};

use crate::kit::quiz::{again, asked_by_form, called, first, key_of, keyed, reply};
use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, Scene, TOOL, complaint, words};
use crate::support::payload::{rest_0_3, v0_3, v1};
use crate::support::{Card, Log, Reply, Request, ScriptedAgent, TestGateway, free_port, in_order};
use crate::tasks::push;

const SEND: &str = "/v1/message:send";
const STREAM: &str = "/v1/message:stream";
const TASK: &str = "/v1/tasks/raw-task-7";
const CANCEL: &str = "/v1/tasks/raw-task-7:cancel";

fn card() -> Card {
    Card::http_json_0_3().skill("sing")
}

async fn scene() -> Scene {
    Scene::of(card(), "", "").await
}

async fn plain() -> Scene {
    Scene::of(card().streaming(false), "", "").await
}

fn asked(log: &Log, verb: &str, path: &str) -> Vec<Request> {
    log.hits(path).into_iter().filter(|request| request.method == verb).cloned().collect()
}

/// An error as the official SDK for Python writes it.
fn refusal(status: u16, message: &str) -> Reply {
    Reply::json(&json!({ "message": message })).with_status(status)
}

#[tokio::test]
async fn call_streams_in_form_of_binding() {
    let scene = scene().await;
    scene.agent.on_path(STREAM, |_| {
        Reply::stream()
            .long_event(&rest_0_3::task(RAW_TASK, RAW_CONTEXT, "submitted"))
            .long_event(&rest_0_3::status_update(RAW_TASK, RAW_CONTEXT, "working", Some("half"), false))
            .long_event(&rest_0_3::artifact_update(RAW_TASK, RAW_CONTEXT, "la ", false, false))
            .long_event(&rest_0_3::artifact_update(RAW_TASK, RAW_CONTEXT, "la", true, true))
            .long_event(&rest_0_3::status_update(RAW_TASK, RAW_CONTEXT, "completed", None, true))
    });
    let done = scene.followed("a song").await;
    assert_eq!(words(&done.response["result"]), "la la");
    assert!(
        done.notifications.iter().any(|note| note.to_string().contains("half")),
        "{:?}",
        done.notifications
    );
    let [sent] = &asked(&scene.agent.log(), "POST", STREAM)[..] else { panic!("not one call") };
    assert_eq!(sent.header("content-type"), Some("application/json"));
    assert_eq!(sent.header("a2a-version"), None);
    let body = sent.json();
    assert_eq!(
        (&body["message"]["role"], &body["message"]["content"]),
        (&json!("ROLE_USER"), &json!([{ "text": "a song" }]))
    );
    assert_eq!(body["configuration"], json!({ "acceptedOutputModes": ["text/plain"], "blocking": true }));
    for absent in ["kind", "parts", "referenceTaskIds"] {
        assert_eq!(body["message"].get(absent), None, "servers refuse members that they do not know");
    }
}

#[tokio::test]
async fn task_is_polled_at_its_path() {
    let scene = plain().await;
    scene.agent.on_path(SEND, |_| {
        Reply::json(&rest_0_3::task("raw task 7", RAW_CONTEXT, "working")).with_status(201)
    });
    scene.agent.on_path(
        "/v1/tasks/raw%20task%207",
        in_order([
            Reply::json(&rest_0_3::bare_task("raw task 7", RAW_CONTEXT, "working")),
            Reply::json(&rest_0_3::bare_completed("raw task 7", RAW_CONTEXT, "the song")),
        ]),
    );
    assert_eq!(words(&scene.said("x").await), "the song");
    let gets = asked(&scene.agent.log(), "GET", "/v1/tasks/raw%20task%207");
    assert_eq!(gets.len(), 2);
    assert_eq!((gets[0].header("content-type"), gets[0].body.len()), (None, 0));
}

#[tokio::test]
async fn data_and_files_keep_their_content() {
    let scene = plain().await;
    scene.agent.on_path(SEND, |_| {
        let mut task = rest_0_3::completed(RAW_TASK, RAW_CONTEXT, "see");
        // The bytes of the base64 text, as most SDKs encode them.
        let file = json!({ "fileWithBytes": "aVZCT1J3MEtHZ289", "mimeType": "image/png", "name": "a.png" });
        let parts = json!([{ "data": { "data": { "data": { "n": 1.5 } } } }, { "file": file }]);
        task["task"]["artifacts"][0]["parts"] = parts;
        Reply::json(&task)
    });
    let arguments = json!({
        "text": "x", "data": { "seat": { "row": 7 } },
        "files": [{ "bytes": "iVBORw0KGgo=", "mediaType": "image/png", "name": "b.png" }],
    });
    let result = scene.call(arguments).await.result().await;
    assert_eq!(result["structuredContent"]["data"], json!([{ "data": { "n": 1.5 } }]), "{result}");
    let image = result["content"].as_array().unwrap().iter().find(|block| block["type"] == "image");
    assert_eq!(image.map(|image| &image["data"]), Some(&json!("iVBORw0KGgo=")), "{result}");
    let sent = asked(&scene.agent.log(), "POST", SEND)[0].json();
    let content = sent["message"]["content"].as_array().unwrap();
    let file =
        json!({ "file": { "name": "b.png", "mimeType": "image/png", "fileWithBytes": "aVZCT1J3MEtHZ289" } });
    assert!(content.contains(&json!({ "data": { "data": { "seat": { "row": 7 } } } })), "{sent}");
    assert!(content.contains(&file), "{sent}");
}

#[tokio::test]
async fn answer_goes_to_the_open_task() {
    let scene = plain().await;
    scene.agent.on_path(SEND, |request| match request.json()["message"].get("taskId") {
        None => Reply::json(&rest_0_3::asking(RAW_TASK, RAW_CONTEXT, "Which colour?")),
        Some(_) => Reply::json(&rest_0_3::completed(RAW_TASK, RAW_CONTEXT, "thank you")),
    });
    scene
        .agent
        .on_path(TASK, |_| Reply::json(&rest_0_3::asking(RAW_TASK, RAW_CONTEXT, "Which colour?")["task"]));
    let client = asked_by_form(&scene.gateway);
    let call = first("paint");
    let question = called(&client, &call).await;
    let told = &question["inputRequests"][key_of(&question)]["params"]["message"];
    assert_eq!(told, "Which colour?");
    let done = called(&client, &again(&call, &question, keyed(&question, reply("blue")))).await;
    assert_eq!(words(&done), "thank you");
    let sent = asked(&scene.agent.log(), "POST", SEND).pop().unwrap().json();
    let message = &sent["message"];
    assert_eq!(
        (&message["taskId"], &message["contextId"], &message["content"]),
        (&json!(RAW_TASK), &json!(RAW_CONTEXT), &json!([{ "text": "blue" }]))
    );
}

#[tokio::test]
async fn task_is_cancelled_by_its_path() {
    let scene = Scene::of(card(), "", "calls: { cancel_grace: 0s }").await;
    scene.agent.on_path(STREAM, |_| {
        Reply::stream().bare_event(&rest_0_3::task(RAW_TASK, RAW_CONTEXT, "working")).stall()
    });
    scene.agent.on_path(CANCEL, |_| {
        Reply::json(&rest_0_3::bare_task(RAW_TASK, RAW_CONTEXT, "canceled")).with_status(202)
    });
    let session = scene.session().await;
    let params = json!({ "name": TOOL, "arguments": { "text": "x" }, "_meta": { "progressToken": 1 } });
    let mut answer =
        session.post(&json!({ "jsonrpc": "2.0", "id": "c", "method": "tools/call", "params": params })).await;
    answer.next_message().await;
    session.notify("notifications/cancelled", json!({ "requestId": "c" })).await;
    let log = scene.agent.wait_for("the cancellation", |log| !log.hits(CANCEL).is_empty()).await;
    assert_eq!(asked(&log, "POST", CANCEL)[0].json(), json!({}));
}

/// A subscription corrupts the task of real agents of 0.3.
#[tokio::test]
async fn broken_stream_is_judged_by_polling() {
    for replied in [
        Reply::stream().bare_event(&rest_0_3::task(RAW_TASK, RAW_CONTEXT, "working")).cut(),
        Reply::stream()
            .bare_event(&rest_0_3::task(RAW_TASK, RAW_CONTEXT, "working"))
            .bytes(b"data: {\r\ndata:   \"statusUp")
            .cut(),
        Reply::stream()
            .bare_event(&rest_0_3::task(RAW_TASK, RAW_CONTEXT, "working"))
            .bytes(b"event: error\ndata: {\"code\":-32603,\"message\":\"broke\"}\n\n"),
    ] {
        let scene = scene().await;
        scene.agent.on_path(STREAM, move |_| replied.clone());
        scene.agent.on_path(TASK, |_| {
            Reply::json(&rest_0_3::bare_completed(RAW_TASK, RAW_CONTEXT, "the song after all"))
        });
        assert_eq!(words(&scene.said("x").await), "the song after all");
        let log = scene.agent.log();
        assert_eq!(log.hits(STREAM).len(), 1, "said once");
        assert!(log.requests.iter().all(|request| !request.path.contains("subscribe")));
    }
}

#[tokio::test]
async fn each_bad_response_has_its_own_words() {
    for (reply, told) in [
        (refusal(422, "no text"), "it refused: no text"),
        (refusal(415, "only songs"), "it refused: only songs"),
        (refusal(501, "Streaming is not supported by the agent"), "it refused: Streaming"),
        (Reply::json(&json!({ "code": -32603, "message": "broke" })).with_status(500), "it refused: broke"),
        (Reply::json(&json!({ "code": -32601, "message": "what?" })).with_status(404), "what?"),
        (
            Reply::json(&json!({ "error": "io.a2a.spec.InvalidParamsError", "message": "odd" }))
                .with_status(422),
            "it refused: odd",
        ),
        (refusal(500, "unknown exception"), "HTTP 500"),
        (refusal(404, "no Route matched with those values"), "HTTP 404"),
        (Reply::json(&json!({ "detail": "Not Found" })).with_status(404), "HTTP 404"),
        (Reply::status(502, "<html>"), "HTTP 502"),
        (Reply::status(403, "no"), "credentials"),
        (Reply::status(200, "<html>"), "neither JSON nor an event stream"),
        (Reply::bytes_of("text/plain", b"{}"), "neither JSON nor an event stream"),
        (Reply::bytes_of("application/json", b"<html>"), "not JSON"),
        (Reply::bytes_of("application/json", b"{\"task\":{\"id\":"), "not JSON"),
        (Reply::bytes_of("application/json", b""), "not JSON"),
        (Reply::json(&json!([])), "not a JSON object"),
        (Reply::json(&json!({ "task": { "id": "t" } })), "a task without status"),
        (Reply::json(&json!({ "message": "hello" })), "neither a task nor a message"),
        (Reply::hang_up(), "cut off"),
    ] {
        let scene = plain().await;
        scene.agent.on_path(SEND, move |_| reply.clone());
        let result = scene.said("x").await;
        assert!(complaint(&result).contains(told), "{told}: {result}");
        assert_eq!(scene.agent.log().hits(SEND).len(), 1, "said once");
    }
}

#[tokio::test]
async fn lost_task_is_known_by_its_words() {
    for gone in [
        refusal(404, "Task not found"),
        Reply::json(&json!({ "code": -32001, "message": "Task not found: raw-task-7" })).with_status(404),
        Reply::json(&json!({ "error": "io.a2a.spec.TaskNotFoundError", "message": "no" })).with_status(404),
    ] {
        let scene = scene().await;
        scene.agent.on_path(STREAM, |_| {
            Reply::stream().bare_event(&rest_0_3::task(RAW_TASK, RAW_CONTEXT, "working")).cut()
        });
        scene.agent.on_path(TASK, move |_| gone.clone());
        assert!(complaint(&scene.said("x").await).contains("does not know this task"));
        assert_eq!(scene.agent.log().hits(TASK).len(), 1);
    }
}

#[tokio::test]
async fn push_config_has_its_resource_names() {
    let agent = ScriptedAgent::start(push::pushing(Card::http_json_0_3())).await;
    let route = format!("/v1/tasks/{RAW_TASK}/pushNotificationConfigs");
    agent.on_path(STREAM, |_| {
        Reply::stream().bare_event(&rest_0_3::task(RAW_TASK, RAW_CONTEXT, "working")).stall()
    });
    agent.on_path(&route, |request| Reply::json(&request.json()["config"]));
    let gateway = push::gateway(&agent, push::ON).await;
    push::begin(&gateway.client().legacy().await, "x").await;
    let log = agent.wait_for("the webhook", |log| !log.hits(&route).is_empty()).await;
    let sent = log.hits(&route)[0].json();
    let id = sent["configId"].as_str().unwrap();
    assert_eq!(
        (&sent["parent"], &sent["config"]["name"]),
        (&json!("tasks/raw-task-7"), &json!(format!("tasks/raw-task-7/pushNotificationConfigs/{id}")))
    );
    let config = &sent["config"]["pushNotificationConfig"];
    assert!(config["url"].as_str().is_some_and(|url| url.contains("/push/")), "{config}");
    assert_eq!((&config["id"], &config["authentication"]["schemes"]), (&json!(id), &json!(["Bearer"])));
}

/// The version, the binding, and the URL of each come from the card.
#[tokio::test]
async fn preferred_transport_is_used_unless_pinned() {
    let other = json!([{ "url": "{url}", "transport": "JSONRPC" }]);
    for (own, words_of, binding) in [
        ("", "by path", "HTTP+JSON"),
        ("binding: http_json", "by path", "HTTP+JSON"),
        ("binding: jsonrpc", "by JSON-RPC", "JSONRPC"),
    ] {
        let scene = Scene::of(card().set("additionalInterfaces", other.clone()), own, "").await;
        scene.agent.on_send(|_| Reply::events([v0_3::message("by JSON-RPC")]));
        scene.agent.on_path(STREAM, |_| Reply::stream().bare_event(&rest_0_3::message("by path")));
        assert_eq!(words(&scene.said("x").await), words_of, "{own}");
        let agents: Value = scene.gateway.admin().at("/agents").get(&[]).await.json().await;
        assert_eq!((&agents[0]["binding"], &agents[0]["protocol"]), (&json!(binding), &json!("0.3")));
        let config = scene.gateway.ports().directory.join("gateway.yaml");
        let config = config.to_str().unwrap();
        let table = TestGateway::run_command(&["agents", "--config", config]).await;
        let table = String::from_utf8_lossy(&table.stdout).into_owned();
        assert!(table.lines().any(|line| line.starts_with("bard") && line.contains(binding)), "{table}");
        let checked = TestGateway::run_command(&["check", "--online", "--config", config]).await;
        let checked = String::from_utf8_lossy(&checked.stdout).into_owned();
        assert!(checked.contains(&format!("agents.bard: A2A 0.3, {binding}")), "{checked}");
    }
}

/// As between endpoints: only a message that was not sent goes to the next interface.
#[tokio::test]
async fn gone_interface_leads_to_the_next() {
    let registrar = ScriptedAgent::start(Card::v1()).await;
    let gone = format!("http://127.0.0.1:{}/", free_port());
    let (old, new) = (ScriptedAgent::start(Card::v1()).await, ScriptedAgent::start(Card::v1()).await);
    old.on_path(STREAM, |_| Reply::stream().bare_event(&rest_0_3::message("by 0.3")));
    new.on_send(|_| Reply::events([v1::message("by 1.0")]));
    let offer = |url: &str, binding: &str, version: &str| json!({ "url": url, "protocolBinding": binding, "protocolVersion": version });
    for (offers, told) in [
        (json!([offer(&gone, "JSONRPC", "1.0"), offer(&old.url(), "HTTP+JSON", "0.3")]), "by 0.3"),
        (json!([offer(&gone, "HTTP+JSON", "1.0"), offer(&new.url(), "JSONRPC", "1.0")]), "by 1.0"),
    ] {
        registrar.set_card(Card::v1().skill("sing").set("supportedInterfaces", offers));
        let gateway = TestGateway::start(|ports| {
            let (listeners, card) = (ports.listeners(), registrar.card_url());
            format!("{listeners}agents:\n  bard:\n    card: {card}\n    allow_hosts: [\"127.0.0.1\"]\n")
        })
        .await;
        let params = json!({ "name": TOOL, "arguments": { "text": "x" } });
        let result = gateway.client().modern("tools/call", params).await.result().await;
        assert_eq!(words(&result), told);
    }
}
