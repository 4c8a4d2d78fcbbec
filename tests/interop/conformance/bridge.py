"""A bridge from Streamable HTTP to a server of standard streams: the conformance suite speaks HTTP only.

Usage: bridge.py COMMAND [ARGUMENT]... Prints `ready URL`. Each legacy session is a process of its own;
requests without a session share one. Ids and progress tokens are made unique on the way in and put
back on the way out, so that each message finds the response that it belongs to. Not here: what HTTP
asks of a server by itself (headers, `Host`, statuses of rejected headers); see `expected-failures-stdio-*.yml`.
"""

import http.server
import itertools
import json
import queue
import subprocess
import sys
import threading
import uuid

LIMIT = 120  # seconds for the next message of a response
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
STATUS = {-32700: 400, -32600: 400, -32020: 400, -32021: 400, -32022: 400, -32601: 404}
NUMBERS = itertools.count(1)


class Server:
    """One process, and the responses that are due from it."""

    def __init__(self):
        self.process = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.lock = threading.Lock()
        self.waiting = {}  # id on the stream: (its own id, its own progress token, queue)
        self.unasked = queue.Queue()  # messages for the stream of the session
        threading.Thread(target=self.read, daemon=True).start()

    def send(self, message):
        with self.lock:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()

    def ask(self, message):
        """Sends a request. Returns its id on the stream, and the queue of the messages for it."""
        number, messages = f"bridge-{next(NUMBERS)}", queue.Queue()
        meta = (message.get("params") or {}).get("_meta") or {}
        self.waiting[number] = (message["id"], meta.get("progressToken"), messages)
        if "progressToken" in meta:
            message = {**message, "params": {**message["params"], "_meta": {**meta, "progressToken": number}}}
        self.send({**message, "id": number})
        return number, messages

    def read(self):
        for line in self.process.stdout:
            message = json.loads(line)
            params = message.get("params") or {}
            meta = params.get("_meta") or (message.get("result") or {}).get("_meta") or {}
            named = params.get("progressToken") or meta.get(SUBSCRIPTION)
            if "method" not in message:
                named = message.get("id")
            elif not named and not message["method"].endswith(("list_changed", "resources/updated")):
                named = next(reversed(self.waiting), None)  # a question, or a line of the log
            own_id, token, messages = self.waiting.get(named, (None, None, self.unasked))
            if SUBSCRIPTION in meta:
                meta[SUBSCRIPTION] = own_id
            if "progressToken" in params:
                params["progressToken"] = token
            if "method" not in message:
                message["id"] = own_id
            messages.put(message)

    def close(self):
        self.process.stdin.close()


SESSIONS = {}
SHARED = []


def is_modern(message):
    meta = (message.get("params") or {}).get("_meta") or {} if isinstance(message, dict) else {}
    return "io.modelcontextprotocol/protocolVersion" in meta


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, status, message=None, headers=()):
        body = b"" if message is None else json.dumps(message).encode()
        self.send_response(status)
        for name, value in (("Content-Type", "application/json"), ("Content-Length", str(len(body))), *headers):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def server_of(self, message=None):
        if message is not None and is_modern(message) or "Mcp-Session-Id" not in self.headers:
            if not SHARED:
                SHARED.append(Server())
            return SHARED[0]
        return SESSIONS.get(self.headers["Mcp-Session-Id"])

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            message = json.loads(body)
        except ValueError:
            return self.reply(400, {"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "not JSON"}})
        headers = ()
        if isinstance(message, dict) and message.get("method") == "initialize" and not is_modern(message):
            session = uuid.uuid4().hex
            server = SESSIONS[session] = Server()
            headers = (("Mcp-Session-Id", session),)
        else:
            server = self.server_of(message)
        if server is None:
            return self.reply(404)
        if not isinstance(message, dict) or "id" not in message or "method" not in message:
            server.send(message)
            return self.reply(202)
        number, messages = server.ask(message)
        try:
            self.stream(messages, headers)
        except (OSError, queue.Empty):
            if is_modern(message):  # over HTTP a client that disconnects cancels
                server.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}})
        finally:
            server.waiting.pop(number, None)

    def stream(self, messages, headers):
        """Writes messages up to the response: as JSON if there is only that, else as events."""
        first = messages.get(timeout=LIMIT)
        if "method" not in first:
            status = STATUS.get((first.get("error") or {}).get("code"), 200)
            return self.reply(status if "MCP-Protocol-Version" in self.headers else 200, first, headers)
        self.begin(headers)
        self.event(first)
        last = first
        while "method" in last:
            last = messages.get(timeout=LIMIT)
            self.event(last)

    def begin(self, headers=()):
        self.send_response(200)
        for name, value in (("Content-Type", "text/event-stream"), ("Connection", "close"), *headers):
            self.send_header(name, value)
        self.end_headers()
        self.close_connection = True

    def event(self, message):
        self.wfile.write(b": \n\n" if message is None else f"data: {json.dumps(message)}\n\n".encode())
        self.wfile.flush()

    def do_GET(self):
        server = self.server_of() if "Mcp-Session-Id" in self.headers else None
        if server is None:
            return self.reply(405, headers=(("Allow", "POST"),))
        self.begin()
        try:
            while server.process.poll() is None:
                try:
                    self.event(server.unasked.get(timeout=1))
                except queue.Empty:
                    self.event(None)
        except OSError:
            pass

    def do_DELETE(self):
        server = SESSIONS.pop(self.headers.get("Mcp-Session-Id"), None)
        if server:
            server.close()
        self.reply(204 if server else 404 if "Mcp-Session-Id" in self.headers else 405)


def main():
    listener = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(f"ready http://localhost:{listener.server_port}/mcp", flush=True)
    try:
        listener.serve_forever()
    finally:
        for server in [*SESSIONS.values(), *SHARED]:
            server.process.kill()


if __name__ == "__main__":
    main()
