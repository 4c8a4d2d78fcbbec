//! Rewriting of an agent's response for the client: translation, sealed ids, card URLs of the gateway,
//! and the JSON-RPC envelope. In SSE events only the data is rewritten.
//!
//! See also `stream_body` (bytes), `list_tasks` and `translate` (versions).

use std::borrow::Cow;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::card::CardRewriter;
use super::error::{A2aError, RestError, rest_failure};
use super::ids::ExchangeIds;
use super::push::WebhookRewriter;
use super::stream_body::{self, BodyRewriter};
use super::translate::ExchangeTranslation;
use super::{EXTENSIONS, JSON, TypedBody};
use crate::a2a::translate::{self, HttpAnswer, Operation, to_json_rpc};
use crate::a2a::{AgentError, Binding, Dialect, ErrorKind, Task};
use crate::fault::AgentFailure;
use crate::http_edge::Headers;
use crate::jsonrpc::object::wrap;
use crate::jsonrpc::{Id, write_error};
use crate::sse::{self, Decoder, EventTooLarge};

/// Rewriter of the response to one request.
pub(super) struct ResponseRewriter<'a> {
    pub(super) agent: &'a str,
    /// Dialect of the client.
    pub(super) client: Dialect,
    /// Binding of the client. By gRPC it gets what it would get by HTTP+JSON.
    pub(super) binding: Binding,
    /// True if the response is converted to another form, for which it must be complete.
    pub(super) is_converted: bool,
    /// Dialect of an agent that sends bare results, without the JSON-RPC envelope; `None` if they have one.
    pub(super) bare: Option<Dialect>,
    pub(super) id: &'a Id,
    /// `None` for a method of an extension.
    pub(super) operation: Option<Operation>,
    /// `None` if ids stay as they are.
    pub(super) ids: Option<ExchangeIds<'a>>,
    /// `None` if the agent speaks the client's dialect.
    pub(super) translation: Option<ExchangeTranslation<'a>>,
    /// Rewriter that hides webhooks of other callers; `None` if webhooks stay as they are.
    pub(super) webhooks: Option<WebhookRewriter<'a>>,
    /// Events that come before those of the agent.
    pub(super) first: Vec<u8>,
    /// Rewriter for a card in the response; `None` if there is no card.
    pub(super) card: Option<CardRewriter<'a>>,
}

/// Error for a response to another request.
pub(super) const FOREIGN: &str = "its answer has the id of another request";

#[derive(Deserialize)]
struct RewrittenBody<'a> {
    /// Present even if it is null.
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct RewriteFailure<'a> {
    #[serde(default)]
    code: i32,
    #[serde(default, borrow)]
    message: Cow<'a, str>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

fn present<'de, D: Deserializer<'de>>(json: D) -> Result<Option<&'de RawValue>, D::Error> {
    Deserialize::deserialize(json).map(Some)
}

