//! Advisories that a version answers: each built-in crate must be at least as new as the repair.
//! And the list of all of them, held to the tests.
//!
//! Reads files of the repository alone. Out of scope: advisories that a journey can show (the other
//! files of this name).

use std::path::Path;

/// Crates that must be as new as this, and the reason.
const AT_LEAST: [(&str, [u64; 3], &str); 8] = [
    ("pingora", [0, 8, 1], "RUSTSEC-2025-0037, RUSTSEC-2026-0033, -0034"),
    ("pingora-core", [0, 8, 1], "RUSTSEC-2025-0070, and the bounds of HTTP/2 of 0.8.1"),
    ("pingora-proxy", [0, 8, 1], "RUSTSEC-2026-0033, -0034"),
    ("pingora-cache", [0, 8, 1], "RUSTSEC-2026-0035; built in by pingora-proxy, and never switched on"),
    ("h2", [0, 4, 16], "RUSTSEC-2024-0332, CVE-2025-8671, RUSTSEC-2026-0258"),
    ("rustls", [0, 23, 18], "RUSTSEC-2024-0336, RUSTSEC-2024-0399"),
    ("rustls-webpki", [0, 103, 13], "RUSTSEC-2026-0049, -0098, -0099, -0104"),
    ("rmcp", [1, 4, 0], "RUSTSEC-2026-0189 (CVE-2026-42559)"),
];
/// Crates that must not be there at all, and the reason.
const NEVER: [(&str, &str); 4] = [
    ("aws-lc-rs", "RUSTSEC-2026-0044, -0048; ring is the only cryptography"),
    ("aws-lc-sys", "RUSTSEC-2026-0044, -0048; ring is the only cryptography"),
    ("openssl", "ring is the only cryptography"),
    ("openssl-sys", "ring is the only cryptography"),
];

/// The crates of a lock file, with their versions.
fn crates(lock: &str) -> Vec<(&str, [u64; 3])> {
    let quoted = |line: &'static str, block: &'_ str| -> Option<String> {
        let value = block.lines().find_map(|own| own.strip_prefix(line))?;
        Some(value.trim_matches('"').to_owned())
    };
    lock.split("[[package]]")
        .filter_map(|block| {
            let name = block.lines().find_map(|line| line.strip_prefix("name = \""))?.trim_end_matches('"');
            let version = quoted("version = ", block)?;
            let mut numbers = version.split(['.', '-', '+']).map(|number| number.parse().unwrap());
            Some((name, [(); 3].map(|()| numbers.next().unwrap())))
        })
        .collect()
}

/// Crates that are too old or should not be there.
fn complaints(lock: &str) -> Vec<String> {
    let crates = crates(lock);
    let old = crates.iter().filter_map(|(name, version)| {
        let (_, least, why) = AT_LEAST.iter().find(|(known, ..)| known == name)?;
        (version < least).then(|| format!("{name} {version:?} is older than {least:?}: {why}"))
    });
    let unwanted = crates.iter().filter_map(|(name, _)| NEVER.iter().find(|(known, _)| known == name));
    old.chain(unwanted.map(|(name, why)| format!("{name}: {why}"))).collect()
}

fn read(file: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap()
}

/// Returns the text of the file of this name under `tests/gateway`, in any of its folders.
fn journey(name: &str) -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = std::fs::read_dir(root.join("tests/gateway")).unwrap().map(|folder| folder.unwrap().path());
    folders
        .chain([root.join("src/gateway/tests")])
        .find_map(|folder| std::fs::read_to_string(folder.join(format!("{name}.rs"))).ok())
}

#[test]
fn no_vulnerable_crate_is_built_in() {
    for file in ["Cargo.lock", "tests/fuzz/Cargo.lock"] {
        let lock = read(file);
        assert_eq!(complaints(&lock), Vec::<String>::new(), "{file}");
        for name in ["pingora-core", "pingora-proxy", "h2", "rustls", "rustls-webpki"] {
            assert!(crates(&lock).iter().any(|(known, _)| *known == name), "{file}: no {name} to judge");
        }
    }
}

#[test]
fn old_or_unwanted_crate_is_found() {
    let lock = "[[package]]\nname = \"h2\"\nversion = \"0.4.15\"\n\n[[package]]\nname = \"rustls-webpki\"\nversion = \"0.103.13\"\n\n\
                [[package]]\nname = \"aws-lc-rs\"\nversion = \"1.13.0\"\n";
    let found = complaints(lock);
    assert!(
        matches!(&found[..], [old, unwanted] if old.starts_with("h2 ") && unwanted.starts_with("aws-lc-rs")),
        "{found:?}"
    );
}

/// mcp-remote CVE-2025-6514, Inspector CVE-2025-49596 and CVE-2025-58444: words of a peer became a
/// command.
#[test]
fn no_program_is_started() {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    let mut seen = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.file_name().is_some_and(|name| name != "tests.rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                assert!(
                    !text.contains("process::Command") && !text.contains("process::{"),
                    "{}",
                    path.display()
                );
                seen += 1;
            }
        }
    }
    assert!(seen > 100, "the sources are here: {seen}");
}

/// The table at the top of `advisories` names tests that there are.
#[test]
fn advisories_name_existing_tests() {
    let own = journey("advisories").expect("the table");
    let mut named = 0;
    for row in own.lines().filter_map(|line| line.strip_prefix("//! | ")).skip(1) {
        let (advisory, holders) = row.split_once(" | ").unwrap();
        let mut names = holders.split('`').skip(1).step_by(2).peekable();
        assert!(names.peek().is_some(), "{advisory} is held by nothing");
        for name in names {
            let (file, test) = name.split_once("::").unwrap_or(("advisories", name));
            let has_test =
                |file: &str| journey(file).is_some_and(|text| text.contains(&format!("fn {test}(")));
            assert!(journey(name).is_some() || has_test(file), "{advisory}: there is no {name}");
            named += 1;
        }
    }
    assert!(named > 30, "the table is there: {named}");
}
