//! The methods that a client may call, and the eras that have them.

use super::version::Era;

/// An MCP method that the gateway serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Method {
    /// `initialize` (legacy).
    Initialize,
    /// `ping` (legacy).
    Ping,
    /// `server/discover` (modern).
    Discover,
    /// `tools/list`.
    ToolsList,
    /// `tools/call`.
    ToolsCall,
    /// `resources/list`.
    ResourcesList,
    /// `resources/templates/list`.
    ResourceTemplatesList,
    /// `resources/read`.
    ResourcesRead,
    /// `resources/subscribe` (legacy).
    ResourcesSubscribe,
    /// `resources/unsubscribe` (legacy).
    ResourcesUnsubscribe,
    /// `completion/complete`.
    Complete,
    /// `prompts/list`: always empty, for clients that call it although no prompts are declared.
    PromptsList,
    /// `logging/setLevel` (legacy).
    SetLevel,
    /// `subscriptions/listen` (modern).
    Listen,
    /// `tasks/get`: core (2025-11-25) and extension.
    TasksGet,
    /// `tasks/cancel`: core and extension.
    TasksCancel,
    /// `tasks/update`: extension.
    TasksUpdate,
    /// `tasks/result`: core.
    TasksResult,
    /// `tasks/list`: core.
    TasksList,
}

impl Method {
    /// Every method.
    pub const ALL: [Self; 19] = [
        Self::Initialize,
        Self::Ping,
        Self::Discover,
        Self::ToolsList,
        Self::ToolsCall,
        Self::ResourcesList,
        Self::ResourceTemplatesList,
        Self::ResourcesRead,
        Self::ResourcesSubscribe,
        Self::ResourcesUnsubscribe,
        Self::Complete,
        Self::PromptsList,
        Self::SetLevel,
        Self::Listen,
        Self::TasksGet,
        Self::TasksCancel,
        Self::TasksUpdate,
        Self::TasksResult,
        Self::TasksList,
    ];

    /// Returns the method's name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Initialize => "initialize",
            Self::Ping => "ping",
            Self::Discover => "server/discover",
            Self::ToolsList => "tools/list",
            Self::ToolsCall => "tools/call",
            Self::ResourcesList => "resources/list",
            Self::ResourceTemplatesList => "resources/templates/list",
            Self::ResourcesRead => "resources/read",
            Self::ResourcesSubscribe => "resources/subscribe",
            Self::ResourcesUnsubscribe => "resources/unsubscribe",
            Self::Complete => "completion/complete",
            Self::PromptsList => "prompts/list",
            Self::SetLevel => "logging/setLevel",
            Self::Listen => "subscriptions/listen",
            Self::TasksGet => "tasks/get",
            Self::TasksCancel => "tasks/cancel",
            Self::TasksUpdate => "tasks/update",
            Self::TasksResult => "tasks/result",
            Self::TasksList => "tasks/list",
        }
    }

    /// Returns the method with this name in this era.
    pub fn named(name: &str, era: Era) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.as_str() == name && method.is_of(era))
    }

    /// Returns true if the method exists in this era.
    fn is_of(self, era: Era) -> bool {
        match self {
            Self::Initialize
            | Self::Ping
            | Self::SetLevel
            | Self::ResourcesSubscribe
            | Self::ResourcesUnsubscribe
            | Self::TasksResult
            | Self::TasksList => era == Era::Legacy,
            Self::Discover | Self::Listen | Self::TasksUpdate => era == Era::Modern,
            Self::ToolsList
            | Self::ToolsCall
            | Self::ResourcesList
            | Self::ResourceTemplatesList
            | Self::ResourcesRead
            | Self::Complete
            | Self::PromptsList
            | Self::TasksGet
            | Self::TasksCancel => true,
        }
    }
}

/// The cancellation of a request, of either side: the only notification of a client that the
/// gateway acts on.
pub const CANCELLED: &str = "notifications/cancelled";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removed_methods_are_unknown_to_the_modern_era() {
        for name in
            ["initialize", "ping", "logging/setLevel", "resources/subscribe", "tasks/result", "tasks/list"]
        {
            assert_eq!(Method::named(name, Era::Modern), None, "{name}");
        }
        for name in ["server/discover", "tasks/update"] {
            assert_eq!(Method::named(name, Era::Legacy), None, "{name}");
        }
        assert_eq!(Method::named("tools/call", Era::Modern), Some(Method::ToolsCall));
    }

    #[test]
    fn every_method_is_found_by_its_name() {
        for method in Method::ALL {
            let found = [Era::Legacy, Era::Modern].map(|era| Method::named(method.as_str(), era));
            assert!(found.contains(&Some(method)), "{method:?}");
        }
    }
}
