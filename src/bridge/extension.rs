//! Data of A2A extensions in metadata: the part that passes between a client and an agent.
//!
//! Only data under the URI of an extension that the operator activated passes, within a bound. In
//! A2A it is a member of `metadata`, in MCP one of `_meta`. The meaning of the data is left to
//! client and agent; `a2a` names the extensions to agents.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use super::output::{AgentOutput, MOST_BYTES};
use crate::mcp::params::{ExtensionMembers, MOST_EXTENSIONS};
use crate::mcp::tools::EXTENSIONS;

/// Maximum number of artifacts with data that passes.
const MOST_ARTIFACTS: usize = 100;

/// Data by the names of its members.
type ExtensionData<'a> = BTreeMap<String, &'a RawValue>;

/// The client's data for extensions, and the active extensions.
#[derive(Debug, Clone, Copy, Default)]
pub struct ClientExtensions<'a> {
    /// Possible extension data of `_meta`; `None` if there is no `_meta`.
    pub given: Option<&'a ExtensionMembers<'a>>,
    /// The URIs that the operator activated for the agent.
    pub active: &'a [String],
}

/// The data that goes to the agent.
#[derive(Debug, Default)]
pub(super) struct MessageExtensions<'a> {
    /// Members of the metadata of the message.
    pub(super) data: ExtensionData<'a>,
    /// The extensions of this data, each once.
    pub(super) uris: Vec<String>,
}

/// The data for a message that has nothing else except its parts.
#[derive(Debug, Default)]
pub struct DataOnlyMessage {
    /// The metadata of the message.
    pub metadata: Option<Box<RawValue>>,
    /// The extensions of the metadata, each once.
    pub uris: Vec<String>,
}

impl<'a> ClientExtensions<'a> {
    /// Returns the data that goes to the agent with a message.
    ///
    /// # Errors
    ///
    /// The problem, in words: the data exceeds the bound, or has too many members.
    pub fn beside(&self) -> Result<DataOnlyMessage, String> {
        let MessageExtensions { data, uris } = self.passing()?;
        let metadata = if data.is_empty() { None } else { to_raw_value(&data).ok() };
        Ok(DataOnlyMessage { metadata, uris })
    }

    /// Returns the data that goes to the agent; the rest is not sent.
    ///
    /// # Errors
    ///
    /// The problem, in words: the data exceeds the bound, or has too many members.
    pub(super) fn passing(&self) -> Result<MessageExtensions<'a>, String> {
        let mut passing = MessageExtensions::default();
        let Some(given) = self.given.filter(|_| !self.active.is_empty()) else { return Ok(passing) };
        if given.are_too_many {
            return Err(format!(
                "More than {MOST_EXTENSIONS} names in _meta may be URIs of extensions. Give their data inside of {EXTENSIONS:?}."
            ));
        }
        let mut left = MOST_BYTES;
        let inside = |value: &'a RawValue| serde_json::from_str::<ExtensionData<'a>>(value.get()).ok();
        let inside = given.inside.and_then(inside).unwrap_or_default();
        let named = given.named.iter().map(|(name, value)| (name.as_str().to_owned(), *value));
        for (name, value) in named.chain(inside) {
            let Some(uri) = owner(&name, self.active) else { continue };
            left = left.checked_sub(size(&name, value)).ok_or_else(|| {
                format!("The data of extensions in _meta has more than {MOST_BYTES} bytes altogether.")
            })?;
            passing.data.insert(name, value);
            if !passing.uris.contains(uri) {
                passing.uris.push(uri.clone());
            }
        }
        Ok(passing)
    }
}

/// Returns true if a member of metadata belongs to an extension: its name is the URI, or begins
/// with it.
fn is_of(name: &str, uri: &str) -> bool {
    name.strip_prefix(uri).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '#', '?']))
}

/// Returns the active extension of a metadata member: the one with the longest URI that matches.
fn owner<'a>(name: &str, active: &'a [String]) -> Option<&'a String> {
    active.iter().filter(|uri| is_of(name, uri)).max_by_key(|uri| uri.len())
}

