//! An error of JSON-RPC or of HTTP+JSON: what it means is in its `ErrorInfo`, or else in its code.
//!
//! Not here: what each code means (see `error`).

use serde::Deserialize;

use super::super::dialect::Dialect;
use super::super::error::{AgentError, ErrorKind};
use super::super::lenient::{LenientInteger, LenientList, LenientObject, LenientString};

/// Whose reasons are known.
const DOMAIN: &str = "a2a-protocol.org";

/// An error.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct ErrorIn {
    code: LenientInteger,
    message: LenientString,
    /// In JSON-RPC.
    data: LenientList<LenientObject<ErrorDetail>>,
    /// In HTTP+JSON.
    details: LenientList<LenientObject<ErrorDetail>>,
}

/// `google.rpc.ErrorInfo`, or another detail.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ErrorDetail {
    reason: LenientString,
    domain: LenientString,
}

impl ErrorIn {
    /// What is said by an agent that speaks this dialect.
    pub(super) fn refused(self, dialect: Dialect) -> AgentError {
        let Some(code) = self.code.0 else { return AgentError::invalid_response("an error without a code") };
        let kind = self.reason().unwrap_or_else(|| ErrorKind::of(code, dialect));
        AgentError::from_code(kind, code, &self.message.0.unwrap_or_default())
    }

    /// What is said with this HTTP status, if that is more than the status.
    pub(super) fn refused_with(self, status: u16) -> Option<AgentError> {
        let kind = self.reason().or((status == 400).then_some(ErrorKind::InvalidParams))?;
        Some(AgentError::from_code(kind, status.into(), &self.message.0.unwrap_or_default()))
    }

    fn reason(&self) -> Option<ErrorKind> {
        let all = self.data.0.iter().chain(&self.details.0).flatten().filter_map(|detail| detail.0.as_ref());
        let ours = all.filter(|detail| detail.domain.0.as_deref() == Some(DOMAIN));
        ours.filter_map(|detail| detail.reason.0.as_deref()).find_map(ErrorKind::of_reason)
    }
}
