//! Two eras, two serializers: the envelope of a result.
//!
//! A legacy result is written as it is. A modern one always has `resultType`, has `ttlMs` and
//! `cacheScope` exactly where the revision requires them, and names the server. Types decide which
//! results may be cached: see [`CacheableResult`]. Results that only one era has (core tasks; the
//! tasks extension, questions in a result) are written in the form of that era for every client.

use serde::Serialize;
use serde_json::value::RawValue;

use super::lifecycle::{DiscoverResult, Implementation};
use super::notifications::SubscriptionMeta;
use super::resources::{
    CompleteResult, GetPromptResult, ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult,
    ReadResourceResult,
};
use super::tasks::{
    CoreTask, CreateTaskResult, DetailedTask, ExtensionTask, ListTasksResult, TaskDetail, TaskResult,
    TaskSnapshot,
};
use super::tools::{CallToolResult, ListToolsResult, ResultMeta};
use super::version::Era;
use crate::jsonrpc::{Id, write_long_result, write_result};

/// A result that a modern client may cache; one of the six that must state it (`docs/spec/mcp.md`
/// §1.0).
pub trait CacheableResult: Serialize {}
impl CacheableResult for DiscoverResult<'_> {}
impl CacheableResult for ListToolsResult<'_> {}
impl CacheableResult for ListResourcesResult {}
impl CacheableResult for ListResourceTemplatesResult {}
impl CacheableResult for ReadResourceResult {}
impl CacheableResult for ListPromptsResult<'_> {}

/// A result that must not be cached.
pub trait UncacheableResult: Serialize {
    /// Returns the data of the agent's extensions for `_meta`, a JSON object.
    fn extensions(&self) -> Option<&RawValue> {
        None
    }

    /// Returns about how many bytes of the result are content, so that the buffer need not grow.
    fn content_bytes(&self) -> usize {
        0
    }
}
impl UncacheableResult for CallToolResult {
    fn extensions(&self) -> Option<&RawValue> {
        self.extensions.as_deref()
    }

    fn content_bytes(&self) -> usize {
        self.bytes()
    }
}
impl UncacheableResult for CompleteResult<'_> {}
impl UncacheableResult for GetPromptResult<'_> {}

/// Writes the results of one request.
#[derive(Debug, Clone, Copy)]
pub struct ResultWriter<'a> {
    /// The era of the request.
    pub era: Era,
    /// Name and version of the gateway.
    pub server: Implementation<'a>,
    /// Time for which lists may be cached, in milliseconds; for modern clients.
    pub ttl_ms: u64,
}

impl ResultWriter<'_> {
    /// Writes a response with a list, or with another cacheable result.
    pub(crate) fn cacheable<R: CacheableResult>(&self, id: &Id, result: &R) -> Vec<u8> {
        match self.era {
            Era::Legacy => write_result(id, result),
            Era::Modern => {
                let caching = CacheHints { ttl_ms: self.ttl_ms, cache_scope: "private" };
                write_result(id, &CachedResult { result, caching, complete: self.complete() })
            }
        }
    }

    /// Writes a cacheable result that changes by itself: with a lifetime of zero, so that a client
    /// revalidates it each time.
    pub fn live<R: CacheableResult>(&self, id: &Id, result: &R) -> Vec<u8> {
        Self { ttl_ms: 0, ..*self }.cacheable(id, result)
    }

    /// Writes a response with the result of a call.
    pub fn uncacheable<R: UncacheableResult>(&self, id: &Id, result: &R) -> Vec<u8> {
        let (beside, bytes) = (ResultMeta::of(result.extensions()), result.content_bytes());
        match self.era {
            Era::Legacy if beside.is_empty() => write_long_result(id, result, bytes),
            Era::Legacy => write_long_result(id, &LegacyResult { result, meta: beside }, bytes),
            Era::Modern => {
                let mut complete = self.complete();
                complete.meta.beside = beside;
                write_long_result(id, &UncachedResult { result, complete }, bytes)
            }
        }
    }

    /// Writes the end of a `subscriptions/listen`.
    pub fn listened(&self, id: &Id) -> Vec<u8> {
        let meta = SubscriptionMeta { subscription: id };
        write_result(id, &SubscriptionEnded { result_type: COMPLETE, meta })
    }

    /// Writes for modern clients the result of a call that continues as an extension task.
    pub(crate) fn task_created(&self, id: &Id, task: &TaskSnapshot<'_>) -> Vec<u8> {
        let result = ExtensionTask::from(task);
        write_result(id, &UncachedResult { result: &result, complete: self.of_type("task") })
    }

    /// Writes for modern clients `tasks/get` of the extension. The status that is written is that
    /// of the detail.
    pub(crate) fn task_detailed(&self, id: &Id, task: &TaskSnapshot<'_>, detail: &TaskDetail<'_>) -> Vec<u8> {
        let result = DetailedTask::new(task, detail);
        write_result(id, &UncachedResult { result: &result, complete: self.complete() })
    }

    /// Writes for modern clients `tasks/update` and `tasks/cancel` of the extension, which have an
    /// empty result.
    pub(crate) fn acknowledged_empty(&self, id: &Id) -> Vec<u8> {
        write_result(id, &self.complete())
    }

    /// Writes for modern clients the result of a call that they must repeat with `request_state`,
    /// and with answers to `input_requests` (an object, by their keys); one of them at least.
    pub fn input_required(
        &self,
        id: &Id,
        input_requests: Option<&RawValue>,
        request_state: Option<&str>,
    ) -> Vec<u8> {
        let result = InputRequired { input_requests, request_state };
        write_result(id, &UncachedResult { result: &result, complete: self.of_type("input_required") })
    }

    /// Writes for 2025-11-25 the result of a call that continues as a core task; `told` is the text
    /// for the model meanwhile.
    pub(crate) fn core_task_created(&self, id: &Id, task: &TaskSnapshot<'_>, told: &str) -> Vec<u8> {
        write_result(id, &CreateTaskResult::new(task, told))
    }

    /// Writes for 2025-11-25 `tasks/get` and `tasks/cancel` of the core.
    pub(crate) fn core_task(&self, id: &Id, task: &TaskSnapshot<'_>) -> Vec<u8> {
        write_result(id, &CoreTask::from(task))
    }

    /// Writes for 2025-11-25 `tasks/list` of the core.
    pub(crate) fn core_task_list(
        &self,
        id: &Id,
        tasks: &[TaskSnapshot<'_>],
        next_cursor: Option<&str>,
    ) -> Vec<u8> {
        let tasks = tasks.iter().map(CoreTask::from).collect();
        write_result(id, &ListTasksResult { tasks, next_cursor })
    }

    /// Writes for 2025-11-25 `tasks/result` of the core.
    pub(crate) fn core_task_result(&self, id: &Id, result: &CallToolResult, task_id: &str) -> Vec<u8> {
        write_result(id, &TaskResult::new(result, task_id))
    }

    fn complete(&self) -> TypedResult<'_> {
        self.of_type(COMPLETE)
    }

    fn of_type(&self, result_type: &'static str) -> TypedResult<'_> {
        TypedResult { result_type, meta: ServerMeta { server: self.server, beside: ResultMeta::default() } }
    }
}

