//! Maps the parts of an agent's message or artifact to content blocks, and to structured content.
//!
//! Follows `docs/spec/mcp.md` §2.4, §3.2. URLs are named in text and never fetched; a link block is
//! added only where the operator enabled links, since several clients fail on them. Several clients
//! show their model only `structuredContent` if a result has one, so the envelope `{text, data,
//! files, …}` contains everything that the text blocks contain. `tool_result` chooses the parts of a
//! result.

use std::borrow::Cow;

use base64::engine::general_purpose::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::{Engine, alphabet};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, percent_encode};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::a2a::{Part, PartBody};
use crate::mcp::Version;
use crate::mcp::tools::{ContentBlock, EmbeddedResource, ResourceContents};

/// The characters of a file name that are encoded in a URI.
const UNSAFE_IN_NAMES: &AsciiSet = &NON_ALPHANUMERIC.remove(b'.').remove(b'-').remove(b'_');

/// The presentation of blocks to a client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ContentDisplay {
    /// The client's revision.
    pub(crate) version: Version,
    /// True if links are added to the URLs in the text.
    pub(crate) links: bool,
}

impl ContentDisplay {
    /// Returns true if link blocks are shown.
    pub(super) fn has_links(self) -> bool {
        self.links && self.version.has_structured_output()
    }
}

/// Maps the parts of one message to blocks, one each. Thoughts are not output.
pub(crate) fn blocks<'a>(
    parts: impl IntoIterator<Item = &'a Part>,
    display: ContentDisplay,
    out: &mut Vec<ContentBlock>,
) {
    for part in parts.into_iter().filter(|part| !part.is_thought()) {
        add(part, display, out);
    }
}

/// Maps the parts of one artifact to blocks. Consecutive texts are pieces of one text: a stream
/// delivers it in chunks, and agents keep the chunks apart.
pub(crate) fn joined<'a>(
    parts: impl IntoIterator<Item = &'a Part>,
    display: ContentDisplay,
    out: &mut Vec<ContentBlock>,
) {
    let mut open = false;
    for part in parts.into_iter().filter(|part| !part.is_thought()) {
        let plain = matches!(&part.body, PartBody::Text(_)) && part.metadata.is_none();
        match (&part.body, out.last_mut()) {
            (PartBody::Text(more), Some(ContentBlock::Text { text, .. })) if open && plain => {
                text.push_str(&more.to_str())
            }
            _ => add(part, display, out),
        }
        open = plain;
    }
}

/// Adds the block of one part, and its link.
fn add(part: &Part, display: ContentDisplay, out: &mut Vec<ContentBlock>) {
    out.push(block(part, display.version));
    if let PartBody::Url(url) = &part.body
        && display.has_links()
    {
        out.push(ContentBlock::ResourceLink {
            uri: url.clone(),
            name: part.filename.clone().unwrap_or_else(|| "file".to_owned()),
            media_type: part.media_type.clone(),
        });
    }
}

/// Maps one part to a block.
fn block(part: &Part, version: Version) -> ContentBlock {
    let hints = DisplayHints::of(part);
    match &part.body {
        PartBody::Text(text) => match hints.resource_uri {
            Some(uri) => {
                embedded(uri, part.media_type.clone(), ResourceContents::Text(text.to_str().into_owned()))
            }
            None => ContentBlock::text(text.clone()),
        },
        PartBody::Raw(data) => match standard_base64(data) {
            Some(data) => raw(part, data.into_owned(), hints, version),
            None => {
                let name = part.filename.as_deref().unwrap_or("without a name");
                ContentBlock::text(format!(
                    "(A file, {name}, that cannot be shown: its content is not base64.)"
                ))
            }
        },
        PartBody::Url(url) => ContentBlock::text(named_url(part, url)),
        PartBody::Data(json) | PartBody::Unknown(json) => ContentBlock::text(json.get()),
    }
}

fn raw(part: &Part, data: String, hints: DisplayHints, version: Version) -> ContentBlock {
    let media_type = part.media_type.clone().unwrap_or_else(|| "application/octet-stream".to_owned());
    let is = |kind: &str| media_type.get(..kind.len()).is_some_and(|start| start.eq_ignore_ascii_case(kind));
    match hints.resource_uri {
        None if is("image/") => ContentBlock::Image { data, media_type },
        None if is("audio/") && version.has_audio() => ContentBlock::Audio { data, media_type },
        None => {
            let uri = format!("a2a-file:///{}", path_safe(part.filename.as_deref().unwrap_or("file")));
            embedded(uri, Some(media_type), ResourceContents::Blob(data))
        }
        Some(uri) => embedded(uri, Some(media_type), ResourceContents::Blob(data)),
    }
}

