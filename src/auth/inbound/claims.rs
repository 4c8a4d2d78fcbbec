//! An access token: a JWT in its compact form (RFC 7515 §7.1) and the requirements of its
//! header, and the claims of it, or of an issuer's answer about one (RFC 7519 §4.1, RFC 7662 §2.2):
//! their validity now, and the caller that they name.
//!
//! Pure. See `bearer` for the signature and for the audience, which depends on the endpoint.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::Algorithm;
use serde_json::{Map, Value};

use crate::auth::{AND, Caller, Identity, UnreadableClaims};
use crate::config::{TokenIssuer, TokenVerification};

/// The maximum number of scopes or groups of one token, and the maximum length of each, in bytes.
const MAX_VALUES: usize = 256;
const MAX_VALUE_BYTES: usize = 256;
/// The maximum length of a subject, in bytes: it becomes part of names.
const LONGEST_SUBJECT: usize = 256;

/// Claims that show that a user took part, so that the token is not the client's own. Members of
/// OpenID Connect Core §5.1 and RFC 7662 §2.2, actors of RFC 8693 §4, and names that large issuers
/// use.
const OF_USERS: [&str; 21] = [
    "sub",
    "username",
    "user_name",
    "preferred_username",
    "user_id",
    "user",
    "oid",
    "uid",
    "upn",
    "unique_name",
    "login",
    "email",
    "phone_number",
    "name",
    "nickname",
    "given_name",
    "family_name",
    "auth_time",
    "sid",
    "amr",
    "act",
];

/// A caller, and the validity of its token.
pub(super) struct VerifiedToken {
    pub(super) caller: Caller,
    /// The issuer of the token.
    pub(super) issuer: String,
    audience: Vec<String>,
    /// Seconds since 1970.
    pub(super) expires: Option<u64>,
    /// The SHA-256 of the only client certificate with which the token may be used.
    certificate: Option<[u8; 32]>,
}

/// The mapping from the claims of one issuer to a caller.
pub(super) struct ClaimsMapper {
    issuer: String,
    /// True if `iss` and `exp` are required: in a JWT they are; in an issuer's answer they are
    /// checked if present.
    is_jwt: bool,
    /// The tolerance for the issuer's clock, in seconds.
    leeway: u64,
    /// True if a token without a subject names its client.
    takes_clients: bool,
    scope_claim: String,
    groups_claim: String,
    hierarchy: BTreeMap<String, Vec<String>>,
}

impl ClaimsMapper {
    pub(super) fn new(issuer: &TokenIssuer, hierarchy: &BTreeMap<String, Vec<String>>) -> Self {
        Self {
            issuer: issuer.issuer.clone(),
            is_jwt: matches!(issuer.check, TokenVerification::Signature { .. }),
            leeway: issuer.leeway.as_secs(),
            takes_clients: issuer.client_tokens,
            scope_claim: issuer.scope_claim.clone(),
            groups_claim: issuer.groups_claim.clone(),
            hierarchy: hierarchy.clone(),
        }
    }

    /// Returns the caller that the claims name at `now`, in seconds since 1970.
    ///
    /// # Errors
    ///
    /// [`ClaimsError`] if they name none, are not valid then, or cannot be read.
    pub(super) fn read(&self, claims: &Map<String, Value>, now: u64) -> Result<VerifiedToken, ClaimsError> {
        self.check_issuer(claims)?;
        let expires = self.end(claims, now)?;
        let certificate = certificate(claims)?;
        let audience = claims.get("aud").map_or(Ok(Some(Vec::new())), |aud| string_or_list(aud, false))?;
        let scopes = listed(claims, &self.scope_claim, true)?;
        let groups = listed(claims, &self.groups_claim, false)?;
        let identity = Identity {
            name: self.name(claims).ok_or(ClaimsError)?,
            parts: Vec::new(),
            certificate: Vec::new(),
            unclear: UnreadableClaims { scopes: scopes.is_none(), groups: groups.is_none() },
            scopes: self.with_included(scopes.unwrap_or_default()),
            groups: groups.unwrap_or_default(),
            has_token: true,
        };
        Ok(VerifiedToken {
            caller: Caller::from(identity),
            issuer: self.issuer.clone(),
            audience: audience.ok_or(ClaimsError)?,
            expires,
            certificate,
        })
    }

