//! The revisions of MCP, the features that the clients of each understand, and the methods that a
//! client may call.
//!
//! Follows `docs/spec/mcp.md` §1.0, §1.5.1. `classify` determines the revision of a request.

/// The two modes of operation of MCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Era {
    /// 2024-11-05 to 2025-11-25: `initialize`, sessions.
    Legacy,
    /// 2026-07-28 and later: every request is self-contained.
    Modern,
}

impl Era {
    /// Returns the label for logs and metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Modern => "modern",
        }
    }
}

/// A revision of MCP that the gateway supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// 2024-11-05, over Streamable HTTP only.
    V2024_11_05,
    /// 2025-03-26: batches, tool annotations, audio.
    V2025_03_26,
    /// 2025-06-18: structured output, resource links, titles.
    V2025_06_18,
    /// 2025-11-25: icons, tasks in the core, URL elicitation.
    V2025_11_25,
    /// 2026-07-28: stateless.
    V2026_07_28,
}

impl Version {
    /// Every legacy revision, newest first.
    pub const LEGACY: [Self; 4] =
        [Self::V2025_11_25, Self::V2025_06_18, Self::V2025_03_26, Self::V2024_11_05];
    /// Every modern revision, as listed by `server/discover` and error -32022.
    pub const MODERN: [Self; 1] = [Self::V2026_07_28];
    /// The revision of a legacy request without a session.
    pub(crate) const STATELESS: Self = Self::V2025_03_26;

    /// Returns the revision as it is written on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V2024_11_05 => "2024-11-05",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
            Self::V2026_07_28 => "2026-07-28",
        }
    }

    /// Returns the revision with this name, if the gateway supports it.
    pub fn named(text: &str) -> Option<Self> {
        Self::MODERN.into_iter().chain(Self::LEGACY).find(|version| version.as_str() == text)
    }

    /// Returns the answer of `initialize`: the requested revision if it is a legacy one, else the
    /// newest legacy one.
    pub(crate) fn negotiate(requested: &str) -> Self {
        match Self::named(requested) {
            Some(version) if version.era() == Era::Legacy => version,
            Some(_) | None => Self::V2025_11_25,
        }
    }

    /// Returns the era of the revision.
    pub fn era(self) -> Era {
        if self >= Self::V2026_07_28 { Era::Modern } else { Era::Legacy }
    }

    /// Returns true if its clients know `structuredContent`, `resource_link`, `title` and `_meta`
    /// everywhere.
    pub(crate) fn has_structured_output(self) -> bool {
        self >= Self::V2025_06_18
    }

    /// Returns true if its clients know audio content.
    pub(crate) fn has_audio(self) -> bool {
        self >= Self::V2025_03_26
    }

    /// Returns true if its core has tasks.
    pub(crate) fn has_core_tasks(self) -> bool {
        self == Self::V2025_11_25
    }

    /// Returns true if its clients may send batches.
    pub(crate) fn has_batches(self) -> bool {
        self == Self::V2025_03_26
    }

    /// Returns a stable number for data that outlives the process: sealed sessions.
    pub fn number(self) -> u8 {
        match self {
            Self::V2024_11_05 => 0,
            Self::V2025_03_26 => 1,
            Self::V2025_06_18 => 2,
            Self::V2025_11_25 => 3,
            Self::V2026_07_28 => 4,
        }
    }

    /// Returns the revision with this [`Version::number`]; legacy revisions only, since only they
    /// have sessions.
    pub(crate) fn numbered(number: u8) -> Option<Self> {
        Self::LEGACY.into_iter().find(|version| version.number() == number)
    }
}

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
    /// `prompts/list`.
    PromptsList,
    /// `prompts/get`.
    PromptsGet,
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
    pub const ALL: [Self; 20] = [
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
        Self::PromptsGet,
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
            Self::PromptsGet => "prompts/get",
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
            | Self::PromptsGet
            | Self::TasksGet
            | Self::TasksCancel => true,
        }
    }
}

/// The cancellation of a request, of either side: the only notification of a client that the
/// gateway acts on.
pub(crate) const CANCELLED: &str = "notifications/cancelled";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn initialize_echoes_what_it_speaks_and_never_goes_modern() {
        for (asked, answered) in [
            ("2025-11-25", "2025-11-25"),
            ("2025-06-18", "2025-06-18"),
            ("2025-03-26", "2025-03-26"),
            ("2024-11-05", "2024-11-05"),
            ("2026-07-28", "2025-11-25"),
            ("2031-01-01", "2025-11-25"),
            ("1.0", "2025-11-25"),
        ] {
            assert_eq!(Version::negotiate(asked).as_str(), answered, "{asked}");
        }
    }

    #[test]
    fn a_session_remembers_every_legacy_revision() {
        for version in Version::LEGACY {
            assert_eq!(Version::numbered(version.number()), Some(version));
        }
        assert_eq!(Version::numbered(Version::V2026_07_28.number()), None);
    }

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
