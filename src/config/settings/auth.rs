//! The settings of inbound authentication and authorization.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use http::HeaderName;

use super::Pem;
use crate::config::Secret;

/// How clients prove who they are. Nothing configured: nobody can.
#[derive(Debug, Clone, Default)]
pub struct Auth {
    /// Which field of a client certificate names the caller: the first of these that it has. Empty: certificates name nobody.
    pub certificate: Vec<CertificateName>,
    /// API keys.
    pub api_keys: Option<ApiKeys>,
    /// Who issues bearer tokens.
    pub tokens: Vec<TokenIssuer>,
    /// Scopes that every bearer token must have. Default: none.
    pub scopes: Vec<String>,
    /// What a scope includes besides itself.
    pub scope_hierarchy: BTreeMap<String, Vec<String>>,
}

impl Auth {
    /// The mechanisms that are configured, in the order in which they name a caller that proves itself in several ways.
    pub fn mechanisms(&self) -> Vec<Mechanism> {
        let certificate = (!self.certificate.is_empty()).then_some(Mechanism::Certificate);
        let api_key = self.api_keys.is_some().then_some(Mechanism::ApiKey);
        let token = (!self.tokens.is_empty()).then_some(Mechanism::Token);
        certificate.into_iter().chain(token).chain(api_key).collect()
    }
}

/// A way to prove who one is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mechanism {
    /// A client certificate.
    Certificate,
    /// A bearer token.
    Token,
    /// An API key.
    ApiKey,
}

/// A field of a certificate that can name its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertificateName {
    /// The one URI SAN, which is a SPIFFE id.
    Spiffe,
    /// The one URI SAN.
    Uri,
    /// The one DNS SAN.
    Dns,
    /// The common name of the subject.
    CommonName,
}

/// API keys.
#[derive(Debug, Clone)]
pub struct ApiKeys {
    /// The header that carries a key; with `authorization` it follows `Bearer`. Default: `x-api-key`.
    pub header: HeaderName,
    /// Who holds which keys.
    pub holders: Vec<ApiKeyOwner>,
}

/// Whom an API key names.
#[derive(Debug, Clone)]
pub struct ApiKeyOwner {
    /// The name of the holder; it stays when the keys change.
    pub name: String,
    /// SHA-256 of each of its keys.
    pub hashes: Vec<[u8; 32]>,
}

/// Who issues bearer tokens, and how they are checked.
#[derive(Debug, Clone)]
pub struct TokenIssuer {
    /// What stands in `iss`, and before the subject in the names of callers.
    pub issuer: String,
    /// The values of `aud` that are taken. Empty: the gateway's URL, and that of the endpoint that is called.
    pub audience: Vec<String>,
    /// How its tokens are checked.
    pub check: TokenVerification,
    /// How far its clock may be off. Default: 30 s.
    pub leeway: Duration,
    /// Whether a token that names no user is its client's. Default: no.
    pub client_tokens: bool,
    /// The claim with the scopes. Default: `scope`.
    pub scope_claim: String,
    /// The claim with the groups. Default: `groups`.
    pub groups_claim: String,
    /// The only roots to trust when it is asked; `None`: the system's.
    pub ca: Option<Pem>,
}

/// How tokens are checked.
#[derive(Debug, Clone)]
pub enum TokenVerification {
    /// By their signature.
    Signature {
        /// Where the keys are.
        keys: KeySource,
        /// The algorithms that are taken, as in the header of a token.
        algorithms: Vec<String>,
        /// How often the keys are looked at. Default: 10 min.
        refresh: Duration,
    },
    /// By asking the issuer (RFC 7662).
    Introspection {
        /// Where to ask.
        url: String,
        /// Who asks.
        client_id: String,
        /// The password of who asks.
        client_secret: Secret,
        /// How long an answer is good at most. Default: 30 s.
        cache: Duration,
    },
}

/// Where a set of keys (JWKS) is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// Where the issuer's metadata says.
    Discovery,
    /// At a URL.
    Url(String),
    /// In a file.
    File(PathBuf),
}

/// What a listener wants to be shown. Default: nothing; what is shown must be good all the same.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Require {
    /// How many of them must be shown.
    pub rule: RequireRule,
    /// The mechanisms that are looked at; the first that is shown names the caller.
    pub of: Vec<Mechanism>,
}

/// How many mechanisms must be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RequireRule {
    /// None: whoever shows nothing is anonymous.
    #[default]
    None,
    /// One.
    Any,
    /// All.
    All,
}

/// A rule of authorization. The first that fits decides; once there is one, what none allows is refused.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rule {
    /// Its name in answers of `check` and in the audit log.
    pub name: String,
    /// Whether it refuses instead of allowing.
    pub deny: bool,
    /// Patterns for the caller's name; `None`: anybody.
    pub callers: Option<Vec<String>>,
    /// Patterns for the SANs of the caller's certificate; `None`: any, or none.
    pub certificates: Option<Vec<String>>,
    /// Scopes that its token must have, all of them. Empty: none.
    pub scopes: Vec<String>,
    /// Groups of which its token must name one; `None`: any.
    pub groups: Option<Vec<String>>,
    /// Patterns for agents; `None`: all.
    pub agents: Option<Vec<String>>,
    /// Patterns for skills, by their id or the tool's name; `None`: all.
    pub tools: Option<Vec<String>>,
    /// Patterns for methods of MCP, and of A2A by their names in 1.0; `None`: all.
    pub methods: Option<Vec<String>>,
    /// Patterns for URIs of resources; `None`: all.
    pub resources: Option<Vec<String>>,
}