    /// Returns the name of the caller: of the subject, or of the client if no user took part. The
    /// two have nothing in common, so that no client is taken for a user with the same name.
    fn name(&self, claims: &Map<String, Value>) -> Option<String> {
        // `null` names no user.
        let is_there = |name: &&str| claims.get(*name).is_some_and(|value| !value.is_null());
        let (kind, claim) = match OF_USERS.iter().any(is_there) {
            true => ("token", "sub"),
            false if self.takes_clients => ("client", "client_id"),
            false => return None,
        };
        let name = claims.get(claim).and_then(Value::as_str)?;
        // A name that reads as two could be taken for a caller with both credentials.
        let fits = !name.is_empty()
            && name.len() <= LONGEST_SUBJECT
            && !name.chars().any(char::is_control)
            && !name.contains(AND);
        fits.then(|| format!("{kind}:{}#{name}", self.issuer))
    }

    fn check_issuer(&self, claims: &Map<String, Value>) -> Result<(), ClaimsError> {
        match claims.get("iss") {
            None if !self.is_jwt => Ok(()),
            Some(Value::String(issuer)) if *issuer == self.issuer => Ok(()),
            _ => Err(ClaimsError),
        }
    }

    /// Returns the end of a token that is valid at `now`, if it has one.
    fn end(&self, claims: &Map<String, Value>, now: u64) -> Result<Option<u64>, ClaimsError> {
        let (expires, begins) = (time(claims, "exp")?, time(claims, "nbf")?);
        let is_over = expires.map_or(self.is_jwt, |at| at.saturating_add(self.leeway) <= now);
        let is_early = begins.is_some_and(|at| at > now.saturating_add(self.leeway));
        if is_over || is_early { Err(ClaimsError) } else { Ok(expires) }
    }

    /// Returns the scopes with all that they include, at any depth.
    fn with_included(&self, scopes: Vec<String>) -> Vec<String> {
        let mut all: BTreeSet<String> = BTreeSet::new();
        let mut open = scopes;
        while let Some(scope) = open.pop() {
            if let Some(below) = self.hierarchy.get(&scope)
                && !all.contains(&scope)
            {
                open.extend_from_slice(below);
            }
            all.insert(scope);
        }
        all.into_iter().collect()
    }
}

impl VerifiedToken {
    /// Returns true if the token was issued for one of these.
    pub(super) fn is_for(&self, is_ours: impl Fn(&str) -> bool) -> bool {
        self.audience.iter().any(|audience| is_ours(audience))
    }

    /// Returns true if the token may be used by a client with a certificate of this thumbprint, or
    /// without one.
    pub(super) fn is_usable_with(&self, thumbprint: Option<[u8; 32]>) -> bool {
        self.certificate.is_none() || self.certificate == thumbprint
    }
}

/// Returns the texts that a claim lists, none if it is absent; `Ok(None)` if they are unknown: the
/// claim has another shape, or is elsewhere (OpenID Connect Core §5.6.2), as for a user in too many
/// groups.
///
/// # Errors
///
/// [`ClaimsError`] if there are more than the limit: a rule might deny by the rest.
fn listed(
    claims: &Map<String, Value>,
    name: &str,
    is_spaced: bool,
) -> Result<Option<Vec<String>>, ClaimsError> {
    let is_elsewhere = claims
        .get("_claim_names")
        .is_some_and(|names| names.as_object().is_none_or(|names| names.contains_key(name)));
    let Some(claim) = claims.get(name) else { return Ok((!is_elsewhere).then(Vec::new)) };
    Ok(string_or_list(claim, is_spaced)?.filter(|_| !is_elsewhere))
}

