//! `calls` as in the file.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::clients::{self, ClientFile};
use crate::config::resolve::ResolveContext;
use crate::config::spanned::Spanned;
use crate::config::units::HumanDuration;
use crate::config::{Calls, OnDecline, StreamTimeout};

const MOMENT: Duration = Duration::from_millis(100);
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// How long calls may take.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Calls")]
pub(super) struct CallsFile {
    /// How long a client waits at most before it gets a handle instead of the result. Clients give up after 60s.
    #[schemars(extend("default" = "45s"))]
    budget: Spanned<HumanDuration>,
    /// When a response that has nothing to say yet becomes an event stream.
    #[schemars(extend("default" = "10s"))]
    stream_after: Spanned<HumanDuration>,
    /// The longest silence on an event stream; at most 60s, as proxies give up then.
    #[schemars(extend("default" = "15s"))]
    keep_alive: Spanned<HumanDuration>,
    /// When a client that knows tasks gets one instead of the result; never later than `budget`.
    #[schemars(extend("default" = "2s"))]
    task_after: Spanned<HumanDuration>,
    /// How long one round lasts for a client that comes back by itself with `requestState`. Clients give up after 60s.
    #[schemars(extend("default" = "40s"))]
    round_timeout: Spanned<HumanDuration>,
    /// How many rounds a call has at most; then the client gets a handle. Clients follow at most 10; 0: a handle at once.
    #[schemars(range(min = 0, max = 9), extend("default" = 7))]
    max_rounds: Spanned<u64>,
    /// How long a round that was not followed up still counts as a watcher of its task.
    #[schemars(extend("default" = "60s"))]
    round_grace: Spanned<HumanDuration>,
    /// How long a client that hears progress is held: for the `budget`, or `forever`, until the result is there.
    #[schemars(extend("default" = "budget"))]
    stream_timeout: Spanned<StreamTimeoutFile>,
    /// Fate of a task after the user declines its question: `keep` (the question can still be answered) or `cancel`.
    #[schemars(extend("default" = "keep"))]
    on_decline: Spanned<OnDeclineFile>,
    /// How long a task continues at its agent after a client of a session cancelled the call that started it. The next call of the
    /// same tool in that session names the task, which then stays. `0s`: the task is cancelled at once.
    #[schemars(extend("default" = "10s"))]
    cancel_grace: Spanned<HumanDuration>,
    /// Clients with known limits, by the name of the entry. These entries take precedence over the built-in ones (agno, haystack,
    /// llama-index, openai-agents); an entry under such a name replaces it, and an empty one, `agno: {}`, removes it.
    clients: Spanned<BTreeMap<String, Spanned<ClientFile>>>,
}

/// How long a client that hears progress is held.
#[derive(Deserialize, JsonSchema, Clone, Copy)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "StreamTimeout")]
enum StreamTimeoutFile {
    Budget,
    Forever,
}

/// Fate of a task after the user declines its question.
#[derive(Deserialize, JsonSchema, Clone, Copy)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "OnDecline")]
enum OnDeclineFile {
    Keep,
    Cancel,
}

impl CallsFile {
    pub(super) fn resolve(self, reading: &mut ResolveContext<'_>) -> Calls {
        let default = Calls::default();
        let late = self.stream_after.place().or(self.budget.place()).cloned();
        let calls = Calls {
            budget: reading.wait(self.budget, SECOND..=HOUR, default.budget),
            stream_after: reading.wait(self.stream_after, Duration::ZERO..=HOUR, default.stream_after),
            keep_alive: reading.wait(self.keep_alive, SECOND..=MINUTE, default.keep_alive),
            task_after: reading.wait(self.task_after, Duration::ZERO..=HOUR, default.task_after),
            round_timeout: reading.wait(self.round_timeout, MOMENT..=HOUR, default.round_timeout),
            max_rounds: reading.count(self.max_rounds, 0..=9, default.max_rounds),
            round_grace: reading.wait(self.round_grace, MOMENT..=HOUR, default.round_grace),
            stream_timeout: match self.stream_timeout.value() {
                Some(StreamTimeoutFile::Budget) => StreamTimeout::Budget,
                Some(StreamTimeoutFile::Forever) => StreamTimeout::Forever,
                None => default.stream_timeout,
            },
            on_decline: match self.on_decline.value() {
                Some(OnDeclineFile::Keep) => OnDecline::Keep,
                Some(OnDeclineFile::Cancel) => OnDecline::Cancel,
                None => default.on_decline,
            },
            cancel_grace: reading.wait(self.cancel_grace, Duration::ZERO..=HOUR, default.cancel_grace),
            clients: Vec::new(),
        };
        let clients = clients::resolve(self.clients, calls.budget, reading);
        let calls = Calls { clients, ..calls };
        if let Some(place) = late.filter(|_| calls.stream_after > calls.budget) {
            let (after, budget) = (HumanDuration(calls.stream_after), HumanDuration(calls.budget));
            reading.problem(&place, format!("stream_after ({after}) is longer than budget ({budget})"));
        }
        calls
    }
}
