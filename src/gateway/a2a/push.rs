//! Rewriting of webhooks for clients with sealed ids: the agent gets a URL of the gateway instead
//! of the client's own, and the client sees its own again.
//!
//! Both in the form of the client's version. The URL holds all data that the gateway needs to
//! forward a push (see `seal::WebhookTicket`), so no state is kept here. A registration that does
//! not open for this caller at this agent belongs to another caller and is hidden. See also
//! `webhook_targets` (the policy) and `push_forward` (the pushes).

use std::borrow::Cow;

use http::HeaderValue;
use serde_json::json;
use serde_json::value::RawValue;

use super::error::A2aError;
use super::webhook_urls::NAMES;
use crate::a2a::Dialect;
use crate::a2a::translate::Operation;
use crate::agents::Agent;
use crate::fault::{AgentFailure, Fault};
use crate::gateway::Inner;
use crate::gateway::json_object::RawObject;
use crate::gateway::route::PUSH;
use crate::jsonrpc::Id;
use crate::seal::{MAX_WEBHOOK_URL, Sealer, TaskRef, WebhookAuthentication, WebhookTicket};

/// Rewriter of the webhooks of one caller at one agent.
pub(super) struct WebhookRewriter<'a> {
    sealer: &'a Sealer,
    /// Prefix of the gateway's push URLs.
    base: String,
    caller: String,
    agent: &'a str,
    /// Dialect of the client.
    dialect: Dialect,
    /// Tokens and credentials that were generated here, which only the agent may see.
    made: Vec<String>,
}

impl Inner {
    /// Returns true if pushes of an agent can be forwarded to clients.
    pub(super) fn passes_pushes(&self, agent: &Agent) -> bool {
        self.settings.push.enabled && self.settings.public_url.is_some() && agent.settings.push
    }

    /// Returns the webhook rewriter for a caller that speaks `dialect`, if pushes of the agent can
    /// be forwarded.
    pub(super) fn pushing<'a>(
        &'a self,
        caller: &str,
        agent: &'a Agent,
        dialect: Dialect,
    ) -> Option<WebhookRewriter<'a>> {
        let public = self.settings.public_url.as_deref().filter(|_| self.passes_pushes(agent))?;
        let base = format!("{}{PUSH}", public.trim_end_matches('/'));
        let (sealer, agent) = (&self.sealer, agent.settings.name.as_str());
        Some(WebhookRewriter { sealer, base, caller: caller.to_owned(), agent, dialect, made: Vec::new() })
    }
}

