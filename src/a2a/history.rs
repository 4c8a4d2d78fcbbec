//! The messages of a task so far, kept as the agent wrote them.
//!
//! A history can be most of an answer and is hardly ever needed, so it is taken apart only for whoever asks.
//! Not here: whether the answer around it is sound JSON (the reader sees to that).

use serde_json::value::RawValue;

use super::decode::MessageIn;
use super::lenient::{LenientList, LenientObject};
use super::model::{Message, Role};

/// The messages of a task so far, as far as the agent gives them.
#[derive(Debug, Clone, Default)]
pub struct TaskHistory(Option<Box<RawValue>>);

impl TaskHistory {
    /// Keeps what an agent gave; anything but a list reads as no message.
    pub(super) fn new(raw: Option<Box<RawValue>>) -> Self {
        Self(raw.filter(|raw| raw.get().starts_with('[')))
    }

    /// The messages, oldest first. Reads all of them each time.
    pub fn messages(&self) -> Vec<Message> {
        let list = self.0.as_ref().and_then(|raw| serde_json::from_str(raw.get()).ok());
        let list: LenientList<LenientObject<MessageIn>> = list.unwrap_or_default();
        list.items().filter_map(|message| message.0).map(Message::from).collect()
    }

    /// The messages as the agent wrote them, to be written again.
    pub(super) fn raw(&self) -> Option<&RawValue> {
        self.0.as_deref()
    }

    /// How long it is, in bytes.
    pub fn bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |raw| raw.get().len())
    }

    /// What the agent said last, if it said anything. Reads all messages each time.
    pub fn last_agent_message(&self) -> Option<Message> {
        self.messages().into_iter().rfind(|message| message.role == Role::Agent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(json: &str) -> TaskHistory {
        TaskHistory::new(Some(RawValue::from_string(json.to_owned()).unwrap()))
    }

    #[test]
    fn only_what_the_agent_said_last_counts() {
        let mut said = history(
            r#"[{"role":"agent","messageId":"1"},{"role":"ROLE_AGENT","messageId":"2"},7,{"role":"user"}]"#,
        );
        assert_eq!(said.messages().len(), 3);
        assert_eq!(said.last_agent_message().and_then(|message| message.message_id).as_deref(), Some("2"));
        said = history(r#"[{"role":"user","messageId":"1"}]"#);
        assert!(said.last_agent_message().is_none());
    }

    #[test]
    fn anything_but_a_list_is_no_message() {
        for json in ["null", "{}", "7", r#""text""#, "[]", r#"[null]"#, r#"[{"messageId":"\ud800"}]"#] {
            assert_eq!(history(json).messages().len(), 0, "{json}");
        }
        assert_eq!(TaskHistory::default().messages().len(), 0);
    }
}
