"""A model's API on loopback, spoken as OpenAI's chat completions: `script.py` decides what it says.

It keeps what it was shown. Two further paths are for frameworks that convert messages for another provider:
`/next` takes what such a model would have read and answers with what it does. No tokens, no sampling, no key.
"""

import http.server
import json
import threading
import time

import script


class Model:
    """The server and, by case, what the model was shown: results of tools, the tools, and its faults."""

    def __init__(self):
        self.shown, self.tools, self.faults = {}, {}, {}
        owner = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                owner.answer(self, body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def answer(self, handler, body):
        if handler.path.endswith("/next"):
            return send(handler, 200, self.decide(body["prompt"], body["shown"], body.get("tools", [])))
        prompt, shown, last = read(body["messages"])
        if "case " in prompt:
            said = self.decide(prompt, shown, [one["function"] for one in body.get("tools", [])], last)
        else:
            said = story(prompt, shown, [one["function"]["name"] for one in body.get("tools", [])])
        if "error" in said:  # 400: no client tries it again
            return send(handler, 400, {"error": {"message": said["error"], "type": "invalid_request_error"}})
        return send_stream(handler, said, body["model"]) if body.get("stream") else send(handler, 200, whole(said, body["model"]))

    def decide(self, prompt, shown, tools, last=None):
        """Records what a client's model was shown and says what it does next."""
        case = script.ASKED.search(prompt)[1]
        self.shown[case], self.tools[case] = shown, tools
        call = script.next_call(prompt, shown, last)
        if call is None:
            return {"say": "done"}
        schemas = {tool["name"]: tool.get("parameters") or {} for tool in tools}
        name = script.listed(call[0], schemas)
        if name is None:
            self.faults[case] = f"the model was told to call {call[0]}, and has only {', '.join(schemas) or 'no tool'}"
            return {"say": "done"}
        return {"call": name, "arguments": script.filled(call[1], schemas[name])}


def text_of(content):
    """The text of a message's content as a model reads it: parts that are no text as their JSON."""
    if isinstance(content, str) or content is None:
        return content or ""
    return "\n".join(part["text"] if part.get("type") == "text" else json.dumps(part) for part in content)


def read(messages):
    """Of a conversation: the last request, the results of tools since, and the last tool that was called."""
    start = max((at for at, one in enumerate(messages) if one["role"] == "user" and asks(one)), default=0)
    results = [text_of(one.get("content")) for one in messages[start:] if one["role"] == "tool"]
    called = [one["function"]["name"] for message in messages[start:] for one in message.get("tool_calls") or []]
    return text_of(messages[start].get("content")), results, called[-1] if called else None


def asks(message):
    text = text_of(message.get("content"))
    return "tide " in text or script.ASKED.search(text)


def story(prompt, shown, tools):
    """What an agent's model says; a question and data are left to the framework's own means, by tools."""
    kind = script.kind_of(prompt)
    if kind == "failure":
        return {"error": script.FAILURE}
    if kind == "long":
        time.sleep(script.LONG_SECONDS)
        return {"say": script.LONG_WORDS}
    if kind in ("question", "data") and not shown and (tool := script.listed(f"tide_{kind}", tools)):
        return {"call": tool, "arguments": {}}
    if kind == "question":
        return {"say": script.ANSWERED}
    return {"say": script.WORDS}


def message_of(said):
    if "call" not in said:
        return {"role": "assistant", "content": said["say"]}, "stop"
    call = {"name": said["call"], "arguments": json.dumps(said["arguments"])}
    called = [{"index": 0, "id": f"call_{time.monotonic_ns()}", "type": "function", "function": call}]
    return {"role": "assistant", "content": None, "tool_calls": called}, "tool_calls"


USAGE = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}


def whole(said, model):
    message, reason = message_of(said)
    choice = {"index": 0, "message": message, "finish_reason": reason}
    return {"id": "chat", "object": "chat.completion", "created": 1, "model": model, "choices": [choice], "usage": USAGE}


def send(handler, status, body):
    body = json.dumps(body).encode()
    handler.send_response(status)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def send_stream(handler, said, model):
    """The same answer as events: a text comes in two pieces."""
    message, reason = message_of(said)
    text = message.get("content")
    deltas = [{"role": "assistant", "content": text[:9]}, {"content": text[9:]}] if text else [message]
    handler.send_response(200)
    handler.send_header("Content-Type", "text/event-stream")
    handler.send_header("Connection", "close")
    handler.end_headers()
    frame = {"id": "chat", "object": "chat.completion.chunk", "created": 1, "model": model}
    for delta in deltas:
        put(handler, {**frame, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    put(handler, {**frame, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    put(handler, {**frame, "choices": [], "usage": USAGE})
    handler.wfile.write(b"data: [DONE]\n\n")
    handler.close_connection = True


def put(handler, event):
    handler.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
