//! Credentials that change while the gateway runs, and credentials that must not mix.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::json;

use crate::kit::scene::words;
use crate::support::certs::server_config;
use crate::support::payload::v1;
use crate::support::{Authority, Card, Reply, Request, ScriptedAgent, TestGateway, in_time};

async fn call(gateway: &TestGateway, agent: &str) -> String {
    let params = json!({ "name": format!("{agent}_sing"), "arguments": { "text": "x" } });
    words(&gateway.client().modern("tools/call", params).await.result().await).to_owned()
}

/// An agent that answers with the header that it was shown.
fn echo(request: &Request) -> Reply {
    Reply::events([v1::message(request.header("authorization").unwrap_or("nothing"))])
}

/// Changes a file as Kubernetes does it: another file takes its place.
pub(crate) fn replace(path: &Path, content: &str) {
    let other = path.with_extension("new");
    std::fs::write(&other, content).unwrap();
    std::fs::rename(&other, path).unwrap();
}

async fn becomes(gateway: &TestGateway, agent: &str, expected: &str) {
    in_time(&format!("the answer {expected}"), async { while call(gateway, agent).await != expected {} })
        .await;
}

async fn shows(gateway: &TestGateway, line: &str) {
    in_time(line, async { while !gateway.metrics().await.contains(line) {} }).await;
}

#[tokio::test]
async fn header_follows_its_valid_file() {
    for own in ["headers: { Authorization: \"Bearer ${file:token}\" }", "auth: { bearer: \"${file:token}\" }"]
    {
        let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
        agent.on_send(echo);
        let gateway = TestGateway::start(|ports| {
            std::fs::write(ports.directory.join("token"), "one\n").unwrap();
            format!("{}agents:\n  bard:\n    card: {}\n    {own}\n", ports.listeners(), agent.card_url())
        })
        .await;
        let token = gateway.ports().directory.join("token");
        assert_eq!(call(&gateway, "bard").await, "Bearer one");
        replace(&token, "two\n");
        becomes(&gateway, "bard", "Bearer two").await;
        let counted = |outcome: &str, count: u32| {
            format!(
                "mcp_a2a_gateway_credential_reloads_total{{agent=\"bard\",outcome=\"{outcome}\"}} {count}"
            )
        };
        shows(&gateway, &counted("used", 1)).await;
        for (broken, count) in [("", 1), ("canary-one\ncanary-two\n", 2), ("canary\u{1}", 3)] {
            replace(&token, broken);
            shows(&gateway, &counted("refused", count)).await;
            assert_eq!(call(&gateway, "bard").await, "Bearer two", "{broken:?}");
        }
        std::fs::remove_file(&token).unwrap();
        shows(&gateway, &counted("refused", 4)).await;
        assert_eq!(call(&gateway, "bard").await, "Bearer two");
        gateway.wait_for_output("failed to reload credentials").await;
        let output = gateway.output();
        assert!(!output.contains("canary"), "{output}");
        std::fs::write(&token, "three").unwrap();
        becomes(&gateway, "bard", "Bearer three").await;
    }
}

#[tokio::test]
async fn new_certificate_uses_new_connection() {
    let authority = Authority::new("ours");
    let tls = server_config(&authority.server(), Some(&authority));
    let agent = ScriptedAgent::start_tls(Card::v1().skill("sing"), tls).await;
    agent.on_send(|_| Reply::events([v1::message("la")]));
    let [first, second] = ["first", "second"].map(|name| authority.client(name));
    let gateway = TestGateway::start(|ports| {
        first.write(&ports.directory, "gw");
        std::fs::write(ports.directory.join("ca.pem"), authority.pem()).unwrap();
        let tls = "tls: { ca: ca.pem, certificate: gw.crt, key: gw.key }";
        format!("{}agents:\n  bard:\n    card: {}\n    {tls}\n", ports.listeners(), agent.card_url())
    })
    .await;
    let folder = gateway.ports().directory.clone();
    assert_eq!(call(&gateway, "bard").await, "la");
    // The certificate comes first: for a while it does not belong to its key, and the old pair
    // stays.
    replace(&folder.join("gw.crt"), &second.pem());
    shows(&gateway, "mcp_a2a_gateway_credential_reloads_total{agent=\"bard\",outcome=\"refused\"} 1").await;
    assert_eq!(call(&gateway, "bard").await, "la");
    assert!(agent.requests().iter().all(|request| request.certificate == first.der()));
    replace(&folder.join("gw.key"), &second.key_pem());
    shows(&gateway, "mcp_a2a_gateway_credential_reloads_total{agent=\"bard\",outcome=\"used\"} 1").await;
    in_time("a call with the new certificate", async {
        loop {
            assert_eq!(call(&gateway, "bard").await, "la");
            if agent.requests().last().unwrap().certificate == second.der() {
                break;
            }
        }
    })
    .await;
    let from = agent.requests().len();
    for _ in 0..10 {
        assert_eq!(call(&gateway, "bard").await, "la");
    }
    let requests = agent.requests();
    assert!(requests[from..].iter().all(|request| request.certificate == second.der()));
}

