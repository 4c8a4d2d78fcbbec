//! The last events that an agent sent about a task, for the resource of its stream.
//!
//! Pure: the time of an event is an argument. Large contents are counted, not kept: each event is
//! a few hundred bytes. Ids of the agent never appear.

use std::collections::VecDeque;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::output::words;
use crate::a2a::{Message, PartBody, StreamResponse, clean};

/// The software of the client that began a task.
pub use crate::mcp::ClientSoftware;

/// Most events that are kept of one task.
const MAX_EVENTS: usize = 32;
/// Most bytes of the text of one event.
const MAX_TEXT_BYTES: usize = 512;

/// One event.
#[derive(Debug, Clone)]
pub struct LoggedEvent {
    /// The kind of the event: `task`, `message`, `status-update` or `artifact-update`.
    pub kind: &'static str,
    /// Time of arrival, in milliseconds since 1970.
    pub unix_ms: u64,
    /// The event in short, as JSON.
    pub data: Box<RawValue>,
}

/// The last events of a task.
#[derive(Debug, Default)]
pub struct EventLog {
    total: u64,
    recent: VecDeque<LoggedEvent>,
    bytes: usize,
}

impl EventLog {
    /// Records an event. A response to a poll that repeats the event before is not one.
    pub fn record(&mut self, event: &StreamResponse, unix_ms: u64) {
        let Some((kind, data)) = summary(event) else { return };
        let Ok(data) = serde_json::value::to_raw_value(&data) else { return };
        let repeats = |last: &LoggedEvent| last.kind == kind && last.data.get() == data.get();
        if kind == "task" && self.recent.back().is_some_and(repeats) {
            return;
        }
        self.total += 1;
        self.bytes += size(&data);
        self.recent.push_back(LoggedEvent { kind, unix_ms, data });
        if self.recent.len() > MAX_EVENTS
            && let Some(oldest) = self.recent.pop_front()
        {
            self.bytes = self.bytes.saturating_sub(size(&oldest.data));
        }
    }

    /// Returns the number of events so far.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Returns the last events, the oldest first.
    pub fn recent(&self) -> impl Iterator<Item = &LoggedEvent> {
        self.recent.iter()
    }

    /// Returns the size of the kept events in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

fn size(data: &RawValue) -> usize {
    std::mem::size_of::<LoggedEvent>() + data.get().len()
}

fn summary(event: &StreamResponse) -> Option<(&'static str, Value)> {
    Some(match event {
        StreamResponse::Task(task) => {
            let text = task.status.message.as_ref().map(text_of);
            (
                "task",
                json!({ "state": task.status.state.as_str(), "text": text, "artifacts": task.artifacts.len() }),
            )
        }
        StreamResponse::Message(message) => ("message", json!({ "text": text_of(message) })),
        StreamResponse::Status { status, .. } => {
            let text = status.message.as_ref().map(text_of);
            ("status-update", json!({ "state": status.state.as_str(), "text": text }))
        }
        StreamResponse::Artifact { artifact, append, last_chunk, .. } => {
            let bytes: usize = artifact.parts.iter().map(|part| body_bytes(&part.body)).sum();
            let id = clean(&artifact.artifact_id, MAX_TEXT_BYTES);
            let name = artifact.name.as_deref().map(|name| clean(name, MAX_TEXT_BYTES));
            let data = json!({
                "artifactId": id, "name": name, "append": append, "lastChunk": last_chunk, "bytes": bytes,
            });
            ("artifact-update", data)
        }
        StreamResponse::Unknown => return None,
    })
}

fn text_of(message: &Message) -> String {
    clean(&words(message), MAX_TEXT_BYTES)
}

fn body_bytes(body: &PartBody) -> usize {
    match body {
        PartBody::Text(text) | PartBody::Raw(text) | PartBody::Url(text) => text.len(),
        PartBody::Data(json) | PartBody::Unknown(json) => json.get().len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::a2a::{TaskState, TaskStatus};

    fn status(state: TaskState) -> StreamResponse {
        let status = TaskStatus { state, message: None, timestamp: None };
        StreamResponse::Status { task_id: None, context_id: None, status, last: false, metadata: None }
    }

    #[test]
    fn only_the_last_events_are_kept() {
        let mut log = EventLog::default();
        for at in 0..100 {
            log.record(&status(TaskState::Working), at);
        }
        assert_eq!((log.total(), log.recent().count()), (100, MAX_EVENTS));
        assert_eq!(log.recent().next().map(|event| event.unix_ms), Some(68));
        let kept: usize = log.recent().map(|event| size(&event.data)).sum();
        assert_eq!(log.bytes(), kept);
    }

    #[test]
    fn unknown_events_do_not_count() {
        let mut log = EventLog::default();
        log.record(&StreamResponse::Unknown, 1);
        assert_eq!((log.total(), log.bytes()), (0, 0));
    }
}
