//! Callers by their client certificates. Not here: which certificates get through the handshake (see `tls_clients`).

use serde_json::json;

use crate::callers::keys;
use crate::scene::{RAW_CONTEXT, RAW_TASK, TOOL};
use crate::support::certs::client_config;
use crate::support::payload::v1;
use crate::support::{Authority, Card, Identity, McpClient, Reply, ScriptedAgent, TestGateway};

struct Guarded {
    authority: Authority,
    agent: ScriptedAgent,
    gateway: TestGateway,
}

const KEY: &str = "CANARY_key-new-0123456789abcdef0123";

impl Guarded {
    /// A gateway whose other port wants certificates; `auth` as these lines, `require` of that listener as written.
    async fn new(mode: &str, auth: &str, require: &str) -> Self {
        let authority = Authority::new("clients");
        let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
        let gateway = TestGateway::start(|ports| {
            authority.server().write(&ports.directory, "server");
            std::fs::write(ports.directory.join("ca.pem"), authority.pem()).unwrap();
            let tls = format!(
                "{{ certificate: server.crt, key: server.key, client_auth: {{ mode: {mode}, ca: ca.pem }} }}"
            );
            let (main, admin, other, card) = (ports.main, ports.admin, ports.other, agent.card_url());
            format!(
                "listeners:\n  - address: 127.0.0.1:{other}\n    tls: {tls}\n{require}  - address: 127.0.0.1:{main}\n    faces: [health]\nadmin: {{ address: 127.0.0.1:{admin} }}\n{auth}\
                 agents:\n  bard: {{ card: '{card}' }}\ncalls: {{ task_after: 0s }}\n"
            )
        })
        .await;
        Self { authority, agent, gateway }
    }

    fn by(&self, identity: Option<&Identity>) -> McpClient {
        let url = format!("https://localhost:{}/mcp", self.gateway.ports().other);
        McpClient::new(&url).tls(client_config(&self.authority, identity, &["h2", "http/1.1"]))
    }

    async fn status(&self, client: &McpClient) -> u16 {
        client.modern("tools/list", json!({})).await.status
    }

    async fn begin(&self, client: &McpClient) -> String {
        self.agent.on_stream(|_| Reply::stream().event(v1::task(RAW_TASK, RAW_CONTEXT, "working")).stall());
        self.agent.on_get(|_| Reply::result(v1::bare_task(RAW_TASK, RAW_CONTEXT, "working")));
        let call = json!({ "name": TOOL, "arguments": { "text": "x" } });
        let made = client.with_tasks().modern("tools/call", call).await.result().await;
        made["taskId"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned()
    }
}

const BY_URI: &str = "auth: { certificate: { name: spiffe } }\n";

#[tokio::test]
async fn what_a_caller_holds_outlives_its_certificate() {
    let place = Guarded::new("required", BY_URI, "").await;
    let mine = place.authority.client_uri("old", "spiffe://corp/build");
    let renewed = place.authority.client_uri("new", "spiffe://corp/build");
    let other = place.authority.client_uri("old", "spiffe://corp/other");
    let task = place.begin(&place.by(Some(&mine))).await;
    let seen = async |identity: &Identity| {
        place.by(Some(identity)).with_tasks().task("tasks/get", &task).await.json().await
    };
    assert_eq!(seen(&renewed).await["result"]["status"], "working");
    assert_eq!(seen(&other).await["error"]["code"], -32602);
}

/// A certificate that no rule names is good for the handshake and names nobody.
#[tokio::test]
async fn a_certificate_without_the_field_that_names_is_nobody_s() {
    let place = Guarded::new("required", BY_URI, "").await;
    assert_eq!(place.status(&place.by(Some(&place.authority.client_uri("a", "spiffe://corp/a")))).await, 200);
    for identity in
        [place.authority.client("spiffe://corp/a"), place.authority.client_uri("a", "https://corp/a")]
    {
        assert_eq!(place.status(&place.by(Some(&identity))).await, 401);
    }
}

#[tokio::test]
async fn headers_that_speak_of_a_certificate_are_nothing() {
    let place = Guarded::new("optional", BY_URI, "").await;
    let mine = place.authority.client_uri("a", "spiffe://corp/a");
    let task = place.begin(&place.by(Some(&mine))).await;
    let forged = [
        ("X-Forwarded-Client-Cert", "URI=spiffe://corp/a"),
        ("X-SSL-Client-S-DN", "CN=a"),
        ("X-Client-Cert", "spiffe://corp/a"),
        ("Client-Cert", ":MIIB:"),
        ("X-Forwarded-User", "uri:spiffe://corp/a"),
    ];
    let all =
        |client: McpClient| forged.iter().fold(client, |client, (name, value)| client.header(name, value));
    assert_eq!(place.status(&all(place.by(None))).await, 401);
    let other = place.authority.client_uri("b", "spiffe://corp/b");
    let theirs = all(place.by(Some(&other))).with_tasks().task("tasks/get", &task).await;
    assert_eq!(theirs.error_code().await, -32602);
}

#[tokio::test]
async fn all_that_is_required_must_be_shown_and_the_certificate_names() {
    let auth = keys("").replace("auth:\n", "auth:\n  certificate: { name: [spiffe, common_name] }\n");
    let place = Guarded::new("optional", &auth, "    require: { all: [certificate, api_key] }\n").await;
    let mine = place.authority.client("worker");
    assert_eq!(place.status(&place.by(Some(&mine))).await, 401);
    assert_eq!(place.status(&place.by(None).header("X-Api-Key", KEY)).await, 401);
    let whole = place.by(Some(&mine)).header("X-Api-Key", KEY);
    assert_eq!(place.status(&whole).await, 200);
    let task = place.begin(&whole).await;
    let eve = "CANARY_key-eve-0123456789abcdef0123";
    let with_another_key = place.by(Some(&mine)).header("X-Api-Key", eve).with_tasks();
    assert_eq!(with_another_key.task("tasks/get", &task).await.result().await["status"], "working");
    assert_eq!(place.status(&place.by(Some(&mine)).header("X-Api-Key", "wrong")).await, 401);
}

#[tokio::test]
async fn a_key_will_do_where_a_certificate_is_optional() {
    let auth = keys("").replace("auth:\n", "auth:\n  certificate: { name: common_name }\n");
    let place = Guarded::new("optional", &auth, "").await;
    assert_eq!(place.status(&place.by(None).header("X-Api-Key", KEY)).await, 200);
    assert_eq!(place.status(&place.by(Some(&place.authority.client("worker")))).await, 200);
    assert_eq!(place.status(&place.by(None)).await, 401);
}
