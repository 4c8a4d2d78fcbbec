//! Answers that need no agent: handshakes, lists, resources, and requests that clients send out of
//! habit.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::kit::scene::Scene;
use crate::support::{Card, McpClient, ScriptedAgent, TestGateway, in_time};

const LEGACY: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// The names in a list; those of the gateway's own tools are left out.
fn names(list: &Value, member: &str) -> Vec<String> {
    let items = list[member].as_array().unwrap_or_else(|| panic!("no {member}: {list}"));
    let names = items.iter().map(|item| item["name"].as_str().unwrap().to_owned());
    names.filter(|name| !is_own(name)).collect()
}

fn is_own(tool: &str) -> bool {
    tool.starts_with("subagent_") || tool == "find_agent"
}

async fn modern(client: &McpClient, method: &str, params: Value) -> Value {
    let answer = client.modern(method, params).await;
    assert_eq!(answer.status, 200, "{method}");
    answer.result().await
}

#[tokio::test]
async fn initialize_negotiates_revision() {
    let scene = Scene::new().await;
    let client = scene.gateway.client();
    let others = [("2026-07-28", LEGACY[0]), ("2031-01-01", LEGACY[0]), ("1.0", LEGACY[0])];
    for (asked, answered) in LEGACY.map(|version| (version, version)).into_iter().chain(others) {
        let answer = client.initialize(asked).await;
        let id = answer.header("mcp-session-id").expect("a session").to_owned();
        assert!(id.bytes().all(|byte| (0x21..=0x7E).contains(&byte)), "{id}");
        let result = answer.result().await;
        assert_eq!(result["protocolVersion"], answered, "{asked}");
        assert_eq!(result["serverInfo"]["name"], "mcp-a2a-gateway");
        assert!(!result["serverInfo"]["version"].as_str().unwrap().is_empty());
        for capability in ["tools", "resources", "logging", "completions"] {
            assert!(result["capabilities"][capability].is_object(), "{capability}");
        }
        assert_eq!(result.get("resultType"), None, "a legacy result");
    }
}

#[tokio::test]
async fn initialize_ignores_stale_headers() {
    let scene = Scene::new().await;
    let client = scene.gateway.client();
    for (name, value) in [
        ("Mcp-Session-Id", "long-gone"),
        ("MCP-Protocol-Version", "2025-11-25"),
        ("MCP-Protocol-Version", "1999-01-01"),
        ("Mcp-Method", "initialize"),
    ] {
        let answer = client.header(name, value).initialize("2025-11-25").await;
        assert_eq!(answer.status, 200, "{name}: {value}");
        assert!(answer.header("mcp-session-id").is_some());
    }
}

#[tokio::test]
async fn discover_names_gateway() {
    let scene = Scene::tuned("mcp: { instructions: Sing., server_name: choir, list_ttl: 5s }").await;
    let found = modern(&scene.gateway.client(), "server/discover", json!({})).await;
    assert_eq!(found["supportedVersions"], json!(["2026-07-28"]));
    assert_eq!((&found["resultType"], &found["instructions"]), (&json!("complete"), &json!("Sing.")));
    assert!(found["capabilities"]["tools"].is_object() && found["capabilities"]["resources"].is_object());
    let server = &found["_meta"]["io.modelcontextprotocol/serverInfo"];
    assert_eq!(server["name"], "choir");
    assert!(!server["version"].as_str().unwrap().is_empty());
    assert!(found["ttlMs"].is_u64() && found["cacheScope"].is_string());
    let session = scene.session().await;
    assert_eq!(session.initialized["instructions"], "Sing.");
    assert_eq!(session.initialized["serverInfo"]["name"], "choir");
}

