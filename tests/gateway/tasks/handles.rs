//! Calls that do not end at once: the handle that a client gets, and how it goes on with it.

use serde_json::{Value, json};

use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, Scene, TOOL, complaint, task_of, words};
use crate::support::payload::v1;
use crate::support::{Card, Reply, ScriptedAgent, Signal, TestGateway, in_order};

const SHORT: &str = "calls: { budget: 1s, max_rounds: 0, stream_after: 1s }";

fn begun() -> Value {
    v1::task(RAW_TASK, RAW_CONTEXT, "working")
}

/// An agent that says what it does, then works until the signal.
fn slow(scene: &Scene) -> Signal {
    let go = Signal::new();
    let wait = go.clone();
    scene.agent.on_send(move |_| {
        let busy = v1::status_update(RAW_TASK, RAW_CONTEXT, "working", Some("asking the suppliers"));
        let stream = Reply::stream().event(begun()).event(busy).wait(&wait);
        stream
            .event(v1::artifact_update(RAW_TASK, RAW_CONTEXT, "the song", false, true))
            .event(v1::status_update(RAW_TASK, RAW_CONTEXT, "completed", None))
    });
    go
}

/// An agent that asks a question, and is done when it is answered.
fn asking(agent: &ScriptedAgent) {
    agent.on_send(in_order([
        Reply::events([begun(), v1::asking(RAW_TASK, RAW_CONTEXT, "Which colour?")]),
        Reply::events([v1::completed(RAW_TASK, RAW_CONTEXT, "blue it is")]),
    ]));
    agent.on_get(|_| Reply::result(v1::asking(RAW_TASK, RAW_CONTEXT, "Which colour?")["task"].clone()));
}

#[tokio::test]
async fn ended_budget_gives_handle_to_result() {
    let scene = Scene::tuned(SHORT).await;
    let go = slow(&scene);
    let early = scene.said("sing").await;
    let handle = &early["structuredContent"];
    assert_eq!(handle["state"], "working");
    assert_eq!(handle["statusMessage"], "asking the suppliers");
    assert!(handle["contextId"].is_string());
    assert!(!early.to_string().contains("raw-"), "{early}");
    let task = task_of(&early);
    go.fire();
    let late = scene.call(json!({ "taskId": task })).await.result().await;
    assert_eq!(words(&late), "the song");
    assert_eq!(scene.agent.calls("SendStreamingMessage").len(), 1, "nothing is sent twice");
    assert!(scene.agent.calls("SubscribeToTask").is_empty(), "one stream per task");
}

#[tokio::test]
async fn second_wait_can_end_with_same_handle() {
    let scene = Scene::tuned(SHORT).await;
    let go = slow(&scene);
    let task = task_of(&scene.said("sing").await);
    let again = scene.call(json!({ "taskId": task })).await.result().await;
    assert_eq!(task_of(&again), task, "the same task gives the same handle");
    go.fire();
    assert_eq!(words(&scene.call(json!({ "taskId": task })).await.result().await), "the song");
}

#[tokio::test]
async fn legacy_handle_has_known_form() {
    let scene = Scene::tuned(SHORT).await;
    let _go = slow(&scene);
    let session = scene.session().await;
    task_of(&session.call_tool(TOOL, json!({ "text": "x" })).await.result().await);
    let old = scene.gateway.client().legacy_version("2025-03-26").await;
    let result = old.call_tool(TOOL, json!({ "text": "x" })).await.result().await;
    assert_eq!((result.get("structuredContent"), &result["isError"]), (None, &json!(false)));
    assert!(words(&result).contains("taskId="), "{result}");
}

