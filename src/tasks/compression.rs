//! Finished tasks that were not used for a while: each is its compressed row until it is used again.
//!
//! The row is that of the journal, with the parts of the state that a restart loses. A state of which the
//! row would lose anything is not compressed, and one that is read is whole again, so that only the memory
//! tells the difference. Ids, field names and short texts are little to compress alone: a dictionary has
//! the members of a usual row.

use std::io;
use std::sync::LazyLock;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use tracing::error;
use zstd::bulk::{Compressor, Decompressor};
use zstd::dict::{DecoderDictionary, EncoderDictionary};

use super::entry::TaskEntry;
use super::entry_state::EntryState;
use super::journal::{RestorePolicy, TaskRecord};
use super::{RowContent, Timestamp};
use crate::a2a::TaskState;
use crate::bridge::output::{AgentOutput, ProgressUpdate};
use crate::bridge::resource_view::EventLog;
use crate::fault::AgentFailure;

/// Largest state that is compressed, in bytes: to read it again takes time on the thread of a request.
const MAX_STATE_BYTES: usize = 64 * 1024;
/// Level of zstd: higher ones gain nothing on texts of some kilobytes.
const LEVEL: i32 = 1;

/// The row of a usual task, without a text. A change of the row is no fault, and makes rows larger.
const DICTIONARY: &[u8] = br#"TASK_STATE_FAILED","message":{"messageId":"","role":"ROLE_AGENT","parts":[{"text":""}],"mediaType":"application/json","metadata":{"data":{"progress":null,"omitted":[],"phases":[["",null]],"owners":["oauth:anonymous"],"client":{"name":"","version":""},"StatusUpdate"{"record":{"agent":"","local":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0],"task":{"id":"","contextId":"","status":{"state":"TASK_STATE_COMPLETED","timestamp":"2026-01-01T00:00:00.000Z"},"artifacts":[{"artifactId":"","name":"result","parts":[{"text":""}]}]},"skill":null,"owners":[""],"client":null,"created":1790000000000,"changed":1790000000000,"cancelled":false,"omitted":[],"phases":[],"phase_artifacts":[],"shed":false,"lost":false,"turns":[],"left":[],"position":{"epoch":0,"number":0}},"events":{"total":4,"recent":[{"unix_ms":1790000000000,"summary":{"artifacts":0,"state":"submitted","text":null}},{"unix_ms":1790000000000,"summary":{"state":"working","text":null}},{"unix_ms":1790000000000,"summary":{"append":false,"artifactId":"","bytes":1024,"lastChunk":true,"name":"result"}},{"unix_ms":1790000000000,"summary":{"state":"completed","text":null}}],"bytes":256},"last":{"text":"completed","progress":null,"total":null},"updates":3,"connections":1,"is_over":true,"has_local_handle":false,"keeps_artifacts":false,"max_artifact_bytes":1048576}"#;

static ENCODER: LazyLock<EncoderDictionary<'static>> =
    LazyLock::new(|| EncoderDictionary::copy(DICTIONARY, LEVEL));
static DECODER: LazyLock<DecoderDictionary<'static>> = LazyLock::new(|| DecoderDictionary::copy(DICTIONARY));

/// The state of a task, whole or compressed.
#[derive(Debug)]
pub(super) struct StoredState {
    /// Empty while the state is compressed.
    whole: Option<Box<EntryState>>,
    compressed: Option<Box<CompressedState>>,
}

/// The state of a finished task as its compressed row.
#[derive(Debug)]
pub(super) struct CompressedState {
    row: Box<[u8]>,
    /// Bytes of the row before it was compressed.
    row_bytes: u32,
    /// State that the agent reported.
    pub(super) state: TaskState,
    /// Time of the last change.
    pub(super) changed: Timestamp,
    /// Callers that hold a handle: an eviction must not expand the row.
    pub(super) owners: Box<[Box<str>]>,
}

impl StoredState {
    pub(super) fn new(state: EntryState) -> Self {
        Self { whole: Some(Box::new(state)), compressed: None }
    }

