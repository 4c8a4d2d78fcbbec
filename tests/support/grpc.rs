//! A server of gRPC that does what the test wrote: frames, headers and trailers, right or wrong. The
//! messages are bytes of the test.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use super::in_time;

/// One request, with the message in its frame.
#[derive(Clone, Debug)]
pub struct GrpcRequest {
    pub path: String,
    pub headers: HeaderMap,
    pub message: Bytes,
}

impl GrpcRequest {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

/// A part of a response.
#[derive(Clone, Debug)]
enum Step {
    Data(Bytes),
    Trailers(HeaderMap),
    /// Nothing more until the client leaves.
    Stall,
    /// The stream is reset.
    Reset,
}

/// One response: the head, then its parts in order.
#[derive(Clone, Debug)]
pub struct GrpcReply {
    status: u16,
    headers: HeaderMap,
    steps: VecDeque<Step>,
}

impl GrpcReply {
    /// A head, with nothing after it yet.
    pub fn head() -> Self {
        let headers = HeaderMap::from_iter([named("content-type", "application/grpc")]);
        Self { status: 200, headers, steps: VecDeque::new() }
    }

    /// A response with these messages and the status 0.
    pub fn messages(messages: impl IntoIterator<Item = Vec<u8>>) -> Self {
        messages.into_iter().fold(Self::head(), |reply, message| reply.message(&message)).ok()
    }

    /// A status alone, in the head.
    pub fn refused(code: u8, message: &str) -> Self {
        Self::head().header("grpc-status", &code.to_string()).header("grpc-message", message)
    }

    pub fn http(status: u16) -> Self {
        let mut reply = Self::head();
        reply.status = status;
        reply
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        let (name, value) = named(name, value);
        self.headers.insert(name, value);
        self
    }

    pub fn message(self, message: &[u8]) -> Self {
        self.frame(0, message)
    }

    /// A frame with this flag.
    pub fn frame(self, flag: u8, message: &[u8]) -> Self {
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        self.bytes(&[&[flag], &length[..], message].concat())
    }

    /// Bytes as they are.
    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        self.steps.push_back(Step::Data(Bytes::copy_from_slice(bytes)));
        self
    }

    pub fn ok(self) -> Self {
        self.trailers(&[("grpc-status", "0")])
    }

    pub fn trailers(mut self, trailers: &[(&str, &str)]) -> Self {
        self.steps
            .push_back(Step::Trailers(trailers.iter().map(|(name, value)| named(name, value)).collect()));
        self
    }

    pub fn stall(mut self) -> Self {
        self.steps.push_back(Step::Stall);
        self
    }

    pub fn reset(mut self) -> Self {
        self.steps.push_back(Step::Reset);
        self
    }
}

fn named(name: &str, value: &str) -> (HeaderName, HeaderValue) {
    (name.parse().unwrap(), value.parse().unwrap())
}

type Handler = Arc<dyn Fn(&GrpcRequest) -> GrpcReply + Send + Sync>;

#[derive(Default)]
struct Shared {
    methods: Mutex<HashMap<String, Handler>>,
    requests: Mutex<Vec<GrpcRequest>>,
    /// The paths of the requests that their client left before the response ended.
    left: Mutex<Vec<String>>,
    changed: Notify,
}

/// Runs until dropped.
pub struct GrpcServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

impl Drop for GrpcServer {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl GrpcServer {
    /// Listens on a free port of the loopback, by HTTP/2 with prior knowledge.
    pub async fn start() -> Self {
        Self::listen(None).await
    }

    /// The same behind TLS (see [`super::certs::server_config`]), by ALPN.
    pub async fn start_tls(tls: Arc<rustls::ServerConfig>) -> Self {
        Self::listen(Some(tls)).await
    }

    async fn listen(tls: Option<Arc<rustls::ServerConfig>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::<Shared>::default();
        let tls = tls.map(|tls| {
            let mut tls = rustls::ServerConfig::clone(&tls);
            tls.alpn_protocols = vec![b"h2".to_vec()];
            TlsAcceptor::from(Arc::new(tls))
        });
        let server = tokio::spawn(accept(listener, tls, shared.clone()));
        Self { address, shared, server }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers the calls of this method. Without it the status is 12.
    pub fn on(
        &self,
        path: &str,
        handler: impl Fn(&GrpcRequest) -> GrpcReply + Send + Sync + 'static,
    ) -> &Self {
        self.shared.methods.lock().unwrap().insert(path.to_owned(), Arc::new(handler));
        self
    }

    pub fn requests(&self, path: &str) -> Vec<GrpcRequest> {
        let all = self.shared.requests.lock().unwrap();
        all.iter().filter(|request| request.path == path).cloned().collect()
    }

    /// Waits until this many clients left before the end of the response.
    pub async fn wait_for_left(&self, path: &str, count: usize) {
        let is_enough =
            || self.shared.left.lock().unwrap().iter().filter(|left| *left == path).count() >= count;
        in_time("the client leaves", async {
            loop {
                let changed = self.shared.changed.notified();
                if is_enough() {
                    return;
                }
                changed.await;
            }
        })
        .await;
    }
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (tls, shared) = (tls.clone(), shared.clone());
        tokio::spawn(async move {
            match tls {
                None => serve(TokioIo::new(stream), shared).await,
                Some(tls) => {
                    let Ok(stream) = tls.accept(stream).await else { return };
                    serve(TokioIo::new(stream), shared).await;
                }
            }
        });
    }
}

async fn serve<T>(stream: TokioIo<T>, shared: Arc<Shared>)
where
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request| answer(request, shared.clone()));
    let serving = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    drop(serving.serve_connection(stream, service).await);
}

async fn answer(
    request: Request<Incoming>,
    shared: Arc<Shared>,
) -> Result<Response<ScriptedBody>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let message = body.slice(5.min(body.len())..);
    let request = GrpcRequest { path: head.uri.path().to_owned(), headers: head.headers, message };
    shared.requests.lock().unwrap().push(request.clone());
    let handler = shared.methods.lock().unwrap().get(&request.path).cloned();
    let reply = handler.map_or_else(|| GrpcReply::refused(12, "no such method"), |handler| handler(&request));
    let GrpcReply { status, headers, steps } = reply;
    let mut response = Response::new(ScriptedBody { steps, path: request.path, shared });
    *response.status_mut() = status.try_into().unwrap();
    *response.headers_mut() = headers;
    Ok(response)
}

struct ScriptedBody {
    steps: VecDeque<Step>,
    path: String,
    shared: Arc<Shared>,
}

impl Body for ScriptedBody {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        if matches!(self.steps.front(), Some(Step::Stall)) {
            return Poll::Pending;
        }
        Poll::Ready(match self.steps.pop_front() {
            None => None,
            Some(Step::Data(bytes)) => Some(Ok(Frame::data(bytes))),
            Some(Step::Trailers(trailers)) => Some(Ok(Frame::trailers(trailers))),
            Some(Step::Reset) => Some(Err(std::io::Error::other("as the test wrote"))),
            Some(Step::Stall) => return Poll::Pending,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.steps.is_empty()
    }
}

impl Drop for ScriptedBody {
    fn drop(&mut self) {
        if !self.steps.is_empty() {
            self.shared.left.lock().unwrap().push(self.path.clone());
            self.shared.changed.notify_waiters();
        }
    }
}
