"""Every row of the families of resources by its URI, and the prompts, by the official Python client.

Usage: py_resources.py auto|legacy URL AGENT_URL KEY DENIED_KEY. The rows and their members are in `rows.json`; prints a
line `ok ROW ASPECT` or `FAILED ROW ASPECT: why` for each. `resources.mjs` makes the same checks in TypeScript.
"""

import asyncio
import base64
import json
import pathlib
import re
import sys

import jsonschema
import mcp_types as types

from py_watched import LIMIT, Watcher, attempt, connected, expect, hook, read, shape, tool, watching

HERE = pathlib.Path(__file__).resolve().parent
ROWS = json.loads((HERE / "rows.json").read_text())
DEFINITIONS = json.loads((HERE.parent.parent.parent / "schemas" / "resources.v1.json").read_text())["$defs"]
MODE, URL, AGENT, KEY, DENIED_KEY = sys.argv[1:]
ISO8601 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


def has(value, path):
    """Whether a member is there: `a.b`, or `a[].b` for every element of a list that is not empty."""
    if not path:
        return True
    step, _, rest = path.partition(".")
    name = step.removesuffix("[]")
    if not isinstance(value, dict) or name not in value:
        return False
    if not step.endswith("[]"):
        return has(value[name], rest)
    return bool(value[name]) and all(has(element, rest) for element in value[name])


async def everything(client):
    """The URIs of all resources, and all templates, of all pages."""
    uris, templates = [], []
    page = await client.list_resources()
    while True:
        uris += [str(one.uri) for one in page.resources]
        if page.next_cursor is None:
            break
        page = await client.list_resources(cursor=page.next_cursor)
    page = await client.list_resource_templates()
    while True:
        templates += [one.uri_template for one in page.resource_templates]
        if page.next_cursor is None:
            return uris, templates
        page = await client.list_resource_templates(cursor=page.next_cursor)


class Belongings:
    """What the caller has: a task in its first phase, a stored value, and batches."""

    async def prepare(self, client):
        self.client = client
        self.name = f"rows-{MODE}"
        start = {"subagentUri": "a2a-agent://phases", "text": f"phases {self.name}"}
        self.task = (await tool(client, "subagent_start", start))["taskId"]
        async with asyncio.timeout(LIMIT):
            while True:
                seen = await shape(client, f"a2a://tasks/{self.task}")
                if seen["metadata"]["sparcPhase"] and seen["artifacts"]:
                    break
        self.context = seen["contextId"]
        self.stored = 0
        await self.store()
        await self.batch(wait=True)
        held = [{"tool": "phases_hold", "arguments": {"text": f"hold-{self.name}"}}]
        await tool(client, "batch_start", {"calls": held, "wait": False})
        await self.count_until_running()

    async def count_until_running(self):
        async with asyncio.timeout(LIMIT):
            while not any(one["startTime"] for one in (await shape(self.client, "batchtools://queue/status"))["operations"]):
                pass

    async def store(self):
        """Stores the watched key again, and another one."""
        self.stored += 1
        for key in ("task:1:specification", f"task:{self.stored}:more"):
            value = {"namespace": "rows", "key": key, "value": {"note": f"value {self.stored}"}, "ttl": 3600}
            await tool(self.client, "memory_store", value)

    async def batch(self, wait=False):
        calls = [{"tool": "phases_count", "arguments": {"text": f"{number}"}} for number in range(2)]
        await tool(self.client, "batch_start", {"calls": calls, "wait": wait})

    async def configure(self):
        self.stored += 1
        change = {"thresholds": {"queueSize": 100 + self.stored}}
        await tool(self.client, "batch_configure", change)

    async def go_on(self):
        await hook(AGENT, f"next/{self.name}")

    async def change_card(self):
        await hook(AGENT, "card")

    def uri(self, row):
        named = {
            "contextId": self.context, "taskId": self.task, "streamId": self.task, "phase": "specification",
            "agentType": "researcher", "namespace": "rows", "key": "task:1:specification", "pattern": "task:*", "page": "7",
        }
        return re.sub(r"\{(\w+)\}", lambda found: named[found[1]], row)

    def change(self, row):
        """What changes the resource of a row."""
        family, _, path = row.partition("://")
        if row.startswith(("sparc://agent", "a2a://agents")):
            return self.change_card
        if family == "memory":
            return self.store
        if family == "batchtools":
            return self.configure if path.startswith("config") else self.batch
        return self.go_on


