//! A span that has ended: the facts that are kept of it, and the message of OTLP that is made of them.
//!
//! The thread that serves a request only keeps facts. It records few requests, so code that makes attributes of them would
//! not be in the cache of the processor, and would remove from it the code of all others. The exporter makes the messages
//! of a batch one after the other.
//!
//! Names of attributes follow the semantic conventions of OpenTelemetry for HTTP, RPC, MCP and generative AI where these have
//! one. Out of scope: the decision which requests are recorded (see `trace`), and the export (see `otlp`).

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use http::Method as Verb;
use http::uri::Authority;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::span::{Event, Link, SpanKind};
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{Span, SpanFlags, Status};

use super::label::{Method, Outcome};
use super::log_line::Sanitized;
use super::metrics::AgentMetrics;
use super::request_facts::{CompletedRequest, KeptRequest};
use super::trace::{SpanEvent, TraceContext};
use crate::hex::HexText;

/// The maximum number of events of one span. More are counted.
const MAX_EVENTS: usize = 64;

/// A span that has ended.
pub(crate) struct EndedSpan {
    /// Its place in the trace.
    pub(super) context: TraceContext,
    /// The span that caused it.
    pub(super) parent: Option<ParentSpan>,
    /// The time at which it began.
    pub(super) begun: SystemTime,
    /// The time at which it ended.
    pub(super) ended: SystemTime,
    /// The facts of its work.
    pub(super) work: SpanWork,
}

/// The span that caused another one.
#[derive(Clone, Copy)]
pub(super) struct ParentSpan {
    /// Its id.
    pub(super) id: [u8; 8],
    /// True if it is a span of the client.
    pub(super) is_remote: bool,
}

/// The work that a span is of.
pub(super) enum SpanWork {
    /// A request to the gateway.
    Request(RequestWork),
    /// An exchange with an agent.
    Exchange(ExchangeFacts, Option<ExchangeEnd>),
}

/// A request to the gateway.
pub(super) struct RequestWork {
    /// Its facts.
    pub(super) request: KeptRequest,
    /// The context in the headers, if the one in the message is another.
    pub(super) link: Option<TraceContext>,
    /// The events within it.
    pub(super) events: SpanEvents,
}

/// The events of a request, in their order.
#[derive(Default)]
pub(super) struct SpanEvents {
    kept: Vec<(SystemTime, SpanEvent)>,
    dropped: u32,
}

impl SpanEvents {
    /// Adds an event that happens now, or counts it.
    pub(super) fn add(&mut self, event: SpanEvent) {
        if self.kept.len() < MAX_EVENTS {
            self.kept.push((SystemTime::now(), event));
        } else {
            self.dropped = self.dropped.saturating_add(1);
        }
    }
}

/// The facts of an exchange with an agent that begins.
pub(crate) struct ExchangeFacts {
    /// The method of the HTTP request.
    pub(crate) verb: Verb,
    /// The host of the agent. Paths of agents may contain ids and keys, and are left out.
    pub(crate) authority: Authority,
    /// Its port.
    pub(crate) port: u16,
    /// The metrics of the agent, with its name.
    pub(crate) agent: Arc<AgentMetrics>,
    /// The system of remote procedure calls: the binding of A2A.
    pub(crate) system: &'static str,
    /// The version of A2A.
    pub(crate) version: &'static str,
}

