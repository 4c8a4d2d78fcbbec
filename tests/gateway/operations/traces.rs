//! Traces: the context of a client's trace at the agent, and the spans at a collector (OTLP over HTTP).

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Attribute;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use serde_json::json;

use super::seen::shows;
use crate::kit::a2a_scene::saying;
use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, Scene, TOOL};
use crate::support::payload::v1;
use crate::support::{Card, Log, Reply, Request, ScriptedAgent};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const SERVER: i32 = 2;
const CLIENT: i32 = 3;

/// A collector that accepts every batch, and a gateway that exports to it.
async fn traced(settings: &str) -> (ScriptedAgent, Scene) {
    let collector = ScriptedAgent::start(Card::v1()).await;
    collector.on_path("/v1/traces", |_| Reply::bytes_of("application/x-protobuf", b""));
    let tracing = format!("tracing: {{ endpoint: \"{}\", {settings} }}\n", collector.url());
    let scene = Scene::tuned(&tracing).await;
    scene.agent.on_send(|_| Reply::events([v1::completed(RAW_TASK, RAW_CONTEXT, "la")]));
    (collector, scene)
}

fn spans(requests: &[&Request]) -> Vec<Span> {
    let batches =
        requests.iter().map(|request| ExportTraceServiceRequest::decode(&request.body[..]).unwrap());
    let resources = batches.flat_map(|batch| batch.resource_spans);
    resources.flat_map(|resource| resource.scope_spans).flat_map(|scope| scope.spans).collect()
}

