//! `auth`: the mechanisms of authentication; and `rules`: the permissions of callers.
//!
//! The file contains hashes of API keys, never keys: a reader of the file cannot call. See also
//! `listener` for the requirements of a listener, and `auth::rules` for the evaluation of a rule.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use http::HeaderName;

use super::certificate::check_spiffe_pattern;
use super::forms::{HumanDuration, checked_text, choice, text_form};
use super::host::web_url;
use super::pem::{CertificatePem, MAX_KEY_FILE_BYTES, Pem};
use super::reference::{Secret, Template};
use super::resolve::ResolveContext;
use super::section::section;
use super::yaml::{OneOrMany, Spanned};

/// Algorithms that are accepted by default: all asymmetric ones that issuers use.
const ALGORITHMS: [&str; 9] =
    ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA"];
/// Headers that mean something else, or that control the connection.
const RESERVED_KEY_HEADERS: [&str; 9] = [
    "host",
    "content-type",
    "content-length",
    "accept",
    "cookie",
    "origin",
    "connection",
    "transfer-encoding",
    "mcp-session-id",
];

section! {
    /// Authentication of clients.
    keys AuthKeys("Auth") with {
        "anyOf": [{ "required": ["certificate"] }, { "required": ["api_keys"] }, { "required": ["tokens"] }]
    } {
        /// Client certificates.
        certificate: CertificateNameKeys,
        /// API keys.
        api_keys: ApiKeysKeys,
        /// Issuers of bearer tokens.
        tokens: Vec<Spanned<TokenIssuerKeys>> [schema { "minItems": 1 }],
        /// Scopes that every bearer token must have. Without it: none.
        scopes: Vec<Spanned<TokenScope>> => Vec<String> [example [a2a.invoke]],
        /// Scopes that a scope includes besides itself, for example `admin: [read, write]`.
        scope_hierarchy: BTreeMap<String, Spanned<Vec<Spanned<TokenScope>>>> => BTreeMap<String, Vec<String>>
            [example { a2a.admin: [a2a.invoke] }],
    }
}

section! {
    /// Client certificates.
    keys CertificateNameKeys("CertificateNames") {
        /// The field that names the caller: `spiffe` (the URI SAN, which must be a SPIFFE id),
        /// `uri`, `dns` (SANs) or `common_name` (of the subject); or a list, of which the first
        /// that the certificate has counts. A certificate with two values for it names no caller.
        name: OneOrMany<Spanned<CertificateName>> => Vec<CertificateName>
            [required "write spiffe, uri, dns or common_name" example [spiffe, dns]],
    }
}

section! {
    /// API keys.
    keys ApiKeysKeys("ApiKeys") {
        /// The header that carries a key. With `Authorization` the key follows the word `Bearer`.
        header: KeyHeader => Option<HeaderName> = "X-Api-Key",
        /// The owners of keys: a name, and `sha256:` with the hash of the key in hexadecimal, or a
        /// list of those while keys are being exchanged. `mcp-a2a-gateway key` makes a key and its
        /// hash. The name stays: tasks and sessions belong to it.
        keys: BTreeMap<String, Spanned<OneOrMany<Spanned<String>>>> [
            required "write a name and the hash of its key; `mcp-a2a-gateway key` makes both"
            example { ci: "sha256:0000000000000000000000000000000000000000000000000000000000000000" }
            schema { "minProperties": 1, "propertyNames": { "pattern": "^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$" } }
        ],
    }
}

section! {
    /// An issuer of bearer tokens, and the verification of its tokens: by their signature, or by
    /// introspection.
    keys TokenIssuerKeys("TokenIssuer") {
        /// The issuer, as in the claim `iss`. It is part of the names of its callers.
        issuer: IssuerText => Option<String>
            [required "write what stands in the claim iss" example "https://login.example.com/tenant"],
        /// Accepted values of `aud`. Without it: `public_url`, `public_url/mcp`, and
        /// `public_url/mcp/AGENT` there.
        audience: OneOrMany<Spanned<String>> => Vec<String> [example ["https://gateway.example.com/mcp"]],
        /// Its keys (JWKS): a URL, or the path of a file. Without it: the URL in the issuer's
        /// metadata (`/.well-known/openid-configuration` or
        /// `/.well-known/oauth-authorization-server`).
        jwks: String [example "https://login.example.com/keys"],
        /// Accepted algorithms. Those with a shared secret, and `none`, never are.
        algorithms: Vec<Spanned<AlgorithmText>> => Vec<String>
            = [RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, EdDSA]
            [schema {
                "minItems": 1,
                "items": {
                    "enum": ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA"]
                }
            }],
        /// Accepted difference to the issuer's clock.
        leeway: HumanDuration => Duration = 30s in 0s..=5m,
        /// Interval at which the keys are refreshed. An unknown key is fetched at once, at most
        /// every 10 seconds.
        refresh: HumanDuration => Duration = 10m in 1s..=1d,
        /// Introspection of each token at the issuer (RFC 7662) in place of a check of its
        /// signature: for tokens that are no JWT.
        introspection: IntrospectionKeys,
        /// True if tokens without `sub` are accepted, which clients get for themselves: their
        /// caller is `client:ISSUER#CLIENT_ID`. A token that names a user in another way
        /// (`username`, `email`, `sid` …) is refused all the same.
        client_tokens: bool => bool = false,
        /// The claim with the scopes: a text with spaces between them, or a list.
        scope_claim: String => String = scope,
        /// The claim with the groups: a list.
        groups_claim: String => String = groups,
        /// The only roots to trust for requests to the issuer. Without it: the system's.
        ca: CertificatePem => Option<Pem> [example "/etc/gateway/internal-ca.pem"],
    }
}

