//! `agents.NAME.auth`, `forward_headers` and `tls.server_name`: the settings that they become, and
//! mistakes in them.

use mcp_a2a_gateway::config::{
    Agent, ApiKeyLocation, ApiKeyPlace, Authorization, ClientAuthMethod, Grant, OAuth2,
};

use super::desk::Desk;
use super::secrets::identity;

const SECRET: &str = "canary-0123456789";

fn desk() -> Desk {
    let (certificate, key) = identity();
    Desk::new()
        .variable("SECRET", SECRET)
        .file("secret", format!("{SECRET}\n"))
        .file("gw.crt", certificate)
        .file("gw.key", key)
}

/// A configuration with these lines under its only agent.
fn text(own: &str) -> String {
    let own: String = own.lines().map(|line| format!("    {line}\n")).collect();
    format!("listeners: [{{address: 127.0.0.1:8080}}]\nagents:\n  a:\n    card: https://a.example/\n{own}")
}

fn agent(own: &str) -> Agent {
    desk().settings(&text(own)).agents.remove(0)
}

/// The problems, without their lines and what is before the agent's own keys.
fn report(own: &str) -> String {
    let report = desk().report(&text(own));
    assert!(!report.contains(SECRET), "{report}");
    let problems =
        report.lines().map(|line| line.split_once(": agents.a.").unwrap_or_else(|| panic!("{report}")).1);
    problems.collect::<Vec<_>>().join("\n")
}

#[test]
fn api_keys_go_where_file_or_card_says() {
    let own = "auth: { api_key: [{ value: '${SECRET}' }, { value: '${file:secret}', scheme: main }, \
               { value: x, in: cookie, name: k }, { value: x, in: query, name: k }, { value: x, in: header, name: X-K }] }";
    let keys = agent(own).auth.api_keys;
    let places: Vec<_> = keys.iter().map(|key| key.place.clone()).collect();
    let written = |place, name: &str| ApiKeyPlace::Written(place, name.to_owned());
    assert_eq!(
        places,
        [
            ApiKeyPlace::Card(None),
            ApiKeyPlace::Card(Some("main".to_owned())),
            written(ApiKeyLocation::Cookie, "k"),
            written(ApiKeyLocation::Query, "k"),
            written(ApiKeyLocation::Header, "X-K"),
        ]
    );
    assert!(keys[..2].iter().all(|key| key.value.expose() == SECRET));
    assert_eq!(keys[1].value.files().count(), 1);
    assert_eq!(agent("auth: { api_key: { value: x } }").auth.api_keys.len(), 1, "one needs no list");
}

#[test]
fn basic_and_bearer_are_read() {
    assert!(matches!(
        agent("auth: { basic: { user: u, password: '${SECRET}' } }").auth.authorization,
        Some(Authorization::Basic { user, password }) if user == "u" && password.expose() == SECRET
    ));
    assert!(matches!(
        agent("auth: { bearer: '${file:secret}' }").auth.authorization,
        Some(Authorization::Bearer(token)) if token.expose() == SECRET
    ));
}

/// The settings that these lines under `oauth2` become, for an agent with a client certificate.
fn oauth2(more: &str) -> OAuth2 {
    let own = format!(
        "auth: {{ oauth2: {{ token_url: 'https://idp.example/t', client_id: g, {more} }} }}\ntls: {{ certificate: gw.crt, key: gw.key }}"
    );
    match agent(&own).auth.authorization {
        Some(Authorization::OAuth2(oauth2)) => *oauth2,
        other => panic!("{other:?}"),
    }
}

#[test]
fn token_endpoint_gets_configured_secret() {
    assert_eq!(agent("tls: { server_name: b.example }").tls.server_name.as_deref(), Some("b.example"));
    let least = oauth2("client_secret: '${SECRET}'");
    assert!(matches!(&least.proof, ClientAuthMethod::SecretBasic(secret) if secret.expose() == SECRET));
    assert_eq!(
        (least.grant, least.scopes.len(), least.audience.as_deref()),
        (Grant::ClientCredentials, 0, None)
    );
    let post = oauth2(
        "client_secret: '${SECRET}', auth_method: client_secret_post, scopes: [a, b], audience: x, resource: 'https://r/'",
    );
    assert!(matches!(&post.proof, ClientAuthMethod::SecretPost(_)));
    assert_eq!(
        (post.scopes.join(" "), post.audience.as_deref(), post.resources.join(" ")),
        ("a b".into(), Some("x"), "https://r/".into())
    );
}

#[test]
fn token_endpoint_gets_key_or_certificate() {
    let key = oauth2("private_key: gw.key, key_id: k1, grant: token_exchange");
    assert!(matches!(&key.proof, ClientAuthMethod::PrivateKeyJwt { key_id: Some(id), .. } if id == "k1"));
    assert_eq!(key.grant, Grant::TokenExchange);
    assert!(matches!(oauth2("auth_method: tls_client_auth").proof, ClientAuthMethod::TlsClientAuth));
    let printed = format!("{key:?} {:?}", oauth2("client_secret: '${SECRET}'"));
    assert!(!printed.contains(SECRET) && !printed.contains("PRIVATE KEY"), "{printed}");
}

