//! Tasks at one of several endpoints: the endpoint that is asked about them, and the one that is
//! blamed for a failure.
//!
//! Out of scope: how calls are spread (see `endpoints`), endpoints that fail (see `ejection`).

use serde_json::{Value, json};

use crate::auth::agent_tokens::{granted, oauth2};
use crate::auth::rules::{auth, key_of};
use crate::kit::cluster::{Cluster, Said, context_at, endpoints, say, task_at};
use crate::kit::scene::{complaint, words};
use crate::support::payload::{v0_1, v1};
use crate::support::{Card, McpClient, Reply, ScriptedAgent, Signal, TestGateway, in_time};

/// Endpoints that have ports, and nothing to say yet; all with this card.
async fn silent(count: usize, card: impl Fn() -> Card) -> Cluster {
    let registrar = ScriptedAgent::start(card().skill("sing")).await;
    let mut agents = Vec::new();
    for _ in 0..count {
        agents.push(ScriptedAgent::start(card()).await);
    }
    Cluster { agents, said: (0..count).map(|_| Said::default()).collect(), registrar }
}

/// A card that only an agent of 0.1 has.
fn told_0_1() -> Card {
    Card::v0_1().set("authentication", json!({ "schemes": ["Bearer"] }))
}

/// How many requests with this method each endpoint has had.
fn counts(cluster: &Cluster, method: &str) -> Vec<usize> {
    cluster.agents.iter().map(|agent| agent.calls(method).len()).collect()
}

/// The same gateway with the A2A endpoint.
async fn with_a2a(cluster: &Cluster, settings: &str) -> TestGateway {
    let urls: Vec<String> = cluster.agents.iter().map(ScriptedAgent::url).collect();
    let (card, endpoints) = (cluster.registrar.card_url(), urls.join(", "));
    TestGateway::start(|ports| {
        let listeners = ports.listeners().replacen("admin:", "    serve: [mcp, a2a]\nadmin:", 1);
        format!("{listeners}{settings}agents:\n  bard:\n    card: {card}\n    endpoints: [{endpoints}]\n")
    })
    .await
}

/// Says something over the A2A endpoint; yields the conversation that the answer names.
async fn said(client: &McpClient, method: &str, context: Option<&Value>) -> Value {
    let mut params = crate::kit::a2a_scene::saying("x");
    if let Some(context) = context {
        params["message"]["contextId"] = context.clone();
    }
    let mut answer = crate::kit::a2a_scene::call(client, method, params).await;
    let result = match method {
        "SendMessage" => answer.result().await,
        _ => answer.next_message().await["result"].clone(),
    };
    let id = &result["task"]["contextId"];
    assert!(id.is_string(), "{result}");
    id.clone()
}

/// An endpoint that lists these tasks, so many on a page, and knows its own tokens only.
fn lists(cluster: &Cluster, endpoint: usize, tasks: Vec<String>) {
    cluster.agents[endpoint].on("ListTasks", move |request| {
        let params = request.params();
        let from = match params["pageToken"].as_str().unwrap_or_default() {
            "" => 0,
            token => match token.strip_prefix(&format!("{endpoint}-")).and_then(|at| at.parse().ok()) {
                Some(at) => at,
                None => return Reply::error(-32602, "unknown page token"),
            },
        };
        let size = usize::try_from(params["pageSize"].as_u64().unwrap_or(50)).unwrap();
        let page = tasks.iter().skip(from).take(size);
        let page: Vec<Value> = page.map(|id| v1::bare_task(id, &context_at(endpoint), "working")).collect();
        let token =
            if from + size < tasks.len() { format!("{endpoint}-{}", from + size) } else { String::new() };
        Reply::result(json!({
            "tasks": page, "nextPageToken": token, "pageSize": size, "totalSize": tasks.len(),
        }))
    });
}

