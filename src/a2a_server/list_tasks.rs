//! `ListTasks` with sealed ids: pages of the caller's own tasks, each filled from as many pages of
//! the agent as necessary.
//!
//! An agent lists the tasks of all callers, since all calls come from the gateway. A page without
//! the tasks of others may be short or empty, and clients stop at an empty page. The gateway
//! therefore requests further pages until the page is full, no page is left, or all tasks ever
//! shown to the caller are found. Each further request asks for as many tasks as are missing, so
//! that the agent's own tokens continue the list and no task is shown twice or lost between two
//! pages. One client request leads to at most [`MAX_UPSTREAM_REQUESTS`] requests, so that no client
//! makes the agent read out all its tasks; only then a page may be short, and its token continues
//! the list. `totalSize` is the number of tasks on all pages together: the first request continues
//! counting with its remaining requests, and the token carries the result. If the count did not
//! reach the end, `totalSize` is the number of tasks found so far: a correct number, where the
//! agent's own would reveal tasks of others.
//!
//! If an agent has several endpoints, each knows its own tasks and tokens: they are requested one
//! after the other, for all callers.
//!
//! See also `ids` (tokens, and the tasks that were shown) and `response` (sealing).

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::error::A2aError;
use super::ids::ExchangeIds;
use super::proxy::ProxiedRequest;
use super::stream_body;
use crate::a2a::translate::{HttpAnswer, to_json_rpc};
use crate::agents::{ForwardRequest, ResolvedAgent, forward};
use crate::config::AgentMethod;
use crate::fault::{Abort, AgentFailure, Fault};
use crate::http_edge::Headers;
use crate::jsonrpc::object::{RawObject, wrap};
use crate::quota::AnswerRoom;
use crate::transport::HttpClient;

/// Most requests to the agent for one client request.
const MAX_UPSTREAM_REQUESTS: usize = 10;

/// Tasks on a page if neither side sets a size.
const DEFAULT_PAGE_SIZE: usize = 50;

/// Most tasks on a page of A2A.
const MAX_PAGE_SIZE: usize = 100;

/// Complete response of an agent, not a stream.
pub(super) struct FullResponse {
    pub(super) status: StatusCode,
    /// Headers for the client.
    pub(super) headers: Headers,
    pub(super) body: Bytes,
}

/// Position in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PageToken {
    /// Number of the endpoint.
    pub(super) at: usize,
    /// The agent's own token; empty at the beginning of that endpoint's list.
    pub(super) token: String,
    /// Number of tasks on the pages before.
    pub(super) before: usize,
    /// Number of tasks on all pages, if it is known.
    pub(super) total: Option<usize>,
}

/// Agent, and the request that is repeated with other params.
pub(super) struct TaskLister<'a> {
    pub(super) http_client: &'a HttpClient,
    pub(super) agent: Arc<ResolvedAgent>,
    pub(super) call: &'a ProxiedRequest<'a>,
    /// True if all tasks are shown, and not only the caller's.
    pub(super) shows_all: bool,
}

/// Position of the next page at the agent.
#[derive(Debug, Clone)]
struct NextPage {
    /// Number of the endpoint.
    at: usize,
    token: String,
}

/// Page of the agent.
struct UpstreamPage {
    members: RawObject,
    own: Vec<Box<RawValue>>,
    /// `None` if there is no next page.
    next: Option<NextPage>,
    /// Text of the response before its result.
    prefix: String,
    /// Text of the response after its result.
    suffix: String,
}

/// State of the requests so far.
struct ListCursor<'a> {
    ids: &'a ExchangeIds<'a>,
    shows_all: bool,
    params: RawObject,
    /// Tasks on pages before this one.
    before: usize,
    own: Vec<Box<RawValue>>,
    /// Tasks on pages after this one, as far as they are counted.
    after: usize,
    next: Option<NextPage>,
    requests: usize,
}

/// Params of a list with the agent's own token.
struct ListParams {
    params: RawObject,
    /// Position of that token; `None` at the beginning.
    position: Option<PageToken>,
}

/// Returns the params of a list with the agent's own token, and the position of that token.
///
/// # Errors
///
/// [`Fault::InvalidParams`] for a token that was not issued to this caller.
fn open_page(params: &str, endpoints: usize, ids: &ExchangeIds<'_>) -> Result<ListParams, Fault> {
    let unknown = || Fault::InvalidParams("pageToken is none of this list: begin without one".into());
    let mut params = RawObject::read(params).ok_or_else(unknown)?;
    params.remove("page_token");
    let Some(page) = params.find("pageToken").filter(|page| page.get() != "null") else {
        return Ok(ListParams { params, position: None });
    };
    let handle = serde_json::from_str::<Cow<'_, str>>(page.get()).map_err(|_| unknown())?;
    if handle.is_empty() {
        return Ok(ListParams { params, position: None });
    }
    let position = ids.open_page_token(&handle).filter(|page| page.at < endpoints).ok_or_else(unknown)?;
    params.insert_or_replace("pageToken", &position.token);
    Ok(ListParams { params, position: Some(position) })
}

