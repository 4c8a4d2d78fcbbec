//! Prompts: examples of skills and those of the operator, in every revision, for each caller its
//! own.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::support::{Answer, Card, McpClient, ScriptedAgent, TestGateway, in_time};

const QUICK: &str = "cards: { min_refresh: 1s, max_refresh: 1s, retry: 100ms }\n";
const PROMPTS: &str = r#"prompts:
  review:
    title: Review
    description: Reviews a text.
    arguments:
      - { name: text, title: Text, description: The text., required: true }
      - { name: style, values: [short, shorter, long] }
    messages:
      - text: "Review ({{style}}): {{text}}"
      - { role: assistant, text: Which part first? }
  gallery:
    messages:
      - image: pixel.png
      - audio: silence.wav
      - resource: { uri: "docs://{{page}}", text: "Page {{page}} {{page}}" }
      - resource: { uri: "docs://blob", file: pixel.png }
    arguments: [{ name: page }]
  of_bard:
    agent: bard
    messages: [{ text: "Ask the bard." }]
"#;

fn singer() -> Card {
    let sing = json!({
        "id": "sing", "name": "Singing", "description": "Sings", "tags": [],
        "examples": ["Sing of the sea", "Sing of the wind", "Hum"],
    });
    let whisper = json!({
        "id": "whisper", "name": "Whispering", "description": "Whispers", "tags": [], "examples": ["Psst"],
    });
    Card::v1().skill_with(sing).skill_with(whisper).skill("mute")
}

async fn gateway_with(agent: &ScriptedAgent, settings: &str) -> TestGateway {
    TestGateway::start(|ports| {
        std::fs::write(ports.directory.join("pixel.png"), [0x89, b'P', b'N', b'G', 0xff]).unwrap();
        std::fs::write(ports.directory.join("silence.wav"), b"RIFF").unwrap();
        let agents =
            format!("agents:\n  bard: {{ card: '{}' }}\n  other: {{ card: '{0}' }}\n", agent.card_url());
        format!("{}{agents}{settings}", ports.listeners())
    })
    .await
}

/// The results of requests in every revision, each with its name.
async fn in_each_revision(client: &McpClient, method: &str, params: &Value) -> Vec<(String, Value)> {
    let mut results = Vec::new();
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let session = client.legacy_version(version).await;
        results.push((version.to_owned(), session.call(method, params.clone()).await.result().await));
    }
    results.push(("2026-07-28".to_owned(), client.modern(method, params.clone()).await.result().await));
    results
}

fn names(list: &Value) -> Vec<&str> {
    list["prompts"].as_array().unwrap().iter().map(|prompt| prompt["name"].as_str().unwrap()).collect()
}

async fn names_for(client: &McpClient) -> Vec<String> {
    let list = client.modern("prompts/list", json!({})).await.result().await;
    names(&list).into_iter().map(str::to_owned).collect()
}

fn text_of(result: &Value) -> &str {
    result["messages"][0]["content"]["text"].as_str().unwrap()
}

#[tokio::test]
async fn examples_are_prompts_in_every_revision() {
    let agent = ScriptedAgent::start(singer()).await;
    let gateway = gateway_with(&agent, "").await;
    let client = gateway.client();
    for (version, list) in in_each_revision(&client, "prompts/list", &json!({})).await {
        assert_eq!(names(&list), ["bard_sing", "bard_whisper", "other_sing", "other_whisper"], "{version}");
        let sing = &list["prompts"][0];
        let title = (version.as_str() >= "2025-06-18").then_some("Singing");
        assert_eq!((sing["title"].as_str(), &sing["description"]), (title, &json!("Sings")), "{version}");
        let argument = &sing["arguments"][0];
        assert_eq!((&argument["name"], &argument["required"]), (&json!("text"), &json!(false)), "{version}");
    }
    for (version, got) in in_each_revision(&client, "prompts/get", &json!({ "name": "bard_sing" })).await {
        assert_eq!(got["messages"][0]["role"], "user", "{version}");
        assert_eq!(text_of(&got), "Sing of the sea\n\n(Use the tool bard_sing.)", "{version}");
    }
    let own = json!({ "name": "bard_sing", "arguments": { "text": "A shanty" } });
    for (version, got) in in_each_revision(&client, "prompts/get", &own).await {
        assert!(text_of(&got).starts_with("A shanty"), "{version}: {got}");
    }
    let params = json!({
        "ref": { "type": "ref/prompt", "name": "bard_sing" }, "argument": { "name": "text", "value": "Sing" },
    });
    for (version, completed) in in_each_revision(&client, "completion/complete", &params).await {
        let values = json!(["Sing of the sea", "Sing of the wind"]);
        assert_eq!(completed["completion"]["values"], values, "{version}");
    }
    // On the endpoint of one agent its tool has a shorter name, and there are no others.
    let alone = gateway.client_of("bard");
    assert_eq!(names_for(&alone).await, ["bard_sing", "bard_whisper"]);
    let got = alone.modern("prompts/get", json!({ "name": "bard_sing" })).await.result().await;
    assert!(text_of(&got).ends_with("(Use the tool sing.)"), "{got}");
}

