//! Finding agents through MCP: the tool `find_agent` in every revision, and completions of what is
//! found.

use serde_json::{Value, json};

use crate::auth::rules::{auth, key_of};
use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, Scene, complaint, task_of, words};
use crate::support::payload::v1;
use crate::support::{Card, McpClient, Reply, ScriptedAgent, TestGateway};

/// Two agents behind a gateway that serves MCP and A2A: `bard` with two skills, and `bank`.
pub(crate) async fn town(settings: &str) -> TestGateway {
    let song = json!({ "id": "sing", "name": "Sing", "description": "A song of rain", "tags": ["Music"] });
    let bard = Card::v1().name("The Bard").skill_with(song).skill("whisper");
    let bard = ScriptedAgent::start(bard).await;
    let bank = ScriptedAgent::start(Card::v0_3().name("The Bank").skill("pay")).await;
    TestGateway::start(|ports| {
        let (main, admin) = (ports.main, ports.admin);
        let listeners = format!("listeners: [{{ address: 127.0.0.1:{main}, serve: [mcp, a2a, health] }}]\n");
        let agents = format!(
            "agents:\n  bard:\n    card: {}\n  bank:\n    card: {}\n",
            bard.card_url(),
            bank.card_url()
        );
        format!("{listeners}admin: {{ address: 127.0.0.1:{admin} }}\n{settings}{agents}")
    })
    .await
}

/// Rules by which `ann` may sing and no caller may whisper.
pub(crate) fn rules() -> String {
    let rules = "rules:\n  - { deny: true, tools: whisper }\n  - { callers: \"key:ann\", agents: bard }\n  - { \
                 callers: \"key:ann\", tools: find_agent }\n  - { callers: \"key:ben\" }\n";
    format!("{}{rules}", auth(&["ann", "ben"]))
}

async fn find(client: &McpClient, arguments: Value) -> Value {
    let params = json!({ "name": "find_agent", "arguments": arguments });
    client.modern("tools/call", params).await.result().await
}

/// The names of the agents in a result, in its order.
fn names(told: &Value) -> Vec<&str> {
    let agents = told["structuredContent"]["agents"].as_array().unwrap_or_else(|| panic!("{told}"));
    agents.iter().map(|agent| agent["name"].as_str().unwrap()).collect()
}

