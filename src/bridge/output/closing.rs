//! The agent's messages of a turn, for agents that put their output only into messages.
//!
//! An agent that completes a task without artifacts and without a final message has sent its output
//! before: in status messages while it worked, or in the history. Microsoft agent-framework sends
//! one status message; Agent Stack sends many, each a piece of one text.

use crate::a2a::{Message, Part, PartBody, Role};

/// Maximum size of the text that is kept of status messages. The newest stay.
const MAX_BYTES: usize = 1 << 20;
/// Maximum number of parts that are kept of status messages. The newest stay.
const MAX_PARTS: usize = 1_000;

/// The messages of one turn, merged and bounded.
#[derive(Debug, Default, Clone)]
pub(super) struct ClosingMessages {
    parts: Vec<Part>,
    bytes: usize,
}

impl ClosingMessages {
    /// Adds a message. Text after text continues it, on a line of its own where both are complete.
    pub(super) fn add(&mut self, message: &Message) {
        for part in message.parts.iter().filter(|part| !part.is_thought()) {
            self.bytes = self.bytes.saturating_add(part.bytes());
            part.clone().append_to(&mut self.parts);
        }
        self.shrink();
    }

    /// Removes everything: a new turn began, or the output is elsewhere.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Returns everything as one message of the agent, or `None` if there is nothing.
    pub(super) fn message(&self) -> Option<Message> {
        (!self.parts.is_empty()).then(|| Message {
            message_id: None,
            role: Role::Agent,
            parts: self.parts.clone(),
            task_id: None,
            context_id: None,
            reference_task_ids: Vec::new(),
            extensions: Vec::new(),
            metadata: None,
        })
    }

    /// Returns the size in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    fn shrink(&mut self) {
        if self.bytes <= MAX_BYTES && self.parts.len() <= MAX_PARTS {
            return;
        }
        let mut room = MAX_BYTES;
        let newest = self.parts.iter().rev().take(MAX_PARTS / 2).take_while(|part| {
            let fits = part.bytes() <= room;
            room = room.saturating_sub(part.bytes());
            fits
        });
        let kept = newest.count();
        let first = self.parts.len().saturating_sub(kept.max(1));
        self.parts.drain(..first);
        if let [Part { body: PartBody::Text(text), .. }] = self.parts.as_mut_slice()
            && text.len() > MAX_BYTES
        {
            // Half, so that not every further piece moves a megabyte.
            let cut = text.len().saturating_sub(MAX_BYTES / 2);
            let cut = (cut..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
            text.drain(..cut);
        } else if self.parts.iter().map(Part::bytes).sum::<usize>() > MAX_BYTES {
            self.parts.clear();
        }
        self.bytes = self.parts.iter().map(Part::bytes).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(texts: &[&str]) -> ClosingMessages {
        let mut closing = ClosingMessages::default();
        for text in texts {
            let mut message = ClosingMessages::default();
            message.parts.push(Part::new(PartBody::Text((*text).to_owned())));
            closing.add(&message.message().unwrap());
        }
        closing
    }

    fn text(closing: &ClosingMessages) -> String {
        closing.message().map(|message| super::super::words(&message)).unwrap_or_default()
    }

    #[test]
    fn pieces_become_one_text() {
        for (pieces, expected) in [
            (vec!["The answer"], "The answer"),
            (vec!["It", " is", " 21", "°", "C", "."], "It is 21°C."),
            (vec!["Hel", "lo, ", "Java", "Script"], "Hello, JavaScript"),
            (vec!["Looking it up…", "It is 21 °C."], "Looking it up…\nIt is 21 °C."),
            (vec![], ""),
        ] {
            assert_eq!(text(&said(&pieces)), expected);
        }
    }

    #[test]
    fn newest_bytes_stay_within_bound() {
        let piece = " word".repeat(10_000);
        let mut closing = ClosingMessages::default();
        for _ in 0..100 {
            let one = said(&[&piece]);
            closing.add(&one.message().unwrap());
            assert!(closing.bytes() <= MAX_BYTES + piece.len(), "{}", closing.bytes());
        }
        let last = said(&[" the end"]);
        closing.add(&last.message().unwrap());
        assert!(text(&closing).ends_with("word the end") && text(&closing).len() >= MAX_BYTES / 4);
        closing.clear();
        assert_eq!((closing.bytes(), closing.message().is_none()), (0, true));
    }
}
