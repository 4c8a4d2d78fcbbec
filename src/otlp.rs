//! Export of traces over OTLP: batches of spans as protobuf over HTTP, or by gRPC.
//!
//! The messages are those of OpenTelemetry's crate, made here of the spans that requests have ended (see
//! `telemetry::span`). A collector that does not respond costs spans, which are counted, and never a request.

use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, Method, Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message as _;
use rustls::pki_types::ServerName;
use tokio_rustls::TlsConnector;
use tonic::Code;
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, Endpoint};

use crate::auth::TlsIdentity;
use crate::config::{OtlpProtocol, ReloadableSecret, Tracing};
use crate::sync::lock;
use crate::telemetry::log_line::Sanitized;
use crate::telemetry::metrics::SpanMetrics;
use crate::telemetry::span::text;
use crate::telemetry::trace::{QueuedSpan, SpanReceiver, Tracer, TracerSettings};
use crate::transport::{AddressPolicy, ExchangeTimeouts, HttpClient, TargetSettings, Upstream};

/// The time for which a batch that is not full waits for more spans.
const BATCH_DELAY: Duration = Duration::from_secs(1);
/// The pause before a batch is sent once more, after a failure that may pass.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// The maximum size of a response, in bytes.
const MAX_RESPONSE_BYTES: usize = 64 * 1024;

/// The reason for which a batch was not exported.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
struct ExportError {
    text: String,
    /// True if the same batch may be accepted later (OTLP 1.x, "Failures").
    may_pass: bool,
}

/// Sends the spans of one process to a collector.
pub(crate) struct SpanExporter {
    collector: Collector,
    headers: Vec<(HeaderName, ReloadableSecret)>,
    timeout: Duration,
    /// The entity that the spans are of.
    resource: Resource,
    metrics: SpanMetrics,
    /// The queue, until the export begins.
    spans: Mutex<Option<SpanReceiver>>,
}

/// The way to the collector.
enum Collector {
    Http { client: HttpClient, target: Upstream, path: PathAndQuery },
    Grpc { address: Box<GrpcAddress> },
}

