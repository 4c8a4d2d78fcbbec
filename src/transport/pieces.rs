//! A bound on the number of chunks that a body comes in: each costs CPU, however few bytes it has.

/// The number of chunks that any body may have.
const FREE_PIECES: usize = 16 * 1024;
/// Bytes that permit one chunk more.
const BYTES_PER_PIECE: usize = 64;

/// The chunks of one body so far.
#[derive(Debug, Clone, Copy, Default)]
pub struct BodyPieces {
    count: usize,
    bytes: usize,
}

impl BodyPieces {
    /// Counts a chunk of this many bytes. Returns false once there are too many.
    #[must_use]
    pub fn add(&mut self, bytes: usize) -> bool {
        self.count = self.count.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes);
        self.count <= FREE_PIECES.saturating_add(self.bytes / BYTES_PER_PIECE)
    }

    /// Returns the bytes of all chunks.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_pieces_are_bounded_and_others_are_not() {
        for (bytes, fits) in [(0, false), (1, false), (BYTES_PER_PIECE, true), (4096, true)] {
            let mut pieces = BodyPieces::default();
            assert_eq!((0..1_000_000).all(|_| pieces.add(bytes)), fits, "{bytes}");
        }
        let mut few = BodyPieces::default();
        assert!((0..FREE_PIECES).all(|_| few.add(1)));
    }
}
