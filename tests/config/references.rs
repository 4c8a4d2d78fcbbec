//! References in values of every form.

use std::time::Duration;

use super::desk::{BASE, Desk};

#[test]
fn reference_in_any_value_is_replaced() {
    let desk = Desk::new()
        .variable("THREADS", "3")
        .variable("BUDGET", "11s")
        .variable("HOST", "weather.example")
        .variable("FIND", "true")
        .variable("FORMAT", "json")
        .file("body", "2MiB\n");
    let desk = desk.file(
        "gateway.yaml",
        "listeners: [{address: 127.0.0.1:8080}]\n\
         agents: { weather: { card: 'https://${env:HOST}/card.json', description: '$${env:HOST} ${plain}' } }\n\
         threads: ${env:THREADS}\n\
         calls: { budget: '${env:BUDGET}' }\n\
         mcp: { find_agent: '${env:FIND}' }\n\
         log: { format: '${env:FORMAT}' }\n\
         limits: { body: '${file:body}' }\n",
    );
    let settings = desk.load("gateway.yaml").unwrap();
    assert_eq!(settings.threads, 3);
    assert_eq!(settings.calls.budget, Duration::from_secs(11));
    assert!(settings.mcp.find_agent);
    assert_eq!(settings.limits.body, 2 << 20);
    assert_eq!(settings.log.format, mcp_a2a_gateway::config::LogFormat::Json);
    let agent = &settings.agents[0];
    assert_eq!(agent.description.as_deref(), Some("${env:HOST} ${plain}"));
    let url = "https://weather.example/card.json".to_owned();
    assert_eq!(agent.card, mcp_a2a_gateway::config::CardSource::Url(url));
    assert_eq!(settings.files, ["gateway.yaml", "body"].map(|name| desk.path(name)));
}

#[test]
fn key_hash_by_reference_is_accepted() {
    let hash = format!("sha256:{}", "0f".repeat(32));
    let keys = "auth: { api_keys: { keys: { ada: '${env:ADA_HASH}' } } }\n";
    let settings = Desk::new().variable("ADA_HASH", &hash).settings(&format!("{BASE}{keys}"));
    assert!(format!("{:?}", settings.auth).contains("ada"));
    let report = Desk::new().variable("ADA_HASH", "canary-value").report(&format!("{BASE}{keys}"));
    assert!(report.contains("ada") && report.contains("is not a hash"), "{report}");
    assert!(!report.contains("canary"), "{report}");
}

#[test]
fn wrong_reference_is_told_without_its_value() {
    for (added, expected) in [
        (
            "threads: ${env:CANARY}",
            "3: threads: expected a whole number, but its reference holds something else",
        ),
        ("mcp: { find_agent: '${env:CANARY}' }", "3: mcp.find_agent: expected true or false, but its"),
        ("log: { format: '${env:CANARY}' }", "3: log.format: expected one of: "),
        ("calls: { budget: '${env:CANARY}' }", "3: calls.budget: expected a duration"),
        ("threads: ${env:ABSENT}", "3: threads: environment variable ABSENT is not set"),
        ("threads: ${file:absent}", "3: threads: cannot read absent: "),
        ("threads: '${env:CANARY'", "3: threads: a reference has no } at its end"),
        ("public_url: 'ftp://${env:CANARY}'", "3: public_url: "),
    ] {
        let report = Desk::new().variable("CANARY", "canary-value").report(&format!("{BASE}{added}\n"));
        assert!(report.starts_with(&format!("gateway.yaml:{expected}")), "{report}");
        assert!(!report.contains("canary"), "{report}");
    }
}
