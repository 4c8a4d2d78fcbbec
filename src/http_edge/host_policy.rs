//! Host policy: checks `Host` and `Origin` against DNS rebinding and foreign web pages, sets the
//! CORS headers, and checks that the connection was made for this host.
//!
//! On by default, as MCP demands. An absent `Origin` is allowed: only browsers send one.

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS, HOST, HeaderName,
    ORIGIN, VARY,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Uri};
use std::net::{IpAddr, Ipv6Addr};
use std::time::SystemTime;

use super::connection::ClientConnection;
use crate::config::{Settings, is_loopback_host, origin_of};
use crate::fault::Fault;

/// Host names of the gateway, and the origins that may use it.
#[derive(Debug)]
pub(crate) struct HostPolicy {
    hosts: Vec<String>,
    origins: Vec<String>,
}

impl HostPolicy {
    pub(crate) fn new(settings: &Settings) -> Self {
        let public = settings.public_url.as_deref().and_then(|url| url.parse::<Uri>().ok());
        let public_host = public.as_ref().and_then(|uri| uri.host()).map(str::to_ascii_lowercase);
        let lower = |all: &[String]| all.iter().map(|text| text.to_ascii_lowercase()).collect::<Vec<_>>();
        let mut hosts = lower(&settings.mcp.allowed_hosts);
        hosts.extend(public_host);
        hosts.extend(settings.agents.iter().filter_map(|agent| agent.a2a_host.clone()));
        let mut origins = lower(&settings.mcp.allowed_origins);
        origins.extend(public.as_ref().and_then(origin_of));
        Self { hosts, origins }
    }

    /// Checks `Host` and `Origin` of a request.
    ///
    /// # Errors
    ///
    /// [`Fault::HostRefused`] or [`Fault::OriginRefused`].
    pub(crate) fn check(&self, request: &Parts) -> Result<(), Fault> {
        self.check_host(request)?;
        match origin(&request.headers) {
            Ok(None) => Ok(()),
            Ok(Some(origin)) if self.allows_origin(origin) => Ok(()),
            Ok(Some(origin)) => Err(Fault::OriginRefused(capped(origin))),
            Err(fault) => Err(fault),
        }
    }

    /// Checks only `Host` of a request. Enough for agents: they are not browsers.
    ///
    /// # Errors
    ///
    /// [`Fault::HostRefused`].
    pub(crate) fn check_host(&self, request: &Parts) -> Result<(), Fault> {
        check_host(request, &self.hosts)
    }

    fn allows_origin(&self, origin: &str) -> bool {
        let lower = origin.to_ascii_lowercase();
        if self.origins.iter().any(|known| known == "*" || *known == lower) {
            return true;
        }
        let uri = lower.parse::<Uri>().ok();
        let web = uri.as_ref().filter(|uri| matches!(uri.scheme_str(), Some("http" | "https")));
        web.and_then(|uri| uri.host()).is_some_and(is_loopback_host)
    }
}

/// Accepts a request for a loopback name, an IP address or one of these hosts (`name`, `name:port`,
/// `*`).
///
/// # Errors
///
/// [`Fault::HostRefused`].
pub(crate) fn check_host(request: &Parts, hosts: &[String]) -> Result<(), Fault> {
    let written = host(request).map_err(|odd| Fault::HostRefused(odd.to_owned()))?;
    let host = without_port(written).ok_or_else(|| Fault::HostRefused(capped(written)))?;
    // An entry with a port means that port only.
    let is_listed = |known: &String| {
        known == "*" || known.eq_ignore_ascii_case(host) || known.eq_ignore_ascii_case(written)
    };
    if !is_loopback_name(host) && !hosts.iter().any(is_listed) {
        return Err(Fault::HostRefused(capped(host)));
    }
    Ok(())
}

/// Returns the CORS headers of a response to a request that [`HostPolicy::check`] accepted.
pub(crate) fn cors(request: &Parts) -> Vec<(HeaderName, HeaderValue)> {
    let Some(origin) = request.headers.get(ORIGIN) else { return Vec::new() };
    vec![
        (ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone()),
        (
            ACCESS_CONTROL_EXPOSE_HEADERS,
            HeaderValue::from_static(
                "mcp-session-id, mcp-protocol-version, www-authenticate, retry-after, etag, a2a-version, a2a-extensions, x-a2a-extensions",
            ),
        ),
        (VARY, HeaderValue::from_static("origin")),
    ]
}

