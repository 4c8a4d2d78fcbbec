//! One request of an A2A client: whether it may, what goes on to the agent, and how the answer comes back.
//!
//! Not here: reading it (see `asked`, `rest`), what becomes of answers (see `answers`), of their bytes (see `passing`).

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use pingora::proxy::Session;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use tokio::sync::OwnedSemaphorePermit;

use super::answers::{Answers, Binding};
use super::asked::{self, Asked};
use super::hooks::{has_push, hooks};
use super::ids::Ids;
use super::members::Members;
use super::operation::{agent_method, is_push, label};
use super::passing::{self, Bounds, while_there};
use super::places::may_lead;
use super::pushing::Pushing;
use super::refusal::{Refusal, Stop};
use super::spelling::odd_in_params;
use super::{JSON, Visit, write};
use crate::a2a::relay::{IdKind, Operation, splice_params};
use crate::a2a::{Binding as AgentBinding, Dialect};
use crate::agents::{Asking, Known, Passed, pass};
use crate::config::AgentMethod;
use crate::fault::{Fault, Trouble};
use crate::gateway::Inner;
use crate::gateway::answer::gone;
use crate::gateway::exchange::Exchange;
use crate::gateway::queue::Place;
use crate::gateway::shares::{Part, Use};
use crate::telemetry::label::Method as Label;

/// Most extensions of a request that are looked at; no more are named to an agent.
const MOST_EXTENSIONS: usize = 32;

/// A request for an agent.
pub(super) struct Call<'a> {
    pub(super) visit: &'a Visit<'a>,
    pub(super) known: Arc<Known>,
    pub(super) binding: Binding,
    /// `None`: a method of an extension.
    pub(super) operation: Option<Operation>,
    pub(super) asked: &'a Asked<'a>,
    /// The body that it came in, if that is JSON-RPC.
    pub(super) body: Option<&'a Bytes>,
}

/// What a call uses while it lasts.
struct Room {
    _caller: Option<Part>,
    _all: OwnedSemaphorePermit,
    _agent: Option<Place>,
}

impl Call<'_> {
    fn dialect(&self) -> Dialect {
        self.known.interface.dialect
    }
}

impl Inner {
    /// Puts a request to the agent, and passes its answer on.
    pub(super) async fn call_agent(
        &self,
        http: &mut Session,
        exchange: &mut Exchange,
        call: Call<'_>,
    ) -> Result<(), Stop> {
        let Call { visit, operation, asked, .. } = call;
        exchange.method = operation.map_or(Label::A2a, label);
        self.permit_call(exchange, &call)?;
        if call.known.interface.binding == AgentBinding::HttpJson {
            let why = "it offers HTTP+JSON only, which the A2A face does not pass on; its MCP tools work";
            return Err(Trouble::Unusable(why.to_owned()).into());
        }
        let _room = self.room_for(http, exchange, &call).await?;
        let ids = self.ids(exchange, &call);
        let pushing = ids.as_ref().and_then(|ids| self.pushing(ids.caller(), visit.agent, call.dialect()));
        let (params, task) = self.params(&call, ids.as_ref(), pushing.as_ref())?;
        while_there(http, self.check_hooks(&call)).await??;
        let body = match call.body {
            Some(body) => asked.with(params.as_deref(), body),
            None => asked.written(params.as_deref()),
        };
        let method = operation.map_or(AgentMethod::Other, agent_method);
        let known = named_extensions(&call, &http.req_header().headers);
        let is_card = operation == Some(Operation::ExtendedCard);
        let answers = Answers {
            agent: visit.name(),
            dialect: call.dialect(),
            id: &asked.id,
            operation,
            binding: call.binding,
            ids,
            pushing,
            front: is_card.then(|| self.front(http, exchange, visit, &call.known)),
        };
        let limit = self.settings.limits.response;
        let since = Instant::now();
        let passed =
            while_there(http, pass(&self.client, known, Asking { method, task, body, limit })).await?;
        let broken = match passed {
            Ok(passed) => self.hand_on(http, visit, passed, answers).await,
            Err(trouble) => Err(trouble.into()),
        };
        exchange.agent_took = Some(since.elapsed());
        if let Some(trouble) = broken? {
            self.note(exchange, &Refusal::Trouble(trouble));
        }
        Ok(())
    }

