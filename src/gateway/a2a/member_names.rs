//! Check of the member names in a client's request: which significant members are present, and
//! which names only resemble one.
//!
//! Some servers match member names in any case (`ID`, `taſkId`), so such a name would have a
//! meaning for the agent and none for the gateway's checks: ids, tenants and URLs would pass
//! unseen. Such a request is rejected. See also `webhook_urls`, and `json_object` for duplicate
//! names.

use super::webhook_urls;
use crate::jsonrpc::{Scan, each_name};

/// Member names, and their folded forms: in one case and without separators.
struct MemberNames {
    names: &'static [&'static str],
    folded: &'static [&'static str],
}

/// Names of the envelope.
const ENVELOPE: MemberNames = MemberNames {
    names: &["jsonrpc", "id", "method", "params"],
    folded: &["jsonrpc", "id", "method", "params"],
};

/// Names in params that the gateway checks or replaces.
const JUDGED: MemberNames = MemberNames {
    names: &[
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
    ],
    folded: &[
        "id",
        "taskid",
        "contextid",
        "sessionid",
        "referencetaskids",
        "message",
        "configuration",
        "pushnotification",
        "pushnotificationconfig",
        "taskpushnotificationconfig",
        "pushnotificationconfigid",
        "url",
        "tenant",
        "pagetoken",
        "metadata",
        "data",
    ],
};

/// Members with free content, which only the agent interprets.
const FREE: [&str; 2] = ["metadata", "data"];

/// Facts about the member names in params, so that absent members need no search.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ParamMembers {
    /// Error for the first name that only resembles a significant one, or for the text before it.
    pub(super) odd: Option<String>,
    /// True if there may be a webhook, or a request about one.
    pub(super) pushes: bool,
    /// True if there may be a tenant.
    pub(super) tenant: bool,
}

impl ParamMembers {
    /// Collects the facts from these params, which have been parsed before.
    pub(super) fn of(params: Option<&str>) -> Self {
        let mut found = Self::default();
        each_name(params.unwrap_or_default(), |name| {
            if JUDGED.is_like(name.as_str()) {
                // The rest is not scanned.
                found = Self { odd: Some(ambiguous_member(name.as_str())), pushes: true, tenant: true };
                return Scan::NoMore;
            }
            if FREE.contains(&name.as_str()) {
                return Scan::Beyond;
            }
            found.record(name.as_str());
            Scan::Within
        });
        found
    }

    fn record(&mut self, name: &str) {
        match name {
            "tenant" => self.tenant = true,
            "url" => self.pushes = true,
            _ if webhook_urls::NAMES.contains(&name) => self.pushes = true,
            _ => {}
        }
    }
}

/// Returns the error for a member name that only resembles one of JSON-RPC.
pub(super) fn ambiguous_envelope_member(name: &str) -> Option<String> {
    ENVELOPE.is_like(name).then(|| ambiguous_member(name))
}

fn ambiguous_member(name: &str) -> String {
    format!("{name:?} is no name of A2A; its case counts").chars().take(100).collect()
}

impl MemberNames {
    /// Returns true if a name resembles one of these, but is none of them.
    fn is_like(&self, name: &str) -> bool {
        // The longest name has 29 letters, of two or three bytes at worst.
        if name.len() > 96 {
            return false;
        }
        if name.bytes().all(|byte| byte.is_ascii() && byte != b'_') {
            // Most names resemble none: those need no second comparison.
            let reads_like = self.folded.iter().any(|known| known.eq_ignore_ascii_case(name));
            return reads_like && !self.names.contains(&name);
        }
        !self.names.contains(&name) && self.folded.contains(&&*folded(name))
    }
}

/// Returns a name in one case, without separators.
fn folded(name: &str) -> String {
    let letters = name.chars().filter(|c| *c != '_');
    letters.flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect()
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
            assert!(ParamMembers::of(Some(json)).odd.is_some(), "{json}");
        }
        let odd = ambiguous_envelope_member("METHOD");
        assert_eq!(odd.as_deref(), Some(r#""METHOD" is no name of A2A; its case counts"#));
        assert!(ambiguous_envelope_member("Params").is_some());
    }

    #[test]
    fn everything_else_is_let_through() {
        for json in [
            r#"{"message":{"role":"ROLE_USER","messageId":"m","parts":[{"text":"ID"},{"url":"http://x"}]}}"#,
            r#"{"message":{"metadata":{"ID":1},"parts":[{"data":{"TASKID":[1.5,null,true,-3]}}]}}"#,
            r#"{"id":"t","historyLength":3,"extension":{"ident":1}}"#,
            r#"{"message":{"task_id":"t","context_id":"c"},"ten":"x"}"#,
        ] {
            assert_eq!(ParamMembers::of(Some(json)).odd, None, "{json}");
        }
        assert_eq!(ambiguous_envelope_member("more"), None);
    }

    #[test]
    fn every_name_is_known_as_it_is_folded() {
        for known in [&ENVELOPE, &JUDGED] {
            assert!(known.names.iter().all(|name| known.folded.contains(&&*folded(name))));
            assert!(known.folded.iter().all(|plain| known.names.iter().any(|name| folded(name) == *plain)));
        }
    }

    #[test]
    fn what_is_not_there_need_not_be_looked_for() {
        for (params, pushes, tenant) in [
            (r#"{"message":{"parts":[{"text":"url pushNotificationConfig tenant"}]}}"#, false, false),
            (r#"{"message":{"metadata":{"url":"x","tenant":1}}}"#, false, false),
            (r#"{"configuration":{},"configuration":{}}"#, false, false),
            (r#"{"configuration":{"pushN\u006ftification\u0043onfig":{}}}"#, true, false),
            (r#"{"taskId":"t","u\u0072l":"http://x"}"#, true, false),
            (r#"{"t\u0065nant":"x"}"#, false, true),
            (r#"{"ID":"t","url":"http://x"}"#, true, true),
        ] {
            let spelling = ParamMembers::of(Some(params));
            assert_eq!((spelling.pushes, spelling.tenant), (pushes, tenant), "{params}");
        }
        assert_eq!(ParamMembers::of(None), ParamMembers::default());
    }
}
