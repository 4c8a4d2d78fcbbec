//! `prompts/list` and `prompts/get`: the prompts of the operator, and the examples of skills.
//!
//! A skill with examples is a prompt `{agent}_{skill}`, with a text that the user may replace. A
//! caller has the prompts of the skills that it may use, and those of the operator that its rules
//! allow; the others do not exist for it. Reads docs/spec/mcp.md §2.6.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

use super::McpServer;
use crate::bridge::catalogue::{CatalogueView, readable_name};
use crate::calls::{CallRequest, ClientContext};
use crate::config::prompts::filled;
use crate::config::{Prompt, PromptArgument, PromptRole};
use crate::discovery::view;
use crate::fault::Fault;
use crate::http_edge::Route;
use crate::mcp::elicitation::{ElicitAction, ElicitRequest, ElicitResult, input_requests};
use crate::mcp::resources::{
    GetPromptResult, ListPromptsResult, PromptArgumentEntry, PromptEntry, PromptMessage,
};
use crate::mcp::tools::{ContentBlock, EmbeddedResource, ResourceContents};
use crate::mcp::{ClientCapabilities, ClientParams, Era, Version};
use crate::seal::ListKind;

/// Largest value of an argument, in bytes.
const MAX_ARGUMENT_BYTES: usize = 64 << 10;
/// Most bytes of the texts of one prompt with its arguments.
const MAX_TEXT_BYTES: usize = 4 << 20;
/// The argument of a prompt of a skill.
const TEXT: &str = "text";
/// The key of the question for missing arguments.
const ARGUMENTS: &str = "arguments";

/// A prompt that a caller may get.
enum CallerPrompt<'a> {
    Own(&'a Prompt),
    OfSkill(SkillPrompt),
}

/// The examples of a skill.
struct SkillPrompt {
    name: String,
    title: String,
    description: String,
    /// The tool of the skill on the route, if it has one.
    tool: Option<String>,
    /// Never empty.
    examples: Vec<String>,
}

impl CallerPrompt<'_> {
    fn description(&self) -> Option<&str> {
        match self {
            Self::Own(prompt) => prompt.description.as_deref(),
            Self::OfSkill(prompt) => Some(&prompt.description),
        }
    }

    fn entry<'a>(&'a self, version: Version) -> PromptEntry<'a> {
        let titled = |title: Option<&'a str>| title.filter(|_| version.has_structured_output());
        match self {
            Self::Own(prompt) => PromptEntry {
                name: &prompt.name,
                title: titled(prompt.title.as_deref()),
                description: prompt.description.as_deref(),
                arguments: prompt
                    .arguments
                    .iter()
                    .map(|argument| argument_entry(argument, version))
                    .collect(),
            },
            Self::OfSkill(prompt) => PromptEntry {
                name: &prompt.name,
                title: titled(Some(&prompt.title)),
                description: Some(&prompt.description),
                arguments: vec![PromptArgumentEntry {
                    name: TEXT,
                    title: titled(Some("Text")),
                    description: Some("What the agent should do; without it an example of the agent."),
                    required: false,
                }],
            },
        }
    }

    /// Returns the values that are proposed for an argument.
    fn values(&self, argument: &str) -> Vec<String> {
        match self {
            Self::Own(prompt) => {
                let found = prompt.arguments.iter().find(|known| known.name == argument);
                found.map(|known| known.values.clone()).unwrap_or_default()
            }
            Self::OfSkill(prompt) if argument == TEXT => prompt.examples.clone(),
            Self::OfSkill(_) => Vec::new(),
        }
    }

    /// Returns the required arguments that have no value.
    fn missing(&self, given: &BTreeMap<String, String>) -> Vec<&PromptArgument> {
        let arguments = match self {
            Self::Own(prompt) => prompt.arguments.as_slice(),
            Self::OfSkill(_) => &[],
        };
        arguments.iter().filter(|one| one.required && !given.contains_key(&one.name)).collect()
    }

    /// Returns the messages; `None` if they would be too large.
    fn messages(&self, given: &BTreeMap<String, String>, version: Version) -> Option<Vec<PromptMessage>> {
        let mut room = MAX_TEXT_BYTES;
        match self {
            Self::Own(prompt) => {
                let messages = prompt.messages.iter().map(|message| {
                    let role = match message.role {
                        PromptRole::User => "user",
                        PromptRole::Assistant => "assistant",
                    };
                    Some(PromptMessage {
                        role,
                        content: filled_block(&message.content, given, version, &mut room)?,
                    })
                });
                messages.collect()
            }
            Self::OfSkill(prompt) => {
                let text = given.get(TEXT).or(prompt.examples.first())?;
                let tool = prompt.tool.as_ref();
                let hint = tool.map(|tool| format!("\n\n(Use the tool {tool}.)")).unwrap_or_default();
                let content = ContentBlock::text(format!("{text}{hint}"));
                Some(vec![PromptMessage { role: "user", content }])
            }
        }
    }
}

fn argument_entry(argument: &PromptArgument, version: Version) -> PromptArgumentEntry<'_> {
    PromptArgumentEntry {
        name: &argument.name,
        title: argument.title.as_deref().filter(|_| version.has_structured_output()),
        description: argument.description.as_deref(),
        required: argument.required,
    }
}

