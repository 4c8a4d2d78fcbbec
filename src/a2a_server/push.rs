//! Webhooks of A2A clients: the policy for their URLs, and for clients with sealed ids the rewriting:
//! the agent gets a URL of the gateway instead of the client's own, and the client sees its own again.
//!
//! Webhooks are read and written in the form of the client's version. The URL of the gateway holds all
//! data that it needs to forward a push (see `seal::WebhookTicket`), so no state is kept here. A
//! registration that does not open for this caller at this agent belongs to another caller and is
//! hidden.
//!
//! The policy is the operator's list (`outbound.webhooks`). A host on the list may have any address,
//! and need not resolve here, since often the agent calls it; every other host must have a public
//! address, or one in a listed network. See also `push_forward` (the pushes).

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Uri};
use serde_json::json;
use serde_json::value::RawValue;

use super::error::A2aError;
use crate::a2a::Dialect;
use crate::a2a::translate::Operation;
use crate::agents::Agent;
use crate::config::{self, Settings};
use crate::fault::{AgentFailure, Fault};
use crate::http_edge::PUSH;
use crate::jsonrpc::Id;
use crate::jsonrpc::object::RawObject;
use crate::seal::{MAX_WEBHOOK_URL, Sealer, TaskRef, WebhookAuthentication, WebhookTicket};
use crate::transport::{AddressPolicy, TransportError, filter_addresses, host_of};

/// Rewriter of the webhooks of one caller at one agent.
pub(super) struct WebhookRewriter<'a> {
    sealer: &'a Sealer,
    /// Prefix of the gateway's push URLs.
    base: &'a str,
    caller: String,
    agent: &'a str,
    /// Dialect of the client.
    dialect: Dialect,
    /// Tokens and credentials that were generated here, which only the agent may see.
    generated: Vec<String>,
}

/// Webhooks of A2A clients: the URLs that agents get instead, and the URLs that clients may name.
pub(super) struct Webhooks {
    sealer: Sealer,
    /// Prefix of the gateway's push URLs; `None` if pushes are not forwarded.
    push_url: Option<String>,
    /// Policy for the URLs of clients.
    policy: config::Webhooks,
}

impl Webhooks {
    pub(super) fn new(settings: &Settings, sealer: Sealer) -> Self {
        let public = settings.public_url.as_deref().filter(|_| settings.push.enabled);
        let push_url = public.map(|public| format!("{}{PUSH}", public.trim_end_matches('/')));
        Self { sealer, push_url, policy: settings.outbound.webhooks.clone() }
    }

    /// Returns true if pushes of an agent can be forwarded to clients.
    pub(super) fn is_forwarded(&self, agent: &Agent) -> bool {
        self.push_url.is_some() && agent.settings.push
    }

