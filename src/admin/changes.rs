//! Changes by operators: `POST /reload`, and agents that they add, replace and remove by `PUT` and
//! `DELETE /agents/{name}`.
//!
//! See `gateway::reload` for the changes themselves, and `config` for the file that keeps the agents.

use std::sync::Arc;

use http::header::RETRY_AFTER;
use http::{HeaderValue, StatusCode};
use serde::Serialize;
use serde_json::{Value, json};

use super::{AdminError, AdminPages, AdminRequest, AdminResponse};
use crate::config::{AgentEdit, Problem};
use crate::gateway::{AgentEditError, EditedAgents, ReloadCause, ReloadError, ReloadReport, Reloader};

impl AdminPages {
    /// Reloads the configuration, and reports the outcome: 422 if it is rejected.
    pub(super) async fn reload(&self) -> Result<AdminResponse, AdminError> {
        match self.reloader()?.reload(ReloadCause::Request).await {
            Ok(report) => {
                let outcome = if report.is_applied() { "applied" } else { "unchanged" };
                Ok(AdminResponse::json(StatusCode::OK, &ReloadBody { outcome, report }))
            }
            Err(ReloadError::Rejected(problems)) => {
                let body = json!({ "outcome": "rejected", "problems": problems_json(&problems) });
                Ok(AdminResponse::json(StatusCode::UNPROCESSABLE_ENTITY, &body))
            }
            Err(error @ ReloadError::Busy) => Err(busy(&error)),
        }
    }

    /// Returns digests of the configuration in use, for a comparison with a file.
    pub(super) async fn digests(&self) -> Result<AdminResponse, AdminError> {
        let digests = self.reloader()?.digests(&self.digest_key).await;
        Ok(AdminResponse::json(StatusCode::OK, &digests))
    }

    fn reloader(&self) -> Result<&Arc<Reloader>, AdminError> {
        let none = || AdminError::new(StatusCode::CONFLICT, "this process has no configuration file");
        self.reloader.as_ref().ok_or_else(none)
    }

    /// Adds or replaces the agent that the path names; the body has its keys.
    pub(super) async fn put_agent(&self, request: &AdminRequest) -> Result<AdminResponse, AdminError> {
        let name = request.parameter.clone().unwrap_or_default();
        let text = std::str::from_utf8(&request.body);
        let text = text.map_err(|_| AdminError::new(StatusCode::BAD_REQUEST, "the body is not UTF-8"))?;
        self.edit_agents(AgentEdit::Put { name, text: text.to_owned() }).await
    }

    /// Removes the agent that the path names.
    pub(super) async fn delete_agent(&self, request: &AdminRequest) -> Result<AdminResponse, AdminError> {
        let name = request.parameter.clone().unwrap_or_default();
        self.edit_agents(AgentEdit::Remove { name }).await
    }

    async fn edit_agents(&self, edit: AgentEdit) -> Result<AdminResponse, AdminError> {
        let error = match self.reloader()?.edit_agents(edit).await {
            Ok(EditedAgents { is_new, report }) => {
                let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
                let outcome = if report.is_applied() { "applied" } else { "unchanged" };
                return Ok(AdminResponse::json(status, &ReloadBody { outcome, report }));
            }
            Err(error) => error,
        };
        let status = match &error {
            AgentEditError::Off => StatusCode::FORBIDDEN,
            AgentEditError::Configured => StatusCode::CONFLICT,
            AgentEditError::Unknown => StatusCode::NOT_FOUND,
            AgentEditError::Write(_) => StatusCode::INTERNAL_SERVER_ERROR,
            AgentEditError::Reload(ReloadError::Rejected(problems)) => {
                let body = json!({ "outcome": "rejected", "problems": problems_json(problems) });
                return Ok(AdminResponse::json(StatusCode::BAD_REQUEST, &body));
            }
            AgentEditError::Reload(error @ ReloadError::Busy) => return Err(busy(error)),
        };
        Err(AdminError::new(status, error.to_string()))
    }
}

/// 503 with the time of the next attempt.
fn busy(error: &ReloadError) -> AdminError {
    AdminError::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
        .with(RETRY_AFTER, HeaderValue::from_static("1"))
}

/// The answer of a change.
#[derive(Serialize)]
struct ReloadBody {
    outcome: &'static str,
    #[serde(flatten)]
    report: ReloadReport,
}

/// Returns problems for an answer.
fn problems_json(problems: &[Problem]) -> Value {
    let each = problems
        .iter()
        .map(|one| json!({ "file": one.file, "line": one.line, "at": one.at, "problem": one.problem }));
    each.collect()
}
