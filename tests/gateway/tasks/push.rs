//! Push notifications of agents: the webhook that an agent is told, and the effect of a push.

use serde_json::{Value, json};

use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, TOOL};
use crate::support::payload::{v0_1, v0_3, v1};
use crate::support::{
    Answer, Card, LegacySession, McpClient, PATIENCE, Reply, Request, ScriptedAgent, Signal, TestGateway,
};

const KEY: &str = "0123456789abcdef0123456789abcdef";
const SET: [&str; 3] =
    ["CreateTaskPushNotificationConfig", "tasks/pushNotificationConfig/set", "tasks/pushNotification/set"];
const GET: &str = "GetTask";
/// Polling takes longer than the patience of a test: an event is heard because of a push.
const CALM: &str = "streams: { idle_timeout: 10m, retry_base: 10m, retry_max: 10m }\n";
const SHORT: &str = "calls: { budget: 1s, stream_after: 100ms }\n";

pub(crate) fn pushing(mut card: Card) -> Card {
    card.json["capabilities"]["pushNotifications"] = true.into();
    card.skill("sing")
}

/// The gateway before the agent `bard`, with a listener of its own for agents.
pub(crate) async fn gateway(agent: &ScriptedAgent, settings: &str) -> TestGateway {
    TestGateway::start(|ports| {
        let (other, card) = (ports.other, agent.card_url());
        let listeners = ports.listeners().replacen(
            "admin:",
            &format!("  - address: 127.0.0.1:{other}\n    serve: [push]\nadmin:"),
            1,
        );
        format!(
            "{listeners}public_url: http://127.0.0.1:{other}\nseal_key: {KEY}\n{CALM}{SHORT}{settings}\nagents:\n  bard:\n    \
             card: {card}\n"
        )
    })
    .await
}

pub(crate) const ON: &str = "push: { enabled: true }\n";
/// No room for a second stream.
const NO_ROOM: &str = "push: { enabled: true }\nbackground: { max: 1 }\n";

/// An agent with a first call that takes the only place for ever; all others begin a task of their
/// own. It takes webhooks.
fn busy(agent: &ScriptedAgent) {
    agent.on_send(|request| {
        let first = request.text() == "first";
        let id = if first { "raw-task-0" } else { RAW_TASK };
        Reply::stream().event(v1::task(id, RAW_CONTEXT, "working")).stall()
    });
    agent.on_get(|request| {
        let id = request.params()["id"].as_str().unwrap().to_owned();
        Reply::result(v1::bare_task(&id, RAW_CONTEXT, "working"))
    });
    agent.on(SET[0], |request| Reply::result(request.params()));
}

/// Calls the tool as a core task; its handle.
pub(crate) async fn begin(session: &LegacySession, text: &str) -> String {
    let params = json!({ "name": TOOL, "arguments": { "text": text }, "task": {} });
    let result = session.call("tools/call", params).await.result().await;
    result["task"]["taskId"].as_str().unwrap_or_else(|| panic!("no task: {result}")).to_owned()
}

/// Where the agent is to push, and with what.
#[derive(Clone, Debug, PartialEq)]
struct Hook {
    url: String,
    token: String,
}

impl Hook {
    fn of(request: &Request) -> Self {
        let params = request.params();
        let config = params.get("pushNotificationConfig").unwrap_or(&params);
        let text =
            |name: &str| config[name].as_str().unwrap_or_else(|| panic!("no {name}: {params}")).to_owned();
        Self { url: text("url"), token: text("token") }
    }

    fn path(&self) -> &str {
        self.url.strip_prefix("http://").and_then(|rest| rest.get(rest.find('/')?..)).expect("a path")
    }

    async fn push(&self, gateway: &TestGateway, body: &Value) -> u16 {
        let token = ("X-A2A-Notification-Token", self.token.as_str());
        self.send(gateway, &[token, ("Content-Type", "application/a2a+json")], body).await.status
    }

    async fn send(&self, gateway: &TestGateway, headers: &[(&str, &str)], body: &Value) -> Answer {
        self.send_to(&url(gateway.ports().other), headers, body).await
    }