impl ResponseRewriter<'_> {
    /// Returns true if the body of a response may change.
    pub(super) fn rewrites_body(&self) -> bool {
        let has_ids = self.ids.is_some() && self.operation.is_some();
        let (client_has_envelope, agent_has_envelope) =
            (self.binding == Binding::JsonRpc, self.bare.is_none());
        has_ids
            || self.is_converted
            || self.card.is_some()
            || self.translation.is_some()
            || client_has_envelope != agent_has_envelope
    }

    /// Prepares a stream that begins with the present state of a task.
    pub(super) fn begin(&mut self, task: Task, agent: Dialect) {
        let Some(translation) = &mut self.translation else { return };
        for result in translation.task(self.ids.as_mut(), task, agent) {
            sse::write_event(&mut self.first, unwrap_envelope(self.binding, self.id, &result).as_bytes());
        }
    }

    /// Returns the media type of a response body.
    pub(super) fn media_type(&self, status: StatusCode) -> HeaderValue {
        match self.binding {
            Binding::HttpJson | Binding::Grpc if status.is_success() => {
                HeaderValue::from_static("application/a2a+json")
            }
            Binding::HttpJson | Binding::Grpc | Binding::JsonRpc => JSON,
        }
    }

    /// Returns the response body in its final form, with its media type.
    pub(super) fn body(&self, status: StatusCode, text: String) -> TypedBody {
        match (self.translation.is_some() || self.bare.is_some())
            && self.binding == Binding::JsonRpc
            && wants_events(self.client, self.operation)
        {
            true => one_event(text.as_bytes()),
            false => TypedBody { media_type: self.media_type(status), bytes: text.into() },
        }
    }

    /// Rewrites a complete response with this status; returns the new status and the body.
    ///
    /// # Errors
    ///
    /// [`AgentFailure`] if the response violates A2A.
    pub(super) fn answer(
        &mut self,
        text: &str,
        status: StatusCode,
    ) -> Result<(StatusCode, String), AgentFailure> {
        let Some(agent) = self.bare else {
            // A body with an error status may be the agent's JSON-RPC error, or come from a proxy
            // before the agent.
            let is_from_agent = status.is_success() || is_rpc_error(text);
            return if is_from_agent {
                self.response(text)
            } else {
                Err(AgentFailure::HttpStatus(status.as_u16()))
            };
        };
        let violation = |error: AgentError| AgentFailure::ProtocolViolation(error.to_string());
        let enveloped = to_json_rpc(self.id, self.answer_of(agent, status, text)).map_err(violation)?;
        let enveloped = enveloped.ok_or(AgentFailure::HttpStatus(status.as_u16()))?;
        match self.rewrites_body() || text.is_empty() {
            true => self.response(&enveloped),
            false => Ok((status, text.to_owned())),
        }
    }

    /// Returns a response or an event without an envelope, with the facts for its reader.
    fn answer_of<'t>(&self, agent: Dialect, status: StatusCode, json: &'t str) -> HttpAnswer<'t> {
        HttpAnswer { agent, operation: self.operation, status: status.as_u16(), json }
    }

    /// Rewrites a JSON-RPC response.
    fn response(&mut self, text: &str) -> Result<(StatusCode, String), AgentFailure> {
        if let Some(translation) = &mut self.translation {
            return match translation.result(self.ids.as_mut(), text) {
                Ok(result) => self.translated(&result),
                Err(error) => self.translated_error(&error),
            };
        }
        match self.with_own_webhooks(text) {
            Some(response) => self.in_binding(&response),
            None => self.in_binding(text),
        }
    }

    /// Returns the response with the client's own webhooks; `None` if it stays as it is.
    fn with_own_webhooks(&self, response: &str) -> Option<String> {
        self.webhooks.as_ref()?.restore_response(response, self.id, self.operation)
    }

    /// Returns the response for a result in the client's version.
    fn translated(&self, result: &str) -> Result<(StatusCode, String), AgentFailure> {
        let response = unwrap_envelope(Binding::JsonRpc, self.id, result);
        let Some(response) = self.with_own_webhooks(&response) else {
            return Ok((StatusCode::OK, self.rewrite(result)));
        };
        let unreadable = || AgentFailure::ProtocolViolation("its webhooks cannot be read".into());
        match (serde_json::from_str(&response).map_err(|_| unreadable())?, self.binding) {
            (_, Binding::JsonRpc) => Ok((StatusCode::OK, response)),
            (RewrittenBody { error: Some(error), .. }, Binding::HttpJson | Binding::Grpc) => {
                self.failed(error)?.ok_or_else(unreadable)
            }
            (RewrittenBody { result, .. }, Binding::HttpJson | Binding::Grpc) => {
                Ok((StatusCode::OK, result.map_or("{}", RawValue::get).to_owned()))
            }
        }
    }

    /// Rewrites a response to the client's binding.
    fn in_binding(&mut self, text: &str) -> Result<(StatusCode, String), AgentFailure> {
        let unreadable = || AgentFailure::ProtocolViolation("its answer is no JSON-RPC response".into());
        let RewrittenBody { result, error } = serde_json::from_str(text).map_err(|_| unreadable())?;
        if self.binding == Binding::JsonRpc && is_foreign(text.as_bytes(), self.id) {
            return Err(AgentFailure::ProtocolViolation(FOREIGN.into()));
        }
        match (result, error, self.binding) {
            // A member in an unexpected position might hold an id.
            (Some(_), Some(_), _) => Err(unreadable()),
            // Some agents send no result for a deletion.
            (None, None, _) if self.ids.is_some() && self.operation == Some(Operation::DeletePush) => {
                Ok((StatusCode::OK, self.rewrite("null")))
            }
            (None, None, _) if self.ids.is_some() => Err(unreadable()),
            (None, Some(error), Binding::HttpJson | Binding::Grpc) => {
                self.failed(error)?.ok_or_else(unreadable)
            }
            (None, Some(error), Binding::JsonRpc) => {
                let error_text = self.sanitize_error(error.get())?;
                replace_value(text, error, &error_text)
                    .map(|text| (StatusCode::OK, text))
                    .ok_or_else(unreadable)
            }
            (None, None, Binding::JsonRpc) => Ok((StatusCode::OK, text.to_owned())),
            (None, None, Binding::HttpJson | Binding::Grpc) => Ok((StatusCode::OK, "{}".to_owned())),
            (Some(result), None, Binding::HttpJson | Binding::Grpc) if result.get() == "null" => {
                Ok((StatusCode::OK, "{}".to_owned()))
            }
            (Some(result), None, Binding::HttpJson | Binding::Grpc) => {
                Ok((StatusCode::OK, self.result(result.get())?.into_owned()))
            }
            (Some(result), None, Binding::JsonRpc) => {
                let rewritten = self.result(result.get())?;
                replace_value(text, result, &rewritten)
                    .map(|text| (StatusCode::OK, text))
                    .ok_or_else(unreadable)
            }
        }
    }

    /// Returns the JSON of an error with all ids removed that the client may not see.
    fn sanitize_error<'e>(&self, error: &'e str) -> Result<Cow<'e, str>, AgentFailure> {
        match &self.ids {
            Some(ids) if self.operation.is_some() => ids.redact(error).map(Cow::Owned),
            Some(_) | None => Ok(Cow::Borrowed(error)),
        }
    }

    /// Returns a result in the client's binding.
    fn rewrite(&self, result: &str) -> String {
        unwrap_envelope(self.binding, self.id, result)
    }

    /// Returns an agent's error in the client's version and binding.
    fn translated_error(&self, error: &translate::RpcError) -> Result<(StatusCode, String), AgentFailure> {
        let translate::RpcError { code, message, data } = error;
        let code = i32::try_from(*code).unwrap_or(-32603);
        // Text always serializes.
        let message = serde_json::to_string(message).unwrap_or_default();
        let message: String = serde_json::from_str(&self.sanitize_error(&message)?).unwrap_or_default();
        let RestError { status, body } = match self.binding {
            Binding::JsonRpc => {
                let body = write_error(Some(self.id), code, &message, data.as_deref());
                RestError { status: StatusCode::OK, body }
            }
            Binding::HttpJson | Binding::Grpc => {
                let named = self.reason_of(code, &message, data.is_some());
                rest_failure(code, &message, data.as_deref().or(named.as_deref()))
            }
        };
        Ok((status, String::from_utf8(body).unwrap_or_default()))
    }

    /// Translates the complete events of an agent with another version.
    fn rewrite_events(&mut self, out: &mut Vec<u8>, events: &str) -> Result<(), AgentFailure> {
        let too_much = |large: EventTooLarge| AgentFailure::LimitExceeded(large.limit, "one event");
        for event in Decoder::new(events.len()).push(events.as_bytes()).map_err(too_much)? {
            // The data is part of a valid text.
            let data = str::from_utf8(&event.data).unwrap_or_default();
            if is_message(data) && !self.is_over() {
                self.event(out, data)?;
            }
        }
        Ok(())
    }

    /// Translates one event of an agent with another version.
    fn event(&mut self, out: &mut Vec<u8>, data: &str) -> Result<(), AgentFailure> {
        let bare = self.bare.map(|agent| self.answer_of(agent, StatusCode::OK, data));
        let Some(translation) = &mut self.translation else { return Ok(()) };
        let enveloped = match bare {
            Some(bare) => {
                let violation = |error: AgentError| AgentFailure::ProtocolViolation(error.to_string());
                let answer = to_json_rpc(self.id, bare).map_err(violation)?;
                Cow::Owned(
                    answer
                        .ok_or_else(|| AgentFailure::ProtocolViolation("its event cannot be read".into()))?,
                )
            }
            None => Cow::Borrowed(data),
        };
        match translation.events(self.ids.as_mut(), &enveloped) {
            Ok(results) => {
                results.iter().for_each(|result| sse::write_event(out, self.rewrite(result).as_bytes()));
            }
            Err(error) => {
                if self.binding.is_bare() {
                    out.extend_from_slice(b"event: error\n");
                }
                sse::write_event(out, self.translated_error(&error)?.1.as_bytes());
            }
        }
        Ok(())
    }

    fn failed(&self, error: &RawValue) -> Result<Option<(StatusCode, String)>, AgentFailure> {
        let error_text = self.sanitize_error(error.get())?;
        let Ok(RewriteFailure { code, message, data }) = serde_json::from_str(&error_text) else {
            return Ok(None);
        };
        let details = data.filter(|data| data.get().starts_with('['));
        let named = self.reason_of(code, &message, details.is_some());
        let RestError { status, body } = rest_failure(code, &message, details.or(named.as_deref()));
        Ok(String::from_utf8(body).ok().map(|body| (status, body)))
    }

    /// Returns the details that tell an error apart, if it has none and is converted: statuses of
    /// gRPC are fewer than errors of A2A.
    fn reason_of(&self, code: i32, message: &str, has_details: bool) -> Option<Box<RawValue>> {
        if !self.is_converted || has_details {
            return None;
        }
        let kind = ErrorKind::of(code.into(), self.client);
        translate::RpcError::new(kind, code.into(), message, Dialect::V1).data
    }

    fn result<'r>(&mut self, result: &'r str) -> Result<Cow<'r, str>, AgentFailure> {
        if let Some(card) = &self.card {
            let card = card
                .rewrite(result)
                .ok_or_else(|| AgentFailure::ProtocolViolation("its card is no card".into()))?;
            return Ok(Cow::Owned(card));
        }
        let (Some(ids), Some(operation)) = (&mut self.ids, self.operation) else {
            return Ok(Cow::Borrowed(result));
        };
        ids.seal_task_id(result, operation)
    }
}

