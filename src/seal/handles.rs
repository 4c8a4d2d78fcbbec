//! Handles of tasks and contexts, and the things that they stand for.
//!
//! All handles here are deterministic: the same task has the same handle for the same caller on
//! every replica, so that subscriptions, lists and notifications match. The `*Ref` types are the
//! meaning of a handle; the `*Handle` types are the strings. Sessions and cursors are in `ticket`.

use std::fmt;

use super::{PayloadReader, PayloadWriter, Sealer, TokenPurpose};

/// Maximum length of a handle for a client, in characters.
pub(crate) const MAX_HANDLE: usize = 512;

const VERSION: u8 = 1;
/// The version of a task handle that names a skill.
const OF_SKILL: u8 = 2;
/// The size of a handle besides the lengths of agent and id: key id, tag, form, version, length of
/// the agent's name.
const OVERHEAD: usize = 3 + 16 + 1 + 1 + 2;

macro_rules! text_newtype {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(String);

        impl $name {
            /// Returns the text as it is on the wire.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// Returns the string.
            pub fn into_string(self) -> String {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
    };
}

text_newtype! {
    /// The string by which a client names a task. Made by the gateway: the agent never sees it.
    TaskHandle
}
text_newtype! {
    /// The string by which a client names a conversation. Made by the gateway: the agent never sees
    /// it.
    ContextHandle
}
text_newtype! {
    /// The agent's own id of a task. The client never sees it.
    AgentTaskId
}

impl From<String> for AgentTaskId {
    fn from(id: String) -> Self {
        Self(id)
    }
}

impl From<&str> for AgentTaskId {
    fn from(id: &str) -> Self {
        Self(id.to_owned())
    }
}

/// A task at an agent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TaskRef {
    /// The configured name of the agent.
    pub agent: String,
    /// The agent's id of the task.
    pub task: AgentTaskId,
    /// Id of the skill of the tool that started the task; `None` if no skill was named, or none is
    /// known.
    pub skill: Option<String>,
}

impl TaskRef {
    /// Returns true if the handle is within `MAX_HANDLE`. If not, the task needs a [`LocalRef`]
    /// instead.
    pub fn fits(&self) -> bool {
        // The skill, and its length.
        let skill = self.skill.as_ref().map_or(0, |skill| skill.len().saturating_add(2));
        fits(&self.agent, self.task.as_str(), skill)
    }

    /// Returns the reference, without its skill if there is no room for that; `None` if it does not
    /// fit even so.
    #[must_use]
    pub(crate) fn fitting(self) -> Option<Self> {
        if self.fits() {
            return Some(self);
        }
        Some(Self { skill: None, ..self }).filter(Self::fits)
    }

    /// Returns the handle for this caller.
    pub fn seal(&self, sealer: &Sealer, caller: &str) -> TaskHandle {
        let payload = match &self.skill {
            None => named(&self.agent, self.task.as_str()),
            Some(skill) => {
                let out = PayloadWriter::new(OF_SKILL).text(&self.agent).text(skill);
                out.bytes(self.task.as_str().as_bytes()).finish()
            }
        };
        TaskHandle(sealer.seal(TokenPurpose::Task, caller, &payload))
    }

    /// Opens a handle of this caller; `None` if it is not one.
    pub fn open(sealer: &Sealer, caller: &str, handle: &str) -> Option<Self> {
        let payload = sealer.open(TokenPurpose::Task, caller, handle)?;
        let Some(mut fields) = PayloadReader::new(&payload, OF_SKILL) else {
            let (agent, task) = read_named(&payload)?;
            return Some(Self { agent, task: AgentTaskId(task), skill: None });
        };
        let (agent, skill) = (fields.text()?, Some(fields.text()?));
        Some(Self { agent, task: AgentTaskId(fields.rest()?), skill })
    }
}

impl ContextHandle {
    fn new(sealer: &Sealer, caller: &str, agent: &str, context: &str) -> Self {
        Self(sealer.seal(TokenPurpose::Context, caller, &named(agent, context)))
    }

    /// Returns the handle of this conversation with an agent for a caller; `None` if it would be longer than
    /// `MAX_HANDLE`.
    pub(crate) fn fitting(sealer: &Sealer, caller: &str, agent: &str, context: &str) -> Option<Self> {
        fits(agent, context, 0).then(|| Self::new(sealer, caller, agent, context))
    }
}

/// A conversation with an agent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ContextRef {
    /// The configured name of the agent.
    pub agent: String,
    /// The agent's context id.
    pub context: String,
}

impl ContextRef {
    /// Returns true if the handle is within `MAX_HANDLE`. If not, the conversation has no name
    /// for the client.
    pub fn fits(&self) -> bool {
        fits(&self.agent, &self.context, 0)
    }

    /// Returns the handle for this caller.
    pub fn seal(&self, sealer: &Sealer, caller: &str) -> ContextHandle {
        ContextHandle::new(sealer, caller, &self.agent, &self.context)
    }

    /// Opens a handle of this caller; `None` if it is not one.
    pub fn open(sealer: &Sealer, caller: &str, handle: &str) -> Option<Self> {
        let (agent, context) = read_named(&sealer.open(TokenPurpose::Context, caller, handle)?)?;
        Some(Self { agent, context })
    }
}

/// A call for which the agent has not named a task yet, or has used an id too long to seal. Only
/// the replica that made the call knows the meaning of the number.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LocalRef {
    /// The configured name of the agent.
    pub agent: String,
    /// Random number, made at the start of the call.
    pub number: [u8; 16],
}

