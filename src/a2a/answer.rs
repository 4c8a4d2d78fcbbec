//! The answer forms that known agent frameworks require.
//!
//! Google ADK asks by function calls in data parts, for a confirmation or for the result of a
//! long-running tool, and accepts function responses, marked as such in the metadata of the part.
//! Strands lists its interrupts in a data part and accepts one data part for each. Both reject
//! text. Forms that an agent names itself are in `input_request`.

use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::input_request::{InputItem, MAX_INPUTS};
use super::model::{Message, Part, PartBody};

/// The name of ADK's function for the confirmation of tools.
const CONFIRMATION: &str = "adk_request_confirmation";
/// JSON Schema of the answer to a confirmation.
const CONFIRMED: &str = r#"{"type":"object","properties":{"confirmed":{"type":"boolean","title":"Confirmed"}},"required":["confirmed"]}"#;

/// The form of an answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum AnswerForm {
    /// Text, or any data.
    #[default]
    Plain,
    /// A function response of ADK.
    FunctionResponse {
        /// The id of the function call.
        id: String,
        /// The name of the function.
        name: String,
    },
    /// An interrupt response of Strands.
    InterruptResponse {
        /// The id of the interrupt.
        id: String,
    },
}

impl AnswerForm {
    /// Returns true if the answer must be a confirmation or a refusal.
    pub fn is_confirmation(&self) -> bool {
        matches!(self, Self::FunctionResponse { name, .. } if name == CONFIRMATION)
    }

    /// Returns the part with an answer for the agent; `answer` is the answer itself, any JSON.
    pub fn part(&self, answer: &RawValue) -> Option<Part> {
        let (data, metadata) = match self {
            Self::Plain => (answer.to_owned(), None),
            Self::FunctionResponse { id, name } => {
                let is_object = answer.get().starts_with('{');
                let response = if is_object { json!(answer) } else { json!({ "result": answer }) };
                let data = json!({ "id": id, "name": name, "response": response });
                (to_raw_value(&data).ok()?, Some(json!({ "adk_type": "function_response" })))
            }
            Self::InterruptResponse { id } => {
                let data = json!({ "interruptResponse": { "interruptId": id, "response": answer } });
                (to_raw_value(&data).ok()?, None)
            }
        };
        let metadata = metadata.and_then(|metadata| to_raw_value(&metadata).ok());
        Some(Part { metadata, ..Part::new(PartBody::Data(data)) })
    }
}

/// Returns the inputs that a status message requests in the form of its framework.
pub(super) fn framework_inputs(message: &Message) -> Vec<InputItem> {
    let mut wanted = Vec::new();
    for part in &message.parts {
        let PartBody::Data(data) = &part.body else { continue };
        if let Some(call) = FunctionCall::read(part, data) {
            wanted.push(call.wanted(data));
        }
        let listed: StrandsInterrupts = serde_json::from_str(data.get()).unwrap_or_default();
        wanted.extend(listed.interrupts.into_iter().map(StrandsInterrupt::wanted));
    }
    wanted.truncate(MAX_INPUTS);
    wanted
}

/// A function call of ADK.
#[derive(Deserialize)]
struct FunctionCall {
    id: String,
    name: String,
    #[serde(default)]
    args: Value,
}

#[derive(Default, Deserialize)]
struct PartMarks {
    #[serde(default)]
    adk_type: Option<String>,
}

impl FunctionCall {
    fn read(part: &Part, data: &RawValue) -> Option<Self> {
        let marks = part.metadata.as_deref().and_then(|json| serde_json::from_str(json.get()).ok());
        let marks: PartMarks = marks.unwrap_or_default();
        let call: Self = serde_json::from_str(data.get()).ok()?;
        (marks.adk_type.as_deref() == Some("function_call") || call.name == CONFIRMATION).then_some(call)
    }

