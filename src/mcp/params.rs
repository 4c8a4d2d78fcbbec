//! The params of every request, parsed in one pass with the envelope.
//!
//! One shape for all methods: each reads the members that it knows and the rest stay `None`. So the hot path parses
//! once; arguments stay as they came until the tool is known. Not here: which member a method needs.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::capabilities::Capabilities;
use super::notifications::Level;
use crate::jsonrpc::{Id, Object, Text};

/// What a request or notification of a client carries.
#[derive(Debug, Default, Deserialize)]
pub struct Params<'a> {
    /// `tools/call`: the tool.
    #[serde(borrow, default)]
    pub name: Option<Text<'a>>,
    /// `tools/call`: the arguments, as they came.
    #[serde(borrow, default)]
    pub arguments: Option<&'a RawValue>,
    /// `resources/read`: which.
    #[serde(borrow, default)]
    pub uri: Option<Text<'a>>,
    /// Lists: where to go on.
    #[serde(borrow, default)]
    pub cursor: Option<Text<'a>>,
    /// `logging/setLevel`: the least level wanted.
    #[serde(default)]
    pub level: Option<Level>,
    /// `initialize`: the revision that the client wants.
    #[serde(borrow, default, rename = "protocolVersion")]
    pub protocol_version: Option<Text<'a>>,
    /// `initialize`: what the client can do.
    #[serde(default)]
    pub capabilities: Option<Capabilities>,
    /// `notifications/cancelled`: which request.
    #[serde(default, rename = "requestId")]
    pub request_id: Option<Id>,
    /// `subscriptions/listen`: what to be told of.
    #[serde(borrow, default)]
    pub notifications: Option<Object<ListenFilter<'a>>>,
    /// `completion/complete`: of what.
    #[serde(borrow, default, rename = "ref")]
    pub reference: Option<Object<Reference<'a>>>,
    /// `completion/complete`: which argument.
    #[serde(borrow, default)]
    pub argument: Option<Object<Argument<'a>>>,
    /// What goes along with every request.
    #[serde(borrow, default, rename = "_meta")]
    pub meta: Option<Object<Meta<'a>>>,
}

impl<'a> Params<'a> {
    /// The `_meta` member, empty if it is not there.
    pub fn meta(&self) -> &Meta<'a> {
        const NONE: &Meta<'static> = &Meta {
            version: None,
            capabilities: None,
            level: None,
            progress: None,
            traceparent: None,
            tracestate: None,
        };
        self.meta.as_ref().map_or(NONE, |Object(meta)| meta)
    }
}

/// What a request says about itself (mcp.md §1.4).
#[derive(Debug, Default, Deserialize)]
pub struct Meta<'a> {
    /// Revision of the request; its presence makes the request a modern one.
    #[serde(borrow, default, rename = "io.modelcontextprotocol/protocolVersion")]
    pub version: Option<Text<'a>>,
    /// What the client can do.
    #[serde(default, rename = "io.modelcontextprotocol/clientCapabilities")]
    pub capabilities: Option<Capabilities>,
    /// Least level of the log messages wanted.
    #[serde(default, rename = "io.modelcontextprotocol/logLevel")]
    pub level: Option<Level>,
    /// Token for progress notifications: a string or an integer, `0` and `""` included.
    #[serde(default, rename = "progressToken")]
    pub progress: Option<Id>,
    /// W3C trace context. Read leniently: it must never cost a call.
    #[serde(borrow, default, deserialize_with = "if_text")]
    pub traceparent: Option<Text<'a>>,
    /// W3C trace state; as leniently.
    #[serde(borrow, default, deserialize_with = "if_text")]
    pub tracestate: Option<Text<'a>>,
}

fn if_text<'de: 'a, 'a, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Text<'a>>, D::Error> {
    let raw = Option::<&'de RawValue>::deserialize(deserializer)?;
    Ok(raw.and_then(|raw| serde_json::from_str(raw.get()).ok()))
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
}

/// What `completion/complete` completes.
#[derive(Debug, Deserialize)]
pub struct Reference<'a> {
    /// `ref/resource`: the template.
    #[serde(borrow, default)]
    pub uri: Option<Text<'a>>,
}

/// The argument that `completion/complete` is about.
#[derive(Debug, Deserialize)]
pub struct Argument<'a> {
    /// Which.
    #[serde(borrow)]
    pub name: Text<'a>,
    /// What is there of it.
    #[serde(borrow)]
    pub value: Text<'a>,
}

/// The claim to be modern, looked at when nothing more can be.
#[derive(Deserialize)]
struct Claim<'a> {
    #[serde(borrow, default, rename = "io.modelcontextprotocol/protocolVersion")]
    version: Option<&'a RawValue>,
}

/// Whether a `_meta` that does not parse still claims to be of the modern era.
pub fn claims_modern(meta: &RawValue) -> bool {
    serde_json::from_str::<Claim<'_>>(meta.get()).is_ok_and(|claim| claim.version.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_that_a_method_needs_are_read_and_others_passed_over() {
        let params: Params<'_> = serde_json::from_str(
            r#"{"name":"a","arguments":{"x":1},"task":{},"_meta":{"progressToken":0,"traceparent":"00-1"}}"#,
        )
        .unwrap();
        assert_eq!(params.name.as_ref().unwrap().as_str(), "a");
        assert_eq!(params.meta().progress.as_ref().unwrap().as_json(), "0");
        assert_eq!(params.meta().traceparent.as_ref().unwrap().as_str(), "00-1");
    }

    #[test]
    fn null_members_are_absent() {
        let params: Params<'_> =
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
