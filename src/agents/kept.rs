//! The last good card of each agent, cached in the data directory: the tools of an agent that is
//! down are available after a restart.
//!
//! One file per agent, replaced as a whole. A record holds the card as received, its URL as a hash
//! (the URL may hold a secret), and the version that a probe found. A cached card is verified like
//! a fetched one. See `directory` for the times.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use crate::a2a::{AgentCard, Dialect, MAX_CARD_BYTES};

/// The folder in the data directory.
const FOLDER: &str = "cards";
/// The maximum size of a file, in bytes.
const MAX_FILE_BYTES: u64 = MAX_CARD_BYTES as u64 + 4096;

/// The cache of the cards of all agents.
pub(super) struct KeptCards {
    folder: PathBuf,
    /// True if this process owns the folder. The folder of another process is only read.
    is_own: AtomicBool,
}

/// A card as it is cached.
#[derive(Serialize, Deserialize)]
struct CachedCardRecord {
    /// The hash of the URL that it came from.
    from: String,
    /// The version that a probe found, for a card that names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    probed: Option<String>,
    card: Box<RawValue>,
}

/// A card from the cache.
pub(super) struct KeptCard {
    pub(super) card: AgentCard,
    /// The version that a probe found.
    pub(super) probed: Option<Dialect>,
}

impl KeptCards {
    pub(super) fn new(data_dir: &Path) -> Self {
        Self { folder: data_dir.join(FOLDER), is_own: AtomicBool::new(false) }
    }

    /// Begins or ends writing to the folder.
    pub(super) fn own(&self, is_own: bool) {
        self.is_own.store(is_own, Ordering::Release);
    }

    /// Returns true if this process writes to the folder.
    pub(super) fn is_own(&self) -> bool {
        self.is_own.load(Ordering::Acquire)
    }

    /// Returns the card of an agent that came from this URL, if it is cached. Blocks on the disk.
    pub(super) fn read(&self, agent: &str, url: &str) -> Option<KeptCard> {
        let mut json = Vec::new();
        let file = OpenOptions::new().read(true).open(self.file(agent)).ok()?;
        file.take(MAX_FILE_BYTES).read_to_end(&mut json).ok()?;
        let record: CachedCardRecord = serde_json::from_slice(&json).ok()?;
        if record.from != hash(url) {
            return None;
        }
        let card = AgentCard::parse(record.card.get().as_bytes()).ok()?;
        let all = [Dialect::V0_1, Dialect::V0_3, Dialect::V1];
        let probed =
            record.probed.and_then(|probed| all.into_iter().find(|dialect| dialect.version() == probed));
        Some(KeptCard { card, probed })
    }

    /// Replaces the cached card. Blocks on the disk.
    ///
    /// # Errors
    ///
    /// The error of the system.
    pub(super) fn write(
        &self,
        agent: &str,
        url: &str,
        card: &str,
        probed: Option<Dialect>,
    ) -> io::Result<()> {
        let probed = probed.map(|dialect| dialect.version().to_owned());
        let record =
            CachedCardRecord { from: hash(url), probed, card: RawValue::from_string(card.to_owned())? };
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let draft = self.folder.join(format!("{agent}.json.new"));
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        file.write_all(&serde_json::to_vec(&record)?)?;
        file.sync_all()?;
        fs::rename(&draft, self.file(agent))
    }

    /// Drops the cards of agents that the configuration does not have. Blocks on the disk.
    ///
    /// # Errors
    ///
    /// The error of the system.
    pub(super) fn retain(&self, is_known: impl Fn(&str) -> bool) -> io::Result<()> {
        let files = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            files => files?,
        };
        for file in files {
            let file = file?;
            let name = file.file_name();
            let agent =
                name.to_str().and_then(|name| name.strip_suffix(".json").or(name.strip_suffix(".json.new")));
            if agent.is_some_and(|agent| !is_known(agent)) {
                fs::remove_file(file.path())?;
            }
        }
        Ok(())
    }

    fn file(&self, agent: &str) -> PathBuf {
        self.folder.join(format!("{agent}.json"))
    }
}

fn hash(url: &str) -> String {
    Sha256::digest(url).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CARD: &str = r#"{"name":"Bard","url":"http://h/"}"#;

    #[test]
    fn card_is_read_for_its_own_url_only() {
        let home = tempfile::tempdir().unwrap();
        let kept = KeptCards::new(home.path());
        assert!(kept.read("bard", "http://h/?key=secret").is_none());
        kept.write("bard", "http://h/?key=secret", CARD, Some(Dialect::V0_3)).unwrap();
        let card = kept.read("bard", "http://h/?key=secret").unwrap();
        assert_eq!((card.card.raw.get(), card.probed), (CARD, Some(Dialect::V0_3)));
        assert!(kept.read("bard", "http://other/").is_none());
        assert!(!fs::read_to_string(home.path().join("cards/bard.json")).unwrap().contains("secret"));
    }

    #[test]
    fn cards_of_unknown_agents_are_dropped() {
        let home = tempfile::tempdir().unwrap();
        let kept = KeptCards::new(home.path());
        kept.retain(|_| false).unwrap();
        kept.write("bard", "u", CARD, None).unwrap();
        kept.write("clerk", "u", CARD, None).unwrap();
        kept.retain(|agent| agent == "bard").unwrap();
        assert!(kept.read("bard", "u").is_some() && kept.read("clerk", "u").is_none());
    }

    #[test]
    fn damaged_file_is_no_card() {
        let home = tempfile::tempdir().unwrap();
        let kept = KeptCards::new(home.path());
        fs::create_dir(home.path().join(FOLDER)).unwrap();
        for json in ["", "{}", "[1]", r#"{"from":"x","card":7}"#] {
            fs::write(kept.file("bard"), json).unwrap();
            assert!(kept.read("bard", "u").is_none(), "{json}");
        }
    }
}
