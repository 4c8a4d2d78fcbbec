//! `check`: reads a configuration and every file that it names, and reports the problems that
//! `serve` would have.
//!
//! See also `config` for reading, and `explain` for the rules that apply to a caller.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::{done, explain, print_error, print_line};
use crate::config::certificate::{self, CertificateProblem, CertificateSummary};
use crate::config::{Pem, Problem, Problems, Settings};
use crate::gateway::Gateway;
use crate::mcp::tasks::iso8601;
use crate::tasks::data_dir;
use crate::telemetry::visible::{EscapeStyle, visible};
use crate::tls::{self, EXPIRY_WARNING_SECONDS};

/// Findings beyond the text of the file.
#[derive(Default)]
pub(super) struct CheckFindings {
    pub(super) problems: Vec<Problem>,
    /// Problems with client certificates of manifests; `serve` does not start with one.
    pub(super) of_manifests: Vec<Problem>,
    pub(super) warnings: Vec<Problem>,
    /// The gateway's client certificates for agents.
    pub(super) certificates: Vec<ClientCertificate>,
}

/// A client certificate of the gateway, and its place in the configuration.
pub(super) struct ClientCertificate {
    pub(super) at: String,
    pub(super) summary: CertificateSummary,
}

impl ClientCertificate {
    /// Returns a line for the operator.
    pub(super) fn line(&self) -> String {
        let CertificateSummary { subject, issuer, key, .. } = &self.summary;
        let [from, to] = self.dates();
        let at = &self.at;
        format!(
            "{at}: subject {subject}, issuer {issuer}, valid from {from} to {to}, key {key}, which belongs to it"
        )
    }

    /// Returns its first and last moment in ISO 8601.
    pub(super) fn dates(&self) -> [String; 2] {
        [self.summary.not_before, self.summary.not_after].map(|time| {
            let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
            iso8601(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
        })
    }

    fn json(&self) -> Value {
        let CertificateSummary { subject, issuer, key, .. } = &self.summary;
        let [from, to] = self.dates();
        json!({ "at": self.at, "subject": subject, "issuer": issuer, "notBefore": from, "notAfter": to, "key": key })
    }
}

/// Reads the file with `load`, and prints the report or the answer to the question.
pub(super) fn run(
    path: &Path,
    load: fn(&Path) -> Result<Settings, Problems>,
    as_json: bool,
    question: &explain::AccessQuery,
) -> ExitCode {
    let settings = match load(path) {
        Ok(settings) if question.is_there() => return question.answer(&settings, as_json),
        Ok(settings) => settings,
        Err(problems) if as_json => {
            let problems = problems.list().to_vec();
            return told_in_json(&CheckFindings { problems, ..CheckFindings::default() });
        }
        Err(problems) => {
            print_error(&problems.to_string());
            return ExitCode::FAILURE;
        }
    };
    let mut findings = found(&settings, SystemTime::now());
    findings.problems.append(&mut findings.of_manifests);
    if as_json {
        return told_in_json(&findings);
    }
    let CheckFindings { problems, warnings, certificates, .. } = findings;
    let file = path.display();
    for certificate in &certificates {
        print_line(&visible(&format!("{file}: {}", certificate.line()), EscapeStyle::Text));
    }
    warnings.iter().for_each(|warning| print_error(&format!("{file}: warning: {warning}")));
    problems.iter().for_each(|problem| print_error(&format!("{file}: {problem}")));
    match problems.is_empty() {
        true => done(&format!("{file}: no problems, {} agents", settings.agents.len())),
        false => ExitCode::FAILURE,
    }
}

fn told_in_json(findings: &CheckFindings) -> ExitCode {
    let CheckFindings { problems, warnings, certificates, .. } = findings;
    let written = |all: &[Problem]| -> Vec<Value> {
        let each = all.iter().map(|one| json!({ "line": one.line, "at": one.at, "problem": one.problem }));
        each.collect()
    };
    let is_good = problems.is_empty();
    let certificates: Vec<Value> = certificates.iter().map(ClientCertificate::json).collect();
    let report = json!({
        "ok": is_good, "problems": written(problems), "warnings": written(warnings),
        "certificates": certificates,
    });
    print_line(&visible(&report.to_string(), EscapeStyle::Json));
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn found(settings: &Settings, now: SystemTime) -> CheckFindings {
    let mut findings = dates(settings, now);
    if let Some(dir) = &settings.tasks.data_dir {
        let probed = data_dir::probe(dir).map_err(|problem| problem.to_string());
        let probed = probed.and_then(|()| match settings.seal_keys.is_empty() {
            true => data_dir::probe_key(dir).map_err(|problem| problem.to_string()),
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
            let of_manifest = agent.manifest.as_ref().is_some_and(|manifest| manifest.has_certificate);
            let key = if of_manifest { "manifest: /security/mtls/clientCert" } else { "tls.certificate" };
            let at = format!("agents.{}.{key}", agent.name);
            let summary = certificate::summary(certificate).ok();
            findings
                .certificates
                .extend(summary.map(|summary| ClientCertificate { at: at.clone(), summary }));
            let problem = findings.judge(at, certificate, now);
            let problems = if of_manifest { &mut findings.of_manifests } else { &mut findings.problems };
            problems.extend(problem);
        }
    }
    for (index, listener) in settings.listeners.iter().enumerate() {
        let at = |rest: &str| format!("listeners[{index}].tls.{rest}");
        let Some(tls) = &listener.tls else { continue };
        for pair in &tls.certificates {
            let problem = findings.judge(at("certificate"), &pair.certificate, now);
            findings.problems.extend(problem);
        }
        for ca in tls.client_auth.iter().flat_map(|clients| &clients.ca) {
            let problem = findings.judge(at("client_auth.ca"), ca, now);
            findings.problems.extend(problem);
        }
    }
    findings
}

impl CheckFindings {
    /// Returns the problem of a certificate that is not valid now; adds a warning for one that
    /// expires soon.
    fn judge(&mut self, at: String, chain: &Pem, now: SystemTime) -> Option<Problem> {
        match certificate::end(chain, now) {
            Ok(end) => {
                let left = end.duration_since(now).unwrap_or_default();
                let soon = Duration::from_secs(EXPIRY_WARNING_SECONDS.unsigned_abs());
                if left < soon {
                    let days = left.as_secs() / 86_400;
                    self.warnings.push(about(at, format!("expires in {days} days (get a new one)")));
                }
                None
            }
            Err(problem) => Some(about(at, remedied(&problem))),
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
