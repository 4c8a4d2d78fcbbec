//! Gateways that are killed: promised results are there again, and no message is sent to an agent
//! twice.
//!
//! A gateway that is dropped is killed (SIGKILL). Out of scope: a gateway that ends in order (see
//! `shutdown`).

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::kit::quiz::{
    KEY, again, answers, asked_by_form, begun, called, first, gateway_before, keyed, reply,
};
use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, TOOL, complaint, task_of, words};
use crate::support::payload::v1;
use crate::support::{Card, LegacySession, Reply, ScriptedAgent, Signal, TestGateway, free_port, in_time};

const SHORT: &str =
    "calls: { budget: 1s, stream_after: 1s, max_rounds: 0 }\nstreams: { retry_base: 50ms, retry_max: 100ms }";

/// An agent, and the folder that its gateways keep.
struct Place {
    agent: ScriptedAgent,
    folder: TempDir,
}

impl Place {
    async fn new() -> Self {
        let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
        Self { agent, folder: TempDir::new().unwrap() }
    }

    fn settings(&self) -> String {
        format!("{SHORT}\ntasks: {{ data_dir: {} }}", self.folder.path().join("data").display())
    }

    async fn gateway(&self) -> TestGateway {
        gateway_before(&self.agent, &self.settings()).await
    }

    /// Another task gets its handle: everything before that is on disk.
    async fn settle(&self, gateway: &TestGateway) {
        let other = v1::task("raw-task-other", "raw-context-other", "working");
        self.agent.on_send(move |_| Reply::stream().event(other.clone()).stall());
        task_of(&said(gateway, "something else").await);
    }
}

/// The result of a call that says only this.
async fn said(gateway: &TestGateway, text: &str) -> Value {
    called(&gateway.client(), &first(text)).await
}

/// The result of waiting for a task.
async fn awaited(gateway: &TestGateway, task: &str) -> Value {
    called(&gateway.client(), &json!({ "name": TOOL, "arguments": { "taskId": task } })).await
}

/// An agent that begins, and completes at the signal.
fn slow(agent: &ScriptedAgent) -> Signal {
    let go = Signal::new();
    let wait = go.clone();
    agent.on_send(move |_| {
        let chunk = v1::artifact_update(RAW_TASK, RAW_CONTEXT, "the song", false, true);
        let done = v1::status_update(RAW_TASK, RAW_CONTEXT, "completed", None);
        Reply::stream().event(begun()).wait(&wait).event(chunk).event(done)
    });
    go
}

/// The status of a ping in a session, at this gateway.
async fn ping(session: &LegacySession, gateway: &TestGateway) -> u16 {
    session.stolen_by(&gateway.client()).call("ping", json!({})).await.status
}

#[tokio::test]
async fn result_survives_agent_forgetting_task() {
    let place = Place::new().await;
    let gateway = place.gateway().await;
    let go = slow(&place.agent);
    let task = task_of(&said(&gateway, "sing").await);
    go.fire();
    assert_eq!(words(&awaited(&gateway, &task).await), "the song");
    place.settle(&gateway).await;
    drop(gateway);
    place.agent.on_get(|_| Reply::error(-32001, "Task not found"));
    let gateway = place.gateway().await;
    assert_eq!(words(&awaited(&gateway, &task).await), "the song");
}

#[tokio::test]
async fn result_survives_any_agent_answer() {
    let place = Place::new().await;
    let gateway = place.gateway().await;
    let (go, wait) = {
        let go = Signal::new();
        (go.clone(), go)
    };
    place.agent.on_send(move |_| {
        let mut task = v1::completed(RAW_TASK, RAW_CONTEXT, "la");
        task["task"]["metadata"] = json!({ "https://example.test/large": "x".repeat(3 << 20) });
        Reply::stream().event(begun()).wait(&wait).event(task)
    });
    let task = task_of(&said(&gateway, "sing").await);
    go.fire();
    assert_eq!(words(&awaited(&gateway, &task).await), "la");
    place.settle(&gateway).await;
    drop(gateway);
    place.agent.on_get(|_| Reply::error(-32001, "Task not found"));
    let gateway = place.gateway().await;
    assert_eq!(words(&awaited(&gateway, &task).await), "la");
}

