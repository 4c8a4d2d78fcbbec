//! The params of every request, parsed in one pass with the envelope.
//!
//! One shape for all methods: each reads the members that it knows and the rest stay `None`. So the hot path parses
//! once; arguments stay as they came until the tool is known. Not here: which member a method needs.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::capabilities::ClientCapabilities;
use super::notifications::LoggingLevel;
use crate::jsonrpc::{Id, Object, Text};

/// What a request or notification of a client carries.
#[derive(Debug, Default, Deserialize)]
pub struct ClientParams<'a> {
    /// `tools/call`: the tool.
    #[serde(borrow, default)]
    pub name: Option<Text<'a>>,
    /// `tools/call`: the arguments, as they came.
    #[serde(borrow, default)]
    pub arguments: Option<&'a RawValue>,
    /// `tools/call` of 2025-11-25: it is to run as a task. Read leniently: other revisions pass it over.
    #[serde(default, deserialize_with = "lenient")]
    pub task: Option<Object<TaskRequest>>,
    /// `tools/call` and `tasks/update` (modern): answers to questions, as they came; `null` is there too, and wrong.
    #[serde(borrow, default, rename = "inputResponses", deserialize_with = "ignore_any")]
    pub input_responses: Option<&'a RawValue>,
    /// `tools/call` (modern): what the result that asked for more said.
    #[serde(borrow, default, rename = "requestState")]
    pub request_state: Option<Text<'a>>,
    /// `tasks/*`: which.
    #[serde(borrow, default, rename = "taskId")]
    pub task_id: Option<Text<'a>>,
    /// `resources/read`: which.
    #[serde(borrow, default)]
    pub uri: Option<Text<'a>>,
    /// Lists: where to go on.
    #[serde(borrow, default)]
    pub cursor: Option<Text<'a>>,
    /// `logging/setLevel`: the least level wanted.
    #[serde(default)]
    pub level: Option<LoggingLevel>,
    /// `initialize`: the revision that the client wants.
    #[serde(borrow, default, rename = "protocolVersion")]
    pub protocol_version: Option<Text<'a>>,
    /// `initialize`: what the client can do.
    #[serde(default)]
    pub capabilities: Option<ClientCapabilities>,
    /// `initialize`: what the client is. Read leniently: nothing depends on it but comfort.
    #[serde(borrow, default, rename = "clientInfo", deserialize_with = "lenient")]
    pub client: Option<Object<ClientInfo<'a>>>,
    /// `notifications/cancelled`: which request.
    #[serde(default, rename = "requestId")]
    pub request_id: Option<Id>,
    /// `subscriptions/listen`: what to be told of.
    #[serde(borrow, default)]
    pub notifications: Option<Object<ListenFilter<'a>>>,
    /// `completion/complete`: of what.
    #[serde(borrow, default, rename = "ref")]
    pub reference: Option<Object<CompletionReference<'a>>>,
    /// `completion/complete`: which argument.
    #[serde(borrow, default)]
    pub argument: Option<Object<CompletionArgument<'a>>>,
    /// `completion/complete`: what was filled in before. Read leniently: it only helps.
    #[serde(default, deserialize_with = "lenient")]
    pub context: Option<Object<CompletionContext>>,
    /// What goes along with every request.
    #[serde(borrow, default, rename = "_meta")]
    pub meta: Option<Object<RequestMeta<'a>>>,
}

impl<'a> ClientParams<'a> {
    /// The `_meta` member, empty if it is not there.
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

    /// The name that the client gives itself, in `initialize` or in a modern request.
    pub fn client_name(&self) -> Option<&str> {
        let Object(client) = self.client.as_ref().or(self.meta().client.as_ref())?;
        client.name.as_ref().map(Text::as_str)
    }

    /// What was filled in for this variable before.
    pub fn filled(&self, variable: &str) -> Option<&str> {
        let Object(context) = self.context.as_ref()?;
        context.arguments.get(variable).map(String::as_str)
    }
}

/// The member of `_meta` that holds data of extensions of A2A under their URIs, in requests and in results: names of members of
/// `_meta` are no URIs in MCP.
pub const EXTENSIONS: &str = "mcp-a2a-gateway/extensions";
/// Most members of `_meta` under names of their own that are kept for extensions of A2A.
pub const MOST_EXTENSIONS: usize = 32;

