//! Taking data out of the wrapping that agents before 1.0 need around what is no object.
//!
//! Not here: the wrapping (see `older`).

use serde::ser::{Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};

use super::super::model::{Part, PartBody};
use super::super::older::{WRAPPED, members};

/// Undoes the wrapping that `older` and the official SDK do to data that is no object.
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