section! {
    /// Introspection of tokens at an issuer.
    keys IntrospectionKeys("Introspection") {
        /// The URL of the requests.
        url: SafeUrl => Option<String>
            [required "write where tokens are asked about" example "https://opaque.example.com/introspect"],
        /// The gateway's client id there.
        client_id: String => Option<String> [required "write who asks" example gateway],
        /// The password of that client.
        client_secret: Template => Option<Secret>
            [required "write ${env:NAME} or ${file:PATH}" example "${env:INTROSPECTION_SECRET}"],
        /// Longest time for which a response is reused; `0s` sends a request each time.
        cache: HumanDuration => Duration = 30s in 0s..=1h,
    }
}

choice! {
    /// Field of a certificate that can name its owner.
    CertificateName as "CertificateName" {
        "spiffe" => Self::Spiffe,
        "uri" => Self::Uri,
        "dns" => Self::Dns,
        "common_name" => Self::CommonName,
    }
}

/// Authentication of clients. Without any mechanism all of them are anonymous.
#[derive(Debug, Clone, Default, PartialEq)]
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
#[derive(Debug, Clone, PartialEq)]
pub struct ApiKeys {
    /// The header that carries a key; with `authorization` it follows `Bearer`. Default: `x-api-key`.
    pub header: HeaderName,
    /// The owners of keys.
    pub holders: Vec<ApiKeyOwner>,
}

/// The owner of API keys.
#[derive(Debug, Clone, PartialEq)]
pub struct ApiKeyOwner {
    /// The name of the owner; it stays when the keys change.
    pub name: String,
    /// SHA-256 of each of its keys.
    pub hashes: Vec<[u8; 32]>,
}

/// An issuer of bearer tokens, and the verification of its tokens.
#[derive(Debug, Clone, PartialEq)]
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
#[derive(Debug, Clone, PartialEq)]
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

impl AuthKeys {
    /// Resolves the section. Tokens must be issued for `public_url`, if the file names no audience.
    pub(super) fn resolve(mut self, public_url: Option<&str>, context: &mut ResolveContext<'_>) -> Auth {
        if [self.certificate.place(), self.api_keys.place(), self.tokens.place()].iter().all(Option::is_none)
        {
            let problem = "names no way to prove who one is (write certificate, api_keys or tokens)";
            context.problem(&self.section, problem);
        }
        let (scopes, scope_hierarchy) = (self.scopes(context), self.scope_hierarchy(context));
        let certificate = self.certificate.open().map(|keys| keys.resolve(context)).unwrap_or_default();
        let tokens = self.tokens.take().map(|(place, list)| {
            if list.is_empty() {
                context.problem(&place, "is an empty list (name an issuer, or remove it)");
            }
            token_issuers(list, public_url, context)
        });
        let api_keys = self.api_keys.open().and_then(|keys| keys.resolve(context));
        Auth { certificate, api_keys, tokens: tokens.unwrap_or_default(), scopes, scope_hierarchy }
    }
}

impl CertificateNameKeys {
    fn resolve(mut self, context: &mut ResolveContext<'_>) -> Vec<CertificateName> {
        let is_empty = self.name.get().is_some_and(|OneOrMany(names)| names.is_empty());
        if let Some(place) = self.name.place().filter(|_| is_empty) {
            context.problem(place, "is an empty list (write spiffe, uri, dns or common_name)");
        }
        self.name(context)
    }
}