const COMPLETE: &str = "complete";

/// The members that every modern result has.
#[derive(Serialize)]
struct TypedResult<'a> {
    #[serde(rename = "resultType")]
    result_type: &'static str,
    #[serde(rename = "_meta")]
    meta: ServerMeta<'a>,
}

#[derive(Serialize)]
struct ServerMeta<'a> {
    #[serde(rename = "io.modelcontextprotocol/serverInfo")]
    server: Implementation<'a>,
    #[serde(flatten)]
    beside: ResultMeta<'a>,
}

/// A legacy result with a `_meta`.
#[derive(Serialize)]
struct LegacyResult<'a, R> {
    #[serde(flatten)]
    result: &'a R,
    #[serde(rename = "_meta")]
    meta: ResultMeta<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CacheHints {
    ttl_ms: u64,
    cache_scope: &'static str,
}

#[derive(Serialize)]
struct CachedResult<'a, R> {
    #[serde(flatten)]
    result: &'a R,
    #[serde(flatten)]
    caching: CacheHints,
    #[serde(flatten)]
    complete: TypedResult<'a>,
}

#[derive(Serialize)]
struct UncachedResult<'a, R> {
    #[serde(flatten)]
    result: &'a R,
    #[serde(flatten)]
    complete: TypedResult<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct InputRequired<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    input_requests: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_state: Option<&'a str>,
}

