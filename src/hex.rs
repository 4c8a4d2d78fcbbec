//! Bytes as hexadecimal digits, which ids and digests are shown as.

use std::fmt;

/// Returns the hexadecimal digits of four bytes: one number in place of eight digits.
fn hex_digits(bytes: [u8; 4]) -> [u8; 8] {
    let spread = u64::from(u32::from_be_bytes(bytes));
    // Half of the digits to each half of the number, and so on, until each has a byte.
    let spread = (spread | spread << 16) & 0x0000_ffff_0000_ffff;
    let spread = (spread | spread << 8) & 0x00ff_00ff_00ff_00ff;
    let nibbles = (spread | spread << 4) & 0x0f0f_0f0f_0f0f_0f0f;
    // One in each byte of 10 or more.
    let letters = (nibbles + 0x0606_0606_0606_0606) >> 4 & 0x0101_0101_0101_0101;
    (nibbles + 0x3030_3030_3030_3030 + letters * u64::from(b'a' - b'0' - 10)).to_be_bytes()
}

/// Bytes as `M` lower-case hexadecimal digits. Requests have several, for which the general encoder of
/// `data-encoding` takes four times as long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HexText<const M: usize>(pub(crate) [u8; M]);

impl<const M: usize> HexText<M> {
    /// Returns the digits of bytes, of which there are half as many.
    #[inline]
    pub(crate) fn new<const N: usize>(bytes: [u8; N]) -> Self {
        let mut digits = [b'0'; M];
        let (fours, rest) = bytes.as_chunks();
        let (places, rest_places) = digits.as_chunks_mut();
        for (at, place) in places.iter_mut().enumerate() {
            *place = hex_digits(fours.get(at).copied().unwrap_or_default());
        }
        // Fewer than four bytes. The loop is left out where there are none.
        if !N.is_multiple_of(4) {
            for (byte, place) in rest.iter().zip(rest_places.as_chunks_mut().0) {
                let [.., high, low] = hex_digits([0, 0, 0, *byte]);
                *place = [high, low];
            }
        }
        Self(digits)
    }

    /// Returns the digits.
    pub(crate) fn as_str(&self) -> &str {
        str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl<const M: usize> fmt::Display for HexText<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_of_bytes_are_lower_case() {
        for byte in 0..=255_u8 {
            let (all, rest) = ([byte, !byte, 7, byte, !byte], format!("{byte:02x}{:02x}", !byte));
            assert_eq!(HexText::<10>::new(all).as_str(), format!("{rest}07{rest}"));
        }
    }
}
