//! Headers of a request to an agent that are the gateway's own: neither the operator nor a card nor a client writes one of them.
//!
//! The only list of them. Not here: writing them (see `transport`, `agents`).

use http::HeaderName;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};

/// Those that frame the message or steer the connection: only `transport` writes them.
pub const FRAMING: [HeaderName; 10] = [
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

/// Those that say what is sent and what is taken.
const MEANING: [HeaderName; 4] =
    [ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HeaderName::from_static("a2a-version")];

/// Families of which the gateway writes some, or the next hop: of these the operator alone may write what is not above.
const FAMILIES: [&str; 6] = ["content-", "accept", "a2a-", "mcp-", "proxy-", "last-event-id"];

/// Whether the gateway writes this header itself, so that nobody else may.
pub(super) fn is_reserved(name: &HeaderName) -> bool {
    FRAMING.contains(name) || MEANING.contains(name)
}

/// Whether somebody other than the operator may not write this header: a card that says where a key goes, a client whose headers go
/// along.
pub fn is_forbidden(name: &HeaderName) -> bool {
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
