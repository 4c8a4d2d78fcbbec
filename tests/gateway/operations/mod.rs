//! The operator's side: commands, metrics, logs, restarts, upgrades and the end of the process.

mod admin;
mod admin_access;
mod admin_agents;
mod call_command;
mod check;
mod command_line;
mod config_files;
mod correlation;
mod counted;
mod disk_full;
pub(crate) mod documents;
mod drain;
mod embedded;
mod handover;
mod init;
mod local_state;
mod log_text;
mod log_unread;
mod manual;
mod reload;
mod restart;
pub(crate) mod seen;
mod shutdown;
mod start;
mod strangers;
mod traces;
mod upgrade;
