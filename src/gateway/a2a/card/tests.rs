//! Members that the readers of each version require, in cards of agents of each version.

use super::*;
use crate::config::{ApiKeys, Auth, Mechanism, Require, RequireRule};

const ALL: [Dialect; 3] = [Dialect::V1, Dialect::V0_3, Dialect::V0_1];

fn front(dialect: Dialect, translate: bool) -> CardRewriter<'static> {
    CardRewriter {
        url: "https://gw.example/a2a/bard".to_owned(),
        dialect,
        version: None,
        clients: served(dialect, translate),
        security: CardSecurity::default(),
        has_push: false,
        shows: Box::new(|skill| skill != "whisper"),
    }
}

/// Returns the card for clients of all versions, with API keys required.
fn for_all(dialect: Dialect, card: &str) -> Value {
    let keys = ApiKeys { header: http::HeaderName::from_static("x-api-key"), holders: Vec::new() };
    let auth = Auth { api_keys: Some(keys), ..Auth::default() };
    let require = Require { rule: RequireRule::Any, of: vec![Mechanism::ApiKey] };
    let front = CardRewriter { security: CardSecurity::new(&auth, &require), ..front(dialect, true) };
    serde_json::from_str(&front.rewrite(card).unwrap()).unwrap()
}

const CARD: &str = r#"{"name":"Bard","url":"http://inside/","preferredTransport":"GRPC","protocolVersion":"0.3",
    "additionalInterfaces":[{"url":"http://inside/2","transport":"JSONRPC"}],"x-new":{"n":1.0},"signatures":[{}],
    "supportedInterfaces":[{"url":"http://inside/","protocolBinding":"JSONRPC","tenant":"acme"}],
    "capabilities":{"streaming":true,"pushNotifications":true},"securitySchemes":{"a":{}},"security":[{"a":[]}],
    "skills":[{"id":"sing","security":[{"a":[]}],"n":1e2},{"id":"whisper"}, 7]}"#;

/// Minimal cards of agents of each version.
const BARE: [(Dialect, &str); 3] = [
    (
        Dialect::V1,
        r#"{"name":"Bard","description":"Sings.","version":"1","supportedInterfaces":[],"provider":{"organization":"Inn"},
            "capabilities":{"extendedAgentCard":true},"defaultInputModes":["text/x"],"defaultOutputModes":["text/x"],
            "skills":[{"id":"sing","name":"Sing","description":"A song.","tags":["music"]}]}"#,
    ),
    (
        Dialect::V0_3,
        r#"{"name":"Bard","description":"Sings.","version":"1","url":"http://inside/","provider":null,"capabilities":{},
            "supportsAuthenticatedExtendedCard":true,"defaultInputModes":["text/x"],"defaultOutputModes":["text/x"],
            "skills":[{"id":"sing","name":"Sing","description":"A song.","tags":["music"]}]}"#,
    ),
    (
        Dialect::V0_1,
        r#"{"name":"Bard","description":null,"version":"1","url":"http://inside/","provider":{"organization":"Inn","url":null},
            "authentication":{"schemes":["Basic"]},"skills":[{"id":"sing","tags":null,"description":null},{"name":"no id"}]}"#,
    ),
];

