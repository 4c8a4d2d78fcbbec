"""A small OAuth 2.1 authorization server: what MCP clients need of one, and no user who would have to be asked.

Not a mock of tokens: it signs with a key of its own and refuses what the specifications forbid. Serves RFC 8414 (metadata),
RFC 7591 (registration; public clients only), RFC 7636 (S256 only), RFC 8707 (`resource`, without which there is no token),
RFC 9207 (`iss`), refresh tokens that are good once, and the JWKS. Prints `ready URL`; the URL is the issuer.
"""

import base64
import hashlib
import http.server
import json
import secrets
import time
import urllib.parse

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

SCOPES = {"a2a.invoke", "a2a.data"}
LIFE = 300  # seconds that an access token is good
CODE_LIFE = 60  # seconds until a code must have been used
MOST_BODY = 1 << 16  # bytes


class Refused(Exception):
    """An error of OAuth: its code, and for people the reason."""

    def __init__(self, error, why):
        super().__init__(why)
        self.answer = {"error": error, "error_description": why}


def need(condition, error, why):
    if not condition:
        raise Refused(error, why)


def loopback(uri):
    parts = urllib.parse.urlsplit(uri)
    return parts.scheme == "http" and parts.hostname in ("127.0.0.1", "localhost") and not parts.fragment


def is_resource(uri):
    parts = urllib.parse.urlsplit(uri)
    return bool(parts.scheme in ("http", "https") and parts.hostname) and not parts.fragment


class Issuer:
    """What was registered and given out, and the key."""

    def __init__(self):
        self.url = ""
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.clients, self.codes, self.refreshable = {}, {}, {}

    def metadata(self):
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "registration_endpoint": f"{self.url}/register",
            "jwks_uri": f"{self.url}/jwks",
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code", "refresh_token"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none"],
            "authorization_response_iss_parameter_supported": True,
            "scopes_supported": sorted(SCOPES),
        }

    def jwks(self):
        public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(self.key.public_key()))
        return {"keys": [{**public, "kid": "1", "use": "sig", "alg": "ES256"}]}

    def register(self, asked):
        uris = asked.get("redirect_uris")
        fits = isinstance(uris, list) and uris and all(isinstance(uri, str) and loopback(uri) for uri in uris)
        need(fits, "invalid_redirect_uri", "redirect_uris are loopback URLs here")
        method = asked.get("token_endpoint_auth_method", "none")
        need(method == "none", "invalid_client_metadata", "only public clients are known here")
        client = {
            "client_id": secrets.token_urlsafe(16),
            "client_id_issued_at": int(time.time()),
            "redirect_uris": uris,
            "token_endpoint_auth_method": "none",
            "grant_types": asked.get("grant_types", ["authorization_code"]),
            "response_types": ["code"],
        }
        self.clients[client["client_id"]] = client
        return client

    def authorize(self, asked):
        """Where the browser is sent. An unknown client or place gets no redirect, but an error."""
        client = self.clients.get(asked.get("client_id"))
        need(client, "invalid_client", "no such client")
        place = asked.get("redirect_uri")
        need(place in client["redirect_uris"], "invalid_request", "redirect_uri is not one that was registered")
        try:
            answer = {"code": self.code(asked)}
        except Refused as refused:
            answer = refused.answer
        if "state" in asked:
            answer["state"] = asked["state"]
        return f"{place}?{urllib.parse.urlencode({**answer, 'iss': self.url})}"

    def code(self, asked):
        need(asked.get("response_type") == "code", "unsupported_response_type", "there are codes only")
        need(asked.get("code_challenge_method") == "S256", "invalid_request", "code_challenge_method must be S256")
        need(len(asked.get("code_challenge", "")) == 43, "invalid_request", "code_challenge is not that of S256")
        need(is_resource(asked.get("resource", "")), "invalid_target", "resource must name what the token is for")
        scopes = asked.get("scope", "").split()
        need(scopes and set(scopes) <= SCOPES, "invalid_scope", "no such scope")
        code = secrets.token_urlsafe(24)
        self.codes[code] = {**asked, "scope": " ".join(scopes), "until": time.monotonic() + CODE_LIFE}
        return code

    def token(self, asked):
        kind = asked.get("grant_type")
        if kind == "authorization_code":
            grant = self.codes.pop(asked.get("code"), None)  # good once, also for who shows a wrong verifier
            need(grant and time.monotonic() < grant["until"], "invalid_grant", "no such code")
            need(asked.get("redirect_uri") == grant["redirect_uri"], "invalid_grant", "another redirect_uri")
            digest = hashlib.sha256(asked.get("code_verifier", "").encode()).digest()
            challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
            need(challenge == grant["code_challenge"], "invalid_grant", "code_verifier is wrong")
        else:
            need(kind == "refresh_token", "unsupported_grant_type", "authorization_code or refresh_token")
            grant = self.refreshable.pop(asked.get("refresh_token"), None)
            need(grant, "invalid_grant", "no such refresh token")
            more = set(asked.get("scope", "").split()) - set(grant["scope"].split())
            need(not more, "invalid_scope", "a refresh gives no further scopes")
        need(asked.get("client_id") == grant["client_id"], "invalid_grant", "it is another client's")
        need(asked.get("resource") == grant["resource"], "invalid_target", "another resource than was authorized")
        return self.issue(grant, asked.get("scope", grant["scope"]))

    def issue(self, grant, scope):
        now = int(time.time())
        claims = {
            "iss": self.url,
            "sub": "alice",
            "aud": grant["resource"],
            "client_id": grant["client_id"],
            "scope": scope,
            "iat": now,
            "exp": now + LIFE,
            "jti": secrets.token_urlsafe(8),
        }
        token = jwt.encode(claims, self.key, algorithm="ES256", headers={"kid": "1", "typ": "at+jwt"})
        answer = {"access_token": token, "token_type": "Bearer", "expires_in": LIFE, "scope": scope}
        if "refresh_token" in self.clients[grant["client_id"]]["grant_types"]:
            answer["refresh_token"] = secrets.token_urlsafe(24)
            self.refreshable[answer["refresh_token"]] = grant
        return answer


