//! Outgoing request: the client's request in the agent's version and binding, with the agent's own
//! ids.
//!
//! If client and agent have the same version, at most the ids change. See also `request` and `rest`
//! (parsing), `proxy` (authorization) and `response`.

use std::borrow::Cow;

use bytes::Bytes;
use http::Method;
use serde_json::value::RawValue;

use super::detect_version::task_of;
use super::error::{A2aError, Stop};
use super::ids::ExchangeIds;
use super::operation::is_push;
use super::proxy::ProxiedRequest;
use super::push::WebhookRewriter;
use super::request;
use super::translate::{ClientIds, Direction, ExchangeTranslation};
use super::webhook_urls::has_push;
use crate::a2a::translate::{EXTENDED_CARD_OF_0_2, IdKind, Operation, RewriteError, splice_params};
use crate::a2a::{Binding, BoundRequest, Dialect};
use crate::fault::Fault;
use crate::gateway::json_object::RawObject;

/// Text that replaces a webhook credential in errors; only the agent may see the credential.
const HOOK: &str = "(a webhook)";

/// Fewest bytes of an unguessable id: those of a UUID without dashes.
const UNGUESSED: usize = 32;

/// Request for the agent.
pub(super) struct OutgoingRequest<'a> {
    /// Alternatives of the request; the first one counts for which the agent has a route.
    pub(super) written: Vec<BoundRequest>,
    /// The task of the request, by the agent's id.
    pub(super) task: Option<String>,
    /// `None` if the client speaks the agent's version.
    pub(super) translation: Option<ExchangeTranslation<'a>>,
    /// True if the response is a bare result, without the JSON-RPC envelope.
    pub(super) is_bare: bool,
    /// Params of a list that is assembled from several requests (see `list_tasks`).
    pub(super) list: Option<String>,
}

