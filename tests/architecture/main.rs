//! Holds the source to the architecture: allowed imports, sizes, names, headers.
//!
//! Reads the files under `src` and `tests` as text. The plan is data at the top; moving a wall
//! means changing it here and in `ARCHITECTURE.md`, in the same commit. The checks themselves are proven
//! on bad snippets below. Out of scope: rules that the compiler or clippy checks.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "a test that fails loudly"
)]

mod documents;
mod language;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use language::Language;
use source::{blank, imports, tokens};

/// Each module at the top of the crate, and the others that it may name. Every module has its line.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("jsonrpc", &[]),
    ("sse", &[]),
    ("seal", &[]),
    ("protobuf", &[]),
    ("telemetry", &["hex", "protobuf", "sync"]),
    ("file_watcher", &[]),
    ("hex", &[]),
    ("sync", &[]),
    ("timing", &[]),
    ("tls_stream", &[]),
    // A peer: sharing code with the gateway would hide the gateway's mistakes.
    ("demo", &[]),
    ("mcp", &["jsonrpc"]),
    ("a2a", &["hex", "jsonrpc", "protobuf"]),
    ("fault", &["mcp"]),
    ("bridge", &["jsonrpc", "sse", "mcp", "a2a", "fault", "seal"]),
    ("config", &["mcp", "a2a"]),
    // A refusal becomes a fault, and is counted.
    ("quota", &["fault", "sync", "telemetry"]),
    ("transport", &["config", "fault", "quota", "sync", "telemetry", "timing", "tls_stream"]),
    // Fetches of tokens and files that are read again are counted.
    ("auth", &["config", "fault", "file_watcher", "transport", "sync", "telemetry", "timing"]),
    (
        "agents",
        &[
            "jsonrpc",
            "sse",
            "a2a",
            "auth",
            "config",
            "fault",
            "file_watcher",
            "quota",
            "seal",
            "transport",
            "sync",
            "telemetry",
            "timing",
        ],
    ),
    // Of `bridge` only `work`: the effect of an event on a task is pure and lives there.
    ("tasks", &["a2a", "bridge", "fault", "seal", "config", "sync", "telemetry"]),
    // Rows are persisted through the journal of tasks.
    ("memory", &["quota", "sync", "tasks"]),
    // Replicas share rows of tasks, rates of callers, and the endpoints of agents.
    ("shared_state", &["agents", "config", "quota", "seal", "sync", "tasks", "timing"]),
    // A followed call takes in what the agent says (`a2a`), ends with a `fault`, is counted, and is
    // stopped through `transport`.
    (
        "follow",
        &[
            "tasks",
            "agents",
            "bridge",
            "a2a",
            "fault",
            "quota",
            "shared_state",
            "sync",
            "telemetry",
            "transport",
        ],
    ),
    ("sessions", &["mcp", "seal", "fault", "auth", "config", "quota", "tasks", "sync"]),
    // A quota counts live tasks; its tests make some (`bridge`).
    ("limits", &["bridge", "auth", "config", "fault", "quota", "shared_state", "tasks", "sync", "telemetry"]),
    // The connection to a client: what it may send, and the response. The engine sees no more of it.
    (
        "http_edge",
        &[
            "jsonrpc",
            "sse",
            "mcp",
            "fault",
            "hex",
            "agents",
            "auth",
            "config",
            "limits",
            "quota",
            "sync",
            "telemetry",
            "timing",
            "transport",
        ],
    ),
    ("access", &["mcp", "fault", "bridge", "agents", "auth", "config", "http_edge", "telemetry"]),
    (
        "discovery",
        &[
            "jsonrpc",
            "mcp",
            "a2a",
            "fault",
            "seal",
            "bridge",
            "agents",
            "auth",
            "config",
            "access",
            "http_edge",
            "limits",
            "telemetry",
        ],
    ),
    ("calls", BELOW_SERVERS),
    ("resources", WITH_CALLS),
    ("batch", WITH_RESOURCES),
    // The servers never import each other: what they share is below.
    ("mcp_server", WITH_BATCH),
    ("a2a_server", WITH_CALLS),
    (
        "push_receiver",
        &["a2a", "fault", "seal", "agents", "config", "follow", "http_edge", "quota", "tasks", "telemetry"],
    ),
    // The way to a collector; the spans come from `telemetry`.
    ("otlp", &["auth", "config", "protobuf", "sync", "telemetry", "transport"]),
    ("gateway", BELOW_GATEWAY),
    ("server", ANYTHING),
    ("stdio", ANYTHING),
    ("tls", ANYTHING),
    ("admin", ANYTHING),
    ("cli", ANYTHING),
    // Entry points.
    ("lib", ANYTHING),
    ("main", ANYTHING),
];
const BELOW_SERVERS: &[&str] = &[
    "jsonrpc",
    "sse",
    "mcp",
    "a2a",
    "fault",
    "seal",
    "bridge",
    "agents",
    "auth",
    "config",
    "follow",
    "quota",
    "sync",
    "tasks",
    "telemetry",
    "timing",
    "transport",
    "sessions",
    "shared_state",
    "limits",
    "http_edge",
    "access",
    "discovery",
];
const WITH_CALLS: &[&str] = &[
    "jsonrpc",
    "sse",
    "mcp",
    "a2a",
    "fault",
    "seal",
    "bridge",
    "agents",
    "auth",
    "config",
    "follow",
    "quota",
    "sync",
    "tasks",
    "telemetry",
    "timing",
    "transport",
    "sessions",
    "shared_state",
    "limits",
    "http_edge",
    "access",
    "discovery",
    "calls",
    "memory",
];
const WITH_RESOURCES: &[&str] = &[
    "jsonrpc",
    "sse",
    "mcp",
    "a2a",
    "fault",
    "seal",
    "bridge",
    "agents",
    "auth",
    "config",
    "follow",
    "quota",
    "sync",
    "tasks",
    "telemetry",
    "timing",
    "transport",
    "sessions",
    "shared_state",
    "limits",
    "http_edge",
    "access",
    "discovery",
    "calls",
    "memory",
    "resources",
];
const WITH_BATCH: &[&str] = &[
    "jsonrpc",
    "sse",
    "mcp",
    "a2a",
    "fault",
    "seal",
    "bridge",
    "agents",
    "auth",
    "config",
    "follow",
    "quota",
    "sync",
    "tasks",
    "telemetry",
    "timing",
    "transport",
    "sessions",
    "shared_state",
    "limits",
    "http_edge",
    "access",
    "discovery",
    "calls",
    "memory",
    "resources",
    "batch",
];
/// Composition alone: the services, and the parts that they are made of.
const BELOW_GATEWAY: &[&str] = &[
    // Sources of agents that fail are read again later.
    "timing",
    "otlp",
    "batch",
    "memory",
    "resources",
    "a2a",
    "fault",
    "seal",
    "agents",
    "auth",
    "config",
    "follow",
    "mcp",
    "sync",
    "tasks",
    "telemetry",
    "transport",
    "sessions",
    "shared_state",
    "limits",
    "http_edge",
    "access",
    "discovery",
    "calls",
    "mcp_server",
    "a2a_server",
    "push_receiver",
];
const ANYTHING: &[&str] = &["*"];