#[tokio::test]
async fn live_task_is_followed_at_once() {
    let place = Place::new().await;
    let gateway = place.gateway().await;
    place.agent.on_send(|_| Reply::stream().event(begun()).stall());
    let task = task_of(&said(&gateway, "sing").await);
    drop(gateway);
    let done = Signal::new();
    let wait = done.clone();
    place.agent.on_get(|_| Reply::result(v1::bare_task(RAW_TASK, RAW_CONTEXT, "working")));
    place.agent.on_subscribe(move |_| {
        let done = v1::status_update(RAW_TASK, RAW_CONTEXT, "completed", Some("the song"));
        Reply::stream().event(begun()).wait(&wait).event(done)
    });
    let gateway = place.gateway().await;
    place.agent.wait_for_call("SubscribeToTask").await;
    done.fire();
    assert_eq!(words(&awaited(&gateway, &task).await), "the song");
    assert_eq!(place.agent.calls("SendStreamingMessage").len(), 1, "nothing is sent twice");
}

#[tokio::test]
async fn given_answer_is_not_given_again() {
    let place = Place::new().await;
    let asking = || v1::asking(RAW_TASK, RAW_CONTEXT, "Which colour?");
    place.agent.on_send(move |request| match request.message()["taskId"].is_string() {
        true => {
            let busy = v1::status_update(RAW_TASK, RAW_CONTEXT, "working", Some("painting"));
            Reply::stream().event(busy).stall()
        }
        false => Reply::events([asking()]),
    });
    // It shows its question until it is done with the answer.
    place.agent.on_get(move |_| Reply::result(asking()["task"].clone()));
    place.agent.on_subscribe(|_| Reply::error(-32004, "not now"));
    let gateway = place.gateway().await;
    let call = first("paint");
    let asked = called(&asked_by_form(&gateway), &call).await;
    let params = again(&call, &asked, keyed(&asked, reply("blue")));
    let late = called(&asked_by_form(&gateway), &params).await;
    let task = task_of(&late);
    assert_eq!(late["structuredContent"]["statusMessage"], "painting");
    place.settle(&gateway).await;
    drop(gateway);
    let gateway = place.gateway().await;
    let client = asked_by_form(&gateway);
    let same = called(&client, &params).await;
    assert_eq!(task_of(&same), task, "it goes on: {same}");
    place.agent.on_get(|_| Reply::result(v1::bare_completed(RAW_TASK, RAW_CONTEXT, "painted")));
    let done = in_time("the end", async {
        loop {
            let result = called(&client, &params).await;
            if result["structuredContent"].is_null() {
                return result;
            }
        }
    });
    assert_eq!(words(&done.await), "painted");
    assert_eq!(answers(&place.agent).len(), 1);
}

#[tokio::test]
async fn unsure_answer_repeats_under_its_id() {
    let place = Place::new().await;
    let asking = || v1::asking(RAW_TASK, RAW_CONTEXT, "Which colour?");
    place.agent.on_send(move |request| match request.message()["taskId"].is_string() {
        true => Reply::silence(),
        false => Reply::events([asking()]),
    });
    place.agent.on_get(move |_| Reply::result(asking()["task"].clone()));
    let gateway = place.gateway().await;
    let call = first("paint");
    let asked = called(&asked_by_form(&gateway), &call).await;
    let params = again(&call, &asked, keyed(&asked, reply("blue")));
    called(&asked_by_form(&gateway), &params).await;
    drop(gateway);
    place.agent.on_send(|_| Reply::events([v1::completed(RAW_TASK, RAW_CONTEXT, "painted")]));
    let gateway = place.gateway().await;
    assert_eq!(words(&called(&asked_by_form(&gateway), &params).await), "painted");
    let told = answers(&place.agent);
    assert_eq!(told.len(), 2);
    assert_eq!(told[0]["messageId"], told[1]["messageId"], "an agent can tell that it is the same");
}