impl BodyRewriter for ResponseRewriter<'_> {
    fn first(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.first)
    }

    fn headers(&self, of: &HeaderMap) -> Headers {
        let mut passed = stream_body::headers(of);
        if self.translation.is_some() {
            // An extension that is named under both headers is named twice.
            let [new, old] = &EXTENSIONS;
            let kept = if passed.iter().any(|(name, _)| name == new) { new } else { old };
            passed.retain(|(name, _)| name == kept);
            let name = self.client.extensions_header();
            passed.iter_mut().for_each(|(known, _)| *known = name.clone());
        }
        passed
    }

    fn events(&mut self, events: Bytes) -> (Bytes, Result<(), AgentFailure>) {
        if !self.rewrites_body() {
            return (events, Ok(()));
        }
        let Ok(text) = str::from_utf8(&events) else {
            return (Bytes::new(), Err(AgentFailure::ProtocolViolation("its events are not UTF-8".into())));
        };
        if self.translation.is_some() {
            let mut out = Vec::new();
            let done = self.rewrite_events(&mut out, text);
            return (out.into(), done);
        }
        let mut out = String::new();
        let done = rewrite_data(&mut out, text, |data| match is_message(data) {
            true => self.answer(data, StatusCode::OK).map(|(_, data)| Some(data)),
            false => Ok(None),
        });
        (out.into(), done)
    }

    fn is_over(&self) -> bool {
        self.translation.as_ref().is_some_and(ExchangeTranslation::is_over)
    }

    fn failure(&self, failure: &AgentFailure) -> Vec<u8> {
        let error = A2aError::Agent(failure.clone()).to_json(self.agent);
        let mut event = Vec::new();
        match self.binding {
            Binding::JsonRpc => sse::write_event(&mut event, &error.rpc(Some(self.id), self.client)),
            Binding::HttpJson | Binding::Grpc => {
                event.extend_from_slice(b"event: error\n");
                sse::write_event(&mut event, &error.rest());
            }
        }
        event
    }

    fn finish(&self, rest: Bytes) -> Bytes {
        // SSE readers discard an event that never ended.
        if self.rewrites_body() { Bytes::new() } else { rest }
    }
}