/// Parses a list of texts, or a text: with spaces between words, or as it is. `None`: it is
/// neither.
fn string_or_list(claim: &Value, is_spaced: bool) -> Result<Option<Vec<String>>, ClaimsError> {
    let words: Option<Vec<&str>> = match claim {
        Value::String(text) if is_spaced => Some(text.split(' ').filter(|word| !word.is_empty()).collect()),
        Value::String(text) => Some(vec![text]),
        Value::Array(list) => list.iter().map(Value::as_str).collect(),
        _ => None,
    };
    let Some(words) = words else { return Ok(None) };
    let fits = words.len() <= MAX_VALUES && words.iter().all(|word| word.len() <= MAX_VALUE_BYTES);
    if fits { Ok(Some(words.into_iter().map(str::to_owned).collect())) } else { Err(ClaimsError) }
}

/// Claims that name no caller, are not valid, or cannot be read.
#[derive(Debug)]
pub(super) struct ClaimsError;

/// Returns a time in a claim: seconds since 1970, perhaps with a fraction. An unreadable time is
/// not taken as absent.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to fit")]
fn time(claims: &Map<String, Value>, name: &str) -> Result<Option<u64>, ClaimsError> {
    let Some(value) = claims.get(name) else { return Ok(None) };
    let fits = |time: &f64| (0.0..1e15).contains(time);
    value.as_f64().filter(fits).map(|time| Some(time as u64)).ok_or(ClaimsError)
}

/// Returns the certificate that a token is bound to (RFC 8705 §3.1). Another confirmation, such as
/// the key of a DPoP proof (`jkt`), is not checked here, so that such a token is no bearer token
/// (RFC 7800 §3.1).
fn certificate(claims: &Map<String, Value>) -> Result<Option<[u8; 32]>, ClaimsError> {
    let Some(confirmation) = claims.get("cnf") else { return Ok(None) };
    let members = confirmation.as_object().filter(|members| members.len() == 1).ok_or(ClaimsError)?;
    let thumbprint = members.get("x5t#S256").and_then(Value::as_str).ok_or(ClaimsError)?;
    let thumbprint = URL_SAFE_NO_PAD.decode(thumbprint).map_err(|_| ClaimsError)?;
    thumbprint.try_into().map(Some).map_err(|_| ClaimsError)
}

#[cfg(test)]
impl Default for VerifiedToken {
    fn default() -> Self {
        Self {
            caller: Caller::anonymous(),
            issuer: String::new(),
            audience: Vec::new(),
            expires: None,
            certificate: None,
        }
    }
}

/// Members of a header that require an unsupported feature: a JWT in a JWT, compression, extensions
/// that must be understood. None is, and a `crit` that names none is wrong too (RFC 7515 §4.1.11).
const REFUSED: [&str; 3] = ["crit", "cty", "zip"];

/// A JWT. Nothing of it has been verified.
pub(super) struct Jwt<'t> {
    /// The bytes that its signature covers: header and claims, encoded.
    pub(super) message: &'t str,
    pub(super) claims: Map<String, Value>,
    header: &'t str,
    signature: &'t str,
}

/// The header of a JWT, as far as it concerns the signature.
pub(super) struct JwtHeader {
    pub(super) algorithm: Algorithm,
    pub(super) key_id: Option<String>,
}

impl<'t> Jwt<'t> {
    /// Parses a token; `None`: it is no JWT with claims.
    pub(super) fn read(token: &'t str) -> Option<Self> {
        let (message, signature) = token.rsplit_once('.')?;
        let (header, claims) = message.split_once('.').filter(|(_, claims)| !claims.contains('.'))?;
        Some(Self { message, claims: object(claims)?, header, signature })
    }

    /// Parses the header; `None`: it is not that of an access token that can be verified here.
    pub(super) fn header(&self) -> Option<JwtHeader> {
        let members = object(self.header)?;
        if REFUSED.iter().any(|name| members.contains_key(*name)) {
            return None;
        }
        if !members.get("typ").is_none_or(|typ| typ.as_str().is_some_and(is_access_token)) {
            return None;
        }
        let key_id = match members.get("kid") {
            None => None,
            Some(Value::String(id)) => Some(id.clone()),
            Some(_) => return None,
        };
        Some(JwtHeader { algorithm: members.get("alg")?.as_str()?.parse().ok()?, key_id })
    }