    async fn send_to(&self, base: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
        let client = McpClient::new(&format!("{base}{}", self.path()));
        client.send("POST", headers, body.to_string().into_bytes()).await
    }
}

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

/// A task that waits for its turn, its agent asked for pushes: nothing but a push is heard of it
/// any more.
async fn quiet(agent: &ScriptedAgent, gateway: &TestGateway) -> (LegacySession, String, Hook) {
    busy(agent);
    let session = gateway.client().legacy().await;
    begin(&session, "first").await;
    let task = begin(&session, "second").await;
    let about = |request: &Request| request.params().to_string().contains(RAW_TASK);
    let log = agent
        .wait_for("a webhook, then a look", |log| {
            let set = log.calls(SET[0]).into_iter().find(|request| about(request));
            let look = log.calls(GET).into_iter().rfind(|request| about(request));
            set.zip(look)
                .is_some_and(|(set, look)| look.number > set.number && log.answered.contains(&look.number))
        })
        .await;
    let hook = log.calls(SET[0]).into_iter().find(|request| about(request)).map(Hook::of);
    (session, task, hook.unwrap())
}

/// Looks at the waiting task so far.
fn looks(agent: &ScriptedAgent) -> usize {
    agent.calls(GET).iter().filter(|request| request.params()["id"] == RAW_TASK).count()
}

/// Waits until the metrics page has this line.
async fn shows(gateway: &TestGateway, line: &str) {
    let mut page = String::new();
    let seen = async {
        while !page.lines().any(|shown| shown == line) {
            page = gateway.metrics().await;
        }
    };
    let seen = tokio::time::timeout(PATIENCE, seen).await;
    assert!(seen.is_ok(), "{line} is not in\n{page}");
}

async fn counted(gateway: &TestGateway, outcome: &str, count: usize) {
    shows(gateway, &format!("mcp_a2a_gateway_pushes_total{{outcome=\"{outcome}\"}} {count}")).await;
}

#[tokio::test]
async fn push_config_fits_agent_version() {
    let oldest = Card::v0_1().set("protocolVersion", "0.1");
    for (card, method) in [(Card::v1(), SET[0]), (Card::v0_3(), SET[1]), (oldest, SET[2])] {
        let (is_new, is_oldest) = (method == SET[0], method == SET[2]);
        let agent = ScriptedAgent::start(pushing(card)).await;
        agent.on_send(move |request| {
            let id = format!("raw-{}", request.text());
            let begun = if is_new {
                v1::task(&id, RAW_CONTEXT, "working")
            } else if is_oldest {
                v0_1::task(request.params()["id"].as_str().unwrap(), "working")
            } else {
                v0_3::task(&id, RAW_CONTEXT, "working")
            };
            Reply::stream().event(begun).stall()
        });
        agent.on(method, |request| Reply::result(request.params()));
        let gateway = gateway(&agent, ON).await;
        let session = gateway.client().legacy().await;
        for task in ["task-1", "task-2"] {
            begin(&session, task).await;
        }
        let log = agent.wait_for("two webhooks", |log| log.calls(method).len() == 2).await;
        let hooks: Vec<Hook> = log.calls(method).into_iter().map(Hook::of).collect();
        for (request, hook) in log.calls(method).into_iter().zip(&hooks) {
            let Hook { url, token } = hook;
            let params = request.params();
            let task = params["taskId"].as_str().or(params["id"].as_str()).unwrap().to_owned();
            let expected = if is_oldest {
                let authentication = json!({ "schemes": ["Bearer"], "credentials": token });
                json!({ "id": task, "pushNotificationConfig": {
                    "url": url, "token": token, "authentication": authentication,
                }})
            } else if is_new {
                json!({
                    "taskId": task, "id": "mcp-a2a-gateway", "url": url, "token": token,
                    "authentication": { "scheme": "Bearer", "credentials": token },
                })
            } else {
                json!({ "taskId": task, "pushNotificationConfig": {
                    "id": "mcp-a2a-gateway", "url": url, "token": token,
                    "authentication": { "schemes": ["Bearer"], "credentials": token },
                }})
            };
            assert_eq!(params, expected);
            assert!(url.starts_with(&format!("http://127.0.0.1:{}/push/", gateway.ports().other)), "{url}");
            assert!(!url.contains(token.as_str()), "one does not tell the other");
        }
        assert_ne!(hooks[0].url, hooks[1].url);
        assert_ne!(hooks[0].token, hooks[1].token);
        let output = gateway.output();
        assert!(!output.contains(&hooks[0].token) && !output.contains(hooks[0].path()), "secrets: {output}");
    }
}

