//! Authentication: the credentials of a request become a [`Caller`], or a denial.
//!
//! Every request is authenticated by itself, never a connection: two requests on one can be of two
//! callers. Presented credentials must be valid, even if none are required. Out of scope: their
//! position in a request (see `access`), the TLS handshake (see `tls`).
//!
//! API keys are known by their SHA-256 only: they are random and long, so a plain hash is as good as
//! a slow one. One field of a certificate names its caller, as the configuration says; a certificate
//! with two values for it names no caller. Nor does a URI with the scheme of SPIFFE ids that is not
//! one, in any field: `spiffe://corp/a/../b` fits the patterns of a rule for `spiffe://corp/a/*`.

mod bearer;
mod claims;
mod issuer;

use std::collections::HashMap;
use std::sync::Arc;

use bearer::TokenIssuers;
use http::HeaderName;
use http::header::AUTHORIZATION;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::Caller;
use crate::auth::{AND, Identity};
use crate::config::{
    AllowList, ApiKeys, Auth, CertificateName, Mechanism, Require, RequireRule, check_spiffe_id,
    is_spiffe_uri,
};
use crate::transport::{HttpClient, TlsConfigError};

/// The credentials of a request.
#[derive(Debug, Default)]
pub(crate) struct PresentedCredentials<'a> {
    /// The facts of the client certificate, if there is one. It has been verified.
    pub(crate) certificate: Option<CertificateFacts<'a>>,
    /// The value of the header for API keys.
    pub(crate) api_key: Option<&'a [u8]>,
    /// The text after `Bearer` in `Authorization`.
    pub(crate) bearer: Option<&'a str>,
    /// The endpoint of the request.
    pub(crate) endpoint: Endpoint<'a>,
    /// True if an uncached token may be verified at a cost. Else it is rejected.
    pub(crate) may_cost: bool,
}

/// The endpoint of a request: a token may be for it alone.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Endpoint<'a> {
    /// The protocol of the endpoint.
    pub(crate) service: ServedProtocol,
    /// The agent; `None`: all of them.
    pub(crate) agent: Option<&'a str>,
}

/// A protocol that the gateway serves to clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ServedProtocol {
    /// For MCP clients.
    #[default]
    Mcp,
    /// For A2A clients.
    A2a,
}

impl ServedProtocol {
    /// Returns the path of the endpoint for all agents; those of single agents begin with it.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Mcp => "/mcp",
            Self::A2a => "/a2a",
        }
    }
}

/// The reason for which authentication failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Denied {
    /// Required credentials are missing.
    Missing,
    /// Presented credentials are invalid. The reason is not given: that would help an attacker.
    Bad,
    /// The token is valid and lacks scopes that every token must have.
    ScopesNeeded,
    /// The credentials cannot be verified now.
    Unavailable,
}

/// The reason for which the configuration of `auth` cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AuthProblem {
    /// The authorities of an issuer cannot be used.
    #[error("auth.tokens, {0}: {1}")]
    Trust(String, #[source] TlsConfigError),
    /// An address of an issuer cannot be used.
    #[error("auth.tokens, {0}: {1}")]
    Address(String, String),
}

/// The authenticator of callers. Clones share everything.
#[derive(Clone)]
pub(crate) struct Authenticator {
    inner: Arc<AuthenticatorInner>,
}

struct AuthenticatorInner {
    names: IdentityField,
    keys: Option<ApiKeyIndex>,
    tokens: Arc<TokenIssuers>,
    token_settings: TokenSettings,
    scopes: Vec<String>,
}

/// The settings that the verification of tokens depends on.
#[derive(PartialEq)]
struct TokenSettings {
    auth: Auth,
    public_url: Option<String>,
    outbound: AllowList,
}

impl TokenSettings {
    fn new(auth: &Auth, public_url: Option<&str>, outbound: &AllowList) -> Self {
        // Keys and certificates are verified elsewhere.
        let auth = Auth { api_keys: None, ..auth.clone() };
        Self { auth, public_url: public_url.map(str::to_owned), outbound: outbound.clone() }
    }
}

/// The result of one mechanism.
enum AuthAttempt {
    /// Its credentials are absent.
    None,
    /// They authenticate this caller.
    Of(Caller),
}

impl Authenticator {
    /// Creates the authenticator. No issuer is asked yet: see [`keep_fresh`](Self::keep_fresh).
    ///
    /// # Errors
    ///
    /// [`AuthProblem`] names the setting that cannot be used.
    pub(crate) fn new(
        auth: &Auth,
        public_url: Option<&str>,
        client: HttpClient,
        outbound: &Arc<AllowList>,
    ) -> Result<Self, AuthProblem> {
        let tokens = Arc::new(TokenIssuers::new(auth, public_url, client, outbound)?);
        Ok(Self::with(auth, tokens, TokenSettings::new(auth, public_url, outbound)))
    }

