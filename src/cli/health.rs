//! `health`: asks a running gateway for one of its probes. For health checks of containers: their
//! images have no other HTTP client.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use clap::ValueEnum;
use http::{HeaderMap, Request, StatusCode, Uri};
use tokio::runtime::Builder;
use tokio::time::timeout;

use super::client::TlsArguments;
use super::{ConfigArgument, failed, load_for_stdio, print_line};
use crate::config::{Settings, probe_address};
use crate::telemetry::log::{EscapeStyle, visible};
use crate::tls::install_provider;
use crate::transport::{AddressPolicy, ClientLimits, HttpClient, TargetSettings, TransportError, Upstream};

/// The longest time for the answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum size of the answer, in bytes.
const MAX_ANSWER_BYTES: usize = 64 * 1024;

/// A probe of the gateway.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum Probe {
    /// It is ready for requests.
    Ready,
    /// It has been ready once.
    Started,
    /// Its process answers.
    Live,
}

impl Probe {
    fn path(self) -> &'static str {
        match self {
            Self::Ready => "/readyz",
            Self::Started => "/startupz",
            Self::Live => "/livez",
        }
    }
}

/// Asks at the URL, or at the listener of the configuration. The exit code is 0 if the probe
/// succeeds.
pub(super) fn run(
    url: Option<String>,
    config: &ConfigArgument,
    probe: Probe,
    tls: &TlsArguments,
) -> ExitCode {
    if url.is_none() && tls.is_given() {
        return failed("--ca and --certificate need --url");
    }
    let url = match url {
        Some(url) => url,
        None => match config.find() {
            Ok(found) => match load_for_stdio(&found.path) {
                Ok(settings) => match probe_url(&settings, probe) {
                    Ok(url) => url,
                    Err(problem) => return failed(problem),
                },
                // A file that a reload rejects does not make the process unhealthy.
                Err(code) => match probe_address(&found.path) {
                    Some(address) => format!("http://{}{}", reachable(address), probe.path()),
                    None => return code,
                },
            },
            Err(problem) => return failed(&problem),
        },
    };
    install_provider();
    let Ok(runtime) = Builder::new_current_thread().enable_all().build() else {
        return failed("cannot start a runtime");
    };
    let asked = ask(&url, HeaderMap::new(), tls, MAX_ANSWER_BYTES);
    match runtime.block_on(async { timeout(ANSWER_TIMEOUT, asked).await }) {
        Ok(Ok(answer)) => {
            let body = String::from_utf8_lossy(&answer.body);
            print_line(&visible(body.trim_end(), EscapeStyle::Text));
            if answer.status.is_success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Ok(Err(problem)) => failed(&format!("{url}: {problem}")),
        Err(_) => failed(&format!("{url}: no answer within {} s", ANSWER_TIMEOUT.as_secs())),
    }
}

/// Returns the URL of a probe at the listener of the configuration.
fn probe_url(settings: &Settings, probe: Probe) -> Result<String, &'static str> {
    let address = match (&settings.health, &settings.admin) {
        (Some(health), _) => health.address,
        (None, Some(admin)) if admin.tls.is_none() => admin.address,
        (None, Some(_)) => return Err("the admin listener has TLS: configure health, or give --url"),
        (None, None) => {
            return Err("the configuration has neither health nor admin (add one, or give --url)");
        }
    };
    Ok(format!("http://{}{}", reachable(address), probe.path()))
}

/// Returns the address at which this machine reaches a listener.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// The answer of a gateway to its operator.
pub(super) struct GatewayAnswer {
    pub(super) status: StatusCode,
    pub(super) body: Vec<u8>,
}

/// Sends a GET with these headers, and waits for an answer of at most `limit` bytes.
///
/// # Errors
///
/// The reason for which there is none, as text.
pub(super) fn fetch(
    url: &str,
    headers: HeaderMap,
    tls: &TlsArguments,
    limit: usize,
) -> Result<GatewayAnswer, String> {
    install_provider();
    let runtime = Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())?;
    let asked = runtime.block_on(async { timeout(ANSWER_TIMEOUT, ask(url, headers, tls, limit)).await });
    asked.unwrap_or_else(|_| Err(format!("no answer within {} s", ANSWER_TIMEOUT.as_secs())))
}

async fn ask(
    url: &str,
    headers: HeaderMap,
    tls: &TlsArguments,
    limit: usize,
) -> Result<GatewayAnswer, String> {
    let uri: Uri = url.parse().map_err(|_| "is not a URL (write http:// or https://)".to_owned())?;
    let path = uri.path_and_query().cloned().map(Uri::from).unwrap_or_default();
    let mut settings = TargetSettings::new(uri, AddressPolicy::Trusted);
    if settings.uri.scheme_str() == Some("https") {
        settings.tls = tls.client_config()?;
    }
    let told = |error: TransportError| error.to_string();
    let target = Upstream::new(settings).map_err(told)?;
    let mut request = Request::new(Bytes::new());
    *request.uri_mut() = path;
    *request.headers_mut() = headers;
    let mut response = HttpClient::new(ClientLimits::default()).send(&target, request).await.map_err(told)?;
    let status = response.status();
    let body = response.collect(limit).await.map_err(told)?;
    Ok(GatewayAnswer { status, body: body.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Admin, HealthListener};

    #[test]
    fn probe_asks_health_before_admin() {
        let mut settings = Settings::new(Vec::new());
        assert!(probe_url(&settings, Probe::Ready).is_err());
        settings.admin = Some(Admin::new("0.0.0.0:9090".parse().unwrap()));
        assert_eq!(probe_url(&settings, Probe::Live).unwrap(), "http://127.0.0.1:9090/livez");
        let address = "[::]:9091".parse().unwrap();
        settings.health = Some(HealthListener { address, ..HealthListener::default() });
        assert_eq!(probe_url(&settings, Probe::Ready).unwrap(), "http://[::1]:9091/readyz");
    }
}