/// Modules without I/O, clock and randomness; the compiler sees to everything but the standard
/// library.
const PURE: &[&str] = &["jsonrpc", "sse", "mcp", "a2a", "fault", "seal", "bridge"];
const IMPURE: &[&str] =
    &["Instant::now", "SystemTime::now", "std::fs", "std::env", "std::process", "std::thread", "TcpStream"];
/// The only places that name Pingora: its sessions, servers and listeners.
const PINGORA_PLACES: &[&str] = &[
    "src/http_edge/",
    "src/server/",
    "src/tls/",
    "src/admin/",
    "src/gateway/mod.rs",
    "src/gateway/background.rs",
];
const NO_MODULE_NAMES: &[&str] =
    &["utils", "util", "common", "helpers", "helper", "types", "manager", "misc"];
/// Lines of a file without its inline tests. A file is a unit of thought, not of length: this many
/// are the point at which it is questioned.
const MAX_LINES: usize = 800;
/// Where the inline tests of a file begin; those of one file may be used by another.
const INLINE_TESTS: [&str; 2] = ["#[cfg(test)]\nmod tests {", "#[cfg(test)]\npub(crate) mod tests {"];
/// Lines of code of a file that is worth opening by itself; a smaller one needs two other files that
/// use it.
const MIN_LINES: usize = 60;
/// In two parts, so that this file does not accuse itself.
const MACHINE_PATHS: &[(&str, &str)] = &[("/t", "mp/"), ("/wo", "rk/"), ("/ro", "ot/"), ("/ho", "me/")];

