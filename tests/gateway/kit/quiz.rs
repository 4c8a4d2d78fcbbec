//! An agent that asks one question after another, and is done when all are answered.
//!
//! A request about the task it answers as an agent would: with the open question. Out of scope: the
//! client's side.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, Scene, TOOL};
use crate::support::payload::v1;
use crate::support::{Answer, LegacySession, McpClient, Reply, Request, ScriptedAgent, Signal, TestGateway};

/// A seal key that several gateways share.
pub(crate) const KEY: &str = "seal_key: 0123456789abcdef0123456789abcdef";

/// The tasks of the agent, as far as they have come: one for each first message.
#[derive(Clone, Default)]
pub(crate) struct Quiz {
    questions: Arc<Vec<Value>>,
    answered: Arc<Mutex<usize>>,
    /// It works until then before it asks for the first time.
    works: Option<Signal>,
}

impl Quiz {
    /// Asks these at every send, and completes after as many answers.
    pub(crate) fn of(agent: &ScriptedAgent, questions: impl IntoIterator<Item = Value>) -> Self {
        Self::working(agent, None, questions)
    }

    /// The same, but it works until the signal before it asks for the first time.
    pub(crate) fn working(
        agent: &ScriptedAgent,
        works: Option<Signal>,
        questions: impl IntoIterator<Item = Value>,
    ) -> Self {
        let quiz = Self { questions: Arc::new(questions.into_iter().collect()), works, ..Self::default() };
        let (sent, got) = (quiz.clone(), quiz.clone());
        agent.on_send(move |request| sent.take(request));
        agent.on_get(move |_| Reply::result(got.task()));
        agent.on_cancel(|_| Reply::result(v1::bare_task(RAW_TASK, RAW_CONTEXT, "canceled")));
        quiz
    }

    /// Answers the open question in place of the client.
    pub(crate) fn go_on(&self) {
        *self.answered.lock().unwrap() += 1;
    }

    /// The task as it stands.
    pub(crate) fn task(&self) -> Value {
        let answered = *self.answered.lock().unwrap();
        let mut task = json!({ "id": RAW_TASK, "contextId": RAW_CONTEXT });
        match self.questions.get(answered) {
            Some(question) => task["status"] = question["status"].clone(),
            None => {
                task["status"] = json!({ "state": "TASK_STATE_COMPLETED" });
                task["artifacts"] = json!([{ "artifactId": "answer", "parts": [{ "text": "thank you" }] }]);
            }
        }
        task
    }

    /// Takes a message, and answers with the task.
    pub(crate) fn take(&self, request: &Request) -> Reply {
        let is_answer = request.message()["taskId"].is_string();
        if is_answer {
            self.go_on();
        }
        let task = json!({ "task": self.task() });
        match &self.works {
            _ if !request.wants_stream() => Reply::result(task),
            Some(until) if !is_answer => Reply::stream().event(begun()).wait(until).event(task),
            _ => Reply::events([task]),
        }
    }
}

/// The work has begun.
pub(crate) fn begun() -> Value {
    v1::task(RAW_TASK, RAW_CONTEXT, "working")
}

/// A question in words.
pub(crate) fn question(text: &str) -> Value {
    worded(text, json!({}))
}

/// A question with metadata that says how to put it.
pub(crate) fn worded(text: &str, metadata: Value) -> Value {
    said("TASK_STATE_INPUT_REQUIRED", json!([{ "text": text }]), metadata)
}

/// An authorization that is wanted, in words.
pub(crate) fn authorization(text: &str) -> Value {
    said("TASK_STATE_AUTH_REQUIRED", json!([{ "text": text }]), json!({}))
}

fn said(state: &str, parts: Value, metadata: Value) -> Value {
    let id = format!("asked-{parts}");
    let message = json!({ "messageId": id, "role": "ROLE_AGENT", "parts": parts, "metadata": metadata });
    json!({ "status": { "state": state, "message": message } })
}

