//! Authentication of operators: a token, a client certificate, or the session of a person who signed
//! in to the page with the token.
//!
//! Tokens are known by their SHA-256 only, and compared in constant time. After too many failures
//! the tokens of an address are refused for a while, the right one too: operators may choose short
//! ones. Sessions and certificates are not. A browser sends cookies and certificates by itself, so
//! that every request that changes something must come from a page of this listener.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{AUTHORIZATION, COOKIE, HOST, ORIGIN};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::{AdminError, AdminRequest};
use crate::auth::{ClientTlsInfo, FailureLimiter};
use crate::config::Admin;
use crate::sync::lock;

/// Name of the session cookie.
const COOKIE_NAME: &str = "mcp_a2a_gateway_admin";
/// Most sessions; a new one beyond it ends the oldest.
const MAX_SESSIONS: usize = 64;
/// Most bytes of a token.
const MAX_TOKEN_BYTES: usize = 512;
/// Failures of one address in a second; ten times as many at once.
const FAILURES_PER_SECOND: usize = 1;
/// The shortest interval between two sweeps of the failures.
const SWEEP_INTERVAL: Duration = Duration::from_secs(10);

const REMEDY: &str =
    "closed: set admin.token, or admin.tls with client_auth, so that operators can be told from others";

/// The way in which an operator proved to be one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OperatorProof {
    Token,
    Certificate,
    Session,
}

impl OperatorProof {
    /// Returns the word for logs.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Certificate => "certificate",
            Self::Session => "session",
        }
    }
}

/// The credentials of operators.
pub(super) struct AdminAuthentication {
    tokens: Vec<[u8; 32]>,
    takes_certificates: bool,
    failures: FailureLimiter,
    swept: Mutex<Instant>,
    session_ttl: Duration,
    /// The end of each session, by the hash of its value.
    sessions: Mutex<HashMap<[u8; 32], Instant>>,
}

/// Ways to sign in to the page, and whether its person has.
#[derive(Debug, Serialize)]
pub(super) struct SessionState {
    signed_in: bool,
    /// True if a token is accepted.
    token: bool,
    /// True if client certificates are accepted: then the page needs no token.
    certificate: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SignInRequest<'a> {
    #[serde(borrow)]
    token: Cow<'a, str>,
}

impl AdminAuthentication {
    pub(super) fn new(admin: &Admin) -> Self {
        Self {
            tokens: admin.token_hashes.clone(),
            takes_certificates: admin.takes_certificates(),
            failures: FailureLimiter::new(FAILURES_PER_SECOND),
            swept: Mutex::new(Instant::now()),
            session_ttl: admin.session_ttl,
            sessions: Mutex::default(),
        }
    }

    /// Returns true if there is a way to authenticate.
    pub(super) fn is_configured(&self) -> bool {
        !self.tokens.is_empty() || self.takes_certificates
    }

    /// Verifies the credentials of a request.
    ///
    /// # Errors
    ///
    /// The refusal: 401, 429, or 403 if no credentials could ever be accepted.
    pub(super) fn verify(
        &self,
        headers: &HeaderMap,
        tls: Option<&ClientTlsInfo>,
        client: Option<IpAddr>,
        changes: bool,
    ) -> Result<OperatorProof, AdminError> {
        if !self.is_configured() {
            return Err(AdminError::new(StatusCode::FORBIDDEN, REMEDY));
        }
        let mut values = headers.get_all(AUTHORIZATION).iter();
        match (values.next(), values.next()) {
            (Some(value), None) => {
                self.verify_token(bearer(value).unwrap_or_default(), client)?;
                return Ok(OperatorProof::Token);
            }
            (Some(_), Some(_)) => {
                return Err(AdminError::new(StatusCode::BAD_REQUEST, "Authorization is there twice"));
            }
            (None, _) => {}
        }
        if let Some(certificate) = tls.and_then(|tls| tls.certificate.as_ref())
            && self.takes_certificates
        {
            if certificate.is_valid(SystemTime::now()) {
                return Ok(OperatorProof::Certificate);
            }
            return Err(AdminError::unauthenticated("the client certificate is no longer valid"));
        }
        if session_cookie(headers).is_some_and(|value| self.has_session(value, Instant::now())) {
            // Only browsers have a session, and they tell the origin of a change.
            if changes && !headers.contains_key(ORIGIN) {
                return Err(AdminError::new(StatusCode::FORBIDDEN, "a change with a session needs Origin"));
            }
            return Ok(OperatorProof::Session);
        }
        Err(AdminError::unauthenticated(
            "credentials of an operator are needed: Authorization: Bearer, and the token",
        ))
    }

