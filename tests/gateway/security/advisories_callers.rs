//! Advisories about ownership: sessions, tasks, conversations, questions, resources, answers.
//!
//! Out of scope: authentication (see `callers`, `tokens`, `certificates`), and rules (see `rules`).

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::auth::callers::{EVE, Keyed, NEW, OLD, keys};
use crate::kit::quiz::{Quiz, again, answers, called, first, keyed, question, reply, until_asked};
use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, TOOL, words};
use crate::support::payload::v1;
use crate::support::{Card, McpClient, Reply, ScriptedAgent, TestGateway};

/// How many requests were put to an agent, but for its card.
fn posts(agent: &ScriptedAgent) -> usize {
    agent.requests().iter().filter(|request| request.method == "POST").count()
}

/// All that a client is told about a handle, without the handle; fails if it is told anything but a
/// refusal.
async fn refusal(
    client: &McpClient,
    method: &str,
    params: impl Fn(&str) -> Value,
    handle: &str,
) -> (u16, String) {
    let answer = client.modern(method, params(handle)).await;
    let (status, mut answer) = (answer.status, answer.json().await);
    answer["id"].take();
    let is_refused = answer["error"].is_object() || answer["result"]["isError"] == true;
    assert!(is_refused, "{method} {}: {answer}", params(handle));
    (status, answer.to_string().replace(handle, "HANDLE"))
}

/// Python SDK CVE-2026-52870, a2a-java GHSA-qw47-mcm5-934w, a2a-python #786 (and its `contextId`
/// without an owner): every caller with the id of a task had the task. Here every way to a task or
/// a conversation reads to another caller as if it had never been.
#[tokio::test]
async fn foreign_task_is_unknown() {
    let scene = Keyed::new("calls: { task_after: 0s }\nresources: { sparc: {} }\n").await;
    let _go = scene.agent.works_for((RAW_TASK, RAW_CONTEXT), "the song");
    let (mine, eve) = (scene.by(NEW).with_tasks(), scene.by(EVE).with_tasks());
    let made = called(&mine, &first("sing")).await;
    let task = made["taskId"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
    let uri = |place: &str, handle: &str| json!({ "uri": format!("a2a://{place}/{handle}") });
    let seen = mine.modern("resources/read", uri("task", &task)).await.result().await;
    let seen: Value = serde_json::from_str(seen["contents"][0]["text"].as_str().unwrap()).unwrap();
    let context = seen["contextId"].as_str().unwrap_or_else(|| panic!("{seen}"));
    let before = posts(&scene.agent);
    for method in ["tasks/get", "tasks/cancel", "tasks/update"] {
        let params = |handle: &str| json!({ "taskId": handle, "inputResponses": {} });
        assert_eq!(
            refusal(&eve, method, params, &task).await,
            refusal(&eve, method, params, "made-up").await
        );
    }
    for place in ["task", "tasks", "streams"] {
        for more in ["", "/artifacts/report"] {
            let params = |handle: &str| uri(place, &format!("{handle}{more}"));
            let method = "resources/read";
            assert_eq!(
                refusal(&eve, method, params, &task).await,
                refusal(&eve, method, params, "made-up").await
            );
        }
    }
    no_spelling_is_read(&eve, &task, context).await;
    for (tool, name, more) in [
        (TOOL, "taskId", json!({})),
        (TOOL, "taskId", json!({ "text": "go on" })),
        (TOOL, "contextId", json!({ "text": "go on" })),
        ("subagent_get", "taskId", json!({})),
        ("subagent_wait", "taskId", json!({})),
        ("subagent_send", "taskId", json!({ "text": "go on" })),
        ("subagent_cancel", "taskId", json!({})),
    ] {
        let handle = if name == "taskId" { &task } else { context };
        let params = |handle: &str| {
            let mut arguments = more.clone();
            arguments[name] = handle.into();
            json!({ "name": tool, "arguments": arguments })
        };
        let theirs = refusal(&eve, "tools/call", params, handle).await;
        assert_eq!(theirs, refusal(&eve, "tools/call", params, "made-up").await, "{tool} {name}");
    }
    let wanted = json!({ "taskIds": [task], "resourceSubscriptions": [format!("a2a://task/{task}")] });
    let mut listening = eve.modern("subscriptions/listen", json!({ "notifications": wanted })).await;
    assert_eq!(listening.next_message().await["params"]["notifications"], json!({}), "nothing is promised");
    let session = scene.by(EVE).legacy().await;
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        assert_eq!(session.task(method, &task).await.error_code().await, -32602, "{method}");
    }
    let refused = session.call("resources/subscribe", uri("task", &task)).await;
    assert_eq!(refused.error_code().await, -32002);
    assert_eq!(posts(&scene.agent), before, "the agent hears nothing of it");
    assert_eq!(scene.by(OLD).with_tasks().task("tasks/get", &task).await.result().await["status"], "working");
}