/// A schema that only an agent would think of, under its own key.
pub(crate) fn seat() -> Value {
    let schema = json!({
        "type": "object",
        "properties": { "row": { "type": "integer", "minimum": 1 }, "window": { "type": "boolean" } },
        "required": ["row"],
    });
    worded("Which seat?", json!({ "mcp.inputKey": "seat", "mcp.requestedSchema": schema }))
}

/// Two questions at once.
pub(crate) fn two_at_once() -> Value {
    let inputs = json!({ "from": { "message": "From where?" }, "to": { "message": "To where?" } });
    worded("A journey", json!({ "mcp.inputRequests": inputs }))
}

/// A modern client with a user that fills in forms.
pub(crate) fn asked_by_form(gateway: &TestGateway) -> McpClient {
    gateway.client().capabilities(json!({ "elicitation": { "form": {} } }))
}

/// A modern client with forms and the tasks extension.
pub(crate) fn with_tasks(gateway: &TestGateway) -> McpClient {
    let extensions = json!({ "io.modelcontextprotocol/tasks": {} });
    gateway.client().capabilities(json!({ "elicitation": { "form": {} }, "extensions": extensions }))
}

/// A legacy session of this revision with a user that fills in forms.
pub(crate) async fn asked_on_stream(gateway: &TestGateway, version: &str) -> LegacySession {
    gateway.client().capabilities(json!({ "elicitation": {} })).legacy_version(version).await
}

/// An answer as clients write it.
pub(crate) fn accept(content: Value) -> Value {
    json!({ "action": "accept", "content": content })
}

/// The answer to a question without a schema.
pub(crate) fn reply(text: &str) -> Value {
    accept(json!({ "reply": text }))
}

/// The first round of a call with this text for the agent.
pub(crate) fn first(text: &str) -> Value {
    json!({ "name": TOOL, "arguments": { "text": text } })
}

/// The call once more, with what its last result gave and these answers.
pub(crate) fn again(params: &Value, asked: &Value, answers: Value) -> Value {
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let mut params = params.clone();
    params["requestState"] = asked["requestState"].clone();
    params["inputResponses"] = answers;
    params
}

/// The result of a call of a modern client.
pub(crate) async fn called(client: &McpClient, params: &Value) -> Value {
    client.modern("tools/call", params.clone()).await.result().await
}

/// The key of the only thing that is asked.
pub(crate) fn key_of(asked: &Value) -> String {
    let requests = asked["inputRequests"].as_object().unwrap_or_else(|| panic!("nothing is asked: {asked}"));
    assert_eq!(requests.len(), 1, "{asked}");
    requests.keys().next().unwrap().clone()
}

/// The answer to the only thing that is asked.
pub(crate) fn keyed(asked: &Value, answer: Value) -> Value {
    json!({ key_of(asked): answer })
}

/// A legacy call, up to the question on its stream.
pub(crate) async fn until_asked(session: &LegacySession) -> (Answer, Value) {
    let mut call = session.call("tools/call", first("travel")).await;
    let asked = call.next_message().await;
    assert_eq!(asked["method"], "elicitation/create", "{asked}");
    (call, asked)
}

/// The messages that the agent got in its task.
pub(crate) fn answers(agent: &ScriptedAgent) -> Vec<Value> {
    let messages = agent.requests().into_iter().map(|request| request.message());
    messages.filter(|message| message["taskId"].is_string()).collect()
}

/// Another gateway before the same agent.
pub(crate) async fn gateway_before(agent: &ScriptedAgent, settings: &str) -> TestGateway {
    let card = agent.card_url();
    TestGateway::start(|ports| {
        format!("{}{settings}\nagents:\n  bard:\n    card: {card}\n", ports.listeners())
    })
    .await
}

/// A scene with an agent that asks these.
pub(crate) async fn scene(settings: &str, questions: impl IntoIterator<Item = Value>) -> (Scene, Quiz) {
    let scene = Scene::tuned(settings).await;
    let quiz = Quiz::of(&scene.agent, questions);
    (scene, quiz)
}
