//! Sealed handles: every string that a client holds and hands back (task, context, session, cursor,
//! request state).
//!
//! Pure: no I/O, no clock, no randomness; a nonce is an argument. AES-SIV (RFC 5297) under a key
//! derived from the configured secret, bound to a [`TokenPurpose`] and to the caller's stable name.
//! So a handle cannot be guessed, forged, used for another purpose or used by another caller, and
//! any replica with the same secret can read it. Out of scope: callers (see `auth`), the existence
//! of a handle's task, expiry (the caller of `open` compares the times of a [`SessionTicket`] or a
//! [`RequestState`]).
//!
//! A token is base64url (no padding) of `key id (3 bytes) ‖ SIV tag (16) ‖ ciphertext`. The
//! plaintext begins with one byte that says if a nonce follows. The meaning of the payload is
//! defined in `handles` and `tickets`; its format is compact and binary: a version byte, then fields; a
//! text is preceded by its length (2 bytes). Reading never panics: a token may have been sealed by
//! another release under the same key.

mod handles;
mod tickets;

use std::fmt;
use std::hash::Hasher as _;
use std::sync::{Arc, Mutex};

use aes_siv::KeyInit as _;
use aes_siv::siv::Aes256Siv;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256, Sha512};
use siphasher::sip::SipHasher13;

pub use handles::{AgentTaskId, ContextHandle, ContextRef, LocalRef, TaskHandle, TaskRef};
pub use tickets::{
    ElicitationTicket, ListKind, PageCursor, PushTicket, RequestState, SessionTicket, TaskKey,
};
pub(crate) use tickets::{MAX_WEBHOOK_URL, WebhookAuthentication, WebhookTicket};

/// Maximum length of a token for [`Sealer::open`], in characters; longer ones are foreign. Room for
/// 12 KiB of payload: a larger payload gives a token that does not open.
pub const MAX_TOKEN: usize = 16 * 1024;

const KEY_ID: usize = 3;
/// Bytes before the sealed text: the id of the key, and the tag.
const TOKEN_HEAD_BYTES: usize = KEY_ID + 16;
const DETERMINISTIC: u8 = 0;
const ONCE: u8 = 1;
/// Both are part of the wire format: a change makes every handle in use unreadable.
const KEY_DOMAIN: &[u8] = b"mcp-a2a-gateway/seal/v1/key\0";
const KEY_ID_DOMAIN: &[u8] = b"mcp-a2a-gateway/seal/v1/key-id\0";
/// The key of digests for logs. It may change: digests of two releases need not be equal.
const DIGEST_DOMAIN: &[u8] = b"mcp-a2a-gateway/seal/v1/digest\0";

/// The purpose of a token. A token sealed for one purpose does not open for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TokenPurpose {
    /// An MCP session of the legacy era.
    Session,
    /// A task at an agent.
    Task,
    /// An A2A context (a conversation).
    Context,
    /// The position in a paged list.
    Cursor,
    /// A call that has no task id at its agent yet, or one too long to seal.
    Local,
    /// The modern era's `requestState`.
    RequestState,
    /// The id of an elicitation.
    Elicitation,
    /// The URL to which an agent pushes changes of a task.
    Push,
    /// The URL to which an agent pushes for a client's webhook.
    Webhook,
    /// A value that replicas share: no token, its bytes go to an engine.
    SharedValue,
}

impl TokenPurpose {
    /// Returns the byte for the associated data; never reuse one.
    fn byte(self) -> u8 {
        match self {
            Self::Session => 1,
            Self::Task => 2,
            Self::Context => 3,
            Self::Cursor => 4,
            Self::Local => 5,
            Self::RequestState => 6,
            Self::Elicitation => 7,
            Self::Push => 8,
            Self::Webhook => 9,
            Self::SharedValue => 10,
        }
    }
}

/// The error for a missing secret: none was configured, or one is empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no secret to seal with: none is given, or one is empty")]
pub struct NoKey;

/// Keys of the gateway: seals with the first, opens with any of them.
#[derive(Clone)]
pub struct Sealer {
    first: SealKey,
    older: Vec<SealKey>,
    /// The start of every digest. SipHash is a keyed function for short inputs, and cheaper than
    /// SHA-256: each call has up to three digests.
    digest: SipHasher13,
}

#[derive(Clone)]
struct SealKey {
    id: [u8; KEY_ID],
    key: [u8; 64],
    /// The cipher of the key, for one thread at a time: its operations need `&mut`, and it cannot be
    /// cloned.
    cipher: Arc<Mutex<Aes256Siv>>,
}

