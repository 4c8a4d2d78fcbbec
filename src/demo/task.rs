//! Tasks: a bounded map of them, and one task with its watchers.
//!
//! A task belongs to the map, not to the request that began it, so it continues when its client
//! leaves.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::DemoError;
use super::skills::DemoSkill;

/// Tasks remembered; the oldest is dropped first.
const MAX_TASKS: usize = 1000;
/// Messages remembered per task.
const MAX_HISTORY: usize = 100;
/// Watchers per task; one more ends the stream of the oldest.
const MAX_WATCHERS: usize = 16;
/// Events that a watcher may lag behind: more than the longest countdown has, so none is lost to a slow reader.
const WATCHER_QUEUE: usize = 512;

/// Every task that the agent remembers.
#[derive(Default)]
pub(super) struct Tasks(Mutex<TaskTable>);

#[derive(Default)]
struct TaskTable {
    by_id: HashMap<String, Arc<DemoTask>>,
    oldest_first: VecDeque<String>,
}

impl Tasks {
    /// Begins a task in state submitted.
    pub(super) fn begin(&self, skill: DemoSkill, context: Option<String>, message: &Value) -> Arc<DemoTask> {
        let task = Arc::new(DemoTask {
            id: new_id(),
            context: context.unwrap_or_else(new_id),
            skill,
            inner: Mutex::new(TaskTableInner {
                state: DemoTaskState::Submitted,
                status: json!({ "state": DemoTaskState::Submitted.word(), "timestamp": now() }),
                artifacts: Vec::new(),
                history: VecDeque::new(),
                watchers: Vec::new(),
            }),
        });
        task.remember(message);
        let mut shelf = lock(&self.0);
        shelf.by_id.insert(task.id.clone(), Arc::clone(&task));
        shelf.oldest_first.push_back(task.id.clone());
        while shelf.oldest_first.len() > MAX_TASKS {
            if let Some(oldest) = shelf.oldest_first.pop_front() {
                shelf.by_id.remove(&oldest);
            }
        }
        task
    }

    /// Returns the task with this id.
    pub(super) fn find(&self, id: &str) -> Result<Arc<DemoTask>, DemoError> {
        lock(&self.0).by_id.get(id).cloned().ok_or(DemoError::NoSuchTask)
    }
}

/// State of a task: those that this agent uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DemoTaskState {
    Submitted,
    Working,
    InputRequired,
    Completed,
    Canceled,
}

impl DemoTaskState {
    fn word(self) -> &'static str {
        match self {
            Self::Submitted => "TASK_STATE_SUBMITTED",
            Self::Working => "TASK_STATE_WORKING",
            Self::InputRequired => "TASK_STATE_INPUT_REQUIRED",
            Self::Completed => "TASK_STATE_COMPLETED",
            Self::Canceled => "TASK_STATE_CANCELED",
        }
    }

    fn is_terminal(self) -> bool {
        match self {
            Self::Completed | Self::Canceled => true,
            Self::Submitted | Self::Working | Self::InputRequired => false,
        }
    }

    /// Returns true if streams close in this state: the client has to act, or nothing more will
    /// happen.
    fn ends_streams(self) -> bool {
        self.is_terminal() || self == Self::InputRequired
    }
}

/// One task.
pub(super) struct DemoTask {
    pub(super) id: String,
    pub(super) context: String,
    pub(super) skill: DemoSkill,
    inner: Mutex<TaskTableInner>,
}

struct TaskTableInner {
    state: DemoTaskState,
    status: Value,
    artifacts: Vec<Value>,
    history: VecDeque<Value>,
    watchers: Vec<mpsc::Sender<Value>>,
}

/// A chunk of an artifact.
pub(super) struct ArtifactChunk<'a> {
    pub(super) artifact: &'static str,
    pub(super) text: &'a str,
    pub(super) append: bool,
    pub(super) last: bool,
}

impl DemoTask {
    /// Returns the task as A2A shows it, with the last `history` messages (all of them if `None`).
    pub(super) fn snapshot(&self, history: Option<usize>) -> Value {
        self.render(&lock(&self.inner), history)
    }

