//! Request of an A2A client, the check of its member names, and the request for the agent that is made
//! from it.
//!
//! The request for the agent has the agent's version, binding and ids. If client and agent have the
//! same version, at most the ids change; a request without a change is forwarded byte for byte.
//!
//! Some servers match member names in any case (`ID`, `taſkId`), so such a name would have a meaning
//! for the agent and none for the gateway's checks: ids, tenants and URLs would pass unseen. Such a
//! request is rejected. See also `jsonrpc::object` for duplicate names, `rest` (parsing of the HTTP+JSON
//! binding), `proxy` (authorization), `ids` and `response`.

use std::borrow::Cow;

use bytes::Bytes;
use http::Method;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::error::{A2aError, is_push};
use super::ids::{ExchangeIds, OpenedParams};
use super::proxy::ProxiedRequest;
use super::push::{REGISTRATION_MEMBERS, WebhookRewriter, has_push};
use super::translate::{Direction, ExchangeTranslation, RequestIds, task_of};
use crate::a2a::translate::{EXTENDED_CARD_OF_0_2, Operation, RewriteError, splice_params};
use crate::a2a::{Binding, BoundRequest, Dialect};
use crate::fault::{Abort, Fault};
use crate::jsonrpc::object::RawObject;
use crate::jsonrpc::{
    Id, Message, MessageKind, ParseError, Scan, Text, each_name, is_batch, parse_raw, recover_id, well_formed,
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

/// A request that cannot be read.
#[derive(Debug)]
pub(super) struct UnreadableRequest {
    pub(super) fault: Fault,
    /// Id for the response, if it can be read.
    pub(super) id: Option<Id>,
}

impl UnreadableRequest {
    fn without_id(fault: Fault) -> Self {
        Self { fault, id: None }
    }
}

/// Parses a body.
///
/// # Errors
///
/// The fault, and the id for its response.
pub(super) fn read(body: &[u8], depth: usize) -> Result<JsonRpcRequest<'_>, UnreadableRequest> {
    let text = well_formed(body, depth)
        .map_err(|malformed| UnreadableRequest::without_id(Fault::ParseError(malformed.to_string())))?;
    if is_batch(text) {
        let fault = Fault::InvalidRequest("A2A has no batches: send one request".into());
        return Err(UnreadableRequest::without_id(fault));
    }
    let unreadable = |error| match error {
        ParseError::NotJson(what) => UnreadableRequest::without_id(Fault::ParseError(what)),
        ParseError::NotMessage(what) => {
            UnreadableRequest { fault: Fault::InvalidRequest(what), id: recover_id(text) }
        }
        ParseError::BadParams(what) => {
            UnreadableRequest { fault: Fault::InvalidParams(what), id: recover_id(text) }
        }
    };
    let mut ambiguous = None;
    let check = |name: &str| ambiguous = ambiguous.take().or_else(|| ambiguous_envelope_member(name));
    let Message { kind, id, method, params, .. } = parse_raw(text, check).map_err(unreadable)?;
    if let Some(ambiguous) = ambiguous {
        return Err(UnreadableRequest { fault: Fault::InvalidRequest(ambiguous), id });
    }
    match (kind, id) {
        (MessageKind::Request | MessageKind::Notification, id) => {
            let has_id = kind == MessageKind::Request;
            Ok(JsonRpcRequest { id: id.unwrap_or_else(Id::null), has_id, method, params })
        }
        (MessageKind::Response, id) => {
            Err(UnreadableRequest { fault: Fault::InvalidRequest("member \"method\" is missing".into()), id })
        }
    }
}

impl JsonRpcRequest<'_> {
    /// Returns the body with these params. If the params are unchanged, the original body is
    /// reused.
    fn with_params(&self, params: Option<&str>, body: &Bytes) -> Bytes {
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
fn for_tenant<'a>(params: Option<&'a str>, tenant: Option<&str>) -> Result<Option<Cow<'a, str>>, Fault> {
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

/// Member names, and their folded forms: in one case and without separators.
struct MemberNames {
    names: &'static [&'static str],
    folded: &'static [&'static str],
}

/// Names of the envelope.
const ENVELOPE: MemberNames = MemberNames {
    names: &["jsonrpc", "id", "method", "params"],
    folded: &["jsonrpc", "id", "method", "params"],
};

