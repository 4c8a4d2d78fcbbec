//! `security.auth` of a manifest: a token or a key from the file, or tokens that are fetched.
//!
//! Reads only values that match the schema. See also `sections` for certificates.

use http::HeaderName;
use serde::Deserialize;

use super::sheet::ManifestReader;
use crate::config::file::{credentials, headers, oauth};
use crate::config::{
    AgentAuth, ApiKey, ApiKeyLocation, ApiKeyPlace, Authorization, ClientAuthMethod, Grant, OAuth2,
    ReloadableSecret,
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AuthFile {
    #[serde(rename = "type")]
    kind: AuthKind,
    token: Option<String>,
    value: Option<String>,
    #[serde(rename = "in")]
    place: Option<String>,
    name: Option<String>,
    token_url: Option<String>,
    client_id: Option<String>,
    client_secret: Option<String>,
    audience: Option<String>,
    resource: Option<String>,
    #[serde(default)]
    scopes: Vec<String>,
}

#[derive(Deserialize, Clone, Copy, PartialEq)]
enum AuthKind {
    #[serde(rename = "oauth2")]
    OAuth2,
    #[serde(rename = "apiKey")]
    ApiKey,
}

impl AuthFile {
    /// Converts a value to a header, or to a key elsewhere; with a token endpoint tokens are
    /// fetched.
    pub(super) fn resolve(
        self,
        has_identity: bool,
        all: &mut Vec<(HeaderName, ReloadableSecret)>,
        sheet: &mut ManifestReader<'_>,
    ) -> AgentAuth {
        let mut auth = AgentAuth::default();
        if let Some(url) = self.token_url.clone() {
            let oauth2 = self.fetched(url, has_identity, sheet);
            auth.authorization = oauth2.map(|oauth2| Authorization::OAuth2(Box::new(oauth2)));
            return auth;
        }
        let (pointer, secret) = match (self.token, self.value) {
            (Some(token), _) => ("/security/auth/token", token),
            (None, Some(value)) => ("/security/auth/value", value),
            (None, None) => return auth,
        };
        let place = match self.place.as_deref() {
            Some("query") => Some(("query", ApiKeyLocation::Query)),
            Some("cookie") => Some(("cookie", ApiKeyLocation::Cookie)),
            Some(_) | None => None,
        };
        if let Some((word, place)) = place {
            let Some(name) = self.name else {
                sheet.problem("/security/auth/name", format!("is missing: a {word} needs one"));
                return auth;
            };
            if let Err(problem) = credentials::named(place, &name, &[]) {
                sheet.problem("/security/auth/name", problem);
            }
            let place = ApiKeyPlace::Written(place, name);
            auth.api_keys.extend(sheet.live(pointer, secret).map(|value| ApiKey { value, place }));
            return auth;
        }
        let names_bearer = secret.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case("bearer "));
        let secret = match self.kind {
            AuthKind::OAuth2 if !names_bearer => format!("Bearer {secret}"),
            AuthKind::OAuth2 | AuthKind::ApiKey => secret,
        };
        let name = self.name.as_deref().unwrap_or("Authorization");
        let value = sheet.written(pointer, secret);
        headers::take(name, value, all, &mut sheet.reading);
        auth
    }

    /// Returns the settings of token requests: with the secret, or with the certificate of
    /// `security.mtls`.
    fn fetched(self, url: String, has_identity: bool, sheet: &mut ManifestReader<'_>) -> Option<OAuth2> {
        let (place, url) = sheet.one_line("/security/auth/tokenUrl", url)?;
        if let Err(problem) = oauth::endpoint(url.expose()) {
            sheet.reading.problem(&place, problem);
        }
        for (index, scope) in self.scopes.iter().enumerate() {
            if let Err(problem) = oauth::scope(scope) {
                sheet.problem(&format!("/security/auth/scopes/{index}"), problem);
            }
        }
        let client_id = sheet.one_line("/security/auth/clientId", self.client_id?)?;
        let proof = match self.client_secret {
            Some(secret) => ClientAuthMethod::SecretBasic(sheet.live("/security/auth/clientSecret", secret)?),
            None if has_identity => ClientAuthMethod::TlsClientAuth,
            None => {
                sheet.problem("/security/auth/clientSecret", "is missing (or enable security.mtls)");
                return None;
            }
        };
        Some(OAuth2 {
            token_url: url.expose().to_owned(),
            client_id: client_id.1.expose().to_owned(),
            proof,
            grant: Grant::ClientCredentials,
            scopes: self.scopes,
            audience: self.audience,
            resources: self.resource.into_iter().collect(),
            ca: None,
        })
    }
}
