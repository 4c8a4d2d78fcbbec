//! `tracing`: the export of traces over OTLP.

use std::collections::BTreeMap;
use std::time::Duration;

use http::{HeaderName, Uri};

use super::agent::{AgentTls, headers};
use super::forms::{Form, HumanDuration, choice};
use super::host::web_url;
use super::reference::{ReloadableSecret, Secret, Template};
use super::resolve::ResolveContext;
use super::section::{KeysOf, section};
use super::yaml::{Location, Spanned};

section! {
    /// Export of traces over OTLP. Without this section the trace context of clients is passed on
    /// as it came. Environment variables of OpenTelemetry (`OTEL_…`) are not read.
    keys TracingKeys("Tracing") {
        /// The URL of the collector. For `http` without a path: `/v1/traces` is added.
        endpoint: String => Option<String>
            [required "write the URL of the collector" example "http://127.0.0.1:4318"],
        /// Protocol of OTLP: `http` (protobuf over HTTP) or `grpc`.
        protocol: OtlpProtocol => OtlpProtocol = http,
        /// Headers for the collector, such as credentials. For `grpc` its metadata.
        headers: BTreeMap<String, Spanned<Template>> [example { Authorization: "Bearer ${env:OTLP_TOKEN}" }],
        /// Trust in the collector, and the gateway's certificate for it.
        tls: KeysOf<AgentTls> => AgentTls,
        /// The part of all requests that is recorded, from 0 to 1.
        ratio: f64 => f64 = 1.0 in 0.0..=1.0,
        /// True if a request with a trace context is recorded as its sender decided, and not by
        /// `ratio`. Any client can then cause spans.
        trust_client_sampling: bool => bool = false,
        /// The name of the gateway in traces (`service.name`).
        service_name: String => String = "mcp-a2a-gateway",
        /// More attributes of the gateway in traces, such as `deployment.environment.name`.
        resource: BTreeMap<String, Spanned<Template>> [example { deployment.environment.name: production }],
        /// Longest time for one request to the collector.
        timeout: HumanDuration => Duration = 10s in 10ms..=1m,
        /// Most spans that wait for the collector. Those beyond are dropped and counted.
        queue: u64 => usize = 4096 in 64..=1000000,
    }
}

/// Protocol of OTLP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtlpProtocol {
    /// Protobuf over HTTP.
    Http,
    /// gRPC.
    Grpc,
}

choice! {
    /// Protocol of OTLP.
    OtlpProtocol as "OtlpProtocol" { "http" => Self::Http, "grpc" => Self::Grpc, }
}

/// Export of traces over OTLP.
#[derive(Debug, Clone, PartialEq)]
pub struct Tracing {
    /// The URL of the collector, with the path for HTTP.
    pub endpoint: Uri,
    /// The protocol.
    pub protocol: OtlpProtocol,
    /// Headers for the collector.
    pub headers: Vec<(HeaderName, ReloadableSecret)>,
    /// Trust in the collector, and the gateway's certificate for it.
    pub tls: AgentTls,
    /// The part of all requests that is recorded, from 0 to 1.
    pub ratio: f64,
    /// True if the decision of a sender counts.
    pub trust_client_sampling: bool,
    /// The name of the gateway in traces.
    pub service_name: String,
    /// More attributes of the gateway in traces.
    pub resource: BTreeMap<String, String>,
    /// Longest time for one request to the collector.
    pub timeout: Duration,
    /// Most spans that wait for the collector.
    pub queue: usize,
}

impl Form<Tracing> for TracingKeys {
    fn resolve(mut self, place: &Location, context: &mut ResolveContext<'_>) -> Option<Tracing> {
        self.section = place.clone();
        let url = self.endpoint(context);
        let url_place = self.endpoint.place().unwrap_or(place).clone();
        let resource = std::mem::take(&mut self.resource).value().unwrap_or_default();
        let resource = resource.into_iter().filter_map(|(name, value)| {
            let (_, value) = value.resolve::<Secret>(context)?;
            Some((name, value.expose().to_owned()))
        });
        let resource = resource.collect();
        let (protocol, tls) = (self.protocol(context), self.tls(context));
        let headers = headers(std::mem::take(&mut self.headers), context);
        let mut url = url?;
        if let Err(problem) = web_url(&url) {
            return context.report_conflict(&url_place, problem);
        }
        let has_path = url.parse::<Uri>().is_ok_and(|uri| !uri.path().trim_matches('/').is_empty());
        if protocol == OtlpProtocol::Grpc && has_path {
            return context.report_conflict(&url_place, "has a path (gRPC has one of its own: remove it)");
        }
        if protocol == OtlpProtocol::Http && !has_path {
            url.truncate(url.trim_end_matches('/').len());
            url.push_str("/v1/traces");
        }
        Some(Tracing {
            endpoint: url.parse().ok()?,
            protocol,
            headers,
            tls,
            ratio: self.ratio(context),
            trust_client_sampling: self.trust_client_sampling(context),
            service_name: self.service_name(context),
            resource,
            timeout: self.timeout(context),
            queue: self.queue(context),
        })
    }
}
