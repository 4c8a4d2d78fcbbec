//! Being told of tasks: of resources and of tasks themselves, on the stream of a session and on
//! `subscriptions/listen`.

use std::time::Instant;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::auth::callers::{NEW, keys};
use crate::kit::quiz::{KEY, gateway_before};
use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, Scene, TOOL};
use crate::support::payload::v1;
use crate::support::{
    Answer, Card, LegacySession, McpClient, Reply, ScriptedAgent, Signal, TestGateway, in_time,
};
use crate::tasks::tasks_seen::{begin, done, json_of, keeper, works};

const SHORT: &str = "calls: { task_after: 100ms }";
const UPDATED: &str = "notifications/resources/updated";
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// A `subscriptions/listen`, and what it promises.
async fn listen(client: &McpClient, wanted: Value) -> (Answer, Value) {
    let mut answer = client.modern("subscriptions/listen", json!({ "notifications": wanted })).await;
    assert!(answer.is_stream(), "{}", answer.status);
    let first = answer.next_message().await;
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged", "{first}");
    let honoured = first["params"]["notifications"].clone();
    (answer, honoured)
}

/// The next message of this method.
async fn next(stream: &mut Answer, method: &str) -> Value {
    loop {
        let message = stream.next_message().await;
        if message["method"] == method {
            return message["params"].clone();
        }
    }
}

async fn subscribe(session: &LegacySession, uri: &str) {
    let answer = session.call("resources/subscribe", json!({ "uri": uri })).await;
    assert_eq!(answer.result().await, json!({}), "{uri}");
}

/// Chunks of an artifact, and the end.
fn many(chunks: usize) -> Vec<Value> {
    let chunk = |at: usize| v1::artifact_update(RAW_TASK, RAW_CONTEXT, &format!("{at} "), at > 0, false);
    (0..chunks).map(chunk).chain([done()]).collect()
}

#[tokio::test]
async fn session_hears_before_stream_too() {
    let scene = Scene::tuned(SHORT).await;
    let (first, second) = (Signal::new(), Signal::new());
    let verse = v1::status_update(RAW_TASK, RAW_CONTEXT, "working", Some("second verse"));
    works(&scene.agent, vec![(first.clone(), vec![verse]), (second.clone(), vec![done()])]);
    let task = begin(&scene.gateway).await;
    let session = scene.session().await;
    let alias = format!("a2a://tasks/{task}");
    subscribe(&session, &alias).await;
    let mut stream = session.listen(None).await;
    first.fire();
    assert_eq!(next(&mut stream, UPDATED).await, json!({ "uri": alias }), "the name that was subscribed to");
    assert_eq!(json_of(&scene.gateway, &alias).await["statusMessage"], "second verse");
    let late = [format!("a2a://task/{task}/artifacts/report"), format!("a2a://streams/{task}")];
    for uri in &late {
        subscribe(&session, uri).await;
    }
    // At once: an event right after the answer is told.
    second.fire();
    let mut open: Vec<&str> = late.iter().map(String::as_str).chain([alias.as_str()]).collect();
    in_time("an update of each", async {
        while !open.is_empty() {
            let told = next(&mut stream, UPDATED).await;
            open.retain(|uri| told["uri"] != **uri);
        }
    })
    .await;
}

#[tokio::test]
async fn subscription_needs_read_permission() {
    let scene = Scene::tuned(SHORT).await;
    let session = scene.session().await;
    for uri in ["a2a://task/made-up", "a2a://streams/made-up", "a2a://task/", "a2a-agent://nobody", "a2a://x"]
    {
        let refused = session.call("resources/subscribe", json!({ "uri": uri })).await;
        assert_eq!((refused.status, refused.error_code().await), (200, -32002), "{uri}");
    }
    for uri in ["a2a://agents/registry", "a2a://streams", "a2a-agent:///bard", "test://watched-resource"] {
        subscribe(&session, uri).await;
    }
}

