//! Maps A2A task states to MCP task statuses and their messages, and changes of the output to
//! notifications. Progress strictly increases.
//!
//! Follows `docs/spec/mcp.md` §2.7, §2.8, §2.13, §2.14, §3.2, §3.3. Core tasks (2025-11-25) and the extension
//! (2026-07-28) have opposite rules for failures: where the core says failed, the extension says
//! completed with an error in the result.

use std::borrow::Cow;

use super::output::{AgentOutput, ProgressUpdate, words};
use crate::a2a::{TaskState, clean};
use crate::jsonrpc::{Id, JsonText};
use crate::mcp::notifications::{self, LoggingLevel};
use crate::mcp::tasks::TaskStatus;
use crate::sse;

/// Maximum length of a status message, in bytes.
const MAX_STATUS_BYTES: usize = 2 * 1024;

/// The state of a task as one client must see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClientTaskStatus {
    /// The state that the agent reports.
    pub state: TaskState,
    /// True if the client has cancelled the task, regardless of the agent's reaction.
    pub cancelled: bool,
    /// True if this client supports an elicitation for the agent's question; else the task is
    /// completed for it, with a handle as its result.
    pub askable: bool,
}

impl ClientTaskStatus {
    /// Returns the status of the output. An agent that responded without a task has completed it.
    pub(crate) fn of(work: &AgentOutput, cancelled: bool, askable: bool) -> Self {
        Self { state: state_of(work), cancelled, askable }
    }

    /// Returns the status of a core task. A cancelled one stays cancelled, even if the agent
    /// finishes it.
    pub(crate) fn core(self) -> TaskStatus {
        match self.state {
            _ if self.cancelled => TaskStatus::Cancelled,
            TaskState::Submitted | TaskState::Working | TaskState::Unknown => TaskStatus::Working,
            TaskState::InputRequired | TaskState::AuthRequired => self.waiting(),
            TaskState::Completed => TaskStatus::Completed,
            TaskState::Failed | TaskState::Rejected => TaskStatus::Failed,
            TaskState::Canceled => TaskStatus::Cancelled,
        }
    }

    /// Returns the status of an extension task. A cancellation is only a request there: the agent's
    /// state counts.
    pub(crate) fn extension(self) -> TaskStatus {
        match self.state {
            TaskState::Submitted | TaskState::Working | TaskState::Unknown => TaskStatus::Working,
            TaskState::InputRequired | TaskState::AuthRequired => self.waiting(),
            TaskState::Completed | TaskState::Failed | TaskState::Rejected => TaskStatus::Completed,
            TaskState::Canceled => TaskStatus::Cancelled,
        }
    }

    fn waiting(self) -> TaskStatus {
        if self.askable { TaskStatus::InputRequired } else { TaskStatus::Completed }
    }
}

/// Returns the state of the output.
pub(super) fn state_of(work: &AgentOutput) -> TaskState {
    if work.reply.is_some() { TaskState::Completed } else { work.state.unwrap_or(TaskState::Submitted) }
}

/// Returns the status in words: the agent's, and the state where they do not include it. Clients
/// show this alone if a task failed. `cancelled` is true if the status beside it is cancelled,
/// which for the extension only the agent decides.
pub fn message(work: &AgentOutput, cancelled: bool) -> Option<String> {
    let said = match state_of(work) {
        TaskState::Failed | TaskState::Rejected | TaskState::Canceled => work.reason(),
        TaskState::Submitted
        | TaskState::Working
        | TaskState::InputRequired
        | TaskState::AuthRequired
        | TaskState::Completed
        | TaskState::Unknown => work.status.as_deref().map(words),
    };
    let said = said.map(|said| clean(&said, MAX_STATUS_BYTES)).filter(|text| !text.is_empty());
    let with = |what: &str| match &said {
        Some(said) => format!("{what}: {said}"),
        None => what.to_owned(),
    };
    match state_of(work) {
        TaskState::Canceled if cancelled => Some(with("cancelled")),
        _ if cancelled => Some("cancelled; the agent may not have stopped".to_owned()),
        TaskState::Submitted => said.or_else(|| Some("submitted".to_owned())),
        TaskState::Working | TaskState::Unknown | TaskState::Completed => said,
        TaskState::InputRequired => said.or_else(|| Some("input required".to_owned())),
        TaskState::AuthRequired => said.or_else(|| Some("authorization required".to_owned())),
        TaskState::Failed => Some(with("failed")),
        TaskState::Rejected => Some(with("rejected")),
        TaskState::Canceled => Some(with("canceled by the agent")),
    }
}

