//! `call`: a person or a script calls a tool, follows the work, answers questions and leaves.

use serde_json::{Value, json};

use crate::kit::command::{Ended, RunningCommand};
use crate::kit::quiz::{Quiz, answers, question, seat};
use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, Scene, TOOL};
use crate::support::payload::v1;
use crate::support::{Card, McpClient, Reply, ScriptedAgent};

/// Long work has a handle soon.
const SOON: &str = "calls: { task_after: 50ms }";

async fn agent() -> ScriptedAgent {
    ScriptedAgent::start(Card::v1().skill("sing")).await
}

/// Runs `call` to its end, with an own gateway before this agent.
async fn called(agent: &ScriptedAgent, arguments: &[&str]) -> Ended {
    let url = agent.url();
    RunningCommand::start(&[&["call", "--agent-url", &url], arguments].concat()).ended().await
}

/// A gateway whose agent works until its client goes.
async fn endless() -> Scene {
    let scene = Scene::tuned(SOON).await;
    scene.agent.works((RAW_TASK, RAW_CONTEXT), []);
    scene.agent.on_cancel(|_| Reply::result(v1::bare_task(RAW_TASK, RAW_CONTEXT, "canceled")));
    scene
}

/// The only line of standard output.
fn object(ended: &Ended) -> Value {
    assert_eq!(ended.out.lines().count(), 1, "{ended:?}");
    serde_json::from_str(&ended.out).unwrap_or_else(|_| panic!("{ended:?}"))
}

/// An agent that tells its progress before its result.
async fn thinking_agent() -> ScriptedAgent {
    let agent = agent().await;
    agent.on_stream(|_| {
        let thinking = v1::status_update(RAW_TASK, RAW_CONTEXT, "working", Some("thinking"));
        Reply::events([
            v1::task(RAW_TASK, RAW_CONTEXT, "submitted"),
            thinking,
            v1::completed(RAW_TASK, RAW_CONTEXT, "la la"),
        ])
    });
    agent
}

#[tokio::test]
async fn call_prints_progress_and_result() {
    let agent = thinking_agent().await;
    let ended = called(&agent, &["sing", "--text", "a song"]).await;
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), "la la\n"), "{ended:?}");
    assert!(ended.err.contains("… thinking"), "{ended:?}");
    assert!(!ended.err.contains('\u{1b}'), "no colour without a terminal: {ended:?}");
    assert_eq!(agent.wait_for_call("SendStreamingMessage").await.text(), "a song");
}

#[tokio::test]
async fn call_in_json_is_one_object() {
    let agent = agent().await;
    agent.on_stream(|_| Reply::events([v1::completed(RAW_TASK, RAW_CONTEXT, "la")]));
    let ended = called(&agent, &["sing", "--text", "x", "--json"]).await;
    let told = object(&ended);
    assert_eq!((ended.code, &told["outcome"]), (Some(0), &json!("completed")), "{told}");
    assert_eq!(told["result"]["content"][0]["text"], "la", "{told}");
    for line in ended.err.lines() {
        serde_json::from_str::<Value>(line).unwrap_or_else(|_| panic!("{line}"));
    }
    agent.on_send(|_| Reply::status(500, ""));
    let ended = called(&agent, &["sing", "--text", "x", "--json"]).await;
    assert_eq!((ended.code, &object(&ended)["outcome"]), (Some(1), &json!("failed")), "{ended:?}");
}

#[tokio::test]
async fn call_without_tool_lists_tools() {
    let agent = agent().await;
    let ended = called(&agent, &[]).await;
    let line = ended.out.lines().find(|line| line.starts_with("agent_sing"));
    assert!(ended.code == Some(0) && line.is_some_and(|line| line.contains("Does sing")), "{ended:?}");
    let ended = called(&agent, &["dance"]).await;
    assert!(ended.code == Some(1) && ended.err.contains("agent_sing"), "{ended:?}");
    let gone = agent.stop().await;
    let url = format!("http://{gone}/");
    let ended = RunningCommand::start(&["call", "sing", "--agent-url", &url]).ended().await;
    assert!(
        ended.code == Some(1) && ended.err.contains(&format!("agent {url}: cannot be reached")),
        "{ended:?}"
    );
}

#[tokio::test]
async fn call_follows_task_to_its_end() {
    let scene = Scene::tuned(SOON).await;
    let go = scene.agent.works_for((RAW_TASK, RAW_CONTEXT), "at last");
    let url = scene.gateway.url("/mcp");
    let mut call = RunningCommand::start(&["call", TOOL, "--text", "x", "--url", &url]);
    call.reports("task ").await;
    go.fire();
    let ended = call.ended().await;
    assert_eq!((ended.code, ended.out.lines().next()), (Some(0), Some("at last")), "{ended:?}");
}

