//! Detection of a client's A2A version: from its method and `A2A-Version`, and if both are
//! ambiguous, from the task id.
//!
//! 0.1 and 0.2/0.3 share three method names (`tasks/get`, `tasks/cancel`, `tasks/resubscribe`), and
//! their clients send no version. See also `a2a::translate` for the method names.

use super::error::A2aError;
use crate::a2a::Dialect;
use crate::a2a::translate::{IdKind, Operation, OperationError, splice_params};
use crate::fault::Fault;

/// Parts of a request that show its version.
pub(super) struct VersionHints<'a> {
    pub(super) method: &'a str,
    /// `A2A-Version`.
    pub(super) version: Option<&'a str>,
    pub(super) params: Option<&'a str>,
}

/// Dialect of the agent that the request is for.
#[derive(Debug, Clone, Copy)]
pub(super) struct AgentDialect {
    pub(super) dialect: Dialect,
    /// True if clients of other versions are served.
    pub(super) translates: bool,
}

/// Returns the client's dialect and the operation; `None` for a method of an extension. `is_oldest`
/// returns true if a client of 0.1 made this task id.
///
/// # Errors
///
/// [`A2aError`] if version and method do not match, or the client's version is not served here.
pub(super) fn detect(
    words: &VersionHints<'_>,
    agent: AgentDialect,
    is_oldest: impl FnOnce(&str) -> bool,
) -> Result<Option<(Dialect, Operation)>, A2aError> {
    let unknown = || A2aError::Fault(Fault::UnknownMethod(words.method.chars().take(100).collect()));
    let (client, operation) = match Operation::of(words.method, words.version) {
        Ok(None) => return Ok(None),
        Ok(Some(found)) => found,
        Err(OperationError::Method) => return Err(unknown()),
        Err(OperationError::Version) => return Err(A2aError::Version),
    };
    let is_agents_own = operation.name(agent.dialect) == Some(words.method);
    if !agent.translates {
        return if is_agents_own { Ok(Some((agent.dialect, operation))) } else { Err(unknown()) };
    }
    let says_version = words.version.is_some_and(|version| !version.trim().is_empty());
    if says_version || !is_ambiguous(client, operation) {
        return Ok(Some((client, operation)));
    }
    let task = words.params.and_then(|params| task_of(params, (client, operation)));
    let is_oldest = task.is_some_and(|task| is_oldest(&task));
    Ok(Some((if is_oldest { Dialect::V0_1 } else { Dialect::V0_3 }, operation)))
}

/// Returns the dialect for errors to a client that cannot be served: from its method, its headers,
/// or else that of the agent.
pub(super) fn default_version(method: Option<&str>, version: Option<&str>, agent: Dialect) -> Dialect {
    let is_of = |dialect| {
        let name = |operation: &Operation| operation.name(dialect) == method;
        method.is_some() && Operation::ALL.iter().any(name)
    };
    match version.map(str::trim) {
        _ if is_of(Dialect::V1) => Dialect::V1,
        Some(version) if version.starts_with("1.") => Dialect::V1,
        Some(version) if version.starts_with("0.1") => Dialect::V0_1,
        _ if is_of(Dialect::V0_3) => Dialect::V0_3,
        _ if is_of(Dialect::V0_1) => Dialect::V0_1,
        None | Some("") => agent,
        Some(_) => Dialect::V0_3,
    }
}

fn is_ambiguous(client: Dialect, operation: Operation) -> bool {
    client != Dialect::V1 && operation.name(Dialect::V0_1) == operation.name(Dialect::V0_3)
}

/// Returns the task that params are about.
pub(super) fn task_of(params: &str, of: (Dialect, Operation)) -> Option<String> {
    let mut task = None;
    let walked = splice_params(params, of.0, of.1, |kind, id| {
        if kind == IdKind::Task {
            task = Some(id.to_owned());
        }
        Ok::<_, ()>(None)
    });
    // Malformed params are rejected later.
    task.filter(|_| walked.is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use Dialect::{V0_1, V0_3, V1};

    fn of(
        method: &str,
        version: Option<&str>,
        agent: (Dialect, bool),
    ) -> Result<Option<(Dialect, Operation)>, A2aError> {
        let params = Some(r#"{"id":"mine"}"#);
        let agent = AgentDialect { dialect: agent.0, translates: agent.1 };
        detect(&VersionHints { method, version, params }, agent, |task| task == "mine")
    }

    #[test]
    fn a_client_is_known_by_its_words() {
        for (method, version, client) in [
            ("message/send", None, V0_3),
            ("tasks/send", None, V0_1),
            ("SendMessage", Some("1.0"), V1),
            ("tasks/get", Some("0.3"), V0_3),
            ("tasks/get", Some("0.1"), V0_1),
            // By the task.
            ("tasks/get", None, V0_1),
            ("tasks/resubscribe", Some(""), V0_1),
        ] {
            for agent in [V0_1, V0_3, V1] {
                let found = of(method, version, (agent, true)).unwrap().unwrap();
                assert_eq!(found.0, client, "{method} {version:?} {agent:?}");
            }
        }
        let words = VersionHints { method: "tasks/get", version: None, params: Some(r#"{"id":"other"}"#) };
        let agent = AgentDialect { dialect: V0_1, translates: true };
        assert_eq!(detect(&words, agent, |task| task == "mine"), Ok(Some((V0_3, Operation::Get))));
    }

    #[test]
    fn where_nothing_is_translated_only_the_agents_own_words_are_taken() {
        for (method, version, agent, is_taken) in [
            ("message/send", None, V0_3, true),
            ("message/send", None, V1, false),
            ("tasks/send", None, V0_3, false),
            ("tasks/get", None, V0_1, true),
            ("tasks/get", None, V0_3, true),
            ("SendMessage", Some("1.0"), V0_3, false),
            ("acme/tune", None, V1, true),
        ] {
            assert_eq!(of(method, version, (agent, false)).is_ok(), is_taken, "{method} {agent:?}");
        }
        assert_eq!(of("acme/tune", Some("1.0"), (V1, true)), Ok(None));
        assert_eq!(of("SendMessage", None, (V1, true)), Err(A2aError::Version));
        assert!(matches!(of("message/send", Some("1.0"), (V0_3, true)), Err(A2aError::Fault(_))));
    }

    #[test]
    fn an_error_is_written_as_the_client_s_version_has_it() {
        for (method, version, agent, client) in [
            (None, None, V1, V1),
            (None, None, V0_1, V0_1),
            (None, Some("1.0"), V0_3, V1),
            (None, Some("0.3"), V1, V0_3),
            (None, Some("9"), V1, V0_3),
            (Some("SendMessage"), None, V0_3, V1),
            (Some("SendMessage"), Some("99.0"), V0_3, V1),
            (Some("message/send"), None, V1, V0_3),
            (Some("message/send"), Some("1.0"), V0_3, V1),
            (Some("tasks/send"), None, V1, V0_1),
            (Some("acme/tune"), None, V1, V1),
        ] {
            assert_eq!(default_version(method, version, agent), client, "{method:?} {version:?}");
        }
    }
}