fn size(name: &str, value: &RawValue) -> usize {
    written(name).saturating_add(value.get().len())
}

/// Returns the encoded length of a name in bytes: escaped characters take several.
fn written(name: &str) -> usize {
    serde_json::to_string(name).map_or(usize::MAX, |json| json.len())
}

/// An agent's data of extensions.
#[derive(Serialize)]
struct AgentExtensions<'a> {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    task: ExtensionData<'a>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    message: ExtensionData<'a>,
    /// Data by artifact id.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    artifacts: BTreeMap<&'a str, ExtensionData<'a>>,
    /// Number of members that were omitted for their size.
    #[serde(skip_serializing_if = "is_none")]
    omitted: usize,
}

fn is_none(count: &usize) -> bool {
    *count == 0
}

/// Returns the agent's data of the active extensions, from the metadata of the task, of its reply
/// or last status and of artifacts; `None` if there is none.
///
/// At most 64 KiB of names, ids of artifacts and values, in the order of that list, and of no more
/// than 100 artifacts. The rest is counted, as far as its names are known (see
/// `output::CollectedMetadata`).
pub fn told(work: &AgentOutput, active: &[String]) -> Option<Box<RawValue>> {
    if active.is_empty() {
        return None;
    }
    let mut taking = BoundedCollector { active, left: MOST_BYTES, omitted: 0 };
    let task = taking.keep(work.metadata.members().map(|(name, value)| (name.to_owned(), value)).collect());
    taking.omitted += work.metadata.omitted().filter(|name| owner(name, active).is_some()).count();
    let message = work.reply.as_deref().or(work.status.as_deref());
    let message = taking.take(message.and_then(|message| message.metadata.as_deref()));
    let mut artifacts = BTreeMap::new();
    for artifact in work.artifacts() {
        let (id, left) = (artifact.artifact_id.as_str(), taking.left);
        let room = left.checked_sub(written(id)).filter(|_| artifacts.len() < MOST_ARTIFACTS);
        // Without room nothing is collected, and all is counted.
        taking.left = room.unwrap_or(0);
        let data = taking.take(artifact.metadata.as_deref());
        if data.is_empty() {
            taking.left = left;
        } else {
            artifacts.insert(id, data);
        }
    }
    let told = AgentExtensions { task, message, artifacts, omitted: taking.omitted };
    let is_nothing = told.task.is_empty() && told.message.is_empty() && told.artifacts.is_empty();
    if is_nothing && told.omitted == 0 { None } else { to_raw_value(&told).ok() }
}

/// Collects data from metadata until the room is used up.
struct BoundedCollector<'a> {
    active: &'a [String],
    left: usize,
    omitted: usize,
}

