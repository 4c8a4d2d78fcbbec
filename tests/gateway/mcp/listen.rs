//! Streams on which the gateway speaks unasked: `subscriptions/listen` and the GET of a session.

use serde_json::{Value, json};

use crate::kit::scene::Scene;
use crate::support::{Answer, Card, in_time};

const QUICK: &str = "cards: { min_refresh: 1s, max_refresh: 1s, retry: 100ms }";
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// A `subscriptions/listen` under this id, and its first message.
async fn listen(scene: &Scene, id: Value, wanted: Value) -> (Answer, Value) {
    let client = scene.gateway.client();
    let params = client.with_meta(json!({ "notifications": wanted }));
    let body = json!({ "jsonrpc": "2.0", "id": id, "method": "subscriptions/listen", "params": params });
    let headers = [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "subscriptions/listen")];
    let mut answer = client.post(&body, &headers).await;
    assert!(answer.is_stream());
    let first = answer.next_message().await;
    (answer, first)
}

#[tokio::test]
async fn acknowledgement_comes_first() {
    let scene = Scene::new().await;
    for id in [json!("L1"), json!(0), json!(2_147_483_999_u64)] {
        let wanted = json!({
            "toolsListChanged": true, "promptsListChanged": true,
            "resourceSubscriptions": ["a2a-agent://bard", "a2a-agent://nobody", "file:///etc/passwd"],
        });
        let (_stream, first) = listen(&scene, id.clone(), wanted).await;
        assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
        assert_eq!(first["params"]["_meta"][SUBSCRIPTION], id, "of the same type");
        let honoured = json!({
            "toolsListChanged": true, "promptsListChanged": true, "resourceSubscriptions": ["a2a-agent://bard"],
        });
        assert_eq!(first["params"]["notifications"], honoured);
    }
}

#[tokio::test]
async fn changed_card_is_told_as_requested() {
    let settings = format!("{QUICK}\nshutdown: {{ grace: 0s }}");
    let scene = Scene::of(Card::v1().skill("sing"), "", &settings).await;
    let (mut tools, _) = listen(&scene, json!("t"), json!({ "toolsListChanged": true })).await;
    let uris = json!({ "resourceSubscriptions": ["a2a-agent://bard"] });
    let (mut card, _) = listen(&scene, json!("r"), uris).await;
    let (mut nothing, first) = listen(&scene, json!("n"), json!({})).await;
    assert_eq!(first["params"]["notifications"], json!({}));
    scene.agent.set_card(Card::v1().skill("sing").skill("dance"));
    let changed = tools.next_message().await;
    assert_eq!(changed["method"], "notifications/tools/list_changed");
    assert_eq!(changed["params"]["_meta"][SUBSCRIPTION], "t");
    let updated = card.next_message().await;
    assert_eq!(updated["method"], "notifications/resources/updated");
    assert_eq!(
        (&updated["params"]["uri"], &updated["params"]["_meta"][SUBSCRIPTION]),
        (&json!("a2a-agent://bard"), &json!("r"))
    );
    // The others have heard of it; a client that asked for nothing hears nothing until the end.
    let mut gateway = scene.gateway;
    gateway.signal("TERM");
    let end = nothing.next_message().await;
    assert_eq!((&end["id"], &end["result"]["resultType"]), (&json!("n"), &json!("complete")), "{end}");
    assert_eq!(end["result"]["_meta"][SUBSCRIPTION], "n");
    gateway.terminate().await;
}

#[tokio::test]
async fn agent_endpoint_tells_of_its_agent() {
    let scene = Scene::of(Card::v1().skill("sing"), "", QUICK).await;
    let params = json!({ "notifications": { "resourceSubscriptions": ["a2a-agent://bard"], "toolsListChanged": true } });
    let mut answer = scene.gateway.client_of("bard").modern("subscriptions/listen", params).await;
    assert_eq!(answer.next_message().await["method"], "notifications/subscriptions/acknowledged");
    scene.agent.set_card(Card::v1().skill("dance"));
    in_time("both notifications", async {
        let mut left = vec!["notifications/tools/list_changed", "notifications/resources/updated"];
        while !left.is_empty() {
            let message = answer.next_message().await;
            left.retain(|method| message["method"] != *method);
        }
    })
    .await;
}

#[tokio::test]
async fn forgotten_session_works_with_defaults() {
    let scene = Scene::tuned("sessions: { max_cached: 1 }").await;
    let sessions = [scene.session().await, scene.session().await, scene.session().await];
    for session in &sessions {
        session.call("logging/setLevel", json!({ "level": "debug" })).await.result().await;
        session.call("resources/subscribe", json!({ "uri": "a2a-agent://bard" })).await.result().await;
    }
    for session in &sessions {
        assert_eq!(session.call("ping", json!({})).await.result().await, json!({}));
    }
}
