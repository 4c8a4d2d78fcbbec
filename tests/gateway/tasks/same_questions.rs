//! Agents that write time, message id and artifact id anew each time that they show a question, and
//! agents that ask the same words twice.
//!
//! A question is its words, its parts and the state of its task. Once it was answered, the same
//! words are another question as soon as the agent reported another state, or asks them in its
//! response to the answer. Out of scope: questions that lose their words (see `taken_questions`).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::kit::quiz::{
    KEY, again, answers, asked_by_form, asked_on_stream, called, first, gateway_before, key_of, keyed, reply,
    until_asked, with_tasks,
};
use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, Scene, TOOL, words};
use crate::support::{Card, Reply, Request, ScriptedAgent, Signal, in_time};

/// How a client comes to a question, and answers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// A modern client calls again with the answer.
    Rounds,
    /// A legacy client is asked on the stream of its call.
    OnStream,
    /// A client that cannot be asked calls the skill's tool with the handle.
    Handle,
    /// The same, with the tools for tasks.
    Subagents,
    /// A client with the tasks extension.
    Task,
}

const WAYS: [Way; 5] = [Way::Rounds, Way::OnStream, Way::Handle, Way::Subagents, Way::Task];

/// The agent's reaction to a message.
#[derive(Clone)]
enum Doing {
    /// It reports that it works, and shows this after that.
    Works(Value),
    /// Its response is this.
    Responds(Value),
}

/// An agent that shows its task with fresh ids and times whenever it is asked. It works until the
/// signal before it asks for the first time.
#[derive(Clone)]
struct Clerk(Arc<Mutex<Desk>>, Signal);

struct Desk {
    stamps: usize,
    shown: Value,
    next: Option<Value>,
    script: VecDeque<Doing>,
    is_begun: bool,
}

impl Desk {
    /// A task as it is shown this time.
    fn stamped(&mut self, task: &Value) -> Value {
        self.stamps += 1;
        let mut task = task.clone();
        let stamp = self.stamps;
        (task["id"], task["contextId"]) = (RAW_TASK.into(), RAW_CONTEXT.into());
        task["status"]["timestamp"] = format!("2026-11-22T10:{:02}:{:02}Z", stamp / 60, stamp % 60).into();
        if task["status"]["message"].is_object() {
            task["status"]["message"]["messageId"] = format!("message-{stamp}").into();
        }
        for made in task["artifacts"].as_array_mut().into_iter().flatten() {
            made["artifactId"] = format!("made-{stamp}").into();
        }
        task
    }

    /// A task as a stream brings it: an interrupt comes as an artifact, and a status without a
    /// message.
    fn events(&mut self, task: &Value) -> Vec<Value> {
        let task = self.stamped(task);
        let named = |mut event: Value| {
            (event["taskId"], event["contextId"]) = (RAW_TASK.into(), RAW_CONTEXT.into());
            event
        };
        if task["status"]["state"] != "TASK_STATE_INPUT_REQUIRED" || task["artifacts"].is_null() {
            return vec![json!({ "task": task })];
        }
        let made = named(json!({ "artifact": task["artifacts"][0], "lastChunk": true }));
        let status = named(json!({ "status": task["status"] }));
        vec![json!({ "artifactUpdate": made }), json!({ "statusUpdate": status })]
    }
}

impl Clerk {
    fn at(agent: &ScriptedAgent, script: impl IntoIterator<Item = Doing>) -> Self {
        let script = script.into_iter().collect();
        let desk = Desk { stamps: 0, shown: Value::Null, next: None, script, is_begun: true };
        let begins = Signal::new();
        begins.open();
        let clerk = Self(Arc::new(Mutex::new(desk)), begins);
        let (sent, got) = (clerk.clone(), clerk.clone());
        agent.on_send(move |request| sent.take(request));
        agent.on_get(move |_| Reply::result(got.look()));
        clerk
    }

    /// The same agent, but it works until it is told to go on.
    fn held(mut self, agent: &ScriptedAgent) -> Self {
        self.1 = Signal::new();
        self.0.lock().unwrap().is_begun = false;
        let sent = self.clone();
        agent.on_send(move |request| sent.take(request));
        self
    }

    fn go_on(&self) {
        self.0.lock().unwrap().is_begun = true;
        self.1.open();
    }

    fn look(&self) -> Value {
        let mut desk = self.0.lock().unwrap();
        let shown = desk.shown.clone();
        let task = desk.stamped(&shown);
        if desk.is_begun
            && let Some(next) = desk.next.take()
        {
            desk.shown = next;
        }
        task
    }

