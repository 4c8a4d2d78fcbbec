//! `call`: calls a tool as an MCP client, from the first message to the end of the work.
//!
//! One code path: without `--url` the command starts a gateway of its own on loopback, with a
//! random key, and calls that. The client speaks 2026-07-28 with the tasks extension: a question is
//! a result that ends the request, so that the terminal is read while no request is open, and work
//! that takes longer than `calls.task_after` has a handle with which it is cancelled or left
//! running. Out of scope: the wire (see `client`), forms (see `questions`).

use std::borrow::Cow;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::client::{
    CallTarget, ClientError, DeclaredAbilities, McpClient, McpEvent, McpRequest, TargetArguments, TargetError,
};
use super::questions::{
    InterruptSignals, ResultFile, UserConsole, described, described_fields, file_argument, given_answer,
    read_file,
};
use super::{print_error, print_line, program};
use crate::bridge::tool_result::CONTINUATION_HINT;
use crate::config::parse_duration;
use crate::telemetry::log::{EscapeStyle, visible};
use crate::tls::install_provider;

/// Exit codes beside success (0) and failure (1).
const USAGE: u8 = 2;
const INPUT_REQUIRED: u8 = 3;
const INTERRUPTED: u8 = 130;

/// The longest wait until a cancellation has reached the agent.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest wait for the handle of a task whose question stays open.
const HANDLE_TIMEOUT: Duration = Duration::from_secs(5);
/// The interval of checks without a notification to wait for.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The pause before a call is repeated that returned without a question.
const ROUND_PAUSE: Duration = Duration::from_millis(250);
/// The pause between two requests for the state of a task.
const TASK_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The maximum number of pages of the list of tools.
const MAX_PAGES: usize = 1000;

/// The arguments of `call`. Values can begin with a hyphen: ids are base64url, and texts and answers are the
/// user's.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 the work is completed, 1 it failed, 2 wrong arguments, 3 the agent asks and \
    there is no answer, 130 interrupted."
)]
pub(super) struct CallArguments {
    /// The tool, by its name or by the end of it after a `_`. Without it the tools are listed.
    tool: Option<String>,
    /// The text for the agent.
    #[arg(long, allow_hyphen_values = true)]
    text: Option<String>,
    /// Data for the agent: JSON, or @FILE. For a tool with a schema of its own: its arguments.
    #[arg(long, value_name = "JSON", allow_hyphen_values = true)]
    data: Option<String>,
    /// A file for the agent: its path, or a URL that the agent fetches; can be given several times.
    #[arg(long, value_name = "PATH")]
    file: Vec<String>,
    /// All arguments of the tool: a JSON object, or @FILE.
    #[arg(long, value_name = "JSON", conflicts_with_all = ["text", "data", "file", "task", "context"])]
    arguments: Option<String>,
    /// Continue this task: alone to wait for its result, with --text to send more to it.
    #[arg(long, value_name = "ID", allow_hyphen_values = true)]
    task: Option<String>,
    /// Continue this conversation.
    #[arg(long, value_name = "ID", allow_hyphen_values = true)]
    context: Option<String>,
    #[command(flatten)]
    gateway: TargetArguments,
    /// The answer to a question that the agent will ask, in JSON or as text; can be given several times, in the
    /// order of the questions.
    #[arg(long = "answer", value_name = "JSON", allow_hyphen_values = true)]
    answers: Vec<String>,
    /// Cancel the call after this time, for example 90s.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    timeout: Option<Duration>,
    /// Save the files of the result in this folder.
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Print the result as one JSON object, and progress as JSON lines on standard error.
    #[arg(long)]
    json: bool,
}

fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).ok_or_else(|| "write a number and ms, s, m, h or d, such as 90s".to_owned())
}

/// The end of a call that has no result, and other reasons to end.
enum CallStop {
    /// The arguments cannot be used.
    Usage(String),
    /// The command cannot begin or continue the call.
    Failed(String),
    /// The gateway rejects a request, or cannot be reached.
    Client(ClientError),
    /// The agent asks, and there is no answer.
    Unanswered(Value),
    /// The user cancels the call.
    Cancelled,
    /// The time of the call is over.
    TimedOut,
    /// The user leaves the work to the agent.
    Left,
    /// The user interrupted the command twice.
    Aborted,
}

