//! Agents that need an authorization: the user is sent to a page, and no secret is ever asked for.

use serde_json::json;

use crate::kit::quiz::{
    accept, again, answers, asked_by_form, asked_on_stream, authorization, called, first, key_of, keyed,
    scene, until_asked, worded,
};
use crate::kit::scene::{Scene, task_of, words};
use crate::support::{McpClient, in_time};

fn url_client(scene: &Scene) -> McpClient {
    scene.gateway.client().capabilities(json!({ "elicitation": { "url": {} } }))
}

#[tokio::test]
async fn authorization_shows_its_page() {
    let wanted = authorization("Sign in at https://login.example/start?x=1.");
    let page = "https://login.example/start?x=1";
    let (scene, quiz) = scene("", [wanted]).await;
    let client = url_client(&scene);
    let call = first("pay");
    let asked = called(&client, &call).await;
    let request = &asked["inputRequests"][key_of(&asked)]["params"];
    assert_eq!(
        (&request["mode"], &request["url"], request.get("elicitationId")),
        (&json!("url"), &json!(page), None)
    );
    // Content that comes with the consent goes nowhere.
    let consent = keyed(&asked, accept(json!({ "password": "CANARY" })));
    let waiting = tokio::spawn({
        let (client, params) = (client.clone(), again(&call, &asked, consent));
        async move { called(&client, &params).await }
    });
    scene.agent.wait_for("a look after the consent", |log| log.calls("GetTask").len() > 1).await;
    quiz.go_on();
    assert_eq!(words(&in_time("the result", waiting).await.unwrap()), "thank you");
    assert!(answers(&scene.agent).is_empty(), "nothing is said to the agent");
    assert!(
        !scene
            .agent
            .requests()
            .iter()
            .any(|request| String::from_utf8_lossy(&request.body).contains("CANARY"))
    );
}

#[tokio::test]
async fn legacy_client_is_told_of_completion() {
    let wanted = authorization("Sign in at https://login.example/start");
    let (scene, quiz) = scene("", [wanted]).await;
    let client = url_client(&scene);
    let session = client.legacy_version("2025-11-25").await;
    let (mut call, asked) = until_asked(&session).await;
    assert_eq!((&asked["params"]["mode"], &asked["params"]["elicitationId"]), (&json!("url"), &asked["id"]));
    session.respond(&asked["id"], json!({ "action": "accept" })).await;
    quiz.go_on();
    let complete = call.next_message().await;
    assert_eq!(complete["method"], "notifications/elicitation/complete", "{complete}");
    assert_eq!(complete["params"]["elicitationId"], asked["params"]["elicitationId"]);
    assert_eq!(words(&call.result().await), "thank you");
}

#[tokio::test]
async fn client_without_url_mode_is_instructed() {
    let (scene, _) = scene("", [authorization("Sign in at https://login.example/start")]).await;
    let old = asked_on_stream(&scene.gateway, "2025-06-18").await;
    let results = [
        called(&asked_by_form(&scene.gateway), &first("pay")).await,
        old.call("tools/call", first("pay")).await.result().await,
    ];
    for result in &results {
        assert_eq!(result["structuredContent"]["state"], "auth-required", "{result}");
        assert!(words(result).contains("https://login.example/start"), "{result}");
        task_of(result);
    }
}

#[tokio::test]
async fn form_never_asks_for_secret() {
    let schema = json!({ "type": "object", "properties": { "password": { "type": "string" } } });
    let (scene, _) = scene("", [worded("Your password?", json!({ "mcp.requestedSchema": schema }))]).await;
    let session = asked_on_stream(&scene.gateway, "2025-06-18").await;
    let results = [
        called(&asked_by_form(&scene.gateway), &first("pay")).await,
        session.call("tools/call", first("pay")).await.result().await,
    ];
    for result in &results {
        task_of(result);
        assert_eq!(result.get("inputRequests"), None, "{result}");
    }
}
