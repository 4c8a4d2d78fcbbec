//! Detection of literal secrets in a manifest. Clients can read manifests, so all are rejected.
//!
//! Reads the raw JSON, before it is known to match the schema: every member and every text. The
//! forms of secrets are in `credential`.

use serde_json::{Map, Value};

use super::credential::{
    has_credential, has_private_key, has_user, is_credential_value, is_numeric_secret, is_secret_member,
    is_wire_credential, is_written_out,
};
use super::sheet::ManifestReader;

const SECRET: &str =
    "is a secret that is written out, and clients can read manifests (write ${env:NAME} or ${file:PATH})";
const KEY: &str = "is a private key that is written out, and clients can read manifests (write the path of its file, ${env:NAME} or \
     ${file:PATH})";

/// A secret, although its name does not show that.
const VALUE: &str = "/security/auth/value";
/// The path of a key, although its name is that of a key.
const KEY_PATH: &str = "/security/mtls/clientKey";
/// URLs to which requests are sent.
const CALLED: [&str; 2] = ["/a2a/agentCardUri", "/security/auth/tokenUrl"];
/// Names of tools by ids of skills: neither describes a value.
const SKILLS: &str = "/a2a/skills";
/// Members that name the member `value` beside them.
const LABELS: [&str; 4] = ["name", "key", "header", "field"];
/// Members of a private JWK (RFC 7518 §6), besides those of a public one.
const PRIVATE: [&str; 7] = ["d", "p", "q", "dp", "dq", "qi", "k"];

/// Expectation about a value, from the names of the members that contain it.
#[derive(Clone, Copy, PartialEq)]
enum SecretContext {
    /// None.
    Plain,
    /// It is the value of a header.
    Header,
    /// It is a secret.
    Secret,
}

/// Reports every literal secret; returns true if there was none.
pub(super) fn report(manifest: &Value, sheet: &mut ManifestReader<'_>) -> bool {
    let mut found = Vec::new();
    walk(manifest, String::new(), SecretContext::Plain, &mut found);
    found.iter().for_each(|(at, problem)| sheet.problem(at, *problem));
    found.is_empty()
}

fn walk(value: &Value, at: String, inside: SecretContext, found: &mut Vec<(String, &'static str)>) {
    match value {
        Value::String(text) => {
            if let Some(problem) = problem_of(text, &at, inside) {
                found.push((at, problem));
            }
        }
        Value::Object(members) => {
            for (name, member) in members {
                if has_credential(name) {
                    // A problem with a nested value would repeat it.
                    found.push((at.clone(), SECRET));
                    continue;
                }
                let below = format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
                if member.is_number() && is_numeric_secret(name) {
                    found.push((below.clone(), SECRET));
                }
                let inside = within((name, members), (&at, &below), inside);
                walk(member, below, inside, found);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                walk(item, format!("{at}/{index}"), inside, found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Returns the context of a member by its name and by the members around it.
fn within(
    (name, members): (&str, &Map<String, Value>),
    (at, below): (&str, &str),
    inside: SecretContext,
) -> SecretContext {
    let is_labelled = || {
        let mut labels = LABELS.iter().filter_map(|label| members.get(*label)?.as_str());
        name.eq_ignore_ascii_case("value") && labels.any(is_wire_credential)
    };
    if inside == SecretContext::Secret || below == VALUE {
        SecretContext::Secret
    } else if below == KEY_PATH || at == SKILLS {
        SecretContext::Plain
    } else if is_secret_member(name)
        || (inside == SecretContext::Header && is_wire_credential(name))
        || (members.contains_key("kty") && PRIVATE.contains(&name))
        || is_labelled()
    {
        SecretContext::Secret
    } else if inside == SecretContext::Header || name.eq_ignore_ascii_case("headers") {
        SecretContext::Header
    } else {
        SecretContext::Plain
    }
}

fn problem_of(text: &str, at: &str, inside: SecretContext) -> Option<&'static str> {
    if has_private_key(text) {
        return Some(KEY);
    }
    let is_secret = match inside {
        SecretContext::Secret => is_written_out(text),
        SecretContext::Header => is_credential_value(text),
        SecretContext::Plain => false,
    };
    // The reader of such a URL rejects a user name in it with a remedy of its own.
    let is_read = CALLED.contains(&at) || (at.starts_with("/capabilities/") && at.ends_with("/endpoint"));
    (is_secret || has_credential(text) || (!is_read && has_user(text))).then_some(SECRET)
}
