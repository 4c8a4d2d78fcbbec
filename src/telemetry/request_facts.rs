//! The facts of one completed request, from which its line of the access log and its span are made.
//!
//! They contain no secrets: no header values, no credentials, no handles, no bodies, no query. Out of scope: the form
//! of the line (see `access_log`) and of the span (see `span`).

use std::net::IpAddr;
use std::time::Duration;

use super::label::{Method, Outcome};
use super::log_line::MAX_LOGGED_CHARS;
use crate::hex::HexText;

/// A completed request.
#[derive(Clone, Copy, Default)]
pub(crate) struct CompletedRequest<'a> {
    /// The texts that peers and the configuration chose.
    pub(crate) texts: RequestTexts<'a>,
    /// The facts of fixed size.
    pub(crate) facts: RequestFacts,
}

/// The texts about a completed request. Empty for steps that were not reached.
#[derive(Clone, Copy, Default)]
pub(crate) struct RequestTexts<'a> {
    /// The id of the request.
    pub(crate) request: &'a str,
    /// The stable name of the caller.
    pub(crate) caller: &'a str,
    /// The listener that took the request.
    pub(crate) listener: &'a str,
    /// HTTP method.
    pub(crate) method: &'a str,
    /// Path without query: a query may carry secrets.
    pub(crate) path: &'a str,
    /// The tool that was called.
    pub(crate) tool: &'a str,
    /// The agent's configured name.
    pub(crate) agent: &'a str,
}

/// The lengths of the texts of a request that follow each other in one string, in bytes.
#[derive(Clone, Copy, Default)]
pub(super) struct TextLengths([u16; 7]);

impl<'a> RequestTexts<'a> {
    /// Adds the texts to a string, as far as they can be logged.
    pub(super) fn append_to(self, joined: &mut String) -> TextLengths {
        let Self { request, caller, listener, method, path, tool, agent } = self;
        let mut lengths = [0; 7];
        // A loop, because the compiler makes a call for each element of an array's `map`.
        for (length, text) in lengths.iter_mut().zip([request, caller, listener, method, path, tool, agent]) {
            let text = loggable(text);
            joined.push_str(text);
            // Four bytes for each character at most.
            *length = u16::try_from(text.len()).unwrap_or_default();
        }
        TextLengths(lengths)
    }

    /// Reads the first texts of such a string, and removes them from it.
    pub(super) fn split_off(joined: &mut &'a str, TextLengths(lengths): TextLengths) -> Self {
        let mut texts = [""; 7];
        for (text, length) in texts.iter_mut().zip(lengths) {
            (*text, *joined) = joined.split_at_checked(usize::from(length)).unwrap_or_default();
        }
        let [request, caller, listener, method, path, tool, agent] = texts;
        Self { request, caller, listener, method, path, tool, agent }
    }
}

impl TextLengths {
    /// Returns the length of all texts.
    pub(super) fn sum(self) -> usize {
        self.0.into_iter().map(usize::from).sum()
    }

    /// Returns all texts but the id of the request, from a string that begins with these texts: their lengths, and the
    /// texts one behind the other. Requests of a client often have them in common.
    pub(super) fn common_texts(self, joined: &str) -> ([u16; 6], &str) {
        let [request, lengths @ ..] = self.0;
        (lengths, joined.get(usize::from(request)..self.sum()).unwrap_or_default())
    }
}

/// Returns the part of a peer's text that can be logged, and one character more: if there is more, the line says so.
fn loggable(text: &str) -> &str {
    if text.len() <= MAX_LOGGED_CHARS {
        return text;
    }
    let end = text.char_indices().nth(MAX_LOGGED_CHARS + 1);
    end.and_then(|(end, _)| text.get(..end)).unwrap_or(text)
}

/// The facts of fixed size about a completed request: numbers, addresses and words of the gateway. `None` for steps that were
/// not reached.
#[derive(Clone, Copy, Default)]
pub(crate) struct RequestFacts {
    /// The id of the trace that it belongs to.
    pub(crate) trace: Option<HexText<32>>,
    /// The address of the client.
    pub(crate) client: Option<IpAddr>,
    /// HTTP status; 0 if none was sent.
    pub(crate) status: u16,
    /// The MCP or A2A method within.
    pub(crate) rpc: Option<Method>,
    /// The era of MCP that the client speaks.
    pub(crate) era: Option<&'static str>,
    /// The version of MCP or A2A that the client speaks.
    pub(crate) version: Option<&'static str>,
    /// A keyed digest of the MCP session: its id is a secret.
    pub(crate) session: Option<u64>,
    /// A keyed digest of the task.
    pub(crate) task: Option<u64>,
    /// A keyed digest of the A2A context.
    pub(crate) context: Option<u64>,
    /// The time from the request's first byte to the response's last.
    pub(crate) took: Duration,
    /// The part of it spent waiting for the agent.
    pub(crate) agent_took: Option<Duration>,
    /// Bytes of the request's body.
    pub(crate) bytes_in: u64,
    /// Bytes of the response's body.
    pub(crate) bytes_out: u64,
    /// True if the caller has no name of its own.
    pub(crate) is_anonymous: bool,
    /// The outcome, as in the metrics.
    pub(crate) outcome: Outcome,
    /// The fault, by its public name.
    pub(crate) fault: Option<&'static str>,
}

/// The facts that lines of the access log repeat: client, status, method, era, version.
pub(super) type RepeatedFacts =
    (Option<IpAddr>, u16, Option<Method>, Option<&'static str>, Option<&'static str>);

impl RequestFacts {
    /// Returns the facts that calls of a client often have in common, for the fields in `@repeated` of the access log.
    pub(super) fn repeated(&self) -> RepeatedFacts {
        (self.client, self.status, self.rpc, self.era, self.version)
    }
}

/// A completed request with texts of its own.
pub(super) struct KeptRequest {
    facts: RequestFacts,
    lengths: TextLengths,
    texts: String,
}

impl KeptRequest {
    /// Copies a request.
    pub(super) fn new(request: &CompletedRequest<'_>) -> Self {
        // Room for most: a string that grows is copied again and again.
        let mut texts = String::with_capacity(256);
        let lengths = request.texts.append_to(&mut texts);
        Self { facts: request.facts, lengths, texts }
    }

    /// Returns the request.
    pub(super) fn read(&self) -> CompletedRequest<'_> {
        let texts = RequestTexts::split_off(&mut self.texts.as_str(), self.lengths);
        CompletedRequest { texts, facts: self.facts }
    }
}
