//! The form of a token request, and the proof that the gateway is its client.
//!
//! Follows RFC 6749 §2.3.1, §4.4; RFC 7523 §2.2; RFC 8693 §2.1; RFC 8705 §2; RFC 8707. See
//! `token_endpoint` for sending it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use serde::Serialize;

use super::request_credentials::value;
use crate::auth::encoded::encoded;
use crate::config::{ClientAuthMethod, OAuth2, Secret, signing_key};

/// The lifetime of an assertion, in seconds.
const ASSERTION: u64 = 60;
const EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";
const JWT_BEARER: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// The request to a token endpoint. All of it is secret.
pub(super) struct TokenRequestForm {
    pub(super) authorization: Option<HeaderValue>,
    pub(super) body: Vec<u8>,
}

#[derive(Serialize)]
struct AssertionClaims<'a> {
    iss: &'a str,
    sub: &'a str,
    aud: &'a str,
    jti: String,
    iat: u64,
    exp: u64,
}

/// Builds the request for the gateway's own token, or for one in exchange for `subject`. `unix` is
/// the time in seconds since 1970.
///
/// # Errors
///
/// The setting that cannot be used, as text.
pub(super) fn form(
    oauth2: &OAuth2,
    subject: Option<&Secret>,
    (unix, nonce): (u64, u128),
) -> Result<TokenRequestForm, &'static str> {
    let mut members: Vec<(&str, String)> = Vec::new();
    match subject {
        None => members.push(("grant_type", "client_credentials".to_owned())),
        Some(token) => members.extend([
            ("grant_type", EXCHANGE.to_owned()),
            ("subject_token", token.expose().to_owned()),
            ("subject_token_type", ACCESS_TOKEN.to_owned()),
            ("requested_token_type", ACCESS_TOKEN.to_owned()),
        ]),
    }
    if !oauth2.scopes.is_empty() {
        members.push(("scope", oauth2.scopes.join(" ")));
    }
    members.extend(oauth2.audience.iter().map(|audience| ("audience", audience.clone())));
    members.extend(oauth2.resources.iter().map(|resource| ("resource", resource.clone())));
    let id = oauth2.client_id.as_str();
    let mut authorization = None;
    match &oauth2.proof {
        ClientAuthMethod::SecretBasic(secret) => {
            let pair = format!("{}:{}", encoded(id), encoded(secret.expose()));
            let basic = format!("Basic {}", STANDARD.encode(pair));
            authorization =
                Some(value("client_secret", &basic).map_err(|_| "its client secret cannot be sent")?);
        }
        ClientAuthMethod::SecretPost(secret) => {
            members.extend([("client_id", id.to_owned()), ("client_secret", secret.expose().to_owned())]);
        }
        ClientAuthMethod::PrivateKeyJwt { key, key_id } => {
            let signing = signing_key(key).ok_or("its private key cannot sign")?;
            let claims = AssertionClaims {
                iss: id,
                sub: id,
                aud: &oauth2.token_url,
                jti: format!("{nonce:032x}"),
                iat: unix,
                exp: unix.saturating_add(ASSERTION),
            };
            let assertion = signing.jwt(key_id.as_deref(), &claims).ok_or("its private key cannot sign")?;
            members.extend([
                ("client_id", id.to_owned()),
                ("client_assertion_type", JWT_BEARER.to_owned()),
                ("client_assertion", assertion),
            ]);
        }
        ClientAuthMethod::TlsClientAuth => members.push(("client_id", id.to_owned())),
    }
    let members: Vec<String> =
        members.iter().map(|(name, text)| format!("{name}={}", encoded(text))).collect();
    Ok(TokenRequestForm { authorization, body: members.join("&").into_bytes() })
}
