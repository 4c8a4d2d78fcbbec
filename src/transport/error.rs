//! The errors of an HTTP exchange with an agent, with the delivery state of the request.
//!
//! See `fault` for the texts for clients. No message is ever resent by the gateway.

use std::error::Error as _;
use std::io;

use rustls::{AlertDescription, CertificateError};

use super::address_policy::AddressClass;
use super::connect::BudgetSpentError;
use super::http1::Http1Error;
use crate::quota::NoRoomError;

/// The delivery state of a request.
///
/// Only after [`DeliveryState::No`] may a caller send the same message again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryState {
    /// Proven: the agent received nothing of the request.
    No,
    /// The agent may have seen the request, and may have acted on it.
    Maybe,
}

/// The failure of an exchange with an agent.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// The request cannot be sent to this target. The gateway's configuration or code is at fault.
    #[error("unusable request or target: {0}")]
    BadUri(&'static str),
    /// The agent's host name has no address.
    #[error("host name does not resolve: {0}")]
    Resolve(#[source] io::Error),
    /// The host has addresses, and none that may be called, because of the party that named it (see
    /// [`AddressPolicy`](super::AddressPolicy)).
    #[error("{host} is {class}, where that name may not lead; if it is right, {remedy}")]
    Refused {
        /// The host, as written.
        host: String,
        /// The class of the first such address.
        class: AddressClass,
        /// The remedy for the operator.
        remedy: &'static str,
    },
    /// No address of the agent accepted a connection.
    #[error("{cause}: {0}", cause = ConnectFailure::of(.0).text())]
    Connect(#[source] io::Error),
    /// The process may not open another connection: the limit of open files is reached.
    #[error("no room for another connection (limit of open files)")]
    OpenFiles,
    /// Resolving, connecting and the TLS handshake together took too long.
    #[error("no connection in time")]
    ConnectTimeout,
    /// The egress proxy made no connection.
    #[error("egress proxy {0}")]
    Proxy(#[from] ProxyFailure),
    /// The TLS handshake failed: certificate, host name, protocol. TLS 1.3 reports a rejected client
    /// certificate only after the request was written; the agent has not read it then.
    #[error("TLS handshake failed, {cause}: {0}", cause = TlsFailure::of(.0).text())]
    Tls(#[source] io::Error),
    /// The request was written and no response header came in time.
    #[error("no response in time")]
    FirstByteTimeout,
    /// No byte of the body came for too long.
    #[error("response fell silent")]
    IdleTimeout,
    /// The whole exchange took too long.
    #[error("exchange took too long")]
    TotalTimeout,
    /// Every connection tried was closed before the request was written to it, or before the agent
    /// processed it, as the agent says.
    #[error("connection closed before the request was processed: {0}")]
    Unsent(#[source] ExchangeError),
    /// The connection or the HTTP grammar broke after the request was (perhaps partly) written.
    #[error("exchange broke: {0}")]
    Broken(#[source] ExchangeError),
    /// The body ended before its announced end, or is read again after it failed.
    #[error("response ended early")]
    Truncated,
    /// The response is HTTP that the gateway never requested.
    #[error("unasked response: {0}")]
    Unasked(&'static str),
    /// The body is compressed or otherwise encoded, which the request forbade.
    #[error("response has a content or transfer encoding that was not asked for")]
    Encoded,
    /// The response header is longer, or has more lines, than the gateway reads.
    #[error("response header too large")]
    HeaderTooLarge,
    /// The body is longer than the limit of the caller.
    #[error("response body over {limit} bytes")]
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// The body comes in so many small chunks that reading it costs too much.
    #[error("response body in too many pieces")]
    TooManyPieces,
    /// There is no room to hold the body.
    #[error("no room for the response body: {0}")]
    NoRoom(#[source] NoRoomError),
}

impl TransportError {
    /// Returns the delivery state of the request.
    #[must_use]
    pub fn sent(&self) -> DeliveryState {
        match self {
            Self::BadUri(_)
            | Self::Resolve(_)
            | Self::Refused { .. }
            | Self::Connect(_)
            | Self::OpenFiles
            | Self::ConnectTimeout
            | Self::Proxy(_)
            | Self::Tls(_)
            | Self::Unsent(_) => DeliveryState::No,
            Self::FirstByteTimeout
            | Self::IdleTimeout
            | Self::TotalTimeout
            | Self::Broken(_)
            | Self::Truncated
            | Self::Unasked(_)
            | Self::Encoded
            | Self::HeaderTooLarge
            | Self::TooLarge { .. }
            | Self::TooManyPieces
            | Self::NoRoom(_) => DeliveryState::Maybe,
        }
    }

    /// Returns the label for metrics and logs; one of a closed set.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::BadUri(_) => "bad_uri",
            Self::Resolve(_) => "resolve",
            Self::Refused { .. } => "refused",
            Self::Connect(_) => "connect",
            Self::OpenFiles => "open_files",
            Self::ConnectTimeout => "connect_timeout",
            Self::Proxy(failure) => failure.kind(),
            Self::Tls(_) => "tls",
            Self::FirstByteTimeout => "first_byte_timeout",
            Self::IdleTimeout => "idle_timeout",
            Self::TotalTimeout => "total_timeout",
            Self::Unsent(_) => "unsent",
            Self::Broken(_) => "broken",
            Self::Truncated => "truncated",
            Self::Unasked(_) => "unasked",
            Self::Encoded => "encoded",
            Self::HeaderTooLarge => "header_too_large",
            Self::TooLarge { .. } => "too_large",
            Self::TooManyPieces => "too_many_pieces",
            Self::NoRoom(_) => "no_room",
        }
    }

    /// Returns the error of an agent that does not begin to speak HTTP/2 where nothing else is spoken.
    pub(super) fn without_http2() -> Self {
        Self::Connect(io::Error::new(io::ErrorKind::InvalidData, "the answer is not HTTP/2"))
    }

    /// Converts an error of an exchange, before a byte of the request was written.
    pub(super) fn before_sending(error: impl Into<ExchangeError>) -> Self {
        let error = error.into();
        rejected_certificate(&error).map_or(Self::Unsent(error), Self::Tls)
    }

    /// Converts an error of an exchange, once the request may have been written. On a connection `is_new`,
    /// before its first response, an alert about the certificate ends the handshake, and the agent has
    /// not read the request. Later it says nothing about the request.
    pub(super) fn after_sending(error: impl Into<ExchangeError>, is_new: bool) -> Self {
        let error = error.into();
        if let Some(alert) = rejected_certificate(&error).filter(|_| is_new) {
            return Self::Tls(alert);
        }
        match error {
            ExchangeError::Http1(Http1Error::TooLarge) => Self::HeaderTooLarge,
            ExchangeError::Http1(Http1Error::Informational) => Self::Unasked(ENDLESS),
            ExchangeError::Http2(error) if has_spent_budget(&error) => Self::Unasked(ENDLESS),
            ExchangeError::Http2(error) if error.is_parse_too_large() => Self::HeaderTooLarge,
            error => Self::Broken(error),
        }
    }
}

/// The fault of a peer that sends informational responses and no other.
const ENDLESS: &str = "informational responses without end";

fn has_spent_budget(error: &hyper::Error) -> bool {
    let of_stream = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    of_stream.and_then(io::Error::get_ref).is_some_and(|inner| inner.is::<BudgetSpentError>())
}

/// The error of the protocol of an exchange.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// By HTTP/1.1.
    #[error(transparent)]
    Http1(#[from] Http1Error),
    /// By HTTP/2.
    #[error(transparent)]
    Http2(#[from] hyper::Error),
}

/// Returns true if the peer says by HTTP/2 that it processed nothing of a request: by `GOAWAY` with the
/// id of an earlier stream, or by `REFUSED_STREAM` (RFC 9113 §6.8, §8.7).
pub(super) fn is_refused_unread(error: &hyper::Error) -> bool {
    let of_stream = error.source().and_then(|source| source.downcast_ref::<h2::Error>());
    of_stream.is_some_and(|error| {
        error.is_remote() && (error.is_go_away() || error.reason() == Some(h2::Reason::REFUSED_STREAM))
    })
}

/// The reason for which an egress proxy made no connection.
#[derive(Debug, thiserror::Error)]
pub enum ProxyFailure {
    /// The proxy itself cannot be reached.
    #[error("cannot be reached (outbound.proxy): {0}")]
    Unreachable(#[source] io::Error),
    /// It does not accept the credentials, or requires some.
    #[error(
        "does not accept the gateway's credentials (HTTP {0}; user and password in the URL of the proxy)"
    )]
    Credentials(u16),
    /// It does not permit this destination.
    #[error("does not permit the destination (HTTP 403)")]
    Forbidden,
    /// It could not connect to the destination.
    #[error("could not connect to the destination (HTTP {0})")]
    Destination(u16),
    /// It answers with another status.
    #[error("answered CONNECT with HTTP {0}")]
    Status(u16),
    /// Its response is not one of an HTTP proxy.
    #[error("answered CONNECT in an unusable way: {0}")]
    Response(&'static str),
}

impl ProxyFailure {
    /// Returns the label for metrics and logs; one of a closed set.
    fn kind(&self) -> &'static str {
        match self {
            Self::Unreachable(_) => "proxy_unreachable",
            Self::Credentials(_) => "proxy_credentials",
            Self::Forbidden => "proxy_forbidden",
            Self::Destination(_) => "proxy_destination",
            Self::Status(_) | Self::Response(_) => "proxy_response",
        }
    }

    /// Returns the text for models.
    pub(crate) fn text(&self) -> &'static str {
        match self {
            Self::Unreachable(_) => "the egress proxy cannot be reached",
            Self::Credentials(_) => "the egress proxy does not accept the gateway's credentials",
            Self::Forbidden => "the egress proxy does not permit it",
            Self::Destination(_) => "the egress proxy could not connect to it",
            Self::Status(_) | Self::Response(_) => "the egress proxy made no connection",
        }
    }
}

/// Returns the alert by which a peer rejected the certificate of this side, if that ended the
/// connection: the handshake was not complete for the peer.
fn rejected_certificate(error: &ExchangeError) -> Option<io::Error> {
    let mut source = error.source();
    while let Some(cause) = source {
        if let Some(alert) = cause.downcast_ref::<io::Error>().and_then(tls_error) {
            return TlsFailure::of_error(alert)
                .is_rejected_certificate()
                .then(|| io::Error::new(io::ErrorKind::InvalidData, alert.clone()));
        }
        source = cause.source();
    }
    None
}

fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>())
}

/// The cause of a connection that could not be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectFailure {
    /// The machine is there, and nothing listens on the port.
    Refused,
    /// No route leads to the address.
    NoRoute,
    /// The server does not speak HTTP/2, and nothing else is spoken.
    NoHttp2,
    /// Any other cause.
    Other,
}

impl ConnectFailure {
    /// Returns the cause of an error.
    pub(crate) fn of(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Self::Refused,
            io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => Self::NoRoute,
            io::ErrorKind::InvalidData => Self::NoHttp2,
            _ => Self::Other,
        }
    }

    /// Returns the text for operators and models.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::NoHttp2 => "it does not speak HTTP/2, which gRPC requires",
            Self::Refused => "connection refused",
            Self::NoRoute => "no route to its address",
            Self::Other => "no connection",
        }
    }
}