/// The address of a collector for gRPC.
#[derive(Clone)]
struct GrpcAddress {
    uri: Uri,
    client: HttpClient,
    target: Upstream,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl SpanExporter {
    /// Creates the exporter, and the tracer of the spans that it sends.
    ///
    /// # Errors
    ///
    /// The setting that cannot be used, as text.
    pub(crate) fn new(
        settings: &Tracing,
        metrics: &SpanMetrics,
        client: &HttpClient,
    ) -> Result<(Self, std::sync::Arc<Tracer>), String> {
        let (tracer, spans) = Tracer::new(TracerSettings {
            ratio: settings.ratio,
            trusts_clients: settings.trust_client_sampling,
            queue: settings.queue,
            dropped: metrics.dropped(),
        });
        let exporter = Self {
            collector: collector(settings, client)?,
            headers: settings.headers.clone(),
            timeout: settings.timeout,
            resource: resource(settings),
            metrics: metrics.clone(),
            spans: Mutex::new(Some(spans)),
        };
        Ok((exporter, tracer))
    }

    /// Exports spans until the tracer is dropped.
    pub(crate) async fn run(&self) {
        let Some(mut spans) = lock(&self.spans).take() else { return };
        let connection = Connection::new(self);
        let mut is_failing = false;
        loop {
            let entries = spans.batch(BATCH_DELAY).await;
            if entries.is_empty() {
                return;
            }
            let (mut batch, mut waiting) = (Vec::new(), Vec::new());
            for entry in entries {
                match entry {
                    QueuedSpan::Ended(span) => batch.push(Span::from(&*span)),
                    QueuedSpan::Flush(done) => waiting.push(done),
                }
            }
            if !batch.is_empty() {
                is_failing = self.export(&connection, batch, is_failing).await;
            }
            for done in waiting {
                if done.send(()).is_err() {
                    tracing::debug!("the flush of spans timed out");
                }
            }
        }
    }

    /// Returns the message of the spans of this process.
    fn resource_spans(&self, spans: Vec<Span>) -> ResourceSpans {
        let scope = InstrumentationScope {
            name: "mcp-a2a-gateway".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..InstrumentationScope::default()
        };
        let scope_spans = vec![ScopeSpans { scope: Some(scope), spans, ..ScopeSpans::default() }];
        ResourceSpans { resource: Some(self.resource.clone()), scope_spans, ..ResourceSpans::default() }
    }

    /// Exports a batch. Returns true if the export fails at present.
    async fn export(&self, connection: &Connection<'_>, batch: Vec<Span>, was_failing: bool) -> bool {
        let count = u64::try_from(batch.len()).unwrap_or(u64::MAX);
        let request = ExportTraceServiceRequest { resource_spans: vec![self.resource_spans(batch)] };
        let mut sent = connection.send(&request).await;
        // One failure may be the idle connection of a collector that was restarted.
        if !was_failing && matches!(&sent, Err(error) if error.may_pass) {
            tokio::time::sleep(RETRY_PAUSE).await;
            sent = connection.send(&request).await;
        }
        match sent {
            Ok(rejected) => {
                self.metrics.failed(rejected.min(count));
                self.metrics.exported(count.saturating_sub(rejected));
                if was_failing {
                    tracing::info!("traces are exported again");
                }
                false
            }
            Err(error) => {
                self.metrics.failed(count);
                if !was_failing {
                    tracing::warn!(%error, "failed to export traces");
                }
                true
            }
        }
    }
}

/// Returns the entity that the spans are of. The configuration may name another service or version.
fn resource(settings: &Tracing) -> Resource {
    let defaults =
        [("service.name", settings.service_name.as_str()), ("service.version", env!("CARGO_PKG_VERSION"))];
    let defaults = defaults.into_iter().filter(|(name, _)| !settings.resource.contains_key(*name));
    let configured = settings.resource.iter().map(|(name, value)| text(name, value.as_str()));
    let attributes = defaults.map(|(name, value)| text(name, value)).chain(configured).collect();
    Resource { attributes, ..Resource::default() }
}

fn collector(settings: &Tracing, client: &HttpClient) -> Result<Collector, String> {
    let uri = settings.endpoint.clone();
    let is_plain = uri.scheme_str() == Some("http");
    let tls = TlsIdentity::new(&settings.tls, is_plain)?.tls(true);
    let mut target = TargetSettings::new(uri.clone(), AddressPolicy::Trusted);
    (target.tls, target.server_name) = (tls.clone(), settings.tls.server_name.clone());
    target.timeouts = ExchangeTimeouts {
        connect: settings.timeout.min(target.timeouts.connect),
        first_byte: settings.timeout,
        idle: settings.timeout,
        total: settings.timeout,
    };
    let (client, target) = (client.clone(), Upstream::new(target).map_err(|error| error.to_string())?);
    if settings.protocol == OtlpProtocol::Http {
        let path = uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        return Ok(Collector::Http { client, target, path });
    }
    let tls = match tls.filter(|_| !is_plain) {
        None => None,
        Some(config) => {
            let mut config = rustls::ClientConfig::clone(&config);
            config.alpn_protocols = vec![b"h2".to_vec()];
            let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
            let name = settings.tls.server_name.clone().unwrap_or(host);
            let name = ServerName::try_from(name).map_err(|error| error.to_string())?;
            Some((TlsConnector::from(std::sync::Arc::new(config)), name))
        }
    };
    Ok(Collector::Grpc { address: Box::new(GrpcAddress { uri, client, target, tls }) })
}

/// The connection to the collector, on the runtime of the exporter.
struct Connection<'a> {
    exporter: &'a SpanExporter,
    /// Connects when it is first used, and anew after it broke.
    channel: Option<Channel>,
}

impl<'a> Connection<'a> {
    fn new(exporter: &'a SpanExporter) -> Self {
        let channel = match &exporter.collector {
            Collector::Http { .. } => None,
            Collector::Grpc { address } => Some(address.channel(exporter.timeout)),
        };
        Self { exporter, channel }
    }

    /// Sends a batch. Returns the number of spans that the collector rejected.
    async fn send(&self, request: &ExportTraceServiceRequest) -> Result<u64, ExportError> {
        match (&self.exporter.collector, &self.channel) {
            (Collector::Http { client, target, path }, _) => {
                self.send_http(client, target, path, request).await
            }
            (Collector::Grpc { .. }, channel) => self.send_grpc(channel.as_ref(), request).await,
        }
    }

