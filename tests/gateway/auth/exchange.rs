//! Tokens on behalf of callers (RFC 8693): each caller's own token is exchanged, and never sent to
//! an agent.
//!
//! Most of it through the library, at real endpoints: the directory, a call and what goes along
//! with it.

use std::sync::Arc;

use http::HeaderMap;
use mcp_a2a_gateway::a2a::{Message, Part, PartBody, Role, StreamResponse};
use mcp_a2a_gateway::agents::{AgentOperation, CallLimits, Directory, DriveEvent, start};
use mcp_a2a_gateway::auth::SubjectToken;
use mcp_a2a_gateway::config::{
    Agent, Authorization, ClientAuthMethod, Grant, OAuth2, ReloadableSecret, Secret, Settings,
};
use mcp_a2a_gateway::fault::AgentFailure;
use mcp_a2a_gateway::quota::{AnswerRoom, ByteQuota};
use mcp_a2a_gateway::telemetry::metrics::Metrics;
use mcp_a2a_gateway::telemetry::trace::RequestScope;
use mcp_a2a_gateway::transport::{ClientLimits, HttpClient};
use serde_json::json;

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::auth::agent_tokens::member;
use crate::kit::issuer::{Issuer, Key};
use crate::kit::scene::{TOOL, complaint, words};
use crate::support::payload::v1;
use crate::support::{Card, Reply, Request, ScriptedAgent, TestGateway, in_time};

struct Stage {
    agent: ScriptedAgent,
    endpoint: ScriptedAgent,
    client: HttpClient,
    directory: Directory,
}

/// An agent that answers with what it was shown, and an endpoint that gives `for-` and the token of
/// the caller.
async fn stage(lives: u64) -> Stage {
    let agent = ScriptedAgent::start(Card::v1().skill("sing").streaming(false)).await;
    agent.on_send(|request| Reply::result(v1::message(request.header("authorization").unwrap_or_default())));
    let endpoint = ScriptedAgent::start(Card::v1()).await;
    endpoint.on_path("/token", move |request| match subject(request).as_str() {
        "unknown" => Reply::json(&json!({ "error": "invalid_grant" })).with_status(400),
        token => {
            let kind = "urn:ietf:params:oauth:token-type:access_token";
            let token = format!("for-{token}");
            Reply::json(&json!({ "access_token": token, "issued_token_type": kind, "token_type": "Bearer", "expires_in": lives }))
        }
    });
    let mut settings = Agent::new("bard", agent.card_url());
    settings.auth.authorization = Some(Authorization::OAuth2(Box::new(OAuth2 {
        token_url: format!("{}token", endpoint.url()),
        client_id: "gateway".into(),
        proof: ClientAuthMethod::SecretBasic(ReloadableSecret::fixed("secret")),
        grant: Grant::TokenExchange,
        scopes: vec!["sing".into()],
        audience: Some("bard".into()),
        resources: Vec::new(),
        ca: None,
    })));
    let client = HttpClient::new(ClientLimits::default());
    let metrics = Metrics::new().unwrap();
    let directory = Directory::new(&Settings::new(vec![settings]), client.clone(), &metrics).unwrap();
    directory.refresh_once(directory.find("bard").unwrap()).await.unwrap();
    Stage { agent, endpoint, client, directory }
}

fn subject(request: &Request) -> String {
    member(request, "subject_token").unwrap_or_default()
}

