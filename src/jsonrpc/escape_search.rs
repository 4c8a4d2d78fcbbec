//! Finds the bytes that JSON escapes in a string: quotation marks, backslashes and control characters (RFC 8259 §7).
//!
//! Sixteen bytes are examined at once, which each x86-64 and each arm64 processor does with a few instructions.

use wide::u8x16;

use super::shared_body::plain_run;

/// Bytes that are examined at once.
pub(super) const CHUNK_BYTES: usize = 16;

/// Chunks at the start of a string, or after an escape, that are examined one by one: most lines of a text have fewer.
const SHORT_CHUNKS: usize = 8;

/// Chunks of a long string that are examined without an early end within them.
const BLOCK_CHUNKS: usize = 4;

/// Returns the number of bytes before the first quotation mark, backslash or control character.
#[inline]
pub(super) fn plain_bytes(text: &[u8]) -> usize {
    let (chunks, _) = text.as_chunks();
    let mut at = 0;
    for chunk in chunks.iter().take(SHORT_CHUNKS) {
        match plain_in_chunk(*chunk) {
            CHUNK_BYTES => at += CHUNK_BYTES,
            count => return at + count,
        }
    }
    at + plain_bytes_of_long(text.get(at..).unwrap_or_default())
}

/// As [`plain_bytes`], for the rest of a long string, or of the text.
#[inline(never)]
fn plain_bytes_of_long(text: &[u8]) -> usize {
    plain_run(text, || plain_bytes_by_blocks(text))
}

fn plain_bytes_by_blocks(text: &[u8]) -> usize {
    let (chunks, rest) = text.as_chunks();
    let blocks = chunks.chunks_exact(BLOCK_CHUNKS);
    let plain_chunks = blocks.take_while(|block| !has_special(block)).count() * BLOCK_CHUNKS;
    let chunks = chunks.get(plain_chunks..).unwrap_or_default();
    let before = plain_chunks * CHUNK_BYTES;
    match chunks
        .iter()
        .map(|chunk| plain_in_chunk(*chunk))
        .enumerate()
        .find(|(_, count)| *count < CHUNK_BYTES)
    {
        Some((place, count)) => before + place * CHUNK_BYTES + count,
        None => {
            let plain = |byte: &&u8| **byte >= b' ' && **byte != b'"' && **byte != b'\\';
            before + chunks.len() * CHUNK_BYTES + rest.iter().take_while(plain).count()
        }
    }
}

/// Returns the number of plain bytes at the start of a chunk.
#[inline]
pub(super) fn plain_in_chunk(chunk: [u8; CHUNK_BYTES]) -> usize {
    // A bit for each byte, that of the first one the lowest; and one behind them, so that there is always one.
    (special_bytes(chunk).to_bitmask() | 1 << CHUNK_BYTES).trailing_zeros() as usize
}

/// Returns true if a string has a character that has to be escaped in JSON.
pub(super) fn has_escapes(text: &[u8]) -> bool {
    let (chunks, _) = text.as_chunks();
    // The last bytes overlap those before; a shorter text is filled up.
    let last = text.last_chunk().map_or_else(|| filled_up(text), |last| *last);
    chunks.chunks(BLOCK_CHUNKS).any(has_special) || has_special(&[last])
}

/// Returns a chunk with all bytes of a text that is shorter than one; the rest is filled up with some of them again, or with `0`.
fn filled_up(text: &[u8]) -> [u8; CHUNK_BYTES] {
    let (first, last) = match (text.first_chunk(), text.last_chunk()) {
        (Some(first), Some(last)) => (u64::from_le_bytes(*first), u64::from_le_bytes(*last)),
        _ => {
            let zeros = u64::from_le_bytes([b'0'; 8]);
            (text.iter().fold(zeros, |chunk, byte| chunk << 8 | u64::from(*byte)), zeros)
        }
    };
    (u128::from(first) | u128::from(last) << 64).to_le_bytes()
}

/// Returns true if one byte of several chunks is not plain. All are examined.
#[inline]
fn has_special(chunks: &[[u8; CHUNK_BYTES]]) -> bool {
    let all = chunks.iter().fold(u8x16::ZERO, |all, chunk| all | special_bytes(*chunk));
    all.to_bitmask() != 0
}

/// Returns a byte with all bits set for each quotation mark, backslash and control character, and zero for each other byte.
#[inline]
fn special_bytes(chunk: [u8; CHUNK_BYTES]) -> u8x16 {
    let bytes = u8x16::new(chunk);
    let equal = |byte| bytes.simd_eq(u8x16::splat(byte));
    let is_control = bytes.min(u8x16::splat(b' ' - 1)).simd_eq(bytes);
    equal(b'"') | equal(b'\\') | is_control
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_at_each_place_is_found() {
        for length in 0..=200 {
            for filler in [b' ', b'a', b'\x7f', 0x80, 0xff] {
                let mut text = vec![filler; length];
                assert_eq!((plain_bytes(&text), has_escapes(&text)), (length, false), "{length} of {filler}");
                for at in 0..length {
                    for special in [0, b'\n', 0x1f, b'"', b'\\'] {
                        text[at] = special;
                        assert_eq!(
                            (plain_bytes(&text), has_escapes(&text)),
                            (at, true),
                            "{special} at {at} of {length}"
                        );
                    }
                    text[at] = filler;
                }
            }
        }
    }
}
