//! `ListTasks` at the A2A endpoint where ids are sealed: full pages of the caller's own tasks,
//! counted honestly.

use serde_json::{Value, json};

use crate::auth::rules::auth;
use crate::kit::a2a_scene::{Stage, call, saying};
use crate::support::payload::v1;
use crate::support::{Card, McpClient, Reply, Request};

/// A task of an agent's: id, context, state.
type Kept = (String, &'static str, &'static str);

/// An agent that names tasks as it is told, and lists them in pages as agents do.
async fn stage(kept: Vec<Kept>) -> Stage {
    let stage = Stage::with(Card::v1().skill("sing"), &auth(&["ann", "ben"]), "").await;
    let known = kept.clone();
    stage.agent.on("SendMessage", move |request| {
        let id = request.message()["parts"][0]["text"].as_str().unwrap().to_owned();
        let (_, context, state) = known.iter().find(|(known, ..)| *known == id).unwrap();
        Reply::result(v1::task(&id, context, state))
    });
    stage.agent.on("ListTasks", move |request| listed(&kept, request));
    stage
}

fn listed(kept: &[Kept], request: &Request) -> Reply {
    let params = request.params();
    let size = params["pageSize"].as_u64().unwrap_or(50);
    if size == 0 || size > 100 {
        return Reply::error(-32602, "page size");
    }
    let fits = |kept: &&Kept| {
        (params["contextId"].is_null() || params["contextId"] == kept.1)
            && (params["status"].is_null()
                || params["status"] == v1::bare_task("x", "c", kept.2)["status"]["state"])
    };
    let all: Vec<&Kept> = kept.iter().filter(fits).collect();
    let from = params["pageToken"].as_str().unwrap_or_default().strip_prefix("at-").unwrap_or("0");
    let from: usize = from.parse().unwrap();
    let to = all.len().min(from + usize::try_from(size).unwrap());
    let tasks: Vec<Value> =
        all[from..to].iter().map(|(id, context, state)| v1::bare_task(id, context, state)).collect();
    let next = if to < all.len() { format!("at-{to}") } else { String::new() };
    Reply::result(json!({ "tasks": tasks, "nextPageToken": next, "pageSize": size, "totalSize": all.len() }))
}

/// So many tasks of others, and then one of the caller's, again and again.
fn mixed(own: usize, others: usize) -> Vec<Kept> {
    let of = |at: usize| (0..=others).map(move |other| (at, other));
    let named = |(at, other)| match other == others {
        true => (
            format!("own-{at}"),
            if at % 2 == 0 { "even" } else { "odd" },
            if at == 0 { "completed" } else { "working" },
        ),
        false => (format!("others-{at}-{other}"), "theirs", "working"),
    };
    (0..own).flat_map(of).map(named).collect()
}

/// Begins tasks; gives the handles of their first one and of its context.
async fn begun(client: &McpClient, count: usize) -> (Value, Value) {
    let mut first = Value::Null;
    for at in 0..count {
        let task =
            call(client, "SendMessage", saying(&format!("own-{at}"))).await.result().await["task"].clone();
        if first.is_null() {
            first = task;
        }
    }
    (first["id"].clone(), first["contextId"].clone())
}

async fn list(client: &McpClient, params: Value) -> Value {
    call(client, "ListTasks", params).await.result().await
}

/// All pages of a list: how many tasks each has, and what it counts.
async fn pages(client: &McpClient, mut params: Value) -> Vec<(usize, u64)> {
    let mut all = Vec::new();
    loop {
        let page = list(client, params.clone()).await;
        assert!(!page.to_string().contains("others"), "{page}");
        all.push((page["tasks"].as_array().unwrap().len(), page["totalSize"].as_u64().unwrap()));
        params["pageToken"] = page["nextPageToken"].clone();
        if page["nextPageToken"] == "" {
            return all;
        }
    }
}

fn questions(stage: &Stage) -> usize {
    stage.agent.calls("ListTasks").len()
}

#[tokio::test]
async fn page_is_filled_past_tasks_of_others() {
    let stage = stage(mixed(5, 3)).await;
    begun(&stage.by("ann"), 5).await;
    assert_eq!(pages(&stage.by("ann"), json!({ "pageSize": 2 })).await, [(2, 5), (2, 5), (1, 5)]);
    assert_eq!(pages(&stage.by("ann"), json!({})).await, [(5, 5)]);
    assert_eq!(pages(&stage.by("ben"), json!({ "pageSize": 2 })).await, [(0, 0)]);
}

