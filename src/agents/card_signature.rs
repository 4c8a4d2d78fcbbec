//! The keys that must sign the card of an agent, as the file of keys has them now; and the
//! verification of a card, which reduces it to its signed part.
//!
//! A file of keys that is missing or broken changes nothing: the error is logged and counted, and
//! the previous keys remain. See also `directory` for the times.
//!
//! Verification follows `docs/spec/a2a.md §3.3`. The first signature that fits in any form is
//! enough. Parts that it does not cover are removed from the card: another party could have inserted
//! them. See `a2a::card` for the forms and `auth::jwks` for the keys.

use std::sync::Arc;

use arc_swap::ArcSwap;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::JwkSet;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use tokio::sync::watch;

use super::card_error::{CardFetchError, CardSignatureError};
use crate::a2a::{
    AgentCard, CanonicalForm, CardSignature, SignedCard, SignedContent, VerifiedSignature, clean,
};
use crate::auth::{KeySet, SignatureError};
use crate::config;
use crate::file_watcher::FileWatcher;
use crate::telemetry::label::Reload;
use crate::telemetry::metrics::AgentMetrics;

/// The maximum length of a peer's name in messages to the operator, in bytes.
const SHOWN: usize = 64;

/// The keys of one agent's card.
pub(super) struct CardKeys {
    signature: config::CardSignature,
    current: ArcSwap<KeySet>,
    /// The number of key sets since the start.
    sets: watch::Sender<u64>,
}

/// The state between two checks of the file.
#[derive(Clone, Default)]
pub(super) struct Seen {
    watcher: FileWatcher,
    set: Option<JwkSet>,
    /// The error of the last check; the file is read again until there is none.
    problem: Option<String>,
}

impl CardKeys {
    pub(super) fn new(signature: &config::CardSignature) -> Result<Self, CardFetchError> {
        let keys = KeySet::new(&signature.keys)
            .map_err(|problem| CardFetchError::Setting(format!("signature.keys: {problem}")))?;
        let (current, sets) = (ArcSwap::from_pointee(keys), watch::Sender::new(0));
        Ok(Self { signature: signature.clone(), current, sets })
    }

    /// Returns the current keys.
    pub(super) fn keys(&self) -> Arc<KeySet> {
        self.current.load_full()
    }

    /// Returns true if a card without a good signature is rejected.
    pub(super) fn required(&self) -> bool {
        self.signature.required
    }

    /// Subscribes to changes of the keys.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.sets.subscribe()
    }

    /// Checks the file, and uses its keys from now on if they are others. Blocks.
    pub(super) fn look_again(&self, mut seen: Seen, agent: &str, metrics: &AgentMetrics) -> Seen {
        let has_changed = seen.watcher.has_changed([self.signature.file.as_path()].into_iter());
        if !has_changed && seen.problem.is_none() {
            return seen;
        }
        let read = self.signature.read_again().and_then(|set| Ok((KeySet::new(&set)?, set)));
        match read {
            Ok((keys, set)) => {
                if *seen.set.as_ref().unwrap_or(&self.signature.keys) != set {
                    self.current.store(Arc::new(keys));
                    self.sets.send_modify(|count| *count += 1);
                    tracing::info!(agent, "card keys reloaded");
                    metrics.reload(Reload::Used);
                }
                Seen { set: Some(set), problem: None, ..seen }
            }
            Err(problem) => {
                // Logged once, though the file is read again and again.
                if has_changed || seen.problem.as_ref() != Some(&problem) {
                    tracing::warn!(agent, error = problem, "failed to reload card keys");
                    metrics.reload(Reload::Refused);
                }
                Seen { problem: Some(problem), ..seen }
            }
        }
    }
}

/// The protected header of a JWS, as far as it counts.
#[derive(Deserialize)]
struct ProtectedHeader {
    alg: String,
    #[serde(default)]
    kid: String,
    /// True if there are extensions that must be understood; none is, and a `crit` without any is
    /// wrong too (RFC 7515 §4.1.11).
    #[serde(default, rename = "crit", deserialize_with = "present")]
    has_crit: bool,
}

/// Returns true if a member exists, with any value: `null` is a value.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    IgnoredAny::deserialize(deserializer).map(|_| true)
}

