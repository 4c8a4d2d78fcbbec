//! The URIs of the resources: agents, tasks and their artifacts, live streams, the registry.
//!
//! `a2a-agent://{agent}` is an agent; `a2a://…` is the rest. `mcp://{server}/{family}/…` is another
//! spelling of each. A task or a stream is named by its sealed handle. The content of the resources is in `resource_view`.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use crate::a2a::percent_encoded;
use crate::mcp::resources::ResourceTemplate;

/// Prefix of the URI of an agent.
const AGENT: &str = "a2a-agent://";
/// Prefix of every other URI.
const OURS: &str = "a2a://";
/// URI of the registry of agents.
pub(crate) const REGISTRY: &str = "a2a://agents/registry";
/// URI of the list of live streams.
pub(crate) const STREAMS: &str = "a2a://streams";

const OF_AGENT: &str = "a2a-agent://{agent}";
const OF_TASK: &str = "a2a://task/{id}";
const OF_ARTIFACT: &str = "a2a://task/{id}/artifacts/{artifactId}";
const OF_STREAM: &str = "a2a://streams/{id}";

const OF_TASKS: &str = "a2a://tasks/{taskId}";

/// The templates for clients.
pub(crate) const TEMPLATES: &[ResourceTemplate] = &[
    ResourceTemplate::fixed(OF_AGENT, "agent", "The card of an A2A agent behind this gateway", JSON),
    ResourceTemplate::fixed(
        OF_TASK,
        "task",
        "A task of an A2A agent: its state, messages and artifacts. The id is the taskId of a result.",
        JSON,
    ),
    ResourceTemplate::fixed(OF_TASKS, "tasks", "The same as a2a://task/{id}", JSON),
    ResourceTemplate::fixed(
        OF_ARTIFACT,
        "artifact",
        "One artifact of a task, whole",
        "application/octet-stream",
    ),
    ResourceTemplate::fixed(
        OF_STREAM,
        "stream",
        "A live stream of yours: which task it follows, and its last events",
        JSON,
    ),
];
const JSON: &str = "application/json";

/// The kind of value of a template variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TemplateVariable {
    /// The name of an agent.
    Agent,
    /// The handle of a task.
    Task,
    /// The id of an artifact of a task.
    Artifact,
    /// The handle of a task that is followed.
    Stream,
}

impl TemplateVariable {
    /// Returns the kind of this variable of this template; `None` if there is no such variable.
    pub(crate) fn read(template: &str, variable: &str) -> Option<Self> {
        match (template, variable) {
            (OF_AGENT, "agent") => Some(Self::Agent),
            (OF_TASK | OF_ARTIFACT, "id") | (OF_TASKS, "taskId") => Some(Self::Task),
            (OF_ARTIFACT, "artifactId") => Some(Self::Artifact),
            (OF_STREAM, "id") => Some(Self::Stream),
            _ => None,
        }
    }
}

/// The resource that a URI names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ResourceUri<'a> {
    /// The agent with this name.
    Agent(&'a str),
    /// The task with this handle.
    Task(&'a str),
    /// An artifact of a task.
    Artifact {
        /// The handle of the task.
        task: &'a str,
        /// The agent's id of the artifact.
        artifact: Cow<'a, str>,
    },
    /// All agents.
    Registry,
    /// All live streams of the caller.
    Streams,
    /// The live stream with this id.
    Stream(&'a str),
}

impl<'a> ResourceUri<'a> {
    /// Reads a URI, in the scheme of its family or as `mcp://{server}/{family}/{path}`;
    /// `a2a://tasks/{id}` is accepted for `a2a://task/{id}`. `None` if it is not a URI of an agent, a
    /// task or a stream.
    pub(crate) fn read(uri: &'a str) -> Option<Self> {
        if let Some(agent) = agent_of(uri) {
            return Some(Self::Agent(agent));
        }
        let path = match parse_alias(uri) {
            Some(alias) if alias.family == "a2a" => alias.path,
            Some(_) => return None,
            None => uri.strip_prefix(OURS)?,
        };
        match path {
            "agents/registry" => return Some(Self::Registry),
            "streams" => return Some(Self::Streams),
            _ => {}
        }
        let (kind, rest) = path.split_once('/')?;
        match (kind, rest.split_once('/')) {
            ("task" | "tasks", None) => handle(rest).map(Self::Task),
            ("task" | "tasks", Some((task, rest))) => {
                let artifact = decoded(rest.strip_prefix("artifacts/")?)?;
                Some(Self::Artifact { task: handle(task)?, artifact })
            }
            ("streams", None) => handle(rest).map(Self::Stream),
            _ => None,
        }
    }
}

/// A URI of the form `mcp://{server}/{family}/{path}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AliasUri<'a> {
    /// The name of the server, still percent-encoded.
    pub(crate) server: &'a str,
    /// The family of the resource, which is the scheme of its own URI.
    pub(crate) family: &'a str,
    /// The rest of its own URI, after `://`.
    pub(crate) path: &'a str,
}

/// Returns the parts of a URI of the scheme `mcp`; `None` if it has another scheme or form.
pub(crate) fn parse_alias(uri: &str) -> Option<AliasUri<'_>> {
    let (server, rest) = uri.strip_prefix("mcp://")?.split_once('/')?;
    let (family, path) = rest.split_once('/')?;
    Some(AliasUri { server, family, path })
}

