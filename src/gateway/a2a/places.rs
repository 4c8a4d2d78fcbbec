//! Which places of a client's choice are pushed to.
//!
//! Reads the list of the operator (`outbound.allow`): a host that it names may be anywhere, and need not even be known here, since it is
//! often the agent that calls it; every other one must have a public address, or one of a listed network. Not here: where a request
//! names such places (see `hooks`), calling them (see `forwarding`).

use std::sync::Arc;
use std::time::Duration;

use http::Uri;

use crate::config::Outbound;
use crate::transport::{Policy, TransportError, host_of, judge};

/// How long the name of a place to push to may take to resolve.
const LOOKED_UP: Duration = Duration::from_secs(5);

/// Which addresses a place may have.
///
/// # Errors
///
/// [`TransportError::BadUri`] if it is none to be called at all.
pub(super) fn policy_of(uri: &Uri, outbound: &Outbound) -> Result<Policy, TransportError> {
    let (_, port) = host_of(uri)?;
    let host = uri.host().unwrap_or_default().to_ascii_lowercase();
    let is_listed = outbound.has_host(&host, &format!("{host}:{port}"));
    Ok(if is_listed { Policy::Trusted } else { Policy::Guarded(Arc::new(outbound.clone())) })
}

/// Whether agents may be told to push to a place.
///
/// # Errors
///
/// Why not, for the log: where names inside lead is nobody's business outside.
pub(super) async fn may_lead(uri: &Uri, outbound: &Outbound) -> Result<(), String> {
    let policy = policy_of(uri, outbound).map_err(|error| error.to_string())?;
    if matches!(policy, Policy::Trusted) {
        return Ok(());
    }
    let judged = tokio::time::timeout(LOOKED_UP, judge(uri, &policy)).await;
    match judged {
        Ok(judged) => judged.map_err(|error| error.to_string()),
        Err(_) => Err("its name was not resolved in time".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Allowed;

    #[tokio::test]
    async fn a_name_that_the_operator_lists_need_not_lead_anywhere_from_here() {
        let names = ["hook.invalid", "other.invalid:8443", "localhost:9"];
        let allow = names.map(|name| Allowed::Host(name.to_owned())).to_vec();
        let outbound = Outbound { allow };
        for (url, may) in [
            ("https://hook.invalid/x", true),
            ("http://HOOK.invalid:99/x", true),
            ("https://other.invalid:8443/", true),
            ("https://other.invalid/", false),
            ("https://unlisted.invalid/", false),
            ("http://localhost:9/", true),
            ("http://localhost:10/", false),
            ("https://user@hook.invalid/", false),
            ("ftp://hook.invalid/", false),
            ("http://10.0.0.1/", false),
            ("http://93.184.216.34/", true),
        ] {
            assert_eq!(may_lead(&url.parse().unwrap(), &outbound).await.is_ok(), may, "{url}");
        }
    }
}