#[test]
fn bad_credential_is_named_with_remedy() {
    for (own, expected) in [
        (
            "auth: { bearer: x, basic: { user: u, password: x } }".to_owned(),
            "auth.bearer: is one credential too many (write one of basic, bearer and oauth2)",
        ),
        (
            "headers: { Authorization: x }\nauth: { bearer: x }".to_owned(),
            "auth: gives Authorization, which headers give too (remove one of them)",
        ),
        ("auth: { bearer: \"\\u0001\" }".to_owned(), "auth.bearer: has a character that no header may have"),
        (
            "auth: { basic: { user: 'a:b' } }".to_owned(),
            "auth.basic.password: is missing (write ${env:NAME} or ${file:PATH})\nauth.basic.user: is not a user's name (no colon, one line)",
        ),
        (
            "auth: { api_key: {} }".to_owned(),
            "auth.api_key.value: is missing (write ${env:NAME} or ${file:PATH})",
        ),
        (
            "auth: { api_key: { value: x, in: query } }".to_owned(),
            "auth.api_key.in: needs a name beside it (or remove it: then the card says where)",
        ),
        (
            "auth: { api_key: { value: x, name: k } }".to_owned(),
            "auth.api_key.name: needs `in` beside it (or remove it: then the card says where)",
        ),
        (
            "auth: { api_key: { value: x, in: header, name: Host } }".to_owned(),
            "auth.api_key.name: names a header that cannot carry a key",
        ),
        (
            "headers: { x-k: x }\nauth: { api_key: { value: x, in: header, name: X-K } }".to_owned(),
            "auth.api_key.name: names a header that is under headers too (remove one of them)",
        ),
        (
            "auth: { api_key: { value: x, in: cookie, name: k, scheme: s } }".to_owned(),
            "auth.api_key.scheme: says where the key goes, and so do in and name (remove one)",
        ),
        (
            "auth: { oauth2: { token_url: 'http://idp.example/t', client_secret: x } }".to_owned(),
            "auth.oauth2.token_url: is http, and secrets would travel in the open (write https)\nauth.oauth2.client_id: is missing (write the gateway's name there)",
        ),
    ] {
        assert_eq!(report(&own), expected, "{own}");
    }
}

#[test]
fn bad_token_endpoint_is_named_with_remedy() {
    let oauth2 =
        |more: &str| format!("auth: {{ oauth2: {{ token_url: 'https://i/t', client_id: g, {more} }} }}");
    for (own, expected) in [
        (
            oauth2(""),
            "auth.oauth2.client_secret: is missing (or write private_key, or auth_method: tls_client_auth)",
        ),
        (
            oauth2("auth_method: tls_client_auth"),
            "auth.oauth2.auth_method: needs the agent's tls.certificate and tls.key",
        ),
        (
            oauth2("client_secret: x, auth_method: private_key_jwt"),
            "auth.oauth2.client_secret: is not for this auth_method (remove it)\nauth.oauth2.private_key: is missing (the auth_method needs it)",
        ),
        (
            oauth2("client_secret: x, key_id: y"),
            "auth.oauth2.key_id: is not for this auth_method (remove it)",
        ),
        (
            oauth2("client_secret: x, scopes: ['a b']"),
            "auth.oauth2.scopes[0]: is not a scope (one word, without quotes and backslashes)",
        ),
        (oauth2("client_secret: x, resource: r"), "auth.oauth2.resource: is not a URL without a fragment"),
        (
            "tls: { server_name: 'a b' }".to_owned(),
            "tls.server_name: is not a name that a certificate can have",
        ),
    ] {
        assert_eq!(report(&own), expected, "{own}");
    }
}

#[test]
fn sensitive_headers_are_not_forwarded() {
    let forwarded =
        agent("forward_headers: [X-Tenant, cookie, X-Api-Key, Forwarded, traceparent]").forward_headers;
    assert_eq!(forwarded, ["x-tenant", "cookie", "x-api-key", "forwarded", "traceparent"]);
    let framing = "cannot be forwarded: the gateway writes the agent's request itself";
    for (name, expected) in [
        (
            "Authorization",
            "cannot be forwarded: a client's token is for the gateway alone, and MCP forbids passing it on (use auth.oauth2 with grant: token_exchange)",
        ),
        ("Proxy-Authorization", "cannot be forwarded: it is for the next hop alone"),
        ("Host", framing),
        ("Connection", framing),
        ("TE", framing),
        ("Transfer-Encoding", framing),
        ("Upgrade", framing),
        ("Keep-Alive", framing),
        ("Content-Encoding", framing),
        ("Content-Length", framing),
        ("Accept-Language", framing),
        ("Mcp-Session-Id", framing),
        ("MCP-Protocol-Version", framing),
        ("A2A-Version", framing),
        ("a b", "is not the name of a header"),
    ] {
        assert_eq!(
            report(&format!("forward_headers: ['{name}']")),
            format!("forward_headers[0]: {expected}")
        );
    }
    assert_eq!(report("forward_headers: [x-a, X-A]"), "forward_headers[1]: is there twice");
    assert_eq!(
        report("headers: { X-A: b }\nforward_headers: [x-a]"),
        "forward_headers[0]: is under headers too (remove one of them)"
    );
}
