//! `agents.NAME.auth` as in the file.

use http::header::{AUTHORIZATION, COOKIE};
use http::{HeaderName, HeaderValue};
use schemars::JsonSchema;
use serde::Deserialize;

use super::oauth::OAuth2File;
use crate::config::reference::{self, Template};
use crate::config::reloadable_secret::ReloadableSecret;
use crate::config::reserved_headers::is_reserved;
use crate::config::resolve::ResolveContext;
use crate::config::spanned::{Location, OneOrMany, Spanned};
use crate::config::{AgentAuth, ApiKey, ApiKeyLocation, ApiKeyPlace, Authorization};

/// What the gateway shows an agent so that it is let in. One of `basic`, `bearer` and `oauth2`; API keys besides.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "AgentAuth")]
pub(super) struct AgentAuthFile {
    /// An API key, or a list of them.
    api_key: Spanned<OneOrMany<Spanned<ApiKeyFile>>>,
    /// HTTP Basic: a user and a password.
    basic: Spanned<BasicFile>,
    /// A bearer token, without the word `Bearer`. References are accepted.
    bearer: Spanned<Template>,
    /// Bearer tokens that the gateway fetches and renews.
    oauth2: Spanned<OAuth2File>,
}

/// An API key. It goes where the card's security schemes say, or where `in` and `name` say.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "AgentApiKey", extend("required" = ["value"]))]
struct ApiKeyFile {
    /// The key. References are accepted.
    value: Spanned<Template>,
    /// Where it goes: `header`, `query` or `cookie`. Without it: where the card says.
    r#in: Spanned<PlaceFile>,
    /// The name of the header, of the member of the query, or of the cookie.
    name: Spanned<String>,
    /// The name of the card's security scheme that it is for. Needed where the card has several API keys.
    scheme: Spanned<String>,
}

/// Where an API key goes.
#[derive(Deserialize, JsonSchema, Clone, Copy)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "ApiKeyIn")]
enum PlaceFile {
    Header,
    Query,
    Cookie,
}

/// HTTP Basic.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "AgentBasic", extend("required" = ["user", "password"]))]
struct BasicFile {
    /// The user: no colon in it.
    user: Spanned<String>,
    /// The password. References are accepted.
    password: Spanned<Template>,
}

impl AgentAuthFile {
    /// Converts the section to its settings. `shown` are the static headers of the agent; with an
    /// identity the gateway presents a client certificate to the agent.
    pub(super) fn resolve(
        self,
        section: &Location,
        (shown, has_identity): (&[(HeaderName, ReloadableSecret)], bool),
        reading: &mut ResolveContext<'_>,
    ) -> AgentAuth {
        let mut auth = AgentAuth::default();
        if let Some((_, OneOrMany(keys))) = self.api_key.take() {
            for (place, key) in keys.into_iter().filter_map(Spanned::take) {
                auth.api_keys.extend(key.resolve(&place, shown, reading));
            }
        }
        let written = [self.basic.place(), self.bearer.place(), self.oauth2.place()];
        if let Some(second) = written.into_iter().flatten().nth(1) {
            reading.problem(second, "is one credential too many (write one of basic, bearer and oauth2)");
        }
        let basic = self.basic.take().and_then(|(place, basic)| basic.resolve(&place, reading));
        let bearer = reference::live(self.bearer, reading)
            .filter(|(place, token)| sendable(place, token, reading))
            .map(|(_, token)| Authorization::Bearer(token));
        let oauth2 =
            self.oauth2.take().and_then(|(place, oauth2)| oauth2.resolve(&place, has_identity, reading));
        let oauth2 = oauth2.map(|oauth2| Authorization::OAuth2(Box::new(oauth2)));
        auth.authorization = basic.or(bearer).or(oauth2);
        if auth.authorization.is_some() && shown.iter().any(|(name, _)| *name == AUTHORIZATION) {
            reading.problem(section, "gives Authorization, which headers give too (remove one of them)");
        }
        auth
    }
}

/// Returns true if a secret can be sent in a header; if not, that is a problem.
fn sendable(place: &Location, secret: &ReloadableSecret, reading: &mut ResolveContext<'_>) -> bool {
    let fits = HeaderValue::from_str(secret.expose()).is_ok();
    if !fits {
        reading.problem(place, "has a character that no header may have");
    }
    fits
}

impl BasicFile {
    fn resolve(self, section: &Location, reading: &mut ResolveContext<'_>) -> Option<Authorization> {
        let user = reading.required(self.user, section, "user", "write the user's name");
        if self.password.place().is_none() {
            reading.problem(&section.child("password"), "is missing (write ${env:NAME} or ${file:PATH})");
        }
        let password = reference::live(self.password, reading);
        let (place, user) = user?;
        if user.is_empty() || user.contains([':', '\r', '\n', '\0']) {
            return reading.report_conflict(&place, "is not a user's name (no colon, one line)");
        }
        Some(Authorization::Basic { user, password: password?.1 })
    }
}

impl ApiKeyFile {
    fn resolve(
        self,
        section: &Location,
        shown: &[(HeaderName, ReloadableSecret)],
        reading: &mut ResolveContext<'_>,
    ) -> Option<ApiKey> {
        if self.value.place().is_none() {
            reading.problem(&section.child("value"), "is missing (write ${env:NAME} or ${file:PATH})");
        }
        let value = reference::live(self.value, reading);
        let place = match (self.r#in.take(), self.name.take(), self.scheme.take()) {
            (None, None, scheme) => ApiKeyPlace::Card(scheme.map(|(_, scheme)| scheme)),
            (Some((_, written)), Some((at, name)), scheme) => {
                if let Some((scheme, _)) = scheme {
                    reading.problem(&scheme, "says where the key goes, and so do in and name (remove one)");
                }
                let written = match written {
                    PlaceFile::Header => ApiKeyLocation::Header,
                    PlaceFile::Query => ApiKeyLocation::Query,
                    PlaceFile::Cookie => ApiKeyLocation::Cookie,
                };
                match named(written, &name, shown) {
                    Ok(()) => ApiKeyPlace::Written(written, name),
                    Err(problem) => return reading.report_conflict(&at, problem),
                }
            }
            (Some((place, _)), None, _) => {
                return reading.report_conflict(
                    &place,
                    "needs a name beside it (or remove it: then the card says where)",
                );
            }
            (None, Some((place, _)), _) => {
                return reading.report_conflict(
                    &place,
                    "needs `in` beside it (or remove it: then the card says where)",
                );
            }
        };
        let (at, value) = value?;
        sendable(&at, &value, reading).then_some(ApiKey { value, place })
    }
}

/// Returns the defect of the name of a key, if any.
pub(super) fn named(
    place: ApiKeyLocation,
    name: &str,
    shown: &[(HeaderName, ReloadableSecret)],
) -> Result<(), &'static str> {
    match place {
        ApiKeyLocation::Header => {
            let header =
                HeaderName::from_bytes(name.as_bytes()).map_err(|_| "names no header that could be sent")?;
            if is_reserved(&header) || header == COOKIE {
                return Err("names a header that cannot carry a key");
            }
            match shown.iter().any(|(other, _)| *other == header) {
                true => Err("names a header that is under headers too (remove one of them)"),
                false => Ok(()),
            }
        }
        // A token, as in cookies and headers.
        ApiKeyLocation::Cookie if HeaderName::from_bytes(name.as_bytes()).is_err() => {
            Err("names no cookie that could be sent")
        }
        ApiKeyLocation::Query if name.is_empty() => Err("names no member of a query"),
        ApiKeyLocation::Cookie | ApiKeyLocation::Query => Ok(()),
    }
}
