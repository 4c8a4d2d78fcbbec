//! Security section of a card: the authentication that A2A clients need at the gateway.
//!
//! Reads docs/spec/a2a.md §3.1. The agent's own security requirements are met by the gateway. See
//! also `auth`.

use std::collections::BTreeMap;

use http::header::AUTHORIZATION;
use serde_json::{Map, Value, json};

use crate::a2a::Dialect;
use crate::config::{Auth, KeySource, Mechanism, Require, RequireRule, TokenIssuer, TokenVerification};
use crate::gateway::json_object::RawObject;

/// Authentication mechanisms, and the sufficient combinations of them.
#[derive(Debug, Default)]
pub(in crate::gateway::a2a) struct CardSecurity {
    schemes: Vec<(String, PresentedScheme)>,
    /// Each alternative is sufficient; it consists of schemes that are required together.
    alternatives: Vec<Vec<String>>,
    scopes: Vec<String>,
}

#[derive(Debug)]
enum PresentedScheme {
    Certificate,
    Key(String),
    Bearer,
    OpenId(String),
}

impl CardSecurity {
    /// Creates the section for the requirements of a listener.
    pub(in crate::gateway::a2a) fn new(auth: &Auth, require: &Require) -> Self {
        let by_mechanism: Vec<Vec<(String, PresentedScheme)>> =
            require.of.iter().map(|mechanism| schemes(auth, *mechanism)).collect();
        let names = |schemes: &Vec<(String, PresentedScheme)>| -> Vec<String> {
            schemes.iter().map(|(name, _)| name.clone()).collect()
        };
        let alternatives = match require.rule {
            RequireRule::None => Vec::new(),
            RequireRule::Any => by_mechanism.iter().flat_map(names).map(|name| vec![name]).collect(),
            RequireRule::All => by_mechanism.iter().map(names).fold(vec![Vec::new()], |all, next| {
                let with = |name: &String| {
                    all.iter()
                        .map(|before| before.iter().chain([name]).cloned().collect())
                        .collect::<Vec<_>>()
                };
                next.iter().flat_map(with).collect()
            }),
        };
        let schemes = by_mechanism.into_iter().flatten().collect();
        Self { schemes, alternatives, scopes: auth.scopes.clone() }
    }

    /// Writes the section into a card for clients of these versions.
    pub(super) fn write(&self, card: &mut RawObject, served: &[Dialect]) {
        if self.schemes.is_empty() {
            return;
        }
        if served.contains(&Dialect::V0_1) {
            let names: Vec<&str> = self.schemes.iter().map(|(_, scheme)| scheme.word()).collect();
            card.insert_or_replace("authentication", &json!({ "schemes": names }));
        }
        let later: Vec<Dialect> = served.iter().copied().filter(|it| *it != Dialect::V0_1).collect();
        if later.is_empty() {
            return;
        }
        // Both versions use one member name. Their fields differ, and readers ignore those of the
        // other version.
        let schemes: BTreeMap<&str, Map<String, Value>> =
            self.schemes.iter().map(|(name, scheme)| (name.as_str(), scheme.for_all(&later))).collect();
        card.insert_or_replace("securitySchemes", &schemes);
        if self.alternatives.is_empty() {
            return;
        }
        for dialect in later {
            let alternatives = self.alternatives.iter().map(|names| self.alternative(names, dialect));
            let alternatives: Vec<Value> = alternatives.collect();
            match dialect {
                Dialect::V1 => card.insert_or_replace("securityRequirements", &alternatives),
                Dialect::V0_1 | Dialect::V0_3 => card.insert_or_replace("security", &alternatives),
            }
        }
    }

    fn alternative(&self, names: &[String], dialect: Dialect) -> Value {
        let is_token = |name: &str| {
            let scheme = self.schemes.iter().find(|(known, _)| known == name);
            matches!(scheme, Some((_, PresentedScheme::OpenId(_))))
        };
        let scopes = |name: &str| if is_token(name) { self.scopes.clone() } else { Vec::new() };
        let each = names.iter().map(|name| match dialect {
            Dialect::V1 => (name.as_str(), json!({ "list": scopes(name) })),
            Dialect::V0_1 | Dialect::V0_3 => (name.as_str(), json!(scopes(name))),
        });
        let each: BTreeMap<&str, Value> = each.collect();
        match dialect {
            Dialect::V1 => json!({ "schemes": each }),
            Dialect::V0_1 | Dialect::V0_3 => json!(each),
        }
    }
}

fn schemes(auth: &Auth, mechanism: Mechanism) -> Vec<(String, PresentedScheme)> {
    match mechanism {
        Mechanism::Certificate => vec![("certificate".to_owned(), PresentedScheme::Certificate)],
        Mechanism::ApiKey => {
            let of = |header: &http::HeaderName| match *header == AUTHORIZATION {
                true => PresentedScheme::Bearer,
                false => PresentedScheme::Key(header.as_str().to_owned()),
            };
            auth.api_keys.iter().map(|keys| ("api_key".to_owned(), of(&keys.header))).collect()
        }
        Mechanism::Token => {
            let name = |at: usize| if at == 0 { "token".to_owned() } else { format!("token_{}", at + 1) };
            auth.tokens.iter().enumerate().map(|(at, issuer)| (name(at), token(issuer))).collect()
        }
    }
}

