//! ARDF manifests (`subagent@v0.1`): an agent in a file of its own, which other programs read too.
//!
//! JSON text → schema, no literal secrets → sections (`sections`) → [`ManifestAgent`]. Every violation
//! is reported with file, line and JSON pointer, and never quotes a value. Clients can read manifests,
//! so that all literal secrets are rejected; their forms are in `credential`.
//!
//! `manifests` names a folder in which every `*.json` is an agent, named by its `id`. The keys of the
//! configuration win.

mod credential;
mod sections;

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use http::HeaderName;
use http::header::AUTHORIZATION;
use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::{Map, Value};

use crate::config::agent::{AgentKeys, name_problem};
use crate::config::agent_defaults::AgentDefaultSource;
use crate::config::reference::Template;
use crate::config::resolve::{Problem, ResolveContext};
use crate::config::yaml::{self, Location, Spanned, YamlNode, YamlValue};
use crate::config::{
    Agent, AgentAuth, AgentBinding, AgentTls, CardSource, Manifest, MethodSettings, PerMethod,
    ReloadableSecret, Secret,
};
use credential::{
    has_credential, has_private_key, has_user, is_credential_value, is_numeric_secret, is_secret_member,
    is_wire_credential, is_written_out,
};
use sections::ManifestSections;

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
    pub(super) binding: Option<AgentBinding>,
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
        if self.binding.is_some() && keys.binding.is_default() {
            keys.binding = Spanned::default();
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
    let conforms = report_violations(&value, &mut reader);
    // After a violation the sections cannot be read; after a secret their problems could repeat it.
    let fits = report_secrets(&value, &mut reader) && conforms;
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

static VALIDATOR: LazyLock<Option<Validator>> = LazyLock::new(|| {
    let schema = serde_json::from_str(SCHEMA).ok()?;
    jsonschema::options().with_pattern_options(PatternOptions::regex()).build(&schema).ok()
});

/// Reports every violation; returns true if there was none.
fn report_violations(manifest: &Value, reader: &mut ManifestReader<'_>) -> bool {
    let Some(validator) = VALIDATOR.as_ref() else {
        // A test compiles the schema. A check that cannot be made refuses.
        reader.problem("", "cannot be checked");
        return false;
    };
    let mut fits = true;
    for error in validator.iter_errors(manifest) {
        fits = false;
        for (pointer, problem) in words(&error) {
            reader.problem(&pointer, problem);
        }
    }
    fits
}

/// Returns location and description of an error. Never the value itself: it may be a secret.
fn words(error: &ValidationError<'_>) -> Vec<(String, String)> {
    use ValidationErrorKind as Kind;
    let at = error.instance_path().to_string();
    let problem = match error.kind() {
        Kind::Required { property } => {
            let name = property.as_str().unwrap_or_default();
            return vec![(format!("{at}/{name}"), "is missing".to_owned())];
        }
        Kind::AdditionalProperties { unexpected } => {
            let below = |name: &String| (format!("{at}/{}", escaped(name)), "unknown key".to_owned());
            return unexpected.iter().map(below).collect();
        }
        Kind::Type { kind } => format!("is not {}", kind_of(kind)),
        Kind::Constant { expected_value } => format!("is not {expected_value}"),
        Kind::Enum { options } => {
            let options = options.as_array().map(Vec::as_slice).unwrap_or_default();
            let names: Vec<_> = options.iter().filter_map(Value::as_str).collect();
            format!("is not one of: {}", names.join(", "))
        }
        Kind::FalseSchema => "does not go with tokenUrl".to_owned(),
        Kind::MinLength { .. } => "is empty".to_owned(),
        Kind::MaxLength { limit } => format!("has more than {limit} characters"),
        Kind::Pattern { pattern } => format!("does not match {pattern}"),
        Kind::UniqueItems => "has an item twice".to_owned(),
        // The only choice in the schema.
        Kind::OneOfNotValid { .. } | Kind::OneOfMultipleValid { .. } => {
            "needs one of token, value and tokenUrl".to_owned()
        }
        _ => error.masked().to_string(),
    };
    vec![(at, problem)]
}

fn kind_of(kind: &TypeKind) -> &'static str {
    let TypeKind::Single(kind) = kind else { return "of the right kind" };
    match kind.to_string().as_str() {
        "string" => "a text",
        "object" => "an object",
        "array" => "a list",
        "boolean" => "true or false",
        _ => "of the right kind",
    }
}