/// Returns true if a client expects events even for errors when it requests a stream: SDKs of A2A
/// 0.3 and older.
pub(super) fn wants_events(client: Dialect, operation: Option<Operation>) -> bool {
    client != Dialect::V1 && operation.is_some_and(Operation::is_stream)
}

/// Returns true if the data of an event holds a message: JSON of A2A is always an object. Some
/// servers write `[DONE]`, or an empty text.
fn is_message(data: &str) -> bool {
    data.trim_start().starts_with('{')
}

/// Returns true if a JSON-RPC response belongs to another request. A response without an id, or an
/// error with the id `null`, counts as matching.
pub(super) fn is_foreign(response: &[u8], id: &Id) -> bool {
    #[derive(Deserialize)]
    struct ClientResponse<'a> {
        #[serde(borrow)]
        id: Option<&'a RawValue>,
    }
    let Ok(ClientResponse { id: Some(theirs) }) = serde_json::from_slice(response) else { return false };
    let read = |json: &str| serde_json::from_str::<Value>(json).ok();
    match (read(theirs.get()), read(id.as_json())) {
        (Some(Value::Null), _) => false,
        // Agents may write the same number differently.
        (Some(Value::Number(theirs)), Some(Value::Number(ours))) => theirs.as_f64() != ours.as_f64(),
        (theirs, ours) => theirs != ours,
    }
}

