//! Restores the data that travels in a part's metadata before 1.0: data that is not an object,
//! names and media types.
//!
//! The opposite is in `legacy_parts`.

use serde::ser::{Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};

use super::super::dialect::Dialect;
use super::super::legacy_parts::{WRAPPED, members};
use super::super::model::{Part, PartBody};

/// Moves the name and the media type of text and data back out of the metadata, where
/// `legacy_parts` puts them.
pub(in super::super) fn take_descriptions(parts: &mut [Part], from: Dialect) {
    match from {
        Dialect::V0_1 | Dialect::V0_3 => parts.iter_mut().for_each(take_description),
        Dialect::V1 => {}
    }
}

fn take_description(part: &mut Part) {
    if !matches!(part.body, PartBody::Text(_) | PartBody::Data(_)) {
        return;
    }
    let named = |raw: &&RawValue| raw.get().contains("\"filename\"") || raw.get().contains("\"mediaType\"");
    let Some(metadata) = part.metadata.as_deref().filter(named) else { return };
    let mut described = members(metadata);
    for (name, slot) in [("filename", &mut part.filename), ("mediaType", &mut part.media_type)] {
        let Some(at) = described.iter().position(|(member, _)| member == name) else { continue };
        let text = described.get(at).and_then(|(_, raw)| serde_json::from_str::<String>(raw.get()).ok());
        if let Some(text) = text.filter(|text| !text.is_empty() && slot.is_none()) {
            *slot = Some(text);
            described.remove(at);
        }
    }
    let rest = (!described.is_empty()).then(|| to_raw_value(&AsObject(&described)));
    part.metadata = rest.and_then(Result::ok);
}

/// Unwraps data that `legacy_parts` and the official SDK wrap because it is not an object.
pub(super) fn unwrap_data(part: &mut Part) {
    let PartBody::Data(data) = &part.body else { return };
    let Some(metadata) = part.metadata.as_deref().filter(|raw| raw.get().contains(WRAPPED)) else { return };
    let mut described = members(metadata);
    let Some(marked) = described.iter().position(|(name, value)| name == WRAPPED && value.get() == "true")
    else {
        return;
    };
    described.remove(marked);
    let wrapped = members(data);
    let [(name, value)] = wrapped.as_slice() else { return };
    if name != "value" {
        return;
    }
    let rest = (!described.is_empty()).then(|| to_raw_value(&AsObject(&described)));
    let value = PartBody::Data((*value).to_owned());
    part.metadata = rest.and_then(Result::ok);
    part.body = value;
}

struct AsObject<'a>(&'a [(String, &'a RawValue)]);

impl Serialize for AsObject<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}
