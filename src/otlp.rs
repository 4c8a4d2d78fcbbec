//! Export of traces over OTLP: batches of spans as protobuf over HTTP, or by gRPC.
//!
//! A request is written once, of the spans that requests have ended (see `telemetry::span`), and is the same in both
//! protocols. A collector that does not respond costs spans, which are counted, and never a request.

use std::sync::Mutex;
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes};
use http::header::CONTENT_TYPE;
use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, Method, Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message as _;
use rustls::pki_types::ServerName;
use tokio_rustls::TlsConnector;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use crate::auth::TlsIdentity;
use crate::config::{OtlpProtocol, ReloadableSecret, Tracing};
use crate::protobuf::{bytes_field, delimited};
use crate::sync::lock;
use crate::telemetry::log_line::Sanitized;
use crate::telemetry::metrics::SpanMetrics;
use crate::telemetry::span::{Attributes, EndedSpan};
use crate::telemetry::trace::{QueuedSpan, SpanReceiver, Tracer, TracerSettings};
use crate::transport::{AddressPolicy, ExchangeTimeouts, HttpClient, TargetSettings, Upstream};

/// The time for which a batch that is not full waits for more spans.
const BATCH_DELAY: Duration = Duration::from_secs(1);
/// The pause before a batch is sent once more, after a failure that may pass.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// The maximum size of a response, in bytes.
const MAX_RESPONSE_BYTES: usize = 64 * 1024;
/// The size of most spans, in bytes.
const SPAN_BYTES: usize = 640;
/// The method of gRPC that takes spans.
const EXPORT_PATH: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

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
    /// The `Resource` of OTLP that the spans are of.
    resource: Vec<u8>,
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
                    QueuedSpan::Ended(span) => batch.push(span),
                    QueuedSpan::Flush(done) => waiting.push(done),
                }
            }
            if !batch.is_empty() {
                is_failing = self.export(&connection, &batch, is_failing).await;
            }
            for done in waiting {
                if done.send(()).is_err() {
                    tracing::debug!("the flush of spans timed out");
                }
            }
        }
    }

    /// Returns the `ExportTraceServiceRequest` of OTLP with spans of this process.
    fn request(&self, spans: &[Box<EndedSpan>]) -> Bytes {
        let mut request = Vec::with_capacity(spans.len().saturating_mul(SPAN_BYTES));
        delimited(1, &mut request, |resource_spans| {
            bytes_field(1, &self.resource, resource_spans);
            delimited(2, resource_spans, |scope_spans| {
                delimited(1, scope_spans, |scope| {
                    bytes_field(1, b"mcp-a2a-gateway", scope);
                    bytes_field(2, env!("CARGO_PKG_VERSION").as_bytes(), scope);
                });
                for span in spans {
                    delimited(2, scope_spans, |protobuf| span.write(protobuf));
                }
            });
        });
        request.into()
    }

    /// Exports a batch. Returns true if the export fails at present.
    async fn export(&self, connection: &Connection<'_>, batch: &[Box<EndedSpan>], was_failing: bool) -> bool {
        let count = u64::try_from(batch.len()).unwrap_or(u64::MAX);
        let request = self.request(batch);
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

/// Returns the `Resource` of OTLP that the spans are of. The configuration may name another service or version.
fn resource(settings: &Tracing) -> Vec<u8> {
    let defaults =
        [("service.name", settings.service_name.as_str()), ("service.version", env!("CARGO_PKG_VERSION"))];
    let mut resource = Vec::new();
    let mut attributes = Attributes { number: 1, protobuf: &mut resource };
    for (name, value) in defaults {
        if !settings.resource.contains_key(name) {
            attributes.text(name, value);
        }
    }
    for (name, value) in &settings.resource {
        attributes.text(name, value);
    }
    resource
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
    async fn send(&self, request: &Bytes) -> Result<u64, ExportError> {
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
        message: &Bytes,
    ) -> Result<u64, ExportError> {
        let mut request = Request::new(message.clone());
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
            return Ok(body.map_or(0, rejected));
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

    async fn send_grpc(&self, channel: Option<&Channel>, message: &Bytes) -> Result<u64, ExportError> {
        let Some(channel) = channel else { return Ok(0) };
        let mut headers = http::HeaderMap::new();
        for (name, secret) in &self.exporter.headers {
            if let Some(value) = secret_value(secret) {
                headers.insert(name.clone(), value);
            }
        }
        let mut request = tonic::Request::new(message.clone());
        *request.metadata_mut() = MetadataMap::from_headers(headers);
        let mut client = Grpc::new(channel.clone()).max_decoding_message_size(MAX_RESPONSE_BYTES);
        let export = async {
            client.ready().await.map_err(|error| Status::unknown(error.to_string()))?;
            client.unary(request, PathAndQuery::from_static(EXPORT_PATH), EncodedMessages).await
        };
        let sent = tokio::time::timeout(self.exporter.timeout, export).await;
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

/// The codec of messages that are encoded already, and of responses that are not decoded yet.
struct EncodedMessages;

impl Codec for EncodedMessages {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for EncodedMessages {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(message);
        Ok(())
    }
}

impl Decoder for EncodedMessages {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}

/// Returns the number of spans that a collector rejected, and logs the reason. None for a response that is not one: the spans
/// were accepted, whatever it is.
fn rejected(response: Bytes) -> u64 {
    let Some(partial) =
        ExportTraceServiceResponse::decode(response).ok().and_then(|read| read.partial_success)
    else {
        return 0;
    };
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
