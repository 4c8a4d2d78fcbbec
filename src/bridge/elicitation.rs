//! Turns an agent's question into elicitations for the client's user.
//!
//! Follows `docs/spec/mcp.md` §2.10, §3.2. An authorization is requested by URL only, never in a
//! form: only `https`, and only URLs that do not deceive the user; the gateway never fetches them. A
//! question without a possible elicitation is answered through a handle result (see `tool_result`),
//! and the answers are read in `user_response`.

use http::Uri;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::output::AgentOutput;
use crate::a2a::{AnswerForm, Fingerprint, InputItem, Message, Part, PartBody, TaskState, clean, wording};
use crate::mcp::elicitation::{ElicitRequest, input_requests};
use crate::mcp::elicitation::{adapt, is_form, requests_secret};
use crate::mcp::{ClientCapabilities, Version};

/// Maximum length of a question, in bytes.
const MAX_QUESTION_BYTES: usize = 8 * 1024;
/// The default form, for questions without a schema.
const REPLY: &str = r#"{"type":"object","properties":{"reply":{"type":"string","title":"Reply","minLength":1,"maxLength":10000}},"required":["reply"]}"#;

/// The open question of a task.
#[derive(Debug, Clone)]
pub struct AgentQuestion {
    /// Fingerprint of the question.
    pub turn: Fingerprint,
    /// The state of the task: it waits for an answer or for an authorization.
    pub state: TaskState,
    /// The inputs of the question, at least one.
    pub inputs: Vec<InputField>,
    /// URL of the authorization page.
    pub url: Option<String>,
    /// True if the question asks for a secret, which no form may do.
    secret: bool,
}

/// One input of a question.
#[derive(Debug, Clone)]
pub struct InputField {
    /// The key of its answer.
    pub key: String,
    /// The question in words.
    pub message: String,
    /// The agent's schema of the answer, which is a form; `None` for a single text field.
    pub schema: Option<Box<RawValue>>,
    /// The form in which the agent accepts the answer.
    pub form: AnswerForm,
}

impl InputField {
    /// Returns the schema of the answer.
    pub(super) fn answer_schema(&self) -> &RawValue {
        let own = self.schema.as_deref();
        own.or_else(|| serde_json::from_str(REPLY).ok()).unwrap_or(RawValue::NULL)
    }
}

impl AgentQuestion {
    /// Returns the open question, if there is one.
    pub fn of(work: &AgentOutput) -> Option<Self> {
        let (turn, state) = (work.question_turn()?, work.state?);
        let said = work.status.as_deref();
        let texts = [work.status_text(), work.made_text()];
        let text = texts.into_iter().filter(|text| !text.is_empty()).reduce(|all, text| all + "\n\n" + &text);
        let text = text.map(|text| clean(&text, MAX_QUESTION_BYTES));
        let how = said.map(wording).unwrap_or_default();
        let digits: String = turn.hex().chars().take(8).collect();
        let key = how.key.unwrap_or_else(|| format!("q-{digits}"));
        if state == TaskState::AuthRequired {
            let message = text.unwrap_or_else(|| "The agent needs an authorization.".into());
            let inputs = vec![InputField { key, message, schema: None, form: AnswerForm::Plain }];
            return Some(Self { turn, state, inputs, url: said.and_then(authorization_url), secret: false });
        }
        let mut wanted = how.inputs;
        if wanted.is_empty() {
            wanted.push(InputItem { key, message: None, schema: how.schema, form: AnswerForm::Plain });
        } else {
            // Frameworks ask without keys.
            let is_one = wanted.len() == 1;
            let unnamed = wanted.iter_mut().filter(|one| one.key.is_empty());
            for (number, one) in unnamed.enumerate() {
                one.key = if is_one { key.clone() } else { format!("{key}-{}", number + 1) };
            }
        }
        let secret = wanted.iter().filter_map(|one| one.schema.as_deref()).any(requests_secret);
        let inputs = wanted.into_iter().map(|one| {
            let said = one
                .message
                .map(|message| clean(&message, MAX_QUESTION_BYTES))
                .filter(|text| !text.is_empty());
            let message = said.or_else(|| text.clone()).unwrap_or_else(|| "The agent asks for input.".into());
            let schema = one.schema.filter(|schema| is_form(schema));
            InputField { key: one.key, message, schema, form: one.form }
        });
        Some(Self { turn, state, inputs: inputs.collect(), url: None, secret })
    }

