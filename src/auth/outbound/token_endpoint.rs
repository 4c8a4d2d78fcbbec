//! One request to a token endpoint, the proof that the gateway is its client, and the evaluation of
//! its response.
//!
//! Only the token of the response is used, and of an error only a code of the standard. The request
//! follows RFC 6749 §2.3.1, §4.4; RFC 7523 §2.2; RFC 8693 §2.1; RFC 8705 §2; RFC 8707. See `tokens`
//! for times and caching.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::uri::PathAndQuery;
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use serde::{Deserialize, Serialize};

use super::{certificates, pair, value};
use crate::auth::percent_encoded;
use crate::config::{AgentTls, ClientAuthMethod, OAuth2, Secret, signing_key};
use crate::transport::{
    AddressPolicy, DeliveryState, ExchangeTimeouts, HttpClient, Response, TargetSettings, Upstream,
    client_config,
};

/// The maximum size of a response, in bytes.
const ANSWER: usize = 64 * 1024;
/// The lifetime of a token if its endpoint does not state it.
const UNSAID: Duration = Duration::from_secs(300);
/// The minimum lifetime: an endpoint that states less would be asked for every call.
const SHORTEST: Duration = Duration::from_secs(1);
/// The maximum time for which a token is cached, in spite of its endpoint.
const MAX_TOKEN_LIFETIME: Duration = Duration::from_secs(24 * 3600);
const TOKEN_REQUEST_TIMEOUTS: ExchangeTimeouts = ExchangeTimeouts {
    connect: Duration::from_secs(5),
    first_byte: Duration::from_secs(10),
    idle: Duration::from_secs(5),
    total: Duration::from_secs(10),
};
/// The codes of RFC 6749 §5.2, RFC 8693 §2.2.2 and RFC 8707 §2; other texts of an endpoint are not
/// repeated.
const CODES: [(&str, &str); 7] = [
    ("invalid_request", "its token endpoint answered invalid_request"),
    ("invalid_client", "its token endpoint answered invalid_client"),
    ("invalid_grant", "its token endpoint answered invalid_grant"),
    ("unauthorized_client", "its token endpoint answered unauthorized_client"),
    ("unsupported_grant_type", "its token endpoint answered unsupported_grant_type"),
    ("invalid_scope", "its token endpoint answered invalid_scope"),
    ("invalid_target", "its token endpoint answered invalid_target"),
];

/// A token, as the value of `Authorization`.
pub(super) struct TokenResponse {
    pub(super) authorization: HeaderValue,
    /// Its lifetime from now.
    pub(super) lives: Duration,
}

