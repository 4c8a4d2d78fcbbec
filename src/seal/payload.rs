//! The compact binary format inside a token: a version byte, then fields; a text is preceded by its
//! length (2 bytes).
//!
//! Reading never panics: a token may have been sealed by another release under the same key.

/// Size that most payloads fit into, in bytes.
const INITIAL_CAPACITY: usize = 96;

/// Encoder of fields, in order.
pub(super) struct PayloadWriter(Vec<u8>);

impl PayloadWriter {
    pub(super) fn new(version: u8) -> Self {
        let mut bytes = Vec::with_capacity(INITIAL_CAPACITY);
        bytes.push(version);
        Self(bytes)
    }

    pub(super) fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// Appends a text that other fields follow. Cut to 65535 bytes: configured names are far
    /// shorter.
    pub(super) fn text(self, text: &str) -> Self {
        let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
        let kept = text.as_bytes().get(..usize::from(length)).unwrap_or_default();
        self.bytes(&length.to_be_bytes()).bytes(kept)
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.0
    }
}

/// Decoder of the same fields in the same order; each is `None` once the bytes do not contain it.
pub(super) struct PayloadReader<'a>(&'a [u8]);

impl<'a> PayloadReader<'a> {
    /// Begins to read; `None` unless the payload begins with `version`.
    pub(super) fn new(payload: &'a [u8], version: u8) -> Option<Self> {
        payload.split_first().filter(|(first, _)| **first == version).map(|(_, rest)| Self(rest))
    }

    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    pub(super) fn text(&mut self) -> Option<String> {
        let length = usize::from(u16::from_be_bytes(self.array()?));
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        String::from_utf8(taken.to_vec()).ok()
    }

    /// Returns the rest as text.
    pub(super) fn rest(self) -> Option<String> {
        String::from_utf8(self.0.to_vec()).ok()
    }

    /// Returns `Some` if all bytes are read.
    pub(super) fn end(self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}
