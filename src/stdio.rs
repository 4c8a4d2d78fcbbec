//! Serves the MCP client that started this process, over its standard input and output.
//!
//! Each line of input is a message, and each message is a request in process (`LocalConnection`), so
//! that everything behind the transport is that of the listeners: both eras, quotas, rules. The
//! differences of the transport are here: one legacy session for the process, headers that are made
//! from the body, cancellation by a notification (docs/spec/mcp.md §1.7), and the end of the input
//! as the end of the process. Standard output carries nothing but messages.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File as StdFile;
use std::future::poll_fn;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method as HttpMethod};
use memchr::memchr;
use tokio::fs::File;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::runtime::Builder;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, info, warn};

use crate::config::Settings;
use crate::fault::Fault;
use crate::gateway::{BackgroundService, Gateway, GatewayError, Reloader, SourcePoller};
use crate::http_edge::{LocalConnection, LocalPeer, LocalRequest, MessageOutput};
use crate::jsonrpc::{
    Id, MessageKind, ParseError, is_batch, parse, parse_envelope, recover_id, recover_id_of_cut, well_formed,
    write_error,
};
use crate::mcp::classify::{METHOD, NAME, PROTOCOL_VERSION, SESSION_ID, encode_base64_name};
use crate::mcp::params::RequestMeta;
use crate::mcp::version::CANCELLED;
use crate::mcp::{ClientParams, Era, Method};
use crate::server::{EndSignals, end_process, survive_file_size_limit};
use crate::sync::lock;
use crate::tasks::data_dir::seal_key;
use crate::tasks::store::StoreProblem;
use crate::tls;
use crate::transport::FileDescriptorBudget;

/// Lifetime of the session: the client cannot begin a new one, as it could over HTTP.
const SESSION_TTL: Duration = Duration::from_secs(366 * 24 * 3600);
/// Longest wait for the cards of the agents before the first message is read. Many clients list the
/// tools once, at their start.
const CARDS_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval of checks for the state of the gateway.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Longest wait at the end for tasks that are being cancelled.
const LAST_CANCELS_TIMEOUT: Duration = Duration::from_secs(1);
/// Bytes that are kept of the end of a line beyond the limit: for the id of its message.
const LAST_BYTES: usize = 512;
/// Buffer of standard input.
const READ_BUFFER: usize = 64 * 1024;

/// Method of the notification that ends the handshake of a legacy client.
const INITIALIZED: &str = "notifications/initialized";
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const JSON_OR_EVENTS: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");