class Rows:
    def __init__(self, own, watcher, denied):
        self.own, self.watcher, self.denied = own, watcher, denied
        self.client = own.client

    def spellings(self, row):
        uri = self.own.uri(row["row"])
        if row["type"] == "static":  # of the operator: no family of its own
            return [uri]
        return [uri, "mcp://mcp-a2a-gateway/" + uri.replace("://", "/", 1)]

    async def listed(self, row):
        uris, templates = await everything(self.client)
        uri = self.spellings(row)[0]
        start = row["row"].partition("{")[0]
        found = uri in uris or any(one.startswith(start) for one in templates if "{" in one and "{" in row["row"])
        expect(found, f"{uri} is neither in {uris} nor in {templates}")

    async def read(self, row):
        bodies = []
        for uri in self.spellings(row):
            content = await read(self.client, uri)
            meta = content.meta
            expect(str(content.uri) == uri and content.mime_type == "application/json", content)
            expect(meta["resourceId"] == self.spellings(row)[0] and meta["type"] == row["type"], meta)
            expect(meta["cachePolicy"] == row["policy"] and "read" in meta["permissions"], meta)
            expect(ISO8601.fullmatch(meta["lastModified"]), meta)
            expect(meta["schema"].endswith(f"#/$defs/{row['schema']}"), meta)
            value = json.loads(content.text)
            jsonschema.validate(value, {"$ref": f"#/$defs/{row['schema']}", "$defs": DEFINITIONS})
            missing = [path for path in row["members"] if not has(value, path)]
            expect(not missing, f"no {missing} in {value}")
            bodies.append(sorted(value))
        expect(all(body == bodies[0] for body in bodies), bodies)

    async def updated(self, row):
        uri = self.spellings(row)[0]
        if row["policy"] == "static":
            return await self.kept(uri)
        seen = self.watcher.count(uri)
        async with watching(self.client, uri) as accepted:
            expect(accepted, f"{uri} cannot be subscribed to")
            await self.own.change(row["row"])()
            await self.watcher.until(uri, seen + 1)

    async def kept(self, uri):
        """A static resource may be kept by the client, and subscribed to although it never changes."""
        result = await self.client.read_resource(uri)
        expect(MODE == "legacy" or result.ttl_ms == 30_000, result)
        async with watching(self.client, uri) as accepted:
            expect(accepted, f"{uri} cannot be subscribed to")

    async def denied_to_other(self, row):
        uris, _ = await everything(self.denied)
        for uri in self.spellings(row):
            expect(uri not in uris, f"{uri} is listed")
            try:
                content = await read(self.denied, uri)
            except Exception as error:
                expect("no such resource" in str(error) or "unknown" in str(error).lower(), error)
            else:
                raise AssertionError(f"{uri} is readable: {content}")
            async with watching(self.denied, uri) as accepted:
                expect(not accepted, f"{uri} can be subscribed to")

    ASPECTS = {"listed": listed, "read": read, "updated": updated, "denied": denied_to_other}


class Prompts:
    def __init__(self, client):
        self.client = client

    async def prompt_list(self):
        listed = {prompt.name: prompt for prompt in (await self.client.list_prompts()).prompts}
        expect({"review", "phases_phases", "phases_count"} <= set(listed), listed)
        told = [(argument.name, bool(argument.required)) for argument in listed["review"].arguments]
        expect(told == [("text", True), ("style", False)] and listed["review"].title == "Review", listed["review"])

    async def prompt_get(self):
        got = await self.client.get_prompt("review", {"text": "clause {{style}}", "style": "short"})
        first, question = got.messages[0], got.messages[1]
        expect(first.role == "user" and first.content.text == "Review (short): clause {{style}}", got)
        expect(question.role == "assistant" and question.content.text == "Which part first?", got)

    async def prompt_image(self):
        got = await self.client.get_prompt("review", {"text": "x"})
        image = next(message.content for message in got.messages if message.content.type == "image")
        expect(image.mime_type == "image/png" and base64.b64decode(image.data).startswith(b"\x89PNG"), image)

    async def prompt_resource(self):
        got = await self.client.get_prompt("review", {"text": "x", "style": "long"})
        embedded = [message.content.resource for message in got.messages if message.content.type == "resource"]
        told = [(str(one.uri), one.mime_type, one.text) for one in embedded]
        expect(told == [("docs://style/long", "text/plain", "Be long.")], told)

    async def prompt_of_skill(self):
        got = await self.client.get_prompt("phases_count")
        expect(got.messages[0].content.text.startswith("count this") and "phases_count" in got.messages[0].content.text, got)

    async def prompt_without_argument(self):
        try:
            got = await self.client.get_prompt("review", {"style": "short"})
        except Exception as error:
            expect("text" in str(error) and "missing" in str(error), error)
        else:
            raise AssertionError(got)

    async def prompt_completion(self):
        for name, argument, begun, values in (
            ("review", "style", "sho", ["short", "shorter"]),
            ("phases_hold", "text", "hold", ["hold this"]),
        ):
            told = await self.client.complete(types.PromptReference(name=name), {"name": argument, "value": begun})
            expect(told.completion.values == values, told)

    async def template_completion(self):
        template = types.ResourceTemplateReference(uri="memory://data/{namespace}/{key}")
        told = await self.client.complete(template, {"name": "namespace", "value": "ro"})
        expect("rows" in told.completion.values, told)


async def main():
    watcher, own, failed = Watcher(), Belongings(), 0
    async with connected(MODE, URL, KEY, watcher) as client, connected(MODE, URL, DENIED_KEY) as denied:
        await own.prepare(client)
        rows = Rows(own, watcher, denied)
        for aspect, check in Rows.ASPECTS.items():
            for row in ROWS:
                failed += await attempt(f"{row['row']} {aspect}", check(rows, row))
        prompts = Prompts(client)
        for name in [name for name in vars(Prompts) if name.startswith(("prompt_", "template_"))]:
            failed += await attempt(name, getattr(prompts, name)())
        await hook(AGENT, f"next/hold-{own.name}")
    return failed


if __name__ == "__main__":
    sys.exit(1 if asyncio.run(main()) else 0)
