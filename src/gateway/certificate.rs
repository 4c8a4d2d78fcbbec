//! What a client's connection shows of it: its certificate, and the host that it was made for.
//!
//! Not here: who the caller is by its certificate (see `auth`).

use std::sync::Arc;
use std::time::SystemTime;

use pingora::proxy::Session;

use super::host_policy::host_of;
use crate::auth::{ClientCertificate, ClientTlsInfo};
use crate::fault::Fault;

/// The certificate of the client of this request's connection, verified when it connected. `None`: it showed none, or
/// speaks no TLS.
pub fn client_certificate(http: &Session) -> Option<Arc<ClientCertificate>> {
    handshake(http)?.certificate.clone()
}

/// Refuses a request of a client whose certificate was good when it connected and is no longer, and one for a host with
/// another certificate than the connection was made with.
pub(super) fn check(http: &Session) -> Result<(), Fault> {
    let Some(handshake) = handshake(http) else { return Ok(()) };
    if let Some(certificate) = &handshake.certificate
        && !certificate.is_valid(SystemTime::now())
    {
        return Err(Fault::CertificateNoLongerValid);
    }
    match host_of(http.req_header()) {
        Some(host) if !(handshake.is_for)(host) => Err(Fault::Misdirected),
        // What is no host is refused later.
        Some(_) | None => Ok(()),
    }
}

fn handshake(http: &Session) -> Option<&ClientTlsInfo> {
    http.digest()?.ssl_digest.as_ref()?.extension.get()
}
