//! The content that the signatures of a card cover: the signed bytes, in each of the forms that
//! signers use.
//!
//! Follows `docs/spec/a2a.md` §3.3. Content that a signature does not cover is not part of the
//! verified card. Pure. Keys and verification are in `auth::jwks`, the members that each form knows
//! in `schema`.

use FieldKind::{Any, ByName, Flag, Message, Messages, Optional, Plain};
use serde_json::{Map, Value};

/// Maximum number of signatures that are read of one card.
const MAX_SIGNATURES: usize = 16;
/// Maximum length of a part of a signature, in bytes.
const MAX_SIGNATURE_PART_BYTES: usize = 16 * 1024;

/// The canonical form in which a card was signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CanonicalForm {
    /// The form of the official SDKs of 1.3: the members of 1.0, without any that is empty or
    /// unset.
    Sdk,
    /// The form of section 8.4.1 of the specification: the members of 1.0, without those that are
    /// unset, but with required ones that are empty.
    Specification,
    /// The form of the official SDKs of 0.3: without defaults and empty members, escaped to ASCII.
    V0_3,
    /// The whole card without the signatures.
    Raw,
}

impl CanonicalForm {
    /// All forms, in the order in which they are tried.
    pub const ALL: [Self; 4] = [Self::Sdk, Self::Specification, Self::V0_3, Self::Raw];

    /// Returns the name of the form.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sdk => "SDK",
            Self::Specification => "specification",
            Self::V0_3 => "0.3",
            Self::Raw => "raw",
        }
    }
}

/// One signature of a card, unparsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CardSignature {
    /// The protected header of the JWS, in base64url.
    pub protected: String,
    /// The signature itself, in base64url.
    pub signature: String,
}

/// The signature that was verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedSignature {
    /// The id of the key.
    pub key: String,
    /// The canonical form of the card.
    pub form: CanonicalForm,
}

/// A card and its signatures, separated.
#[derive(Debug, Clone)]
pub struct SignedCard {
    card: Map<String, Value>,
    /// The signatures, in their order; at most 16.
    pub signatures: Vec<CardSignature>,
}

/// A card in one form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedContent {
    /// The bytes that were signed.
    pub payload: Vec<u8>,
    /// The card that these bytes contain, as JSON: nothing in it is unsigned.
    pub card: Vec<u8>,
}

impl SignedCard {
    /// Reads a card; `None` if it is no JSON object.
    #[must_use]
    pub fn read(json: &str) -> Option<Self> {
        // Of a duplicate member the last counts, here and in everything made from it.
        let Ok(Value::Object(mut card)) = serde_json::from_str(json) else { return None };
        let signatures = match card.remove("signatures") {
            Some(Value::Array(signatures)) => {
                signatures.iter().filter_map(signature).take(MAX_SIGNATURES).collect()
            }
            _ => Vec::new(),
        };
        Some(Self { card, signatures })
    }

    /// Returns the card in this form; `None` if it has none.
    #[must_use]
    pub(crate) fn covered(&self, form: CanonicalForm) -> Option<SignedContent> {
        let known = || Value::Object(select(&self.card, CARD, form));
        let all = || Value::Object(self.card.clone());
        match form {
            CanonicalForm::Sdk => canonical(cleaned(known())?),
            CanonicalForm::Specification => canonical(known()),
            CanonicalForm::V0_3 => {
                // Empty members are not covered, so that an attacker could add them: they are not
                // used either.
                let Value::Object(mut card) = cleaned(all())? else { return None };
                let payload = ascii(&cleaned(without_defaults(card.clone()))?)?;
                with_tags(&mut card);
                Some(SignedContent { payload, card: serde_json::to_vec(&card).ok()? })
            }
            CanonicalForm::Raw => canonical(all()),
        }
    }
}

/// Adds an empty list of tags to each skill without one, as 0.3 requires it: its absence would mean
/// version 0.1.
fn with_tags(card: &mut Map<String, Value>) {
    let skills = card.get_mut("skills").and_then(Value::as_array_mut).into_iter().flatten();
    for skill in skills.filter_map(Value::as_object_mut) {
        skill.entry("tags").or_insert_with(|| Value::Array(Vec::new()));
    }
}

fn signature(value: &Value) -> Option<CardSignature> {
    let text = |name: &str| {
        value.get(name)?.as_str().filter(|text| text.len() <= MAX_SIGNATURE_PART_BYTES).map(str::to_owned)
    };
    Some(CardSignature { protected: text("protected")?, signature: text("signature")? })
}

