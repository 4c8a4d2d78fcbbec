//! `prompts` and `resources.static`: texts, images, sounds and resources that clients offer to their
//! users.
//!
//! `{{NAME}}` in a text, or in the URI of an embedded resource, stands for the argument of that
//! name. Files are read once, with the configuration. See also `mcp_server::prompts` and
//! `resources::configured`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::agent::MediaType;
use super::forms::{Form, checked_text, choice};
use super::resolve::{self, ResolveContext};
use super::section::{KeysOf, section};
use super::yaml::{Location, Spanned};
use crate::mcp::tools::{ContentBlock, EmbeddedResource, ResourceContents};

/// Most prompts.
const MAX_PROMPTS: usize = 1000;
/// Most messages of one prompt, arguments of one prompt, and completion values of one argument.
const MAX_ITEMS: usize = 100;
/// Longest name of an argument, in bytes.
const MAX_NAME_BYTES: usize = 64;
/// Largest file of a message or a resource, in bytes.
const MAX_FILE_BYTES: usize = 4 << 20;

section! {
    /// A prompt that clients offer to their users: messages for a model, made with its arguments.
    keys PromptKeys("Prompt") {
        /// Its title for people. Without it: its name.
        title: String => Option<String> [example "Review a contract"],
        /// Its purpose.
        description: String => Option<String> [example "Has a contract reviewed clause by clause."],
        /// Name of the agent that the prompt is about: callers that do not see the agent do not see
        /// the prompt, and the endpoint of that agent has it too. Without it: for every caller, on
        /// `/mcp` alone.
        agent: String => Option<String> [example weather],
        /// Arguments that the user gives; at most 100.
        arguments: Vec<Spanned<KeysOf<PromptArgument>>> => Vec<PromptArgument>,
        /// The messages, at least one and at most 100.
        messages: Vec<Spanned<PromptMessageKeys>> [schema { "minItems": 1 }],
    }
}

section! {
    /// An argument of a prompt.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct PromptArgument {
        /// Its name, which stands as `{{NAME}}` in texts: letters, digits, `-`, `_` and `.`, at
        /// most 64.
        name: String as ArgumentName [required "write the name of the argument" example contract],
        /// Its title for people.
        title: Option<String> [example Contract],
        /// Its meaning.
        description: Option<String> [example "The text of the contract."],
        /// True if the prompt cannot be had without it. Otherwise it is empty if it is left out.
        required: bool = false,
        /// Values that `completion/complete` proposes; at most 100.
        values: Vec<String> = [] [example [short, long]],
    }
}

section! {
    /// One message of a prompt: one of `text`, `image`, `audio` and `resource`.
    keys PromptMessageKeys("PromptMessage") {
        /// The author: `user` or `assistant`.
        role: PromptRole => PromptRole = user,
        /// A text, in which `{{NAME}}` stands for an argument.
        text: String [example "Review this contract: {{contract}}"],
        /// Path of an image, at most 4 MiB.
        image: String [example "clause.png"],
        /// Path of a sound, at most 4 MiB.
        audio: String [example "clause.wav"],
        /// Media type of the image or the sound. Without it: that of the file's extension.
        mime_type: MediaType => Option<String> [example "image/png"],
        /// An embedded resource.
        resource: EmbeddedKeys,
    }
}

section! {
    /// A resource inside a message: one of `text`, `file` and `blob`.
    keys EmbeddedKeys("EmbeddedResource") {
        /// Its URI, in which `{{NAME}}` stands for an argument.
        uri: String => Option<String> [required "write the URI of the resource" example "docs://terms"],
        /// Its media type. Without it: that of the file's extension.
        mime_type: MediaType => Option<String> [example "text/plain"],
        /// Its content as text, in which `{{NAME}}` stands for an argument.
        text: String [example "Payment is due within 30 days."],
        /// Path of a file with its content, at most 4 MiB: text if it is UTF-8 and its media type is
        /// one of text.
        file: String [example "terms.txt"],
        /// Its content in base64.
        blob: String [example "JVBERg=="],
    }
}

