//! Cards for A2A clients: an agent's card with the URLs and the security of the gateway, and the
//! skills that the caller may use. Unknown members stay.
//!
//! If clients of every version are served, each of them can read the card: it has the members of all
//! versions side by side, like the cards of SDKs that speak two. A member that only one version
//! requires is added; existing members stay as they are, and `null` counts as absent, as those SDKs
//! reject it for a required member. A signature is valid for the original card only, so signatures are
//! removed. The agent's own security requirements are met by the gateway; those of the gateway follow
//! docs/spec/a2a.md §3.1. Out of scope: fetching the card (see `agents`).

use std::collections::BTreeMap;

use http::header::{AUTHORIZATION, HOST, HeaderName, VARY};
use http::{HeaderValue, StatusCode};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::error::A2aError;
use super::{A2aServer, AgentScope, JSON, TypedBody, write};
use crate::a2a::{Dialect, skill_id};
use crate::agents::ResolvedAgent;
use crate::auth::Caller;
use crate::calls::resolved_agent;
use crate::config::{Auth, KeySource, Mechanism, Require, RequireRule, TokenIssuer, TokenVerification};
use crate::discovery::{ServedAddress, ServedInterface};
use crate::fault::{AgentFailure, ClientGone};
use crate::http_edge::{AccessRecord, ClientConnection, Headers, cacheable_json};
use crate::jsonrpc::object::RawObject;
use crate::telemetry::label;

/// Rewriter of an agent's card for one caller.
pub(super) struct CardRewriter<'a> {
    /// The agent at the gateway.
    address: ServedAddress,
    /// Dialect of the agent.
    dialect: Dialect,
    /// Version in the agent's card.
    version: Option<&'a str>,
    /// Dialects of the clients that read the card, in order of preference.
    clients: Vec<Dialect>,
    /// Authentication that the caller needs.
    security: CardSecurity,
    /// True if push notifications reach this caller.
    has_push: bool,
    /// Returns true if the caller may use a skill.
    shows: Box<dyn Fn(&str) -> bool + Send + Sync + 'a>,
}

/// Members about calling the agent, or private to the agent, in every version.
const OWN_MEMBERS: [&str; 11] = [
    "url",
    "preferredTransport",
    "additionalInterfaces",
    "protocolVersion",
    "supportedInterfaces",
    "tenant",
    "signatures",
    "authentication",
    "securitySchemes",
    "security",
    "securityRequirements",
];

/// Members of a skill that are private to the agent.
const OWN_SKILL_MEMBERS: [&str; 2] = ["security", "securityRequirements"];

/// Returns true if a reader may take a member for `known`: protobuf readers accept two names for
/// each member.
fn is_readable_by(name: &str, known: &str) -> bool {
    let letters = name.chars().filter(|letter| *letter != '_');
    letters.flat_map(char::to_lowercase).eq(known.chars().flat_map(char::to_lowercase))
}

