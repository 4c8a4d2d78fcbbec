//! One manifest while it is read: its lines by JSON pointer, and its problems.

use crate::config::problem::Problem;
use crate::config::reference::Template;
use crate::config::resolve::ResolveContext;
use crate::config::spanned::{Location, Spanned};
use crate::config::yaml::{self, YamlNode, YamlValue};
use crate::config::{ReloadableSecret, Secret};

/// A manifest, and its problems.
pub(super) struct ManifestReader<'a> {
    /// JSON is YAML, and the YAML parser knows lines. It has narrower limits: without it problems
    /// have no lines, and one of them states that.
    tree: Option<YamlNode>,
    /// Its folder, the environment, and its own problems.
    pub(super) context: ResolveContext<'a>,
}

impl<'a> ManifestReader<'a> {
    pub(super) fn new(text: &str, mut context: ResolveContext<'a>) -> Self {
        let mut twice = Vec::new();
        let tree = yaml::parse(text, &mut twice).ok();
        for Problem { line, at, problem } in twice {
            context.report(Problem { line, at: format!("/{}", at.replace('.', "/")), problem });
        }
        if tree.is_none() {
            // The last of two members counts, and clients could read a secret in the first.
            let problem = "cannot be checked for members that are written twice (it is nested too deeply, or has such members \
                           or control characters in it)";
            context.report(Problem { line: None, at: String::new(), problem: problem.to_owned() });
        }
        Self { tree, context }
    }

    /// Returns the problems, in the order of the lines.
    pub(super) fn into_problems(self) -> Vec<Problem> {
        let mut problems = self.context.into_problems();
        problems.sort_by_key(|problem| problem.line);
        problems.iter_mut().filter(|problem| problem.line == Some(0)).for_each(|problem| problem.line = None);
        problems
    }

    /// Returns the location of a JSON pointer; of the nearest member above it, if that is missing.
    /// Line 0 is unknown.
    pub(super) fn place(&self, pointer: &str) -> Location {
        let at = pointer.to_owned();
        let Some(mut node) = self.tree.as_ref() else { return Location { line: 0, at } };
        let mut line = node.line;
        for segment in pointer.split('/').skip(1) {
            let name = segment.replace("~1", "/").replace("~0", "~");
            let below = match &node.value {
                YamlValue::Section(entries) => {
                    entries.iter().find(|(key, _)| key.name == name).map(|(key, node)| (key.line, node))
                }
                YamlValue::List(items) => {
                    name.parse().ok().and_then(|index: usize| items.get(index)).map(|node| (node.line, node))
                }
                _ => None,
            };
            let Some(below) = below else { break };
            (line, node) = below;
        }
        Location { line, at }
    }

    /// Reports a problem.
    pub(super) fn problem(&mut self, pointer: &str, problem: impl Into<String>) {
        let place = self.place(pointer);
        self.context.problem(&place, problem);
    }

    /// Returns a text with its location.
    pub(super) fn written(&self, pointer: &str, text: String) -> Spanned<Template> {
        Spanned::of(self.place(pointer), Template::new(text))
    }

    /// Resolves the references of a text of one line.
    pub(super) fn one_line(&mut self, pointer: &str, text: String) -> Option<(Location, Secret)> {
        self.written(pointer, text).resolve(&mut self.context)
    }

    /// Resolves the references; the result knows the files that it comes from.
    pub(super) fn live(&mut self, pointer: &str, text: String) -> Option<ReloadableSecret> {
        self.written(pointer, text).resolve(&mut self.context).map(|(_, secret)| secret)
    }
}
