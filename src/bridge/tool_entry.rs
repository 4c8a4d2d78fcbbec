//! One callable tool, of an agent or built-in, with its JSON for each revision.

use std::sync::Arc;

use serde_json::value::RawValue;

use super::arguments::ToolInput;
use crate::mcp::Version;
use crate::mcp::tools::TaskSupport;

/// A tool as JSON, in each form that some revision needs.
#[derive(Debug)]
pub(super) struct EncodedTool {
    /// JSON for clients without structured output.
    plain: Box<RawValue>,
    titled: Box<RawValue>,
    /// JSON for clients with core tasks, if it differs.
    with_tasks: Option<Box<RawValue>>,
}

impl EncodedTool {
    pub(super) fn write(write: impl Fn(Version) -> Option<Box<RawValue>>) -> Option<Self> {
        let plain = write(Version::V2025_03_26)?;
        let titled = write(Version::V2026_07_28)?;
        let with_tasks = write(Version::V2025_11_25)?;
        let with_tasks = (with_tasks.get() != titled.get()).then_some(with_tasks);
        Some(Self { plain, titled, with_tasks })
    }

    fn of(&self, version: Version) -> &RawValue {
        match &self.with_tasks {
            Some(form) if version.has_core_tasks() => form,
            _ if version.has_structured_output() => &self.titled,
            _ => &self.plain,
        }
    }
}

/// A tool of an agent.
#[derive(Debug)]
pub struct ToolEntry {
    /// The agent that the tool belongs to.
    pub agent: Arc<str>,
    /// The skill that the tool stands for; `None` for the one tool of an agent.
    pub skill: Option<Arc<str>>,
    /// The tool's input.
    pub input: Arc<ToolInput>,
    /// The tool's name.
    pub name: String,
    /// The support of its calls for core tasks.
    pub task: TaskSupport,
    pub(super) forms: EncodedTool,
}

/// A tool of the gateway itself.
#[derive(Debug, Clone)]
pub struct BuiltinTool {
    /// The tool's name, which an agent's tool cannot have (see `tool_names::is_reserved`).
    pub name: &'static str,
    with_one_agent: bool,
    forms: Arc<EncodedTool>,
}

impl BuiltinTool {
    /// Creates a tool that `write` encodes for the clients of a revision. The tool is listed among
    /// those of all agents, and if `with_one_agent` also among those of each single one. Returns
    /// `None` if it cannot be encoded.
    pub fn new(
        name: &'static str,
        with_one_agent: bool,
        write: impl Fn(Version) -> Option<Box<RawValue>>,
    ) -> Option<Self> {
        Some(Self { name, with_one_agent, forms: Arc::new(EncodedTool::write(write)?) })
    }

    pub(super) fn is_with_one_agent(&self) -> bool {
        self.with_one_agent
    }
}

/// A tool that can be called.
#[derive(Debug)]
pub enum ToolRef {
    /// A tool of an agent.
    Agent(ToolEntry),
    /// A tool of the gateway.
    Own(BuiltinTool),
}

impl ToolRef {
    /// Returns the tool's name.
    pub fn name(&self) -> &str {
        match self {
            Self::Agent(tool) => &tool.name,
            Self::Own(tool) => tool.name,
        }
    }

    /// Returns the tool as a client of this revision sees it.
    pub fn listed(&self, version: Version) -> &RawValue {
        match self {
            Self::Agent(tool) => tool.forms.of(version),
            Self::Own(tool) => tool.forms.of(version),
        }
    }

    /// Returns the tool, if it is an agent's.
    pub fn of_agent(&self) -> Option<&ToolEntry> {
        match self {
            Self::Agent(tool) => Some(tool),
            Self::Own(_) => None,
        }
    }

    /// Returns the name, if the tool is built-in.
    pub fn own(&self) -> Option<&'static str> {
        match self {
            Self::Agent(_) => None,
            Self::Own(tool) => Some(tool.name),
        }
    }
}
