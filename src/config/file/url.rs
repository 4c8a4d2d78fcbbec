//! URLs, hosts and origins in the configuration.
//!
//! A problem never quotes a URL: it may carry a password.

use http::Uri;
use http::uri::Authority;

use crate::config::Host;
use crate::config::resolve::ResolveContext;
use crate::config::spanned::Location;

/// Reads the gateway's own URL, without a slash at its end.
pub(super) fn public(text: &str, place: &Location, reading: &mut ResolveContext<'_>) -> Option<String> {
    match web(text) {
        Ok(uri) if uri.query().is_some() => {
            reading.report_conflict(place, "has a query (write only https://host/path)")
        }
        Ok(_) => Some(text.trim_end_matches('/').to_owned()),
        Err(problem) => reading.report_conflict(place, problem),
    }
}

/// Reads an absolute `http` or `https` URL with a host and without a password.
pub(super) fn web(text: &str) -> Result<Uri, String> {
    if text.contains("${") {
        return Err("references such as ${env:NAME} are not accepted here (write the URL itself)".to_owned());
    }
    if text.contains('#') {
        return Err("has a fragment (remove the part from # on)".to_owned());
    }
    let uri: Uri =
        text.parse().map_err(|error| format!("is not a URL: {error} (write https://host/path)"))?;
    match uri.scheme_str() {
        Some("http" | "https") => {}
        Some(other) => return Err(format!("has the scheme {other} (write http or https)")),
        None => return Err("is not a whole URL (write https://host/path)".to_owned()),
    }
    let authority = uri.authority().ok_or("has no host (write https://host/path)")?;
    if authority.as_str().contains('@') {
        return Err("has a user name or a password in it (write credentials under `headers`)".to_owned());
    }
    check_port(authority)?;
    Host::read(authority.host())?;
    Ok(uri)
}

/// Checks `host` or `host:port`, without anything else.
pub(super) fn host(text: &str) -> Result<(), String> {
    let hint = "(write host or host:port, such as agents.example.com)";
    if text.contains("://") || text.contains('/') {
        return Err(format!("is a URL, not a host {hint}"));
    }
    let authority: Authority = text.parse().map_err(|_| format!("is not a host {hint}"))?;
    if authority.as_str().contains('@') || text.contains('*') {
        return Err(format!("is not a host {hint}"));
    }
    check_port(&authority)?;
    Host::read(authority.host()).map(drop).map_err(str::to_owned)
}

/// Checks a host, or `*` for any.
pub(super) fn any_or_host(text: &str) -> Result<(), String> {
    if text == "*" { Ok(()) } else { host(text) }
}

/// Checks the origin of a page: `scheme://host` and perhaps a port; `null` is the value of browsers
/// for a file.
pub(super) fn origin(text: &str) -> Result<(), String> {
    let hint = "(write scheme://host or scheme://host:port, without a slash at the end)";
    if matches!(text, "*" | "null") {
        return Ok(());
    }
    let (scheme, authority) = text.split_once("://").ok_or_else(|| format!("is not an origin {hint}"))?;
    let named = scheme.bytes().all(|each| each.is_ascii_alphanumeric() || b"+-.".contains(&each));
    if scheme.is_empty() || !named || authority.contains(['/', '?', '#', '@', '*']) {
        return Err(format!("is not an origin {hint}"));
    }
    let authority: Authority = authority.parse().map_err(|_| format!("is not an origin {hint}"))?;
    check_port(&authority)
}

/// Checks the port: the parser of `http` ignores ports that are not numbers.
fn check_port(authority: &Authority) -> Result<(), String> {
    if authority.host().is_empty() {
        return Err("has no host".to_owned());
    }
    let port =
        authority.as_str().rsplit_once(']').map_or(authority.as_str(), |(_, tail)| tail).split_once(':');
    match port {
        Some((_, port)) if port.parse::<u16>().is_err() => Err("has a port that is no port".to_owned()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_web_urls_without_a_password_pass() {
        for good in ["https://a.example/x?y=1", "http://127.0.0.1:9999/", "http://[::1]:80/a", "https://a"] {
            assert!(web(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "a.example",
            "/path",
            "ftp://a/",
            "https://",
            "https://u:p@a/",
            "https://a:99999/",
            "https://a/#b",
            "https://a b/",
            "https://a:/",
            "${env:URL}",
            "https://:80/",
            "http://0x7f.1/",
            "http://2130706433:9999/",
            "http://0177.0.0.1/",
            "http://127.0.0.1./",
            "http://[fe80::1%25eth0]/",
        ] {
            assert!(web(bad).is_err(), "{bad}");
        }
        assert!(!web("https://user:canary@host:x/").unwrap_err().contains("canary"));
    }

    #[test]
    fn hosts_and_origins_have_nothing_around_them() {
        for good in ["a.example", "a.example:8443", "10.0.0.1", "[::1]:80"] {
            assert!(host(good).is_ok(), "{good}");
        }
        for bad in ["", "https://a", "a/b", "a@b", "a:x", "a b", "*.example", "127.1", "0x7f000001:80"] {
            assert!(host(bad).is_err(), "{bad}");
        }
        for good in ["https://a.example", "http://localhost:6274", "vscode-webview://abc", "null", "*"] {
            assert!(origin(good).is_ok(), "{good}");
        }
        for bad in ["", "a.example", "https://a/", "https://a?b", "https://", "https://*.a", "://a"] {
            assert!(origin(bad).is_err(), "{bad}");
        }
    }
}
