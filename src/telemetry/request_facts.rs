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

/// Texts of requests that follow each other in one string. Those that a request has in common with the one before are not
/// added again: a busy client has all but the id in common from call to call.
#[derive(Default)]
pub(super) struct JoinedTexts {
    joined: String,
    /// The texts but the id that were added last.
    last: Option<CommonTexts>,
}

/// The place of the texts of one request.
#[derive(Clone, Copy)]
pub(super) struct TextPlace {
    /// The start of the id.
    start: u32,
    /// The length of the id, in bytes.
    length: u16,
    common: CommonTexts,
}

/// The place of all texts but the id, which follow each other.
#[derive(Clone, Copy, PartialEq, Eq)]
struct CommonTexts {
    start: u32,
    /// The lengths in bytes.
    lengths: [u16; 6],
}

impl JoinedTexts {
    /// Creates texts with room for so many bytes.
    fn with_capacity(bytes: usize) -> Self {
        // A string that grows is copied again and again.
        Self { joined: String::with_capacity(bytes), last: None }
    }

    /// Adds the texts of a request, as far as they can be logged.
    pub(super) fn add(&mut self, texts: &RequestTexts<'_>) -> TextPlace {
        let RequestTexts { request, caller, listener, method, path, tool, agent } = *texts;
        let (start, length) = (self.end(), self.push(request));
        let texts = [caller, listener, method, path, tool, agent];
        let common = match self.last {
            Some(last) if last.is_of(texts, self.joined.as_bytes()) => last,
            _ => {
                let (start, mut lengths) = (self.end(), [0; 6]);
                lengths.iter_mut().zip(texts).for_each(|(length, text)| *length = self.push(text));
                CommonTexts { start, lengths }
            }
        };
        self.last = Some(common);
        TextPlace { start, length, common }
    }

    /// Returns the texts of a request. `before` is the request that was read last, if there is one.
    pub(super) fn read<'a>(
        &'a self,
        place: &TextPlace,
        before: Option<(&TextPlace, RequestTexts<'a>)>,
    ) -> RequestTexts<'a> {
        let request = self.text(place.start, place.length);
        if let Some((before, texts)) = before
            && before.has_common_texts_of(place)
        {
            return RequestTexts { request, ..texts };
        }
        let (mut start, mut texts) = (place.common.start, [""; 6]);
        for (text, length) in texts.iter_mut().zip(place.common.lengths) {
            *text = self.text(start, length);
            start = start.saturating_add(length.into());
        }
        let [caller, listener, method, path, tool, agent] = texts;
        RequestTexts { request, caller, listener, method, path, tool, agent }
    }

    /// Returns the size of all texts, in bytes.
    pub(super) fn len(&self) -> usize {
        self.joined.len()
    }

    /// Removes all texts.
    pub(super) fn clear(&mut self) {
        self.joined.clear();
        self.last = None;
    }

    /// Adds the part of a text that can be logged, and returns its length in bytes.
    fn push(&mut self, text: &str) -> u16 {
        let text = loggable(text);
        self.joined.push_str(text);
        // Four bytes for each character at most.
        u16::try_from(text.len()).unwrap_or_default()
    }

    fn text(&self, start: u32, length: u16) -> &str {
        let start = start as usize;
        self.joined.get(start..start + usize::from(length)).unwrap_or_default()
    }

    fn end(&self) -> u32 {
        // Far less is kept than this.
        u32::try_from(self.joined.len()).unwrap_or(u32::MAX)
    }
}

impl TextPlace {
    /// Returns true if both requests are known to have all texts but their ids in common.
    pub(super) fn has_common_texts_of(&self, other: &Self) -> bool {
        self.common == other.common
    }
}

impl CommonTexts {
    /// Returns true if they are these texts.
    fn is_of(&self, texts: [&str; 6], joined: &[u8]) -> bool {
        let mut rest = joined.get(self.start as usize..).unwrap_or_default();
        texts.into_iter().zip(self.lengths).all(|(text, length)| {
            let (Some(known), true) = (rest.split_off(..text.len()), text.len() == usize::from(length))
            else {
                return false;
            };
            known == text.as_bytes()
        })
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
    place: TextPlace,
    texts: JoinedTexts,
}

impl KeptRequest {
    /// Copies a request.
    pub(super) fn new(request: &CompletedRequest<'_>) -> Self {
        let mut texts = JoinedTexts::with_capacity(256);
        let place = texts.add(&request.texts);
        Self { facts: request.facts, place, texts }
    }

    /// Returns the request.
    pub(super) fn read(&self) -> CompletedRequest<'_> {
        CompletedRequest { texts: self.texts.read(&self.place, None), facts: self.facts }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::telemetry) const TEXTS: RequestTexts<'static> = RequestTexts {
        request: "7f-1",
        caller: "ann",
        listener: "0.0.0.0:8080",
        method: "POST",
        path: "/mcp/weather",
        tool: "forecast",
        agent: "weather",
    };

    #[test]
    fn common_texts_are_kept_once() {
        let mut texts = JoinedTexts::default();
        let first = texts.add(&TEXTS);
        let whole = texts.len();
        let second = texts.add(&RequestTexts { request: "7f-22", ..TEXTS });
        assert_eq!(texts.len(), whole + "7f-22".len());
        assert!(first.has_common_texts_of(&second));
        let one = texts.read(&first, None);
        let other = texts.read(&second, Some((&first, one)));
        assert_eq!((one.request, one.agent), ("7f-1", "weather"));
        assert_eq!((other.request, other.caller, other.agent), ("7f-22", "ann", "weather"));
        texts.clear();
        let alone = texts.add(&TEXTS);
        assert_eq!((texts.len(), texts.read(&alone, None).path), (whole, "/mcp/weather"));
    }

    #[test]
    fn other_texts_with_the_same_characters_are_other_texts() {
        let other = RequestTexts { tool: "forecastw", agent: "eather", ..TEXTS };
        let shorter = RequestTexts { agent: "", ..TEXTS };
        let longer = RequestTexts { agent: "weather7f-1", ..TEXTS };
        for other in [other, shorter, longer] {
            let mut texts = JoinedTexts::default();
            let (first, second) = (texts.add(&TEXTS), texts.add(&other));
            assert!(!first.has_common_texts_of(&second));
            let one = texts.read(&first, None);
            assert_eq!((one.tool, one.agent), ("forecast", "weather"));
            let read = texts.read(&second, Some((&first, one)));
            assert_eq!((read.tool, read.agent), (other.tool, other.agent));
        }
    }
}