impl From<TargetError> for CallStop {
    fn from(error: TargetError) -> Self {
        match error {
            TargetError::Usage(text) => Self::Usage(text),
            TargetError::Failed(text) => Self::Failed(text),
        }
    }
}

impl From<ClientError> for CallStop {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

pub(super) fn run(arguments: CallArguments) -> ExitCode {
    install_provider();
    let console = UserConsole::new(arguments.json);
    // Outside of the runtime: the own gateway has runtimes of its own.
    let target = match CallTarget::open(&arguments.gateway, &console) {
        Ok(target) => target,
        Err(error) => return report_early_stop(error.into(), arguments.json),
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return super::failed(&error.to_string()),
    };
    let ended = runtime.block_on(async { ToolCall::new(&arguments, target, console)?.run().await });
    // A thread that still waits for input must not keep the process.
    runtime.shutdown_background();
    match ended {
        Ok(code) => code,
        Err(stop) => report_early_stop(stop, arguments.json),
    }
}

/// Reports the reason for which a call did not begin.
fn report_early_stop(stop: CallStop, is_json: bool) -> ExitCode {
    let (text, code) = match stop {
        CallStop::Usage(text) => (text, USAGE),
        CallStop::Failed(text) => (text, 1),
        CallStop::Client(error) => (error.to_string(), 1),
        _ => ("interrupted".to_owned(), INTERRUPTED),
    };
    print_error(&text);
    if is_json {
        print_line(&json!({ "outcome": "failed", "error": text }).to_string());
    }
    ExitCode::from(code)
}

/// One call, with everything that it needs to know until its end.
struct ToolCall<'a> {
    arguments: &'a CallArguments,
    target: CallTarget,
    client: McpClient,
    console: UserConsole,
    signals: InterruptSignals,
    deadline: Option<Instant>,
    answers: VecDeque<&'a str>,
    tool: String,
    tool_arguments: Map<String, Value>,
    /// The handle of the task, once there is one.
    task: Option<String>,
    /// True if the user wants to leave as soon as there is a handle.
    is_leaving: bool,
    /// True once the gateway keeps work for the next round: the end of a request does not cancel it.
    has_rounds: bool,
    /// The last progress that was printed.
    progress: String,
}

impl<'a> ToolCall<'a> {
    fn new(arguments: &'a CallArguments, target: CallTarget, console: UserConsole) -> Result<Self, CallStop> {
        let client = target.client()?;
        let signals = InterruptSignals::new().map_err(|error| CallStop::Failed(error.to_string()))?;
        Ok(Self {
            arguments,
            target,
            client,
            console,
            signals,
            deadline: arguments.timeout.map(|timeout| Instant::now() + timeout),
            answers: arguments.answers.iter().map(String::as_str).collect(),
            tool: String::new(),
            tool_arguments: Map::new(),
            task: arguments.task.clone(),
            is_leaving: false,
            has_rounds: false,
            progress: String::new(),
        })
    }

    async fn run(&mut self) -> Result<ExitCode, CallStop> {
        let tools = self.tools().await?;
        let Some(wanted) = &self.arguments.tool else { return Ok(self.list(&tools)) };
        let tool = &self.find(&tools, wanted).map_err(CallStop::Failed)?;
        self.tool = tool["name"].as_str().unwrap_or_default().to_owned();
        self.tool_arguments =
            tool_arguments(self.arguments, &tool["inputSchema"]).map_err(CallStop::Usage)?;
        let ended = self.rounds().await;
        Ok(self.finish(ended).await)
    }

