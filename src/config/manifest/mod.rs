//! ARDF manifests (`subagent@v0.1`): an agent in a file of its own, which other programs read too.
//!
//! JSON text → schema, no literal secrets (`checks`) → sections (`sections`) →
//! [`ManifestAgent`]. A problem names file, line and JSON pointer, and never quotes a value.
//!
//! `manifests` names a folder in which every `*.json` is an agent, named by its `id`. The keys of the
//! configuration win.

mod checks;
mod credential;
mod sections;

use std::path::{Path, PathBuf};

use http::HeaderName;
use http::header::AUTHORIZATION;

use self::sections::ManifestSections;
use crate::config::agent::{AgentKeys, name_problem};
use crate::config::agent_defaults::AgentDefaultSource;
use crate::config::reference::Template;
use crate::config::resolve::Problem;
use crate::config::resolve::ResolveContext;
use crate::config::spanned::{Location, Spanned};
use crate::config::yaml::{self, YamlNode, YamlValue};
use crate::config::{
    Agent, AgentAuth, AgentTls, CardSource, Manifest, MethodSettings, PerMethod, ReloadableSecret, Secret,
};

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

    /// Removes the defaults of all agents that the manifest states otherwise.
    pub(super) fn displace(&self, keys: &mut AgentKeys) {
        if self.streaming.is_some() && keys.streaming.is_default() {
            keys.streaming = Spanned::default();
        }
        if let Some(tls) = keys.tls.get_mut().filter(|tls| self.tls.ca.is_some() && tls.ca.is_default()) {
            tls.ca = Spanned::default();
        }
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

/// A manifest, and its problems.
pub(super) struct ManifestReader<'a> {
    /// JSON is YAML, and the YAML parser knows lines. It has narrower limits: without it problems
    /// have no lines, and one of them states that.
    tree: Option<YamlNode>,
    /// Its folder, the environment, and its own problems.
    pub(super) context: ResolveContext<'a>,
}

impl<'a> ManifestReader<'a> {
    pub(super) fn new(text: &str, mut context: ResolveContext<'a>) -> Self {
        let mut twice = Vec::new();
        let tree = yaml::parse(text, &mut twice).ok();
        for problem in twice {
            context.report(Problem { at: format!("/{}", problem.at.replace('.', "/")), ..problem });
        }
        if tree.is_none() {
            // The last of two members counts, and clients could read a secret in the first.
            let problem = "cannot be checked for members that are written twice (it is nested too deeply, or has such members \
                           or control characters in it)";
            context.report(Problem {
                file: None,
                line: None,
                at: String::new(),
                problem: problem.to_owned(),
            });
        }
        Self { tree, context }
    }

    /// Returns the problems, in the order of the lines.
    pub(super) fn into_problems(self) -> Vec<Problem> {
        let mut problems = self.context.into_problems();
        problems.sort_by_key(|problem| problem.line);
        problems.iter_mut().filter(|problem| problem.line == Some(0)).for_each(|problem| problem.line = None);
        problems
    }

    /// Returns the location of a JSON pointer; of the nearest member above it, if that is missing.
    /// Line 0 is unknown.
    pub(super) fn place(&self, pointer: &str) -> Location {
        let at = pointer.to_owned();
        let Some(mut node) = self.tree.as_ref() else { return Location { line: 0, at } };
        let mut line = node.line;
        for segment in pointer.split('/').skip(1) {
            let name = segment.replace("~1", "/").replace("~0", "~");
            let below = match &node.value {
                YamlValue::Section(entries) => {
                    entries.iter().find(|(key, _)| key.name == name).map(|(key, node)| (key.line, node))
                }
                YamlValue::List(items) => {
                    name.parse().ok().and_then(|index: usize| items.get(index)).map(|node| (node.line, node))
                }
                _ => None,
            };
            let Some(below) = below else { break };
            (line, node) = below;
        }
        Location { line, at }
    }