#[tokio::test]
async fn task_list_covers_all_endpoints() {
    for (settings, key) in [("", None), (auth(&["ann"]).as_str(), Some(key_of("ann")))] {
        let cluster = silent(2, Card::v1).await;
        for endpoint in 0..2 {
            let numbers = std::sync::atomic::AtomicUsize::new(0);
            cluster.on_send(endpoint, move |_| {
                let number = numbers.fetch_add(1, std::sync::atomic::Ordering::SeqCst).to_string();
                Reply::result(v1::task(&task_at(endpoint, &number), &context_at(endpoint), "working"))
            });
            lists(&cluster, endpoint, (0..3).map(|number| task_at(endpoint, &number.to_string())).collect());
        }
        let gateway = with_a2a(&cluster, settings).await;
        let client = gateway.client().at("/a2a/bard");
        let client = key.iter().fold(client, |client, key| client.header("X-Api-Key", key));
        let mut begun = std::collections::BTreeSet::new();
        for _ in 0..6 {
            let sent =
                crate::kit::a2a_scene::call(&client, "SendMessage", crate::kit::a2a_scene::saying("x")).await;
            begun.insert(sent.result().await["task"]["id"].as_str().unwrap().to_owned());
        }
        let (mut listed, mut token) = (Vec::new(), String::new());
        for _ in 0..3 {
            let params = json!({ "pageSize": 2, "pageToken": token });
            let page = crate::kit::a2a_scene::call(&client, "ListTasks", params).await.result().await;
            assert_eq!(page["totalSize"], 6, "{page}");
            let tasks = page["tasks"].as_array().unwrap();
            listed.extend(tasks.iter().map(|task| task["id"].as_str().unwrap().to_owned()));
            token = page["nextPageToken"].as_str().unwrap().to_owned();
        }
        assert_eq!((token.as_str(), listed.len()), ("", 6), "{listed:?}");
        assert_eq!(listed.into_iter().collect::<std::collections::BTreeSet<_>>(), begun);
    }
}

#[tokio::test]
async fn conversation_stays_at_its_endpoint() {
    // Where callers have names ids are exchanged, so that an answer is read whole; else it passes
    // as it comes.
    for (settings, key) in [("", None), (auth(&["ann"]).as_str(), Some(key_of("ann")))] {
        for method in ["SendMessage", "SendStreamingMessage"] {
            let cluster = silent(3, Card::v1).await;
            for endpoint in 0..3 {
                let task = v1::completed(&task_at(endpoint, "x"), &context_at(endpoint), "la");
                cluster.on_send(endpoint, move |request| match request.wants_stream() {
                    true => Reply::events([task.clone()]),
                    false => Reply::result(task.clone()),
                });
            }
            let gateway = with_a2a(&cluster, settings).await;
            let client = gateway.client().at("/a2a/bard");
            let client = key.iter().fold(client, |client, key| client.header("X-Api-Key", key));
            let mut contexts = Vec::new();
            for _ in 0..3 {
                contexts.push(said(&client, method, None).await);
            }
            assert_eq!(counts(&cluster, method), [1, 1, 1]);
            for (number, context) in contexts.iter().enumerate() {
                for _ in 0..2 {
                    assert_eq!(said(&client, method, Some(context)).await, *context, "{method}");
                }
                let total: usize = counts(&cluster, method).iter().sum();
                assert_eq!(total, 3 + 2 * (number + 1));
            }
            for (endpoint, agent) in cluster.agents.iter().enumerate() {
                let calls = agent.calls(method);
                assert_eq!(calls.len(), 3, "{method}");
                let strange = calls.iter().map(|call| call.message()["contextId"].clone());
                let strange: Vec<_> =
                    strange.filter(|id| !id.is_null() && *id != context_at(endpoint)).collect();
                assert!(strange.is_empty(), "{strange:?} went to {endpoint}");
            }
        }
    }
}

#[tokio::test]
async fn version_probe_moves_on_silence() {
    for is_dead in [true, false] {
        let mut cluster = silent(2, Card::v0_1).await;
        for agent in &cluster.agents {
            // It starts nothing without a message.
            agent.on("tasks/send", |_| Reply::error(-32602, "Invalid parameters"));
            agent.on("tasks/sendSubscribe", |request| {
                Reply::events([v0_1::completed(request.params()["id"].as_str().unwrap(), "la")])
            });
        }
        // The address has no listener, and gets none for as long as it is held.
        let nobody = tokio::net::TcpSocket::new_v4().unwrap();
        nobody.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let first = if is_dead {
            cluster.agents.remove(0);
            format!("http://{}/", nobody.local_addr().unwrap())
        } else {
            cluster.agents[0].on("message/send", |_| Reply::status(503, ""));
            cluster.agents[0].url()
        };
        let (card, last) = (cluster.registrar.card_url(), cluster.agents.last().unwrap().url());
        // Either may be asked first: both orders.
        for urls in [[&first, &last], [&last, &first]] {
            let gateway = TestGateway::start(|ports| {
                let endpoints = format!("endpoints: [{}, {}]", urls[0], urls[1]);
                format!("{}agents:\n  bard:\n    card: {card}\n    {endpoints}\n", ports.listeners())
            })
            .await;
            in_time("a call", async { while words(&say(&gateway, "x").await) != "la" {} }).await;
            assert!(!gateway.output().contains("failed to fetch agent card"), "{}", gateway.output());
        }
    }
}