#[test]
fn nothing_of_a_card_leads_past_the_gateway() {
    for (dialect, translate) in ALL.into_iter().flat_map(|dialect| [(dialect, false), (dialect, true)]) {
        let shown = front(dialect, translate).rewrite(CARD).unwrap();
        for gone in ["inside", "acme", "signatures", "security", "authentication", "whisper", "GRPC"] {
            assert!(!shown.contains(gone), "{gone}: {shown}");
        }
        assert!(shown.contains(r#""x-new":{"n":1.0}"#) && shown.contains(r#""n":1e2"#), "{shown}");
        assert!(shown.contains(r#""streaming":true,"pushNotifications":false"#), "{shown}");
    }
}

#[test]
fn the_shape_is_that_of_the_version_where_no_other_is_served() {
    let new = front(Dialect::V1, false).rewrite(CARD).unwrap();
    assert!(new.contains(
        r#""supportedInterfaces":[{"protocolBinding":"JSONRPC","protocolVersion":"1.0","url":"https://gw.example/a2a/bard"}"#
    ) && !new.contains("preferredTransport"), "{new}");
    let old = front(Dialect::V0_3, false).rewrite(CARD).unwrap();
    assert!(
        old.contains(
            r#""url":"https://gw.example/a2a/bard","preferredTransport":"JSONRPC","protocolVersion":"0.3.0""#
        ) && !old.contains("supportedInterfaces"),
        "{old}"
    );
    let oldest = front(Dialect::V0_1, false).rewrite(BARE[2].1).unwrap();
    assert!(!oldest.contains("protocolVersion") && oldest.contains(r#""tags":null"#), "{oldest}");
    assert_eq!(front(Dialect::V1, true).rewrite("[]"), None);
}

#[test]
fn a_client_of_1_0_finds_the_interfaces_with_the_agents_own_version_first() {
    let of = |binding, version| (binding, version);
    let (new, rest, old) = (of("JSONRPC", "1.0"), of("HTTP+JSON", "1.0"), of("JSONRPC", "0.3"));
    for ((dialect, card), expected) in
        BARE.into_iter().zip([[new, rest, old], [old, new, rest], [new, rest, old]])
    {
        let card = for_all(dialect, card);
        let interfaces = card["supportedInterfaces"].as_array().unwrap();
        let text = |interface: &Value, name: &str| interface[name].as_str().unwrap().to_owned();
        let found = interfaces.iter().map(|it| (text(it, "protocolBinding"), text(it, "protocolVersion")));
        let expected = expected.map(|(binding, version)| (binding.to_owned(), version.to_owned()));
        assert_eq!(found.collect::<Vec<_>>(), expected, "{dialect:?}");
        assert!(interfaces.iter().all(|it| it["url"] == "https://gw.example/a2a/bard"), "{interfaces:?}");
    }
}

#[test]
fn a_client_of_0_3_finds_where_to_call() {
    for (dialect, card) in BARE {
        let card = for_all(dialect, card);
        assert_eq!(card["url"], "https://gw.example/a2a/bard", "{dialect:?}");
        assert_eq!(
            (&card["preferredTransport"], &card["protocolVersion"]),
            (&json!("JSONRPC"), &json!("0.3.0"))
        );
        assert!(card.get("additionalInterfaces").is_none(), "{dialect:?}");
    }
    let version = |own, translate| {
        let front = CardRewriter { version: Some(own), ..front(Dialect::V0_3, translate) };
        let shown: Value = serde_json::from_str(&front.rewrite("{}").unwrap()).unwrap();
        shown["protocolVersion"].clone()
    };
    assert_eq!(
        [version("0.3.1", true), version("0.2.5", true), version("0.2.5", false)],
        ["0.3.1", "0.3.0", "0.2.5"]
    );
}

#[test]
fn every_member_that_some_version_requires_is_there() {
    for (dialect, card) in BARE {
        let card = for_all(dialect, card);
        for text in ["name", "description", "version", "url"] {
            assert!(card[text].is_string(), "{dialect:?} {text}: {card}");
        }
        for list in ["defaultInputModes", "defaultOutputModes"] {
            let expected = if dialect == Dialect::V0_1 { "text/plain" } else { "text/x" };
            assert_eq!(card[list], json!([expected]), "{dialect:?} {list}");
        }
        assert!(card["capabilities"].is_object(), "{card}");
    }
    for (dialect, card) in [BARE[0], BARE[2]] {
        assert_eq!(for_all(dialect, card)["provider"], json!({ "organization": "Inn", "url": "" }));
    }
    let nothing = for_all(Dialect::V0_1, "{}");
    assert_eq!((&nothing["name"], &nothing["skills"]), (&json!(""), &json!([])));
}

#[test]
fn every_skill_has_what_some_version_requires() {
    for (dialect, card) in BARE {
        let card = for_all(dialect, card);
        let skills = card["skills"].as_array().unwrap();
        assert_eq!(skills.len(), 1, "one without an id is none: {card}");
        let is_there = |name: &str| skills[0][name].is_string();
        assert!(["id", "name", "description"].into_iter().all(is_there), "{dialect:?}: {card}");
        assert!(skills[0]["tags"].is_array(), "{card}");
    }
}

#[test]
fn security_is_said_in_the_words_of_every_version() {
    for (dialect, card) in BARE {
        let card = for_all(dialect, card);
        assert_eq!(
            card["securitySchemes"],
            json!({ "api_key": {
                "type": "apiKey", "in": "header", "name": "x-api-key",
                "apiKeySecurityScheme": { "location": "header", "name": "x-api-key" },
            } }),
            "{dialect:?}"
        );
        assert_eq!(card["security"], json!([{ "api_key": [] }]));
        assert_eq!(card["securityRequirements"], json!([{ "schemes": { "api_key": { "list": [] } } }]));
        assert_eq!(card["authentication"], json!({ "schemes": ["apiKey"] }));
    }
}

#[test]
fn both_versions_say_the_same_of_an_extended_card() {
    let said = |dialect, card: &str| {
        let card = for_all(dialect, card);
        (
            card["supportsAuthenticatedExtendedCard"].as_bool(),
            card["capabilities"]["extendedAgentCard"].as_bool(),
        )
    };
    let yes = (Some(true), Some(true));
    assert_eq!((said(Dialect::V1, BARE[0].1), said(Dialect::V0_3, BARE[1].1)), (yes, yes));
    let both = r#"{"supportsAuthenticatedExtendedCard":true,"capabilities":{"extendedAgentCard":false}}"#;
    let no = (Some(false), Some(false));
    assert_eq!(
        [said(Dialect::V1, both), said(Dialect::V0_3, both), said(Dialect::V0_1, both)],
        [no, yes, (None, None)]
    );
}

#[test]
fn a_client_of_1_0_alone_gets_a_card_of_1_0() {
    let card = r#"{"name":"Bard","url":"http://inside/","protocolVersion":"0.3.0","supportsAuthenticatedExtendedCard":true,
        "capabilities":{"streaming":true,"stateTransitionHistory":false},"skills":[{"id":"sing"}]}"#;
    let shown =
        CardRewriter { clients: vec![Dialect::V1], ..front(Dialect::V0_3, true) }.rewrite(card).unwrap();
    let mut shown: Value = serde_json::from_str(&shown).unwrap();
    let interfaces = shown["supportedInterfaces"].take();
    assert_eq!(interfaces.as_array().unwrap().len(), 2, "those of 1.0: {interfaces}");
    assert_eq!(
        shown,
        json!({
            "name": "Bard", "description": "", "version": "", "supportedInterfaces": null,
            "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
            "capabilities": { "streaming": true, "pushNotifications": false, "extendedAgentCard": true },
            "skills": [{ "id": "sing", "name": "sing", "description": "", "tags": [] }],
        })
    );
    let shown =
        CardRewriter { clients: vec![Dialect::V0_3], ..front(Dialect::V1, true) }.rewrite(BARE[0].1).unwrap();
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(
        (&shown["url"], &shown["supportsAuthenticatedExtendedCard"]),
        (&json!("https://gw.example/a2a/bard"), &json!(true))
    );
    assert!(
        shown.get("supportedInterfaces").is_none()
            && shown["capabilities"].get("extendedAgentCard").is_none()
    );
}

#[test]
fn no_spelling_leads_past_the_gateway_or_shows_what_is_hidden() {
    let card = r#"{"name":"Bard","supported_interfaces":[{"url":"http://inside/"}],"URL":"http://inside/","security_schemes":{"a":{}},
        "skills":[{"id":"whisper\u200b"},{"id":"sing","security_requirements":[{}]},{"id":7},{"name":"none"}]}"#;
    for (dialect, translate) in ALL.into_iter().flat_map(|dialect| [(dialect, false), (dialect, true)]) {
        let shown = front(dialect, translate).rewrite(card).unwrap();
        for gone in ["inside", "security", "whisper", "none"] {
            assert!(!shown.contains(gone), "{dialect:?} {translate}: {gone}: {shown}");
        }
        assert!(shown.contains("sing"), "{shown}");
    }
}
