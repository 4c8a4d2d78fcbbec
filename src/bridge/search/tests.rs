//! The matches of a search, their order, and their visibility to a caller.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::resource_view::Reachability;
use super::tool::{read, result};
use super::*;
use crate::bridge::arguments::validator;
use crate::bridge::catalogue::{Catalogue, SkillPlan};
use crate::mcp::Version;

fn card(name: &str, about: &str, skills: Value) -> Arc<AgentCard> {
    let card = json!({ "name": name, "description": about, "url": "http://h/", "skills": skills });
    Arc::new(AgentCard::parse(card.to_string().as_bytes()).unwrap())
}

fn plan(agent: &str) -> ToolPlan {
    ToolPlan { agent: agent.into(), ..ToolPlan::default() }
}

fn skill(id: &str, name: &str, about: &str, tags: &[&str]) -> Value {
    json!({ "id": id, "name": name, "description": about, "tags": tags })
}

/// Returns agents with `rain` as a name, as a tag, as a word of a skill's name and as one of a
/// description.
fn town() -> Catalogue {
    let agents = [
        (plan("a-said"), card("Said", "", json!([skill("x", "X", "Tells of rain and snow", &[])]))),
        (plan("b-word"), card("Word", "", json!([skill("y", "Rainy days", "", &[])]))),
        (
            plan("c-tag"),
            card("Tag", "", json!([skill("z", "Z", "", &["Rain", "sky"]), skill("q", "Q", "", &[])])),
        ),
        (plan("d-name"), card("Name", "", json!([skill("rain", "Wet", "", &[])]))),
        (plan("none"), card("None", "Nothing of the kind", json!([]))),
    ];
    Catalogue::build(&agents, &[])
}

const NAMES: [&str; 6] = ["a-said", "b-word", "c-tag", "d-name", "none", "unseen"];

fn search(
    catalogue: &Catalogue,
    (text, skill, tag): (&str, Option<&str>, Option<&str>),
) -> Vec<(String, u32)> {
    let query = AgentQuery::new(text, skill, tag).unwrap();
    let found = catalogue.index().search(&query, NAMES.into_iter(), |_, _| true);
    found.into_iter().map(|found| (found.name.to_owned(), found.score)).collect()
}

fn names(catalogue: &Catalogue, query: (&str, Option<&str>, Option<&str>)) -> Vec<String> {
    search(catalogue, query).into_iter().map(|(name, _)| name).collect()
}

#[test]
fn names_go_before_tags_before_words_of_names_before_descriptions() {
    let scores: Vec<u32> =
        search(&town(), ("RAIN", None, None)).into_iter().map(|(_, score)| score).collect();
    assert_eq!(names(&town(), (" Rain, ", None, None)), ["d-name", "c-tag", "b-word", "a-said"]);
    assert_eq!(scores, [1000, 100, 10, 1]);
}

#[test]
fn all_words_must_occur_wherever_they_do() {
    for (text, found) in [
        ("rain snow", vec!["a-said"]),
        ("rain Tag", vec!["c-tag"]),
        ("rain days", vec!["b-word"]),
        ("rain nothing", vec![]),
        ("c-tag", vec!["c-tag"]),
        ("unseen", vec!["unseen"]),
        ("*", NAMES.to_vec()),
        ("", NAMES.to_vec()),
    ] {
        assert_eq!(names(&town(), (text, None, None)), found, "{text}");
    }
}

#[test]
fn a_skill_and_a_tag_leave_out_agents_without_one() {
    for (query, found) in [
        (("", Some("RAI"), None), vec!["b-word", "d-name"]),
        (("", None, Some("sky")), vec!["c-tag"]),
        (("", None, Some("sk")), vec![]),
        (("", Some("q"), Some("sky")), vec![]),
        (("rain", Some("z"), Some("rain")), vec!["c-tag"]),
    ] {
        assert_eq!(names(&town(), query), found, "{query:?}");
    }
}

#[test]
fn a_skill_that_is_not_shown_finds_nothing_and_is_not_told() {
    let town = town();
    let query = AgentQuery::new("rain", None, None).unwrap();
    let found = town.index().search(&query, NAMES.into_iter(), |agent, tool| {
        let (skill, tool) = tool.unwrap_or_default();
        assert!(tool.is_empty() || tool.starts_with(agent), "{agent} {tool}");
        !["", "rain", "x"].contains(&skill)
    });
    assert_eq!(found.iter().map(|found| found.name).collect::<Vec<_>>(), ["c-tag", "b-word"]);
    let hidden = SkillPlan { hidden: true, ..SkillPlan::default() };
    let plan = ToolPlan { skills: BTreeMap::from([("rain".into(), hidden)]), ..plan("d-name") };
    let card = card("Name", "", json!([skill("rain", "Wet", "", &[])]));
    let kept_back = Catalogue::build(&[(plan, card)], &[]);
    assert!(kept_back.index().search(&query, ["d-name"].into_iter(), |_, _| true).is_empty());
}

