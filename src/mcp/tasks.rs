//! Tasks on the wire: the shapes of the core (2025-11-25) and of the extension (2026-07-28).
//!
//! Follows `docs/spec/mcp.md` §2.13, §2.14. Core and extension have different names for the same
//! members and nest them differently; each shape here belongs to one of them and leaves this folder
//! only as bytes (see `result_writer`, `notifications`). `bridge` maps the state of an agent's task
//! to a status.

use serde::Serialize;
use serde_json::value::RawValue;

use super::tools::{CallToolResult, ResultMeta};

/// The status of a task, as a client sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TaskStatus {
    /// The agent works on the task.
    Working,
    /// The task waits for the user.
    InputRequired,
    /// The task is completed.
    Completed,
    /// The task failed; core and extension define failure differently.
    Failed,
    /// The task was cancelled.
    Cancelled,
}

impl TaskStatus {
    /// Returns true if the status never changes again.
    pub(crate) fn is_terminal(self) -> bool {
        match self {
            Self::Working | Self::InputRequired => false,
            Self::Completed | Self::Failed | Self::Cancelled => true,
        }
    }
}

/// The data of a task at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TaskSnapshot<'a> {
    /// The handle of the task.
    pub(crate) task_id: &'a str,
    /// The status.
    pub(crate) status: TaskStatus,
    /// The status in words.
    pub(crate) status_message: Option<String>,
    /// Time of creation; see [`iso8601`].
    pub(crate) created_at: String,
    /// Time of the last change.
    pub(crate) last_updated_at: String,
    /// Lifetime from the creation, in milliseconds; `None` is unlimited.
    pub(crate) ttl_ms: Option<u64>,
    /// Suggested interval between two polls, in milliseconds.
    pub(crate) poll_interval_ms: u64,
}

/// The additional members of an extension task, by its status. The detail decides the status that
/// is written, so that the two always agree.
#[derive(Debug, Clone, Copy)]
pub(crate) enum TaskDetail<'a> {
    /// None: the task is in progress.
    Working,
    /// The open questions: an object, by their keys.
    InputRequired(&'a RawValue),
    /// The result of the call, `isError` or not.
    Completed(&'a CallToolResult),
    /// A JSON-RPC error.
    Failed {
        /// Code.
        code: i32,
        /// Text.
        message: &'a str,
    },
    /// None: the task was cancelled.
    Cancelled,
}

impl TaskDetail<'_> {
    /// Returns the status that belongs to the detail.
    pub(crate) fn status(&self) -> TaskStatus {
        match self {
            Self::Working => TaskStatus::Working,
            Self::InputRequired(_) => TaskStatus::InputRequired,
            Self::Completed(_) => TaskStatus::Completed,
            Self::Failed { .. } => TaskStatus::Failed,
            Self::Cancelled => TaskStatus::Cancelled,
        }
    }
}

/// A task of the core.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CoreTask<'a> {
    task_id: &'a str,
    status: TaskStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    status_message: Option<&'a str>,
    created_at: &'a str,
    last_updated_at: &'a str,
    ttl: Option<u64>,
    poll_interval: u64,
}

impl<'a> From<&'a TaskSnapshot<'_>> for CoreTask<'a> {
    fn from(task: &'a TaskSnapshot<'_>) -> Self {
        Self {
            task_id: task.task_id,
            status: task.status,
            status_message: task.status_message.as_deref(),
            created_at: &task.created_at,
            last_updated_at: &task.last_updated_at,
            ttl: task.ttl_ms,
            poll_interval: task.poll_interval_ms,
        }
    }
}

/// The core's response to a call that runs as a task.
#[derive(Serialize)]
pub(super) struct CreateTaskResult<'a> {
    task: CoreTask<'a>,
    #[serde(rename = "_meta")]
    meta: ImmediateResponse<'a>,
}

/// The text for the model while the task runs.
#[derive(Serialize)]
struct ImmediateResponse<'a> {
    #[serde(rename = "io.modelcontextprotocol/model-immediate-response")]
    text: &'a str,
}

impl<'a> CreateTaskResult<'a> {
    pub(super) fn new(task: &'a TaskSnapshot<'_>, text: &'a str) -> Self {
        Self { task: task.into(), meta: ImmediateResponse { text } }
    }
}

/// The core's `tasks/list`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ListTasksResult<'a> {
    pub(super) tasks: Vec<CoreTask<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next_cursor: Option<&'a str>,
}

/// The core's `tasks/result`: the result of the call, and its task.
#[derive(Serialize)]
pub(super) struct TaskResult<'a> {
    #[serde(flatten)]
    result: &'a CallToolResult,
    #[serde(rename = "_meta")]
    meta: RelatedTask<'a>,
}

#[derive(Serialize)]
struct RelatedTask<'a> {
    #[serde(rename = "io.modelcontextprotocol/related-task")]
    task: TaskIdMeta<'a>,
    #[serde(flatten)]
    beside: ResultMeta<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TaskIdMeta<'a> {
    task_id: &'a str,
}

