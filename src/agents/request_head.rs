//! The head of a request to an agent: path, headers of the protocol, forwarded headers, credentials.
//!
//! Most requests of one method differ in their bodies only, and share a head until the credentials change: to put one
//! together takes as long as to decode a response.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, Method, Request};

use super::grpc;
use super::resolved::{EndpointRoute, ResolvedAgent};
use super::rpc::AgentRequest;
use crate::a2a::Binding;
use crate::auth::{AccessToken, RequestCredentials};
use crate::config::PerMethod;
use crate::fault::AgentFailure;
use crate::transport::RequestHead;

/// The last shared head of each method on one route of one agent.
#[derive(Default)]
pub(super) struct HeadCache(PerMethod<ArcSwapOption<SharedHead>>);

/// A head that belongs to no client.
struct SharedHead {
    head: Arc<RequestHead>,
    /// The part of the path after that of the route.
    path: String,
    /// The credentials in it: kept, so that others are never at their address in memory.
    credentials: Arc<RequestCredentials>,
}

impl ResolvedAgent {
    /// Returns the head of a request on this route, with this token in place of other credentials of its header. A
    /// header of a client never replaces one of the gateway.
    pub(super) fn head(
        &self,
        way: &EndpointRoute,
        ask: &AgentRequest,
        token: Option<&AccessToken>,
    ) -> Result<Arc<RequestHead>, AgentFailure> {
        let shown = self.credentials.request_credentials();
        let build = || self.build_head(way, ask, token, &shown).map(Arc::new);
        let is_shared = token.is_none()
            && self.named.is_none()
            && self.forwards.is_empty()
            && ask.verb == Method::POST
            && !ask.body.is_empty();
        let HeadCache(heads) = &way.heads;
        let Some(place) = heads.of(ask.method).filter(|_| is_shared) else { return build() };
        if let Some(shared) = &*place.load()
            && Arc::ptr_eq(&shared.credentials, &shown)
            && shared.path == ask.route()
        {
            return Ok(shared.head.clone());
        }
        let head = build()?;
        let (path, credentials) = (ask.route().to_owned(), Arc::clone(&shown));
        place.store(Some(Arc::new(SharedHead { head: head.clone(), path, credentials })));
        Ok(head)
    }

    fn build_head(
        &self,
        way: &EndpointRoute,
        ask: &AgentRequest,
        token: Option<&AccessToken>,
        shown: &RequestCredentials,
    ) -> Result<RequestHead, AgentFailure> {
        let path = ask.path(&way.path)?;
        let keyed = shown.keyed(&path).map_err(AgentFailure::Internal)?;
        let mut headers = HeaderMap::clone(self.named.as_deref().unwrap_or(&self.headers));
        if self.interface.binding == Binding::Grpc {
            if keyed != path {
                return Err(AgentFailure::Internal("its API key is for a query, which gRPC does not have"));
            }
            headers.extend(grpc::timeout(way.target.timeouts().total).map(|time| (grpc::TIMEOUT, time)));
        }
        if ask.body.is_empty() {
            headers.remove(CONTENT_TYPE);
        }
        if let Some(along) = self.along.as_ref().filter(|_| !self.forwards.is_empty()) {
            let mut first = HeaderMap::new();
            along.insert(&self.forwards, &mut first);
            first.extend(headers);
            headers = first;
        }
        shown.apply(ask.method, &mut headers);
        if let Some(token) = token {
            headers.insert(AUTHORIZATION, token.value().clone());
        }
        let (mut request, ()) = Request::new(()).into_parts();
        request.method = ask.verb.clone();
        request.uri = keyed.into();
        request.headers = headers;
        way.target.head(request).map_err(|error| self.to_failure(&error))
    }
}
