//! The params of every request, parsed in one pass with the envelope.
//!
//! One shape for all methods: each reads the members that it knows and the rest stay `None`. So the
//! hot path parses once; arguments stay unparsed until the tool is known.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::lifecycle::ClientCapabilities;
use super::notifications::LoggingLevel;
use super::tools::EXTENSIONS;
use crate::jsonrpc::{Id, Object, Text};

/// The params of a client's request or notification. Members that few requests have are boxed: params are moved some ten times.
#[derive(Debug, Default, Deserialize)]
pub struct ClientParams<'a> {
    /// `tools/call`, `prompts/get`: name of the tool or the prompt.
    #[serde(borrow, default)]
    pub name: Option<Text<'a>>,
    /// `tools/call`, `prompts/get`: the arguments, unparsed.
    #[serde(borrow, default)]
    pub arguments: Option<&'a RawValue>,
    /// `tools/call` of 2025-11-25: requests a task. Read leniently: other revisions ignore it.
    #[serde(default, deserialize_with = "lenient")]
    pub task: Option<Object<TaskRequest>>,
    /// `tools/call` and `tasks/update` (modern): answers to questions, unparsed; `null` counts as
    /// present, and is invalid.
    #[serde(borrow, default, rename = "inputResponses", deserialize_with = "ignore_any")]
    pub input_responses: Option<&'a RawValue>,
    /// `tools/call` (modern): the `requestState` of the result that asked for input.
    #[serde(borrow, default, rename = "requestState")]
    pub request_state: Option<Text<'a>>,
    /// `tasks/*`: id of the task.
    #[serde(borrow, default, rename = "taskId")]
    pub task_id: Option<Text<'a>>,
    /// `resources/read`: URI of the resource.
    #[serde(borrow, default)]
    pub uri: Option<Text<'a>>,
    /// Lists: position of the next page.
    #[serde(borrow, default)]
    pub cursor: Option<Text<'a>>,
    /// `logging/setLevel`: the least level to send.
    #[serde(default)]
    pub level: Option<LoggingLevel>,
    /// `initialize`: the revision that the client requests.
    #[serde(borrow, default, rename = "protocolVersion")]
    pub protocol_version: Option<Text<'a>>,
    /// `initialize`: the client's capabilities.
    #[serde(default)]
    pub capabilities: Option<ClientCapabilities>,
    /// `initialize`: name of the client software. Read leniently: the gateway needs it only for
    /// convenience.
    #[serde(borrow, default, rename = "clientInfo", deserialize_with = "lenient")]
    pub client: Option<Object<Box<ClientInfo<'a>>>>,
    /// `notifications/cancelled`: id of the request.
    #[serde(default, rename = "requestId")]
    pub request_id: Option<Id>,
    /// `subscriptions/listen`: the changes to notify of.
    #[serde(borrow, default)]
    pub notifications: Option<Object<Box<ListenFilter<'a>>>>,
    /// `completion/complete`: the template.
    #[serde(borrow, default, rename = "ref")]
    pub reference: Option<Object<Box<CompletionReference<'a>>>>,
    /// `completion/complete`: the argument.
    #[serde(borrow, default)]
    pub argument: Option<Object<Box<CompletionArgument<'a>>>>,
    /// `completion/complete`: variables that are filled in already. Read leniently: it is only a
    /// help.
    #[serde(default, deserialize_with = "lenient")]
    pub context: Option<Object<Box<CompletionContext>>>,
    /// The `_meta` member of every request.
    #[serde(borrow, default, rename = "_meta")]
    pub meta: Option<Object<Box<RequestMeta<'a>>>>,
}

impl<'a> ClientParams<'a> {
    /// Returns the `_meta` member, empty if it is absent.
    pub fn meta(&self) -> &RequestMeta<'a> {
        const NONE: &RequestMeta<'static> = &RequestMeta {
            version: None,
            capabilities: None,
            level: None,
            client: None,
            progress: None,
            traceparent: None,
            tracestate: None,
            extensions: ExtensionMembers { named: Vec::new(), inside: None, are_too_many: false },
        };
        self.meta.as_ref().map_or(NONE, |Object(meta)| meta)
    }

    /// Returns the client's name of itself, from `initialize` or from a modern request.
    pub fn client_name(&self) -> Option<&str> {
        self.client_info()?.name.as_ref().map(Text::as_str)
    }

    /// Returns the client software by `clientInfo`, from `initialize` or from a modern request.
    pub(crate) fn client_software(&self) -> Option<ClientSoftware> {
        let info = self.client_info()?;
        let name = ClientSoftware::member(info.name.as_ref()?.as_str());
        let version = info.version.as_ref().map(|version| ClientSoftware::member(version.as_str()));
        Some(ClientSoftware { name, version })
    }

    fn client_info(&self) -> Option<&ClientInfo<'a>> {
        let of_modern = || self.meta().client.as_ref().map(|Object(info)| info);
        self.client.as_ref().map(|Object(info)| &**info).or_else(of_modern)
    }

    /// Returns the value that is already filled in for this variable.
    pub(crate) fn filled(&self, variable: &str) -> Option<&str> {
        let Object(context) = self.context.as_ref()?;
        context.arguments.get(variable).map(String::as_str)
    }
}

