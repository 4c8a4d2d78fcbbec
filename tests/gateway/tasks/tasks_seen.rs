//! Tasks as resources: their content while they run, ask and end; the callers that may not read
//! them; streams and the registry.

use serde_json::{Value, json};

use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, Scene, TOOL, task_of};
use crate::support::payload::v1;
use crate::support::{Card, McpClient, Reply, ScriptedAgent, Signal, TestGateway, in_order, in_time};

const SHORT: &str = "calls: { task_after: 100ms }";
const KEY: &str = "seal_key: 0123456789abcdef0123456789abcdef";

/// A client that knows the tasks extension.
pub(crate) fn keeper(gateway: &TestGateway) -> McpClient {
    gateway.client().capabilities(json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } }))
}

/// An agent that names its task and says what it does; then it sends these events one after the
/// other, each upon its signal.
pub(crate) fn works(agent: &ScriptedAgent, then: Vec<(Signal, Vec<Value>)>) {
    agent.on_send(move |_| {
        let busy = v1::status_update(RAW_TASK, RAW_CONTEXT, "working", Some("on it"));
        let begun = Reply::stream().event(v1::task(RAW_TASK, RAW_CONTEXT, "working")).event(busy);
        then.iter().fold(begun, |stream, (go, events)| {
            events.iter().fold(stream.wait(go), |stream, event| stream.event(event.clone()))
        })
    });
}

/// The end of the work.
pub(crate) fn done() -> Value {
    v1::status_update(RAW_TASK, RAW_CONTEXT, "completed", Some("that was it"))
}

/// Begins work that is handed out as a task; returns its handle.
pub(crate) async fn begin(gateway: &TestGateway) -> String {
    let params = json!({ "name": TOOL, "arguments": { "text": "x" } });
    let created = keeper(gateway).modern("tools/call", params).await.result().await;
    assert_eq!(created["resultType"], "task", "{created}");
    created["taskId"].as_str().unwrap().to_owned()
}

/// Reads a resource; the contents as they come.
async fn read(gateway: &TestGateway, uri: &str) -> Value {
    let result = gateway.client().modern("resources/read", json!({ "uri": uri })).await.result().await;
    assert_eq!((&result["ttlMs"], &result["cacheScope"]), (&json!(0), &json!("private")), "{result}");
    assert_eq!(result["contents"][0]["uri"], uri, "the name that was asked for");
    assert!(!result.to_string().contains("raw-"), "{result}");
    result["contents"].clone()
}

/// Reads a resource of one JSON text.
pub(crate) async fn json_of(gateway: &TestGateway, uri: &str) -> Value {
    let contents = read(gateway, uri).await;
    assert_eq!(contents[0]["mimeType"], "application/json");
    serde_json::from_str(contents[0]["text"].as_str().unwrap()).unwrap()
}

/// Reads until it is so.
async fn becomes(gateway: &TestGateway, uri: &str, state: &str) -> Value {
    in_time(&format!("{uri} to be {state}"), async {
        loop {
            let task = json_of(gateway, uri).await;
            if task["state"] == state {
                break task;
            }
        }
    })
    .await
}

#[tokio::test]
async fn task_is_readable_during_and_after_run() {
    let scene = Scene::tuned(SHORT).await;
    let go = Signal::new();
    let made = v1::artifact_update(RAW_TASK, RAW_CONTEXT, "the song", false, true);
    works(&scene.agent, vec![(go.clone(), vec![made, done()])]);
    let task = begin(&scene.gateway).await;
    for uri in [format!("a2a://task/{task}"), format!("a2a://tasks/{task}")] {
        let running = becomes(&scene.gateway, &uri, "working").await;
        assert_eq!((&running["taskId"], &running["agent"]), (&json!(task), &json!("bard")));
        assert_eq!(running["taskUri"], format!("a2a://task/{task}"), "{running}");
        assert_eq!((&running["statusMessage"], &running["artifacts"]), (&json!("on it"), &json!([])));
        assert!(running["contextId"].is_string() && running["createdAt"].is_string(), "{running}");
    }
    go.fire();
    let ended = becomes(&scene.gateway, &format!("a2a://tasks/{task}"), "completed").await;
    assert_eq!(ended["statusMessage"], "that was it");
    let artifact = &ended["artifacts"][0];
    assert_eq!(
        (&artifact["name"], &artifact["parts"]),
        (&json!("report.txt"), &json!([{ "text": "the song" }]))
    );
    let contents = read(&scene.gateway, artifact["uri"].as_str().unwrap()).await;
    assert_eq!((&contents[0]["mimeType"], &contents[0]["text"]), (&json!("text/plain"), &json!("the song")));
    let session = scene.session().await;
    let params = json!({ "uri": format!("a2a://task/{task}") });
    let legacy = session.call("resources/read", params).await.result().await;
    assert_eq!(legacy.get("ttlMs"), None);
    assert!(scene.agent.calls("GetTask").is_empty(), "what is followed is not asked for");
}

