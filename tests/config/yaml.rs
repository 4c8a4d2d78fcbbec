//! Surprises of YAML, and files that are no YAML.

use proptest::prelude::*;

use super::desk::{BASE, Desk, report, settings};

#[test]
fn norway_stays_text() {
    let text = "\
listeners: [{address: 127.0.0.1:8080}]
agents:
  no:
    card: http://a/
    description: no
    skills:
      on: { description: off, input_schema: { type: object, properties: { country: { enum: [no, se, y] } } } }
";
    let settings = settings(text);
    let agent = &settings.agents[0];
    assert_eq!((agent.name.as_str(), agent.description.as_deref()), ("no", Some("no")));
    let skill = &agent.skills["on"];
    assert_eq!(skill.description.as_deref(), Some("off"));
    let countries = &skill.input_schema.as_ref().unwrap()["properties"]["country"]["enum"];
    assert_eq!(countries, &serde_json::json!(["no", "se", "y"]));
}

#[test]
fn duplicate_key_is_found_anywhere() {
    for (added, expected) in [
        ("threads: 1\nthreads: 2", "4: threads: is written twice (first on line 3)"),
        ("calls:\n  budget: 1s\ncalls: {}", "5: calls: is written twice (first on line 3)"),
        ("calls: { budget: 11s, budget: 12s }", "3: calls.budget: is written twice (first on line 3)"),
    ] {
        assert_eq!(report(&format!("{BASE}{added}\n")), format!("gateway.yaml:{expected}"));
    }
    // Numbers as keys are compared by value, so the parser must find these.
    let report = report(
        "listeners: [{address: 127.0.0.1:8080}]\nagents:\n  7: {card: http://a/}\n  7: {card: http://b/}\n",
    );
    assert!(report.starts_with("gateway.yaml:4:") && report.contains("duplicate"), "{report}");
}

#[test]
fn extension_key_holds_anchors() {
    let text = "\
x-limits: &limits
  total: 10m
listeners: [{address: 127.0.0.1:8080}]
agents:
  one: { card: http://one/, timeouts: *limits }
  two: { card: http://two/, timeouts: { <<: *limits } }
";
    let settings = settings(text);
    assert!(settings.agents.iter().all(|agent| agent.timeouts.total.as_secs() == 600));
    // Only at the top: elsewhere such a key has no effect that its writer could expect.
    let report = report(&format!("{BASE}calls: {{ x-budget: 1s }}\n"));
    assert!(report.starts_with("gateway.yaml:3: calls.x-budget: unknown key"), "{report}");
}

#[test]
fn anchors_and_merges_share_settings() {
    let text = "\
listeners: [{address: 127.0.0.1:8080}]
agents:
  one: &shared
    card: http://one/
    timeouts: { total: 10m }
  two:
    <<: *shared
    card: http://two/
";
    let settings = settings(text);
    assert_eq!(settings.agents[1].card, mcp_a2a_gateway::config::CardSource::Url("http://two/".into()));
    assert_eq!(settings.agents[1].timeouts.total.as_secs(), 600);
}

#[test]
fn broken_text_is_one_problem() {
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let alias = format!("*a{}, ", level - 1).repeat(10);
        bomb.push_str(&format!("a{level}: &a{level} [{alias}]\n"));
    }
    let deep = format!("a: {}{}", "[".repeat(60), "]".repeat(60));
    let blocks: String = (0..60).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
    let wide = format!("a: [{}]", "x, ".repeat(120_000));
    for (text, line) in [
        (bomb.as_str(), None),
        (deep.as_str(), Some(1)),
        (blocks.as_str(), None),
        (wide.as_str(), None),
        ("calls:\n\tbudget: 1s\n", Some(2)),
        ("a: 1\n b: 2\n", Some(2)),
        ("a: [1\n", None),
        ("a: *nobody\n", Some(1)),
        ("a: 1\n---\nb: 2\n", Some(2)),
        ("a: .nan\n", Some(1)),
    ] {
        let report = report(text);
        assert_eq!(report.lines().count(), 1, "{report}");
        assert!(report.starts_with("gateway.yaml:"), "{report}");
        assert!(report.contains(": cannot be read as YAML: "), "{report}");
        if let Some(line) = line {
            assert!(report.starts_with(&format!("gateway.yaml:{line}: ")), "{report}");
        }
    }
}

#[test]
fn comments_may_have_any_length() {
    let comments = "# a line\n".repeat(500);
    let text = BASE.replacen("agents:", &format!("{comments}agents:"), 1);
    assert_eq!(settings(&text).agents.len(), 1);
}

#[test]
fn json_file_is_read() {
    let text = "{\n\t\"listeners\": [{ \"address\": \"127.0.0.1:8080\" }],\n\t\"agents\": { \"a\": { \"card\": \"http://a/\",\n\t\t\"description\": \"\\ud83c\\udf26 \\/\" } }\n}\n";
    let desk = Desk::new().file("gateway.json", text);
    let settings = desk.load("gateway.json").unwrap();
    assert_eq!(settings.agents[0].description.as_deref(), Some("🌦 /"));
}

#[test]
fn unreadable_configuration_says_why() {
    let desk = Desk::new()
        .file("gateway.toml", BASE)
        .file("empty.yaml", "")
        .file("blank.yaml", " \n\n")
        .file("comment.yaml", "# nothing\n")
        .file("list.yaml", "- a\n")
        .file("latin.yaml", b"a: 1\nb: \xe4\n")
        .file("large.yaml", "#".repeat((1 << 20) + 1))
        .file("marked.yaml", format!("\u{feff}{BASE}"))
        .file("plain", BASE);
    std::fs::create_dir(desk.path("folder.yaml")).unwrap();
    for (name, expected) in [
        ("gateway.toml", ": is not a .yaml, .yml or .json file"),
        ("none.yaml", ": cannot read it: No such file or directory (os error 2)"),
        ("folder.yaml", ": cannot read it: it is a folder"),
        ("empty.yaml", ": is empty (it needs at least `listeners` and `agents`)"),
        ("blank.yaml", ": is empty (it needs at least `listeners` and `agents`)"),
        ("list.yaml", ":1: expected a section (keys, each with a value), found a list"),
        ("latin.yaml", ":2: is not UTF-8"),
        ("large.yaml", ": cannot read it: it is larger than 1MiB"),
    ] {
        let report = desk.load(name).unwrap_err().to_string();
        assert_eq!(report, format!("{}{expected}", desk.path(name).display()));
    }
    assert_eq!(desk.load("comment.yaml").unwrap_err().list().len(), 2);
    for good in ["marked.yaml", "plain"] {
        desk.load(good).unwrap_or_else(|problems| panic!("{problems}"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_file_is_settings_or_problems(
        from in 0usize..4000, cut in 0usize..40, put in "[a-z0-9{}\\[\\]:&*<>!|'\"$ \n\t-]{0,12}",
    ) {
        let full = include_str!("../../examples/production.yaml");
        let bytes = full.as_bytes();
        let from = from.min(bytes.len());
        let to = (from + cut).min(bytes.len());
        let damaged = [&bytes[..from], put.as_bytes(), &bytes[to..]].concat();
        let desk = Desk::new().file("gateway.yaml", damaged);
        let problems = desk.load("gateway.yaml").expect_err("no variable is set");
        prop_assert!(!problems.list().is_empty());
        for problem in problems.list() {
            let shown = problem.to_string();
            prop_assert!(problem.line.is_some_and(|line| line > 0), "{shown}");
            prop_assert!(!shown.contains('\n') && shown.len() < 2000, "{shown}");
        }
    }
}
