//! An agent's push, and its form for a client of another version.
//!
//! Follows `docs/spec/a2a.md` §3.4. Agents of 0.1 to 0.3 push the task itself, those of 1.0 the
//! event of a stream, and some push 1.0 regardless of the version of the registration: so the body
//! is classified by its shape.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::super::dialect::Dialect;
use super::super::error::AgentError;
use super::super::lenient::{LenientObject, LenientString};
use super::super::lenient::{MAX_DEPTH, depth_within};
use super::super::model::{StreamResponse, Task};
use super::super::operation::Operation;
use super::super::push::push_task_id;
use super::request::ClientRequest;
use super::response::AgentResponse;
use super::response::ResponseTranslator;

/// The body of a push.
pub(crate) struct PushPayload<'a> {
    said: &'a str,
    dialect: Dialect,
    form: PayloadKind,
    task_id: Option<String>,
}

/// The kind of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PayloadKind {
    /// A task, by itself.
    Task,
    /// A task in the wrapper of 1.0.
    WrappedTask,
    /// An update or a message, by itself.
    Event,
    /// An update or a message in the wrapper of 1.0.
    WrappedEvent,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PayloadShape<'a> {
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow)]
    task: Option<&'a RawValue>,
    #[serde(borrow)]
    status_update: Option<&'a RawValue>,
    #[serde(borrow)]
    artifact_update: Option<&'a RawValue>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    #[serde(default)]
    kind: LenientString,
    #[serde(default)]
    id: LenientString,
    #[serde(default)]
    task_id: LenientString,
    #[serde(default)]
    status: LenientObject<StatusShape>,
    #[serde(borrow)]
    artifact: Option<&'a RawValue>,
    #[serde(borrow, rename = "final")]
    last: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StatusShape {
    state: LenientString,
}

impl<'a> PushPayload<'a> {
    /// Reads a body of at most [`MAX_PUSH_BYTES`](super::super::push::MAX_PUSH_BYTES) from an agent
    /// with the dialect `from`.
    ///
    /// `None` if it is neither a task nor an event of any version, or could be read as two of them.
    pub(crate) fn read(json: &'a str, from: Dialect) -> Option<Self> {
        if !depth_within(json.as_bytes(), MAX_DEPTH) {
            return None;
        }
        let mut said = json;
        let mut shape: PayloadShape<'a> = serde_json::from_str(json).ok()?;
        // Some agents send a whole JSON-RPC message.
        if let Some(inner) = shape.result.or(shape.params) {
            if shape.result.is_some() && shape.params.is_some() {
                return None;
            }
            said = inner.get();
            shape = serde_json::from_str(said).ok()?;
        }
        let (dialect, form) = shape.recognised(from)?;
        Some(Self { said, dialect, form, task_id: push_task_id(said.as_bytes()) })
    }

    /// Returns the body, without a JSON-RPC envelope.
    pub(crate) fn json(&self) -> &'a str {
        self.said
    }

    /// Returns the agent's id of the task, if the body names one.
    pub(crate) fn task_id(&self) -> Option<&str> {
        self.task_id.as_deref()
    }

    /// Returns true if a client of this version can read the body unchanged.
    pub(crate) fn is_for(&self, to: Dialect) -> bool {
        self.dialect == to
            && (to != Dialect::V1
                || matches!(self.form, PayloadKind::WrappedTask | PayloadKind::WrappedEvent))
    }

    /// Returns true if the body contains everything for a client of this version. If not, the
    /// client expects the task, and this is only a part of one.
    pub(crate) fn is_complete(&self, to: Dialect) -> bool {
        to == Dialect::V1 || matches!(self.form, PayloadKind::Task | PayloadKind::WrappedTask)
    }

    /// Decodes the body.
    ///
    /// # Errors
    ///
    /// [`AgentError`] if the content contradicts its shape.
    pub(crate) fn answer(&self) -> Result<AgentResponse, AgentError> {
        let wrapped = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{}}}"#, self.said);
        AgentResponse::read(self.dialect, Operation::Subscribe, wrapped.as_bytes())
    }
}

