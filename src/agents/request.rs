//! The requests of a call: its operation and limits, one HTTP request to an agent, and the parts of a
//! client's request that are forwarded.
//!
//! Only headers that the configuration names are forwarded, and the caller's token where it is
//! exchanged for another; neither is ever logged.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, Method};

use crate::a2a::{BoundRequest, Fingerprint, Message, TaskState};
use crate::auth::SubjectToken;
use crate::config::AgentMethod;
use crate::fault::AgentFailure;

/// No endpoint in particular.
const ANYWHERE: usize = usize::MAX;

/// An operation at an agent.
#[derive(Debug)]
pub enum AgentOperation {
    /// Send this message.
    Say(Message),
    /// Send this message in a task.
    Continue(FollowUpMessage),
    /// Wait for the task to end or to ask a new question.
    Await(String, KnownQuestions),
    /// Get the state of the task.
    Look(String),
    /// Cancel the task.
    Cancel(String),
    /// Ask the agent to push changes of the task.
    Webhook(String, WebhookTarget),
}

/// The URL to which an agent pushes changes of a task. The gateway has one registration per task: a
/// second request changes nothing.
pub struct WebhookTarget {
    /// The address.
    pub url: String,
    /// The token that authenticates the agent's pushes.
    pub token: String,
}

impl fmt::Debug for WebhookTarget {
    /// Hides both members, which are secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hook").finish_non_exhaustive()
    }
}

/// The questions of a task that are known already.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KnownQuestions {
    /// The open question: an event that repeats it is not new.
    pub open: Option<Fingerprint>,
    /// The answered question: while the agent repeats it, it has not begun to work on the answer.
    pub answered: Option<Fingerprint>,
    /// The state in which the agent asks the question.
    pub state: Option<TaskState>,
    /// True if the agent asks with a message. Once that message is in the history, an answer has
    /// arrived, and the same question without it remains until the agent has processed the answer.
    pub has_words: bool,
}

/// A message to a live task.
#[derive(Debug)]
pub struct FollowUpMessage {
    /// The task.
    pub task: String,
    /// The message.
    pub message: Message,
    /// The question that it answers: nothing is sent if that question is not open any more. `None`:
    /// sent in any case.
    pub turn: Option<Fingerprint>,
    /// The state in which it was asked, if it had a message. Without one the question is as open as
    /// before, if the agent received an answer and rejected it.
    pub worded: Option<TaskState>,
    /// True if the stream of the task is read elsewhere already: then no second stream is opened.
    pub beside: bool,
}

/// Limits in bytes of an agent's output, and in time.
#[derive(Debug, Clone, Copy)]
pub struct CallLimits {
    /// Bytes of one event of a stream.
    pub event: usize,
    /// The time without bytes after which the agent of a stream is asked for the state of the task.
    pub silence: Duration,
    /// The pause before the first repetition of a query; it doubles from there.
    pub retry_base: Duration,
    /// The longest such pause.
    pub retry_max: Duration,
    /// The time that a task may remain unchanged after the agent ended its stream, before its
    /// client is notified.
    pub stalled: Duration,
    /// The number of failed attempts in a row after which an agent is given up; 0: as long as a
    /// client waits.
    pub max_attempts: u32,
}

/// One request to an agent.
pub(super) struct AgentRequest {
    /// The method, for the settings that differ by method.
    pub(super) method: AgentMethod,
    /// The task that the request is about, if the agent knows it already.
    pub(super) task: Option<String>,
    /// The conversation that the request continues, where that matters.
    pub(super) context: Option<String>,
    /// The task that the request begins, by the gateway's own name for it: the endpoint that the
    /// request is sent to holds that task, with or without a response.
    pub(super) begins: Option<String>,
    pub(super) verb: Method,
    /// The part after the path of the endpoint.
    route: String,
    pub(super) body: Bytes,
    /// The endpoint that the request must go to, or was sent to.
    place: AtomicUsize,
}

impl AgentRequest {
    /// Creates a request about a task of the agent, or about none yet.
    pub(super) fn new(method: AgentMethod, task: Option<&str>, written: impl Into<BoundRequest>) -> Self {
        let BoundRequest { verb, route, body } = written.into();
        let (task, place) = (task.map(str::to_owned), AtomicUsize::new(ANYWHERE));
        Self { method, task, context: None, begins: None, verb, route, body, place }
    }

    /// Binds the request to this endpoint.
    pub(super) fn to(self, at: usize) -> Self {
        Self { place: AtomicUsize::new(at), ..self }
    }

    /// Returns the endpoint that the request must go to, or was sent to.
    pub(super) fn place(&self) -> Option<usize> {
        Some(self.place.load(Ordering::Relaxed)).filter(|at| *at != ANYWHERE)
    }

    /// Records the endpoint that the request was sent to.
    pub(super) fn set_place(&self, at: usize) {
        self.place.store(at, Ordering::Relaxed);
    }

    /// Returns the request path at this base path.
    pub(super) fn path(&self, place: &PathAndQuery) -> Result<PathAndQuery, AgentFailure> {
        if self.route.is_empty() {
            return Ok(place.clone());
        }
        let base = place.path().trim_end_matches('/');
        let query = place.query().map(|query| format!("?{query}")).unwrap_or_default();
        let whole = format!("{base}{}{query}", self.route);
        whole.parse().map_err(|_| AgentFailure::Internal("its path cannot be called"))
    }
}

/// The forwarded parts. Each agent selects those that its own settings name.
pub struct ForwardedContext {
    headers: HeaderMap,
    subject: Option<SubjectToken>,
}

impl ForwardedContext {
    /// Copies the headers of these names from a request.
    pub(super) fn new(names: &[HeaderName], request: &HeaderMap, subject: Option<SubjectToken>) -> Self {
        Self { headers: select(names, request), subject }
    }

    /// Inserts the headers of these names into others.
    pub(super) fn insert(&self, names: &[HeaderName], into: &mut HeaderMap) {
        into.extend(select(names, &self.headers));
    }

    /// Returns the token of the caller, for its exchange.
    pub(super) fn subject(&self) -> Option<&SubjectToken> {
        self.subject.as_ref()
    }
}

fn select(names: &[HeaderName], from: &HeaderMap) -> HeaderMap {
    let mut chosen = HeaderMap::new();
    for name in names {
        for value in from.get_all(name) {
            let mut value = value.clone();
            value.set_sensitive(true);
            chosen.append(name.clone(), value);
        }
    }
    chosen
}
