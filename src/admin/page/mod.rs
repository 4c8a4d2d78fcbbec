//! The page for people: files that are part of the binary, the headers that they need, the
//! configuration as the page shows it, and the calls that it makes.
//!
//! The page loads nothing from elsewhere, and runs no script but its own modules. It has no data: the
//! routes under `/api` give that to operators alone.
//!
//! A call is a message of MCP, as the caller that the page has credentials of: a request in process
//! to the MCP server, behind the authentication, rules and limits of a listener for clients; being an
//! operator gives it no right. The answer is a stream of lines, one message of JSON-RPC on each.
//! Closing the connection ends the request, as for any client.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::header::{
    ACCEPT, AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, REFERRER_POLICY,
    TRANSFER_ENCODING, X_FRAME_OPTIONS,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Version};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, duplex};
use tokio::sync::Semaphore;
use tracing::debug;

use super::{AdminError, AdminResponse};
use crate::config::{
    Agent, Authorization, CardSource, Listener, ListenerTls, Mechanism, Require, RequireRule, Rule, Settings,
    Source, SourcePlace,
};
use crate::fault::ClientGone;
use crate::gateway::Gateway;
use crate::http_edge::{
    HttpConnection, LocalConnection, LocalPeer, LocalRequest, MessageOutput, ResponseHead, ResponseSink,
};
use crate::jsonrpc::recover_id;
use crate::mcp::Era;
use crate::server::ServedRequest;

/// The sources that the page may use.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
     form-action 'self'; frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'",
);

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// A file of the page.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PageFile {
    media_type: &'static str,
    content: &'static [u8],
}

/// The document.
pub(super) static INDEX: PageFile =
    PageFile { media_type: "text/html; charset=utf-8", content: include_bytes!("index.html") };
/// Its style.
pub(super) static STYLE: PageFile =
    PageFile { media_type: "text/css; charset=utf-8", content: include_bytes!("style.css") };
/// The views of the page.
pub(super) static APP: PageFile = PageFile { media_type: SCRIPT, content: include_bytes!("app.js") };
/// Elements that the views are made of.
pub(super) static ELEMENTS: PageFile =
    PageFile { media_type: SCRIPT, content: include_bytes!("elements.js") };
/// Requests to the routes under `/api`.
pub(super) static CLIENT: PageFile = PageFile { media_type: SCRIPT, content: include_bytes!("client.js") };
/// Plots.
pub(super) static PLOTS: PageFile = PageFile { media_type: SCRIPT, content: include_bytes!("plots.js") };
/// The form that calls a tool.
pub(super) static CALLER: PageFile = PageFile { media_type: SCRIPT, content: include_bytes!("caller.js") };

