//! What an operator is told of the endpoints of an agent.
//!
//! Not here: how it comes about (see `endpoints`).

use http::Uri;

use super::directory::Agent;

/// One endpoint, as it is doing now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointState {
    /// Where it is, without a query, which may be a secret.
    pub url: String,
    /// Requests under way; not counted where there is but one endpoint.
    pub busy: usize,
    /// For how many seconds it is left alone yet; `None`: it is asked.
    pub rests: Option<u64>,
}

impl Agent {
    /// Its endpoints; none until its card has been seen.
    pub fn endpoints(&self) -> Vec<EndpointState> {
        let Some(known) = self.known() else { return Vec::new() };
        let ways = known.ways.load();
        let standing = known.endpoints.standing();
        let states = ways.own.iter().zip(standing).map(|(way, standing)| EndpointState {
            url: snapshot(&way.uri),
            busy: standing.busy,
            rests: standing.rests.map(|rests| rests.as_secs().saturating_add(1)),
        });
        states.collect()
    }
}

fn snapshot(uri: &Uri) -> String {
    let host = uri.host().unwrap_or_default();
    let port = uri.port_u16().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{host}{port}{}", uri.scheme_str().unwrap_or_default(), uri.path())
}
