//! Hosts, URLs and origins in the configuration and in cards: one spelling for each address.
//!
//! A problem never quotes a URL: it may contain a password.
//!
//! Resolvers accept `127.1`, `0x7f.1`, `2130706433` and `0177.0.0.1` for 127.0.0.1; a check of
//! hosts by their text would let those pass. So they are refused everywhere. See also
//! `transport::address_policy` for the addresses of a name.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::Uri;
use http::uri::{Authority, Scheme};

use super::forms::checked_text;
use super::resolve::ResolveContext;
use super::yaml::Location;

/// Longest host name, in bytes.
const MAX_HOST_BYTES: usize = 253;

/// A host: an address, or a name that has some.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Host {
    /// Written as an address: nothing to resolve.
    Address(IpAddr),
    /// A name for the resolver: letters, digits, `-`, `_` and `.`.
    Name(String),
}

impl Host {
    /// Reads the host of a URL; an IPv6 address stands in brackets.
    ///
    /// # Errors
    ///
    /// The defect, as the end of a sentence about the host.
    pub(crate) fn read(text: &str) -> Result<Self, &'static str> {
        if let Some(inside) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            let address = inside.parse::<Ipv6Addr>();
            return address
                .map(|address| Self::Address(address.into()))
                .map_err(|_| "is not an IPv6 address (zone ids are not accepted)");
        }
        if let Ok(address) = text.parse::<Ipv4Addr>() {
            return Ok(Self::Address(address.into()));
        }
        // A dot at the end is the root of all names.
        let name = text.strip_suffix('.').unwrap_or(text);
        let fits =
            |label: &str| !label.is_empty() && label.len() <= 63 && label.bytes().all(is_part_of_a_name);
        if text.len() > MAX_HOST_BYTES || !name.split('.').all(fits) {
            return Err("is not a host name (letters, digits, - and _, parted by dots)");
        }
        if name.rsplit('.').next().is_some_and(is_number) {
            return Err("is an odd spelling of an IPv4 address (write it as four decimal numbers)");
        }
        Ok(Self::Name(text.to_owned()))
    }
}

/// Returns true if the host of a URL is one of the usual names of this machine: `localhost`,
/// `127.0.0.1` or `[::1]`.
///
/// Rules that trust the machine itself depend on it, so the rest of 127.0.0.0/8 is not included: it
/// is seldom used, and a container may have given it to another program.
pub(crate) fn is_loopback_host(host: &str) -> bool {
    ["127.0.0.1", "localhost", "[::1]"].iter().any(|known| known.eq_ignore_ascii_case(host))
}

/// Returns scheme, host and port of an absolute URI in lower case; a port that is not written is
/// not added.
pub(crate) fn origin_of(uri: &Uri) -> Option<String> {
    Some(format!("{}://{}", uri.scheme_str()?, uri.authority()?).to_ascii_lowercase())
}

/// Returns the port of an `http` or `https` URI, or the usual one of its scheme.
pub(crate) fn effective_port(uri: &Uri) -> u16 {
    uri.port_u16().unwrap_or(if uri.scheme() == Some(&Scheme::HTTPS) { 443 } else { 80 })
}

fn is_part_of_a_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')
}