    fn take(&self, request: &Request) -> Reply {
        let mut desk = self.0.lock().unwrap();
        let is_answer = request.message()["taskId"].is_string();
        let before = desk.shown.clone();
        match (desk.script.pop_front().unwrap_or(Doing::Responds(done())), request.wants_stream()) {
            (Doing::Works(next), true) => {
                let mut stream = Reply::stream();
                if is_answer {
                    // How the task stands, at the head of the stream.
                    stream = stream.event(json!({ "task": desk.stamped(&before) }));
                }
                stream = stream.event(json!({ "task": desk.stamped(&working()) })).wait(&self.1);
                let events = desk.events(&next);
                desk.shown = next;
                events.into_iter().fold(stream, Reply::event)
            }
            (Doing::Works(next), false) => {
                (desk.shown, desk.next) = (working(), Some(next));
                let task = desk.stamped(&working());
                Reply::result(json!({ "task": task }))
            }
            (Doing::Responds(next), streams) => {
                desk.shown = next.clone();
                if streams {
                    return Reply::events(desk.events(&next));
                }
                let task = desk.stamped(&next);
                Reply::result(json!({ "task": task }))
            }
        }
    }
}

fn asks(text: &str) -> Value {
    let message = json!({ "role": "ROLE_AGENT", "parts": [{ "text": text }] });
    json!({ "status": { "state": "TASK_STATE_INPUT_REQUIRED", "message": message } })
}

/// An interrupt of LangGraph: the question is an artifact.
fn interrupts(text: &str) -> Value {
    let made = json!([{ "name": "Interrupt", "parts": [{ "data": { "value": text } }] }]);
    json!({ "status": { "state": "TASK_STATE_INPUT_REQUIRED" }, "artifacts": made })
}

fn working() -> Value {
    json!({ "status": { "state": "TASK_STATE_WORKING" } })
}

fn done() -> Value {
    let made = json!([{ "name": "answer", "parts": [{ "text": "thank you" }] }]);
    json!({ "status": { "state": "TASK_STATE_COMPLETED" }, "artifacts": made })
}

/// The answers that a client gives, and the questions that it was asked.
struct Answers<'a> {
    answers: std::slice::Iter<'a, &'a str>,
    asked: Vec<String>,
}

impl Answers<'_> {
    /// Records a question and returns the answer to it.
    fn answer(&mut self, question: &Value) -> &str {
        self.asked.push(question.to_string());
        self.answers.next().unwrap_or_else(|| panic!("asked too often: {:?}", self.asked))
    }
}

/// Lets a client answer every question by the next of these until the call has another result.
/// Returns the questions that it was asked.
async fn converse(scene: &Scene, clerk: &Clerk, way: Way, answers: &[&str]) -> Vec<String> {
    let mut answers = Answers { answers: answers.iter(), asked: Vec::new() };
    let last = match way {
        Way::Rounds => converse_by_rounds(scene, &mut answers).await,
        Way::OnStream => converse_on_stream(scene, &mut answers).await,
        Way::Handle | Way::Subagents => converse_by_handle(scene, way, &mut answers).await,
        Way::Task => converse_in_task(scene, clerk, &mut answers).await,
    };
    assert!(last["content"].to_string().contains("thank you"), "{way:?}: {last}");
    answers.asked
}

async fn converse_by_rounds(scene: &Scene, answers: &mut Answers<'_>) -> Value {
    let (client, call) = (asked_by_form(&scene.gateway), first("paint"));
    let mut result = called(&client, &call).await;
    while result["resultType"] == "input_required" {
        let question = &result["inputRequests"][key_of(&result)]["params"]["message"];
        let answer = keyed(&result, reply(answers.answer(question)));
        result = called(&client, &again(&call, &result, answer)).await;
    }
    result
}

async fn converse_on_stream(scene: &Scene, answers: &mut Answers<'_>) -> Value {
    let session = asked_on_stream(&scene.gateway, "2025-11-25").await;
    let (mut call, mut message) = until_asked(&session).await;
    while message["method"] == "elicitation/create" {
        let answer = answers.answer(&message["params"]["message"]);
        session.respond(&message["id"], reply(answer)).await;
        message = call.next_message().await;
    }
    message["result"].clone()
}

async fn converse_by_handle(scene: &Scene, way: Way, answers: &mut Answers<'_>) -> Value {
    let client = scene.gateway.client();
    let own = async |tool: &str, arguments: Value| {
        called(&client, &json!({ "name": tool, "arguments": arguments })).await
    };
    let mut result = scene.said("paint").await;
    while result["structuredContent"]["state"] == "input-required" {
        let task = result["structuredContent"]["taskId"].clone();
        let answer = json!({ "taskId": task, "text": answers.answer(&result["content"]) });
        if way == Way::Handle {
            result = own(TOOL, answer).await;
        } else {
            own("subagent_send", answer).await;
            result = own("subagent_wait", json!({ "taskId": task })).await;
        }
    }
    result
}