/// Maximum length of the text in one notification, in characters.
const MAX_MESSAGE_CHARS: usize = 8 * 1024;

/// The size of an event besides its text: more than that of most.
const EVENT_BYTES: usize = 192;

/// The notifications that one client requested for one call.
#[derive(Debug)]
pub struct ProgressNotifier {
    token: Option<Id>,
    level: Option<LoggingLevel>,
    agent: String,
    last: f64,
    total: Option<f64>,
}

impl ProgressNotifier {
    /// Creates the notifier of a client that gave `token` for progress, requests log messages from
    /// `level` on, and calls `agent`.
    pub fn new(token: Option<Id>, level: Option<LoggingLevel>, agent: &str) -> Self {
        Self { token, level, agent: agent.to_owned(), last: 0.0, total: None }
    }

    /// Returns true if the client requested any notifications.
    pub fn listens(&self) -> bool {
        self.token.is_some() || self.logs()
    }

    fn logs(&self) -> bool {
        self.level.is_some_and(|level| level <= LoggingLevel::Info)
    }

    /// Adds the notifications for an update to `out`, each as an event of a stream.
    pub fn write_events(&mut self, note: &ProgressUpdate, out: &mut Vec<u8>) {
        let text = note.text.as_ref().map(capped);
        let text = text.as_deref();
        // Most clients get one event: it fits at once.
        out.reserve(EVENT_BYTES + text.map_or(0, JsonText::json_bytes));
        if self.token.is_some() {
            self.next_progress(note);
        }
        if let Some(token) = &self.token {
            sse::write_event_with(out, |out| {
                notifications::add_progress(out, token, self.last, self.total, text);
            });
        }
        if let Some(text) = text.filter(|_| self.logs()) {
            sse::write_event_with(out, |out| {
                notifications::add_message(out, LoggingLevel::Info, &self.agent, text);
            });
        }
    }

    /// Computes the next progress: the agent's own number if it increases, else a step of the
    /// gateway: a whole one, or a small one where the agent counts. Numbers that leave no room for
    /// a step, and totals that are exceeded already, are ignored.
    fn next_progress(&mut self, note: &ProgressUpdate) {
        const BELIEVED: f64 = 1e12;
        let reported = note.progress.filter(|value| *value > self.last && *value < BELIEVED);
        let is_goal = |total: &f64| *total > 0.0 && *total < BELIEVED;
        self.total = note.total.filter(is_goal).or(self.total);
        let step = if self.total.is_some() { 0.01 } else { 1.0 };
        self.last = reported.unwrap_or(self.last + step);
        self.total = self.total.filter(|total| *total >= self.last);
    }
}

