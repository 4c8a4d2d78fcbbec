//! Dispatch of requests: host policy, authentication, and the handler of each route.
//!
//! See also `route`, `post` and `subscriptions`.

use std::pin::Pin;

use http::{Method as HttpMethod, StatusCode};
use pingora::http::RequestHeader;
use pingora::proxy::Session;

use super::access_record::AccessRecord;
use super::authenticate::subject;
use super::body::BodyLimits;
use super::limits::quota_key;
use super::post::ErrorReply;
use super::response::{ClientGone, Headers, empty};
use super::route::Route;
use super::{Inner, body, host_policy, now};
use crate::config::{Require, RequireRule};
use crate::fault::Fault;
use crate::mcp::Era;
use crate::telemetry::label;

/// Future that answers a request, or returns the fault if the body was not read completely. Boxed,
/// so that no request carries the size of others, and few layers are polled.
pub(super) type BoxResponse<'a> =
    Pin<Box<dyn Future<Output = Result<(), Result<Fault, ClientGone>>> + Send + 'a>>;

impl Inner {
    /// Handles a request on a route.
    pub(super) async fn handle_request(
        &self,
        http: &mut Session,
        exchange: &mut AccessRecord,
        (door, require): (Route<'_>, &Require),
    ) -> Result<(), ClientGone> {
        let done = match self.check_host_and_origin(http.req_header(), door) {
            Ok(None) => match self.authenticate_and_dispatch(http, exchange, (door, require)).await {
                Ok(()) => self.dispatch(http, exchange, (door, require)).await,
                Err(fault) => Err(Ok(fault)),
            },
            Ok(Some(headers)) => Box::pin(empty(http, StatusCode::NO_CONTENT, headers)).await.map_err(Err),
            Err(fault) => Err(Ok(fault)),
        };
        match done {
            Ok(()) => Ok(()),
            Err(Err(gone)) => Err(gone),
            Err(Ok(fault)) => Box::pin(self.reject_without_reading_body(http, exchange, fault)).await,
        }
    }

    /// Checks host and origin; returns the headers of the complete response to a preflight.
    fn check_host_and_origin(
        &self,
        request: &RequestHeader,
        door: Route<'_>,
    ) -> Result<Option<Headers>, Fault> {
        // Load balancers use any host name, and learn nothing that is worth a rebinding; agents
        // present a token of their own.
        if matches!(door, Route::Health | Route::Push(_)) {
            return Ok(None);
        }
        self.gate.check(request)?;
        Ok((request.method == HttpMethod::OPTIONS).then(|| host_policy::preflight(request)))
    }

    /// Returns the handler of a route, for an authenticated request.
    fn dispatch<'a>(
        &'a self,
        http: &'a mut Session,
        exchange: &'a mut AccessRecord,
        (door, require): (Route<'a>, &'a Require),
    ) -> BoxResponse<'a> {
        let method = http.req_header().method.clone();
        match door {
            Route::Health => Box::pin(async move { self.serve_health(http, &method).await.map_err(Err) }),
            Route::Push(token) => {
                Box::pin(async move { self.serve_push(http, exchange, (method, token)).await.map_err(Err) })
            }
            Route::Metadata(path) => Box::pin(self.serve_metadata(http, path)),
            Route::A2a(agent, rest) => self.serve_a2a(http, exchange, (door, require), (agent, rest)),
            Route::Agents | Route::ApiCatalog => Box::pin(self.serve_document(http, exchange, door)),
            _ => Box::pin(self.serve_mcp(http, exchange, door, method)),
        }
    }

    /// Authenticates the caller of an endpoint, and checks that the agent is visible. Some routes
    /// need no authentication.
    async fn authenticate_and_dispatch(
        &self,
        http: &Session,
        exchange: &mut AccessRecord,
        (door, require): (Route<'_>, &Require),
    ) -> Result<(), Fault> {
        if matches!(door, Route::Health | Route::Push(_) | Route::Metadata(_)) {
            return Ok(());
        }
        // If authentication is required and no mechanism is configured, every request is rejected.
        if !require.of.is_empty() || require.rule != RequireRule::None {
            exchange.caller = Box::pin(self.authenticate(http, require, door)).await?;
        }
        let whose = quota_key(&exchange.caller, http);
        self.shares.check_request_rate(&whose)?;
        exchange.whose = Some(whose);
        let headers = &http.req_header().headers;
        exchange.along = self.directory.along(headers, || subject(&exchange.caller, headers));
        match door.agent() {
            Some(agent) if !self.is_visible(&exchange.caller, agent) => Err(Fault::NoSuchPath),
            Some(_) | None => Ok(()),
        }
    }

    /// Serves an MCP endpoint.
    async fn serve_mcp(
        &self,
        http: &mut Session,
        exchange: &mut AccessRecord,
        door: Route<'_>,
        method: HttpMethod,
    ) -> Result<(), Result<Fault, ClientGone>> {
        match method {
            HttpMethod::POST => self.post(http, exchange, door).await.map_err(Err),
            HttpMethod::GET => {
                exchange.method = label::Method::SessionStream;
                let who = (exchange.caller.clone(), exchange.along.clone());
                Box::pin(self.session_stream(http, who, door)).await
            }
            HttpMethod::DELETE => self.end_session(http, exchange).await,
            _ => Err(Ok(Fault::MethodNotAllowed("POST, GET, DELETE, OPTIONS"))),
        }
    }

    /// Returns the limits for the body of a request.
    pub(super) fn intake<'a>(&'a self, exchange: &'a AccessRecord) -> BodyLimits<'a> {
        let limits = &self.settings.limits;
        let whose = exchange.whose.as_ref();
        BodyLimits { limit: limits.body, within: limits.body_read, shares: &self.shares, whose }
    }

    /// Rejects a request with an unread body: the body must not be taken for the next request, and
    /// a client that is still sending must be able to read the response.
    pub(super) async fn reject_without_reading_body(
        &self,
        http: &mut Session,
        exchange: &mut AccessRecord,
        fault: Fault,
    ) -> Result<(), ClientGone> {
        http.set_keepalive(None);
        self.refuse(http, exchange, ErrorReply { fault, era: Era::Legacy, id: None }).await?;
        body::drain_before_close(http, self.settings.limits.body).await;
        Ok(())
    }

    /// Ends a legacy session; a second request for the same session succeeds too.
    async fn end_session(
        &self,
        http: &mut Session,
        exchange: &mut AccessRecord,
    ) -> Result<(), Result<Fault, ClientGone>> {
        exchange.method = label::Method::SessionEnd;
        let headers = crate::mcp::headers::McpHeaders::read(&http.req_header().headers);
        let Some(id) = headers.session.value() else { return Err(Ok(Fault::MethodNotAllowed("POST"))) };
        let found = self.sessions.find(&self.sealer, exchange.caller.name(), id, now());
        let (session, _) = found.ok_or(Ok(Fault::SessionNotFound))?;
        self.sessions.end(&session).map_err(Ok)?;
        self.cancelled_calls.end_session(session.key);
        self.keep_end(&session).await;
        empty(http, StatusCode::NO_CONTENT, Vec::new()).await.map_err(Err)
    }
}