#[tokio::test]
async fn push_wakes_waiter_before_polling_would() {
    let agent = ScriptedAgent::start(pushing(Card::v1())).await;
    let gateway = gateway(&agent, NO_ROOM).await;
    let (session, task, hook) = quiet(&agent, &gateway).await;
    let waiting = session.call("tasks/result", json!({ "taskId": task })).await;
    assert!(waiting.is_stream(), "it waits");
    agent.on_get(|_| Reply::result(v1::bare_completed(RAW_TASK, RAW_CONTEXT, "the song")));
    let hint = v1::status_update(RAW_TASK, RAW_CONTEXT, "failed", Some("made up"));
    assert_eq!(hook.push(&gateway, &hint).await, 204);
    let result = waiting.result().await;
    assert_eq!(result["content"][0]["text"], "the song", "the agent's word counts, not the push");
    let before = looks(&agent);
    assert_eq!(hook.push(&gateway, &hint).await, 204, "a replay");
    counted(&gateway, "task_terminated", 1).await;
    assert_eq!(looks(&agent), before, "what is over is not asked for");
    assert_eq!(agent.calls(SET[0]).iter().filter(|set| set.params()["taskId"] == RAW_TASK).count(), 1);
}

#[tokio::test]
async fn pushed_task_is_not_polled() {
    let agent = ScriptedAgent::start(pushing(Card::v1())).await;
    let gateway = gateway(&agent, NO_ROOM).await;
    let (session, _task, _hook) = quiet(&agent, &gateway).await;
    let before = looks(&agent);
    // Of this one the agent says nothing, which says nothing about the agent.
    agent.on(SET[0], |_| Reply::error(-32001, "Task not found"));
    agent.on_send(|_| Reply::stream().event(v1::task("raw-task-8", RAW_CONTEXT, "working")).stall());
    begin(&session, "third").await;
    let of_other = |request: &&Request| request.params()["id"] == "raw-task-8";
    agent.wait_for("polls", |log| log.calls(GET).into_iter().filter(of_other).count() >= 3).await;
    assert_eq!(looks(&agent), before);
}

#[tokio::test]
async fn pushed_task_needs_no_open_stream() {
    let agent = ScriptedAgent::start(pushing(Card::v0_3())).await;
    let go = Signal::new();
    let wait = go.clone();
    agent.on_send(move |_| Reply::stream().event(v0_3::task(RAW_TASK, RAW_CONTEXT, "working")).wait(&wait));
    agent.on_get(|_| Reply::result(v0_3::task(RAW_TASK, RAW_CONTEXT, "working")));
    agent.on(SET[1], |request| Reply::result(request.params()));
    let gateway = gateway(&agent, ON).await;
    let session = gateway.client().legacy().await;
    let task = begin(&session, "sing").await;
    let set = agent.wait_for_call(SET[1]).await;
    agent.wait_for("the webhook's answer", |log| log.answered.contains(&set.number)).await;
    shows(&gateway, "mcp_a2a_gateway_background_exchanges 1").await;
    go.fire();
    shows(&gateway, "mcp_a2a_gateway_background_exchanges 0").await;
    let waiting = session.call("tasks/result", json!({ "taskId": task })).await;
    assert!(waiting.is_stream(), "it waits");
    agent.on_get(|_| Reply::result(v0_3::completed(RAW_TASK, RAW_CONTEXT, "the song")));
    let hook = Hook::of(&set);
    assert_eq!(hook.push(&gateway, &v0_3::completed(RAW_TASK, RAW_CONTEXT, "pushed")).await, 204);
    assert_eq!(waiting.result().await["content"][0]["text"], "the song");
    assert!(agent.calls("tasks/resubscribe").is_empty());
}