    fn wanted(self, data: &RawValue) -> InputItem {
        let is_confirmation = self.name == CONFIRMATION;
        let shown = serde_json::from_str::<Value>(data.get()).unwrap_or_default();
        let shown = serde_json::to_string_pretty(&shown).unwrap_or_default();
        let hint = self.args.pointer("/toolConfirmation/hint").and_then(Value::as_str).unwrap_or_default();
        let message = format!("{hint}\n{shown}").trim_start().to_owned();
        InputItem {
            key: String::new(),
            message: Some(message),
            schema: RawValue::from_string(CONFIRMED.to_owned()).ok().filter(|_| is_confirmation),
            form: AnswerForm::FunctionResponse { id: self.id, name: self.name },
        }
    }
}

#[derive(Default, Deserialize)]
struct StrandsInterrupts {
    #[serde(default)]
    interrupts: Vec<StrandsInterrupt>,
}

/// An interrupt of Strands.
#[derive(Deserialize)]
struct StrandsInterrupt {
    #[serde(rename = "interruptId")]
    id: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    reason: Value,
}

impl StrandsInterrupt {
    fn wanted(self) -> InputItem {
        let reason = match &self.reason {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                serde_json::to_string_pretty(&self.reason).unwrap_or_default()
            }
        };
        let message = format!("{}: {reason}", self.name);
        let message = message.trim_matches([':', ' ']).to_owned();
        InputItem {
            key: String::new(),
            message: Some(message),
            schema: None,
            form: AnswerForm::InterruptResponse { id: self.id },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::a2a::read_task;

    fn wanted(parts: &str) -> Vec<InputItem> {
        let task =
            format!(r#"{{"id":"t","status":{{"state":"input-required","message":{{"parts":{parts}}}}}}}"#);
        framework_inputs(&read_task(task.as_bytes()).unwrap().status.message.unwrap())
    }

    fn answered(form: &AnswerForm, answer: &str) -> (Value, Option<Value>) {
        let part = form.part(&RawValue::from_string(answer.to_owned()).unwrap()).unwrap();
        let PartBody::Data(data) = &part.body else { panic!("{part:?}") };
        let read = |json: &RawValue| serde_json::from_str(json.get()).unwrap();
        (read(data), part.metadata.as_deref().map(read))
    }

    #[test]
    fn confirmation_takes_a_function_response() {
        let call =
            r#"{"id":"c1","name":"adk_request_confirmation","args":{"toolConfirmation":{"hint":"Pay 5?"}}}"#;
        let asked = wanted(&format!(r#"[{{"data":{call},"metadata":{{"adk_type":"function_call"}}}}]"#));
        let [one] = asked.as_slice() else { panic!("{asked:?}") };
        assert!(one.message.as_deref().unwrap().starts_with("Pay 5?\n{") && one.schema.is_some());
        assert!(one.form.is_confirmation());
        let (data, metadata) = answered(&one.form, r#"{"confirmed":true}"#);
        let response = json!({ "confirmed": true });
        assert_eq!(data, json!({ "id": "c1", "name": "adk_request_confirmation", "response": response }));
        assert_eq!(metadata, Some(json!({ "adk_type": "function_response" })));
    }

    #[test]
    fn text_to_a_function_is_its_result() {
        let call = r#"{"id":"c1","name":"ask_boss","args":{"sum":5}}"#;
        let asked = wanted(&format!(r#"[{{"data":{call},"metadata":{{"adk_type":"function_call"}}}}]"#));
        assert!(asked[0].schema.is_none() && !asked[0].form.is_confirmation());
        let (data, _) = answered(&asked[0].form, r#""fine""#);
        assert_eq!(data["response"], json!({ "result": "fine" }));
        assert!(wanted(&format!(r#"[{{"data":{call}}}]"#)).is_empty(), "data of the agent's own");
    }

    #[test]
    fn each_interrupt_takes_a_response() {
        let asked = wanted(
            r#"[{"text":"x"},{"data":{"interrupts":[{"interruptId":"i1","name":"pay","reason":"5 EUR"},{"interruptId":"i2","name":"go","reason":null}]}}]"#,
        );
        let messages: Vec<_> = asked.iter().map(|one| one.message.as_deref().unwrap()).collect();
        assert_eq!(messages, ["pay: 5 EUR", "go"]);
        let (data, metadata) = answered(&asked[1].form, r#""y""#);
        assert_eq!(data, json!({ "interruptResponse": { "interruptId": "i2", "response": "y" } }));
        assert_eq!(metadata, None);
    }
}
