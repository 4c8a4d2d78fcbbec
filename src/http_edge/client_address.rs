//! The address of a client behind proxies, and the id of its request.
//!
//! A header counts only if a trusted proxy sent it. Each proxy adds the address that it was called
//! from, so the list is read from its end: the first address that is not of a trusted proxy is the
//! client. What comes before was written by the client, who may write anything.

use std::net::{IpAddr, SocketAddr};

use http::HeaderMap;
use http::header::{FORWARDED, HeaderName, HeaderValue};

use crate::config::{AddressHeader, TrustedProxies};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// The header with the id of a request.
pub(crate) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The maximum number of proxies that are read.
const MAX_HOPS: usize = 32;
/// The maximum length of the id of a request.
const MAX_REQUEST_ID: usize = 128;

/// Returns the address of the client of a request that came from `peer`.
pub(crate) fn client_address(headers: &HeaderMap, peer: IpAddr, proxies: &TrustedProxies) -> IpAddr {
    let mut client = peer.to_canonical();
    let mut hops = match proxies.header {
        AddressHeader::XForwardedFor => hops(headers, &X_FORWARDED_FOR, forwarded_addresses),
        AddressHeader::Forwarded => hops(headers, &FORWARDED, forwarded_elements),
    };
    while proxies.contains(client) {
        // An entry that cannot be read hides all before it: the last known address counts.
        let Some(Some(hop)) = hops.next() else { break };
        client = hop;
    }
    client
}

/// Returns the entries of a header, the last first; `None` for one that is no address. `read` gives
/// those of one line, in their order.
fn hops<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
    read: fn(&str) -> Vec<Option<IpAddr>>,
) -> Box<dyn Iterator<Item = Option<IpAddr>> + 'a> {
    let lines = headers.get_all(name).iter().rev();
    let entries =
        lines.flat_map(move |line| line.to_str().map_or_else(|_| vec![None], read).into_iter().rev());
    Box::new(entries.take(MAX_HOPS))
}

/// Reads a line of `X-Forwarded-For`, which knows no quoted strings.
fn forwarded_addresses(line: &str) -> Vec<Option<IpAddr>> {
    line.split(',').map(address).collect()
}

/// Reads a line of `Forwarded`. A quoted string without an end, which only the client can have begun,
/// would hide what the proxy added to the line: such a line is one unreadable entry.
fn forwarded_elements(line: &str) -> Vec<Option<IpAddr>> {
    split_quoted(line, ',').map_or_else(|| vec![None], |all| all.into_iter().map(forwarded_for).collect())
}

/// Splits a text at a separator outside of quoted strings; `None` if one of them has no end.
fn split_quoted(text: &str, separator: char) -> Option<Vec<&str>> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    let parts = text.split(|character: char| {
        let is_end = character == separator && !is_quoted;
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            _ => {}
        }
        is_end
    });
    let parts = parts.collect();
    (!is_quoted).then_some(parts)
}

/// Parses an address with or without a port: `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`,
/// `[2001:db8::1]:80`.
fn address(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let parsed = bare.parse::<IpAddr>().ok().or_else(|| Some(text.parse::<SocketAddr>().ok()?.ip()));
    parsed.map(|address| address.to_canonical())
}

/// Returns the address in an element of `Forwarded` (RFC 7239 §4); `None` if it hides it.
fn forwarded_for(element: &str) -> Option<IpAddr> {
    let mut parameters = split_quoted(element, ';')?.into_iter().filter_map(|pair| pair.split_once('='));
    let (_, node) = parameters.find(|(name, _)| name.trim().eq_ignore_ascii_case("for"))?;
    let node = node.trim();
    let node = node.strip_prefix('"').and_then(|node| node.strip_suffix('"')).unwrap_or(node);
    // An address needs no escapes.
    address(node)
}

