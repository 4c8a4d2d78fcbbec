//! Sessions of the ids that were opened last. A client sends the id with each request, and to open it costs as
//! much as to parse the request.
//!
//! Only valid ids are kept, at most one for each slot. A session that is found here may have expired or ended.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Mutex;

use super::Session;
use crate::sync::lock;

/// Number of ids that are kept.
const SLOTS: usize = 1024;

/// Sessions by their ids.
pub(super) struct OpenedSessions {
    slots: Vec<Mutex<Option<Box<OpenedSession>>>>,
    /// Keyed at random, so that no client can choose its slot.
    hasher: RandomState,
}

struct OpenedSession {
    caller: Box<str>,
    id: Box<str>,
    session: Session,
}

impl OpenedSessions {
    pub(super) fn new() -> Self {
        Self { slots: (0..SLOTS).map(|_| Mutex::default()).collect(), hasher: RandomState::new() }
    }

    /// Returns the session of an id of this caller. If it is not kept, `open` opens the id.
    pub(super) fn find(
        &self,
        caller: &str,
        id: &str,
        open: impl FnOnce() -> Option<Session>,
    ) -> Option<Session> {
        let at = usize::try_from(self.hasher.hash_one(id) % SLOTS as u64).ok()?;
        let slot = self.slots.get(at)?;
        let known = lock(slot)
            .as_ref()
            .filter(|opened| *opened.id == *id && *opened.caller == *caller)
            .map(|opened| opened.session.clone());
        known.or_else(|| {
            let session = open()?;
            let opened = OpenedSession { caller: caller.into(), id: id.into(), session: session.clone() };
            *lock(slot) = Some(Box::new(opened));
            Some(session)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::{ClientCapabilities, Version};

    fn session(number: u8) -> Session {
        let (version, capabilities) = (Version::STATELESS, ClientCapabilities::from_bits(0));
        Session { key: [number; 16], version, capabilities, client: None, software: None, expires: 0 }
    }

    #[test]
    fn id_is_opened_once_and_for_its_caller_only() {
        let opened = OpenedSessions::new();
        let find = |caller: &str, id: &str, open: Option<u8>| {
            opened.find(caller, id, || open.map(session)).map(|session| session.key[0])
        };
        assert_eq!(find("ann", "id", None), None, "an invalid one is not kept");
        assert_eq!(find("ann", "id", Some(1)), Some(1));
        assert_eq!(find("ann", "id", None), Some(1));
        assert_eq!(find("ben", "id", None), None);
        assert_eq!(find("ann", "id2", None), None);
        assert_eq!(find("ann", "id", None), Some(1), "what was not found has taken no slot");
    }

    #[test]
    fn number_of_ids_is_bounded() {
        let opened = OpenedSessions::new();
        for number in 0..3 * SLOTS {
            let id = number.to_string();
            assert!(opened.find("ann", &id, || Some(session(1))).is_some());
            assert!(opened.find("ann", &id, || None).is_some());
        }
        let kept = opened.slots.iter().filter(|slot| lock(slot).is_some()).count();
        assert!(kept <= SLOTS && kept > SLOTS / 2, "{kept}");
    }
}
