//! Mistakes in `auth`, `require` and `rules`: each with its line, its path and the remedy.

use super::desk::{BASE, report, settings};

const HASH: &str = "sha256:0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f";

fn last(text: &str) -> String {
    let all = report(&format!("{BASE}{text}"));
    let line = all.lines().last().unwrap_or_default();
    line.split_once(": ").map_or("", |(_, rest)| rest).to_owned()
}

#[test]
fn each_auth_mistake_is_described() {
    let keys = format!("auth: {{ api_keys: {{ keys: {{ ci: '{HASH}' }} }} }}\n");
    for (text, expected) in [
        ("auth: {}\n", "auth: names no way to prove who one is"),
        (
            "auth: { certificate: {} }\n",
            "auth.certificate.name: is missing (write spiffe, uri, dns or common_name)",
        ),
        ("auth: { certificate: { name: [] } }\n", "auth.certificate.name: is an empty list"),
        ("auth: { api_keys: {} }\n", "auth.api_keys.keys: is missing"),
        (
            "auth: { api_keys: { keys: { ci: plain } } }\n",
            "auth.api_keys.keys.ci: is not a hash (write sha256: and 64",
        ),
        (
            &format!("auth: {{ api_keys: {{ header: Cookie, keys: {{ ci: '{HASH}' }} }} }}\n"),
            "auth.api_keys.header: means something else",
        ),
        ("auth: { tokens: [] }\n", "auth.tokens: is an empty list"),
        (
            "auth: { tokens: [{ issuer: 'https://a' }] }\n",
            "auth.tokens[0].audience: is missing: without public_url",
        ),
        (
            "auth: { tokens: [{ issuer: 'http://a', audience: x }] }\n",
            "auth.tokens[0].issuer: is not safe (write https",
        ),
        (
            "auth: { tokens: [{ issuer: 'https://a', audience: x, jwks: nowhere.json }] }\n",
            "auth.tokens[0].jwks: cannot read nowhere.json",
        ),
        (
            "auth: { tokens: [{ issuer: 'https://a', audience: x, algorithms: [HS256] }] }\n",
            "auth.tokens[0].algorithms[0]: \"HS256\" is not taken",
        ),
        (
            "auth: { tokens: [{ issuer: a, audience: x, introspection: { url: 'https://a', client_id: x } }] }\n",
            "auth.tokens[0].introspection.client_secret: is missing",
        ),
        (
            "auth: { tokens: [{ issuer: 'https://a', audience: x }, { issuer: 'https://a', audience: x }] }\n",
            "auth.tokens[1]: names an issuer that is there already",
        ),
        (
            "auth: { tokens: [{ issuer: 'https://a', audience: x }], scopes: ['a b'] }\n",
            "auth.scopes[0]: is not a scope",
        ),
        (&format!("{keys}rules: [{{ agents: nobody }}]\n"), "rules[0].agents: there is no agent \"nobody\""),
        (&format!("{keys}rules: [{{ tools: [] }}]\n"), "rules[0].tools: is an empty list: nothing would fit"),
        (
            &format!("{keys}rules: [{{ scopes: [x] }}]\n"),
            "rules[0]: asks for scopes or groups, which only tokens have",
        ),
        (&format!("{keys}rules: [{{ agent: a }}]\n"), "rules[0].agent: unknown key (did you mean agents?)"),
    ] {
        let found = last(text);
        assert!(found.starts_with(expected), "{text}{found}");
    }
    let twice = format!("auth: {{ api_keys: {{ keys: {{ a: '{HASH}', b: '{HASH}' }} }} }}\n");
    assert!(last(&twice).contains("is there twice: a key names one caller"), "{}", last(&twice));
}

/// A rule that no certificate fits is a mistake, and mostly a wrong spelling.
#[test]
fn unfit_spiffe_pattern_is_a_problem() {
    let auth = "auth: { certificate: { name: spiffe } }\n";
    for (rule, expected) in [
        (
            "callers: ['uri:spiffe://corp/a/../b & key:ci']",
            "rules[0].callers: \"uri:spiffe://corp/a/../b & key:ci\" fits no SPIFFE id: its path has an empty",
        ),
        (
            "certificates: 'spiffe://Corp/*'",
            "rules[0].certificates: \"spiffe://Corp/*\" fits no SPIFFE id: its trust domain is not",
        ),
    ] {
        let problem = last(&format!("{auth}rules: [{{ {rule} }}]\n"));
        assert!(problem.starts_with(expected), "{problem}");
    }
}

