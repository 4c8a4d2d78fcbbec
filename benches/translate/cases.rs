//! The ways of a call through the core, in the order in which the gateway takes them.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue};
use mcp_a2a_gateway::a2a::{AgentCard, Dialect, OperationRequest};
use mcp_a2a_gateway::bridge::agent_action::{AgentAction, CallOrigin, TraceContext, build};
use mcp_a2a_gateway::bridge::arguments;
use mcp_a2a_gateway::bridge::catalogue::{Catalogue, ToolPlan};
use mcp_a2a_gateway::bridge::extension::ClientExtensions;
use mcp_a2a_gateway::bridge::output::AgentOutput;
use mcp_a2a_gateway::bridge::task_status::ProgressNotifier;
use mcp_a2a_gateway::bridge::tool_result::{ResultContext, TaskTools, result};
use mcp_a2a_gateway::jsonrpc::{Id, parse, well_formed};
use mcp_a2a_gateway::mcp::classify::{McpHeaders, classify};
use mcp_a2a_gateway::mcp::lifecycle::Implementation;
use mcp_a2a_gateway::mcp::result_writer::ResultWriter;
use mcp_a2a_gateway::mcp::tools::ResourceLinks;
use mcp_a2a_gateway::mcp::{ClientParams, Version};
use mcp_a2a_gateway::seal::Sealer;
use mcp_a2a_gateway::sse::Decoder;

use super::bodies;
use super::stopwatch::Case;

const ARTIFACTS: usize = 16 << 20;
const EVENT: usize = 4 << 20;
/// Events of one task.
const EVENTS: usize = 64;

/// State that exists before the first call.
pub(crate) struct Desk {
    sealer: Sealer,
    catalogue: Catalogue,
    legacy: HeaderMap,
    modern: HeaderMap,
    modes: Vec<String>,
    id: Id,
}

impl Desk {
    pub(crate) fn new() -> Self {
        let card = AgentCard::parse(bodies::card().to_string().as_bytes()).unwrap();
        let modes = card.default_output_modes.clone();
        let plan = ToolPlan { agent: "weather".into(), ..ToolPlan::default() };
        let mut legacy = HeaderMap::new();
        for (name, value) in [
            ("host", "127.0.0.1:8080"),
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("mcp-protocol-version", "2025-11-25"),
        ] {
            legacy.insert(name, HeaderValue::from_static(value));
        }
        let mut modern = legacy.clone();
        for (name, value) in [
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/call"),
            ("mcp-name", "weather_forecast"),
        ] {
            modern.insert(name, HeaderValue::from_static(value));
        }
        Self {
            sealer: Sealer::new([b"0123456789abcdef0123456789abcdef".as_slice()]).unwrap(),
            catalogue: Catalogue::build(&[(plan, Arc::new(card))], &[]),
            legacy,
            modern,
            modes,
            id: serde_json::from_str("42").unwrap(),
        }
    }

    /// Translates the body of a client's request to the body of the agent's.
    fn ask(&self, headers: &HeaderMap, body: &[u8], dialect: Dialect) -> Vec<u8> {
        let headers = McpHeaders::read(headers);
        let text = well_formed(body, 64).unwrap();
        let message = parse::<ClientParams<'_>>(text).unwrap();
        let era = classify(&message, &headers).unwrap().era();
        std::hint::black_box(era);
        let params = message.params.as_ref().unwrap();
        let tool =
            self.catalogue.all().find(params.name.as_ref().unwrap().as_str()).unwrap().of_agent().unwrap();
        let asked = arguments::read(&tool.input, params.arguments).unwrap();
        let sender = CallOrigin {
            caller: "anonymous",
            sealer: &self.sealer,
            agent: &tool.agent,
            skill: tool.skill.as_deref(),
            trace: TraceContext::default(),
            message_id: [7; 16],
            extensions: ClientExtensions::default(),
        };
        let Ok(AgentAction::Say(message)) = build(asked, &sender) else { return Vec::new() };
        dialect.send(
            &OperationRequest { message: &message, accepted_output_modes: &self.modes, tenant: None },
            false,
        )
    }