    /// Passes an answer on. Says what broke it off after it had begun.
    async fn hand_on(
        &self,
        http: &mut Session,
        visit: &Visit<'_>,
        passed: Passed,
        mut answers: Answers<'_>,
    ) -> Result<Option<Trouble>, Stop> {
        let limits = &self.settings.limits;
        let keep_alive = self.settings.calls.keep_alive;
        let bounds = Bounds { response: limits.response, event: limits.event, keep_alive };
        if passed.is_stream() {
            return Ok(passing::stream(http, passed, bounds, &mut answers, &visit.agent.metrics).await?);
        }
        let status = passed.status();
        if status.is_success() && !answers.change_it() {
            return passing::value(http, passed, bounds).await;
        }
        let headers = passing::headers(passed.headers());
        let body = while_there(http, passed.whole(limits.response)).await??;
        // What is no success may be an error of the agent's, or of something before it.
        if !status.is_success() && !is_rpc_error(&body) {
            return Err(Trouble::Status(status.as_u16()).into());
        }
        if !answers.change_it() {
            write(http, StatusCode::OK, headers, (JSON, body)).await?;
            return Ok(None);
        }
        let text =
            str::from_utf8(&body).map_err(|_| Trouble::Misbehaved("its answer is not UTF-8".into()))?;
        let (status, text) = answers.answer(text)?;
        let media_type = match answers.binding {
            Binding::Rest if status.is_success() => HeaderValue::from_static("application/a2a+json"),
            Binding::Rest | Binding::Rpc => JSON,
        };
        write(http, status, headers, (media_type, text)).await?;
        Ok(None)
    }

    /// Params as the agent gets them, and the task that they are about.
    fn params<'p>(
        &self,
        call: &Call<'p>,
        ids: Option<&Ids<'_>>,
        pushing: Option<&Pushing<'_>>,
    ) -> Result<(Option<Cow<'p, str>>, Option<String>), Stop> {
        let written = call.asked.params.map(RawValue::get);
        let dialect = call.dialect();
        if let Some(odd) = call.operation.and(written).and_then(odd_in_params) {
            return Err(Fault::BadParams(odd).into());
        }
        let params = match dialect {
            Dialect::V1 => asked::for_tenant(written, call.known.interface.tenant.as_deref())?,
            Dialect::V0_1 | Dialect::V0_3 => written.map(Cow::Borrowed),
        };
        let (Some(operation), Some(text)) = (call.operation, params.as_deref()) else {
            return Ok((params, None));
        };
        let Some(ids) = ids else {
            let task = task_of(text, (dialect, operation));
            return Ok((params, task));
        };
        let has_push = is_push(operation) || has_push(text);
        if has_push && pushing.is_none() {
            return Err(Refusal::NoPush.into());
        }
        let (opened, task) = ids.opened(text, operation)?;
        let mut opened = match opened {
            Cow::Borrowed(_) => None,
            Cow::Owned(opened) => Some(opened),
        };
        if let Some(pushing) = pushing.filter(|_| has_push) {
            let text = opened.as_deref().unwrap_or(text);
            opened = Some(pushing.routed(text, operation, task.as_deref())?);
        }
        if operation == Operation::List {
            let paged = at_page(opened.as_deref().unwrap_or(text), ids)?;
            opened = paged.or(opened);
        }
        Ok((opened.map(Cow::Owned).or(params), task))
    }

    /// Refuses a request that has an agent push to a place that only somebody inside can reach.
    async fn check_hooks(&self, call: &Call<'_>) -> Result<(), Refusal> {
        let Some((operation, params)) = call.operation.zip(call.asked.params) else { return Ok(()) };
        if !(operation.says() || operation == Operation::SetPush) {
            return Ok(());
        }
        let all = hooks(params.get()).ok_or_else(|| Refusal::BadPush("it cannot be read".to_owned()))?;
        for url in all {
            let uri: Uri = url.parse().map_err(|_| Refusal::BadPush("it is no URL".to_owned()))?;
            let Err(why) = may_lead(&uri, &self.settings.outbound).await else { continue };
            tracing::info!(agent = call.visit.name(), why, "a place to push to is refused");
            return Err(Refusal::BadPush("it is no address that agents may push to".to_owned()));
        }
        Ok(())
    }

    /// The ids of the caller; `None` where nobody can prove who it is, so that they are nobody's.
    fn ids<'a>(&'a self, exchange: &Exchange, call: &Call<'a>) -> Option<Ids<'a>> {
        let is_plain = self.require.of.is_empty();
        let agent = (call.visit.name(), call.dialect());
        (!is_plain).then(|| Ids::new(&self.sealer, &self.handed, exchange.caller.clone(), agent))
    }

    /// Lets a caller use an operation, or a method of an extension, or not.
    fn permit_call(&self, exchange: &Exchange, call: &Call<'_>) -> Result<(), Fault> {
        let (visit, method) = (call.visit, call.asked.method.as_str());
        let who = (&exchange.caller, visit.door);
        match call.operation {
            Some(operation) if !operation.says() => self.permit_own(who, (operation.word(), visit.name())),
            Some(operation) => self.permit_whole(who, (operation.word(), visit.name())),
            None if !self.require.of.is_empty() => self.permit_unknown(who, (method, visit.name())),
            None => self.permit_whole(who, (method, visit.name())),
        }
    }

    /// Room for one more call, or one more stream that may never end.
    async fn room_for(&self, http: &mut Session, exchange: &Exchange, call: &Call<'_>) -> Result<Room, Stop> {
        let (what, all, busy) = match call.operation {
            Some(Operation::Subscribe) => (Use::Stream, &self.streams, "too many open streams"),
            _ => (Use::Call, &self.calls, "too many calls are under way"),
        };
        let caller = exchange.whose.as_ref().map(|whose| self.shares.take(whose, what)).transpose()?;
        let all = all.clone().try_acquire_owned().map_err(|_| Fault::Busy(busy))?;
        let agent = self.shares.call_of(call.visit.name(), gone(http)).await;
        let agent = agent.map_err(|why| why.map_or_else(Stop::from, Stop::from))?;
        Ok(Room { _caller: caller, _all: all, _agent: agent })
    }
}

