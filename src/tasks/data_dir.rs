//! The data directory: readable for this user alone, and synced when a file is added.
//!
//! See also `store` and `seal_key_file`, which keep files in it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// The file of the store.
pub(super) const STORE_FILE: &str = "tasks.redb";
/// The process that holds the lock on this file owns the others.
pub(super) const STORE_LOCK: &str = "tasks.lock";

/// Reason for which a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataDirProblem {
    /// Another kind of file is at this path, or above it.
    #[error("{0} is not a folder")]
    NotAFolder(PathBuf),
    /// Nothing can be written there.
    #[error("{folder} cannot be written: {error} (let this user write there, or name another folder)")]
    Unwritable {
        /// The directory, or the one in which it would be made.
        folder: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// A file in it cannot be used.
    #[error("{file} cannot be read and written: {error} (let this user read and write it)")]
    Unusable {
        /// The file.
        file: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
}

/// Creates the directory, and those above it, for this user alone. An existing one is left as it
/// is.
pub(super) fn make(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Makes the names in the directory durable: a new file is safe only when its name is.
pub(super) fn sync(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Checks that a gateway could keep its tasks in this directory, and changes nothing. The directory
/// need not exist, and another process may use it. The content of files is not read.
///
/// # Errors
///
/// [`DataDirProblem`] names the obstacle.
pub fn probe(dir: &Path) -> Result<(), DataDirProblem> {
    let folder = nearest(dir)?;
    // Permissions alone do not tell: the file system may be read-only.
    let draft = folder.join(format!(".gateway-check.{:016x}", rand::random::<u64>()));
    let written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft);
    let written = written.and_then(|_| fs::remove_file(&draft));
    written.map_err(|error| DataDirProblem::Unwritable { folder: folder.to_owned(), error })?;
    for file in [STORE_FILE, STORE_LOCK].map(|name| dir.join(name)) {
        match OpenOptions::new().read(true).write(true).open(&file) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(DataDirProblem::Unusable { file, error });
            }
            Ok(_) | Err(_) => {}
        }
    }
    Ok(())
}

/// Returns the directory, or the first existing one above it.
fn nearest(dir: &Path) -> Result<&Path, DataDirProblem> {
    for folder in dir.ancestors() {
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        match folder.metadata() {
            Ok(found) if found.is_dir() => return Ok(folder),
            Ok(_) => return Err(DataDirProblem::NotAFolder(folder.to_owned())),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
            Err(error) => return Err(DataDirProblem::Unwritable { folder: folder.to_owned(), error }),
        }
    }
    Err(DataDirProblem::NotAFolder(dir.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probe_leaves_no_trace() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("data/here");
        assert!(probe(&dir).is_ok());
        assert!(home.path().read_dir().unwrap().next().is_none());
        make(&dir).unwrap();
        assert!(probe(&dir).is_ok());
        assert!(dir.read_dir().unwrap().next().is_none());
        fs::write(dir.join("file"), "").unwrap();
        assert!(matches!(probe(&dir.join("file/below")), Err(DataDirProblem::NotAFolder(_))));
        fs::create_dir(dir.join("tasks.lock")).unwrap();
        assert!(matches!(probe(&dir), Err(DataDirProblem::Unusable { .. })));
    }
}