    /// Translates the body of an agent's response to the body of the client's.
    fn answer(&self, body: &[u8], dialect: Dialect, version: Version) -> Vec<u8> {
        let mut work = AgentOutput::new(ARTIFACTS);
        work.apply(dialect.event(body).unwrap()).unwrap();
        let audience = ResultContext {
            version,
            caller: "anonymous",
            sealer: &self.sealer,
            agent: "weather",
            task_tools: TaskTools::default(),
            extensions: &[],
            links: ResourceLinks::default(),
        };
        let server = Implementation { name: "bench", version: "1.0.0" };
        let writer = ResultWriter { era: version.era(), server, ttl_ms: 60_000 };
        writer.uncacheable(&self.id, &result(&work, &audience, [1; 16]))
    }
}

/// State of a stream.
struct Stream {
    decoder: Decoder,
    work: AgentOutput,
    teller: ProgressNotifier,
    out: Vec<u8>,
}

impl Stream {
    fn new(token: &Id) -> Self {
        Self {
            decoder: Decoder::new(EVENT),
            work: AgentOutput::new(ARTIFACTS),
            teller: ProgressNotifier::new(Some(token.clone()), None, "weather"),
            out: Vec::with_capacity(1024),
        }
    }

    /// Translates bytes of the agent's stream to bytes of the client's.
    fn pass(&mut self, bytes: &[u8]) -> usize {
        self.out.clear();
        for event in self.decoder.push(bytes).unwrap() {
            let note = self.work.apply(Dialect::V1.event(&event.data).unwrap()).unwrap();
            if let Some(note) = &note {
                self.teller.write_events(note, &mut self.out);
            }
        }
        self.out.len()
    }
}

/// Returns every case.
pub(crate) fn all(desk: &Desk) -> Vec<Case<'_>> {
    let newest_legacy = Version::V2025_11_25;
    vec![
        call(desk, "call: small", &desk.legacy, bodies::small_call(), Dialect::V1),
        call(desk, "call: small, to A2A 0.3", &desk.legacy, bodies::small_call(), Dialect::V0_3),
        call(desk, "call: small, modern client", &desk.modern, bodies::modern_call(), Dialect::V1),
        call(desk, "call: 64 KiB text", &desk.legacy, bodies::text_call(), Dialect::V1),
        call(desk, "call: 64 KiB nested data", &desk.legacy, bodies::data_call(), Dialect::V1),
        reply(desk, "reply: small", bodies::small_task(), Dialect::V1, newest_legacy),
        reply(desk, "reply: small, from A2A 0.3", bodies::old_task(), Dialect::V0_3, newest_legacy),
        reply(desk, "reply: small, modern client", bodies::small_task(), Dialect::V1, Version::V2026_07_28),
        reply(desk, "reply: 64 KiB text", bodies::text_task(), Dialect::V1, newest_legacy),
        reply(desk, "reply: 64 KiB nested data", bodies::data_task(), Dialect::V1, newest_legacy),
        events(desk, "stream event: status → progress", bodies::status_events()),
        events(desk, "stream event: chunk → progress", [bodies::chunk_event(), bodies::chunk_event()]),
    ]
}

fn call<'a>(
    desk: &'a Desk,
    name: &'static str,
    headers: &'a HeaderMap,
    body: Vec<u8>,
    dialect: Dialect,
) -> Case<'a> {
    assert!(desk.ask(headers, &body, dialect).len() > body.len() / 2, "{name}");
    Case { name, bytes: body.len(), once: Box::new(move || desk.ask(headers, &body, dialect).len()) }
}

fn reply<'a>(
    desk: &'a Desk,
    name: &'static str,
    body: Vec<u8>,
    dialect: Dialect,
    version: Version,
) -> Case<'a> {
    assert!(desk.answer(&body, dialect, version).len() > body.len() / 3, "{name}");
    Case { name, bytes: body.len(), once: Box::new(move || desk.answer(&body, dialect, version).len()) }
}

fn events<'a>(desk: &'a Desk, name: &'static str, events: [Vec<u8>; 2]) -> Case<'a> {
    let bytes = (events[0].len() + events[1].len()) / 2;
    let (mut stream, mut passed) = (Stream::new(&desk.id), 0);
    assert!(events.iter().all(|event| stream.pass(event) > 0), "{name}: nothing is told");
    let once = move || {
        passed += 1;
        if passed % EVENTS == 0 {
            stream = Stream::new(&desk.id);
        }
        stream.pass(&events[passed % 2])
    };
    Case { name, bytes, once: Box::new(once) }
}
