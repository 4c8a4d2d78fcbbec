//! Sessions and list cursors: state that the client holds instead of the gateway.
//!
//! No clock: the caller of `open` compares the times of a ticket.

use super::sealer::{PayloadReader, PayloadWriter};
use super::sealer::{Sealer, TokenPurpose};

const VERSION: u8 = 1;

/// An MCP session of the legacy era: the results of `initialize`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionTicket {
    /// The negotiated protocol version, as numbered by the `mcp` module.
    pub version: u8,
    /// The client's capabilities, as bits.
    pub capabilities: u16,
    /// Start of the session, in Unix seconds.
    pub issued: u64,
    /// End of the session, in Unix seconds.
    pub expires: u64,
    /// Random bytes that make each session id unique.
    pub nonce: [u8; 16],
    /// Fingerprint of the known client that began the session; zeros if there is none.
    pub client: [u8; 4],
}

impl SessionTicket {
    /// Returns the session id for this caller.
    pub fn seal(&self, sealer: &Sealer, caller: &str) -> String {
        let payload = PayloadWriter::new(VERSION)
            .bytes(&[self.version])
            .bytes(&self.capabilities.to_be_bytes())
            .bytes(&self.issued.to_be_bytes())
            .bytes(&self.expires.to_be_bytes())
            .bytes(&self.nonce)
            .bytes(&self.client)
            .finish();
        sealer.seal(TokenPurpose::Session, caller, &payload)
    }

    /// Opens a session id of this caller; `None` if it is not one. The session may have expired.
    pub fn open(sealer: &Sealer, caller: &str, id: &str) -> Option<Self> {
        let payload = sealer.open(TokenPurpose::Session, caller, id)?;
        let mut fields = PayloadReader::new(&payload, VERSION)?;
        let [version] = fields.array()?;
        let ticket = Self {
            version,
            capabilities: u16::from_be_bytes(fields.array()?),
            issued: u64::from_be_bytes(fields.array()?),
            expires: u64::from_be_bytes(fields.array()?),
            nonce: fields.array()?,
            client: fields.array()?,
        };
        fields.end().map(|()| ticket)
    }

    /// Returns true if the session is live at `now` (Unix seconds).
    pub(crate) fn is_live(&self, now: u64) -> bool {
        now < self.expires
    }
}

/// The list that a cursor belongs to; a cursor is valid only for its own list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListKind {
    /// `tools/list`.
    Tools,
    /// `resources/list`.
    Resources,
    /// `resources/templates/list`.
    ResourceTemplates,
    /// `prompts/list`.
    Prompts,
    /// `tasks/list`.
    Tasks,
    /// The list of agents for A2A clients.
    Agents,
}

impl ListKind {
    const ALL: [Self; 6] =
        [Self::Tools, Self::Resources, Self::ResourceTemplates, Self::Prompts, Self::Tasks, Self::Agents];

    fn byte(self) -> u8 {
        match self {
            Self::Tools => 1,
            Self::Resources => 2,
            Self::ResourceTemplates => 3,
            Self::Prompts => 4,
            Self::Tasks => 5,
            Self::Agents => 6,
        }
    }
}

/// The position in a paged list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageCursor {
    /// The list.
    pub listing: ListKind,
    /// The last entry that was sent, by the name that the list is ordered by. The entry may be gone
    /// by now.
    pub after: String,
}

impl PageCursor {
    /// Returns the cursor for this caller.
    pub fn seal(&self, sealer: &Sealer, caller: &str) -> String {
        let payload =
            PayloadWriter::new(VERSION).bytes(&[self.listing.byte()]).bytes(self.after.as_bytes()).finish();
        sealer.seal(TokenPurpose::Cursor, caller, &payload)
    }

    /// Opens a cursor of this caller; `None` if it is not one.
    pub fn open(sealer: &Sealer, caller: &str, cursor: &str) -> Option<Self> {
        let payload = sealer.open(TokenPurpose::Cursor, caller, cursor)?;
        let mut fields = PayloadReader::new(&payload, VERSION)?;
        let [byte] = fields.array()?;
        let listing = ListKind::ALL.into_iter().find(|listing| listing.byte() == byte)?;
        Some(Self { listing, after: fields.rest()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sealer() -> Sealer {
        Sealer::new([b"secret".as_slice()]).unwrap()
    }

    fn ticket(nonce: u8) -> SessionTicket {
        let (version, capabilities, issued, expires) = (3, 0x8001, 100, u64::MAX);
        SessionTicket { version, capabilities, issued, expires, nonce: [nonce; 16], client: [7; 4] }
    }

    #[test]
    fn a_ticket_comes_back_and_its_nonce_makes_it_unique() {
        let id = ticket(1).seal(&sealer(), "alice");
        assert_eq!(SessionTicket::open(&sealer(), "alice", &id), Some(ticket(1)));
        assert_eq!(SessionTicket::open(&sealer(), "bob", &id), None);
        assert_ne!(id, ticket(2).seal(&sealer(), "alice"));
    }

    #[test]
    fn a_session_ends_at_its_last_second() {
        let ticket = SessionTicket { expires: 200, ..ticket(1) };
        assert!(ticket.is_live(199));
        assert!(!ticket.is_live(200));
    }

    #[test]
    fn a_cursor_keeps_its_list_and_place() {
        for listing in ListKind::ALL {
            let cursor = PageCursor { listing, after: "weather_forecast".into() };
            let token = cursor.seal(&sealer(), "alice");
            assert_eq!(PageCursor::open(&sealer(), "alice", &token), Some(cursor));
        }
    }

    proptest! {
        #[test]
        fn no_payload_panics(payload: Vec<u8>) {
            let sealer = sealer();
            let _ticket = SessionTicket::open(&sealer, "a", &sealer.seal(TokenPurpose::Session, "a", &payload));
            let _cursor = PageCursor::open(&sealer, "a", &sealer.seal(TokenPurpose::Cursor, "a", &payload));
        }
    }
}
