//! The page for people: files that are part of the binary, the headers that they need, and the
//! configuration as the page shows it.
//!
//! The page loads nothing from elsewhere, and runs no script but its own modules. It has no data: the
//! routes under `/api` give that to operators alone.

use http::StatusCode;
use http::header::{CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, REFERRER_POLICY, X_FRAME_OPTIONS};

use serde_json::{Value, json};

use super::AdminResponse;
use crate::config::{
    Agent, Authorization, CardSource, Listener, ListenerTls, Mechanism, Require, RequireRule, Rule, Settings,
    Source, SourcePlace,
};

/// The sources that the page may use.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
     form-action 'self'; frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'",
);

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// A file of the page.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PageFile {
    media_type: &'static str,
    content: &'static [u8],
}

/// The document.
pub(super) static INDEX: PageFile =
    PageFile { media_type: "text/html; charset=utf-8", content: include_bytes!("index.html") };
/// Its style.
pub(super) static STYLE: PageFile =
    PageFile { media_type: "text/css; charset=utf-8", content: include_bytes!("style.css") };
/// The views of the page.
pub(super) static APP: PageFile = PageFile { media_type: SCRIPT, content: include_bytes!("app.js") };
/// Elements that the views are made of.
pub(super) static ELEMENTS: PageFile =
    PageFile { media_type: SCRIPT, content: include_bytes!("elements.js") };
/// Requests to the routes under `/api`.
pub(super) static CLIENT: PageFile = PageFile { media_type: SCRIPT, content: include_bytes!("client.js") };
/// Plots.
pub(super) static PLOTS: PageFile = PageFile { media_type: SCRIPT, content: include_bytes!("plots.js") };
/// The form that calls a tool.
pub(super) static CALLER: PageFile = PageFile { media_type: SCRIPT, content: include_bytes!("caller.js") };

