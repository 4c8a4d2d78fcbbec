//! Sealed state that others hold instead of the gateway: request states, ids of elicitations,
//! sessions, list cursors, and the URLs and credentials of pushes.
//!
//! A request state is different each time, so that each round of a call has its own. The id of an
//! elicitation is deterministic: the same question to the same session has the same id on every
//! replica, so that any of them can take the answer.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

use super::handles::{AgentTaskId, LocalRef, TaskHandle, TaskRef, named, read_named};
use super::{PayloadReader, PayloadWriter, Sealer, TokenPurpose};

const REQUEST_VERSION: u8 = 1;
const TASK: u8 = 1;
const LOCAL: u8 = 2;
const TASK_OF_SKILL: u8 = 3;

/// A task, by its agent's id or by the number of a call that only its own replica knows.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TaskKey {
    /// The agent's id, and the skill of the tool that started the task, where that is known.
    Task(AgentTaskId, Option<String>),
    /// See [`LocalRef`].
    Local([u8; 16]),
}

impl TaskKey {
    /// Returns the skill of the tool that started the task, where that is known.
    pub fn skill(&self) -> Option<&str> {
        match self {
            Self::Task(_, skill) => skill.as_deref(),
            Self::Local(_) => None,
        }
    }

    /// Returns the handle of this agent's task for this caller.
    pub fn seal(&self, sealer: &Sealer, caller: &str, agent: &str) -> TaskHandle {
        let agent = agent.to_owned();
        match self {
            Self::Task(task, skill) => {
                TaskRef { agent, task: task.clone(), skill: skill.clone() }.seal(sealer, caller)
            }
            Self::Local(number) => LocalRef { agent, number: *number }.seal(sealer, caller),
        }
    }

    /// Opens a task handle of this caller as agent and task; `None` if it is not one.
    pub fn open(sealer: &Sealer, caller: &str, handle: &str) -> Option<(String, Self)> {
        let task = TaskRef::open(sealer, caller, handle);
        let task = task.map(|task| (task.agent, Self::Task(task.task, task.skill)));
        task.or_else(|| {
            let local = LocalRef::open(sealer, caller, handle)?;
            Some((local.agent, Self::Local(local.number)))
        })
    }

    fn write(&self, out: PayloadWriter) -> Vec<u8> {
        match self {
            Self::Task(task, None) => out.bytes(&[TASK]).bytes(task.as_str().as_bytes()),
            Self::Task(task, Some(skill)) => {
                out.bytes(&[TASK_OF_SKILL]).text(skill).bytes(task.as_str().as_bytes())
            }
            Self::Local(number) => out.bytes(&[LOCAL]).bytes(number),
        }
        .finish()
    }

    /// Reads the last field of a payload.
    fn read(mut fields: PayloadReader<'_>) -> Option<Self> {
        match fields.array()? {
            [TASK] => Some(Self::Task(fields.rest()?.into(), None)),
            [TASK_OF_SKILL] => {
                let skill = fields.text()?;
                Some(Self::Task(fields.rest()?.into(), Some(skill)))
            }
            [LOCAL] => {
                let number = fields.array()?;
                fields.end().map(|()| Self::Local(number))
            }
            _ => None,
        }
    }
}

/// The state that a modern client holds between two rounds of one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestState {
    /// The configured name of the agent.
    pub agent: String,
    /// The task of the call.
    pub task: TaskKey,
    /// Number of rounds so far.
    pub round: u8,
    /// Fingerprint of the question that was asked in this round, if one was.
    pub turn: Option<[u8; 16]>,
    /// Digest of the tool and its arguments: a retry must be of the same call.
    pub digest: [u8; 16],
    /// Expiry, in Unix seconds.
    pub expires: u64,
}

