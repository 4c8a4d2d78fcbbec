//! Large messages go through whole, in both directions, for all sizes of the pieces.

use serde_json::json;

use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, Scene, TOOL, words};
use crate::support::payload::v1;
use crate::support::{Card, Reply};

/// Around the sizes at which buffers end, and near the limit of a body.
const SIZES: [usize; 4] = [65_535, 65_537, 1 << 20, 3 << 20];

/// Text of so many bytes in which every place is different, with characters of several bytes.
fn text(size: usize) -> String {
    let mut text = String::with_capacity(size);
    let mut number = 0;
    while text.len() + 16 < size {
        text.push_str(&format!("{number} é🌊\"\\\n"));
        number += 1;
    }
    text.extend(std::iter::repeat_n('x', size - text.len()));
    text
}

#[tokio::test]
async fn long_text_returns_unchanged() {
    let scene = Scene::new().await;
    scene.agent.on_send(|request| Reply::events([v1::message(&request.text())]));
    let session = scene.session().await;
    for size in SIZES {
        let sent = text(size);
        let result = session.call_tool(TOOL, json!({ "text": sent })).await.result().await;
        assert!(words(&result) == sent, "{size} bytes changed on their way");
    }
}

#[tokio::test]
async fn long_plain_answer_returns_unchanged() {
    let scene = Scene::of(Card::v1().streaming(false).skill("sing"), "", "").await;
    for size in SIZES {
        let wanted = text(size);
        let answer = wanted.clone();
        scene.agent.on_send(move |_| Reply::result(v1::completed("t", "c", &answer)).chunked());
        assert!(words(&scene.said("go").await) == wanted, "{size} bytes changed on their way");
    }
}

#[tokio::test]
async fn many_small_pieces_make_same_text() {
    let scene = Scene::new().await;
    let wanted = text(300_000);
    let sent = wanted.clone();
    scene.agent.on_send(move |_| {
        let letters: Vec<char> = sent.chars().collect();
        let start = Reply::stream().crlf().in_pieces(977).event(v1::task(RAW_TASK, RAW_CONTEXT, "working"));
        let stream = letters.chunks(5000).enumerate().fold(start, |stream, (place, chunk)| {
            let chunk: String = chunk.iter().collect();
            stream.event(v1::artifact_update(RAW_TASK, RAW_CONTEXT, &chunk, place > 0, false))
        });
        stream.event(v1::status_update(RAW_TASK, RAW_CONTEXT, "completed", None))
    });
    assert!(words(&scene.said("go").await) == wanted);
}

#[tokio::test]
async fn megabyte_file_goes_both_ways() {
    let scene = Scene::new().await;
    scene.agent.on_send(|request| {
        let parts = &request.message()["parts"];
        Reply::events([json!({ "message": { "messageId": "m", "role": "ROLE_AGENT", "parts": [parts[1]] } })])
    });
    let bytes = "QUJD".repeat(400_000);
    let file = json!({ "bytes": bytes, "mediaType": "image/png", "name": "a.png" });
    let result = scene.call(json!({ "text": "x", "files": [file] })).await.result().await;
    assert!(result["content"][0]["data"] == bytes, "the file changed on its way");
}
