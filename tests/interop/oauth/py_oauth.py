"""The official Python client on its way to a token, and what it may do with it.

Usage: py_oauth.py auto|legacy URL AGENT. The client is told nothing but the URL of the gateway. `oauth.mjs` makes the same checks.
"""

import asyncio
import contextlib
import sys
import urllib.parse

import httpx2
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata

LIMIT = 20  # seconds for one check
REDIRECT = "http://127.0.0.1:9/callback"  # nobody listens: the redirect is read, not followed
MODE, URL, AGENT = sys.argv[1:]
ORIGIN, _, PATH = URL.partition("/mcp")
PREFIX = "" if PATH else f"{AGENT}_"  # one agent's own path needs none


def text_of(result):
    return "".join(block.text for block in result.content if block.type == "text")


def expect(condition, why):
    if not condition:
        raise AssertionError(why)


class Storage:
    def __init__(self):
        self.tokens = self.client = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client):
        self.client = client


class Journey:
    """One user's client, and what it asked for on its way."""

    def __init__(self):
        self.storage, self.asked, self.consents = Storage(), [], []
        metadata = OAuthClientMetadata(client_name="interop", redirect_uris=[REDIRECT])
        self.provider = OAuthClientProvider(URL, metadata, self.storage, self.redirect, self.callback)

    async def redirect(self, url):
        """What a browser does: goes where it is sent, until that is the client's own place."""
        async with httpx2.AsyncClient() as browser:
            answer = await browser.get(url)
        query = urllib.parse.urlsplit(url).query
        self.consents.append(dict(urllib.parse.parse_qsl(query)))
        place = answer.headers.get("location", "")
        expect(place.startswith(f"{REDIRECT}?"), f"{answer.status_code} {answer.text}")
        self.back = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(place).query))

    async def callback(self):
        expect("code" in self.back, self.back)
        return AuthorizationCodeResult(**{name: self.back.get(name) for name in ("code", "state", "iss")})

    async def note(self, response):
        self.asked.append((response.status_code, str(response.url).partition("?")[0]))

    @contextlib.asynccontextmanager
    async def client(self):
        async with create_mcp_http_client(auth=self.provider) as http:
            http.event_hooks["response"].append(self.note)
            async with Client(streamable_http_client(URL, http_client=http), mode=MODE) as client:
                yield client

    def scopes(self):
        return set(self.storage.tokens.scope.split())


async def listed(client):
    return {tool.name for tool in (await client.list_tools()).tools}


async def echo(client):
    result = await client.call_tool(f"{PREFIX}echo", {"text": "let in"})
    expect(not result.is_error and "let in" in text_of(result), result)


async def finds_its_way():
    """From the 401 alone to a token that opens the gateway."""
    journey = Journey()
    async with journey.client() as client:
        expect(f"{PREFIX}echo" in await listed(client), "echo is not listed")
        await echo(client)
    issuer = journey.back["iss"]
    way = [
        (401, URL),
        (200, f"{ORIGIN}/.well-known/oauth-protected-resource/mcp{PATH}"),
        (200, f"{issuer}/.well-known/oauth-authorization-server"),
        (201, f"{issuer}/register"),
        (200, f"{issuer}/token"),
        (200, URL),
    ]
    expect(journey.asked[: len(way)] == way, journey.asked)
    consent = journey.consents[0]
    expect((consent["resource"], consent["scope"]) == (URL, "a2a.invoke"), consent)
    expect(len(journey.consents) == 1, journey.consents)


async def refused_with_a_token_for_another_resource():
    for other in ("https://elsewhere.example/mcp", f"{URL}/{AGENT}"):
        journey = Journey()
        journey.provider.context.get_resource_url = lambda: other
        try:
            async with journey.client() as client:
                await client.list_tools()
        except Exception:
            expect(journey.storage.tokens, "it got no token")
            ends = [status for status, url in journey.asked if url == URL]
            expect(set(ends) == {401} and len(ends) >= 2, journey.asked)
            continue
        raise AssertionError(f"let in with a token for {other}")


async def steps_up():
    """A tool that needs a further scope is called: the client gets that scope, keeps what it had, and goes on."""
    journey = Journey()
    async with journey.client() as client:
        expect(f"{PREFIX}data" not in await listed(client), "data is listed before it may be used")
        expect(journey.scopes() == {"a2a.invoke"}, journey.storage.tokens.scope)
        result = await client.call_tool(f"{PREFIX}data", {"text": "x"})
        expect(not result.is_error and "nested" in result.model_dump_json(), result)
        expect((403, URL) in journey.asked, journey.asked)
        expect(journey.scopes() == {"a2a.invoke", "a2a.data"}, journey.storage.tokens.scope)
        expect(len(journey.consents) == 2, journey.consents)
        await echo(client)
    async with journey.client() as client:
        expect(f"{PREFIX}data" in await listed(client), "data is not listed after it")
    expect(len(journey.consents) == 2, "asked again")


async def refreshes():
    """A token at its end is exchanged without the user."""
    journey = Journey()
    async with journey.client() as client:
        await echo(client)
        before = journey.storage.tokens.access_token
        journey.provider.context.token_expiry_time = 1.0  # a while ago
        await echo(client)
        expect(journey.storage.tokens.access_token != before, "the same token")
        expect(len(journey.consents) == 1, "the user was asked")


async def main():
    failed = 0
    for check in (finds_its_way, refused_with_a_token_for_another_resource, steps_up, refreshes):
        try:
            await asyncio.wait_for(check(), LIMIT)
            print(f"ok {check.__name__}", flush=True)
        except Exception as error:
            failed += 1
            while isinstance(error, ExceptionGroup):
                error = error.exceptions[0]
            print(f"FAILED {check.__name__}: {type(error).__name__}: {error}".replace("\n", " | ")[:1500], flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(1 if asyncio.run(main()) else 0)
