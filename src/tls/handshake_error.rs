//! The cause of a failed handshake, one of a closed set.
//!
//! Pingora gives the error of rustls as text only; the tests compare the texts here with the errors
//! themselves.

use crate::telemetry::label::Handshake;

/// Returns the cause in the text of a handshake's error.
pub(super) fn cause(text: &str) -> Handshake {
    // In the order of search: texts about certificates before general ones.
    const WORDS: [(&str, Handshake); 21] = [
        ("peer sent no certificates", Handshake::NoCertificate),
        ("revocation list expired", Handshake::RevocationUnknown),
        ("ExpiredRevocationList", Handshake::RevocationUnknown),
        ("UnknownRevocationStatus", Handshake::RevocationUnknown),
        ("certificate: UnknownIssuer", Handshake::UnknownIssuer),
        ("certificate: BadSignature", Handshake::UnknownIssuer),
        ("certificate: certificate expired", Handshake::Expired),
        ("certificate: Expired", Handshake::Expired),
        ("certificate not valid yet", Handshake::NotYetValid),
        ("certificate: NotValidYet", Handshake::NotYetValid),
        ("certificate: Revoked", Handshake::Revoked),
        ("certificate: InvalidPurpose", Handshake::WrongUsage),
        ("does not allow extended key usage", Handshake::WrongUsage),
        ("ChainTooLarge", Handshake::ChainTooLarge),
        ("invalid peer certificate", Handshake::BadCertificate),
        ("invalid certificate revocation list", Handshake::RevocationUnknown),
        ("peer is incompatible", Handshake::NothingInCommon),
        ("peer doesn't support any known protocol", Handshake::NothingInCommon),
        ("received fatal alert", Handshake::RefusedByClient),
        ("corrupt message", Handshake::Malformed),
        ("misbehaved", Handshake::Malformed),
    ];
    let found = WORDS.iter().find(|(words, _)| text.contains(words));
    let malformed = ["unexpected", "oversized", "excess record", "cannot decrypt"];
    match found {
        Some((_, cause)) => *cause,
        None if malformed.iter().any(|words| text.contains(words)) && !text.contains("eof") => {
            Handshake::Malformed
        }
        None => Handshake::ClientGone,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::UnixTime;
    use rustls::{
        AlertDescription, CertificateError, Error, InvalidMessage, OtherError, PeerIncompatible,
        PeerMisbehaved,
    };
    use std::sync::Arc;
    use std::time::Duration;

    use crate::transport::ChainTooLarge;

    #[test]
    fn the_words_are_those_of_the_errors() {
        let time = UnixTime::since_unix_epoch(Duration::from_secs(9));
        let (not_after, not_before, next_update) = (time, time, time);
        let of = Error::InvalidCertificate;
        let too_large = OtherError(Arc::new(ChainTooLarge));
        for (error, expected) in [
            (Error::NoCertificatesPresented, Handshake::NoCertificate),
            (of(CertificateError::UnknownIssuer), Handshake::UnknownIssuer),
            (of(CertificateError::BadSignature), Handshake::UnknownIssuer),
            (of(CertificateError::Expired), Handshake::Expired),
            (of(CertificateError::ExpiredContext { time, not_after }), Handshake::Expired),
            (of(CertificateError::NotValidYet), Handshake::NotYetValid),
            (of(CertificateError::NotValidYetContext { time, not_before }), Handshake::NotYetValid),
            (of(CertificateError::Revoked), Handshake::Revoked),
            (of(CertificateError::UnknownRevocationStatus), Handshake::RevocationUnknown),
            (of(CertificateError::ExpiredRevocationList), Handshake::RevocationUnknown),
            (
                of(CertificateError::ExpiredRevocationListContext { time, next_update }),
                Handshake::RevocationUnknown,
            ),
            (of(CertificateError::InvalidPurpose), Handshake::WrongUsage),
            (of(CertificateError::BadEncoding), Handshake::BadCertificate),
            (of(CertificateError::Other(too_large)), Handshake::ChainTooLarge),
            (Error::PeerIncompatible(PeerIncompatible::NoCipherSuitesInCommon), Handshake::NothingInCommon),
            (Error::NoApplicationProtocol, Handshake::NothingInCommon),
            (Error::AlertReceived(AlertDescription::UnknownCA), Handshake::RefusedByClient),
            (Error::InvalidMessage(InvalidMessage::InvalidContentType), Handshake::Malformed),
            (Error::PeerMisbehaved(PeerMisbehaved::InvalidKeyShare), Handshake::Malformed),
            (Error::PeerSentOversizedRecord, Handshake::Malformed),
            (Error::DecryptError, Handshake::Malformed),
        ] {
            let text = format!("TLS accept() failed: tls connect error: {error}");
            assert_eq!(cause(&text), expected, "{text}");
        }
        for text in ["tls handshake eof", "unexpected eof", "Connection reset by peer (os error 104)"] {
            assert_eq!(cause(text), Handshake::ClientGone, "{text}");
        }
    }
}