/// Maximum number of `_meta` members with names of their own that are kept for A2A extensions.
pub(crate) const MOST_EXTENSIONS: usize = 32;

/// The `_meta` of a request (`docs/spec/mcp.md` §1.4).
#[derive(Debug, Default)]
pub struct RequestMeta<'a> {
    /// Revision of the request; its presence makes the request a modern one.
    pub version: Option<Text<'a>>,
    /// The client's capabilities.
    pub capabilities: Option<ClientCapabilities>,
    /// Least level of the log messages to send.
    pub level: Option<LoggingLevel>,
    /// Name of the client software. Read leniently: servers must not require it.
    pub client: Option<Object<ClientInfo<'a>>>,
    /// Token for progress notifications: a string or an integer, `0` and `""` included.
    pub progress: Option<Id>,
    /// W3C trace context. Read leniently: an invalid one must not fail a call.
    pub traceparent: Option<Text<'a>>,
    /// W3C trace state; read leniently as well.
    pub tracestate: Option<Text<'a>>,
    /// Possible data of A2A extensions.
    pub extensions: ExtensionMembers<'a>,
}

/// Members of `_meta` that may be data of A2A extensions, unparsed.
#[derive(Debug, Default)]
pub struct ExtensionMembers<'a> {
    /// Members with names that can be URIs: the first `MOST_EXTENSIONS`.
    pub named: Vec<(Text<'a>, &'a RawValue)>,
    /// The member [`EXTENSIONS`], in which names are URIs.
    pub inside: Option<&'a RawValue>,
    /// True if `named` is incomplete.
    pub are_too_many: bool,
}

impl<'de: 'a, 'a> Deserialize<'de> for RequestMeta<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members<'a>(PhantomData<&'a ()>);
        impl<'de: 'a, 'a> Visitor<'de> for Members<'a> {
            type Value = RequestMeta<'a>;
            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RequestMeta<'a>, A::Error> {
                let (mut meta, mut seen) = (RequestMeta::default(), PresentMembers::default());
                while let Some(name) = map.next_key::<Text<'de>>()? {
                    match name.as_str() {
                        "io.modelcontextprotocol/protocolVersion" => {
                            seen.first(0)?;
                            meta.version = map.next_value()?;
                        }
                        "io.modelcontextprotocol/clientCapabilities" => {
                            seen.first(1)?;
                            meta.capabilities = map.next_value()?;
                        }
                        "io.modelcontextprotocol/logLevel" => {
                            seen.first(2)?;
                            meta.level = map.next_value()?;
                        }
                        "io.modelcontextprotocol/clientInfo" => {
                            seen.first(7)?;
                            meta.client = map.next_value::<Lenient<Object<ClientInfo<'a>>>>()?.0;
                        }
                        "progressToken" => {
                            seen.first(3)?;
                            meta.progress = map.next_value()?;
                        }
                        "traceparent" => {
                            seen.first(4)?;
                            meta.traceparent = map.next_value::<Lenient<Text<'a>>>()?.0;
                        }
                        "tracestate" => {
                            seen.first(5)?;
                            meta.tracestate = map.next_value::<Lenient<Text<'a>>>()?.0;
                        }
                        EXTENSIONS => {
                            seen.first(6)?;
                            meta.extensions.inside = Some(map.next_value()?);
                        }
                        other if other.contains(':') => {
                            let value = map.next_value()?;
                            if meta.extensions.named.len() < MOST_EXTENSIONS {
                                meta.extensions.named.push((name, value));
                            } else {
                                meta.extensions.are_too_many = true;
                            }
                        }
                        _ => map.next_value::<IgnoredAny>().map(drop)?,
                    }
                }
                Ok(meta)
            }
        }
        deserializer.deserialize_map(Members(PhantomData))
    }
}

