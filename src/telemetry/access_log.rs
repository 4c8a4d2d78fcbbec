//! The access log, one line per request, and the audit log, one line per decision about a caller.
//!
//! They contain no secrets: no header values, no credentials, no handles, no bodies, no query. Text
//! of a peer is cut and escaped. They have the targets `access` and `audit`, so the log's filter and
//! format apply to them. Where the process has its own log and no terminal reads it, they are written
//! straight into the buffer of the log: an event of `tracing` and its formatter cost a tenth of a
//! call. Elsewhere, as in a process that embeds the gateway, they are events of `tracing` with the
//! same fields, and have the same form.

use std::net::IpAddr;
use std::time::Duration;

use super::log_line::log_line;
use super::recent::{AuditFields, record_audit};
use super::trace::{HexText, RequestScope};

/// The facts about a completed request. `None` for steps that were not reached.
#[derive(Clone, Default)]
pub(crate) struct AccessLine<'a> {
    /// The id of the request.
    pub(crate) request: &'a str,
    /// The id of the trace that it belongs to.
    pub(crate) trace: Option<HexText<32>>,
    /// The address of the client.
    pub(crate) client: Option<IpAddr>,
    /// The stable name of the caller.
    pub(crate) caller: &'a str,
    /// The listener that took the request.
    pub(crate) listener: &'a str,
    /// HTTP method.
    pub(crate) method: &'a str,
    /// Path without query: a query may carry secrets.
    pub(crate) path: &'a str,
    /// HTTP status; 0 if none was sent.
    pub(crate) status: u16,
    /// The MCP or A2A method within.
    pub(crate) rpc: Option<&'static str>,
    /// The tool that was called.
    pub(crate) tool: Option<&'a str>,
    /// The agent's configured name.
    pub(crate) agent: Option<&'a str>,
    /// The era of MCP that the client speaks.
    pub(crate) era: Option<&'static str>,
    /// The version of MCP or A2A that the client speaks.
    pub(crate) version: Option<&'static str>,
    /// A keyed digest of the MCP session: its id is a secret.
    pub(crate) session: Option<HexText<16>>,
    /// A keyed digest of the task.
    pub(crate) task: Option<HexText<16>>,
    /// A keyed digest of the A2A context.
    pub(crate) context: Option<HexText<16>>,
    /// The time from the request's first byte to the response's last.
    pub(crate) took: Duration,
    /// The part of it spent waiting for the agent.
    pub(crate) agent_took: Option<Duration>,
    /// Bytes of the request's body.
    pub(crate) bytes_in: u64,
    /// Bytes of the response's body.
    pub(crate) bytes_out: u64,
    /// The outcome, as in the metrics.
    pub(crate) outcome: &'static str,
    /// The fault, by its public name.
    pub(crate) fault: Option<&'static str>,
}

impl AccessLine<'_> {
    /// Writes the line.
    pub(crate) fn write(&self) {
        log_line!(
            "access",
            id request = Some(self.request),
            hex trace = self.trace,
            address client = self.client,
            plain caller = Some(self.caller),
            plain listener = Some(self.listener),
            plain method = Some(self.method),
            plain path = Some(path_only(self.path)),
            number status = u64::from(self.status),
            id rpc = self.rpc,
            plain tool = self.tool,
            plain agent = self.agent,
            word era = self.era,
            word version = self.version,
            hex session = self.session,
            hex task = self.task,
            hex context = self.context,
            millis ms = Some(self.took),
            millis agent_ms = self.agent_took,
            number bytes_in = self.bytes_in,
            number bytes_out = self.bytes_out,
            word outcome = Some(self.outcome),
            id fault = self.fault,
        );
    }
}

fn path_only(path: &str) -> &str {
    let end = path.bytes().position(|byte| matches!(byte, b'?' | b'#'));
    end.and_then(|end| path.get(..end)).unwrap_or(path)
}

/// A decision by the rules of the configuration. `None` for absent fields.
#[derive(Clone, Copy)]
pub(crate) struct AuditDecision<'a> {
    /// The request; `None` for work without one.
    pub(crate) scope: Option<&'a RequestScope>,
    /// The stable name of the caller.
    pub(crate) caller: &'a str,
    /// The method of MCP or A2A, or the client's text in its position.
    pub(crate) method: &'a str,
    /// The agent.
    pub(crate) agent: Option<&'a str>,
    /// The name of the tool.
    pub(crate) tool: Option<&'a str>,
    /// The URI of the resource.
    pub(crate) resource: Option<&'a str>,
    /// The arguments of a call, as far as they may be logged.
    pub(crate) arguments: Option<&'a str>,
    /// True if the action is allowed.
    pub(crate) is_allowed: bool,
    /// The rule that decided; `None`: no rule allows it.
    pub(crate) rule: Option<&'a str>,
}

