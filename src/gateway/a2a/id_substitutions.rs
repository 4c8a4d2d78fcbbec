//! Redaction of agent ids in the texts of an agent's errors: each id is replaced by the handle that
//! the client knows.
//!
//! The ids that the exchange has named so far, in the request and in the response, are replaced in
//! every string of the error, including member names. Other text that looks like an id (a UUID)
//! becomes "(an id)". See also `a2a::translate` for the ids in their own members.

use crate::jsonrpc::Text;

/// Most ids of one exchange that are replaced; an error of an exchange with more is not forwarded.
const MAX_SUBSTITUTIONS: usize = 256;

/// Longest error that is searched, in bytes.
const MAX_ERROR_BYTES: usize = 64 * 1024;

/// Ids from this length on are replaced at any position; a shorter one could be part of a word, and
/// is replaced only as a whole word.
const TELLING: usize = 8;

/// Replacement for an id without a handle.
const SOME_ID: &str = "(an id)";

/// Ids that an exchange has named.
#[derive(Debug, Default)]
pub(super) struct IdSubstitutions {
    /// The agent's id, and the client's name for it.
    known: Vec<(String, String)>,
    is_full: bool,
}

impl IdSubstitutions {
    /// Records an id of the agent, and the client's name for it.
    pub(super) fn note(&mut self, id: &str, handle: &str) {
        if self.known.iter().any(|(known, _)| known == id) {
            return;
        }
        if self.known.len() < MAX_SUBSTITUTIONS {
            self.known.push((id.to_owned(), handle.to_owned()));
        } else {
            self.is_full = true;
        }
    }

    /// Returns an error with all ids replaced; `None` if the ids in it cannot be determined.
    pub(super) fn redact(&self, error: &str) -> Option<String> {
        if self.is_full || error.len() > MAX_ERROR_BYTES {
            return None;
        }
        let mut out = String::with_capacity(error.len());
        let mut rest = error;
        while let Some(at) = rest.find('"') {
            let (before, from) = rest.split_at(at);
            let (string, after) = from.split_at_checked(length_of(from)?)?;
            let Text(text) = serde_json::from_str::<Text<'_>>(string).ok()?;
            out.push_str(before);
            match self.replaced(&text) {
                None => out.push_str(string),
                Some(new) => out.push_str(&serde_json::to_string(&new).ok()?),
            }
            rest = after;
        }
        out.push_str(rest);
        Some(out)
    }

    /// Returns a text with the ids replaced; `None` if it stays the same.
    fn replaced(&self, text: &str) -> Option<String> {
        let mut out = String::with_capacity(text.len());
        let (mut rest, mut before, mut is_same) = (text, None, true);
        while let Some(next) = rest.chars().next() {
            let found = self.at(rest, before);
            let length = found.map_or(next.len_utf8(), |(length, _)| length);
            let (piece, after) = rest.split_at_checked(length)?;
            out.push_str(found.map_or(piece, |(_, name)| name));
            is_same &= found.is_none();
            (rest, before) = (after, piece.chars().next_back());
        }
        (!is_same).then_some(out)
    }

    /// Returns the length of the id that a text begins with, and its replacement.
    fn at(&self, text: &str, before: Option<char>) -> Option<(usize, &str)> {
        let is_one = |(id, _): &&(String, String)| {
            let Some(after) = text.strip_prefix(id.as_str()) else { return false };
            !id.is_empty()
                && (id.len() >= TELLING || !(is_id_char(before) || is_id_char(after.chars().next())))
        };
        let longest = self.known.iter().filter(is_one).max_by_key(|(id, _)| id.len());
        let known = longest.map(|(id, handle)| (id.len(), handle.as_str()));
        known.or_else(|| uuid_at(text, before).map(|length| (length, SOME_ID)))
    }
}

/// Returns true if a character next to a word is part of that word.
fn is_id_char(beside: Option<char>) -> bool {
    beside.is_some_and(|c| c.is_alphanumeric() || c == '-' || c == '_')
}

