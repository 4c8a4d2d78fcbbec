//! Reload of the settings in process: what outlives a generation, and what does not.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::{TOOL, TestGateway, TestRequest, completed, settle};
use crate::config::{
    Agent, AgentTls, CardSource, FoundAgent, Listener, RequireRule, Settings, Source, SourcePlace,
};
use crate::gateway::{Gateway, ReloadCause, Reloader};

fn settings() -> Settings {
    Settings::new(vec![Agent::new("bard", "http://bard.example/card")])
}

/// Returns the settings with one more agent.
fn with_news(settings: &Settings) -> Settings {
    let mut agents = settings.agents.clone();
    agents.push(Agent::new("news", "http://news.example/card"));
    Settings { agents, ..settings.clone() }
}

/// Generations that no request uses any more are dropped whole.
#[tokio::test]
async fn reload_drops_old_generation() {
    let (gateway, _) = Gateway::new(settings()).unwrap();
    for round in 0..20 {
        let old = Arc::downgrade(&gateway.current());
        let engine = Arc::downgrade(&gateway.current().mcp_server.engine);
        let directory = Arc::downgrade(&gateway.current().discovery.directory);
        let other = if round % 2 == 0 { with_news(&settings()) } else { settings() };
        let report = gateway.reload(other).await.unwrap();
        assert_eq!((report.generation, report.changed), (round + 2, vec!["agents".to_owned()]));
        assert!(old.upgrade().is_none() && engine.upgrade().is_none() && directory.upgrade().is_none());
    }
    let metrics = String::from_utf8(gateway.render_metrics()).unwrap();
    for line in ["mcp_a2a_gateway_config_generations_held 1", "mcp_a2a_gateway_config_generation 21"] {
        assert!(metrics.contains(line), "{line}");
    }
    assert!(!metrics.contains("agent=\"news\""), "{metrics}");
}

#[tokio::test]
async fn same_settings_change_nothing() {
    let (gateway, _) = Gateway::new(settings()).unwrap();
    let before = gateway.current();
    let report = gateway.reload(settings()).await.unwrap();
    assert!(!report.is_applied() && Arc::ptr_eq(&before, &gateway.current()), "{report:?}");
}

/// An agent with the same settings stays; one with others is another agent with the same card.
#[tokio::test]
async fn agents_continue_across_reload() {
    let gateway = TestGateway::new().await;
    let bard = || gateway.gateway.current().discovery.directory.find("bard").unwrap().clone();
    let first = bard();
    let report = gateway.gateway.reload(with_news(&settings())).await.unwrap();
    assert_eq!((report.agents_added, report.agents_changed.len()), (vec!["news".to_owned()], 0));
    assert!(Arc::ptr_eq(&first, &bard()));
    let mut other = settings();
    other.agents[0].max_calls = 7;
    let report = gateway.gateway.reload(other).await.unwrap();
    assert_eq!(report.agents_changed, ["bard"]);
    assert_eq!(report.agents_removed, ["news"]);
    let second = bard();
    assert!(!Arc::ptr_eq(&first, &second) && second.is_initialized());
    assert_eq!(second.known().unwrap().card.name, first.known().unwrap().card.name);
    let listed = gateway.respond(TestRequest::modern(&json!({}), "tools/list", json!({}))).await;
    assert_eq!(listed.result()["tools"][0]["name"], "bard_sing", "{listed:?}");
}

