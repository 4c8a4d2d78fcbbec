//! `resources.http` and `resources.files`: JSON endpoints of existing systems under URIs of resources,
//! and files that agents keep at their own origin.
//!
//! See also `resources::http` and `agents::files`.

use std::collections::BTreeMap;
use std::time::Duration;

use http::HeaderName;

use super::agent::{AgentTls, headers};
use super::forms::Form;
use super::host::web_url;
use super::prompts::uri_variables;
use super::reference::{ReloadableSecret, Template};
use super::resolve::ResolveContext;
use super::section::{KeysOf, section};
use super::spanned::{Location, Spanned};
use super::units::{ByteSize, HumanDuration};

/// Schemes that no endpoint can serve.
const OTHER_SCHEMES: [&str; 3] = ["a2a", "a2a-agent", "mcp"];
/// Variable of a URL that stands for the name of the caller.
const CALLER: &str = "caller";

section! {
    /// Files that agents name by URL at an origin where they are called anyway: reading the artifact
    /// reads them too, with the credentials of the agent.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct ArtifactFiles {
        /// Largest file.
        max_bytes: usize as ByteSize = 8MiB in 1KiB..=256MiB,
        /// Most files of one artifact that are read; the others stay URLs.
        max_files: usize = 16 in 1..=100,
        /// Longest time for the files of one artifact.
        timeout: Duration = 30s in 10ms..=1h,
    }
}

section! {
    /// A JSON endpoint of an existing system, read under URIs of resources.
    keys HttpResourceKeys("HttpResource") {
        /// The URI, of any scheme but `a2a`, `a2a-agent` and `mcp`; of `memory`, `batchtools` and
        /// `sparc` only where that family is not configured. With `{NAME}` in it, it is a template:
        /// each stands for one segment of the path, or a part of one.
        uri: String => Option<String>
            [required "write the URI of the resource" example "memory://data/{namespace}/{key}"],
        /// The URL that is read (GET). `{NAME}` stands for the value of a variable of the URI,
        /// `{caller}` for the name of the caller; both percent-encoded. They may be in the path and
        /// the query.
        url: String => Option<String>
            [required "write the URL of the endpoint" example "https://bank.internal/{caller}/{namespace}/{key}"],
        /// Its name. Without it: its URI.
        name: String => Option<String> [example "memory value"],
        /// Its content, in words.
        description: String => Option<String> [example "A value of the memory bank."],
        /// Headers for every request, such as credentials.
        headers: BTreeMap<String, Spanned<Template>> [example { Authorization: "Bearer ${env:BANK_TOKEN}" }],
        /// Trust in the server, and the gateway's certificate for it.
        tls: KeysOf<AgentTls> => AgentTls,
        /// Largest response.
        max_bytes: ByteSize => usize = 1MiB in 1KiB..=256MiB,
        /// Longest time for a response.
        timeout: HumanDuration => Duration = 10s in 10ms..=1h,
    }
}

/// A JSON endpoint of an existing system.
#[derive(Debug, Clone, PartialEq)]
pub struct HttpResource {
    /// Its URI, or the template of its URIs.
    pub uri: String,
    /// The URL that is read, with variables in path and query.
    pub url: String,
    /// Its name.
    pub name: String,
    /// Its content, in words.
    pub description: Option<String>,
    /// Headers for every request.
    pub headers: Vec<(HeaderName, ReloadableSecret)>,
    /// Trust in the server, and the gateway's certificate for it.
    pub tls: AgentTls,
    /// Most bytes of a response.
    pub max_bytes: usize,
    /// Longest time for a response.
    pub timeout: Duration,
}

impl HttpResource {
    /// Returns true if its URI is a template.
    pub(crate) fn is_template(&self) -> bool {
        self.uri.contains('{')
    }
}

/// Returns the defect of a URL with variables.
fn url_problem(url: &str, variables: &[&str]) -> Option<String> {
    let origin_end = url.find("://").and_then(|at| Some(at + 3 + url.get(at + 3..)?.find('/')?));
    if url.find('{').is_some_and(|first| origin_end.is_none_or(|end| first < end)) {
        return Some("has a variable in its host (variables may be in the path and the query)".to_owned());
    }
    let mut pieces = url.split('{');
    let mut plain = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let Some((name, rest)) = piece.split_once('}') else {
            return Some("has a { without its }".to_owned());
        };
        if name != CALLER && !variables.contains(&name) {
            return Some(format!("names a variable {name:?} that the URI does not have"));
        }
        plain.push('x');
        plain.push_str(rest);
    }
    web_url(&plain).err()
}

impl Form<HttpResource> for HttpResourceKeys {
    fn resolve(mut self, place: &Location, context: &mut ResolveContext<'_>) -> Option<HttpResource> {
        self.section = place.clone();
        let (uri, url) = (self.uri(context), self.url(context));
        let (name, description) = (self.name(context), self.description(context));
        let (tls, max_bytes, timeout) = (self.tls(context), self.max_bytes(context), self.timeout(context));
        let headers = headers(std::mem::take(&mut self.headers), context);
        let uri_place = self.uri.place().unwrap_or(place).clone();
        let url_place = self.url.place().unwrap_or(place).clone();
        let (uri, url) = (uri?, url?);
        let variables = match uri_variables(&uri, &OTHER_SCHEMES) {
            Ok(variables) => variables,
            Err(problem) => return context.report_conflict(&uri_place, problem),
        };
        if let Some(problem) = url_problem(&url, &variables) {
            return context.report_conflict(&url_place, problem);
        }
        let name = name.unwrap_or_else(|| uri.clone());
        Some(HttpResource { uri, url, name, description, headers, tls, max_bytes, timeout })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_variables_after_the_host() {
        for (url, problem) in [
            ("https://bank.example/{caller}/{key}?n={namespace}", None),
            ("https://{key}.example/", Some("in its host")),
            ("https://bank.example{key}/", Some("in its host")),
            ("https://bank.example/{other}", Some("\"other\"")),
            ("https://bank.example/{key", Some("without its }")),
            ("ftp://bank.example/{key}", Some("scheme ftp")),
            ("https://user:password@bank.example/{key}", Some("password")),
        ] {
            let found = url_problem(url, &["namespace", "key"]);
            match problem {
                None => assert_eq!(found, None, "{url}"),
                Some(part) => {
                    assert!(found.as_ref().is_some_and(|text| text.contains(part)), "{url}: {found:?}")
                }
            }
        }
    }
}