#[tokio::test]
async fn unnamed_call_is_lost_and_says_so() {
    let place = Place::new().await;
    let gateway = place.gateway().await;
    place.agent.on_send(|_| Reply::stream().stall());
    let task = task_of(&said(&gateway, "sing").await);
    drop(gateway);
    let gateway = place.gateway().await;
    let lost = awaited(&gateway, &task).await;
    assert!(complaint(&lost).contains("restarted before the agent named the task"), "{lost}");
    assert_eq!(place.agent.calls("SendStreamingMessage").len(), 1);
}

#[tokio::test]
async fn cancelled_task_stays_cancelled() {
    let place = Place::new().await;
    let gateway = place.gateway().await;
    place.agent.on_send(|_| Reply::stream().event(begun()).stall());
    place.agent.on_cancel(|_| Reply::error(-32002, "Task cannot be canceled"));
    place.agent.on_get(|_| Reply::result(v1::bare_task(RAW_TASK, RAW_CONTEXT, "working")));
    place.agent.on_subscribe(|_| Reply::stream().event(begun()).stall());
    let session = gateway.client().legacy().await;
    let mut params = first("sing");
    params["task"] = json!({});
    let made = session.call("tools/call", params).await.result().await;
    let of_task = json!({ "taskId": made["task"]["taskId"] });
    assert_eq!(session.call("tasks/cancel", of_task.clone()).await.result().await["status"], "cancelled");
    drop(gateway);
    place.agent.on_get(|_| Reply::result(v1::bare_completed(RAW_TASK, RAW_CONTEXT, "the song")));
    let gateway = place.gateway().await;
    let session = session.stolen_by(&gateway.client());
    assert_eq!(session.call("tasks/get", of_task).await.result().await["status"], "cancelled");
}

#[tokio::test]
async fn live_and_ended_sessions_stay_so() {
    let place = Place::new().await;
    let gateway = place.gateway().await;
    let (live, ended) = (gateway.client().legacy().await, gateway.client().legacy().await);
    assert_eq!(ended.delete().await.status, 204);
    drop(gateway);
    let gateway = place.gateway().await;
    assert_eq!((ping(&live, &gateway).await, ping(&ended, &gateway).await), (200, 404));
}

#[tokio::test]
async fn key_alone_keeps_handles_working() {
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    let settings = format!("{SHORT}\n{KEY}");
    let gateway = gateway_before(&agent, &settings).await;
    agent.on_send(|_| Reply::stream().event(begun()).stall());
    let task = task_of(&said(&gateway, "sing").await);
    drop(gateway);
    let gateway = gateway_before(&agent, &settings).await;
    agent.on_get(|_| Reply::error(-32001, "Task not found"));
    assert!(complaint(&awaited(&gateway, &task).await).starts_with("Unknown taskId"), "lost by both");
    agent.on_get(|_| Reply::result(v1::bare_completed(RAW_TASK, RAW_CONTEXT, "the song")));
    assert_eq!(words(&awaited(&gateway, &task).await), "the song");
    assert_eq!(agent.calls("SendStreamingMessage").len(), 1);
}

#[tokio::test]
async fn keyless_handles_are_unknown() {
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    let gateway = gateway_before(&agent, SHORT).await;
    agent.on_send(|_| Reply::stream().event(begun()).stall());
    let session = gateway.client().legacy().await;
    let task = task_of(&said(&gateway, "sing").await);
    drop(gateway);
    let gateway = gateway_before(&agent, SHORT).await;
    let lost = awaited(&gateway, &task).await;
    let made_up = awaited(&gateway, &format!("{task}x")).await;
    assert!(complaint(&lost).starts_with("Unknown taskId"), "{lost}");
    assert_eq!(words(&lost), words(&made_up));
    assert!(agent.calls("GetTask").is_empty());
    assert_eq!(ping(&session, &gateway).await, 404);
    gateway.wait_for_output("no seal_key").await;
}

