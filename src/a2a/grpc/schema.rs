//! The message types and methods of the protobuf files of A2A, read from the official files themselves.
//!
//! [`Schema::read`] knows the part of the language (proto3) that these files use: messages of one level, enums,
//! `oneof`, `map`, and methods. Options are skipped, but for `json_name` and `REQUIRED`. A test reads both files whole.

use std::collections::HashMap;

/// The types and methods of one protobuf file.
#[derive(Debug, Default)]
pub(super) struct Schema {
    /// Every message, and an entry type for each `map`.
    messages: Vec<MessageType>,
    enums: Vec<EnumType>,
    methods: Vec<RpcMethod>,
}

/// One message of the file.
#[derive(Debug, Default)]
pub(super) struct MessageType {
    /// The fields in the order of their numbers.
    pub(super) fields: Vec<Field>,
}

/// One field of a message.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) number: u32,
    /// The name in the file: `context_id`.
    name: &'static str,
    /// The name in JSON: `contextId`.
    pub(super) json_name: String,
    pub(super) kind: FieldKind,
    pub(super) label: FieldLabel,
    /// True if JSON always has the field.
    pub(super) is_required: bool,
}

/// How often a field may occur, and the meaning of its default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldLabel {
    /// At most once; the default of a scalar is the same as absence.
    Implicit,
    /// At most once; the default is a value.
    Optional,
    /// Of the fields with this label in a message only the last one counts.
    OneOf,
    /// Any number of times.
    Repeated,
}

/// The type of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldKind {
    /// `string`
    Text,
    /// `bytes`
    Bytes,
    /// `bool`
    Bool,
    /// `int32`
    Integer,
    /// An enum of the file, by its place.
    Enum(usize),
    /// A message of the file, by its place.
    Message(usize),
    /// A map with strings as keys; the place of the message with `key` and `value`.
    Map(usize),
    /// `google.protobuf.Struct`
    Struct,
    /// `google.protobuf.Value`
    Value,
    /// `google.protobuf.Timestamp`
    Timestamp,
}

/// An enum: names and numbers.
#[derive(Debug)]
pub(super) struct EnumType {
    values: Vec<(&'static str, i32)>,
}

/// A method of the service.
#[derive(Debug)]
pub(super) struct RpcMethod {
    /// The path of a request: `/lf.a2a.v1.A2AService/GetTask`.
    pub(super) path: String,
    /// The places of the messages of request and response.
    pub(super) messages: [usize; 2],
}

impl RpcMethod {
    /// Returns the name: `GetTask`.
    pub(super) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }
}

impl EnumType {
    pub(super) fn name(&self, number: i32) -> Option<&'static str> {
        self.values.iter().find(|value| value.1 == number).map(|value| value.0)
    }

    pub(super) fn number(&self, name: &str) -> Option<i32> {
        self.values.iter().find(|value| value.0 == name).map(|value| value.1)
    }
}

impl MessageType {
    /// Returns the field of this name in JSON or in the file: readers of ProtoJSON take both.
    pub(super) fn named(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.json_name == name || field.name == name)
    }

    pub(super) fn numbered(&self, number: u32) -> Option<&Field> {
        self.fields.iter().find(|field| field.number == number)
    }
}

impl Schema {
    /// Reads the text of a protobuf file; `None` if it has anything that is not known here.
    pub(super) fn read(text: &'static str) -> Option<Self> {
        let mut reader = SchemaReader { tokens: Tokens { rest: text }, ..SchemaReader::default() };
        while let Some(word) = reader.tokens.next() {
            reader.declaration(word)?;
        }
        reader.resolve()
    }

    pub(super) fn message(&self, place: usize) -> Option<&MessageType> {
        self.messages.get(place)
    }

    pub(super) fn enumeration(&self, place: usize) -> Option<&EnumType> {
        self.enums.get(place)
    }

    pub(super) fn methods(&self) -> &[RpcMethod] {
        &self.methods
    }
}

/// The place of a message without fields, for `google.protobuf.Empty`.
const EMPTY_MESSAGE: usize = 0;