#[tokio::test]
async fn unproven_push_is_refused() {
    let agent = ScriptedAgent::start(pushing(Card::v1())).await;
    let gateway = gateway(&agent, NO_ROOM).await;
    let (_session, _task, hook) = quiet(&agent, &gateway).await;
    let before = looks(&agent);
    let body = v1::task(RAW_TASK, RAW_CONTEXT, "working");
    let bearer = format!("Bearer {}", hook.token);
    let forged = [
        Vec::new(),
        vec![("X-A2A-Notification-Token", "x")],
        vec![("X-A2A-Notification-Token", "x"), ("Authorization", bearer.as_str())],
        vec![("Authorization", "Bearer x")],
        vec![("Authorization", hook.token.as_str())],
    ];
    for headers in &forged {
        assert_eq!(hook.send(&gateway, headers, &body).await.status, 401, "{headers:?}");
    }
    counted(&gateway, "unauthenticated", forged.len()).await;
    let foreign = [
        format!("{}x", hook.url),
        url(gateway.ports().other) + "/push/x",
        hook.url.replace("/push/", "/push/A"),
    ];
    for url in foreign {
        let elsewhere = Hook { url, ..hook.clone() };
        assert_eq!(elsewhere.push(&gateway, &body).await, 404, "{elsewhere:?}");
    }
    counted(&gateway, "unknown_address", 3).await;
    for body in [v1::task("raw-task-0", RAW_CONTEXT, "completed"), json!({}), json!("x")] {
        assert_eq!(hook.push(&gateway, &body).await, 204, "{body}");
    }
    counted(&gateway, "other_task", 3).await;
    assert_eq!(looks(&agent), before, "nobody asked the agent");
    // Agents are no browsers, and some send only the one, some only the other.
    let good = [("Authorization", bearer.as_str()), ("Origin", "https://evil.example")];
    assert_eq!(hook.send(&gateway, &good, &body).await.status, 204);
    agent.wait_for("a look", |_| looks(&agent) == before + 1).await;
}

#[tokio::test]
async fn flood_of_pushes_causes_two_looks() {
    let agent = ScriptedAgent::start(pushing(Card::v1())).await;
    let gateway = gateway(&agent, NO_ROOM).await;
    let (_session, _task, hook) = quiet(&agent, &gateway).await;
    let before = looks(&agent);
    let go = Signal::new();
    let wait = go.clone();
    agent.on_get(move |_| Reply::result(v1::bare_task(RAW_TASK, RAW_CONTEXT, "working")).after(&wait));
    let body = v1::task(RAW_TASK, RAW_CONTEXT, "working");
    assert_eq!(hook.push(&gateway, &body).await, 204);
    agent.wait_for("a look", |_| looks(&agent) == before + 1).await;
    for _ in 0..200 {
        assert_eq!(hook.push(&gateway, &body).await, 204);
    }
    counted(&gateway, "taken", 1).await;
    counted(&gateway, "joined", 200).await;
    agent.on_get(|_| Reply::result(v1::bare_completed(RAW_TASK, RAW_CONTEXT, "done")));
    go.fire();
    agent.wait_for("one more look", |_| looks(&agent) == before + 2).await;
    assert_eq!(hook.push(&gateway, &body).await, 204);
    assert_eq!(looks(&agent), before + 2);
}

#[tokio::test]
async fn address_check_gets_its_token_back() {
    let agent = ScriptedAgent::start(pushing(Card::v1())).await;
    let gateway = gateway(&agent, NO_ROOM).await;
    let (_session, _task, hook) = quiet(&agent, &gateway).await;
    let client = McpClient::new(&hook.url);
    let asked = client.at(&format!("{}?validationToken=a-b.c", hook.path())).get(&[]).await;
    assert_eq!((asked.status, asked.header("content-type")), (200, Some("text/plain; charset=utf-8")));
    assert_eq!(asked.text().await, "a-b.c");
    for query in ["", "?validationToken=", "?validationToken=%3Cscript%3E"] {
        assert_eq!(client.at(&format!("{}{query}", hook.path())).get(&[]).await.status, 405, "{query}");
    }
    assert_eq!(client.at("/push/x?validationToken=a").get(&[]).await.status, 404);
    assert_eq!(client.send("DELETE", &[], Vec::new()).await.status, 405);
}

