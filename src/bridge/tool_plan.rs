//! The operator's configuration of the tools of agents.

use std::collections::BTreeMap;

use crate::mcp::tools::TaskSupport;

/// The configuration of one agent's tools.
#[derive(Debug, Default, Clone)]
pub struct ToolPlan {
    /// The agent's name.
    pub agent: String,
    /// True for one tool for the whole agent, false for one per skill.
    pub per_agent: bool,
    /// Name of the one tool.
    pub tool_name: Option<String>,
    /// Description of the agent; replaces that of the card.
    pub description: Option<String>,
    /// The support of its calls for core tasks.
    pub task: TaskSupport,
    /// Exceptions for single skills, by the skill's id.
    pub skills: BTreeMap<String, SkillPlan>,
}

/// The configuration of one skill.
#[derive(Debug, Default, Clone)]
pub struct SkillPlan {
    /// Name of its tool.
    pub tool_name: Option<String>,
    /// Description; replaces that of the card.
    pub description: Option<String>,
    /// JSON Schema of its arguments.
    pub input_schema: Option<serde_json::Value>,
    /// The support of its calls for core tasks; replaces that of the agent.
    pub task: Option<TaskSupport>,
    /// True if the skill has no tool.
    pub hidden: bool,
}
