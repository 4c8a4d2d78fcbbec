//! No handle can be made up; and a token that another release sealed under the same key is refused
//! or read back as it was.

#![cfg_attr(feature = "libfuzzer", no_main)]

use std::fmt::Debug;
use std::sync::LazyLock;

use mcp_a2a_gateway::seal::{
    ContextRef, ElicitationTicket, LocalRef, MAX_TOKEN, PageCursor, PushTicket, RequestState, Sealer,
    SessionTicket, TaskKey, TaskRef, TokenPurpose,
};

fuzz::program!(handles);

static SEALER: LazyLock<Sealer> = LazyLock::new(|| Sealer::new([b"fuzz".as_slice()]).expect("a key"));
const CALLER: &str = "me";
/// The caller that addresses of pushes are sealed for.
const ADDRESS: &str = "push";

/// The first byte says what kind of handle the rest is put into.
fn handles(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        made_up(text);
    }
    let Some((kind, payload)) = bytes.split_first() else { return };
    let seal = |purpose| SEALER.seal(purpose, CALLER, payload);
    match kind % 8 {
        0 => read(&seal(TokenPurpose::Task), TaskRef::open, |it, by| it.seal(by, CALLER).into_string()),
        1 => read(&seal(TokenPurpose::Context), ContextRef::open, |it, by| it.seal(by, CALLER).into_string()),
        2 => read(&seal(TokenPurpose::Local), LocalRef::open, |it, by| it.seal(by, CALLER).into_string()),
        3 => read(&seal(TokenPurpose::Session), SessionTicket::open, |it, by| it.seal(by, CALLER)),
        4 => read(&seal(TokenPurpose::Cursor), PageCursor::open, |it, by| it.seal(by, CALLER)),
        5 => read(&seal(TokenPurpose::Elicitation), ElicitationTicket::open, |it, by| it.seal(by, CALLER)),
        6 => {
            read(&seal(TokenPurpose::RequestState), RequestState::open, |it, by| it.seal(by, CALLER, [7; 16]))
        }
        _ => {
            let token = SEALER.seal(TokenPurpose::Push, ADDRESS, payload);
            if let Some(ticket) = PushTicket::open(&SEALER, &token) {
                assert_eq!(ticket.seal(&SEALER), token);
            }
        }
    }
    let task = TaskKey::open(&SEALER, CALLER, &seal(TokenPurpose::Task));
    if let Some((agent, named)) = task {
        let again = named.seal(&SEALER, CALLER, &agent);
        assert_eq!(TaskKey::open(&SEALER, CALLER, again.as_str()), Some((agent, named)));
    }
}

/// A handle that is sealed again has the same meaning, and none for another caller.
fn read<T: PartialEq + Debug>(
    token: &str,
    open: impl Fn(&Sealer, &str, &str) -> Option<T>,
    seal: impl Fn(&T, &Sealer) -> String,
) {
    assert_eq!(open(&SEALER, "somebody else", token), None);
    if let Some(meant) = open(&SEALER, CALLER, token) {
        let again = seal(&meant, &SEALER);
        assert!(
            again.len() > MAX_TOKEN || open(&SEALER, CALLER, &again).as_ref() == Some(&meant),
            "{meant:?}"
        );
    }
}

/// A string that was never sealed has no meaning.
fn made_up(text: &str) {
    assert_eq!(TaskKey::open(&SEALER, CALLER, text), None);
    assert_eq!(ContextRef::open(&SEALER, CALLER, text), None);
    assert_eq!(SessionTicket::open(&SEALER, CALLER, text), None);
    assert_eq!(PageCursor::open(&SEALER, CALLER, text), None);
    assert_eq!(ElicitationTicket::open(&SEALER, CALLER, text), None);
    assert_eq!(RequestState::open(&SEALER, CALLER, text), None);
    assert_eq!(PushTicket::open(&SEALER, text), None);
}
