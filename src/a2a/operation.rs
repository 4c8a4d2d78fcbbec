//! The operations of A2A, and their names in each version.
//!
//! Their routes in HTTP+JSON are in `route`; `translate` reads their parameters.

use super::dialect::Dialect;

/// An operation, independent of its name in a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Send a message, and wait for the result.
    Send,
    /// Send a message, and receive events.
    Stream,
    /// Get a task.
    Get,
    /// List tasks.
    List,
    /// Cancel a task.
    Cancel,
    /// Subscribe to a task.
    Subscribe,
    /// Register a webhook for events of a task.
    SetPush,
    /// Get such a registration.
    GetPush,
    /// List all of them.
    ListPush,
    /// Delete one.
    DeletePush,
    /// Get the card for authenticated clients.
    ExtendedCard,
}

/// The reason why a method is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OperationError {
    /// The version is not supported, or does not have this method: -32009, as in the SDKs of 1.0.
    #[error("this A2A version is not supported for this method")]
    Version,
    /// The version has no such method: -32601, as in servers of both versions.
    #[error("this A2A version has no such method")]
    Method,
}

/// The dialect that a version implies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DialectHint {
    /// 0.1.
    Oldest,
    /// 0.2, 0.3, or none given.
    Old,
    /// 1.x.
    New,
}

impl Operation {
    /// Every operation.
    pub const ALL: [Self; 11] = [
        Self::Send,
        Self::Stream,
        Self::Get,
        Self::List,
        Self::Cancel,
        Self::Subscribe,
        Self::SetPush,
        Self::GetPush,
        Self::ListPush,
        Self::DeletePush,
        Self::ExtendedCard,
    ];

    /// Returns the operation of a method and its dialect; nothing if no version has the method.
    ///
    /// `version` is the value of `A2A-Version`. If absent, it is 0.3, as specified.
    ///
    /// # Errors
    ///
    /// [`OperationError`] if method and version do not fit together.
    pub fn of(method: &str, version: Option<&str>) -> Result<Option<(Dialect, Self)>, OperationError> {
        let named = |dialect| Self::ALL.into_iter().find(|operation| operation.name(dialect) == Some(method));
        let [oldest, old, new] = [Dialect::V0_1, Dialect::V0_3, Dialect::V1].map(named);
        if oldest.or(old).or(new).is_none() {
            return Ok(None);
        }
        // Some methods are the same in 0.1 and 0.3: then it is 0.3, unless the version says
        // otherwise.
        let (first, second) =
            match spoken(version.unwrap_or_default().trim()).ok_or(OperationError::Version)? {
                DialectHint::Oldest => ((Dialect::V0_1, oldest), (Dialect::V0_3, old)),
                DialectHint::Old => ((Dialect::V0_3, old), (Dialect::V0_1, oldest)),
                DialectHint::New => {
                    return new.map(|operation| Some((Dialect::V1, operation))).ok_or(OperationError::Method);
                }
            };
        let known = |(dialect, found): (Dialect, Option<Self>)| found.map(|operation| (dialect, operation));
        known(first).or_else(|| known(second)).map(Some).ok_or(OperationError::Version)
    }

