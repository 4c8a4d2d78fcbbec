//! `mcp-a2a-gateway stdio`: both eras over standard input and output, and the end of the process.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::kit::quiz::{Quiz, question};
use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, TOOL, words};
use crate::kit::stdio_host::StdioHost;
use crate::support::payload::v1;
use crate::support::{Card, Reply, ScriptedAgent, Signal, TestGateway};

const LEGACY: &str = "2025-11-25";
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
const QUICK: &str = "cards: { min_refresh: 1s, max_refresh: 1s, retry: 100ms }";
/// No grace for the tasks of cancelled calls.
const AT_ONCE: &str = "calls: { cancel_grace: 0s }";

async fn bard() -> ScriptedAgent {
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    agent.on_send(|request| Reply::events([v1::message(&format!("la {}", request.text()))]));
    agent
}

/// An agent that works on its task until the signal.
async fn slow_bard() -> (ScriptedAgent, Signal) {
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    let go = Signal::new();
    let working = v1::status_update(RAW_TASK, RAW_CONTEXT, "working", Some("humming"));
    let begun = Reply::stream().event(v1::task(RAW_TASK, RAW_CONTEXT, "working")).event(working);
    let whole = begun.wait(&go).event(v1::completed(RAW_TASK, RAW_CONTEXT, "the song"));
    agent.on_send(move |_| whole.clone());
    agent.on_cancel(|_| Reply::result(v1::bare_task(RAW_TASK, RAW_CONTEXT, "canceled")));
    (agent, go)
}

fn call(text: &str) -> Value {
    json!({ "name": TOOL, "arguments": { "text": text }, "_meta": { "progressToken": text } })
}

fn names(tools: &Value) -> Vec<&str> {
    tools["tools"].as_array().unwrap().iter().filter_map(|tool| tool["name"].as_str()).collect()
}

#[tokio::test]
async fn legacy_client_calls_over_stdio() {
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", LEGACY] {
        let (agent, go) = slow_bard().await;
        let mut host = StdioHost::before(&agent, "");
        assert_eq!(host.initialize(version).await["protocolVersion"], version);
        let listed = host.ask("tools/list", json!({}));
        assert!(names(&host.result(listed).await).contains(&TOOL), "the first list has the agent");
        let called = host.ask("tools/call", call("hi"));
        let progress = host.notification("notifications/progress").await;
        assert_eq!(progress["params"]["progressToken"], "hi");
        go.fire();
        let result = host.result(called).await;
        assert_eq!((words(&result), result.get("resultType")), ("the song", None));
    }
}

#[tokio::test]
async fn modern_client_calls_over_stdio() {
    let (agent, go) = slow_bard().await;
    let mut host = StdioHost::before(&agent, "");
    let discovered = host.ask_modern("server/discover", json!({}));
    assert_eq!(host.result(discovered).await["supportedVersions"], json!(["2026-07-28"]));
    let called = host.ask_modern("tools/call", call("hi"));
    let progress = host.notification("notifications/progress").await;
    assert_eq!(progress["params"]["progressToken"], "hi");
    go.fire();
    let result = host.result(called).await;
    assert_eq!((words(&result), &result["resultType"]), ("the song", &json!("complete")));
    for (method, params) in [
        ("resources/read", json!({ "uri": "a2a-agent://b\u{e4}rd" })),
        ("prompts/get", json!({ "name": " odd \u{1f3b5}" })),
        ("tasks/get", json!({ "taskId": "=?base64?x?=" })),
    ] {
        let id = host.ask_modern(method, params);
        let error = host.response(id).await["error"].clone();
        assert!(error["code"].is_i64() && error["code"] != -32020, "no header is to blame: {error}");
    }
    let old = json!({ "_meta": { "io.modelcontextprotocol/protocolVersion": "2199-01-01" } });
    let unsupported = host.ask_modern("tools/list", old);
    assert_eq!(host.response(unsupported).await["error"]["code"], -32022);
}