/// Returns a block with the values of its arguments, in a form that the client knows.
fn filled_block(
    block: &ContentBlock,
    given: &BTreeMap<String, String>,
    version: Version,
    room: &mut usize,
) -> Option<ContentBlock> {
    Some(match block {
        ContentBlock::Text { text, .. } => ContentBlock::text(filled(&text.to_str(), given, room)?),
        ContentBlock::Resource { resource } => {
            let uri = filled(&resource.uri, given, room)?;
            let content = match &resource.content {
                ResourceContents::Text(text) => ResourceContents::Text(filled(text, given, room)?),
                ResourceContents::Blob(blob) => ResourceContents::Blob(blob.clone()),
            };
            let media_type = resource.media_type.clone();
            ContentBlock::Resource { resource: EmbeddedResource { uri, media_type, content } }
        }
        ContentBlock::Audio { media_type, .. } if !version.has_audio() => {
            ContentBlock::text(format!("({media_type}, which this client cannot receive)"))
        }
        ContentBlock::Image { .. } | ContentBlock::Audio { .. } | ContentBlock::ResourceLink { .. } => {
            block.clone()
        }
    })
}

/// Names of tools by agent and skill.
type SkillTools<'c> = HashMap<(&'c str, Option<&'c str>), &'c str>;

fn tools_by_skill(view: &CatalogueView) -> SkillTools<'_> {
    let tools = view.of_agents();
    tools.map(|tool| ((&*tool.agent, tool.skill.as_deref()), tool.name.as_str())).collect()
}