/// The words of the gateway for models become those of the command line.
#[tokio::test]
async fn call_names_command_of_next_message() {
    let scene = Scene::new().await;
    scene.agent.on_stream(|_| Reply::events([v1::completed(RAW_TASK, RAW_CONTEXT, "la")]));
    let url = scene.gateway.url("/mcp");
    let ended = RunningCommand::start(&["call", TOOL, "--text", "x", "--url", &url]).ended().await;
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), "la\n"), "{ended:?}");
    assert!(!ended.err.contains("contextId"), "{ended:?}");
    let (_, rest) = ended.err.split_once("--context ").unwrap_or_else(|| panic!("{ended:?}"));
    let context = rest.split_whitespace().next().unwrap();
    let next = ["call", TOOL, "--context", context, "--url", &url, "--text", "y"];
    assert!(ended.err.contains(&format!("call {TOOL} --context {context} --url {url} --text")), "{ended:?}");
    assert_eq!(RunningCommand::start(&next).ended().await.code, Some(0));
    let [_, second] = scene.agent.calls("SendStreamingMessage").try_into().unwrap();
    assert!(String::from_utf8_lossy(&second.body).contains(RAW_CONTEXT), "the same conversation");
}

/// With one seal key of 64, all ids begin with a hyphen.
#[tokio::test]
async fn values_can_begin_with_hyphen() {
    let scene = Scene::new().await;
    let _quiz = Quiz::of(&scene.agent, [question("How cold?")]);
    let url = scene.gateway.url("/mcp");
    let given = ["call", TOOL, "--text", "- today", "--answer", "-5", "--url", &url];
    let ended = RunningCommand::start(&given).ended().await;
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), "thank you\n"), "{ended:?}");
    let first = scene.agent.calls("SendStreamingMessage").swap_remove(0);
    assert!(String::from_utf8_lossy(&first.body).contains("- today"), "{first:?}");
    assert_eq!(answers(&scene.agent)[0]["parts"][0]["text"], "-5");
    for name in ["--task", "--context"] {
        let given = ["call", TOOL, name, "-AAAA", "--text", "x", "--url", &url];
        let ended = RunningCommand::start(&given).ended().await;
        assert!(ended.code == Some(1) && ended.err.contains("Unknown"), "{ended:?}");
    }
}

#[tokio::test]
async fn gateway_that_is_gone_is_named() {
    let gone = agent().await.stop().await;
    let url = format!("http://{gone}/mcp");
    let ended = RunningCommand::start(&["call", TOOL, "--text", "x", "--url", &format!("{url}?key=secret")]);
    let ended = ended.ended().await;
    for words in [&format!("cannot be reached at {url}:"), "mcp-a2a-gateway serve", "--url"] {
        assert!(ended.err.contains(words), "{words}: {ended:?}");
    }
    assert!(ended.code == Some(1) && ended.out.is_empty() && !ended.err.contains("secret"), "{ended:?}");
    let ended = RunningCommand::start(&["call", TOOL, "--json", "--url", &url]).ended().await;
    let told = object(&ended);
    assert_eq!((ended.code, &told["outcome"]), (Some(1), &json!("failed")), "{told}");
    assert!(told["error"].as_str().unwrap().contains(&url), "{told}");
}

#[tokio::test]
async fn progress_of_call_has_colour_by_choice() {
    let agent = thinking_agent().await;
    let url = agent.url();
    let arguments = ["call", "sing", "--text", "x", "--agent-url", &url];
    for (environment, is_coloured) in [(&[][..], true), (&[("NO_COLOR", "1")], false)] {
        let ended = RunningCommand::at_terminal(&arguments, environment).ended().await;
        assert!(ended.code == Some(0) && ended.out.contains("… thinking"), "{ended:?}");
        assert_eq!(ended.out.contains('\u{1b}'), is_coloured, "{environment:?}: {ended:?}");
    }
}