/// What a request says about itself (mcp.md §1.4).
#[derive(Debug, Default)]
pub struct RequestMeta<'a> {
    /// Revision of the request; its presence makes the request a modern one.
    pub version: Option<Text<'a>>,
    /// What the client can do.
    pub capabilities: Option<ClientCapabilities>,
    /// Least level of the log messages wanted.
    pub level: Option<LoggingLevel>,
    /// What the client is. Read leniently: servers must not require it.
    pub client: Option<Object<ClientInfo<'a>>>,
    /// Token for progress notifications: a string or an integer, `0` and `""` included.
    pub progress: Option<Id>,
    /// W3C trace context. Read leniently: it must never cost a call.
    pub traceparent: Option<Text<'a>>,
    /// W3C trace state; as leniently.
    pub tracestate: Option<Text<'a>>,
    /// What may be data of extensions of A2A.
    pub extensions: ExtensionMembers<'a>,
}

/// Members of `_meta` that may be data of extensions of A2A, as they came.
#[derive(Debug, Default)]
pub struct ExtensionMembers<'a> {
    /// Those whose names can be URIs: the first [`MOST_EXTENSIONS`].
    pub named: Vec<(Text<'a>, &'a RawValue)>,
    /// That under [`EXTENSIONS`], in which names are URIs.
    pub inside: Option<&'a RawValue>,
    /// Whether there are more of the first kind.
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

/// What a client says of itself.
#[derive(Debug, Default, Deserialize)]
pub struct ClientInfo<'a> {
    /// Its name.
    #[serde(borrow, default)]
    pub name: Option<Text<'a>>,
}

/// Which members have been there.
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

/// `None` for what has another shape.
struct Lenient<T>(Option<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Lenient<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        lenient(deserializer).map(Self)
    }
}

/// `None` for what has another shape.
fn lenient<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    let raw = Option::<&'de RawValue>::deserialize(deserializer)?;
    Ok(raw.and_then(|raw| serde_json::from_str(raw.get()).ok()))
}

/// `None` only for what is not there.
fn ignore_any<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&'de RawValue>::deserialize(deserializer).map(Some)
}

/// How a client wants a task to be kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub struct TaskRequest {
    /// For how long from its beginning, in milliseconds; `None` if it does not say.
    #[serde(default, deserialize_with = "lenient")]
    pub ttl: Option<u64>,
}

/// What a `subscriptions/listen` asks to be told of.
#[derive(Debug, Default, Deserialize)]
pub struct ListenFilter<'a> {
    /// The list of tools changed.
    #[serde(default, rename = "toolsListChanged")]
    pub tools: bool,
    /// The list of resources changed.
    #[serde(default, rename = "resourcesListChanged")]
    pub resources: bool,
    /// These resources changed.
    #[serde(borrow, default, rename = "resourceSubscriptions")]
    pub uris: Vec<Text<'a>>,
    /// These tasks changed; of the tasks extension.
    #[serde(borrow, default, rename = "taskIds")]
    pub task_ids: Vec<Text<'a>>,
}

/// What `completion/complete` completes.
#[derive(Debug, Deserialize)]
pub struct CompletionReference<'a> {
    /// `ref/resource`: the template.
    #[serde(borrow, default)]
    pub uri: Option<Text<'a>>,
}

/// The argument that `completion/complete` is about.
#[derive(Debug, Deserialize)]
pub struct CompletionArgument<'a> {
    /// Which.
    #[serde(borrow)]
    pub name: Text<'a>,
    /// What is there of it.
    #[serde(borrow)]
    pub value: Text<'a>,
}

/// What a client knows already of what it completes.
#[derive(Debug, Default, Deserialize)]
pub struct CompletionContext {
    /// Variables and what was filled in for them.
    #[serde(default)]
    pub arguments: BTreeMap<String, String>,
}

/// The claim to be modern, looked at when nothing more can be.
#[derive(Deserialize)]
struct ModernClaim<'a> {
    #[serde(borrow, default, rename = "io.modelcontextprotocol/protocolVersion")]
    version: Option<&'a RawValue>,
}

/// Whether a `_meta` that does not parse still claims to be of the modern era.
pub fn claims_modern(meta: &RawValue) -> bool {
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
    fn what_was_filled_in_before_is_read_if_it_fits() {
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