#[tokio::test]
async fn last_state_is_told_in_any_burst() {
    let scene = Scene::tuned(SHORT).await;
    let go = Signal::new();
    works(&scene.agent, vec![(go.clone(), many(200))]);
    let task = begin(&scene.gateway).await;
    let uri = format!("a2a://task/{task}");
    let (mut stream, honoured) =
        listen(&scene.gateway.client(), json!({ "resourceSubscriptions": [uri, uri] })).await;
    assert_eq!(honoured, json!({ "resourceSubscriptions": [uri] }), "each once");
    go.fire();
    let read = loop {
        next(&mut stream, UPDATED).await;
        let read = json_of(&scene.gateway, &uri).await;
        if read["state"] == "completed" {
            break read;
        }
    };
    assert!(read["artifacts"][0]["parts"].to_string().contains("199 "), "the last chunk is there: {read}");
}

#[tokio::test]
async fn two_hundred_chunks_are_a_few_updates() {
    let scene = Scene::tuned(SHORT).await;
    let go = Signal::new();
    works(&scene.agent, many(200).into_iter().map(|chunk| (go.clone(), vec![chunk])).collect());
    let task = begin(&scene.gateway).await;
    let uri = format!("a2a://task/{task}");
    let wanted = json!({ "resourceSubscriptions": [uri], "taskIds": [task] });
    let (mut stream, _) = listen(&keeper(&scene.gateway), wanted).await;
    let begun = Instant::now();
    for chunk in 0..200 {
        go.fire();
        let is_there = |read: &Value| read["artifacts"].to_string().contains(&format!("{chunk} "));
        in_time("the chunk", async { while !is_there(&json_of(&scene.gateway, &uri).await) {} }).await;
    }
    go.fire();
    let mut told = 0;
    loop {
        let message = stream.next_message().await;
        told += u128::from(message["method"] == UPDATED);
        if message["params"]["status"] == "completed" {
            break;
        }
    }
    let most = begun.elapsed().as_millis() / 50 + 2;
    assert!(0 < told && told <= most, "{told} updates where {most} may be");
}

#[tokio::test]
async fn extension_client_hears_own_tasks() {
    let scene = Scene::tuned(SHORT).await;
    let go = Signal::new();
    works(&scene.agent, vec![(go.clone(), many(3))]);
    let task = begin(&scene.gateway).await;
    let wanted =
        json!({ "taskIds": [task, "made-up"], "resourceSubscriptions": ["a2a://task/made-up", "test://x"] });
    let refused =
        scene.gateway.client().modern("subscriptions/listen", json!({ "notifications": wanted })).await;
    assert_eq!(refused.status, 400);
    let error = refused.json().await["error"].clone();
    assert_eq!(error["code"], -32021);
    assert!(error["data"]["requiredCapabilities"]["extensions"]["io.modelcontextprotocol/tasks"].is_object());
    let (mut stream, honoured) = listen(&keeper(&scene.gateway), wanted).await;
    assert_eq!(honoured, json!({ "taskIds": [task] }));
    let present = stream.next_message().await;
    assert_eq!(present["method"], "notifications/tasks", "{present}");
    let present = &present["params"];
    assert_eq!((&present["taskId"], &present["status"]), (&json!(task), &json!("working")));
    assert_eq!((&present["statusMessage"], present.get("resultType")), (&json!("on it"), None));
    assert!(present["_meta"][SUBSCRIPTION].is_number(), "{present}");
    go.fire();
    let ended = next(&mut stream, "notifications/tasks").await;
    assert_eq!(
        (&ended["taskId"], &ended["status"]),
        (&json!(task), &json!("completed")),
        "nothing in between is news"
    );
    assert_eq!(ended["result"]["content"][0]["text"], "0 1 2 ");
    let over = listen(&keeper(&scene.gateway), json!({ "taskIds": [task] })).await;
    let (mut late, _) = over;
    assert_eq!(
        next(&mut late, "notifications/tasks").await["status"],
        "completed",
        "a task that is over, too"
    );
}

#[tokio::test]
async fn session_hears_of_core_tasks_it_began() {
    let scene = Scene::tuned(SHORT).await;
    let go = Signal::new();
    works(&scene.agent, vec![(go.clone(), vec![done()])]);
    let session = scene.session().await;
    let mut stream = session.listen(None).await;
    let params = json!({ "name": TOOL, "arguments": { "text": "x" }, "task": {} });
    let created = session.call("tools/call", params).await.result().await;
    let task = created["task"]["taskId"].clone();
    go.fire();
    let told = in_time("the end of the task", async {
        loop {
            let told = next(&mut stream, "notifications/tasks/status").await;
            assert_eq!(told["taskId"], task);
            if told["status"] != "working" {
                break told;
            }
        }
    });
    let told = told.await;
    assert_eq!((&told["status"], &told["statusMessage"]), (&json!("completed"), &json!("that was it")));
    assert!(told["ttl"].is_u64() && told.get("_meta").is_none(), "{told}");
}