impl PageFile {
    /// Returns the answer with the file.
    pub(super) fn response(&self) -> AdminResponse {
        let mut response = AdminResponse::new(StatusCode::OK, self.media_type, self.content);
        response.headers = vec![
            (CONTENT_SECURITY_POLICY, POLICY),
            (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
            (X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
            (
                HeaderName::from_static("cross-origin-resource-policy"),
                HeaderValue::from_static("same-origin"),
            ),
            (HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
        ];
        response
    }
}

/// Returns the configuration for the page. Holds names, numbers and addresses, and neither secrets
/// nor their hashes.
pub(super) fn configuration(settings: &Settings) -> Value {
    let admin = settings.admin.as_ref().map(|admin| {
        json!({
            "address": admin.address,
            "tokens": admin.token_hashes.len(),
            "tls": admin.tls.as_ref().map(tls),
            "allowed_hosts": admin.allowed_hosts,
            "agents_file": admin.agents_file,
        })
    });
    let health = settings.health.as_ref();
    let health = health.map(|health| json!({ "address": health.address, "metrics": health.metrics }));
    let mechanisms = settings.auth.mechanisms();
    let keys = settings.auth.api_keys.iter().flat_map(|keys| &keys.holders);
    json!({
        "public_url": settings.public_url,
        "listeners": settings.listeners.iter().map(listener).collect::<Vec<_>>(),
        "admin": admin,
        "health": health,
        "seal_keys": settings.seal_keys.len(),
        "auth": {
            "mechanisms": mechanisms.iter().map(|one| mechanism(*one)).collect::<Vec<_>>(),
            "api_keys": keys.map(|holder| holder.name.as_str()).collect::<Vec<_>>(),
            "issuers": settings.auth.tokens.iter().map(|issuer| issuer.issuer.as_str()).collect::<Vec<_>>(),
        },
        "rules": settings.rules.iter().map(rule).collect::<Vec<_>>(),
        "agents": settings.agents.iter().take(MAX_SHOWN).map(agent).collect::<Vec<_>>(),
        "agents_total": settings.agents.len(),
        "sources": settings.sources.iter().map(source).collect::<Vec<_>>(),
        // Sections of numbers and words alone.
        "limits": lines(&settings.limits),
        "calls": lines(&settings.calls),
        "tasks": lines(&settings.tasks),
        "sessions": lines(&settings.sessions),
        "streams": lines(&settings.streams),
        "background": lines(&settings.background),
        "shutdown": lines(&settings.shutdown),
        "log": lines(&settings.log),
    })
}

/// Most agents of the configuration that are shown.
const MAX_SHOWN: usize = 200;

/// Returns the fields of a section, one on each line.
fn lines(section: &impl std::fmt::Debug) -> Vec<String> {
    let text = format!("{section:#?}");
    let fields = text.lines().skip(1).filter_map(|line| line.strip_prefix("    "));
    fields.map(|line| line.trim_end_matches(',').to_owned()).collect()
}

fn tls(tls: &ListenerTls) -> Value {
    let client_auth = match tls.client_auth.as_ref().map(|clients| clients.required) {
        None => "off",
        Some(false) => "optional",
        Some(true) => "required",
    };
    json!({ "profile": format!("{:?}", tls.profile), "certificates": tls.certificates.len(), "client_auth": client_auth })
}

fn listener(listener: &Listener) -> Value {
    let services = listener.serve;
    let named =
        [("mcp", services.mcp), ("a2a", services.a2a), ("health", services.health), ("push", services.push)];
    let served: Vec<&str> =
        named.into_iter().filter_map(|(name, is_served)| is_served.then_some(name)).collect();
    json!({
        "address": listener.address,
        "tls": listener.tls.as_ref().map(tls),
        "serve": served,
        "require": requirement(&listener.require),
    })
}

fn requirement(require: &Require) -> String {
    let of = require.of.iter().map(|one| mechanism(*one)).collect::<Vec<_>>().join(", ");
    match require.rule {
        RequireRule::None => "none".to_owned(),
        RequireRule::Any => format!("any of: {of}"),
        RequireRule::All => format!("all of: {of}"),
    }
}

fn mechanism(mechanism: Mechanism) -> &'static str {
    match mechanism {
        Mechanism::Certificate => "client certificate",
        Mechanism::Token => "token",
        Mechanism::ApiKey => "API key",
    }
}

fn rule(rule: &Rule) -> Value {
    json!({
        "name": rule.name, "deny": rule.deny, "callers": rule.callers, "certificates": rule.certificates,
        "scopes": rule.scopes, "groups": rule.groups, "agents": rule.agents, "tools": rule.tools,
        "methods": rule.methods, "resources": rule.resources,
    })
}

fn source(source: &Source) -> Value {
    let place = match &source.place {
        SourcePlace::Url(url) => CardSource::Url(url.clone()).without_secrets(),
        SourcePlace::Folder(folder) => folder.display().to_string(),
    };
    json!({
        "name": source.name,
        "place": place,
        "hosts": source.hosts,
        "headers": source.headers.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
    })
}

fn agent(agent: &Agent) -> Value {
    let authorization = agent.auth.authorization.as_ref().map(|authorization| match authorization {
        Authorization::Basic { .. } => "basic",
        Authorization::Bearer(_) => "bearer",
        Authorization::OAuth2(_) => "oauth2",
    });
    json!({
        "name": agent.name,
        "card": agent.card.without_secrets(),
        "authorization": authorization,
        "api_keys": agent.auth.api_keys.len(),
        "headers": agent.headers.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
        "forward_headers": agent.forward_headers.iter().map(|name| name.as_str()).collect::<Vec<_>>(),
        "client_certificate": agent.tls.certificate.is_some(),
        "max_calls": agent.max_calls,
        "rate": agent.rate,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Admin, ReloadableSecret};

    #[test]
    fn configuration_has_no_secret() {
        let mut one = Agent::new("one", "http://user:CANARY@agent.example/card?key=CANARY");
        one.auth.authorization = Some(Authorization::Bearer(ReloadableSecret::fixed("CANARY")));
        one.headers = vec![(http::header::COOKIE, ReloadableSecret::fixed("CANARY"))];
        let mut settings = Settings::new(vec![one]);
        settings.seal_keys = vec![crate::config::Secret::new("CANARY")];
        settings.admin = Some(Admin { token_hashes: vec![[7; 32]], ..Admin::default() });
        let shown = configuration(&settings).to_string();
        assert!(!shown.contains("CANARY") && !shown.contains("7, 7") && !shown.contains("7,7"), "{shown}");
        assert!(shown.contains("agent.example/card") && shown.contains("bearer"), "{shown}");
        assert!(shown.contains("\"body: 4194304\""), "{shown}");
    }
}