impl PayloadShape<'_> {
    fn recognised(&self, from: Dialect) -> Option<(Dialect, PayloadKind)> {
        let wrappers = [self.task, self.status_update, self.artifact_update, self.message];
        let is_object = |value: &&RawValue| value.get().starts_with('{');
        let (id, task_id) = (self.id.0.is_some(), self.task_id.0.is_some());
        match wrappers.iter().flatten().filter(|value| is_object(value)).count() {
            0 => {}
            1 if self.kind.0.is_none() && self.status.0.is_none() => {
                let form =
                    if self.task.is_some() { PayloadKind::WrappedTask } else { PayloadKind::WrappedEvent };
                return Some((Dialect::V1, form));
            }
            _ => return None,
        }
        match self.kind.0.as_deref() {
            Some("task") => return Some((Dialect::V0_3, PayloadKind::Task)),
            Some("status-update" | "artifact-update" | "message") => {
                return Some((Dialect::V0_3, PayloadKind::Event));
            }
            Some("") | None => {}
            Some(_) => return None,
        }
        let state = self.status.0.as_ref().map(|status| status.state.0.as_deref().unwrap_or_default());
        let dialect = match (state, from) {
            (Some(state), _) if state.starts_with("TASK_STATE_") => Dialect::V1,
            (_, Dialect::V0_1) => Dialect::V0_1,
            (_, Dialect::V0_3 | Dialect::V1) => Dialect::V0_3,
        };
        let is_update = self.last.is_some() || self.artifact.is_some() || (task_id && !id);
        match (state.is_some() || self.artifact.is_some(), id || task_id) {
            (true, true) if is_update => Some((dialect, PayloadKind::Event)),
            (true, true) => Some((dialect, PayloadKind::Task)),
            _ => None,
        }
    }
}

impl AgentResponse {
    /// Creates a response from a task that an agent returned in this version.
    pub fn of_task(task: Task, from: Dialect) -> Self {
        Self::event(StreamResponse::Task(task), from)
    }

