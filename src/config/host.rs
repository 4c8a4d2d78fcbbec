//! Host syntax of the configuration and of cards: one spelling for each address.
//!
//! Resolvers accept `127.1`, `0x7f.1`, `2130706433` and `0177.0.0.1` for 127.0.0.1; a check of
//! hosts by their text would let those pass. So they are refused everywhere. See also
//! `transport::address_policy` for the addresses of a name.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

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
