//! Endpoints that fail: no message is sent twice, a failed endpoint is left alone and probed by one
//! request, and its tasks wait.

use serde_json::json;
use tokio::task::JoinSet;

use crate::kit::cluster::{Cluster, Count, HASTY, QUICK, call, endpoints, say, task_at, until_up};
use crate::kit::scene::{Scene, TOOL, complaint, task_of, words};
use crate::support::payload::v1;
use crate::support::{Card, Reply, Signal, in_time};

/// How often the log says this.
fn told(output: &str, what: &str) -> usize {
    output.lines().filter(|line| line.contains(what)).count()
}

#[tokio::test]
async fn dying_endpoint_repeats_nothing() {
    const CALLS: usize = 120;
    let mut cluster = Cluster::new(3).await;
    let gateway = cluster.gateway(QUICK, "").await;
    let (done, mut calls) = (Count::default(), JoinSet::new());
    for worker in 0..6 {
        let (client, done) = (gateway.client(), done.clone());
        calls.spawn(async move {
            let mut failures = Vec::new();
            for number in 0..CALLS / 6 {
                let params = json!({ "name": TOOL, "arguments": { "text": format!("{worker}-{number}") } });
                let result = client.modern("tools/call", params).await.result().await;
                if result["isError"] == true {
                    failures.push(words(&result).to_owned());
                }
                done.add();
            }
            failures
        });
    }
    in_time("some calls", async {
        while done.get() < CALLS / 3 {
            tokio::task::yield_now().await
        }
    })
    .await;
    let killed = cluster.kill(1).await;
    let failures: Vec<String> = in_time("all calls", calls.join_all()).await.into_iter().flatten().collect();
    // A message on its way there when it died cannot be sent again.
    assert!(failures.len() <= 6, "{failures:#?}");
    assert!(failures.iter().all(|failure| failure.contains("is not known")), "{failures:#?}");
    let mut said: Vec<String> = cluster.said.iter().flat_map(|said| said.lock().unwrap().clone()).collect();
    let all = said.len();
    said.sort();
    said.dedup();
    assert_eq!(said.len(), all, "a message was sent twice");
    assert!(all >= CALLS - failures.len(), "{all} messages");
    until_up(&gateway, 2).await;
    cluster.revive(killed).await;
    let before = cluster.counts()[1];
    in_time("the endpoint to be used again", async {
        while cluster.counts()[1] == before {
            say(&gateway, "x").await;
        }
    })
    .await;
    until_up(&gateway, 3).await;
}

#[tokio::test]
async fn proxy_error_is_not_retried() {
    let cluster = Cluster::new(2).await;
    cluster.on_send(0, |_| Reply::status(503, ""));
    let gateway = cluster.gateway("    breaker: { failures: 2, base: 10m, max: 10m }\n", "").await;
    let mut failed = 0;
    for number in 0..10 {
        let result = say(&gateway, &format!("song {number}")).await;
        failed += usize::from(result["isError"] == true);
    }
    assert_eq!((failed, cluster.counts()), (2, vec![2, 8]));
    let shown = endpoints(&gateway).await;
    assert_eq!((&shown[0]["up"], &shown[1]["up"]), (&json!(false), &json!(true)));
    assert!(shown[0]["triedIn"].as_u64().unwrap() > 400, "{shown:?}");
    let metrics = gateway.metrics().await;
    for line in [
        "mcp_a2a_gateway_endpoint_up{agent=\"bard\",endpoint=\"0\"} 0",
        "mcp_a2a_gateway_endpoint_failures_total{agent=\"bard\",endpoint=\"0\"} 2",
        "mcp_a2a_gateway_endpoint_ejections_total{agent=\"bard\",endpoint=\"0\"} 1",
    ] {
        assert!(metrics.lines().any(|shown| shown == line), "{line}\n{metrics}");
    }
    gateway.wait_for_output("endpoint ejected").await;
    assert_eq!(told(&gateway.output(), "endpoint ejected"), 1);
}

#[tokio::test]
async fn refusals_eject_no_endpoint() {
    let scene =
        Scene::of(Card::v1().skill("sing"), "breaker: { failures: 1, base: 10m, max: 10m }", "").await;
    for reply in [
        Reply::status(400, ""),
        Reply::status(404, ""),
        Reply::status(429, ""),
        Reply::status(500, ""),
        Reply::error(-32603, "no"),
        Reply::bytes_of("text/html", b"<html>"),
    ] {
        scene.agent.on_send(move |_| reply.clone());
        assert!(!complaint(&scene.said("x").await).contains("again and again"));
    }
    scene.agent.on_send(|_| Reply::hang_up());
    assert!(complaint(&scene.said("x").await).contains("connection to it broke"));
    let refused = scene.said("x").await;
    assert!(complaint(&refused).contains("is not asked for the next"), "{refused}");
}