impl BoundedCollector<'_> {
    fn take<'m>(&mut self, metadata: Option<&'m RawValue>) -> ExtensionData<'m> {
        let members = metadata.and_then(|json| serde_json::from_str::<ExtensionData<'m>>(json.get()).ok());
        self.keep(members.unwrap_or_default())
    }

    fn keep<'m>(&mut self, mut data: ExtensionData<'m>) -> ExtensionData<'m> {
        data.retain(|name, value| {
            if owner(name, self.active).is_none() {
                return false;
            }
            let left = self.left.checked_sub(size(name, value));
            self.left = left.unwrap_or(self.left);
            self.omitted += usize::from(left.is_none());
            left.is_some()
        });
        data
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::a2a::{Dialect, StreamResponse};
    use crate::mcp::params::RequestMeta;

    const TRACE: &str = "https://example.test/ext/trace/v1";

    fn active() -> Vec<String> {
        vec![TRACE.to_owned(), "urn:money".to_owned()]
    }

    /// Returns the part of this `_meta` that goes to an agent: its metadata and its extensions.
    fn passed(meta: &str) -> Result<(String, Vec<String>), String> {
        let meta: RequestMeta<'_> = serde_json::from_str(meta).unwrap();
        let active = active();
        let passing = ClientExtensions { given: Some(&meta.extensions), active: &active }.passing()?;
        Ok((serde_json::to_string(&passing.data).unwrap(), passing.uris))
    }

    #[test]
    fn only_members_of_active_extensions_are_forwarded() {
        for (meta, data, uris) in [
            (r#"{"progressToken":1,"io.example/x":{}}"#, "{}", &[][..]),
            (
                r#"{"https://example.test/ext/trace/v1":{"id": 1.0}}"#,
                r#"{"https://example.test/ext/trace/v1":{"id": 1.0}}"#,
                &[TRACE],
            ),
            (
                r#"{"https://example.test/ext/trace/v1/id":"7","https://example.test/ext/trace/v1#at":1}"#,
                r##"{"https://example.test/ext/trace/v1#at":1,"https://example.test/ext/trace/v1/id":"7"}"##,
                &[TRACE],
            ),
            (
                r#"{"mcp-a2a-gateway/extensions":{"urn:money":[],"urn:other":1,"plain":2}}"#,
                r#"{"urn:money":[]}"#,
                &["urn:money"],
            ),
            (r#"{"https://example.test/ext/trace/v12":1,"urn:other":1,"urn:moneybag":1}"#, "{}", &[]),
            (r#"{"mcp-a2a-gateway/extensions":"urn:money"}"#, "{}", &[]),
        ] {
            let (found, named) = passed(meta).unwrap();
            assert_eq!(
                (found.as_str(), named),
                (data, uris.iter().map(ToString::to_string).collect()),
                "{meta}"
            );
        }
        let large = format!(r#"{{"urn:money":"{}"}}"#, "x".repeat(MOST_BYTES));
        assert!(passed(&large).unwrap_err().contains("65536"));
        assert_eq!(passed(&large.replace("money", "other")).unwrap().0, "{}", "what stays here may be large");
    }

    #[test]
    fn names_of_others_never_crowd_out_what_is_given() {
        let others = |count: usize| (0..count).map(|at| format!(r#""urn:{at}":1,"#)).collect::<String>();
        for (count, fits) in [(MOST_EXTENSIONS, true), (MOST_EXTENSIONS + 1, false)] {
            let meta = format!(r#"{{{}"mcp-a2a-gateway/extensions":{{"urn:money":1}}}}"#, others(count));
            let found = passed(&meta);
            match fits {
                true => assert_eq!(found.unwrap().0, r#"{"urn:money":1}"#),
                false => assert!(found.unwrap_err().contains("More than 32 names")),
            }
            let meta: RequestMeta<'_> = serde_json::from_str(&meta).unwrap();
            let idle = ClientExtensions { given: Some(&meta.extensions), active: &[] }.passing().unwrap();
            assert!(idle.data.is_empty(), "where nothing passes nothing is too much");
        }
        let twice = r#"{"mcp-a2a-gateway/extensions":{},"mcp-a2a-gateway/extensions":{}}"#;
        assert!(serde_json::from_str::<RequestMeta<'_>>(twice).is_err());
    }

    #[test]
    fn data_is_of_the_extension_whose_uri_says_most_of_its_name() {
        let bill = ["https://x.test/bill", "https://x.test/bill/v2", "https://x.test/bill/v2/eur"];
        let active: Vec<String> = bill.iter().map(ToString::to_string).collect();
        for (name, uri) in [
            ("https://x.test/bill/v2", bill[1]),
            ("https://x.test/bill/v2#sum", bill[1]),
            ("https://x.test/bill/v2/eur", bill[2]),
            ("https://x.test/bill/v20", bill[0]),
        ] {
            let meta = format!(r#"{{"{name}":1}}"#);
            let meta: RequestMeta<'_> = serde_json::from_str(&meta).unwrap();
            let offered = ClientExtensions { given: Some(&meta.extensions), active: &active };
            assert_eq!(offered.passing().unwrap().uris, [uri], "{name}");
        }
    }

    /// Returns the output after these responses of an agent.
    fn work(results: &[&str]) -> AgentOutput {
        let mut work = AgentOutput::new(1 << 22);
        for result in results {
            let answer = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#);
            let event: StreamResponse = Dialect::V1.event(answer.as_bytes()).unwrap();
            work.apply(event).unwrap();
        }
        work
    }

    #[test]
    fn extension_members_are_returned_by_place() {
        let task = r#"{"task":{"id":"t","status":{"state":"TASK_STATE_WORKING"},
            "metadata":{"urn:money":1,"https://example.test/ext/trace/v1":{"a": 1.0},"plain":2,"urn:other":3},
            "artifacts":[{"artifactId":"one","parts":[{"text":"x"}],"metadata":{"urn:money":2}},{"artifactId":"two","parts":[]}]}}"#;
        let status = r#"{"statusUpdate":{"taskId":"t","metadata":{"urn:money":5,"progress":1},
            "status":{"state":"TASK_STATE_COMPLETED","message":{"role":"ROLE_AGENT","parts":[],"metadata":{"urn:money":3}}}}}"#;
        let reply =
            r#"{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[],"metadata":{"urn:money":4}}}"#;
        let bare = r#"{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[],"metadata":{"plain":4}}}"#;
        for (results, expected) in [
            (
                &[task, status][..],
                Some(
                    r#"{"task":{"https://example.test/ext/trace/v1":{"a": 1.0},"urn:money":5},"message":{"urn:money":3},"artifacts":{"one":{"urn:money":2}}}"#,
                ),
            ),
            (&[reply], Some(r#"{"message":{"urn:money":4}}"#)),
            (&[bare], None),
        ] {
            let found = told(&work(results), &active());
            assert_eq!(found.as_deref().map(RawValue::get), expected);
        }
        assert!(told(&work(&[reply]), &[]).is_none(), "nothing is active");
    }

    #[test]
    fn extension_members_are_bounded() {
        let large = "x".repeat(40_000);
        let task = format!(
            r#"{{"task":{{"id":"t","status":{{"state":"TASK_STATE_WORKING"}},"metadata":{{"urn:money":"{large}","{TRACE}":"{large}"}}}}}}"#
        );
        let found = told(&work(&[&task]), &active()).unwrap();
        assert!(found.get().len() < MOST_BYTES && found.get().ends_with(r#""omitted":1}"#));
        let artifact = |at: usize, pad: usize, value: &str| {
            let id = "i".repeat(pad);
            format!(r#"{{"artifactId":"{id}{at}","parts":[],"metadata":{{"urn:money":{value},"plain":1}}}}"#)
        };
        let quoted = format!("{large:?}");
        for (count, pad, value, kept) in
            [(60, 50_000, "1", 1), (150, 0, "1", MOST_ARTIFACTS), (3, 0, quoted.as_str(), 1)]
        {
            let artifacts: Vec<String> = (0..count).map(|at| artifact(at, pad, value)).collect();
            let task = format!(
                r#"{{"task":{{"id":"t","status":{{"state":"TASK_STATE_WORKING"}},"artifacts":[{}]}}}}"#,
                artifacts.join(",")
            );
            let found = told(&work(&[&task]), &active()).unwrap();
            assert!(found.get().len() < MOST_BYTES, "{count}: {}", found.get().len());
            let found: serde_json::Value = serde_json::from_str(found.get()).unwrap();
            let told = found["artifacts"].as_object().map_or(0, serde_json::Map::len);
            assert_eq!((told, found["omitted"].as_u64()), (kept, Some((count - kept) as u64)));
        }
    }

    #[test]
    fn a_task_that_has_metadata_replaces_what_was_said_before() {
        let status = r#"{"statusUpdate":{"taskId":"t","metadata":{"urn:money":"OLD"},"status":{"state":"TASK_STATE_WORKING"}}}"#;
        let task =
            r#"{"task":{"id":"t","status":{"state":"TASK_STATE_COMPLETED"},"metadata":{"urn:money":"NEW"}}}"#;
        let bare = r#"{"task":{"id":"t","status":{"state":"TASK_STATE_COMPLETED"}}}"#;
        for (results, expected) in [([status, task], "NEW"), ([status, bare], "OLD")] {
            let found = told(&work(&results), &active()).unwrap();
            assert_eq!(found.get(), format!(r#"{{"task":{{"urn:money":"{expected}"}}}}"#));
        }
    }
}