#[tokio::test]
async fn listeners_share_agent_stream() {
    const LISTENERS: usize = 200;
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    let card = agent.card_url();
    let start = || {
        TestGateway::start(|ports| {
            let key = "seal_key: 0123456789abcdef0123456789abcdef";
            format!("{}{SHORT}\n{key}\nagents:\n  bard:\n    card: {card}\n", ports.listeners())
        })
    };
    let (first, second) = tokio::join!(start(), start());
    let go = Signal::new();
    works(&agent, vec![(go.clone(), vec![done()])]);
    let wait = go.clone();
    agent.on_subscribe(move |_| {
        Reply::stream().event(v1::task(RAW_TASK, RAW_CONTEXT, "working")).wait(&wait).event(done())
    });
    agent.on_get(|_| Reply::result(v1::bare_task(RAW_TASK, RAW_CONTEXT, "working")));
    let task = begin(&first).await;
    for gateway in [&first, &second] {
        let mut listeners = JoinSet::new();
        for number in 0..LISTENERS {
            let (client, task) = (keeper(gateway), task.clone());
            let uri = format!("a2a://task/{task}");
            let wanted = if number % 2 == 0 {
                json!({ "taskIds": [task] })
            } else {
                json!({ "resourceSubscriptions": [uri] })
            };
            listeners.spawn(async move {
                let (stream, honoured) = listen(&client, wanted.clone()).await;
                assert_eq!(honoured, wanted);
                (stream, number % 2 == 0)
            });
        }
        let mut streams = listeners.join_all().await;
        if gateway.address() == first.address() {
            assert_eq!(agent.calls("SubscribeToTask").len(), 0, "the stream of the call goes on");
            drop(streams);
            continue;
        }
        // The second gateway knows the task by its handle only.
        agent.wait_for_call("SubscribeToTask").await;
        go.open();
        for (stream, is_task) in &mut streams {
            let method = if *is_task { "notifications/tasks" } else { UPDATED };
            while next(stream, method).await["status"] == "working" {}
        }
    }
    let log = agent.log();
    assert_eq!(log.calls("SendStreamingMessage").len(), 1);
    assert_eq!(log.calls("SubscribeToTask").len(), 1, "one stream, however many listen");
    assert!(log.calls("GetTask").len() <= 3, "{} questions", log.calls("GetTask").len());
}

#[tokio::test]
async fn registry_subscriber_hears_of_gone_agent() {
    let settings = "cards: { min_refresh: 1s, max_refresh: 1s, retry: 100ms }";
    let scene = Scene::of(Card::v1().skill("sing"), "", settings).await;
    let wanted = json!({ "resourceSubscriptions": ["a2a://agents/registry", "a2a://streams"] });
    let (mut stream, honoured) = listen(&scene.gateway.client(), wanted).await;
    assert_eq!(honoured, json!({ "resourceSubscriptions": ["a2a://agents/registry"] }), "what can be told");
    let Scene { agent, gateway } = scene;
    agent.stop().await;
    assert_eq!(next(&mut stream, UPDATED).await["uri"], "a2a://agents/registry");
    let registry = json_of(&gateway, "a2a://agents/registry").await;
    assert_eq!(registry["agents"][0]["status"], "unreachable");
    assert!(registry["agents"][0]["lastSeen"].is_string(), "{registry}");
}

