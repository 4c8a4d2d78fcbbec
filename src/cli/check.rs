//! `check`: reads a configuration and every file that it names, and reports the problems that
//! `serve` would have; `check --as`: evaluates the rules for a caller, without running anything.
//!
//! See also `config` for reading, and `auth` for the rules.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use serde_json::{Value, json};

use super::agents::{InterfaceRow, OnlineFindings, contact_all};
use super::client::TlsArguments;
use super::{counted, failed, health, log_warnings, print_error, print_line};
use crate::a2a::translate::Operation;
use crate::auth::{Action, Caller, PolicyDecision, Rules};
use crate::bridge::task_tools::TaskTool;
use crate::config::certificate::{self, CertificateProblem, CertificateSummary};
use crate::config::{
    self, AgentEdit, DocumentChanges, LoadedSettings, Pem, Problem, Problems, Settings, StateLocation,
    check_spiffe_id, expand_argument, is_spiffe_uri,
};
use crate::gateway::{ConfigDigests, Gateway, needs_restart};
use crate::mcp::tasks::iso8601;
use crate::tasks::data_dir;
use crate::telemetry::log::{EscapeStyle, visible};
use crate::tls::{self, EXPIRY_WARNING_SECONDS};

/// Most agents that a line names.
const MAX_NAMED_AGENTS: usize = 8;

/// Findings beyond the text of the file.
#[derive(Default)]
pub(super) struct CheckFindings {
    pub(super) problems: Vec<Problem>,
    /// Problems with client certificates of manifests; `serve` does not start with one.
    pub(super) of_manifests: Vec<Problem>,
    pub(super) warnings: Vec<Problem>,
    /// The gateway's client certificates for agents.
    pub(super) certificates: Vec<ClientCertificate>,
    /// The interfaces of the agents, if their cards were fetched.
    interfaces: Vec<InterfaceRow>,
    /// The agents that take a default of `agent_defaults` over, by the path of the key.
    defaults: BTreeMap<String, Vec<String>>,
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
    query: &CheckQuery,
) -> ExitCode {
    let settings = match load(path) {
        Ok(settings) if query.question.is_there() => return query.question.answer(&settings, as_json),
        Ok(settings) => settings,
        Err(problems) if as_json => {
            let problems = problems.list().to_vec();
            return told_in_json(&CheckFindings { problems, ..CheckFindings::default() }, None);
        }
        Err(problems) => {
            print_error(&problems.to_string());
            return ExitCode::FAILURE;
        }
    };
    let mut findings = found(&settings, SystemTime::now());
    findings.problems.append(&mut findings.of_manifests);
    if query.peers.online && findings.problems.is_empty() {
        match contact_all(&settings) {
            Ok(OnlineFindings { mut warnings, interfaces }) => {
                findings.warnings.append(&mut warnings);
                findings.interfaces = interfaces;
            }
            Err(problem) => findings.problems.push(about("", problem)),
        }
    }
    let diff = match query.peers.diff(&settings).filter(|_| findings.problems.is_empty()) {
        Some(Ok(diff)) => Some(diff),
        Some(Err(problem)) => return failed(&problem),
        None => None,
    };
    if as_json {
        return told_in_json(&findings, diff.as_ref());
    }
    let CheckFindings { problems, warnings, certificates, interfaces, defaults, .. } = findings;
    let file = path.display();
    for (key, agents) in &defaults {
        let agents = match agents.len() {
            0 => "no agent".to_owned(),
            1..=MAX_NAMED_AGENTS => agents.join(", "),
            number => counted(number, "agent"),
        };
        print_line(&format!("{file}: {key} applies to {agents}"));
    }
    for InterfaceRow { agent, protocol, binding } in &interfaces {
        print_line(&format!("{file}: agents.{agent}: A2A {protocol}, {binding}"));
    }
    for certificate in &certificates {
        print_line(&visible(&format!("{file}: {}", certificate.line()), EscapeStyle::Text));
    }
    for warning in &warnings {
        let line = warning.line.map(|line| format!("{line}:")).unwrap_or_default();
        let file = warning.file.as_deref().unwrap_or(path).display();
        print_error(&format!("{file}:{line} warning: {warning}"));
    }
    problems.iter().for_each(|problem| print_error(&format!("{file}: {problem}")));
    if !problems.is_empty() {
        return ExitCode::FAILURE;
    }
    print_line(&format!("{file}: no problems, {}", counted(settings.agents.len(), "agent")));
    diff.map_or(ExitCode::SUCCESS, |diff| diff.print())
}