/// Digests of the ids of one purpose and one owner, for logs: equal on every replica of the same release, and of no use to a
/// reader without the key. Ids of different purposes and owners have different digests.
#[derive(Clone, Copy)]
pub struct IdDigest(SipHasher13);

impl IdDigest {
    /// Returns the digest of an id.
    pub fn of(&self, id: &[u8]) -> u64 {
        let Self(started) = self;
        started.hash(id)
    }
}

/// Returns the pieces one after the other; `None` if they do not fit.
fn join<'a>(buffer: &'a mut [u8], pieces: &[&[u8]]) -> Option<&'a [u8]> {
    let mut length = 0;
    for piece in pieces {
        let end = length + piece.len();
        buffer.get_mut(length..end)?.copy_from_slice(piece);
        length = end;
    }
    buffer.get(..length)
}

impl Sealer {
    /// Derives one key from each secret. The first seals; all of them open, so that a secret can be
    /// rotated.
    ///
    /// # Errors
    ///
    /// [`NoKey`] without any secret, or when one is empty.
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a [u8]>) -> Result<Self, NoKey> {
        let mut keys = secrets.into_iter().map(SealKey::derive);
        let first = keys.next().ok_or(NoKey)??;
        let key: [u8; 32] =
            Sha256::new().chain_update(DIGEST_DOMAIN).chain_update(first.key).finalize().into();
        let digest = SipHasher13::new_with_key(key.first_chunk().ok_or(NoKey)?);
        Ok(Self { first, older: keys.collect::<Result<_, _>>()?, digest })
    }

    /// Seals `payload`: the same input gives the same token, at any time and on every replica.
    pub fn seal(&self, purpose: TokenPurpose, caller: &str, payload: &[u8]) -> String {
        self.first.seal(purpose, caller, &[&[DETERMINISTIC], payload])
    }

    /// Seals `payload` so that no two tokens are equal, provided that no two `nonce`s are.
    pub(crate) fn seal_once(
        &self,
        purpose: TokenPurpose,
        caller: &str,
        payload: &[u8],
        nonce: [u8; 16],
    ) -> String {
        self.first.seal(purpose, caller, &[&[ONCE], &nonce, payload])
    }

    /// Seals a value that replicas share, of any size, for the key under which it is stored. The same
    /// value gives the same bytes.
    pub(crate) fn seal_bytes(&self, key: &str, value: &[u8]) -> Vec<u8> {
        self.first.seal_raw(TokenPurpose::SharedValue, key, &[value])
    }

    /// Returns the value of [`Sealer::seal_bytes`]; `None` for one that is altered, of another key or
    /// under an unknown secret.
    pub(crate) fn open_bytes(&self, key: &str, sealed: &[u8]) -> Option<Vec<u8>> {
        let (id, sealed) = sealed.split_first_chunk::<KEY_ID>()?;
        let headers = [&[TokenPurpose::SharedValue.byte()], key.as_bytes()];
        std::iter::once(&self.first)
            .chain(&self.older)
            .filter(|known| known.id == *id)
            .find_map(|known| known.with_cipher(|cipher| cipher.decrypt(headers, sealed)).ok())
    }

    /// Returns the digest of ids of a purpose and an owner. The name of the owner has no zero byte.
    pub fn id_digest(&self, purpose: TokenPurpose, owner: &str) -> IdDigest {
        /// SipHash takes so many bytes at once.
        const WORD: usize = 8;
        let mut started = vec![purpose.byte()];
        started.extend_from_slice(owner.as_bytes());
        // At least one zero ends the owner. Whole words, because a hash that goes on within one takes twice as long.
        started.resize((started.len() / WORD + 1) * WORD, 0);
        let mut digest = self.digest;
        digest.write(&started);
        IdDigest(digest)
    }

    /// Returns the payload of a token that was sealed in either form for this purpose and caller.
    ///
    /// Returns `None` for a token that is foreign, altered, of another caller, for another purpose
    /// or under an unknown key; these cases are indistinguishable.
    pub fn open(&self, purpose: TokenPurpose, caller: &str, token: &str) -> Option<Vec<u8>> {
        if token.len() > MAX_TOKEN {
            return None;
        }
        let raw = URL_SAFE_NO_PAD.decode(token).ok()?;
        let (id, sealed) = raw.split_first_chunk::<KEY_ID>()?;
        std::iter::once(&self.first)
            .chain(&self.older)
            // Not `find`: two keys may share a short id.
            .filter(|key| key.id == *id)
            .find_map(|key| key.open(purpose, caller, sealed))
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealer").field("keys", &self.older.len().saturating_add(1)).finish_non_exhaustive()
    }
}

