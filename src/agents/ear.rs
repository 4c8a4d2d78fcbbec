//! What an answer that is passed on says of the task and the conversation that it is about: they live where it comes from.
//!
//! Only of agents with several endpoints, and only as far as is needed: the events of a stream until both are known, an answer of one
//! piece up to a bound. What is not understood is not remembered; a task can be looked for then (see `seek`). Not here: passing it on
//! (see `pass`).

use std::sync::Arc;

use super::known::Known;
use super::rpc::Form;
use crate::a2a::Event;
use crate::sse::Decoder;

/// Longest answer, or event, that is read for this, in bytes.
const LONGEST: usize = 1 << 20;
/// Most events of a stream that are read for this.
const MOST_EVENTS: usize = 16;

/// Listens to the answer of one endpoint.
pub(super) struct Ear {
    known: Arc<Known>,
    at: usize,
    heard: Heard,
}

/// What of the answer has gone by.
enum Heard {
    Value(Vec<u8>),
    Events(Decoder, usize),
    /// All that is needed, or more than is read.
    Enough,
}

impl Ear {
    /// Listens to an answer of this form, from the beginning.
    pub(super) fn new(known: Arc<Known>, at: usize, form: Form) -> Self {
        let heard = match form {
            Form::Json => Heard::Value(Vec::new()),
            Form::Stream => Heard::Events(Decoder::new(LONGEST), MOST_EVENTS),
        };
        Self { known, at, heard }
    }

    /// Takes in the next bytes.
    pub(super) fn hear(&mut self, bytes: &[u8]) {
        let is_enough = match &mut self.heard {
            Heard::Value(body) if body.len().saturating_add(bytes.len()) <= LONGEST => {
                body.extend_from_slice(bytes);
                false
            }
            Heard::Value(_) | Heard::Enough => true,
            Heard::Events(decoder, left) => {
                let Ok(events) = decoder.push(bytes) else {
                    self.heard = Heard::Enough;
                    return;
                };
                *left = left.saturating_sub(events.len());
                let is_last = *left == 0;
                let told = events.iter().filter(|event| self.known.remembers(self.at, &event.data)).count();
                is_last || told > 0
            }
        };
        if is_enough {
            self.heard = Heard::Enough;
        }
    }

    /// The answer is over.
    pub(super) fn end(&mut self) {
        if let Heard::Value(body) = std::mem::replace(&mut self.heard, Heard::Enough) {
            self.known.remembers(self.at, &body);
        }
    }
}

impl Known {
    /// Remembers where what an answer is about lives. Says whether it names both the task and the conversation, or is all there is.
    fn remembers(&self, at: usize, json: &[u8]) -> bool {
        let Ok(event) = self.interface.event(json) else { return false };
        self.endpoints.hear(at, &event);
        match &event {
            Event::Task(task) => task.context_id.is_some(),
            Event::Message(_) => true,
            Event::Status { task_id, context_id, .. } | Event::Artifact { task_id, context_id, .. } => {
                task_id.is_some() && context_id.is_some()
            }
            Event::Unknown => false,
        }
    }
}
