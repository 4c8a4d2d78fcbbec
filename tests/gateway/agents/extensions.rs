//! Extensions of A2A: declared ones are shown, activated ones are named in requests, and an agent
//! that requires another one is reported instead of called.

use serde_json::{Value, json};

use crate::kit::quiz::{
    KEY, Quiz, again, answers, asked_by_form, called, first, keyed, question, reply, with_tasks,
};
use crate::kit::scene::{Scene, complaint, words};
use crate::support::payload::{v0_3, v1};
use crate::support::{Card, Reply, Signal, TestGateway};

/// Where data of extensions stands in `_meta`.
const EXTENSIONS: &str = "mcp-a2a-gateway/extensions";

const TRACE: &str = "https://example.test/ext/trace/v1";
const MONEY: &str = "https://example.test/ext/money/v1";

/// A card that declares both; money may be required.
fn card(mut card: Card, required: bool) -> Card {
    card.json["capabilities"]["extensions"] = json!([
        { "uri": TRACE, "description": "trace ids" },
        { "uri": MONEY, "description": "what it costs", "required": required },
    ]);
    card.skill("sing")
}

fn active(uris: &[&str]) -> String {
    format!("extensions: {uris:?}")
}

async fn registry(gateway: &TestGateway) -> Value {
    let read = json!({ "uri": "a2a://agents/registry" });
    let read = gateway.client().modern("resources/read", read).await.result().await;
    serde_json::from_str(read["contents"][0]["text"].as_str().unwrap()).unwrap()
}

/// The output of the `agents` command about the only agent, and whether it succeeded.
async fn row(scene: &Scene, own: &str) -> (String, bool) {
    let card = scene.agent.card_url();
    let config =
        format!("listeners: [{{address: 127.0.0.1:8080}}]\nagents:\n  bard:\n    card: {card}\n    {own}\n");
    let shown = TestGateway::run_with_config("agents", &config).await;
    (String::from_utf8(shown.stdout).unwrap(), shown.status.success())
}

#[tokio::test]
async fn active_extension_is_in_version_header() {
    for (version, reply, headers) in [
        (Card::v1(), v1::message("la"), &["A2A-Extensions"][..]),
        (Card::v0_3(), v0_3::message("la"), &["A2A-Extensions", "X-A2A-Extensions"]),
    ] {
        let scene = Scene::of(card(version, false), &active(&[TRACE]), "").await;
        scene.agent.on_send(move |_| Reply::events([reply.clone()]));
        assert_eq!(words(&scene.said("x").await), "la");
        let call = scene.agent.requests().into_iter().find(|request| request.text() == "x").unwrap();
        for header in headers {
            assert_eq!(call.header(header), Some(TRACE), "{header}");
        }
        let told = registry(&scene.gateway).await;
        assert_eq!(
            told["agents"][0]["extensions"],
            json!([
                { "uri": TRACE, "required": false, "active": true },
                { "uri": MONEY, "required": false, "active": false },
            ])
        );
        let (row, is_content) = row(&scene, &active(&[TRACE])).await;
        assert!(is_content && row.contains(&format!("{TRACE} (active), {MONEY}\n")), "{row}");
    }
}

