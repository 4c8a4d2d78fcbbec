//! The authentication that a card requires, in the OpenAPI form of 0.2 and 0.3 and in that of 1.0.
//!
//! Describes only the place of credentials; the credentials themselves, and the permission to send
//! them, come from the configuration. OAuth flows are ignored, and so is `authentication` of 0.1,
//! which names no scheme precisely.

use serde::Deserialize;

use super::super::lenient::{LenientList, LenientMap, LenientObject, LenientString};
use super::super::sanitize::clean_line;

/// Maximum number of schemes, and of alternatives, that are read.
const MAX_SCHEMES: usize = 32;
/// Maximum length of a name or word, in bytes.
const MAX_WORD: usize = 128;

/// An authentication scheme.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecurityScheme {
    /// Name in this card.
    pub name: String,
    /// The kind.
    pub kind: SchemeKind,
}

/// The kind of a scheme.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SchemeKind {
    /// An API key.
    ApiKey {
        /// The place of the key.
        place: ApiKeyLocation,
        /// The name of the header, query member or cookie.
        name: String,
    },
    /// `Authorization` with this scheme, in lower case, for example `bearer`.
    Http {
        /// The scheme.
        scheme: String,
    },
    /// An OAuth 2 token.
    OAuth2,
    /// A token of an OpenID Connect issuer.
    OpenIdConnect,
    /// A client certificate.
    MutualTls,
    /// Another kind, by its name; possibly empty.
    Unknown(String),
}

/// The place of an API key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApiKeyLocation {
    /// A request header.
    Header,
    /// The query of the URL.
    Query,
    /// A cookie.
    Cookie,
}

/// Schemes that are required together, each with its scopes. An empty list allows anonymous
/// requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecurityRequirement {
    /// Name of the scheme, and the scopes.
    pub schemes: Vec<(String, Vec<String>)>,
}

/// One scheme in either form: the older one names it in `type`, the newer one by its only member.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct SchemeIn {
    r#type: LenientString,
    #[serde(rename = "in")]
    place: LenientString,
    name: LenientString,
    scheme: LenientString,
    api_key_security_scheme: LenientObject<KeyIn>,
    http_auth_security_scheme: LenientObject<HttpIn>,
    oauth2_security_scheme: LenientObject<EmptyIn>,
    open_id_connect_security_scheme: LenientObject<EmptyIn>,
    mtls_security_scheme: LenientObject<EmptyIn>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct KeyIn {
    location: LenientString,
    name: LenientString,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct HttpIn {
    scheme: LenientString,
}

/// An object with members that do not matter here.
#[derive(Deserialize)]
struct EmptyIn {}

/// `securitySchemes`.
pub(super) type SchemesIn = LenientMap<LenientObject<SchemeIn>>;
/// `security` of 0.2 and 0.3.
pub(super) type OldRequirementsIn = LenientList<LenientMap<LenientList<LenientString>>>;
/// `securityRequirements` of 1.0.
pub(super) type RequirementsIn = LenientList<LenientObject<RequirementIn>>;

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct RequirementIn {
    schemes: LenientMap<LenientObject<ScopesIn>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ScopesIn {
    list: LenientList<LenientString>,
}

/// Returns the schemes of a card.
pub(super) fn schemes(schemes: SchemesIn) -> Vec<SecurityScheme> {
    let schemes = schemes.0.unwrap_or_default().into_iter().take(MAX_SCHEMES);
    schemes
        .filter_map(|(name, scheme)| {
            let kind = scheme.0.map_or_else(|| SchemeKind::Unknown(String::new()), SchemeIn::kind);
            Some(SecurityScheme { name: word(&name)?, kind })
        })
        .collect()
}

/// Returns the requirements of a card or a skill, in either form; the newer one has priority.
pub(super) fn requirements(new: RequirementsIn, old: OldRequirementsIn) -> Vec<SecurityRequirement> {
    if new.is_filled() {
        let alternatives = new.items().take(MAX_SCHEMES).filter_map(|alternative| alternative.0);
        return alternatives
            .map(|alternative| {
                let schemes = alternative.schemes.0.unwrap_or_default().into_iter();
                requirement(schemes.map(|(name, scopes)| (name, scopes.0.unwrap_or_default().list)))
            })
            .collect();
    }
    let alternatives = old.items().take(MAX_SCHEMES).filter_map(|alternative| alternative.0);
    alternatives.map(|alternative| requirement(alternative.into_iter())).collect()
}

fn requirement(schemes: impl Iterator<Item = (String, LenientList<LenientString>)>) -> SecurityRequirement {
    let schemes = schemes.take(MAX_SCHEMES).map(|(name, scopes)| {
        let scopes = scopes.items().take(MAX_SCHEMES).filter_map(|scope| word(&scope.filled()?)).collect();
        (clean_line(&name, MAX_WORD), scopes)
    });
    SecurityRequirement { schemes: schemes.collect() }
}

fn word(text: &str) -> Option<String> {
    Some(clean_line(text, MAX_WORD)).filter(|text| !text.is_empty())
}

impl SchemeIn {
    fn kind(self) -> SchemeKind {
        if let Some(key) = self.api_key_security_scheme.0 {
            return api_key(key.location, key.name);
        }
        if let Some(http) = self.http_auth_security_scheme.0 {
            return http_scheme(http.scheme);
        }
        if self.oauth2_security_scheme.0.is_some() {
            return SchemeKind::OAuth2;
        }
        if self.open_id_connect_security_scheme.0.is_some() {
            return SchemeKind::OpenIdConnect;
        }
        if self.mtls_security_scheme.0.is_some() {
            return SchemeKind::MutualTls;
        }
        let kind = self.r#type.filled().unwrap_or_default();
        match kind.to_ascii_lowercase().as_str() {
            "apikey" => api_key(self.place, self.name),
            "http" => http_scheme(self.scheme),
            "oauth2" => SchemeKind::OAuth2,
            "openidconnect" => SchemeKind::OpenIdConnect,
            "mutualtls" => SchemeKind::MutualTls,
            _ => SchemeKind::Unknown(clean_line(&kind, MAX_WORD)),
        }
    }
}

fn api_key(place: LenientString, name: LenientString) -> SchemeKind {
    let place = match place.filled().unwrap_or_default().to_ascii_lowercase().as_str() {
        "header" => ApiKeyLocation::Header,
        "query" => ApiKeyLocation::Query,
        "cookie" => ApiKeyLocation::Cookie,
        _ => return SchemeKind::Unknown("apiKey".to_owned()),
    };
    SchemeKind::ApiKey { place, name: clean_line(&name.filled().unwrap_or_default(), MAX_WORD) }
}

fn http_scheme(scheme: LenientString) -> SchemeKind {
    let scheme = clean_line(&scheme.filled().unwrap_or_default(), MAX_WORD);
    SchemeKind::Http { scheme: scheme.to_ascii_lowercase() }
}