    fn verify_token(&self, token: &str, client: Option<IpAddr>) -> Result<(), AdminError> {
        let now = Instant::now();
        self.failures.check(client, now).map_err(AdminError::rate_limited)?;
        let hash = digest(token);
        // Each is compared completely, so that the time tells nothing.
        let is_known = self.tokens.iter().fold(0, |known, token| known | token.ct_eq(&hash).unwrap_u8()) == 1;
        if is_known && token.len() <= MAX_TOKEN_BYTES {
            return Ok(());
        }
        self.failures.record(client, now);
        let mut swept = lock(&self.swept);
        if now.duration_since(*swept) > SWEEP_INTERVAL {
            *swept = now;
            drop(swept);
            self.failures.sweep(now);
        }
        Err(AdminError::unauthenticated("the token is not that of an operator"))
    }

    /// Returns the state of the session of a request.
    pub(super) fn state(&self, session: Option<&str>) -> SessionState {
        SessionState {
            signed_in: session.is_some_and(|value| self.has_session(value, Instant::now())),
            token: !self.tokens.is_empty(),
            certificate: self.takes_certificates,
        }
    }

    fn has_session(&self, value: &str, now: Instant) -> bool {
        lock(&self.sessions).get(&digest(value)).is_some_and(|end| now < *end)
    }

    /// Begins a session, and returns its cookie.
    ///
    /// # Errors
    ///
    /// The refusal, as for any request with this token.
    pub(super) fn sign_in(&self, request: &AdminRequest) -> Result<HeaderValue, AdminError> {
        if self.tokens.is_empty() {
            return Err(AdminError::new(StatusCode::FORBIDDEN, REMEDY));
        }
        // The error of the parser would quote the token.
        let unreadable = |_| AdminError::new(StatusCode::BAD_REQUEST, r#"the body is not {"token":"…"}"#);
        let SignInRequest { token } = serde_json::from_slice(&request.body).map_err(unreadable)?;
        self.verify_token(&token, request.client)?;
        let value = URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>());
        self.insert_session(&value, Instant::now());
        Ok(cookie(&value, self.session_ttl, request.is_tls))
    }

    fn insert_session(&self, value: &str, now: Instant) {
        let mut sessions = lock(&self.sessions);
        sessions.retain(|_, end| now < *end);
        if sessions.len() >= MAX_SESSIONS
            && let Some(oldest) = sessions.iter().min_by_key(|(_, end)| **end).map(|(hash, _)| *hash)
        {
            sessions.remove(&oldest);
        }
        sessions.insert(digest(value), now + self.session_ttl);
    }

    /// Ends a session, and returns the cookie that removes its cookie.
    pub(super) fn sign_out(&self, request: &AdminRequest) -> HeaderValue {
        if let Some(value) = &request.session {
            lock(&self.sessions).remove(&digest(value));
        }
        cookie("", Duration::ZERO, request.is_tls)
    }
}

fn digest(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

fn cookie(value: &str, lifetime: Duration, is_tls: bool) -> HeaderValue {
    let secure = if is_tls { "; Secure" } else { "" };
    let seconds = lifetime.as_secs();
    let text = format!("{COOKIE_NAME}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}");
    // The value is base64url.
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(""))
}

/// Returns the value of the session cookie.
pub(super) fn session_cookie(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    cookies.flat_map(|value| value.split(';')).find_map(|pair| {
        let (name, value) = pair.trim().split_once('=')?;
        (name == COOKIE_NAME).then_some(value)
    })
}