/// The client's description of itself.
#[derive(Debug, Default, Deserialize)]
pub struct ClientInfo<'a> {
    /// Name.
    #[serde(borrow, default)]
    pub name: Option<Text<'a>>,
    /// Version.
    #[serde(borrow, default)]
    pub version: Option<Text<'a>>,
}

/// Name and version of client software, as `clientInfo` names them: bounded, and without control
/// characters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientSoftware {
    /// Name.
    pub name: String,
    /// Version, if the client told one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

impl ClientSoftware {
    /// Most characters of the name and of the version.
    const MAX_CHARS: usize = 64;

    fn member(text: &str) -> String {
        text.chars().filter(|letter| !letter.is_control()).take(Self::MAX_CHARS).collect()
    }

    /// Returns the approximate number of bytes in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.name.len() + self.version.as_ref().map_or(0, String::len)
    }
}

/// The members that occurred.
#[derive(Default)]
struct PresentMembers(u8);

impl PresentMembers {
    fn first<E: Error>(&mut self, member: u8) -> Result<(), E> {
        let bit = 1 << member;
        let is_second = self.0 & bit != 0;
        self.0 |= bit;
        if is_second { Err(E::custom("a member of _meta is there twice")) } else { Ok(()) }
    }
}

/// `None` for a value of another shape.
struct Lenient<T>(Option<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Lenient<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        lenient(deserializer).map(Self)
    }
}

/// Reads a value; `None` for one of another shape.
fn lenient<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    let raw = Option::<&'de RawValue>::deserialize(deserializer)?;
    Ok(raw.and_then(|raw| serde_json::from_str(raw.get()).ok()))
}

/// Reads any value, `null` included; `None` only if the member is absent.
fn ignore_any<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&'de RawValue>::deserialize(deserializer).map(Some)
}

/// The client's wishes for a task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub struct TaskRequest {
    /// Time to keep the task, from its creation, in milliseconds; `None` if the client does not
    /// say.
    #[serde(default, deserialize_with = "lenient")]
    pub ttl: Option<u64>,
}

/// The changes that a `subscriptions/listen` requests.
#[derive(Debug, Default, Deserialize)]
pub struct ListenFilter<'a> {
    /// True for changes of the list of tools.
    #[serde(default, rename = "toolsListChanged")]
    pub tools: bool,
    /// True for changes of the list of resources.
    #[serde(default, rename = "resourcesListChanged")]
    pub resources: bool,
    /// True for changes of the list of prompts.
    #[serde(default, rename = "promptsListChanged")]
    pub prompts: bool,
    /// Resources to notify of.
    #[serde(borrow, default, rename = "resourceSubscriptions")]
    pub uris: Vec<Text<'a>>,
    /// Tasks to notify of; tasks extension only.
    #[serde(borrow, default, rename = "taskIds")]
    pub task_ids: Vec<Text<'a>>,
}

/// The object that `completion/complete` completes.
#[derive(Debug, Deserialize)]
pub struct CompletionReference<'a> {
    /// `ref/resource`: the template.
    #[serde(borrow, default)]
    pub uri: Option<Text<'a>>,
    /// `ref/prompt`: the name of the prompt.
    #[serde(borrow, default)]
    pub name: Option<Text<'a>>,
}

/// The argument that `completion/complete` is about.
#[derive(Debug, Deserialize)]
pub struct CompletionArgument<'a> {
    /// Name of the argument.
    #[serde(borrow)]
    pub name: Text<'a>,
    /// The part of the value that is typed already.
    #[serde(borrow)]
    pub value: Text<'a>,
}

/// The values that the client has already.
#[derive(Debug, Default, Deserialize)]
pub struct CompletionContext {
    /// Variables and their values.
    #[serde(default)]
    pub arguments: BTreeMap<String, String>,
}

/// The claim to be modern, read alone when the rest cannot be parsed.
#[derive(Deserialize)]
struct ModernClaim<'a> {
    #[serde(borrow, default, rename = "io.modelcontextprotocol/protocolVersion")]
    version: Option<&'a RawValue>,
}

