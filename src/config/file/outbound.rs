//! `outbound` as in the file.

use schemars::JsonSchema;
use serde::Deserialize;

use super::url;
use crate::config::resolve::ResolveContext;
use crate::config::spanned::Spanned;
use crate::config::{AllowList, Allowed, Network, Outbound, Webhooks};

/// Where cards and webhooks may send the gateway.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Outbound")]
pub(super) struct OutboundFile {
    /// Where a card may send the gateway, with the agent's credentials, besides its own host: hosts (`name` or `name:port`) and
    /// networks (`10.0.0.0/8`, `fd00::/8`, or one address). For all agents; `allow_hosts` is for one.
    #[schemars(extend("default" = []))]
    allow: Spanned<Vec<Spanned<String>>>,
    /// Where the webhooks of A2A clients may be.
    webhooks: Spanned<WebhooksFile>,
}

/// Where the webhooks of A2A clients may be.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Webhooks")]
pub(super) struct WebhooksFile {
    /// Hosts and networks, written as in `outbound.allow`, besides public addresses.
    #[schemars(extend("default" = []))]
    allow: Spanned<Vec<Spanned<String>>>,
    /// Whether a webhook may be plain HTTP. Tokens of clients and results of tasks travel to it.
    #[schemars(extend("default" = false))]
    http: Spanned<bool>,
}

impl OutboundFile {
    pub(super) fn resolve(self, reading: &mut ResolveContext<'_>) -> Outbound {
        let allow = list(self.allow, reading);
        let webhooks = self.webhooks.value().unwrap_or_default();
        let http = webhooks.http.value().unwrap_or_default();
        Outbound { allow, webhooks: Webhooks { allow: list(webhooks.allow, reading), http } }
    }
}

fn list(written: Spanned<Vec<Spanned<String>>>, reading: &mut ResolveContext<'_>) -> AllowList {
    let mut list = Vec::new();
    for (place, text) in written.value().into_iter().flatten().filter_map(Spanned::take) {
        match allowed(&text) {
            Ok(entry) => list.push(entry),
            Err(problem) => reading.problem(&place, problem),
        }
    }
    AllowList(list)
}

fn allowed(text: &str) -> Result<Allowed, String> {
    if text.contains('/') && !text.contains("://") {
        return text.parse::<Network>().map(Allowed::Network).map_err(str::to_owned);
    }
    if let Ok(network) = text.parse::<Network>() {
        return Ok(Allowed::Network(network));
    }
    url::host(text).map(|()| Allowed::Host(text.to_ascii_lowercase()))
}