/// `a2a://streams` is a list: its subscribers hear when there is another entry to read.
#[tokio::test]
async fn caller_hears_of_its_streams() {
    let scene = Scene::tuned(&format!("{}{SHORT}\n", keys(""))).await;
    let go = Signal::new();
    let wait = go.clone();
    scene.agent.on_stream(move |_| {
        Reply::stream().event(v1::task(RAW_TASK, RAW_CONTEXT, "working")).wait(&wait).event(done())
    });
    let mine = scene.gateway.client().header("X-Api-Key", NEW).with_tasks();
    let streams = async || {
        let read = mine.modern("resources/read", json!({ "uri": "a2a://streams" })).await.result().await;
        let list: Value = serde_json::from_str(read["contents"][0]["text"].as_str().unwrap()).unwrap();
        list["streams"].as_array().unwrap().len()
    };
    let listed = mine.modern("resources/list", json!({})).await.text().await;
    assert!(listed.contains("\"a2a://streams\""), "{listed}");
    let wanted = json!({ "resourceSubscriptions": ["a2a://streams"] });
    let (mut modern, honoured) = listen(&mine, wanted.clone()).await;
    assert_eq!(honoured["resourceSubscriptions"], json!(["a2a://streams"]));
    let session = mine.legacy().await;
    subscribe(&session, "a2a://streams").await;
    let mut legacy = session.listen(None).await;
    let made =
        mine.modern("tools/call", json!({ "name": TOOL, "arguments": { "text": "x" } })).await.result().await;
    assert!(made["taskId"].is_string(), "{made}");
    for stream in [&mut modern, &mut legacy] {
        assert_eq!(next(stream, UPDATED).await["uri"], "a2a://streams");
    }
    assert_eq!(streams().await, 1);
    go.fire();
    for stream in [&mut modern, &mut legacy] {
        in_time("the end to be told", async {
            while streams().await > 0 {
                assert_eq!(next(stream, UPDATED).await["uri"], "a2a://streams");
            }
        })
        .await;
    }
}

/// A gateway that keeps what `keep` says, and an agent that subscribes anew after a restart.
async fn restarted(agent: &ScriptedAgent, keep: &str) -> TestGateway {
    gateway_before(agent, &format!("{SHORT}\n{KEY}\n{keep}")).await
}

#[tokio::test]
async fn stored_subscription_outlives_gateway() {
    let (agent, folder) = (ScriptedAgent::start(Card::v1().skill("sing")).await, TempDir::new().unwrap());
    let keep = format!("tasks: {{ data_dir: {} }}", folder.path().join("data").display());
    let gateway = restarted(&agent, &keep).await;
    works(&agent, vec![(Signal::new(), vec![done()])]);
    let task = begin(&gateway).await;
    let session = gateway.client().legacy().await;
    let (uri, taken_back) = (format!("a2a://task/{task}"), format!("a2a://streams/{task}"));
    subscribe(&session, &uri).await;
    subscribe(&session, &taken_back).await;
    session.call("resources/unsubscribe", json!({ "uri": taken_back })).await.result().await;
    // Killed.
    drop(gateway);
    let go = Signal::new();
    let wait = go.clone();
    agent.on_get(|_| Reply::result(v1::bare_task(RAW_TASK, RAW_CONTEXT, "working")));
    agent.on_subscribe(move |_| {
        Reply::stream().event(v1::task(RAW_TASK, RAW_CONTEXT, "working")).wait(&wait).event(done())
    });
    let gateway = restarted(&agent, &keep).await;
    let mut stream = session.stolen_by(&gateway.client()).listen(None).await;
    go.fire();
    assert_eq!(in_time("an update", next(&mut stream, UPDATED)).await, json!({ "uri": uri }));
}

#[tokio::test]
async fn session_hears_of_lost_subscriptions() {
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    let gateway = restarted(&agent, "").await;
    let session = gateway.client().legacy().await;
    subscribe(&session, "a2a://agents/registry").await;
    drop(gateway);
    let gateway = restarted(&agent, "").await;
    let session = session.stolen_by(&gateway.client());
    let mut stream = session.listen(None).await;
    let told = in_time("a message", next(&mut stream, "notifications/message")).await;
    assert_eq!(told["level"], "warning");
    assert!(told["data"].to_string().contains("subscribe to them again"), "{told}");
    next(&mut stream, "notifications/resources/list_changed").await;
    // Once it has done so, and in a session of now: no more.
    subscribe(&session, "a2a://agents/registry").await;
    let mut again = session.listen(None).await;
    let mut fresh = gateway.client().legacy().await.listen(None).await;
    gateway.signal("TERM");
    for stream in [&mut again, &mut fresh] {
        while let Some(event) = stream.next_event().await {
            assert!(!event.data.unwrap_or_default().contains("notifications/message"));
        }
    }
}
