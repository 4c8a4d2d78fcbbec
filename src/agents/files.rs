//! Files that an agent keeps at its own origin, read with the credentials of the agent.
//!
//! A URL in an agent's output is a statement of the agent. The credentials are sent only to an origin
//! at which the agent is called anyway; redirects are not followed.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};

use super::resolved::ResolvedAgent;
use crate::auth::{AccessToken, TokenUnavailable};
use crate::config::{AgentMethod, effective_port};
use crate::fault::AgentFailure;
use crate::quota::AnswerRoom;
use crate::transport::{HttpClient, Response};

/// A file of an agent.
pub(crate) struct AgentFile {
    /// The media type that the agent states.
    pub(crate) media_type: Option<String>,
    pub(crate) bytes: Bytes,
}

impl ResolvedAgent {
    /// Returns the URL of a file at the origin of one of the agent's endpoints; `None` for a URL
    /// elsewhere.
    pub(crate) fn own_file(&self, url: &str) -> Option<Uri> {
        let uri: Uri = url.parse().ok()?;
        let is_own = self.ways.load().own.iter().any(|way| is_same_origin(&way.address.uri, &uri));
        is_own.then_some(uri)
    }

    /// Reads a file of which [`ResolvedAgent::own_file`] returned the URL, within `timeout`. The
    /// bytes are counted in `room` before they are held.
    ///
    /// # Errors
    ///
    /// The [`AgentFailure`], also if the response is not 200.
    pub(crate) async fn fetch_file(
        &self,
        client: &HttpClient,
        uri: &Uri,
        room: &mut AnswerRoom,
        timeout: Duration,
    ) -> Result<AgentFile, AgentFailure> {
        let fetched = async {
            let mut reply = self.request_file(client, uri).await?;
            match reply.status() {
                StatusCode::OK => {}
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                    return Err(AgentFailure::Unauthorized(reply.status().as_u16()));
                }
                status => return Err(AgentFailure::HttpStatus(status.as_u16())),
            }
            let media_type = reply.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
            let media_type = media_type.map(str::to_owned);
            let bytes = reply.collect_in(room).await.map_err(|error| self.to_failure(&error))?;
            Ok(AgentFile { media_type, bytes })
        };
        let late = Err(AgentFailure::Timeout("it does not send the file"));
        tokio::time::timeout(timeout, fetched).await.unwrap_or(late)
    }

    /// Sends the request; once more with another token, if the first is rejected.
    async fn request_file(&self, client: &HttpClient, uri: &Uri) -> Result<Response, AgentFailure> {
        let Some(tokens) = self.credentials.tokens() else {
            return self.request_file_once(client, uri, None).await;
        };
        let subject = self.along.as_ref().and_then(|along| along.subject());
        let no_token = |no_token| match no_token {
            TokenUnavailable::Now(why) => AgentFailure::TokenUnavailable(why),
            TokenUnavailable::OfCaller(why) => AgentFailure::TokenExchangeFailed(why),
        };
        let pass = tokens.pass(subject).await.map_err(no_token)?;
        let reply = self.request_file_once(client, uri, Some(&pass)).await?;
        if reply.status() != StatusCode::UNAUTHORIZED {
            return Ok(reply);
        }
        match tokens.replace_rejected(&pass, subject).await.map_err(no_token)? {
            Some(another) => self.request_file_once(client, uri, Some(&another)).await,
            None => Ok(reply),
        }
    }

    async fn request_file_once(
        &self,
        client: &HttpClient,
        uri: &Uri,
        pass: Option<&AccessToken>,
    ) -> Result<Response, AgentFailure> {
        let ways = self.ways.load();
        let way = ways.own.iter().find(|way| is_same_origin(&way.address.uri, uri));
        let way = way.ok_or(AgentFailure::Internal("the file is not at an origin of the agent"))?;
        let shown = self.credentials.request_credentials();
        let path = uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        let mut headers = HeaderMap::new();
        if let Some(along) = &self.along {
            along.insert(&self.forwards, &mut headers);
        }
        headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
        shown.apply(AgentMethod::Other, &mut headers);
        if let Some(pass) = pass {
            headers.insert(AUTHORIZATION, pass.value().clone());
        }
        let mut request = Request::new(Bytes::new());
        *request.method_mut() = Method::GET;
        *request.uri_mut() = shown.keyed(&path).map_err(AgentFailure::Internal)?.into();
        *request.headers_mut() = headers;
        client.send(&way.target, request).await.map_err(|error| self.to_failure(&error))
    }
}

/// Returns true if both URLs have one scheme, host and port.
fn is_same_origin(one: &Uri, other: &Uri) -> bool {
    let hosts = one.host().zip(other.host());
    one.scheme() == other.scheme()
        && hosts.is_some_and(|(one, other)| one.eq_ignore_ascii_case(other))
        && effective_port(one) == effective_port(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origin_is_scheme_host_and_port() {
        let agent: Uri = "https://agent.example/a2a".parse().unwrap();
        for (url, expected) in [
            ("https://agent.example/files/1", true),
            ("https://AGENT.example:443/files/1?x=y", true),
            ("http://agent.example/files/1", false),
            ("https://agent.example:8443/files/1", false),
            ("https://files.agent.example/1", false),
            ("https://agent.example@other.example/1", false),
            ("/files/1", false),
        ] {
            assert_eq!(is_same_origin(&agent, &url.parse().unwrap()), expected, "{url}");
        }
    }
}
