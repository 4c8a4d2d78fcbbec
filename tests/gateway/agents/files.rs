//! Files that an agent keeps behind its own authentication, read with the artifact that names them.

use serde_json::{Value, json};

use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, Scene};
use crate::support::payload::v1;
use crate::support::{Card, McpClient, Reply, ScriptedAgent, Signal, in_time};
use crate::tasks::tasks_seen::{begin, json_of, works};

const FILES: &str = "resources: { files: { max_bytes: 1KiB } }\ncalls: { task_after: 100ms }";
const CREDENTIAL: &str = "headers: { Authorization: Bearer file-secret }";

/// The URL of a path at the origin of an agent.
pub(crate) fn url_at(agent: &ScriptedAgent, path: &str) -> String {
    let card = agent.card_url();
    let origin = card.split('/').take(3).collect::<Vec<_>>().join("/");
    format!("{origin}{path}")
}

/// Lets the agent finish a task with one artifact that names these URLs; returns the URI of the
/// artifact.
async fn names_files(scene: &Scene, urls: &[String]) -> String {
    let parts: Vec<Value> = urls.iter().map(|url| json!({ "url": url, "mediaType": "text/plain" })).collect();
    let mut task = v1::bare_completed(RAW_TASK, RAW_CONTEXT, "x");
    task["artifacts"] = json!([{ "artifactId": "files", "name": "files", "parts": parts }]);
    let go = Signal::new();
    works(&scene.agent, vec![(go.clone(), vec![json!({ "task": task })])]);
    let uri = format!("a2a://task/{}", begin(&scene.gateway).await);
    go.fire();
    let found = async {
        loop {
            let seen = json_of(&scene.gateway, &uri).await;
            if let Some(uri) = seen["artifacts"][0]["uri"].as_str() {
                break uri.to_owned();
            }
        }
    };
    in_time("the artifact", found).await
}

/// Serves a file to requests with the credential of the agent.
fn keeps_file(agent: &ScriptedAgent, path: &str, media_type: &'static str, body: &'static [u8]) {
    agent.on_path(path, move |request| match request.header("authorization") == Some("Bearer file-secret") {
        true => Reply::bytes_of(media_type, body),
        false => Reply::status(401, "no"),
    });
}

async fn read(client: &McpClient, uri: &str) -> Value {
    client.modern("resources/read", json!({ "uri": uri })).await.json().await
}

#[tokio::test]
async fn files_are_read_with_credentials() {
    let scene = Scene::of(Card::v1().skill("sing"), CREDENTIAL, FILES).await;
    let other = ScriptedAgent::start(Card::v1().skill("other")).await;
    other.on_path("/far.txt", |_| Reply::bytes_of("text/plain", b"far away"));
    keeps_file(&scene.agent, "/files/a.txt", "text/plain; charset=utf-8", b"first file");
    keeps_file(&scene.agent, "/files/b.bin", "application/octet-stream", &[0, 255, 1]);
    let far = url_at(&other, "/far.txt");
    let urls = [url_at(&scene.agent, "/files/a.txt"), url_at(&scene.agent, "/files/b.bin"), far.clone()];
    let uri = names_files(&scene, &urls).await;
    let contents = read(&scene.gateway.client(), &uri).await["result"]["contents"].clone();
    let shown: Vec<Value> = contents
        .as_array()
        .unwrap()
        .iter()
        .map(|content| json!([content["uri"], content["mimeType"], content["text"], content["blob"]]))
        .collect();
    assert_eq!(
        shown,
        [
            json!([uri, "text/uri-list", far, null]),
            json!([uri, "text/plain; charset=utf-8", "first file", null]),
            json!([uri, "application/octet-stream", null, "AP8B"]),
        ],
        "a URL elsewhere stays a URL"
    );
    assert!(other.requests().iter().all(|request| request.path != "/far.txt"), "no request goes elsewhere");
}

#[tokio::test]
async fn refused_files_name_the_reason() {
    for (path, reason) in
        [("/files/large", "more than 1024 bytes (resources.files.max_bytes)"), ("/files/missing", "HTTP")]
    {
        let scene = Scene::of(Card::v1().skill("sing"), CREDENTIAL, FILES).await;
        keeps_file(&scene.agent, "/files/large", "text/plain", &[b'x'; 1025]);
        let uri = names_files(&scene, &[url_at(&scene.agent, path)]).await;
        let answer = read(&scene.gateway.client(), &uri).await;
        let told = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(told.contains(reason), "{path}: {answer}");
        assert!(!told.contains("file-secret"), "{told}");
    }
}

#[tokio::test]
async fn files_stay_urls_until_configured() {
    let scene = Scene::of(Card::v1().skill("sing"), CREDENTIAL, "calls: { task_after: 100ms }").await;
    let url = url_at(&scene.agent, "/files/a.txt");
    let uri = names_files(&scene, std::slice::from_ref(&url)).await;
    let contents = read(&scene.gateway.client(), &uri).await["result"]["contents"].clone();
    assert!(contents.to_string().contains(&url), "{contents}");
    assert!(scene.agent.requests().iter().all(|request| !request.path.starts_with("/files")));
}
