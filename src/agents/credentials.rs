//! The credentials of an agent outside of calls, as its card requires them; and the check that the
//! configuration satisfies the card.
//!
//! Follows `docs/spec/a2a.md §3.1`: requirements are an OR of ANDs, a skill may have its own. See
//! `resolved` for calls.

use std::collections::BTreeSet;

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::uri::PathAndQuery;
use http::{HeaderName, Request};

use super::agent::Agent;
use crate::a2a::{AgentCard, ApiKeyLocation, SchemeKind, SecurityRequirement, SecurityScheme};
use crate::auth::{AccessToken, CardKey, TokenUnavailable};
use crate::config::{AgentMethod, ApiKeyPlace, Authorization};

impl Agent {
    /// Returns a token for a request on no caller's behalf: that for the card. Without one the
    /// request is sent all the same, since most cards are public.
    pub(super) async fn token(&self) -> Option<AccessToken> {
        let tokens = self.credentials.tokens().filter(|tokens| !tokens.is_on_behalf())?;
        let mut pass = std::pin::pin!(tokens.pass(None));
        match tokio::time::timeout(self.settings.timeouts.connect, &mut pass).await {
            Ok(pass) => pass.ok(),
            Err(_) => {
                // A client that waits for the first card fetch does not wait for a token endpoint.
                self.looked();
                pass.await.ok()
            }
        }
    }

    /// Returns the reason for which the gateway has no token of its own for this agent, if it must
    /// have one.
    pub async fn token_problem(&self) -> Option<String> {
        let tokens = self.credentials.tokens().filter(|tokens| !tokens.is_on_behalf())?;
        let no_token = tokens.pass(None).await.err().map(TokenUnavailable::why);
        no_token.map(|why| format!("auth.oauth2: no token: {why}"))
    }

    /// Replaces a rejected token, if another could be better.
    pub(super) async fn refresh_token(&self, refused: &AccessToken) -> Option<AccessToken> {
        self.credentials.tokens()?.replace_rejected(refused, None).await.ok().flatten()
    }