    /// Returns the elicitations for a client of this revision with these capabilities; `None` if it
    /// supports none that fits.
    pub fn asks(&self, version: Version, capabilities: ClientCapabilities) -> Option<ElicitationRequests> {
        let ask = |input: &InputField| {
            let message = input.message.clone();
            let ask = if self.state == TaskState::AuthRequired {
                let can = version >= Version::V2025_11_25 && capabilities.has(ClientCapabilities::URL);
                ElicitRequest::Url { message, url: self.url.clone().filter(|_| can)? }
            } else {
                let can = capabilities.has(ClientCapabilities::FORM) && !self.secret;
                ElicitRequest::Form {
                    message,
                    schema: adapt(input.answer_schema(), version).filter(|_| can)?,
                }
            };
            Some((input.key.clone(), ask))
        };
        self.inputs.iter().map(ask).collect::<Option<Vec<_>>>().map(ElicitationRequests)
    }
}

/// The elicitations for one question, each under its key.
#[derive(Debug, Clone)]
pub struct ElicitationRequests(Vec<(String, ElicitRequest)>);

impl ElicitationRequests {
    /// Returns the elicitations with their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &ElicitRequest)> {
        self.0.iter().map(|(key, ask)| (key.as_str(), ask))
    }

    /// Keeps only the elicitations with these keys: the rest is answered already.
    #[must_use]
    pub fn only(mut self, keys: &[String]) -> Self {
        self.0.retain(|(key, _)| keys.contains(key));
        self
    }

    /// Returns the value of `inputRequests`, for modern clients.
    pub fn input_requests(&self) -> Option<Box<RawValue>> {
        input_requests(&self.0)
    }
}

const SCHEME: &str = "https";

/// Maximum length of a link, in bytes.
const MAX_LINK_BYTES: usize = 2048;

/// Returns the page that a message names: as a link, as the `url` of its data, or in its text, in
/// this order.
pub(super) fn authorization_url(said: &Message) -> Option<String> {
    let find = |page: fn(&Part) -> Option<String>| said.parts.iter().find_map(page);
    find(first_link).or_else(|| find(in_data)).or_else(|| find(in_text))
}

fn first_link(part: &Part) -> Option<String> {
    match &part.body {
        PartBody::Url(url) => page(url),
        PartBody::Text(_) | PartBody::Raw(_) | PartBody::Data(_) | PartBody::Unknown(_) => None,
    }
}

fn in_data(part: &Part) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        url: Box<RawValue>,
    }
    match &part.body {
        PartBody::Data(json) => {
            let named: Named = serde_json::from_str(json.get()).ok()?;
            page(&serde_json::from_str::<String>(named.url.get()).ok()?)
        }
        PartBody::Text(_) | PartBody::Raw(_) | PartBody::Url(_) | PartBody::Unknown(_) => None,
    }
}

fn in_text(part: &Part) -> Option<String> {
    let text = part.body.text()?.to_str();
    text.match_indices("https://").find_map(|(start, _)| {
        let ends =
            |c: char| c.is_whitespace() || matches!(c, '<' | '>' | '"' | '\'' | '`' | ')' | ']' | '}' | '|');
        let link = text.get(start..)?.split(ends).next()?;
        page(link.trim_end_matches(['.', ',', ';', ':', '!', '?', '*']))
    })
}