    /// Returns the webhook rewriter for a caller that speaks `dialect`, if pushes of the agent can
    /// be forwarded.
    pub(super) fn rewriter<'a>(
        &'a self,
        caller: &str,
        agent: &'a Agent,
        dialect: Dialect,
    ) -> Option<WebhookRewriter<'a>> {
        let base = self.push_url.as_deref().filter(|_| agent.settings.push)?;
        Some(WebhookRewriter {
            sealer: &self.sealer,
            base,
            caller: caller.to_owned(),
            agent: &agent.settings.name,
            dialect,
            generated: Vec::new(),
        })
    }

    /// Rejects a webhook URL that only hosts inside the operator's network can reach, unless
    /// `outbound.webhooks` allows it.
    pub(super) async fn check_urls(&self, agent: &str, urls: Vec<String>) -> Result<(), A2aError> {
        for url in urls {
            let uri: Uri = url.parse().map_err(|_| A2aError::BadPush("it is no URL".to_owned()))?;
            let Err(error) = is_allowed(&uri, &self.policy).await else { continue };
            tracing::info!(agent, error, "rejected webhook url");
            let https = if self.policy.http { "" } else { "https " };
            return Err(A2aError::BadPush(format!("it is no {https}address that agents may push to")));
        }
        Ok(())
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
                Dialect::V0_3 => self.restore_config_id(&mut params, "pushNotificationConfigId"),
                Dialect::V1 => self.restore_config_id(&mut params, "id"),
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
    pub(super) fn restore_response(
        &self,
        response: &str,
        id: &Id,
        operation: Option<Operation>,
    ) -> Option<String> {
        let operation = operation.filter(|operation| shows_webhooks(*operation))?;
        let violation = |what: &str| A2aError::Agent(AgentFailure::ProtocolViolation(what.to_owned()));
        let error = match RawObject::read(response) {
            None => violation("its answer cannot be read"),
            Some(members) if public_config(&members, "error").is_some() => return None,
            Some(mut members) => {
                let restored = self.restored(members.find("result")?.get(), operation);
                let result = restored.and_then(|result| RawValue::from_string(result.into_owned()).ok());
                match (result, operation) {
                    (Some(result), _) => {
                        members.set("result", result);
                        return Some(members.written().get().to_owned());
                    }
                    (None, Operation::SetPush) => violation("it registered something else"),
                    (None, _) => A2aError::Fault(Fault::UnknownTask),
                }
            }
        };
        String::from_utf8(error.to_json(self.agent).rpc(Some(id), self.dialect)).ok()
    }

    /// Returns the result of an operation, in the client's version, with the client's own webhooks
    /// and without those of others; `None` if the result is a registration of another caller.
    fn restored<'r>(&self, result: &'r str, operation: Operation) -> Option<Cow<'r, str>> {
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
        (!self.has_push_url(written.get())).then(|| Cow::Owned(written.get().to_owned()))
    }

    /// Returns true if a text contains a URL of the gateway.
    fn has_push_url(&self, text: &str) -> bool {
        text.contains(self.base)
    }

    fn restored_list(&self, result: &str) -> Option<String> {
        let own = |list: &RawValue| -> Option<Vec<Box<RawValue>>> {
            let all: Vec<&RawValue> = serde_json::from_str(list.get()).ok()?;
            let own = all.into_iter().filter_map(|one| {
                let mut registration = RawObject::read(one.get())?;
                self.restore(&mut registration)?;
                Some(registration.written()).filter(|written| !self.has_push_url(written.get()))
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
        &self.generated
    }

    /// Replaces the webhook in a registration, or in the registration nested in it.
    fn route(&mut self, registration: &mut RawObject, task: Option<&str>) -> Result<(), A2aError> {
        let has_nested = self.route_within(registration, task)?;
        match public_config(registration, "url") {
            Some(_) => self.replace(registration, task),
            None if has_nested => Ok(()),
            None => Err(A2aError::BadPush("it is missing".to_owned())),
        }
    }

    /// Replaces the webhook in every nested registration. Returns true if there is one.
    fn route_within(&mut self, params: &mut RawObject, task: Option<&str>) -> Result<bool, A2aError> {
        let mut found = false;
        for name in REGISTRATION_MEMBERS {
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
        let (token, proof) = ticket.seal(self.sealer);
        config.insert_or_replace("url", &format!("{}{token}", self.base));
        self.generated.extend([token, proof.clone()]);
        config.insert_or_replace("token", &proof);
        // Some agents send only the token, and some only this.
        let proves = WebhookAuthentication { schemes: vec!["Bearer".to_owned()], credentials: Some(proof) };
        config.insert_or_replace("authentication", &self.written(&proves));
        self.restore_config_id(config, "id");
        Ok(())
    }

    /// Restores the client's own values in a registration; `None` if it belongs to another caller.
    fn restore(&self, registration: &mut RawObject) -> Option<()> {
        let raw = |named: String| self.opened(&named).unwrap_or(named);
        let task = registration.text("taskId").or_else(|| registration.text("task_id")).map(raw);
        let inner = REGISTRATION_MEMBERS
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
    fn restore_config_id(&self, params: &mut RawObject, name: &str) {
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

/// Names of the member that holds a nested registration.
pub(super) const REGISTRATION_MEMBERS: [&str; 5] = [
    "pushNotification",
    "pushNotificationConfig",
    "push_notification_config",
    "taskPushNotificationConfig",
    "task_push_notification_config",
];

/// Returns the webhook URLs in params of a send or of a registration; `None` if they are not
/// readable, as with duplicate members, of which the agent might read another one.
pub(super) fn webhook_urls(params: &str) -> Option<Vec<String>> {
    let params = RawObject::read(params)?;
    let mut all = Vec::new();
    if let Some(configuration) = nested(&params, "configuration") {
        collect_nested(&configuration?, &mut all)?;
    }
    collect_nested(&params, &mut all)?;
    all.push(params);
    let urls = all.iter().filter_map(|members| members.find("url"));
    urls.map(|url| serde_json::from_str(url.get()).ok()).collect()
}

/// Collects the nested registrations.
fn collect_nested(members: &RawObject, all: &mut Vec<RawObject>) -> Option<()> {
    for found in REGISTRATION_MEMBERS.iter().filter_map(|name| nested(members, name)) {
        all.push(found?);
    }
    Some(())
}

/// Returns the object in a member that is not null; `Some(None)` if it is not readable.
fn nested(members: &RawObject, name: &str) -> Option<Option<RawObject>> {
    let value = members.find(name).filter(|value| value.get() != "null")?;
    Some(RawObject::read(value.get()))
}

/// Returns true if a message comes with a webhook, or might: an unreadable one counts.
pub(super) fn has_push(params: &str) -> bool {
    let names_one = |members: &RawObject| {
        REGISTRATION_MEMBERS.iter().any(|name| members.find(name).is_some_and(|value| value.get() != "null"))
    };
    let Some(members) = RawObject::read(params) else { return true };
    let within = match members.find("configuration") {
        None => false,
        Some(inner) if inner.get() == "null" => false,
        Some(inner) => RawObject::read(inner.get()).is_none_or(|inner| names_one(&inner)),
    };
    within || names_one(&members)
}

/// Longest time for resolving the host of a webhook.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns the addresses that a webhook may have.
///
/// # Errors
///
/// [`TransportError::BadUri`] if the URL is forbidden for any address.
pub(super) fn policy_of(uri: &Uri, webhooks: &config::Webhooks) -> Result<AddressPolicy, TransportError> {
    let (_, port) = host_of(uri)?;
    if !webhooks.http && uri.scheme_str() != Some("https") {
        return Err(TransportError::BadUri("it is plain http, which outbound.webhooks.http does not allow"));
    }
    let host = uri.host().unwrap_or_default().to_ascii_lowercase();
    let is_listed = webhooks.allow.has_host(&host, &format!("{host}:{port}"));
    Ok(if is_listed {
        AddressPolicy::Trusted
    } else {
        AddressPolicy::Webhook(Arc::new(webhooks.allow.clone()))
    })
}

/// Checks that agents may push to a URL.
///
/// # Errors
///
/// The reason, for the log alone: clients must not learn the addresses of internal names.
pub(super) async fn is_allowed(uri: &Uri, webhooks: &config::Webhooks) -> Result<(), String> {
    let policy = policy_of(uri, webhooks).map_err(|error| error.to_string())?;
    // The names behind a proxy may have no address here; an address itself is judged in any case.
    let is_name = host_of(uri).is_ok_and(|(host, _)| matches!(host, config::Host::Name(_)));
    if matches!(policy, AddressPolicy::Trusted) || (webhooks.is_resolved_by_proxy && is_name) {
        return Ok(());
    }
    let checked = tokio::time::timeout(RESOLVE_TIMEOUT, filter_addresses(uri, &policy)).await;
    match checked {
        Ok(checked) => checked.map_err(|error| error.to_string()),
        Err(_) => Err("its name was not resolved in time".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{AllowList, Allowed};

    #[test]
    fn a_place_to_push_to_is_found_however_it_is_spelled() {
        for (params, found) in [
            (r#"{"message":{}}"#, false),
            (r#"{"configuration":{"pushN\u006ftification\u0043onfig":{"url":"http://x"}}}"#, true),
            (r#"{"configuration":{}}"#, false),
            (r#"{"configuration":{"taskPushNotificationConfig":null}}"#, false),
            (r#"{"configuration":{"taskPushNotificationConfig":{"url":"http://x"}}}"#, true),
            (r#"{"configuration":{"push_notification_config":{}}}"#, true),
            (r#"{"configuration":{"pushNotificationConfig":null,"pushNotificationConfig":{}}}"#, true),
            (r#"{"configuration":{},"configuration":{}}"#, true),
            (r#"{"configuration":{},"configuration":{"url":"http://x"}}"#, true),
            (r#"{"id":"t","message":{},"pushNotification":{"url":"http://x"}}"#, true),
        ] {
            assert_eq!(has_push(params), found, "{params}");
        }
    }

    #[test]
    fn every_version_says_elsewhere_where_to_push() {
        for params in [
            r#"{"taskId":"t","url":"http://x"}"#,
            r#"{"id":"t","message":{},"pushNotification":{"url":"http://x"}}"#,
            r#"{"taskId":"t","pushNotificationConfig":{"url":"http://x"}}"#,
            r#"{"message":{},"configuration":{"taskPushNotificationConfig":{"url":"http://x"}}}"#,
            r#"{"message":{},"configuration":{"pushNotificationConfig":{"u\u0072l":"http://x"}}}"#,
        ] {
            assert_eq!(webhook_urls(params).unwrap(), ["http://x"], "{params}");
        }
        assert!(webhook_urls(r#"{"id":"t","pushNotificationConfig":null}"#).unwrap().is_empty());
    }

    #[test]
    fn two_places_in_one_are_none_that_could_be_judged() {
        for params in [
            r#"{"message":{},"z":1,"z":2,"configuration":{"pushNotificationConfig":{"url":"http://10.0.0.1/"}}}"#,
            r#"{"taskId":"t","pushNotificationConfig":{"url":"https://ok/","url":"http://10.0.0.1/"}}"#,
            r#"{"taskId":"t","pushNotificationConfig":{"url":["http://10.0.0.1/"]}}"#,
            r#"{"taskId":"t","pushNotificationConfig":"http://10.0.0.1/"}"#,
            r#"{"message":{},"configuration":[{"url":"http://10.0.0.1/"}]}"#,
        ] {
            assert_eq!(webhook_urls(params), None, "{params}");
        }
    }

    #[tokio::test]
    async fn a_name_that_the_operator_lists_need_not_lead_anywhere_from_here() {
        let names = ["hook.invalid", "other.invalid:8443", "localhost:9"];
        let allow = AllowList(names.map(|name| Allowed::Host(name.to_owned())).to_vec());
        let webhooks = config::Webhooks { allow, http: true, is_resolved_by_proxy: false };
        for (url, may) in [
            ("https://hook.invalid/x", true),
            ("http://HOOK.invalid:99/x", true),
            ("https://other.invalid:8443/", true),
            ("https://other.invalid/", false),
            ("https://unlisted.invalid/", false),
            ("http://localhost:9/", true),
            ("http://localhost:10/", false),
            ("https://user@hook.invalid/", false),
            ("ftp://hook.invalid/", false),
            ("http://10.0.0.1/", false),
            ("http://93.184.216.34/", true),
        ] {
            assert_eq!(is_allowed(&url.parse().unwrap(), &webhooks).await.is_ok(), may, "{url}");
        }
    }
}