impl TaskLister<'_> {
    /// Requests a list. The agent's first response is the response for the client, with other
    /// tasks; an error in a later response replaces it.
    ///
    /// # Errors
    ///
    /// [`Fault::InvalidParams`] for a token that was not issued to this caller; [`AgentFailure`] if no
    /// response came, or an unreadable one.
    pub(super) async fn list(
        &self,
        params: &str,
        ids: &ExchangeIds<'_>,
        room: &mut AnswerRoom,
    ) -> Result<FullResponse, Abort<A2aError>> {
        let ListParams { params, position } = open_page(params, self.agent.endpoints(), ids)?;
        let wanted = params.find("pageSize").and_then(|size| serde_json::from_str(size.get()).ok());
        let at = position.as_ref().map_or(0, |page| page.at);
        let first = self.request_page(at, &params, room).await?;
        let Some(page) = self.read(&first, at, ids)? else { return Ok(first) };
        let UpstreamPage { mut members, own, next, prefix, suffix } = page;
        let size = members.find("pageSize").and_then(|size| serde_json::from_str(size.get()).ok());
        let size = size.filter(|size| *size > 0).or(wanted).unwrap_or(DEFAULT_PAGE_SIZE);
        let before = position.as_ref().map_or(0, |page| page.before);
        let shows_all = self.shows_all;
        let mut cursor = ListCursor { ids, shows_all, params, before, own, after: 0, next, requests: 1 };
        let mut held = first.body.len();
        // Permit for the bytes of all responses that the page is made of.
        let mut permit = room.permit.clone();
        while cursor.own.len() < size && held <= room.limit {
            permit.absorb_all(&mut room.permit);
            let missing = size - cursor.own.len();
            let Some(at) = cursor.next_request(missing) else { break };
            let next = self.request_page(at, &cursor.params, room).await?;
            let Some(page) = self.read(&next, at, ids)? else { return Ok(next) };
            cursor.own.extend(page.own);
            cursor.next = page.next;
            held += next.body.len();
        }
        permit.absorb_all(&mut room.permit);
        let next = cursor.next.clone();
        if position.is_none() {
            self.count(&mut cursor, room).await;
        }
        room.permit = permit;
        let seen = cursor.before + cursor.own.len();
        let known = position.and_then(|page| page.total);
        let total =
            if cursor.is_over() { Some(seen + cursor.after) } else { known.map(|known| known.max(seen)) };
        let token = match next.filter(|_| !cursor.is_over() || cursor.after > 0) {
            None => String::new(),
            Some(NextPage { at, token }) => {
                ids.seal_page_token(&PageToken { at, token, before: seen, total })
            }
        };
        members.insert_or_replace("tasks", &cursor.own);
        members.insert_or_replace("totalSize", &total.unwrap_or(seen + cursor.after));
        members.insert_or_replace("nextPageToken", &token);
        let body = format!("{prefix}{}{suffix}", members.written().get()).into();
        Ok(FullResponse { body, ..first })
    }

    /// Counts the tasks of the pages after this one, within the remaining requests. Stops at the
    /// first response without a list.
    async fn count(&self, cursor: &mut ListCursor<'_>, room: &mut AnswerRoom) {
        cursor.params.insert_or_replace("includeArtifacts", &false);
        cursor.params.insert_or_replace("historyLength", &0);
        while let Some(at) = cursor.next_request(MAX_PAGE_SIZE) {
            let Ok(next) = self.request_page(at, &cursor.params, room).await else { return };
            let Ok(Some(page)) = self.read(&next, at, cursor.ids) else { return };
            cursor.after += page.own.len();
            cursor.next = page.next;
        }
    }

    fn read(
        &self,
        answer: &FullResponse,
        at: usize,
        ids: &ExchangeIds<'_>,
    ) -> Result<Option<UpstreamPage>, AgentFailure> {
        let is_own = |task: &str| self.shows_all || ids.has(task);
        UpstreamPage::read(answer, at, self.agent.endpoints(), is_own)
    }

    /// Sends one request, and returns the response in the form of JSON-RPC.
    async fn request_page(
        &self,
        at: usize,
        params: &RawObject,
        room: &mut AnswerRoom,
    ) -> Result<FullResponse, Abort<A2aError>> {
        let written = self.call.encode(Some(params.written().get()))?;
        let at = Some(at).filter(|_| self.agent.endpoints() > 1);
        let request = ForwardRequest { method: AgentMethod::Other, task: None, written, at };
        let mut response = forward(self.http_client, self.agent.clone(), request, room).await?;
        if response.is_stream() {
            return Err(AgentFailure::ProtocolViolation("it answers a list with a stream".into()).into());
        }
        let (status, headers) = (response.status(), stream_body::headers(response.headers()));
        let body = response.whole(room).await?;
        if !self.call.is_bare() {
            return Ok(FullResponse { status, headers, body });
        }
        let unreadable = || AgentFailure::ProtocolViolation("its list of tasks cannot be read".into());
        let text = str::from_utf8(&body).map_err(|_| unreadable())?;
        let (agent, operation, status) = (self.call.dialect(), self.call.operation, status.as_u16());
        let answer = HttpAnswer { agent, operation, status, json: text };
        let answer = to_json_rpc(&self.call.request.id, answer).map_err(|_| unreadable())?;
        let body = answer.ok_or(AgentFailure::HttpStatus(status))?.into();
        Ok(FullResponse { status: StatusCode::OK, headers, body })
    }
}

