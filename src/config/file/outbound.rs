//! `outbound` as written.

use schemars::JsonSchema;
use serde::Deserialize;

use super::url;
use crate::config::place::Written;
use crate::config::reading::Reading;
use crate::config::{Allowed, Network, Outbound};

/// Where cards may send the gateway.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Outbound")]
pub(super) struct OutboundFile {
    /// Where a card may send the gateway, with the agent's credentials, besides its own host: hosts (`name` or `name:port`) and
    /// networks (`10.0.0.0/8`, `fd00::/8`, or one address). For all agents; `allow_hosts` is for one.
    #[schemars(extend("default" = []))]
    allow: Written<Vec<Written<String>>>,
}

impl OutboundFile {
    pub(super) fn resolve(self, reading: &mut Reading<'_>) -> Outbound {
        let written = self.allow.value().unwrap_or_default();
        let mut allow = Vec::new();
        for (place, text) in written.into_iter().filter_map(Written::take) {
            match allowed(&text) {
                Ok(entry) => allow.push(entry),
                Err(problem) => reading.problem(&place, problem),
            }
        }
        Outbound { allow }
    }
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