fn told_in_json(findings: &CheckFindings, diff: Option<&RunningDiff>) -> ExitCode {
    let CheckFindings { problems, warnings, certificates, interfaces, defaults, .. } = findings;
    let written = |all: &[Problem]| -> Vec<Value> {
        let each = all
            .iter()
            .map(|one| json!({ "file": one.file, "line": one.line, "at": one.at, "problem": one.problem }));
        each.collect()
    };
    let is_good = problems.is_empty();
    let certificates: Vec<Value> = certificates.iter().map(ClientCertificate::json).collect();
    let report = json!({
        "ok": is_good, "problems": written(problems), "warnings": written(warnings),
        "certificates": certificates, "agentDefaults": defaults, "interfaces": interfaces,
        "diff": diff.map(RunningDiff::json),
    });
    print_line(&visible(&report.to_string(), EscapeStyle::Json));
    match diff {
        _ if !is_good => ExitCode::FAILURE,
        Some(diff) => diff.exit_code(),
        None => ExitCode::SUCCESS,
    }
}

/// The questions of a command line.
pub(super) struct CheckQuery {
    pub(super) peers: PeerQuery,
    pub(super) question: AccessQuery,
}

/// Questions that others answer: the agents, and a running gateway.
#[derive(Debug, Args)]
pub(super) struct PeerQuery {
    /// Fetch the card of each agent as well, print version and binding, and warn of settings that fit nothing on it:
    /// skills, `hidden`, rules, tools, phases.
    #[arg(long, conflicts_with = "caller")]
    online: bool,
    /// Compare the file with the configuration of the running gateway with this admin listener: print the keys and
    /// files that a reload would add, remove or change, without their values, and those that need a restart. The exit
    /// code is 0 without a difference, 3 with one.
    #[arg(long, value_name = "ADMIN_URL", conflicts_with_all = ["caller", "stdio"])]
    diff: Option<String>,
    /// The admin token for --diff, as ${env:NAME} or ${file:PATH} (in single quotes).
    #[arg(long, value_name = "TOKEN", requires = "diff")]
    token: Option<String>,
    /// For --diff with a URL of https.
    #[command(flatten)]
    tls: TlsArguments,
}

/// The exit code for a configuration that differs from the running one.
const IS_DIFFERENT: u8 = 3;

impl PeerQuery {
    /// Compares the settings with those of the running gateway, if the command line asks for that.
    fn diff(&self, settings: &Settings) -> Option<Result<RunningDiff, String>> {
        let Some(url) = self.diff.as_deref() else {
            let problem = "--ca and --certificate need --diff";
            return self.tls.is_given().then(|| Err(problem.to_owned()));
        };
        let url = format!("{}/config", url.trim_end_matches('/'));
        let running = running_digests(&url, self).map_err(|problem| format!("{url}: {problem}"));
        Some(running.and_then(|running| {
            let key = unhex(&running.key).ok_or_else(|| format!("{url}: gives no key for its digests"))?;
            let changes = DocumentChanges::between(&running.digests, &settings.document.digests(&key));
            Ok(RunningDiff { url, generation: running.generation, changes, waiting: running.awaits_restart })
        }))
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).ok());
    pairs.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect()
}