impl RequestState {
    /// Returns the state for this caller; different for each `nonce`.
    pub fn seal(&self, sealer: &Sealer, caller: &str, nonce: [u8; 16]) -> String {
        let turn = self.turn.unwrap_or_default();
        let out = PayloadWriter::new(REQUEST_VERSION)
            .bytes(&[self.round, u8::from(self.turn.is_some())])
            .bytes(&turn)
            .bytes(&self.digest)
            .bytes(&self.expires.to_be_bytes())
            .text(&self.agent);
        sealer.seal_once(TokenPurpose::RequestState, caller, &self.task.write(out), nonce)
    }

    /// Opens a state of this caller; `None` if it is not one. The state may have expired.
    pub fn open(sealer: &Sealer, caller: &str, state: &str) -> Option<Self> {
        let payload = sealer.open(TokenPurpose::RequestState, caller, state)?;
        let mut fields = PayloadReader::new(&payload, REQUEST_VERSION)?;
        let [round, asked] = fields.array()?;
        let turn = fields.array()?;
        let turn = match asked {
            0 => None,
            1 => Some(turn),
            _ => return None,
        };
        let digest = fields.array()?;
        let expires = u64::from_be_bytes(fields.array()?);
        let agent = fields.text()?;
        Some(Self { agent, task: TaskKey::read(fields)?, round, turn, digest, expires })
    }

    /// Returns true if the state is valid at `now` (Unix seconds).
    pub(crate) fn is_live(&self, now: u64) -> bool {
        now < self.expires
    }
}

/// The meaning of an elicitation id: the session, the task and the question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElicitationTicket {
    /// The nonce of the session in which the question was asked: an answer from another one is
    /// foreign.
    pub session: [u8; 16],
    /// The configured name of the agent.
    pub agent: String,
    /// The task that asks.
    pub task: TaskKey,
    /// Fingerprint of the question.
    pub turn: [u8; 16],
}

impl ElicitationTicket {
    /// Returns the id for this caller.
    pub fn seal(&self, sealer: &Sealer, caller: &str) -> String {
        let out =
            PayloadWriter::new(REQUEST_VERSION).bytes(&self.session).bytes(&self.turn).text(&self.agent);
        sealer.seal(TokenPurpose::Elicitation, caller, &self.task.write(out))
    }

    /// Opens an id of this caller; `None` if it is not one.
    pub fn open(sealer: &Sealer, caller: &str, id: &str) -> Option<Self> {
        let payload = sealer.open(TokenPurpose::Elicitation, caller, id)?;
        let mut fields = PayloadReader::new(&payload, REQUEST_VERSION)?;
        let (session, turn) = (fields.array()?, fields.array()?);
        let agent = fields.text()?;
        Some(Self { session, agent, task: TaskKey::read(fields)?, turn })
    }
}

const TICKET_VERSION: u8 = 1;

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
    /// Name of the client software; empty if the client told none.
    pub software: String,
    /// Version of the client software; empty if the client told none.
    pub software_version: String,
}

impl SessionTicket {
    /// Returns the session id for this caller.
    pub fn seal(&self, sealer: &Sealer, caller: &str) -> String {
        let payload = PayloadWriter::new(TICKET_VERSION)
            .bytes(&[self.version])
            .bytes(&self.capabilities.to_be_bytes())
            .bytes(&self.issued.to_be_bytes())
            .bytes(&self.expires.to_be_bytes())
            .bytes(&self.nonce)
            .bytes(&self.client)
            .text(&self.software)
            .text(&self.software_version)
            .finish();
        sealer.seal(TokenPurpose::Session, caller, &payload)
    }

    /// Opens a session id of this caller; `None` if it is not one. The session may have expired.
    pub fn open(sealer: &Sealer, caller: &str, id: &str) -> Option<Self> {
        let payload = sealer.open(TokenPurpose::Session, caller, id)?;
        let mut fields = PayloadReader::new(&payload, TICKET_VERSION)?;
        let [version] = fields.array()?;
        let ticket = Self {
            version,
            capabilities: u16::from_be_bytes(fields.array()?),
            issued: u64::from_be_bytes(fields.array()?),
            expires: u64::from_be_bytes(fields.array()?),
            nonce: fields.array()?,
            client: fields.array()?,
            // Ids of earlier builds end before.
            software: fields.text().unwrap_or_default(),
            software_version: fields.text().unwrap_or_default(),
        };
        fields.end().map(|()| ticket)
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
        let payload = PayloadWriter::new(TICKET_VERSION)
            .bytes(&[self.listing.byte()])
            .bytes(self.after.as_bytes())
            .finish();
        sealer.seal(TokenPurpose::Cursor, caller, &payload)
    }