/// Two agents at one address, each with a card at its own path.
fn two_cards(agent: &ScriptedAgent) {
    for name in ["a", "b"] {
        let card = Card::v1().skill("sing").body(&format!("{}{name}", agent.url()));
        agent.on_path(&format!("/{name}/card.json"), move |_| Reply::bytes_of("application/json", &card));
    }
}

/// Many calls of both agents at once, each of which must come from its own agent.
async fn interleaved(gateway: &TestGateway, calls: usize) {
    let calls = (0..calls).map(|number| {
        let client = gateway.client();
        tokio::spawn(async move {
            let name = if number % 2 == 0 { "a" } else { "b" };
            let params = json!({ "name": format!("{name}_sing"), "arguments": { "text": name } });
            let result = client.modern("tools/call", params).await.result().await;
            assert_eq!(words(&result), name);
        })
    });
    for call in calls.collect::<Vec<_>>() {
        in_time("an answer", call).await.unwrap();
    }
}

/// Which paths each connection of the agent saw, and under which identity.
fn by_connection(
    agent: &ScriptedAgent,
    identity: fn(&Request) -> String,
) -> BTreeMap<usize, Vec<(String, String)>> {
    let mut seen: BTreeMap<usize, Vec<(String, String)>> = BTreeMap::new();
    for request in agent.requests() {
        let path = request.path.trim_start_matches('/').chars().take(1).collect();
        let entry = (path, identity(&request));
        let seen = seen.entry(request.connection).or_default();
        if !seen.contains(&entry) {
            seen.push(entry);
        }
    }
    seen
}

#[tokio::test]
async fn shared_address_shares_no_key() {
    let agent = ScriptedAgent::start(Card::v1()).await;
    two_cards(&agent);
    agent.on_send(|request| Reply::events([v1::message(&request.text())]));
    let url = agent.url();
    let gateway = TestGateway::start(|ports| {
        let one = |name: &str| {
            format!("  {name}:\n    card: {url}{name}/card.json\n    headers: {{ X-Key: key-{name} }}\n")
        };
        format!("{}agents:\n{}{}", ports.listeners(), one("a"), one("b"))
    })
    .await;
    interleaved(&gateway, 400).await;
    let seen = by_connection(&agent, |request| request.header("x-key").unwrap_or_default().to_owned());
    for shown in seen.values() {
        let [(path, key)] = shown.as_slice() else { panic!("a connection served two: {shown:?}") };
        assert_eq!(*key, format!("key-{path}"));
    }
    assert!(agent.log().calls("SendStreamingMessage").len() == 400);
}

#[tokio::test]
async fn shared_address_shares_no_certificate() {
    let authority = Authority::new("ours");
    let agent =
        ScriptedAgent::start_tls(Card::v1(), server_config(&authority.server(), Some(&authority))).await;
    two_cards(&agent);
    // Every second connection ends, so that sessions are resumed.
    agent.on_send(|request| {
        let reply = Reply::events([v1::message(&request.text())]);
        if request.number % 2 == 0 { reply.close() } else { reply }
    });
    let identities = ["a", "b"].map(|name| authority.client(name));
    let url = agent.url();
    let gateway = TestGateway::start(|ports| {
        std::fs::write(ports.directory.join("ca.pem"), authority.pem()).unwrap();
        let one = |name: &str, at: usize| {
            identities[at].write(&ports.directory, name);
            let tls = format!("tls: {{ ca: ca.pem, certificate: {name}.crt, key: {name}.key }}");
            format!("  {name}:\n    card: {url}{name}/card.json\n    {tls}\n")
        };
        format!("{}agents:\n{}{}", ports.listeners(), one("a", 0), one("b", 1))
    })
    .await;
    interleaved(&gateway, 100).await;
    for request in agent.requests() {
        let at = usize::from(!request.path.starts_with("/a"));
        assert_eq!(request.certificate, identities[at].der(), "{}", request.path);
    }
}
