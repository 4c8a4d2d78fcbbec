//! PEM texts in the configuration: found, read and verified.
//!
//! See also `certificate` for the content.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

use super::forms::{Form, KeyForm};
use super::reference::{Secret, Template};
use super::resolve::{self, ResolveContext};
use super::spanned::Location;

/// Largest PEM file, in bytes. The bundle of all public roots has 0.25 MiB, the revocation list of
/// a large authority some more.
const PEM_FILE: usize = 16 << 20;

/// Certificates or a private key in PEM. Kept like a secret, as it may be one.
#[derive(Debug, Clone)]
pub struct Pem {
    path: Option<PathBuf>,
    text: Secret,
}

impl Pem {
    /// Returns a PEM text that is in no file.
    pub fn inline(text: impl Into<String>) -> Self {
        Self { path: None, text: Secret::new(text) }
    }

    /// Returns the text of a file; the path is kept so that the file can be read again when it
    /// changes.
    pub fn from_file(path: impl Into<PathBuf>, text: impl Into<String>) -> Self {
        Self { path: Some(path.into()), text: Secret::new(text) }
    }

    /// Returns the file, if the text came from one.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Reads the file again; a text that is in no file stays as it is.
    ///
    /// # Errors
    ///
    /// The defect of the file, with its name.
    pub fn read_again(&self) -> Result<Self, String> {
        let Some(path) = &self.path else { return Ok(self.clone()) };
        Ok(Self::from_file(path, text(path)?))
    }

    /// Returns the PEM text as it was read.
    pub fn expose(&self) -> &str {
        self.text.expose()
    }
}

/// A PEM text with certain content, or the path of a file that holds one.
macro_rules! pem_form {
    ($($name:ident: $kind:expr),+) => {$(
        #[derive(Deserialize)]
        #[serde(transparent)]
        pub(super) struct $name(Template);

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(Template::new(text))
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                "Pem".into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({
                    "description": "The path of a PEM file, or the PEM text itself (it begins with `-----BEGIN`). \
                        References are accepted.",
                    "type": "string",
                })
            }
        }

        impl KeyForm for $name {
            fn describe() -> String {
                "PEM ●".to_owned()
            }
        }

        impl Form<Pem> for $name {
            fn resolve(self, place: &Location, context: &mut ResolveContext<'_>) -> Option<Pem> {
                read(self.0, place, $kind, context)
            }
        }
    )+};
}
pem_form!(CertificatePem: PemKind::Certificates, KeyPem: PemKind::Key, CrlPem: PemKind::RevocationLists);

/// Required content of a PEM text.
#[derive(Clone, Copy)]
enum PemKind {
    Certificates,
    Key,
    /// The reader of the list reports its defects.
    RevocationLists,
}

/// Returns the text of a PEM file, or its defect.
pub(super) fn text(path: &Path) -> Result<String, String> {
    resolve::text(path, PEM_FILE)
}

/// Returns a certificate and its key, if they belong together. `place` is that of the certificate.
pub(super) fn pair(
    certificate: Option<Pem>,
    key: Option<Pem>,
    place: &Location,
    context: &mut ResolveContext<'_>,
) -> Option<(Pem, Pem)> {
    let (certificate, key) = certificate.zip(key)?;
    match belongs(&certificate, &key) {
        Ok(()) => Some((certificate, key)),
        Err(problem) => context.report_conflict(place, problem),
    }
}

fn belongs(certificate: &Pem, key: &Pem) -> Result<(), String> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(certificate.expose().as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|error| format!("is not a certificate in PEM: {error}"))?;
    let key = PrivateKeyDer::from_pem_slice(key.expose().as_bytes())
        .map_err(|_| "its key is not a private key in PEM".to_owned())?;
    let provider = rustls::crypto::ring::default_provider();
    match rustls::sign::CertifiedKey::from_der(chain, key, &provider) {
        Ok(_) => Ok(()),
        Err(rustls::Error::InconsistentKeys(_)) => Err("does not belong to the key beside it".to_owned()),
        Err(rustls::Error::InvalidCertificate(error)) => Err(format!("is not a certificate in PEM: {error}")),
        Err(error) => Err(format!("cannot be used with the key beside it: {error}")),
    }
}

/// Reads a PEM text and verifies its content. Returns `None` for wrong ones.
fn read(
    template: Template,
    place: &Location,
    holds: PemKind,
    context: &mut ResolveContext<'_>,
) -> Option<Pem> {
    let text = template.expand(context, place)?;
    let text = text.expose();
    let pem = if text.trim_start().starts_with("-----BEGIN") {
        Pem::inline(text)
    } else if text.len() > 4096 || text.contains(['\n', '\0']) {
        return context.report_conflict(place, "is neither a path nor PEM (PEM begins with -----BEGIN)");
    } else {
        let path = context.path(text);
        match self::text(&path) {
            Ok(text) => Pem::from_file(path, text),
            Err(problem) => return context.report_conflict(place, problem),
        }
    };
    match check(&pem, holds) {
        Ok(()) => Some(pem),
        Err(problem) => context.report_conflict(place, problem),
    }
}

fn check(pem: &Pem, holds: PemKind) -> Result<(), String> {
    let bytes = pem.expose().as_bytes();
    match holds {
        PemKind::RevocationLists => Ok(()),
        PemKind::Key => match PrivateKeyDer::from_pem_slice(bytes) {
            Ok(_) => Ok(()),
            // The parser's own message may quote lines of the key.
            Err(_) => {
                Err("holds no private key in PEM (PKCS#8, PKCS#1 or SEC1, without a passphrase)".to_owned())
            }
        },
        PemKind::Certificates => {
            let mut found = 0_usize;
            for certificate in CertificateDer::pem_slice_iter(bytes) {
                let certificate = certificate.map_err(|_| "is not PEM".to_owned())?;
                rustls::server::ParsedCertificate::try_from(&certificate)
                    .map_err(|error| format!("holds a certificate that cannot be read: {error}"))?;
                found += 1;
            }
            if found == 0 { Err("holds no certificate in PEM".to_owned()) } else { Ok(()) }
        }
    }
}
