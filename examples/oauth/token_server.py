"""A token server for the example: client credentials (RFC 6749 §4.4) and introspection (RFC 7662)."""
import json
import secrets
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

ISSUER = "http://127.0.0.1:9998"
TOKENS = {}


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        if self.path == "/token":
            token = secrets.token_urlsafe(24)
            TOKENS[token] = {
                "active": True, "iss": ISSUER, "sub": form["client_id"][0], "scope": form["scope"][0],
                "aud": "http://127.0.0.1:8080/mcp", "exp": int(time.time()) + 600, "token_type": "Bearer",
            }
            self.reply({"access_token": token, "token_type": "Bearer", "expires_in": 600})
        else:
            self.reply(TOKENS.get(form["token"][0], {"active": False}))

    def reply(self, value):
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 9998), Handler)
    print("token server ready", flush=True)
    server.serve_forever()
