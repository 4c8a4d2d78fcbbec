//! An error of JSON-RPC or of HTTP+JSON: its meaning is in its `ErrorInfo`, or else in its code.
//!
//! See also `a2a::error`, which gives the meaning of each code.

use serde::Deserialize;

use super::super::dialect::Dialect;
use super::super::error::{AgentError, ErrorKind};
use super::super::lenient::{LenientInteger, LenientList, LenientObject, LenientString};

/// The domain of known reasons.
const DOMAIN: &str = "a2a-protocol.org";

/// An error.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct ErrorIn {
    code: LenientInteger,
    message: LenientString,
    /// Details in JSON-RPC.
    data: LenientList<LenientObject<ErrorDetail>>,
    /// Details in HTTP+JSON.
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
    /// Returns the error of an agent in this dialect.
    pub(super) fn refused(self, dialect: Dialect) -> AgentError {
        let Some(code) = self.code.0 else { return AgentError::invalid_response("an error without a code") };
        let kind = self.reason().unwrap_or_else(|| ErrorKind::of(code, dialect));
        AgentError::from_code(kind, code, &self.message.0.unwrap_or_default())
    }

    /// Returns the error with this HTTP status, if it says more than the status.
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
