//! A task that outlives the token of its caller, at an agent that is called on behalf of callers.
//! Out of scope: exchanging (see `exchange`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::auth::agent_tokens::{member, oauth2};
use crate::kit::issuer::{Issuer, Key};
use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, TOOL, complaint};
use crate::support::payload::v1;
use crate::support::{Card, Reply, ScriptedAgent, Signal, TestGateway, in_time};

/// A gateway that exchanges its callers' tokens for others before it asks the agent, and makes
/// every call a task.
async fn exchanging(issuer: &Issuer, endpoint: &ScriptedAgent, agent: &ScriptedAgent) -> TestGateway {
    TestGateway::start(|ports| {
        let (own, card) = (oauth2(endpoint, "grant: token_exchange"), agent.card_url());
        let tokens = format!("auth: {{ tokens: [{{ issuer: '{}', audience: me }}] }}", issuer.name());
        format!(
            "{}{tokens}\ncalls: {{ task_after: 0s }}\nagents:\n  bard:\n    card: {card}\n    {own}\n",
            ports.listeners()
        )
    })
    .await
}

/// The gateway can do nothing for it until the caller comes back: it says so, sends no requests,
/// and loses nothing.
#[tokio::test]
async fn task_with_ended_token_waits_for_caller() {
    let key = Key::es256("k1");
    let issuer = Issuer::new(&[&key]).await;
    let token = |number: u8| key.sign(&issuer.claims("me", |claims| claims["jti"] = json!(number)));
    let (old, fresh) = (token(1), token(2));
    let endpoint = ScriptedAgent::start(Card::v1()).await;
    let (has_ended, ended) = (Arc::new(AtomicBool::new(false)), old.clone());
    let is_over = has_ended.clone();
    endpoint.on_path("/token", move |request| {
        let is_old = member(request, "subject_token").as_deref() == Some(&ended);
        if is_old && is_over.load(Ordering::SeqCst) {
            return Reply::json(&json!({ "error": "invalid_grant" })).with_status(400);
        }
        let token = if is_old { "for-old" } else { "for-fresh" };
        Reply::json(&json!({ "access_token": token, "token_type": "Bearer", "expires_in": 1 }))
    });
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    let cut = Signal::new();
    let wait = cut.clone();
    agent.on_stream(move |_| {
        Reply::stream().event(v1::task(RAW_TASK, RAW_CONTEXT, "working")).wait(&wait).cut()
    });
    agent.on_get(|_| Reply::result(v1::bare_task(RAW_TASK, RAW_CONTEXT, "working")));
    let gateway = exchanging(&issuer, &endpoint, &agent).await;
    let by = |token: &str| gateway.client().bearer(token).with_tasks();
    let call = json!({ "name": TOOL, "arguments": { "text": "x" } });
    let made = by(&old).modern("tools/call", call.clone()).await.result().await;
    let task = made["taskId"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
    let status =
        async |token: &str| by(token).task("tasks/get", &task).await.result().await["status"].clone();

    has_ended.store(true, Ordering::SeqCst);
    cut.open();
    let refused = || endpoint.log().hits("/token").len() - 1;
    endpoint.wait_for("the refusal", |log| log.hits("/token").len() == 2).await;
    let told = by(&old).modern("tools/call", call).await.result().await;
    assert!(complaint(&told).contains("call again with a fresh token of your own"), "{told}");
    assert_eq!(status(&old).await, "working", "what is known of it stays");
    assert!(refused() <= 2, "{} times for one token", refused());

    agent.on_get(|_| Reply::result(v1::bare_completed(RAW_TASK, RAW_CONTEXT, "la")));
    // The follower may be about to learn that its token is refused: then it continues with this
    // one.
    in_time("the agent to be asked again", async { while status(&fresh).await != "completed" {} }).await;
    let asked =
        agent.calls("GetTask").last().and_then(|call| call.header("authorization").map(str::to_owned));
    assert_eq!(asked.as_deref(), Some("Bearer for-fresh"));
}

/// A task is followed on in the background once its caller has come back, until that token ends
/// too.
#[tokio::test]
async fn returning_caller_resumes_task() {
    let key = Key::es256("k1");
    let issuer = Issuer::new(&[&key]).await;
    let token = |number: u8| key.sign(&issuer.claims("me", |claims| claims["jti"] = json!(number)));
    let (old, fresh) = (token(1), token(2));
    let endpoint = ScriptedAgent::start(Card::v1()).await;
    let is_used = Arc::new(AtomicBool::new(false));
    let (ended, used) = (old.clone(), is_used.clone());
    endpoint.on_path("/token", move |request| {
        let is_old = member(request, "subject_token").as_deref() == Some(&ended);
        if is_old && used.swap(true, Ordering::SeqCst) {
            return Reply::json(&json!({ "error": "invalid_grant" })).with_status(400);
        }
        Reply::json(&json!({ "access_token": "t", "token_type": "Bearer", "expires_in": if is_old { 1 } else { 600 } }))
    });
    let agent = ScriptedAgent::start(Card::v1().skill("sing").streaming(false)).await;
    agent.on_send(|_| Reply::result(v1::task(RAW_TASK, RAW_CONTEXT, "working")));
    agent.on_get(|_| Reply::result(v1::bare_task(RAW_TASK, RAW_CONTEXT, "working")));
    let gateway = exchanging(&issuer, &endpoint, &agent).await;
    let by = |token: &str| gateway.client().bearer(token).with_tasks();
    let call = json!({ "name": TOOL, "arguments": { "text": "x" } });
    let made = by(&old).modern("tools/call", call).await.result().await;
    let task = made["taskId"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
    endpoint.wait_for("the refusal", |log| log.hits("/token").len() == 2).await;
    let filter = json!({ "notifications": { "taskIds": [task] } });
    let mut stream = by(&fresh).modern("subscriptions/listen", filter).await;
    in_time("the promise", stream.next_message()).await;
    agent.on_get(|_| Reply::result(v1::bare_completed(RAW_TASK, RAW_CONTEXT, "la")));
    let told = async {
        loop {
            let message: Value = stream.next_message().await;
            if message["params"]["status"] == "completed" {
                return;
            }
        }
    };
    in_time("the end of the task", told).await;
}

/// A watcher joins while the follower's token is being refused: the follower continues with the
/// watcher's token.
#[tokio::test]
async fn refused_follower_uses_watchers_token() {
    let key = Key::es256("k1");
    let issuer = Issuer::new(&[&key]).await;
    let token = |number: u8| key.sign(&issuer.claims("me", |claims| claims["jti"] = json!(number)));
    let (old, fresh) = (token(1), token(2));
    let endpoint = ScriptedAgent::start(Card::v1()).await;
    let (joined, is_used) = (Signal::new(), Arc::new(AtomicBool::new(false)));
    let (ended, used, refuse) = (old.clone(), is_used.clone(), joined.clone());
    endpoint.on_path("/token", move |request| {
        let is_old = member(request, "subject_token").as_deref() == Some(&ended);
        if is_old && used.swap(true, Ordering::SeqCst) {
            return Reply::json(&json!({ "error": "invalid_grant" })).with_status(400).after(&refuse);
        }
        let (token, expires) = if is_old { ("for-old", 1) } else { ("for-fresh", 600) };
        Reply::json(&json!({ "access_token": token, "token_type": "Bearer", "expires_in": expires }))
    });
    let agent = ScriptedAgent::start(Card::v1().skill("sing").streaming(false)).await;
    agent.on_send(|_| Reply::result(v1::task(RAW_TASK, RAW_CONTEXT, "working")));
    agent.on_get(|_| Reply::result(v1::bare_task(RAW_TASK, RAW_CONTEXT, "working")));
    let gateway = exchanging(&issuer, &endpoint, &agent).await;
    let by = |token: &str| gateway.client().bearer(token).with_tasks();
    let call = json!({ "name": TOOL, "arguments": { "text": "x" } });
    let made = by(&old).modern("tools/call", call).await.result().await;
    let task = made["taskId"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
    endpoint.wait_for("the old token's second use", |log| log.hits("/token").len() == 2).await;
    let filter = json!({ "notifications": { "taskIds": [task] } });
    let mut stream = by(&fresh).modern("subscriptions/listen", filter).await;
    in_time("the acknowledgement", stream.next_message()).await;

    agent.on_get(|_| Reply::result(v1::bare_completed(RAW_TASK, RAW_CONTEXT, "la")));
    joined.open();
    let told = async { while stream.next_message().await["params"]["status"] != "completed" {} };
    in_time("the end of the task", told).await;
    let asked =
        agent.calls("GetTask").last().and_then(|call| call.header("authorization").map(str::to_owned));
    assert_eq!(asked.as_deref(), Some("Bearer for-fresh"));
}