    /// Returns the compressed form, if the state has it.
    pub(super) fn compressed(&self) -> Option<&CompressedState> {
        self.compressed.as_deref()
    }

    /// Returns the state, and true if it was compressed. It is whole from now on.
    pub(super) fn expand(&mut self) -> (&mut EntryState, bool) {
        let compressed = self.compressed.take();
        let was_compressed = compressed.is_some();
        let state = self.whole.get_or_insert_with(|| Box::new(expanded(compressed.as_deref())));
        (state, was_compressed)
    }

    /// Calls `look` with the state. It stays compressed, if it is: for passes over all tasks.
    pub(super) fn peek<R>(&self, look: impl FnOnce(&EntryState) -> R) -> R {
        match &self.whole {
            Some(state) => look(state),
            None => look(&expanded(self.compressed())),
        }
    }

    /// Returns the state itself.
    pub(super) fn into_whole(self) -> EntryState {
        match self.whole {
            Some(state) => *state,
            None => expanded(self.compressed.as_deref()),
        }
    }

    /// Compresses the state, unless the row would lose something of it. Returns true if it did.
    pub(super) fn compress(
        &mut self,
        entry: &TaskEntry,
        compressor: &mut StateCompressor,
        now: Instant,
    ) -> bool {
        let Some(state) = &mut self.whole else { return false };
        if !is_compressible(state, now) {
            return false;
        }
        // Of no meaning for a finished task.
        state.expected = None;
        let Some(compressed) = compressor.compress(entry, state) else { return false };
        (self.whole, self.compressed) = (None, Some(Box::new(compressed)));
        true
    }
}

/// Returns a compressed state. If it is unreadable, which is a fault of the gateway, the task has failed.
fn expanded(compressed: Option<&CompressedState>) -> EntryState {
    compressed.and_then(CompressedState::expanded).unwrap_or_else(|| {
        error!("compressed task is unreadable");
        let mut state = EntryState::new(AgentOutput::new(0), Timestamp::now());
        state.over = Some(Err(AgentFailure::Internal("its compressed state is unreadable")));
        state
    })
}

/// Row of a state: that of the journal, and the parts that a restart loses.
#[derive(Serialize, Deserialize)]
struct StateRow {
    record: TaskRecord,
    events: EventLog,
    last: Option<ProgressUpdate>,
    updates: u64,
    connections: u32,
    is_over: bool,
    has_local_handle: bool,
    keeps_artifacts: bool,
    max_artifact_bytes: usize,
}

