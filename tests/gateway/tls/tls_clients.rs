//! Client certificates: the clients that get through a handshake, and those that do not.

use rcgen::{CertificateParams, KeyUsagePurpose, SanType};
use rustls::version::{TLS12, TLS13};

use crate::kit::tls_scene::{attempt, counted, health, listen, refused, served, start, tls_outcome as count};
use crate::support::certs::{client_config, client_config_of};
use crate::support::{Authority, Identity, McpClient, TestGateway};

/// RUSTSEC-2026-0049: a list of revoked certificates was there and not consulted.
#[tokio::test]
async fn only_good_certificate_gets_in() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let (leaf, good) = (ours.client("revoked"), ours.client("good"));
    let (middle, revoked_middle) = (ours.intermediate("middle"), ours.intermediate("revoked middle"));
    let files = [
        ("ca.pem", ours.pem()),
        ("crl.pem", ours.crl_for(&[leaf.serial(), revoked_middle.serial()], 9999)),
        ("middle.crl", middle.crl(&[])),
        ("other.crl", revoked_middle.crl(&[])),
    ];
    let gateway = start(
        &ours,
        &files,
        "client_auth: { mode: required, ca: ca.pem, crl: [crl.pem, middle.crl, other.crl] }",
    )
    .await;
    let show = |identity: Option<&Identity>| client_config(&ours, identity, &["http/1.1"]);
    for identity in [&good, &middle.client("below"), &ours.client_uri("spiffe", "spiffe://example.org/a")] {
        assert_eq!(served(&gateway, show(Some(identity))).await, 200);
    }
    for (cause, identity) in [
        ("no_certificate", None),
        ("unknown_issuer", Some(&theirs.client("good"))),
        ("expired", Some(&ours.expired_client("old"))),
        ("not_yet_valid", Some(&ours.future_client("early"))),
        ("wrong_usage", Some(&ours.server())),
        ("revoked", Some(&leaf)),
        ("revoked", Some(&revoked_middle.client("below"))),
        // Its authority has no list here, so that its state is unknown.
        ("revocation_unknown", Some(&ours.intermediate("unlisted").client("below"))),
        ("bad_certificate", Some(&ours.client_that_signs("both"))),
    ] {
        let before = count(&gateway, cause).await;
        refused(&gateway, show(identity)).await;
        counted(&gateway, cause, before + 1).await;
    }
    counted(&gateway, "ok", 3).await;
    gateway
        .wait_for_output(&format!("TLS handshake refused listener=127.0.0.1:{}", gateway.ports().other))
        .await;
    for cause in ["no_certificate", "revoked"] {
        gateway.wait_for_output(&format!("cause=\"{cause}\"")).await;
    }
    let printed = gateway.output();
    assert!(!printed.contains("ERROR"), "{printed}");
}

#[tokio::test]
async fn optional_certificate_must_be_good() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let gateway =
        start(&ours, &[("ca.pem", ours.pem())], "client_auth: { mode: optional, ca: ca.pem }").await;
    for version in [&TLS12, &TLS13] {
        let show =
            |identity: Option<&Identity>| client_config_of(&[version], &ours, identity, &["h2", "http/1.1"]);
        assert_eq!(served(&gateway, show(None)).await, 200);
        assert_eq!(served(&gateway, show(Some(&ours.client("good")))).await, 200);
        refused(&gateway, show(Some(&theirs.client("good")))).await;
        refused(&gateway, show(Some(&ours.expired_client("old")))).await;
    }
}

#[tokio::test]
async fn any_listed_authority_suffices() {
    let (ours, theirs, nobody) = (Authority::new("ours"), Authority::new("theirs"), Authority::new("nobody"));
    let files = [("ours.pem", ours.pem()), ("theirs.pem", theirs.pem())];
    let gateway = start(&ours, &files, "client_auth: { mode: required, ca: [ours.pem, theirs.pem] }").await;
    for authority in [&ours, &theirs] {
        let identity = authority.client("good");
        assert_eq!(served(&gateway, client_config(&ours, Some(&identity), &["h2"])).await, 200);
    }
    refused(&gateway, client_config(&ours, Some(&nobody.client("good")), &["h2"])).await;
}