/// Returns a result in the form of a binding.
fn unwrap_envelope(binding: Binding, id: &Id, result: &str) -> String {
    match binding {
        Binding::HttpJson | Binding::Grpc if result == "null" => "{}".to_owned(),
        Binding::HttpJson | Binding::Grpc => result.to_owned(),
        Binding::JsonRpc => format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{result}}}", id.as_json()),
    }
}

/// Returns a stream with this single event.
pub(super) fn one_event(json: &[u8]) -> TypedBody {
    let mut event = Vec::new();
    sse::write_event(&mut event, json);
    TypedBody { media_type: HeaderValue::from_static("text/event-stream"), bytes: event.into() }
}

/// Returns a text with one value replaced.
fn replace_value(text: &str, value: &RawValue, new: &str) -> Option<String> {
    wrap(text, value).map(|(before, after)| format!("{before}{new}{after}"))
}

/// Returns true if a body is a JSON-RPC error.
fn is_rpc_error(body: &str) -> bool {
    #[derive(Deserialize)]
    struct Answer {
        error: Option<ErrorCode>,
    }
    #[derive(Deserialize)]
    struct ErrorCode {
        #[serde(rename = "code")]
        _code: i64,
        #[serde(default, rename = "message")]
        _message: Option<IgnoredAny>,
    }
    serde_json::from_str::<Answer>(body).is_ok_and(|answer| answer.error.is_some())
}