#[test]
fn source_keeps_to_plan() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut problems = Vec::new();
    let mut files = 0;
    for directory in ["src", "tests", "examples", "benches"] {
        for file in rust_files(&root.join(directory)) {
            let text = fs::read_to_string(&file).unwrap();
            let name = file.strip_prefix(root).unwrap().to_string_lossy().replace('\\', "/");
            problems.extend(check(&name, &text));
            files += 1;
        }
    }
    assert!(files > 10, "only {files} files were found: the test looks in the wrong place");
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
}

#[test]
fn plan_has_no_cycle() {
    let plan: BTreeMap<_, _> = MAY_IMPORT.iter().copied().collect();
    for (module, allowed) in MAY_IMPORT.iter().filter(|(_, allowed)| *allowed != ANYTHING) {
        let mut reached = BTreeSet::new();
        let mut open: Vec<&str> = allowed.to_vec();
        while let Some(next) = open.pop() {
            assert!(plan.contains_key(next), "{module} may import {next}, which the plan does not have");
            if reached.insert(next) {
                open.extend(plan[next]);
            }
        }
        assert!(!reached.contains(module), "{module} reaches itself");
    }
}

/// Thresholds of the language of `src`; a change may lower them.
const MAX_ONE_WORD_TYPES: f64 = 30.0;
const MAX_REPEATED_TYPES: f64 = 2.0;
const MAX_TUPLE_PARAMETERS: usize = 5;
const MAX_NESTED_RESULTS: usize = 0;
const MAX_INDEFINITE: f64 = 0.5;
const MAX_HEADLESS: f64 = 0.3;

#[test]
fn names_and_comments_keep_the_language() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut language = Language::default();
    for file in rust_files(&root.join("src")) {
        let name = file.strip_prefix(root).unwrap().to_string_lossy().replace('\\', "/");
        if !name.ends_with("/tests.rs") && !name.contains("/simulation") {
            language.add(&name, &fs::read_to_string(&file).unwrap());
        }
    }
    let mut problems = Vec::new();
    for (figure, most, of) in [
        (language.one_word_types(), MAX_ONE_WORD_TYPES, "% of the names of types are one word"),
        (
            language.repeated_types(),
            MAX_REPEATED_TYPES,
            "% of the names of types are declared in three files or more",
        ),
        (
            language.indefinite_per_1000(),
            MAX_INDEFINITE,
            "indefinite subjects (nobody, whoever …) in 1,000 words",
        ),
        (language.headless_per_1000(), MAX_HEADLESS, "clauses that begin with who or what in 1,000 words"),
    ] {
        println!("{figure:.2} {of} (at most {most})");
        if figure > most {
            problems.push(format!("{figure:.2} {of}: more than {most}"));
        }
    }
    println!(
        "{} functions take a tuple, {} nested results",
        language.tuple_parameters.len(),
        language.nested_results
    );
    problems.extend(language.bare_constants);
    if language.tuple_parameters.len() > MAX_TUPLE_PARAMETERS {
        problems.push(format!(
            "more than {MAX_TUPLE_PARAMETERS} functions take a tuple: {:?}",
            language.tuple_parameters
        ));
    }
    if language.nested_results > MAX_NESTED_RESULTS {
        problems.push(format!("{} nested results: more than {MAX_NESTED_RESULTS}", language.nested_results));
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// A file that is small and that one other file alone uses is a part of that file.
#[test]
fn small_files_are_used_by_two_others() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        let code = blank(without_tests(&text));
        (path, code)
    };
    let files: Vec<(PathBuf, String)> = rust_files(&root.join("src")).into_iter().map(read).collect();
    let lonely: Vec<String> = files
        .iter()
        .filter(|(path, code)| is_small(path, code) && users(path, code, &files) < 2)
        .map(|(path, _)| path.strip_prefix(root).unwrap().display().to_string())
        .collect();
    assert!(lonely.is_empty(), "merge each into the file that uses it: {lonely:?}");
}

