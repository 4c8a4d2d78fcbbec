//! Checks of the official Rust MCP client with one agent behind the gateway.
//!
//! Not part of the gateway. Usage: `rmcp-client URL AGENT`; prints one line per check and exits 1
//! if any failed. `clients/py_checks.py` makes the same checks in Python.

use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResult, ProgressNotificationParam, ReadResourceRequestParams,
};
use rmcp::service::{NotificationContext, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::{ClientHandler, RoleClient, ServiceExt};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(20);
const ECHOED: &str = "Hello, 世界 🌊";
const STREAMED: &str = "Grüße, streamed in several pieces";

type Outcome = Result<(), String>;

#[derive(Clone, Default)]
struct Handler {
    progress: Arc<Mutex<Vec<f64>>>,
}

impl ClientHandler for Handler {
    async fn on_progress(&self, params: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.progress.lock().unwrap().push(params.progress);
    }
}

struct Checks {
    client: RunningService<RoleClient, Handler>,
    agent: String,
}

fn text_of(result: &CallToolResult) -> String {
    let texts = result.content.iter().filter_map(|block| block.as_text());
    texts.map(|block| block.text.as_str()).collect()
}

fn expect(condition: bool, why: impl std::fmt::Debug) -> Outcome {
    if condition { Ok(()) } else { Err(format!("{why:?}")) }
}

/// The result, if it is a success with a text that contains `wanted`.
fn success(result: CallToolResult, wanted: &str) -> Outcome {
    expect(result.is_error != Some(true) && text_of(&result).contains(wanted), result)
}

impl Checks {
    async fn call(&self, skill: &str, arguments: Value) -> Result<CallToolResult, String> {
        let arguments = arguments.as_object().cloned().unwrap_or_default();
        let params = CallToolRequestParams::new(format!("{}_{skill}", self.agent)).with_arguments(arguments);
        self.client.call_tool(params).await.map_err(|error| error.to_string())
    }

    async fn tools(&self) -> Outcome {
        let tools = self.client.list_all_tools().await.map_err(|error| error.to_string())?;
        let wanted = ["echo", "stream", "slow", "ask", "fail", "data"];
        let listed = |skill: &&str| tools.iter().any(|tool| tool.name == format!("{}_{skill}", self.agent));
        expect(wanted.iter().all(listed), tools)
    }

    async fn stream(&self) -> Outcome {
        self.client.service().progress.lock().unwrap().clear();
        let result = self.call("stream", json!({"text": STREAMED})).await?;
        success(result, STREAMED)?;
        let seen = self.client.service().progress.lock().unwrap().clone();
        expect(seen.len() >= 3 && seen.is_sorted(), seen)
    }

    async fn ask(&self) -> Outcome {
        let asked = self.call("ask", json!({"text": "paint it"})).await?;
        let task = asked.structured_content.as_ref().and_then(|content| content.get("taskId")).cloned();
        let task = task.ok_or_else(|| format!("{asked:?}"))?;
        success(self.call("ask", json!({"taskId": task, "text": "blue"})).await?, "The colour is blue")
    }

    async fn resources(&self) -> Outcome {
        let uri = format!("a2a-agent://{}", self.agent);
        let listed = self.client.list_all_resources().await.map_err(|error| error.to_string())?;
        expect(listed.iter().any(|one| one.uri == uri), &listed)?;
        let read = self.client.read_resource(ReadResourceRequestParams::new(uri)).await;
        let read = read.map_err(|error| error.to_string())?;
        expect(serde_json::to_string(&read.contents).is_ok_and(|text| text.contains("echo")), read)
    }

    async fn check(&self, name: &str) -> Outcome {
        match name {
            "tools" => self.tools().await,
            "echo" => success(self.call("echo", json!({"text": ECHOED})).await?, ECHOED),
            "stream" => self.stream().await,
            "slow" => success(self.call("slow", json!({"text": "late"})).await?, "late"),
            "data" => {
                let result = self.call("data", json!({"text": "x"})).await?;
                let printed = format!("{result:?}");
                expect(result.is_error != Some(true) && printed.contains("nested"), result)
            }
            "fail" => {
                let result = self.call("fail", json!({"text": "x"})).await?;
                expect(result.is_error == Some(true) && text_of(&result).contains("on purpose"), result)
            }
            "bad_arguments" => {
                let result = self.call("echo", json!({"text": {"not": "a string"}})).await?;
                expect(result.is_error == Some(true), result)
            }
            "ask" => self.ask().await,
            "unknown_tool" => match self.call("nothing", json!({"text": "x"})).await {
                Ok(result) => expect(result.is_error == Some(true), result),
                Err(_) => Ok(()),
            },
            "resources" => self.resources().await,
            other => Err(format!("no such check: {other}")),
        }
    }
}

const NAMES: [&str; 10] =
    ["tools", "echo", "stream", "slow", "data", "fail", "bad_arguments", "ask", "unknown_tool", "resources"];

async fn run(url: String, agent: String) -> Result<usize, String> {
    let connecting = Handler::default().serve(StreamableHttpClientTransport::from_uri(url));
    let client = tokio::time::timeout(LIMIT, connecting).await.map_err(|error| error.to_string())?;
    let checks = Checks { client: client.map_err(|error| error.to_string())?, agent };
    let mut failed = 0;
    for name in NAMES {
        let outcome = tokio::time::timeout(LIMIT, checks.check(name)).await;
        match outcome.unwrap_or_else(|late| Err(late.to_string())) {
            Ok(()) => println!("ok {name}"),
            Err(why) => {
                failed += 1;
                println!("FAILED {name}: {why}");
            }
        }
    }
    checks.client.cancel().await.map_err(|error| error.to_string())?;
    Ok(failed)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (Some(url), Some(agent)) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: rmcp-client URL AGENT");
        return ExitCode::from(2);
    };
    match run(url, agent).await {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(why) => {
            println!("FAILED connect: {why}");
            ExitCode::FAILURE
        }
    }
}