/// Returns the token after `Bearer`.
fn bearer(value: &HeaderValue) -> Option<&str> {
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Returns false for a request that a browser sent on behalf of a page of another origin.
pub(super) fn is_same_origin(head: &Parts, is_tls: bool) -> bool {
    let site = head.headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    if site.is_some_and(|site| !matches!(site, b"same-origin" | b"none")) {
        return false;
    }
    let mut origins = head.headers.get_all(ORIGIN).iter();
    let origin = match (origins.next(), origins.next()) {
        (None, _) => return true,
        (Some(origin), None) => origin.as_bytes(),
        (Some(_), Some(_)) => return false,
    };
    let authority = head.uri.authority().map(|authority| authority.as_str().as_bytes());
    let host = head.headers.get(HOST).map(HeaderValue::as_bytes).or(authority);
    let scheme: &[u8] = if is_tls { b"https://" } else { b"http://" };
    host.is_some_and(|host| origin.strip_prefix(scheme).is_some_and(|own| own.eq_ignore_ascii_case(host)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_tokens(tokens: &[&str]) -> AdminAuthentication {
        let token_hashes = tokens.iter().map(|token| digest(token)).collect();
        AdminAuthentication::new(&Admin { token_hashes, ..Admin::default() })
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    #[test]
    fn token_with_any_character_signs_in() {
        let token = r#"one-"token\-of-two"#;
        let body = serde_json::json!({ "token": token }).to_string();
        let read: SignInRequest<'_> = serde_json::from_str(&body).unwrap();
        assert_eq!(read.token, token);
    }

    #[test]
    fn token_right_is_accepted() {
        let authentication = with_tokens(&["one-token-of-two", "two-token-of-two"]);
        for (header, status) in [
            (Some("Bearer one-token-of-two"), None),
            (Some("bearer two-token-of-two"), None),
            (Some("Bearer one-token-of-tw"), Some(401)),
            (Some("Bearer "), Some(401)),
            (Some("Basic one-token-of-two"), Some(401)),
            (Some("one-token-of-two"), Some(401)),
            (None, Some(401)),
        ] {
            let shown: Vec<_> = header.iter().map(|value| ("authorization", *value)).collect();
            let verified = authentication.verify(&headers(&shown), None, None, true);
            assert_eq!(verified.err().map(|error| error.status.as_u16()), status, "{header:?}");
        }
        let none = with_tokens(&[]).verify(&headers(&[("authorization", "Bearer x")]), None, None, false);
        assert_eq!(none.unwrap_err().status, StatusCode::FORBIDDEN);
    }

    #[test]
    fn failures_refuse_the_address() {
        let authentication = with_tokens(&["one-token-of-two"]);
        let (one, other) = ("192.0.2.1".parse().ok(), "192.0.2.2".parse().ok());
        let status = |token: &str, client| {
            let shown = headers(&[("authorization", token)]);
            authentication.verify(&shown, None, client, false).err().map(|error| error.status.as_u16())
        };
        let refused =
            (0..100).map(|_| status("Bearer wrong", one)).filter(|status| *status == Some(429)).count();
        assert!((80..=90).contains(&refused), "{refused}");
        assert_eq!(status("Bearer one-token-of-two", one), Some(429));
        assert_eq!(status("Bearer one-token-of-two", other), None);
    }

    #[test]
    fn sessions_are_bounded_and_expire() {
        let authentication = with_tokens(&["one-token-of-two"]);
        let now = Instant::now();
        for at in 0..MAX_SESSIONS + 1 {
            authentication.insert_session(&at.to_string(), now + Duration::from_secs(at as u64));
        }
        assert_eq!(lock(&authentication.sessions).len(), MAX_SESSIONS);
        assert!(!authentication.has_session("0", now) && authentication.has_session("1", now));
        let later = now + authentication.session_ttl + Duration::from_secs(2);
        assert!(!authentication.has_session("1", later) && authentication.has_session("64", later));
        authentication.insert_session("new", later + authentication.session_ttl);
        assert_eq!(lock(&authentication.sessions).len(), 1);
    }

    #[test]
    fn session_changes_need_an_origin() {
        let authentication = with_tokens(&["one-token-of-two"]);
        authentication.insert_session("value", Instant::now());
        let cookie = ("cookie", "other=1; mcp_a2a_gateway_admin=value");
        for (shown, changes, expected) in [
            (vec![cookie], false, true),
            (vec![cookie], true, false),
            (vec![cookie, ("origin", "http://localhost")], true, true),
            (vec![("cookie", "mcp_a2a_gateway_admin=valuE")], false, false),
            (vec![("cookie", "x_mcp_a2a_gateway_admin=value")], false, false),
        ] {
            let verified = authentication.verify(&headers(&shown), None, None, changes);
            assert_eq!(verified.is_ok(), expected, "{shown:?} {changes}");
        }
    }

    #[test]
    fn origins_of_others_are_foreign() {
        for (pairs, is_tls, expected) in [
            (vec![], false, true),
            (vec![("origin", "http://localhost:9090")], false, true),
            (vec![("origin", "http://LOCALHOST:9090")], false, true),
            (vec![("origin", "https://localhost:9090")], false, false),
            (vec![("origin", "https://localhost:9090")], true, true),
            (vec![("origin", "http://localhost")], false, false),
            (vec![("origin", "null")], false, false),
            (vec![("origin", "http://localhost:9090.evil")], false, false),
            (vec![("origin", "http://localhost:9090"), ("origin", "http://evil")], false, false),
            (vec![("sec-fetch-site", "cross-site")], false, false),
            (vec![("sec-fetch-site", "same-site")], false, false),
            (vec![("sec-fetch-site", "none")], false, true),
        ] {
            let (mut head, ()) = http::Request::new(()).into_parts();
            head.headers = headers(&pairs);
            head.headers.insert(HOST, HeaderValue::from_static("localhost:9090"));
            assert_eq!(is_same_origin(&head, is_tls), expected, "{pairs:?}");
        }
    }
}
