//! Ids that clients generate: of messages, and in A2A 0.1 of tasks.

/// Returns a version 4 UUID from random bytes.
pub fn uuid(random: [u8; 16]) -> String {
    let bits = (u128::from_be_bytes(random) & !(0xF000_u128 << 64) & !(0xC000_u128 << 48))
        | (0x4000_u128 << 64)
        | (0x8000_u128 << 48);
    let mut out = String::with_capacity(36);
    for (place, byte) in bits.to_be_bytes().into_iter().enumerate() {
        if matches!(place, 4 | 6 | 8 | 10) {
            out.push('-');
        }
        out.push(digit(byte >> 4));
        out.push(digit(byte & 0xF));
    }
    out
}

/// Returns the hexadecimal digit of a number below 16.
fn digit(number: u8) -> char {
    char::from(if number < 10 { b'0' + number } else { b'a' + (number - 10) })
}

#[cfg(test)]
mod tests {
    use super::uuid;

    #[test]
    fn an_id_is_a_version_4_uuid_of_all_its_bytes() {
        for (random, expected) in [
            (std::array::from_fn(|at| at as u8), "00010203-0405-4607-8809-0a0b0c0d0e0f"),
            ([0xFF; 16], "ffffffff-ffff-4fff-bfff-ffffffffffff"),
            ([0; 16], "00000000-0000-4000-8000-000000000000"),
        ] {
            assert_eq!(uuid(random), expected);
        }
    }
}