    /// Opens a cursor of this caller; `None` if it is not one.
    pub fn open(sealer: &Sealer, caller: &str, cursor: &str) -> Option<Self> {
        let payload = sealer.open(TokenPurpose::Cursor, caller, cursor)?;
        let mut fields = PayloadReader::new(&payload, TICKET_VERSION)?;
        let [byte] = fields.array()?;
        let listing = ListKind::ALL.into_iter().find(|listing| listing.byte() == byte)?;
        Some(Self { listing, after: fields.rest()? })
    }
}

/// Used in place of a caller: agents are not callers.
const ADDRESS: &str = "push";
const PROOF: &str = "push proof";

/// The task that a push URL belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PushTicket {
    /// The configured name of the agent.
    pub agent: String,
    /// The agent's id of the task.
    pub task: AgentTaskId,
}

impl PushTicket {
    /// Returns true if the URL is within the length that agents can be expected to store. If not,
    /// the task cannot be pushed.
    pub fn fits(&self) -> bool {
        TaskRef { agent: self.agent.clone(), task: self.task.clone(), skill: None }.fits()
    }

    /// Returns the last segment of the URL, which is unguessable.
    pub fn seal(&self, sealer: &Sealer) -> String {
        sealer.seal(TokenPurpose::Push, ADDRESS, &named(&self.agent, self.task.as_str()))
    }

    /// Returns the credential that the agent must send, made with the key that seals now: after a
    /// change of key the agent needs a new registration.
    pub(crate) fn push_credential(&self, sealer: &Sealer) -> String {
        let sealed = sealer.seal(TokenPurpose::Push, PROOF, &named(&self.agent, self.task.as_str()));
        URL_SAFE_NO_PAD.encode(Sha256::digest(sealed))
    }

    /// Returns the task of a URL; `None` if the gateway did not make it.
    pub fn open(sealer: &Sealer, token: &str) -> Option<Self> {
        let (agent, task) = read_named(&sealer.open(TokenPurpose::Push, ADDRESS, token)?)?;
        Some(Self { agent, task: task.into() })
    }
}

/// Used in place of a caller: agents are not callers.
const WEBHOOK_ADDRESS: &str = "webhook";
const WEBHOOK_PROOF: &str = "webhook proof";

const WEBHOOK_VERSION: u8 = 1;
/// Maximum length of a client's webhook URL, in bytes.
pub(crate) const MAX_WEBHOOK_URL: usize = 1024;
/// Maximum length of the payload, in bytes: agents have to store the URL, which is a third longer.
const MAX_PAYLOAD_BYTES: usize = 3 * 1024;
/// Maximum number of schemes.
const MOST_SCHEMES: usize = 16;

/// A client's webhook, with the data to forward a push to it. Contains secrets, so that it is not
/// printable.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct WebhookTicket {
    /// The stable name of the caller that registered the webhook.
    pub caller: String,
    /// The configured name of the agent.
    pub agent: String,
    /// The agent's id of the task, if it was known at registration; a push for another task is
    /// rejected.
    pub task: Option<String>,
    /// The client's A2A dialect, as a number that the gateway assigns.
    pub version: u8,
    /// The client's own URL.
    pub url: String,
    /// The token that the client expects with each push.
    pub token: Option<String>,
    /// The authentication that the client expects.
    pub authentication: Option<WebhookAuthentication>,
}