/// The spans of the trace, once there are so many.
async fn collected(collector: &ScriptedAgent, count: usize) -> Vec<Span> {
    let of_trace = |spans: Vec<Span>| -> Vec<Span> {
        spans.into_iter().filter(|span| hex(&span.trace_id) == TRACE).collect()
    };
    let log =
        collector.wait_for("the spans", |log| of_trace(spans(&log.hits("/v1/traces"))).len() >= count).await;
    of_trace(spans(&log.hits("/v1/traces")))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn attribute(span: &Span, name: &str) -> Option<String> {
    let value = span.attributes.iter().find(|attribute| attribute.key == name)?.value.clone()?.value?;
    Some(match value {
        Attribute::StringValue(text) => text,
        Attribute::IntValue(number) => number.to_string(),
        other => format!("{other:?}"),
    })
}

fn of_kind(spans: &[Span], kind: i32) -> &Span {
    spans.iter().find(|span| span.kind == kind).unwrap_or_else(|| panic!("no span of kind {kind}: {spans:?}"))
}

#[tokio::test]
async fn trace_of_call_is_exported() {
    let (collector, scene) =
        traced("headers: { X-Token: secret }, resource: { deployment.environment.name: test }").await;
    let meta = json!({ "traceparent": PARENT, "tracestate": "a=b" });
    scene.call_with(json!({ "text": "x" }), meta).await.result().await;
    let spans = collected(&collector, 2).await;
    let (server, client) = (of_kind(&spans, SERVER), of_kind(&spans, CLIENT));
    assert_eq!(hex(&server.parent_span_id), "00f067aa0ba902b7");
    assert_eq!(client.parent_span_id, server.span_id);
    assert_eq!(server.name, format!("tools/call {TOOL}"));
    for (span, name, value) in [
        (server, "mcp.method.name", "tools/call"),
        (server, "gen_ai.tool.name", TOOL),
        (server, "gen_ai.agent.name", "bard"),
        (server, "http.response.status_code", "200"),
        (server, "client.address", "127.0.0.1"),
        (client, "http.request.method", "POST"),
        (client, "http.response.status_code", "200"),
        (client, "server.address", "127.0.0.1"),
    ] {
        assert_eq!(attribute(span, name).as_deref(), Some(value), "{name}: {span:?}");
    }
    let sent = scene.agent.wait_for_call("SendStreamingMessage").await;
    assert_eq!(sent.header("traceparent"), Some(&*format!("00-{TRACE}-{}-01", hex(&client.span_id))));
    assert_eq!(sent.header("tracestate"), Some("a=b"));
    let metadata = &sent.json()["params"]["message"]["metadata"];
    assert_eq!(metadata["traceparent"], format!("00-{TRACE}-{}-01", hex(&server.span_id)));
    let batch = collector.log().hits("/v1/traces")[0].clone();
    assert_eq!(batch.header("x-token"), Some("secret"));
    let text = format!("{spans:?}");
    assert!(!text.contains(RAW_TASK) && !text.contains(RAW_CONTEXT) && !text.contains("secret"), "{text}");
    shows(&scene.gateway, r#"mcp_a2a_gateway_trace_spans_total{outcome="dropped"} 0"#).await;
}

/// Spans that have ended are at the collector when the process has.
#[tokio::test]
async fn trace_is_exported_at_shutdown() {
    for signal in ["TERM", "INT"] {
        let (collector, mut scene) = traced("").await;
        scene.call_with(json!({ "text": "x" }), json!({ "traceparent": PARENT })).await.result().await;
        scene.gateway.signal(signal);
        assert_eq!(scene.gateway.ended().await, Some(0), "{signal}");
        assert!(spans(&collector.log().hits("/v1/traces")).len() >= 2, "{signal}");
    }
}

/// A collector that is down costs spans, one line of the log, and no call.
#[tokio::test]
async fn trace_without_collector_harms_no_call() {
    let (collector, scene) = traced("timeout: 1s").await;
    collector.stop().await;
    scene.said("x").await;
    scene.gateway.wait_for_output("failed to export traces").await;
    scene.said("y").await;
    let failed = async {
        loop {
            let page = scene.gateway.metrics().await;
            let line = page.lines().find(|line| line.contains(r#"trace_spans_total{outcome="failed"}"#));
            let count = line.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
            if count.is_some_and(|count| count >= 4) {
                break;
            }
        }
    };
    crate::support::in_time("both batches", failed).await;
    assert_eq!(scene.gateway.output().matches("failed to export traces").count(), 1);
}

#[tokio::test]
async fn trace_that_is_not_sampled_goes_on() {
    let (collector, scene) = traced("ratio: 0").await;
    scene.call_with(json!({ "text": "x" }), json!({ "traceparent": PARENT })).await.result().await;
    let sent = scene.agent.wait_for_call("SendStreamingMessage").await;
    let parent = sent.header("traceparent").unwrap();
    assert!(parent.starts_with(&format!("00-{TRACE}-")) && parent.ends_with("-00"), "{parent}");
    let Scene { mut gateway, .. } = scene;
    gateway.terminate().await;
    assert!(collector.log().hits("/v1/traces").is_empty());
}

#[tokio::test]
async fn trace_of_trusted_client_is_sampled() {
    let (collector, scene) = traced("ratio: 0, trust_client_sampling: true").await;
    scene.call_with(json!({ "text": "x" }), json!({ "traceparent": PARENT })).await.result().await;
    assert_eq!(collected(&collector, 2).await.len(), 2);
}

/// The name of a span is not the choice of a client, and neither is its size.
#[tokio::test]
async fn trace_of_strange_path_is_small() {
    let (collector, scene) = traced("").await;
    let path = format!("/{}", "x".repeat(4096));
    let client = scene.gateway.client().at(&path).header("traceparent", PARENT);
    assert_eq!(client.get(&[]).await.status, 404);
    let spans = collected(&collector, 1).await;
    let span = of_kind(&spans, SERVER);
    assert_eq!(span.name, "GET");
    assert!(attribute(span, "url.path").unwrap().len() < 300, "{span:?}");
}

/// Waits until a span of the trace has this event.
async fn has_event(collector: &ScriptedAgent, name: &str) {
    let has = |log: &Log| {
        let of_trace = spans(&log.hits("/v1/traces")).into_iter().filter(|span| hex(&span.trace_id) == TRACE);
        of_trace.flat_map(|span| span.events).any(|event| event.name == name)
    };
    collector.wait_for(name, has).await;
}

/// The span tells that the stream of the agent stopped, and the task was asked for.
#[tokio::test]
async fn trace_tells_of_recovery() {
    let (collector, scene) = traced("").await;
    let begun = Reply::events([v1::task(RAW_TASK, RAW_CONTEXT, "working")]).cut();
    scene.agent.on_send(move |_| begun.clone());
    scene.agent.on_get(|_| Reply::result(v1::bare_completed(RAW_TASK, RAW_CONTEXT, "la")));
    scene.call_with(json!({ "text": "x" }), json!({ "traceparent": PARENT })).await.result().await;
    has_event(&collector, "recovery").await;
}

/// The span of a call that becomes a task tells so.
#[tokio::test]
async fn trace_tells_of_handover() {
    let (collector, scene) = traced("").await;
    let go = scene.agent.works_for((RAW_TASK, RAW_CONTEXT), "la");
    let session = scene.gateway.client().header("traceparent", PARENT).legacy().await;
    session.begin_task(TOOL, json!({ "text": "x" })).await;
    has_event(&collector, "handover").await;
    go.open();
}

/// The span of a call that its client cancels tells so.
#[tokio::test]
async fn trace_tells_of_cancellation() {
    let (collector, scene) = traced("").await;
    let _go = scene.agent.works_for((RAW_TASK, RAW_CONTEXT), "la");
    let session = scene.gateway.client().header("traceparent", PARENT).legacy().await;
    let params = json!({ "name": TOOL, "arguments": { "text": "x" } });
    let body = json!({ "jsonrpc": "2.0", "id": "c", "method": "tools/call", "params": params });
    let cancelled = async {
        scene.agent.wait_for_call("SendStreamingMessage").await;
        session.notify("notifications/cancelled", json!({ "requestId": "c" })).await;
    };
    let answered = async {
        let mut answer = session.post(&body).await;
        while answer.next_event().await.is_some() {}
    };
    tokio::join!(answered, cancelled);
    has_event(&collector, "cancelled").await;
}

/// Without an exporter the context is passed on as it came.
#[tokio::test]
async fn trace_passes_through_when_off() {
    let scene = Scene::new().await;
    scene.agent.on_send(|_| Reply::events([v1::completed(RAW_TASK, RAW_CONTEXT, "la")]));
    let params = json!({ "name": TOOL, "arguments": { "text": "x" } });
    let client = scene.gateway.client().header("traceparent", PARENT).header("baggage", "a=1");
    client.modern("tools/call", params).await.result().await;
    let sent = scene.agent.wait_for_call("SendStreamingMessage").await;
    assert_eq!(sent.header("traceparent"), Some(PARENT));
    assert_eq!(sent.header("baggage"), None);
    assert_eq!(sent.json()["params"]["message"]["metadata"]["traceparent"], PARENT);
    let invalid = PARENT.replace("00f067aa0ba902b7", "0000000000000000");
    scene.call_with(json!({ "text": "x" }), json!({ "traceparent": invalid })).await.result().await;
    let sent = scene.agent.calls("SendStreamingMessage").pop().unwrap();
    assert_eq!(sent.header("traceparent"), None);
    assert!(!String::from_utf8(sent.body).unwrap().contains("traceparent"));
}

/// Through the A2A face the context is in HTTP headers alone: bodies stay as they are.
#[tokio::test]
async fn trace_of_a2a_client_is_in_headers() {
    let scene = crate::kit::a2a_scene::Stage::new().await;
    scene.agent.on_send(|_| Reply::events([v1::completed(RAW_TASK, RAW_CONTEXT, "la")]));
    let client = scene.client().header("traceparent", PARENT);
    crate::kit::a2a_scene::call(&client, "SendStreamingMessage", saying("x")).await.text().await;
    let sent = scene.agent.wait_for_call("SendStreamingMessage").await;
    assert_eq!(sent.header("traceparent"), Some(PARENT));
    assert!(!String::from_utf8(sent.body).unwrap().contains("traceparent"));
}
