//! Secrets: resolved, and never seen.

use super::desk::{Desk, report};

const CANARY: &str = "canary-0123456789-0123456789-0123456789";

/// An authority of clients, and its revocation list.
pub(crate) fn authority() -> (String, String) {
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let crl = rcgen::CertificateRevocationListParams {
        this_update: rcgen::date_time_ymd(2020, 1, 1),
        next_update: rcgen::date_time_ymd(4000, 1, 1),
        crl_number: 1.into(),
        issuing_distribution_point: None,
        revoked_certs: Vec::new(),
        key_identifier_method: rcgen::KeyIdMethod::Sha256,
    };
    let crl = crl.signed_by(&rcgen::Issuer::new(params, key)).unwrap();
    (certificate.pem(), crl.pem().unwrap())
}

/// A certificate and its key.
pub(crate) fn identity() -> (String, String) {
    let identity = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    (identity.cert.pem(), identity.signing_key.serialize_pem())
}

fn with_header(value: &str) -> String {
    format!(
        "listeners: [{{address: 127.0.0.1:8080}}]\nagents: {{ a: {{ card: http://a/, headers: {{ x: '{value}' }} }} }}\n"
    )
}

fn desk() -> Desk {
    Desk::new()
        .variable("TOKEN", CANARY)
        .variable("EMPTY", "")
        .file("token", format!("{CANARY}\n"))
        .file("token.crlf", format!("{CANARY}\r\n"))
        .file("lines", format!("{CANARY}\n\n"))
        .file("nul", format!("{CANARY}\0"))
        .file("large", "x".repeat(70_000))
        .file("binary", [0xff, 0xfe])
}

#[test]
fn references_are_resolved_inside_texts() {
    for (written, expected) in [
        ("${env:TOKEN}", CANARY.to_owned()),
        ("${TOKEN}", CANARY.to_owned()),
        ("${file:token}", CANARY.to_owned()),
        ("${file:token.crlf}", CANARY.to_owned()),
        ("Bearer ${env:TOKEN}!", format!("Bearer {CANARY}!")),
        ("${TOKEN}${TOKEN}", format!("{CANARY}{CANARY}")),
        ("$${env:TOKEN}", "${env:TOKEN}".to_owned()),
        ("$${", "${".to_owned()),
        ("$TOKEN } $", "$TOKEN } $".to_owned()),
        ("plain", "plain".to_owned()),
    ] {
        let settings = desk().settings(&with_header(written));
        assert_eq!(settings.agents[0].headers[0].1.expose(), expected, "{written}");
    }
}

#[test]
fn bad_reference_is_named_without_value() {
    for (written, expected) in [
        ("${env:NONE}", "environment variable NONE is not set"),
        ("${env:EMPTY}", "environment variable EMPTY is empty"),
        ("${env:}", "a reference names no environment variable (write ${env:NAME}; $${ is a plain ${)"),
        ("${A=B}", "a reference names no environment variable (write ${env:NAME}; $${ is a plain ${)"),
        ("${vault:x}", "an unknown kind of reference (write ${env:NAME} or ${file:PATH}; $${ is a plain ${)"),
        ("${env:TOKEN", "a reference has no } at its end ($${ is a plain ${)"),
        ("${file:none}", "cannot read none: No such file or directory (os error 2)"),
        ("${file:.}", "cannot read .: it is a folder"),
        ("${file:large}", "cannot read large: it is larger than 64KiB"),
        ("${file:binary}", "binary is not UTF-8"),
        ("${file:lines}", "has a line break or a NUL in it (only one newline at its end is removed)"),
        ("${file:nul}", "has a line break or a NUL in it (only one newline at its end is removed)"),
    ] {
        let report = desk().report(&with_header(written));
        assert_eq!(report, format!("gateway.yaml:2: agents.a.headers.x: {expected}"), "{written}");
    }
}

#[test]
fn nothing_prints_secrets() {
    let (certificate, key) = identity();
    let text = "\
listeners:
  - address: 127.0.0.1:8443
    tls: { certificate: gw.crt, key: '${env:KEY}' }
seal_key: ['${TOKEN}', '${file:other}']
agents:
  a:
    card: http://a/
    headers: { Authorization: 'Bearer ${env:TOKEN}' }
    tls: { certificate: gw.crt, key: '${env:KEY}' }
";
    let settings = desk()
        .variable("KEY", &key)
        .file("gw.crt", certificate)
        .file("other", format!("other-{CANARY}"))
        .settings(text);
    assert_eq!(settings.seal_keys[1].expose(), format!("other-{CANARY}"));
    let printed = format!("{settings:?} {settings:#?} {}", settings.seal_keys[0]);
    assert!(!printed.contains("canary") && !printed.contains("PRIVATE KEY"), "{printed}");
    assert!(printed.contains("***"));
}

#[test]
fn no_problem_prints_secrets() {
    let canary = "canary\u{1}";
    for text in [
        format!("seal_key: {CANARY}\nagents: {CANARY}\nlisteners: {CANARY}\n"),
        format!(
            "seal_key: {{ a: {CANARY} }}\nthreads: {CANARY}\nlog: {{ format: {CANARY}, level: {CANARY} }}\n"
        ),
        format!("public_url: https://{CANARY}@x/\nlisteners: [{CANARY}, {{ address: {CANARY} }}]\n"),
        format!(
            "seal_key: canary\nagents: {{ a: {{ card: 'http://{CANARY}@x', headers: {{ a: [{CANARY}] }} }} }}\n"
        ),
        format!(
            "agents: {{ a: {{ card: 'http:// {CANARY}', headers: {{ a: \"{}\" }} }} }}\n",
            canary.escape_default()
        ),
        format!(
            "agents: {{ a: {{ tls: {{ ca: \"-----BEGIN {CANARY}\", key: \"-----BEGIN X-----\\n{CANARY}\" }} }} }}\n"
        ),
        format!("calls: {{ budget: {CANARY} }}\nlimits: {{ body: {CANARY} }}\n"),
        format!("seal_key: \"{CANARY}\n"),
        format!("seal_key: [{CANARY}\n"),
        format!("seal_key: *{}\n", "canary"),
        format!("  seal_key: {CANARY}: {CANARY}\n"),
    ] {
        let report = report(&text);
        assert!(!report.contains("canary"), "{text}\n{report}");
    }
}