/// Returns the line that names a file at a URL.
pub(super) fn named_url(part: &Part, url: &str) -> String {
    format!("{}: {url}", part.filename.as_deref().unwrap_or("file"))
}

fn embedded(uri: String, media_type: Option<String>, content: ResourceContents) -> ContentBlock {
    ContentBlock::Resource { resource: EmbeddedResource { uri, media_type, content } }
}

/// An agent's hints on the presentation of a part, in the part's metadata.
#[derive(Default, Deserialize)]
struct DisplayHints {
    /// The URI under which the part is a resource.
    #[serde(default, rename = "mcp.resourceUri")]
    resource_uri: Option<String>,
}

impl DisplayHints {
    fn of(part: &Part) -> Self {
        let metadata: Option<&RawValue> = part.metadata.as_deref();
        metadata.and_then(|metadata| serde_json::from_str(metadata.get()).ok()).unwrap_or_default()
    }
}

/// Returns the standard base64 of MCP: the usual alphabet, padded. Agents send every variant;
/// `None` for any other text, which would make clients reject the whole result.
fn standard_base64(data: &str) -> Option<Cow<'_, str>> {
    const EITHER: GeneralPurposeConfig =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, EITHER);
    const PLAIN: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, EITHER);
    if STANDARD.decode(data).is_ok() {
        return Some(Cow::Borrowed(data));
    }
    let dense: String = data.split_ascii_whitespace().collect();
    let decoded = PLAIN.decode(&dense).or_else(|_| URL_SAFE.decode(&dense));
    decoded.ok().map(|bytes| Cow::Owned(STANDARD.encode(bytes)))
}

/// Encodes a file name as one segment of a URI path, cut to 200 bytes.
fn path_safe(name: &str) -> PercentEncode<'_> {
    let name = name.as_bytes();
    percent_encode(name.get(..200).unwrap_or(name), UNSAFE_IN_NAMES)
}

/// The parts of a result, as data.
#[derive(Debug, Default, Serialize)]
pub(super) struct StructuredEnvelope<'a> {
    /// All text, and the URLs of files.
    text: String,
    /// The data parts, in order.
    data: Vec<&'a RawValue>,
    /// The files, without their bytes, which are in `content`.
    files: Vec<FileNote<'a>>,
}

/// A file that a result contains or names.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct FileNote<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mime_type: Option<&'a str>,
    /// URL of the file, unless `content` contains it.
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<&'a str>,
}

impl<'a> StructuredEnvelope<'a> {
    /// Creates an envelope with a text of the gateway.
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// Creates an envelope with a text of the gateway and a data part.
    pub(super) fn with_data(text: impl Into<String>, data: &'a RawValue) -> Self {
        Self { text: text.into(), data: vec![data], files: Vec::new() }
    }

    /// Adds the parts of one message or artifact. Consecutive texts in an artifact are one text;
    /// others are separate lines.
    pub(super) fn add(&mut self, parts: &'a [Part], is_artifact: bool) {
        let mut open = false;
        for part in parts.iter().filter(|part| !part.is_thought()) {
            let is_text = matches!(part.body, PartBody::Text(_));
            match &part.body {
                PartBody::Text(text) if is_artifact && open => self.text.push_str(&text.to_str()),
                PartBody::Text(text) => self.say(&text.to_str()),
                PartBody::Data(json) => self.data.push(json),
                PartBody::Unknown(json) => self.say(json.get()),
                PartBody::Url(url) => {
                    self.say(&named_url(part, url));
                    self.files.push(FileNote::of(part, Some(url)));
                }
                PartBody::Raw(_) => self.files.push(FileNote::of(part, None)),
            }
            open = is_text;
        }
    }

    /// Adds the parts of a question except its text, which is in a sentence of the gateway.
    pub(super) fn add_beside_text(&mut self, parts: &'a [Part]) {
        let beside = |part: &&Part| !part.is_thought() && !matches!(part.body, PartBody::Text(_));
        for part in parts.iter().filter(beside) {
            self.add(std::slice::from_ref(part), false);
        }
    }

    /// Adds a line of text.
    fn say(&mut self, text: &str) {
        if !self.text.is_empty() && !text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(text);
    }

    /// Returns the data part, if it is the only content.
    pub(super) fn only_data(&self) -> Option<&'a RawValue> {
        match self.data.as_slice() {
            [only] if self.files.is_empty() && self.text.trim().is_empty() => Some(only),
            _ => None,
        }
    }

    /// Returns true if the envelope contains data and other content.
    pub(super) fn is_mixed(&self) -> bool {
        !self.data.is_empty() && (!self.text.trim().is_empty() || !self.files.is_empty())
    }

    /// Returns the data, if it is exactly one piece. `null` does not count: some clients read it as
    /// absent and then miss the promised data.
    pub(super) fn single_data(&self) -> Option<&'a RawValue> {
        match self.data.as_slice() {
            [only] => Some(*only).filter(|only| only.get() != "null"),
            _ => None,
        }
    }
}