#[derive(Default)]
struct SchemaReader {
    tokens: Tokens,
    package: &'static str,
    messages: Vec<(&'static str, Vec<UnresolvedField>)>,
    enums: Vec<(&'static str, EnumType)>,
    methods: Vec<(String, [&'static str; 2])>,
}

/// A field with the name of its type.
struct UnresolvedField {
    field: Field,
    type_name: &'static str,
}

impl SchemaReader {
    fn declaration(&mut self, word: &'static str) -> Option<()> {
        match word {
            "syntax" | "import" | "option" => self.tokens.skip_to(";"),
            "package" => {
                self.package = self.tokens.next()?;
                self.tokens.expect(";")
            }
            "service" => self.service(),
            "message" => self.message(),
            "enum" => self.enumeration(),
            _ => None,
        }
    }

    fn service(&mut self) -> Option<()> {
        let service = self.tokens.next()?;
        self.tokens.expect("{")?;
        loop {
            match self.tokens.next()? {
                "}" => return Some(()),
                "rpc" => {}
                _ => return None,
            }
            let path = format!("/{}.{service}/{}", self.package, self.tokens.next()?);
            let request = self.rpc_message()?;
            self.tokens.expect("returns")?;
            let response = self.rpc_message()?;
            self.methods.push((path, [request, response]));
            match self.tokens.next()? {
                ";" => {}
                "{" => self.tokens.skip_block()?,
                _ => return None,
            }
        }
    }

    /// Reads `(Task)` or `(stream Task)`.
    fn rpc_message(&mut self) -> Option<&'static str> {
        self.tokens.expect("(")?;
        let word = self.tokens.next()?;
        let name = if word == "stream" { self.tokens.next()? } else { word };
        self.tokens.expect(")").map(|()| name)
    }

    fn message(&mut self) -> Option<()> {
        let name = self.tokens.next()?;
        self.tokens.expect("{")?;
        let mut fields = Vec::new();
        loop {
            match self.tokens.next()? {
                "}" => break,
                "reserved" | "option" => self.tokens.skip_to(";")?,
                "oneof" => {
                    self.tokens.next()?;
                    self.tokens.expect("{")?;
                    loop {
                        match self.tokens.next()? {
                            "}" => break,
                            type_name => fields.push(self.field(type_name, FieldLabel::OneOf)?),
                        }
                    }
                }
                "map" => fields.push(self.map(name)?),
                "repeated" => {
                    let type_name = self.tokens.next()?;
                    fields.push(self.field(type_name, FieldLabel::Repeated)?);
                }
                "optional" => {
                    let type_name = self.tokens.next()?;
                    fields.push(self.field(type_name, FieldLabel::Optional)?);
                }
                type_name => fields.push(self.field(type_name, FieldLabel::Implicit)?),
            }
        }
        fields.sort_by_key(|unresolved| unresolved.field.number);
        self.messages.push((name, fields));
        Some(())
    }

    /// Reads `context_id = 2 [options];` after the type.
    fn field(&mut self, type_name: &'static str, label: FieldLabel) -> Option<UnresolvedField> {
        let name = self.tokens.next()?;
        self.tokens.expect("=")?;
        let number = self.tokens.next()?.parse().ok()?;
        let mut field = Field {
            number,
            name,
            json_name: camel_case(name),
            kind: FieldKind::Text,
            label,
            is_required: false,
        };
        match self.tokens.next()? {
            ";" => return Some(UnresolvedField { field, type_name }),
            "[" => {}
            _ => return None,
        }
        loop {
            match self.tokens.next()? {
                ";" => return Some(UnresolvedField { field, type_name }),
                "json_name" => {
                    self.tokens.expect("=")?;
                    field.json_name = self.tokens.next()?.trim_matches('"').to_owned();
                }
                "REQUIRED" => field.is_required = true,
                _ => {}
            }
        }
    }

    /// Reads a map after its first word, and adds the message of its entries.
    fn map(&mut self, message: &'static str) -> Option<UnresolvedField> {
        self.tokens.expect("<")?;
        self.tokens.expect("string")?;
        self.tokens.expect(",")?;
        let value = self.tokens.next()?;
        self.tokens.expect(">")?;
        let map = self.field(message, FieldLabel::Repeated)?;
        let entry = |number, name: &'static str, type_name| UnresolvedField {
            field: Field {
                number,
                name,
                json_name: name.to_owned(),
                kind: FieldKind::Text,
                label: FieldLabel::Implicit,
                is_required: false,
            },
            type_name,
        };
        // Unnamed: found by its place. The message with this field is added after it.
        let place = self.messages.len() + 1;
        self.messages.push(("", vec![entry(1, "key", "string"), entry(2, "value", value)]));
        Some(UnresolvedField { field: Field { kind: FieldKind::Map(place), ..map.field }, type_name: "map" })
    }

    fn enumeration(&mut self) -> Option<()> {
        let name = self.tokens.next()?;
        self.tokens.expect("{")?;
        let mut values = Vec::new();
        loop {
            match self.tokens.next()? {
                "}" => break,
                value => {
                    self.tokens.expect("=")?;
                    values.push((value, self.tokens.next()?.parse().ok()?));
                    self.tokens.skip_to(";")?;
                }
            }
        }
        self.enums.push((name, EnumType { values }));
        Some(())
    }

    /// Replaces the names of types by their places.
    fn resolve(self) -> Option<Schema> {
        let names = self.messages.iter().enumerate().map(|(place, (name, _))| (*name, place + 1));
        let mut messages: HashMap<&str, usize> = names.collect();
        messages.insert("google.protobuf.Empty", EMPTY_MESSAGE);
        let enums: HashMap<&str, usize> =
            self.enums.iter().enumerate().map(|(place, (name, _))| (*name, place)).collect();
        let kind = |unresolved: &UnresolvedField| {
            Some(match unresolved.type_name {
                "map" => unresolved.field.kind,
                "string" => FieldKind::Text,
                "bytes" => FieldKind::Bytes,
                "bool" => FieldKind::Bool,
                "int32" => FieldKind::Integer,
                "google.protobuf.Struct" => FieldKind::Struct,
                "google.protobuf.Value" => FieldKind::Value,
                "google.protobuf.Timestamp" => FieldKind::Timestamp,
                name => match enums.get(name) {
                    Some(place) => FieldKind::Enum(*place),
                    None => FieldKind::Message(*messages.get(name)?),
                },
            })
        };
        let mut types = vec![MessageType::default()];
        for (_, fields) in self.messages {
            let fields = fields
                .into_iter()
                .map(|unresolved| Some(Field { kind: kind(&unresolved)?, ..unresolved.field }));
            types.push(MessageType { fields: fields.collect::<Option<_>>()? });
        }
        let mut methods = Vec::new();
        for (path, [request, response]) in self.methods {
            methods.push(RpcMethod { path, messages: [*messages.get(request)?, *messages.get(response)?] });
        }
        let enums = self.enums.into_iter().map(|(_, values)| values).collect();
        Some(Schema { messages: types, enums, methods })
    }
}

/// Returns the name of a field in JSON, as protobuf forms it.
fn camel_case(name: &str) -> String {
    let mut words = name.split('_');
    let mut camel = words.next().unwrap_or_default().to_owned();
    for word in words {
        let mut letters = word.chars();
        camel.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        camel.push_str(letters.as_str());
    }
    camel
}

/// The words and signs of a protobuf file.
#[derive(Default)]
struct Tokens {
    rest: &'static str,
}

impl Tokens {
    fn next(&mut self) -> Option<&'static str> {
        loop {
            self.rest = self.rest.trim_start();
            let Some(comment) = self.rest.strip_prefix("//") else { break };
            self.rest = comment.split_once('\n')?.1;
        }
        let length = match self.rest.chars().next()? {
            '"' => self.rest.get(1..)?.find('"')? + 2,
            first if is_of_word(first) => {
                self.rest.find(|letter| !is_of_word(letter)).unwrap_or(self.rest.len())
            }
            sign => sign.len_utf8(),
        };
        let (token, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(token)
    }

    fn expect(&mut self, token: &str) -> Option<()> {
        (self.next()? == token).then_some(())
    }

    fn skip_to(&mut self, token: &str) -> Option<()> {
        while self.next()? != token {}
        Some(())
    }

    /// Skips the rest of a block after its opening brace.
    fn skip_block(&mut self) -> Option<()> {
        let mut depth = 1_usize;
        while depth > 0 {
            match self.next()? {
                "{" => depth += 1,
                "}" => depth -= 1,
                _ => {}
            }
        }
        Some(())
    }
}

fn is_of_word(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '_' | '.')
}
