//! Certificates, authorities and revocation lists that change while the gateway runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use rustls::ClientConfig;
use rustls::version::{TLS12, TLS13};

use crate::kit::tls_scene::{Connection, attempt, health, listen, refused, start};
use crate::support::certs::{client_config, client_config_of};
use crate::support::{Authority, Identity, McpClient, PATIENCE, TestGateway, in_time};

const MUTUAL: &str = "client_auth: { mode: required, ca: ca.pem, crl: crl.pem }";

/// A gateway with a client's certificate that is about to be revoked.
struct Scene {
    ours: Authority,
    client: Identity,
    gateway: TestGateway,
}

impl Scene {
    async fn new() -> Self {
        let ours = Authority::new("ours");
        let files = [("ca.pem", ours.pem()), ("crl.pem", ours.crl(&[]))];
        let gateway = start(&ours, &files, MUTUAL).await;
        let client = ours.client("soon revoked");
        Self { ours, client, gateway }
    }

    fn write(&self, name: &str, content: &str) {
        write(&self.gateway, name, content);
    }

    fn config(&self, version: &'static rustls::SupportedProtocolVersion) -> Arc<ClientConfig> {
        Arc::new(client_config_of(&[version], &self.ours, Some(&self.client), &["http/1.1"]))
    }
}

/// Replaces a file as a careful operator does: at once.
fn write(gateway: &TestGateway, name: &str, content: &str) {
    let path = gateway.ports().directory.join(name);
    std::fs::write(path.with_extension("new"), content).unwrap();
    std::fs::rename(path.with_extension("new"), path).unwrap();
}

/// How often files were read again with this outcome.
async fn reloads(gateway: &TestGateway, outcome: &str) -> u64 {
    let listener = format!("127.0.0.1:{}", gateway.ports().other);
    let line = format!("mcp_a2a_gateway_tls_reloads_total{{listener=\"{listener}\",outcome=\"{outcome}\"}} ");
    let metrics = gateway.metrics().await;
    metrics.lines().find_map(|text| text.strip_prefix(&line)).expect(&line).parse().unwrap()
}

