//! `log`, `shutdown` and `upgrade` as in the file.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use tracing_subscriber::EnvFilter;

use super::gateway::checked;
use crate::config::resolve::ResolveContext;
use crate::config::spanned::Spanned;
use crate::config::units::HumanDuration;
use crate::config::{Log, LogFormat, Shutdown, Upgrade};

const HOUR: Duration = Duration::from_secs(3600);

/// The log.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Log")]
pub(super) struct LogFile {
    /// How a line looks: `text` for people, `json` for machines.
    #[schemars(extend("default" = "text"))]
    format: Spanned<LogFormatFile>,
    /// Level of the log: `error`, `warn`, `info`, `debug` or `trace`, or directives such as `info,pingora=warn`.
    #[schemars(extend("default" = "info"))]
    level: Spanned<String>,
    /// Whether the audit log has the arguments of calls, up to 2 KiB of each call.
    #[schemars(extend("default" = false))]
    audit_arguments: Spanned<bool>,
    /// JSON pointers into arguments, such as `/card/number`; the audit log has `***` in place of what they point to.
    #[schemars(extend("default" = []))]
    redact: Spanned<Vec<Spanned<String>>>,
}

/// How a line of the log looks.
#[derive(Deserialize, JsonSchema, Clone, Copy)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "LogFormat")]
enum LogFormatFile {
    Text,
    Json,
}

impl LogFile {
    pub(super) fn resolve(self, reading: &mut ResolveContext<'_>) -> Log {
        let default = Log::default();
        let format = match self.format.value() {
            Some(LogFormatFile::Text) => LogFormat::Text,
            Some(LogFormatFile::Json) => LogFormat::Json,
            None => default.format,
        };
        let redact = checked(self.redact, pointer, reading).unwrap_or_default();
        let audit_arguments = self.audit_arguments.value().unwrap_or(false);
        let default = Log { format, audit_arguments, redact, ..default };
        let Some((place, level)) = self.level.take() else { return default };
        if !levels(&level) {
            reading.problem(
                &place,
                "is not a level (write error, warn, info, debug or trace, or info,pingora=warn)",
            );
        }
        Log { level, ..default }
    }
}

/// Checks a JSON pointer (RFC 6901 §3) to something within.
fn pointer(text: &str) -> Result<(), String> {
    let mut rest = text.split('~').skip(1);
    if text.starts_with('/') && rest.all(|after| after.starts_with(['0', '1'])) {
        return Ok(());
    }
    Err("is not a JSON pointer (write /name or /list/0/name; ~0 is ~, ~1 is /)".to_owned())
}

/// Returns true if the filter understands every directive. It would take a misspelt level for the
/// name of a module.
fn levels(text: &str) -> bool {
    let bare = |directive: &str| directive.parse::<tracing::level_filters::LevelFilter>().is_ok();
    let directives = text.split(',').map(str::trim);
    let named = |directive: &str| directive.contains(['=', '[']) || bare(directive);
    !text.trim().is_empty() && directives.into_iter().all(named) && EnvFilter::builder().parse(text).is_ok()
}

/// How the gateway ends.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Shutdown")]
pub(super) struct ShutdownFile {
    /// How long it still takes new requests after the signal, so that load balancers notice.
    #[schemars(extend("default" = "5s"))]
    grace: Spanned<HumanDuration>,
    /// How long it then waits for those under way. What an agent has not answered shortly before gets a handle.
    #[schemars(extend("default" = "20s"))]
    drain: Spanned<HumanDuration>,
}

impl ShutdownFile {
    pub(super) fn resolve(self, reading: &mut ResolveContext<'_>) -> Shutdown {
        let default = Shutdown::default();
        Shutdown {
            grace: reading.wait(self.grace, Duration::ZERO..=HOUR, default.grace),
            drain: reading.wait(self.drain, Duration::ZERO..=HOUR, default.drain),
        }
    }
}

/// How another process takes over (`serve --upgrade`).
#[derive(Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Upgrade")]
pub(super) struct UpgradeFile {
    /// The directory of the sockets through which a successor takes over: of the gateway's user,
    /// with mode 0700; made if it is not there. Each gateway of a user has its own. Without it:
    /// `mcp-a2a-gateway-UID` in the temporary directory.
    directory: Spanned<String>,
}

impl UpgradeFile {
    pub(super) fn resolve(self, reading: &ResolveContext<'_>) -> Upgrade {
        Upgrade { directory: self.directory.value().map(|path| reading.path(&path)) }
    }
}
