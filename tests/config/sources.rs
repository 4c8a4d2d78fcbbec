//! `sources`: agents from other places.

use std::time::Duration;

use mcp_a2a_gateway::config::SourcePlace;

use super::desk::{Desk, report, settings};

const LISTENERS: &str = "listeners: [{address: 127.0.0.1:8080}]\n";

#[test]
fn source_has_place_and_bounds() {
    let settings = settings(&format!(
        "{LISTENERS}sources:\n  desk: {{ folder: cards, interval: 5s }}\n  \
         east: {{ url: 'https://a.example/a2a', hosts: [b.example], headers: {{ X-Key: canary }} }}\n\
         rules: [{{ agents: [only-of-a-source] }}]\n"
    ));
    assert!(settings.agents.is_empty());
    let [desk, east] = &settings.sources[..] else { panic!("{:?}", settings.sources) };
    assert!(matches!(&desk.place, SourcePlace::Folder(folder) if folder.ends_with("cards")), "{desk:?}");
    assert_eq!(east.place, SourcePlace::Url("https://a.example/a2a".to_owned()));
    assert_eq!((desk.interval, east.interval), (Duration::from_secs(5), Duration::from_secs(60)));
    assert_eq!(
        (east.max_agents, east.max_bytes, east.hosts.concat()),
        (100, 1 << 20, "b.example".to_owned())
    );
    assert!(!format!("{settings:?}").contains("canary"));
}

#[test]
fn problems_of_sources_are_told() {
    for (source, expected) in [
        ("a: {}", "sources.a: names no agents (write `url` or `folder`)"),
        ("a: { url: 'http://a/', folder: b }", "sources.a.folder: is there beside url (write two sources)"),
        ("a: { url: a }", "sources.a.url: is not a whole URL (write https://host/path)"),
        (
            "a: { folder: b, hosts: ['http://a'] }",
            "sources.a.hosts[0]: is a URL, not a host (write host or host:port, such as agents.example.com)",
        ),
        (
            "a: { folder: b, max_agents: 1001 }",
            "sources.a.max_agents: 1001 is out of bounds (from 1 to 1000)",
        ),
        (
            "A: { folder: b }",
            "sources.A: is not the name of a source (a lower-case letter or digit, then up to 31 lower-case letters, digits, - and _)",
        ),
    ] {
        assert_eq!(
            report(&format!("{LISTENERS}sources: {{ {source} }}\n")),
            format!("gateway.yaml:2: {expected}")
        );
    }
    let many: String = (0..33).map(|number| format!("  s{number}: {{ folder: b }}\n")).collect();
    let told = Desk::new().report(&format!("{LISTENERS}sources:\n{many}"));
    assert_eq!(told, "gateway.yaml:2: sources: has more than 32 sources");
}
