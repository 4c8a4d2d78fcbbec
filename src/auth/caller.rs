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
    /// Each name by itself, where it proved several.
    pub(super) parts: Vec<String>,
    /// All names in its certificate.
    pub(super) certificate: Vec<String>,
    /// The scopes of its token, with those that they include.
    pub(super) scopes: Vec<String>,
    pub(super) groups: Vec<String>,
    /// Whether its token may have more scopes, or name more groups, than could be read.
    pub(super) unclear: UnreadableClaims,
    /// Whether it showed a token, so that it could get one with more scopes.
    pub(super) has_token: bool,
}

/// Which claims of a token could not be read: no rule allows anything by them, and each refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct UnreadableClaims {
    pub(super) scopes: bool,
    pub(super) groups: bool,
}

const ANONYMOUS: &str = "anonymous";
/// Between the names of who proved several.
pub(super) const AND: &str = " & ";

impl Caller {
    /// A client that proved nothing. All of them share one name, so that what they hold are bearer secrets.
    pub fn anonymous() -> Self {
        static NOBODY: LazyLock<Caller> =
            LazyLock::new(|| Caller::from(Identity { name: ANONYMOUS.to_owned(), ..Identity::default() }));
        NOBODY.clone()
    }

    /// Whoever has this name, with these scopes and groups: to ask what they might do.
    pub fn hypothetical(name: &str, scopes: Vec<String>, groups: Vec<String>) -> Self {
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

    /// Whether the client proved nothing.
    pub fn is_anonymous(&self) -> bool {
        self.0.name == ANONYMOUS
    }

    /// The stable name: `key:NAME`, `token:ISSUER#SUBJECT`, `client:ISSUER#CLIENT_ID`, `uri:…`,
    /// `dns:…`, `cn:…` or `anonymous`; several with ` & ` between them, so that a caller that
    /// proves more than one thing shares nothing with one that proves only one of them.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The whole name and, where it proved several, each by itself.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.name()).chain(self.0.parts.iter().map(String::as_str))
    }

    /// The scopes of its token, with those that they include.
    pub fn scopes(&self) -> &[String] {
        &self.0.scopes
    }

    /// The groups that its token names.
    pub fn groups(&self) -> &[String] {
        &self.0.groups
    }

    /// Which claims of its token could not be read.
    pub(super) fn unclear(&self) -> UnreadableClaims {
        self.0.unclear
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
        if all.parts.is_empty() {
            all.parts.push(std::mem::take(&mut all.name));
        }
        all.parts.push(other.name().to_owned());
        // Doubled within a name, it cannot be taken for the one between two.
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
    fn who_proves_two_things_is_neither_of_them_alone() {
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