impl CardRewriter<'_> {
    /// Returns true if clients of other dialects read the card.
    fn has_others(&self) -> bool {
        self.clients.iter().any(|client| *client != self.dialect)
    }

    /// Returns the card for the caller; `None` if it is not an object.
    pub(super) fn rewrite(&self, card: &str) -> Option<String> {
        let mut card = RawObject::read(card)?;
        card.remove_all(|name| OWN_MEMBERS.iter().any(|own| is_readable_by(name, own)));
        self.interfaces(&mut card);
        self.security.write(&mut card, &self.clients);
        if self.has_others() {
            complete(&mut card);
            fit_capabilities(&mut card, self.dialect, &self.clients);
        }
        if !self.has_push
            && let Some(mut can) = card.find("capabilities").and_then(|can| RawObject::read(can.get()))
        {
            can.insert_or_replace("pushNotifications", &false);
            card.set("capabilities", can.written());
        }
        if let Some(skills) = card.find("skills") {
            let skills: Vec<&RawValue> = serde_json::from_str(skills.get()).ok()?;
            let shown: Vec<Box<RawValue>> =
                skills.into_iter().filter_map(|skill| self.skill(skill)).collect();
            card.insert_or_replace("skills", &shown);
        }
        Some(card.written().get().to_owned())
    }

    fn interfaces(&self, card: &mut RawObject) {
        let clients = &self.clients;
        if clients.contains(&Dialect::V1) {
            let each: Vec<ServedInterface<'_>> =
                clients.iter().flat_map(|version| self.address.interfaces(*version)).collect();
            card.insert_or_replace("supportedInterfaces", &each);
        }
        if clients.iter().any(|version| *version != Dialect::V1) {
            card.insert_or_replace("url", &self.address.url);
        }
        if clients.contains(&Dialect::V0_3) {
            card.insert_or_replace("preferredTransport", &"JSONRPC");
            let interfaces = self.address.interfaces(Dialect::V0_3);
            if interfaces.len() > 1 {
                let of = |each: &ServedInterface<'_>| json!({ "url": each.url, "transport": each.protocol_binding });
                card.insert_or_replace(
                    "additionalInterfaces",
                    &interfaces.iter().map(of).collect::<Vec<_>>(),
                );
            }
            // An agent of 0.2 is served to clients of 0.3, which require that version in the card.
            let own = self.version.filter(|own| !self.has_others() || own.starts_with("0.3"));
            card.insert_or_replace("protocolVersion", &own.unwrap_or("0.3.0"));
        }
    }

    /// Returns a skill without its own security requirements, if the caller may use it.
    fn skill(&self, skill: &RawValue) -> Option<Box<RawValue>> {
        let mut members = RawObject::read(skill.get())?;
        // Under the name that the rules and the settings use.
        let id = skill_id(&members.text("id")?);
        if id.is_empty() || !(self.shows)(&id) {
            return None;
        }
        members.remove_all(|name| OWN_SKILL_MEMBERS.iter().any(|own| is_readable_by(name, own)));
        if self.has_others() {
            complete_skill(&mut members)?;
        }
        Some(members.written())
    }
}

/// Reader of a card: a caller, and the clients that the card is for.
pub(super) struct CardReader<'c> {
    pub(super) caller: &'c Caller,
    /// URL of the gateway for the caller.
    pub(super) url: String,
    /// Dialects of the clients, in order of preference. If only clients of 1.0 read a card, it has
    /// no known member of other versions: some readers of extended cards reject unknown members.
    pub(super) clients: Vec<Dialect>,
    /// True if the clients can call the gateway over gRPC.
    pub(super) has_grpc: bool,
}

impl A2aServer {
    /// Sends the agent's card.
    pub(super) async fn serve_card(
        &self,
        http: &mut impl ClientConnection,
        record: &mut AccessRecord,
        scope: &AgentScope<'_>,
    ) -> Result<(), ClientGone> {
        record.method = label::Method::AgentCard;
        let url = self.settings.public_url.for_client(http);
        match self.card(record, scope, url) {
            Ok(card) => cacheable_json(http, JSON, card.into_bytes(), self.card_vary()).await,
            Err(failure) => {
                let error = A2aError::Agent(failure);
                self.record_error(record, &error);
                let status = StatusCode::SERVICE_UNAVAILABLE;
                let body = TypedBody::json(scope.error_body(&error).unavailable());
                write(http, status, error.headers(status), body).await
            }
        }
    }

    /// Returns the agent's card for the caller, and counts its bytes.
    fn card(
        &self,
        record: &mut AccessRecord,
        scope: &AgentScope<'_>,
        url: String,
    ) -> Result<String, AgentFailure> {
        let resolved = resolved_agent(&scope.agent, record.forwarded.as_ref())?.in_effect();
        let clients = resolved.interface.dialect.served_with(scope.agent.settings.translate);
        let reader = CardReader { caller: &record.caller, url, clients, has_grpc: record.has_grpc };
        let card = self
            .card_rewriter(scope, &resolved, reader)
            .rewrite(resolved.card.raw.get())
            .ok_or_else(|| AgentFailure::ProtocolViolation("its card is no card".into()))?;
        record.hold(&self.limits, None, card.len())?;
        Ok(card)
    }

