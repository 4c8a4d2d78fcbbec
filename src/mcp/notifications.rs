//! Notifications to a client: progress, log messages, changed lists, changed tasks.
//!
//! `bridge::task_status` decides when they are sent, `gateway` on which stream.

use serde::{Deserialize, Serialize};

use super::tasks::{CoreTask, DetailedTask, TaskDetail, TaskSnapshot};
use super::version::CANCELLED;
use crate::jsonrpc::{Id, JsonText, add_notification, write_json, write_notification};

/// The severity of a log message (RFC 5424, `docs/spec/mcp.md` §2.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LoggingLevel {
    /// Detail for debugging.
    Debug,
    /// Normal operation.
    Info,
    /// Normal, but significant.
    Notice,
    /// A possible problem.
    Warning,
    /// An error.
    Error,
    /// An error of an important component.
    Critical,
    /// Action is required at once.
    Alert,
    /// The system is unusable.
    Emergency,
}

/// Adds `notifications/progress` to `out` as JSON text.
pub(crate) fn add_progress(
    out: &mut Vec<u8>,
    token: &Id,
    progress: f64,
    total: Option<f64>,
    message: Option<&JsonText>,
) {
    // Most events of streams are these. A serializer would add each name and each punctuation mark on its own.
    out.extend_from_slice(
        br#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"#,
    );
    out.extend_from_slice(token.as_json().as_bytes());
    out.extend_from_slice(br#","progress":"#);
    add_number(out, progress);
    if let Some(total) = total {
        out.extend_from_slice(br#","total":"#);
        add_number(out, total);
    }
    if let Some(message) = message {
        out.extend_from_slice(br#","message":"#);
        let written = write_json(out, message);
        debug_assert!(written.is_ok(), "a text cannot be written");
    }
    out.extend_from_slice(b"}}");
}

/// Adds a number, as an integer where there is no fraction: some clients accept only integers.
fn add_number(out: &mut Vec<u8>, number: f64) {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let written = if number.fract() == 0.0 && number.abs() < EXACT {
        #[expect(clippy::cast_possible_truncation, reason = "whole and within the exact integers of f64")]
        write_json(out, &(number as i64))
    } else {
        write_json(out, &number)
    };
    debug_assert!(written.is_ok(), "{number} cannot be written");
}

#[derive(Serialize)]
struct LogMessage<'a> {
    level: LoggingLevel,
    logger: &'a str,
    data: &'a JsonText,
}

/// Encodes `notifications/message` as JSON text.
pub(crate) fn message(level: LoggingLevel, logger: &str, data: &str) -> Vec<u8> {
    let data = &data.into();
    write_notification("notifications/message", Some(&LogMessage { level, logger, data }))
}

/// Adds `notifications/message` to `out` as JSON text.
pub(crate) fn add_message(out: &mut Vec<u8>, level: LoggingLevel, logger: &str, data: &JsonText) {
    add_notification(out, "notifications/message", &LogMessage { level, logger, data });
}

/// A list that can change while a client uses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeableList {
    /// The list of tools.
    Tools,
    /// The list of resources.
    Resources,
    /// The list of prompts.
    Prompts,
}

impl ChangeableList {
    fn method(self) -> &'static str {
        match self {
            Self::Tools => "notifications/tools/list_changed",
            Self::Resources => "notifications/resources/list_changed",
            Self::Prompts => "notifications/prompts/list_changed",
        }
    }
}

/// The link from a notification to its `subscriptions/listen`.
#[derive(Serialize)]
struct SubscriptionRef<'a> {
    #[serde(rename = "_meta")]
    meta: SubscriptionMeta<'a>,
}

/// The `_meta` with the id of a subscription: that of its `subscriptions/listen`, in its JSON type.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct SubscriptionMeta<'a> {
    /// The id of the request.
    #[serde(rename = "io.modelcontextprotocol/subscriptionId")]
    pub subscription: &'a Id,
}

/// Encodes the change of a list, for a GET stream (`None`) or for the `subscriptions/listen` with
/// this id.
pub fn list_changed(list: ChangeableList, subscription: Option<&Id>) -> Vec<u8> {
    let params = subscription.map(|subscription| SubscriptionRef { meta: SubscriptionMeta { subscription } });
    write_notification(list.method(), params.as_ref())
}

#[derive(Serialize)]
struct ResourceUpdatedParams<'a> {
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    meta: Option<SubscriptionMeta<'a>>,
    uri: &'a str,
}

/// Encodes the change of a resource, for a GET stream (`None`) or for the `subscriptions/listen`
/// with this id.
pub(crate) fn resource_updated(uri: &str, subscription: Option<&Id>) -> Vec<u8> {
    let meta = subscription.map(|subscription| SubscriptionMeta { subscription });
    write_notification("notifications/resources/updated", Some(&ResourceUpdatedParams { meta, uri }))
}

/// Encodes the change of a core task (2025-11-25), for a GET stream.
pub(crate) fn core_task_changed(task: &TaskSnapshot<'_>) -> Vec<u8> {
    write_notification("notifications/tasks/status", Some(&CoreTask::from(task)))
}

#[derive(Serialize)]
struct TaskChanged<'a> {
    #[serde(flatten)]
    task: DetailedTask<'a>,
    #[serde(rename = "_meta")]
    meta: SubscriptionMeta<'a>,
}

