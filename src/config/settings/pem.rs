//! A PEM text and its file.

use std::path::{Path, PathBuf};

use crate::config::{Secret, pem};

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
        Ok(Self::from_file(path, pem::text(path)?))
    }

    /// Returns the PEM text as it was read.
    pub fn expose(&self) -> &str {
        self.text.expose()
    }
}
