//! An embedded A2A 1.0 agent, so that the gateway can be tried without one.
//!
//! Real: an HTTP server on its own socket, tasks that outlive their client, timers that take their
//! time. It is a peer, not a part of the gateway, and shares no code with it, so that a mistake in
//! the gateway's A2A cannot hide here. Reads and writes A2A 1.0 over JSON-RPC. Skills: `echo`,
//! `countdown`, `ask`.
//!
//! Out of scope: authentication, push notifications, `ListTasks`, TLS.

mod server;
mod skills;
mod task;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use task::Tasks;

/// Connections served at once; others wait in the listener's queue.
const MAX_CONNECTIONS: usize = 256;
/// Longest wait for a request's headers, which is also how long an idle connection is kept.
const HEADER_PATIENCE: Duration = Duration::from_secs(60);
/// Pause after an accept that failed for want of file descriptors: trying at once would spin.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// The demonstration agent, bound and ready to run.
#[derive(Debug)]
pub(crate) struct DemoAgent {
    listener: TcpListener,
    address: SocketAddr,
}

impl DemoAgent {
    /// Binds `address`; port 0 takes any free port. Clients can connect from now on and are served
    /// by [`Self::run`].
    ///
    /// # Errors
    ///
    /// Any error of the system about binding.
    pub(crate) async fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address })
    }

    /// Returns the URL of the agent's card.
    pub(crate) fn card_url(&self) -> String {
        format!("{}.well-known/agent-card.json", skills::base_url(self.address))
    }

    /// Serves until dropped; dropping closes every connection. Tasks that are running end on their own.
    pub(crate) async fn run(self) {
        let agent =
            Arc::new(SharedAgent { card: skills::DemoCard::new(self.address), tasks: Tasks::default() });
        let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let mut connections = JoinSet::new();
        loop {
            let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
            match self.listener.accept().await {
                Ok((socket, _)) => {
                    let agent = Arc::clone(&agent);
                    connections.spawn(async move {
                        serve(socket, agent).await;
                        drop(slot);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "demo agent failed to accept a connection");
                    tokio::time::sleep(ACCEPT_REST).await;
                }
            }
            while connections.try_join_next().is_some() {}
        }
    }
}

/// State that all connections share.
struct SharedAgent {
    card: skills::DemoCard,
    tasks: Tasks,
}

async fn serve(socket: TcpStream, agent: Arc<SharedAgent>) {
    // The chunks of a stream are small and the client shows them as they arrive.
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%error, "demo agent failed to set TCP_NODELAY");
    }
    let service = service_fn(move |request| server::answer(Arc::clone(&agent), request));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_PATIENCE)
        .max_buf_size(64 * 1024)
        .serve_connection(TokioIo::new(socket), service);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "demo agent lost a connection");
    }
}

