//! The state that the gateway needs when an answer to a question arrives: `requestState` of the
//! modern era, the id of an elicitation of the legacy one.
//!
//! A request state is different each time, so that each round of a call has its own. The id of an
//! elicitation is deterministic: the same question to the same session has the same id on every
//! replica, so that any of them can take the answer.

use super::handles::{AgentTaskId, LocalRef, TaskHandle, TaskRef};
use super::sealer::{PayloadReader, PayloadWriter};
use super::sealer::{Sealer, TokenPurpose};

const VERSION: u8 = 1;
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
        let out = PayloadWriter::new(VERSION)
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
        let mut fields = PayloadReader::new(&payload, VERSION)?;
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
        let out = PayloadWriter::new(VERSION).bytes(&self.session).bytes(&self.turn).text(&self.agent);
        sealer.seal(TokenPurpose::Elicitation, caller, &self.task.write(out))
    }

    /// Opens an id of this caller; `None` if it is not one.
    pub fn open(sealer: &Sealer, caller: &str, id: &str) -> Option<Self> {
        let payload = sealer.open(TokenPurpose::Elicitation, caller, id)?;
        let mut fields = PayloadReader::new(&payload, VERSION)?;
        let (session, turn) = (fields.array()?, fields.array()?);
        let agent = fields.text()?;
        Some(Self { session, agent, task: TaskKey::read(fields)?, turn })
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
    fn a_payload_of_another_release_is_nobodys() {
        let sealer = sealer();
        let mut good = vec![VERSION, 0, 0];
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
