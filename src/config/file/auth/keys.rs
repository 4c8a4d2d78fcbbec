//! `auth.api_keys` as in the file.
//!
//! The file contains hashes, never keys: a reader of the file cannot call.

use std::collections::BTreeMap;

use http::HeaderName;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::resolve::ResolveContext;
use crate::config::spanned::{Location, OneOrMany, Spanned};
use crate::config::{ApiKeyOwner, ApiKeys};

/// API keys.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ApiKeys")]
pub(super) struct ApiKeysFile {
    /// The header that carries a key. With `Authorization` the key follows the word `Bearer`.
    #[serde(default)]
    #[schemars(extend("default" = "X-Api-Key"))]
    header: Spanned<String>,
    /// Who holds which keys: a name, and `sha256:` with the hash of the key in hexadecimal, or a list of those while keys
    /// are being exchanged. `mcp-a2a-gateway key` makes a key and its hash. The name stays; what a caller holds hangs on it.
    #[schemars(extend("minProperties" = 1, "propertyNames" = { "pattern": "^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$" }))]
    keys: Spanned<BTreeMap<String, Spanned<OneOrMany<Spanned<String>>>>>,
}

/// Headers that mean something else, or that control the connection.
const TAKEN: [&str; 9] = [
    "host",
    "content-type",
    "content-length",
    "accept",
    "cookie",
    "origin",
    "connection",
    "transfer-encoding",
    "mcp-session-id",
];

impl ApiKeysFile {
    pub(super) fn resolve(self, section: &Location, reading: &mut ResolveContext<'_>) -> Option<ApiKeys> {
        let header = match self.header.take() {
            None => HeaderName::from_static("x-api-key"),
            Some((place, written)) => header(&written, &place, reading)?,
        };
        let hint = "write a name and the hash of its key; `mcp-a2a-gateway key` makes both";
        let (place, written) = reading.required(self.keys, section, "keys", hint)?;
        if written.is_empty() {
            reading.problem(&place, format!("is empty ({hint})"));
        }
        let mut holders: Vec<ApiKeyOwner> = Vec::new();
        for (name, hashes) in written {
            let Some((place, OneOrMany(hashes))) = hashes.take() else { continue };
            if !is_name(&name) {
                reading.problem(&place, "is not a name (1 to 64 letters, digits and . _ @ -)");
            }
            let mut read = Vec::new();
            for (place, text) in hashes.into_iter().filter_map(Spanned::take) {
                let Some(hash) = hash(&text) else {
                    reading.problem(&place, "is not a hash (write sha256: and 64 hexadecimal digits)");
                    continue;
                };
                if holders.iter().any(|holder| holder.hashes.contains(&hash)) || read.contains(&hash) {
                    reading.problem(&place, "is there twice: a key names one caller");
                }
                read.push(hash);
            }
            holders.push(ApiKeyOwner { name, hashes: read });
        }
        Some(ApiKeys { header, holders })
    }
}

fn header(written: &str, place: &Location, reading: &mut ResolveContext<'_>) -> Option<HeaderName> {
    match HeaderName::try_from(written) {
        Ok(name) if !TAKEN.contains(&name.as_str()) => Some(name),
        Ok(_) => reading.report_conflict(place, "means something else (write X-Api-Key or Authorization)"),
        Err(_) => reading.report_conflict(place, "is not the name of a header (write X-Api-Key)"),
    }
}

fn is_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'@' | b'-');
    name.len() <= 64
        && name.bytes().all(fits)
        && name.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric())
}

/// Parses `sha256:` and 64 hexadecimal digits.
fn hash(text: &str) -> Option<[u8; 32]> {
    let is_hex = |digits: &&str| digits.len() == 64 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let digits = text.strip_prefix("sha256:").filter(is_hex)?;
    let mut hash = [0; 32];
    for (byte, pair) in hash.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_hashes_are_hashes() {
        let good = format!("sha256:{}", "0f".repeat(32));
        assert_eq!(hash(&good), Some([0x0f; 32]));
        for bad in ["0f".repeat(32), "sha256:".to_owned(), "md5:00".to_owned(), format!("{good}0")] {
            assert_eq!(hash(&bad), None, "{bad}");
        }
        assert_eq!(hash(&format!("sha256:{}", "+f".repeat(32))), None);
    }
}