/// The authentication that a client expects from the sender of pushes. Not printable.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct WebhookAuthentication {
    /// The schemes to choose from.
    pub schemes: Vec<String>,
    /// The credentials for the scheme.
    pub credentials: Option<String>,
}

impl WebhookTicket {
    /// Returns true if the URL is within the length that agents can be expected to store.
    pub(crate) fn fits(&self) -> bool {
        let schemes = self.authentication.as_ref().map_or(0, |given| given.schemes.len());
        self.url.len() <= MAX_WEBHOOK_URL && schemes <= MOST_SCHEMES && self.length() <= MAX_PAYLOAD_BYTES
    }

    /// Returns the last segment of the URL, which is unguessable and opaque, and the credential
    /// that the agent must send.
    pub(crate) fn seal(&self, sealer: &Sealer) -> (String, String) {
        let payload = self.written();
        let proof: [u8; 32] =
            Sha256::digest(sealer.seal(TokenPurpose::Webhook, WEBHOOK_PROOF, &payload)).into();
        let whole: Vec<u8> = proof.iter().chain(&payload).copied().collect();
        (sealer.seal(TokenPurpose::Webhook, WEBHOOK_ADDRESS, &whole), URL_SAFE_NO_PAD.encode(proof))
    }

    /// Opens a URL as its webhook and credential; `None` if the gateway did not make it.
    pub(crate) fn open(sealer: &Sealer, token: &str) -> Option<(Self, String)> {
        let whole = sealer.open(TokenPurpose::Webhook, WEBHOOK_ADDRESS, token)?;
        let (proof, payload) = whole.split_first_chunk::<32>()?;
        Some((Self::read(payload)?, URL_SAFE_NO_PAD.encode(proof)))
    }

    /// Returns the length of all texts in bytes, length prefixes included.
    fn length(&self) -> usize {
        let schemes = self.authentication.iter().flat_map(|given| &given.schemes).map(String::as_str);
        let credentials = self.authentication.iter().filter_map(|given| given.credentials.as_deref());
        let others = [&self.caller, &self.agent, &self.url].into_iter().map(String::as_str);
        let optional = [&self.task, &self.token].into_iter().filter_map(|text| text.as_deref());
        let all = schemes.chain(credentials).chain(others).chain(optional);
        all.fold(0_usize, |sum, text| sum.saturating_add(text.len()).saturating_add(2))
    }

    fn written(&self) -> Vec<u8> {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let head = PayloadWriter::new(WEBHOOK_VERSION)
            .bytes(&[self.version])
            .text(&self.caller)
            .text(&self.agent)
            .text(&text(&self.task))
            .text(&self.url)
            .text(&text(&self.token));
        let Some(authentication) = &self.authentication else { return head.bytes(&[0]).finish() };
        let schemes = u8::try_from(authentication.schemes.len()).unwrap_or(u8::MAX);
        let head = head.bytes(&[1, schemes]).text(&text(&authentication.credentials));
        let schemes = authentication.schemes.iter().take(usize::from(schemes));
        schemes.fold(head, |head, scheme| head.text(scheme)).finish()
    }

    fn read(payload: &[u8]) -> Option<Self> {
        let filled = |text: String| Some(text).filter(|text| !text.is_empty());
        let mut fields = PayloadReader::new(payload, WEBHOOK_VERSION)?;
        let [version] = fields.array()?;
        let (caller, agent) = (fields.text()?, fields.text()?);
        let task = filled(fields.text()?);
        let url = fields.text()?;
        let token = filled(fields.text()?);
        let authentication = match fields.array()? {
            [0] => None,
            [1] => {
                let [count] = fields.array()?;
                let credentials = filled(fields.text()?);
                let schemes = (0..count).map(|_| fields.text()).collect::<Option<_>>()?;
                Some(WebhookAuthentication { schemes, credentials })
            }
            _ => return None,
        };
        fields.end()?;
        Some(Self { caller, agent, task, version, url, token, authentication })
    }
}

