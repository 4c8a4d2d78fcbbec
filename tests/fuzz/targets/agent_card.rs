//! Any card gives tools with good names of their own, and no card takes the name of another agent's
//! tool.

#![cfg_attr(feature = "libfuzzer", no_main)]

use std::collections::HashSet;
use std::sync::{Arc, LazyLock};

use mcp_a2a_gateway::a2a::{AgentCard, Binding, Dialect, InterfacePin, MAX_SKILLS};
use mcp_a2a_gateway::bridge::catalogue::{Catalogue, CatalogueView, ToolPlan, ToolRef};
use mcp_a2a_gateway::mcp::Version;
use serde_json::Value;

fuzz::program!(card);

const LONGEST_NAME: usize = 50;

/// An agent that was there before.
static OTHER: LazyLock<Arc<AgentCard>> = LazyLock::new(|| {
    let card =
        br#"{"name":"b","url":"http://h/","skills":[{"id":"c"},{"id":"_c"},{"id":"c_c"},{"id":"x y"}]}"#;
    Arc::new(AgentCard::parse(card).expect("a card"))
});

fn card(bytes: &[u8]) {
    let Ok(card) = AgentCard::parse(bytes) else { return };
    let dialects = [None, Some(Dialect::V0_1), Some(Dialect::V0_3), Some(Dialect::V1)];
    let bindings = [None, Some(Binding::JsonRpc), Some(Binding::HttpJson), Some(Binding::Grpc)];
    for (dialect, binding) in dialects.into_iter().flat_map(|dialect| bindings.map(|binding| (dialect, binding))) {
        if let Ok(interface) = card.interface(InterfacePin { dialect, binding }) {
            assert!(dialect.is_none_or(|pin| pin == interface.dialect), "the operator was not heeded");
            assert!(binding.is_none_or(|pin| pin == interface.binding), "the operator was not heeded");
            let scheme = interface.url.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
            // A target of gRPC may lack a scheme: that of the card's own URL counts then.
            let is_target = interface.binding == Binding::Grpc && interface.url.starts_with("//");
            assert!(is_target || matches!(scheme.as_deref(), Some("http" | "https")), "{}", interface.url);
        }
    }
    assert!(card.skills.len() <= MAX_SKILLS);
    let card = Arc::new(card);
    // Names that run into each other: a + b_c, a_b + c.
    for (agent, per_agent) in [("a_b", false), ("a", true)] {
        let plan =
            |agent: &str, per_agent| ToolPlan { agent: agent.into(), per_agent, ..ToolPlan::default() };
        let agents = [(plan(agent, per_agent), card.clone()), (plan("a", false), OTHER.clone())];
        let agents = if agent == "a" { &agents[..1] } else { &agents[..] };
        let catalogue = Catalogue::build(agents, &[]);
        view(catalogue.all());
        for (plan, _) in agents {
            view(catalogue.of(&plan.agent));
        }
    }
}

fn view(view: &CatalogueView) {
    let mut names = HashSet::new();
    for entry in view.tools() {
        let tool = entry.of_agent().expect("there are no others here");
        let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        assert!(
            (1..=LONGEST_NAME).contains(&tool.name.len()) && tool.name.bytes().all(good),
            "{}",
            tool.name
        );
        assert!(names.insert(tool.name.as_str()), "{} is there twice", tool.name);
        assert!(
            !tool.name.starts_with("subagent_") && tool.name != "find_agent",
            "{} is reserved",
            tool.name
        );
        let found = view.find(&tool.name).expect("a tool that is listed can be called");
        assert!(std::ptr::eq(found, entry), "another tool is called");
        for version in [Version::V2024_11_05, Version::V2026_07_28] {
            let listed: Value = serde_json::from_str(entry.listed(version).get()).expect("JSON");
            assert_eq!(listed["name"], tool.name.as_str());
        }
    }
    pages(view);
}

/// Paging shows every tool once, in order.
fn pages(view: &CatalogueView) {
    let mut seen = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let (page, more) = view.page(after.as_deref(), 3, |_| true);
        seen.extend(page.into_iter().map(ToolRef::name));
        match more {
            Some(more) => after = Some(more.to_owned()),
            None => break,
        }
    }
    let all: Vec<&str> = view.tools().iter().map(ToolRef::name).collect();
    assert_eq!(seen, all);
    assert!(all.is_sorted());
}