/// Escapes a key for a JSON pointer; control characters would forge lines of the report.
fn escaped(key: &str) -> String {
    let key = key.replace('~', "~0").replace('/', "~1");
    key.chars().map(|each| if each.is_control() { '\u{fffd}' } else { each }).collect()
}

const SECRET: &str =
    "is a secret that is written out, and clients can read manifests (write ${env:NAME} or ${file:PATH})";
const KEY: &str = "is a private key that is written out, and clients can read manifests (write the path of its file, ${env:NAME} or \
     ${file:PATH})";

/// A secret, although its name does not show that.
const VALUE: &str = "/security/auth/value";
/// The path of a key, although its name is that of a key.
const KEY_PATH: &str = "/security/mtls/clientKey";
/// URLs to which requests are sent.
const CALLED: [&str; 2] = ["/a2a/agentCardUri", "/security/auth/tokenUrl"];
/// Names of tools by ids of skills: neither describes a value.
const SKILLS: &str = "/a2a/skills";
/// Members that name the member `value` beside them.
const LABELS: [&str; 4] = ["name", "key", "header", "field"];
/// Members of a private JWK (RFC 7518 §6), besides those of a public one.
const PRIVATE: [&str; 7] = ["d", "p", "q", "dp", "dq", "qi", "k"];

/// Expectation about a value, from the names of the members that contain it.
#[derive(Clone, Copy, PartialEq)]
enum SecretContext {
    /// None.
    Plain,
    /// It is the value of a header.
    Header,
    /// It is a secret.
    Secret,
}

/// Reports every literal secret; returns true if there was none.
fn report_secrets(manifest: &Value, reader: &mut ManifestReader<'_>) -> bool {
    let mut found = Vec::new();
    walk(manifest, String::new(), SecretContext::Plain, &mut found);
    found.iter().for_each(|(at, problem)| reader.problem(at, *problem));
    found.is_empty()
}

fn walk(value: &Value, at: String, inside: SecretContext, found: &mut Vec<(String, &'static str)>) {
    match value {
        Value::String(text) => {
            if let Some(problem) = problem_of(text, &at, inside) {
                found.push((at, problem));
            }
        }
        Value::Object(members) => {
            for (name, member) in members {
                if has_credential(name) {
                    // A problem with a nested value would repeat it.
                    found.push((at.clone(), SECRET));
                    continue;
                }
                let below = format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
                if member.is_number() && is_numeric_secret(name) {
                    found.push((below.clone(), SECRET));
                }
                let inside = within(name, members, &at, &below, inside);
                walk(member, below, inside, found);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                walk(item, format!("{at}/{index}"), inside, found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Returns the context of a member by its name and by the members around it.
fn within(
    name: &str,
    members: &Map<String, Value>,
    at: &str,
    below: &str,
    inside: SecretContext,
) -> SecretContext {
    let is_labelled = || {
        let mut labels = LABELS.iter().filter_map(|label| members.get(*label)?.as_str());
        name.eq_ignore_ascii_case("value") && labels.any(is_wire_credential)
    };
    if inside == SecretContext::Secret || below == VALUE {
        SecretContext::Secret
    } else if below == KEY_PATH || at == SKILLS {
        SecretContext::Plain
    } else if is_secret_member(name)
        || (inside == SecretContext::Header && is_wire_credential(name))
        || (members.contains_key("kty") && PRIVATE.contains(&name))
        || is_labelled()
    {
        SecretContext::Secret
    } else if inside == SecretContext::Header || name.eq_ignore_ascii_case("headers") {
        SecretContext::Header
    } else {
        SecretContext::Plain
    }
}

fn problem_of(text: &str, at: &str, inside: SecretContext) -> Option<&'static str> {
    if has_private_key(text) {
        return Some(KEY);
    }
    let is_secret = match inside {
        SecretContext::Secret => is_written_out(text),
        SecretContext::Header => is_credential_value(text),
        SecretContext::Plain => false,
    };
    // The reader of such a URL rejects a user name in it with a remedy of its own.
    let is_read = CALLED.contains(&at) || (at.starts_with("/capabilities/") && at.ends_with("/endpoint"));
    (is_secret || has_credential(text) || (!is_read && has_user(text))).then_some(SECRET)
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