/// The reason for which there is no token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenRequestError {
    /// No connection, or nothing that could be sent: another request would fare no better.
    Unreachable(&'static str),
    /// The endpoint issued no token, perhaps because of this request alone.
    Unfulfilled(&'static str),
    /// The endpoint rejects this request.
    Refused(&'static str),
}

/// A token endpoint.
pub(super) struct TokenEndpoint {
    target: Upstream,
    path: PathAndQuery,
}

#[derive(Deserialize)]
struct TokenGrantResponse {
    access_token: String,
    #[serde(default)]
    token_type: Option<String>,
    /// A number; some send it as text.
    #[serde(default)]
    expires_in: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct TokenErrorResponse {
    error: String,
}

impl TokenEndpoint {
    /// # Errors
    ///
    /// The setting that cannot be used, as text.
    pub(super) fn new(oauth2: &OAuth2, tls: &AgentTls) -> Result<Self, String> {
        let uri: Uri =
            oauth2.token_url.parse().map_err(|_| "auth.oauth2.token_url: is not a URL".to_owned())?;
        let path = uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        let mut settings = TargetSettings {
            timeouts: TOKEN_REQUEST_TIMEOUTS,
            ..TargetSettings::new(uri, AddressPolicy::Trusted)
        };
        if settings.uri.scheme_str() == Some("https") {
            let ca = oauth2.ca.as_ref().map(|pem| certificates("auth.oauth2.ca", pem)).transpose()?;
            let identity = match oauth2.proof {
                ClientAuthMethod::TlsClientAuth => pair(tls)?,
                _ => None,
            };
            let config = client_config(ca.as_deref(), identity)
                .map_err(|problem| format!("auth.oauth2: {problem}"))?;
            settings.tls = Some(Arc::new(config));
        }
        let target = Upstream::new(settings).map_err(|error| format!("auth.oauth2.token_url: {error}"))?;
        Ok(Self { target, path })
    }

    /// Requests a token.
    pub(super) async fn request(
        &self,
        client: &HttpClient,
        oauth2: &OAuth2,
        subject: Option<&Secret>,
    ) -> Result<TokenResponse, TokenRequestError> {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let form = form(oauth2, subject, unix, rand::random()).map_err(TokenRequestError::Unreachable)?;
        let mut request = Request::new(Bytes::from(form.body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.path.clone().into();
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        if let Some(authorization) = form.authorization {
            headers.insert(AUTHORIZATION, authorization);
        }
        let reply = client.send(&self.target, request).await.map_err(|error| {
            tracing::debug!(reason = error.kind(), "failed to request token");
            let why = "its token endpoint cannot be reached";
            // Once the endpoint has the request, that may be the cause of the failure.
            match error.sent() {
                DeliveryState::No => TokenRequestError::Unreachable(why),
                DeliveryState::Maybe => TokenRequestError::Unfulfilled(why),
            }
        })?;
        read(reply).await
    }
}

async fn read(mut reply: Response) -> Result<TokenResponse, TokenRequestError> {
    let status = reply.status();
    let body = reply
        .collect(ANSWER)
        .await
        .map_err(|_| TokenRequestError::Unfulfilled("its token endpoint broke off its answer"))?;
    match status {
        StatusCode::OK => granted(&body),
        StatusCode::TOO_MANY_REQUESTS => {
            Err(TokenRequestError::Unfulfilled("its token endpoint is asked too often"))
        }
        _ if status.is_client_error() => {
            let said = serde_json::from_slice::<TokenErrorResponse>(&body).ok();
            let known = said.and_then(|said| CODES.into_iter().find(|(code, _)| *code == said.error));
            Err(TokenRequestError::Refused(known.map_or("its token endpoint refused", |(_, words)| words)))
        }
        _ => Err(TokenRequestError::Unfulfilled("its token endpoint does not work")),
    }
}

fn granted(body: &[u8]) -> Result<TokenResponse, TokenRequestError> {
    let no_token = TokenRequestError::Unfulfilled("what its token endpoint answered is no bearer token");
    let granted: TokenGrantResponse = serde_json::from_slice(body).map_err(|_| no_token)?;
    let is_bearer = granted.token_type.as_deref().is_none_or(|kind| kind.eq_ignore_ascii_case("bearer"));
    // RFC 6750 §2.1; so nothing that ends a header line can be in it.
    let fits = |each: u8| each.is_ascii_graphic();
    if !is_bearer || granted.access_token.is_empty() || !granted.access_token.bytes().all(fits) {
        return Err(no_token);
    }
    let authorization = value("token", &format!("Bearer {}", granted.access_token)).map_err(|_| no_token)?;
    let seconds = granted.expires_in.and_then(|said| match said {
        serde_json::Value::Number(number) => number.as_f64(),
        serde_json::Value::String(text) => text.parse().ok(),
        _ => None,
    });
    let lives = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).unwrap_or(UNSAID);
    Ok(TokenResponse { authorization, lives: lives.clamp(SHORTEST, MAX_TOKEN_LIFETIME) })
}

/// The lifetime of an assertion, in seconds.
const ASSERTION: u64 = 60;
const EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";
const JWT_BEARER: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// The request to a token endpoint. All of it is secret.
struct TokenRequestForm {
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
fn form(
    oauth2: &OAuth2,
    subject: Option<&Secret>,
    unix: u64,
    nonce: u128,
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
            let pair = format!("{}:{}", percent_encoded(id), percent_encoded(secret.expose()));
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
        members.iter().map(|(name, text)| format!("{name}={}", percent_encoded(text))).collect();
    Ok(TokenRequestForm { authorization, body: members.join("&").into_bytes() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_bearer_token_is_taken() {
        for (body, lives) in [
            (r#"{"access_token":"t","token_type":"Bearer","expires_in":60}"#, Some(60)),
            (r#"{"access_token":"t","token_type":"bearer","expires_in":"60"}"#, Some(60)),
            (r#"{"access_token":"t"}"#, Some(300)),
            (r#"{"access_token":"t","expires_in":-5}"#, Some(300)),
            (r#"{"access_token":"t","expires_in":0}"#, Some(1)),
            (r#"{"access_token":"t","expires_in":1e300}"#, Some(300)),
            (r#"{"access_token":"t","expires_in":99999999}"#, Some(86_400)),
            (r#"{"access_token":"t","token_type":"DPoP"}"#, None),
            (r#"{"access_token":""}"#, None),
            (r#"{"access_token":"a\r\nX-Evil: b"}"#, None),
            (r#"{"access_token":"a b"}"#, None),
            (r#"{"token_type":"Bearer"}"#, None),
            ("<html>", None),
        ] {
            let taken = granted(body.as_bytes()).ok().map(|fetched| fetched.lives.as_secs());
            assert_eq!(taken, lives, "{body}");
        }
    }
}
