//! What becomes of an agent's answer where it cannot go back as it is: ids are sealed, lists hold the caller's tasks only, cards lead
//! to the gateway, and for the binding HTTP+JSON the envelope is taken off.
//!
//! Not here: reading it from the agent (see `passing`).

use std::borrow::Cow;

use bytes::Bytes;
use http::StatusCode;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::card::Front;
use super::events::changed;
use super::ids::Ids;
use super::members::Members;
use super::passing::Translate;
use super::pushing::Pushing;
use super::refusal::{Refusal, rest_error, rest_status};
use crate::a2a::Dialect;
use crate::a2a::relay::Operation;
use crate::fault::Trouble;
use crate::jsonrpc::Id;
use crate::sse::encoder;

/// How a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Binding {
    /// JSON-RPC.
    Rpc,
    /// HTTP+JSON.
    Rest,
}

/// What is to become of the answer to one request.
pub(super) struct Answers<'a> {
    pub(super) agent: &'a str,
    pub(super) dialect: Dialect,
    pub(super) id: &'a Id,
    /// `None`: a method of an extension.
    pub(super) operation: Option<Operation>,
    pub(super) binding: Binding,
    /// `None`: ids stay as they are.
    pub(super) ids: Option<Ids<'a>>,
    /// Whose webhooks may be seen; `None`: those that are there.
    pub(super) pushing: Option<Pushing<'a>>,
    /// How a card in the answer is shown; `None`: there is none.
    pub(super) front: Option<Front<'a>>,
}

#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Failure<'a> {
    #[serde(default)]
    code: i32,
    #[serde(default, borrow)]
    message: Cow<'a, str>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

impl Answers<'_> {
    /// Whether an answer may be another one when it goes on.
    pub(super) fn change_it(&self) -> bool {
        let has_ids = self.ids.is_some() && self.operation.is_some();
        has_ids || self.front.is_some() || self.binding == Binding::Rest
    }

    /// What becomes of one answer, and the HTTP status that goes with it.
    pub(super) fn answer(&mut self, text: &str) -> Result<(StatusCode, String), Trouble> {
        let pushing = self.pushing.as_ref();
        let restored = pushing.and_then(|pushing| pushing.answered(text, self.id, self.operation));
        self.changed(restored.as_deref().unwrap_or(text))
    }

    fn changed(&mut self, text: &str) -> Result<(StatusCode, String), Trouble> {
        let unreadable = || Trouble::Misbehaved("its answer is no JSON-RPC response".into());
        let Answer { result, error } = serde_json::from_str(text).map_err(|_| unreadable())?;
        match (result, error, self.binding) {
            (_, Some(_), Binding::Rpc) => Ok((StatusCode::OK, text.to_owned())),
            (_, Some(error), Binding::Rest) => self.failed(error).ok_or_else(unreadable),
            (None, None, Binding::Rpc) => Ok((StatusCode::OK, text.to_owned())),
            (None, None, Binding::Rest) => Ok((StatusCode::OK, "{}".to_owned())),
            (Some(result), None, Binding::Rest) => {
                Ok((StatusCode::OK, self.result(result.get())?.into_owned()))
            }
            (Some(result), None, Binding::Rpc) => {
                let start = result.get().as_ptr().addr().wrapping_sub(text.as_ptr().addr());
                let around = (text.get(..start), text.get(start + result.get().len()..));
                let (Some(before), Some(after)) = around else { return Err(unreadable()) };
                Ok((StatusCode::OK, format!("{before}{}{after}", self.result(result.get())?)))
            }
        }
    }

    fn failed(&self, error: &RawValue) -> Option<(StatusCode, String)> {
        let Failure { code, message, data } = serde_json::from_str(error.get()).ok()?;
        let status = rest_status(code);
        let details = data.filter(|data| data.get().starts_with('['));
        String::from_utf8(rest_error(status, &message, details)).ok().map(|body| (status, body))
    }

    fn result<'r>(&mut self, result: &'r str) -> Result<Cow<'r, str>, Trouble> {
        if let Some(front) = &self.front {
            let card = front.show(result).ok_or_else(|| Trouble::Misbehaved("its card is no card".into()))?;
            return Ok(Cow::Owned(card));
        }
        let (Some(ids), Some(operation)) = (&mut self.ids, self.operation) else {
            return Ok(Cow::Borrowed(result));
        };
        if operation != Operation::List {
            return ids.sealed(result, operation);
        }
        let own = own_tasks(result, ids)
            .ok_or_else(|| Trouble::Misbehaved("its list of tasks cannot be read".into()))?;
        ids.sealed(&own, operation).map(|sealed| Cow::Owned(sealed.into_owned()))
    }
}