section! {
    /// A resource of the configuration: one of `text`, `file` and `blob`.
    keys StaticResourceKeys("StaticResource") {
        /// Its URI, of any scheme but those of the gateway (`a2a`, `a2a-agent`, `mcp`, `memory`,
        /// `sparc`, `batchtools`). With `{NAME}` in it, it is a template: each stands for one
        /// segment of the path, or a part of one.
        uri: String => Option<String> [required "write the URI of the resource" example "docs://{page}"],
        /// Its name. Without it: its URI.
        name: String => Option<String> [example page],
        /// Its title for people.
        title: String => Option<String> [example "A page"],
        /// Its content, in words.
        description: String => Option<String> [example "A page of the manual."],
        /// Its media type. Without it: that of the file's extension, or `text/plain`.
        mime_type: MediaType => Option<String> [example "text/plain"],
        /// Its content as text. In a template `{{NAME}}` stands for the value of `{NAME}`; in JSON
        /// it is escaped.
        text: String [example "This is page {{page}}."],
        /// Path of a file with its content, at most 4 MiB: text if it is UTF-8 and its media type is
        /// one of text.
        file: String [example "page.txt"],
        /// Its content in base64.
        blob: String [example "JVBERg=="],
    }
}

/// A resource of the configuration, or a template of resources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaticResource {
    /// Its URI, or the template of its URIs.
    pub uri: String,
    /// Its name.
    pub name: String,
    /// Its title for people.
    pub title: Option<String>,
    /// Its content, in words.
    pub description: Option<String>,
    /// Its media type.
    pub media_type: String,
    /// Its content; in the text of a template, `{{NAME}}` stands for the value of a variable.
    pub content: ResourceContents,
}

impl StaticResource {
    /// Returns true if its URI is a template.
    pub(crate) fn is_template(&self) -> bool {
        self.uri.contains('{')
    }
}

/// Schemes of the gateway's own resources.
const OWN_SCHEMES: [&str; 6] = ["a2a", "a2a-agent", "mcp", "memory", "sparc", "batchtools"];
/// Longest URI of a resource, in bytes.
const MAX_URI_BYTES: usize = 2048;

/// Returns the names of the variables in a template of URIs. `others` are the schemes that it may not
/// have.
///
/// # Errors
///
/// The defect of the URI.
pub(super) fn uri_variables<'u>(uri: &'u str, others: &[&str]) -> Result<Vec<&'u str>, String> {
    let scheme = uri.split_once(':').map(|(scheme, _)| scheme).unwrap_or_default();
    let is_scheme = |each: u8| each.is_ascii_alphanumeric() || matches!(each, b'+' | b'-' | b'.');
    if scheme.is_empty() || !scheme.bytes().all(is_scheme) || uri.len() > MAX_URI_BYTES {
        return Err(format!("is not a URI of at most {MAX_URI_BYTES} bytes (write SCHEME://PATH)"));
    }
    if others.contains(&scheme) {
        return Err(format!("has the scheme {scheme} of the gateway's own resources"));
    }
    let mut pieces = uri.split('{');
    let mut names = Vec::new();
    let is_plain = |text: &str| !text.contains('}') && text.bytes().all(|each| each.is_ascii_graphic());
    let mut is_good = pieces.next().is_some_and(is_plain);
    let count = uri.matches('{').count();
    for (index, piece) in pieces.enumerate() {
        let (name, rest) = piece.split_once('}').unwrap_or_default();
        let is_last = index + 1 == count;
        is_good &= !name.is_empty() && name.bytes().all(is_name_byte) && is_plain(rest);
        // Between two variables there is something that ends the first.
        is_good &= is_last || !rest.is_empty();
        names.push(name);
    }
    match is_good {
        true => Ok(names),
        false => Err("is not a URI or a template (write {NAME} for one segment of the path)".to_owned()),
    }
}

impl Form<StaticResource> for StaticResourceKeys {
    fn resolve(mut self, place: &Location, context: &mut ResolveContext<'_>) -> Option<StaticResource> {
        self.section = place.clone();
        let (uri, media_type) = (self.uri(context), self.mime_type(context));
        let (name, title, description) = (self.name(context), self.title(context), self.description(context));
        let uri_place = self.uri.place().unwrap_or(place).clone();
        let written = WrittenContent { text: self.text, file: self.file, blob: self.blob, media_type };
        let (content, media_type) = written.resolve(place, context)?;
        let uri = uri?;
        let names = match uri_variables(&uri, &OWN_SCHEMES) {
            Ok(names) => names,
            Err(problem) => return context.report_conflict(&uri_place, problem),
        };
        if let ResourceContents::Text(text) = &content
            && !names.is_empty()
            && let Some(unknown) = argument_names(text).find(|name| !names.contains(name))
        {
            return context
                .report_conflict(place, format!("names a variable {unknown:?} that its URI does not have"));
        }
        let name = name.unwrap_or_else(|| uri.clone());
        Some(StaticResource { uri, name, title, description, media_type, content })
    }
}