#[tokio::test]
async fn agent_requiring_more_is_not_called() {
    let scene = Scene::of(card(Card::v1(), true), &active(&[TRACE]), "").await;
    scene.agent.on_send(|_| Reply::events([v1::message("la")]));
    let list = scene.gateway.client().modern("tools/list", json!({})).await.result().await;
    assert!(!list.to_string().contains("bard_sing"), "{list}");
    let result = scene.said("x").await;
    let why = complaint(&result);
    assert!(why.contains(MONEY) && why.contains("agents.bard.extensions"), "{why}");
    assert!(scene.agent.requests().iter().all(|request| request.method == "GET"), "nothing was said to it");
    assert_eq!(scene.gateway.admin().at("/readyz").get(&[]).await.status, 200, "it is ready all the same");
    let state = scene.gateway.admin().at("/agents").get(&[]).await.json().await;
    assert_eq!((&state[0]["ready"], &state[0]["tools"]), (&json!(false), &json!([])));
    assert!(state[0]["problem"].as_str().is_some_and(|why| why.contains(MONEY)), "{state}");
    let told = registry(&scene.gateway).await;
    assert_eq!((&told["agents"][0]["status"], &told["totals"]["unusable"]), (&json!("unusable"), &json!(1)));
    assert!(told["agents"][0]["reason"].as_str().is_some_and(|why| why.contains(MONEY)), "{told}");
    let (row, is_content) = row(&scene, &active(&[TRACE])).await;
    assert!(row.contains(&format!("{MONEY} (required)")) && row.contains("its card requires"), "{row}");
    assert!(!is_content && !row.contains("bard_sing"), "{row}");
}

#[tokio::test]
async fn agent_with_met_requirements_is_called() {
    let scene = Scene::of(card(Card::v1(), true), &active(&[MONEY, TRACE]), "").await;
    scene.agent.on_send(|_| Reply::events([v1::message("la")]));
    assert_eq!(words(&scene.said("x").await), "la");
    let call = scene.agent.wait_for_call("SendStreamingMessage").await;
    assert_eq!(call.header("a2a-extensions"), Some(format!("{MONEY}, {TRACE}").as_str()));
}

#[tokio::test]
async fn undeclared_extension_is_reported() {
    let scene = Scene::of(Card::v1().skill("sing"), &active(&[TRACE]), "").await;
    scene.agent.on_send(|_| Reply::events([v1::message("la")]));
    assert_eq!(words(&scene.said("x").await), "la");
    let (row, is_content) = row(&scene, &active(&[TRACE])).await;
    assert!(
        !is_content && row.contains(&format!("{TRACE} is activated, but the card does not declare it")),
        "{row}"
    );
}

#[tokio::test]
async fn extension_data_reaches_client() {
    let scene = Scene::of(card(Card::v1(), false), &active(&[TRACE]), "").await;
    scene.agent.on_send(|_| {
        let mut task = v1::completed("t", "c", "la");
        task["task"]["metadata"] = json!({ TRACE: { "id": 7 }, MONEY: "canary", "other": "canary" });
        task["task"]["artifacts"][0]["metadata"] = json!({ format!("{TRACE}/span"): [1], MONEY: "canary" });
        Reply::events([task])
    });
    let expected = json!({
        "task": { TRACE: { "id": 7 } },
        "artifacts": { "answer": { format!("{TRACE}/span"): [1] } },
    });
    let modern = scene.said("x").await;
    assert_eq!((words(&modern), &modern["_meta"][EXTENSIONS]), ("la", &expected));
    assert!(modern["_meta"]["io.modelcontextprotocol/serverInfo"].is_object(), "{modern}");
    let params = json!({ "name": "bard_sing", "arguments": { "text": "x" } });
    let legacy = scene.session().await.call("tools/call", params).await.result().await;
    assert_eq!(legacy["_meta"], json!({ EXTENSIONS: expected }));
    assert!(!modern.to_string().contains("canary") && !legacy.to_string().contains("canary"), "{modern}");
    let held = Scene::of(card(Card::v1(), false), &active(&[TRACE]), "calls: { task_after: 0s }").await;
    let go = Signal::new();
    let wait = go.clone();
    held.agent.on_send(move |_| {
        Reply::stream().event(v1::task("t", "c", "working")).wait(&wait).event({
            let mut status = v1::status_update("t", "c", "completed", Some("done"));
            status["statusUpdate"]["status"]["message"]["metadata"] = json!({ TRACE: 1, MONEY: "canary" });
            status
        })
    });
    let client = held.gateway.client().with_tasks();
    let params = json!({ "name": "bard_sing", "arguments": { "text": "x" } });
    let task = client.modern("tools/call", params).await.result().await;
    let handle = task["taskId"].as_str().unwrap_or_else(|| panic!("{task}")).to_owned();
    go.open();
    let done = client.task_until(&handle, "completed").await;
    assert_eq!(done["result"]["_meta"], json!({ EXTENSIONS: { "message": { TRACE: 1 } } }), "{done}");
}

