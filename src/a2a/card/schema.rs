//! The members of an A2A 1.0 card, and the unset value of each, on which signers and verifiers must
//! agree.
//!
//! The table of the specification's protobuf. Cards are read for use in `wire`, signatures in
//! `signature`.

/// One member of a message.
#[derive(Debug, Clone, Copy)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) kind: FieldKind,
    /// True if the member is present even if it is empty.
    pub(super) required: bool,
}

/// The type of a member.
#[derive(Debug, Clone, Copy)]
pub(super) enum FieldKind {
    /// A text, a list of texts, or texts by name: empty is unset.
    Plain,
    /// A text or flag that is set if present.
    Optional,
    /// A flag: false is unset.
    Flag,
    /// A message, set if present.
    Message(&'static [Field]),
    /// A list of messages.
    Messages(&'static [Field]),
    /// Messages by name.
    Map(&'static [Field]),
    /// Any JSON.
    Any,
}

const fn has(name: &'static str, kind: FieldKind) -> Field {
    Field { name, kind, required: false }
}

const fn is_required(name: &'static str, kind: FieldKind) -> Field {
    Field { name, kind, required: true }
}

use FieldKind::{Any, Flag, Map, Message, Messages, Optional, Plain};

/// `AgentCard` without its signatures.
pub(super) const CARD: &[Field] = &[
    is_required("name", Plain),
    is_required("description", Plain),
    is_required("supportedInterfaces", Messages(INTERFACE)),
    has("provider", Message(PROVIDER)),
    is_required("version", Plain),
    has("documentationUrl", Optional),
    is_required("capabilities", Message(CAPABILITIES)),
    has("securitySchemes", Map(SCHEME)),
    has("securityRequirements", Messages(REQUIREMENT)),
    is_required("defaultInputModes", Plain),
    is_required("defaultOutputModes", Plain),
    is_required("skills", Messages(SKILL)),
    has("iconUrl", Optional),
];

const INTERFACE: &[Field] = &[
    is_required("url", Plain),
    is_required("protocolBinding", Plain),
    has("tenant", Plain),
    is_required("protocolVersion", Plain),
];

const PROVIDER: &[Field] = &[is_required("url", Plain), is_required("organization", Plain)];

const CAPABILITIES: &[Field] = &[
    has("streaming", Optional),
    has("pushNotifications", Optional),
    has("extensions", Messages(EXTENSION)),
    has("extendedAgentCard", Optional),
];

const EXTENSION: &[Field] =
    &[has("uri", Plain), has("description", Plain), has("required", Flag), has("params", Any)];

const SCHEME: &[Field] = &[
    has(
        "apiKeySecurityScheme",
        Message(&[has("description", Plain), is_required("location", Plain), is_required("name", Plain)]),
    ),
    has(
        "httpAuthSecurityScheme",
        Message(&[has("description", Plain), is_required("scheme", Plain), has("bearerFormat", Plain)]),
    ),
    has(
        "oauth2SecurityScheme",
        Message(&[
            has("description", Plain),
            is_required("flows", Message(FLOWS)),
            has("oauth2MetadataUrl", Plain),
        ]),
    ),
    has(
        "openIdConnectSecurityScheme",
        Message(&[has("description", Plain), is_required("openIdConnectUrl", Plain)]),
    ),
    has("mtlsSecurityScheme", Message(&[has("description", Plain)])),
];

const FLOWS: &[Field] = &[
    has(
        "authorizationCode",
        Message(&[
            is_required("authorizationUrl", Plain),
            is_required("tokenUrl", Plain),
            has("refreshUrl", Plain),
            is_required("scopes", Plain),
            has("pkceRequired", Flag),
        ]),
    ),
    has(
        "clientCredentials",
        Message(&[is_required("tokenUrl", Plain), has("refreshUrl", Plain), is_required("scopes", Plain)]),
    ),
    has(
        "implicit",
        Message(&[has("authorizationUrl", Plain), has("refreshUrl", Plain), has("scopes", Plain)]),
    ),
    has("password", Message(&[has("tokenUrl", Plain), has("refreshUrl", Plain), has("scopes", Plain)])),
    has(
        "deviceCode",
        Message(&[
            is_required("deviceAuthorizationUrl", Plain),
            is_required("tokenUrl", Plain),
            has("refreshUrl", Plain),
            is_required("scopes", Plain),
        ]),
    ),
];

const REQUIREMENT: &[Field] = &[has("schemes", Map(&[has("list", Plain)]))];

const SKILL: &[Field] = &[
    is_required("id", Plain),
    is_required("name", Plain),
    is_required("description", Plain),
    is_required("tags", Plain),
    has("examples", Plain),
    has("inputModes", Plain),
    has("outputModes", Plain),
    has("securityRequirements", Messages(REQUIREMENT)),
];