impl LocalRef {
    /// Returns the handle for this caller. To the client it is a task like any other.
    pub fn seal(&self, sealer: &Sealer, caller: &str) -> TaskHandle {
        let payload = PayloadWriter::new(VERSION).bytes(&self.number).bytes(self.agent.as_bytes()).finish();
        TaskHandle(sealer.seal(TokenPurpose::Local, caller, &payload))
    }

    /// Opens a handle of this caller; `None` if it is not one.
    pub fn open(sealer: &Sealer, caller: &str, handle: &str) -> Option<Self> {
        let payload = sealer.open(TokenPurpose::Local, caller, handle)?;
        let mut fields = PayloadReader::new(&payload, VERSION)?;
        Some(Self { number: fields.array()?, agent: fields.rest()? })
    }
}

fn fits(agent: &str, id: &str, more: usize) -> bool {
    let bytes = agent.len().saturating_add(id.len()).saturating_add(more).saturating_add(OVERHEAD);
    base64::encoded_len(bytes, false).is_some_and(|characters| characters <= MAX_HANDLE)
}

pub(super) fn named(agent: &str, id: &str) -> Vec<u8> {
    PayloadWriter::new(VERSION).text(agent).bytes(id.as_bytes()).finish()
}

pub(super) fn read_named(payload: &[u8]) -> Option<(String, String)> {
    let mut fields = PayloadReader::new(payload, VERSION)?;
    Some((fields.text()?, fields.rest()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sealer() -> Sealer {
        Sealer::new([b"secret".as_slice()]).unwrap()
    }

    fn task(agent: &str, task: &str) -> TaskRef {
        TaskRef { agent: agent.into(), task: task.into(), skill: None }
    }

    #[test]
    fn task_handle_names_its_skill() {
        let of = |skill: Option<&str>| TaskRef { skill: skill.map(str::to_owned), ..task("weather", "t") };
        let mut seen = Vec::new();
        for skill in [None, Some(""), Some("rain"), Some("\0")] {
            let handle = of(skill).seal(&sealer(), "alice");
            assert_eq!(TaskRef::open(&sealer(), "alice", handle.as_str()), Some(of(skill)), "{skill:?}");
            assert!(!seen.contains(&handle));
            seen.push(handle);
        }
        let long = TaskRef { skill: Some("s".repeat(128)), ..task("weather", &"x".repeat(290)) };
        assert!(!long.fits() && long.fitting().is_some_and(|fitting| fitting.skill.is_none()));
        assert_eq!(task("weather", &"x".repeat(400)).fitting(), None);
    }

    #[test]
    fn any_id_comes_back_byte_for_byte() {
        for id in ["", "\0", "a\0b", "täsk-ü-世界", " ", "../../etc", &"x".repeat(200)] {
            let written = task("weather", id);
            let handle = written.seal(&sealer(), "alice");
            assert_eq!(TaskRef::open(&sealer(), "alice", handle.as_str()).unwrap(), written, "{id:?}");
            let written = ContextRef { agent: "weather".into(), context: id.into() };
            let handle = written.seal(&sealer(), "alice");
            assert_eq!(ContextRef::open(&sealer(), "alice", handle.as_str()).unwrap(), written, "{id:?}");
        }
    }

    #[test]
    fn agent_and_id_never_run_together() {
        let (one, other) = (task("ab", "c"), task("a", "bc"));
        assert_ne!(one.seal(&sealer(), "alice"), other.seal(&sealer(), "alice"));
    }

    #[test]
    fn kinds_of_handles_are_not_interchangeable() {
        let sealer = sealer();
        let handle = task("weather", "1").seal(&sealer, "alice");
        assert_eq!(ContextRef::open(&sealer, "alice", handle.as_str()), None);
        assert_eq!(LocalRef::open(&sealer, "alice", handle.as_str()), None);
        let local = LocalRef { agent: "weather".into(), number: [7; 16] };
        let handle = local.seal(&sealer, "alice");
        assert_eq!(TaskRef::open(&sealer, "alice", handle.as_str()), None);
        assert_eq!(LocalRef::open(&sealer, "bob", handle.as_str()), None);
        assert_eq!(LocalRef::open(&sealer, "alice", handle.as_str()), Some(local));
    }

    #[test]
    fn an_id_of_two_hundred_bytes_fits_with_the_longest_agent_name() {
        let long = task(&"a".repeat(64), &"x".repeat(200));
        assert!(long.fits());
        assert!(long.seal(&sealer(), "alice").as_str().len() <= MAX_HANDLE);
    }

    #[test]
    fn payload_of_another_release_is_refused() {
        let sealer = sealer();
        for payload in
            [&b""[..], &[9, 0, 1, b'a'], &[VERSION], &[VERSION, 0, 9, b'a'], &[VERSION, 0, 1, 0xFF]]
        {
            let token = sealer.seal(TokenPurpose::Task, "alice", payload);
            assert_eq!(TaskRef::open(&sealer, "alice", &token), None, "{payload:?}");
        }
    }

    proptest! {
        #[test]
        fn fits_tells_the_truth(agent in "[a-z]{0,90}", id in "\\PC{0,200}", skill in prop::option::of("[a-z]{0,128}")) {
            let task = TaskRef { skill, ..task(&agent, &id) };
            let length = task.seal(&sealer(), "alice").as_str().len();
            prop_assert_eq!(task.fits(), length <= MAX_HANDLE, "{}", length);
        }

        #[test]
        fn no_payload_panics(payload: Vec<u8>) {
            let sealer = sealer();
            let _task = TaskRef::open(&sealer, "a", &sealer.seal(TokenPurpose::Task, "a", &payload));
            let _context = ContextRef::open(&sealer, "a", &sealer.seal(TokenPurpose::Context, "a", &payload));
            let _local = LocalRef::open(&sealer, "a", &sealer.seal(TokenPurpose::Local, "a", &payload));
        }
    }
}
