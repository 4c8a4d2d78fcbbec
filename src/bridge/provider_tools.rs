//! The tools with which clients write resources: values of the memory bank, and batches of calls.
//!
//! Pure: names, schemas and arguments. `resources::memory` and `batch` call them.

use std::sync::LazyLock;

use jsonschema::Validator;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::arguments::strict_validator;
use super::task_tools::{BuiltinToolSpec, argument};
use crate::mcp::Version;

/// Most calls of one batch that the schema accepts; the operator may allow fewer.
const MAX_BATCH_CALLS: usize = 1000;
/// Longest name or description of a call, in characters.
const MAX_NAME_CHARS: usize = 256;

/// A tool that writes resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProviderTool {
    /// `batch_cancel`.
    BatchCancel,
    /// `batch_configure`.
    BatchConfigure,
    /// `batch_start`.
    BatchStart,
    /// `memory_delete`.
    MemoryDelete,
    /// `memory_store`.
    MemoryStore,
}

/// Priority of a call in a batch. Calls of a higher priority are started first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BatchPriority {
    /// Before all others.
    High,
    /// The priority of calls that name none.
    #[default]
    Normal,
    /// After all others.
    Low,
}

/// Arguments of `memory_store`.
#[derive(Debug, PartialEq, Eq)]
pub struct MemoryStoreCall {
    /// The namespace as the client names it.
    pub namespace: String,
    /// The key.
    pub key: String,
    /// The value as JSON text.
    pub json: String,
    /// Time for which the value is kept, in seconds.
    pub ttl_seconds: Option<u64>,
}

/// Arguments of `memory_delete`.
#[derive(Debug, PartialEq, Eq, Deserialize)]
pub struct MemoryDeleteCall {
    /// The namespace as the client names it.
    pub namespace: String,
    /// The key.
    pub key: String,
}

/// One call of a batch.
#[derive(Debug, Clone, Deserialize)]
pub struct BatchedCall {
    /// Name of an agent's tool.
    pub tool: String,
    /// Arguments of the tool.
    #[serde(default)]
    pub arguments: Option<Box<RawValue>>,
    /// Priority of the call; without it that of the batch.
    #[serde(default)]
    pub priority: Option<BatchPriority>,
}

/// Arguments of `batch_start`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BatchStartCall {
    /// The calls, at least one.
    pub calls: Vec<BatchedCall>,
    /// Priority of the calls that name none.
    #[serde(default)]
    pub priority: Option<BatchPriority>,
    /// Most calls of this batch at once.
    #[serde(default)]
    pub max_concurrency: Option<usize>,
    /// True if the response waits for the end of the batch, which is the default.
    #[serde(default)]
    pub wait: Option<bool>,
}

/// Thresholds of `batch_configure`; absent ones stay.
#[derive(Debug, Default, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ThresholdChange {
    /// Part of `limits.bytes` in use above which no further call is started.
    #[serde(default)]
    pub memory_usage: Option<f64>,
    /// Part of the processor time above which no further call is started.
    #[serde(default)]
    pub cpu_usage: Option<f64>,
    /// Most calls that wait.
    #[serde(default)]
    pub queue_size: Option<usize>,
}

/// Arguments of `batch_configure`; absent settings stay.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BatchConfigureCall {
    /// True if batches may be started.
    #[serde(default)]
    pub enabled: Option<bool>,
    /// Most calls at once.
    #[serde(default)]
    pub max_concurrency: Option<usize>,
    /// True if the thresholds of memory and processor hold calls back.
    #[serde(default)]
    pub resource_monitoring: Option<bool>,
    /// Thresholds.
    #[serde(default)]
    pub thresholds: Option<ThresholdChange>,
    /// Strategies that are used.
    #[serde(default)]
    pub optimization_strategies: Option<Vec<BatchStrategy>>,
}

/// A way in which a batch is faster or lighter than its calls one by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BatchStrategy {
    /// Calls of several tools run at once.
    ConcurrentProcessing,
    /// Calls of one tool with several arguments run at once.
    ParallelContentProcessing,
    /// Calls are held back while memory or processor are above their thresholds.
    ResourceOptimization,
}

impl BatchStrategy {
    /// All strategies.
    pub const ALL: [Self; 3] =
        [Self::ConcurrentProcessing, Self::ParallelContentProcessing, Self::ResourceOptimization];
}