/// The end of an exchange with an agent.
#[derive(Clone, Copy)]
pub(super) enum ExchangeEnd {
    /// A response with this status.
    Status(u16),
    /// No response, for this reason.
    Failure(&'static str),
}

impl From<&EndedSpan> for Span {
    fn from(span: &EndedSpan) -> Self {
        let EndedSpan { context, parent, begun, ended, work } = span;
        let of_place = Self {
            trace_id: context.trace.to_vec(),
            span_id: context.span.to_vec(),
            trace_state: context.state().unwrap_or_default().to_owned(),
            parent_span_id: parent.map(|parent| parent.id.to_vec()).unwrap_or_default(),
            flags: flags(context, parent.is_some_and(|parent| parent.is_remote)),
            start_time_unix_nano: nanoseconds(*begun),
            end_time_unix_nano: nanoseconds(*ended),
            ..Self::default()
        };
        match work {
            SpanWork::Request(work) => of_request(work, of_place),
            SpanWork::Exchange(facts, end) => of_exchange(facts, *end, of_place),
        }
    }
}

/// Returns the flags of a span with this context, or of a link to it (OTLP, `SpanFlags`).
fn flags(context: &TraceContext, is_remote: bool) -> u32 {
    let remote = if is_remote { SpanFlags::ContextIsRemoteMask as u32 } else { 0 };
    SpanFlags::ContextHasIsRemoteMask as u32 | remote | u32::from(context.is_sampled)
}

fn nanoseconds(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Completes the span of a request.
fn of_request(work: &RequestWork, mut span: Span) -> Span {
    let RequestWork { request, link, events } = work;
    let CompletedRequest { texts, facts } = request.read();
    // That of a request that was not completed is not known.
    let is_known = !texts.method.is_empty();
    let verb = if is_known { Sanitized(texts.method).to_string() } else { "_OTHER".to_owned() };
    let is_mcp = facts.era.is_some();
    let method = facts.rpc.map(Method::label);
    span.name = match method {
        Some(method) if texts.tool.is_empty() => method.to_owned(),
        Some(method) => format!("{method} {}", Sanitized(texts.tool)),
        // A path is the choice of the client, and names of spans are few.
        None if is_known => verb.clone(),
        None => "HTTP".to_owned(),
    };
    span.set_kind(SpanKind::Server);
    let mut attributes = Attributes(vec![
        text("http.request.method", verb),
        text("url.path", Sanitized(texts.path).to_string()),
        text("mcp_a2a_gateway.request.id", texts.request),
        text("mcp_a2a_gateway.listener", texts.listener),
        text("mcp_a2a_gateway.outcome", facts.outcome.label()),
    ]);
    if facts.status != 0 {
        attributes.0.push(number("http.response.status_code", facts.status));
    }
    attributes.add("client.address", facts.client.map(|client| client.to_string()));
    attributes
        .add("mcp_a2a_gateway.caller", (!facts.is_anonymous).then(|| Sanitized(texts.caller).to_string()));
    attributes.add(if is_mcp { "mcp.method.name" } else { "rpc.method" }, method);
    attributes.add(if is_mcp { "mcp.protocol.version" } else { "a2a.protocol.version" }, facts.version);
    let tool = (!texts.tool.is_empty()).then(|| Sanitized(texts.tool).to_string());
    attributes.add("gen_ai.tool.name", tool);
    attributes.add("gen_ai.agent.name", (!texts.agent.is_empty()).then_some(texts.agent));
    for (name, digest) in [
        ("mcp_a2a_gateway.session.digest", facts.session),
        ("mcp_a2a_gateway.task.digest", facts.task),
        ("mcp_a2a_gateway.context.digest", facts.context),
    ] {
        let shown = digest.map(|digest| HexText::<16>::new(digest.to_be_bytes()));
        attributes.add(name, shown.as_ref().map(HexText::as_str));
    }
    if matches!(facts.outcome, Outcome::AgentFault | Outcome::GatewayFault) || facts.status >= 500 {
        attributes.0.push(text("error.type", facts.fault.unwrap_or(facts.outcome.label())));
        span.status = Some(failure());
    }
    span.attributes = attributes.0;
    span.events = events.kept.iter().map(|(at, event)| of_event(*at, *event)).collect();
    span.dropped_events_count = events.dropped;
    span.links = link.iter().map(of_link).collect();
    span
}

/// Completes the span of an exchange with an agent.
fn of_exchange(facts: &ExchangeFacts, end: Option<ExchangeEnd>, mut span: Span) -> Span {
    let agent = facts.agent.name();
    span.name = format!("{} {agent}", facts.verb);
    span.set_kind(SpanKind::Client);
    span.attributes = vec![
        text("http.request.method", facts.verb.as_str()),
        text("server.address", facts.authority.host()),
        number("server.port", facts.port),
        text("rpc.system.name", facts.system),
        text("gen_ai.agent.name", agent),
        text("a2a.protocol.version", facts.version),
    ];
    let error = match end {
        None => None,
        Some(ExchangeEnd::Failure(reason)) => Some(reason.to_owned()),
        Some(ExchangeEnd::Status(status)) => {
            span.attributes.push(number("http.response.status_code", status));
            (status >= 400).then(|| status.to_string())
        }
    };
    if let Some(error) = error {
        span.attributes.push(text("error.type", error));
        span.status = Some(failure());
    }
    span
}

fn of_event(at: SystemTime, event: SpanEvent) -> Event {
    let attributes = match event {
        SpanEvent::Retry(reason) => vec![text("error.type", reason)],
        _ => Vec::new(),
    };
    Event { time_unix_nano: nanoseconds(at), name: event.name().to_owned(), attributes, ..Event::default() }
}

fn of_link(context: &TraceContext) -> Link {
    Link {
        trace_id: context.trace.to_vec(),
        span_id: context.span.to_vec(),
        trace_state: context.state().unwrap_or_default().to_owned(),
        flags: flags(context, true),
        ..Link::default()
    }
}

/// Returns the status of a span that failed by a fault of the gateway or an agent.
fn failure() -> Status {
    Status { code: StatusCode::Error.into(), message: String::new() }
}

/// The attributes of a span.
struct Attributes(Vec<KeyValue>);

impl Attributes {
    /// Adds an attribute that has a value.
    fn add(&mut self, name: &'static str, value: Option<impl Into<String>>) {
        self.0.extend(value.map(|value| text(name, value)));
    }
}

/// Returns an attribute with a text.
pub(crate) fn text(name: &str, value: impl Into<String>) -> KeyValue {
    attribute(name, Value::StringValue(value.into()))
}

fn number(name: &str, value: u16) -> KeyValue {
    attribute(name, Value::IntValue(value.into()))
}

fn attribute(name: &str, value: Value) -> KeyValue {
    KeyValue { key: name.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::time::Duration;

    use super::*;
    use crate::telemetry::request_facts::{RequestFacts, RequestTexts};

    fn request() -> CompletedRequest<'static> {
        CompletedRequest {
            texts: RequestTexts {
                request: "7f-1",
                caller: "key:ann",
                listener: "0.0.0.0:8080",
                method: "POST",
                path: "/mcp/weather",
                tool: "forecast",
                agent: "weather",
            },
            facts: RequestFacts {
                status: 200,
                client: Some(IpAddr::from([192, 0, 2, 7])),
                rpc: Some(Method::ToolsCall),
                era: Some("legacy"),
                version: Some("2025-11-25"),
                session: Some(1),
                ..RequestFacts::default()
            },
        }
    }

    fn span(request: &CompletedRequest<'_>, events: SpanEvents) -> Span {
        let begun = UNIX_EPOCH + Duration::from_nanos(5);
        let ended = UNIX_EPOCH + Duration::from_nanos(7);
        let context = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let context = TraceContext::parse(context, None).unwrap();
        let work = RequestWork { request: KeptRequest::new(request), link: None, events };
        Span::from(&EndedSpan { context, parent: None, begun, ended, work: SpanWork::Request(work) })
    }

    /// The attributes as `NAME=VALUE`.
    fn shown(span: &Span) -> Vec<String> {
        let value = |attribute: &KeyValue| match attribute.value.clone().unwrap().value.unwrap() {
            Value::StringValue(text) => text,
            other => format!("{other:?}"),
        };
        span.attributes.iter().map(|attribute| format!("{}={}", attribute.key, value(attribute))).collect()
    }

    #[test]
    fn span_of_request_has_its_facts() {
        let whole = span(&request(), SpanEvents::default());
        assert_eq!((whole.name.as_str(), whole.kind()), ("tools/call forecast", SpanKind::Server));
        assert_eq!((whole.start_time_unix_nano, whole.end_time_unix_nano), (5, 7));
        assert_eq!((whole.flags, whole.status.is_none()), (0x101, true));
        assert!(whole.parent_span_id.is_empty());
        assert_eq!(
            shown(&whole),
            [
                "http.request.method=POST",
                "url.path=/mcp/weather",
                "mcp_a2a_gateway.request.id=7f-1",
                "mcp_a2a_gateway.listener=0.0.0.0:8080",
                "mcp_a2a_gateway.outcome=ok",
                "http.response.status_code=IntValue(200)",
                "client.address=192.0.2.7",
                "mcp_a2a_gateway.caller=key:ann",
                "mcp.method.name=tools/call",
                "mcp.protocol.version=2025-11-25",
                "gen_ai.tool.name=forecast",
                "gen_ai.agent.name=weather",
                "mcp_a2a_gateway.session.digest=0000000000000001",
            ]
        );
    }

    #[test]
    fn span_of_request_has_no_fact_of_steps_that_were_not_reached() {
        let texts = RequestTexts { method: "GET", path: "/x\u{202e}", ..RequestTexts::default() };
        let facts = RequestFacts { is_anonymous: true, ..RequestFacts::default() };
        let bare = span(&CompletedRequest { texts, facts }, SpanEvents::default());
        assert_eq!(bare.name, "GET");
        let expected = [
            "http.request.method=GET",
            "url.path=/x\\u{202e}",
            "mcp_a2a_gateway.request.id=",
            "mcp_a2a_gateway.listener=",
            "mcp_a2a_gateway.outcome=ok",
        ];
        assert_eq!(shown(&bare), expected);
    }

    #[test]
    fn span_of_failed_request_names_the_fault() {
        let of = |facts: RequestFacts| span(&CompletedRequest { facts, ..request() }, SpanEvents::default());
        let facts = request().facts;
        for (facts, error) in [
            (RequestFacts { status: 503, ..facts }, "error.type=ok"),
            (RequestFacts { outcome: Outcome::AgentFault, ..facts }, "error.type=agent_fault"),
            (
                RequestFacts { outcome: Outcome::GatewayFault, fault: Some("busy"), ..facts },
                "error.type=busy",
            ),
        ] {
            let span = of(facts);
            assert_eq!(span.status.as_ref().map(Status::code), Some(StatusCode::Error));
            assert_eq!(shown(&span).last().map(String::as_str), Some(error));
        }
        let refused =
            RequestFacts { outcome: Outcome::Refused, status: 403, fault: Some("forbidden"), ..facts };
        assert_eq!(of(refused).status, None, "a client that is refused is no failure of the gateway");
    }

    #[test]
    fn events_beyond_limit_are_counted() {
        let mut events = SpanEvents::default();
        events.add(SpanEvent::Retry("timeout"));
        (0..MAX_EVENTS + 2).for_each(|_| events.add(SpanEvent::Recovery));
        let span = span(&request(), events);
        assert_eq!((span.events.len(), span.dropped_events_count), (MAX_EVENTS, 3));
        let [retry, recovery, ..] = &span.events[..] else { panic!("{:?}", span.events) };
        assert_eq!(
            (retry.name.as_str(), &retry.attributes[..]),
            ("retry", &[text("error.type", "timeout")][..])
        );
        assert_eq!((recovery.name.as_str(), recovery.attributes.len()), ("recovery", 0));
    }
}
