//! The state of the endpoints of an agent, for the operator.
//!
//! See `endpoints` for its source.

use http::Uri;

use super::directory::Agent;

/// The state of one endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointState {
    /// Its URL without a query, which may be a secret.
    pub url: String,
    /// Requests under way; not counted if there is only one endpoint.
    pub busy: usize,
    /// The seconds for which its breaker remains open; `None`: requests are sent.
    pub rests: Option<u64>,
}

impl Agent {
    /// Returns its endpoints; none until its card has been fetched.
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