impl AuditDecision<'_> {
    /// Writes the line.
    pub(crate) fn write(&self) {
        log_line!(
            "audit",
            quoted decision = Some(if self.is_allowed { "allowed" } else { "refused" }),
            plain caller = Some(self.caller),
            quoted method = Some(prefix(self.method)),
            plain agent = self.agent,
            plain tool = self.tool,
            plain resource = self.resource,
            shown arguments = self.arguments,
            plain rule = self.rule,
            id request = self.scope.map(RequestScope::id),
            hex trace = trace_of(self.scope),
            address client = self.scope.and_then(RequestScope::client),
        );
        record_audit(&AuditFields {
            decision: if self.is_allowed { "allowed" } else { "refused" },
            caller: self.caller,
            method: self.method,
            agent: self.agent,
            tool: self.tool,
            resource: self.resource,
            rule: self.rule,
        });
    }
}

/// An access to a resource.
#[derive(Clone, Copy)]
pub(crate) struct ResourceAccess<'a> {
    /// The request; `None` for work without one.
    pub(crate) scope: Option<&'a RequestScope>,
    /// The stable name of the caller.
    pub(crate) caller: &'a str,
    /// `read` or `subscribe`.
    pub(crate) access: &'static str,
    /// The family of the resource.
    pub(crate) family: &'static str,
    /// The URI of the resource, without handles.
    pub(crate) resource: &'a str,
    /// `ok`, or the label of the fault.
    pub(crate) outcome: &'static str,
}

impl ResourceAccess<'_> {
    /// Writes the line.
    pub(crate) fn write(&self) {
        log_line!(
            "audit",
            quoted access = Some(self.access),
            plain caller = Some(self.caller),
            quoted family = Some(self.family),
            plain resource = Some(self.resource),
            quoted outcome = Some(self.outcome),
            id request = self.scope.map(RequestScope::id),
            hex trace = trace_of(self.scope),
            address client = self.scope.and_then(RequestScope::client),
        );
        record_audit(&AuditFields {
            decision: self.outcome,
            caller: self.caller,
            method: self.access,
            resource: Some(self.resource),
            ..AuditFields::default()
        });
    }
}

/// Returns the id of the trace of a request.
fn trace_of(scope: Option<&RequestScope>) -> Option<HexText<32>> {
    scope.and_then(RequestScope::trace_id)
}

/// Returns the part of a method that a line may hold: a client chooses its text.
fn prefix(method: &str) -> &str {
    const MAX_METHOD_CHARS: usize = 200;
    method.char_indices().nth(MAX_METHOD_CHARS).and_then(|(end, _)| method.get(..end)).unwrap_or(method)
}

/// Writes the line of a failed authentication. `why` is one of a few words.
pub(crate) fn not_admitted(scope: Option<&RequestScope>, why: &'static str) {
    log_line!(
        "audit",
        quoted decision = Some("not_admitted"),
        id request = scope.map(RequestScope::id),
        hex trace = trace_of(scope),
        address client = scope.and_then(RequestScope::client),
        quoted why = Some(why),
    );
    let from = scope.and_then(RequestScope::client).map(|client| client.to_string());
    record_audit(&AuditFields {
        decision: "not_admitted",
        caller: from.as_deref().unwrap_or_default(),
        rule: Some(why),
        ..AuditFields::default()
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::log::tests::written;

    fn line<'a>() -> AccessLine<'a> {
        AccessLine {
            request: "7f-1",
            caller: "ann",
            listener: "0.0.0.0:8080",
            method: "POST",
            path: "/mcp/weather?key=CANARY",
            status: 200,
            rpc: Some("tools/call"),
            tool: Some("fore\ncast\u{202e}"),
            agent: Some("weather"),
            era: Some("legacy"),
            took: Duration::from_micros(1500),
            agent_took: Some(Duration::from_millis(1)),
            bytes_in: 10,
            bytes_out: 20,
            outcome: "ok",
            ..AccessLine::default()
        }
    }

    #[test]
    fn a_line_has_its_fields_and_no_secret() {
        for json in [false, true] {
            let text = written(json, "info", || line().write());
            assert_eq!(text.lines().count(), 1, "{text}");
            assert!(!text.contains("CANARY") && !text.contains('\u{202e}'), "{text}");
            assert!(!text.contains("fault"), "absent fields are left out: {text}");
            if json {
                let line: serde_json::Value = serde_json::from_str(&text).unwrap();
                assert_eq!(line["target"], "access");
                assert_eq!(line["path"], "/mcp/weather");
                assert_eq!(line["tool"], "fore\\u{a}cast\\u{202e}");
                assert_eq!((&line["ms"], &line["agent_ms"]), (&1.5.into(), &1.0.into()));
                assert_eq!((&line["request"], &line["caller"]), (&"7f-1".into(), &"ann".into()));
                assert_eq!((line.get("session"), &line["status"]), (None, &200.into()));
            }
        }
    }

    #[test]
    fn the_access_log_can_be_switched_off() {
        assert_eq!(written(false, "info,access=off", || line().write()), "");
    }
}