#[tokio::test]
async fn version_is_probed_at_endpoints_in_turn() {
    let cluster = silent(8, Card::v0_1).await;
    for agent in &cluster.agents {
        agent.on("message/send", |_| Reply::status(503, ""));
    }
    let last = &cluster.agents[7];
    last.on("message/send", |_| Reply::error(-32601, "Method not found"));
    last.on("tasks/send", |_| Reply::error(-32602, "Invalid parameters"));
    let gateway = with_a2a(&cluster, "cards: { min_refresh: 1s, max_refresh: 1s, retry: 100ms }\n").await;
    last.wait_for("the probe", |log| !log.calls("tasks/send").is_empty()).await;
    assert_eq!(counts(&cluster, "message/send"), [1; 8], "{}", gateway.output());
}

#[tokio::test]
async fn problem_is_that_of_first_endpoint() {
    let cluster = silent(2, Card::v0_1).await;
    cluster.agents[0].on("message/send", |_| Reply::status(503, ""));
    cluster.agents[1].on("message/send", |_| Reply::status(200, &"x".repeat(70_000)));
    let gateway = with_a2a(&cluster, "").await;
    cluster.agents[1].wait_for_call("message/send").await;
    in_time("the problem", async {
        loop {
            let agents = gateway.admin().at("/agents").get(&[]).await.json().await;
            if let Some(problem) = agents[0]["problem"].as_str() {
                assert!(problem.contains("version"), "{problem}");
                break;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn refused_task_has_no_endpoint() {
    let cluster = silent(3, told_0_1).await;
    for agent in &cluster.agents {
        agent.on("tasks/send", |_| Reply::error(-32603, "busy"));
    }
    let gateway = with_a2a(&cluster, "").await;
    let client = gateway.client().at("/a2a/bard");
    let mut params = crate::kit::a2a_scene::saying("x");
    params["message"]["contextId"] = json!("the-conversation");
    for _ in 0..2 {
        crate::kit::a2a_scene::call(&client, "SendMessage", params.clone()).await.finish().await;
    }
    let mut asked = counts(&cluster, "tasks/send");
    asked.sort_unstable();
    assert_eq!(asked, [0, 1, 1], "the second is not tied to who refused the first");
}

#[tokio::test]
async fn lost_answer_is_sought_where_it_went() {
    let cluster = silent(3, told_0_1).await;
    for agent in &cluster.agents {
        agent.on("tasks/sendSubscribe", |_| Reply::hang_up());
        agent.on_get(|request| {
            Reply::result(v0_1::completed(request.params()["id"].as_str().unwrap(), "the song"))
        });
    }
    let gateway = cluster.gateway("", "").await;
    for _ in 0..6 {
        assert_eq!(words(&say(&gateway, "x").await), "the song");
    }
    let id = |request: &crate::support::Request| request.params()["id"].clone();
    for agent in &cluster.agents {
        let said: Vec<Value> = agent.calls("tasks/sendSubscribe").iter().map(id).collect();
        let asked: Vec<Value> = agent.calls("tasks/get").iter().map(id).collect();
        assert_eq!(asked, said);
    }
}

#[tokio::test]
async fn silent_agent_is_asked_limited_times() {
    for lost in [Reply::hang_up(), Reply::stream().cut()] {
        let agent = ScriptedAgent::start(told_0_1().skill("sing")).await;
        agent.on("tasks/sendSubscribe", move |_| lost.clone());
        agent.on_get(|_| Reply::hang_up());
        let gateway = TestGateway::start(|ports| {
            let streams = "streams: { max_attempts: 3, retry_base: 10ms, retry_max: 10ms }";
            let card = agent.card_url();
            format!("{}{streams}\nagents:\n  bard:\n    card: {card}\n", ports.listeners())
        })
        .await;
        assert!(complaint(&say(&gateway, "x").await).contains("not known"));
        assert_eq!(agent.calls("tasks/get").len(), 3);
    }
}

#[tokio::test]
async fn broken_stream_is_no_endpoint_failure() {
    let cluster = silent(2, Card::v1).await;
    for endpoint in 0..2 {
        let task = task_at(endpoint, "x");
        let known = task.clone();
        cluster.on_send(endpoint, move |_| {
            Reply::stream().event(v1::task(&task, &context_at(endpoint), "working")).cut()
        });
        cluster.agents[endpoint]
            .on_get(move |_| Reply::result(v1::bare_completed(&known, &context_at(endpoint), "the song")));
    }
    let gateway = cluster.gateway("    breaker: { failures: 1, base: 10m, max: 10m }\n", "").await;
    for _ in 0..4 {
        assert_eq!(words(&say(&gateway, "x").await), "the song");
    }
    assert_eq!(cluster.counts(), [2, 2], "neither is left alone");
    assert_eq!(failures(&gateway).await, ["0", "0"]);
    cluster.on_send(0, |_| Reply::hang_up());
    let mut failed = 0;
    for _ in 0..4 {
        failed += usize::from(say(&gateway, "x").await["isError"] == true);
    }
    assert_eq!((failed, failures(&gateway).await), (1, vec!["1".to_owned(), "0".to_owned()]));
    assert_eq!(endpoints(&gateway).await[0]["up"], false);
}

/// The failures of each endpoint in the metrics; the series of an endpoint begins with its first request.
async fn failures(gateway: &TestGateway) -> Vec<String> {
    let metrics = gateway.metrics().await;
    let of = |endpoint: usize| {
        let name =
            format!("mcp_a2a_gateway_endpoint_failures_total{{agent=\"bard\",endpoint=\"{endpoint}\"}} ");
        let line = metrics.lines().find_map(|line| line.strip_prefix(&name));
        line.unwrap_or("0").to_owned()
    };
    vec![of(0), of(1)]
}

#[tokio::test]
async fn slow_token_blames_no_endpoint() {
    let (cluster, clock) = (silent(2, Card::v1).await, ScriptedAgent::start(Card::v1()).await);
    for agent in cluster.agents.iter().chain([&clock]) {
        agent.on_path("/live", |_| Reply::status(204, ""));
    }
    let (tokens, go) = (ScriptedAgent::start(Card::v1()).await, Signal::new());
    let wait = go.clone();
    tokens.on_path("/token", move |_| granted(1, 3600).after(&wait));
    let gateway = TestGateway::start(|ports| {
        // A card from a file: it needs no token.
        let card = Card::v1().skill("sing").body(&cluster.agents[0].url());
        std::fs::write(ports.directory.join("card.json"), card).unwrap();
        let health = "health: { path: /live, interval: 20ms, timeout: 20ms }\n    breaker: { failures: 1 }";
        let urls: Vec<String> = cluster.agents.iter().map(ScriptedAgent::url).collect();
        let (own, urls, other) = (oauth2(&tokens, ""), urls.join(", "), clock.url());
        let bard = format!("card: card.json\n    endpoints: [{urls}]\n    {health}\n    {own}");
        let clock = format!("card: card.json\n    endpoints: [{other}]\n    {health}");
        format!("{}agents:\n  bard:\n    {bard}\n  clock:\n    {clock}\n", ports.listeners())
    })
    .await;
    tokens.wait_for("a question for a token", |log| !log.hits("/token").is_empty()).await;
    // So long that checks of the others would have run out of time.
    let before = clock.log().hits("/live").len();
    clock.wait_for("ten checks", |log| log.hits("/live").len() >= before + 10).await;
    assert_eq!(failures(&gateway).await, ["0", "0"]);
    assert!(endpoints(&gateway).await.iter().all(|endpoint| endpoint["up"] == true));
    go.open();
    for agent in &cluster.agents {
        let log = agent.wait_for("a check", |log| !log.hits("/live").is_empty()).await;
        assert_eq!(log.hits("/live")[0].header("authorization"), Some("Bearer token-1"));
    }
}
