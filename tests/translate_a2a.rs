//! Golden pairs for the A2A side: requests as agents receive them, and replies as the gateway reads
//! them.
//!
//! Each file under `tests/golden/a2a/<dialect>-<what>/` holds the input, a line `----`, and the
//! expected output. `UPDATE=1` rewrites the expectations. The replies are captures from the
//! official SDKs.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

use mcp_a2a_gateway::a2a::{
    AgentCard, AgentError, AgentInterface, Artifact, Binding, Dialect, InterfacePin, Message,
    OperationRequest, Part, PartBody, SecurityRequirement, StreamResponse, Task, TaskStatus,
};
use serde::Deserialize;
use serde_json::value::RawValue;

const DIVIDER: &str = "\n----\n";

#[test]
fn golden_pairs_hold() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/a2a");
    let (mut seen, mut wrong) = (0, Vec::new());
    for folder in entries(&root) {
        let what = name(&folder);
        for case in entries(&folder) {
            seen += 1;
            let text = fs::read_to_string(&case).unwrap();
            let (given, expected) = text.split_once(DIVIDER).unwrap_or((text.trim_end(), ""));
            let found = translate(&what, given);
            if found.trim_end() == expected.trim_end() {
                continue;
            }
            if env::var_os("UPDATE").is_some() {
                fs::write(&case, format!("{given}{DIVIDER}{}\n", found.trim_end())).unwrap();
            } else {
                wrong.push(format!("{what}/{}\nexpected:\n{expected}\nfound:\n{found}", name(&case)));
            }
        }
    }
    assert!(seen > 40, "only {seen} golden pairs found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn entries(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

fn translate(what: &str, given: &str) -> String {
    match what {
        "any-card" => card(given),
        "v0_1-send" => send(Dialect::V0_1, given),
        "slash-send" => send(Dialect::V0_3, given),
        "v1-send" => send(Dialect::V1, given),
        "v0_1-event" => event(Dialect::V0_1.event(given.as_bytes())),
        "slash-event" => event(Dialect::V0_3.event(given.as_bytes())),
        "v1-event" => event(Dialect::V1.event(given.as_bytes())),
        "rest-event" => event(over_rest(Dialect::V1).event(given.as_bytes())),
        "rest_0_3-event" => event(over_rest(Dialect::V0_3).event(given.as_bytes())),
        "rest_0_3-send" => send_over_rest(given),
        "v0_1-task" => task(Dialect::V0_1.task(given.as_bytes())),
        "slash-task" => task(Dialect::V0_3.task(given.as_bytes())),
        "v1-task" => task(Dialect::V1.task(given.as_bytes())),
        other => panic!("no such kind of golden pair: {other}"),
    }
}

/// An agent that is called by HTTP+JSON.
fn over_rest(dialect: Dialect) -> AgentInterface {
    let url = "http://agent.example/".to_owned();
    AgentInterface { url, dialect, binding: Binding::HttpJson, tenant: None, version: None }
}

/// The request, with the message as A2A 1.0 writes it.
#[derive(Deserialize)]
struct Ask<'a> {
    #[serde(default)]
    streaming: bool,
    tenant: Option<String>,
    #[serde(default)]
    modes: Vec<String>,
    #[serde(default)]
    extensions: Vec<String>,
    #[serde(borrow)]
    message: &'a RawValue,
}

impl Ask<'_> {
    fn message(&self) -> Message {
        let answer = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"message":{}}}}}"#, self.message);
        match Dialect::V1.event(answer.as_bytes()) {
            Ok(StreamResponse::Message(message)) => message,
            other => panic!("no message: {other:?}"),
        }
    }
}

/// The request to an agent of 0.3 by HTTP+JSON.
fn send_over_rest(given: &str) -> String {
    let ask: Ask<'_> = serde_json::from_str(given).unwrap();
    let sent = over_rest(Dialect::V0_3).send(&ask.message(), &ask.modes, ask.streaming).unwrap();
    format!("{} {}\n{}", sent.verb, sent.route, String::from_utf8(sent.body.to_vec()).unwrap())
}

fn send(dialect: Dialect, given: &str) -> String {
    let ask: Ask<'_> = serde_json::from_str(given).unwrap();
    let message = ask.message();
    let asked = OperationRequest {
        message: &message,
        accepted_output_modes: &ask.modes,
        tenant: ask.tenant.as_deref(),
    };
    let mut out = String::new();
    for (name, value) in dialect.headers(&ask.extensions) {
        writeln!(out, "{name}: {}", value.to_str().unwrap()).unwrap();
    }
    out + &String::from_utf8(dialect.send(&asked, ask.streaming)).unwrap()
}

fn event(event: Result<StreamResponse, AgentError>) -> String {
    let mut out = Page::default();
    match event {
        Err(error) => out.line(0, &format!("error {error:?}")),
        Ok(StreamResponse::Unknown) => out.line(0, "unknown"),
        Ok(StreamResponse::Task(task)) => out.task(&task),
        Ok(StreamResponse::Message(message)) => out.message(0, &message),
        Ok(StreamResponse::Status { task_id, context_id, status, last, metadata }) => {
            out.line(0, &format!("status of {task_id:?} in {context_id:?} last={last}"));
            out.status(1, &status);
            out.metadata(1, metadata.as_deref());
        }
        Ok(StreamResponse::Artifact { task_id, context_id, artifact, append, last_chunk, metadata }) => {
            out.line(
                0,
                &format!("artifact of {task_id:?} in {context_id:?} append={append} last={last_chunk}"),
            );
            out.artifact(1, &artifact);
            out.metadata(1, metadata.as_deref());
        }
    }
    out.0
}

