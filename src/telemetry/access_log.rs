//! The access log, one line per request, and the audit log, one line per decision about a caller.
//!
//! They contain no secrets: no header values, no credentials, no handles, no bodies, no query. Text
//! of a peer is cut and escaped. They have the targets `access` and `audit`, so the log's filter and
//! format apply to them. Where the process has its own log and no terminal reads it, they go to the
//! buffer of the log without an event of `tracing`, which costs a tenth of a call with its formatter: those of the
//! audit log as text, those of the access log as facts of which several are formatted at once. Elsewhere, as in a process
//! that embeds the gateway, they are events of `tracing` with the same fields, and have the same form.

use std::time::{Instant, SystemTime};

use super::label::Method;
use super::log;
use super::log::FormattedLines;
use super::log_line::{RepeatedFields, log_line};
use super::recent::{AuditFields, record_audit};
use super::request_facts::CompletedRequest;
use super::trace::RequestScope;
use crate::hex::HexText;

impl CompletedRequest<'_> {
    /// Writes the line of a request that ended at this time, if the log shows it.
    pub(crate) fn log(&self, ended: Instant) {
        match log::output() {
            Some(output) if output.shows("access") => output.add_access(ended, self),
            Some(_) => {}
            None => self.write_to(SystemTime::now(), None, &mut RepeatedFields::default()),
        }
    }

    /// Adds the line of a request that ended at this time to formatted ones; without these it is an event.
    ///
    /// The fields in `@repeated` are those of the line before, if `repeated` has them. It has to be empty where one of them
    /// differs: [`RequestTexts`](super::request_facts::RequestTexts) but for the id, or one of
    /// [`RequestFacts::repeated`](super::request_facts::RequestFacts::repeated), which names each fact that is used there.
    pub(super) fn write_to(
        &self,
        at: SystemTime,
        lines: Option<&mut FormattedLines<'_>>,
        repeated: &mut RepeatedFields,
    ) {
        let hex = |digest: u64| HexText::<16>::new(digest.to_be_bytes());
        let Self { texts, facts } = self;
        log_line!(
            to lines, at at; "access",
            id request = Some(texts.request),
            hex trace = facts.trace,
            @repeated repeated {
                address client = facts.client,
                plain caller = Some(texts.caller),
                plain listener = Some(texts.listener),
                plain method = Some(texts.method),
                plain path = Some(path_only(texts.path)),
                number status = u64::from(facts.status),
                id rpc = facts.rpc.map(Method::label),
                plain tool = reached(texts.tool),
                plain agent = reached(texts.agent),
                word era = facts.era,
                word version = facts.version,
            }
            hex session = facts.session.map(hex),
            hex task = facts.task.map(hex),
            hex context = facts.context.map(hex),
            millis ms = Some(facts.took),
            millis agent_ms = facts.agent_took,
            number bytes_in = facts.bytes_in,
            number bytes_out = facts.bytes_out,
            word outcome = Some(facts.outcome.label()),
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
pub(super) mod tests {
    use std::net::IpAddr;
    use std::time::Duration;

    use super::*;
    use crate::telemetry::log::tests::written;
    use crate::telemetry::log::{LogFormat, LogOutput};
    use crate::telemetry::request_facts::{RequestFacts, RequestTexts};

    fn line() -> CompletedRequest<'static> {
        CompletedRequest {
            texts: RequestTexts {
                request: "7f-1",
                caller: "ann",
                listener: "0.0.0.0:8080",
                method: "POST",
                path: "/mcp/weather?key=CANARY",
                tool: "fore\ncast\u{202e}",
                agent: "weather",
            },
            facts: RequestFacts {
                status: 200,
                rpc: Some(Method::ToolsCall),
                era: Some("legacy"),
                took: Duration::from_micros(1500),
                agent_took: Some(Duration::from_millis(1)),
                bytes_in: 10,
                bytes_out: 20,
                ..RequestFacts::default()
            },
        }
    }

    #[test]
    fn a_line_has_its_fields_and_no_secret() {
        for json in [false, true] {
            let text = written(json, "info", || line().log(Instant::now()));
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

    /// Returns the lines without their times.
    pub(in crate::telemetry) fn without_times(text: &str) -> Vec<String> {
        let cut = |line: &str| {
            line.find("20").filter(|_| line.contains("INFO")).map(|at| {
                let (start, rest) = line.split_at(at);
                [start, rest.split_at(27).1].concat()
            })
        };
        text.lines().map(|line| cut(line).unwrap_or_else(|| line.to_owned())).collect()
    }

    #[test]
    fn line_that_waited_is_that_of_an_event_and_in_its_place() {
        let lines = [
            line(),
            CompletedRequest { texts: RequestTexts { tool: "", path: "", ..line().texts }, ..line() },
            CompletedRequest { texts: RequestTexts { agent: "", ..line().texts }, ..line() },
            CompletedRequest {
                facts: RequestFacts {
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
                expected += &written(form == LogFormat::Json, "info", || line.log(Instant::now()));
            }
            output.add_text(b"end\n");
            let (kept, expected) = (kept(), expected + "end\n");
            assert_eq!(without_times(&kept), without_times(&expected));
        }
    }

    #[test]
    fn the_access_log_can_be_switched_off() {
        assert_eq!(written(false, "info,access=off", || line().log(Instant::now())), "");
    }
}
