//! Secrets that are written out in a manifest. Clients can read manifests, so none is let through.
//!
//! Looks at JSON as it is, before it is known to fit the schema. Not here: resolving references.

use serde_json::Value;

use super::sheet::Sheet;
use crate::config::reference;

const SECRET: &str =
    "is a secret that is written out, and clients can read manifests (write ${env:NAME} or ${file:PATH})";
const KEY: &str = "is a private key that is written out, and clients can read manifests (write the path of its file, ${env:NAME} or \
     ${file:PATH})";

/// The members that are secrets.
const SECRETS: [&str; 3] = ["/security/auth/token", "/security/auth/value", "/security/auth/clientSecret"];
const CARD: &str = "/a2a/agentCardUri";
/// What the name of a header or of a parameter has in it that carries a credential.
const CREDENTIALS: [&str; 8] =
    ["authorization", "cookie", "token", "secret", "password", "key", "credential", "session"];

/// Reports every secret that is written out.
pub(super) fn report(manifest: &Value, sheet: &mut Sheet<'_>) {
    for pointer in SECRETS {
        let text = manifest.pointer(pointer).and_then(Value::as_str);
        if text.is_some_and(is_written_out) {
            sheet.problem(pointer, SECRET);
        }
    }
    let card = manifest.pointer(CARD).and_then(Value::as_str);
    let query = card.and_then(|uri| uri.split_once('?')).map_or("", |(_, query)| query);
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    if pairs.any(|(name, value)| is_credential(name) && is_written_out(value)) {
        sheet.problem(CARD, SECRET);
    }
    walk(manifest, String::new(), sheet);
}

fn walk(value: &Value, at: String, sheet: &mut Sheet<'_>) {
    match value {
        Value::String(text) if text.contains("-----BEGIN") && text.contains("PRIVATE KEY") => {
            sheet.problem(&at, KEY);
        }
        Value::Object(members) => {
            let is_headers = at.starts_with("/capabilities/") && at.ends_with("/headers");
            for (name, member) in members {
                let below = format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
                let written_out = member.as_str().is_some_and(is_written_out);
                if is_headers && is_credential(name) && written_out {
                    sheet.problem(&below, SECRET);
                }
                walk(member, below, sheet);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                walk(item, format!("{at}/{index}"), sheet);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn is_credential(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    CREDENTIALS.iter().any(|part| name.contains(part))
}

/// Whether anything but a scheme (`Bearer `) stands outside references.
fn is_written_out(text: &str) -> bool {
    let Some(plain) = reference::outside(text) else { return true };
    let scheme = plain.strip_suffix(' ').unwrap_or(&plain);
    !scheme.bytes().all(|each| each.is_ascii_alphabetic()) || scheme.len() > 16
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
            ("canary", true),
            ("", true),
            ("$${TOKEN}", true),
            ("canary-${TOKEN}", true),
            ("${TOKEN}9", true),
            ("Bearer abcdefghijklmnopqrstuvwxyz ${TOKEN}", true),
            ("${TOKEN", true),
        ] {
            assert_eq!(is_written_out(text), written_out, "{text}");
        }
    }
}