fn task(task: Result<Task, AgentError>) -> String {
    event(task.map(StreamResponse::Task))
}

/// A stable text for people; not a format.
#[derive(Default)]
struct Page(String);

impl Page {
    fn line(&mut self, depth: usize, text: &str) {
        writeln!(self.0, "{:indent$}{text}", "", indent = depth * 2).unwrap();
    }

    fn metadata(&mut self, depth: usize, metadata: Option<&RawValue>) {
        if let Some(metadata) = metadata {
            self.line(depth, &format!("metadata {metadata}"));
        }
    }

    fn task(&mut self, task: &Task) {
        self.line(0, &format!("task {:?} in {:?}", task.id, task.context_id));
        self.status(1, &task.status);
        for artifact in &task.artifacts {
            self.artifact(1, artifact);
        }
        for message in task.history.messages() {
            self.message(1, &message);
        }
        self.metadata(1, task.metadata.as_deref());
    }

    fn status(&mut self, depth: usize, status: &TaskStatus) {
        self.line(depth, &format!("state {} at {:?}", status.state.as_str(), status.timestamp));
        if let Some(message) = &status.message {
            self.message(depth + 1, message);
        }
    }

    fn message(&mut self, depth: usize, message: &Message) {
        let Message { message_id, role, task_id, context_id, .. } = message;
        self.line(depth, &format!("message {message_id:?} by {role:?} for {task_id:?} in {context_id:?}"));
        for (what, list) in [("refers to", &message.reference_task_ids), ("extensions", &message.extensions)]
        {
            if !list.is_empty() {
                self.line(depth + 1, &format!("{what} {}", list.join(" ")));
            }
        }
        self.parts(depth + 1, &message.parts);
        self.metadata(depth + 1, message.metadata.as_deref());
    }

    fn artifact(&mut self, depth: usize, artifact: &Artifact) {
        let Artifact { artifact_id, name, description, extensions, .. } = artifact;
        self.line(depth, &format!("artifact {artifact_id:?} name={name:?} description={description:?}"));
        if !extensions.is_empty() {
            self.line(depth + 1, &format!("extensions {}", extensions.join(" ")));
        }
        self.parts(depth + 1, &artifact.parts);
        self.metadata(depth + 1, artifact.metadata.as_deref());
    }

    fn parts(&mut self, depth: usize, parts: &[Part]) {
        for part in parts {
            let content = match &part.body {
                PartBody::Text(text) => format!("text {text:?}"),
                PartBody::Raw(base64) => format!("raw {base64}"),
                PartBody::Url(url) => format!("url {url}"),
                PartBody::Data(json) => format!("data {json}"),
                PartBody::Unknown(json) => format!("unknown {json}"),
            };
            self.line(depth, &content);
            for (what, text) in [("filename", &part.filename), ("media type", &part.media_type)] {
                if let Some(text) = text {
                    self.line(depth + 1, &format!("{what} {text}"));
                }
            }
            self.metadata(depth + 1, part.metadata.as_deref());
        }
    }

    fn card(&mut self, card: &AgentCard) {
        self.line(0, &format!("card {:?} version {:?} by {:?}", card.name, card.version, card.provider));
        self.line(1, &format!("description {:?}", card.description));
        self.line(
            1,
            &format!(
                "streaming={} push={} extended={} signed={}",
                card.streaming, card.push_notifications, card.extended_card, card.signed
            ),
        );
        self.line(1, &format!("modes {:?} to {:?}", card.default_input_modes, card.default_output_modes));
        for extension in &card.extensions {
            self.line(1, &format!("{extension:?}"));
        }
        for scheme in &card.security_schemes {
            self.line(1, &format!("{scheme:?}"));
        }
        self.requirements(1, &card.security);
        for skill in &card.skills {
            self.line(
                1,
                &format!("skill {:?} name={:?} description={:?}", skill.id, skill.name, skill.description),
            );
            self.line(2, &format!("tags {:?} examples {:?}", skill.tags, skill.examples));
            self.line(2, &format!("modes {:?} to {:?}", skill.input_modes, skill.output_modes));
            self.requirements(2, &skill.security);
        }
        for problem in &card.problems {
            self.line(1, &format!("problem: {problem}"));
        }
    }

    fn requirements(&mut self, depth: usize, requirements: &[SecurityRequirement]) {
        for requirement in requirements {
            self.line(depth, &format!("requires {:?}", requirement.schemes));
        }
    }
}

/// An operator who requires a binding.
fn by(binding: Binding) -> InterfacePin {
    InterfacePin { binding: Some(binding), ..InterfacePin::default() }
}

fn card(given: &str) -> String {
    let mut out = Page::default();
    match AgentCard::parse(given.as_bytes()) {
        Err(error) => out.line(0, &format!("error {error}")),
        Ok(card) => {
            assert_eq!(card.raw.get(), given.trim(), "the card is kept as it came");
            out.card(&card);
            for (how, pin) in [
                ("auto", InterfacePin::default()),
                ("pinned 0.1", Some(Dialect::V0_1).into()),
                ("pinned 0.3", Some(Dialect::V0_3).into()),
                ("pinned 1.0", Some(Dialect::V1).into()),
                ("JSON-RPC", by(Binding::JsonRpc)),
                ("HTTP+JSON", by(Binding::HttpJson)),
                ("GRPC", by(Binding::Grpc)),
            ] {
                match card.interface(pin) {
                    Ok(found) => out.line(1, &format!("{how}: {found:?}")),
                    Err(error) => out.line(1, &format!("{how}: error {error}")),
                }
            }
        }
    }
    out.0
}
