//! A push can make the gateway ask about one task at the most, and echo nothing that a browser
//! takes for a page.

#![cfg_attr(feature = "libfuzzer", no_main)]

use http::{HeaderMap, HeaderValue};
use mcp_a2a_gateway::a2a::{PUSH_TOKEN, accepts, push_task_id, validation_echo};
use serde_json::Value;

fuzz::program!(push);

const SECRET: &str = "xkqVxS6v0FvZ1bO2mWkqFqk4v1mGmVb2eWmVtV0rV5Y";
const LONGEST_ECHO: usize = 512;

/// The bytes are taken for a body, for a query and for the proof of the sender.
fn push(bytes: &[u8]) {
    if let Some(task) = push_task_id(bytes) {
        assert!(!task.is_empty());
        let said: Value = serde_json::from_slice(bytes).unwrap_or_default();
        assert!(
            said.is_null() || said.to_string().contains(&Value::from(task.as_str()).to_string()),
            "{said}"
        );
        wrapped(bytes, &said, &task);
    }
    if let Ok(query) = std::str::from_utf8(bytes)
        && let Some(echo) = validation_echo(query)
    {
        assert!((1..=LONGEST_ECHO).contains(&echo.len()), "{} bytes are echoed", echo.len());
        assert!(echo.bytes().all(|byte| byte.is_ascii_graphic() && !b"<>\"'&%".contains(&byte)), "{echo}");
        assert_eq!(validation_echo(&format!("a=b&validationToken={echo}")), Some(echo));
    }
    proof(bytes);
}

/// In the envelope of a request or an answer it is about the same task.
fn wrapped(bytes: &[u8], said: &Value, task: &str) {
    let is_wrapped = |name: &str| said.get(name).is_some();
    if said.is_null() || is_wrapped("result") || is_wrapped("params") {
        return;
    }
    for name in ["result", "params"] {
        let whole = [format!(r#"{{"id":"another","{name}":"#).as_bytes(), bytes, b"}"].concat();
        // One level deeper may be one too many.
        let found = push_task_id(&whole);
        assert!(found.is_none() || found.as_deref() == Some(task), "{found:?}, not {task:?}");
    }
}

/// Nothing but the secret is taken for it.
fn proof(bytes: &[u8]) {
    let Ok(value) = HeaderValue::from_bytes(bytes) else { return };
    let is_secret = bytes == SECRET.as_bytes();
    let headers = |name: &'static str| HeaderMap::from_iter([(name.parse().expect("a name"), value.clone())]);
    assert_eq!(accepts(&headers(PUSH_TOKEN), SECRET), is_secret);
    let text = String::from_utf8_lossy(bytes);
    if accepts(&headers("authorization"), SECRET) {
        let credentials = text.trim().split_once(' ').map(|(_, credentials)| credentials.trim_start());
        let is_jwt = |text: &str| text.starts_with("eyJ") && text.split('.').count() == 3;
        assert!(credentials.is_some_and(|given| given == SECRET || is_jwt(given)), "{text}");
    }
    assert!(!accepts(&headers("cookie"), SECRET) && !accepts(&headers(PUSH_TOKEN), ""));
}