/// Returns true for a file of few lines of code that is not the root of a folder or of a crate.
fn is_small(path: &Path, code: &str) -> bool {
    let is_root = ["mod.rs", "lib.rs", "main.rs"].iter().any(|name| path.ends_with(name));
    !is_root && code.lines().filter(|line| !line.trim().is_empty()).count() < MIN_LINES
}

/// Returns how many other files name a public item of this file, re-exports not counted.
fn users(path: &Path, code: &str, files: &[(PathBuf, String)]) -> usize {
    let items = public_items(code);
    let uses = |code: &str| {
        let body: String = code.split_inclusive(';').filter(|part| !is_reexport(part)).collect();
        tokens(&body).iter().any(|token| items.iter().any(|item| item == token.text))
    };
    files.iter().filter(|(other, code)| other != path && uses(code)).count()
}

/// Returns the names of the items that a file declares for others: types, and free functions.
fn public_items(code: &str) -> Vec<String> {
    const KINDS: &[&str] = &["struct", "enum", "trait", "type", "const", "static", "fn", "mod"];
    let public = code.lines().filter(|line| line.starts_with("pub"));
    let name = |line: &str| {
        let words = tokens(line);
        let at = words.iter().rposition(|word| KINDS.contains(&word.text))?;
        words.get(at + 1).map(|word| word.text.to_owned())
    };
    public.filter_map(name).collect()
}

fn is_reexport(statement: &str) -> bool {
    let last = statement.rsplit(['}', '{']).next().unwrap_or_default();
    let whole = if statement.trim_end().ends_with("};") { statement } else { last };
    whole.trim_start().starts_with("pub") && whole.contains(" use ")
}

/// The text of a file before its inline tests.
fn without_tests(text: &str) -> &str {
    let end = INLINE_TESTS.iter().filter_map(|begin| text.find(begin)).min();
    text.get(..end.unwrap_or(text.len())).unwrap_or_default()
}

/// Every way in which this file breaks the plan.
fn check(name: &str, text: &str) -> Vec<String> {
    let code = blank(text);
    let tokens = tokens(&code);
    let mut problems = Vec::new();
    let mut problem = |line: usize, what: String| problems.push(format!("{name}:{line}: {what}"));
    if !text.starts_with("//!") {
        problem(1, "does not open with a //! header".into());
    }
    let lines = without_tests(text).lines().count();
    if lines > MAX_LINES {
        problem(lines, format!("{lines} lines without its tests are more than {MAX_LINES}"));
    }
    for part in name.trim_end_matches(".rs").split('/').filter(|part| NO_MODULE_NAMES.contains(part)) {
        problem(1, format!("`{part}` says nothing about what is in it"));
    }
    for (number, line) in text.lines().enumerate() {
        for (head, tail) in MACHINE_PATHS {
            if line.contains(&format!("{head}{tail}")) {
                problem(number + 1, format!("names the machine path {head}{tail}"));
            }
        }
    }
    for window in tokens.windows(4) {
        match [window[0].text, window[1].text, window[2].text, window[3].text] {
            ["#", "[", "ignore", "]"] => problem(window[0].line, "#[ignore] without a reason".into()),
            ["mod", inner, "{" | ";", _] if NO_MODULE_NAMES.contains(&inner) => {
                problem(window[0].line, format!("`{inner}` says nothing about what is in it"));
            }
            _ => {}
        }
    }
    if let Some(inside) = name.strip_prefix("src/") {
        let (home, path) = place(inside);
        check_imports(&home, &imports(&tokens, &path), &mut problem);
        if !PINGORA_PLACES.iter().any(|place| name.starts_with(place)) {
            for (number, _) in code.lines().enumerate().filter(|(_, line)| line.contains("pingora::")) {
                problem(number + 1, "names Pingora outside of its places".into());
            }
        }
        if PURE.contains(&home.as_str()) && !inside.contains("tests") {
            check_purity(&code, &mut problem);
        }
    }
    problems
}