    /// Creates the authenticator of changed settings. If those of tokens are the same, so are the
    /// keys of the issuers and the tokens that have been verified.
    ///
    /// # Errors
    ///
    /// As [`Authenticator::new`].
    pub(crate) fn renewed(
        &self,
        auth: &Auth,
        public_url: Option<&str>,
        client: HttpClient,
        outbound: &Arc<AllowList>,
    ) -> Result<Self, AuthProblem> {
        let settings = TokenSettings::new(auth, public_url, outbound);
        if self.inner.token_settings == settings {
            return Ok(Self::with(auth, self.inner.tokens.clone(), settings));
        }
        Self::new(auth, public_url, client, outbound)
    }

    fn with(auth: &Auth, tokens: Arc<TokenIssuers>, token_settings: TokenSettings) -> Self {
        let inner = AuthenticatorInner {
            names: IdentityField::new(&auth.certificate),
            keys: auth.api_keys.as_ref().map(ApiKeyIndex::new),
            tokens,
            token_settings,
            scopes: auth.scopes.clone(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Returns the header that carries API keys, if there are any.
    pub(crate) fn key_header(&self) -> Option<&HeaderName> {
        self.inner.keys.as_ref().map(ApiKeyIndex::header)
    }

    /// Authenticates a caller.
    ///
    /// Waits for an issuer only if it must be asked: for an unknown key, or for introspection.
    ///
    /// # Errors
    ///
    /// [`Denied`].
    pub(crate) async fn authenticate(
        &self,
        require: &Require,
        shown: &PresentedCredentials<'_>,
    ) -> Result<Caller, Denied> {
        let mut proven: Option<Caller> = None;
        for mechanism in &require.of {
            let takes_tokens = require.of.contains(&Mechanism::Token);
            match self.authenticate_mechanism(*mechanism, shown, takes_tokens).await? {
                AuthAttempt::None if require.rule == RequireRule::All => return Err(Denied::Missing),
                AuthAttempt::None => {}
                AuthAttempt::Of(caller) => {
                    proven = Some(match proven {
                        Some(first) => first.and(&caller),
                        None => caller,
                    });
                }
            }
        }
        match (proven, require.rule) {
            (Some(caller), _) => Ok(caller),
            (None, RequireRule::None) => Ok(Caller::anonymous()),
            (None, RequireRule::Any | RequireRule::All) => Err(Denied::Missing),
        }
    }

    async fn authenticate_mechanism(
        &self,
        mechanism: Mechanism,
        shown: &PresentedCredentials<'_>,
        takes_tokens: bool,
    ) -> Result<AuthAttempt, Denied> {
        let inner = &self.inner;
        match mechanism {
            Mechanism::Certificate => match &shown.certificate {
                None => Ok(AuthAttempt::None),
                Some(facts) => inner.names.caller(facts).map(AuthAttempt::Of).ok_or(Denied::Bad),
            },
            Mechanism::ApiKey => match (shown.api_key, &inner.keys) {
                (Some(key), Some(keys)) => match keys.caller(key) {
                    Some(caller) => Ok(AuthAttempt::Of(caller)),
                    // If both use one header, it may be a token.
                    None if keys.is_bearer() && takes_tokens => Ok(AuthAttempt::None),
                    None => Err(Denied::Bad),
                },
                _ => Ok(AuthAttempt::None),
            },
            Mechanism::Token => self.verify_token(shown).await,
        }
    }

    async fn verify_token(&self, shown: &PresentedCredentials<'_>) -> Result<AuthAttempt, Denied> {
        let inner = &self.inner;
        let Some(token) = shown.bearer else { return Ok(AuthAttempt::None) };
        let is_key = |keys: &ApiKeyIndex| keys.is_bearer() && keys.caller(token.as_bytes()).is_some();
        if inner.keys.as_ref().is_some_and(is_key) {
            return Ok(AuthAttempt::None);
        }
        let caller = inner.tokens.caller(token, shown).await?;
        if inner.scopes.iter().all(|scope| caller.scopes().contains(scope)) {
            Ok(AuthAttempt::Of(caller))
        } else {
            Err(Denied::ScopesNeeded)
        }
    }

    /// Refreshes the keys of issuers, until it is dropped. To be run by the host's background
    /// service.
    pub(crate) fn keep_fresh(&self) -> impl Future<Output = ()> + Send + 'static {
        let tokens = self.inner.tokens.clone();
        async move { tokens.keep_fresh().await }
    }

    /// Returns true if the other authenticator has the same issuers, with their keys.
    pub(crate) fn has_issuers_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner.tokens, &other.inner.tokens)
    }
}

