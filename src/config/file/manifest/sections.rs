//! The sections of a manifest as written, and how they become settings. What cannot be done yet is refused, never passed over.
//!
//! Reads only what fits the schema. Not here: keys of the configuration.

use std::collections::BTreeMap;

use http::{HeaderName, Uri};
use serde::Deserialize;

use super::Described;
use super::sheet::Sheet;
use crate::config::file::{agent, headers};
use crate::config::pem::{self, Holds, PemFile};
use crate::config::place::{Place, Written};
use crate::config::reference::Template;
use crate::config::{AgentTls, CardSource, Endpoints, Manifest, Secret};

/// The tools that every agent has on `/mcp`.
const SUBAGENT_TOOLS: [&str; 5] =
    ["subagent_start", "subagent_send", "subagent_cancel", "subagent_get", "subagent_wait"];
/// How the gateway names tasks; the second is accepted too.
const TASK_TEMPLATES: [&str; 2] = ["a2a://task/{taskId}", "a2a://tasks/{taskId}"];
const LATER: &str = "comes with a later version";

/// A manifest.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ManifestFile {
    id: String,
    description: Option<String>,
    a2a: A2aFile,
    #[serde(default)]
    security: SecurityFile,
    #[serde(default)]
    mcp_bridge: BridgeFile,
    #[serde(default)]
    capabilities: CapabilitiesFile,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct A2aFile {
    agent_card_uri: String,
    preferred_transport: Option<String>,
    #[serde(default)]
    skills: BTreeMap<String, String>,
}

#[derive(Deserialize, Default)]
struct SecurityFile {
    auth: Option<AuthFile>,
    mtls: Option<MtlsFile>,
}

#[derive(Deserialize)]
struct AuthFile {
    #[serde(rename = "type")]
    kind: AuthKind,
    token: Option<String>,
    value: Option<String>,
    #[serde(rename = "in")]
    place: Option<String>,
    name: Option<String>,
}