impl<'a> TaskResult<'a> {
    pub(super) fn new(result: &'a CallToolResult, task_id: &'a str) -> Self {
        Self { result, meta: RelatedTask { task: TaskIdMeta { task_id }, beside: result.beside() } }
    }
}

/// An extension task, without the members that depend on its status.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ExtensionTask<'a> {
    task_id: &'a str,
    status: TaskStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    status_message: Option<&'a str>,
    created_at: &'a str,
    last_updated_at: &'a str,
    ttl_ms: Option<u64>,
    poll_interval_ms: u64,
}

impl<'a> From<&'a TaskSnapshot<'_>> for ExtensionTask<'a> {
    fn from(task: &'a TaskSnapshot<'_>) -> Self {
        Self {
            task_id: task.task_id,
            status: task.status,
            status_message: task.status_message.as_deref(),
            created_at: &task.created_at,
            last_updated_at: &task.last_updated_at,
            ttl_ms: task.ttl_ms,
            poll_interval_ms: task.poll_interval_ms,
        }
    }
}

/// An extension task with the members that its status requires.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DetailedTask<'a> {
    #[serde(flatten)]
    task: ExtensionTask<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input_requests: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<InlineResult<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorObject<'a>>,
}

/// The result of a call as part of its task: a result like any other, so that it has a
/// `resultType`.
#[derive(Serialize)]
struct InlineResult<'a> {
    #[serde(rename = "resultType")]
    result_type: &'static str,
    #[serde(flatten)]
    result: &'a CallToolResult,
    #[serde(rename = "_meta", skip_serializing_if = "ResultMeta::is_empty")]
    meta: ResultMeta<'a>,
}

#[derive(Serialize)]
struct ErrorObject<'a> {
    code: i32,
    message: &'a str,
}

impl<'a> DetailedTask<'a> {
    pub(super) fn new(task: &'a TaskSnapshot<'_>, detail: &TaskDetail<'a>) -> Self {
        let task = ExtensionTask { status: detail.status(), ..task.into() };
        let bare = Self { task, input_requests: None, result: None, error: None };
        match *detail {
            TaskDetail::Working | TaskDetail::Cancelled => bare,
            TaskDetail::InputRequired(requests) => Self { input_requests: Some(requests), ..bare },
            TaskDetail::Completed(result) => Self {
                result: Some(InlineResult { result_type: "complete", result, meta: result.beside() }),
                ..bare
            },
            TaskDetail::Failed { code, message } => {
                Self { error: Some(ErrorObject { code, message }), ..bare }
            }
        }
    }
}

/// The last moment that a year of four digits can express.
const LAST: u64 = 253_402_300_799_999;
const DAY: u64 = 86_400_000;

/// Formats a moment in Unix milliseconds as ISO 8601, in UTC; the far future is cut to the end of
/// the year 9999.
pub(crate) fn iso8601(unix_millis: u64) -> String {
    let millis = unix_millis.min(LAST);
    let (day, rest) = (millis / DAY, millis % DAY);
    let (hour, minute, second, milli) = (rest / 3_600_000, rest / 60_000 % 60, rest / 1000 % 60, rest % 1000);
    // Years begin in March here, so that the leap day is the last of its year; 400 of them have
    // 146097 days.
    let shifted = day + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn statuses_have_the_words_of_the_wire() {
        for (status, word) in [
            (TaskStatus::Working, "working"),
            (TaskStatus::InputRequired, "input_required"),
            (TaskStatus::Completed, "completed"),
            (TaskStatus::Failed, "failed"),
            (TaskStatus::Cancelled, "cancelled"),
        ] {
            assert_eq!(serde_json::to_string(&status).unwrap(), format!("\"{word}\""));
        }
    }

    #[test]
    fn moments_are_written_in_utc_with_milliseconds() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (1_709_251_199_999, "2024-02-29T23:59:59.999Z"),
            (1_795_168_800_007, "2026-11-20T10:00:00.007Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (LAST, "9999-12-31T23:59:59.999Z"),
            (u64::MAX, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(iso8601(millis), text);
        }
    }

    proptest! {
        #[test]
        fn later_moments_are_later_texts(one in 0..LAST, apart in 1..DAY * 400) {
            prop_assert!(iso8601(one) < iso8601((one + apart).min(LAST + 1)) || one + apart > LAST);
        }

        #[test]
        fn a_day_later_is_the_next_day_at_the_same_time(day in 0u64..2_900_000, time in 0..DAY) {
            let (one, next) = (iso8601(day * DAY + time), iso8601((day + 1) * DAY + time));
            prop_assert_eq!(one.get(10..), next.get(10..));
            let of = |text: &str| text.get(8..10).unwrap().parse::<u8>().unwrap();
            prop_assert!(of(&next) == of(&one) + 1 || (of(&next) == 1 && of(&one) >= 28), "{} {}", one, next);
        }
    }
}