impl ProviderTool {
    /// The tools of the memory bank.
    pub const MEMORY: [Self; 2] = [Self::MemoryDelete, Self::MemoryStore];
    /// The tools of batches.
    pub const BATCH: [Self; 3] = [Self::BatchCancel, Self::BatchConfigure, Self::BatchStart];

    /// Returns the tool of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::MEMORY.into_iter().chain(Self::BATCH).find(|tool| tool.name() == name)
    }

    /// Returns the name of the tool.
    pub fn name(self) -> &'static str {
        match self {
            Self::BatchCancel => "batch_cancel",
            Self::BatchConfigure => "batch_configure",
            Self::BatchStart => "batch_start",
            Self::MemoryDelete => "memory_delete",
            Self::MemoryStore => "memory_store",
        }
    }

    /// Returns the tool as a client of this revision sees it.
    pub fn json(self, version: Version) -> Option<Box<RawValue>> {
        let (title, description) = match self {
            Self::BatchCancel => (
                "Cancel a batch",
                "Cancel a batch of calls: those that run are stopped, and the others never begin.",
            ),
            Self::BatchConfigure => (
                "Configure batches",
                "Change your settings of batches: concurrency, thresholds and strategies. Absent members stay as they are.",
            ),
            Self::BatchStart => (
                "Start a batch",
                "Call several tools of agents at once, and get all results together; a failure of one leaves the others alone. \
                 With \"wait\": false, read the results from the resource that the result names.",
            ),
            Self::MemoryDelete => ("Delete from memory", "Delete the value of a key from the memory bank."),
            Self::MemoryStore => (
                "Store in memory",
                "Store a JSON value in the memory bank, under a namespace and a key. A contextId as namespace keeps it with \
                 that conversation. Read it as memory://data/{namespace}/{key}.",
            ),
        };
        let sheet = BuiltinToolSpec {
            name: self.name(),
            title,
            description,
            input: self.input_schema(),
            output: self.output_schema(),
            annotations: self.annotations(),
        };
        sheet.json(version)
    }

    fn annotations(self) -> Value {
        let hints = |destructive: bool, idempotent: bool, open_world: bool| {
            json!({
                "readOnlyHint": false, "destructiveHint": destructive, "idempotentHint": idempotent,
                "openWorldHint": open_world,
            })
        };
        match self {
            Self::BatchStart => hints(true, false, true),
            Self::BatchCancel => hints(true, true, true),
            Self::BatchConfigure => hints(false, true, false),
            Self::MemoryDelete | Self::MemoryStore => hints(true, true, false),
        }
    }

    fn input_schema(self) -> Value {
        let text = |description: &str| json!({"type": "string", "minLength": 1, "description": description});
        let namespace = text("The namespace: a name, or a contextId that an earlier result gave.");
        let key = text("The key in the namespace, such as task:7:specification.");
        let priority = json!({"type": "string", "enum": ["high", "normal", "low"]});
        let part = json!({"type": "number", "minimum": 0, "maximum": 1});
        let count = json!({"type": "integer", "minimum": 1});
        let (properties, required) = match self {
            Self::MemoryDelete => (json!({"namespace": namespace, "key": key}), json!(["namespace", "key"])),
            Self::MemoryStore => {
                let value = json!({"description": "Any JSON value; without it null."});
                let ttl = json!({
                    "type": "integer", "minimum": 1, "description": "Seconds until the value expires.",
                });
                let members = json!({"namespace": namespace, "key": key, "value": value, "ttl": ttl});
                (members, json!(["namespace", "key"]))
            }
            Self::BatchCancel => {
                (json!({"batchId": text("The batchId that batch_start gave.")}), json!(["batchId"]))
            }
            Self::BatchStart => {
                let call = json!({
                    "type": "object",
                    "properties": {
                        "tool": {"type": "string", "minLength": 1, "maxLength": MAX_NAME_CHARS,
                                 "description": "The name of an agent's tool."},
                        "arguments": {"type": "object", "description": "The arguments of that tool."},
                        "priority": priority,
                    },
                    "required": ["tool"],
                });
                let calls =
                    json!({"type": "array", "minItems": 1, "maxItems": MAX_BATCH_CALLS, "items": call});
                let wait = json!({"type": "boolean", "description": "False: respond at once."});
                let members =
                    json!({"calls": calls, "priority": priority, "maxConcurrency": count, "wait": wait});
                (members, json!(["calls"]))
            }
            Self::BatchConfigure => {
                let strategy = json!({"type": "string", "enum": BatchStrategy::ALL});
                let thresholds = json!({
                    "type": "object",
                    "properties": {"memoryUsage": part, "cpuUsage": part, "queueSize": count},
                    "additionalProperties": false,
                });
                let members = json!({
                    "enabled": {"type": "boolean"},
                    "maxConcurrency": count,
                    "resourceMonitoring": {"type": "boolean"},
                    "thresholds": thresholds,
                    "optimizationStrategies": {"type": "array", "uniqueItems": true, "items": strategy},
                });
                (members, json!([]))
            }
        };
        json!({"type": "object", "properties": properties, "required": required})
    }

    fn output_schema(self) -> Value {
        let text = json!({"type": "string"});
        let number = json!({"type": ["number", "null"]});
        let (properties, required) = match self {
            Self::MemoryStore => (
                json!({"namespace": text, "key": text, "uri": text, "size": {"type": "integer"},
                       "ttl": {"type": ["integer", "null"]}, "created": text}),
                json!(["namespace", "key", "uri", "size"]),
            ),
            Self::MemoryDelete => (json!({"deleted": {"type": "boolean"}}), json!(["deleted"])),
            Self::BatchCancel => {
                (json!({"batchId": text, "canceled": {"type": "boolean"}}), json!(["batchId", "canceled"]))
            }
            Self::BatchConfigure => (json!({"enabled": {"type": "boolean"}}), json!(["enabled"])),
            Self::BatchStart => (
                json!({"batchId": text, "status": text, "resource": text, "speedup": number,
                       "successRate": number, "results": {"type": "array", "items": {"type": "object"}}}),
                json!(["batchId", "status", "resource"]),
            ),
        };
        json!({"type": "object", "properties": properties, "required": required})
    }

    fn validator(self) -> Option<&'static Validator> {
        static ALL: LazyLock<Vec<(ProviderTool, Validator)>> = LazyLock::new(|| {
            let all = ProviderTool::MEMORY.into_iter().chain(ProviderTool::BATCH);
            all.filter_map(|tool| Some((tool, strict_validator(&tool.input_schema()).ok()?))).collect()
        });
        ALL.iter().find(|(tool, _)| *tool == self).map(|(_, validator)| validator)
    }
}

