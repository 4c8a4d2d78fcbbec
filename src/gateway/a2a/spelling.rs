//! Members whose names only look like those of A2A.
//!
//! Some servers take a member by its name in any letters (`ID`, `taſkId`), so that it would mean something to them and nothing to who
//! judges the request: ids, tenants and addresses would pass unseen. Such a request is refused. Not here: what the members mean
//! (see `a2a::relay`, `hooks`), names that come twice (see `members`).

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::jsonrpc::Text;

/// The names of the envelope.
const ENVELOPE: [&str; 4] = ["jsonrpc", "id", "method", "params"];

/// The names in params by which something is judged or replaced.
const JUDGED: [&str; 23] = [
    "id",
    "taskId",
    "task_id",
    "contextId",
    "context_id",
    "sessionId",
    "referenceTaskIds",
    "reference_task_ids",
    "message",
    "configuration",
    "pushNotification",
    "pushNotificationConfig",
    "push_notification_config",
    "taskPushNotificationConfig",
    "task_push_notification_config",
    "pushNotificationConfigId",
    "push_notification_config_id",
    "url",
    "tenant",
    "pageToken",
    "page_token",
    "metadata",
    "data",
];

/// What is in these is nobody's but the agent's.
const FREE: [&str; 2] = ["metadata", "data"];

/// The first name of the envelope of a request that only looks like one of JSON-RPC.
pub(super) fn odd_in_envelope(json: &str) -> Option<String> {
    odd(json, Walk { names: &ENVELOPE, deep: false })
}

/// The first name in params that only looks like one that counts.
pub(super) fn odd_in_params(json: &str) -> Option<String> {
    odd(json, Walk { names: &JUDGED, deep: true })
}

/// Its depth is bounded by whoever has read the request before.
fn odd(json: &str, walk: Walk) -> Option<String> {
    walk.deserialize(&mut serde_json::Deserializer::from_str(json)).err().map(|error| {
        let text = error.to_string();
        text.split(" at line ").next().unwrap_or_default().chars().take(100).collect()
    })
}

#[derive(Clone, Copy)]
struct Walk {
    names: &'static [&'static str],
    /// Whether what the members hold is looked through too.
    deep: bool,
}

impl Walk {
    /// Whether a name reads like another one, but is none of them.
    fn is_odd(self, name: &str) -> bool {
        // The longest that counts has 29 letters, of two bytes or three at worst.
        name.len() <= 96
            && !self.names.contains(&name)
            && self.names.iter().any(|known| folded(known).eq(folded(name)))
    }
}

/// A name in letters of one case, without what joins words.
fn folded(name: &str) -> impl Iterator<Item = char> {
    name.chars().filter(|c| *c != '_').flat_map(char::to_uppercase).flat_map(char::to_lowercase)
}

impl<'de> DeserializeSeed<'de> for Walk {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<(), A::Error> {
        while let Some(Text(name)) = object.next_key::<Text<'de>>()? {
            if self.is_odd(&name) {
                return Err(A::Error::custom(format_args!("{name:?} is no name of A2A; its case counts")));
            }
            if self.deep && !FREE.contains(&&*name) {
                object.next_value_seed(self)?;
            } else {
                object.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element_seed(self)?.is_some() {}
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_looks_like_a_name_is_found_wherever_it_stands() {
        for json in [
            r#"{"ID":"t"}"#,
            r#"{"id":"mine","Id":"theirs"}"#,
            r#"{"TaskID":"t"}"#,
            r#"{"ta\u017fkId":"t"}"#,
            r#"{"task__id":"t"}"#,
            r#"{"Message":{}}"#,
            r#"{"message":{"CONTEXTID":"c"}}"#,
            r#"{"message":{"reference_taskIds":["t"]}}"#,
            r#"{"tenant":"x","Tenant":"other"}"#,
            r#"{"configuration":{"pushNotificationConfig":{"URL":"http://10.0.0.1/"}}}"#,
            r#"{"x":[{"Configuration":{}}]}"#,
        ] {
            assert!(odd_in_params(json).is_some(), "{json}");
        }
        let odd = odd_in_envelope(r#"{"jsonrpc":"2.0","id":1,"method":"GetTask","METHOD":"CancelTask"}"#);
        assert_eq!(odd.as_deref(), Some(r#""METHOD" is no name of A2A; its case counts"#));
        assert!(odd_in_envelope(r#"{"id":1,"Params":{}}"#).is_some());
    }

    #[test]
    fn everything_else_is_let_through() {
        for json in [
            r#"{"message":{"role":"ROLE_USER","messageId":"m","parts":[{"text":"ID"},{"url":"http://x"}]}}"#,
            r#"{"message":{"metadata":{"ID":1},"parts":[{"data":{"TASKID":[1.5,null,true,-3]}}]}}"#,
            r#"{"id":"t","historyLength":3,"extension":{"ident":1}}"#,
            r#"{"message":{"task_id":"t","context_id":"c"},"ten":"x"}"#,
        ] {
            assert_eq!(odd_in_params(json), None, "{json}");
        }
        assert_eq!(odd_in_envelope(r#"{"jsonrpc":"2.0","id":1,"method":"x","params":{"ID":1}}"#), None);
    }
}
