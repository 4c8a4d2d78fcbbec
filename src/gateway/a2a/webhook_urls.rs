//! Webhook URLs in the params of an A2A client, in the spellings of all versions.
//!
//! See also `proxy` for the check of the URLs.

use crate::gateway::json_object::RawObject;

/// Names of the member that holds a nested registration.
pub(super) const NAMES: [&str; 5] = [
    "pushNotification",
    "pushNotificationConfig",
    "push_notification_config",
    "taskPushNotificationConfig",
    "task_push_notification_config",
];

/// Returns the webhook URLs in params of a send or of a registration; `None` if they are not
/// readable, as with duplicate members, of which the agent might read another one.
pub(super) fn webhook_urls(params: &str) -> Option<Vec<String>> {
    let params = RawObject::read(params)?;
    let mut all = Vec::new();
    if let Some(configuration) = inner(&params, "configuration") {
        within(&configuration?, &mut all)?;
    }
    within(&params, &mut all)?;
    all.push(params);
    let urls = all.iter().filter_map(|members| members.find("url"));
    urls.map(|url| serde_json::from_str(url.get()).ok()).collect()
}

/// Collects the nested registrations.
fn within(members: &RawObject, all: &mut Vec<RawObject>) -> Option<()> {
    for found in NAMES.iter().filter_map(|name| inner(members, name)) {
        all.push(found?);
    }
    Some(())
}

/// Returns the object in a member that is not null; `Some(None)` if it is not readable.
fn inner(members: &RawObject, name: &str) -> Option<Option<RawObject>> {
    let value = members.find(name).filter(|value| value.get() != "null")?;
    Some(RawObject::read(value.get()))
}

/// Returns true if a message comes with a webhook, or might: an unreadable one counts.
pub(super) fn has_push(params: &str) -> bool {
    let names_one = |members: &RawObject| {
        NAMES.iter().any(|name| members.find(name).is_some_and(|value| value.get() != "null"))
    };
    let Some(members) = RawObject::read(params) else { return true };
    let within = match members.find("configuration") {
        None => false,
        Some(inner) if inner.get() == "null" => false,
        Some(inner) => RawObject::read(inner.get()).is_none_or(|inner| names_one(&inner)),
    };
    within || names_one(&members)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_to_push_to_is_found_however_it_is_spelled() {
        for (params, found) in [
            (r#"{"message":{}}"#, false),
            (r#"{"configuration":{"pushN\u006ftification\u0043onfig":{"url":"http://x"}}}"#, true),
            (r#"{"configuration":{}}"#, false),
            (r#"{"configuration":{"taskPushNotificationConfig":null}}"#, false),
            (r#"{"configuration":{"taskPushNotificationConfig":{"url":"http://x"}}}"#, true),
            (r#"{"configuration":{"push_notification_config":{}}}"#, true),
            (r#"{"configuration":{"pushNotificationConfig":null,"pushNotificationConfig":{}}}"#, true),
            (r#"{"configuration":{},"configuration":{}}"#, true),
            (r#"{"configuration":{},"configuration":{"url":"http://x"}}"#, true),
            (r#"{"id":"t","message":{},"pushNotification":{"url":"http://x"}}"#, true),
        ] {
            assert_eq!(has_push(params), found, "{params}");
        }
    }

    #[test]
    fn every_version_says_elsewhere_where_to_push() {
        for params in [
            r#"{"taskId":"t","url":"http://x"}"#,
            r#"{"id":"t","message":{},"pushNotification":{"url":"http://x"}}"#,
            r#"{"taskId":"t","pushNotificationConfig":{"url":"http://x"}}"#,
            r#"{"message":{},"configuration":{"taskPushNotificationConfig":{"url":"http://x"}}}"#,
            r#"{"message":{},"configuration":{"pushNotificationConfig":{"u\u0072l":"http://x"}}}"#,
        ] {
            assert_eq!(webhook_urls(params).unwrap(), ["http://x"], "{params}");
        }
        assert!(webhook_urls(r#"{"id":"t","pushNotificationConfig":null}"#).unwrap().is_empty());
    }

    #[test]
    fn two_places_in_one_are_none_that_could_be_judged() {
        for params in [
            r#"{"message":{},"z":1,"z":2,"configuration":{"pushNotificationConfig":{"url":"http://10.0.0.1/"}}}"#,
            r#"{"taskId":"t","pushNotificationConfig":{"url":"https://ok/","url":"http://10.0.0.1/"}}"#,
            r#"{"taskId":"t","pushNotificationConfig":{"url":["http://10.0.0.1/"]}}"#,
            r#"{"taskId":"t","pushNotificationConfig":"http://10.0.0.1/"}"#,
            r#"{"message":{},"configuration":[{"url":"http://10.0.0.1/"}]}"#,
        ] {
            assert_eq!(webhook_urls(params), None, "{params}");
        }
    }
}
