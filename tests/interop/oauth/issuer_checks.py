"""The authorization server of these tests refuses what is wrong: otherwise it would judge nothing.

Usage: issuer_checks.py URL AGENT, as the clients. The issuer is found as they find it. Not a client of the gateway.
"""

import base64
import hashlib
import sys
import urllib.parse

import httpx2

URL, _ = sys.argv[1:]
REDIRECT = "http://127.0.0.1:9/callback"
VERIFIER = "v" * 64
CHALLENGE = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).rstrip(b"=").decode()
HTTP = httpx2.Client()


def metadata():
    resource = HTTP.get(URL.replace("/mcp", "/.well-known/oauth-protected-resource/mcp")).json()
    return HTTP.get(f"{resource['authorization_servers'][0]}/.well-known/oauth-authorization-server").json()


SERVER = metadata()


def register(**more):
    return HTTP.post(SERVER["registration_endpoint"], json={"redirect_uris": [REDIRECT], **more}).json()


CLIENT = register(grant_types=["authorization_code", "refresh_token"])["client_id"]


def authorize(**changed):
    asked = {
        "response_type": "code",
        "client_id": CLIENT,
        "redirect_uri": REDIRECT,
        "code_challenge": CHALLENGE,
        "code_challenge_method": "S256",
        "resource": URL,
        "scope": "a2a.invoke",
        **changed,
    }
    answer = HTTP.get(SERVER["authorization_endpoint"], params=asked)
    if answer.status_code != 302:
        return answer.json()
    place, _, query = answer.headers["location"].partition("?")
    back = dict(urllib.parse.parse_qsl(query))
    assert (place, back["iss"]) == (REDIRECT, SERVER["issuer"]), answer.headers["location"]
    return back


def token(code, **changed):
    asked = {
        "grant_type": "authorization_code",
        "code": code,
        "client_id": CLIENT,
        "redirect_uri": REDIRECT,
        "code_verifier": VERIFIER,
        "resource": URL,
        **changed,
    }
    return HTTP.post(SERVER["token_endpoint"], data=asked).json()


def refresh(given, **changed):
    return token("", grant_type="refresh_token", refresh_token=given, **changed)


def outcomes():
    """What was tried, what the issuer said, and what it has to say."""
    good = token(authorize()["code"])
    yield "a_good_request", good.get("scope"), "a2a.invoke"
    yield "a_foreign_place", register(redirect_uris=["http://elsewhere.example/"]).get("error"), "invalid_redirect_uri"
    for name, changed, error in [
        ("an_unknown_client", {"client_id": "x"}, "invalid_client"),
        ("another_place", {"redirect_uri": f"{REDIRECT}2"}, "invalid_request"),
        ("a_plain_challenge", {"code_challenge_method": "plain"}, "invalid_request"),
        ("no_challenge", {"code_challenge": ""}, "invalid_request"),
        ("an_unknown_scope", {"scope": "a2a.invoke admin"}, "invalid_scope"),
        ("no_resource", {"resource": ""}, "invalid_target"),
    ]:
        yield name, authorize(**changed).get("error"), error
    for name, changed, error in [
        ("a_wrong_verifier", {"code_verifier": "w" * 64}, "invalid_grant"),
        ("another_client", {"client_id": register()["client_id"]}, "invalid_grant"),
        ("another_resource", {"resource": "https://elsewhere.example/"}, "invalid_target"),
    ]:
        yield name, token(authorize()["code"], **changed).get("error"), error
    code = authorize()["code"]
    yield "a_code_once", token(code).get("token_type"), "Bearer"
    yield "a_code_twice", token(code).get("error"), "invalid_grant"
    more = refresh(token(authorize()["code"])["refresh_token"], scope="a2a.invoke a2a.data")
    yield "more_scopes_by_refresh", more.get("error"), "invalid_scope"
    yield "a_refresh_once", refresh(good["refresh_token"]).get("token_type"), "Bearer"
    yield "a_refresh_twice", refresh(good["refresh_token"]).get("error"), "invalid_grant"


def main():
    failed = 0
    for name, said, expected in outcomes():
        failed += said != expected
        print(f"ok {name}" if said == expected else f"FAILED {name}: {said}, not {expected}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