impl ApiKeysKeys {
    fn resolve(mut self, context: &mut ResolveContext<'_>) -> Option<ApiKeys> {
        let header = self.header(context);
        let hint = "write a name and the hash of its key; `mcp-a2a-gateway key` makes both";
        let (place, written) = context.required(self.keys, &self.section, "keys", hint)?;
        if written.is_empty() {
            context.problem(&place, format!("is empty ({hint})"));
        }
        let mut holders: Vec<ApiKeyOwner> = Vec::new();
        for (name, hashes) in written {
            let Some((place, OneOrMany(hashes))) = hashes.take() else { continue };
            if !is_owner_name(&name) {
                context.problem(&place, "is not a name (1 to 64 letters, digits and . _ @ -)");
            }
            let mut read = Vec::new();
            for (place, text) in hashes.into_iter().filter_map(Spanned::take) {
                let Some(hash) = key_hash(&text) else {
                    context.problem(&place, "is not a hash (write sha256: and 64 hexadecimal digits)");
                    continue;
                };
                if holders.iter().any(|holder| holder.hashes.contains(&hash)) || read.contains(&hash) {
                    context.problem(&place, "is there twice: a key names one caller");
                }
                read.push(hash);
            }
            holders.push(ApiKeyOwner { name, hashes: read });
        }
        Some(ApiKeys { header: header?, holders })
    }
}

text_form!(KeyHeader as "text", HeaderName, |text: String| {
    match HeaderName::try_from(text) {
        Ok(name) if !RESERVED_KEY_HEADERS.contains(&name.as_str()) => Ok(name),
        Ok(_) => Err("means something else (write X-Api-Key or Authorization)"),
        Err(_) => Err("is not the name of a header (write X-Api-Key)"),
    }
});

fn is_owner_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'@' | b'-');
    name.len() <= 64
        && name.bytes().all(fits)
        && name.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric())
}

/// Parses `sha256:` and 64 hexadecimal digits.
pub(super) fn key_hash(text: &str) -> Option<[u8; 32]> {
    let is_hex = |digits: &&str| digits.len() == 64 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let digits = text.strip_prefix("sha256:").filter(is_hex)?;
    let mut hash = [0; 32];
    for (byte, pair) in hash.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(hash)
}

/// Returns the issuers, each with its own name.
fn token_issuers(
    list: Vec<Spanned<TokenIssuerKeys>>,
    public_url: Option<&str>,
    context: &mut ResolveContext<'_>,
) -> Vec<TokenIssuer> {
    let mut issuers: Vec<TokenIssuer> = Vec::new();
    for keys in list.into_iter().filter_map(Spanned::open) {
        let place = keys.section.clone();
        let Some(issuer) = keys.resolve(public_url, context) else { continue };
        if issuers.iter().any(|known| known.issuer == issuer.issuer) {
            context.problem(&place, "names an issuer that is there already");
        }
        issuers.push(issuer);
    }
    issuers
}

impl TokenIssuerKeys {
    fn resolve(mut self, public_url: Option<&str>, context: &mut ResolveContext<'_>) -> Option<TokenIssuer> {
        let issuer = self.issuer(context);
        let audience = self.audience(context);
        if audience.is_empty() && public_url.is_none() {
            let missing = self.section.child("audience");
            let problem =
                "is missing: without public_url the gateway cannot tell which audience tokens must have";
            context.problem(&missing, problem);
        }
        let check = match std::mem::take(&mut self.introspection).open() {
            Some(keys) => {
                if let Some(place) = self.jwks.place() {
                    context.problem(place, "has no use beside introspection (remove one of them)");
                }
                keys.resolve(context)
            }
            None => Some(TokenVerification::Signature {
                keys: self.key_source(issuer.as_deref(), context)?,
                algorithms: self.accepted_algorithms(context),
                refresh: self.refresh(context),
            }),
        };
        Some(TokenIssuer {
            ca: self.ca(context),
            issuer: issuer?,
            audience,
            check: check?,
            leeway: self.leeway(context),
            client_tokens: self.client_tokens(context),
            scope_claim: self.scope_claim(context),
            groups_claim: self.groups_claim(context),
        })
    }

    fn key_source(&mut self, issuer: Option<&str>, context: &mut ResolveContext<'_>) -> Option<KeySource> {
        let Some((place, text)) = std::mem::take(&mut self.jwks).take() else {
            if let Err(problem) = check_safe_url(issuer?) {
                return context.report_conflict(self.issuer.place()?, problem);
            }
            return Some(KeySource::Discovery);
        };
        let is_url = text.contains("://");
        let path = context.path(&text);
        let checked =
            if is_url { check_safe_url(&text) } else { context.file(&path, MAX_KEY_FILE_BYTES).map(drop) };
        match checked {
            Ok(()) if is_url => Some(KeySource::Url(text)),
            Ok(()) => Some(KeySource::File(path)),
            Err(problem) => context.report_conflict(&place, problem),
        }
    }