/// Returns true if a resolver may take the last part of a name for a number, and so the whole for
/// an address.
fn is_number(label: &str) -> bool {
    let hex = label.strip_prefix("0x").or_else(|| label.strip_prefix("0X"));
    match hex {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => label.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

checked_text!(AllowedHost as "host", any_or_host);
checked_text!(AllowedOrigin as "origin", check_origin);

/// Reads the gateway's own URL, without a slash at its end.
pub(super) fn check_public_url(
    text: &str,
    place: &Location,
    context: &mut ResolveContext<'_>,
) -> Option<String> {
    match web_url(text) {
        Ok(uri) if uri.query().is_some() => {
            context.report_conflict(place, "has a query (write only https://host/path)")
        }
        Ok(_) => Some(text.trim_end_matches('/').to_owned()),
        Err(problem) => context.report_conflict(place, problem),
    }
}

/// Reads an absolute `http` or `https` URL with a host and without a password.
pub(super) fn web_url(text: &str) -> Result<Uri, String> {
    if text.contains("${") {
        return Err("has ${ in it (a reference is written ${env:NAME} or ${file:PATH} here)".to_owned());
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
pub(super) fn check_host(text: &str) -> Result<(), String> {
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
fn any_or_host(text: &str) -> Result<(), String> {
    if text == "*" { Ok(()) } else { check_host(text) }
}

/// Checks the origin of a page: `scheme://host` and perhaps a port; `null` is the value of browsers
/// for a file.
fn check_origin(text: &str) -> Result<(), String> {
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
    fn an_address_has_one_spelling() {
        for (text, address) in
            [("127.0.0.1", "127.0.0.1"), ("[::1]", "::1"), ("[::FFFF:10.0.0.1]", "::ffff:10.0.0.1")]
        {
            assert_eq!(Host::read(text), Ok(Host::Address(address.parse().unwrap())), "{text}");
        }
        for odd in [
            "0x7f.1",
            "0x7f000001",
            "2130706433",
            "0177.0.0.1",
            "127.1",
            "127.0.0.1.",
            "127.0.0.0x1",
            "a.0X",
            "1",
            "::1",
            "[fe80::1%25eth0]",
            "[fe80::1%eth0]",
            "[127.0.0.1]",
            "[::1",
            "%31%32%37.0.0.1",
            "127。0。0。1",
            "a..b",
            ".a",
            "",
            ".",
            "a b",
            "a*b",
        ] {
            assert!(Host::read(odd).is_err(), "{odd}");
        }
    }

    #[test]
    fn loopback_hosts_are_the_usual_names() {
        for (host, expected) in [
            ("localhost", true),
            ("LocalHost", true),
            ("127.0.0.1", true),
            ("[::1]", true),
            ("127.0.0.2", false),
            ("::1", false),
            ("localhost.example", false),
            ("", false),
        ] {
            assert_eq!(is_loopback_host(host), expected, "{host}");
        }
    }

    #[test]
    fn origin_has_one_spelling() {
        let origin = |text: &str| origin_of(&text.parse().unwrap());
        assert_eq!(origin("HTTPS://A.example:8443/x?y").as_deref(), Some("https://a.example:8443"));
        assert_eq!(origin("/x"), None);
        let port = |text: &str| effective_port(&text.parse().unwrap());
        assert_eq!((port("https://a/"), port("http://a/"), port("http://a:7/")), (443, 80, 7));
    }

    #[test]
    fn names_stay_as_they_are() {
        for name in [
            "localhost",
            "a.example",
            "a.example.",
            "A-1_b.x1",
            "0x7f.1.example",
            "xn--e1afmkfd",
            "1a",
            "a.0xg",
        ] {
            assert_eq!(Host::read(name), Ok(Host::Name(name.to_owned())), "{name}");
        }
        assert!(Host::read(&"a.".repeat(130)).is_err());
        assert!(Host::read(&"a".repeat(64)).is_err());
    }

    #[test]
    fn only_whole_web_urls_without_a_password_pass() {
        for good in ["https://a.example/x?y=1", "http://127.0.0.1:9999/", "http://[::1]:80/a", "https://a"] {
            assert!(web_url(good).is_ok(), "{good}");
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
            "${URL}",
            "https://:80/",
            "http://0x7f.1/",
            "http://2130706433:9999/",
            "http://0177.0.0.1/",
            "http://127.0.0.1./",
            "http://[fe80::1%25eth0]/",
        ] {
            assert!(web_url(bad).is_err(), "{bad}");
        }
        assert!(!web_url("https://user:canary@host:x/").unwrap_err().contains("canary"));
    }

    #[test]
    fn hosts_and_origins_have_nothing_around_them() {
        for good in ["a.example", "a.example:8443", "10.0.0.1", "[::1]:80"] {
            assert!(check_host(good).is_ok(), "{good}");
        }
        for bad in ["", "https://a", "a/b", "a@b", "a:x", "a b", "*.example", "127.1", "0x7f000001:80"] {
            assert!(check_host(bad).is_err(), "{bad}");
        }
        for good in ["https://a.example", "http://localhost:6274", "vscode-webview://abc", "null", "*"] {
            assert!(check_origin(good).is_ok(), "{good}");
        }
        for bad in ["", "a.example", "https://a/", "https://a?b", "https://", "https://*.a", "://a"] {
            assert!(check_origin(bad).is_err(), "{bad}");
        }
    }
}
