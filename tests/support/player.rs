//! Writes one scripted reply onto a connection, step by step.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::reply::{Framing, Reply, Step};
use super::signal::Signal;
use super::wire::Request;

/// Plays one reply. An error means that the client left.
pub(super) struct Player<'a, S> {
    pub(super) socket: &'a mut S,
    pub(super) buffer: &'a mut Vec<u8>,
    pub(super) request: &'a Request,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Player<'_, S> {
    /// Whether the connection goes on.
    pub(super) async fn play(&mut self, reply: &Reply) -> io::Result<bool> {
        for signal in &reply.before {
            self.wait(signal).await?;
        }
        if reply.framing != Framing::Raw {
            let head = self.head(reply);
            self.send(head.as_bytes()).await?;
        }
        for step in &reply.steps {
            if !self.step(reply, step).await? {
                return Ok(false);
            }
        }
        if reply.framing == Framing::Chunked {
            self.send(b"0\r\n\r\n").await?;
        }
        Ok(!reply.close)
    }

    /// Whether the reply goes on.
    async fn step(&mut self, reply: &Reply, step: &Step) -> io::Result<bool> {
        match step {
            Step::Wait(signal) => self.wait(signal).await?,
            Step::Flood(bytes) => self.flood(reply.framing, bytes).await?,
            Step::Stall => self.wait(&Signal::new()).await?,
            Step::Cut => return Ok(false),
            Step::Bytes(_) | Step::Envelope(..) | Step::Event { .. } => {
                let piece = if let Step::Event { piece, .. } = step { *piece } else { 0 };
                let bytes = self.bytes(reply, step);
                for part in bytes.chunks(if piece == 0 { bytes.len().max(1) } else { piece }) {
                    self.body(reply.framing, part).await?;
                }
            }
        }
        Ok(true)
    }

    fn head(&self, reply: &Reply) -> String {
        let mut head = format!("HTTP/1.1 {} Scripted\r\n", reply.status);
        let mut line = |name: &str, value: &str| head.push_str(&format!("{name}: {value}\r\n"));
        for (name, value) in &reply.headers {
            line(name, value);
        }
        match reply.framing {
            Framing::Length if reply.status != 304 => {
                let length: usize = reply.steps.iter().map(|step| self.bytes(reply, step).len()).sum();
                line("Content-Length", &length.to_string());
            }
            Framing::Chunked => line("Transfer-Encoding", "chunked"),
            Framing::Length | Framing::UntilClose | Framing::Raw => {}
        }
        if reply.close {
            line("Connection", "close");
        }
        head.push_str("\r\n");
        head
    }

    fn bytes(&self, reply: &Reply, step: &Step) -> Vec<u8> {
        let id = reply.id.clone().unwrap_or_else(|| self.request.id());
        let envelope = |member: &str, value: &serde_json::Value| {
            let mut envelope = serde_json::json!({ "jsonrpc": "2.0", "id": id });
            envelope[member] = value.clone();
            envelope.to_string()
        };
        match step {
            Step::Bytes(bytes) => bytes.clone(),
            Step::Envelope(member, value) => envelope(member, value).into_bytes(),
            Step::Event { name, member, value, line_end, .. } => {
                let name = name.map(|name| format!("event: {name}{line_end}")).unwrap_or_default();
                format!("{name}data: {}{line_end}{line_end}", envelope(member, value)).into_bytes()
            }
            Step::Flood(_) | Step::Wait(_) | Step::Stall | Step::Cut => Vec::new(),
        }
    }

    async fn body(&mut self, framing: Framing, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        if framing != Framing::Chunked {
            return self.send(bytes).await;
        }
        let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
        chunk.extend_from_slice(bytes);
        chunk.extend_from_slice(b"\r\n");
        self.send(&chunk).await
    }

    /// Ends when the client has left.
    async fn flood(&mut self, framing: Framing, bytes: &[u8]) -> io::Result<()> {
        loop {
            self.body(framing, bytes).await?;
        }
    }

    async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.socket.write_all(bytes).await?;
        self.socket.flush().await
    }

    /// Waits for the signal, and notices a client that leaves meanwhile.
    async fn wait(&mut self, signal: &Signal) -> io::Result<()> {
        let signal = signal.wait();
        tokio::pin!(signal);
        loop {
            tokio::select! {
                () = &mut signal => return Ok(()),
                read = self.socket.read_buf(self.buffer) => {
                    if read? == 0 {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
            }
        }
    }
}
