//! The URL to which an agent pushes changes of a task, and the credential that it sends there.
//!
//! Both derive from agent, task and key alone: nothing is stored, a restart changes neither, and
//! any replica with the same key can compute them. Neither reveals the other.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use sha2::{Digest as _, Sha256};

use super::handles::{AgentTaskId, TaskRef, named, read_named};
use super::sealer::{Sealer, TokenPurpose};

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
    pub fn push_credential(&self, sealer: &Sealer) -> String {
        let sealed = sealer.seal(TokenPurpose::Push, PROOF, &named(&self.agent, self.task.as_str()));
        URL_SAFE_NO_PAD.encode(Sha256::digest(sealed))
    }

    /// Returns the task of a URL; `None` if the gateway did not make it.
    pub fn open(sealer: &Sealer, token: &str) -> Option<Self> {
        let (agent, task) = read_named(&sealer.open(TokenPurpose::Push, ADDRESS, token)?)?;
        Some(Self { agent, task: task.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealer(secret: &str) -> Sealer {
        Sealer::new([secret.as_bytes()]).unwrap()
    }

    fn ticket(task: &str) -> PushTicket {
        PushTicket { agent: "weather".into(), task: task.into() }
    }

    #[test]
    fn every_replica_knows_the_address_and_the_proof() {
        let (one, other) = (sealer("secret"), sealer("secret"));
        let ticket = ticket("t-1");
        assert_eq!(PushTicket::open(&other, &ticket.seal(&one)), Some(ticket.clone()));
        assert_eq!(ticket.push_credential(&one), ticket.push_credential(&other));
    }

    #[test]
    fn nothing_else_is_an_address() {
        let sealer = sealer("secret");
        let ticket = ticket("t-1");
        let task = TaskRef { agent: ticket.agent.clone(), task: ticket.task.clone(), skill: None };
        let sealed = sealer.seal(TokenPurpose::Push, PROOF, &named("weather", "t-1"));
        for token in
            ["", "x", &ticket.push_credential(&sealer), &sealed, task.seal(&sealer, ADDRESS).as_str()]
        {
            assert_eq!(PushTicket::open(&sealer, token), None, "{token}");
        }
        assert_eq!(PushTicket::open(&sealer, &ticket.seal(&super::tests::sealer("other"))), None);
    }

    #[test]
    fn tasks_and_keys_have_proofs_of_their_own() {
        let proofs = [
            ticket("t-1").push_credential(&sealer("secret")),
            ticket("t-2").push_credential(&sealer("secret")),
            ticket("t-1").push_credential(&sealer("other")),
            ticket("t-1").seal(&sealer("secret")),
        ];
        for (at, proof) in proofs.iter().enumerate() {
            assert!(!proofs[at + 1..].contains(proof), "{proof}");
        }
    }
}