/// Reads the arguments of `memory_store`. The value keeps the digits of its numbers.
///
/// # Errors
///
/// The problem, in words that let a model correct itself.
pub fn read_memory_store(arguments: Option<&RawValue>) -> Result<MemoryStoreCall, String> {
    #[derive(Deserialize)]
    struct WrittenCall<'a> {
        namespace: String,
        key: String,
        #[serde(borrow, default)]
        value: Option<&'a RawValue>,
    }
    let value = argument(ProviderTool::MemoryStore.validator(), arguments)?;
    let ttl_seconds = value.get("ttl").and_then(whole);
    let WrittenCall { namespace, key, value } = parse(arguments)?;
    let json = value.map_or("null", RawValue::get).to_owned();
    Ok(MemoryStoreCall { namespace, key, json, ttl_seconds })
}

/// Reads the arguments of `memory_delete`.
///
/// # Errors
///
/// The problem, in words that let a model correct itself.
pub fn read_memory_delete(arguments: Option<&RawValue>) -> Result<MemoryDeleteCall, String> {
    argument(ProviderTool::MemoryDelete.validator(), arguments)?;
    parse(arguments)
}

/// Reads the arguments of `batch_start`.
///
/// # Errors
///
/// The problem, in words that let a model correct itself.
pub fn read_batch_start(arguments: Option<&RawValue>) -> Result<BatchStartCall, String> {
    argument(ProviderTool::BatchStart.validator(), arguments)?;
    parse(arguments)
}

/// Reads the arguments of `batch_cancel`: the id of the batch.
///
/// # Errors
///
/// The problem, in words that let a model correct itself.
pub fn read_batch_cancel(arguments: Option<&RawValue>) -> Result<String, String> {
    let value = argument(ProviderTool::BatchCancel.validator(), arguments)?;
    Ok(value.get("batchId").and_then(Value::as_str).unwrap_or_default().to_owned())
}