    /// Sets the path and the credentials of a request that is no call.
    pub(super) fn apply_credentials(
        &self,
        request: &mut Request<Bytes>,
        path: &PathAndQuery,
        pass: Option<&AccessToken>,
    ) -> Result<(), &'static str> {
        let shown = self.credentials.request_credentials();
        *request.uri_mut() = shown.keyed(path)?.into();
        shown.apply(AgentMethod::Other, request.headers_mut());
        if let Some(pass) = pass {
            request.headers_mut().insert(AUTHORIZATION, pass.value().clone());
        }
        Ok(())
    }

    /// Applies the positions of API keys on a card, and returns the requirements of the card that
    /// the configuration does not satisfy.
    pub fn credential_problems(&self, card: &AgentCard) -> Vec<String> {
        let keys = card.security_schemes.iter().filter_map(|scheme| match &scheme.kind {
            SchemeKind::ApiKey { place, name } => {
                Some(CardKey { scheme: scheme.name.clone(), place: *place, name: name.clone() })
            }
            _ => None,
        });
        let mut problems = self.credentials.place(keys.collect());
        problems.extend(self.lacks(card, &card.security).map(|lacks| format!("the card {lacks}")));
        for skill in &card.skills {
            // The requirements that a skill shares with the card are reported already.
            let own = Some(&skill.security).filter(|own| **own != card.security);
            let lacks = own.and_then(|own| self.lacks(card, own));
            problems.extend(lacks.map(|lacks| format!("skill {:?} of the card {lacks}", skill.id)));
        }
        problems
    }

    /// Describes the missing credentials, if none of these alternatives is satisfied.
    fn lacks(&self, card: &AgentCard, alternatives: &[SecurityRequirement]) -> Option<String> {
        let scheme = |name: &str| card.security_schemes.iter().find(|scheme| scheme.name == name);
        let lacking = |alternative: &SecurityRequirement| -> BTreeSet<String> {
            let lacking = alternative
                .schemes
                .iter()
                .filter(|(name, _)| !scheme(name).is_some_and(|scheme| self.satisfies(scheme)));
            lacking
                .map(|(name, _)| scheme(name).map_or_else(|| format!("{name} (not on the card)"), describe))
                .collect()
        };
        let all: Vec<BTreeSet<String>> = alternatives.iter().map(lacking).collect();
        if all.is_empty() || all.iter().any(BTreeSet::is_empty) {
            return None;
        }
        let all: Vec<String> =
            all.into_iter().map(|lacking| lacking.into_iter().collect::<Vec<_>>().join(" and ")).collect();
        Some(format!("asks for {}, which the configuration does not give", all.join(", or ")))
    }

    /// Returns true if the configuration satisfies a scheme.
    fn satisfies(&self, scheme: &SecurityScheme) -> bool {
        let settings = &self.settings;
        let header = |wanted: &HeaderName| settings.headers.iter().find(|(name, _)| name == wanted);
        let authorization = header(&AUTHORIZATION).map(|(_, secret)| secret.expose());
        let is = |scheme: &str| {
            let given = authorization.and_then(|text| text.split_once(' ')).map(|(given, _)| given);
            given.is_some_and(|given| given.eq_ignore_ascii_case(scheme))
        };
        let bearer = || {
            let given = settings.auth.authorization.as_ref();
            is("bearer") || given.is_some_and(|given| !matches!(given, Authorization::Basic { .. }))
        };
        match &scheme.kind {
            SchemeKind::ApiKey { place, name } => {
                let is_header =
                    HeaderName::from_bytes(name.as_bytes()).is_ok_and(|name| header(&name).is_some());
                let is_cookie = header(&http::header::COOKIE).is_some();
                let keys = &settings.auth.api_keys;
                (*place == ApiKeyLocation::Header && is_header)
                    || (*place == ApiKeyLocation::Cookie && is_cookie)
                    || keys.iter().any(|key| match &key.place {
                        ApiKeyPlace::Written(at, under) => at == place && same(*place, under, name),
                        ApiKeyPlace::Card(Some(wanted)) => *wanted == scheme.name,
                        ApiKeyPlace::Card(None) => true,
                    })
            }
            SchemeKind::Http { scheme } if scheme == "basic" => {
                is("basic") || matches!(settings.auth.authorization, Some(Authorization::Basic { .. }))
            }
            SchemeKind::Http { scheme } if scheme == "bearer" => bearer(),
            SchemeKind::Http { scheme } => is(scheme),
            SchemeKind::OAuth2 | SchemeKind::OpenIdConnect => bearer(),
            SchemeKind::MutualTls => settings.tls.certificate.is_some(),
            SchemeKind::Unknown(_) => false,
        }
    }
}

fn same(place: ApiKeyLocation, one: &str, other: &str) -> bool {
    if place == ApiKeyLocation::Header { one.eq_ignore_ascii_case(other) } else { one == other }
}

/// Describes a scheme, with the setting that satisfies it.
fn describe(scheme: &SecurityScheme) -> String {
    let name = &scheme.name;
    match &scheme.kind {
        SchemeKind::ApiKey { .. } => format!("{name} (an API key: auth.api_key)"),
        SchemeKind::Http { scheme } if scheme == "basic" => format!("{name} (HTTP Basic: auth.basic)"),
        SchemeKind::Http { scheme } if scheme == "bearer" => {
            format!("{name} (a bearer token: auth.bearer or auth.oauth2)")
        }
        SchemeKind::Http { scheme } => format!("{name} (HTTP {scheme}: headers.Authorization)"),
        SchemeKind::OAuth2 => format!("{name} (OAuth 2: auth.oauth2)"),
        SchemeKind::OpenIdConnect => format!("{name} (OpenID Connect: auth.oauth2)"),
        SchemeKind::MutualTls => format!("{name} (a client certificate: tls.certificate)"),
        SchemeKind::Unknown(kind) => format!("{name} (the unknown kind {kind:?})"),
    }
}
