//! What the claims of a token, or the answer of an issuer, say about the caller.
//!
//! Pure. Not here: whether they are to be believed.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::auth::Caller;
use crate::auth::caller::{AND, Identity};
use crate::config::TokenIssuer;

/// Most scopes or groups that are read from one token, and the longest of them, in bytes.
const MOST: usize = 256;
const LONGEST: usize = 256;
/// Longest subject, in bytes: it becomes part of names.
const LONGEST_SUBJECT: usize = 256;

/// A caller, and for whom its token was issued.
pub(super) struct Proven {
    pub(super) caller: Caller,
    /// Who says so.
    pub(super) issuer: String,
    audience: Vec<String>,
    /// Seconds since 1970.
    pub(super) expires: Option<u64>,
}

/// What is read from the claims of one issuer.
pub(super) struct Reader {
    issuer: String,
    scope_claim: String,
    groups_claim: String,
    hierarchy: BTreeMap<String, Vec<String>>,
}

impl Reader {
    pub(super) fn new(issuer: &TokenIssuer, hierarchy: &BTreeMap<String, Vec<String>>) -> Self {
        Self {
            issuer: issuer.issuer.clone(),
            scope_claim: issuer.scope_claim.clone(),
            groups_claim: issuer.groups_claim.clone(),
            hierarchy: hierarchy.clone(),
        }
    }

    /// Whom the claims name; `None` if they name nobody. A client that acts for itself has no subject but an id.
    pub(super) fn read(&self, claims: &Map<String, Value>) -> Option<Proven> {
        let text = |name: &str| claims.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        let subject = text("sub").or_else(|| text("client_id"))?;
        // One that reads as two names could be taken for who proved both.
        if subject.len() > LONGEST_SUBJECT || subject.chars().any(char::is_control) || subject.contains(AND) {
            return None;
        }
        // What is not read whole is not read: a rule might refuse by what was left out.
        let scopes = words(claims.get(&self.scope_claim), true)?;
        let groups = words(claims.get(&self.groups_claim), false)?;
        let identity = Identity {
            name: format!("token:{}#{subject}", self.issuer),
            parts: Vec::new(),
            certificate: Vec::new(),
            scopes: self.with_included(scopes),
            groups,
            has_token: true,
        };
        Some(Proven {
            caller: Caller::from(identity),
            issuer: self.issuer.clone(),
            audience: words(claims.get("aud"), false)?,
            expires: claims.get("exp").and_then(seconds),
        })
    }

    /// The scopes with all that they include, however deep.
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

impl Proven {
    /// Whether the token was issued for one of these.
    pub(super) fn is_for(&self, is_ours: impl Fn(&str) -> bool) -> bool {
        self.audience.iter().any(|audience| is_ours(audience))
    }
}

/// A list of texts, or a text: with spaces between words, or as it is. `None` if there is more than is read.
fn words(claim: Option<&Value>, is_spaced: bool) -> Option<Vec<String>> {
    let words: Vec<&str> = match claim {
        Some(Value::String(text)) if is_spaced => text.split(' ').filter(|word| !word.is_empty()).collect(),
        Some(Value::String(text)) => vec![text],
        Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let fits = words.len() <= MOST && words.iter().all(|word| word.len() <= LONGEST);
    fits.then(|| words.into_iter().map(str::to_owned).collect())
}

/// A time as in a token: seconds since 1970, with a fraction perhaps.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to fit")]
fn seconds(value: &Value) -> Option<u64> {
    value
        .as_u64()
        .or_else(|| value.as_f64().filter(|time| (0.0..1e15).contains(time)).map(|time| time as u64))
}

#[cfg(test)]
impl Default for Proven {
    fn default() -> Self {
        Self { caller: Caller::anonymous(), issuer: String::new(), audience: Vec::new(), expires: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn reader() -> Reader {
        let below = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect();
        Reader {
            issuer: "https://idp".to_owned(),
            scope_claim: "scope".to_owned(),
            groups_claim: "groups".to_owned(),
            hierarchy: BTreeMap::from([
                ("admin".to_owned(), below(&["write"])),
                ("write".to_owned(), below(&["read", "admin"])),
            ]),
        }
    }

    fn read(claims: Value) -> Option<Proven> {
        reader().read(claims.as_object().unwrap())
    }

    #[test]
    fn a_caller_is_issuer_and_subject_with_scopes_and_groups() {
        let claims = json!({ "sub": "alice", "scope": "admin x", "groups": ["ops", 7], "aud": ["a", "b"], "exp": 10.5 });
        let proven = read(claims).unwrap();
        assert_eq!(proven.caller.name(), "token:https://idp#alice");
        assert_eq!(proven.caller.scopes(), ["admin", "read", "write", "x"]);
        assert_eq!(proven.caller.groups(), ["ops"]);
        assert!(proven.is_for(|audience| audience == "b") && !proven.is_for(|audience| audience == "c"));
        assert_eq!(proven.expires, Some(10));
    }

    #[test]
    fn a_group_is_a_whole_text_and_none_is_left_out() {
        let proven = read(json!({ "sub": "a", "groups": "Site admin", "aud": "one two" })).unwrap();
        assert_eq!(proven.caller.groups(), ["Site admin"]);
        assert!(
            proven.is_for(|audience| audience == "one two") && !proven.is_for(|audience| audience == "one")
        );
        let groups: Vec<String> = (0..=MOST).map(|number| number.to_string()).collect();
        assert!(read(json!({ "sub": "a", "groups": groups[1..] })).is_some());
        assert!(read(json!({ "sub": "a", "groups": groups })).is_none());
        assert!(read(json!({ "sub": "a", "groups": ["x".repeat(LONGEST + 1)] })).is_none());
    }

    #[test]
    fn who_has_no_subject_is_its_client_and_who_has_neither_is_nobody() {
        assert_eq!(read(json!({ "client_id": "job" })).unwrap().caller.name(), "token:https://idp#job");
        for nobody in [
            json!({}),
            json!({ "sub": "" }),
            json!({ "sub": 7 }),
            json!({ "sub": "a\nb" }),
            json!({ "sub": "a & key:b" }),
        ] {
            assert!(read(nobody.clone()).is_none(), "{nobody}");
        }
    }
}
