//! Who a client proved to be.
//!
//! Not here: how it proved it (see `inbound`).

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, LazyLock};

/// A client, by a name that stays the same when its keys change: everything that it holds hangs on it.
///
/// Two callers are the same if their names are. Clones share everything.
#[derive(Clone)]
pub struct Caller(Arc<Identity>);

/// What a client proved.
#[derive(Debug, Clone, Default)]
pub(super) struct Identity {
    pub(super) name: String,
    /// What else it proved to be.
    pub(super) others: Vec<String>,
    /// All names in its certificate.
    pub(super) certificate: Vec<String>,
    /// The scopes of its token, with those that they include.
    pub(super) scopes: Vec<String>,
    pub(super) groups: Vec<String>,
    /// Whether it showed a token, so that it could get one with more scopes.
    pub(super) has_token: bool,
}

const ANONYMOUS: &str = "anonymous";

impl Caller {
    /// A client that proved nothing. All of them share one name, so that what they hold are bearer secrets.
    pub fn anonymous() -> Self {
        static NOBODY: LazyLock<Caller> =
            LazyLock::new(|| Caller::from(Identity { name: ANONYMOUS.to_owned(), ..Identity::default() }));
        NOBODY.clone()
    }

    /// Whoever has this name, with these scopes and groups: to ask what they might do.
    pub fn supposed(name: &str, scopes: Vec<String>, groups: Vec<String>) -> Self {
        let certificate = name.split_once(':').filter(|(kind, _)| matches!(*kind, "uri" | "dns"));
        let has_token = name.starts_with("token:");
        let certificate = certificate.map(|(_, san)| san.to_owned()).into_iter().collect();
        Self::from(Identity {
            name: name.to_owned(),
            others: Vec::new(),
            certificate,
            scopes,
            groups,
            has_token,
        })
    }

    /// Whether the client proved nothing.
    pub fn is_anonymous(&self) -> bool {
        self.0.name == ANONYMOUS
    }

    /// The stable name: `key:NAME`, `token:ISSUER#SUBJECT`, `uri:…`, `dns:…`, `cn:…` or `anonymous`.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Every name that it proved, the stable one first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.name()).chain(self.0.others.iter().map(String::as_str))
    }

    /// The scopes of its token, with those that they include.
    pub fn scopes(&self) -> &[String] {
        &self.0.scopes
    }

    /// The groups that its token names.
    pub fn groups(&self) -> &[String] {
        &self.0.groups
    }

    /// The SANs of its certificate.
    pub fn certificate(&self) -> &[String] {
        &self.0.certificate
    }

    /// Whether it showed a token.
    pub fn has_token(&self) -> bool {
        self.0.has_token
    }

    /// The same client with what another proof of it says besides.
    pub(super) fn and(self, other: &Self) -> Self {
        let mut all = Arc::unwrap_or_clone(self.0);
        all.others.push(other.name().to_owned());
        all.certificate.extend_from_slice(&other.0.certificate);
        all.scopes.extend_from_slice(&other.0.scopes);
        all.groups.extend_from_slice(&other.0.groups);
        all.has_token |= other.0.has_token;
        Self::from(all)
    }
}

impl From<Identity> for Caller {
    fn from(identity: Identity) -> Self {
        Self(Arc::new(identity))
    }
}

impl PartialEq for Caller {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Caller {}

impl Hash for Caller {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Caller").field(&self.name()).finish()
    }
}
