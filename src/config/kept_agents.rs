//! `admin.agents_file`: agents that operators write with the admin API.
//!
//! The file is a part of the configuration, as an included one: its agents are read and checked with
//! all others. A change is checked as a whole configuration before the file is written.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::include::{JoinedTree, remove};
use super::reference::References;
use super::resolve::{Problem, ResolveContext};
use super::section::to_json;
use super::yaml::{self, YamlKey, YamlNode, YamlValue};
use super::{FILE, Settings, text_of};

/// The name of the body of a request in problems.
const BODY: &str = "body";
/// The path of the key that names the file.
const KEY: &str = "admin.agents_file";

/// A change of the agents in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AgentEdit {
    /// Adds or replaces an agent; the text is YAML or JSON, as one entry of `agents`.
    Put {
        /// Its name.
        name: String,
        /// Its keys.
        text: String,
    },
    /// Removes an agent.
    Remove {
        /// Its name.
        name: String,
    },
}

impl AgentEdit {
    /// Returns the name of the agent.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Put { name, .. } | Self::Remove { name } => name,
        }
    }
}

/// A configuration that was read, and with a change the content of the file of agents.
pub(crate) struct LoadedSettings {
    pub(crate) settings: Settings,
    pub(crate) agents: Option<AgentsFile>,
}

impl From<Settings> for LoadedSettings {
    fn from(settings: Settings) -> Self {
        Self { settings, agents: None }
    }
}

/// The content of the file of agents after a change.
pub(crate) struct AgentsFile {
    path: PathBuf,
    text: String,
}

/// The file beside the one that it replaces. Removed when it is dropped.
pub(crate) struct AgentsDraft {
    draft: PathBuf,
    path: PathBuf,
}

impl AgentsFile {
    /// Writes the content beside the file, for this user alone. Blocks.
    ///
    /// # Errors
    ///
    /// That of the system.
    pub(crate) fn write_draft(&self) -> io::Result<AgentsDraft> {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let draft = self.path.with_file_name(format!(".{name}.draft"));
        match fs::remove_file(&draft) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let mut out = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        let draft = AgentsDraft { draft, path: self.path.clone() };
        out.write_all(self.text.as_bytes())?;
        out.sync_all()?;
        Ok(draft)
    }
}

impl AgentsDraft {
    /// Replaces the file. Blocks.
    ///
    /// # Errors
    ///
    /// That of the system; the file is as before then.
    pub(crate) fn commit(self) -> io::Result<()> {
        fs::rename(&self.draft, &self.path)?;
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }
}

impl Drop for AgentsDraft {
    fn drop(&mut self) {
        // After a commit there is none.
        drop(fs::remove_file(&self.draft));
    }
}

/// Returns the names of the agents in a file, which need not exist.
///
/// # Errors
///
/// The problems of the file.
pub(crate) fn agents_in(file: &Path) -> Result<BTreeSet<String>, Vec<Problem>> {
    let entries = entries(file)?;
    Ok(entries.into_iter().map(|(key, _)| key.name).collect())
}

/// Joins the file of agents, if the configuration names one, with a change. Returns its content after
/// the change.
pub(super) fn join(
    tree: &mut JoinedTree,
    edit: Option<&AgentEdit>,
    references: &References<'_>,
    context: &mut ResolveContext<'_>,
) -> Option<AgentsFile> {
    let written = tree.text_at(KEY)?;
    // A problem of the reference is reported with the key.
    let named = references.replace(&written, KEY).ok()?.unwrap_or(written);
    let path = context.path(&named);
    context.note_file(&path);
    let mut kept = match entries(&path) {
        Ok(entries) => entries,
        Err(problems) => {
            problems.into_iter().for_each(|problem| context.report(problem));
            return None;
        }
    };
    let Some(edit) = edit else {
        tree.add_node(path, section("agents", kept));
        return None;
    };
    kept.retain(|(key, _)| key.name != edit.name());
    let mut agents: Map<String, Value> =
        kept.iter().map(|(key, node)| (key.name.clone(), to_json(node.value.clone()))).collect();
    tree.add_node(path.clone(), section("agents", kept));
    if let AgentEdit::Put { name, text } = edit {
        let mut problems = Vec::new();
        let body = yaml::parse(text, &mut problems).map_err(|problem| problems.push(problem));
        for problem in problems {
            context.report(Problem { file: Some(BODY.into()), ..problem });
        }
        let body = body.ok()?;
        agents.insert(name.clone(), to_json(body.value.clone()));
        let key = YamlKey { line: 1, name: name.clone() };
        tree.add_node(BODY.into(), section("agents", vec![(key, body)]));
    }
    let text = format!("{:#}\n", json!({ "agents": agents }));
    if text.len() > FILE {
        let problem = format!("the file of agents would be larger than {} MiB", FILE >> 20);
        context.report(Problem { file: Some(path), line: None, at: String::new(), problem });
        return None;
    }
    Some(AgentsFile { path, text })
}

/// Returns the agents of a file, which need not exist.
fn entries(file: &Path) -> Result<Vec<(YamlKey, YamlNode)>, Vec<Problem>> {
    if !file.exists() {
        return Ok(Vec::new());
    }
    let of_file = |problem: Problem| Problem { file: Some(file.to_owned()), ..problem };
    let text = text_of(file).map_err(|problem| vec![of_file(problem)])?;
    let mut problems = Vec::new();
    let node = yaml::parse(&text, &mut problems).map_err(|problem| problems.push(problem));
    if let (Ok(mut node), true) = (node, problems.is_empty()) {
        let agents = remove(&mut node, "agents");
        let is_alone = matches!(&node.value, YamlValue::Section(rest) if rest.is_empty());
        if let (Some((_, YamlNode { value: YamlValue::Section(entries), .. })), true) = (agents, is_alone) {
            return Ok(entries);
        }
        let problem = "holds more or less than `agents` (it is written by the admin API)".to_owned();
        problems.push(Problem { file: None, line: Some(1), at: String::new(), problem });
    }
    Err(problems.into_iter().map(of_file).collect())
}

/// Returns a section with one key, which is a section.
fn section(name: &str, entries: Vec<(YamlKey, YamlNode)>) -> YamlNode {
    let node = YamlNode { line: 1, value: YamlValue::Section(entries) };
    YamlNode { line: 1, value: YamlValue::Section(vec![(YamlKey { line: 1, name: name.to_owned() }, node)]) }
}
