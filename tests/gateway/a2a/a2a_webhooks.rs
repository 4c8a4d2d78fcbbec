//! Where the webhooks of A2A clients may lead: a list of their own, and https alone unless the
//! operator says so.

use serde_json::{Value, json};

use crate::kit::a2a_push_scene::{CONTEXT, Hook, LOCAL, PushStage, RAW, Spoken, gateway};
use crate::kit::a2a_scene::{Stage, call};
use crate::support::payload::v1;
use crate::support::{Card, Reply};

fn song() -> Value {
    v1::status_update(RAW, CONTEXT, "completed", None)
}

/// The list for cards opens nothing to webhooks.
#[tokio::test]
async fn webhook_in_list_of_cards_is_refused() {
    let cards = "outbound: { allow: [127.0.0.1], webhooks: { http: true } }\n";
    let stage = PushStage::with(Spoken::New, cards).await;
    let task = stage.begun("ann").await;
    let params = Spoken::New.registration(&task, Spoken::New.config(&stage.url()));
    assert_eq!(stage.call("ann", Spoken::New.set(), params).await.error_code().await, -32602);
    stage.gateway.wait_for_output("outbound.webhooks.allow").await;
    assert!(stage.agent.calls(Spoken::New.set()).is_empty());
}

/// A webhook that was registered before the list was closed is not called.
#[tokio::test]
async fn earlier_webhook_is_judged_again() {
    let stage = PushStage::with(Spoken::New, LOCAL).await;
    let (_, _, told) = stage.registered().await;
    let hook = Hook::of(&told);
    for closed in [
        "outbound: { allow: [127.0.0.1] }\n",
        "outbound: { allow: [127.0.0.1], webhooks: { http: true } }\n",
        "outbound: { webhooks: { allow: [127.0.0.1] } }\n",
    ] {
        let restarted = gateway(&stage.agent, closed).await;
        assert_eq!(hook.push(&restarted, &song()).await, 502, "{closed}");
    }
    assert!(stage.pushes().is_empty());
    assert_eq!(hook.push(&stage.gateway, &song()).await, 204);
}

/// Tokens and results of clients do not travel in the open, for any endpoint that registers the
/// webhook.
#[tokio::test]
async fn webhook_over_http_needs_permission() {
    const SET: &str = "CreateTaskPushNotificationConfig";
    let list = "allow: [hook.invalid, 93.184.216.0/24]";
    for (http, settings) in [
        (false, format!("outbound: {{ webhooks: {{ {list} }} }}\n")),
        (false, format!("outbound: {{ webhooks: {{ {list}, http: false }} }}\n")),
        (true, format!("outbound: {{ webhooks: {{ {list}, http: true }} }}\n")),
    ] {
        let stage = Stage::with(Card::v1().skill("sing"), &settings, "").await;
        stage.agent.on(SET, |request| Reply::result(request.params()));
        for (url, fits) in [
            ("https://hook.invalid/x", true),
            ("https://93.184.216.34/x", true),
            ("http://hook.invalid/x", http),
            ("HTTP://hook.invalid/x", http),
            ("http://93.184.216.34/x", http),
            ("http://93.184.216.34:443/x", http),
        ] {
            let answer = call(&stage.client(), SET, json!({ "taskId": "t", "url": url })).await.json().await;
            assert_eq!(answer["result"]["url"] == url, fits, "{settings}{answer}");
            assert!(fits || answer["error"]["code"] == -32602, "{settings}{answer}");
        }
        if !http {
            stage.gateway.wait_for_output("outbound.webhooks.http").await;
        }
    }
}
