//! The sections of a manifest, and their conversion to settings. Unsupported values are rejected,
//! never ignored.
//!
//! Reads only values that match the schema.

use std::collections::BTreeMap;
use std::path::PathBuf;

use http::{HeaderName, Uri};
use serde::Deserialize;

use super::ManifestReader;
use super::{BRIDGED_TOOLS, ManifestAgent};
use crate::config::agent::{add_header, card};
use crate::config::credentials::{check_key_name, check_scope, check_token_url};
use crate::config::forms::Form;
use crate::config::pem::{self, CertificatePem, KeyPem};
use crate::config::reference::Template;
use crate::config::{
    AgentAuth, AgentBinding, AgentTls, ApiKey, ApiKeyLocation, ApiKeyPlace, Authorization, CardSource,
    ClientAuthMethod, Grant, Manifest, MethodSettings, OAuth2, Pem, PerMethod, ReloadableSecret,
};

/// The task tools on `/mcp`.
const SUBAGENT_TOOLS: [&str; 5] =
    ["subagent_start", "subagent_send", "subagent_cancel", "subagent_get", "subagent_wait"];
/// The gateway's own form of task URIs; the second is accepted too.
const TASK_TEMPLATES: [&str; 2] = ["a2a://task/{taskId}", "a2a://tasks/{taskId}"];
const NOT_SUPPORTED_YET: &str = "comes with a later version";

/// A manifest.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ManifestSections {
    id: String,
    name: String,
    description: Option<String>,
    a2a: ManifestA2a,
    #[serde(default)]
    security: ManifestSecurity,
    #[serde(default)]
    mcp_bridge: McpBridge,
    task_resource_template: Option<String>,
    #[serde(default)]
    capabilities: ManifestCapabilities,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ManifestA2a {
    agent_card_uri: String,
    preferred_transport: Option<PreferredTransport>,
    #[serde(default)]
    skills: BTreeMap<String, String>,
}

#[derive(Deserialize, Clone, Copy)]
enum PreferredTransport {
    #[serde(rename = "JSONRPC")]
    JsonRpc,
    #[serde(rename = "HTTP+JSON")]
    HttpJson,
    #[serde(rename = "GRPC")]
    Grpc,
}

impl From<PreferredTransport> for AgentBinding {
    fn from(transport: PreferredTransport) -> Self {
        match transport {
            PreferredTransport::JsonRpc => Self::JsonRpc,
            PreferredTransport::HttpJson => Self::HttpJson,
            PreferredTransport::Grpc => Self::Grpc,
        }
    }
}