#[derive(Serialize)]
struct SubscriptionEnded<'a> {
    #[serde(rename = "resultType")]
    result_type: &'static str,
    #[serde(rename = "_meta")]
    meta: SubscriptionMeta<'a>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::tasks::{TaskStatus, iso8601};
    use serde_json::{Value, json};

    const WRITER: ResultWriter<'static> = ResultWriter {
        era: Era::Modern,
        server: Implementation { name: "gw", version: "1" },
        ttl_ms: 60_000,
    };

    const EMPTY: ListPromptsResult<'static> = ListPromptsResult { prompts: Vec::new(), next_cursor: None };

    fn id() -> Id {
        serde_json::from_str("7").unwrap()
    }

    fn result(response: &[u8]) -> Value {
        let mut response: Value = serde_json::from_slice(response).unwrap();
        assert_eq!(response["id"], 7);
        response["result"].take()
    }

    fn task() -> TaskSnapshot<'static> {
        TaskSnapshot {
            task_id: "t",
            status: TaskStatus::Working,
            status_message: Some("submitted".into()),
            created_at: iso8601(0),
            last_updated_at: iso8601(1),
            ttl_ms: None,
            poll_interval_ms: 2000,
        }
    }

    fn server() -> Value {
        json!({ "io.modelcontextprotocol/serverInfo": { "name": "gw", "version": "1" } })
    }

    #[test]
    fn a_core_task_has_the_members_of_2025_11_25() {
        let flat = json!({
            "taskId": "t", "status": "working", "statusMessage": "submitted", "createdAt": "1970-01-01T00:00:00.000Z",
            "lastUpdatedAt": "1970-01-01T00:00:00.001Z", "ttl": null, "pollInterval": 2000,
        });
        assert_eq!(result(&WRITER.core_task(&id(), &task())), flat);
        assert_eq!(
            result(&WRITER.core_task_created(&id(), &task(), "wait")),
            json!({ "task": flat, "_meta": { "io.modelcontextprotocol/model-immediate-response": "wait" } })
        );
        let listed = |next| result(&WRITER.core_task_list(&id(), &[task()], next));
        assert_eq!(listed(None), json!({ "tasks": [flat] }));
        assert_eq!(listed(Some("c")), json!({ "tasks": [flat], "nextCursor": "c" }));
        let ended = result(&WRITER.core_task_result(&id(), &CallToolResult::failure("no"), "t"));
        let related = json!({ "io.modelcontextprotocol/related-task": { "taskId": "t" } });
        assert_eq!(
            ended,
            json!({ "content": [{ "type": "text", "text": "no" }], "isError": true, "_meta": related })
        );
    }

    #[test]
    fn a_task_of_the_extension_is_flat_and_says_its_type() {
        let mut flat = json!({
            "resultType": "task", "taskId": "t", "status": "working", "statusMessage": "submitted",
            "createdAt": "1970-01-01T00:00:00.000Z", "lastUpdatedAt": "1970-01-01T00:00:00.001Z", "ttlMs": 60_000,
            "pollIntervalMs": 2000, "_meta": server(),
        });
        let task = TaskSnapshot { ttl_ms: Some(60_000), ..task() };
        assert_eq!(result(&WRITER.task_created(&id(), &task)), flat);
        flat["resultType"] = json!("complete");
        let requests: Box<RawValue> =
            serde_json::from_str(r#"{"q":{"method":"elicitation/create"}}"#).unwrap();
        let failure = CallToolResult::failure("no");
        let told = json!({ "resultType": "complete", "content": [{ "type": "text", "text": "no" }], "isError": true });
        for (detail, status, member, value) in [
            (TaskDetail::Working, "working", None, Value::Null),
            (TaskDetail::Cancelled, "cancelled", None, Value::Null),
            (
                TaskDetail::InputRequired(&requests),
                "input_required",
                Some("inputRequests"),
                json!({ "q": { "method": "elicitation/create" } }),
            ),
            (TaskDetail::Completed(&failure), "completed", Some("result"), told),
            (
                TaskDetail::Failed { code: -32603, message: "lost" },
                "failed",
                Some("error"),
                json!({ "code": -32603, "message": "lost" }),
            ),
        ] {
            let mut expected = flat.clone();
            expected["status"] = json!(status);
            if let Some(member) = member {
                expected[member] = value;
            }
            assert_eq!(result(&WRITER.task_detailed(&id(), &task, &detail)), expected, "{detail:?}");
        }
    }

    #[test]
    fn unstable_results_are_not_cacheable() {
        let requests: Box<RawValue> = serde_json::from_str(r#"{"q":{}}"#).unwrap();
        let expected = json!({ "resultType": "input_required", "requestState": "s", "_meta": server() });
        assert_eq!(result(&WRITER.input_required(&id(), None, Some("s"))), expected);
        let mut asking = expected;
        asking["inputRequests"] = json!({ "q": {} });
        assert_eq!(result(&WRITER.input_required(&id(), Some(&requests), Some("s"))), asking);
    }

    #[test]
    fn an_empty_acknowledgement_is_still_a_modern_result() {
        let empty = result(&WRITER.acknowledged_empty(&id()));
        assert_eq!(empty, json!({ "resultType": "complete", "_meta": server() }));
    }

    fn text(era: Era) -> String {
        let writer = ResultWriter { era, ..WRITER };
        String::from_utf8(writer.uncacheable(&id(), &CallToolResult::failure("no"))).unwrap()
            + &String::from_utf8(writer.cacheable(&id(), &EMPTY)).unwrap()
    }

    #[test]
    fn live_results_are_never_cached() {
        let live = |era| String::from_utf8(ResultWriter { era, ..WRITER }.live(&id(), &EMPTY)).unwrap();
        assert!(live(Era::Modern).contains(r#""ttlMs":0,"cacheScope":"private""#));
        assert!(!live(Era::Legacy).contains("ttlMs"));
    }

    #[test]
    fn a_legacy_result_carries_nothing_modern() {
        let legacy = text(Era::Legacy);
        for word in ["resultType", "ttlMs", "cacheScope", "serverInfo"] {
            assert!(!legacy.contains(word), "{legacy}");
        }
        assert!(legacy.contains(r#""result":{"prompts":[]}"#), "{legacy}");
    }

    #[test]
    fn a_modern_result_lacks_nothing_modern() {
        let modern = text(Era::Modern);
        assert_eq!(modern.matches(r#""resultType":"complete""#).count(), 2, "{modern}");
        assert_eq!(modern.matches(r#""ttlMs":60000,"cacheScope":"private""#).count(), 1, "{modern}");
        assert_eq!(modern.matches("serverInfo").count(), 2, "{modern}");
    }
}
