//! JSON-RPC request of an A2A client, and its body for the agent.
//!
//! A request without a change is forwarded byte for byte. See also `ids`.

use std::borrow::Cow;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::member_names::ambiguous_envelope_member;
use crate::fault::Fault;
use crate::gateway::json_object::RawObject;
use crate::jsonrpc::{
    Id, Message, MessageKind, ParseError, Text, is_batch, parse_raw, recover_id, well_formed,
};

/// JSON-RPC request.
#[derive(Debug)]
pub(super) struct JsonRpcRequest<'a> {
    /// Id of the request; `null` if it has none: agents respond to such requests with this id.
    pub(super) id: Id,
    /// True if the request has an id.
    pub(super) has_id: bool,
    /// Method.
    pub(super) method: Text<'a>,
    /// Params, unchanged.
    pub(super) params: Option<&'a RawValue>,
}

/// Parses a body.
///
/// # Errors
///
/// The fault, and the id for its response.
pub(super) fn read(body: &[u8], depth: usize) -> Result<JsonRpcRequest<'_>, (Fault, Option<Id>)> {
    let text =
        well_formed(body, depth).map_err(|malformed| (Fault::ParseError(malformed.to_string()), None))?;
    if is_batch(text) {
        return Err((Fault::InvalidRequest("A2A has no batches: send one request".into()), None));
    }
    let wrong = |grammar| match grammar {
        ParseError::NotJson(what) => (Fault::ParseError(what), None),
        ParseError::NotMessage(what) => (Fault::InvalidRequest(what), recover_id(text)),
        ParseError::BadParams(what) => (Fault::InvalidParams(what), recover_id(text)),
    };
    let mut odd = None;
    let note = |name: &str| odd = odd.take().or_else(|| ambiguous_envelope_member(name));
    let Message { kind, id, method, params, .. } = parse_raw(text, note).map_err(wrong)?;
    if let Some(odd) = odd {
        return Err((Fault::InvalidRequest(odd), id));
    }
    match (kind, id) {
        (MessageKind::Request | MessageKind::Notification, id) => {
            let has_id = kind == MessageKind::Request;
            Ok(JsonRpcRequest { id: id.unwrap_or_else(Id::null), has_id, method, params })
        }
        (MessageKind::Response, id) => {
            Err((Fault::InvalidRequest("member \"method\" is missing".into()), id))
        }
    }
}

impl JsonRpcRequest<'_> {
    /// Returns the body with these params. If the params are unchanged, the original body is
    /// reused.
    pub(super) fn with_params(&self, params: Option<&str>, body: &Bytes) -> Bytes {
        match (params, self.params) {
            (None, None) => body.clone(),
            (Some(new), Some(old)) if std::ptr::eq(new, old.get()) => body.clone(),
            (params, _) => self.written(self.method.as_str(), params),
        }
    }

    /// Encodes the request with this method and these params.
    pub(super) fn written(&self, method: &str, params: Option<&str>) -> Bytes {
        // Text always serializes.
        let method = serde_json::to_string(method).unwrap_or_default();
        let params = params.map(|params| format!(",\"params\":{params}")).unwrap_or_default();
        let id = if self.has_id { format!("\"id\":{},", self.id.as_json()) } else { String::new() };
        format!("{{\"jsonrpc\":\"2.0\",{id}\"method\":{method}{params}}}").into()
    }
}

