//! Telemetry for the operator: metrics, the access log, the log.
//!
//! Independent of the rest of the gateway: labels are closed sets of its own. Out of scope: the
//! listener that serves metrics.

pub(crate) mod access_log;
mod config;
pub mod label;
pub(crate) mod log;
pub mod metrics;
pub(crate) mod recent;