fn capped(text: &JsonText) -> Cow<'_, JsonText> {
    // Nearly every text: its characters need not be counted.
    if text.bytes() <= MAX_MESSAGE_CHARS {
        return Cow::Borrowed(text);
    }
    let characters = text.to_str();
    match characters.char_indices().nth(MAX_MESSAGE_CHARS) {
        Some((end, _)) => Cow::Owned(characters.get(..end).unwrap_or_default().into()),
        None => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::a2a::read_task;

    const STATES: [TaskState; 9] = [
        TaskState::Submitted,
        TaskState::Working,
        TaskState::InputRequired,
        TaskState::AuthRequired,
        TaskState::Completed,
        TaskState::Failed,
        TaskState::Canceled,
        TaskState::Rejected,
        TaskState::Unknown,
    ];

    #[test]
    fn every_state_has_its_status_in_both_protocols() {
        use TaskStatus::{Cancelled, Completed, Failed, InputRequired, Working};
        let askable = [
            (Working, Working),
            (Working, Working),
            (InputRequired, InputRequired),
            (InputRequired, InputRequired),
            (Completed, Completed),
            (Failed, Completed),
            (Cancelled, Cancelled),
            (Failed, Completed),
            (Working, Working),
        ];
        for (state, expected) in STATES.into_iter().zip(askable) {
            let stands = ClientTaskStatus { state, cancelled: false, askable: true };
            assert_eq!((stands.core(), stands.extension()), expected, "{state:?}");
            let mute = ClientTaskStatus { askable: false, ..stands };
            let expected = if state.is_interrupted() { (Completed, Completed) } else { expected };
            assert_eq!((mute.core(), mute.extension()), expected, "{state:?}");
        }
    }

    #[test]
    fn a_core_task_stays_cancelled_and_the_extension_believes_the_agent() {
        for state in STATES {
            let stands = ClientTaskStatus { state, cancelled: true, askable: true };
            assert_eq!(stands.core(), TaskStatus::Cancelled, "{state:?}");
            assert_eq!(
                stands.extension(),
                ClientTaskStatus { cancelled: false, ..stands }.extension(),
                "{state:?}"
            );
        }
    }

    #[test]
    fn a_status_says_what_a_client_would_not_learn_otherwise() {
        for (state, said, cancelled, expected) in [
            ("submitted", "", false, Some("submitted")),
            ("working", "", false, None),
            ("working", "on it\u{202E}", false, Some("on it")),
            ("input-required", "When?", false, Some("When?")),
            ("auth-required", "", false, Some("authorization required")),
            ("failed", "no luck", false, Some("failed: no luck")),
            ("rejected", "", false, Some("rejected")),
            ("canceled", "", false, Some("canceled by the agent")),
            ("canceled", "bye", true, Some("cancelled: bye")),
            ("completed", "done", true, Some("cancelled; the agent may not have stopped")),
        ] {
            let task = serde_json::json!({"id": "t", "status": {"state": state, "message": {"parts": [{"text": said}]}}});
            let work = AgentOutput::from_task(read_task(task.to_string().as_bytes()).unwrap(), 1000).unwrap();
            assert_eq!(message(&work, cancelled).as_deref(), expected, "{state} {said}");
        }
    }

    #[test]
    fn an_answer_without_a_task_is_completed() {
        let mut work = AgentOutput::new(10);
        assert_eq!(ClientTaskStatus::of(&work, false, true).core(), TaskStatus::Working);
        let answer = br#"{"result":{"message":{"role":"ROLE_AGENT","parts":[{"text":"hi"}]}}}"#;
        work.apply(crate::a2a::Dialect::V1.event(answer).unwrap()).unwrap();
        assert_eq!(ClientTaskStatus::of(&work, false, true).extension(), TaskStatus::Completed);
    }
}

#[cfg(test)]
mod progress_tests {
    use super::*;

    fn note(text: &str, progress: Option<f64>, total: Option<f64>) -> ProgressUpdate {
        ProgressUpdate { text: Some(text.to_owned().into()), progress, total }
    }

    fn told(teller: &mut ProgressNotifier, given: &ProgressUpdate) -> Vec<String> {
        let mut events = Vec::new();
        teller.write_events(given, &mut events);
        let text = String::from_utf8(events).unwrap();
        let data = |event: &str| event.strip_prefix("data: ").unwrap().to_owned();
        text.split_terminator("\n\n").map(data).collect()
    }

    #[test]
    fn progress_strictly_grows_whatever_the_agent_says() {
        let token: Id = serde_json::from_str("\"p\"").unwrap();
        let mut teller = ProgressNotifier::new(Some(token), None, "a");
        let mut last = 0.0;
        for (value, total) in [
            (None, None),
            (Some(0.0), Some(100.0)),
            (Some(50.0), Some(100.0)),
            (Some(20.0), None),
            (None, None),
            (Some(f64::NAN), None),
            (Some(1e300), Some(-1.0)),
            (Some(100.0), None),
        ] {
            let text = told(&mut teller, &note("x", value, total)).remove(0);
            let json: serde_json::Value = serde_json::from_str(&text).unwrap();
            let now = json["params"]["progress"].as_f64().unwrap();
            assert!(now > last, "{now} after {last}");
            last = now;
        }
        assert!((last - 100.0).abs() < f64::EPSILON);
    }

    #[test]
    fn a_client_is_told_what_it_asked_for_and_nothing_else() {
        let given = note("hello", None, None);
        assert!(told(&mut ProgressNotifier::new(None, None, "a"), &given).is_empty());
        assert!(told(&mut ProgressNotifier::new(None, Some(LoggingLevel::Error), "a"), &given).is_empty());
        let logged = told(&mut ProgressNotifier::new(None, Some(LoggingLevel::Debug), "bard"), &given);
        assert_eq!(
            logged,
            [
                r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","logger":"bard","data":"hello"}}"#
            ]
        );
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        for (more, is_cut) in [(0, false), (5, true)] {
            let text = JsonText::from("é".repeat(MAX_MESSAGE_CHARS + more));
            let capped = capped(&text);
            assert_eq!(capped.to_str().chars().count(), MAX_MESSAGE_CHARS);
            assert_eq!(matches!(capped, Cow::Owned(_)), is_cut);
        }
    }
}
