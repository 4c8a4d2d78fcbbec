//! The settings of calls: the waiting times of clients, and the forms of responses.

use std::time::Duration;

/// Duration of calls, and the form of the response to one that takes longer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Calls {
    /// Longest time that a client waits before it gets a handle instead of the result. Default: 45
    /// s.
    pub budget: Duration,
    /// Time after which a response without content becomes an event stream. Default: 10 s.
    pub stream_after: Duration,
    /// The longest silence on an event stream. Default: 15 s.
    pub keep_alive: Duration,
    /// Time after which a client that supports tasks gets one instead of the result; never later
    /// than `budget`. Default: 2 s.
    pub task_after: Duration,
    /// Duration of one round, for a client that continues by itself. Default: 40 s.
    pub round_timeout: Duration,
    /// Most rounds of a call, from 0 to 9; then the client gets a handle. Default: 7.
    pub max_rounds: usize,
    /// Time for which a round that was not followed up still counts as a watcher. Default: 60 s.
    pub round_grace: Duration,
    /// Time for which the stream of a client that receives progress stays open. Default: the
    /// budget.
    pub stream_timeout: StreamTimeout,
    /// Treatment of a task after the user declined its question. Default: the task stays.
    pub on_decline: OnDecline,
    /// Time for which a task stays alive at its agent after a legacy client has cancelled the call
    /// that began it. Default: 10 s.
    pub cancel_grace: Duration,
    /// Clients with known limits, in the order in which they are compared. Default:
    /// [`KnownClient::shipped`].
    pub clients: Vec<KnownClient>,
}

/// A client that is recognized by its name, and its limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownClient {
    /// The name of the entry.
    pub name: String,
    /// Patterns of `clientInfo.name`, in which `*` is any text.
    pub client_names: Vec<String>,
    /// Patterns of `User-Agent`, in which `*` is any text.
    pub user_agents: Vec<String>,
    /// Longest time that the client waits for a response.
    pub budget: Option<Duration>,
    /// True if the client makes a call again by itself when the result requests that. Default: true
    /// if it declares elicitation.
    pub rounds: Option<bool>,
}

impl KnownClient {
    /// Returns the clients that the gateway knows by itself: those with a measured limit. They wait
    /// for their limit less a margin.
    pub fn shipped() -> Vec<Self> {
        let seconds = [("agno", 8), ("haystack", 25), ("llama-index", 25), ("openai-agents", 4)];
        let known = seconds.into_iter().map(|(name, seconds)| {
            let begins_so = vec![format!("{name}*")];
            Self {
                name: name.to_owned(),
                client_names: begins_so.clone(),
                user_agents: begins_so,
                budget: Some(Duration::from_secs(seconds)),
                rounds: Some(false),
            }
        });
        known.collect()
    }
}

impl Default for Calls {
    fn default() -> Self {
        let [budget, stream_after, keep_alive] = [45, 10, 15].map(Duration::from_secs);
        let [task_after, round_timeout, round_grace] = [2, 40, 60].map(Duration::from_secs);
        Self {
            budget,
            stream_after,
            keep_alive,
            task_after,
            round_timeout,
            max_rounds: 7,
            round_grace,
            stream_timeout: StreamTimeout::Budget,
            on_decline: OnDecline::Keep,
            cancel_grace: Duration::from_secs(10),
            clients: KnownClient::shipped(),
        }
    }
}

/// Time for which the open stream of a client that receives progress is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamTimeout {
    /// For the budget; then it gets a handle.
    Budget,
    /// Until the result is available.
    Forever,
}

/// Treatment of a task after the user declined its question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDecline {
    /// It stays, and its question can still be answered.
    Keep,
    /// It is cancelled at the agent.
    Cancel,
}