#[tokio::test]
async fn answers_ahead_are_given_in_order() {
    let agent = agent().await;
    let _quiz = Quiz::of(&agent, [seat(), question("And your name?")]);
    let given = ["sing", "--text", "x", "--answer", r#"{"row": 3}"#, "--answer", "Ann"];
    let ended = called(&agent, &given).await;
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), "thank you\n"), "{ended:?}");
    let answers = answers(&agent);
    assert_eq!(answers[0]["parts"][0]["data"], json!({ "row": 3 }), "{answers:?}");
    assert_eq!(answers[1]["parts"][0]["text"], "Ann", "{answers:?}");
    let _quiz = Quiz::of(&agent, [seat()]);
    let ended = called(&agent, &["sing", "--text", "x", "--answer", r#"{"row": "front"}"#]).await;
    assert!(ended.code == Some(2) && ended.err.contains("--answer:"), "{ended:?}");
}

#[tokio::test]
async fn open_question_can_be_answered_later() {
    let scene = Scene::new().await;
    let _quiz = Quiz::of(&scene.agent, [seat()]);
    let url = scene.gateway.url("/mcp");
    let ended = RunningCommand::start(&["call", TOOL, "--text", "x", "--url", &url]).ended().await;
    assert_eq!((ended.code, ended.out.as_str()), (Some(3), ""), "{ended:?}");
    for words in ["Which seat?", "row (whole number, required)", "window (yes or no)", "--task"] {
        assert!(ended.err.contains(words), "{words}: {ended:?}");
    }
    let scene = Scene::new().await;
    let _quiz = Quiz::of(&scene.agent, [question("Which colour?")]);
    let url = scene.gateway.url("/mcp");
    let ended = RunningCommand::start(&["call", TOOL, "--text", "x", "--url", &url, "--json"]).ended().await;
    let told = object(&ended);
    assert_eq!((ended.code, &told["outcome"]), (Some(3), &json!("input_required")), "{told}");
    let task = told["taskId"].as_str().unwrap();
    let later = ["call", TOOL, "--task", task, "--text", "green", "--url", &url];
    let ended = RunningCommand::start(&later).ended().await;
    assert!(ended.code == Some(0) && ended.out.starts_with("thank you"), "{ended:?}");
}

#[tokio::test]
async fn question_is_asked_at_terminal() {
    let agent = agent().await;
    let _quiz = Quiz::of(&agent, [seat()]);
    let url = agent.url();
    let mut call = RunningCommand::at_terminal(&["call", "sing", "--text", "x", "--agent-url", &url], &[]);
    call.prints("row (whole number): ").await;
    call.types("front");
    call.prints("write whole number").await;
    call.types("4");
    call.prints("window (yes or no) [none]: ").await;
    call.types("y");
    let ended = call.ended().await;
    assert!(ended.code == Some(0) && ended.out.contains("thank you"), "{ended:?}");
    assert_eq!(answers(&agent)[0]["parts"][0]["data"], json!({ "row": 4, "window": true }));
}

#[tokio::test]
async fn question_can_be_declined_at_terminal() {
    let agent = agent().await;
    let _quiz = Quiz::of(&agent, [question("Which colour?")]);
    let url = agent.url();
    let mut call = RunningCommand::at_terminal(&["call", "sing", "--text", "x", "--agent-url", &url], &[]);
    call.prints("Which colour?").await;
    call.prints("Reply: ").await;
    call.types("/decline");
    let ended = call.ended().await;
    assert!(ended.out.contains("declined"), "{ended:?}");
    assert!(answers(&agent).is_empty(), "the agent gets no answer");
}

#[tokio::test]
async fn interrupted_question_cancels_its_task() {
    let agent = agent().await;
    let _quiz = Quiz::of(&agent, [question("Which colour?")]);
    let url = agent.url();
    let mut call = RunningCommand::at_terminal(&["call", "sing", "--text", "x", "--agent-url", &url], &[]);
    call.prints("Reply: ").await;
    call.signal("INT");
    call.prints("[g]o on?").await;
    call.types("c");
    let ended = call.ended().await;
    assert!(ended.code == Some(130) && ended.out.contains("Cancelled."), "{ended:?}");
    assert_eq!(agent.calls("CancelTask").len(), 1);
}

#[tokio::test]
async fn interrupt_without_terminal_cancels() {
    let scene = endless().await;
    let url = scene.gateway.url("/mcp");
    let mut call = RunningCommand::start(&["call", TOOL, "--text", "x", "--url", &url]);
    call.reports("task ").await;
    call.signal("INT");
    let ended = call.ended().await;
    assert!(ended.code == Some(130) && ended.err.contains("Cancelled."), "{ended:?}");
    assert_eq!(scene.agent.calls("CancelTask").len(), 1);
    // Before there is a handle, and with the own gateway.
    let agent = agent().await;
    agent.works((RAW_TASK, RAW_CONTEXT), []);
    agent.on_cancel(|_| Reply::result(v1::bare_task(RAW_TASK, RAW_CONTEXT, "canceled")));
    let url = agent.url();
    let call = RunningCommand::start(&["call", "sing", "--text", "x", "--agent-url", &url]);
    agent.wait_for_call("SendStreamingMessage").await;
    call.signal("TERM");
    let ended = call.ended().await;
    assert_eq!(ended.code, Some(130), "{ended:?}");
    assert_eq!(agent.calls("CancelTask").len(), 1, "{ended:?}");
}

#[tokio::test]
async fn interrupt_at_terminal_asks() {
    for (word, code, cancelled) in [("c", 130, 1), ("l", 130, 0)] {
        let scene = endless().await;
        let url = scene.gateway.url("/mcp");
        let arguments = ["call", TOOL, "--text", "x", "--url", &url];
        let mut call = RunningCommand::at_terminal(&arguments, &[]);
        call.prints("task ").await;
        call.signal("INT");
        call.prints("[c]ancel it, [l]eave it running, [g]o on?").await;
        assert!(scene.agent.calls("CancelTask").is_empty(), "nothing happens before the user decides");
        call.types(word);
        let ended = call.ended().await;
        assert_eq!(ended.code, Some(code), "{ended:?}");
        assert_eq!(scene.agent.calls("CancelTask").len(), cancelled, "{ended:?}");
        assert_eq!(ended.out.contains(&format!("call {TOOL} --task ")), cancelled == 0, "{ended:?}");
    }
}

#[tokio::test]
async fn interrupted_call_can_go_on() {
    let scene = Scene::tuned(SOON).await;
    let go = scene.agent.works_for((RAW_TASK, RAW_CONTEXT), "at last");
    let url = scene.gateway.url("/mcp");
    let mut call = RunningCommand::at_terminal(&["call", TOOL, "--text", "x", "--url", &url], &[]);
    call.prints("task ").await;
    call.signal("INT");
    call.prints("[g]o on?").await;
    call.types("g");
    go.fire();
    let ended = call.ended().await;
    assert!(ended.code == Some(0) && ended.out.contains("at last"), "{ended:?}");
}

#[tokio::test]
async fn second_interrupt_ends_command() {
    let scene = endless().await;
    let url = scene.gateway.url("/mcp");
    let mut call = RunningCommand::at_terminal(&["call", TOOL, "--text", "x", "--url", &url], &[]);
    call.prints("task ").await;
    call.signal("INT");
    call.prints("[g]o on?").await;
    call.signal("INT");
    let ended = call.ended().await;
    assert!(ended.code == Some(130) && ended.out.contains("Interrupted."), "{ended:?}");
}

#[tokio::test]
async fn call_is_cancelled_after_timeout() {
    let scene = endless().await;
    let url = scene.gateway.url("/mcp");
    let arguments = ["call", TOOL, "--text", "x", "--url", &url, "--timeout", "300ms", "--json"];
    let ended = RunningCommand::start(&arguments).ended().await;
    assert_eq!((ended.code, &object(&ended)["outcome"]), (Some(1), &json!("timed_out")), "{ended:?}");
    scene.agent.wait_for_call("CancelTask").await;
}

/// An own gateway has the agents of the file, and neither its callers nor its sockets.
#[tokio::test]
async fn call_uses_agents_of_configuration() {
    let agent = agent().await;
    agent.on_stream(|_| Reply::events([v1::message("la")]));
    let folder = tempfile::tempdir().unwrap();
    let config = format!(
        "listeners: [{{ address: 127.0.0.1:1 }}]\nauth: {{ api_keys: {{ keys: {{ me: \"sha256:{}\" }} }} }}\n\
         agents: {{ bard: {{ card: '{}' }} }}\ntasks: {{ data_dir: data }}\n",
        "0".repeat(64),
        agent.card_url()
    );
    std::fs::write(folder.path().join("gateway.yaml"), config).unwrap();
    let call = RunningCommand::start_in(folder.path(), &["call", "sing", "--text", "x"], &[]);
    let ended = call.ended().await;
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), "la\n"), "{ended:?}");
    assert!(ended.err.contains("configuration: ./gateway.yaml"), "{ended:?}");
    assert!(!folder.path().join("data").exists(), "the folder belongs to `serve`");
}