#[derive(Deserialize, Default)]
struct ManifestSecurity {
    auth: Option<ManifestAuth>,
    mtls: Option<ManifestMtls>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ManifestMtls {
    enabled: bool,
    client_cert: Option<String>,
    client_key: Option<String>,
    ca: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct McpBridge {
    tools: Option<Vec<ManifestTool>>,
    task_resource_template: Option<String>,
}

#[derive(Deserialize)]
struct ManifestTool {
    name: String,
}

impl ManifestSections {
    /// Converts the manifest in the file `path` to settings. `None` after a problem with the card.
    pub(super) fn resolve(
        self,
        path: PathBuf,
        text: String,
        reader: &mut ManifestReader<'_>,
    ) -> Option<ManifestAgent> {
        self.mcp_bridge.check(&self.a2a.skills, reader);
        check_template("/taskResourceTemplate", self.task_resource_template.as_deref(), reader);
        let has_identity = self.security.mtls.as_ref().is_some_and(|mtls| mtls.enabled);
        let mut headers = Vec::new();
        let auth = self.security.auth.map(|auth| auth.resolve(has_identity, &mut headers, reader));
        let streaming = self.capabilities.streaming();
        let methods = self.capabilities.resolve(has_identity, reader);
        let tls = self.security.mtls.map(|mtls| mtls.resolve(reader)).unwrap_or_default();
        let description = self.description.and_then(|text| {
            let place = reader.place("/description");
            let text = Template::new(text).expand(&mut reader.context, &place)?;
            Some(text.expose().to_owned())
        });
        let manifest = Manifest {
            path,
            id: self.id,
            name: self.name,
            tools: self.mcp_bridge.tools.map(|tools| tools.into_iter().map(|tool| tool.name).collect()),
            has_certificate: tls.certificate.is_some(),
            text,
        };
        Some(ManifestAgent {
            card: self.a2a.card(reader)?,
            streaming,
            binding: self.a2a.preferred_transport.map(AgentBinding::from),
            methods,
            auth: auth.unwrap_or_default(),
            description,
            headers,
            tls,
            tool_names: self.a2a.skills.into_iter().collect(),
            manifest,
        })
    }
}

impl ManifestA2a {
    fn card(&self, reader: &mut ManifestReader<'_>) -> Option<CardSource> {
        let (place, uri) = reader.one_line("/a2a/agentCardUri", self.agent_card_uri.clone())?;
        match card(uri.expose(), &reader.context) {
            Ok(card) => Some(card),
            Err(problem) => reader.context.report_conflict(&place, problem),
        }
    }
}

impl ManifestMtls {
    fn resolve(self, reader: &mut ManifestReader<'_>) -> AgentTls {
        if !self.enabled {
            return AgentTls::default();
        }
        let ca = read_pem("/security/mtls/ca", self.ca.map(CertificatePem::from), reader);
        let certificate = self.client_cert.map(CertificatePem::from);
        let certificate = read_pem("/security/mtls/clientCert", certificate, reader);
        let key = read_pem("/security/mtls/clientKey", self.client_key.map(KeyPem::from), reader);
        let place = reader.place("/security/mtls/clientCert");
        let (certificate, key) = pem::pair(certificate, key, &place, &mut reader.context).unzip();
        AgentTls { ca, certificate, key, server_name: None }
    }
}

fn read_pem<F: Form<Pem>>(pointer: &str, pem: Option<F>, reader: &mut ManifestReader<'_>) -> Option<Pem> {
    let place = reader.place(pointer);
    pem?.resolve(&place, &mut reader.context)
}

impl McpBridge {
    fn check(&self, skills: &BTreeMap<String, String>, reader: &mut ManifestReader<'_>) {
        for (index, ManifestTool { name }) in self.tools.iter().flatten().enumerate() {
            let known = SUBAGENT_TOOLS.contains(&name.as_str()) || skills.values().any(|tool| tool == name);
            if !known {
                let known = SUBAGENT_TOOLS.join(", ");
                let problem = format!("is no tool of the gateway (known: {known}, and those of a2a.skills)");
                reader.problem(&format!("/mcpBridge/tools/{index}/name"), problem);
            }
        }
        let [start, ..] = BRIDGED_TOOLS;
        if self.tools.as_ref().is_some_and(|tools| tools.iter().all(|tool| tool.name != start)) {
            reader.problem("/mcpBridge/tools", format!("does not name {start}, which every agent needs"));
        }
        let template = self.task_resource_template.as_deref();
        check_template("/mcpBridge/taskResourceTemplate", template, reader);
    }
}

/// Reports a template of task URIs that is not the gateway's own.
fn check_template(pointer: &str, template: Option<&str>, reader: &mut ManifestReader<'_>) {
    if template.is_some_and(|template| !TASK_TEMPLATES.contains(&template)) {
        let problem =
            format!("another form of URI {NOT_SUPPORTED_YET} (write {})", TASK_TEMPLATES.join(" or "));
        reader.problem(pointer, problem);
    }
}

/// `security.auth`: a token or a key from the file, or tokens that are fetched.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ManifestAuth {
    #[serde(rename = "type")]
    kind: ManifestAuthKind,
    token: Option<String>,
    value: Option<String>,
    #[serde(rename = "in")]
    place: Option<String>,
    name: Option<String>,
    token_url: Option<String>,
    client_id: Option<String>,
    client_secret: Option<String>,
    audience: Option<String>,
    resource: Option<String>,
    #[serde(default)]
    scopes: Vec<String>,
}

#[derive(Deserialize, Clone, Copy, PartialEq)]
enum ManifestAuthKind {
    #[serde(rename = "oauth2")]
    OAuth2,
    #[serde(rename = "apiKey")]
    ApiKey,
}

impl ManifestAuth {
    /// Converts a value to a header, or to a key elsewhere; with a token endpoint tokens are
    /// fetched.
    pub(super) fn resolve(
        self,
        has_identity: bool,
        all: &mut Vec<(HeaderName, ReloadableSecret)>,
        reader: &mut ManifestReader<'_>,
    ) -> AgentAuth {
        let mut auth = AgentAuth::default();
        if let Some(url) = self.token_url.clone() {
            let oauth2 = self.fetched(url, has_identity, reader);
            auth.authorization = oauth2.map(|oauth2| Authorization::OAuth2(Box::new(oauth2)));
            return auth;
        }
        let (pointer, secret) = match (self.token, self.value) {
            (Some(token), _) => ("/security/auth/token", token),
            (None, Some(value)) => ("/security/auth/value", value),
            (None, None) => return auth,
        };
        let place = match self.place.as_deref() {
            Some("query") => Some(("query", ApiKeyLocation::Query)),
            Some("cookie") => Some(("cookie", ApiKeyLocation::Cookie)),
            Some(_) | None => None,
        };
        if let Some((word, place)) = place {
            let Some(name) = self.name else {
                reader.problem("/security/auth/name", format!("is missing: a {word} needs one"));
                return auth;
            };
            if let Err(problem) = check_key_name(place, &name, &[]) {
                reader.problem("/security/auth/name", problem);
            }
            let place = ApiKeyPlace::Written(place, name);
            auth.api_keys.extend(reader.live(pointer, secret).map(|value| ApiKey { value, place }));
            return auth;
        }
        let names_bearer = secret.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case("bearer "));
        let secret = match self.kind {
            ManifestAuthKind::OAuth2 if !names_bearer => format!("Bearer {secret}"),
            ManifestAuthKind::OAuth2 | ManifestAuthKind::ApiKey => secret,
        };
        let name = self.name.as_deref().unwrap_or("Authorization");
        let value = reader.written(pointer, secret);
        add_header(name, value, all, &mut reader.context);
        auth
    }

