//! Scripted agent: tests of the gateway play its side of every exchange, without a network.
//!
//! A test queues one [`ScriptedExchange`] for each message and sends the events of its response.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;

use super::directory::Directory;
use super::drive::{Bearing, EventSender, EventSize};
use super::resolved::ResolvedAgent;
use super::rpc::AgentOperation;
use crate::a2a::{AgentCard, Dialect, InterfacePin, Message, PartBody, StreamResponse};
use crate::fault::{AgentFailure, TaskDelay};
use crate::sync::lock;

/// Operation that the gateway performed at the agent.
#[derive(Debug, Clone)]
pub(crate) struct PerformedOperation {
    /// The name of the operation, as in `AgentOperation`.
    pub(crate) name: &'static str,
    /// The text of the message, or the id of the task.
    pub(crate) text: String,
    pub(crate) at: Instant,
}

/// Step of a scripted exchange.
enum ScriptStep {
    Event(Box<StreamResponse>),
    Delay(Option<TaskDelay>),
    /// The end of the exchange.
    End(Result<(), AgentFailure>),
}

/// Agent side of one exchange, which stays open until it is ended.
pub(crate) struct ScriptedExchange(UnboundedSender<ScriptStep>);

impl ScriptedExchange {
    /// Sends an event, in the form of A2A 1.0.
    pub(crate) fn send(&self, event: &Value) {
        self.step(ScriptStep::Event(Box::new(parsed(event))));
    }

    /// Reports a delay of the task.
    pub(crate) fn delay(&self, delay: TaskDelay) {
        self.step(ScriptStep::Delay(Some(delay)));
    }

    /// Ends the exchange with a failure.
    pub(crate) fn fail(&self, failure: AgentFailure) {
        self.step(ScriptStep::End(Err(failure)));
    }

    /// Ends the exchange.
    pub(crate) fn end(&self) {
        self.step(ScriptStep::End(Ok(())));
    }

    /// Returns true if the gateway does not read the exchange any more.
    pub(crate) fn is_dropped(&self) -> bool {
        self.0.is_closed()
    }

    fn step(&self, step: ScriptStep) {
        assert!(self.0.send(step).is_ok(), "the gateway does not read the exchange");
    }
}

/// The script of one agent.
#[derive(Default)]
pub(crate) struct ScriptedAgent {
    performed: Mutex<Vec<PerformedOperation>>,
    exchanges: Mutex<VecDeque<UnboundedReceiver<ScriptStep>>>,
    /// Keeps the exchanges open that a test has dropped.
    open: Mutex<Vec<UnboundedSender<ScriptStep>>>,
}

impl ScriptedAgent {
    /// Queues the exchange of the next message.
    pub(crate) fn expect(&self) -> ScriptedExchange {
        let (sender, receiver) = unbounded_channel();
        lock(&self.exchanges).push_back(receiver);
        lock(&self.open).push(sender.clone());
        ScriptedExchange(sender)
    }

    /// Returns the operations so far.
    pub(crate) fn performed(&self) -> Vec<PerformedOperation> {
        lock(&self.performed).clone()
    }

    /// Returns the operations of this name so far.
    pub(crate) fn all(&self, name: &str) -> Vec<PerformedOperation> {
        self.performed().into_iter().filter(|operation| operation.name == name).collect()
    }

    pub(super) async fn run(
        &self,
        operation: AgentOperation,
        sender: &EventSender,
    ) -> Result<(), AgentFailure> {
        let (name, text) = describe(&operation);
        lock(&self.performed).push(PerformedOperation { name, text: text.clone(), at: Instant::now() });
        let send = |event| sender.push(Box::new(event), EventSize::default(), Bearing::default());
        match operation {
            AgentOperation::Say(_) | AgentOperation::Continue(_) => {
                let next = lock(&self.exchanges).pop_front();
                let Some(mut steps) = next else { return std::future::pending().await };
                while let Some(step) = steps.recv().await {
                    match step {
                        ScriptStep::Event(event) => {
                            send(*event);
                            sender.has_room().await;
                        }
                        ScriptStep::Delay(delay) => {
                            sender.set_delay(delay);
                        }
                        ScriptStep::End(result) => return result,
                    }
                }
                Ok(())
            }
            AgentOperation::Await(..) => std::future::pending().await,
            // No test needs an agent that remembers its tasks.
            AgentOperation::Look(_) => Err(AgentFailure::TaskNotFound),
            AgentOperation::Cancel(task) => {
                let status = json!({ "state": "TASK_STATE_CANCELED" });
                send(parsed(&json!({ "task": { "id": task, "status": status } })));
                Ok(())
            }
            AgentOperation::Webhook(..) => Ok(()),
        }
    }
}

impl ResolvedAgent {
    /// Returns this agent, which is not shared yet, with a script that stands in for it.
    fn with_script(mut self, script: Arc<ScriptedAgent>) -> Self {
        Arc::get_mut(&mut self.facts).unwrap().script = Some(script);
        self
    }
}

impl Directory {
    /// Lets a script stand in for an agent with this card. A later call changes the card.
    pub(crate) fn script(&self, name: &str, card: &Value, script: &Arc<ScriptedAgent>) {
        let agent = self.find(name).unwrap();
        let card = AgentCard::parse(card.to_string().as_bytes()).unwrap();
        let known = agent.apply_card(card, None, InterfacePin::default()).unwrap();
        agent.learn(known.with_script(script.clone()));
        agent.looked();
        self.upkeep().notify_changed();
    }
}

fn parsed(event: &Value) -> StreamResponse {
    let response = json!({ "jsonrpc": "2.0", "id": 1, "result": event });
    Dialect::V1.event(response.to_string().as_bytes()).unwrap()
}

fn describe(operation: &AgentOperation) -> (&'static str, String) {
    match operation {
        AgentOperation::Say(message) => ("Say", text_of(message)),
        AgentOperation::Continue(what) => ("Continue", text_of(&what.message)),
        AgentOperation::Await(task, _) => ("Await", task.clone()),
        AgentOperation::Look(task) => ("Look", task.clone()),
        AgentOperation::Cancel(task) => ("Cancel", task.clone()),
        AgentOperation::Webhook(task, _) => ("Webhook", task.clone()),
    }
}

fn text_of(message: &Message) -> String {
    let texts = message.parts.iter().map(|part| match &part.body {
        PartBody::Text(text) => text.to_str().into_owned(),
        other => format!("{other:?}"),
    });
    texts.collect()
}