/// Maximum bytes of a sealed token that is made without a buffer of its own: nearly every handle.
const SHORT_TOKEN_BYTES: usize = 256;

/// Returns the bytes of the sealed pieces.
fn sealed_bytes(pieces: &[&[u8]]) -> usize {
    pieces.iter().map(|piece| piece.len()).fold(TOKEN_HEAD_BYTES, usize::saturating_add)
}

impl SealKey {
    fn derive(secret: &[u8]) -> Result<Self, NoKey> {
        if secret.is_empty() {
            return Err(NoKey);
        }
        let key: [u8; 64] = Sha512::new().chain_update(KEY_DOMAIN).chain_update(secret).finalize().into();
        let digest: [u8; 32] =
            Sha256::new().chain_update(KEY_ID_DOMAIN).chain_update(secret).finalize().into();
        let id = digest.first_chunk::<KEY_ID>().copied().ok_or(NoKey)?;
        let cipher = Arc::new(Mutex::new(Aes256Siv::new((&key).into())));
        Ok(Self { id, key, cipher })
    }

    fn seal(&self, purpose: TokenPurpose, caller: &str, pieces: &[&[u8]]) -> String {
        let mut short = [0; SHORT_TOKEN_BYTES];
        match short.get_mut(..sealed_bytes(pieces)) {
            Some(raw) => URL_SAFE_NO_PAD.encode(self.seal_into(raw, purpose, caller, pieces)),
            None => URL_SAFE_NO_PAD.encode(self.seal_raw(purpose, caller, pieces)),
        }
    }

    fn seal_raw(&self, purpose: TokenPurpose, caller: &str, pieces: &[&[u8]]) -> Vec<u8> {
        let mut raw = vec![0; sealed_bytes(pieces)];
        let length = self.seal_into(&mut raw, purpose, caller, pieces).len();
        raw.truncate(length);
        raw
    }

    /// Seals the pieces as one text, in a buffer of just their size; returns it, or nothing.
    fn seal_into<'a>(
        &self,
        raw: &'a mut [u8],
        purpose: TokenPurpose,
        caller: &str,
        pieces: &[&[u8]],
    ) -> &'a [u8] {
        let headers = [&[purpose.byte()], caller.as_bytes()];
        let Some((head, text)) = raw.split_first_chunk_mut::<TOKEN_HEAD_BYTES>() else { return &[] };
        if join(text, pieces).is_none() {
            return &[];
        }
        let sealed = self.with_cipher(|cipher| cipher.encrypt_in_place_detached(headers, text));
        let Ok(tag) = sealed else {
            // Only for more than 126 headers. The text is still unencrypted here, so none of it may
            // leave.
            return &[];
        };
        head.iter_mut().zip(self.id.into_iter().chain(tag)).for_each(|(place, byte)| *place = byte);
        raw
    }

    fn open(&self, purpose: TokenPurpose, caller: &str, sealed: &[u8]) -> Option<Vec<u8>> {
        let headers = [&[purpose.byte()], caller.as_bytes()];
        let mut plain = self.with_cipher(|cipher| cipher.decrypt(headers, sealed)).ok()?;
        let before = match *plain.first()? {
            DETERMINISTIC => 1,
            ONCE => 17,
            _ => return None,
        };
        (plain.len() >= before).then(|| {
            plain.drain(..before);
            plain
        })
    }

    /// Passes the cipher to `apply`; a new one while another thread uses it. No thread waits, and
    /// nearly none computes the key schedule.
    fn with_cipher<R>(&self, apply: impl FnOnce(&mut Aes256Siv) -> R) -> R {
        match self.cipher.try_lock() {
            Ok(mut cipher) => apply(&mut cipher),
            Err(_) => apply(&mut Aes256Siv::new((&self.key).into())),
        }
    }
}

/// Size that most payloads fit into, in bytes.
const INITIAL_CAPACITY: usize = 96;

/// Encoder of fields, in order.
struct PayloadWriter(Vec<u8>);

impl PayloadWriter {
    fn new(version: u8) -> Self {
        let mut bytes = Vec::with_capacity(INITIAL_CAPACITY);
        bytes.push(version);
        Self(bytes)
    }

    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// Appends a text that other fields follow. Cut to 65535 bytes: configured names are far
    /// shorter.
    fn text(self, text: &str) -> Self {
        let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
        let kept = text.as_bytes().get(..usize::from(length)).unwrap_or_default();
        self.bytes(&length.to_be_bytes()).bytes(kept)
    }

