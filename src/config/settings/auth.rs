//! The settings of inbound authentication and authorization.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use http::HeaderName;

use super::Pem;
use crate::config::Secret;

/// Authentication of clients. Without any mechanism all of them are anonymous.
#[derive(Debug, Clone, Default)]
pub struct Auth {
    /// Fields of a client certificate that name the caller: the first of these that it has. Empty:
    /// certificates name no caller.
    pub certificate: Vec<CertificateName>,
    /// API keys.
    pub api_keys: Option<ApiKeys>,
    /// The issuers of bearer tokens.
    pub tokens: Vec<TokenIssuer>,
    /// Scopes that every bearer token must have. Default: none.
    pub scopes: Vec<String>,
    /// Further scopes that a scope includes.
    pub scope_hierarchy: BTreeMap<String, Vec<String>>,
}

impl Auth {
    /// Returns the configured mechanisms, in the order in which they name a caller that uses
    /// several.
    pub fn mechanisms(&self) -> Vec<Mechanism> {
        let certificate = (!self.certificate.is_empty()).then_some(Mechanism::Certificate);
        let api_key = self.api_keys.is_some().then_some(Mechanism::ApiKey);
        let token = (!self.tokens.is_empty()).then_some(Mechanism::Token);
        certificate.into_iter().chain(token).chain(api_key).collect()
    }
}

/// A mechanism of authentication.
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
    /// The owners of keys.
    pub holders: Vec<ApiKeyOwner>,
}

/// The owner of API keys.
#[derive(Debug, Clone)]
pub struct ApiKeyOwner {
    /// The name of the owner; it stays when the keys change.
    pub name: String,
    /// SHA-256 of each of its keys.
    pub hashes: Vec<[u8; 32]>,
}

/// An issuer of bearer tokens, and the verification of its tokens.
#[derive(Debug, Clone)]
pub struct TokenIssuer {
    /// The value of `iss`, which stands before the subject in the names of callers.
    pub issuer: String,
    /// The accepted values of `aud`. Empty: the gateway's URL, and that of the endpoint that is
    /// called.
    pub audience: Vec<String>,
    /// Verification of its tokens.
    pub check: TokenVerification,
    /// Accepted difference to its clock. Default: 30 s.
    pub leeway: Duration,
    /// True if a token that names no user belongs to its client. Default: false.
    pub client_tokens: bool,
    /// The claim with the scopes. Default: `scope`.
    pub scope_claim: String,
    /// The claim with the groups. Default: `groups`.
    pub groups_claim: String,
    /// The only roots to trust for requests to it; `None`: the system's.
    pub ca: Option<Pem>,
}

/// Verification of tokens.
#[derive(Debug, Clone)]
pub enum TokenVerification {
    /// By their signature.
    Signature {
        /// The source of the keys.
        keys: KeySource,
        /// The accepted algorithms, as in the header of a token.
        algorithms: Vec<String>,
        /// Interval at which the keys are refreshed. Default: 10 min.
        refresh: Duration,
    },
    /// By a request to the issuer (RFC 7662).
    Introspection {
        /// The URL of the request.
        url: String,
        /// The gateway's client id there.
        client_id: String,
        /// The password of that client.
        client_secret: Secret,
        /// Longest time for which a response is reused. Default: 30 s.
        cache: Duration,
    },
}

/// Source of a set of keys (JWKS).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// The URL in the issuer's metadata.
    Discovery,
    /// At a URL.
    Url(String),
    /// In a file.
    File(PathBuf),
}

/// Credentials that a listener requires. Default: none; presented ones must be valid all the same.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Require {
    /// Number of mechanisms that must be used.
    pub rule: RequireRule,
    /// The mechanisms that count; the first that is used names the caller.
    pub of: Vec<Mechanism>,
}

/// Number of mechanisms that must be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RequireRule {
    /// None: a client without credentials is anonymous.
    #[default]
    None,
    /// One.
    Any,
    /// All.
    All,
}

/// A rule of authorization. The first that matches decides; once there is one, actions that none
/// allows are denied.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rule {
    /// Its name in the output of `check` and in the audit log.
    pub name: String,
    /// True if it denies instead of allowing.
    pub deny: bool,
    /// Patterns for the caller's name; `None`: any caller.
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
