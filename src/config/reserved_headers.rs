//! Reserved headers: the gateway writes them itself on requests to agents; operators, cards and
//! clients must not.
//!
//! The only list of them.

use http::HeaderName;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};

/// Headers that frame the message or control the connection: only `transport` writes them.
pub(crate) const FRAMING: [HeaderName; 10] = [
    HOST,
    CONTENT_LENGTH,
    TRANSFER_ENCODING,
    CONNECTION,
    EXPECT,
    UPGRADE,
    TE,
    TRAILER,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// Headers that describe the sent and the accepted content.
const MEANING: [HeaderName; 4] =
    [ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HeaderName::from_static("a2a-version")];

/// Families of which the gateway or the next hop writes some: the operator alone may write the
/// others.
const FAMILIES: [&str; 6] = ["content-", "accept", "a2a-", "mcp-", "proxy-", "last-event-id"];

/// Returns true if the gateway writes this header itself, so that the operator must not.
pub(super) fn is_reserved(name: &HeaderName) -> bool {
    FRAMING.contains(name) || MEANING.contains(name)
}

/// Returns true if only the operator may write this header, or not even the operator: it is
/// forbidden to a card that positions a key, and to a client with forwarded headers.
pub(crate) fn is_forbidden(name: &HeaderName) -> bool {
    is_reserved(name) || FAMILIES.iter().any(|head| name.as_str().starts_with(head))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operator_may_write_what_a_card_may_not() {
        for (name, own, out_of_reach) in [
            ("host", true, true),
            ("keep-alive", true, true),
            ("trailer", true, true),
            ("a2a-version", true, true),
            ("a2a-extensions", false, true),
            ("accept-language", false, true),
            ("content-language", false, true),
            ("proxy-authorization", false, true),
            ("mcp-session-id", false, true),
            ("authorization", false, false),
            ("cookie", false, false),
            ("x-tenant", false, false),
        ] {
            let name = HeaderName::from_static(name);
            assert_eq!((is_reserved(&name), is_forbidden(&name)), (own, out_of_reach), "{name}");
        }
    }
}
