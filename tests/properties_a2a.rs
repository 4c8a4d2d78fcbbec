//! Promises of the A2A side that hold for any input: nothing panics, nothing is lost, chunking
//! never matters.

#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mcp_a2a_gateway::a2a::{
    AgentCard, AgentInterface, Artifact, Artifacts, Binding, Dialect, InterfacePin, Message, Operation,
    OperationRequest, Part, PartBody, ProbeRequest, Role, StreamResponse, TextChange, clean, depth_within,
    grpc,
};
use mcp_a2a_gateway::sse::{self, Decoder};
use proptest::prelude::*;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

const DIALECTS: [Dialect; 3] = [Dialect::V0_1, Dialect::V0_3, Dialect::V1];

/// Any JSON, not deep.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((member(), inner), 0..6).prop_map(|members| members.into_iter().collect()),
        ]
    })
}

/// Mostly names that mean something in A2A.
fn member() -> impl Strategy<Value = String> {
    const KNOWN: &[&str] = &[
        "jsonrpc",
        "result",
        "error",
        "code",
        "message",
        "task",
        "statusUpdate",
        "artifactUpdate",
        "kind",
        "type",
        "id",
        "taskId",
        "contextId",
        "sessionId",
        "index",
        "status",
        "state",
        "artifacts",
        "history",
        "artifact",
        "append",
        "lastChunk",
        "final",
        "messageId",
        "role",
        "parts",
        "text",
        "raw",
        "url",
        "data",
        "file",
        "bytes",
        "uri",
        "metadata",
        "skills",
        "capabilities",
        "supportedInterfaces",
        "protocolBinding",
        "securitySchemes",
        "security",
        "data_part_compat",
    ];
    prop_oneof![9 => prop::sample::select(KNOWN).prop_map(str::to_owned), 1 => ".{0,6}"]
}

fn message(parts: Vec<Part>) -> Message {
    Message {
        message_id: Some("m".to_owned()),
        role: Role::User,
        parts,
        task_id: None,
        context_id: None,
        reference_task_ids: Vec::new(),
        extensions: Vec::new(),
        metadata: None,
    }
}

/// Writes a message in a dialect, and reads what was written as if an agent had answered with it.
fn there_and_back(dialect: Dialect, message: &Message) -> Message {
    let ask = OperationRequest { message, accepted_output_modes: &[], tenant: None };
    let body: Value = serde_json::from_slice(&dialect.send(&ask, false)).unwrap();
    let answer = json!({"jsonrpc": "2.0", "id": 1, "result": {"message": body["params"]["message"]}});
    match dialect.event(answer.to_string().as_bytes()).unwrap() {
        // 0.1 names both beside the message.
        StreamResponse::Message(message) if dialect == Dialect::V0_1 => {
            let named = |name: &str| body["params"][name].as_str().map(str::to_owned);
            Message { task_id: named("id"), context_id: named("sessionId"), ..message }
        }
        StreamResponse::Message(message) => message,
        other => panic!("not a message: {other:?}"),
    }
}

/// The same for an agent that is called by HTTP+JSON or gRPC.
fn there_and_back_over(dialect: Dialect, binding: Binding, message: &Message) -> Message {
    let agent = AgentInterface { url: "http://h/".to_owned(), dialect, binding, tenant: None, version: None };
    let sent = agent.send(message, &[], false).unwrap().body.to_vec();
    let over_grpc = |json: Vec<u8>, [write, read]: [Convert; 2]| match binding {
        Binding::Grpc => {
            read(Operation::Send, dialect, &write(Operation::Send, dialect, &json).unwrap()).unwrap()
        }
        Binding::HttpJson | Binding::JsonRpc => json,
    };
    let sent = over_grpc(sent, [grpc::request_to_protobuf, grpc::request_to_json]);
    let body: Value = serde_json::from_slice(&sent).unwrap();
    let answer = json!({ "message": body["message"] }).to_string().into_bytes();
    let answer = over_grpc(answer, [grpc::response_to_protobuf, grpc::response_to_json]);
    match agent.event(&answer).unwrap() {
        StreamResponse::Message(message) => message,
        other => panic!("not a message: {other:?}"),
    }
}

type Convert = fn(Operation, Dialect, &[u8]) -> Result<Vec<u8>, grpc::ProtobufError>;