/// Other users of the machine can reach the port of an own gateway.
#[tokio::test]
async fn own_gateway_needs_its_key() {
    let agent = agent().await;
    agent.on_stream(|_| Reply::silence());
    let call = RunningCommand::start(&["call", "sing", "--text", "x", "--agent-url", &agent.url()]);
    agent.wait_for_call("SendStreamingMessage").await;
    let ports = call.listening_ports();
    assert_eq!(ports.len(), 1, "{ports:?}");
    let other = McpClient::new(&format!("http://127.0.0.1:{}/mcp", ports[0]));
    assert_eq!(other.modern("tools/list", json!({})).await.status, 401);
}

#[tokio::test]
async fn headers_come_from_environment() {
    let secret = "the-key-of-a-caller-0123456789abcdef";
    let scene = Scene::tuned(&crate::auth::rules::auth(&["ann"])).await;
    scene.agent.on_send(|_| Reply::events([v1::message("la")]));
    let url = scene.gateway.url("/mcp");
    let arguments = ["call", TOOL, "--text", "x", "--url", &url];
    let ended = RunningCommand::start(&arguments).ended().await;
    assert!(ended.code == Some(1) && ended.err.contains("--header"), "{ended:?}");
    let own = crate::auth::rules::key_of("ann");
    let header = [&arguments[..], &["--header", "X-Api-Key: ${env:CALL_KEY}"]].concat();
    let here = std::path::Path::new(".");
    let ended = RunningCommand::start_in(here, &header, &[("CALL_KEY", &own)]).ended().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    // To the agent itself, from a file; never shown.
    let agent = agent().await;
    agent.on_send(|_| Reply::events([v1::message("la")]));
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!("Bearer {secret}\n")).unwrap();
    let header = format!("Authorization: @{}", file.path().display());
    let ended = called(&agent, &["sing", "--text", "x", "--header", &header]).await;
    assert!(ended.code == Some(0) && !format!("{ended:?}").contains(secret), "{ended:?}");
    let sent = agent.wait_for_call("SendStreamingMessage").await;
    assert_eq!(sent.header("authorization"), Some(format!("Bearer {secret}").as_str()));
}