/// Returns the headers that a preflight gets besides those of [`cors`].
///
/// Allows the header names that the browser asks for, so that the API key and trace headers of any
/// client pass: the origin was checked before, and a header name says nothing about rights.
pub(crate) fn preflight(request: &Parts) -> Vec<(HeaderName, HeaderValue)> {
    const METHODS: &str = "POST, GET, DELETE, OPTIONS";
    let allowed = requested_headers(request).unwrap_or(HeaderValue::from_static(USUAL_HEADERS));
    vec![
        (ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(METHODS)),
        (ACCESS_CONTROL_ALLOW_HEADERS, allowed),
        (ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("3600")),
        (VARY, HeaderValue::from_static("access-control-request-headers")),
    ]
}

/// Header names that a preflight allows if the browser asks for none, or for too many.
const USUAL_HEADERS: &str = "content-type, authorization, accept, mcp-protocol-version, \
                             mcp-session-id, mcp-method, mcp-name, last-event-id, a2a-version, \
                             a2a-extensions, x-a2a-extensions, x-api-key, traceparent, tracestate";
/// Most bytes of header names that a preflight repeats.
const MAX_REQUESTED_BYTES: usize = 4096;
/// Most header names that a preflight repeats.
const MAX_REQUESTED_NAMES: usize = 64;

/// Returns the header names that a preflight asks for, if they are few and well formed.
fn requested_headers(request: &Parts) -> Option<HeaderValue> {
    let mut values = request.headers.get_all(ACCESS_CONTROL_REQUEST_HEADERS).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    let written = value.to_str().ok().filter(|written| written.len() <= MAX_REQUESTED_BYTES)?;
    let is_name = |name: &str| name.trim().parse::<HeaderName>().is_ok();
    let fits = written.split(',').count() <= MAX_REQUESTED_NAMES && written.split(',').all(is_name);
    fits.then(|| value.clone())
}

/// Returns the host of a request without its port, if it is well formed.
fn host_of(request: &Parts) -> Option<&str> {
    host(request).ok().and_then(without_port)
}

/// URL of the gateway for its clients.
#[derive(Debug, Clone)]
pub(crate) struct PublicUrl(Option<String>);

impl PublicUrl {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self(settings.public_url.as_deref().map(|url| url.trim_end_matches('/').to_owned()))
    }

    /// Returns the configured URL, without a slash at its end.
    pub(crate) fn configured(&self) -> Option<&str> {
        self.0.as_deref()
    }

    /// Returns the URL for the client of this request, without a slash at its end: the configured
    /// one, else the one that the client used.
    pub(crate) fn for_client(&self, http: &impl ClientConnection) -> String {
        if let Some(public) = &self.0 {
            return public.clone();
        }
        // The host policy has accepted the host.
        let authority = host(http.head()).unwrap_or_default();
        format!("{}://{authority}", if http.is_tls() { "https" } else { "http" })
    }
}

/// Returns the authority of a request, from `Host` or from `:authority` on HTTP/2, or the reason
/// for which it is not usable.
fn host(request: &Parts) -> Result<&str, &'static str> {
    let mut values = request.headers.get_all(HOST).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().map(str::trim).map_err(|_| "(not ASCII)"),
        (None, _) => request.uri.authority().map(http::uri::Authority::as_str).ok_or("(none)"),
        (Some(_), Some(_)) => Err("(twice)"),
    }
}

/// Returns the authority of a request, which the host policy has accepted.
pub(crate) fn authority(request: &Parts) -> &str {
    host(request).unwrap_or_default()
}

/// Returns the host of an authority, if that is a name or an address with an optional port.
fn without_port(authority: &str) -> Option<&str> {
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port),
        _ => (authority, ""),
    };
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let fits = match inner {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.bytes().all(is_name),
    };
    (fits && port.bytes().all(|byte| byte.is_ascii_digit())).then_some(host)
}

fn origin(headers: &HeaderMap) -> Result<Option<&str>, Fault> {
    let mut values = headers.get_all(ORIGIN).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => {
            value.to_str().map(Some).map_err(|_| Fault::OriginRefused("(not ASCII)".into()))
        }
        (Some(_), Some(_)) => Err(Fault::OriginRefused("(twice)".into())),
    }
}

