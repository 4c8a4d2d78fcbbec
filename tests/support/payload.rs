//! A2A payloads, short: arguments of [`super::Reply::result`] and [`super::Reply::event`].

/// A2A 1.0.
pub mod v1 {
    use serde_json::{Value, json};

    /// A bare task, as `GetTask` returns it. `state` as in `working`, `input-required`.
    pub fn bare_task(id: &str, context: &str, state: &str) -> Value {
        json!({ "id": id, "contextId": context, "status": status(state, None) })
    }

    /// A task as a send returns it and a stream begins with.
    pub fn task(id: &str, context: &str, state: &str) -> Value {
        json!({ "task": bare_task(id, context, state) })
    }

    /// A completed task with one text artifact, bare.
    pub fn bare_completed(id: &str, context: &str, text: &str) -> Value {
        let mut task = bare_task(id, context, "completed");
        task["artifacts"] =
            json!([{ "artifactId": "answer", "name": "answer", "parts": [{ "text": text }] }]);
        task
    }

    pub fn completed(id: &str, context: &str, text: &str) -> Value {
        json!({ "task": bare_completed(id, context, text) })
    }

    /// A task that waits for the answer to a question.
    pub fn asking(id: &str, context: &str, question: &str) -> Value {
        let mut task = bare_task(id, context, "input-required");
        task["status"] = status("input-required", Some(question));
        json!({ "task": task })
    }

    pub fn message(text: &str) -> Value {
        json!({ "message": {
            "messageId": "agent-message", "role": "ROLE_AGENT", "contextId": "context-1", "parts": [{ "text": text }],
        }})
    }

    pub fn status_update(id: &str, context: &str, state: &str, text: Option<&str>) -> Value {
        json!({ "statusUpdate": { "taskId": id, "contextId": context, "status": status(state, text) } })
    }

    /// A chunk of the artifact `report`.
    pub fn artifact_update(id: &str, context: &str, text: &str, append: bool, last: bool) -> Value {
        let mut update = json!({
            "taskId": id,
            "contextId": context,
            "artifact": { "artifactId": "report", "name": "report.txt", "parts": [{ "text": text }] },
        });
        for (member, set) in [("append", append), ("lastChunk", last)] {
            if set {
                update[member] = true.into();
            }
        }
        json!({ "artifactUpdate": update })
    }

    fn status(state: &str, text: Option<&str>) -> Value {
        let state = format!("TASK_STATE_{}", state.to_uppercase().replace('-', "_"));
        let mut status = json!({ "state": state, "timestamp": "2026-11-20T23:28:35.481174Z" });
        if let Some(text) = text {
            status["message"] = json!({
                "messageId": format!("status-{text}"), "role": "ROLE_AGENT", "parts": [{ "text": text }],
            });
        }
        status
    }
}

/// A2A 0.3 (and 0.2).
pub mod v0_3 {
    use serde_json::{Value, json};

    pub fn task(id: &str, context: &str, state: &str) -> Value {
        json!({ "kind": "task", "id": id, "contextId": context, "status": status(state, None) })
    }

    pub fn completed(id: &str, context: &str, text: &str) -> Value {
        let mut task = task(id, context, "completed");
        let parts = json!([{ "kind": "text", "text": text }]);
        task["artifacts"] = json!([{ "artifactId": "answer", "name": "answer", "parts": parts }]);
        task
    }

    pub fn asking(id: &str, context: &str, question: &str) -> Value {
        let mut task = task(id, context, "input-required");
        task["status"] = status("input-required", Some(question));
        task
    }

    pub fn message(text: &str) -> Value {
        json!({
            "kind": "message", "messageId": "agent-message", "role": "agent", "contextId": "context-1",
            "parts": [{ "kind": "text", "text": text }],
        })
    }

    pub fn status_update(id: &str, context: &str, state: &str, text: Option<&str>, is_final: bool) -> Value {
        json!({
            "kind": "status-update", "taskId": id, "contextId": context, "final": is_final,
            "status": status(state, text),
        })
    }

    /// A chunk of the artifact `report`.
    pub fn artifact_update(id: &str, context: &str, text: &str, append: bool, last: bool) -> Value {
        json!({
            "kind": "artifact-update", "taskId": id, "contextId": context, "append": append, "lastChunk": last,
            "artifact": {
                "artifactId": "report", "name": "report.txt", "parts": [{ "kind": "text", "text": text }],
            },
        })
    }