#[tokio::test]
async fn extension_input_reaches_agent() {
    for (version, reply) in [(Card::v1(), v1::message("la")), (Card::v0_3(), v0_3::message("la"))] {
        let scene = Scene::of(card(version, false), &active(&[TRACE]), "").await;
        scene.agent.on_send(move |_| Reply::events([reply.clone()]));
        let span = format!("{TRACE}/span");
        for (meta, data) in [
            (
                json!({ TRACE: { "id": 7 }, MONEY: "canary", "urn:x": "canary" }),
                json!({ TRACE: { "id": 7 } }),
            ),
            (json!({ EXTENSIONS: { &span: [1], MONEY: "canary" } }), json!({ &span: [1] })),
        ] {
            let result = scene.call_with(json!({ "text": "x" }), meta).await.result().await;
            assert_eq!(words(&result), "la");
            let sent = scene.agent.requests().into_iter().rfind(|request| request.text() == "x").unwrap();
            let mut expected = data;
            expected["skillId"] = json!("sing");
            assert_eq!(
                (&sent.message()["metadata"], &sent.message()["extensions"]),
                (&expected, &json!([TRACE]))
            );
        }
        scene.said("plain").await;
        let plain = scene.agent.requests().into_iter().rfind(|request| request.text() == "plain").unwrap();
        assert_eq!(plain.message().get("extensions"), None, "{}", plain.message());
        let large = json!({ TRACE: "x".repeat(70_000) });
        let refused = scene.call_with(json!({ "text": "large" }), large).await.result().await;
        assert!(complaint(&refused).contains("65536 bytes"), "{refused}");
        assert!(scene.agent.requests().iter().all(|request| request.text() != "large"));
    }
}

#[tokio::test]
async fn answer_input_reaches_agent() {
    let data = json!({ EXTENSIONS: { TRACE: { "id": 7 }, MONEY: "canary" } });
    let large = json!({ TRACE: "x".repeat(70_000) });
    for is_task in [false, true] {
        let settings = if is_task { "calls: { task_after: 0s }" } else { KEY };
        let scene = Scene::of(card(Card::v1(), false), &active(&[TRACE]), settings).await;
        let works = is_task.then(Signal::new);
        Quiz::working(&scene.agent, works.clone(), [question("Which colour?")]);
        if is_task {
            let client = with_tasks(&scene.gateway);
            let created = called(&client, &first("paint")).await;
            let id = created["taskId"].as_str().unwrap_or_else(|| panic!("{created}"));
            works.iter().for_each(Signal::fire);
            let asked = client.task_until(id, "input_required").await;
            let update = async |meta: &Value| {
                let responses = keyed(&asked, reply("blue"));
                let params = json!({ "taskId": id, "inputResponses": responses, "_meta": meta });
                client.modern("tasks/update", params).await
            };
            assert_eq!(update(&large).await.error_code().await, -32602);
            update(&data).await.result().await;
            client.task_until(id, "completed").await;
        } else {
            let client = asked_by_form(&scene.gateway);
            let asked = called(&client, &first("paint")).await;
            let mut params = again(&first("paint"), &asked, keyed(&asked, reply("blue")));
            params["_meta"] = large.clone();
            assert_eq!(client.modern("tools/call", params.clone()).await.error_code().await, -32602);
            params["_meta"] = data.clone();
            assert_eq!(words(&called(&client, &params).await), "thank you");
        }
        let told = answers(&scene.agent);
        assert_eq!(told.len(), 1, "what is refused is given again");
        assert_eq!(
            (&told[0]["parts"], &told[0]["metadata"], &told[0]["extensions"]),
            (&json!([{ "text": "blue" }]), &json!({ TRACE: { "id": 7 } }), &json!([TRACE]))
        );
    }
}