    fn finish(self) -> Vec<u8> {
        self.0
    }
}

/// Decoder of the same fields in the same order; each is `None` once the bytes do not contain it.
struct PayloadReader<'a>(&'a [u8]);

impl<'a> PayloadReader<'a> {
    /// Begins to read; `None` unless the payload begins with `version`.
    fn new(payload: &'a [u8], version: u8) -> Option<Self> {
        payload.split_first().filter(|(first, _)| **first == version).map(|(_, rest)| Self(rest))
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    fn text(&mut self) -> Option<String> {
        let length = usize::from(u16::from_be_bytes(self.array()?));
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        String::from_utf8(taken.to_vec()).ok()
    }

    /// Returns the rest as text.
    fn rest(self) -> Option<String> {
        String::from_utf8(self.0.to_vec()).ok()
    }

    /// Returns `Some` if all bytes are read.
    fn end(self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: [TokenPurpose; 10] = [
        TokenPurpose::Session,
        TokenPurpose::Task,
        TokenPurpose::Context,
        TokenPurpose::Cursor,
        TokenPurpose::Local,
        TokenPurpose::RequestState,
        TokenPurpose::Elicitation,
        TokenPurpose::Push,
        TokenPurpose::Webhook,
        TokenPurpose::SharedValue,
    ];

    fn sealer(secrets: &[&str]) -> Sealer {
        Sealer::new(secrets.iter().map(|secret| secret.as_bytes())).unwrap()
    }

    #[test]
    fn the_wire_form_never_changes() {
        let token = sealer(&["secret"]).seal(TokenPurpose::Task, "alice", b"payload");
        assert_eq!(token, "qRX-hP2tSCWMQI7vwINWaM3mqFHEljytRykY");
        let token = sealer(&["secret"]).seal_once(TokenPurpose::RequestState, "alice", b"payload", [7; 16]);
        assert_eq!(token, "qRX---weRwg65Paw36znwD-c8DaYqTn0qpbh044rUJIgAyoT3HIyOfh4dQ");
        let shared = sealer(&["secret"]).seal_bytes("key", b"value");
        assert_eq!(URL_SAFE_NO_PAD.encode(shared), "qRX-sIHoqH5aifHbkPWXgpypZ0QfNVlW");
    }

    #[test]
    fn the_same_input_gives_the_same_token_on_every_replica() {
        let (one, other) = (sealer(&["secret"]), sealer(&["secret", "older"]));
        assert_eq!(
            one.seal(TokenPurpose::Task, "alice", b"x"),
            other.seal(TokenPurpose::Task, "alice", b"x")
        );
        assert_ne!(one.seal(TokenPurpose::Task, "alice", b"x"), one.seal(TokenPurpose::Task, "alice", b"y"));
    }

    #[test]
    fn digests_depend_on_key_purpose_owner_and_id() {
        let one = sealer(&["secret"]);
        let digest =
            |sealer: &Sealer, purpose, owner, id: &str| sealer.id_digest(purpose, owner).of(id.as_bytes());
        let first = digest(&one, TokenPurpose::Task, "agent", "id");
        assert_eq!(first, digest(&sealer(&["secret", "older"]), TokenPurpose::Task, "agent", "id"));
        for other in [
            digest(&sealer(&["other"]), TokenPurpose::Task, "agent", "id"),
            digest(&one, TokenPurpose::Context, "agent", "id"),
            digest(&one, TokenPurpose::Task, "agen", "tid"),
            digest(&one, TokenPurpose::Task, "agent", "id2"),
        ] {
            assert_ne!(first, other);
        }
    }

    #[test]
    fn start_of_a_digest_has_whole_words_and_ends_the_owner() {
        let sealer = sealer(&["secret"]);
        for (owner, start) in [
            ("", b"\x02\0\0\0\0\0\0\0".as_slice()),
            ("agents", b"\x02agents\0"),
            ("agents1", b"\x02agents1\0\0\0\0\0\0\0\0"),
        ] {
            let whole = [start, b"id"].concat();
            assert_eq!(
                sealer.id_digest(TokenPurpose::Task, owner).of(b"id"),
                sealer.digest.hash(&whole),
                "{owner}"
            );
        }
    }

    #[test]
    fn a_nonce_makes_a_token_unique_and_opens_to_the_same_payload() {
        let sealer = sealer(&["secret"]);
        let first = sealer.seal_once(TokenPurpose::RequestState, "alice", b"x", [1; 16]);
        let second = sealer.seal_once(TokenPurpose::RequestState, "alice", b"x", [2; 16]);
        assert_ne!(first, second);
        for token in [first, second] {
            assert_eq!(sealer.open(TokenPurpose::RequestState, "alice", &token).unwrap(), b"x");
        }
    }

    #[test]
    fn a_token_opens_only_for_its_purpose_and_caller() {
        let sealer = sealer(&["secret"]);
        for sealed_for in ALL {
            let token = sealer.seal(sealed_for, "alice", b"x");
            for opened_for in ALL {
                let opened = sealer.open(opened_for, "alice", &token).is_some();
                assert_eq!(opened, sealed_for == opened_for, "{sealed_for:?} {opened_for:?}");
            }
            for caller in ["", "alic", "alice ", "Alice", "bob"] {
                assert_eq!(sealer.open(sealed_for, caller, &token), None, "{caller:?}");
            }
        }
    }

    #[test]
    fn every_flipped_bit_spoils_a_token() {
        let sealer = sealer(&["secret"]);
        let token = sealer.seal(TokenPurpose::Task, "alice", b"agent and task");
        for (at, bit) in (0..token.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let mut altered = token.clone().into_bytes();
            altered[at] ^= 1 << bit;
            let Ok(altered) = String::from_utf8(altered) else { continue };
            assert_eq!(sealer.open(TokenPurpose::Task, "alice", &altered), None, "byte {at}, bit {bit}");
        }
        for short in 0..token.len() {
            assert_eq!(sealer.open(TokenPurpose::Task, "alice", token.get(..short).unwrap()), None);
        }
    }

    #[test]
    fn a_rotated_secret_still_opens_and_no_longer_seals() {
        let (old, new) = (sealer(&["old"]), sealer(&["new"]));
        let both = sealer(&["new", "old"]);
        let token = old.seal(TokenPurpose::Task, "alice", b"x");
        assert_eq!(both.open(TokenPurpose::Task, "alice", &token).unwrap(), b"x");
        assert_eq!(new.open(TokenPurpose::Task, "alice", &token), None);
        assert_eq!(both.seal(TokenPurpose::Task, "alice", b"x"), new.seal(TokenPurpose::Task, "alice", b"x"));
    }

    #[test]
    fn keys_that_share_a_short_id_do_not_spoil_each_others_tokens() {
        let mut seen = std::collections::HashMap::new();
        let (one, other) = (0_u32..)
            .map(|number| number.to_be_bytes())
            .find_map(|secret| {
                seen.insert(SealKey::derive(&secret).unwrap().id, secret).map(|earlier| (earlier, secret))
            })
            .unwrap();
        let token = Sealer::new([one.as_slice()]).unwrap().seal(TokenPurpose::Task, "alice", b"x");
        for secrets in [[one, other], [other, one]] {
            let both = Sealer::new(secrets.iter().map(<[u8; 4]>::as_slice)).unwrap();
            assert_eq!(both.open(TokenPurpose::Task, "alice", &token).as_deref(), Some(b"x".as_slice()));
        }
    }

    #[test]
    fn no_secret_and_an_empty_secret_are_refused() {
        assert_eq!(Sealer::new([]).unwrap_err(), NoKey);
        assert_eq!(Sealer::new([b"good".as_slice(), b""]).unwrap_err(), NoKey);
    }

    #[test]
    fn debug_shows_no_key() {
        assert_eq!(format!("{:?}", sealer(&["secret", "old"])), "Sealer { keys: 2, .. }");
    }

    #[test]
    fn a_token_over_the_limit_is_foreign() {
        let sealer = sealer(&["secret"]);
        let token = sealer.seal(TokenPurpose::RequestState, "alice", &vec![0; MAX_TOKEN]);
        assert_eq!(sealer.open(TokenPurpose::RequestState, "alice", &token), None);
    }

    proptest! {
        #[test]
        fn any_payload_and_caller_come_back(payload: Vec<u8>, caller: String, nonce: [u8; 16]) {
            let sealer = sealer(&["secret"]);
            for token in [
                sealer.seal(TokenPurpose::Task, &caller, &payload),
                sealer.seal_once(TokenPurpose::Task, &caller, &payload, nonce),
            ] {
                prop_assert!(token.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_'));
                prop_assert_eq!(sealer.open(TokenPurpose::Task, &caller, &token), Some(payload.clone()));
            }
        }

        #[test]
        fn no_string_panics_or_opens(token in "[A-Za-z0-9_-]{0,80}|\\PC{0,40}") {
            prop_assert_eq!(sealer(&["secret"]).open(TokenPurpose::Task, "alice", &token), None);
        }
    }
}