/// One endpoint is enough for a breaker.
#[tokio::test]
async fn one_request_probes_returning_agent() {
    const CALLERS: usize = 20;
    let own = "breaker: { failures: 2, base: 300ms, max: 300ms }";
    let scene = Scene::of(Card::v1().skill("sing"), own, "").await;
    scene.agent.on_send(|_| Reply::status(503, ""));
    for _ in 0..2 {
        assert!(complaint(&scene.said("x").await).contains("HTTP 503"));
    }
    let (asked, go) = (Count::default(), Signal::new());
    let (count, wait) = (asked.clone(), go.clone());
    scene.agent.on_send(move |_| {
        count.add();
        Reply::events([v1::message("la")]).after(&wait)
    });
    let mut calls = JoinSet::new();
    for _ in 0..CALLERS {
        let client = scene.gateway.client();
        calls.spawn(async move {
            let mut refused = 0;
            loop {
                let params = json!({ "name": TOOL, "arguments": { "text": "x" } });
                let result = client.modern("tools/call", params).await.result().await;
                if result["isError"] == false {
                    return refused;
                }
                assert!(complaint(&result).contains("again and again"), "{result}");
                refused += 1;
            }
        });
    }
    in_time("the probe", async {
        while asked.get() == 0 {
            tokio::task::yield_now().await
        }
    })
    .await;
    for _ in 0..CALLERS {
        let refused = scene.said("y").await;
        assert!(complaint(&refused).contains("again and again"), "{refused}");
    }
    assert_eq!(asked.get(), 1, "one probe, and no call beside it");
    go.open();
    let refused: Vec<usize> = in_time("the calls", calls.join_all()).await;
    assert!(refused.iter().filter(|refused| **refused > 0).count() >= CALLERS - 1, "{refused:?}");
    scene.gateway.wait_for_output("endpoint is back").await;
    let output = scene.gateway.output();
    assert_eq!((told(&output, "endpoint ejected"), told(&output, "endpoint is back")), (1, 1));
    assert!(
        scene.gateway.metrics().await.contains("endpoint_probes_total{agent=\"bard\",endpoint=\"0\"} 1\n")
    );
}

#[tokio::test]
async fn task_waits_for_dead_endpoint() {
    let mut cluster = Cluster::new(2).await;
    (0..2).for_each(|endpoint| cluster.works(endpoint));
    let gateway = cluster.gateway(QUICK, HASTY).await;
    let tasks = [task_of(&say(&gateway, "one").await), task_of(&say(&gateway, "two").await)];
    let mine = usize::from(cluster.said[1].lock().unwrap().first().is_some_and(|text| text == "one"));
    let killed = cluster.kill(mine).await;
    let waiting = call(&gateway, json!({ "taskId": tasks[0] })).await;
    assert!(waiting["structuredContent"]["taskId"].is_string() || waiting["isError"] == true, "{waiting}");
    cluster.revive(killed).await;
    let lost = in_time("the end of the task", async {
        loop {
            let result = call(&gateway, json!({ "taskId": tasks[0] })).await;
            if result["isError"] == true && !words(&result).contains("again and again") {
                return result;
            }
        }
    })
    .await;
    assert!(words(&lost).contains("expired or was lost"), "{lost}");
    cluster.is_done(1 - mine);
    let done = in_time("the other task", async {
        loop {
            let result = call(&gateway, json!({ "taskId": tasks[1] })).await;
            if result["structuredContent"].is_null() {
                return result;
            }
        }
    })
    .await;
    assert!(words(&done).contains("is done"), "the other endpoint's task is not touched: {done}");
    assert_eq!(cluster.counts(), [1, 1], "nothing is begun again");
}

#[tokio::test]
async fn shared_task_is_found_elsewhere() {
    let mut cluster = Cluster::new(2).await;
    (0..2).for_each(|endpoint| cluster.works(endpoint));
    let gateway = cluster.gateway(QUICK, HASTY).await;
    let task = task_of(&say(&gateway, "one").await);
    let mine = usize::from(!cluster.said[1].lock().unwrap().is_empty());
    let id = task_at(mine, "one");
    let shared = id.clone();
    cluster.agents[1 - mine].on_get(move |request| {
        assert_eq!(request.params()["id"], shared);
        Reply::result(v1::bare_completed(&shared, "raw-context", "the song"))
    });
    cluster.kill(mine).await;
    let done = in_time("the end of the task", async {
        loop {
            let result = call(&gateway, json!({ "taskId": task })).await;
            if result["isError"] == false && result["structuredContent"].is_null() {
                return result;
            }
        }
    })
    .await;
    assert_eq!(words(&done), "the song");
}

#[tokio::test]
async fn checks_find_out_before_any_call() {
    let mut cluster = Cluster::new(2).await;
    let own = "    breaker: { failures: 2, base: 100ms, max: 100ms }\n    health: { path: /live, interval: 50ms, timeout: 2s }\n";
    cluster.agents.iter().for_each(|agent| {
        agent.on_path("/live", |_| Reply::status(204, ""));
    });
    let gateway = cluster.gateway(own, "").await;
    until_up(&gateway, 2).await;
    let killed = cluster.kill(0).await;
    until_up(&gateway, 1).await;
    for number in 0..6 {
        let text = format!("song {number}");
        assert_eq!(words(&say(&gateway, &text).await), text);
    }
    assert_eq!(cluster.counts(), [0, 6]);
    cluster.revive(killed).await;
    cluster.agents[0].on_path("/live", |_| Reply::status(500, ""));
    let before = cluster.agents[0].log().hits("/live").len();
    cluster.agents[0].wait_for("two more checks", |log| log.hits("/live").len() >= before + 2).await;
    assert_eq!(endpoints(&gateway).await[0]["up"], false, "it says itself that it is not well");
    cluster.agents[0].on_path("/live", |_| Reply::status(404, ""));
    until_up(&gateway, 2).await;
    assert_eq!(cluster.counts(), [0, 6], "no call was needed to see that");
}