    /// Reports a problem.
    pub(super) fn problem(&mut self, pointer: &str, problem: impl Into<String>) {
        let place = self.place(pointer);
        self.context.problem(&place, problem);
    }

    /// Returns a text with its location.
    pub(super) fn written(&self, pointer: &str, text: String) -> Spanned<Template> {
        Spanned::of(self.place(pointer), Template::new(text))
    }

    /// Resolves the references of a text of one line.
    pub(super) fn one_line(&mut self, pointer: &str, text: String) -> Option<(Location, Secret)> {
        self.written(pointer, text).resolve(&mut self.context)
    }

    /// Resolves the references; the result knows the files that it comes from.
    pub(super) fn live(&mut self, pointer: &str, text: String) -> Option<ReloadableSecret> {
        self.written(pointer, text).resolve(&mut self.context).map(|(_, secret)| secret)
    }
}

/// Most manifests in one folder.
const MAX_MANIFESTS: usize = 1000;

/// Returns the agents of the folder. Names that `taken` has, or that two manifests have, are
/// problems.
pub(in crate::config) fn agents(
    written: Spanned<String>,
    mut taken: Vec<String>,
    mut defaults: Option<&mut AgentDefaultSource>,
    context: &mut ResolveContext<'_>,
) -> Vec<Agent> {
    let Some((place, folder)) = written.take() else { return Vec::new() };
    let folder = context.path(&folder);
    // Files that are added to it are a change.
    context.note_file(&folder);
    let files = match files(&folder) {
        Ok(files) => files,
        Err(problem) => {
            context.problem(&place, problem);
            return Vec::new();
        }
    };
    let mut agents = Vec::new();
    for file in files {
        let Some(agent) = agent(file, &taken, &place, defaults.as_deref_mut(), context) else { continue };
        taken.push(agent.name.clone());
        agents.push(agent);
    }
    agents
}

fn agent(
    file: PathBuf,
    taken: &[String],
    place: &Location,
    defaults: Option<&mut AgentDefaultSource>,
    context: &mut ResolveContext<'_>,
) -> Option<Agent> {
    let shown = file.display().to_string();
    let described = load(file, place, context)?;
    let name = name(&described.manifest.id);
    if let Some(problem) = name_problem(&name) {
        return context.report_conflict(place, format!("{shown}: /id: {problem}"));
    }
    if taken.contains(&name) {
        return context.report_conflict(place, format!("{shown}: /id: there is an agent {name} already"));
    }
    let keys = AgentKeys { section: place.clone(), ..AgentKeys::default() };
    keys.with(name, Some(described), defaults, context)
}

/// Converts an id to a name: lower case, other characters as `-`, at most 32.
pub(super) fn name(id: &str) -> String {
    let fits = |each: char| each.is_ascii_alphanumeric() || matches!(each, '-' | '_');
    let name = id.chars().map(|each| if fits(each) { each.to_ascii_lowercase() } else { '-' });
    name.skip_while(|each| !each.is_ascii_alphanumeric()).take(32).collect()
}

fn files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let unreadable = |error| format!("cannot read {}: {error}", folder.display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_some_and(|extension| extension == "json") && !path.is_dir() {
            files.push(path);
        }
        if files.len() > MAX_MANIFESTS {
            return Err(format!("{} holds more than {MAX_MANIFESTS} manifests", folder.display()));
        }
    }
    if files.is_empty() {
        return Err(format!("{} holds no manifest (a file *.json)", folder.display()));
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_becomes_a_name_of_an_agent() {
        for (id, expected) in [
            ("ventas-core", "ventas-core"),
            ("Ventas Core", "ventas-core"),
            ("urn:acme:Ventas_1", "urn-acme-ventas_1"),
            ("--ñandú", "and-"),
            ("a234567890123456789012345678901234567890", "a2345678901234567890123456789012"),
            ("…", ""),
        ] {
            assert_eq!(name(id), expected, "{id}");
        }
    }
}
