//! `listeners` and `admin` as in the file.

use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::Deserialize;

use super::auth::{self, RequireFile};
use super::gateway::checked;
use super::tls::ListenerTlsFile;
use super::url;
use crate::config::resolve::ResolveContext;
use crate::config::spanned::{Location, Spanned};
use crate::config::{Admin, Listener, Mechanism, RequireRule, Services};

/// One address on which the gateway listens for clients.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Listener")]
pub(super) struct ListenerFile {
    /// IP address and port, for example `127.0.0.1:8080`, `0.0.0.0:8443` or `[::]:8443`. Port 0 lets the system choose.
    address: Spanned<String>,
    /// How TLS is spoken. Without it the listener speaks plain HTTP.
    #[serde(default)]
    tls: Spanned<ListenerTlsFile>,
    /// Services of this listener: `mcp` (`/mcp`, `/mcp/{agent}`), `a2a` (`/a2a/{agent}`: the agents, for A2A clients), `health`
    /// (`/healthz`), `push` (`/push/…`, for agents' notifications).
    #[serde(default)]
    #[schemars(length(min = 1), extend("default" = ["mcp", "health"]))]
    serve: Spanned<Vec<Spanned<ServiceFile>>>,
    /// What clients must show here of what is configured under `auth`: `any` of it, `all` of it, or `none` (who shows nothing is
    /// anonymous); or for example `{ any: [certificate, token] }`. What is shown must be good in any case. `/healthz`, `/push`,
    /// well-known documents and `OPTIONS` are free. Without it: `any`, if `auth` configures something.
    #[serde(default)]
    require: Spanned<RequireFile>,
}

/// A service of a listener.
#[derive(Deserialize, JsonSchema, PartialEq, Clone, Copy)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Service")]
enum ServiceFile {
    Mcp,
    A2a,
    Health,
    Push,
}

/// The operator's own listener: health, readiness, metrics, state.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Admin")]
pub(super) struct AdminFile {
    /// IP address and port.
    #[serde(default)]
    #[schemars(extend("default" = "127.0.0.1:9090"))]
    address: Spanned<String>,
    /// Hosts (`name` or `name:port`) in `Host` that are let in besides loopback names and IP
    /// addresses, for those who scrape by name; `*` is any.
    #[serde(default)]
    #[schemars(extend("default" = []))]
    allowed_hosts: Spanned<Vec<Spanned<String>>>,
}

impl ListenerFile {
    /// Returns the listener, with the location of its address.
    pub(super) fn resolve(
        self,
        section: &Location,
        mechanisms: &[Mechanism],
        reading: &mut ResolveContext<'_>,
    ) -> Option<(Location, Listener)> {
        let tls = self.tls.take().and_then(|(place, tls)| tls.resolve(&place, reading));
        let serve = services(self.serve, reading);
        let shows_certificates = tls.as_ref().is_some_and(|tls| tls.client_auth.is_some());
        let place = self.require.place().unwrap_or(section).clone();
        let require = auth::require(self.require, (mechanisms, shows_certificates), reading);
        if require.rule != RequireRule::None && require.of.is_empty() && (serve.mcp || serve.a2a) {
            let hint = "(add tls.client_auth, or write require: none)";
            reading.problem(&place, format!("nothing that auth configures can be shown here {hint}"));
        }
        let hint = "write an IP address and a port, such as 127.0.0.1:8080";
        let (place, written) = reading.required(self.address, section, "address", hint)?;
        let address = address(&written, &place, reading)?;
        Some((place, Listener { address, tls, serve, require }))
    }
}

impl AdminFile {
    /// Returns the admin listener, with the location of its address.
    pub(super) fn resolve(self, section: &Location, reading: &mut ResolveContext<'_>) -> (Location, Admin) {
        let allowed_hosts = checked(self.allowed_hosts, url::any_or_host, reading).unwrap_or_default();
        let Some((place, written)) = self.address.take() else {
            return (section.clone(), Admin { allowed_hosts, ..Admin::default() });
        };
        let admin = address(&written, &place, reading).map_or_else(Admin::default, Admin::new);
        (place, Admin { allowed_hosts, ..admin })
    }
}

fn address(written: &str, place: &Location, reading: &mut ResolveContext<'_>) -> Option<SocketAddr> {
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
    reading.report_conflict(place, format!("is not an IP address and a port (write {hint})"))
}

fn services(written: Spanned<Vec<Spanned<ServiceFile>>>, reading: &mut ResolveContext<'_>) -> Services {
    let Some((place, list)) = written.take() else { return Services::default() };
    if list.is_empty() {
        reading.problem(&place, "is empty (write [mcp, health])");
    }
    let mut services = Services { mcp: false, a2a: false, health: false, push: false };
    for (_, service) in list.into_iter().filter_map(Spanned::take) {
        match service {
            ServiceFile::Mcp => services.mcp = true,
            ServiceFile::Health => services.health = true,
            ServiceFile::Push => services.push = true,
            ServiceFile::A2a => services.a2a = true,
        }
    }
    services
}