/// Names in params that the gateway checks or replaces.
const CHECKED: MemberNames = MemberNames {
    names: &[
        "id",
        "taskId",
        "task_id",
        "contextId",
        "context_id",
        "sessionId",
        "referenceTaskIds",
        "reference_task_ids",
        "message",
        "configuration",
        "pushNotification",
        "pushNotificationConfig",
        "push_notification_config",
        "taskPushNotificationConfig",
        "task_push_notification_config",
        "pushNotificationConfigId",
        "push_notification_config_id",
        "url",
        "tenant",
        "pageToken",
        "page_token",
        "metadata",
        "data",
    ],
    folded: &[
        "id",
        "taskid",
        "contextid",
        "sessionid",
        "referencetaskids",
        "message",
        "configuration",
        "pushnotification",
        "pushnotificationconfig",
        "taskpushnotificationconfig",
        "pushnotificationconfigid",
        "url",
        "tenant",
        "pagetoken",
        "metadata",
        "data",
    ],
};

/// Members with free content, which only the agent interprets.
const UNCHECKED: [&str; 2] = ["metadata", "data"];

/// Facts about the member names in params, so that absent members need no search.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ParamMembers {
    /// Error for the first name that only resembles a significant one, or for the text before it.
    pub(super) ambiguous: Option<String>,
    /// True if there may be a webhook, or a request about one.
    pub(super) pushes: bool,
    /// True if there may be a tenant.
    tenant: bool,
}

impl ParamMembers {
    /// Collects the facts from these params, which have been parsed before.
    pub(super) fn of(params: Option<&str>) -> Self {
        let mut found = Self::default();
        each_name(params.unwrap_or_default(), |name| {
            if CHECKED.is_like(name.as_str()) {
                // The rest is not scanned.
                found = Self { ambiguous: Some(ambiguous_member(name.as_str())), pushes: true, tenant: true };
                return Scan::NoMore;
            }
            if UNCHECKED.contains(&name.as_str()) {
                return Scan::Beyond;
            }
            found.record(name.as_str());
            Scan::Within
        });
        found
    }

    fn record(&mut self, name: &str) {
        match name {
            "tenant" => self.tenant = true,
            "url" => self.pushes = true,
            _ if REGISTRATION_MEMBERS.contains(&name) => self.pushes = true,
            _ => {}
        }
    }
}

/// Returns the error for a member name that only resembles one of JSON-RPC.
fn ambiguous_envelope_member(name: &str) -> Option<String> {
    ENVELOPE.is_like(name).then(|| ambiguous_member(name))
}

fn ambiguous_member(name: &str) -> String {
    format!("{name:?} is no name of A2A; its case counts").chars().take(100).collect()
}

impl MemberNames {
    /// Returns true if a name resembles one of these, but is none of them.
    fn is_like(&self, name: &str) -> bool {
        // The longest name has 29 letters, of two or three bytes at worst.
        if name.len() > 96 {
            return false;
        }
        if name.bytes().all(|byte| byte.is_ascii() && byte != b'_') {
            // Most names resemble none: those need no second comparison.
            let is_folded_like = self.folded.iter().any(|known| known.eq_ignore_ascii_case(name));
            return is_folded_like && !self.names.contains(&name);
        }
        !self.names.contains(&name) && self.folded.contains(&&*folded(name))
    }
}

/// Returns a name in one case, without separators.
fn folded(name: &str) -> String {
    let letters = name.chars().filter(|c| *c != '_');
    letters.flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect()
}

/// Text that replaces a webhook credential in errors; only the agent may see the credential.
const REDACTED_WEBHOOK: &str = "(a webhook)";

/// Fewest bytes of an unguessable id: those of a UUID without dashes.
const MIN_UNGUESSABLE_BYTES: usize = 32;

/// Request for the agent.
pub(super) struct OutgoingRequest<'a> {
    /// Alternatives of the request; the first one counts for which the agent has a route.
    pub(super) written: Vec<BoundRequest>,
    /// The task of the request, by the agent's id.
    pub(super) task: Option<String>,
    /// `None` if the client speaks the agent's version.
    pub(super) translation: Option<ExchangeTranslation<'a>>,
    /// The dialect of a response that is a bare result, without the JSON-RPC envelope; `None` if it has one.
    pub(super) bare: Option<Dialect>,
    /// Params of a list that is assembled from several requests (see `list_tasks`).
    pub(super) list: Option<String>,
}

/// Params for an agent with the client's version, and the task that they are about.
struct OutgoingParams<'c> {
    params: Option<Cow<'c, str>>,
    task: Option<String>,
}