/// Neither spelling of a URI leads another caller to a task or a conversation.
async fn no_spelling_is_read(eve: &McpClient, task: &str, context: &str) {
    for (place, handle) in [
        ("sparc://workflow", context),
        ("mcp://mcp-a2a-gateway/sparc/workflow", context),
        ("mcp://mcp-a2a-gateway/a2a/tasks", task),
        ("mcp://mcp-a2a-gateway/a2a/streams", task),
    ] {
        for method in ["resources/read", "resources/subscribe"] {
            let params = |handle: &str| json!({ "uri": format!("{place}/{handle}") });
            let theirs = refusal(eve, method, params, handle).await;
            assert_eq!(theirs, refusal(eve, method, params, "made-up").await, "{place}");
        }
    }
}

/// Ruby SDK CVE-2026-33946, Python SDK CVE-2026-52869, oatpp CVE-2025-6515: a session belonged to
/// every caller with its id. Here another caller can neither use, hear, take over nor end it.
#[tokio::test]
async fn foreign_session_is_useless() {
    let scene = Keyed::new("cards: { min_refresh: 1s, max_refresh: 1s, retry: 100ms }\n").await;
    let session = scene.by(NEW).legacy().await;
    let mut stream = session.listen(None).await;
    assert_eq!(stream.status, 200);
    let stolen = session.stolen_by(&scene.by(EVE));
    assert_eq!(stolen.call("ping", json!({})).await.status, 404);
    assert_eq!(stolen.call("tools/call", first("x")).await.status, 404);
    assert_eq!(stolen.listen(None).await.status, 404);
    assert_eq!(stolen.delete().await.status, 404);
    // The owner's second stream takes nothing from its first one.
    let mut second = session.listen(None).await;
    assert_eq!((second.status, session.call("ping", json!({})).await.status), (200, 200));
    scene.agent.set_card(Card::v1().skill("sing").skill("dance"));
    for stream in [&mut stream, &mut second] {
        assert_eq!(stream.next_message().await["method"], "notifications/tools/list_changed");
    }
    let id = session.id.as_deref().unwrap();
    let other = scene.by(NEW).legacy().await;
    let other = other.id.as_deref().unwrap();
    let shared = id.bytes().zip(other.bytes()).filter(|(one, two)| one == two).count();
    assert!(id.len() >= 64 && shared < id.len() / 4, "nothing to guess by: {id} {other}");
}

/// As CVE-2026-52870, for what a question leaves with a client: the state of the call, and the id
/// of the question.
#[tokio::test]
async fn foreign_question_is_unanswerable() {
    let scene = Keyed::new("").await;
    Quiz::of(&scene.agent, [question("Which colour?")]);
    let forms = json!({ "elicitation": { "form": {} } });
    let (mine, eve) = (scene.by(NEW).capabilities(forms.clone()), scene.by(EVE).capabilities(forms.clone()));
    let call = first("paint");
    let asked = called(&mine, &call).await;
    let round = again(&call, &asked, keyed(&asked, reply("red")));
    assert_eq!(eve.modern("tools/call", round.clone()).await.error_code().await, -32602);
    assert!(answers(&scene.agent).is_empty());
    assert_eq!(words(&called(&scene.by(OLD).capabilities(forms), &round).await), "thank you");
    // On a stream.
    let scene = Keyed::new("").await;
    Quiz::of(&scene.agent, [question("Which colour?")]);
    let session = scene.by(NEW).capabilities(json!({ "elicitation": {} })).legacy().await;
    let (waiting, asked) = until_asked(&session).await;
    let foreign = scene.by(EVE).capabilities(json!({ "elicitation": {} })).legacy().await;
    foreign.respond(&asked["id"], reply("red")).await;
    let stolen = json!({ "jsonrpc": "2.0", "id": asked["id"], "result": reply("red") });
    assert_eq!(session.stolen_by(&scene.by(EVE)).post(&stolen).await.status, 404);
    session.respond(&asked["id"], reply("blue")).await;
    assert_eq!(words(&waiting.result().await), "thank you");
    let told: Vec<_> = answers(&scene.agent).iter().map(|told| told["parts"][0]["text"].clone()).collect();
    assert_eq!(told, ["blue"]);
}

/// Two agents: `ci` may use both, `eve` only `bard`.
async fn two_endpoints() -> (ScriptedAgent, ScriptedAgent, TestGateway) {
    let bard = ScriptedAgent::start(Card::v1().skill("sing")).await;
    let bank = ScriptedAgent::start(Card::v1().skill("pay")).await;
    let rules = "rules:\n  - { name: all, callers: [\"key:ci\"], agents: [bard, bank] }\n  - { name: songs, callers: [\"key:eve\"], \
                 agents: bard }\n";
    let gateway = TestGateway::start(|ports| {
        let (bard, bank) = (bard.card_url(), bank.card_url());
        let agents = format!("agents:\n  bard:\n    card: {bard}\n  bank:\n    card: {bank}\n");
        format!("{}calls: {{ task_after: 0s }}\n{}{rules}{agents}", ports.listeners(), keys(""))
    })
    .await;
    (bard, bank, gateway)
}