/// Returns the link, if a user may be sent to it, with its scheme in the lower case that clients
/// compare. User information before the host would make one site look like another.
fn page(link: &str) -> Option<String> {
    let uri: Uri = Some(link).filter(|link| link.len() <= MAX_LINK_BYTES && link.is_ascii())?.parse().ok()?;
    let authority = uri.authority().filter(|authority| !authority.as_str().contains('@'))?;
    if uri.scheme_str() != Some(SCHEME) || authority.host().is_empty() {
        return None;
    }
    link.get(SCHEME.len()..).map(|rest| format!("{SCHEME}{rest}"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::a2a::read_task;

    /// Returns the question of an interrupted task with this status message.
    fn question(state: &str, message: &str) -> AgentQuestion {
        let task = format!(r#"{{"id":"t","status":{{"state":"{state}","message":{message}}}}}"#);
        let work = AgentOutput::from_task(read_task(task.as_bytes()).unwrap(), 1000).unwrap();
        AgentQuestion::of(&work).unwrap()
    }

    fn read(json: &str) -> Value {
        serde_json::from_str(json).unwrap()
    }

    const NEWEST: Version = Version::V2026_07_28;
    const ALL: [Version; 5] = [
        Version::V2024_11_05,
        Version::V2025_03_26,
        Version::V2025_06_18,
        Version::V2025_11_25,
        Version::V2026_07_28,
    ];

    fn both() -> ClientCapabilities {
        ClientCapabilities::from_bits(ClientCapabilities::FORM.bits() | ClientCapabilities::URL.bits())
    }

    #[test]
    fn a_question_without_a_schema_gets_one_field_of_text() {
        let question = question("input-required", r#"{"parts":[{"text":"Which date?"}]}"#);
        let key = format!("q-{}", question.turn.hex().split_at(8).0);
        assert_eq!(question.inputs[0].key, key);
        let asked = question.asks(NEWEST, ClientCapabilities::FORM).unwrap().input_requests().unwrap();
        let params = json!({"mode": "form", "message": "Which date?", "requestedSchema": read(REPLY)});
        assert_eq!(read(asked.get()), json!({key: {"method": "elicitation/create", "params": params}}));
    }

    #[test]
    fn a_client_is_asked_only_in_a_way_that_it_knows() {
        let none = ClientCapabilities::default();
        let form = question("input-required", r#"{"parts":[{"text":"a"}]}"#);
        let url = question("auth-required", r#"{"parts":[{"url":"https://a.test"}]}"#);
        let lost = question("auth-required", r#"{"parts":[{"text":"Log in at http://a.test"}]}"#);
        for version in ALL {
            let by_form = version >= Version::V2025_06_18;
            let by_url = version >= Version::V2025_11_25;
            for (question, capabilities, can) in [
                (&form, both(), by_form),
                (&form, ClientCapabilities::FORM, by_form),
                (&form, ClientCapabilities::URL, false),
                (&form, none, false),
                (&url, both(), by_url),
                (&url, ClientCapabilities::FORM, false),
                (&lost, both(), false),
            ] {
                assert_eq!(question.asks(version, capabilities).is_some(), can, "{version:?} {question:?}");
            }
        }
    }

    #[test]
    fn an_authorization_is_never_asked_for_in_a_form() {
        let schema = r#"{"type":"object","properties":{"pin":{"type":"string"}}}"#;
        let question = question(
            "auth-required",
            &format!(r#"{{"parts":[{{"text":"Log in at https://a.test/x."}},{{"data":{schema}}}]}}"#),
        );
        let asks = question.asks(NEWEST, both()).unwrap();
        let all: Vec<_> = asks.iter().collect();
        assert!(
            matches!(all.as_slice(), [(_, ElicitRequest::Url { url, .. })] if url == "https://a.test/x"),
            "{all:?}"
        );
        assert!(question.asks(NEWEST, ClientCapabilities::FORM).is_none());
    }

    #[test]
    fn an_agent_may_ask_in_its_own_way() {
        let form = r#"{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}"#;
        let several = format!(
            r#"{{"parts":[{{"text":"All?"}}],"metadata":{{"mcp.inputRequests":{{"a":{{"message":"A?","requestedSchema":{form}}},"b":{{}}}}}}}}"#
        );
        let question = question("input-required", &several);
        let asks = question.asks(NEWEST, ClientCapabilities::FORM).unwrap();
        let told = asks.iter().map(|(key, ask)| match ask {
            ElicitRequest::Form { message, schema } => json!([key, message, read(schema.get())]),
            ElicitRequest::Url { .. } => json!("url"),
        });
        let expected = [json!(["a", "A?", read(form)]), json!(["b", "All?", read(REPLY)])];
        assert_eq!(told.collect::<Vec<_>>(), expected);
        assert_eq!(asks.only(&["b".into()]).iter().map(|(key, _)| key).collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn other_questions_are_text_without_secrets() {
        let with = |schema: &str| {
            let message = format!(r#"{{"metadata":{{"mcp.inputKey":"k","mcp.requestedSchema":{schema}}}}}"#);
            question("input-required", &message)
        };
        let nested = with(r#"{"type":"object","properties":{"a":{"type":"object"}}}"#);
        assert!(nested.inputs[0].schema.is_none() && nested.asks(NEWEST, both()).is_some());
        assert_eq!(
            (nested.inputs[0].key.as_str(), nested.inputs[0].message.as_str()),
            ("k", "The agent asks for input.")
        );
        let secret = with(r#"{"type":"object","properties":{"password":{"type":"string"}}}"#);
        assert!(secret.asks(NEWEST, both()).is_none());
        let multi =
            r#"{"type":"object","properties":{"m":{"type":"array","items":{"type":"string","enum":["x"]}}}}"#;
        let multi = with(multi);
        assert!(multi.asks(Version::V2025_06_18, both()).is_none());
        assert!(multi.asks(Version::V2025_11_25, both()).is_some());
    }

    fn page_in(parts: &str) -> Option<String> {
        let task =
            format!(r#"{{"id":"t","status":{{"state":"auth-required","message":{{"parts":{parts}}}}}}}"#);
        authorization_url(&read_task(task.as_bytes()).unwrap().status.message.unwrap())
    }

    #[test]
    fn the_page_is_found_and_never_one_without_tls() {
        for (parts, expected) in [
            (r#"[{"url":"https://a.test/x?y=1"}]"#, Some("https://a.test/x?y=1")),
            (
                r#"[{"text":"https://c.test"},{"data":{"url":"https://b.test"}},{"url":"https://a.test"}]"#,
                Some("https://a.test"),
            ),
            (r#"[{"text":"https://c.test"},{"data":{"url":"https://b.test"}}]"#, Some("https://b.test")),
            (r#"[{"text":"Go to (https://c.test/a), please."}]"#, Some("https://c.test/a")),
            (r#"[{"text":"https:// is nothing; https://c.test/b."}]"#, Some("https://c.test/b")),
            (r#"[{"data":{"url":"hTtps://b.test/X"}}]"#, Some("https://b.test/X")),
            (r#"[{"url":"http://a.test"},{"text":"see http://a.test/"}]"#, None),
            (r#"[{"url":"https://bank.test@evil.test/"}]"#, None),
            (r#"[{"url":"javascript:alert(1)"},{"data":{"url":7}},{"data":[1]}]"#, None),
            (r#"[{"url":"https://a b"}]"#, None),
            ("[]", None),
        ] {
            assert_eq!(page_in(parts).as_deref(), expected, "{parts}");
        }
        assert_eq!(page_in(&format!(r#"[{{"url":"https://a.test/{}"}}]"#, "x".repeat(MAX_LINK_BYTES))), None);
    }
}
