//! One call of a batch: a call of the engine with a client of its own.
//!
//! The client is a modern one without capabilities, so that no question is asked on its behalf: an
//! agent that asks ends the call with a handle of its task. The cancellation of the batch looks to
//! the engine like a client that disconnects.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::{CallOutcome, CallStatus};
use crate::agents::ForwardedContext;
use crate::auth::Caller;
use crate::calls::{CallEngine, CallRequest, CallTarget, ClientContext, ResponseTarget};
use crate::discovery::view;
use crate::fault::{Abort, ClientGone, Fault};
use crate::http_edge::{AccessRecord, ResponseHead, ResponseSink, Route};
use crate::jsonrpc::{Id, Text};
use crate::limits::UsePermit;
use crate::mcp::{ClientParams, ClientSoftware};
use crate::quota::QuotaOwner;
use crate::telemetry::label::{Method, Outcome};
use crate::telemetry::trace::RequestScope;

/// Longest wait for a permit of the caller's quota of calls.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval of the attempts to get one.
const PERMIT_INTERVAL: Duration = Duration::from_millis(50);

/// The client of a batch, without its connection.
pub(super) struct BatchClient {
    caller: Caller,
    /// The agent of the route, if the route is for one agent.
    agent: Option<String>,
    forwarded: Option<Arc<ForwardedContext>>,
    quota_owner: Option<QuotaOwner>,
    software: Option<Arc<ClientSoftware>>,
}

impl BatchClient {
    pub(super) fn new(client: &ClientContext<'_>) -> Self {
        Self {
            caller: client.caller.clone(),
            agent: client.route.agent().map(str::to_owned),
            forwarded: client.forwarded.clone(),
            quota_owner: client.quota_owner.clone(),
            software: client.software.clone(),
        }
    }

    fn context(&self) -> ClientContext<'_> {
        let route = self.agent.as_deref().map_or(Route::AllAgents, Route::OneAgent);
        let detached = ClientContext::detached(self.caller.clone(), route, self.quota_owner.clone());
        ClientContext { forwarded: self.forwarded.clone(), software: self.software.clone(), ..detached }
    }
}

/// A call that may run.
pub(super) struct CallRun {
    pub(super) client: Arc<BatchClient>,
    pub(super) tool: Arc<str>,
    pub(super) arguments: Option<Arc<RawValue>>,
    pub(super) cancelled: watch::Receiver<bool>,
}

impl CallRun {
    /// Runs the call, for at most `timeout`.
    pub(super) async fn run(self, engine: &CallEngine, timeout: Duration) -> CallOutcome {
        let mut sink = DetachedSink::new(self.cancelled.clone());
        let permit = tokio::select! {
            permit = self.permit(engine) => permit,
            () = sink.disconnected() => return cancelled(Duration::ZERO),
        };
        let began = Instant::now();
        let _permit = match permit {
            Ok(permit) => permit,
            Err(fault) => return failed(&fault, Duration::ZERO),
        };
        if engine.drain.is_due() {
            return failed(&Fault::Ending, Duration::ZERO);
        }
        let client = self.client.context();
        let params = ClientParams {
            name: Some(Text(Cow::Borrowed(&self.tool))),
            arguments: self.arguments.as_deref(),
            ..ClientParams::default()
        };
        let scope = client.forwarded.as_deref().map(ForwardedContext::shared_scope);
        let scope = scope.unwrap_or_else(|| Arc::new(RequestScope::bare()));
        let mut record = AccessRecord::new(client.caller.clone(), scope);
        record.forwarded.clone_from(&client.forwarded);
        record.quota_owner.clone_from(&client.quota_owner);
        let id = Id::null();
        let request = CallRequest { client: &client, id: &id, params: &params };
        let target = CallTarget { to: ResponseTarget::Batch(&mut sink), budget: timeout };
        let catalogue = engine.catalogue.load_full();
        let called =
            Box::pin(engine.call_tool(target, request, &mut record, view(&catalogue, client.route))).await;
        let took = began.elapsed();
        if let Some(agent) = &record.agent {
            agent.metrics.request(Method::ToolsCall, record.outcome);
        }
        match called {
            Ok(Some(body)) => outcome(&body, record.outcome, took),
            Ok(None) | Err(Abort::ClientGone) => cancelled(took),
            Err(Abort::Rejected(fault)) => failed(&fault, took),
        }
    }

    /// Waits for a permit of the caller's quota of calls: other calls of the caller may use all.
    async fn permit(&self, engine: &CallEngine) -> Result<UsePermit, Fault> {
        let until = Instant::now() + PERMIT_TIMEOUT;
        loop {
            match engine.limits.acquire_call(self.client.quota_owner.as_ref()) {
                Err(Fault::QuotaExceeded(_) | Fault::Busy(_)) if Instant::now() < until => {
                    sleep(PERMIT_INTERVAL).await;
                }
                permit => return permit,
            }
        }
    }
}

fn cancelled(took: Duration) -> CallOutcome {
    CallOutcome::without_result(CallStatus::Cancelled, took, "the batch was cancelled")
}

fn failed(fault: &Fault, took: Duration) -> CallOutcome {
    CallOutcome::without_result(CallStatus::Failed, took, fault.to_string())
}

/// Reads the outcome of a call from its JSON-RPC response.
fn outcome(body: &[u8], outcome: Outcome, took: Duration) -> CallOutcome {
    #[derive(Deserialize)]
    struct CallResponse {
        result: Box<RawValue>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct ResultFlags {
        #[serde(default)]
        is_error: bool,
    }
    let Ok(CallResponse { result }) = serde_json::from_slice(body) else {
        return CallOutcome::without_result(CallStatus::Failed, took, "the call has no result");
    };
    let is_error = serde_json::from_str(result.get()).is_ok_and(|flags: ResultFlags| flags.is_error);
    let status = match outcome {
        _ if is_error => CallStatus::Failed,
        Outcome::InputRequired => CallStatus::InputRequired,
        Outcome::Continues => CallStatus::Continues,
        _ => CallStatus::Completed,
    };
    CallOutcome { status, took, result: Some(result), error: None }
}

/// The connection of a call that no client reads. It disconnects when the batch is cancelled.
struct DetachedSink {
    head: Parts,
    cancelled: watch::Receiver<bool>,
}

impl DetachedSink {
    fn new(cancelled: watch::Receiver<bool>) -> Self {
        Self { head: http::Request::new(()).into_parts().0, cancelled }
    }
}

impl ResponseSink for DetachedSink {
    fn head(&self) -> &Parts {
        &self.head
    }

    async fn write_head(&mut self, _head: ResponseHead, _end: bool) -> Result<(), ClientGone> {
        Ok(())
    }

    async fn write_body(&mut self, _bytes: Bytes, _end: bool) -> Result<(), ClientGone> {
        Ok(())
    }

    fn close_after_response(&mut self) {}

    async fn shut_down(&mut self) {}

    async fn disconnected(&mut self) {
        if self.cancelled.wait_for(|is_cancelled| *is_cancelled).await.is_err() {
            // The batch is gone, and with it every reader of the result.
        }
    }

    fn is_shutting_down(&self) -> bool {
        false
    }

    fn sleep(wait: Duration) -> impl Future<Output = ()> + Send {
        sleep(wait)
    }
}