impl fmt::Debug for WebhookTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookTicket").field("agent", &self.agent).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seal::{PageCursor, SessionTicket};
    use proptest::prelude::*;

    fn sealer() -> Sealer {
        Sealer::new([b"secret".as_slice()]).unwrap()
    }

    fn named() -> impl Strategy<Value = TaskKey> {
        prop_oneof![
            ("\\PC{0,60}", prop::option::of("\\PC{0,20}"))
                .prop_map(|(id, skill)| TaskKey::Task(id.into(), skill)),
            any::<[u8; 16]>().prop_map(TaskKey::Local)
        ]
    }

    fn state() -> impl Strategy<Value = RequestState> {
        let turn = prop::option::of(any::<[u8; 16]>());
        ("[a-z_]{0,20}", named(), any::<u8>(), turn, any::<[u8; 16]>(), any::<u64>()).prop_map(
            |(agent, task, round, turn, digest, expires)| RequestState {
                agent,
                task,
                round,
                turn,
                digest,
                expires,
            },
        )
    }

    fn ticket() -> impl Strategy<Value = ElicitationTicket> {
        (any::<[u8; 16]>(), "[a-z_]{0,20}", named(), any::<[u8; 16]>())
            .prop_map(|(session, agent, task, turn)| ElicitationTicket { session, agent, task, turn })
    }

    #[test]
    fn a_state_ends_at_its_last_second() {
        let state = RequestState {
            agent: "weather".into(),
            task: TaskKey::Local([1; 16]),
            round: 1,
            turn: None,
            digest: [2; 16],
            expires: 200,
        };
        assert!(state.is_live(199) && !state.is_live(200));
    }

    #[test]
    fn an_id_of_any_task_that_has_a_handle_is_short_enough_for_a_request() {
        let (agent, id) = ("a".repeat(64), "x".repeat(297));
        let task = TaskRef { agent: agent.clone(), task: id.as_str().into(), skill: None };
        assert!(task.fits());
        let longer = format!("{id}x").as_str().into();
        assert!(!TaskRef { agent: agent.clone(), task: longer, skill: None }.fits());
        let task = TaskKey::Task(task.task, None);
        let ticket = ElicitationTicket { session: [1; 16], agent, task, turn: [2; 16] };
        let quoted = format!("\"{}\"", ticket.seal(&sealer(), "alice"));
        assert!(quoted.len() < 1024, "{}", quoted.len());
    }

    #[test]
    fn payload_of_another_release_is_refused() {
        let sealer = sealer();
        let mut good = vec![REQUEST_VERSION, 0, 0];
        good.extend([0; 16 + 16 + 8]);
        good.extend([0, 1, b'a', TASK, b't']);
        let open = |payload: &[u8]| {
            RequestState::open(&sealer, "a", &sealer.seal(TokenPurpose::RequestState, "a", payload))
        };
        assert!(open(&good).is_some());
        let at = |place: usize, byte: u8| {
            let mut bad = good.clone();
            bad[place] = byte;
            bad
        };
        let kind = good.len() - 2;
        // The version, the question flag, the kind of the task, a local number that is too short.
        for bad in [at(0, 9), at(2, 2), at(kind, 9), at(kind, LOCAL)] {
            assert_eq!(open(&bad), None, "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn a_state_comes_back_to_its_caller_only(state in state(), nonce: [u8; 16], other: [u8; 16]) {
            let sealer = sealer();
            let token = state.seal(&sealer, "alice", nonce);
            prop_assert_eq!(RequestState::open(&sealer, "bob", &token), None);
            prop_assert_eq!(token == state.seal(&sealer, "alice", other), nonce == other);
            prop_assert_eq!(RequestState::open(&sealer, "alice", &token), Some(state));
        }

        #[test]
        fn an_elicitation_has_one_id_and_comes_back_to_its_caller_only(ticket in ticket()) {
            let sealer = sealer();
            let id = ticket.seal(&sealer, "alice");
            prop_assert_eq!(&id, &ticket.seal(&sealer, "alice"));
            prop_assert_eq!(ElicitationTicket::open(&sealer, "bob", &id), None);
            prop_assert_eq!(ElicitationTicket::open(&sealer, "alice", &id), Some(ticket));
        }

        #[test]
        fn a_handle_says_which_kind_of_task_it_names(task in named(), agent in "[a-z]{0,20}") {
            let sealer = sealer();
            let handle = task.seal(&sealer, "alice", &agent);
            prop_assert_eq!(TaskKey::open(&sealer, "bob", handle.as_str()), None);
            prop_assert_eq!(TaskKey::open(&sealer, "alice", handle.as_str()), Some((agent, task)));
        }

        #[test]
        fn nothing_opens_for_another_purpose(state in state(), ticket in ticket()) {
            let sealer = sealer();
            let (token, id) = (state.seal(&sealer, "a", [0; 16]), ticket.seal(&sealer, "a"));
            prop_assert_eq!(ElicitationTicket::open(&sealer, "a", &token), None);
            prop_assert_eq!(RequestState::open(&sealer, "a", &id), None);
            for token in [token, id] {
                prop_assert_eq!(TaskKey::open(&sealer, "a", &token), None);
                prop_assert_eq!(SessionTicket::open(&sealer, "a", &token), None);
                prop_assert_eq!(PageCursor::open(&sealer, "a", &token), None);
            }
        }

        #[test]
        fn no_altered_token_opens(state in state(), at: prop::sample::Index, bit in 0u8..6) {
            let sealer = sealer();
            let mut token = state.seal(&sealer, "a", [0; 16]).into_bytes();
            let place = at.index(token.len());
            token[place] ^= 1 << bit;
            if let Ok(altered) = String::from_utf8(token) {
                prop_assert_eq!(RequestState::open(&sealer, "a", &altered), None);
            }
        }

        #[test]
        fn no_payload_panics(payload: Vec<u8>) {
            let sealer = sealer();
            let _state = RequestState::open(&sealer, "a", &sealer.seal(TokenPurpose::RequestState, "a", &payload));
            let _ticket = ElicitationTicket::open(&sealer, "a", &sealer.seal(TokenPurpose::Elicitation, "a", &payload));
        }
    }
}