#[tokio::test]
async fn second_process_on_folder_names_owner() {
    let place = Place::new().await;
    let gateway = place.gateway().await;
    let (address, card, settings) = (free_port(), place.agent.card_url(), place.settings());
    let config = format!(
        "listeners:\n  - address: 127.0.0.1:{address}\n{settings}\nagents:\n  bard:\n    card: {card}\n"
    );
    let second = TestGateway::run_with_config("serve", &config).await;
    let told =
        format!("{}{}", String::from_utf8_lossy(&second.stdout), String::from_utf8_lossy(&second.stderr));
    assert!(!second.status.success(), "{told}");
    assert!(told.contains("tasks.data_dir") && told.contains("another process"), "{told}");
    slow(&place.agent).open();
    assert_eq!(words(&said(&gateway, "sing").await), "the song", "the first goes on");
}

/// The tools and the results of an agent that is not there when the gateway comes back.
#[tokio::test]
async fn finished_result_needs_no_agent() {
    let place = Place::new().await;
    let gateway = place.gateway().await;
    let go = slow(&place.agent);
    let task = task_of(&said(&gateway, "sing").await);
    go.fire();
    assert_eq!(words(&awaited(&gateway, &task).await), "the song");
    place.settle(&gateway).await;
    drop(gateway);
    let (card, settings) = (place.agent.card_url(), place.settings());
    place.agent.stop().await;
    let gateway = TestGateway::start(|ports| {
        format!("{}{settings}\nagents:\n  bard:\n    card: {card}\n", ports.listeners())
    })
    .await;
    let (calls, mut failures) = (20, 0);
    for _ in 0..calls / 4 {
        let list = gateway.client().modern("tools/list", json!({})).await.result().await;
        failures += usize::from(!list["tools"].to_string().contains(TOOL));
        for tool in [TOOL, "subagent_get"] {
            let params = json!({ "name": tool, "arguments": { "taskId": task } });
            failures += usize::from(words(&called(&gateway.client(), &params).await) != "the song");
        }
        let found = crate::kit::quiz::with_tasks(&gateway).task("tasks/get", &task).await.json().await;
        failures += usize::from(found["result"]["result"]["content"][0]["text"] != "the song");
    }
    println!("a restart without the agent: {calls} calls, {failures} failures");
    assert_eq!(failures, 0);
    let kept = std::fs::read_to_string(place.folder.path().join("data/cards/bard.json")).unwrap();
    assert!(kept.contains("Scripted Agent"), "{kept}");
}

/// A kept card is judged by the configuration of today.
#[tokio::test]
async fn kept_card_is_judged_again() {
    let place = Place::new().await;
    let other = ScriptedAgent::start(Card::v1()).await;
    let interface = json!([{ "url": other.url(), "protocolBinding": "JSONRPC", "protocolVersion": "1.0" }]);
    place.agent.set_card(Card::v1().skill("sing").set("supportedInterfaces", interface));
    let (card, settings) = (place.agent.card_url(), place.settings());
    let start = async |card: &str, own: &str| {
        TestGateway::start(|ports| {
            format!("{}{settings}\nagents:\n  bard:\n    card: {card}\n{own}", ports.listeners())
        })
        .await
    };
    let names = async |gateway: &TestGateway| {
        let list = gateway.client().modern("tools/list", json!({})).await.result().await;
        list["tools"].to_string()
    };
    let leave = "    allow_hosts: [\"127.0.0.1\"]\n    headers: { Authorization: Bearer CANARY }\n";
    let gateway = start(&card, leave).await;
    assert!(names(&gateway).await.contains(TOOL));
    let kept = place.folder.path().join("data/cards/bard.json");
    in_time("the card to be kept", async {
        while !kept.exists() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    drop(gateway);
    place.agent.stop().await;
    for (card, own, is_listed) in
        [(card.as_str(), leave, true), (&card, "", false), ("http://127.0.0.1:1/card.json", leave, false)]
    {
        let gateway = start(card, own).await;
        assert_eq!(names(&gateway).await.contains(TOOL), is_listed, "{card} {own}");
    }
    assert!(!std::fs::read_to_string(&kept).unwrap().contains("CANARY"));
}