/// Encodes the change of an extension task, for the `subscriptions/listen` with this id. The status
/// that is written is that of the detail.
pub(crate) fn task_changed(task: &TaskSnapshot<'_>, detail: &TaskDetail<'_>, subscription: &Id) -> Vec<u8> {
    let task = DetailedTask::new(task, detail);
    let params = TaskChanged { task, meta: SubscriptionMeta { subscription } };
    write_notification("notifications/tasks", Some(&params))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CancelledParams<'a> {
    request_id: &'a str,
    reason: &'a str,
}

/// Encodes the cancellation of a request of the gateway.
pub fn cancelled(request_id: &str, reason: &str) -> Vec<u8> {
    write_notification(CANCELLED, Some(&CancelledParams { request_id, reason }))
}

#[derive(Serialize)]
struct AcknowledgedParams<'a> {
    #[serde(rename = "_meta")]
    meta: SubscriptionMeta<'a>,
    notifications: &'a AcceptedFilter,
}

/// The changes that a `subscriptions/listen` is notified of.
#[derive(Debug, Clone, Default, Serialize)]
pub struct AcceptedFilter {
    /// True for changes of the list of tools.
    #[serde(rename = "toolsListChanged", skip_serializing_if = "is_false")]
    pub tools: bool,
    /// True for changes of the list of resources.
    #[serde(rename = "resourcesListChanged", skip_serializing_if = "is_false")]
    pub resources: bool,
    /// True for changes of the list of prompts.
    #[serde(rename = "promptsListChanged", skip_serializing_if = "is_false")]
    pub prompts: bool,
    /// Resources to notify of.
    #[serde(rename = "resourceSubscriptions", skip_serializing_if = "Vec::is_empty")]
    pub uris: Vec<String>,
    /// Tasks to notify of; tasks extension only.
    #[serde(rename = "taskIds", skip_serializing_if = "Vec::is_empty")]
    pub task_ids: Vec<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde asks for")]
fn is_false(value: &bool) -> bool {
    !value
}

/// Encodes the first message on a `subscriptions/listen` stream.
pub fn acknowledged(subscription: &Id, honoured: &AcceptedFilter) -> Vec<u8> {
    let params = AcknowledgedParams { meta: SubscriptionMeta { subscription }, notifications: honoured };
    write_notification("notifications/subscriptions/acknowledged", Some(&params))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::tasks::TaskStatus;

    #[test]
    fn progress_keeps_the_token_and_writes_whole_numbers_whole() {
        let token: Id = serde_json::from_str("0").unwrap();
        let progress = |progress, total, message| {
            let mut out = Vec::new();
            add_progress(&mut out, &token, progress, total, message);
            String::from_utf8(out).unwrap()
        };
        let half = JsonText::from("half");
        let text = progress(50.0, Some(100.0), Some(&half));
        assert_eq!(
            text,
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":0,"progress":50,"total":100,"message":"half"}}"#
        );
        assert!(progress(0.5, None, None).contains(r#""progress":0.5}"#));
    }

    #[test]
    fn an_acknowledgement_names_only_what_is_honoured() {
        let id: Id = serde_json::from_str("\"L1\"").unwrap();
        let text = String::from_utf8(acknowledged(
            &id,
            &AcceptedFilter { tools: true, ..AcceptedFilter::default() },
        ))
        .unwrap();
        assert!(text.contains(r#""notifications":{"toolsListChanged":true}"#), "{text}");
        assert!(text.contains(r#""io.modelcontextprotocol/subscriptionId":"L1""#), "{text}");
        let tasks = AcceptedFilter { task_ids: vec!["t".into()], ..AcceptedFilter::default() };
        let text = String::from_utf8(acknowledged(&id, &tasks)).unwrap();
        assert!(text.contains(r#""notifications":{"taskIds":["t"]}"#), "{text}");
    }

    #[test]
    fn a_changed_task_is_told_in_the_form_of_its_revision() {
        let task = TaskSnapshot {
            task_id: "t",
            status: TaskStatus::Completed,
            status_message: None,
            created_at: "C".into(),
            last_updated_at: "U".into(),
            ttl_ms: Some(9),
            poll_interval_ms: 5,
        };
        assert_eq!(
            String::from_utf8(core_task_changed(&task)).unwrap(),
            r#"{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{"taskId":"t","status":"completed","createdAt":"C","lastUpdatedAt":"U","ttl":9,"pollInterval":5}}"#
        );
        let id: Id = serde_json::from_str("3").unwrap();
        let detail = TaskDetail::Failed { code: -32603, message: "lost" };
        assert_eq!(
            String::from_utf8(task_changed(&task, &detail, &id)).unwrap(),
            r#"{"jsonrpc":"2.0","method":"notifications/tasks","params":{"taskId":"t","status":"failed","createdAt":"C","lastUpdatedAt":"U","ttlMs":9,"pollIntervalMs":5,"error":{"code":-32603,"message":"lost"},"_meta":{"io.modelcontextprotocol/subscriptionId":3}}}"#
        );
    }

    #[test]
    fn a_question_is_taken_back_by_its_id() {
        assert_eq!(
            String::from_utf8(cancelled("q", "too late")).unwrap(),
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"q","reason":"too late"}}"#
        );
    }

    #[test]
    fn levels_are_ordered() {
        assert!(LoggingLevel::Debug < LoggingLevel::Info && LoggingLevel::Error < LoggingLevel::Emergency);
    }
}