impl McpServer {
    /// Handles `prompts/list`.
    ///
    /// # Errors
    ///
    /// [`Fault::InvalidParams`] for an unknown cursor.
    pub(super) fn list_prompts(&self, request: CallRequest<'_>) -> Result<Vec<u8>, Fault> {
        let CallRequest { client, id, params, .. } = request;
        // Checked before the cards are read.
        let is_complete = self.has_all_tools(client);
        let all: Vec<(String, CallerPrompt<'_>)> = self.prompts(client).into_iter().collect();
        let (page, next_cursor) = self.page(client, ListKind::Prompts, params, &all, |(name, _)| name)?;
        let prompts = page.iter().map(|(_, prompt)| prompt.entry(client.version)).collect();
        let list = ListPromptsResult { prompts, next_cursor };
        let writer = self.writer(client.era());
        Ok(if is_complete { writer.cacheable(id, &list) } else { writer.live(id, &list) })
    }

    /// Handles `prompts/get`. A modern client with forms is asked for required arguments that are
    /// missing.
    ///
    /// # Errors
    ///
    /// [`Fault::InvalidParams`] for an unknown prompt, and for missing or unusable arguments.
    pub(super) fn get_prompt(&self, request: CallRequest<'_>) -> Result<Vec<u8>, Fault> {
        let CallRequest { client, id, params, .. } = request;
        let name = params.name.as_ref().ok_or_else(|| Fault::InvalidParams("name is missing".into()))?;
        let mut prompts = self.prompts(client);
        let prompt = prompts.remove(name.as_str()).ok_or_else(|| {
            let shown: String = name.as_str().chars().take(100).collect();
            Fault::InvalidParams(format!("unknown prompt: {shown:?}"))
        })?;
        let given = arguments(params)?;
        let missing = prompt.missing(&given);
        if !missing.is_empty() {
            let can_ask = client.era() == Era::Modern && client.capabilities.has(ClientCapabilities::FORM);
            if can_ask && let Some(questions) = question(&missing, prompt.description()) {
                return Ok(self.writer(client.era()).input_required(id, Some(&questions), None));
            }
            let names: Vec<&str> = missing.iter().map(|argument| argument.name.as_str()).collect();
            return Err(Fault::InvalidParams(format!("arguments are missing: {}", names.join(", "))));
        }
        let messages = prompt.messages(&given, client.version).ok_or_else(|| {
            Fault::InvalidParams(format!("the prompt would have more than {MAX_TEXT_BYTES} bytes of text"))
        })?;
        let result = GetPromptResult { description: prompt.description(), messages };
        Ok(self.writer(client.era()).uncacheable(id, &result))
    }

    /// Returns the values that are proposed for an argument of a prompt; none if the caller has no
    /// such prompt.
    pub(super) fn prompt_values(
        &self,
        client: &ClientContext<'_>,
        prompt: &str,
        argument: &str,
    ) -> Vec<String> {
        let mut prompts = self.prompts(client);
        prompts.remove(prompt).map(|prompt| prompt.values(argument)).unwrap_or_default()
    }

    /// Returns the prompts of a caller on its route, by name; those of the operator win.
    fn prompts(&self, client: &ClientContext<'_>) -> BTreeMap<String, CallerPrompt<'_>> {
        let mut all = BTreeMap::new();
        for prompt in &self.settings.prompts {
            if self.has_prompt(client, prompt) {
                all.insert(prompt.name.clone(), CallerPrompt::Own(prompt));
            }
        }
        for prompt in self.skill_prompts(client) {
            if let Entry::Vacant(entry) = all.entry(prompt.name.clone()) {
                entry.insert(CallerPrompt::OfSkill(prompt));
            }
        }
        all
    }

    fn has_prompt(&self, client: &ClientContext<'_>, prompt: &Prompt) -> bool {
        let agent = prompt.agent.as_deref();
        let is_here = match agent {
            None => client.route == Route::AllAgents,
            Some(agent) => self
                .discovery
                .directory
                .find(agent)
                .is_some_and(|agent| self.authorizer().can_see(client.requester(), agent)),
        };
        is_here && self.authorizer().may_get_prompt(&client.caller, agent, &prompt.name)
    }

    /// Returns the examples of the skills that a caller sees on its route.
    fn skill_prompts(&self, client: &ClientContext<'_>) -> Vec<SkillPrompt> {
        let catalogue = self.discovery.catalogue.load();
        let [all, here] =
            [Route::AllAgents, client.route].map(|route| tools_by_skill(view(&catalogue, route)));
        let mut prompts = Vec::new();
        for agent in self.authorizer().visible_agents(client.requester()) {
            let Some(known) = agent.known().filter(|_| agent.unsupported_required().is_none()) else {
                continue;
            };
            let skills = self.discovery.visible_skills(&client.caller, agent);
            let name = agent.settings.name.as_str();
            let with_examples = known.card.skills.iter().filter(|skill| !skill.examples.is_empty());
            for skill in with_examples.filter(|skill| skills.has(&skill.id)) {
                let natural = || format!("{name}_{}", readable_name(&skill.id, &skill.name));
                let key = (name, Some(skill.id.as_str()));
                let tool = here.get(&key).or_else(|| here.get(&(name, None)));
                prompts.push(SkillPrompt {
                    name: all.get(&key).map_or_else(natural, |tool| (*tool).to_owned()),
                    title: skill.name.clone(),
                    description: skill.description.clone(),
                    tool: tool.map(|tool| (*tool).to_owned()),
                    examples: skill.examples.clone(),
                });
            }
        }
        prompts
    }
}

/// Reads the arguments of a prompt: those of the request, and the answers of the user to the
/// question for missing ones.
fn arguments(params: &ClientParams<'_>) -> Result<BTreeMap<String, String>, Fault> {
    let unreadable = || Fault::InvalidParams("arguments are not an object of strings".into());
    let mut given: BTreeMap<String, String> = match params.arguments.filter(|raw| raw.get() != "null") {
        Some(raw) => serde_json::from_str(raw.get()).map_err(|_| unreadable())?,
        None => BTreeMap::new(),
    };
    if let Some(answer) = params.input_responses {
        given.extend(answers(answer)?);
    }
    match given.values().any(|value| value.len() > MAX_ARGUMENT_BYTES) {
        true => Err(Fault::InvalidParams(format!("an argument has more than {MAX_ARGUMENT_BYTES} bytes"))),
        false => Ok(given),
    }
}

/// Returns the values in the answer to the question for missing arguments.
fn answers(responses: &RawValue) -> Result<BTreeMap<String, String>, Fault> {
    #[derive(Deserialize)]
    struct Responses<'a> {
        #[serde(borrow, default)]
        arguments: Option<&'a RawValue>,
    }
    let unusable = || Fault::InvalidParams("inputResponses are not the answers that were asked for".into());
    let responses: Responses<'_> = serde_json::from_str(responses.get()).map_err(|_| unusable())?;
    let Some(answer) = responses.arguments else { return Ok(BTreeMap::new()) };
    let answer = ElicitResult::read(answer).ok_or_else(unusable)?;
    match (answer.action, answer.content) {
        (ElicitAction::Accept, Some(content)) => serde_json::from_str(content.get()).map_err(|_| unusable()),
        (ElicitAction::Accept, None) => Err(unusable()),
        (ElicitAction::Decline | ElicitAction::Cancel, _) => {
            Err(Fault::InvalidParams("the user did not give the arguments".into()))
        }
    }
}

/// Returns the question for missing arguments, as the value of `inputRequests`.
fn question(missing: &[&PromptArgument], description: Option<&str>) -> Option<Box<RawValue>> {
    let fields: Map<String, Value> = missing
        .iter()
        .map(|argument| {
            let mut field = Map::from_iter([("type".to_owned(), json!("string"))]);
            for (key, text) in [("title", &argument.title), ("description", &argument.description)] {
                if let Some(text) = text {
                    field.insert(key.to_owned(), json!(text));
                }
            }
            (argument.name.clone(), Value::Object(field))
        })
        .collect();
    let names: Vec<&str> = missing.iter().map(|argument| argument.name.as_str()).collect();
    let schema = to_raw_value(&json!({ "type": "object", "properties": fields, "required": names })).ok()?;
    let about = description.map(|text| format!("{text}\n")).unwrap_or_default();
    let message = format!("{about}The prompt needs: {}.", names.join(", "));
    input_requests(&[(ARGUMENTS.to_owned(), ElicitRequest::Form { message, schema })])
}
