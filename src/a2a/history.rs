//! The messages of a task so far, exactly as the agent wrote them.
//!
//! A history can be most of a response and is hardly ever needed, so it is parsed only on demand.
//! The reader checks that the response around it is valid JSON.

use serde_json::value::RawValue;

use super::decode::MessageIn;
use super::lenient::{LenientList, LenientObject};
use super::model::{Message, Role};

/// The messages of a task so far, as far as the agent sends them.
#[derive(Debug, Clone, Default)]
pub struct TaskHistory(Option<Box<RawValue>>);

impl TaskHistory {
    /// Keeps the agent's value; anything but a list is read as an empty one.
    pub(super) fn new(raw: Option<Box<RawValue>>) -> Self {
        Self(raw.filter(|raw| raw.get().starts_with('[')))
    }

    /// Returns the messages, oldest first. Parses all of them on each call.
    pub fn messages(&self) -> Vec<Message> {
        let list = self.0.as_ref().and_then(|raw| serde_json::from_str(raw.get()).ok());
        let list: LenientList<LenientObject<MessageIn>> = list.unwrap_or_default();
        list.items().filter_map(|message| message.0).map(Message::from).collect()
    }

    /// Returns the messages as the agent wrote them, to be encoded again.
    pub(super) fn raw(&self) -> Option<&RawValue> {
        self.0.as_deref()
    }

    /// Returns the length in bytes.
    pub fn bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |raw| raw.get().len())
    }

    /// Returns the agent's last message, if there is one. Parses all messages on each call.
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
