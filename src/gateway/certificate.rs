//! Client certificate of a connection, and the host that the connection was made for.
//!
//! See also `auth` for the caller of a certificate.

use std::sync::Arc;
use std::time::SystemTime;

use pingora::proxy::Session;

use super::host_policy::host_of;
use crate::auth::{ClientCertificate, ClientTlsInfo};
use crate::fault::Fault;

/// Returns the client certificate of this request's connection, verified in the handshake. `None`
/// without a certificate or without TLS.
pub fn client_certificate(http: &Session) -> Option<Arc<ClientCertificate>> {
    handshake(http)?.certificate.clone()
}

/// Rejects a request if the client's certificate has expired since the handshake, or if the request
/// is for a host with another server certificate than the connection has.
pub(super) fn check(http: &Session) -> Result<(), Fault> {
    let Some(handshake) = handshake(http) else { return Ok(()) };
    if let Some(certificate) = &handshake.certificate
        && !certificate.is_valid(SystemTime::now())
    {
        return Err(Fault::CertificateNoLongerValid);
    }
    match host_of(http.req_header()) {
        Some(host) if !(handshake.is_for)(host) => Err(Fault::Misdirected),
        // A malformed host is rejected later.
        Some(_) | None => Ok(()),
    }
}

fn handshake(http: &Session) -> Option<&ClientTlsInfo> {
    http.digest()?.ssl_digest.as_ref()?.extension.get()
}