/// Returns the length of the UUID that a text begins with, in either of its forms.
fn uuid_at(text: &str, before: Option<char>) -> Option<usize> {
    let is_hex = |byte: &u8| byte.is_ascii_hexdigit();
    let long = text.as_bytes().get(..36).filter(|uuid| {
        uuid.iter().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => is_hex(byte),
        })
    });
    if long.is_some() {
        return Some(36);
    }
    let is_alone =
        !before.is_some_and(|c| c.is_ascii_hexdigit()) && !text.as_bytes().get(32).is_some_and(is_hex);
    let plain = text.as_bytes().get(..32).filter(|uuid| is_alone && uuid.iter().all(is_hex));
    plain.map(|_| 32)
}

/// Returns the length of the JSON string that a text begins with, including quotes.
fn length_of(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return Some(at + 1),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UUID: &str = "011534fb-ab96-4c5d-8e6f-0123456789ab";

    fn names(known: &[(&str, &str)]) -> IdSubstitutions {
        let mut names = IdSubstitutions::default();
        known.iter().for_each(|(id, handle)| names.note(id, handle));
        names
    }

    #[test]
    fn ids_are_replaced_in_every_string_and_nothing_else_changes() {
        let names = names(&[("task-1234", "H1"), ("task-12345", "H2"), ("t", "H3"), ("ü\"id\"", "H4")]);
        for (error, told) in [
            (
                r#"{ "code" : -32001, "message":"Task not found" }"#,
                r#"{ "code" : -32001, "message":"Task not found" }"#,
            ),
            (r#"{"message":"task-1234, task-12345!"}"#, r#"{"message":"H1, H2!"}"#),
            (
                r#"{"data":[{"task-1234":{"x":["xtask-1234x",1.0]}}]}"#,
                r#"{"data":[{"H1":{"x":["xH1x",1.0]}}]}"#,
            ),
            (r#"{"message":"t is not t-1 but 't'"}"#, r#"{"message":"H3 is not t-1 but 'H3'"}"#),
            (r#"{"message":"\u0074ask-\u0031234 \u00fc\"id\""}"#, r#"{"message":"H1 H4"}"#),
        ] {
            assert_eq!(names.redact(error).as_deref(), Some(told), "{error}");
        }
    }

    #[test]
    fn what_looks_like_an_id_is_one() {
        let names = names(&[(UUID, "H")]);
        let other = UUID.replace("0115", "0116");
        for (error, told) in [
            (format!("\"{UUID} and {other}\""), "\"H and (an id)\""),
            (format!("\"x{}\"", other.to_uppercase()), "\"x(an id)\""),
            (format!("\"{}.\"", other.replace('-', "")), "\"(an id).\""),
        ] {
            assert_eq!(names.redact(&error).as_deref(), Some(told), "{error}");
        }
        let digest = format!("\"{}\"", "ab".repeat(32));
        assert_eq!(names.redact(&digest), Some(digest), "a digest is none");
    }

    #[test]
    fn what_cannot_be_looked_through_is_not_told() {
        let long = format!("\"{}\"", "x".repeat(MAX_ERROR_BYTES));
        for error in [r#""\ud800""#, r#""no end"#, &long] {
            assert_eq!(IdSubstitutions::default().redact(error), None, "{error:.20}");
        }
        let mut names = IdSubstitutions::default();
        (0..=MAX_SUBSTITUTIONS).for_each(|at| names.note(&format!("task-{at}"), "H"));
        assert_eq!(names.redact("{}"), None, "too many to know");
    }

    proptest! {
        #[test]
        fn a_known_id_is_never_told(id in "[a-zé-]{8,12}", around in prop::collection::vec("[a-zé \"\\\\-]{0,9}", 2..5)) {
            let error = serde_json::to_string(&[around.join(&id)]).unwrap();
            let told = names(&[(&id, "#")]).redact(&error).unwrap();
            let [text] = serde_json::from_str::<[String; 1]>(&told).unwrap();
            prop_assert!(!text.contains(&id), "{text}");
        }
    }
}
