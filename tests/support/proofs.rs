//! The kit itself, proven: it shows the events as they happened. Run in every test binary, so kept
//! quick.

use serde_json::json;

use super::certs::{client_config, server_config};
use super::payload::v1;
use super::*;

fn send() -> serde_json::Value {
    let message = json!({ "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": "hi" }] });
    json!({ "jsonrpc": "2.0", "id": 7, "method": "SendMessage", "params": { "message": message } })
}

#[tokio::test]
async fn card_is_served_and_confirmed() {
    let agent = ScriptedAgent::start(Card::v1().skill("echo").etag("one")).await;
    let client = McpClient::new(&agent.card_url());
    let answer = client.get(&[]).await;
    assert_eq!(answer.header("etag"), Some("\"one\""));
    assert_eq!(answer.json().await["supportedInterfaces"][0]["url"], agent.url());
    assert_eq!(client.get(&[("If-None-Match", "\"one\"")]).await.status, 304);
    assert_eq!(client.at("/elsewhere").get(&[]).await.status, 404);
    assert_eq!(agent.requests().len(), 3);
}

#[tokio::test]
async fn replies_have_request_id_by_default() {
    let agent = ScriptedAgent::start(Card::v1()).await;
    let client = McpClient::new(&agent.url());
    assert_eq!(client.post(&send(), &[]).await.error_code().await, -32601);
    agent.on_send(in_order([Reply::result(v1::message("a")), Reply::result(v1::message("b")).id(8)]));
    let first = client.post(&send(), &[]).await.json().await;
    assert_eq!((&first["id"], first["result"] == v1::message("a")), (&json!(7), true));
    assert_eq!(client.post(&send(), &[]).await.json().await["id"], 8);
    assert_eq!(agent.calls("SendMessage")[1].text(), "hi");
}

#[tokio::test]
async fn stream_waits_for_signal_in_order() {
    let agent = ScriptedAgent::start(Card::v1()).await;
    let signal = Signal::new();
    let go = signal.clone();
    agent.on_send(move |_| {
        let stream = Reply::stream().crlf().in_pieces(3).event(v1::task("t", "c", "working"));
        stream.comment("ping").wait(&go).event(v1::status_update("t", "c", "completed", None))
    });
    let mut answer = McpClient::new(&agent.url()).post(&send(), &[]).await;
    assert_eq!(answer.next_message().await["result"]["task"]["id"], "t");
    assert_eq!(answer.next_piece().await.unwrap().comment.as_deref(), Some("ping"));
    assert!(agent.log().answered.is_empty());
    signal.fire();
    assert!(answer.next_message().await["result"]["statusUpdate"].is_object());
    assert_eq!(answer.next_event().await, None);
    agent.wait_for("the end", |log| log.answered == [0]).await;
}

#[tokio::test]
async fn leaving_client_is_noticed() {
    let agent = ScriptedAgent::start(Card::v1()).await;
    agent.on_send(|_| Reply::stream().event(v1::task("t", "c", "working")).stall());
    let mut answer = McpClient::new(&agent.url()).post(&send(), &[]).await;
    answer.next_message().await;
    drop(answer);
    agent.wait_for("the client left", |log| log.left == [0]).await;
}

#[tokio::test]
async fn broken_answers_are_broken() {
    let agent = ScriptedAgent::start(Card::v1()).await;
    let client = McpClient::new(&agent.url());
    let body = || send().to_string().into_bytes();
    agent.on_send(|_| Reply::hang_up());
    assert!(client.try_send("POST", &[], body()).await.is_err());
    agent.on_send(|_| Reply::raw(b"not http\r\n\r\n"));
    assert!(client.try_send("POST", &[], body()).await.is_err());
    agent.on_send(|_| Reply::stream().event(v1::task("t", "c", "working")).cut());
    let answer = client.try_send("POST", &[], body()).await.unwrap();
    let cut = tokio::spawn(answer.bytes()).await;
    assert!(cut.is_err(), "a body that was cut reads as whole");
}

#[tokio::test]
async fn stopped_agent_refuses_and_can_return() {
    let agent = ScriptedAgent::start(Card::v1()).await;
    let client = McpClient::new(&agent.card_url());
    let address = agent.stop().await;
    assert!(client.try_send("GET", &[], Vec::new()).await.is_err());
    let _agent = ScriptedAgent::start_at(address, Card::v1()).await;
    assert_eq!(client.get(&[]).await.status, 200);
}

#[tokio::test]
async fn tls_requires_right_certificates() {
    let (authority, stranger) = (Authority::new("ours"), Authority::new("theirs"));
    let config = server_config(&authority.server(), Some(&authority));
    let agent = ScriptedAgent::start_tls(Card::v1(), config).await;
    let client = McpClient::new(&agent.card_url());
    let good = client_config(&authority, Some(&authority.client("alice")), &["http/1.1"]);
    assert_eq!(client.tls(good).get(&[]).await.status, 200);
    for (trusted, identity) in [
        (&authority, None),
        (&authority, Some(stranger.client("alice"))),
        (&authority, Some(authority.expired_client("alice"))),
        (&authority, Some(authority.future_client("alice"))),
        (&stranger, Some(authority.client("alice"))),
    ] {
        let config = client_config(trusted, identity.as_ref(), &["http/1.1"]);
        assert!(client.tls(config).try_send("GET", &[], Vec::new()).await.is_err());
    }
    assert!(authority.crl(&[&authority.client("alice")]).starts_with("-----BEGIN X509 CRL"));
}

#[tokio::test]
async fn client_speaks_http2_where_server_does() {
    let authority = Authority::new("ours");
    let mut config = (*server_config(&authority.server(), None)).clone();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let tls = tokio_rustls::TlsAcceptor::from(std::sync::Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}/mcp", listener.local_addr().unwrap().port());
    let server = tokio::spawn(async move {
        let socket = tls.accept(listener.accept().await.unwrap().0).await.unwrap();
        let service =
            hyper::service::service_fn(|request: hyper::Request<hyper::body::Incoming>| async move {
                let seen = format!("{:?} {}", request.version(), request.uri().path());
                Ok::<_, std::convert::Infallible>(hyper::Response::new(seen))
            });
        let executor = hyper_util::rt::TokioExecutor::new();
        let socket = hyper_util::rt::TokioIo::new(socket);
        hyper::server::conn::http2::Builder::new(executor).serve_connection(socket, service).await
    });
    let client = McpClient::new(&url).tls(client_config(&authority, None, &["h2", "http/1.1"]));
    assert_eq!(client.get(&[]).await.text().await, "HTTP/2.0 /mcp");
    // The answer was dropped, so the connection is closed.
    drop(in_time("the connection to end", server).await.unwrap());
}

#[test]
fn unfit_header_names_are_encoded() {
    for (name, mirrored) in [
        ("echo", "echo"),
        ("wéather", "=?base64?d8OpYXRoZXI=?="),
        (" x", "=?base64?IHg=?="),
        ("=?base64?eA==?=", "=?base64?PT9iYXNlNjQ/ZUE9PT89?="),
    ] {
        assert_eq!(client::mirror(name), mirrored);
    }
}
