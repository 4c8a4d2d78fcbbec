//! The claims of tokens and of introspection answers: the caller that they name, their time, their
//! groups.

use serde_json::{Value, json};

use crate::auth::tokens::{ALL, Place, place};
use crate::kit::issuer::{Issuer, Key, at};
use crate::support::Reply;

/// Every refusal counts as a guess; these tests guess a lot.
const ANY_GUESSES: &str = "limits: { auth_failures: 0 }\n";

/// A gateway that asks its issuer about each token, and the issuer, which answers `{"active": true,
/// "aud": …}` with the members that the token spells out in hexadecimal digits.
async fn introspecting(own: &str, more: &str) -> (Issuer, Place) {
    let issuer = Issuer::new(&[]).await;
    issuer.server.on_path("/introspect", |request| {
        let form = String::from_utf8(request.body.clone()).unwrap();
        let token = form.split('&').find_map(|pair| pair.strip_prefix("token=")).unwrap();
        let digits: Vec<char> = token.chars().collect();
        let byte = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap();
        let said: Value = serde_json::from_slice(&digits.chunks(2).map(byte).collect::<Vec<_>>()).unwrap();
        let mut answer = json!({ "active": true, "aud": ALL });
        answer.as_object_mut().unwrap().extend(said.as_object().unwrap().clone());
        Reply::json(&answer)
    });
    let name = issuer.name();
    let own = format!(
        "introspection:\n  url: {name}/introspect\n  client_id: gateway\n  client_secret: secret\n{own}"
    );
    let place = place(&name, &own, more).await;
    (issuer, place)
}

/// A token for which the issuer answers with these members.
fn opaque(said: &Value) -> String {
    said.to_string().bytes().map(|byte| format!("{byte:02x}")).collect()
}

/// The claims of a token with `sub` replaced by these members.
fn without_subject(issuer: &Issuer, members: &Value) -> Value {
    issuer.claims(ALL, |claims| {
        let claims = claims.as_object_mut().unwrap();
        claims.remove("sub");
        claims.extend(members.as_object().unwrap().clone());
    })
}

#[tokio::test]
async fn token_without_subject_names_no_caller() {
    let key = Key::es256("k1");
    let issuer = Issuer::new(&[&key]).await;
    let signed = place(&issuer.name(), "", "").await;
    let (_asked, opaquely) = introspecting("", "").await;
    for members in [json!({ "client_id": "job" }), json!({ "client_id": "job", "sub": "" }), json!({})] {
        assert_eq!(signed.status(&key.sign(&without_subject(&issuer, &members))).await, 401, "{members}");
        assert_eq!(opaquely.status(&opaque(&members)).await, 401, "{members}");
    }
}

/// Two users of one client are never one caller, nor is a client ever a user of the same name.
#[tokio::test]
async fn client_token_names_client_of_its_issuer() {
    let key = Key::es256("k1");
    let issuer = Issuer::new(&[&key]).await;
    let rules = |issuer: &str| format!("{ANY_GUESSES}rules:\n  - callers: \"client:{issuer}#alice\"\n");
    let signed = place(&issuer.name(), "client_tokens: true", &rules(&issuer.name())).await;
    let (_asked, opaquely) = introspecting("client_tokens: true", &rules("http:*")).await;
    let both = async |members: Value, expected: u16| {
        let token = key.sign(&without_subject(&issuer, &members));
        assert_eq!(signed.status(&token).await, expected, "{members}");
        assert_eq!(opaquely.status(&opaque(&members)).await, expected, "{members}");
    };
    both(json!({ "client_id": "alice" }), 200).await;
    both(json!({ "client_id": "alice", "sub": null, "username": null }), 200).await;
    // Another caller, to which no rule allows anything.
    let odd = format!("client:{}#alice", issuer.name());
    for other in ["alice", "client:alice", odd.as_str()] {
        both(json!({ "sub": other }), 403).await;
        both(json!({ "sub": other, "client_id": "alice" }), 403).await;
    }
    both(json!({ "client_id": "bob" }), 403).await;
    // A user took part, or nothing is named.
    for member in [
        "username",
        "user_name",
        "user_id",
        "uid",
        "upn",
        "unique_name",
        "preferred_username",
        "email",
        "name",
        "sid",
        "auth_time",
        "act",
    ] {
        both(json!({ "client_id": "alice", member: "alice" }), 401).await;
    }
    for sub in [json!(""), json!(7), json!(["alice"]), json!({})] {
        both(json!({ "client_id": "alice", "sub": sub }), 401).await;
    }
    for client in
        [json!(""), json!(7), json!(null), json!("a\nb"), json!("a & key:b"), json!("x".repeat(300))]
    {
        both(json!({ "client_id": client }), 401).await;
    }
    both(json!({}), 401).await;
}

