//! Where an A2A client wants what is new of a task to be pushed: found in its params, however they are spelled.
//!
//! Not here: whether the gateway lets an agent push there (see `calling`).

use super::members::Members;

/// A registration within other params, by each of its names.
const NAMES: [&str; 5] = [
    "pushNotification",
    "pushNotificationConfig",
    "push_notification_config",
    "taskPushNotificationConfig",
    "task_push_notification_config",
];

/// The places to push to in params of a send or of a registration. What cannot be read is none: the agent refuses it.
pub(super) fn hooks(params: &str) -> Vec<String> {
    let Some(params) = Members::read(params) else { return Vec::new() };
    let within = |members: &Members| -> Vec<Members> {
        NAMES.iter().filter_map(|name| Members::read(members.find(name)?.get())).collect()
    };
    let configuration = params.find("configuration").and_then(|inner| Members::read(inner.get()));
    let mut all: Vec<Members> = configuration.iter().flat_map(within).collect();
    all.extend(within(&params));
    all.push(params);
    all.iter().filter_map(|members| members.text("url")).collect()
}

/// Whether a message comes with a place to push to. What cannot be read may have one.
pub(super) fn has_push(params: &str) -> bool {
    let names_one = |members: &Members| {
        NAMES.iter().any(|name| members.find(name).is_some_and(|value| value.get() != "null"))
    };
    let Some(members) = Members::read(params) else { return true };
    let within = match members.find("configuration") {
        None => false,
        Some(inner) if inner.get() == "null" => false,
        Some(inner) => Members::read(inner.get()).is_none_or(|inner| names_one(&inner)),
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
            (r#"{"configuration":{}}"#, false),
            (r#"{"configuration":{"taskPushNotificationConfig":null}}"#, false),
            (r#"{"configuration":{"taskPushNotificationConfig":{"url":"http://x"}}}"#, true),
            (r#"{"configuration":{"push_notification_config":{}}}"#, true),
            (r#"{"configuration":{"pushNotificationConfig":null,"pushNotificationConfig":{}}}"#, true),
            (r#"{"configuration":{},"configuration":{}}"#, true),
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
            assert_eq!(hooks(params), ["http://x"], "{params}");
        }
        assert!(hooks(r#"{"id":"t"}"#).is_empty());
    }
}