#[test]
fn an_agent_of_which_nothing_may_be_used_is_not_found() {
    let town = town();
    let found = |may: fn(&str, Option<(&str, &str)>) -> bool| {
        let found = town.index().search(&AgentQuery::default(), NAMES.into_iter(), may);
        found.into_iter().map(|found| found.name).collect::<Vec<_>>()
    };
    assert!(found(|_, _| false).is_empty());
    assert_eq!(found(|_, tool| tool == Some(("rain", "d-name_rain"))), ["d-name"]);
    assert_eq!(
        found(|_, tool| tool == Some(("", "none"))),
        ["none"],
        "the one tool of an agent without skills"
    );
    assert_eq!(
        found(|agent, tool| tool.is_none() && agent != "none"),
        ["a-said", "b-word", "c-tag", "d-name", "unseen"]
    );
}

#[test]
fn the_one_tool_of_an_agent_does_all_its_skills() {
    let plan = ToolPlan { per_agent: true, ..plan("w") };
    let catalogue = Catalogue::build(&[(plan, card("W", "", json!([skill("rain", "Wet", "", &[])])))], &[]);
    let query = AgentQuery::new("rain", None, None).unwrap();
    let found =
        catalogue.index().search(&query, ["w"].into_iter(), |_, known_as| known_as == Some(("", "w")));
    assert_eq!(found[0].skills[0].tool.as_deref(), Some("w"));
}

#[test]
fn a_query_is_bounded() {
    assert_eq!(AgentQuery::new(&"x".repeat(257), None, None), Err(BadQuery::TooLong));
    assert_eq!(AgentQuery::new("", None, Some(&"x".repeat(257))), Err(BadQuery::TooLong));
    assert_eq!(AgentQuery::new(&"x ".repeat(9), None, None), Err(BadQuery::TooMany));
    let told = |json: &str| read(Some(serde_json::from_str(json).unwrap())).unwrap_err();
    for (json, complaint) in [
        ("{}", "\"query\" is a required property"),
        (r#"{"query":"x","max":3}"#, "'max' was unexpected"),
        (r#"{"query":7}"#, "/query: 7 is not of type \"string\""),
        (r#"{"query":"1 2 3 4 5 6 7 8 9"}"#, "use fewer"),
    ] {
        assert!(told(json).contains(complaint), "{}", told(json));
    }
}

#[test]
fn a_result_keeps_its_promise_and_is_one_line_an_agent() {
    let skills: Vec<Value> =
        (0..30).map(|number| skill(&format!("s{number}"), "S", "a\nb", &["t"])).collect();
    let agents: Vec<(ToolPlan, Arc<AgentCard>)> = (10..40)
        .map(|number| (plan(&format!("agent-{number}")), card("A", "one\ntwo", json!(skills))))
        .collect();
    let catalogue = Catalogue::build(&agents, &[]);
    let names: Vec<&str> = agents.iter().map(|(plan, _)| plan.agent.as_str()).chain(["unseen"]).collect();
    let search = |text| {
        let query = AgentQuery::new(text, None, None).unwrap();
        let found = catalogue.index().search(&query, names.iter().copied(), |_, _| true);
        found.into_iter().map(|found| (found, Reachability::Unreachable)).collect::<Vec<_>>()
    };
    for (text, told_agents, lines) in [("agent", 20, 21), ("unseen", 1, 2), ("nothing", 0, 1)] {
        let found = search(text);
        for version in [Version::V2025_03_26, Version::V2025_06_18, Version::V2026_07_28] {
            let told = serde_json::to_value(result(&found, version)).unwrap();
            let text = told["content"][0]["text"].as_str().unwrap();
            assert_eq!((text.lines().count(), &told["isError"]), (lines, &json!(false)), "{text}");
            if !version.has_structured_output() {
                assert_eq!(told.get("structuredContent"), None);
                continue;
            }
            let listed: Value = serde_json::from_str(tool::json(version).unwrap().get()).unwrap();
            let schema = validator(&listed["outputSchema"]).unwrap();
            let structured = &told["structuredContent"];
            assert_eq!(schema.iter_errors(structured).map(|error| error.to_string()).next(), None, "{told}");
            assert_eq!(structured["agents"].as_array().unwrap().len(), told_agents);
            assert_eq!(told["content"].as_array().unwrap().len(), 1 + told_agents, "a link to each");
        }
    }
    let first = &serde_json::to_value(result(&search("agent-10"), Version::V2025_06_18)).unwrap()["structuredContent"];
    let first = &first["agents"][0];
    assert_eq!((first["skills"].as_array().unwrap().len(), &first["skillsTotal"]), (20, &json!(30)));
    assert_eq!(
        (&first["uri"], &first["skills"][0]["tool"]),
        (&json!("a2a-agent://agent-10"), &json!("agent-10_s0"))
    );
}
