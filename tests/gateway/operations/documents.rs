//! The README and the book as a reader meets them: commands are run, configurations checked, printed
//! output compared, all as written but for ports and folders.
//!
//! A comment on the line before a block says how it is used; without one it is run by its language.
//!
//! | Comment | Block |
//! |---|---|
//! | `<!-- file: NAME -->` | is written to this file before the commands of the page run |
//! | `<!-- background: TEXT -->` | a command that runs to the end of the page; it is ready once it prints this text (several: `A; B`) |
//! | `<!-- output -->` | is in the output of the command before it, part for part between `…` |
//! | `<!-- part of: PATH -->` | stands in this file of the repository |
//! | `<!-- not run: REASON -->` | needs more than a test has |

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::support::{Authority, free_port};

const BINARY: &str = env!("CARGO_BIN_EXE_mcp-a2a-gateway");
const ROOT: &str = env!("CARGO_MANIFEST_DIR");
/// Ports that the pages name; each page gets others.
const PORTS: [u16; 11] = [8080, 8081, 8088, 8443, 8444, 9090, 9091, 9997, 9998, 9999, 3000];
/// Folders that the pages name, and their names in the folder of a page.
const FOLDERS: [(&str, &str); 4] = [
    ("/etc/gateway", "etc"),
    ("/var/lib/gateway", "var"),
    ("/var/lib/mcp-a2a-gateway", "state"),
    ("/run/mcp-a2a-gateway", "run"),
];
/// Longest time of one command.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);
/// Programs that pages call beside the gateway; a page that calls one is skipped where it is missing,
/// but not in CI.
const PROGRAMS: [&str; 3] = ["curl", "openssl", "python3"];
/// Languages of blocks that need no comment: shown, not used.
const SHOWN: [&str; 2] = ["text", "mermaid"];

/// A fenced block of a page.
#[derive(Debug)]
struct Block {
    line: usize,
    language: String,
    /// Text of the comment before it.
    mark: String,
    text: String,
}

impl Block {
    /// Returns the rest of a mark that begins so.
    fn marked(&self, kind: &str) -> Option<&str> {
        self.mark.strip_prefix(kind).map(|rest| rest.trim_start_matches(':').trim())
    }
}

/// A page, by its path in the repository.
#[derive(Debug)]
struct Page {
    path: String,
    blocks: Vec<Block>,
}

impl Page {
    fn read(path: &str) -> Self {
        let text = fs::read_to_string(Path::new(ROOT).join(path)).expect(path);
        let (mut blocks, mut open, mut before) = (Vec::new(), None::<Block>, "");
        for (line, written) in text.lines().enumerate() {
            match (&mut open, written.strip_prefix("```")) {
                (None, Some(language)) => {
                    let mark = before.strip_prefix("<!--").and_then(|mark| mark.strip_suffix("-->"));
                    open = Some(Block {
                        line: line + 1,
                        language: language.trim().to_owned(),
                        mark: mark.unwrap_or_default().trim().to_owned(),
                        text: String::new(),
                    });
                }
                (Some(_), Some(_)) => blocks.extend(open.take()),
                (Some(block), None) => block.text = format!("{}{written}\n", block.text),
                (None, None) => {}
            }
            before = written;
        }
        assert!(open.is_none(), "{path}: the last block has no end");
        Self { path: path.to_owned(), blocks }
    }

    /// Returns the README, every page of the book except the digests, which quote the wire, and those of
    /// the examples.
    fn all() -> Vec<Self> {
        let mut pages = vec![Self::read("README.md")];
        let mut folders = vec![PathBuf::from("docs"), PathBuf::from("examples")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(Path::new(ROOT).join(&folder)).unwrap() {
                let entry = entry.unwrap();
                let path = folder.join(entry.file_name());
                if entry.path().is_dir() && entry.file_name() != "spec" {
                    folders.push(path);
                } else if path.extension().is_some_and(|extension| extension == "md") {
                    pages.push(Self::read(path.to_str().unwrap()));
                }
            }
        }
        assert!(pages.len() > 20, "only {} pages were found", pages.len());
        pages
    }
}

