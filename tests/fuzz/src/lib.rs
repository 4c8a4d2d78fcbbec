//! The frame that makes a program of a fuzz target.
//!
//! With the feature `libfuzzer` it is one of libFuzzer's; without, it replays the files and folders
//! on its command line, which needs no C++ compiler: for seeds in CI, and for looking at a finding
//! under a debugger.

use std::path::{Path, PathBuf};
use std::{env, fs};

#[cfg(feature = "libfuzzer")]
pub use libfuzzer_sys;

/// Makes the program for a function that takes bytes and panics if what it promises does not hold.
///
/// The file needs `#![cfg_attr(feature = "libfuzzer", no_main)]`.
#[macro_export]
macro_rules! program {
    ($target:path) => {
        #[cfg(feature = "libfuzzer")]
        $crate::libfuzzer_sys::fuzz_target!(|bytes: &[u8]| $target(bytes));
        #[cfg(not(feature = "libfuzzer"))]
        fn main() {
            $crate::replay($target);
        }
    };
}

/// Gives every file named on the command line, and every file in the folders named there, to
/// `target`.
///
/// # Panics
///
/// If there is none, or one cannot be read, or `target` does.
pub fn replay(target: impl Fn(&[u8])) {
    let named: Vec<PathBuf> = env::args_os().skip(1).map(PathBuf::from).collect();
    let files: Vec<PathBuf> = named.iter().flat_map(|path| files(path)).collect();
    assert!(!files.is_empty(), "name the files or folders to replay");
    for file in &files {
        target(&fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display())));
    }
    println!("{} files replayed", files.len());
}

fn files(path: &Path) -> Vec<PathBuf> {
    match fs::read_dir(path) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
        Err(_) => vec![path.to_owned()],
    }
}
