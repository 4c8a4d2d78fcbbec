//! An agent at several endpoints: calls are spread over them, and what an endpoint began stays
//! there.
//!
//! Out of scope: endpoints that fail (see `ejection`).

use serde_json::json;

use crate::kit::cluster::{Cluster, HASTY, call, context_at, endpoints, say, task_at};
use crate::kit::scene::{task_of, words};
use crate::support::payload::v1;
use crate::support::{Log, Reply, Signal, TestGateway, in_time};

/// The ids of the tasks that an endpoint was asked for.
fn asked_for(log: &Log) -> Vec<String> {
    let ids =
        |request: &&crate::support::Request| request.params()["id"].as_str().unwrap_or_default().to_owned();
    log.calls("GetTask").iter().map(ids).collect()
}

#[tokio::test]
async fn idle_endpoints_are_called_in_turn() {
    let cluster = Cluster::new(3).await;
    let gateway = cluster.gateway("", "").await;
    for number in 0..9 {
        let text = format!("song {number}");
        assert_eq!(words(&say(&gateway, &text).await), text);
    }
    assert_eq!(cluster.counts(), [3, 3, 3]);
    assert!(cluster.registrar.calls("SendStreamingMessage").is_empty(), "the card only says what it can do");
}

#[tokio::test]
async fn least_busy_endpoint_is_called() {
    let cluster = Cluster::new(3).await;
    let gateway = cluster.gateway("", "").await;
    let go = Signal::new();
    for endpoint in 0..3 {
        let wait = go.clone();
        cluster.on_send(endpoint, move |request| {
            let message = crate::support::payload::v1::message("la");
            // Only the first endpoint is slow.
            let reply = Reply::events([message]);
            if request.text() == "slow" && endpoint == 0 { reply.after(&wait) } else { reply }
        });
    }
    let mut held = Vec::new();
    // In turn, until the slow one has two.
    while cluster.counts()[0] < 2 {
        let before = cluster.counts().iter().sum::<usize>();
        let client = gateway.client();
        let params = json!({ "name": crate::kit::scene::TOOL, "arguments": { "text": "slow" } });
        held.push(tokio::spawn(async move { client.modern("tools/call", params).await.result().await }));
        in_time("the message", async {
            while cluster.counts().iter().sum::<usize>() == before {
                tokio::task::yield_now().await
            }
        })
        .await;
        if cluster.counts()[0] == 1 && held.len() > 1 {
            break;
        }
    }
    let before = cluster.counts();
    for _ in 0..6 {
        say(&gateway, "quick").await;
    }
    let after = cluster.counts();
    assert_eq!(after[0], before[0], "it is busy");
    assert_eq!(after.iter().sum::<usize>(), before.iter().sum::<usize>() + 6);
    go.open();
    for call in held {
        assert_eq!(words(&in_time("an answer", call).await.unwrap()), "la");
    }
}

#[tokio::test]
async fn task_stays_at_its_endpoint() {
    let cluster = Cluster::new(3).await;
    (0..3).for_each(|endpoint| cluster.works(endpoint));
    let gateway = cluster.gateway("", HASTY).await;
    let mut tasks = Vec::new();
    for number in 0..6 {
        tasks.push(task_of(&say(&gateway, &format!("song-{number}")).await));
    }
    assert_eq!(cluster.counts(), [2, 2, 2]);
    (0..3).for_each(|endpoint| cluster.is_done(endpoint));
    // Said in live tasks, which are done then: nothing is asked of an endpoint that is not its own.
    for task in &tasks[..3] {
        let result = call(&gateway, json!({ "taskId": task, "text": "and?" })).await;
        assert!(
            result["isError"] == true || words(&result).contains("is done") || words(&result) == "thank you"
        );
    }
    for task in &tasks {
        let params = json!({ "name": "subagent_get", "arguments": { "taskId": task } });
        gateway.client().modern("tools/call", params).await.result().await;
    }
    for (endpoint, agent) in cluster.agents.iter().enumerate() {
        let log = agent.log();
        for id in asked_for(&log) {
            assert!(id.starts_with(&task_at(endpoint, "")), "{id} was asked for at {endpoint}");
        }
        for request in log.calls("SendStreamingMessage") {
            let context = &request.message()["contextId"];
            assert!(context.is_null() || *context == context_at(endpoint), "{context} went to {endpoint}");
        }
    }
}

#[tokio::test]
async fn conversation_stays_at_its_endpoint() {
    let cluster = Cluster::new(3).await;
    for endpoint in 0..3 {
        cluster.on_send(endpoint, move |request| {
            let task = task_at(endpoint, &request.text());
            Reply::events([v1::completed(&task, &context_at(endpoint), "la")])
        });
    }
    let gateway = cluster.gateway("", "").await;
    for number in 0..3 {
        let begun = say(&gateway, &format!("song-{number}")).await;
        let hint = begun["content"][1]["text"].as_str().unwrap();
        let context = hint.split('"').nth(1).unwrap();
        let before = cluster.counts();
        for more in 0..4 {
            call(&gateway, json!({ "contextId": context, "text": format!("more-{number}-{more}") })).await;
        }
        let after = cluster.counts();
        let mut grown: Vec<usize> = after.iter().zip(&before).map(|(after, before)| after - before).collect();
        grown.sort_unstable();
        assert_eq!(grown, [0, 0, 4]);
    }
}

