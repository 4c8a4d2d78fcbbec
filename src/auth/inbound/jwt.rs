//! A JWT in its compact form (RFC 7515 §7.1): its parts, and the requirements of its header.
//!
//! Pure. See `bearer` for its signature and `claims` for its validity.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::Algorithm;
use serde_json::{Map, Value};

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
    use super::*;

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