#[tokio::test]
async fn waiting_client_gets_progress_too() {
    let scene = Scene::tuned("calls: { budget: 2s, max_rounds: 0, stream_after: 100ms }").await;
    let (go, then) = (Signal::new(), Signal::new());
    let waits = (go.clone(), then.clone());
    scene.agent.on_send(move |_| {
        let said = |text| v1::status_update(RAW_TASK, RAW_CONTEXT, "working", Some(text));
        let stream = Reply::stream().event(begun()).wait(&waits.0).event(said("second verse"));
        stream.wait(&waits.1).event(v1::status_update(RAW_TASK, RAW_CONTEXT, "completed", None))
    });
    let task = task_of(&scene.said("sing").await);
    let params = json!({ "progressToken": "p" });
    let mut answer = scene.call_with(json!({ "taskId": task }), params).await;
    // Its stream is open, so it listens.
    go.fire();
    let note = answer.next_message().await;
    assert_eq!(note["params"]["message"], "second verse", "{note}");
    then.fire();
    assert_eq!(answer.finish().await.response["result"]["isError"], false);
}

/// A change of the task that is no progress, such as a failed cancellation, repeats no progress.
#[tokio::test]
async fn waiting_client_gets_progress_once() {
    let scene = Scene::tuned("calls: { budget: 2s, max_rounds: 0, stream_after: 100ms }").await;
    let signals: [Signal; 3] = std::array::from_fn(|_| Signal::new());
    let [go, then, last] = signals.clone();
    scene.agent.on_send(move |_| {
        let said = |text| v1::status_update(RAW_TASK, RAW_CONTEXT, "working", Some(text));
        let stream = Reply::stream().event(begun()).wait(&go).event(said("second verse"));
        let stream = stream.wait(&then).event(said("third verse")).wait(&last);
        stream.event(v1::status_update(RAW_TASK, RAW_CONTEXT, "completed", None))
    });
    scene.agent.on_cancel(|_| Reply::error(-32002, "not cancelable"));
    scene.agent.on_get(|_| Reply::result(v1::bare_task(RAW_TASK, RAW_CONTEXT, "working")));
    let task = task_of(&scene.said("sing").await);
    let mut answer = scene.call_with(json!({ "taskId": task }), json!({ "progressToken": "p" })).await;
    signals[0].fire();
    assert_eq!(answer.next_message().await["params"]["message"], "second verse");
    let session = scene.session().await;
    session.call_tool("subagent_cancel", json!({ "taskId": task })).await.result().await;
    signals[1].fire();
    assert_eq!(answer.next_message().await["params"]["message"], "third verse");
    signals[2].fire();
    assert_eq!(answer.finish().await.response["result"]["isError"], false);
}

#[tokio::test]
async fn question_is_passed_on_and_answered() {
    let scene = Scene::new().await;
    asking(&scene.agent);
    let asked = scene.said("paint").await;
    assert_eq!(asked["structuredContent"]["state"], "input-required");
    assert_eq!(asked["structuredContent"]["statusMessage"], "Which colour?");
    assert!(words(&asked).contains("Which colour?"), "{asked}");
    let task = task_of(&asked);
    let answered = scene.call(json!({ "taskId": task, "text": "blue" })).await.result().await;
    assert_eq!(words(&answered), "blue it is");
    // Beside a stream of the task that is still open, the answer needs none of its own.
    let log = scene.agent.log();
    let sent = [log.calls("SendStreamingMessage"), log.calls("SendMessage")].concat();
    assert_eq!(sent.len(), 2);
    let message = sent[1].message();
    assert_eq!((&message["taskId"], &message["contextId"]), (&json!(RAW_TASK), &json!(RAW_CONTEXT)));
    assert_eq!(message["parts"], json!([{ "text": "blue" }]));
}

#[tokio::test]
async fn wait_for_asking_task_returns_question() {
    let scene = Scene::new().await;
    asking(&scene.agent);
    let task = task_of(&scene.said("paint").await);
    let again = scene.call(json!({ "taskId": task })).await.result().await;
    assert!(words(&again).contains("Which colour?"), "{again}");
    assert_eq!(task_of(&again), task);
}

#[tokio::test]
async fn needed_authorization_is_reported() {
    let scene = Scene::tuned(SHORT).await;
    scene.agent.on_send(|_| {
        let ask =
            v1::status_update(RAW_TASK, RAW_CONTEXT, "auth-required", Some("Sign in at https://x.example"));
        Reply::stream().event(begun()).event(ask).stall()
    });
    let result = scene.said("pay").await;
    assert_eq!(result["structuredContent"]["state"], "auth-required");
    assert!(words(&result).contains("Sign in at https://x.example"), "{result}");
    task_of(&result);
}

