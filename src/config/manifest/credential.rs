//! Recognizes credentials among other texts: by the name of a member, by the form of a value, in
//! URLs.
//!
//! Guesses, and prefers to refuse: a reference in place of a harmless text costs the operator a
//! line.

use std::borrow::Cow;

use crate::config::reference;

/// Parts of names of headers and of parameters that carry credentials.
const WIRE_PARTS: [&str; 8] =
    ["authorization", "cookie", "token", "secret", "password", "key", "credential", "session"];
/// Whole words with the same meaning.
const WIRE_WORDS: [&str; 9] =
    ["auth", "jwt", "pass", "passphrase", "passwd", "pat", "pwd", "sig", "signature"];
/// Ends of the last word of a member's name that make its value a credential.
const SECRET_ENDS: [&str; 14] = [
    "accesskey",
    "apikey",
    "authorization",
    "bearer",
    "cookie",
    "credential",
    "jwt",
    "passphrase",
    "passwd",
    "password",
    "privatekey",
    "secret",
    "secretkey",
    "token",
];
/// Last words with the same meaning.
const SECRET_WORDS: [&str; 4] = ["pass", "passcode", "pin", "pwd"];
/// Last words that describe the encoding of a value, not the value.
const FORMS: [&str; 8] = ["base", "hash", "literal", "plain", "plaintext", "string", "text", "value"];
/// Words before `key` that make it an identifier.
const PLAIN_KEYS: [&str; 12] = [
    "cache",
    "foreign",
    "idempotency",
    "lookup",
    "map",
    "object",
    "partition",
    "primary",
    "public",
    "publishable",
    "routing",
    "sort",
];
/// Beginnings of tokens that services issue, and the fewest characters that follow.
const ISSUED: [(&str, usize); 40] = [
    ("sk-", 16),
    ("sk_live_", 8),
    ("sk_test_", 8),
    ("rk_live_", 8),
    ("rk_test_", 8),
    ("whsec_", 16),
    ("ghp_", 16),
    ("gho_", 16),
    ("ghu_", 16),
    ("ghs_", 16),
    ("ghr_", 16),
    ("github_pat_", 16),
    ("glpat-", 16),
    ("gldt-", 16),
    ("xoxa-", 8),
    ("xoxb-", 8),
    ("xoxe-", 8),
    ("xoxp-", 8),
    ("xoxr-", 8),
    ("xoxs-", 8),
    ("xapp-", 8),
    ("AIza", 30),
    ("ya29.", 16),
    ("GOCSPX-", 16),
    ("npm_", 30),
    ("pypi-", 16),
    ("hf_", 24),
    ("SG.", 30),
    ("dop_v1_", 30),
    ("shpat_", 24),
    ("shpss_", 24),
    ("gsk_", 24),
    ("xai-", 24),
    ("hvs.", 16),
    ("hvb.", 16),
    ("lin_api_", 24),
    ("ATATT3", 24),
    ("AGE-SECRET-KEY-1", 24),
    ("dckr_pat_", 16),
    ("pplx-", 24),
];
/// Beginnings of the ids of AWS keys, which have 16 letters and digits more.
const AWS: [&str; 2] = ["AKIA", "ASIA"];
/// Schemes that stand before credentials.
const SCHEMES: [&str; 6] = ["apikey", "basic", "bearer", "digest", "negotiate", "token"];

/// Returns true if a header or a parameter of this name carries a credential.
pub(super) fn is_wire_credential(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    WIRE_PARTS.iter().any(|part| lower.contains(part))
        || words(name).iter().any(|word| WIRE_WORDS.contains(&word.as_str()))
}

/// Returns true if the value of a member of this name is a credential.
pub(super) fn is_secret_member(name: &str) -> bool {
    let mut words = words(name);
    while words.len() > 1 && words.last().is_some_and(|word| FORMS.contains(&word.as_str())) {
        words.pop();
    }
    let Some(last) = words.pop() else { return false };
    let last = last.strip_suffix('s').filter(|word| !word.ends_with('s')).unwrap_or(&last);
    let is_key = last == "key" && words.last().is_some_and(|before| !PLAIN_KEYS.contains(&before.as_str()));
    is_key || SECRET_WORDS.contains(&last) || SECRET_ENDS.iter().any(|end| last.ends_with(end))
}

