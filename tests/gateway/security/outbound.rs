//! Places that a card sends the gateway to: which are called, which are not, and how the operator
//! opens them.
//!
//! Out of scope: cards' signatures (see `signatures`), redirects (see `advisories`).

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::kit::scene::{TOOL, complaint, words};
use crate::support::payload::v1;
use crate::support::{Card, Reply, ScriptedAgent, TestGateway, free_port, in_time};

/// An agent, and another place that its card says is where it is called.
struct Place {
    agent: ScriptedAgent,
    other: ScriptedAgent,
}

impl Place {
    async fn new() -> Self {
        // Loopback has more addresses than one.
        let address: SocketAddr = ([127, 0, 0, 2], free_port()).into();
        let other = ScriptedAgent::start_at(address, Card::v1()).await;
        other.on_send(|_| Reply::events([v1::message("from elsewhere")]));
        let place = Self { agent: ScriptedAgent::start(Card::v1()).await, other };
        place.leads_to(&place.other.url());
        place
    }

    /// The card says that the agent is called there.
    fn leads_to(&self, url: &str) {
        let interface = json!([{ "url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0" }]);
        self.agent.set_card(Card::v1().skill("sing").set("supportedInterfaces", interface));
    }

    async fn gateway(&self, settings: &str) -> TestGateway {
        let card = self.agent.card_url();
        TestGateway::start(|ports| {
            let secret = "headers: { Authorization: Bearer CANARY }";
            format!("{}{settings}\nagents:\n  bard:\n    card: {card}\n    {secret}\n", ports.listeners())
        })
        .await
    }
}

async fn call(gateway: &TestGateway) -> Value {
    let params = json!({ "name": TOOL, "arguments": { "text": "x" } });
    gateway.client().modern("tools/call", params).await.json().await
}

/// The problem that the operator is told about the agent.
async fn problem(gateway: &TestGateway) -> String {
    gateway.admin().at("/agents").get(&[]).await.text().await
}

async fn refusals(gateway: &TestGateway, reason: &str) -> bool {
    let name = format!("mcp_a2a_gateway_outbound_refused_total{{reason=\"{reason}\"}}");
    gateway.metrics().await.lines().any(|line| line.starts_with(&name) && !line.ends_with(" 0"))
}

#[tokio::test]
async fn card_stays_on_host_unless_allowed() {
    let place = Place::new().await;
    let listed = place.other.address();
    for (settings, is_open) in [
        (String::new(), false),
        ("outbound: { allow: [10.0.0.0/8, 127.0.0.3, 127.0.0.1] }".to_owned(), false),
        (format!("outbound: {{ allow: ['127.0.0.2:{}'] }}", listed.port() - 1), false),
        // The list for webhooks of clients is another one.
        ("outbound: { webhooks: { allow: [127.0.0.2], http: true } }".to_owned(), false),
        (format!("outbound: {{ allow: ['{listed}'] }}"), true),
        ("outbound: { allow: [127.0.0.2] }".to_owned(), true),
        ("outbound: { allow: [10.0.0.0/8, 127.0.0.0/8] }".to_owned(), true),
    ] {
        let gateway = place.gateway(&settings).await;
        let answer = call(&gateway).await;
        if is_open {
            assert_eq!(words(&answer["result"]), "from elsewhere", "{settings}");
            continue;
        }
        assert_eq!(answer["error"]["code"], -32602, "there is no such tool: {settings}: {answer}");
        assert_eq!(place.other.log().connections, 0, "{settings}");
        let told = problem(&gateway).await;
        for part in ["a loopback address", "allow_hosts", "outbound.allow"] {
            assert!(told.contains(part), "{settings}: {told}");
        }
        assert!(refusals(&gateway, "loopback").await, "{settings}");
        assert!(!told.contains("CANARY") && !gateway.output().contains("CANARY"), "{settings}");
    }
}

#[tokio::test]
async fn address_is_judged_at_connect() {
    let place = Place::new().await;
    let other = ScriptedAgent::start(Card::v1()).await;
    other.on_send(|_| Reply::events([v1::message("by its name")]));
    place.leads_to(&format!("http://localhost:{}/", other.address().port()));
    let gateway = place.gateway("outbound: { allow: [10.0.0.0/8, 192.168.0.0/16] }").await;
    let refused = call(&gateway).await["result"].clone();
    assert!(complaint(&refused).contains("an address that may not be called"), "{refused}");
    assert!(!refused.to_string().contains("localhost"), "the client learns no place: {refused}");
    assert_eq!(other.log().connections, 0);
    assert!(refusals(&gateway, "loopback").await);
    let gateway = place.gateway("outbound: { allow: [127.0.0.0/8] }").await;
    assert_eq!(words(&call(&gateway).await["result"]), "by its name");
}