#[tokio::test]
async fn own_prompts_are_filled_in() {
    let agent = ScriptedAgent::start(Card::v1().skill("mute")).await;
    let gateway = gateway_with(&agent, PROMPTS).await;
    let client = gateway.client();
    assert_eq!(names_for(&client).await, ["gallery", "of_bard", "review"]);
    assert_eq!(names_for(&gateway.client_of("bard")).await, ["of_bard"]);
    assert_eq!(names_for(&gateway.client_of("other")).await, Vec::<String>::new());
    let params = json!({ "name": "review", "arguments": { "text": "{{style}} x", "style": "short" } });
    for (version, got) in in_each_revision(&client, "prompts/get", &params).await {
        assert_eq!(text_of(&got), "Review (short): {{style}} x", "{version}: filled in once");
        assert_eq!(got["description"], "Reviews a text.", "{version}");
        let second =
            json!({ "role": "assistant", "content": { "type": "text", "text": "Which part first?" } });
        assert_eq!(got["messages"][1], second, "{version}");
    }
    let params = json!({ "name": "gallery", "arguments": { "page": "7" } });
    let data = STANDARD.encode([0x89, b'P', b'N', b'G', 0xff]);
    for (version, got) in in_each_revision(&client, "prompts/get", &params).await {
        let content = |index: usize| &got["messages"][index]["content"];
        assert_eq!(
            *content(0),
            json!({ "type": "image", "data": data, "mimeType": "image/png" }),
            "{version}"
        );
        let kind = if version == "2024-11-05" { "text" } else { "audio" };
        assert_eq!(content(1)["type"], kind, "{version}");
        let page = json!({ "uri": "docs://7", "mimeType": "text/plain", "text": "Page 7 7" });
        assert_eq!(content(2)["resource"], page, "{version}");
        let blob = json!({ "uri": "docs://blob", "mimeType": "image/png", "blob": data });
        assert_eq!(content(3)["resource"], blob, "{version}");
    }
    let params = json!({
        "ref": { "type": "ref/prompt", "name": "review" }, "argument": { "name": "style", "value": "sho" },
    });
    for (version, completed) in in_each_revision(&client, "completion/complete", &params).await {
        assert_eq!(completed["completion"]["values"], json!(["short", "shorter"]), "{version}");
    }
}