impl PageFile {
    /// Returns the answer with the file.
    pub(super) fn response(&self) -> AdminResponse {
        let mut response = AdminResponse::new(StatusCode::OK, self.media_type, self.content);
        response.headers = vec![
            (CONTENT_SECURITY_POLICY, POLICY),
            (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
            (X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
            (
                HeaderName::from_static("cross-origin-resource-policy"),
                HeaderValue::from_static("same-origin"),
            ),
            (HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
        ];
        response
    }
}

/// Returns the configuration for the page. Holds names, numbers and addresses, and neither secrets
/// nor their hashes.
pub(super) fn configuration(settings: &Settings) -> Value {
    let admin = settings.admin.as_ref().map(|admin| {
        json!({
            "address": admin.address,
            "tokens": admin.token_hashes.len(),
            "tls": admin.tls.as_ref().map(tls),
            "allowed_hosts": admin.allowed_hosts,
            "agents_file": admin.agents_file,
        })
    });
    let health = settings.health.as_ref();
    let health = health.map(|health| json!({ "address": health.address, "metrics": health.metrics }));
    let mechanisms = settings.auth.mechanisms();
    let keys = settings.auth.api_keys.iter().flat_map(|keys| &keys.holders);
    json!({
        "public_url": settings.public_url,
        "listeners": settings.listeners.iter().map(listener).collect::<Vec<_>>(),
        "admin": admin,
        "health": health,
        "seal_keys": settings.seal_keys.len(),
        "auth": {
            "mechanisms": mechanisms.iter().map(|one| mechanism(*one)).collect::<Vec<_>>(),
            "api_keys": keys.map(|holder| holder.name.as_str()).collect::<Vec<_>>(),
            "issuers": settings.auth.tokens.iter().map(|issuer| issuer.issuer.as_str()).collect::<Vec<_>>(),
        },
        "rules": settings.rules.iter().map(rule).collect::<Vec<_>>(),
        "agents": settings.agents.iter().take(MAX_SHOWN).map(agent).collect::<Vec<_>>(),
        "agents_total": settings.agents.len(),
        "sources": settings.sources.iter().map(source).collect::<Vec<_>>(),
        // Sections of numbers and words alone.
        "limits": lines(&settings.limits),
        "calls": lines(&settings.calls),
        "tasks": lines(&settings.tasks),
        "sessions": lines(&settings.sessions),
        "streams": lines(&settings.streams),
        "background": lines(&settings.background),
        "shutdown": lines(&settings.shutdown),
        "log": lines(&settings.log),
    })
}

/// Most agents of the configuration that are shown.
const MAX_SHOWN: usize = 200;

/// Returns the fields of a section, one on each line.
fn lines(section: &impl std::fmt::Debug) -> Vec<String> {
    let text = format!("{section:#?}");
    let fields = text.lines().skip(1).filter_map(|line| line.strip_prefix("    "));
    fields.map(|line| line.trim_end_matches(',').to_owned()).collect()
}

fn tls(tls: &ListenerTls) -> Value {
    let client_auth = match tls.client_auth.as_ref().map(|clients| clients.required) {
        None => "off",
        Some(false) => "optional",
        Some(true) => "required",
    };
    json!({ "profile": format!("{:?}", tls.profile), "certificates": tls.certificates.len(), "client_auth": client_auth })
}

fn listener(listener: &Listener) -> Value {
    let services = listener.serve;
    let named =
        [("mcp", services.mcp), ("a2a", services.a2a), ("health", services.health), ("push", services.push)];
    let served: Vec<&str> =
        named.into_iter().filter_map(|(name, is_served)| is_served.then_some(name)).collect();
    json!({
        "address": listener.address,
        "tls": listener.tls.as_ref().map(tls),
        "serve": served,
        "require": requirement(&listener.require),
    })
}

fn requirement(require: &Require) -> String {
    let of = require.of.iter().map(|one| mechanism(*one)).collect::<Vec<_>>().join(", ");
    match require.rule {
        RequireRule::None => "none".to_owned(),
        RequireRule::Any => format!("any of: {of}"),
        RequireRule::All => format!("all of: {of}"),
    }
}

fn mechanism(mechanism: Mechanism) -> &'static str {
    match mechanism {
        Mechanism::Certificate => "client certificate",
        Mechanism::Token => "token",
        Mechanism::ApiKey => "API key",
    }
}

fn rule(rule: &Rule) -> Value {
    json!({
        "name": rule.name, "deny": rule.deny, "callers": rule.callers, "certificates": rule.certificates,
        "scopes": rule.scopes, "groups": rule.groups, "agents": rule.agents, "tools": rule.tools,
        "methods": rule.methods, "resources": rule.resources,
    })
}

fn source(source: &Source) -> Value {
    let place = match &source.place {
        SourcePlace::Url(url) => CardSource::Url(url.clone()).without_secrets(),
        SourcePlace::Folder(folder) => folder.display().to_string(),
    };
    json!({
        "name": source.name,
        "place": place,
        "hosts": source.hosts,
        "headers": source.headers.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
    })
}

fn agent(agent: &Agent) -> Value {
    let authorization = agent.auth.authorization.as_ref().map(|authorization| match authorization {
        Authorization::Basic { .. } => "basic",
        Authorization::Bearer(_) => "bearer",
        Authorization::OAuth2(_) => "oauth2",
    });
    json!({
        "name": agent.name,
        "card": agent.card.without_secrets(),
        "authorization": authorization,
        "api_keys": agent.auth.api_keys.len(),
        "headers": agent.headers.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
        "forward_headers": agent.forward_headers.iter().map(|name| name.as_str()).collect::<Vec<_>>(),
        "client_certificate": agent.tls.certificate.is_some(),
        "max_calls": agent.max_calls,
        "rate": agent.rate,
    })
}

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
        http: &mut HttpConnection<'_>,
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
        // Drops the connection at its end, and the pipe with it. Without its type, which the compiler would look through to its end.
        let mut serving: ServedRequest<'_> =
            Box::pin(async move { gateway.handle_relayed(&mut connection, target.place).await });
        if let Err(ClientGone) = write_head(http).await {
            debug!("admin client disconnected");
            return Ok(());
        }
        let (mut buffer, mut is_served) = (BytesMut::with_capacity(4096), false);
        loop {
            tokio::select! {
                () = &mut serving, if !is_served => is_served = true,
                read = from.read_buf(&mut buffer) => {
                    let end = !matches!(read, Ok(1..));
                    if let Err(ClientGone) = http.write_body(buffer.split().freeze(), end).await {
                        debug!("admin client disconnected");
                        break;
                    }
                    if end {
                        return Ok(());
                    }
                }
                // Nothing follows the body, so that this is the end of the connection.
                () = http.disconnected() => break,
            }
        }
        // The messages so far must not look like all of them.
        http.shut_down().await;
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

async fn write_head(http: &mut HttpConnection<'_>) -> Result<(), ClientGone> {
    let mut head = ResponseHead::new(StatusCode::OK);
    head.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    head.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if http.head().version == Version::HTTP_11 {
        head.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    http.write_head(head, false).await
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Admin, ReloadableSecret};

    #[test]
    fn configuration_has_no_secret() {
        let mut one = Agent::new("one", "http://user:CANARY@agent.example/card?key=CANARY");
        one.auth.authorization = Some(Authorization::Bearer(ReloadableSecret::fixed("CANARY")));
        one.headers = vec![(http::header::COOKIE, ReloadableSecret::fixed("CANARY"))];
        let mut settings = Settings::new(vec![one]);
        settings.seal_keys = vec![crate::config::Secret::new("CANARY")];
        settings.admin = Some(Admin { token_hashes: vec![[7; 32]], ..Admin::default() });
        let shown = configuration(&settings).to_string();
        assert!(!shown.contains("CANARY") && !shown.contains("7, 7") && !shown.contains("7,7"), "{shown}");
        assert!(shown.contains("agent.example/card") && shown.contains("bearer"), "{shown}");
        assert!(shown.contains("\"body: 4194304\""), "{shown}");
    }
}
