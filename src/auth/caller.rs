//! The authenticated identity of a client.
//!
//! See `inbound` for authentication.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, LazyLock};

/// A client, by a name that stays the same when its keys change: all that the client owns is bound
/// to this name.
///
/// Two callers are the same if their names are. Clones share everything.
#[derive(Clone)]
pub(crate) struct Caller(Arc<Identity>);

/// The authenticated facts about a client.
#[derive(Debug, Clone, Default)]
pub(super) struct Identity {
    pub(super) name: String,
    /// Each name by itself, if the client authenticated with several.
    pub(super) parts: Vec<String>,
    /// All names in its certificate.
    pub(super) certificate: Vec<String>,
    /// The scopes of its token, with those that they include.
    pub(super) scopes: Vec<String>,
    pub(super) groups: Vec<String>,
    /// The claims of its token that could not be read completely.
    pub(super) unclear: UnreadableClaims,
    /// True if it presented a token, so that it could get one with more scopes.
    pub(super) has_token: bool,
}

/// The claims of a token that could not be read: no rule allows anything by them, and each rule
/// that denies by them denies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct UnreadableClaims {
    pub(super) scopes: bool,
    pub(super) groups: bool,
}

const ANONYMOUS: &str = "anonymous";
const LOCAL: &str = "local";
/// Separates the names of a client that authenticated with several.
pub(super) const AND: &str = " & ";

impl Caller {
    /// Returns the caller of all clients without credentials. They share one name, so that their
    /// handles are bearer secrets.
    pub(crate) fn anonymous() -> Self {
        static NOBODY: LazyLock<Caller> =
            LazyLock::new(|| Caller::from(Identity { name: ANONYMOUS.to_owned(), ..Identity::default() }));
        NOBODY.clone()
    }

    /// Returns the caller of the program that started this process and speaks to it over standard
    /// input and output. The operating system keeps other programs from doing so.
    pub(crate) fn local() -> Self {
        Self::from(Identity { name: LOCAL.to_owned(), ..Identity::default() })
    }

    /// Creates a caller of this name, with these scopes and groups: to explain its permissions.
    pub(crate) fn hypothetical(name: &str, scopes: Vec<String>, groups: Vec<String>) -> Self {
        let parts: Vec<String> = name.split(AND).map(|part| part.replace("&&", "&")).collect();
        let kind =
            |part: &String| part.split_once(':').map(|(kind, name)| (kind.to_owned(), name.to_owned()));
        let kinds = parts.iter().filter_map(kind);
        let sans = kinds.filter(|(kind, _)| matches!(kind.as_str(), "uri" | "dns"));
        let certificate = sans.map(|(_, san)| san).collect();
        let is_of_token = |part: &String| part.starts_with("token:") || part.starts_with("client:");
        let has_token = parts.iter().any(is_of_token);
        let parts = if parts.len() > 1 { parts } else { Vec::new() };
        let unclear = UnreadableClaims::default();
        Self::from(Identity { name: name.to_owned(), parts, certificate, scopes, groups, unclear, has_token })
    }

    /// Returns true if the client presented no credentials.
    pub(crate) fn is_anonymous(&self) -> bool {
        self.0.name == ANONYMOUS
    }

    /// Returns the stable name: `key:NAME`, `token:ISSUER#SUBJECT`, `client:ISSUER#CLIENT_ID`,
    /// `uri:…`, `dns:…`, `cn:…`, `local` or `anonymous`; several with ` & ` between them, so that a caller
    /// with several credentials shares nothing with one that has only one of them.
    pub(crate) fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the whole name and, if the client authenticated with several, each by itself.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.name()).chain(self.0.parts.iter().map(String::as_str))
    }

    /// Returns the scopes of its token, with those that they include.
    pub(crate) fn scopes(&self) -> &[String] {
        &self.0.scopes
    }

    /// Returns the groups that its token names.
    pub(crate) fn groups(&self) -> &[String] {
        &self.0.groups
    }

    /// Returns the claims of its token that could not be read.
    pub(super) fn unclear(&self) -> UnreadableClaims {
        self.0.unclear
    }

    /// Returns the SANs of its certificate.
    pub(crate) fn certificate(&self) -> &[String] {
        &self.0.certificate
    }

    /// Returns true if it presented a token.
    pub(crate) fn has_token(&self) -> bool {
        self.0.has_token
    }

    /// Adds the facts of another credential of the same client.
    pub(super) fn and(self, other: &Self) -> Self {
        let mut all = Arc::unwrap_or_clone(self.0);
        if all.parts.is_empty() {
            all.parts.push(std::mem::take(&mut all.name));
        }
        all.parts.push(other.name().to_owned());
        // Doubled within a name, it cannot be taken for a separator.
        all.name = all.parts.iter().map(|part| part.replace('&', "&&")).collect::<Vec<_>>().join(AND);
        all.certificate.extend_from_slice(&other.0.certificate);
        all.scopes.extend_from_slice(&other.0.scopes);
        all.groups.extend_from_slice(&other.0.groups);
        all.unclear.scopes |= other.0.unclear.scopes;
        all.unclear.groups |= other.0.unclear.groups;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn who(name: &str) -> Caller {
        Caller::from(Identity { name: name.to_owned(), ..Identity::default() })
    }

    #[test]
    fn two_credentials_make_another_caller() {
        let both = who("cn:app").and(&who("token:i#ann"));
        assert_eq!(both.name(), "cn:app & token:i#ann");
        assert_eq!(both.names().collect::<Vec<_>>(), ["cn:app & token:i#ann", "cn:app", "token:i#ann"]);
        assert_eq!(both, Caller::hypothetical(both.name(), Vec::new(), Vec::new()));
        let has_token = |name| Caller::hypothetical(name, Vec::new(), Vec::new()).has_token();
        assert!(has_token("client:i#job") && has_token(both.name()) && !has_token("cn:client:i"));
        assert_eq!(both.clone().and(&who("key:k")).name(), "cn:app & token:i#ann & key:k");
        for one in ["cn:app", "token:i#ann", "cn:app & token:i#bob"] {
            assert_ne!(both, who(one));
        }
    }

    #[test]
    fn a_name_with_the_mark_in_it_is_not_two_names() {
        let odd = who("cn:app & token:i#ann");
        assert_ne!(who("cn:app").and(&who("token:i#ann")).and(&who("key:k")), odd.and(&who("key:k")));
        assert_ne!(who("cn:a &").and(&who("key:k")), who("cn:a").and(&who("& key:k")));
    }
}