/// Writes the same events with other data. Data on several lines is written on one: between the
/// tokens of JSON a line end means no more than a space. `change` may return `None` to leave an
/// event out.
///
/// # Errors
///
/// The error of `change`; the events before it are written.
fn rewrite_data<E>(
    out: &mut String,
    events: &str,
    mut change: impl FnMut(&str) -> Result<Option<String>, E>,
) -> Result<(), E> {
    out.reserve(events.len() + events.len() / 2);
    let mut data: Option<Cow<'_, str>> = None;
    // Start of the output of the current event.
    let mut begun = out.len();
    for (line, end) in lines_with_ends(events) {
        match data_value(line) {
            Some(value) => match &mut data {
                None => data = Some(Cow::Borrowed(value)),
                Some(before) => {
                    let before = before.to_mut();
                    before.push(' ');
                    before.push_str(value);
                }
            },
            None => {
                // The first line of another field ends the data: mostly a blank one. Further data
                // of the event follows on a line of its own.
                if line.is_empty()
                    && let Some(data) = data.take()
                {
                    let new = change(&data).inspect_err(|_| out.truncate(begun))?;
                    if let Some(new) = new {
                        out.push_str("data: ");
                        out.push_str(&new);
                        out.push_str(if end.is_empty() { "\n" } else { end });
                    }
                }
                out.push_str(line);
                out.push_str(end);
                if line.is_empty() {
                    begun = out.len();
                }
            }
        }
    }
    Ok(())
}

/// Returns the value of a data line.
fn data_value(line: &str) -> Option<&str> {
    // SSE readers ignore a byte order mark at the start of a stream.
    let rest = line.trim_start_matches('\u{FEFF}').strip_prefix("data")?;
    let rest = if rest.is_empty() { rest } else { rest.strip_prefix(':')? };
    Some(rest.strip_prefix(' ').unwrap_or(rest))
}