/// The agent, told of the extensions that its client names besides those that the operator does.
fn named_extensions(call: &Call<'_>, headers: &HeaderMap) -> Arc<Known> {
    let named = ["a2a-extensions", "x-a2a-extensions"].into_iter().flat_map(|name| headers.get_all(name));
    let named = named.filter_map(|value| value.to_str().ok()).flat_map(|list| list.split(','));
    let own = &call.visit.agent.settings.extensions;
    let mut all: Vec<String> = own.clone();
    for uri in named.map(str::trim).filter(|uri| !uri.is_empty()).take(MOST_EXTENSIONS) {
        if !all.iter().any(|known| known == uri) {
            all.push(uri.to_owned());
        }
    }
    if all.len() == own.len() { call.known.clone() } else { call.known.clone().naming(&all) }
}

/// The task that params are about, where ids are the agent's own.
fn task_of(params: &str, of: (Dialect, Operation)) -> Option<String> {
    let mut task = None;
    let walked = splice_params(params, of.0, of.1, |kind, id| {
        if kind == IdKind::Task {
            task = Some(id.to_owned());
        }
        Ok::<_, ()>(None)
    });
    // What the agent makes of odd params is its affair.
    task.filter(|_| walked.is_ok())
}

/// The params of a list with the agent's own page in them, if they name one.
fn at_page(params: &str, ids: &Ids<'_>) -> Result<Option<String>, Fault> {
    let unknown = || Fault::BadParams("pageToken is none of this list".into());
    let mut members = Members::read(params).ok_or_else(unknown)?;
    members.remove("page_token");
    if let Some(page) = members.find("pageToken") {
        let handle = serde_json::from_str::<Cow<'_, str>>(page.get()).map_err(|_| unknown())?;
        if !handle.is_empty() {
            let token = ids.page_of(&handle).ok_or_else(unknown)?;
            members.put("pageToken", &token);
        }
    }
    Ok(Some(members.written().get().to_owned()))
}

/// Whether a body is an error of JSON-RPC.
fn is_rpc_error(body: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Answer {
        error: Option<Code>,
    }
    #[derive(Deserialize)]
    struct Code {
        #[serde(rename = "code")]
        _code: i64,
        #[serde(default, rename = "message")]
        _message: Option<IgnoredAny>,
    }
    serde_json::from_slice::<Answer>(body).is_ok_and(|answer| answer.error.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_error_of_json_rpc_is_one() {
        for (body, is_one) in [
            (r#"{"id":1,"error":{"code":-32600,"message":"no"}}"#, true),
            (r#"{"error":"unauthorized"}"#, false),
            (r#"{"error":{"status":"x"}}"#, false),
            (r#"{"detail":"no"}"#, false),
            ("<html>", false),
        ] {
            assert_eq!(is_rpc_error(body.as_bytes()), is_one, "{body}");
        }
    }
}
