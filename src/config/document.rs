//! The keys of a configuration as it was written, and the files that it names, each with a digest: two
//! configurations can be compared without their values.
//!
//! Digests that leave the process are keyed and short: enough to tell a change, too few bits to
//! find the text, not even one of a list of likely ones.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};

use super::resolve;
use super::yaml::{YamlNode, YamlValue, join};

/// Largest file of which the content is compared, in bytes.
const MAX_FILE_BYTES: usize = 16 << 20;
/// Bytes of a digest that leaves the process. One change of 65,536 is missed.
const SHOWN_BYTES: usize = 2;

/// Keys of a configuration and files that it names, with digests of their values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConfigDocument(Arc<BTreeMap<String, [u8; 32]>>);

impl ConfigDocument {
    /// Takes the keys of a configuration with the references in them unresolved, and the content of
    /// the files that it names.
    pub(super) fn new(root: &YamlNode, folder: &Path, files: &[PathBuf]) -> Self {
        let mut digests = BTreeMap::new();
        add(root, "", &mut digests);
        for path in files {
            let name = path.strip_prefix(folder).unwrap_or(path).display();
            let content = resolve::read(path, MAX_FILE_BYTES).unwrap_or_default();
            digests.insert(format!("file {name}"), Sha256::digest(&content).into());
        }
        Self(Arc::new(digests))
    }

    /// Returns the digests under a key, by the paths of the keys and by the names of files.
    pub(crate) fn digests(&self, key: &[u8]) -> BTreeMap<String, String> {
        let keyed = |(path, digest): (&String, &[u8; 32])| {
            let mut hasher = Sha256::new();
            [key, path.as_bytes(), &[0], digest].into_iter().for_each(|part| hasher.update(part));
            let shown = hasher.finalize();
            (path.clone(), HEXLOWER.encode(shown.get(..SHOWN_BYTES).unwrap_or_default()))
        };
        self.0.iter().map(keyed).collect()
    }
}

fn add(node: &YamlNode, path: &str, digests: &mut BTreeMap<String, [u8; 32]>) {
    let text = match &node.value {
        YamlValue::Section(entries) if !entries.is_empty() => {
            return entries.iter().for_each(|(key, value)| add(value, &join(path, &key.name), digests));
        }
        YamlValue::List(items) if !items.is_empty() => {
            let items = items.iter().enumerate();
            return items.for_each(|(at, item)| add(item, &format!("{path}[{at}]"), digests));
        }
        YamlValue::Section(_) | YamlValue::List(_) | YamlValue::Null => String::new(),
        YamlValue::Bool(value) => value.to_string(),
        YamlValue::Whole(value) => value.to_string(),
        YamlValue::Negative(value) => value.to_string(),
        YamlValue::Float(value) => value.to_string(),
        YamlValue::Text(text) => text.clone(),
    };
    let kind = node.value.kind();
    digests.insert(path.to_owned(), Sha256::digest(format!("{kind}\0{text}")).into());
}

/// Differences between two configurations, by the paths of keys and the names of files.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct DocumentChanges {
    /// Only in the new one.
    pub(crate) added: Vec<String>,
    /// Only in the old one.
    pub(crate) removed: Vec<String>,
    /// In both, with other values.
    pub(crate) changed: Vec<String>,
}

impl DocumentChanges {
    /// Compares digests under the same key.
    pub(crate) fn between(old: &BTreeMap<String, String>, new: &BTreeMap<String, String>) -> Self {
        let only = |one: &BTreeMap<String, String>, other: &BTreeMap<String, String>| {
            one.keys().filter(|path| !other.contains_key(*path)).cloned().collect()
        };
        let is_other = |(path, digest): &(&String, &String)| old.get(*path).is_some_and(|old| old != *digest);
        Self {
            added: only(new, old),
            removed: only(old, new),
            changed: new.iter().filter(is_other).map(|(path, _)| path.clone()).collect(),
        }
    }

    /// Returns true if there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::yaml;

    fn document(text: &str) -> ConfigDocument {
        ConfigDocument::new(&yaml::parse(text, &mut Vec::new()).unwrap(), Path::new(""), &[])
    }

    #[test]
    fn changes_are_named_by_path() {
        let old = document("a: {b: 1, c: [x, {d: secret}], e: []}\ng: ${env:G}").digests(b"k");
        let new = document("a: {b: '1', c: [x, {d: other}, y], f: {}}\ng: ${env:G}").digests(b"k");
        let changes = DocumentChanges::between(&old, &new);
        assert_eq!(changes.added, ["a.c[2]", "a.f"]);
        assert_eq!(changes.removed, ["a.e"]);
        assert_eq!(changes.changed, ["a.b", "a.c[1].d"]);
        assert!(DocumentChanges::between(&new, &new).is_empty());
    }

    /// Equal values have other digests under another path and another key.
    #[test]
    fn digests_are_short_and_keyed() {
        let document = document("a: [secret, secret, secret, secret]");
        let (one, other) = (document.digests(b"1"), document.digests(b"2"));
        assert!(one.values().all(|digest| digest.len() == 2 * SHOWN_BYTES));
        assert!(one != other && one.values().collect::<std::collections::BTreeSet<_>>().len() > 1);
    }
}
