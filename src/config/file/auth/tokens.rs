//! `auth.tokens` as in the file: the issuers of bearer tokens.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::file::url;
use crate::config::pem::{self, PemFile, PemKind};
use crate::config::reference::{self, Template};
use crate::config::resolve::ResolveContext;
use crate::config::spanned::{Location, OneOrMany, Spanned};
use crate::config::units::HumanDuration;
use crate::config::{KeySource, TokenIssuer, TokenVerification};

/// Algorithms that are accepted by default: all asymmetric ones that issuers use.
const ALGORITHMS: [&str; 9] =
    ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA"];

/// Issuers of bearer tokens, and how tokens are checked: by their signature, or by introspection.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "TokenIssuer")]
pub(super) struct TokenFile {
    /// The issuer, as in the claim `iss`, for example `https://login.example.com/tenant`. It stands in the names of its
    /// callers.
    issuer: Spanned<String>,
    /// The values of `aud` that are taken. Without it: `public_url`, `public_url/mcp`, and `public_url/mcp/AGENT` there.
    #[serde(default)]
    audience: Spanned<OneOrMany<Spanned<String>>>,
    /// Where its keys (JWKS) are: a URL, or the path of a file. Without it: where the issuer's metadata says
    /// (`/.well-known/openid-configuration` or `/.well-known/oauth-authorization-server`).
    #[serde(default)]
    jwks: Spanned<String>,
    /// The algorithms that are taken. Those with a shared secret, and `none`, never are.
    #[serde(default)]
    #[schemars(length(min = 1), extend("default" = ALGORITHMS, "items" = { "enum": ALGORITHMS }))]
    algorithms: Spanned<Vec<Spanned<String>>>,
    /// How far the issuer's clock may be off.
    #[serde(default)]
    #[schemars(extend("default" = "30s"))]
    leeway: Spanned<HumanDuration>,
    /// How often the keys are looked at. An unknown key is looked for at once, at most every 10 seconds.
    #[serde(default)]
    #[schemars(extend("default" = "10m"))]
    refresh: Spanned<HumanDuration>,
    /// Asks the issuer about each token instead (RFC 7662): for tokens that are no JWT.
    #[serde(default)]
    introspection: Spanned<IntrospectionFile>,
    /// Takes tokens without `sub`, which clients get for themselves: their caller is
    /// `client:ISSUER#CLIENT_ID`. A token that names a user in another way (`username`, `email`,
    /// `sid` …) is refused all the same.
    #[serde(default)]
    #[schemars(extend("default" = false))]
    client_tokens: Spanned<bool>,
    /// The claim with the scopes: a text with spaces between them, or a list.
    #[serde(default)]
    #[schemars(extend("default" = "scope"))]
    scope_claim: Spanned<String>,
    /// The claim with the groups: a list.
    #[serde(default)]
    #[schemars(extend("default" = "groups"))]
    groups_claim: Spanned<String>,
    /// The only certificate authorities to trust when the issuer is asked. Without it: the system's.
    #[serde(default)]
    ca: Spanned<PemFile>,
}

/// How an issuer is asked about tokens.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Introspection")]
struct IntrospectionFile {
    /// Where to ask.
    url: Spanned<String>,
    /// Credentials of the gateway for introspection.
    client_id: Spanned<String>,
    /// The password of who asks. References are accepted.
    client_secret: Spanned<Template>,
    /// How long an answer is good at most; `0s` asks each time.
    #[serde(default)]
    #[schemars(extend("default" = "30s"))]
    cache: Spanned<HumanDuration>,
}

/// Returns the issuers, each with its own name.
pub(super) fn resolve(
    list: Vec<Spanned<TokenFile>>,
    public_url: Option<&str>,
    reading: &mut ResolveContext<'_>,
) -> Vec<TokenIssuer> {
    let mut issuers: Vec<TokenIssuer> = Vec::new();
    for (place, file) in list.into_iter().filter_map(Spanned::take) {
        let Some(issuer) = file.resolve(&place, public_url, reading) else { continue };
        if issuers.iter().any(|known| known.issuer == issuer.issuer) {
            reading.problem(&place, "names an issuer that is there already");
        }
        issuers.push(issuer);
    }
    issuers
}