async fn converse_in_task(scene: &Scene, clerk: &Clerk, answers: &mut Answers<'_>) -> Value {
    let client = with_tasks(&scene.gateway);
    let task = called(&client, &first("paint")).await["taskId"].as_str().unwrap().to_owned();
    clerk.go_on();
    let mut keys = Vec::new();
    loop {
        let found = client.modern("tasks/get", json!({ "taskId": task })).await.result().await;
        if found["status"] == "completed" {
            return found["result"].clone();
        }
        if found["status"] != "input_required" || keys.contains(&key_of(&found)) {
            tokio::task::yield_now().await;
            continue;
        }
        keys.push(key_of(&found));
        let question = &found["inputRequests"][key_of(&found)]["params"]["message"];
        let answer = keyed(&found, reply(answers.answer(question)));
        let params = json!({ "taskId": task, "inputResponses": answer });
        client.modern("tasks/update", params).await.result().await;
    }
}

/// Plays this script to a client of each way, before an agent that streams and before one that does
/// not. The client is asked these.
async fn play(script: &[Doing], questions: &[&str]) {
    for (way, streams) in WAYS.into_iter().flat_map(|way| [(way, true), (way, false)]) {
        let settings = if way == Way::Task { "calls: { task_after: 0s }" } else { "" };
        let scene = Scene::of(Card::v1().skill("sing").streaming(streams), "", settings).await;
        let clerk = Clerk::at(&scene.agent, script.iter().cloned());
        let clerk = if way == Way::Task { clerk.held(&scene.agent) } else { clerk };
        let said = vec!["yes"; questions.len()];
        let asked = in_time("the end of the task", converse(&scene, &clerk, way, &said)).await;
        let told = answers(&scene.agent);
        assert_eq!(
            (asked.len(), told.len()),
            (questions.len(), questions.len()),
            "{way:?} {streams}: {asked:?}"
        );
        for (asked, question) in asked.iter().zip(questions) {
            assert!(asked.contains(question), "{way:?} {streams}: {asked}");
        }
        let mut ids: Vec<String> = told.iter().map(|message| message["messageId"].to_string()).collect();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), questions.len(), "{way:?} {streams}: an agent takes two answers for one");
    }
}

#[tokio::test]
async fn question_with_new_time_is_asked_once() {
    play(&[Doing::Works(asks("Which?")), Doing::Works(done())], &["Which?"]).await;
}

#[tokio::test]
async fn interrupt_with_new_time_is_asked_once() {
    play(&[Doing::Works(interrupts("Delete?")), Doing::Works(done())], &["Delete?"]).await;
}

#[tokio::test]
async fn same_words_after_work_are_asked_again() {
    let script = [Doing::Works(asks("Go on?")), Doing::Works(asks("Go on?")), Doing::Works(done())];
    play(&script, &["Go on?", "Go on?"]).await;
}

#[tokio::test]
async fn same_words_in_reply_are_asked_again() {
    let script = [
        Doing::Works(asks("Which?")),
        Doing::Responds(asks("Which?")),
        Doing::Responds(asks("Which?")),
        Doing::Works(done()),
    ];
    play(&script, &["Which?"; 3]).await;
}

#[tokio::test]
async fn other_artifacts_make_other_interrupts() {
    let script = [
        Doing::Works(interrupts("Delete?")),
        Doing::Responds(interrupts("Really?")),
        Doing::Works(interrupts("Really?")),
        Doing::Works(done()),
    ];
    play(&script, &["Delete?", "Really?", "Really?"]).await;
}

/// Another gateway knows nothing of the first answer: it takes the second question for the one that
/// was put.
#[tokio::test]
async fn repeated_words_work_at_other_gateway() {
    let script = || [Doing::Works(asks("Go on?")), Doing::Works(asks("Go on?")), Doing::Works(done())];
    let scene = Scene::tuned(KEY).await;
    Clerk::at(&scene.agent, script());
    let other = gateway_before(&scene.agent, KEY).await;
    let (client, call) = (asked_by_form(&scene.gateway), first("paint"));
    let one = called(&client, &call).await;
    let two = called(&client, &again(&call, &one, keyed(&one, reply("yes")))).await;
    let params = again(&call, &two, keyed(&two, reply("yes")));
    assert_eq!(words(&called(&asked_by_form(&other), &params).await), "thank you");
    assert_eq!(answers(&scene.agent).len(), 2);

    let scene = Scene::tuned(KEY).await;
    Clerk::at(&scene.agent, script());
    let other = gateway_before(&scene.agent, KEY).await;
    let session = asked_on_stream(&scene.gateway, "2025-11-25").await;
    let (mut call, one) = until_asked(&session).await;
    session.respond(&one["id"], reply("yes")).await;
    let two = call.next_message().await;
    assert_eq!(two["method"], "elicitation/create", "{two}");
    session.stolen_by(&other.client()).respond(&two["id"], reply("yes")).await;
    assert_eq!(words(&in_time("the result", call.result()).await), "thank you");
    assert_eq!(answers(&scene.agent).len(), 2);
}