/// The author of a message of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptRole {
    /// The user.
    User,
    /// The model.
    Assistant,
}

choice! {
    /// The author of a message of a prompt.
    PromptRole as "PromptRole" { "user" => Self::User, "assistant" => Self::Assistant, }
}

checked_text!(ArgumentName as "text", |name: &str| {
    let is_name = (1..=64).contains(&name.len()) && name.bytes().all(is_name_byte);
    if is_name { Ok(()) } else { Err("is not the name of an argument (1 to 64 letters, digits, - _ and .)") }
});

fn is_name_byte(each: u8) -> bool {
    each.is_ascii_alphanumeric() || matches!(each, b'-' | b'_' | b'.')
}

/// A prompt of the operator.
#[derive(Debug, Clone, PartialEq)]
pub struct Prompt {
    /// Its name.
    pub name: String,
    /// Its title for people.
    pub title: Option<String>,
    /// Its purpose.
    pub description: Option<String>,
    /// The agent that it is about; `None`: it is for every caller, on the endpoint of all agents.
    pub agent: Option<String>,
    /// Its arguments; their names are unique.
    pub arguments: Vec<PromptArgument>,
    /// Its messages, at least one.
    pub messages: Vec<PromptMessage>,
}

/// One message of a prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct PromptMessage {
    /// Its author.
    pub role: PromptRole,
    /// Its content, with the names of arguments in place of their values.
    pub content: ContentBlock,
}

/// One part of a text with arguments.
enum TextPiece<'a> {
    Plain(&'a str),
    /// The name of an argument.
    Argument(&'a str),
}

/// Returns the parts of a text with arguments.
fn pieces(text: &str) -> impl Iterator<Item = TextPiece<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let named = |text: &str| {
            let inner = text.strip_prefix("{{")?;
            let length = inner.bytes().take(MAX_NAME_BYTES).take_while(|each| is_name_byte(*each)).count();
            (length > 0 && inner.get(length..)?.starts_with("}}")).then_some(length)
        };
        if rest.is_empty() {
            return None;
        }
        if let Some(length) = named(rest) {
            let (piece, after) = rest.split_at_checked(length + 4)?;
            rest = after;
            return Some(TextPiece::Argument(piece.trim_matches(['{', '}'])));
        }
        let is_argument = |at: &usize| *at > 0 && rest.get(*at..).and_then(named).is_some();
        let next = rest.char_indices().map(|(at, _)| at).find(is_argument);
        let (piece, after) = rest.split_at_checked(next.unwrap_or(rest.len()))?;
        rest = after;
        Some(TextPiece::Plain(piece))
    })
}

/// Returns the names of the arguments in a text.
pub(super) fn argument_names(text: &str) -> impl Iterator<Item = &str> {
    pieces(text).filter_map(|piece| match piece {
        TextPiece::Argument(name) => Some(name),
        TextPiece::Plain(_) => None,
    })
}

/// Returns a text with the values of its arguments; an absent one is empty. `room` is the number of
/// bytes that may still be written; `None` if the text does not fit.
pub(crate) fn filled(text: &str, values: &BTreeMap<String, String>, room: &mut usize) -> Option<String> {
    fn valued<'t>(piece: TextPiece<'t>, values: &'t BTreeMap<String, String>) -> &'t str {
        match piece {
            TextPiece::Plain(plain) => plain,
            TextPiece::Argument(name) => values.get(name).map(String::as_str).unwrap_or_default(),
        }
    }
    let length = pieces(text).map(|piece| valued(piece, values).len()).fold(0, usize::saturating_add);
    *room = room.checked_sub(length)?;
    Some(pieces(text).map(|piece| valued(piece, values)).collect())
}

/// The parts of a text as written, with their content.
pub(super) struct WrittenContent {
    pub(super) text: Spanned<String>,
    pub(super) file: Spanned<String>,
    pub(super) blob: Spanned<String>,
    pub(super) media_type: Option<String>,
}

