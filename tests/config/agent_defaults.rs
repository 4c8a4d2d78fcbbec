//! `agent_defaults`: settings of all agents that do not state them.

use std::time::Duration;

use mcp_a2a_gateway::config::TaskMode;

use super::desk::{Desk, report, settings};

const LISTENERS: &str = "listeners: [{address: 127.0.0.1:8080}]\n";

#[test]
fn agent_takes_over_keys_that_it_lacks() {
    let settings = settings(&format!(
        "{LISTENERS}agent_defaults: {{ timeouts: {{ connect: 2s, total: 10m }}, task: never, rate: 7, streaming: false }}\n\
         agents:\n  a: {{ card: 'http://a/' }}\n  b: {{ card: 'http://b/', rate: 9, timeouts: {{ total: 3h }} }}\n"
    ));
    let [a, b] = &settings.agents[..] else { panic!("{:?}", settings.agents) };
    let seconds = Duration::from_secs;
    assert_eq!((a.timeouts.connect, a.timeouts.total), (seconds(2), seconds(600)));
    assert_eq!((b.timeouts.connect, b.timeouts.total), (seconds(2), seconds(10_800)));
    assert_eq!((a.timeouts.idle, a.rate, b.rate), (seconds(120), 7, 9));
    assert!([a, b].iter().all(|agent| agent.task == TaskMode::Never && !agent.streaming));
}

/// A manifest wins over the defaults, and an agent over both.
#[test]
fn manifest_wins_over_defaults() {
    let manifest = |id: &str, more: &str| {
        format!(
            r#"{{ "type": "subagent", "id": "{id}", "name": "A", "a2a": {{ "agentCardUri": "http://a/c" }}{more} }}"#
        )
    };
    let desk = Desk::new();
    std::fs::create_dir(desk.path("folder")).unwrap();
    let buffered = r#", "capabilities": { "message": { "send": {}, "stream": { "sse": true } } }"#;
    let settings = desk
        .file("folder/m.json", manifest("m", buffered))
        .file("folder/n.json", manifest("n", ""))
        .settings(&format!(
            "{LISTENERS}manifests: folder\nagent_defaults: {{ streaming: false, max_calls: 3 }}\n\
             agents: {{ o: {{ card: 'http://a/', streaming: true }} }}\n"
        ));
    let found: Vec<_> = settings.agents.iter().map(|agent| (agent.name.as_str(), agent.streaming)).collect();
    let streaming = settings.agents.iter().find(|agent| agent.name == "m").unwrap().streaming;
    assert_eq!(found, [("m", streaming), ("n", false), ("o", true)]);
    assert!(settings.agents.iter().all(|agent| agent.max_calls == 3));
}

/// A problem of a default is told once, at its own line, however many agents there are.
#[test]
fn problem_names_the_line_of_the_default() {
    let agents = "agents:\n  a: { card: 'http://a/' }\n  b: { card: 'http://b/' }\n";
    let defaults = "agent_defaults:\n  timeouts:\n    total: 10\n  rate: lots\n  zebra: 1\n";
    assert_eq!(
        report(&format!("{LISTENERS}{defaults}{agents}")),
        "gateway.yaml:4: agent_defaults.timeouts.total: has no unit; expected a duration: a whole number and a unit, such as 250ms, 30s, \
         5m, 2h or 30d\n\
         gateway.yaml:5: agent_defaults.rate: expected a whole number, found a text\n\
         gateway.yaml:6: agent_defaults.zebra: unknown key (known: card, manifest, signature, headers, auth, forward_headers, \
         tls, tools, tool_name, description, skills, protocol, binding, output_modes, extensions, allow_hosts, proxy, timeouts, \
         streaming, push, a2a, endpoints, breaker, health, max_calls, queue, rate, task)"
    );
    let defaults = "agent_defaults:\n  timeouts:\n    total: 1h\n";
    let agents =
        "agents:\n  a: { card: 'http://a/', timeouts: { first_byte: 2h } }\n  b: { card: 'http://b/' }\n";
    assert_eq!(
        report(&format!("{LISTENERS}{defaults}{agents}")),
        "gateway.yaml:4: agent_defaults.timeouts.total: total (1h) is shorter than first_byte (2h) (for agents.a)"
    );
}

#[test]
fn keys_of_one_agent_are_refused() {
    for (key, remedy) in [
        ("card: http://a/", "identifies one agent"),
        ("manifest: a.json", "identifies one agent"),
        ("endpoints: [http://a/]", "identifies one agent"),
        ("tool_name: ask", "identifies one agent"),
        ("skills: { a: { hidden: true } }", "identifies one agent"),
        ("tls: { server_name: a }", "identifies one agent"),
        ("headers: { X-Key: canary }", "credentials"),
        ("auth: { bearer: canary }", "credentials"),
        ("forward_headers: [X-Tenant]", "credentials"),
        ("allow_hosts: [a]", "credentials"),
        ("signature: { keys: a.jwks }", "cards.signature"),
        ("proxy: none", "outbound.proxy"),
    ] {
        let text = format!("{LISTENERS}agent_defaults:\n  {key}\nagents: {{ a: {{ card: 'http://a/' }} }}\n");
        let report = report(&text);
        assert!(
            report.starts_with("gateway.yaml:3: agent_defaults.") && report.contains(remedy),
            "{key}: {report}"
        );
        assert!(report.contains("cannot be a default") && !report.contains("canary"), "{key}: {report}");
        assert_eq!(report.lines().count(), 1, "{report}");
    }
}
