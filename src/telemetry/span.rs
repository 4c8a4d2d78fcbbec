//! A span that has ended: the facts that are kept of it, and the message of OTLP that is written of them.
//!
//! The thread that serves a request only keeps facts. It records few requests, so code that makes attributes of them would
//! not be in the cache of the processor, and would remove from it the code of all others. The exporter writes the messages
//! of a batch one after the other, without the values of OpenTelemetry's crate: these have two strings for each attribute,
//! and are measured three times before they are written.
//!
//! Names of attributes follow the semantic conventions of OpenTelemetry for HTTP, RPC, MCP and generative AI where these have
//! one. Out of scope: the decision which requests are recorded (see `trace`), and the export (see `otlp`).

use std::sync::Arc;
use std::time::SystemTime;

use http::Method as Verb;
use http::uri::Authority;

use super::label::{Method, Outcome};
use super::log_line::Sanitized;
use super::metrics::AgentMetrics;
use super::request_facts::{CompletedRequest, KeptRequest};
use super::trace::{SpanEvent, TraceContext};
use crate::hex::HexText;
use crate::protobuf::{bytes_field, delimited, fixed32_field, nanoseconds_field, varint_field};

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
    Request(Box<RequestWork>),
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

/// The numbers of the fields of a `Span` (OTLP 1, `trace.proto`).
mod span_field {
    pub(super) const TRACE_ID: u32 = 1;
    pub(super) const SPAN_ID: u32 = 2;
    pub(super) const TRACE_STATE: u32 = 3;
    pub(super) const PARENT_SPAN_ID: u32 = 4;
    pub(super) const NAME: u32 = 5;
    pub(super) const KIND: u32 = 6;
    pub(super) const START_TIME: u32 = 7;
    pub(super) const END_TIME: u32 = 8;
    pub(super) const ATTRIBUTES: u32 = 9;
    pub(super) const EVENTS: u32 = 11;
    pub(super) const DROPPED_EVENTS: u32 = 12;
    pub(super) const LINKS: u32 = 13;
    pub(super) const STATUS: u32 = 15;
    pub(super) const FLAGS: u32 = 16;
}

/// `SpanKind` of a request that the gateway answers.
const KIND_SERVER: i64 = 2;
/// `SpanKind` of an exchange that it begins.
const KIND_CLIENT: i64 = 3;

impl EndedSpan {
    /// Appends the fields of the `Span` of OTLP.
    pub(crate) fn write(&self, protobuf: &mut Vec<u8>) {
        let Self { context, parent, begun, ended, work } = self;
        bytes_field(span_field::TRACE_ID, &context.trace, protobuf);
        bytes_field(span_field::SPAN_ID, &context.span, protobuf);
        if let Some(state) = context.state() {
            bytes_field(span_field::TRACE_STATE, state.as_bytes(), protobuf);
        }
        if let Some(parent) = parent {
            bytes_field(span_field::PARENT_SPAN_ID, &parent.id, protobuf);
        }
        let is_remote = parent.is_some_and(|parent| parent.is_remote);
        fixed32_field(span_field::FLAGS, flags(context, is_remote), protobuf);
        nanoseconds_field(span_field::START_TIME, *begun, protobuf);
        nanoseconds_field(span_field::END_TIME, *ended, protobuf);
        match work {
            SpanWork::Request(work) => write_request(work, protobuf),
            SpanWork::Exchange(facts, end) => write_exchange(facts, *end, protobuf),
        }
    }
}

/// Returns the flags of a span with this context, or of a link to it (OTLP, `SpanFlags`).
fn flags(context: &TraceContext, is_remote: bool) -> u32 {
    const HAS_IS_REMOTE: u32 = 0x100;
    const IS_REMOTE: u32 = 0x200;
    HAS_IS_REMOTE | if is_remote { IS_REMOTE } else { 0 } | u32::from(context.is_sampled)
}