    fn accepted_algorithms(&mut self, context: &mut ResolveContext<'_>) -> Vec<String> {
        let is_empty = self.algorithms.get().is_some_and(Vec::is_empty);
        if let Some(place) = self.algorithms.place().filter(|_| is_empty) {
            context.problem(place, "is an empty list (remove it for the default)");
        }
        self.algorithms(context)
    }
}

impl IntrospectionKeys {
    fn resolve(mut self, context: &mut ResolveContext<'_>) -> Option<TokenVerification> {
        let (url, client_id) = (self.url(context), self.client_id(context));
        let (client_secret, cache) = (self.client_secret(context), self.cache(context));
        Some(TokenVerification::Introspection {
            url: url?,
            client_id: client_id?,
            client_secret: client_secret?,
            cache,
        })
    }
}

checked_text!(IssuerText as "text", |issuer: &str| {
    // In the names of callers `#` ends the issuer.
    let is_odd = |letter: char| letter == '#' || letter.is_whitespace() || letter.is_control();
    if issuer.contains(is_odd) { Err("is not an issuer (it has a # or a space in it)") } else { Ok(()) }
});

checked_text!(AlgorithmText as "text", |name: &str| {
    let accepted = ALGORITHMS.join(", ");
    let problem = || format!("{name:?} is not taken (write one of {accepted})");
    if ALGORITHMS.contains(&name) { Ok(()) } else { Err(problem()) }
});

checked_text!(TokenScope as "text", |scope: &str| {
    // RFC 6749 §3.3, since scopes go into a header.
    let fits = |byte: u8| matches!(byte, 0x21 | 0x23..=0x5b | 0x5d..=0x7e);
    if !scope.is_empty() && scope.bytes().all(fits) {
        return Ok(());
    }
    Err("is not a scope (visible ASCII without spaces, quotes and backslashes)")
});

checked_text!(SafeUrl as "URL", check_safe_url);

/// Requires TLS for keys and tokens, except on this machine.
fn check_safe_url(text: &str) -> Result<(), String> {
    let uri = web_url(text)?;
    if uri.scheme_str() == Some("https") || is_loopback(uri.host()) {
        return Ok(());
    }
    Err("is not safe (write https; http is for loopback addresses only)".to_owned())
}

fn is_loopback(host: Option<&str>) -> bool {
    host.is_some_and(|host| {
        host.eq_ignore_ascii_case("localhost")
            || host
                .trim_matches(['[', ']'])
                .parse::<std::net::IpAddr>()
                .is_ok_and(|address| address.is_loopback())
    })
}

