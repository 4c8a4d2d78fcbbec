//! What is behind each door: who is let in, and what a method of HTTP does there.
//!
//! Not here: which door it is (see `route`), what MCP says (see `face`, `listen`).

use http::{Method as HttpMethod, StatusCode};
use pingora::proxy::Session;

use super::admit::subject;
use super::answer::{Gone, empty};
use super::exchange::Exchange;
use super::face::Refused;
use super::route::Door;
use super::shares::whose;
use super::{Inner, gate, intake, now};
use crate::config::Require;
use crate::fault::Fault;
use crate::mcp::Era;
use crate::telemetry::label;

impl Inner {
    /// Answers a request at a door.
    pub(super) async fn open(
        &self,
        http: &mut Session,
        exchange: &mut Exchange,
        (door, require): (Door<'_>, &Require),
    ) -> Result<(), Gone> {
        let method = http.req_header().method.clone();
        // Load balancers ask by whatever name they like, and learn nothing that is worth a rebinding.
        if let Door::Health = door {
            return self.serve_health(http, &method).await;
        }
        if let Door::Push(token) = door {
            return self.serve_push(http, exchange, (method, token)).await;
        }
        if let Err(fault) = self.gate.check(http.req_header()) {
            return self.refuse_unread(http, exchange, fault).await;
        }
        if method == HttpMethod::OPTIONS {
            let headers = gate::preflight(http.req_header());
            return empty(http, StatusCode::NO_CONTENT, headers).await;
        }
        match self.let_in(http, exchange, (door, require), method).await {
            Ok(()) => Ok(()),
            Err(Err(gone)) => Err(gone),
            Err(Ok(fault)) => self.refuse_unread(http, exchange, fault).await,
        }
    }

    /// Answers whoever may come in.
    async fn let_in(
        &self,
        http: &mut Session,
        exchange: &mut Exchange,
        (door, require): (Door<'_>, &Require),
        method: HttpMethod,
    ) -> Result<(), Result<Fault, Gone>> {
        if let Door::Metadata(path) = door {
            return self.serve_metadata(http, path).await;
        }
        self.enter(http, exchange, (door, require)).await.map_err(Ok)?;
        match door {
            Door::A2a(agent, rest) => {
                Box::pin(self.serve_a2a(http, exchange, (door, require), (agent, rest))).await
            }
            Door::Agents | Door::ApiCatalog => self.serve_document(http, exchange, door).await,
            // Boxed, as the A2A face is: neither carries the size of the other.
            _ => Box::pin(self.serve_mcp(http, exchange, door, method)).await,
        }
    }

    /// Lets a caller in at an endpoint, if that is there for it.
    async fn enter(
        &self,
        http: &Session,
        exchange: &mut Exchange,
        (door, require): (Door<'_>, &Require),
    ) -> Result<(), Fault> {
        exchange.caller = self.admit(http, require, door).await?;
        let whose = whose(&exchange.caller, http);
        self.shares.request(&whose)?;
        exchange.whose = Some(whose);
        let headers = &http.req_header().headers;
        exchange.along = self.directory.along(headers, || subject(&exchange.caller, headers));
        match door.agent() {
            Some(agent) if !self.is_there(&exchange.caller, agent) => Err(Fault::NoSuchPath),
            Some(_) | None => Ok(()),
        }
    }

    /// Serves an MCP endpoint.
    async fn serve_mcp(
        &self,
        http: &mut Session,
        exchange: &mut Exchange,
        door: Door<'_>,
        method: HttpMethod,
    ) -> Result<(), Result<Fault, Gone>> {
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

    /// Refuses a request whose body was not read whole: it must not be taken for the next request, and a client that is still
    /// sending must get to read why.
    pub(super) async fn refuse_unread(
        &self,
        http: &mut Session,
        exchange: &mut Exchange,
        fault: Fault,
    ) -> Result<(), Gone> {
        http.set_keepalive(None);
        self.refuse(http, exchange, Refused { fault, era: Era::Legacy, id: None }).await?;
        intake::linger(http, self.settings.limits.body).await;
        Ok(())
    }

    /// Ends a legacy session; ending it twice is as good as once.
    async fn end_session(
        &self,
        http: &mut Session,
        exchange: &mut Exchange,
    ) -> Result<(), Result<Fault, Gone>> {
        exchange.method = label::Method::SessionEnd;
        let headers = crate::mcp::headers::Headers::read(&http.req_header().headers);
        let Some(id) = headers.session.value() else { return Err(Ok(Fault::MethodNotAllowed("POST"))) };
        let found = self.sessions.find(&self.sealer, exchange.caller.name(), id, now());
        let (session, _) = found.ok_or(Ok(Fault::SessionNotFound))?;
        self.sessions.end(&session);
        self.ledger.revoke(session.key, session.expires()).await;
        empty(http, StatusCode::NO_CONTENT, Vec::new()).await.map_err(Err)
    }
}