impl<'c> ProxiedRequest<'c> {
    /// Builds the request for the agent.
    ///
    /// # Errors
    ///
    /// [`Stop`] with the reason for which the request is not possible.
    pub(super) fn build<'a>(
        &self,
        ids: Option<&mut ExchangeIds<'_>>,
        own: Option<ClientIds<'a>>,
        pushing: Option<&mut WebhookRewriter<'_>>,
    ) -> Result<OutgoingRequest<'a>, Stop> {
        self.check_ids(ids.as_deref())?;
        if let Some(card) = self.extended_card_of_0_2() {
            return Ok(OutgoingRequest {
                written: vec![card],
                task: None,
                translation: None,
                is_bare: true,
                list: None,
            });
        }
        let agent = self.dialect();
        match self.operation.filter(|_| self.client != agent) {
            Some(operation) if operation.name(agent).is_none() => {
                Err(A2aError::NoCounterpart(operation, agent).into())
            }
            Some(operation) if operation != Operation::ExtendedCard => {
                self.translated(operation, (own, ids), pushing)
            }
            Some(_) | None => {
                let is_list =
                    self.operation == Some(Operation::List) && (ids.is_some() || self.known.endpoints() > 1);
                let (params, task) = self.params(ids, pushing)?;
                let list = is_list.then(|| params.as_deref().unwrap_or("{}").to_owned());
                // The requests of a list are encoded one by one.
                let written = if is_list { Vec::new() } else { self.encode(params.as_deref())? };
                Ok(OutgoingRequest { written, task, translation: None, is_bare: self.is_http_json(), list })
            }
        }
    }

    fn translated<'a>(
        &self,
        operation: Operation,
        (own, mut ids): (Option<ClientIds<'a>>, Option<&mut ExchangeIds<'_>>),
        pushing: Option<&mut WebhookRewriter<'_>>,
    ) -> Result<OutgoingRequest<'a>, Stop> {
        let between = Direction { client: self.client, agent: self.dialect(), operation };
        let routed = match (pushing, self.asked.params) {
            (Some(pushing), Some(params)) => {
                let handle = task_of(params.get(), (self.client, operation));
                self.check_push(params.get(), handle.as_deref())?;
                let opened = |handle: &String| match &own {
                    Some(own) => own.id_of(handle),
                    None => ids.as_deref()?.open(IdKind::Task, handle),
                };
                let task = handle.as_ref().and_then(opened);
                let routed = pushing.routed(params.get(), operation, task.as_deref())?;
                ids.iter_mut().for_each(|ids| {
                    pushing.generated_secrets().iter().for_each(|secret| ids.record_shown(secret, HOOK))
                });
                RawValue::from_string(routed).ok()
            }
            _ => None,
        };
        let params = routed.as_deref().or(self.asked.params);
        let (translation, asked) = ExchangeTranslation::begin(between, params, self.tenant(), (own, ids))?;
        let written = self.encode(Some(&asked.params))?;
        let (task, translation) = (asked.task, Some(translation));
        Ok(OutgoingRequest { written, task, translation, is_bare: self.is_http_json(), list: None })
    }

    /// Encodes the request with these params, in the agent's version.
    ///
    /// # Errors
    ///
    /// [`Stop`] with the reason for which the request is not possible.
    pub(super) fn encode(&self, params: Option<&str>) -> Result<Vec<BoundRequest>, Stop> {
        if self.is_http_json() {
            let operation = self.operation.ok_or(A2aError::NoMethods)?;
            let routed = self.known.interface.to_http(operation, params.unwrap_or("{}"));
            return Ok(routed.map_err(|why| Fault::InvalidParams(why.0.to_owned()))?);
        }
        let own = self.asked.method.as_str();
        let method = self.operation.and_then(|operation| operation.name(self.dialect())).unwrap_or(own);
        let body = match self.body.filter(|_| method == own) {
            Some(body) => self.asked.with_params(params, body),
            None => self.asked.written(method, params),
        };
        Ok(vec![body.into()])
    }

    /// Returns the params for an agent with the client's version, and the task that they are about.
    fn params(
        &self,
        ids: Option<&mut ExchangeIds<'_>>,
        pushing: Option<&mut WebhookRewriter<'_>>,
    ) -> Result<(Option<Cow<'c, str>>, Option<String>), Stop> {
        let written = self.asked.params.map(RawValue::get);
        let dialect = self.dialect();
        if let Some(odd) = &self.spelling.odd {
            return Err(Fault::InvalidParams(odd.clone()).into());
        }
        let tenant = self.tenant();
        let may_have_one = self.spelling.tenant || self.operation.is_none();
        let params = match dialect {
            Dialect::V1 if tenant.is_some() || may_have_one => request::for_tenant(written, tenant)?,
            _ => written.map(Cow::Borrowed),
        };
        let (Some(operation), Some(text)) = (self.operation, params.as_deref()) else {
            return Ok((params, None));
        };
        let Some(ids) = ids else {
            // Needed only to select an endpoint.
            let task = if self.known.endpoints() > 1 { task_of(text, (dialect, operation)) } else { None };
            return Ok((params, task));
        };
        let (opened, task) = ids.open_task_id(text, operation)?;
        let mut opened = match opened {
            Cow::Borrowed(_) => None,
            Cow::Owned(opened) => Some(opened),
        };
        if let Some(pushing) = pushing {
            let text = opened.as_deref().unwrap_or(text);
            self.check_push(text, task.as_deref())?;
            opened = Some(pushing.routed(text, operation, task.as_deref())?);
            pushing.generated_secrets().iter().for_each(|secret| ids.record_shown(secret, HOOK));
        }
        Ok((opened.map(Cow::Owned).or(params), task))
    }

    /// Rejects a request with a webhook that has no task id or no message: the agent's error text
    /// could repeat the credential.
    fn check_push(&self, params: &str, task: Option<&str>) -> Result<(), Fault> {
        let is_about_task = self.operation.is_some_and(is_push);
        if is_about_task && task.is_none_or(str::is_empty) {
            return Err(Fault::InvalidParams("the task's id is missing".into()));
        }
        let says = || RawObject::read(params).is_some_and(|members| members.find("message").is_some());
        if !is_about_task && !says() {
            return Err(Fault::InvalidParams("message is missing".into()));
        }
        Ok(())
    }

    /// Rejects guessable ids of tasks and sessions from anonymous clients of A2A 0.1: all anonymous
    /// clients are one caller, and another client could choose the same id.
    fn check_ids(&self, ids: Option<&ExchangeIds<'_>>) -> Result<(), Fault> {
        let (Some(operation), Some(params)) = (self.operation, self.asked.params) else { return Ok(()) };
        if self.client != Dialect::V0_1 || !ids.is_some_and(ExchangeIds::is_anonymous) {
            return Ok(());
        }
        let short = |_, id: &str| if id.len() < UNGUESSED { Err(()) } else { Ok(None) };
        match splice_params(params.get(), Dialect::V0_1, operation, short) {
            Err(RewriteError::Refused(())) => {
                let why = "who shows no key or token names tasks and sessions by UUIDs: others could guess shorter ids";
                Err(Fault::InvalidParams(why.into()))
            }
            _ => Ok(()),
        }
    }

    /// Returns the tenant for the params; in HTTP+JSON it is part of the path.
    fn tenant(&self) -> Option<&str> {
        self.known.interface.tenant.as_deref().filter(|_| !self.is_http_json())
    }

    /// Returns true if the agent is called by HTTP+JSON.
    pub(super) fn is_http_json(&self) -> bool {
        self.known.interface.binding == Binding::HttpJson
    }

    /// Returns true if the request is about webhooks, or contains one.
    pub(super) fn has_push(&self) -> bool {
        let is_about_push = self.operation.is_some_and(is_push);
        is_about_push
            || self.spelling.pushes && self.asked.params.is_some_and(|params| has_push(params.get()))
    }

    /// Returns the request for the extended card of an agent of A2A 0.2, which has no method for
    /// it.
    fn extended_card_of_0_2(&self) -> Option<BoundRequest> {
        let version = self.known.interface.version.as_deref().unwrap_or_default();
        let is_so = self.operation == Some(Operation::ExtendedCard)
            && self.dialect() == Dialect::V0_3
            && version.starts_with("0.2");
        let route = EXTENDED_CARD_OF_0_2.to_owned();
        is_so.then(|| BoundRequest { verb: Method::GET, route, body: Bytes::new() })
    }
}