    /// Returns the `Vary` headers of a card. Not `A2A-Version`: one card serves clients of every
    /// version.
    fn card_vary(&self) -> Headers {
        let host = self.settings.public_url.configured().is_none().then_some(HOST);
        let names = [Some(AUTHORIZATION), self.settings.key_header.clone(), host].into_iter().flatten();
        names.map(|name: HeaderName| (VARY, HeaderValue::from(name))).collect()
    }

    /// Returns the rewriter of the agent's card for a reader.
    pub(super) fn card_rewriter<'a>(
        &'a self,
        scope: &'a AgentScope<'_>,
        resolved: &'a ResolvedAgent,
        reader: CardReader<'_>,
    ) -> CardRewriter<'a> {
        let visible = self.discovery.visible_skills(reader.caller, &scope.agent);
        let mut address = ServedAddress::new(&reader.url, scope.name());
        if reader.has_grpc {
            let is_alone = self.discovery.only_agent(reader.caller).is_some();
            address = address.with_grpc(&reader.url, &scope.agent.settings, is_alone);
        }
        CardRewriter {
            address,
            dialect: resolved.interface.dialect,
            version: resolved.interface.version.as_deref(),
            clients: reader.clients,
            security: CardSecurity::new(&self.settings.security, scope.require),
            has_push: !self.settings.seals_ids || self.webhooks.is_forwarded(&scope.agent),
            shows: Box::new(move |skill: &str| visible.has(skill)),
        }
    }
}

/// Members of 1.0 and 0.3 for the existence of an extended card, which requires authentication.
const EXTENDED: &str = "extendedAgentCard";
const OLD_EXTENDED: &str = "supportsAuthenticatedExtendedCard";