async fn until_reloads(gateway: &TestGateway, outcome: &str, count: u64) {
    let begun = SystemTime::now();
    while reloads(gateway, outcome).await < count {
        assert!(begun.elapsed().unwrap() < PATIENCE, "not {count} {outcome}: {}", gateway.output());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Tells the gateway to read its files again, and waits until it did.
async fn told(gateway: &TestGateway) {
    let before = reloads(gateway, "used").await;
    gateway.signal("HUP");
    until_reloads(gateway, "used", before + 1).await;
}

#[tokio::test]
async fn revoked_client_loses_connection() {
    let scene = Scene::new().await;
    for version in [&TLS12, &TLS13] {
        scene.write("crl.pem", &scene.ours.crl(&[]));
        told(&scene.gateway).await;
        let mut kept = Connection::open(&scene.gateway, &scene.config(version)).await;
        assert!(kept.ask("localhost").await.unwrap().starts_with("HTTP/1.1 200"));
        scene.write("crl.pem", &scene.ours.crl(&[&scene.client]));
        told(&scene.gateway).await;
        let head = kept.ask("localhost").await.unwrap();
        assert!(head.starts_with("HTTP/1.1 403"), "{head}");
        assert!(kept.is_closed().await);
    }
    let metrics = scene.gateway.metrics().await;
    assert!(metrics.contains("refused_total{reason=\"unauthenticated\"} 2"), "{metrics}");
}

#[tokio::test]
async fn each_http2_request_is_judged_again() {
    let scene = Scene::new().await;
    let config = client_config(&scene.ours, Some(&scene.client), &["h2"]);
    let (mut requests, connection) = crate::kit::tls_scene::http2(&scene.gateway, config).await;
    assert_eq!(crate::kit::tls_scene::ask(&mut requests).await, 200);
    scene.write("crl.pem", &scene.ours.crl(&[&scene.client]));
    told(&scene.gateway).await;
    assert_eq!(crate::kit::tls_scene::ask(&mut requests).await, 403);
    in_time("the end of the connection", connection).await.unwrap();
}

#[tokio::test]
async fn event_stream_ends_with_certificate() {
    for alpn in ["h2", "http/1.1"] {
        let scene = Scene::new().await;
        let url = format!("https://localhost:{}/mcp", scene.gateway.ports().other);
        let client = McpClient::new(&url).tls(client_config(&scene.ours, Some(&scene.client), &[alpn]));
        let other = ours_too(&scene, &url, alpn);
        let (stream, others) =
            (client.legacy().await.listen(None).await, other.legacy().await.listen(None).await);
        assert_eq!((stream.status, others.status), (200, 200));
        scene.write("crl.pem", &scene.ours.crl(&[&scene.client]));
        told(&scene.gateway).await;
        in_time("the end of the stream", stream.until_cut()).await;
        assert_eq!(other.at("/healthz").get(&[]).await.status, 200);
        assert!(
            scene.gateway.metrics().await.contains("open_streams{agent=\"\"} 1"),
            "the other stream goes on"
        );
        drop(others);
    }
}

/// Another client, which is not revoked.
fn ours_too(scene: &Scene, url: &str, alpn: &str) -> McpClient {
    let other = scene.ours.client("other");
    McpClient::new(url).tls(client_config(&scene.ours, Some(&other), &[alpn]))
}

#[tokio::test]
async fn session_does_not_outlive_certificate() {
    let scene = Scene::new().await;
    for version in [&TLS12, &TLS13] {
        scene.write("crl.pem", &scene.ours.crl(&[]));
        told(&scene.gateway).await;
        let config = scene.config(version);
        for _ in 0..2 {
            let mut connection = Connection::open(&scene.gateway, &config).await;
            assert!(connection.ask("localhost").await.is_some());
        }
        assert!(Connection::open(&scene.gateway, &config).await.is_resumed(), "{version:?}");
        scene.write("crl.pem", &scene.ours.crl(&[&scene.client]));
        told(&scene.gateway).await;
        refused(&scene.gateway, (*config).clone()).await;
    }
}

/// RUSTSEC-2026-0049.
#[tokio::test]
async fn revoked_intermediate_revokes_clients() {
    let ours = Authority::new("ours");
    let middle = ours.intermediate("middle");
    let files = [("ca.pem", ours.pem()), ("crl.pem", ours.crl(&[])), ("middle.crl", middle.crl(&[]))];
    let tls = "client_auth: { mode: required, ca: ca.pem, crl: [crl.pem, middle.crl] }";
    let gateway = start(&ours, &files, tls).await;
    let client = middle.client("below");
    let config = Arc::new(client_config(&ours, Some(&client), &["http/1.1"]));
    let mut kept = Connection::open(&gateway, &config).await;
    assert!(kept.ask("localhost").await.unwrap().starts_with("HTTP/1.1 200"));
    write(&gateway, "crl.pem", &ours.crl_for(&[middle.serial()], 9999));
    told(&gateway).await;
    assert!(kept.ask("localhost").await.unwrap().starts_with("HTTP/1.1 403"));
    refused(&gateway, (*config).clone()).await;
}

#[tokio::test]
async fn dropped_authority_loses_clients() {
    let scene = Scene::new().await;
    let theirs = Authority::new("theirs");
    let mut kept = Connection::open(&scene.gateway, &scene.config(&TLS13)).await;
    assert!(kept.ask("localhost").await.unwrap().starts_with("HTTP/1.1 200"));
    scene.write("ca.pem", &theirs.pem());
    scene.write("crl.pem", &theirs.crl(&[]));
    told(&scene.gateway).await;
    assert!(kept.ask("localhost").await.unwrap().starts_with("HTTP/1.1 403"));
    refused(&scene.gateway, (*scene.config(&TLS13)).clone()).await;
    let theirs = client_config(&scene.ours, Some(&theirs.client("new")), &["h2"]);
    assert_eq!(health(&scene.gateway, theirs).await, 200);
}

#[tokio::test]
async fn expired_client_loses_connection() {
    let scene = Scene::new().await;
    let client = scene.ours.client_for("short", 3);
    let config = Arc::new(client_config(&scene.ours, Some(&client), &["http/1.1"]));
    let mut kept = Connection::open(&scene.gateway, &config).await;
    loop {
        let head = kept.ask("localhost").await.unwrap();
        if head.starts_with("HTTP/1.1 403") {
            break;
        }
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // With the session that it has, and without.
    assert_eq!(health(&scene.gateway, (*config).clone()).await, 403);
    refused(&scene.gateway, client_config(&scene.ours, Some(&client), &["http/1.1"])).await;
}

/// No authority is left that could vouch for its clients.
#[tokio::test]
async fn clients_of_only_authority_end_with_it() {
    let (server, theirs) = (Authority::new("server"), Authority::ending_in("theirs", 5));
    let files = [("ca.pem", theirs.pem())];
    let gateway = start(&server, &files, "client_auth: { mode: required, ca: ca.pem }").await;
    let client = theirs.client("outlives it");
    let config = Arc::new(client_config(&server, Some(&client), &["http/1.1"]));
    let mut kept = Connection::open(&gateway, &config).await;
    assert!(kept.ask("localhost").await.unwrap().starts_with("HTTP/1.1 200"));
    let over = async {
        while kept.ask("localhost").await.is_some_and(|head| head.starts_with("HTTP/1.1 200")) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    in_time("the end of the authority", over).await;
    let anew = client_config(&server, Some(&client), &["http/1.1"]);
    let answer = attempt(&gateway, anew).await;
    assert_ne!(answer, Some(200), "a new connection of a client of nobody's");
}

#[tokio::test]
async fn stale_revocation_list_obeys_policy() {
    let ours = Authority::new("ours");
    let client = ours.client("good");
    for (policy, status) in [("refuse", 403), ("accept", 200)] {
        let files = || [("ca.pem", ours.pem()), ("crl.pem", ours.crl_for(&[], 6))];
        let tls =
            format!("client_auth: {{ mode: required, ca: ca.pem, crl: crl.pem, expired_crl: {policy} }}");
        let gateway = TestGateway::start(|ports| listen(&ours, &files(), &tls, ports)).await;
        let config = Arc::new(client_config(&ours, Some(&client), &["http/1.1"]));
        let mut kept = Connection::open(&gateway, &config).await;
        assert!(kept.ask("localhost").await.unwrap().starts_with("HTTP/1.1 200"));
        let until = SystemTime::now() + Duration::from_secs(7);
        while SystemTime::now() < until {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let head = kept.ask("localhost").await.unwrap();
        assert!(head.starts_with(&format!("HTTP/1.1 {status}")), "{policy}: {head}");
        let anew = client_config(&ours, Some(&client), &["http/1.1"]);
        match policy {
            "refuse" => refused(&gateway, anew).await,
            _ => assert_eq!(health(&gateway, anew).await, 200),
        }
    }
}

#[tokio::test]
async fn changed_files_are_noticed() {
    let scene = Scene::new().await;
    let renewed = scene.ours.server();
    renewed.write(&scene.gateway.ports().directory, "server");
    until_reloads(&scene.gateway, "used", 1).await;
    let connection = Connection::open(&scene.gateway, &scene.config(&TLS13)).await;
    assert_eq!(connection.shown(), renewed.der());
    assert_eq!(reloads(&scene.gateway, "refused").await, 0);
}

/// RUSTSEC-2026-0104: a malformed list of revoked certificates brought the server down.
#[tokio::test]
async fn broken_file_changes_nothing() {
    let scene = Scene::new().await;
    let before = Connection::open(&scene.gateway, &scene.config(&TLS13)).await.shown();
    let directory = scene.gateway.ports().directory.clone();
    let [key, certificate] =
        ["server.key", "server.crt"].map(|name| std::fs::read_to_string(directory.join(name)).unwrap());
    let old = Authority::new("ours").crl_for(&[], 0);
    for (count, (file, broken, words)) in (1..).zip([
        ("server.crt", "nonsense".to_owned(), "server.crt: holds no certificate"),
        ("server.key", scene.ours.server().key_pem(), "server.crt: does not belong to the key beside it"),
        ("server.crt", scene.ours.expired_server().pem(), "server.crt: certificate 1 expired"),
        ("ca.pem", scene.ours.server().pem(), "ca.pem: certificate 1 is not an authority's"),
        (
            "crl.pem",
            "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n".to_owned(),
            "crl.pem: holds a revocation list",
        ),
        ("crl.pem", old, "crl.pem: the revocation list of CN=ours expired"),
        (
            "crl.pem",
            Authority::new("ours").crl(&[]),
            "crl.pem: the revocation list of CN=ours was not signed by",
        ),
    ]) {
        scene.write(file, &broken);
        scene.gateway.signal("HUP");
        scene.gateway.wait_for_output(words).await;
        let printed = scene.gateway.output();
        let told = printed.lines().rfind(|line| line.contains(words)).unwrap();
        assert!(told.contains("WARN") && told.contains("failed to reload certificates"), "{words}: {told}");
        assert!(reloads(&scene.gateway, "refused").await >= count);
        let mut connection = Connection::open(&scene.gateway, &scene.config(&TLS13)).await;
        assert_eq!(connection.shown(), before);
        assert!(connection.ask("localhost").await.unwrap().starts_with("HTTP/1.1 200"));
        scene.write("server.crt", &certificate);
        scene.write("server.key", &key);
        scene.write("ca.pem", &scene.ours.pem());
        scene.write("crl.pem", &scene.ours.crl(&[]));
    }
    std::fs::remove_file(directory.join("ca.pem")).unwrap();
    scene.gateway.wait_for_output("ca.pem: No such file").await;
    assert!(!scene.gateway.output().contains("PRIVATE"), "no key is ever printed");
}

#[tokio::test]
async fn reload_under_load_is_unnoticed() {
    let scene = Arc::new(Scene::new().await);
    let stop = Arc::new(AtomicBool::new(false));
    let answered = Arc::new(AtomicU32::new(0));
    let clients: Vec<_> = (0..6)
        .map(|number: u32| {
            let (scene, stop, answered) = (Arc::clone(&scene), Arc::clone(&stop), Arc::clone(&answered));
            tokio::spawn(async move {
                let version = if number.is_multiple_of(2) { &TLS12 } else { &TLS13 };
                let config = scene.config(version);
                let mut kept = Connection::open(&scene.gateway, &config).await;
                while !stop.load(Ordering::Acquire) {
                    if number < 4 {
                        kept = Connection::open(&scene.gateway, &config).await;
                    }
                    let head = kept.ask("localhost").await.expect("an answer");
                    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
                    answered.fetch_add(1, Ordering::AcqRel);
                }
            })
        })
        .collect();
    for _ in 0..8 {
        scene.ours.server().write(&scene.gateway.ports().directory, "server");
        scene.write("crl.pem", &scene.ours.crl(&[&scene.ours.client("somebody else")]));
        told(&scene.gateway).await;
        let so_far = answered.load(Ordering::Acquire);
        let begun = SystemTime::now();
        while answered.load(Ordering::Acquire) < so_far + 30 {
            assert!(begun.elapsed().unwrap() < PATIENCE && clients.iter().all(|one| !one.is_finished()));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    stop.store(true, Ordering::Release);
    for client in clients {
        client.await.expect("not one request failed");
    }
}

#[tokio::test]
async fn approaching_end_is_warned_of() {
    let ours = Authority::new("ours");
    let day = 86_400;
    let gateway = TestGateway::start(|ports| {
        ours.server_for(&["localhost"], 20 * day).write(&ports.directory, "server");
        ours.server_for(&["soon.example"], 3 * day + 3600).write(&ports.directory, "soon");
        ours.server_for(&["later.example"], 300 * day).write(&ports.directory, "later");
        crate::kit::tls_scene::listen_with(
            "certificate: server.crt, key: server.key, certificates: [{ certificate: soon.crt, key: soon.key }, { certificate: \
             later.crt, key: later.key }], client_auth: { mode: optional, ca: ca.pem, crl: crl.pem }",
            &[("ca.pem", ours.pem()), ("crl.pem", ours.crl_for(&[], 9999))],
            ports,
        )
    })
    .await;
    gateway.wait_for_output("name=\"soon.example\"").await;
    let printed = gateway.output();
    let warnings: Vec<_> = printed.lines().filter(|line| line.contains("expires within")).collect();
    assert_eq!(warnings.len(), 2, "{printed}");
    assert!(warnings.iter().all(|line| line.contains("WARN")));
    assert!(warnings[0].contains("within 30 days") && warnings[0].contains("name=\"localhost\""));
    assert!(warnings[1].contains("within 7 days") && warnings[1].contains("days=3"));
    let metrics = gateway.metrics().await;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    for (kind, name, seconds) in [
        ("certificate", "localhost", 20 * day),
        ("certificate", "later.example", 300 * day),
        ("crl", "CN=ours", 9999),
    ] {
        let line = format!(
            "mcp_a2a_gateway_tls_expiry_timestamp_seconds{{kind=\"{kind}\",listener=\"127.0.0.1:{}\",name=\"{name}\"}} ",
            gateway.ports().other
        );
        let shown: u64 =
            metrics.lines().find_map(|text| text.strip_prefix(&line)).expect(&line).parse().unwrap();
        assert!(shown.abs_diff(now + seconds) < 60, "{line}{shown}");
    }
    assert!(metrics.contains("kind=\"ca\""), "{metrics}");
}

/// The service that obeys it starts later than the listeners are announced.
#[tokio::test]
async fn hangup_at_start_is_obeyed() {
    use std::io::BufRead as _;
    let directory = tempfile::tempdir().unwrap();
    let (port, file) = (crate::support::free_port(), directory.path().join("gateway.yaml"));
    let agents = "agents: { a: { card: http://127.0.0.1:1/ } }";
    std::fs::write(&file, format!("listeners: [{{ address: 127.0.0.1:{port} }}]\n{agents}\n")).unwrap();
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_mcp-a2a-gateway"))
        .args(["serve", "--config"])
        .arg(&file)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    std::io::BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    let sent = std::process::Command::new("kill").args(["-HUP", &child.id().to_string()]).status();
    let log = std::io::BufReader::new(child.stderr.take().unwrap());
    // To the end of the log, if the gateway ends.
    let obeyed = tokio::task::spawn_blocking(move || {
        log.lines().any(|line| line.unwrap().contains("received SIGHUP, reloading certificates"))
    });
    let obeyed = tokio::time::timeout(PATIENCE, obeyed).await;
    child.kill().unwrap_or_default();
    child.wait().unwrap();
    assert!(first.starts_with("listening on") && sent.unwrap().success(), "{first}");
    assert!(obeyed.is_ok_and(Result::unwrap), "it ended, or did not obey");
}

#[tokio::test]
async fn gateway_without_tls_survives_hangup() {
    let gateway = TestGateway::start(|ports| {
        format!("{}agents: {{ a: {{ card: http://127.0.0.1:1/ }} }}\n", ports.listeners())
    })
    .await;
    gateway.signal("HUP");
    gateway.wait_for_output("received SIGHUP, reloading certificates").await;
    assert_eq!(gateway.client().at("/healthz").get(&[]).await.status, 200);
}