#[tokio::test]
async fn open_question_is_readable() {
    let scene = Scene::tuned(SHORT).await;
    let asking = || v1::asking(RAW_TASK, RAW_CONTEXT, "Which colour?");
    scene.agent.on_send(move |_| Reply::events([v1::task(RAW_TASK, RAW_CONTEXT, "working"), asking()]));
    scene.agent.on_get(move |_| Reply::result(asking()["task"].clone()));
    let task = task_of(&scene.said("paint").await);
    let read = json_of(&scene.gateway, &format!("a2a://task/{task}")).await;
    assert_eq!((&read["state"], &read["statusMessage"]), (&json!("input-required"), &json!("Which colour?")));
    assert_eq!(read["message"], json!({ "role": "agent", "parts": [{ "text": "Which colour?" }] }));
}

#[tokio::test]
async fn task_lost_by_agent_is_failed() {
    let scene = Scene::tuned(SHORT).await;
    scene.agent.on_send(|_| Reply::events([v1::task(RAW_TASK, RAW_CONTEXT, "working")]));
    scene.agent.on_get(in_order([
        Reply::result(v1::bare_task(RAW_TASK, RAW_CONTEXT, "working")),
        Reply::error(-32001, "Task not found"),
    ]));
    scene.agent.on_subscribe(|_| Reply::error(-32001, "Task not found"));
    let task = begin(&scene.gateway).await;
    let lost = becomes(&scene.gateway, &format!("a2a://task/{task}"), "failed").await;
    assert!(lost["statusMessage"].as_str().unwrap().contains("does not know this task"), "{lost}");
}

#[tokio::test]
async fn large_artifacts_are_read_separately() {
    let scene = Scene::tuned(SHORT).await;
    let large = "é".repeat(100_000);
    let artifacts = json!([
        { "artifactId": "raw/large", "parts": [{ "text": large }] },
        { "artifactId": "picture", "parts": [{ "raw": "iVBORw0KGgo=", "mediaType": "image/png" }] },
    ]);
    let mut ended = v1::bare_task(RAW_TASK, RAW_CONTEXT, "completed");
    ended["artifacts"] = artifacts;
    let go = Signal::new();
    works(&scene.agent, vec![(go.clone(), vec![json!({ "task": ended })])]);
    let task = begin(&scene.gateway).await;
    go.fire();
    let seen = in_time("the end of the task", async {
        loop {
            let params = json!({ "uri": format!("a2a://task/{task}") });
            let read = scene.gateway.client().modern("resources/read", params).await.result().await;
            let seen: Value = serde_json::from_str(read["contents"][0]["text"].as_str().unwrap()).unwrap();
            if seen["state"] == "completed" {
                break seen;
            }
        }
    })
    .await;
    for (artifact, bytes) in [(0, 200_000), (1, 12)] {
        let artifact = &seen["artifacts"][artifact];
        assert_eq!((artifact.get("parts"), &artifact["bytes"]), (None, &json!(bytes)), "{artifact}");
    }
    let uri = |at: usize| seen["artifacts"][at]["uri"].as_str().unwrap().to_owned();
    assert!(uri(0).ends_with("/artifacts/raw%2Flarge"), "{}", uri(0));
    let params = json!({ "uri": uri(0) });
    let read_large = scene.gateway.client().modern("resources/read", params).await.result().await;
    assert_eq!(read_large["contents"][0]["text"], large);
    let picture = read(&scene.gateway, &uri(1)).await;
    assert_eq!((&picture[0]["mimeType"], &picture[0]["blob"]), (&json!("image/png"), &json!("iVBORw0KGgo=")));
}

