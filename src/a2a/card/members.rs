//! The members of a card of A2A 1.0, and how each says that it is unset: what signers and verifiers must agree on.
//!
//! The table of the specification's protobuf. Not here: reading a card for use (see `wire`), signatures (see `signed`).

/// One member of a message.
#[derive(Debug, Clone, Copy)]
pub(super) struct Member {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// Whether it is there even if it is empty.
    pub(super) required: bool,
}

/// What a member holds.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    /// A text, a list of texts, or texts by name: unset is empty.
    Plain,
    /// A text or flag that is set if it is there.
    Optional,
    /// A flag: unset is false.
    Flag,
    /// A message, set if it is there.
    Message(&'static [Member]),
    /// A list of messages.
    Messages(&'static [Member]),
    /// Messages by name.
    Map(&'static [Member]),
    /// Any JSON.
    Any,
}

const fn has(name: &'static str, kind: Kind) -> Member {
    Member { name, kind, required: false }
}

const fn needs(name: &'static str, kind: Kind) -> Member {
    Member { name, kind, required: true }
}

use Kind::{Any, Flag, Map, Message, Messages, Optional, Plain};

/// `AgentCard`, but for its signatures.
pub(super) const CARD: &[Member] = &[
    needs("name", Plain),
    needs("description", Plain),
    needs("supportedInterfaces", Messages(INTERFACE)),
    has("provider", Message(PROVIDER)),
    needs("version", Plain),
    has("documentationUrl", Optional),
    needs("capabilities", Message(CAPABILITIES)),
    has("securitySchemes", Map(SCHEME)),
    has("securityRequirements", Messages(REQUIREMENT)),
    needs("defaultInputModes", Plain),
    needs("defaultOutputModes", Plain),
    needs("skills", Messages(SKILL)),
    has("iconUrl", Optional),
];

const INTERFACE: &[Member] = &[
    needs("url", Plain),
    needs("protocolBinding", Plain),
    has("tenant", Plain),
    needs("protocolVersion", Plain),
];

const PROVIDER: &[Member] = &[needs("url", Plain), needs("organization", Plain)];

const CAPABILITIES: &[Member] = &[
    has("streaming", Optional),
    has("pushNotifications", Optional),
    has("extensions", Messages(EXTENSION)),
    has("extendedAgentCard", Optional),
];

const EXTENSION: &[Member] =
    &[has("uri", Plain), has("description", Plain), has("required", Flag), has("params", Any)];

const SCHEME: &[Member] = &[
    has(
        "apiKeySecurityScheme",
        Message(&[has("description", Plain), needs("location", Plain), needs("name", Plain)]),
    ),
    has(
        "httpAuthSecurityScheme",
        Message(&[has("description", Plain), needs("scheme", Plain), has("bearerFormat", Plain)]),
    ),
    has(
        "oauth2SecurityScheme",
        Message(&[
            has("description", Plain),
            needs("flows", Message(FLOWS)),
            has("oauth2MetadataUrl", Plain),
        ]),
    ),
    has(
        "openIdConnectSecurityScheme",
        Message(&[has("description", Plain), needs("openIdConnectUrl", Plain)]),
    ),
    has("mtlsSecurityScheme", Message(&[has("description", Plain)])),
];

const FLOWS: &[Member] = &[
    has(
        "authorizationCode",
        Message(&[
            needs("authorizationUrl", Plain),
            needs("tokenUrl", Plain),
            has("refreshUrl", Plain),
            needs("scopes", Plain),
            has("pkceRequired", Flag),
        ]),
    ),
    has(
        "clientCredentials",
        Message(&[needs("tokenUrl", Plain), has("refreshUrl", Plain), needs("scopes", Plain)]),
    ),
    has(
        "implicit",
        Message(&[has("authorizationUrl", Plain), has("refreshUrl", Plain), has("scopes", Plain)]),
    ),
    has("password", Message(&[has("tokenUrl", Plain), has("refreshUrl", Plain), has("scopes", Plain)])),
    has(
        "deviceCode",
        Message(&[
            needs("deviceAuthorizationUrl", Plain),
            needs("tokenUrl", Plain),
            has("refreshUrl", Plain),
            needs("scopes", Plain),
        ]),
    ),
];

const REQUIREMENT: &[Member] = &[has("schemes", Map(&[has("list", Plain)]))];

const SKILL: &[Member] = &[
    needs("id", Plain),
    needs("name", Plain),
    needs("description", Plain),
    needs("tags", Plain),
    has("examples", Plain),
    has("inputModes", Plain),
    has("outputModes", Plain),
    has("securityRequirements", Messages(REQUIREMENT)),
];
