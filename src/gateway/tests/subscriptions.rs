//! Streams on which the gateway sends notifications: of sessions, and of `subscriptions/listen`.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::{
    Exchange, TestGateway, TestRequest, TestSession, assert_at, completed, in_state, pass, seconds, settle,
    tasks, working,
};

const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// Begins a `subscriptions/listen` of a client with the tasks extension.
fn listen(gateway: &TestGateway, wanted: Value) -> Exchange {
    let params = json!({ "notifications": wanted });
    gateway.send(TestRequest::modern(&tasks(), "subscriptions/listen", params))
}

/// Begins the stream of a session.
fn stream_of(gateway: &TestGateway, session: &TestSession) -> Exchange {
    gateway.send(session.own(TestRequest::get("/mcp").header("accept", "text/event-stream")))
}

async fn session(gateway: &TestGateway) -> TestSession {
    gateway.session("2025-11-25", json!({})).await
}

#[tokio::test(start_paused = true)]
async fn acknowledgement_comes_first() {
    let gateway = TestGateway::new().await;
    let wanted = json!({
        "toolsListChanged": true, "promptsListChanged": true,
        "resourceSubscriptions": ["a2a-agent://bard", "a2a-agent://none", "file:///etc/passwd"],
    });
    let first = listen(&gateway, wanted).next_message().await;
    assert_eq!(first.json["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(first.json["params"]["_meta"][SUBSCRIPTION], 1);
    let honoured = json!({
        "toolsListChanged": true, "promptsListChanged": true, "resourceSubscriptions": ["a2a-agent://bard"],
    });
    assert_eq!(first.json["params"]["notifications"], honoured);
    assert!(first.at < seconds(1));
}

#[tokio::test(start_paused = true)]
async fn listen_without_filter_is_refused() {
    let gateway = TestGateway::new().await;
    for params in
        [json!({}), json!({ "notifications": [] }), json!({ "notifications": { "toolsListChanged": "yes" } })]
    {
        let request = TestRequest::modern(&json!({}), "subscriptions/listen", params.clone());
        assert_eq!(gateway.respond(request).await.refusal(), (200, -32602), "{params}");
    }
    let params = json!({ "notifications": { "taskIds": ["x"] } });
    let undeclared = TestRequest::modern(&json!({}), "subscriptions/listen", params);
    assert_eq!(gateway.respond(undeclared).await.refusal(), (400, -32021));
}

/// However often a card changes, a client hears of it at most once in 50 ms, and of the last change
/// always.
#[tokio::test(start_paused = true)]
async fn changes_are_notified_at_interval() {
    let gateway = TestGateway::new().await;
    let mut listening = listen(&gateway, json!({ "toolsListChanged": true }));
    listening.next_message().await;
    pass(seconds(1)).await;
    for change in 0..5_u32 {
        gateway.set_skills(if change % 2 == 0 { &["sing", "dance"] } else { &["sing"] });
        pass(Duration::from_millis(10)).await;
    }
    pass(seconds(1)).await;
    let (first, second) = (listening.next_message().await, listening.next_message().await);
    assert_eq!(first.json["method"], "notifications/tools/list_changed");
    assert_at(first.at, seconds(1));
    assert_at(second.at, seconds(1) + Duration::from_millis(50));
    gateway.gateway.close();
    let end = listening.response().await;
    assert_eq!(end.messages.len(), 4, "acknowledgement, two changes and the end: {end:?}");
}

#[tokio::test(start_paused = true)]
async fn only_wanted_changes_are_notified() {
    let gateway = TestGateway::new().await;
    let mut agent = listen(&gateway, json!({ "resourceSubscriptions": ["a2a-agent://bard"] }));
    let nothing = listen(&gateway, json!({}));
    settle().await;
    gateway.set_skills(&["dance"]);
    agent.next_message().await;
    let updated = agent.next_message().await;
    assert_eq!(updated.json["method"], "notifications/resources/updated");
    assert_eq!(updated.json["params"]["uri"], "a2a-agent://bard");
    pass(seconds(1)).await;
    gateway.gateway.close();
    let end = nothing.response().await;
    assert_eq!(end.messages.len(), 2, "{end:?}");
}

#[tokio::test(start_paused = true)]
async fn quiet_streams_are_kept_alive() {
    let gateway = TestGateway::new().await;
    let session = session(&gateway).await;
    let streams = [listen(&gateway, json!({ "toolsListChanged": true })), stream_of(&gateway, &session)];
    pass(seconds(7)).await;
    gateway.set_skills(&["sing", "dance"]);
    pass(seconds(24)).await;
    gateway.gateway.close();
    for stream in streams {
        let response = stream.response().await;
        assert_eq!(response.comments.len(), 2, "changes do not postpone them: {response:?}");
        assert_at(response.comments[0], seconds(15));
        assert_at(response.comments[1], seconds(30));
    }
}

#[tokio::test(start_paused = true)]
async fn drain_ends_streams_at_once() {
    let gateway = TestGateway::new().await;
    let session = session(&gateway).await;
    let (listening, stream) = (listen(&gateway, json!({})), stream_of(&gateway, &session));
    pass(seconds(3)).await;
    gateway.gateway.close();
    let end = listening.response().await;
    assert_at(end.ended, seconds(3));
    assert_eq!(end.result()["resultType"], "complete", "{end:?}");
    assert_eq!(end.result()["_meta"][SUBSCRIPTION], 1);
    let end = stream.response().await;
    assert_at(end.ended, seconds(3));
    assert!(end.text.ends_with("retry: 5000\n\n"), "{end:?}");
}

#[tokio::test(start_paused = true)]
async fn end_of_process_ends_stream() {
    let gateway = TestGateway::new().await;
    let listening = listen(&gateway, json!({}));
    settle().await;
    listening.client.end_process();
    assert_at(listening.response().await.ended, seconds(15));
}

#[tokio::test(start_paused = true)]
async fn stream_of_ended_session_ends() {
    let gateway = TestGateway::new().await;
    let session = session(&gateway).await;
    let stream = stream_of(&gateway, &session);
    settle().await;
    let end = session.own(TestRequest::new(Method::DELETE, "/mcp"));
    assert_eq!(gateway.respond(end).await.status, 204);
    assert!(stream.response().await.ended <= seconds(16));
}

#[tokio::test(start_paused = true)]
async fn streams_are_limited_and_make_room() {
    let gateway = TestGateway::with(|settings| settings.limits.streams = 2).await;
    let session = session(&gateway).await;
    let (first, second) = (listen(&gateway, json!({})), stream_of(&gateway, &session));
    settle().await;
    assert_eq!(stream_of(&gateway, &session).response().await.status, 503);
    assert_eq!(listen(&gateway, json!({})).response().await.status, 503);
    assert_eq!(gateway.respond(session.request("ping", json!({}))).await.status, 200, "requests go on");
    first.disconnect().await;
    let next = stream_of(&gateway, &session);
    settle().await;
    assert_eq!(next.client.written().status.unwrap(), 200);
    assert!(second.client.written().ended.is_none());
}

#[tokio::test(start_paused = true)]
async fn caller_does_not_take_all_streams() {
    // Three quarters of all are the most of one caller.
    for (all, of_one, places) in [(10, 1, 1), (4, 4, 3)] {
        let gateway = TestGateway::with(|settings| {
            (settings.limits.streams, settings.limits.caller_streams) = (all, of_one);
        })
        .await;
        let mut open: Vec<Exchange> = (0..places).map(|_| listen(&gateway, json!({}))).collect();
        settle().await;
        let refused = listen(&gateway, json!({})).response().await;
        assert_eq!((refused.status, refused.header("retry-after")), (429, "1"));
        let params = json!({ "notifications": {} });
        let other = TestRequest::modern(&json!({}), "subscriptions/listen", params);
        let other = TestRequest { network: Some([192, 0, 2, 2].into()), ..other };
        open.push(gateway.send(other.clone()));
        settle().await;
        for stream in &open {
            assert_eq!(stream.client.written().status.unwrap(), 200);
        }
        if all == 4 {
            assert_eq!(gateway.respond(other).await.status, 503, "none is left");
        }
        let first = open.remove(0);
        first.disconnect().await;
        let again = listen(&gateway, json!({}));
        settle().await;
        assert_eq!(again.client.written().status.unwrap(), 200, "there is room again");
    }
}

#[tokio::test(start_paused = true)]
async fn task_is_notified_once_per_state() {
    let gateway = TestGateway::new().await;
    let (call, agent) = gateway.call(TestRequest::sing(&tasks()));
    agent.send(&working());
    let task = call.response().await.result()["taskId"].clone();
    let mut listening = listen(&gateway, json!({ "taskIds": [task, "unknown"] }));
    let first = listening.next_message().await;
    assert_eq!(first.json["params"]["notifications"]["taskIds"], json!([task]), "{first:?}");
    let state = listening.next_message().await;
    assert_eq!(state.json["params"]["status"], "working", "{state:?}");
    assert!(state.at < seconds(1), "the present state at once");
    pass(seconds(2)).await;
    agent.send(&working());
    agent.send(&in_state("WORKING", "verse 2"));
    agent.send(&completed("la"));
    let done = listening.next_message().await;
    assert_eq!(done.json["params"]["status"], "completed", "changes at one time are one: {done:?}");
    pass(seconds(1)).await;
    gateway.gateway.close();
    assert_eq!(listening.response().await.messages.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn session_hears_of_its_core_tasks() {
    let gateway = TestGateway::new().await;
    let session = session(&gateway).await;
    let mut stream = stream_of(&gateway, &session);
    let params = json!({ "name": super::TOOL, "arguments": { "text": "sing" }, "task": {} });
    let (call, agent) = gateway.call(session.request("tools/call", params));
    agent.send(&working());
    let task = call.response().await.result()["task"]["taskId"].clone();
    settle().await;
    agent.send(&completed("la"));
    loop {
        let changed = stream.next_message().await;
        assert_eq!(changed.json["method"], "notifications/tasks/status", "{changed:?}");
        assert_eq!(changed.json["params"]["taskId"], task);
        if changed.json["params"]["status"] == "completed" {
            break;
        }
    }
}
