//! The data directory: readable for this user alone, and synced when a file is added.
//!
//! It holds the files of the `store`, and the key that seals handles where the configuration names
//! none (`seal.key`, read or created here).

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::config::{Secret, TASKS_FILE};
use data_encoding::HEXLOWER;

/// The file of the store.
pub(super) const STORE_FILE: &str = TASKS_FILE;
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
pub(crate) fn make(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Makes the names in the directory durable: a new file is safe only when its name is.
pub(crate) fn sync(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Checks that a gateway could keep its tasks in this directory, and changes nothing. The directory
/// need not exist, and another process may use it. The content of files is not read.
///
/// # Errors
///
/// [`DataDirProblem`] names the obstacle.
pub fn probe(dir: &Path) -> Result<(), DataDirProblem> {
    probe_files(dir, &[STORE_FILE, STORE_LOCK].map(|name| dir.join(name)))
}

/// Checks that a gateway could keep shared state in this file, and changes nothing. Neither the file nor
/// its folder need exist.
///
/// # Errors
///
/// [`DataDirProblem`] names the obstacle.
pub fn probe_file(file: &Path) -> Result<(), DataDirProblem> {
    probe_files(file.parent().unwrap_or(file), &[file.to_owned()])
}

fn probe_files(dir: &Path, files: &[PathBuf]) -> Result<(), DataDirProblem> {
    let folder = nearest(dir)?;
    // Permissions alone do not tell: the file system may be read-only.
    let draft = folder.join(format!(".gateway-check.{:016x}", rand::random::<u64>()));
    let written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft);
    let written = written.and_then(|_| fs::remove_file(&draft));
    written.map_err(|error| DataDirProblem::Unwritable { folder: folder.to_owned(), error })?;
    for file in files {
        match OpenOptions::new().read(true).write(true).open(file) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(DataDirProblem::Unusable { file: file.clone(), error });
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

const NAME: &str = "seal.key";
/// In characters: 128 bits even if they are hexadecimal digits.
const MIN_KEY_BYTES: usize = 32;
const MAX_KEY_FILE_BYTES: u64 = 4096;

/// Reason for which there is no key.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// The file cannot be read or created.
    #[error("cannot use {file}: {error}")]
    Unusable {
        /// The file.
        file: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// Every user of the machine could have read the key.
    #[error(
        "{file} is open to every user of this machine (mode {mode:o}): a reader of the key can forge handles. \
         Remove it so that a new key is made (present handles become invalid), or `chmod 600` it if no other user has read it"
    )]
    Open {
        /// The file.
        file: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The file does not contain a key.
    #[error(
        "{file} holds no key ({what}): put back the one that was there, or remove the file so that a new key is made \
         (the handles of today end)"
    )]
    NoKey {
        /// The file.
        file: PathBuf,
        /// The defect.
        what: &'static str,
    },
}

/// Returns the key in this directory. Creates it if there is none: 256 random bits in a file for
/// this user alone; several processes that start at once all get the same key.
///
/// # Errors
///
/// [`KeyFileError`] tells the defect of the file, and the remedy.
pub fn seal_key(dir: &Path) -> Result<Secret, KeyFileError> {
    let file = dir.join(NAME);
    let unusable = |error| KeyFileError::Unusable { file: file.clone(), error };
    match File::open(&file) {
        Ok(open) => return read(open, &file),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(unusable(error)),
    }
    create_key(dir, &file).map_err(unusable)?;
    // Not the key that was just made: another process may have been first.
    read(File::open(&file).map_err(unusable)?, &file)
}

/// Checks the key in this directory, if there is one.
///
/// # Errors
///
/// As [`seal_key`].
pub fn probe_key(dir: &Path) -> Result<(), KeyFileError> {
    let file = dir.join(NAME);
    match File::open(&file) {
        Ok(open) => read(open, &file).map(drop),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(()),
        Err(error) => Err(KeyFileError::Unusable { file, error }),
    }
}