/// Requests the digests of the configuration of a running gateway.
fn running_digests(url: &str, query: &PeerQuery) -> Result<ConfigDigests, String> {
    let mut headers = HeaderMap::new();
    if let Some(token) = query.token.as_deref() {
        let token = expand_argument(token).map_err(|problem| format!("--token: {problem}"))?;
        let value = HeaderValue::from_str(&format!("Bearer {}", token.expose()));
        let mut value = value.map_err(|_| "--token: cannot be a header".to_owned())?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    let answer = health::fetch(url, headers, &query.tls, MAX_DIGEST_BYTES)?;
    match answer.status.as_u16() {
        200 => serde_json::from_slice(&answer.body)
            .map_err(|_| "the answer is not that of an admin listener".to_owned()),
        401 => Err("the admin listener asks for its token (give it with --token '${env:NAME}')".to_owned()),
        403 => Err("the admin listener has no way to check operators (set admin.token in its configuration)"
            .to_owned()),
        404 => Err("is not served there (give the URL of the admin listener)".to_owned()),
        status => {
            let body = String::from_utf8_lossy(&answer.body);
            Err(format!("HTTP {status}: {}", body.chars().take(300).collect::<String>().trim_end()))
        }
    }
}

/// Most bytes of the digests of a running configuration.
const MAX_DIGEST_BYTES: usize = 64 << 20;

/// The differences between a file and the configuration of a running gateway.
struct RunningDiff {
    url: String,
    generation: u64,
    changes: DocumentChanges,
    /// Keys that were changed before and wait for a restart.
    waiting: Vec<String>,
}

impl RunningDiff {
    fn exit_code(&self) -> ExitCode {
        if self.changes.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(IS_DIFFERENT) }
    }

    /// Returns every key that differs, with its sign.
    fn paths(&self) -> impl Iterator<Item = (char, &String)> {
        let DocumentChanges { added, removed, changed } = &self.changes;
        let added = added.iter().map(|path| ('+', path));
        let removed = removed.iter().map(|path| ('-', path));
        added.chain(removed).chain(changed.iter().map(|path| ('~', path)))
    }

    fn print(&self) -> ExitCode {
        let (url, generation) = (&self.url, self.generation);
        let mut paths: Vec<_> = self.paths().collect();
        paths.sort_by_key(|(_, path)| *path);
        let count = counted(paths.len(), "difference");
        print_line(&visible(&format!("{count} to generation {generation} at {url}"), EscapeStyle::Text));
        for (sign, path) in paths {
            let note = if needs_restart(path) { " (needs a restart)" } else { "" };
            print_line(&visible(&format!("  {sign} {path}{note}"), EscapeStyle::Text));
        }
        for path in &self.waiting {
            print_line(&visible(
                &format!("  ! {path} waits for a restart since an earlier reload"),
                EscapeStyle::Text,
            ));
        }
        self.exit_code()
    }

    fn json(&self) -> Value {
        let DocumentChanges { added, removed, changed } = &self.changes;
        let restart: Vec<&String> =
            self.paths().map(|(_, path)| path).filter(|path| needs_restart(path)).collect();
        json!({
            "url": self.url, "generation": self.generation, "added": added, "removed": removed,
            "changed": changed, "restart": restart, "awaitsRestart": self.waiting,
        })
    }
}

/// Returns the function that reads a configuration for a reload, with every problem that `check`
/// reports for it.
pub(super) fn loader(
    path: &Path,
) -> impl Fn(Option<&AgentEdit>) -> Result<LoadedSettings, Vec<Problem>> + Send + Sync + 'static {
    let path = path.to_owned();
    move |edit| {
        let loaded = config::load_edited(&path, edit).map_err(|problems| problems.list().to_vec())?;
        let mut findings = judged(&loaded.settings, SystemTime::now());
        findings.problems.append(&mut findings.of_manifests);
        if !findings.problems.is_empty() {
            return Err(findings.problems);
        }
        log_warnings(&loaded.settings);
        Ok(loaded)
    }
}

/// Returns the findings about settings. The gateway itself is created by the caller.
fn judged(settings: &Settings, now: SystemTime) -> CheckFindings {
    let mut findings = dates(settings, now);
    findings.warnings.extend(settings.warnings.iter().cloned());
    if let Some(dir) = &settings.tasks.data_dir {
        let probed = data_dir::probe(dir).map_err(|problem| problem.to_string());
        let probed = probed.and_then(|()| match settings.seal_keys.is_empty() {
            true => data_dir::probe_key(dir).map_err(|problem| problem.to_string()),
            false => Ok(()),
        });
        findings.problems.extend(probed.err().map(|problem| about("tasks.data_dir", problem)));
    }
    if let Some(StateLocation::File(file)) = settings.state.as_ref().map(|state| &state.location) {
        let probed = data_dir::probe_file(file).map_err(|problem| problem.to_string());
        findings.problems.extend(probed.err().map(|problem| about("state.url", problem)));
    }
    findings
}

fn found(settings: &Settings, now: SystemTime) -> CheckFindings {
    let mut findings = judged(settings, now);
    findings.defaults.clone_from(&settings.agent_defaults.uses);
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
    Problem { file: None, line: None, at: at.into(), problem }
}

/// A caller, and the action that it wants.
#[derive(Debug, Args)]
pub(super) struct AccessQuery {
    /// Ask what this caller may do, by its name in the rules: key:NAME, token:ISSUER#SUBJECT,
    /// client:ISSUER#CLIENT_ID, uri:URI, dns:NAME, cn:NAME, local, anonymous.
    #[arg(long = "as", value_name = "CALLER")]
    caller: Option<String>,
    /// A scope of its token; can be given several times.
    #[arg(long, requires = "caller")]
    scope: Vec<String>,
    /// A group of its token; can be given several times.
    #[arg(long, requires = "caller")]
    group: Vec<String>,
    /// The method that it wants to use: of MCP, or of A2A by its name in 1.0. Without it the agents that it sees are listed.
    #[arg(long, value_name = "METHOD", requires = "caller")]
    may: Option<String>,
    /// The agent that it is about.
    #[arg(long, requires = "may")]
    agent: Option<String>,
    /// The skill, by its id or the name of its tool.
    #[arg(long, requires = "may")]
    tool: Option<String>,
    /// The URI of the resource.
    #[arg(long, requires = "may")]
    resource: Option<String>,
}