impl WrittenContent {
    /// Returns the content and its media type; reports that of none or of several kinds.
    pub(super) fn resolve(
        self,
        section: &Location,
        context: &mut ResolveContext<'_>,
    ) -> Option<(ResourceContents, String)> {
        let Self { text, file, blob, media_type } = self;
        match (text.take(), file.take(), blob.take()) {
            (Some((_, text)), None, None) => {
                Some((ResourceContents::Text(text), media_type.unwrap_or_else(|| "text/plain".to_owned())))
            }
            (None, Some((place, file)), None) => {
                let (bytes, media_type) = read_file(&file, media_type, &place, context)?;
                let is_text = media_type.starts_with("text/")
                    || ["json", "xml", "yaml", "javascript"].iter().any(|kind| media_type.ends_with(kind));
                let content = match String::from_utf8(bytes) {
                    Ok(text) if is_text => ResourceContents::Text(text),
                    Ok(text) => ResourceContents::Blob(STANDARD.encode(text)),
                    Err(error) => ResourceContents::Blob(STANDARD.encode(error.as_bytes())),
                };
                Some((content, media_type))
            }
            (None, None, Some((place, blob))) => match STANDARD.decode(&blob) {
                Ok(_) => {
                    let media_type = media_type.unwrap_or_else(|| "application/octet-stream".to_owned());
                    Some((ResourceContents::Blob(blob), media_type))
                }
                Err(_) => context.report_conflict(&place, "is not base64"),
            },
            _ => context.report_conflict(section, "needs one of text, file and blob"),
        }
    }
}

/// Returns the content of a file, and its media type: that which is written, or that of its
/// extension.
fn read_file(
    written: &str,
    media_type: Option<String>,
    place: &Location,
    context: &mut ResolveContext<'_>,
) -> Option<(Vec<u8>, String)> {
    let path = context.path(written);
    let extension = path.extension().map(|extension| extension.to_string_lossy().to_lowercase());
    let known = match extension.as_deref().unwrap_or_default() {
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "svg" => "image/svg+xml",
        "wav" => "audio/wav",
        "mp3" => "audio/mpeg",
        "ogg" => "audio/ogg",
        "txt" => "text/plain",
        "md" => "text/markdown",
        "html" => "text/html",
        "csv" => "text/csv",
        "json" => "application/json",
        "yaml" | "yml" => "application/yaml",
        "xml" => "application/xml",
        "pdf" => "application/pdf",
        _ => "application/octet-stream",
    };
    match resolve::read(&path, MAX_FILE_BYTES) {
        Ok(bytes) => Some((bytes, media_type.unwrap_or_else(|| known.to_owned()))),
        Err(error) => context.report_conflict(place, format!("cannot read {}: {error}", path.display())),
    }
}

/// Returns the prompts, sorted by name. `agents` are the names of all agents.
pub(super) fn prompts(
    written: Spanned<BTreeMap<String, Spanned<PromptKeys>>>,
    agents: Option<&[&str]>,
    context: &mut ResolveContext<'_>,
) -> Vec<Prompt> {
    let Some((place, written)) = written.take() else { return Vec::new() };
    if written.len() > MAX_PROMPTS {
        context.problem(&place, format!("has more than {MAX_PROMPTS} prompts"));
    }
    let mut prompts = Vec::new();
    for (name, keys) in written {
        let Some(keys) = keys.open() else { continue };
        if !(1..=64).contains(&name.len()) || !name.bytes().all(is_name_byte) {
            context
                .problem(&keys.section, "is not the name of a prompt (1 to 64 letters, digits, - _ and .)");
        }
        let place = keys.agent.place().cloned();
        let prompt = keys.resolve(name, context);
        if let (Some(place), Some(agent)) = (place, &prompt.agent)
            && agents.is_some_and(|agents| !agents.contains(&agent.as_str()))
        {
            context.problem(&place, format!("there is no agent {agent:?}"));
        }
        prompts.push(prompt);
    }
    prompts
}