fn read(open: File, file: &Path) -> Result<Secret, KeyFileError> {
    let unusable = |error| KeyFileError::Unusable { file: file.to_owned(), error };
    let no_key = |what| KeyFileError::NoKey { file: file.to_owned(), what };
    let mode = open.metadata().map_err(unusable)?.permissions().mode() & 0o777;
    // The group may read: volumes that are mounted for a group give it the right to each file,
    // again at each start.
    if mode & 0o007 != 0 {
        return Err(KeyFileError::Open { file: file.to_owned(), mode });
    }
    let mut bytes = Vec::new();
    open.take(MAX_KEY_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(unusable)?;
    let text = std::str::from_utf8(&bytes).map_err(|_| no_key("it is not text"))?.trim();
    match text.len() {
        short if short < MIN_KEY_BYTES => Err(no_key("it has fewer than 32 characters")),
        _ if bytes.len() as u64 > MAX_KEY_FILE_BYTES => Err(no_key("it is longer than 4 KiB")),
        _ => Ok(Secret::new(text)),
    }
}

/// Writes a key under a temporary name and links it to `file`, unless that exists by then.
fn create_key(dir: &Path, file: &Path) -> io::Result<()> {
    make(dir)?;
    let draft = dir.join(format!("{NAME}.{:016x}", rand::random::<u64>()));
    let made = write(&draft).and_then(|()| match fs::hard_link(&draft, file) {
        // A link never replaces, as a rename would: the first process wins.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        linked => linked,
    });
    let removed = fs::remove_file(&draft);
    made.and(removed)?;
    sync(dir)
}

fn write(draft: &Path) -> io::Result<()> {
    let key = HEXLOWER.encode(&rand::random::<[u8; 32]>());
    let mut out = OpenOptions::new().write(true).create_new(true).mode(0o600).open(draft)?;
    out.write_all(key.as_bytes())?;
    out.write_all(b"\n")?;
    out.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

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

    fn names(dir: &Path) -> Vec<String> {
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_key_is_made_once_and_stays() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("data/here");
        let key = seal_key(&dir).unwrap();
        assert_eq!(key.expose().len(), 64);
        assert_eq!(seal_key(&dir).unwrap(), key);
        assert_eq!(names(&dir), [NAME]);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&dir), mode(&dir.join(NAME))), (0o700, 0o600));
        assert_ne!(seal_key(&home.path().join("other")).unwrap(), key);
    }

    #[test]
    fn processes_that_start_at_once_agree_on_one_key() {
        let home = tempfile::tempdir().unwrap();
        let (dir, start) = (home.path(), Barrier::new(8));
        let keys: Vec<Secret> = std::thread::scope(|scope| {
            let starting: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        start.wait();
                        seal_key(dir).unwrap()
                    })
                })
                .collect();
            starting.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert!(keys.iter().all(|key| *key == keys[0]));
        assert_eq!(names(dir), [NAME]);
    }

    #[test]
    fn a_file_that_is_no_secret_is_refused_with_the_remedy() {
        let long = "x".repeat(4097);
        let good = "0123456789abcdef0123456789abcdef\n";
        for (mode, text, expected) in [
            (0o600, good, None),
            (0o660, good, None),
            (0o644, good, Some("mode 644")),
            (0o602, good, Some("chmod 600")),
            (0o600, "", Some("fewer than 32")),
            (0o600, "   0123456789abcdef0123456789abcde   \n", Some("fewer than 32")),
            (0o600, &long, Some("longer than 4 KiB")),
        ] {
            let home = tempfile::tempdir().unwrap();
            let file = home.path().join(NAME);
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            match (seal_key(home.path()), expected) {
                (Ok(key), None) => assert_eq!(key.expose(), text.trim()),
                (Err(problem), Some(expected)) => {
                    let words = problem.to_string();
                    assert!(words.contains(expected) && words.contains(NAME), "{words}");
                    assert!(words.contains("emove"), "{words}");
                }
                (other, _) => panic!("{mode:o} {text:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn unreadable_key_file_is_named() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("file");
        fs::write(&file, "x").unwrap();
        let words = seal_key(&file.join("below")).unwrap_err().to_string();
        assert!(words.contains("below/seal.key"), "{words}");
    }
}