#[derive(Deserialize, Clone, Copy, PartialEq)]
enum AuthKind {
    #[serde(rename = "oauth2")]
    OAuth2,
    #[serde(rename = "apiKey")]
    ApiKey,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MtlsFile {
    enabled: bool,
    client_cert: Option<String>,
    client_key: Option<String>,
    ca: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct BridgeFile {
    tools: Vec<ToolFile>,
    task_resource_template: Option<String>,
}

#[derive(Deserialize)]
struct ToolFile {
    name: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct CapabilitiesFile {
    message: MessageFile,
    tasks: TasksFile,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct MessageFile {
    send: CapabilityFile,
    stream: CapabilityFile,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct TasksFile {
    get: CapabilityFile,
    cancel: CapabilityFile,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct CapabilityFile {
    endpoint: Option<String>,
    headers: BTreeMap<String, String>,
    mtls: Option<bool>,
    sse: Option<bool>,
}

impl ManifestFile {
    /// Turns what was written into what runs. `None` after a problem with the card.
    pub(super) fn resolve(
        self,
        manifest: impl FnOnce(String) -> Manifest,
        sheet: &mut Sheet<'_>,
    ) -> Option<Described> {
        self.mcp_bridge.check(&self.a2a.skills, sheet);
        let has_identity = self.security.mtls.as_ref().is_some_and(|mtls| mtls.enabled);
        let mut all = Vec::new();
        let query_key = self.security.auth.and_then(|auth| auth.resolve(&mut all, sheet));
        let streaming = self.capabilities.message.stream.sse;
        let endpoints = self.capabilities.resolve(has_identity, &mut all, sheet);
        let tls = self.security.mtls.map(|mtls| mtls.resolve(sheet)).unwrap_or_default();
        let description = self.description.and_then(|text| {
            let place = sheet.place("/description");
            let text = Template::new(text).resolve(&mut sheet.reading, &place)?;
            Some(text.expose().to_owned())
        });
        Some(Described {
            card: self.a2a.card(sheet)?,
            streaming,
            endpoints,
            query_key,
            description,
            headers: all,
            tls,
            tool_names: self.a2a.skills.into_iter().collect(),
            manifest: manifest(self.id),
        })
    }
}

impl A2aFile {
    fn card(&self, sheet: &mut Sheet<'_>) -> Option<CardSource> {
        if self.preferred_transport.as_deref().is_some_and(|transport| transport != "JSONRPC") {
            sheet.problem("/a2a/preferredTransport", format!("a transport other than JSONRPC {LATER}"));
        }
        let (place, uri) = sheet.one_line("/a2a/agentCardUri", self.agent_card_uri.clone())?;
        match agent::card(uri.expose(), &sheet.reading) {
            Ok(card) => Some(card),
            Err(problem) => sheet.reading.refuse(&place, problem),
        }
    }
}

impl AuthFile {
    /// One header: `Authorization: Bearer` with the token, the key under its name, or a cookie. A key that goes into the query
    /// comes back with its name.
    fn resolve(self, all: &mut Vec<(HeaderName, Secret)>, sheet: &mut Sheet<'_>) -> Option<(String, Secret)> {
        let (pointer, secret) = match (self.token, self.value) {
            (Some(token), _) => ("/security/auth/token", token),
            (None, Some(value)) => ("/security/auth/value", value),
            (None, None) => return None,
        };
        match (self.place.as_deref(), self.name.as_deref()) {
            (Some("query"), Some(name)) => {
                let (_, key) = sheet.one_line(pointer, secret)?;
                return Some((name.to_owned(), key));
            }
            (Some("cookie"), Some(name)) => {
                let value = sheet.written(pointer, format!("{name}={secret}"));
                headers::take("Cookie", value, all, &mut sheet.reading);
                return None;
            }
            (Some(place @ ("query" | "cookie")), None) => {
                sheet.problem("/security/auth/name", format!("is missing: a {place} needs one"));
                return None;
            }
            (Some(_) | None, _) => {}
        }
        let names_bearer = secret.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case("bearer "));
        let secret = match self.kind {
            AuthKind::OAuth2 if !names_bearer => format!("Bearer {secret}"),
            AuthKind::OAuth2 | AuthKind::ApiKey => secret,
        };
        let name = self.name.as_deref().unwrap_or("Authorization");
        let value = sheet.written(pointer, secret);
        headers::take(name, value, all, &mut sheet.reading);
        None
    }
}

impl MtlsFile {
    fn resolve(self, sheet: &mut Sheet<'_>) -> AgentTls {
        if !self.enabled {
            return AgentTls::default();
        }
        let mut read =
            |pointer: &str, text: Option<String>, holds: Holds| -> Option<(Place, crate::config::Pem)> {
                let pem = Written::of(sheet.place(pointer), PemFile::new(text?));
                pem::resolve(pem, holds, &mut sheet.reading)
            };
        let ca = read("/security/mtls/ca", self.ca, Holds::Certificates).map(|(_, ca)| ca);
        let certificate = read("/security/mtls/clientCert", self.client_cert, Holds::Certificates);
        let key = read("/security/mtls/clientKey", self.client_key, Holds::Key);
        let (certificate, key) = pem::pair(certificate, key, &mut sheet.reading).unzip();
        AgentTls { ca, certificate, key }
    }
}

impl BridgeFile {
    fn check(&self, skills: &BTreeMap<String, String>, sheet: &mut Sheet<'_>) {
        for (index, ToolFile { name }) in self.tools.iter().enumerate() {
            let known = SUBAGENT_TOOLS.contains(&name.as_str()) || skills.values().any(|tool| tool == name);
            if !known {
                let known = SUBAGENT_TOOLS.join(", ");
                let problem = format!("is no tool of the gateway (known: {known}, and those of a2a.skills)");
                sheet.problem(&format!("/mcpBridge/tools/{index}/name"), problem);
            }
        }
        let template = self.task_resource_template.as_deref();
        if template.is_some_and(|template| !TASK_TEMPLATES.contains(&template)) {
            let problem = format!("another form of URI {LATER} (write {})", TASK_TEMPLATES.join(" or "));
            sheet.problem("/mcpBridge/taskResourceTemplate", problem);
        }
    }
}

impl CapabilitiesFile {
    /// Their URLs and headers. A header goes with every request to an agent, so they must agree.
    fn resolve(
        self,
        has_identity: bool,
        all: &mut Vec<(HeaderName, Secret)>,
        sheet: &mut Sheet<'_>,
    ) -> Endpoints {
        let mut endpoints = Endpoints::default();
        let mut seen: BTreeMap<String, (String, String)> = BTreeMap::new();
        for (at, capability, endpoint) in [
            ("/capabilities/message/send", self.message.send, &mut endpoints.send),
            ("/capabilities/message/stream", self.message.stream, &mut endpoints.stream),
            ("/capabilities/tasks/get", self.tasks.get, &mut endpoints.get),
            ("/capabilities/tasks/cancel", self.tasks.cancel, &mut endpoints.cancel),
        ] {
            *endpoint = capability.check(at, has_identity, sheet);
            for (name, text) in capability.headers {
                let pointer = format!("{at}/headers/{}", name.replace('~', "~0").replace('/', "~1"));
                match seen.get(&name.to_ascii_lowercase()) {
                    Some((_, first)) if *first == text => {}
                    Some((other, _)) => {
                        let problem = format!("differs from {other} (a header goes with every method)");
                        sheet.problem(&pointer, problem);
                    }
                    None => {
                        let value = sheet.written(&pointer, text.clone());
                        headers::take(&name, value, all, &mut sheet.reading);
                        seen.insert(name.to_ascii_lowercase(), (pointer, text));
                    }
                }
            }
        }
        endpoints
    }
}

impl CapabilityFile {
    /// Its URL, if it has one of its own.
    fn check(&self, at: &str, has_identity: bool, sheet: &mut Sheet<'_>) -> Option<String> {
        let mtls = match (self.mtls, has_identity) {
            (Some(true), false) => Some("security.mtls is not enabled"),
            (Some(false), true) => {
                Some("the certificate of security.mtls is shown on every connection (remove it)")
            }
            (Some(_), _) | (None, _) => None,
        };
        if let Some(problem) = mtls {
            sheet.problem(&format!("{at}/mtls"), problem);
        }
        if self.sse == Some(true) && at != "/capabilities/message/stream" {
            sheet.problem(&format!("{at}/sse"), "only message.stream is answered by an event stream");
        }
        let (place, url) = sheet.one_line(&format!("{at}/endpoint"), self.endpoint.clone()?)?;
        let is_url = url
            .expose()
            .parse::<Uri>()
            .is_ok_and(|uri| uri.host().is_some() && matches!(uri.scheme_str(), Some("http" | "https")));
        match is_url && !url.expose().contains('@') {
            true => Some(url.expose().to_owned()),
            false => {
                sheet.reading.refuse(&place, "is not a URL (write https://HOST/PATH, without credentials)")
            }
        }
    }
}
