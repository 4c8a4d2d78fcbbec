//! Finds changes of files by their stamps: only changed files are read again.
//!
//! By looking at them at intervals, and not by notifications of the system: those do not see a
//! mounted secret, which is changed by another link. See `agents` and `tls` for the intervals.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The files of one user, as the last checks found them. Before the first check every file counts as
/// changed.
#[derive(Debug, Clone, Default)]
pub(crate) struct FileWatcher {
    /// The stamps of the content in use.
    used: FileStamps,
    /// The stamps of the last check.
    last: FileStamps,
}

type FileStamps = BTreeMap<PathBuf, Option<FileStamp>>;

/// The metadata that changes with a file if it is written, replaced, or made readable; of a link,
/// that of its target.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FileStamp {
    target: PathBuf,
    inode: u64,
    bytes: u64,
    /// In seconds and nanoseconds.
    written: (i64, i64),
    changed: (i64, i64),
}

impl FileWatcher {
    /// Creates a watcher of files that are read at this moment. Blocks.
    pub(crate) fn of<'a>(files: impl Iterator<Item = &'a Path>) -> Self {
        let stamps = stamps(files);
        Self { used: stamps.clone(), last: stamps }
    }

    /// Checks the files; returns true if they have changed since the last check. Blocks.
    pub(crate) fn has_changed<'a>(&mut self, files: impl Iterator<Item = &'a Path>) -> bool {
        let now = stamps(files);
        let has_changed = now != self.last;
        self.used.clone_from(&now);
        self.last = now;
        has_changed
    }

    /// Checks the files; returns true if they have changed since they were read, and not since the
    /// last check: of several files that change together, all have changed then. They count as read
    /// from now on. Blocks.
    pub(crate) fn has_settled<'a>(&mut self, files: impl Iterator<Item = &'a Path>) -> bool {
        let now = stamps(files);
        let has_settled = now == self.last && now != self.used;
        self.last = now;
        if has_settled {
            self.accept();
        }
        has_settled
    }

    /// Records that the files were read as the last check found them.
    pub(crate) fn accept(&mut self) {
        self.used.clone_from(&self.last);
    }
}

fn stamps<'a>(files: impl Iterator<Item = &'a Path>) -> FileStamps {
    files.map(|path| (path.to_owned(), FileStamp::of(path))).collect()
}

impl FileStamp {
    fn of(path: &Path) -> Option<Self> {
        let target = path.canonicalize().ok()?;
        let data = target.metadata().ok()?;
        Some(Self {
            target,
            inode: data.ino(),
            bytes: data.size(),
            written: (data.mtime(), data.mtime_nsec()),
            changed: (data.ctime(), data.ctime_nsec()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn written_and_removed_files_have_changed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        let mut watcher = FileWatcher::default();
        let files = || [file.as_path()].into_iter();
        assert!(watcher.has_changed(files()) && !watcher.has_changed(files()), "missing");
        fs::write(&file, "one").unwrap();
        assert!(watcher.has_changed(files()) && !watcher.has_changed(files()));
        fs::write(&file, "other").unwrap();
        assert!(watcher.has_changed(files()) && !watcher.has_changed(files()));
        fs::remove_file(&file).unwrap();
        assert!(watcher.has_changed(files()) && !watcher.has_changed(files()));
    }

    #[test]
    fn another_target_of_a_link_is_a_change() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("key");
        for name in ["a", "b"] {
            fs::write(folder.path().join(name), "same").unwrap();
        }
        std::os::unix::fs::symlink("a", &link).unwrap();
        let mut watcher = FileWatcher::of([link.as_path()].into_iter());
        assert!(!watcher.has_changed([link.as_path()].into_iter()));
        fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink("b", &link).unwrap();
        assert!(watcher.has_changed([link.as_path()].into_iter()));
    }

    #[test]
    fn change_has_settled_after_a_second_look() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        fs::write(&file, "one").unwrap();
        let files = || [file.as_path()].into_iter();
        let mut watcher = FileWatcher::of(files());
        assert!(!watcher.has_settled(files()));
        fs::write(&file, "other").unwrap();
        assert!(!watcher.has_settled(files()) && watcher.has_settled(files()));
        assert!(!watcher.has_settled(files()));
        fs::write(&file, "third").unwrap();
        assert!(!watcher.has_settled(files()));
        watcher.accept();
        assert!(!watcher.has_settled(files()), "it has been read meanwhile");
    }
}
