//! Finds the bytes that JSON escapes in a string: quotation marks, backslashes and control characters (RFC 8259 §7).

use super::shared_body::plain_run;

/// Chunks of eight bytes at the start of a string, or after an escape, that are examined one by one: most lines of a text
/// have fewer bytes.
const SHORT_CHUNKS: usize = 16;

/// Bytes of a long string that are examined at once.
const BLOCK_BYTES: usize = 64;

/// Returns the number of bytes before the first quotation mark, backslash or control character.
#[inline]
pub(super) fn plain_bytes(text: &[u8]) -> usize {
    let (chunks, _) = text.as_chunks();
    let mut at = 0;
    for chunk in chunks.iter().take(SHORT_CHUNKS) {
        match plain_in_chunk(*chunk) {
            8 => at += 8,
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
    let (blocks, _) = text.as_chunks();
    let at = blocks.iter().take_while(|block| is_plain(block)).count() * BLOCK_BYTES;
    let (chunks, rest) = text.get(at..).unwrap_or_default().as_chunks();
    match chunks.iter().map(|chunk| plain_in_chunk(*chunk)).enumerate().find(|(_, count)| *count < 8) {
        Some((place, count)) => at + place * 8 + count,
        None => {
            let plain = |byte: &&u8| **byte >= b' ' && **byte != b'"' && **byte != b'\\';
            at + chunks.len() * 8 + rest.iter().take_while(plain).count()
        }
    }
}

/// Returns true if all bytes of a block are plain, without an early end, so that vector instructions examine it.
fn is_plain(block: &[u8; BLOCK_BYTES]) -> bool {
    let special = |byte: &u8| u8::from(*byte < b' ') | u8::from(*byte == b'"') | u8::from(*byte == b'\\');
    block.iter().fold(0, |all, byte| all | special(byte)) == 0
}

/// Returns the number of plain bytes at the start of eight bytes.
#[inline]
pub(super) fn plain_in_chunk(chunk: [u8; 8]) -> usize {
    // The first byte is the lowest; where none is found the count is 64 / 8.
    escapes(u64::from_le_bytes(chunk)).trailing_zeros() as usize / 8
}

/// Returns true if a string has a character that has to be escaped in JSON (RFC 8259 §7).
pub(super) fn has_escapes(text: &[u8]) -> bool {
    let (chunks, rest) = text.as_chunks();
    // The last eight bytes overlap those before; a shorter text is filled up with zeros as text.
    let last = match text.last_chunk() {
        Some(last) => u64::from_le_bytes(*last),
        None => rest.iter().fold(u64::from_le_bytes([b'0'; 8]), |chunk, byte| chunk << 8 | u64::from(*byte)),
    };
    // Up to 64 bytes at once, without an early end within them.
    chunks
        .chunks(8)
        .any(|eight| eight.iter().fold(0, |all, chunk| all | escapes(u64::from_le_bytes(*chunk))) != 0)
        || escapes(last) != 0
}

/// Returns a number that is not zero if one of eight bytes has to be escaped: a control character, a quotation mark or a
/// backslash.
#[inline]
fn escapes(chunk: u64) -> u64 {
    const EACH: u64 = u64::from_le_bytes([1; 8]);
    // The highest bit of each byte that is below a limit. Above the lowest such byte it may be set for others too.
    let below = |chunk: u64, limit: u8| chunk.wrapping_sub(EACH * u64::from(limit)) & !chunk;
    let equal = |byte: u8| below(chunk ^ (EACH * u64::from(byte)), 1);
    (below(chunk, b' ') | equal(b'"') | equal(b'\\')) & (EACH << 7)
}
