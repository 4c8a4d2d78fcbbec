//! Callers by their client certificates. Which certificates get through the handshake is in
//! `tls_clients`.

use rcgen::{CertificateParams, GeneralSubtree, NameConstraints, SanType};
use serde_json::json;

use crate::auth::callers::{EVE, NEW as KEY, OLD, keys};
use crate::kit::issuer::{Issuer, Key};
use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, TOOL};
use crate::support::certs::client_config;
use crate::support::payload::v1;
use crate::support::{Authority, Card, Identity, McpClient, Reply, ScriptedAgent, TestGateway};

struct Guarded {
    authority: Authority,
    agent: ScriptedAgent,
    gateway: TestGateway,
}

impl Guarded {
    /// A gateway that wants certificates on its other port; `auth` as these lines, `require` of
    /// that listener as written.
    async fn new(mode: &str, auth: &str, require: &str) -> Self {
        Self::of(Authority::new("clients"), mode, auth, require).await
    }

    /// The same with an authority of the test's own.
    async fn of(authority: Authority, mode: &str, auth: &str, require: &str) -> Self {
        let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
        let gateway = TestGateway::start(|ports| {
            authority.server().write(&ports.directory, "server");
            std::fs::write(ports.directory.join("ca.pem"), authority.pem()).unwrap();
            let tls = format!(
                "{{ certificate: server.crt, key: server.key, client_auth: {{ mode: {mode}, ca: ca.pem }} }}"
            );
            let (main, admin, other, card) = (ports.main, ports.admin, ports.other, agent.card_url());
            format!(
                "listeners:\n  - address: 127.0.0.1:{other}\n    tls: {tls}\n{require}  - address: 127.0.0.1:{main}\n    serve: [health]\nadmin: {{ address: 127.0.0.1:{admin} }}\n{auth}\
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
async fn caller_outlives_its_certificate() {
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

/// A certificate that no rule names is good for the handshake and names no caller.
#[tokio::test]
async fn nameless_certificate_names_no_caller() {
    let place = Guarded::new("required", BY_URI, "").await;
    assert_eq!(place.status(&place.by(Some(&place.authority.client_uri("a", "spiffe://corp/a")))).await, 200);
    for identity in
        [place.authority.client("spiffe://corp/a"), place.authority.client_uri("a", "https://corp/a")]
    {
        assert_eq!(place.status(&place.by(Some(&identity))).await, 401);
    }
}

#[tokio::test]
async fn certificate_headers_are_ignored() {
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
async fn all_required_proofs_name_the_caller() {
    let auth = keys("").replace("auth:\n", "auth:\n  certificate: { name: [spiffe, common_name] }\n");
    let place = Guarded::new("optional", &auth, "    require: { all: [certificate, api_key] }\n").await;
    let mine = place.authority.client("worker");
    assert_eq!(place.status(&place.by(Some(&mine))).await, 401);
    assert_eq!(place.status(&place.by(None).header("X-Api-Key", KEY)).await, 401);
    let whole = place.by(Some(&mine)).header("X-Api-Key", KEY);
    assert_eq!(place.status(&whole).await, 200);
    let task = place.begin(&whole).await;
    let with = |key: &str| place.by(Some(&mine)).header("X-Api-Key", key).with_tasks();
    let seen = async |key: &str| with(key).task("tasks/get", &task).await.json().await;
    assert_eq!(seen(OLD).await["result"]["status"], "working", "another key of the same holder");
    assert_eq!(seen(EVE).await["error"]["code"], -32602, "another holder behind the same certificate");
    assert_eq!(place.status(&place.by(Some(&mine)).header("X-Api-Key", "wrong")).await, 401);
}

#[tokio::test]
async fn key_suffices_without_certificate() {
    let auth = keys("").replace("auth:\n", "auth:\n  certificate: { name: common_name }\n");
    let place = Guarded::new("optional", &auth, "").await;
    assert_eq!(place.status(&place.by(None).header("X-Api-Key", KEY)).await, 200);
    assert_eq!(place.status(&place.by(Some(&place.authority.client("worker")))).await, 200);
    assert_eq!(place.status(&place.by(None)).await, 401);
}

/// All users of one proxy have its certificate: each still has its own tasks.
#[tokio::test]
async fn shared_certificate_has_two_callers() {
    let key = Key::es256("k1");
    let issuer = Issuer::new(&[&key]).await;
    let tokens = format!("  tokens: [{{ issuer: '{}', audience: me }}]\n", issuer.name());
    let rules =
        "rules: [{ callers: \"token:*#mallory\", deny: true }, { callers: \"uri:spiffe://corp/proxy\" }]\n";
    let auth = format!("auth:\n  certificate: {{ name: spiffe }}\n{tokens}{rules}");
    for require in ["    require: { all: [certificate, token] }\n", ""] {
        let place = Guarded::new("required", &auth, require).await;
        let proxy = place.authority.client_uri("proxy", "spiffe://corp/proxy");
        let by = |user: &str| {
            let claims = issuer.claims("me", |claims| claims["sub"] = json!(user));
            place.by(Some(&proxy)).bearer(&key.sign(&claims))
        };
        let task = place.begin(&by("alice")).await;
        let seen = async |client: McpClient| client.with_tasks().task("tasks/get", &task).await.json().await;
        assert_eq!(seen(by("alice")).await["result"]["status"], "working", "{require}");
        let theirs = seen(by("bob")).await;
        assert_eq!(theirs["error"]["code"], -32602, "{require}");
        let unknown = by("bob").with_tasks().task("tasks/get", "unknown").await.json().await;
        assert_eq!(theirs["error"], unknown["error"], "{require}");
        let uri = json!({ "uri": format!("a2a://task/{task}") });
        assert_eq!(by("bob").modern("resources/read", uri.clone()).await.error_code().await, -32602);
        assert!(by("alice").modern("resources/read", uri).await.result().await["contents"].is_array());
        let listed = async |user: &str| {
            by(user).modern("resources/list", json!({})).await.text().await.contains("a2a://task/")
        };
        assert!(listed("alice").await && !listed("bob").await, "{require}");
        assert_eq!(place.status(&by("mallory")).await, 403, "{require}");
        if require.is_empty() {
            let alone = seen(place.by(Some(&proxy))).await;
            assert_eq!(alone["error"]["code"], -32602, "the proxy itself is none of them");
        }
    }
}

/// Confines an authority to some DNS names, or keeps it from them.
fn confined(permitted: &[&str], excluded: &[&str]) -> impl FnOnce(&mut CertificateParams) {
    let subtrees = |names: &[&str]| {
        names.iter().map(|name| GeneralSubtree::DnsName((*name).to_owned())).collect::<Vec<_>>()
    };
    let (permitted_subtrees, excluded_subtrees) = (subtrees(permitted), subtrees(excluded));
    move |params| params.name_constraints = Some(NameConstraints { permitted_subtrees, excluded_subtrees })
}

/// Verification holds only SANs to the constraints of an authority: without a check of its own, a
/// department's authority could name the callers of another department.
#[tokio::test]
async fn excluded_common_name_names_no_caller() {
    let auth = "auth: { certificate: { name: common_name } }\n";
    let place = Guarded::new("required", auth, "").await;
    let named = |authority: &Authority, name: &str| authority.client_with(name, |_| ());
    let status = async |place: &Guarded, identity: &Identity| place.status(&place.by(Some(identity))).await;
    let sales =
        place.authority.intermediate_with("sales", confined(&["sales.example"], &["boss.sales.example"]));
    let below_sales = sales.intermediate("below sales");
    let most = place.authority.intermediate_with("most", confined(&[], &["secret.example"]));
    for (authority, name, expected) in [
        (&place.authority, "admin", 200),
        (&sales, "a.sales.example", 200),
        (&sales, "SALES.example", 200),
        (&sales, "admin", 401),
        (&sales, "a.build.example", 401),
        (&sales, "asales.example", 401),
        (&sales, "boss.sales.example", 401),
        (&sales, "admin/.sales.example", 401),
        (&below_sales, "a.sales.example", 200),
        (&below_sales, "admin", 401),
        (&most, "Any name", 200),
        (&most, "a.Secret.example.", 401),
    ] {
        assert_eq!(status(&place, &named(authority, name)).await, expected, "{name}");
    }
    let root = Authority::with("root", confined(&["sales.example", "localhost"], &[]));
    let place = Guarded::of(root, "required", auth, "").await;
    for (name, expected) in [("a.sales.example", 200), ("admin", 401)] {
        assert_eq!(status(&place, &named(&place.authority, name)).await, expected, "{name}");
        let below = place.authority.intermediate("below");
        assert_eq!(status(&place, &named(&below, name)).await, expected, "{name} below");
    }
}

#[tokio::test]
async fn malformed_spiffe_id_names_no_caller() {
    let long = format!("spiffe://corp/{}", "a".repeat(2048));
    for field in ["spiffe", "uri"] {
        let auth = format!("auth: {{ certificate: {{ name: {field} }} }}\n");
        let place = Guarded::new("required", &auth, "").await;
        for (uri, expected) in [
            ("spiffe://corp.example/ns/a_b/sa/C.d-e", 200),
            ("spiffe://corp/a/../b", 401),
            ("spiffe://corp/a/./b", 401),
            ("spiffe://corp/a//b", 401),
            ("spiffe://corp/a/", 401),
            ("spiffe://corp/a%2Fb", 401),
            ("spiffe://corp/a;b", 401),
            ("spiffe://Corp/a", 401),
            ("spiffe://corp:443/a", 401),
            ("SPIFFE://corp/a", 401),
            ("spiffe://corp", 401),
            (&long, 401),
        ] {
            let identity = place.authority.client_uri("a", uri);
            assert_eq!(place.status(&place.by(Some(&identity))).await, expected, "{field}: {uri}");
        }
    }
}

/// A rule for certificates looks at their SANs, even where another field names the caller.
#[tokio::test]
async fn spiffe_rule_fits_no_malformed_id() {
    let auth = "auth: { certificate: { name: dns } }\nrules: [{ certificates: 'spiffe://corp/team/*' }]\n";
    let place = Guarded::new("required", auth, "").await;
    for (uris, expected) in [
        (&["spiffe://corp/team/a"][..], 200),
        (&["spiffe://corp/team/../a"], 403),
        (&["spiffe://corp/team/a", "urn:x"], 403),
        (&["spiffe://corp/team/a", "spiffe://corp/team/b"], 403),
    ] {
        let identity = place.authority.client_with("a", |params| {
            let uris = uris.iter().map(|uri| SanType::URI((*uri).try_into().unwrap()));
            let dns = SanType::DnsName("a.example".try_into().unwrap());
            params.subject_alt_names = uris.chain([dns]).collect();
        });
        assert_eq!(place.status(&place.by(Some(&identity))).await, expected, "{uris:?}");
    }
}
