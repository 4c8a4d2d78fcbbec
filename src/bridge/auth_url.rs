//! The web page at which a user authorizes an agent.
//!
//! Only `https`, and only URLs that do not deceive the user; the gateway never fetches it.

use http::Uri;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::a2a::{Message, Part, PartBody};

const SCHEME: &str = "https";

/// Maximum length of a link, in bytes.
const MAX_LINK_BYTES: usize = 2048;

/// Returns the page that a message names: as a link, as the `url` of its data, or in its text, in
/// this order.
pub(super) fn authorization_url(said: &Message) -> Option<String> {
    let find = |page: fn(&Part) -> Option<String>| said.parts.iter().find_map(page);
    find(first_link).or_else(|| find(in_data)).or_else(|| find(in_text))
}

fn first_link(part: &Part) -> Option<String> {
    match &part.body {
        PartBody::Url(url) => page(url),
        PartBody::Text(_) | PartBody::Raw(_) | PartBody::Data(_) | PartBody::Unknown(_) => None,
    }
}

fn in_data(part: &Part) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        url: Box<RawValue>,
    }
    match &part.body {
        PartBody::Data(json) => {
            let named: Named = serde_json::from_str(json.get()).ok()?;
            page(&serde_json::from_str::<String>(named.url.get()).ok()?)
        }
        PartBody::Text(_) | PartBody::Raw(_) | PartBody::Url(_) | PartBody::Unknown(_) => None,
    }
}

fn in_text(part: &Part) -> Option<String> {
    let PartBody::Text(text) = &part.body else { return None };
    text.match_indices("https://").find_map(|(start, _)| {
        let ends =
            |c: char| c.is_whitespace() || matches!(c, '<' | '>' | '"' | '\'' | '`' | ')' | ']' | '}' | '|');
        let link = text.get(start..)?.split(ends).next()?;
        page(link.trim_end_matches(['.', ',', ';', ':', '!', '?', '*']))
    })
}

/// Returns the link, if a user may be sent to it, with its scheme in the lower case that clients
/// compare. User information before the host would make one site look like another.
fn page(link: &str) -> Option<String> {
    let uri: Uri = Some(link).filter(|link| link.len() <= MAX_LINK_BYTES && link.is_ascii())?.parse().ok()?;
    let authority = uri.authority().filter(|authority| !authority.as_str().contains('@'))?;
    if uri.scheme_str() != Some(SCHEME) || authority.host().is_empty() {
        return None;
    }
    link.get(SCHEME.len()..).map(|rest| format!("{SCHEME}{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::a2a::read_task;

    fn page_in(parts: &str) -> Option<String> {
        let task =
            format!(r#"{{"id":"t","status":{{"state":"auth-required","message":{{"parts":{parts}}}}}}}"#);
        authorization_url(&read_task(task.as_bytes()).unwrap().status.message.unwrap())
    }

    #[test]
    fn the_page_is_found_and_never_one_without_tls() {
        for (parts, expected) in [
            (r#"[{"url":"https://a.test/x?y=1"}]"#, Some("https://a.test/x?y=1")),
            (
                r#"[{"text":"https://c.test"},{"data":{"url":"https://b.test"}},{"url":"https://a.test"}]"#,
                Some("https://a.test"),
            ),
            (r#"[{"text":"https://c.test"},{"data":{"url":"https://b.test"}}]"#, Some("https://b.test")),
            (r#"[{"text":"Go to (https://c.test/a), please."}]"#, Some("https://c.test/a")),
            (r#"[{"text":"https:// is nothing; https://c.test/b."}]"#, Some("https://c.test/b")),
            (r#"[{"data":{"url":"hTtps://b.test/X"}}]"#, Some("https://b.test/X")),
            (r#"[{"url":"http://a.test"},{"text":"see http://a.test/"}]"#, None),
            (r#"[{"url":"https://bank.test@evil.test/"}]"#, None),
            (r#"[{"url":"javascript:alert(1)"},{"data":{"url":7}},{"data":[1]}]"#, None),
            (r#"[{"url":"https://a b"}]"#, None),
            ("[]", None),
        ] {
            assert_eq!(page_in(parts).as_deref(), expected, "{parts}");
        }
        assert_eq!(page_in(&format!(r#"[{{"url":"https://a.test/{}"}}]"#, "x".repeat(MAX_LINK_BYTES))), None);
    }
}