/// Applies RFC 8785. The card is read back from the result, so that it equals the signed content.
fn canonical(value: Value) -> Option<SignedContent> {
    let payload = serde_json_canonicalizer::to_vec(&value).ok()?;
    Some(SignedContent { card: payload.clone(), payload })
}

/// Returns the known members, without those that are unset.
fn select(object: &Map<String, Value>, known: &[Field], form: CanonicalForm) -> Map<String, Value> {
    let mut kept = Map::new();
    for member in known {
        let Some(value) = object.get(member.name).filter(|value| !value.is_null()) else { continue };
        let value = selected(value, member.kind, form);
        let is_unset = match member.kind {
            FieldKind::Optional | FieldKind::Message(_) | FieldKind::Any => false,
            FieldKind::Flag => value == false,
            FieldKind::Plain | FieldKind::Messages(_) | FieldKind::ByName(_) => {
                !member.required && is_empty(&value)
            }
        };
        if !is_unset {
            kept.insert(member.name.to_owned(), value);
        }
    }
    kept
}

fn selected(value: &Value, kind: FieldKind, form: CanonicalForm) -> Value {
    match (kind, value) {
        (FieldKind::Message(known), Value::Object(object)) => Value::Object(select(object, known, form)),
        (FieldKind::Messages(known), Value::Array(items)) => {
            items.iter().map(|item| selected(item, FieldKind::Message(known), form)).collect()
        }
        (FieldKind::ByName(known), Value::Object(items)) => {
            let item = |(name, item): (&String, &Value)| {
                (name.clone(), selected(item, FieldKind::Message(known), form))
            };
            Value::Object(items.iter().map(item).collect())
        }
        // A member with another type than its kind stays, and no signature fits it.
        _ => value.clone(),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Removes empty texts, lists and objects, and members that become empty by that; `None` if nothing
/// is left.
fn cleaned(value: Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::Array(items) => {
            let items: Vec<Value> = items.into_iter().filter_map(cleaned).collect();
            (!items.is_empty()).then_some(Value::Array(items))
        }
        Value::Object(members) => {
            let kept = members.into_iter().filter_map(|(name, value)| Some((name, cleaned(value)?)));
            let members: Map<String, Value> = kept.collect();
            (!members.is_empty()).then_some(Value::Object(members))
        }
        other => Some(other).filter(|value| !is_empty(value)),
    }
}

/// Returns a card of 0.3 without members that equal their default.
fn without_defaults(mut card: Map<String, Value>) -> Value {
    for (name, default) in [("preferredTransport", "JSONRPC"), ("protocolVersion", "0.3.0")] {
        if card.get(name).is_some_and(|value| value == default) {
            card.remove(name);
        }
    }
    if let Some(Value::Object(schemes)) = card.get_mut("securitySchemes") {
        for scheme in schemes.values_mut().filter_map(Value::as_object_mut) {
            // The kind is implied only where the other members imply it.
            if scheme.get("type").is_some_and(|kind| kind == kind_of(scheme)) {
                scheme.remove("type");
            }
        }
    }
    Value::Object(card)
}

fn kind_of(scheme: &Map<String, Value>) -> &'static str {
    let telling =
        [("in", "apiKey"), ("scheme", "http"), ("flows", "oauth2"), ("openIdConnectUrl", "openIdConnect")];
    telling.iter().find(|(member, _)| scheme.contains_key(*member)).map_or("mutualTLS", |(_, kind)| kind)
}

/// Encodes a value as Python does: members sorted by code point, and all characters beyond ASCII
/// escaped.
fn ascii(value: &Value) -> Option<Vec<u8>> {
    // Members of a `Map` are sorted.
    let text = serde_json::to_string(value).ok()?;
    let mut out = Vec::with_capacity(text.len());
    let mut units = [0; 2];
    for letter in text.chars() {
        if letter.is_ascii() {
            out.push(u8::try_from(letter).ok()?);
            continue;
        }
        for unit in letter.encode_utf16(&mut units) {
            out.extend_from_slice(format!("\\u{unit:04x}").as_bytes());
        }
    }
    Some(out)
}

/// One member of a message.
#[derive(Debug, Clone, Copy)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) kind: FieldKind,
    /// True if the member is present even if it is empty.
    pub(super) required: bool,
}

