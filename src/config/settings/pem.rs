//! A PEM text and where it came from.

use std::path::{Path, PathBuf};

use crate::config::Secret;
use crate::config::pem::PEM_FILE;
use crate::config::reading;

/// Certificates or a private key in PEM. Kept like a secret, as it may be one.
#[derive(Debug, Clone)]
pub struct Pem {
    path: Option<PathBuf>,
    text: Secret,
}

impl Pem {
    /// A PEM text that is in no file.
    pub fn inline(text: impl Into<String>) -> Self {
        Self { path: None, text: Secret::new(text) }
    }

    /// The text of a file; the path is kept so that the file can be read again when it changes.
    pub fn from_file(path: impl Into<PathBuf>, text: impl Into<String>) -> Self {
        Self { path: Some(path.into()), text: Secret::new(text) }
    }

    /// The file, if it came from one.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The same as its file has it now; what is in no file stays. Blocks.
    ///
    /// # Errors
    ///
    /// Words for a file that cannot be read. Whether it holds PEM is for whoever uses it to see.
    pub fn read_again(&self) -> Result<Self, String> {
        let Some(path) = &self.path else { return Ok(self.clone()) };
        let unreadable = |why: String| format!("cannot read {}: {why}", path.display());
        let bytes = reading::read(path, PEM_FILE).map_err(|error| unreadable(error.to_string()))?;
        let text = String::from_utf8(bytes).map_err(|_| unreadable("it is not UTF-8".to_owned()))?;
        Ok(Self::from_file(path, text))
    }

    /// The PEM text as it was read.
    pub fn expose(&self) -> &str {
        self.text.expose()
    }
}
