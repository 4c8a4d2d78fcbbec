//! `listeners[].tls` as in the file.

use std::time::SystemTime;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::certificate::{self, CertificateProblem};
use crate::config::pem::{self, PemFile, PemKind};
use crate::config::resolve::ResolveContext;
use crate::config::spanned::{Location, OneOrMany, Spanned};
use crate::config::{ClientAuth, ListenerCertificate, ListenerTls, Pem, TlsProfile};

/// How a listener speaks TLS. Files that are named here are read again when they change, and on SIGHUP.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
#[schemars(
    rename = "ListenerTls",
    extend("anyOf" = [{ "required": ["certificate", "key"] }, { "required": ["certificates"] }])
)]
pub(super) struct ListenerTlsFile {
    /// The certificate for clients that ask for no name or an unknown one, followed by those that lead to its root.
    certificate: Spanned<PemFile>,
    /// The private key of the certificate, RSA or ECDSA.
    key: Spanned<PemFile>,
    /// More certificates, each for the DNS names in it (`*.example.com` too). Two may have the same name and keys of different
    /// kinds. Without `certificate` the first is for everybody else.
    #[schemars(length(min = 1))]
    certificates: Spanned<Vec<Spanned<PairFile>>>,
    /// `intermediate`: TLS 1.2 (ephemeral keys and authenticated encryption only) and 1.3. `modern`: TLS 1.3 only.
    #[schemars(extend("default" = "intermediate"))]
    profile: Spanned<ProfileFile>,
    /// Whether clients show a certificate.
    client_auth: Spanned<ClientAuthFile>,
}

/// A certificate and its key.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ListenerCertificate")]
struct PairFile {
    /// The certificate, followed by those that lead to its root.
    certificate: Spanned<PemFile>,
    /// The private key of the certificate, RSA or ECDSA.
    key: Spanned<PemFile>,
}

#[derive(Deserialize, JsonSchema, Clone, Copy)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "TlsProfile")]
enum ProfileFile {
    Modern,
    Intermediate,
}

/// Whether clients show a certificate.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "ClientAuth", extend("required" = ["mode"]))]
struct ClientAuthFile {
    /// `off`: clients are not asked. `optional`: a client without a certificate is let in, one with a bad certificate is not.
    /// `required`: only clients with a good certificate are let in.
    mode: Spanned<ClientAuthMode>,
    /// The authorities whose certificates are good; one PEM or a list.
    ca: Spanned<OneOrMany<Spanned<PemFile>>>,
    /// Their revocation lists; one PEM or a list. Each authority needs one, intermediate ones too. Without it revocation is
    /// not checked.
    crl: Spanned<OneOrMany<Spanned<PemFile>>>,
    /// What becomes of clients when a revocation list is not followed by a new one in time: `refuse` or `accept`.
    #[schemars(extend("default" = "refuse"))]
    expired_crl: Spanned<ExpiredFile>,
}

#[derive(Deserialize, JsonSchema, PartialEq, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum ClientAuthMode {
    Off,
    Optional,
    Required,
}

#[derive(Deserialize, JsonSchema, PartialEq, Clone, Copy)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "ExpiredCrl")]
enum ExpiredFile {
    Refuse,
    Accept,
}

impl ListenerTlsFile {
    pub(super) fn resolve(self, section: &Location, reading: &mut ResolveContext<'_>) -> Option<ListenerTls> {
        let more = self.certificates.place().is_some();
        let main = PairFile { certificate: self.certificate, key: self.key };
        let mut certificates = Vec::new();
        if !more || main.certificate.place().is_some() || main.key.place().is_some() {
            certificates.extend(main.resolve(section, true, reading));
        }
        if let Some((place, pairs)) = self.certificates.take() {
            if pairs.is_empty() {
                reading.problem(&place, "is empty (write a certificate and its key, or remove it)");
            }
            for (place, pair) in pairs.into_iter().filter_map(Spanned::take) {
                let is_first = certificates.is_empty();
                certificates.extend(pair.resolve(&place, is_first, reading));
            }
        }
        let profile = match self.profile.value() {
            Some(ProfileFile::Modern) => TlsProfile::Modern,
            Some(ProfileFile::Intermediate) | None => TlsProfile::Intermediate,
        };
        let client_auth =
            self.client_auth.take().and_then(|(place, written)| written.resolve(&place, reading));
        (!certificates.is_empty()).then_some(ListenerTls { certificates, profile, client_auth })
    }
}

