//! SPIFFE ids, by the specification SPIFFE-ID §2.

/// Most bytes of an id (§2.3).
const MAX_ID_BYTES: usize = 2048;
/// Most bytes of its trust domain: those of a host in a URI (RFC 3986 §3.2.2).
const MAX_TRUST_DOMAIN_BYTES: usize = 255;
const SCHEME: &str = "spiffe://";

/// Reason for which a URI is not the SPIFFE id of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SpiffeIdError {
    /// It does not begin with `spiffe://`.
    #[error("it does not begin with {SCHEME} in lower case")]
    Scheme,
    /// It is too long.
    #[error("it is longer than {MAX_ID_BYTES} bytes")]
    TooLong,
    /// The trust domain is empty, too long, or has other characters.
    #[error("its trust domain is not 1 to {MAX_TRUST_DOMAIN_BYTES} of a-z, 0-9, dot, dash and underscore")]
    TrustDomain,
    /// It names a trust domain and nothing in it.
    #[error("it has no path, and names a trust domain instead of a workload")]
    NoPath,
    /// A segment of the path is empty, `.` or `..`.
    #[error("its path has an empty segment, a slash at its end, or a segment . or ..")]
    Segment,
    /// The path has other characters.
    #[error("its path has other characters than letters of ASCII, digits, dot, dash and underscore")]
    PathCharacter,
}

/// Returns true if a URI has the scheme of SPIFFE ids, in any case.
pub(crate) fn is_spiffe_uri(uri: &str) -> bool {
    uri.split_once(':').is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case("spiffe"))
}

/// Checks that a URI is the SPIFFE id of a workload.
pub(crate) fn check_spiffe_id(uri: &str) -> Result<(), SpiffeIdError> {
    let rest = uri.strip_prefix(SCHEME).ok_or(SpiffeIdError::Scheme)?;
    if uri.len() > MAX_ID_BYTES {
        return Err(SpiffeIdError::TooLong);
    }
    let (trust_domain, path) = match rest.split_once('/') {
        Some((trust_domain, path)) => (trust_domain, Some(path)),
        None => (rest, None),
    };
    let in_both = |byte: u8| byte.is_ascii_digit() || b".-_".contains(&byte);
    let in_trust_domain = |byte: u8| byte.is_ascii_lowercase() || in_both(byte);
    let has_length = (1..=MAX_TRUST_DOMAIN_BYTES).contains(&trust_domain.len());
    if !has_length || !trust_domain.bytes().all(in_trust_domain) {
        return Err(SpiffeIdError::TrustDomain);
    }
    for segment in path.ok_or(SpiffeIdError::NoPath)?.split('/') {
        if matches!(segment, "" | "." | "..") {
            return Err(SpiffeIdError::Segment);
        }
        if !segment.bytes().all(|byte| byte.is_ascii_alphabetic() || in_both(byte)) {
            return Err(SpiffeIdError::PathCharacter);
        }
    }
    Ok(())
}

/// Checks that a pattern that begins like a SPIFFE id matches some. `*` stands for any text.
pub(super) fn check_spiffe_pattern(pattern: &str) -> Result<(), SpiffeIdError> {
    let begins_like_one = pattern.get(..SCHEME.len()).is_some_and(|head| head.eq_ignore_ascii_case(SCHEME));
    // Any text may be the end of a trust domain and the beginning of a path.
    if begins_like_one { check_spiffe_id(&pattern.replace('*', "x/x")) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spiffe_id_is_checked_by_its_specification() {
        use SpiffeIdError::{NoPath, PathCharacter, Scheme, Segment, TooLong, TrustDomain};
        let long = |length: usize| format!("spiffe://corp/{}", "a".repeat(length - "spiffe://corp/".len()));
        let domain = |length: usize| format!("spiffe://{}/a", "a".repeat(length));
        for (uri, expected) in [
            ("spiffe://corp/a", Ok(())),
            ("spiffe://a.b-c_d.0/ns/A/sa/b.c-d_e", Ok(())),
            ("spiffe://10.0.0.1/a", Ok(())),
            ("spiffe://corp/...", Ok(())),
            (&long(2048), Ok(())),
            (&long(2049), Err(TooLong)),
            (&domain(255), Ok(())),
            (&domain(256), Err(TrustDomain)),
            ("SPIFFE://corp/a", Err(Scheme)),
            ("spiffe:/corp/a", Err(Scheme)),
            ("https://corp/a", Err(Scheme)),
            ("spiffe:///a", Err(TrustDomain)),
            ("spiffe://Corp/a", Err(TrustDomain)),
            ("spiffe://corp:1/a", Err(TrustDomain)),
            ("spiffe://me@corp/a", Err(TrustDomain)),
            ("spiffe://[::1]/a", Err(TrustDomain)),
            ("spiffe://corp%2e/a", Err(TrustDomain)),
            ("spiffe://corp?a", Err(TrustDomain)),
            ("spiffe://corp", Err(NoPath)),
            ("spiffe://corp/", Err(Segment)),
            ("spiffe://corp/a/", Err(Segment)),
            ("spiffe://corp//a", Err(Segment)),
            ("spiffe://corp/./a", Err(Segment)),
            ("spiffe://corp/a/../b", Err(Segment)),
            ("spiffe://corp/a%2fb", Err(PathCharacter)),
            ("spiffe://corp/a?b", Err(PathCharacter)),
            ("spiffe://corp/a#b", Err(PathCharacter)),
            ("spiffe://corp/a b", Err(PathCharacter)),
            ("spiffe://corp/é", Err(PathCharacter)),
        ] {
            assert_eq!(check_spiffe_id(uri), expected, "{uri}");
        }
        assert!(is_spiffe_uri("Spiffe:x") && !is_spiffe_uri("https://spiffe:1/") && !is_spiffe_uri("spiffe"));
    }

    #[test]
    fn spiffe_pattern_must_fit_some_id() {
        for pattern in
            ["spiffe://*", "spiffe://corp/*", "spiffe://*/a", "spiffe://corp/a*/b", "spiffe:*", "*"]
        {
            assert_eq!(check_spiffe_pattern(pattern), Ok(()), "{pattern}");
        }
        for pattern in ["spiffe://Corp/*", "spiffe://corp/*/", "spiffe://corp/../*", "SPIFFE://corp/*"] {
            assert!(check_spiffe_pattern(pattern).is_err(), "{pattern}");
        }
    }
}