    /// Returns the snapshot, and every event after it; the events end where a stream of this task
    /// ends.
    pub(super) fn watch(&self) -> (Value, mpsc::Receiver<Value>) {
        let (sender, receiver) = mpsc::channel(WATCHER_QUEUE);
        let mut inner = lock(&self.inner);
        inner.watchers.retain(|watcher| !watcher.is_closed());
        if inner.watchers.len() >= MAX_WATCHERS {
            inner.watchers.remove(0);
        }
        // The task may have ended a moment ago; then nothing would ever end this stream.
        if !inner.state.is_terminal() {
            inner.watchers.push(sender);
        }
        (self.render(&inner, None), receiver)
    }

    /// Attaches to a task; an error if it will never change again.
    pub(super) fn resubscribe(&self) -> Result<(Value, mpsc::Receiver<Value>), DemoError> {
        if lock(&self.inner).state.is_terminal() {
            return Err(DemoError::Unsupported("The task is finished: nothing is left to stream"));
        }
        Ok(self.watch())
    }

    /// Accepts the answer to an open question: the task works again. An error if no question is
    /// open.
    pub(super) fn resume(&self, message: &Value) -> Result<(), DemoError> {
        let mut inner = lock(&self.inner);
        match inner.state {
            DemoTaskState::InputRequired => {}
            DemoTaskState::Completed | DemoTaskState::Canceled => {
                return Err(DemoError::Unsupported("The task is finished and takes no more messages"));
            }
            DemoTaskState::Submitted | DemoTaskState::Working => {
                return Err(DemoError::Unsupported("The task is working and takes no message now"));
            }
        }
        inner.remember(message.clone());
        inner.state = DemoTaskState::Working;
        inner.status = json!({ "state": DemoTaskState::Working.word(), "timestamp": now() });
        Ok(())
    }

    /// Cancels the task; its work notices by its next [`DemoTask::report`].
    pub(super) fn cancel(&self) -> Result<Value, DemoError> {
        if !self.report(DemoTaskState::Canceled, Some("Canceled on request.")) {
            return Err(DemoError::NotCancelable);
        }
        Ok(self.snapshot(None))
    }

    /// Moves to `state` and notifies the watchers. Returns false if the task had ended; then
    /// nothing changes.
    #[must_use = "a task that has ended has no more work"]
    pub(super) fn report(&self, state: DemoTaskState, text: Option<&str>) -> bool {
        let mut inner = lock(&self.inner);
        if inner.state.is_terminal() {
            return false;
        }
        let mut status = json!({ "state": state.word(), "timestamp": now() });
        if let (Some(text), Some(status)) = (text, status.as_object_mut()) {
            let message = self.message(text);
            inner.remember(message.clone());
            status.insert("message".into(), message);
        }
        inner.state = state;
        inner.status = status.clone();
        let event = json!({ "taskId": self.id, "contextId": self.context, "status": status });
        inner.tell(&json!({ "statusUpdate": event }));
        if state.ends_streams() {
            inner.watchers.clear();
        }
        true
    }

    /// Adds to an artifact and notifies the watchers. Returns false if the task had ended; then
    /// nothing changes.
    #[must_use = "a task that has ended has no more work"]
    pub(super) fn produce(&self, chunk: &ArtifactChunk<'_>) -> bool {
        let mut inner = lock(&self.inner);
        if inner.state.is_terminal() {
            return false;
        }
        let artifact = json!({
            "artifactId": chunk.artifact,
            "name": format!("{}.txt", chunk.artifact),
            "parts": [{ "text": chunk.text, "mediaType": "text/plain" }],
        });
        inner.store(chunk, &artifact);
        let mut event = json!({ "taskId": self.id, "contextId": self.context, "artifact": artifact });
        if let Some(event) = event.as_object_mut() {
            // As in ProtoJSON: false is left out.
            for (name, _) in
                [("append", chunk.append), ("lastChunk", chunk.last)].iter().filter(|(_, set)| *set)
            {
                event.insert((*name).into(), Value::Bool(true));
            }
        }
        inner.tell(&json!({ "artifactUpdate": event }));
        true
    }