/// Returns true if a number under this name is a credential.
pub(super) fn is_numeric_secret(name: &str) -> bool {
    const NUMERIC: [&str; 7] = ["pass", "passcode", "passphrase", "passwd", "password", "pin", "pwd"];
    words(name).last().is_some_and(|word| NUMERIC.contains(&word.as_str()))
}

/// Returns true if a text has more outside references than a scheme (`Bearer `).
pub(super) fn is_written_out(text: &str) -> bool {
    let Some(plain) = reference::outside(text) else { return !text.is_empty() };
    let scheme = plain.strip_suffix(' ').unwrap_or(&plain);
    !scheme.bytes().all(|each| each.is_ascii_alphabetic()) || scheme.len() > 16
}

/// Returns true if a text contains a private key in PEM.
pub(super) fn has_private_key(text: &str) -> bool {
    text.contains("-----BEGIN") && text.contains("PRIVATE KEY")
}

/// Returns true if a text contains a credential, by its form or as a parameter of a URL.
pub(super) fn has_credential(text: &str) -> bool {
    let outside = reference::outside(text);
    let plain = outside.as_deref().unwrap_or(text);
    let mut runs =
        plain.split(|each: char| !(each.is_ascii_alphanumeric() || matches!(each, '_' | '-' | '.')));
    runs.any(is_issued)
        || follows_scheme(plain).is_some_and(|credential| credential.len() >= 8 && is_random(credential))
        || text.split_whitespace().any(has_parameter)
}

/// Returns true if a text contains a URL with a password, or with a user name that may be a token.
pub(super) fn has_user(text: &str) -> bool {
    let outside = reference::outside(text);
    outside.as_deref().unwrap_or(text).split_whitespace().any(names_user)
}

/// Returns true if the value of a header is a credential, for any name of the header.
pub(super) fn is_credential_value(text: &str) -> bool {
    let outside = reference::outside(text);
    let plain = outside.as_deref().unwrap_or(text);
    follows_scheme(plain).is_some() || is_opaque(plain)
}

