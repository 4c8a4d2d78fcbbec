//! Calls from the page of operators: a message of MCP, as the caller that the page has credentials
//! of.
//!
//! The message is a request in process to the MCP server, behind the authentication, rules and
//! limits of a listener for clients; being an operator gives it no right. The answer is a stream of
//! lines, one message of JSON-RPC on each. Closing the connection ends the request, as for any
//! client.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Version};
use pingora::http::ResponseHeader;
use pingora::protocols::http::ServerSession;
use tokio::io::{AsyncReadExt as _, duplex};
use tokio::pin;
use tokio::sync::Semaphore;
use tracing::debug;

use super::AdminError;
use crate::config::{ListenerTls, Settings};
use crate::gateway::Gateway;
use crate::http_edge::{LocalConnection, LocalPeer, LocalRequest, MessageOutput};
use crate::jsonrpc::recover_id;
use crate::mcp::Era;

/// Most calls of pages at once: probes and metrics keep their connections.
const MAX_RELAYS: usize = 8;
/// Bytes between the MCP server and a browser.
const PIPE_BYTES: usize = 64 * 1024;
/// Header with the credential of the caller: `Bearer TOKEN` or `Key API-KEY`.
const CREDENTIAL: &str = "x-caller-credential";
/// Headers of a message that MCP knows.
const FORWARDED: [&str; 3] = ["mcp-protocol-version", "mcp-method", "mcp-name"];

/// The way of the page to the MCP server.
pub(super) struct McpRelay {
    /// The listener with the requirements that calls must meet.
    target: Option<RelayTarget>,
    room: Semaphore,
}

struct RelayTarget {
    address: SocketAddr,
    /// The place of the listener in the settings.
    place: usize,
}

/// A call of the page.
pub(super) struct RelayRequest {
    /// Headers of the request.
    pub(super) headers: HeaderMap,
    /// The message.
    pub(super) body: Bytes,
    /// The address of the browser.
    pub(super) client: Option<IpAddr>,
}

impl McpRelay {
    /// Returns the way to the first listener that serves MCP without a client certificate: a page
    /// cannot present one.
    pub(super) fn new(settings: &Settings) -> Self {
        let is_usable = |tls: &ListenerTls| !tls.client_auth.as_ref().is_some_and(|auth| auth.required);
        let mut usable = settings
            .listeners
            .iter()
            .enumerate()
            .filter(|(_, listener)| listener.serve.mcp && listener.tls.as_ref().is_none_or(is_usable));
        let target = usable.next().map(|(place, listener)| RelayTarget { address: listener.address, place });
        Self { target, room: Semaphore::new(MAX_RELAYS) }
    }

    /// Returns the address of the listener with the requirements that calls must meet.
    pub(super) fn listener(&self) -> Option<SocketAddr> {
        self.target.as_ref().map(|target| target.address)
    }

    /// Passes a message on, and writes the messages of its response.
    ///
    /// # Errors
    ///
    /// The refusal, before anything is written.
    pub(super) async fn serve(
        &self,
        gateway: &Gateway,
        http: &mut ServerSession,
        request: RelayRequest,
    ) -> Result<(), AdminError> {
        let Some(target) = &self.target else {
            let remedy = "no listener serves mcp without a client certificate, which a page cannot present";
            return Err(AdminError::new(StatusCode::FORBIDDEN, remedy));
        };
        let Ok(_permit) = self.room.try_acquire() else {
            return Err(AdminError::new(StatusCode::SERVICE_UNAVAILABLE, "too many calls of pages run now"));
        };
        let message = local_request(gateway, request)?;
        let (into, mut from) = duplex(PIPE_BYTES);
        let mut connection = LocalConnection::new(message, Arc::new(MessageOutput::new(into)));
        let cancellation = connection.cancellation();
        // Drops the connection at its end, and the pipe with it.
        let serving = async move { gateway.handle_relayed(&mut connection, target.place).await };
        if write_head(http).await.is_none() {
            return Ok(());
        }
        pin!(serving);
        let (mut buffer, mut is_served) = (BytesMut::with_capacity(4096), false);
        loop {
            tokio::select! {
                () = &mut serving, if !is_served => is_served = true,
                read = from.read_buf(&mut buffer) => {
                    let end = !matches!(read, Ok(1..));
                    if let Err(error) = http.write_response_body(buffer.split().freeze(), end).await {
                        debug!(%error, "admin client disconnected");
                        break;
                    }
                    if end {
                        return Ok(());
                    }
                }
                // Nothing follows the body, so that this is the end of the connection.
                _ = http.read_body_or_idle(true) => break,
            }
        }
        cancellation.send_replace(true);
        // A message that waits for room in the pipe fails now.
        drop(from);
        if !is_served {
            // The call is given to the background, or cancelled at its agent.
            serving.await;
        }
        Ok(())
    }
}

async fn write_head(http: &mut ServerSession) -> Option<()> {
    let (mut parts, ()) = http::Response::new(()).into_parts();
    parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    parts.headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if http.req_header().version == Version::HTTP_11 {
        parts.headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    let written = http.write_response_header(Box::new(ResponseHeader::from(parts))).await;
    written.inspect_err(|error| debug!(%error, "admin client disconnected")).ok()
}

/// Returns the request of the caller, with its credentials and none of the operator's.
fn local_request(gateway: &Gateway, request: RelayRequest) -> Result<LocalRequest, AdminError> {
    let RelayRequest { headers: shown, body, client } = request;
    let mut headers = HeaderMap::with_capacity(8);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
    for name in FORWARDED {
        if let Some(value) = shown.get(name) {
            headers.insert(name, value.clone());
        }
    }
    if let Some(credential) = shown.get(CREDENTIAL) {
        let unusable = || {
            AdminError::new(StatusCode::BAD_REQUEST, "the credential must be `Bearer TOKEN` or `Key API-KEY`")
        };
        let (kind, text) =
            credential.to_str().ok().and_then(|text| text.split_once(' ')).ok_or_else(unusable)?;
        let secret = |text: &str| {
            let value = HeaderValue::from_str(text).map_err(|_| unusable());
            value.map(|mut value| {
                value.set_sensitive(true);
                value
            })
        };
        let key_header = gateway.operator_view().key_header().cloned();
        match (kind, key_header) {
            ("Bearer", _) => drop(headers.insert(AUTHORIZATION, secret(&format!("Bearer {text}"))?)),
            ("Key", Some(name)) if name == AUTHORIZATION => {
                drop(headers.insert(AUTHORIZATION, secret(&format!("Bearer {text}"))?));
            }
            ("Key", Some(name)) => drop(headers.insert(name, secret(text)?)),
            ("Key", None) => {
                return Err(AdminError::new(StatusCode::BAD_REQUEST, "no API keys are configured here"));
            }
            _ => return Err(unusable()),
        }
    }
    let id = std::str::from_utf8(&body).ok().and_then(recover_id);
    let peer = LocalPeer::Page(client);
    let method = Method::POST;
    Ok(LocalRequest { method, headers, body, era: Era::Modern, id, is_answered: true, peer })
}
