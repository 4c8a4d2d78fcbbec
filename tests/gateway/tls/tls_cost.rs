//! Handshakes that cost CPU before a client is authenticated: how much, and for how many other
//! clients.

use std::sync::Arc;
use std::time::Instant;

use rustls::ClientConfig;

use crate::kit::tls_scene::{attempt, counted, listen, served, tls_outcome};
use crate::support::certs::{client_config, server_config};
use crate::support::{Authority, Identity, TestGateway, in_time};

/// Handshakes of each kind that are compared.
const HANDSHAKES: u32 = 20;

/// A gateway that requires certificates of `authority` and counts no failures against an address.
async fn gateway(authority: &Authority) -> TestGateway {
    let tls = "client_auth: { mode: required, ca: ca.pem }";
    TestGateway::start(|ports| {
        listen(authority, &[("ca.pem", authority.pem())], tls, ports) + "limits: { auth_failures: 0 }\n"
    })
    .await
}

/// The last of nine authorities of one name, each signed by the next, none by a trusted one.
fn self_made() -> Authority {
    let root = Authority::new("self-made");
    (0..9).fold(root, |above, _| above.intermediate("self-made"))
}

/// CPU time that the process has used, in ticks of 10 ms.
fn cpu_ticks(gateway: &TestGateway) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", gateway.process_id())).unwrap();
    // The name of the program is in parentheses and may have spaces; user and system time are
    // fields 14 and 15.
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// CPU time of so many refused handshakes.
async fn cost(gateway: &TestGateway, config: &ClientConfig) -> u64 {
    let before = cpu_ticks(gateway);
    for _ in 0..HANDSHAKES {
        assert_eq!(attempt(gateway, config.clone()).await, None, "it must be refused");
    }
    cpu_ticks(gateway) - before
}

/// The search for a path through such a chain takes time that grows with the factorial of its
/// length: without a bound on the chain, one handshake costs as much as hundreds.
#[tokio::test]
async fn self_made_chain_costs_as_any() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let gateway = gateway(&ours).await;
    let stranger = client_config(&ours, Some(&theirs.client("stranger")), &["http/1.1"]);
    let attacker = client_config(&ours, Some(&self_made().client("attacker")), &["http/1.1"]);
    let ordinary = cost(&gateway, &stranger).await;
    let attack = cost(&gateway, &attacker).await;
    assert!(attack <= 10 + 4 * ordinary, "{HANDSHAKES} handshakes: {attack} ticks against {ordinary}");
    counted(&gateway, "chain_too_large", u64::from(HANDSHAKES)).await;
}

#[tokio::test]
async fn clients_are_served_meanwhile() {
    let ours = Authority::new("ours");
    let gateway = Arc::new(gateway(&ours).await);
    let attacker = client_config(&ours, Some(&self_made().client("attacker")), &["http/1.1"]);
    let attackers: Vec<_> = (0..8)
        .map(|_| {
            let (gateway, config) = (Arc::clone(&gateway), attacker.clone());
            tokio::spawn(async move {
                loop {
                    attempt(&gateway, config.clone()).await;
                }
            })
        })
        .collect();
    let good = client_config(&ours, Some(&ours.client("good")), &["http/1.1"]);
    let begun = Instant::now();
    for _ in 0..20 {
        assert_eq!(served(&gateway, good.clone()).await, 200);
    }
    let took = begun.elapsed();
    attackers.iter().for_each(tokio::task::JoinHandle::abort);
    assert!(took.as_secs() < 10, "20 clients were served in {took:?}");
    in_time("the metrics", gateway.metrics()).await;
}

/// Its further connections are closed before a handshake begins; connections without a word count
/// nothing.
#[tokio::test]
async fn failing_address_is_refused() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let tls = "client_auth: { mode: required, ca: ca.pem }";
    let gateway = TestGateway::start(|ports| {
        listen(&ours, &[("ca.pem", ours.pem())], tls, ports) + "limits: { auth_failures: 1 }\n"
    })
    .await;
    let good = client_config(&ours, Some(&ours.client("good")), &["http/1.1"]);
    let stranger = client_config(&ours, Some(&theirs.client("stranger")), &["http/1.1"]);
    for _ in 0..15 {
        let socket = tokio::net::TcpStream::connect(("127.0.0.1", gateway.ports().other)).await;
        drop(socket.unwrap());
    }
    for _ in 0..10 {
        assert_eq!(attempt(&gateway, stranger.clone()).await, None);
    }
    assert_eq!(served(&gateway, good.clone()).await, 200, "ten at once are allowed");
    let refused = async {
        while tls_outcome(&gateway, "rate_limited").await == 0 {
            assert_eq!(attempt(&gateway, stranger.clone()).await, None);
        }
    };
    in_time("a handshake to be refused early", refused).await;
    let served_again = async { while attempt(&gateway, good.clone()).await.is_none() {} };
    in_time("the address to be served again", served_again).await;
}

/// An agent, or the host of a client's webhook, is not authenticated before its chain is verified
/// either.
#[tokio::test]
async fn self_made_chain_of_agent_costs_little() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let agent = listener.local_addr().unwrap();
    let gateway = TestGateway::start(|ports| {
        std::fs::write(ports.directory.join("ca.pem"), ours.pem()).unwrap();
        let agent = format!("{{ card: 'https://{agent}/card', tls: {{ ca: ca.pem }} }}");
        let cards = "cards: { retry: 100ms, min_refresh: 1s }";
        format!("{}{cards}\nagents:\n  bard: {agent}\n", ports.listeners())
    })
    .await;
    let acceptor = |identity: &Identity| tokio_rustls::TlsAcceptor::from(server_config(identity, None));
    let kinds = [acceptor(&theirs.server()), acceptor(&self_made().server())];
    let mut cost = [0, 0];
    for _ in 0..2 {
        for (acceptor, cost) in kinds.iter().zip(&mut cost) {
            let (socket, _) = in_time("another look at the card", listener.accept()).await.unwrap();
            let before = cpu_ticks(&gateway);
            let accepted = in_time("a refusal", acceptor.accept(socket)).await;
            assert!(accepted.is_err(), "its chain must be refused");
            *cost += cpu_ticks(&gateway) - before;
        }
    }
    let [ordinary, attack] = cost;
    assert!(attack <= 10 + 4 * ordinary, "2 handshakes: {attack} ticks against {ordinary}");
}