/// A message with the numbers of its data as protobuf has them: doubles.
fn with_doubles(mut message: Message) -> Message {
    let doubles =
        |data: &mut Box<RawValue>| *data = raw(&in_doubles(serde_json::from_str(data.get()).unwrap()));
    message.metadata.iter_mut().for_each(doubles);
    for part in &mut message.parts {
        part.metadata.iter_mut().for_each(doubles);
        if let PartBody::Data(data) = &mut part.body {
            doubles(data);
        }
    }
    message
}

fn in_doubles(value: Value) -> Value {
    match value {
        Value::Number(number) => number.as_f64().into(),
        Value::Array(items) => items.into_iter().map(in_doubles).collect(),
        Value::Object(members) => {
            members.into_iter().map(|(name, value)| (name, in_doubles(value))).collect()
        }
        other => other,
    }
}

/// The same value with numbers that JSON and doubles can both say exactly.
fn with_exact_numbers(value: Value) -> Value {
    match value {
        Value::Number(number) if number.is_i64() => (number.as_i64().unwrap() % (1 << 53)).into(),
        Value::Number(number) => (number.as_f64().unwrap().clamp(-1e9, 1e9).trunc() + 0.5).into(),
        Value::Array(items) => items.into_iter().map(with_exact_numbers).collect(),
        Value::Object(members) => {
            members.into_iter().map(|(name, value)| (name, with_exact_numbers(value))).collect()
        }
        other => other,
    }
}

fn raw(value: &Value) -> Box<RawValue> {
    to_raw_value(value).unwrap()
}