/// Compresses states, one after the other.
pub(super) struct StateCompressor(Compressor<'static>);

impl StateCompressor {
    /// Returns a compressor with memory of its own.
    ///
    /// # Errors
    ///
    /// An error if the library has no memory.
    pub(super) fn new() -> io::Result<Self> {
        Compressor::with_prepared_dictionary(&ENCODER).map(Self)
    }

    /// Returns the state of the entry compressed, which must be compressible; `None` if its row cannot be read
    /// back.
    pub(super) fn compress(&mut self, entry: &TaskEntry, inside: &EntryState) -> Option<CompressedState> {
        let state = inside.work.state?;
        let row = StateRow {
            record: entry.record(inside, RowContent::Output(usize::MAX)),
            events: inside.events.clone(),
            last: inside.last.clone(),
            updates: inside.updates,
            connections: inside.connections,
            is_over: inside.over == Some(Ok(())),
            has_local_handle: inside.has_local_handle,
            keeps_artifacts: inside.keeps_artifacts,
            max_artifact_bytes: inside.work.max_artifact_bytes(),
        };
        let row = serde_json::to_vec(&row).ok()?;
        let row_bytes = u32::try_from(row.len()).ok()?;
        let row = self.0.compress(&row).ok()?.into_boxed_slice();
        let owners = inside.owners.clone().into_boxed_slice();
        let compressed = CompressedState { row, row_bytes, state, changed: inside.changed, owners };
        // A row that cannot be read back must not take the place of the state, no matter what it has of its agent.
        let expanded = compressed.expanded()?;
        debug_assert_eq!(
            format!("{expanded:?}"),
            format!("{inside:?}"),
            "a state changes when it is compressed"
        );
        Some(compressed)
    }
}

impl CompressedState {
    /// Returns the size in bytes.
    pub(super) fn bytes(&self) -> usize {
        let owners = self.owners.iter().map(|owner| owner.len() + size_of::<Box<str>>());
        size_of::<Self>() + self.row.len() + owners.sum::<usize>()
    }

    /// Returns the state. `None` only after a fault of the memory.
    pub(super) fn expanded(&self) -> Option<EntryState> {
        let mut decompressor = Decompressor::with_prepared_dictionary(&DECODER).ok()?;
        let row = decompressor.decompress(&self.row, usize::try_from(self.row_bytes).ok()?).ok()?;
        let row: StateRow = serde_json::from_slice(&row).ok()?;
        let policy = RestorePolicy { artifact_bytes: row.max_artifact_bytes, may_be_named: false };
        let (_, entry) = row.record.into_entry(policy, self.changed)?;
        let mut inside = entry.into_state();
        inside.changed = self.changed;
        inside.events = row.events;
        inside.last = row.last;
        inside.updates = row.updates;
        inside.connections = row.connections;
        inside.over = inside.over.or_else(|| row.is_over.then_some(Ok(())));
        inside.is_acknowledged = true;
        inside.has_local_handle = row.has_local_handle;
        inside.keeps_artifacts = row.keeps_artifacts;
        // Its owners were notified before.
        inside.streaming_changed();
        Some(inside)
    }
}

/// Returns true if the row of a state loses nothing of it.
fn is_compressible(inside: &EntryState, now: Instant) -> bool {
    let is_idle = inside.watchers == 0 && !inside.is_followed && inside.shared.is_none();
    let is_settled = !inside.cancel_wanted && inside.delay.is_none();
    inside.is_acknowledged
        && is_idle
        && inside.expected.is_none_or(|until| until <= now)
        && is_settled
        && matches!(inside.over, None | Some(Ok(())))
        && inside.turns.is_unused()
        && inside.work.is_whole_in_task()
        && inside.bytes() <= MAX_STATE_BYTES
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::a2a::Dialect;
    use crate::tasks::AnswerClaim;

    const ID: &str = "5b1f3c0a-5b1f-4c0e-9d5a-3f0f6a1c2b7d";

    /// Returns a task of which the agent reported these results.
    fn entry(results: &[&str]) -> TaskEntry {
        let entry = TaskEntry::new("weather".into(), [7; 16], AgentOutput::new(1 << 20), Timestamp::now());
        entry.acknowledge();
        for result in results {
            let event = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#);
            entry.apply(Dialect::V1.event(event.as_bytes()).unwrap(), Timestamp::now()).unwrap();
        }
        // As the map does: it notifies the owners.
        entry.with_state(EntryState::streaming_changed);
        entry
    }

    fn status(state: &str, message: &str) -> String {
        format!(
            r#"{{"statusUpdate":{{"taskId":"{ID}","contextId":"c-{ID}","status":{{"state":"{state}"{message},"timestamp":"2026-01-01T00:00:00.000Z"}}}}}}"#
        )
    }

    fn artifact(part: &str) -> String {
        format!(
            r#"{{"artifactUpdate":{{"taskId":"{ID}","contextId":"c-{ID}","artifact":{{"artifactId":"a-{ID}","name":"result","parts":[{part}]}},"lastChunk":true}}}}"#
        )
    }

    const COMPLETED: &str = "TASK_STATE_COMPLETED";
    const MESSAGE: &str = r#","message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"Done: \u00fc \"quoted\""}],"metadata":{"a":[1,2]},"extensions":["urn:x"]}"#;

    fn compressed(entry: &TaskEntry) -> Option<CompressedState> {
        let mut compressor = StateCompressor::new().unwrap();
        entry.peek(|inside| {
            let is_compressible = is_compressible(inside, Instant::now());
            if is_compressible { compressor.compress(entry, inside) } else { None }
        })
    }

    #[test]
    fn nothing_of_a_state_is_lost() {
        for results in [
            vec![status(COMPLETED, "")],
            vec![status(COMPLETED, MESSAGE)],
            vec![status("TASK_STATE_FAILED", MESSAGE)],
            vec![status("TASK_STATE_CANCELED", "")],
            vec![status("TASK_STATE_WORKING", MESSAGE), artifact(r#"{"text":"one"}"#), status(COMPLETED, "")],
            vec![status("TASK_STATE_WORKING", MESSAGE), status(COMPLETED, "")],
            vec![
                artifact(r#"{"text":"la\nla","metadata":{"k":1.50}},{"data":{"b":1,"a":[null,2e3]}}"#),
                artifact(
                    r#"{"raw":"aGVsbG8=","filename":"f.png","mediaType":"image/png"},{"url":"https://x.example/f"}"#,
                ),
                status(COMPLETED, ""),
            ],
            vec![format!(
                r#"{{"task":{{"id":"{ID}","contextId":"c","status":{{"state":"{COMPLETED}"}},"history":[{{"messageId":"h","role":"ROLE_AGENT","parts":[{{"text":"earlier"}}]}}],"artifacts":[{{"artifactId":"a","description":"d","parts":[{{"text":"x"}}]}}],"metadata":{{"urn:a":{{"b":1}},"sparcPhase":"specification"}}}}}}"#
            )],
        ] {
            let entry = entry(&results.iter().map(String::as_str).collect::<Vec<_>>());
            let compressed = compressed(&entry).unwrap_or_else(|| panic!("{results:?} stays"));
            let expanded = compressed.expanded().unwrap();
            entry.peek(|inside| assert_eq!(format!("{expanded:?}"), format!("{inside:?}")));
        }
    }

    #[test]
    fn a_state_stays_as_it_is_while_something_needs_it() {
        let done = || Arc::new(entry(&[&status(COMPLETED, "")]));
        assert!(compressed(&done()).is_some());
        assert!(compressed(&entry(&[&status("TASK_STATE_WORKING", "")])).is_none(), "live");
        assert!(
            compressed(&entry(&[
                &status("TASK_STATE_INPUT_REQUIRED", MESSAGE),
                &artifact(r#"{"text":"x"}"#),
                &status(COMPLETED, "")
            ]))
            .is_some(),
            "its question is gone"
        );
        let uses: [fn(&Arc<TaskEntry>); 4] = [
            |entry| std::mem::forget(entry.watch()),
            |entry| std::mem::forget(entry.begin_following()),
            |entry| entry.request_cancel(),
            |entry| assert_eq!(entry.claim_answer([1; 16], [2; 16]), AnswerClaim::Ours),
        ];
        for (number, act) in uses.iter().enumerate() {
            let entry = done();
            act(&entry);
            assert!(compressed(&entry).is_none(), "use {number}");
        }
        let large = artifact(&format!(r#"{{"text":"{}"}}"#, "x".repeat(MAX_STATE_BYTES)));
        assert!(compressed(&entry(&[&large, &status(COMPLETED, "")])).is_none(), "too large");
    }

    /// The dictionary fits the row: a usual task takes little more than its text.
    #[test]
    fn a_usual_task_takes_little_more_than_its_text() {
        let entry = entry(&[
            &status("TASK_STATE_SUBMITTED", ""),
            &status("TASK_STATE_WORKING", ""),
            &artifact(r#"{"text":"short"}"#),
            &status(COMPLETED, ""),
        ]);
        entry.with_state(|inside| drop(inside.own("oauth:ann")));
        let compressed = compressed(&entry).unwrap();
        assert!(compressed.row.len() <= 200 && compressed.row_bytes > 900, "{compressed:?}");
    }
}