/// The maximum length of a key, in bytes.
const MAX_KEY_BYTES: usize = 512;

/// The keys of the configuration.
struct ApiKeyIndex {
    header: HeaderName,
    callers: HashMap<[u8; 32], Caller>,
}

impl ApiKeyIndex {
    fn new(settings: &ApiKeys) -> Self {
        let callers = settings.holders.iter().flat_map(|holder| {
            let identity = Identity { name: format!("key:{}", holder.name), ..Identity::default() };
            let caller = Caller::from(identity);
            holder.hashes.iter().map(move |hash| (*hash, caller.clone()))
        });
        Self { header: settings.header.clone(), callers: callers.collect() }
    }

    fn header(&self) -> &HeaderName {
        &self.header
    }

    /// Returns true if keys are in the same header as tokens.
    fn is_bearer(&self) -> bool {
        self.header == AUTHORIZATION
    }

    /// Returns the caller that a key names.
    fn caller(&self, key: &[u8]) -> Option<Caller> {
        if key.is_empty() || key.len() > MAX_KEY_BYTES {
            return None;
        }
        // The map finds a hash by a keyed hash of it, so its timing reveals nothing of the key; the
        // final comparison is constant in time.
        let hash: [u8; 32] = Sha256::digest(key).into();
        let (known, caller) = self.callers.get_key_value(&hash)?;
        bool::from(known.ct_eq(&hash)).then(|| caller.clone())
    }
}

/// The facts of a verified certificate about its owner.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CertificateFacts<'a> {
    /// URI SANs, as written.
    pub(crate) uris: &'a [String],
    /// DNS SANs, in lower case.
    pub(crate) dns_names: &'a [String],
    /// The common name of the subject.
    pub(crate) common_name: Option<&'a str>,
    /// Its SHA-256.
    pub(crate) thumbprint: [u8; 32],
}

/// The field that names the caller.
struct IdentityField(Vec<CertificateName>);

impl IdentityField {
    fn new(names: &[CertificateName]) -> Self {
        Self(names.to_vec())
    }

    /// Returns the owner of a certificate, by the first field that it has.
    fn caller(&self, facts: &CertificateFacts<'_>) -> Option<Caller> {
        let name = self.0.iter().find_map(|field| match field {
            CertificateName::Spiffe => {
                let id = single(facts.uris)?.filter(|uri| check_spiffe_id(uri).is_ok());
                Some(id.map(|id| format!("uri:{id}")))
            }
            CertificateName::Uri => {
                Some(single(facts.uris)?.filter(|uri| may_name(uri)).map(|uri| format!("uri:{uri}")))
            }
            CertificateName::Dns => Some(single(facts.dns_names)?.map(|name| format!("dns:{name}"))),
            CertificateName::CommonName => {
                facts.common_name.filter(|name| !name.is_empty()).map(|name| Some(format!("cn:{name}")))
            }
        })??;
        // A name that reads as two could be taken for a caller with both credentials.
        if name.contains(AND) {
            return None;
        }
        // An X.509-SVID has exactly one URI (X509-SVID §2): of several, no rule sees a SPIFFE id.
        let is_seen = |uri: &&String| !is_spiffe_uri(uri) || (facts.uris.len() == 1 && may_name(uri));
        let certificate = facts.uris.iter().filter(is_seen).chain(facts.dns_names).cloned().collect();
        Some(Caller::from(Identity { name, certificate, ..Identity::default() }))
    }
}

/// Returns the only value; `Some(None)` if there are several, so that none of them counts.
fn single(values: &[String]) -> Option<Option<&str>> {
    match values {
        [] => None,
        [one] => Some(Some(one.as_str()).filter(|one| !one.is_empty())),
        _ => Some(None),
    }
}

