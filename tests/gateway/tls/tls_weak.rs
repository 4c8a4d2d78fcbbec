//! Client certificates that are too weak to prove anything. Made, and shown, by the openssl
//! command, as the library that the other tests use refuses to make them.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::kit::tls_scene::{listen, tls_outcome};
use crate::support::{Authority, TestGateway};

fn openssl(folder: &Path, arguments: &str) {
    let mut command = Command::new("openssl");
    let made = command.args(arguments.split(' ')).current_dir(folder).stderr(Stdio::null()).status();
    assert!(made.expect("the openssl command is there").success(), "openssl {arguments}");
}

/// The certificate `NAME.crt`, of `ca.pem`, for a key of this kind, signed over this digest.
fn certificate(folder: &Path, name: &str, key: &str, digest: &str) {
    openssl(
        folder,
        &format!("req -new -newkey {key} -nodes -subj /CN={name} -keyout {name}.key -out {name}.csr"),
    );
    openssl(
        folder,
        &format!(
            "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -{digest} -extfile client.ext -out {name}.crt"
        ),
    );
}

/// Whether a client that shows this certificate, and that minds no weakness itself, is served.
async fn is_served(gateway: &TestGateway, name: &'static str, version: &'static str) -> bool {
    let (folder, port) = (gateway.ports().directory.clone(), gateway.ports().other);
    let ask = move || {
        let mut client = Command::new("openssl")
            .args(["s_client", "-quiet", "-cipher", "ALL@SECLEVEL=0", version, "-connect"])
            .arg(format!("127.0.0.1:{port}"))
            .args(["-cert", &format!("{name}.crt"), "-key", &format!("{name}.key")])
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        // Fails where the gateway has hung up before.
        std::io::Write::write_all(client.stdin.as_mut().unwrap(), request).unwrap_or_default();
        String::from_utf8_lossy(&client.wait_with_output().unwrap().stdout).starts_with("HTTP/1.1 200")
    };
    let asked = tokio::task::spawn_blocking(ask);
    crate::support::in_time("the client to end", asked).await.unwrap()
}

#[tokio::test]
async fn weak_certificates_are_refused() {
    let ours = Authority::new("servers");
    let gateway = TestGateway::start(|ports| {
        let folder = &ports.directory;
        std::fs::write(folder.join("client.ext"), "extendedKeyUsage = clientAuth\n").unwrap();
        openssl(
            folder,
            "req -x509 -newkey rsa:2048 -nodes -subj /CN=clients -days 2 -keyout ca.key -out ca.pem",
        );
        for (name, key, digest) in
            [("good", "rsa:2048", "sha256"), ("short", "rsa:1024", "sha256"), ("old", "rsa:2048", "sha1")]
        {
            certificate(folder, name, key, digest);
        }
        listen(&ours, &[], "client_auth: { mode: required, ca: ca.pem }", ports)
    })
    .await;
    for version in ["-tls1_2", "-tls1_3"] {
        assert!(is_served(&gateway, "good", version).await, "{version}");
        for weak in ["short", "old"] {
            let before = tls_outcome(&gateway, "ok").await;
            assert!(!is_served(&gateway, weak, version).await, "{weak} {version}");
            assert_eq!(
                tls_outcome(&gateway, "ok").await,
                before,
                "{weak} {version}: no handshake came about"
            );
        }
    }
}