/// Reason for which the process cannot serve.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StdioError {
    /// The gateway cannot be created.
    #[error("{0}")]
    Gateway(#[from] GatewayError),
    /// The threads of the process cannot be started, or its streams cannot be opened.
    #[error("cannot start threads or open standard input and output: {0}")]
    System(#[from] std::io::Error),
}

/// Serves until the input ends, the client closes the output, or a signal ends the process.
///
/// # Errors
///
/// [`StdioError`] if the process cannot serve.
pub(crate) fn run(settings: Settings) -> Result<(), StdioError> {
    tls::install_provider();
    let signals = EndSignals::register();
    // Before the first file is written, and before the gateway, which reads the limit of files.
    survive_file_size_limit();
    let descriptors = FileDescriptorBudget::raised();
    debug!(open_files = descriptors.limit, "raised limit of open files");
    let mut settings = without_listeners(settings);
    let (gateway, background) = open_gateway(&mut settings)?;
    let mut threads = Builder::new_multi_thread();
    if settings.threads > 0 {
        threads.worker_threads(settings.threads);
    }
    let streams = StandardStreams::open()?;
    let (_runs, ends) = watch::channel(false);
    let runtime = threads.enable_all().build()?;
    runtime.block_on(async {
        tokio::spawn(async move { background.run(ends).await });
        if !settings.sources.is_empty() {
            let (poller, configured) = (gateway.clone(), settings.clone());
            let poller =
                Reloader::new(poller, settings.clone(), Arc::new(move |_| Ok(configured.clone().into())));
            tokio::spawn(async move { SourcePoller::new(poller).run().await });
        }
        serve(&settings, streams, gateway, signals).await;
    });
    // The runtime is not dropped: a read of standard input would hold that up without end.
    end_process(0)
}

/// Returns the settings without all that needs a listener.
fn without_listeners(mut settings: Settings) -> Settings {
    if !settings.listeners.is_empty() || settings.admin.is_some() {
        info!("ignoring listeners and admin: stdio serves standard input and output alone");
    }
    settings.listeners.clear();
    (settings.admin, settings.health) = (None, None);
    // Agents could not reach it: their tasks are streamed and polled.
    settings.push.enabled = false;
    settings.sessions.ttl = SESSION_TTL;
    // No load balancer has to notice the end.
    settings.shutdown.grace = Duration::ZERO;
    settings
}

/// Creates the gateway. A data directory of another process is left to that one.
fn open_gateway(settings: &mut Settings) -> Result<(Gateway, BackgroundService), GatewayError> {
    let owned = match Gateway::new(settings.clone()) {
        Err(GatewayError::Store(StoreProblem::Owned { file })) => file,
        opened => return opened,
    };
    let directory: PathBuf = settings.tasks.data_dir.take().unwrap_or(owned);
    warn!(
        directory = %directory.display(),
        "tasks.data_dir belongs to another process, this one keeps tasks in memory"
    );
    if settings.seal_keys.is_empty() {
        // Handles of that process stay valid here.
        settings.seal_keys = vec![seal_key(&directory)?];
    }
    Gateway::new(settings.clone())
}

/// The streams to the client, which bypass the buffers of the standard library.
struct StandardStreams {
    input: File,
    output: File,
}

impl StandardStreams {
    fn open() -> std::io::Result<Self> {
        let open =
            |stream: BorrowedFd<'_>| stream.try_clone_to_owned().map(StdFile::from).map(File::from_std);
        Ok(Self { input: open(std::io::stdin().as_fd())?, output: open(std::io::stdout().as_fd())? })
    }
}

async fn serve(
    settings: &Settings,
    streams: StandardStreams,
    gateway: Gateway,
    mut signals: Option<EndSignals>,
) {
    let mut client = StdioClient {
        output: Arc::new(MessageOutput::new(streams.output)),
        depth: settings.limits.depth,
        messages: Arc::new(Semaphore::new(settings.limits.connections.min(Semaphore::MAX_PERMITS))),
        gateway: gateway.clone(),
        session: None,
        running: Arc::default(),
    };
    let mut lines = LineReader::new(streams.input, settings.limits.body);
    let output = client.output.clone();
    tokio::select! {
        () = client.serve(&mut lines) => info!("standard input ended, finishing requests"),
        () = output.closed() => info!("standard output is closed, ending"),
        () = received(&mut signals) => info!("received end signal, finishing requests"),
    }
    gateway.close();
    let until = Instant::now() + settings.shutdown.drain;
    let finished = async {
        while gateway.requests() > 0 && Instant::now() < until {
            sleep(POLL_INTERVAL).await;
        }
        client.end_session().await;
        let last = Instant::now() + LAST_CANCELS_TIMEOUT;
        while gateway.running() > 0 && Instant::now() < last {
            sleep(POLL_INTERVAL).await;
        }
    };
    tokio::select! {
        () = finished => {}
        () = received(&mut signals) => {}
    }
    end(&gateway).await;
}

/// Exports the last spans, and writes all pending changes.
async fn end(gateway: &Gateway) {
    info!(running = gateway.running(), requests = gateway.requests(), "ending");
    gateway.flush_records().await;
    gateway.keep_all();
}

/// Waits for a signal that ends the process.
async fn received(signals: &mut Option<EndSignals>) {
    match signals {
        Some(signals) => signals.received().await,
        // Then each of them ends the process at once.
        None => std::future::pending().await,
    }
}

/// Requests of the modern era that have no response yet, by their ids, with the signals that cancel
/// them.
type RunningRequests = Arc<Mutex<HashMap<String, watch::Sender<bool>>>>;

/// The client at the other end of the standard streams.
struct StdioClient {
    gateway: Gateway,
    output: Arc<MessageOutput>,
    /// Deepest nesting of a message.
    depth: usize,
    /// Permits of the messages that are handled at once.
    messages: Arc<Semaphore>,
    /// Session of a legacy client.
    session: Option<LocalSession>,
    running: RunningRequests,
}

/// The session that `initialize` began.
struct LocalSession {
    id: HeaderValue,
    /// Ends the stream of the session, once that is open.
    stream: Option<watch::Sender<bool>>,
}

/// Guard of a running request; removes its entry when it is dropped.
struct RunningGuard {
    running: RunningRequests,
    id: String,
    cancellation: watch::Sender<bool>,
}

impl Drop for RunningGuard {
    fn drop(&mut self) {
        if let Entry::Occupied(entry) = lock(&self.running).entry(std::mem::take(&mut self.id))
            && entry.get().same_channel(&self.cancellation)
        {
            entry.remove();
        }
    }
}

impl StdioClient {
    /// Handles the messages of the client until its input ends.
    async fn serve(&mut self, lines: &mut LineReader<impl AsyncRead + Unpin>) {
        let is_ready = async {
            while !self.gateway.is_ready() {
                sleep(POLL_INTERVAL).await;
            }
        };
        if timeout(CARDS_TIMEOUT, is_ready).await.is_err() {
            warn!("not all agent cards are fetched, tools of the missing agents are announced later");
        }
        loop {
            self.output.has_room().await;
            let Ok(permit) = self.messages.clone().acquire_owned().await else { return };
            match lines.next().await {
                Ok(InputLine::Message(line)) if line.is_empty() => {}
                Ok(InputLine::Message(line)) => self.handle(line, permit).await,
                Ok(InputLine::TooLong(first, last)) => {
                    self.reject_line(recover_id_of_cut(&first, &last), lines.limit).await;
                }
                Ok(InputLine::End) => return,
                Err(error) => return warn!(%error, "failed to read standard input"),
            }
        }
    }

    /// Handles a message. It has taken effect, as far as it need not wait, before the next is read.
    async fn handle(&mut self, line: Bytes, permit: OwnedSemaphorePermit) {
        let message = ClientMessage::read(&line, self.depth);
        if let Some(request) = &message.cancels
            && let Some(cancellation) = lock(&self.running).get(request.as_json())
        {
            cancellation.send_replace(true);
            return;
        }
        let mut connection = self.connection(&message, line);
        if message.begins_session() {
            // Later messages may belong to the session although the client did not wait for it.
            let gateway = self.gateway.clone();
            let served = uncancelled(async move {
                gateway.handle_local(&mut connection).await;
                connection
            });
            if let Some(connection) = served.await {
                self.adopt_session(&connection);
            }
            return;
        }
        let running = message.era().filter(|era| *era == Era::Modern).and(message.id.as_ref());
        let running = running.map(|id| self.register(id, connection.cancellation()));
        let gateway = self.gateway.clone();
        let mut handled = Box::pin(async move {
            gateway.handle_local(&mut connection).await;
            drop((permit, running));
        });
        if poll_fn(|context| Poll::Ready(handled.as_mut().poll(context))).await.is_pending() {
            tokio::spawn(handled);
        }
        if message.ends_handshake() {
            self.open_stream();
        }
    }

    fn register(&self, id: &Id, cancellation: watch::Sender<bool>) -> RunningGuard {
        let id = id.as_json().to_owned();
        lock(&self.running).insert(id.clone(), cancellation.clone());
        RunningGuard { running: self.running.clone(), id, cancellation }
    }

    /// Returns the connection of a message, with the headers that it would have over HTTP.
    fn connection(&self, message: &ClientMessage, line: Bytes) -> LocalConnection {
        let mut headers = HeaderMap::with_capacity(5);
        headers.insert(CONTENT_TYPE, JSON);
        headers.insert(ACCEPT, JSON_OR_EVENTS);
        if let Some(claim) = &message.claim {
            let mirrored = [
                (PROTOCOL_VERSION, Some(claim.as_str())),
                (METHOD, Some(message.method.as_str())),
                (NAME, message.name.as_deref()),
            ];
            for (name, value) in mirrored {
                if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
                    headers.insert(name, value);
                }
            }
        } else if let Some(session) = &self.session {
            headers.insert(SESSION_ID, session.id.clone());
        }
        let request = LocalRequest {
            method: HttpMethod::POST,
            headers,
            body: line,
            era: message.era().unwrap_or(Era::Legacy),
            id: message.id.clone(),
            is_answered: message.is_answered,
            peer: LocalPeer::Parent,
        };
        LocalConnection::new(request, self.output.clone())
    }

    /// Uses the session that `initialize` began from now on, in place of an earlier one.
    fn adopt_session(&mut self, connection: &LocalConnection) {
        let Some(id) = connection.session().and_then(|id| HeaderValue::from_str(id).ok()) else { return };
        let earlier = self.session.replace(LocalSession { id, stream: None });
        if let Some(stream) = earlier.and_then(|session| session.stream) {
            stream.send_replace(true);
        }
    }

    /// Opens the stream of the session: the notifications that belong to no request.
    fn open_stream(&mut self) {
        let Some(session) = self.session.as_mut().filter(|session| session.stream.is_none()) else { return };
        let request = bare_request(HttpMethod::GET, session, true);
        let mut connection = LocalConnection::new(request, self.output.clone());
        session.stream = Some(connection.cancellation());
        let gateway = self.gateway.clone();
        tokio::spawn(async move {
            gateway.handle_local(&mut connection).await;
            debug!("stream of session ended");
        });
    }

    /// Ends the session: tasks of cancelled calls are cancelled at their agents.
    async fn end_session(&self) {
        let Some(session) = &self.session else { return };
        let request = bare_request(HttpMethod::DELETE, session, false);
        let mut connection = LocalConnection::new(request, self.output.clone());
        self.gateway.handle_local(&mut connection).await;
    }

    /// Rejects a line beyond the limit.
    async fn reject_line(&self, id: Option<Id>, limit: usize) {
        let fault = Fault::BodyTooLarge(limit);
        self.gateway.record_rejection(&fault);
        let error = write_error(id.as_ref(), fault.on_wire(Era::Legacy).code, &fault.to_string(), None);
        let output = self.output.clone();
        uncancelled(async move {
            if output.write(&error).await.is_err() {
                debug!("client left before it read the rejection of a line");
            }
        })
        .await;
    }
}

