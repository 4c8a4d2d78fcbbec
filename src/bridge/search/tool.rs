//! The tool `find_agent`: input, output schema, and result.
//!
//! The result names the tools of each agent. Short and bounded: a model reads it.

use std::sync::LazyLock;

use jsonschema::Validator;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::super::arguments::strict_validator;
use super::super::resource_uri::agent_uri;
use super::super::resource_view::Reachability;
use super::super::task_tools::{BuiltinToolSpec, argument};
use super::{AgentMatch, AgentQuery, MAX_QUERY_BYTES, SkillProfile};
use crate::a2a::clean_line;
use crate::mcp::Version;
use crate::mcp::tools::{CallToolResult, ContentBlock};

/// Name of the tool.
pub(crate) const NAME: &str = "find_agent";

/// Maximum number of agents in one result.
const MOST_AGENTS: usize = 20;
/// Maximum number of skills of one agent in one result.
const MOST_SKILLS: usize = 20;
/// Maximum length of a description in a result, in bytes.
const MOST_WORDS: usize = 300;

/// Returns the tool as a client of this revision sees it.
pub(crate) fn json(version: Version) -> Option<Box<RawValue>> {
    let sheet = BuiltinToolSpec {
        name: NAME,
        title: "Find an agent",
        description: "Find A2A agents by what they can do, and the tools to call them with. Looks for keywords in names, tags and \
                      descriptions of agents and their skills; every word must occur, so use one to three. An empty query lists all \
                      agents.",
        input: input(),
        output: output(),
        annotations: json!({
            "readOnlyHint": true, "destructiveHint": false, "idempotentHint": true, "openWorldHint": false,
        }),
    };
    sheet.json(version)
}

fn input() -> Value {
    let text = |description: &str| json!({"type": "string", "maxLength": MAX_QUERY_BYTES, "description": description});
    json!({
        "type": "object",
        "properties": {
            "query": text("Keywords, for example: weather forecast."),
            "skill": text("Only agents with a skill that has this in its name or id."),
            "tag": text("Only agents with a skill that has this tag."),
        },
        "required": ["query"],
    })
}

fn output() -> Value {
    let text = |description: &str| json!({"type": "string", "description": description});
    let skill = json!({
        "type": "object",
        "properties": {
            "id": {"type": "string"},
            "name": {"type": "string"},
            "description": {"type": "string"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "tool": text("The tool that does it."),
        },
        "required": ["id", "name"],
        "additionalProperties": false,
    });
    let agent = json!({
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "uri": text("The agent as a resource, and as a subagentUri."),
            "title": text("What the agent calls itself."),
            "description": {"type": "string"},
            "status": {"type": "string", "enum": ["ready", "unreachable", "unknown"]},
            "score": {"type": "integer", "description": "How well it fits, compared with the others."},
            "skills": {"type": "array", "items": skill, "description": "Those that fit, the best first."},
            "skillsTotal": {"type": "integer", "description": "How many skills fit; only the first are told."},
        },
        "required": ["name", "uri", "status", "score", "skills", "skillsTotal"],
        "additionalProperties": false,
    });
    json!({
        "type": "object",
        "properties": {
            "agents": {"type": "array", "items": agent, "description": "The best first."},
            "total": {"type": "integer", "description": "How many agents fit; only the first are told."},
        },
        "required": ["agents", "total"],
        "additionalProperties": false,
    })
}

/// Reads the arguments of a call.
///
/// # Errors
///
/// The problem, in words that let a model correct itself.
pub(crate) fn read(arguments: Option<&RawValue>) -> Result<AgentQuery, String> {
    static JUDGE: LazyLock<Option<Validator>> = LazyLock::new(|| strict_validator(&input()).ok());
    let value = argument(JUDGE.as_ref(), arguments)?;
    let text = |name: &str| value.get(name).and_then(Value::as_str);
    AgentQuery::new(text("query").unwrap_or_default(), text("skill"), text("tag"))
        .map_err(|bad| format!("Invalid arguments: {bad}."))
}