#[tokio::test]
async fn pipelined_messages_take_effect_in_order() {
    let agent = bard().await;
    let mut host = StdioHost::before(&agent, "");
    let client = json!({ "name": "script", "version": "1" });
    let params = json!({ "protocolVersion": LEGACY, "capabilities": {}, "clientInfo": client });
    let begun = host.ask("initialize", params);
    host.notify("notifications/initialized", json!({}));
    let subscribed = host.ask("resources/subscribe", json!({ "uri": "a2a-agent://bard" }));
    let called = host.ask("tools/call", call("hi"));
    host.close_input();
    assert_eq!(host.ended().await, Some(0));
    host.result(begun).await;
    assert_eq!(host.result(subscribed).await, json!({}), "it belongs to the session");
    assert_eq!(words(&host.result(called).await), "la hi");
}

#[tokio::test]
async fn batch_is_answered_on_one_line() {
    let agent = bard().await;
    let mut host = StdioHost::before(&agent, "");
    host.initialize("2025-03-26").await;
    let ping = json!({ "jsonrpc": "2.0", "id": "a", "method": "ping" });
    let called = json!({ "jsonrpc": "2.0", "id": "b", "method": "tools/call", "params": call("hi") });
    host.send(&json!([ping, called]));
    let answered = host.message(Value::is_array).await;
    assert_eq!((&answered[0]["id"], &answered[0]["result"]), (&json!("a"), &json!({})));
    assert_eq!((&answered[1]["id"], words(&answered[1]["result"])), (&json!("b"), "la hi"));
}

