//! What is done at an agent for one call.
//!
//! A message is sent once and never again. Not here: who waits for the answer.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::directory::{Known, in_effect};
use super::drive::{Drive, Outlet};
use super::judge::FIRST_PAUSE;
use super::rpc::{Form, cancel_task, first_refusal, get_task, post, whole};
use super::stream::{Ending, Track, read};
use crate::a2a::{Event, Message, Send};
use crate::fault::Trouble;
use crate::transport::{Client, Reply};
use tracing::warn;

/// What is to be done.
#[derive(Debug)]
pub enum Errand {
    /// Say this.
    Say(Message),
    /// Say this in the task, or after it if it is finished.
    Continue(String, Message),
    /// Wait for the task to end or to ask.
    Await(String),
    /// Stop the task.
    Cancel(String),
}

/// What an agent may send, in bytes.
#[derive(Debug, Clone, Copy)]
pub struct Caps {
    /// One answer.
    pub response: usize,
    /// One event of a stream.
    pub event: usize,
}

/// One call.
pub(super) struct Call {
    pub(super) client: Client,
    pub(super) known: Arc<Known>,
    pub(super) caps: Caps,
}

/// Begins a call. Nothing happens until the drive is polled.
pub fn start(client: Client, known: Arc<Known>, caps: Caps, errand: Errand) -> Drive {
    let call = Call { client, known: in_effect(known), caps };
    Drive::new(move |outlet| async move { call.run(errand, outlet).await })
}

impl Call {
    async fn run(self, errand: Errand, outlet: Outlet) -> Result<(), Trouble> {
        match errand {
            Errand::Say(message) => self.say(&message, outlet).await,
            // Boxed, here and below: what a plain call does not need must not make it larger.
            Errand::Continue(task, message) => Box::pin(self.go_on(task, message, outlet)).await,
            Errand::Await(task) => {
                let mut track = Track::new(outlet, Some(task));
                Box::pin(self.judge(&mut track, Trouble::TaskLost)).await
            }
            Errand::Cancel(task) => {
                let stopped = cancel_task(&self.client, &self.known, &task, self.caps.response).await?;
                Track::new(outlet, Some(task)).take(Event::Task(stopped)).await;
                Ok(())
            }
        }
    }

    /// A finished task takes no more messages: what is said then begins a new one in its conversation.
    async fn go_on(&self, task: String, mut message: Message, outlet: Outlet) -> Result<(), Trouble> {
        let found = get_task(&self.client, &self.known, &task, self.caps.response).await?;
        message.context_id = found.context_id.or(message.context_id);
        if found.status.state.is_terminal() {
            message.reference_task_ids.push(task);
        } else {
            message.task_id = Some(task);
        }
        self.say(&message, outlet).await
    }

    /// Says a message; once more in the other version if the agent proves that it understood nothing of the first try.
    async fn say(&self, message: &Message, outlet: Outlet) -> Result<(), Trouble> {
        match (self.say_once(message, outlet.clone()).await, &self.known.other) {
            (Err(Trouble::WrongVersion(why)), Some(other)) => {
                let (from, to) = (self.known.interface.dialect.version(), other.interface.dialect.version());
                warn!(from, to, why, "agent does not speak what its card promises; trying the other version");
                let call = Self { client: self.client.clone(), known: other.clone(), caps: self.caps };
                let said = Box::pin(call.say_once(message, outlet)).await;
                // Remembered, unless it understood nothing of this either.
                let is_wrong = !matches!(said, Err(Trouble::WrongVersion(_)));
                self.known.is_wrong.store(is_wrong, Ordering::Release);
                said
            }
            (result, _) => result,
        }
    }

    async fn say_once(&self, message: &Message, outlet: Outlet) -> Result<(), Trouble> {
        let interface = &self.known.interface;
        let ask = Send {
            message,
            accepted_output_modes: &self.known.output_modes,
            tenant: interface.tenant.as_deref(),
        };
        let body = interface.dialect.send(&ask, self.known.streaming);
        let (form, reply) = post(&self.client, &self.known, body).await?;
        let mut track = Track::new(outlet, message.task_id.clone()).opening();
        match form {
            Form::Stream if message.task_id.is_some() => self.listen(reply, &mut track.answering()).await,
            Form::Stream => self.listen(reply, &mut track).await,
            Form::Json => {
                let body = whole(reply, &self.known, self.caps.response).await?;
                let event = interface.dialect.event(&body).map_err(first_refusal)?;
                if track.take(event).await {
                    return Ok(());
                }
                if track.task_id.is_none() {
                    return Err(Trouble::Misbehaved("its answer is neither a task nor a message".into()));
                }
                tokio::time::sleep(FIRST_PAUSE).await;
                Box::pin(self.judge(&mut track, Trouble::TaskLost)).await
            }
        }
    }

    /// Reads a stream to its end, and asks the agent what became of the task if that came too early.
    async fn listen(&self, reply: Reply, track: &mut Track) -> Result<(), Trouble> {
        match read(reply, &self.known, &self.caps, track).await? {
            Ending::Said => Ok(()),
            Ending::Early(_) if track.awaits_authorization() => {
                Box::pin(self.judge(track, Trouble::TaskLost)).await
            }
            Ending::Early(stopped) => Box::pin(self.judge(track, stopped)).await,
        }
    }
}
