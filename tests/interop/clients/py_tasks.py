"""What a Python MCP client must be able to do with an agent whose work takes long and who asks.

Run with a mode of the official client: `auto` follows `requestState` by itself, `legacy` is the
handshake of 2025-11-25. Prints one line per check and exits 1 if any failed. `tasks.mjs` makes the
same checks in TypeScript. The gateway's patience is small here: see `run`.
"""

import asyncio
import contextlib
import json
import os
import sys
import time
import traceback

import anyio
import mcp_types as types
from mcp import Client
from py_server import server

VERSIONS = {"auto": "2026-07-28", "legacy": "2025-11-25"}
MINUTE = os.environ.get("INTEROP_MINUTE") == "1"  # only work of a real minute, at the gateway's own patience
LIMIT = 150 if MINUTE else 60  # seconds for one check
PATIENCE = 14  # seconds within which any call must have said something
UNDER_WAY = ("submitted", "working")
LOGIN = "https://login.example/start?flow=interop"
CHUNKS = "".join(f"{index};" for index in range(1000))


def text_of(result):
    return "".join(block.text for block in result.content if block.type == "text")


def state_of(result):
    return (result.structured_content or {}).get("state")


def expect(condition, why):
    if not condition:
        raise AssertionError(why)


class User:
    """Answers questions, and remembers them."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []

    async def __call__(self, context, params):
        self.asked.append(params)
        if isinstance(params, types.ElicitRequestURLParams):
            return types.ElicitResult(action="accept")
        if not self.answers:
            return types.ElicitResult(action="decline")
        return types.ElicitResult(action="accept", content={"reply": self.answers.pop(0)})

    @property
    def questions(self):
        return [params.message for params in self.asked]


class Checks:
    def __init__(self, url, agent, mode):
        self.url = url
        self.agent = agent
        self.mode = mode

    @contextlib.asynccontextmanager
    async def client(self, user=None, **options):
        async with Client(server(self.url), mode=self.mode, elicitation_callback=user, **options) as client:
            expect(client.protocol_version == VERSIONS[self.mode], f"negotiated {client.protocol_version}")
            yield client

    async def call(self, client, skill, text, **options):
        """Calls a tool of the agent; no call may leave its client without a word for long."""
        began = time.monotonic()
        result = await client.call_tool(f"{self.agent}_{skill}", {"text": text}, **options)
        took = time.monotonic() - began
        expect(took < PATIENCE, f"the call took {took:.1f} s")
        return result

    async def started(self, client, text):
        uri = f"a2a-agent://{self.agent}"
        result = await client.call_tool("subagent_start", {"subagentUri": uri, "text": text})
        task = (result.structured_content or {}).get("taskId")
        expect(not result.is_error and task, result)
        return task, result

    async def settled(self, client, task):
        """Waits for the task with the tool that is there for it, until it is no longer under way."""
        while True:
            result = await client.call_tool("subagent_wait", {"taskId": task, "seconds": 2})
            if state_of(result) not in UNDER_WAY:
                return result

    async def read(self, client, uri):
        return json.loads((await client.read_resource(uri)).contents[0].text)

    async def long_call(self):
        seconds = 4 if self.mode == "auto" else 2
        told = []

        async def progress(value, total, message):
            told.append(message)

        async with self.client() as client:
            began = time.monotonic()
            result = await self.call(client, "work", f"{seconds}", progress_callback=progress)
            expect(not result.is_error and f"Worked for {seconds} seconds" in text_of(result), result)
            expect(time.monotonic() - began >= seconds - 0.5, "answered before the work was done")
            expect(any("seconds gone" in (message or "") for message in told), f"progress: {told}")

    async def minute(self):
        async with self.client() as client:
            result = await client.call_tool(f"{self.agent}_work", {"text": "65"})
            if state_of(result) in UNDER_WAY:
                result = await self.settled(client, result.structured_content["taskId"])
            expect(not result.is_error and "Worked for 65 seconds" in text_of(result), result)

    async def outlasts(self):
        async with self.client() as client:
            result = await self.call(client, "work", "18")
            task = (result.structured_content or {}).get("taskId")
            expect(not result.is_error and task and state_of(result) == "working", result)
            result = await self.settled(client, task)
            expect(state_of(result) == "completed" and "Worked for 18 seconds" in text_of(result), result)

    async def two_questions(self):
        user = User("blue", "large")
        async with self.client(user) as client:
            result = await self.call(client, "twice", "paint it")
            expect("The colour is blue, the size is large" in text_of(result), result)
            expect(not result.is_error and user.questions == ["Which colour?", "Which size?"], user.questions)
            for params in user.asked:
                reply = params.requested_schema.get("properties", {}).get("reply", {})
                expect(reply.get("type") == "string", params)

    async def asked_later(self):
        user = User("red")
        async with self.client(user) as client:
            result = await self.call(client, "later", "paint it")
            expect(not result.is_error and "The colour is red" in text_of(result), result)
            expect(user.questions == ["Which colour?"], user.questions)

    async def declined(self):
        user = User()
        async with self.client(user) as client:
            result = await self.call(client, "twice", "paint it")
            task = (result.structured_content or {}).get("taskId")
            expect(task and state_of(result) == "input-required", result)
            expect(user.questions == ["Which colour?"], user.questions)
            sent = await client.call_tool("subagent_send", {"taskId": task, "text": "blue"})
            expect(not sent.is_error, sent)

    async def not_asked(self):
        async with self.client() as client:
            result = await self.call(client, "twice", "paint it")
            task = (result.structured_content or {}).get("taskId")
            expect(not result.is_error and task and state_of(result) == "input-required", result)
            expect("Which colour?" in text_of(result), result)

    async def cancelled(self):
        """The client gives its call up at once; the agent must hear of it."""
        words = f"30 seconds for {self.mode}"
        async with self.client() as client:
            with anyio.move_on_after(0.3) as scope:
                await client.call_tool(f"{self.agent}_work", {"text": words})
            expect(scope.cancelled_caught, "answered before it was given up")
            await self.agent_canceled(client, words)

    async def agent_canceled(self, client, words):
        for _ in range(50):
            if text_of(await self.call(client, "fate", words)).startswith("canceled"):
                return
            await asyncio.sleep(0.1)
        raise AssertionError("the agent was not told")

    async def chunks(self):
        async with self.client() as client:
            result = await self.call(client, "chunks", "1000")
            if state_of(result) in UNDER_WAY:  # an agent that is not quick
                result = await self.settled(client, result.structured_content["taskId"])
            text = text_of(result)
            expect(not result.is_error and CHUNKS in text, f"{len(text)} characters: {text[:60]}…")

    async def failed(self):
        async with self.client() as client:
            result = await self.call(client, "fail", "x")
            expect(result.is_error and "on purpose" in text_of(result), result)

    async def rejected(self):
        async with self.client() as client:
            result = await self.call(client, "reject", "x")
            expect(result.is_error and "That is not for me" in text_of(result), result)

    async def signed_in(self):
        if self.agent == "py01":  # 0.1 knows only questions: the user says when it is done
            return await self.signed_in_by_words()
        user = User()
        async with self.client(user) as client:
            result = await self.call(client, "login", "x")
            expect(not result.is_error and "You are signed in" in text_of(result), result)
            pages = [params.url for params in user.asked if isinstance(params, types.ElicitRequestURLParams)]
            expect(pages == [LOGIN] and len(user.asked) == 1, user.asked)

    async def signed_in_by_words(self):
        user = User("done")
        async with self.client(user) as client:
            result = await self.call(client, "login", "x")
            expect(not result.is_error and "You are signed in" in text_of(result), result)
            expect(len(user.asked) == 1 and "Sign in to go on" in user.questions[0], user.asked)

    async def subagent(self):
        async with self.client() as client:
            task, started = await self.started(client, "twice")
            links = [str(block.uri) for block in started.content if block.type == "resource_link"]
            expect(links == [started.structured_content["taskUri"]] == [f"a2a://task/{task}"], started)
            for question, answer in (("Which colour?", "blue"), ("Which size?", "large")):
                asked = await self.settled(client, task)
                expect(state_of(asked) == "input-required", asked)
                expect(question in asked.structured_content.get("statusMessage", ""), asked)
                sent = await client.call_tool("subagent_send", {"taskId": task, "text": answer})
                expect(not sent.is_error and sent.structured_content.get("ok") is True, sent)
            done = await self.settled(client, task)
            expect(state_of(done) == "completed" and "blue, the size is large" in text_of(done), done)
            got = await client.call_tool("subagent_get", {"taskId": task})
            expect(state_of(got) == "completed" and got.structured_content["taskId"] == task, got)

    async def subagent_cancelled(self):
        async with self.client() as client:
            task, _ = await self.started(client, f"work 30 seconds as a subagent for {self.mode}")
            canceled = await client.call_tool("subagent_cancel", {"taskId": task})
            expect(not canceled.is_error and canceled.structured_content.get("canceled") is True, canceled)
            result = await self.settled(client, task)
            expect(state_of(result) == "canceled", result)
            await self.agent_canceled(client, f"30 seconds as a subagent for {self.mode}")

    async def subagent_unknown(self):
        async with self.client() as client:
            for tool in ("subagent_get", "subagent_wait", "subagent_cancel"):
                result = await client.call_tool(tool, {"taskId": "nobody-has-this"})
                expect(result.is_error, result)

    async def task_resource(self):
        async with self.client() as client:
            task, started = await self.started(client, "echo read me")
            await self.settled(client, task)
            seen = await self.read(client, started.structured_content["taskUri"])
            expect(seen["taskId"] == task and seen["state"] == "completed", seen)
            expect("read me" in json.dumps(seen["artifacts"]), seen)

    async def watched(self):
        """A task that is subscribed to tells of every change, its end included."""
        changed = asyncio.Event()
        count = 0

        async def heard(message):
            nonlocal count
            if isinstance(message, types.ResourceUpdatedNotification):
                count += 1
                changed.set()

        async with self.client(message_handler=heard) as client:
            _, started = await self.started(client, "work 3")
            uri = started.structured_content["taskUri"]
            async with self.watching(client, uri):
                while (await self.read(client, uri))["state"] != "completed":
                    await asyncio.wait_for(changed.wait(), 5)
                    changed.clear()
            expect(count >= 2, f"{count} updates")

    @contextlib.asynccontextmanager
    async def watching(self, client, uri):
        if self.mode == "legacy":
            await client.subscribe_resource(uri)
            yield
            await client.unsubscribe_resource(uri)
            return
        async with client.listen(resource_subscriptions=[uri]) as subscription:
            expect(list(subscription.honored.resource_subscriptions or []) == [uri], subscription.honored)
            yield


NAMES = (
    "long_call",
    "outlasts",
    "two_questions",
    "asked_later",
    "declined",
    "not_asked",
    "cancelled",
    "chunks",
    "failed",
    "rejected",
    "signed_in",
    "subagent",
    "subagent_cancelled",
    "subagent_unknown",
    "task_resource",
    "watched",
)


async def run(mode, url, agent):
    failed = 0
    checks = Checks(url, agent, mode)
    for name in ("minute",) if MINUTE else NAMES:
        try:
            await asyncio.wait_for(getattr(checks, name)(), LIMIT)
            print(f"ok {name}", flush=True)
        except Exception as error:
            failed += 1
            why = traceback.format_exception_only(leaf(error))[-1].strip()
            print(f"FAILED {name}: {why[:600]}", flush=True)
    return failed


def leaf(error):
    """The first cause in what the SDK's task groups wrapped up."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


if __name__ == "__main__":
    sys.exit(1 if asyncio.run(run(*sys.argv[1:])) else 0)
