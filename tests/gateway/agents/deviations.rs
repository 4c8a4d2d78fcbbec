//! Behaviour of real agents that no specification describes: one row for each, by name, and the
//! result that a client gets all the same.
//!
//! How each is read is in `tests/golden/a2a`. Out of scope: agents that break the protocol on
//! purpose (see `agent_misbehaves`).

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;

use serde_json::{Value, json};

use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, Scene, TOOL};
use crate::support::payload::{v0_3, v1};
use crate::support::{Card, Reply, ScriptedAgent, in_order};

const RAW: (&str, &str) = (RAW_TASK, RAW_CONTEXT);

/// One thing that agents do.
struct Deviation {
    /// The agent, and its deviation.
    who: &'static str,
    card: fn() -> Card,
    plays: fn(&ScriptedAgent),
    /// The result that the client gets.
    told: &'static str,
}

fn plain(card: Card) -> Card {
    card.streaming(false)
}

fn working() -> Value {
    v0_3::task(RAW.0, RAW.1, "working")
}

fn done() -> Value {
    v0_3::completed(RAW.0, RAW.1, "the song")
}

/// An error of JSON-RPC with a reason beside its code.
fn reasoned(code: i32, reason: &str, domain: &str) -> Reply {
    let info =
        json!({ "@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason, "domain": domain });
    let error = json!({ "code": code, "message": "no", "data": [info] });
    Reply::json(&json!({ "jsonrpc": "2.0", "id": 1, "error": error }))
}

const ALL: &[Deviation] = &[
    Deviation {
        who: "Python 0.2, 0.3: refuses a stream on a stream of one event",
        card: Card::v0_3,
        plays: |agent| {
            let error = r#"{"error":{"code":-32602,"message":"bad words"},"id":1,"jsonrpc":"2.0"}"#;
            agent.on_send(move |_| Reply::stream().bytes(format!("data: {error}\r\n\r\n").as_bytes()));
        },
        told: "it refused: bad words",
    },
    Deviation {
        who: "JavaScript 0.3: the same, and the event has a name",
        card: Card::v0_3,
        plays: |agent| {
            agent.on_send(|_| Reply::stream().error_event(-32602, "bad words"));
        },
        told: "it refused: bad words",
    },
    Deviation {
        who: "Python, JavaScript 1.3: refuses a stream with a body of JSON",
        card: Card::v1,
        plays: |agent| {
            agent.on_send(|_| reasoned(-32005, "CONTENT_TYPE_NOT_SUPPORTED", "a2a-protocol.org"));
        },
        told: "it refused: no",
    },
    Deviation {
        who: "JavaScript 0.3: refuses with HTTP 400 and JSON-RPC",
        card: Card::v0_3,
        plays: |agent| {
            agent.on_send(|_| Reply::error(-32700, "Parse error").with_status(400));
        },
        told: "it refused: Parse error",
    },
    Deviation {
        who: "some: answers a request for a stream with the task",
        card: Card::v0_3,
        plays: |agent| {
            agent.on_send(|_| Reply::result(done()));
        },
        told: "the song",
    },
    Deviation {
        who: "some: answers a plain request with a stream",
        card: || plain(Card::v0_3()),
        plays: |agent| {
            agent.on_send(|_| Reply::events([working(), done()]));
        },
        told: "the song",
    },
    Deviation {
        who: "fasta2a: answers at once that the task is submitted, however long it was to wait",
        card: || plain(Card::v0_3()),
        plays: |agent| {
            agent.on_send(|_| Reply::result(v0_3::task(RAW.0, RAW.1, "submitted")));
            agent.on_get(in_order([Reply::result(working()), Reply::result(done())]));
        },
        told: "the song",
    },
    Deviation {
        who: "Python 0.2, 0.3: an executor that breaks cuts the stream",
        card: Card::v0_3,
        plays: |agent| {
            agent.on_send(|_| Reply::stream().crlf().event(working()).cut());
            agent.on_get(|_| Reply::result(done()));
        },
        told: "the song",
    },
    Deviation {
        who: "JavaScript 0.3: an executor that breaks fails another task, and the own one stays as it was",
        card: Card::v0_3,
        plays: |agent| {
            let failed =
                v0_3::status_update("another-task", "another-context", "failed", Some("crash"), true);
            agent.on_send(move |_| Reply::events([working(), failed.clone()]));
            agent.on_get(in_order([Reply::result(working()), Reply::result(done())]));
        },
        told: "the song",
    },
    Deviation {
        who: "Python 1.3: an executor that breaks is an error on the stream, and the task says more",
        card: Card::v1,
        plays: |agent| {
            agent.on_send(|_| {
                Reply::stream().crlf().event(v1::task(RAW.0, RAW.1, "working")).error_event(-32603, "crash")
            });
            agent.on_get(|_| Reply::result(v1::bare_completed(RAW.0, RAW.1, "the song")));
        },
        told: "the song",
    },
    Deviation {
        who: "JavaScript 0.3 by CommonJS: every error is -32603, so one of a question says nothing of the task",
        card: Card::v0_3,
        plays: |agent| {
            agent.on_send(|_| Reply::stream().event(working()).cut());
            agent.on_get(in_order([Reply::error(-32603, "Task not found"), Reply::result(done())]));
        },
        told: "the song",
    },
    Deviation {
        who: "Python: pings, CRLF and a charset",
        card: Card::v0_3,
        plays: |agent| {
            agent.on_send(|_| {
                let stream = Reply::stream().crlf().content_type("text/event-stream; charset=utf-8");
                stream.comment("ping - 2026-11-21 00:05:28.425344+00:00").event(working()).event(done())
            });
        },
        told: "the song",
    },
    Deviation {
        who: "JavaScript 0.2: events have ids",
        card: Card::v0_3,
        plays: |agent| {
            agent.on_send(|_| Reply::stream().bytes(b"id: 1763683200000\n").event(done()));
        },
        told: "the song",
    },
    Deviation {
        who: "Python 0.2: answers under another id, or none",
        card: || plain(Card::v0_3()),
        plays: |agent| {
            agent.on_send(|_| Reply::result(done()).id(Value::Null));
        },
        told: "the song",
    },
    Deviation {
        who: "Python 1.3 compat: does not call the last event of a question the last",
        card: Card::v0_3,
        plays: |agent| {
            let asks = v0_3::status_update(RAW.0, RAW.1, "input-required", Some("Which song?"), false);
            agent.on_send(move |_| Reply::events([working(), asks.clone()]));
        },
        told: "Which song?",
    },
    Deviation {
        who: "Java: keeps the stream of a question open",
        card: Card::v1,
        plays: |agent| {
            let asks = v1::status_update(RAW.0, RAW.1, "input-required", Some("Which song?"));
            agent.on_send(move |_| {
                Reply::stream().event(v1::task(RAW.0, RAW.1, "working")).event(asks.clone()).stall()
            });
        },
        told: "Which song?",
    },
    Deviation {
        who: "a reason says more than its code",
        card: Card::v1,
        plays: |agent| {
            agent.on_send(|_| Reply::stream().event(v1::task(RAW.0, RAW.1, "working")).cut());
            agent.on_get(|_| reasoned(-32603, "TASK_NOT_FOUND", "a2a-protocol.org"));
        },
        told: "does not know this task",
    },
    Deviation {
        who: "a reason of somebody else's says nothing",
        card: Card::v1,
        plays: |agent| {
            agent.on_send(|_| reasoned(-32005, "TASK_NOT_FOUND", "example.test"));
        },
        told: "it refused: no",
    },
    Deviation {
        who: "JavaScript 1.3: a part of nothing is data that is null",
        card: || plain(Card::v1()),
        plays: |agent| {
            let parts = json!([{ "text": "the song" }, {}]);
            let message = json!({ "messageId": "m", "role": "ROLE_AGENT", "parts": parts });
            agent.on_send(move |_| Reply::result(json!({ "message": message })));
        },
        told: "the song",
    },
];

#[tokio::test]
async fn every_deviation_gives_a_result() {
    for Deviation { who, card, plays, told } in ALL {
        let scene = Scene::of(card().skill("sing"), "", "").await;
        plays(&scene.agent);
        let params = json!({ "name": TOOL, "arguments": { "text": "x" } });
        let result = scene.session().await.call("tools/call", params).await.result().await.to_string();
        assert!(result.contains(told), "{who}: {result}");
        let log = scene.agent.log();
        assert_eq!(
            log.requests.iter().filter(|request| request.text() == "x").count(),
            1,
            "{who}: said once"
        );
    }
}

/// JavaScript 0.3 by CommonJS: the outcome of the cancellation is unknown, so the task is asked.
#[tokio::test]
async fn broken_cancellation_is_not_success() {
    let scene = Scene::of(Card::v0_3().skill("sing"), "", "calls: { task_after: 0s }").await;
    scene.agent.on_send(|_| Reply::stream().event(working()).stall());
    let is_over = Arc::new(AtomicBool::new(false));
    let over = is_over.clone();
    scene.agent.on_get(move |_| Reply::result(if over.load(SeqCst) { done() } else { working() }));
    scene.agent.on_cancel(move |_| {
        is_over.store(true, SeqCst);
        Reply::error(-32603, "Task cannot be canceled")
    });
    let client = scene.gateway.client().with_tasks();
    let params = json!({ "name": TOOL, "arguments": { "text": "x" } });
    let task = client.modern("tools/call", params).await.result().await;
    let handle = task["taskId"].as_str().unwrap_or_else(|| panic!("{task}")).to_owned();
    client.task("tasks/cancel", &handle).await.result().await;
    client.task_until(&handle, "completed").await;
    assert_eq!(scene.agent.calls("tasks/cancel").len(), 1);
}