#[tokio::test]
async fn no_spelling_of_address_slips_through() {
    let place = Place::new().await;
    let port = place.other.address().port();
    let gateway = place.gateway("cards: { min_refresh: 1s, retry: 100ms }").await;
    for (host, told) in [
        ("0x7f.2", "odd spelling"),
        ("2130706434", "odd spelling"),
        ("0177.0.0.2", "odd spelling"),
        ("127.2", "odd spelling"),
        ("127.0.0.2.", "odd spelling"),
        ("127.0.0.1@127.0.0.2", "127.0.0.2"),
        ("[::ffff:127.0.0.2]", "a loopback address"),
        ("[64:ff9b::7f00:2]", "a loopback address"),
        ("[::ffff:169.254.169.254]", "a metadata service"),
        ("[fd00:ec2::254]", "a metadata service"),
        ("169.254.169.254", "a metadata service"),
        ("10.0.0.1", "a private address"),
        ("localhost.", "allow_hosts"),
    ] {
        let url = format!("http://{host}:{port}/");
        place.leads_to(&url);
        let tells = async {
            let shown = host.rsplit('@').next().unwrap();
            loop {
                let problem = problem(&gateway).await;
                if problem.contains(told) && problem.contains(shown) {
                    return;
                }
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        in_time(&url, tells).await;
    }
    assert_eq!(place.other.log().connections, 0);
    assert_eq!(call(&gateway).await["error"]["code"], -32602);
    gateway.wait_for_output("failed to fetch agent card").await;
}

#[tokio::test]
async fn configured_urls_may_lead_anywhere() {
    let agent = ScriptedAgent::start_at(([127, 0, 0, 2], free_port()).into(), Card::v1().skill("sing")).await;
    agent.on_send(|_| Reply::events([v1::message("la")]));
    let gateway = TestGateway::before(&[("bard", &agent)]).await;
    assert_eq!(words(&call(&gateway).await["result"]), "la");
}

#[tokio::test]
async fn environment_proxy_is_not_used() {
    let (agent, proxy) =
        (ScriptedAgent::start(Card::v1().skill("sing")).await, ScriptedAgent::start(Card::v1()).await);
    agent.on_send(|_| Reply::events([v1::message("la")]));
    let url = proxy.url();
    let names = ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];
    let variables = names.map(|name| (name, url.as_str()));
    let card = agent.card_url();
    let gateway = TestGateway::start_with(&variables, |ports| {
        format!("{}agents:\n  bard:\n    card: {card}\n", ports.listeners())
    })
    .await;
    assert_eq!(words(&call(&gateway).await["result"]), "la");
    assert_eq!(proxy.log().connections, 0);
}

/// Whether a reader would not see this, or see something else.
fn is_hidden(letter: char) -> bool {
    (letter.is_control() && letter != '\n')
        || matches!(letter, '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{206F}' | '\u{FEFF}')
        || matches!(letter, '\u{FE00}'..='\u{FE0D}' | '\u{E0000}'..='\u{E0FFF}' | '\u{AD}' | '\u{61C}')
}

#[tokio::test]
async fn hidden_text_of_card_reaches_no_model() {
    let hide = |text: &str| {
        format!(
            "\u{1b}[31m{text}\u{1b}]0;EVIL\u{7}\u{202E}\u{200B}\u{E0049}\u{E0067}\u{FE01}\u{2066}\u{0}\u{9B}2J\u{FEFF}"
        )
    };
    let long = "x".repeat(20_000);
    let card = Card::v1()
        .set("description", hide("Sings"))
        .set("provider", json!({ "organization": hide("Choir"), "url": "http://x/" }))
        .name(&hide("Bard"))
        .skill_with(json!({ "id": "sing", "name": hide("Sing"), "description": hide("Sings songs"),
            "tags": [hide("tag")], "examples": [hide("a song"), long], "inputModes": [hide("text/plain")] }))
        .skill_with(json!({ "id": hide("hum"), "name": "Hum", "description": long, "tags": [] }));
    let agent = ScriptedAgent::start(card).await;
    let gateway = TestGateway::before(&[("bard", &agent)]).await;
    let session = gateway.client().legacy().await;
    let read = |uri: &str| ("resources/read", json!({ "uri": uri }));
    for (method, params) in [
        ("tools/list", json!({})),
        ("resources/list", json!({})),
        read("a2a-agent://bard"),
        read("a2a://agents/registry"),
    ] {
        let told = session.call(method, params).await.result().await;
        let mut texts = vec![&told];
        while let Some(value) = texts.pop() {
            match value {
                Value::String(text) => {
                    let hidden: Vec<_> = text.chars().filter(|letter| is_hidden(*letter)).collect();
                    assert!(hidden.is_empty(), "{method}: {hidden:?} in {text:?}");
                }
                Value::Array(items) => texts.extend(items),
                Value::Object(members) => {
                    assert!(!members.keys().any(|name| name.chars().any(is_hidden)), "{method}");
                    texts.extend(members.values());
                }
                _ => {}
            }
        }
        if method == "tools/list" {
            let tools = told["tools"].as_array().unwrap();
            let described = |name: &str| {
                let tool = tools.iter().find(|tool| tool["name"].as_str().unwrap().starts_with(name));
                tool.unwrap_or_else(|| panic!("no {name}"))["description"].as_str().unwrap().to_owned()
            };
            assert!(described("bard_sing").starts_with("Sings songs\n"), "{}", described("bard_sing"));
            assert!(!told.to_string().contains("EVIL") && !told.to_string().contains("[31m"), "{told}");
            assert!(described("bard_hum").len() < 5000 && described("bard_sing").len() < 3000);
        }
    }
}
