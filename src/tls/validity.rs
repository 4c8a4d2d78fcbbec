//! From when to when an X.509 certificate is valid: the few bytes of DER that say so.
//!
//! Pure. Reads RFC 5280 §4.1.2.5. Not here: whether the certificate is any good otherwise (rustls decides that).

/// The time in which a certificate may be used, in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Validity {
    pub(super) not_before: i64,
    pub(super) not_after: i64,
}

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// Reads the validity; `None` if these are not the bytes of a certificate.
pub(super) fn validity(certificate: &[u8]) -> Option<Validity> {
    let (certificate, _) = expect(SEQUENCE, certificate)?;
    let (fields, _) = expect(SEQUENCE, certificate)?;
    let (tag, _, after_first) = element(fields)?;
    // The version is left out in version 1.
    let after_serial = if tag == VERSION { element(after_first)?.2 } else { after_first };
    let (_, _, after_algorithm) = element(after_serial)?;
    let (_, _, after_issuer) = element(after_algorithm)?;
    let (period, _) = expect(SEQUENCE, after_issuer)?;
    let (tag, not_before, rest) = element(period)?;
    let not_before = time(tag, not_before)?;
    let (tag, not_after, _) = element(rest)?;
    Some(Validity { not_before, not_after: time(tag, not_after)? })
}

fn expect(wanted: u8, bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (tag, content, rest) = element(bytes)?;
    (tag == wanted).then_some((content, rest))
}

/// Splits off one element: its tag, its content, and what follows.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, bytes) = bytes.split_first()?;
    let (&first, bytes) = bytes.split_first()?;
    let (length, bytes) = match first {
        0..=0x7f => (usize::from(first), bytes),
        0x81..=0x84 => {
            let (digits, bytes) = bytes.split_at_checked(usize::from(first - 0x80))?;
            (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), bytes)
        }
        _ => return None,
    };
    let (content, rest) = bytes.split_at_checked(length)?;
    Some((tag, content, rest))
}

fn time(tag: u8, text: &[u8]) -> Option<i64> {
    let (year, rest) = match tag {
        UTC_TIME => {
            let (year, rest) = number(text, 2)?;
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        GENERALIZED_TIME => number(text, 4)?,
        _ => return None,
    };
    let (month, rest) = number(rest, 2)?;
    let (day, rest) = number(rest, 2)?;
    let (hour, rest) = number(rest, 2)?;
    let (minute, rest) = number(rest, 2)?;
    let (second, rest) = number(rest, 2)?;
    let sane =
        (1..=12).contains(&month) && (1..=31).contains(&day) && hour < 24 && minute < 60 && second <= 60;
    (sane && rest == b"Z").then(|| days(year, month, day) * 86400 + hour * 3600 + minute * 60 + second)
}

fn number(text: &[u8], digits: usize) -> Option<(i64, &[u8])> {
    let (number, rest) = text.split_at_checked(digits)?;
    if !number.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some((number.iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0')), rest))
}

/// Days since 1970 of a date in the Gregorian calendar, by counting in years that begin in March.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    fn certificate(from: (i32, u8, u8), to: (i32, u8, u8)) -> Vec<u8> {
        let mut params = CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
        params.not_before = date_time_ymd(from.0, from.1, from.2);
        params.not_after = date_time_ymd(to.0, to.1, to.2);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn both_forms_of_time_are_read() {
        // UTCTime up to 2049, GeneralizedTime after.
        let read = validity(&certificate((1970, 1, 1), (2024, 2, 29))).unwrap();
        assert_eq!(read, Validity { not_before: 0, not_after: 1_709_164_800 });
        let read = validity(&certificate((2000, 3, 1), (2100, 3, 1))).unwrap();
        assert_eq!(read, Validity { not_before: 951_868_800, not_after: 4_107_542_400 });
    }

    #[test]
    fn odd_times_are_refused() {
        for (tag, text) in [
            (UTC_TIME, "240230120000"),
            (UTC_TIME, "241330120000Z"),
            (UTC_TIME, "2401301200Z"),
            (UTC_TIME, "24013012000xZ"),
            (GENERALIZED_TIME, "20240130120000+0100"),
            (0x16, "240130120000Z"),
        ] {
            assert_eq!(time(tag, text.as_bytes()), None, "{text}");
        }
        assert_eq!(time(UTC_TIME, b"691231235959Z"), Some(-1));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _read = validity(&bytes);
        }

        #[test]
        fn a_cut_certificate_does_not_panic(cut in 0usize..400) {
            static WHOLE: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
            let whole = WHOLE.get_or_init(|| certificate((2020, 1, 1), (2030, 1, 1)));
            let read = validity(&whole[..cut.min(whole.len() - 1)]);
            prop_assert_eq!(read, None);
        }
    }
}
