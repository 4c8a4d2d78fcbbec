//! Response bodies: one piece of JSON, or an event stream that is written while the task runs.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::rpc;

/// Silence after which a comment is sent, so that no proxy takes the stream for dead.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Frames that wait for a slow reader.
const QUEUE: usize = 16;

/// The body of a response.
pub(super) enum ResponseStream {
    /// Known in full.
    Whole(Option<Bytes>),
    /// Written as it comes.
    Flowing(mpsc::Receiver<Bytes>),
}

impl Body for ResponseStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Flowing(frames) => {
                frames.poll_recv(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    /// A complete body gets a `Content-Length`.
    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::Flowing(_) => SizeHint::default(),
        }
    }
}

/// Returns an event stream: `first`, then each of `events`, as results of call `id`.
pub(super) fn events(id: Value, first: Value, events: Option<mpsc::Receiver<Value>>) -> ResponseStream {
    let (sender, frames) = mpsc::channel(QUEUE);
    tokio::spawn(write(sender, id, first, events));
    ResponseStream::Flowing(frames)
}

/// Ends when the events do, or when the client is gone. The task is not affected.
async fn write(sender: mpsc::Sender<Bytes>, id: Value, first: Value, events: Option<mpsc::Receiver<Value>>) {
    let mut next = sender.send(frame(&id, first)).await;
    let Some(mut events) = events else { return };
    while next.is_ok() {
        let bytes = match timeout(HEARTBEAT, events.recv()).await {
            Ok(Some(event)) => frame(&id, event),
            Ok(None) => return,
            Err(_) => Bytes::from_static(b": still here\n\n"),
        };
        next = sender.send(bytes).await;
    }
}

fn frame(id: &Value, event: Value) -> Bytes {
    Bytes::from(format!("data: {}\n\n", rpc::result(id, event)))
}
