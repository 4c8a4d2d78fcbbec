//! The methods that a client may call, and in which era.
//!
//! Not here: what they do.

use super::version::Era;

/// A method of MCP that the gateway answers.
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
    /// `prompts/list`: always empty, for clients that ask without being told that there are any.
    PromptsList,
    /// `logging/setLevel` (legacy).
    SetLevel,
    /// `subscriptions/listen` (modern).
    Listen,
}

impl Method {
    /// Every method.
    pub const ALL: [Self; 14] = [
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
    ];

    /// The method as it is written on the wire.
    pub fn as_str(self) -> &'static str {
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
        }
    }

    /// The method of this name in this era.
    pub fn named(name: &str, era: Era) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.as_str() == name && method.is_of(era))
    }

    /// Whether the method exists in this era.
    fn is_of(self, era: Era) -> bool {
        match self {
            Self::Initialize
            | Self::Ping
            | Self::SetLevel
            | Self::ResourcesSubscribe
            | Self::ResourcesUnsubscribe => era == Era::Legacy,
            Self::Discover | Self::Listen => era == Era::Modern,
            Self::ToolsList
            | Self::ToolsCall
            | Self::ResourcesList
            | Self::ResourceTemplatesList
            | Self::ResourcesRead
            | Self::Complete
            | Self::PromptsList => true,
        }
    }
}

/// The cancellation of a request: the one notification of a client that means something here.
pub const CANCELLED: &str = "notifications/cancelled";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removed_methods_are_unknown_to_the_modern_era() {
        for name in ["initialize", "ping", "logging/setLevel", "resources/subscribe"] {
            assert_eq!(Method::named(name, Era::Modern), None, "{name}");
        }
        assert_eq!(Method::named("server/discover", Era::Legacy), None);
        assert_eq!(Method::named("tools/call", Era::Modern), Some(Method::ToolsCall));
    }
}