/// Appends the fields of a request.
fn write_request(work: &RequestWork, protobuf: &mut Vec<u8>) {
    let RequestWork { request, link, events } = work;
    let CompletedRequest { texts, facts } = request.read();
    // That of a request that was not completed is not known.
    let is_known = !texts.method.is_empty();
    let verb = if is_known { Sanitized(texts.method).text() } else { "_OTHER".into() };
    let tool = Sanitized(texts.tool).text();
    let is_mcp = facts.era.is_some();
    let method = facts.rpc.map(Method::label);
    let name = match method {
        Some(method) if tool.is_empty() => [method, "", ""],
        Some(method) => [method, " ", &tool],
        // A path is the choice of the client, and names of spans are few.
        None if is_known => [&verb, "", ""],
        None => ["HTTP", "", ""],
    };
    write_name(name, protobuf);
    varint_field(span_field::KIND, KIND_SERVER, protobuf);
    let mut attributes = Attributes { number: span_field::ATTRIBUTES, protobuf };
    attributes.text("http.request.method", &verb);
    attributes.text("url.path", &Sanitized(texts.path).text());
    attributes.text("mcp_a2a_gateway.request.id", texts.request);
    attributes.text("mcp_a2a_gateway.listener", texts.listener);
    attributes.text("mcp_a2a_gateway.outcome", facts.outcome.label());
    if facts.status != 0 {
        attributes.number("http.response.status_code", facts.status);
    }
    if let Some(client) = facts.client {
        attributes.text("client.address", &client.to_string());
    }
    if !facts.is_anonymous {
        attributes.text("mcp_a2a_gateway.caller", &Sanitized(texts.caller).text());
    }
    attributes.known(if is_mcp { "mcp.method.name" } else { "rpc.method" }, method);
    attributes.known(if is_mcp { "mcp.protocol.version" } else { "a2a.protocol.version" }, facts.version);
    attributes.known("gen_ai.tool.name", Some(&*tool).filter(|tool| !tool.is_empty()));
    attributes.known("gen_ai.agent.name", Some(texts.agent).filter(|agent| !agent.is_empty()));
    attributes.digest("mcp_a2a_gateway.session.digest", facts.session);
    attributes.digest("mcp_a2a_gateway.task.digest", facts.task);
    attributes.digest("mcp_a2a_gateway.context.digest", facts.context);
    if matches!(facts.outcome, Outcome::AgentFault | Outcome::GatewayFault) || facts.status >= 500 {
        attributes.text("error.type", facts.fault.unwrap_or(facts.outcome.label()));
        write_failure(protobuf);
    }
    write_events(events, protobuf);
    if let Some(link) = link {
        delimited(span_field::LINKS, protobuf, |protobuf| write_link(link, protobuf));
    }
}

/// Appends the fields of an exchange with an agent.
fn write_exchange(facts: &ExchangeFacts, end: Option<ExchangeEnd>, protobuf: &mut Vec<u8>) {
    let (verb, agent) = (facts.verb.as_str(), facts.agent.name());
    write_name([verb, " ", agent], protobuf);
    varint_field(span_field::KIND, KIND_CLIENT, protobuf);
    let mut attributes = Attributes { number: span_field::ATTRIBUTES, protobuf };
    attributes.text("http.request.method", verb);
    attributes.text("server.address", facts.authority.host());
    attributes.number("server.port", facts.port);
    attributes.text("rpc.system.name", facts.system);
    attributes.text("gen_ai.agent.name", agent);
    attributes.text("a2a.protocol.version", facts.version);
    match end {
        None => {}
        Some(ExchangeEnd::Failure(reason)) => {
            attributes.text("error.type", reason);
            write_failure(protobuf);
        }
        Some(ExchangeEnd::Status(status)) => {
            attributes.number("http.response.status_code", status);
            if status >= 400 {
                attributes.text("error.type", &status.to_string());
                write_failure(protobuf);
            }
        }
    }
}