/// Returns params of A2A 1.0 with the tenant of the agent's interface instead of the client's: the
/// gateway's credentials are for that tenant.
///
/// # Errors
///
/// [`Fault::InvalidParams`].
pub(super) fn for_tenant<'a>(
    params: Option<&'a str>,
    tenant: Option<&str>,
) -> Result<Option<Cow<'a, str>>, Fault> {
    #[derive(Deserialize)]
    struct WrittenRequest<'a> {
        #[serde(borrow)]
        tenant: Option<&'a RawValue>,
    }
    let unreadable = || Fault::InvalidParams("tenant is there twice".into());
    let text = params.unwrap_or("{}");
    let written = serde_json::from_str::<WrittenRequest<'_>>(text).map_err(|_| unreadable())?;
    if written.tenant.is_none() && tenant.is_none() {
        return Ok(params.map(Cow::Borrowed));
    }
    let mut members =
        RawObject::read(text).ok_or_else(|| Fault::InvalidParams("a member is there twice".into()))?;
    match tenant {
        Some(tenant) => members.insert_or_replace("tenant", &tenant),
        None => members.remove("tenant"),
    }
    Ok(Some(Cow::Owned(members.written().get().to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(body: &str) -> (Fault, Option<String>) {
        let (fault, id) = read(body.as_bytes(), 64).unwrap_err();
        (fault, id.map(|id| id.as_json().to_owned()))
    }

    #[test]
    fn what_is_no_request_is_told_so_under_its_id() {
        for (body, is_so, id) in [
            ("{", "ParseError", None),
            ("[]", "InvalidRequest", None),
            (r#"{"jsonrpc":"1.0","id":7,"method":"a"}"#, "InvalidRequest", Some("7")),
            (r#"{"jsonrpc":"2.0","id":true,"method":"a"}"#, "InvalidRequest", None),
            (r#"{"jsonrpc":"2.0","id":{},"method":"a"}"#, "InvalidRequest", None),
            (r#"{"jsonrpc":"2.0","id":7,"result":{}}"#, "InvalidRequest", Some("7")),
            (r#"{"jsonrpc":"2.0","id":"x","method":"a","params":[]}"#, "InvalidParams", Some("\"x\"")),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"a","params":{"a":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]}}"#,
                "ParseError",
                None,
            ),
        ] {
            let (fault, found) = fault(body);
            assert!(format!("{fault:?}").starts_with(&format!("{is_so}(")), "{body}: {fault:?}");
            assert_eq!(found.as_deref(), id, "{body}");
        }
    }

    #[test]
    fn only_what_changes_is_written_anew() {
        let body = Bytes::from_static(
            br#"{ "id":1.0, "jsonrpc":"2.0","method":"a","params": {"x" : 1}, "more":1 }"#,
        );
        let asked = read(&body, 64).unwrap();
        let params = asked.params.map(RawValue::get);
        assert_eq!(asked.with_params(params, &body).as_ptr(), body.as_ptr());
        assert_eq!(
            asked.with_params(Some(r#"{"x":2}"#), &body),
            r#"{"jsonrpc":"2.0","id":1.0,"method":"a","params":{"x":2}}"#
        );
    }

    #[test]
    fn no_id_stays_no_id_and_null_stays_null() {
        for id in ["", r#""id":null,"#] {
            let body = Bytes::from(format!(r#"{{"jsonrpc":"2.0",{id}"method":"a","params":{{}}}}"#));
            let asked = read(&body, 64).unwrap();
            assert_eq!((asked.id.as_json(), asked.written("a", Some("{}"))), ("null", body.clone()));
        }
    }

    #[test]
    fn the_tenant_is_that_of_the_agent_whatever_a_client_writes() {
        for (params, tenant, expected) in [
            (Some(r#"{ "id" : "t" }"#), None, Some(r#"{ "id" : "t" }"#)),
            (Some(r#"{"tenant":"other","id":"t"}"#), None, Some(r#"{"id":"t"}"#)),
            (
                Some(r#"{"t\u0065nant":"other","id":"t"}"#),
                Some("acme"),
                Some(r#"{"tenant":"acme","id":"t"}"#),
            ),
            (Some(r#"{"id":1.0}"#), Some("acme"), Some(r#"{"id":1.0,"tenant":"acme"}"#)),
            (None, Some("acme"), Some(r#"{"tenant":"acme"}"#)),
            (None, None, None),
        ] {
            assert_eq!(for_tenant(params, tenant).unwrap().as_deref(), expected, "{params:?}");
        }
        assert!(for_tenant(Some(r#"{"tenant":"a","tenant":"b"}"#), None).is_err());
        assert!(for_tenant(Some(r#"{"id":1,"id":2}"#), Some("a")).is_err());
    }
}
