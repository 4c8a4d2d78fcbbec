//! The configuration: from the file to the settings, with all problems of the file in one report.
//!
//! ```text
//! text ─ yaml (with lines) ─ deserializer ─ keys of the sections ─ resolve ─ Settings
//!               └─────────────────┴────── Vec<Problem> ──────────────┘
//! ```
//!
//! Each section is declared once (`section`). One YAML file (JSON is YAML), strict, and those that
//! it includes, joined to one tree (`include`). The values of the file win; where the file has none, the
//! defaults of [`Settings`] apply. The environment and other files provide the references of
//! the file (`reference`), and seven variables override defaults of keys that the file leaves out
//! (`tasks`). Paths are relative to the folder of the file.
//!
//! Out of scope: applying the settings.

pub mod agent;
mod agent_defaults;
pub mod auth;
pub mod calls;
pub(crate) mod certificate;
pub mod credentials;
mod deserializer;
mod documentation;
pub mod endpoints;
mod forms;
mod host;
mod include;
pub mod listener;
mod manifest;
pub mod mcp;
pub mod outbound;
pub mod pem;
pub mod prompts;
pub mod reference;
mod resolve;
mod section;
pub mod settings;
mod sources;
mod yaml;

use std::cell::RefCell;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::Path;

use schemars::generate::SchemaSettings;
use serde::Deserialize;

use self::deserializer::ValueDeserializer;
use self::include::JoinedTree;
use self::reference::References;
use self::resolve::ResolveContext;
use self::settings::ConfigKeys;
use self::yaml::{YamlNode, YamlValue};
pub use crate::a2a::ApiKeyLocation;
pub use crate::mcp::tools::ResourceLinks;
pub(crate) use agent::Manifest;
pub use agent::{
    Agent, AgentTls, CardSignature, CardSource, Protocol, SkillOverride, TaskMode, ToolGranularity,
};
pub use agent_defaults::AgentDefaults;
pub use auth::Rule;
pub(crate) use auth::matches_pattern;
pub use auth::{
    ApiKeyOwner, ApiKeys, Auth, CertificateName, KeySource, Mechanism, Require, RequireRule, TokenIssuer,
    TokenVerification,
};
pub(crate) use calls::TASKS_FILE;
pub use calls::{Background, Push, Streams, Tasks};
pub use calls::{Calls, KnownClient, OnDecline, StreamTimeout};
pub(crate) use certificate::{check_spiffe_id, is_spiffe_uri};
use credentials::unencrypted_credentials;
pub use credentials::{AgentAuth, ApiKey, ApiKeyPlace, Authorization, ClientAuthMethod, Grant, OAuth2};
pub(crate) use credentials::{AgentMethod, MethodSettings, PerMethod};
pub(crate) use credentials::{is_forbidden, is_framing};
pub use documentation::{example, key_reference};
pub use endpoints::{AgentBinding, AgentTimeouts, Breaker, Health, Queue};
pub(crate) use forms::parse_duration;
pub(crate) use host::{Host, effective_port, is_loopback_host, origin_of};
pub use include::ConfigDocument;
pub(crate) use include::DocumentChanges;
pub use listener::{
    AddressHeader, Admin, ClientAuth, HealthListener, Listener, ListenerCertificate, ListenerTls, ReadyRule,
    Services, TlsProfile, TrustedProxies,
};
pub(crate) use mcp::MAX_TEMPLATE_BYTES;
pub use mcp::{
    ArtifactFiles, BatchFamily, Cards, FamilyPolicy, HttpResource, Mcp, MemoryFamily, PHASES, Resources,
    Sessions, Sparc,
};
pub use outbound::{
    AllowList, Allowed, EgressProxy, Network, Outbound, ProxyChoice, ProxyResolve, ProxyServer, Webhooks,
};
pub use outbound::{OtlpProtocol, Tracing};
pub use outbound::{State, StateContent, StateLocation, StateTopology};
pub use pem::Pem;
pub(crate) use pem::{key_algorithms, key_file, signing_key};
pub use prompts::{Prompt, PromptArgument, PromptMessage, PromptRole, StaticResource};
pub(crate) use reference::expand_argument;
pub use reference::{ReloadableSecret, Secret};
pub(crate) use resolve::read as read_file;
pub use resolve::{Problem, Problems};
pub use settings::Limits;
pub use settings::Settings;
pub use settings::{Log, LogFormat, Reload, Shutdown, Upgrade};
pub(crate) use sources::{
    AgentEdit, AgentsDraft, FoundAgent, LoadedSettings, agents_at, agents_in, agents_of_cards, found_agent,
};
pub use sources::{AgentSource, Source, SourcePlace};

/// Largest configuration file, in bytes.
const FILE: usize = 1 << 20;
/// The extensions of configuration files.
const CONFIG_EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

/// Reads a configuration file and everything that it names.
///
/// # Errors
///
/// Every problem that it has, each with line and path.
pub fn load(path: &Path) -> Result<Settings, Problems> {
    load_with(path, &|name| std::env::var_os(name))
}

/// Reads a configuration like [`load`], for a process without listeners: the file need not have
/// any.
///
/// # Errors
///
/// As [`load`].
pub fn load_for_stdio(path: &Path) -> Result<Settings, Problems> {
    let loaded = read(path, ListenerRule::Optional, &|name| std::env::var_os(name), None)?;
    Ok(loaded.settings)
}