    /// Encodes the body of a push for a client of this version, under the client's id of the task;
    /// `None` if the version cannot express it.
    pub fn pushed(self, to: Dialect, task_id: &str) -> Option<Vec<u8>> {
        #[derive(serde::Serialize)]
        struct PayloadParams<'a> {
            id: &'a str,
        }
        let params = serde_json::value::to_raw_value(&PayloadParams { id: task_id }).ok()?;
        // The receiver of a push has the task already: no initial event is generated.
        let request = ClientRequest::read(to, Operation::Subscribe, Some(&params)).ok()?;
        let mut telling = ResponseTranslator::new(to, &request);
        match to {
            Dialect::V0_1 | Dialect::V0_3 => telling.result(self).ok(),
            Dialect::V1 => telling.events(self).into_iter().next(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Dialect::{V0_1, V0_3, V1};

    fn told(body: &str, from: Dialect, to: Dialect) -> Option<String> {
        let pushed = PushPayload::read(body, from)?;
        let written = pushed.answer().unwrap().pushed(to, "t")?;
        String::from_utf8(written).ok()
    }

    #[test]
    fn the_shape_tells_the_version() {
        for (body, from, dialect, form) in [
            (r#"{"kind":"task","id":"t","status":{"state":"completed"}}"#, V0_3, V0_3, PayloadKind::Task),
            (r#"{"kind":"task","id":"t","status":{"state":"completed"}}"#, V1, V0_3, PayloadKind::Task),
            (r#"{"kind":"status-update","taskId":"t","status":{}}"#, V0_3, V0_3, PayloadKind::Event),
            (r#"{"task":{"id":"t","status":{}}}"#, V0_3, V1, PayloadKind::WrappedTask),
            (r#"{"statusUpdate":{"taskId":"t","status":{}}}"#, V1, V1, PayloadKind::WrappedEvent),
            (r#"{"message":{"messageId":"m","taskId":"t"}}"#, V1, V1, PayloadKind::WrappedEvent),
            (r#"{"id":"t","status":{"state":"TASK_STATE_WORKING"}}"#, V1, V1, PayloadKind::Task),
            (r#"{"taskId":"t","status":{"state":"TASK_STATE_WORKING"}}"#, V1, V1, PayloadKind::Event),
            (r#"{"id":"t","sessionId":"s","status":{"state":"working"}}"#, V0_1, V0_1, PayloadKind::Task),
            (r#"{"id":"t","status":{"state":"working"},"final":false}"#, V0_1, V0_1, PayloadKind::Event),
            (r#"{"id":"t","artifact":{"parts":[]}}"#, V0_1, V0_1, PayloadKind::Event),
            (
                r#"{"jsonrpc":"2.0","id":1,"result":{"task":{"id":"t","status":{}}}}"#,
                V1,
                V1,
                PayloadKind::WrappedTask,
            ),
            (
                r#"{"method":"x","params":{"id":"t","status":{"state":"working"}}}"#,
                V0_1,
                V0_1,
                PayloadKind::Task,
            ),
        ] {
            let pushed = PushPayload::read(body, from).unwrap_or_else(|| panic!("{body}"));
            assert_eq!((pushed.dialect, pushed.form), (dialect, form), "{body}");
            assert_eq!(pushed.task_id(), Some("t"), "{body}");
            assert!(!pushed.json().contains("result") && !pushed.json().contains("params"));
        }
    }

    #[test]
    fn ambiguous_payloads_are_refused() {
        for body in [
            "",
            "[]",
            "7",
            "{}",
            r#"{"id":"t"}"#,
            r#"{"kind":"surprise","id":"t","status":{}}"#,
            r#"{"task":{"id":"t"},"statusUpdate":{"taskId":"u"}}"#,
            r#"{"task":{"id":"t"},"task":{"id":"u"}}"#,
            r#"{"kind":"task","id":"t","status":{},"task":{"id":"u"}}"#,
            r#"{"result":{"id":"t","status":{}},"params":{"id":"u","status":{}}}"#,
            r#"{"result":{"result":{"id":"t","status":{}}}}"#,
        ] {
            assert!(PushPayload::read(body, V1).is_none(), "{body}");
        }
        let deep = format!(r#"{{"task":{{"id":"t","metadata":{}{}}}}}"#, "[".repeat(5000), "]".repeat(5000));
        assert!(PushPayload::read(&deep, V1).is_none());
    }

    #[test]
    fn a_client_reads_what_servers_of_its_version_push() {
        let new = r#"{"task":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_COMPLETED"}}}"#;
        let old = r#"{"kind":"task","id":"t","contextId":"c","status":{"state":"completed"}}"#;
        let oldest = r#"{"id":"t","sessionId":"c","status":{"state":"completed"}}"#;
        for (body, from, to, expected) in [
            (new, V1, V0_3, r#""kind":"task""#),
            (new, V1, V0_1, r#""sessionId":"c""#),
            (old, V0_3, V1, r#"{"task":{"id":"t""#),
            (oldest, V0_1, V1, r#""state":"TASK_STATE_COMPLETED""#),
            (oldest, V0_1, V0_3, r#""contextId":"c""#),
        ] {
            let told = told(body, from, to).unwrap();
            assert!(told.contains(expected) && told.contains(r#""id":"t""#), "{told}");
        }
        let update = r#"{"kind":"status-update","taskId":"t","contextId":"c","status":{"state":"working"}}"#;
        assert!(told(update, V0_3, V1).unwrap().starts_with(r#"{"statusUpdate":{"taskId":"t""#));
        assert_eq!(told(update, V0_3, V0_3), None, "an update is no task");
        assert!(!PushPayload::read(update, V0_3).unwrap().is_complete(V0_1));
        let bare = r#"{"id":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING"}}"#;
        assert!(!PushPayload::read(bare, V1).unwrap().is_for(V1));
        assert!(told(bare, V1, V1).unwrap().starts_with(r#"{"task":{"#));
    }
}
