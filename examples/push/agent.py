"""An A2A 1.0 agent for the example: it works for two seconds, and pushes the end of its task."""
import json
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CARD = {
    "name": "Reports", "description": "Writes reports.", "version": "1.0.0",
    "supportedInterfaces": [
        {"url": "http://127.0.0.1:9999/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    ],
    "capabilities": {"pushNotifications": True},
    "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
    "skills": [{"id": "write", "name": "Write", "description": "Writes a report.", "tags": ["text"]}],
}
TASK = {"id": "task-1", "contextId": "context-1", "status": {"state": "TASK_STATE_WORKING"}}


def finish(config):
    time.sleep(2)
    TASK["status"] = {"state": "TASK_STATE_COMPLETED"}
    TASK["artifacts"] = [{"artifactId": "report", "parts": [{"text": "The report."}]}]
    headers = {"Content-Type": "application/json", "X-A2A-Notification-Token": config.get("token", "")}
    body = json.dumps({"statusUpdate": {"taskId": TASK["id"], "contextId": TASK["contextId"], "status": TASK["status"]}})
    request = urllib.request.Request(config["url"], body.encode(), headers)
    with urllib.request.urlopen(request) as response:
        # As one string: other threads print too.
        print(f"pushed to the gateway: {response.status}\n", end="", flush=True)


class Agent(BaseHTTPRequestHandler):
    def do_GET(self):
        self.reply(CARD)

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        method, params = request["method"], request["params"]
        print(method, flush=True)
        result = {"SendMessage": {"task": TASK}, "GetTask": TASK}.get(method, params)
        if method == "CreateTaskPushNotificationConfig":
            threading.Thread(target=finish, args=(params,), daemon=True).start()
        self.reply({"jsonrpc": "2.0", "id": request["id"], "result": result})

    def reply(self, value):
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 9999), Agent)
    print("agent ready", flush=True)
    server.serve_forever()
