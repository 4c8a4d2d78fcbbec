//! Any arguments of a model are refused with words or become a message that is good JSON in every
//! dialect and contains them unchanged.

#![cfg_attr(feature = "libfuzzer", no_main)]

use std::sync::LazyLock;

use mcp_a2a_gateway::a2a::{Dialect, Message, OperationRequest};
use mcp_a2a_gateway::bridge::agent_action::{AgentAction, CallOrigin, TraceContext, build};
use mcp_a2a_gateway::bridge::arguments::{CustomSchema, FLAT_SCHEMA, ToolInput, read, validator};
use mcp_a2a_gateway::bridge::extension::ClientExtensions;
use mcp_a2a_gateway::jsonrpc::{JsonText, well_formed};
use mcp_a2a_gateway::seal::Sealer;
use serde_json::value::RawValue;
use serde_json::{Value, json};

fuzz::program!(arguments);

static SEALER: LazyLock<Sealer> = LazyLock::new(|| Sealer::new([b"fuzz".as_slice()]).expect("a key"));
static OWN: LazyLock<ToolInput> = LazyLock::new(|| {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    ToolInput::Own(CustomSchema::new(&schema).expect("a schema"))
});

fn arguments(bytes: &[u8]) {
    let Ok(text) = well_formed(bytes, 64) else { return };
    let Ok(raw) = serde_json::from_str::<&RawValue>(text) else { return };
    for input in [&ToolInput::Flat, &*OWN] {
        let Ok(asked) = read(input, Some(raw)).inspect_err(|words| assert!(!words.is_empty())) else {
            continue;
        };
        if matches!(input, ToolInput::Flat) {
            schema_accepts(text);
        }
        let said = asked.text.clone();
        let sender = CallOrigin {
            caller: "me",
            sealer: &SEALER,
            agent: "agent",
            skill: Some("skill"),
            trace: TraceContext::default(),
            message_id: [7; 16],
            extensions: ClientExtensions::default(),
        };
        if let Ok(AgentAction::Say(message) | AgentAction::Continue(_, message)) = build(asked, &sender) {
            sent(&message, said.as_ref().map(JsonText::to_str).as_deref());
        }
    }
}

/// Arguments that are read typed fit the schema that clients are shown too; `null` for an absent
/// member aside, and `data`, which is listed as an object and taken as any JSON.
fn schema_accepts(text: &str) {
    static FLAT: LazyLock<Value> = LazyLock::new(|| serde_json::from_str(FLAT_SCHEMA).expect("JSON"));
    let Ok(mut value) = serde_json::from_str::<Value>(text) else { return };
    let Some(members) = value.as_object_mut() else { return };
    members.retain(|name, value| !value.is_null() && name != "data");
    let files = members.get_mut("files").and_then(Value::as_array_mut);
    for file in files.into_iter().flatten().filter_map(Value::as_object_mut) {
        file.retain(|_, value| !value.is_null());
    }
    thread_local! {
        static VALIDATOR: Box<dyn Fn(&Value) -> bool> = {
            let flat = validator(&FLAT).expect("a schema");
            Box::new(move |value| flat.is_valid(value))
        };
    }
    VALIDATOR.with(|accepts| assert!(accepts(&value), "read, and against the schema: {text}"));
}

fn sent(message: &Message, said: Option<&str>) {
    let dialects = [Dialect::V0_1, Dialect::V0_3, Dialect::V1];
    for (dialect, streaming) in dialects.into_iter().flat_map(|dialect| [(dialect, false), (dialect, true)]) {
        let ask =
            OperationRequest { message, accepted_output_modes: &["text/plain".into()], tenant: Some("t") };
        let body = dialect.send(&ask, streaming);
        let value: Value = match serde_json::from_slice(&body) {
            Ok(value) => value,
            Err(error) => {
                // Numbers that no parser holds are passed on as they came.
                assert!(
                    error.to_string().contains("out of range"),
                    "{error}: {}",
                    String::from_utf8_lossy(&body)
                );
                continue;
            }
        };
        let text = value.pointer("/params/message/parts/0/text").and_then(Value::as_str);
        assert!(said.is_none() || text == said, "{said:?} became {text:?}");
    }
}