#[tokio::test]
async fn filtered_tasks_are_counted() {
    let stage = stage(mixed(5, 2)).await;
    let (_, even) = begun(&stage.by("ann"), 5).await;
    let ann = stage.by("ann");
    assert_eq!(pages(&ann, json!({ "contextId": even })).await, [(3, 3)]);
    assert_eq!(pages(&ann, json!({ "contextId": even, "pageSize": 2 })).await, [(2, 3), (1, 3)]);
    assert_eq!(pages(&ann, json!({ "status": "TASK_STATE_COMPLETED" })).await, [(1, 1)]);
    assert_eq!(pages(&ann, json!({ "status": "TASK_STATE_FAILED" })).await, [(0, 0)]);
}

#[tokio::test]
async fn list_is_bounded_and_resumes() {
    let stage = stage(mixed(2, 30)).await;
    begun(&stage.by("ann"), 2).await;
    let first = list(&stage.by("ann"), json!({ "pageSize": 1 })).await;
    assert_eq!((&first["tasks"], questions(&stage)), (&json!([]), 10), "{first}");
    assert_ne!(first["nextPageToken"], "", "an empty page is not the end");
    let all = pages(&stage.by("ann"), json!({ "pageSize": 1 })).await;
    assert_eq!(all.iter().map(|(tasks, _)| tasks).sum::<usize>(), 2, "{all:?}");
    assert!(
        all.iter().all(|(tasks, total)| u64::try_from(*tasks).unwrap() <= *total && *total <= 2),
        "{all:?}"
    );
    assert_eq!(all.last().unwrap().1, 2, "whoever has seen all knows how many there are");
}

#[tokio::test]
async fn complete_list_ends_agent_requests() {
    let mut kept = mixed(1, 0);
    kept.extend((0..500).map(|at| (format!("others-{at}"), "theirs", "working")));
    let stage = stage(kept).await;
    begun(&stage.by("ann"), 1).await;
    assert_eq!(pages(&stage.by("ann"), json!({})).await, [(1, 1)]);
    assert_eq!(questions(&stage), 1);
}

#[tokio::test]
async fn foreign_context_has_no_tasks() {
    let stage = stage(mixed(2, 1)).await;
    let (task, context) = begun(&stage.by("ann"), 2).await;
    let empty = json!({ "tasks": [], "nextPageToken": "", "pageSize": 50, "totalSize": 0 });
    let unknown = json!("00000000-0000-4000-8000-000000000000");
    for context in [&context, &task, &json!("even"), &json!("theirs"), &unknown] {
        assert_eq!(list(&stage.by("ben"), json!({ "contextId": context })).await, empty, "{context}");
        let asked = stage.agent.calls("ListTasks").pop().unwrap().params()["contextId"].clone();
        assert!(asked.as_str().unwrap().len() == 36 && asked != *context, "{asked}");
    }
    // Mistakes in the rest are the agent's to report.
    for size in [0, 101] {
        let refused =
            call(&stage.by("ben"), "ListTasks", json!({ "contextId": unknown, "pageSize": size })).await;
        assert_eq!(refused.json().await["error"], json!({ "code": -32602, "message": "page size" }));
    }
}

#[tokio::test]
async fn made_up_page_token_is_refused() {
    let stage = stage(mixed(3, 0)).await;
    begun(&stage.by("ann"), 3).await;
    let next = list(&stage.by("ann"), json!({ "pageSize": 1 })).await["nextPageToken"].clone();
    assert!(!next.as_str().unwrap().contains("at-"), "{next}");
    for (name, token) in [("ann", json!("at-1")), ("ann", json!(7)), ("ben", next)] {
        let refused = call(&stage.by(name), "ListTasks", json!({ "pageToken": token })).await;
        assert_eq!(refused.error_code().await, -32602, "{name}: {token}");
    }
}

#[tokio::test]
async fn error_between_pages_is_passed_on() {
    let stage = stage(mixed(2, 2)).await;
    begun(&stage.by("ann"), 2).await;
    let kept = mixed(2, 2);
    stage.agent.on("ListTasks", move |request| match request.params()["pageToken"].is_null() {
        true => listed(&kept, request),
        false => Reply::error(-32603, "the rest of own-0 is lost"),
    });
    let refused = call(&stage.by("ann"), "ListTasks", json!({ "pageSize": 2 })).await.json().await;
    assert_eq!(refused["error"]["code"], -32603, "{refused}");
}