#[tokio::test]
async fn files_are_sent_and_saved() {
    let agent = agent().await;
    agent.on_stream(|_| {
        let parts = json!([
            { "text": "here" },
            { "raw": "AAEC", "mediaType": "image/png", "filename": "dot.png" },
            { "raw": "AwQ=", "mediaType": "application/x-thing", "filename": "../../evil.bin" },
        ]);
        Reply::events([json!({ "message": { "messageId": "m", "role": "ROLE_AGENT", "parts": parts } })])
    });
    let folder = tempfile::tempdir().unwrap();
    let (file, saved) = (folder.path().join("notes.md"), folder.path().join("saved"));
    std::fs::write(&file, "# x").unwrap();
    let arguments = ["sing", "--text", "x", "--file", file.to_str().unwrap()];
    let ended = called(&agent, &arguments).await;
    assert!(ended.out.contains("(image/png, 3 bytes)"), "{ended:?}");
    let message = agent.wait_for_call("SendStreamingMessage").await.message();
    let part = message["parts"].as_array().unwrap().iter().find(|part| part["raw"].is_string()).unwrap();
    assert_eq!(
        (&part["raw"], &part["mediaType"], &part["filename"]),
        (&json!("IyB4"), &json!("text/markdown"), &json!("notes.md"))
    );
    let output = ["--output", saved.to_str().unwrap()];
    let ended = called(&agent, &[&arguments[..], &output].concat()).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let mut names: Vec<String> = std::fs::read_dir(&saved)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names.len(), 2, "{names:?}");
    let contents = |name: &String| std::fs::read(saved.join(name)).unwrap();
    let mut contents: Vec<Vec<u8>> = names.iter().map(contents).collect();
    contents.sort();
    assert_eq!(contents, [vec![0, 1, 2], vec![3, 4]]);
}

#[tokio::test]
async fn wrong_arguments_of_call_are_explained() {
    let agent = agent().await;
    for (arguments, words) in [
        (&["sing", "--arguments", "[]"][..], "is not a JSON object"),
        (&["sing", "--data", "@no-such-file"], "cannot read no-such-file"),
        (&["sing", "--header", "no colon"], "write NAME: VALUE"),
        (&["sing", "--header", "X: ${env:SURELY_NOT_SET}"], "SURELY_NOT_SET"),
        (&["sing", "--timeout", "soon"], "such as 90s"),
        (&["sing", "--text", "x", "--arguments", "{}"], "cannot be used with"),
    ] {
        let ended = called(&agent, arguments).await;
        assert!(ended.code == Some(2) && ended.err.contains(words), "{words}: {ended:?}");
    }
    let folder = tempfile::tempdir().unwrap();
    let ended = RunningCommand::start_in(folder.path(), &["call", "sing"], &[]).ended().await;
    assert!(ended.code == Some(2) && ended.err.contains("--agent-url"), "{ended:?}");
}