/// Returns the URI of an agent.
pub(crate) fn agent_uri(agent: &str) -> String {
    format!("{AGENT}{agent}")
}

/// Returns the agent that a URI names: as host, or as path after an empty host.
pub(crate) fn agent_of(uri: &str) -> Option<&str> {
    let alias = parse_alias(uri).filter(|alias| alias.family == "a2a-agent");
    let rest = alias.map(|alias| alias.path).or_else(|| uri.strip_prefix(AGENT))?;
    let name = rest.strip_prefix('/').unwrap_or(rest);
    let name = name.strip_suffix('/').unwrap_or(name);
    (!name.is_empty()).then_some(name)
}

/// Returns the URI of a task.
pub(crate) fn task_uri(handle: &str) -> String {
    format!("{OURS}task/{handle}")
}

/// Returns the URI of an artifact of a task.
pub(crate) fn artifact_uri(handle: &str, artifact: &str) -> String {
    format!("{OURS}task/{handle}/artifacts/{}", percent_encoded(artifact))
}

/// Returns the URI of a live stream.
pub(crate) fn stream_uri(id: &str) -> String {
    format!("{STREAMS}/{id}")
}

/// Returns a handle in a URI, if it has only the characters of a sealed token.
fn handle(text: &str) -> Option<&str> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (!text.is_empty() && text.bytes().all(plain)).then_some(text)
}

/// Decodes percent-encoding; a slash that the writer did not encode stays. `None` if the encoding
/// is invalid.
pub(crate) fn decoded(text: &str) -> Option<Cow<'_, str>> {
    let is_encoded =
        |rest: &str| rest.as_bytes().get(..2).is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit));
    if !text.split('%').skip(1).all(is_encoded) {
        return None;
    }
    percent_decode_str(text).decode_utf8().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_agent_is_named_as_host_or_as_path() {
        for (uri, agent) in [
            ("a2a-agent://weather", Some("weather")),
            ("a2a-agent:///weather", Some("weather")),
            ("a2a-agent://weather/", Some("weather")),
            ("a2a-agent://", None),
            ("http://weather", None),
        ] {
            assert_eq!(agent_of(uri), agent, "{uri}");
        }
        assert_eq!(agent_of(&agent_uri("x")), Some("x"));
    }

    #[test]
    fn each_uri_names_one_thing() {
        let artifact =
            |task, artifact: &'static str| Some(ResourceUri::Artifact { task, artifact: artifact.into() });
        for (uri, named) in [
            ("a2a-agent:///weather", Some(ResourceUri::Agent("weather"))),
            ("a2a://agents/registry", Some(ResourceUri::Registry)),
            ("a2a://task/a-B_9", Some(ResourceUri::Task("a-B_9"))),
            ("a2a://tasks/a", Some(ResourceUri::Task("a"))),
            ("a2a://task/a/artifacts/x", artifact("a", "x")),
            ("a2a://tasks/a/artifacts/x%2Fy%20z", artifact("a", "x/y z")),
            ("a2a://task/a/artifacts/", artifact("a", "")),
            ("a2a://streams", Some(ResourceUri::Streams)),
            ("a2a://streams/s", Some(ResourceUri::Stream("s"))),
            ("mcp://gateway/a2a/agents/registry", Some(ResourceUri::Registry)),
            ("mcp://gateway/a2a/tasks/a", Some(ResourceUri::Task("a"))),
            ("mcp://gateway/a2a-agent/weather", Some(ResourceUri::Agent("weather"))),
            ("mcp://gateway/memory/data/a/b", None),
            ("mcp://gateway/a2a", None),
            ("a2a://task/", None),
            ("a2a://task", None),
            ("a2a://task/a%20b", None),
            ("a2a://task/a?x", None),
            ("a2a://task/a/history", None),
            ("a2a://task/a/artifacts/%2", None),
            ("a2a://task/a/artifacts/%FF", None),
            ("a2a://streams/a/b", None),
            ("a2a://agents/x", None),
            ("a2a-agent://", None),
            ("http://task/a", None),
        ] {
            assert_eq!(ResourceUri::read(uri), named, "{uri}");
        }
    }

    #[test]
    fn every_template_filled_in_is_a_uri() {
        for template in TEMPLATES {
            let filled = ["{agent}", "{id}", "{taskId}", "{artifactId}"]
                .iter()
                .fold(template.uri_template.clone().into_owned(), |uri, hole| uri.replace(hole, "x"));
            assert!(ResourceUri::read(&filled).is_some(), "{filled}");
            let holes = template.uri_template.split('{').skip(1).filter_map(|rest| rest.split_once('}'));
            for (hole, _) in holes {
                assert!(TemplateVariable::read(&template.uri_template, hole).is_some(), "{hole}");
            }
        }
    }

    proptest! {
        #[test]
        fn the_id_of_an_artifact_survives_its_uri(id in any::<String>(), handle in "[a-zA-Z0-9_-]{1,20}") {
            let uri = artifact_uri(&handle, &id);
            prop_assert_eq!(ResourceUri::read(&uri), Some(ResourceUri::Artifact { task: &handle, artifact: id.as_str().into() }));
            let (task, stream) = (task_uri(&handle), stream_uri(&handle));
            prop_assert_eq!(ResourceUri::read(&task), Some(ResourceUri::Task(&handle)));
            prop_assert_eq!(ResourceUri::read(&stream), Some(ResourceUri::Stream(&handle)));
        }
    }
}