    fn remember(&self, message: &Value) {
        lock(&self.inner).remember(message.clone());
    }

    fn message(&self, text: &str) -> Value {
        json!({
            "messageId": new_id(),
            "role": "ROLE_AGENT",
            "taskId": self.id,
            "contextId": self.context,
            "parts": [{ "text": text }],
        })
    }

    fn render(&self, inner: &TaskTableInner, history: Option<usize>) -> Value {
        let wanted = history.unwrap_or(usize::MAX);
        let skipped = inner.history.len().saturating_sub(wanted);
        let mut task = json!({ "id": self.id, "contextId": self.context, "status": inner.status });
        if let Some(task) = task.as_object_mut() {
            if !inner.artifacts.is_empty() {
                task.insert("artifacts".into(), json!(inner.artifacts));
            }
            if wanted > 0 {
                task.insert("history".into(), inner.history.iter().skip(skipped).cloned().collect());
            }
        }
        task
    }
}

impl TaskTableInner {
    fn remember(&mut self, message: Value) {
        if self.history.len() >= MAX_HISTORY {
            self.history.pop_front();
        }
        self.history.push_back(message);
    }

    fn store(&mut self, chunk: &ArtifactChunk<'_>, artifact: &Value) {
        let known =
            self.artifacts.iter_mut().find(|known| known.get("artifactId") == artifact.get("artifactId"));
        let Some(known) = known else {
            self.artifacts.push(artifact.clone());
            return;
        };
        let text = known.pointer_mut("/parts/0/text");
        match (text, chunk.append) {
            (Some(Value::String(text)), true) => text.push_str(chunk.text),
            _ => *known = artifact.clone(),
        }
    }

    /// Sends an event to the watchers. One that lags too far behind is dropped: its stream ends,
    /// and `GetTask` returns the rest.
    fn tell(&mut self, event: &Value) {
        self.watchers.retain(|watcher| watcher.try_send(event.clone()).is_ok());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a new id: 128 random bits in hexadecimal.
pub(super) fn new_id() -> String {
    format!("{:032x}", rand::random::<u128>())
}

/// Returns the current time, as RFC 3339 with milliseconds.
pub(super) fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let (seconds, days) = (since.as_secs() % 86_400, since.as_secs() / 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", since.subsec_millis())
}

/// Returns year, month and day of a day since 1970 (Hinnant's `civil_from_days`).
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_task_goes_first() {
        let tasks = Tasks::default();
        let first = tasks.begin(DemoSkill::Echo, None, &json!({}));
        let second = tasks.begin(DemoSkill::Echo, None, &json!({}));
        for _ in 0..MAX_TASKS - 1 {
            tasks.begin(DemoSkill::Echo, None, &json!({}));
        }
        assert_eq!(tasks.find(&first.id).err(), Some(DemoError::NoSuchTask));
        assert!(tasks.find(&second.id).is_ok());
    }

    #[test]
    fn the_stream_of_a_finished_task_ends_at_once() {
        let task = Tasks::default().begin(DemoSkill::Countdown, None, &json!({}));
        assert!(task.report(DemoTaskState::Completed, None));
        let (_, mut events) = task.watch();
        assert_eq!(events.try_recv(), Err(mpsc::error::TryRecvError::Disconnected));
    }

    #[test]
    fn a_finished_task_never_changes() {
        let task = Tasks::default().begin(DemoSkill::Countdown, None, &json!({}));
        assert!(task.report(DemoTaskState::Completed, None));
        assert!(!task.report(DemoTaskState::Working, None));
        assert_eq!(task.cancel(), Err(DemoError::NotCancelable));
        assert_eq!(task.snapshot(Some(0))["status"]["state"], "TASK_STATE_COMPLETED");
    }

    #[test]
    fn dates_are_right_around_leap_days_and_centuries() {
        for (days, date) in [
            (0, (1970, 1, 1)),
            (11_016, (2000, 2, 29)),
            (11_017, (2000, 3, 1)),
            (20_088, (2024, 12, 31)),
            (47_540, (2100, 2, 28)),
            (47_541, (2100, 3, 1)),
        ] {
            assert_eq!(civil(days), date, "{days}");
        }
    }
}