#[tokio::test]
async fn bound_keys_keep_their_values() {
    let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
    let mut used = settings();
    used.listeners = vec![Listener::new(at(8001)), Listener::new(at(8002))];
    let (gateway, _) = Gateway::new(used.clone()).unwrap();
    let mut other = used.clone();
    other.threads = 3;
    other.tasks.max = 7;
    other.limits.caller_rate = 5;
    other.listeners = vec![Listener::new(at(8003)), Listener::new(at(8002))];
    other.listeners[1].require.rule = RequireRule::Any;
    let report = gateway.reload(other.clone()).await.unwrap();
    let named = ["threads", "tasks.max", "listeners (127.0.0.1:8001 is removed)", "listeners[0].address"];
    assert_eq!(report.restart, named);
    assert_eq!(report.changed, ["listeners", "limits"]);
    let current = gateway.current();
    let in_use = &current.configuration;
    assert_eq!((in_use.threads, in_use.tasks.max, in_use.limits.caller_rate), (0, used.tasks.max, 5));
    let rules: Vec<RequireRule> = current.listeners.iter().map(|listener| listener.require.rule).collect();
    assert_eq!(rules, [used.listeners[0].require.rule, RequireRule::Any]);
    let again = gateway.reload(other).await.unwrap();
    assert!(!again.is_applied() && again.restart == named, "{again:?}");
}

#[tokio::test]
async fn unusable_settings_change_nothing() {
    let (gateway, _) = Gateway::new(settings()).unwrap();
    let before = gateway.current();
    let mut other = with_news(&settings());
    other.agents.push(Agent::new("weather", "no url"));
    assert!(gateway.reload(other).await.is_err());
    assert!(Arc::ptr_eq(&before, &gateway.current()));
    let metrics = String::from_utf8(gateway.render_metrics()).unwrap();
    assert!(!metrics.contains("agent=\"news\""), "{metrics}");
}

/// A call that is under way ends with its result although its agent is removed.
#[tokio::test(start_paused = true)]
async fn call_ends_after_its_agent_is_removed() {
    let gateway = TestGateway::new().await;
    let (call, agent) = gateway.call(TestRequest::sing(&json!({})));
    settle().await;
    let news = Settings::new(vec![Agent::new("news", "http://news.example/card")]);
    assert_eq!(gateway.gateway.reload(news).await.unwrap().agents_removed, ["bard"]);
    agent.send(&completed("la"));
    let response = call.response().await;
    assert!(response.words().starts_with("la"), "{response:?}");
    let refused = gateway.respond(TestRequest::tool(TOOL, json!({ "text": "sing" }))).await;
    assert_eq!(refused.refusal().1, -32602, "{refused:?}");
}

/// Agents of another source are added and removed beside those of the configuration, and never
/// replace one of them.
#[tokio::test]
async fn source_of_agents_is_applied() {
    let with_source = || {
        let mut settings = settings();
        settings.sources.push(Source {
            name: "catalog".to_owned(),
            place: SourcePlace::Url("http://other.example/list".to_owned()),
            hosts: Vec::new(),
            headers: Vec::new(),
            tls: AgentTls::default(),
            interval: Duration::from_secs(60),
            timeout: Duration::from_secs(1),
            max_bytes: 1024,
            max_agents: 10,
        });
        settings
    };
    let (gateway, _) = Gateway::new(with_source()).unwrap();
    let reloader = Reloader::new(gateway.clone(), with_source(), Arc::new(move |_| Ok(with_source().into())));
    let names = || {
        let current = gateway.current();
        let agents = current.discovery.directory.agents();
        agents.iter().map(|agent| agent.settings.card.without_secrets()).collect::<Vec<_>>()
    };
    let offered = ["bard", "news"].map(|name| {
        let card = CardSource::Url(format!("http://other.example/{name}"));
        FoundAgent { name: name.to_owned(), card }
    });
    let report = reloader.set_agents("catalog", offered.to_vec()).await.unwrap();
    assert_eq!(report.agents_added, ["news"]);
    let both = ["http://bard.example/card", "http://other.example/news"];
    assert_eq!(names(), both);
    assert!(!reloader.reload(ReloadCause::Signal).await.unwrap().is_applied());
    assert_eq!(names(), both);
    // One that cannot be reached is no problem of the configuration.
    let elsewhere = CardSource::Url("http://else.example/x".to_owned());
    let offered = vec![FoundAgent { name: "news".to_owned(), card: elsewhere }];
    assert_eq!(reloader.set_agents("catalog", offered).await.unwrap().agents_changed, ["news"]);
    assert_eq!(reloader.set_agents("catalog", Vec::new()).await.unwrap().agents_removed, ["news"]);
}