#[cfg(test)]
mod ticket_tests {
    use super::*;
    use proptest::prelude::*;

    fn sealer() -> Sealer {
        Sealer::new([b"secret".as_slice()]).unwrap()
    }

    fn ticket(nonce: u8) -> SessionTicket {
        let (version, capabilities, issued, expires) = (3, 0x8001, 100, u64::MAX);
        SessionTicket {
            version,
            capabilities,
            issued,
            expires,
            nonce: [nonce; 16],
            client: [7; 4],
            software: "host".into(),
            software_version: "1.9".into(),
        }
    }

    #[test]
    fn a_ticket_comes_back_and_its_nonce_makes_it_unique() {
        let id = ticket(1).seal(&sealer(), "alice");
        assert_eq!(SessionTicket::open(&sealer(), "alice", &id), Some(ticket(1)));
        assert_eq!(SessionTicket::open(&sealer(), "bob", &id), None);
        assert_ne!(id, ticket(2).seal(&sealer(), "alice"));
    }

    /// A session id of a build without the software of its client is still one.
    #[test]
    fn ticket_without_software_opens() {
        let mut payload = vec![TICKET_VERSION, 3, 0x80, 1];
        payload.extend([0; 8 + 8 + 16 + 4]);
        let open = |payload: &[u8]| {
            let id = sealer().seal(TokenPurpose::Session, "alice", payload);
            SessionTicket::open(&sealer(), "alice", &id)
        };
        assert_eq!(open(&payload).unwrap().software, "");
        payload.push(0);
        assert_eq!(open(&payload), None, "half a length");
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

#[cfg(test)]
mod push_token_tests {
    use proptest::prelude::*;

    use super::*;

    fn sealer(secrets: &[&str]) -> Sealer {
        Sealer::new(secrets.iter().map(|secret| secret.as_bytes())).unwrap()
    }

    fn ticket(task: &str) -> PushTicket {
        PushTicket { agent: "weather".into(), task: task.into() }
    }

    #[test]
    fn every_replica_knows_the_address_and_the_proof() {
        let (one, other) = (sealer(&["secret"]), sealer(&["secret"]));
        let ticket = ticket("t-1");
        assert_eq!(PushTicket::open(&other, &ticket.seal(&one)), Some(ticket.clone()));
        assert_eq!(ticket.push_credential(&one), ticket.push_credential(&other));
    }

    #[test]
    fn nothing_else_is_an_address() {
        let sealer = sealer(&["secret"]);
        let ticket = ticket("t-1");
        let task = TaskRef { agent: ticket.agent.clone(), task: ticket.task.clone(), skill: None };
        let sealed = sealer.seal(TokenPurpose::Push, PROOF, &named("weather", "t-1"));
        for token in
            ["", "x", &ticket.push_credential(&sealer), &sealed, task.seal(&sealer, ADDRESS).as_str()]
        {
            assert_eq!(PushTicket::open(&sealer, token), None, "{token}");
        }
        assert_eq!(
            PushTicket::open(&sealer, &ticket.seal(&super::push_token_tests::sealer(&["other"]))),
            None
        );
    }

    #[test]
    fn tasks_and_keys_have_proofs_of_their_own() {
        let proofs = [
            ticket("t-1").push_credential(&sealer(&["secret"])),
            ticket("t-2").push_credential(&sealer(&["secret"])),
            ticket("t-1").push_credential(&sealer(&["other"])),
            ticket("t-1").seal(&sealer(&["secret"])),
        ];
        for (at, proof) in proofs.iter().enumerate() {
            assert!(!proofs[at + 1..].contains(proof), "{proof}");
        }
    }

    fn webhook_ticket() -> WebhookTicket {
        WebhookTicket {
            caller: "key:ann".into(),
            agent: "bard".into(),
            task: Some("t-1".into()),
            version: 3,
            url: "https://client.example/hook?a=b".into(),
            token: Some("the client's token".into()),
            authentication: Some(WebhookAuthentication {
                schemes: vec!["Bearer".into(), "Basic".into()],
                credentials: Some("the client's secret".into()),
            }),
        }
    }

    #[test]
    fn replicas_open_it_and_clients_cannot() {
        let (one, other) = (sealer(&["secret"]), sealer(&["secret"]));
        let (address, proof) = webhook_ticket().seal(&one);
        assert!(WebhookTicket::open(&other, &address) == Some((webhook_ticket(), proof.clone())));
        assert_eq!(webhook_ticket().seal(&other), (address.clone(), proof.clone()));
        let raw = URL_SAFE_NO_PAD.decode(&address).unwrap();
        let raw = String::from_utf8_lossy(&raw);
        for secret in ["client", "token", "secret", "ann", "bard", "t-1"] {
            assert!(!raw.contains(secret), "{secret}");
        }
        assert!(!address.contains(&proof), "one does not tell the other");
        assert!(!format!("{:?}", webhook_ticket()).contains("client"));
    }

    #[test]
    fn an_address_outlives_a_change_of_key_with_its_proof() {
        let (address, proof) = webhook_ticket().seal(&sealer(&["old"]));
        let opened = WebhookTicket::open(&sealer(&["new", "old"]), &address);
        assert!(opened == Some((webhook_ticket(), proof)));
        assert!(WebhookTicket::open(&sealer(&["new"]), &address).is_none());
    }

    #[test]
    fn the_two_kinds_of_addresses_are_not_interchangeable() {
        let sealer = sealer(&["secret"]);
        let own = PushTicket { agent: "bard".into(), task: "t-1".into() };
        let (address, proof) = webhook_ticket().seal(&sealer);
        assert!(WebhookTicket::open(&sealer, &own.seal(&sealer)).is_none());
        assert_eq!(PushTicket::open(&sealer, &address), None);
        let sealed = sealer.seal(TokenPurpose::Webhook, WEBHOOK_PROOF, &webhook_ticket().written());
        for token in ["", "x", &proof, &sealed] {
            assert!(WebhookTicket::open(&sealer, token).is_none(), "{token}");
        }
    }

    #[test]
    fn every_registration_has_a_proof_of_its_own() {
        let sealer = sealer(&["secret"]);
        let other = WebhookTicket { caller: "key:ben".into(), ..webhook_ticket() };
        let another = WebhookTicket { token: None, ..webhook_ticket() };
        let proofs = [webhook_ticket(), other, another].map(|ticket| ticket.seal(&sealer).1);
        assert!(proofs[0] != proofs[1] && proofs[1] != proofs[2] && proofs[0] != proofs[2]);
    }

    #[test]
    fn tickets_fit_the_limits_of_agents() {
        let long = |bytes: usize| WebhookTicket { url: "x".repeat(bytes), ..webhook_ticket() };
        assert!(webhook_ticket().fits() && long(MAX_WEBHOOK_URL).fits() && !long(MAX_WEBHOOK_URL + 1).fits());
        let with = |token: usize| WebhookTicket { token: Some("x".repeat(token)), ..webhook_ticket() };
        assert!(with(2048).fits() && !with(MAX_PAYLOAD_BYTES).fits());
        let schemes = vec!["x".to_owned(); MOST_SCHEMES + 1];
        let authentication = Some(WebhookAuthentication { schemes, credentials: None });
        assert!(!WebhookTicket { authentication, ..webhook_ticket() }.fits());
    }

    proptest! {
        #[test]
        fn whatever_fits_comes_back(
            caller: String,
            task in prop::option::of(".{1,9}"),
            url in ".{0,40}",
            token in prop::option::of(".{1,9}"),
            authentication in prop::option::of((prop::collection::vec(".{0,9}", 0..4), prop::option::of(".{1,9}"))),
        ) {
            let authentication =
                authentication.map(|(schemes, credentials)| WebhookAuthentication { schemes, credentials });
            let ticket = WebhookTicket { caller, task, url, token, authentication, ..webhook_ticket() };
            prop_assume!(ticket.fits());
            let sealer = sealer(&["secret"]);
            let (address, proof) = ticket.seal(&sealer);
            prop_assert!(WebhookTicket::open(&sealer, &address) == Some((ticket, proof)));
        }

        #[test]
        fn no_payload_panics_and_what_opens_says_what_was_sealed(
            payload: Vec<u8>,
            cut in 0..200_usize,
            flip in (0..200_usize, any::<u8>()),
        ) {
            let sealer = sealer(&["secret"]);
            let mut near = webhook_ticket().written();
            near.truncate(cut);
            near.iter_mut().skip(flip.0).take(1).for_each(|byte| *byte = flip.1);
            let (exact, longer) = (webhook_ticket().written(), [webhook_ticket().written(), vec![0]].concat());
            for (payload, opens) in
                [(payload, None), (near, None), (exact, Some(true)), (longer, Some(false)), (vec![], Some(false))]
            {
                let whole = [[7; 32].as_slice(), &payload].concat();
                let opened = WebhookTicket::open(&sealer, &sealer.seal(TokenPurpose::Webhook, WEBHOOK_ADDRESS, &whole));
                prop_assert!(opens.is_none_or(|opens| opens == opened.is_some()));
                if let Some((found, proof)) = opened {
                    prop_assert_eq!(found.written(), payload);
                    prop_assert_eq!(proof, URL_SAFE_NO_PAD.encode([7; 32]));
                }
                let short = sealer.seal(TokenPurpose::Webhook, WEBHOOK_ADDRESS, &whole[..31]);
                prop_assert!(WebhookTicket::open(&sealer, &short).is_none(), "no room for a proof");
            }
        }
    }
}
