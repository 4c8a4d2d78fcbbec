//! The configuration: from the file to the settings, with all problems of the file in one report.
//!
//! ```text
//! text ─ yaml (with lines) ─ deserializer ─ file/* (as in the file) ─ resolve ─ Settings
//!               └─────────────────┴── Vec<Problem> ──────────────────────┘
//! ```
//!
//! One YAML file (JSON is YAML), strict. The values of the file win; where the file has none, the
//! defaults of [`Settings`] apply. The environment provides the references of the file
//! (`${env:NAME}`), and seven variables override defaults of keys that the file leaves out
//! (`env_override`). Paths are relative to the folder of the file.
//!
//! Out of scope: applying the settings.

pub(crate) mod certificate;
mod de_error;
mod deserializer;
mod env_override;
mod file;
mod host;
mod jwks;
mod pem;
mod problem;
mod reference;
mod reloadable_secret;
mod reserved_headers;
mod resolve;
mod secret;
mod settings;
mod signing;
mod spanned;
mod spiffe;
mod suggest;
mod units;
mod yaml;

use std::cell::RefCell;
use std::ffi::OsString;
use std::path::Path;

use schemars::generate::SchemaSettings;
use serde::Deserialize;

use self::deserializer::ValueDeserializer;
use self::file::ConfigFile;
use self::resolve::ResolveContext;
pub use crate::a2a::ApiKeyLocation;
pub use crate::mcp::content::ResourceLinks;
pub use certificate::CertificateProblem;
pub use host::Host;
pub(crate) use host::{effective_port, is_loopback_host, origin_of};
pub use jwks::{key_algorithms, key_file};
pub use problem::{Problem, Problems};
pub use reloadable_secret::ReloadableSecret;
pub use reserved_headers::{FRAMING, is_forbidden};
pub use secret::Secret;
pub use settings::{
    Admin, Agent, AgentAuth, AgentMethod, AgentTimeouts, AgentTls, AllowList, Allowed, ApiKey, ApiKeyOwner,
    ApiKeyPlace, ApiKeys, Auth, Authorization, Background, Breaker, Calls, CardSignature, CardSource, Cards,
    CertificateName, ClientAuth, ClientAuthMethod, Grant, Health, KeySource, KnownClient, Limits, Listener,
    ListenerCertificate, ListenerTls, Log, LogFormat, Manifest, Mcp, Mechanism, MethodSettings, Network,
    OAuth2, OnDecline, Outbound, Pem, PerMethod, Protocol, Push, Queue, Require, RequireRule, Rule, Services,
    Sessions, Settings, Shutdown, SkillOverride, StreamTimeout, Streams, TaskMode, Tasks, TlsProfile,
    TokenIssuer, TokenVerification, ToolGranularity, Upgrade, Webhooks,
};
pub(crate) use signing::signing_key;
pub(crate) use spiffe::{check_spiffe_id, is_spiffe_uri};
pub(crate) use units::parse_duration;

/// Largest configuration file, in bytes.
const FILE: usize = 1 << 20;

/// Reads a configuration file and everything that it names.
///
/// # Errors
///
/// Every problem that it has, each with line and path.
pub fn load(path: &Path) -> Result<Settings, Problems> {
    load_with(path, &|name| std::env::var_os(name))
}

/// Reads a configuration like [`load`], with an environment of the caller's choice.
///
/// # Errors
///
/// Every problem that it has, each with line and path.
pub fn load_with(path: &Path, environment: &dyn Fn(&str) -> Option<OsString>) -> Result<Settings, Problems> {
    let text = text(path)?;
    let mut problems = Vec::new();
    let root = match yaml::parse(&text, &mut problems) {
        Ok(root) => root,
        Err(problem) => {
            problems.push(problem);
            return Err(Problems::new(path, problems));
        }
    };
    let found = RefCell::new(problems);
    let file = ConfigFile::deserialize(ValueDeserializer::new(&root, &found));
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut reading = ResolveContext::new(folder, environment, found.into_inner());
    let settings = file.ok().map(|file| file.resolve(&mut reading));
    let problems = reading.into_problems();
    match settings {
        Some(settings) if problems.is_empty() => Ok(settings),
        _ => Err(Problems::new(path, problems)),
    }
}

/// Returns the JSON Schema (2020-12) of the configuration file, pretty, with a newline at its end.
pub fn schema() -> String {
    let schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<ConfigFile>();
    format!("{:#}\n", schema.as_value())
}

/// Returns the JSON Schema (2020-12) of an ARDF manifest, `subagent@v0.1`, with a newline at its
/// end.
pub fn manifest_schema() -> &'static str {
    file::manifest::SCHEMA
}

fn text(path: &Path) -> Result<String, Problems> {
    let extension = path.extension().map(|extension| extension.to_string_lossy().to_lowercase());
    if extension.is_some_and(|extension| !matches!(extension.as_str(), "yaml" | "yml" | "json")) {
        return Err(Problems::whole(path, "is not a .yaml, .yml or .json file"));
    }
    let bytes = resolve::read(path, FILE)
        .map_err(|error| Problems::whole(path, format!("cannot read it: {error}")))?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let good = error.as_bytes().iter().take(error.utf8_error().valid_up_to());
        let line = 1 + good.filter(|byte| **byte == b'\n').count() as u64;
        let problem = Problem { line: Some(line), at: String::new(), problem: "is not UTF-8".to_owned() };
        Problems::new(path, vec![problem])
    })?;
    if text.trim().is_empty() {
        return Err(Problems::whole(path, "is empty (it needs at least `listeners` and `agents`)"));
    }
    Ok(text)
}