/// CVE-2026-25537: a time that cannot be read counted as none.
#[tokio::test]
async fn unreadable_token_time_is_refused() {
    let key = Key::es256("k1");
    let issuer = Issuer::new(&[&key]).await;
    let signed = place(&issuer.name(), "", ANY_GUESSES).await;
    let (asked, opaquely) = introspecting("", ANY_GUESSES).await;
    let both = async |name: &str, value: Value, expected: u16| {
        let claims = issuer.claims(ALL, |claims| claims[name] = value.clone());
        assert_eq!(signed.status(&key.sign(&claims)).await, expected, "{name} {value}");
        let said = json!({ "sub": "alice", name: value });
        assert_eq!(opaquely.status(&opaque(&said)).await, expected, "{name} {value}");
    };
    for (name, value) in [
        ("nbf", json!(at(-100))),
        ("nbf", json!(at(20))),
        ("nbf", json!(0.5)),
        ("exp", json!(at(-20))),
        ("exp", json!(at(60) as f64 + 0.5)),
        ("iat", json!("a while ago")),
    ] {
        both(name, value, 200).await;
    }
    for name in ["nbf", "exp"] {
        for value in [
            json!(at(-100).to_string()),
            json!(at(100).to_string()),
            json!(u64::MAX),
            json!(1e300),
            json!(-1),
            json!(-1.5),
            json!(true),
            json!([at(0)]),
            json!({}),
            json!(""),
        ] {
            both(name, value, 401).await;
        }
    }
    both("nbf", json!(at(100)), 401).await;
    both("exp", json!(at(-100)), 401).await;
    drop(asked);
}

/// An issuer that answers for several, or has a wrong clock, is not believed blindly.
#[tokio::test]
async fn introspection_claims_are_judged() {
    let (issuer, place) = introspecting("", ANY_GUESSES).await;
    let status = async |members: Value| {
        let mut said = json!({ "sub": "alice" });
        said.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        place.status(&opaque(&said)).await
    };
    for good in [
        json!({}),
        json!({ "iss": issuer.name(), "exp": at(60), "nbf": at(-60), "token_type": "bearer" }),
        json!({ "aud": ["https://other", ALL], "token_type": "Bearer" }),
    ] {
        assert_eq!(status(good.clone()).await, 200, "{good}");
    }
    for bad in [
        json!({ "exp": at(-60) }),
        json!({ "nbf": at(60) }),
        json!({ "iss": "https://other" }),
        json!({ "iss": [issuer.name()] }),
        json!({ "iss": 7 }),
        json!({ "aud": "https://other" }),
        json!({ "aud": [] }),
        json!({ "aud": null }),
        json!({ "aud": { ALL: ALL } }),
        json!({ "aud": [[ALL]] }),
        json!({ "active": "true" }),
        json!({ "token_type": "DPoP" }),
        json!({ "token_type": "mac" }),
        json!({ "token_type": 7 }),
    ] {
        assert_eq!(status(bad.clone()).await, 401, "{bad}");
    }
}

/// A rule that refuses by group or scope refuses every token with unknown groups or scopes.
#[tokio::test]
async fn unclear_groups_are_refused() {
    let key = Key::es256("k1");
    let issuer = Issuer::new(&[&key]).await;
    let rules = "\
rules:
  - { name: banned, deny: true, groups: banned }
  - { name: read only, deny: true, scopes: [frozen, old] }
  - { name: all }
";
    let ruled = place(&issuer.name(), "", rules).await;
    let free = place(&issuer.name(), "", "").await;
    let allowing = "rules:\n  - { groups: ops }\n  - { scopes: [ops] }\n";
    let allowing = place(&issuer.name(), "", allowing).await;
    let token = |members: &Value| {
        key.sign(&issuer.claims(ALL, |claims| {
            claims.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        }))
    };
    for clear in [
        json!({}),
        json!({ "groups": [] }),
        json!({ "groups": "ops" }),
        json!({ "groups": ["ops"], "scope": ["frozen"] }),
        json!({ "scope": "frozen" }),
        json!({ "_claim_names": { "address": "src1" } }),
    ] {
        assert_eq!(ruled.status(&token(&clear)).await, 200, "{clear}");
    }
    for refused in [json!({ "groups": "banned" }), json!({ "groups": ["ops", "banned"] })] {
        assert_eq!(ruled.status(&token(&refused)).await, 403, "{refused}");
    }
    for unclear in [
        json!({ "groups": 7 }),
        json!({ "groups": true }),
        json!({ "groups": null }),
        json!({ "groups": { "banned": true } }),
        json!({ "groups": [["banned"]] }),
        json!({ "groups": [{ "name": "banned" }] }),
        json!({ "groups": ["ops", 7] }),
        json!({ "_claim_names": { "groups": "src1" }, "_claim_sources": { "src1": {} } }),
        json!({ "groups": ["ops"], "_claim_names": "src1" }),
        json!({ "scope": { "frozen": true } }),
        json!({ "scope": ["ops", ["frozen"]] }),
        json!({ "_claim_names": { "scope": "src1" } }),
    ] {
        let token = token(&unclear);
        assert_eq!(ruled.status(&token).await, 403, "{unclear}");
        assert_eq!(free.status(&token).await, 200, "no rule asks: {unclear}");
        assert_eq!(allowing.status(&token).await, 403, "unclear is not allowed either: {unclear}");
    }
    assert_eq!(allowing.status(&token(&json!({ "groups": ["ops"] }))).await, 200);
}