#[tokio::test]
async fn ping_and_set_level_get_empty_result() {
    let scene = Scene::new().await;
    let session = scene.session().await;
    assert_eq!(session.call("ping", json!({})).await.result().await, json!({}));
    let level = session.call("logging/setLevel", json!({ "level": "warning" })).await;
    assert_eq!(level.result().await, json!({}));
    let wrong = session.call("logging/setLevel", json!({ "level": "loud" })).await;
    assert_eq!((wrong.status, wrong.error_code().await), (200, -32602));
    // `params` may be missing, and an id may be anything that JSON-RPC allows.
    for id in [json!(0), json!(""), json!("é"), json!(-1), json!(9_007_199_254_740_993_u64)] {
        let answer = session.post(&json!({ "jsonrpc": "2.0", "id": id, "method": "ping" })).await;
        assert_eq!(answer.text().await, format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#));
    }
}

#[tokio::test]
async fn tools_are_listed_per_revision() {
    let card = Card::v1().skill("sing").skill_with(json!({
        "id": "dance", "name": "Dance!", "description": "Dances", "tags": [], "examples": ["a waltz"],
    }));
    let scene = Scene::of(card, "", "").await;
    for version in LEGACY {
        let session = scene.gateway.client().legacy_version(version).await;
        let list = session.call("tools/list", json!({})).await.result().await;
        assert_eq!(names(&list, "tools"), ["bard_dance", "bard_sing"], "{version}");
        let dance = &list["tools"][0];
        let has_titles = version >= "2025-06-18";
        assert_eq!(dance.get("title").is_some(), has_titles, "{version}: {dance}");
        for unknown in ["resultType", "ttlMs", "cacheScope", "nextCursor"] {
            assert_eq!(list.get(unknown), None, "{version}");
        }
    }
    let list = modern(&scene.gateway.client(), "tools/list", json!({})).await;
    assert_eq!((&list["resultType"], &list["cacheScope"]), (&json!("complete"), &json!("private")));
    assert!(list["ttlMs"].is_u64());
    let dance = &list["tools"][0];
    let described = dance["description"].as_str().unwrap();
    assert!(described.contains("Dances") && described.contains("a waltz"), "{described}");
    assert_eq!(dance["inputSchema"]["type"], "object");
    let annotations = &dance["annotations"];
    assert!(annotations["readOnlyHint"].is_boolean() && annotations["openWorldHint"] == true, "{dance}");
    for forbidden in ["anyOf", "oneOf", "allOf", "$ref"] {
        assert_eq!(dance["inputSchema"].get(forbidden), None, "model APIs refuse it");
    }
    assert_eq!(list, modern(&scene.gateway.client(), "tools/list", json!({})).await, "stable");
}

#[tokio::test]
async fn agent_endpoint_has_no_tool_prefix() {
    let scene = Scene::new().await;
    let list = modern(&scene.gateway.client_of("bard"), "tools/list", json!({})).await;
    assert_eq!(names(&list, "tools"), ["sing"]);
    let unknown = scene.gateway.client_of("nobody").modern("tools/list", json!({})).await;
    assert_eq!(unknown.status, 404);
    assert_eq!(scene.gateway.client().at("/elsewhere").modern("tools/list", json!({})).await.status, 404);
}

#[tokio::test]
async fn own_tools_can_be_switched_off() {
    let own = |list: &Value| {
        let names =
            list["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned());
        names.filter(|name| is_own(name)).collect::<Vec<_>>()
    };
    let scene = Scene::new().await;
    let all = own(&modern(&scene.gateway.client(), "tools/list", json!({})).await);
    let of_tasks = ["subagent_cancel", "subagent_get", "subagent_send", "subagent_start", "subagent_wait"];
    assert_eq!((all[0].as_str(), &all[1..]), ("find_agent", of_tasks.map(str::to_owned).as_slice()));
    let one = own(&modern(&scene.gateway.client_of("bard"), "tools/list", json!({})).await);
    assert_eq!(one, ["subagent_cancel", "subagent_get", "subagent_send", "subagent_wait"]);
    let scene = Scene::tuned("mcp: { subagent_tools: false }").await;
    assert_eq!(own(&modern(&scene.gateway.client(), "tools/list", json!({})).await), ["find_agent"]);
    let params = json!({ "name": "subagent_get", "arguments": { "taskId": "x" } });
    assert_eq!(scene.gateway.client().modern("tools/call", params).await.error_code().await, -32602);
}

/// Tasks of before can be asked for, and agents that come up later can be found.
#[tokio::test]
async fn own_tools_are_listed_without_agents() {
    let gateway = TestGateway::start(|ports| {
        let nowhere = crate::support::free_port();
        let card = format!("http://127.0.0.1:{nowhere}/.well-known/agent-card.json");
        format!("{}agents:\n  bard: {{ card: '{card}' }}\n  bank: {{ card: '{card}' }}\n", ports.listeners())
    })
    .await;
    let own = async |client: McpClient| {
        let list = modern(&client, "tools/list", json!({})).await;
        let tools = list["tools"].as_array().unwrap().iter();
        tools.map(|tool| tool["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let of_tasks = ["subagent_cancel", "subagent_get", "subagent_send", "subagent_start", "subagent_wait"];
    let all = own(gateway.client()).await;
    assert_eq!((all[0].as_str(), &all[1..]), ("find_agent", of_tasks.map(str::to_owned).as_slice()));
    let one = own(gateway.client_of("bard")).await;
    assert_eq!(one, ["subagent_cancel", "subagent_get", "subagent_send", "subagent_wait"]);
    let params = json!({ "name": "subagent_get", "arguments": { "taskId": "made-up" } });
    for client in [gateway.client(), gateway.client_of("bard")] {
        let told = modern(&client, "tools/call", params.clone()).await;
        assert!(told["content"][0]["text"].as_str().unwrap().contains("Unknown taskId"), "{told}");
    }
}

/// An answer that says which paths are served, and where agents are found, for any wrong path.
#[tokio::test]
async fn unknown_paths_say_what_is_served() {
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    let gateway = TestGateway::start(|ports| {
        let services = format!(
            "    serve: [mcp, a2a, push]\n  - address: 127.0.0.1:{}\n    serve: [health]\nadmin:",
            ports.other
        );
        let listeners = ports.listeners().replacen("admin:", &services, 1);
        format!("{listeners}agents:\n  bard:\n    card: {}\n", agent.card_url())
    })
    .await;
    let other = McpClient::new(&format!("http://127.0.0.1:{}/", gateway.ports().other));
    let paths = [
        "/",
        "/elsewhere",
        "/healthz",
        "/mcp/nobody",
        "/mcp/bard/x",
        "/a2a/nobody",
        "/a2a/bard/x",
        "/a2a/bard/tasks/t/x",
        "/a2a/nobody/.well-known/agent-card.json",
        "/push/made-up",
        "/.well-known/other",
        "/.well-known/oauth-protected-resource",
    ];
    let asked = paths.map(|path| gateway.client().at(path)).into_iter();
    for client in asked.chain(["/mcp", "/mcp/bard", "/a2a/bard", "/push/x"].map(|path| other.at(path))) {
        for method in ["GET", "POST"] {
            let json = ("Content-Type", "application/json");
            let answer = client.send(method, &[json], b"{}".to_vec()).await;
            let (status, kind) = (answer.status, answer.header("content-type").map(str::to_owned));
            let text = answer.text().await;
            if (method, status) == ("POST", 405) {
                continue;
            }
            assert_eq!((status, kind.as_deref()), (404, Some("application/json")), "{method}: {text}");
            let told: Value = serde_json::from_str(&text).unwrap();
            let message = told["error"]["message"].as_str().unwrap_or_else(|| panic!("{text}"));
            for part in ["/mcp/AGENT", "/a2a/AGENT", "a2a://agents/registry"] {
                assert!(message.contains(part), "{message}");
            }
        }
    }
}

#[tokio::test]
async fn pages_cover_everything_once() {
    let card = ["a", "b", "c", "d", "e"].iter().fold(Card::v1(), |card, skill| card.skill(skill));
    let scene = Scene::of(card, "", "mcp: { page_size: 2 }").await;
    let session = scene.session().await;
    let (mut seen, mut params, mut pages) = (Vec::new(), json!({}), 0);
    loop {
        let list = session.call("tools/list", params).await.result().await;
        seen.extend(names(&list, "tools"));
        pages += 1;
        let Some(cursor) = list.get("nextCursor") else { break };
        params = json!({ "cursor": cursor });
    }
    assert_eq!((seen.len(), pages), (5, 6), "and six of the gateway itself");
    assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), 5, "{seen:?}");
    for method in ["tools/list", "resources/list"] {
        let made_up = session.call(method, json!({ "cursor": "made-up" })).await;
        assert_eq!((made_up.status, made_up.error_code().await), (200, -32602), "{method}");
    }
}

#[tokio::test]
async fn agents_are_resources_with_card() {
    let scene = Scene::new().await;
    let (client, session) = (scene.gateway.client(), scene.session().await);
    let list = modern(&client, "resources/list", json!({})).await;
    assert_eq!(list["resources"][0]["uri"], "a2a-agent://bard");
    assert!(list["ttlMs"].is_u64() && list["cacheScope"] == "private");
    let templates = modern(&client, "resources/templates/list", json!({})).await;
    assert_eq!(templates["resourceTemplates"][0]["uriTemplate"], "a2a-agent://{agent}");
    let read = modern(&client, "resources/read", json!({ "uri": "a2a-agent://bard" })).await;
    let content = &read["contents"][0];
    assert_eq!(
        (&content["uri"], &content["mimeType"]),
        (&json!("a2a-agent://bard"), &json!("application/json"))
    );
    let card: Value = serde_json::from_str(content["text"].as_str().unwrap()).unwrap();
    assert_eq!(card["skills"][0]["id"], "sing");
    let legacy = session.call("resources/read", json!({ "uri": "a2a-agent://bard" })).await.result().await;
    assert_eq!(legacy["contents"], read["contents"]);
    assert_eq!(legacy.get("ttlMs"), None);
}

#[tokio::test]
async fn unknown_resource_has_code_of_its_era() {
    let scene = Scene::new().await;
    for uri in ["a2a-agent://nobody", "file:///etc/passwd", "a2a://task/made-up", ""] {
        let params = json!({ "uri": uri });
        let legacy = scene.session().await.call("resources/read", params.clone()).await;
        assert_eq!(legacy.status, 200);
        let error = legacy.json().await["error"].clone();
        assert_eq!((&error["code"], &error["data"]["uri"]), (&json!(-32002), &json!(uri)));
        let modern = scene.gateway.client().modern("resources/read", params).await;
        let error = modern.json().await["error"].clone();
        assert_eq!((&error["code"], &error["data"]["uri"]), (&json!(-32602), &json!(uri)));
    }
}

#[tokio::test]
async fn prompts_are_empty_agents_completed() {
    let agent = ScriptedAgent::start(Card::v1().skill("x")).await;
    let gateway = TestGateway::before(&[("weather", &agent), ("web", &agent), ("bard", &agent)]).await;
    let (client, session) = (gateway.client(), gateway.client().legacy().await);
    assert_eq!(modern(&client, "prompts/list", json!({})).await["prompts"], json!([]));
    assert_eq!(session.call("prompts/list", json!({})).await.result().await["prompts"], json!([]));
    let complete = |reference: Value, value: &str| json!({ "ref": reference, "argument": { "name": "agent", "value": value } });
    let agents = json!({ "type": "ref/resource", "uri": "a2a-agent://{agent}" });
    let completed = modern(&client, "completion/complete", complete(agents, "we")).await;
    assert_eq!(completed["completion"]["values"], json!(["weather", "web"]));
    let unknown = complete(json!({ "type": "ref/prompt", "name": "p" }), "a");
    let completed = session.call("completion/complete", unknown).await.result().await;
    assert_eq!(completed["completion"]["values"], json!([]));
}

#[tokio::test]
async fn only_modern_results_are_marked() {
    let scene = Scene::new().await;
    let (client, session) = (scene.gateway.client(), scene.session().await);
    for method in ["tools/list", "resources/list", "resources/templates/list", "prompts/list"] {
        let marked = modern(&client, method, json!({})).await;
        assert_eq!(marked["resultType"], "complete", "{method}");
        assert!(marked["ttlMs"].is_u64() && marked["cacheScope"].is_string(), "{method}");
        let plain = session.call(method, json!({})).await.result().await;
        for member in ["resultType", "ttlMs", "cacheScope"] {
            assert_eq!(plain.get(member), None, "{method}");
        }
    }
}

#[tokio::test]
async fn health_is_served_on_both_listeners() {
    let scene = Scene::new().await;
    let health = scene.gateway.client().at("/healthz").get(&[]).await;
    assert_eq!(health.status, 200);
    let health = health.json().await;
    assert_eq!((&health["ok"], &health["activeSse"], &health["tasks"]), (&json!(true), &json!(0), &json!(0)));
    assert!(health["uptime"].is_number(), "{health}");
    for path in ["/healthz", "/readyz", "/metrics", "/agents"] {
        assert_eq!(scene.gateway.admin().at(path).get(&[]).await.status, 200, "{path}");
    }
    for path in ["/readyz", "/metrics", "/agents"] {
        let leaked = scene.gateway.client().at(path).get(&[]).await.status;
        assert_eq!(leaked, 404, "{path} is for the operator");
    }
}

#[tokio::test]
async fn list_without_card_is_not_kept() {
    let [here, late] =
        [ScriptedAgent::start(Card::v1().skill("sing")).await, ScriptedAgent::start(Card::v1()).await];
    let url = late.card_url();
    let address = late.stop().await;
    let gateway = TestGateway::start(|ports| {
        format!(
            "{}cards: {{ retry: 100ms }}\nagents:\n  bard:\n    card: {}\n  late:\n    card: {url}\n",
            ports.listeners(),
            here.card_url()
        )
    })
    .await;
    let list = async || gateway.client().modern("tools/list", json!({})).await.result().await;
    assert_eq!(list().await["ttlMs"], 0);
    assert_eq!(
        gateway.client_of("bard").modern("tools/list", json!({})).await.result().await["ttlMs"],
        60_000
    );
    let _late = ScriptedAgent::start_at(address, Card::v1().skill("dance")).await;
    let whole = async { while list().await["ttlMs"] != 60_000 {} };
    in_time("a list that may be kept", whole).await;
    assert!(list().await.to_string().contains("late_dance"));
}