    /// Returns the settings of token requests: with the secret, or with the certificate of
    /// `security.mtls`.
    fn fetched(self, url: String, has_identity: bool, reader: &mut ManifestReader<'_>) -> Option<OAuth2> {
        let (place, url) = reader.one_line("/security/auth/tokenUrl", url)?;
        if let Err(problem) = check_token_url(url.expose()) {
            reader.context.problem(&place, problem);
        }
        for (index, scope) in self.scopes.iter().enumerate() {
            if let Err(problem) = check_scope(scope) {
                reader.problem(&format!("/security/auth/scopes/{index}"), problem);
            }
        }
        let client_id = reader.one_line("/security/auth/clientId", self.client_id?)?;
        let proof = match self.client_secret {
            Some(secret) => {
                ClientAuthMethod::SecretBasic(reader.live("/security/auth/clientSecret", secret)?)
            }
            None if has_identity => ClientAuthMethod::TlsClientAuth,
            None => {
                reader.problem("/security/auth/clientSecret", "is missing (or enable security.mtls)");
                return None;
            }
        };
        Some(OAuth2 {
            token_url: url.expose().to_owned(),
            client_id: client_id.1.expose().to_owned(),
            proof,
            grant: Grant::ClientCredentials,
            scopes: self.scopes,
            audience: self.audience,
            resources: self.resource.into_iter().collect(),
            ca: None,
        })
    }
}

/// `capabilities`: overrides for single methods.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct ManifestCapabilities {
    message: MessageCapabilities,
    tasks: TaskCapabilities,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct MessageCapabilities {
    send: MethodCapability,
    stream: Option<MethodCapability>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct TaskCapabilities {
    get: MethodCapability,
    cancel: MethodCapability,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct MethodCapability {
    endpoint: Option<String>,
    headers: BTreeMap<String, String>,
    mtls: Option<bool>,
    sse: Option<bool>,
}

impl ManifestCapabilities {
    /// Returns true if messages are answered by a stream; `None` if the card decides. An endpoint
    /// for `message.send` alone would never be called if messages were streamed.
    pub(super) fn streaming(&self) -> Option<bool> {
        let MessageCapabilities { send, stream } = &self.message;
        let is_sent = send.endpoint.is_some() && stream.is_none();
        let streams = stream.as_ref().and_then(|stream| stream.sse);
        streams.or(is_sent.then_some(false))
    }

    /// Returns the overrides for each method.
    pub(super) fn resolve(
        self,
        has_identity: bool,
        reader: &mut ManifestReader<'_>,
    ) -> PerMethod<MethodSettings> {
        let mut read = |at, file: MethodCapability| file.resolve(at, has_identity, reader);
        PerMethod {
            send: read("/capabilities/message/send", self.message.send),
            stream: read("/capabilities/message/stream", self.message.stream.unwrap_or_default()),
            get: read("/capabilities/tasks/get", self.tasks.get),
            cancel: read("/capabilities/tasks/cancel", self.tasks.cancel),
        }
    }
}

impl MethodCapability {
    fn resolve(self, at: &str, has_identity: bool, reader: &mut ManifestReader<'_>) -> MethodSettings {
        if self.mtls == Some(true) && !has_identity {
            reader.problem(&format!("{at}/mtls"), "security.mtls is not enabled");
        }
        if self.sse == Some(true) && at != "/capabilities/message/stream" {
            reader.problem(&format!("{at}/sse"), "only message.stream is answered by an event stream");
        }
        let endpoint =
            self.endpoint.and_then(|endpoint| method_url(&format!("{at}/endpoint"), endpoint, reader));
        let mut own = Vec::new();
        for (name, text) in self.headers {
            let pointer = format!("{at}/headers/{}", name.replace('~', "~0").replace('/', "~1"));
            let value = reader.written(&pointer, text);
            add_header(&name, value, &mut own, &mut reader.context);
        }
        MethodSettings { endpoint, headers: own, mtls: self.mtls }
    }
}

fn method_url(pointer: &str, written: String, reader: &mut ManifestReader<'_>) -> Option<String> {
    let (place, url) = reader.one_line(pointer, written)?;
    let is_url = url
        .expose()
        .parse::<Uri>()
        .is_ok_and(|uri| uri.host().is_some() && matches!(uri.scheme_str(), Some("http" | "https")));
    match is_url && !url.expose().contains('@') {
        true => Some(url.expose().to_owned()),
        false => reader
            .context
            .report_conflict(&place, "is not a URL (write https://HOST/PATH, without credentials)"),
    }
}