    /// Returns the name in a dialect; nothing if the dialect does not have the operation.
    pub fn name(self, dialect: Dialect) -> Option<&'static str> {
        match dialect {
            Dialect::V0_1 => self.oldest(),
            Dialect::V0_3 => self.v0_name(),
            Dialect::V1 => Some(self.as_str()),
        }
    }

    /// Returns the name in A2A 1.0, which has all operations.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Send => "SendMessage",
            Self::Stream => "SendStreamingMessage",
            Self::Get => "GetTask",
            Self::List => "ListTasks",
            Self::Cancel => "CancelTask",
            Self::Subscribe => "SubscribeToTask",
            Self::SetPush => "CreateTaskPushNotificationConfig",
            Self::GetPush => "GetTaskPushNotificationConfig",
            Self::ListPush => "ListTaskPushNotificationConfigs",
            Self::DeletePush => "DeleteTaskPushNotificationConfig",
            Self::ExtendedCard => "GetExtendedAgentCard",
        }
    }

    fn oldest(self) -> Option<&'static str> {
        match self {
            Self::Send => Some("tasks/send"),
            Self::Stream => Some("tasks/sendSubscribe"),
            Self::Get => Some("tasks/get"),
            Self::Cancel => Some("tasks/cancel"),
            Self::Subscribe => Some("tasks/resubscribe"),
            Self::SetPush => Some("tasks/pushNotification/set"),
            Self::GetPush => Some("tasks/pushNotification/get"),
            Self::List | Self::ListPush | Self::DeletePush | Self::ExtendedCard => None,
        }
    }

    fn v0_name(self) -> Option<&'static str> {
        match self {
            Self::Send => Some("message/send"),
            Self::Stream => Some("message/stream"),
            Self::Get => Some("tasks/get"),
            Self::List => None,
            Self::Cancel => Some("tasks/cancel"),
            Self::Subscribe => Some("tasks/resubscribe"),
            Self::SetPush => Some("tasks/pushNotificationConfig/set"),
            Self::GetPush => Some("tasks/pushNotificationConfig/get"),
            Self::ListPush => Some("tasks/pushNotificationConfig/list"),
            Self::DeletePush => Some("tasks/pushNotificationConfig/delete"),
            Self::ExtendedCard => Some("agent/getAuthenticatedExtendedCard"),
        }
    }

    /// Returns true if the response is a stream of events.
    pub fn is_stream(self) -> bool {
        matches!(self, Self::Stream | Self::Subscribe)
    }

    /// Returns true if it sends a message to the agent, and so may start a task.
    pub(crate) fn sends_message(self) -> bool {
        matches!(self, Self::Send | Self::Stream)
    }
}

/// Classifies a version. Only major and minor count; of 1.x every minor is accepted, as in the
/// Python SDK.
fn spoken(version: &str) -> Option<DialectHint> {
    let mut numbers = version.split('.');
    match (numbers.next(), numbers.next()) {
        (Some(""), None) | (Some("0"), Some("2" | "3")) => Some(DialectHint::Old),
        (Some("0"), Some("1")) => Some(DialectHint::Oldest),
        (Some("1"), Some(minor)) if minor.parse::<u8>().is_ok() => Some(DialectHint::New),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn method_and_version_are_judged_together() {
        use Dialect::{V0_1, V0_3, V1};
        for (method, version, expected) in [
            ("message/send", None, Ok(Some((V0_3, Operation::Send)))),
            ("message/send", Some(""), Ok(Some((V0_3, Operation::Send)))),
            ("message/stream", Some("0.3"), Ok(Some((V0_3, Operation::Stream)))),
            ("tasks/get", Some(" 0.2.5 "), Ok(Some((V0_3, Operation::Get)))),
            ("SendMessage", Some("1.0"), Ok(Some((V1, Operation::Send)))),
            ("ListTasks", Some("1.2"), Ok(Some((V1, Operation::List)))),
            ("tasks/send", None, Ok(Some((V0_1, Operation::Send)))),
            ("tasks/send", Some("0.3"), Ok(Some((V0_1, Operation::Send)))),
            ("tasks/get", Some("0.1"), Ok(Some((V0_1, Operation::Get)))),
            ("message/send", Some("0.1"), Ok(Some((V0_3, Operation::Send)))),
            ("tasks/send", Some("1.0"), Err(OperationError::Method)),
            ("SendMessage", None, Err(OperationError::Version)),
            ("SendMessage", Some("0.3"), Err(OperationError::Version)),
            ("SendMessage", Some("2.0"), Err(OperationError::Version)),
            ("SendMessage", Some("1"), Err(OperationError::Version)),
            ("message/send", Some("2.0"), Err(OperationError::Version)),
            ("message/send", Some("1.0"), Err(OperationError::Method)),
            ("tasks/get", Some("1.0"), Err(OperationError::Method)),
            ("acme/custom", Some("1.0"), Ok(None)),
            ("acme/custom", Some("9"), Ok(None)),
            ("", None, Ok(None)),
        ] {
            assert_eq!(Operation::of(method, version), expected, "{method} {version:?}");
        }
    }

    #[test]
    fn every_name_leads_back_to_its_operation() {
        for (dialect, version) in
            [(Dialect::V0_1, Some("0.1")), (Dialect::V0_3, None), (Dialect::V1, Some("1.0"))]
        {
            for operation in Operation::ALL {
                let Some(name) = operation.name(dialect) else { continue };
                assert_eq!(Operation::of(name, version), Ok(Some((dialect, operation))), "{name}");
            }
        }
    }
}