/// The cause of a failed TLS handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TlsFailure {
    /// The peer requires a client certificate, and none is configured.
    CertificateRequired,
    /// The peer does not know the authority of the client certificate.
    UnknownAuthority,
    /// The client certificate has expired.
    Expired,
    /// The peer rejects the client certificate for another reason.
    Rejected,
    /// The peer does not know the name that it was called by.
    UnknownName,
    /// The two sides have no protocol version or cipher in common.
    NoCommonProtocol,
    /// The peer's certificate is of an authority that is not trusted here.
    PeerAuthority,
    /// The peer's certificate has expired.
    PeerExpired,
    /// The peer's certificate is for another name.
    PeerName,
    /// The peer's certificate is unusable for another reason.
    PeerCertificate,
    /// The peer does not speak HTTP/2, which gRPC requires.
    NoHttp2,
    /// The peer does not answer by TLS.
    NotTls,
    /// Any other cause.
    Other,
}

impl TlsFailure {
    /// Returns the cause of an error of a handshake.
    pub(crate) fn of(error: &io::Error) -> Self {
        tls_error(error).map_or(Self::Other, Self::of_error)
    }

    fn of_error(error: &rustls::Error) -> Self {
        match error {
            rustls::Error::AlertReceived(alert) => Self::of_alert(*alert),
            rustls::Error::InvalidCertificate(problem) => match problem {
                CertificateError::UnknownIssuer => Self::PeerAuthority,
                CertificateError::Expired | CertificateError::ExpiredContext { .. } => Self::PeerExpired,
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                    Self::PeerName
                }
                _ => Self::PeerCertificate,
            },
            rustls::Error::InvalidMessage(_) => Self::NotTls,
            rustls::Error::PeerIncompatible(_) => Self::NoCommonProtocol,
            rustls::Error::NoApplicationProtocol => Self::NoHttp2,
            _ => Self::Other,
        }
    }

    fn of_alert(alert: AlertDescription) -> Self {
        match alert {
            AlertDescription::CertificateRequired | AlertDescription::NoCertificate => {
                Self::CertificateRequired
            }
            AlertDescription::UnknownCA => Self::UnknownAuthority,
            AlertDescription::CertificateExpired => Self::Expired,
            AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateUnknown
            | AlertDescription::AccessDenied => Self::Rejected,
            AlertDescription::UnrecognisedName => Self::UnknownName,
            AlertDescription::NoApplicationProtocol => Self::NoHttp2,
            AlertDescription::HandshakeFailure
            | AlertDescription::ProtocolVersion
            | AlertDescription::InsufficientSecurity => Self::NoCommonProtocol,
            _ => Self::Other,
        }
    }

    /// Returns true if the peer rejected the certificate of this side, or its absence.
    fn is_rejected_certificate(self) -> bool {
        matches!(self, Self::CertificateRequired | Self::UnknownAuthority | Self::Expired | Self::Rejected)
    }

    /// Returns the text for operators and models.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::CertificateRequired => "it requires a client certificate (certificate required)",
            Self::UnknownAuthority => {
                "it does not know the authority of the gateway's client certificate (unknown CA)"
            }
            Self::Expired => "the gateway's client certificate has expired",
            Self::Rejected => "it rejects the gateway's client certificate (bad certificate)",
            Self::UnknownName => "it does not know the name that it is called by (unrecognised name)",
            Self::NoCommonProtocol => {
                "both sides have no TLS version or cipher in common, or it requires a client certificate"
            }
            Self::PeerAuthority => "its certificate is of an unknown authority",
            Self::PeerExpired => "its certificate has expired",
            Self::PeerName => "its certificate is for another name",
            Self::PeerCertificate => "its certificate cannot be used",
            Self::NoHttp2 => "it does not speak HTTP/2, which gRPC requires",
            Self::NotTls => "it does not answer by TLS",
            Self::Other => "the connection broke",
        }
    }

    /// Returns the remedy for the operator: the keys of the section `tls` of the agent to set.
    pub(crate) fn remedy(self) -> Option<&'static str> {
        match self {
            Self::CertificateRequired => Some("set tls.certificate and tls.key"),
            Self::UnknownAuthority => {
                Some("set tls.certificate to one of an authority that it trusts, with the intermediates")
            }
            Self::Expired => Some("renew tls.certificate"),
            Self::Rejected => Some("check tls.certificate"),
            Self::UnknownName => Some("set tls.server_name to a name that it serves"),
            Self::NoCommonProtocol => Some("set tls.certificate and tls.key if it requires them"),
            Self::PeerAuthority => Some("set tls.ca to its authority"),
            Self::PeerExpired => Some("its operator must renew it"),
            Self::PeerName => Some("set tls.server_name to the name in its certificate"),
            Self::NotTls => Some("if it is plain HTTP, write http:// in the URL"),
            Self::NoHttp2 => Some("set binding to another that it offers"),
            Self::PeerCertificate | Self::Other => None,
        }
    }
}