/// Splits a name into words in lower case, at separators and at changes of case; numbers at the end
/// are left out.
fn words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = vec![String::new()];
    let mut rest = name.chars().peekable();
    let mut before = ' ';
    while let Some(each) = rest.next() {
        let next_is_small = rest.peek().is_some_and(char::is_ascii_lowercase);
        let begins = each.is_ascii_uppercase()
            && (before.is_ascii_lowercase() || (before.is_ascii_uppercase() && next_is_small));
        if begins || !each.is_alphanumeric() {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| each.is_alphanumeric()) {
            word.extend(each.to_lowercase());
        }
        before = each;
    }
    for word in &mut words {
        word.truncate(word.trim_end_matches(|each: char| each.is_ascii_digit()).len());
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Returns true if this is a token of a known service, or a JWT.
fn is_issued(run: &str) -> bool {
    let run = run.trim_end_matches('.');
    let issued = ISSUED.iter().filter_map(|(begin, least)| Some((run.strip_prefix(begin)?, *least)));
    let mut issued = issued.filter(|(rest, least)| rest.len() >= *least);
    let is_aws = |rest: &str| {
        rest.len() == 16 && rest.bytes().all(|each| each.is_ascii_uppercase() || each.is_ascii_digit())
    };
    let mut parts = run.split('.');
    let (first, second, third) = (parts.next().unwrap_or_default(), parts.next(), parts.next());
    let is_jwt = first.starts_with("eyJ") && first.len() >= 12 && second.is_some() && third.is_some();
    is_jwt
        || issued.any(|(rest, _)| is_random(rest))
        || AWS.iter().any(|begin| run.strip_prefix(begin).is_some_and(is_aws))
}

/// Returns the credential after the name of a scheme, if the text is no more than these two words.
fn follows_scheme(text: &str) -> Option<&str> {
    let mut words = text.split_whitespace();
    let (scheme, credential) = (words.next()?, words.next()?);
    let is_scheme = SCHEMES.iter().any(|known| known.eq_ignore_ascii_case(scheme));
    (is_scheme && words.next().is_none()).then_some(credential)
}

/// Returns true if this looks generated: it has digits, or more letters in a row than a word.
fn is_random(text: &str) -> bool {
    text.bytes().any(|each| each.is_ascii_digit()) || text.split(['-', '_', '.']).any(|part| part.len() >= 16)
}

/// Returns true if this is one word with a long run of both letters and digits. Those of UUIDs are
/// shorter.
fn is_opaque(text: &str) -> bool {
    let fits = |each: u8| each.is_ascii_alphanumeric() || b"-_.+/=".contains(&each);
    let mixed = |part: &str| {
        part.len() >= 16
            && part.bytes().any(|each| each.is_ascii_digit())
            && part.bytes().any(|each| each.is_ascii_alphabetic())
    };
    text.bytes().all(fits) && text.split(['-', '_', '.']).any(mixed)
}

fn names_user(word: &str) -> bool {
    let Some((scheme, rest)) = word.split_once("://") else { return false };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let Some((user, _)) = authority.rsplit_once('@') else { return false };
    match user.split_once(':') {
        Some((_, password)) => !password.is_empty(),
        None => !user.is_empty() && scheme.to_ascii_lowercase().contains("http"),
    }
}

/// Returns true if a URL, or the end of one, has a credential among its parameters.
fn has_parameter(word: &str) -> bool {
    let mut pairs = word.split(['?', '#', '&', ';']).skip(1).filter_map(|pair| pair.split_once('='));
    pairs.any(|(name, value)| {
        (is_wire_credential(&decoded(name)) && is_written_out(value)) || is_opaque(value)
    })
}

/// Decodes the name of a parameter; malformed percent-encoding stays.
fn decoded(name: &str) -> Cow<'_, str> {
    if !name.contains('%') {
        return Cow::Borrowed(name);
    }
    let mut parts = name.split('%');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.get(..2).and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => out.push(char::from(byte)),
            None => out.push('%'),
        }
        out.push_str(part.get(2..).unwrap_or(part));
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_references_and_a_scheme_are_no_secret() {
        for (text, written_out) in [
            ("${TOKEN}", false),
            ("${env:TOKEN}", false),
            ("Bearer ${env:TOKEN}", false),
            ("${A}${file:b}", false),
            ("", false),
            ("canary", true),
            ("$${TOKEN}", true),
            ("canary-${TOKEN}", true),
            ("${TOKEN}9", true),
            ("Bearer abcdefghijklmnopqrstuvwxyz ${TOKEN}", true),
            ("${TOKEN", true),
        ] {
            assert_eq!(is_written_out(text), written_out, "{text}");
        }
    }

    #[test]
    fn names_of_secrets_are_known_in_every_spelling() {
        for (name, is_secret) in [
            ("token", true),
            ("accessTokens", true),
            ("API_KEY", true),
            ("apikey2", true),
            ("APIKey", true),
            ("client-secret", true),
            ("db.password.value", true),
            ("privateKeyBase64", true),
            ("sshKeys", true),
            ("pass", true),
            ("tokenUrl", false),
            ("maxTokenCount", false),
            ("keywords", false),
            ("key", false),
            ("primaryKey", false),
            ("public_keys", false),
            ("compass", false),
            ("auth", false),
            ("secretName", false),
            ("monkey", false),
            ("", false),
        ] {
            assert_eq!(is_secret_member(name), is_secret, "{name}");
        }
    }

    #[test]
    fn credentials_are_known_by_their_form() {
        for (text, is_one) in [
            ("sk-proj-abc123def456ghi7", true),
            ("key=AKIAIOSFODNN7EXAMPLE", true),
            ("(eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln)", true),
            ("/relative?API%4bEY=x", true),
            ("https://a/?token=${env:T}&page=2", false),
            ("https://a/?token=${env:T}9", true),
            ("AKIA is a prefix, and so is sk-", false),
            ("9f86d081884c7d659a2feaa0c55ad0159f86d081", false),
        ] {
            assert_eq!(has_credential(text), is_one, "{text}");
        }
        for (text, names_one) in [
            ("ftp://user:pw@b/", true),
            ("(https://token@b/)", true),
            ("https://${env:U}:pw@b/", true),
            ("https://user:${env:P}@b/", false),
            ("https://b/@user and ssh://git@b/", false),
        ] {
            assert_eq!(has_user(text), names_one, "{text}");
        }
        assert!(is_credential_value("9f86d081884c7d659a2feaa0c55ad015"));
        assert!(!is_credential_value("5f0c1c1e-7f4b-4d5a-9d5e-1f2a3b4c5d6e"));
    }
}