#[tokio::test]
async fn missing_and_foreign_read_alike() {
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    let other = ScriptedAgent::start(Card::v1().skill("count")).await;
    let gateways = [(); 2].map(|()| {
        let (card, other) = (agent.card_url(), other.card_url());
        TestGateway::start(move |ports| {
            let listeners = ports.listeners();
            format!(
                "{listeners}{SHORT}\n{KEY}\nagents:\n  bard:\n    card: {card}\n  clerk:\n    card: {other}\n"
            )
        })
    });
    let [first, second] = gateways;
    let (first, second) = tokio::join!(first, second);
    works(&agent, vec![(Signal::new(), vec![])]);
    agent.on_get(in_order([
        Reply::error(-32001, "Task not found"),
        Reply::result(v1::bare_task(RAW_TASK, RAW_CONTEXT, "completed")),
    ]));
    let task = begin(&first).await;
    let context = json_of(&first, &format!("a2a://task/{task}")).await["contextId"].clone();
    let context = context.as_str().unwrap().to_owned();
    let (head, last) = task.split_at(task.len() - 1);
    let tampered = format!("{head}{}", if last == "A" { "B" } else { "A" });
    let refused = |gateway: &TestGateway, path: &str, uri: String| {
        let client = gateway.client().at(path);
        async move {
            let answer = client.modern("resources/read", json!({ "uri": uri })).await;
            let (status, mut error) = (answer.status, answer.json().await["error"].take());
            assert_eq!(error["data"]["uri"], uri);
            error["data"]["uri"].take();
            let message = error["message"].as_str().unwrap().replace(&uri, "URI");
            (status, error["code"].as_i64().unwrap(), message)
        }
    };
    let nothing = refused(&first, "/mcp", "a2a://task/made-up".to_owned()).await;
    assert_eq!((nothing.0, nothing.1), (200, -32602));
    for uri in [
        format!("a2a://task/{tampered}"),
        format!("a2a://task/{context}"),
        format!("a2a://tasks/{tampered}/artifacts/report"),
        format!("a2a://task/{task}/artifacts/nothing"),
        format!("a2a://streams/{tampered}"),
        "a2a://task/".to_owned(),
        "a2a://agents/bard".to_owned(),
    ] {
        assert_eq!(refused(&first, "/mcp", uri.clone()).await, nothing, "{uri}");
    }
    let uri = format!("a2a://task/{task}");
    assert_eq!(refused(&first, "/mcp/clerk", uri.clone()).await, nothing, "another agent's endpoint");
    assert_eq!(refused(&second, "/mcp", uri.clone()).await, nothing, "the agent has lost it");
    assert_eq!(json_of(&second, &uri).await["state"], "completed", "any replica asks the agent");
}

#[tokio::test]
async fn live_stream_is_read_by_handle() {
    let scene = Scene::tuned(SHORT).await;
    let go = Signal::new();
    works(&scene.agent, vec![(go.clone(), vec![done()])]);
    let task = begin(&scene.gateway).await;
    let stream = json_of(&scene.gateway, &format!("a2a://streams/{task}")).await;
    assert_eq!((&stream["id"], &stream["followed"]), (&json!(task), &json!(true)), "{stream}");
    assert_eq!(
        (&stream["taskUri"], &stream["state"]),
        (&json!(format!("a2a://task/{task}")), &json!("working"))
    );
    assert!(stream["watchers"].is_u64() && stream["since"].is_string(), "{stream}");
    // Anonymous callers share one name.
    assert_eq!(json_of(&scene.gateway, "a2a://streams").await, json!({ "streams": [] }));
    let list = scene.gateway.client().modern("resources/list", json!({})).await.result().await;
    let uris: Vec<&str> =
        list["resources"].as_array().unwrap().iter().map(|listed| listed["uri"].as_str().unwrap()).collect();
    assert_eq!(uris, ["a2a-agent://bard", "a2a://agents/registry", "a2a://streams"]);
    go.fire();
    let over = becomes(&scene.gateway, &format!("a2a://streams/{task}"), "completed").await;
    assert_eq!(over["id"], json!(task));
}

#[tokio::test]
async fn registry_names_every_agent() {
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    let down = ScriptedAgent::start(Card::v1()).await;
    let lost = down.card_url();
    down.stop().await;
    let gateway = TestGateway::start(|ports| {
        let (listeners, card) = (ports.listeners(), agent.card_url());
        format!("{listeners}agents:\n  bard:\n    card: {card}\n  clerk:\n    card: {lost}?key=secret\n")
    })
    .await;
    let registry = json_of(&gateway, "a2a://agents/registry").await;
    assert_eq!(
        registry["totals"],
        json!({ "agents": 2, "ready": 1, "unreachable": 1, "unusable": 0, "unknown": 0 })
    );
    let (bard, clerk) = (&registry["agents"][0], &registry["agents"][1]);
    assert_eq!((&bard["name"], &bard["status"]), (&json!("bard"), &json!("healthy")));
    assert_eq!(bard["url"], agent.url());
    assert_eq!((&bard["agentType"], &bard["capabilities"]), (&json!("bard"), &json!(["streaming", "sing"])));
    assert_eq!(bard["agentCard"]["skills"][0]["id"], "sing");
    let discovery = &registry["discovery"];
    assert_eq!((&discovery["totalAgents"], &discovery["healthyAgents"]), (&json!(2), &json!(1)));
    assert_eq!(discovery["lastScan"], bard["lastSeen"]);
    assert!(bard["lastSeen"].as_str().unwrap().ends_with('Z'), "{bard}");
    assert_eq!(
        (&clerk["name"], &clerk["status"], &clerk["lastSeen"]),
        (&json!("clerk"), &json!("unreachable"), &Value::Null)
    );
    assert_eq!(clerk["url"], lost, "without its query");
    let endpoint = gateway.client_of("bard");
    let read =
        endpoint.modern("resources/read", json!({ "uri": "a2a://agents/registry" })).await.result().await;
    assert!(!read.to_string().contains("clerk"), "{read}");
}
