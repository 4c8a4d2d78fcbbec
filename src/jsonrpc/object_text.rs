//! Writes an object member by member, without a type of serde: the result needs no check that it is UTF-8, which
//! takes longer than to write a small one.

use serde::Deserialize as _;
use serde::de::value::MapDeserializer;
use serde_json::Error;
use serde_json::value::RawValue;

use super::json_writer::{RAW_VALUE, has_escapes};

/// A JSON object that is being written.
pub(crate) struct ObjectText {
    /// Its members, with the bracket before them.
    json: String,
}

impl ObjectText {
    /// Creates an empty object with room for this many bytes, which grows.
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self { json: String::with_capacity(bytes) }
    }

    /// Adds a member that is a string.
    pub(crate) fn add_text(&mut self, name: &str, text: &str) {
        self.add_name(name);
        self.push_string(text);
    }

    /// Adds a member that is JSON.
    pub(crate) fn add_raw(&mut self, name: &str, value: &RawValue) {
        self.add_name(name);
        self.json.push_str(value.get());
    }

    /// Returns the object; `None` if it has no member.
    ///
    /// # Errors
    ///
    /// None that is known: the form of a raw value belongs to serde_json.
    pub(crate) fn finish(mut self) -> Result<Option<Box<RawValue>>, Error> {
        if self.json.is_empty() {
            return Ok(None);
        }
        self.json.push('}');
        // The form in which the deserializer of serde_json hands the text of a raw value over: it is not parsed again, as
        // that of `RawValue::from_string` is.
        Box::deserialize(MapDeserializer::new(std::iter::once((RAW_VALUE, self.json)))).map(Some)
    }

    fn add_name(&mut self, name: &str) {
        self.json.push(if self.json.is_empty() { '{' } else { ',' });
        self.push_string(name);
        self.json.push(':');
    }

    fn push_string(&mut self, text: &str) {
        if has_escapes(text.as_bytes()) {
            // To display a value never fails.
            self.json.push_str(&serde_json::Value::from(text).to_string());
            return;
        }
        self.json.push('"');
        self.json.push_str(text);
        self.json.push('"');
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn object_has_its_members_in_their_order() {
        for text in ["", "a", "\"\n\u{1}\\", "é…", &"long ".repeat(50)] {
            let mut object = ObjectText::with_capacity(4);
            object.add_text("first", text);
            let list = RawValue::from_string("[1, null]".to_owned()).unwrap();
            object.add_raw(text, &list);
            let json = object.finish().unwrap().unwrap();
            let name = serde_json::to_string(text).unwrap();
            assert_eq!(json.get(), format!(r#"{{"first":{name},{name}:[1, null]}}"#));
            let read: Value = serde_json::from_str(json.get()).unwrap();
            assert_eq!((&read["first"], &read[text]), (&json!(text), &json!([1, null])));
        }
    }

    #[test]
    fn object_without_members_is_none() {
        assert!(ObjectText::with_capacity(0).finish().unwrap().is_none());
    }
}