/// The same as another replica that has never heard of the task.
#[tokio::test]
async fn task_is_found_again_after_restart() {
    let cluster = Cluster::new(3).await;
    (0..3).for_each(|endpoint| cluster.works(endpoint));
    let gateway = cluster.gateway("", HASTY).await;
    let mut tasks = Vec::new();
    for number in 0..3 {
        tasks.push(task_of(&say(&gateway, &format!("song-{number}")).await));
    }
    drop(gateway);
    let gateway: TestGateway = cluster.gateway("", HASTY).await;
    for task in &tasks {
        let result = call(&gateway, json!({ "taskId": task, "text": "go on" })).await;
        assert_eq!(words(&result), "thank you");
    }
    for (endpoint, agent) in cluster.agents.iter().enumerate() {
        let log = agent.log();
        let continued: Vec<_> =
            log.requests.iter().filter(|request| request.message()["taskId"].is_string()).collect();
        assert_eq!(continued.len(), 1, "each goes home");
        let id = continued[0].message()["taskId"].as_str().unwrap().to_owned();
        assert!(id.starts_with(&task_at(endpoint, "")), "{id} was continued at {endpoint}");
        let others = asked_for(&log).iter().filter(|id| !id.starts_with(&task_at(endpoint, ""))).count();
        assert!(others <= 2, "each of the others is looked for once: {:?}", asked_for(&log));
    }
}

#[tokio::test]
async fn task_unknown_everywhere_is_lost() {
    let cluster = Cluster::new(2).await;
    (0..2).for_each(|endpoint| cluster.works(endpoint));
    let gateway = cluster.gateway("", HASTY).await;
    let task = task_of(&say(&gateway, "song").await);
    drop(gateway);
    for agent in &cluster.agents {
        agent.on_get(|_| Reply::error(-32001, "Task not found"));
    }
    // A request of the first gateway may still be read after its end: the second's carry a header.
    let gateway = cluster.gateway("    headers: { X-Gateway: second }", HASTY).await;
    let result = call(&gateway, json!({ "taskId": task, "text": "go on" })).await;
    assert_eq!(result["isError"], true, "{result}");
    assert_eq!(cluster.counts().iter().sum::<usize>(), 1, "nothing was said");
    let is_second = |request: &&&crate::support::Request| request.header("X-Gateway").is_some();
    let asked = |log: Log| log.calls("GetTask").iter().filter(is_second).count();
    let more: Vec<usize> = cluster.agents.iter().map(|agent| asked(agent.log())).collect();
    assert_eq!(more, [1, 1], "each was asked");
}

#[tokio::test]
async fn only_operator_sees_endpoints() {
    let cluster = Cluster::new(2).await;
    let gateway = cluster.gateway("", "").await;
    say(&gateway, "x").await;
    let shown = endpoints(&gateway).await;
    let urls: Vec<_> = cluster.agents.iter().map(|agent| json!(agent.url())).collect();
    assert_eq!(shown.iter().map(|endpoint| endpoint["url"].clone()).collect::<Vec<_>>(), urls);
    assert!(shown.iter().all(|endpoint| endpoint["up"] == true && endpoint["requests"] == 0), "{shown:?}");
    let metrics = gateway.metrics().await;
    // Counters begin with the first request.
    let line = "mcp_a2a_gateway_endpoint_up{agent=\"bard\",endpoint=\"1\"} 1";
    assert!(metrics.contains(line), "{line}\n{metrics}");
    let params = json!({ "uri": "a2a://agents/registry" });
    let registry = gateway.client().modern("resources/read", params).await.result().await;
    let registry = registry["contents"][0]["text"].as_str().unwrap().to_owned();
    assert!(registry.contains(r#""endpoints":{"total":2,"up":2}"#), "{registry}");
    assert!(!urls.iter().any(|url| registry.contains(url.as_str().unwrap())), "{registry}");
}

#[tokio::test]
async fn agents_command_shows_endpoints() {
    let mut cluster = Cluster::new(2).await;
    let urls: Vec<String> = cluster.agents.iter().map(|agent| agent.url()).collect();
    let config = format!(
        "listeners: [{{ address: 127.0.0.1:1 }}]\nagents: {{ bard: {{ card: {}, endpoints: [{}] }} }}\n",
        cluster.registrar.card_url(),
        urls.join(", ")
    );
    let shown = TestGateway::run_with_config("agents", &config).await;
    assert!(shown.status.success());
    assert!(String::from_utf8(shown.stdout).unwrap().contains("2 of 2"));
    cluster.kill(1).await;
    let shown = TestGateway::run_with_config("agents", &config).await;
    let text = String::from_utf8(shown.stdout).unwrap();
    assert!(!shown.status.success() && text.contains("1 of 2"), "{text}");
    assert!(text.contains(&format!("endpoint {} is not there", urls[1])), "{text}");
}