proptest! {
    #[test]
    fn bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let (url, dialect, binding) = ("http://h/".to_owned(), Dialect::V0_3, Binding::HttpJson);
        let over_rest = AgentInterface { url, dialect, binding, tenant: None, version: None };
        prop_assert!(over_rest.event(&bytes).is_err());
        over_rest.refusal(404, &bytes);
        for dialect in DIALECTS {
            prop_assert!(dialect.event(&bytes).is_err());
            prop_assert!(dialect.task(&bytes).is_err());
        }
        prop_assert!(AgentCard::parse(&bytes).is_err());
        ProbeRequest::MessageSend.verdict(200, &bytes);
        depth_within(&bytes, 3);
        let mut decoder = Decoder::new(64);
        prop_assert!(bytes.chunks(7).map(|chunk| decoder.push(chunk)).count() <= 43);
    }

    #[test]
    fn json_is_read_without_panic(value in any_json(), name in member()) {
        for json in [json!({"jsonrpc": "2.0", "result": value}), json!({"result": {name: value}}), value] {
            let text = json.to_string();
            for dialect in DIALECTS {
                let event = dialect.event(text.as_bytes());
                prop_assert_eq!(event.is_ok(), dialect.event(text.as_bytes()).is_ok());
                if let Ok(StreamResponse::Message(message)) = event {
                    there_and_back(dialect, &message);
                }
                prop_assert!(dialect.task(text.as_bytes()).is_err() || text.contains("status"));
            }
            if let Ok(card) = AgentCard::parse(text.as_bytes()) {
                prop_assert!(card.interface(InterfacePin::default()).is_err() || text.contains("http"));
            }
        }
    }

    #[test]
    fn cut_answers_are_refused(cut in any::<prop::sample::Index>()) {
        let whole = json!({"jsonrpc": "2.0", "id": 1, "result": {"task": {"id": "t", "contextId": "c",
            "status": {"state": "TASK_STATE_COMPLETED", "message": {"parts": [{"text": "ä\n"}], "role": "ROLE_AGENT"}},
            "artifacts": [{"artifactId": "a", "parts": [{"data": {"a": [1, 2]}}, {"raw": "aGk="}]}]}}}).to_string();
        prop_assert!(Dialect::V1.event(&whole.as_bytes()[..cut.index(whole.len())]).is_err());
    }

    #[test]
    fn content_survives_round_trip(
        text in any::<String>(),
        value in any_json(),
        filename in prop::option::of("[^\0]{1,12}"),
        metadata in prop::option::of(prop::collection::btree_map("[a-z]{1,6}", any::<i32>(), 1..4)),
    ) {
        let with = |body| Part {
            body,
            filename: filename.clone(),
            media_type: None,
            metadata: metadata.as_ref().map(|members| raw(&json!(members))),
        };
        let parts = vec![
            with(PartBody::Text(text.as_str().into())),
            with(PartBody::Data(raw(&value))),
            with(PartBody::Raw("aGk=".to_owned())),
            with(PartBody::Url("https://example.test/".to_owned())),
        ];
        for dialect in DIALECTS {
            let back = there_and_back(dialect, &message(parts.clone()));
            prop_assert_eq!(back.parts.len(), 4);
            prop_assert!(matches!(&back.parts[0].body, PartBody::Text(same) if same.to_str() == text));
            let PartBody::Data(data) = &back.parts[1].body else { panic!("{:?}", back.parts[1]) };
            prop_assert_eq!(data.get(), value.to_string());
            for part in &back.parts[2..] {
                prop_assert_eq!(&part.filename, &filename);
                prop_assert_eq!(part.metadata.as_ref().map(|raw| raw.get()), parts[0].metadata.as_ref().map(|raw| raw.get()));
            }
        }
    }

    #[test]
    fn bindings_carry_equal_content(
        text in any::<String>(),
        value in any_json(),
        bytes in prop::collection::vec(any::<u8>(), 1..40),
        filename in prop::option::of("[^\0]{1,12}"),
        metadata in prop::option::of(prop::collection::btree_map("[a-z]{1,6}", any::<i32>(), 1..4)),
        ids in prop::collection::vec(prop::option::of("[^\0]{1,6}"), 3..=3),
    ) {
        let with = |body| Part {
            body,
            filename: filename.clone(),
            media_type: None,
            metadata: metadata.as_ref().map(|members| raw(&json!(members))),
        };
        let sent = Message {
            message_id: ids[0].clone(),
            task_id: ids[1].clone(),
            context_id: ids[2].clone(),
            extensions: vec!["urn:x".to_owned()],
            metadata: metadata.as_ref().map(|members| raw(&json!(members))),
            ..message(vec![
                with(PartBody::Text(text.into())),
                with(PartBody::Data(raw(&with_exact_numbers(value)))),
                with(PartBody::Raw(STANDARD.encode(bytes))),
                with(PartBody::Url("https://example.test/".to_owned())),
            ])
        };
        for dialect in [Dialect::V0_3, Dialect::V1] {
            let by_json_rpc = there_and_back(dialect, &sent);
            let by_rest = there_and_back_over(dialect, Binding::HttpJson, &sent);
            prop_assert_eq!(format!("{by_rest:?}"), format!("{by_json_rpc:?}"), "{:?}", dialect);
            let by_grpc = with_doubles(there_and_back_over(dialect, Binding::Grpc, &sent));
            prop_assert_eq!(format!("{by_grpc:?}"), format!("{:?}", with_doubles(by_json_rpc)), "{:?}", dialect);
        }
    }

    #[test]
    fn ids_survive_round_trip(id in any::<String>(), context in any::<String>()) {
        prop_assume!(!id.is_empty() && !context.is_empty());
        for (dialect, conversation, state) in [
            (Dialect::V0_1, "sessionId", "completed"),
            (Dialect::V0_3, "contextId", "completed"),
            (Dialect::V1, "contextId", "TASK_STATE_COMPLETED"),
        ] {
            let answer = json!({"jsonrpc": "2.0", "id": 1, "result":
                {"id": id, conversation: context, "status": {"state": state}}});
            let task = dialect.task(answer.to_string().as_bytes()).unwrap();
            prop_assert_eq!((&task.id, task.context_id.as_ref()), (&id, Some(&context)));
            let mut follow_up = message(Vec::new());
            (follow_up.task_id, follow_up.context_id) = (Some(task.id.clone()), task.context_id.clone());
            follow_up.reference_task_ids.push(task.id.clone());
            let back = there_and_back(dialect, &follow_up);
            prop_assert_eq!((back.task_id.as_ref(), back.context_id.as_ref()), (Some(&id), Some(&context)));
            if dialect != Dialect::V0_1 {
                prop_assert_eq!(&back.reference_task_ids, std::slice::from_ref(&id));
            }
            let body: Value = serde_json::from_slice(&dialect.get_task(&task.id, None)).unwrap();
            prop_assert_eq!(&body["params"]["id"], &json!(id));
        }
    }

    #[test]
    fn chunking_never_changes_events(
        stream in prop::collection::vec(
            prop::sample::select(&["data: a", "data:b", "data", ":c", "event: e", "x", "é", "\u{FEFF}", "\r", "\n", "\r\n", "\n\n"][..]),
            0..60,
        ),
        cuts in prop::collection::vec(0usize..200, 0..12),
        limit in 1usize..80,
    ) {
        let stream = stream.concat().into_bytes();
        let whole = drain(limit, &[&stream]);
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(stream.len())).collect();
        cuts.sort_unstable();
        let (mut chunks, mut from) = (Vec::new(), 0);
        for cut in cuts {
            chunks.push(&stream[from..cut]);
            from = cut;
        }
        chunks.push(&stream[from..]);
        prop_assert_eq!(&drain(limit, &chunks), &whole);
        let bytes: Vec<&[u8]> = stream.chunks(1).collect();
        prop_assert_eq!(&drain(limit, &bytes), &whole);
    }

    #[test]
    fn encoded_events_are_decoded(values in prop::collection::vec(any_json(), 0..5), comment in any::<String>()) {
        let mut stream = Vec::new();
        for value in &values {
            sse::write_comment(&mut stream, &comment);
            sse::write_event(&mut stream, serde_json::to_string_pretty(value).unwrap().as_bytes());
        }
        let events = Decoder::new(1 << 20).push(&stream).unwrap();
        let read: Vec<Value> = events.iter().map(|event| serde_json::from_slice(&event.data).unwrap()).collect();
        prop_assert_eq!(json!(read).to_string(), json!(values).to_string());
    }

    #[test]
    fn artifact_chunks_add_up_to_text(
        pieces in prop::collection::vec((prop::collection::vec("[ab]{0,3}", 0..3), any::<bool>()), 0..12),
        max_bytes in 500usize..4000,
    ) {
        let mut artifacts = Artifacts::new(max_bytes);
        let mut shown = String::new();
        for (texts, append) in pieces {
            let parts = texts.into_iter().map(|text| Part::new(PartBody::Text(text.into()))).collect();
            let piece = Artifact { artifact_id: "a".to_owned(), name: None, description: None, parts, extensions: Vec::new(), metadata: None };
            match artifacts.apply(piece, append) {
                Ok(TextChange::Added(text)) => shown += &text.to_str(),
                Ok(TextChange::Replaced(text)) => shown = text.into_string(),
                Ok(TextChange::Nothing) | Err(_) => {}
            }
            let parts = artifacts.iter().flat_map(|artifact| &artifact.parts);
            let text: String = parts.map(|part| match &part.body { PartBody::Text(text) => text.to_str(), _ => "".into() }).collect();
            prop_assert_eq!(&shown, &text);
            prop_assert!(artifacts.bytes() <= max_bytes);
        }
        let mut again = Artifacts::new(max_bytes);
        let bytes = artifacts.bytes();
        prop_assert!(again.replace_all(artifacts.iter().cloned().collect()).is_ok());
        prop_assert_eq!(again.bytes(), bytes);
    }

    #[test]
    fn cleaned_text_stays_short_and_clean(text in any::<String>(), max_bytes in 0usize..60) {
        let once = clean(&text, max_bytes);
        prop_assert!(once.len() <= max_bytes);
        prop_assert!(!once.chars().any(|c| c.is_control() && c != '\n' && c != '\t'));
        prop_assert_eq!(&clean(&once, max_bytes), &once);
    }

    #[test]
    fn depth_counts_brackets(depth in 0usize..300, limit in 0usize..300, noise in "[a-z\\[{]{0,8}") {
        let text = format!("{}\"{noise}\\\"[\"{}", "[".repeat(depth), "]".repeat(depth));
        prop_assert_eq!(depth_within(text.as_bytes(), limit), depth <= limit);
    }
}

/// The events of a stream in chunks, and whether it broke.
fn drain<'a>(limit: usize, chunks: &[&'a [u8]]) -> (Vec<sse::Event<'a>>, bool) {
    let mut decoder = Decoder::new(limit);
    let mut events = Vec::new();
    for chunk in chunks.iter().copied().chain([&b""[..]]) {
        match decoder.push(chunk) {
            Ok(more) => events.extend(more),
            Err(_) => return (events, true),
        }
    }
    (events, false)
}
