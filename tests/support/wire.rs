//! HTTP/1.1 requests read by hand, so that the log shows what was really sent.

use std::io;

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// A request as the scripted agent received it.
#[derive(Clone, Debug)]
pub struct Request {
    /// Which connection it came on, counted from 0.
    pub connection: usize,
    /// The certificate that its client showed, in DER; empty if it showed none.
    pub certificate: Vec<u8>,
    /// Which request of the agent's it is, counted from 0.
    pub number: usize,
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Names as they were spelled.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Request {
    /// The only value of this header; panics if there are several.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.header_values(name);
        let value = values.next();
        assert!(values.next().is_none(), "several {name} headers: {:?}", self.headers);
        value
    }

    pub fn header_values<'a, 'n>(&'a self, name: &'n str) -> impl Iterator<Item = &'a str> + use<'a, 'n> {
        let named = self.headers.iter().filter(move |(known, _)| known.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.as_str())
    }

    /// The body; null if it is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The JSON-RPC method; empty if there is none.
    pub fn rpc_method(&self) -> String {
        self.json()["method"].as_str().unwrap_or_default().to_owned()
    }

    pub fn id(&self) -> Value {
        self.json()["id"].clone()
    }

    pub fn params(&self) -> Value {
        self.json()["params"].clone()
    }

    /// The message of a send, of any A2A version.
    pub fn message(&self) -> Value {
        self.json()["params"]["message"].clone()
    }

    /// The texts of the message's parts, joined.
    pub fn text(&self) -> String {
        let message = self.message();
        let parts = message["parts"].as_array().cloned().unwrap_or_default();
        parts.iter().filter_map(|part| part["text"].as_str()).collect()
    }

    /// Whether the method is one of those that ask for a stream.
    pub fn wants_stream(&self) -> bool {
        ["SendStreamingMessage", "message/stream", "tasks/sendSubscribe"]
            .contains(&self.rpc_method().as_str())
    }
}

/// Reads one request; `None` at the clean end of the connection. Bytes after it stay in `buffer`.
pub async fn read_request(
    from: &mut (impl AsyncRead + Unpin),
    buffer: &mut Vec<u8>,
) -> io::Result<Option<Request>> {
    let head_end = loop {
        if let Some(at) = find(buffer, b"\r\n\r\n") {
            break at;
        }
        if from.read_buf(buffer).await? == 0 {
            return if buffer.is_empty() { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
        }
    };
    let head = String::from_utf8_lossy(&buffer[..head_end]).into_owned();
    buffer.drain(..head_end + 4);
    let mut lines = head.split("\r\n");
    let mut first = lines.next().unwrap_or_default().split(' ');
    let (method, path) = (first.next().unwrap_or_default(), first.next().unwrap_or_default());
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect();
    let value = |name: &str| headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    let body = if value("transfer-encoding").is_some() {
        read_chunked(from, buffer).await?
    } else {
        let length = value("content-length").map_or(0, |(_, length)| length.parse().expect("content-length"));
        take(from, buffer, length).await?
    };
    let (method, path) = (method.to_owned(), path.to_owned());
    Ok(Some(Request { connection: 0, certificate: Vec::new(), number: 0, method, path, headers, body }))
}

async fn read_chunked(from: &mut (impl AsyncRead + Unpin), buffer: &mut Vec<u8>) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line_end = loop {
            if let Some(at) = find(buffer, b"\r\n") {
                break at;
            }
            if from.read_buf(buffer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        };
        let line = String::from_utf8_lossy(&buffer[..line_end]).into_owned();
        buffer.drain(..line_end + 2);
        let size = usize::from_str_radix(line.trim(), 16).map_err(io::Error::other)?;
        body.extend(take(from, buffer, size).await?);
        take(from, buffer, 2).await?;
        if size == 0 {
            return Ok(body);
        }
    }
}

async fn take(
    from: &mut (impl AsyncRead + Unpin),
    buffer: &mut Vec<u8>,
    length: usize,
) -> io::Result<Vec<u8>> {
    while buffer.len() < length {
        if from.read_buf(buffer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(buffer.drain(..length).collect())
}

fn find(in_bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    in_bytes.windows(wanted.len()).position(|window| window == wanted)
}