/// Returns true if a URI may name a caller: one with the scheme of SPIFFE ids must be one.
fn may_name(uri: &str) -> bool {
    !is_spiffe_uri(uri) || check_spiffe_id(uri).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ApiKeyOwner;
    use crate::transport::ClientLimits;

    #[tokio::test]
    async fn requirement_without_mechanism_rejects_all() {
        let client = HttpClient::new(ClientLimits::default());
        let outbound = Arc::new(AllowList::default());
        let unconfigured = Authenticator::new(&Auth::default(), None, client, &outbound).unwrap();
        for (rule, expected) in [
            (RequireRule::Any, Err(Denied::Missing)),
            (RequireRule::All, Err(Denied::Missing)),
            (RequireRule::None, Ok(Caller::anonymous())),
        ] {
            let require = Require { rule, of: Vec::new() };
            assert_eq!(
                unconfigured.authenticate(&require, &PresentedCredentials::default()).await,
                expected,
                "{rule:?}"
            );
        }
    }

    #[test]
    fn every_key_of_a_holder_names_it_and_no_other_does() {
        let hash = |key: &str| Sha256::digest(key.as_bytes()).into();
        let holder = |name: &str, keys: &[&str]| ApiKeyOwner {
            name: name.to_owned(),
            hashes: keys.iter().map(|key| hash(key)).collect(),
        };
        let header = HeaderName::from_static("x-api-key");
        let holders = vec![holder("ci", &["old", "new"]), holder("eve", &["hers"])];
        let keys = ApiKeyIndex::new(&ApiKeys { header, holders });
        for (key, name) in [
            ("old", Some("key:ci")),
            ("new", Some("key:ci")),
            ("hers", Some("key:eve")),
            ("", None),
            ("ol", None),
            ("old ", None),
        ] {
            let caller = keys.caller(key.as_bytes());
            assert_eq!(caller.as_ref().map(Caller::name), name, "{key:?}");
        }
        assert!(keys.caller(&[b'x'; MAX_KEY_BYTES + 1]).is_none());
    }

    #[test]
    fn two_values_of_the_naming_field_name_no_caller() {
        use CertificateName::{CommonName, Dns, Spiffe, Uri};
        let strings = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
        for (fields, uris, dns, common, expected) in [
            (vec![Spiffe], &["spiffe://corp/a"][..], &[][..], Some("x"), Some("uri:spiffe://corp/a")),
            (vec![CommonName], &[], &[], Some("R&D"), Some("cn:R&D")),
            (vec![CommonName], &[], &[], Some("app & key:ci"), None),
            (vec![Spiffe], &["https://corp/a"], &[], Some("x"), None),
            (vec![Spiffe], &["spiffe://corp/a", "spiffe://corp/b"], &[], None, None),
            (vec![Spiffe, Dns], &["spiffe://corp/a", "spiffe://corp/b"], &["d"], None, None),
            (vec![Spiffe, Dns], &[], &["d.example"], None, Some("dns:d.example")),
            (vec![Dns], &[], &["a", "b"], Some("x"), None),
            (vec![Dns, CommonName], &[], &[], Some("x"), Some("cn:x")),
            (vec![Uri], &["urn:x"], &[], None, Some("uri:urn:x")),
            (vec![Uri], &["spiffe://corp/a"], &[], None, Some("uri:spiffe://corp/a")),
            (vec![Uri], &["spiffe://corp/a/../b"], &[], None, None),
            (vec![Uri, CommonName], &["Spiffe://corp/a"], &[], Some("x"), None),
            (vec![Spiffe], &["spiffe://corp/a/"], &[], None, None),
            (vec![CommonName], &["urn:x"], &[], Some(""), None),
            (vec![Dns], &["urn:x"], &[], Some("d.example"), None),
        ] {
            let (uris, dns_names) = (strings(uris), strings(dns));
            let facts = CertificateFacts {
                uris: &uris,
                dns_names: &dns_names,
                common_name: common,
                thumbprint: [0; 32],
            };
            let caller = IdentityField::new(&fields).caller(&facts);
            assert_eq!(caller.as_ref().map(Caller::name), expected, "{fields:?} {uris:?} {dns_names:?}");
        }
    }

    /// Rules see the SANs of a certificate beside the one that names its owner.
    #[test]
    fn rules_see_no_malformed_spiffe_id() {
        for (uris, seen) in [
            (&["spiffe://corp/a"][..], &["spiffe://corp/a", "d"][..]),
            (&["spiffe://corp/a/../b"], &["d"]),
            (&["spiffe://corp/a", "urn:x"], &["urn:x", "d"]),
        ] {
            let uris: Vec<String> = uris.iter().map(|uri| (*uri).to_owned()).collect();
            let facts = CertificateFacts {
                uris: &uris,
                dns_names: &["d".to_owned()],
                common_name: None,
                thumbprint: [0; 32],
            };
            let caller = IdentityField::new(&[CertificateName::Dns]).caller(&facts).unwrap();
            assert_eq!(caller.certificate(), seen, "{uris:?}");
        }
    }
}