section! {
    /// A rule of authorization. The first rule that matches decides; once there is one, actions
    /// that none allows are denied. In patterns `*` is any text.
    keys RuleKeys("Rule") {
        /// Its name in the output of `check --as` and in the audit log. Without it: its number.
        name: String => Option<String> [example forecasts],
        /// True if it denies instead of allowing.
        deny: bool => bool = false,
        /// Patterns for the caller's name: `key:NAME` for the holder of an API key,
        /// `token:ISSUER#SUBJECT`, `client:ISSUER#CLIENT_ID` for a token without a subject,
        /// `uri:URI` (SPIFFE ids too), `dns:NAME` and `cn:NAME` for certificates, `local` for
        /// the client of `stdio`, `anonymous`. Without it: any caller.
        callers: OneOrMany<Spanned<Pattern>> [example ["key:ci", "token:https://login.example.com#*"]],
        /// Patterns for the SANs of the caller's certificate. Without it: any certificate, or none.
        certificates: OneOrMany<Spanned<Pattern>> [example ["spiffe://example.com/*"]],
        /// Scopes that the caller's token must have, all of them. A client that lacks only scopes
        /// is told their names.
        scopes: Vec<Spanned<TokenScope>> => Vec<String> [example [weather.read]],
        /// Groups, of which the caller's token must name one. Without it: any.
        groups: OneOrMany<Spanned<Pattern>> [example [forecasters]],
        /// Patterns for agents, by their name in the configuration. Without it: all.
        agents: OneOrMany<Spanned<Pattern>> [example [weather]],
        /// Patterns for skills, by their id or by the name of the tool. Without it: all.
        tools: OneOrMany<Spanned<Pattern>> [example [forecast]],
        /// Patterns for methods: of MCP, such as `tools/call` or `tasks/*`; of A2A, by their names
        /// in 1.0, such as `SendMessage`. Without it: all.
        methods: OneOrMany<Spanned<Pattern>> [example ["tools/*", "tasks/*"]],
        /// Patterns for URIs of resources, such as `a2a-agent://weather`. Without it: all.
        resources: OneOrMany<Spanned<Pattern>> [example ["a2a-agent://weather"]],
    }
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

checked_text!(Pattern as "pattern", |pattern: &str| {
    let is_pattern = !pattern.is_empty() && pattern.len() <= 512;
    if is_pattern { Ok(()) } else { Err("is not a pattern (1 to 512 characters)") }
});

/// Returns the rules, each with a name.
pub(super) fn rules(
    written: Spanned<Vec<Spanned<RuleKeys>>>,
    auth: &Auth,
    agents: Option<&[&str]>,
    context: &mut ResolveContext<'_>,
) -> Vec<Rule> {
    let mut rules = Vec::new();
    for keys in written.value().unwrap_or_default().into_iter().filter_map(Spanned::open) {
        let place = keys.section.clone();
        let rule = keys.resolve(rules.len() + 1, agents, context);
        if auth.tokens.is_empty() && (!rule.scopes.is_empty() || rule.groups.is_some()) {
            let problem = "asks for scopes or groups, which only tokens have: there is no auth.tokens";
            context.problem(&place, problem);
        }
        rules.push(rule);
    }
    rules
}

impl RuleKeys {
    fn resolve(mut self, number: usize, agents: Option<&[&str]>, context: &mut ResolveContext<'_>) -> Rule {
        let agents_place = self.agents.place().unwrap_or(&self.section).clone();
        let rule = Rule {
            name: self.name(context).unwrap_or_else(|| number.to_string()),
            deny: self.deny(context),
            scopes: self.scopes(context),
            callers: identities(self.callers, "uri:", context),
            certificates: identities(self.certificates, "", context),
            groups: patterns(self.groups, context),
            agents: patterns(self.agents, context),
            tools: patterns(self.tools, context),
            methods: patterns(self.methods, context),
            resources: patterns(self.resources, context),
        };
        for pattern in rule.agents.iter().flatten().filter(|pattern| !pattern.contains('*')) {
            if agents.is_some_and(|agents| !agents.contains(&pattern.as_str())) {
                context.problem(&agents_place, format!("there is no agent {pattern:?}"));
            }
        }
        rule
    }
}

/// Reads patterns for names of certificates. Reports those that no SPIFFE id matches, so that their
/// rule would never apply; an id stands after `prefix`.
fn identities(
    written: Spanned<OneOrMany<Spanned<Pattern>>>,
    prefix: &str,
    context: &mut ResolveContext<'_>,
) -> Option<Vec<String>> {
    let place = written.place().cloned().unwrap_or_default();
    let patterns = patterns(written, context)?;
    for pattern in &patterns {
        // The name of a caller with several credentials has ` & ` between them.
        let mut ids = pattern.split(" & ").filter_map(|part| part.strip_prefix(prefix));
        if let Some(error) = ids.find_map(|id| check_spiffe_pattern(id).err()) {
            context.problem(&place, format!("{pattern:?} fits no SPIFFE id: {error}"));
        }
    }
    Some(patterns)
}

fn patterns(
    written: Spanned<OneOrMany<Spanned<Pattern>>>,
    context: &mut ResolveContext<'_>,
) -> Option<Vec<String>> {
    if written.get()?.0.is_empty() {
        let place = written.place()?;
        context.problem(place, "is an empty list: nothing would fit (remove it for all)");
    }
    written.resolve(context).map(|(_, patterns)| patterns)
}

/// Returns true if a text matches a pattern, from its first to its last byte.
pub(crate) fn matches_pattern(pattern: &str, text: &str) -> bool {
    // Most patterns are names, and most that are compared were found by them.
    if pattern == text {
        return true;
    }
    let Some((head, rest)) = pattern.split_once('*') else { return false };
    let Some(mut text) = text.strip_prefix(head) else { return false };
    let mut pieces = rest.split('*').peekable();
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_none() {
            return text.ends_with(piece);
        }
        let Some((_, after)) = text.split_once(piece) else { return false };
        text = after;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_hashes_are_hashes() {
        let good = format!("sha256:{}", "0f".repeat(32));
        assert_eq!(key_hash(&good), Some([0x0f; 32]));
        for bad in ["0f".repeat(32), "sha256:".to_owned(), "md5:00".to_owned(), format!("{good}0")] {
            assert_eq!(key_hash(&bad), None, "{bad}");
        }
        assert_eq!(key_hash(&format!("sha256:{}", "+f".repeat(32))), None);
    }
}