fn check_imports(home: &str, imports: &[(usize, String)], problem: &mut impl FnMut(usize, String)) {
    let known = |name: &str| MAY_IMPORT.iter().find(|(module, _)| *module == name);
    let Some((_, allowed)) = known(home) else {
        return problem(1, format!("the module `{home}` has no place in the plan"));
    };
    for (line, import) in imports.iter().filter(|(_, import)| import != home) {
        if *allowed != ANYTHING && !allowed.contains(&import.as_str()) {
            let why = if known(import).is_some() { "" } else { " (which is no module of the plan)" };
            problem(*line, format!("`{home}` may not import `{import}`{why}"));
        }
    }
}

fn check_purity(code: &str, problem: &mut impl FnMut(usize, String)) {
    let product = code.split("mod tests").next().unwrap_or_default();
    for (number, line) in product.lines().enumerate() {
        for impure in IMPURE.iter().filter(|impure| line.contains(**impure)) {
            problem(number + 1, format!("`{impure}` in a pure module: hand it in as an argument"));
        }
    }
}

/// The top module that a file under `src` belongs to, and the module path of the file (empty: the
/// crate root).
fn place(inside: &str) -> (String, Vec<String>) {
    let mut path: Vec<String> = inside.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    let home = path[0].clone();
    if path.last().is_some_and(|last| last == "mod") || inside == "lib.rs" || inside == "main.rs" {
        path.pop();
    }
    (home, path)
}