impl TokenFile {
    fn resolve(
        self,
        section: &Location,
        public_url: Option<&str>,
        reading: &mut ResolveContext<'_>,
    ) -> Option<TokenIssuer> {
        let hint = "write what stands in the claim iss";
        let issuer = reading.required(self.issuer, section, "issuer", hint);
        let audience: Vec<String> = self
            .audience
            .value()
            .map_or_else(Vec::new, |OneOrMany(list)| list.into_iter().filter_map(Spanned::value).collect());
        if audience.is_empty() && public_url.is_none() {
            let missing = section.child("audience");
            reading
                .problem(&missing, "is missing: without public_url nobody knows for whom tokens are issued");
        }
        let check = match self.introspection.take() {
            Some((place, file)) => {
                if let Some(place) = self.jwks.place() {
                    reading.problem(place, "has no use beside introspection (remove one of them)");
                }
                file.resolve(&place, reading)
            }
            None => {
                let from_issuer = issuer.as_ref().map(|(place, text)| (place.clone(), text.clone()));
                Some(TokenVerification::Signature {
                    keys: key_source(self.jwks, from_issuer, reading)?,
                    algorithms: algorithms(self.algorithms, reading),
                    refresh: reading.wait(
                        self.refresh,
                        Duration::from_secs(1)..=Duration::from_secs(86_400),
                        Duration::from_secs(600),
                    ),
                })
            }
        };
        if let Some((place, issuer)) = &issuer
            && issuer.contains(|letter: char| letter == '#' || letter.is_whitespace() || letter.is_control())
        {
            // In the names of callers `#` ends the issuer.
            reading.problem(place, "is not an issuer (it has a # or a space in it)");
        }
        let claim =
            |written: Spanned<String>, default: &str| written.value().unwrap_or_else(|| default.to_owned());
        Some(TokenIssuer {
            ca: pem::resolve(self.ca, PemKind::Certificates, reading).map(|(_, pem)| pem),
            issuer: issuer?.1,
            audience,
            check: check?,
            leeway: reading.wait(
                self.leeway,
                Duration::ZERO..=Duration::from_secs(300),
                Duration::from_secs(30),
            ),
            client_tokens: self.client_tokens.value().unwrap_or(false),
            scope_claim: claim(self.scope_claim, "scope"),
            groups_claim: claim(self.groups_claim, "groups"),
        })
    }
}

impl IntrospectionFile {
    fn resolve(self, section: &Location, reading: &mut ResolveContext<'_>) -> Option<TokenVerification> {
        let url = reading.required(self.url, section, "url", "write where tokens are asked about");
        let client_id = reading.required(self.client_id, section, "client_id", "write who asks");
        if self.client_secret.place().is_none() {
            reading
                .problem(&section.child("client_secret"), "is missing (write ${env:NAME} or ${file:PATH})");
        }
        let secret = reference::one_line(self.client_secret, reading);
        let cache =
            reading.wait(self.cache, Duration::ZERO..=Duration::from_secs(3600), Duration::from_secs(30));
        let (place, url) = url?;
        safe(&url, &place, reading)?;
        Some(TokenVerification::Introspection {
            url,
            client_id: client_id?.1,
            client_secret: secret?.1,
            cache,
        })
    }
}

fn key_source(
    written: Spanned<String>,
    issuer: Option<(Location, String)>,
    reading: &mut ResolveContext<'_>,
) -> Option<KeySource> {
    match written.take() {
        Some((place, text)) if text.contains("://") => {
            safe(&text, &place, reading)?;
            Some(KeySource::Url(text))
        }
        Some((place, text)) => {
            let path = reading.path(&text);
            if let Err(problem) = reading.file(&path, 1 << 20) {
                return reading.report_conflict(&place, problem);
            }
            Some(KeySource::File(path))
        }
        None => {
            let (place, text) = issuer?;
            safe(&text, &place, reading)?;
            Some(KeySource::Discovery)
        }
    }
}

/// Requires TLS for keys and tokens, except on this machine.
fn safe(text: &str, place: &Location, reading: &mut ResolveContext<'_>) -> Option<()> {
    match url::web(text) {
        Ok(uri) if uri.scheme_str() == Some("https") || is_loopback(uri.host()) => Some(()),
        Ok(_) => {
            reading.report_conflict(place, "is not safe (write https; http is for loopback addresses only)")
        }
        Err(problem) => reading.report_conflict(place, problem),
    }
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

fn algorithms(written: Spanned<Vec<Spanned<String>>>, reading: &mut ResolveContext<'_>) -> Vec<String> {
    let Some((place, list)) = written.take() else {
        return ALGORITHMS.map(str::to_owned).to_vec();
    };
    if list.is_empty() {
        reading.problem(&place, "is an empty list (remove it for the default)");
    }
    let mut algorithms = Vec::new();
    for (place, name) in list.into_iter().filter_map(Spanned::take) {
        if !ALGORITHMS.contains(&name.as_str()) {
            reading
                .problem(&place, format!("{name:?} is not taken (write one of {})", ALGORITHMS.join(", ")));
        }
        algorithms.push(name);
    }
    algorithms
}