#[tokio::test]
async fn pushes_come_only_to_their_listener() {
    let agent = ScriptedAgent::start(pushing(Card::v1())).await;
    let wanting = gateway(&agent, NO_ROOM).await;
    let (_session, _task, hook) = quiet(&agent, &wanting).await;
    let before = looks(&agent);
    let body = v1::task(RAW_TASK, RAW_CONTEXT, "completed");
    let token = [("X-A2A-Notification-Token", hook.token.as_str())];
    let at_clients_door = hook.send_to(&wanting.url(""), &token, &body).await;
    assert_eq!(at_clients_door.status, 404);
    // The same key, as after a restart: the address is known, the task is not.
    let restarted = gateway(&agent, ON).await;
    assert_eq!(hook.push(&restarted, &body).await, 204);
    counted(&restarted, "unknown_task", 1).await;
    let off = gateway(&agent, "").await;
    assert_eq!(hook.push(&off, &body).await, 404);
    let own = TestGateway::start(|ports| {
        let (other, card) = (ports.other, agent.card_url());
        let listeners = ports.listeners().replacen("admin:", "    serve: [mcp, push]\nadmin:", 1);
        format!(
            "{listeners}public_url: http://127.0.0.1:{other}\nseal_key: {KEY}\n{ON}agents:\n  bard:\n    card: {card}\n    push: \
             false\n"
        )
    })
    .await;
    assert_eq!(hook.send_to(&own.url(""), &token, &body).await.status, 404, "not of this agent");
    assert_eq!(looks(&agent), before);
}

#[tokio::test]
async fn agent_refusing_push_config_is_polled() {
    let agent = ScriptedAgent::start(pushing(Card::v1())).await;
    let gateway = gateway(&agent, NO_ROOM).await;
    busy(&agent);
    agent.on(SET[0], |_| Reply::error(-32003, "Push notifications are not supported"));
    let session = gateway.client().legacy().await;
    begin(&session, "first").await;
    gateway.wait_for_output("failed to register webhook").await;
    let task = begin(&session, "second").await;
    agent.wait_for("polls", |_| looks(&agent) >= 2).await;
    agent.on_get(|_| Reply::result(v1::bare_completed(RAW_TASK, RAW_CONTEXT, "the song")));
    let result = session.call("tasks/result", json!({ "taskId": task })).await.result().await;
    assert_eq!(result["content"][0]["text"], "the song");
    assert_eq!(agent.calls(SET[0]).len(), 1);
}

#[tokio::test]
async fn agent_without_push_gets_no_config() {
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    let gateway = gateway(&agent, NO_ROOM).await;
    busy(&agent);
    let session = gateway.client().legacy().await;
    begin(&session, "first").await;
    begin(&session, "second").await;
    agent.wait_for("polls", |_| looks(&agent) >= 2).await;
    assert!(agent.calls(SET[0]).is_empty());
}

/// Pushes take the share of the agent, not that of the caller of the task.
#[tokio::test]
async fn pushes_of_agent_take_share() {
    let agent = ScriptedAgent::start(pushing(Card::v1())).await;
    let gateway = gateway(&agent, &format!("{NO_ROOM}limits: {{ caller_bytes: 1MiB }}\n")).await;
    let (.., hook) = quiet(&agent, &gateway).await;
    let mut body = v1::status_update(RAW_TASK, RAW_CONTEXT, "working", None);
    body["more"] = "x".repeat(2 << 20).into();
    assert_eq!(hook.push(&gateway, &body).await, 429);
    body["more"] = "x".repeat(1 << 19).into();
    assert!((200..300).contains(&hook.push(&gateway, &body).await));
}