fn rust_files(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| !path.ends_with("target")) // what cargo makes of a crate there
        .flat_map(|path| if path.is_dir() { rust_files(&path) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect();
    files.sort();
    files
}

#[test]
fn users_of_small_file_are_counted() {
    let small = "pub(crate) struct Pause(u8);\npub fn wait() {}\nfn own() {}";
    assert_eq!(public_items(small), ["Pause", "wait"]);
    let file = |name: &str, code: &str| (PathBuf::from(name), code.to_owned());
    let files = [
        file("a/small.rs", small),
        file("a/mod.rs", "mod small;\npub(crate) use small::{Pause, wait};"),
        file("a/one.rs", "use super::Pause;\nfn own() {}"),
        file("a/other.rs", "fn f() { super::wait() }"),
        file("b.rs", "fn own() {}"),
    ];
    assert_eq!(users(Path::new("a/small.rs"), small, &files), 2);
    assert!(is_small(Path::new("a/small.rs"), small) && !is_small(Path::new("a/mod.rs"), small));
}

#[test]
fn each_broken_rule_is_found() {
    let machine_path = format!("//! x\nconst P: &str = \"{}{}x\";", "/t", "mp/");
    for (name, text, expected) in [
        ("src/mcp/tools.rs", "//! x\nuse crate::a2a::Task;", "`mcp` may not import `a2a`"),
        ("src/mcp/tools.rs", "//! x\nuse super::super::a2a::Task;", "`mcp` may not import `a2a`"),
        ("src/mcp/mod.rs", "//! x\nuse super::a2a;", "`mcp` may not import `a2a`"),
        (
            "src/mcp/mod.rs",
            "//! x\nmod deep { use super::super::{jsonrpc, a2a}; }",
            "`mcp` may not import `a2a`",
        ),
        (
            "src/mcp/tools.rs",
            "//! x\nuse super::{Tool, super::a2a::{Task, Part}};",
            "`mcp` may not import `a2a`",
        ),
        (
            "src/mcp/tools.rs",
            "//! x\nuse crate::{jsonrpc as j,\n a2a::Task};",
            "3: `mcp` may not import `a2a`",
        ),
        ("src/mcp/tools.rs", "//! x\nfn f() -> crate::bridge::Call {}", "`mcp` may not import `bridge`"),
        ("src/mcp/a/b.rs", "//! x\nuse super::super::super::a2a;", "`mcp` may not import `a2a`"),
        ("src/fault.rs", "//! x\nuse super::seal::Sealer;", "`fault` may not import `seal`"),
        ("src/sse/mod.rs", "//! x\nuse crate::Thing;", "no module of the plan"),
        ("src/demo/mod.rs", "//! x\nuse crate::a2a;", "`demo` may not import `a2a`"),
        ("src/gateway/mod.rs", "//! x\nuse crate::server::run;", "`gateway` may not import `server`"),
        (
            "src/calls/run.rs",
            "//! x\nuse crate::mcp_server::McpServer;",
            "`calls` may not import `mcp_server`",
        ),
        ("src/mcp_server/post.rs", "//! x\nuse crate::a2a_server::A2aServer;", "may not import `a2a_server`"),
        ("src/calls/run.rs", "//! x\nuse pingora::proxy::Session;", "names Pingora"),
        ("src/newcomer/mod.rs", "//! x", "`newcomer` has no place in the plan"),
        ("src/sse/mod.rs", "//! x\nfn f() { Instant::now(); }", "`Instant::now` in a pure module"),
        ("src/sse/mod.rs", "fn f() {}", "does not open with a //! header"),
        ("src/sse/utils.rs", "//! x", "`utils` says nothing"),
        ("src/sse/mod.rs", "//! x\nmod helpers;\nfn f() {}", "`helpers` says nothing"),
        ("tests/a.rs", "//! x\n#[test]\n#[ignore]\nfn f() {}", "3: #[ignore] without a reason"),
        ("tests/a.rs", &machine_path, "names the machine path"),
        (
            "src/sse/mod.rs",
            &format!("//! x\n{}", "\n".repeat(MAX_LINES)),
            "lines without its tests are more than",
        ),
    ] {
        let problems = check(name, text);
        assert_eq!(problems.len(), 1, "{name}: {text}: {problems:?}");
        assert!(problems[0].contains(expected), "{name}: {text}: {problems:?}");
    }
}

#[test]
fn correct_source_has_no_problems() {
    for (name, text) in [
        ("src/mcp/tools.rs", "//! x\nuse crate::jsonrpc::Id;\nuse crate::mcp::Era;\nuse super::Tool;"),
        ("src/mcp/tools.rs", "//! x\n// use crate::a2a;\n/* crate::a2a */ /// crate::a2a\nfn f() {}"),
        ("src/mcp/tools.rs", "//! x\nconst A: &str = \"crate::a2a \\\" crate::a2a\";\nconst B: char = '\"';"),
        ("src/mcp/tools.rs", "//! x\nconst A: &str = r#\"crate::a2a \" \"#; fn f<'a>(x: &'a str) {}"),
        ("src/mcp/tools.rs", "//! x\nmod tests { use super::super::Era; use super::a2a; }"),
        (
            "src/mcp/tools.rs",
            "//! x\npub(in crate::mcp) fn f() {}\npub(super) mod a2a {}\npub(crate) struct S;",
        ),
        ("src/a2a/v1/part.rs", "//! x\nuse super::super::model::Part;\nuse other::crate_name;"),
        ("src/sse/mod.rs", "//! x\nfn f() {}\n#[cfg(test)]\nmod tests { fn g() { Instant::now(); } }"),
        ("src/lib.rs", "//! x\npub mod a2a;\npub use crate::cli::run;"),
        ("src/server.rs", "//! x\nuse crate::demo::DemoAgent;"),
        ("tests/a.rs", "//! x\n#[ignore = \"needs node\"]\nfn f() { crate::a2a::x(); }"),
    ] {
        assert_eq!(check(name, text), Vec::<String>::new(), "{text}");
    }
}
