//! The data directory: made for this user alone, and told to be durable when a file comes into it.
//!
//! Not here: the files in it (`store`, `keyfile`).

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

/// Makes the directory, and those above it, for this user alone. One that is there is left as it is.
pub(super) fn make(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Makes the names in the directory durable: a new file is safe only when its name is.
pub(super) fn sync(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}