#[tokio::test]
async fn question_is_answered_over_stdio() {
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    Quiz::of(&agent, [question("Which key?")]);
    let mut host = StdioHost::before(&agent, "");
    host.declare(json!({ "elicitation": {} }));
    host.initialize(LEGACY).await;
    let called = host.ask("tools/call", call("hi"));
    let asked = host.notification("elicitation/create").await;
    assert_eq!(asked["params"]["message"], "Which key?");
    let content = json!({ "action": "accept", "content": { "reply": "c minor" } });
    host.send(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": content }));
    assert_eq!(words(&host.result(called).await), "thank you");
}

#[tokio::test]
async fn modern_question_is_answered_over_stdio() {
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    Quiz::of(&agent, [question("Which key?")]);
    let mut host = StdioHost::before(&agent, "");
    host.declare(json!({ "elicitation": { "form": {} } }));
    let called = host.ask_modern("tools/call", call("hi"));
    let asked = host.result(called).await;
    let key = asked["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
    let mut again = call("hi");
    again["requestState"] = asked["requestState"].clone();
    again["inputResponses"] = json!({ key: { "action": "accept", "content": { "reply": "c minor" } } });
    let answered = host.ask_modern("tools/call", again);
    assert_eq!(words(&host.result(answered).await), "thank you");
}

/// In both eras the agent learns of it, and nothing more is sent for the call, even if the host did
/// not wait for a sign of it.
#[tokio::test]
async fn cancelled_call_gets_no_response() {
    for (is_modern, is_hasty) in [(false, false), (false, true), (true, false), (true, true)] {
        let (agent, _go) = slow_bard().await;
        let mut host = StdioHost::before(&agent, AT_ONCE);
        let called = if is_modern {
            host.ask_modern("tools/call", call("hi"))
        } else {
            host.initialize(LEGACY).await;
            host.ask("tools/call", call("hi"))
        };
        if !is_hasty {
            host.notification("notifications/progress").await;
        }
        host.cancel(called);
        agent.wait_for_call("CancelTask").await;
        let listed = host.ask_modern("tools/list", json!({}));
        host.result(listed).await;
        host.close_input();
        assert_eq!(host.ended().await, Some(0));
        assert!(host.passed().iter().all(|message| message["id"] != called), "{:?}", host.passed());
    }
}

#[tokio::test]
async fn listen_streams_until_it_is_cancelled() {
    let agent = bard().await;
    let mut host = StdioHost::before(&agent, QUICK);
    let wanted = json!({ "notifications": { "toolsListChanged": true } });
    let [first, second] = [(); 2].map(|()| host.ask_modern("subscriptions/listen", wanted.clone()));
    for id in [first, second] {
        let told = host.notification("notifications/subscriptions/acknowledged").await;
        assert!([first, second].contains(&told["params"]["_meta"][SUBSCRIPTION].as_u64().unwrap()), "{id}");
    }
    agent.set_card(Card::v1().skill("sing").skill("dance"));
    for _ in 0..2 {
        host.notification("notifications/tools/list_changed").await;
    }
    host.cancel(first);
    agent.set_card(Card::v1().skill("sing"));
    let changed = host.notification("notifications/tools/list_changed").await;
    assert_eq!(changed["params"]["_meta"][SUBSCRIPTION], second);
    host.close_input();
    assert_eq!(host.result(second).await["resultType"], "complete", "a planned end");
    assert_eq!(host.ended().await, Some(0));
    assert!(host.passed().is_empty(), "nothing for a cancelled one: {:?}", host.passed());
}

#[tokio::test]
async fn session_hears_of_changes() {
    let agent = bard().await;
    let mut host = StdioHost::before(&agent, QUICK);
    host.initialize(LEGACY).await;
    let subscribed = host.ask("resources/subscribe", json!({ "uri": "a2a-agent://bard" }));
    host.result(subscribed).await;
    agent.set_card(Card::v1().skill("sing").skill("dance"));
    host.notification("notifications/tools/list_changed").await;
    let updated = host.notification("notifications/resources/updated").await;
    assert_eq!(updated["params"]["uri"], "a2a-agent://bard");
    // A new session replaces it, with a stream of its own.
    host.initialize("2025-06-18").await;
    agent.set_card(Card::v1().skill("sing"));
    host.notification("notifications/tools/list_changed").await;
    host.close_input();
    assert_eq!(host.ended().await, Some(0));
    let changes =
        host.passed().iter().filter(|message| message["method"] == "notifications/tools/list_changed");
    assert_eq!(changes.count(), 0, "the first session has ended: {:?}", host.passed());
}

#[tokio::test]
async fn broken_line_gets_an_error() {
    let agent = bard().await;
    let mut host = StdioHost::before(&agent, "limits: { body: 1KiB }");
    let long = "x".repeat(200_000);
    let [id_first, id_last] = [
        format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\",\"params\":{{\"x\":\"{long}\",\"id\":1}}}}"
        ),
        format!(
            "{{\"method\":\"ping\",\"params\":{{\"id\":1,\"x\":\"{long}\"}},\"jsonrpc\":\"2.0\",\"id\":\"b\"}}"
        ),
    ];
    let id_within = format!("{{\"method\":\"ping\",\"params\":{{\"x\":\"{long}\",\"id\":1}}}}");
    for (line, code, id) in [
        ("{", -32700, Value::Null),
        ("\u{feff}", -32700, Value::Null),
        ("[]", -32600, Value::Null),
        ("{\"id\":5}", -32600, json!(5)),
        (id_first.as_str(), -32600, json!(7)),
        (id_last.as_str(), -32600, json!("b")),
        (id_within.as_str(), -32600, Value::Null),
    ] {
        host.write(format!("{line}\n").as_bytes());
        let error = host.message(|message| message["error"].is_object()).await;
        assert_eq!((&error["error"]["code"], &error["id"]), (&json!(code), &id), "{error}");
    }
    // These have no response.
    host.write(b"\n \r\n");
    host.notify("notifications/nonsense", json!({}));
    host.notify("tools/call", json!({ "name": 7 }));
    host.send(&json!({ "jsonrpc": "2.0", "id": "unknown", "result": {} }));
    let pinged = host.ask("ping", json!({}));
    assert_eq!(host.result(pinged).await, json!({}));
    assert!(host.passed().is_empty(), "{:?}", host.passed());
}

#[tokio::test]
async fn running_call_is_finished_after_the_input() {
    let (agent, go) = slow_bard().await;
    let mut host = StdioHost::before(&agent, "");
    host.initialize(LEGACY).await;
    let called = host.ask("tools/call", call("hi"));
    host.notification("notifications/progress").await;
    host.close_input();
    host.wait_for_log("standard input ended").await;
    go.fire();
    assert_eq!(words(&host.result(called).await), "the song");
    assert_eq!(host.ended().await, Some(0));
}

/// A call that its agent does not finish gets a handle before the process ends.
#[tokio::test]
async fn drain_bounds_the_end() {
    let (agent, _go) = slow_bard().await;
    let mut host = StdioHost::before(&agent, "shutdown: { grace: 1h, drain: 1s }");
    host.initialize(LEGACY).await;
    let called = host.ask("tools/call", call("hi"));
    host.notification("notifications/progress").await;
    host.signal("TERM");
    let result = host.result(called).await;
    assert!(result["structuredContent"]["taskId"].is_string(), "{result}");
    assert_eq!(host.ended().await, Some(0));
}

#[tokio::test]
async fn rules_apply_to_local() {
    let agent = ScriptedAgent::start(Card::v1().skill("sing").skill("dance")).await;
    agent.on_send(|_| Reply::events([v1::message("ok")]));
    let rules = "auth: { api_keys: { keys: { ci: \"sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\" } } }\n\
                 rules: [{ callers: local, tools: [sing] }, { callers: \"key:ci\" }]";
    let mut host = StdioHost::before(&agent, rules);
    let listed = host.ask_modern("tools/list", json!({}));
    let tools = host.result(listed).await;
    assert!(names(&tools).contains(&TOOL) && !names(&tools).contains(&"bard_dance"), "{tools}");
    let called = host.ask_modern("tools/call", call("hi"));
    assert_eq!(words(&host.result(called).await), "ok");
    let refused =
        host.ask_modern("tools/call", json!({ "name": "bard_dance", "arguments": { "text": "x" } }));
    assert!(host.response(refused).await["error"].is_object());
}

#[tokio::test]
async fn rejected_request_has_its_id() {
    let agent = bard().await;
    let mut host = StdioHost::before(&agent, "limits: { caller_rate: 1, caller_burst: 1 }");
    let ids: Vec<u64> = (0..20).map(|_| host.ask_modern("tools/list", json!({}))).collect();
    let mut rejected = 0;
    for id in ids {
        rejected += usize::from(host.response(id).await["error"].is_object());
    }
    assert!(rejected > 0);
}

#[tokio::test]
async fn only_stdio_needs_no_listeners() {
    let agent = bard().await;
    let config = format!("agents: {{ bard: {{ card: \"{}\" }} }}\n", agent.card_url());
    for command in ["serve", "check"] {
        let refused = TestGateway::run_with_config(command, &config).await;
        assert_eq!(refused.status.code(), Some(1), "{command}");
        let told = String::from_utf8(refused.stderr).unwrap();
        assert!(told.contains("listeners: is missing") && told.contains("stdio"), "{told}");
    }
    assert!(TestGateway::run_with_config("agents", &config).await.status.success());
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("gateway.yaml");
    std::fs::write(&file, config).unwrap();
    let checked = TestGateway::run_command(&["check", "--stdio", "--config", file.to_str().unwrap()]).await;
    assert!(checked.status.success(), "{checked:?}");
}

#[tokio::test]
async fn listeners_are_ignored() {
    let agent = bard().await;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let mut host = StdioHost::before(&agent, &format!("listeners: [{{ address: \"{address}\" }}]"));
    let called = host.ask_modern("tools/call", call("hi"));
    assert_eq!(words(&host.result(called).await), "la hi");
    host.wait_for_log("ignoring listeners and admin").await;
}

#[tokio::test]
async fn urls_of_agents_are_enough() {
    let [one, other] = [bard().await, bard().await];
    let mut host = StdioHost::with_arguments(&["--agent", &one.url(), "--agent", &other.card_url()]);
    let listed = host.ask_modern("tools/list", json!({}));
    let tools = host.result(listed).await;
    for tool in ["agent_sing", "agent-2_sing"] {
        assert!(names(&tools).contains(&tool), "{tools}");
    }
    for (name, url) in [("agent", one.url()), ("agent-2", other.card_url())] {
        host.wait_for_log(&format!("agent=\"{name}\" card=\"{url}\"")).await;
    }
    let wrong = TestGateway::run_command(&["stdio", "--agent", "ftp://x/"]).await;
    assert!(!wrong.status.success() && wrong.stdout.is_empty(), "{wrong:?}");
    assert!(String::from_utf8(wrong.stderr).unwrap().contains("ftp"));
}

#[tokio::test]
async fn agents_are_named_by_their_urls() {
    let urls = [
        ("maps", "http://127.0.0.1:1/team/maps/.well-known/agent-card.json"),
        ("maps-2", "http://127.0.0.1:1/Maps.json"),
        ("weather", "http://weather.localhost:1"),
        ("agent", "http://localhost:1/"),
        ("agent-2", "http://[::1]:1/"),
        ("a-very-long-name-that-needs-to-b", "http://127.0.0.1:1/a-very-long-name-that-needs-to-be-cut"),
    ];
    let arguments: Vec<&str> = urls.iter().flat_map(|(_, url)| ["--agent", url]).collect();
    let host = StdioHost::with_arguments(&arguments);
    for (name, url) in urls {
        host.wait_for_log(&format!("agent=\"{name}\" card=\"{url}\"")).await;
    }
}

#[tokio::test]
async fn held_data_dir_is_said() {
    let agent = bard().await;
    let directory = TempDir::new().unwrap();
    let (path, card) = (directory.path().display(), agent.card_url());
    let config = format!("tasks: {{ data_dir: \"{path}\" }}\nagents: {{ bard: {{ card: \"{card}\" }} }}\n");
    let _owner = TestGateway::start(|ports| format!("{}{config}", ports.listeners())).await;
    let mut host = StdioHost::with_config(&config);
    let called = host.ask_modern("tools/call", call("hi"));
    assert_eq!(words(&host.result(called).await), "la hi");
    host.wait_for_log("belongs to another process").await;
    host.wait_for_log(&path.to_string()).await;
    host.close_input();
    assert_eq!(host.ended().await, Some(0));
}

/// The host writes on; the gateway reads no more than it can answer.
#[tokio::test]
async fn host_that_does_not_read_is_held_up() {
    const REQUESTS: usize = 20_000;
    let agent = bard().await;
    let mut host = StdioHost::unread(&format!(
        "limits: {{ caller_rate: 1000000, caller_burst: 1000000 }}\nlog: {{ level: error }}\nagents: {{ bard: {{ card: \"{}\" }} }}\n",
        agent.card_url()
    ));
    let mut input = host.take_input();
    let written = Arc::new(AtomicUsize::new(0));
    let count = written.clone();
    let writer = std::thread::spawn(move || {
        for id in 0..REQUESTS {
            let ping = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"ping\"}}\n");
            input.write_all(ping.as_bytes()).unwrap();
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    let mut before = usize::MAX;
    while before != written.load(Ordering::SeqCst) || before == 0 {
        before = written.load(Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    assert!(before < REQUESTS / 2, "{before} were read of a host that does not read");
    assert!(host.resident_kib() < 200 * 1024, "{} KiB", host.resident_kib());
    host.read();
    for id in 0..REQUESTS {
        assert_eq!(host.response(id as u64).await["result"], json!({}));
    }
    writer.join().unwrap();
}

#[tokio::test]
async fn closed_output_ends_the_process() {
    let agent = bard().await;
    let mut host = StdioHost::unread(&format!("agents: {{ bard: {{ card: \"{}\" }} }}\n", agent.card_url()));
    host.close_output();
    host.ask_modern("tools/list", json!({}));
    assert_eq!(host.ended().await, Some(0));
}