impl Stage {
    /// The agent's answer when this caller calls it.
    async fn call(&self, caller: Option<&str>) -> Result<String, AgentFailure> {
        let shown = || caller.map(|token| SubjectToken::new(Secret::new(token)));
        let scope = Arc::new(RequestScope::bare());
        let along = self.directory.along(&HeaderMap::new(), shown, scope);
        let known = self.directory.find("bard").unwrap().known().unwrap().along(Some(&along));
        let terms = CallLimits {
            stalled: crate::support::PATIENCE,
            event: 1 << 20,
            silence: crate::support::PATIENCE,
            retry_base: crate::support::PATIENCE,
            retry_max: crate::support::PATIENCE,
            max_attempts: 1,
        };
        let message = Message {
            message_id: Some("m".into()),
            role: Role::User,
            parts: vec![Part::new(PartBody::Text("x".into()))],
            task_id: None,
            context_id: None,
            reference_task_ids: Vec::new(),
            extensions: Vec::new(),
            metadata: None,
        };
        let quota = Arc::new(ByteQuota::new(1 << 20, 1 << 20, Metrics::new().unwrap()));
        let room = AnswerRoom { limit: 1 << 20, permit: quota.permit(None) };
        let mut drive = start(self.client.clone(), known, terms, room, AgentOperation::Say(message));
        let mut said = String::new();
        loop {
            match drive.next().await {
                DriveEvent::Said(event) => {
                    if let StreamResponse::Message(message) = *event {
                        said = format!("{:?}", message.parts);
                    }
                }
                DriveEvent::Delayed(_) => {}
                DriveEvent::Over(result) => return result.map(|()| said),
            }
        }
    }

    fn subjects(&self) -> Vec<String> {
        self.endpoint.log().hits("/token").into_iter().map(subject).collect()
    }
}

#[tokio::test]
async fn each_caller_gets_and_keeps_its_token() {
    let stage = stage(3600).await;
    for _ in 0..3 {
        for caller in ["alice", "bob"] {
            let said = stage.call(Some(caller)).await.unwrap();
            assert!(said.contains(&format!("Bearer for-{caller}")), "{said}");
        }
    }
    assert_eq!(stage.subjects(), ["alice", "bob"], "one exchange for each caller");
    let asked = stage.endpoint.requests().remove(0);
    let kind = "urn:ietf:params:oauth:token-type:access_token";
    for (name, value) in [
        ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"),
        ("subject_token_type", kind),
        ("requested_token_type", kind),
        ("audience", "bard"),
        ("scope", "sing"),
    ] {
        assert_eq!(member(&asked, name).as_deref(), Some(value), "{name}");
    }
    let sent = format!("{:?}", stage.agent.requests());
    assert!(!sent.contains("Bearer alice") && !sent.contains("Bearer bob"), "never the caller's own: {sent}");
}

#[tokio::test]
async fn ended_token_is_exchanged_again() {
    let stage = stage(0).await;
    in_time("a second exchange", async {
        while stage.subjects() != ["alice", "alice"] {
            assert!(stage.call(Some("alice")).await.unwrap().contains("for-alice"));
        }
    })
    .await;
    let calls = stage.agent.calls("SendMessage").len();
    assert!(calls > 2, "a token of no life is good for a second, not for one of {calls} calls");
}

#[tokio::test]
async fn refused_caller_token_blocks_no_other() {
    let stage = stage(3600).await;
    let refused = AgentFailure::TokenExchangeFailed("its token endpoint answered invalid_grant");
    for _ in 0..5 {
        assert_eq!(stage.call(Some("unknown")).await, Err(refused.clone()));
    }
    assert_eq!(stage.subjects(), ["unknown"], "and does not hammer the endpoint");
    assert!(stage.call(Some("alice")).await.unwrap().contains("for-alice"));
    let nothing = AgentFailure::TokenExchangeFailed("the call comes with no token that could be exchanged");
    assert_eq!(stage.call(None).await, Err(nothing));
}

#[tokio::test]
async fn caller_tokens_are_cached_within_bound() {
    let stage = stage(3600).await;
    stage.call(Some("first")).await.unwrap();
    for number in 0..1000 {
        stage.call(Some(&format!("caller-{number}"))).await.unwrap();
    }
    let before = stage.subjects().len();
    stage.call(Some("caller-999")).await.unwrap();
    assert_eq!(stage.subjects().len(), before, "the newest is remembered");
    stage.call(Some("first")).await.unwrap();
    assert_eq!(stage.subjects().len(), before + 1, "the oldest has made room");
}

