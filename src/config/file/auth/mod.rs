//! `auth` as in the file: the mechanisms of authentication.
//!
//! Out of scope: the requirements of a listener (see `listener`), the permissions of callers (see
//! `rules`).

mod keys;
mod require;
mod tokens;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use self::keys::ApiKeysFile;
pub(super) use self::require::{RequireFile, resolve as require};
use self::tokens::TokenFile;
use crate::config::resolve::ResolveContext;
use crate::config::spanned::{Location, OneOrMany, Spanned};
use crate::config::{Auth, CertificateName};

/// How clients prove who they are.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
#[schemars(
    rename = "Auth",
    extend("anyOf" = [{ "required": ["certificate"] }, { "required": ["api_keys"] }, { "required": ["tokens"] }])
)]
pub(super) struct AuthFile {
    /// Client certificates.
    certificate: Spanned<CertificateFile>,
    /// API keys.
    api_keys: Spanned<ApiKeysFile>,
    /// Issuers of bearer tokens.
    #[schemars(length(min = 1))]
    tokens: Spanned<Vec<Spanned<TokenFile>>>,
    /// Scopes that every bearer token must have. Without it: none.
    scopes: Spanned<Vec<Spanned<String>>>,
    /// Scopes that a scope includes besides itself, for example `admin: [read, write]`.
    scope_hierarchy: Spanned<BTreeMap<String, Spanned<Vec<Spanned<String>>>>>,
}

/// Client certificates.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "CertificateNames")]
struct CertificateFile {
    /// Which field names the caller: `spiffe` (the URI SAN, which must be a SPIFFE id), `uri`, `dns` (SANs) or `common_name` (of
    /// the subject); or a list, of which the first that the certificate has counts. A certificate with two values for it names
    /// nobody.
    name: Spanned<OneOrMany<Spanned<NameFile>>>,
}

#[derive(Deserialize, JsonSchema, Clone, Copy)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "CertificateName")]
enum NameFile {
    Spiffe,
    Uri,
    Dns,
    CommonName,
}

impl AuthFile {
    /// Resolves the section. Tokens must be issued for `public_url`, if the file names no audience.
    pub(super) fn resolve(
        self,
        section: &Location,
        public_url: Option<&str>,
        reading: &mut ResolveContext<'_>,
    ) -> Auth {
        if [self.certificate.place(), self.api_keys.place(), self.tokens.place()].iter().all(Option::is_none)
        {
            reading
                .problem(section, "names no way to prove who one is (write certificate, api_keys or tokens)");
        }
        let certificate =
            self.certificate.take().map(|(place, file)| file.resolve(&place, reading)).unwrap_or_default();
        let tokens = self.tokens.take().map(|(place, list)| {
            if list.is_empty() {
                reading.problem(&place, "is an empty list (name an issuer, or remove it)");
            }
            tokens::resolve(list, public_url, reading)
        });
        Auth {
            certificate,
            api_keys: self.api_keys.take().and_then(|(place, file)| file.resolve(&place, reading)),
            tokens: tokens.unwrap_or_default(),
            scopes: scopes(self.scopes, reading),
            scope_hierarchy: self.scope_hierarchy.value().map_or_else(BTreeMap::new, |written| {
                written.into_iter().map(|(scope, below)| (scope, scopes(below, reading))).collect()
            }),
        }
    }
}

impl CertificateFile {
    fn resolve(self, section: &Location, reading: &mut ResolveContext<'_>) -> Vec<CertificateName> {
        let hint = "write spiffe, uri, dns or common_name";
        let Some((place, OneOrMany(names))) = reading.required(self.name, section, "name", hint) else {
            return Vec::new();
        };
        if names.is_empty() {
            reading.problem(&place, format!("is an empty list ({hint})"));
        }
        let names = names.into_iter().filter_map(Spanned::value).map(|name| match name {
            NameFile::Spiffe => CertificateName::Spiffe,
            NameFile::Uri => CertificateName::Uri,
            NameFile::Dns => CertificateName::Dns,
            NameFile::CommonName => CertificateName::CommonName,
        });
        names.collect()
    }
}

/// Reads scopes: tokens of RFC 6749 §3.3, since they go into a header.
pub(super) fn scopes(
    written: Spanned<Vec<Spanned<String>>>,
    reading: &mut ResolveContext<'_>,
) -> Vec<String> {
    let mut scopes = Vec::new();
    for (place, scope) in written.value().unwrap_or_default().into_iter().filter_map(Spanned::take) {
        let fits = |byte: u8| matches!(byte, 0x21 | 0x23..=0x5b | 0x5d..=0x7e);
        if scope.is_empty() || !scope.bytes().all(fits) {
            reading.problem(&place, "is not a scope (visible ASCII without spaces, quotes and backslashes)");
        }
        scopes.push(scope);
    }
    scopes
}