#[test]
fn listener_requires_configured_auth() {
    let keys = format!(
        "auth: {{ api_keys: {{ keys: {{ ci: '{HASH}' }} }} }}\nagents: {{ a: {{ card: http://a/ }} }}\n"
    );
    let listener =
        |require: &str| format!("listeners: [{{ address: '127.0.0.1:1', require: {require} }}]\n{keys}");
    for (require, expected) in [
        ("some", "is not understood (write none, any, all"),
        ("{ any: [token] }", "token is not configured under auth"),
        ("{ all: [password] }", "\"password\" is no mechanism"),
        ("{ any: [] }", "is empty"),
        ("{ any: [certificate] }", "certificate is not configured under auth"),
        ("{ any: [api_key], all: [api_key] }", "is not understood"),
    ] {
        let found = report(&listener(require));
        assert!(found.contains(&format!("listeners[0].require: {expected}")), "{require}: {found}");
    }
    for (require, expected) in [
        ("any", "Require { rule: Any, of: [ApiKey] }"),
        ("none", "Require { rule: None, of: [ApiKey] }"),
        ("{ all: [api_key] }", "Require { rule: All, of: [ApiKey] }"),
    ] {
        let found = format!("{:?}", settings(&listener(require)).listeners[0].require);
        assert_eq!(found, expected);
    }
}

/// The name of a caller is that of its issuer, `#` and its own.
#[test]
fn issuer_ends_where_caller_name_begins() {
    for issuer in ["https://a#b", "https://a & key:b", "a\\nb"] {
        let tokens = format!("{{ issuer: \"{issuer}\", audience: x, jwks: 'https://a/keys' }}");
        let found = last(&format!("auth: {{ tokens: [{tokens}] }}\n"));
        assert_eq!(found, "auth.tokens[0].issuer: is not an issuer (it has a # or a space in it)");
    }
}

#[test]
fn require_order_names_no_callers() {
    let text = format!(
        "listeners: [{{ address: '127.0.0.1:1', require: {{ any: [api_key, token] }} }}]\nagents: {{ a: {{ card: http://a/ }} }}\n\
         auth: {{ api_keys: {{ keys: {{ ci: '{HASH}' }} }}, tokens: [{{ issuer: 'https://a', audience: x }}] }}\n"
    );
    let found = format!("{:?}", settings(&text).listeners[0].require);
    assert_eq!(found, "Require { rule: Any, of: [Token, ApiKey] }");
}

#[test]
fn caller_key_cannot_be_forwarded() {
    let text = format!(
        "listeners: [{{ address: '127.0.0.1:1' }}]\nagents: {{ a: {{ card: http://a/, forward_headers: [X-Api-Key] }} }}\n\
         auth: {{ api_keys: {{ keys: {{ ci: '{HASH}' }} }} }}\n"
    );
    let found = report(&text);
    assert!(found.contains("agents.a.forward_headers: x-api-key cannot be forwarded"), "{found}");
}

#[test]
fn required_certificate_needs_client_auth() {
    let both = format!(
        "auth: {{ certificate: {{ name: dns }}, api_keys: {{ keys: {{ ci: '{HASH}' }} }} }}\nagents: {{ a: {{ card: http://a/ }} }}\n"
    );
    let listener = |require: &str| format!("listeners: [{{ address: '127.0.0.1:1'{require} }}]\n{both}");
    for require in [", require: { any: [certificate, api_key] }", ", require: all"] {
        let found = report(&listener(require));
        assert!(found.contains("listeners[0].require: certificate can be shown only where"), "{found}");
    }
    for require in ["", ", require: any"] {
        assert_eq!(settings(&listener(require)).listeners[0].require.of.len(), 1);
    }
    let only = "listeners: [{ address: '127.0.0.1:1' }]\nauth: { certificate: { name: dns } }\nagents: { a: { card: http://a/ } }\n";
    assert!(report(only).contains("nothing that auth configures can be shown here (add tls.client_auth"));
}

#[test]
fn introspection_secret_is_not_shown() {
    let text = format!(
        "{BASE}auth: {{ tokens: [{{ issuer: a, audience: x, introspection: {{ url: 'https://a', client_id: x, \
         client_secret: CANARY }} }}] }}\n"
    );
    assert!(!format!("{:?}", settings(&text)).contains("CANARY"));
}