/// Returns the id that a trusted proxy gave the request.
pub(crate) fn given_request_id<'h>(
    headers: &'h HeaderMap,
    peer: Option<IpAddr>,
    proxies: &TrustedProxies,
) -> Option<&'h HeaderValue> {
    peer.filter(|peer| proxies.contains(*peer))?;
    let mut ids = headers.get_all(X_REQUEST_ID).iter();
    let (Some(id), None) = (ids.next(), ids.next()) else { return None };
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.~:+/=".contains(byte);
    let is_id = (1..=MAX_REQUEST_ID).contains(&id.len()) && id.as_bytes().iter().all(is_part);
    is_id.then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(header: AddressHeader, lines: &[&str], peer: &str) -> String {
        let networks = ["10.0.0.0/8", "fd00::/8"].map(|network| network.parse().unwrap()).to_vec();
        let proxies = TrustedProxies { networks, header, proxy_protocol: false };
        let mut headers = HeaderMap::new();
        for line in lines {
            let name = if header == AddressHeader::Forwarded { FORWARDED } else { X_FORWARDED_FOR };
            headers.append(name, line.parse().unwrap());
        }
        client_address(&headers, peer.parse().unwrap(), &proxies).to_string()
    }

    #[test]
    fn last_untrusted_address_is_client() {
        for (lines, peer, client) in [
            (&["192.0.2.1"][..], "10.0.0.1", "192.0.2.1"),
            (&["192.0.2.1"], "198.51.100.1", "198.51.100.1"),
            (&["203.0.113.9, 192.0.2.1"], "10.0.0.1", "192.0.2.1"),
            (&["203.0.113.9", "192.0.2.1, 10.1.1.1"], "10.0.0.1", "192.0.2.1"),
            (&["10.2.2.2, 10.1.1.1"], "10.0.0.1", "10.2.2.2"),
            (&["192.0.2.1, unknown, 10.1.1.1"], "10.0.0.1", "10.1.1.1"),
            (&["192.0.2.1:4711"], "10.0.0.1", "192.0.2.1"),
            (&["[2001:db8::1]:80"], "fd00::1", "2001:db8::1"),
            (&["2001:db8::1"], "::ffff:10.0.0.1", "2001:db8::1"),
            (&["::ffff:192.0.2.1"], "10.0.0.1", "192.0.2.1"),
            (&["\", 192.0.2.1"], "10.0.0.1", "192.0.2.1"),
            (&[""], "10.0.0.1", "10.0.0.1"),
            (&[], "10.0.0.1", "10.0.0.1"),
        ] {
            assert_eq!(found(AddressHeader::XForwardedFor, lines, peer), client, "{lines:?} {peer}");
        }
        let many = vec!["10.0.0.1"; MAX_HOPS + 5].join(",");
        assert_eq!(
            found(AddressHeader::XForwardedFor, &[&format!("192.0.2.1,{many}")], "10.0.0.1"),
            "10.0.0.1"
        );
    }

    #[test]
    fn forwarded_header_is_read() {
        for (lines, client) in [
            (&["for=192.0.2.1;proto=https;by=10.0.0.1"][..], "192.0.2.1"),
            (&["For=\"[2001:db8::1]:4711\""], "2001:db8::1"),
            (&["for=192.0.2.9, for=192.0.2.1;host=\"a,b;for=1.1.1.1\""], "192.0.2.1"),
            (&["for=192.0.2.1, for=_hidden"], "10.0.0.9"),
            (&["for=192.0.2.1, for=unknown"], "10.0.0.9"),
            (&["for=192.0.2.1, proto=http"], "10.0.0.9"),
            (&["host=\"\\\"\";for=192.0.2.1"], "192.0.2.1"),
            (&["for=1.2.3.4;x=\", for=192.0.2.1"], "10.0.0.9"),
            (&["for=1.2.3.4;x=\"", "for=192.0.2.1"], "192.0.2.1"),
        ] {
            assert_eq!(found(AddressHeader::Forwarded, lines, "10.0.0.9"), client, "{lines:?}");
        }
    }

    #[test]
    fn request_id_needs_trusted_proxy() {
        let proxies =
            TrustedProxies { networks: vec!["10.0.0.0/8".parse().unwrap()], ..TrustedProxies::default() };
        let [inside, outside] = ["10.0.0.1", "192.0.2.1"].map(|peer| peer.parse().ok());
        let long = "x".repeat(MAX_REQUEST_ID + 1);
        for (value, peer, accepted) in [
            ("7f/a-1", inside, true),
            ("7f/a-1", outside, false),
            ("7f", None, false),
            ("a b", inside, false),
            ("", inside, false),
            (long.as_str(), inside, false),
        ] {
            let headers = HeaderMap::from_iter([(X_REQUEST_ID, value.parse().unwrap())]);
            assert_eq!(given_request_id(&headers, peer, &proxies).is_some(), accepted, "{value}");
        }
    }
}