impl Translate for Answers<'_> {
    fn events(&mut self, events: Bytes) -> Result<Bytes, Trouble> {
        if !self.change_it() {
            return Ok(events);
        }
        let text =
            str::from_utf8(&events).map_err(|_| Trouble::Misbehaved("its events are not UTF-8".into()))?;
        changed(text, |data| self.answer(data).map(|(_, data)| data)).map(Bytes::from)
    }

    fn failure(&self, trouble: &Trouble) -> Vec<u8> {
        let said = Refusal::Trouble(trouble.clone()).said(self.agent);
        let mut event = Vec::new();
        match self.binding {
            Binding::Rpc => encoder::event(&mut event, &said.rpc(Some(self.id), self.dialect)),
            Binding::Rest => {
                event.extend_from_slice(b"event: error\n");
                encoder::event(&mut event, &said.rest());
            }
        }
        event
    }

    fn rest(&self, rest: Bytes) -> Bytes {
        // Readers throw an event away that never ended.
        if self.change_it() { Bytes::new() } else { rest }
    }
}

/// A page of a list without the tasks of others.
fn own_tasks(result: &str, ids: &Ids<'_>) -> Option<String> {
    #[derive(Deserialize)]
    struct Named<'a> {
        #[serde(borrow)]
        id: Cow<'a, str>,
    }
    let mut page = Members::read(result)?;
    let all: Vec<&RawValue> = match page.find("tasks") {
        Some(tasks) => serde_json::from_str(tasks.get()).ok()?,
        None => Vec::new(),
    };
    let is_own = |task: &&RawValue| {
        serde_json::from_str::<Named<'_>>(task.get()).is_ok_and(|named| ids.has(&named.id))
    };
    let own: Vec<Box<RawValue>> = all.into_iter().filter(is_own).map(ToOwned::to_owned).collect();
    page.put("tasks", &own);
    page.put("totalSize", &ids.count());
    if let Some(token) = page.text("nextPageToken").filter(|token| !token.is_empty()) {
        page.put("nextPageToken", &ids.page(&token));
    }
    Some(page.written().get().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(id: &Id, binding: Binding) -> Answers<'_> {
        let operation = Some(Operation::Get);
        Answers {
            agent: "bard",
            dialect: Dialect::V1,
            id,
            operation,
            binding,
            ids: None,
            pushing: None,
            front: None,
        }
    }

    #[test]
    fn the_envelope_is_taken_off_for_those_who_have_none() {
        let id: Id = serde_json::from_str("1").unwrap();
        let mut rest = answers(&id, Binding::Rest);
        for (text, status, body) in [
            (r#"{"id":1,"result": {"a" : 1.0}}"#, 200, r#"{"a" : 1.0}"#),
            (r#"{"id":1,"result":null}"#, 200, "{}"),
            (
                r#"{"id":1,"error":{"code":-32001,"message":"Task not found","data":[{"reason":"TASK_NOT_FOUND"}]}}"#,
                404,
                r#"{"error":{"code":404,"status":"NOT_FOUND","message":"Task not found","details":[{"reason":"TASK_NOT_FOUND"}]}}"#,
            ),
        ] {
            let (found, written) = rest.answer(text).unwrap();
            assert_eq!((found.as_u16(), written.as_str()), (status, body), "{text}");
        }
        assert!(rest.answer("[]").is_err() && rest.answer(r#"{"result":1,"result":2}"#).is_err());
    }

    #[test]
    fn what_need_not_change_does_not() {
        let id: Id = serde_json::from_str("1").unwrap();
        let mut plain = answers(&id, Binding::Rpc);
        let events = Bytes::from_static(b"data: not even JSON\n\n");
        assert_eq!(plain.events(events.clone()).unwrap(), events);
        assert_eq!(plain.rest(events.clone()), events);
    }
}