#[tokio::test]
async fn finished_task_begins_new_one() {
    let scene = Scene::tuned(SHORT).await;
    let go = slow(&scene);
    let task = task_of(&scene.said("sing").await);
    go.open();
    assert_eq!(words(&scene.call(json!({ "taskId": task })).await.result().await), "the song");
    scene.agent.on_get(|_| Reply::result(v1::bare_completed(RAW_TASK, RAW_CONTEXT, "the song")));
    scene.agent.on_send(|_| Reply::events([v1::completed("raw-task-8", RAW_CONTEXT, "encore")]));
    let encore = scene.call(json!({ "taskId": task, "text": "again" })).await.result().await;
    assert_eq!(words(&encore), "encore");
    let message = scene.agent.calls("SendStreamingMessage")[1].message();
    assert_eq!(message.get("taskId"), None, "a finished task takes no messages");
    assert_eq!(message["contextId"], RAW_CONTEXT);
    assert_eq!(message["referenceTaskIds"], json!([RAW_TASK]));
}

#[tokio::test]
async fn conversation_continues_under_its_handle() {
    let scene = Scene::new().await;
    scene.agent.on_send(|_| Reply::events([v1::completed(RAW_TASK, RAW_CONTEXT, "la")]));
    let first = scene.said("sing").await;
    let told = first["content"][1]["text"].as_str().unwrap();
    let context = told.split('"').nth(1).unwrap_or_else(|| panic!("{told}"));
    let again = scene.call(json!({ "text": "more", "contextId": context })).await.result().await;
    assert_eq!(words(&again), "la");
    let message = scene.agent.calls("SendStreamingMessage")[1].message();
    assert_eq!((&message["contextId"], message.get("taskId")), (&json!(RAW_CONTEXT), None));
}

#[tokio::test]
async fn forgotten_task_is_polled() {
    let key = "seal_key: 0123456789abcdef0123456789abcdef";
    let scene = Scene::tuned(&format!("{key}\n{SHORT}")).await;
    let _go = slow(&scene);
    let task = task_of(&scene.said("sing").await);
    // Another gateway with the same key and the same agent, as after a restart.
    scene.agent.on_get(|_| Reply::result(v1::bare_completed(RAW_TASK, RAW_CONTEXT, "kept by the agent")));
    let other = TestGateway::start(|ports| {
        let (listeners, card) = (ports.listeners(), scene.agent.card_url());
        format!("{listeners}{key}\nagents:\n  bard:\n    card: {card}\n")
    })
    .await;
    let params = json!({ "name": TOOL, "arguments": { "taskId": task } });
    let result = other.client().modern("tools/call", params).await.result().await;
    assert_eq!(words(&result), "kept by the agent");
    assert_eq!(scene.agent.calls("GetTask")[0].params()["id"], RAW_TASK);
}

#[tokio::test]
async fn task_lost_by_agent_is_told_to_model() {
    let scene = Scene::new().await;
    asking(&scene.agent);
    let task = task_of(&scene.said("paint").await);
    scene.agent.on_get(|_| Reply::error(-32001, "Task not found"));
    for arguments in [json!({ "taskId": task, "text": "blue" }), json!({ "taskId": task, "text": "red" })] {
        let result = scene.call(arguments).await.result().await;
        assert!(complaint(&result).contains("does not know this task"), "{result}");
    }
    assert_eq!(scene.agent.calls("SendStreamingMessage").len(), 1);
}

