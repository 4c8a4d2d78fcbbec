//! Authentication and authorization of callers, and credentials for agents.
//!
//! Inbound: certificates, bearer tokens and API keys become a [`Caller`], and [`Rules`] authorize
//! it. Outbound: credentials that agents get. Out of scope: HTTP (see `gateway`), TLS (see `tls`,
//! `transport`).

mod caller;
mod certificate;
mod chain;
mod encoded;
mod failures;
mod inbound;
mod jwks;
mod outbound;
mod pattern;
mod rules;
mod subject;

pub use caller::Caller;
pub use certificate::{ClientCertificate, ClientTlsInfo, TrustAnchors, TrustHandle};
pub use chain::{ChainVerifier, UnreadableCertificate};
pub use failures::{FailureLimiter, network};
pub use inbound::{
    AuthProblem, Authenticator, CertificateFacts, Denied, Endpoint, PresentedCredentials, ServedProtocol,
};
pub use jwks::{ALGORITHMS, KeySet, SignatureError};
pub use outbound::{
    AccessToken, AgentTokens, CardKey, Credentials, FileStamps, ReloadOutcome, RequestCredentials,
    SubjectToken, TlsIdentity, TokenUnavailable,
};
pub(crate) use pattern::matches as fits_pattern;
pub use rules::{Action, PolicyDecision, Rules};