/// A gateway that exchanges the tokens of its callers at this URL for an agent that answers with
/// what it was shown.
async fn exchanging(issuer: &Issuer, token_url: &str, agent: &ScriptedAgent) -> TestGateway {
    agent
        .on_send(|request| Reply::events([v1::message(request.header("authorization").unwrap_or_default())]));
    TestGateway::start(|ports| {
        let (listeners, issuer, card) = (ports.listeners(), issuer.name(), agent.card_url());
        let oauth2 =
            format!("token_url: '{token_url}', client_id: g, client_secret: s, grant: token_exchange");
        format!(
            "{listeners}auth: {{ tokens: [{{ issuer: '{issuer}', audience: me }}] }}\nagents:\n  bard:\n    card: {card}\n    \
             auth: {{ oauth2: {{ {oauth2} }} }}\n"
        )
    })
    .await
}

async fn sung(gateway: &TestGateway, token: &str) -> serde_json::Value {
    let call = json!({ "name": TOOL, "arguments": { "text": "x" } });
    gateway.client().bearer(token).modern("tools/call", call).await.result().await
}

/// An endpoint that answers, however badly, may do so because of the one token.
#[tokio::test]
async fn failed_exchange_stops_no_other() {
    let key = Key::es256("k1");
    let issuer = Issuer::new(&[&key]).await;
    let token = |sub: &str| key.sign(&issuer.claims("me", |claims| claims["sub"] = json!(sub)));
    let (mallory, alice) = (token("mallory"), token("alice"));
    for (reply, told) in [
        (Reply::status(500, "crash"), "its token endpoint does not work"),
        (Reply::status(502, "crash"), "its token endpoint does not work"),
        (Reply::status(503, "busy").header("Retry-After", "60"), "its token endpoint does not work"),
        (Reply::status(302, "").header("Location", "/"), "its token endpoint does not work"),
        (Reply::status(429, "slow down"), "its token endpoint is asked too often"),
        (Reply::json(&json!({ "error": "invalid_client" })).with_status(401), "invalid_client"),
        (Reply::json(&json!({ "access_token": "" })), "is no bearer token"),
        (Reply::json(&json!({ "access_token": "t", "token_type": "N_A" })), "is no bearer token"),
        (Reply::stream().cut(), "broke off its answer"),
        (Reply::hang_up(), "its token endpoint cannot be reached"),
    ] {
        let endpoint = ScriptedAgent::start(Card::v1()).await;
        let bad = mallory.clone();
        endpoint.on_path("/token", move |request| match subject(request) == bad {
            true => reply.clone(),
            false => Reply::json(&json!({ "access_token": "t", "token_type": "Bearer", "expires_in": 1 })),
        });
        let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
        let gateway = exchanging(&issuer, &format!("{}token", endpoint.url()), &agent).await;
        for _ in 0..5 {
            let complaint = complaint(&sung(&gateway, &mallory).await).to_owned();
            assert!(complaint.contains(told), "{told}: {complaint}");
            assert_eq!(words(&sung(&gateway, &alice).await), "Bearer t", "{told}");
        }
        let tried =
            endpoint.log().hits("/token").into_iter().filter(|asked| subject(asked) == mallory).count();
        // Ten calls take far less than the pauses of one, two and four seconds.
        assert!((1..=4).contains(&tried), "{told}: {tried} tries");
    }
}

/// An endpoint to which there is no connection fails for each caller alike.
#[tokio::test]
async fn unreachable_exchange_rests_for_all() {
    let key = Key::es256("k1");
    let issuer = Issuer::new(&[&key]).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/token", listener.local_addr().unwrap());
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = connections.clone();
    // No TLS.
    let server = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
            drop(stream);
        }
    });
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    let gateway = exchanging(&issuer, &url, &agent).await;
    for number in 0..20 {
        let token = key.sign(&issuer.claims("me", |claims| claims["sub"] = json!(number.to_string())));
        let result = sung(&gateway, &token).await;
        assert!(complaint(&result).contains("its token endpoint cannot be reached"), "{result}");
    }
    // Twenty calls take far less than the pauses of one, two and four seconds.
    let tried = connections.load(Ordering::SeqCst);
    assert!((1..=4).contains(&tried), "{tried} tries");
    server.abort();
}