/// The type of a member.
#[derive(Debug, Clone, Copy)]
pub(super) enum FieldKind {
    /// A text, a list of texts, or texts by name: empty is unset.
    Plain,
    /// A text or flag that is set if present.
    Optional,
    /// A flag: false is unset.
    Flag,
    /// A message, set if present.
    Message(&'static [Field]),
    /// A list of messages.
    Messages(&'static [Field]),
    /// Messages by name.
    ByName(&'static [Field]),
    /// Any JSON.
    Any,
}

const fn has(name: &'static str, kind: FieldKind) -> Field {
    Field { name, kind, required: false }
}

const fn is_required(name: &'static str, kind: FieldKind) -> Field {
    Field { name, kind, required: true }
}

/// `AgentCard` without its signatures.
pub(super) const CARD: &[Field] = &[
    is_required("name", Plain),
    is_required("description", Plain),
    is_required("supportedInterfaces", Messages(INTERFACE)),
    has("provider", Message(PROVIDER)),
    is_required("version", Plain),
    has("documentationUrl", Optional),
    is_required("capabilities", Message(CAPABILITIES)),
    has("securitySchemes", ByName(SCHEME)),
    has("securityRequirements", Messages(REQUIREMENT)),
    is_required("defaultInputModes", Plain),
    is_required("defaultOutputModes", Plain),
    is_required("skills", Messages(SKILL)),
    has("iconUrl", Optional),
];

const INTERFACE: &[Field] = &[
    is_required("url", Plain),
    is_required("protocolBinding", Plain),
    has("tenant", Plain),
    is_required("protocolVersion", Plain),
];

const PROVIDER: &[Field] = &[is_required("url", Plain), is_required("organization", Plain)];

const CAPABILITIES: &[Field] = &[
    has("streaming", Optional),
    has("pushNotifications", Optional),
    has("extensions", Messages(EXTENSION)),
    has("extendedAgentCard", Optional),
];

const EXTENSION: &[Field] =
    &[has("uri", Plain), has("description", Plain), has("required", Flag), has("params", Any)];

const SCHEME: &[Field] = &[
    has(
        "apiKeySecurityScheme",
        Message(&[has("description", Plain), is_required("location", Plain), is_required("name", Plain)]),
    ),
    has(
        "httpAuthSecurityScheme",
        Message(&[has("description", Plain), is_required("scheme", Plain), has("bearerFormat", Plain)]),
    ),
    has(
        "oauth2SecurityScheme",
        Message(&[
            has("description", Plain),
            is_required("flows", Message(FLOWS)),
            has("oauth2MetadataUrl", Plain),
        ]),
    ),
    has(
        "openIdConnectSecurityScheme",
        Message(&[has("description", Plain), is_required("openIdConnectUrl", Plain)]),
    ),
    has("mtlsSecurityScheme", Message(&[has("description", Plain)])),
];

const FLOWS: &[Field] = &[
    has(
        "authorizationCode",
        Message(&[
            is_required("authorizationUrl", Plain),
            is_required("tokenUrl", Plain),
            has("refreshUrl", Plain),
            is_required("scopes", Plain),
            has("pkceRequired", Flag),
        ]),
    ),
    has(
        "clientCredentials",
        Message(&[is_required("tokenUrl", Plain), has("refreshUrl", Plain), is_required("scopes", Plain)]),
    ),
    has(
        "implicit",
        Message(&[has("authorizationUrl", Plain), has("refreshUrl", Plain), has("scopes", Plain)]),
    ),
    has("password", Message(&[has("tokenUrl", Plain), has("refreshUrl", Plain), has("scopes", Plain)])),
    has(
        "deviceCode",
        Message(&[
            is_required("deviceAuthorizationUrl", Plain),
            is_required("tokenUrl", Plain),
            has("refreshUrl", Plain),
            is_required("scopes", Plain),
        ]),
    ),
];

const REQUIREMENT: &[Field] = &[has("schemes", ByName(&[has("list", Plain)]))];

const SKILL: &[Field] = &[
    is_required("id", Plain),
    is_required("name", Plain),
    is_required("description", Plain),
    is_required("tags", Plain),
    has("examples", Plain),
    has("inputModes", Plain),
    has("outputModes", Plain),
    has("securityRequirements", Messages(REQUIREMENT)),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(card: &str, form: CanonicalForm) -> String {
        String::from_utf8(SignedCard::read(card).unwrap().covered(form).unwrap().payload).unwrap()
    }

    #[test]
    fn numbers_and_names_are_written_as_ecmascript_does() {
        for (number, expected) in [
            ("1.0", "1"),
            ("1.50", "1.5"),
            ("-0.0", "0"),
            ("1e21", "1e+21"),
            ("1e20", "100000000000000000000"),
            ("0.0000001", "1e-7"),
            ("0.000001", "0.000001"),
            ("333333333.33333329", "333333333.3333333"),
            ("5e-324", "5e-324"),
            ("9007199254740991", "9007199254740991"),
        ] {
            let card = format!("{{\"x\":{number}}}");
            assert_eq!(payload(&card, CanonicalForm::Raw), format!("{{\"x\":{expected}}}"), "{number}");
        }
        // By UTF-16: the surrogates of the second come before the first.
        let card = "{\"\u{FFEE}\":1,\"\u{1F600}\":2,\"b\":{},\"a\":\"\\u0007\\u20ac\\/\"}";
        let expected = "{\"a\":\"\\u0007€/\",\"b\":{},\"\u{1F600}\":2,\"\u{FFEE}\":1}";
        assert_eq!(payload(card, CanonicalForm::Raw), expected);
    }

    #[test]
    fn each_form_keeps_what_its_signers_keep() {
        let card = r#"{"name":"n","description":"","vendor":1,"iconUrl":"","url":"http://x/","provider":null,
            "capabilities":{"streaming":false,"extensions":[{"uri":"u","required":false,"x":1,"params":{"e":"","n":null}}]},
            "defaultInputModes":[],"securitySchemes":{},"skills":[{"id":"i","tags":[],"examples":[]}],"signatures":[1]}"#;
        let sdk = r#"{"capabilities":{"extensions":[{"uri":"u"}],"streaming":false},"name":"n","skills":[{"id":"i"}]}"#;
        assert_eq!(payload(card, CanonicalForm::Sdk), sdk);
        let specification = r#"{"capabilities":{"extensions":[{"params":{"e":"","n":null},"uri":"u"}],"streaming":false},"defaultInputModes":[],"description":"","iconUrl":"","name":"n","skills":[{"id":"i","tags":[]}]}"#;
        assert_eq!(payload(card, CanonicalForm::Specification), specification);
        assert!(payload(card, CanonicalForm::Raw).contains("vendor"));
        let old = r#"{"protocolVersion":"0.3.0","preferredTransport":"JSONRPC","name":"é😀","x":1.0,"securitySchemes":
            {"a":{"type":"apiKey","in":"header"},"b":{"type":"http","in":"header"},"c":{"type":"mutualTLS"}},"tags":[""]}"#;
        let written = r#"{"name":"\u00e9\ud83d\ude00","securitySchemes":{"a":{"in":"header"},"b":{"in":"header","type":"http"}},"x":1.0}"#;
        assert_eq!(payload(old, CanonicalForm::V0_3), written);
        let used = SignedCard::read(old).unwrap().covered(CanonicalForm::V0_3).unwrap().card;
        assert!(
            String::from_utf8(used).unwrap().contains("protocolVersion"),
            "what goes without saying is still so"
        );
    }

    #[test]
    fn members_added_to_an_old_card_are_not_used() {
        let signed = r#"{"name":"n","url":"https://a/","security":[{"k":[]}],"skills":[{"id":"i","name":"s"}],
            "securitySchemes":{"k":{"type":"oauth2","flows":{"x":1}}}"#;
        let honest = SignedCard::read(&format!("{signed}}}")).unwrap().covered(CanonicalForm::V0_3).unwrap();
        let more =
            r#","supportedInterfaces":[{}],"securityRequirements":[{}],"authentication":{},"iconUrl":""}"#;
        let changed =
            SignedCard::read(&format!("{signed}{more}")).unwrap().covered(CanonicalForm::V0_3).unwrap();
        assert_eq!(changed.payload, honest.payload);
        assert_eq!(String::from_utf8(changed.card).unwrap(), String::from_utf8(honest.card).unwrap());
    }

    #[test]
    fn the_last_of_two_members_counts_everywhere() {
        let card =
            SignedCard::read(r#"{"name":"a","name":"b","signatures":[{"protected":"p","signature":"s"}]}"#)
                .unwrap();
        assert_eq!(card.covered(CanonicalForm::Sdk).unwrap().card, br#"{"name":"b"}"#);
        assert_eq!(card.signatures, [CardSignature { protected: "p".into(), signature: "s".into() }]);
    }

    #[test]
    fn non_cards_have_no_canonical_form() {
        for text in ["", "[]", "1", "{"] {
            assert!(SignedCard::read(text).is_none(), "{text}");
        }
        assert_eq!(SignedCard::read("{}").unwrap().covered(CanonicalForm::Sdk), None);
        let many = format!(r#"{{"signatures":[{}{{}}]}}"#, r#"{"protected":"","signature":""},"#.repeat(40));
        assert_eq!(SignedCard::read(&many).unwrap().signatures.len(), MAX_SIGNATURES);
    }
}
