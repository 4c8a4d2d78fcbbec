//! Policy for the webhook URLs that clients name.
//!
//! Reads the operator's list (`outbound.webhooks`). A host on the list may have any address, and
//! need not resolve here, since often the agent calls it; every other host must have a public
//! address, or one in a listed network. See also `webhook_urls` (finds the URLs in requests) and
//! `push_forward` (calls them).

use std::sync::Arc;
use std::time::Duration;

use http::Uri;

use crate::config::Webhooks;
use crate::transport::{AddressPolicy, TransportError, filter_addresses, host_of};

/// Longest time for resolving the host of a webhook.
const LOOKED_UP: Duration = Duration::from_secs(5);

/// Returns the addresses that a webhook may have.
///
/// # Errors
///
/// [`TransportError::BadUri`] if the URL is forbidden for any address.
pub(super) fn policy_of(uri: &Uri, webhooks: &Webhooks) -> Result<AddressPolicy, TransportError> {
    let (_, port) = host_of(uri)?;
    if !webhooks.http && uri.scheme_str() != Some("https") {
        return Err(TransportError::BadUri("it is plain http, which outbound.webhooks.http does not allow"));
    }
    let host = uri.host().unwrap_or_default().to_ascii_lowercase();
    let is_listed = webhooks.allow.has_host(&host, &format!("{host}:{port}"));
    Ok(if is_listed {
        AddressPolicy::Trusted
    } else {
        AddressPolicy::Webhook(Arc::new(webhooks.allow.clone()))
    })
}

/// Checks that agents may push to a URL.
///
/// # Errors
///
/// The reason, for the log alone: clients must not learn the addresses of internal names.
pub(super) async fn is_allowed(uri: &Uri, webhooks: &Webhooks) -> Result<(), String> {
    let policy = policy_of(uri, webhooks).map_err(|error| error.to_string())?;
    if matches!(policy, AddressPolicy::Trusted) {
        return Ok(());
    }
    let judged = tokio::time::timeout(LOOKED_UP, filter_addresses(uri, &policy)).await;
    match judged {
        Ok(judged) => judged.map_err(|error| error.to_string()),
        Err(_) => Err("its name was not resolved in time".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{AllowList, Allowed};

    #[tokio::test]
    async fn a_name_that_the_operator_lists_need_not_lead_anywhere_from_here() {
        let names = ["hook.invalid", "other.invalid:8443", "localhost:9"];
        let allow = AllowList(names.map(|name| Allowed::Host(name.to_owned())).to_vec());
        let webhooks = Webhooks { allow, http: true };
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
            assert_eq!(is_allowed(&url.parse().unwrap(), &webhooks).await.is_ok(), may, "{url}");
        }
    }
}
