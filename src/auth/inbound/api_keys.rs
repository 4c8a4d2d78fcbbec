//! API keys, and the callers that they name.
//!
//! Keys are known by their SHA-256 only. They are random and long, so a plain hash is as good as a
//! slow one.

use std::collections::HashMap;

use http::HeaderName;
use http::header::AUTHORIZATION;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::auth::Caller;
use crate::auth::caller::Identity;
use crate::config::ApiKeys;

/// The maximum length of a key, in bytes.
const MAX_KEY_BYTES: usize = 512;

/// The keys of the configuration.
pub(super) struct ApiKeyIndex {
    header: HeaderName,
    callers: HashMap<[u8; 32], Caller>,
}

impl ApiKeyIndex {
    pub(super) fn new(settings: &ApiKeys) -> Self {
        let callers = settings.holders.iter().flat_map(|holder| {
            let identity = Identity { name: format!("key:{}", holder.name), ..Identity::default() };
            let caller = Caller::from(identity);
            holder.hashes.iter().map(move |hash| (*hash, caller.clone()))
        });
        Self { header: settings.header.clone(), callers: callers.collect() }
    }

    pub(super) fn header(&self) -> &HeaderName {
        &self.header
    }

    /// Returns true if keys are in the same header as tokens.
    pub(super) fn is_bearer(&self) -> bool {
        self.header == AUTHORIZATION
    }

    /// Returns the caller that a key names.
    pub(super) fn caller(&self, key: &[u8]) -> Option<Caller> {
        if key.is_empty() || key.len() > MAX_KEY_BYTES {
            return None;
        }
        // The map finds a hash by a keyed hash of it, so its timing reveals nothing of the key; the
        // final comparison is constant in time.
        let hash: [u8; 32] = Sha256::digest(key).into();
        let (known, caller) = self.callers.get_key_value(&hash)?;
        bool::from(known.ct_eq(&hash)).then(|| caller.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ApiKeyOwner;

    #[test]
    fn every_key_of_a_holder_names_it_and_no_other_does() {
        let hash = |key: &str| Sha256::digest(key.as_bytes()).into();
        let holder = |name: &str, keys: &[&str]| ApiKeyOwner {
            name: name.to_owned(),
            hashes: keys.iter().map(|key| hash(key)).collect(),
        };
        let header = HeaderName::from_static("x-api-key");
        let holders = vec![holder("ci", &["old", "new"]), holder("eve", &["hers"])];
        let keys = ApiKeyIndex::new(&ApiKeys { header, holders });
        for (key, name) in [
            ("old", Some("key:ci")),
            ("new", Some("key:ci")),
            ("hers", Some("key:eve")),
            ("", None),
            ("ol", None),
            ("old ", None),
        ] {
            let caller = keys.caller(key.as_bytes());
            assert_eq!(caller.as_ref().map(Caller::name), name, "{key:?}");
        }
        assert!(keys.caller(&[b'x'; MAX_KEY_BYTES + 1]).is_none());
    }
}
