//! Host syntax of the configuration and of cards: one spelling for each address.
//!
//! Resolvers accept `127.1`, `0x7f.1`, `2130706433` and `0177.0.0.1` for 127.0.0.1; a check of
//! hosts by their text would let those pass. So they are refused everywhere. See also
//! `transport::address_policy` for the addresses of a name.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::Uri;
use http::uri::Scheme;

/// Longest host name, in bytes.
const MAX_HOST_BYTES: usize = 253;

/// A host: an address, or a name that has some.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host {
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
    pub fn read(text: &str) -> Result<Self, &'static str> {
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
}