/// The instructions for the model when a client begins: a modern one, and a legacy one.
async fn instructions(client: &McpClient) -> [String; 2] {
    let modern = client.modern("server/discover", json!({})).await.result().await;
    let legacy = client.legacy().await.initialized;
    [modern, legacy].map(|told| told["instructions"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn find_agent_is_offered_where_useful() {
    let several = town("").await;
    for told in instructions(&several.client()).await {
        assert!(told.contains("skill of an A2A agent") && told.contains("find_agent finds agents"), "{told}");
    }
    let ruled = town(&rules()).await;
    let ann = |told: &String| told.contains("find_agent");
    assert!(instructions(&ruled.client().header("X-Api-Key", &key_of("ann"))).await.iter().all(ann));
    let off = town("mcp: { find_agent: false }\n").await;
    let alone = Scene::new().await;
    let own = town("mcp: { instructions: Sing. }\n").await;
    for client in [several.client_of("bard"), off.client(), alone.gateway.client(), own.client()] {
        for told in instructions(&client).await {
            assert!(!told.is_empty() && !told.contains("find_agent"), "{told}");
        }
    }
}

#[tokio::test]
async fn agent_is_found_by_each_of_its_words() {
    let gateway = town("").await;
    let client = gateway.client();
    for (arguments, found) in [
        (json!({ "query": "bank" }), vec!["bank"]),
        (json!({ "query": "MUSIC" }), vec!["bard"]),
        (json!({ "query": "rain song" }), vec!["bard"]),
        (json!({ "query": "rain pay" }), vec![]),
        (json!({ "query": "" }), vec!["bank", "bard"]),
        (json!({ "query": "the", "skill": "pay" }), vec!["bank"]),
        (json!({ "query": "", "tag": "music" }), vec!["bard"]),
    ] {
        let told = find(&client, arguments.clone()).await;
        assert_eq!(names(&told), found, "{arguments}");
        assert_eq!(told["isError"], false);
    }
    let told = find(&client, json!({ "query": "song" })).await;
    let bard = &told["structuredContent"]["agents"][0];
    assert_eq!((&bard["uri"], &bard["status"]), (&json!("a2a-agent://bard"), &json!("ready")));
    assert_eq!((&bard["skills"][0]["id"], &bard["skills"][0]["tool"]), (&json!("sing"), &json!("bard_sing")));
    let link = &told["content"][1];
    assert_eq!((&link["type"], &link["uri"]), (&json!("resource_link"), &json!("a2a-agent://bard")));
    let read = client.modern("resources/read", json!({ "uri": link["uri"] })).await.result().await;
    assert!(read["contents"][0]["text"].as_str().unwrap().contains("The Bard"), "the link leads somewhere");
    let wrong = find(&client, json!({ "skill": "x" })).await;
    assert!(complaint(&wrong).contains("\"query\" is a required property"), "{wrong}");
}

#[tokio::test]
async fn every_revision_gets_its_form() {
    let gateway = town("").await;
    for version in ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"] {
        let session = gateway.client().legacy_version(version).await;
        let list = session.call("tools/list", json!({})).await.result().await;
        let listed = list["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == "find_agent");
        let listed = listed.unwrap_or_else(|| panic!("{list}"));
        let told = session.call_tool("find_agent", json!({ "query": "rain" })).await.result().await;
        let text = words(&told);
        assert!(
            text.contains("\n- bard <a2a-agent://bard>: ") && text.contains("bard_sing (Sing)"),
            "{text}"
        );
        let has_structure = version >= "2025-06-18";
        assert_eq!(told.get("structuredContent").is_some(), has_structure, "{version}: {told}");
        assert_eq!(listed.get("outputSchema").is_some(), has_structure, "{version}");
        assert_eq!(told["content"].as_array().unwrap().len(), if has_structure { 2 } else { 1 });
        assert_eq!(told.get("resultType"), None);
        if has_structure {
            let schema = jsonschema::validator_for(&listed["outputSchema"]).unwrap();
            assert!(schema.is_valid(&told["structuredContent"]), "{told}");
        }
    }
    let batch = json!([{ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "find_agent", "arguments": { "query": "pay" } } }]);
    let session = gateway.client().legacy_version("2025-03-26").await;
    assert!(session.post(&batch).await.text().await.contains("a2a-agent://bank"), "in a batch too");
}

#[tokio::test]
async fn search_is_filtered_and_audited() {
    let gateway = town(&rules()).await;
    let by = |name: &str| gateway.client().header("X-Api-Key", &key_of(name));
    assert_eq!(names(&find(&by("ann"), json!({ "query": "" })).await), ["bard"]);
    assert_eq!(names(&find(&by("ben"), json!({ "query": "" })).await), ["bank", "bard"]);
    for (client, query) in [(by("ann"), "pay"), (by("ann"), "bank"), (by("ben"), "whisper")] {
        let told = find(&client, json!({ "query": query })).await;
        assert!(names(&told).is_empty() && words(&told).starts_with("No agent fits"), "{query}: {told}");
    }
    let all = find(&by("ben"), json!({ "query": "" })).await.to_string();
    assert!(!all.contains("whisper"), "a skill that nobody may use: {all}");
    gateway.wait_for_output("tool=find_agent").await;
    let output = gateway.output();
    let line = output.lines().find(|line| line.contains("audit") && line.contains("tool=find_agent"));
    let line = line.unwrap_or_else(|| panic!("{output}"));
    assert!(line.contains("decision=\"allowed\" caller=key:ann method=\"tools/call\""), "{line}");
}

#[tokio::test]
async fn denied_find_agent_keeps_its_name() {
    let rules = format!("{}rules: [{{ callers: \"key:ann\", tools: bard_sing }}]\n", auth(&["ann"]));
    let gateway = town(&rules).await;
    let ann = gateway.client().header("X-Api-Key", &key_of("ann"));
    let params = json!({ "name": "find_agent", "arguments": { "query": "" } });
    assert_eq!(ann.modern("tools/call", params.clone()).await.error_code().await, -32602);
    assert!(!ann.modern("tools/list", json!({})).await.text().await.contains("find_agent"));

    let own = "skills: { sing: { tool_name: find_agent } }";
    let captured = Scene::of(Card::v1().skill("sing"), own, "").await;
    let told = find(&captured.gateway.client(), json!({ "query": "" })).await;
    assert_eq!(names(&told), ["bard"], "it is the gateway's");
    assert!(captured.agent.calls("SendStreamingMessage").is_empty());
    let own_tools = captured.gateway.client_of("bard").modern("tools/list", json!({})).await.result().await;
    let schema = &own_tools["tools"][0]["inputSchema"]["properties"];
    assert!(
        own_tools["tools"][0]["name"] == "find_agent" && schema["text"].is_object(),
        "an agent's own: {own_tools}"
    );

    let off = Scene::tuned("mcp: { find_agent: false }").await;
    assert_eq!(off.gateway.client().modern("tools/call", params).await.error_code().await, -32602);
}

/// The values that complete a variable of a template, in a modern request.
async fn completed(
    client: &McpClient,
    template: &str,
    (name, value): (&str, &str),
    id: Option<&str>,
) -> Value {
    let mut params = json!({
        "ref": { "type": "ref/resource", "uri": template }, "argument": { "name": name, "value": value },
    });
    if let Some(id) = id {
        params["context"] = json!({ "arguments": { "id": id } });
    }
    client.modern("completion/complete", params).await.result().await["completion"].clone()
}

#[tokio::test]
async fn only_own_things_are_completed() {
    const TASK: &str = "a2a://task/{id}";
    const ARTIFACT: &str = "a2a://task/{id}/artifacts/{artifactId}";
    const STREAM: &str = "a2a://streams/{id}";
    let settings =
        format!("{}calls: {{ budget: 1s, max_rounds: 0, stream_after: 1s }}", auth(&["ann", "ben"]));
    let scene = Scene::tuned(&settings).await;
    scene.agent.on_send(|_| {
        let made = v1::artifact_update(RAW_TASK, RAW_CONTEXT, "a song", false, true);
        Reply::stream().event(v1::task(RAW_TASK, RAW_CONTEXT, "working")).event(made).stall()
    });
    let by = |name: &str| scene.gateway.client().header("X-Api-Key", &key_of(name));
    let call = json!({ "name": "bard_sing", "arguments": { "text": "x" } });
    let task = task_of(&by("ann").modern("tools/call", call).await.result().await);
    let start = task.get(..6).unwrap();
    for template in [TASK, ARTIFACT, STREAM] {
        let mine = completed(&by("ann"), template, ("id", start), None).await;
        assert_eq!(mine, json!({ "values": [task], "total": 1, "hasMore": false }), "{template}");
        assert_eq!(completed(&by("ann"), template, ("id", "no"), None).await["values"], json!([]));
        assert_eq!(
            completed(&by("ben"), template, ("id", ""), None).await["values"],
            json!([]),
            "{template}"
        );
    }
    let artifacts = |client: McpClient, id: Option<&str>| {
        let id = id.map(str::to_owned);
        async move { completed(&client, ARTIFACT, ("artifactId", ""), id.as_deref()).await["values"].clone() }
    };
    let read = by("ann").modern("resources/read", json!({ "uri": format!("a2a://task/{task}") })).await;
    let read: Value =
        serde_json::from_str(read.result().await["contents"][0]["text"].as_str().unwrap()).unwrap();
    let id = read["artifacts"][0]["artifactId"].clone();
    assert!(id.is_string(), "{read}");
    assert_eq!(artifacts(by("ann"), Some(&task)).await, json!([id]));
    assert_eq!(artifacts(by("ann"), None).await, json!([]), "of which task is not said");
    assert_eq!(artifacts(by("ben"), Some(&task)).await, json!([]), "somebody else's");
    assert_eq!(artifacts(by("ann"), Some("made-up")).await, json!([]));
}

#[tokio::test]
async fn anonymous_tasks_are_not_completed() {
    let scene = Scene::tuned("calls: { budget: 1s, max_rounds: 0, stream_after: 1s }").await;
    let go = scene.agent.works_for((RAW_TASK, RAW_CONTEXT), "the song");
    let task = task_of(&scene.said("x").await);
    let told = completed(&scene.gateway.client(), "a2a://task/{id}", ("id", ""), None).await;
    assert_eq!(told, json!({ "values": [], "total": 0, "hasMore": false }));
    go.open();
    scene.call(json!({ "taskId": task })).await.result().await;
    // A caller with the handle has the task.
    let template = "a2a://task/{id}/artifacts/{artifactId}";
    let told = completed(&scene.gateway.client(), template, ("artifactId", ""), Some(&task)).await;
    assert_eq!(told["values"], json!(["report"]), "{told}");
}

#[tokio::test]
async fn at_most_hundred_values_are_completed() {
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    let names: Vec<String> = (0..120).map(|number| format!("agent-{number:03}")).collect();
    let agents: Vec<(&str, &ScriptedAgent)> = names.iter().map(|name| (name.as_str(), &agent)).collect();
    let gateway = TestGateway::before(&agents).await;
    let told = completed(&gateway.client(), "a2a-agent://{agent}", ("agent", "agent-"), None).await;
    assert_eq!((&told["total"], &told["hasMore"]), (&json!(120), &json!(true)));
    assert_eq!(told["values"].as_array().unwrap().len(), 100);
    let found = find(&gateway.client(), json!({ "query": "sing" })).await;
    assert_eq!((names_len(&found), &found["structuredContent"]["total"]), (20, &json!(120)));
}

fn names_len(told: &Value) -> usize {
    names(told).len()
}