impl WebhookRewriter<'_> {
    /// Returns the client's params with URLs of the gateway instead of its webhooks. `task` is the
    /// agent's id of the task that they are about, if it is known.
    ///
    /// # Errors
    ///
    /// [`A2aError::BadPush`] if a registration is not readable or too long.
    pub(super) fn routed(
        &mut self,
        params: &str,
        operation: Operation,
        task: Option<&str>,
    ) -> Result<String, A2aError> {
        let mut params = RawObject::read(params).ok_or_else(unreadable)?;
        match operation {
            Operation::GetPush | Operation::DeletePush => match self.dialect {
                Dialect::V0_1 => {}
                Dialect::V0_3 => self.own_name(&mut params, "pushNotificationConfigId"),
                Dialect::V1 => self.own_name(&mut params, "id"),
            },
            Operation::SetPush => self.route(&mut params, task)?,
            _ => {
                self.route_within(&mut params, task)?;
                if let Some(inner) = public_config(&params, "configuration") {
                    let mut inner = RawObject::read(inner.get()).ok_or_else(unreadable)?;
                    self.route_within(&mut inner, task)?;
                    params.set("configuration", inner.written());
                }
            }
        }
        Ok(params.written().get().to_owned())
    }

    /// Returns a JSON-RPC response about registrations in the form for the client; `None` if it
    /// stays as it is.
    pub(super) fn answered(&self, response: &str, id: &Id, operation: Option<Operation>) -> Option<String> {
        let operation = operation.filter(|operation| shows_webhooks(*operation))?;
        let misbehaved = |what: &str| A2aError::Trouble(AgentFailure::ProtocolViolation(what.to_owned()));
        let refusal = match RawObject::read(response) {
            None => misbehaved("its answer cannot be read"),
            Some(members) if public_config(&members, "error").is_some() => return None,
            Some(mut members) => {
                let restored = self.restored(members.find("result")?.get(), operation);
                let result = restored.and_then(|result| RawValue::from_string(result.into_owned()).ok());
                match (result, operation) {
                    (Some(result), _) => {
                        members.set("result", result);
                        return Some(members.written().get().to_owned());
                    }
                    (None, Operation::SetPush) => misbehaved("it registered something else"),
                    (None, _) => A2aError::Fault(Fault::UnknownTask),
                }
            }
        };
        String::from_utf8(refusal.to_json(self.agent).rpc(Some(id), self.dialect)).ok()
    }

    /// Returns the result of an operation, in the client's version, with the client's own webhooks
    /// and without those of others; `None` if the result is a registration of another caller.
    pub(super) fn restored<'r>(&self, result: &'r str, operation: Operation) -> Option<Cow<'r, str>> {
        if operation == Operation::ListPush {
            return self.restored_list(result).map(Cow::Owned);
        }
        if !shows_webhooks(operation) {
            return Some(Cow::Borrowed(result));
        }
        let mut registration = RawObject::read(result)?;
        self.restore(&mut registration)?;
        let written = registration.written();
        // A remaining URL of the gateway must not be shown to a client.
        (!self.is_told(written.get())).then(|| Cow::Owned(written.get().to_owned()))
    }

    /// Returns true if a text contains a URL of the gateway.
    fn is_told(&self, text: &str) -> bool {
        text.contains(&self.base)
    }

    fn restored_list(&self, result: &str) -> Option<String> {
        let own = |list: &RawValue| -> Option<Vec<Box<RawValue>>> {
            let all: Vec<&RawValue> = serde_json::from_str(list.get()).ok()?;
            let own = all.into_iter().filter_map(|one| {
                let mut registration = RawObject::read(one.get())?;
                self.restore(&mut registration)?;
                Some(registration.written()).filter(|written| !self.is_told(written.get()))
            });
            Some(own.collect())
        };
        if result.trim_start().starts_with('[') {
            let all = own(serde_json::from_str(result).ok()?)?;
            return serde_json::to_string(&all).ok();
        }
        let mut page = RawObject::default();
        let given_page = RawObject::read(result)?;
        // Other members might hold a registration.
        if let Some(all) = public_config(&given_page, "configs") {
            page.insert_or_replace("configs", &own(all)?);
        }
        if let Some(token) = given_page.text("nextPageToken") {
            page.insert_or_replace("nextPageToken", &token);
        }
        Some(page.written().get().to_owned())
    }

    /// Returns the tokens and credentials that were generated for the agent.
    pub(super) fn generated_secrets(&self) -> &[String] {
        &self.made
    }

    /// Replaces the webhook in a registration, or in the registration nested in it.
    fn route(&mut self, registration: &mut RawObject, task: Option<&str>) -> Result<(), A2aError> {
        let is_around = self.route_within(registration, task)?;
        match public_config(registration, "url") {
            Some(_) => self.replace(registration, task),
            None if is_around => Ok(()),
            None => Err(A2aError::BadPush("it is missing".to_owned())),
        }
    }

    /// Replaces the webhook in every nested registration. Returns true if there is one.
    fn route_within(&mut self, params: &mut RawObject, task: Option<&str>) -> Result<bool, A2aError> {
        let mut found = false;
        for name in NAMES {
            let Some(inner) = public_config(params, name) else { continue };
            let mut registration = RawObject::read(inner.get()).ok_or_else(unreadable)?;
            self.route(&mut registration, task)?;
            params.set(name, registration.written());
            found = true;
        }
        Ok(found)
    }

    fn replace(&mut self, config: &mut RawObject, task: Option<&str>) -> Result<(), A2aError> {
        let ticket = WebhookTicket {
            caller: self.caller.clone(),
            agent: self.agent.to_owned(),
            task: task.map(str::to_owned),
            version: config_id(self.dialect),
            url: text(config, "url")?.ok_or_else(unreadable)?,
            token: text(config, "token")?,
            authentication: authentication(config)?,
        };
        if ticket.url.len() > MAX_WEBHOOK_URL {
            return Err(A2aError::BadPush(format!("it is longer than {MAX_WEBHOOK_URL} bytes")));
        }
        if !ticket.fits() {
            return Err(A2aError::BadPush("what goes with it is too long: 2 KiB are good".to_owned()));
        }
        let (address, proof) = ticket.seal(self.sealer);
        config.insert_or_replace("url", &format!("{}{address}", self.base));
        self.made.extend([address, proof.clone()]);
        config.insert_or_replace("token", &proof);
        // Some agents send only the token, and some only this.
        let proves = WebhookAuthentication { schemes: vec!["Bearer".to_owned()], credentials: Some(proof) };
        config.insert_or_replace("authentication", &self.written(&proves));
        self.own_name(config, "id");
        Ok(())
    }

    /// Restores the client's own values in a registration; `None` if it belongs to another caller.
    fn restore(&self, registration: &mut RawObject) -> Option<()> {
        let raw = |named: String| self.opened(&named).unwrap_or(named);
        let task = registration.text("taskId").or_else(|| registration.text("task_id")).map(raw);
        let inner = NAMES
            .iter()
            .find_map(|name| Some((*name, RawObject::read(public_config(registration, name)?.get())?)));
        match inner {
            Some((name, mut config)) => {
                self.restore_config(&mut config, task.as_deref())?;
                registration.set(name, config.written());
                Some(())
            }
            None => self.restore_config(registration, task.as_deref()),
        }
    }

    fn restore_config(&self, config: &mut RawObject, task: Option<&str>) -> Option<()> {
        let url = config.text("url")?;
        let (_, address) = url.rsplit_once(PUSH)?;
        let (ticket, _) = WebhookTicket::open(self.sealer, address)?;
        if ticket.caller != self.caller || ticket.agent != self.agent {
            return None;
        }
        config.insert_or_replace("url", &ticket.url);
        match &ticket.token {
            Some(token) => config.insert_or_replace("token", token),
            None => config.remove("token"),
        }
        match &ticket.authentication {
            Some(given) => config.insert_or_replace("authentication", &self.written(given)),
            None => config.remove("authentication"),
        }
        // Agents give an unnamed registration the id of its task.
        let name = config
            .text("id")
            .filter(|name| ticket.task.as_ref() == Some(name) || task == Some(name.as_str()));
        if let Some(name) = name {
            let own = TaskRef { agent: self.agent.to_owned(), task: name.into(), skill: None };
            config.insert_or_replace("id", &own.seal(self.sealer, &self.caller).as_str());
        }
        Some(())
    }

    /// Replaces the id of a registration that the client knows with the agent's own.
    fn own_name(&self, params: &mut RawObject, name: &str) {
        if let Some(own) = params.text(name).and_then(|shown| self.opened(&shown)) {
            params.insert_or_replace(name, &own);
        }
    }

    fn opened(&self, handle: &str) -> Option<String> {
        let TaskRef { agent, task, .. } = TaskRef::open(self.sealer, &self.caller, handle)?;
        (agent == self.agent).then(|| task.into_string())
    }

    /// Returns the authentication in the form of the client's version.
    fn written(&self, given: &WebhookAuthentication) -> serde_json::Value {
        let WebhookAuthentication { schemes, credentials } = given;
        let mut written = match self.dialect {
            Dialect::V0_1 | Dialect::V0_3 => json!({ "schemes": schemes }),
            Dialect::V1 => json!({ "scheme": schemes.first().map_or("", String::as_str) }),
        };
        if let (Some(credentials), Some(members)) = (credentials, written.as_object_mut()) {
            members.insert("credentials".to_owned(), credentials.as_str().into());
        }
        written
    }
}