    fn status(state: &str, text: Option<&str>) -> Value {
        let mut status = json!({ "state": state, "timestamp": "2026-11-20T23:32:32.196191+00:00" });
        if let Some(text) = text {
            status["message"] = json!({
                "kind": "message", "messageId": format!("status-{text}"), "role": "agent",
                "parts": [{ "kind": "text", "text": text }],
            });
        }
        status
    }
}

/// A2A 0.3 by HTTP+JSON, as the official SDK for Python writes it.
pub mod rest_0_3 {
    use serde_json::{Value, json};

    /// A bare task, as a request for it returns it.
    pub fn bare_task(id: &str, context: &str, state: &str) -> Value {
        json!({ "id": id, "contextId": context, "status": status(state, None) })
    }

    pub fn task(id: &str, context: &str, state: &str) -> Value {
        json!({ "task": bare_task(id, context, state) })
    }

    /// A completed task with one text artifact, and with the message that began it.
    pub fn bare_completed(id: &str, context: &str, text: &str) -> Value {
        let mut task = bare_task(id, context, "completed");
        task["artifacts"] =
            json!([{ "artifactId": "answer", "name": "answer", "parts": [{ "text": text }] }]);
        task["history"] = json!([{
            "messageId": "m-1", "contextId": context, "taskId": id, "role": "ROLE_USER", "content": [{ "text": "sing" }],
            "metadata": {},
        }]);
        task
    }

    pub fn completed(id: &str, context: &str, text: &str) -> Value {
        json!({ "task": bare_completed(id, context, text) })
    }

    pub fn asking(id: &str, context: &str, question: &str) -> Value {
        let mut task = bare_task(id, context, "input-required");
        task["status"] = status("input-required", Some(question));
        json!({ "task": task })
    }

    pub fn message(text: &str) -> Value {
        json!({ "message": {
            "messageId": "agent-message", "contextId": "context-1", "role": "ROLE_AGENT", "content": [{ "text": text }],
        }})
    }

    pub fn status_update(id: &str, context: &str, state: &str, text: Option<&str>, is_final: bool) -> Value {
        let mut update = json!({ "taskId": id, "contextId": context, "status": status(state, text) });
        if is_final {
            update["final"] = true.into();
        }
        json!({ "statusUpdate": update })
    }

    /// A chunk of the artifact `report`.
    pub fn artifact_update(id: &str, context: &str, text: &str, append: bool, last: bool) -> Value {
        super::v1::artifact_update(id, context, text, append, last)
    }

    /// The server leaves times out.
    fn status(state: &str, text: Option<&str>) -> Value {
        let word = if state == "canceled" { "cancelled" } else { state };
        let mut status = json!({ "state": format!("TASK_STATE_{}", word.to_uppercase().replace('-', "_")) });
        if let Some(text) = text {
            status["message"] = json!({
                "messageId": format!("status-{text}"), "role": "ROLE_AGENT", "content": [{ "text": text }],
            });
        }
        status
    }
}

/// A2A 0.1: the client makes the task id, so these take it from the request.
pub mod v0_1 {
    use serde_json::{Value, json};

    pub fn task(id: &str, state: &str) -> Value {
        json!({ "id": id, "sessionId": "session-1", "status": { "state": state } })
    }

    pub fn completed(id: &str, text: &str) -> Value {
        let mut task = task(id, "completed");
        task["artifacts"] =
            json!([{ "name": "answer", "index": 0, "parts": [{ "type": "text", "text": text }] }]);
        task
    }

    /// A task that waits for the answer to a question.
    pub fn asking(id: &str, question: &str) -> Value {
        let mut task = task(id, "input-required");
        task["status"]["message"] = said(question);
        task["status"]["timestamp"] = "2026-11-20T23:44:30.189250".into();
        task
    }

    pub fn status_update(id: &str, state: &str, is_final: bool) -> Value {
        json!({ "id": id, "status": { "state": state }, "final": is_final })
    }

    /// The same, with words of the agent.
    pub fn status_saying(id: &str, state: &str, text: &str, is_final: bool) -> Value {
        let mut update = status_update(id, state, is_final);
        update["status"]["message"] = said(text);
        update["status"]["timestamp"] = "2026-11-20T23:44:30.189250".into();
        update
    }

    fn said(text: &str) -> Value {
        json!({ "role": "agent", "parts": [{ "type": "text", "text": text }] })
    }

    pub fn artifact_update(id: &str, text: &str, append: bool, last: bool) -> Value {
        let parts = json!([{ "type": "text", "text": text }]);
        let artifact =
            json!({ "name": "report", "index": 0, "parts": parts, "append": append, "lastChunk": last });
        json!({ "id": id, "artifact": artifact })
    }
}