/// Runs work to its end, even if the caller stops waiting: a message must be written completely.
async fn uncancelled<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> Option<T> {
    tokio::spawn(work).await.inspect_err(|error| warn!(%error, "work on a message failed")).ok()
}

/// Returns a request of the session that carries no message.
fn bare_request(method: HttpMethod, session: &LocalSession, is_answered: bool) -> LocalRequest {
    let headers = HeaderMap::from_iter([(ACCEPT, EVENTS), (SESSION_ID, session.id.clone())]);
    let (body, era, peer) = (Bytes::new(), Era::Legacy, LocalPeer::Parent);
    LocalRequest { method, headers, body, era, id: None, is_answered, peer }
}

/// The parts of a message that the transport needs.
#[derive(Default)]
struct ClientMessage {
    kind: Option<MessageKind>,
    id: Option<Id>,
    method: String,
    /// Revision that the message names: it is one of the modern era.
    claim: Option<String>,
    /// Value of `Mcp-Name`.
    name: Option<String>,
    /// Id of the request that the message cancels.
    cancels: Option<Id>,
    /// True if a response is due: for requests and batches, and for a line that is no message.
    is_answered: bool,
}

impl ClientMessage {
    fn read(line: &[u8], depth: usize) -> Self {
        let invalid = |id| Self { id, is_answered: true, ..Self::default() };
        let Ok(text) = well_formed(line, depth) else { return invalid(None) };
        if is_batch(text) {
            return invalid(None);
        }
        match parse::<ClientParams<'_>>(text) {
            Ok(message) => {
                let method = message.method.as_str().to_owned();
                let params = message.params.unwrap_or_default();
                let named = params.name.as_ref().or(params.uri.as_ref()).or(params.task_id.as_ref());
                Self {
                    claim: params.meta().version.as_ref().map(|version| version.as_str().to_owned()),
                    name: named.map(|name| encode_base64_name(name.as_str())),
                    cancels: params.request_id.filter(|_| method == CANCELLED),
                    is_answered: message.kind == MessageKind::Request,
                    kind: Some(message.kind),
                    id: message.id,
                    method,
                }
            }
            Err(ParseError::BadParams(_)) => match parse_envelope(text) {
                Ok(message) => {
                    let meta = message.params.and_then(|params| params.meta);
                    let meta = meta.and_then(|meta| serde_json::from_str::<RequestMeta<'_>>(meta.get()).ok());
                    let claim = meta.and_then(|meta| meta.version);
                    Self {
                        claim: claim.map(|version| version.as_str().to_owned()),
                        is_answered: message.kind == MessageKind::Request,
                        kind: Some(message.kind),
                        id: message.id,
                        method: message.method.as_str().to_owned(),
                        ..Self::default()
                    }
                }
                Err(_) => invalid(recover_id(text)),
            },
            Err(_) => invalid(recover_id(text)),
        }
    }