#[tokio::test]
async fn foreign_handles_are_unknown() {
    let (bard, poet) = (
        ScriptedAgent::start(Card::v1().skill("sing")).await,
        ScriptedAgent::start(Card::v1().skill("sing")).await,
    );
    let gateway = TestGateway::before(&[("bard", &bard), ("poet", &poet)]).await;
    asking(&bard);
    let client = gateway.client();
    let call = async |tool: &str, arguments: Value| {
        let params = json!({ "name": tool, "arguments": arguments });
        client.modern("tools/call", params).await.result().await
    };
    let task = task_of(&call("bard_sing", json!({ "text": "paint" })).await);
    let stranger = TestGateway::before(&[("bard", &bard)]).await;
    let params = json!({ "name": "bard_sing", "arguments": { "taskId": task } });
    let elsewhere = stranger.client().modern("tools/call", params).await.result().await;
    let mut cut = task.clone();
    cut.pop();
    let flipped = if task.ends_with('A') { 'B' } else { 'A' };
    let same_words = [
        call("poet_sing", json!({ "taskId": task })).await,
        call("bard_sing", json!({ "taskId": RAW_TASK })).await,
        call("bard_sing", json!({ "taskId": cut })).await,
        call("bard_sing", json!({ "taskId": format!("{cut}{flipped}{flipped}") })).await,
        elsewhere,
    ];
    for result in &same_words {
        assert!(complaint(result).starts_with("Unknown taskId"), "{result}");
        assert_eq!(words(result), words(&same_words[0]), "all read the same");
    }
    assert!(poet.calls("GetTask").is_empty() && poet.calls("SendStreamingMessage").is_empty());
}

#[tokio::test]
async fn call_without_task_yet_has_handle_too() {
    let scene = Scene::tuned(SHORT).await;
    let go = Signal::new();
    let wait = go.clone();
    scene.agent.on_send(move |_| Reply::stream().wait(&wait).event(v1::message("at last")));
    let early = scene.said("sing").await;
    let task = task_of(&early);
    go.fire();
    assert_eq!(words(&scene.call(json!({ "taskId": task })).await.result().await), "at last");
}

#[tokio::test]
async fn many_wait_for_task_over_one_stream() {
    let scene = Scene::tuned("calls: { budget: 2s, max_rounds: 0, stream_after: 100ms }").await;
    let go = slow(&scene);
    let task = task_of(&scene.said("sing").await);
    let session = scene.session().await;
    let waiting = json!({ "taskId": task });
    // The streams of both are open, so both wait.
    let modern = scene.call(waiting.clone()).await;
    let legacy = session.call_tool(TOOL, waiting).await;
    assert!(modern.is_stream() && legacy.is_stream());
    go.fire();
    assert_eq!(words(&modern.result().await), "the song");
    assert_eq!(words(&legacy.result().await), "the song");
    let log = scene.agent.log();
    assert_eq!(log.calls("SendStreamingMessage").len() + log.calls("SubscribeToTask").len(), 1, "one stream");
}

#[tokio::test]
async fn unfollowed_call_is_polled() {
    let scene = Scene::tuned(&format!("{SHORT}\nbackground: {{ max: 1 }}")).await;
    let go = slow(&scene);
    let first = task_of(&scene.said("first").await);
    scene.agent.on_send(|_| Reply::stream().event(v1::task("raw-task-8", RAW_CONTEXT, "working")).stall());
    let second = task_of(&scene.said("second").await);
    scene.agent.on_get(|request| {
        let task = request.params()["id"].as_str().unwrap().to_owned();
        Reply::result(v1::bare_completed(&task, RAW_CONTEXT, &format!("{task} is done")))
    });
    let late = scene.call(json!({ "taskId": second })).await.result().await;
    assert_eq!(words(&late), "raw-task-8 is done");
    go.fire();
    assert_eq!(words(&scene.call(json!({ "taskId": first })).await.result().await), "the song");
}

#[tokio::test]
async fn own_schema_tool_continues_too() {
    let own = "skills:\n  sing:\n    input_schema: {type: object, properties: {song: {type: string}}, required: [song], \
               additionalProperties: false}";
    let scene = Scene::of(Card::v1().skill("sing"), own, "").await;
    asking(&scene.agent);
    let task = task_of(&scene.call(json!({ "song": "x" })).await.result().await);
    let answered = scene.call(json!({ "taskId": task, "text": "blue" })).await.result().await;
    assert_eq!(words(&answered), "blue it is");
    // By a stream, or beside the one that asked if that has not ended yet.
    let said = scene.agent.requests();
    let last = said.iter().rfind(|sent| sent.rpc_method().starts_with("Send")).unwrap();
    assert_eq!(last.message()["parts"], json!([{ "text": "blue" }]));
}
