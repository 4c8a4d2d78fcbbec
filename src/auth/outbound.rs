//! What an agent is shown: the headers that the configuration gives it, or a key in the query.
//!
//! Not here: client certificates (see `transport`).

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue};

use crate::config::Agent;

/// The static headers of an agent, marked as sensitive.
///
/// # Errors
///
/// The name of a header whose value is none.
pub fn static_headers(agent: &Agent) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for (name, secret) in &agent.headers {
        let mut value = HeaderValue::from_str(secret.expose())
            .map_err(|_| format!("headers.{name}: the value cannot be sent as a header"))?;
        value.set_sensitive(true);
        headers.append(name.clone(), value);
    }
    Ok(headers)
}

/// A path of an agent with the key that goes into its query, if it wants one there. Never logged.
///
/// # Errors
///
/// Words for a path that cannot be called.
pub fn keyed(agent: &Agent, path: &str) -> Result<PathAndQuery, String> {
    let whole = match &agent.query_key {
        None => path.to_owned(),
        Some((name, key)) => {
            let mark = if path.contains('?') { '&' } else { '?' };
            format!("{path}{mark}{}={}", encoded(name), encoded(key.expose()))
        }
    };
    whole.parse().map_err(|_| "its path cannot be called".to_owned())
}

/// Text as a member of a query (RFC 3986).
fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ if byte.is_ascii_alphanumeric() => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Secret;

    #[test]
    fn a_key_goes_into_the_query_and_stays_one_member_of_it() {
        let mut agent = Agent::new("bard", "http://bard.example/");
        assert_eq!(keyed(&agent, "/a?b=c").unwrap().as_str(), "/a?b=c");
        agent.query_key = Some(("k".to_owned(), Secret::new("a&b=\u{fc} c".to_owned())));
        assert_eq!(keyed(&agent, "/").unwrap().as_str(), "/?k=a%26b%3D%C3%BC%20c");
        assert_eq!(keyed(&agent, "/a?b=c").unwrap().as_str(), "/a?b=c&k=a%26b%3D%C3%BC%20c");
        assert!(!format!("{agent:?}").contains("a&b"), "never printed");
    }
}
