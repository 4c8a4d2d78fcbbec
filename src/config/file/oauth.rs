//! `agents.NAME.auth.oauth2` as in the file.

use http::Uri;
use schemars::JsonSchema;
use serde::Deserialize;

use super::gateway::checked;
use super::url;
use crate::config::pem::{self, PemFile, PemKind};
use crate::config::reference::{self, Template};
use crate::config::reloadable_secret::ReloadableSecret;
use crate::config::resolve::ResolveContext;
use crate::config::spanned::{Location, OneOrMany, Spanned};
use crate::config::{ClientAuthMethod, Grant, OAuth2, Pem, signing_key};

/// Bearer tokens that the gateway fetches from a token endpoint (RFC 6749).
#[derive(Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "AgentOAuth2", extend("required" = ["token_url", "client_id"]))]
pub(super) struct OAuth2File {
    /// The token endpoint: `https`, or `http` on loopback.
    token_url: Spanned<String>,
    /// The gateway's name there.
    client_id: Spanned<String>,
    /// The gateway's secret there. References are accepted.
    client_secret: Spanned<Template>,
    /// How the gateway proves itself there. Without it: `client_secret_basic` with a `client_secret`, `private_key_jwt` with a
    /// `private_key`. `tls_client_auth` shows the agent's client certificate.
    auth_method: Spanned<MethodFile>,
    /// The key that signs for `private_key_jwt`: RSA, P-256, P-384 or Ed25519.
    private_key: Spanned<PemFile>,
    /// The id (`kid`) of `private_key` there.
    key_id: Spanned<String>,
    /// What is asked for: the gateway's own token (`client_credentials`), or one that the caller's bearer token is exchanged for
    /// (`token_exchange`, RFC 8693).
    #[schemars(extend("default" = "client_credentials"))]
    grant: Spanned<GrantFile>,
    /// Scopes to ask for.
    #[schemars(extend("default" = []))]
    scopes: Spanned<Vec<Spanned<String>>>,
    /// Audience to ask for.
    audience: Spanned<String>,
    /// Resource to ask for (RFC 8707), or a list of them: URLs.
    resource: Spanned<OneOrMany<Spanned<String>>>,
    /// The only roots to trust at the token endpoint. Without it: the system's.
    ca: Spanned<PemFile>,
}

/// How the gateway proves itself to a token endpoint.
#[derive(Deserialize, JsonSchema, Clone, Copy, PartialEq)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "ClientAuthMethod")]
enum MethodFile {
    ClientSecretBasic,
    ClientSecretPost,
    PrivateKeyJwt,
    TlsClientAuth,
}

/// Whose token an agent gets.
#[derive(Deserialize, JsonSchema, Clone, Copy)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "OAuth2Grant")]
enum GrantFile {
    ClientCredentials,
    TokenExchange,
}

impl OAuth2File {
    pub(super) fn resolve(
        self,
        section: &Location,
        has_identity: bool,
        reading: &mut ResolveContext<'_>,
    ) -> Option<OAuth2> {
        let token_url =
            reading.required(self.token_url, section, "token_url", "write the URL of the token endpoint");
        let token_url = token_url.and_then(|(place, url)| {
            endpoint(&url).map_or_else(|problem| reading.report_conflict(&place, problem), |()| Some(url))
        });
        let client_id =
            reading.required(self.client_id, section, "client_id", "write the gateway's name there");
        let client_id =
            client_id.and_then(|(place, id)| match id.is_empty() || id.contains(['\r', '\n', '\0']) {
                true => reading.report_conflict(&place, "is not a name of a client"),
                false => Some(id),
            });
        let secret_at = self.client_secret.place().cloned();
        let key_at = self.private_key.place().cloned();
        let secret = reference::live(self.client_secret, reading).map(|(_, secret)| secret);
        let key = pem::resolve(self.private_key, PemKind::Key, reading)
            .and_then(|(place, key)| signs(&place, key, reading));
        let proof = ClientProofFile {
            method: self.auth_method.take(),
            secret: secret_at.map(|place| (place, secret)),
            key: key_at.map(|place| (place, key)),
            key_id: self.key_id.take(),
        };
        let proof = proof.resolve(section, has_identity, reading);
        let resources = self.resource.take().map(|(_, OneOrMany(resources))| resources).unwrap_or_default();
        let resources: Vec<String> = resources
            .into_iter()
            .filter_map(Spanned::take)
            .filter_map(|(place, text)| match text.parse::<Uri>() {
                Ok(uri) if uri.scheme().is_some() && !text.contains('#') => Some(text),
                _ => reading.report_conflict(&place, "is not a URL without a fragment"),
            })
            .collect();
        Some(OAuth2 {
            scopes: checked(self.scopes, scope, reading).unwrap_or_default(),
            ca: pem::resolve(self.ca, PemKind::Certificates, reading).map(|(_, ca)| ca),
            token_url: token_url?,
            client_id: client_id?,
            proof: proof?,
            grant: match self.grant.value() {
                Some(GrantFile::TokenExchange) => Grant::TokenExchange,
                Some(GrantFile::ClientCredentials) | None => Grant::ClientCredentials,
            },
            audience: self.audience.value(),
            resources,
        })
    }
}