/// The folder in which a page is followed, with ports of its own.
struct Workplace {
    folder: TempDir,
    ports: Vec<(u16, u16)>,
}

impl Workplace {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let place = Self { folder, ports: PORTS.map(|usual| (usual, free_port())).to_vec() };
        for (_, name) in FOLDERS {
            fs::create_dir(place.path(name)).unwrap();
        }
        for folder in ["examples", "config"] {
            place.copy(Path::new(folder));
            for entry in fs::read_dir(Path::new(ROOT).join(folder)).unwrap().map(Result::unwrap) {
                // Configurations in pages name files beside them.
                if entry.path().is_file() {
                    fs::copy(entry.path(), place.path("").join(entry.file_name())).unwrap();
                }
            }
        }
        place.write_certificates();
        place.write_programs();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Copies a folder of the repository, with the ports of this place.
    fn copy(&self, folder: &Path) {
        fs::create_dir(self.folder.path().join(folder)).unwrap();
        for entry in fs::read_dir(Path::new(ROOT).join(folder)).unwrap().map(Result::unwrap) {
            let (from, path) = (entry.path(), folder.join(entry.file_name()));
            if from.is_dir() {
                self.copy(&path);
            } else {
                let to = self.folder.path().join(path);
                fs::write(&to, self.adapted(&fs::read_to_string(&from).unwrap())).unwrap();
                fs::set_permissions(to, fs::metadata(from).unwrap().permissions()).unwrap();
            }
        }
    }

    /// The text with the ports and the folders of this place.
    fn adapted(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (usual, port) in &self.ports {
            for before in [":", "--port ", "-port ", "\", ", "127.0.0.1 "] {
                // A port that was put in before may begin with the digits of this one.
                let named = format!("{before}{usual}");
                let mut pieces = text.split(&named);
                let first = pieces.next().unwrap_or_default().to_owned();
                text = pieces.fold(first, |text, piece| {
                    let number = if piece.starts_with(|c: char| c.is_ascii_digit()) { usual } else { port };
                    format!("{text}{before}{number}{piece}")
                });
            }
        }
        for (usual, name) in FOLDERS {
            text = text.replace(usual, self.path(name).to_str().unwrap());
        }
        text
    }

    fn port(&self, usual: u16) -> u16 {
        self.ports.iter().find(|(known, _)| *known == usual).unwrap().1
    }

    fn write_certificates(&self) {
        let (ours, etc) = (Authority::new("ours"), self.path("etc"));
        ours.server_named(&["localhost", "gateway.example.com"]).write(&etc, "tls");
        ours.server_named(&["partners.example.com"]).write(&etc, "partners");
        for (name, text) in [
            ("clients-ca.pem", ours.pem()),
            ("internal-ca.pem", ours.pem()),
            ("clients.crl", ours.crl(&[])),
            ("seal.key", "0123456789abcdef".repeat(4)),
        ] {
            fs::write(etc.join(name), text).unwrap();
        }
    }

