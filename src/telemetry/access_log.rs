//! The access log, one line per request, and the audit log, one line per decision about a caller.
//!
//! They contain no secrets: no header values, no credentials, no handles, no bodies, no query. Text
//! of a peer is cut and escaped. They have the targets `access` and `audit`, so the log's filter and
//! format apply to them. Where the process has its own log and no terminal reads it, they go to the
//! buffer of the log without an event of `tracing`, which costs a tenth of a call with its formatter: those of the
//! audit log as text, those of the access log as facts of which several are formatted at once. Elsewhere, as in a process
//! that embeds the gateway, they are events of `tracing` with the same fields, and have the same form.

use std::net::IpAddr;
use std::time::{Duration, Instant, SystemTime};

use super::log;
use super::log::FormattedLines;
use super::log_line::log_line;
use super::recent::{AuditFields, record_audit};
use super::trace::RequestScope;
use crate::hex::HexText;

/// The line of a completed request.
#[derive(Clone, Copy, Default)]
pub(crate) struct AccessLine<'a> {
    /// The texts that peers and the configuration chose.
    pub(crate) texts: AccessTexts<'a>,
    /// The facts of fixed size.
    pub(crate) facts: AccessFacts,
}

/// The texts about a completed request. Empty for steps that were not reached.
#[derive(Clone, Copy, Default)]
pub(crate) struct AccessTexts<'a> {
    /// The id of the request.
    pub(crate) request: &'a str,
    /// The stable name of the caller.
    pub(crate) caller: &'a str,
    /// The listener that took the request.
    pub(crate) listener: &'a str,
    /// HTTP method.
    pub(crate) method: &'a str,
    /// Path without query: a query may carry secrets.
    pub(crate) path: &'a str,
    /// The tool that was called.
    pub(crate) tool: &'a str,
    /// The agent's configured name.
    pub(crate) agent: &'a str,
}

/// The number of texts of a line.
pub(super) const ACCESS_TEXTS: usize = 7;

impl<'a> AccessTexts<'a> {
    /// Returns all texts, in the order in which they wait.
    pub(super) fn all(self) -> [&'a str; ACCESS_TEXTS] {
        let Self { request, caller, listener, method, path, tool, agent } = self;
        [request, caller, listener, method, path, tool, agent]
    }

    /// Returns the texts of [`Self::all`].
    pub(super) fn of(all: [&'a str; ACCESS_TEXTS]) -> Self {
        let [request, caller, listener, method, path, tool, agent] = all;
        Self { request, caller, listener, method, path, tool, agent }
    }
}

/// The facts of fixed size about a completed request: numbers, addresses and words of the gateway. `None` for steps that were
/// not reached.
#[derive(Clone, Copy, Default)]
pub(crate) struct AccessFacts {
    /// The id of the trace that it belongs to.
    pub(crate) trace: Option<HexText<32>>,
    /// The address of the client.
    pub(crate) client: Option<IpAddr>,
    /// HTTP status; 0 if none was sent.
    pub(crate) status: u16,
    /// The MCP or A2A method within.
    pub(crate) rpc: Option<&'static str>,
    /// The era of MCP that the client speaks.
    pub(crate) era: Option<&'static str>,
    /// The version of MCP or A2A that the client speaks.
    pub(crate) version: Option<&'static str>,
    /// A keyed digest of the MCP session: its id is a secret.
    pub(crate) session: Option<u64>,
    /// A keyed digest of the task.
    pub(crate) task: Option<u64>,
    /// A keyed digest of the A2A context.
    pub(crate) context: Option<u64>,
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
    /// Writes the line of a request that ended at this time.
    pub(crate) fn write(&self, ended: Instant) {
        match log::output() {
            Some(output) if output.shows("access") => output.add_access(ended, self),
            Some(_) => {}
            None => self.write_to(SystemTime::now(), None),
        }
    }