/// Returns the lines of a text, each with its line end.
fn lines_with_ends(mut text: &str) -> impl Iterator<Item = (&str, &str)> {
    std::iter::from_fn(move || {
        if text.is_empty() {
            return None;
        }
        let at = text.find(['\r', '\n']).unwrap_or(text.len());
        let (line, rest) = text.split_at(at);
        let length = if rest.starts_with("\r\n") { 2 } else { rest.len().min(1) };
        let (end, rest) = rest.split_at(length);
        text = rest;
        Some((line, end))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rewriter(id: &Id, binding: Binding) -> ResponseRewriter<'_> {
        let operation = Some(Operation::Get);
        ResponseRewriter {
            agent: "bard",
            client: Dialect::V1,
            binding,
            is_converted: false,
            bare: None,
            id,
            operation,
            ids: None,
            translation: None,
            webhooks: None,
            first: Vec::new(),
            card: None,
        }
    }

    #[test]
    fn the_envelope_is_taken_off_for_those_who_have_none() {
        let id: Id = serde_json::from_str("1").unwrap();
        let mut rest = rewriter(&id, Binding::HttpJson);
        for (text, status, body) in [
            (r#"{"id":1,"result": {"a" : 1.0}}"#, 200, r#"{"a" : 1.0}"#),
            (r#"{"id":1,"result":null}"#, 200, "{}"),
            (
                r#"{"id":1,"error":{"code":-32001,"message":"Task not found","data":[{"reason":"TASK_NOT_FOUND"}]}}"#,
                404,
                r#"{"error":{"code":404,"status":"NOT_FOUND","message":"Task not found","details":[{"reason":"TASK_NOT_FOUND"}]}}"#,
            ),
        ] {
            let (found, written) = rest.answer(text, StatusCode::OK).unwrap();
            assert_eq!((found.as_u16(), written.as_str()), (status, body), "{text}");
        }
        assert!(
            [r#"[]"#, r#"{"result":1,"result":2}"#]
                .iter()
                .all(|text| rest.answer(text, StatusCode::OK).is_err())
        );
    }

    #[test]
    fn unaffected_members_are_unchanged() {
        let id: Id = serde_json::from_str("1").unwrap();
        let mut plain = rewriter(&id, Binding::JsonRpc);
        let events = Bytes::from_static(b"data: not even JSON\n\n");
        let (passed, done) = plain.events(events.clone());
        assert_eq!((passed, done), (events.clone(), Ok(())));
        assert_eq!(plain.finish(events.clone()), events);
    }

    #[test]
    fn only_an_error_of_json_rpc_is_one() {
        for (body, is_one) in [
            (r#"{"id":1,"error":{"code":-32600,"message":"no"}}"#, true),
            (r#"{"error":"unauthorized"}"#, false),
            (r#"{"error":{"status":"x"}}"#, false),
            (r#"{"detail":"no"}"#, false),
            ("<html>", false),
        ] {
            assert_eq!(is_rpc_error(body), is_one, "{body}");
        }
    }

    fn rewritten(events: &str) -> String {
        let mut out = String::new();
        rewrite_data(&mut out, events, |data| Ok::<_, ()>(Some(data.replace("raw", "sealed")))).unwrap();
        out
    }

    #[test]
    fn only_data_changes() {
        for (events, expected) in [
            ("data: raw\n\n", "data: sealed\n\n"),
            ("data:raw\r\n\r\n", "data: sealed\r\n\r\n"),
            (": raw\r\n\r\n", ": raw\r\n\r\n"),
            (
                "event: error\nid: raw\ndata: raw\n\n: ping\n\n",
                "event: error\nid: raw\ndata: sealed\n\n: ping\n\n",
            ),
            ("data: {\ndata: raw}\n\ndata: raw\n\n", "data: { sealed}\n\ndata: sealed\n\n"),
            ("data: raw\nid: 7\n\n", "id: 7\ndata: sealed\n\n"),
            ("database: raw\n\n", "database: raw\n\n"),
            ("data: raw\r\r", "data: sealed\r\r"),
            ("\u{FEFF}data: raw\n\n", "data: sealed\n\n"),
        ] {
            assert_eq!(rewritten(events), expected, "{events:?}");
        }
    }

    #[test]
    fn unchangeable_event_ends_the_stream_after_earlier_ones() {
        let mut out = String::new();
        let ended = rewrite_data(&mut out, "data: 1\n\nid: 7\ndata: 2\n\n", |data| match data {
            "2" => Err("no"),
            data => Ok(Some(data.into())),
        });
        assert_eq!((ended, out.as_str()), (Err("no"), "data: 1\n\n"));
    }

    #[test]
    fn data_that_says_nothing_is_left_out() {
        let mut out = String::new();
        rewrite_data(&mut out, "event: ping\ndata: \n\ndata: 1\n\n", |data| {
            Ok::<_, ()>(Some(data.to_owned()).filter(|data| !data.is_empty()))
        })
        .unwrap();
        assert_eq!(out, "event: ping\n\ndata: 1\n\n");
    }

    #[test]
    fn many_lines_of_one_event_take_no_more_than_their_length() {
        let events = "data:x\n".repeat(200_000) + "\n";
        let began = std::time::Instant::now();
        assert_eq!(rewritten(&events).len(), "data: ".len() + 400_000 - 1 + 2);
        assert!(began.elapsed() < std::time::Duration::from_secs(5), "{:?}", began.elapsed());
    }

    proptest! {
        #[test]
        fn unchanged_bytes_are_kept(events in "((event: x|: c|id: 1)\n|data: [a-z]{1,9}\n\n|\n){0,9}") {
            let mut same = String::new();
            rewrite_data(&mut same, &events, |data| Ok::<_, ()>(Some(data.to_owned()))).unwrap();
            prop_assert_eq!(same, events);
        }
    }
}
