//! What became of a task whose agent stopped talking: the agent itself is asked, again and again, until it is known.
//!
//! Reads a2a.md §4.3, rules 4 and 5: `GetTask` is the judge; a live task is subscribed to on 1.0 and only polled on older
//! versions, where a resubscription corrupts the task of real agents. Not here: sending messages; none is ever sent twice.

use std::time::Duration;

use super::call::Call;
use super::rpc::{Form, get_task, post, refusal, whole};
use super::stream::{Ending, Track, read};
use crate::a2a::{Event, State};
use crate::fault::Trouble;

/// The pause before the second question; it doubles from there.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How often in a row an agent may fail to answer before it is given up.
const MOST_FAILURES: u32 = 5;

impl Call {
    /// Follows a task until it ends or asks.
    ///
    /// `stopped` is why the agent stopped talking, told if it is never heard of again.
    pub(super) async fn judge(&self, track: &mut Track, stopped: Trouble) -> Result<(), Trouble> {
        let Some(task) = track.task_id.clone() else { return Err(stopped) };
        let mut pause = FIRST_PAUSE;
        let mut failures = 0;
        let mut subscribes = self.known.streaming;
        loop {
            match get_task(&self.client, &self.known, &task, self.caps.response).await {
                Ok(found) => {
                    failures = 0;
                    let open = found.status.state;
                    if track.take(Event::Task(found)).await {
                        return Ok(());
                    }
                    if subscribes && open != State::AuthRequired {
                        subscribes = Box::pin(self.subscribe(&task, track, &mut pause)).await?;
                        if track.is_over() {
                            return Ok(());
                        }
                    }
                }
                Err(
                    trouble @ (Trouble::Unreachable(_)
                    | Trouble::Slow(_)
                    | Trouble::Broken(_)
                    | Trouble::Status(_)),
                ) => {
                    failures += 1;
                    if failures >= MOST_FAILURES {
                        return Err(trouble);
                    }
                }
                // It knows no such task: what it said before is all that will ever be known.
                Err(Trouble::TaskLost) => return Err(lost(stopped)),
                Err(trouble) => return Err(trouble),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Listens to a live task. Says whether listening is worth another try.
    async fn subscribe(&self, task: &str, track: &mut Track, pause: &mut Duration) -> Result<bool, Trouble> {
        let interface = &self.known.interface;
        let Some(body) = interface.dialect.subscribe(task, interface.tenant.as_deref()) else {
            return Ok(false);
        };
        let (form, reply) = match post(&self.client, &self.known, body).await {
            Ok(answer) => answer,
            Err(_) => return Ok(false),
        };
        if form == Form::Json {
            let body = whole(reply, self.caps.response).await?;
            return match interface.dialect.event(&body) {
                Ok(event) => Ok(!track.take(event).await),
                Err(error) => {
                    tracing::debug!(trouble = %refusal(error), "agent does not let the gateway subscribe");
                    Ok(false)
                }
            };
        }
        let before = track.heard();
        match read(reply, &self.known, &self.caps, track).await? {
            Ending::Said => Ok(false),
            Ending::Early(_) => {
                // A stream that brought something was worth it; one that closes at once must not be opened in a circle.
                if track.heard() > before {
                    *pause = FIRST_PAUSE;
                }
                Ok(true)
            }
        }
    }
}

fn lost(stopped: Trouble) -> Trouble {
    match stopped {
        Trouble::Refused(_) => stopped,
        _ => Trouble::TaskLost,
    }
}