impl<'c> ProxiedRequest<'c> {
    /// Builds the request for the agent.
    ///
    /// # Errors
    ///
    /// [`Abort`] with the reason for which the request is not possible.
    pub(super) fn build<'a>(
        &self,
        ids: RequestIds<'_, '_, 'a>,
        webhooks: Option<&mut WebhookRewriter<'_>>,
    ) -> Result<OutgoingRequest<'a>, Abort<A2aError>> {
        self.check_ids(ids.sealed.as_deref())?;
        if let Some(card) = self.extended_card_of_0_2() {
            return Ok(OutgoingRequest {
                written: vec![card],
                task: None,
                translation: None,
                bare: Some(self.dialect()),
                list: None,
            });
        }
        let agent = self.dialect();
        match self.operation.filter(|_| self.client != agent) {
            Some(operation) if operation.name(agent).is_none() => {
                Err(A2aError::NoCounterpart(operation, agent).into())
            }
            Some(operation) if operation != Operation::ExtendedCard => {
                self.translated(operation, ids, webhooks)
            }
            Some(_) | None => {
                let is_list = self.operation == Some(Operation::List)
                    && (ids.sealed.is_some() || self.resolved.endpoints() > 1);
                let OutgoingParams { params, task } = self.params(ids.sealed, webhooks)?;
                let list = is_list.then(|| params.as_deref().unwrap_or("{}").to_owned());
                // The requests of a list are encoded one by one.
                let written = if is_list { Vec::new() } else { self.encode(params.as_deref())? };
                Ok(OutgoingRequest { written, task, translation: None, bare: self.bare(), list })
            }
        }
    }

    fn translated<'a>(
        &self,
        operation: Operation,
        mut ids: RequestIds<'_, '_, 'a>,
        webhooks: Option<&mut WebhookRewriter<'_>>,
    ) -> Result<OutgoingRequest<'a>, Abort<A2aError>> {
        let direction = Direction { client: self.client, agent: self.dialect(), operation };
        let routed = match (webhooks, self.request.params) {
            (Some(webhooks), Some(params)) => {
                let handle = task_of(params.get(), self.client, operation);
                self.check_push(params.get(), handle.as_deref())?;
                let task = handle.as_ref().and_then(|handle| ids.open(handle));
                let routed = webhooks.routed(params.get(), operation, task.as_deref())?;
                if let Some(sealed) = &mut ids.sealed {
                    let secrets = webhooks.generated_secrets().iter();
                    secrets.for_each(|secret| sealed.record_shown(secret, REDACTED_WEBHOOK));
                }
                RawValue::from_string(routed).ok()
            }
            _ => None,
        };
        let params = routed.as_deref().or(self.request.params);
        let (translation, translated) = ExchangeTranslation::begin(direction, params, self.tenant(), ids)?;
        let written = self.encode(Some(&translated.params))?;
        let (task, translation) = (translated.task, Some(translation));
        Ok(OutgoingRequest { written, task, translation, bare: self.bare(), list: None })
    }

    /// Encodes the request with these params, in the agent's version.
    ///
    /// # Errors
    ///
    /// [`Abort`] with the reason for which the request is not possible.
    pub(super) fn encode(&self, params: Option<&str>) -> Result<Vec<BoundRequest>, Abort<A2aError>> {
        if self.is_bare() {
            let operation = self.operation.ok_or(A2aError::NoMethods)?;
            let routed = self.resolved.interface.to_http(operation, params.unwrap_or("{}"));
            return Ok(routed.map_err(|why| Fault::InvalidParams(why.0.to_owned()))?);
        }
        let own = self.request.method.as_str();
        let method = self.operation.and_then(|operation| operation.name(self.dialect())).unwrap_or(own);
        let body = match self.body.filter(|_| method == own) {
            Some(body) => self.request.with_params(params, body),
            None => self.request.written(method, params),
        };
        Ok(vec![body.into()])
    }

    /// Returns the params for an agent with the client's version, and the task that they are about.
    fn params(
        &self,
        ids: Option<&mut ExchangeIds<'_>>,
        webhooks: Option<&mut WebhookRewriter<'_>>,
    ) -> Result<OutgoingParams<'c>, Abort<A2aError>> {
        let written = self.request.params.map(RawValue::get);
        let dialect = self.dialect();
        if let Some(ambiguous) = &self.members.ambiguous {
            return Err(Fault::InvalidParams(ambiguous.clone()).into());
        }
        let tenant = self.tenant();
        let may_have_tenant = self.members.tenant || self.operation.is_none();
        let params = match dialect {
            Dialect::V1 if tenant.is_some() || may_have_tenant => for_tenant(written, tenant)?,
            _ => written.map(Cow::Borrowed),
        };
        let (Some(operation), Some(text)) = (self.operation, params.as_deref()) else {
            return Ok(OutgoingParams { params, task: None });
        };
        let Some(ids) = ids else {
            // Needed only to select an endpoint.
            let task = match self.resolved.endpoints() {
                0 | 1 => None,
                _ => task_of(text, dialect, operation),
            };
            return Ok(OutgoingParams { params, task });
        };
        let OpenedParams { params: opened, task } = ids.open_task_id(text, operation)?;
        let mut opened = match opened {
            Cow::Borrowed(_) => None,
            Cow::Owned(opened) => Some(opened),
        };
        if let Some(webhooks) = webhooks {
            let text = opened.as_deref().unwrap_or(text);
            self.check_push(text, task.as_deref())?;
            opened = Some(webhooks.routed(text, operation, task.as_deref())?);
            webhooks.generated_secrets().iter().for_each(|secret| ids.record_shown(secret, REDACTED_WEBHOOK));
        }
        Ok(OutgoingParams { params: opened.map(Cow::Owned).or(params), task })
    }

    /// Rejects a request with a webhook that has no task id or no message: the agent's error text
    /// could repeat the credential.
    fn check_push(&self, params: &str, task: Option<&str>) -> Result<(), Fault> {
        let is_about_task = self.operation.is_some_and(is_push);
        if is_about_task && task.is_none_or(str::is_empty) {
            return Err(Fault::InvalidParams("the task's id is missing".into()));
        }
        let has_message = || RawObject::read(params).is_some_and(|members| members.find("message").is_some());
        if !is_about_task && !has_message() {
            return Err(Fault::InvalidParams("message is missing".into()));
        }
        Ok(())
    }

    /// Rejects guessable ids of tasks and sessions from anonymous clients of A2A 0.1: all anonymous
    /// clients are one caller, and another client could choose the same id.
    fn check_ids(&self, ids: Option<&ExchangeIds<'_>>) -> Result<(), Fault> {
        let (Some(operation), Some(params)) = (self.operation, self.request.params) else { return Ok(()) };
        if self.client != Dialect::V0_1 || !ids.is_some_and(ExchangeIds::is_anonymous) {
            return Ok(());
        }
        let short = |_, id: &str| if id.len() < MIN_UNGUESSABLE_BYTES { Err(()) } else { Ok(None) };
        match splice_params(params.get(), Dialect::V0_1, operation, short) {
            Err(RewriteError::Refused(())) => {
                let why = "a caller without a key or token names tasks and sessions by UUIDs: others could guess shorter ids";
                Err(Fault::InvalidParams(why.into()))
            }
            _ => Ok(()),
        }
    }

    /// Returns the tenant for the params; in HTTP+JSON it is part of the path.
    fn tenant(&self) -> Option<&str> {
        let interface = &self.resolved.interface;
        interface.tenant.as_deref().filter(|_| interface.binding != Binding::HttpJson)
    }

    /// Returns true if responses of the agent are results without the envelope of JSON-RPC.
    pub(super) fn is_bare(&self) -> bool {
        self.resolved.interface.binding.is_bare()
    }

    /// Returns the dialect of the agent, if its responses are bare results.
    fn bare(&self) -> Option<Dialect> {
        self.is_bare().then(|| self.dialect())
    }

    /// Returns true if the request is about webhooks, or contains one.
    pub(super) fn has_push(&self) -> bool {
        let is_about_push = self.operation.is_some_and(is_push);
        is_about_push
            || self.members.pushes && self.request.params.is_some_and(|params| has_push(params.get()))
    }

    /// Returns the request for the extended card of an agent of A2A 0.2, which has no method for
    /// it.
    fn extended_card_of_0_2(&self) -> Option<BoundRequest> {
        let version = self.resolved.interface.version.as_deref().unwrap_or_default();
        let is_wanted = self.operation == Some(Operation::ExtendedCard)
            && !self.is_bare()
            && self.dialect() == Dialect::V0_3
            && version.starts_with("0.2");
        let route = EXTENDED_CARD_OF_0_2.to_owned();
        is_wanted.then(|| BoundRequest { verb: Method::GET, route, body: Bytes::new() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(body: &str) -> (Fault, Option<String>) {
        let UnreadableRequest { fault, id } = read(body.as_bytes(), 64).unwrap_err();
        (fault, id.map(|id| id.as_json().to_owned()))
    }

    #[test]
    fn invalid_request_is_answered_under_its_id() {
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
        let request = read(&body, 64).unwrap();
        let params = request.params.map(RawValue::get);
        assert_eq!(request.with_params(params, &body).as_ptr(), body.as_ptr());
        assert_eq!(
            request.with_params(Some(r#"{"x":2}"#), &body),
            r#"{"jsonrpc":"2.0","id":1.0,"method":"a","params":{"x":2}}"#
        );
    }

    #[test]
    fn no_id_stays_no_id_and_null_stays_null() {
        for id in ["", r#""id":null,"#] {
            let body = Bytes::from(format!(r#"{{"jsonrpc":"2.0",{id}"method":"a","params":{{}}}}"#));
            let request = read(&body, 64).unwrap();
            assert_eq!((request.id.as_json(), request.written("a", Some("{}"))), ("null", body.clone()));
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

    #[test]
    fn lookalike_names_are_found_anywhere() {
        for json in [
            r#"{"ID":"t"}"#,
            r#"{"id":"mine","Id":"theirs"}"#,
            r#"{"TaskID":"t"}"#,
            r#"{"ta\u017fkId":"t"}"#,
            r#"{"task__id":"t"}"#,
            r#"{"Message":{}}"#,
            r#"{"message":{"CONTEXTID":"c"}}"#,
            r#"{"message":{"reference_taskIds":["t"]}}"#,
            r#"{"tenant":"x","Tenant":"other"}"#,
            r#"{"configuration":{"pushNotificationConfig":{"URL":"http://10.0.0.1/"}}}"#,
            r#"{"x":[{"Configuration":{}}]}"#,
        ] {
            assert!(ParamMembers::of(Some(json)).ambiguous.is_some(), "{json}");
        }
        let ambiguous = ambiguous_envelope_member("METHOD");
        assert_eq!(ambiguous.as_deref(), Some(r#""METHOD" is no name of A2A; its case counts"#));
        assert!(ambiguous_envelope_member("Params").is_some());
    }

    #[test]
    fn everything_else_is_let_through() {
        for json in [
            r#"{"message":{"role":"ROLE_USER","messageId":"m","parts":[{"text":"ID"},{"url":"http://x"}]}}"#,
            r#"{"message":{"metadata":{"ID":1},"parts":[{"data":{"TASKID":[1.5,null,true,-3]}}]}}"#,
            r#"{"id":"t","historyLength":3,"extension":{"ident":1}}"#,
            r#"{"message":{"task_id":"t","context_id":"c"},"ten":"x"}"#,
        ] {
            assert_eq!(ParamMembers::of(Some(json)).ambiguous, None, "{json}");
        }
        assert_eq!(ambiguous_envelope_member("more"), None);
    }

    #[test]
    fn every_name_is_known_as_it_is_folded() {
        for known in [&ENVELOPE, &CHECKED] {
            assert!(known.names.iter().all(|name| known.folded.contains(&&*folded(name))));
            assert!(known.folded.iter().all(|plain| known.names.iter().any(|name| folded(name) == *plain)));
        }
    }

    #[test]
    fn absent_names_cost_no_search() {
        for (params, pushes, tenant) in [
            (r#"{"message":{"parts":[{"text":"url pushNotificationConfig tenant"}]}}"#, false, false),
            (r#"{"message":{"metadata":{"url":"x","tenant":1}}}"#, false, false),
            (r#"{"configuration":{},"configuration":{}}"#, false, false),
            (r#"{"configuration":{"pushN\u006ftification\u0043onfig":{}}}"#, true, false),
            (r#"{"taskId":"t","u\u0072l":"http://x"}"#, true, false),
            (r#"{"t\u0065nant":"x"}"#, false, true),
            (r#"{"ID":"t","url":"http://x"}"#, true, true),
        ] {
            let members = ParamMembers::of(Some(params));
            assert_eq!((members.pushes, members.tenant), (pushes, tenant), "{params}");
        }
        assert_eq!(ParamMembers::of(None), ParamMembers::default());
    }
}
