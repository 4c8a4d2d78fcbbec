//! The sections of a manifest, and their conversion to settings. Unsupported values are rejected,
//! never ignored.
//!
//! Reads only values that match the schema.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::ManifestAgent;
use super::auth::AuthFile;
use super::capabilities::CapabilitiesFile;
use super::sheet::ManifestReader;
use crate::config::file::agent;
use crate::config::pem::{self, PemFile, PemKind};
use crate::config::reference::Template;
use crate::config::spanned::{Location, Spanned};
use crate::config::{AgentTls, CardSource, Manifest};

/// The tools that every agent has on `/mcp`.
const SUBAGENT_TOOLS: [&str; 5] =
    ["subagent_start", "subagent_send", "subagent_cancel", "subagent_get", "subagent_wait"];
/// The gateway's own form of task URIs; the second is accepted too.
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

impl ManifestFile {
    /// Converts the manifest to settings. `None` after a problem with the card.
    pub(super) fn resolve(
        self,
        manifest: impl FnOnce(String) -> Manifest,
        sheet: &mut ManifestReader<'_>,
    ) -> Option<ManifestAgent> {
        self.mcp_bridge.check(&self.a2a.skills, sheet);
        let has_identity = self.security.mtls.as_ref().is_some_and(|mtls| mtls.enabled);
        let mut headers = Vec::new();
        let auth = self.security.auth.map(|auth| auth.resolve(has_identity, &mut headers, sheet));
        let streaming = self.capabilities.streaming();
        let methods = self.capabilities.resolve(has_identity, sheet);
        let tls = self.security.mtls.map(|mtls| mtls.resolve(sheet)).unwrap_or_default();
        let description = self.description.and_then(|text| {
            let place = sheet.place("/description");
            let text = Template::new(text).resolve(&mut sheet.reading, &place)?;
            Some(text.expose().to_owned())
        });
        Some(ManifestAgent {
            card: self.a2a.card(sheet)?,
            streaming,
            methods,
            auth: auth.unwrap_or_default(),
            description,
            headers,
            tls,
            tool_names: self.a2a.skills.into_iter().collect(),
            manifest: manifest(self.id),
        })
    }
}

impl A2aFile {
    fn card(&self, sheet: &mut ManifestReader<'_>) -> Option<CardSource> {
        if self.preferred_transport.as_deref().is_some_and(|transport| transport != "JSONRPC") {
            sheet.problem("/a2a/preferredTransport", format!("a transport other than JSONRPC {LATER}"));
        }
        let (place, uri) = sheet.one_line("/a2a/agentCardUri", self.agent_card_uri.clone())?;
        match agent::card(uri.expose(), &sheet.reading) {
            Ok(card) => Some(card),
            Err(problem) => sheet.reading.report_conflict(&place, problem),
        }
    }
}

impl MtlsFile {
    fn resolve(self, sheet: &mut ManifestReader<'_>) -> AgentTls {
        if !self.enabled {
            return AgentTls::default();
        }
        let mut read =
            |pointer: &str, text: Option<String>, holds: PemKind| -> Option<(Location, crate::config::Pem)> {
                let pem = Spanned::of(sheet.place(pointer), PemFile::new(text?));
                pem::resolve(pem, holds, &mut sheet.reading)
            };
        let ca = read("/security/mtls/ca", self.ca, PemKind::Certificates).map(|(_, ca)| ca);
        let certificate = read("/security/mtls/clientCert", self.client_cert, PemKind::Certificates);
        let key = read("/security/mtls/clientKey", self.client_key, PemKind::Key);
        let (certificate, key) = pem::pair(certificate, key, &mut sheet.reading).unzip();
        AgentTls { ca, certificate, key, server_name: None }
    }
}

impl BridgeFile {
    fn check(&self, skills: &BTreeMap<String, String>, sheet: &mut ManifestReader<'_>) {
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