#[derive(Serialize)]
struct FindAgentResult<'a> {
    agents: Vec<FoundAgent<'a>>,
    total: usize,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FoundAgent<'a> {
    name: &'a str,
    uri: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    status: Reachability,
    score: u32,
    skills: Vec<FoundSkill<'a>>,
    skills_total: usize,
}

#[derive(Serialize)]
struct FoundSkill<'a> {
    id: &'a str,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    tags: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<&'a str>,
}

/// Returns the result of a call from the matching agents, the best first, each with its
/// reachability.
pub(crate) fn result(found: &[(AgentMatch<'_>, Reachability)], version: Version) -> CallToolResult {
    let agents: Vec<FoundAgent<'_>> =
        found.iter().take(MOST_AGENTS).map(|(found, reach)| agent(found, *reach)).collect();
    let mut content = vec![ContentBlock::text(text(&agents, found.len()))];
    if !version.has_structured_output() {
        return CallToolResult { content, ..CallToolResult::default() };
    }
    content.extend(agents.iter().map(|agent| ContentBlock::ResourceLink {
        uri: agent.uri.clone(),
        name: agent.name.to_owned(),
        media_type: Some("application/json".to_owned()),
    }));
    let told = FindAgentResult { agents, total: found.len() };
    CallToolResult { content, structured_content: to_raw_value(&told).ok(), ..CallToolResult::default() }
}

fn agent<'a>(found: &AgentMatch<'a>, status: Reachability) -> FoundAgent<'a> {
    FoundAgent {
        name: found.name,
        uri: agent_uri(found.name),
        title: found.profile.map(|profile| profile.title.as_str()).filter(|title| !title.is_empty()),
        description: found.profile.and_then(|profile| short(&profile.description)),
        status,
        score: found.score,
        skills: found.skills.iter().take(MOST_SKILLS).map(|found| skill(found)).collect(),
        skills_total: found.skills.len(),
    }
}

fn skill(found: &SkillProfile) -> FoundSkill<'_> {
    FoundSkill {
        id: &found.id,
        name: &found.name,
        description: short(&found.description),
        tags: &found.tags,
        tool: found.tool.as_deref(),
    }
}

fn short(text: &str) -> Option<String> {
    Some(clean_line(text, MOST_WORDS)).filter(|text| !text.is_empty())
}

/// Returns one line per agent.
fn text(agents: &[FoundAgent<'_>], total: usize) -> String {
    let mut text = match (total, agents.len()) {
        (0, _) => {
            return "No agent fits. Use fewer or other words; an empty query lists all agents.".to_owned();
        }
        (1, _) => "1 agent fits:".to_owned(),
        (total, told) if total > told => format!("{total} agents fit; the first {told}:"),
        (total, _) => format!("{total} agents fit:"),
    };
    for agent in agents {
        text.push_str(&line(agent));
    }
    text
}

fn line(agent: &FoundAgent<'_>) -> String {
    let status = match agent.status {
        Reachability::Ready => "",
        Reachability::Unreachable => " (cannot be reached now)",
        Reachability::Unusable => " (cannot be used as it is configured)",
        Reachability::Unknown => " (not seen yet)",
    };
    let said = agent.description.as_ref().map(|said| format!(": {said}")).unwrap_or_default();
    let skills: Vec<String> = agent
        .skills
        .iter()
        .map(|skill| match skill.tool {
            Some(tool) if tool == skill.name => tool.to_owned(),
            Some(tool) => format!("{tool} ({})", skill.name),
            None => skill.name.to_owned(),
        })
        .collect();
    let more = agent.skills_total - agent.skills.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let tools =
        if skills.is_empty() { String::new() } else { format!(" Tools: {}{more}.", skills.join(", ")) };
    format!("\n- {} <{}>{status}{said}{tools}", agent.name, agent.uri)
}
