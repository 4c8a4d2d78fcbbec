//! The settings of calls: how long a client waits, and for what.

use std::time::Duration;

/// How long calls may take, and in which form a client hears of one that takes longer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Calls {
    /// How long a client waits at most before it gets a handle instead of the result. Default: 45 s.
    pub budget: Duration,
    /// When a response that has nothing to say yet becomes an event stream. Default: 10 s.
    pub stream_after: Duration,
    /// The longest silence on an event stream. Default: 15 s.
    pub keep_alive: Duration,
    /// When a client that knows tasks gets one instead of the result; never later than `budget`. Default: 2 s.
    pub task_after: Duration,
    /// How long one leg lasts for a client that comes back by itself. Default: 40 s.
    pub leg: Duration,
    /// How many legs a call has at most, from 0 to 9; then the client gets a handle. Default: 7.
    pub legs: usize,
    /// How long a leg that was not followed up still counts as a watcher. Default: 60 s.
    pub leg_grace: Duration,
    /// How long a client that hears progress is held. Default: for the budget.
    pub hold: StreamTimeout,
    /// What becomes of a task whose question the user declines. Default: it stays.
    pub on_decline: OnDecline,
    /// How long a task lives on at its agent after a legacy client has cancelled the call that began it. Default: 10 s.
    pub cancel_grace: Duration,
    /// Clients whose limits are known, in the order in which they are looked at. Default: [`KnownClient::shipped`].
    pub clients: Vec<KnownClient>,
}

/// A client that is known by its name, and its limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownClient {
    /// The name of the entry.
    pub name: String,
    /// Patterns of `clientInfo.name`, in which `*` is any text.
    pub client_names: Vec<String>,
    /// Patterns of `User-Agent`, in which `*` is any text.
    pub user_agents: Vec<String>,
    /// How long the client waits for an answer at most.
    pub budget: Option<Duration>,
    /// Whether the client makes a call again by itself when the result says so. Default: if it declares elicitation.
    pub legs: Option<bool>,
}

impl KnownClient {
    /// Returns the clients that the gateway knows by itself: those whose limit was measured. They wait for their limit less a
    /// margin.
    pub fn shipped() -> Vec<Self> {
        let seconds = [("agno", 8), ("haystack", 25), ("llama-index", 25), ("openai-agents", 4)];
        let known = seconds.into_iter().map(|(name, seconds)| {
            let begins_so = vec![format!("{name}*")];
            Self {
                name: name.to_owned(),
                client_names: begins_so.clone(),
                user_agents: begins_so,
                budget: Some(Duration::from_secs(seconds)),
                legs: Some(false),
            }
        });
        known.collect()
    }
}

impl Default for Calls {
    fn default() -> Self {
        let [budget, stream_after, keep_alive] = [45, 10, 15].map(Duration::from_secs);
        let [task_after, leg, leg_grace] = [2, 40, 60].map(Duration::from_secs);
        Self {
            budget,
            stream_after,
            keep_alive,
            task_after,
            leg,
            legs: 7,
            leg_grace,
            hold: StreamTimeout::Budget,
            on_decline: OnDecline::Keep,
            cancel_grace: Duration::from_secs(10),
            clients: KnownClient::shipped(),
        }
    }
}

/// How long a client that hears progress on its open stream is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamTimeout {
    /// For the budget; then it gets a handle.
    Budget,
    /// Until the result is there.
    Forever,
}

/// What becomes of a task whose question the user declines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDecline {
    /// It stays, and its question can still be answered.
    Keep,
    /// It is cancelled at the agent.
    Cancel,
}
