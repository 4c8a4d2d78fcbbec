//! What an agent is shown: the headers that the configuration gives it.
//!
//! Not here: client certificates (see `transport`).

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
