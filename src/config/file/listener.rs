//! `listeners` and `admin` as written.

use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::auth::{self, RequireFile};
use super::later;
use crate::config::pem::{self, Holds, PemFile};
use crate::config::place::{Place, Written};
use crate::config::reading::Reading;
use crate::config::{Admin, Faces, Listener, ListenerTls, Mechanism};

/// One address on which the gateway listens for clients.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Listener")]
pub(super) struct ListenerFile {
    /// IP address and port, for example `127.0.0.1:8080`, `0.0.0.0:8443` or `[::]:8443`. Port 0 lets the system choose.
    address: Written<String>,
    /// The certificate to show. Without it the listener speaks plain HTTP.
    #[serde(default)]
    tls: Written<ListenerTlsFile>,
    /// What is served here: `mcp` (`/mcp`, `/mcp/{agent}`), `health` (`/healthz`), `push` (`/push/…`, for agents'
    /// notifications).
    #[serde(default)]
    #[schemars(length(min = 1), extend("default" = ["mcp", "health"]))]
    faces: Written<Vec<Written<FaceFile>>>,
    /// What clients must show here of what is configured under `auth`: `any` of it, `all` of it, or `none` (who shows nothing is
    /// anonymous); or for example `{ any: [certificate, token] }`. What is shown must be good in any case. `/healthz`, `/push`,
    /// well-known documents and `OPTIONS` are free. Without it: `any`, if `auth` configures something.
    #[serde(default)]
    require: Written<RequireFile>,
}

/// The certificate of a listener.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ListenerTls")]
struct ListenerTlsFile {
    /// The certificate, followed by those that lead to its root.
    certificate: Written<PemFile>,
    /// The private key of the certificate.
    key: Written<PemFile>,
    /// Whether clients show a certificate.
    #[serde(default)]
    client_auth: Written<ClientAuthFile>,
}

/// Whether clients show a certificate.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ClientAuth")]
struct ClientAuthFile {
    /// `off` is the only mode of this version.
    #[serde(default)]
    #[schemars(extend("default" = "off"))]
    mode: Written<ClientAuthMode>,
    #[serde(default)]
    #[schemars(skip)]
    ca: Written<IgnoredAny>,
    #[serde(default)]
    #[schemars(skip)]
    crl: Written<IgnoredAny>,
}

#[derive(Deserialize, JsonSchema, PartialEq, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum ClientAuthMode {
    Off,
    #[schemars(skip)]
    Optional,
    #[schemars(skip)]
    Required,
}

/// What a listener can serve.
#[derive(Deserialize, JsonSchema, PartialEq, Clone, Copy)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Face")]
enum FaceFile {
    Mcp,
    Health,
    Push,
    #[schemars(skip)]
    A2a,
}

/// The operator's own listener: health, readiness, metrics, state.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Admin")]
pub(super) struct AdminFile {
    /// IP address and port.
    #[serde(default)]
    #[schemars(extend("default" = "127.0.0.1:9090"))]
    address: Written<String>,
}

impl ListenerFile {
    /// The listener, with the place of its address.
    pub(super) fn resolve(
        self,
        section: &Place,
        mechanisms: &[Mechanism],
        reading: &mut Reading<'_>,
    ) -> Option<(Place, Listener)> {
        let require = auth::require(self.require, mechanisms, reading);
        let tls = self.tls.take().and_then(|(place, tls)| tls.resolve(&place, reading));
        let faces = faces(self.faces, reading);
        let hint = "write an IP address and a port, such as 127.0.0.1:8080";
        let (place, written) = reading.required(self.address, section, "address", hint)?;
        let address = address(&written, &place, reading)?;
        Some((place, Listener { address, tls, faces, require }))
    }
}

impl ListenerTlsFile {
    fn resolve(self, section: &Place, reading: &mut Reading<'_>) -> Option<ListenerTls> {
        if let Some((place, client_auth)) = self.client_auth.take() {
            client_auth.refuse(&place, reading);
        }
        for (key, written) in [("certificate", &self.certificate), ("key", &self.key)] {
            if written.place().is_none() {
                reading.problem(&section.below(key), "is missing (write the path of a PEM file)");
            }
        }
        let certificate = pem::resolve(self.certificate, Holds::Certificates, reading);
        let key = pem::resolve(self.key, Holds::Key, reading);
        let (certificate, key) = pem::pair(certificate, key, reading)?;
        Some(ListenerTls { certificate, key })
    }
}

impl ClientAuthFile {
    fn refuse(self, section: &Place, reading: &mut Reading<'_>) {
        later(&self.ca, reading);
        later(&self.crl, reading);
        let place = self.mode.place().cloned().unwrap_or_else(|| section.below("mode"));
        if self.mode.value().is_some_and(|mode| mode != ClientAuthMode::Off) {
            reading.problem(&place, "a mode other than off comes with a later version");
        }
    }
}

impl AdminFile {
    /// The admin listener, with the place of its address.
    pub(super) fn resolve(self, section: &Place, reading: &mut Reading<'_>) -> (Place, Admin) {
        let Some((place, written)) = self.address.take() else { return (section.clone(), Admin::default()) };
        let admin =
            address(&written, &place, reading).map_or_else(Admin::default, |address| Admin { address });
        (place, admin)
    }
}

fn address(written: &str, place: &Place, reading: &mut Reading<'_>) -> Option<SocketAddr> {
    if let Ok(address) = written.parse() {
        return Some(address);
    }
    let hint = match written.rsplit_once(':') {
        Some(("", port)) => {
            format!("0.0.0.0:{port} for every address, 127.0.0.1:{port} for this machine only")
        }
        Some(("localhost", port)) => format!("127.0.0.1:{port}"),
        Some(_) | None => "such as 127.0.0.1:8080 or [::1]:8080".to_owned(),
    };
    reading.refuse(place, format!("is not an IP address and a port (write {hint})"))
}

fn faces(written: Written<Vec<Written<FaceFile>>>, reading: &mut Reading<'_>) -> Faces {
    let Some((place, list)) = written.take() else { return Faces::default() };
    if list.is_empty() {
        reading.problem(&place, "is empty (write [mcp, health])");
    }
    let mut faces = Faces { mcp: false, health: false, push: false };
    for (place, face) in list.into_iter().filter_map(Written::take) {
        match face {
            FaceFile::Mcp => faces.mcp = true,
            FaceFile::Health => faces.health = true,
            FaceFile::Push => faces.push = true,
            FaceFile::A2a => reading.problem(&place, "the face a2a comes with a later version"),
        }
    }
    faces
}
