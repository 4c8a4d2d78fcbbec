//! ARDF manifests (`subagent@v0.1`): an agent in a file of its own, which other programs read too.
//!
//! JSON text → schema, no literal secrets (`checks`) → sections (`sections`) →
//! [`ManifestAgent`]. A problem names file, line and JSON pointer, and never quotes a value.
//!
//! The keys of the configuration win.

mod checks;
mod credential;
mod folder;
mod reader;
mod sections;

use std::path::PathBuf;

use http::HeaderName;
use http::header::AUTHORIZATION;

use self::reader::ManifestReader;
use self::sections::ManifestSections;
use crate::config::resolve::ResolveContext;
use crate::config::spanned::Location;
use crate::config::{
    Agent, AgentAuth, AgentTls, CardSource, Manifest, MethodSettings, PerMethod, ReloadableSecret,
};

pub(super) use folder::agents;

/// The JSON Schema (2020-12) of a manifest.
pub(super) const SCHEMA: &str = include_str!("../../../schemas/subagent.v0.1.json");
/// The tools that an agent has only if its manifest names them in `mcpBridge.tools`. It must name
/// the first.
pub(super) const BRIDGED_TOOLS: [&str; 3] = ["subagent_start", "subagent_send", "subagent_cancel"];
/// Largest manifest, in bytes.
const MANIFEST_FILE: usize = 1 << 20;

/// The settings of an agent from its manifest.
pub(super) struct ManifestAgent {
    pub(super) card: CardSource,
    pub(super) streaming: Option<bool>,
    methods: PerMethod<MethodSettings>,
    auth: AgentAuth,
    description: Option<String>,
    headers: Vec<(HeaderName, ReloadableSecret)>,
    tls: AgentTls,
    tool_names: Vec<(String, String)>,
    manifest: Manifest,
}

impl ManifestAgent {
    /// Returns true if the gateway presents a client certificate to the agent.
    pub(super) fn has_identity(&self) -> bool {
        self.tls.certificate.is_some()
    }

    /// Adds the values to an agent that the configuration left open.
    pub(super) fn complete(mut self, agent: &mut Agent) {
        let is_authorized = agent.auth.authorization.is_some();
        for (name, value) in self.headers {
            let is_taken = name == AUTHORIZATION && is_authorized;
            if !is_taken && !agent.headers.iter().any(|(written, _)| *written == name) {
                agent.headers.push((name, value));
            }
        }
        agent.methods = self.methods;
        if agent.auth.api_keys.is_empty() {
            agent.auth.api_keys = self.auth.api_keys;
        }
        if !agent.headers.iter().any(|(written, _)| *written == AUTHORIZATION) {
            agent.auth.authorization = agent.auth.authorization.take().or(self.auth.authorization);
        }
        let AgentTls { ca, certificate, key, server_name: _ } = self.tls;
        agent.tls.ca = agent.tls.ca.take().or(ca);
        if agent.tls.certificate.is_none() {
            (agent.tls.certificate, agent.tls.key) = (certificate, key);
        } else {
            self.manifest.has_certificate = false;
        }
        for (skill, tool) in self.tool_names {
            agent.skills.entry(skill).or_default().tool_name.get_or_insert(tool);
        }
        agent.description = agent.description.take().or(self.description);
        agent.manifest = Some(self.manifest);
    }
}

/// Reads a manifest. Its problems are reported at `place`, which names it.
pub(super) fn load(
    path: PathBuf,
    place: &Location,
    context: &mut ResolveContext<'_>,
) -> Option<ManifestAgent> {
    let text = match context.file(&path, MANIFEST_FILE) {
        Ok(text) => text,
        Err(problem) => return context.report_conflict(place, problem),
    };
    let value: serde_json::Value = match serde_json::from_str(&text) {
        Ok(value) => value,
        Err(error) => {
            return context.report_conflict(place, format!("{} is not JSON: {error}", path.display()));
        }
    };
    let folder = path.parent().map(PathBuf::from).unwrap_or_default();
    let mut reader = ManifestReader::new(&text, context.inside(&folder));
    let conforms = checks::report_violations(&value, &mut reader);
    // After a violation the sections cannot be read; after a secret their problems could repeat it.
    let fits = checks::report_secrets(&value, &mut reader) && conforms;
    let file: Option<ManifestSections> = if fits { serde_json::from_value(value).ok() } else { None };
    if fits && file.is_none() {
        reader.problem("", "cannot be read");
    }
    let described = file.and_then(|file| file.resolve(path.clone(), text, &mut reader));
    for problem in reader.into_problems() {
        let line = problem.line.map(|line| format!(":{line}")).unwrap_or_default();
        context.problem(place, format!("{}{line}: {problem}", path.display()));
    }
    described
}