/// Returns true if a `_meta` that does not parse still claims to be of the modern era.
pub(crate) fn claims_modern(meta: &RawValue) -> bool {
    serde_json::from_str::<ModernClaim<'_>>(meta.get()).is_ok_and(|claim| claim.version.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_that_a_method_needs_are_read_and_others_passed_over() {
        let params: ClientParams<'_> = serde_json::from_str(
            r#"{"name":"a","arguments":{"x":1},"task":{},"_meta":{"progressToken":0,"traceparent":"00-1"}}"#,
        )
        .unwrap();
        assert_eq!(params.name.as_ref().unwrap().as_str(), "a");
        assert_eq!(params.meta().progress.as_ref().unwrap().as_json(), "0");
        assert_eq!(params.meta().traceparent.as_ref().unwrap().as_str(), "00-1");
    }

    #[test]
    fn a_wish_for_a_task_is_read_and_never_costs_a_call() {
        for (task, ttl) in [
            (r#"{"ttl":60000,"other":1}"#, Some(Some(60_000))),
            ("{}", Some(None)),
            (r#"{"ttl":null}"#, Some(None)),
            (r#"{"ttl":-1}"#, Some(None)),
            (r#"{"ttl":"1h"}"#, Some(None)),
            ("true", None),
            ("[1]", None),
            ("null", None),
        ] {
            let params = format!(r#"{{"name":"a","task":{task}}}"#);
            let params: ClientParams<'_> = serde_json::from_str(&params).unwrap();
            assert_eq!(params.task.map(|Object(task)| task.ttl), ttl, "{task}");
        }
    }

    #[test]
    fn answers_are_kept_as_they_came_even_if_they_are_null() {
        let read = |text| serde_json::from_str::<ClientParams<'_>>(text).unwrap();
        let given = read(r#"{"inputResponses": {"q": 1},"requestState":"s","taskId":"t"}"#);
        assert_eq!(given.input_responses.map(RawValue::get), Some(r#"{"q": 1}"#));
        assert_eq!(given.request_state.unwrap().as_str(), "s");
        assert_eq!(given.task_id.unwrap().as_str(), "t");
        assert_eq!(read(r#"{"inputResponses":null}"#).input_responses.map(RawValue::get), Some("null"));
        assert!(read("{}").input_responses.is_none());
        let listen = read(r#"{"notifications":{"taskIds":["t"]}}"#);
        assert_eq!(listen.notifications.unwrap().0.task_ids.len(), 1);
    }

    #[test]
    fn earlier_completion_arguments_are_read() {
        for (context, filled) in [
            (r#"{"arguments":{"id":"x"}}"#, Some("x")),
            (r#"{"arguments":{"id":7}}"#, None),
            ("{}", None),
            ("[]", None),
        ] {
            let params = format!(r#"{{"context":{context}}}"#);
            let params: ClientParams<'_> = serde_json::from_str(&params).unwrap();
            assert_eq!(params.filled("id"), filled, "{context}");
        }
    }

    #[test]
    fn client_software_is_bounded_text() {
        let (long, cut) = ("x".repeat(100), "x".repeat(64));
        let cut = Some(cut.as_str());
        for (info, name, version) in [
            (r#"{"name":"a","version":"1"}"#.to_owned(), Some("a"), Some("1")),
            (r#"{"name":"a\nb"}"#.to_owned(), Some("ab"), None),
            (format!(r#"{{"name":"{long}","version":"{long}"}}"#), cut, cut),
            (r#"{"version":"1"}"#.to_owned(), None, None),
            (r#"{"name":7}"#.to_owned(), None, None),
        ] {
            let key = "io.modelcontextprotocol/clientInfo";
            for params in
                [format!(r#"{{"clientInfo":{info}}}"#), format!(r#"{{"_meta":{{"{key}":{info}}}}}"#)]
            {
                let params: ClientParams<'_> = serde_json::from_str(&params).unwrap();
                let told = params.client_software();
                assert_eq!(told.as_ref().map(|told| told.name.as_str()), name, "{info}");
                assert_eq!(told.as_ref().and_then(|told| told.version.as_deref()), version, "{info}");
            }
        }
    }

    #[test]
    fn null_members_are_absent() {
        let params: ClientParams<'_> =
            serde_json::from_str(r#"{"cursor":null,"arguments":null,"_meta":null}"#).unwrap();
        assert!(params.cursor.is_none() && params.meta.is_none());
    }

    #[test]
    fn a_broken_claim_is_a_claim() {
        let raw: &RawValue =
            serde_json::from_str(r#"{"io.modelcontextprotocol/protocolVersion":7}"#).unwrap();
        assert!(claims_modern(raw));
    }
}