impl AccessQuery {
    /// Returns true if the command line contains a query.
    pub(super) fn is_there(&self) -> bool {
        self.caller.is_some()
    }

    /// Prints the decision. Fails if the caller is not allowed to do the action.
    pub(super) fn answer(&self, settings: &Settings, as_json: bool) -> ExitCode {
        let name = self.caller.as_deref().unwrap_or("anonymous");
        if let Some(problem) = unnameable(name) {
            print_error(&format!("--as: {problem}"));
            return ExitCode::FAILURE;
        }
        let caller = Caller::hypothetical(name, self.scope.clone(), self.group.clone());
        let rules = Rules::new(settings.rules.clone());
        let Some(method) = self.may.as_deref() else {
            let all = settings.agents.iter().map(|agent| agent.name.as_str());
            let seen: Vec<&str> = all.filter(|agent| rules.sees(&caller, agent)).collect();
            return list(name, &seen, as_json);
        };
        if let Some(agent) = self.agent.as_deref()
            && !settings.agents.iter().any(|known| known.name == agent)
        {
            print_error(&format!("--agent: there is no agent {agent:?} in this configuration"));
            return ExitCode::FAILURE;
        }
        let tool = self.tool.as_deref().map(|tool| (tool, tool));
        let wanted =
            Action { method, agent: self.agent.as_deref(), tool, resource: self.resource.as_deref() };
        let verdict = evaluated(&rules, &caller, &wanted);
        if as_json {
            print_line(&written(&verdict).to_string());
        } else {
            print_line(&format!("{name}: {}", words(&verdict)));
        }
        if verdict.is_allowed() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// Evaluates an action as the gateway does: a message that names no skill is one to the agent as a
/// whole.
fn evaluated<'r>(rules: &'r Rules, caller: &Caller, wanted: &Action<'_>) -> PolicyDecision<'r> {
    let is_message = [Operation::Send, Operation::Stream].map(Operation::as_str).contains(&wanted.method);
    match (wanted.agent, wanted.tool) {
        (Some(agent), None) if is_message => rules.evaluate_any(caller, wanted.method, agent),
        (_, Some((tool, _))) if tool == TaskTool::Start.name() => rules.judge_skilless(caller, wanted),
        _ => rules.evaluate(caller, wanted),
    }
}

/// Returns the reason for which no client can have this name.
fn unnameable(name: &str) -> Option<String> {
    let uris = name.split(" & ").filter_map(|part| part.strip_prefix("uri:"));
    uris.filter(|uri| is_spiffe_uri(uri)).find_map(|uri| {
        let error = check_spiffe_id(uri).err()?;
        Some(format!("{uri:?} is not a SPIFFE id: {error}"))
    })
}

fn list(name: &str, seen: &[&str], as_json: bool) -> ExitCode {
    if as_json {
        print_line(&json!({ "caller": name, "agents": seen }).to_string());
    } else {
        let seen = if seen.is_empty() { "no agent".to_owned() } else { seen.join(", ") };
        print_line(&format!("{name} sees {seen}"));
    }
    ExitCode::SUCCESS
}

fn words(verdict: &PolicyDecision<'_>) -> String {
    match verdict {
        PolicyDecision::Allowed(None) => "allowed: there are no rules".to_owned(),
        PolicyDecision::Allowed(Some(rule)) => format!("allowed by rule {rule}"),
        PolicyDecision::Refused(None) => "refused: no rule allows it".to_owned(),
        PolicyDecision::Refused(Some(rule)) => format!("refused by rule {rule}"),
        PolicyDecision::ScopesNeeded(rule, scopes) => {
            format!("refused: rule {rule} would allow it with the scopes {}", scopes.join(" "))
        }
    }
}

fn written(verdict: &PolicyDecision<'_>) -> serde_json::Value {
    let (rule, scopes) = match verdict {
        PolicyDecision::Allowed(rule) | PolicyDecision::Refused(rule) => (*rule, None),
        PolicyDecision::ScopesNeeded(rule, scopes) => (Some(*rule), Some(scopes)),
    };
    json!({ "allowed": verdict.is_allowed(), "rule": rule, "scopesNeeded": scopes })
}