async fn refusal(answer: Answer) -> (i64, String) {
    let error = answer.json().await["error"].take();
    (error["code"].as_i64().unwrap(), error["message"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn unusable_requests_name_their_problem() {
    let agent = ScriptedAgent::start(singer()).await;
    let flood = format!(
        "  flood:\n    arguments: [{{ name: a }}]\n    messages: [{{ text: '{}' }}]\n",
        "{{a}}".repeat(100)
    );
    let gateway = gateway_with(&agent, &format!("{PROMPTS}{flood}")).await;
    let (client, session) = (gateway.client(), gateway.client().legacy().await);
    let long = "x".repeat(64 * 1024);
    for (params, told) in [
        (json!({}), "name is missing"),
        (json!({ "name": "bard_mute" }), "unknown prompt: \"bard_mute\""),
        (json!({ "name": "review" }), "arguments are missing: text"),
        (json!({ "name": "review", "arguments": { "text": 7 } }), "not an object of strings"),
        (json!({ "name": "review", "arguments": { "text": format!("{long}x") } }), "more than 65536 bytes"),
        (json!({ "name": "flood", "arguments": { "a": long } }), "more than 4194304 bytes"),
    ] {
        let (code, message) = refusal(session.call("prompts/get", params.clone()).await).await;
        assert!(code == -32602 && message.contains(told), "{told}: {code} {message}");
        let (code, message) = refusal(client.modern("prompts/get", params).await).await;
        assert!(code == -32602 && message.contains(told), "{told}: {code} {message}");
    }
    let params = json!({
        "ref": { "type": "ref/prompt", "name": "none" }, "argument": { "name": "a", "value": "" },
    });
    let completed = client.modern("completion/complete", params).await.result().await;
    assert_eq!(completed["completion"]["values"], json!([]));
}

/// A modern client with forms is asked for what is missing, and calls again with the answer.
#[tokio::test]
async fn missing_arguments_are_asked_for() {
    let agent = ScriptedAgent::start(Card::v1().skill("mute")).await;
    let gateway = gateway_with(&agent, PROMPTS).await;
    let client = gateway.client().capabilities(json!({ "elicitation": {} }));
    let ask = json!({ "name": "review", "arguments": { "style": "long" } });
    let asked = client.modern("prompts/get", ask.clone()).await.result().await;
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let request = &asked["inputRequests"]["arguments"];
    assert_eq!(request["method"], "elicitation/create", "{asked}");
    let schema = &request["params"]["requestedSchema"];
    assert_eq!(schema["required"], json!(["text"]));
    assert_eq!(
        schema["properties"],
        json!({ "text": { "type": "string", "title": "Text", "description": "The text." } })
    );
    let again = |answer: Value| {
        let mut params = ask.clone();
        params["inputResponses"] = json!({ "arguments": answer });
        client.modern("prompts/get", params)
    };
    let got = again(json!({ "action": "accept", "content": { "text": "clause 1" } })).await.result().await;
    assert_eq!((text_of(&got), &got["resultType"]), ("Review (long): clause 1", &json!("complete")));
    for answer in [json!({ "action": "decline" }), json!({ "action": "accept" }), json!(7)] {
        assert_eq!(refusal(again(answer.clone()).await).await.0, -32602, "{answer}");
    }
}

#[tokio::test]
async fn callers_have_prompts_that_they_may_use() {
    let agent = ScriptedAgent::start(singer()).await;
    let hash = |key: &str| {
        use sha2::{Digest as _, Sha256};
        Sha256::digest(key).iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    let key = |name: &str| format!("      {name}: 'sha256:{}'\n", hash(name));
    let rules = "rules:\n  - { callers: 'key:ann' }\n  - { callers: 'key:ben', agents: bard, tools: sing }\n  \
                 - { callers: 'key:cat', methods: 'tools/*' }\n";
    let keys = format!("auth:\n  api_keys:\n    keys:\n{}{}{}", key("ann"), key("ben"), key("cat"));
    let gateway = TestGateway::start(|ports| {
        let prompts = "prompts:\n  free: { messages: [{ text: x }] }\n  of_bard: { agent: bard, messages: [{ text: x }] }\n";
        let card = agent.card_url();
        let bard = format!("  bard:\n    card: '{card}'\n    skills: {{ whisper: {{ hidden: true }} }}\n");
        format!("{}agents:\n{bard}  other: {{ card: '{card}' }}\n{prompts}{keys}{rules}", ports.listeners())
    })
    .await;
    let of = |name: &str| gateway.client().header("X-API-Key", name);
    assert_eq!(names_for(&of("ann")).await, ["bard_sing", "free", "of_bard", "other_sing", "other_whisper"]);
    assert_eq!(names_for(&of("ben")).await, ["bard_sing"]);
    for name in ["free", "of_bard", "other_sing", "bard_whisper"] {
        let (code, message) = refusal(of("ben").modern("prompts/get", json!({ "name": name })).await).await;
        assert!(code == -32602 && message.contains("unknown prompt"), "{name}: {message}");
        let reference = json!({ "type": "ref/prompt", "name": name });
        let params = json!({ "ref": reference, "argument": { "name": "text", "value": "" } });
        let completed = of("ben").modern("completion/complete", params).await.result().await;
        assert_eq!(completed["completion"]["values"], json!([]), "{name}");
    }
    let denied = of("cat").modern("prompts/list", json!({})).await;
    assert!(denied.json().await["error"].is_object());
}

#[tokio::test]
async fn changed_card_changes_prompts() {
    let agent = ScriptedAgent::start(Card::v1().skill("mute")).await;
    let gateway = gateway_with(&agent, QUICK).await;
    let session = gateway.client().legacy().await;
    let mut listening = session.listen(None).await;
    let params = json!({ "notifications": { "promptsListChanged": true } });
    let mut modern = gateway.client().modern("subscriptions/listen", params).await;
    let first = modern.next_message().await;
    assert_eq!(first["params"]["notifications"], json!({ "promptsListChanged": true }), "{first}");
    agent.set_card(singer());
    let told = "notifications/prompts/list_changed";
    in_time("modern", async { while modern.next_message().await["method"] != told {} }).await;
    in_time("legacy", async { while listening.next_message().await["method"] != told {} }).await;
    in_time("both agents", async {
        while names_for(&gateway.client()).await.len() < 4 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