/// Appends the name of a span, which these pieces are.
fn write_name(pieces: [&str; 3], protobuf: &mut Vec<u8>) {
    delimited(span_field::NAME, protobuf, |protobuf| {
        pieces.into_iter().for_each(|piece| protobuf.extend_from_slice(piece.as_bytes()));
    });
}

/// Appends the events of a request.
fn write_events(events: &SpanEvents, protobuf: &mut Vec<u8>) {
    for (at, event) in &events.kept {
        delimited(span_field::EVENTS, protobuf, |protobuf| write_event(*at, *event, protobuf));
    }
    if events.dropped > 0 {
        varint_field(span_field::DROPPED_EVENTS, events.dropped.into(), protobuf);
    }
}

/// Appends the fields of an `Event`.
fn write_event(at: SystemTime, event: SpanEvent, protobuf: &mut Vec<u8>) {
    nanoseconds_field(1, at, protobuf);
    bytes_field(2, event.name().as_bytes(), protobuf);
    if let SpanEvent::Retry(reason) = event {
        Attributes { number: 3, protobuf }.text("error.type", reason);
    }
}

/// Appends the fields of a `Link`.
fn write_link(context: &TraceContext, protobuf: &mut Vec<u8>) {
    bytes_field(1, &context.trace, protobuf);
    bytes_field(2, &context.span, protobuf);
    if let Some(state) = context.state() {
        bytes_field(3, state.as_bytes(), protobuf);
    }
    fixed32_field(6, flags(context, true), protobuf);
}

/// Appends the status of a span that failed by a fault of the gateway or an agent.
fn write_failure(protobuf: &mut Vec<u8>) {
    const CODE_ERROR: i64 = 2;
    delimited(span_field::STATUS, protobuf, |status| varint_field(3, CODE_ERROR, status));
}

/// Writes the attributes of a message.
pub(crate) struct Attributes<'p> {
    /// The number of the field that has them.
    pub(crate) number: u32,
    /// The message.
    pub(crate) protobuf: &'p mut Vec<u8>,
}