/// Reads a configuration like [`load`], with an environment of the caller's choice.
///
/// # Errors
///
/// Every problem that it has, each with line and path.
pub fn load_with(path: &Path, environment: &dyn Fn(&str) -> Option<OsString>) -> Result<Settings, Problems> {
    Ok(read(path, ListenerRule::Required, environment, None)?.settings)
}

/// Reads a configuration like [`load`], with a change of the agents in `admin.agents_file`.
///
/// # Errors
///
/// As [`load`]; those of a new agent are in the file `body`.
pub(crate) fn load_edited(path: &Path, edit: Option<&AgentEdit>) -> Result<LoadedSettings, Problems> {
    read(path, ListenerRule::Required, &|name| std::env::var_os(name), edit)
}

/// Returns the address of the listener for probes, from a file that has problems elsewhere: those say
/// nothing about the process that runs. `None` if the file cannot be read so far, or has no such
/// listener without TLS.
pub(crate) fn probe_address(path: &Path) -> Option<SocketAddr> {
    let text = String::from_utf8(read_file(path, FILE).ok()?).ok()?;
    let root = yaml::parse(&text, &mut Vec::new()).ok()?;
    let health = member(&root, "health");
    let admin = member(&root, "admin").filter(|admin| member(admin, "tls").is_none());
    let section = health.or(admin)?;
    match (member(section, "address").map(|address| &address.value), health) {
        (Some(YamlValue::Text(address)), _) => address.parse().ok(),
        (None, Some(_)) => Some(HealthListener::default().address),
        (_, _) => None,
    }
}

/// Returns the value of a key of a section.
fn member<'n>(node: &'n YamlNode, name: &str) -> Option<&'n YamlNode> {
    let YamlValue::Section(entries) = &node.value else { return None };
    entries.iter().find_map(|(key, value)| (key.name == name).then_some(value))
}

/// Tells if a configuration must have listeners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListenerRule {
    Required,
    Optional,
}

fn read(
    path: &Path,
    listeners: ListenerRule,
    environment: &dyn Fn(&str) -> Option<OsString>,
    edit: Option<&AgentEdit>,
) -> Result<LoadedSettings, Problems> {
    let text = text_of(path).map_err(|problem| Problems::new(path, vec![problem]))?;
    if text.trim().is_empty() {
        return Err(Problems::whole(path, "is empty (it needs at least `listeners` and `agents`)"));
    }
    let mut problems = Vec::new();
    let root = match yaml::parse(&text, &mut problems) {
        Ok(root) => without_extensions(root),
        Err(problem) => {
            problems.push(problem);
            return Err(Problems::new(path, problems));
        }
    };
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut reading = ResolveContext::new(folder, environment, problems);
    reading.note_file(path);
    let mut joined = JoinedTree::new(root);
    joined.include(path, &mut reading);
    let references = References::new(reading.inside(folder));
    let agents = sources::join(&mut joined, edit, &references, &mut reading);
    let root = joined.finish(&mut reading);
    let joined_files = reading.files().len();
    let found = RefCell::default();
    let file = ConfigKeys::deserialize(ValueDeserializer::new(&root, &found, &references));
    for problem in found.into_inner() {
        reading.report(problem);
    }
    let settings = file.ok().map(|file| file.resolve(listeners, &mut reading));
    let (files, mut warnings) = (reading.files(), reading.warnings());
    let mut problems = reading.into_problems();
    references.hide(&mut problems);
    match settings {
        Some(mut settings) if problems.is_empty() => {
            warnings.extend(unencrypted_credentials(&settings));
            let document = ConfigDocument::new(&root, folder, files.get(joined_files..).unwrap_or_default());
            (settings.files, settings.warnings, settings.document) = (files, warnings, document);
            Ok(LoadedSettings { settings, agents })
        }
        _ => Err(Problems::new(path, problems)),
    }
}

/// Returns the JSON Schema (2020-12) of the configuration file, pretty, with a newline at its end.
pub fn schema() -> String {
    let mut schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<ConfigKeys>();
    reference::accept_in(&mut schema);
    format!("{:#}\n", schema.as_value())
}

/// Returns the JSON Schema (2020-12) of an ARDF manifest, `subagent@v0.1`, with a newline at its
/// end.
pub fn manifest_schema() -> &'static str {
    manifest::SCHEMA
}

/// Removes the top-level keys `x-…`: they hold anchors for the other keys.
fn without_extensions(mut root: YamlNode) -> YamlNode {
    if let YamlValue::Section(entries) = &mut root.value {
        entries.retain(|(key, _)| !key.name.starts_with("x-"));
    }
    root
}

/// Returns the text of a file of the configuration.
fn text_of(path: &Path) -> Result<String, Problem> {
    let whole = |problem: String| Problem { file: None, line: None, at: String::new(), problem };
    let extension = path.extension().map(|extension| extension.to_string_lossy().to_lowercase());
    if extension.is_some_and(|extension| !CONFIG_EXTENSIONS.contains(&extension.as_str())) {
        return Err(whole("is not a .yaml, .yml or .json file".to_owned()));
    }
    let bytes = resolve::read(path, FILE).map_err(|error| whole(format!("cannot read it: {error}")))?;
    String::from_utf8(bytes).map_err(|error| {
        let good = error.as_bytes().iter().take(error.utf8_error().valid_up_to());
        let line = 1 + good.filter(|byte| **byte == b'\n').count() as u64;
        Problem { line: Some(line), ..whole("is not UTF-8".to_owned()) }
    })
}
