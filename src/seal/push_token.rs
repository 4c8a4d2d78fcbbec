//! The URLs to which agents push, and the credential that they send there.
//!
//! Nothing is stored: a restart changes neither, and any replica with the same key can serve them.
//! For pushes to the gateway, URL and credential derive from agent, task and key alone, and neither
//! reveals the other. For pushes to a client's webhook, the URL contains everything needed to
//! forward a push: the caller, the client's URL, and the token and authentication that the client
//! expects; it is encrypted, so that the agent cannot read any of that. That credential is in the URL
//! too, so that it is valid for as long as the URL opens.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

use super::handles::{AgentTaskId, TaskRef, named, read_named};
use super::sealer::{PayloadReader, PayloadWriter, Sealer, TokenPurpose};

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

const VERSION: u8 = 1;
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
        let head = PayloadWriter::new(VERSION)
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
        let mut fields = PayloadReader::new(payload, VERSION)?;
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
        assert_eq!(PushTicket::open(&sealer, &ticket.seal(&super::tests::sealer(&["other"]))), None);
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
    fn every_replica_opens_it_and_nobody_reads_it() {
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
    fn what_agents_cannot_store_does_not_fit() {
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