#[tokio::test]
async fn port_scanner_does_not_fill_log() {
    let ours = Authority::new("ours");
    let gateway = start(&ours, &[], "").await;
    let plain = McpClient::new(&format!("http://127.0.0.1:{}/healthz", gateway.ports().other));
    for _ in 0..20 {
        assert!(plain.try_send("GET", &[], Vec::new()).await.is_err());
        refused(&gateway, client_config(&Authority::new("theirs"), None, &["h2"])).await;
    }
    counted(&gateway, "malformed", 20).await;
    counted(&gateway, "refused_by_client", 20).await;
    let printed = gateway.output();
    assert!(!printed.contains("handshake") && !printed.contains("ERROR"), "{printed}");
}

#[tokio::test]
async fn endless_handshake_is_ended() {
    let ours = Authority::new("ours");
    let gateway =
        TestGateway::start(|ports| listen(&ours, &[], "", ports) + "limits: { header_read: 1s }\n").await;
    let address = ("127.0.0.1", gateway.ports().other);
    let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
    use tokio::io::AsyncReadExt as _;
    let read = crate::support::in_time("the gateway to hang up", socket.read(&mut [0; 9])).await;
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    counted(&gateway, "timeout", 1).await;
    assert_eq!(health(&gateway, client_config(&ours, None, &["h2"])).await, 200);
}

/// A gateway that requires certificates of `ours`, and a function that shows it one.
async fn required(ours: &Authority) -> TestGateway {
    start(ours, &[("ca.pem", ours.pem())], "client_auth: { mode: required, ca: ca.pem }").await
}

#[tokio::test]
async fn key_usage_is_obeyed() {
    let ours = Authority::new("ours");
    let gateway = required(&ours).await;
    let use_for = |usages: &'static [KeyUsagePurpose]| {
        move |params: &mut CertificateParams| params.key_usages = usages.to_vec()
    };
    let agreement = ours.client_with("agreement", use_for(&[KeyUsagePurpose::KeyAgreement]));
    let any = ours.client_with("any", use_for(&[]));
    let lists_only = ours.intermediate_with("lists only", use_for(&[KeyUsagePurpose::CrlSign]));
    let signs = ours.intermediate_with("signs", use_for(&[KeyUsagePurpose::KeyCertSign]));
    let below_lists_only = lists_only.intermediate("below");
    for (identity, is_served) in [
        (&any, true),
        (&signs.client("good"), true),
        (&agreement, false),
        (&lists_only.client("below"), false),
        (&below_lists_only.client("further below"), false),
    ] {
        for version in [&TLS12, &TLS13] {
            let config = client_config_of(&[version], &ours, Some(identity), &["http/1.1"]);
            assert_eq!(attempt(&gateway, config).await, is_served.then_some(200));
        }
    }
    counted(&gateway, "wrong_usage", 6).await;
}

/// Each bound on a chain, and a chain that just keeps to it.
#[tokio::test]
async fn chain_beyond_bound_is_refused() {
    let ours = Authority::new("ours");
    let gateway = required(&ours).await;
    let below = |names: &[&str]| {
        let first = ours.intermediate(names[0]);
        names[1..].iter().fold(first, |above, name| above.intermediate(name))
    };
    let with_uri = |bytes: usize| {
        ours.client_with("large", |params| {
            let uri = format!("urn:{}", "a".repeat(bytes));
            params.subject_alt_names = vec![SanType::URI(uri.try_into().unwrap())];
        })
    };
    for (what, identity, is_served) in [
        ("four intermediates", below(&["a", "b", "c", "d"]).client("x"), true),
        ("five intermediates", below(&["a", "b", "c", "d", "e"]).client("x"), false),
        ("two of one name", below(&["a", "b", "a"]).client("x"), true),
        ("three of one name", below(&["a", "a", "a"]).client("x"), false),
        ("15 KB", with_uri(15_000), true),
        ("17 KB", with_uri(17_000), false),
    ] {
        let config = client_config(&ours, Some(&identity), &["http/1.1"]);
        assert_eq!(attempt(&gateway, config).await, is_served.then_some(200), "{what}");
    }
    counted(&gateway, "chain_too_large", 3).await;
}