fn token(issuer: &TokenIssuer) -> PresentedScheme {
    match &issuer.check {
        TokenVerification::Signature { keys: KeySource::Discovery, .. } => {
            let base = issuer.issuer.trim_end_matches('/');
            PresentedScheme::OpenId(format!("{base}/.well-known/openid-configuration"))
        }
        TokenVerification::Signature { .. } | TokenVerification::Introspection { .. } => {
            PresentedScheme::Bearer
        }
    }
}

impl PresentedScheme {
    /// Returns the name of the scheme in 0.1, which has no further fields.
    fn word(&self) -> &'static str {
        match self {
            Self::Certificate => "mutualTLS",
            Self::Key(_) => "apiKey",
            Self::Bearer | Self::OpenId(_) => "Bearer",
        }
    }

    fn for_all(&self, served: &[Dialect]) -> Map<String, Value> {
        let each = served.iter().filter_map(|dialect| match self.written(*dialect) {
            Value::Object(members) => Some(members),
            _ => None,
        });
        each.flatten().collect()
    }

    fn written(&self, dialect: Dialect) -> Value {
        match (dialect, self) {
            (Dialect::V1, Self::Certificate) => json!({ "mtlsSecurityScheme": {} }),
            (Dialect::V1, Self::Key(name)) => {
                json!({ "apiKeySecurityScheme": { "location": "header", "name": name } })
            }
            (Dialect::V1, Self::Bearer) => json!({ "httpAuthSecurityScheme": { "scheme": "Bearer" } }),
            (Dialect::V1, Self::OpenId(url)) => {
                json!({ "openIdConnectSecurityScheme": { "openIdConnectUrl": url } })
            }
            (Dialect::V0_1 | Dialect::V0_3, Self::Certificate) => json!({ "type": "mutualTLS" }),
            (Dialect::V0_1 | Dialect::V0_3, Self::Key(name)) => {
                json!({ "type": "apiKey", "in": "header", "name": name })
            }
            (Dialect::V0_1 | Dialect::V0_3, Self::Bearer) => json!({ "type": "http", "scheme": "bearer" }),
            (Dialect::V0_1 | Dialect::V0_3, Self::OpenId(url)) => {
                json!({ "type": "openIdConnect", "openIdConnectUrl": url })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ApiKeys, CertificateName};

    fn auth() -> Auth {
        let issuer = |name: &str, keys| TokenIssuer {
            issuer: name.to_owned(),
            audience: Vec::new(),
            check: TokenVerification::Signature {
                keys,
                algorithms: Vec::new(),
                refresh: std::time::Duration::ZERO,
            },
            leeway: std::time::Duration::ZERO,
            client_tokens: false,
            scope_claim: String::new(),
            groups_claim: String::new(),
            ca: None,
        };
        Auth {
            certificate: vec![CertificateName::Spiffe],
            api_keys: Some(ApiKeys {
                header: http::HeaderName::from_static("x-api-key"),
                holders: Vec::new(),
            }),
            tokens: vec![
                issuer("https://id.example/", KeySource::Discovery),
                issuer("https://other.example", KeySource::Url("https://other.example/jwks".to_owned())),
            ],
            scopes: vec!["agents".to_owned()],
            ..Auth::default()
        }
    }

    fn written(rule: RequireRule, served: &[Dialect]) -> Value {
        let auth = auth();
        let require = Require { rule, of: auth.mechanisms() };
        let mut card = RawObject::default();
        CardSecurity::new(&auth, &require).write(&mut card, served);
        serde_json::from_str(card.written().get()).unwrap()
    }

    #[test]
    fn any_of_what_the_gateway_knows_is_one_alternative_each() {
        let card = written(RequireRule::Any, &[Dialect::V1]);
        assert_eq!(card["securitySchemes"]["certificate"], json!({ "mtlsSecurityScheme": {} }));
        assert_eq!(
            card["securitySchemes"]["token"]["openIdConnectSecurityScheme"]["openIdConnectUrl"],
            "https://id.example/.well-known/openid-configuration"
        );
        assert_eq!(
            card["securityRequirements"],
            json!([
                { "schemes": { "certificate": { "list": [] } } },
                { "schemes": { "token": { "list": ["agents"] } } },
                { "schemes": { "token_2": { "list": [] } } },
                { "schemes": { "api_key": { "list": [] } } },
            ])
        );
    }

    #[test]
    fn all_of_it_is_one_alternative_for_each_issuer() {
        let card = written(RequireRule::All, &[Dialect::V0_3]);
        assert_eq!(
            card["securitySchemes"]["api_key"],
            json!({ "type": "apiKey", "in": "header", "name": "x-api-key" })
        );
        assert_eq!(
            card["security"],
            json!([
                { "api_key": [], "certificate": [], "token": ["agents"] },
                { "api_key": [], "certificate": [], "token_2": [] },
            ])
        );
    }

    #[test]
    fn a_card_of_0_1_names_the_ways_and_no_more() {
        let card = written(RequireRule::Any, &[Dialect::V0_1]);
        assert_eq!(card["authentication"]["schemes"], json!(["mutualTLS", "Bearer", "Bearer", "apiKey"]));
    }

    #[test]
    fn where_nothing_is_required_nothing_is_asked_for() {
        let card = written(RequireRule::None, &[Dialect::V1]);
        assert!(card["securityRequirements"].is_null() && card["securitySchemes"]["api_key"].is_object());
    }
}