impl PairFile {
    fn resolve(
        self,
        section: &Location,
        is_first: bool,
        reading: &mut ResolveContext<'_>,
    ) -> Option<ListenerCertificate> {
        for (key, written) in [("certificate", &self.certificate), ("key", &self.key)] {
            if written.place().is_none() {
                reading.problem(&section.child(key), "is missing (write the path of a PEM file)");
            }
        }
        let place = self.certificate.place().cloned();
        let certificate = pem::resolve(self.certificate, PemKind::Certificates, reading);
        let key = pem::resolve(self.key, PemKind::Key, reading);
        let (certificate, key) = pem::pair(certificate, key, reading)?;
        let pair = ListenerCertificate { certificate, key };
        let checked = certificate::chain(&pair, SystemTime::now());
        let problem = match checked {
            Ok(chain) if chain.names.is_empty() && !is_first => CertificateProblem::Nameless,
            Ok(_) => return Some(pair),
            Err(problem) => problem,
        };
        reading.report_conflict(&place?, problem.to_string())
    }
}

impl ClientAuthFile {
    fn resolve(self, section: &Location, reading: &mut ResolveContext<'_>) -> Option<ClientAuth> {
        let hint = "write required, optional or off";
        let (_, mode) = reading.required(self.mode, section, "mode", hint)?;
        if mode != ClientAuthMode::Off && self.ca.place().is_none() {
            reading.problem(
                &section.child("ca"),
                "is missing (write the path of a PEM file with the authorities of the clients)",
            );
        }
        let now = SystemTime::now();
        let accept_expired_crl = self.expired_crl.value() == Some(ExpiredFile::Accept);
        let mut authorities = Vec::new();
        let ca = pems(self.ca, PemKind::Certificates, reading, |pem| {
            authorities.extend(certificate::authorities(pem, now)?);
            Ok(())
        });
        let place = self.crl.place().cloned();
        let before = authorities.len();
        let mut lists = Vec::new();
        let crl = pems(self.crl, PemKind::RevocationLists, reading, |pem| {
            lists.extend(certificate::revocation_lists(pem, &authorities, accept_expired_crl, now)?);
            Ok(())
        });
        // A list that could not be read has been reported.
        if let (Some(place), Some(_), true) = (place, &crl, before > 0)
            && let Err(problem) = certificate::check_revocation_coverage(&authorities, &lists)
        {
            reading.problem(&place, problem.to_string());
        }
        let required = match mode {
            ClientAuthMode::Off => return None,
            ClientAuthMode::Optional => false,
            ClientAuthMode::Required => true,
        };
        Some(ClientAuth { required, ca: ca?, crl: crl.unwrap_or_default(), accept_expired_crl })
    }
}

/// Returns each of the PEM texts with the right content; `None` if there is none or one has other
/// content.
fn pems(
    written: Spanned<OneOrMany<Spanned<PemFile>>>,
    holds: PemKind,
    reading: &mut ResolveContext<'_>,
    mut check: impl FnMut(&Pem) -> Result<(), CertificateProblem>,
) -> Option<Vec<Pem>> {
    let (place, OneOrMany(written)) = written.take()?;
    let count = written.len();
    if count == 0 {
        return reading
            .report_conflict(&place, "is an empty list (write the path of a PEM file, or remove it)");
    }
    let mut pems = Vec::new();
    for written in written {
        let Some((place, pem)) = pem::resolve(written, holds, reading) else { continue };
        match check(&pem) {
            Ok(()) => pems.push(pem),
            Err(problem) => reading.problem(&place, problem.to_string()),
        }
    }
    (pems.len() == count).then_some(pems)
}
