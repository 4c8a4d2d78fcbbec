//! An SSE reader of the kit's own, so that the gateway's encoder is not judged by the gateway's
//! decoder.

use serde_json::Value;

/// One event, as a browser would dispatch it; or one comment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SseEvent {
    /// The `event` field; empty if there is none.
    pub name: String,
    /// The `id` field.
    pub id: Option<String>,
    pub retry: Option<u64>,
    /// The `data` lines, joined; none if the event has no data line.
    pub data: Option<String>,
    /// The text after a colon, if this is a comment and not an event.
    pub comment: Option<String>,
}

impl SseEvent {
    /// The data as JSON; null if there is none (a priming event).
    pub fn json(&self) -> Value {
        match self.data.as_deref() {
            None | Some("") => Value::Null,
            Some(data) => serde_json::from_str(data).unwrap_or_else(|error| panic!("{error}: {data}")),
        }
    }
}

/// Collects bytes until they make events.
#[derive(Debug, Default)]
pub struct Events {
    buffer: Vec<u8>,
    open: Option<SseEvent>,
}

impl Events {
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole event or comment in what was pushed. Lines end in LF or CRLF.
    pub fn next(&mut self) -> Option<SseEvent> {
        while let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.buffer.drain(..=end).collect();
            let line = String::from_utf8(line).expect("SSE is UTF-8");
            let line = line.trim_end_matches('\n').trim_end_matches('\r');
            if line.is_empty() {
                if let Some(event) = self.open.take() {
                    return Some(event);
                }
                continue;
            }
            let (field, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            if field.is_empty() {
                return Some(SseEvent { comment: Some(value.to_owned()), ..SseEvent::default() });
            }
            self.field(field, value);
        }
        None
    }

    /// Bytes after the last whole event: not empty means that the stream was cut.
    pub fn is_clean(&self) -> bool {
        self.buffer.is_empty() && self.open.is_none()
    }

    fn field(&mut self, field: &str, value: &str) {
        let event = self.open.get_or_insert_with(SseEvent::default);
        match field {
            "event" => event.name = value.to_owned(),
            "id" => event.id = Some(value.to_owned()),
            "retry" => event.retry = value.parse().ok(),
            "data" => match &mut event.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                none => *none = Some(value.to_owned()),
            },
            _ => {}
        }
    }
}