/// Reads the arguments of `batch_configure`.
///
/// # Errors
///
/// The problem, in words that let a model correct itself.
pub fn read_batch_configure(arguments: Option<&RawValue>) -> Result<BatchConfigureCall, String> {
    let value = argument(ProviderTool::BatchConfigure.validator(), arguments)?;
    serde_json::from_value(value).map_err(|error| format!("Invalid arguments: {error}."))
}

fn parse<'a, T: Deserialize<'a>>(arguments: Option<&'a RawValue>) -> Result<T, String> {
    let json = arguments.map(RawValue::get).filter(|json| *json != "null").unwrap_or("{}");
    serde_json::from_str(json).map_err(|error| format!("Invalid arguments: {error}."))
}

/// Reads a whole number, which some clients write as a float.
fn whole(value: &Value) -> Option<u64> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the schema accepts whole and positive numbers only"
    )]
    value.as_u64().or_else(|| value.as_f64().map(|number| number as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.to_owned()).unwrap()
    }

    #[test]
    fn stored_value_keeps_its_text() {
        let call = |json: &str| read_memory_store(Some(&raw(json)));
        let big = "[12345678901234567890123, 1.10]";
        let stored = call(&format!(r#"{{"namespace":"n","key":"k","value":{big},"ttl":60}}"#)).unwrap();
        assert_eq!((stored.json.as_str(), stored.ttl_seconds), (big, Some(60)));
        let null = call(r#"{"namespace":"n","key":"k","value":null,"ttl":null}"#).unwrap();
        assert_eq!((null.json.as_str(), null.ttl_seconds), ("null", None));
        for (json, problem) in [
            (r#"{"key":"k"}"#, "namespace"),
            (r#"{"namespace":"","key":"k"}"#, "/namespace"),
            (r#"{"namespace":"n","key":"k","ttl":0}"#, "/ttl"),
            (r#"{"namespace":"n","key":"k","value":1,"value":2}"#, "value"),
        ] {
            let refused = call(json).unwrap_err();
            assert!(refused.contains(problem), "{json}: {refused}");
        }
    }

    #[test]
    fn batch_has_calls_with_priorities() {
        let batch =
            raw(r#"{"calls":[{"tool":"a","arguments":{"text":"x"},"priority":"high"},{"tool":"b"}]}"#);
        let batch = read_batch_start(Some(&batch)).unwrap();
        assert_eq!(batch.calls[0].priority, Some(BatchPriority::High));
        assert_eq!(batch.calls[0].arguments.as_ref().unwrap().get(), r#"{"text":"x"}"#);
        assert!(batch.calls[1].arguments.is_none() && batch.calls[1].priority.is_none());
        for json in
            [r#"{"calls":[]}"#, r#"{"calls":[{}]}"#, r#"{"calls":[{"tool":"a","priority":"urgent"}]}"#]
        {
            assert!(read_batch_start(Some(&raw(json))).is_err(), "{json}");
        }
    }

    #[test]
    fn settings_of_batches_are_partial() {
        let change = raw(r#"{"maxConcurrency":3,"thresholds":{"cpuUsage":0.5}}"#);
        let change = read_batch_configure(Some(&change)).unwrap();
        assert_eq!(change.max_concurrency, Some(3));
        assert_eq!(change.thresholds.unwrap().cpu_usage, Some(0.5));
        assert!(change.enabled.is_none() && change.optimization_strategies.is_none());
        let strategies = raw(r#"{"optimizationStrategies":["resource_optimization"]}"#);
        let strategies = read_batch_configure(Some(&strategies)).unwrap().optimization_strategies;
        assert_eq!(strategies, Some(vec![BatchStrategy::ResourceOptimization]));
        assert!(read_batch_configure(Some(&raw(r#"{"thresholds":{"cpuUsage":2}}"#))).is_err());
    }

    #[test]
    fn each_tool_is_listed() {
        for tool in ProviderTool::MEMORY.into_iter().chain(ProviderTool::BATCH) {
            assert_eq!(ProviderTool::from_name(tool.name()), Some(tool));
            assert!(tool.json(Version::V2025_11_25).unwrap().get().contains(tool.name()));
            assert!(tool.validator().is_some(), "{tool:?}");
        }
    }
}
