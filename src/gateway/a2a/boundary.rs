//! Splitter of an event stream: received bytes are forwarded up to the end of the last complete
//! event.
//!
//! So everything that the gateway adds (a keep-alive comment, a final error) stands between two
//! events, and no byte of the agent changes.

use bytes::{Bytes, BytesMut};
use memchr::memmem::rfind;

use crate::transport::BodyPieces;

/// Reason for which an event is not forwarded.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BoundaryError {
    /// It is longer than the limit.
    TooLong,
    /// It comes in too many small pieces.
    TooManyPieces,
}

/// Buffer for an incomplete event.
#[derive(Debug)]
pub(super) struct EventSplitter {
    held: BytesMut,
    /// Counter for the pieces in the buffer.
    pieces: BodyPieces,
    longest: usize,
}

impl EventSplitter {
    /// Creates a splitter for events of at most `longest` bytes.
    pub(super) fn new(longest: usize) -> Self {
        Self { held: BytesMut::new(), pieces: BodyPieces::default(), longest }
    }

    /// Adds bytes and returns all events that they complete; empty if there is none.
    ///
    /// # Errors
    ///
    /// [`BoundaryError`], once an unfinished event is too long or comes in too many pieces.
    pub(super) fn push(&mut self, piece: Bytes) -> Result<Bytes, BoundaryError> {
        // Agents nearly always write complete events.
        if self.held.is_empty() && ends_event(&piece) {
            return Ok(piece);
        }
        // The buffered bytes have been searched, except for the beginning of a pattern.
        let from = self.held.len().saturating_sub(LONGEST_BLANK - 1);
        self.held.extend_from_slice(&piece);
        let end = end_of_last(self.held.get(from..).unwrap_or_default());
        let whole = self.held.split_to(if end == 0 { 0 } else { from + end }).freeze();
        if !whole.is_empty() {
            self.pieces = BodyPieces::default();
        }
        match self.pieces.add(piece.len()) {
            _ if self.held.len() > self.longest => Err(BoundaryError::TooLong),
            true => Ok(whole),
            false => Err(BoundaryError::TooManyPieces),
        }
    }

    /// Returns the number of buffered bytes.
    pub(super) fn held(&self) -> usize {
        self.held.len()
    }

    /// Returns the bytes of an event that was never completed.
    pub(super) fn take_remainder(self) -> Bytes {
        self.held.freeze()
    }
}

/// Two line ends of any kind end an event: LF, CRLF and CR may be mixed. CR and LF are one line
/// end, so that no pattern is in the middle of one. If a second CRLF is split between two pieces,
/// the event ends with its CR, and the LF comes before the next event.
const BLANK: [&[u8]; 5] = [b"\n\n", b"\n\r", b"\r\r", b"\n\r\n", b"\r\r\n"];
const LONGEST_BLANK: usize = 3;

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
        let mut boundary = EventSplitter::new(64);
        let mut pushed = |text: &'static str| boundary.push(Bytes::from_static(text.as_bytes())).unwrap();
        assert_eq!(pushed("data: 1\n\n"), "data: 1\n\n");
        assert_eq!(pushed("data: 2\r\n"), "");
        assert_eq!(pushed("\r\n: ping\r\n\r\ndata"), "data: 2\r\n\r\n: ping\r\n\r\n");
        assert_eq!(pushed(": 3\n"), "");
        assert_eq!(pushed("\n"), "data: 3\n\n");
        assert!(boundary.take_remainder().is_empty());
    }

    #[test]
    fn an_unfinished_event_has_a_limit() {
        let mut boundary = EventSplitter::new(8);
        assert!(boundary.push(Bytes::from_static(b"data: 12")).is_ok());
        assert_eq!(boundary.push(Bytes::from_static(b"3")), Err(BoundaryError::TooLong));
    }

    /// Each piece is searched once: the bytes before it cost nothing.
    #[test]
    fn an_event_in_crumbs_is_refused_before_it_costs_much() {
        let mut boundary = EventSplitter::new(4 << 20);
        let pushed = (0..1_000_000).map(|_| boundary.push(Bytes::from_static(b"x")));
        assert_eq!(pushed.filter_map(Result::err).next(), Some(BoundaryError::TooManyPieces));
    }

    /// Returns the end of the last complete event, by reading line after line.
    fn last_end(text: &[u8]) -> usize {
        let (mut end, mut at, mut after_end) = (0, 0, false);
        while let Some(byte) = text.get(at) {
            let length = if text[at..].starts_with(b"\r\n") { 2 } else { 1 };
            at += length;
            let is_end = matches!(byte, b'\r' | b'\n');
            if is_end && after_end {
                end = at;
            }
            after_end = is_end;
        }
        end
    }

    #[test]
    fn every_pair_of_line_ends_counts() {
        for first in ["\n", "\r\n", "\r"] {
            for second in ["\n", "\r\n", "\r"].into_iter().filter(|second| (first, *second) != ("\r", "\n")) {
                let (event, half) = (format!("data: 1{first}{second}"), format!("data: 2{first}"));
                let mut boundary = EventSplitter::new(64);
                assert_eq!(boundary.push(Bytes::from(event.clone() + &half)).unwrap(), event, "{event:?}");
                assert_eq!(boundary.push(Bytes::from("data: 3")).unwrap(), "", "one end is none: {half:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_whole_is_never_held_back(text in "(data: [a-z]{0,3}|:|\n|\r\n|\r){0,40}", cuts in prop::collection::vec(0usize..9, 0..60)) {
            let mut boundary = EventSplitter::new(1024);
            let (text, mut came, mut passed) = (text.as_bytes(), 0, 0);
            for cut in cuts {
                let from = came;
                came = text.len().min(came + cut);
                let piece = Bytes::copy_from_slice(&text[from..came]);
                passed += boundary.push(piece).unwrap().len();
                let end = last_end(&text[..came]);
                prop_assert!(passed <= end, "{passed} of {end}");
                // Blank lines after an event, or the LF after a CR that has ended it, carry no
                // data.
                let held = &text[passed..end];
                prop_assert!(held.iter().all(|byte| matches!(byte, b'\r' | b'\n')), "{held:?}");
            }
        }

        #[test]
        fn no_byte_is_lost_or_changed(text in "(data: [a-z]{0,9}|:|\n|\r\n|\r){0,40}", cuts in prop::collection::vec(0usize..9, 0..60)) {
            let mut boundary = EventSplitter::new(1024);
            let (mut rest, mut passed) = (Bytes::from(text.clone()), Vec::new());
            for cut in cuts {
                let piece = rest.split_to(cut.min(rest.len()));
                let whole = boundary.push(piece).unwrap();
                prop_assert!(whole.is_empty() || ends_event(&whole), "{whole:?}");
                passed.extend_from_slice(&whole);
            }
            passed.extend_from_slice(&boundary.push(rest).unwrap());
            passed.extend_from_slice(&boundary.take_remainder());
            prop_assert_eq!(passed, text.into_bytes());
        }
    }
}
