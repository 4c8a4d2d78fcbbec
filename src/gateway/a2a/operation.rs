//! What the operations of A2A are to the rest of the gateway: how they are counted, and what settings apply to them.
//!
//! Not here: their names in each version (see `a2a::relay`), carrying them out.

use crate::a2a::translate::Operation;
use crate::config::AgentMethod;
use crate::telemetry::label::Method as Label;

/// How an operation is counted; rules call it by the same name, that of 1.0.
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

/// What an operation is to the settings of an agent.
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

/// Whether an operation is about where an agent pushes.
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