    async fn send_http(
        &self,
        client: &HttpClient,
        target: &Upstream,
        path: &PathAndQuery,
        message: &ExportTraceServiceRequest,
    ) -> Result<u64, ExportError> {
        let mut request = Request::new(Bytes::from(message.encode_to_vec()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = path.clone().into();
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        for (name, secret) in &self.exporter.headers {
            if let Some(value) = secret_value(secret) {
                request.headers_mut().insert(name.clone(), value);
            }
        }
        let failed = |text: String| ExportError { text, may_pass: true };
        let mut reply = client.send(target, request).await.map_err(|error| failed(error.to_string()))?;
        let status = reply.status();
        // Read to its end, so that the connection is used again.
        let body = reply.collect(MAX_RESPONSE_BYTES).await;
        if status.is_success() {
            // The spans were accepted, whatever the body is.
            let answer = body.ok().and_then(|body| ExportTraceServiceResponse::decode(body).ok());
            return Ok(answer.map_or(0, rejected));
        }
        let may_pass = matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS
                | StatusCode::BAD_GATEWAY
                | StatusCode::SERVICE_UNAVAILABLE
                | StatusCode::GATEWAY_TIMEOUT
        );
        Err(ExportError { text: format!("the collector answered {status}"), may_pass })
    }

    async fn send_grpc(
        &self,
        channel: Option<&Channel>,
        message: &ExportTraceServiceRequest,
    ) -> Result<u64, ExportError> {
        let Some(channel) = channel else { return Ok(0) };
        let mut headers = http::HeaderMap::new();
        for (name, secret) in &self.exporter.headers {
            if let Some(value) = secret_value(secret) {
                headers.insert(name.clone(), value);
            }
        }
        let mut request = tonic::Request::new(message.clone());
        *request.metadata_mut() = MetadataMap::from_headers(headers);
        let mut client =
            TraceServiceClient::new(channel.clone()).max_decoding_message_size(MAX_RESPONSE_BYTES);
        let sent = tokio::time::timeout(self.exporter.timeout, client.export(request)).await;
        let text = match sent {
            Ok(Ok(answer)) => return Ok(rejected(answer.into_inner())),
            Err(_) => "the collector did not answer in time".to_owned(),
            Ok(Err(status)) => {
                let may_pass = matches!(
                    status.code(),
                    Code::Cancelled
                        | Code::DeadlineExceeded
                        | Code::ResourceExhausted
                        | Code::Aborted
                        | Code::OutOfRange
                        | Code::Unavailable
                        | Code::DataLoss
                );
                let text = format!("the collector answered {:?}", status.code());
                return Err(ExportError { text, may_pass });
            }
        };
        Err(ExportError { text, may_pass: true })
    }
}

/// Returns the number of spans that a collector rejected, and logs the reason.
fn rejected(answer: ExportTraceServiceResponse) -> u64 {
    let Some(partial) = answer.partial_success else { return 0 };
    let spans = u64::try_from(partial.rejected_spans).unwrap_or_default();
    if spans > 0 {
        tracing::info!(spans, error = %Sanitized(&partial.error_message), "the collector rejected spans");
    }
    spans
}

fn secret_value(secret: &ReloadableSecret) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(secret.expose()).ok()?;
    value.set_sensitive(true);
    Some(value)
}

impl GrpcAddress {
    /// Returns a channel that connects when it is first used.
    fn channel(&self, timeout: Duration) -> Channel {
        let address = self.clone();
        let connector = tower::service_fn(move |_: Uri| {
            let address = address.clone();
            async move { address.connect().await }
        });
        Endpoint::from(self.uri.clone())
            .timeout(timeout)
            .connect_timeout(timeout)
            .http2_max_header_list_size(16 * 1024)
            .connect_with_connector_lazy(connector)
    }

    async fn connect(&self) -> std::io::Result<TokioIo<Box<dyn Connected>>> {
        let stream = self.client.open_stream(&self.target).await.map_err(std::io::Error::other)?;
        let stream: Box<dyn Connected> = match &self.tls {
            None => Box::new(stream),
            Some((tls, name)) => Box::new(tls.connect(name.clone(), stream).await?),
        };
        Ok(TokioIo::new(stream))
    }
}

/// A connection to a collector, with or without TLS.
trait Connected: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin {}

impl<S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin> Connected for S {}
