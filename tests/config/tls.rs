//! Problems with the certificates, authorities and revocation lists of a listener, found before it
//! starts.

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, IsCa, Issuer, KeyIdMethod, KeyPair,
    date_time_ymd,
};

use super::desk::Desk;
use super::secrets::{authority, identity};

/// A self-signed certificate of these years, and its key.
fn of(names: &[&str], from: i32, to: i32) -> (String, String) {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    (params.not_before, params.not_after) = (date_time_ymd(from, 1, 1), date_time_ymd(to, 1, 1));
    let key = KeyPair::generate().unwrap();
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

/// An authority of this name that ends in this year, and its revocation list that does so too.
fn ends_in(name: &str, year: i32) -> (String, String) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    (params.not_before, params.not_after) = (date_time_ymd(1999, 1, 1), date_time_ymd(year, 1, 1));
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let list = CertificateRevocationListParams {
        this_update: date_time_ymd(1999, 1, 1),
        next_update: date_time_ymd(year, 1, 1),
        crl_number: 1.into(),
        issuing_distribution_point: None,
        revoked_certs: Vec::new(),
        key_identifier_method: KeyIdMethod::Sha256,
    };
    let list = list.signed_by(&Issuer::new(params, key)).unwrap();
    (certificate.pem(), list.pem().unwrap())
}

fn desk() -> Desk {
    let (certificate, key) = identity();
    let (old, old_key) = of(&["old"], 2001, 2002);
    let (future, future_key) = of(&["future"], 3000, 3001);
    let (nameless, nameless_key) = of(&[], 2020, 3000);
    let ((ca, crl), (other_ca, _)) = (authority(), ends_in("the other", 3000));
    let ((old_ca, _), (_, old_crl)) = (ends_in("ancient", 2001), ends_in("rcgen self signed cert", 2001));
    Desk::new()
        .file("gw.crt", certificate)
        .file("gw.key", key)
        .file("old.crt", old)
        .file("old.key", old_key)
        .file("future.crt", future)
        .file("future.key", future_key)
        .file("nameless.crt", nameless)
        .file("nameless.key", nameless_key)
        .file("ca.pem", &ca)
        .file("both.pem", format!("{ca}{other_ca}"))
        .file("ancient.pem", old_ca)
        .file("crl.pem", crl)
        .file("forged.pem", authority().1)
        .file("ancient.crl", old_crl)
        .file("broken.crl", "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n")
}

fn config(tls: &str) -> String {
    format!(
        "listeners:\n  - address: 127.0.0.1:8443\n    tls: {{ {tls} }}\nagents: {{ a: {{ card: http://a/ }} }}\n"
    )
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn each_of_these_is_one_problem() {
    const PAIR: &str = "certificate: gw.crt, key: gw.key";
    const CA: &str = "client_auth: { mode: required, ca: ca.pem";
    for (tls, expected) in [
        ("certificate: gw.crt".to_owned(), "key: is missing (write the path of a PEM file)"),
        ("key: gw.key".to_owned(), "certificate: is missing (write the path of a PEM file)"),
        ("certificate: gw.crt, key: old.key".to_owned(), "certificate: does not belong to the key beside it"),
        (
            "certificate: future.crt, key: future.key".to_owned(),
            "certificate: certificate 1 is valid only in * days; is the clock right?",
        ),
        ("certificate: old.crt, key: old.key".to_owned(), "certificate: certificate 1 expired * days ago"),
        (
            "certificates: []".to_owned(),
            "certificates: is empty (write a certificate and its key, or remove it)",
        ),
        (
            format!("{PAIR}, certificates: [{{ certificate: nameless.crt, key: nameless.key }}]"),
            "certificates[0].certificate: has no DNS name (subject alternative name), so that no client could ask for it",
        ),
        (format!("{PAIR}, profile: ancient"), "profile: is not one of: modern, intermediate"),
        (
            format!("{PAIR}, client_auth: {{ ca: ca.pem }}"),
            "client_auth.mode: is missing (write required, optional or off)",
        ),
        (
            format!("{PAIR}, client_auth: {{ mode: optional }}"),
            "client_auth.ca: is missing (write the path of a PEM file with the authorities of the clients)",
        ),
        (
            format!("{PAIR}, client_auth: {{ mode: required, ca: [] }}"),
            "client_auth.ca: is an empty list (write the path of a PEM file, or remove it)",
        ),
        (
            format!("{PAIR}, client_auth: {{ mode: required, ca: [ca.pem, none.pem] }}"),
            "client_auth.ca[1]: cannot read none.pem: No such file or directory (os error 2)",
        ),
        (
            format!("{PAIR}, client_auth: {{ mode: required, ca: gw.crt }}"),
            "client_auth.ca: certificate 1 is not an authority's: it may not sign others",
        ),
        (
            format!("{PAIR}, client_auth: {{ mode: required, ca: ancient.pem }}"),
            "client_auth.ca: certificate 1 expired * days ago",
        ),
        (
            format!("{PAIR}, {CA}, crl: gw.crt }}"),
            "client_auth.crl: holds no revocation list in PEM (it begins with -----BEGIN X509 CRL-----)",
        ),
        (
            format!("{PAIR}, {CA}, crl: broken.crl }}"),
            "client_auth.crl: holds a revocation list that cannot be read (number 1)",
        ),
        (
            format!("{PAIR}, {CA}, crl: ancient.crl }}"),
            "client_auth.crl: the revocation list of CN=rcgen self signed cert expired * days ago (get a new one, or set \
             expired_crl: accept)",
        ),
        (
            format!("{PAIR}, {CA}, crl: forged.pem }}"),
            "client_auth.crl: the revocation list of CN=rcgen self signed cert was not signed by the authority of that name in \
             `ca`",
        ),
        (
            format!("{PAIR}, {CA}, crl: [crl.pem, crl.pem] }}"),
            "client_auth.crl: the revocation list of CN=rcgen self signed cert is not the only one: give one list of each \
             authority",
        ),
        (
            format!("{PAIR}, client_auth: {{ mode: required, ca: both.pem, crl: crl.pem }}"),
            "client_auth.crl: has no revocation list of CN=the other, so that every certificate below it would be refused (an \
             empty list will do)",
        ),
    ] {
        let reported = desk().report(&config(&tls));
        let expected = format!("gateway.yaml:3: listeners[0].tls.{expected}");
        let same = match expected.split_once('*') {
            Some((head, tail)) => reported.starts_with(head) && reported.ends_with(tail),
            None => reported == expected,
        };
        assert!(same, "{tls}\n{reported}\n{expected}");
    }
}

#[test]
fn correct_tls_is_accepted() {
    for tls in [
        "certificates: [{ certificate: nameless.crt, key: nameless.key }, { certificate: gw.crt, key: gw.key }]",
        "certificate: gw.crt, key: gw.key, profile: modern, client_auth: { mode: optional, ca: [both.pem, ca.pem] }",
        "certificate: gw.crt, key: gw.key, client_auth: { mode: required, ca: ca.pem, crl: [crl.pem] }",
        "certificate: gw.crt, key: gw.key, client_auth: { mode: 'off', ca: ca.pem }",
    ] {
        let settings = desk().settings(&config(tls));
        let used = settings.listeners[0].tls.as_ref().unwrap();
        assert_eq!(
            used.client_auth.is_none(),
            !tls.contains("mode: optional") && !tls.contains("mode: required")
        );
    }
}