/// agentgateway GHSA-mvgg-jvj2-4frq: a session that was begun at one endpoint was let through at
/// another. Here a session carries no right at all: each request is judged by its own endpoint and
/// caller, and what was handed out at one endpoint is nothing at another agent's.
#[tokio::test]
async fn session_opens_no_other_endpoint() {
    let (bard, bank, gateway) = two_endpoints().await;
    let by = |key: &str, path: &str| gateway.client().header("X-Api-Key", key).at(path);
    assert_eq!(by(EVE, "/mcp/bank").initialize("2025-11-25").await.status, 404);
    let pay = json!({ "name": "pay", "arguments": { "text": "x" } });
    for begun_at in ["/mcp", "/mcp/bard"] {
        let session = by(EVE, begun_at).legacy().await;
        for method in ["tools/list", "ping"] {
            let there = session.stolen_by(&by(EVE, "/mcp/bank"));
            assert_eq!(there.call(method, json!({})).await.status, 404, "{begun_at}: {method}");
            assert_eq!(there.listen(None).await.status, 404, "{begun_at}");
        }
        let call = session.stolen_by(&by(EVE, "/mcp/bank")).call("tools/call", pay.clone()).await;
        assert_eq!(call.status, 404, "{begun_at}");
        for (path, tool) in [("/mcp", "bank_pay"), ("/mcp/bard", "pay"), ("/mcp/bard", "bank_pay")] {
            let there = session.stolen_by(&by(EVE, path));
            let refused = there.call_tool(tool, json!({ "text": "x" })).await;
            assert_eq!(refused.error_code().await, -32602, "{begun_at} to {path}: {tool}");
        }
    }
    // The session of one who may, in the hands of one who may not.
    for path in ["/mcp", "/mcp/bank"] {
        let session = by(NEW, path).legacy().await;
        for there in ["/mcp", "/mcp/bank", "/mcp/bard"] {
            let refused = session.stolen_by(&by(EVE, there)).call("tools/call", pay.clone()).await;
            assert_eq!(refused.status, 404, "{path} to {there}");
        }
    }
    assert_eq!((posts(&bank), posts(&bard)), (0, 0));
    // A task of one agent's endpoint is unknown at another's, for its own caller too.
    let _go = bank.works_for((RAW_TASK, RAW_CONTEXT), "paid");
    let made = called(&by(NEW, "/mcp/bank").with_tasks(), &pay).await;
    let task = made["taskId"].as_str().unwrap_or_else(|| panic!("{made}"));
    for method in ["tasks/get", "tasks/cancel"] {
        let refused = by(NEW, "/mcp/bard").with_tasks().task(method, task).await;
        assert_eq!(refused.error_code().await, -32602, "{method}");
    }
    let uri = json!({ "uri": format!("a2a://task/{task}") });
    assert_eq!(by(NEW, "/mcp/bard").modern("resources/read", uri).await.error_code().await, -32602);
    assert_eq!(
        by(NEW, "/mcp").with_tasks().task("tasks/get", task).await.result().await["status"],
        "working"
    );
    assert_eq!(posts(&bard), 0);
}

/// Pingora CVE-2026-2836 (RUSTSEC-2026-0035): an answer that was kept for one host was given to
/// another. The gateway keeps no answer: Pingora's cache is never switched on, and a card is kept
/// under the name of its agent. So two hosts, two callers, two equal requests share nothing,
/// however much an agent asks for it to be kept.
#[tokio::test]
async fn no_answer_is_cached_for_others() {
    let (bard, bank, gateway) = two_endpoints().await;
    let count = AtomicUsize::new(0);
    bard.on_send(move |_| {
        let song = v1::message(&format!("song {}", count.fetch_add(1, Ordering::SeqCst)));
        let reply = Reply::events([song]);
        reply.header("Cache-Control", "public, max-age=3600").header("ETag", "\"one\"")
    });
    let by = |key: &str| gateway.client().header("X-Api-Key", key);
    let mut songs = Vec::new();
    for _ in 0..3 {
        for key in [NEW, EVE] {
            let list = by(key).modern("tools/list", json!({})).await;
            assert!(list.header("etag").is_none() && list.header("age").is_none(), "{:?}", list.headers);
            let list = list.result().await.to_string();
            assert!(list.contains("bard_sing"), "{list}");
            assert_eq!(list.contains("bank_pay"), key == NEW, "{list}");
            let card =
                by(key).modern("resources/read", json!({ "uri": "a2a-agent://bank" })).await.json().await;
            assert_eq!(card["result"].is_object(), key == NEW, "{card}");
            let kept = by(key).header("If-None-Match", "\"one\"").header("Cache-Control", "only-if-cached");
            songs.push(words(&called(&kept, &first("x")).await).to_owned());
        }
    }
    let expected: Vec<_> = (0..6).map(|number| format!("song {number}")).collect();
    assert_eq!(songs, expected, "each call is a call");
    assert_eq!(posts(&bank), 0);
}