/// Returns true for a loopback name or an IP address: rebinding needs another name.
fn is_loopback_name(host: &str) -> bool {
    is_loopback_host(host) || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok()
}

fn capped(text: &str) -> String {
    text.chars().take(100).collect()
}

/// Rejects a request if the client's certificate has expired since the handshake, or if the request
/// is for a host with another server certificate than the connection has.
///
/// # Errors
///
/// [`Fault::CertificateNoLongerValid`] or [`Fault::Misdirected`].
pub(crate) fn check_certificate(http: &impl ClientConnection) -> Result<(), Fault> {
    let Some(handshake) = http.tls() else { return Ok(()) };
    if let Some(certificate) = &handshake.certificate
        && !certificate.is_valid(SystemTime::now())
    {
        return Err(Fault::CertificateNoLongerValid);
    }
    match host_of(http.head()) {
        Some(host) if !(handshake.is_for)(host) => Err(Fault::Misdirected),
        // A malformed host is rejected later.
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate() -> HostPolicy {
        let mut settings = Settings::new(Vec::new());
        settings.public_url = Some("https://gw.example.com/base".into());
        settings.mcp.allowed_origins = vec!["vscode-webview://abc".into()];
        settings.mcp.allowed_hosts = vec!["gateway.internal".into(), "inside.example:8443".into()];
        HostPolicy::new(&settings)
    }

    fn asked(host: &str, origin: Option<&str>) -> Result<(), Fault> {
        let mut request = pingora::http::RequestHeader::build("POST", b"/mcp", None).unwrap();
        request.insert_header("host", host).unwrap();
        if let Some(origin) = origin {
            request.insert_header("origin", origin).unwrap();
        }
        gate().check(&request)
    }

    #[test]
    fn own_names_and_addresses_are_served() {
        for host in [
            "localhost:8080",
            "127.0.0.1",
            "[::1]:80",
            "10.1.2.3:9",
            "GW.example.com",
            "gateway.internal:1",
            "inside.example:8443",
        ] {
            assert!(asked(host, None).is_ok(), "{host}");
        }
    }

    #[test]
    fn foreign_names_are_refused() {
        for host in [
            "evil.example.com",
            "localhost.evil",
            "inside.example",
            "inside.example:1",
            "gw.example.com.evil",
            "",
            "a b",
        ] {
            assert!(matches!(asked(host, None), Err(Fault::HostRefused(_))), "{host}");
        }
    }

    #[test]
    fn origins_are_compared_whole() {
        for (origin, allowed) in [
            ("http://localhost:3000", true),
            ("https://127.0.0.1", true),
            ("https://gw.example.com", true),
            ("vscode-webview://abc", true),
            ("http://localhost.evil", false),
            ("https://evil.example.com", false),
            ("null", false),
            ("vscode-webview://abcd", false),
            ("https://gw.example.com:444", false),
        ] {
            assert_eq!(asked("localhost", Some(origin)).is_ok(), allowed, "{origin}");
        }
    }

    #[test]
    fn agents_need_only_the_right_host() {
        for (host, allowed) in [("gw.example.com", true), ("10.1.2.3:9", true), ("evil.example.com", false)] {
            let mut request = pingora::http::RequestHeader::build("POST", b"/push/x", None).unwrap();
            request.insert_header("host", host).unwrap();
            request.insert_header("origin", "https://evil.example.com").unwrap();
            assert_eq!(gate().check_host(&request).is_ok(), allowed, "{host}");
        }
    }

    #[test]
    fn a_header_twice_is_refused() {
        let mut request = pingora::http::RequestHeader::build("POST", b"/mcp", None).unwrap();
        request.append_header("host", "localhost").unwrap();
        assert!(gate().check(&request).is_ok());
        request.append_header("origin", "http://localhost").unwrap();
        request.append_header("origin", "http://localhost").unwrap();
        assert!(matches!(gate().check(&request), Err(Fault::OriginRefused(_))));
        request.append_header("host", "localhost").unwrap();
        assert!(matches!(gate().check(&request), Err(Fault::HostRefused(_))));
    }
}
