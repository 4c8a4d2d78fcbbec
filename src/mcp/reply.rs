//! Two eras, two serializers: what surrounds a result.
//!
//! A legacy result is written as it is. A modern one has `resultType` always, `ttlMs` and `cacheScope` exactly where the
//! revision demands them, and says who the server is. Which results may be cached is a matter of types: see [`Listed`].

use serde::Serialize;

use super::lifecycle::{Discovered, ServerInfo};
use super::notifications::SubscriptionMeta;
use super::resources::{Completed, Contents, PromptList, ResourceList, TemplateList};
use super::tools::{CallResult, ToolList};
use super::version::Era;
use crate::jsonrpc::{Id, write_result};

/// A result that a modern client may keep for a while; one of the six that must say so (mcp.md §1.0).
pub trait Listed: Serialize {}
impl Listed for Discovered<'_> {}
impl Listed for ToolList<'_> {}
impl Listed for ResourceList<'_> {}
impl Listed for TemplateList {}
impl Listed for Contents {}
impl Listed for PromptList {}

/// A result that must not be kept.
pub trait Spoken: Serialize {}
impl Spoken for CallResult {}
impl Spoken for Completed<'_> {}

/// How results are written for one request.
#[derive(Debug, Clone, Copy)]
pub struct Writer<'a> {
    /// The era of the request.
    pub era: Era,
    /// Who the gateway is.
    pub server: ServerInfo<'a>,
    /// How long lists may be kept, in milliseconds; for modern clients.
    pub ttl_ms: u64,
}

impl Writer<'_> {
    /// A response with a list, or with anything else that may be kept.
    pub fn listed<R: Listed>(&self, id: &Id, result: &R) -> Vec<u8> {
        match self.era {
            Era::Legacy => write_result(id, result),
            Era::Modern => {
                let caching = Caching { ttl_ms: self.ttl_ms, cache_scope: "private" };
                write_result(id, &Cached { result, caching, complete: self.complete() })
            }
        }
    }

    /// A response with the result of a call.
    pub fn spoken<R: Spoken>(&self, id: &Id, result: &R) -> Vec<u8> {
        match self.era {
            Era::Legacy => write_result(id, result),
            Era::Modern => write_result(id, &Uncached { result, complete: self.complete() }),
        }
    }

    /// The end of a `subscriptions/listen`.
    pub fn listened(&self, id: &Id) -> Vec<u8> {
        let meta = SubscriptionMeta { subscription: id };
        write_result(id, &Ended { result_type: COMPLETE, meta })
    }

    fn complete(&self) -> Complete<'_> {
        Complete { result_type: COMPLETE, meta: ServerMeta { server: self.server } }
    }
}

const COMPLETE: &str = "complete";

#[derive(Serialize)]
struct Complete<'a> {
    #[serde(rename = "resultType")]
    result_type: &'static str,
    #[serde(rename = "_meta")]
    meta: ServerMeta<'a>,
}

#[derive(Serialize)]
struct ServerMeta<'a> {
    #[serde(rename = "io.modelcontextprotocol/serverInfo")]
    server: ServerInfo<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Caching {
    ttl_ms: u64,
    cache_scope: &'static str,
}

#[derive(Serialize)]
struct Cached<'a, R> {
    #[serde(flatten)]
    result: &'a R,
    #[serde(flatten)]
    caching: Caching,
    #[serde(flatten)]
    complete: Complete<'a>,
}

#[derive(Serialize)]
struct Uncached<'a, R> {
    #[serde(flatten)]
    result: &'a R,
    #[serde(flatten)]
    complete: Complete<'a>,
}

#[derive(Serialize)]
struct Ended<'a> {
    #[serde(rename = "resultType")]
    result_type: &'static str,
    #[serde(rename = "_meta")]
    meta: SubscriptionMeta<'a>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(era: Era) -> String {
        let writer = Writer { era, server: ServerInfo { name: "gw", version: "1" }, ttl_ms: 60_000 };
        let id: Id = serde_json::from_str("7").unwrap();
        String::from_utf8(writer.spoken(&id, &CallResult::failure("no"))).unwrap()
            + &String::from_utf8(writer.listed(&id, &PromptList::default())).unwrap()
    }

    #[test]
    fn a_legacy_result_carries_nothing_modern() {
        let legacy = text(Era::Legacy);
        for word in ["resultType", "ttlMs", "cacheScope", "serverInfo"] {
            assert!(!legacy.contains(word), "{legacy}");
        }
        assert!(legacy.contains(r#""result":{"prompts":[]}"#), "{legacy}");
    }

    #[test]
    fn a_modern_result_lacks_nothing_modern() {
        let modern = text(Era::Modern);
        assert_eq!(modern.matches(r#""resultType":"complete""#).count(), 2, "{modern}");
        assert_eq!(modern.matches(r#""ttlMs":60000,"cacheScope":"private""#).count(), 1, "{modern}");
        assert_eq!(modern.matches("serverInfo").count(), 2, "{modern}");
    }
}
