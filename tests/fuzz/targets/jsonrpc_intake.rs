//! Any request is taken apart without a panic, an accepted id comes back byte for byte, no name
//! of a member is overlooked that a parser finds, and nothing is JSON that is none for serde_json.

#![cfg_attr(feature = "libfuzzer", no_main)]

use std::collections::HashSet;

use http::{HeaderMap, HeaderValue};
use mcp_a2a_gateway::jsonrpc::{
    Id, MessageKind, Scan, each_name, elements, is_batch, parse, parse_envelope, recover_id, well_formed,
    write_error, write_result,
};
use mcp_a2a_gateway::mcp::classify::{McpHeaders, classify, stateless_version};
use mcp_a2a_gateway::mcp::{ClientParams, Method};
use serde_json::Value;
use serde_json::value::RawValue;

fuzz::program!(intake);

const DEPTH: usize = 64;
const BATCH: usize = 32;

/// McpHeaders up to the first line feed: revision, `Mcp-Method` and `Mcp-Name` between tabs. Then the
/// body.
fn intake(bytes: &[u8]) {
    let mut halves = bytes.splitn(2, |byte| *byte == b'\n');
    let (Some(head), Some(body)) = (halves.next(), halves.next()) else { return };
    let headers = headers(head);
    let Ok(text) = well_formed(body, DEPTH) else { return };
    named(text);
    if is_batch(text) {
        let expected: Option<Vec<&RawValue>> = serde_json::from_str(text).ok();
        let ours = elements(text, usize::MAX).ok().map(|items| items.into_iter().map(RawValue::get).collect::<Vec<_>>());
        let expected = expected.map(|items| items.into_iter().map(RawValue::get).collect::<Vec<_>>());
        assert_eq!(ours, expected.filter(|items| !items.is_empty()));
        for one in elements(text, BATCH).unwrap_or_default() {
            message(one.get(), &headers);
        }
    } else {
        message(text, &headers);
    }
}

fn named(text: &str) {
    let mut told = HashSet::new();
    each_name(text, |name| {
        told.insert(name.as_str().to_owned());
        Scan::Within
    });
    if let Ok(value) = serde_json::from_str(text) {
        overlooked(&value, &told);
    }
}

fn overlooked(value: &Value, told: &HashSet<String>) {
    match value {
        Value::Object(members) => members.iter().for_each(|(name, value)| {
            assert!(told.contains(name), "overlooked: {name:?}");
            overlooked(value, told);
        }),
        Value::Array(items) => items.iter().for_each(|item| overlooked(item, told)),
        _ => {}
    }
}

fn headers(line: &[u8]) -> HeaderMap {
    let names = ["mcp-protocol-version", "mcp-method", "mcp-name"];
    let values = line.split(|byte| *byte == b'\t').map(HeaderValue::from_bytes);
    names
        .into_iter()
        .zip(values)
        .filter_map(|(name, value)| Some((name.parse().ok()?, value.ok()?)))
        .collect()
}

fn message(text: &str, headers: &HeaderMap) {
    let headers = McpHeaders::read(headers);
    let Ok(message) = parse::<ClientParams<'_>>(text) else {
        if let Some(id) = recover_id(text) {
            answered(&id);
        }
        return;
    };
    assert!(parse_envelope(text).is_ok(), "good with its params and not without");
    assert!(serde_json::from_str::<&RawValue>(text).is_ok(), "not JSON");
    assert!(message.kind != MessageKind::Response || message.method.as_str().is_empty());
    let placed = classify(&message, &headers);
    assert!(message.kind == MessageKind::Request || placed.is_ok(), "nobody reads a refusal of {text}");
    if let Ok(place) = placed {
        let method = Method::named(message.method.as_str(), place.era());
        drop(method.map(|_| stateless_version(&headers)));
    }
    if let Some(id) = &message.id {
        answered(id);
    }
}

fn answered(id: &Id) {
    let result = write_result(id, &serde_json::json!({"ok": true}));
    let error = write_error(Some(id), -32600, "no\n\"good\"", None);
    for answer in [result, error] {
        let answer = String::from_utf8(answer).expect("text");
        let raw: std::collections::HashMap<&str, &RawValue> = serde_json::from_str(&answer).expect("JSON");
        assert_eq!(raw["id"].get(), id.as_json());
    }
}