    /// Adds the line of a request that ended at this time to formatted ones; without these it is an event.
    pub(super) fn write_to(&self, at: SystemTime, lines: Option<&mut FormattedLines<'_>>) {
        let hex = |digest: u64| HexText::<16>::new(digest.to_be_bytes());
        let Self { texts, facts } = self;
        log_line!(
            to lines, at at; "access",
            id request = Some(texts.request),
            hex trace = facts.trace,
            address client = facts.client,
            plain caller = Some(texts.caller),
            plain listener = Some(texts.listener),
            plain method = Some(texts.method),
            plain path = Some(path_only(texts.path)),
            number status = u64::from(facts.status),
            id rpc = facts.rpc,
            plain tool = reached(texts.tool),
            plain agent = reached(texts.agent),
            word era = facts.era,
            word version = facts.version,
            hex session = facts.session.map(hex),
            hex task = facts.task.map(hex),
            hex context = facts.context.map(hex),
            millis ms = Some(facts.took),
            millis agent_ms = facts.agent_took,
            number bytes_in = facts.bytes_in,
            number bytes_out = facts.bytes_out,
            word outcome = Some(facts.outcome),
            id fault = facts.fault,
        );
    }
}

/// Returns a text if it is not empty.
fn reached(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
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
    use crate::telemetry::log::{LogFormat, LogOutput};

    fn line() -> AccessLine<'static> {
        AccessLine {
            texts: AccessTexts {
                request: "7f-1",
                caller: "ann",
                listener: "0.0.0.0:8080",
                method: "POST",
                path: "/mcp/weather?key=CANARY",
                tool: "fore\ncast\u{202e}",
                agent: "weather",
            },
            facts: AccessFacts {
                status: 200,
                rpc: Some("tools/call"),
                era: Some("legacy"),
                took: Duration::from_micros(1500),
                agent_took: Some(Duration::from_millis(1)),
                bytes_in: 10,
                bytes_out: 20,
                outcome: "ok",
                ..AccessFacts::default()
            },
        }
    }

    #[test]
    fn a_line_has_its_fields_and_no_secret() {
        for json in [false, true] {
            let text = written(json, "info", || line().write(Instant::now()));
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
    fn line_that_waited_is_that_of_an_event_and_in_its_place() {
        let lines = [
            line(),
            AccessLine { texts: AccessTexts { tool: "", path: "", ..line().texts }, ..line() },
            AccessLine { texts: AccessTexts { agent: "", ..line().texts }, ..line() },
            AccessLine {
                facts: AccessFacts {
                    trace: Some(HexText::new([0xab; 16])),
                    client: Some(IpAddr::from([192, 0, 2, 7])),
                    version: Some("2025-11-25"),
                    session: Some(1),
                    context: Some(u64::MAX),
                    fault: Some("timeout"),
                    ..line().facts
                },
                ..line()
            },
        ];
        for form in [LogFormat::Text, LogFormat::Json] {
            let (output, kept) = LogOutput::kept(form);
            let mut expected = String::new();
            for (number, line) in lines.into_iter().enumerate() {
                let before = format!("line {number}\n");
                output.add_text(before.as_bytes());
                output.add_access(Instant::now(), &line);
                expected += &before;
                expected += &written(form == LogFormat::Json, "info", || line.write(Instant::now()));
            }
            output.add_text(b"end\n");
            let (kept, expected) = (kept(), expected + "end\n");
            // They differ in their times.
            let without_times = |text: &str| -> Vec<String> {
                let cut = |line: &str| {
                    line.find("20").filter(|_| line.contains("INFO")).map(|at| {
                        let (start, rest) = line.split_at(at);
                        [start, rest.split_at(27).1].concat()
                    })
                };
                text.lines().map(|line| cut(line).unwrap_or_else(|| line.to_owned())).collect()
            };
            assert_eq!(without_times(&kept), without_times(&expected));
        }
    }

    #[test]
    fn the_access_log_can_be_switched_off() {
        assert_eq!(written(false, "info,access=off", || line().write(Instant::now())), "");
    }
}