/// Adds missing members, except those of skills.
fn complete(card: &mut RawObject) {
    for name in ["name", "description", "version"] {
        set_default(card, name, "\"\"");
    }
    // The defaults that 0.1 defines for absent members.
    for name in ["defaultInputModes", "defaultOutputModes"] {
        set_default(card, name, r#"["text/plain"]"#);
    }
    set_default(card, "capabilities", "{}");
    set_default(card, "skills", "[]");
    if let Some(mut provider) = object(card, "provider") {
        set_default(&mut provider, "organization", "\"\"");
        set_default(&mut provider, "url", "\"\"");
        card.set("provider", provider.written());
    }
}

/// Adds missing members of one skill; `None` if it has no id, which every version requires.
fn complete_skill(skill: &mut RawObject) -> Option<()> {
    let id = skill.text("id").filter(|id| !id.is_empty())?;
    if is_absent(skill, "name") {
        skill.insert_or_replace("name", &id);
    }
    set_default(skill, "description", "\"\"");
    set_default(skill, "tags", "[]");
    Some(())
}

/// Adapts the capabilities to the clients: the flag for an extended card gets the value from the
/// agent's own version in the forms of 0.3 and 1.0, and a member of older versions is hidden from
/// clients of 1.0 alone.
fn fit_capabilities(card: &mut RawObject, agent: Dialect, clients: &[Dialect]) {
    let Some(mut can) = object(card, "capabilities") else { return };
    let (new, old) = (flag(&can, EXTENDED), flag(card, OLD_EXTENDED));
    let has = match agent {
        Dialect::V1 => new.or(old),
        Dialect::V0_3 => old.or(new),
        // 0.1 has no extended card.
        Dialect::V0_1 => None,
    };
    can.remove(EXTENDED);
    card.remove(OLD_EXTENDED);
    if let Some(has) = has {
        if clients.contains(&Dialect::V1) {
            can.insert_or_replace(EXTENDED, &has);
        }
        if clients.contains(&Dialect::V0_3) {
            card.insert_or_replace(OLD_EXTENDED, &has);
        }
    }
    if clients.iter().all(|client| *client == Dialect::V1) {
        can.remove("stateTransitionHistory");
    }
    card.set("capabilities", can.written());
}

fn object(members: &RawObject, name: &str) -> Option<RawObject> {
    members.find(name).and_then(|value| RawObject::read(value.get()))
}

fn flag(members: &RawObject, name: &str) -> Option<bool> {
    serde_json::from_str(members.find(name)?.get()).ok()
}

fn is_absent(members: &RawObject, name: &str) -> bool {
    members.find(name).is_none_or(|value| value.get() == "null")
}

/// Sets a member to this JSON if it is absent.
fn set_default(members: &mut RawObject, name: &str, json: &str) {
    if is_absent(members, name)
        && let Ok(json) = serde_json::from_str(json)
    {
        members.set(name, json);
    }
}

/// Authentication at the gateway, as cards present it.
#[derive(Debug, Default)]
pub(super) struct SecuritySchemes {
    all: Vec<MechanismScheme>,
    /// Scopes that every token needs.
    scopes: Vec<String>,
}

/// Scheme of one mechanism; a mechanism may have several.
#[derive(Debug)]
struct MechanismScheme {
    mechanism: Mechanism,
    scheme: NamedScheme,
}

/// A scheme under its name in a card.
#[derive(Debug, Clone)]
struct NamedScheme {
    name: String,
    scheme: PresentedScheme,
}

/// Authentication mechanisms, and the sufficient combinations of them.
#[derive(Debug, Default)]
struct CardSecurity {
    schemes: Vec<NamedScheme>,
    /// Each alternative is sufficient; it consists of schemes that are required together.
    alternatives: Vec<Vec<String>>,
    scopes: Vec<String>,
}

#[derive(Debug, Clone)]
enum PresentedScheme {
    Certificate,
    Key(String),
    Bearer,
    OpenId(String),
}

impl SecuritySchemes {
    /// Creates the schemes of the configured mechanisms.
    pub(super) fn new(auth: &Auth) -> Self {
        let all = [Mechanism::Certificate, Mechanism::ApiKey, Mechanism::Token].into_iter();
        let all = all.flat_map(|mechanism| {
            schemes(auth, mechanism).into_iter().map(move |scheme| MechanismScheme { mechanism, scheme })
        });
        Self { all: all.collect(), scopes: auth.scopes.clone() }
    }

    fn of(&self, mechanism: Mechanism) -> Vec<NamedScheme> {
        let own = self.all.iter().filter(|known| known.mechanism == mechanism);
        own.map(|known| known.scheme.clone()).collect()
    }
}

impl CardSecurity {
    /// Creates the section for the requirements of a listener.
    fn new(known: &SecuritySchemes, require: &Require) -> Self {
        let by_mechanism: Vec<Vec<NamedScheme>> =
            require.of.iter().map(|mechanism| known.of(*mechanism)).collect();
        let names = |schemes: &Vec<NamedScheme>| -> Vec<String> {
            schemes.iter().map(|scheme| scheme.name.clone()).collect()
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
        Self { schemes, alternatives, scopes: known.scopes.clone() }
    }

    /// Writes the section into a card for clients of these versions.
    fn write(&self, card: &mut RawObject, served: &[Dialect]) {
        if self.schemes.is_empty() {
            return;
        }
        if served.contains(&Dialect::V0_1) {
            let names: Vec<&str> = self.schemes.iter().map(|named| named.scheme.word()).collect();
            card.insert_or_replace("authentication", &json!({ "schemes": names }));
        }
        let later: Vec<Dialect> = served.iter().copied().filter(|it| *it != Dialect::V0_1).collect();
        if later.is_empty() {
            return;
        }
        // Both versions use one member name. Their fields differ, and readers ignore those of the
        // other version.
        let schemes = self.schemes.iter().map(|named| (named.name.as_str(), named.scheme.for_all(&later)));
        let schemes: BTreeMap<&str, Map<String, Value>> = schemes.collect();
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
            let named = self.schemes.iter().find(|named| named.name == name);
            matches!(named, Some(NamedScheme { scheme: PresentedScheme::OpenId(_), .. }))
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

fn schemes(auth: &Auth, mechanism: Mechanism) -> Vec<NamedScheme> {
    let named = |name: &str, scheme| NamedScheme { name: name.to_owned(), scheme };
    match mechanism {
        Mechanism::Certificate => vec![named("certificate", PresentedScheme::Certificate)],
        Mechanism::ApiKey => {
            let of = |header: &http::HeaderName| match *header == AUTHORIZATION {
                true => PresentedScheme::Bearer,
                false => PresentedScheme::Key(header.as_str().to_owned()),
            };
            auth.api_keys.iter().map(|keys| named("api_key", of(&keys.header))).collect()
        }
        Mechanism::Token => {
            let name = |at: usize| if at == 0 { "token".to_owned() } else { format!("token_{}", at + 1) };
            let tokens = auth.tokens.iter().enumerate();
            tokens.map(|(at, issuer)| named(&name(at), token(issuer))).collect()
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
    use crate::config::{Agent, ApiKeys, CertificateName};

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
        CardSecurity::new(&SecuritySchemes::new(&auth), &require).write(&mut card, served);
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

    const ALL: [Dialect; 3] = [Dialect::V1, Dialect::V0_3, Dialect::V0_1];

    fn front(dialect: Dialect, translate: bool) -> CardRewriter<'static> {
        CardRewriter {
            address: ServedAddress::new("https://gw.example", "bard").with_grpc(
                "https://gw.example",
                &Agent::new("bard", "x"),
                false,
            ),
            dialect,
            version: None,
            clients: dialect.served_with(translate),
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
        let front = CardRewriter {
            security: CardSecurity::new(&SecuritySchemes::new(&auth), &require),
            ..front(dialect, true)
        };
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
            for gone in ["inside", "acme", "signatures", "security", "authentication", "whisper"] {
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
            r#""supportedInterfaces":[{"url":"https://gw.example/a2a/bard","protocolBinding":"JSONRPC","protocolVersion":"1.0"}"#
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
        let grpc = of("GRPC", "1.0");
        for ((dialect, card), expected) in
            BARE.into_iter().zip([[new, rest, grpc, old], [old, new, rest, grpc], [new, rest, grpc, old]])
        {
            let card = for_all(dialect, card);
            let interfaces = card["supportedInterfaces"].as_array().unwrap();
            let text = |interface: &Value, name: &str| interface[name].as_str().unwrap().to_owned();
            let found =
                interfaces.iter().map(|it| (text(it, "protocolBinding"), text(it, "protocolVersion")));
            let expected = expected.map(|(binding, version)| (binding.to_owned(), version.to_owned()));
            assert_eq!(found.collect::<Vec<_>>(), expected, "{dialect:?}");
            let is_grpc = |it: &Value| it["url"] == "gw.example:443" && it["tenant"] == "bard";
            let is_own = |it: &Value| is_grpc(it) || it["url"] == "https://gw.example/a2a/bard";
            assert!(interfaces.iter().all(is_own), "{interfaces:?}");
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
        assert_eq!(interfaces.as_array().unwrap().len(), 3, "those of 1.0: {interfaces}");
        assert_eq!(
            shown,
            json!({
                "name": "Bard", "description": "", "version": "", "supportedInterfaces": null,
                "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
                "capabilities": { "streaming": true, "pushNotifications": false, "extendedAgentCard": true },
                "skills": [{ "id": "sing", "name": "sing", "description": "", "tags": [] }],
            })
        );
        let shown = CardRewriter { clients: vec![Dialect::V0_3], ..front(Dialect::V1, true) }
            .rewrite(BARE[0].1)
            .unwrap();
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
}