/// Returns the card that a good signature covers.
///
/// # Errors
///
/// The reason for which there is none: of several signatures the error of the first with a known
/// key, or else of the first.
pub(super) fn verify(json: &str, keys: &KeySet) -> Result<AgentCard, CardFetchError> {
    let card = SignedCard::read(json).ok_or(CardSignatureError::None)?;
    let forms: Vec<(CanonicalForm, SignedContent)> =
        CanonicalForm::ALL.into_iter().filter_map(|form| Some((form, card.covered(form)?))).collect();
    let mut why = None;
    for signature in &card.signatures {
        match verify_one(signature, &forms, keys) {
            Ok((covered, proof)) => {
                let mut card = AgentCard::parse(&covered.card)?;
                card.proof = Some(proof);
                return Ok(card);
            }
            Err(wrong @ CardSignatureError::Wrong(_))
                if !matches!(why, Some(CardSignatureError::Wrong(_))) =>
            {
                why = Some(wrong)
            }
            Err(other) => why = why.or(Some(other)),
        }
    }
    Err(why.unwrap_or(CardSignatureError::None).into())
}

fn verify_one<'a>(
    signature: &CardSignature,
    forms: &'a [(CanonicalForm, SignedContent)],
    keys: &KeySet,
) -> Result<(&'a SignedContent, VerifiedSignature), CardSignatureError> {
    let header = URL_SAFE_NO_PAD.decode(&signature.protected);
    let header = header.map_err(|_| CardSignatureError::Unreadable("its header is not base64url"))?;
    let header: ProtectedHeader = serde_json::from_slice(&header)
        .map_err(|_| CardSignatureError::Unreadable("its header is no JSON with an algorithm"))?;
    if header.has_crit {
        return Err(CardSignatureError::Unreadable("its header demands extensions (crit)"));
    }
    for (form, covered) in forms {
        let signed = format!("{}.{}", signature.protected, URL_SAFE_NO_PAD.encode(&covered.payload));
        match keys.verify(&header.kid, &header.alg, signed.as_bytes(), &signature.signature) {
            Ok(()) => return Ok((covered, VerifiedSignature { key: header.kid, form: *form })),
            Err(SignatureError::Wrong) => {}
            Err(SignatureError::Algorithm | SignatureError::OtherAlgorithm) => {
                return Err(CardSignatureError::Algorithm(clean(&header.alg, SHOWN)));
            }
            Err(SignatureError::UnknownKey) => {
                return Err(CardSignatureError::UnknownKey(clean(&header.kid, SHOWN)));
            }
        }
    }
    Err(CardSignatureError::Wrong(clean(&header.kid, SHOWN)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn golden(name: &str) -> String {
        let path = format!("{}/tests/golden/signatures/{name}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(path).unwrap()
    }

    fn keys() -> KeySet {
        KeySet::new(&serde_json::from_str(&golden("keys.jwks")).unwrap()).unwrap()
    }

    fn refusal(json: &str) -> String {
        verify(json, &keys()).unwrap_err().to_string()
    }

    #[test]
    fn cards_that_others_signed_verify_in_the_form_of_their_signer() {
        for (file, key, form) in [
            ("python-1.3-ES256.json", "key-ES256", CanonicalForm::Sdk),
            ("python-1.3-ES384.json", "key-ES384", CanonicalForm::Sdk),
            ("python-1.3-EdDSA.json", "key-EdDSA", CanonicalForm::Sdk),
            ("python-1.3-RS256.json", "key-RS256", CanonicalForm::Sdk),
            ("python-1.3-PS256.json", "key-PS256", CanonicalForm::Sdk),
            ("python-1.3-compat.json", "key-ES256", CanonicalForm::Sdk),
            ("specification.json", "key-ES256", CanonicalForm::Specification),
            ("python-0.3.json", "key-ES256", CanonicalForm::V0_3),
            ("raw.json", "key-ES256", CanonicalForm::Raw),
        ] {
            let card = verify(&golden(file), &keys()).unwrap_or_else(|why| panic!("{file}: {why}"));
            let proof = card.proof.as_ref().unwrap();
            assert_eq!((proof.key.as_str(), proof.form), (key, form), "{file}");
            assert!(card.interface(None).is_ok(), "{file}");
        }
    }

    #[test]
    fn any_change_to_what_was_signed_is_seen() {
        for (file, from, to) in [
            ("python-1.3-ES256.json", "http://agent.example:8080/", "http://thief.example/"),
            ("python-1.3-ES256.json", "\"Paints \u{2028} anything\"", "\"Paints anything\""),
            ("python-1.3-ES256.json", "\"streaming\": false", "\"streaming\": true"),
            ("python-1.3-ES256.json", "\"ratio\": 0.1", "\"ratio\": 0.10000000000000001e1"),
            ("python-1.3-RS256.json", "\"id\": \"paint\"", "\"id\": \"rob\""),
            ("specification.json", "\"description\": \"\"", "\"description\": \"x\""),
            ("python-0.3.json", "\"type\": \"mutualTLS\"", "\"type\": \"http\""),
            ("python-0.3.json", "\"protocolVersion\": \"0.3.0\"", "\"protocolVersion\": \"0.2.5\""),
            ("raw.json", "1.5", "1.6"),
        ] {
            let json = golden(file);
            assert!(json.contains(from), "{file} {from}");
            let told = refusal(&json.replacen(from, to, 1));
            assert!(told.contains("does not fit the card"), "{file} {to}: {told}");
        }
    }

    #[test]
    fn what_is_not_signed_is_not_used() {
        let json = golden("python-1.3-ES256.json");
        let more = json.replacen(
            '{',
            "{ \"url\": \"http://thief.example/\", \"preferredTransport\": \"JSONRPC\",",
            1,
        );
        let card = verify(&more, &keys()).unwrap();
        assert!(!card.raw.get().contains("thief"), "{}", card.raw);
        // A second member of the same name cannot replace the first.
        let twice =
            json.replacen('{', "{ \"supportedInterfaces\": [{ \"url\": \"http://thief.example/\" }],", 1);
        let card = verify(&twice, &keys()).unwrap();
        assert!(!card.raw.get().contains("thief"), "{}", card.raw);
        let card = verify(&golden("specification.json"), &keys()).unwrap();
        assert!(!card.raw.get().contains("vendor"));
    }

    #[test]
    fn a_header_gets_no_other_algorithm_key_or_rule() {
        let json = golden("python-1.3-RS256.json");
        let card: serde_json::Value = serde_json::from_str(&json).unwrap();
        for (header, told) in [
            (r#"{"alg":"none","kid":"key-RS256"}"#, "only ES256"),
            (r#"{"alg":"HS256","kid":"key-RS256"}"#, "\"HS256\""),
            (r#"{"alg":"ES256","kid":"key-RS256"}"#, "only ES256"),
            (r#"{"alg":"RS256","kid":"key-ES256"}"#, "only ES256"),
            (r#"{"alg":"RS256"}"#, "not in signature.keys"),
            (r#"{"alg":"RS256","kid":"\u001b[31mother"}"#, "other"),
            (r#"{"alg":"RS256","kid":"key-RS256","crit":["b64"],"b64":false}"#, "crit"),
            (r#"{"alg":"RS256","kid":"key-RS256","crit":null}"#, "crit"),
            (r#"{"alg":"RS256","kid":"key-RS256"}"#, "does not fit"),
            (r#"{"kid":"key-RS256"}"#, "no JSON with an algorithm"),
            ("{", "no JSON with an algorithm"),
        ] {
            let mut card = card.clone();
            card["signatures"][0]["protected"] = URL_SAFE_NO_PAD.encode(header).into();
            let told_really = refusal(&card.to_string());
            assert!(told_really.contains(told) && !told_really.contains('\u{1b}'), "{header}: {told_really}");
        }
        let mut unsigned = card.clone();
        unsigned["signatures"] = serde_json::json!([]);
        assert!(refusal(&unsigned.to_string()).starts_with("the card is not signed"));
        // An unknown key beside a good one.
        let mut both = card;
        let other = serde_json::json!({ "protected": URL_SAFE_NO_PAD.encode(r#"{"alg":"ES256","kid":"x"}"#), "signature": "AA" });
        both["signatures"].as_array_mut().unwrap().insert(0, other);
        assert!(verify(&both.to_string(), &keys()).is_ok());
    }
}