/// Returns the number of a version inside push URLs; never reuse one.
fn config_id(dialect: Dialect) -> u8 {
    match dialect {
        Dialect::V0_1 => 1,
        Dialect::V0_3 => 3,
        Dialect::V1 => 10,
    }
}

/// Returns the version of a number inside push URLs.
pub(super) fn dialect_of(number: u8) -> Option<Dialect> {
    [Dialect::V0_1, Dialect::V0_3, Dialect::V1].into_iter().find(|dialect| config_id(*dialect) == number)
}

fn shows_webhooks(operation: Operation) -> bool {
    matches!(operation, Operation::SetPush | Operation::GetPush | Operation::ListPush)
}

fn unreadable() -> A2aError {
    A2aError::BadPush("it cannot be read".to_owned())
}

/// Returns the value of a member that is present and not null.
fn public_config<'m>(members: &'m RawObject, name: &str) -> Option<&'m RawValue> {
    members.find(name).filter(|value| value.get() != "null")
}

/// Returns a text for a header or a URL; some clients send an empty text for an absent one.
fn text(members: &RawObject, name: &str) -> Result<Option<String>, A2aError> {
    let Some(value) = public_config(members, name) else { return Ok(None) };
    let text: String = serde_json::from_str(value.get()).map_err(|_| unreadable())?;
    if HeaderValue::from_str(&text).is_err() {
        return Err(A2aError::BadPush(format!("{name} has characters that no header may have")));
    }
    Ok(Some(text).filter(|text| !text.is_empty()))
}

fn authentication(config: &RawObject) -> Result<Option<WebhookAuthentication>, A2aError> {
    let Some(written) = public_config(config, "authentication") else { return Ok(None) };
    let members = RawObject::read(written.get()).ok_or_else(unreadable)?;
    let mut schemes: Vec<String> = match public_config(&members, "schemes") {
        Some(list) => serde_json::from_str(list.get()).map_err(|_| unreadable())?,
        None => Vec::new(),
    };
    schemes.extend(text(&members, "scheme")?);
    let is_token = |scheme: &String| {
        scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
    };
    if !schemes.iter().all(is_token) {
        return Err(A2aError::BadPush("its scheme is none".to_owned()));
    }
    Ok(Some(WebhookAuthentication { schemes, credentials: text(&members, "credentials")? }))
}
