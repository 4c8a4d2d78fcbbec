//! `check`: reads a configuration and every file that it names, and reports the problems that
//! `serve` would have.
//!
//! See also `config` for reading, and `explain` for the rules that apply to a caller.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use super::{done, explain, print_error, print_line};
use crate::config::certificate::{self, CertificateProblem};
use crate::config::{self, Pem, Problem, Settings};
use crate::gateway::Gateway;
use crate::tasks::{data_dir, seal_key_file};
use crate::telemetry::visible::{EscapeStyle, visible};
use crate::tls::{self, EXPIRY_WARNING_SECONDS};

/// Findings beyond the text of the file.
#[derive(Default)]
pub(super) struct CheckFindings {
    pub(super) problems: Vec<Problem>,
    pub(super) warnings: Vec<Problem>,
}

pub(super) fn run(path: &Path, as_json: bool, question: &explain::AccessQuery) -> ExitCode {
    let settings = match config::load(path) {
        Ok(settings) if question.is_there() => return question.answer(&settings, as_json),
        Ok(settings) => settings,
        Err(problems) if as_json => return told_in_json(problems.list(), &[]),
        Err(problems) => {
            print_error(&problems.to_string());
            return ExitCode::FAILURE;
        }
    };
    let CheckFindings { problems, warnings } = found(&settings, SystemTime::now());
    if as_json {
        return told_in_json(&problems, &warnings);
    }
    let file = path.display();
    warnings.iter().for_each(|warning| print_error(&format!("{file}: warning: {warning}")));
    problems.iter().for_each(|problem| print_error(&format!("{file}: {problem}")));
    match problems.is_empty() {
        true => done(&format!("{file}: no problems, {} agents", settings.agents.len())),
        false => ExitCode::FAILURE,
    }
}

fn told_in_json(problems: &[Problem], warnings: &[Problem]) -> ExitCode {
    let written = |all: &[Problem]| -> Vec<Value> {
        let each = all.iter().map(|one| json!({ "line": one.line, "at": one.at, "problem": one.problem }));
        each.collect()
    };
    let is_good = problems.is_empty();
    let report = json!({ "ok": is_good, "problems": written(problems), "warnings": written(warnings) });
    print_line(&visible(&report.to_string(), EscapeStyle::Json));
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn found(settings: &Settings, now: SystemTime) -> CheckFindings {
    let mut findings = dates(settings, now);
    if let Some(dir) = &settings.tasks.data_dir {
        let probed = data_dir::probe(dir).map_err(|problem| problem.to_string());
        let probed = probed.and_then(|()| match settings.seal_keys.is_empty() {
            true => seal_key_file::probe(dir).map_err(|problem| problem.to_string()),
            false => Ok(()),
        });
        findings.problems.extend(probed.err().map(|problem| about("tasks.data_dir", problem)));
    }
    // Everything that is built from the settings at the start; nothing is started or written.
    tls::install_provider();
    let mut trial = settings.clone();
    trial.tasks.data_dir = None;
    let made = Gateway::with_store_handover(trial).map(drop);
    findings.problems.extend(made.err().map(|problem| about("", problem.to_string())));
    findings
}

/// Returns the certificates that have expired, or will soon.
pub(super) fn dates(settings: &Settings, now: SystemTime) -> CheckFindings {
    let mut findings = CheckFindings::default();
    for agent in &settings.agents {
        if let Some(certificate) = &agent.tls.certificate {
            let at = format!("agents.{}.tls.certificate", agent.name);
            findings.judge(at, certificate, now);
        }
    }
    for (index, listener) in settings.listeners.iter().enumerate() {
        let at = |rest: &str| format!("listeners[{index}].tls.{rest}");
        let Some(tls) = &listener.tls else { continue };
        for pair in &tls.certificates {
            findings.judge(at("certificate"), &pair.certificate, now);
        }
        for ca in tls.client_auth.iter().flat_map(|clients| &clients.ca) {
            findings.judge(at("client_auth.ca"), ca, now);
        }
    }
    findings
}

impl CheckFindings {
    fn judge(&mut self, at: String, chain: &Pem, now: SystemTime) {
        match certificate::end(chain, now) {
            Ok(end) => {
                let left = end.duration_since(now).unwrap_or_default();
                let soon = Duration::from_secs(EXPIRY_WARNING_SECONDS.unsigned_abs());
                if left < soon {
                    let days = left.as_secs() / 86_400;
                    self.warnings.push(about(at, format!("expires in {days} days (get a new one)")));
                }
            }
            Err(problem) => self.problems.push(about(at, remedied(&problem))),
        }
    }
}

fn remedied(problem: &CertificateProblem) -> String {
    match problem {
        CertificateProblem::Expired { .. } => format!("{problem} (get a new one)"),
        other => other.to_string(),
    }
}

fn about(at: impl Into<String>, problem: String) -> Problem {
    Problem { line: None, at: at.into(), problem }
}
