//! The kit of the configuration tests: files, an environment, and the problems that are printed.

use std::collections::HashMap;
use std::path::PathBuf;

use mcp_a2a_gateway::config::{Problems, Settings, load_with};

/// A folder with files, and an environment of its own: tests never touch the process's.
pub(crate) struct Desk {
    folder: tempfile::TempDir,
    variables: HashMap<String, String>,
}

impl Desk {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), variables: HashMap::new() }
    }

    pub(crate) fn file(self, name: &str, content: impl AsRef<[u8]>) -> Self {
        std::fs::write(self.path(name), content).unwrap();
        self
    }

    pub(crate) fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.insert(name.to_owned(), value.to_owned());
        self
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn load(&self, name: &str) -> Result<Settings, Problems> {
        load_with(&self.path(name), &|variable| self.variables.get(variable).map(Into::into))
    }

    /// The problems that are printed for a configuration, without the folder.
    pub(crate) fn report(self, text: &str) -> String {
        let desk = self.file("gateway.yaml", text);
        let problems = desk.load("gateway.yaml").expect_err(text);
        problems.to_string().replace(&format!("{}/", desk.folder.path().display()), "")
    }

    /// The settings, without the list and the digests of files: every desk has a folder of its own.
    pub(crate) fn settings(self, text: &str) -> Settings {
        let desk = self.file("gateway.yaml", text);
        let settings = desk.load("gateway.yaml").unwrap_or_else(|problems| panic!("{problems}"));
        Settings { files: Vec::new(), document: Default::default(), ..settings }
    }
}

/// The problems that are printed for a configuration that needs no other file.
pub(crate) fn report(text: &str) -> String {
    Desk::new().report(text)
}

/// The settings of a configuration that needs no other file.
pub(crate) fn settings(text: &str) -> Settings {
    Desk::new().settings(text)
}

/// A listener and an agent, so that a test can write only what it is about.
pub(crate) const BASE: &str = "listeners: [{address: 127.0.0.1:8080}]\nagents: {a: {card: http://a/}}\n";
