//! A2A operations as metrics labels and as settings of an agent.
//!
//! See also `a2a::translate` for their names in each version.

use crate::a2a::translate::Operation;
use crate::config::AgentMethod;
use crate::telemetry::label::Method as Label;

/// Returns the metrics label of an operation; rules use the same name, that of 1.0.
pub(super) fn label(operation: Operation) -> Label {
    match operation {
        Operation::Send => Label::SendMessage,
        Operation::Stream => Label::SendStreamingMessage,
        Operation::Get => Label::GetTask,
        Operation::List => Label::ListTasks,
        Operation::Cancel => Label::CancelTask,
        Operation::Subscribe => Label::SubscribeToTask,
        Operation::SetPush => Label::CreatePushConfig,
        Operation::GetPush => Label::GetPushConfig,
        Operation::ListPush => Label::ListPushConfigs,
        Operation::DeletePush => Label::DeletePushConfig,
        Operation::ExtendedCard => Label::GetExtendedAgentCard,
    }
}

/// Returns the method of an operation in the settings of an agent.
pub(super) fn agent_method(operation: Operation) -> AgentMethod {
    match operation {
        Operation::Send => AgentMethod::Send,
        Operation::Stream => AgentMethod::Stream,
        Operation::Get => AgentMethod::Get,
        Operation::Cancel => AgentMethod::Cancel,
        Operation::List
        | Operation::Subscribe
        | Operation::SetPush
        | Operation::GetPush
        | Operation::ListPush
        | Operation::DeletePush
        | Operation::ExtendedCard => AgentMethod::Other,
    }
}

/// Returns true if an operation is about webhooks.
pub(super) fn is_push(operation: Operation) -> bool {
    matches!(operation, Operation::SetPush | Operation::GetPush | Operation::ListPush | Operation::DeletePush)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_has_the_name_of_1_0() {
        for operation in Operation::ALL {
            assert_eq!(label(operation).label(), operation.as_str());
        }
    }
}