/// The agent over a real socket, as a client sees it.
#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Duration;

    use serde_json::{Value, json};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;
    use tokio::time::timeout;

    use super::DemoAgent;

    async fn agent() -> SocketAddr {
        let agent = DemoAgent::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
        let address = agent.address;
        tokio::spawn(agent.run());
        address
    }

    /// Returns the whole response to one request, as text.
    async fn exchange(address: SocketAddr, head: &str, body: &str) -> String {
        let mut socket = TcpStream::connect(address).await.unwrap();
        let length = body.len();
        let request =
            format!("{head}\r\nHost: demo\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}");
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut reply = String::new();
        let read = timeout(Duration::from_secs(10), socket.read_to_string(&mut reply)).await;
        read.expect("an answer in time").unwrap();
        reply
    }

    async fn rpc(address: SocketAddr, method: &str, params: Value) -> Value {
        let body = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params }).to_string();
        let reply = exchange(address, "POST / HTTP/1.1\r\nA2A-Version: 1.0", &body).await;
        serde_json::from_str(reply.split_once("\r\n\r\n").unwrap().1).unwrap()
    }

    async fn events(address: SocketAddr, method: &str, params: Value) -> Vec<Value> {
        let body = json!({ "jsonrpc": "2.0", "id": "s", "method": method, "params": params }).to_string();
        let reply = exchange(address, "POST / HTTP/1.1\r\nA2A-Version: 1.0", &body).await;
        assert!(reply.contains("content-type: text/event-stream"), "{reply}");
        let data = reply.lines().filter_map(|line| line.strip_prefix("data: "));
        data.map(|data| serde_json::from_str::<Value>(data).unwrap()["result"].clone()).collect()
    }

    fn say(text: &str) -> Value {
        json!({ "message": { "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": text }] } })
    }

    #[tokio::test]
    async fn the_card_is_served_once_and_then_confirmed() {
        let address = agent().await;
        let reply = exchange(address, "GET /.well-known/agent-card.json HTTP/1.1", "").await;
        let card: Value = serde_json::from_str(reply.split_once("\r\n\r\n").unwrap().1).unwrap();
        assert_eq!(card["supportedInterfaces"][0]["url"], format!("http://{address}/"));
        let etag = reply.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap();
        let again = format!("GET /.well-known/agent-card.json HTTP/1.1\r\nIf-None-Match: {etag}");
        assert!(exchange(address, &again, "").await.starts_with("HTTP/1.1 304"));
    }

    #[tokio::test]
    async fn echo_answers_with_a_message() {
        let answer = rpc(agent().await, "SendMessage", say("echo hello")).await;
        assert_eq!(answer["id"], 7);
        assert_eq!(answer["result"]["message"]["parts"], json!([{ "text": "hello" }]));
        let streamed = events(agent().await, "SendStreamingMessage", say("hello")).await;
        assert_eq!(streamed.len(), 1);
        assert_eq!(streamed[0]["message"]["role"], "ROLE_AGENT");
    }

    #[tokio::test]
    async fn countdown_streams_a_task_to_its_end() {
        let address = agent().await;
        let events = events(address, "SendStreamingMessage", say("countdown 1")).await;
        let id = &events[0]["task"]["id"];
        assert_eq!(events[1]["statusUpdate"]["status"]["message"]["parts"][0]["text"], "1 s left");
        assert_eq!(events[2]["artifactUpdate"]["append"], Value::Null);
        assert_eq!(events[3]["artifactUpdate"]["lastChunk"], true);
        assert_eq!(events[4]["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED");
        assert_eq!(events.len(), 5);
        let task = rpc(address, "GetTask", json!({ "id": id, "historyLength": 0 })).await;
        assert_eq!(task["result"]["artifacts"][0]["parts"][0]["text"], "1 liftoff");
        assert_eq!(task["result"]["history"], Value::Null);
    }

    #[tokio::test]
    async fn a_task_goes_on_when_its_client_leaves() {
        let address = agent().await;
        let mut params = say("countdown 1");
        params["configuration"] = json!({ "returnImmediately": true });
        let task = rpc(address, "SendMessage", params).await["result"]["task"].clone();
        assert_eq!(task["status"]["state"], "TASK_STATE_SUBMITTED");
        let events = events(address, "SubscribeToTask", json!({ "id": task["id"] })).await;
        assert_eq!(events[0]["task"]["id"], task["id"]);
        assert_eq!(events.last().unwrap()["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED");
        let refused = rpc(address, "SubscribeToTask", json!({ "id": task["id"] })).await;
        assert_eq!(refused["error"]["code"], -32004);
    }

    #[tokio::test]
    async fn ask_waits_for_its_answer() {
        let address = agent().await;
        let asked = rpc(address, "SendMessage", say("ask about lunch")).await["result"]["task"].clone();
        assert_eq!(asked["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
        let mut params = say("soup");
        params["message"]["taskId"] = asked["id"].clone();
        params["message"]["contextId"] = json!("another");
        let wrong = rpc(address, "SendMessage", params.clone()).await;
        assert_eq!(wrong["error"]["code"], -32602);
        params["message"]["contextId"] = asked["contextId"].clone();
        let done = rpc(address, "SendMessage", params.clone()).await["result"]["task"].clone();
        assert_eq!(done["status"]["state"], "TASK_STATE_COMPLETED");
        assert_eq!(done["artifacts"][0]["parts"][0]["text"], "You said: soup");
        assert_eq!(rpc(address, "SendMessage", params).await["error"]["code"], -32004);
    }

    #[tokio::test]
    async fn cancel_ends_a_task_at_once() {
        let address = agent().await;
        let mut params = say("countdown 60");
        params["configuration"] = json!({ "returnImmediately": true });
        let id = rpc(address, "SendMessage", params).await["result"]["task"]["id"].clone();
        let canceled = rpc(address, "CancelTask", json!({ "id": id })).await;
        assert_eq!(canceled["result"]["status"]["state"], "TASK_STATE_CANCELED");
        assert_eq!(rpc(address, "CancelTask", json!({ "id": id })).await["error"]["code"], -32002);
    }

    #[tokio::test]
    async fn unsupported_methods_have_a_code() {
        let address = agent().await;
        for (method, params, code) in [
            ("message/send", json!({}), -32601),
            ("ListTasks", json!({}), -32601),
            ("GetTask", json!({}), -32602),
            ("GetTask", json!({ "id": "nobody" }), -32001),
            ("SendStreamingMessage", json!({}), -32602),
            ("CreateTaskPushNotificationConfig", json!({}), -32003),
            ("GetExtendedAgentCard", json!({}), -32007),
        ] {
            assert_eq!(rpc(address, method, params).await["error"]["code"], code, "{method}");
        }
        for version in ["0.3", "2.0", ""] {
            let head = format!("POST / HTTP/1.1\r\nA2A-Version: {version}");
            let reply = exchange(address, &head, r#"{"jsonrpc":"2.0","id":1,"method":"GetTask"}"#).await;
            assert!(reply.contains("-32009"), "{reply}");
        }
        for (head, status) in [
            ("GET / HTTP/1.1", "405"),
            ("POST /.well-known/agent-card.json HTTP/1.1", "405"),
            ("GET /nowhere HTTP/1.1", "404"),
        ] {
            let reply = exchange(address, head, "").await;
            assert_eq!(reply.split(' ').nth(1).unwrap(), status, "{head}");
        }
        let huge = "x".repeat(1024 * 1024 + 1);
        let reply = exchange(address, "POST / HTTP/1.1\r\nA2A-Version: 1.0", &huge).await;
        assert!(reply.starts_with("HTTP/1.1 413"), "{reply}");
    }
}
