//! Telemetry for the operator: metrics, the access log, the log.
//!
//! Independent of the rest of the gateway: labels are closed sets of its own. Out of scope: the
//! listener that serves metrics.

pub(crate) mod access_log;
pub mod label;
pub(crate) mod log;
mod log_buffer;
pub(crate) mod log_line;
pub mod metrics;
mod process;
pub(crate) mod recent;
pub(crate) mod request_facts;
pub(crate) mod span;
pub mod trace;
