"""What a Python MCP client must be able to do with one agent behind the gateway.

Not a client by itself: `py_auto.py` and `py_legacy.py` run it with one mode each.
Prints one line per check and exits 1 if any failed. `checks.mjs` and
`rmcp-client/src/main.rs` make the same checks in the other languages.
"""

import asyncio
import json
import sys
import traceback

from mcp import Client
from py_server import server

LIMIT = 20  # seconds for one check
ECHOED = "Hello, 世界 🌊"
STREAMED = "Grüße, streamed in several pieces"


def text_of(result):
    return "".join(block.text for block in result.content if block.type == "text")


def expect(condition, why):
    if not condition:
        raise AssertionError(why)


class Checks:
    def __init__(self, client, agent, prefix):
        self.client = client
        self.agent = agent
        self.prefix = prefix

    async def call(self, skill, arguments, **options):
        return await self.client.call_tool(f"{self.prefix}{skill}", arguments, **options)

    async def tools(self):
        listed = {tool.name for tool in (await self.client.list_tools()).tools}
        wanted = {f"{self.prefix}{skill}" for skill in ("echo", "stream", "slow", "ask", "fail", "data")}
        expect(wanted <= listed, f"not listed: {wanted - listed}")

    async def echo(self):
        result = await self.call("echo", {"text": ECHOED})
        expect(not result.is_error and ECHOED in text_of(result), result)

    async def stream(self):
        seen = []

        async def progress(value, total, message):
            seen.append(value)

        result = await self.call("stream", {"text": STREAMED}, progress_callback=progress)
        expect(not result.is_error and STREAMED in text_of(result), result)
        expect(len(seen) >= 3 and seen == sorted(seen), f"progress: {seen}")

    async def slow(self):
        result = await self.call("slow", {"text": "late"})
        expect(not result.is_error and "late" in text_of(result), result)

    async def data(self):
        result = await self.call("data", {"text": "x"})
        expect(not result.is_error and "nested" in result.model_dump_json(), result)

    async def fail(self):
        result = await self.call("fail", {"text": "x"})
        expect(result.is_error and "on purpose" in text_of(result), result)

    async def bad_arguments(self):
        result = await self.call("echo", {"text": {"not": "a string"}})
        expect(result.is_error, result)

    async def ask(self):
        asked = await self.call("ask", {"text": "paint it"})
        task = (asked.structured_content or {}).get("taskId")
        expect(task, asked)
        answered = await self.call("ask", {"taskId": task, "text": "blue"})
        expect(not answered.is_error and "The colour is blue" in text_of(answered), answered)

    async def unknown_tool(self):
        try:
            result = await self.call("nothing", {"text": "x"})
        except Exception:
            return
        expect(result.is_error, result)

    async def resources(self):
        uri = f"a2a-agent://{self.agent}"
        listed = {str(one.uri) for one in (await self.client.list_resources()).resources}
        expect(uri in listed, f"{uri} not in {listed}")
        contents = (await self.client.read_resource(uri)).contents
        expect(contents and "echo" in json.dumps([one.text for one in contents]), contents)


NAMES = ("tools", "echo", "stream", "slow", "data", "fail", "bad_arguments", "ask", "unknown_tool", "resources")


async def run(mode, version):
    url, agent = sys.argv[1:]
    prefix = "" if url.endswith(f"/mcp/{agent}") else f"{agent}_"  # one agent's own path needs none
    failed = 0
    async with Client(server(url), mode=mode) as client:
        expect(client.protocol_version == version, f"negotiated {client.protocol_version}")
        checks = Checks(client, agent, prefix)
        for name in NAMES:
            try:
                await asyncio.wait_for(getattr(checks, name)(), LIMIT)
                print(f"ok {name}", flush=True)
            except Exception as error:
                failed += 1
                print(f"FAILED {name}: {type(error).__name__}: {error}", flush=True)
    return failed


def main(mode, version):
    """Runs every check in this mode; `version` is the protocol revision it must negotiate."""
    try:
        sys.exit(1 if asyncio.run(run(mode, version)) else 0)
    except Exception:
        print("FAILED connect: " + traceback.format_exc()[-2000:].replace("\n", " | "), flush=True)
        sys.exit(1)