    /// Returns the era of a message, if it is one.
    fn era(&self) -> Option<Era> {
        self.kind.map(|_| if self.claim.is_some() { Era::Modern } else { Era::Legacy })
    }

    fn begins_session(&self) -> bool {
        let is_request = self.kind == Some(MessageKind::Request);
        is_request && self.claim.is_none() && self.method == Method::Initialize.as_str()
    }

    fn ends_handshake(&self) -> bool {
        self.kind == Some(MessageKind::Notification) && self.method == INITIALIZED
    }
}

/// A line of the input.
#[derive(Debug, PartialEq)]
enum InputLine {
    /// A line within the limit, without its end and the space around it.
    Message(Bytes),
    /// A line beyond the limit, of which its first and its last bytes are left.
    TooLong(Bytes, Bytes),
    /// The end of the input.
    End,
}

/// Splits the input into lines of at most `limit` bytes.
struct LineReader<R> {
    from: BufReader<R>,
    limit: usize,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    fn new(from: R, limit: usize) -> Self {
        Self { from: BufReader::with_capacity(READ_BUFFER, from), limit }
    }

    /// Reads the next line. The last one needs no end.
    async fn next(&mut self) -> std::io::Result<InputLine> {
        let (mut line, mut last) = (Vec::new(), Vec::new());
        let mut is_too_long = false;
        loop {
            let buffered = self.from.fill_buf().await?;
            if buffered.is_empty() && line.is_empty() {
                return Ok(InputLine::End);
            }
            let end = memchr(b'\n', buffered);
            let piece = buffered.get(..end.unwrap_or(buffered.len())).unwrap_or_default();
            let is_ended = end.is_some() || buffered.is_empty();
            let consumed = piece.len() + usize::from(end.is_some());
            is_too_long |= line.len() + piece.len() > self.limit;
            if is_too_long {
                line.extend(piece.iter().take(self.limit - line.len()));
                last.extend_from_slice(piece.last_chunk::<LAST_BYTES>().map_or(piece, |last| last));
                last.drain(..last.len().saturating_sub(LAST_BYTES));
            } else {
                line.extend_from_slice(piece);
            }
            self.from.consume(consumed);
            match is_ended {
                true if is_too_long => return Ok(InputLine::TooLong(line.into(), last.into())),
                true => return Ok(InputLine::Message(Bytes::copy_from_slice(line.trim_ascii()))),
                false => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_are_bounded() {
        let text: &[u8] = b"{}\r\n\n 12345678 \n123456789012\nlast";
        let mut lines = LineReader::new(text, 10);
        let message = |text: &'static str| InputLine::Message(Bytes::from_static(text.as_bytes()));
        for expected in [
            message("{}"),
            message(""),
            message("12345678"),
            InputLine::TooLong(Bytes::from("1234567890"), Bytes::from("123456789012")),
            message("last"),
            InputLine::End,
        ] {
            assert_eq!(lines.next().await.unwrap(), expected);
        }
    }

    #[test]
    fn notifications_have_no_response() {
        for (line, is_answered) in [
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, true),
            (r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":7}}"#, true),
            (r#"{"jsonrpc":"2.0","method":"notifications/x","params":{"name":7}}"#, false),
            (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, false),
            ("[]", true),
            ("{", true),
            ("{}", true),
        ] {
            assert_eq!(ClientMessage::read(line.as_bytes(), 64).is_answered, is_answered, "{line}");
        }
    }
}