impl PromptKeys {
    fn resolve(mut self, name: String, context: &mut ResolveContext<'_>) -> Prompt {
        let arguments = self.arguments(context);
        let place = self.arguments.place().unwrap_or(&self.section).clone();
        for (index, argument) in arguments.iter().enumerate() {
            if arguments.iter().take(index).any(|other| other.name == argument.name) {
                context.problem(&place, format!("has the argument {:?} twice", argument.name));
            }
            if argument.values.len() > MAX_ITEMS {
                context.problem(&place, format!("has more than {MAX_ITEMS} values of {:?}", argument.name));
            }
        }
        let hint = "write `messages:` and below it `  - text: TEXT`";
        let written = context.required(std::mem::take(&mut self.messages), &self.section, "messages", hint);
        let (messages_place, written) = written.unwrap_or_default();
        if arguments.len().max(written.len()) > MAX_ITEMS {
            context.problem(&messages_place, format!("has more than {MAX_ITEMS} messages or arguments"));
        }
        let mut messages = Vec::new();
        for keys in written.into_iter().filter_map(Spanned::open) {
            let place = keys.section.clone();
            let Some(message) = keys.resolve(context) else { continue };
            for unknown in message
                .argument_names()
                .into_iter()
                .filter(|name| arguments.iter().all(|one| one.name != *name))
            {
                context
                    .problem(&place, format!("names an argument {unknown:?} that the prompt does not have"));
            }
            messages.push(message);
        }
        let (title, description, agent) =
            (self.title(context), self.description(context), self.agent(context));
        Prompt { name, title, description, agent, arguments, messages }
    }
}

impl PromptMessage {
    /// Returns the names of the arguments in its content.
    fn argument_names(&self) -> Vec<String> {
        let texts: [Cow<'_, str>; 2] = match &self.content {
            ContentBlock::Text { text, .. } => [text.to_str(), "".into()],
            ContentBlock::Resource { resource } => match &resource.content {
                ResourceContents::Text(text) => [(&resource.uri).into(), text.into()],
                ResourceContents::Blob(_) => [(&resource.uri).into(), "".into()],
            },
            ContentBlock::Image { .. } | ContentBlock::Audio { .. } | ContentBlock::ResourceLink { .. } => {
                Default::default()
            }
        };
        texts.iter().flat_map(|text| argument_names(text)).map(str::to_owned).collect()
    }
}

impl PromptMessageKeys {
    fn resolve(mut self, context: &mut ResolveContext<'_>) -> Option<PromptMessage> {
        let (role, media_type) = (self.role(context), self.mime_type(context));
        let kinds = [self.text.place(), self.image.place(), self.audio.place(), self.resource.place()];
        if kinds.into_iter().flatten().count() != 1 {
            return context.report_conflict(&self.section, "needs one of text, image, audio and resource");
        }
        if let Some((_, text)) = self.text.take() {
            return Some(PromptMessage { role, content: ContentBlock::text(text) });
        }
        let is_image = self.image.place().is_some();
        if let Some((place, file)) = self.image.take().or(self.audio.take()) {
            let (bytes, media_type) = read_file(&file, media_type, &place, context)?;
            let (kind, data) = (if is_image { "image/" } else { "audio/" }, STANDARD.encode(bytes));
            if !media_type.starts_with(kind) {
                return context.report_conflict(&place, format!("is {media_type}, not {kind}…"));
            }
            let content = match is_image {
                true => ContentBlock::Image { data, media_type },
                false => ContentBlock::Audio { data, media_type },
            };
            return Some(PromptMessage { role, content });
        }
        let mut keys = self.resource.open()?;
        let (uri, media_type) = (keys.uri(context), keys.mime_type(context));
        let section = keys.section.clone();
        let written = WrittenContent { text: keys.text, file: keys.file, blob: keys.blob, media_type };
        let (content, media_type) = written.resolve(&section, context)?;
        let resource = EmbeddedResource { uri: uri?, media_type: Some(media_type), content };
        Some(PromptMessage { role, content: ContentBlock::Resource { resource } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(text: &str, room: usize) -> Option<String> {
        let values = BTreeMap::from([("a".into(), "1".into()), ("b.c".into(), "{{a}}".into())]);
        filled(text, &values, &mut room.clone())
    }

    #[test]
    fn arguments_are_filled_in_once() {
        for (text, expected) in [
            ("", ""),
            ("{{a}}", "1"),
            ("x {{a}}{{a}} y {{b.c}}", "x 11 y {{a}}"),
            ("{{none}}|", "|"),
            ("{{ a }} {{}} {{é}} {{a} {a}}", "{{ a }} {{}} {{é}} {{a} {a}}"),
            ("{{{a}}}", "{1}"),
            ("{\"id\":\"{{a}}\"}", "{\"id\":\"1\"}"),
        ] {
            assert_eq!(fill(text, 100).as_deref(), Some(expected), "{text}");
        }
        assert_eq!((fill("x{{a}}", 2).as_deref(), fill("x{{a}}", 1)), (Some("x1"), None));
        assert_eq!(argument_names("{{a}} {{x}} {{a}").collect::<Vec<_>>(), ["a", "x"]);
    }
}