    /// Waits for a part of the call, unless a signal or the end of the time comes first.
    async fn guarded<T>(
        &mut self,
        work: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, CallStop> {
        let mut work = pin!(work);
        loop {
            let is_final = tokio::select! {
                done = &mut work => return Ok(done?),
                is_final = self.signals.next() => is_final,
                () = until(self.deadline) => return Err(CallStop::TimedOut),
            };
            self.decide(is_final).await?;
        }
    }

    /// Asks the user for the end of interrupted work. Without a user it is cancelled.
    async fn decide(&mut self, is_final: bool) -> Result<(), CallStop> {
        if is_final || !self.console.is_interactive() {
            return Err(CallStop::Cancelled);
        }
        loop {
            let prompt = "\nThe work is not done: [c]ancel it, [l]eave it running, [g]o on? ";
            let line = tokio::select! {
                line = self.console.ask(prompt) => line,
                _ = self.signals.next() => return Err(CallStop::Aborted),
                () = until(self.deadline) => return Err(CallStop::TimedOut),
            };
            match line.as_deref().map(str::trim) {
                None | Some("c" | "cancel") => return Err(CallStop::Cancelled),
                Some("l" | "leave") if self.task.is_some() => return Err(CallStop::Left),
                Some("l" | "leave") => {
                    self.is_leaving = true;
                    self.console.note("The command ends as soon as the task has a handle.");
                    return Ok(());
                }
                Some("g" | "go" | "go on") => return Ok(()),
                Some(_) => {}
            }
        }
    }

    /// Sends a request, prints its progress, and returns its result.
    async fn exchange(&mut self, request: McpRequest<'_>) -> Result<Value, CallStop> {
        // Cheap: the connections are shared.
        let client = self.client.clone();
        let mut exchange = self.guarded(client.send(request)).await?;
        loop {
            match self.guarded(exchange.next()).await? {
                McpEvent::Result(result) => return Ok(result),
                McpEvent::Notification { method, params } if method == "notifications/progress" => {
                    self.report_progress(&params);
                }
                McpEvent::Notification { .. } => {}
            }
        }
    }

    fn report_progress(&mut self, params: &Value) {
        let message = params["message"].as_str().unwrap_or_default();
        self.progress = message.to_owned();
        let mut fields = params.clone();
        if let Value::Object(fields) = &mut fields {
            fields.remove("progressToken");
            fields.remove("_meta");
            fields.insert("event".to_owned(), "progress".into());
        }
        let total = params["total"].as_f64().map(|total| format!(" of {total}"));
        let count = match (params["progress"].as_f64(), total) {
            (Some(progress), Some(total)) => format!("[{progress}{total}] "),
            _ => String::new(),
        };
        if !message.is_empty() || !count.is_empty() || self.console.is_json() {
            self.console.report(&format!("… {count}{message}"), &fields);
        }
    }

    async fn tools(&mut self) -> Result<Vec<Value>, CallStop> {
        let (mut tools, mut cursor) = (Vec::new(), None::<String>);
        for _ in 0..MAX_PAGES {
            let mut params = Map::new();
            params.extend(cursor.take().map(|cursor| ("cursor".to_owned(), cursor.into())));
            let page = &self.exchange(request("tools/list", None, params)).await?;
            tools.extend(page["tools"].as_array().cloned().unwrap_or_default());
            cursor = page["nextCursor"].as_str().map(str::to_owned);
            if cursor.is_none() {
                break;
            }
        }
        Ok(tools)
    }

    /// Prints the tools.
    fn list(&self, tools: &[Value]) -> ExitCode {
        let troubles = self.target.troubles();
        if self.arguments.json {
            print_json(&json!({ "tools": tools }));
        } else {
            let name = |tool: &Value| tool["name"].as_str().unwrap_or_default().to_owned();
            let width = tools.iter().map(|tool| name(tool).chars().count()).max().unwrap_or_default();
            for tool in tools {
                let about = tool["description"].as_str().unwrap_or_default();
                let about = about.lines().next().unwrap_or_default();
                let line = format!("{:width$}  {about}", name(tool));
                print_line(&visible(line.trim_end(), EscapeStyle::Text));
            }
        }
        troubles.iter().for_each(|trouble| print_error(&format!("awaited: {trouble}")));
        if troubles.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    /// Finds a tool by its name, or by the only name that ends so.
    fn find(&self, tools: &[Value], wanted: &str) -> Result<Value, String> {
        let names = || tools.iter().filter_map(|tool| tool["name"].as_str());
        let named = |name: &str| tools.iter().find(|tool| tool["name"] == name).cloned();
        if let Some(tool) = named(wanted) {
            return Ok(tool);
        }
        let end = format!("_{wanted}");
        let ending: Vec<&str> = names().filter(|name| name.ends_with(&end)).collect();
        if let [name] = ending.as_slice() {
            return named(name).ok_or_else(|| (*name).to_owned());
        }
        let mut problem = match ending.as_slice() {
            [] => {
                format!("there is no tool {wanted:?}; there are: {}", names().collect::<Vec<_>>().join(", "))
            }
            several => format!("{wanted:?} is the end of several tools: {}", several.join(", ")),
        };
        self.target.troubles().iter().for_each(|trouble| problem.push_str(&format!("\nawaited: {trouble}")));
        Err(problem)
    }

    /// Calls the tool until there is a result: after each question, and while the gateway only has
    /// a handle.
    async fn rounds(&mut self) -> Result<Value, CallStop> {
        let mut params = Map::new();
        params.insert("name".to_owned(), self.tool.clone().into());
        params.insert("arguments".to_owned(), self.tool_arguments.clone().into());
        loop {
            let tool = self.tool.clone();
            let begun = Instant::now();
            let result = &self.exchange(request("tools/call", Some(&tool), params.clone())).await?;
            match result["resultType"].as_str() {
                Some("task") => return self.follow(result).await,
                Some("input_required") => {
                    let state = result["requestState"].clone();
                    self.has_rounds = true;
                    match self.answers_to(&result["inputRequests"]).await {
                        Ok(answers) if answers.is_empty() => sleep(ROUND_PAUSE).await,
                        Ok(answers) => drop(params.insert("inputResponses".to_owned(), answers.into())),
                        Err(stop) => {
                            self.task = self.task.take().or(self.handle_of(&params, &state).await);
                            return Err(stop);
                        }
                    }
                    params.insert("requestState".to_owned(), state);
                }
                _ => {
                    let Some(task) = live_task(result) else { return Ok(result.clone()) };
                    self.keep_task(&task)?;
                    params.retain(|name, _| name == "name");
                    params.insert("arguments".to_owned(), json!({ "taskId": task }));
                    sleep(TASK_POLL_INTERVAL.saturating_sub(begun.elapsed())).await;
                }
            }
        }
    }

    /// Returns the handle of a task that waits for an answer: a client that cannot be asked gets
    /// one.
    async fn handle_of(&self, params: &Map<String, Value>, state: &Value) -> Option<String> {
        let mut params = params.clone();
        params.remove("inputResponses");
        params.insert("requestState".to_owned(), state.clone());
        let mut request = request("tools/call", Some(&self.tool), params);
        request.abilities = DeclaredAbilities::None;
        let result = timeout(HANDLE_TIMEOUT, self.client.result(request)).await.ok()?.ok()?;
        Some(result.pointer("/structuredContent/taskId")?.as_str()?.to_owned())
    }

    /// Keeps the handle of the task, and leaves if the user wants that.
    fn keep_task(&mut self, task: &str) -> Result<(), CallStop> {
        if self.task.as_deref() != Some(task) {
            self.task = Some(task.to_owned());
            self.console.report(&format!("task {task}"), &json!({ "event": "task", "taskId": task }));
        }
        if self.is_leaving { Err(CallStop::Left) } else { Ok(()) }
    }

    /// Follows a task to its end, by its notifications, and by requests where there are none.
    async fn follow(&mut self, created: &Value) -> Result<Value, CallStop> {
        let task = created["taskId"].as_str().unwrap_or_default().to_owned();
        self.keep_task(&task)?;
        let mut answered = Vec::new();
        loop {
            if let Some(result) = self.watch(&task, &mut answered).await? {
                return Ok(result);
            }
            let state = self.exchange(task_request("tasks/get", &task)).await?;
            if let Some(result) = self.take_state(&state, &mut answered).await? {
                return Ok(result);
            }
            sleep(TASK_POLL_INTERVAL).await;
        }
    }

    /// Watches a task until its result is there; `None` if there are no more notifications.
    async fn watch(&mut self, task: &str, answered: &mut Vec<String>) -> Result<Option<Value>, CallStop> {
        let mut params = Map::new();
        params.insert("notifications".to_owned(), json!({ "taskIds": [task] }));
        let client = self.client.clone();
        let sent = self.guarded(client.send(request("subscriptions/listen", None, params))).await;
        let mut exchange = match sent {
            Ok(exchange) => exchange,
            // The state of the task is requested instead.
            Err(CallStop::Client(_)) => return Ok(None),
            Err(stop) => return Err(stop),
        };
        loop {
            match self.guarded(exchange.next()).await {
                Ok(McpEvent::Notification { method, params }) if method == "notifications/tasks" => {
                    if let Some(result) = self.take_state(&params, answered).await? {
                        return Ok(Some(result));
                    }
                }
                Ok(McpEvent::Notification { .. }) => {}
                Ok(McpEvent::Result(_)) | Err(CallStop::Client(_)) => return Ok(None),
                Err(stop) => return Err(stop),
            }
        }
    }

    /// Reports the state of a task, answers its questions, and returns its result.
    async fn take_state(
        &mut self,
        state: &Value,
        answered: &mut Vec<String>,
    ) -> Result<Option<Value>, CallStop> {
        let message = state["statusMessage"].as_str().unwrap_or_default();
        match state["status"].as_str() {
            Some("completed") => return Ok(Some(state["result"].clone())),
            Some("cancelled") => return Err(CallStop::Failed("the task was cancelled".to_owned())),
            Some("failed") => {
                let error = state.pointer("/error/message").and_then(Value::as_str).unwrap_or(message);
                return Err(CallStop::Failed(format!("the task failed: {error}")));
            }
            Some("input_required") => {
                let task = state["taskId"].as_str().unwrap_or_default();
                let mut open = state["inputRequests"].clone();
                if let Value::Object(open) = &mut open {
                    open.retain(|key, _| !answered.contains(key));
                }
                let answers = self.answers_to(&open).await?;
                if !answers.is_empty() {
                    answered.extend(answers.keys().cloned());
                    let mut update = task_request("tasks/update", task);
                    update.params.insert("inputResponses".to_owned(), answers.into());
                    self.exchange(update).await?;
                }
            }
            _ if message != self.progress && !message.is_empty() => {
                self.report_progress(&json!({ "message": message }));
            }
            _ => {}
        }
        Ok(None)
    }

    /// Returns the answers to these questions, by key.
    async fn answers_to(&mut self, questions: &Value) -> Result<Map<String, Value>, CallStop> {
        let mut answers = Map::new();
        for (key, question) in questions.as_object().into_iter().flatten() {
            let question = &question["params"];
            let answer = match self.answers.pop_front() {
                Some(given) => {
                    self.console.note(&described(question));
                    let answer = given_answer(question, given);
                    answer.map_err(|problem| CallStop::Usage(format!("--answer: {problem}")))?
                }
                None if self.console.is_interactive() => self.ask_user(question).await?,
                None => return Err(CallStop::Unanswered(questions.clone())),
            };
            answers.insert(key.clone(), answer);
        }
        Ok(answers)
    }

    async fn ask_user(&mut self, question: &Value) -> Result<Value, CallStop> {
        loop {
            let is_final = tokio::select! {
                answer = self.console.answer(question) => return Ok(answer),
                is_final = self.signals.next() => is_final,
                () = until(self.deadline) => return Err(CallStop::TimedOut),
            };
            self.decide(is_final).await?;
        }
    }

    /// Ends the work if it must end, and prints the outcome.
    async fn finish(&mut self, ended: Result<Value, CallStop>) -> ExitCode {
        let stop = match ended {
            Ok(result) => return self.print_result(&result),
            Err(stop) => stop,
        };
        let (outcome, text, code) = match stop {
            CallStop::Usage(text) => ("failed", text, USAGE),
            CallStop::Failed(text) => ("failed", text, 1),
            CallStop::Client(error) if self.task.is_none() => ("failed", error.to_string(), 1),
            CallStop::Client(error) => ("failed", self.advice(&format!("{error}.")), 1),
            CallStop::Cancelled => ("cancelled", self.cancel().await, INTERRUPTED),
            CallStop::TimedOut => ("timed_out", format!("The time is over. {}", self.cancel().await), 1),
            CallStop::Left => ("working", self.advice("The work continues."), INTERRUPTED),
            CallStop::Aborted => ("interrupted", self.advice("Interrupted."), INTERRUPTED),
            CallStop::Unanswered(questions) => return self.print_questions(&questions),
        };
        print_error(&text);
        if self.arguments.json {
            let task = self.task.as_deref();
            print_json(&json!({ "outcome": outcome, "tool": self.tool, "taskId": task, "error": text }));
        }
        ExitCode::from(code)
    }

    /// Cancels the work, and returns the words for its end.
    async fn cancel(&mut self) -> String {
        let work = async {
            if let Some(task) = &self.task {
                let cancelled = self.client.result(task_request("tasks/cancel", task)).await;
                cancelled.map_err(|error| error.to_string())?;
                loop {
                    let state = self.client.result(task_request("tasks/get", task)).await;
                    let state = state.map_err(|error| error.to_string())?;
                    let status = state.get("status").and_then(Value::as_str);
                    if matches!(status, Some("cancelled" | "completed" | "failed")) {
                        break;
                    }
                    sleep(POLL_INTERVAL).await;
                }
            }
            // The request was cancelled with its connection; the own gateway still tells the agent.
            while self.target.own.as_ref().is_some_and(|gateway| gateway.running() > 0) {
                sleep(POLL_INTERVAL).await;
            }
            Ok::<_, String>(())
        };
        let mut signals = match InterruptSignals::new() {
            Ok(signals) => signals,
            Err(error) => return error.to_string(),
        };
        tokio::select! {
            ended = timeout(CANCEL_TIMEOUT, work) => match ended {
                Ok(Ok(())) if self.task.is_none() && self.has_rounds => {
                    "The call has ended; the agent may still work on it.".to_owned()
                }
                Ok(Ok(())) => "Cancelled.".to_owned(),
                Ok(Err(problem)) => format!("The cancellation failed: {problem}"),
                Err(_) => "The agent did not confirm the cancellation.".to_owned(),
            },
            _ = signals.next() => "Interrupted before the agent confirmed the cancellation.".to_owned(),
        }
    }

    /// Returns the text with the command that continues the task.
    fn advice(&self, text: &str) -> String {
        match (&self.task, &self.arguments.gateway.url) {
            (Some(task), Some(url)) => {
                let (task, url) = (shell_word(task), shell_word(url));
                format!("{text} To continue:\n  {} call {} --task {task} --url {url}", program(), self.tool)
            }
            (Some(_), None) => format!(
                "{text} The agent has the task; its handle ended with the gateway of this command (call a gateway \
                 that runs, with --url, to continue tasks)."
            ),
            (None, _) => format!("{text} The task has no handle: the agent may still work on it."),
        }
    }

    /// Returns the words for a user in place of those for a model about the next message of the
    /// conversation: the command that sends it.
    fn continuation(&self, text: &str) -> Option<String> {
        let context = text.strip_prefix(CONTINUATION_HINT)?.trim_matches(['"', '.']);
        let url = self.arguments.gateway.url.as_deref()?;
        let (context, url) = (shell_word(context), shell_word(url));
        let (program, tool) = (program(), &self.tool);
        Some(format!(
            "To continue this conversation:\n  {program} call {tool} --context {context} --url {url} --text TEXT"
        ))
    }

    fn print_questions(&self, questions: &Value) -> ExitCode {
        for question in questions.as_object().into_iter().flatten().map(|(_, question)| &question["params"]) {
            self.console.note(&described(question));
            described_fields(question).iter().for_each(|field| self.console.note(&format!("  {field}")));
        }
        self.console.note(&self.advice("Answer with --answer JSON, or at a terminal."));
        if self.arguments.json {
            let task = self.task.as_deref();
            let tool = &self.tool;
            let questions = json!({ "outcome": "input_required", "tool": tool, "taskId": task, "inputRequests": questions });
            print_json(&questions);
        }
        ExitCode::from(INPUT_REQUIRED)
    }

    fn print_result(&self, result: &Value) -> ExitCode {
        let is_error = result["isError"] == true;
        let files: Vec<ResultFile> =
            result["content"].as_array().into_iter().flatten().filter_map(ResultFile::of).collect();
        let mut lines = Vec::new();
        for (number, file) in files.iter().enumerate() {
            match file.save(self.arguments.output.as_deref(), number) {
                Ok(line) => lines.push(line),
                Err(problem) => return super::failed(&problem),
            }
        }
        if self.arguments.json {
            let outcome = if is_error { "failed" } else { "completed" };
            let task = self.task.as_deref();
            let tool = &self.tool;
            print_json(
                &json!({ "outcome": outcome, "tool": tool, "taskId": task, "result": result, "files": lines }),
            );
        } else {
            for block in result["content"].as_array().into_iter().flatten() {
                self.print_text(block, is_error);
            }
            lines.iter().for_each(|line| print_line(&visible(line, EscapeStyle::Text)));
        }
        if is_error { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }

    /// Prints a block of text: for the user, or on standard error if it is for a model or an error.
    fn print_text(&self, block: &Value, is_error: bool) {
        let text = match block["type"].as_str() {
            Some("text") => block["text"].as_str().map(str::to_owned),
            Some("resource") => block.pointer("/resource/text").and_then(Value::as_str).map(str::to_owned),
            Some("resource_link") => {
                Some(format!("{}: {}", block["name"].as_str().unwrap_or("link"), block["uri"]))
            }
            _ => None,
        };
        let Some(text) = text else { return };
        let is_for_model = block.pointer("/annotations/audience") == Some(&json!(["assistant"]));
        match (is_error, is_for_model) {
            (_, true) if self.arguments.gateway.url.is_none() => {} // a handle of the own gateway, which ends now
            (false, true) => self.console.note(&self.continuation(&text).unwrap_or(text)),
            (true, _) => self.console.note(&text),
            (false, false) => print_line(&visible(&text, EscapeStyle::Text)),
        }
    }
}

/// Waits for the end of the time, if there is one.
async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

fn print_json(value: &Value) {
    print_line(&visible(&value.to_string(), EscapeStyle::Json));
}

fn request<'r>(method: &'r str, name: Option<&'r str>, params: Map<String, Value>) -> McpRequest<'r> {
    McpRequest { method, name, params, abilities: DeclaredAbilities::All }
}

fn task_request<'r>(method: &'r str, task: &'r str) -> McpRequest<'r> {
    let mut params = Map::new();
    params.insert("taskId".to_owned(), task.into());
    request(method, Some(task), params)
}

/// Returns the handle of a result whose task still works.
fn live_task(result: &Value) -> Option<String> {
    let content = &result["structuredContent"];
    let is_live = matches!(content["state"].as_str(), Some("submitted" | "working" | "unknown"));
    let is_handle = is_live && content["taskUri"].is_string();
    content["taskId"].as_str().filter(|_| is_handle).map(str::to_owned)
}

/// Returns the arguments of the tool.
///
/// # Errors
///
/// The option that cannot be used.
fn tool_arguments(given: &CallArguments, schema: &Value) -> Result<Map<String, Value>, String> {
    if let Some(text) = &given.arguments {
        let Value::Object(arguments) = read_json("--arguments", text)? else {
            return Err("--arguments: is not a JSON object".to_owned());
        };
        return Ok(arguments);
    }
    let takes = |name: &str| schema["properties"].get(name).is_some();
    let names: Vec<&str> =
        schema["properties"].as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
    let mut arguments = Map::new();
    if let Some(data) = &given.data {
        match read_json("--data", data)? {
            data if takes("data") => drop(arguments.insert("data".to_owned(), data)),
            Value::Object(data) => arguments = data,
            _ => return Err("--data: this tool has arguments of its own; write an object".to_owned()),
        }
    }
    let files = given.file.iter().map(|file| file_argument(file)).collect::<Result<Vec<_>, _>>()?;
    let files = (!files.is_empty()).then(|| Value::from(files));
    for (option, name, value) in [
        ("--text", "text", given.text.clone().map(Value::from)),
        ("--file", "files", files),
        ("--task", "taskId", given.task.clone().map(Value::from)),
        ("--context", "contextId", given.context.clone().map(Value::from)),
    ] {
        let Some(value) = value else { continue };
        // Tools with a schema of their own take a task beside it.
        if !takes(name) && name != "taskId" && name != "contextId" {
            let problem = format!("{option}: this tool takes no {name}; it takes {}", names.join(", "));
            return Err(format!("{problem} (use --arguments)"));
        }
        arguments.insert(name.to_owned(), value);
    }
    Ok(arguments)
}

/// Reads JSON, or a file of it.
fn read_json(option: &str, text: &str) -> Result<Value, String> {
    let read = match text.strip_prefix('@') {
        Some(path) => read_file(Path::new(path)).map_err(|problem| format!("{option}: {problem}"))?,
        None => text.as_bytes().to_vec(),
    };
    serde_json::from_slice(&read).map_err(|error| format!("{option}: is not JSON: {error}"))
}
/// Returns a text as one word of a line for a shell: it may be of another gateway.
fn shell_word(text: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/=@%+,".contains(&byte);
    match !text.is_empty() && text.bytes().all(is_plain) {
        true => Cow::Borrowed(text),
        false => Cow::Owned(format!("'{}'", text.replace('\'', r"'\''"))),
    }
}
