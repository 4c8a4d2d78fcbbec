//! `log`, `shutdown` and `upgrade`.

use std::path::PathBuf;
use std::time::Duration;

use tracing_subscriber::EnvFilter;

use super::forms::{checked_text, choice};
use super::section::section;
use super::spanned::Spanned;

section! {
    /// The log.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Log {
        /// Format of a line on standard error: `text` for people, `json` for machines.
        format: LogFormat = text,
        /// Level of the log: `error`, `warn`, `info`, `debug` or `trace`, or directives such as
        /// `info,access=off`.
        level: String as LogLevel = info,
        /// True if the audit log contains the arguments of calls, up to 2 KiB of each call.
        audit_arguments: bool = false,
        /// JSON pointers (RFC 6901) into arguments, such as `/card/number`; the audit log contains
        /// `***` in place of the values that they point to.
        redact: Vec<String> as Vec<Spanned<JsonPointer>> = [] [example ["/card/number"]],
    }
}

/// Format of a line of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

choice! {
    /// Format of a line of the log.
    LogFormat as "LogFormat" { "text" => Self::Text, "json" => Self::Json, }
}

checked_text!(LogLevel as "text", |text: &str| {
    let problem = "is not a level (write error, warn, info, debug or trace, or info,pingora=warn)";
    if is_level(text) { Ok(()) } else { Err(problem) }
});

/// Returns true if the filter understands every directive. It would take a misspelt level for the
/// name of a module.
fn is_level(text: &str) -> bool {
    let bare = |directive: &str| directive.parse::<tracing::level_filters::LevelFilter>().is_ok();
    let directives = text.split(',').map(str::trim);
    let named = |directive: &str| directive.contains(['=', '[']) || bare(directive);
    !text.trim().is_empty() && directives.into_iter().all(named) && EnvFilter::builder().parse(text).is_ok()
}

checked_text!(JsonPointer as "JSON pointer", |text: &str| {
    // RFC 6901 §3; the empty pointer would be the whole.
    let mut rest = text.split('~').skip(1);
    if text.starts_with('/') && rest.all(|after| after.starts_with(['0', '1'])) {
        return Ok(());
    }
    Err("is not a JSON pointer (write /name or /list/0/name; ~0 is ~, ~1 is /)")
});

section! {
    /// The end of the gateway.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Shutdown {
        /// Time for which new requests are still accepted after SIGTERM, so that load balancers
        /// notice.
        grace: Duration = 5s in 0s..=1h,
        /// Time for which requests in progress are then awaited. Shortly before its end, each that
        /// its agent has not answered receives a handle.
        drain: Duration = 20s in 0s..=1h,
    }
}

section! {
    /// The takeover of the sockets by another process (`serve --upgrade`).
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Upgrade {
        /// Directory of the sockets for the takeover, with mode 0700 and of the gateway's user;
        /// made if it does not exist. Each gateway of a user needs its own. Without it:
        /// `mcp-a2a-gateway-UID` in the temporary directory.
        directory: Option<PathBuf> [example "gateway-upgrade"],
    }
}