impl Attributes<'_> {
    /// Appends a text.
    pub(crate) fn text(&mut self, name: &str, value: &str) {
        self.write(name, |any| bytes_field(1, value.as_bytes(), any));
    }

    /// Appends a text that is known.
    fn known(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.text(name, value);
        }
    }

    /// Appends a digest that is known.
    fn digest(&mut self, name: &str, value: Option<u64>) {
        if let Some(digest) = value {
            self.text(name, HexText::<16>::new(digest.to_be_bytes()).as_str());
        }
    }

    fn number(&mut self, name: &str, value: u16) {
        self.write(name, |any| varint_field(3, value.into(), any));
    }

    /// Appends a `KeyValue` with an `AnyValue` that has these fields.
    fn write(&mut self, name: &str, value: impl FnOnce(&mut Vec<u8>)) {
        delimited(self.number, self.protobuf, |pair| {
            bytes_field(1, name.as_bytes(), pair);
            delimited(2, pair, value);
        });
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::net::IpAddr;
    use std::time::{Duration, UNIX_EPOCH};

    use opentelemetry_proto::tonic::common::v1::KeyValue;
    use opentelemetry_proto::tonic::common::v1::any_value::Value;
    use opentelemetry_proto::tonic::trace::v1::span::{Link, SpanKind};
    use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
    use opentelemetry_proto::tonic::trace::v1::{Span, SpanFlags, Status};
    use prost::Message as _;

    use super::*;
    use crate::telemetry::metrics::Metrics;
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
        read(&EndedSpan { context, parent: None, begun, ended, work: SpanWork::Request(Box::new(work)) })
    }

    /// Reads what is written as the message of OpenTelemetry's crate.
    pub(in crate::telemetry) fn read(span: &EndedSpan) -> Span {
        let mut protobuf = Vec::new();
        span.write(&mut protobuf);
        Span::decode(&*protobuf).unwrap()
    }

    /// The attributes as `NAME=VALUE`.
    pub(in crate::telemetry) fn shown(attributes: &[KeyValue]) -> Vec<String> {
        let value = |attribute: &KeyValue| match attribute.value.clone().unwrap().value.unwrap() {
            Value::StringValue(text) => text,
            other => format!("{other:?}"),
        };
        attributes.iter().map(|attribute| format!("{}={}", attribute.key, value(attribute))).collect()
    }

    #[test]
    fn span_of_request_has_its_facts() {
        let whole = span(&request(), SpanEvents::default());
        assert_eq!((whole.name.as_str(), whole.kind()), ("tools/call forecast", SpanKind::Server));
        assert_eq!((whole.start_time_unix_nano, whole.end_time_unix_nano), (5, 7));
        assert_eq!((whole.flags, whole.status.is_none()), (0x101, true));
        assert!(whole.parent_span_id.is_empty());
        assert_eq!(
            shown(&whole.attributes),
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
        assert_eq!(shown(&bare.attributes), expected);
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
            assert_eq!(shown(&span.attributes).last().map(String::as_str), Some(error));
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
            (retry.name.as_str(), shown(&retry.attributes)),
            ("retry", vec!["error.type=timeout".to_owned()])
        );
        assert!(retry.time_unix_nano > 0);
        assert_eq!((recovery.name.as_str(), recovery.attributes.len()), ("recovery", 0));
    }

    #[test]
    fn span_of_exchange_has_its_facts_and_its_place() {
        let state = "vendor=1";
        let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let context = TraceContext::parse(text, Some(state)).unwrap();
        let facts = || ExchangeFacts {
            verb: Verb::POST,
            authority: Authority::from_static("agent.example:8443"),
            port: 8443,
            agent: Metrics::new().unwrap().agent("weather"),
            system: "jsonrpc",
            version: "1.0",
        };
        let parent = Some(ParentSpan { id: [7; 8], is_remote: true });
        let of = |end| {
            let (context, work) = (context.clone(), SpanWork::Exchange(facts(), end));
            read(&EndedSpan { context, parent, begun: UNIX_EPOCH, ended: UNIX_EPOCH, work })
        };
        let span = of(Some(ExchangeEnd::Status(200)));
        assert_eq!((span.name.as_str(), span.kind()), ("POST weather", SpanKind::Client));
        assert_eq!((span.trace_id, span.span_id), (context.trace.to_vec(), context.span.to_vec()));
        assert_eq!((span.parent_span_id, span.trace_state.as_str()), (vec![7; 8], state));
        let remote = SpanFlags::ContextHasIsRemoteMask as u32 | SpanFlags::ContextIsRemoteMask as u32;
        assert_eq!((span.flags, span.status), (remote | 1, None));
        assert_eq!(
            shown(&span.attributes),
            [
                "http.request.method=POST",
                "server.address=agent.example",
                "server.port=IntValue(8443)",
                "rpc.system.name=jsonrpc",
                "gen_ai.agent.name=weather",
                "a2a.protocol.version=1.0",
                "http.response.status_code=IntValue(200)",
            ]
        );
        for (end, error) in [
            (ExchangeEnd::Status(503), "error.type=503"),
            (ExchangeEnd::Failure("timeout"), "error.type=timeout"),
        ] {
            let span = of(Some(end));
            assert_eq!(span.status.as_ref().map(Status::code), Some(StatusCode::Error));
            assert_eq!(shown(&span.attributes).last().map(String::as_str), Some(error));
        }
        assert_eq!(of(None).attributes.len(), 6);
    }

    #[test]
    fn link_has_its_context() {
        let link =
            TraceContext::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00", Some("a=1"));
        let mut protobuf = Vec::new();
        write_link(&link.unwrap(), &mut protobuf);
        let link = Link::decode(&*protobuf).unwrap();
        assert_eq!((link.trace_id.len(), link.span_id.len(), link.trace_state.as_str()), (16, 8, "a=1"));
        assert_eq!(link.flags, 0x300);
    }
}