    /// The gateway under the names by which pages call it; a demo gets ports of this place.
    fn write_programs(&self) {
        let gateway = format!(
            "#!/bin/sh\ncase \" $* \" in\n*' --agent-port '*) ;;\n*' --agent-only '*) set -- \"$@\" --agent-port {} ;;\nesac\n\
             case \" $* \" in\n*' --port '* | *' --agent-only '*) ;;\n*' demo '*) set -- \"$@\" --port {} ;;\nesac\nexec {BINARY} \"$@\"\n",
            self.port(9999),
            self.port(8080),
        );
        let cargo = "#!/bin/sh\ncase \"$*\" in\n'run --release -- '*) shift 3; exec mcp-a2a-gateway \"$@\" ;;\n\
                     'install --path .'*) exit 0 ;;\nesac\necho \"unknown: cargo $*\" >&2\nexit 1\n";
        fs::create_dir(self.path("bin")).unwrap();
        for (name, text) in [("mcp-a2a-gateway", gateway.as_str()), ("cargo", cargo)] {
            let path = self.path("bin").join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
    }

    /// A shell that runs these commands here, as the leader of a process group.
    fn shell(&self, commands: &str) -> Command {
        let mut shell = Command::new("sh");
        let path = format!("{}:{}", self.path("bin").display(), std::env::var("PATH").unwrap());
        shell.args(["-euc", &self.adapted(commands)]).current_dir(self.folder.path()).env("PATH", path);
        shell.env("EMBED", embed_example());
        shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        shell
    }

    /// Reads this configuration as `check` does, completed to a whole one.
    fn check(&self, configuration: &str) -> Output {
        let mut text = self.adapted(configuration);
        let has = |text: &str, key: &str| text.starts_with(key) || text.contains(&format!("\n{key}"));
        if !has(&text, "listeners:") {
            text = format!("listeners: [{{ address: 127.0.0.1:1 }}]\n{text}");
        }
        if !has(&text, "agents:") && !has(&text, "manifests:") {
            text += "agents: { weather: { card: http://127.0.0.1:1/ } }\n";
        }
        // Files beside the configuration; their content does not matter.
        for named in ["file: ", "image: ", "audio: "].iter().flat_map(|key| text.split(key).skip(1)) {
            let is_name = |c: &char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_');
            let name: String = named.chars().take_while(is_name).collect();
            if name.contains('.') {
                fs::write(self.path(&name), "content").unwrap();
            }
        }
        let file = self.path("checked.yaml");
        fs::write(&file, &text).unwrap();
        let mut command = Command::new(BINARY);
        for reference in text.split("${env:").skip(1) {
            command.env(reference.split('}').next().unwrap(), "0123456789abcdef".repeat(4));
        }
        command.args(["check", "--config"]).arg(file).output().unwrap()
    }
}

/// A command in the background, with everything that it prints; its process group ends with it.
struct Running {
    child: Child,
    lines: Receiver<String>,
    printed: String,
}

impl Running {
    fn start(mut shell: Command) -> Self {
        let mut child = shell.spawn().unwrap();
        let (sender, lines) = channel();
        let streams: [Box<dyn std::io::Read + Send>; 2] =
            [Box::new(child.stdout.take().unwrap()), Box::new(child.stderr.take().unwrap())];
        for mut stream in streams {
            let sender = sender.clone();
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(count @ 1..) = stream.read(&mut buffer) {
                    let text = String::from_utf8_lossy(&buffer[..count]).into_owned();
                    if sender.send(text).is_err() {
                        return;
                    }
                }
            });
        }
        Self { child, lines, printed: String::new() }
    }

    /// Reads until the command has printed these texts, which have `; ` between them, or to its end.
    fn read_until(&mut self, texts: Option<&str>) -> Result<(), String> {
        let end = Instant::now() + COMMAND_TIMEOUT;
        while texts.is_none_or(|texts| texts.split("; ").any(|text| !self.printed.contains(text))) {
            match self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(more) => self.printed += &more,
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) if texts.is_none() => return Ok(()),
                Err(error) => return Err(format!("{error}; it printed:\n{}", self.printed)),
            }
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The group has ended already where this fails.
        let group = format!("-{}", self.child.id());
        Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status().map(drop).unwrap();
        self.child.wait().map(drop).unwrap_or_default();
    }
}

/// The example that mounts the gateway: cargo builds it beside the folder of the test binaries.
fn embed_example() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().parent().unwrap().join("examples").join("embed")
}

/// Runs the commands of a page in their order, and returns each that failed.
fn follow(page: &Page) -> String {
    let (place, mut problems, mut printed) = (Workplace::new(), String::new(), String::new());
    let mut background = Vec::new();
    for block in &page.blocks {
        let mut problem = |text: String| writeln!(problems, "{}:{}: {text}", page.path, block.line).unwrap();
        if let Some(name) = block.marked("file") {
            fs::write(place.path(name), place.adapted(&block.text)).unwrap();
        }
        if block.marked("output").is_some() {
            let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
            let (whole, expected) = (squeezed(&printed), squeezed(&place.adapted(&block.text)));
            let mut rest = whole.as_str();
            for part in expected.split('…').map(str::trim) {
                match rest.split_once(part) {
                    Some((_, after)) => rest = after,
                    None => problem(format!("{part:?} is not in the output:\n{whole}")),
                }
            }
        }
        if block.language != "sh" || block.marked("not run").is_some() {
            continue;
        }
        let mut running = Running::start(place.shell(&block.text));
        let ready = block.marked("background");
        match running.read_until(ready) {
            Err(error) => problem(error),
            Ok(()) if ready.is_none() && !running.child.wait().unwrap().success() => {
                problem(format!("the command failed: {}", running.printed));
            }
            Ok(()) => {}
        }
        printed.clone_from(&running.printed);
        background.extend(ready.map(|_| running));
    }
    problems
}