    pub(super) fn signature(&self) -> Option<Vec<u8>> {
        URL_SAFE_NO_PAD.decode(self.signature).ok()
    }
}

fn object(part: &str) -> Option<Map<String, Value>> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
}

/// Returns true if a `typ` is that of an access token (RFC 9068 §2.1) or of any JWT; other kinds of
/// JWT are no access tokens (RFC 8725 §3.11). A media type, of which `application/` may be left out
/// (RFC 7515 §4.1.9).
fn is_access_token(typ: &str) -> bool {
    let kind = match typ.split_once('/') {
        Some((tree, kind)) if tree.eq_ignore_ascii_case("application") => kind,
        Some(_) => return false,
        None => typ,
    };
    ["JWT", "at+jwt"].iter().any(|known| kind.eq_ignore_ascii_case(known))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn reader() -> ClaimsMapper {
        let below = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect();
        ClaimsMapper {
            issuer: "https://idp".to_owned(),
            is_jwt: false,
            leeway: 5,
            takes_clients: false,
            scope_claim: "scope".to_owned(),
            groups_claim: "groups".to_owned(),
            hierarchy: BTreeMap::from([
                ("admin".to_owned(), below(&["write"])),
                ("write".to_owned(), below(&["read", "admin"])),
            ]),
        }
    }

    fn read(claims: Value) -> Option<VerifiedToken> {
        reader().read(claims.as_object().unwrap(), 10).ok()
    }

    #[test]
    fn claims_hold_from_nbf_to_exp_for_their_issuer() {
        let now = 1000;
        for (claims, in_jwt, in_answer) in [
            (json!({ "iss": "https://idp", "exp": 1001 }), true, true),
            (json!({ "iss": "https://idp", "exp": 995.9 }), false, false),
            (json!({ "iss": "https://idp", "exp": 996 }), true, true),
            (json!({ "iss": "https://idp", "exp": 1001, "nbf": 1005 }), true, true),
            (json!({ "iss": "https://idp", "exp": 1001, "nbf": 1006 }), false, false),
            (json!({ "iss": "https://idp", "exp": 1e15 }), false, false),
            (json!({ "iss": "https://idp", "exp": -1 }), false, false),
            (json!({ "iss": "https://idp", "exp": "1001" }), false, false),
            (json!({ "iss": "https://idp", "exp": null }), false, false),
            (json!({ "iss": "https://idp", "exp": 1001, "nbf": "1" }), false, false),
            (json!({ "iss": "https://idp", "exp": 1001, "nbf": u64::MAX }), false, false),
            (json!({ "iss": "https://idp", "exp": 1001, "nbf": null }), false, false),
            (json!({ "iss": "https://other", "exp": 1001 }), false, false),
            (json!({ "iss": ["https://idp"], "exp": 1001 }), false, false),
            (json!({ "iss": null, "exp": 1001 }), false, false),
            (json!({ "exp": 1001 }), false, true),
            (json!({ "iss": "https://idp" }), false, true),
        ] {
            for (is_jwt, expected) in [(true, in_jwt), (false, in_answer)] {
                let mut claims = claims.clone();
                claims["sub"] = json!("a");
                let reader = ClaimsMapper { is_jwt, ..reader() };
                let read = reader.read(claims.as_object().unwrap(), now);
                assert_eq!(read.is_ok(), expected, "{is_jwt} {claims}");
            }
        }
    }

    #[test]
    fn bound_token_is_usable_with_its_certificate() {
        let bound = |cnf: Value| read(json!({ "sub": "a", "cnf": cnf }));
        let (own, other) = ([7; 32], [8; 32]);
        let proven = bound(json!({ "x5t#S256": URL_SAFE_NO_PAD.encode(own) })).unwrap();
        assert!(proven.is_usable_with(Some(own)));
        assert!(!proven.is_usable_with(Some(other)) && !proven.is_usable_with(None));
        let free = read(json!({ "sub": "a" })).unwrap();
        assert!(free.is_usable_with(Some(own)) && free.is_usable_with(None));
        for cnf in [
            json!({ "jkt": "x" }),
            json!({ "x5t#S256": URL_SAFE_NO_PAD.encode(own), "jkt": "x" }),
            json!({ "x5t#S256": URL_SAFE_NO_PAD.encode([7; 31]) }),
            json!({ "x5t#S256": "" }),
            json!({ "x5t#S256": 7 }),
            json!({}),
            json!("x"),
            json!(null),
        ] {
            assert!(bound(cnf.clone()).is_none(), "{cnf}");
        }
    }

    #[test]
    fn a_caller_is_issuer_and_subject_with_scopes_and_groups() {
        let claims =
            json!({ "sub": "alice", "scope": "admin x", "groups": ["ops"], "aud": ["a", "b"], "exp": 10.5 });
        let proven = read(claims).unwrap();
        assert_eq!(proven.caller.name(), "token:https://idp#alice");
        assert_eq!(proven.caller.scopes(), ["admin", "read", "write", "x"]);
        assert_eq!(proven.caller.groups(), ["ops"]);
        assert!(proven.is_for(|audience| audience == "b") && !proven.is_for(|audience| audience == "c"));
        assert_eq!(proven.expires, Some(10));
    }

    #[test]
    fn groups_and_scopes_of_other_shapes_are_unclear() {
        let unclear = |claims: Value| read(claims).unwrap().caller.unclear();
        let both = |scopes, groups| UnreadableClaims { scopes, groups };
        for clear in [
            json!({ "sub": "a" }),
            json!({ "sub": "a", "groups": "x", "scope": "x y" }),
            json!({ "sub": "a", "groups": [], "scope": ["x"], "_claim_names": { "address": "s" } }),
        ] {
            assert_eq!(unclear(clear.clone()), both(false, false), "{clear}");
        }
        for value in
            [json!(7), json!(null), json!(true), json!({ "x": "y" }), json!(["x", 7]), json!([["x"]])]
        {
            assert_eq!(unclear(json!({ "sub": "a", "groups": value })), both(false, true), "{value}");
            assert_eq!(unclear(json!({ "sub": "a", "scope": value })), both(true, false), "{value}");
            assert!(read(json!({ "sub": "a", "aud": value })).is_none(), "{value}");
        }
        let elsewhere = |names: Value| unclear(json!({ "sub": "a", "groups": "x", "_claim_names": names }));
        assert_eq!(elsewhere(json!({ "groups": "s" })), both(false, true));
        assert_eq!(elsewhere(json!({ "scope": "s" })), both(true, false));
        assert_eq!(elsewhere(json!(["groups"])), both(true, true));
    }

    #[test]
    fn a_group_is_a_whole_text_and_none_is_left_out() {
        let proven = read(json!({ "sub": "a", "groups": "Site admin", "aud": "one two" })).unwrap();
        assert_eq!(proven.caller.groups(), ["Site admin"]);
        assert!(
            proven.is_for(|audience| audience == "one two") && !proven.is_for(|audience| audience == "one")
        );
        let groups: Vec<String> = (0..=MAX_VALUES).map(|number| number.to_string()).collect();
        assert!(read(json!({ "sub": "a", "groups": groups[1..] })).is_some());
        assert!(read(json!({ "sub": "a", "groups": groups })).is_none());
        assert!(read(json!({ "sub": "a", "groups": ["x".repeat(MAX_VALUE_BYTES + 1)] })).is_none());
    }

    #[test]
    fn token_without_subject_names_client_if_allowed() {
        let name = |takes_clients, claims: &Value| {
            let reader = ClaimsMapper { takes_clients, ..reader() };
            let proven = reader.read(claims.as_object().unwrap(), 10).ok();
            proven.map(|proven| proven.caller.name().to_owned())
        };
        for (claims, expected) in [
            (json!({ "client_id": "job" }), Some("client:https://idp#job")),
            (json!({ "client_id": "job", "sub": null, "email": null }), Some("client:https://idp#job")),
            (json!({ "client_id": "job", "acr": "1", "azp": "x" }), Some("client:https://idp#job")),
            (json!({ "client_id": "" }), None),
            (json!({ "client_id": 7 }), None),
            (json!({ "client_id": "a\nb" }), None),
            (json!({ "client_id": "a & key:b" }), None),
            (json!({}), None),
        ] {
            assert_eq!(name(true, &claims).as_deref(), expected, "{claims}");
            assert_eq!(name(false, &claims), None, "{claims}");
        }
        for member in OF_USERS.iter().filter(|name| **name != "sub") {
            for value in [json!("alice"), json!(""), json!(false), json!({})] {
                assert_eq!(name(true, &json!({ "client_id": "job", *member: value })), None, "{member}");
            }
        }
        for (claims, expected) in [
            (json!({ "sub": "job", "client_id": "x" }), Some("token:https://idp#job")),
            (json!({ "sub": "client:https://idp#job" }), Some("token:https://idp#client:https://idp#job")),
            (json!({ "sub": "", "client_id": "job" }), None),
            (json!({ "sub": 7, "client_id": "job" }), None),
            (json!({ "sub": "a\nb" }), None),
            (json!({ "sub": "a & key:b" }), None),
            (json!({ "sub": "x".repeat(LONGEST_SUBJECT + 1) }), None),
        ] {
            assert_eq!(name(true, &claims).as_deref(), expected, "{claims}");
            assert_eq!(name(false, &claims).as_deref(), expected, "{claims}");
        }
    }

    fn part(text: &str) -> String {
        URL_SAFE_NO_PAD.encode(text)
    }

    #[test]
    fn jwt_has_three_parts_and_claims() {
        let (header, claims) = (part(r#"{"alg":"ES256","kid":"k"}"#), part(r#"{"iss":"i"}"#));
        let token = format!("{header}.{claims}.c2ln");
        let jwt = Jwt::read(&token).unwrap();
        assert_eq!(
            (jwt.message, jwt.signature().as_deref()),
            (&*format!("{header}.{claims}"), Some(&b"sig"[..]))
        );
        assert_eq!(jwt.claims["iss"], "i");
        let read = jwt.header().unwrap();
        assert_eq!((read.algorithm, read.key_id.as_deref()), (Algorithm::ES256, Some("k")));
        for other in [
            String::new(),
            "..".to_owned(),
            format!("{header}.{claims}"),
            format!("{header}.{claims}.c2ln.x"),
            format!("{header}.x.{claims}.y.c2ln"),
            format!("{header}.{}.c2ln", part("[]")),
            format!("{header}.{claims}=.c2ln"),
        ] {
            assert!(Jwt::read(&other).is_none(), "{other}");
        }
    }

    #[test]
    fn header_that_asks_for_more_is_refused() {
        for (header, is_good) in [
            (r#"{"alg":"RS256"}"#, true),
            (r#"{"alg":"RS256","typ":"application/at+JWT"}"#, true),
            (r#"{"alg":"RS256","typ":"at"}"#, false),
            (r#"{"alg":"RS256","typ":null}"#, false),
            (r#"{"alg":"RS256","crit":[]}"#, false),
            (r#"{"alg":"RS256","crit":["exp"],"crit":null}"#, false),
            (r#"{"alg":"RS256","zip":"DEF"}"#, false),
            (r#"{"alg":"RS256","cty":""}"#, false),
            (r#"{"alg":"RS256","kid":7}"#, false),
            (r#"{"alg":"none"}"#, false),
            (r#"{"alg":["RS256"]}"#, false),
            (r#"{"typ":"JWT"}"#, false),
            ("[]", false),
        ] {
            let token = format!("{}.{}.c2ln", part(header), part("{}"));
            assert_eq!(Jwt::read(&token).unwrap().header().is_some(), is_good, "{header}");
        }
    }
}