impl<'a> FileNote<'a> {
    fn of(part: &'a Part, url: Option<&'a str>) -> Self {
        Self { name: part.filename.as_deref(), mime_type: part.media_type.as_deref(), url }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(part: Part, version: Version) -> String {
        let mut out = Vec::new();
        blocks([&part], ContentDisplay { version, links: false }, &mut out);
        serde_json::to_string(&out[0]).unwrap()
    }

    fn part(body: PartBody, media_type: Option<&str>, filename: Option<&str>) -> Part {
        Part { media_type: media_type.map(Into::into), filename: filename.map(Into::into), ..Part::new(body) }
    }

    #[test]
    fn each_part_has_its_block() {
        let newest = Version::V2026_07_28;
        let oldest = Version::V2024_11_05;
        let raw = |media_type| part(PartBody::Raw("AAAA".into()), media_type, Some("a b.bin"));
        for (given, version, expected) in [
            (part(PartBody::Text("hi".into()), None, None), newest, r#"{"type":"text","text":"hi"}"#),
            (raw(Some("image/png")), newest, r#"{"type":"image","data":"AAAA","mimeType":"image/png"}"#),
            (raw(Some("Audio/wav")), newest, r#"{"type":"audio","data":"AAAA","mimeType":"Audio/wav"}"#),
            (
                raw(Some("audio/wav")),
                oldest,
                r#"{"type":"resource","resource":{"uri":"a2a-file:///a%20b.bin","mimeType":"audio/wav","blob":"AAAA"}}"#,
            ),
            (
                part(PartBody::Url("https://x/y".into()), Some("text/html"), Some("y")),
                newest,
                r#"{"type":"text","text":"y: https://x/y"}"#,
            ),
            (
                part(PartBody::Url("https://x/y".into()), None, None),
                Version::V2025_03_26,
                r#"{"type":"text","text":"file: https://x/y"}"#,
            ),
        ] {
            assert_eq!(shown(given, version), expected);
        }
    }

    #[test]
    fn data_keeps_its_bytes() {
        let json = r#"{"n":12345678901234567890.10,"a":[1e400]}"#;
        let data = PartBody::Data(RawValue::from_string(json.into()).unwrap());
        assert!(shown(Part::new(data), Version::V2026_07_28).contains("12345678901234567890.10"));
    }

    #[test]
    fn every_base64_becomes_the_standard_one() {
        for (given, standard) in [
            ("_-8=", Some("/+8=")),
            ("_-8", Some("/+8=")),
            ("QQ", Some("QQ==")),
            ("QUJD", Some("QUJD")),
            ("QU\nJD", Some("QUJD")),
            ("!!!!", None),
            ("*", None),
        ] {
            assert_eq!(standard_base64(given).as_deref(), standard, "{given}");
        }
    }

    #[test]
    fn chunks_of_an_artifact_are_one_text() {
        let text = |text: &str| Part::new(PartBody::Text(text.into()));
        let parts = [text("a"), text("b"), Part::new(PartBody::Url("u:v".into())), text("c")];
        let mut out = Vec::new();
        joined(&parts, ContentDisplay { version: Version::V2026_07_28, links: false }, &mut out);
        assert_eq!(out.len(), 3);
        assert!(matches!(&out[0], ContentBlock::Text { text, .. } if text.to_str() == "ab"));
    }

    #[test]
    fn link_stands_beside_its_url_where_links_are_on() {
        let given = part(PartBody::Url("https://x/y".into()), Some("text/html"), Some("y"));
        for (version, links, count) in [
            (Version::V2026_07_28, true, 2),
            (Version::V2026_07_28, false, 1),
            (Version::V2025_03_26, true, 1),
        ] {
            let mut out = Vec::new();
            blocks([&given], ContentDisplay { version, links }, &mut out);
            assert_eq!(out.len(), count, "{version:?} {links}");
            assert!(matches!(&out[0], ContentBlock::Text { text, .. } if text.to_str() == "y: https://x/y"));
        }
    }

    #[test]
    fn an_agent_can_name_the_resource() {
        let mut given = part(PartBody::Text("x".into()), Some("text/plain"), None);
        given.metadata = RawValue::from_string(r#"{"mcp.resourceUri":"test://r"}"#.into()).ok();
        assert_eq!(
            shown(given, Version::V2025_06_18),
            r#"{"type":"resource","resource":{"uri":"test://r","mimeType":"text/plain","text":"x"}}"#
        );
    }
}