/// Returns the first of the missing programs that one of these texts calls.
fn needed_program<'p, 't>(
    missing: &[&'p str],
    texts: impl Iterator<Item = &'t str> + Clone,
) -> Option<&'p str> {
    let calls = |program: &str| {
        let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        texts.clone().any(|text| text.split(|c| !is_word(c)).any(|word| word == program))
    };
    missing.iter().copied().find(|program| calls(program))
}

/// Reports commands that are not run, whether the test passes or not. CI has every program.
fn skip(path: &str, reason: &str) {
    let is_ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty());
    assert!(!is_ci, "{path}: {reason}: CI must run the commands of the book");
    // `eprintln!` is captured.
    writeln!(std::io::stderr(), "skipped: the commands of {path} ({reason})").unwrap();
}

#[test]
fn missing_program_is_needed_by_its_callers() {
    let needed = |missing: &[&'static str], text: &str| needed_program(missing, std::iter::once(text));
    assert_eq!(needed(&["curl"], "x=$(curl -sS http://h/)"), Some("curl"));
    assert_eq!(needed(&["openssl", "curl"], "true | curl h"), Some("curl"));
    assert_eq!(needed(&["curl"], "curly --no-curl"), None);
    assert_eq!(needed(&[], "curl"), None);
}

#[test]
fn commands_of_book_run() {
    let is_missing = |program: &&str| Command::new(program).arg("--version").output().is_err();
    let missing: Vec<&str> = PROGRAMS.into_iter().filter(is_missing).collect();
    let pages = Page::all();
    let is_run = |block: &Block| block.language == "sh" && block.marked("not run").is_none();
    let is_followed = |page: &&Page| {
        let texts = page.blocks.iter().filter(|block| is_run(block)).map(|block| block.text.as_str());
        let texts = texts.chain(page.path.starts_with("examples/").then_some("curl openssl python3"));
        let needed = needed_program(&missing, texts);
        // `cargo test` builds examples; a run of this test alone does not.
        let is_unbuilt = page.path.starts_with("examples/embed/") && !embed_example().exists();
        let reason = needed.map(|program| format!("there is no {program} here"));
        let reason =
            reason.or_else(|| is_unbuilt.then(|| "cargo build --example embed was not run".to_owned()));
        if let Some(reason) = &reason {
            skip(&page.path, reason);
        }
        reason.is_none()
    };
    let problems: Vec<String> = std::thread::scope(|scope| {
        let followed: Vec<_> = pages
            .iter()
            .filter(|page| page.blocks.iter().any(is_run))
            .filter(is_followed)
            .map(|page| scope.spawn(|| follow(page)))
            .collect();
        followed.into_iter().map(|page| page.join().unwrap()).collect()
    });
    assert!(problems.concat().is_empty(), "{}", problems.concat());
}

#[test]
fn configurations_of_book_are_accepted() {
    let (place, mut problems) = (Workplace::new(), String::new());
    for page in Page::all() {
        for block in page.blocks.iter().filter(|block| block.language == "yaml") {
            if block.marked("not run").is_some() {
                continue;
            }
            let checked = place.check(&block.text);
            if !checked.status.success() {
                let told = String::from_utf8_lossy(&checked.stderr).into_owned()
                    + &String::from_utf8_lossy(&checked.stdout);
                writeln!(problems, "{}:{}: {told}", page.path, block.line).unwrap();
            }
        }
    }
    assert!(problems.is_empty(), "{problems}");
}

#[test]
fn blocks_of_book_are_run_or_marked() {
    let mut problems = String::new();
    for page in Page::all() {
        for block in &page.blocks {
            let problem = match block.language.as_str() {
                "json" if serde_json::from_str::<serde_json::Value>(&block.text).is_err() => "is no JSON",
                "json" | "sh" | "yaml" => "",
                shown if SHOWN.contains(&shown) => "",
                _ if block.mark.is_empty() => "is neither used nor marked",
                _ => "",
            };
            let part = block.marked("part of").is_some_and(|file| !is_part(&block.text, file));
            let reason = block.marked("not run").is_some_and(str::is_empty);
            for problem in [
                Some(problem).filter(|problem| !problem.is_empty()),
                part.then_some("does not stand in that file"),
                reason.then_some("gives no reason"),
            ]
            .into_iter()
            .flatten()
            {
                writeln!(problems, "{}:{}: {problem}", page.path, block.line).unwrap();
            }
        }
    }
    assert!(problems.is_empty(), "{problems}");
}

/// Whether a file of the repository has these lines, whatever their indentation.
fn is_part(text: &str, file: &str) -> bool {
    let plain = |text: &str| text.lines().map(str::trim).collect::<Vec<_>>().join("\n");
    let file = fs::read_to_string(Path::new(ROOT).join(file)).expect(file);
    plain(&file).contains(&plain(text))
}

/// The first configuration of a page below this heading.
pub(crate) fn configuration(page: &str, heading: &str) -> String {
    let text = fs::read_to_string(Path::new(ROOT).join(page)).expect(page);
    let (_, section) = text.split_once(&format!("# {heading}\n")).expect(heading);
    let (_, block) = section.split_once("```yaml\n").expect("a configuration");
    block.split_once("```").expect("its end").0.to_owned()
}

/// The page of the command line, from the texts that the binary prints for `--help`.
fn commands_reference() -> String {
    let help = |arguments: &[&str]| {
        let output = Command::new(BINARY).args(arguments).arg("--help").output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
    };
    let whole = help(&[]);
    let (_, list) = whole.split_once("Commands:\n").unwrap();
    let commands: Vec<&str> = list
        .lines()
        .map_while(|line| line.strip_prefix("  ").filter(|line| !line.is_empty()))
        .filter_map(|line| line.split_whitespace().next().filter(|_| !line.starts_with(' ')))
        .filter(|command| *command != "help")
        .collect();
    let mut page = format!(
        "# Command line\n\nGenerated from the source by `UPDATE=1 cargo test --test gateway reference`; not to be edited.\n\n\
         ```text\n{whole}\n```\n",
    );
    for command in commands {
        write!(page, "\n## `{command}`\n\n```text\n{}\n```\n", help(&[command])).unwrap();
    }
    page + "\nThe exit code is 0 on success and 1 on a problem, which is printed to standard error; wrong arguments are 2. `call` also ends with 3 and 130.\n"
}

#[test]
fn reference_of_commands_is_current() {
    let path = Path::new(ROOT).join("docs/reference/cli.md");
    let generated = commands_reference();
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &generated).unwrap();
    }
    let written = fs::read_to_string(path).unwrap_or_default();
    assert!(written == generated, "regenerate it: UPDATE=1 cargo test --test gateway reference");
}

/// Words that a reader looks up are words that the program writes.
#[test]
fn quoted_messages_are_in_source() {
    let page = fs::read_to_string(Path::new(ROOT).join("docs/how-to/troubleshoot.md")).unwrap();
    let mut folders = vec![Path::new(ROOT).join("src")];
    let mut source = String::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                folders.push(entry);
            } else {
                source += &fs::read_to_string(entry).unwrap();
            }
        }
    }
    let source: String = source.split_whitespace().collect::<Vec<_>>().join(" ").replace("\\ ", "");
    let quoted: BTreeSet<&str> = page
        .lines()
        .filter(|line| line.starts_with('|'))
        .filter_map(|line| line.split('|').nth(1))
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .flat_map(|words| words.split('…').map(str::trim))
        .filter(|words| words.len() > 3)
        .collect();
    let unknown: Vec<&&str> =
        quoted.iter().filter(|words| !source.contains(words.trim_end_matches([')', '?']))).collect();
    assert!(unknown.is_empty(), "the source has none of these words: {unknown:?}");
}
