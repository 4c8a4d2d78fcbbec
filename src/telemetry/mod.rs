//! Telemetry for the operator: metrics, the access log, the log.
//!
//! Independent of the rest of the gateway: labels are closed sets of its own. Out of scope: the
//! listener that serves metrics.

pub mod access_log;
pub mod label;
pub mod log;
pub mod metrics;
pub mod visible;
