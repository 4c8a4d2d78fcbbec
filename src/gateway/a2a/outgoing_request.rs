//! What goes to the agent: what a client asks, in the agent's version and binding, about the agent's own ids.
//!
//! Of one version it goes as it came, with other ids at most. Not here: reading it (see `asked`, `rest`), whether it may be asked (see
//! `calling`), the answer (see `answers`).

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

/// What a client reads in the place of what is told to its agent alone.
const HOOK: &str = "(a webhook)";

/// Fewest bytes of a name that nobody guesses: those of a UUID without its dashes.
const UNGUESSED: usize = 32;

/// A request on its way.
pub(super) struct OutgoingRequest<'a> {
    /// The requests, of which the first that the agent has a route for counts.
    pub(super) written: Vec<BoundRequest>,
    /// The task that it is about, by the agent's id.
    pub(super) task: Option<String>,
    /// `None`: the client speaks the agent's version.
    pub(super) translation: Option<ExchangeTranslation<'a>>,
    /// Whether the answer is what JSON-RPC has in an envelope.
    pub(super) is_bare: bool,
    /// The params of a list that is made of several of the agent's (see `listing`).
    pub(super) list: Option<String>,
}

impl<'c> ProxiedRequest<'c> {
    /// Writes it for the agent.
    ///
    /// # Errors
    ///
    /// Why it cannot be asked.
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
                // What a list asks for is written question by question.
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
                    pushing.build_registration().iter().for_each(|secret| ids.record_shown(secret, HOOK))
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

    /// With these params, in the agent's version.
    ///
    /// # Errors
    ///
    /// Why it cannot be asked.
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

    /// Params of the agent's version as the agent gets them, and the task that they are about.
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
            // Only where it matters which endpoint is asked.
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
            pushing.build_registration().iter().for_each(|secret| ids.record_shown(secret, HOOK));
        }
        Ok((opened.map(Cow::Owned).or(params), task))
    }

    /// Refuses what names no task or says nothing where a webhook goes along: what is wrong with it is not for the agent to repeat.
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

    /// Refuses names of tasks and sessions that clients of A2A 0.1 make, where somebody else might make the same one and be taken for
    /// the same: all those who show nothing of themselves are one.
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

    /// What the params say of the tenant: in HTTP+JSON the path does.
    fn tenant(&self) -> Option<&str> {
        self.known.interface.tenant.as_deref().filter(|_| !self.is_http_json())
    }

    /// Whether it is called by HTTP+JSON.
    pub(super) fn is_http_json(&self) -> bool {
        self.known.interface.binding == Binding::HttpJson
    }

    /// Whether it is about webhooks, or comes with one.
    pub(super) fn has_push(&self) -> bool {
        let is_about_push = self.operation.is_some_and(is_push);
        is_about_push
            || self.spelling.pushes && self.asked.params.is_some_and(|params| has_push(params.get()))
    }

    /// The request for the extended card of an agent of A2A 0.2, which has no method for it.
    fn extended_card_of_0_2(&self) -> Option<BoundRequest> {
        let version = self.known.interface.version.as_deref().unwrap_or_default();
        let is_so = self.operation == Some(Operation::ExtendedCard)
            && self.dialect() == Dialect::V0_3
            && version.starts_with("0.2");
        let route = EXTENDED_CARD_OF_0_2.to_owned();
        is_so.then(|| BoundRequest { verb: Method::GET, route, body: Bytes::new() })
    }
}