impl ListCursor<'_> {
    fn is_over(&self) -> bool {
        let has_all = || self.before + self.own.len() + self.after >= self.ids.count();
        self.next.is_none() || (!self.shows_all && has_all())
    }

    /// Sets the params of the next request for `size` tasks, and returns its endpoint; `None` if
    /// there is none.
    fn next_request(&mut self, size: usize) -> Option<usize> {
        if self.is_over() || self.requests >= MAX_UPSTREAM_REQUESTS {
            return None;
        }
        let NextPage { at, token } = self.next.as_ref()?;
        self.params.remove("page_size");
        self.params.insert_or_replace("pageSize", &size.min(MAX_PAGE_SIZE));
        self.params.insert_or_replace("pageToken", token);
        self.requests += 1;
        Some(*at)
    }
}

impl UpstreamPage {
    /// Parses a response; `None` if it holds no list: it is then handled like any other response.
    fn read(
        answer: &FullResponse,
        at: usize,
        endpoints: usize,
        is_own: impl Fn(&str) -> bool,
    ) -> Result<Option<Self>, AgentFailure> {
        #[derive(Deserialize)]
        struct ListAnswer<'a> {
            #[serde(borrow)]
            result: Option<&'a RawValue>,
            #[serde(borrow)]
            error: Option<&'a RawValue>,
        }
        let unreadable = || AgentFailure::ProtocolViolation("its list of tasks cannot be read".into());
        if !answer.status.is_success() {
            return Ok(None);
        }
        let text = str::from_utf8(&answer.body).map_err(|_| unreadable())?;
        let Ok(ListAnswer { result: Some(result), error: None }) = serde_json::from_str(text) else {
            return Ok(None);
        };
        let members = RawObject::read(result.get()).ok_or_else(unreadable)?;
        let (prefix, suffix) = wrap(text, result).ok_or_else(unreadable)?;
        let own = filter_own(&members, is_own).ok_or_else(unreadable)?;
        let next = match members.text("nextPageToken").filter(|token| !token.is_empty()) {
            Some(token) => Some(NextPage { at, token }),
            None => Some(NextPage { at: at + 1, token: String::new() }).filter(|next| next.at < endpoints),
        };
        Ok(Some(Self { members, own, next, prefix: prefix.to_owned(), suffix: suffix.to_owned() }))
    }
}

/// Returns the tasks of a page that belong to the caller.
fn filter_own(page: &RawObject, is_own: impl Fn(&str) -> bool) -> Option<Vec<Box<RawValue>>> {
    #[derive(Deserialize)]
    struct TaskName<'a> {
        #[serde(borrow)]
        id: Cow<'a, str>,
    }
    let all: Vec<&RawValue> = match page.find("tasks").filter(|tasks| tasks.get() != "null") {
        Some(tasks) => serde_json::from_str(tasks.get()).ok()?,
        None => Vec::new(),
    };
    let is_own = |task: &&RawValue| {
        serde_json::from_str::<TaskName<'_>>(task.get()).is_ok_and(|named| is_own(&named.id))
    };
    Some(all.into_iter().filter(is_own).map(ToOwned::to_owned).collect())
}
