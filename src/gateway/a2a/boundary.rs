//! Where a stream of events can be cut: what has come of it is passed on up to the end of its last whole event.
//!
//! So whatever the gateway adds (a sign of life, a last error) stands between two events, and no byte of the agent's is changed. Not
//! here: what is in an event.

use bytes::{Bytes, BytesMut};
use memchr::memmem::rfind;

/// An event is longer than the limit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

/// Holds back what is not whole yet.
#[derive(Debug)]
pub(super) struct Boundary {
    held: BytesMut,
    longest: usize,
}

impl Boundary {
    /// For events of at most so many bytes.
    pub(super) fn new(longest: usize) -> Self {
        Self { held: BytesMut::new(), longest }
    }

    /// Takes what came, and gives all whole events of it; nothing, if there is none.
    ///
    /// # Errors
    ///
    /// [`TooLong`], once an unfinished event is.
    pub(super) fn push(&mut self, piece: Bytes) -> Result<Bytes, TooLong> {
        // Nearly always an agent writes whole events.
        if self.held.is_empty() && ends_event(&piece) {
            return Ok(piece);
        }
        self.held.extend_from_slice(&piece);
        let end = end_of_last(&self.held);
        let whole = self.held.split_to(end).freeze();
        if self.held.len() > self.longest { Err(TooLong) } else { Ok(whole) }
    }

    /// What has come of an event that never became whole.
    pub(super) fn rest(self) -> Bytes {
        self.held.freeze()
    }
}

/// The blank lines that end an event, in each way of writing the ends of lines.
const BLANK: [&[u8]; 3] = [b"\n\n", b"\r\n\r\n", b"\r\r"];

fn ends_event(bytes: &[u8]) -> bool {
    BLANK.iter().any(|blank| bytes.ends_with(blank))
}

fn end_of_last(bytes: &[u8]) -> usize {
    BLANK.iter().filter_map(|blank| rfind(bytes, blank).map(|at| at + blank.len())).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_whole_events_pass() {
        let mut boundary = Boundary::new(64);
        let mut pushed = |text: &'static str| boundary.push(Bytes::from_static(text.as_bytes())).unwrap();
        assert_eq!(pushed("data: 1\n\n"), "data: 1\n\n");
        assert_eq!(pushed("data: 2\r\n"), "");
        assert_eq!(pushed("\r\n: ping\r\n\r\ndata"), "data: 2\r\n\r\n: ping\r\n\r\n");
        assert_eq!(pushed(": 3\n"), "");
        assert_eq!(pushed("\n"), "data: 3\n\n");
        assert!(boundary.rest().is_empty());
    }

    #[test]
    fn an_unfinished_event_has_a_limit() {
        let mut boundary = Boundary::new(8);
        assert!(boundary.push(Bytes::from_static(b"data: 12")).is_ok());
        assert_eq!(boundary.push(Bytes::from_static(b"3")), Err(TooLong));
    }

    proptest! {
        #[test]
        fn no_byte_is_lost_or_changed(text in "(data: [a-z]{0,9}|:|\n|\r\n|\r){0,40}", cuts in prop::collection::vec(0usize..9, 0..60)) {
            let mut boundary = Boundary::new(1024);
            let (mut rest, mut passed) = (Bytes::from(text.clone()), Vec::new());
            for cut in cuts {
                let piece = rest.split_to(cut.min(rest.len()));
                let whole = boundary.push(piece).unwrap();
                prop_assert!(whole.is_empty() || ends_event(&whole), "{whole:?}");
                passed.extend_from_slice(&whole);
            }
            passed.extend_from_slice(&boundary.push(rest).unwrap());
            passed.extend_from_slice(&boundary.rest());
            prop_assert_eq!(passed, text.into_bytes());
        }
    }
}
