"""What the Python clients of resources share: a connection with a key, subscriptions in both eras, reading, reporting.

Not a client by itself: `py_resources.py` and `py_flow.py` are.
"""

import asyncio
import contextlib
import json

import httpx2
import mcp_types as types
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

VERSIONS = {"auto": "2026-07-28", "legacy": "2025-11-25"}
LIMIT = 60  # seconds for one check


def expect(condition, why):
    if not condition:
        raise AssertionError(why)


class Watcher:
    """Counts the updates of each resource, and waits for them."""

    def __init__(self):
        self.counts = {}
        self.changed = asyncio.Event()

    async def __call__(self, message):
        if isinstance(message, types.ResourceUpdatedNotification):
            uri = str(message.params.uri)
            self.counts[uri] = self.counts.get(uri, 0) + 1
            self.changed.set()

    def count(self, uri):
        return self.counts.get(uri, 0)

    async def until(self, uri, count, limit=10):
        async with asyncio.timeout(limit):
            while self.count(uri) < count:
                self.changed.clear()
                await self.changed.wait()


@contextlib.asynccontextmanager
async def connected(mode, url, key, watcher=None):
    async with create_mcp_http_client(headers={"X-API-Key": key}) as http:
        transport = streamable_http_client(url, http_client=http)
        async with Client(transport, mode=mode, message_handler=watcher, cache=None) as client:
            expect(client.protocol_version == VERSIONS[mode], f"negotiated {client.protocol_version}")
            yield client


@contextlib.asynccontextmanager
async def watching(client, uri):
    """Subscribes; yields whether the gateway accepts it."""
    if client.protocol_version == VERSIONS["legacy"]:
        try:
            await client.subscribe_resource(uri)
        except Exception:
            yield False
            return
        yield True
        await client.unsubscribe_resource(uri)
        return
    async with client.listen(resource_subscriptions=[uri]) as subscription:
        yield list(subscription.honored.resource_subscriptions or []) == [uri]


async def hook(agent, path):
    async with httpx2.AsyncClient() as http:
        answer = await http.post(f"{agent}{path}")
        expect(answer.status_code == 200, f"{path}: {answer.status_code}")


async def record(agent):
    async with httpx2.AsyncClient() as http:
        return (await http.get(f"{agent}record")).json()


async def tool(client, name, arguments, **options):
    result = await client.call_tool(name, arguments, **options)
    expect(not result.is_error, result)
    return result.structured_content


async def read(client, uri):
    (content,) = (await client.read_resource(uri)).contents
    return content


async def shape(client, uri):
    return json.loads((await read(client, uri)).text)


def leaf(error):
    """The first cause in what the SDK's task groups wrapped up."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}".replace("\n", " | ")[:600]


async def attempt(name, check):
    """Runs a check and prints a line; returns 1 if it failed."""
    try:
        async with asyncio.timeout(LIMIT):
            await check
        print(f"ok {name}", flush=True)
        return 0
    except Exception as error:
        print(f"FAILED {name}: {leaf(error)}", flush=True)
        return 1