def fields(text):
    """The parameters of a query or form, each there once (RFC 6749 §3.1)."""
    pairs = urllib.parse.parse_qsl(text, keep_blank_values=True)
    need(len(dict(pairs)) == len(pairs), "invalid_request", "a parameter is there twice")
    return dict(pairs)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    issuer = Issuer()

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        if url.path == "/authorize":
            self.answered(lambda: (302, self.issuer.authorize(fields(url.query))))
        elif url.path == "/.well-known/oauth-authorization-server":
            self.answered(lambda: (200, self.issuer.metadata()))
        elif url.path == "/jwks":
            self.answered(lambda: (200, self.issuer.jwks()))
        else:
            self.reply(404, {"error": "not_found"})

    def do_OPTIONS(self):
        """Web pages of any origin may ask: nothing here is told by cookies."""
        self.send_response(204)
        self.cors()
        self.send_header("Access-Control-Allow-Methods", "GET, POST")
        self.send_header("Access-Control-Allow-Headers", self.headers.get("Access-Control-Request-Headers", ""))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def cors(self):
        if origin := self.headers.get("Origin"):
            self.send_header("Access-Control-Allow-Origin", origin)

    def do_POST(self):
        length = int(self.headers.get("Content-Length", "0"))
        if length > MOST_BODY:
            self.close_connection = True
            return self.reply(413, {"error": "invalid_request"})
        body = self.rfile.read(length).decode()
        if self.path == "/register":
            self.answered(lambda: (201, self.issuer.register(json.loads(body))))
        elif self.path == "/token":
            self.answered(lambda: (200, self.issuer.token(fields(body))))
        else:
            self.reply(404, {"error": "not_found"})

    def answered(self, action):
        try:
            status, answer = action()
        except Refused as refused:
            status, answer = 400, refused.answer
        except (ValueError, AttributeError) as error:
            status, answer = 400, {"error": "invalid_request", "error_description": str(error)}
        self.reply(status, answer)

    def reply(self, status, answer):
        body = b"" if status == 302 else json.dumps(answer).encode()
        self.send_response(status)
        if status == 302:
            self.send_header("Location", answer)
        self.send_header("Content-Type", "application/json")
        self.send_header("Cache-Control", "no-store")
        self.cors()
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    Handler.issuer.url = f"http://127.0.0.1:{server.server_address[1]}"
    print(f"ready {Handler.issuer.url}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