/// The keys of client authentication, each with its location; a wrong value is absent.
struct ClientProofFile {
    method: Option<(Location, MethodFile)>,
    secret: Option<(Location, Option<ReloadableSecret>)>,
    key: Option<(Location, Option<Pem>)>,
    key_id: Option<(Location, String)>,
}

impl ClientProofFile {
    fn resolve(
        self,
        section: &Location,
        has_identity: bool,
        reading: &mut ResolveContext<'_>,
    ) -> Option<ClientAuthMethod> {
        let (place, method) = match (&self.method, &self.secret, &self.key) {
            (Some((place, method)), ..) => (place.clone(), *method),
            (None, Some((place, _)), _) => (place.clone(), MethodFile::ClientSecretBasic),
            (None, None, Some((place, _))) => (place.clone(), MethodFile::PrivateKeyJwt),
            (None, None, None) => {
                let hint = "is missing (or write private_key, or auth_method: tls_client_auth)";
                return reading.report_conflict(&section.child("client_secret"), hint);
            }
        };
        let needs_secret = matches!(method, MethodFile::ClientSecretBasic | MethodFile::ClientSecretPost);
        let needs_key = method == MethodFile::PrivateKeyJwt;
        let surplus = [
            self.secret.as_ref().map(|(place, _)| place).filter(|_| !needs_secret),
            self.key.as_ref().map(|(place, _)| place).filter(|_| !needs_key),
            self.key_id.as_ref().map(|(place, _)| place).filter(|_| !needs_key),
        ];
        for place in surplus.into_iter().flatten() {
            reading.problem(place, "is not for this auth_method (remove it)");
        }
        let missing = |at: &str, reading: &mut ResolveContext<'_>| {
            reading.report_conflict(&section.child(at), "is missing (the auth_method needs it)")
        };
        match method {
            MethodFile::ClientSecretBasic | MethodFile::ClientSecretPost => {
                let Some((_, secret)) = self.secret else { return missing("client_secret", reading) };
                let secret = secret?;
                Some(match method {
                    MethodFile::ClientSecretPost => ClientAuthMethod::SecretPost(secret),
                    _ => ClientAuthMethod::SecretBasic(secret),
                })
            }
            MethodFile::PrivateKeyJwt => {
                let Some((_, key)) = self.key else { return missing("private_key", reading) };
                Some(ClientAuthMethod::PrivateKeyJwt { key: key?, key_id: self.key_id.map(|(_, id)| id) })
            }
            MethodFile::TlsClientAuth if !has_identity => {
                reading.report_conflict(&place, "needs the agent's tls.certificate and tls.key")
            }
            MethodFile::TlsClientAuth => Some(ClientAuthMethod::TlsClientAuth),
        }
    }
}

/// Checks the URL of a token endpoint, which gets secrets: no plain HTTP, except to this machine.
pub(super) fn endpoint(text: &str) -> Result<(), String> {
    let uri = url::web(text)?;
    let host = uri.host().unwrap_or_default();
    let is_here = matches!(host, "localhost" | "[::1]")
        || host.parse::<std::net::Ipv4Addr>().is_ok_and(|address| address.is_loopback());
    if uri.scheme_str() == Some("https") || is_here {
        Ok(())
    } else {
        Err("is http, and secrets would travel in the open (write https)".to_owned())
    }
}

pub(super) fn scope(text: &str) -> Result<(), String> {
    let fits = |each: u8| each.is_ascii_graphic() && !matches!(each, b'"' | b'\\');
    match !text.is_empty() && text.bytes().all(fits) {
        true => Ok(()),
        false => Err("is not a scope (one word, without quotes and backslashes)".to_owned()),
    }
}

fn signs(place: &Location, key: Pem, reading: &mut ResolveContext<'_>) -> Option<Pem> {
    match signing_key(&key) {
        Some(_) => Some(key),
        None => reading.report_conflict(
            place,
            "is no key that can sign (RSA, P-256, P-384 or Ed25519; EC keys in PKCS#8)",
        ),
    }
}
